"""BFV through TenSEAL's documented API: N = 4096, primes of 54 and 55 bits, t a 43-bit prime.

The road that leans on nothing internal: contexts and `bfv_vector`, one vector per ciphertext. It is
taken where the bindings used by `crypto.bfv_sealapi` are missing or fail their probe.

t = 4398046568449 is the smallest prime above 2^42 with t = 1 mod 2N, found by counting upwards in
steps of 8192 (a test repeats the search). Above 2^42 so that a coefficient holds 42 bits; not
larger, because q/t must leave room for noise; and it must differ from both coefficient primes.

Wire form: tag and length, then TenSEAL's own bytes, then zeros up to a fixed length.
"""

import struct
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import tenseal
from numpy.typing import NDArray

from crypto.bfv_parts import (
    Accumulator,
    PlainRing,
    PublicKey,
    SecretKey,
    fields,
    parameter_digest,
    refuse_secret,
    rest_info,
)
from crypto.errors import CryptoError, InvalidCiphertext, InvalidKey, OutOfRange, SelfTestFailed
from crypto.rest import lock_at_rest, unlock_at_rest

__all__ = ["MAX_TERMS", "DocumentedBfv"]

NAME: Final = "bfv-documented"
DEGREE: Final = 4096
PLAIN_MODULUS: Final = 4398046568449
PRIME_BITS: Final = (54, 55)  # 109 bits in all: exactly the 128-bit limit of the HE standard
MAX_TERMS: Final = 128
_TAG: Final = b"SFGLBFV2"
_KEY_HEAD: Final = _TAG + parameter_digest(f"{NAME} 1 N={DEGREE} q={PRIME_BITS} t={PLAIN_MODULUS}")
_LENGTH: Final = struct.Struct("<I")
# 54-bit words compress to about 61,720 bytes, a key to about 123,590; the rest is padding.
_CIPHERTEXT_BYTES: Final = 61 * 1024
_PUBLIC_BYTES: Final = 122 * 1024
_PARAMETERS, _PUBLIC = 1, 2  # fields of TenSEALContextProto
_SIZES, _CIPHERTEXTS = 1, 2  # fields of BFVVectorProto


class DocumentedBfv(PlainRing):
    """The documented road; see `crypto.he.Scheme` for the meaning of each verb."""

    name = NAME
    degree = DEGREE
    plain_modulus = PLAIN_MODULUS
    ciphertext_bytes = _CIPHERTEXT_BYTES
    public_key_bytes = _PUBLIC_BYTES
    max_terms = MAX_TERMS
    offline = True

    def __init__(self) -> None:
        """Learn how this TenSEAL writes our parameters."""
        self._parameters = dict(fields(_public_bytes(_context())))[_PARAMETERS]

    def keygen(self) -> tuple[PublicKey, SecretKey]:
        """Make a key pair from SEAL's generator, which is seeded by the operating system."""
        context = _context()
        public = self.load_public(_pad(_KEY_HEAD, _public_bytes(context), _PUBLIC_BYTES))
        return public, SecretKey(NAME, public.key_id, context)

    def load_public(self, raw: bytes) -> PublicKey:
        """Return the checked key of these bytes; raises SecretKeyRefused or InvalidKey."""
        head = len(_KEY_HEAD)
        if not isinstance(raw, bytes) or raw[:head] != _KEY_HEAD:
            refuse_secret(raw)
            raise InvalidKey
        if len(raw) != _PUBLIC_BYTES:
            refuse_secret(raw[head + _LENGTH.size :])
            raise InvalidKey
        body = _unpad(raw, head, InvalidKey)
        refuse_secret(body)
        found = list(fields(body))
        # Foreign parameters are refused as bytes, before SEAL builds tables for them.
        if [number for number, _ in found] != [_PARAMETERS, _PUBLIC]:
            raise InvalidKey
        if found[0][1] != self._parameters:
            raise InvalidKey
        try:
            context = tenseal.context_from(body, n_threads=1)
            private, public = context.is_private(), context.has_public_key()
        except Exception:  # the bindings raise several built-in kinds for one cause
            raise InvalidKey from None
        if private or not public:
            raise InvalidKey
        return PublicKey(NAME, raw, context)

    def lock_secret(self, key: SecretKey, under: bytes) -> bytes:
        """Return the key locked under a key store's 32-byte key; raises InvalidKey."""
        raw = key.use(NAME).serialize(
            save_public_key=True,
            save_secret_key=True,
            save_galois_keys=False,
            save_relin_keys=False,
        )
        return lock_at_rest(under, rest_info(key.key_id), bytes(raw))

    def unlock_secret(self, locked: bytes, public: PublicKey, under: bytes) -> SecretKey:
        """Return the key that `lock_secret` locked; raises InvalidSeal or InvalidKey."""
        public.use(NAME)
        raw = unlock_at_rest(under, rest_info(public.key_id), locked)
        try:
            context = tenseal.context_from(raw, n_threads=1)
            private = context.is_private()
        except Exception:  # the bindings raise several built-in kinds for one cause
            raise InvalidKey from None
        if not private:
            raise InvalidKey
        return SecretKey(NAME, public.key_id, context)

    def zeros(self, key: PublicKey, ciphertexts: int) -> bytes:
        """Return so many fresh encryptions of zero; raises OutOfRange or InvalidKey."""
        context = key.use(NAME)
        if ciphertexts < 1:
            raise OutOfRange("At least one encryption of zero must be asked for.")
        blank = [0] * DEGREE
        return b"".join(_wire(tenseal.bfv_vector(context, blank)) for _ in range(ciphertexts))

    def encrypt(
        self, key: PublicKey, coefficients: NDArray[np.uint64], zeros: bytes | None = None
    ) -> bytes:
        """Encrypt shape (n,) numbers mod t, padded to whole ciphertexts.

        Raises OutOfRange, InvalidCiphertext or InvalidKey.
        """
        context = key.use(NAME)
        rows = [_centred(row).tolist() for row in self.plain_rows(coefficients)]
        if zeros is None:
            # Exactly DEGREE values per vector: TenSEAL splits longer ones and says so on stdout.
            return b"".join(_wire(tenseal.bfv_vector(context, row)) for row in rows)
        blanks = self.parse(context, self._ready(zeros, len(rows)))
        return b"".join(_wire(blank + row) for blank, row in zip(blanks, rows, strict=True))

    def accumulator(self, key: PublicKey) -> Accumulator:
        """Start an empty sum of ciphertexts under `key`; raises InvalidKey for a foreign one."""
        return _DocumentedAccumulator(self, key.use(NAME))

    def decrypt(self, key: SecretKey, blob: bytes) -> NDArray[np.uint64]:
        """Return every coefficient of every ciphertext, shape (ciphertexts * degree,).

        Raises InvalidKey or InvalidCiphertext.
        """
        vectors = self.parse(key.use(NAME), blob)
        try:
            signed = np.array([vector.decrypt() for vector in vectors], dtype=np.int64)
        except Exception:
            raise InvalidCiphertext from None
        if signed.shape != (len(vectors), DEGREE):
            raise InvalidCiphertext
        return np.where(signed < 0, signed + PLAIN_MODULUS, signed).astype(np.uint64).reshape(-1)

    def parse(self, context: Any, blob: bytes, expected: int = 0) -> list[Any]:
        """Return the vectors of an upload; raises InvalidCiphertext."""
        count = self._ciphertexts(blob, expected)
        width = _CIPHERTEXT_BYTES
        return [_vector(context, blob[i * width : (i + 1) * width]) for i in range(count)]


def _context() -> Any:
    return tenseal.context(
        tenseal.SCHEME_TYPE.BFV,
        DEGREE,
        plain_modulus=PLAIN_MODULUS,
        coeff_mod_bit_sizes=list(PRIME_BITS),
        n_threads=1,
    )


def _public_bytes(context: Any) -> bytes:
    """The one place that serialises a context, and it names every secret it leaves out."""
    return bytes(
        context.serialize(
            save_public_key=True,
            save_secret_key=False,
            save_galois_keys=False,
            save_relin_keys=False,
        )
    )


def _pad(head: bytes, body: bytes, total: int) -> bytes:
    framed = head + _LENGTH.pack(len(body)) + body
    if len(framed) > total:
        raise SelfTestFailed("TenSEAL wrote a longer object than the fixed wire form holds.")
    return framed.ljust(total, b"\0")


def _unpad(raw: bytes, head: int, refusal: Callable[[], CryptoError]) -> bytes:
    start = head + _LENGTH.size
    (length,) = _LENGTH.unpack_from(raw, head)
    if length > len(raw) - start or any(raw[start + length :]):
        raise refusal()
    return raw[start : start + length]


def _centred(row: NDArray[np.uint64]) -> NDArray[np.int64]:
    """TenSEAL's integers are signed: hand it the residue nearest to zero."""
    signed = row.astype(np.int64)
    return np.where(signed > PLAIN_MODULUS // 2, signed - PLAIN_MODULUS, signed)


def _wire(vector: Any) -> bytes:
    return _pad(_TAG, bytes(vector.serialize()), _CIPHERTEXT_BYTES)


def _vector(context: Any, raw: bytes) -> Any:
    """Load one ciphertext after its frame has been checked; raises InvalidCiphertext."""
    if raw[: len(_TAG)] != _TAG:
        raise InvalidCiphertext
    body = _unpad(raw, len(_TAG), InvalidCiphertext)
    try:
        found = list(fields(body))
    except InvalidKey:
        raise InvalidCiphertext from None
    if [number for number, _ in found] != [_SIZES, _CIPHERTEXTS]:
        raise InvalidCiphertext
    if found[0][1] != _varint_bytes(DEGREE):
        raise InvalidCiphertext
    try:
        vector = tenseal.bfv_vector_from(context, body)
        (inner,) = vector.ciphertext()
        # Two parts, and the second not zero: such a "ciphertext" would need no key.
        shape = (vector.size(), inner.size(), inner.is_transparent())
    except Exception:
        raise InvalidCiphertext from None
    if shape != (DEGREE, 2, False):
        raise InvalidCiphertext
    return vector


def _varint_bytes(value: int) -> bytes:
    out = bytearray()
    while value >> 7:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


class _DocumentedAccumulator:
    """Sums TenSEAL vectors in place."""

    def __init__(self, scheme: DocumentedBfv, context: Any) -> None:
        self._scheme, self._context = scheme, context
        self._sum: list[Any] = []
        self._count = 0

    @property
    def count(self) -> int:
        return self._count

    @property
    def coefficients(self) -> int:
        return len(self._sum) * DEGREE

    def add(self, blob: bytes) -> None:
        if self._count >= MAX_TERMS:
            raise OutOfRange(f"A sum of more than {MAX_TERMS} ciphertexts may not be exact.")
        vectors = self._scheme.parse(self._context, blob, len(self._sum))
        try:
            summed = (
                [total + vector for total, vector in zip(self._sum, vectors, strict=True)]
                if self._sum
                else vectors
            )
        except Exception:
            raise InvalidCiphertext from None
        self._sum, self._count = summed, self._count + 1

    def add_plain(self, coefficients: NDArray[np.uint64]) -> None:
        if not self._sum or np.size(coefficients) != self.coefficients:
            raise OutOfRange("Add plaintext with exactly one value per coefficient of the sum.")
        rows = self._scheme.plain_rows(coefficients)
        try:
            self._sum = [
                total + _centred(row).tolist() for total, row in zip(self._sum, rows, strict=True)
            ]
        except Exception:
            raise InvalidCiphertext from None

    def to_bytes(self) -> bytes:
        if not self._sum:
            raise OutOfRange("Nothing was added to this sum.")
        return b"".join(_wire(vector) for vector in self._sum)
