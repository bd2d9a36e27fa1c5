"""The aggregator's part while rows are found and added up: boxes, and sums of uniform words.

It learns who adds how many rows for whom, by labels that tell no node, and adds words under masks
and blinds that it has no key of. A sum that lacks an adder is not made.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from protocols.disclosures.match.aggregator import Matching
from protocols.disclosures.match.messages import Box, Bundle, Canary
from protocols.disclosures.match.parties import cut_bundle
from protocols.disclosures.match.protocol.wire import KINDS, Kind, MatchRun, only
from protocols.disclosures.names import Disclosure
from protocols.disclosures.row_sum.disclosure import RowAnswers
from protocols.disclosures.row_sum.messages import RowParts, RowTotals
from protocols.disclosures.row_sum.protocol.wire import RowRun, Words, cut_slots, joined_slots
from protocols.disclosures.row_sum.run import needed_run, row_run_of
from protocols.errors import BadEnvelope, RoundLost
from protocols.messages import Message
from protocols.plan.steps import Step
from protocols.rounds import Given
from protocols.sessions.part import Delivery, Takes

_KINDS: Mapping[Step, tuple[type[Message], ...]] = {
    **{step: kinds for step, kinds in KINDS.items() if step is not Step.TAKEN},
    Step.SPLIT: (Box,),
    Step.PART: (RowParts,),
}
_Key = tuple[bytes, str, tuple[str, ...]]


class RowMatching(Matching):
    """Carries boxes as for `match`, then adds what clients masked, receiver by receiver."""

    part: ClassVar[Disclosure] = Disclosure.ROW_SUM
    kinds: ClassVar[Mapping[Step, tuple[type[Message], ...]]] = _KINDS

    def _run_of(self) -> MatchRun | None:
        return row_run_of(self._context)

    def _rows(self) -> RowRun:
        return needed_run(self._context)

    def _first(self) -> Mapping[str, bytes]:
        return self._asked.answers.of(Disclosure.ROW_SUM, RowAnswers).bodies()

    def alike(self, given: Given) -> Message | None:
        """Tell that no two clients are handed the same rows."""
        return None

    def _in(self, client: str) -> bool:
        return client in self._matching[0].boxes

    def _check_all(self) -> None:
        self._check_enough(self._matching[0].boxes)

    def _tell(self) -> list[Delivery]:
        """Give every client what the matcher says of rows."""
        broker, run = self._matching
        here = broker.take(Step.SPLIT)
        if not here:
            raise RoundLost("The matcher did not answer. The round is skipped.")
        (found,) = here.values()
        broker.canary = only(found, Canary).canary
        boxes = cut_bundle(run, Kind.TOLD, only(found, Bundle).bundle)
        if set(boxes) != set(broker.boxes):
            raise BadEnvelope("The matcher answered others than those who sent tags.")
        return [self._carry(name, Step.TOLD, Box(boxes=box)) for name, box in sorted(boxes.items())]

    def _hand_shares(self) -> list[Delivery]:
        """Give every client the halves of secrets that the others drew for it."""
        broker, run = self._matching
        here = broker.take(Step.PART)
        self._stay(here)
        self._check_enough(here)
        size, clients = run.length(Kind.SHARE), run.roster.clients
        said = {name: only(found, Box).boxes for name, found in here.items()}
        empty, sent = bytes(size), []
        for name in sorted(here):
            at = run.roster.place(name) * size
            mine = [said[n][at : at + size] if n in said and n != name else empty for n in clients]
            sent.append(self._carry(name, Step.MATES, Box(boxes=b"".join(mine))))
        return sent

    def _add_cells(self) -> None:
        """Add the sums of whose adders all are here; the reply hands each receiver its own."""
        broker, run = self._matching[0], self._rows()
        here = broker.take(Step.PART)
        self._stay(here)
        self._check_enough(here)
        totals: dict[_Key, Words] = {}
        senders: dict[_Key, set[str]] = {}
        for name, found in sorted(here.items()):  # one client's slots at a time
            for key, words in cut_slots(only(found, RowParts).slots, run).items():
                before = totals.get(key)
                totals[key] = words if before is None else before + words  # mod 2^32
                senders.setdefault(key, set()).add(name)
        whole = {key: words for key, words in totals.items() if senders[key] == set(key[2])}
        told = {n: {k: w for k, w in whole.items() if k[1] == n} for n in run.roster.clients}
        facts = {"canary": broker.canary.hex(), "clients": len(here), "sums": len(whole)}
        where = self._asked.answers.where
        place = {"exchange": where.exchange, "round": where.round}
        self._engine.record("rows", {**facts, **place})
        self._broker = None
        self._asked.answers.of(Disclosure.ROW_SUM, RowAnswers).told = {
            name: RowTotals(slots=joined_slots(_within(sums, run), run))
            for name, sums in told.items()
        }

    takes: ClassVar[Takes] = dict.fromkeys(
        [(Disclosure.ROW_SUM, step) for step in _KINDS], Matching._take_match
    )


def _within(sums: Mapping[_Key, Words], run: RowRun) -> dict[_Key, Words]:
    if len(sums) > run.guard.rows:
        raise BadEnvelope("More rows were added up for one client than the plan has room for.")
    return {key: np.asarray(words) for key, words in sums.items()}


AGGREGATOR = RowMatching
