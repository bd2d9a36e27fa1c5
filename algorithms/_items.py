"""What recommenders with one user per client share: their messages and both sides of a round.

See `algorithms.fed_per_gnn`, `algorithms.fcf` and `algorithms.fed_mf`. Client u keeps its user's
vector and bias, the model's head. All clients share the item table and the layer over it. In a
round a client moves its user with the table as it is, and says the gradient, in what is shared, of

    L_u = 1/2 Σ_j (r̂_uj - r_uj)²   over its training ratings, on the scale from 0 to 1.

The aggregator steps along Σ_u dL_u, and the decay of the table: this is a step of training on all
users' ratings together.

Nobody asks for an item's row: every client is handed the whole table, so that a request tells
nothing. An item's row in the sum rests on the clients that rated it; see `Holders` for the policies
that do not let a single one be seen.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field, replace

import numpy as np

from algorithms._item_messages import Holders, ItemGradient, ItemRows, Start
from algorithms.site import Site
from algorithms.tasks import Task, Weights
from algorithms.tasks._optimisers import Moments
from algorithms.tasks.rating import RatingTask
from protocols.forms import Form
from protocols.messages import Array, Message
from protocols.rounds import Ask, Cohort, RemoteProtocolError, Replay, Reply, RoundLost

__all__ = ["Aggregator", "Holders", "ItemGradient", "ItemRows", "Start", "User", "checked", "forms"]

ROW_SCALE, SHARED_SCALE = 1 / 4, 1 / 256
"""By what gradients are multiplied in sums, which stand on a grid of a fixed width."""


def checked(task: Task, name: str) -> RatingTask:
    """Return a task that keeps a user's part at its client; raises ValueError for any other."""
    if not isinstance(task, RatingTask) or not task.alone:
        raise ValueError(
            f"{name} keeps one user's vector at each client: it needs ratings shared out by "
            "user_per_client and a model of one user, for example user_gat or user_dot "
            f"(this is a {task.spec.task} task)"
        )
    return task


@dataclass(frozen=True)
class User:
    """What one client does.

    A site's memory holds the user's part as "head", (h + 1,), and the whole model as "trained".

    Attributes:
        task: the ratings.
        steps, lr, decay: of the user's part in a round, see `algorithms.tasks._users`.
    """

    task: RatingTask
    steps: int
    lr: float
    decay: float

    def whole(self, site: Site, given: Start) -> Weights:
        """Return all weights, (size,): what was handed out, and the user's own part."""
        head = site.memory.get("head")
        if head is None:
            head = self.task.initial(np.random.default_rng(given.seed))[self.task.base :]
        return np.concatenate([np.asarray(given.weights, dtype=np.float32), head])

    def slope(self, site: Site, given: Start) -> Weights:
        """Move the user's part, remember it, and return the gradient of L_u in what is shared."""
        before = self.whole(site, given)
        steps = {"lr": self.lr, "decay": self.decay}
        found = self.task.descended(before, site, steps=self.steps, **steps)
        self.keep(site, before, found.head)
        return found.slope

    def keep(self, site: Site, weights: Weights, head: Weights) -> None:
        """Remember the user's part, in place of that in `weights`."""
        weights[self.task.base :] = head
        site.memory.update(head=head, trained=weights)

    def gradient(self, site: Site, given: Start) -> ItemGradient:
        """Train, and return what may be said of it."""
        found = np.asarray(self.slope(site, given), dtype=np.float64)
        items, width = self.table()
        rows = np.empty((items, width + 1))
        rows[:, :-1] = found[: items * width].reshape(items, width)
        rows[:, -1] = found[items * width : items * (width + 1)]
        rows *= ROW_SCALE * (given.told > 0)[:, None]
        return ItemGradient(rows=rows, shared=SHARED_SCALE * found[items * (width + 1) :])

    def published(self, site: Site, given: Start) -> ItemRows:
        """Train, and return the rows of the user's own items; the policy says what joins them."""
        dense, held = self.gradient(site, given), self.held(site)
        items, _ = self.table()
        rows, shared = dense.rows[held] / ROW_SCALE, dense.shared / SHARED_SCALE
        return ItemRows.partial(items, number=held, rows=rows, shared=shared)

    def held(self, site: Site) -> Array:
        """Return the numbers of the items that the user trains on, ascending."""
        data = site.data
        found: Array = data.items[np.unique(data.item[data.train].numpy())]
        return found

    def counted(self, site: Site, given: Start) -> tuple[ItemGradient, Holders]:
        """Return the gradient and, once in a run, which items it rests on.

        Counted twice, the totals would differ by the items of who was there once, and a row told
        before all counted may be a single user's. So with the count no row is said, and afterwards
        none beyond those that were told first. That enough clients hold these is the aggregator's
        word.

        Raises:
            Replay: asked to count again, or after rows were said.
        """
        memory, held = site.memory, np.zeros(self.table()[0], dtype=np.int64)
        if given.step:
            told = memory["told"] = (given.told > 0) & memory.get("told", True)
        elif "counted" in memory or "told" in memory:
            raise Replay("Which items a user holds is counted once in a run, with the first sum.")
        else:
            told = np.zeros(len(held), dtype=bool)
            memory["counted"] = True
            held[self.held(site)] = 1
        given = replace(given, told=told.astype(np.int64))
        return self.gradient(site, given), Holders(held=held)

    def predict(self, site: Site, given: Message | None) -> Array:
        """Return predictions of the model as received, or with None as trained."""
        weights = self.whole(site, given) if isinstance(given, Start) else site.memory["trained"]
        return self.task.predict(weights, site)

    def table(self) -> tuple[int, int]:
        """Return how many items there are, and the width of their vectors."""
        items, width = dict(self.task.layout())["items.table"]
        return items, width


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

    def on_sums(self, state: Server, cohort: Cohort) -> Generator[Ask, Reply, Server]:
        """Ask every cohort once, and step along each of their sums."""
        return (yield from self.each_cohort(state, cohort, ItemGradient, self.summed))

    def each_cohort(
        self, state: Server, cohort: Cohort, kind: type[Message], read: Read
    ) -> Generator[Ask, Reply, Server]:
        """Step along what each cohort says; where one is lost, the round ends with those before.

        Were the round played anew, a cohort would be summed twice at one model, and the difference
        of the two totals would be the gradient of a client that was there once (O5). The first
        cohort's loss is the round's: nothing was opened.
        """
        for number, part in enumerate(self.split(state, cohort)):
            try:
                reply = yield Ask(part, given=state.start, back=kind)
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

    def on_held(self, state: Server, cohort: Cohort) -> Generator[Ask, Reply, Server]:
        """Count who rated what with the first sum, and train the rows that enough clients hold."""
        closed = state.start.step == 0
        start = state.start
        if closed:
            start = replace(start, told=np.zeros_like(start.told))
        try:
            reply = yield Ask(cohort, given=start, back=(ItemGradient, Holders))
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
        return {"d": base, "items": items, "row": width + 1, "g": base - items * (width + 1)}


def forms(server: Aggregator) -> tuple[Form[Server], ...]:
    """Return the forms of a recommender, the preferred one first.

    The one that counts holders needs a single cohort, as one count closes the rows of all.
    """
    user, found = server.user, []
    found.append(Form.of("secure_items", server.on_sums, {Start: user.gradient}))
    if server.cohorts == 1 and server.holders > 1:
        held = Form.of("held_items", server.on_held, {Start: user.counted}, holders=server.holders)
        found.append(held)
    found.append(Form.of("published", server.on_rows, {Start: user.published}))
    return tuple(found)
