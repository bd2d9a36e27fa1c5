"""The catalogue of leaks: page and heat map are what the raw rows say, and no cell hides."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks._leakage_cells import REHEARSED, ROWS, cells, document
from benchmarks._leakage_table import gravest, tables, worst_of
from benchmarks.leakage import BELOW, _lines, below, drawn

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "docs" / "results"
HOLD_FOR_GOOD = ("P03", "P04", "P18", "P20")
LEFT = {("fed_ego", "P15")}  # weights that a witness sees: all the same, as the page says


@pytest.fixture(scope="module")
def lines() -> list[dict[str, Any]]:
    return _lines(RESULTS / "runs" / "leakage.jsonl")


def test_the_page_and_the_picture_are_made_of_the_raw_rows(lines: list[dict[str, Any]]) -> None:
    page = (RESULTS / "leakage-catalogue.md").read_text("utf-8")
    assert page.split(f"{BELOW}\n")[1] == below(lines)
    assert (RESULTS / "leakage.svg").read_text("utf-8") == drawn(lines)


def test_no_attack_fell_over(lines: list[dict[str, Any]]) -> None:
    rows = [
        (line["label"], line["seed"], row["id"], row["reason"])
        for line in lines
        if line["table"] == "catalogue"
        for row in line.get("rows", ())
        if row["verdict"] == "ERROR"
    ]
    assert rows == []


def test_each_payload_of_a_captured_run_has_an_attack_or_a_reason_for_good(
    lines: list[dict[str, Any]],
) -> None:
    captured = [
        line
        for line in lines
        if line["table"] == "catalogue" and not line["label"].endswith("/ strict")
    ]
    left = {
        (line["label"].split(" / ")[0], one["payload"])
        for line in captured
        for one in line.get("not_tested", ())
        if one["payload"] not in HOLD_FOR_GOOD
    }
    assert left == LEFT
    assert any(line.get("not_tested") for line in captured)


def test_what_the_page_says_stands_out_does(lines: list[dict[str, Any]]) -> None:
    """Its sentences, each against the rows."""
    found: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for line in (line for line in lines if line["table"] == "catalogue"):
        algorithm, policy = line["label"].split(" / ")
        for row in line.get("rows", ()):
            found.setdefault((algorithm, policy, row["id"]), []).append(row)

    def failing(policy: str, attack: str) -> set[str]:
        there = (
            (a, r) for (a, p, i), rows in found.items() for r in rows if (p, i) == (policy, attack)
        )
        return {algorithm for algorithm, row in there if row["verdict"] == "FAIL"}

    for policy in ("pilot", ROWS, "strict", REHEARSED):
        assert failing(policy, "A09") == failing(policy, "A16") == set()
    totals = {"apfl", "fed_gate", "apfl_gate", "graph_fl"}
    assert failing("pilot", "A05") == totals | {"fed_pub", "fed_ego"}
    assert failing(ROWS, "A05") == {"fed_gcn"} and "fed_gcn" in failing(ROWS, "A15")
    assert failing("pilot", "A13") >= {"fed_pub"}
    assert "fed_avg" not in failing("pilot", "A04") | failing("calibrated", "A05")
    own = [row for (a, _, i), rows in found.items() if (a, i) == ("fed_ego", "A05") for row in rows]
    nulls = [float(row["null"]["value"]) for row in own if "null" in row]
    assert 0.73 < min(nulls) < max(nulls) < 0.79  # of a guess 0.5: the page warns of it
    assert sum(row["verdict"] == "INVALID" for row in own) == 2
    rows = [
        float(r["protected"]["value"]) for r in own if r.get("payload") == "P21" and "null" in r
    ]
    assert 0.82 < min(rows) < max(rows) < 0.91
    per = [line for line in lines if line.get("label") == "fed_per_gnn / pilot"]
    assert per and all("128 uploads" in line["refused"] for line in per)


def test_of_seeds_and_questions_the_gravest_is_shown() -> None:
    def row(verdict: str, gap: str) -> dict[str, Any]:
        value = {"value": gap, "low": gap, "high": gap}
        return {"id": "A04", "verdict": verdict, "gap": value, "reason": gap, "what": gap}

    one = {"table": "catalogue", "label": "x / y", "seed": 1, "rows": [row("PASS", "0.9")]}
    two = {**one, "seed": 2, "rows": [row("PASS", "0"), row("FAIL", "0.1"), row("FAIL", "0.3")]}
    assert worst_of(two, "A04")["what"] == "0.3"
    found = gravest([one, two], "A04")
    assert found is not None
    assert (found[0], found[1]["what"]) == (2, "0.3")
    assert any("| **FAIL** 1, pass 1 | 2: 0.3 |" in line for line in tables([one, two]))
    assert not any("A04" in line for line in tables([{**one, "rows": []}]))


def test_every_cell_is_a_run_that_the_program_can_read() -> None:
    from secure_fgl.config import Config

    for cell in cells():
        chosen = document(cell, "data", 3)
        parsed = Config.parse(json.loads(json.dumps(chosen)))
        assert parsed.algorithm.name == cell.algorithm
        assert (chosen["policy"] == "strict") == (cell.policy in ("strict", REHEARSED))
