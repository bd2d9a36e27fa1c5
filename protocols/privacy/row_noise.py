"""Noise on rows of nodes' features: planned for a target, added, and held to the policy.

The unit is the features of one node of one client: they are there, or zeros stand in their place.
Edges are the same in both data sets, and so is all that follows from them: which rows there are,
who adds to which, and how many terms a row has. What a node enters is clipped to L2 norm c, which
is `levels` grid steps; the integer norm is at most `levels`, checked in integers. The client adds
up its own nodes' integers row by row and adds discrete Gaussian noise of scale z `levels` to every
entry of every row, once a row: whoever is told the row, it is the same release.

A node enters r rows at most. These are entries of one long vector, of all rows of its client, which
the node's features move by a vector of r blocks, each of norm `levels` at most: by sqrt(r) `levels`
in L2 (in L1 over blocks, r `levels`, which Laplace noise would have to hide). So the divergence at
order a is at most a r levels² / (2 (z levels)²) = a r / (2 z²) (Canonne, Kamath and Steinke, arXiv
2004.00010, theorem 4, entry by entry; `record_noise.counted_curve` with r fields). For a node whose
features are replaced by others it is the same with 2 c in the place of c: a 4 r / (2 z²).

Nobody else's noise is counted on, so a row with a single adder is covered, whoever works together.
"""

from __future__ import annotations

import math
from functools import lru_cache

from crypto.noise import MAX_SCALE
from protocols.disclosures.names import Disclosure
from protocols.disclosures.row_sum.guards import WIDTH, RowNoise, Rows
from protocols.disclosures.row_sum.protocol.wire import MOST
from protocols.errors import NotInPlan, PolicyError
from protocols.plan.plan import CountPlan, Plan
from protocols.plan.steps import Step
from protocols.policy.guard import guard_of
from protocols.policy.guards import Quantise
from protocols.policy.policy import PrivacyPolicy
from protocols.privacy.accounting import MIN_LOCAL_SCALE
from protocols.privacy.record_noise import counted_epsilon, smallest

__all__ = ["check_row_noise", "plan_row_noise", "row_noise", "sensitivity", "wanted"]

_ROOM = 8
"""Standard deviations of one client's noise that its share of a word holds at least (O19)."""


def row_noise(policy: PrivacyPolicy) -> RowNoise | None:
    """Return the policy's noise on rows; None if it has none."""
    return guard_of(policy.rules.get(Disclosure.ROW_SUM, ()), RowNoise)


def sensitivity(counted: CountPlan) -> float:
    """Return the L2 norm by which one node's features move all rows, in units of the clip."""
    return math.sqrt(counted.fields)


@lru_cache(maxsize=16)
def plan_row_noise(guard: RowNoise, levels: int, entries: int, clients: int) -> CountPlan:
    """Return the noise of a run's rows.

    Args:
        guard: with the target for one node's features.
        levels: the clip norm in grid steps.
        entries: numbers that one client noises in the run, at most.
        clients: on the plan.

    Raises:
        PolicyError: no noise that can be drawn reaches the target.
    """

    def at(scale: float) -> CountPlan:
        return CountPlan(
            unit="node",
            mechanism="discrete_gaussian",
            scale=repr(scale),
            fields=guard.releases,
            entries=entries,
            margin=0,
            releases=1,
            epsilon=repr(guard.epsilon),
            delta=repr(guard.delta),
        )

    def fits(scale: float) -> bool:
        return counted_epsilon(at(scale), clients) <= guard.epsilon

    # One client's words have room for so much: beyond it noise would be cut, and rows be no sums.
    high = min(MAX_SCALE, MOST // max(clients, 1) / _ROOM) / levels
    if not fits(high):
        raise PolicyError(
            f"No noise on rows reaches epsilon {guard.epsilon:g} and delta {guard.delta:g}.",
            why="the grid is too fine for the sampler or for words that so many clients share, or "
            "a node enters too many rows (O19)",
            fix="take fewer bits of quantise, fewer releases of row_noise, or a larger epsilon",
        )
    return at(smallest(fits, MIN_LOCAL_SCALE / levels, high))


def wanted(policy: PrivacyPolicy, width: int, clients: int) -> CountPlan | None:
    """Return the noise that a policy asks for, on rows of so many numbers; None if none."""
    chain = policy.rules.get(Disclosure.ROW_SUM, ())
    guard, rows, grid = row_noise(policy), guard_of(chain, Rows), guard_of(chain, Quantise)
    if guard is None or rows is None or grid is None:
        return None
    levels = (1 << (grid.bits - 1)) - 1
    return plan_row_noise(guard, levels, rows.rows * max(width - 1, 1), clients)


def check_row_noise(plan: Plan, policy: PrivacyPolicy) -> None:
    """Raise NotInPlan unless a plan's noise on rows is what the policy's target asks for.

    The plan may have come from somebody else; the noise protects this client's nodes.
    """
    for item in plan.items:
        if item.disclosure is not Disclosure.ROW_SUM:
            continue
        width = min(item.dims.get(WIDTH, 0), MOST)  # a plan is a file: sizes may be anything
        asked = wanted(policy, width, len(plan.clients)) if item.step is Step.UP else None
        if item.counted != asked:
            raise NotInPlan(
                f"{item.id}: the plan's noise on rows is not what the policy's target needs.",
                why="its scale, target or number of rows a node is another one",
                fix="make the plan anew, from this policy",
            )
