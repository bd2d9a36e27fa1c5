"""BFV on the SEAL bindings inside the TenSEAL wheel, and CKKS on the integers of BFV (O1, O9)."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from crypto.aead import lock_at_rest, unlock_at_rest
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
from crypto.homomorphic.seal import (
    PAIR_BYTES,
    WORD_BITS,
    Heads,
    Scratch,
    WordSum,
    pack60,
    reduce_once,
    seal,
    unpack60,
)
from crypto.samplers import Stream, derive, entropy

# --- BFV on the SEAL bindings inside the TenSEAL wheel, N = 4096: `bfv-sealapi` and
# `bfv48-sealapi` ---
#
# Why not TenSEAL's documented API: it reads SEAL headers out of what a peer sent, and SEAL ends the
# process on some of them; it insists on key-switching keys and therefore on a second prime.
#
#   bfv-sealapi     one 60-bit prime, t = 2^44: two 16-bit values with head-room per coefficient,
#                   192-bit security by the tables of the HE standard
#   bfv48-sealapi   the same prime for ciphertexts, a 49-bit one beside it for keys, t = 2^48: three
#                   16-bit slots, 128-bit security (109 bits, exactly the limit)
#
# Exactness. A coefficient of a sum of n uploads decrypts exactly while its noise stays below q/2t;
# both sets keep 12 standard deviations for n = `MAX_TERMS` = 128 (2 exp(-72) per coefficient):
#
#   bfv-sealapi     sd of a fresh ciphertext s*sqrt(4N/3 + 1) = 237 for SEAL's s = 3.2; q/2t = 2^15;
#                   2^15 / (237 sqrt(128)) = 12.2
#   bfv48-sealapi   SEAL encrypts under both primes and divides by the second, which shrinks that
#                   noise to nothing and leaves the rounding r0 + r1*s with r uniform in ±1/2 and s
#                   ternary: sd sqrt((1 + 2N/3) / 12) = 15.1; q/2t = 2^11;
#                   2^11 / (15.1 sqrt(128)) = 12.0
#
# Wire form of a ciphertext: c0 then c1, 4096 words each, every word below q, two words in 15 bytes
# (`crypto.homomorphic.seal`; a scheme whose q is not of 60 bits keeps 64-bit little-endian
# words). No SEAL header ever comes from outside: length and words are checked, then our own header
# is put in front.

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


# --- Public keys whose second half is drawn from a seed that they name, so that nobody chose it
# ---
#
# A public key is (b, a) with b = -(a s + e). Whoever makes it could choose a = g/f with f and g
# short: it looks like any other key, and f is a trapdoor that shows what chance was put into
# ciphertexts (Hoffstein, Pipher and Silverman, ANTS 1998). Where the plaintext is hidden by nothing
# but that chance, as in the parts of a masked product (`crypto.homomorphic.similarity`), the key
# authority must not have one. So a key here is a 32-byte seed and b, and everybody draws a from the
# seed, as in ML-KEM (FIPS 203): among all that a seed can give there is no a with a trapdoor to be
# found.
#
# The values of a at the roots are uniform mod q, in the order of SEAL's transform.

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


# --- CKKS (Cheon et al., eprint 2016/421) on the integers of BFV: `ckks-sealapi`, rounded to the
# grid ---
#
# N = 4096, primes of 54 and 55 bits (109 bits, exactly the 128-bit limit of the HE standard), of
# which ciphertexts keep the first; t = 2^26; scale 2^20. CKKS adds scaled numbers approximately.
# Here the numbers are integers, one per coefficient (not per slot: a slot costs twice the bytes, a
# Fourier transform in floats and 5.5 bits of noise), so that rounding gives the exact sum. No float
# occurs.
#
# The authority rounds and returns integers mod t, nothing finer (O2): the part below the grid is
# the noise, and sum plus noise plus ciphertext is a linear equation for the secret key (Li and
# Micciancio, eprint 2020/1533). Where that part exceeds a quarter step the opening fails.
#
# Exactness. SEAL encrypts under both primes and divides by the second; what remains is the rounding
# r0 + r1*s with r in ±1/2 and s ternary, at most 1/2 + |s|/2 <= 2048.5 per upload. So the noise of
# 128 uploads stays below a quarter step, 2^18, for every key but those with 4095 or more of 4096
# coefficients not zero ((2/3)^4095), and numbers: (128 uploads + up to 127 added plaintexts) times
# 2^25 times the scale is below q/2 = 2^53.
#
# Sums are over the integers, not mod t: the authority sees how often a coefficient passed t. That
# is harmless only where each upload is uniform mod t by itself, that is, carries self-masks and
# pair masks inside; a policy must ask for `mask` before it asks for `ckks`.
#
# Keys and wire form are those of `crypto.homomorphic.bfv`: c0 and c1 in coefficients, words
# below q.

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
