"""Cosines of encrypted vectors: `ckks-cosine`, one number per pair for the authority (O3)."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from crypto.errors import InvalidCiphertext, InvalidKey, OutOfRange, SelfTestFailed
from crypto.homomorphic.bfv import DEGREE, PRIME, Parameters, SeededRing, binomial
from crypto.homomorphic.bfv_parts import PublicKey, SecretKey
from crypto.homomorphic.seal import PAIR_BYTES, Scratch, pack60, reduce_once, seal, unpack60
from crypto.samplers import Stream, derive, entropy

# --- Vectors whose cosines are compared: shortened if very long, of length 1, laid into
# polynomials ---
#
# Sketches. Count-sketch (Charikar, Chen and Farach-Colton, ICALP 2002; as a hash kernel: Weinberger
# et al., ICML 2009): a public seed sends each position to one of `width` places and gives it a
# sign, and what meets in a place is added. Inner products are kept in expectation over the seed;
# between unit vectors without dominating values the standard deviation is sqrt((1 + cos^2) /
# width): 0.004 to 0.006 at the default width. A sketch hides nothing: it is made at the client,
# from a seed that all clients share, and then encrypted like any other vector.
#
# Layout. Up to N/2 values u_0, u_1, … of a unit vector become the polynomial mod X^N + 1
#
#     sqrt(2) u_0 + u_1 (X - X^(N-1)) + u_2 (X^2 - X^(N-2)) + …
#
# Since X^-k = -X^(N-k) it is real at every root of X^N + 1, and the constant coefficient of the
# product of two of them is 2 <u, v>.

SKETCH_ABOVE: Final = 100_000
"""Vectors of more values than this are sketched; up to it the whole vector is compared."""

WIDTH: Final = 1 << 16
"""Places of a sketch: 32 ciphertexts of `crypto.homomorphic.similarity`."""

_SIGN: Final = 63
_MAX_WIDTH: Final = 1 << 24


def sketch(
    vector: NDArray[np.floating[Any]], seed: bytes, width: int = WIDTH
) -> NDArray[np.float64]:
    """Return the count-sketch of a vector of shape (d,): shape (width,), in the vector's unit.

    Args:
        vector: finite real numbers.
        seed: 32 public bytes, the same at all clients whose sketches are compared.
        width: a power of two.

    Raises:
        OutOfRange: a width that is no power of two up to 2^24, or no such vector.
    """
    exact = _finite(vector)
    if not 2 <= width <= _MAX_WIDTH or width & (width - 1):
        raise OutOfRange("A sketch's width is a power of two up to 2^24.")
    words = Stream(derive(seed, "count-sketch")).words(exact.size)
    signed = np.where(words >> np.uint64(_SIGN), exact, -exact)
    places = (words & np.uint64(width - 1)).astype(np.intp)
    return np.bincount(places, weights=signed, minlength=width).astype(np.float64)


def unit(vector: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
    """Return a vector of shape (d,) at length 1, in double precision.

    Raises OutOfRange for a vector that is empty, zero, not finite or of another shape.
    """
    exact = _finite(vector)
    largest = float(np.abs(exact).max())
    if not largest:
        raise OutOfRange("A vector of zeros has no direction; leave its owner out of the pairs.")
    scaled = exact / largest  # squares neither overflow nor vanish
    return np.asarray(scaled / np.sqrt(scaled @ scaled))


def polynomials(
    values: NDArray[np.float64], degree: int, scale_bits: int
) -> NDArray[np.signedinteger[Any]]:
    """Return values of shape (d,) times 2^scale_bits, rounded and laid out: shape (rows, degree).

    A row takes degree/2 values; the last is padded with zeros.
    """
    half = degree // 2
    rows = np.zeros((-(-values.size // half), half))
    rows.reshape(-1)[: values.size] = values
    rows[:, 0] *= np.sqrt(2.0)  # the constant stands once, every other value twice
    whole = np.rint(rows * 2.0**scale_bits).astype(np.int64)
    laid = np.zeros((len(rows), degree), dtype=np.int64)
    laid[:, :half] = whole
    laid[:, half + 1 :] = -whole[:, :0:-1]
    return laid


def _finite(vector: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
    exact = np.asarray(vector, dtype=np.float64)
    if exact.ndim != 1 or not exact.size or not np.isfinite(exact).all():
        raise OutOfRange("A vector of finite numbers of shape (d,) is expected.")
    return exact


# --- Cosines of encrypted vectors: `ckks-cosine`, one number per pair for the authority (O3) ---
#
# CKKS (Cheon et al., eprint 2016/421) at N = 4096 with one 60-bit prime, 192-bit security by the
# tables of the HE standard, multiplied once: no relinearisation, rotation or Galois keys, no
# rescaling. Clients hold the public key, the key authority alone the secret one:
#
#     ring = similarity()
#     public, secret = ring.keygen()                                  # at the key authority
#     upload = ring.upload(public, vector)                            # at each client
#     masked = ring.product(public, ring.operand(a), ring.operand(b), seed)   # at the aggregator
#     cosine = ring.cosine(secret, masked)                            # at the key authority
#
# Layout. A unit vector of up to N/2 = 2048 values, scaled by 2^28, becomes a polynomial whose slots
# are all real (`crypto.homomorphic.similarity`), so that the sum of the slots of a product is N/2
# times its constant coefficient, and that coefficient is 2^57 <u, v>. Longer vectors take several
# ciphertexts, whose products are added.
#
# The second half of a public key follows from a seed (`crypto.homomorphic.bfv`): a key
# authority that chose it with a trapdoor would read, in the parts of products that no mask covers,
# whole vectors.
#
# What is added before anything leaves the aggregator:
#
#   zero     the public key times (u, v) plus noise, u and v ternary: a fresh encryption of zero in
#            three parts. Without it three clients' products give the authority every coefficient
#            below the mask (c1/c2 of pair ij is g_i + g_j, three equations for three unknowns).
#   mask     plaintext uniform mod q on coefficients 1 … N-1 and zero on coefficient 0
#
# Both come from one 32-byte seed, so that a witness who holds the uploads and the seed recomputes
# the bytes, and so that no other ciphertext can pose as the encryption of zero. **One seed serves
# one product:** two products on one seed give away every coefficient of their difference.
#
# Who sees what. The aggregator and the witness see ciphertexts. The authority sees three
# polynomials that look uniform, and coefficient 0: one cosine per pair, below the grid also the
# noise of the two uploads. It returns multiples of 2^-14 (O2). It therefore learns the cosine
# matrix. What breaks it: the authority together with whoever holds uploads; an aggregator that
# shows the authority something else than a product, unless witnesses sign what may be opened (O4).
#
# A client may encrypt whatever it likes. One that encrypts a unit vector with a single entry, and
# works with the aggregator or the authority, reads that coordinate of everybody's vector, one a
# round. That a product with itself opens as 1 stops accidents only: m -> coefficient 0 of m^2 is
# indefinite, so places that no honest vector uses can cancel any length, and the coordinate is then
# read below the grid.
#
# Exactness. With fresh noise of standard deviation s = 237 per coefficient
# (`crypto.homomorphic.bfv`) an opened cosine errs by about s 2^-28 = 9e-7 before rounding,
# and rounding adds at most 2^-15, or 3.1e-5. 2^57 is below q/2 = 2^59.

COSINE: Final = Parameters("ckks-cosine", (PRIME,), 30, "TC192")
"""The parameter set: values scaled by 2^28 have at most 30 bits with sign and sqrt(2)."""
GRID_BITS: Final = 14  # opened cosines are multiples of 2^-14
PRODUCT_BYTES: Final = 3 * DEGREE // 2 * PAIR_BYTES
"""Wire length of one masked product, whatever the length of the vectors."""

_SCALE_BITS, _SLOTS, _PARTS = 28, DEGREE // 2, 3
_PRODUCT_BITS: Final = 2 * _SCALE_BITS + 1


class Operand:
    """An upload inside the library, transformed once for all pairs; holds no secret."""

    __slots__ = ("_ciphertexts",)

    def __init__(self, ciphertexts: list[Any]) -> None:
        """Take over SEAL's two-part ciphertexts in NTT form; made by `Similarity.operand` only."""
        self._ciphertexts = ciphertexts

    def __len__(self) -> int:
        """How many ciphertexts the upload has."""
        return len(self._ciphertexts)

    def pairs(self, other: Operand) -> list[tuple[Any, Any]]:
        """Return the ciphertexts that are multiplied; raises OutOfRange for unequal lengths."""
        if len(self) != len(other):
            raise OutOfRange("Two vectors of different lengths have no cosine.")
        return list(zip(self._ciphertexts, other._ciphertexts, strict=True))


class Similarity(SeededRing):
    """Encrypted cosines; keys, wire form and zeros made ahead are those of `SeededRing`."""

    ciphertext_bytes = DEGREE * PAIR_BYTES

    def __init__(self) -> None:
        """Build the SEAL context; raises SelfTestFailed if SEAL chooses other parameters."""
        super().__init__(COSINE, seal.EncryptionParameters(seal.SCHEME_TYPE.CKKS))
        self._inverse = pow(DEGREE, -1, self.prime)

    def ciphertexts(self, values: int) -> int:
        """Return how many ciphertexts a vector of so many values takes."""
        return -(-values // _SLOTS)

    def upload(
        self, key: PublicKey, vector: NDArray[np.floating[Any]], zeros: bytes | None = None
    ) -> bytes:
        """Encrypt a vector of shape (d,), brought to length 1; at the client.

        Args:
            key: the authority's public key.
            vector: finite, not all zero, in any unit.
            zeros: `zeros` made ahead, one per ciphertext, never used before.

        Raises:
            OutOfRange: a vector without a direction, or another number of zeros.
            InvalidKey: a key of another scheme.
        """
        return self.encrypt(key, self.packed(vector), zeros)

    def packed(self, vector: NDArray[np.floating[Any]]) -> NDArray[np.uint64]:
        """Return the plaintext of a vector of shape (d,): mod t, shape (ciphertexts * N,).

        Raises OutOfRange for a vector that is empty, zero, not finite or not of shape (d,).
        """
        laid = polynomials(unit(vector), DEGREE, _SCALE_BITS)
        return (laid % self.plain_modulus).astype(np.uint64).reshape(-1)

    def operand(self, upload: bytes) -> Operand:
        """Return an upload ready for products; at the aggregator. Raises InvalidCiphertext."""
        rows = self.parse(upload)
        with Scratch() as scratch:
            return Operand([self._transformed(row, scratch) for row in rows])

    def product(self, key: PublicKey, left: Operand, right: Operand, seed: bytes) -> bytes:
        """Return the masked product of two uploads, `PRODUCT_BYTES` long (O3); at the aggregator.

        The bytes are determined by the arguments: a witness recomputes them.

        Args:
            key: the key under which both were encrypted.
            left: one upload.
            right: the other one, or the same to see whether its length is 1.
            seed: 32 secret bytes for this product alone.

        Raises:
            OutOfRange: two vectors of different lengths.
            InvalidCiphertext: uploads that vanish in the product, as two clients can arrange.
            InvalidKey: a key of another scheme, or another length of seed.
        """
        key.use(self.name)
        if len(seed) != 32:
            raise InvalidKey("A product needs a seed of exactly 32 bytes.")
        pairs = left.pairs(right)
        chance = Stream(derive(seed, "cosine zero"))
        with Scratch() as scratch:
            total = self._blank(key, chance, scratch)
            for first, second in pairs:
                self._add_product(total, first, second)
            self._evaluator.transform_from_ntt_inplace(total)
            body = self._heads.cut(scratch.dump(total), self._heads.product)
        words = np.frombuffer(body, dtype="<u8").reshape(_PARTS, DEGREE).astype(np.uint64)
        for added in (self._noise(chance), self._mask(seed)):
            words += added
            reduce_once(words, self.prime)
        return pack60(words)

    def cosine(self, key: SecretKey, product: bytes) -> float:
        """Return the cosine inside a masked product, a multiple of 2^-14; at the authority.

        Only coefficient 0 is computed. Raises InvalidKey, or InvalidCiphertext, also for a number
        outside [-1, 1]: that refusal answers one question about the key, so whoever opens must end
        the run on it.
        """
        exact = self._constant(key.use(self.name).decryptor, self._parsed(product))
        step = _PRODUCT_BITS - GRID_BITS
        rounded = (exact + (1 << (step - 1))) >> step
        if abs(rounded) > 1 << GRID_BITS:
            raise InvalidCiphertext
        return rounded / (1 << GRID_BITS)

    def lifted(self, rows: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """Return the representative nearest to zero, mod q; shape kept."""
        signed = rows.astype(np.int64)
        signed -= (signed >= self.plain_modulus // 2) * np.int64(self.plain_modulus)
        signed += (signed < 0) * np.int64(self.prime)
        return signed.view(np.uint64)

    def decrypt(self, key: SecretKey, blob: bytes) -> NDArray[np.uint64]:
        """Refuse: an upload is never opened, only a masked product. Raises InvalidCiphertext."""
        raise InvalidCiphertext("Under this scheme nothing but a masked product is opened.")

    def to_wire(self, words: NDArray[np.uint64]) -> bytes:
        """Return words below q in wire form, two in 15 bytes; the inverse of `parse`."""
        return pack60(words)

    def _from_wire(self, blob: bytes | memoryview) -> NDArray[np.uint64]:
        return unpack60(blob)

    def _settle(self, ciphertext: Any) -> None:
        self._evaluator.transform_from_ntt_inplace(ciphertext)

    def _add_product(self, total: Any, first: Any, second: Any) -> None:
        """Add a product of two ciphertexts to `total`; raises InvalidCiphertext.

        SEAL refuses what needs no key. A vector whose c1 is zero at all roots where another one's
        is not makes such a product, so it is a matter of what two clients send. Who knows the seed
        as well can choose two vectors whose product takes the fresh zero off again.
        """
        part = seal.Ciphertext(self._context)
        try:
            self._evaluator.multiply(first, second, part)
            self._evaluator.add_inplace(total, part)
        except Exception:  # the bindings raise several built-in kinds for one cause
            raise InvalidCiphertext from None

    def _blank(self, key: PublicKey, chance: Stream, scratch: Scratch) -> Any:
        """Return (b, a) times (u, v) in NTT form, three parts: zero but for its noise.

        It opens as (b + a s)(u + v s), the key's own noise times a small number.
        """
        ternary = chance.uniform(3, 2 * DEGREE) + np.uint64(self.prime - 1)
        reduce_once(ternary, self.prime)
        small = self._transformed(ternary, scratch)
        public, blank = seal.Ciphertext(self._context), seal.Ciphertext(self._context)
        body = self._points(key.raw)
        public.load(self._context, scratch.put(self._heads.transformed, body))
        self._evaluator.multiply(public, small, blank)
        return blank

    def _noise(self, chance: Stream) -> NDArray[np.uint64]:
        """Return centred binomial noise mod q, shape (3, N): without it zero is no encryption."""
        return binomial(chance, _PARTS * DEGREE, self.prime).reshape(_PARTS, DEGREE)

    def _mask(self, seed: bytes) -> NDArray[np.uint64]:
        """Return the plaintext mask, shape (3, N): uniform mod q on 1 … N-1 of the first part."""
        mask = np.zeros((_PARTS, DEGREE), dtype=np.uint64)
        mask[0, 1:] = Stream(derive(seed, "cosine mask")).uniform(self.prime, DEGREE - 1)
        return mask

    def _parsed(self, product: bytes) -> NDArray[np.uint64]:
        """Return the checked words of a masked product, shape (3, N); raises InvalidCiphertext."""
        if len(product) != PRODUCT_BYTES:
            raise InvalidCiphertext
        words = unpack60(product).reshape(_PARTS, DEGREE)
        if int(words.max()) >= self.prime or not words[2].any():
            raise InvalidCiphertext
        return words

    def _constant(self, decryptor: Any, words: NDArray[np.uint64]) -> int:
        """Return coefficient 0 of c0 + (c1 + c2 s) s, centred; no other one is ever formed."""
        plaintext, inner = seal.Plaintext(), seal.Ciphertext(self._context)
        heads = self._heads
        try:
            with Scratch() as scratch:
                decryptor.decrypt(self._transformed(words[1:], scratch), plaintext)
                points = scratch.dump(plaintext)[heads.plaintext_offset :]
                parts = bytes(8 * DEGREE) + points
                inner.load(self._context, scratch.put(heads.transformed, parts))
                decryptor.decrypt(inner, plaintext)
                points = scratch.dump(plaintext)[heads.plaintext_offset :]
        except Exception:
            raise InvalidCiphertext from None
        # The constant coefficient is the mean of the values at all roots; 2^12 words fit in two.
        values = np.frombuffer(points, dtype="<u8", count=DEGREE)
        low, high = values & np.uint64(0xFFFFFFFF), values >> np.uint64(32)
        mean = (int(low.sum()) + (int(high.sum()) << 32)) * self._inverse
        found = (int(words[0, 0]) + mean) % self.prime
        return found - self.prime if found > self.prime // 2 else found


@cache
def similarity() -> Similarity:
    """Return the scheme, probed once per process; raises SelfTestFailed if it does not work."""
    try:
        ring = Similarity()
        public, secret = ring.keygen()
        stream = Stream(entropy(32))
        rows = [stream.unit(_SLOTS + 1) - 0.5 for _ in range(2)]
        first, second = (ring.operand(ring.upload(public, row)) for row in rows)
        found = ring.cosine(secret, ring.product(public, first, second, stream.bytes(32)))
        secret.destroy()
    except SelfTestFailed:
        raise
    except Exception:  # whatever a binding raises here, the scheme does not work
        raise SelfTestFailed(f"{COSINE.name} did not survive a round trip.") from None
    if abs(found - float(unit(rows[0]) @ unit(rows[1]))) > 2.0**-GRID_BITS:
        raise SelfTestFailed(f"{COSINE.name} did not find a known cosine.")
    return ring
