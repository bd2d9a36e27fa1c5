"""Which chains protect a message by its client's own noise, or apply what FedPerGNN publishes."""

from __future__ import annotations

from typing import Any

from protocols.disclosures._base.rules import Chain, Limits, Rules
from protocols.disclosures.noised.decoys import SENT
from protocols.disclosures.noised.guards import Laplace
from protocols.forms import Form
from protocols.messages import Message, NoisedMessage
from protocols.policy.admission import asked_holders
from protocols.policy.guard import find, guard_of
from protocols.policy.guards import Clip, OwnNoise
from protocols.policy.own_noise import check_own_noise, own_objection


class NoisedRules(Rules):
    """One vector under its client's own noise, or rows with decoys, noised one by one (Unsafe)."""

    protecting = frozenset({"own_noise", "unsafe_clear"})
    applied = frozenset({"clip", "decoys", "laplace", "own_noise", "relay", "seal", "unsafe_clear"})
    order = "clip, own_noise, relay, seal; or clip, decoys, laplace, unsafe_clear"

    def check(self, chain: Chain) -> None:
        """Hold a chain with decoys or local noise to what is applied."""
        if len(chain) == 1:
            return
        named = [guard.guard for guard in chain]
        if own := guard_of(chain, OwnNoise):
            if [name for name in named if name != "relay"] != ["clip", "own_noise", "seal"]:
                raise ValueError(
                    "'own_noise' stands between 'clip' and 'seal', with nothing else but 'relay'"
                )
            if "relay" in named and own.mechanism == "discrete_gaussian":
                raise ValueError(
                    "'relay' needs a mechanism with an epsilon at delta 0, and discrete_gaussian "
                    "has none; take own_noise with mechanism sqkr or discrete_laplace"
                )
            norm = "l1" if own.mechanism == "discrete_laplace" else "l2"
            if (clip := guard_of(chain, Clip)) and clip.norm != norm:
                raise ValueError(f"'own_noise' with {own.mechanism} needs 'clip' with norm {norm}")
            return
        rest = [name for name in named if name not in ("decoys", "laplace")]
        if rest != ["clip", "unsafe_clear"] or len(named) == len(rest):
            raise ValueError("needed are clip, 'decoys' or 'laplace' or both, unsafe_clear")
        clip, noise = guard_of(chain, Clip), guard_of(chain, Laplace)
        if not clip or clip.norm != "linf":
            raise ValueError("'decoys' and 'laplace' need 'clip' with norm linf before them")
        if noise and noise.how == "fixed":
            noise.steps(clip.bound)

    def check_policy(self, chain: Chain, policy: Limits) -> None:
        """Refuse a delta that lets whole clients out."""
        check_own_noise(guard_of(chain, OwnNoise), policy.smallest_cohort)

    def alone(self, chain: Chain) -> bool:
        """Tell that all numbers of an Ask's message are one vector."""
        return find(chain, "own_noise") is not None

    def objection(self, kind: type[Message], form: Form[Any], policy: Limits) -> str | None:
        """Refuse rows of one client where several are asked for (O12), and records but in clear."""
        asks = asked_holders(policy)
        if asks and any(SENT in field.shape for field in kind.fields):
            return f"rows of message {kind.__name__} are one client's, and {asks}"
        chain = policy.rules.get(kind.disclosure, ())
        bare = issubclass(kind, NoisedMessage) and kind.bare
        if bare and not find(chain, "unsafe_clear"):
            return f"message {kind.__name__} holds records as they are: only in clear, as a control"
        if find(chain, "own_noise") and any(SENT in field.shape for field in kind.fields):
            return f"which rows message {kind.__name__} holds depends on the client's data"
        return own_objection(kind, chain)


RULES = NoisedRules()
