"""Section 10: how the numbers were made, by the files' own record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from audits.evidence.steps import Verification
from audits.report import words
from audits.report.attack_rows import Outcome, tally
from audits.report.models import REPORT_VERSION, Account, Egress, Finding, PlanDiff
from audits.report.sections import Fact, Method, Obligation

_RECORDED = ("backend", "version", "code_digest", "config_sha256", "seed")
_LONGEST = 120
_COUNTED = (
    "Envelopes, bytes and refusals are added up from the parties' ledgers; nothing is estimated. "
    "Planned numbers are upper bounds that were made before training, without the data."
)
_SPENT = (
    "Epsilons are Renyi bounds over all noised messages that the ledgers show, rounded up; "
    "secure-fgl audit account compares them with other accountants."
)
_ATTACKED = (
    "An attack is run four times: on what the receiver learnt, on the message before protection "
    "(raw control), on another client's message or on noise (null control), and without any "
    "message (prior). All values are means over clients with 95 % intervals from a bootstrap over "
    "clients, drawn from the heads of the ledgers; facts (A09) and proved bounds (A10) have none."
)
_JUDGED = (
    "PASS needs an attack that succeeds on the raw message, a null control at chance, and an "
    "interval of the gain over the prior that lies below the margin as a whole. What falls short "
    "of that is INCONCLUSIVE or INVALID. Null controls of estimates are tested together (Holm): a "
    "report whose controls are sound holds an INVALID row by chance in one of 10,000."
)
_SAME = (
    "This report is a function of the run's files: no clock, no network, no chance. "
    "'secure-fgl audit verify' makes it again and compares every byte."
)


def method(result: Mapping[str, Any], tried: Outcome) -> Method:
    """Return section 10.

    Args:
        result: ``result.json``; what it records of versions is its own word.
        tried: what the attacks found.
    """
    facts = [Fact(name="Report version", value=str(REPORT_VERSION))]
    for name in _RECORDED:
        value = result.get(name)
        if isinstance(value, str) and value.isprintable() and value:
            facts.append(Fact(name=f"{name} (result.json)", value=value[:_LONGEST]))
        elif isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63:
            facts.append(Fact(name=f"{name} (result.json)", value=str(value)))
    about = tried.tried
    if about.used:
        facts += [
            Fact(name="Profile of the attacks", value=about.profile),
            Fact(name="Digest of the attacks' code", value=about.code_digest),
        ]
    how = (_COUNTED, _SPENT, *((_ATTACKED, _JUDGED) if about.used else ()), _SAME)
    return Method(facts=tuple(facts), how=how)


# Section 9: what regimes ask for, and which section of this report is evidence for it.


_FLOW = ("scope", "plan", "inventory")
_REGIMES: tuple[tuple[str, str, tuple[str, ...], str], ...] = (
    (
        "GDPR Article 35, data protection impact assessment",
        "a description of the processing, its necessity, the risks and the measures",
        (*_FLOW, "budget", "attacks", "findings", "limits"),
        "purpose and legal basis, necessity, gauges of severity and likelihood, the opinion of the "
        "data protection officer",
    ),
    (
        "GDPR Article 30, records of processing",
        "categories of data and recipients, transfers, retention, measures",
        _FLOW,
        "purposes, contacts, countries, time limits for erasure",
    ),
    (
        "EDPB Opinion 28/2024 on AI models",
        "documented tests of what can be extracted from a model, case by case",
        ("attacks", "claims", "limits"),
        "whether what remains is insignificant, and the conclusion from it",
    ),
    (
        "PIPL Articles 55 and 56",
        "an impact assessment and a record of the processing, kept for three years",
        (*_FLOW, "findings", "integrity"),
        "legitimacy and necessity, whether the measures fit the risk, keeping the files",
    ),
    (
        "HIPAA Security and Privacy Rules",
        "audit controls, documentation kept for six years, expert determination",
        ("inventory", "attacks", "integrity"),
        "the expert's opinion, keeping the files",
    ),
    (
        "ISO/IEC 29134 and 27701",
        "a structured report on privacy impact, records of processing and disclosure",
        (*_FLOW, "findings"),
        "the management system around it",
    ),
    (
        "NIST Privacy Framework and SP 800-226",
        "an inventory and map of data actions; claims of differential privacy with unit, trust "
        "model and hazards",
        (*_FLOW, "budget", "claims"),
        "the profile and its targets",
    ),
    (
        "EU AI Act, Articles 12 and 26",
        "automatic logs over the life of a high-risk system, kept by its deployer for six months "
        "or longer",
        ("inventory", "integrity"),
        "whether the system is high-risk, the assessment of its impact, keeping the logs",
    ),
)


def obligations(
    diff: PlanDiff,
    egress: Sequence[Egress],
    spent: Sequence[Account],
    tried: Outcome,
    found: Sequence[Finding],
    evidence: Verification,
    limits: Sequence[str],
) -> tuple[Obligation, ...]:
    """Return section 9: per regime, the sections of this report that are evidence for it.

    Args:
        diff: section 2.
        egress: section 3.
        spent: section 4.
        tried: sections 5 and 6.
        found: section 7.
        evidence: section 11.
        limits: of section 10.
    """
    there = _there(diff, egress, spent, tried, found, evidence, limits)
    return tuple(
        Obligation(
            regime=regime,
            asks=asks,
            evidence=tuple(there[name] for name in names),
            people=people,
        )
        for regime, asks, names, people in _REGIMES
    )


def _there(
    diff: PlanDiff,
    egress: Sequence[Egress],
    spent: Sequence[Account],
    tried: Outcome,
    found: Sequence[Finding],
    evidence: Verification,
    limits: Sequence[str],
) -> Mapping[str, str]:
    kinds = words.plural(len(tried.not_tested), "kind") if tried.not_tested else "no kind"
    tested = f"{tally(tried)}; {kinds} of payload that no attack looked at"
    waived = sum(finding.waiver is not None for finding in found)
    return {
        "scope": "1 Scope: who sent what to whom",
        "plan": f"2 Plan: {words.plural(diff.seen, 'envelope')}, {len(diff.unplanned)} not planned",
        "inventory": f"3 Inventory: {words.plural(len(egress), 'kind')} of envelope",
        "budget": f"4 Budget: epsilon {spent[0].epsilon} for the run, unit {spent[0].unit}",
        "attacks": f"5 Attacks: {tested}",
        "claims": f"6 Claims: {words.plural(len(tried.claims), 'claim')} held against evidence",
        "findings": f"7 Findings: {len(found)}, of which {waived} accepted by somebody",
        "limits": f"10 Method: {words.plural(len(limits), 'stated limit')}",
        "integrity": f"12 Integrity: {evidence.verdict}",
    }
