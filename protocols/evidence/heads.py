"""Clients as witnesses of each other's ledgers: one root over all clients' heads with every Ask.

The aggregator keeps a line for each client: the last exchange in which it heard the client, and of
each envelope that came its item, its commitment and the head of the client's ledger that it was
signed with. With every Ask, and once more after the last, it gives
all clients the Merkle root over these lines (RFC 9162, padded to a power of two), and each client
its own line with the path to the root. The client

* checks that its line says what it really sent: this is the receiver's signed receipt, since the
  envelope around it is signed; a line over anything else ends the session;
* writes the root into its own ledger, whose next head is signed with whatever it sends next.

So from then on every client's signature covers every other client's ledger. Whoever wants to change
an entry afterwards has to change the ledgers of all clients that answered a later Ask.

Who sees what: a client sees digests over commitments that nobody can guess, and which of its own
envelopes arrived. What breaks it: all clients and the aggregator rewriting together; heads that
somebody else holds show that too. A receipt that the aggregator leaves out is recorded by the
client (`missing`), and told from a lost envelope by nobody; so a lost envelope never ends a run.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence

from crypto.errors import CryptoError
from crypto.signing.merkle import HASH_BYTES, leaf_hash, perfect_tree, verify_inclusion
from protocols.errors import BadEnvelope
from protocols.plan.plan import Item
from protocols.wire.roles import Role

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
