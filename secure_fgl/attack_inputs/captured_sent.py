"""Is what a client captured what left, and was it masked? Else EvidenceError at ``captured``.

The captured envelopes are held against the ledger's commitments. The body of a masked one is sealed
or encrypted, so the client keeps the masked vector beside it (`protocols.evidence.capture`); the
ledger binds that too. It must look uniform, by itself and once what the client said, computed
again, is taken off (`protocols.disclosures.sum.masks`). That the vector which was kept and
recorded is the one which was sealed is the word of the client's own gateway.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from audits.evidence.steps import Case
from crypto.homomorphic.he import scheme as find_scheme
from crypto.masks import container
from crypto.samplers import Stream
from protocols.disclosures.names import Disclosure
from protocols.disclosures.sum.guards import SCHEMES, encryption
from protocols.disclosures.sum.layout import Ring, SumLayout, Words, sum_layout, sum_ring
from protocols.disclosures.sum.masks import strange_mask, strange_masked
from protocols.errors import EvidenceError
from protocols.evidence.capture import captured_rounds, masked_digest
from protocols.forms import Exchange, Form
from protocols.messages import Message
from protocols.plan.steps import Step
from protocols.policy.guard import find
from protocols.sessions.store.recording import Captured, keeps_given
from protocols.wire.envelope import Envelope, commitment

__all__ = ["check_said", "check_sent", "must_have", "must_say", "summed"]

COMPUTED = (
    Disclosure.SUM,
    Disclosure.MIXED,
    Disclosure.NOISED,
    Disclosure.SIMILARITY,
    Disclosure.WEIGHTED_SUM,
    Disclosure.NEIGHBOUR_SUM,
)
"""Uploads that are captured, and computed again."""

_BROUGHT = (Disclosure.MIXED, Disclosure.SIMILARITY)
"""What an Ask brings to the aggregator beside totals, and is looked at."""


def must_say(case: Case, form: Form[Any]) -> dict[str, set[int]]:
    """Return, by client, the exchanges in which it sent, or took, what was to be captured."""
    handed = {exchange.name for exchange in form.exchanges if keeps_given(exchange)}
    found: dict[str, set[int]] = {}
    for sent in case.ledger_index.releases():
        looked = (sent.step is Step.UP and sent.part in COMPUTED) or (
            sent.step is Step.ACK and sent.ask in handed
        )
        if looked and _captured(case, form, sent.ask, sent.round):
            found.setdefault(sent.party, set()).add(sent.exchange)
    return found


def must_have(case: Case, form: Form[Any]) -> set[int]:
    """Return the Asks whose totals, mixtures or cosines the aggregator was to capture."""
    items = (item for part in _BROUGHT for item in case.plan.all_of(part, Step.UP))
    brings = {item.exchange for item in items}
    return {
        ask.number
        for ask in case.exchanges.all.values()
        if (ask.summed or ask.name in brings)
        and not ask.lost(case.plan.smallest_cohort)
        and _captured(case, form, ask.name, ask.round)
    }


def _captured(case: Case, form: Form[Any], exchange: str, round: int) -> bool:
    """Tell whether an Ask was to be captured."""
    found = [e for e in form.exchanges if e.name == exchange and e.per_round]
    return bool(found) and round in captured_rounds(case.policy.capture, case.plan.rounds)


def summed(case: Case, exchange: Exchange) -> tuple[SumLayout, Ring]:
    """Return how what an exchange sums was laid out, and how it stood in what was summed."""
    chain = case.policy.chain(Disclosure.SUM)
    item = case.plan.find(exchange.name, Disclosure.SUM, Step.UP)
    kinds = [kind for kind in exchange.back if kind.disclosure is Disclosure.SUM]
    layout = sum_layout(kinds, chain, {**case.plan.dims, **item.dims})
    wanted = encryption(chain)
    scheme = find_scheme(SCHEMES[wanted]) if wanted else None
    return layout, sum_ring(
        layout, chain, len(case.plan.clients), scheme, item.margin, checked=item.checked > 0
    )


def check_sent(case: Case, exchange: Exchange, client: str, answer: Captured) -> None:
    """Hold a captured answer against its client's ledger, and its sum against what masks make.

    Raises:
        EvidenceError: an envelope is not the ledger's, or its vector is not masked as planned.
    """
    known = {
        entry["commitment"]: entry
        for entry in case.ledger_index.entries.get(client, ())
        if entry["kind"] == "release" and entry["exchange"] == answer.number
    }
    sums = {item.id for item in case.plan.all_of(Disclosure.SUM, Step.UP)}
    for data in answer.sent:
        envelope = Envelope.decode(data)
        if (left := commitment(envelope)) not in known:
            raise EvidenceError(
                "captured", f"a captured envelope of {client} is not what its ledger says left"
            )
        header = envelope.header
        if header.item in sums and find(case.policy.chain(Disclosure.SUM), "mask"):
            words, ring = _inside(answer, header.item), summed(case, exchange)[1]
            whole = words is not None and words.shape == (ring.size,)
            if words is None or not whole or words.dtype != container(ring.modulus):
                raise EvidenceError("captured", f"{client} lacks a masked vector that it sent")
            if known[left].get("masked") != masked_digest(header.nonce, words):
                raise EvidenceError(
                    "captured", f"a masked vector of {client} is not what its ledger says left"
                )
            _refuse(client, strange_masked(words, ring))


def check_said(
    case: Case, exchange: Exchange, client: str, answer: Captured, said: Sequence[Message]
) -> None:
    """Take what a client said off the masked vector that left: what is left must be masks.

    Rounding is drawn anew, so a coordinate without a mask may be a step away from nothing; and
    where noise was added or drawn, nobody can compute what was said. A good mask passes all the
    same, and `check_sent` looks at the vector alone.

    Args:
        case: the run.
        exchange: what was asked.
        client: who answered.
        answer: what `check_sent` took.
        said: its messages, computed again.

    Raises:
        EvidenceError: coordinates left as they were.
    """
    words = _inside(answer, case.plan.find(exchange.name, Disclosure.SUM, Step.UP).id)
    if words is not None:
        layout, ring = summed(case, exchange)
        mine = [message for message in said if type(message) in layout.kinds]
        bare = ring.residues(layout.encode(mine, Stream(bytes(32)))[0])
        _refuse(client, strange_mask(bare, words, ring.modulus))


def _inside(answer: Captured, item: str) -> Words | None:
    return answer.inside.get(item) if answer.inside else None


def _refuse(client: str, why: str) -> None:
    if why:
        raise EvidenceError("captured", f"what {client} sent was not masked: {why}")
