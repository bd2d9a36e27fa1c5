"""What tag servers and the matcher share: one request, one answer, and no more after an error."""

from __future__ import annotations

from collections.abc import Mapping

from protocols.disclosures.match.wire import Kind, MatchRun
from protocols.errors import BadEnvelope, LocalProtocolError
from protocols.sessions.answering import AnsweringSession
from protocols.sessions.base import Parcel
from protocols.sessions.table import Event
from protocols.wire.control import Bundle
from protocols.wire.inbox import Letter
from protocols.wire.where import Where


class ServingSession(AnsweringSession):
    """A role that the aggregator asks with a bundle of boxes, one of each client."""

    def _replies(self, letter: Letter, again: bool) -> list[Parcel]:
        self.move(Event.MATCH)
        reply: Parcel = self.handler(letter)(letter)
        return [reply]

    def _boxes(self, letter: Letter, kind: Kind) -> tuple[Where, dict[str, bytes]]:
        """Return where a bundle belongs, and its boxes by client.

        Raises:
            BadEnvelope: the cohort is not the one that the header names, or a stranger's box.
            CohortTooSmall: fewer clients than the policy's minimum are in it.
        """
        (bundle,) = self._inbox.read(letter, (Bundle,))
        if not isinstance(bundle, Bundle):
            raise LocalProtocolError("This is no bundle.")
        header, papers = letter.header, self.papers
        members = papers.roster.unmask(bundle.members)
        where = Where(header.round, header.exchange, members, header.given, header.attempt)
        if header.cohort != papers.cohort(where) or header.attempt != 1:
            raise BadEnvelope("A bundle's cohort is not the one that its header names.")
        boxes = cut_bundle(self.run, kind, bundle.bundle)
        if set(boxes) - set(members):
            raise BadEnvelope("A bundle holds a box from outside its cohort.")
        papers.policy.check_cohort(len(boxes))
        return where, boxes

    def _bundle(self, where: Where, kind: Kind, boxes: Mapping[str, bytes]) -> Bundle:
        """Return an answer's bundle."""
        members = self.papers.roster.mask(where.members)
        return Bundle(members=members, bundle=bundle_of(self.run, kind, boxes))

    @property
    def run(self) -> MatchRun:
        """What all parties of the matching agree on."""
        found = self.papers.match_run()
        if found is None:
            raise LocalProtocolError("Nothing is matched in this run.")
        return found


def bundle_of(run: MatchRun, kind: Kind, boxes: Mapping[str, bytes]) -> bytes:
    """Return boxes by roster client, zeros where there is none."""
    empty = bytes(run.length(kind))
    return b"".join(boxes.get(name, empty) for name in run.roster.clients)


def cut_bundle(run: MatchRun, kind: Kind, data: bytes) -> dict[str, bytes]:
    """Return the boxes of a bundle by client; raises BadEnvelope for another size."""
    size, clients = run.length(kind), run.roster.clients
    if len(data) != size * len(clients):
        raise BadEnvelope("A bundle does not have the planned size.")
    cut = {name: data[at * size : (at + 1) * size] for at, name in enumerate(clients)}
    return {name: box for name, box in cut.items() if any(box)}
