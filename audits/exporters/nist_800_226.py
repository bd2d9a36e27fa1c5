"""Each claim of differential privacy beside the questions of NIST SP 800-226, in Markdown.

The publication (final, March 2025) asks reviewers to look beyond epsilon: a pyramid whose upper
layers hold only if the lower ones do. Here its layers stand from the top down, each with what the
record of a run is evidence for, or "not stated". No layer is judged.
"""

from __future__ import annotations

from collections.abc import Iterator

from audits.accounting.models import Account, Epsilon
from audits.exporters._drafts import bullets, measures, plain, table
from audits.report.models import Report

NAME = "nist-800-226"
FILE = "nist-sp-800-226.md"
NEEDS_ACCOUNT = True

NOT_STATED = "not stated"
HAZARDS = (
    "Floating point: sums, counts, rows and gradients are noised as whole numbers, by discrete "
    "distributions drawn exactly from the operating system's randomness (ADR 0008, 0011, 0039); "
    "Laplace noise on single rows of items is drawn as real numbers.",
    "Side channels: sizes of messages follow from the plan alone (O27); how long a client takes, "
    "and whether it answers, is visible, and whether a value was clipped stands in its own ledger.",
    "Error messages: a refusal is one code of a closed list (O27).",
)
_COSTS = ("backend", "bytes_up", "bytes_down", "exchanges", "model_sha256")
_PEOPLE = (
    "whether one person can be in several units, at one site or at several",
    "how data were collected, and who has seen them before",
    "how much accuracy is lost, for whom, and whether that is fair",
    "who may read ledgers, captures and models at each site",
)


def export(report: Report, account: Account) -> bytes:
    """Return the draft (Markdown, UTF-8).

    Args:
        report: what left, and what attacks found.
        account: what noise is worth, as planned and by the ledgers.
    """
    lines = [
        "# DRAFT: claims of differential privacy, by NIST SP 800-226",
        "",
        f"Run {plain(report.subject.run)}, plan {plain(account.plan_digest)}; evidence: "
        f"{plain(account.evidence)}. {plain(account.statement)}. Verdict on the record: "
        f"{account.verdict}.",
    ]
    for title, part in _layers(report, account):
        lines += ["", f"## {title}", "", *part]
    return ("\n".join(lines) + "\n").encode("utf-8", "replace")


def _layers(report: Report, account: Account) -> Iterator[tuple[str, list[str]]]:
    yield "Top: epsilon and the unit of privacy", _claims(account)
    yield "Top: the empirical bound beside each claim", _bounds(report)
    yield "Middle: mechanisms", _mechanisms(account)
    yield "Middle: accountant and composition", _accountants(account)
    yield "Middle: utility and bias", bullets(_results(report))
    yield "Middle: hazards of an implementation", bullets(HAZARDS)
    yield "Base: trust model", _trust(account)
    yield "Base: security and access", [f"- {plain(title)}" for title, _ in measures(report)]
    yield "What is not covered", bullets(_uncovered(account))
    yield "To be stated by people", [f"- {NOT_STATED}: {line}" for line in _PEOPLE]


def _numbers(account: Account) -> Iterator[tuple[str, str, Epsilon | None, Epsilon]]:
    """Yield every claim: what it is on, its mechanism, planned and recorded."""
    noise = ", ".join(one.mechanism for one in account.noise) or NOT_STATED
    run = next((one for one in account.scopes if one.scope == "run"), None)
    last = account.scopes[-1] if account.scopes else None
    chosen = run or last
    planned = account.target if chosen is None else chosen.planned
    yield "the client's messages", noise, planned, account.epsilon
    if chosen is not None and account.epsilon.value != chosen.recorded.value:
        covered = ", ".join(account.covered) or NOT_STATED
        yield f"covered messages alone ({covered})", noise, chosen.planned, chosen.recorded
    if (single := account.records) is not None:
        how = f"noised gradients, clip {single.clip}, rate {single.rate}, noise {single.noise}"
        yield "training records", how, single.target, single.recorded
    for one in account.counted:
        yield ", ".join(one.items), f"{one.mechanism}, scale {one.scale}", one.target, one.recorded


def _claims(account: Account) -> list[str]:
    head = ("on", "unit", "adjacency", "scope", "planned ε", "ε by the ledgers", "δ", "mechanism")
    rows = []
    for what, how, planned, recorded in _numbers(account):
        rows.append(
            (
                what,
                recorded.unit,
                recorded.adjacency,
                recorded.scope,
                NOT_STATED if planned is None else planned.value,
                recorded.value,
                recorded.delta,
                how,
            )
        )
    return table(head, rows)


def _bounds(report: Report) -> list[str]:
    """Claims that attacks were held against: an attack bounds epsilon from below only."""
    rows = [
        (
            one.text,
            one.unit,
            one.epsilon_claim,
            one.status.replace("_", " "),
            one.epsilon_lb or NOT_STATED,
            one.ceiling or NOT_STATED,
            one.confidence or NOT_STATED,
        )
        for one in report.claims
    ]
    if not rows:
        return [f"{NOT_STATED}: no claim was held against an attack."]
    head = ("claim", "unit", "claimed ε", "status", "lower bound", "ceiling", "confidence")
    return table(head, rows)


def _mechanisms(account: Account) -> list[str]:
    if not account.noise:
        return [f"{NOT_STATED}: no message of a client as a whole carries noise."]
    head = ("items", "mechanism", "σ or scale", "L2", "L1", "coordinates", "honest shares", "times")
    rows = (
        (
            ", ".join(one.items),
            one.mechanism,
            one.sigma,
            one.l2,
            one.l1,
            str(one.coordinates),
            str(one.honest),
            str(one.releases),
        )
        for one in account.noise
    )
    return [*table(head, rows), "", "Lengths are in steps of the grid that values are rounded to."]


def _accountants(account: Account) -> list[str]:
    engines = (*account.engines, *(account.records.engines if account.records else ()))
    if not engines:
        return [f"{NOT_STATED}: nothing is composed."]
    rows = (
        (
            one.engine,
            NOT_STATED if one.epsilon is None else one.epsilon.value,
            one.ratio or NOT_STATED,
            one.note,
        )
        for one in engines
    )
    return table(("other arithmetic", "ε", "to ours", "note"), rows)


def _results(report: Report) -> list[str]:
    found = [f"{fact.name}: {fact.value}" for fact in report.results if fact.name not in _COSTS]
    return [*found, f"bias between groups of people: {NOT_STATED}"]


def _trust(account: Account) -> list[str]:
    """Who adds noise, who has to be trusted for what, and against whom the claim holds."""
    noised = account.noise or account.records or account.counted
    model = (account.target or account.epsilon).model if noised else NOT_STATED
    assumed = dict.fromkeys(
        line
        for one in (account.target, account.records and account.records.target)
        if one
        for line in one.assumptions
    )
    against = [f"against {view.view}: ε = {view.epsilon.value}" for view in account.views]
    return bullets([f"model: {model}", *assumed, *against])


def _uncovered(account: Account) -> list[str]:
    items = [f"{one.item}: {one.why}" for one in account.not_covered]
    return [*items, *account.reasons, *account.notes]
