"""The aggregator's part in weighing: every receiver's combination of a round's uploads (O1, O10).

Rows belong to the Ask that hands them out, and are opened before it goes out.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from crypto.samplers import entropy
from protocols.disclosures._evaluated.aggregator import Results
from protocols.disclosures._evaluated.uploads import (
    Evaluation,
    Uploads,
    facts_of_rows,
    row_numbers,
    rows,
    whole_table,
)
from protocols.disclosures.names import Disclosure
from protocols.disclosures.weighted_sum.disclosure import Mixture, Weighable
from protocols.errors import BadEnvelope, LocalProtocolError
from protocols.messages import Message, Vector
from protocols.rounds import Given
from protocols.sessions.asking import Asked, Held
from protocols.sessions.engine import Phase
from protocols.sessions.part import Collection, Delivery, Engine, Scope, SessionPart
from protocols.wire.control import Row, RowBoxes, RowSeeds


class Weighing(SessionPart):
    """Has rows witnessed and opened before the Ask that hands them out; its phase is BEFORE_ASK.

    Args:
        engine: the session.
        asked: the Ask under way.
        results: has them witnessed and opened.
    """

    called: ClassVar[str] = "rows"
    phase: ClassVar[int | None] = Phase.BEFORE_ASK

    def __init__(self, engine: Engine, asked: Asked, results: Results) -> None:
        super().__init__(engine)
        self._asked, self._results = asked, results
        self._uploads: Uploads | None = None  # that may still be weighed, in their round
        self._seeds: list[bytes] = []  # of every receiver's blind
        self._opened: dict[str, Row] = {}  # until the Ask goes out
        self._tables: list[Vector] = []  # of all rounds, for what they tell together (O10)

    def settled(self, answers: Collection) -> None:
        """Put aside the survivors' uploads, to be weighed later in the round."""
        found = answers.get(Disclosure.WEIGHTED_SUM, Weighable)
        if found is not None and found.protected:
            self._uploads = Uploads(answers.where, found.uploads())

    def forget(self, scope: Scope) -> None:
        """Drop what was not opened, and uploads that nobody weighed in their round (O9)."""
        if scope is Scope.ASK:
            self._seeds, self._opened = [], {}
        if scope is Scope.ROUND:
            self._uploads = None

    def _mixtures(self) -> list[Mixture]:
        return [given for given in self._asked.held.handed if isinstance(given, Mixture)]

    def wanted(self) -> bool:
        """Tell whether the Ask hands out rows."""
        return bool(self._mixtures())

    def advance(self) -> list[Delivery] | None:
        """Take the rows over once they were opened."""
        if (deliveries := self._results.advance()) is not None:
            return deliveries
        self._opened, self._seeds = self._rows(*self._results.opened()), []
        return None

    def handed(self, given: Given, member: str) -> Message | None:
        """Return, once, a member's row that was opened for the Ask."""
        return self._opened.pop(member) if isinstance(given, Mixture) else None

    def enter(self) -> list[Delivery]:
        """Combine the uploads of this round for every receiver, each under a blind (O1)."""
        return self._weigh(self._asked.held, self._mixtures()[0])

    def _weigh(self, held: Held, mixture: Mixture) -> list[Delivery]:
        kept, disclosure = self._uploads, Disclosure.WEIGHTED_SUM
        if kept is None or kept.where.exchange != mixture._source:
            raise LocalProtocolError("What is to be handed out was weighed before, or is gone.")
        if kept.where.round != held.round or not set(held.members) <= set(kept.uploads):
            raise LocalProtocolError("Rows go to clients that gave something in the same round.")
        self._uploads = None
        numbers, names = row_numbers(mixture._table), list(kept.uploads)
        blinds = [entropy(32) for _ in range(max(numbers) + 1)]
        seeds = [blinds[number] for number in numbers]
        bodies = [upload.body for upload in kept.uploads.values()]
        where = held.where
        key, policy = self._context.key_of(disclosure), self._context.policy
        results = rows(key, bodies, mixture._table, seeds, policy)
        whole = whole_table(mixture._table, names, self._context.roster.clients)
        self._tables.append(whole)
        facts = {
            **facts_of_rows(self._tables, seeds),
            "exchange": where.exchange,
            "flattened": [names[row] for row in mixture._flattened],
            "receivers": len(names),
            "round": held.round,
            "uploads": kept.where.exchange,
        }
        self._engine.record("weights", facts)
        table = np.zeros(whole.shape, dtype=np.int64)
        table[: len(names), : len(names)] = mixture._table
        padded = np.frombuffer(b"".join(seeds).ljust(len(table) * 32, b"\0"), dtype=np.uint8)
        secret = RowSeeds(weights=table, seeds=padded.reshape(-1, 32))
        name = held.exchange.name
        self._seeds = seeds
        return self._results.examine(kept, disclosure, name, where, results, [secret], numbers)

    def _rows(self, evaluation: Evaluation, opened: Message) -> dict[str, Row]:
        """Return what every receiver is handed: a box that it alone opens, and its blind's seed."""
        if not isinstance(opened, RowBoxes):
            raise BadEnvelope("The key authority returned something that is no rows.")
        boxes = opened.boxes
        size = len(boxes) // len(self._context.plan.clients)
        cut = [boxes[place * size : (place + 1) * size] for place in range(len(evaluation.names))]
        triples = zip(evaluation.names, cut, self._seeds, strict=True)
        return {name: Row(box=box, seed=seed) for name, box, seed in triples}


AGGREGATOR = Weighing
