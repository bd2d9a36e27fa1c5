"""Captured: are the captured rounds those that the ledgers name, to the byte?

Their keys are destroyed when the days of the policy are over; what is left of them stays bound by
its digest. A party may then remove its folder as a whole, which is told apart from a change: before
that day, and for a part of it on any day, it is one. A party that destroyed them earlier says
so under its key (`audits.checks.parties.forgotten`).
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping, Set
from datetime import date, timedelta
from functools import partial

from audits.checks.parties.forgotten import Forgotten, forgotten, told
from audits.evidence.captured_files import CapturedFiles, PieceFile
from audits.evidence.ledger_index import LedgerIndex
from audits.evidence.run_files import fail
from audits.evidence.steps import Case, Check, NotChecked
from audits.report.words import plural
from protocols.errors import OtherEvidence
from protocols.evidence.capture import captured_rounds
from protocols.versions import CAPTURE


def recorded_pieces(ledger_index: LedgerIndex) -> dict[str, dict[str, str]]:
    """Return the digest (hex) of every captured piece, by party and name.

    Raises:
        EvidenceError: at step ``captured``: a ledger names a piece twice.
    """
    found: dict[str, dict[str, str]] = {}
    for party, entry in ledger_index.of_kind("captured"):
        pieces = found.setdefault(party, {})
        if entry["piece"] in pieces:
            fail("captured", f"the ledger of {party} names the piece {entry['piece']} twice")
        pieces[entry["piece"]] = entry["digest"]
    return found


def captured(case: Case) -> str:
    """Every captured piece is the one that its party's ledger names, and no other is there."""
    notes = forgotten(case)
    try:
        return _captured(case, {p for p, n in notes.items() if _gone(n)}) + told(notes)
    except NotChecked as reason:
        raise NotChecked(f"{reason}{told(notes)}") from None


def _gone(notes: tuple[Forgotten, ...]) -> bool:
    return any("captures" in note.what for note in notes)


def _captured(case: Case, destroyed: Set[str]) -> str:
    recorded = recorded_pieces(case.ledger_index)
    _planned(case)
    if case.view.captured is None:
        raise NotChecked("captured rounds stay at their parties and are not among these files")
    files = case.view.captured()
    if files.strays:
        fail("captured", f"captured/ holds {plural(files.strays, 'thing')} that are no pieces")
    if strangers := set(files.pieces) - set(recorded):
        whose = plural(len(strangers), "folder")
        fail("captured", f"captured/ holds {whose} of parties whose ledgers name no piece")
    gone = [party for party in recorded if not files.pieces.get(party)]
    for party in sorted(set(recorded) - set(gone)):
        _same(party, files.pieces[party], recorded[party])
    here = f"{sum(map(len, files.pieces.values()))} captured pieces are those that ledgers name"
    if not gone:
        return here if recorded else "no ledger names a captured piece, and none is there"
    left = [party for party in gone if party not in destroyed]
    why = _removable(case, files, left) if left else "each signed that it destroyed them"
    raise NotChecked(
        f"the captured rounds of {len(gone)} of {len(recorded)} parties, among them {gone[0]}, are "
        f"not here at all: {why}" + (f"; {here}" if files.pieces else "")
    )


def _planned(case: Case) -> None:
    """Ledgers name pieces of the rounds that the policy captures, and of no other."""
    rounds = set(captured_rounds(case.policy.capture, case.plan.rounds))
    for party, entry in case.ledger_index.of_kind("captured"):
        if entry["round"] not in rounds:
            fail("captured", f"{party} captured round {entry['round']}, against the policy")


def _same(party: str, there: Mapping[str, PieceFile], recorded: Mapping[str, str]) -> None:
    if more := len(set(there) - set(recorded)):
        what = plural(more, "piece")
        fail("captured", f"captured/{party} holds {what} that its ledger does not name")
    if gone := sorted(set(recorded) - set(there)):
        kept = f"{len(gone)} of {len(recorded)} captured pieces, among them {gone[0]}"
        fail("captured", f"{party} lacks {kept}: they were removed one by one")
    for name, digest in recorded.items():
        _of_this_version(party, name, there[name])
        if not hmac.compare_digest(there[name].digest, digest):
            fail("captured", f"the piece {name} of {party} is not the one that its ledger names")


def _of_this_version(party: str, name: str, piece: PieceFile) -> None:
    """A ledger of this version names pieces of this version: another number was put there."""
    try:
        CAPTURE.begins(piece.head, partial(OtherEvidence, "captured"))
    except OtherEvidence as error:
        changed = "the ledger that names it is of this version, so it was changed"
        fail("captured", f"the piece {name} of {party}: {error.what}; {changed}")


def _removable(case: Case, files: CapturedFiles, gone: list[str]) -> str:
    """Return why the captures of some parties may be away; raises EvidenceError if they may not.

    Only a simulation, or a party's own side, has the captures in the folder that is looked at.
    """
    capture = case.policy.capture
    if capture is None:
        fail("captured", "a piece was captured against the policy")
    if not case.roster_file.simulated and not case.view.side:
        return "each party keeps its own, and removes them after its days"
    begun = max(_day(case, party) for party in gone)
    until = begun + timedelta(days=capture.days)
    if files.day <= until:
        fail("captured", f"captured/{gone[0]} was removed before its days were over, {until}")
    return f"removed whole, as they may be after {until}"


def _day(case: Case, party: str) -> date:
    """Return the day on which a party's ledger was begun."""
    try:
        return date.fromisoformat(str(case.ledger_index.first[party]["time"])[:10])
    except ValueError:
        fail("captured", f"the ledger of {party} says no day on which it was begun")


CAPTURED = Check("captured", ("files", "plan", "roster", "chain", "tree"), captured)
