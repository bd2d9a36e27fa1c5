"""The tables of docs/results/defaults.md: which settings of a model are its defaults.

    python benchmarks/defaults.py run TABLE --data DIR --out FILE [--seeds 3] [--jobs 1]
    python benchmarks/defaults.py show FILE

Tables: sieve (one seed), finalists, steps, models, graphs, now, epochs, layer, alone, labels.
A label begins with the data, then how they are shared out and R rounds of E epochs; what stands
behind the bar are a model's settings: optimiser, whether it keeps its moments, step, dropout.

Tables that choose hold validation figures and no others. Clients train and models are averaged as
in a run, but without the layer: its totals are rounded to a grid, which moves a figure by some
thousandths, and a row takes a third of the time. `now` is what was chosen, and what stood before,
with test figures; `epochs` the same with three epochs a round; `layer` is `now` as users run it;
`alone` is what the same clients reach with nothing sent (the simulator's references of nodes), and
`labels` the cheapest of it, labels run along edges.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

if __name__ == "__main__":  # a script's folder is on the path, the folder above it is not
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from audits.report.learning import ON_NODES
from benchmarks import personalised
from benchmarks.personalised import Settings, main, nested

Choice = tuple[str, bool, float, float]
"""Optimiser, whether moments are kept, step size, dropout."""

BEFORE: Choice = ("adamw", False, 0.01, 0.5)
FINALISTS: tuple[Choice, ...] = (
    BEFORE,
    ("adamw", True, 0.01, 0.5),
    ("adamw", True, 0.02, 0.0),
    ("adamw", True, 0.03, 0.0),
    ("adamw", True, 0.03, 0.2),
    ("adamw", True, 0.03, 0.5),
)
FOUR = ("cora", "citeseer", "amazon_computers", "coauthor_cs")


def _place(data: str, partition: str, clients: int, rounds: int, epochs: int) -> Settings:
    return {
        "data.name": data,
        "data.partition.name": partition,
        "data.partition.clients": clients,
        "algorithm.rounds": rounds,
        "algorithm.epochs": epochs,
    }


def _row(place: Settings, choice: Choice, **model: object) -> tuple[str, Settings]:
    """Return a row: its label and all its settings; every setting that is chosen is written out."""
    optimiser, keeps, lr, dropout = choice
    settings: Settings = {
        **place,
        "model.hidden": 64,
        "model.optimiser": optimiser,
        "model.keep_moments": keeps,
        "model.lr": lr,
        "model.dropout": dropout,
        "model.weight_decay": 5e-4,
        "data.features": "raw",
        **{name.replace("__", "."): value for name, value in model.items()},
    }
    where = [
        place["data.name"],
        place["data.partition.name"],
        place["data.partition.clients"],
        f"{place['algorithm.rounds']}x{place['algorithm.epochs']}",
    ]
    said = [optimiser, "kept" if keeps else "anew", f"{lr:g}", f"{dropout:g}"]
    said += [f"{name.rpartition('__')[2]}={value}" for name, value in model.items()]
    return f"{' '.join(map(str, where))} | {' '.join(said)}", settings


def _sieve() -> Iterator[tuple[str, Settings]]:
    """Three sets, one partition, many settings."""
    for data in FOUR[:3]:
        place = _place(data, "louvain_balanced", 10, 50, 1)
        for lr, dropout in product((0.003, 0.01, 0.03), (0.0, 0.5)):
            yield _row(place, ("adamw", False, lr, dropout))
        for lr, dropout in product((0.01, 0.03, 0.1), (0.0, 0.2, 0.5)):
            yield _row(place, ("adamw", True, lr, dropout))
        for lr, dropout in ((0.01, 0.5), (0.03, 0.2)):
            yield _row(place, ("adam", True, lr, dropout))
        for lr in (0.3, 1.0):
            yield _row(place, ("sgd", False, lr, 0.5))
        yield _row(place, ("adamw", True, 0.03, 0.2), model__weight_decay=0.05)
        yield _row(place, ("adamw", True, 0.03, 0.2), data__features="standard")
        yield _row(place, ("adamw", True, 0.1, 0.2), data__features="l2")


def _finalists() -> Iterator[tuple[str, Settings]]:
    """One step a round on all four sets."""
    for data in FOUR:
        for choice in FINALISTS:
            yield _row(_place(data, "louvain_balanced", 10, 50, 1), choice)
    for data in ("amazon_computers", "cora"):
        place = _place(data, "louvain_balanced", 10, 50, 1)
        for choice in (BEFORE, ("adamw", True, 0.03, 0.2)):
            yield _row(place, choice, data__features="standard")


def _steps() -> Iterator[tuple[str, Settings]]:
    """Fewer rounds of more steps, and other partitions."""
    for data, partition in product(FOUR[:3], ("metis_disjoint", "dirichlet_label")):
        for choice in FINALISTS:
            yield _row(_place(data, partition, 5, 20, 3), choice)


def _models() -> Iterator[tuple[str, Settings]]:
    """The other models of nodes."""
    for data, model in product(("cora", "amazon_computers"), ("graph_sage", "sgc", "gcn_linear")):
        for choice in FINALISTS[:2]:
            yield _row(_place(data, "louvain_balanced", 10, 50, 1), choice, model__name=model)


def _graphs() -> Iterator[tuple[str, Settings]]:
    """Molecules with GIN: what stands, and what is best for nodes."""
    for data in ("bbbp", "mutag", "proteins"):
        place = _place(data, "dirichlet_count", 5, 20, 1)
        for choice in (
            BEFORE,
            ("adamw", False, 0.003, 0.5),
            ("adamw", True, 0.01, 0.5),
        ):
            yield _row(place, choice)


def _now() -> Iterator[tuple[str, Settings]]:
    """The page's figures: what stood before, and no setting but the data and the hidden width."""
    for data in FOUR:
        place = {"data.name": data, "data.partition.clients": 10, "model.hidden": 64}
        before = dict(zip(_NAMES, BEFORE, strict=True))
        yield f"{data} before", {**place, **before, "model.weight_decay": 5e-4}
        yield f"{data} now", place
        yield f"{data} now, width 128", {**place, "model.hidden": 128}


def _alone(references: Sequence[str]) -> Iterator[tuple[str, Settings]]:
    """The same clients and no federation: references of nodes for which nothing is sent."""
    for data in FOUR:
        place = {"data.name": data, "data.partition.clients": 10, "model.hidden": 64}
        rounds = {"algorithm.rounds": 50, "algorithm.epochs": 1}
        yield f"{data} alone", {**place, **rounds, "evaluation.references": list(references)}


def _epochs() -> Iterator[tuple[str, Settings]]:
    """The same with three epochs a round, which is what OpenFGL takes where nobody says."""
    for label, settings in _now():
        yield f"{label}, three epochs", {**settings, "algorithm.epochs": 3}


_NAMES = ("model.optimiser", "model.keep_moments", "model.lr", "model.dropout")


def rows(table: str) -> dict[str, Settings]:
    """Return a table's rows: label and settings."""
    tables = {
        "sieve": _sieve,
        "finalists": _finalists,
        "steps": _steps,
        "models": _models,
        "graphs": _graphs,
        "now": _now,
        "layer": _now,
        "alone": lambda: _alone(ON_NODES),
        "labels": lambda: _alone(["propagation"]),
        "epochs": _epochs,
    }
    return dict(tables[table]())


def measure(facts: Settings, settings: Settings, data: str) -> dict[str, Any]:
    """Run one row with one seed."""
    if facts["table"] == "layer":
        return personalised.measure(facts, settings, data)
    os.environ["OMP_NUM_THREADS"] = "1"
    from secure_fgl.config import Config
    from secure_fgl.federation import Federation
    from secure_fgl.run.driver import one_thread_and_deterministic

    document = nested(facts, settings, data)
    config = Config.parse(document)
    federation = Federation.from_config(config)
    if facts["table"] in ("alone", "labels"):
        return {**facts, "metrics": {}, "references": _references(federation)}
    with one_thread_and_deterministic():
        shared = {name: document[name] for name in ("data", "seed", "policy")}
        try:
            scores = _trained(federation, json.dumps(shared))
        except FloatingPointError as diverged:
            return {**facts, "metrics": {}, "references": {}, "diverged": str(diverged)}
    names = federation.build()[0].scoring.names
    kinds = ("val_", "test_") if facts["table"] in ("now", "epochs") else ("val_",)
    kept = [name for name in names if name.startswith(kinds) and not name.endswith("_mean")]
    best = int(np.argmax([merit for _, merit in scores]))
    told, last = ({name: scores[place][0][name] for name in kept} for place in (best, -1))
    return {**facts, "metrics": {**told, "best_round": best}, "references": {}, "last": last}


def _references(federation: Any) -> dict[str, Any]:
    """Return what the simulator would set beside a run."""
    from secure_fgl.data.loading import load
    from secure_fgl.run.driver import one_thread_and_deterministic
    from secure_fgl.run.reference import Bystander

    task, _ = federation.build()
    with one_thread_and_deterministic():
        loaded = load(federation.config, task)
        found: dict[str, Any] = Bystander(
            task, loaded.sites, loaded.whole, federation.config
        ).references()
    return found


def _trained(federation: Any, key: str) -> list[tuple[dict[str, Any], float]]:
    """Return the pooled metrics and their merit before training and after every round."""
    from algorithms.tasks import Site
    from algorithms.tasks.evaluation import total
    from secure_fgl.run.parties import client_names, learning_seed

    task, config = federation.build()[0], federation.config
    names, seed = client_names(config.data.partition.clients), config.seed
    sites = [
        Site(held, seed=learning_seed(seed, "site", name))
        for held, name in zip(_data(key), names, strict=True)
    ]
    counts = np.array([site.count for site in sites], dtype=np.float64)
    weights = task.initial(np.random.default_rng(learning_seed(seed, "init")))
    scores = []
    for number in range(config.algorithm.rounds + 1):
        if number:
            fitted = [task.fit(weights, site, epochs=config.algorithm.epochs) for site in sites]
            weights = np.average(fitted, axis=0, weights=counts).astype(np.float32)
        found = total([task.score(task.predict(weights, site), site) for site in sites])
        scores.append((task.scoring.read(found), task.scoring.merit(found) or -np.inf))
    return scores


@lru_cache(maxsize=1)
def _data(key: str) -> list[Any]:
    """Return the clients' data; rows that follow one another often share them."""
    from secure_fgl.config import Config
    from secure_fgl.data.loading import load
    from secure_fgl.federation import Federation

    config = Config.parse(json.loads(key))
    task, _ = Federation.from_config(config).build()
    return [site.data for site in load(config, task).sites]


if __name__ == "__main__":
    main(str(__doc__), rows, "unsafe_plaintext", measure)
