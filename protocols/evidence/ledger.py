"""The ledger: an append-only, hash-chained record of every release, receipt and refusal.

One line of canonical JSON per entry. The first says of which version the ledger is. Each entry
carries the head of the one before it; the head travels in every signed envelope header, so peers
hold it. A Merkle tree over the lines (RFC 9162) gives a signed checkpoint, so that a cut tail is
seen too. Entries of one exchange share one durable write, made *before* anything is sent.

An entry's `commitment` is SHA-256 over the envelope's bytes. Every envelope carries 16 random bytes
(the header's nonce), so a reader of the ledger cannot guess its content from the commitment.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from crypto.errors import CryptoError
from crypto.merkle import HASH_BYTES, Checkpoint, Tree, leaf_hash, perfect_tree, verify_inclusion
from crypto.samplers import entropy
from crypto.signing import SigningKey, canonical, parse
from protocols.errors import BadEnvelope, EvidenceError, LedgerError, OtherEvidence, OtherState
from protocols.plan.plan import Item
from protocols.versions import LEDGER
from protocols.wire.envelope import NONE
from protocols.wire.roles import Role

ENTRY_LIMIT = 16_384  # bytes; an entry of ours is below 1,500
KINDS = (
    "plan",
    "key",
    "release",
    "receipt",
    "refusal",
    "budget",
    "training",
    "mix",
    "withheld",
    "survivors",
    "drawn",
    "open",
    "cluster",
    "cut",
    "offered",
    "neighbourhood",
    "weights",
    "witness",
    "relay",
    "tags",
    "canary",
    "match",
    "row_tags",
    "rows",
    "captured",
    "heads",
    "taken",
    "model",
    "close",
)

_KNOWN = frozenset(KINDS)
Entry = dict[str, Any]


class Store(Protocol):
    """Where lines go. `append` returns only when they are durable, and raises OSError otherwise."""

    def append(self, lines: bytes) -> None:
        """Write complete lines durably."""


class MemoryStore:
    """Keeps lines in memory: for tests, and runs without a folder."""

    def __init__(self) -> None:
        self._lines = bytearray()  # grows in place: an aggregator's ledger has many megabytes

    @property
    def lines(self) -> bytes:
        """All lines so far; a copy."""
        return bytes(self._lines)

    def append(self, lines: bytes) -> None:
        """Keep the lines."""
        self._lines += lines


def head_of(line: bytes) -> str:
    """Return the head after an entry: SHA-256 (hex) over its line, which holds the head before."""
    return hashlib.sha256(b"secure-fgl/ledger\0" + line).hexdigest()


class Ledger:
    """One party's record of one run.

    Args:
        party: whose it is.
        run: the run's name.
        store: durable storage.
        clock: returns the time as text (UTC, seconds); injected, as this floor has no clock.
    """

    def __init__(self, party: str, run: str, store: Store, clock: Callable[[], str]) -> None:
        self.party, self.run = party, run
        self._store, self._clock = store, clock
        self._tree, self._pending, self._failed = Tree(), bytearray(), False
        self._durable = self._tree.copy()
        self.head, self.size = NONE, 0
        self._written = 0  # bytes that are durable

    def record(self, kind: str, facts: Mapping[str, Any]) -> None:
        """Append an entry; it is durable only after :meth:`commit`.

        Args:
            kind: one of :data:`KINDS`.
            facts: texts, whole numbers and lists of them; never a payload value.

        Raises:
            LedgerError: an earlier write failed; the ledger takes nothing more.
        """
        if self._failed:
            raise LedgerError("The ledger failed earlier and takes no more entries.")
        if kind not in _KNOWN:
            raise ValueError(f"unknown kind of ledger entry; known: {', '.join(KINDS)}")
        entry = {
            **facts,
            "kind": kind,
            "party": self.party,
            "prev": self.head,
            "run": self.run,
            # Heads travel in envelope headers: without 16 secret bytes a peer could confirm
            # guesses about an entry's other facts (was anything clipped, why was it refused).
            "salt": entropy(16).hex(),
            "seq": self.size,
            "time": self._clock(),
        }
        if not self.size:  # in the chain, so that no later head is one of another version
            entry["version"] = LEDGER.version
        line = canonical(entry) + b"\n"
        if len(line) > ENTRY_LIMIT:
            raise LedgerError("A ledger entry is larger than readers of ledgers accept.")
        self._failed = True  # until all of it is done: an interrupt in between must not pass
        self._pending += line
        self._tree.append(line)
        self.head, self.size = head_of(line), self.size + 1
        self._failed = False

    def commit(self) -> None:
        """Make all entries so far durable in one write.

        Raises:
            LedgerError: the write failed (full disk, no permission). The caller must send nothing.
        """
        if self._failed:
            raise LedgerError("The ledger failed earlier and takes no more entries.")
        if not self._pending:
            return
        lines, self._failed = bytes(self._pending), True
        try:
            self._store.append(lines)
        except Exception as error:  # whatever the store raises, nothing may be sent
            reason = getattr(error, "strerror", None) or type(error).__name__
            raise LedgerError(
                f"The ledger of {self.party} cannot be written ({reason}).",
                why="the disk is full, or the folder is not writable",
                fix="free some space and start the run again; nothing of this exchange was sent",
            ) from error
        self._pending.clear()
        self._written += len(lines)
        self._durable, self._failed = self._tree.copy(), False

    def facts(self) -> dict[str, Any]:
        """Return where this ledger stands, for `take_up` after its party was killed."""
        return {"head": self.head, "pending": bytes(self._pending), "written": self._written}

    @classmethod
    def take_up(
        cls,
        party: str,
        run: str,
        store: Store,
        clock: Callable[[], str],
        *,
        found: bytes,
        facts: Mapping[str, Any],
    ) -> Ledger:
        """Go on with a ledger whose party was killed.

        Args:
            party: as for a new ledger.
            run: as for a new ledger.
            store: as for a new ledger; what it appends comes after `found`.
            clock: as for a new ledger.
            found: what the store holds.
            facts: what `facts` returned when the party's state was kept, which is before the
                entries of that moment were written.

        Raises:
            LedgerError: the ledger holds other entries than the state knows of. Then the state is
                older than the ledger (put back from a backup), or the ledger was cut or changed.
            OtherState: the ledger is of another version.
        """
        _check_begun(found)
        written, pending = int(facts["written"]), bytes(facts["pending"])
        tail = found[written:]
        known = len(found) >= written and pending.startswith(tail)
        try:
            entries = read_lines(found[:written] + pending) if known else []
        except EvidenceError:
            known, entries = False, []
        made = cls(party, run, store, clock)
        for _, line in entries:
            made._tree.append(line)
            made.head, made.size = head_of(line), made.size + 1
        if not known or made.head != facts["head"]:
            raise LedgerError(
                f"The ledger of {party} and its kept state do not belong together.",
                why="one of them was put back from a backup, cut or changed",
                fix="start the run again; a state older than its ledger may not go on (O5)",
            )
        made._pending, made._written = bytearray(pending[len(tail) :]), len(found)
        if not made._pending:
            made._durable = made._tree.copy()
        return made

    def checkpoint(self, key: SigningKey) -> str:
        """Return a signed note over the tree of all entries that are durable."""
        tree = self._durable
        note = Checkpoint(origin_of(self.run, self.party), tree.size, tree.root())
        return note.sign(key, self.party)


def origin_of(run: str, party: str) -> str:
    """Return the origin line of a party's checkpoints."""
    return f"secure-fgl/{run}/{party}"


def read_lines(data: bytes) -> list[tuple[Entry, bytes]]:
    """Parse a ledger file strictly and check its chain.

    Returns:
        Each entry with the exact line it was read from.

    Raises:
        OtherEvidence: at step ``files``: its first entry says that it is of another version.
        EvidenceError: at step ``chain``: a line is not canonical, out of sequence, or does not
            follow from the one before it.
    """
    chain = Chain()
    return [(chain.take(line), line) for line in data.splitlines(keepends=True)]


class Chain:
    """Reads the lines of a ledger one after the other, each against the one before it.

    Attributes:
        head, size: after the last line, and number of lines.
    """

    def __init__(self) -> None:
        self.head, self.size = NONE, 0

    def take(self, line: bytes) -> Entry:
        """Return the entry of the next line; raises as `read_lines` does."""
        number = self.size
        try:
            entry = parse(line.rstrip(b"\n"), limit=ENTRY_LIMIT)
        except CryptoError as error:
            raise EvidenceError("chain", f"entry {number} is not canonical JSON") from error
        if not isinstance(entry, dict) or not line.endswith(b"\n"):
            raise EvidenceError("chain", f"entry {number} is not a complete line")
        _check_version(number, entry)
        if entry.get("seq") != number or entry.get("prev") != self.head:
            raise EvidenceError("chain", f"entry {number} does not follow from the one before it")
        if entry.get("kind") not in KINDS:
            raise EvidenceError("chain", f"entry {number} is of no known kind")
        self.head, self.size = head_of(line), number + 1
        return entry


def _check_begun(data: bytes) -> None:
    """Raise OtherState if a ledger begins as one of another version; what else is wrong is not."""
    try:
        entry = parse(data[:ENTRY_LIMIT].split(b"\n", 1)[0], limit=ENTRY_LIMIT)
    except CryptoError:
        return
    if isinstance(entry, dict):
        LEDGER.check(entry.get("version"), OtherState)


def _check_version(number: int, entry: Entry) -> None:
    """Raise EvidenceError unless the first entry, and no other, says that it is of this version."""
    if number:
        if "version" in entry:
            raise EvidenceError("chain", f"the ledger was begun twice, at entry {number} again")
    elif not LEDGER.check(entry.get("version"), partial(OtherEvidence, "files")):
        raise EvidenceError("chain", "entry 0 begins no ledger: it states no format version")


# --- Clients as witnesses of each other's ledgers: one root over all clients' heads with every Ask
# ---
#
# The aggregator keeps a line for each client: the last exchange in which it heard the client, and
# of each envelope that came its item, its commitment and the head of the client's ledger that it
# was signed with. With every Ask, and once more after the last, it gives all clients the Merkle
# root over these lines (RFC 9162, padded to a power of two), and each client its own line with the
# path to the root. The client
#
# * checks that its line says what it really sent: this is the receiver's signed receipt, since the
#   envelope around it is signed; a line over anything else ends the session;
# * writes the root into its own ledger, whose next head is signed with whatever it sends next.
#
# So from then on every client's signature covers every other client's ledger. Whoever wants to
# change an entry afterwards has to change the ledgers of all clients that answered a later Ask.
#
# Who sees what: a client sees digests over commitments that nobody can guess, and which of its own
# envelopes arrived. What breaks it: all clients and the aggregator rewriting together; heads that
# somebody else holds show that too. A receipt that the aggregator leaves out is recorded by the
# client (`missing`), and told from a lost envelope by nobody; so a lost envelope never ends a run.

Said = dict[str, tuple[str, str]]
"""Envelopes of one exchange: item -> its commitment and the ledger head in its header (hex)."""
Line = tuple[int, Said]
"""The last exchange in which a client was heard, and what of it came."""
SILENT: Line = (0, {})
MOST_ITEMS = 53  # that clients send; a place names them in one exact number


def received(line: Line, exchange: int, item: str, commitment: str, head: str) -> Line:
    """Return a client's line after one more envelope.

    Args:
        line: before it.
        exchange: the envelope's.
        item: the envelope's plan item, of which there is one in an exchange.
        commitment: to its bytes (hex).
        head: of the client's ledger, as its header says (hex).
    """
    said = line[1] if line[0] == exchange else {}
    return exchange, {**said, item: (commitment, head)}


def client_items(items: Iterable[Item]) -> tuple[str, ...]:
    """Return what clients send, in the plan's order: what the bits of a place stand for."""
    return tuple(item.id for item in items if item.sender == str(Role.CLIENT))


def word_of(said: Iterable[str], items: Sequence[str]) -> int:
    """Return the word whose bit i says that item i is there."""
    return sum(1 << items.index(item) for item in said)


def proof_bytes(clients: int) -> int:
    """Return the length of a client's path to the root."""
    return HASH_BYTES * max(clients - 1, 0).bit_length()


def tree(clients: Sequence[str], lines: Mapping[str, Line]) -> tuple[bytes, dict[str, bytes]]:
    """Return the root over all clients' lines, and each client's path to it.

    Args:
        clients: all on the roster, in its order.
        lines: those of clients that were heard.
    """
    leaves = [_leaf(client, lines.get(client, SILENT)) for client in clients]
    leaves += [leaf_hash(b"")] * ((1 << max(len(clients) - 1, 0).bit_length()) - len(leaves))
    root, proofs = perfect_tree(leaves)
    return root, {c: b"".join(p) for c, p in zip(clients, proofs, strict=False)}


def check_place(client: str, clients: Sequence[str], line: Line, proof: bytes, root: bytes) -> None:
    """Raise BadEnvelope unless a client's line stands under the root."""
    path = [proof[at : at + HASH_BYTES] for at in range(0, len(proof), HASH_BYTES)]
    size, place = 1 << len(path), bisect_left(clients, client)  # sorted, as in `tree`
    try:
        verify_inclusion(_leaf(client, line), place, size, path, root)
    except CryptoError as error:
        raise BadEnvelope(
            "What the aggregator says that it received is not what this client sent."
        ) from error


def _leaf(client: str, line: Line) -> bytes:
    exchange, said = line
    rows = "".join(f"\0{item}\0{said[item][0]}\0{said[item][1]}" for item in sorted(said))
    return leaf_hash(f"secure-fgl/heads\0{client}\0{exchange}{rows}".encode())


class Spoken:
    """What a client sent since the last exchange that a receipt was for, to compare the next with.

    Args:
        items: what clients send, see :func:`client_items`.
    """

    def __init__(self, items: Sequence[str]) -> None:
        self._items, self._said = tuple(items), dict[int, Said]()

    def add(self, exchange: int, item: str, commitment: str, head: str) -> None:
        """Note an envelope that leaves for the aggregator."""
        self._said.setdefault(exchange, {})[item] = commitment, head

    def line(self, exchange: int, word: int) -> tuple[Line, bool]:
        """Return the line that a receipt is for, and whether anything sent is missing in it.

        What is older than that is forgotten: no later receipt may be for it.

        Raises:
            BadEnvelope: there never was such an envelope, or a later one was acknowledged.
        """
        if (exchange, word) == (0, 0):
            return SILENT, bool(self._said)
        mine = self._said.get(exchange, {})
        named = {item for bit, item in enumerate(self._items) if word >> bit & 1}
        if not named or word >> len(self._items) or not named <= set(mine):
            raise BadEnvelope("A receipt is for what this client never sent, or is an old one.")
        missing = exchange != max(self._said) or len(named) != len(mine)
        for old in [number for number in self._said if number < exchange]:
            del self._said[old]
        return (exchange, {item: mine[item] for item in named}), missing
