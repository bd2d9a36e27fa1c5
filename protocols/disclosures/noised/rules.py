"""Which chains apply what FedPerGNN publishes; none protects yet, so all are Unsafe."""

from __future__ import annotations

from typing import Any

from protocols.disclosures._base.rules import Chain, Limits, Rules
from protocols.disclosures.noised.decoys import SENT
from protocols.disclosures.noised.guards import Laplace
from protocols.forms import Form
from protocols.messages import Message
from protocols.policy.admission import asked_holders
from protocols.policy.guard import guard_of
from protocols.policy.guards import Clip


class NoisedRules(Rules):
    """Rows with decoys, clipped and noised one by one."""

    applied = frozenset({"clip", "decoys", "laplace", "unsafe_clear"})
    order = "clip, decoys, laplace, unsafe_clear"

    def check(self, chain: Chain) -> None:
        """Hold a chain with decoys or local noise to what is applied."""
        if len(chain) == 1:
            return
        named = [guard.guard for guard in chain]
        rest = [name for name in named if name not in ("decoys", "laplace")]
        if rest != ["clip", "unsafe_clear"] or len(named) == len(rest):
            raise ValueError("needed are clip, 'decoys' or 'laplace' or both, unsafe_clear")
        clip, noise = guard_of(chain, Clip), guard_of(chain, Laplace)
        if not clip or clip.norm != "linf":
            raise ValueError("'decoys' and 'laplace' need 'clip' with norm linf before them")
        if noise and noise.how == "fixed":
            noise.steps(clip.bound)

    def objection(self, kind: type[Message], form: Form[Any], policy: Limits) -> str | None:
        """Refuse rows of one client where a policy asks for several (O12)."""
        asks = asked_holders(policy)
        if asks and any(SENT in field.shape for field in kind.fields):
            return f"rows of message {kind.__name__} are one client's, and {asks}"
        return None


RULES = NoisedRules()
