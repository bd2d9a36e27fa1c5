"""``audit verify`` and ``audit report``: every spoilt file is named, every exit code is reached."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import Result

from protocols.errors import EvidenceError
from secure_fgl.store.finished_run import Run
from tests.audits.forging import rewrite
from tests.audits.toy_run import RESULT, run_toy, save, stated, text
from tests.secure_fgl.cli_tools import config, invoke


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Result]:
    """One finished run: its folder and what the command printed for people."""
    folder = tmp_path_factory.mktemp("cli")
    run = folder / "run"
    shown = invoke("run", config(folder), "--out", run)
    assert shown.exit_code == 0, shown.stderr
    return run, shown


@pytest.fixture
def copied(trained: tuple[Path, Result], tmp_path: Path) -> Path:
    """A copy of the finished run that a test may spoil."""
    return Path(shutil.copytree(trained[0], tmp_path / "copy"))


def verified(run: Path, *options: object) -> tuple[int, dict[str, Any]]:
    shown = invoke("audit", "verify", run, "--format", "json", *options)
    return shown.exit_code, json.loads(shown.stdout)


def test_verify_without_heads_is_self_consistent_only(trained: tuple[Path, Result]) -> None:
    code, told = verified(trained[0])
    assert (code, told["verdict"], told["failed"]) == (0, "self-consistent only", None)
    assert "NOT CHECKED" in invoke("audit", "verify", trained[0]).stdout


def test_verify_with_heads_from_a_folder_or_a_file(
    trained: tuple[Path, Result], tmp_path: Path
) -> None:
    held = Path(shutil.copytree(trained[0] / "heads", tmp_path / "held"))
    file = tmp_path / "held.json"
    file.write_text(json.dumps({f.stem: f.read_text() for f in held.iterdir()}))
    for heads in (held, file):
        code, told = verified(trained[0], "--heads", heads)
        assert (code, told["verdict"]) == (0, "verified against heads held by others")


def test_the_run_s_own_heads_witness_nothing(trained: tuple[Path, Result], tmp_path: Path) -> None:
    for heads in (trained[0] / "heads", tmp_path, tmp_path / "none.json"):
        assert invoke("audit", "verify", trained[0], "--heads", heads).exit_code == 2


def test_verify_holds_the_run_to_an_expected_plan(trained: tuple[Path, Result]) -> None:
    first = json.loads((trained[0] / "ledger" / "aggregator.jsonl").read_text().splitlines()[0])
    assert verified(trained[0], "--expect-plan", first["plan"])[0] == 0
    code, told = verified(trained[0], "--expect-plan", "0" * 64)
    assert (code, told["failed"]) == (5, "plan")
    assert "the plan of this run is another one" in told["integrity"]
    assert "broken" not in told["integrity"]
    assert invoke("audit", "verify", trained[0], "--expect-plan", "0" * 63).exit_code == 2


def _drop(run: Path) -> None:
    ledger = run / "ledger" / "client-1.jsonl"
    lines = ledger.read_bytes().splitlines(keepends=True)
    ledger.write_bytes(b"".join(lines[:4] + lines[5:]))


def _truncate(run: Path) -> None:
    ledger = run / "ledger" / "client-1.jsonl"
    ledger.write_bytes(b"".join(ledger.read_bytes().splitlines(keepends=True)[:-1]))


def _edit_report(run: Path) -> None:
    report = run / "report" / "report.html"
    report.write_bytes(report.read_bytes() + b"<!-- fine -->")


def _edit_metrics(run: Path) -> None:
    _replace(run / "metrics.jsonl", b'"round": 1', b'"round": 9')


def _edit_result(run: Path) -> None:
    _replace(run / "result.json", b'"best_round": ', b'"best_round": 1')


def _edit_references(run: Path) -> None:
    """What the federation is held against, where no report is left that shows it."""
    shutil.rmtree(run / "report")
    _replace(run / "result.json", b'"references": {', b'"references": {"local": 0.125')


def _repeat_a_key(run: Path) -> None:
    _replace(run / "result.json", b'"metrics": {', b'"metrics": {}, "metrics": {')


def _add_garbage(run: Path) -> None:
    path = run / "metrics.jsonl"
    path.write_bytes(path.read_bytes() + b"nonsense\n")


def _edit_model(run: Path) -> None:
    path = run / "checkpoints" / "final.npz"
    with np.load(path) as file:
        arrays = {name: file[name] * 2 for name in file.files}
    np.savez(path, allow_pickle=False, **arrays)


def _spoil_model(run: Path) -> None:
    path = run / "checkpoints" / "best.npz"
    path.write_bytes(path.read_bytes()[:-30])


def _relabel(run: Path) -> None:
    _replace(run / "roster.json", b'"memory"', b'"broker"')


def _replace(path: Path, old: bytes, new: bytes) -> None:
    before = path.read_bytes()
    path.write_bytes(before.replace(old, new, 1))
    assert path.read_bytes() != before


@pytest.mark.parametrize(
    ("spoil", "step"),
    [
        (_drop, "chain"),
        (_truncate, "tree"),
        (_edit_report, "report"),
        (_edit_metrics, "result"),
        (_edit_result, "result"),
        (_edit_references, "result"),
        (_edit_model, "result"),
        (_spoil_model, "result"),
        (_repeat_a_key, "files"),
        (_add_garbage, "files"),
        (_relabel, "roster"),
    ],
)
def test_verify_names_the_step_that_fails(
    copied: Path, spoil: Callable[[Path], None], step: str
) -> None:
    spoil(copied)
    shown = invoke("audit", "verify", copied)
    assert shown.exit_code == 5
    assert f"FAILED at {step}" in shown.stderr
    assert f"Verdict: FAILED at {step}" in shown.stdout
    code, told = verified(copied)
    assert (code, told["failed"]) == (5, step)


def test_a_finished_run_has_its_result_in_the_ledger(trained: tuple[Path, Result]) -> None:
    steps = {s["name"]: s["status"] for s in verified(trained[0])[1]["steps"]}
    assert steps["result"] == "OK"


@pytest.mark.parametrize("edit", [b"{", b'{"metrics": 1, "metrics": 2}', b"[]"])
def test_a_malformed_result_is_no_result(copied: Path, edit: bytes) -> None:
    (copied / "result.json").write_bytes(edit)
    with pytest.raises(EvidenceError):
        Run(copied).result  # noqa: B018 - reading is what is tested


@pytest.mark.parametrize(
    "arrays",
    [
        {"a": np.array([object()], dtype=object)},
        {"a|<f4|(2,)|": np.zeros(2)},
        {"a": np.zeros(2)},
    ],
)
def test_hostile_weights_are_no_crash_and_do_not_pass(
    copied: Path, arrays: dict[str, np.ndarray[Any, Any]]
) -> None:
    np.savez(copied / "checkpoints" / "final.npz", **arrays)  # type: ignore[arg-type]
    assert verified(copied)[1]["failed"] == "result"


def _drifted(folder: Path, *, also: str | None = None) -> Path:
    """A run in which all ledgers agree that one envelope was larger than planned."""
    toy = run_toy(rounds=1)
    left = {**stated(model_sha256=None), "model": "", "best": ""}

    def change(party: str, entry: dict[str, Any]) -> list[dict[str, Any]]:
        large = {"bytes": 10**9} if entry.get("sender") == "client-1" else {}
        ends = {"result": left} if "result" in entry else {}
        broken = {"members": 3} if entry["kind"] == also else {}
        return [{**entry, **large, **ends, **broken}]

    result = text({**RESULT, "model_sha256": None})
    view = replace(toy.view(reports=False), weights={}, result_text=result)
    return save(rewrite(toy, view, change), folder)


@pytest.mark.parametrize("fail_on", ["high", "never"])
def test_what_was_not_planned_exits_6_whatever_is_asked(tmp_path: Path, fail_on: str) -> None:
    drifted = _drifted(tmp_path / "drifted")
    words = ("--out", tmp_path / "r", "--fail-on", fail_on)
    shown = invoke("audit", "report", drifted, *words)
    assert shown.exit_code == 6, shown.stderr
    assert "NOT PLANNED: release" in shown.stderr
    worse = _drifted(tmp_path / "worse", also="open")
    assert invoke("audit", "report", worse, *words).exit_code == 5
    assert verified(drifted)[1]["failed"] == "plan_vs_ledger"


def test_a_report_that_cannot_be_written_says_what_to_do(
    trained: tuple[Path, Result], tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    for out in (tmp_path / "file", tmp_path / "file" / "inside"):
        shown = invoke("audit", "report", trained[0], "--out", out)
        assert shown.exit_code == 2
        assert "cannot be written" in shown.stderr and "What to do: " in shown.stderr


def test_report_prints_its_paths_and_fails_on_what_is_asked(
    trained: tuple[Path, Result], tmp_path: Path
) -> None:
    out = tmp_path / "evidence"
    clear = tmp_path / "clear"
    settings = ("--set", "policy=unsafe_plaintext")
    assert invoke("run", config(tmp_path), "--out", clear, *settings).exit_code == 0
    words = ("audit", "report", clear, "--out", out, "--format", "html,csv", "--fail-on", "never")
    shown = invoke(*words)
    assert shown.exit_code == 0
    paths = [Path(line) for line in shown.stdout.splitlines()]
    tables = {"inventory.csv", "findings.csv", "attacks.csv", "budget.csv"}
    assert {p.name for p in paths} == {"report.html", *tables}
    assert all(p.is_file() and p.parent == out for p in paths)
    strict = invoke(*words, "--fail-on", "medium")
    assert strict.exit_code == 3
    assert "UNSAFE" in strict.stderr
    assert invoke("audit", "report", trained[0], "--fail-on", "medium").exit_code == 0


def test_a_report_on_broken_evidence_exits_5_before_3(copied: Path, tmp_path: Path) -> None:
    _drop(copied)
    for fail_on in ("high", "never"):
        shown = invoke("audit", "report", copied, "--out", tmp_path / "r", "--fail-on", fail_on)
        assert shown.exit_code == 5
        assert "FAILED at chain" in shown.stderr


@pytest.mark.parametrize(("spoil", "step"), [(_drop, "chain"), (_truncate, "tree")])
def test_a_report_on_a_record_that_broke_since_names_what_broke(
    copied: Path, spoil: Callable[[Path], None], step: str
) -> None:
    spoil(copied)
    before = {f.name: f.read_bytes() for f in (copied / "report").iterdir()}
    for verb in ("report", "attack"):
        shown = invoke("audit", verb, copied)
        assert shown.exit_code == 5
        assert f"FAILED at {step}" in shown.stderr and "FAILED at report" not in shown.stderr
        kept = "left as it is" if verb == "report" else "nothing of the run was used further"
        assert "ask each party" in shown.stderr and kept in shown.stderr
    assert {f.name: f.read_bytes() for f in (copied / "report").iterdir()} == before


def test_a_folder_that_is_no_run_is_a_usage_error(tmp_path: Path) -> None:
    for verb in ("verify", "report"):
        shown = invoke("audit", verb, tmp_path)
        assert shown.exit_code == 2
        assert "a run folder" in shown.stderr
