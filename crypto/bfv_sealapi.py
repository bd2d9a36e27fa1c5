"""BFV on the SEAL bindings inside the TenSEAL wheel: one 60-bit prime, t = 2^44, N = 4096.

Why not only the documented API: it insists on key-switching keys and therefore on a second prime,
and it goes through Python lists. One prime gives t = 2^44 (two 16-bit values with head-room per
coefficient), 192-bit security by the tables of the HE standard, and half the time.

Exactness. A fresh ciphertext's noise has a standard deviation of about s*sqrt(4N/3) = 236 for
SEAL's s = 3.2, and a coefficient decrypts exactly below q/2t = 2^15. `MAX_TERMS` = 128 summed
ciphertexts therefore leave 12 standard deviations.

Wire form of a ciphertext: c0 then c1, 4096 little-endian words each, every word below q. No SEAL
header ever comes from outside: length and words are checked, then our own header is put in front.
"""

from typing import Final

import numpy as np
import tenseal.sealapi as seal
from numpy.typing import NDArray

from crypto.bfv_parts import (
    Accumulator,
    PlainRing,
    PublicKey,
    SecretKey,
    parameter_digest,
    refuse_secret,
)
from crypto.errors import InvalidCiphertext, InvalidKey, OutOfRange, SelfTestFailed
from crypto.seal_files import Heads, Scratch

__all__ = ["MAX_TERMS", "SealBfv"]

NAME: Final = "bfv-sealapi"
DEGREE: Final = 4096
PRIME: Final = 1152921504606830593  # what CoeffModulus.Create(4096, [60]) gives; checked below
PLAIN_MODULUS: Final = 1 << 44
MAX_TERMS: Final = 128
_PLAIN_BITS: Final = 44
_SHIFT: Final = 16  # 60 - 44
_GAP: Final = (1 << 60) - PRIME  # 16,383
_HALF: Final = PLAIN_MODULUS // 2
_WORDS: Final = 2 * DEGREE
_CIPHERTEXT_BYTES: Final = 8 * _WORDS
_KEY_HEAD: Final = b"SFGLBFV1" + parameter_digest(
    f"{NAME} 1 N={DEGREE} q={PRIME} t={PLAIN_MODULUS} public=ntt"
)


class SealBfv(PlainRing):
    """The raw road; see `crypto.bfv.Bfv` for the meaning of each verb."""

    name = NAME
    degree = DEGREE
    plain_modulus = PLAIN_MODULUS
    ciphertext_bytes = _CIPHERTEXT_BYTES
    public_key_bytes = len(_KEY_HEAD) + _CIPHERTEXT_BYTES
    max_terms = MAX_TERMS

    def __init__(self) -> None:
        """Build the SEAL context; raises SelfTestFailed if SEAL chooses other parameters."""
        parameters = seal.EncryptionParameters(seal.SCHEME_TYPE.BFV)
        parameters.set_poly_modulus_degree(DEGREE)
        parameters.set_coeff_modulus(seal.CoeffModulus.Create(DEGREE, [60]))
        parameters.set_plain_modulus(PLAIN_MODULUS)
        self._context = seal.SEALContext(parameters, True, seal.SEC_LEVEL_TYPE.TC192)
        primes = [prime.value() for prime in parameters.coeff_modulus()]
        if not self._context.parameters_set() or primes != [PRIME]:
            raise SelfTestFailed
        self._heads = Heads.learn(seal.Plaintext(), self._context.first_parms_id(), DEGREE)

    def keygen(self) -> tuple[PublicKey, SecretKey]:
        """Make a key pair from SEAL's generator, which is seeded by the operating system."""
        generator = seal.KeyGenerator(self._context)
        key = seal.PublicKey()
        generator.create_public_key(key)
        with Scratch() as scratch:
            words = self._heads.cut(scratch.dump(key), self._heads.public)
        public = self.load_public(_KEY_HEAD + words)
        decryptor = seal.Decryptor(self._context, generator.secret_key())
        return public, SecretKey(NAME, public.key_id, decryptor)

    def load_public(self, raw: bytes) -> PublicKey:
        """Return the checked key of these bytes; raises SecretKeyRefused or InvalidKey."""
        head = len(_KEY_HEAD)
        if not isinstance(raw, bytes) or raw[:head] != _KEY_HEAD:
            refuse_secret(raw)
            raise InvalidKey
        if len(raw) != self.public_key_bytes or not _reduced(raw[head:]):
            raise InvalidKey
        key = seal.PublicKey()
        try:
            with Scratch() as scratch:
                key.load(self._context, scratch.put(self._heads.public, raw[head:]))
            encryptor = seal.Encryptor(self._context, key)
        except Exception:  # the bindings raise several built-in kinds for one cause
            raise InvalidKey from None
        return PublicKey(NAME, raw, encryptor)

    def encrypt(self, key: PublicKey, coefficients: NDArray[np.uint64]) -> bytes:
        """Encrypt shape (n,) numbers mod t, padded to whole ciphertexts.

        Raises OutOfRange or InvalidKey.
        """
        encryptor = key.use(NAME)
        rows = self._rows(coefficients)
        out: list[bytes] = []
        plaintext, ciphertext = seal.Plaintext(), seal.Ciphertext(self._context)
        with Scratch() as scratch:
            for row in rows:
                plaintext.load(self._context, scratch.put(self._heads.plaintext, row))
                encryptor.encrypt(plaintext, ciphertext)
                out.append(self._heads.cut(scratch.dump(ciphertext), self._heads.ciphertext))
        return b"".join(out)

    def accumulator(self, key: PublicKey) -> Accumulator:
        """Start an empty sum of ciphertexts under `key`; raises InvalidKey for a foreign one."""
        key.use(NAME)
        return _SealAccumulator(self)

    def decrypt(self, key: SecretKey, blob: bytes) -> NDArray[np.uint64]:
        """Return every coefficient of every ciphertext, shape (ciphertexts * degree,).

        Raises InvalidKey or InvalidCiphertext. A ciphertext whose noise is too large is *not*
        recognised: an authority that refused those would answer questions about its key.
        """
        decryptor = key.use(NAME)
        rows = self.parse(blob)
        values = np.zeros((len(rows), DEGREE), dtype=np.uint64)
        ciphertext, plaintext = seal.Ciphertext(self._context), seal.Plaintext()
        try:
            with Scratch() as scratch:
                for row, value in zip(rows, values, strict=True):
                    ciphertext.load(self._context, scratch.put(self._heads.ciphertext, row))
                    decryptor.decrypt(ciphertext, plaintext)
                    body = scratch.dump(plaintext)
                    found = np.frombuffer(body, dtype="<u8", offset=self._heads.plaintext_offset)
                    value[: found.size] = found  # SEAL leaves leading zero coefficients out
        except Exception:
            raise InvalidCiphertext from None
        return values.reshape(-1)

    def parse(self, blob: bytes, expected: int = 0) -> NDArray[np.uint64]:
        """Return the words of an upload, shape (ciphertexts, 2N), a read-only view.

        Checks the length and that every word is below q, and refuses an upload that needs no key
        (c1 = 0). Raises InvalidCiphertext.
        """
        count = self._ciphertexts(blob, expected)
        words = np.frombuffer(blob, dtype="<u8").reshape(count, _WORDS)
        if not _reduced(blob) or not words[:, DEGREE:].any(axis=1).all():
            raise InvalidCiphertext
        return words

    def shifted(self, words: NDArray[np.uint64], plain: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """Return ciphertext words of shape (ciphertexts, 2N) with plaintext added to c0.

        The same words as SEAL's add_plain gives: c0 + floor((q m + (t + 1) div 2) / t) mod q. With
        q = 2^60 - 16383 and t = 2^44 the shift is (m << 16) + floor((2^43 - 16383 m) / 2^44), and
        every term fits into 64 bits. `plain` has shape (ciphertexts * degree,), values below t.

        Raises OutOfRange.
        """
        values = self._rows(plain).astype(np.int64)
        shift = (values << _SHIFT) + ((_HALF - _GAP * values) >> _PLAIN_BITS)
        out = words.copy()
        head = out[:, :DEGREE]
        head += shift.astype(np.uint64)  # below 2 q < 2^64
        np.minimum(head, head - np.uint64(PRIME), out=head)  # minus q where that does not wrap
        return out


def _reduced(blob: bytes) -> bool:
    return int(np.frombuffer(blob, dtype="<u8").max()) < PRIME


class _SealAccumulator:
    """Sums words mod q in numpy: the same result as SEAL's addition, and no parser is involved."""

    def __init__(self, scheme: SealBfv) -> None:
        self._scheme = scheme
        self._sum: NDArray[np.uint64] | None = None
        self._count = 0

    @property
    def count(self) -> int:
        return self._count

    @property
    def coefficients(self) -> int:
        return 0 if self._sum is None else len(self._sum) * DEGREE

    def add(self, blob: bytes) -> None:
        if self._count >= MAX_TERMS:
            raise OutOfRange(f"A sum of more than {MAX_TERMS} ciphertexts may not be exact.")
        expected = 0 if self._sum is None else len(self._sum)
        words = self._scheme.parse(blob, expected)
        if self._sum is None:
            self._sum = words.copy()
        else:
            self._sum += words  # both below q < 2^60: no wrap in 64 bits
            # Below q the subtraction wraps to a huge number, so the minimum is the residue.
            np.minimum(self._sum, self._sum - np.uint64(PRIME), out=self._sum)
        self._count += 1

    def add_plain(self, coefficients: NDArray[np.uint64]) -> None:
        if self._sum is None or np.size(coefficients) != self.coefficients:
            raise OutOfRange("Add plaintext with exactly one value per coefficient of the sum.")
        self._sum = self._scheme.shifted(self._sum, coefficients)

    def to_bytes(self) -> bytes:
        if self._sum is None:
            raise OutOfRange("Nothing was added to this sum.")
        return self._sum.astype("<u8", copy=False).tobytes()
