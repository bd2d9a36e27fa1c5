"""Which chain protects a NEIGHBOUR_SUM message, and which forms it fits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from protocols.disclosures._base.rules import Chain, Limits, Rules
from protocols.disclosures.names import Disclosure
from protocols.forms import Exchange, Form
from protocols.messages import Message
from protocols.policy.admission import asked_holders, has_weights
from protocols.policy.guard import find, guard_of
from protocols.policy.guards import Clip

_CHAINS = (
    ("clip", "quantise", "mask_neighbours", "seal"),
    ("clip", "quantise", "unsafe_clear"),
)


class NeighbourRules(Rules):
    """Integers, masked within each neighbourhood; or in clear, where the coordinator reads all."""

    protecting = frozenset({"mask_neighbours", "unsafe_clear"})
    applied = protecting | {"clip", "quantise", "seal"}
    order = "clip, quantise, mask_neighbours, seal"

    def check(self, chain: Chain) -> None:
        """Hold it to its chains."""
        if tuple(guard.guard for guard in chain) not in _CHAINS:
            raise ValueError(f"needed are exactly {' or '.join(', '.join(c) for c in _CHAINS)}")
        clip = guard_of(chain, Clip)
        if clip is not None and clip.norm != "linf":
            raise ValueError("'clip' bounds every weight here: norm linf")

    def accounted(self, chain: Chain) -> bool:
        """Tell that these sums have no noise, so none can be accounted."""
        return find(chain, "mask_neighbours") is None

    def alone(self, chain: Chain) -> bool:
        """Tell that an exchange holds one such message."""
        return True

    def objection(self, kind: type[Message], form: Form[Any], policy: Limits) -> str | None:
        """Refuse counts, forms without neighbours, and rows of items that one client may hold."""
        if form.topology is None:
            return f"message {kind.__name__} goes to neighbours, and the form has no topology"
        if form.drawn:
            return f"message {kind.__name__} goes to the same neighbours in every round; none drawn"
        if any(field.wire not in ("f4", "f8") for field in kind.fields):
            return f"message {kind.__name__} holds counts, which cannot be mixed"
        if (asks := asked_holders(policy)) and form.rows and has_weights(kind, form.exchanges):
            of = "has weights of items that one client may hold"
            return f"message {kind.__name__} {of}, and {asks}"
        return None

    def among(self, exchanges: Sequence[Exchange], chain: Chain) -> str | None:
        """Refuse all but one such message a round, handed out once in it, and others beside it."""
        for exchange in exchanges:
            for kind in (k for k in exchange.back if k.disclosure is Disclosure.NEIGHBOUR_SUM):
                given = [other for other in exchanges if kind in other.given]
                both = [exchange, *given]
                if len(given) != 1 or any((one.per_round, one.outside) != (1, 0) for one in both):
                    return (
                        f"message {kind.__name__} is asked and handed out other than once a round"
                    )
        asked = [e for e in exchanges for k in e.back if k.disclosure is Disclosure.NEIGHBOUR_SUM]
        if len(asked) > 1:
            return "it asks for two sums over neighbours in a round"
        return _beside(exchanges) if asked else None


def _beside(exchanges: Sequence[Exchange]) -> str | None:
    """Refuse real numbers by another way: of a total, less what two read, few are left (O5)."""
    for exchange in exchanges:
        for kind in (k for k in exchange.back if k not in exchange.held_out):
            real = any(field.wire in ("f4", "f8") for field in kind.fields)
            if real and kind.disclosure is not Disclosure.NEIGHBOUR_SUM:
                return f"message {kind.__name__} holds real numbers beside sums over neighbours"
    return None


RULES = NeighbourRules()
