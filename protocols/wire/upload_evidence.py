"""What a key authority or a witness checks of uploads that it is shown: their signed headers.

Every client signed the digest of the whole cohort that was asked, the item, the place in the run,
the key, and the digest of what it was given. So whoever adds up or compares other uploads than
those of one Ask has no headers to show for it.
"""

from __future__ import annotations

from dataclasses import dataclass

from protocols.errors import BadEnvelope
from protocols.wire.envelope import read_signed_header
from protocols.wire.header import Header
from protocols.wire.inbox import check_run, check_signature
from protocols.wire.roster import cohort_digest
from protocols.wire.run_context import RunContext

Place = tuple[int, int, int]
"""Round, exchange and attempt."""


@dataclass(frozen=True)
class Wanted:
    """What the headers must say.

    Attributes:
        items: ids of the uploads' plan items that are possible.
        members: the clients who were asked, sorted: nobody else's header is taken.
        key: id of the key under which the uploads are encrypted, as far as headers hold it.
        recipient: the aggregator's name.
        place: where in the run; None: wherever the first header says.
        given: digest of what the cohort was given; None: whatever the first header says.
    """

    items: frozenset[str]
    members: tuple[str, ...]
    key: str
    recipient: str
    place: Place | None = None
    given: str | None = None


def verified(data: bytes, wanted: Wanted, context: RunContext) -> list[tuple[Header, bytes]]:
    """Check signed upload headers; return each with its own bytes, in the order shown.

    Args:
        data: the headers one after the other, padded with zeros.
        wanted: what they must say.
        context: of the party that checks.

    Raises:
        BadEnvelope: unsigned, foreign, contradictory or repeated headers.
        CohortTooSmall: fewer clients than the policy's minimum.
    """
    found: list[tuple[Header, bytes]] = []
    while any(data[:2]):  # a length of zero begins the padding
        header, signature, size = read_signed_header(data)
        check_signature(header, signature, context.roster)
        found.append((header, data[:size]))
        data = data[size:]
    if any(data):
        raise BadEnvelope("There are bytes behind the upload headers.")
    senders = [header.sender for header, _ in found]
    context.policy.check_cohort(len(senders))
    if len(set(senders)) != len(senders) or not set(senders) <= set(wanted.members):
        raise BadEnvelope("An upload is there twice, or is not from the cohort.")
    for header, _ in found:
        _check(header, found[0][0], wanted, context)
    return found


def place_of(header: Header) -> Place:
    """Return where in the run an envelope belongs."""
    return header.round, header.exchange, header.attempt


def _check(header: Header, first: Header, wanted: Wanted, context: RunContext) -> None:
    check_run(header, context)
    if header.item not in wanted.items or header.item != first.item:
        raise BadEnvelope("An upload header is of another item than the result.")
    if header.recipient != wanted.recipient:
        raise BadEnvelope("An upload header is addressed to another party than who shows it.")
    if place_of(header) != (wanted.place or place_of(first)):
        raise BadEnvelope("An upload header is of another place in the run than the result.")
    given = first.given if wanted.given is None else wanted.given
    if not header.given == given == first.given:
        raise BadEnvelope("Not all clients were given the same model (O8).")
    places = (header.round, header.attempt)
    digest = cohort_digest(context.run, context.plan_digest, *places, wanted.members)
    if header.cohort != digest:
        raise BadEnvelope("The cohort is not the one that its members signed.")
    if header.key != wanted.key:
        raise BadEnvelope("An upload was made under another key.")
