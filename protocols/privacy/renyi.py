"""What noise on the integer grid buys: sensitivities, Rényi divergences and epsilon.

The unit is one client, the adjacency is zero-out: the client's rounded vector is replaced by the
zero vector, its noise stays. So the sensitivity is the norm Δ₂' of that vector and nothing is
doubled. Every Rényi divergence is an array over `ORDERS` (or the orders that were given) and adds
up over releases. No credit is taken for subsampling (O21): cohorts are chosen by the aggregator.

Norms, scales and margins are in grid steps. Sources: Kairouz, Liu and Steinke, "The distributed
discrete Gaussian mechanism", arXiv 2102.06387 ([KLS]), compared with the authors' accounting code;
Canonne, Kamath and Steinke, "The discrete Gaussian for differential privacy", arXiv 2004.00010
([CKS]); Bun and Steinke, arXiv 1605.02065 ([BS]).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from protocols.errors import PolicyError

__all__ = [
    "ORDERS",
    "WRAP",
    "epsilon",
    "gaussian_epsilon",
    "net_epsilon",
    "rdp_distributed_gaussian",
    "rdp_laplace",
    "rounded_l1",
    "rounded_sensitivity",
    "tau",
]

ORDERS: tuple[float, ...] = (
    *(1.01, 1.02, 1.03),
    *(1 + k / 20 for k in range(1, 20)),
    *(2 + k / 10 for k in range(40)),
    *(6 + k / 2 for k in range(20)),
    *(float(k) for k in range(16, 64)),
    *(float(k << shift) for shift in range(3, 10) for k in range(8, 16)),
    8192.0,
)
"""Rényi orders α > 1. A large epsilon is best at α near 1, a small one at large α. Neighbours are
so close that, for ε between 0.01 and 500, the best of them costs less than 0.3 %."""

WRAP = 2.0**-40
"""The probability, over all entries and releases of a run, that noise exceeds its head-room."""


def rounded_sensitivity(c: float, d: int, beta: float) -> float:
    """Return Δ₂', the largest L2 norm of a clipped vector after rounding, in grid steps.

    min{ c + √d, √(c² + d/4 + √(2 ln 1/β) (c + √d/2)) } ([KLS], theorem 1). The second term needs
    conditional rounding: redraw until the integer norm is at most Δ₂' (O14). One try succeeds with
    probability at least 1 - β: the squared norm has mean at most c² + d/4, and Hoeffding's
    inequality bounds what exceeds it, entry i varying by at most 2|x_i| + 1.

    Args:
        c: the L2 clip norm in grid steps.
        d: coordinates.
        beta: from 0 to below 1; 0 leaves only the first term, e^(-1/2) makes the root 1.

    Raises:
        PolicyError: an argument outside its range.
    """
    _positive(c, "A clip norm")
    _count(d, "A number of coordinates")
    if not 0 <= beta < 1:
        raise PolicyError(
            "Conditional rounding needs a beta from 0 to below 1.", fix="take beta = 0.6"
        )
    widest = c + math.sqrt(d)
    if beta == 0:
        return widest
    spread = math.sqrt(2.0 * math.log(1.0 / beta)) * (c + math.sqrt(d) / 2.0)
    return min(widest, math.sqrt(c * c + d / 4.0 + spread))


def rounded_l1(l2: float, d: int) -> float:
    """Return the largest L1 norm of an integer vector of d entries with L2 norm at most `l2`.

    ‖x‖₁ <= √d ‖x‖₂, and ‖x‖₁ <= ‖x‖₂² because |x| <= x² for integers.
    """
    _positive(l2, "A norm")
    _count(d, "A number of coordinates")
    return l2 * min(math.sqrt(d), l2)


def tau(sigma_local: float, shares: int) -> float:
    """Return τ = 10 ∑_{k=1}^{n-1} exp(-2π²s²k/(k+1)) of [KLS], theorem 1.

    It bounds, per coordinate, the log-ratio of the sum of n discrete Gaussians of parameter s (grid
    steps) to one discrete Gaussian of parameter s√n, up and down together. Zero for one share, and
    below 1e-270 from s = 8 on.
    """
    steps = np.arange(1, shares, dtype=np.float64)
    return float(10.0 * np.sum(np.exp(-2.0 * (math.pi * sigma_local) ** 2 * steps / (steps + 1.0))))


def rdp_distributed_gaussian(
    orders: Sequence[float],
    *,
    sigma_local: float,
    honest: int,
    l2: float,
    l1: float,
    dimension: int,
) -> NDArray[np.float64]:
    """Return the Rényi divergence of one release of a sum that holds `honest` unknown shares.

    With σ = s√n the smallest of α/2 (Δ₂/σ)² + τd, α/2 ((Δ₂/σ)² + 2(Δ₁/σ)τ + τ²d) and
    α/2 (Δ₂/σ + √d τ)² ([KLS], proposition 14, for every α > 1). One share is the discrete
    Gaussian itself and has τ = 0 ([CKS], theorem 4).

    Args:
        orders: Rényi orders above 1, shape (k,).
        sigma_local: s, one client's noise, at least 1/2.
        honest: n, the shares that the adversary does not know, the client's own included.
        l2: Δ₂', see `rounded_sensitivity`.
        l1: Δ₁', see `rounded_l1`.
        dimension: d.

    Returns:
        Shape (k,).

    Raises:
        PolicyError: an argument outside its range, or no honest share.
    """
    alpha = _orders(orders)
    _count(honest, "A number of honest shares")
    _count(dimension, "A number of coordinates")
    _positive(l2, "A norm")
    _positive(l1, "A norm")
    if not (math.isfinite(sigma_local) and sigma_local >= 0.5):
        raise PolicyError(
            "The distributed discrete Gaussian is analysed from half a step on.",
            fix="choose a finer grid, or more noise",
        )
    sigma, inflation = sigma_local * math.sqrt(honest), tau(sigma_local, honest)
    near, far = l2 / sigma, l1 / sigma
    added = alpha / 2.0 * near**2 + inflation * dimension
    mixed = alpha / 2.0 * (near**2 + 2.0 * far * inflation + inflation**2 * dimension)
    rooted = alpha / 2.0 * (near + math.sqrt(dimension) * inflation) ** 2
    return np.minimum(np.minimum(added, mixed), rooted)


def rdp_laplace(
    orders: Sequence[float], *, scale: float, l2: float, l1: float
) -> NDArray[np.float64]:
    """Return the Rényi divergence of one release with discrete Laplace noise of one client.

    The smaller of the pure bound Δ₁/t, which no order exceeds, and α Δ₂²/(2t²): coordinate j is
    (s_j/t)-DP, hence s_j²/(2t²)-zCDP ([BS], proposition 1.4), and the sum over j is Δ₂²/(2t²).

    This is the guarantee of the client's *own* share. Sums of discrete Laplace variables are no
    discrete Laplace variable, and no bound for them is used here: what others add is
    post-processing, and their number earns nothing.

    Args:
        orders: Rényi orders above 1, shape (k,).
        scale: t, one client's noise.
        l2: Δ₂'.
        l1: Δ₁'.

    Returns:
        Shape (k,).

    Raises:
        PolicyError: an argument outside its range.
    """
    alpha = _orders(orders)
    for value, name in ((scale, "A scale"), (l2, "A norm"), (l1, "A norm")):
        _positive(value, name)
    return np.minimum(alpha / 2.0 * (l2 / scale) ** 2, l1 / scale)


def epsilon(
    rdp: NDArray[np.float64] | Sequence[float], delta: float, orders: Sequence[float] = ORDERS
) -> tuple[float, float]:
    """Return (ε, best order): min over α of RDP(α) + ln(1 - 1/α) - ln(δα)/(α - 1).

    [CKS], proposition 12. Not below 0. A divergence that is infinite or NaN gives no bound at its
    order; if none is left, ε is infinite.

    Raises:
        PolicyError: delta outside (0, 1), or not one divergence per order.
    """
    alpha, spent = _orders(orders), np.asarray(rdp, dtype=np.float64)
    if spent.shape != alpha.shape:
        raise PolicyError("There is not one divergence for each order.", fix="give both alike")
    if not 0 < delta < 1:
        raise PolicyError(
            "Delta lies strictly between 0 and 1, also after wrap and sampler tails are taken out.",
            fix="take a larger delta, or fewer coordinates and releases",
        )
    bounds = spent + np.log1p(-1.0 / alpha) - (np.log(delta) + np.log(alpha)) / (alpha - 1.0)
    bounds = np.where(np.isnan(bounds) | (spent < 0), np.inf, bounds)
    best = int(np.argmin(bounds))
    return max(0.0, float(bounds[best])), float(alpha[best])


def net_epsilon(rdp: NDArray[np.float64], delta: float, *, tails: float) -> tuple[float, float]:
    """Return (ε, best order) over `ORDERS` after wrap and sampler tails are taken out of delta.

    If the noise that is really drawn lies within statistical distance η of the noise that was
    analysed, (ε, δ') becomes (ε, δ' + (1 + e^ε) η). So the result satisfies
    epsilon(rdp, δ - 2^-40 - (1 + e^ε) η) <= ε (O19). Counting the wrap is caution: a sum that is
    reduced or refused is post-processing of one that is not.

    Args:
        rdp: of all releases together, shape (len(ORDERS),).
        delta: of the claim.
        tails: η over all draws of the run: their number times 2^-tail_bits of the sampler.

    Returns:
        ε and its order; (inf, nan) if delta cannot pay for the tails.
    """
    if not tails >= 0:
        raise PolicyError("A statistical distance is not negative.", fix="check the noise plan")
    claim = 0.0
    for _ in range(8):  # tails are so small that the second pass confirms the first
        with np.errstate(over="ignore"):
            left = delta - WRAP - (1.0 + float(np.exp(claim))) * tails
        if not 0 < left < 1:
            break
        bound, order = epsilon(rdp, left)
        if bound <= claim:
            return claim, order
        claim = bound * (1.0 + 1e-9)
    return math.inf, math.nan


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Return the exact ε of μ-GDP: δ(ε) = Φ(μ/2 - ε/μ) - e^ε Φ(-μ/2 - ε/μ).

    Dong, Roth and Su, arXiv 1905.02383, corollary 1; Balle and Wang, arXiv 1805.06530, theorem 8.
    T releases with *continuous* Gaussian noise have μ = √T Δ₂/σ. To compare with, never a claim:
    our noise is discrete.

    Raises:
        PolicyError: μ or delta outside its range.
    """
    from scipy import optimize, special

    _positive(mu, "A mu")
    if not 0 < delta < 1:
        raise PolicyError("Delta lies strictly between 0 and 1.", fix="choose another delta")

    def excess(value: float) -> float:
        kept = special.log_ndtr(mu / 2.0 - value / mu)
        lost = value + special.log_ndtr(-mu / 2.0 - value / mu)
        return float(np.exp(kept) - np.exp(lost)) - delta

    # At the upper end Φ(μ/2 - ε/μ) alone is below delta.
    top = mu * (mu / 2.0 - float(special.ndtri(delta)))
    return float(optimize.brentq(excess, 0.0, top)) if excess(0.0) > 0 else 0.0


def _orders(orders: Sequence[float]) -> NDArray[np.float64]:
    alpha = np.asarray(orders, dtype=np.float64)
    if alpha.ndim != 1 or not alpha.size or not bool(np.all((alpha > 1) & np.isfinite(alpha))):
        raise PolicyError("Rényi orders are finite numbers above 1.", fix="use accounting.ORDERS")
    return alpha


def _positive(value: float, name: str) -> None:
    if not (math.isfinite(value) and value > 0):
        raise PolicyError(f"{name} is a finite number above zero.", fix="check the noise plan")


def _count(value: int, name: str) -> None:
    if value < 1:
        raise PolicyError(f"{name} is at least 1.", fix="check the cohort and the noise plan")
