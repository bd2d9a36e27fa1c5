"""Who adds up which row for whom: the matcher's rule, and what a client holds it to (O10, O24).

A row's *adders* are the clients with a node that enters it. It goes to a receiver if at least
`floor` adders besides the receiver are there, and then all of them add, so that a row that is told
is whole. Each node enters one row at most over the whole run; a row may go to several receivers.
Rows are taken one by one, those with the fewest nodes a receiver first, so that most are told; of
equals the lower tag. Then the rows that are told have no node in common, and no combination of
them, whoever pools them, rests on fewer nodes, or on fewer other clients, than one row does.

Where every client noises what it adds, `each` is larger: a node enters so many rows, as the noise
covers, and the floor is a single adder. A row counts once for whomever it is told to, since all are
told the same noised terms.
"""

from __future__ import annotations

import hmac
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

from protocols.errors import BadEnvelope

__all__ = [
    "Adding",
    "Getting",
    "Offer",
    "Orders",
    "Served",
    "assigned",
    "check_orders",
    "confirmed",
    "entered",
    "orders",
]


@dataclass(frozen=True)
class Offer:
    """What one client offers and wants, by tags.

    Attributes:
        nodes: by row, the client's nodes that enter it.
        wanted: rows that the client asks for.
    """

    nodes: Mapping[bytes, frozenset[bytes]]
    wanted: frozenset[bytes]


@dataclass(frozen=True)
class Served:
    """One row that is told: who adds to it, sorted, and who is told it, sorted.

    A receiver that is among the adders adds for the others, and knows its own terms.
    """

    row: bytes
    adders: tuple[str, ...]
    receivers: tuple[str, ...]

    def others(self, receiver: str) -> tuple[str, ...]:
        """Return who adds for one receiver."""
        return tuple(name for name in self.adders if name != receiver)


def confirmed(offers: Mapping[str, Offer]) -> dict[str, Offer]:
    """Return what of the offers the other end of each edge says, too.

    A node enters another client's row only if that client's node of this number enters the node's
    row; so nobody invents neighbours to reach the floor. A client is told rows of its own nodes
    and of those that its own have such an edge to; so nobody asks for a row by its number alone. A
    node that two clients say is theirs is nobody's.

    Args:
        offers: by client.
    """
    owner: dict[bytes, str] = {}
    claims = [(n, node) for n, one in offers.items() for of in one.nodes.values() for node in of]
    contested = {node for name, node in claims if owner.setdefault(node, name) != name}
    owner = {node: name for node, name in owner.items() if node not in contested}

    def holds(name: str, node: bytes, row: bytes) -> bool:
        other = owner.get(row)
        if owner.get(node) != name or other is None:
            return False
        return other == name or row in offers[other].nodes.get(node, ())

    found = {}
    for name, offer in offers.items():
        kept = {
            row: frozenset(node for node in of if holds(name, node, row))
            for row, of in offer.nodes.items()
        }
        nodes = {row: of for row, of in kept.items() if of}
        wanted = frozenset(r for r in offer.wanted if owner.get(r) == name or r in nodes)
        found[name] = Offer(nodes, wanted)
    return found


def assigned(offers: Mapping[str, Offer], floor: int, places: int, each: int = 1) -> list[Served]:
    """Return the rows that are told.

    Args:
        offers: by client.
        floor: adders besides the receiver, at least.
        places: rows that one client is told, and sums that it adds to, at most.
        each: rows that a node enters, at most.
    """
    possible = []
    for row in sorted({row for offer in offers.values() for row in offer.nodes}):
        adders = tuple(sorted(name for name, offer in offers.items() if offer.nodes.get(row)))
        receivers = tuple(
            sorted(
                name
                for name, offer in offers.items()
                if row in offer.wanted and len(adders) - (name in adders) >= floor
            )
        )
        if receivers:
            one = Served(row, adders, receivers)
            possible.append((len(_nodes(one, offers)) / len(receivers), row, one))
    used: Counter[bytes] = Counter()
    told, adding = dict.fromkeys(offers, 0), dict.fromkeys(offers, 0)
    found = []
    for _, _, one in sorted(possible, key=lambda entry: entry[:2]):
        nodes = _nodes(one, offers)
        more = {name: sum(r != name for r in one.receivers) for name in one.adders}
        full = any(told[r] >= places for r in one.receivers) or any(
            adding[name] + count > places for name, count in more.items()
        )
        if full or any(used[node] >= each for node in nodes):
            continue
        used.update(nodes)
        for receiver in one.receivers:
            told[receiver] += 1
        for name, count in more.items():
            adding[name] += count
        found.append(one)
    return found


def _nodes(one: Served, offers: Mapping[str, Offer]) -> frozenset[bytes]:
    """Return the nodes that leave their client in a row."""
    leaving = (name for name in one.adders if one.receivers != (name,))
    return frozenset().union(*(offers[name].nodes[one.row] for name in leaving))


@dataclass(frozen=True)
class Adding:
    """A row that a client adds to, for one receiver, with all who add for it; see `Getting`."""

    row: bytes
    receiver: str
    others: tuple[str, ...]
    secret: bytes = b""


@dataclass(frozen=True)
class Getting:
    """A row that a client is told, with all who add for it.

    `secret` is the matcher's, for those alone who have to do with the row: without it any client
    could try the tags of its quota on the labels that the aggregator sees.
    """

    row: bytes
    others: tuple[str, ...]
    secret: bytes = b""


@dataclass(frozen=True)
class Orders:
    """What the matcher tells one client.

    Attributes:
        digest: of the canary that all have.
        adding: sorted by row and receiver.
        getting: sorted by row.
    """

    digest: bytes
    adding: tuple[Adding, ...]
    getting: tuple[Getting, ...]


def orders(served: Sequence[Served], client: str, digest: bytes) -> Orders:
    """Return what one client is told of the rows."""
    adding = [
        Adding(one.row, receiver, one.others(receiver))
        for one in served
        for receiver in one.receivers
        if client in one.others(receiver)
    ]
    getting = [Getting(one.row, one.others(client)) for one in served if client in one.receivers]
    return Orders(
        digest,
        tuple(sorted(adding, key=lambda a: (a.row, a.receiver))),
        tuple(sorted(getting, key=lambda g: g.row)),
    )


def check_orders(
    told: Orders,
    me: str,
    mine: Offer,
    digest: bytes,
    floor: int,
    clients: Set[str],
    each: int = 1,
) -> None:
    """Hold the matcher to what a client can see, before anything leaves.

    Args:
        told: what the matcher said.
        me: this client.
        mine: what it offered.
        digest: of its canary.
        floor: who adds besides a receiver, at least.
        clients: who is there.
        each: rows that a node enters, at most.

    Raises:
        BadEnvelope: another canary; too few adders, strangers, or a receiver among them; a row that
            this client adds nothing to, or did not ask for; a node in too many rows; or adders of
            one row that differ between two receivers by more than these two.
    """
    if not hmac.compare_digest(told.digest, digest):
        raise BadEnvelope("The others have another canary than this client (O24).")
    for others in [a.others for a in told.adding] + [g.others for g in told.getting]:
        if len(set(others)) < floor or list(others) != sorted(set(others)):
            raise BadEnvelope(f"A row rests on fewer than {floor} clients besides its receiver.")
        if not set(others) <= clients:
            raise BadEnvelope("A row rests on clients that are not there.")
    for adding in told.adding:
        if me not in adding.others or adding.receiver in (me, *adding.others):
            raise BadEnvelope(
                "A row's receiver is among those that add to it, or its adder is not."
            )
        if adding.receiver not in clients or not mine.nodes.get(adding.row):
            raise BadEnvelope("A client is to add to a row that it has no node in.")
    for getting in told.getting:
        if me in getting.others or getting.row not in mine.wanted:
            raise BadEnvelope("A client is told a row that it did not ask for.")
    for asked in (
        [(a.row, a.receiver) for a in told.adding],
        [(g.row, me) for g in told.getting],
    ):
        if len(set(asked)) != len(asked):
            raise BadEnvelope("A row is told to one receiver twice.")
    _check_nodes(told, mine, each)
    _check_same(told, me)


def entered(told: Orders, mine: Offer) -> Counter[bytes]:
    """Return how many rows each of a client's nodes enters, whomever they are told to."""
    rows = {adding.row for adding in told.adding}
    return Counter(node for row in rows for node in mine.nodes[row])


def _check_nodes(told: Orders, mine: Offer, each: int) -> None:
    if max(entered(told, mine).values(), default=0) > each:
        raise BadEnvelope(
            f"A node was to enter {'two' if each == 1 else each + 1} rows (O25).",
            why="the matcher breaks its rule; rows with a node in common can be solved, or are "
            "more than their noise covers",
            fix="stop the run; ask who runs the matcher",
        )


def _check_same(told: Orders, me: str) -> None:
    """Two sums of one row may differ by their receivers alone: else they tell who else differs."""
    by_row: dict[bytes, list[tuple[str, frozenset[str]]]] = {}
    for adding in told.adding:
        by_row.setdefault(adding.row, []).append((adding.receiver, frozenset(adding.others)))
    for getting in told.getting:
        by_row.setdefault(getting.row, []).append((me, frozenset(getting.others)))
    for known in by_row.values():
        for receiver, others in known:
            for other, theirs in known:
                if (others ^ theirs) - {receiver, other}:
                    raise BadEnvelope("Two receivers of a row are told sums of other clients.")
