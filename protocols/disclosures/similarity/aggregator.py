"""The aggregator's part in comparing: cosines of every pair of an Ask's uploads (O3).

They belong to the Ask that brought the uploads, and are opened before its sum. Uploads are dropped
as soon as the witnesses' requests are made (O9).
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from crypto.samplers import entropy
from protocols.disclosures._evaluated.aggregator import Results
from protocols.disclosures._evaluated.ciphers import COSINE_LEVELS
from protocols.disclosures._evaluated.evaluation import Evaluation, Uploads
from protocols.disclosures._evaluated.opening_request import place_of_result
from protocols.disclosures._evaluated.uploads import pairs_of, products
from protocols.disclosures.names import Disclosure
from protocols.disclosures.similarity.view import Compared
from protocols.errors import BadEnvelope
from protocols.messages import Message, Vector
from protocols.sessions.part import Delivery, Engine, SessionPart
from protocols.sessions.phases import Phase
from protocols.sessions.services.asked import Asked
from protocols.wire.control import Cosines, CosineSeed


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
        found.cosines = self._cosines(*self._results.opened())
        return None

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
