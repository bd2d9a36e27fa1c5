"""Rows that are not ours: the peers' settings of CKKS, and a baseline with one shared key.

The peers' rows call TenSEAL as their code does, without their frameworks around it.

- NVFlare 2.9 (`nvflare/lighter/impl/he.py`, `app_opt/he/model_encryptor.py`): CKKS, degree 8192,
  primes [60, 40, 40], scale 2^40, symmetric, one numpy vector per layer. One secret key is
  provisioned to every client.
- FedGraph (`fedgraph/server_class.py`, `trainer_class.py`): CKKS, degree 8192, primes
  [60, 40, 40, 60], scale 2^40, public key, ``tensor.flatten().tolist()`` per layer; the server adds
  and multiplies by 1/n. Its normalisation of each layer is left out.

The whole model is one layer here: several small ones would cost the peers more padding.
"""

from __future__ import annotations

import struct
from typing import Any, ClassVar

import numpy as np
import tenseal
import tenseal.sealapi as seal
from numpy.typing import NDArray

from benchmarks._rows import BOUND, Mean, Vector
from crypto.homomorphic.seal import Heads, Scratch
from crypto.quantiser import Grid, Packing
from crypto.samplers import Stream, entropy

_LENGTH = struct.Struct("<I")


class Ckks:
    """Float vectors through TenSEAL's CKKS, as a peer does it.

    Args:
        primes: bit sizes of the coefficient modulus.
        clients: how many are averaged.
        symmetric: encrypt with the secret key.
        fedgraph: give TenSEAL lists instead of arrays, and multiply by 1/n under encryption.
    """

    tolerance = 1e-5

    def __init__(
        self, primes: list[int], clients: int, *, symmetric: bool = True, fedgraph: bool = False
    ) -> None:
        kind = "SYMMETRIC" if symmetric else "ASYMMETRIC"
        self._context = tenseal.context(
            tenseal.SCHEME_TYPE.CKKS,
            poly_modulus_degree=8192,
            coeff_mod_bit_sizes=primes,
            encryption_type=getattr(tenseal.ENCRYPTION_TYPE, kind),
        )
        self._context.global_scale = 2.0**40
        self._clients, self._fedgraph = clients, fedgraph
        self._sum: Any = None

    def prepare(self) -> None:
        """Nothing is prepared."""

    def client(self, index: int, vector: Vector) -> bytes:
        """Encrypt and serialise."""
        plain = vector.tolist() if self._fedgraph else vector
        return bytes(tenseal.ckks_vector(self._context, plain).serialize())

    def server(self, upload: bytes) -> None:
        """Parse and add."""
        part = tenseal.ckks_vector_from(self._context, upload)
        if self._sum is None:
            self._sum = part
        else:
            self._sum += part

    def close(self) -> bytes:
        """Serialise the total, or the mean."""
        total, self._sum = self._sum, None
        if self._fedgraph:
            total *= 1.0 / self._clients
        return bytes(total.serialize())

    def open(self, total: bytes) -> Mean:
        """Parse, decrypt, divide where the server did not."""
        found = np.array(tenseal.ckks_vector_from(self._context, total).decrypt())
        return found if self._fedgraph else found / self._clients


class SharedKey:
    """Symmetric BFV with seed-compressed ciphertexts: 12-bit values, three per coefficient.

    The fastest we know in this family, and a benchmark row only: every client holds the one secret
    key and could open every other client's upload. Degree 4096, one 60-bit prime, t = 2^48. In an
    upload SEAL writes the seed of the second polynomial instead of the polynomial.
    """

    DEGREE: ClassVar = 4096
    PLAIN_BITS: ClassVar = 48
    VALUE_BITS: ClassVar = 12

    def __init__(self, parameters: int, clients: int) -> None:
        wanted = seal.EncryptionParameters(seal.SCHEME_TYPE.BFV)
        wanted.set_poly_modulus_degree(self.DEGREE)
        wanted.set_coeff_modulus(seal.CoeffModulus.Create(self.DEGREE, [60]))
        wanted.set_plain_modulus(1 << self.PLAIN_BITS)
        self._context = seal.SEALContext(wanted, True, seal.SEC_LEVEL_TYPE.TC192)
        self._heads = Heads.learn(self._context, self.DEGREE, 1)
        secret = seal.KeyGenerator(self._context).secret_key()
        self._encryptor = seal.Encryptor(self._context, secret)
        self._decryptor = seal.Decryptor(self._context, secret)
        self._evaluator = seal.Evaluator(self._context)
        self._parameters, self._clients = parameters, clients
        self._grid = Grid(BOUND, self.VALUE_BITS)
        self._packing = Packing(self.VALUE_BITS, clients, self.PLAIN_BITS)
        self._sum: list[Any] = []
        self.tolerance = self._grid.step

    def prepare(self) -> None:
        """Nothing is prepared."""

    def client(self, index: int, vector: Vector) -> bytes:
        """Quantise, pack, encrypt with the secret key; each ciphertext after its length."""
        lifted = self._grid.lifted(vector, Stream(entropy(32)), np.uint16)
        packed = self._packing.pack(lifted)
        rows = np.zeros((-(-packed.size // self.DEGREE), self.DEGREE), dtype="<u8")
        rows.reshape(-1)[: packed.size] = packed
        out: list[bytes] = []
        plain = seal.Plaintext()
        with Scratch() as scratch:
            for row in rows:
                plain.load(self._context, scratch.put(self._heads.plaintext, row))
                out.append(_saved(self._encryptor.encrypt_symmetric(plain), scratch))
        return b"".join(_LENGTH.pack(len(part)) + part for part in out)

    def server(self, upload: bytes) -> None:
        """Parse and add; parsing expands the seed."""
        parts = self._parse(upload)
        if not self._sum:
            self._sum = parts
            return
        for total, part in zip(self._sum, parts, strict=True):
            self._evaluator.add_inplace(total, part)

    def close(self) -> bytes:
        """Serialise the total; it has no seed any more."""
        with Scratch() as scratch:
            saved = [_saved(total, scratch) for total in self._sum]
        self._sum = []
        return b"".join(_LENGTH.pack(len(part)) + part for part in saved)

    def open(self, total: bytes) -> Mean:
        """Decrypt, unpack, restore."""
        found: list[NDArray[np.uint64]] = []
        plain, offset = seal.Plaintext(), self._heads.plaintext_offset
        with Scratch() as scratch:
            for part in self._parse(total):
                self._decryptor.decrypt(part, plain)
                row = np.zeros(self.DEGREE, dtype=np.uint64)
                words = np.frombuffer(scratch.dump(plain), dtype="<u8", offset=offset)
                row[: words.size] = words
                found.append(row)
        packed = np.concatenate(found)[: self._packing.coefficients(self._parameters)]
        totals = self._packing.unpack(packed, self._parameters)
        levels = totals - self._clients * self._grid.levels
        return self._grid.restore(levels) / self._clients

    def _parse(self, blob: bytes) -> list[Any]:
        parts, position = [], 0
        with Scratch() as scratch:
            while position < len(blob):
                (length,) = _LENGTH.unpack_from(blob, position)
                position += _LENGTH.size
                part = seal.Ciphertext(self._context)
                with open(scratch.path, "wb") as file:
                    file.write(blob[position : position + length])
                part.load(self._context, scratch.path)
                parts.append(part)
                position += length
        return parts


def _saved(thing: Any, scratch: Scratch) -> bytes:
    """Return what SEAL saves, compressed as it compresses."""
    thing.save(scratch.path)
    with open(scratch.path, "rb") as file:
        return file.read()
