"""What one user's client does in a recommender, see `algorithms._shared.items`."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from algorithms._shared.item_messages import Holders, ItemGradient, ItemRows, Next, Start
from algorithms.tasks import Task, Weights
from algorithms.tasks.client_model import ClientModel
from algorithms.tasks.rating import RatingTask
from algorithms.tasks.site import Site
from protocols.messages import Array, Message
from protocols.rounds import Replay

__all__ = ["ROW_SCALE", "SHARED_SCALE", "User", "checked"]

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
