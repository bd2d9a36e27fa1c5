"""What stands in the envelopes of matching, and what the aggregator passes on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

import numpy as np

from crypto.oprf import POINT_BYTES
from crypto.signing import canonical
from protocols.disclosures.match.guards import Match
from protocols.disclosures.match.messages import Box, Bundle, Canary, CellBoxes, CellPart
from protocols.disclosures.match.protocol.cells import NONCE_BYTES, Neighbours, Told, locked_bytes
from protocols.disclosures.match.protocol.tagging import DIGEST_BYTES, TAG_BYTES, Bytes, Tags
from protocols.errors import BadEnvelope, LocalProtocolError
from protocols.keys.pairs import BOX_OVERHEAD, close_box, open_box
from protocols.messages import Message
from protocols.plan.steps import Step
from protocols.wire.control import Acknowledgement
from protocols.wire.roles import Role
from protocols.wire.roster import Identity, Roster

# What travels while items are matched: boxes of fixed sizes, bound to run, epoch, route and kind.
#
# A box is sealed to its addressee and signed by its sender (`protocols.keys.pairs`), so the
# aggregator, which carries all of them, can neither read, alter, exchange nor replay one.

PUBLIC_KEY_BYTES = 32
"""The X25519 half of a sealing key, which stands last in it."""
_WORD, _SHORT = np.dtype("<u4"), np.dtype("<u2")


class Kind(StrEnum):
    """What a box holds."""

    POINTS = "points"  # client to tag server: to the second, what the first made of them
    ANSWER = "answer"  # tag server to client
    TAGS = "tags"  # client to matcher
    TOLD = "told"  # matcher to client
    HANDED = "handed"  # matcher to client, in the form `published`
    SHARE = "share"  # member to member of a cell: a nonce and a share


def box_length(kind: Kind, match: Match, size: int, clients: int) -> int:
    """Return how long every box of a kind is.

    Args:
        kind: of the box.
        match: the policy's guard.
        size: d, how many integers a client carries.
        clients: how many take part.
    """
    cells, published = match.cells(clients), match.form == "published"
    bits, vector = match.cap * -(-cells // 8), locked_bytes(size)
    sizes = {
        Kind.POINTS: match.places * POINT_BYTES,
        Kind.ANSWER: match.places * POINT_BYTES,
        Kind.TAGS: DIGEST_BYTES + match.cap * TAG_BYTES + vector * published,
        Kind.TOLD: DIGEST_BYTES + 4 + -(-clients // 8) + 4 * cells + bits,
        Kind.HANDED: DIGEST_BYTES + match.vectors * vector + 2 * match.cap * match.neighbours,
        Kind.SHARE: NONCE_BYTES + 4 * size,
    }
    return sizes[kind] + BOX_OVERHEAD


@dataclass(frozen=True)
class MatchRun:
    """What all parties of a matching agree on.

    Attributes:
        run: its name.
        roster: who takes part.
        match: the policy's guard.
        size: d, how many integers a client carries.
    """

    run: str
    roster: Roster
    match: Match
    size: int

    @property
    def servers(self) -> tuple[str, ...]:
        """Names of the tag servers in the order in which all clients ask them."""
        return tuple(sorted(self.roster.names(Role.TAG_SERVER)))

    @property
    def cells(self) -> int:
        """How many cells there are at most."""
        return self.match.cells(len(self.roster.clients))

    @property
    def published(self) -> bool:
        """Whether clients read single others' vectors."""
        return self.match.form == "published"

    @property
    def found(self) -> Kind:
        """The boxes that clients get of the matcher."""
        return Kind.HANDED if self.published else Kind.TOLD

    def length(self, kind: Kind) -> int:
        """Return how long every box of a kind is."""
        return box_length(kind, self.match, self.size, len(self.roster.clients))

    def _info(self, kind: Kind, epoch: int, sender: str, to: str, bound: str) -> bytes:
        return b"secure-fgl/match\0" + canonical([self.run, str(kind), epoch, sender, to, bound])

    def close(
        self, content: bytes, kind: Kind, epoch: int, me: Identity, to: str, bound: str = ""
    ) -> bytes:
        """Sign and seal content; raises BadEnvelope for a stranger.

        Args:
            content: of the kind's planned size.
            kind: of the box; bound into it, as the epoch is.
            epoch: see `kind`.
            me: signs.
            to: name of the addressee.
            bound: what else both ends must agree on (the digest of a cell).
        """
        if len(content) + BOX_OVERHEAD != self.length(kind):
            raise BadEnvelope("A box does not have the planned size; nothing was sent.")
        info = self._info(kind, epoch, me.party.name, to, bound)
        return close_box(content, me, self.roster.party(to), info)

    def open(
        self, box: bytes, kind: Kind, epoch: int, me: Identity, sender: str, bound: str = ""
    ) -> bytes:
        """Return a box's content; the arguments are those of `close`.

        Raises:
            BadEnvelope: of another size, not from `sender`, not for this party, of another kind or
                epoch, or bound to something else.
        """
        if len(box) != self.length(kind):
            raise BadEnvelope("A box does not have the planned size.")
        info = self._info(kind, epoch, sender, me.party.name, bound)
        return open_box(box, me, self.roster.party(sender), info)


def public_key(roster: Roster) -> bytes:
    """Return the key of tags in ``deterministic`` mode: the aggregator's, which all know."""
    return roster.one(Role.AGGREGATOR).seal.raw[-PUBLIC_KEY_BYTES:]


def tags_bytes(tags: Tags) -> bytes:
    """Return what the matcher gets of a client."""
    return tags.digest + tags.sent.tobytes()


def read_tags(content: bytes, cap: int) -> tuple[bytes, Bytes, bytes]:
    """Return the canary's digest, the tags, (cap, TAG_BYTES), and the locked vector, if any."""
    digest, tags, vector = _cut(content, (DIGEST_BYTES, cap * TAG_BYTES))
    return digest, np.frombuffer(tags, dtype=np.uint8).reshape(cap, TAG_BYTES), vector


def handed_bytes(found: Neighbours) -> bytes:
    """Return what a client gets of the matcher in the form `published`."""
    return found.digest + found.boxes.tobytes() + found.links.astype(_SHORT).tobytes()


def read_handed(content: bytes, run: MatchRun) -> Neighbours:
    """Return what the matcher handed over, unchecked."""
    match, vector = run.match, locked_bytes(run.size)
    digest, boxes, links = _cut(content, (DIGEST_BYTES, match.vectors * vector))
    numbers = np.frombuffer(links, dtype=_SHORT).astype(np.int64)
    return Neighbours(
        digest,
        np.frombuffer(boxes, dtype=np.uint8).reshape(match.vectors, vector),
        numbers.reshape(match.cap, match.neighbours),
    )


def told_bytes(told: Told, run: MatchRun) -> bytes:
    """Return what a client gets of the matcher, in the planned size."""
    sizes = np.zeros(run.cells, dtype=_WORD)
    sizes[: len(told.sizes)] = told.sizes
    bits = np.zeros((run.match.cap, -(-run.cells // 8)), dtype=np.uint8)
    bits[:, : told.bits.shape[1]] = told.bits
    parts = (
        told.digest,
        told.cell.to_bytes(4, "little"),
        run.roster.mask(told.members),
        sizes.tobytes(),
        bits.tobytes(),
    )
    return b"".join(parts)


def read_told(content: bytes, run: MatchRun) -> Told:
    """Return what the matcher said, unchecked; raises BadEnvelope for bits that are padding."""
    mask = -(-len(run.roster.clients) // 8)
    digest, cell, members, sizes, bits = _cut(content, (DIGEST_BYTES, 4, mask, 4 * run.cells))
    counts = np.frombuffer(sizes, dtype=_WORD).astype(np.int64)
    used = int((counts > 0).sum())
    if counts[used:].any():
        raise BadEnvelope("The matcher numbers its cells with gaps.")
    packed = np.frombuffer(bits, dtype=np.uint8).reshape(run.match.cap, -1)
    width = -(-used // 8)
    if packed[:, width:].any():
        raise BadEnvelope("The matcher names cells that there are not.")
    names = run.roster.unmask(members)
    number = int.from_bytes(cell, "little")
    return Told(digest, number, names, counts[:used], packed[:, :width].copy())


def _cut(content: bytes, sizes: Sequence[int]) -> list[bytes]:
    """Cut off parts of these sizes; the last part is the rest."""
    found, at = [], 0
    for size in sizes:
        found.append(content[at : at + size])
        at += size
    return [*found, content[at:]]


# How far one Ask's matching came at the aggregator, and which cells are whole.

M = TypeVar("M", bound=Message)


def only(messages: Sequence[Message], kind: type[M]) -> M:
    """Return the message of a kind; raises LocalProtocolError if there is none."""
    for message in messages:
        if isinstance(message, kind):
            return message
    raise LocalProtocolError(f"There is no {kind.__name__} here.")


class Broker:
    """One Ask's matching, as far as it came.

    Args:
        boxes: by client, what it sealed first: points, or in ``hmac`` mode tags.
        keyed: ``hmac`` mode.

    `phase` is the step whose answers are waited for.
    """

    def __init__(self, boxes: Mapping[str, bytes], keyed: bool) -> None:
        self.boxes = dict(boxes)
        self.phase = Step.TAGS if keyed else Step.ANSWERS
        self.here: dict[str, tuple[Message, ...]] = {}  # of this phase, by sender
        self.canary = b""
        self.cells: dict[str, int] = {}  # of the members of whole cells
        self.members: dict[int, tuple[str, ...]] = {}

    def take(self, phase: Step) -> dict[str, tuple[Message, ...]]:
        """Return everything of this phase, and go on to another."""
        found, self.here, self.phase = self.here, {}, phase
        return found


KINDS: dict[Step, tuple[type[Message], ...]] = {
    Step.ANSWERS: (Bundle,),
    Step.ONWARD: (Box,),
    Step.SECOND_ANSWERS: (Bundle,),
    Step.TAGS: (Box,),
    Step.COMPARED: (Bundle, Canary),
    Step.SPLIT: (CellBoxes,),
    Step.PART: (CellPart,),
    Step.TAKEN: (Acknowledgement,),
}
"""What an answer of a step holds."""

SERVED = (Step.ANSWERS, Step.SECOND_ANSWERS)
"""Whose turn it is among tag servers."""


def whole_cells(run: MatchRun, said: Mapping[str, tuple[int, bytes]]) -> dict[int, tuple[str, ...]]:
    """Return the members of each cell of which all sent their shares.

    Raises:
        BadEnvelope: members of a cell name other members, or a cell that there cannot be: the
            matcher told them different things, or one of them lies.
    """
    found: dict[int, tuple[str, ...]] = {}
    for name, (cell, mask) in sorted(said.items()):
        members = run.roster.unmask(mask)
        if cell >= run.cells or name not in members or found.get(cell, members) != members:
            raise BadEnvelope("Members of one cell were told different things (O25).")
        found[cell] = members
    named = [name for members in found.values() for name in members]
    if len(set(named)) != len(named):
        raise BadEnvelope("A client stands in two cells (O25).")
    return {cell: names for cell, names in found.items() if set(names) <= set(said)}
