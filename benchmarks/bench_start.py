"""How long a command takes to begin: a plan, and a run up to the end of its first round.

Every part is a process of its own, and the parts take turns: Python alone, numpy, torch, `plan` and
`run` of one configuration. What is reported is the least over the repeats, in seconds by the clock
and of the processors, which others on the machine change less. Nothing is asserted.

    python benchmarks/bench_start.py [--config examples/banks.yaml] [--before FOLDER]

`--before` names another checkout, whose `plan` and `run` take turns with ours.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

if __package__ in (None, ""):  # run as a file: the floors lie one folder up
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks._measure import parser, show

ROOT = Path(__file__).resolve().parent.parent

COMMAND = """
import os, sys
from secure_fgl.cli import main
if {stop}:
    from secure_fgl.cli._shared.output import RunProgress
    RunProgress.__call__ = lambda *_: os._exit(0)  # after the first round
sys.argv = ["secure-fgl", *{words}]
main()
"""

Spent = tuple[float, float]
"""Seconds by the clock, and of the processors."""


def spent(code: str, tree: Path) -> Spent:
    """Return what a process takes that runs Python code in a checkout."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    before, start = _processors(), time.perf_counter()
    subprocess.run(  # noqa: S603 - this benchmark's own code
        [sys.executable, "-c", code], cwd=tree, env=environment, check=True, capture_output=True
    )
    return time.perf_counter() - start, _processors() - before


def _processors() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def plan(config: str, tree: Path) -> Spent:
    """Return what `secure-fgl plan` takes."""
    return spent(COMMAND.format(stop=False, words=["plan", config]), tree)


def first(config: str, tree: Path) -> Spent:
    """Return what `secure-fgl run` takes up to the end of its first round, the plan included."""
    with tempfile.TemporaryDirectory() as folder:
        words = ["run", config, "--out", f"{folder}/run"]
        return spent(COMMAND.format(stop=True, words=words), tree)


def measured(parts: dict[str, Callable[[], Spent]], repeats: int) -> dict[str, Spent]:
    """Return the least of every part; the first call of each fills caches and does not count."""
    found: dict[str, list[Spent]] = {name: [] for name in parts}
    for turn in range(repeats + 1):
        for name, part in parts.items():
            taken = part()
            if turn:
                found[name].append(taken)
    return {
        name: (min(clock for clock, _ in each), min(processors for _, processors in each))
        for name, each in found.items()
    }


def main() -> int:
    """Measure and print."""
    options = parser(__doc__ or "", repeats=5)
    options.add_argument("--config", default="examples/banks.yaml")
    options.add_argument("--before", type=Path, help="another checkout, to compare with")
    given = options.parse_args()
    config = str(Path(given.config).resolve())
    parts: dict[str, Callable[[], Spent]] = {
        "python": lambda: spent("pass", ROOT),
        "numpy": lambda: spent("import numpy", ROOT),
        "torch": lambda: spent("import torch", ROOT),
        "plan": lambda: plan(config, ROOT),
        "first_round": lambda: first(config, ROOT),
    }
    if given.before is not None:
        parts["plan_before"] = lambda: plan(config, given.before)
        parts["first_round_before"] = lambda: first(config, given.before)
    found = measured(parts, given.repeats)
    result: dict[str, Any] = {}
    for name, (clock, processors) in found.items():
        result |= {f"{name}_s": clock, f"{name}_cpu_s": processors}
    for name in [name for name in parts if name.startswith(("plan", "first"))]:
        result[f"{name}_over_torch"] = found[name][1] / found["torch"][1]
    show(result, given.format)
    return 0


if __name__ == "__main__":
    sys.exit(main())
