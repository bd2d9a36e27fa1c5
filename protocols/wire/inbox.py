"""The inbox: what a party checks before it believes an envelope.

Order: format version, size, framing, who signed, for which run, plan and policy, on which planned
route, not seen before, not of an exchange that is over, not before what it rests on, exact size;
only then is anything decrypted, and only then are values parsed.

What comes twice, late or out of order changes nothing here. Its place in the run is what its sender
signed, so whoever carries envelopes can hold them back, and can neither have an old one taken nor
put a number into one that would keep later ones out. A sender that states too high a number keeps
out its own envelopes alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from crypto.errors import CryptoError
from crypto.hpke import SEAL_OVERHEAD
from protocols.disclosures._base.protect import sealed
from protocols.errors import BadEnvelope, NotInPlan, OtherEnvelope, Replay, WrongStage
from protocols.evidence.ledger import Ledger
from protocols.messages import Message
from protocols.plan.plan import Item
from protocols.versions import ENVELOPE
from protocols.wire.codec import decode
from protocols.wire.envelope import SIGNED, Envelope, Header, commitment, read_signed_header, route
from protocols.wire.roster import EVERYONE, Roster, cohort_digest
from protocols.wire.run_context import RunContext


@dataclass(frozen=True)
class Incoming:
    """An envelope that passed every check, with its body opened.

    Attributes:
        header: who, where, what.
        item: the plan item it belongs to.
        body: the bytes inside the seal (for SUM: ciphertexts or integers; else fields); of what a
            relay opens, the seal itself.
        envelope: as it arrived.
    """

    header: Header
    item: Item
    body: bytes = field(repr=False)
    envelope: Envelope = field(repr=False)


class Inbox:
    """The way in for one party. Raises; never returns something half-checked."""

    def __init__(self, context: RunContext, ledger: Ledger) -> None:
        self._context, self._ledger = context, ledger
        mine = (str(context.me.party.role), EVERYONE)
        self._limit = max((i.bytes for i in context.plan.items if i.recipient in mine), default=0)
        self._seen: set[tuple[str, str, int, int]] = set()
        self._newest: dict[str, tuple[int, int]] = {}  # by sender: round and exchange

    def open(
        self,
        data: bytes,
        *,
        again: bool = False,
        exchange: int | None = None,
        due: Callable[[Header, Item], None] = lambda header, item: None,
    ) -> Incoming:
        """Check and open an envelope, and record its receipt.

        Args:
            data: the envelope's bytes.
            again: these very bytes were accepted before, and their answer was cut short by a kill:
                their receipt stands in the ledger.
            exchange: the only one that an envelope may be for, where the caller knows it: a peer
                must not choose how much is remembered of it.
            due: raises WrongStage for what is authentic and comes before what it rests on.

        Raises:
            OtherEnvelope: of another version.
            BadEnvelope: malformed, unsigned, for another run, or not openable with our key.
            WrongStage: it is for another exchange, or not due yet; nothing of it is remembered.
            Replay: the same sender, item and exchange was accepted before, or a newer one of the
                same sender; nothing of it is remembered.
        """
        ENVELOPE.begins(data, OtherEnvelope)  # before the size: another version has other ones
        if len(data) > self._limit:
            raise BadEnvelope("An envelope is larger than anything planned for this party.")
        envelope = Envelope.decode(data)
        header = envelope.header
        check_signature(header, envelope.signature, self._context.roster)
        item = self._planned(header)
        label = (header.sender, header.item, header.exchange, header.attempt)
        if (label in self._seen) is not again:
            raise Replay("This envelope, or another one for the same exchange, came before.")
        if exchange not in (None, header.exchange):
            raise WrongStage("An envelope is for another exchange than the one under way.")
        place = header.round, header.exchange
        if exchange is None and place < self._newest.get(header.sender, place):
            raise Replay("An envelope is of an exchange that is over: a newer one came before.")
        if not again:
            due(header, item)
        body = self._unseal(envelope, item)
        if again:
            return Incoming(header, item, body, envelope)
        self._seen.add(label)
        if exchange is None:
            self._newest[header.sender] = place
        self._ledger.record(
            "receipt",
            {
                **route(header),
                "bytes": len(data),
                "commitment": commitment(envelope),
                "sender_head": header.head,
            },
        )
        return Incoming(header, item, body, envelope)

    def _planned(self, header: Header) -> Item:
        context, me = self._context, self._context.me.party
        check_run(header, context)
        if header.recipient not in (me.name, EVERYONE):
            raise BadEnvelope("An envelope is addressed to another party.")
        if header.sender == me.name:
            raise BadEnvelope("An envelope of this party's own came back to it.")
        try:
            item = context.item(header.item)
        except NotInPlan as error:
            raise BadEnvelope("An envelope belongs to no planned item.") from error
        if item.sender != str(context.roster.party(header.sender).role):
            raise BadEnvelope("An envelope comes from a role that does not send this item.")
        expected = EVERYONE if header.recipient == EVERYONE else str(me.role)
        if item.recipient != expected:
            raise BadEnvelope("An envelope is addressed to a role that does not get this item.")
        if header.schema != context.schemas[item.id]:
            raise BadEnvelope("An envelope was made for another schema of this item.")
        return item

    def _unseal(self, envelope: Envelope, item: Item) -> bytes:
        chain = self._context.policy.chain(item.disclosure)
        body: bytes | None = None
        relayed = self._context.relays(item)  # the relay opens it, not the aggregator (O23)
        if sealed(item, chain) and not relayed:
            info = envelope.header.encode(without_body=True)
            try:
                body = self._context.me.opening.open(info, envelope.body)
            except CryptoError as error:
                raise BadEnvelope("An envelope does not open with this party's key.") from error
        body = bytes(envelope.body) if body is None else body
        if len(body) != item.body + (SEAL_OVERHEAD if relayed else 0):
            raise BadEnvelope("A message does not have the planned size.")
        return body

    def read(self, incoming: Incoming, kinds: tuple[type[Message], ...]) -> tuple[Message, ...]:
        """Decode an envelope's fields; raises BadEnvelope if they are not exactly as planned."""
        if [kind.__name__ for kind in kinds] != [m.name for m in incoming.item.messages]:
            raise BadEnvelope("A message is not of the planned types.")
        return decode(kinds, incoming.body, self._context.dims(incoming.item))


def check_signature(header: Header, signature: bytes, roster: Roster) -> None:
    """Raise BadEnvelope unless the roster's key of the stated sender made this signature."""
    try:
        roster.party(header.sender).verify.verify(SIGNED, signature, header.encode())
    except CryptoError as error:
        raise BadEnvelope("An envelope is not signed by who it says it is from.") from error


def check_run(header: Header, context: RunContext) -> None:
    """Raise BadEnvelope unless the header is for this run, plan and policy."""
    if header.run != context.run:
        raise BadEnvelope("An envelope belongs to another run.")
    if header.plan != context.plan_digest:
        raise BadEnvelope("An envelope was made under another plan.")
    if header.policy != context.policy_digest:
        raise BadEnvelope("An envelope was made under another policy.")


# --- What a key authority or a witness checks of uploads that it is shown: their signed headers
# ---
#
# Every client signed the digest of the whole cohort that was asked, the item, the place in the run,
# the key, and the digest of what it was given. So whoever adds up or compares other uploads than
# those of one Ask has no headers to show for it.

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
