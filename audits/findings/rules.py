"""What a reader should know about a run, each with a rule, a severity and what to do."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from audits.evidence.ledger_index import LedgerIndex
from audits.evidence.steps import Verification
from audits.findings.limitations import of_rule
from audits.report import words
from audits.report.models import Account, Dropouts, Egress, Finding, PlanDiff, Severity
from protocols.disclosures._evaluated.disclosure import UNWITNESSED
from protocols.disclosures.sum.disclosure import ACTIVE_AGGREGATOR
from protocols.plan.plan import Plan
from protocols.wire.roles import Role

SEVERITIES: tuple[Severity, ...] = ("critical", "high", "medium", "low", "info")


def made(
    rule: str,
    severity: Severity,
    message: str,
    remediation: str,
    *,
    item: str = "",
    role: str = "",
    payload: str = "",
) -> Finding:
    """Return a finding without its number; :func:`ranked` gives it one.

    Args:
        rule: name of what was found, in capitals.
        severity: how grave.
        message: what was found.
        remediation: what to do about it.
        item: plan item, or what else tells findings of one rule apart.
        role: who received it.
        payload: P01 to P21, if it is about one.
    """
    content = ["secure-fgl/finding", rule, item, role, *([payload] if payload else [])]
    return Finding(
        id="",
        rule=rule,
        severity=severity,
        payload=payload,
        item=item,
        recipient_role=role,
        message=message,
        remediation=remediation,
        fingerprint=hashlib.sha256("\0".join(content).encode("utf-8", "replace")).hexdigest(),
        limitation=of_rule(rule),
    )


def ranked(found: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return findings with their numbers, the gravest first, else in the order given."""
    order = sorted(found, key=lambda finding: SEVERITIES.index(finding.severity))
    return tuple(f.model_copy(update={"id": f"F{n:02d}"}) for n, f in enumerate(order, 1))


class _Maker(list[Finding]):
    """The findings so far; `add` takes what :func:`made` takes."""

    def add(
        self,
        rule: str,
        severity: Severity,
        message: str,
        remediation: str,
        *,
        item: str = "",
        role: str = "",
    ) -> None:
        self.append(made(rule, severity, message, remediation, item=item, role=role))


def findings(
    plan: Plan,
    diff: PlanDiff,
    egress: Sequence[Egress],
    gone: Dropouts,
    spent: Sequence[Account],
    evidence: Verification,
    result: Mapping[str, Any],
    *,
    simulated: bool,
) -> tuple[Finding, ...]:
    """Return all findings but those of attacks, baseline and waivers, the gravest first."""
    make = _Maker()
    _evidence(make, evidence)
    _impossible(make, result)
    _unplanned(make, diff)
    _egress(make, egress)
    _refused(make, diff)
    _overspent(make, spent)
    if ACTIVE_AGGREGATOR in plan.warnings:
        make.add(
            "ACTIVE_AGGREGATOR",
            "medium",
            "An aggregator that breaks the protocol can have a single client's upload opened, or "
            "a crafted ciphertext that gives it the run's key and so every upload. A client that "
            "breaks the protocol can bring the key out through the total.",
            "Use this run's protection only where aggregator and clients are trusted to follow "
            "the protocol, or take a preset (pilot, he, masks), or add the guard 'mask'.",
            role="aggregator",
        )
    if UNWITNESSED in plan.warnings:
        make.add(
            "UNWITNESSED",
            "high",
            "Nobody witnessed what was compared or weighed, as the policy asks (witnesses: 0): an "
            "aggregator that breaks the protocol can have had a single client's message opened, "
            "and no ledger would show it.",
            "Ask for a witness in the policy's guards 'cosine' and 'weigh' (witnesses: 1), or take "
            "a preset. A witness is one more organisation, which sees no value.",
            role="aggregator",
        )
    _gone(make, gone)
    for item in diff.missing:
        make.add(
            "MISSING",
            "low",
            f"{item} was planned and never left. The run did less than was planned.",
            "Nothing needs to be done if the run went to its end: some messages leave only where "
            "a client was away.",
            item=item,
        )
    _labels(make, plan, simulated)
    return ranked(make)


def _evidence(make: _Maker, evidence: Verification) -> None:
    if evidence.failed is not None:
        make.add(
            "EVIDENCE_BROKEN",
            "critical",
            f"The evidence fails at the step '{evidence.failed.name}'. "
            "What this report says may not be what happened.",
            "Keep a copy, ask each party for its own ledger and head, and compare.",
        )


def _impossible(make: _Maker, result: Mapping[str, Any]) -> None:
    """Encryption gives no range proof, so a client can make the cohort's counts absurd."""
    found = result.get("metrics", {})
    scores = list(found.items()) if isinstance(found, Mapping) else [("metrics", found)]
    wrong = sum(not _possible(name, value) for name, value in scores if name != "best_round")
    if wrong and any(value is not None for _, value in scores):  # all None: no score ever left
        make.add(
            "IMPOSSIBLE_METRIC",
            "high",
            f"{words.plural(wrong, 'metric')} of result.json outside the range of such a score: "
            "at least one client sent counts that cannot be true.",
            "Do not use the metrics, nor the model that they chose. Single counts are visible to "
            "nobody: find out with the data owners which client it was.",
        )


def _possible(name: str, value: object) -> bool:
    """Tell whether a metric can have this value: an error is not negative, all others are shares.

    None where no record was scored, or for a ROC-AUC one class only.
    """
    error = any(word in name.split("_") for word in ("mae", "rmse"))
    if value is None:
        return True
    known = isinstance(value, int | float) and not isinstance(value, bool)
    return known and 0 <= value <= (math.inf if error else 1)  # type: ignore[operator]


def _unplanned(make: _Maker, diff: PlanDiff) -> None:
    for item in sorted({entry.item for entry in diff.unplanned}):
        entries = [entry for entry in diff.unplanned if entry.item == item]
        make.add(
            "UNPLANNED",
            "critical",
            f"{words.plural(len(entries), 'release')} of {item} not as planned; the first: release "
            f"{entries[0].entry} of {entries[0].party} {entries[0].what}.",
            "Stop using this federation until the sender's owner has explained it.",
            item=item,
        )


def _egress(make: _Maker, egress: Sequence[Egress]) -> None:
    for row in egress:
        if row.unsafe:
            make.add(
                "UNSAFE_CLEAR",
                "critical",
                f"{words.plural(row.count, 'envelope')} of {row.item} {_open(row)}",
                "Take a policy without an unsafe guard; keep this one for baselines on data that "
                "may be seen.",
                item=row.item,
                role=row.recipient_role,
            )
        if row.clipped:
            share = 100 * row.clipped / row.count
            make.add(
                "CLIPPED",
                "info",
                f"In {row.clipped} of {row.count} envelopes of {row.item} ({share:.0f} %) a value "
                "was cut at the clipping bound. The ledgers show which, so they are not public.",
                "Raise the policy's clipping bound if accuracy suffers; smaller steps also help.",
                item=row.item,
                role=row.recipient_role,
            )


def _open(row: Egress) -> str:
    """Say what an Unsafe chain left open."""
    if words.in_clear(row.protection):
        return f"left in clear: {_readable(row)}"
    lists, opened = words.reads(row.protection), words.opens(row.protection)
    said = ["so that clients read single vectors of others, clipped and noised"] * lists
    said += ["by tags that anybody turns back: the matcher reads every item"] * opened
    every = " and every vector" if lists and opened else ""
    return f"were matched {', and '.join(said)}{every}."


def _readable(row: Egress) -> str:
    """Say what can be read of what left in clear; what a client gets is addressed to it alone."""
    if row.recipient_role == Role.CLIENT:
        return "the network can read what each client was sent."
    return f"the {words.role(row.recipient_role)} can read every single message."


def _overspent(make: _Maker, spent: Sequence[Account]) -> None:
    for place, account in enumerate(spent):
        if not account.borne_out:
            make.add(
                "BUDGET_EXCEEDED",
                "high",
                f"The ledgers show epsilon {account.recorded}, {account.target} was planned "
                f"({account.unit}).",
                "Do not quote the planned figure; audit account shows where it was spent.",
                item=account.unit if place else "",
            )


def _refused(make: _Maker, diff: PlanDiff) -> None:
    for code in sorted({entry.code for entry in diff.denied}):
        entries = [entry for entry in diff.denied if entry.code == code]
        make.add(
            f"REFUSED_{code.upper()}",
            "high",
            f"{words.plural(len(entries), 'request')} refused ({code}); the first by "
            f"{entries[0].party} in exchange {entries[0].exchange}. Nothing left in "
            "answer but the refusal itself.",
            f"Read entry {entries[0].entry} of the ledger of {entries[0].party}: the reason stays "
            "there and did not travel.",
        )


def _gone(make: _Maker, gone: Dropouts) -> None:
    if gone.vanished:
        first, count = gone.vanished[0], len({v.client for v in gone.vanished})
        make.add(
            "VANISHED",
            "info",
            f"{words.plural(count, 'client')} vanished in the middle of a round; the first: "
            f"{first.client} in round {first.round}, {first.moment}. Totals are over who was left.",
            "Nothing needs to be done. Ledgers cannot tell a lost envelope from one that its "
            "receiver denies: if it is always the same client, ask its owner and the aggregator.",
        )
    if gone.lost:
        lost = gone.lost[0]
        rounds = sorted({entry.round for entry in gone.lost})
        make.add(
            "ROUND_SKIPPED",
            "medium" if gone.openable else "low",
            f"{words.plural(len(rounds), 'round')} skipped because too few clients were left for "
            f"what the policy asks; the first: round {lost.round}, with "
            f"{words.plural(lost.arrived, 'answer')}. No opening of it is recorded."
            f"{words.maybe_opened(gone.openable)}",
            "Find out why clients vanish; the model had fewer rounds than were planned.",
        )


def _labels(make: _Maker, plan: Plan, simulated: bool) -> None:
    if simulated:
        make.add(
            "SIMULATION",
            "info",
            "All roles ran in one process: roles are not separated, and whoever ran it could see "
            "everything.",
            "Run each role at its own organisation before anything is claimed about real data.",
        )
    if plan.data.synthetic:
        make.add(
            "SYNTHETIC_DATA",
            "info",
            "The data are synthetic (generated). No figure says anything about real people.",
            "Nothing needs to be done.",
        )


# --- What a topology's sums over neighbours rest on, where that is too few ---


def thin(plan: Plan) -> tuple[Finding, ...]:
    """Return a finding where the policy lets sums over too few neighbours run (O5)."""
    topology = plan.topology
    if topology is None or topology.floor == "checked":
        return ()
    message = (
        f"Sums over neighbours rest on too few: {topology.thinnest}. The policy lets that run "
        "(topology_floor: unsafe)."
    )
    remedy = (
        "Give every client more neighbours (topology: regular with a higher degree, or complete); "
        "keep this one for baselines on data that may be seen."
    )
    return (made("THIN_NEIGHBOURHOODS", "critical", message, remedy, role="client"),)


# --- Findings on the weights of combinations, as the ledgers tell them ---


def ranks(ledger_index: LedgerIndex) -> tuple[Finding, ...]:
    """Return the finding that some receiver's rows together tell single others (O10), if they do.

    Aggregator and witnesses count; where they do not agree, the larger number stands.
    """
    entries = [entry for kind in ("weights", "witness") for _, entry in ledger_index.of_kind(kind)]
    told = [(entry["round"], entry["solved"]) for entry in entries if entry.get("solved")]
    if not told:
        return ()
    message = (
        f"From round {min(told)[0]} on, some client's combinations together single out others: by "
        f"round {max(told)[0]} up to {max(solved for _, solved in told)} of them. Would models "
        "stand still, this client, told the weights by the aggregator or a witness, could solve "
        "for each of these; the more they change between rounds, the less it learns."
    )
    remedy = (
        "Train for fewer rounds (algorithm.rounds), with more clients, or stop when models no "
        "longer change."
    )
    return (made("ROWS_RANK", "medium", message, remedy, role="client"),)


def flattened(ledger_index: LedgerIndex) -> tuple[Finding, ...]:
    """Return the finding that weights were brought to the nearest admissible ones (O10), if any."""
    told = [entry for _, entry in ledger_index.of_kind("weights")]
    rows, changed = sum(e["receivers"] for e in told), sum(len(e["flattened"]) for e in told)
    if not changed:
        return ()
    rounds = len({entry["round"] for entry in told if entry["flattened"]})
    message = (
        f"{changed} of {words.plural(rows, 'row')} of weights, in {words.plural(rounds, 'round')}, "
        "rested on fewer others in effect than the policy allows, or for more than half of the "
        "others' share on one of them, and were brought to the nearest weights that do neither. "
        "This is as the aggregator states: nobody else saw what it wanted."
    )
    remedy = (
        "Nothing needs to be done. If models suffer, small groups of alike clients are cut off "
        "from weighing each other alone: more clients help, a smaller minimum_cohort exposes them."
    )
    return (made("WEIGHTS_FLATTENED", "info", message, remedy, role="client"),)
