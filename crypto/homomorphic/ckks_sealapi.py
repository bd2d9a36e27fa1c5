"""CKKS (Cheon et al., eprint 2016/421) on the integers of BFV: `ckks-sealapi`, rounded to the grid.

N = 4096, primes of 54 and 55 bits (109 bits, exactly the 128-bit limit of the HE standard), of
which ciphertexts keep the first; t = 2^26; scale 2^20. CKKS adds scaled numbers approximately. Here
the numbers are integers, one per coefficient (not per slot: a slot costs twice the bytes, a Fourier
transform in floats and 5.5 bits of noise), so that rounding gives the exact sum. No float occurs.

The authority rounds and returns integers mod t, nothing finer (O2): the part below the grid is the
noise, and sum plus noise plus ciphertext is a linear equation for the secret key (Li and
Micciancio, eprint 2020/1533). Where that part exceeds a quarter step the opening fails.

Exactness. SEAL encrypts under both primes and divides by the second; what remains is the rounding
r0 + r1*s with r in ±1/2 and s ternary, at most 1/2 + |s|/2 <= 2048.5 per upload. So the noise of
128 uploads stays below a quarter step, 2^18, for every key but those with 4095 or more of 4096
coefficients not zero ((2/3)^4095), and numbers: (128 uploads + up to 127 added plaintexts) times
2^25 times the scale is below q/2 = 2^53.

Sums are over the integers, not mod t: the authority sees how often a coefficient passed t. That is
harmless only where each upload is uniform mod t by itself, that is, carries self-masks and pair
masks inside; a policy must ask for `mask` before it asks for `ckks`.

Keys and wire form are those of `crypto.homomorphic.bfv_sealapi`: c0 and c1 in coefficients, words
below q.
"""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from crypto.errors import InvalidCiphertext
from crypto.homomorphic.bfv_parts import SecretKey
from crypto.homomorphic.bfv_sealapi import DEGREE, Opener, Parameters, SealRing
from crypto.homomorphic.seal_files import Scratch, seal

__all__ = ["CKKS26", "SealCkks"]

CKKS26: Final = Parameters(
    "ckks-sealapi", (18014398509309953, 36028797018652673), 26, "TC128", scale_bits=20
)


class SealCkks(SealRing):
    """CKKS with coefficient packing; `crypto.homomorphic.he.Scheme` says what each verb means."""

    def __init__(self) -> None:
        """Build the SEAL context; raises SelfTestFailed if SEAL chooses other parameters."""
        super().__init__(CKKS26, seal.EncryptionParameters(seal.SCHEME_TYPE.CKKS))
        self._evaluator = seal.Evaluator(self._context)
        self._scale_bits = CKKS26.scale_bits

    def lifted(self, rows: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """Return scale times the representative nearest to zero, mod q; shape kept."""
        signed = rows.astype(np.int64)
        signed -= (signed >= self.plain_modulus // 2) * np.int64(self.plain_modulus)
        signed <<= self._scale_bits
        signed += (signed < 0) * np.int64(self.prime)
        return signed.view(np.uint64)

    def decrypt(self, key: SecretKey, blob: bytes) -> NDArray[np.uint64]:
        """Return every coefficient mod t of every ciphertext, shape (ciphertexts * degree,).

        Raises InvalidKey, or InvalidCiphertext, also where any number lies more than a quarter
        step beside the grid (O2). That refusal answers one question about the key: whoever opens
        must end the run on it.
        """
        opener = key.use(self.name)
        rows = self.parse(blob)
        try:
            phases = self._phases(opener, rows)
        except Exception:
            raise InvalidCiphertext from None
        return self._on_grid(phases).reshape(-1)

    def _phases(self, opener: Opener, rows: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Return c0 + c1 s mod q, centred, shape (ciphertexts, N). Secret: it holds the noise."""
        ciphertext, plaintext = seal.Ciphertext(self._context), seal.Plaintext()
        heads = self._heads
        out = np.empty((len(rows), DEGREE), dtype=np.int64)
        with Scratch() as scratch:
            for row, phase in zip(rows, out, strict=True):
                ciphertext.load(self._context, scratch.put(heads.ciphertext, row))
                self._evaluator.transform_to_ntt_inplace(ciphertext)
                opener.decryptor.decrypt(ciphertext, plaintext)
                found = scratch.dump(plaintext)[heads.plaintext_offset :]
                # SEAL has no way back for plaintexts, only for ciphertexts: two copies make one.
                ciphertext.load(self._context, scratch.put(heads.transformed, 2 * found))
                self._evaluator.transform_from_ntt_inplace(ciphertext)
                words = heads.cut(scratch.dump(ciphertext), heads.ciphertext)
                phase[:] = np.frombuffer(words, dtype="<u8", count=DEGREE)
        out -= (out > self.prime // 2) * np.int64(self.prime)
        return out

    def _on_grid(self, phases: NDArray[np.int64]) -> NDArray[np.uint64]:
        """Round to the integer grid and reduce mod t; raises InvalidCiphertext beside it (O2)."""
        half = np.int64(1 << (self._scale_bits - 1))
        integers = (phases + half) >> self._scale_bits
        beside = np.abs(phases - (integers << self._scale_bits))
        if (beside > half // 2).any():
            raise InvalidCiphertext
        return (integers & np.int64(self.plain_modulus - 1)).astype(np.uint64)

    def _settle(self, ciphertext: Any) -> None:
        self._evaluator.transform_from_ntt_inplace(ciphertext)
