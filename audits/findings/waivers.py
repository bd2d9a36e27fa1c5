"""Findings that somebody accepted: by whom, why, and until when.

A waiver hides nothing. The finding stays in the report with the name of whoever answers for it; it
only no longer counts for ``--fail-on``. Critical findings, broken evidence and what left unplanned
cannot be waived, and neither can exit codes 5, 6 and 7, which are not read from findings.

``audit report`` takes a file over into the run as ``waivers.json`` and writes the day of judgement
into it. Expiry is judged against that day and no clock, so that ``audit verify`` renders the same
report later. No waiver holds for more than `LONGEST` days from it: nobody accepts for ever. The
file is not signed by the parties: who accepts is a matter between people, and the report shows the
name.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date
from typing import Annotated, Any, Literal

import yaml
from pydantic import AfterValidator, ValidationError, model_validator
from pydantic import Field as Setting

from audits.evidence.run_files import check_version, read_json
from audits.findings.rules import made, ranked
from audits.report.models import Finding
from audits.report.sections import Waived
from crypto.errors import CryptoError
from crypto.signing import canonical
from protocols.errors import EvidenceError, PolicyError
from protocols.strict import Strict, problems, read_yaml
from protocols.versions import WAIVERS

__all__ = [
    "LONGEST",
    "UNWAIVABLE",
    "Kept",
    "Waiver",
    "apply",
    "judged_again",
    "read_kept",
    "taken",
    "waived",
]

UNWAIVABLE = ("EVIDENCE_BROKEN", "UNPLANNED")
"""Rules that no waiver covers, besides every critical finding."""

LONGEST = 366
"""Days from the day of judgement to a waiver's last day, at most."""

_LIMIT = 1 << 20  # bytes; a waiver takes about 300
_FIX = (
    "write a list of entries {fingerprint: 64 hex digits, or rule: NAME (with payload: or item: if "
    "wanted), owner: NAME, reason: TEXT, until: YYYY-MM-DD, at most 366 days from "
    "today}; findings.csv has the fingerprints"
)


def _told(text: str) -> str:
    if not text.strip():
        raise ValueError("must not be empty")
    if not text.isprintable():
        raise ValueError("must be one printable line")
    return text


def _day(text: str) -> str:
    if not re.fullmatch(r"\d{4}-\d{2}-\d{2}", text):
        raise ValueError("must be a day as YYYY-MM-DD")
    try:
        date.fromisoformat(text)
    except ValueError:
        raise ValueError("is no day of the calendar") from None
    return text


Told = Annotated[str, Setting(max_length=500), AfterValidator(_told)]
Day = Annotated[str, AfterValidator(_day)]


class Waiver(Strict):
    """One accepted finding, or all findings of a rule.

    Attributes:
        fingerprint: of the finding (hex), as the report shows it.
        rule: instead of a fingerprint; with `payload` or `item` only where these are equal.
        owner, reason: who answers for it, and why it is accepted.
        until: the last day on which it holds.
    """

    fingerprint: str = Setting(default="", pattern=r"^([0-9a-f]{64})?$")
    rule: str = Setting(default="", pattern=r"^([A-Z][A-Z0-9_]{0,60})?$")
    payload: str = Setting(default="", pattern=r"^(P(0[1-9]|1\d|2[01]))?$")
    item: str = Setting(default="", max_length=200)
    owner: Told
    reason: Told
    until: Day

    @model_validator(mode="after")
    def _names_one_thing(self) -> Waiver:
        if bool(self.fingerprint) == bool(self.rule):
            raise ValueError("needs a fingerprint or a rule, and not both")
        if self.fingerprint and (self.payload or self.item):
            raise ValueError("payload and item narrow a rule down; a fingerprint is one finding")
        return self

    def covers(self, finding: Finding) -> bool:
        """Tell whether this is about a finding, whether or not that can be waived."""
        if self.fingerprint:
            return self.fingerprint == finding.fingerprint
        return (
            self.rule == finding.rule
            and self.payload in ("", finding.payload)
            and self.item in ("", finding.item)
        )

    @property
    def target(self) -> str:
        """What it names, short."""
        return " ".join(filter(None, (self.fingerprint[:12], self.rule, self.payload, self.item)))


class Kept(Strict):
    """``waivers.json``: the waivers as they were taken over, and the day of judgement."""

    version: Literal[1] = 1
    judged: Day
    waivers: tuple[Waiver, ...] = Setting(max_length=1000)

    @model_validator(mode="after")
    def _not_for_ever(self) -> Kept:
        last = date.fromisoformat(self.judged).toordinal() + LONGEST
        for place, waiver in enumerate(self.waivers):
            if date.fromisoformat(waiver.until).toordinal() > last:
                raise ValueError(
                    f"waivers.{place}.until: lies more than {LONGEST} days after {self.judged}, "
                    "the day on which it is judged"
                )
        return self

    def text(self) -> bytes:
        """Return the canonical JSON in which it is kept."""
        return canonical(self.model_dump(mode="json"))


def taken(data: bytes, day: date) -> bytes:
    """Return the ``waivers.json`` of a file that somebody wrote.

    Args:
        data: YAML or JSON: a list of waivers, or ``{waivers: list}``.
        day: of judgement.

    Raises:
        PolicyError: not such a list; an owner, a reason or an expiry is missing, or the expiry lies
            more than `LONGEST` days ahead.
    """
    try:
        found = read_yaml(data.decode("utf-8"))
    except (UnicodeDecodeError, RecursionError, ValueError, yaml.YAMLError) as error:
        raise PolicyError("The waivers file is neither YAML nor JSON.", fix=_FIX) from error
    if isinstance(found, dict) and set(found) == {"waivers"}:
        found = found["waivers"]
    if not isinstance(found, list):
        raise PolicyError("The waivers file holds no list of waivers.", fix=_FIX)
    try:
        entries = [_plain(entry) for entry in found]
        return Kept.model_validate({"judged": day.isoformat(), "waivers": entries}).text()
    except ValidationError as error:
        raise PolicyError(
            "The waivers file cannot be used.",
            why=f"{problems(error)}; entries are counted from 0",
            fix=_FIX,
        ) from error
    except CryptoError as error:
        raise PolicyError("The waivers file holds broken characters.", fix=_FIX) from error


def _plain(entry: Any) -> Any:
    """Return an entry in which days are text; YAML reads them as dates."""
    if not isinstance(entry, dict):
        return entry
    dates = {k: v.isoformat() for k, v in entry.items() if type(v) is date}
    return {**entry, **dates}


def read_kept(data: bytes) -> Kept:
    """Parse ``waivers.json``; raises EvidenceError (``waivers``) for any other spelling."""
    if len(data) <= _LIMIT:
        step, what = "waivers", "waivers.json"
        found = read_json(data, limit=_LIMIT, what=what)
        check_version(found, WAIVERS, step=step, what=what, member="version")
        try:
            kept = Kept.model_validate(found)
            if kept.text() == bytes(data):
                return kept
        except (ValidationError, CryptoError):
            pass
    raise EvidenceError("waivers", "waivers.json is not in the form in which it is kept")


def judged_again(data: bytes, day: date) -> bytes:
    """Return ``waivers.json`` with a new day of judgement; raises EvidenceError (``waivers``)."""
    return read_kept(data).model_copy(update={"judged": day.isoformat()}).text()


def waived(data: bytes, found: Sequence[Finding]) -> tuple[Finding, ...]:
    """Return the findings under the waivers that a run keeps, ranked and numbered anew.

    Args:
        data: of ``waivers.json``.
        found: what the report found.

    Raises:
        EvidenceError: at step ``waivers`` or ``files``; the file is not as it is kept.
    """
    kept = read_kept(data)
    return ranked(apply(found, kept.waivers, date.fromisoformat(kept.judged)))


def apply(found: Sequence[Finding], waivers: Sequence[Waiver], day: date) -> tuple[Finding, ...]:
    """Return the findings with who accepted them, and what is wrong with the waivers.

    Args:
        found: in any order; their order stays.
        waivers: of several that hold, the first counts.
        day: a waiver holds up to and including its last day.
    """
    holding = [waiver for waiver in waivers if date.fromisoformat(waiver.until) >= day]
    marked = [_marked(finding, holding, day) for finding in found]
    return (*marked, *(note for w in waivers if (note := _note(w, w in holding, found))))


def _marked(finding: Finding, holding: Sequence[Waiver], day: date) -> Finding:
    if not _waivable(finding):
        return finding
    for waiver in holding:
        if waiver.covers(finding):
            facts = {"owner": waiver.owner, "reason": waiver.reason, "until": waiver.until}
            return finding.model_copy(update={"waiver": Waived(**facts, judged=day.isoformat())})
    return finding


def _waivable(finding: Finding) -> bool:
    return finding.severity != "critical" and finding.rule not in UNWAIVABLE


def _note(waiver: Waiver, holds: bool, found: Sequence[Finding]) -> Finding | None:
    """Return what is wrong with a waiver: it expired, may not be, or is about nothing."""
    about = [finding for finding in found if waiver.covers(finding)]
    if not holds:
        return made(
            "WAIVER_EXPIRED",
            "medium",
            f"The waiver for {waiver.target}, owned by {waiver.owner}, ended on {waiver.until}: "
            "what it accepted counts again.",
            "Fix what was accepted, or have its owner accept it anew with a new expiry.",
            item=waiver.target,
        )
    if any(not _waivable(finding) for finding in about):
        return made(
            "WAIVER_REFUSED",
            "medium",
            f"The waiver for {waiver.target} names a finding that nobody can accept: critical "
            "findings, broken evidence and unplanned releases always count.",
            "Take the entry out of the waivers file and deal with the finding.",
            item=waiver.target,
        )
    if not about:
        return made(
            "WAIVER_UNUSED",
            "info",
            f"The waiver for {waiver.target} is about nothing that this report found.",
            "Take the entry out of the waivers file if the finding was fixed; check its spelling.",
            item=waiver.target,
        )
    return None
