"""What of a report two reports are compared by; kept beside a run as ``baseline.json``.

An excerpt, so that reports of earlier versions can be read and a kept baseline stays small. A
``report.json`` given from elsewhere is not signed: it is the word of whoever hands it over.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeVar

from pydantic import Field as Setting
from pydantic import ValidationError

from audits.evidence.run_files import check_version, read_json
from audits.report import words
from audits.report.models import Report, Severity
from audits.report.sections import Change, Changes, Move
from crypto.errors import CryptoError
from crypto.signing import canonical
from protocols.errors import EvidenceError
from protocols.strict import Strict
from protocols.versions import BASELINE, REPORT
from protocols.wire.roles import Role

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


# --- Section 8: what moved since an earlier report ---
#
# Findings are matched by fingerprint, attacks by id, payload, variant and metric, epsilons by unit
# and scope, egress by item and roles. No value is part of a match, so that two runs can be
# compared. How grave a change is: a finding has its severity, and so has an attack that fails;
# without one it is critical if it is about a claim, medium if it reads labels, links or attributes,
# else high. A larger epsilon, a new item, field or recipient and a lost guard are high (critical in
# clear); a new item that is nothing but control plane, a value that moved without failing and more
# bytes are low.
#
# What an attack found is fixed only if it ran again and no longer finds it. A FAIL behind which no
# attack ran again is "no longer measured", as grave as it was, and counts like one that is new.

Kind = Literal["finding", "attack", "epsilon", "egress"]
T = TypeVar("T")
STILL = 0.01  # share by which an epsilon or the bytes of an item may differ and count as unmoved
_LADDER: tuple[Severity, ...] = ("critical", "high", "medium", "low", "info")
_MOVES: tuple[Move, ...] = ("new", "worse", "no longer measured", "better", "fixed")
_CLAIMS, _MILD = ("A10", "A11"), ("A04", "A07", "A08")
_MEASURED = ("PASS", "FAIL")
_SHOWN = (*_MEASURED, "ABOVE_PRIOR")  # verdicts that say something of a message
_RAN = (*_SHOWN, "INCONCLUSIVE", "INVALID")
_DECIDED = "ATTACK_"
_UNDECIDED = ("ABOVE_PRIOR_", "INCONCLUSIVE_", "INVALID_", "ERROR_", "NOT_TESTED_")
_CLAIM = "CLAIM_FALSIFIED"
_FILE = ("ATTACKS_REFUSED", "ATTACKS_OTHER_VERSION")
_UNSAFE = "unsafe_clear"
_CONTROL = {"P18", "P20"}  # keys, rosters, refusals: derived from nobody's data
_FOLLOWS = {"P04", "P05", "P06", "P17"}  # on from others than clients: rated where clients send it


def since(baseline: bytes, new: Report) -> Changes:
    """Return what moved since the kept ``baseline.json``.

    Raises:
        EvidenceError: at step ``baseline`` or ``files``; the file is not as it is kept.
    """
    return changes(read_snapshot(baseline), excerpt(new))


def changes(old: Snapshot, new: Snapshot) -> Changes:
    """Return what is different in `new`, new and worse first."""
    found = [
        *_findings(old, new),
        *_attacks(old, new),
        *_epsilons(old.spent, new.spent),
        *_egress(old.sent, new.sent),
    ]
    found.sort(key=lambda c: (_MOVES.index(c.move), _LADDER.index(c.severity), c.kind, c.what))
    there = {f.fingerprint for f in new.findings} | {_of_attack(a) for a in new.attacks}
    there |= {_of_epsilon(s) for s in new.spent} | {_of_egress(s) for s in new.sent}
    return Changes(
        baseline_run=old.run,
        baseline_digest=old.report_digest,
        notes=tuple(_notes(old, new)),
        same=len(there - {change.fingerprint for change in found}),
        changes=tuple(found),
    )


def lost(change: Change) -> bool:
    """Tell whether an attack succeeded before and was not run again: nobody knows that it is gone.

    The earlier report's waivers do not count here: whether they still hold is not in a baseline.
    """
    if change.move != "no longer measured":
        return False
    if change.kind == "attack":
        return change.old.startswith("FAIL")
    return change.kind == "finding" and change.what.startswith((_DECIDED, _CLAIM))


def _notes(old: Snapshot, new: Snapshot) -> Iterator[str]:
    for name in ("algorithm", "dataset", "policy"):
        was, now = getattr(old, name), getattr(new, name)
        if was != now:
            yield f"The {name} is another: {was} before, {now} now."
    if old.plan_digest != new.plan_digest:
        yield "The two runs had different plans."
    if old.broken:
        yield "The evidence of the baseline is broken: what it says may not be what happened."


def _pairs(
    old: Iterable[T], new: Iterable[T], key: Callable[[T], str]
) -> Iterator[tuple[str, T | None, T | None]]:
    """Match two lists by fingerprint; one that is repeated stands for its first holder."""
    before: dict[str, T] = {}
    after: dict[str, T] = {}
    for rows, table in ((old, before), (new, after)):
        for row in rows:
            table.setdefault(key(row), row)
    for mark in dict.fromkeys((*before, *after)):
        yield mark, before.get(mark), after.get(mark)


def _mark(*parts: str) -> str:
    content = "\0".join(("secure-fgl/change", *parts))
    return hashlib.sha256(content.encode("utf-8", "replace")).hexdigest()


def _of_attack(row: Measured) -> str:
    return _mark("attack", row.id, row.payload, row.what, row.metric)


def _of_epsilon(row: Spent) -> str:
    return _mark("epsilon", row.unit, row.scope)


def _of_egress(row: Sent) -> str:
    return _mark("egress", row.item, row.sender, row.recipient)


def _findings(old: Snapshot, new: Snapshot) -> Iterator[Change]:
    def gravest(rows: Sequence[Noted]) -> list[Noted]:
        return sorted(rows, key=lambda f: _LADDER.index(f.severity))

    pairs = _pairs(gravest(old.findings), gravest(new.findings), lambda f: f.fingerprint)
    for mark, was, now in pairs:
        move: Move | None = None
        one = now or was
        if was is None:
            move = "new"
        elif now is None:
            move = "no longer measured" if _untried(was, new) else "fixed"
        elif was.severity != now.severity:
            graver = _LADDER.index(now.severity) < _LADDER.index(was.severity)
            move = "worse" if graver else "better"
        if move is not None and one is not None:
            yield Change(
                move=move,
                kind="finding",
                what=" ".join(filter(None, (one.rule, one.item or one.payload))),
                severity=one.severity,
                old=was.severity if was else "",
                new=now.severity if now else "",
                waived=now is not None and now.waived,
                fingerprint=mark,
            )


def _finding_of(row: Measured) -> tuple[str, str, str]:
    """Return rule, payload and item of the finding that an attack makes where it succeeds."""
    family = "ABOVE_PRIOR" if row.verdict == "ABOVE_PRIOR" else "ATTACK"
    return f"{family}_{row.id}", row.payload, row.what


def _untried(finding: Noted, new: Snapshot) -> bool:
    """Tell whether a finding is gone only because no attack looked again at what it is about."""
    rule, about = finding.rule, (finding.payload, finding.item)
    if rule == "NOT_TESTED":  # a kind of payload, or an attack on one
        leaves = any(finding.payload in route.payloads for route in new.sent)
        rows = [row for row in new.attacks if row.payload == finding.payload]
        rows = [row for row in rows if finding.item in ("", row.what)]
        return leaves and not any(row.verdict in _RAN for row in rows)
    if rule in _FILE:
        return not any(row.verdict in _RAN for row in new.attacks)
    if rule == _CLAIM:
        return not any(row.id in _CLAIMS and row.verdict in _MEASURED for row in new.attacks)
    family = next((start for start in (_DECIDED, *_UNDECIDED) if rule.startswith(start)), "")
    enough = _MEASURED if family == _DECIDED else _RAN
    tried = {(row.id, row.payload, row.what) for row in new.attacks if row.verdict in enough}
    return bool(family) and (rule.removeprefix(family), *about) not in tried


def _attacks(old: Snapshot, new: Snapshot) -> Iterator[Change]:
    told = {(f.rule, f.payload, f.item): f for f in (*old.findings, *new.findings)}
    for mark, was, now in _pairs(old.attacks, new.attacks, _of_attack):
        move = _attack(was, now)
        one = was if move == "no longer measured" else now or was
        if move is not None and one is not None:
            finding = told.get(_finding_of(one))
            yield Change(
                move=move,
                kind="attack",
                what=" ".join(filter(None, (one.id, one.payload, one.what, one.metric))),
                severity=_gravity(one, finding),
                old=_shown(was),
                new=_shown(now),
                waived=one is now and finding is not None and finding.waived,
                fingerprint=mark,
            )


def _attack(was: Measured | None, now: Measured | None) -> Move | None:
    """Say how an attack moved: by verdict, then by its value against the earlier interval."""
    before = was.verdict if was is not None and was.verdict in _SHOWN else ""
    after = now.verdict if now is not None and now.verdict in _SHOWN else ""
    moves: dict[tuple[str, str], Move | None] = {
        ("", ""): None,
        ("", "PASS"): "better",
        ("", "FAIL"): "new",
        ("PASS", ""): "no longer measured",
        ("FAIL", ""): "no longer measured",
        ("PASS", "FAIL"): "worse",
        ("FAIL", "PASS"): "fixed",
        ("", "ABOVE_PRIOR"): "new",
        ("PASS", "ABOVE_PRIOR"): "worse",
        ("ABOVE_PRIOR", "FAIL"): "worse",
        ("FAIL", "ABOVE_PRIOR"): "no longer measured",  # that it does not fail, nobody showed
        ("ABOVE_PRIOR", "PASS"): "fixed",
        ("ABOVE_PRIOR", ""): "no longer measured",
    }
    if (before, after) in moves or was is None or now is None:
        return moves.get((before, after))
    value, low, high = (_number(text) for text in (now.value, was.low, was.high))
    if value > high:
        return "worse"
    return "better" if value < low else None


def _gravity(row: Measured, finding: Noted | None) -> Severity:
    if row.verdict not in ("FAIL", "ABOVE_PRIOR"):
        return "low"
    if finding is not None:
        return finding.severity
    if row.verdict != "FAIL":
        return "low"
    if row.id in _CLAIMS:
        return "critical"
    return "medium" if row.id in _MILD else "high"


def _shown(row: Measured | None) -> str:
    if row is None:
        return ""
    if not row.value:
        return row.verdict
    value, low, high = (words.decimal(text) for text in (row.value, row.low, row.high))
    return f"{row.verdict} {value} [{low}, {high}]"


def _number(text: str) -> float:
    try:
        return math.inf if text == "infinity" else float(text)
    except ValueError:
        return math.nan  # compares false with everything: no move is claimed


def _epsilons(old: Sequence[Spent], new: Sequence[Spent]) -> Iterator[Change]:
    for mark, was, now in _pairs(old, new, _of_epsilon):
        one, move = now or was, _spending(was, now)
        if move is not None and one is not None:
            yield Change(
                move=move,
                kind="epsilon",
                what=f"epsilon of a {one.unit}, {one.scope}",
                severity="high" if move == "worse" else "low",
                old=_budget(was),
                new=_budget(now),
                fingerprint=mark,
            )


def _spending(was: Spent | None, now: Spent | None) -> Move | None:
    if now is None:
        return "no longer measured"
    if was is None:
        return "new"
    pairs = [
        (_number(was.epsilon), _number(now.epsilon)),
        (_number(was.recorded), _number(now.recorded)),
        (_number(was.delta), _number(now.delta)),
    ]
    # With any of the three larger the guarantee is not the earlier one, whatever the others do.
    if any(after > before * (1 + STILL) for before, after in pairs):
        return "worse"
    return "better" if any(after < before * (1 - STILL) for before, after in pairs) else None


def _budget(row: Spent | None) -> str:
    if row is None:
        return ""
    epsilon, recorded = words.decimal(row.epsilon), words.decimal(row.recorded)
    return f"{epsilon}; covered messages {recorded} at delta {words.decimal(row.delta)}"


def _egress(old: Sequence[Sent], new: Sequence[Sent]) -> Iterator[Change]:
    for mark, was, now in _pairs(old, new, _of_egress):
        one = now or was
        if one is None:
            continue
        for move, severity, before, after in _routes(was, now):
            route = f"{words.role(one.sender)} to {words.role(one.recipient)}"
            yield Change(
                move=move,
                kind="egress",
                what=f"{one.item}, {route}",
                severity=severity,
                old=before,
                new=after,
                fingerprint=mark,
            )


def _routes(was: Sent | None, now: Sent | None) -> Iterator[tuple[Move, Severity, str, str]]:
    """Say what is different about what left on one route: protection, fields, bytes."""
    if was is None or now is None:
        if now is not None:
            yield "new", _weight(now), "", _left(now)
        elif was is not None:
            yield "fixed", "low", _left(was), ""
        return
    if was.protection != now.protection:
        # A guard with another parameter counts as lost: which of the two is stronger is not known.
        kept = set(was.protection) - {_UNSAFE} <= set(now.protection)
        move: Move = "better" if kept and not now.unsafe else "worse"
        grave: Severity = "critical" if now.unsafe else "high" if move == "worse" else "low"
        yield move, grave, " > ".join(was.protection), " > ".join(now.protection)
    more, less = _names(now, was), _names(was, now)
    if more:
        yield "new", "high", "not sent", f"fields {more}"
    if less:
        yield "fixed", "low", f"fields {less}", "not sent"
    if abs(now.bytes - was.bytes) > STILL * was.bytes:
        yield "worse" if now.bytes > was.bytes else "better", "low", _left(was), _left(now)


def _weight(row: Sent) -> Severity:
    if row.unsafe:
        return "critical"
    mild = _CONTROL if row.sender == Role.CLIENT else _CONTROL | _FOLLOWS
    control = bool(row.payloads) and set(row.payloads) <= mild
    return "low" if control or not row.fields else "high"


def _names(these: Sent, others: Sent) -> str:
    return ", ".join(sorted(set(these.fields) - set(others.fields)))


def _left(row: Sent) -> str:
    return f"{words.plural(row.count, 'envelope')}, {words.size(row.bytes)}"
