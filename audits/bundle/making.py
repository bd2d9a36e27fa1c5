"""A run's files to a bundle's files: a pure function of them, the environment, a key and a day."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from audits.accounting.account import account_of
from audits.bundle.archive import (
    ATTESTATIONS,
    MANIFEST,
    digests_text,
    listing,
    manifest,
    read_manifest,
    signed,
)
from audits.bundle.statements import (
    LEAKAGE_AUDIT,
    PREDICATES,
    TEST_RESULT,
    bare,
    keys_text,
    leakage_audit,
    predicates,
    statement,
    subjects,
    test_result,
)
from audits.evidence.own_files import evidence as evidence_of
from audits.evidence.run_files import MACHINE, RunView, fail, read_result
from audits.evidence.steps import Case, Status, Step, Verification, run_checks
from audits.evidence.verify import checks_of
from audits.formats import FORMATS, render
from audits.report.build import report_of
from audits.report.models import Report
from crypto.signing import SigningKey

__all__ = ["accounting_text", "make", "portable"]

_BY_HAND = Path(__file__).with_name("VERIFY.md")


def make(
    view: RunView, *, environment: Mapping[str, bytes], day: str, signer: SigningKey | None = None
) -> dict[str, bytes]:
    """Return the files of a bundle, ``manifest.json`` among them; the same input, the same bytes.

    No model is in it, only its digest; no configuration, whose paths say where a site keeps its
    data; nothing of ``private/`` or ``captured/``. Ledger lines stay as they are, with their times
    in seconds, because heads are signed over them; what a bundle says itself holds a day (O29).

    Args:
        view: the run as it lies in its folder.
        environment: ``env/versions.json`` and ``env/sbom.cdx.json``.
        day: ``YYYY-MM-DD``, UTC, for the signed statement of what passed.
        signer: the auditor's key; None leaves the bundle unsigned, and ``audit verify`` says so.

    Raises:
        EvidenceError: the run's documents cannot be read, its report was edited, or the auditor's
            key is a party's own. A run whose evidence fails elsewhere gets its bundle, whose report
            and statements say so.
    """
    if view.reports:
        _unedited(view)
    bare = portable(view)
    case = Case(bare)
    report = report_of(case)
    files = {
        **environment,
        **_run(bare),
        **{f"report/{name}": data for name, data in render(report, FORMATS).items()},
        "VERIFY.md": _BY_HAND.read_bytes(),
        "accounting.json": accounting_text(case, report),
    }
    auditor = signer.public if signer is not None else None
    files["keys/trust.json"] = keys_text(case.roster_file.run, case.roster, auditor)
    if signer is not None:
        files |= _attested(files, report, day, signer)
    files[MANIFEST] = manifest(files)
    read_manifest(files)  # what a verifier would refuse is not handed out
    return files


def statements(view: RunView, report: Report, signer: SigningKey | None) -> dict[str, bytes]:
    """Return what is stated of a run without a bundle, by file name: two in-toto statements.

    They are about the run's own files. ``svr`` is of a bundle alone: whoever verifies one signs it.

    Args:
        view: of the run.
        report: made of it.
        signer: signs in DSSE envelopes; None: bare statements, which prove nothing.
    """
    files = listing(_run(view))
    about, found = subjects(files), dict[str, bytes]()
    told = {LEAKAGE_AUDIT: leakage_audit(report), TEST_RESULT: test_result(report, files)}
    for kind, predicate in told.items():
        if signer is None:
            found[f"{PREDICATES[kind]}.intoto.json"] = bare(kind, predicate, about)
        else:
            made = statement(kind, predicate, about, signers=[signer])
            found[f"{PREDICATES[kind]}.dsse.json"] = made
    return found


def portable(view: RunView) -> RunView:
    """Return the run without what ``result.json`` says about the machine it ran on.

    These are the run folder's path, times and memory; the report is made anew, as it holds that
    file's digest. Raises EvidenceError at step ``files`` if the file cannot be read.
    """
    result = read_result(view.result_text)
    if not set(MACHINE) & set(result):
        return replace(view, reports={})
    kept = {name: value for name, value in result.items() if name not in MACHINE}
    text = json.dumps(kept, indent=2, sort_keys=True) + "\n"
    return replace(view, result_text=text.encode(), reports={})


def accounting_text(case: Case, report: Report) -> bytes:
    """Return ``accounting.json``: the account of a run whose report was made from the same files.

    The evidence was checked for the report, so it is not checked again.
    """
    names = {check.name for check in evidence_of(case)}
    steps = (Step(s.name, Status(s.status), s.detail) for s in report.integrity.steps)
    evidence = Verification(tuple(step for step in steps if step.name in names))
    found = account_of(case.folder_only(), evidence)
    return (found.model_dump_json(indent=2) + "\n").encode()


def _unedited(view: RunView) -> None:
    """Raise EvidenceError if the report does not follow from the files; names what failed first."""
    case = Case(view)
    failed = [s for s in run_checks(case, checks_of(case)).steps if s.status is Status.FAIL]
    if not any(step.name == "report" for step in failed):
        return
    first = failed[0]
    why = "the report does not follow from that: move the folder report/ away to bundle the rest"
    if first.name == "report":
        why = "a bundle would pass the edit on"
    fail(first.name, f"{first.detail}; {why}")


def _run(view: RunView) -> dict[str, bytes]:
    documents = {
        "approvals.json": view.approvals_text,
        "attacks.json": view.attacks_text,
        "baseline.json": view.baseline_text,
        "charter.json": view.charter_text,
        "metrics.jsonl": view.metrics_text,
        "rehearsal.json": view.rehearsal_text,
        "result.json": view.result_text,
        "waivers.json": view.waivers_text,
    }
    return {
        "checkpoints.json": digests_text(view.weights),
        "plan.json": view.plan_text,
        "policy.json": view.policy_text,
        "roster.json": view.roster_text,
        **{name: data for name, data in documents.items() if data},
        **{f"ledger/{party}.jsonl": data for party, data in view.ledgers.items()},
        **{f"attacks/{party}.json": data for party, data in view.figures.items()},
        **{f"heads/{party}.checkpoint": n.encode() for party, n in view.checkpoints.items()},
    }


def _attested(
    files: Mapping[str, bytes], report: Report, day: str, signer: SigningKey
) -> dict[str, bytes]:
    listed = signed(read_manifest({**files, MANIFEST: manifest(files)}))
    about = subjects(listed)
    return {
        f"{ATTESTATIONS}{PREDICATES[kind]}.dsse.json": statement(
            kind, predicate, about, signers=[signer]
        )
        for kind, predicate in predicates(report, listed, day).items()
    }
