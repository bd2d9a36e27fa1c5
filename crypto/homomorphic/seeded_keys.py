"""Public keys whose second half is drawn from a seed that they name, so that nobody chose it.

A public key is (b, a) with b = -(a s + e). Whoever makes it could choose a = g/f with f and g
short: it looks like any other key, and f is a trapdoor that shows what chance was put into
ciphertexts (Hoffstein, Pipher and Silverman, ANTS 1998). Where the plaintext is hidden by nothing
but that chance, as in the parts of a masked product (`crypto.homomorphic.similarity`), the key
authority must not have one. So a key here is a 32-byte seed and b, and everybody draws a from the
seed, as in ML-KEM (FIPS 203): among all that a seed can give there is no a with a trapdoor to be
found.

The values of a at the roots are uniform mod q, in the order of SEAL's transform.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from crypto.errors import InvalidCiphertext, InvalidKey
from crypto.homomorphic.bfv_parts import PublicKey, SecretKey, refuse_secret
from crypto.homomorphic.bfv_sealapi import DEGREE, Parameters, SealRing
from crypto.homomorphic.seal_files import Scratch, seal
from crypto.homomorphic.seal_sums import reduce_once
from crypto.samplers import Stream, derive, entropy

__all__ = ["SEED_BYTES", "SeededRing", "binomial"]

SEED_BYTES: Final = 32
_BINOMIAL_BITS: Final = 21  # as SEAL's own noise: variance 21/2, standard deviation 3.24


@lru_cache(maxsize=8)
def _drawn(seed: bytes, name: str, prime: int) -> NDArray[np.uint64]:
    """Return a at the roots, shape (N,), to be read only."""
    values = Stream(derive(seed, "public key", name)).uniform(prime, DEGREE)
    values.flags.writeable = False
    return values


def binomial(chance: Stream, count: int, prime: int) -> NDArray[np.uint64]:
    """Return centred binomial noise mod q with standard deviation 3.24, shape (count,)."""
    words = chance.words(count)
    ones = np.uint64((1 << _BINOMIAL_BITS) - 1)
    plus = np.bitwise_count(words & ones)
    minus = np.bitwise_count(words >> np.uint64(_BINOMIAL_BITS) & ones)
    noise: NDArray[np.uint64] = plus + np.uint64(prime) - minus
    reduce_once(noise, prime)
    return noise


class SeededRing(SealRing):
    """A scheme with one prime and such keys; other verbs are those of `SealRing`."""

    def __init__(self, chosen: Parameters, parameters: Any) -> None:
        """Build the SEAL context; raises SelfTestFailed if SEAL chooses other parameters."""
        super().__init__(chosen, parameters)
        self._evaluator = seal.Evaluator(self._context)
        self.public_key_bytes = len(self._key_head) + SEED_BYTES + 8 * DEGREE

    def keygen(self) -> tuple[PublicKey, SecretKey]:
        """Make a key pair; seed and noise are the operating system's, the secret key is SEAL's."""
        secret, plaintext = seal.KeyGenerator(self._context).secret_key(), seal.Plaintext()
        seed, heads = entropy(SEED_BYTES), self._heads
        noise = binomial(Stream(entropy(32)), DEGREE, self.prime)
        with Scratch() as scratch:
            twice = self._transformed(np.concatenate([noise, noise]), scratch)
            noise = np.frombuffer(heads.cut(scratch.dump(twice), heads.transformed), dtype="<u8")
            parts = np.concatenate([noise[:DEGREE], _drawn(seed, self.name, self.prime)])
            opened = seal.Ciphertext(self._context)
            opened.load(self._context, scratch.put(heads.transformed, parts.astype("<u8")))
            seal.Decryptor(self._context, secret).decrypt(opened, plaintext)  # a s + e
            points = scratch.dump(plaintext)[heads.plaintext_offset :]
        total = np.frombuffer(points, dtype="<u8", count=DEGREE)
        first = np.uint64(self.prime) - total
        reduce_once(first, self.prime)
        public = self.load_public(self._key_head + seed + first.astype("<u8").tobytes())
        return public, self._secret(public, secret)

    def load_public(self, raw: bytes) -> PublicKey:
        """Return the checked key of these bytes; raises SecretKeyRefused or InvalidKey."""
        head = len(self._key_head)
        if not isinstance(raw, bytes) or raw[:head] != self._key_head:
            refuse_secret(raw)
            raise InvalidKey
        if len(raw) != self.public_key_bytes:
            raise InvalidKey
        body, key = self._points(raw), seal.PublicKey()
        if int(body.max()) >= self.prime:
            raise InvalidKey
        try:
            with Scratch() as scratch:
                key.load(self._context, scratch.put(self._heads.public, body))
            encryptor = seal.Encryptor(self._context, key)
        except Exception:  # the bindings raise several built-in kinds for one cause
            raise InvalidKey from None
        return PublicKey(self.name, raw, encryptor)

    def _points(self, raw: bytes) -> NDArray[np.uint64]:
        """Return b and a at the roots, shape (2N,), of a key's wire form of the right length."""
        start = len(self._key_head) + SEED_BYTES
        first = np.frombuffer(raw, dtype="<u8", offset=start)
        seed = raw[start - SEED_BYTES : start]
        return np.concatenate([first, _drawn(seed, self.name, self.prime)]).astype("<u8")

    def _transformed(self, words: NDArray[np.uint64], scratch: Scratch) -> Any:
        """Return two polynomials as a SEAL ciphertext in NTT form; raises InvalidCiphertext."""
        ciphertext = seal.Ciphertext(self._context)
        try:
            ciphertext.load(self._context, scratch.put(self._heads.ciphertext, words))
            self._evaluator.transform_to_ntt_inplace(ciphertext)
        except Exception:  # the bindings raise several built-in kinds for one cause
            raise InvalidCiphertext from None
        return ciphertext
