"""What is computed on ciphertexts, witnessed and opened: cosines (O3) and weighted rows (O1, O10).

Everything here follows from plan, policy and what a party was sent, so that client, aggregator,
witness and key authority compute the same sizes, seeds and bytes. A row is one receiver's weighted
combination.

An upload is a ciphertext and the client's signature over it and over the header it left under. The
header alone would not do: its digest covers the sealed bytes, and who did not open the seal could
not tell which ciphertext a client vouched for.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from crypto.canonical import canonical
from crypto.errors import CryptoError, OutOfRange
from crypto.quantiser import Packing
from crypto.samplers import Stream, derive
from crypto.signatures import SIGNATURE_BYTES, VerifyKey
from protocols.boxes import BOX_OVERHEAD
from protocols.codec import encode
from protocols.control import CosineKey, Key, WeighKey
from protocols.disclosures import Disclosure
from protocols.envelope import Header
from protocols.errors import BadEnvelope, LocalProtocolError, UnfitMessage
from protocols.guards import Clip, Quantise, Weigh, encryption, evaluated, find
from protocols.messages import Message, PublicMessage, Vector
from protocols.plan import Item
from protocols.policy import PrivacyPolicy
from protocols.sums import SumLayout

if TYPE_CHECKING:
    from crypto.similarity import Similarity
    from crypto.weighted import WeightedBfv

EVALUATED = (Disclosure.SIMILARITY, Disclosure.WEIGHTED_SUM)
"""The disclosures whose results are computed on ciphertexts, where the policy protects them."""

COSINE_LEVELS = 1 << 14
"""Opened cosines are multiples of one over this."""


@cache
def cosine_ring() -> Similarity:
    """Return the scheme of SIMILARITY; the library is loaded when it is first needed."""
    from crypto.similarity import similarity

    return similarity()


@cache
def weigh_ring() -> WeightedBfv:
    """Return the scheme of WEIGHTED_SUM; the library is loaded when it is first needed."""
    from crypto.weighted import weighted

    return weighted()


def ring_of(disclosure: Disclosure) -> Similarity | WeightedBfv:
    """Return the scheme of a disclosure."""
    return cosine_ring() if disclosure is Disclosure.SIMILARITY else weigh_ring()


# --- keys -----------------------------------------------------------------------------------------

_KEYS: dict[Disclosure, tuple[type[PublicMessage], str]] = {
    Disclosure.SUM: (Key, "public_key"),
    Disclosure.SIMILARITY: (CosineKey, "cosine_key"),
    Disclosure.WEIGHTED_SUM: (WeighKey, "weigh_key"),
}


def keyed(items: Iterable[Item], policy: PrivacyPolicy) -> tuple[Disclosure, ...]:
    """Return for what the key authority makes keys in every epoch of a run with these items."""
    ids = [item.id for item in items]
    found = [Disclosure.SUM] if encryption(policy.rules.get(Disclosure.SUM, ())) else []
    return tuple(found + [d for d in EVALUATED if _said(ids, d, policy)])


def _said(ids: Sequence[str], disclosure: Disclosure, policy: PrivacyPolicy) -> bool:
    protected = evaluated(policy.rules.get(disclosure, ())) is not None
    return protected and any(id.endswith(f".up.{disclosure}") for id in ids)


def key_kinds(disclosures: Iterable[Disclosure]) -> tuple[type[PublicMessage], ...]:
    """Return the messages that bring these keys, in order."""
    return tuple(_KEYS[disclosure][0] for disclosure in disclosures)


def key_message(disclosure: Disclosure, raw: bytes) -> Message:
    """Return a public key as the message that brings it."""
    kind, name = _KEYS[disclosure]
    return cast(Message, kind(**{name: raw}))


def raw_key(disclosure: Disclosure, message: Message) -> bytes:
    """Return the bytes of the public key that a message brings."""
    return bytes(getattr(message, _KEYS[disclosure][1]))


# --- who witnesses --------------------------------------------------------------------------------


def witness_count(items: Iterable[Item], policy: PrivacyPolicy) -> int:
    """Return how many witnesses take part in a run with these items."""
    ids = [item.id for item in items]
    guards = [evaluated(policy.rules.get(d, ())) for d in EVALUATED if _said(ids, d, policy)]
    return max((guard.witnesses for guard in guards if guard is not None), default=0)


def witnesses_of(policy: PrivacyPolicy, disclosure: Disclosure, names: Sequence[str]) -> list[str]:
    """Return who of the roster's witnesses recomputes a disclosure: the first, sorted.

    Raises:
        LocalProtocolError: the roster has fewer than the policy asks for.
    """
    guard = evaluated(policy.chain(disclosure))
    wanted = guard.witnesses if guard is not None else 0
    if len(names) < wanted:
        raise LocalProtocolError("The roster holds fewer witnesses than the policy asks for (O4).")
    return sorted(names)[:wanted]


# --- sizes ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Shape:
    """How one evaluated message stands in ciphertexts.

    Attributes:
        disclosure: what it is.
        ciphertexts: how many one upload takes.
        layout, packing: of the integers that are weighed; None for directions.
        values: entries of the vector that is compared; 0 for what is weighed.
    """

    disclosure: Disclosure
    ciphertexts: int
    layout: SumLayout | None = None
    packing: Packing | None = None
    values: int = 0

    @property
    def upload_bytes(self) -> int:
        """Bytes of one client's ciphertexts."""
        return self.ciphertexts * ring_of(self.disclosure).ciphertext_bytes

    @property
    def result_bytes(self) -> int:
        """Bytes of one masked result: of a pair, or of a receiver."""
        if self.disclosure is Disclosure.SIMILARITY:
            from crypto.similarity import PRODUCT_BYTES

            return PRODUCT_BYTES
        return self.upload_bytes

    @property
    def coefficients(self) -> int:
        """Coefficients of one upload."""
        return self.ciphertexts * weigh_ring().degree

    @property
    def row_bytes(self) -> int:
        """Bytes of the box that holds one opened, blinded row."""
        return self.coefficients * 8 + BOX_OVERHEAD

    def results(self, clients: int) -> int:
        """Return how many results are opened for so many clients: pairs with oneself, or rows."""
        pairs = clients * (clients + 1) // 2
        return pairs if self.disclosure is Disclosure.SIMILARITY else clients


def shape_of(
    kinds: Sequence[type[Message]], policy: PrivacyPolicy, dims: Mapping[str, int]
) -> Shape:
    """Return how the one message type of an evaluated item stands in ciphertexts.

    Raises:
        ValueError: not exactly one message type, or no chain that evaluates it.
    """
    (kind,) = kinds
    chain = policy.chain(kind.disclosure)
    guard, clip, quantise = evaluated(chain), find(chain, "clip"), find(chain, "quantise")
    if guard is None:
        raise ValueError(f"{kind.disclosure} is not computed on ciphertexts under this policy")
    if kind.disclosure is Disclosure.SIMILARITY:
        from crypto.vectors import SKETCH_ABOVE, WIDTH

        (field,) = kind.fields
        values = int(np.prod(field.sizes(dims), dtype=np.int64))
        width = WIDTH if values > SKETCH_ABOVE else values
        return Shape(kind.disclosure, cosine_ring().ciphertexts(width), values=values)
    if not isinstance(guard, Weigh) or not isinstance(clip, Clip):
        raise ValueError("what is weighed is clipped, quantised and weighed")
    if not isinstance(quantise, Quantise):
        raise ValueError("what is weighed is clipped, quantised and weighed")
    layout, ring = SumLayout((kind,), clip, quantise, dims), weigh_ring()
    packing = Packing(layout.bits, guard.total, ring.plain_bits)
    count = -(-packing.coefficients(layout.length) // ring.degree)
    return Shape(kind.disclosure, max(count, 1), layout, packing)


def pairs_of(names: Sequence[str]) -> list[tuple[str, str]]:
    """Return every pair in the order in which products and cosines stand, oneself included."""
    return [(one, other) for i, one in enumerate(names) for other in names[i:]]


# --- uploads --------------------------------------------------------------------------------------

_DOMAIN = "upload"  # of the clients' signatures over their ciphertexts


@dataclass(frozen=True)
class Upload:
    """One client's ciphertexts, and what it signed.

    Attributes:
        header: the signed header that it left under, as bytes.
        signature: over that header and the ciphertexts.
        body: the ciphertexts.
    """

    header: bytes = field(repr=False)
    signature: bytes = field(repr=False)
    body: bytes = field(repr=False)


def _signed(header: Header, body: bytes) -> bytes:
    return header.encode(without_body=True) + hashlib.sha256(body).digest()


def signed_upload(body: bytes, header: Header, sign: Any) -> bytes:
    """Return the client's signature and its ciphertexts: what is sealed to the aggregator.

    Args:
        body: the ciphertexts.
        header: of the envelope; its body's digest is not known yet and is left out.
        sign: the client's `SigningKey.sign`.
    """
    return bytes(sign(_DOMAIN, _signed(header, body))) + body


def check_upload(header: Header, signature: bytes, body: bytes, key: VerifyKey) -> None:
    """Raise BadEnvelope unless a client vouched for these ciphertexts under this header."""
    try:
        key.verify(_DOMAIN, signature, _signed(header, body))
    except CryptoError as error:
        raise BadEnvelope("A client did not sign the ciphertexts that are shown as its.") from error


def split_upload(data: bytes) -> tuple[bytes, bytes]:
    """Return signature and ciphertexts of what `signed_upload` returned."""
    return data[:SIGNATURE_BYTES], data[SIGNATURE_BYTES:]


def enciphered(
    message: Message, shape: Shape, key: Any, run: str, dims: Mapping[str, int], stream: Stream
) -> tuple[bytes, bool]:
    """Return a message's ciphertexts, and whether it was clipped; at the client.

    Args:
        message: the one message of the item.
        shape: of the item.
        key: the epoch's public key.
        run: the run's name, from which the public seed of sketches follows.
        dims: sizes of named dimensions.
        stream: decides the rounding of what is weighed.

    Raises:
        UnfitMessage: wrong shape, NaN, Inf, or a vector of zeros, which has no direction.
    """
    if shape.layout is not None and shape.packing is not None:
        integers, clipped = shape.layout.encode([message], stream)
        packed = shape.packing.pack(integers.view(np.uint64))
        whole = np.zeros(shape.coefficients, dtype=np.uint64)
        whole[: packed.size] = packed
        return weigh_ring().encrypt(key, whole), clipped
    encode([message], dims)  # raises for a wrong shape, NaN and Inf
    (field,) = message.fields
    vector = np.asarray(getattr(message, field.name), dtype=np.float64).ravel()
    try:
        return cosine_ring().upload(key, _sketched(vector, shape, run)), False
    except OutOfRange as error:
        raise UnfitMessage(
            f"{type(message).__name__}.{field.name} has no direction that could be compared.",
            why="every entry is zero: nothing was learnt, or the probe does not reach this model",
            fix="check the learning rate and the data; nothing was sent",
        ) from error


def _sketched(vector: Vector, shape: Shape, run: str) -> Vector:
    from crypto.vectors import SKETCH_ABOVE, sketch

    if shape.values <= SKETCH_ABOVE:
        return vector
    return sketch(vector, derive(run.encode(), "secure-fgl", "sketch"))


# --- results --------------------------------------------------------------------------------------


def products(
    key: Any, uploads: Mapping[str, bytes], secret: bytes, label: Sequence[str]
) -> list[bytes]:
    """Return every pair's masked product (O3); at the aggregator, and again at every witness.

    Args:
        key: the epoch's public key.
        uploads: ciphertexts by client, sorted by name.
        secret: 32 bytes that the key authority never sees; every product has a seed of its own.
        label: where in the run this is: no two evaluations share a seed even with one secret.
    """
    ring, names = cosine_ring(), list(uploads)
    ready = {name: ring.operand(upload) for name, upload in uploads.items()}
    return [
        ring.product(key, ready[i], ready[j], derive(secret, "pair", *label, i, j))
        for i, j in pairs_of(names)
    ]


def rows(
    key: Any, uploads: Sequence[bytes], table: Vector, seeds: Sequence[bytes], policy: PrivacyPolicy
) -> list[bytes]:
    """Return every receiver's blinded row (O1); at the aggregator, and again at every witness.

    Raises:
        OutOfRange: a row of weights rests on too few others (O10), or cannot be opened exactly.
    """
    from crypto.weights import Weights

    guard = evaluated(policy.chain(Disclosure.WEIGHTED_SUM))
    total = guard.total if isinstance(guard, Weigh) else 0
    return weigh_ring().combine(key, uploads, Weights(table, total, policy.others), seeds)


def statement(place: Sequence[str], headers: bytes, results: bytes) -> bytes:
    """Return what a witness signs: where a result belongs, and digests of origin and result.

    Args:
        place: run, plan, Ask, its round, exchange, attempt and cohort, and the uploads' exchange.
        headers: the uploads' signed headers, padded.
        results: the masked results, padded.
    """
    digests = [hashlib.sha256(part).hexdigest() for part in (headers, results)]
    return canonical([*place, *digests])


def row_info(run: str, exchange: int, name: str, receiver: str) -> bytes:
    """Return what the box of an opened row is bound to."""
    return b"secure-fgl/row\0" + canonical([run, exchange, name, receiver])


def opened_message(kind: type[Message], shape: Shape, opened: bytes, seed: bytes) -> Message:
    """Return a receiver's combination from its opened row and the seed of its blind (O1).

    Raises:
        BadEnvelope: this is no row under this blind.
    """
    layout, packing = shape.layout, shape.packing
    if layout is None or packing is None:
        raise LocalProtocolError("Nothing was weighed.")
    ring, values = weigh_ring(), np.frombuffer(opened, dtype="<u8")
    try:
        plain = ring.subtract(values, ring.blind(seed, values.size))
        used = packing.coefficients(layout.length)
        if plain[used:].any():
            raise OutOfRange("padding")
        integers = packing.unpack(plain[:used], layout.length).astype(np.int64)
        total = layout.decode(integers, packing.cohort)[kind]
    except (CryptoError, UnfitMessage) as error:
        raise BadEnvelope("A row is not this client's combination under its blind.") from error
    shares = {f.name: getattr(total, f.name) / packing.cohort for f in kind.fields}
    return kind(**shares)
