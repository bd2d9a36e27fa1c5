"""What recommenders with one user per client share: their messages and both sides of a round.

See `algorithms.fed_per_gnn`, `algorithms.fcf` and `algorithms.fed_mf`. Client u keeps its user's
vector and bias, the model's head. All clients share the item table and the layer over it. In a
round a client moves its user with the table as it is, and says the gradient, in what is shared, of

    L_u = 1/2 Σ_j (r̂_uj - r_uj)²   over its training ratings, on the scale from 0 to 1.

The aggregator steps along Σ_u dL_u, and the decay of the table: this is a step of training on all
users' ratings together.

Nobody asks for an item's row: every client is handed the whole table, so that a request tells
nothing. Of a large catalogue the gradient leaves in blocks of rows, one message each, the same
blocks from everybody. An item's row in the sum rests on the clients that rated it; see `Holders`
for the policies that do not let a single one be seen.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from algorithms._shared.item_messages import (
    Holders,
    ItemGradient,
    ItemRows,
    Next,
    NoisedGradient,
    Start,
)
from algorithms._shared.item_users import ROW_SCALE, SHARED_SCALE, User
from algorithms.tasks import Moments
from protocols.forms import Answer, Form
from protocols.messages import Array, Message
from protocols.rounds import Ask, Cohort, RemoteProtocolError, Reply, RoundLost, Sealed

__all__ = ["Aggregator", "Server", "forms"]

Read = Callable[[Reply], ItemGradient]
"""Reads a cohort's gradient from its answers."""


@dataclass(frozen=True)
class Server:
    """What the aggregator remembers.

    Attributes:
        start: what it hands out.
        moments: what its optimiser remembers.
    """

    start: Start
    moments: Moments = field(default_factory=dict)


@dataclass(frozen=True)
class Aggregator:
    """The aggregator's side.

    Attributes:
        user: the clients' side.
        decay: L2 coefficient of the item table, on the sum of a cohort's losses.
        cohorts: into how many fixed cohorts the clients fall; a round asks one after the other.
        holders: how many clients must have rated an item whose row is said; 1: any.
    """

    user: User
    decay: float
    cohorts: int = 1
    holders: int = 1

    def __post_init__(self) -> None:
        """Refuse what has no meaning; raises ValueError."""
        if self.decay < 0.0 or min(self.cohorts, self.holders) < 1:
            raise ValueError("out of range; needed are decay >= 0, cohorts >= 1, holders >= 1")

    def init(self, rng: np.random.Generator) -> Server:
        """Return the state before the first round."""
        task, seed = self.user.task, int(rng.integers(2**31))
        weights = task.initial(np.random.default_rng(seed))[: task.base]
        every = np.ones(self.user.table()[0], dtype=np.int64)
        return Server(Start(step=0, seed=seed, weights=weights, told=every))

    def split(self, state: Server, cohort: Cohort) -> tuple[Cohort, ...]:
        """Return the cohorts of a run, of equal sizes but for one; the same in every round."""
        rng = np.random.default_rng([state.start.seed, 1])
        return cohort.split((rng.permutation(cohort.size) % self.cohorts).tolist())

    def on_sums(
        self, state: Server, cohort: Cohort, more: tuple[Sealed, ...] = ()
    ) -> Generator[Ask, Reply, Server]:
        """Ask every cohort once, and step along each of their sums.

        Args:
            state: before the round.
            cohort: all clients.
            more: what is handed out beside the model.
        """
        if self.user.blocks == 1:
            return (yield from self.each_cohort(state, cohort, ItemGradient, self.summed, more))
        return (yield from self.each_block(state, cohort, more))

    def each_block(
        self, state: Server, cohort: Cohort, more: tuple[Sealed, ...] = ()
    ) -> Generator[Ask, Reply, Server]:
        """Ask every cohort for one block after the other, and step along all of them at once.

        Where a block is lost, the step is along those before it and the round ends, for the reason
        that `each_cohort` gives.
        """
        for number, part in enumerate(self.split(state, cohort)):
            rows: list[Array] = []
            shared: Array = np.zeros(self.dims["g"])
            try:
                first: tuple[Message | Sealed, ...] = (state.start, *more)
                for block in range(self.user.blocks):
                    given = Next(block=block) if block else first
                    reply = yield Ask(part, given=given, back=ItemGradient)
                    total = reply.total(ItemGradient)
                    rows.append(total.rows)
                    shared = shared + total.shared
            except RoundLost:
                if number == 0 and not rows:
                    raise
            if rows:
                state = self.stepped(state, ItemGradient(rows=self.joined(rows), shared=shared))
            if len(rows) < self.user.blocks:
                break
        return self.ended(state)

    def joined(self, blocks: Sequence[Array]) -> Array:
        """Return all rows of the table from the first blocks; the others are zero."""
        items, width = self.user.table()
        rows = np.zeros((items, width + 1))
        there = np.concatenate(blocks)[:items]
        rows[: len(there)] = there
        return rows

    def each_cohort(
        self,
        state: Server,
        cohort: Cohort,
        kind: type[Message],
        read: Read,
        more: tuple[Sealed, ...] = (),
    ) -> Generator[Ask, Reply, Server]:
        """Step along what each cohort says; where one is lost, the round ends with those before.

        Were the round played anew, a cohort would be summed twice at one model, and the difference
        of the two totals would be the gradient of a client that was there once (O5). The first
        cohort's loss is the round's: nothing was opened.
        """
        for number, part in enumerate(self.split(state, cohort)):
            try:
                start = state.start
                reply = yield Ask(part, given=(start, *more) if more else start, back=kind)
            except RoundLost:
                if number == 0:
                    raise
                break
            state = self.stepped(state, read(reply))
        return self.ended(state)

    def summed(self, reply: Reply) -> ItemGradient:
        """Return a cohort's gradient from its protected sum."""
        return reply.total(ItemGradient)

    def on_rows(self, state: Server, cohort: Cohort) -> Generator[Ask, Reply, Server]:
        """Step along the rows that each client shows, cohort by cohort."""
        return (yield from self.each_cohort(state, cohort, ItemRows, self.shown))

    def shown(self, reply: Reply) -> ItemGradient:
        """Return a cohort's gradient from the rows that each client shows."""
        items, width = self.user.table()
        rows = np.zeros((items + 1, width + 1))  # row `items` is nobody's
        shared = np.zeros(self.dims["g"])
        for said in reply.each(ItemRows):
            np.add.at(rows, said.number, said.rows)
            shared += said.shared
        return ItemGradient(rows=ROW_SCALE * rows[:-1], shared=SHARED_SCALE * shared)

    def on_noised(self, state: Server, cohort: Cohort) -> Generator[Ask, Reply, Server]:
        """Step along what each client says under its own noise, cohort by cohort."""
        return (yield from self.each_cohort(state, cohort, NoisedGradient, self.heard))

    def heard(self, reply: Reply) -> ItemGradient:
        """Return a cohort's gradient from what each client says by itself."""
        said = reply.each(NoisedGradient)
        rows = np.sum([one.rows for one in said], axis=0)
        return ItemGradient(rows=rows, shared=np.sum([one.shared for one in said], axis=0))

    def on_held(
        self, state: Server, cohort: Cohort, more: tuple[Sealed, ...] = ()
    ) -> Generator[Ask, Reply, Server]:
        """Count who rated what with the first sum, and train the rows that enough clients hold."""
        closed = state.start.step == 0
        start = state.start
        if closed:
            start = replace(start, told=np.zeros_like(start.told))
        try:
            given: tuple[Message | Sealed, ...] = (start, *more)
            reply = yield Ask(cohort, given=given, back=(ItemGradient, Holders))
        except RoundLost as lost:
            if closed:
                raise RemoteProtocolError(
                    "Who holds which item is counted once in a run, and that sum was lost.",
                    why="too many clients vanished in the first round",
                    fix="start a new run when they are back",
                ) from lost
            raise
        if closed:
            held = reply.total(Holders).held
            if held.max(initial=0) > reply.answers:
                raise RemoteProtocolError(
                    "More clients hold an item than answered.",
                    why="a client counts itself more than once: honest ones cannot have this total",
                )
            told = (held >= self.holders).astype(np.int64)
            state = replace(state, start=replace(start, told=told))
        return self.ended(self.stepped(state, reply.total(ItemGradient)))

    def stepped(self, state: Server, total: ItemGradient) -> Server:
        """Return the state after a step along a cohort's gradient."""
        parts = (total.rows[:, :-1].ravel(), total.rows[:, -1])
        rows = np.concatenate(parts) / ROW_SCALE
        weights = np.asarray(state.start.weights, dtype=np.float32)
        rows += self.decay * weights[: len(rows)]
        along = np.concatenate([rows, total.shared / SHARED_SCALE]).astype(np.float32)
        moved, moments = self.user.task.stepped(weights, along, state.moments)
        return Server(replace(state.start, weights=moved), moments)

    def ended(self, state: Server) -> Server:
        """Return the state after a round."""
        return replace(state, start=replace(state.start, step=state.start.step + 1))

    @property
    def dims(self) -> dict[str, int]:
        """Sizes of the messages."""
        items, width = self.user.table()
        base = self.user.task.base
        return {
            "d": base,
            "items": items,
            "block": self.user.height,
            "row": width + 1,
            "g": base - items * (width + 1),
        }


def forms(server: Aggregator) -> tuple[Form[Server], ...]:
    """Return the forms of a recommender, the preferred one first.

    The one that counts holders needs a single cohort, as one count closes the rows of all. Blocks
    are cut in the first form only.
    """
    user, found = server.user, []
    if user.blocks > 1:
        answers: dict[type[Message], Answer] = {Start: user.gradient, Next: user.rest}
        often: dict[type[Message], int] = {Next: user.blocks - 1}
        return (Form.of("secure_items", server.on_sums, answers, often),)
    # Not `moved_by_totals`: all clients would read the exact row of an item that one user rated.
    found.append(Form.of("secure_items", server.on_sums, {Start: user.gradient}))
    if server.cohorts == 1 and server.holders > 1:
        held = Form.of("held_items", server.on_held, {Start: user.counted}, holders=server.holders)
        found.append(held)
    found.append(Form.of("published", server.on_rows, {Start: user.published}))
    found.append(Form.of("noised_items", server.on_noised, {Start: user.noised}))
    return tuple(found)
