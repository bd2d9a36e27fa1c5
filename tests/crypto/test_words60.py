"""Two words of 60 bits in 15 bytes: the layout, no second encoding, no silent loss of bits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from crypto.errors import OutOfRange
from crypto.homomorphic.seal import PAIR_BYTES, WORD_BITS, pack60, unpack60

TOP = 2**WORD_BITS - 1
WORD = st.sampled_from([0, 1, 15, 16, 2**56 - 1, 2**56, TOP - 1, TOP]) | st.integers(0, TOP)
PAIRS = st.lists(st.tuples(WORD, WORD), max_size=20)


def array(pairs: list[tuple[int, int]]) -> np.ndarray:
    return np.array(pairs, dtype=np.uint64).reshape(-1)


def by_python(words: np.ndarray) -> bytes:
    number = sum(int(word) << WORD_BITS * place for place, word in enumerate(words))
    return number.to_bytes(words.size // 2 * PAIR_BYTES, "little")


@given(PAIRS)
def test_words_are_digits_to_the_base_2_to_60(pairs: list[tuple[int, int]]) -> None:
    words = array(pairs)
    packed = pack60(words)
    assert packed == by_python(words)
    found = unpack60(packed)
    assert found.dtype == np.uint64
    assert np.array_equal(found, words)


@given(st.integers(0, 8).flatmap(lambda n: st.binary(min_size=15 * n, max_size=15 * n)))
@example(b"\xff" * 30)
@example(bytes(15))
def test_no_words_have_a_second_encoding_and_no_bytes_have_none(packed: bytes) -> None:
    words = unpack60(packed)
    assert words.size * PAIR_BYTES == 2 * len(packed)
    assert not words.size or int(words.max()) <= TOP
    assert pack60(words) == packed


@pytest.mark.parametrize(
    ("first", "second", "packed"),
    [
        (TOP, 0, "ffffffffffffff 0f 00000000000000"),
        (0, TOP, "00000000000000 f0 ffffffffffffff"),
        (0x0123456789ABCDE, 0, "debc9a78563412 00 00000000000000"),
        (0xF << 56, 1, "00000000000000 1f 00000000000000"),
        (0, 0xFEDCBA987654321, "00000000000000 10 325476 98badcfe"),
    ],
)
def test_known_pairs(first: int, second: int, packed: str) -> None:
    assert pack60(np.array([first, second], dtype=np.uint64)) == bytes.fromhex(packed)


def test_many_words_of_any_shape_and_stride_are_packed_in_c_order() -> None:
    words = np.random.default_rng(1).integers(0, TOP + 1, (6, 8192), dtype=np.uint64)
    flat = by_python(words.reshape(-1))
    assert pack60(words) == flat
    assert pack60(np.asfortranarray(words)) == flat
    assert pack60(words[:, ::2]) == by_python(words[:, ::2].reshape(-1))
    assert np.array_equal(unpack60(memoryview(flat)[15:45]), words[0, 2:6])


def test_the_words_handed_in_stay_as_they_are() -> None:
    words = np.full(4, TOP, dtype=np.uint64)
    words.setflags(write=False)
    assert np.array_equal(unpack60(pack60(words)), words)


@pytest.mark.parametrize("place", range(4))
@pytest.mark.parametrize("wide", [TOP + 1, 2**63, 2**64 - 1])
def test_a_word_that_does_not_fit_is_refused(place: int, wide: int) -> None:
    words = np.full(4, TOP, dtype=np.uint64)
    assert len(pack60(words)) == 30  # the control
    words[place] = wide
    with pytest.raises(OutOfRange, match="60 bits"):
        pack60(words)


@pytest.mark.parametrize(
    "words", [np.zeros(3, np.uint64), np.zeros(2, np.int64), np.zeros(2), np.zeros(2, np.uint32)]
)
def test_odd_numbers_and_other_words_are_refused(words: np.ndarray) -> None:
    with pytest.raises(OutOfRange, match="even number"):
        pack60(words)


@pytest.mark.parametrize("length", [1, 7, 8, 14, 16, 29, 31])
def test_torn_pairs_are_refused(length: int) -> None:
    with pytest.raises(OutOfRange, match="15 bytes"):
        unpack60(bytes(length))
