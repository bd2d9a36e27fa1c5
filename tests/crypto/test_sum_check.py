"""Checks that add up with a sum (`crypto.sum_check`)."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crypto.errors import InvalidSum, OutOfRange
from crypto.samplers import Stream, derive
from crypto.sum_check import SumCheck, check_words

KEY = bytes(range(32))
RINGS = [(1 << 16, 9), (1 << 32, 20), (1 << 44, 19), (1 << 64, 40), (1 << 16, 16)]
NAMES = ("client-1", "client-2", "client-3")


def check_of(modulus: int, bits: int, length: int = 7, **other: str | bytes) -> SumCheck:
    facts = {"key": KEY, "label": "sum 1", **other}
    return SumCheck(facts["key"], facts["label"], length, modulus, bits)  # type: ignore[arg-type]


def vectors(bits: int, length: int = 7) -> dict[str, np.ndarray]:
    rng, top = np.random.default_rng(bits), (1 << bits) // (2 * len(NAMES))
    return {name: rng.integers(-top // 8, top, length) for name in NAMES}


def added(check: SumCheck, parts: dict[str, np.ndarray], modulus: int) -> np.ndarray:
    words = [check.of(values, name).astype(object) for name, values in parts.items()]
    kind = check.of(next(iter(parts.values())), NAMES[0]).dtype
    return (sum(words) % modulus).astype(kind)


@pytest.mark.parametrize(("modulus", "bits"), RINGS)
def test_what_adds_up_verifies_and_any_change_does_not(modulus: int, bits: int) -> None:
    check, parts = check_of(modulus, bits), vectors(bits)
    total, words = sum(parts.values()), added(check, vectors(bits), modulus)
    check.verify(total, words, NAMES)
    for place in range(len(total)):
        for change in (1, -1, 1 << (bits - 1)):
            other = total.copy()
            other[place] += change
            with pytest.raises(InvalidSum):
                check.verify(other, words, NAMES)
    for place in range(len(words)):
        wrong = words.copy()
        wrong[place] ^= 1
        with pytest.raises(InvalidSum):
            check.verify(total, wrong, NAMES)


@pytest.mark.parametrize(("modulus", "bits"), RINGS[:3])
def test_it_is_of_these_parties_this_label_and_this_key(modulus: int, bits: int) -> None:
    check, parts = check_of(modulus, bits), vectors(bits)
    total, words = sum(parts.values()), added(check, parts, modulus)
    for names in (NAMES[:2], (*NAMES, "client-4"), (*NAMES[:2], "client-4"), ()):
        with pytest.raises(InvalidSum):
            check.verify(total, words, names)
    for other in ({"label": "sum 2"}, {"key": bytes(32)}):
        with pytest.raises(InvalidSum):
            check_of(modulus, bits, **other).verify(total, words, NAMES)


def test_zero_and_multiples_of_what_was_seen_are_no_forgeries() -> None:
    """A linear hash without a pad would let them through."""
    check, parts = check_of(1 << 32, 20), vectors(20)
    total, words = sum(parts.values()), added(check, parts, 1 << 32)
    for factor in (0, 2, -1):
        with pytest.raises(InvalidSum):
            check.verify(factor * total, (factor * words.astype(np.int64)).astype("<u4"), NAMES)


def test_words_are_what_the_formula_says() -> None:
    """The formula of the module's head in Python's own integers, from the same keystream."""
    check, x = check_of(1 << 32, 20, length=5), np.array([3, -1, 70000, 0, 12], dtype=np.int64)
    size = check.size
    seed = derive(KEY, "sum-check", "rows", "sum 1")
    raw = Stream(seed).bytes(4 * (5 + size - 1))
    rows = [int.from_bytes(raw[i : i + 4], "little") for i in range(0, len(raw), 4)]
    raw = Stream(derive(KEY, "sum-check", "pad", "sum 1", "client-2")).bytes(4 * size)
    pad = [int.from_bytes(raw[i : i + 4], "little") for i in range(0, len(raw), 4)]
    expected = [
        (sum(rows[w + j] * int(x[j]) for j in range(5)) + pad[w]) % 2**32 for w in range(size)
    ]
    assert check.of(x, "client-2").tolist() == expected


def test_the_number_of_words_makes_a_change_pass_with_at_most_two_to_the_minus_64() -> None:
    for modulus, bits in RINGS:
        k = modulus.bit_length() - 1
        words = check_words(modulus, bits)
        assert words * (k - bits + 1) >= 64 > (words - 1) * (k - bits + 1)
    for modulus, bits in ((3 << 20, 5), (1 << 16, 17), (1 << 16, 0), (1 << 65, 9)):
        with pytest.raises(OutOfRange):
            check_words(modulus, bits)


def test_a_small_check_is_guessed_as_often_as_the_bound_says() -> None:
    """A change divisible by 2^(b-1) passes a word with the bound's probability, no more often."""
    bits, change, tries, found = 15, np.array([0, 1 << 14, 0], dtype=np.int64), 4000, 0
    for number in range(tries):  # of the first word alone: 2^-(16 - 15 + 1) = 1/4
        check = check_of(1 << 16, bits, length=3, label=f"sum {number}")
        none = np.zeros(3, dtype=np.int64)
        found += int(check.of(none, "a")[0] == check.of(change, "a")[0])
    assert abs(found / tries - 0.25) < 0.02  # the labels are fixed, and so is what is found


@given(st.lists(st.integers(-(2**18), 2**18), min_size=1, max_size=30), st.integers(1, 4))
def test_sums_of_any_vectors_verify(values: list[int], parties: int) -> None:
    x = np.array(values, dtype=np.int64)
    check = check_of(1 << 32, 22, length=len(values))
    names = [f"p{i}" for i in range(parties)]
    words = sum(check.of(x * (i % 3), name).astype(np.int64) for i, name in enumerate(names))
    total = sum(x * (i % 3) for i in range(parties))
    check.verify(total, (words % 2**32).astype("<u4"), names)


def test_what_is_no_vector_of_its_length_is_refused() -> None:
    check = check_of(1 << 32, 20)
    for wrong in (np.zeros(6, np.int64), np.zeros(7, np.int32), np.zeros((7, 1), np.int64)):
        with pytest.raises(OutOfRange):
            check.of(wrong, "client-1")
    for words in (np.zeros(check.size + 1, "<u4"), np.zeros(check.size, "<u8")):
        with pytest.raises(InvalidSum):
            check.verify(np.zeros(7, np.int64), words, NAMES)


def test_it_is_mute() -> None:
    assert "sum 1" not in repr(check_of(1 << 32, 20))
