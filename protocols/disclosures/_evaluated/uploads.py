"""Signed uploads of ciphertexts, requests to open a result of them, and the results."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from crypto.errors import CryptoError, OutOfRange
from crypto.homomorphic.he import PublicKey
from crypto.samplers import Stream, derive
from crypto.signing import SIGNATURE_BYTES, VerifyKey, canonical
from protocols.disclosures._evaluated.ciphers import Shape, cosine_ring, ring_of, weigh_ring
from protocols.disclosures._evaluated.guards import evaluated
from protocols.disclosures.names import Disclosure
from protocols.disclosures.weighted_sum.guards import Weigh
from protocols.errors import BadEnvelope, LocalProtocolError, UnfitMessage
from protocols.messages import Message, Vector
from protocols.plan.steps import Step
from protocols.policy.policy import PrivacyPolicy
from protocols.wire.codec import encode
from protocols.wire.control import Examine, Reveal
from protocols.wire.envelope import Header, Where
from protocols.wire.inbox import Incoming, Wanted, place_of, verified
from protocols.wire.run_context import RunContext

# Uploads that results are computed on while they are encrypted, and these results.
#
# Everything here follows from what a party was sent, so that client, aggregator, witness and key
# authority compute the same bytes. A row is one receiver's weighted combination.
#
# An upload is a ciphertext and the client's signature over it and over the header it left under.
# The header alone would not do: its digest covers the sealed bytes, and who did not open the seal
# could not tell which ciphertext a client signed.

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


def signed_upload(body: bytes, header: Header, sign: Callable[[str, bytes], bytes]) -> bytes:
    """Return the client's signature and its ciphertexts: what is sealed to the aggregator.

    Args:
        body: the ciphertexts.
        header: of the envelope; its body's digest is not known yet and is left out.
        sign: the client's `SigningKey.sign`.
    """
    return sign(_DOMAIN, _signed(header, body)) + body


def check_upload(header: Header, signature: bytes, body: bytes, key: VerifyKey) -> None:
    """Raise BadEnvelope unless a client signed these ciphertexts under this header."""
    try:
        key.verify(_DOMAIN, signature, _signed(header, body))
    except CryptoError as error:
        raise BadEnvelope("A client did not sign the ciphertexts that are shown as its.") from error


def split_upload(data: bytes) -> tuple[bytes, bytes]:
    """Return signature and ciphertexts of what `signed_upload` returned."""
    return data[:SIGNATURE_BYTES], data[SIGNATURE_BYTES:]


def enciphered(
    message: Message,
    shape: Shape,
    key: PublicKey,
    run: str,
    dims: Mapping[str, int],
    stream: Stream,
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
    from crypto.homomorphic.similarity import SKETCH_ABOVE, sketch

    if shape.values <= SKETCH_ABOVE:
        return vector
    return sketch(vector, derive(run.encode(), "secure-fgl", "sketch"))


# --- results --------------------------------------------------------------------------------------


def pairs_of(names: Sequence[str]) -> list[tuple[str, str]]:
    """Return every pair in the order in which products and cosines stand, oneself included."""
    return [(one, other) for i, one in enumerate(names) for other in names[i:]]


def products(
    key: PublicKey, uploads: Mapping[str, bytes], secret: bytes, label: Sequence[str]
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
    key: PublicKey,
    uploads: Sequence[bytes],
    table: Vector,
    seeds: Sequence[bytes],
    policy: PrivacyPolicy,
) -> list[bytes]:
    """Return every row, blinded (O1); at the aggregator, and again at every witness.

    Args:
        key: the epoch's public key.
        uploads: ciphertexts, sorted by client.
        table: integer weights, (K, K).
        seeds: of every receiver's blind; receivers of one row have one.
        policy: says how many others a row rests on.

    Raises:
        OutOfRange: a row of weights rests on too few others (O10), or cannot be opened exactly.
    """
    from crypto.homomorphic.weighted import Weights

    guard = evaluated(policy.chain(Disclosure.WEIGHTED_SUM))
    total = guard.total if isinstance(guard, Weigh) else 0
    numbers = row_numbers(table)
    chosen = [numbers.index(number) for number in range(max(numbers) + 1)]
    weights = Weights(table, total, policy.others)
    return weigh_ring().combine(key, uploads, weights, [seeds[i] for i in chosen], chosen)


def row_numbers(table: Vector) -> tuple[int, ...]:
    """Return which row each receiver is handed: receivers of equal weights share one.

    Numbered in the order in which they first come. Whoever shares a row would learn the very same
    from one of its own, so one is combined, blinded and opened for all of them.
    """
    seen: dict[bytes, int] = {}
    rows = np.ascontiguousarray(table, dtype=np.int64)
    return tuple([seen.setdefault(row.tobytes(), len(seen)) for row in rows])


_SOLVED = 1 - 1e-6  # of a combination's squared weights in one other: all of them, but for rounding


def whole_table(table: Vector, names: Sequence[str], clients: Sequence[str]) -> Vector:
    """Return weights of some clients as a table over the whole roster, (K, K), one byte each."""
    places = np.array([clients.index(name) for name in names])
    whole = np.zeros((len(clients), len(clients)), dtype=np.uint8)  # a row's total is 128
    whole[np.ix_(places, places)] = table
    return whole


def facts_of_rows(tables: Sequence[Vector], seeds: Sequence[bytes]) -> dict[str, object]:
    """Return what the ledgers of aggregator and witness say of the weights of a round (O10).

    ``rank``: how many independent combinations of others one receiver was handed at most;
    ``solved``: for how many single others one receiver could solve at most, did what is weighed not
    change from round to round; ``group``: on how many others in effect that row of this round rests
    which rests on the fewest, in thousandths, 0 if none rests on others; ``table``: a digest of
    this round's weights. It covers the blinds' seeds, which no reader of a ledger has, so that
    nobody finds the weights by trying.

    Args:
        tables: of all rounds so far, (K, K) each, over the whole roster; the last is this round's.
        seeds: of every receiver's blind in this round.
    """
    stacked = np.stack(tables, axis=1).astype(np.float64)  # receiver, round, client
    others = 1.0 - np.eye(len(stacked))
    found = [_solved(mine * mask) for mine, mask in zip(stacked, others, strict=True)]
    table = np.asarray(tables[-1], dtype=np.uint8).tobytes()
    digest = hashlib.sha256(b"secure-fgl/weights\0" + b"".join(seeds) + table)
    rank, solved = (max(column) for column in zip(*found, strict=True))
    group = _group(np.asarray(tables[-1], dtype=np.int64))
    return {"group": group, "rank": rank, "solved": solved, "table": digest.hexdigest()}


def _group(table: Vector) -> int:
    """Return the fewest others in effect of any row with others, in thousandths (O10)."""
    found = []
    for place, row in enumerate(table):
        others = np.delete(row, place)
        if total := int(others.sum()):
            found.append(1000 * total * total // int(others @ others))
    return min(found, default=0)


def _solved(combined: Vector) -> tuple[int, int]:
    """Return the rank of one receiver's rows, and how many unit vectors lie in their span.

    The largest share that one other has in the squared weights of any combination of rows is its
    diagonal entry of the projection onto their span.
    """
    _, sizes, directions = np.linalg.svd(combined, full_matrices=False)
    bound = sizes.max(initial=0.0) * max(combined.shape) * np.finfo(np.float64).eps
    directions = directions[sizes > bound]
    return len(directions), int(((directions**2).sum(axis=0) > _SOLVED).sum())


def statement(
    place: Sequence[str], headers: bytes, results: bytes, numbers: Sequence[int]
) -> bytes:
    """Return what a witness signs: where a result belongs, digests of origin and result, for whom.

    Args:
        place: run, plan, Ask, its round, exchange, attempt and cohort, and the uploads' exchange.
        headers: the uploads' signed headers, padded.
        results: the masked results, padded.
        numbers: of each receiver's row; none for cosines.
    """
    digests = [hashlib.sha256(part).hexdigest() for part in (headers, results)]
    return canonical([*place, *digests, [*numbers]])


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


# What the aggregator holds of a result that is computed on ciphertexts, until it is opened.


@dataclass
class Uploads:
    """What came back of one evaluated message, until it was used (O9).

    Attributes:
        where: of the Ask that brought it.
        uploads: by client, sorted.
    """

    where: Where
    uploads: dict[str, Upload] = field(repr=False)


@dataclass
class Evaluation:
    """One result on its way to being opened.

    Attributes:
        disclosure: of the result.
        name: of the Ask that it belongs to.
        where: its place.
        members: who was asked for the uploads.
        names: whose uploads they are, sorted.
        source: number of the exchange that brought them.
        headers: their signed headers, padded.
        results: masked, padded; dropped when they were sent to be opened.
        numbers: of the row that each of `names` is handed; none for cosines.
        signatures: witness -> what it signed.
        opened: what the key authority returned.
        cut: how it cuts the cluster that was compared; None where none is signed.
    """

    disclosure: Disclosure
    name: str
    where: Where
    members: tuple[str, ...]
    names: tuple[str, ...]
    source: int
    headers: bytes = field(repr=False)
    results: bytes = field(repr=False)
    numbers: tuple[int, ...] = ()
    signatures: dict[str, bytes] = field(default_factory=dict)
    opened: Message | None = None
    cut: Message | None = None


# What a key authority or a witness is shown: a result, and the uploads that it comes from.


@dataclass(frozen=True)
class RequestedUploads:
    """Uploads whose signed headers were checked.

    Attributes:
        name: of the Ask that the result belongs to.
        where: its place: the Ask whose uploads are compared, or which hands the rows out.
        members: who was asked for the uploads, sorted.
        names: whose uploads these are, in the order shown, which is sorted.
        headers: their headers.
        source: number of the exchange in which they were uploaded.
        shape: of an upload.
        place: what a witness signs beside the digests.
    """

    name: str
    where: Where
    members: tuple[str, ...]
    names: tuple[str, ...]
    headers: tuple[Header, ...]
    source: int
    shape: Shape
    place: tuple[str, ...]


def place_of_result(
    context: RunContext, name: str, disclosure: Disclosure, where: Where, source: int
) -> tuple[str, ...]:
    """Return where a result belongs, as texts: run, plan, Ask, its numbers, cohort, and origin."""
    numbers = (where.round, where.exchange, where.attempt)
    texts = (f"{number}" for number in numbers)
    cohort, run = context.cohort(where), (context.run, context.plan_digest)
    return (*run, f"{name}.{disclosure}", *texts, cohort, f"{source}")


def requested_uploads(
    request: Reveal | Examine,
    incoming: Incoming,
    name: str,
    disclosure: Disclosure,
    context: RunContext,
) -> RequestedUploads:
    """Check the signed headers of what is to be examined or opened (O4, O5, O8).

    Args:
        request: as it was read.
        incoming: that brought it.
        name: of the Ask.
        disclosure: of the result.
        context: of the party that checks.

    Raises:
        BadEnvelope: headers that do not belong together, or another cohort than stated.
        CohortTooSmall: fewer clients than the policy's minimum.
    """
    header = incoming.header
    members = context.roster.unmask(request.members)
    asked = context.roster.unmask(request.cohort)
    where = Where(header.round, header.exchange, asked, header.given, header.attempt)
    if not asked or header.cohort != context.cohort(where):
        raise BadEnvelope("The cohort is not the one that its header names.")
    cosines = disclosure is Disclosure.SIMILARITY
    wanted = Wanted(
        items=frozenset(upload_items(context, name, disclosure)),
        members=members,
        key=context.key_of(disclosure).key_id[:16],
        recipient=header.sender,
        place=place_of(header) if cosines else None,
        given=header.given if cosines else None,
    )
    found = tuple(upload for upload, _ in verified(request.headers, wanted, context))
    names, first = tuple(upload.sender for upload in found), found[0]
    if list(names) != sorted(names):
        raise BadEnvelope("Uploads are not shown in their order.")
    if cosines and asked != members:
        raise BadEnvelope("The cohort is not the one that its members signed.")
    if not cosines:
        _check_rows(header, first, asked, names)
    size = context.item(first.item).body - SIGNATURE_BYTES
    shape = Shape(disclosure, size // ring_of(disclosure).ciphertext_bytes)
    place = place_of_result(context, name, disclosure, where, first.exchange)
    return RequestedUploads(name, where, members, names, found, first.exchange, shape, place)


def _check_rows(
    header: Header, first: Header, asked: tuple[str, ...], names: tuple[str, ...]
) -> None:
    """Check that rows are of this round's uploads, which came before, and for who made them."""
    if first.round != header.round or first.exchange >= header.exchange:
        raise BadEnvelope("Messages are weighed in the round that brought them, and afterwards.")
    if not set(asked) <= set(names):
        raise BadEnvelope("A row is for a client that gave nothing.")


def upload_items(context: RunContext, name: str, disclosure: Disclosure) -> list[str]:
    """Return the plan items whose uploads an Ask's result of this disclosure may come from."""
    if disclosure is Disclosure.SIMILARITY:
        return [context.find(name, disclosure, Step.UP).id]
    return [item.id for item in context.plan.all_of(disclosure, Step.UP)]
