"""Who may be summed in one epoch: who is paired with whom, who holds whose shares, in which slots.

An epoch is `rekey_rounds` rounds of the policy. Everything here follows from public facts, so every
party computes the same. Below 100 clients everybody is paired with everybody; above, with the
neighbours of a random k-regular graph (Bell et al., CCS 2020).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

from crypto.canonical import canonical
from crypto.graph import (
    COMPLETE_BELOW,
    Degree,
    choose_degree,
    honest_majority,
    neighbourhoods,
    thinnest_window,
)
from crypto.samplers import derive
from protocols.disclosures import Disclosure
from protocols.errors import NotInPlan
from protocols.guards import Mask, find
from protocols.plan import Item, times_in_round
from protocols.policy import PrivacyPolicy


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
        item: the plan item of the upload.
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
    return Slot(item.id, round if item.per_round else 0, ordinal)


def slots(
    items: Sequence[Item], rounds: int, policy: PrivacyPolicy, epoch: int
) -> tuple[Slot, ...]:
    """Return every slot of an epoch, in an order that all parties share.

    Every epoch has equally many, so that messages are of one size in runs of any length; the last
    one's may be for rounds that never come.
    """
    first = epoch * policy.rekey_rounds + 1
    last = first + policy.rekey_rounds - 1
    found: list[Slot] = []
    for item in items:
        if not item.id.endswith(f".up.{Disclosure.SUM}"):
            continue
        # Outside the rounds anything may be asked in any epoch; an unused slot costs 64 bytes.
        places = [(0, times_in_round(item, 0, rounds))]
        if item.per_round:
            places += [(round, item.per_round) for round in range(first, last + 1)]
        found += [Slot(item.id, r, k) for r, count in places for k in range(count)]
    return tuple(found)


def planned_degree(count: int, policy: PrivacyPolicy) -> int:
    """Return how many neighbours a client has among `count` clients."""
    return _degree(count, policy).neighbours


def _degree(count: int, policy: PrivacyPolicy) -> Degree:
    mask = find(policy.rules.get(Disclosure.SUM, ()), "mask")
    if count < COMPLETE_BELOW or not isinstance(mask, Mask):
        least = honest_majority(count, policy.colluders)
        return Degree(count - 1, least, policy.colluders, policy.smallest_cohort)
    return _chosen(count, max(mask.corrupt, policy.colluders / count), mask.dropped)


@lru_cache(maxsize=64)
def _chosen(count: int, corrupt: float, dropped: float) -> Degree:
    return choose_degree(count, corrupt=corrupt, dropped=dropped, lying=True)


@dataclass(frozen=True)
class Group:
    """The clients that were called to agree on keys for one epoch.

    Attributes:
        run: the run's name.
        epoch: its number.
        called: sorted names.
        degree: neighbours of each client.
        threshold: how many shares rebuild a seed. More than half of the holders, the corrupt ones
            added (O7), and never fewer than the policy's smallest cohort.
        window: what a survivor list must leave standing, so that it cannot cut the graph in two.
        quorum: how many clients must have voted for a survivor list before shares are given; more
            than half, the corrupt ones added, so that no two lists of one sum can both be served.
    """

    run: str
    epoch: int
    called: tuple[str, ...]
    degree: int
    threshold: int
    window: int
    quorum: int

    @classmethod
    def of(cls, run: str, epoch: int, called: Sequence[str], policy: PrivacyPolicy) -> Group:
        """Return the group of these clients.

        Raises:
            CohortTooSmall: fewer than the policy's minimum.
        """
        policy.check_cohort(len(called))
        chosen, count = _degree(len(called), policy), len(called)
        mask = find(policy.rules.get(Disclosure.SUM, ()), "mask")
        corrupt = policy.colluders
        if chosen.neighbours < count - 1 and isinstance(mask, Mask):
            corrupt = max(corrupt, math.ceil(mask.corrupt * count))
        return cls(
            run=run,
            epoch=epoch,
            called=tuple(sorted(called)),
            degree=chosen.neighbours,
            threshold=min(max(policy.smallest_cohort, chosen.threshold), chosen.neighbours + 1),
            window=chosen.window,
            quorum=min(max(policy.smallest_cohort, honest_majority(count, corrupt)), count),
        )

    def thinnest(self, survivors: Sequence[str]) -> int:
        """Return what a survivor list leaves standing where it is thinnest; compare `window`."""
        places = {name: place for place, name in enumerate(self.called)}
        there = {places[name] for name in survivors if name in places}
        return thinnest_window(len(self.called), self.degree, self._seed, there)

    @property
    def _seed(self) -> bytes:
        # Not a secret: every party computes it. Who could choose the run's name could choose the
        # graph.
        return derive(self.run.encode(), "graph", f"{self.epoch}")

    @cached_property
    def _graph(self) -> Mapping[str, tuple[str, ...]]:
        return _graph(self._seed, self.called, self.degree)

    def neighbours(self, name: str) -> tuple[str, ...]:
        """Return the clients that share a pair secret with `name`, sorted.

        Raises:
            NotInPlan: a client that was not called.
        """
        if name not in self._graph:
            raise NotInPlan("A client that was not called for this epoch's keys is named.")
        return self._graph[name]

    def holders(self, name: str) -> tuple[str, ...]:
        """Return who holds shares of the seeds of `name`: its neighbours and itself, sorted."""
        return tuple(sorted((*self.neighbours(name), name)))


def agreement(group: Group, there: Sequence[str], slot: Slot) -> str:
    """Return the digest of what the masks of one sum rest on.

    It stands in the signed header of every masked upload: who was told another story about who
    agreed on keys, or which slot this is, has another digest, and the others' holders see it (O7).
    """
    content = [group.run, group.epoch, list(group.called), sorted(there), slot.label]
    return hashlib.sha256(b"secure-fgl/agreement\0" + canonical(content)).hexdigest()


@lru_cache(maxsize=8)
def _graph(seed: bytes, called: tuple[str, ...], degree: int) -> Mapping[str, tuple[str, ...]]:
    rows = neighbourhoods(len(called), degree, seed)
    return {
        name: tuple(called[place] for place in row) for name, row in zip(called, rows, strict=True)
    }
