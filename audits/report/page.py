"""The report's sections as tables and sentences, in their order; those on privacy stand apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from markupsafe import Markup

from audits import plots
from audits.attacks._shared.payloads import PAYLOADS
from audits.findings.limitations import named
from audits.report import page_privacy, words
from audits.report.models import Denied, Egress, Finding, PartyFacts, Report, Vanished
from audits.report.table import (
    Block,
    Bullets,
    Code,
    Facts,
    Figure,
    Folded,
    Heading,
    Lines,
    Section,
    Table,
    Unsafe,
    columns,
    first,
    folded,
    prose,
)

_Absent = TypeVar("_Absent", Vanished, Denied)
MOST_ROUTES = 400  # rows of a table that may be long; inventory.csv or report.json has the others
MOST = 100  # rows of refusals and of clients that vanished
NAMED = 3  # of parties that sent and received alike; more are counted
MOST_BARS = 8  # of the chart by message; the rest is one bar


def sections(report: Report) -> tuple[Section, ...]:
    """Return the report's eleven sections."""
    return (
        Section("scope", "Scope", "Who computed what, on which data?", _scope(report)),
        Section(
            "plan", "Plan and actual", "Did anything leave that was not in the plan?",
            (*_plan(report), *_clusters(report), *_gone(report)),
        ),
        Section(
            "left", "What left", "What left, to whom, how often, how big, protected how?",
            (*_left(report), *_views(report)),
        ),
        *page_privacy.sections(report),
        Section("findings", "Findings", "Findings", _findings(report)),
        Section("changes", "Changes", "What changed since the baseline?", _changes(report)),
        Section(
            "obligations", "Obligations", "Where is the evidence for which obligation?",
            _obligations(report),
        ),
        Section(
            "method", "Method and limits", "How was it measured, and what does it not show?",
            _method(report),
        ),
        Section("evidence", "Evidence", "Is the evidence intact?", _evidence(report)),
    )  # fmt: skip


def _route(sender: str, recipient: str) -> str:
    return f"{words.role(sender)} → {words.role(recipient)}"


def _guarded(protection: str, unsafe: bool) -> str:
    return Unsafe(protection) if unsafe else protection


def _scope(report: Report) -> tuple[Block, ...]:
    subject, scope = report.subject, report.scope
    rows = tuple(
        (
            words.role(row.sender), words.role(row.recipient), row.count, row.bytes,
            _guarded("; ".join(row.protection), row.unsafe), ", ".join(row.items),
        )
        for row in scope.flows
    )  # fmt: skip
    header = columns(
        "From|fixed", "To|fixed", "Envelopes|count", "Size|size", "Protection|guard", "Items|long"
    )
    facts = (
        *((fact.name, fact.value) for fact in scope.data),
        ("Algorithm and form", f"{subject.algorithm}, {subject.form}"),
        ("Transport", report.transport),
        ("Encryption of sums", subject.scheme),
    )
    return (
        prose(scope.purpose),
        Figure("Who sends what to whom", plots.flows(scope.flows)),
        Table("Data flows", header, rows, "All parties in a role together",
              label="Data flows, by role"),
        Heading("The data and the run"),
        Facts(facts),
        Heading("What people must add"),
        prose("The files of a run do not hold this:"),
        Bullets(scope.unknown),
        *_parties(report),
    )  # fmt: skip


def _parties(report: Report) -> tuple[Block, ...]:
    groups = alike(report.parties)
    counts = ("Sent|count", "Bytes sent|size", "Received|count", "Bytes received|size",
              "Refusals|count")  # fmt: skip
    rows = tuple(
        (called(group), words.role(group[0].role), *_counts(group[0]))
        for group in groups[:MOST_ROUTES]
    )
    table = Table(
        "Parties", columns("Parties", "Role", *counts), rows,
        "Those of a role that sent and received alike stand together",
        label="Parties, by what they sent and received",
    )  # fmt: skip
    known = any(party.organisation for party in report.parties)
    each = tuple(
        (
            party.name, words.role(party.role), *((party.organisation,) if known else ()),
            party.key, *_counts(party),
        )
        for party in report.parties
    )  # fmt: skip
    names = ("Organisation",) if known else ()
    single = Table(
        "Parties, one by one", columns("Party", "Role", *names, "Key|code", *counts), each,
        "Key: the first 16 hex digits of the SHA-256 of the signing key",
    )  # fmt: skip
    count = words.plural(len(each), "party").replace("partys", "parties")
    how = "parties that sent and received alike together"
    return (
        Heading("Who took part", "parties"),
        folded(table, len(groups), "row", how),
        Folded(f"{count}, one by one, with their keys", (single,), open=known),
    )


def _counts(party: PartyFacts) -> tuple[int, ...]:
    return party.sent, party.sent_bytes, party.received, party.received_bytes, party.refusals


def alike(parties: Sequence[PartyFacts]) -> list[list[PartyFacts]]:
    """Return the parties in groups of one role that sent and received alike, in their order."""
    groups: dict[tuple[object, ...], list[PartyFacts]] = {}
    for party in parties:
        groups.setdefault((party.role, *_counts(party)), []).append(party)
    return list(groups.values())


def _together(rows: Sequence[_Absent]) -> list[list[_Absent]]:
    """Return rows in groups that say the same of different parties, in their order."""
    groups: dict[str, list[_Absent]] = {}
    for row in rows:
        key = row.model_dump_json(exclude={"client", "party", "entry"})
        groups.setdefault(key, []).append(row)
    return list(groups.values())


def called(group: Sequence[object], attribute: str = "name") -> str:
    """Return the names of a group: all of a few, else the first and how many there are."""
    names = ", ".join(str(getattr(member, attribute)) for member in group[:NAMED])
    return f"{names}, ... ({len(group)} in all)" if len(group) > NAMED else names


def _plan(report: Report) -> tuple[Block, ...]:
    diff = report.plan_diff
    beyond = f"{words.plural(len(diff.unplanned), 'envelope')} left that the plan does not hold."
    rows = tuple(
        (
            row.item, row.planned, row.seen, (row.seen, row.planned), row.planned_bytes,
            row.seen_bytes, _route(row.sender, row.recipient),
        )
        for row in diff.items
    )  # fmt: skip
    header = columns(
        "Item|code", "Planned|count", "Seen|count", "Seen of planned|share", "Bytes planned|size",
        "Bytes seen|size", "Route|fixed",
    )  # fmt: skip
    note = (
        "Planned: the most there may be on all routes of an item together. The masks of a sum come "
        "off in one answer or in two steps; its items are planned for both, and totals count the "
        "larger"
    )
    blocks: list[Block] = [
        prose(
            Unsafe(beyond) if diff.unplanned else "Nothing left that the plan does not hold.",
            f" {words.plural(len(diff.denied), 'request')} refused; "
            f"{words.plural(len(diff.missing), 'planned item')} never seen. The plan was made "
            "before training, without touching the data. It states the most that may leave; less "
            "is no deviation.",
        ),
        folded(Table("Plan and actual, by item", header, rows, note), len(rows), "kind"),
    ]
    if diff.unplanned:
        wrong = tuple((x.party, x.entry, x.item, Unsafe(x.what)) for x in diff.unplanned[:MOST])
        titles = columns("Party", "Entry|count", "Item|code", "What is wrong|words")
        blocks.append(
            Table("Releases that were not planned", titles, wrong, first(diff.unplanned, MOST))
        )
    if diff.denied:
        refused = tuple(
            (called(group, "party"), group[0].round, group[0].exchange, group[0].code)
            for group in _together(diff.denied)[:MOST]
        )
        titles = columns("Parties", "Round|count", "Exchange|count", "Code|code")
        note = (
            "Those of one exchange and code stand together; the reason stays in the ledger of the "
            "party that refused"
        )
        blocks.append(Table("Refusals", titles, refused, note))
    return (*blocks, *_rounds(report))


def _rounds(report: Report) -> tuple[Block, ...]:
    routes = plots.routes(report.rounds)
    rows = []
    for row in report.rounds[:MOST_ROUTES]:
        parts = {(part.sender, part.recipient): part.bytes for part in row.parts}
        size = words.size(row.seen)
        left = Unsafe(size) if row.seen > row.planned else size
        rows.append((row.round, row.planned, left, *(parts.get(route, 0) for route in routes)))
    header = columns(
        "Round|count", "Planned at most|size", "Seen|size",
        *(f"{_route(*route)}|size" for route in routes),
    )  # fmt: skip
    note = first(report.rounds, MOST_ROUTES, "Round 0: what the plan ties to no round")
    table = Table("Bytes per round", header, tuple(rows), note)
    return (
        Heading("Round by round"),
        Figure("Bytes per round, inside what was planned", plots.stacks(report.rounds)),
        folded(table, len(report.rounds), "round"),
    )


def _clusters(report: Report) -> tuple[Block, ...]:
    """Return the clusters over the rounds; nothing where the form never splits."""
    split = report.clusters
    if split is None:
        return ()
    rounds = report.subject.rounds
    rows = tuple(
        (
            words.round_name(row.round, rounds), len(row.sizes), ", ".join(map(str, row.sizes)),
            row.apart, ", ".join(map(str, row.signed)) or None,
        )
        for row in split.rows[:MOST_ROUTES]
    )  # fmt: skip
    header = columns(
        "From round|figure", "Clusters|count", "Clients in each|words", "Asked in none|count",
        "Cut signed in round",
    )  # fmt: skip
    note = "A row holds until the next one; end: what was asked after the last round"
    caption = "Clusters over the rounds, by what clients were told; dashed: asked in none"
    return (
        Heading("Into which clusters did the clients fall?", "clusters-part"),
        prose(words.split(split.signed, split.unused)),
        Figure(caption, plots.clusters(split, rounds)),
        Table("Clusters over the rounds", header, rows, first(split.rows, MOST_ROUTES, note)),
    )


def _gone(report: Report) -> tuple[Block, ...]:
    gone = report.dropouts
    count = len({row.client for row in gone.vanished})
    vanished = (
        f"{words.plural(count, 'client')} vanished in the middle of a round. What had arrived of "
        "it by then is in no total, unless its whole answer was there."
        if gone.vanished
        else "Nobody vanished."
    )
    skipped = (
        f"{words.plural(len({row.round for row in gone.lost}), 'round')} skipped: too few clients "
        "were left for what the policy asks, and no opening of what was asked for then is "
        f"recorded.{words.maybe_opened(gone.openable)}"
        if gone.lost
        else "No round was skipped."
    )
    blocks: list[Block] = [
        Heading("Who vanished, and which rounds were skipped?", "gone"),
        prose(f"{vanished} {skipped}"),
    ]
    if gone.vanished:
        groups = _together(gone.vanished)
        rows = tuple(
            (called(group, "client"), group[0].round, group[0].exchange, group[0].moment)
            for group in groups[:MOST]
        )
        header = columns("Clients", "Round|count", "Exchange|count", "How far it came|words")
        note = first(groups, MOST, "Those of one moment stand together")
        blocks.append(Table("Clients that vanished", header, rows, note))
    if gone.lost:
        lost = tuple(
            (row.round, row.ask, row.arrived, _asked(row.votes), _asked(row.shares))
            for row in gone.lost[:MOST]
        )
        header = columns("Round|count", "Request|code", "Answers|count", "Votes|count",
                         "Shares|count")  # fmt: skip
        note = "Shares: of how many holders for the client with the fewest"
        blocks.append(Table("Rounds that were skipped", header, lost, first(gone.lost, MOST, note)))
    return tuple(blocks)


def _asked(count: int | None) -> int | str:
    return "none asked" if count is None else count


def _left(report: Report) -> tuple[Block, ...]:
    rows = tuple(
        (
            Lines((" + ".join(m.name for m in row.messages), row.item,
                   *((", ".join(row.payloads),) if row.payloads else ()))),
            _route(row.sender_role, row.recipient_role), row.count, row.bytes,
            _guarded(words.protection(row.protection), row.unsafe),
            row.learns.get(row.recipient_role, row.meaning),
            words.span(row.first_round, row.last_round),
        )
        for row in report.egress
    )  # fmt: skip
    header = columns(
        "Messages", "Route|guard", "Envelopes|count", "Size|size", "Protection|guard",
        "The receiver learns|words", "Rounds|figure",
    )  # fmt: skip
    note = (
        "One row per kind of envelope, over all parties in a role. P01 to P21: kinds of payload, "
        "named below"
    )
    kinds = sorted({payload for row in report.egress for payload in row.payloads})
    parts = tuple(_kind(row) for row in report.egress)
    details: tuple[Block, ...] = parts
    if len(parts) > 12:
        details = (Folded(f"{words.plural(len(parts), 'kind')}, one part each", parts),)
    return (
        Figure("Bytes that left, by route and message", _bars(report)),
        folded(Table("What left, rolled up by role", header, rows, note), len(rows), "kind"),
        *_weighted(report),
        Folded("Kinds of payload among them", (Facts(tuple((id, PAYLOADS[id]) for id in kinds)),)),
        Heading("What is in each of them"),
        *details,
        Heading("Route by route"),
        *_inventory(report),
    )


def _weighted(report: Report) -> tuple[Block, ...]:
    """Return the table of weighted rows; nothing if no client was handed one."""
    if not report.rows:
        return ()
    rows = tuple(
        (row.round, row.receivers, row.flattened, row.group,
         f"{words.number(row.rank)} of {words.number(row.others)}", row.solved)
        for row in report.rows[:MOST_ROUTES]
    )  # fmt: skip
    header = columns(
        "Round|count", "Rows|count", "Flattened|count", "Fewest others in effect|figure",
        "Rank so far|figure", "Solved|count",
    )  # fmt: skip
    note = (
        "Each client gets one a round. Rank: independent combinations of others that one client "
        "was handed so far. Solved: others that follow from them, did nothing change. Flattened is "
        "the aggregator's word"
    )
    table = Table(
        "Weighted rows, round by round", header, rows, first(report.rows, MOST_ROUTES, note)
    )
    return (table,)


def _kind(row: Egress) -> Folded:
    """Return one kind of envelope: what protects it, what is learnt of it, and its fields."""
    chain = " → ".join(row.protection)
    facts: list[tuple[str, str | Lines]] = [
        ("Protection, in order", _guarded(chain, row.unsafe)),
        ("Meant to disclose", f"{row.disclosure}: {row.meaning}"),
        *((f"{words.role(who)} learns", what) for who, what in sorted(row.learns.items())),
    ]
    if row.clipped:
        clipped = f"in {words.number(row.clipped)} of {words.plural(row.count, 'envelope')}"
        facts.append(("Clipped", clipped))
    fields = tuple(
        (
            field.name, message.name,
            field.dtype + (f" discloses {field.carried}" if field.carried else ""),
            (" × ".join(map(str, field.shape)) or "one value")
            + (f" ({field.dims})" if field.dims else ""),
            field.unit,
            field.meaning + (
                f" (within ±{words.decimal(field.bound)}, step {words.decimal(field.step)})"
                if field.bound else ""
            ),
        )
        for message in row.messages for field in message.fields
    )  # fmt: skip
    header = columns("Field|code", "Message", "Type|code", "Shape|fixed", "Unit", "Meaning|words")
    inside: Block = prose("It carries no field: the envelope itself is the message.", style="muted")
    if fields:
        inside = Table("Fields", header, fields, label=f"Fields of {row.item}")
    summary = f"{_route(row.sender_role, row.recipient_role)}: {row.item}"
    return Folded(summary, (Facts(tuple(facts)), inside))


def _inventory(report: Report) -> tuple[Block, ...]:
    count = words.plural(len(report.inventory), "route")
    if len(report.inventory) > MOST_ROUTES:
        where = " The totals of each party stand under Parties, in section 1."
        all_of_them = f"There are {count}; all of them stand in "
        return (prose(all_of_them, Code("inventory.csv"), ".", where),)
    rows = tuple(
        (
            row.sender, row.recipient, row.item,
            _guarded(words.protection(row.protection), row.unsafe), row.count, row.bytes,
            words.span(row.first_round, row.last_round),
        )
        for row in report.inventory
    )  # fmt: skip
    header = columns(
        "Sender", "Recipient", "Messages|code", "Protection|guard", "Envelopes|count", "Size|size",
        "Rounds|figure",
    )  # fmt: skip
    table = Table("Inventory", header, rows, label="Inventory, route by route")
    return (Folded(f"{count}: one row per sender, message, recipient and protection", (table,)),)


def _bars(report: Report) -> Markup:
    """Return the largest kinds of envelope, what left in clear among them in any case."""
    most = max((row.bytes for row in report.egress), default=0) or 1
    order = sorted(report.egress, key=lambda row: (not row.unsafe, -row.bytes))
    shown = sorted(order[:MOST_BARS], key=lambda row: -row.bytes)
    rows = [plots.Bar(row.item, _value(row), row.bytes / most, row.unsafe) for row in shown]
    if rest := order[MOST_BARS:]:
        left = sum(row.bytes for row in rest)
        unsafe = any(row.unsafe for row in rest)
        value = f"{words.size(left)}{' UNSAFE in part' if unsafe else ''}"
        rows.append(plots.Bar(f"{len(rest)} other kinds together", value, left / most, unsafe))
    heavy = max(report.egress, key=lambda row: row.bytes).item if order else "nothing"
    return plots.bars(
        "egress", "Bytes that left, by route and message",
        f"{len(rows)} bars, the largest kind is {heavy}. All numbers stand in the table that "
        "follows.",
        rows,
    )  # fmt: skip


def _value(row: Egress) -> str:
    """Return route and size; UNSAFE stands here, as a long label may be cut."""
    route = _route(row.sender_role, row.recipient_role)
    return f"{route}, {words.size(row.bytes)}{' UNSAFE' if row.unsafe else ''}"


def _views(report: Report) -> tuple[Block, ...]:
    matrix = plots.matrix(report.egress, (party.role for party in report.parties))
    rows = tuple(
        (
            f"{id} {words.NAMES[id]}",
            *(_guarded(cell.value, cell is plots.Sight.CLEAR) for cell in cells),
        )
        for id, cells in matrix.rows
    )
    header = columns("Payload|words", *(words.role(role) for role in matrix.roles))
    note = (
        "Of several kinds of envelope with one payload, the one that says most. What it says, in "
        "words: below"
    )
    caption = "Who could read which kind of payload, by what the plan says of what did leave"
    views = tuple(
        Folded(
            words.role(view.viewer)
            + (
                f": {words.plural(view.received, 'envelope')} received"
                if view.received is not None
                else ""
            ),
            (Bullets(view.sees or ("nothing",)),),
        )
        for view in report.views
    )
    return (
        Heading("Who could see what?", "views"),
        Figure(caption, matrix.picture),
        Folded("The same as a table", (Table("Who could read what", header, rows, note),)),
        prose("Each role as an auditor finds it, from what did leave; then some of them together."),
        *views,
    )


def _findings(report: Report) -> tuple[Block, ...]:
    if not report.findings:
        return (prose("There are none."),)
    rows = tuple(
        (f"{found.id} {found.rule}", found.severity, found.payload, found.item)
        for found in report.findings
    )
    header = columns("Finding", "Severity|state", "Payload", "Item|code")
    below = tuple(map(_about, report.findings))
    return (Table("Findings", header, rows, "Gravest first", below=below),)


def _about(found: Finding) -> Lines:
    lines = [found.message, f"What to do: {named(found.remediation, found.limitation)}"]
    if waiver := found.waiver:
        lines.append(
            f"Accepted by {waiver.owner} until {waiver.until} (looked at on {waiver.judged}): "
            f"{waiver.reason}"
        )
    return Lines(lines)


def _changes(report: Report) -> tuple[Block, ...]:
    moved = report.changes
    if moved is None:
        command = Code("secure-fgl audit report RUN --baseline REPORT.json")
        return (prose("There is no baseline to compare with. ", command, " takes one."),)
    count = len(moved.changes)
    said = (
        f"{words.plural(count, 'change')}; {words.number(moved.same)} findings, attacks, epsilons "
        f"and routes are as they were. Baseline: run {moved.baseline_run}, report "
        f"{moved.baseline_digest}."
    )
    blocks: list[Block] = [prose(said), *(prose(note, style="muted") for note in moved.notes)]
    if count:
        rows = tuple(
            (row.what, row.move, row.kind, row.severity, "yes" if row.waived else "",
             row.old or None, row.new or None)
            for row in moved.changes[:MOST_ROUTES]
        )  # fmt: skip
        header = columns(
            "What", "Change|fixed", "Kind", "Severity|state", "Accepted", "Before|words",
            "Now|words",
        )  # fmt: skip
        note = first(moved.changes, MOST_ROUTES, "New and worse first")
        table = Table("Changes", header, rows, note, label="Changes since the baseline")
        blocks.append(folded(table, count, "change"))
    return tuple(blocks)


def _obligations(report: Report) -> tuple[Block, ...]:
    rows = tuple((row.regime, row.asks, row.evidence, row.people) for row in report.obligations)
    header = columns(
        "Regime|guard", "Asks for|words", "Evidence in this report|words", "People supply|words"
    )
    return (
        prose(
            "What regimes ask for, and which section of this report is evidence for it. Whether an "
            "obligation is met is for people to judge, with the law at hand; this is no legal "
            "advice."
        ),
        Table("Obligations and evidence", header, rows),
    )


def _method(report: Report) -> tuple[Block, ...]:
    facts = tuple((fact.name, fact.value) for fact in report.method.facts)
    blocks: list[Block] = [
        Bullets(report.method.how),
        Facts(facts, digest=True),
        Heading("What this report does not show", "limits"),
        Bullets(report.limits),
    ]
    charts = plots.charts(report.curves)
    if charts:
        blocks.append(Heading("How good was the model, round by round?", "curves"))
    for chart in charts:
        rows = tuple(
            (round, *(chart.value(curve, round) for curve in chart.curves))
            for round in chart.rounds
        )
        header = columns("After round|count", *(f"{curve.name}|figure" for curve in chart.curves))
        note = "From metrics.jsonl; of more than 120 rounds every so many-th, and the last"
        table = Table(
            f"{chart.measure} over the rounds", header, rows, note,
            label=f"Scores over the rounds, {chart.measure}",
        )  # fmt: skip
        caption = f"{chart.measure}, as totals over the clients gave it"
        blocks += [Figure(caption, chart.picture), folded(table, len(chart.rounds), "round")]
    if report.references:
        note = (
            "What models reach for which nothing is sent, and what only the holder of all data "
            "has; the simulator's word, in no ledger"
        )
        values = tuple((fact.name, fact.value) for fact in report.references)
        blocks.append(Table("References", columns("Reference", "Test score|figure"), values, note))
    if report.results:
        note = (
            "From result.json; the step result compares metrics and model_sha256 with the "
            "aggregator's ledger, no ledger has the others"
        )
        values = tuple((fact.name, fact.value) for fact in report.results)
        blocks.append(
            Table("What the run reported", columns("Name|code", "Value|digest"), values, note)
        )
    return tuple(blocks)


def _evidence(report: Report) -> tuple[Block, ...]:
    integrity, subject = report.integrity, report.subject
    steps = tuple((step.name, step.status, step.detail) for step in integrity.steps)
    heads = tuple((head.party, head.entries, head.root) for head in subject.heads)
    digests = (
        ("Plan", subject.plan_digest),
        ("Policy", subject.policy_digest),
        ("Roster", subject.roster_digest),
        ("result.json", integrity.result_digest),
        ("metrics.jsonl", integrity.metrics_digest),
    )
    return (
        prose(integrity.verdict[:1].upper() + integrity.verdict[1:], style="big"),
        prose(
            "Each party keeps a hash-chained ledger of everything it sent and received, and signs "
            "its end. The steps below compare these ledgers with the plan and with one another. To "
            "rule out that all of them were rewritten together, compare their heads with those "
            "that other organisations hold:"
        ),
        prose(Code("secure-fgl audit verify RUN --heads HEADS")),
        Table("Verification steps, in order",
              columns("Step|code", "Status|state", "What was found|long"), steps,
              label="Verification steps"),
        Facts(digests, digest=True),
        Folded(
            f"Heads of {words.plural(len(heads), 'ledger')}",
            (Table("Heads", columns("Party", "Entries|count", "Root|digest"), heads,
                   "Number of entries and Merkle root (RFC 9162, SHA-256)",
                   label="Heads of the ledgers"),),
        ),
    )  # fmt: skip
