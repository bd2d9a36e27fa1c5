"""Slots of an epoch: which sums masks were made for, and which epoch a round is in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from protocols.disclosures.names import Disclosure
from protocols.plan.plan import Item, times_in_round
from protocols.plan.steps import Step
from protocols.policy.policy import PrivacyPolicy


def epoch_of(round: int, policy: PrivacyPolicy) -> int:
    """Return the number of the epoch in which a round lies; what comes before round 1 is in 0."""
    return max(0, round - 1) // policy.rekey_rounds


def epochs(rounds: int, policy: PrivacyPolicy) -> int:
    """Return how many epochs a run of `rounds` rounds has."""
    return epoch_of(rounds, policy) + 1


@dataclass(frozen=True)
class Slot:
    """One place for a masked sum in an epoch; every slot has seeds of its own, used once (O6).

    Attributes:
        item: label of the upload's plan item.
        round: the round; 0 for what the plan does not count by rounds.
        ordinal: how many sums of this item came before it in that round.
    """

    item: str
    round: int
    ordinal: int

    @property
    def label(self) -> str:
        """The slot as text."""
        return f"{self.item}/{self.round}/{self.ordinal}"

    @classmethod
    def of_label(cls, label: str) -> Slot:
        """Return the slot that `label` is the text of."""
        item, round, ordinal = label.rsplit("/", 2)
        return cls(item, int(round), int(ordinal))


def slot_of(item: Item, round: int, ordinal: int) -> Slot:
    """Return the slot of an upload."""
    return Slot(item.label, round if item.per_round else 0, ordinal)


def slots(
    items: Sequence[Item],
    rounds: int,
    policy: PrivacyPolicy,
    epoch: int,
    part: Disclosure = Disclosure.SUM,
) -> tuple[Slot, ...]:
    """Return every slot of an epoch, in an order that all parties share.

    Those of a `part` other than SUM have pair secrets alone: nobody shares seeds of them, so what
    is masked there is never unmasked for whoever is missing (ADR 0053).

    Every epoch has equally many, so that messages are of one size in runs of any length; the last
    one's may be for rounds that never come.
    """
    first = epoch * policy.rekey_rounds + 1
    last = first + policy.rekey_rounds - 1
    found: list[Slot] = []
    for item in (i for i in items if (i.part, i.step) == (part, Step.UP)):
        # Outside the rounds anything may be asked in any epoch; an unused slot costs 64 bytes.
        places = [(0, times_in_round(item, 0, rounds))]
        if item.per_round:
            places += [(round, item.per_round) for round in range(first, last + 1)]
        found += [Slot(item.label, r, k) for r, count in places for k in range(count)]
    return tuple(found)
