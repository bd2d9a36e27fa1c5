"""The table of docs/results/fed_gcn.md: FedGCN on Cora, ten clients, by form of its rows.

    python benchmarks/fed_gcn.py run --data DIR --out FILE [--seeds 3] [--beta 10000 ...]
    python benchmarks/fed_gcn.py show FILE

`run` appends one JSON line a run, and skips what FILE holds already; `show` prints Markdown. Test
figures are those of the best validation round. `rows_s` is the wall-clock time of the rounds'
first Ask for rows until its reply, tags included, all ten clients on one core.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import yaml

Settings = dict[str, Any]
CLIENTS, NODES = 10, 2708
BETAS = (10000.0, 100.0, 1.0)
FORMS: dict[str, tuple[int, str]] = {
    "0 hops": (0, "masks"),
    "published, 1 hop": (1, "rows_published_policy.yaml"),
    "published, 2 hops": (2, "rows_published_policy.yaml"),
    "thresholded, 1 hop": (1, "rows_policy.yaml"),
    "thresholded, 2 hops": (2, "rows_policy.yaml"),
    "noised, 1 hop, ε = 8": (1, "rows_noised_policy.yaml"),
    "noised, 1 hop, ε = 64": (1, "rows_noised_policy.yaml"),
    "noised, 2 hops, ε = 8": (2, "rows_noised_policy.yaml"),
    "noised, 2 hops, ε = 64": (2, "rows_noised_policy.yaml"),
    "published, 2 hops, 180 rounds": (2, "rows_published_policy.yaml"),
    "64 columns, 0 hops": (0, "masks"),
    "64 columns, published, 2 hops": (2, "rows_published_policy.yaml"),
    "64 columns, noised, 1 hop, ε = 8": (1, "rows_noised_policy.yaml"),
    "64 columns, noised, 1 hop, ε = 64": (1, "rows_noised_policy.yaml"),
    "64 columns, noised, 2 hops, ε = 64": (2, "rows_noised_policy.yaml"),
}
LONG = ", 180 rounds"
"""In place of 60, with the centralised figure of as many."""
NARROW = "64 columns, "
"""Features by row, times a public random matrix; see `narrow`."""
ROWS = {1: 1024, 2: 4096}
"""Rows that a client is told and adds to under noise, at most, by hops."""


def policy_of(form: str, folder: Path) -> str:
    """Return the policy of a form; a noised one is written to a folder, with its epsilon."""
    hops, name = FORMS[form]
    if name == "masks":
        return name
    examples = Path(__file__).parents[1] / "examples"
    if "ε" not in form:
        return str(examples / name)
    policy = yaml.safe_load((examples / name).read_text())
    epsilon = float(form.rpartition("= ")[2])
    for guard in policy["rules"]["ROW_SUM"]:
        if guard["guard"] == "row_noise":
            guard["epsilon"] = guard["budget"]["epsilon"] = epsilon
        if guard["guard"] == "rows":
            guard["rows"] = ROWS[hops]
    file = folder / name
    file.write_text(yaml.safe_dump(policy))
    return str(file)


def document(form: str, beta: float, seed: int, data: str, folder: Path) -> Settings:
    """Return one run's configuration; budgets and a noised policy stand in `folder`."""
    hops = FORMS[form][0]
    options = {"hops": hops, "nodes": NODES} if hops else {}
    narrow = form.startswith(NARROW)
    split: Settings = {"split": "published", **({"columns": 64} if narrow else {})}
    return {
        "algorithm": {
            "name": "fed_gcn",
            "rounds": 180 if form.endswith(LONG) else 60,
            "epochs": 3,
            "options": {"fed_gcn": options},
        },
        "data": {
            "name": "narrow_cora" if narrow else "cora",
            "root": data,
            "features": "raw" if narrow else "row",
            "options": split,
            "partition": {
                "name": "dirichlet_linked",
                "clients": CLIENTS,
                "options": {"beta": beta},
            },
        },
        "model": {"name": "gcn", "hidden": 16, "layers": 2},
        "evaluation": {"references": ["centralised"] if form.endswith(("0 hops", LONG)) else []},
        **({"plugins": [str(Path(__file__).with_name("narrow.py"))]} if narrow else {}),
        "policy": policy_of(form, folder),
        "budget": {"store": str(folder / "budgets")},
        "transport": {"workers": 1},
        "resume": False,
        "seed": seed,
    }


def measure(form: str, beta: float, seed: int, data: str) -> dict[str, Any]:
    """Run one cell; also time its rows, and count how many were told."""
    with tempfile.TemporaryDirectory() as folder:
        found = timed(document(form, beta, seed, data, Path(folder)), Path(folder))
    return {"form": form, "beta": beta, "seed": seed, **found}


def timed(settings: Settings, folder: Path) -> dict[str, Any]:
    """Run a configuration in a folder; return its result, how long its rows took, and how many.

    `first_s` is the first round, all that comes before it included, less a later one.
    """
    os.environ["OMP_NUM_THREADS"] = "1"
    from secure_fgl.config import Config
    from secure_fgl.federation import Federation

    began = time.perf_counter()
    marks: list[float] = []

    def progress(*_: Any, **__: Any) -> None:
        marks.append(time.perf_counter() - began)

    federation = Federation.from_config(Config.parse(settings))
    result = federation.run(folder / "run", progress=progress).result
    later = float(np.median(np.diff(marks))) if len(marks) > 1 else 0.0
    kept = ("metrics", "references", "bytes_up", "model_sha256")
    first = marks[0] - later if marks else None
    told = _told(folder / "run" / "ledger")
    return {**{k: result[k] for k in kept}, "told": told, "first_s": first, "round_s": later}


def _told(ledgers: Path) -> int | None:
    """Return how many rows were told to all clients together; None where ledgers do not say."""
    found = [
        json.loads(line).get("told")
        for file in sorted(ledgers.glob("client-*.jsonl"))
        for line in file.read_text().splitlines()
        if json.loads(line).get("kind") == "rows"
    ]
    counts = [count for count in found if count is not None]
    return sum(counts) if counts else None


def cells(seeds: int, betas: list[float], forms: list[str]) -> Iterator[tuple[str, float, int]]:
    """Return the table's cells, first seeds first."""
    for seed in range(1, seeds + 1):
        for beta in betas:
            for form in forms:
                yield form, beta, seed


def run(out: Path, data: str, seeds: int, betas: list[float], forms: list[str]) -> None:
    """Append what is missing."""
    lines = out.read_text().splitlines() if out.exists() else []
    known = [json.loads(line) for line in lines]
    have = {(row["form"], row["beta"], row["seed"]) for row in known}
    for cell in cells(seeds, betas, forms):
        if cell in have:
            continue
        row = measure(*cell, data)
        with out.open("a") as file:
            file.write(json.dumps(row, sort_keys=True) + "\n")
        print(cell, row["metrics"]["test_accuracy"], row["told"], flush=True)


def show(file: Path) -> None:
    """Print the table."""
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    found: dict[tuple[str, float], list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        found[row["form"], row["beta"]].append(row)
    betas = sorted({beta for _, beta in found})
    print("| form | " + " | ".join(f"β = {beta:g}" for beta in betas) + " | rows told | seeds |")
    print("|---|" + "---|" * (len(betas) + 2))
    centre = [[r["references"].get("centralised") for r in found["0 hops", b]] for b in betas]
    _line("centralised", centre, "")
    for form in FORMS:
        here = [found[form, beta] for beta in betas]
        if not any(here):
            continue
        told = [row["told"] for one in here for row in one if row["told"] is not None]
        share = f"{np.mean(told):.0f}" if told else "–"
        _line(form, [[r["metrics"]["test_accuracy"] for r in one] for one in here], share)


def _line(name: str, values: list[list[Any]], told: str) -> None:
    def said(cell: list[Any]) -> str:
        known = [value for value in cell if value is not None]
        if not known:
            return "–"
        spread = f" ± {np.std(known, ddof=1):.4f}" if len(known) > 1 else ""
        return f"{np.mean(known):.4f}{spread}"

    count = "/".join(str(len(cell)) for cell in values)
    print(f"| {name} | " + " | ".join(map(said, values)) + f" | {told} | {count} |")


def main() -> int:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("run")
    one.add_argument("--data", required=True)
    one.add_argument("--out", type=Path, required=True)
    one.add_argument("--seeds", type=int, default=3)
    one.add_argument("--beta", type=float, nargs="*", default=list(BETAS))
    one.add_argument("--form", nargs="*", default=list(FORMS))
    commands.add_parser("show").add_argument("file", type=Path)
    given = parser.parse_args()
    if given.command == "run":
        run(given.out, given.data, given.seeds, given.beta, given.form)
    else:
        show(given.file)
    return 0


if __name__ == "__main__":
    sys.exit(main())
