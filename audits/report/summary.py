"""The report in plain words: notes, summary and the seven lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from audits.evidence.steps import Case, Verification
from audits.findings.rules import SEVERITIES
from audits.report import words
from audits.report.attack_rows import Outcome, singled_out, tally, undecided
from audits.report.attack_words import readable, untested
from audits.report.budget import budget_line, worst_view
from audits.report.learning import NEVER_TRAINED
from audits.report.models import Account, Dropouts, Egress, Finding, Line, PlanDiff, State
from audits.report.scope import approved, intact
from protocols.disclosures.names import Disclosure
from protocols.plan.learns import reduced, runs_as
from protocols.plan.plan import Plan
from protocols.plan.steps import Step
from protocols.policy.policy import PrivacyPolicy
from protocols.wire.roles import Role

REHEARSAL = "REHEARSAL: one person held the keys of all roles, and all processes were one user's"
SIMULATION = "SIMULATION: roles are not separated"
SYNTHETIC = "SYNTHETIC DATA: generated, about nobody"
UNSAFE = "UNSAFE: messages left in clear"
READ = "UNSAFE: clients read single vectors of others"
OPEN = "UNSAFE: anybody turns tags of items back"
BROKEN = "EVIDENCE BROKEN: do not rely on this report"
ONE_SIDE = "ONE SIDE: made from the ledger of a single party"
_MOST_NAMED = 3  # waivers in the strip; all stand under the findings


def notes(
    plan: Plan,
    egress: Sequence[Egress],
    evidence: Verification,
    *,
    simulated: bool,
    rehearsed: bool = False,
    untrained: bool = False,
) -> tuple[str, ...]:
    """Return the banners, the gravest first."""
    banners = (
        (BROKEN, not evidence.ok),
        (ONE_SIDE, bool(evidence.side)),
        (UNSAFE, any(words.in_clear(row.protection) for row in egress)),
        (READ, any(words.reads(row.protection) for row in egress)),
        (OPEN, any(words.opens(row.protection) for row in egress)),
        (NEVER_TRAINED, untrained),
        (SIMULATION, simulated),
        (REHEARSAL, rehearsed),
        (SYNTHETIC, plan.data.synthetic),
    )
    shown = [text for text, applies in banners if applies]
    return (*shown, *(f"{runs_as(plan.algorithm)}{text}" for text in reduced(plan)))


def summary(
    plan: Plan,
    policy: PrivacyPolicy,
    diff: PlanDiff,
    egress: Sequence[Egress],
    gone: Dropouts,
    smallest: int | None,
    compared: str = "",
) -> str:
    """Return the first paragraph: who trained what together, what for, what left the clients.

    Args:
        plan: of the run, like `policy`.
        policy: see there.
        diff: planned against seen.
        egress: what left, rolled up.
        gone: who vanished.
        smallest: clients in the smallest total that was opened, from
            :func:`audits.report.scope.smallest_opened`.
        compared: what the model is worth beside references, in a sentence or two.
    """
    up = _up(egress)
    unsafe = sum(row.count for row in up if words.in_clear(row.protection))
    read = sum(row.count for row in up if words.reads(row.protection))
    sentences = [
        f"{words.plural(len(plan.clients), 'client')} trained {plan.algorithm} on "
        f"{plan.data.name} for up to {words.plural(plan.rounds, 'round')} under the policy "
        f"{policy.name}.",
        f"{words.plural(sum(r.count for r in up), 'envelope')} "
        f"({words.size(sum(r.bytes for r in up))}) left the clients, all to the aggregator."
        if {row.recipient_role for row in up} <= {Role.AGGREGATOR}
        else f"{words.plural(sum(r.count for r in up), 'envelope')} left the clients.",
    ]
    if compared:
        sentences.insert(1, compared)
    sentences += _computed(plan, policy, egress, smallest)
    if gone.vanished:
        count = len({v.client for v in gone.vanished})
        sentences.append(f"{words.plural(count, 'client')} vanished in the middle of a round.")
    if gone.lost:
        count = len({entry.round for entry in gone.lost})
        skipped = f"{words.plural(count, 'round')} skipped"
        sentences.append(
            f"{skipped}: too few clients were left for what the policy asks."
            f"{words.maybe_opened(gone.openable)}"
        )
    if unsafe:
        sentences.append(f"{words.plural(unsafe, 'envelope')} left IN CLEAR, as the policy asked.")
    if read:
        sentences.append(
            f"Clients read SINGLE VECTORS of others, clipped and noised ({words.number(read)} left)"
            ", as the policy asked."
        )
    if opened := sum(row.count for row in up if words.opens(row.protection)):
        sentences.append(
            f"Tags of items are such that ANYBODY TURNS THEM BACK ({words.number(opened)} "
            "envelopes), as the policy asked: the matcher reads every item of every client."
        )
    if diff.unplanned:
        sentences.append(f"{len(diff.unplanned)} releases were NOT as planned.")
    return " ".join(sentences)


def _computed(
    plan: Plan, policy: PrivacyPolicy, egress: Sequence[Egress], smallest: int | None
) -> Iterator[str]:
    """Say what of the clients' results left, a sentence for each thing that may be learnt of it."""
    found: dict[str, list[Egress]] = {}
    uploads = {item.id for item in plan.all_of(step=Step.UP)}
    for row in _up(egress):
        if (row.item in uploads or not row.planned) and not row.unsafe:
            found.setdefault(row.disclosure, []).append(row)
    total = (
        f"the smallest total that was opened is over {words.plural(smallest, 'client')} "
        f"(the policy asks for at least {words.number(plan.smallest_cohort)})"
        if smallest is not None
        else "no total of them was opened"
    )
    for disclosure, rows in found.items():
        names = ", ".join(dict.fromkeys(m.name for row in rows for m in row.messages))
        told = {
            Disclosure.SUM: total,
            Disclosure.SIMILARITY: _compared(plan, egress),
            Disclosure.WEIGHTED_SUM: _weighed(egress, policy.others),
            Disclosure.MIXED: _mixed(rows),
        }.get(Disclosure(disclosure), Disclosure(disclosure).meaning)
        yield (
            f"{words.plural(sum(r.count for r in rows), 'envelope')} of these carried what the "
            f"clients computed, {names} ({words.protection(rows[0].protection)}): {told}."
        )


def _mixed(rows: Sequence[Egress]) -> str:
    relayed = any(words.relayed(row.protection) for row in rows)
    said = "mixtures of one client's records each, which the aggregator reads"
    return f"{said} without their senders, as far as the relay keeps them" if relayed else said


def _compared(plan: Plan, egress: Sequence[Egress]) -> str:
    opened = {item.id for item in plan.all_of(Disclosure.SIMILARITY, Step.OPENED)}
    if any(row.item in opened for row in egress):
        return "a matrix of cosines a round went to the aggregator and the key authority"
    return "no cosine of them was opened"


def _weighed(egress: Sequence[Egress], others: int) -> str:
    handed = (Disclosure.WEIGHTED_SUM, Role.CLIENT)
    if any((row.disclosure, row.recipient_role) == handed for row in egress):
        return (
            "each client got one weighted combination of them a round, over at least "
            f"{words.number(others)} others in effect, or of its own alone"
        )
    return "no combination of them was handed out"


def _up(egress: Sequence[Egress]) -> list[Egress]:
    return [row for row in egress if row.sender_role == Role.CLIENT]


def strip(
    case: Case,
    diff: PlanDiff,
    egress: Sequence[Egress],
    found: Sequence[Finding],
    evidence: Verification,
    spent: Sequence[Account],
    tried: Outcome,
    limit_count: int,
) -> tuple[Line, ...]:
    """Return the seven lines that a compliance officer asks for, in that order.

    In memory the first of them begins with :data:`SIMULATION`.
    """
    first = _planned(diff, evidence.side)
    if case.roster_file.simulated:
        first = first.model_copy(update={"answer": f"{SIMULATION}. {first.answer}"})
    return (
        first,
        _left(egress, evidence.side),
        singled_out(tried, case.plan, egress, noised=bool(spent[0].covered)),
        budget_line(spent, worst_view(case)),
        _remains(found, tried, limit_count),
        intact(evidence),
        approved(evidence),
    )


def _planned(diff: PlanDiff, side: str = "") -> Line:
    state: State = "ATTENTION" if diff.denied else "OK"
    if diff.unplanned:
        answer, state = f"Yes: {words.plural(len(diff.unplanned), 'envelope')}.", "FAIL"
    else:
        answer = (
            f"{f'Not from {side}' if side else 'No'}. All "
            f"{words.plural(diff.seen, 'envelope')} were planned: item, route, size, "
            "number and protection."
        )
    if diff.denied:
        answer += f" {words.plural(len(diff.denied), 'request')} refused."
    return Line(question="Did anything leave that was not in the plan?", answer=answer, state=state)


def _is_control(row: Egress) -> bool:
    """Tell whether an envelope carries nothing that was computed from data."""
    return set(row.payloads) <= {"P18", "P20"}


def _left(egress: Sequence[Egress], side: str = "") -> Line:
    rows = list(egress) if side else _up(egress)
    whose = side or "the clients"
    control = [row for row in rows if row.planned and not row.unsafe and _is_control(row)]
    parts = [
        f"{words.plural(row.count, 'envelope')} of {'+'.join(m.name for m in row.messages)} "
        f"({words.size(row.bytes)}) to the {words.role(row.recipient_role)}, "
        f"{words.protection(row.protection)}"
        for row in rows
        if row not in control
    ]
    if control:
        parts.append(
            f"{words.plural(sum(row.count for row in control), 'envelope')} of keys, shares, votes "
            f"and receipts ({words.size(sum(row.bytes for row in control))}), sealed or public"
        )
    answer = f"From {whose}: {'; '.join(parts)}." if parts else f"Nothing left {whose}."
    unsafe, read = any(row.unsafe for row in egress), readable(egress)
    if read:
        answer += f" Of single clients, and read as they are by whoever receives them: {read}."
    return Line(
        question="What left, to whom, how often, how big, protected how?",
        answer=answer,
        state="FAIL" if unsafe else "ATTENTION" if read else "OK",
    )


def _remains(found: Sequence[Finding], tried: Outcome, limit_count: int) -> Line:
    counts = {s: sum(f.severity == s and f.waiver is None for f in found) for s in SEVERITIES}
    listed = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
    waivers = [(f.id, f.waiver) for f in found if f.waiver is not None]
    unsure, left = undecided(tried), untested([one.payload for one in tried.not_tested])
    every = "An attack looked at every kind of payload that attacks apply to"
    said = [f"Not tested: {left}" if left else every]
    if tried.rows:
        said.append(tally(tried))
    if unsure:
        said.append(
            f"{words.plural(len(unsure), 'attack')} decided nothing, or not all that was asked "
            f"({', '.join(unsure)})"
        )
    said.append(
        f"{words.plural(len(found) - len(waivers), 'open finding')} ({listed or 'none'}) and "
        f"{words.plural(limit_count, 'stated limit')}, all listed below"
    )
    said += [f"{id} is accepted by {w.owner} until {w.until}" for id, w in waivers[:_MOST_NAMED]]
    if len(waivers) > _MOST_NAMED:
        said.append(f"{len(waivers) - _MOST_NAMED} more are accepted")
    return Line(
        question="What was not tested, and what remains?",
        answer=f"{'. '.join(said)}.",
        state="FAIL" if counts["critical"] + counts["high"] else "ATTENTION" if found else "OK",
    )
