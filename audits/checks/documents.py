"""Files, plan and roster: is everything there, and does it belong together?"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterator
from functools import partial

from audits.accounting.engines import false_noise
from audits.checks.parties import approvals, destroyed_ledger, may_lack_head
from audits.evidence.run_files import LEDGER_LIMIT, fail
from audits.evidence.steps import Case, Check, NotChecked
from audits.report.words import plural
from protocols.disclosures.registry import code
from protocols.errors import OtherVersion
from protocols.evidence.ledger import Entry
from protocols.plan.plan import Plan, plugin_of
from protocols.wire.envelope import NONE
from protocols.wire.roles import Role
from protocols.wire.roster import run_id

OTHER_PLAN = "the run's plan is not the plan that was expected"
"""The detail of the step ``plan`` where only the plan that a verifier expects is another one."""


def files(case: Case, *, ended: bool = True) -> str:
    """Everything that a run leaves is there and is read strictly; heads come when it has ended."""
    view = case.view
    read = (case.plan, case.policy, case.roster_file)  # each raises at step "files"
    case.result, case.metrics  # noqa: B018 - these too; a run that ended early may lack them
    if not view.ledgers:
        if when := destroyed_ledger(case):
            _was_to_destroy(case)
            raise NotChecked(f"{view.side} destroyed its ledger at {when}, as it signed")
        fail("files", "there is no ledger")
    for party, data in view.ledgers.items():
        if not data:
            fail("files", f"the ledger of {party} is empty")
        if len(data) > LEDGER_LIMIT:
            fail("files", f"the ledger of {party} is larger than {LEDGER_LIMIT} bytes")
    for party in view.ledgers:
        if ended and party not in view.checkpoints and not may_lack_head(case, party):
            fail("files", f"there is no signed head of the ledger of {party}")
    for party in view.checkpoints:
        if party not in view.ledgers:
            fail("files", f"there is a signed head of {party}, but no ledger")
    if view.side and (len(view.ledgers) > 1 or case.roster_file.simulated):
        fail("files", "one party's side of a run holds its own ledger alone, and is no simulation")
    if view.strays:
        fail("files", f"{view.strays[0]}/ holds something that is none of ours")
    _of_this_version(case)
    lacking = len(view.ledgers) - len(view.checkpoints)
    found = f"{len(read)} documents, {plural(len(view.ledgers), 'ledger')}"
    if lacking:
        return f"{found} and {plural(len(view.checkpoints), 'signed head')}"
    return f"{found} and {'its signed head' if view.side else 'their signed heads'}"


def _was_to_destroy(case: Case) -> None:
    """The key of that word is of the charter that all signed, whose policy let this role do it.

    No later step looks at a side without a ledger: who rewrote its roster could sign with any key.
    """
    for check in (plan, roster, approvals):
        check(case)
    kept = case.policy.retention.get(case.roster.party(case.view.side).role)
    if kept is None or kept.ledgers is None:
        fail("files", f"{case.view.side} destroyed its ledger, and the policy keeps it for ever")
    if set(case.view.forgotten) != {case.view.side}:
        fail("files", "one party's side of a run holds its own notes alone")


def _of_this_version(case: Case) -> None:
    """No ledger is of another version: of such a one not even the first entry could be believed."""
    for party, error in case.ledger_index.broken.items():
        if isinstance(error, OtherVersion):
            changed = "; other ledgers of this run are of this version, so this one was changed"
            hint = changed if case.ledger_index.entries else ""
            fail("files", f"ledger of {party}: {error.what}{hint}")


def plan(case: Case) -> str:
    """Plan and policy are those that every ledger names, from its first entry to its last."""
    wanted, digest, policy = case.view.expected_plan, case.plan_digest, case.policy.digest
    if not _same(case.plan.policy_digest, policy):
        fail("plan", "the plan was made for another policy than policy.json")
    if case.plan.policy != case.policy.name:
        fail("plan", "the plan names another policy than policy.json")
    if case.plan.smallest_cohort < case.policy.smallest_cohort:
        fail("plan", "the plan allows smaller cohorts than the policy")
    persons = case.plan.data.task == "rating" or case.policy.training is not None
    if case.plan.minimum_records != case.policy.minimum_records and (
        case.plan.minimum_records or not persons
    ):
        fail("plan", "the plan lets sites train on records of another number of persons")
    seen = 0
    for party, number, entry in _naming_a_plan(case):
        seen += 1
        if not _same(str(entry.get("plan")), digest):
            fail("plan", f"entry {number} of {party} was made under another plan")
        if not _same(str(entry.get("policy")), policy):
            fail("plan", f"entry {number} of {party} was made under another policy")
    _config(case)
    if false := false_noise(case.plan, case.policy):
        fail("plan", false)
    if wanted is not None and not _same(wanted.strip().lower(), digest):
        fail("plan", OTHER_PLAN)  # last: it says that nothing else is wrong with the plan
    expected = "" if wanted is None else ", and it is the expected one"
    return f"{seen} entries name this plan and policy{expected}{_other_code(case.plan)}"


def _other_code(plan: Plan) -> str:
    """Say which code the plan was made with that is another one here, or none."""
    here = code()
    other = sorted(name for name, digest in plan.code.items() if here.get(name) != digest)
    absent = {name: found for name in other if name not in here and (found := plugin_of(name))}
    changed = ", ".join(name for name in other if name not in absent)
    made = f"; made with another {changed} than is here" if changed else ""
    if absent:
        named = ", ".join(f"the {kind} {name}" for kind, name in absent.values())
        made += f"; made with a plug-in, {named}, of which no file is compared here"
    return made


def _config(case: Case) -> None:
    """Every party began with the configuration that lies beside the ledgers."""
    text = case.view.config_text
    if text is None:  # a bundle leaves it out
        return
    digest = hashlib.sha256(text).hexdigest() if text else NONE
    for party, first in case.ledger_index.first.items():
        if first.get("kind") == "plan" and not _same(str(first.get("config")), digest):
            fail("plan", f"config.yaml is not the configuration that {party} began with")


def _naming_a_plan(case: Case) -> Iterator[tuple[str, int, Entry]]:
    for party in case.view.ledgers:
        entries = case.ledger_index.entries.get(party)
        if entries is None:  # broken further on: only its first line can be believed at all
            first = case.ledger_index.first.get(party, {})
            entries = [first] if "plan" in first else []
        yield from ((party, n, entry) for n, entry in enumerate(entries) if "plan" in entry)


def roster(case: Case) -> str:
    """The run's name follows from roster, plan and policy; every party kept one ledger."""
    file = case.roster_file
    name = run_id(file.nonce, file.roster, case.plan_digest, case.policy.digest)
    if not _same(name, file.run):
        fail("roster", "the run's name does not follow from its roster, plan, policy and nonce")
    parties = {p["name"]: p["role"] for p in file.roster.document()}
    if strangers := sorted(set(case.view.ledgers) - set(parties)):
        fail("roster", f"{len(strangers)} ledgers belong to nobody on the roster")
    silent = sorted(set(parties) - set(case.view.ledgers))
    if silent and not case.view.side:
        fail("roster", f"{len(silent)} parties have no ledger, among them {silent[0]}")
    if tuple(sorted(file.roster.names(Role.CLIENT))) != case.plan.clients:
        fail("roster", "the clients on the roster are not the clients of the plan")
    digest = file.roster.digest
    for party, first in case.ledger_index.first.items():
        if first.get("kind") != "plan":
            fail("roster", f"the ledger of {party} does not begin with the plan")
        if not _same(str(first.get("roster")), digest):
            fail("roster", f"the ledger of {party} was begun with another roster")
        if first.get("role") != parties[party]:
            fail("roster", f"the ledger of {party} was begun in another role")
        if first.get("transport") != file.transport:
            fail("roster", f"the ledger of {party} was begun on another transport")
    whose = f"and the ledger of {case.view.side}" if case.view.side else "each with its ledger"
    return f"{len(parties)} parties, {whose}; the run's name follows from them"


def _same(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode("utf-8", "replace"), other.encode())


FILES_SO_FAR = Check("files", (), partial(files, ended=False))
"""Of a run of which no end is recorded."""
CHECKS = (
    Check("files", (), files),
    Check("plan", ("files",), plan),
    Check("roster", ("files", "plan"), roster),
)
