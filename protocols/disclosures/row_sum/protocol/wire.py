"""What travels while rows are found and added up: boxes of fixed sizes, and slots of masked words.

Boxes of tags are those of `match`; here are those that differ, and the slots that members fill.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from crypto.samplers import derive
from crypto.signing import canonical
from protocols.disclosures.match.guards import Match
from protocols.disclosures.match.protocol.tagging import DIGEST_BYTES, TAG_BYTES, Bytes, Tags
from protocols.disclosures.match.protocol.wire import Kind, MatchRun, box_length
from protocols.disclosures.row_sum.guards import Rows
from protocols.disclosures.row_sum.protocol.assignment import Adding, Getting, Offer, Orders
from protocols.errors import BadEnvelope, UnfitMessage
from protocols.keys.pairs import BOX_OVERHEAD
from protocols.wire.roster import Roster

__all__ = [
    "HALF_BYTES",
    "LABEL_BYTES",
    "MOST",
    "RowRun",
    "box_bytes",
    "cut_slots",
    "joined_slots",
    "offer_bytes",
    "orders_bytes",
    "read_offer",
    "read_orders",
    "slot_bytes",
]

HALF_BYTES, LABEL_BYTES, SECRET_BYTES = 32, 16, 16
_NONE = 0xFFFF
MOST = (1 << 31) - 1
"""Words are mod 2^32, and a total has a sign."""
_SHORT = np.dtype("<u2")
Words = NDArray[np.uint32]


def box_bytes(kind: Kind, guard: Rows, width: int, clients: int) -> int:
    """Return how long every box of a kind is.

    Args:
        kind: of the box.
        guard: the policy's.
        width: of a row.
        clients: how many take part.
    """
    entry = 2 + -(-clients // 8) + SECRET_BYTES
    sizes = {
        Kind.TAGS: DIGEST_BYTES + guard.cap * (TAG_BYTES + 1) + 4 * guard.links,
        Kind.TOLD: DIGEST_BYTES + guard.rows * (2 * entry + 2),
        Kind.SHARE: HALF_BYTES,
    }
    if kind in sizes:
        return sizes[kind] + BOX_OVERHEAD
    return box_length(kind, guard.tags, width, clients)


class RowRun(MatchRun):
    """What all parties that find and add up rows agree on.

    Args:
        run: its name.
        roster: who takes part.
        size: a row's width.
        guard: the policy's.
        plan: its digest.
        floor: clients besides the receiver that a row rests on.
        each: rows that a node enters, at most.
    """

    def __init__(
        self, *, run: str, roster: Roster, size: int, guard: Rows, plan: str, floor: int, each: int
    ) -> None:
        facts = {"run": run, "roster": roster, "size": size, "each": each}
        for name, value in {**facts, "guard": guard, "plan": plan, "floor": floor}.items():
            object.__setattr__(self, name, value)

    guard: Rows
    plan: str
    floor: int
    each: int

    @property
    def match(self) -> Match:
        """How tags are made."""
        return self.guard.tags

    @property
    def most(self) -> int:
        """The largest magnitude of one adder's number, so that no total leaves its word."""
        return MOST // len(self.roster.clients)

    @property
    def mask(self) -> int:
        """Bytes of a set of clients."""
        return -(-len(self.roster.clients) // 8)

    def length(self, kind: Kind) -> int:
        """Return how long every box of a kind is."""
        return box_bytes(kind, self.guard, self.size, len(self.roster.clients))

    def _info(self, kind: Kind, epoch: int, sender: str, to: str, bound: str) -> bytes:
        facts = [self.run, self.plan, str(kind), epoch, sender, to, bound]
        return b"secure-fgl/rows\0" + canonical(facts)

    def label(self, one: Adding | Getting, receiver: str, bound: str, digest: bytes) -> bytes:
        """Return what a row's masks are bound to, and what the aggregator adds up by.

        It follows from the row's tag and the matcher's secret, which the aggregator does not know,
        nor with it a client that has nothing to do with the row; from run, plan, receiver and the
        exact adders; from the canary; and from `bound`, the Ask's place and cohort.
        """
        facts = [self.run, self.plan, bound, receiver, list(one.others)]
        content = canonical([*facts, one.row.hex(), one.secret.hex(), digest.hex()])
        return hashlib.sha256(b"secure-fgl/row label\0" + content).digest()[:LABEL_BYTES]


def offer_bytes(
    tags: Tags, links: Iterable[tuple[int, int]], wanted: Iterable[int], run: RowRun
) -> bytes:
    """Return what the matcher gets of a client.

    Args:
        tags: of this client.
        links: own node, row; by public numbers.
        wanted: rows that it asks for.
        run: sizes.

    Raises:
        UnfitMessage: more links than the policy's bucket.
    """
    pairs = sorted({(tags.places[node], tags.places[row]) for node, row in links})
    if len(pairs) > run.guard.links:
        raise UnfitMessage(
            f"A client names {len(pairs)} terms of rows; the policy has room for "
            f"{run.guard.links}.",
            fix="raise 'links' of the guard 'rows'; it is a power of two that all clients share",
        )
    table = np.full((run.guard.links, 2), _NONE, dtype=_SHORT)
    table[: len(pairs)] = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    flags = np.zeros(run.guard.cap, dtype=np.uint8)
    flags[[tags.places[row] for row in wanted]] = 1
    return tags.digest + tags.sent.tobytes() + table.tobytes() + flags.tobytes()


def read_offer(content: bytes, run: RowRun) -> tuple[bytes, Bytes, Offer]:
    """Return the canary's digest, the tags, (cap, TAG_BYTES), and the offer.

    Raises:
        BadEnvelope: tags are not sorted, a link is of a tag that there is not, or it stands twice.
    """
    cap, at = run.guard.cap, DIGEST_BYTES + run.guard.cap * TAG_BYTES
    digest, sent = content[:DIGEST_BYTES], content[DIGEST_BYTES:at]
    tags = [sent[i * TAG_BYTES : (i + 1) * TAG_BYTES] for i in range(cap)]
    if tags != sorted(set(tags)):
        raise BadEnvelope("A client's tags are not sorted, or one stands twice.")
    end = at + 4 * run.guard.links
    table = np.frombuffer(content[at:end], dtype=_SHORT).reshape(-1, 2).astype(int)
    pairs = [(a, b) for a, b in table.tolist() if (a, b) != (_NONE, _NONE)]
    flags = np.frombuffer(content[end:], dtype=np.uint8)
    if len(set(pairs)) != len(pairs) or any(max(pair) >= cap for pair in pairs):
        raise BadEnvelope("A client links what it has no tag of, or twice.")
    nodes: dict[bytes, set[bytes]] = {}
    for node, row in pairs:
        nodes.setdefault(tags[row], set()).add(tags[node])
    offer = Offer(
        {row: frozenset(held) for row, held in nodes.items()},
        frozenset(tags[i] for i in np.flatnonzero(flags).tolist()),
    )
    array = np.frombuffer(sent, dtype=np.uint8).reshape(cap, TAG_BYTES)
    return digest, array, offer


def orders_bytes(told: Orders, sent: Bytes, run: RowRun, key: bytes) -> bytes:
    """Return what a client is told, in the planned size; rows by their place among its tags.

    Args:
        told: to the client.
        sent: its tags.
        run: sizes.
        key: of the matcher, which rows' secrets follow from.
    """
    place = {row.tobytes(): at for at, row in enumerate(sent)}
    adding = [_entry(a, place, run, key, a.receiver) for a in told.adding]
    getting = [_entry(g, place, run, key) for g in told.getting]
    empty = _NONE.to_bytes(2, "little") + bytes(run.mask + SECRET_BYTES)
    missing = run.guard.rows - len(adding), run.guard.rows - len(getting)
    parts = [*adding, *[empty + bytes(2)] * missing[0], *getting, *[empty] * missing[1]]
    return told.digest + b"".join(parts)


def _entry(
    one: Adding | Getting, place: Mapping[bytes, int], run: RowRun, key: bytes, to: str = ""
) -> bytes:
    secret = derive(key, "row label", one.row, length=SECRET_BYTES)
    found = place[one.row].to_bytes(2, "little") + run.roster.mask(one.others) + secret
    return found + run.roster.place(to).to_bytes(2, "little") if to else found


def read_orders(content: bytes, sent: Bytes, run: RowRun) -> Orders:
    """Return what the matcher said, unchecked but for its form; raises BadEnvelope."""
    size, at = 2 + run.mask + SECRET_BYTES, DIGEST_BYTES
    cut = at + run.guard.rows * (size + 2)
    adding, getting = [], []
    for entry in _entries(content[at:cut], size + 2):
        number = int.from_bytes(entry[size:], "little")
        if number >= len(run.roster.clients):
            raise BadEnvelope("The matcher names a receiver that there is not.")
        row, others, secret = _row(entry, sent, run)
        adding.append(Adding(row, run.roster.clients[number], others, secret))
    for entry in _entries(content[cut:], size):
        getting.append(Getting(*_row(entry, sent, run)))
    return Orders(content[:at], tuple(adding), tuple(getting))


def _entries(data: bytes, size: int) -> list[bytes]:
    cut = [data[i : i + size] for i in range(0, len(data), size)]
    return [entry for entry in cut if int.from_bytes(entry[:2], "little") != _NONE]


def _row(entry: bytes, sent: Bytes, run: RowRun) -> tuple[bytes, tuple[str, ...], bytes]:
    at = int.from_bytes(entry[:2], "little")
    if at >= len(sent):
        raise BadEnvelope("The matcher names a tag that this client does not have.")
    end = 2 + run.mask
    others = run.roster.unmask(entry[2:end])
    return sent[at].tobytes(), others, entry[end : end + SECRET_BYTES]


def slot_bytes(width: int, mask: int) -> int:
    """Return the size of one masked sum with its label, its receiver and who adds."""
    return LABEL_BYTES + 2 + mask + 4 * width


def joined_slots(found: Mapping[tuple[bytes, str, tuple[str, ...]], Words], run: RowRun) -> bytes:
    """Return masked sums by label, receiver and adders, padded to the policy's bucket."""
    parts = [
        label + run.roster.place(to).to_bytes(2, "little") + run.roster.mask(others)
        + words.astype("<u4").tobytes()
        for (label, to, others), words in sorted(found.items())
    ]  # fmt: skip
    empty = bytes(LABEL_BYTES) + _NONE.to_bytes(2, "little") + bytes(run.mask + 4 * run.size)
    return b"".join([*parts, *[empty] * (run.guard.rows - len(parts))])


def cut_slots(data: bytes, run: RowRun) -> dict[tuple[bytes, str, tuple[str, ...]], Words]:
    """Return masked sums by label, receiver and adders; raises BadEnvelope."""
    size = slot_bytes(run.size, run.mask)
    if len(data) != size * run.guard.rows:
        raise BadEnvelope("Masked rows do not have the planned size.")
    found = {}
    for at in range(0, len(data), size):
        slot = data[at : at + size]
        number = int.from_bytes(slot[LABEL_BYTES : LABEL_BYTES + 2], "little")
        if number == _NONE:
            continue
        if number >= len(run.roster.clients):
            raise BadEnvelope("A masked row is for a receiver that there is not.")
        begin = LABEL_BYTES + 2 + run.mask
        others = run.roster.unmask(slot[LABEL_BYTES + 2 : begin])
        key = (slot[:LABEL_BYTES], run.roster.clients[number], others)
        found[key] = np.frombuffer(slot[begin:], dtype="<u4").astype(np.uint32)
    return found
