"""The row ``fed_mf_paillier``: item gradients as FedMF sums them, in an environment of its own."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from phe import EncodedNumber, EncryptedNumber, generate_paillier_keypair

from benchmarks._rows import Mean, Vector, serve

BITS = 1024
"""Of the modulus, as FedMF's code has it; about 80 bits of security, below what is asked today."""

PRECISION = 1e-5
"""Of a gradient, as FedMF's code has it."""


class FedMfPaillier:
    """One ciphertext a number under one key that all users share."""

    tolerance = PRECISION

    def __init__(self, parameters: int, clients: int) -> None:
        self._public, self._private = generate_paillier_keypair(n_length=BITS)
        self._clients, self._total = clients, list[int]()
        self._exponent = EncodedNumber.encode(self._public, 0.0, precision=PRECISION).exponent
        self._width = (2 * BITS + 7) // 8

    def prepare(self) -> None:
        """Nothing is prepared."""

    def client(self, index: int, vector: Vector) -> bytes:
        """Encrypt every number, zeros too, and serialise."""
        found = (self._public.encrypt(float(value), precision=PRECISION) for value in vector)
        return b"".join(each.ciphertext().to_bytes(self._width, "big") for each in found)

    def server(self, upload: bytes) -> None:
        """Parse and add."""
        told = self._read(upload)
        square = self._public.nsquare
        before = self._total or [1] * len(told)
        self._total = [a * b % square for a, b in zip(before, told, strict=True)]

    def close(self) -> bytes:
        """Serialise the total."""
        total, self._total = self._total, []
        return b"".join(each.to_bytes(self._width, "big") for each in total)

    def open(self, total: bytes) -> Mean:
        """Decrypt, as every user does."""
        found = (EncryptedNumber(self._public, c, self._exponent) for c in self._read(total))
        return np.array([self._private.decrypt(each) for each in found]) / self._clients

    def _read(self, data: bytes) -> list[int]:
        starts = range(0, len(data), self._width)
        return [int.from_bytes(data[start : start + self._width], "big") for start in starts]


if __name__ == "__main__":
    sys.exit(serve(FedMfPaillier, int(sys.argv[1]), int(sys.argv[2])))
