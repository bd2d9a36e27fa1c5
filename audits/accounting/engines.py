"""From counted vectors to epsilon: our own Rényi arithmetic, and Opacus' two as a cross-check."""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protocols.errors import EvidenceError, PolicyError
from protocols.plan.learns import check_covered
from protocols.plan.plan import NoisePlan, Plan
from protocols.policy.guards import Quantise
from protocols.policy.policy import PrivacyPolicy
from protocols.privacy.accounting import (
    ORDERS,
    net_epsilon,
    rounded_l1,
    rounded_sensitivity,
)
from protocols.privacy.noising import (
    PURE,
    RANDOMISERS,
    ROUNDING_BETA,
    SAMPLERS,
    TAIL_BITS,
    divergence,
)
from protocols.privacy.own_target import check_own
from protocols.privacy.record_noise import check_counted
from protocols.privacy.row_noise import check_row_noise

GAUSSIAN = "discrete_gaussian"
TENTH = 0.1
LARGEST_PRV = 100.0  # the PRV accountant's mesh outgrows memory far above this epsilon
History = tuple[float, float, int]
"""σ/Δ₂', sampling rate, and how many such steps."""

_MOST_GROUPS = 8  # different shares of noise that the PRV accountant is given
_LARGEST = 1e12
_MOST = 1 << 31

Drawn = tuple[str, int]
"""A vector: its item, and how many honest shares of noise hide it."""


def check_noise(name: str, noise: NoisePlan, clients: int) -> None:
    """Raise EvidenceError at step ``plan`` unless every number of a noise plan can be counted with.

    Args:
        name: the item.
        noise: as the plan states it; the plan is a file that somebody else may have written.
        clients: on the plan.
    """
    try:
        texts = (noise.pure,) if noise.pure else (noise.sigma, noise.l2, noise.l1)
        reals = [float(text) for text in (*texts, noise.epsilon)]
        good = all(0 < value < _LARGEST for value in reals) and 0 < float(noise.delta) < 1
    except ValueError:
        good = False
    whole = ((noise.honest, clients), (noise.coordinates, _MOST), (noise.releases, _MOST))
    known = noise.mechanism in SAMPLERS or (noise.local and noise.mechanism in RANDOMISERS)
    known = known and (not noise.local or noise.honest == 1)
    known = known and bool(noise.pure) == (noise.mechanism in PURE)
    if not good or not known or any(not 0 < v <= m for v, m in whole):
        raise EvidenceError("plan", f"the noise of {name[:60]} cannot be counted with")


def sound(noise: NoisePlan, quantise: Quantise) -> NoisePlan:
    """Return the noise with no smaller sensitivities than the policy's clip and grid give.

    The clip norm is the largest level of the grid, so these follow from the number of bits and of
    coordinates. A plan that states less would count with less than the guards allow. What a local
    randomiser gives follows from its own parameters.
    """
    if noise.mechanism in RANDOMISERS:
        return noise
    levels, entries = float((1 << (quantise.bits - 1)) - 1), noise.coordinates
    l2 = max(float(noise.l2), rounded_sensitivity(levels, entries, ROUNDING_BETA))
    l1 = max(float(noise.l1), rounded_l1(l2, entries))
    return noise.model_copy(update={"l2": repr(l2), "l1": repr(l1)})


def false_noise(plan: Plan, policy: PrivacyPolicy) -> str:
    """Say which noise of clients' own is not what its policy comes to; empty if none is.

    Every number is computed again: what a plan states beside what its mechanism draws by would
    otherwise be the word of whoever wrote the plan. Nothing may leave without noise beside it.
    """
    try:
        check_own(plan, policy)
        check_counted(plan, policy)
        check_row_noise(plan, policy)
        check_covered(plan.items, policy)
    except PolicyError as error:
        return f"{error.what} {error.why}".strip()
    return ""


class Meter:
    """Epsilon of any collection of noised vectors.

    Args:
        noises: per item the noise, checked and sound.
        delta: of the claim.
        clients: on the plan; each draws noise.
    """

    def __init__(self, noises: Mapping[str, NoisePlan], delta: float, clients: int) -> None:
        self.noises, self.delta, self.clients = dict(noises), delta, clients
        self._one: dict[tuple[NoisePlan, int], NDArray[np.float64]] = {}
        self._all: dict[frozenset[tuple[Drawn, int]], float] = {}

    def own(self, drawn: Mapping[Drawn, int]) -> float:
        """Return epsilon of so many vectors by our own accounting; infinite without a bound."""
        key = frozenset(drawn.items())
        if key not in self._all:
            self._all[key] = self._compose(drawn)
        return self._all[key]

    def _compose(self, drawn: Mapping[Drawn, int]) -> float:
        if not any(drawn.values()):
            return 0.0
        rdp, tails = np.zeros(len(ORDERS)), 0.0
        for (item, honest), count in drawn.items():
            noise = self.noises[item]
            rdp = rdp + count * self._divergence(noise, honest)
            tails += count * noise.coordinates * self.clients * 2.0**-TAIL_BITS
        return net_epsilon(rdp, self.delta, tails=tails)[0]

    def _divergence(self, noise: NoisePlan, honest: int) -> NDArray[np.float64]:
        if (noise, honest) not in self._one:
            try:
                self._one[noise, honest] = np.asarray(divergence(noise, honest))
            except PolicyError:  # outside of what was analysed: no bound
                self._one[noise, honest] = np.full(len(ORDERS), np.inf)
        return self._one[noise, honest]

    def central(self, drawn: Mapping[Drawn, int]) -> list[tuple[float, float, int]] | None:
        """Return the equivalent central Gaussians as Opacus' history; None for other noise.

        One entry is (σ of all honest shares together / Δ₂', sampling rate 1, count).
        """
        history: Counter[float] = Counter()
        for (item, honest), count in drawn.items():
            noise = self.noises[item]
            if noise.mechanism != GAUSSIAN:
                return None
            whole = noise.apart * float(noise.l2)
            history[float(noise.sigma) * math.sqrt(honest) / whole] += count
        return [(z, 1.0, count) for z, count in sorted(history.items()) if count]


def opacus(history: Sequence[History], delta: float) -> Iterable[tuple[str, Any]]:
    """Return (engine, epsilon or the reason why there is none) of Opacus' RDP and PRV accountants.

    The GDP accountant is not asked: it is an approximation for many small steps, no bound.

    Args:
        history: from :meth:`Meter.central`; not empty.
        delta: of the claim.
    """
    return _opacus(tuple(history), delta)


@lru_cache(maxsize=64)  # a report and an account of one run ask for the same, by client and in all
def _opacus(history: tuple[History, ...], delta: float) -> tuple[tuple[str, Any], ...]:
    from opacus.accountants import PRVAccountant, RDPAccountant  # takes seconds

    rdp, prv = RDPAccountant(), PRVAccountant()
    rdp.history = list(history)
    spent = _quietly(lambda: rdp.get_epsilon(delta=delta, alphas=list(ORDERS)))
    if not spent <= LARGEST_PRV:
        why = f"not computed above an epsilon of {LARGEST_PRV:g}"
        return ("Opacus RDP", spent), ("Opacus PRV", why)
    prv.history = _few(history)
    error = max(spent, 0.01) / 500
    found = _quietly(lambda: prv.get_epsilon(delta=delta, eps_error=error))
    return ("Opacus RDP", spent), ("Opacus PRV", found)


def _quietly(compute: Callable[[], float]) -> float:
    """Return a number of Opacus' without its warnings; NaN for what it cannot compute."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            return float(compute())
        except Exception:  # a cross-check that fails must not take the account with it
            return math.nan


def _few(history: Sequence[History]) -> list[History]:
    """Merge neighbours into a few entries, each with the least noise and the highest rate."""
    size = -(-len(history) // _MOST_GROUPS)
    parts = [history[n : n + size] for n in range(0, len(history), size)]
    return [
        (part[0][0], max(rate for _, rate, _ in part), sum(count for _, _, count in part))
        for part in parts
    ]


def differs(one: float, other: float) -> bool:
    """Tell whether two numbers differ by more than a tenth of the first."""
    return not abs(other - one) <= TENTH * one
