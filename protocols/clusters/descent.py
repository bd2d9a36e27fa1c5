"""How a cluster came from all clients, cut by cut, as every Ask of it says (O5).

Sets of clients are whole numbers: bit i is client i of the roster. A cut on the wire is the round
and exchange of the cosines that it rests on, one of its sides, and the signature of who vouches for
it; what it cuts is known from the cuts before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from crypto.signing.canonical import canonical

SIGNATURE = 64
_NUMBER = 4  # bytes of a round, and of an exchange


@dataclass(frozen=True)
class Told:
    """One cut, as it is told.

    Attributes:
        round, exchange: of the cosines that it rests on.
        cluster: that it cuts.
        side: one of its sides.
        signature: of who vouches for it.
    """

    round: int
    exchange: int
    cluster: int
    side: int
    signature: bytes

    @property
    def rest(self) -> int:
        """The other side."""
        return self.cluster & ~self.side

    def text(self, run: str, plan: str) -> bytes:
        """Return what is signed of it."""
        sets = [f"{self.cluster:x}", f"{self.side:x}"]
        return canonical([run, plan, self.round, self.exchange, *sets])


def _size(clients: int) -> int:
    return 2 * _NUMBER + -(-clients // 8) + SIGNATURE


def cuts_bytes(clients: int, cuts: int) -> int:
    """Return the size of a way of so many cuts to a cluster; room for one at least."""
    return _size(clients) * max(1, cuts)


def packed(cuts: Sequence[Told], clients: int) -> bytes:
    """Return cuts as bytes, from the first on."""
    return b"".join(
        cut.round.to_bytes(_NUMBER, "little")
        + cut.exchange.to_bytes(_NUMBER, "little")
        + cut.side.to_bytes(-(-clients // 8), "little")
        + (cut.signature or bytes(SIGNATURE))
        for cut in cuts
    )


def unpacked(data: bytes, clients: int, cluster: int) -> list[Told]:
    """Return the cuts that lead from all clients towards a cluster.

    Raises:
        ValueError: a cut has no second side, or has the cluster on both.
    """
    size, here, found = _size(clients), (1 << clients) - 1, list[Told]()
    for start in range(0, len(data.rstrip(b"\0")), size):
        entry = data[start : start + size].ljust(size, b"\0")
        round, exchange = (
            int.from_bytes(entry[at : at + _NUMBER], "little") for at in (0, _NUMBER)
        )
        side = int.from_bytes(entry[2 * _NUMBER : size - SIGNATURE], "little")
        cut = Told(round, exchange, here, side, entry[size - SIGNATURE :])
        if not side or side & ~here or side == here:
            raise ValueError("a cut has one side only, or clients that were not in the cluster")
        sides = [one for one in (side, cut.rest) if cluster & ~one == 0]
        if len(sides) != 1:
            raise ValueError("a cut goes through the cluster that is said to come of it")
        found.append(cut)
        here = sides[0]
    if here != cluster:
        raise ValueError("the cuts do not lead to the cluster that is asked")
    return found
