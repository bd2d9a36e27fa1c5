"""What a key authority or a witness is shown: a result, and the uploads that it comes from."""

from __future__ import annotations

from dataclasses import dataclass

from crypto.signing.signatures import SIGNATURE_BYTES
from protocols.disclosures._evaluated.ciphers import Shape, ring_of
from protocols.disclosures.names import Disclosure
from protocols.errors import BadEnvelope
from protocols.plan.steps import Step
from protocols.wire.control import Examine, Reveal
from protocols.wire.header import Header
from protocols.wire.inbox import Incoming
from protocols.wire.run_context import RunContext
from protocols.wire.upload_evidence import Wanted, place_of, verified
from protocols.wire.where import Where


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
