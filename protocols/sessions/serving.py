"""What tag servers and the matcher share: one request, one answer, and no more after an error."""

from __future__ import annotations

from collections.abc import Mapping

from protocols.control import Bundle
from protocols.envelope import beginning, is_again
from protocols.errors import BadEnvelope, LedgerError, LocalProtocolError
from protocols.inbox import Letter
from protocols.ledger import Ledger
from protocols.match_wire import Kind, MatchRun
from protocols.papers import Papers, Where
from protocols.roster import Role
from protocols.sessions.base import Parcel, Session
from protocols.sessions.table import Event


class ServingSession(Session):
    """A role that the aggregator asks with a bundle of boxes, one of each client."""

    def __init__(self, papers: Papers, ledger: Ledger, rounding: bytes) -> None:
        super().__init__(papers, ledger, rounding)
        self._repeat: tuple[bytes, list[Parcel]] = (b"", [])  # how the last began, its answer

    def receive(self, data: bytes) -> list[Parcel]:
        """Take one envelope, return what leaves in answer.

        Raises:
            RemoteProtocolError: not authentic, a replay, or for another run.
            LedgerError: the record could not be written; nothing leaves.
        """
        if is_again(data, self._repeat[0]):
            return self._repeat[1]
        self.alive()
        letter = self._inbox.open(data)
        try:
            self.move(Event.MATCH)
            replies = [self._answer(letter)]
        except LedgerError as error:
            self.die(error)
            raise
        except Exception as error:
            self.die(error)
            where = Where(letter.header.round, letter.header.exchange)
            aggregator = self.papers.roster.one(Role.AGGREGATOR).name
            replies = [self.refusal(error, aggregator, where)]
        self._repeat = (beginning(letter.envelope), replies)
        try:
            self.commit()
        except BaseException as error:  # whatever failed: this answer never leaves
            self.die(error)
            raise
        return replies

    def _answer(self, letter: Letter) -> Parcel:
        raise NotImplementedError

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

    def die(self, error: BaseException) -> None:
        """End the session for good; nothing but its refusal is said again."""
        super().die(error)
        self._repeat = (b"", [])

    def close(self, result: Mapping[str, str] | None = None) -> None:
        """End; nothing is said again."""
        self._repeat = (b"", [])
        super().close(result)


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
