"""Isolation: whom sums single out, compared with trying everything."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from audits.attacks._methods import openings
from audits.attacks._methods.openings import draw_prime, isolable

PRIME = draw_prime(np.random.default_rng(5))


def by_trying(sums: np.ndarray[Any, Any], colluders: int) -> list[bool]:
    """Solve for every client and every set of colluders with least squares."""
    clients, found = range(sums.shape[1]), []
    for one in clients:
        others = [c for c in clients if c != one]
        sets = (s for k in range(colluders + 1) for s in itertools.combinations(others, k))
        found.append(any(_combines(sums, one, gone) for gone in sets))
    return found


def _combines(sums: np.ndarray[Any, Any], one: int, gone: tuple[int, ...]) -> bool:
    left = [c for c in range(sums.shape[1]) if c not in gone]
    wanted = np.array([float(c == one) for c in left])
    table = sums[:, left].T.astype(float)
    return bool(np.allclose(table @ np.linalg.lstsq(table, wanted, rcond=None)[0], wanted))


@pytest.mark.parametrize("colluders", [0, 1, 2, 3])
def test_isolation_agrees_with_trying_every_set_of_colluders(colluders: int) -> None:
    rng, seen = np.random.default_rng(colluders), set()
    for _ in range(60):
        shape = (int(rng.integers(1, 6)), int(rng.integers(2, 7)))
        sums = rng.random(shape) < rng.choice([0.3, 0.5, 0.8])
        found = isolable(sums, colluders, PRIME)
        assert found.complete
        assert found.found.tolist() == by_trying(sums, colluders)
        seen |= set(found.found.tolist())
    assert seen == {True, False}  # else nothing was compared


def test_a_prime_is_one_and_depends_on_the_run() -> None:
    drawn = {draw_prime(np.random.default_rng(seed)) for seed in range(5)}
    assert len(drawn) == 5
    for prime in drawn:
        assert 1 << 30 < prime < 1 << 31
        assert all(pow(base, prime - 1, prime) == 1 for base in (2, 3, 5, 7, 11))


@pytest.mark.parametrize(("clients", "at_most"), [(10, 13), (20, 23), (50, 53)])
def test_random_half_cohorts_isolate_everybody_after_about_as_many_rounds_as_clients(
    clients: int, at_most: int
) -> None:
    rng = np.random.default_rng(3)
    table = np.zeros((at_most, clients), dtype=bool)
    for row in table:
        row[rng.choice(clients, clients // 2, replace=False)] = True
    assert not isolable(table[: clients // 2], 0, PRIME).found.any()
    assert not isolable(table[: clients - 1], 0, PRIME).found.all()
    assert isolable(table, 0, PRIME).found.all()


def test_a_client_in_no_sum_is_never_isolated_whoever_colludes() -> None:
    table = np.array([[1, 1, 1, 0], [1, 1, 0, 0]], dtype=bool)
    assert isolable(table, 0, PRIME).found.tolist() == [False, False, True, False]
    assert isolable(table, 3, PRIME).found.tolist() == [True, True, True, False]


def test_messages_in_clear_of_many_leave_nothing_to_eliminate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """2,000 clients in clear, and a sum over three of them: no elimination sees a column."""
    seen: list[tuple[int, ...]] = []
    eliminated = openings._eliminated

    def watched(rows: Any, prime: int) -> Any:
        seen.append(rows.shape)
        return eliminated(rows, prime)

    monkeypatch.setattr(openings, "_eliminated", watched)
    clear = np.vstack([np.eye(2000, dtype=bool), np.arange(2000) < 3])
    assert isolable(clear, 0, PRIME).found.all()
    sums = [[1, 1, 0, 0, 0], [1, 0, 0, 0, 0], [0, 0, 1, 1, 0], [0, 0, 0, 1, 1]]
    hidden = np.array(sums, dtype=bool)
    assert isolable(hidden, 0, PRIME).found.tolist() == [True, True, False, False, False]
    assert [columns for _, columns in seen] == [0, 3]
