"""What a party destroyed of its own side after a run, as it signed: ``forgotten/<party>.jsonl``.

A ledger is closed and signed when a run is over, so this stands beside it: one line of canonical
JSON for each time, under the party's key on the roster. It says what is gone and since when. Where
it stands, captured rounds that are away are no broken evidence, whatever the policy's days are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from audits.evidence.run_files import check_version, fail
from audits.evidence.steps import Case
from crypto.errors import CryptoError
from crypto.signing.canonical import canonical, parse
from crypto.signing.signatures import SigningKey, VerifyKey
from protocols.versions import FORGOTTEN

__all__ = [
    "KINDS",
    "Forgotten",
    "destroyed_ledger",
    "forgotten",
    "note_of",
    "read_notes",
    "told",
]

KINDS = ("captures", "models", "state", "ledger")
"""What can be destroyed: captured rounds, models, the kept state of a run that goes not on, and the
ledger with all else but plan, policy, roster and configuration, which say of what run a note is."""

STEP = "captured"
_DOMAIN = "forgotten"
_LIMIT = 16_384  # bytes of a line; ours has about 500
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}Z")
_MEMBERS = {"at", "party", "run", "signature", "version", "what"}


@dataclass(frozen=True)
class Forgotten:
    """One time: what was destroyed (see `KINDS`), and when (UTC, to the second)."""

    what: tuple[str, ...]
    at: str


def note_of(key: SigningKey, found: Forgotten, *, run: str, party: str) -> bytes:
    """Return the signed line of what a party destroyed.

    Args:
        key: the party's.
        found: what, and when.
        run: the run's name.
        party: the party's name.
    """
    facts = _facts(found, run, party)
    return canonical({**facts, "signature": key.sign(_DOMAIN, canonical(facts)).hex()}) + b"\n"


def read_notes(data: bytes, key: VerifyKey, *, run: str, party: str) -> tuple[Forgotten, ...]:
    """Read what a party destroyed.

    Raises:
        OtherEvidence: a line is of another version.
        EvidenceError: at step ``captured``: a line is not signed by this party for this run.
    """
    found = []
    for line in data.splitlines(keepends=True):
        try:
            facts = parse(line.rstrip(b"\n"), limit=_LIMIT)
        except CryptoError:
            _bad(party)
        check_version(facts, FORGOTTEN, step=STEP, what="forgotten/", member="version")
        found.append(_read(facts, line, key, run, party))
    return tuple(found)


def forgotten(case: Case) -> dict[str, tuple[Forgotten, ...]]:
    """Return what each party destroyed; raises EvidenceError as `read_notes` does."""
    names = {entry["name"] for entry in case.roster.document()}
    if set(case.view.forgotten) - names:
        fail(STEP, "forgotten/ holds a note of nobody on the roster")
    if empty := sorted(name for name, data in case.view.forgotten.items() if not data):
        fail(STEP, f"the note of what {empty[0]} destroyed is empty, and signed by nobody")
    return {
        party: read_notes(
            data, case.roster.party(party).verify, run=case.roster_file.run, party=party
        )
        for party, data in sorted(case.view.forgotten.items())
    }


def destroyed_ledger(case: Case) -> str:
    """Return when the party of a side without a ledger destroyed it; empty if nobody signed that.

    Raises:
        EvidenceError: as `read_notes` does.
    """
    notes = forgotten(case).get(case.view.side, ()) if case.view.side else ()
    return next((note.at for note in notes if "ledger" in note.what), "")


def told(notes: Mapping[str, Sequence[Forgotten]]) -> str:
    """Return who destroyed what and when, as the end of a sentence; empty if nobody did."""
    said = [
        f"{party} destroyed its {' and '.join(note.what)} at {note.at}, as it signed"
        for party, found in notes.items()
        for note in found
    ]
    return "".join(f"; {one}" for one in said)


def _facts(found: Forgotten, run: str, party: str) -> dict[str, Any]:
    what = {"at": found.at, "what": list(found.what)}
    return {**what, "party": party, "run": run, "version": FORGOTTEN.version}


def _read(facts: Any, line: bytes, key: VerifyKey, run: str, party: str) -> Forgotten:
    if not isinstance(facts, dict) or set(facts) != _MEMBERS or canonical(facts) + b"\n" != line:
        _bad(party)
    what, at = facts["what"], facts["at"]
    if not isinstance(what, list) or not isinstance(at, str) or not _DAY.fullmatch(at):
        _bad(party)
    found = Forgotten(tuple(kind for kind in KINDS if kind in what), at)
    if not found.what or list(found.what) != what:
        _bad(party)
    try:
        key.verify(_DOMAIN, bytes.fromhex(facts["signature"]), canonical(_facts(found, run, party)))
    except (CryptoError, TypeError, ValueError):
        _bad(party)
    if (facts["run"], facts["party"]) != (run, party):
        _bad(party)
    return found


def _bad(party: str) -> NoReturn:
    fail(STEP, f"a note of what {party} destroyed is not signed by it for this run")
