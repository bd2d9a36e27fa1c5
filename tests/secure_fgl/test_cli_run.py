"""``run`` on a tiny federation: what is printed where, and with which exit code."""

from __future__ import annotations

import errno
import json
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from protocols.errors import (
    CohortTooSmall,
    EvidenceError,
    LedgerError,
    LocalProtocolError,
    NotInPlan,
    Refused,
    Replay,
    UnfitMessage,
)
from secure_fgl.cli._shared.verb import exit_code
from secure_fgl.errors import PlanDrift, UsageError
from secure_fgl.federation import Federation
from secure_fgl.reasons import explain
from secure_fgl.store.finished_run import Run
from secure_fgl.store.run_folder import FileStore
from tests.secure_fgl.cli_tools import config, invoke, start


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Result]:
    """One finished run: its folder and what the command printed for people."""
    folder = tmp_path_factory.mktemp("cli")
    run = folder / "run"
    shown = invoke("run", config(folder), "--out", run)
    assert shown.exit_code == 0, shown.stderr
    return run, shown


def test_people_get_the_plan_on_stderr_and_the_outcome_on_stdout(
    trained: tuple[Path, Result],
) -> None:
    run, shown = trained
    first, second = shown.stderr.splitlines()[:2]
    assert (first, second) == ("SIMULATION: roles are not separated", "SYNTHETIC DATA")
    assert "train.up.SUM" in shown.stderr
    result = json.loads((run / "result.json").read_text())
    for fact in (
        f"{result['metrics']['test_accuracy']:.4f} test",
        "SYNTHETIC DATA",
        result["model_sha256"],
        result["verdict"],
        f"{run}/report/report.html\n",
    ):
        assert fact in shown.stdout
    assert (run / "report" / "report.html").is_file()


def test_references_stand_beside_the_accuracy(tmp_path: Path) -> None:
    tiny = config(tmp_path)
    wanted = "evaluation.references=[local, centralised]"
    shown = invoke("run", tiny, "--out", tmp_path / "run", "--set", wanted)
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    lines = {line.split("  ")[0].strip(): line for line in shown.stdout.splitlines()}
    assert f"{result['references']['local']:.4f}" in lines["local only"]
    assert f"{result['references']['centralised']:.4f}" in lines["centralised"]


def test_a_process_prints_one_json_object_on_stdout_and_only_that(tmp_path: Path) -> None:
    tiny = config(tmp_path)
    process = start(["run", tiny, "--out", "run", "--format", "json"], tmp_path)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert json.loads(out) == json.loads((tmp_path / "run" / "result.json").read_text())
    assert "SIMULATION" in err


def test_a_chatty_library_cannot_spoil_the_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Federation.run

    def chatty(federation: Federation, *given: object, **named: object) -> object:
        print("a library says hello")
        return real(federation, *given, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(Federation, "run", chatty)
    shown = invoke("run", config(tmp_path), "--out", tmp_path / "run", "--format", "json")
    assert json.loads(shown.stdout)["clients"] == 5
    assert "a library says hello" in shown.stderr


def test_the_default_folder_is_named_after_algorithm_and_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shown = invoke("run", config(tmp_path), "--format", "json")
    [made] = (tmp_path / "runs").iterdir()
    assert made.name.startswith("fed_avg-synthetic_banks-")
    assert json.loads(shown.stdout)["run_dir"] == str(Path("runs") / made.name)


def test_an_approved_plan_binds_the_run(tmp_path: Path) -> None:
    tiny, plan = config(tmp_path), tmp_path / "plan.json"
    invoke("plan", tiny, "--out", plan)
    more = ("--set", "algorithm.rounds=3")
    shown = invoke("run", tiny, "--plan", plan, "--out", tmp_path / "more", *more)
    assert shown.exit_code == 6
    assert "rounds: 2 became 3" in shown.stderr
    assert not (tmp_path / "more").exists()
    fewer = ("--set", "algorithm.rounds=1")
    shown = invoke("run", tiny, "--plan", plan, "--out", tmp_path / "fewer", *fewer)
    assert shown.exit_code == 0
    assert (tmp_path / "fewer" / "plan.json").read_bytes() == plan.read_bytes()


def test_an_existing_run_is_never_overwritten(trained: tuple[Path, Result], tmp_path: Path) -> None:
    before = {f: f.read_bytes() for f in trained[0].rglob("*") if f.is_file()}
    shown = invoke("run", config(tmp_path), "--out", trained[0])
    assert shown.exit_code == 2
    assert "exists already" in shown.stderr and "--out" in shown.stderr
    assert before == {f: f.read_bytes() for f in trained[0].rglob("*") if f.is_file()}


def test_a_taken_folder_is_refused_before_the_plan_is_shown(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "mine.txt").touch()
    shown = invoke("run", config(tmp_path), "--out", tmp_path / "run")
    assert shown.exit_code == 2
    assert "not empty" in shown.stderr and "train.up.SUM" not in shown.stderr


def test_a_file_in_place_of_the_folder_is_called_a_file(tmp_path: Path) -> None:
    (tmp_path / "run").touch()
    shown = invoke("run", config(tmp_path), "--out", tmp_path / "run")
    assert shown.exit_code == 2
    assert "is a file" in shown.stderr and "--out" in shown.stderr


def test_a_missing_data_folder_says_what_to_do(tmp_path: Path) -> None:
    tiny = config(tmp_path)
    changes = ["data.name=cora", "data.options={}", "data.partition.name=louvain_balanced"]
    words = [w for c in [*changes, f"data.root={tmp_path}/none"] for w in ("--set", c)]
    shown = invoke("run", tiny, "--out", tmp_path / "run", *words)
    assert shown.exit_code == 2
    assert "does not exist" in shown.stderr
    assert "data.root" in shown.stderr and "SECURE_FGL_DATA" in shown.stderr
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("settings", ["data.partition.clients=3", "algorithm.roundz=1"])
def test_a_refused_configuration_leaves_no_folder(tmp_path: Path, settings: str) -> None:
    shown = invoke("run", config(tmp_path), "--out", tmp_path / "run", "--set", settings)
    assert shown.exit_code == 2
    assert not (tmp_path / "run").exists()


def test_a_full_disk_is_no_usage_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = 0
    append = FileStore.append

    def full(store: FileStore, lines: bytes) -> None:
        nonlocal written
        written += 1
        if written > 30:
            raise OSError(errno.ENOSPC, "No space left on device")
        append(store, lines)

    monkeypatch.setattr(FileStore, "append", full)
    shown = invoke("run", config(tmp_path), "--out", tmp_path / "run", "--format", "json")
    assert shown.exit_code == 1
    assert "No space left" in shown.stderr and "What to do" in shown.stderr
    assert shown.stdout == ""


@pytest.mark.parametrize("verbose", [False, True])
def test_an_unexpected_error_quotes_nothing_unless_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verbose: bool
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ValueError("the value is 271828")

    monkeypatch.setattr(Federation, "run", fail)
    switch = ["--verbose"] if verbose else []
    shown = invoke("run", config(tmp_path), "--out", tmp_path / "run", "--format", "json", *switch)
    assert shown.exit_code == 1
    assert "Internal error: ValueError in " in shown.stderr and "--verbose" in shown.stderr
    assert ("Traceback" in shown.stderr, "271828" in shown.stderr) == (verbose, verbose)
    assert shown.stdout == ""


def test_ctrl_c_closes_the_ledgers_and_says_where_they_are(tmp_path: Path) -> None:
    tiny, run = config(tmp_path), tmp_path / "run"
    process = start(
        ["run", tiny, "--out", run, "--set", "algorithm.rounds=100000", "--format", "json"],
        tmp_path,
    )
    deadline = time.monotonic() + 120
    while not (run / "metrics.jsonl").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert out == ""
    assert "Traceback" not in err
    [line] = [line for line in err.splitlines() if line.startswith("Interrupted.")]
    assert "closed" in line and str(run) in line
    ledgers = sorted((run / "ledger").iterdir())
    assert len(ledgers) == 7
    for ledger in ledgers:
        assert json.loads(ledger.read_text().splitlines()[-1])["kind"] == "close"
    told = json.loads(invoke("audit", "verify", run, "--format", "json").stdout)
    steps = {s["name"]: s["status"] for s in told["steps"]}
    assert (steps["chain"], steps["tree"]) == ("OK", "OK")


def test_an_interrupt_before_the_first_envelope_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Federation, "run", stop)
    shown = invoke("run", config(tmp_path), "--out", tmp_path / "run", "--format", "json")
    assert shown.exit_code == 130
    assert "Interrupted. Nothing was sent." in shown.stderr


def _refused(reason: Exception | None) -> Refused:
    refused = Refused("client-1", "policy")
    refused.__cause__ = reason
    return refused


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UsageError("x"), 2),
        (CohortTooSmall("x"), 2),
        (Replay("x"), 2),
        (_refused(None), 2),
        (_refused(UnfitMessage("x")), 2),
        (_refused(NotInPlan("x")), 6),
        (_refused(LedgerError("x")), 1),
        (NotInPlan("x"), 6),
        (PlanDrift(["x"]), 6),
        (EvidenceError("chain", "x"), 5),
        (LedgerError("x"), 1),
        (LocalProtocolError("x"), 1),
        (ValueError("x"), 1),
    ],
)
def test_exit_codes(error: Exception, code: int) -> None:
    assert exit_code(error) == code


def test_training_that_diverged_says_so_in_our_words() -> None:
    ours: dict[str, Any] = {"__name__": "algorithms.tasks.node"}
    exec("def fit(): raise FloatingPointError('local training diverged; lower model.lr')", ours)
    theirs: dict[str, Any] = {"__name__": "numpy.linalg"}
    exec("def fit(): raise FloatingPointError('overflow at 271828')", theirs)
    told = []
    for module in (ours, theirs):
        with pytest.raises(FloatingPointError) as raised:
            module["fit"]()
        told.append((exit_code(raised.value), "\n".join(explain(raised.value))))
    assert told[0] == (2, "Error: local training diverged; lower model.lr.")
    assert told[1][0] == 1 and "271828" not in told[1][1]


def test_a_refusal_tells_the_reason_that_the_peer_recorded() -> None:
    told = "\n".join(explain(_refused(UnfitMessage("delta holds NaN", fix="lower the rate"))))
    assert "client-1 recorded: delta holds NaN" in told and "lower the rate" in told


def test_a_log_for_machines_is_json_and_holds_what_metrics_hold(tmp_path: Path) -> None:
    done = invoke(
        "run", config(tmp_path), "--out", tmp_path / "run", "--log", "json", "--format", "json"
    )
    assert done.exit_code == 0
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert [line["event"] for line in lines] == ["plan", "round", "round", "end"]
    rows = [json.loads(row) for row in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    told = [line["metrics"] for line in lines if line["event"] == "round"]
    assert told == rows[: len(told)]  # with the round after which the model is that was scored
    assert (
        lines[0]["synthetic"] is True
        and lines[-1]["model_sha256"] == json.loads(done.stdout)["model_sha256"]
    )
    assert "client-1" not in done.stderr


@pytest.mark.parametrize(
    "setting",
    [
        "algorithm.fraction=0.5",
        "algorithm.clients_per_round=3",
        "clients_per_round=3",
        "algorithm.options.fed_avg.fraction=0.5",
    ],
)
def test_a_choice_of_clients_in_each_round_says_why_there_is_none(
    tmp_path: Path, setting: str
) -> None:
    told = " ".join(invoke("plan", config(tmp_path), "--set", setting).stderr.split())
    assert "totals that can be subtracted from each other (ADR 0030)" in told
    assert "all are asked; fed_per_gnn (drawn), graph_fl and graph_fl_domain (asked)" in told
    other = invoke("plan", config(tmp_path), "--set", "algorithm.rouns=3").stderr
    assert "subtracted" not in other and "rounds" in other


def test_a_report_takes_one_name_and_names_a_format_that_there_is_not(tmp_path: Path) -> None:
    assert invoke("run", config(tmp_path), "--out", tmp_path / "run").exit_code == 0
    done = Run(tmp_path / "run")
    assert {file.suffix for file in done.report("md", out=tmp_path / "one")} == {".md"}
    for wrong in (["docx"], "docx"):
        with pytest.raises(UsageError, match="no report format 'docx'"):
            done.report(wrong, out=tmp_path / "two")
