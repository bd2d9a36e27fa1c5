"""A client's part in matching: what it does with the boxes it gets, without any transport.

docs/adr/0018 has the protocol, `tag_service` the other roles. Steps take bytes and give bytes,
each once an epoch and in order; whatever goes wrong ends the epoch, so nothing is ever answered
twice in another way. The aggregator needs no object: it carries boxes, and adds what members of a
cell send (`protocols.disclosures.match.protocol.cells.total`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from crypto.oprf import Spread
from crypto.samplers import Mute, entropy
from protocols.disclosures.match.protocol.cells import (
    NONCE_BYTES,
    CellPlace,
    Numbers,
    Told,
    blinded,
    cell_digest,
    cell_label,
    check_neighbours,
    check_told,
    held_rows,
    locked,
    opened,
    partial,
    shares,
)
from protocols.disclosures.match.protocol.tagging import TagBatch, Tags, keyed, public
from protocols.disclosures.match.protocol.wire import (
    Kind,
    MatchRun,
    public_key,
    read_handed,
    read_told,
    tags_bytes,
)
from protocols.errors import BadEnvelope, LocalProtocolError, Replay, RoundLost
from protocols.wire.roles import Role
from protocols.wire.roster import Identity

__all__ = ["ClientMatching"]

T = TypeVar("T")


class MatchStep(IntEnum):
    """What a client does next."""

    ASK = 0
    FORWARD = 1  # not in ``hmac`` mode
    HAND_OVER = 2
    SHARE = 3  # or take what is handed over, in the form `published`
    ADD = 4
    OPEN = 5
    OVER = 6


class ClientMatching(Mute):
    """A client's part in one run's matchings, one an epoch.

    Args:
        run: what all parties agree on.
        me: the client, who signs and opens.
        key: in ``hmac`` mode, 32 bytes that all clients hold.
        spread: how tags are worked through.
    """

    __slots__ = (
        "_batch",
        "_before",
        "_epoch",
        "_exchange",
        "_key",
        "_me",
        "_mine",
        "_run",
        "_spread",
        "_step",
        "_tags",
    )

    def __init__(
        self, run: MatchRun, me: Identity, *, key: bytes | None = None, spread: Spread = map
    ) -> None:
        if (run.match.mode == "hmac") is (key is None):
            raise LocalProtocolError("A key of tags is held in 'hmac' mode, and in no other.")
        self._run, self._me, self._key, self._spread = run, me, key, spread
        self._epoch, self._exchange, self._step = -1, -1, MatchStep.OVER
        self._batch: TagBatch | None = None
        self._tags: Tags | None = None
        self._mine = b""  # its vector, locked, in the form `published`
        self._before: Told | None = None  # of this run's cells, which stay

    def _do(self, step: MatchStep, work: Callable[[], T]) -> T:
        """Do one step, once and in order; whatever fails ends this epoch."""
        if self._step is not step:
            raise LocalProtocolError(f"A client's matching stands at {self._step.name}, not here.")
        self._step = MatchStep.OVER
        found = work()
        self._step = MatchStep(step + 1)
        return found

    def ask(self, epoch: int, items: Sequence[int]) -> bytes:
        """Begin an epoch: return the box for the first tag server; empty in ``hmac`` mode.

        Args:
            epoch: later than any before.
            items: chosen by `protocols.disclosures.match.protocol.tagging.chosen`.

        Raises:
            Replay: an epoch is asked for again.
        """
        if epoch <= self._epoch:
            raise Replay("A client asks for tags once an epoch (O24).")
        self._epoch, self._step, self._tags = epoch, MatchStep.ASK, None
        found = self._do(MatchStep.ASK, lambda: self._ask(items))
        if not self._run.match.servers:
            self._step = MatchStep.HAND_OVER
        return found

    def _ask(self, items: Sequence[int]) -> bytes:
        run, epoch = self._run, self._epoch
        if self._key is not None:
            self._tags = keyed(items, self._key, run.match, run.run, epoch)
            return b""
        if run.match.mode == "deterministic":
            self._tags = public(items, public_key(run.roster), run.match, run.run, epoch)
            return b""
        if len(run.servers) != 2:
            raise LocalProtocolError("The key of tags is held by two tag servers (O24).")
        self._batch = TagBatch(items, run.match, run.run, epoch, self._spread)
        return run.close(self._batch.points, Kind.POINTS, epoch, self._me, run.servers[0])

    def forward(self, answer: bytes) -> bytes:
        """Take the first tag server's box, return the box for the second.

        The points in it are the client's times the first share: a second server that saw them
        without it could give the client tags under a key that it knows.

        Raises:
            BadEnvelope: the answer is not the first server's, or holds no points.
        """
        return self._do(MatchStep.FORWARD, lambda: self._forward(answer))

    def _forward(self, answer: bytes) -> bytes:
        run, epoch = self._run, self._epoch
        if self._batch is None:
            raise LocalProtocolError("No batch of tags is under way.")
        first, second = run.servers
        points = self._batch.checked(run.open(answer, Kind.ANSWER, epoch, self._me, first))
        return run.close(points, Kind.POINTS, epoch, self._me, second)

    def hand_over(self, answer: bytes = b"", published: NDArray[np.int64] | None = None) -> bytes:
        """Take the second tag server's box, return the box for the matcher.

        Args:
            answer: empty in ``hmac`` mode.
            published: in that form, (d,) clipped, quantised and noised, for strangers to read.

        Raises:
            BadEnvelope: the answer is false, or made with more than one key.
        """
        return self._do(MatchStep.HAND_OVER, lambda: self._hand_over(answer, published))

    def _hand_over(self, answer: bytes, published: NDArray[np.int64] | None) -> bytes:
        run, batch = self._run, self._batch
        self._batch = None
        if batch is not None:
            second = run.servers[1]
            tags = batch.finish(run.open(answer, Kind.ANSWER, self._epoch, self._me, second))
            self._tags = tags
        matcher = run.roster.one(Role.MATCHER).name
        if run.published is (published is None):
            raise LocalProtocolError("A vector is published in the form of that name only.")
        self._mine = b""
        if published is not None:
            self._check_size(published)
            self._mine = locked(published, self.held.group, run.run, self._epoch)
        content = tags_bytes(self.held) + self._mine
        return run.close(content, Kind.TAGS, self._epoch, self._me, matcher)

    def _check_size(self, values: NDArray[np.int64]) -> None:
        if values.shape != (self._run.size,):
            raise LocalProtocolError("A client carries another number of integers than planned.")

    def take(self, box: bytes) -> tuple[NDArray[np.int64], dict[int, list[int]]]:
        """In the form `published`: take the matcher's box; the epoch ends.

        Returns:
            Others' vectors, (n, d), and by own item the rows that it brings.

        Raises:
            BadEnvelope: the matcher lied; see `neighbours.check_neighbours`.
        """
        found = self._do(MatchStep.SHARE, lambda: self._take(box))
        self._step = MatchStep.OVER
        return found

    def _take(self, box: bytes) -> tuple[NDArray[np.int64], dict[int, list[int]]]:
        run, where = self._run, (self._run.run, self._epoch)
        if not run.published:
            raise LocalProtocolError("Vectors are handed over in the form 'published' only.")
        matcher = run.roster.one(Role.MATCHER).name
        told = read_handed(run.open(box, Kind.HANDED, self._epoch, self._me, matcher), run)
        return check_neighbours(told, self.held, self._mine, run.match, where)

    @property
    def held(self) -> Tags:
        """This epoch's tags."""
        if self._tags is None:
            raise LocalProtocolError("There are no tags of this epoch.")
        return self._tags

    @property
    def _told(self) -> Told:
        if self._before is None:
            raise LocalProtocolError("The matcher said nothing yet.")
        return self._before

    def share(
        self, box: bytes, values: NDArray[np.int64], exchange: int, given: str = ""
    ) -> dict[str, bytes]:
        """Take the matcher's box, check it, and return a box for each member of the cell.

        So a client enters one sum an epoch, with the same others all run long (O25), whatever the
        matcher says.

        Args:
            box: the matcher's.
            values: (d,) clipped and quantised.
            exchange: number of the Ask; binds shares and blinds.
            given: digest of what the Ask handed out; binds shares.

        Raises:
            BadEnvelope: the matcher lied, or a tag server did; see `cells.check_told`.
        """
        return self._do(MatchStep.SHARE, lambda: self._share(box, values, exchange, given))

    def _share(
        self, box: bytes, values: NDArray[np.int64], exchange: int, given: str
    ) -> dict[str, bytes]:
        run, me = self._run, self._me
        self._check_size(values)
        if run.published:
            raise LocalProtocolError("Cells are added up in the form 'cell_means' only.")
        if exchange <= self._exchange:
            raise Replay("Blinds of an exchange are used once.")
        matcher = run.roster.one(Role.MATCHER).name
        told = read_told(run.open(box, Kind.TOLD, self._epoch, me, matcher), run)
        clients = run.roster.clients
        check_told(told, self.held, me.party.name, run.match, clients, self._before)
        self._before, self._exchange = told, exchange
        digest, parts = cell_digest(self._place(given)), shares(values, told.members)
        nonce = entropy(NONCE_BYTES)  # the same for all members; their hash is the cell's label
        return {
            name: run.close(nonce + part, Kind.SHARE, self._epoch, me, name, digest)
            for name, part in parts.items()
        }

    def _place(self, given: str) -> CellPlace:
        told = self._told
        return CellPlace(self._run.run, self._exchange, told.cell, told.members, given)

    @property
    def cell(self) -> int:
        """The number of this client's cell, which the aggregator needs to add."""
        return self._told.cell

    def add(self, boxes: Mapping[str, bytes], given: str = "") -> tuple[bytes, bytes]:
        """Take one box from each member; `given` is as for `share`.

        Returns:
            The cell's label, and the sum of the shares under this client's blind.

        Raises:
            RoundLost: a member's box is missing; this cell is lost, others' totals can be read.
            BadEnvelope: a box is from outside, or its sender was told or given something else.
        """
        try:
            return self._do(MatchStep.ADD, lambda: self._add(boxes, given))
        except RoundLost:
            self._step = MatchStep.OPEN
            raise

    def _add(self, boxes: Mapping[str, bytes], given: str) -> tuple[bytes, bytes]:
        run, me, place = self._run, self._me, self._place(given)
        if set(boxes) - set(place.members):
            raise BadEnvelope("A share is from outside the cell (O25).")
        digest = cell_digest(place)
        held = {
            name: run.open(box, Kind.SHARE, self._epoch, me, name, digest)
            for name, box in boxes.items()
        }
        words = partial({name: box[NONCE_BYTES:] for name, box in held.items()}, place, run.size)
        label = cell_label({name: box[:NONCE_BYTES] for name, box in held.items()}, place)
        return label, blinded(words, self.held.group, place, label, me.party.name)

    def open(
        self,
        totals: NDArray[np.uint32],
        there: NDArray[np.bool_],
        labels: Sequence[bytes],
        levels: int,
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Return all cells' means in grid steps, (cells, d), and which are usable.

        Args:
            totals: (cells, d), blinded.
            there: (cells,), which are complete.
            labels: of the cells.
            levels: the largest integer of one client.
        """
        if self._step is MatchStep.ADD:
            self._step = MatchStep.OPEN  # a member vanished: this cell is lost, the others are not
        where = (self._run.run, self._exchange)
        return self._do(
            MatchStep.OPEN,
            lambda: opened(totals, there, labels, self._told, self.held.group, where, levels),
        )

    @property
    def digest(self) -> bytes:
        """Of the canary."""
        return self.held.digest

    @property
    def members(self) -> tuple[str, ...]:
        """Who stands in this client's cell, sorted."""
        return self._told.members

    @property
    def sizes(self) -> Numbers:
        """How many stand in each cell, (cells,)."""
        return self._told.sizes

    @property
    def rows(self) -> dict[int, NDArray[np.bool_]]:
        """For each own item that enough others hold, which cells hold it, (cells,)."""
        told = self._told.rows
        return {item: told[at] for item, at in self.held.places.items() if told[at].any()}

    @property
    def lists(self) -> dict[int, Numbers]:
        """For each own item that enough others hold, the numbers of the cells that hold it."""
        return held_rows(self._told, self.held)
