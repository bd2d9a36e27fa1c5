"""The tables of docs/results/leakage-catalogue.md: for each run and attack the gravest row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

__all__ = ["GRAVITY", "by_label", "gravest", "tables", "worst_of"]

Settings = dict[str, Any]
GRAVITY = ("FAIL", "INVALID", "ERROR", "INCONCLUSIVE", "PASS", "NOT_TESTED", "NOT_APPLICABLE")
_ASKED = {
    "A01": "items of a user, from item rows",
    "A02": "items behind tags, by who can make tags",
    "A03": "items behind tags, by how many hold them",
    "A04": "classes of a client",
    "A05": "training records of a client, from messages and totals",
    "A06": "what mixtures are made of",
    "A07": "links",
    "A08": "attributes",
    "A09": "sums of too few",
    "A10": "noise that is not what the plan claims",
    "A11": "canaries",
    "A12": "training records, from the models that are handed out",
    "A13": "which clients hold like data, from cosines",
    "A14": "last layer of the generator",
    "A15": "rows of neighbours",
    "A16": "counts, scores, sizes",
    "A20": "crafted models",
}
"""What each attack asks, in a few words; the reports have the whole questions."""


def by_label(lines: Sequence[Settings]) -> dict[str, list[Settings]]:
    """Return the catalogue's lines by label, in the order in which labels came first."""
    found: dict[str, list[Settings]] = {}
    for line in lines:
        if line["table"] == "catalogue":
            found.setdefault(line["label"], []).append(line)
    return found


def worst_of(line: Settings, attack: str) -> Settings:
    """Return the gravest row of one attack in one run; of equal verdicts, the one that gained most.

    Raises:
        ValueError: the run has no row of it.
    """
    mine = [row for row in line["rows"] if row["id"] == attack]
    found: Settings = min(mine, key=_grave)
    return found


def gravest(lines: Sequence[Settings], attack: str) -> tuple[int, Settings] | None:
    """Return seed and gravest row of one attack over seeds; None where no run has it."""
    there = [
        (line["seed"], worst_of(line, attack))
        for line in lines
        if any(row["id"] == attack for row in line.get("rows", ()))
    ]
    return min(there, key=lambda one: _grave(one[1])) if there else None


def tables(lines: Sequence[Settings]) -> Iterator[str]:
    """Yield the lines of all tables as Markdown, an attack each."""
    found = by_label(lines)
    ids = {row["id"] for mine in found.values() for line in mine for row in line.get("rows", ())}
    for attack in sorted(ids):
        rows = [row for label, mine in found.items() for row in _row(label, mine, attack)]
        if not rows:
            continue
        yield f"\n## {attack}: {_ASKED.get(attack, '')}\n"
        yield "| run | verdict, seeds | of the gravest: seed, what | prior | raw | null | left |"
        yield f"|{'---|' * 7}"
        yield from rows
    yield from _refused(found)
    yield from _reasons(found)


def _row(label: str, lines: Sequence[Settings], attack: str) -> Iterator[str]:
    worst = gravest(lines, attack)
    if worst is None or worst[1]["verdict"] == "NOT_APPLICABLE":
        return
    seed, row = worst
    verdicts = [worst_of(line, attack)["verdict"] for line in lines if "rows" in line]
    counted = sorted(set(verdicts), key=GRAVITY.index)
    told = ", ".join(f"{_words(one)} {verdicts.count(one)}" for one in counted)
    values = " | ".join(_value(row, name) for name in ("prior", "raw", "null", "protected"))
    yield f"| {label} | {told} | {seed}: {row.get('what', '') or row['reason']} | {values} |"


def _refused(found: Mapping[str, Sequence[Settings]]) -> Iterator[str]:
    said = [(label, mine[0]["refused"]) for label, mine in found.items() if "refused" in mine[0]]
    if said:
        yield "\n## Refused before anything ran\n\n| run | the program's answer |\n|---|---|"
        yield from (f"| {label} | {what} |" for label, what in said)


def _reasons(found: Mapping[str, Sequence[Settings]]) -> Iterator[str]:
    why: dict[tuple[str, str], list[str]] = {}
    for label, mine in found.items():
        for left in (left for line in mine for left in line.get("not_tested", ())):
            labels = why.setdefault((left["payload"], left["why"]), [])
            labels += [label] if label not in labels else []
    yield "\n## Payloads without an attack, and why\n\n| payload | why | runs |\n|---|---|---|"
    for (payload, said), labels in sorted(why.items()):
        where = "all" if len(labels) > len(found) * 3 // 4 else ", ".join(labels)
        yield f"| {payload} | {said} | {where if len(labels) < 12 else f'{len(labels)} runs'} |"


def _grave(row: Settings) -> tuple[int, float]:
    gap = row.get("gap")
    return GRAVITY.index(row["verdict"]), -float(gap["value"]) if gap else 0.0


def _words(verdict: str) -> str:
    said = verdict.replace("_", " ")
    return f"**{said}**" if verdict in ("FAIL", "INVALID", "ERROR") else said.lower()


def _value(row: Settings, name: str) -> str:
    seen = row.get(name)
    return f"{seen['value']} ({seen['low']} to {seen['high']})" if seen else ""
