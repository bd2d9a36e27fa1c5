"""The tables of GCFL and GCFL+ beside self-training, FedAvg and FedProx on the convolutions.

    python benchmarks/gcfl.py run TABLE --data DIR --out FILE [--seeds 3] [--first 1] [--jobs 2]
    python benchmarks/gcfl.py show FILE
    python benchmarks/gcfl.py planted

Runs in the clear, see `benchmarks/_clusters.py`. FILE holds a line a run. Tables:

* molecules, mix: one data set a client, in the authors' settings with 200 rounds;
* proteins, imdb, nci1: one data set for 10, 10 and 30 clients; proteins30, imdb20: shuffled;
* small: the four smallest sets of molecules; proteins_short, imdb_short, mix_short: 40 rounds, and
  first_split 10;
* sequences_NAME: the norms of all clients' changes in a run that is never cut, with NAME one of
  the above; how the forms of GCFL+ would cut along them.

`plain mean`: the norm of the mean change is of all clients alike, as in the authors' code; else it
is weighted by records, as in the paper.

Guards of a row: `none` sums clusters of any size, as published; `constrained` and `leave` are ours
with the smallest cohort of four. A test figure is the mean over clients at the round with the best
mean validation accuracy; the authors' is each client's best of all cached models on the test graphs
("oracle", cached at splits and at the end), which chooses nothing here. Settings are the authors'.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

if __name__ == "__main__":  # a script's folder is on the path, the folder above it is not
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks._gcfl_tables import show, show_planted
from benchmarks.personalised import Settings, federation, nested
from benchmarks.personalised import run as run_rows

GIN: Settings = {
    "model.name": "gin_shared",
    "model.hidden": 64,
    "model.layers": 3,
    "model.dropout": 0.5,
    "model.lr": 1e-3,
    "model.weight_decay": 5e-4,
    "model.optimiser": "adam",
    "model.keep_moments": True,
    "model.batch": 128,
    "algorithm.rounds": 200,
}


def _several(name: str, clients: int, epsilon1: float, epsilon2: float) -> Settings:
    return {
        **GIN,
        "data.name": name,
        "data.partition.name": "graphs_multi_dataset",
        "data.partition.clients": clients,
        "clusters": {"epsilon1": epsilon1, "epsilon2": epsilon2, "length": 5},
    }


def _one(name: str, clients: int, epsilon1: float, epsilon2: float, length: int) -> Settings:
    place = {"data.name": name, "data.partition.name": "graphs_one_dataset"}
    found = _several(name, clients, epsilon1, epsilon2)
    found["clusters"]["length"] = length
    return {**found, **place}


def _short(settings: Settings) -> Settings:
    return {
        **settings,
        "algorithm.rounds": 40,
        "clusters": {**settings["clusters"], "first_split": 10},
    }


def _shuffled(settings: Settings, clients: int) -> Settings:
    drawn = {"data.partition.options": {"shuffled": True}}
    return {**settings, **drawn, "data.partition.clients": clients}


MOLECULES = _several("tu_molecules", 6, 0.07, 0.28)
PROTEINS = _one("proteins", 10, 0.03, 0.06, 10)
IMDB = _one("imdb_binary", 10, 0.025, 0.045, 5)
PLACES: dict[str, Settings] = {
    "molecules": MOLECULES,
    "mix": _several("tu_mix", 11, 0.08, 0.40),
    "proteins": PROTEINS,
    "imdb": IMDB,
    "nci1": _one("nci1", 30, 0.04, 0.08, 5),
    "proteins30": _shuffled(PROTEINS, 30),
    "imdb20": _shuffled(IMDB, 20),
    "mix_short": _short(_several("tu_mix", 11, 0.08, 0.40)),
    "small": {**_short(MOLECULES), "first": 4},
    "proteins_short": _short(PROTEINS),
    "imdb_short": _short(IMDB),
}


def rows(table: str) -> dict[str, Settings]:
    """Return a table's rows: label and settings."""
    if table.startswith("sequences_"):
        place = PLACES[table.removeprefix("sequences_")]
        return {"never cut": {**place, "algorithm.name": "gcfl_plus", "guard": "sequences"}}
    return dict(_rows(PLACES[table]))


def _rows(place: Settings) -> Iterator[tuple[str, Settings]]:
    yield "self-train", {**place, "algorithm.name": "local"}
    yield "FedAvg on convolutions", {**place, "algorithm.name": "fed_per"}
    prox = {"algorithm.options": {"fed_per": {"mu": 0.01}}}
    yield "FedProx on convolutions", {**place, "algorithm.name": "fed_per", **prox}
    for guard in ("none", "constrained", "leave"):
        yield f"GCFL {guard}", {**place, "algorithm.name": "gcfl", "guard": guard}
        for form in ("pivots", "correlation", "norms"):
            plus = {**place, "algorithm.name": "gcfl_plus", "guard": guard, "form": form}
            yield f"GCFL+ {form} {guard}", plus
    if place["data.partition.name"] == "graphs_multi_dataset":  # else clients weigh alike
        yield PLAIN, {**place, "algorithm.name": "gcfl", "guard": "none", "mean": "plain"}
        for guard in ("none", "constrained"):
            for form in ("correlation", "norms"):
                plus = {**place, "algorithm.name": "gcfl_plus", "guard": guard, "form": form}
                yield f"GCFL+ {form} {guard}, plain mean", {**plus, "mean": "plain"}
        more = {"algorithm.name": "gcfl", "guard": "constrained", "mean": "plain"}
        yield "GCFL constrained, plain mean", {**place, **more}


def _settled(settings: Settings) -> tuple[Settings, str]:
    """Return the settings of a configuration, and the guard."""
    found = dict(settings)
    guard, form = found.pop("guard", "none"), found.pop("form", "correlation")
    options, name = dict(found.pop("clusters")), found["algorithm.name"]
    mean = found.pop("mean", "weighted")
    found.pop("first", None)
    if name == "gcfl_plus":
        options["form"] = form
    if name in ("gcfl", "gcfl_plus"):
        options["cut_guard"] = guard if guard in ("constrained", "leave") else "constrained"
        if name == "gcfl":
            del options["length"]
        options["mean"] = mean
        if guard == "sequences":
            options.update(epsilon2=None, length=2)
        found["algorithm.options"] = {name: options}
    return found, guard


def measure(facts: Settings, settings: Settings, data: str) -> dict[str, Any]:
    """Run one row with one seed; `facts` are its table, row and seed."""
    os.environ["OMP_NUM_THREADS"] = "1"
    from benchmarks._clusters import LEAST, looked, played
    from protocols.rounds import Cohort
    from secure_fgl.run.driver import one_thread_and_deterministic

    began = time.perf_counter()
    chosen, guard = _settled(settings)
    document = nested({**facts, "policy": "unsafe_plaintext"}, chosen, data)
    made = federation(document)
    task, algorithm = made.build()
    prepared = made.prepare()
    prepared.load()
    found = prepared.sites[: settings.get("first")]
    sites = {f"client-{place:03d}": site for place, site in enumerate(found)}
    form = algorithm.forms[0].plain or algorithm.forms[0]
    cohort = Cohort(sorted(sites), needed=_needed(guard))
    told: dict[str, Any] = {"looked": [], "sizes": [], "norms": [], "compared": 0}
    with one_thread_and_deterministic():
        state: Any = algorithm.init(np.random.default_rng(facts["seed"]))
        state = getattr(state, "state", state)
        rounds = document["algorithm"]["rounds"]
        for number in range(1, rounds + 1):
            before = len(cohort.parts)
            least = 1 if guard == "none" else LEAST
            state, asked = played(form, form.round(state, cohort), sites, least)
            told["compared"] += asked
            sizes = [part.size for part in cohort.parts]
            told["sizes"].append(sizes)
            if guard == "sequences":
                told["norms"].append([float(site.memory["norms"][-1]) for site in found])
            if number % 4 == 0 or number == rounds or len(sizes) != before:
                cached = number == rounds or len(sizes) != before
                seen = looked(task, algorithm, state, sites)
                told["looked"].append([number, cached, seen])
    return {**facts, **_summary(told), "wall_s": round(time.perf_counter() - began, 1)}


def _needed(guard: str) -> int:
    from benchmarks._clusters import LEAST

    return {"none": 2, "leave": LEAST + 1}.get(guard, 2 * LEAST)


def _summary(told: dict[str, Any]) -> dict[str, Any]:
    means = [np.mean(seen, axis=0) for _, _, seen in told["looked"]]
    best = int(np.argmax([mean[0] for mean in means]))
    number, _, clients = told["looked"][best]
    cached = np.array([seen for _, kept, seen in told["looked"] if kept])
    sizes = told["sizes"]
    changes = [[n + 1, s] for n, s in enumerate(sizes) if n == 0 or s != sizes[n - 1]]
    return {
        "best_round": number,
        "val": float(means[best][0]),
        "test": float(means[best][1]),
        "last_test": float(means[-1][1]),
        "oracle": float(cached[:, :, 1].max(axis=0).mean()),
        "clients": [round(test, 4) for _, test in clients],
        "sizes": changes,
        "compared": told["compared"],
        "norms": np.round(np.array(told["norms"]).T, 6).tolist(),
    }


PLAIN = "GCFL none, plain mean"
FIRST = ("self-train", "FedProx on convolutions", "GCFL none", PLAIN)


def run(options: argparse.Namespace) -> None:
    """Run what FILE does not hold yet; where nobody was ever compared, rows are known (`_same`)."""
    options.policy, options.only = "clear", options.only or []

    def first(table: str) -> dict[str, Settings]:
        return {label: row for label, row in rows(table).items() if label in FIRST}

    run_rows(options, first, measure)
    if not options.only and Path(options.out).exists():
        _same(Path(options.out), options.table)
    run_rows(options, rows, measure)


def _same(out: Path, table: str) -> None:
    """Add the rows that equal GCFL's, which was never cut and never compared anybody.

    All rows of GCFL and GCFL+ have one criterion, and train alike until it is met; FedAvg always.
    """
    lines = [json.loads(line) for line in out.read_text("utf-8").splitlines()]
    done = {(one["table"], one["row"], one["seed"]) for one in lines}
    with out.open("a", encoding="utf-8") as file:
        for line in lines:
            if line["table"] != table or line.get("compared") != 0:
                continue
            for label in _alike(line["row"], table):
                if (table, label, line["seed"]) not in done:
                    known = {**line, "row": label, "same_as": line["row"], "wall_s": 0.0}
                    file.write(json.dumps(known, sort_keys=True) + "\n")


def _alike(row: str, table: str) -> list[str]:
    """Return the rows that equal one of GCFL in which nobody was compared."""
    plain = {"GCFL none": False, PLAIN: True}.get(row)
    return [label for label in rows(table) if label not in FIRST and ("plain" in label) is plain]


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
    runs.add_argument("--jobs", type=int, default=2)
    runs.add_argument("--only", nargs="*", default=[])
    runs.set_defaults(do=run)
    verbs.add_parser("planted").set_defaults(do=show_planted)
    shows = verbs.add_parser("show")
    shows.add_argument("file")
    shows.set_defaults(do=show)
    options = parser.parse_args()
    options.do(options)


if __name__ == "__main__":
    main()
