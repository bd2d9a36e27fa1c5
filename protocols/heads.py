"""Clients as witnesses of each other's ledgers: one root over all clients' heads with every Ask.

The aggregator keeps a line for each client: the last exchange in which it heard the client, how
many envelopes of it came, and a digest over those envelopes' commitments and over the heads of the
client's ledger that they were signed with. With every Ask, and once more after the last, it gives
all clients the Merkle root over these lines (RFC 9162, padded to a power of two), and each client
its own line with the path to the root. The client

* checks that its line says what it really sent: this is the receiver's signed receipt, since the
  envelope around it is signed; a line over anything else ends the session;
* writes the root into its own ledger, whose next head is signed with whatever it sends next.

So from then on every client's signature covers every other client's ledger. Whoever wants to change
an entry afterwards has to change the ledgers of all clients that answered a later Ask.

Who sees what: a client sees digests over 32 random-looking bytes each, and how many of its own
envelopes arrived. What breaks it: all clients and the aggregator rewriting together; heads that
somebody else holds show that too. A receipt that the aggregator leaves out is recorded by the
client (`missing`), and told from a lost envelope by nobody.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

from crypto.errors import CryptoError
from crypto.merkle import HASH_BYTES, leaf_hash, perfect_tree, verify_inclusion
from protocols.envelope import NONE
from protocols.errors import BadEnvelope

Line = tuple[int, int, str]
"""Last exchange heard, envelopes of it, digest (hex) over them; SILENT before the first."""
SILENT: Line = (0, 0, NONE)


def heard(line: Line, exchange: int, commitment: str, head: str) -> Line:
    """Return a client's line after one more envelope.

    Args:
        line: before it.
        exchange: the envelope's.
        commitment: to its bytes (hex).
        head: of the client's ledger, as its header says (hex).
    """
    _, number, digest = line if line[0] == exchange else (exchange, 0, NONE)
    content = f"secure-fgl/heard\0{digest}\0{commitment}\0{head}".encode()
    return exchange, number + 1, hashlib.sha256(content).hexdigest()


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
    size, place = 1 << len(path), list(clients).index(client)
    try:
        verify_inclusion(_leaf(client, line), place, size, path, root)
    except CryptoError as error:
        raise BadEnvelope(
            "What the aggregator says that it received is not what this client sent."
        ) from error


def _leaf(client: str, line: Line) -> bytes:
    exchange, number, digest = line
    return leaf_hash(f"secure-fgl/heads\0{client}\0{exchange}\0{number}\0{digest}".encode())


class Spoken:
    """A client's own lines over what it sent lately, to compare a receipt with."""

    KEPT = 8  # exchanges; a receipt is for the one before the Ask that brings it

    def __init__(self) -> None:
        self._lines: dict[int, list[Line]] = {}

    def add(self, exchange: int, commitment: str, head: str) -> None:
        """Note an envelope that leaves for the aggregator."""
        lines = self._lines.setdefault(exchange, [])
        lines.append(heard(lines[-1] if lines else SILENT, exchange, commitment, head))
        for old in sorted(self._lines)[: -self.KEPT]:
            del self._lines[old]

    def line(self, exchange: int, number: int) -> tuple[Line, bool]:
        """Return the line that a receipt is for, and whether later envelopes are missing in it.

        Raises:
            BadEnvelope: there never was such an envelope, or too long ago.
        """
        if not self._lines:
            if (exchange, number) != (0, 0):
                raise BadEnvelope("A receipt is for what this client never sent.")
            return SILENT, False
        latest = max(self._lines)
        if (exchange, number) == (0, 0):
            return SILENT, True
        lines = self._lines.get(exchange, [])
        if not 1 <= number <= len(lines):
            raise BadEnvelope("A receipt is for what this client never sent.")
        return lines[number - 1], exchange != latest or number != len(lines)
