"""``keys/trust.json``: the public keys that may sign in this run, with role and validity.

Every key is valid for one run: parties make theirs anew for each, and an auditor's is named for
the run it signs about. The file says whose key is whose; that it is theirs, only ``--trust`` can
show.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from audits.bundle.archive import Listed
from audits.evidence.run_files import check_version, fail
from audits.evidence.steps import Status, Step
from audits.report.models import Report
from crypto.errors import CryptoError, NotCanonical
from crypto.signing import Signed, SigningKey, VerifyKey, canonical, parse, read, sign
from protocols.errors import EvidenceError
from protocols.versions import BUNDLE
from protocols.wire.roles import Role
from protocols.wire.roster import Roster

AUDITOR = "auditor"
KEYS_LIMIT = 16 << 20  # bytes; a key takes about 200
_ROLES = {AUDITOR, *map(str, Role)}
_MEMBERS = {"key", "name", "role", "run"}


@dataclass(frozen=True)
class Known:
    """One key: whose, in which role, and the run for which it is valid."""

    name: str
    role: str
    key: VerifyKey
    run: str

    def document(self) -> dict[str, str]:
        """Return plain data (key in hex)."""
        return {"key": self.key.raw.hex(), "name": self.name, "role": self.role, "run": self.run}


@dataclass(frozen=True)
class Keys:
    """All keys of a run, sorted by name."""

    run: str
    known: tuple[Known, ...]

    def by_id(self) -> dict[str, VerifyKey]:
        """Return short name -> key."""
        return {known.key.key_id: known.key for known in self.known}

    def owner(self, key: VerifyKey) -> Known:
        """Return whose key this is; raises KeyError for a stranger's."""
        return {known.key: known for known in self.known}[key]

    @property
    def parties(self) -> Mapping[str, tuple[str, str]]:
        """Name -> (role, key in hex) of everyone but auditors."""
        return {k.name: (k.role, k.key.raw.hex()) for k in self.known if k.role != AUDITOR}


def keys_text(run: str, roster: Roster, auditor: VerifyKey | None) -> bytes:
    """Return ``keys/trust.json``, in canonical JSON.

    Args:
        run: the run's name.
        roster: its parties.
        auditor: who signs statements; None if nobody does.

    Raises:
        EvidenceError: at step ``attestations``: the auditor's key is a party's own, or a party is
            called "auditor".
    """
    known = [Known(p["name"], p["role"], _key(p["verify"]), run) for p in roster.document()]
    if auditor is not None:
        known.append(Known(AUDITOR, AUDITOR, auditor, run))
    _distinct(known)
    listed = [k.document() for k in sorted(known, key=lambda k: k.name)]
    return canonical({"keys": listed, "run": run, "version": BUNDLE.version})


def read_keys(data: bytes) -> Keys:
    """Parse ``keys/trust.json``; raises EvidenceError at step ``attestations``."""
    try:
        found = parse(data, limit=KEYS_LIMIT)
    except CryptoError:
        raise EvidenceError("attestations", "keys/trust.json is not canonical JSON") from None
    # The bundle's version once more: statements are signed over this file, not over the manifest.
    step, what = "attestations", "keys/trust.json"
    check_version(found, BUNDLE, step=step, what=what, member="version")
    if not isinstance(found, dict) or set(found) != {"keys", "run", "version"}:
        fail("attestations", "keys/trust.json does not hold exactly keys, run and version")
    run, listed = found["run"], found["keys"]
    if not isinstance(run, str) or not isinstance(listed, list):
        fail("attestations", "keys/trust.json names no run, or holds no list of keys")
    known = [_known(entry) for entry in listed]
    _distinct(known)
    if [k.name for k in known] != sorted(k.name for k in known):
        fail("attestations", "keys/trust.json is not sorted by name")
    if any(k.run != run for k in known):
        fail("attestations", "keys/trust.json lists a key that was valid for another run")
    return Keys(run, tuple(known))


def _known(entry: object) -> Known:
    if not isinstance(entry, dict) or set(entry) != _MEMBERS:
        fail("attestations", "a key of keys/trust.json does not hold exactly key, name, role, run")
    if not all(isinstance(value, str) for value in entry.values()) or entry["role"] not in _ROLES:
        fail("attestations", "a key of keys/trust.json is in no known role")
    return Known(entry["name"], entry["role"], _key(entry["key"]), entry["run"])


def _key(text: str) -> VerifyKey:
    try:
        key = VerifyKey(bytes.fromhex(text))
    except (CryptoError, ValueError):
        raise EvidenceError("attestations", "keys/trust.json lists an unusable key") from None
    if key.raw.hex() != text:
        fail("attestations", "keys/trust.json spells a key in another way than lower-case hex")
    return key


def _distinct(known: list[Known]) -> None:
    if len({k.key for k in known}) != len(known) or len({k.name for k in known}) != len(known):
        fail("attestations", "two of those who may sign have one key, or one name")


# --- What an auditor signs: in-toto statements about a bundle's files, in DSSE envelopes ---
#
# ``leakage-audit``   our own predicate: verdict strip, attacks, digests of plan, policy and heads
# ``test-result``     steps and attacks as passed, warned or failed; what could not be decided is
#                     warned, never passed
# ``svr``             a simple verification result: the steps that passed, and nothing else
# ``release``         our own predicate, apart from bundles: which attacks a model was released by,
#                     with the waivers in force (`audits.findings.gate`)
#
#     https://github.com/in-toto/attestation  spec/v1/statement.md, spec/predicates/test-result.md
#     (0.1), spec/predicates/svr.md (0.2)
#
# Numbers that are signed are texts. A predicate is a pure function of the report, so that a
# verifier makes it again and compares.

PAYLOAD_TYPE = "application/vnd.in-toto+json"
STATEMENT = "https://in-toto.io/Statement/v1"
# A name, not an address: nothing is ever loaded from it.
LEAKAGE_AUDIT = "https://secure-fgl.dev/attestation/leakage-audit/v1"
TEST_RESULT = "https://in-toto.io/attestation/test-result/v0.1"
SVR = "https://in-toto.io/attestation/svr/v0.2"
RELEASE = "https://secure-fgl.dev/attestation/release/v1"
VERIFIER = "https://secure-fgl.dev/verifier/audit-verify/v1"
PREDICATES = {LEAKAGE_AUDIT: "leakage-audit", SVR: "svr", TEST_RESULT: "test-result"}
"""Predicate type -> the name of its file in a bundle."""

LIMIT = 32 << 20  # bytes of one envelope; a subject takes about 150
_MEMBERS_STATEMENTS = {"_type", "predicate", "predicateType", "subject"}
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")
_PASSED, _FAILED, _NONE = "PASS", "FAIL", "NOT_APPLICABLE"
_TESTS = {Status.OK: "passedTests", Status.FAIL: "failedTests", Status.NOT_CHECKED: "warnedTests"}


def subjects(files: Iterable[Listed]) -> list[dict[str, Any]]:
    """Return files as the subjects of a statement: name and SHA-256."""
    return [{"digest": {"sha256": file.sha256}, "name": file.path} for file in files]


def statement(
    predicate_type: str,
    predicate: Mapping[str, Any],
    about: Sequence[Mapping[str, Any]],
    *,
    signers: Sequence[SigningKey],
) -> bytes:
    """Return a signed in-toto statement: a DSSE envelope in canonical JSON.

    Args:
        predicate_type: of :data:`PREDICATES`, or :data:`RELEASE`.
        predicate: plain data without floats.
        about: the subjects, from :func:`subjects`.
        signers: an auditor's key, or parties' run keys; at least one.

    Raises:
        NotCanonical: the predicate holds something that canonical JSON cannot carry.
        OutOfRange: no signer, or one twice.
    """
    return sign(PAYLOAD_TYPE, bare(predicate_type, predicate, about), signers).text()


def bare(
    predicate_type: str, predicate: Mapping[str, Any], about: Sequence[Mapping[str, Any]]
) -> bytes:
    """Return what `statement` signs: an in-toto statement in canonical JSON, without envelope."""
    body = {
        "_type": STATEMENT,
        "predicate": dict(predicate),
        "predicateType": predicate_type,
        "subject": [dict(subject) for subject in about],
    }
    return canonical(body)


@dataclass(frozen=True, repr=False)
class Statement:
    """A statement as it was read; its signatures are not verified yet."""

    envelope: Signed
    predicate_type: str
    predicate: Mapping[str, Any]
    subjects: Sequence[Any]


def open_statement(data: bytes, kinds: Collection[str] = PREDICATES) -> Statement:
    """Read a statement without believing it.

    Args:
        data: the envelope.
        kinds: predicate types that it may be of.

    Raises:
        NotCanonical: it is no in-toto statement of a predicate of ours, in canonical JSON.
    """
    envelope = read(data, limit=LIMIT)
    found = parse(envelope.body, limit=LIMIT)
    if (
        not isinstance(found, dict)
        or set(found) != _MEMBERS_STATEMENTS
        or found["_type"] != STATEMENT
    ):
        raise NotCanonical("The body is no in-toto statement, version 1.")
    kind, predicate, about = found["predicateType"], found["predicate"], found["subject"]
    if not isinstance(predicate, dict) or not isinstance(about, list) or kind not in kinds:
        raise NotCanonical("The statement is of a kind that this version does not know.")
    return Statement(envelope, kind, predicate, about)


def leakage_audit(report: Report) -> dict[str, Any]:
    """Return our own predicate: what the report says first, and what it says it about."""
    subject = report.subject
    severities = [finding.severity for finding in report.findings]
    return {
        "attacks": [
            {"id": row.id, "payload": row.payload, "verdict": row.verdict, "what": row.what}
            for row in report.attacks
        ],
        "claims": [{"status": claim.status, "text": claim.text} for claim in report.claims],
        "evidence": report.integrity.verdict,
        "findings": {name: str(severities.count(name)) for name in sorted(set(severities))},
        "heads": [
            {"entries": str(head.entries), "party": head.party, "root": head.root}
            for head in subject.heads
        ],
        "notTested": [row.payload for row in report.not_tested],
        "planDigest": {"sha256": subject.plan_digest},
        "policyDigest": {"sha256": subject.policy_digest},
        "rosterDigest": {"sha256": subject.roster_digest},
        "run": subject.run,
        "tool": {"name": report.tool.name, "reportVersion": str(report.schema_version)},
        "transport": report.transport,
        "verdictStrip": [
            {"answer": line.answer, "question": line.question, "state": line.state}
            for line in report.verdict_strip
        ],
    }


def test_result(report: Report, files: Iterable[Listed]) -> dict[str, Any]:
    """Return the predicate test-result/v0.1: verification steps and attacks.

    An attack that was ABOVE_PRIOR, INCONCLUSIVE, INVALID or ended in an ERROR is warned, as is a
    payload that none looked at and a step that was not checked. One that does not apply is left
    out.
    """
    found: dict[str, list[str]] = {"passedTests": [], "warnedTests": [], "failedTests": []}
    for step in _steps(report):
        found[_TESTS[step.status]].append(f"verify/{step.name}")
    for row in report.attacks:
        name = "/".join(part for part in ("attack", row.id, row.payload, row.what) if part)
        if row.verdict != _NONE:
            kind = {_PASSED: "passedTests", _FAILED: "failedTests"}.get(row.verdict, "warnedTests")
            found[kind].append(name)
    if not report.attacks:
        found["warnedTests"].append("attack/none was run")
    found["warnedTests"] += [f"attack/not tested/{p.payload}" for p in report.not_tested]
    result = "WARNED" if found["warnedTests"] else "PASSED"
    documents = ("attacks.json", "plan.json", "policy.json")
    configured = subjects(file for file in files if file.path in documents)
    return {"configuration": configured, "result": "FAILED" if found["failedTests"] else result} | {
        name: sorted(tests) for name, tests in found.items()
    }


test_result.__test__ = False  # type: ignore[attr-defined]  # no test, whatever it is called


def svr(steps: Iterable[Step], files: Iterable[Listed], day: str) -> dict[str, Any]:
    """Return the predicate svr/v0.2: the steps that passed.

    Args:
        steps: outcomes.
        files: those among them that are policies stand in the predicate.
        day: ``YYYY-MM-DD``, UTC; the hour stays out of it (O29). Raises ValueError for others.
    """
    if not _DAY.fullmatch(day):
        raise ValueError("a day is written YYYY-MM-DD")
    passed = sorted(f"SECURE_FGL_{s.name.upper()}" for s in steps if s.status is Status.OK)
    policies = subjects(file for file in files if file.path in ("plan.json", "policy.json"))
    return {
        "properties": passed,
        "timeCreated": f"{day}T00:00:00Z",
        "verifier": {"id": VERIFIER, "policies": policies},
    }


def predicates(report: Report, files: Sequence[Listed], day: str) -> dict[str, dict[str, Any]]:
    """Return all three predicates of a bundle, by predicate type."""
    return {
        LEAKAGE_AUDIT: leakage_audit(report),
        SVR: svr(_steps(report), files, day),
        TEST_RESULT: test_result(report, files),
    }


def _steps(report: Report) -> list[Step]:
    return [Step(s.name, Status(s.status), s.detail) for s in report.integrity.steps]
