"""Our rows: masks alone, and integers with the masks inside a ciphertext.

Residues are made, masked, encrypted and summed by the same code as in a run; what a run adds to
it (envelopes, ledgers, set-up) is measured by `bench_he.py` and by ``--train``. Pair secrets are
agreed on before the round, once per so many rounds, and their shares go out beside it: neither
grows with the number of parameters, so neither is in these rows. One key derivation per neighbour
is.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes
from numpy.typing import NDArray

from benchmarks._rows import BOUND, Mean, Vector
from crypto.homomorphic.he import Accumulator, Scheme, scheme
from crypto.masks import MaskSum, container, masked
from crypto.quantiser import Grid
from crypto.samplers import Stream, derive, entropy
from protocols.disclosures.sum.layout import Ring, Words


class _Integers:
    """What masks and encryption have in common: the grid, the ring, everybody's mask keys."""

    def __init__(
        self, parameters: int, clients: int, bits: int, encryption: Scheme | None = None
    ) -> None:
        self._clients = clients
        self._grid = Grid(BOUND, bits)
        self._ring = Ring.of(parameters, bits, clients, scheme=encryption)
        self.tolerance = self._grid.step
        self._pairs = {(i, j): entropy(32) for j in range(clients) for i in range(j)}
        self._selves = [entropy(32) for _ in range(clients)]

    def prepare(self) -> None:
        """Nothing is prepared."""

    def _masked(self, index: int, vector: Vector) -> Words:
        """Quantise, pack, mask."""
        plus, minus = self._keys(index)
        return masked(self._residues(vector), self._ring.modulus, plus, minus, spare=False)

    def _residues(self, vector: Vector) -> Words:
        stream = Stream(entropy(32))
        if self._ring.packing is None:
            return self._grid.lifted(vector, stream, container(self._ring.modulus))
        return self._ring.residues(self._grid.lifted(vector, stream).view(np.int64))

    def _keys(self, index: int) -> tuple[list[bytes], list[bytes]]:
        """Return the keys whose masks this client adds, its own among them, and subtracts."""
        plus = [derive(self._selves[index], "benchmark", "self")]
        minus: list[bytes] = []
        for other in range(self._clients):
            if other != index:
                pair = min(index, other), max(index, other)
                part = plus if index < other else minus
                part.append(derive(self._pairs[pair], "benchmark", "pair"))
        return plus, minus

    def _mean(self, total: Words) -> Mean:
        """Take every client's self-mask off, unpack, restore."""
        keys = [derive(secret, "benchmark", "self") for secret in self._selves]
        totals = self._ring.integers(masked(total, self._ring.modulus, (), keys))
        return self._grid.restore(totals - self._clients * self._grid.levels) / self._clients


class Masks(_Integers):
    """Pairwise and self-masks, mod 2^32 for 16-bit values of ten clients, 2^16 for 12-bit ones."""

    def __init__(self, parameters: int, clients: int, bits: int) -> None:
        super().__init__(parameters, clients, bits)
        self._words = container(self._ring.modulus)
        self._sum: MaskSum | None = None

    def client(self, index: int, vector: Vector) -> memoryview:
        """Quantise and mask."""
        return memoryview(self._masked(index, vector)).cast("B")

    def server(self, upload: bytes | memoryview) -> None:
        """Add."""
        if self._sum is None:
            self._sum = MaskSum(self._ring.modulus, self._ring.size)
        self._sum.add(np.frombuffer(upload, dtype=self._words))

    def close(self) -> bytes:
        """Return the masked total."""
        if self._sum is None:
            raise ArithmeticError("Nothing was uploaded.")
        total, self._sum = self._sum.values.tobytes(), None
        return total

    def open(self, total: bytes) -> Mean:
        """Take every client's self-mask off, restore."""
        return self._mean(np.frombuffer(total, dtype=self._words))


class Encrypted(_Integers):
    """Packed integers, masked mod t, encrypted under the authority's public key, opened blind.

    Args:
        parameters, clients: of a round.
        bits: of a value.
        name: of the scheme (`crypto.homomorphic.he.NAMES`).
        online: whether encryptions of zero are prepared before the client has its vector.
    """

    def __init__(
        self, parameters: int, clients: int, bits: int, name: str, *, online: bool = False
    ) -> None:
        self._scheme = scheme(name)
        super().__init__(parameters, clients, bits, self._scheme)
        self._public, self._secret = self._scheme.keygen()
        self._online = online
        self._zeros: bytes | None = None
        self._sum: Accumulator | None = None
        self._seed = b""

    def prepare(self) -> None:
        """Prepare as many encryptions of zero as one upload takes."""
        if self._online:
            ciphertexts = self._ring.size // self._scheme.degree
            self._zeros = self._scheme.zeros(self._public, ciphertexts)

    def client(self, index: int, vector: Vector) -> bytes:
        """Quantise, pack, mask, encrypt."""
        residues = self._masked(index, vector).astype(np.uint64, copy=False)
        zeros, self._zeros = self._zeros, None
        return self._scheme.encrypt(self._public, residues, zeros)

    def server(self, upload: bytes) -> None:
        """Parse and add."""
        if self._sum is None:
            self._sum = self._scheme.accumulator(self._public)
        self._sum.add(upload)

    def close(self) -> bytes:
        """Add the blind (O1) and return the total."""
        if self._sum is None:
            raise ArithmeticError("Nothing was uploaded.")
        total, self._sum = self._sum, None
        self._seed = entropy(32)
        total.add_plain(self._scheme.blind(self._seed, total.coefficients))
        return total.to_bytes()

    def open(self, total: bytes) -> Mean:
        """Decrypt, take blind and self-masks off, unpack, restore."""
        opened = self._scheme.decrypt(self._secret, total)
        return self._mean(
            self._scheme.subtract(opened, self._scheme.blind(self._seed, opened.size))
        )


class Bare:
    """The least that 16-bit values under `clients` masks in 32-bit words can cost in numpy.

    Rounding bits and masks from AES-256-CTR, additions in place, blocks that stay in the cache: no
    checks, no keys derived, no wire form. The measure for the row ``masks``.
    """

    BLOCK: ClassVar = 1 << 15  # words

    def __init__(self, clients: int) -> None:
        self._keys = [entropy(32) for _ in range(clients)]
        self._zeros, self._buffer = bytes(4 * self.BLOCK), bytearray(4 * self.BLOCK)
        self._grid = Grid(BOUND, 16)

    def client(self, vector: Vector) -> NDArray[np.uint32]:
        """Return the masked vector."""
        streams = [_aes(key) for key in self._keys]
        rounding, out = _aes(entropy(32)), np.empty(vector.size, dtype=np.uint32)
        words = np.frombuffer(self._buffer, dtype=np.uint32)
        scaled, draws = np.empty(self.BLOCK), np.empty(self.BLOCK)
        scale, middle = 1 / self._grid.step, self._grid.levels + 0.5
        for start in range(0, vector.size, self.BLOCK):
            part = out[start : start + self.BLOCK]
            n, zeros = part.size, memoryview(self._zeros)[: 4 * part.size]
            rounding.update_into(zeros, self._buffer)
            np.multiply(words.view(np.int32)[:n], 2.0**-32, out=draws[:n])
            np.multiply(vector[start : start + n], scale, out=scaled[:n], dtype=np.float64)
            scaled[:n] += draws[:n]
            scaled[:n] += middle
            part.view(np.int32)[:] = scaled[:n]
            for stream in streams:
                stream.update_into(zeros, self._buffer)
                part += words[:n]
        return out

    def unmasked(self, words: NDArray[np.uint32]) -> Mean:
        """Take all masks off and restore, for a test that the vector is in there."""
        levels = words.copy()
        for key in self._keys:
            keystream = _aes(key).update(bytes(levels.nbytes))
            levels -= np.frombuffer(keystream, dtype=np.uint32)
        return self._grid.restore(levels.astype(np.int64) - self._grid.levels)


def _aes(key: bytes) -> CipherContext:
    return Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()
