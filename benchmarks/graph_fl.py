"""GraphFL beside its source document: few labels, new classes, and pseudo-labels that are right.

    python benchmarks/graph_fl.py run TABLE --data DIR --out FILE [--seeds 3] [--first 1] [--jobs 2]
    python benchmarks/graph_fl.py show FILE

As benchmarks/personalised.py. Tables:

* labels: 80 labels of each class over 50 clients, Algorithm 1 beside FedAvg and local models;
  `half` is FedAvg on as many labels as GraphFL's support half has, which is what the source
  document compares with;
* domains: its Table 2, Algorithm 2 beside FedAvg and transfer learning (`ahead: 0`), 2, 6 and 10
  labels of each class; domains_cs: the same on Coauthor CS, three new classes, 2 and 10 labels;
* asked: Algorithm 1 with 5 and 25 of 50 clients a round (`labels` has 10), its figure 3;
* overlap: Algorithm 1 and FedAvg on windows of Coauthor CS that overlap, SGC, its figure 4;
* pseudo: its Table 3, the share of pseudo-labels that are right, at 5, 10, 15 and 20 per class.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # a script's folder is on the path, the folder above it is not
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np

from benchmarks.personalised import Settings, main, measure, nested

DATA = ("cora", "citeseer")
MODELS = ("gcn", "sgc")
LABELS = (2, 6, 10)
PSEUDO = (5, 10, 15, 20)
COMMON: Settings = {
    "algorithm.rounds": 50,
    "algorithm.epochs": 15,
    "model.hidden": 16,
    "model.dropout": 0.5,
    "model.optimiser": "adamw",
    "model.keep_moments": False,
    "data.features": "row",
    "data.partition.clients": 50,
}
FIFTH = {"asked": 10}
"""Clients that GraphFL asks a round, of fifty."""
FEW: Settings = {**COMMON, "data.partition.name": "few_shot_shared_graph"}
NEW: Settings = {
    **COMMON,
    "algorithm.rounds": 20,
    "model.lr": 0.5,
    "data.features": "raw",  # plain steps on rows that sum to 1 hardly move
    "data.partition.name": "new_label_domain",
}


def _labels() -> Iterator[tuple[str, Settings]]:
    for data in DATA:
        for model in MODELS:
            base = {**FEW, "data.name": data, "model.name": model}
            for row, more in _ways(model):
                yield f"{data} {model} {row}", {**base, **more}


def _ways(model: str) -> Iterator[tuple[str, Settings]]:
    plain: Settings = {"algorithm.name": "graph_fl", "model.lr": 0.1}
    rate = 0.02 if model == "gcn" else 0.1

    def ours(**more: Any) -> Settings:
        return {**plain, "algorithm.options": {"graph_fl": {"meta_lr": rate, **FIFTH, **more}}}

    yield "graph_fl", ours()
    yield "graph_fl self-training 10", ours(self_training=10)
    yield "graph_fl stage II alone", ours(meta_lr=0.0)
    trained: Settings = {"model.lr": 0.01 if model == "gcn" else 0.1, "algorithm.rounds": 15}
    yield "fed_avg", {**trained, "algorithm.name": "fed_avg"}
    # FedAvg asks all clients: ten of fifty is GraphFL's handicap in this table, not FedAvg's.
    half = {"data.partition.options": {"per_class": 40}}
    yield "fed_avg half", {**trained, **half, "algorithm.name": "fed_avg"}
    yield "local", {**trained, "algorithm.name": "local", "algorithm.rounds": 5}


def _domains(
    names: Sequence[str] = DATA, numbers: Sequence[int] = LABELS, new: int = 2
) -> Iterator[tuple[str, Settings]]:
    for data in names:
        for model in MODELS:
            for labels in numbers:
                options = {"new_classes": new, "per_class": labels}
                place = {"data.name": data, "model.name": model, "data.partition.options": options}
                for row, own in (("graph_fl", {}), ("FL + TL", {"ahead": 0.0})):
                    chosen = {"graph_fl_domain": {"meta_lr": 0.2, **FIFTH, **own}}
                    more = {"algorithm.name": "graph_fl_domain", "algorithm.options": chosen}
                    yield f"{data} {model} {labels} {row}", {**NEW, **place, **more}


def _asked() -> Iterator[tuple[str, Settings]]:
    for model in MODELS:
        ((_, ours), *_) = _ways(model)
        for asked in (5, 25):
            options = {"graph_fl": {**ours["algorithm.options"]["graph_fl"], "asked": asked}}
            place = {"data.name": "cora", "model.name": model}
            row = f"cora {model} graph_fl asked {asked}"
            yield row, {**FEW, **place, **ours, "algorithm.options": options}


def _overlap() -> Iterator[tuple[str, Settings]]:
    windows: Settings = {**FEW, "data.name": "coauthor_cs", "model.name": "sgc"}
    windows["data.partition.name"] = "few_shot_overlap"
    for overlap in (0.0, 0.3, 0.6, 0.9):
        options = {"data.partition.options": {"overlap": overlap}}
        for row, more in _ways("sgc"):
            if row in ("graph_fl", "fed_avg"):
                yield f"coauthor_cs sgc {row} overlap {overlap}", {**windows, **options, **more}


def _pseudo() -> Iterator[tuple[str, Settings]]:
    for data in DATA:
        yield f"{data} gcn", {**FEW, "data.name": data, "model.name": "gcn", "model.lr": 0.01}


def share_right(facts: Settings, settings: Settings, data: str) -> dict[str, Any]:
    """Return how many pseudo-labels of all clients are right; the true labels are nobody's."""
    from algorithms._shared.few_shot import confident, few_shot
    from secure_fgl.config import Config
    from secure_fgl.data import load_dataset
    from secure_fgl.data.loading import load
    from secure_fgl.federation import Federation

    federation = Federation.from_config(Config.parse(nested(facts, settings, data)))
    config, (task, _) = federation.config, federation.build()
    client = few_shot(task, "graph_fl", query=0.5, self_training=max(PSEUDO), self_epochs=100)
    true = load_dataset(config.data.name, config.data.root).y  # type: ignore[union-attr]
    right: dict[int, list[Any]] = {most: [] for most in PSEUDO}
    for site in load(config, task).sites:
        predictions, classes = client.alone(site), np.unique(client.task.labelled(site).labels)
        for most in PSEUDO:
            found = confident(predictions, client.task.unlabelled(site), classes, most)
            right[most].append(true[found.records] == found.labels)
    shares = {f"test_right_{most}": float(np.concatenate(r).mean()) for most, r in right.items()}
    return {**facts, "metrics": shares, "references": {}}


def measured(facts: Settings, settings: Settings, data: str) -> dict[str, Any]:
    """Run one row with one seed."""
    return (share_right if facts["table"] == "pseudo" else measure)(facts, settings, data)


def rows(table: str) -> dict[str, Settings]:
    """Return a table's rows: label and settings."""
    if table == "domains_cs":
        return dict(_domains(["coauthor_cs"], [2, 10], 3))
    tables = {
        "labels": _labels,
        "domains": _domains,
        "asked": _asked,
        "overlap": _overlap,
        "pseudo": _pseudo,
    }
    return dict(tables[table]())


if __name__ == "__main__":
    main(str(__doc__), rows, "unsafe_plaintext", measured)
