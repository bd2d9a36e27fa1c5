"""BFV on the SEAL bindings inside the TenSEAL wheel, N = 4096: `bfv-sealapi` and `bfv48-sealapi`.

Why not TenSEAL's documented API: it reads SEAL headers out of what a peer sent, and SEAL ends the
process on some of them; it insists on key-switching keys and therefore on a second prime.

    bfv-sealapi     one 60-bit prime, t = 2^44: two 16-bit values with head-room per coefficient,
                    192-bit security by the tables of the HE standard
    bfv48-sealapi   the same prime for ciphertexts, a 49-bit one beside it for keys, t = 2^48: three
                    16-bit slots, 128-bit security (109 bits, exactly the limit)

Exactness. A coefficient of a sum of n uploads decrypts exactly while its noise stays below q/2t;
both sets keep 12 standard deviations for n = `MAX_TERMS` = 128 (2 exp(-72) per coefficient):

    bfv-sealapi     sd of a fresh ciphertext s*sqrt(4N/3 + 1) = 237 for SEAL's s = 3.2; q/2t = 2^15;
                    2^15 / (237 sqrt(128)) = 12.2
    bfv48-sealapi   SEAL encrypts under both primes and divides by the second, which shrinks that
                    noise to nothing and leaves the rounding r0 + r1*s with r uniform in ±1/2 and s
                    ternary: sd sqrt((1 + 2N/3) / 12) = 15.1; q/2t = 2^11;
                    2^11 / (15.1 sqrt(128)) = 12.0

Wire form of a ciphertext: c0 then c1, 4096 words each, every word below q, two words in 15 bytes
(`crypto.homomorphic.words60`; a scheme whose q is not of 60 bits keeps 64-bit little-endian words).
No SEAL header ever comes from outside: length and words are checked, then our own header is put in
front.
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from crypto.errors import InvalidCiphertext, InvalidKey, OutOfRange, SelfTestFailed
from crypto.homomorphic.bfv_parts import (
    Accumulator,
    PlainRing,
    PublicKey,
    SecretKey,
    parameter_digest,
    refuse_secret,
    rest_info,
)
from crypto.homomorphic.seal_files import Heads, Scratch, seal
from crypto.homomorphic.seal_sums import WordSum, reduce_once
from crypto.homomorphic.words60 import PAIR_BYTES, WORD_BITS, pack60, unpack60
from crypto.rest import lock_at_rest, unlock_at_rest

__all__ = ["BFV44", "BFV48", "MAX_TERMS", "Parameters", "SealBfv", "SealRing"]

DEGREE: Final = 4096
PRIME: Final = 1152921504606830593  # what CoeffModulus.Create(4096, [60]) gives
PLAIN_MODULUS: Final = 1 << 44
MAX_TERMS: Final = 128
_GAP: Final = (1 << WORD_BITS) - PRIME  # 16,383
_WORDS: Final = 2 * DEGREE


@dataclass(frozen=True)
class Parameters:
    """One parameter set of degree 4096; ciphertexts use the first prime, keys use all of them.

    `security` is SEAL's name of the level that it must confirm, t = 2^plain_bits, and CKKS scales
    by 2^scale_bits.
    """

    name: str
    primes: tuple[int, ...]
    plain_bits: int
    security: str
    scale_bits: int = 0

    @property
    def head(self) -> bytes:
        """What a public key of these parameters begins with: tag and digest."""
        primes = ",".join(map(str, self.primes))
        scale = f" scale={1 << self.scale_bits}" if self.scale_bits else ""
        numbers = f"N={DEGREE} q={primes} t={1 << self.plain_bits}{scale}"
        return b"SFGLBFV1" + parameter_digest(f"{self.name} 1 {numbers} public=ntt")


BFV44: Final = Parameters("bfv-sealapi", (PRIME,), 44, "TC192")
BFV48: Final = Parameters("bfv48-sealapi", (PRIME, 562949953216513), 48, "TC128")


class Opener(NamedTuple):
    """What a `SecretKey` of these schemes holds: SEAL's decryptor, and the key it was made from."""

    decryptor: Any
    secret: Any


class SealRing(PlainRing):
    """What BFV and CKKS share here: keys, zero-encryptions, wire form, sums of words mod q.

    See `crypto.homomorphic.he.Scheme` for the meaning of each verb. A scheme adds how a plaintext
    is laid over c0 (`lifted`) and how a ciphertext is opened (`decrypt`).
    """

    degree = DEGREE
    ciphertext_bytes = 8 * _WORDS
    max_terms = MAX_TERMS
    offline = True

    def __init__(self, chosen: Parameters, parameters: Any) -> None:
        """Build the SEAL context; raises SelfTestFailed if SEAL does not accept these parameters.

        `parameters` are SEAL's own, with scheme and plain modulus set.
        """
        self.name, self.prime = chosen.name, chosen.primes[0]
        self.plain_modulus = 1 << chosen.plain_bits
        self._primes = np.array(chosen.primes, dtype=np.uint64)
        self._key_head = chosen.head
        self.public_key_bytes = len(self._key_head) + 8 * _WORDS * len(chosen.primes)
        parameters.set_poly_modulus_degree(DEGREE)
        parameters.set_coeff_modulus([seal.Modulus(prime) for prime in chosen.primes])
        level = getattr(seal.SEC_LEVEL_TYPE, chosen.security)
        self._context = seal.SEALContext(parameters, True, level)
        primes = tuple(prime.value() for prime in parameters.coeff_modulus())
        if not self._context.parameters_set() or primes != chosen.primes:
            raise SelfTestFailed
        self._heads = Heads.learn(self._context, DEGREE, len(primes))

    def keygen(self) -> tuple[PublicKey, SecretKey]:
        """Make a key pair from SEAL's generator, which is seeded by the operating system."""
        generator = seal.KeyGenerator(self._context)
        key = seal.PublicKey()
        generator.create_public_key(key)
        with Scratch() as scratch:
            words = self._heads.cut(scratch.dump(key), self._heads.public)
        public = self.load_public(self._key_head + words)
        return public, self._secret(public, generator.secret_key())

    def _secret(self, public: PublicKey, secret: Any) -> SecretKey:
        opener = Opener(seal.Decryptor(self._context, secret), secret)
        return SecretKey(self.name, public.key_id, opener)

    def lock_secret(self, key: SecretKey, under: bytes) -> bytes:
        """Return the key locked under a key store's 32-byte key; raises InvalidKey."""
        secret = key.use(self.name).secret
        with Scratch() as scratch:
            words = self._heads.cut(scratch.dump(secret), self._heads.secret)
        return lock_at_rest(under, rest_info(key.key_id), words)

    def unlock_secret(self, locked: bytes, public: PublicKey, under: bytes) -> SecretKey:
        """Return the key that `lock_secret` locked; raises InvalidSeal or InvalidKey."""
        public.use(self.name)
        words = unlock_at_rest(under, rest_info(public.key_id), locked)
        secret = seal.SecretKey()
        try:
            with Scratch() as scratch:
                secret.load(self._context, scratch.put(self._heads.secret, words))
        except Exception:  # the bindings raise several built-in kinds for one cause
            raise InvalidKey from None
        return self._secret(public, secret)

    def load_public(self, raw: bytes) -> PublicKey:
        """Return the checked key of these bytes; raises SecretKeyRefused or InvalidKey."""
        head = len(self._key_head)
        if not isinstance(raw, bytes) or raw[:head] != self._key_head:
            refuse_secret(raw)
            raise InvalidKey
        if len(raw) != self.public_key_bytes:
            raise InvalidKey
        words = np.frombuffer(raw, dtype="<u8", offset=head).reshape(2, -1, DEGREE)
        if (words >= self._primes[:, np.newaxis]).any():
            raise InvalidKey
        key = seal.PublicKey()
        try:
            with Scratch() as scratch:
                key.load(self._context, scratch.put(self._heads.public, raw[head:]))
            encryptor = seal.Encryptor(self._context, key)
        except Exception:  # the bindings raise several built-in kinds for one cause
            raise InvalidKey from None
        return PublicKey(self.name, raw, encryptor)

    def zeros(self, key: PublicKey, ciphertexts: int) -> bytes:
        """Return so many fresh encryptions of zero; raises OutOfRange or InvalidKey."""
        encryptor = key.use(self.name)
        if ciphertexts < 1:
            raise OutOfRange("At least one encryption of zero must be asked for.")
        with Scratch() as scratch:
            rows = (self._zero(encryptor, scratch) for _ in range(ciphertexts))
            return b"".join(self.to_wire(row) for row in rows)

    def encrypt(
        self, key: PublicKey, coefficients: NDArray[np.uint64], zeros: bytes | None = None
    ) -> bytes:
        """Encrypt shape (n,) numbers mod t, padded to whole ciphertexts.

        Raises OutOfRange, InvalidCiphertext or InvalidKey.
        """
        encryptor = key.use(self.name)
        rows = self.plain_rows(coefficients)
        ready = None if zeros is None else memoryview(self._ready(zeros, len(rows)))
        width, out = self.ciphertext_bytes, []
        with Scratch() as scratch:
            # One ciphertext at a time: it stays in the cache from one step to the next.
            for i in range(len(rows)):
                if ready is None:
                    blank = self._zero(encryptor, scratch)
                else:
                    blank = self._from_wire(ready[i * width : (i + 1) * width])
                # From here on both ways are one, so an upload does not show which it was.
                words = self._checked(blank.reshape(1, _WORDS))
                out.append(self.to_wire(self.shifted(words, rows[i : i + 1])))
        return b"".join(out)

    def accumulator(self, key: PublicKey) -> Accumulator:
        """Start an empty sum of ciphertexts under `key`; raises InvalidKey for a foreign one."""
        key.use(self.name)
        return WordSum(self)

    def parse(self, blob: bytes, expected: int = 0) -> NDArray[np.uint64]:
        """Return the words of an upload, shape (ciphertexts, 2N), to be read only.

        Checks the length and that every word is below q, and refuses an upload that needs no key
        (c1 = 0). Raises InvalidCiphertext.
        """
        count = self._ciphertexts(blob, expected)
        return self._checked(self._from_wire(blob).reshape(count, _WORDS))

    def to_wire(self, words: NDArray[np.uint64]) -> bytes:
        """Return words below q, shape (ciphertexts, 2N), in wire form; the inverse of `parse`."""
        return words.astype("<u8", copy=False).tobytes()

    def shifted(self, words: NDArray[np.uint64], rows: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """Return ciphertext words of shape (ciphertexts, 2N) with plaintext added to c0.

        `rows` has shape (ciphertexts, degree), values below t, unchecked.
        """
        out = words.astype("<u8", copy=True)
        head = out[:, :DEGREE]
        head += self.lifted(rows)  # below 2 q < 2^64
        reduce_once(head, self.prime)
        return out

    @abstractmethod
    def lifted(self, rows: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """Return what stands for plaintext mod t inside c0: residues below q, shape kept."""

    @abstractmethod
    def decrypt(self, key: SecretKey, blob: bytes) -> NDArray[np.uint64]:
        """Return every coefficient of every ciphertext, shape (ciphertexts * degree,)."""

    def _from_wire(self, blob: bytes | memoryview) -> NDArray[np.uint64]:
        """Return the words of whole ciphertexts, shape (n,), unchecked."""
        return np.frombuffer(blob, dtype="<u8")

    def _checked(self, words: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """Return ciphertext words of shape (ciphertexts, 2N); raises InvalidCiphertext."""
        if int(words.max()) >= self.prime or not words[:, DEGREE:].any(axis=1).all():
            raise InvalidCiphertext
        return words

    def _zero(self, encryptor: Any, scratch: Scratch) -> NDArray[np.uint64]:
        """Return the words of one fresh encryption of zero, shape (2N,); raises InvalidKey.

        A public key whose second half is zero, or so short that dividing by the second prime leaves
        nothing of it, hides nothing: everybody would read what is laid over such a zero.
        """
        ciphertext = seal.Ciphertext(self._context)
        try:
            encryptor.encrypt_zero(ciphertext)
            self._settle(ciphertext)  # some schemes notice it here
        except Exception:  # the bindings raise several built-in kinds for one cause
            raise InvalidKey from None
        body = self._heads.cut(scratch.dump(ciphertext), self._heads.ciphertext)
        words: NDArray[np.uint64] = np.frombuffer(body, dtype="<u8")
        if not words[DEGREE:].any():
            raise InvalidKey
        return words

    def _settle(self, ciphertext: Any) -> None:
        """Bring a fresh SEAL ciphertext into coefficient form."""


class SealBfv(SealRing):
    """BFV, by default with the parameters of `bfv-sealapi`."""

    ciphertext_bytes = _WORDS // 2 * PAIR_BYTES

    def __init__(self, chosen: Parameters = BFV44) -> None:
        """Build the SEAL context; raises SelfTestFailed if SEAL chooses other parameters."""
        parameters = seal.EncryptionParameters(seal.SCHEME_TYPE.BFV)
        parameters.set_plain_modulus(1 << chosen.plain_bits)
        super().__init__(chosen, parameters)
        self._bits = np.int64(chosen.plain_bits)
        self._half = np.int64(1 << (chosen.plain_bits - 1))

    def lifted(self, rows: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """Return floor((q m + (t + 1) div 2) / t) for each m: the words of SEAL's own add_plain.

        With q = 2^60 - 16383 and t = 2^b that is (m << 60-b) + floor((2^(b-1) - 16383 m) / 2^b),
        and every term fits into 64 bits.
        """
        values = rows.astype(np.int64)
        shift = (values << (WORD_BITS - self._bits)) + ((self._half - _GAP * values) >> self._bits)
        return shift.astype(np.uint64)

    def to_wire(self, words: NDArray[np.uint64]) -> bytes:
        """Return words below q, shape (ciphertexts, 2N), in wire form; the inverse of `parse`."""
        return pack60(words)

    def _from_wire(self, blob: bytes | memoryview) -> NDArray[np.uint64]:
        return unpack60(blob)

    def decrypt(self, key: SecretKey, blob: bytes) -> NDArray[np.uint64]:
        """Return every coefficient of every ciphertext, shape (ciphertexts * degree,).

        Raises InvalidKey or InvalidCiphertext. A ciphertext whose noise is too large is *not*
        recognised: an authority that refused those would answer questions about its key.
        """
        decryptor = key.use(self.name).decryptor
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
