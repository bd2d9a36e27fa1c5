"""The tables of FedEgo beside its baselines: seeds, mean and deviation, chosen on validation.

    python benchmarks/fed_ego.py run TABLE --data DIR --out FILE [--seeds 4] [--jobs 2]
    python benchmarks/fed_ego.py show FILE

As benchmarks/personalised.py. Tables, each for one form of the partition, as the paper's rule lets
test nodes of some clients train at others and no figure of one form compares with the other's:

* strict, published: Cora, CiteSeer and DBLP (the paper's Wiki has DBLP's sizes); Local, FedAvg,
  FedProx and FedEgo in both forms (the paper's Tables 2 and 3);
* strict_size, published_size: FedEgo and FedAvg on Cora as wide, at the rate and as long as the
  authors' program: 512, 3e-4 and 200 rounds;
* strict_long, published_long: the same for 300 rounds, as the best of 200 were among the last;
* strict_bare, published_bare: FedEgo at that size without dropout, which validation chose;
* strict_wide, published_wide: the same 512 wide for 100 rounds, at the rates that validation chose;
* strict_others, published_others: the paper's other baselines, GraphFL, D-FedGNN on a ring (UNSAFE)
  and FedGCN, see `_others`;
* strict_variants, published_variants: linear, w/o EGO, w/o PL, w/o RL, fixed shares, w/o Mixup,
  other gamma and other group sizes on Cora and CiteSeer (Tables 5, 6, 7 and 9, Figure 4).

Settings are smaller than the paper's (512 wide, 200 rounds, rate 3e-4; examples/fed_ego_cora.yaml
has those): 128 wide, 40 rounds. Rates were chosen for each algorithm by validation on Cora in the
strict form with seed 901, which is in no table, from 1e-3, 3e-3 and 1e-2 (best of at most 30, 30
and 12 rounds): FedEgo 0.847, 0.878, 0.862, so 3e-3; FedAvg 0.872, 0.870, 0.862 and Local 0.862,
0.856, 0.849, so 1e-3. FedProx has FedAvg's rate. At 512 (published form, seed 901, best of 60
rounds): FedEgo 0.908, 0.939 and 0.966 with 3e-4, 1e-3 and 3e-3, so 3e-3; FedAvg 0.989 with 1e-3 and
with 3e-3, so 1e-3. Batches are the paper's; no other was tried. Clients' own nodes do not judge the
global figure. With 30 % of the pool of seeds 901 and 902 in the place of the global test, which was
left out, it has 0.656, 0.705 and 0.702 with 1e-4, 3e-4 and 1e-3 (alpha_local 0.35, 140 test nodes,
512, 200 rounds), so 3e-4 as the authors have; and at 3e-4 0.717 and 0.724 with dropout 0.3 and 0 in
place of 0.705, and on clients' own nodes 0.908 and 0.935 in place of 0.885, so none.

Of the other baselines: D-FedGNN has FedAvg's rate; FedGCN's was chosen as clients' own validation
has it after 90 steps alone (Cora, strict, seed 901, two clients: 0.855, 0.849 and 0.836 with 3e-3,
1e-2 and 3e-2; after 30 steps 0.540, 0.853 and 0.855, so 1e-2), GraphFL's from 12 rounds of three of
those clients (best of four looks 0.471, 0.567 and 0.669 with 3e-4, 1e-3 and 3e-3, so 3e-3).

`--policy unsafe_plaintext`, the default, takes mixtures from groups that the seed draws, so that
runs repeat; rows `no_ego_upload` run under `strict`. Baselines train without dropout, as the
authors' do. Only FedEgo w/o Mixup says single ego-graphs.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # a script's folder is on the path, the folder above it is not
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.personalised import Settings, main

EGO: Settings = {
    "algorithm.name": "fed_ego",
    "algorithm.rounds": 40,
    "model.name": "ego_sage",
    "model.hidden": 128,
    "model.dropout": 0.5,
    "model.lr": 3e-3,
    "model.weight_decay": 0.0,
    "model.optimiser": "adam",
    "model.keep_moments": True,
    "model.batch": 32,
    "data.features": "row",
    "data.partition.name": "label_skew_major",
    "evaluation.at": "trained",
}
PLACES: dict[str, tuple[int, float, int]] = {
    "cora": (5, 0.5, 200),
    "citeseer": (5, 0.5, 200),
    "dblp": (10, 0.2, 300),
}
"""Clients, alpha_local and local test nodes of each data set, as in the authors' program."""

NODES = {"cora": 2708, "citeseer": 3327, "dblp": 17716}
_EXAMPLES = Path(__file__).parents[1] / "examples"
RING = str(_EXAMPLES / "ring_policy.yaml")
ROWS = str(_EXAMPLES / "rows_published_policy.yaml")
BASELINES: dict[str, dict[str, Any]] = {"local": {}, "fed_avg": {}, "fed_prox": {"mu": 0.001}}


def _at(data: str, *, strict: bool, **more: Any) -> Settings:
    clients, alpha, test_nodes = PLACES[data]
    shared = {"alpha_local": alpha, "test_nodes": test_nodes, "strict": strict}
    place = {"data.name": data, "data.partition.clients": clients}
    return {**EGO, **place, "data.partition.options": shared, **more}


def _with(base: Settings, **options: Any) -> Settings:
    return {**base, "algorithm.options": {"fed_ego": options}}


def _places(*, strict: bool) -> Iterator[tuple[str, Settings]]:
    for data in PLACES:
        here = _at(data, strict=strict)
        yield f"{data} fed_ego mixup", here
        yield f"{data} fed_ego no_ego_upload", {**here, "policy": "strict"}
        for name, options in BASELINES.items():
            chosen = {"algorithm.name": name, "algorithm.options": {name: options}}
            yield f"{data} {name}", {**here, **chosen, "model.dropout": 0.0, "model.lr": 1e-3}


OTHERS = {
    "graph_fl": 3e-3,
    "d_fed_gnn ring (UNSAFE)": 1e-3,
    "fed_gcn 0 hops": 1e-2,
    "fed_gcn 2 hops (UNSAFE)": 1e-2,
}
"""Step of each of the paper's other baselines, see the module's head."""


def _others(*, strict: bool) -> Iterator[tuple[str, Settings]]:
    for data in PLACES:
        for label, rate in OTHERS.items():
            yield f"{data} {label}", _other(data, label, rate, strict=strict)


def _other(data: str, label: str, rate: float, *, strict: bool) -> Settings:
    """Return one of the paper's other baselines.

    GraphFL as in FedEgo's program: 80 support and 80 query nodes, fifteen steps of Adam in each
    stage, and the aggregator steps by 1 along the mean query gradient. FedGCN is GCN of two layers,
    as wide as the others, five steps a round over all training nodes; with two hops clients know
    their edges to nodes that others hold, and say sums of rows in clear.
    """
    here = {**_at(data, strict=strict), "model.lr": rate, "model.dropout": 0.0}
    if label == "graph_fl":
        mean = 1.0 / PLACES[data][0]  # `plain` steps along the sum
        few = {"labels": 80, "inner": "adam", "tune_steps": 15}
        meta = {**few, "meta_lr": mean, "outer": "plain", "decay": 0.0}
        more: Settings = {"algorithm.options": {"graph_fl": meta}, "algorithm.epochs": 15}
        return {**here, **more, "algorithm.name": "graph_fl"}
    if label.startswith("d_fed_gnn"):
        more = {"algorithm.options": {"d_fed_gnn": {"topology": "ring"}}, "policy": RING}
        return {**here, **more, "algorithm.name": "d_fed_gnn"}
    net: Settings = {"model.name": "gcn", "model.dropout": 0.5, "model.batch": None}
    net |= {"algorithm.name": "fed_gcn", "algorithm.epochs": 5}
    if "2 hops" in label:
        net |= {"algorithm.options": {"fed_gcn": {"hops": 2, "nodes": NODES[data]}}, "policy": ROWS}
        here["data.partition.options"]["linked"] = True
    return {**here, **net}


def _size(*, strict: bool, rounds: int = 200) -> Iterator[tuple[str, Settings]]:
    authors = {"model.hidden": 512, "model.lr": 3e-4, "algorithm.rounds": rounds}
    here = {**_at("cora", strict=strict), **authors}
    yield "cora fed_ego 512", here
    yield "cora fed_avg 512", {**here, "algorithm.name": "fed_avg", "model.dropout": 0.0}


def _long(*, strict: bool) -> Iterator[tuple[str, Settings]]:
    yield from _size(strict=strict, rounds=300)


def _bare(*, strict: bool) -> Iterator[tuple[str, Settings]]:
    here = dict(_size(strict=strict))["cora fed_ego 512"]
    yield "cora fed_ego 512, no dropout", {**here, "model.dropout": 0.0}


def _wide(*, strict: bool) -> Iterator[tuple[str, Settings]]:
    here = {**_at("cora", strict=strict), "model.hidden": 512, "algorithm.rounds": 100}
    yield "cora fed_ego 512", here
    yield (
        "cora fed_avg 512",
        {**here, "algorithm.name": "fed_avg", "model.dropout": 0.0, "model.lr": 1e-3},
    )


def _variants(*, strict: bool) -> Iterator[tuple[str, Settings]]:
    for data in ("cora", "citeseer"):
        here = _at(data, strict=strict)
        yield f"{data} fed_ego", here
        yield f"{data} linear", {**here, "model.name": "ego_sage_linear"}
        yield f"{data} w/o EGO", {**here, "model.name": "ego_mlp"}
        yield f"{data} w/o PL", _with(here, fixed=0.0)
        yield f"{data} w/o RL", _with(here, average=False)
        yield f"{data} w/o Mixup", _with(here, mixup=False)
        for fixed in (0.5, 1.0):
            yield f"{data} λ={fixed:g}", _with(here, fixed=fixed)
        for gamma in (0.125, 0.25, 0.75, 1.0):
            yield f"{data} γ={gamma:g}", _with(here, gamma=gamma)
        for group in (8, 16, 64, 128):
            yield f"{data} b={group}", _with(here, group=group)


def rows(table: str) -> dict[str, Settings]:
    """Return a table's rows: label and settings."""
    form, _, kind = table.partition("_")
    made = {
        "": _places,
        "size": _size,
        "long": _long,
        "bare": _bare,
        "wide": _wide,
        "variants": _variants,
        "others": _others,
    }
    if form not in ("strict", "published") or kind not in made:
        raise KeyError(table)
    return dict(made[kind](strict=form == "strict"))


if __name__ == "__main__":
    main(str(__doc__), rows, "unsafe_plaintext")
