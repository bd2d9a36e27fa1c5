"""The tables of docs/results/fed_sage.md: FedSage, FedSage+ and LocSage where edges are missing.

    python benchmarks/fed_sage.py run TABLE --data DIR --out FILE [--seeds 3] [--jobs 2]
    python benchmarks/fed_sage.py show FILE

Tables: cora, citeseer, coauthor_cs, and sums: FedSage+ with and without others' help, on Cora, in
clear and under noise (`calibrated`), with the processor time of each run. `run` skips what FILE
holds; `show` prints Markdown. Each row has two test accuracies of the round that was best on
validation: `test_accuracy` on the clients' own graphs, and `whole_graph` with all edges between
clients restored, which only a simulator can compute. Three clients are refused by every policy, so
their rows are computed in one process, without messages (`in_one_process`), and say so.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

if __name__ == "__main__":  # a script's folder is on the path, the folder above it is not
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import personalised
from benchmarks.personalised import Settings

SOURCE: Settings = {
    "data.split": [0.6, 0.2, 0.2],
    "data.partition.name": "louvain_balanced",
}
"""As Zhang et al. have it; model and optimiser are those that `fed_sage` takes by itself.

They say 50 epochs with batches of 64; their program has batches of 32. Ten clients of 162 training
nodes take half the steps of five clients and are still learning after 50 rounds, so these also have
rows of 100, and of 200.
"""
FEWEST = 5
"""Clients that the presets ask for at least."""

NAMES = ("fed_sage", "fed_sage_plus", "loc_sage")
HELP: Settings = {
    "algorithm.options": {"fed_sage_plus": {"alpha": 1.0, "joint": 3, "codes": 32}},
}
"""What makes `generator_alone` into `generator_sums`."""


def rows(table: str) -> dict[str, Settings]:
    """Return a table's rows: label and settings."""
    return dict(_sums() if table == "sums" else _rows(table))


def _sums() -> Iterator[tuple[str, Settings]]:
    """Each policy's row without help comes right before the one with it: one machine, one load."""
    for clients in (5, 10):
        base = dict(_rows("cora"))[f"cora M={clients} rounds=50 batch=64 fed_sage_plus"]
        for policy in ("unsafe_plaintext", "calibrated"):
            for form, more in (("generator_alone", {}), ("generator_sums", HELP)):
                label = f"cora M={clients} rounds=50 batch=64 {policy} {form}"
                yield label, {**base, **more, "policy": policy}


def _rows(table: str) -> Iterator[tuple[str, Settings]]:
    for clients, rounds, batch in (
        (5, 50, 64),
        (10, 50, 64),
        (10, 100, 64),
        (10, 100, 32),
        (10, 200, 32),
        (3, 50, 64),
    ):
        for algorithm in NAMES:
            first = clients == FEWEST and algorithm == "fed_sage"
            yield (
                f"{table} M={clients} rounds={rounds} batch={batch} {algorithm}",
                {
                    **SOURCE,
                    "algorithm.name": algorithm,
                    "algorithm.rounds": rounds,
                    "model.batch": batch,
                    "data.name": table,
                    "data.partition.clients": clients,
                    "evaluation.references": ["whole_graph", *(["centralised"] if first else [])],
                },
            )


def measure(facts: Settings, settings: Settings, data: str) -> dict[str, Any]:
    """Run one row with one seed, in one process where no policy admits so few clients."""
    if settings["data.partition.clients"] >= FEWEST:
        return _timed(facts, settings, data)
    os.environ["OMP_NUM_THREADS"] = "1"
    from secure_fgl.config import Config

    document = personalised.nested({**facts, "policy": "unsafe_plaintext"}, settings, data)
    found = in_one_process(Config.parse(document))
    return {**facts, **found, "policy": "none: computed in one process"}


def _timed(facts: Settings, settings: Settings, data: str) -> dict[str, Any]:
    """Run one row; `cpu_s` is the processor time of the whole run: all roles, in one process."""
    import torch

    import secure_fgl.run.simulation  # noqa: F401  what a first row would load is in no row's time

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as budgets:  # each row is a run of its own
        start = time.process_time()
        found = personalised.measure(facts, {**settings, "budget.store": budgets}, data)
        return {**found, "cpu_s": round(time.process_time() - start, 1)}


def in_one_process(config: Any) -> dict[str, Any]:
    """Return what a run would give whose clients' changes are averaged without any message."""
    import torch

    from algorithms import fed_avg, fed_sage_plus
    from algorithms.tasks import predictions
    from algorithms.tasks.evaluation import total
    from secure_fgl.data.loading import load
    from secure_fgl.federation import Federation
    from secure_fgl.run.naming import learning_seed
    from secure_fgl.run.reference import Bystander

    torch.set_num_threads(1)
    task, algorithm = Federation.from_config(config).build()
    loaded = load(config, task)
    sites, scoring = loaded.sites, task.scoring
    # The plan's own seed, so that the start is that of a run.
    state = algorithm.init(np.random.default_rng(learning_seed(config.seed, "init")))
    answer = algorithm.forms[0].exchanges[0].answer
    moved: Any = fed_sage_plus.moved if algorithm.name == "fed_sage_plus" else fed_avg.moved
    best, metrics = -np.inf, dict[str, Any]()
    for number in range(config.algorithm.rounds + 1):
        models = [algorithm.model(site, state) for site in sites]
        scores = [
            task.score(predictions(task, model, site), site)
            for model, site in zip(models, sites, strict=True)
        ]
        pooled = total(scores)
        if (merit := scoring.merit(pooled) or -np.inf) > best:
            best = merit
            metrics = {**scoring.read(pooled), "best_round": number}
            for model, site in zip(models, sites, strict=True):
                site.memory["kept"] = (number, model.kept())
        if number < config.algorithm.rounds:
            told = [answer(site, state) for site in sites]
            changes = [message.delta for message in told if message is not None]
            state = moved(state, np.mean(changes, axis=0)) if changes else state
    bystander = Bystander(task, sites, loaded.whole, config)
    return {"metrics": metrics, "references": bystander.references()}


def show(options: argparse.Namespace) -> None:
    """Print every table of FILE as Markdown, with runs that differ by one thing paired by seed."""
    lines = [json.loads(line) for line in Path(options.file).read_text("utf-8").splitlines()]
    print(
        "| row | seeds | whole graph | local subgraphs | validation | rounds to best | "
        "processor s |"
    )
    print("|---|---|---|---|---|---|---|")
    for row in dict.fromkeys(line["row"] for line in lines):
        found = [line for line in lines if line["row"] == row]
        cells = [
            _cell(found, lambda line: line["references"].get("whole_graph")),
            _cell(found, lambda line: line["metrics"]["test_accuracy"]),
            _cell(found, lambda line: line["metrics"]["val_accuracy"]),
            _cell(found, lambda line: line["metrics"]["best_round"], digits=0),
            _cell(found, lambda line: line.get("cpu_s"), digits=0),
        ]
        print(f"| {row} | {len(found)} | {' | '.join(cells)} |")
    for row in dict.fromkeys(line["row"] for line in lines):
        found = [line for line in lines if line["row"] == row]
        if any("centralised" in line["references"] for line in found):
            cell = _cell(found, lambda line: line["references"].get("centralised"))
            print(f"| {row.split()[0]} Global (centralised) | {len(found)} | {cell} |{' – |' * 4}")
    _paired(lines, "fed_sage", "fed_sage_plus", "FedSage+ - FedSage")
    _paired(lines, "generator_alone", "generator_sums", "generator_sums - generator_alone")


def _paired(lines: list[Settings], plain: str, plus: str, title: str) -> None:
    """Print the differences of runs that share seed, split, partition and start, and their costs.

    Costs are ratios of runs with the same references, with the least and the largest of them.
    """
    held = {(line["row"], line["seed"]): line for line in lines}
    print(f"\n| {title} | seeds | whole graph | local subgraphs | processor time | bytes sent |")
    print("|---|---|---|---|---|---|")
    for row in dict.fromkeys(line["row"] for line in lines if line["row"].endswith(f" {plain}")):
        other = row.removesuffix(plain) + plus
        found = [
            (held[other, seed], line)
            for (name, seed), line in held.items()
            if name == row and (other, seed) in held
        ]
        if not found:
            continue
        cells = [
            _differences(found, lambda line: line["references"]["whole_graph"]),
            _differences(found, lambda line: line["metrics"]["test_accuracy"]),
            _ratios(found, "cpu_s"),
            _ratios(found, "bytes_up"),
        ]
        print(f"| {row.removesuffix(plain).strip()} | {len(found)} | {' | '.join(cells)} |")


Pairs = list[tuple[Settings, Settings]]


def _differences(pairs: Pairs, of: Callable[[Settings], Any]) -> str:
    if any(of(line) is None for pair in pairs for line in pair):
        return "–"
    apart = [float(of(one)) - float(of(other)) for one, other in pairs]
    return f"{np.mean(apart):+.4f} ({', '.join(f'{x:+.4f}' for x in apart)})"


def _ratios(pairs: Pairs, name: str) -> str:
    alike = [p for p in pairs if p[0]["references"].keys() == p[1]["references"].keys()]
    found = [one[name] / other[name] for one, other in alike if name in one and name in other]
    return f"{np.mean(found):.2f} ({min(found):.2f} to {max(found):.2f})" if found else "–"


def _cell(lines: list[Settings], of: Callable[[Settings], Any], digits: int = 4) -> str:
    numbers = [value for line in lines if (value := of(line)) is not None]
    if not numbers:
        return "–"
    spread = f" ± {np.std(numbers, ddof=1):.{digits}f}" if len(numbers) > 1 else ""
    return f"{np.mean(numbers):.{digits}f}{spread}"


if __name__ == "__main__":
    if sys.argv[1:2] == ["show"]:
        show(argparse.Namespace(file=sys.argv[2]))
    else:
        personalised.main(str(__doc__), rows, "masks", measure)
