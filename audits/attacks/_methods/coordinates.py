"""What clients that choose their own vectors read of the others' through cosines."""

from __future__ import annotations

import numpy as np

from audits.attacks._shared.material import Array

__all__ = ["read", "unit_rows"]

_SLACK = 1e-12


def unit_rows(rows: Array) -> Array:
    """Return the rows, (n, d), each divided by its length; a row of zeros stays."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    found: Array = np.divide(rows, lengths, out=np.zeros_like(rows), where=lengths > 0)
    return found


def read(
    vectors: Array, attackers: int, errors: Array, rng: np.random.Generator, *, mirror: bool = False
) -> Array:
    """Return for each client which share of what sets it apart is read in one comparison, (n,).

    For each client so many others are drawn. They would have sent the vectors that they have, whose
    mean t is what they expect of the client. In their place they send orthonormal directions B that
    are orthogonal to t, so that the cosines with them are the client's coordinates along B. Along B
    they guess these, along t the length of t or what is left to a length of 1, elsewhere nothing.
    The share is 1 - |guess - v|^2 / |t - v|^2: about `attackers` of d - 1 parts. Below 0: they
    guess worse than t is.

    Args:
        vectors: (n, d), of length 1; n at least `attackers` + 1, d at least 2.
        attackers: clients that choose their vectors.
        errors: what an opened cosine may be off; one is drawn for each coordinate.
        rng: draws attackers, directions and errors.
        mirror: coordinates have signs drawn at random, as a control.
    """
    count, size = vectors.shape
    found = np.zeros(count)
    for one in range(count):
        rest = rng.permutation(np.delete(np.arange(count), one))
        expected = vectors[rest[:attackers]].mean(axis=0)
        whole = float(np.sum((vectors[one] - expected) ** 2))
        if whole < _SLACK:  # nothing sets it apart
            continue
        base = _directions(expected, min(attackers, size - 1), rng)
        told = base[1:] @ vectors[one] + rng.choice(errors, size=len(base) - 1)
        if mirror:
            told *= rng.choice([-1.0, 1.0], size=len(told))
        along = np.sqrt(max(0.0, 1.0 - float(told @ told)))
        if len(base) < size:  # else it is known
            along = min(along, float(np.linalg.norm(expected)))
        guess = told @ base[1:] + along * base[0]
        found[one] = 1.0 - float(np.sum((vectors[one] - guess) ** 2)) / whole
    return found


def _directions(expected: Array, count: int, rng: np.random.Generator) -> Array:
    """Return orthonormal rows: along what is expected, then drawn ones, (1 + count, d)."""
    base, triangle = np.linalg.qr(
        np.column_stack([expected, rng.normal(size=(len(expected), count))])
    )
    found: Array = (base * np.where(np.diag(triangle) < 0, -1.0, 1.0)).T
    return found
