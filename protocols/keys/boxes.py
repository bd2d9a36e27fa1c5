"""Rows that one client seals for another; the aggregator relays them and learns their size.

A box is HPKE over (signature | row). HPKE's base mode does not say who sealed, so the sender signs
the row together with the info that names run, exchange, item, sender and addressee; a relay can
neither read, exchange, replay nor forge a box.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from crypto.errors import CryptoError
from crypto.hpke import SEAL_OVERHEAD
from crypto.signing.canonical import canonical
from crypto.signing.signatures import SIGNATURE_BYTES
from protocols.errors import BadEnvelope, UnfitMessage
from protocols.messages import Message, SealedMessage
from protocols.wire.codec import WIRE_DTYPE, bundle_bytes, decode, encode
from protocols.wire.control import CONTROL
from protocols.wire.roster import Identity, Party, Roster


def by_peers(kind: type[Message]) -> bool:
    """Tell whether rows of this message type are sealed by clients for clients."""
    return issubclass(kind, SealedMessage) and kind not in CONTROL


BOX_OVERHEAD = SIGNATURE_BYTES + SEAL_OVERHEAD
"""How many bytes a box is longer than its content."""


def close_box(content: bytes, me: Identity, addressee: Party, info: bytes) -> bytes:
    """Sign and seal content for one party."""
    return addressee.seal.seal(info, me.signing.sign("box", info + content) + content)


def open_box(box: bytes, me: Identity, sender: Party, info: bytes) -> bytes:
    """Return the content of a box.

    Raises:
        BadEnvelope: it does not open, or `sender` did not sign it.
    """
    try:
        opened = me.opening.open(info, box)
        signature, content = opened[:SIGNATURE_BYTES], opened[SIGNATURE_BYTES:]
        sender.verify.verify("box", signature, info + content)
    except CryptoError as error:
        raise BadEnvelope(
            "A box is not from the client it should be from.",
            why=f"{sender.name} sealed something else, or the relay exchanged it",
        ) from error
    return content


def box_bytes(kind: type[Message], dims: Mapping[str, int]) -> int:
    """Return the size of the one box that holds one row of a message."""
    return bundle_bytes((kind,), {**dims, "cohort": 1}) + BOX_OVERHEAD


def _info(run: str, exchange: int, item: str, sender: str, addressee: str) -> bytes:
    return b"secure-fgl/box\0" + canonical([run, exchange, item, sender, addressee])


def close_boxes(
    message: Message,
    me: Identity,
    roster: Roster,
    dims: Mapping[str, int],
    where: tuple[str, int, str],
) -> bytes:
    """Seal row j of every field to roster client j.

    Args:
        message: every field has the first dimension ``cohort``.
        me: the sender, who signs.
        roster: whose sorted clients are the rows.
        dims: sizes of named dimensions.
        where: run, exchange and item, bound into every box.

    Raises:
        UnfitMessage: a field without one row per client.
    """
    one, boxes = {**dims, "cohort": 1}, []
    for field in message.fields:
        shape = np.asarray(getattr(message, field.name)).shape
        if not field.shape or field.shape[0] != "cohort" or shape[:1] != (dims["cohort"],):
            raise UnfitMessage(
                f"{type(message).__name__}.{field.name} needs one row per client "
                "(first dimension 'cohort')."
            )
    for row, name in enumerate(roster.clients):
        values = {f.name: np.asarray(getattr(message, f.name))[[row]] for f in message.fields}
        content = encode([type(message)(**values)], one)
        info = _info(*where, me.party.name, name)
        boxes.append(close_box(content, me, roster.party(name), info))
    return b"".join(boxes)


def open_boxes(
    kind: type[Message],
    boxes: bytes,
    senders: tuple[str, ...],
    me: Identity,
    roster: Roster,
    dims: Mapping[str, int],
    where: tuple[str, int, str],
) -> Message:
    """Open one box per roster client; rows of clients outside `senders` are zero.

    Raises:
        BadEnvelope: a box of a sender does not open, or is not signed by that sender.
    """
    one, size = {**dims, "cohort": 1}, box_bytes(kind, dims)
    if len(boxes) != size * len(roster.clients):
        raise BadEnvelope("The relay handed on the wrong number of boxes.")
    rows: list[Message | None] = []
    for index, sender in enumerate(roster.clients):
        if sender not in senders:
            rows.append(None)
            continue
        info = _info(*where, sender, me.party.name)
        box = boxes[index * size : (index + 1) * size]
        content = open_box(box, me, roster.party(sender), info)
        rows.append(decode((kind,), content, one)[0])
    values = {}
    for field in kind.fields:
        empty = np.zeros(field.sizes(one), dtype=WIRE_DTYPE[field.wire])
        parts = [empty if row is None else getattr(row, field.name) for row in rows]
        values[field.name] = np.concatenate(parts)
    return kind(**values)
