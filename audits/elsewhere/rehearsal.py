"""A rehearsal's verdicts: a document of their own, quoted in the report of the run it was for.

Under a policy that keeps nothing for audits no attack looks at what left. A rehearsal plays the
plan before the run, with everything captured, and attacks that. It is another run: its verdicts
stand beside what was not tested and in place of nothing.

The document is bound to the digest of the plan that it was made for, and says in which points the
plan that was played differs. No party signs it. Whatever in it can be made again is made again
(`audits.attacks._shared.reading`); made-up figures that agree with each other only a second
rehearsal finds.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Literal

from pydantic import Field as Setting
from pydantic import ValidationError, model_validator

from audits.attacks import attacks, code_digest, seed_of
from audits.attacks._shared.models import AttackReport, AttackRow
from audits.attacks._shared.reading import report_doubt
from audits.evidence.run_files import check_version, fail, read_json
from protocols.errors import EvidenceError
from protocols.strict import Strict
from protocols.versions import REHEARSAL

__all__ = ["REHEARSAL_LIMIT", "Beside", "Rehearsal", "Rehearsed", "quoted", "read_rehearsal"]

REHEARSAL_VERSION: Literal[2] = 2
REHEARSAL_LIMIT = 8 << 20  # bytes
_STEP = "rehearsal"
_DIGEST = r"^[0-9a-f]{64}$"
_NUMBER = re.compile(r"\d+")  # of shadow models, say: how much was tried, and no other question
_SILENT = ("NOT_TESTED", "NOT_APPLICABLE", "ERROR")
_FOREIGN = "another version of the program rehearsed it, so no PASS counts: "


class Rehearsal(Strict):
    """What attacks on a rehearsal found.

    Attributes:
        heading: says what it is, so that no row of it is taken for one of a run.
        plan_digest: of the plan that was rehearsed.
        played_digest: of the plan that was played, which captures.
        differs: where the policy of the one differs from that of the other, a line each.
        here: clients that were played on data of their own.
        stand_ins: clients whose data were drawn.
        cannot: what it cannot show, in sentences.
        attacks: on the rehearsal: its run, its ledgers' heads, its rows.
    """

    version: Literal[2] = REHEARSAL_VERSION
    heading: Literal["REHEARSAL"] = "REHEARSAL"
    plan_digest: str = Setting(pattern=_DIGEST)
    played_digest: str = Setting(pattern=_DIGEST)
    differs: tuple[str, ...] = Setting(max_length=100)
    here: tuple[str, ...] = Setting(max_length=100_000)
    stand_ins: tuple[str, ...] = Setting(max_length=100_000)
    cannot: tuple[str, ...] = Setting(max_length=20)
    attacks: AttackReport

    @model_validator(mode="after")
    def _is_of_what_was_played(self) -> Rehearsal:
        if self.attacks.plan_digest != self.played_digest:
            raise ValueError("its attacks are on another plan than was played")
        return self

    def text(self) -> str:
        """Return it as the JSON that is saved."""
        return json.dumps(self.model_dump(mode="json"), indent=2, sort_keys=True) + "\n"


class Beside(Strict):
    """One row of a rehearsal beside what the run's own attacks say of the same question.

    Attributes:
        id, name, payload, what: which question.
        in_run: NOT_TESTED: where the run has a verdict of its own, nothing is quoted.
        rehearsed: the rehearsal's verdict.
        metric, prior, left: its figures as text; empty where nothing was measured.
        reason: of the rehearsal's verdict.
        detectable: its power, beside a PASS; else empty.
    """

    id: str
    name: str
    payload: str
    what: str
    in_run: Literal["NOT_TESTED"] = "NOT_TESTED"
    rehearsed: str
    metric: str
    prior: str
    left: str
    reason: str
    detectable: str


class Rehearsed(Strict):
    """What a report quotes of a rehearsal; see `Rehearsal`."""

    plan_digest: str = Setting(description="SHA-256 of the plan that it was made for")
    played_digest: str = Setting(description="SHA-256 of the plan that was played")
    differs: tuple[str, ...] = Setting(description="how the two plans differ, in sentences")
    here: int = Setting(description="clients whose data were there")
    stand_ins: int = Setting(description="clients whose data were drawn")
    cannot: tuple[str, ...] = Setting(description="what it cannot show, in sentences")
    rows: tuple[Beside, ...]


def read_rehearsal(data: bytes, plan_digest: str) -> Rehearsal:
    """Read a rehearsal of one plan; only what `Rehearsal.text` writes is accepted.

    Args:
        data: untrusted bytes.
        plan_digest: of the run's plan.

    Raises:
        EvidenceError: at step ``rehearsal``: it is no rehearsal, its figures do not give its
            verdicts, or it is of another plan; then both digests are named.
    """
    try:
        document = read_json(data, limit=REHEARSAL_LIMIT, what="the rehearsal")
    except EvidenceError as error:
        raise EvidenceError(_STEP, error.what) from None
    check_version(document, REHEARSAL, step=_STEP, what="the rehearsal", member="version")
    try:
        found = Rehearsal.model_validate(document)
        written = found.text().encode("utf-8")
    except (ValidationError, UnicodeEncodeError):
        raise EvidenceError(_STEP, "it is no rehearsal") from None
    if written != data:
        fail(_STEP, "it is not in the form in which a rehearsal is saved")
    if not all(text.isprintable() for text in _texts(found)):
        fail(_STEP, "it holds text that nobody can read")
    if found.plan_digest != plan_digest:
        fail(_STEP, f"it is of the plan {found.plan_digest}, and this run's is {plan_digest}")
    heads = found.attacks.heads_digest
    if doubt := report_doubt(found.attacks, attacks(), lambda id: seed_of(heads, id)):
        fail(_STEP, doubt)
    return found


def _texts(found: Rehearsal) -> Iterator[str]:
    yield from (*found.differs, *found.here, *found.stand_ins, *found.cannot)
    for row in found.attacks.rows:
        yield from (row.what, row.reason.replace("\u202f", " "))


def quoted(found: Rehearsal, rows: Sequence[AttackRow]) -> Rehearsed:
    """Return what a report shows of a rehearsal: questions that the run itself does not answer.

    Args:
        found: as it was read.
        rows: of the run's own attacks; none, if no attack was run.
    """
    asked = {_question(row) for row in rows if row.verdict not in _SILENT}
    beside = tuple(
        _beside(row, foreign=found.attacks.code_digest != code_digest())
        for row in found.attacks.rows
        if row.verdict != "NOT_APPLICABLE" and _question(row) not in asked
    )
    return Rehearsed(
        plan_digest=found.plan_digest,
        played_digest=found.played_digest,
        differs=found.differs,
        here=len(found.here),
        stand_ins=len(found.stand_ins),
        cannot=found.cannot,
        rows=beside,
    )


def _question(row: AttackRow) -> tuple[str, str, str]:
    return row.id, row.payload, _NUMBER.sub("#", row.what)


def _beside(row: AttackRow, *, foreign: bool) -> Beside:
    uncounted = foreign and row.verdict == "PASS"
    seen, prior = row.protected, row.prior
    return Beside(
        id=row.id,
        name=row.name,
        payload=row.payload,
        what=row.what,
        rehearsed="INCONCLUSIVE" if uncounted else row.verdict,
        metric=row.metric if seen is not None else "",
        prior=prior.value if prior is not None else "",
        left=f"{seen.value} ({seen.low} to {seen.high})" if seen is not None else "",
        reason=f"{_FOREIGN if uncounted else ''}{row.reason}",
        detectable="" if uncounted else row.detectable,
    )
