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

**Forms under each user's own noise.**

* `told_mean`: once in a run a user tells its mean rating, one bounded number. The model is the mean
  of all users' means and, at each client, the user's own part. One number few users can say.
* `told_items`: with it the user tells one drawn of its items, as rated at or above its mean, or
  below it. Each of the two has half of the message's epsilon. Biases of items follow, shrunk by
  the estimates' spread. Vectors of items are not learnt.
* `noised_items`: the whole gradient as one vector of items x (h + 1) numbers and the layer. What
  noise leaves of so many numbers, `secure-fgl plan --calibrate` shows.

In the first two the item table is set to zero, as nothing is learnt of it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from algorithms.tasks import ClientModel, Moments, Site, Task, Weights
from algorithms.tasks.rating import RatingTask
from protocols.forms import Answer, Exchange, Form
from protocols.messages import (
    Array,
    MatchMessage,
    Matrix,
    Message,
    NoisedMessage,
    ReleasedMessage,
    SumMessage,
    Vector,
    bounded,
    category,
    count,
    real,
)
from protocols.rounds import (
    Ask,
    Cohort,
    RemoteProtocolError,
    Replay,
    Reply,
    Round,
    RoundLost,
    Sealed,
)

__all__ = [
    "ROW_SCALE",
    "SHARED_SCALE",
    "Aggregator",
    "Expand",
    "HeldItems",
    "Holders",
    "ItemGradient",
    "ItemRows",
    "Near",
    "Next",
    "NoisedGradient",
    "Opinion",
    "Server",
    "Start",
    "Taste",
    "User",
    "biases",
    "checked",
    "forms",
    "told_forms",
]


class Start(ReleasedMessage):
    """The shared part of the model; the whole item table, for everybody."""

    step: int = count(unit="round", meaning="rounds done so far")
    seed: int = count(unit="seed", meaning="seed of the starting weights and of the cohorts")
    weights: Vector = real("d", unit="weight", meaning="item table, biases and layer", wire="f4")
    told: Vector = count("items", unit="0 or 1", meaning="1: a gradient of this item may be said")


class Next(ReleasedMessage):
    """Asks for another block of rows of the gradient that the last `Start` asked for."""

    block: int = count(unit="block", meaning="which rows of the item table, from 1")


class Expand(ReleasedMessage):
    """Asks for what graphs are expanded by: which items a user holds, and its vector."""

    step: int = count(unit="round", meaning="rounds done so far")


class HeldItems(MatchMessage):
    """The items that one user trains on, to be compared with others', and the user's vector."""

    held: Vector = count(
        "items", unit="item", meaning="by public popularity: 1 + place where held, else 0", key=True
    )
    vector: Vector = real("hidden", unit="weight", meaning="the user's own vector")


class Near(MatchMessage):
    """What other users are like who hold the same items."""

    row: Vector = count("found", unit="item", meaning="1 + place of an item held; 0: padding")
    vectors: Matrix = real(
        "found", "hidden", unit="weight", meaning="a user who holds it, or a mean of some"
    )


class ItemGradient(SumMessage):
    """The gradient of one user's loss; zero in the row of every item that it did not rate.

    A block of rows, the same for all clients: by default the whole table. Past the table's end
    rows are zero. The shared part leaves with the first block.
    """

    rows: Matrix = real(
        "block",
        "row",
        unit="scale x loss/weight",
        meaning="gradient in an item's vector and bias",
        held=True,
    )
    shared: Vector = real("g", unit="scale x loss/weight", meaning="gradient in mean and layer")


class NoisedGradient(NoisedMessage):
    """The gradient of one user's loss, all rows, as one vector under the user's own noise."""

    rows: Matrix = real(
        "items", "row", unit="scale x loss/weight", meaning="gradient in an item's vector and bias"
    )
    shared: Vector = real("g", unit="scale x loss/weight", meaning="gradient in mean and layer")


class Taste(NoisedMessage):
    """How high one user rates, said once in a run under its own noise."""

    mean: float = bounded(unit="share of the scale", meaning="mean training rating of the user")


class Opinion(NoisedMessage):
    """How high one user rates, and one drawn of its items: whether it rates it above its mean.

    Said once in a run. Of the set of a user's items one is told; each stands for an equal share.
    """

    mean: float = bounded(unit="share of the scale", meaning="mean training rating of the user")
    opinions: Vector = category(
        "opinions", unit="share", meaning="items rated at or above the user's mean, then below it"
    )


class Holders(SumMessage):
    """Who trains on which item, said by each client once in a run; zeros in all later sums.

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
        "sent", "row", unit="loss/weight", meaning="gradient in an item's vector and bias"
    )
    shared: Vector = real("g", unit="loss/weight", meaning="gradient in mean and layer")


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
        steps, lr, decay: of the user's part in a round, see `algorithms.tasks.flat`.
        blocks: into how many messages the rows of a gradient are cut.
    """

    task: RatingTask
    steps: int
    lr: float
    decay: float
    blocks: int = 1

    def __post_init__(self) -> None:
        """Refuse what has no meaning; raises ValueError."""
        items, _ = self.table()
        if not 1 <= self.blocks <= items:
            raise ValueError(f"blocks must be from 1 to the number of items, {items}")

    def pieces(self, site: Site, given: Start) -> tuple[Weights, Weights]:
        """Return what was handed out, (base,), and the user's own part, (size - base,)."""
        head = site.memory.get("head")
        if head is None:
            head = self.task.initial(np.random.default_rng(given.seed))[self.task.base :]
        return np.asarray(given.weights, dtype=np.float32), head

    def slope(self, site: Site, given: Start) -> Weights:
        """Move the user's part, remember it, and return the gradient of L_u in what is shared."""
        before = np.concatenate(self.pieces(site, given))
        steps = {"lr": self.lr, "decay": self.decay}
        found = self.task.descended(before, site, steps=self.steps, **steps)
        self.keep(site, before, found.head)
        return found.slope

    def keep(self, site: Site, weights: Weights, head: Weights) -> None:
        """Remember the user's part, in place of that in `weights`."""
        weights[self.task.base :] = head
        site.memory.update(head=head, trained=weights)

    def gradient(self, site: Site, given: Start) -> ItemGradient:
        """Train, and return the first block of what may be said of it; keep the others."""
        whole = self.dense(site, given)
        if self.blocks == 1:
            return whole
        site.memory["left"] = {str(n): self.block(whole.rows, n) for n in range(1, self.blocks)}
        return replace(whole, rows=self.block(whole.rows, 0))

    def rest(self, site: Site, given: Next) -> ItemGradient:
        """Return another block of the last gradient, once.

        Raises:
            Replay: that block was said already, or no gradient was asked for.
        """
        left = dict(site.memory.get("left", {}))
        if str(given.block) not in left:
            raise Replay("A block of a gradient is said once, after the gradient was asked for.")
        rows = left.pop(str(given.block))
        site.memory["left"] = left
        items, width = self.table()
        return ItemGradient(rows=rows, shared=np.zeros(self.task.base - items * (width + 1)))

    @property
    def height(self) -> int:
        """Rows of a block."""
        return -(-self.table()[0] // self.blocks)

    def block(self, rows: Array, number: int) -> Array:
        """Return one block of all rows; beyond the last row are zeros."""
        found = np.zeros((self.height, rows.shape[1]))
        part = rows[number * self.height : (number + 1) * self.height]
        found[: len(part)] = part
        return found

    def dense(self, site: Site, given: Start) -> ItemGradient:
        """Train, and return what may be said of it, all rows."""
        found = np.asarray(self.slope(site, given), dtype=np.float64)
        items, width = self.table()
        rows = np.empty((items, width + 1))
        rows[:, :-1] = found[: items * width].reshape(items, width)
        rows[:, -1] = found[items * width : items * (width + 1)]
        rows *= ROW_SCALE * (given.told > 0)[:, None]
        return ItemGradient(rows=rows, shared=SHARED_SCALE * found[items * (width + 1) :])

    def published(self, site: Site, given: Start) -> ItemRows:
        """Train, and return the rows of the user's own items; the policy says what joins them."""
        dense, held = self.dense(site, given), self.held(site)
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
        return self.dense(site, given), Holders(held=held)

    def model(self, site: Site, given: Message | None) -> ClientModel:
        """Return the client's model as received, or with None as trained."""
        if isinstance(given, Start):
            return ClientModel(self.pieces(site, given))
        return ClientModel((site.memory["trained"],))

    def table(self) -> tuple[int, int]:
        """Return how many items there are, and the width of their vectors."""
        items, width = dict(self.task.layout())["items.table"]
        return items, width


_APART = 0.2
"""How far a rating lies from its user's mean, on the scale from 0 to 1, where it is even: mean
absolute deviation of five values with shares 1, 2, 4, 2, 1 tenths. A public guess, no data's."""


class Serving(Protocol):
    """What is needed of `algorithms._shared.items.Aggregator`."""

    @property
    def user(self) -> User:
        """The clients' side."""

    def each_cohort(self, state: Any, cohort: Cohort, kind: Any, read: Any) -> Round[Any]:
        """Step along what each cohort says."""

    def ended(self, state: Any) -> Any:
        """Return the state after a round."""


def told_forms(server: Serving) -> tuple[Form[Any], ...]:
    """Return the forms of NOISED messages, that of the fewest numbers first."""
    user = server.user

    def learn(site: Site, given: Start) -> None:
        user.slope(site, given)

    def taste(site: Site, given: Start) -> Taste:
        return Taste(mean=_mean(user, site))

    def opinion(site: Site, given: Start) -> Opinion:
        return Opinion(mean=_mean(user, site), opinions=opinions(user, site))

    def gradient(site: Site, given: Start) -> NoisedGradient:
        found = user.dense(site, given)
        return NoisedGradient(rows=found.rows, shared=found.shared)

    def on_gradients(state: Any, cohort: Cohort) -> Round[Any]:
        return (yield from server.each_cohort(state, cohort, NoisedGradient, _summed))

    def on(kind: type[Taste] | type[Opinion]) -> Any:
        def round(state: Any, cohort: Cohort) -> Round[Any]:
            first = not state.start.step
            try:
                if first:
                    reply = yield Ask(cohort, given=state.start, back=kind)
                    state = _told(user, state, reply.each(kind))
                yield Ask(cohort, given=state.start)
            except RoundLost:  # nobody tells twice: what was lost, or told before it, stays so
                if not first:
                    raise
            return server.ended(state)

        return round

    train = Exchange("learn", (Start,), (), learn)
    mean = Exchange("tell", (Start,), (Taste,), taste, 0, outside=1)
    items = Exchange("tell", (Start,), (Opinion,), opinion, 0, outside=1)
    return (
        Form("told_mean", on(Taste), (train, mean)),
        Form("told_items", on(Opinion), (train, items)),
        Form.of("noised_items", on_gradients, {Start: gradient}),
    )


def _ratings(user: User, site: Site) -> tuple[Array, Array]:
    """Return a user's training ratings on the scale from 0 to 1, and their items."""
    data, spec = site.data, user.task.spec
    chosen = data.train.numpy()
    rating = (data.rating.numpy()[chosen] - spec.lowest) / (spec.highest - spec.lowest)
    return np.asarray(rating, dtype=np.float64), data.items[data.item.numpy()[chosen]]


def _mean(user: User, site: Site) -> float:
    """Return the mean training rating; the middle of the scale where there is none."""
    rating, _ = _ratings(user, site)
    return float(rating.mean()) if len(rating) else 0.5


def opinions(user: User, site: Site) -> Array:
    """Return 1 for each rated item, (2 items,): at or above the user's mean, then below it."""
    rating, item = _ratings(user, site)
    items, _ = user.table()
    found = np.zeros(2 * items)
    if len(rating):
        found[item + items * (rating < rating.mean())] = 1.0
    return found


def _summed(reply: Reply) -> ItemGradient:
    """Return a cohort's gradient from each user's own."""
    said = reply.each(NoisedGradient)
    rows, shared = np.sum([m.rows for m in said], axis=0), np.sum([m.shared for m in said], axis=0)
    return ItemGradient(rows=rows, shared=shared)


def _told(user: User, state: Any, said: Sequence[Taste | Opinion]) -> Any:
    """Return the state with the mean, and biases, that users told; the table is zero."""
    items, width = user.table()
    weights = np.array(state.start.weights, dtype=np.float32)
    weights[: items * (width + 1)] = 0.0
    if said:
        mean = float(np.clip(np.mean([message.mean for message in said]), 0.0, 1.0))
        weights[items * (width + 1)] = (mean - 0.5) / 2.0  # of `nn._shared.ratings.Mean`
    heard = [message.opinions for message in said if isinstance(message, Opinion)]
    if heard:
        weights[items * width : items * (width + 1)] = biases(np.stack(heard))
    return replace(state, start=replace(state.start, weights=weights))


def biases(heard: Array) -> Array:
    """Return the bias of each item, (items,), from each user's estimated shares, (n, 2 items).

    With D the difference of an item's two shares and P their sum, D/P times the mean deviation of a
    rating would be its bias; as both have errors, D P / (P² + 2 v) stands for D/P, v the squared
    error of one share as the estimates themselves spread.
    """
    above, below = np.split(heard.mean(axis=0), 2)
    error = float(heard.var(axis=0).mean()) / max(len(heard), 1)
    whole = np.maximum(above + below, 0.0)
    shrunk = (above - below) * whole / np.maximum(whole**2 + 2.0 * error, 1e-12)
    return np.asarray(_APART * np.clip(shrunk, -1.0, 1.0), dtype=np.float32)


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
            "opinions": 2 * items,
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
    return (*found, *told_forms(server))
