"""The formats that others keep or are sent, the number each one carries, and who reads which.

A number stands where every later program finds it without knowing the rest, and is read before
anything else; it lies under the signature, chain or lock of what it numbers, where there is one.

::

    envelope       the byte after ``SFGL``; in the domain of the header's signature
    plan           ``version``; in the plan's digest, and so in every signed header
    ledger         ``version`` of the first entry; in every head after it
    bundle         ``version`` of ``manifest.json``, and of ``keys/trust.json``, which is signed
    hand-over      ``version`` of ``hand-over.json``
    identity       ``version`` of a locked ``identity.json``; in what the lock is bound to
    kept state     the byte after ``SFGS`` before every journal; in what the lock is bound to
    capture        the byte after ``SFGC``, likewise
    client model   the byte after ``SFGM``, likewise
    forgotten      ``version`` of each line; under its signature
    model file     ``version`` of the description in it
    release waiver ``version`` of the JSON object; under its signature
    rehearsal      ``version`` of the JSON object
    site figures   ``version`` of the JSON object; under its signature
    report, attacks, waivers, baseline     ``schema_version`` or ``version`` of the JSON object
    budget         ``version`` of the first line; in every head after it

Whoever wants to hide that a record is broken may write another number into it. That changes the
words and not the outcome: a record of another version is not verified, and never passes.

One module for all floors, so that there is one table (`tests/laws/test_versions.py` goes by it).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from protocols.errors import OtherVersion

__all__ = [
    "ATTACKS",
    "BASELINE",
    "BUDGET",
    "BUNDLE",
    "CAPTURE",
    "CLIENT_MODEL",
    "ENVELOPE",
    "FORGOTTEN",
    "FORMATS",
    "HAND_OVER",
    "IDENTITY",
    "LEDGER",
    "MODEL_FILE",
    "PLAN",
    "REHEARSAL",
    "RELEASE_WAIVER",
    "REPORT",
    "SITE_FIGURES",
    "STATE",
    "WAIVERS",
    "Format",
]

MOST = (1 << 16) - 1
"""The largest number that is one: beyond it a file is spoilt, and no program wrote it."""
Kind = Callable[[str, int, tuple[int, int], str], OtherVersion]


@dataclass(frozen=True)
class Format:
    """One format.

    Attributes:
        name: as an error calls it.
        version: that this program writes.
        fix: what to do with one of another version.
        mark: what stands before the number, where it is a byte; b"" where it is a member of JSON.
        oldest: that this program still reads; 0: only what it writes.
    """

    name: str
    version: int
    fix: str
    mark: bytes = b""
    oldest: int = 0

    @property
    def head(self) -> bytes:
        """What something of this version begins with."""
        return self.mark + bytes([self.version])

    def check(self, found: object, kind: Kind = OtherVersion) -> bool:
        """Tell whether a stated number is one that this program reads.

        False where it is no number at all: then the thing is spoilt, and of no version.

        Args:
            found: what stands where the number belongs.
            kind: makes the error.

        Raises:
            OtherVersion: of that kind, for the number of another program.
        """
        if type(found) is not int or not 1 <= found <= MOST:
            return False
        oldest = self.oldest or self.version
        if oldest <= found <= self.version:
            return True
        raise kind(self.name, found, (oldest, self.version), self.fix)

    def begins(self, data: bytes | memoryview, kind: Kind = OtherVersion) -> bool:
        """Tell whether bytes begin with the mark and a number that this program reads.

        Raises:
            OtherVersion: as `check` does.
        """
        place = len(self.mark)
        return len(data) > place and data[:place] == self.mark and self.check(data[place], kind)


_AUDIT = "audit with the program that made the run, or run again with this one"

ENVELOPE = Format("envelope", 3, "let all parties of a run use one version", mark=b"SFGL")
PLAN = Format(
    "plan", 10, "make a plan with this program before a run; audit with the program that made a run"
)
LEDGER = Format("ledger", 10, _AUDIT)
BUNDLE = Format("bundle", 3, "check it with the program that made it, or ask for a new bundle")
STATE = Format(
    "kept state", 13, "resume with the program that the run began with, or start it again", b"SFGS"
)
CAPTURE = Format("capture", 4, _AUDIT, mark=b"SFGC")
CLIENT_MODEL = Format(
    "client model", 1, "take the model out with the program that made the run", mark=b"SFGM"
)
MODEL_FILE = Format("model file", 2, "write it again with this program, or open it with that one")
REPORT = Format("report", 9, "make the report again with this program", oldest=1)
ATTACKS = Format("list of attacks", 4, "run secure-fgl audit attack on the run again")
WAIVERS = Format("list of waivers", 1, "give the waivers to audit report again")
BASELINE = Format("baseline", 1, "give the baseline to audit report again")
HAND_OVER = Format("hand-over", 3, "gather it with the program that made it, or ask for another")
IDENTITY = Format(
    "locked identity", 1, "open it with the program that made it, or make new keys with site new"
)
RELEASE_WAIVER = Format("waiver of a release", 1, "sign it again with this program")
REHEARSAL = Format("rehearsal", 2, "rehearse the plan again with this program")
SITE_FIGURES = Format("list of a site's figures", 2, "ask the site for another hand-over")
FORGOTTEN = Format("note of what was destroyed", 2, _AUDIT)
BUDGET = Format("budget", 1, "use the program that wrote it; removing it forgets what was spent")
FORMATS = (
    ENVELOPE,
    PLAN,
    LEDGER,
    BUNDLE,
    STATE,
    CAPTURE,
    CLIENT_MODEL,
    MODEL_FILE,
    REPORT,
    ATTACKS,
    WAIVERS,
    BASELINE,
    BUDGET,
    HAND_OVER,
    IDENTITY,
    FORGOTTEN,
    RELEASE_WAIVER,
    REHEARSAL,
    SITE_FIGURES,
)
