"""How clients see to it that a model they are handed is no crafted one.

Whoever chooses the model chooses what its gradient tells: a crafted one makes a total show single
records (attack A20). So each exchange that hands out a model is planned in one of three ways:

    recomputed  the client draws the first model from the plan's public seed, and computes each
                later one from the last total, which has a check that only clients can make; the
                model itself is not sent
    bounded     the client takes what it is sent, unless it moved further from the last model than
                what clients may send can move it; loose where sums are weighted by records
    as sent     the client takes what it is sent, and the plan warns of it

Recomputing needs a form whose rounds follow from their totals, masks, and every client paired with
every other (below 100 clients, in one cohort), as the key of the checks travels with the secrets of
pairs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from protocols.disclosures.names import Disclosure
from protocols.forms import Exchange, Form
from protocols.keys.groups import planned_degree
from protocols.messages import Message
from protocols.policy.guard import find
from protocols.policy.policy import PrivacyPolicy

RECOMPUTED: Final = "recomputed"
BOUNDED: Final = "bounded"
_LOOSE: Final = 4
"""By how many times the bound of training records may exceed a client's own number: sites declare
a power of two, and a bound is refused beyond twice what they declare."""
AS_SENT: Final = "as sent"


@dataclass(frozen=True)
class Models:
    """What a form's models are, and how clients see to them.

    Attributes:
        how: one of the three above; empty where no model is handed out.
        kind: the message that is the model; None without one.
        exchange: name of the one that moves it.
        totals: the messages whose totals move it.
        reach: of the form.
        weighted: the sum is weighted by records, and divided by their number.
    """

    how: str = ""
    kind: type[Message] | None = None
    exchange: str = ""
    totals: tuple[type[Message], ...] = ()
    reach: float = 0.0
    weighted: bool = False

    def furthest(self, largest: float, records: int) -> float:
        """Return how far a round of clients within the clip moves a weight.

        A mean that is weighted by records moves by what one record may, not by what a client says
        of all of its own.

        Args:
            largest: what one client can say, with the noise of all.
            records: a client's training records at most.
        """
        return self.reach * largest * (min(1.0, _LOOSE / records) if self.weighted else 1.0)

    @classmethod
    def of(cls, form: Form[Any], policy: PrivacyPolicy, clients: int) -> Models:
        """Return how the models of an admitted form are seen to, among so many clients."""
        plain = form.plain or form
        first = plain.exchanges[0]
        kind = first.given[0]
        if not _is_model(kind):
            return cls()
        how = BOUNDED if plain.reach else AS_SENT
        chain = policy.rules.get(Disclosure.SUM, ())
        sums = all(back.disclosure is Disclosure.SUM for back in first.back)
        complete = planned_degree(clients, policy) == clients - 1
        able = plain.by_totals and sums and complete and find(chain, "mask") is not None
        able = able and not form.drawn  # clients of one cohort do not see the others' totals
        if able and policy.models == RECOMPUTED:
            how = RECOMPUTED
        return cls(how, kind, first.name, first.back, plain.reach, plain.weighted)

    def of_exchange(self, exchange: Exchange) -> str:
        """Return how clients see to the model that an exchange hands out; empty if it has none."""
        if self.kind is not None and exchange.given[0] is self.kind:
            return self.how
        return AS_SENT if any(map(_is_model, exchange.given)) else ""

    def checked_kinds(self, exchange: str) -> tuple[type[Message], ...]:
        """Return which of an exchange's sums have a check, the first of what comes back."""
        return self.totals if (self.how, self.exchange) == (RECOMPUTED, exchange) else ()

    def said(self, exchange: Exchange) -> dict[str, str] | None:
        """Return what a client learns of a total that it computes the model from; else None."""
        if self.of_exchange(exchange) != RECOMPUTED:
            return None
        names = ", ".join(kind.__name__ for kind in self.totals)
        return {
            "client": f"the cohort's total of {names}, from which it computes the model itself; "
            "one client alone can steer that model and read single records of others in a total",
            "network": "sender, recipient, time and size",
        }


def _is_model(kind: type[Message]) -> bool:
    weights = (field.wire in ("f4", "f8") and bool(field.shape) for field in kind.fields)
    return kind.disclosure is Disclosure.RELEASED and any(weights)
