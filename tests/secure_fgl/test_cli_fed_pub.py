"""FED-PUB on the command line: what is refused before it runs, and what is said after it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from secure_fgl.cli.run import _quality
from tests.secure_fgl.cli_tools import CONFIG, ROOT, config, invoke

TINY = CONFIG.replace("name: fed_avg", "name: fed_pub").replace("name: gcn,", "name: gcn_linear,")
OPTIONS = "algorithm.options.fed_pub"


def tiny(folder: Path) -> Path:
    assert "fed_pub" in TINY and "gcn_linear" in TINY
    return config(folder, TINY)


@pytest.mark.parametrize(("rounds", "flattened"), [(2, "4 of 8 rows flattened"), (1, "")])
def test_people_are_told_that_rows_were_flattened(
    rounds: int, flattened: str, tmp_path: Path
) -> None:
    """Clients of the first round receive the plain mean, of which nothing is flattened.

    Four clients where every row must rest on three others: any other weights are.
    """
    four = "data.partition={name: metis_disjoint, clients: 4}"
    chosen = (f"{OPTIONS}.tau=20.0", f"algorithm.rounds={rounds}", four)
    wanted = [word for setting in chosen for word in ("--set", setting)]
    shown = invoke("run", tiny(tmp_path), "--out", tmp_path / "run", *wanted)
    assert shown.exit_code == 0, shown.stderr
    assert "weighs all others alike" in " ".join(shown.stderr.split())
    lines = {line.split("  ")[0].strip(): line for line in shown.stdout.splitlines()}
    if not flattened:
        assert "weights" not in lines and "report" in lines
        return
    assert lines["weights"].endswith(f"{flattened}: not the ones that fed_pub asked for")


def test_a_top_that_the_policy_cannot_grant_is_refused_at_plan(tmp_path: Path) -> None:
    for top, policy, code in ((3, "pilot", 2), (4, "pilot", 0), (3, "unsafe_plaintext", 0)):
        chosen = ("--set", f"{OPTIONS}.top={top}", "--set", f"policy={policy}")
        shown = invoke("plan", tiny(tmp_path), *chosen)
        assert shown.exit_code == code, (top, policy, shown.stderr)
        assert ("give no top, or more than 3" in shown.stderr) is (code != 0)


@pytest.mark.parametrize("value", [".nan", "nan", ".inf", "yes"])
def test_an_option_that_is_no_finite_number_is_called_that(value: str, tmp_path: Path) -> None:
    shown = invoke("plan", tiny(tmp_path), "--set", f"{OPTIONS}.tau={value}")
    assert shown.exit_code == 2 and "must be a finite number" in shown.stderr


@pytest.mark.parametrize(("best", "said"), [(0, "before training"), (2, "after round 2")])
def test_a_model_that_nobody_trained_is_not_of_round_0(best: int, said: str) -> None:
    metrics = {"best_round": best, "test_accuracy": 0.5, "val_accuracy": 0.25}
    result: dict[str, Any] = {"metrics": metrics, "data": {"synthetic": False}}
    assert _quality(result, "test_accuracy") == f"0.5000 test, 0.2500 validation, {said}"


def test_the_package_itself_is_the_command(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "secure_fgl", "list", "algorithms"]
    shown = subprocess.run(
        words,
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert shown.returncode == 0 and "fed_pub" in shown.stdout, shown.stderr
