"""The tables of docs/results/personalised.md: seeds, mean and deviation, chosen on validation.

    python benchmarks/personalised.py run TABLE --data DIR --out FILE [--seeds 5] [--jobs 2]
    python benchmarks/personalised.py show FILE

`run` appends one JSON line a run, and skips what FILE holds already; `show` prints Markdown: test
figures, validation, and under a policy that weighs the share of rows that were flattened (O10).
Tables: bbbp, bbbp_sweep, ciao, ciao_sweep, nodes. Test figures are those of the best
validation round; no setting is chosen by them.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from secure_fgl.federation import Federation

Settings = dict[str, Any]
BBBP: Settings = {
    "algorithm.rounds": 40,
    "algorithm.epochs": 5,
    "model.name": "gcn_readout",
    "model.hidden": 32,
    "model.dropout": 0.3,
    "model.lr": 0.2,
    "model.weight_decay": 1e-4,
    "model.optimiser": "sgd",
    "model.batch": 64,
    "data.name": "bbbp",
    "data.split": [0.8, 0.1, 0.1],
    "data.partition.name": "dirichlet_count",
    "data.partition.clients": 16,
}
CIAO: Settings = {
    "algorithm.rounds": 20,
    "algorithm.epochs": 10,
    "model.name": "gcn_dot",
    "model.options": {"inputs": "degree"},
    "model.hidden": 32,
    "model.dropout": 0.0,
    "model.lr": 0.03,
    "model.weight_decay": 0.0,
    "model.optimiser": "sgd",
    "data.name": "ciao",
    "data.split": [0.8, 0.1, 0.1],
    "data.partition.name": "item_category",
    "data.partition.clients": 28,
    "evaluation.references": ["mean"],
}
NODES: Settings = {
    "algorithm.rounds": 100,
    "model.name": "gcn_linear",
    "model.hidden": 128,
    "model.dropout": 0.5,
    "model.lr": 0.01,
    "model.weight_decay": 1e-6,
    "model.optimiser": "adamw",
    "model.keep_moments": False,
    "data.options": {"largest_component": True},
    "data.features": "row",
    "evaluation.at": "trained",
}


def _mixing(name: str, **options: Any) -> Settings:
    return {"algorithm.name": name, "algorithm.options": {name: options}}


def _gated(base: Settings, steps: int) -> Iterator[tuple[str, Settings]]:
    """The poster's rows: one method a row."""
    yield "fed_avg", {**base, **_mixing("fed_avg")}
    own = {"steps": steps} if base is CIAO else {"steps": steps, "lr_personal": 0.03}
    yield "apfl α=.1", {**base, **_mixing("apfl", alpha=0.1, **own)}
    yield "apfl α=.25", {**base, **_mixing("apfl", alpha=0.25, **own)}
    tau = max(10, 5 * steps)  # the poster's best is 10; from R on the trackers settle smoothly
    yield f"fed_gate τ={tau}", {**base, **_mixing("fed_gate", tau=tau, steps=steps)}
    yield "fed_gate τ=100", {**base, **_mixing("fed_gate", tau=100, steps=steps)}
    for alpha in (0.1, 0.25, 0.5, 0.75, 0.9):
        chosen = _mixing("apfl_gate", alpha=alpha, tau=tau, **own)
        yield f"apfl_gate α={alpha:g} τ={tau}", {**base, **chosen}
    chosen = _mixing("apfl_gate", alpha=0.1, tau=100, **own)
    yield "apfl_gate α=0.1 τ=100", {**base, **chosen}


def _swept(base: Settings, steps: int) -> Iterator[tuple[str, Settings]]:
    """What the poster leaves open: step size, R, what is mixed with what."""

    def row(label: str, more: Settings, **options: Any) -> tuple[str, Settings]:
        chosen = {"alpha": 0.1, "lr_personal": 0.03, "steps": steps, **options}
        return label, {**base, **_mixing("apfl_gate", **chosen), **more}

    for lr in (0.03, 0.1, 0.3):
        yield row(f"lr={lr:g}", {"model.lr": lr})
    for epochs in (1, 2, 10):
        yield row(f"R={epochs * steps}", {"algorithm.epochs": epochs})
    yield row("α learnt", {}, adaptive=True, alpha=0.5)
    yield row("frozen", {}, frozen=True)
    yield row("joint", {}, joint=True)


def _ciao_swept() -> Iterator[tuple[str, Settings]]:
    """The same of ratings: what a graph model is told of a node, embeddings instead, step, R."""
    chosen = {**CIAO, **_mixing("apfl_gate", alpha=0.5, steps=1, tau=10)}
    yield "all nodes alike", {**chosen, "model.options": {"inputs": "constant"}}
    yield "embeddings, no graph", {**chosen, "model.name": "dot", "model.options": {}}
    for lr in (0.01, 0.05):
        yield f"lr={lr:g}", {**chosen, "model.lr": lr}
    yield "R=5", {**chosen, "algorithm.epochs": 5}


def _nodes() -> Iterator[tuple[str, Settings]]:
    places = [("cora", p) for p in _PARTITIONS] + [("citeseer", p) for p in _PARTITIONS]
    places += [("amazon_computers", p) for p in _PARTITIONS[1:4:2]]
    for data, (partition, clients) in places:
        # One full-batch step a round makes fed_prox fed_avg bit for bit: it has a row where E > 1.
        names = ("local", "fed_avg", "fed_per")
        for name in (*names, "fed_prox") if data == "amazon_computers" else names:
            settings = {
                **NODES,
                "algorithm.name": name,
                "algorithm.options": {"fed_prox": {"mu": 0.001}},
                "data.name": data,
                "data.partition.name": partition,
                "data.partition.clients": clients,
            }
            if data == "amazon_computers":
                settings.update({"algorithm.epochs": 2, "model.lr": 0.01})
            yield f"{data} {partition} {clients} {name}", settings


def _raw() -> Iterator[tuple[str, Settings]]:
    """The rows of Amazon Computers with a product's words as they are."""
    for label, settings in _nodes():
        if settings["data.name"] == "amazon_computers":
            yield label, {**settings, "data.features": "raw"}


_PARTITIONS = (
    ("metis_disjoint", 5),
    ("metis_disjoint", 10),
    ("metis_overlap", 10),
    ("metis_overlap", 30),
)


def rows(table: str) -> dict[str, Settings]:
    """Return a table's rows: label and settings."""
    tables = {
        "bbbp": lambda: _gated(BBBP, 4),
        "bbbp_sweep": lambda: _swept(BBBP, 4),
        "ciao": lambda: _gated(CIAO, 1),
        "ciao_sweep": _ciao_swept,
        "nodes": _nodes,
        "nodes_raw": _raw,
    }
    return dict(tables[table]())


def measure(facts: Settings, settings: Settings, data: str) -> dict[str, Any]:
    """Run one row with one seed; `facts` are its table, row, seed and policy."""
    os.environ["OMP_NUM_THREADS"] = "1"
    from protocols.errors import Refused

    document = {
        **nested(facts, settings, data),
        "transport": {"workers": 1},
    }  # rows run beside rows
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        try:
            result = federation(document).run(out).result
        except Refused as refused:  # a client's numbers were no longer finite
            return {**facts, "metrics": {}, "references": {}, "diverged": str(refused)}
        flattened = _flattened(out / "ledger" / "aggregator.jsonl")
        highest = _highest(out / "metrics.jsonl")
    kept = ("policy", "metrics", "references", "wall_s", "protect_s", "bytes_up", "model_sha256")
    found = {name: result[name] for name in kept}
    return {**facts, **found, "flattened": flattened, "highest": highest}


def federation(document: dict[str, Any]) -> Federation:
    """Return the federation of a document, whose sites train on whatever they have.

    Figures of papers count sites of fewer than ten records in, which presets let train on nothing.
    """
    from protocols.policy.policy import PrivacyPolicy
    from secure_fgl.config import Config
    from secure_fgl.federation import Federation

    chosen = Config.parse(document)
    policy = PrivacyPolicy.load(chosen.policy).changed(minimum_records=1)
    return Federation(config=chosen, policy=policy)


def nested(facts: Settings, settings: Settings, data: str) -> dict[str, Any]:
    """Return a row's settings as the document of a configuration."""
    document: dict[str, Any] = {}
    run = {"data.root": data, "seed": facts["seed"], "resume": False}
    for key, value in {"policy": facts["policy"], **settings, **run}.items():
        *path, last = key.split(".")
        place = document
        for part in path:
            place = place.setdefault(part, {})
        place[last] = value
    return document


def _flattened(ledger: Path) -> float | None:
    """Return the share of rows of weights that were flattened; None where none were protected."""
    lines = (json.loads(line) for line in ledger.read_text("utf-8").splitlines())
    rows = [line for line in lines if line["kind"] == "weights"]
    whole = sum(row["receivers"] for row in rows)
    return sum(len(row["flattened"]) for row in rows) / whole if rows else None


def _highest(metrics: Path) -> dict[str, float]:
    """Return the largest F1 of all rounds: the rule of papers that choose the round by the test.

    It stands beside theirs; nothing of ours is chosen by it.
    """
    found: dict[str, float] = {}
    for line in metrics.read_text("utf-8").splitlines():
        for name, value in json.loads(line).items():
            if name.endswith("_f1") and value is not None:
                found[name] = max(value, found.get(name, 0.0))
    return found


def run(
    options: argparse.Namespace,
    rows: Callable[[str], dict[str, Settings]],
    measure: Callable[[Settings, Settings, str], dict[str, Any]] = measure,
) -> None:
    """Run what FILE does not hold yet."""
    out, done = Path(options.out), set()
    if out.exists():
        for line in out.read_text("utf-8").splitlines():
            found = json.loads(line)
            done.add((found["table"], found["row"], found["seed"]))
    wanted = [
        ({"table": options.table, "row": label, "seed": seed, "policy": options.policy}, settings)
        for seed in range(options.first, options.first + options.seeds)
        for label, settings in rows(options.table).items()
        if (options.table, label, seed) not in done and all(part in label for part in options.only)
    ]
    with ProcessPoolExecutor(options.jobs) as pool:
        jobs = [pool.submit(measure, *job, options.data) for job in wanted]
        for number, job in enumerate(as_completed(jobs), 1):
            found = job.result()
            with out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(found, sort_keys=True) + "\n")
            print(f"{number}/{len(jobs)} {found['row']} seed {found['seed']}", file=sys.stderr)


def show(options: argparse.Namespace) -> None:
    """Print every table of FILE as Markdown."""
    lines = [json.loads(line) for line in Path(options.file).read_text("utf-8").splitlines()]
    for table in dict.fromkeys(line["table"] for line in lines):
        mine = [line for line in lines if line["table"] == table]
        names = [
            name
            for name in next((f["metrics"] for f in mine if f["metrics"]), {})
            if name.startswith("test_") or name.endswith("_f1")
        ]
        names += sorted({n for f in mine for n in f["metrics"] if n.startswith("val_")})
        extra = sorted({name for line in mine for name in line["references"]})
        weighed = any(f.get("flattened") is not None for f in mine)
        best = sorted({name for line in mine for name in line.get("highest") or ()})
        heads = ["row", "seeds", *names, *extra, "rounds to best"]
        heads += [f"{name} of the best test round" for name in best]
        heads += ["flattened rows"] if weighed else []
        print(f"\n{table}\n\n| {' | '.join(heads)} |")
        print("|" + "---|" * len(heads))
        for row in dict.fromkeys(line["row"] for line in mine):
            found = [line for line in mine if line["row"] == row]
            cells = [_cell([f["metrics"].get(name) for f in found]) for name in names]
            cells += [_cell([f["references"].get(name) for f in found]) for name in extra]
            cells.append(_cell([f["metrics"].get("best_round") for f in found], digits=0))
            told = [f["highest"] for f in found if f.get("highest")]
            cells += [_cell([f.get(name) for f in told]) for name in best]
            cells += [_cell([f.get("flattened") for f in found])] if weighed else []
            print(f"| {row} | {len(found)} | {' | '.join(cells)} |")


def _cell(values: list[Any], digits: int = 4) -> str:
    numbers = [value for value in values if value is not None]
    if not numbers:
        return "–"
    spread = float(np.std(numbers, ddof=1)) if len(numbers) > 1 else 0.0
    missing = f" ({len(values) - len(numbers)} diverged)" if len(numbers) < len(values) else ""
    return f"{np.mean(numbers):.{digits}f} ± {spread:.{digits}f}{missing}"


def main(
    document: str,
    rows: Callable[[str], dict[str, Settings]],
    policy: str,
    measure: Callable[[Settings, Settings, str], dict[str, Any]] = measure,
) -> None:
    """Read the command line of a script with tables like these.

    Args:
        document: the script's docstring.
        rows: from a table's name to its rows, label and settings.
        policy: what is run under if nothing else is said.
        measure: what runs one row, see the function of that name.
    """
    parser = argparse.ArgumentParser(description=document.splitlines()[0])
    verbs = parser.add_subparsers(required=True)
    runs = verbs.add_parser("run")
    runs.add_argument("table")
    runs.add_argument("--data", required=True)
    runs.add_argument("--out", required=True)
    runs.add_argument("--seeds", type=int, default=5)
    runs.add_argument("--first", type=int, default=1, help="the first of the seeds")
    runs.add_argument("--jobs", type=int, default=2)
    runs.add_argument("--policy", default=policy)
    runs.add_argument("--only", nargs="*", default=[])
    runs.set_defaults(do=lambda options: run(options, rows, measure))
    shows = verbs.add_parser("show")
    shows.add_argument("file")
    shows.set_defaults(do=show)
    options = parser.parse_args()
    options.do(options)


if __name__ == "__main__":
    main(str(__doc__), rows, "masks")
