"""A client's part in rows: tags as in `match`, then sums under masks that a row's tag is bound to.

All clients draw a half of a secret for each other one and seal it; a pair's secret follows from
both halves. Of each sum, two adders share a mask, which cancels in the total over all of them, and
each adder shares a blind with the receiver, which it alone takes off. So whoever adds the sums up
sees uniform words, and a receiver that works with it sees no more than the total over the others.
There is no recovery: a sum that lacks anybody is opened by nobody.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from crypto.masks import masked
from crypto.oprf import Spread
from crypto.samplers import derive, entropy
from protocols.disclosures.match.protocol.client import ClientMatching, MatchStep
from protocols.disclosures.match.protocol.wire import Kind
from protocols.disclosures.row_sum.protocol.assignment import (
    Adding,
    Getting,
    Offer,
    Orders,
    check_orders,
)
from protocols.disclosures.row_sum.protocol.wire import (
    HALF_BYTES,
    RowRun,
    Words,
    joined_slots,
    offer_bytes,
    read_orders,
)
from protocols.errors import BadEnvelope, LocalProtocolError, Replay, UnfitMessage
from protocols.wire.roles import Role
from protocols.wire.roster import Identity

__all__ = ["MODULUS", "ClientRows"]

MODULUS = 1 << 32
Links = NDArray[np.int64]


class ClientRows(ClientMatching):
    """A client's part in the rows of one run, once.

    Args:
        run: what all parties agree on.
        me: the client, who signs and opens.
        spread: how tags are worked through.
    """

    __slots__ = ("_bound", "_halves", "_links", "_orders", "_secrets", "_wanted")

    def __init__(self, run: RowRun, me: Identity, spread: Spread = map) -> None:
        super().__init__(run, me, spread=spread)
        self._links: Links = np.zeros((2, 0), dtype=np.int64)
        self._wanted: Links = np.zeros(0, dtype=np.int64)
        self._bound = ""
        self._halves: dict[str, bytes] = {}
        self._secrets: dict[str, bytes] = {}
        self._orders: Orders | None = None

    def begin(self, epoch: int, links: Links, wanted: Links, bound: str) -> bytes:
        """Begin: return the box for the first tag server.

        Args:
            epoch: the round.
            links: (2, m) numbers of an own node, and of a row that its term enters.
            wanted: (r,) numbers of rows that are asked for.
            bound: place and cohort of the Ask, which masks are bound to.

        Raises:
            Replay: rows were asked for before in this run: a node would enter two of them.
            UnfitMessage: more numbers than the policy's quota of tags.
        """
        if self._epoch >= 0:
            raise Replay("Rows are added up once in a run: a node enters one of them (O25).")
        self._links, self._wanted, self._bound = links, wanted, bound
        items = np.union1d(np.unique(links), wanted)
        if len(items) > self.row_run.guard.cap:
            raise UnfitMessage(
                f"A client has {len(items)} own and neighbouring nodes; the policy lets it ask for "
                f"{self.row_run.guard.cap} tags.",
                fix="raise 'cap' of the guard 'rows'; it is a power of two that all clients share",
            )
        return self.ask(epoch, items.tolist())

    @property
    def row_run(self) -> RowRun:
        """What all parties agree on."""
        if not isinstance(self._run, RowRun):
            raise LocalProtocolError("This client takes no part in rows.")
        return self._run

    def _hand_over(self, answer: bytes, published: NDArray[np.int64] | None) -> bytes:
        run, batch = self.row_run, self._batch
        self._batch = None
        if batch is None:
            raise LocalProtocolError("No batch of tags is under way.")
        second = run.servers[1]
        self._tags = batch.finish(run.open(answer, Kind.ANSWER, self._epoch, self._me, second))
        pairs = [(int(node), int(row)) for node, row in self._links.T]
        content = offer_bytes(self.held, pairs, self._wanted.tolist(), run)
        matcher = run.roster.one(Role.MATCHER).name
        return run.close(content, Kind.TAGS, self._epoch, self._me, matcher)

    @property
    def offer(self) -> Offer:
        """What this client offered, by tags."""
        held = self.held
        tag = {number: held.sent[at].tobytes() for number, at in held.places.items()}
        nodes: dict[bytes, set[bytes]] = {}
        for node, row in self._links.T:
            nodes.setdefault(tag[int(row)], set()).add(tag[int(node)])
        wanted = frozenset(tag[int(row)] for row in self._wanted)
        return Offer({row: frozenset(of) for row, of in nodes.items()}, wanted)

    def halves(self, box: bytes, here: tuple[str, ...]) -> dict[str, bytes]:
        """Take the matcher's box, check it, and return a half for each other client, sealed.

        Args:
            box: the matcher's.
            here: the cohort.

        Raises:
            BadEnvelope: the matcher or a tag server lied; see `assignment.check_orders`.
        """
        return self._do(MatchStep.SHARE, lambda: self._sealed(box, here))

    def _sealed(self, box: bytes, here: tuple[str, ...]) -> dict[str, bytes]:
        run, me = self.row_run, self._me.party.name
        matcher = run.roster.one(Role.MATCHER).name
        content = run.open(box, Kind.TOLD, self._epoch, self._me, matcher)
        told = read_orders(content, self.held.sent, run)
        check_orders(told, me, self.offer, self.held.digest, run.floor, set(here), run.each)
        self._orders = told
        self._halves = {name: entropy(HALF_BYTES) for name in here if name != me}
        return {
            name: run.close(half, Kind.SHARE, self._epoch, self._me, name, self._bound)
            for name, half in self._halves.items()
        }

    @property
    def orders(self) -> Orders:
        """What the matcher told this client, checked."""
        if self._orders is None:
            raise LocalProtocolError("The matcher said nothing yet.")
        return self._orders

    def join(self, boxes: Mapping[str, bytes]) -> list[Adding]:
        """Take the others' halves; return the sums that this client adds to.

        Sums of which an adder or the receiver is away are left out: nobody could open them.

        Raises:
            BadEnvelope: a box is from a stranger, or does not open.
        """
        return self._do(MatchStep.ADD, lambda: self._joined(boxes))

    def _joined(self, boxes: Mapping[str, bytes]) -> list[Adding]:
        run, me = self.row_run, self._me.party.name
        if set(boxes) - set(self._halves):
            raise BadEnvelope("A half of a secret is from outside the cohort.")
        for name, box in boxes.items():
            theirs = run.open(box, Kind.SHARE, self._epoch, self._me, name, self._bound)
            mine = self._halves[name]
            joined = mine + theirs if me < name else theirs + mine
            self._secrets[name] = derive(joined, "row pair", run.run, run.plan, self._bound)
        self._halves = {}
        there = {me, *self._secrets}
        return [a for a in self.orders.adding if {a.receiver, *a.others} <= there]

    def slots(self, adding: list[Adding], values: NDArray[np.int64]) -> bytes:
        """Return this client's sums under masks and blinds, in the planned size.

        Args:
            adding: of `join`.
            values: (len(adding), width) integers, each in [-2^31, 2^31).
        """
        if values.shape != (len(adding), self.row_run.size):
            raise LocalProtocolError("A client adds to other rows than it was told.")
        found = {}
        for one, row in zip(adding, values, strict=True):
            label = self._label(one, one.receiver)
            found[label, one.receiver, one.others] = self._masked(one, label, row)
        return joined_slots(found, self.row_run)

    def _label(self, one: Adding | Getting, receiver: str) -> bytes:
        return self.row_run.label(one, receiver, self._bound, self.held.digest)

    def _masked(self, one: Adding, label: bytes, row: NDArray[np.int64]) -> Words:
        me = self._me.party.name
        plus = [self._pair_key("mask", n, label) for n in one.others if n > me]
        minus = [self._pair_key("mask", n, label) for n in one.others if n < me]
        blind = self._pair_key("blind", one.receiver, label)
        found = masked((row % MODULUS).astype(np.uint32), MODULUS, [*plus, blind], minus)
        return found.astype(np.uint32)

    def _pair_key(self, purpose: str, other: str, label: bytes) -> bytes:
        return derive(self._secrets[other], purpose, label)

    def opened(self, totals: Mapping[bytes, Words]) -> dict[int, tuple[int, NDArray[np.int64]]]:
        """Return the rows that are here: by number, how many add, and integers, (width,).

        Args:
            totals: by label, what the aggregator added up.
        """
        number = {self.held.sent[at].tobytes(): n for n, at in self.held.places.items()}
        me, found = self._me.party.name, {}
        for one in self.orders.getting:
            label = self._label(one, me)
            if label not in totals or not set(one.others) <= set(self._secrets):
                continue
            blinds = [self._pair_key("blind", name, label) for name in one.others]
            words = masked(totals[label], MODULUS, [], blinds).astype(np.uint32)
            values = words.view(np.int32).astype(np.int64)
            found[number[one.row]] = (len(one.others), values)
        return found

    def drop(self) -> None:
        """Forget secrets, once the rows were opened (O9)."""
        self._secrets = {}
