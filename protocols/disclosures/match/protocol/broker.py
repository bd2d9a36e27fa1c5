"""How far one Ask's matching came at the aggregator, and which cells are whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from protocols.disclosures.match.messages import Box, Bundle, Canary, CellBoxes, CellPart
from protocols.disclosures.match.protocol.wire import MatchRun
from protocols.errors import BadEnvelope, LocalProtocolError
from protocols.messages import Message
from protocols.plan.steps import Step
from protocols.wire.control import Acknowledgement

M = TypeVar("M", bound=Message)


def only(messages: Sequence[Message], kind: type[M]) -> M:
    """Return the message of a kind; raises LocalProtocolError if there is none."""
    for message in messages:
        if isinstance(message, kind):
            return message
    raise LocalProtocolError(f"There is no {kind.__name__} here.")


class Broker:
    """One Ask's matching, as far as it came.

    Args:
        boxes: by client, what it sealed first: points, or in ``hmac`` mode tags.
        keyed: ``hmac`` mode.

    `phase` is the step whose answers are waited for.
    """

    def __init__(self, boxes: Mapping[str, bytes], keyed: bool) -> None:
        self.boxes = dict(boxes)
        self.phase = Step.TAGS if keyed else Step.ANSWERS
        self.here: dict[str, tuple[Message, ...]] = {}  # of this phase, by sender
        self.canary = b""
        self.cells: dict[str, int] = {}  # of the members of whole cells
        self.members: dict[int, tuple[str, ...]] = {}

    def take(self, phase: Step) -> dict[str, tuple[Message, ...]]:
        """Return everything of this phase, and go on to another."""
        found, self.here, self.phase = self.here, {}, phase
        return found


KINDS: dict[Step, tuple[type[Message], ...]] = {
    Step.ANSWERS: (Bundle,),
    Step.ONWARD: (Box,),
    Step.SECOND_ANSWERS: (Bundle,),
    Step.TAGS: (Box,),
    Step.COMPARED: (Bundle, Canary),
    Step.SPLIT: (CellBoxes,),
    Step.PART: (CellPart,),
    Step.TAKEN: (Acknowledgement,),
}
"""What an answer of a step holds."""

SERVED = (Step.ANSWERS, Step.SECOND_ANSWERS)
"""Whose turn it is among tag servers."""


def whole_cells(run: MatchRun, said: Mapping[str, tuple[int, bytes]]) -> dict[int, tuple[str, ...]]:
    """Return the members of each cell of which all sent their shares.

    Raises:
        BadEnvelope: members of a cell name other members, or a cell that there cannot be: the
            matcher told them different things, or one of them lies.
    """
    found: dict[int, tuple[str, ...]] = {}
    for name, (cell, mask) in sorted(said.items()):
        members = run.roster.unmask(mask)
        if cell >= run.cells or name not in members or found.get(cell, members) != members:
            raise BadEnvelope("Members of one cell were told different things (O25).")
        found[cell] = members
    named = [name for members in found.values() for name in members]
    if len(set(named)) != len(named):
        raise BadEnvelope("A client stands in two cells (O25).")
    return {cell: names for cell, names in found.items() if set(names) <= set(said)}
