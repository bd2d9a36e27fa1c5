"""Exact sums under encryption: one face, several schemes, each called by its name.

Public-key BFV on integers mod t (Fan and Vercauteren, eprint 2012/144) at two packings, and CKKS
(Cheon et al., eprint 2016/421) on the same integers. Clients hold the public key, the key authority
alone the secret one, the aggregator adds. Before an opening the aggregator
adds a blind that is uniform mod t, so the authority decrypts noise (O1):

    he = scheme()
    public, secret = he.keygen()                                    # at the key authority
    upload = he.encrypt(public, packed)                             # at each client
    total = he.accumulator(public); total.add(upload)               # at the aggregator
    total.add_plain(he.blind(seed, total.coefficients))
    opened = he.decrypt(secret, total.to_bytes())                   # at the key authority
    plain = he.subtract(opened, he.blind(seed, opened.size))        # at the receiver

Encryptions of zero do not depend on the message. Made ahead with `zeros`, they leave `encrypt` one
addition. Each may be used **once**: two uploads on one zero give away the difference of their
plaintexts.

Which scheme was taken is part of the parameters that both sides must agree on: publish `name`.

All stand on the SEAL bindings inside the TenSEAL wheel, and hand SEAL only headers that are ours.
There is no other road where those fail: SEAL ends the process on some headers of others' making,
and TenSEAL's documented API reads such headers from its input (docs/adr/0020).
"""

from functools import cache
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from crypto.errors import InvalidKey, SelfTestFailed
from crypto.homomorphic.bfv_parts import Accumulator, PublicKey, SecretKey
from crypto.samplers import Stream, entropy

__all__ = ["NAMES", "Accumulator", "PublicKey", "Scheme", "SecretKey", "scheme"]

NAMES = ("bfv-sealapi", "bfv48-sealapi", "ckks-sealapi")
"""All schemes: BFV, BFV with denser packing, and CKKS for comparison."""


class Scheme(Protocol):
    """Exact addition of vectors mod t under a public key."""

    @property
    def name(self) -> str:
        """Which scheme this is, one of `NAMES`."""

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

    @property
    def offline(self) -> bool:
        """Whether `zeros` made ahead save time in `encrypt`."""

    def keygen(self) -> tuple[PublicKey, SecretKey]:
        """Make a key pair from the operating system's entropy."""

    def load_public(self, raw: bytes) -> PublicKey:
        """Return the checked key of these bytes; raises SecretKeyRefused or InvalidKey."""

    def lock_secret(self, key: SecretKey, under: bytes) -> bytes:
        """Return a secret key locked under a key store's 32-byte key, for its own holder only.

        Raises InvalidKey for a foreign or destroyed key.
        """

    def unlock_secret(self, locked: bytes, public: PublicKey, under: bytes) -> SecretKey:
        """Return the key that `lock_secret` locked; `public` is its other half.

        Raises InvalidSeal for another store key, other bytes or another public half.
        """

    def zeros(self, key: PublicKey, ciphertexts: int) -> bytes:
        """Return so many fresh encryptions of zero, in wire form, each to be used once.

        Raises OutOfRange below 1, InvalidKey for a key of another scheme.
        """

    def encrypt(
        self, key: PublicKey, coefficients: NDArray[np.uint64], zeros: bytes | None = None
    ) -> bytes:
        """Encrypt shape (n,) numbers mod t, padded with zeros to whole ciphertexts.

        `zeros` made ahead under this key, exactly one per ciphertext, leave only an addition; the
        caller must never use them again. Raises OutOfRange for a value of t or more or another
        number of zeros, InvalidCiphertext for zeros that are no ciphertexts, InvalidKey for a key
        of another scheme.
        """

    def accumulator(self, key: PublicKey) -> Accumulator:
        """Start an empty sum of ciphertexts under `key`."""

    def decrypt(self, key: SecretKey, blob: bytes) -> NDArray[np.uint64]:
        """Return all coefficients mod t, shape (ciphertexts * degree,).

        Raises InvalidCiphertext, or InvalidKey for a foreign or destroyed key.
        """

    def blind(self, seed: bytes, count: int) -> NDArray[np.uint64]:
        """Return `count` values exactly uniform mod t, determined by a secret 32-byte seed."""

    def subtract(self, values: NDArray[np.uint64], blind: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """Return values - blind mod t; raises OutOfRange for unequal shapes."""


def scheme(name: str = NAMES[0]) -> Scheme:
    """Return the scheme called `name`.

    Each scheme is probed once per process with a full round trip on random data. One that fails
    raises SelfTestFailed: what was asked for is never replaced. An unknown name raises InvalidKey.
    """
    if name not in NAMES:
        raise InvalidKey(f"There is no scheme of this name; the names are {', '.join(NAMES)}.")
    return _probed(name)


@cache
def _probed(name: str) -> Scheme:
    try:
        he = _build(name)
        _probe(he)
    except ImportError:
        raise SelfTestFailed(f"A library that {name} needs is not installed.") from None
    except SelfTestFailed:
        raise
    except Exception:  # whatever a binding raises here, the scheme does not work
        raise SelfTestFailed(f"{name} did not survive a round trip.") from None
    return he


def _build(name: str) -> Scheme:
    """Import a scheme only when it is asked for: the facade itself must stay cheap to import."""
    if name == "ckks-sealapi":
        from crypto.homomorphic.bfv import SealCkks

        return SealCkks()
    from crypto.homomorphic.bfv import BFV44, BFV48, SealBfv

    return SealBfv(BFV48 if name == BFV48.name else BFV44)


def _probe(he: Scheme) -> None:
    """Encrypt (ahead and at once), add, blind, decrypt, unblind on random data.

    Raises SelfTestFailed.
    """
    stream = Stream(entropy(32))
    public, secret = he.keygen()
    public = he.load_public(public.raw)
    first, second = (stream.uniform(he.plain_modulus, he.degree) for _ in range(2))
    total = he.accumulator(public)
    total.add(he.encrypt(public, first))
    total.add(he.encrypt(public, second, he.zeros(public, 1) if he.offline else None))
    seed = stream.bytes(32)
    total.add_plain(he.blind(seed, total.coefficients))
    opened = he.decrypt(secret, total.to_bytes())
    found = he.subtract(opened, he.blind(seed, opened.size))
    secret.destroy()
    if not np.array_equal(found, (first + second) % np.uint64(he.plain_modulus)):
        raise SelfTestFailed(f"{he.name} did not add exactly.")
