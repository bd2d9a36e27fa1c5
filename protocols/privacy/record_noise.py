"""Noise on counts of single records: planned for a target, and drawn.

The unit is one validation or test graph of one client; adjacency: that graph is there or not. One
record moves field f of a message by m_f at most, all entries together (`Field.moves`). With noise
of scale s m_f on each entry of field f the divergence of one field's entries is at most that of one
number moved by 1 under noise of scale s: for the discrete Gaussian a D = a |x|_2^2 / (2 s^2 m_f^2)
and |x|_2 <= |x|_1 <= m_f (Canonne, Kamath and Steinke, arXiv 2004.00010, theorem 4; any whole
shift, any s); for discrete Laplace |x|_1/(s m_f) <= 1/s. Over the F fields of a message, and over
all messages of the run, divergences add up. Nobody else's noise is counted on.

Records of the split are disjoint: a graph that is scored does not train, and the other way round.
What is scored depends on training graphs through models alone, which noised gradients make.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from crypto.noise import MAX_SCALE, MIN_SCALE, sampler
from crypto.samplers import Stream, entropy
from protocols.disclosures.names import Disclosure
from protocols.disclosures.sum.guards import RecordNoise
from protocols.disclosures.sum.layout import SumLayout
from protocols.errors import NotInPlan, PolicyError
from protocols.plan.plan import CountPlan, Item, MessagePlan, Plan
from protocols.plan.steps import Step
from protocols.policy.budget import Unit
from protocols.policy.guard import guard_of
from protocols.policy.policy import PrivacyPolicy
from protocols.privacy.accounting import ORDERS, margin, net_epsilon, rdp_laplace, tails
from protocols.privacy.noising import SAMPLERS

__all__ = [
    "add_counted",
    "check_counted",
    "counted_curve",
    "counted_epsilon",
    "counted_in",
    "counted_of",
    "plan_counted",
    "smallest",
]

Sent = tuple[tuple[tuple[int, int], ...], int]
"""Of one Ask: per noised field its `moves` and entries; and how often one client sends it."""


def counted_of(messages: Sequence[MessagePlan]) -> tuple[tuple[int, int], ...]:
    """Return (moves, entries) of fields that get noise: of messages that bound all of theirs."""
    return tuple(
        (field.moves, math.prod(field.shape))
        for message in messages
        if message.fields and all(field.moves for field in message.fields)
        for field in message.fields
    )


def counted_curve(counted: CountPlan) -> NDArray[np.float64]:
    """Return the Renyi divergence of one message at `ORDERS`; see the module's head.

    Raises:
        PolicyError: the scale is not a number above 0.
    """
    scale, fields = float(counted.scale), float(counted.fields)
    if not (math.isfinite(scale) and scale > 0 and fields >= 1):
        raise PolicyError("Noise on counts has a scale above 0 and fields.", fix="check the plan")
    if counted.mechanism == "discrete_laplace":
        return rdp_laplace(ORDERS, scale=scale, l2=math.sqrt(fields), l1=fields)
    return np.asarray(ORDERS) * fields / (2.0 * scale**2)


@lru_cache(maxsize=16)
def plan_counted(guard: RecordNoise, sent: tuple[Sent, ...], clients: int) -> CountPlan | None:
    """Return the noise of all counts of a run; None where nothing is counted.

    Args:
        guard: with the target for one record and the run.
        sent: per Ask what gets noise.
        clients: on the plan; they set the head-room (O19).

    Raises:
        PolicyError: no noise that can be drawn reaches the target.
    """
    noised = [(fields, times) for fields, times in sent if fields]
    if not noised:
        return None
    most = max(moves for fields, _ in noised for moves, _ in fields)
    facts = {
        "mechanism": guard.mechanism,
        "fields": max(len(fields) for fields, _ in noised),
        "entries": max(sum(entries for _, entries in fields) for fields, _ in noised),
        "releases": sum(times for _, times in noised),
        "epsilon": repr(guard.epsilon),
        "delta": repr(guard.delta),
    }

    def at(scale: float, room: int = 0) -> CountPlan:
        return CountPlan.model_validate({**facts, "scale": repr(scale), "margin": room})

    def fits(scale: float) -> bool:
        return counted_epsilon(at(scale), clients) <= guard.epsilon

    high = MAX_SCALE / most
    if not fits(high):
        raise PolicyError(
            f"No noise on counts reaches epsilon {guard.epsilon:g} and delta {guard.delta:g}.",
            why="there are too many scores, or one record moves a count too far",
            fix="plan fewer rounds, or a larger epsilon or delta of record_noise",
        )
    high = smallest(fits, MIN_SCALE, high)
    sizes = {"clients": clients, "dimension": at(high).entries, "releases": at(high).releases}
    return at(high, margin(guard.mechanism, high * most, **sizes))


def smallest(fits: Callable[[float], bool], low: float, high: float) -> float:
    """Return the smallest scale that fits, to 1e-6 and from above, or `low`; `high` fits."""
    if fits(low):
        return low
    while high > low * (1.0 + 1e-6):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high


def counted_epsilon(counted: CountPlan, clients: int, releases: int | None = None) -> float:
    """Return epsilon of a run's counts, or of so many messages with them, for one record."""
    times = counted.releases if releases is None else releases
    if not times:
        return 0.0
    off = tails(honest=clients, dimension=counted.entries, releases=times)
    return net_epsilon(times * counted_curve(counted), float(counted.delta), tails=off)[0]


def check_counted(plan: Plan, policy: PrivacyPolicy) -> None:
    """Raise NotInPlan unless a plan's noise on counts is what the policy's target asks for."""
    summed = plan.all_of(Disclosure.SUM, Step.UP)
    guard = guard_of(policy.rules.get(Disclosure.SUM, ()), RecordNoise)
    wanted = None
    if guard is not None:
        sent = tuple((counted_of(item.messages), item.times) for item in summed)
        wanted = plan_counted(guard, sent, len(plan.clients))
    for item in plan.items:
        if item.disclosure is Disclosure.ROW_SUM:  # see `protocols.privacy.row_noise`
            continue
        noised = item in summed and bool(counted_of(item.messages))
        if item.counted != (wanted if noised else None):
            raise NotInPlan(f"{item.id}: the plan's noise on counts is not what the policy needs.")


def counted_in(items: Sequence[Item], unit: Unit = "graph") -> CountPlan | None:
    """Return the one noise of a plan's items that hides such records; None if none is planned."""
    found = (item.counted for item in items if item.counted is not None)
    return next((one for one in found if one.unit == unit), None)


def add_counted(item: Item, layout: SumLayout, integers: NDArray[np.int64]) -> None:
    """Add noise to a client's counts of single records, in place.

    Drawn from the operating system (O15). Noise beyond its head-room is cut off and not refused:
    a refusal would tell of it.
    """
    counted = item.counted
    if counted is None:
        return
    for column, place in layout.noised():
        scale = float(counted.scale) * column.field.moves
        law = sampler(SAMPLERS[counted.mechanism], scale)
        integers[place] += law.sample(Stream(entropy(32)), column.entries)
        top = (1 << layout.bits) - 1 + counted.margin
        np.clip(integers[place], -counted.margin, top, out=integers[place])
