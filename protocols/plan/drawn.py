"""Cohorts drawn by lot: how many, of how many clients, and how many colluders fall into one.

The clients of a run are cut into disjoint cohorts of about equal size, once, and rounds take them
in turn. A partition and not a new draw a round: totals over cohorts that overlap can be combined
into one of few clients (ADR 0030), totals over disjoint ones cannot. Who may collude falls into
cohorts by lot as well, so a cohort may hold more of them than its share. How many it holds at most
is a tail of the hypergeometric distribution, times the number of cohorts (ADR 0045).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import lru_cache
from typing import TypeVar

from crypto.graph import COMPLETE_BELOW, most_in_any, part_of, partition
from crypto.signing.canonical import canonical
from protocols.disclosures.names import Disclosure
from protocols.disclosures.sum.guards import Mask
from protocols.errors import PolicyError
from protocols.policy.guard import find
from protocols.policy.policy import PrivacyPolicy
from protocols.strict import Strict

__all__ = ["DrawnPlan", "clear_seed", "drawn_cohorts", "turn"]

_T = TypeVar("_T")

CHANCE_BITS = 40
"""No cohort of a run holds more colluders than the plan says, but for a chance of 2^-40."""


class DrawnPlan(Strict):
    """What a plan says of cohorts that are drawn by lot.

    Attributes:
        size: of how many clients a cohort is to be at least.
        cohorts: how many there are.
        smallest, largest: clients of a cohort, if all clients are there when lots are drawn.
        colluders: how many clients of the run are assumed to work together.
        within: of these, in any one cohort, but for a chance of 2^-40 in the run.
        least: clients that a cohort must hold: the policy's minimum of others, one, and `within`;
            never fewer than the policy's smallest cohort.
        by_lot: whether clients and aggregator draw the seed together. Where sums leave in clear it
            is the plan's public seed, so that such a run can be repeated.
    """

    size: int
    cohorts: int
    smallest: int
    largest: int
    colluders: int
    within: int
    least: int
    by_lot: bool

    @property
    def words(self) -> str:
        """What a reader of the plan is told."""
        if self.cohorts == 1:
            return (
                f"one, of all {self.largest} clients: cohorts of {self.size} or more fit only once "
                f"into {self.largest}, so every round asks all of them"
            )
        sizes = (
            f"{self.smallest}"
            if self.smallest == self.largest
            else (f"{self.smallest} or {self.largest}")
        )
        seed = "a seed that all parties draw together" if self.by_lot else "the plan's public seed"
        return (
            f"{self.cohorts} disjoint cohorts of {sizes} clients, drawn once from {seed}; rounds "
            f"take them in turn. Of {self.colluders} assumed colluders no more than {self.within} "
            f"are in any one, but for a chance of 2^-{CHANCE_BITS}; each holds {self.least} "
            "clients or more: the policy's minimum of others, one, and those, or its smallest "
            "cohort if that is more"
        )

    @classmethod
    def of(cls, size: int, clients: int, policy: PrivacyPolicy) -> DrawnPlan:
        """Return how so many clients are cut into cohorts of at least `size`.

        Raises:
            PolicyError: a cohort could hold too few clients beside its colluders.
        """
        count = max(1, clients // size)
        colluders = _colluders(clients, policy)
        found = cls._of(size, clients, count, policy, colluders)
        if found.smallest < found.least:
            raise PolicyError(
                f"A cohort of {found.smallest} drawn from {clients} clients is too small: policy "
                f"{policy.name!r} asks for {found.least} (minimum_cohort {policy.minimum_cohort} "
                f"others and one, beside {found.within} of {found.colluders} colluders that may be "
                f"in one of {count} cohorts with a chance above 2^-{CHANCE_BITS}).",
                why="the total of a small group tells its members about each other",
                fix=_nearest(clients, policy),
            )
        return found

    @classmethod
    def _of(
        cls, size: int, clients: int, count: int, policy: PrivacyPolicy, colluders: int
    ) -> DrawnPlan:
        chain = policy.rules.get(Disclosure.SUM, ())
        smallest, largest = clients // count, -(-clients // count)
        within = most_in_any(clients, min(colluders, clients), largest, count, CHANCE_BITS)
        return cls(
            size=size,
            cohorts=count,
            smallest=smallest,
            largest=largest,
            colluders=colluders,
            within=within,
            least=max(policy.smallest_cohort, policy.minimum_cohort + 1 + within),
            by_lot=find(chain, "unsafe_clear") is None,
        )

    def left(self, clients: int, policy: PrivacyPolicy) -> DrawnPlan:
        """Return the same number of cohorts of those clients that took part in the draw.

        Raises:
            PolicyError: they are too few for so many cohorts.
        """
        found = self._of(self.size, clients, self.cohorts, policy, self.colluders)
        if found.smallest < found.least:
            raise PolicyError(
                f"Of {clients} clients that drew lots no {self.cohorts} cohorts of {found.least} "
                "clients each can be made.",
                why="clients were away when lots were drawn",
                fix="start the run again when enough clients are there",
            )
        return found


def _colluders(clients: int, policy: PrivacyPolicy) -> int:
    """Return how many of a run's clients are assumed to work together."""
    mask = find(policy.rules.get(Disclosure.SUM, ()), "mask")
    if isinstance(mask, Mask) and clients >= COMPLETE_BELOW:
        return max(policy.colluders, part_of(clients, mask.corrupt))
    return policy.colluders


def _nearest(clients: int, policy: PrivacyPolicy) -> str:
    """Return advice: the cohort size next to those that are too small, if there is one."""
    for count in range(clients // (policy.minimum_cohort + 1), 0, -1):
        facts = clients // count, clients, count, policy, _colluders(clients, policy)
        found = DrawnPlan._of(*facts)
        if found.smallest >= found.least:
            return f"draw cohorts of {found.smallest} clients or more"
    return "choose fewer colluders, a smaller `corrupt` (mask), or more clients"


@lru_cache(maxsize=8)
def drawn_cohorts(seed: bytes, clients: tuple[str, ...], count: int) -> tuple[tuple[str, ...], ...]:
    """Return the cohorts that a seed draws, each sorted, in the order of their turns.

    Raises:
        OutOfRange: fewer clients than cohorts, or a seed of fewer than 16 bytes.
    """
    parts = partition(len(clients), count, seed)
    return tuple(tuple(clients[place] for place in part) for part in parts)


def turn(cohorts: Sequence[_T], round: int) -> _T:
    """Return the cohort whose turn a round is; rounds begin at 1, and cohorts take turns."""
    return cohorts[(round - 1) % len(cohorts)]


def clear_seed(plan_seed: int, clients: Sequence[str]) -> bytes:
    """Return the public seed of cohorts whose sums leave in clear: such runs can be repeated."""
    content = canonical([plan_seed, list(clients)])
    return hashlib.sha256(b"secure-fgl/cohorts in clear\0" + content).digest()
