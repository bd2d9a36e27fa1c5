"""What of a report two reports are compared by; kept beside a run as ``baseline.json``.

An excerpt, so that reports of earlier versions can be read and a kept baseline stays small. A
``report.json`` given from elsewhere is not signed: it is the word of whoever hands it over.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field as Setting
from pydantic import ValidationError

from audits.evidence.run_files import check_version, read_json
from audits.report.models import Report, Severity
from crypto.errors import CryptoError
from crypto.signing.canonical import canonical
from protocols.errors import EvidenceError
from protocols.strict import Strict
from protocols.versions import BASELINE, REPORT

__all__ = ["Measured", "Noted", "Sent", "Snapshot", "Spent", "excerpt", "read_snapshot", "text"]

REPORT_LIMIT = 256 << 20  # bytes; a report over 1,000 clients takes some ten megabytes
_DRIFT = "plan_vs_ledger"  # the one step whose failure is drift, not broken evidence
_DIGEST = r"^[0-9a-f]{64}$"


class Noted(Strict):
    """A finding."""

    fingerprint: str = Setting(pattern=_DIGEST)
    rule: str
    severity: Severity
    item: str
    payload: str
    waived: bool


class Measured(Strict):
    """One row of an attack; `value`, `low` and `high` are decimal text, empty if not measured."""

    id: str
    payload: str
    what: str
    metric: str
    verdict: str
    value: str
    low: str
    high: str


class Spent(Strict):
    """An epsilon of the formal account; decimal text or ``infinity``."""

    unit: str
    scope: str
    epsilon: str
    recorded: str
    delta: str


class Sent(Strict):
    """What left on all routes of one item; `fields` are ``message.field``, payloads P01 to P21."""

    item: str
    payloads: tuple[str, ...]
    sender: str
    recipient: str
    unsafe: bool
    protection: tuple[str, ...]
    fields: tuple[str, ...]
    count: int
    bytes: int


class Snapshot(Strict):
    """A report's findings, attacks, epsilons and egress.

    Attributes:
        report_digest: SHA-256 (hex) of the bytes of ``report.json``.
        broken: a step of the evidence failed, other than that something left unplanned.
        drifted: something left unplanned.
    """

    version: Literal[1] = 1
    run: str
    algorithm: str
    dataset: str
    policy: str
    plan_digest: str
    report_digest: str = Setting(pattern=_DIGEST)
    broken: bool
    drifted: bool
    findings: tuple[Noted, ...]
    attacks: tuple[Measured, ...]
    spent: tuple[Spent, ...]
    sent: tuple[Sent, ...]


def excerpt(report: bytes | Report) -> Snapshot:
    """Return what is compared of a report: of one in memory, or of the bytes of a ``report.json``.

    Raises:
        EvidenceError: at step ``baseline``; not a report of this or an earlier version.
    """
    if isinstance(report, Report):
        from audits.formats import json_text

        report = json_text(report)
    try:
        found = read_json(report, limit=REPORT_LIMIT, what="the report")
        step, what = "baseline", "the report"
        check_version(found, REPORT, step=step, what=what, member="schema_version")
        return _excerpt(found, hashlib.sha256(report).hexdigest())
    except (AttributeError, KeyError, TypeError, ValidationError):
        raise EvidenceError("baseline", "this is not a report.json of this program") from None


def text(snapshot: Snapshot) -> bytes:
    """Return the canonical JSON in which a snapshot is kept."""
    return canonical(snapshot.model_dump(mode="json"))


def read_snapshot(data: bytes) -> Snapshot:
    """Parse what :func:`text` wrote; any other spelling raises EvidenceError (``baseline``)."""
    step, what = "baseline", "baseline.json"
    found = read_json(data, limit=REPORT_LIMIT, what=what)
    check_version(found, BASELINE, step=step, what=what, member="version")
    try:
        snapshot = Snapshot.model_validate(found)
        if text(snapshot) == bytes(data):
            return snapshot
    except (ValidationError, CryptoError):
        pass
    raise EvidenceError("baseline", "baseline.json is not in the form in which it is kept")


def _excerpt(found: Mapping[str, Any], digest: str) -> Snapshot:
    subject, failed = found["subject"], _failed(found["integrity"]["steps"])
    return Snapshot(
        run=subject["run"],
        algorithm=subject["algorithm"],
        dataset=subject["dataset"],
        policy=subject["policy"],
        plan_digest=subject["plan_digest"],
        report_digest=digest,
        broken=bool(failed - {_DRIFT}) or (bool(failed) and not found["plan_diff"]["unplanned"]),
        drifted=bool(found["plan_diff"]["unplanned"]),
        findings=tuple(_noted(row) for row in found["findings"]),
        # A report of version 1 knew no attacks.
        attacks=tuple(_measured(row) for row in found.get("attacks", ())),
        spent=tuple(_spent(row) for row in found["accounting"]),
        sent=tuple(_sent(row) for row in found["egress"]),
    )


def _failed(steps: list[Mapping[str, Any]]) -> set[str]:
    return {step["name"] for step in steps if step["status"] == "FAIL"}


def _noted(row: Mapping[str, Any]) -> Noted:
    return Noted(
        **{name: row[name] for name in ("fingerprint", "rule", "severity", "item")},
        payload=row.get("payload", ""),
        waived=row.get("waiver") is not None,
    )


def _measured(row: Mapping[str, Any]) -> Measured:
    value = row["protected"] or {"value": "", "low": "", "high": ""}
    return Measured(
        **{name: row[name] for name in ("id", "payload", "what", "metric", "verdict")},
        **{name: value[name] for name in ("value", "low", "high")},
    )


def _spent(row: Mapping[str, Any]) -> Spent:
    return Spent(**{name: row[name] for name in ("unit", "scope", "epsilon", "recorded", "delta")})


def _sent(row: Mapping[str, Any]) -> Sent:
    names = [f"{m['name']}.{field['name']}" for m in row["messages"] for field in m["fields"]]
    return Sent(
        **{name: row[name] for name in ("item", "unsafe", "protection", "count", "bytes")},
        sender=row["sender_role"],
        recipient=row["recipient_role"],
        payloads=row.get("payloads", ()),  # a report of version 1 named none
        fields=tuple(sorted(names)),
    )
