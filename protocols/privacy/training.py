"""Record-level differential privacy of training: what a policy asks for, and what it comes to.

The unit is one training graph of one client; adjacency: that graph is there or not, its client's
validation and test graphs stay. Whoever stands outside the client is the adversary, with no help
from other clients' noise: a client perturbs every gradient itself and all that leaves is computed
from these (silo-level protection of records, Lowy and Razaviyayn, ICLR 2023).

One step (DP-SGD, Abadi et al., CCS 2016, on the integer grid): each training graph is in the batch
with probability q, on its own; its gradient is clipped to L2 norm C, brought to a grid on which C
is `LEVELS` steps, and truncated towards zero, so that the *integer* norm is at most `LEVELS`; the
integers are summed and discrete Gaussian noise of z `LEVELS` is added to each entry.

The divergence of such a step at a whole order a is that of the sampled continuous Gaussian exactly:

    (a - 1) D = ln ∑_k C(a, k) (1-q)^(a-k) q^k exp(k(k-1)/(2z²)),

Mironov, Talwar and Zhang, arXiv 1908.10530, section 3.3, because ∑_x exp(-|x-v|²/2σ²) is the same
for every integer vector v. Their theorem 5 (the other direction is no larger) needs only that
x -> v - x swaps the two distributions, which holds on the grid. (a - 1) D is convex in a, so a
chord bounds it between whole orders. Composition of steps adds divergences up.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import ROUND_UP, Context
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from crypto.noise import MAX_SCALE, TAIL_BITS
from protocols.disclosures.sum.guards import MAX_DELTA
from protocols.errors import PolicyError
from protocols.policy.budget import Budget
from protocols.privacy.accounting import ORDERS, net_epsilon
from protocols.strict import Strict

__all__ = [
    "LEVELS",
    "Training",
    "TrainingPlan",
    "plan_training",
    "rdp_sampled_gaussian",
    "training_divergence",
    "training_epsilon",
]

LEVELS = 1 << 16
"""The clip norm in grid steps. Truncation moves an entry by less than one step, at most 2e-4 of the
smallest noise that is planned."""
MAX_MULTIPLIER = MAX_SCALE / LEVELS
"""Largest noise multiplier z that the sampler draws at this grid."""
MIN_MULTIPLIER = 0.1
"""Smallest one that is planned; below it epsilon says nothing about privacy."""
_TAILS = math.ldexp(1.0, 48 - TAIL_BITS)  # of the 2^48 draws that no run makes
_SLACK = 1.0 + 1e-9  # above the rounding errors of the sum below
_UP = Context(prec=6, rounding=ROUND_UP)


class Training(Strict):
    """Private training: how a client draws, clips and perturbs, and what it may cost.

    Attributes:
        unit: whose presence is hidden: one training graph of one client.
        clip: C, the L2 norm to which one graph's gradient is clipped.
        rate: q, the probability with which a training graph is in a batch. Public and the same at
            every client, so that nothing about the number of graphs follows from it.
        batch: what a batch's sum is divided by: the batch size that is expected, as agreed on. A
            client's own expectation, q times its graphs, is private; only the length of its steps
            depends on how far the two are apart.
        steps: noised gradients of one client in one round.
        epsilon, delta: target for one graph and the whole run; delta is at most `MAX_DELTA`.
        noise: z, the noise in units of C; give it in place of `epsilon`, and the plan says which
            epsilon it comes to.
        budget: what all runs together may spend of one site's graphs (O20).
    """

    unit: Literal["graph"] = "graph"
    clip: float = Field(default=1.0, gt=0, le=1e6)
    rate: float = Field(ge=1e-6, le=1)
    batch: float = Field(gt=0, le=1e9)
    steps: int = Field(default=10, ge=1, le=100_000, strict=True)
    epsilon: float | None = Field(default=None, gt=0, le=1e6)
    delta: float = Field(gt=0, lt=0.1)
    noise: float | None = Field(default=None, ge=MIN_MULTIPLIER, le=MAX_MULTIPLIER)
    budget: Budget

    @model_validator(mode="after")
    def _one_of_two(self) -> Training:
        if (self.epsilon is None) == (self.noise is None):
            raise ValueError("training: give either epsilon, the target, or noise, the multiplier")
        if self.delta > MAX_DELTA:
            raise ValueError(
                f"training: delta {self.delta:g} could let single records out, as how many there "
                f"are is not public; set it to {MAX_DELTA:g} or less"
            )
        return self


class TrainingPlan(Strict):
    """Private training as planned; numbers that are not whole are decimal texts.

    Attributes:
        unit, clip, rate, batch, steps: as in `Training`.
        releases: noised gradients of one client in the whole run.
        levels: the clip norm in grid steps.
        noise: z; the standard deviation is z times `levels`, in grid steps.
        epsilon, delta: what the run spends, at most.
        held_out: names of messages that count validation and test graphs: other records than the
            unit's, which this noise does not protect.
    """

    unit: Literal["graph"]
    clip: str
    rate: str
    batch: str
    steps: int = Field(ge=1)
    releases: int = Field(ge=1)
    levels: int = Field(ge=1)
    noise: str
    epsilon: str
    delta: str
    held_out: tuple[str, ...] = ()


def rdp_sampled_gaussian(
    orders: Sequence[float], *, rate: float, noise: float
) -> NDArray[np.float64]:
    """Return the Rényi divergence of one step with Poisson batches, in both directions.

    Args:
        orders: Rényi orders above 1, shape (k,).
        rate: q in (0, 1].
        noise: z, above 0.

    Returns:
        Shape (k,); see the module's head for source and proof.

    Raises:
        PolicyError: an argument outside its range.
    """
    alpha = np.asarray(orders, dtype=np.float64)
    good = alpha.ndim == 1 and alpha.size > 0 and bool(np.all((alpha > 1) & np.isfinite(alpha)))
    if not (good and 0 < rate <= 1 and 0 < noise < math.inf):
        raise PolicyError(
            "A step's divergence needs orders above 1, a rate in (0, 1] and noise above 0.",
            fix="check policy.training",
        )
    if rate == 1.0:
        return np.asarray(_SLACK * alpha / (2.0 * noise**2))
    below, above = np.floor(alpha), np.ceil(alpha)
    whole = {int(order) for order in (*below, *above)}
    logs = {order: _log_moment(order, rate, noise) for order in whole}
    share = alpha - below
    low = np.array([logs[int(order)] for order in below])
    high = np.array([logs[int(order)] for order in above])
    found: NDArray[np.float64] = _SLACK * ((1.0 - share) * low + share * high) / (alpha - 1.0)
    return found


def _log_moment(order: int, rate: float, noise: float) -> float:
    """Return ln E[(mixture/base)^a] of the sampled Gaussian for a whole order a; 0 for a = 1."""
    from scipy import special

    k = np.arange(order + 1, dtype=np.float64)
    ways = special.gammaln(order + 1.0) - special.gammaln(k + 1.0) - special.gammaln(order - k + 1)
    terms = ways + (order - k) * math.log1p(-rate) + k * math.log(rate)
    return max(0.0, float(special.logsumexp(terms + k * (k - 1.0) / (2.0 * noise**2))))


@lru_cache(maxsize=4096)
def _step(rate: float, noise: float) -> tuple[float, ...]:
    return tuple(float(v) for v in rdp_sampled_gaussian(ORDERS, rate=rate, noise=noise))


def training_epsilon(*, rate: float, noise: float, releases: int, delta: float) -> float:
    """Return epsilon of so many steps at `delta`; 0 for none, infinite if `delta` is used up.

    Raises:
        PolicyError: an argument outside its range.
    """
    if releases < 0:
        raise PolicyError("A number of steps is not negative.", fix="check policy.training")
    if not releases:
        return 0.0
    return net_epsilon(releases * np.array(_step(rate, noise)), delta, tails=_TAILS)[0]


@lru_cache(maxsize=16)
def plan_training(training: Training, rounds: int, held_out: tuple[str, ...] = ()) -> TrainingPlan:
    """Return what a policy's `training` comes to in a run.

    Args:
        training: the policy's.
        rounds: of the plan; each takes `training.steps` noised gradients.
        held_out: see `TrainingPlan`.

    Raises:
        PolicyError: no noise that can be drawn reaches the target, or the policy's multiplier comes
            to no finite epsilon.
    """
    releases = rounds * training.steps
    noise = training.noise if training.noise is not None else _multiplier(training, releases)
    spent = training_epsilon(
        rate=training.rate, noise=noise, releases=releases, delta=training.delta
    )
    if not math.isfinite(spent):
        raise PolicyError(
            "The noise multiplier of private training comes to no finite epsilon.",
            why="there are too many steps for so little noise, or delta is too small",
            fix="set training.epsilon in place of training.noise, or a larger multiplier",
        )
    return TrainingPlan(
        unit=training.unit,
        clip=repr(training.clip),
        rate=repr(training.rate),
        batch=repr(training.batch),
        steps=training.steps,
        releases=releases,
        levels=LEVELS,
        noise=repr(noise),
        epsilon=repr(training.epsilon) if training.epsilon is not None else _rounded_up(spent),
        delta=repr(training.delta),
        held_out=held_out,
    )


def _multiplier(training: Training, releases: int) -> float:
    """Return the smallest multiplier within the target, rounded up to six figures."""
    target = training.epsilon

    def fits(noise: float) -> bool:
        spent = training_epsilon(
            rate=training.rate, noise=noise, releases=releases, delta=training.delta
        )
        return target is not None and spent <= target

    if not fits(MAX_MULTIPLIER):
        raise PolicyError(
            "No noise that can be drawn keeps private training within its epsilon and delta.",
            why=f"the steps are too many: the multiplier would exceed {MAX_MULTIPLIER:.0f}",
            fix="plan fewer rounds or steps, a smaller rate, or a larger epsilon or delta",
        )
    if fits(MIN_MULTIPLIER):
        return MIN_MULTIPLIER
    low, high = MIN_MULTIPLIER, MAX_MULTIPLIER
    while high > low * (1.0 + 1e-7):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if fits(middle) else (middle, high)
    # Six figures, so that parties whose libraries differ in the last bit agree on the plan.
    return min(float(_rounded_up(high)), MAX_MULTIPLIER)


def _rounded_up(value: float) -> str:
    return f"{_UP.create_decimal_from_float(value):g}"


def training_divergence(plan: TrainingPlan, rounds: int | None = None) -> tuple[float, ...]:
    """Return the Rényi divergence at `accounting.ORDERS` of the run, or of so many rounds of it."""
    releases = plan.releases if rounds is None else rounds * plan.steps
    return tuple(releases * value for value in _step(float(plan.rate), float(plan.noise)))
