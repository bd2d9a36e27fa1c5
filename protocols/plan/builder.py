"""Collects the items of a plan; every size comes from the code that later makes the bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from crypto.homomorphic.he import Scheme
from crypto.hpke import SEAL_OVERHEAD
from protocols.disclosures.names import Disclosure
from protocols.messages import Message, ReleasedMessage
from protocols.plan.cohorts import DrawnPlan, SplitPlan, TopologyPlan
from protocols.plan.learns import Models, learns
from protocols.plan.plan import CountPlan, Item, Layout, NoisePlan, message_plan
from protocols.plan.steps import Part, Step, Way, item_id
from protocols.policy.guard import describe, find
from protocols.policy.guards import UnsafeClear
from protocols.policy.policy import PrivacyPolicy
from protocols.rounds import Exchange
from protocols.wire.codec import bundle_bytes
from protocols.wire.envelope import envelope_bytes, header_bytes
from protocols.wire.roles import Role, longest
from protocols.wire.roster import EVERYONE

Times = tuple[int, int]
"""How often in a round, and in the whole run."""

UP = (str(Role.CLIENT), str(Role.AGGREGATOR))
"""The route of what a client sends."""
DOWN = (str(Role.AGGREGATOR), str(Role.CLIENT))
"""The route of what a client is given."""


class PlanBuilder:
    """What the items of a plan follow from, and the items so far.

    Args:
        policy: of the plan.
        clients: names of all clients.
        dims: sizes of named dimensions.
        scheme: the encryption of sums; None without one.
        rounds: of the run.
        exchanges: all of the form.
        models: how clients see to the models that they are handed; None: no form is planned.
        splits: how clients fall into clusters; None: they never do.
        drawn: of cohorts that are drawn by lot; None: a round asks all clients.
        topology: whose sums clients read, where they read sums over their neighbours; else None.
    """

    def __init__(  # noqa: PLR0913 - a plan has that many facts
        self,
        policy: PrivacyPolicy,
        clients: Sequence[str],
        dims: dict[str, int],
        scheme: Scheme | None,
        rounds: int,
        *,
        exchanges: Sequence[Exchange] = (),
        models: Models | None = None,
        splits: SplitPlan | None = None,
        drawn: DrawnPlan | None = None,
        topology: TopologyPlan | None = None,
    ) -> None:
        self.exchanges, self.models = exchanges, models or Models()
        self.policy, self.clients, self.dims, self.scheme = policy, clients, dims, scheme
        self.rounds, self.splits, self.drawn, self.topology = rounds, splits, drawn, topology
        self.items: list[Item] = []
        self.longest = max(clients, key=len)

    def name(self, role: str) -> str:
        """Return the longest name of a party in this role."""
        if role == str(Role.CLIENT):
            return self.longest
        return longest(Role(role)) if role != EVERYONE else EVERYONE

    def often(self, times: Times) -> Times:
        """Return how often something happens that each of several disjoint clusters may ask for."""
        return times[0] * self.clusters, times[1] * self.clusters

    @property
    def clusters(self) -> int:
        """Into how many disjoint cohorts the clients fall at most."""
        if self.drawn:
            return self.drawn.cohorts
        return max(1, len(self.clients) // self.policy.smallest_cohort)

    @property
    def cuts(self) -> int:
        """By how many cuts a cluster comes about at most; where sides leave, they may be of one."""
        if self.splits is not None and self.splits.guard == "leave":
            return len(self.clients) - self.policy.smallest_cohort
        return self.clusters - 1

    @property
    def between_neighbours(self) -> bool:
        """Whether neighbours mask what they send, so that pairs of clients need secrets."""
        chain = self.policy.rules.get(Disclosure.NEIGHBOUR_SUM, ())
        return self.topology is not None and find(chain, "mask_neighbours") is not None

    def held(self, times: Times) -> Times:
        """Return how often a holder is asked to help to open a sum: of a drawn cohort, its own."""
        return times if self.drawn else self.often(times)

    @property
    def group(self) -> tuple[int, PrivacyPolicy, int | None]:
        """Of how many clients at most a group that agrees on keys is; see `protocols.keys.groups`.

        With the policy, and how many of them may be corrupt if lots drew them.
        """
        if self.drawn is None:
            return len(self.clients), self.policy, None
        return self.drawn.largest, self.policy, self.drawn.within

    def _follows(self, exchange: str, kinds: Sequence[type[Message]]) -> bool:
        """Tell whether all of these follow from what their sender was handed."""
        found = {kind for e in self.exchanges if e.name == exchange for kind in e.follows}
        return found.issuperset(kinds)

    def add(  # noqa: PLR0913 - an item has that many facts
        self,
        exchange: str,
        part: Part,
        step: Step,
        route: tuple[str, str],
        kinds: Sequence[type[Message]],
        disclosure: Disclosure,
        times: tuple[int, int],
        *,
        body: int | None = None,
        layout: Layout | None = None,
        dims: Mapping[str, int] | None = None,
        said: Mapping[str, str] | None = None,
        noise: NoisePlan | None = None,
        counted: CountPlan | None = None,
        boxed: bool = False,
        model: str = "",
        checked: int = 0,
        reader: Literal["", "client"] = "",
        way: Way | None = None,
    ) -> None:
        """Add one item; its size follows from its messages unless `body` says it.

        Args:
            exchange: name of the Ask; empty for what belongs to none.
            part: which part of the layer plans it.
            step: what it is for.
            route: roles of sender and recipient.
            kinds: its messages.
            disclosure: of the item.
            times: how often in a round, and in the whole run.
            body: size of its body before sealing.
            layout: of messages on a grid.
            dims: sizes that only this item has.
            said: what each role learns; None: what the disclosure's words say.
            noise: what is added to it.
            counted: what is added to its counts of single records.
            boxed: its body is sealed inside, row by row, and not again as a whole.
            model: see `Item`.
            checked: see `Item`.
            reader: see `Item`.
            way: see `Item`.
        """
        id = item_id(exchange, part, step, route[0])
        chain = self.policy.chain(disclosure)
        extra = dict(dims or {})
        size = bundle_bytes(kinds, {**self.dims, **extra}) if body is None else body
        sealed = SEAL_OVERHEAD if find(chain, "seal") and not boxed else 0
        header = header_bytes(id, self.name(route[0]), self.name(route[1]))
        fields = [field for kind in kinds for field in kind.fields]
        values = any(f.wire in ("f4", "f8") or (f.wire != "bytes" and f.shape) for f in fields)
        known = learns(disclosure, chain, route[0] == UP[0], model=values, retold=_retold(kinds))
        self.items.append(
            Item(
                id=id,
                exchange=exchange,
                part=part,
                step=step,
                way=way,
                label=id,
                sender=route[0],
                recipient=route[1],
                disclosure=disclosure,
                messages=tuple(message_plan(k, {**self.dims, **extra}, layout) for k in kinds),
                guards=tuple(describe(guard) for guard in chain),
                unsafe=any(isinstance(guard, UnsafeClear) for guard in chain),
                bytes=envelope_bytes(header, size + sealed),
                body=size,
                per_round=times[0],
                times=times[1],
                dims=extra,
                noise=noise,
                counted=counted,
                model=model,
                checked=checked,
                reader=reader,
                follows=step is Step.UP and self._follows(exchange, kinds),
                learns=dict(said) if said is not None else known,
            )
        )


def _retold(kinds: Sequence[type[Message]]) -> bool:
    return any(issubclass(kind, ReleasedMessage) and kind.retold for kind in kinds)
