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

from collections.abc import Generator
from dataclasses import dataclass, field, replace

import numpy as np

from algorithms.site import Site
from algorithms.tasks import Task, Weights
from algorithms.tasks._optimisers import Moments
from algorithms.tasks.rating import RatingTask
from protocols.forms import Form
from protocols.messages import (
    Array,
    Matrix,
    Message,
    NoisedMessage,
    ReleasedMessage,
    SumMessage,
    Vector,
    count,
    real,
)
from protocols.rounds import Ask, Cohort, Reply

__all__ = ["Aggregator", "Holders", "ItemGradient", "ItemRows", "Start", "User", "checked", "forms"]

ROW_SCALE, SHARED_SCALE = 1 / 4, 1 / 256
"""By what gradients are multiplied where they are said: sums stand on a grid of a fixed width."""


class Start(ReleasedMessage):
    """The shared part of the model; the whole item table, for everybody."""

    step: int = count(unit="round", meaning="rounds done so far")
    seed: int = count(unit="seed", meaning="seed of the starting weights and of the cohorts")
    weights: Vector = real("d", unit="weight", meaning="item table, biases and layer", wire="f4")
    told: Vector = count("items", unit="0 or 1", meaning="1: a gradient of this item may be said")


class ItemGradient(SumMessage):
    """The gradient of one user's loss; zero in the row of every item that it did not rate."""

    rows: Matrix = real(
        "items",
        "row",
        unit="scale x loss/weight",
        meaning="gradient in an item's vector and bias",
        held=True,
    )
    shared: Vector = real("g", unit="scale x loss/weight", meaning="gradient in mean and layer")


class Holders(SumMessage):
    """Who trains on which item, once in a run; zeros wherever it is not asked for.

    Its total is how many users of the cohort trained on each item: it is disclosed, and a one says
    that somebody did, not who and not how.
    """

    held: Vector = count("items", unit="client", meaning="1: the user has a training rating of it")


class ItemRows(NoisedMessage):
    """One user's gradient by itself: the rows of the items that it rated, among others (published).

    The receiver reads every row. Only a policy with an Unsafe guard lets it out.
    """

    number: Vector = count("sent", unit="item", meaning="whose row stands here")
    rows: Matrix = real(
        "sent", "row", unit="scale x loss/weight", meaning="gradient in an item's vector and bias"
    )
    shared: Vector = real("g", unit="scale x loss/weight", meaning="gradient in mean and layer")


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
        return ItemRows.partial(items, number=held, rows=dense.rows[held], shared=dense.shared)

    def held(self, site: Site) -> Array:
        """Return the numbers of the items that the user trains on, ascending."""
        data = site.data
        found: Array = data.items[np.unique(data.item[data.train].numpy())]
        return found

    def counted(self, site: Site, given: Start) -> tuple[ItemGradient, Holders]:
        """Return the gradient and, before anything was trained, which items it rests on.

        That is asked for with the one sum of the first round: if that round is lost, nothing of it
        was opened, so no two totals tell the items of the users by which they differ.
        """
        held = np.zeros(self.table()[0], dtype=np.int64)
        if given.step == 0:
            held[self.held(site)] = 1
        return self.gradient(site, given), Holders(held=held)

    def predict(self, site: Site, given: Message | None) -> Array:
        """Return predictions of the model as received, or with None as trained."""
        weights = self.whole(site, given) if isinstance(given, Start) else site.memory["trained"]
        return self.task.predict(weights, site)

    def table(self) -> tuple[int, int]:
        """Return how many items there are, and the width of their vectors."""
        items, width = dict(self.task.layout())["items.table"]
        return items, width


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
        for part in self.split(state, cohort):
            reply = yield Ask(part, given=state.start, back=ItemGradient)
            state = self.stepped(state, reply.total(ItemGradient))
        return self.ended(state)

    def on_rows(self, state: Server, cohort: Cohort) -> Generator[Ask, Reply, Server]:
        """Step along the rows that each client shows, cohort by cohort."""
        items, width = self.user.table()
        for part in self.split(state, cohort):
            reply = yield Ask(part, given=state.start, back=ItemRows)
            rows = np.zeros((items + 1, width + 1))
            shared = np.zeros(self.dims["g"])
            for said in reply.each(ItemRows):  # row `items` is nobody's
                np.add.at(rows, said.number, said.rows)
                shared += said.shared
            state = self.stepped(state, ItemGradient(rows=rows[:-1], shared=shared))
        return self.ended(state)

    def on_held(self, state: Server, cohort: Cohort) -> Generator[Ask, Reply, Server]:
        """Count who rated what with the first sum, and train the rows that enough clients hold."""
        closed = state.start.step == 0
        start = state.start
        if closed:
            start = replace(start, told=np.zeros_like(start.told))
        reply = yield Ask(cohort, given=start, back=(ItemGradient, Holders))
        if closed:
            enough = reply.total(Holders).held >= self.holders
            state = replace(state, start=replace(start, told=enough.astype(np.int64)))
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

    The one that counts holders needs a single cohort: after a round that is lost, sums that had
    been opened would be asked again of fewer clients.
    """
    user, found = server.user, []
    found.append(Form.of("secure_items", server.on_sums, {Start: user.gradient}))
    if server.cohorts == 1 and server.holders > 1:
        held = Form.of("held_items", server.on_held, {Start: user.counted}, holders=server.holders)
        found.append(held)
    found.append(Form.of("published", server.on_rows, {Start: user.published}))
    return tuple(found)
