"""Graph expansion: a user's items get neighbours, from the users who hold them too.

The field sends item ids and every user's vector to a third party. Here both leave as a matched
message (`HeldItems`): a policy that matches by tags turns items into tags that nobody can make
alone, and opens vectors only as means over cells of users; an item then gets the mean over the
cells that hold it, or in the policy's Unsafe form `published` some of those who hold it, their
vectors noised (docs/adr/0018). Where all leaves in clear an item gets the mean over all users who
hold it, which tells single users' vectors to whoever holds the means and who holds what.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from algorithms._shared.items import (
    Aggregator,
    Expand,
    HeldItems,
    Holders,
    ItemGradient,
    Near,
    Next,
    Server,
    Start,
    User,
)
from algorithms.tasks import ClientModel, Site, Weights
from protocols.forms import Answer, Exchange, Form
from protocols.messages import Array, Message
from protocols.rounds import Ask, Cohort, Reply, Sealed

__all__ = ["ExpandedUser", "Expanding", "by_popularity", "expanding_forms"]


def by_popularity(popular: Sequence[int], items: int) -> Array:
    """Return all items, (items,): those of a public list first, others in the catalogue's order."""
    first = np.array(popular, dtype=np.int64)
    found: Array = np.concatenate([first, np.setdiff1d(np.arange(items), first)])
    return found


@dataclass(frozen=True)
class ExpandedUser(User):
    """A client whose items have neighbours, once it was told some.

    A site's memory holds them as "near": item numbers, (n,), one as often as it has neighbours, and
    vectors, (n, h).

    Attributes:
        popular: numbers of items by public popularity, the most popular first; items that are not
            named follow in the catalogue's order.
    """

    popular: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        """Refuse what has no meaning; raises ValueError."""
        super().__post_init__()
        items, _ = self.table()
        named = self.popular
        if len(set(named)) != len(named) or not all(0 <= item < items for item in named):
            raise ValueError("popular names an item twice, or one that there is not")

    @property
    def order(self) -> Array:
        """All items by public popularity, (items,)."""
        return by_popularity(self.popular, self.table()[0])

    def offered(self, site: Site, given: Expand) -> HeldItems:
        """Return what is compared with others: the items trained on, and the user's vector."""
        items, width = self.table()
        places = np.argsort(self.order)[self.held(site)]
        held = np.zeros(items, dtype=np.int64)
        held[places] = 1 + places
        head = site.memory.get("head", np.zeros(width + 1, dtype=np.float32))
        return HeldItems(held=held, vector=np.asarray(head[:width], dtype=np.float64))

    def expanded(self, site: Site, given: Start, near: Near) -> ItemGradient:
        """Remember the neighbours, train, and return what may be said of it."""
        self.met(site, near)
        return self.gradient(site, given)

    def expanded_count(self, site: Site, given: Start, near: Near) -> tuple[ItemGradient, Holders]:
        """Do the same where rows rest on a count of holders, see `User.counted`."""
        self.met(site, near)
        return self.counted(site, given)

    def met(self, site: Site, near: Near) -> None:
        """Remember the neighbours."""
        there = near.row > 0
        site.memory["near"] = {
            "items": self.order[near.row[there] - 1],
            "vectors": near.vectors[there].astype(np.float32),
        }

    def pieces(self, site: Site, given: Start) -> tuple[Weights, Weights]:
        """Return all weights in two pieces; the graph knows its neighbours by then."""
        self.look(site)
        return super().pieces(site, given)

    def model(self, site: Site, given: Message | None) -> ClientModel:
        """Return the client's model, with the neighbours that were told last."""
        self.look(site)
        return replace(super().model(site, given), beside=site.memory.get("near", {}))

    def look(self, site: Site) -> None:
        """Give the site's graph the neighbours that are remembered."""
        from algorithms.nn._shared.ratings import neighbours

        near, data = site.memory.get("near"), site.data
        if near is None:
            data.graph.neighbours = None
            return
        places = np.searchsorted(data.items, near["items"])
        data.graph.neighbours = neighbours(places, near["vectors"], len(data.items))


@dataclass(frozen=True)
class Expanding(Aggregator):
    """An aggregator that has graphs expanded in some rounds.

    Attributes:
        after: so many rounds are done before the first expansion.
        every: rounds from one expansion to the next; 0: there is one.
    """

    after: int = 1
    every: int = 0

    def due(self, step: int) -> bool:
        """Tell whether graphs are expanded in a round that begins after `step` others."""
        since = step - self.after
        return since == 0 or (since > 0 and self.every > 0 and since % self.every == 0)

    def expansions(self, rounds: int) -> int:
        """Return how often graphs are expanded in so many rounds, if none is lost."""
        return sum(map(self.due, range(rounds)))

    def on_matches(self, state: Server, cohort: Cohort) -> Generator[Ask, Reply, Server]:
        """Ask every cohort once, in some rounds after all clients were matched."""
        near = yield from self.matched(state, cohort)
        return (yield from self.on_sums(state, cohort, near))

    def on_matched_held(self, state: Server, cohort: Cohort) -> Generator[Ask, Reply, Server]:
        """Do the same with rows that enough clients hold."""
        near = yield from self.matched(state, cohort)
        return (yield from self.on_held(state, cohort, near))

    def matched(self, state: Server, cohort: Cohort) -> Generator[Ask, Reply, tuple[Sealed, ...]]:
        """Have all clients matched if a round is due; return what is handed out then."""
        if not self.due(state.start.step):
            return ()
        reply = yield Ask(cohort, given=Expand(step=state.start.step), back=HeldItems)
        return (reply.matched(HeldItems, into=Near),)

    @property
    def dims(self) -> dict[str, int]:
        """Sizes of the messages."""
        return {**super().dims, "hidden": self.user.table()[1]}


def expanding_forms(server: Expanding, user: ExpandedUser) -> tuple[Form[Server], ...]:
    """Return the forms with expansions, in which gradients leave in protected sums.

    The second one is for policies that ask for several holders of a row; see
    `algorithms._shared.items`.
    """
    answers: dict[type[Message], Answer] = {Start: user.gradient, Expand: user.offered}
    if user.blocks > 1:
        answers[Next] = user.rest
    often: dict[type[Message], int] = {Next: user.blocks - 1} if user.blocks > 1 else {}
    form = _said(Form.of("matched_items", server.on_matches, answers, often), server)
    with_near = Exchange("expanded", (Start, Near), (ItemGradient,), user.expanded)
    first = replace(form, exchanges=(*form.exchanges, with_near))
    if server.cohorts > 1 or server.holders < 2 or user.blocks > 1:
        return (first,)
    counting: dict[type[Message], Answer] = {Start: user.counted, Expand: user.offered}
    held = Form.of("matched_held_items", server.on_matched_held, counting, holders=server.holders)
    held = _said(held, server)
    back = (ItemGradient, Holders)
    with_count = Exchange("expanded", (Start, Near), back, user.expanded_count)
    return (first, replace(held, exchanges=(*held.exchanges, with_count)))


def _said(form: Form[Server], server: Expanding) -> Form[Server]:
    """Say in how many rounds items are matched, for the policy's bound on it."""
    told = (
        replace(e, due=server.expansions) if e.given == (Expand,) else e for e in form.exchanges
    )
    return replace(form, exchanges=tuple(told))
