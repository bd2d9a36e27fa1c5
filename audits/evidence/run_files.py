"""A run's files as they lie there, and the strict reading of them.

The face walks the folder and hands over a :class:`RunView`; nothing here touches a disk. All of it
is untrusted: sizes are checked before anything is parsed, no second spelling of a signed value is
accepted, and no text of an error repeats what a file said.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NoReturn

from pydantic import ValidationError

from audits.evidence.captured_files import CapturedFiles
from crypto.errors import CryptoError
from protocols.errors import EvidenceError, OtherEvidence, OtherVersion, PolicyError
from protocols.plan.plan import Plan
from protocols.policy.policy import PrivacyPolicy
from protocols.versions import Format

PLAN_LIMIT = 16 << 20  # bytes; a plan is some kilobytes, and a name per client
POLICY_LIMIT = 1 << 20  # bytes; a policy is about a kilobyte
LEDGER_LIMIT = 1 << 30  # bytes; an entry takes about 1 kB
RESULT_LIMIT = 4 << 20  # bytes
METRICS_LIMIT = 64 << 20  # bytes
MACHINE = ("run_dir", "peak_mb", "protect_s", "wall_s")
"""What ``result.json`` says of the machine that a run was on; no ledger binds it."""
UNREADABLE = "unreadable"  # in place of the digest of weights that cannot be read


@dataclass(frozen=True, repr=False)
class RunView:
    """Everything that an audit may look at.

    Attributes:
        plan_text, policy_text, roster_text: the bytes of ``plan.json``, ``policy.json`` and
            ``roster.json``.
        result_text, metrics_text: the bytes of ``result.json`` and ``metrics.jsonl``; empty if
            there is none.
        weights: name of a file in ``checkpoints/``, without its ending -> digest of the arrays in
            it, or :data:`UNREADABLE`.
        config_text: the bytes of ``config.yaml``; None where it is not looked at, as in bundles,
            which leave it out.
        charter_text: the bytes of ``charter.json``; empty in a simulation.
        approvals_text: the bytes of ``approvals.json``; empty where nobody approved the plan.
        side: the party whose own side alone this is; empty: the files of all parties.
        ledgers: party -> bytes of its ledger.
        checkpoints: party -> its signed head as it lies in the run folder.
        attacks_text: the bytes of ``attacks.json``, what ``audit attack`` found; may be empty.
        baseline_text, waivers_text, rehearsal_text: an earlier report to compare with, the accepted
            findings and a rehearsal, as the last ``audit report`` was given them; may be empty.
        figures: client -> what its site handed on of attacks on its own side.
        reports: file name -> bytes, of what now lies in ``report/``.
        strays: folders of the evidence in which something lies that is none of ours.
        budgets: name of a note -> a budget's head that the aggregator cosigned.
        captured: returns what lies in ``captured/``; None where it is not looked at, as in bundles.
        forgotten: party -> its signed notes of what it destroyed.
        models: returns by client the SHA-256 (hex) of each locked piece in ``models/``; None where
            they are not looked at.
        held_heads: party -> the signed head that *others* hold; None if nobody was asked.
        expected_plan: digest (hex) of the plan that was approved; None if not stated.
    """

    plan_text: bytes
    policy_text: bytes
    roster_text: bytes
    result_text: bytes = b""
    metrics_text: bytes = b""
    weights: Mapping[str, str] = field(default_factory=dict)
    config_text: bytes | None = None
    charter_text: bytes = b""
    approvals_text: bytes = b""
    side: str = ""
    ledgers: Mapping[str, bytes] = field(default_factory=dict)
    checkpoints: Mapping[str, str] = field(default_factory=dict)
    attacks_text: bytes = b""
    baseline_text: bytes = b""
    waivers_text: bytes = b""
    rehearsal_text: bytes = b""
    figures: Mapping[str, bytes] = field(default_factory=dict)
    reports: Mapping[str, bytes] = field(default_factory=dict)
    strays: tuple[str, ...] = ()
    budgets: Mapping[str, bytes] = field(default_factory=dict)
    captured: Callable[[], CapturedFiles] | None = None
    forgotten: Mapping[str, bytes] = field(default_factory=dict)
    models: Callable[[], Mapping[str, Mapping[str, str]]] | None = None
    held_heads: Mapping[str, str] | None = None
    expected_plan: str | None = None

    def __repr__(self) -> str:
        """Return how many ledgers there are; files are not for printing."""
        return f"<RunView of {len(self.ledgers)} ledgers>"

    @property
    def folder_only(self) -> RunView:
        """The same run without what a verifier brings along; a report is a function of this."""
        return replace(self, reports={}, held_heads=None, expected_plan=None)


def fail(step: str, what: str) -> NoReturn:
    """Raise EvidenceError for a step."""
    raise EvidenceError(step, what)


def read_json(data: bytes, *, limit: int, what: str) -> Any:
    """Parse JSON without repeated keys, NaN, Infinity or numbers that would become it.

    Args:
        data: UTF-8 text.
        limit: largest size, in bytes.
        what: name of the file, for errors.

    Raises:
        EvidenceError: at step ``files``.
    """
    if len(data) > limit:
        fail("files", f"{what} is larger than {limit} bytes")
    try:
        text = bytes(data).decode("utf-8", "strict")
        return json.loads(
            text, object_pairs_hook=_unique, parse_constant=_no_constant, parse_float=_finite
        )
    except (ValueError, RecursionError):
        raise EvidenceError("files", f"{what} is not valid JSON") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a key is repeated")
    return members


def _no_constant(_: str) -> NoReturn:
    raise ValueError("NaN and Infinity are not JSON")


def _finite(digits: str) -> float:
    found = float(digits)
    if not math.isfinite(found):
        raise ValueError("a number is too large")
    return found


def check_version(found: object, format: Format, *, step: str, what: str, member: str) -> None:
    """Read the number of a parsed JSON object before anything else of it.

    Args:
        found: what was parsed; what is no object is left to its own reader.
        format: that it should be of.
        step: of the errors.
        what: name of the file, for errors.
        member: which holds the number.

    Raises:
        OtherEvidence: it is of another version.
        EvidenceError: there is no number.
    """
    if isinstance(found, dict) and not format.check(
        found.get(member), partial(OtherEvidence, step)
    ):
        fail(step, f"{what} states no format version")


def read_result(data: bytes) -> dict[str, Any]:
    """Parse ``result.json``, {} if it is empty; raises EvidenceError at step ``files``."""
    if not data:
        return {}
    return json_object(read_json(data, limit=RESULT_LIMIT, what="result.json"), "result.json")


def result_digest(result: Mapping[str, Any]) -> str:
    """Return SHA-256 (hex) of what a result says, but for `MACHINE` and its verdict.

    Raises:
        EvidenceError: at step ``files``, for what JSON cannot carry.
    """
    apart = {*MACHINE, "verdict"}  # which is given once the ledgers are closed
    return json_digest({name: value for name, value in result.items() if name not in apart})


def json_object(found: object, what: str) -> dict[str, Any]:
    """Return a parsed value that must be an object; raises EvidenceError at step ``files``."""
    if not isinstance(found, dict):
        fail("files", f"{what} is not a JSON object")
    return found


def read_metrics(data: bytes) -> list[dict[str, Any]]:
    """Parse ``metrics.jsonl``, one object per line; raises EvidenceError at step ``files``."""
    if len(data) > METRICS_LIMIT:
        fail("files", f"metrics.jsonl is larger than {METRICS_LIMIT} bytes")
    rows = []
    for line in bytes(data).split(b"\n"):
        if line.strip():
            row = read_json(line, limit=RESULT_LIMIT, what="metrics.jsonl")
            rows.append(json_object(row, "a line of metrics.jsonl"))
    return rows


def json_digest(value: object) -> str:
    """Return SHA-256 (hex) of plain JSON data, whatever its spelling in the file was.

    Raises:
        EvidenceError: at step ``files``, for what JSON cannot carry.
    """
    try:
        text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError):
        raise EvidenceError("files", "a value is something that JSON cannot carry") from None
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def read_plan(data: bytes) -> Plan:
    """Parse ``plan.json`` strictly: it must be, byte for byte, what :meth:`Plan.text` writes.

    Raises:
        EvidenceError: at step ``files``.
    """
    document = read_json(data, limit=PLAN_LIMIT, what="plan.json")
    try:
        plan = Plan.model_validate(document)
        written = plan.text().encode("utf-8")
        plan.digest  # noqa: B018 - a plan without a canonical form cannot be compared
    except OtherVersion as error:
        raise OtherEvidence("files", *error.facts) from None
    except (ValidationError, CryptoError, UnicodeEncodeError):
        raise EvidenceError("files", "plan.json is not a plan") from None
    if written != data:
        fail("files", "plan.json is not in the form in which plans are saved")
    return plan


def policy_text(policy: PrivacyPolicy) -> str:
    """Return a policy as the JSON that is saved beside a run."""
    return json.dumps(policy.document(), indent=2, sort_keys=True) + "\n"


def read_policy(data: bytes) -> PrivacyPolicy:
    """Parse ``policy.json``: it must be, byte for byte, what `policy_text` writes.

    Raises:
        EvidenceError: at step ``files``.
    """
    document = read_json(data, limit=POLICY_LIMIT, what="policy.json")
    try:
        policy = PrivacyPolicy.model_validate(document)
    except (ValidationError, PolicyError):
        raise EvidenceError("files", "policy.json is not a valid policy") from None
    # Byte for byte: no second spelling of a number, no white space, no other order of keys.
    if policy_text(policy).encode("utf-8") != data:
        fail("files", "policy.json is not in the form in which policies are saved")
    return policy
