"""The tables of FED-PUB beside its baselines: seeds, mean and deviation, chosen on validation.

    python benchmarks/fed_pub.py run TABLE --data DIR --out FILE [--seeds 3] [--first 1] [--jobs 2]
    python benchmarks/fed_pub.py show FILE

As benchmarks/personalised.py, whose rows of local, fed_avg and fed_per these repeat with more
places. Tables:

* places: the published places, four algorithms each; with --policy pilot the same, protected, and
  the share of rows of weights that were flattened;
* lambdas: the grid from which lambda1 and lambda2 were chosen, by validation accuracy, with a
  seed that no other table holds: --first 901 --seeds 1. lambda2 is searched with three steps in a
  round, since it does nothing where a round is one step;
* choices: tau, top, penalties without gradients, other optimisers;
* optimisers: what FedAvg owes to its optimiser;
* baselines, baselines_citeseer, baselines_computers, baselines_more: the methods that FED-PUB's
  table compares with, in one process (`_one_process.py`; --policy says nothing here); up to ten
  clients of Cora, of CiteSeer, of Amazon Computers, and all the rest;
* gcfl: which of its authors' bounds GCFL is cut by, with --first 901 --seeds 1;
* beside FILE: the tables of docs/results/fed_pub.md from these rows, as `show` prints rows.

    python benchmarks/fed_pub.py beside FILE
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # a script's folder is on the path, the folder above it is not
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import _one_process, personalised
from benchmarks._pub_table import beside
from benchmarks.personalised import NODES, Settings, main

PLACES = (
    *(
        (data, partition, clients)
        for data in ("cora", "citeseer")
        for partition, numbers in (("metis_disjoint", (5, 10, 20)), ("metis_overlap", (10, 30, 50)))
        for clients in numbers
    ),
    ("amazon_computers", "metis_disjoint", 10),
)
LAMBDAS_1 = (0.0, 1e-6, 1e-5, 3e-5, 1e-4, 1e-3)
LAMBDAS_2 = (0.0, 1e-3, 1e-2, 1e-1)
AUTHORS: Settings = {"model.optimiser": "adam", "model.keep_moments": True}
"""How the authors train: decay inside Adam's gradient, and moments that stay."""
OURS: Settings = {"model.optimiser": "adamw", "model.keep_moments": False}
PAPER: Settings = {"lambda1": 1e-3, "lambda2": 1e-3}
METHODS = ("local", "fed_avg", "fed_per", "gcfl", "fed_sage_plus")
FEW = (("metis_disjoint", 5), ("metis_disjoint", 10), ("metis_overlap", 10))
MOST = 50
LEAST = 4
"""Clients of the smallest sum under any policy."""
GROUPS = {"PROTEINS": (0.03, 0.06), "IMDB-BINARY": (0.025, 0.045), "NCI1": (0.04, 0.08)}
"""epsilon1 and epsilon2 of GCFL's authors where one data set is shared out."""
GROUP = "PROTEINS"
FEATURES = {"cora": 1433, "citeseer": 3703, "amazon_computers": 767}


def _at(data: str, partition: str, clients: int, name: str = "fed_pub", **options: Any) -> Settings:
    found: Settings = {
        **NODES,
        **AUTHORS,
        "algorithm.name": name,
        "algorithm.options": {"fed_pub": {"tau": 5.0 if partition == "metis_overlap" else 3.0}},
        "data.name": data,
        "data.partition.name": partition,
        "data.partition.clients": clients,
    }
    found["algorithm.options"]["fed_pub"].update(options)
    if data == "amazon_computers":
        found["algorithm.epochs"] = 2
    return found


def _places() -> Iterator[tuple[str, Settings]]:
    for place in PLACES:
        for name in ("fed_pub", "local", "fed_avg", "fed_per"):
            yield f"{' '.join(map(str, place))} {name}", _at(*place, name)


def _lambdas() -> Iterator[tuple[str, Settings]]:
    for clients in (5, 10):
        here = ("cora", "metis_disjoint", clients)
        for value in LAMBDAS_1:
            yield f"{clients} λ1={value:g}", _at(*here, lambda1=value)
        for value in LAMBDAS_2:
            three = {"algorithm.epochs": 3, "algorithm.rounds": 40}
            yield f"{clients} λ2={value:g} E=3", {**_at(*here, lambda2=value), **three}


def _choices() -> Iterator[tuple[str, Settings]]:
    here = ("cora", "metis_disjoint", 10)
    yield "as it is", _at(*here)
    for tau in (0.0, 1.0, 5.0, 10.0):
        yield f"τ={tau:g}", _at(*here, tau=tau)
    yield "top=4", _at(*here, top=4)
    yield "the paper's λ, live", _at(*here, **PAPER)
    yield "the paper's λ, official quirk", _at(*here, **PAPER, official_quirk=True)
    yield "AdamW", {**_at(*here), "model.optimiser": "adamw"}
    yield "AdamW anew in every round", {**_at(*here), **OURS}
    for name in ("local", "fed_avg"):
        yield f"{name}, AdamW anew", {**_at(*here, name), **OURS}


def _optimisers() -> Iterator[tuple[str, Settings]]:
    ways: dict[str, Settings] = {
        "Adam kept": {},
        "AdamW kept": {"model.optimiser": "adamw"},
        "AdamW anew": OURS,
    }
    for place in (("cora", "metis_disjoint", 20), ("cora", "metis_overlap", 30)):
        for label, more in ways.items():
            yield f"{' '.join(map(str, place))} {label}", {**_at(*place, "fed_avg"), **more}


def gcfl_bounds(data: str, group: str) -> Settings:
    """Return epsilon1 and epsilon2 of one of the authors' groups, for this model and step size.

    Theirs are norms of changes of 24,960 weights by Adam with step 1e-3, whose first step is
    1e-3 sqrt(24960) long whatever the data is. These are the same shares of the first step here.
    """
    base = 128 * (FEATURES[data] + 1) + 128 * 129
    scale = NODES["model.lr"] * base**0.5 / (1e-3 * 24960**0.5)
    epsilon1, epsilon2 = GROUPS[group]
    return {"epsilon1": round(epsilon1 * scale, 4), "epsilon2": round(epsilon2 * scale, 4)}


def _gcfl(data: str, partition: str, clients: int, group: str, least: int) -> Settings:
    found = _at(data, partition, clients, "gcfl")
    found["algorithm.options"] = {"gcfl": gcfl_bounds(data, group)}
    return {**found, "least": least}


def _bounds() -> Iterator[tuple[str, Settings]]:
    for group in GROUPS:
        yield group, _gcfl("cora", "metis_disjoint", 10, group, 1)


def _methods(place: tuple[str, str, int], names: tuple[str, ...]) -> Iterator[tuple[str, Settings]]:
    for name in names:
        if name.startswith("gcfl"):
            found = _gcfl(*place, GROUP, LEAST if name == "gcfl constrained" else 1)
        else:
            found = _at(*place, name)
            found["algorithm.options"]["fed_prox"] = {"mu": 0.001}
        yield f"{' '.join(map(str, place))} {name}", found


def _few(data: str) -> Iterator[tuple[str, Settings]]:
    """The places with few clients."""
    for place in FEW:
        yield from _methods((data, *place), METHODS[:-1])


def _baselines() -> Iterator[tuple[str, Settings]]:
    yield from _few("cora")
    # FedSage on this model is FedAvg that weighs clients alike, as FedSage+ does.
    yield from _methods(("cora", *FEW[0]), (METHODS[-1], "fed_sage"))


def _computers() -> Iterator[tuple[str, Settings]]:
    place = ("amazon_computers", "metis_disjoint", 10)
    yield from _methods(place, (*METHODS[:2], "fed_prox", *METHODS[2:-1]))


def _more() -> Iterator[tuple[str, Settings]]:
    """All that is left, what costs least first: NeighGen takes longer than training on Cora."""
    yield from _methods(("cora", "metis_disjoint", 10), ("gcfl constrained", METHODS[-1]))
    yield from _methods(("cora", "metis_overlap", 10), ("gcfl constrained", METHODS[-1]))
    for data in ("cora", "citeseer"):
        yield from _methods((data, "metis_disjoint", 20), METHODS[:-1])
        yield from _methods((data, "metis_overlap", 30), METHODS[:-1])
    for place in PLACES:
        first = place == ("cora", *FEW[0])  # in `baselines`
        yield from _methods(place, ("fed_pub",) if first else (*METHODS[-1:], "fed_pub"))
        if place[2] >= 2 * LEAST:  # five clients are never cut: FedPer's row
            yield from _methods(place, ("gcfl constrained",))
        if place[2] == MOST:
            yield from _methods(place, METHODS[:-1])


def rows(table: str) -> dict[str, Settings]:
    """Return a table's rows: label and settings."""
    tables = {
        "places": _places,
        "lambdas": _lambdas,
        "choices": _choices,
        "optimisers": _optimisers,
        "gcfl": _bounds,
        "baselines": _baselines,
        "baselines_citeseer": lambda: _few("citeseer"),
        "baselines_computers": _computers,
        "baselines_more": _more,
    }
    return dict(tables[table]())


def measure(facts: Settings, settings: Settings, data: str) -> dict[str, Any]:
    """Run one row with one seed, in one process or as a run."""
    apart = facts["table"] == "gcfl" or facts["table"].startswith("baselines")
    chosen = _one_process.measure if apart else personalised.measure
    return chosen(facts, settings, data)


if __name__ == "__main__":
    if sys.argv[1:2] == ["beside"]:
        beside(sys.argv[2])
    else:
        main(str(__doc__), rows, "unsafe_plaintext", measure)
