"""Checks of the code that clips, rounds and adds noise: on the grid, and within the sensitivity.

Floating-point noise betrays in its low bits what it was added to (Mironov, CCS 2012), and noise is
in proportion to a sensitivity that some input might exceed. Every check has a planted violation.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from audits.attacks._noise.local_release import ToldRelease
from audits.attacks._noise.release import Release
from audits.evidence.steps import Case
from crypto.ldp import MAX_EPSILON
from crypto.samplers import KEY_BYTES, Stream
from protocols.disclosures.names import Disclosure
from protocols.disclosures.row_sum.protocol.wire import MOST
from protocols.disclosures.row_sum.run import NoisedRows, grid_of
from protocols.disclosures.sum.layout import SumLayout
from protocols.messages import SumMessage, Vector, real
from protocols.plan.plan import CountPlan, NoisePlan
from protocols.policy.guard import find
from protocols.policy.guards import Clip, Quantise
from protocols.privacy.noising import SAMPLERS, PrivateSteps, noises, on_grid
from protocols.privacy.record_noise import counted_in
from protocols.privacy.row_noise import sensitivity
from protocols.privacy.training import LEVELS, TrainingPlan

__all__ = ["Check", "checks"]

Array = npt.NDArray[np.float64]

_VALUES = 4096
_ENTRIES = 256
_TRIES = 64
_ROWS = 8  # of a node, at most, that are made here
_SPREAD = 0.1  # of the planned width, relative; nine standard errors of 4,096 draws


@dataclass(frozen=True)
class Check:
    """One rule of the code.

    Attributes:
        name: short.
        says: in words.
        found: share of values that break the rule.
        raw, null: the same of a planted violation, and of values that keep the rule.
    """

    name: str
    says: str
    found: float
    raw: float
    null: float


class _Probe(SumMessage):
    """A vector that goes through a client's guards."""

    values: Vector = real("d", unit="weight", meaning="an input of the audit's own")


def checks(case: Case, release: Release, rng: np.random.Generator) -> tuple[str, list[Check]]:
    """Return which code was looked at, and the checks of it.

    Args:
        case: the run; its plan and policy are read.
        release: of sums or of training.
        rng: draws inputs and noise.
    """
    if isinstance(release, ToldRelease):
        return "randomisers", [_odds(release)]
    sampler = SAMPLERS[release.mechanism](release.scale)
    drawn = sampler.sample(Stream(rng.bytes(KEY_BYTES)), _VALUES)
    grid = Check(
        "noise",
        "whole grid steps",
        _off_grid(drawn),
        _off_grid(rng.normal(scale=release.scale, size=_VALUES)),
        _off_grid(rng.integers(-1000, 1000, size=_VALUES)),
    )
    plan = case.plan.training
    if plan is not None and release.unit == plan.unit:
        return "training", [grid, _gradients(plan, rng), _steps(plan)]
    if (rows := counted_in(case.plan.items, "node")) is not None and release.unit == rows.unit:
        return "rows", [grid, *_rows(rows, case, rng)]
    return "sums", [grid, *_rounding(case, rng)]


def _odds(release: ToldRelease) -> Check:
    """Return whether exact likelihoods of two values' messages exceed e^epsilon."""
    limit = math.exp(release.epsilon) * (1.0 + 1e-12)

    def above(epsilon: float) -> float:
        made, pair = release.made(epsilon)
        one, other = (made.law(value) for value in pair)
        return float(np.mean([max(one[m] / other[m], other[m] / one[m]) > limit for m in one]))

    return Check(
        "odds",
        f"likelihoods differ by a factor of {limit:.6g} at most",
        float(above(release.scale) > 0),
        float(above(min(2.0 * release.scale, MAX_EPSILON)) > 0),
        float(above(release.scale / 2.0) > 0),
    )


def _off_grid(values: npt.NDArray[np.generic]) -> float:
    """Return the share of values that are no integers."""
    reals = values.astype(np.float64)
    return float(np.mean(reals != np.round(reals)))


def _inputs(entries: int, rng: np.random.Generator) -> Iterator[Array]:
    """Yield vectors that are hard to clip: far too large, in one entry, even, tiny, uneven."""
    yield np.eye(1, entries)[0] * 1e9
    yield np.full(entries, 1e9)
    yield np.full(entries, 1e-9)
    for _ in range(_TRIES):
        yield rng.standard_normal(entries) * 10.0 ** rng.uniform(-6.0, 12.0)


def _rounding(case: Case, rng: np.random.Generator) -> Iterator[Check]:
    """Yield how often a clipped and rounded vector is longer than the noise was planned for."""
    chain = case.policy.rules.get(Disclosure.SUM, ())
    clip, quantise = find(chain, "clip"), find(chain, "quantise")
    noise = noises(case.plan.items).get(Disclosure.SUM)
    if not isinstance(clip, Clip) or not isinstance(quantise, Quantise) or noise is None:
        return
    lengths = np.array(list(_lengths(clip, quantise, noise, rng)))
    most = float(noise.l2)
    yield Check(
        "rounding",
        f"no longer than {most:.6g} grid steps",
        float(np.mean(lengths > most)),
        float(np.mean((3.0 * lengths > most)[lengths > most / 2.0])),
        float(np.mean(0.0 * lengths > most)),
    )


def _lengths(
    clip: Clip, quantise: Quantise, noise: NoisePlan, rng: np.random.Generator
) -> Iterator[float]:
    entries = min(noise.coordinates, _ENTRIES)
    layout = SumLayout((_Probe,), clip, quantise, {"d": entries})
    grid = layout.columns[0].grid
    stream, zero = Stream(rng.bytes(KEY_BYTES)), grid.levels if grid is not None else 0
    for given in _inputs(entries, rng):
        levels, _ = layout.encode([_Probe(values=given)], stream, limit=float(noise.l2))
        yield float(np.linalg.norm((levels - zero).astype(np.float64)))


def _gradients(plan: TrainingPlan, rng: np.random.Generator) -> Check:
    """Return how often a gradient on the grid is longer than the clip norm."""
    clip, levels = float(plan.clip), min(plan.levels, LEVELS)
    found = [on_grid(given, clip) for given in _inputs(_ENTRIES, rng)]
    squares = np.array([int(one @ one) for one in found])
    most = levels * levels
    return Check(
        "gradients",
        f"no longer than {levels} grid steps",
        float(np.mean(squares > most)),
        float(np.mean((9 * squares > most)[4 * squares > most])),
        float(np.mean(0 * squares > most)),
    )


def _rows(noise: CountPlan, case: Case, rng: np.random.Generator) -> Iterator[Check]:
    """Yield how far a node moves its rows, and whether a client's own code noises them as planned.

    The same key makes the same noise with and without the node, so what is left is the node.
    """
    clip, bits = grid_of(case.policy)
    levels, key, high = (1 << (bits - 1)) - 1, rng.bytes(KEY_BYTES), MOST // len(case.plan.clients)
    squares = []
    for given in _inputs(_ENTRIES, rng):
        made = [NoisedRows(clip, bits, noise, high, key) for _ in range(2)]
        zeros, apart = np.zeros(_ENTRIES), 0
        for row in range(min(noise.fields, _ROWS)):
            with_it, without = (
                one.row(bytes([row]), [own, zeros])[0]
                for one, own in zip(made, (given, zeros), strict=True)
            )
            off = with_it - without
            apart += int(off @ off)
        squares.append(apart)
    found, most = np.array(squares), min(noise.fields, _ROWS) * levels**2
    yield Check(
        "node",
        f"moves {noise.fields} rows by no more than {sensitivity(noise) * levels:.6g} grid steps",
        float(np.mean(found > most)),
        float(np.mean((9 * found > most)[4 * found > most])),
        0.0,
    )
    drawn = NoisedRows(clip, bits, noise, high, key).row(b"door", [np.zeros(_VALUES)])[0]
    yield Check(
        "door",
        "noise of the planned width is added",
        _wrong(drawn.astype(np.float64), float(noise.scale) * levels, drawn == np.round(drawn)),
        _wrong(drawn / 2.0, float(noise.scale) * levels, drawn == np.round(drawn)),
        0.0,
    )


def _steps(plan: TrainingPlan) -> Check:
    """Return whether private training itself adds noise, on the grid and as wide as planned.

    This one call draws from the operating system; its answer does not depend on the draw.
    """
    steps = PrivateSteps(plan)
    steps.open(1, 0)
    noise = steps.step(0, _VALUES, lambda batch: ())
    step = float(plan.clip) / LEVELS / float(plan.batch)
    planned = float(plan.noise) * plan.levels
    return Check(
        "steps",
        "noise of the planned width is added",
        _wrong(noise / step, planned, noise == np.round(noise / step) * step),
        _wrong(noise / step / 2.0, planned, np.ones(_VALUES, dtype=np.bool_)),
        0.0,
    )


def _wrong(steps: Array, planned: float, on_grid: npt.NDArray[np.bool_]) -> float:
    """Return 1 if the spread is not the planned one, else the share of values off the grid."""
    wide = abs(float(np.std(steps)) / planned - 1.0) > _SPREAD
    return 1.0 if wide else float(np.mean(~on_grid))
