"""What a party says to a charter, and how it keeps the one that all signed."""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from dataclasses import replace as changed
from pathlib import Path

from protocols.errors import EvidenceError
from protocols.wire.roster import Identity
from secure_fgl.charters.charter import LIMIT as CHARTER_LIMIT
from secure_fgl.charters.charter import Charter, check_versions
from secure_fgl.charters.facts import LIMIT, Facts
from secure_fgl.charters.party import (
    PartyKit,
    check_not_refused,
    load_identity,
    refusal_note,
)
from secure_fgl.errors import UsageError
from secure_fgl.store.files import Folder, content, replace
from secure_fgl.store.sides.party_side import RUNS

__all__ = ["keep", "kept_charter", "merged", "refuse", "sign"]


def sign(folder: str | Path, charter: Charter) -> Charter:
    """Add this party's signature to a charter that it has read and agrees to.

    Raises:
        UsageError: the folder holds no identity of ours, or programs here are of other versions
            than the charter says.
        EvidenceError: the charter names this party with other keys, another role or another
            organisation, contradicts itself, or sets what is each site's own; or this party
            refused it.
    """
    me = _named(Path(folder), charter)
    _check_organisation(Path(folder), charter, me)
    charter.check_content()
    check_versions(charter.versions)
    check_not_refused(Path(folder), charter)
    return charter.signed_by(me.party.name, me.signing)


def refuse(folder: str | Path, charter: Charter, reason: str) -> Charter:
    """Add this party's signed refusal, and note it: this party never starts that charter again.

    Raises:
        UsageError: as `sign`, or this is no reason that a refusal can hold.
        EvidenceError: the charter names this party with other keys or another role.
    """
    me = _named(Path(folder), charter)
    refused = charter.refused_by(me.party.name, me.signing, reason)
    note = refusal_note(Path(folder), charter)
    try:
        note.parent.mkdir(mode=0o700, exist_ok=True)
        replace(note, refused.encode())
    except OSError as error:
        raise UsageError(f"{note} cannot be written ({error.strerror}).") from error
    return refused


def _named(folder: Path, charter: Charter) -> Identity:
    me = load_identity(folder)
    name = me.party.name
    if name not in charter.carriers or charter.roster.party(name) != me.party:
        raise EvidenceError("charter", "it does not name this party as it announced itself")
    return me


def _check_organisation(folder: Path, charter: Charter, me: Identity) -> None:
    """See that the charter calls this party's organisation as its own facts beside its keys do.

    A party that a program made has nothing to compare. One that announced its organisation takes
    no charter that names none: nothing would keep two roles of one organisation apart.
    """
    path = folder / f"{me.party.name}.facts.json"
    if not path.exists():
        return
    try:
        announced = Facts.decode(content(path, LIMIT) or b"")
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror}).") from error
    name = me.party.name
    named = (charter.organisations.get(name, ""), charter.carriers[name])
    if (announced.party, announced.organisation, announced.carrier) != (me.party, *named):
        raise EvidenceError(
            "charter", "it names this party's organisation or connection otherwise than its facts"
        )


def merged(copies: Sequence[Charter]) -> Charter:
    """Return one charter with all signatures and refusals of its copies.

    Raises:
        UsageError: they are not copies of one charter.
        EvidenceError: a copy holds a signature that is none.
    """
    first = copies[0]
    if any(copy.signed != first.signed for copy in copies):
        raise UsageError(
            "These are not copies of one charter.",
            why="one was drawn up again, or edited; signatures hold for one charter only",
            fix="compare them: secure-fgl charter show FILE --against FILE",
        )
    for copy in copies:
        copy.approvals()
    return changed(
        first,
        signatures={name: s for copy in copies for name, s in copy.signatures.items()},
        refusals={name: r for copy in copies for name, r in copy.refusals.items()},
    )


def kept_charter(place: Path) -> Charter | None:
    """Return the charter that lies in a run's folder, signatures not looked at; None: none does.

    Raises:
        UsageError: it cannot be read.
        EvidenceError: it is no charter.
    """
    path = place / "charter.json"
    if not path.exists():
        return None
    try:
        return Charter.decode(content(path, CHARTER_LIMIT) or b"")
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror}).") from error


def keep(party: str | Path, charter: Charter) -> PartyKit:
    """Put the charter that everybody signed into a party's folder, and return its kit.

    It lies in a folder of its run, beside those of other runs.

    Raises:
        EvidenceError: somebody did not sign it, or it is not of this party.
        UsageError: the run began with another charter, or the folder cannot be written.
    """
    home = Path(party)
    charter.check()
    _check_organisation(home, charter, _named(home, charter))
    check_not_refused(home, charter)
    place, data = f"{RUNS}/{charter.run}", charter.encode()
    folder = Folder(home)
    try:
        begun = folder.there(f"{place}/run")
        if begun and not hmac.compare_digest(folder.read(f"{place}/charter.json"), data):
            raise UsageError(
                f"{home / place} holds a run of another charter.",
                why="its ledger and its state belong to the charter that lies beside them",
                fix="draw up a charter anew: its run has another name",
            )
        folder.write(f"{place}/charter.json", data)
    except OSError as error:
        raise UsageError(f"{home / place} cannot be written ({error.strerror}).") from error
    return PartyKit.load(home, charter.run)
