"""``audit account``: the sentence, the labels, tables that fit 80 columns, and every exit code."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from audits.accounting import account as accounts
from audits.accounting import rows
from audits.accounting.models import Account
from audits.evidence.steps import Status, Step, Verification
from secure_fgl.cli._shared.account import MOST_CLIENTS, shown
from tests.audits.noised_run import SCORE, TRAIN, NoisedRun, message
from tests.secure_fgl.cli_tools import config, invoke

Evidence = Callable[..., None]


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "opacus", lambda history, delta: [("Opacus RDP", "left out")])


@pytest.fixture
def evidence(monkeypatch: pytest.MonkeyPatch) -> Evidence:
    """Let the steps that are named fail, and all others pass: the runs here are written by hand."""

    def failing(*names: str) -> None:
        steps = tuple(Step(name, Status.FAIL, "x") for name in names)
        monkeypatch.setattr(accounts, "run_checks", lambda case, checks: Verification(steps))

    failing()
    return failing


def counted(run: Path, *options: object) -> tuple[int, dict[str, Any], str]:
    shown = invoke("audit", "account", run, "--format", "json", *options)
    return shown.exit_code, json.loads(shown.stdout), shown.stderr


def test_json_is_the_account(evidence: Evidence, tmp_path: Path) -> None:
    code, told, said = counted(NoisedRun().save(tmp_path))
    assert code == 0
    words = told.pop("empirical")
    found = Account.model_validate(told)
    assert sorted(told) == sorted(Account.model_fields)
    assert {row["what"] for row in words} >= {"the run, by the ledgers"}
    assert {row["empirical"]["word"] for row in words} == {"untested"}  # no attack was run
    assert found.statement.startswith(f"ε = {found.epsilon.value} at δ = 1e-05 for the run")
    assert "NOT FALSIFIED" in said


def test_a_table_fits_80_columns_and_says_it_all(evidence: Evidence, tmp_path: Path) -> None:
    run = NoisedRun().save(tmp_path)
    result = invoke("audit", "account", run)
    lines = result.stdout.splitlines()
    assert result.exit_code == 0
    assert all(len(line) <= 80 for line in lines[1:])  # the sentence stays whole
    told = counted(run)[1]
    assert {row["empirical"]["word"] for row in told.pop("empirical")} == {"untested"}
    found = Account.model_validate(told)
    for text in ("client", "zero-out", "distributed-sum", "1e-05", TRAIN, "Opacus RDP"):
        assert text in result.stdout
    numbers = [*(row.epsilon for row in found.honest_share), *(v.epsilon for v in found.views)]
    numbers += [e for row in found.scopes for e in (row.planned, row.recorded)]
    for number in numbers:
        assert shown(number) in result.stdout
    squeezed = " ".join(result.stdout.split())
    for text in (*found.epsilon.assumptions, *found.notes):
        assert text in squeezed
    assert found.statement == lines[0]


def test_o16_without_noise_the_run_is_infinite_and_that_is_no_error(
    evidence: Evidence, tmp_path: Path
) -> None:
    run = NoisedRun(more=(NoisedRun().item(SCORE, (message("Score"),)),)).save(tmp_path)
    code, told, _ = counted(run)
    sentence = f"ε = ∞ for the run; covered: {TRAIN}; not covered: {SCORE}"
    assert (code, told["statement"]) == (0, sentence)
    assert invoke("audit", "account", run).stdout.startswith(f"{sentence}\n")


def test_a_claim_that_the_record_refutes_exits_7(evidence: Evidence, tmp_path: Path) -> None:
    run = NoisedRun(survivors=dict.fromkeys((1, 2, 3), 3)).save(tmp_path)
    code, told, said = counted(run)
    assert (code, told["verdict"]) == (7, "FALSIFIED")
    assert "FALSIFIED: the ledgers show epsilon" in said
    assert "because" in invoke("audit", "account", run).stdout


@pytest.mark.parametrize(
    ("failed", "code"),
    [
        (("plan_vs_ledger",), 6),
        (("receipts",), 5),
        (("plan_vs_ledger", "opened"), 5),
        ((), 7),
    ],
)
def test_the_gravest_exit_code_wins(
    failed: tuple[str, ...], code: int, evidence: Evidence, tmp_path: Path
) -> None:
    run = NoisedRun(survivors=dict.fromkeys((1, 2, 3), 3)).save(tmp_path)
    evidence(*failed)
    assert counted(run)[0] == code


def test_evidence_that_does_not_hold_exits_5(tmp_path: Path) -> None:
    code, told, said = counted(NoisedRun().save(tmp_path))  # written by hand: no heads, no receipts
    assert code == 5
    assert told["failed"]
    assert told["evidence"] in said
    (tmp_path / "plan.json").write_text("{}")
    assert invoke("audit", "account", tmp_path).exit_code == 5
    assert invoke("audit", "account", tmp_path / "none").exit_code == 2


def test_arithmetics_that_differ_are_said_to(
    evidence: Evidence, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows, "opacus", lambda history, delta: [("Opacus RDP", 1.0)])
    code, _, said = counted(NoisedRun().save(tmp_path))
    assert code == 0
    assert "Opacus RDP differs from our own by more than a tenth" in said


def test_of_many_clients_those_that_spent_most_are_shown(
    evidence: Evidence, tmp_path: Path
) -> None:
    skips = frozenset((f"client-{n:02d}", 1) for n in range(1, 31))
    run = NoisedRun(clients=MOST_CLIENTS + 20, skips=skips).save(tmp_path)
    printed = invoke("audit", "account", run).stdout
    assert "20 more clients" in printed
    assert "client-31" in printed and "client-20" not in printed
    assert len(counted(run)[1]["clients"]) == MOST_CLIENTS + 20


def test_reading_leaves_the_folder_as_it_was(evidence: Evidence, tmp_path: Path) -> None:
    run = NoisedRun().save(tmp_path)
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    first, second = counted(run)[1], counted(run)[1]
    assert first == second
    assert before == {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("value", "text"), [(6.29728, "6.298"), (1234.51, "1235"), (0.00123441, "0.001235")]
)
def test_an_epsilon_is_shown_with_four_figures_and_never_smaller(value: float, text: str) -> None:
    found = rows.Labels("local", "1e-05", ("none",)).epsilon(value, "run")
    assert shown(found) == text
    assert (shown(rows.unbounded()), shown(None)) == ("∞", "-")


def test_a_real_run_without_noise(tmp_path: Path) -> None:
    run = tmp_path / "run"
    made = invoke("run", config(tmp_path), "--out", run)
    assert made.exit_code == 0, made.stderr
    code, told, _ = counted(run)
    assert (code, told["verdict"], told["failed"]) == (0, "NO CLAIM", [])
    assert told["statement"].startswith("ε = ∞ for the run; covered: nothing; not covered: ")
    listed = told["statement"].partition("not covered: ")[2].split(", ")
    assert listed and all(name.endswith(".up.SUM") for name in listed)
