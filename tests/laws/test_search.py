"""The search of captured bytes finds what is there, and nothing where there is nothing."""

from __future__ import annotations

import numpy as np
import pytest

from tests.laws.search import found, spellings

RANDOM = np.random.default_rng(7)
REALS = RANDOM.normal(size=300).astype(np.float32)
LEVELS = RANDOM.integers(1 << 8, 1 << 16, 300)


@pytest.mark.parametrize("values", [REALS, LEVELS], ids=["reals", "levels"])
def test_forty_bytes_in_a_row_are_found_in_every_spelling(values: np.ndarray) -> None:
    wire = RANDOM.bytes(9001)
    for spelling in spellings(values):
        assert found([spelling], wire + spelling[81:121] + wire) > 0
        assert found([spelling], wire) == 0


def test_the_length_of_a_ciphertext_is_no_level() -> None:
    """A 64-bit length beside random bytes met two of FedEgo's levels, widened, once in a while."""
    lengths = b"".join(
        RANDOM.bytes(5) + int(level).to_bytes(8, "little") + RANDOM.bytes(5) for level in LEVELS
    )
    assert found(spellings(LEVELS), lengths) == 0
    old = {int(level).to_bytes(8, "little") for level in LEVELS}
    assert all(one in lengths for one in old)  # control: windows of eight bytes are all there
