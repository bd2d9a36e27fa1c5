"""Approvals: did all parties sign this run's charter, or all whom its policy names its plan?"""

from __future__ import annotations

import hashlib
import hmac
import json

from audits.checks.parties.plan_approvals import hold, read_approvals
from audits.evidence.charter_file import APPROVAL, CharterFile
from audits.evidence.run_files import fail
from audits.evidence.steps import Case, Check, NotChecked
from crypto.errors import CryptoError
from protocols.wire.header import NONE


def approvals(case: Case) -> str:
    """Every party signed one charter; it holds this run's plan, policy, roster and settings."""
    if case.roster_file.simulated and case.view.charter_text:
        fail("approvals", "there is a charter.json, and a simulation has no charter")
    if case.roster_file.simulated and (case.policy.approvals or case.view.approvals_text):
        return _of_plan(case)
    if not case.view.charter_text:
        if case.roster_file.simulated:
            raise NotChecked("a simulation has no charter: no organisation agreed to anything")
        fail("approvals", "there is no charter.json: nobody is shown to have agreed to this plan")
    if case.view.approvals_text:
        fail("approvals", "there is an approvals.json, and a charter is for parties to sign")
    if case.policy.approvals:
        fail("approvals", "the policy names approvers, and a charter is for parties to sign")
    charter = case.charter
    _of_this_run(case, charter)
    _configured(case, charter)
    if charter.refused:
        fail("approvals", f"{len(charter.refused)} parties refused this charter")
    _signed(case, charter)
    return (
        f"all {len(charter.signatures)} parties signed the charter, which holds this plan, policy, "
        "roster and configuration"
    )


def _of_plan(case: Case) -> str:
    """All whom the policy names approved this plan before the first entry of any ledger."""
    if not case.policy.approvals:
        fail("approvals", "there is an approvals.json, and the policy names no approvers")
    approvals = read_approvals(case.view.approvals_text) if case.view.approvals_text else ()
    times = sorted(
        str(entry["time"]) for kept in case.ledger_index.entries.values() for entry in kept
    )
    if not times:
        fail("approvals", "no ledger says when the run began")
    hold(approvals, case.policy.approvals, case.plan_digest, times[0])
    over = [one.name for one in approvals if one.until and one.until < times[-1][:10]]
    late = f"; expired before the run ended: {', '.join(sorted(over))}" if over else ""
    named = ", ".join(f"{one.name} on {one.made[:10]}" for one in approvals)
    return f"approved by {named}, as the policy asks{late}"


def _of_this_run(case: Case, charter: CharterFile) -> None:
    file, policy = case.roster_file, json.dumps(case.policy.document(), sort_keys=True)
    held = {
        "run": _same(charter.run, file.run) and _same(charter.nonce, file.nonce.hex()),
        "roster": list(charter.parties) == file.roster.document(),
        "plan": _same(charter.plan, case.view.plan_text.decode()),
        "policy": _same(charter.policy, policy),
    }
    if wrong := [what for what, same in held.items() if not same]:
        fail("approvals", f"the charter is of another {wrong[0]} than this run's")
    names = {party["name"] for party in file.roster.document()}
    if set(charter.carriers) != names or set(charter.organisations) - names:
        fail("approvals", "the charter does not give every party of the roster its site")


def _configured(case: Case, charter: CharterFile) -> None:
    digest = hashlib.sha256(charter.config.encode()).hexdigest() if charter.config else NONE
    for party, first in case.ledger_index.first.items():
        if not _same(str(first.get("config")), digest):
            fail("approvals", f"{party} began with another configuration than the charter's")


def _signed(case: Case, charter: CharterFile) -> None:
    names = {party["name"] for party in case.roster.document()}
    if missing := sorted(names - set(charter.signatures)):
        fail("approvals", f"{missing[0]} did not sign the charter")
    if set(charter.signatures) != names:
        fail("approvals", "somebody signed the charter who is not on the roster")
    for name in sorted(names):
        try:
            key = case.roster.party(name).verify
            key.verify(APPROVAL, charter.signatures[name], charter.signed)
        except CryptoError:
            fail("approvals", f"{name} signed another charter than this one")


def _same(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode("utf-8", "replace"), other.encode("utf-8", "replace"))


APPROVALS = Check("approvals", ("files", "plan", "roster"), approvals)
