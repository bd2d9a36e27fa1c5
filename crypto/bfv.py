"""Exact sums under encryption: one face, two roads (`bfv-sealapi`, `bfv-documented`).

Public-key BFV on integers mod t (Fan and Vercauteren, eprint 2012/144). Clients hold the public
key, the key authority alone the secret one, the aggregator adds. Before an opening the aggregator
adds a blind that is uniform mod t, so the authority decrypts noise (O1):

    bfv = scheme()
    public, secret = bfv.keygen()                                   # at the key authority
    upload = bfv.encrypt(public, packed)                            # at each client
    total = bfv.accumulator(public); total.add(upload)              # at the aggregator
    total.add_plain(bfv.blind(seed, total.coefficients))
    opened = bfv.decrypt(secret, total.to_bytes())                  # at the key authority
    plain = bfv.subtract(opened, bfv.blind(seed, opened.size))      # at the receiver

Which road was taken is part of the parameters that both sides must agree on: publish `name`.
"""

from functools import cache
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from crypto.bfv_parts import Accumulator, PublicKey, SecretKey
from crypto.errors import InvalidKey, SelfTestFailed
from crypto.samplers import Stream, entropy

__all__ = ["NAMES", "Accumulator", "Bfv", "PublicKey", "SecretKey", "scheme"]

NAMES = ("bfv-sealapi", "bfv-documented")
"""The two roads, the preferred one first."""


class Bfv(Protocol):
    """Exact addition of vectors mod t under a public key."""

    @property
    def name(self) -> str:
        """Which road this is, one of `NAMES`."""

    @property
    def degree(self) -> int:
        """Coefficients per ciphertext."""

    @property
    def plain_modulus(self) -> int:
        """t: coefficients are added mod t."""

    @property
    def plain_bits(self) -> int:
        """floor(log2 t): every number of so many bits fits into a coefficient."""

    @property
    def ciphertext_bytes(self) -> int:
        """Wire length of one ciphertext, always the same."""

    @property
    def public_key_bytes(self) -> int:
        """Wire length of a public key, always the same."""

    @property
    def max_terms(self) -> int:
        """How many ciphertexts may be summed with the sum still exact."""

    def keygen(self) -> tuple[PublicKey, SecretKey]:
        """Make a key pair from the operating system's entropy."""

    def load_public(self, raw: bytes) -> PublicKey:
        """Return the checked key of these bytes; raises SecretKeyRefused or InvalidKey."""

    def encrypt(self, key: PublicKey, coefficients: NDArray[np.uint64]) -> bytes:
        """Encrypt shape (n,) numbers mod t, padded with zeros to whole ciphertexts.

        Raises OutOfRange for a value of t or more, InvalidKey for a key of the other road.
        """

    def accumulator(self, key: PublicKey) -> Accumulator:
        """Start an empty sum of ciphertexts under `key`."""

    def decrypt(self, key: SecretKey, blob: bytes) -> NDArray[np.uint64]:
        """Return all coefficients, shape (ciphertexts * degree,).

        Raises InvalidCiphertext, or InvalidKey for a foreign or destroyed key.
        """

    def blind(self, seed: bytes, count: int) -> NDArray[np.uint64]:
        """Return `count` values exactly uniform mod t, determined by a secret 32-byte seed."""

    def subtract(self, values: NDArray[np.uint64], blind: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """Return values - blind mod t; raises OutOfRange for unequal shapes."""


def scheme(name: str | None = None) -> Bfv:
    """Return the scheme called `name`, or the first one that works on this installation.

    Each road is probed once per process with a full round trip on random data, and the choice then
    stays. A named road that fails raises SelfTestFailed: what was asked for is never replaced. An
    unknown name raises InvalidKey.
    """
    if name is None:
        return _preferred()
    if name not in NAMES:
        raise InvalidKey(f"There is no scheme of this name; the names are {', '.join(NAMES)}.")
    return _probed(name)


@cache
def _preferred() -> Bfv:
    """Return the first road that works; cached, so that a run never changes roads half-way."""
    try:
        return _probed(NAMES[0])
    except SelfTestFailed:
        return _probed(NAMES[1])


@cache
def _probed(name: str) -> Bfv:
    try:
        bfv = _build(name)
        _probe(bfv)
    except ImportError:
        raise SelfTestFailed(f"A library that {name} needs is not installed.") from None
    except SelfTestFailed:
        raise
    except Exception:  # whatever a binding raises here, the road does not work
        raise SelfTestFailed(f"{name} did not survive a round trip.") from None
    return bfv


def _build(name: str) -> Bfv:
    """Import a road only when it is asked for: the facade itself must stay cheap to import."""
    if name == NAMES[0]:
        from crypto.bfv_sealapi import SealBfv

        return SealBfv()
    from crypto.bfv_documented import DocumentedBfv

    return DocumentedBfv()


def _probe(bfv: Bfv) -> None:
    """Encrypt, add, blind, decrypt, unblind on random data; raises SelfTestFailed."""
    stream = Stream(entropy(32))
    public, secret = bfv.keygen()
    public = bfv.load_public(public.raw)
    first, second = (stream.uniform(bfv.plain_modulus, bfv.degree) for _ in range(2))
    total = bfv.accumulator(public)
    total.add(bfv.encrypt(public, first))
    total.add(bfv.encrypt(public, second))
    seed = stream.bytes(32)
    total.add_plain(bfv.blind(seed, total.coefficients))
    opened = bfv.decrypt(secret, total.to_bytes())
    found = bfv.subtract(opened, bfv.blind(seed, opened.size))
    secret.destroy()
    if not np.array_equal(found, (first + second) % np.uint64(bfv.plain_modulus)):
        raise SelfTestFailed(f"{bfv.name} did not add exactly.")
