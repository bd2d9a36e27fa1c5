"""The aggregator's part in comparing: cosines of every pair of an Ask's uploads (O3).

They belong to the Ask that brought the uploads, and are opened before its sum. Uploads are dropped
as soon as the witnesses' requests are made (O9).
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from crypto.errors import CryptoError
from crypto.samplers import entropy
from protocols.clusters import Cut, Told
from protocols.disclosures._evaluated.aggregator import Results
from protocols.disclosures._evaluated.ciphers import COSINE_LEVELS
from protocols.disclosures._evaluated.uploads import (
    Evaluation,
    Uploads,
    pairs_of,
    place_of_result,
    products,
)
from protocols.disclosures.names import Disclosure
from protocols.disclosures.similarity.disclosure import Compared
from protocols.errors import BadEnvelope
from protocols.messages import Message, Vector
from protocols.sessions.asking import Asked
from protocols.sessions.clusters import CUT
from protocols.sessions.engine import Phase
from protocols.sessions.part import Delivery, Engine, SessionPart
from protocols.wire.control import Cosines, CosineSeed, SignedCut
from protocols.wire.roles import Role


class Comparing(SessionPart):
    """Has every pair's product witnessed and opened; its phase is COMPARE.

    Args:
        engine: the session.
        asked: the Ask under way.
        results: has them witnessed and opened.
    """

    phase: ClassVar[int | None] = Phase.COMPARE

    def __init__(self, engine: Engine, asked: Asked, results: Results) -> None:
        super().__init__(engine)
        self._asked, self._results = asked, results

    def wanted(self) -> bool:
        """Tell whether uploads came back that are to be compared."""
        found = self._asked.answers.get(Disclosure.SIMILARITY, Compared)
        return found is not None and found.protected and found.cosines is None

    def enter(self) -> list[Delivery]:
        """Form every pair's masked product of an Ask's uploads (O3)."""
        asked, disclosure = self._asked.answers, Disclosure.SIMILARITY
        uploads, secret = asked.of(disclosure, Compared).uploads(), entropy(32)
        where, name = asked.where, asked.exchange.name
        place = place_of_result(self._context, name, disclosure, where, where.exchange)
        bodies = {client: upload.body for client, upload in uploads.items()}
        results = products(self._context.key_of(disclosure), bodies, secret, place)
        kept = Uploads(where, uploads)
        return self._results.examine(
            kept, disclosure, name, where, results, [CosineSeed(seed=secret)]
        )

    def advance(self) -> list[Delivery] | None:
        """Take the cosines over once they were opened."""
        if (deliveries := self._results.advance()) is not None:
            return deliveries
        found = self._asked.answers.of(Disclosure.SIMILARITY, Compared)
        evaluation, opened = self._results.opened()
        found.cosines = self._cosines(evaluation, opened)
        found.cut = self._cut(evaluation)
        return None

    def _cut(self, evaluation: Evaluation) -> Cut | None:
        """Return how the key authority cuts the cluster; None if no cut may happen.

        Raises:
            BadEnvelope: it signed something else, or a side that is none of this cluster.
        """
        context, cut, where = self._context, evaluation.cut, evaluation.where
        if not isinstance(cut, SignedCut) or not any(cut.side):
            return None
        members, side = where.members, context.roster.unmask(cut.side)
        sets = [int.from_bytes(context.roster.mask(one), "little") for one in (members, side)]
        told = Told(where.round, where.exchange, sets[0], sets[1], cut.signature)
        key = context.roster.one(Role.KEY_AUTHORITY).verify
        try:
            key.verify(CUT, cut.signature, told.text(context.run, context.plan_digest))
        except CryptoError as error:
            raise BadEnvelope("The key authority signed another cut than it returned.") from error
        if not set(side) < set(members):
            raise BadEnvelope("The key authority cut a cluster that was not compared.")
        few = len(side) < context.policy.smallest_cohort
        return Cut(where.round, where.exchange, members, side, few, cut.signature)

    def _cosines(self, evaluation: Evaluation, opened: Message) -> Vector:
        """Return the matrix of cosines, (K, K), sorted by client."""
        if not isinstance(opened, Cosines):
            raise BadEnvelope("The key authority returned something that is no cosines.")
        names, levels = evaluation.names, np.asarray(opened.cosines)
        pairs, matrix = pairs_of(names), np.zeros((len(names), len(names)))
        if levels[len(pairs) :].any():
            raise BadEnvelope("There are numbers behind the cosines.")
        for (one, other), level in zip(pairs, levels[: len(pairs)], strict=True):
            if level > 2 * COSINE_LEVELS:
                raise BadEnvelope("The key authority returned a number that is no cosine.")
            i, j = names.index(one), names.index(other)
            matrix[i, j] = matrix[j, i] = (int(level) - COSINE_LEVELS) / COSINE_LEVELS
        return matrix


AGGREGATOR = Comparing
