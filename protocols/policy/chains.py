"""Chains: which guards, in which order, protect each disclosure. Any other is refused."""

from __future__ import annotations

from protocols.disclosures._base.rules import rules_of
from protocols.disclosures.names import Disclosure
from protocols.policy.guard import Guard, ValueStage, find, guard_of
from protocols.policy.guards import Clip

__all__ = ["check_chain"]


def check_chain(disclosure: Disclosure, chain: tuple[Guard, ...]) -> None:
    """Raise ValueError unless `chain` is a complete, ordered protection of `disclosure`."""
    if not chain:
        raise ValueError(f"the chain for {disclosure} is empty; an empty chain protects nothing")
    rules, present = rules_of(disclosure), {guard.guard for guard in chain}
    if strange := sorted(present - rules.applied):
        raise ValueError(
            f"{disclosure}: '{strange[0]}' would not be applied to it; possible: {rules.order}"
        )
    try:  # first: it says what this disclosure needs, where the order only says what is wrong
        rules.check(chain)
    except ValueError as error:
        raise ValueError(f"{disclosure}: {error}") from None
    clip = guard_of(chain, Clip)
    if clip and clip.norm == "l1" and not find(chain, "own_noise"):
        raise ValueError(f"{disclosure}: 'clip' with norm l1 serves 'own_noise' alone")
    stage = ValueStage.VALUE
    for guard in chain:
        if stage not in guard.takes:
            raise ValueError(
                f"{disclosure}: '{guard.guard}' cannot follow a value of stage {stage.name}; "
                f"possible: {rules.order}"
            )
        stage = guard.gives
    if stage is not ValueStage.ENVELOPE:
        raise ValueError(f"{disclosure}: the chain must end in 'seal', 'sign' or 'unsafe_clear'")
    if not present & rules.protecting:
        raise ValueError(
            f"{disclosure}: nothing in the chain keeps the receiver to '{disclosure.meaning}'; "
            f"needed: one of {', '.join(sorted(rules.protecting))}"
        )
