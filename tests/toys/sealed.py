"""Additive secret sharing (Blakley/Shamir's simplest relative): a sum through sealed rows.

Client i splits its number into one share per client, adds what it receives, and says the sum of
shares. All shares are uniform mod 2^16, so the relay and any n - 1 clients learn nothing more than
the total.
"""

from __future__ import annotations

import numpy as np

from algorithms.tasks import ClientModel, Site
from protocols.forms import Algorithm, Form
from protocols.messages import (
    Matrix,
    Message,
    ReleasedMessage,
    SealedMessage,
    SumMessage,
    Vector,
    count,
    real,
)
from protocols.rounds import Ask, Cohort, Round

MODULUS = 1 << 16


class Total(ReleasedMessage):
    """The total of all clients' numbers."""

    value: Vector = count("k", unit="item", meaning="total mod 2^16")


class Share(SealedMessage):
    """Row j is for client j."""

    share: Matrix = count("cohort", "k", unit="share", meaning="additive share mod 2^16")
    note: Vector = real("cohort", unit="row", meaning="100 x sender + addressee, to check routing")


class Partial(SumMessage):
    """The sum of the shares that one client received."""

    value: Vector = count("k", unit="share", meaning="sum of shares mod 2^16")


def sealed(*, k: int) -> Algorithm[Total]:
    """Return the toy; `site.data` holds `number` (k,), `index` and `clients`."""

    def init(rng: np.random.Generator) -> Total:
        return Total(value=np.zeros(k, dtype=np.int64))

    def split(site: Site, given: Total) -> Share:
        own = site.data
        share = site.generator("shares").integers(MODULUS, size=(own.clients, k))
        share[-1] = (own.number - share[:-1].sum(axis=0)) % MODULUS
        site.memory["kept"] = share
        return Share(share=share, note=100.0 * own.index + np.arange(own.clients))

    def add(site: Site, given: Share) -> Partial:
        site.memory["received"] = (given.share, given.note)
        return Partial(value=np.asarray(given.share).astype(np.int64).sum(axis=0) % MODULUS)

    def model(site: Site, given: Message | None) -> ClientModel:
        return ClientModel((np.zeros(0, dtype=np.float32),))

    def round(state: Total, cohort: Cohort) -> Round[Total]:
        dealt = yield Ask(cohort, given=state, back=Share)
        reply = yield Ask(cohort, given=dealt.handed(Share), back=Partial)
        return Total(value=np.asarray(reply.total(Partial).value) % MODULUS)

    return Algorithm(
        name="toy_sealed",
        citation="additive secret sharing, as in Bonawitz et al., CCS 2017, section 3",
        init=init,
        model=model,
        forms=(Form.of("shares", round, answers={Total: split, Share: add}),),
        dims={"k": k},
    )
