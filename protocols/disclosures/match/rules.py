"""Which chains protect what is matched, and which forms can be matched by tags (O24, O25)."""

from __future__ import annotations

from collections.abc import Sequence

from protocols.disclosures._base.rules import Chain, Limits, Rules
from protocols.disclosures.match.guards import SMALLEST_CELL, Match
from protocols.disclosures.names import Disclosure
from protocols.disclosures.noised.guards import Laplace
from protocols.forms import Exchange
from protocols.policy.guard import guard_of
from protocols.policy.guards import Clip, Quantise

_MATCHED = ("clip", "quantise", "match")
_PUBLISHED = ("clip", "laplace", "match", "unsafe_clear")


class MatchRules(Rules):
    """Tags in place of items, and means over cells; or as published, and then Unsafe."""

    protecting = frozenset({"match", "unsafe_clear"})
    applied = protecting | {"clip", "quantise", "laplace", "seal"}
    order = "clip, quantise, match, seal; or clip, laplace, match, unsafe_clear"

    def check(self, chain: Chain) -> None:
        """Hold what is matched to the chain of its form and mode."""
        match, quantise = guard_of(chain, Match), guard_of(chain, Quantise)
        if match is None:
            super().check(chain)
            return
        published = match.form == "published"
        wanted = (*_MATCHED, "unsafe_clear" if match.unsafe else "seal")
        wanted = _PUBLISHED if published else wanted
        if tuple(guard.guard for guard in chain) != wanted:
            of = f"MATCH, form '{match.form}', mode '{match.mode}'"
            raise ValueError(f"needed are exactly {', '.join(wanted)}, for {of}")
        if published:
            _check_published(chain)
        elif 2 * match.cell >> (32 - (quantise.bits if quantise else 0)):
            raise ValueError("'quantise' has too many bits: cells add up in 32 bits")

    def accounted(self, chain: Chain) -> bool:
        """Which items are equal is told without noise."""
        return guard_of(chain, Match) is None

    def check_policy(self, chain: Chain, policy: Limits) -> None:
        """Refuse cells and floors that colluders of the policy would fill."""
        if (match := guard_of(chain, Match)) is None:
            return
        smallest = max(policy.smallest_cohort, SMALLEST_CELL + policy.colluders)
        if match.form == "cell_means" and match.cell < smallest:
            raise ValueError(f"cell: at least {smallest}, colluders counted (O10)")
        if match.floor < 3 + policy.colluders:
            raise ValueError(f"floor: at least {3 + policy.colluders}, colluders counted (O10)")

    def among(self, exchanges: Sequence[Exchange], chain: Chain) -> str | None:
        """Say what of a form cannot be matched by tags."""
        return _objection(exchanges) if guard_of(chain, Match) else None


def _check_published(chain: Chain) -> None:
    """Hold the noise on vectors that strangers read to one with an epsilon; raises ValueError."""
    clip, noise = guard_of(chain, Clip), guard_of(chain, Laplace)
    if not clip or clip.norm != "linf":
        raise ValueError("'laplace' needs 'clip' with norm linf before it")
    if not noise or noise.how != "fixed":
        raise ValueError("'laplace' is fixed: a scale that follows the data has no epsilon")
    noise.steps(clip.bound)


def _objection(exchanges: Sequence[Exchange]) -> str | None:
    asked = [e for e in exchanges if any(k.disclosure is Disclosure.MATCH for k in e.back)]
    if len(asked) > 1:
        return "two exchanges bring back what is matched; one is possible"
    for exchange in asked:
        if len(exchange.back) > 1 or exchange.per_round > 1 or exchange.outside:
            return f"{exchange.name} must bring back one matched message, once a round at most"
        (kind,) = exchange.back
        keys = [f for f in kind.fields if f.key and len(f.shape) == 1]
        reals = [f for f in kind.fields if f.wire in ("f4", "f8")]
        if (len(keys), len(reals), len(kind.fields)) != (1, 1, 2):
            return f"message {kind.__name__} needs one key field and one real field to be matched"
    for exchange in exchanges:
        for kind in exchange.given:
            names = [f.name for f in kind.fields if f.wire == "u8"]
            whole = len(kind.fields) == 2 and names == ["row"]
            if kind.disclosure is Disclosure.MATCH and not (asked and whole):
                return f"message {kind.__name__} needs the field 'row' and one real field"
    return None


RULES = MatchRules()
