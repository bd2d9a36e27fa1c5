"""The table of docs/results/d_fed_gnn.md: D-FedGNN on several topologies beside FedAvg and Local.

    python benchmarks/d_fed_gnn.py run cora --data DIR --out FILE [--seeds 3] [--jobs 1]
    python benchmarks/d_fed_gnn.py show FILE

`run` appends one JSON line a run, and skips what FILE holds already; `show` prints Markdown, and
what FedAvg's differences to each row are, seed by seed. In `fed_avg, own choice` each client keeps
the model that did best on its own validation records, as D-FedGNN's do. A ring runs under the
policy with `topology_floor: unsafe` alone, and is named so.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

if __package__:
    from benchmarks.personalised import Settings, nested, run
else:
    from personalised import Settings, nested, run

CLIENTS, ROUNDS = 10, 50
BASE: Settings = {
    "algorithm.rounds": ROUNDS,
    "algorithm.epochs": 1,
    "model.name": "gcn",
    "model.hidden": 64,
    "model.layers": 2,
    "model.dropout": 0.5,
    "model.lr": 0.01,
    "model.weight_decay": 5e-4,
    "data.options": {"largest_component": True},
    "data.features": "row",
    "data.split": [0.2, 0.4, 0.4],
    "data.partition.name": "metis_disjoint",
    "data.partition.clients": CLIENTS,
    "evaluation.at": "trained",
}
UNSAFE, FRESH = "ring (UNSAFE)", "_fresh"
GRAPHS: dict[str, Settings] = {
    "complete": {"topology": "complete"},
    "regular 6": {"topology": "regular", "degree": 6},
    "regular 4": {"topology": "regular", "degree": 4},
    UNSAFE: {"topology": "ring"},
}


def _rows(data: str) -> Iterator[tuple[str, Settings]]:
    base = {**BASE, "data.name": data.removesuffix(FRESH)}
    if data.endswith(FRESH):
        base |= {"model.optimiser": "adamw", "model.keep_moments": False}
    yield "local", {**base, "algorithm.name": "local"}
    yield "fed_avg", {**base, "algorithm.name": "fed_avg"}
    own = {"algorithm.name": "fed_avg", "evaluation.at": "kept"}
    yield "fed_avg, own choice", {**base, **own}
    for label, graph in GRAPHS.items():
        chosen = {"algorithm.name": "d_fed_gnn", "algorithm.options": {"d_fed_gnn": graph}}
        yield f"d_fed_gnn {label}", {**base, **chosen}


def rows(table: str) -> dict[str, Settings]:
    """Return a table's rows: label and settings.

    Args:
        table: a data set; with ``_fresh`` behind it, the optimiser forgets its moments every round.
    """
    return dict(_rows(table))


def measure(facts: Settings, settings: Settings, data: str) -> dict[str, Any]:
    """Run one row with one seed; `facts` are its table, row, seed and policy."""
    os.environ["OMP_NUM_THREADS"] = "1"
    from protocols.policy.policy import PrivacyPolicy
    from secure_fgl.config import Config
    from secure_fgl.federation import Federation

    document = {**nested(facts, settings, data), "transport": {"workers": 1}}
    policy = PrivacyPolicy.load(facts["policy"])
    if UNSAFE in facts["row"]:
        changed = {"name": f"{policy.name}-ring", "topology_floor": "unsafe"}
        policy = PrivacyPolicy.model_validate({**policy.document(), **changed})
    with tempfile.TemporaryDirectory() as folder:
        federation = Federation(config=Config.parse(document), policy=policy)
        plan = federation.plan()
        result = federation.run(Path(folder) / "run", plan=plan).result
    kept = ("policy", "form", "metrics", "wall_s", "bytes_up", "bytes_down", "verdict")
    each = CLIENTS * ROUNDS
    return {
        **facts,
        **{name: result[name] for name in kept},
        "down": result["bytes_down"] / each,
        "up": result["bytes_up"] / each,
        "fewest": plan.topology.fewest if plan.topology is not None else None,
    }


def show(options: argparse.Namespace) -> None:
    """Print every table of FILE as Markdown."""
    lines = [json.loads(line) for line in Path(options.file).read_text("utf-8").splitlines()]
    for table in dict.fromkeys(line["table"] for line in lines):
        mine = [line for line in lines if line["table"] == table]
        average = {f["seed"]: f["metrics"]["test_accuracy"] for f in mine if f["row"] == "fed_avg"}
        print(
            f"\n{table}\n\n| row | seeds | others a combination rests on | test accuracy | "
            "less FedAvg, paired | mean over clients | kB up | kB down | s a run |"
        )
        print("|---|" + "---:|" * 8)
        for row in dict.fromkeys(line["row"] for line in mine):
            found = [line for line in mine if line["row"] == row]
            scores = [f["metrics"]["test_accuracy"] for f in found]
            paired = [
                f["metrics"]["test_accuracy"] - average[f["seed"]]
                for f in found
                if f["seed"] in average and row != "fed_avg"
            ]
            cells = [
                str(len(found)),
                str(found[0]["fewest"] or "–"),
                _cell(scores),
                _cell(paired, sign="+"),
                _cell([f["metrics"]["test_accuracy_client_mean"] for f in found]),
                f"{np.mean([f['up'] for f in found]) / 1000:,.0f}",
                f"{np.mean([f['down'] for f in found]) / 1000:,.0f}",
                f"{np.mean([f['wall_s'] for f in found]):.0f}",
            ]
            print(f"| {row} | {' | '.join(cells)} |")


def _cell(values: list[float], sign: str = "") -> str:
    if not values:
        return "–"
    spread = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
    return f"{np.mean(values):{sign}.4f} ± {spread:.4f}"


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    verbs = parser.add_subparsers(required=True)
    runs = verbs.add_parser("run")
    runs.add_argument("table")
    runs.add_argument("--data", required=True)
    runs.add_argument("--out", required=True)
    runs.add_argument("--seeds", type=int, default=3)
    runs.add_argument("--first", type=int, default=1, help="the first of the seeds")
    runs.add_argument("--jobs", type=int, default=1)
    runs.add_argument("--policy", default="masks")
    runs.add_argument("--only", nargs="*", default=[])
    runs.set_defaults(do=lambda options: run(options, rows, measure))
    shows = verbs.add_parser("show")
    shows.add_argument("file")
    shows.set_defaults(do=show)
    options = parser.parse_args()
    options.do(options)


if __name__ == "__main__":
    main()
