"""Which chains protect rows, and which forms can have their rows found by tags (O10, O24)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from protocols.disclosures._base.rules import Chain, Limits, Rules
from protocols.disclosures.names import Disclosure
from protocols.disclosures.row_sum.guards import Rows as RowsGuard
from protocols.forms import Exchange, Form
from protocols.messages import Message, RowSumMessage
from protocols.policy.guard import guard_of
from protocols.policy.guards import Clip, Quantise

_PROTECTED = ("clip", "quantise", "rows", "seal")
_NOISED = ("clip", "quantise", "row_noise", "rows", "seal")
_PUBLISHED = ("rows", "unsafe_clear")


class RowSumRules(Rules):
    """Rows under masks, found by tags; or as published, and then Unsafe."""

    protecting = frozenset({"rows", "unsafe_clear"})
    applied = protecting | {"clip", "quantise", "row_noise", "seal"}
    order = "clip, quantise, rows, seal; clip, quantise, row_noise, rows, seal; rows, unsafe_clear"
    from_records = True

    def check(self, chain: Chain) -> None:
        """Hold what is summed to the chain of its form."""
        rows = guard_of(chain, RowsGuard)
        if rows is None:
            super().check(chain)
            return
        wanted = _PUBLISHED if rows.unsafe else _NOISED if rows.noised else _PROTECTED
        if tuple(guard.guard for guard in chain) != wanted:
            raise ValueError(f"needed are exactly {', '.join(wanted)}, for form '{rows.form}'")
        if rows.unsafe:
            return
        norm, of = ("l2", "a node's term") if rows.noised else ("linf", "every entry of a sum")
        if (clip := guard_of(chain, Clip)) is None or clip.norm != norm:
            raise ValueError(f"'rows' of form '{rows.form}' needs 'clip' with norm {norm}: of {of}")
        if (quantise := guard_of(chain, Quantise)) is None or quantise.bits > 20:
            raise ValueError("'quantise' has too many bits: rows add up in 32; take 20 or fewer")

    def accounted(self, chain: Chain) -> bool:
        """Rows have no noise that hides a client as a whole, nor has who adds to which."""
        rows = guard_of(chain, RowsGuard)
        return rows is None or rows.unsafe

    def alone(self, chain: Chain) -> bool:
        """Tell that an exchange brings back one message of rows."""
        return True

    def objection(self, kind: type[Message], form: Form[Any], policy: Limits) -> str | None:
        """Refuse rows by public number where they are found by tags, and the other way round."""
        asked = {k for exchange in form.exchanges for k in exchange.back}
        if kind not in asked:
            return None
        rows = guard_of(policy.rules.get(Disclosure.ROW_SUM, ()), RowsGuard)
        tagged = rows is not None and not rows.unsafe
        if rows is not None and tagged and not (rows.noised or rows.accept_sums):
            return (
                "rows would be told without noise, and a sum of a few sparse records can be parted "
                "(A15): take form: noised of the guard 'rows', hops: 0, or accept_sums: true where "
                "the data owners accept that"
            )
        by_tags = issubclass(kind, RowSumMessage) and kind.by_tags
        noised = rows is not None and rows.noised
        if noised and issubclass(kind, RowSumMessage) and by_tags and not kind.of_one:
            return (
                f"in {kind.__name__} a node's features enter other nodes' terms as well, which the "
                "noise on rows does not cover (fed_gnn: take alone: true)"
            )
        if tagged is by_tags:
            return None
        how = "by tags" if tagged else "in clear"
        return f"message {kind.__name__} is not of the kind that the policy lets out {how}"

    def among(self, exchanges: Sequence[Exchange], chain: Chain) -> str | None:
        """Say what of a form cannot be found by tags."""
        rows = guard_of(chain, RowsGuard)
        if rows is None or rows.unsafe:
            return None
        asked = [e for e in exchanges if any(k.disclosure is Disclosure.ROW_SUM for k in e.back)]
        if len(asked) > 1:
            return "two exchanges bring back rows; a node would enter two of them"
        for exchange in asked:
            if len(exchange.back) > 1 or exchange.per_round > 1 or exchange.outside:
                return f"{exchange.name} must bring back one message of rows, once a round at most"
        return None


RULES = RowSumRules()
