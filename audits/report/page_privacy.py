"""The report's sections on privacy as tables and sentences: budget, attacks, claims."""

from __future__ import annotations

from collections.abc import Sequence

from audits import plots
from audits.attacks._shared.models import AttackRow
from audits.attacks._shared.payloads import PAYLOADS
from audits.report.attack_words import POWER, clients, power, reading, show, verdict
from audits.report.models import Account, Report
from audits.report.sections import Labelled, Spending
from audits.report.table import (
    Block,
    Bullets,
    Facts,
    Figure,
    Folded,
    Heading,
    Lines,
    Section,
    Table,
    columns,
    prose,
)
from audits.report.words import decimal
from protocols.plan.learns import grade, odds


def sections(report: Report) -> tuple[Section, ...]:
    """Return sections 4 to 6."""
    return (
        Section(
            "budget", "Privacy budget", "How much privacy budget was spent?", _budget(report)
        ),
        Section(
            "attacks", "Attacks",
            "Can a person be singled out, or a client's data be guessed?",
            (*_attacks(report), *_at_sites(report), *_rehearsed(report)),
        ),
        Section("claims", "Claims", "Do the claims stand up to evidence?", _claims(report)),
    )  # fmt: skip


def _budget(report: Report) -> tuple[Block, ...]:
    blocks: list[Block] = []
    for account in report.accounting:
        epsilon = "∞ (infinity)" if account.epsilon == "infinity" else account.epsilon
        blocks += [
            prose(f"ε = {epsilon} for the {account.scope}", style="big"),
            prose(f"{account.statement[:1].upper()}{account.statement[1:]}."),
            Facts(_account(account)),
        ]
    blocks.append(
        prose(
            "Encryption and masks keep the receiver to the total. It does not bound what a total "
            "tells about one member; only noise does."
        )
    )
    for number, spent in enumerate(report.spending, 1):
        blocks += _spent(spent, number)
    return tuple(blocks)


def _account(account: Account) -> tuple[tuple[str, str | Lines], ...]:
    counted: tuple[tuple[str, str | Lines], ...] = ()
    if account.covered:
        tried = account.empirical
        ceiling = f"; ceiling {tried.ceiling}" if tried.ceiling else ""
        counted = (
            ("Of what is covered", f"ε = {account.recorded} by the ledgers, {account.target} "
             f"planned, δ = {account.delta}"),
            ("In odds", f"{odds(account.recorded, account.unit)}; {grade(account.recorded)} by "
             "NIST SP 800-226, which grades an epsilon of a person"),
            ("By attack", f"{tried.word.upper()}: {tried.why}{ceiling}"),
        )  # fmt: skip
    open_to = "no other message; who took part, and when, is not counted"
    return (
        ("Unit of protection", account.unit),
        ("Noise", account.mechanism),
        *counted,
        ("Covered", ", ".join(account.covered) or "nothing"),
        ("Not covered", ", ".join(account.not_covered) or open_to),
    )


def _spent(spent: Spending, number: int) -> list[Block]:
    points = tuple((point.round, _short(point.value)) for point in spent.timeline)
    shared = _shared(spent.rows)
    rows = tuple(
        (
            row.what, row.epsilon.value,
            row.empirical.word + (
                f", ceiling {row.empirical.ceiling}" if row.empirical.ceiling else ""
            ),
            row.epsilon.delta, row.epsilon.unit, row.epsilon.adjacency, row.epsilon.model,
            row.epsilon.scope,
            "; ".join(text for text in row.epsilon.assumptions if text not in shared) or "nothing",
        )
        for row in spent.rows
    )  # fmt: skip
    labels = columns(
        "Of what|fixed", "ε|epsilon", "By attack|words", "δ|figure", "Unit", "Adjacency|fixed",
        "Trust model|fixed", "Scope", "Assumes besides|words",
    )  # fmt: skip
    return [
        Heading(f"The budget, unit: {spent.unit}"),
        Figure(
            "Epsilon over the rounds, by the ledgers of whoever spent most",
            plots.timeline(spent, f"timeline-{number}"),
        ),
        Table(
            "Epsilon over the rounds", columns("After round|count", "ε|epsilon"), points,
            f"Unit: {spent.unit}; target {spent.target}; the other labels: next table",
            label=f"Epsilon after each round shown, {spent.unit}",
        ),
        Table(
            "Every epsilon with its six labels", labels, rows,
            f"All of them assume: {'; '.join(shared)}",
            label=f"Epsilons with their labels, {spent.unit}",
        ),
        *_own_noise(spent),
        *_honest(spent),
    ]  # fmt: skip


def _short(value: str) -> str:
    return value if value == "infinity" else decimal(value)


def _shared(rows: Sequence[Labelled]) -> list[str]:
    """Return the assumptions that every epsilon of a table makes."""
    return [
        text
        for text in (rows[0].epsilon.assumptions if rows else ())
        if all(text in row.epsilon.assumptions for row in rows)
    ]


def _own_noise(spent: Spending) -> tuple[Block, ...]:
    if not spent.calibrated:
        return ()
    rows = tuple(
        (row.item, row.entries, row.planned, row.ratio, row.needed, row.answered,
         row.answered_ratio, row.asks, row.spent.value)
        for row in spent.calibrated
    )  # fmt: skip
    header = columns(
        "Item|fixed", "Numbers|figure", "Clients planned|figure", "Noise : signal|figure",
        "Clients from which the error is below the clip|figure", "Fewest that answered|figure",
        "Noise : signal there|figure", "Asks|figure", "ε spent|epsilon",
    )  # fmt: skip
    note = (
        "Noise to signal: the mean's expected error in units of the clip, planned without data; "
        "above 1 nothing can be learnt of one message. ε: of that item alone, by the ledger of "
        "whoever spent most; its labels as above"
    )
    title = "What each client's own noise leaves of a mean"
    return (Table(title, header, rows, note, label=f"What own noise leaves, {spent.unit}"),)


def _honest(spent: Spending) -> tuple[Block, ...]:
    if not spent.shares:
        return ()
    rows = tuple((row.missing, row.honest, row.epsilon.value) for row in spent.shares)
    header = columns(
        "Missing or colluding|figure", "Honest shares of noise|figure",
        f"ε of the {spent.shares[0].epsilon.scope}|epsilon",
    )  # fmt: skip
    note = "The run as planned; δ and the other labels as above"
    label = f"Honest share, {spent.unit}"
    return (Table("If clients are missing or collude", header, rows, note, label=label),)


def _attacks(report: Report) -> tuple[Block, ...]:
    how = (
        f" Profile {report.tried.profile}. Larger is worse. A message counts as protected only if "
        "what it adds to the prior stays below the margin, with its whole interval, and only if "
        "the attack does succeed on the raw message."
    )
    blocks: list[Block] = [prose(report.tried.state + (how if report.tried.used else ""))]
    if report.attacks:
        if any(row.protected for row in report.attacks):
            caption = "Five reference points of every attack, with 95 % intervals"
            blocks.append(Figure(caption, plots.attacks(report.attacks)))
        note = (
            "Value and 95 % interval over clients, where it is an estimate. The row below gives "
            "the reason"
        )
        blocks += [attack_table(report.attacks, note), _how_to_read(report.attacks)]
    if report.not_tested:
        untested = tuple(
            (row.payload, PAYLOADS[row.payload], "NOT TESTED", row.why) for row in report.not_tested
        )
        header = columns("Payload", "What it is", "State|state", "Why|words")
        note = "Kinds of payload that left, that attacks apply to, and that none looked at"
        label = "Payloads that were not tested"
        blocks.append(Table("Not tested", header, untested, note, label=label))
    else:
        blocks.append(
            prose(
                "Every kind of payload that attacks apply to was looked at by one. None applies to "
                "masked shares and ciphertexts by themselves, nor to keys, seeds and lists of "
                "parties: no data entered these."
            )
        )
    return tuple(blocks)


def attack_table(rows: Sequence[AttackRow], note: str) -> Table:
    """Return the table of attacks; the reasons stand below each row."""
    header = columns(
        "Attack", "Verdict|state", "Chance|figure", "Prior|value", "Null|value",
        "Protected|value", "Raw|value", "Gain over prior|value",
    )  # fmt: skip
    cells = tuple(
        (f"{row.id} {row.name}", verdict(row), row.chance if row.protected else None,
         row.prior, row.null, row.protected, row.raw, row.gap)
        for row in rows
    )  # fmt: skip
    return Table("Attacks", header, cells, note, below=tuple(map(_why, rows)))


def _why(row: AttackRow) -> Lines:
    about = ", ".join(text for text in (row.payload, row.what) if text)
    lines = [f"{about} ({row.metric})" if row.protected and about else about] if about else []
    lines.append(f"Why: {row.reason}")
    if row.protected:
        lines.append(f"Margin {row.margin}.")
    else:
        lines.append("Nothing was measured.")
    if row.detectable:
        lines.append(f"Power: {power(row)}.")
    if row.n_clients or row.n_pos or row.n_neg:
        over = f"{clients(row)}; " if row.n_clients else ""
        lines.append(
            f"{over}records or trials: {show(row.n_pos)} of the one kind, {show(row.n_neg)} of "
            "the other"
        )
    return Lines(lines)


def _how_to_read(rows: Sequence[AttackRow]) -> Folded:
    known = {row.id: row for row in reversed(rows)}
    order = dict.fromkeys(row.id for row in rows)
    facts = tuple(
        (
            f"{id} {known[id].name}",
            Lines((known[id].question, reading(id), known[id].seed)),
        )
        for id in order
    )
    summary = "How to read a row: what each attack asks, what its figures are, and its seed"
    return Folded(summary, (prose(POWER), Facts(facts)))


def _at_sites(report: Report) -> tuple[Block, ...]:
    """Return what sites found at their own side; nothing where none handed any on."""
    sites = report.at_sites
    if sites is None:
        return ()
    handed = [
        f"{site.party}: {', '.join(site.attacks) or 'none'}"
        + (f"; kept there: {', '.join(site.withheld)}" if site.withheld else "")
        for site in sites.handed
    ]
    handed += [f"{name}: sent none" for name in sites.missing]
    handed += [f"{name}: of another version, not counted" for name in sites.other_version]
    blocks: list[Block] = [Heading("At sites"), prose(sites.note), Bullets(tuple(handed))]
    if sites.rows:
        rows = tuple(
            (
                f"{row.id} {row.name}", f"{row.payload} {row.what}", verdict(row), row.metric,
                row.prior, row.null, row.protected, row.raw, row.gap, row.n_clients,
                row.reason + (f" Power: {power(row)}." if row.detectable else ""),
            )
            for row in sites.rows
        )  # fmt: skip
        header = columns(
            "Attack", "Payload|words", "Verdict|state", "Metric", "Prior|value", "Null|value",
            "Protected|value", "Raw|value", "Gain over prior|value", "Sites|count", "Why|words",
        )  # fmt: skip
        note = "Each site by itself, on its own data; intervals over sites"
        blocks.append(Table("Attacks at sites", header, rows, note))
    return tuple(blocks)


def _rehearsed(report: Report) -> tuple[Block, ...]:
    """Return what a rehearsal says of what was not tested; nothing without one."""
    played = report.rehearsed
    if played is None:
        return ()
    rows = tuple(
        (
            f"{row.id} {row.name}", f"{row.payload} {row.what}", row.in_run.replace("_", " "),
            f"REHEARSAL: {row.rehearsed.replace('_', ' ')}", row.metric, row.prior or None,
            row.left or None,
            row.reason + (f" Power: {row.detectable}." if row.detectable else ""),
        )
        for row in played.rows
    )  # fmt: skip
    header = columns(
        "Attack", "Payload|words", "In this run|state", "Rehearsed", "Metric", "Prior|figure",
        "Protected|figure", "Why|words",
    )  # fmt: skip
    return (
        Heading("REHEARSAL"),
        prose(
            "Another run of this plan, played before with everything captured. Its verdicts are no "
            f"verdicts on this run. {played.here} clients were played on data that were there, "
            f"{played.stand_ins} on data that were drawn."
        ),
        Table("REHEARSAL", header, rows, "Beside what was not tested, and in place of nothing",
              label="Rehearsed attacks"),
        Bullets((*played.differs, *played.cannot)),
        prose(f"Plan {played.plan_digest}, played as {played.played_digest}.", style="muted"),
    )  # fmt: skip


def _claims(report: Report) -> tuple[Block, ...]:
    if not report.claims:
        none = "" if report.spending else " None is made either: no noise was added."
        return (prose(f"No claim was held against evidence in this run.{none}"),)
    rows = tuple(
        (row.text, row.status.replace("_", " ").upper(), row.unit, row.epsilon_claim,
         row.epsilon_lb, row.ceiling, row.confidence, row.trials)
        for row in report.claims
    )  # fmt: skip
    header = columns(
        "Claim|long", "State|state", "Unit", "Claimed ε|figure", "At least|figure",
        "Ceiling|figure", "Confidence|figure", "Trials|count",
    )  # fmt: skip
    blocks: list[Block] = [
        prose(
            "A bound above the claim falsifies it. A bound below it proves nothing: the ceiling "
            "tells what a perfect attack could have shown with as many trials."
        )
    ]
    if any(row.epsilon_lb for row in report.claims):
        blocks.append(Figure("Claimed epsilon and what was shown", plots.claims(report.claims)))
    return (*blocks, Table("Claims and evidence", header, rows))
