"""The report's tables for spreadsheets: the inventory, findings, attacks, and every epsilon."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from audits.accounting.empirical import Empirical
from audits.attacks._shared.models import AttackRow
from audits.report import words
from audits.report.models import Egress, Finding, Report
from audits.report.table import Column, Table

FILES = ("inventory.csv", "findings.csv", "attacks.csv", "budget.csv")
_INVENTORY = (
    "sender",
    "sender_role",
    "recipient",
    "recipient_role",
    "item",
    "payloads",
    "messages",
    "disclosure",
    "protection",
    "unsafe",
    "count",
    "bytes",
    "clipped",
    "first_round",
    "last_round",
    "fields",
    "learns",
)
_FINDINGS = (
    "id",
    "severity",
    "rule",
    "payload",
    "item",
    "recipient_role",
    "message",
    "remediation",
    "fingerprint",
    "accepted_by",
    "accepted_until",
    "reason",
)
_VALUES = ("prior", "null", "protected", "raw", "raw_gap", "gap")
_PLAIN = ("id", "name", "payload", "what", "profile", "verdict", "metric", "chance")
_LAST = (
    "margin",
    "gate",
    "n_clients",
    "replicas",
    "n_pos",
    "n_neg",
    "needed_n",
    "detectable",
    "seed",
    "reason",
)
_ATTACKS = (
    *_PLAIN,
    *(f"{name}{end}" for name in _VALUES for end in ("", "_low", "_high")),
    *_LAST,
)
_BUDGET = (
    "what",
    "epsilon",
    "by_attack",
    "at_least",
    "ceiling",
    "why",
    "delta",
    "unit",
    "adjacency",
    "trust_model",
    "scope",
    "assumes",
)
_MEASURED = ("metric", "margin", "gate")  # empty where nothing was measured: no rule was applied


def spreadsheets(report: Report) -> dict[str, Table]:
    """Return the tables of :data:`FILES`; their cells are raw values."""
    details = {(e.item, e.sender_role, e.recipient_role): e for e in report.egress}
    rows = []
    for row in report.inventory:
        about = details[row.item, row.sender_role, row.recipient_role]
        facts = row.model_dump(mode="json")
        facts["protection"] = " > ".join(row.protection)
        facts["payloads"] = " ".join(about.payloads)
        facts["fields"] = _fields(about)
        facts["learns"] = "; ".join(f"{words.role(k)}: {v}" for k, v in about.learns.items())
        rows.append([facts[name] for name in _INVENTORY])
    return {
        FILES[0]: _table(_INVENTORY, rows),
        FILES[1]: _table(_FINDINGS, map(_finding, report.findings)),
        FILES[2]: attacks(report.attacks),
        FILES[3]: _table(_BUDGET, _budget(report)),
    }


def attacks(rows: Sequence[AttackRow]) -> Table:
    """Return the table of attacks with every figure."""
    return _table(_ATTACKS, map(_attack, rows))


def _budget(report: Report) -> Iterator[list[object]]:
    """Yield every epsilon with its labels and what attacks say of it; of each unit its run first.

    Without noise there is one row a unit: epsilon is infinite, and nothing could be refuted.
    """
    for said in report.accounting:
        labels = (said.delta, said.unit, "", "", said.scope)
        yield ["the run, as stated", said.recorded, *_by_attack(said.empirical), *labels, ""]
    for part in report.spending:
        for row in part.rows:
            one = row.epsilon
            labels = (one.delta, one.unit, one.adjacency, one.model, one.scope)
            assumed = "; ".join(one.assumptions)
            yield [row.what, one.value, *_by_attack(row.empirical), *labels, assumed]


def _by_attack(found: Empirical) -> tuple[str, ...]:
    return found.word, found.lower_bound, found.ceiling, found.why


def _finding(finding: Finding) -> list[object]:
    waiver = finding.waiver
    accepted = (waiver.owner, waiver.until, waiver.reason) if waiver else ("", "", "")
    return [*(getattr(finding, name) for name in _FINDINGS[:-3]), *accepted]


def _attack(row: AttackRow) -> list[object]:
    bare = _MEASURED if row.protected is None else ()
    cells: list[object] = ["" if name in bare else getattr(row, name) for name in _PLAIN]
    for name in _VALUES:
        value = getattr(row, name)
        cells += (value.value, value.low, value.high) if value else ("", "", "")
    last = ["" if name in bare else getattr(row, name) for name in _LAST]
    return cells + ["" if cell is None else cell for cell in last]


def _fields(about: Egress) -> str:
    return "; ".join(
        f"{message.name}.{field.name} {field.dtype}{list(field.shape)} {field.unit}: "
        f"{field.meaning}"
        for message in about.messages
        for field in message.fields
    )


def _table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> Table:
    return Table("", tuple(Column(name, "raw") for name in header), tuple(map(tuple, rows)))
