"""Uploads that are compared and whose product needs no key, which SEAL refuses to form."""

from __future__ import annotations

from typing import Any

import numpy as np

from crypto.homomorphic.seal import Scratch, seal
from crypto.samplers import Stream, derive


def one_root(ring: Any, root: int) -> bytes:
    """Return an upload whose c1 is zero at all roots but one, and whose c0 is zero."""
    words = np.zeros(2 * ring.degree, dtype="<u8")
    words[ring.degree + root] = 5
    return _from_roots(ring, words)


def vanishing(ring: Any, public: Any, seed: bytes) -> bytes:
    """Return two uploads whose product takes the zero of `seed` off: for who knows the seed."""
    one = np.repeat(np.array([0, 1], dtype="<u8"), ring.degree)
    with Scratch() as scratch:
        blank = ring._blank(public, Stream(derive(seed, "cosine zero")), scratch)
        ring._evaluator.transform_from_ntt_inplace(blank)
        body = ring._heads.cut(scratch.dump(blank), ring._heads.product)
        rest = np.frombuffer(body, dtype="<u8")[ring.degree :]  # c1 and c2 of the zero
        points = ring._heads.cut(
            scratch.dump(ring._transformed(rest, scratch)), ring._heads.transformed
        )
    prime = np.uint64(ring.prime)
    other = (prime - np.frombuffer(points, dtype="<u8")) % prime
    return _from_roots(ring, one) + _from_roots(ring, other.astype("<u8"))


def _from_roots(ring: Any, words: Any) -> bytes:
    """Return an upload by the values of c0 and c1 at the roots, shape (2N,)."""
    heads = ring._heads
    with Scratch() as scratch:
        ciphertext = seal.Ciphertext(ring._context)
        ciphertext.load(ring._context, scratch.put(heads.transformed, words))
        ring._evaluator.transform_from_ntt_inplace(ciphertext)
        body = heads.cut(scratch.dump(ciphertext), heads.ciphertext)
    wire: bytes = ring.to_wire(np.frombuffer(body, dtype="<u8").astype(np.uint64))
    return wire
