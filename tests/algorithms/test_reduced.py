"""Options whose absence turns an algorithm into another: plan, run and report say so."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from secure_fgl.checking import subject
from secure_fgl.config import Config
from secure_fgl.errors import UsageError
from secure_fgl.federation import Federation
from tests.secure_fgl.cli_tools import invoke
from tests.secure_fgl.test_no_records import own

ROWS = Path(__file__).resolve().parents[2] / "examples" / "rows_policy.yaml"
GRAPHS = {"gcfl", "gcfl_plus"}


def warnings(name: str, rounds: int = 2, **options: Any) -> tuple[str, ...]:
    document = subject.document(name, "unsafe_plaintext", rounds=rounds)
    document["algorithm"]["options"] = {name: options}
    if options.get("nodes"):  # rows of neighbours leave under a policy that guards rows
        document["policy"] = str(ROWS)
        linked = {"name": "dirichlet_linked", "clients": 5}
        document["data"] = {**document["data"], "partition": linked}
    if name in GRAPHS:
        document["data"] = {
            "name": "mutag",
            "partition": {"name": "dirichlet_label", "clients": 5},
        }
    return Federation.from_config(Config.parse(document)).plan().warnings


def said(found: tuple[str, ...]) -> list[str]:
    return [text for text in found if " runs as " in text]


@pytest.mark.parametrize(
    ("name", "without", "whole", "word"),
    [
        ("fed_gcn", {}, {"hops": 1, "nodes": 200}, "FedAvg"),
        ("fed_gnn", {}, {"nodes": 200, "warm": 1}, "FedAvg"),
        ("fed_gnn", {"nodes": 200, "warm": 2}, {"nodes": 200, "warm": 1}, "FedAvg"),
        ("fed_prox", {"mu": 0.0}, {}, "FedAvg"),
        ("fed_per_gnn", {}, {"expand_after": 1}, "no graph is expanded"),
        ("apfl", {"alpha": 0.0}, {}, "the shared model alone"),
        ("apfl_gate", {"alpha": 1.0}, {}, "own model alone"),
    ],
)
def test_what_is_left_is_named(
    name: str, without: dict[str, Any], whole: dict[str, Any], word: str
) -> None:
    (found,) = said(warnings(name, **without))
    assert found.startswith(f"{name} runs as ") and word in found
    assert not said(warnings(name, **whole))  # control


def test_clusters_that_no_round_can_cut_are_one(data_root: Path) -> None:
    for name in sorted(GRAPHS):
        (found,) = said(warnings(name, first_split=2))
        assert "one cluster" in found and "first_split = 2" in found
        assert not said(warnings(name, first_split=1))


def test_run_and_report_say_it_too(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(Config.parse(subject.document("fed_gcn", "unsafe_plaintext")).text())
    shown = invoke("run", file, "--out", tmp_path / "run")
    assert shown.exit_code == 0, shown.output
    first = " ".join(shown.stderr.split()).partition("policy digest")[0]
    assert "fed_gcn runs as FedAvg: no rows are exchanged (hops is 0, nodes is not set)" in first
    notes = json.loads((tmp_path / "run" / "report" / "report.json").read_text())["notes"]
    assert any(note.startswith("fed_gcn runs as FedAvg") for note in notes)
    report = (tmp_path / "run" / "report" / "report.md").read_text("utf-8")
    assert "fed_gcn runs as FedAvg" in " ".join(report.replace("\\_", "_").split())


@pytest.mark.parametrize(
    ("name", "options"), [("fed_gcn", {"hops": 1, "nodes": 200}), ("fed_gnn", {"nodes": 200})]
)
@pytest.mark.parametrize("own_tables", [True, False])
def test_rows_of_neighbours_that_nobody_knows_are_refused_at_the_plan(
    name: str, options: dict[str, Any], own_tables: bool, tmp_path: Path
) -> None:
    document = subject.document(name, "unsafe_plaintext")
    document |= {"policy": str(ROWS), "algorithm": {"name": name, "options": {name: options}}}
    if own_tables:
        root = own(tmp_path / "data", "tvx")
        shared = {"name": "by_owner", "clients": 4}
        document["data"] = {"name": "own", "root": str(root), "partition": shared}
    file = tmp_path / "config.yaml"
    file.write_text(json.dumps(document))
    shown = invoke("plan", file)
    told = " ".join(shown.stderr.split())
    assert shown.exit_code == 2, shown.output
    assert f"{name} exchanges rows of neighbours at other clients, and here are none" in told
    why = "table of edges names its own nodes alone" if own_tables else "by_owner drops edges"
    assert why in told and f"leave out algorithm.options.{name}" in told
    assert ("dirichlet_linked" in told) is not own_tables
    with pytest.raises(UsageError, match="here are none"):
        Federation.from_config(Config.parse(document)).run(tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_lost_round_is_counted_and_numbered(tmp_path: Path) -> None:
    """`rounds lost   47` read as 47 rounds."""
    document = subject.document("fed_avg", "masks", rounds=3, drop="1@2,2@2")
    file = tmp_path / "config.yaml"
    file.write_text(Config.parse(document).text())
    shown = invoke("run", file, "--out", tmp_path / "run")
    assert shown.exit_code == 0, shown.output
    assert "1 round (number 2)" in " ".join(shown.stdout.split())
