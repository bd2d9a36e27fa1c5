"""Noise of a run: from a target to a scale, and from survivor lists back to epsilon.

The formulas stand in `protocols.privacy.renyi` and are handed on here. Unit: one client; adjacency:
zero-out; norms, scales and margins in grid steps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import ROUND_UP, Context
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from crypto.noise import MAX_SCALE, TAIL_BITS
from protocols.errors import PolicyError
from protocols.privacy.renyi import (
    ORDERS,
    WRAP,
    epsilon,
    gaussian_epsilon,
    net_epsilon,
    rdp_distributed_gaussian,
    rdp_laplace,
    rounded_l1,
    rounded_sensitivity,
    tau,
)

__all__ = [
    "INFINITE",
    "MIN_LOCAL_SCALE",
    "ORDERS",
    "WRAP",
    "Mechanism",
    "Noise",
    "calibrate",
    "epsilon",
    "gaussian_epsilon",
    "margin",
    "net_epsilon",
    "rdp_distributed_gaussian",
    "rdp_laplace",
    "rounded_l1",
    "rounded_sensitivity",
    "rounded_up",
    "tails",
    "tau",
]

Mechanism = Literal["discrete_gaussian", "discrete_laplace"]

MIN_LOCAL_SCALE = 8.0
"""Smallest noise of one client in grid steps (O19): the step is chosen from the noise."""


INFINITE = "infinity"
_UP = Context(prec=6, rounding=ROUND_UP)


@dataclass(frozen=True)
class Noise:
    """What every client adds in each release, and to what.

    Attributes:
        mechanism: the sampler.
        scale: one client's σ (Gaussian) or t (Laplace), grid steps.
        l2, l1: Δ₂' and Δ₁'.
        dimension: coordinates of one release.
    """

    mechanism: Mechanism
    scale: float
    l2: float
    l1: float
    dimension: int

    def rdp(self, honest: int) -> NDArray[np.float64]:
        """Return the divergence of one release over `ORDERS` with that many unknown shares."""
        if self.mechanism == "discrete_laplace":
            _count(honest, "A number of honest shares")
            return rdp_laplace(ORDERS, scale=self.scale, l2=self.l2, l1=self.l1)
        return rdp_distributed_gaussian(
            ORDERS,
            sigma_local=self.scale,
            honest=honest,
            l2=self.l2,
            l1=self.l1,
            dimension=self.dimension,
        )


def rounded_up(value: float) -> str:
    """Return a number with six figures, never smaller than it is, or ``infinity``."""
    return f"{_UP.create_decimal_from_float(value):g}" if math.isfinite(value) else INFINITE


def tails(*, honest: int, dimension: int, releases: int) -> float:
    """Return η of `net_epsilon`: how far all draws of a run together are from the exact law.

    The union bound over every draw of the honest shares, 2^-TAIL_BITS each (O19).
    """
    for value, name in ((honest, "shares"), (dimension, "coordinates"), (releases, "releases")):
        _count(value, f"A number of {name}")
    return math.ldexp(honest * dimension * releases, -TAIL_BITS)


def calibrate(  # noqa: PLR0913 - each is one quantity of the plan, given by name
    *,
    epsilon: float,
    delta: float,
    releases: int,
    l2: float,
    l1: float,
    dimension: int,
    honest: int,
    tails: float,
    mechanism: Mechanism = "discrete_gaussian",
) -> float:
    """Return the smallest scale of one client's noise that keeps a run within (ε, δ), grid steps.

    Bisection on `net_epsilon` of `releases` releases, to a relative 1e-6, from above.

    Args:
        epsilon: the target for one client and the whole run.
        delta: the same.
        releases: how often the client's data enters an opened sum.
        l2: see `Noise`.
        l1: see `Noise`.
        dimension: see `Noise`.
        honest: the smallest cohort less the missing or colluding (O18).
        tails: see the function `tails`.
        mechanism: the sampler.

    Raises:
        PolicyError: the scale would be below `MIN_LOCAL_SCALE` steps (the grid is too coarse for
            the noise, O19) or above what the sampler draws, or an argument is out of range.
    """
    _positive(epsilon, "A target epsilon")
    _count(releases, "A number of releases")

    def fits(scale: float) -> bool:
        noise = Noise(mechanism, scale, l2, l1, dimension)
        return net_epsilon(releases * noise.rdp(honest), delta, tails=tails)[0] <= epsilon

    if not fits(MAX_SCALE):
        raise PolicyError(
            "No noise that the sampler can draw reaches the target epsilon and delta.",
            why="the sensitivity in grid steps, the releases or the sampler's tails are too large",
            fix="choose a coarser grid, fewer releases, or a larger epsilon or delta",
        )
    if fits(MIN_LOCAL_SCALE):
        raise PolicyError(
            f"The noise of one client would be below {MIN_LOCAL_SCALE:.0f} grid steps.",
            why="the step is wide compared with the noise that the target asks for",
            fix="choose a finer grid (more bits)",
        )
    low, high = MIN_LOCAL_SCALE, MAX_SCALE
    while high > low * (1.0 + 1e-6):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high


def margin(
    mechanism: Mechanism, scale: float, *, clients: int, dimension: int, releases: int
) -> int:
    """Return m such that noise leaves [-m, m] anywhere in the run with probability <= 2^-40.

    Chernoff's bound with a union over both signs, d entries and T releases: with
    L = ln(2 d T 2^40), m = min over λ of (n ln E[e^{λX}] + L)/λ. A discrete Gaussian is
    sub-Gaussian with its σ² ([CKS]), so m = σ √(2 n L). For discrete Laplace
    E[e^{λX}] = (1-p)²/((1 - p e^λ)(1 - p e^{-λ})), p = e^{-1/t}; every λ below 1/t gives a bound.

    Args:
        mechanism: the sampler.
        scale: one client's noise.
        clients: all that are summed, honest or not.
        dimension: entries of one release.
        releases: sums of the run.
    """
    _positive(scale, "A scale")
    for value, name in ((clients, "clients"), (dimension, "entries"), (releases, "releases")):
        _count(value, f"A number of {name}")
    tail = math.log(2.0) + math.log(dimension) + math.log(releases) - math.log(WRAP)
    if mechanism == "discrete_gaussian":
        return math.ceil(scale * math.sqrt(2.0 * clients * tail))
    slope = np.linspace(0.0, 1.0, 4096, endpoint=False)[1:] / scale
    # (1-p)²/((1 - p e^λ)(1 - p e^{-λ})), written without cancellation for large t
    one, up, down = (np.expm1(v) for v in (-1.0 / scale, slope - 1.0 / scale, -slope - 1.0 / scale))
    moment = 2.0 * math.log(-one) - np.log(-up) - np.log(-down)
    return math.ceil(float(np.min((clients * moment + tail) / slope)))


def _positive(value: float, name: str) -> None:
    if not (math.isfinite(value) and value > 0):
        raise PolicyError(f"{name} is a finite number above zero.", fix="check the noise plan")


def _count(value: int, name: str) -> None:
    if value < 1:
        raise PolicyError(f"{name} is at least 1.", fix="check the cohort and the noise plan")
