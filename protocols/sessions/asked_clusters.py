"""The aggregator's part that says of which cluster an Ask is, as clients let pass."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from protocols.clusters.descent import Told, packed
from protocols.plan.steps import Service, Step
from protocols.rounds import Cohort
from protocols.sessions.cluster_history import ClusterHistory
from protocols.sessions.part import Engine, SessionPart
from protocols.sessions.services.asked import Held
from protocols.wire.control import Cluster


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
