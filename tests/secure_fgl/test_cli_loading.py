"""What a command loads: a plan no torch, a run nothing beside torch that it does not use."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.secure_fgl.cli_tools import CONFIG, ROOT, config

HEAVY = ("torch", "torch_geometric", "opacus", "sklearn", "scipy", "scipy.stats", "scipy.sparse")
COMPILER = ("torch._dynamo", "torch._inductor", "sympy")
"""Torch's own, which is longer to load than all the rest of it; a run uses nothing of it."""

CODE = """
import sys
from secure_fgl.cli import main
from secure_fgl.cli._shared import plan_tables as plan_table
printed = plan_table.print_plan
def told(plan, *, stderr):
    printed(plan, stderr=stderr)
    print("PLANNED", [name for name in {names} if name in sys.modules])
plan_table.print_plan = told
for words in {commands}:
    sys.argv = ["secure-fgl", *words]
    try:
        main()
    except SystemExit as end:
        assert end.code in (0, None), end.code
print("LOADED", [name for name in {names} if name in sys.modules])
"""


def loaded(*words: object, names: tuple[str, ...] = HEAVY) -> str:
    """What a command printed, and which modules it had loaded with the plan and at the end."""
    return loaded_by([words], names=names)


def loaded_by(commands: Sequence[Sequence[object]], *, names: tuple[str, ...] = HEAVY) -> str:
    """Do commands one after the other in one process: what one of them loads stays loaded."""
    code = CODE.format(names=names, commands=[[str(word) for word in words] for words in commands])
    command = [sys.executable, "-c", code]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=ROOT, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


EXAMPLES = sorted(
    file.stem for file in (ROOT / "examples").glob("*.yaml") if not file.stem.endswith("policy")
)
ACCOUNTED = {"fed_per_gnn_matched", "fed_per_gnn_ml100k", "graph_fl_cora", "molecules_dp"}
"""Their plans bound what noise hides, how few of many clients see each other's masks, or how many
of a drawn cohort collude, by scipy's special functions."""


def test_all_plans_are_made_without_torch_and_without_scipy() -> None:
    plans = {name: ("plan", ROOT / "examples" / f"{name}.yaml") for name in EXAMPLES}
    for accounted, found in ((False, []), (True, ["scipy"])):
        chosen = [words for name, words in plans.items() if (name in ACCOUNTED) is accounted]
        told = loaded_by(chosen)
        assert told.count(f"PLANNED {found}") == len(chosen) and f"LOADED {found}" in told


@pytest.mark.long
@pytest.mark.parametrize("example", EXAMPLES)
def test_a_plan_is_made_without_torch_and_without_scipy(example: str) -> None:
    told = loaded("plan", ROOT / "examples" / f"{example}.yaml")
    assert f"LOADED {['scipy'] if example in ACCOUNTED else []}" in told


def test_a_run_prints_its_plan_before_torch_and_loads_nothing_beside(tmp_path: Path) -> None:
    watched = (*HEAVY, *COMPILER)
    told = loaded("run", config(tmp_path), "--out", tmp_path / "run", names=watched)
    assert "PLANNED []" in told
    assert "LOADED ['torch', 'scipy', 'scipy.sparse']" in told


def test_the_watch_sees_what_a_model_outside_the_folder_costs(tmp_path: Path) -> None:
    file = tmp_path / "my_gcn.py"
    file.write_text(
        "from algorithms.nn import GraphModel\n"
        "from algorithms.nn.gcn import build\n"
        "import algorithms.nn._shared.modules\n"
        'NAME, TASK, PROPAGATION = "my_gcn", "node", "symmetric"\n'
        "__all__ = ['GraphModel', 'build']\n"
    )
    own = config(tmp_path, CONFIG.replace("name: gcn,", "name: my_gcn,"))
    assert "LOADED ['torch'" in loaded("plan", own, "--plugin", file)
