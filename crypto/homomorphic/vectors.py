"""Vectors whose cosines are compared: shortened if very long, of length 1, laid into polynomials.

Sketches. Count-sketch (Charikar, Chen and Farach-Colton, ICALP 2002; as a hash kernel: Weinberger
et al., ICML 2009): a public seed sends each position to one of `width` places and gives it a sign,
and what meets in a place is added. Inner products are kept in expectation over the seed; between
unit vectors without dominating values the standard deviation is sqrt((1 + cos^2) / width): 0.004 to
0.006 at the default width. A sketch hides nothing: it is made at the client, from a seed that all
clients share, and then encrypted like any other vector.

Layout. Up to N/2 values u_0, u_1, … of a unit vector become the polynomial mod X^N + 1

    sqrt(2) u_0 + u_1 (X - X^(N-1)) + u_2 (X^2 - X^(N-2)) + …

Since X^-k = -X^(N-k) it is real at every root of X^N + 1, and the constant coefficient of the
product of two of them is 2 <u, v>.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from crypto.errors import OutOfRange
from crypto.samplers import Stream, derive

__all__ = ["SKETCH_ABOVE", "WIDTH", "polynomials", "sketch", "unit"]

SKETCH_ABOVE: Final = 100_000
"""Vectors of more values than this are sketched; up to it the whole vector is compared."""

WIDTH: Final = 1 << 16
"""Places of a sketch: 32 ciphertexts of `crypto.homomorphic.similarity`."""

_SIGN: Final = 63
_MAX_WIDTH: Final = 1 << 24


def sketch(
    vector: NDArray[np.floating[Any]], seed: bytes, width: int = WIDTH
) -> NDArray[np.float64]:
    """Return the count-sketch of a vector of shape (d,): shape (width,), in the vector's unit.

    Args:
        vector: finite real numbers.
        seed: 32 public bytes, the same at all clients whose sketches are compared.
        width: a power of two.

    Raises:
        OutOfRange: a width that is no power of two up to 2^24, or no such vector.
    """
    exact = _finite(vector)
    if not 2 <= width <= _MAX_WIDTH or width & (width - 1):
        raise OutOfRange("A sketch's width is a power of two up to 2^24.")
    words = Stream(derive(seed, "count-sketch")).words(exact.size)
    signed = np.where(words >> np.uint64(_SIGN), exact, -exact)
    places = (words & np.uint64(width - 1)).astype(np.intp)
    return np.bincount(places, weights=signed, minlength=width).astype(np.float64)


def unit(vector: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
    """Return a vector of shape (d,) at length 1, in double precision.

    Raises OutOfRange for a vector that is empty, zero, not finite or of another shape.
    """
    exact = _finite(vector)
    largest = float(np.abs(exact).max())
    if not largest:
        raise OutOfRange("A vector of zeros has no direction; leave its owner out of the pairs.")
    scaled = exact / largest  # squares neither overflow nor vanish
    return np.asarray(scaled / np.sqrt(scaled @ scaled))


def polynomials(
    values: NDArray[np.float64], degree: int, scale_bits: int
) -> NDArray[np.signedinteger[Any]]:
    """Return values of shape (d,) times 2^scale_bits, rounded and laid out: shape (rows, degree).

    A row takes degree/2 values; the last is padded with zeros.
    """
    half = degree // 2
    rows = np.zeros((-(-values.size // half), half))
    rows.reshape(-1)[: values.size] = values
    rows[:, 0] *= np.sqrt(2.0)  # the constant stands once, every other value twice
    whole = np.rint(rows * 2.0**scale_bits).astype(np.int64)
    laid = np.zeros((len(rows), degree), dtype=np.int64)
    laid[:, :half] = whole
    laid[:, half + 1 :] = -whole[:, :0:-1]
    return laid


def _finite(vector: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
    exact = np.asarray(vector, dtype=np.float64)
    if exact.ndim != 1 or not exact.size or not np.isfinite(exact).all():
        raise OutOfRange("A vector of finite numbers of shape (d,) is expected.")
    return exact
