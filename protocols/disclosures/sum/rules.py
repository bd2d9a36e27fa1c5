"""Which chains protect a sum, and which sums rest on enough clients."""

from __future__ import annotations

from typing import Any

from protocols.disclosures._base.rules import Chain, Limits, Rules
from protocols.forms import Form
from protocols.messages import Message, SumMessage, addressed
from protocols.policy.admission import asked_holders, has_weights
from protocols.policy.guard import find, guard_of
from protocols.policy.guards import Clip, OwnNoise
from protocols.policy.own_noise import check_own_noise, own_objection


class SumRules(Rules):
    """Integers, masked or encrypted or both; noise is shared by the sum."""

    protecting = frozenset({"he", "ckks", "mask", "unsafe_clear"})
    applied = protecting | {"clip", "quantise", "noise", "own_noise", "record_noise", "seal"}
    order = "clip, quantise, noise, own_noise or record_noise, mask, he or ckks, seal"

    def check(self, chain: Chain) -> None:
        """Refuse noise without masks, without a bound, and sums that are not of integers."""
        if find(chain, "record_noise") and not find(chain, "mask"):
            raise ValueError("'record_noise' needs 'mask' after it, as counts of a client do")
        if find(chain, "noise") and not find(chain, "mask"):
            # Alone, each upload would carry one share of the noise, and epsilon would be larger.
            raise ValueError("'noise' needs 'mask' after it: it is shared by the sum")
        if not find(chain, "quantise"):
            raise ValueError("'clip' and 'quantise' are needed: sums are sums of integers")
        clip = guard_of(chain, Clip)
        if find(chain, "noise") and not (clip and clip.norm == "l2"):
            raise ValueError("'noise' needs 'clip' with norm l2 before it (O14)")
        if own := guard_of(chain, OwnNoise):
            if not (clip and clip.norm == "l2"):
                raise ValueError("'own_noise' needs 'clip' with norm l2 before it (O14)")
            if own.mechanism == "sqkr":
                raise ValueError("'sqkr' gives no sum; take discrete_gaussian or discrete_laplace")
            if find(chain, "unsafe_clear"):
                raise ValueError("'own_noise' needs 'mask' after it: messages in clear are NOISED")

    def check_policy(self, chain: Chain, policy: Limits) -> None:
        """Refuse a delta that lets whole clients out."""
        check_own_noise(guard_of(chain, OwnNoise), policy.smallest_cohort)

    def objection(self, kind: type[Message], form: Form[Any], policy: Limits) -> str | None:
        """Refuse rows of too few clients (O12), and exact counts under noise."""
        chain = policy.rules.get(kind.disclosure, ())
        if addressed(kind) and not any(find(chain, name) for name in ("mask", "unsafe_clear")):
            return (
                f"message {kind.__name__} is for one client to read, and without 'mask' nothing "
                "keeps the aggregator from having the total opened without that client's blind"
            )
        noised = bool({"noise", "own_noise"} & {guard.guard for guard in chain})
        retold = addressed(kind) and any(exchange.follows for exchange in form.exchanges)
        if retold and not noised and not find(chain, "unsafe_clear"):
            return (
                f"message {kind.__name__} is for one client to read, which tells others what "
                "follows from it: totals that lack one client each, without noise, tell of each"
            )
        twice = issubclass(kind, SumMessage) and kind.twice
        if twice and not noised and not find(chain, "unsafe_clear"):
            return (
                f"message {kind.__name__} holds one value under two weights, and both totals tell, "
                "without noise, sums of fewer clients: of one where all others weigh alike"
            )
        if not noised and (asks := asked_holders(policy)):
            if any(field.held for field in kind.fields):
                least = form.holders - addressed(kind)  # who reads a total sends no row
                if least < policy.holders + policy.colluders:
                    may = f"may rest on {least} of the clients"
                    return f"rows of message {kind.__name__} {may}, and {asks}"
            elif form.rows and has_weights(kind, form.exchanges):
                of = "has weights of items that one client may hold"
                return f"message {kind.__name__} {of}, and {asks}"
        if noised and any(field.wire == "u8" for field in kind.fields):
            return f"message {kind.__name__} holds exact counts, which its noise cannot cover"
        return own_objection(kind, chain)


RULES = SumRules()
