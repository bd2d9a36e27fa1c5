"""The aggregator's part while items are matched: it carries boxes, and adds cells (O24, O25).

It opens none of the boxes. It learns who stands in one cell, as it carries their shares, and adds
blinded sums, of which it reads nothing: the blinds follow from a key that only clients know. A cell
of which anything is missing is left out as a whole. In the form `published` there are no cells, and
it carries boxes alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sized
from contextlib import suppress
from typing import ClassVar

import numpy as np

from protocols.disclosures.match.disclosure import Cells, Matchable
from protocols.disclosures.match.messages import (
    Box,
    Bundle,
    Canary,
    CellBoxes,
    CellPart,
    CellTotals,
    Listed,
)
from protocols.disclosures.match.parties import bundle_of, cut_bundle
from protocols.disclosures.match.protocol.cells import LABEL_BYTES, total
from protocols.disclosures.match.protocol.wire import (
    KINDS,
    SERVED,
    Broker,
    Kind,
    MatchRun,
    only,
    whole_cells,
)
from protocols.disclosures.match.run import match_run_of
from protocols.disclosures.names import Disclosure
from protocols.errors import BadEnvelope, LocalProtocolError, Replay, RoundLost, WrongStage
from protocols.messages import Message
from protocols.plan.steps import Step
from protocols.rounds import Given
from protocols.sessions.asking import Asked
from protocols.sessions.engine import Phase
from protocols.sessions.part import IDLE, Delivery, Engine, Scope, SessionPart, Stages, Takes
from protocols.sessions.survivors import Survivors
from protocols.wire.inbox import Incoming
from protocols.wire.roles import Role

_MATCHING = "matching"


class Matching(SessionPart):
    """Carries boxes between clients, tag servers and matcher; its phase is MATCH.

    Args:
        engine: the session.
        asked: the Ask under way.
        survivors: of the round; who does not answer a step has vanished.
    """

    phase: ClassVar[int | None] = Phase.MATCH
    stages: ClassVar[Stages] = {IDLE: {_MATCHING}}
    part: ClassVar[Disclosure] = Disclosure.MATCH
    kinds: ClassVar[Mapping[Step, tuple[type[Message], ...]]] = KINDS

    def __init__(self, engine: Engine, asked: Asked, survivors: Survivors) -> None:
        super().__init__(engine)
        self._asked, self._survivors = asked, survivors
        self._broker: Broker | None = None
        self._celled = False  # whether the matcher made cells of all clients

    def wanted(self) -> bool:
        """Tell whether an Ask's answers are matched."""
        name = self._asked.answers.exchange.name
        return self._context.plans(name, self.part, Step.COMPARE)

    def forget(self, scope: Scope) -> None:
        """Drop a matching that did not end (O9)."""
        if scope is Scope.ASK:
            self._broker = None

    def alike(self, given: Given) -> Message | None:
        """Return what all members are told alike of a matching."""
        return given.told if isinstance(given, Cells) else None

    @property
    def _matching(self) -> tuple[Broker, MatchRun]:
        run = self._run_of()
        if self._broker is None or run is None:
            raise LocalProtocolError("Nothing is being matched.")
        return self._broker, run

    def _run_of(self) -> MatchRun | None:
        return match_run_of(self._context)

    def _first(self) -> Mapping[str, bytes]:
        """Return what clients sealed first, by client."""
        return self._asked.answers.of(Disclosure.MATCH, Matchable).bodies()

    def enter(self) -> Iterable[Delivery]:
        """Give the clients' boxes to the first tag server; in ``hmac`` mode to the matcher."""
        self.go(_MATCHING)
        run = self._run_of()
        if run is None:
            raise LocalProtocolError("Nothing is matched in this run.")
        keyed = run.match.servers == 0
        self._broker = Broker(self._first(), keyed)
        return self._compare_tags() if keyed else self._ask_server(Step.POINTS, run.servers[0])

    def _ask_server(self, step: Step, server: str) -> list[Delivery]:
        broker, _ = self._matching
        return [self._carry(server, step, self._bundled(Kind.POINTS, broker.boxes))]

    def _bundled(self, kind: Kind, boxes: Mapping[str, bytes]) -> Bundle:
        _, run = self._matching
        members = self._context.roster.mask(self._asked.answers.where.members)
        return Bundle(members=members, bundle=bundle_of(run, kind, boxes))

    def _carry(self, party: str, step: Step, message: Message) -> Delivery:
        asked = self._asked.answers
        item = self._context.find(asked.exchange.name, self.part, step)
        return self._engine.send(item, [message], party, asked.where)

    def _take_match(self, incoming: Incoming) -> None:
        """Take one answer of the step that is under way.

        Raises:
            WrongStage: nothing of this kind is waited for.
            Replay: this party answered already.
            BadEnvelope: it is not from whom the step asked.
        """
        if self.stage != _MATCHING:
            raise WrongStage("An answer of matching arrived while nothing is matched.")
        (broker, run), asked = self._matching, self._asked.answers
        if (incoming.item.exchange, incoming.item.step) != (asked.exchange.name, broker.phase):
            raise WrongStage("An answer of matching belongs to another step.")
        asked.check_place(incoming)
        sender, client = incoming.header.sender, incoming.item.sender == str(Role.CLIENT)
        if client and (incoming.header.given != asked.where.given or not self._in(sender)):
            raise BadEnvelope("An answer of matching is not from who was asked.")
        if sender in broker.here:
            raise Replay("This party's answer of this step is here already.")
        if broker.phase in SERVED and sender != run.servers[SERVED.index(broker.phase)]:
            raise BadEnvelope("An answer of matching is not from the tag server that was asked.")
        broker.here[sender] = self._engine.read(incoming, self.kinds[broker.phase])

    def _in(self, client: str) -> bool:
        broker, _ = self._matching
        return client in (broker.cells if broker.phase is Step.PART else broker.boxes)

    def advance(self) -> Iterable[Delivery] | None:
        """Go on once a step's answers are in."""
        broker, _ = self._matching
        steps: dict[Step, Callable[[], Iterable[Delivery] | None]] = {
            Step.ANSWERS: lambda: self._hand_back(Step.HALFWAY, Step.ONWARD),
            Step.ONWARD: self._ask_second,
            Step.SECOND_ANSWERS: lambda: self._hand_back(Step.TAGGED, Step.TAGS),
            Step.TAGS: self._compare_tags,
            Step.COMPARED: self._tell,
            Step.SPLIT: self._hand_shares,
            Step.PART: self._add_cells,
            Step.TAKEN: self._end_lists,
        }
        return steps[broker.phase]()

    def _hand_back(self, step: Step, phase: Step) -> list[Delivery]:
        """Give every client what a tag server made of its points."""
        broker, run = self._matching
        here = broker.take(phase)
        if not here:
            raise RoundLost("A tag server did not answer. The round is skipped.")
        (found,) = here.values()
        boxes = cut_bundle(run, Kind.ANSWER, only(found, Bundle).bundle)
        if set(boxes) != set(broker.boxes):
            raise BadEnvelope("A tag server answered others than those who asked.")
        return [self._carry(name, step, Box(boxes=box)) for name, box in sorted(boxes.items())]

    def _ask_second(self) -> list[Delivery]:
        """Give the second tag server what clients sealed for it."""
        broker, run = self._matching
        here = broker.take(Step.SECOND_ANSWERS)
        self._stay(here)
        broker.boxes = {name: only(found, Box).boxes for name, found in here.items()}
        self._check_all()
        return self._ask_server(Step.SECOND_POINTS, run.servers[1])

    def _check_all(self) -> None:
        """Refuse to go on without somebody the first time, as cells are for good."""
        broker, run = self._matching
        if not (run.published or self._celled) and set(broker.boxes) != set(run.roster.clients):
            raise RoundLost("Cells are made once, of all clients, and some are missing.")
        self._check_enough(broker.boxes)

    def _compare_tags(self) -> list[Delivery]:
        """Give the matcher all tags; the first time those of all clients, as cells are for good."""
        broker, run = self._matching
        if run.match.servers:
            here = broker.take(Step.COMPARED)
            self._stay(here)
            broker.boxes = {name: only(found, Box).boxes for name, found in here.items()}
        broker.phase = Step.COMPARED
        self._check_all()
        matcher = self._context.roster.one(Role.MATCHER).name
        return [self._carry(matcher, Step.COMPARE, self._bundled(Kind.TAGS, broker.boxes))]

    def _tell(self) -> list[Delivery]:
        """Give every client what the matcher found for it."""
        broker, run = self._matching
        here = broker.take(Step.TAKEN if run.published else Step.SPLIT)
        if not here:
            raise RoundLost("The matcher did not answer. The round is skipped.")
        (found,) = here.values()
        boxes = cut_bundle(run, run.found, only(found, Bundle).bundle)
        broker.canary = only(found, Canary).canary
        if set(boxes) != set(broker.boxes):
            raise BadEnvelope("The matcher answered others than those who sent tags.")
        self._celled = not run.published
        return [self._carry(name, Step.TOLD, Box(boxes=box)) for name, box in sorted(boxes.items())]

    def _hand_shares(self) -> list[Delivery]:
        """Give the members of whole cells each other's shares."""
        broker, run = self._matching
        here = broker.take(Step.PART)
        self._stay(here)
        said = {name: only(found, CellBoxes) for name, found in here.items()}
        broker.members = whole_cells(run, {n: (m.cell, m.members) for n, m in said.items()})
        broker.cells = {n: cell for cell, names in broker.members.items() for n in names}
        if not broker.members:
            raise RoundLost("No cell is complete: of each a member vanished.")
        size, found = run.length(Kind.SHARE), []
        for name, cell in sorted(broker.cells.items()):
            names = broker.members[cell]
            place = names.index(name)
            mine = b"".join(said[n].boxes[place * size : (place + 1) * size] for n in names)
            padded = mine.ljust(run.match.largest(len(run.roster.clients)) * size, b"\0")
            found.append(self._carry(name, Step.MATES, Box(boxes=padded)))
        return found

    def _add_cells(self) -> None:
        """Add the blinded sums of whole cells; the reply hands their totals to all clients."""
        broker, run = self._matching
        here = broker.take(Step.PART)
        totals = np.zeros((run.cells, run.size), dtype=np.uint32)
        there = np.zeros(run.cells, dtype=bool)
        labels = [bytes(LABEL_BYTES)] * run.cells
        for cell, names in broker.members.items():
            said = [only(here[name], CellPart) for name in names if name in here]
            parts = [(part.label, part.words) for part in said]
            with suppress(RoundLost):  # a member is missing, or they have no common label
                labels[cell], totals[cell] = total(parts, len(names), run.size)
                there[cell] = True
        if not there.any():
            raise RoundLost("No cell is complete: of each a member vanished.")
        self._survivors.vanish(set(broker.cells) - set(here))
        told = CellTotals(
            canary=broker.canary,
            there=np.packbits(there, bitorder="little").tobytes(),
            labels=b"".join(labels),
            totals=totals.astype("<u4").tobytes(),
        )
        self._end(told, int(there.sum()), len(here))

    def _end_lists(self) -> None:
        """In the form `published`, end once clients have their lists; the reply says by what."""
        broker, _ = self._matching
        here = broker.take(Step.TAKEN)
        self._stay(here)
        self._check_enough(here)
        self._end(Listed(canary=broker.canary), 0, len(here))

    def _end(self, told: Message, cells: int, clients: int) -> None:
        """Record a matching, and make it the Ask's reply."""
        where, canary = self._asked.answers.where, self._matching[0].canary.hex()
        place = {"exchange": where.exchange, "round": where.round}
        facts = {"canary": canary, "cells": cells, "clients": clients, **place}
        self._engine.record("match", facts)
        self._broker = None
        self._asked.answers.of(Disclosure.MATCH, Matchable).told = told

    def _stay(self, here: Iterable[str]) -> None:
        """Go on with who answered; who did not has vanished from the round."""
        broker = self._matching[0]
        self._survivors.vanish(set(broker.boxes) - set(here))
        broker.boxes = {name: box for name, box in broker.boxes.items() if name in here}

    def _check_enough(self, names: Sized) -> None:
        if len(names) < self._context.policy.smallest_cohort:
            raise RoundLost(f"Only {len(names)} clients are left to be matched.")

    takes: ClassVar[Takes] = dict.fromkeys(
        [(Disclosure.MATCH, step) for step in KINDS], _take_match
    )


AGGREGATOR = Matching
