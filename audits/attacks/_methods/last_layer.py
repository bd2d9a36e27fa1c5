"""Solving a generator's last layer for the rows that its draws were held against.

The gradient of the last layer is G = A^T D, A (B, h + 1) what entered it and a one, known to
whoever knows the generator and its codes, D (B, F) the slopes at its outputs. With B <= h + 1 draws
D is solved for exactly. For x~ = tanh(.) and a squared distance, row b of D is a positive multiple
of (x~_b - x_u)(1 - x~_b^2), so it names u whatever a clip made of its length.
"""

from __future__ import annotations

import numpy as np

from audits.attacks._shared.answers import Answer, Array

__all__ = ["guessed", "named", "solved"]

_SMALL = 1e-12


def solved(entered: Array, gradient: Array) -> Array:
    """Return the slopes at the outputs, (B, F): the shortest of all that give this gradient."""
    found: Array = np.linalg.lstsq(entered.T, gradient, rcond=None)[0].astype(np.float64)
    return found


def named(answer: Answer, gradient: Array, candidates: Array) -> float:
    """Return for how many draws the slopes of a gradient name the row that they were held against.

    Args:
        answer: what is known, and the truth.
        gradient: (h + 1, F), of any message.
        candidates: (N, F).
    """
    slopes, right = solved(answer.entered, gradient), []
    for place in np.flatnonzero(answer.matched >= 0):
        drawn = answer.drawn[place]
        towards = (drawn - candidates) * (1.0 - drawn**2)
        length = np.linalg.norm(towards, axis=1) * np.linalg.norm(slopes[place])
        best = int(np.argmax(towards @ slopes[place] / np.maximum(length, _SMALL)))
        right.append(_same(candidates, best, int(answer.matched[place])))
    return float(np.mean(right)) if right else 0.0


def guessed(answer: Answer, candidates: Array) -> float:
    """Return the same for who names the row nearest to each draw, without any message."""
    right = []
    for place in np.flatnonzero(answer.matched >= 0):
        away = np.square(answer.drawn[place] - candidates).sum(axis=1)
        right.append(_same(candidates, int(np.argmin(away)), int(answer.matched[place])))
    return float(np.mean(right)) if right else 0.0


def _same(candidates: Array, one: int, other: int) -> bool:
    return one == other or bool(np.array_equal(candidates[one], candidates[other]))
