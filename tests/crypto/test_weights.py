"""Weights that hide single clients: the nearest admissible ones and nothing else (O10)."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crypto.errors import OutOfRange
from crypto.homomorphic.weighted import CAP, TOTAL, Weights, flatten


def softmax(similarity: np.ndarray, tau: float) -> np.ndarray:
    raised = np.exp(tau * (similarity - similarity.max(axis=1, keepdims=True)))
    return raised / raised.sum(axis=1, keepdims=True)


@st.composite
def tables(draw: st.DrawFn, low: int = 4, high: int = 9) -> np.ndarray:
    """Rows of every temper: even, peaked on one, zero but for a few."""
    clients = draw(st.integers(low, high))
    number = st.floats(0, 1) | st.sampled_from([0.0, 1e-9, 1.0])
    rows = np.array(
        draw(
            st.lists(
                st.lists(number, min_size=clients, max_size=clients),
                min_size=clients,
                max_size=clients,
            )
        )
    )
    rows += 1e-12 * np.eye(clients)
    rows **= draw(st.sampled_from([1, 1, 4]))
    rows += 1e-60 * np.eye(clients)
    return rows / rows.sum(axis=1, keepdims=True)


def others(weights: Weights, i: int) -> np.ndarray:
    return np.delete(weights.table[i], i)


def tied(row: np.ndarray, top: int | None) -> int | None:
    """Return how many others a row keeps: `top`, and all that weigh as much as the last of them."""
    if top is None or top >= row.size:
        return top
    return int((row >= np.sort(row)[-top]).sum())


def admissible(row: np.ndarray, minimum: int, cap: Fraction = CAP) -> bool:
    """The rule as the obligation writes it, in fractions."""
    total = int(row.sum())
    if not total:
        return True
    shares = [Fraction(int(weight), total) for weight in row]
    return 1 / sum(share**2 for share in shares) >= minimum and max(shares) <= cap


@settings(max_examples=15)
@given(table=tables(), minimum=st.integers(1, 3), bits=st.integers(3, 9))
def test_o10_flattened_rows_are_distributions_that_keep_the_rule(table, minimum, bits):
    found = flatten(table, minimum, total=1 << bits)
    assert found.table.dtype == np.int64
    assert (found.table >= 0).all()
    assert (found.table.sum(axis=1) == 1 << bits).all()
    assert all(admissible(others(found, i), minimum) for i in range(found.clients))


@settings(max_examples=15)
@given(table=tables(), top=st.sampled_from([None, 4, 5]))
def test_o10_a_second_flattening_changes_nothing(table, top):
    once = flatten(table, top=top)
    again = flatten(once.table / once.total, top=top)
    for i, row in enumerate(table):
        if tied(np.delete(row, i), top) == top:
            assert np.array_equal(once.table[i], again.table[i])
            assert i not in again.flattened


@settings(max_examples=15)
@given(table=tables())
def test_o10_only_rounding_where_the_rule_was_kept(table):
    found = flatten(table, total=256)
    for i, row in enumerate(table):
        if i not in found.flattened:
            assert np.abs(found.table[i] - 256 * row).max() < 1 + 1e-9
    rounded = Weights(found.table, 256)  # and what is flattened is exactly what rounding breaks
    assert np.array_equal(flatten(rounded.table / 256, total=256).table, rounded.table)


@settings(max_examples=15)
@given(table=tables())
def test_o10_no_single_move_brings_a_flattened_row_nearer(table):
    found = flatten(table)
    for i in found.flattened:
        row = others(found, i)
        if not row.sum():
            continue
        true = np.delete(table[i], i)
        target = row.sum() * true / true.sum()
        here = np.sum((row - target) ** 2)
        for giver, taker in itertools.permutations(range(row.size), 2):
            moved = row.copy()
            moved[giver] -= 1
            moved[taker] += 1
            if moved.min() >= 0 and admissible(moved, 3):
                assert np.sum((moved - target) ** 2) > here - 1e-5


def test_o10_the_nearest_of_all_by_exhaustion():
    rng = np.random.default_rng(2)
    worse = 0.0
    for _ in range(30):
        table = softmax(rng.uniform(-1, 1, (5, 5)) + np.eye(5), 4)
        found = flatten(table, total=16)
        for i in found.flattened:
            row = others(found, i)
            total = int(row.sum())
            true = np.delete(table[i], i)
            target = total * true / true.sum()
            splits = (
                np.array([a, b, c, total - a - b - c])
                for a, b, c in itertools.product(range(total + 1), repeat=3)
                if a + b + c <= total
            )
            best = min(np.sum((s - target) ** 2) for s in splits if admissible(s, 3))
            worse = max(worse, np.sum((row - target) ** 2) - best)
    assert worse < 1e-5


def test_o10_a_community_of_two_is_flattened():
    clients = 8
    similarity = np.full((clients, clients), 0.1)
    similarity[:2, :2] = 0.9
    np.fill_diagonal(similarity, 1.0)
    table = softmax(similarity, 5)
    left = np.delete(table[0], 0) / (1 - table[0, 0])
    assert left[0] > 0.85  # the control: what is left at client 0 is client 1's model
    found = flatten(table)
    assert {0, 1} <= set(found.flattened)
    row = others(found, 0)
    assert row.argmax() == 0
    assert row[0] / row.sum() <= 0.5
    assert abs(found.table[0, 0] - 128 * table[0, 0]) < 1  # its own weight stays
    assert admissible(row, 3)


def test_o10_a_stray_unit_goes_back_to_its_receiver():
    table = np.full((6, 6), 0.0)
    np.fill_diagonal(table, 1 - 1.4 / 128)
    table[:, 5] += 1.4 / 128
    table[5] = 1 / 6
    found = flatten(table)
    assert found.flattened == (0, 1, 2, 3, 4)
    assert (np.diag(found.table)[:5] == 128).all()  # one unit on one client: its model, no less


def test_o10_a_receiver_that_takes_no_others_learns_nothing_and_is_let_be():
    found = flatten(np.eye(5))
    assert np.array_equal(found.table, 128 * np.eye(5))
    assert not found.flattened


def test_tau_zero_is_the_uniform_average():
    for clients in (4, 8, 16):
        found = flatten(softmax(np.random.default_rng(1).uniform(-1, 1, (clients, clients)), 0))
        assert (found.table == 128 // clients).all()
        assert not found.flattened


@settings(max_examples=15)
@given(table=tables(6, 10), top=st.integers(4, 6))
def test_top_weights_keep_the_largest_others_and_the_own(table, top):
    found = flatten(table, top=top)
    for i, row in enumerate(table):
        kept = np.flatnonzero(np.delete(found.table[i], i))
        true = np.delete(row, i)
        assert kept.size <= tied(true, top)
        if kept.size:
            assert true[kept].min() >= np.sort(true)[::-1][:top][-1]


def test_too_few_others_or_no_choice_is_refused():
    with pytest.raises(OutOfRange, match="fewer others"):
        flatten(np.full((3, 3), 1 / 3))
    flatten(np.full((4, 4), 1 / 4))  # the control
    with pytest.raises(OutOfRange, match="must stay"):
        flatten(np.full((6, 6), 1 / 6), top=3)


@pytest.mark.parametrize(
    "wrong",
    [
        np.full((4, 5), 0.2),
        np.full((4, 4), 0.3),
        np.full((4, 4), np.nan),
        np.eye(4) * 2 - np.eye(4)[::-1],
        np.ones(4),
    ],
    ids=["oblong", "sum", "nan", "negative", "flat"],
)
def test_what_is_no_distribution_is_refused(wrong):
    with pytest.raises(OutOfRange):
        flatten(wrong)


@pytest.mark.parametrize("total", [0, 1, 3, 100, 8192])
def test_totals_that_are_no_power_of_two_are_refused(total):
    with pytest.raises(OutOfRange, match="power of two"):
        flatten(np.full((4, 4), 0.25), total=total)


GOOD = np.full((4, 4), 32, dtype=np.int64)


def changed(row: list[int]) -> np.ndarray:
    table = GOOD.copy()
    table[0] = row
    return table


@pytest.mark.parametrize(
    "table",
    [
        changed([32, 96, 0, 0]),  # one other
        changed([32, 48, 48, 0]),  # two others
        changed([29, 32, 33, 34]),  # three, not quite even
        changed([33, 32, 32, 32]),  # another sum
        changed([-32, 53, 53, 54]),
        changed([129, 0, 0, -1]),
        GOOD[:3],
        GOOD.astype(float),
    ],
    ids=["one", "two", "uneven", "sum", "negative", "own", "oblong", "floats"],
)
def test_o10_unchecked_weights_cannot_be_made(table):
    Weights(GOOD, TOTAL)  # the control
    with pytest.raises(OutOfRange):
        Weights(table, TOTAL)


def test_weights_are_not_printed_or_changed():
    found = Weights(GOOD, TOTAL)
    assert "32" not in repr(found)
    with pytest.raises(ValueError, match="read-only"):
        found.table[0, 0] = 1
    source = GOOD.copy()
    kept = Weights(source, TOTAL)
    source[0] = [32, 96, 0, 0]
    assert (kept.table == 32).all()


@pytest.mark.parametrize("count", [5, 6, 7, 10, 50])
def test_o10_rows_that_are_alike_become_the_same_integers(count):
    """Two receivers of one mixture who compare theirs find nothing."""
    shares = np.random.default_rng(count).uniform(0.9, 1, count)
    for row in (np.full(count, 1 / count), shares / shares.sum()):
        table = flatten(np.tile(row, (count, 1))).table
        assert (table == table[0]).all()


def solved(table: np.ndarray, receivers: tuple[int, int]) -> list[int]:
    """Return whose model two receivers of one mixture have in the difference of their rows."""
    difference = np.subtract(*table[list(receivers)])
    difference[list(receivers)] = 0  # they know their own
    left = np.flatnonzero(difference)
    return list(left) if left.size == 1 else []


@pytest.mark.parametrize("count", [6, 8, 10, 50])
def test_o10_top_does_not_cut_rows_whose_others_all_weigh_alike(count):
    """Cut by index, rows of the plain mean differ in one client, whose model two others read."""
    even = np.full((count, count), 1 / count)
    found = flatten(even, top=4)
    pairs = list(itertools.combinations(range(count), 2))
    assert np.array_equal(found.table, flatten(even).table)
    assert not any(solved(found.table, pair) for pair in pairs)
    cut = np.zeros((count, count), dtype=np.int64)
    for i in range(count):  # the control: what a tie broken by index gives
        cut[i, [i, *np.delete(np.arange(count), i)[:4]]] = [24, 26, 26, 26, 26]
    assert any(solved(Weights(cut, 128).table, pair) for pair in pairs)


def test_o10_top_keeps_what_weighs_as_much_as_the_last_that_it_keeps():
    row = np.array([0.3, 0.2, 0.1, 0.1, 0.1, 0.1, 0.06, 0.04])
    found = flatten(np.tile(row, (8, 1)), top=4).table
    assert [list(np.flatnonzero(found[i])) for i in (0, 6)] == [[*range(6)], [*range(6), 6]]
    without = np.array([0.3, 0.2, 0.12, 0.1, 0.09, 0.08, 0.06, 0.05])
    found = flatten(np.tile(without, (8, 1)), top=4).table
    assert [list(np.flatnonzero(found[i])) for i in (0, 6)] == [[*range(5)], [*range(4), 6]]
