"""What a check looks at, and the line that it comes to."""

from __future__ import annotations

import pwd
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from audits.evidence.steps import NotChecked, Status
from crypto.errors import CryptoError
from protocols.errors import SecureFglError
from protocols.wire.roster import Identity
from secure_fgl.charters.charter import Charter
from secure_fgl.charters.identity_file import load_identity
from secure_fgl.charters.joining import kept_charter
from secure_fgl.charters.party import PartyKit
from secure_fgl.cli._shared.verb import exit_code
from secure_fgl.errors import UsageError
from secure_fgl.reasons import explain
from secure_fgl.store.sides.places import place_of

__all__ = ["Check", "Line", "NotChecked", "Status", "Subject", "failed", "look", "named", "utc"]


def named(uid: int) -> str:
    """Return what messages call a user."""
    try:
        return f"{pwd.getpwuid(uid).pw_name} ({uid})"
    except KeyError:
        return f"number {uid}"


def utc() -> datetime:
    """Return the time of this machine (UTC)."""
    return datetime.now(UTC)


@dataclass
class Subject:
    """One party at its site; each part is read when a check first asks for it, and once.

    Attributes:
        party: its folder.
        run: the name of the run; None: the one run that the party joined.
        now: this machine's time.
    """

    party: Path
    run: str | None
    now: datetime
    _agreed: PartyKit | None = None

    @cached_property
    def me(self) -> Identity:
        """The party's keys; raises UsageError."""
        return load_identity(self.party)

    @cached_property
    def place(self) -> Path:
        """The folder of the run at this party; raises UsageError where it joined none."""
        return place_of(self.party, self.run)

    @cached_property
    def charter(self) -> Charter:
        """The charter as it lies there; raises UsageError, or EvidenceError for what is none."""
        found = kept_charter(self.place)
        if found is None:
            raise UsageError(
                f"{self.place} holds no charter.",
                why="it was taken away, or the folder is none of ours",
                fix="secure-fgl site join PARTY charter.json, with one that all signed",
            )
        return found

    def agree(self) -> PartyKit:
        """Hold keys and charter to each other; raises as `PartyKit.agreed` does."""
        self._agreed = PartyKit.agreed(self.place, self.me, self.charter)
        return self._agreed

    @property
    def agreed(self) -> PartyKit:
        """What the check of the charter found; raises NotChecked where it found nothing."""
        if self._agreed is None:
            raise NotChecked("the charter does not hold")
        return self._agreed


Check = Callable[[Subject], str]
"""Returns a sentence; raises NotChecked, or an error that says why not and what to do."""


@dataclass(frozen=True)
class Line:
    """The outcome of one check.

    Attributes:
        name: of the check.
        status: OK, FAIL or NOT CHECKED.
        said: one sentence.
        todo: what to do, where something is to be done.
        code: exit code of what failed; 0 if nothing did.
    """

    name: str
    status: Status
    said: str
    todo: str = ""
    code: int = 0


S = TypeVar("S")


def look(name: str, check: Callable[[S], str], subject: S) -> Line:
    """Run one check; whatever it raises becomes its line."""
    try:
        return Line(name, Status.OK, check(subject))
    except NotChecked as missing:
        return Line(name, Status.NOT_CHECKED, str(missing))
    except Exception as error:
        return failed(name, error)


def failed(name: str, error: Exception) -> Line:
    """Return the line of a check that raised; of an error that is not ours its text stays out."""
    said, todo = _told(error)
    return Line(name, Status.FAIL, said, todo, exit_code(error))


def _told(error: Exception) -> tuple[str, str]:
    if isinstance(error, SecureFglError):
        why = f" {error.why[:1].upper()}{error.why[1:].rstrip('.')}." if error.why else ""
        return f"{error.what}{why}", error.fix
    if isinstance(error, CryptoError):
        what, _, todo = error.diagnostics()
        return what, todo
    return " ".join(explain(error, again="")), ""  # its text may hold data
