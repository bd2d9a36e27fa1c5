"""Into which clusters a run's clients fell, at the aggregator and at each client (O5)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from crypto.errors import CryptoError
from protocols.clusters import Told, packed, unpacked
from protocols.errors import BadEnvelope, CohortChanged
from protocols.plan.steps import Service, Step
from protocols.policy.policy import divided
from protocols.rounds import Cohort
from protocols.sessions.asking import Held
from protocols.sessions.part import Engine, SessionPart
from protocols.wire.control import Cluster
from protocols.wire.envelope import Where
from protocols.wire.roles import Role

# --- Into which clusters a run's clients fell so far, as this party was shown (O5) ---
#
# Every client keeps to it from what it is asked, the key authority from what it opens and signs,
# and the aggregator from what it asks.

CUT = "cluster-cut"
"""Domain of the signatures over cuts."""


class ClusterHistory(SessionPart):
    """Lets clusters become smaller only, and by no cut that leaves few clients apart.

    All asked clusters cut the clients into groups, each of clients that were always asked together.
    No group is smaller than the policy's smallest cohort; looking at pairs of clusters is not
    enough, see `protocols.policy.policy`. Who of a cluster is away is not counted here.
    """

    called: ClassVar[str] = "clusters"
    lasting: ClassVar[frozenset[str]] = frozenset({"_clusters", "_groups"})

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        everybody = (1 << len(engine.context.roster.clients)) - 1
        self._clusters: tuple[int, ...] = (everybody,)  # disjoint: whoever was asked apart
        self._groups: tuple[int, ...] = (everybody,)

    def asked(self, message: Cluster, where: Where) -> bool:
        """Check a cluster that is asked, and note it; return whether it is another than before.

        Raises:
            BadEnvelope: it does not come of cuts that were signed, where somebody signs them, or
                holds not all that take part.
            CohortChanged: a client was in another cluster already, or few would stand apart.
        """
        cluster = self._within(message, where)
        cuts = self._told(message, cluster)
        for cut in cuts:
            self._check(cut, where)
        before = self._clusters
        for cut in cuts:
            self.divide(cut.cluster, cut.side)
        self.serve(cluster)
        return before != self._clusters

    def _within(self, message: Cluster, where: Where) -> int:
        roster = self._context.roster
        roster.unmask(message.cluster)  # of clients on the roster alone
        cluster = int.from_bytes(message.cluster, "little")
        if self.bits(where.members) & ~cluster:
            raise BadEnvelope("An Ask goes to clients outside the cluster that it is for (O5).")
        return cluster

    def _told(self, message: Cluster, cluster: int) -> list[Told]:
        try:
            return unpacked(message.cuts, len(self._context.roster.clients), cluster)
        except ValueError as error:
            raise BadEnvelope("A cluster is asked that no cuts lead to (O5).") from error

    def _check(self, cut: Told, where: Where) -> None:
        """Check who signed a cut, and that it was made before the round in which it is used.

        A round may be lost as a whole after a cut; its clients could not go back.
        """
        context, splits = self._context, self._context.plan.splits
        if cut.exchange >= where.exchange or cut.round >= where.round:
            raise BadEnvelope(
                "A cluster comes of a cut that was not made yet when this round began (O5).",
                fix="ask the parts of a split from the next round on",
            )
        if splits is None or not splits.signed:
            return
        key = context.roster.one(Role.KEY_AUTHORITY).verify
        try:
            key.verify(CUT, cut.signature, cut.text(context.run, context.plan_digest))
        except CryptoError as error:
            raise BadEnvelope(
                "A cluster is asked that is no signed part of an earlier one (O5).",
                why="the aggregator made up a split, or says that it belongs elsewhere",
            ) from error

    def divide(self, cluster: int, side: int) -> None:
        """Note a cut of a cluster; raises CohortChanged if few clients stand apart after it."""
        groups = self._groups
        for one in (side, cluster & ~side):
            groups = self._apart(groups, one)
        self._groups = groups

    def _apart(self, groups: tuple[int, ...], cluster: int) -> tuple[int, ...]:
        context = self._context
        splits, least = context.plan.splits, context.policy.smallest_cohort
        if splits is not None and splits.guard == "leave":
            least = 1  # the plan says so, and everything is in clear
        try:
            return divided(groups, cluster, "floor", least)
        except CohortChanged as error:
            raise CohortChanged(
                f"Clusters of this run would set fewer than {least} clients apart (O5).",
                why="the aggregator asks for totals to subtract, or a split left too few",
                fix="cut clusters so that every side holds the policy's smallest cohort",
            ) from error

    def serve(self, cluster: int) -> None:
        """Note a cluster that is asked; raises CohortChanged if its clients were parted before."""
        groups = self._apart(self._groups, cluster)
        mine = [known for known in self._clusters if known & cluster]
        if len(mine) != 1 or cluster & ~mine[0]:
            raise CohortChanged(
                "A cluster is asked that is no part of what its clients were in before (O5).",
                why="clusters only ever become smaller; totals of others would be subtracted",
                fix="ask the clusters as they are, or sides of them",
            )
        if cluster == mine[0]:
            return
        others = tuple(known for known in self._clusters if known != mine[0])
        rest = mine[0] & ~cluster
        self._clusters = (*others, cluster, *([rest] if rest else []))
        self._groups = groups

    def shown(self, members: Sequence[str]) -> None:
        """Check whom another sum of the run is said to be of, where this client holds shares of it.

        Raises:
            CohortChanged: it mixes clients of this client's cluster with others.
        """
        if self._context.plan.splits is None:
            return
        asked, me = self.bits(members), self.bits((self._engine.name,))
        (mine,) = (known for known in self._clusters if known & me)
        if asked & mine and asked & ~mine:
            raise CohortChanged(
                "A sum is of clients of this client's cluster and of others (O5).",
                why="the aggregator tells others of another split",
            )

    def bits(self, names: Sequence[str]) -> int:
        """Return a set of clients as a number."""
        return int.from_bytes(self._context.roster.mask(names), "little")


# --- The aggregator's part that says of which cluster an Ask is, as clients let pass ---


class AskedClusters(SessionPart):
    """Tells every cohort the cuts by which its cluster came about, as a client checks them.

    Args:
        engine: the session.
        history: the clusters that were asked so far.
    """

    called: ClassVar[str] = "asked_clusters"

    def __init__(self, engine: Engine, history: ClusterHistory) -> None:
        super().__init__(engine)
        self._history = history

    def told(self, held: Held, cohort: Cohort) -> Held:
        """Return an Ask with what it says of its cluster; nothing where the form never splits.

        Raises:
            BadEnvelope: no cuts that were signed lead to the cluster.
            CohortChanged: its clients are in other clusters, or few would stand apart.
        """
        context = self._context
        if context.plan.splits is None:
            return held
        bits, clients = self._history.bits, len(context.roster.clients)
        cuts = [
            Told(cut.round, cut.exchange, bits(cut.members), bits(cut.side), cut.signature)
            for cut in cohort._cuts
        ]
        item = context.find(held.exchange.name, Service.ASK, Step.DOWN)
        told = packed(cuts, clients).ljust(item.dims["cluster_cuts"], b"\0")
        message = Cluster(cluster=context.roster.mask(cohort._members), cuts=told)
        if held.exchange.back:
            self._history.asked(message, held.where)
        return replace(held, beside=(message,))
