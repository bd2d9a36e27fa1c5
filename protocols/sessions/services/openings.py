"""What the key authority has opened: each upload once, a round over one set of survivors (O5)."""

from __future__ import annotations

from protocols.disclosures._base.view import answers_of
from protocols.disclosures.names import Disclosure
from protocols.errors import BadEnvelope, Replay
from protocols.sessions.part import Engine, SessionPart
from protocols.wire.header import Header


def _apart(before: str, left: frozenset[str], stayed: frozenset[str]) -> bool:
    """Tell whether these are part of whom a result counts that nothing can be subtracted from."""
    return left < stayed and not answers_of(Disclosure(before)).adds


_Opening = tuple[str, int, int, frozenset[str], frozenset[str]]


class Openings(SessionPart):
    """Remembers and records every opening, before it."""

    lasting = frozenset({"opened"})

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        # By round: disclosure, exchange, exchange of the uploads, who was asked, whose uploads.
        self.opened: dict[int, list[_Opening]] = {}

    def check_recorded(self, header: Header, disclosure: Disclosure) -> None:
        """Raise BadEnvelope unless this opening stands in the ledger already."""
        opened = self.opened.get(header.round, [])
        if (str(disclosure), header.exchange) not in {(d, e) for d, e, *_ in opened}:
            raise BadEnvelope("An opening is taken up that was never recorded.")

    def once(
        self,
        header: Header,
        members: tuple[str, ...],
        survivors: tuple[str, ...],
        disclosure: Disclosure = Disclosure.SUM,
        source: int | None = None,
        digest: str = "",
    ) -> None:
        """Open every exchange's uploads once, and hold a round to one set of survivors (O5).

        Of whatever kind they are: rows over one client less than a total would be subtracted. What
        does not add up, as cosines, may be followed by totals over clusters of it. And nothing of a
        round once a later one was opened: who counts would be chosen knowing that.
        """
        asked, left = frozenset(members), frozenset(survivors)
        uploads = header.exchange if source is None else source
        if header.round < max(self.opened, default=header.round):
            raise Replay("A later round was opened; nothing of this one is opened any more.")
        for kind, exchange, before, others, stayed in self.opened.get(header.round, []):
            again = exchange == header.exchange or before == uploads
            if kind == str(disclosure) and again:
                raise Replay("This exchange was already opened.")
            if before == uploads and (others, stayed) != (asked, left):
                raise BadEnvelope("Answers to one Ask are opened over different survivors (O5).")
            if left & stayed and left != stayed and not _apart(kind, left, stayed):
                raise BadEnvelope("Two different overlapping cohorts in one round (O5).")
            if asked & others and left & others != stayed & asked:
                raise BadEnvelope("A client vanished and came back within one round (O5).")
        opening = (str(disclosure), header.exchange, uploads, asked, left)
        self.opened.setdefault(header.round, []).append(opening)
        facts: dict[str, object] = {
            "cohort": header.cohort,
            "exchange": header.exchange,
            "members": len(members),
            "round": header.round,
            "survivors": len(survivors),
        }
        if digest:
            facts |= {"digest": digest, "disclosure": str(disclosure), "uploads": uploads}
        self._engine.record("open", facts)
