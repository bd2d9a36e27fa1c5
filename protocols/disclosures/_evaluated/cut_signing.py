"""The key authority's part where it vouches for cuts of clusters, by the cosines that it opened."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from protocols.clusters.cuts import Weights, cut_in_two
from protocols.clusters.descent import SIGNATURE, Told
from protocols.disclosures._evaluated.opening_request import RequestedUploads
from protocols.disclosures._evaluated.uploads import pairs_of
from protocols.disclosures.names import Disclosure
from protocols.errors import CohortChanged
from protocols.messages import Message, Vector
from protocols.plan.steps import Step
from protocols.sessions.cluster_history import CUT, ClusterHistory
from protocols.sessions.part import Engine, SessionPart
from protocols.wire.control import Cosines, SignedCut


class CutSigning(SessionPart):
    """Computes and signs how the cosines of a cluster cut it in two.

    Every cut that it signed counts as made: a later one that would set few clients apart beside it
    is not signed, and the cluster stays whole.

    Args:
        engine: the session.
        clusters: that were asked and cut so far.
    """

    called: ClassVar[str] = "cuts"
    lasting: ClassVar[frozenset[str]] = frozenset({"_known"})

    def __init__(self, engine: Engine, clusters: ClusterHistory) -> None:
        super().__init__(engine)
        self._clusters = clusters
        self._known: tuple[int, ...] = ((1 << len(engine.context.roster.clients)) - 1,)

    def asked(self, members: Sequence[str]) -> None:
        """Hold a cohort that is opened to the clusters; raises CohortChanged.

        Who of a cluster is away is not in its cohort: it is taken for the smallest that holds it.
        """
        if self._context.plan.splits is not None:
            asked = self._clusters.bits(members)
            known = (one for one in self._known if not asked & ~one)
            self._clusters.serve(min(known, key=int.bit_count))

    def beside(self, requested: RequestedUploads, cosines: Message) -> tuple[Message, ...]:
        """Return what goes back with cosines: their cut, where the plan says that one is signed."""
        if not isinstance(cosines, Cosines):
            return ()
        item = self._context.find(requested.name, Disclosure.SIMILARITY, Step.OPENED)
        if len(item.messages) == 1:
            return ()
        return (self._signed_cut(requested, np.asarray(cosines.cosines)),)

    def _signed_cut(self, requested: RequestedUploads, levels: Vector) -> SignedCut:
        """Compute the cut of a whole cluster, record it and sign it; else sign nothing."""
        context, where, names = self._context, requested.where, requested.names
        none = SignedCut(side=bytes(len(context.roster.mask(()))), signature=bytes(SIGNATURE))
        splits, cluster = context.plan.splits, self._clusters.bits(requested.members)
        if splits is None or names != requested.members or cluster not in self._known:
            return none
        weights = _weights(names, levels)
        least = context.policy.smallest_cohort
        found = cut_in_two(weights, splits.cut, splits.guard, least)
        if found is None:
            return none
        side = tuple(name for name, inside in zip(names, found, strict=True) if inside)
        cut = Told(where.round, where.exchange, cluster, self._clusters.bits(side), b"")
        try:
            self._clusters.divide(cluster, cut.side)
        except CohortChanged:
            return none  # beside a cut that was signed before, few clients would stand apart
        self._known = tuple(dict.fromkeys((*self._known, cut.side, cut.rest)))
        masks = [context.roster.mask(one).hex() for one in (names, side)]
        facts = {"cohort": context.cohort(where), "exchange": where.exchange, "round": where.round}
        self._engine.record("cut", {**facts, "cluster": masks[0], "side": masks[1]})
        signature = context.me.signing.sign(CUT, cut.text(context.run, context.plan_digest))
        return SignedCut(side=context.roster.mask(side), signature=signature)


def _weights(names: tuple[str, ...], levels: Vector) -> Weights:
    """Return 1 + cosine of every pair, as it is sent."""
    place = {name: row for row, name in enumerate(names)}
    found: Weights = np.zeros((len(names), len(names)), dtype=np.int64)
    pairs = pairs_of(names)
    for (one, other), level in zip(pairs, levels[: len(pairs)], strict=True):
        i, j = place[one], place[other]
        found[i, j] = found[j, i] = int(level)
    return found
