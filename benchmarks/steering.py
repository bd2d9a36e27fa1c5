"""The tables of docs/results/steering.md: one client that steers the model that all compute.

    python benchmarks/steering.py run --data DIR --out FILE
    python benchmarks/steering.py show FILE

Cora, `metis_disjoint`, 5 clients, FedAvg, 6 rounds, plain gradient descent, three seeds, one
model of traps a seed, for 64 records of the other four clients. Within the clip, as a client that
runs this code is bound, and beyond it, as one that runs its own is not. The control is the bound of
training records that plans had before, 1,024 where sites have about 108 each, which is refused now:
it is let through here.

`look` rows ask what a client would see that looks, before it answers, for units of the first layer
that wake for fewer than k of its records: with honest models (a false alarm), with traps, and with
traps that come in pairs, of which both wake for many and one of them for one record more.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

SEEDS = (1, 2, 3)
ROUNDS = 6
FEW = (2, 3, 5)
"""Records for fewer of which a unit that wakes is looked at as a trap."""
LATER = 50
Settings = dict[str, Any]
SGD: Settings = {"hidden": 64, "lr": 0.1, "optimiser": "sgd", "dropout": 0.0}
ADAMW: Settings = {"hidden": 64, "lr": 0.01, "optimiser": "adamw", "dropout": 0.5}
WAYS: tuple[tuple[str, str, Settings], ...] = (
    ("masks", "bound 1,024: as before, refused now", {"records": 1024}),
    ("pilot", "bound 1,024: as before, refused now", {"records": 1024}),
    ("masks", "bound 256: the default", {}),
    ("pilot", "bound 256: the default", {}),
    ("masks", "bound 128", {"records": 128}),
    ("masks", "bound 256, grid of 10 bits", {"bits": 10}),
    ("masks", "bound 256, AdamW, dropout 0.5", {"model": ADAMW}),
)


def made(policy: str, seed: int, data: str, given: Mapping[str, Any], rounds: int = ROUNDS) -> Any:
    """Return a federation, whatever its bound of records."""
    from protocols.disclosures.names import Disclosure
    from protocols.policy.guards import Quantise
    from protocols.policy.policy import PrivacyPolicy
    from secure_fgl.config import Config
    from secure_fgl.data import loading
    from secure_fgl.federation import Federation

    loading._check_bound = lambda *_, **__: None
    document = {
        "algorithm": {"name": "fed_avg", "rounds": rounds},
        "model": given.get("model", SGD),
        "data": {
            "name": "cora",
            "root": data,
            "features": "row",
            "partition": {"name": "metis_disjoint", "clients": 5},
            "records": given.get("records"),
        },
        "evaluation": {"references": []},
        "policy": policy,
        "resume": False,
        "seed": seed,
    }
    found = PrivacyPolicy.preset(policy)
    if bits := given.get("bits"):
        chain = found.rules[Disclosure.SUM]
        finer = tuple(Quantise(bits=bits) if isinstance(g, Quantise) else g for g in chain)
        found = found.changed(name="own", rules={**found.rules, Disclosure.SUM: finer})
    return Federation(config=Config.parse(document), policy=found)


def replica(federation: Any, folder: str, data: str) -> Any:
    """Return the clients of a run, ready to answer."""
    from secure_fgl.attack_inputs.materials import material

    found = material(federation.run(Path(folder) / "run"), data=Path(data)).replica
    if found is None:
        raise SystemExit("the clients cannot be asked again")
    return found


def steered(policy: str, given: Settings, seed: int, data: str) -> Settings:
    """Return what one client reads, within the clip and beyond it."""
    from audits.attacks._methods.traps import Known, led

    with tempfile.TemporaryDirectory() as folder:
        clients = replica(made(policy, seed, data, given), folder, data)
    others = {n: bags for n, bags in clients.bags.items() if n != clients.leader}
    known = Known.of(replace(clients, bags=others), np.random.default_rng(seed), 1)
    if known is None:
        raise SystemExit("there is nobody to attack")
    found: Settings = {"targets": len(known.targets), "prior": _of(known.guesses[1])}
    records = sum(int(bags.train.sum()) for bags in others.values())
    for way, beyond in (("clip", False), ("own code", True)):
        shot = led(clients, known, np.random.default_rng(seed), ROUNDS, beyond=beyond)[-1]
        most = clients.largest * ((len(clients.bags) - 1) if beyond else 1) / records
        found[way] = {"move": most, **{s: _of(getattr(shot, s)) for s in ("raw", "null", "seen")}}
    return found


def _of(stolen: Any) -> Settings:
    return {name: float(getattr(stolen, name).mean()) for name in ("whole", "f1")}


def looked(seed: int, data: str) -> Settings:
    """Return what clients see that look for units that few of their records wake."""
    from audits.attacks._methods.traps import Known, crafted, force_of

    with tempfile.TemporaryDirectory() as folder:
        federation = made("masks", seed, data, {})
        clients = replica(federation, folder, data)
        prepared = federation.prepare()
        prepared.load()
    rows = {n: _rows(s.data) for n, s in zip(prepared.plan.clients, prepared.sites, strict=True)}
    draws = np.random.default_rng(seed)
    played = clients.lead(lambda model: model, LATER, False, draws)
    honest = [one[0].known["weights"] for one in played]
    known = Known.of(clients, draws, 1)
    if known is None:
        raise SystemExit("there is nobody to attack")
    force = force_of(clients, known.usual, known.records)
    facts = {"usual": known.usual, "force": force}
    half = known.targets[: clients.layers.first[1][1] // 2]
    single = crafted(clients.layers, clients.start.size, half, known.popularity, **facts)
    paired = _paired(clients, known, single, len(half))
    return {
        "honest": {f"{k}": _alarms(clients, honest, rows, k) for k in FEW},
        "traps": {f"{k}": _alarms(clients, [single], rows, k) for k in FEW},
        "pairs": {f"{k}": _alarms(clients, [paired], rows, k) for k in FEW},
        "read": {
            "traps": _read(clients, known, single, half, 0, draws),
            "pairs": _read(clients, known, paired, half, len(half), draws),
        },
    }


def _rows(data: Any) -> Any:
    """Return what the first layer makes of training nodes, before its weights, (n, F)."""
    from secure_fgl.attack_inputs.replayed import _csr

    x = data.x.matrix if hasattr(data.x, "matrix") else None
    table = _csr(x) if x is not None else data.x.numpy()
    return (_csr(data.propagation("symmetric").matrix) @ table)[np.flatnonzero(data.train.numpy())]


def _alarms(clients: Any, models: Iterable[Any], rows: Mapping[str, Any], few: int) -> float:
    """Return the share of answers before which a client sees a unit that few records wake."""
    found = []
    for model in models:
        weights = clients.layers.part(model, clients.layers.first)
        bias = clients.layers.part(model, clients.layers.first_bias)
        for table in rows.values():
            woken = (np.asarray(table @ weights) + bias > 0).sum(axis=0)
            found.append(bool(((woken > 0) & (woken < few)).any()))
    return float(np.mean(found))


def _paired(clients: Any, known: Any, single: Any, many: int) -> Any:
    """Return traps beside units that wake for all that hold a popular word, which both do."""
    found, layers = single.copy(), clients.layers
    parts = {p: layers.part(found, getattr(layers, p)).copy() for p in
             ("first", "first_bias", "last_weight")}  # fmt: skip
    common = int(np.argmax(known.popularity))
    loud = 1e4 * np.abs(parts["first_bias"]).max()
    parts["first"][:, many : 2 * many] = 0.0
    for unit in range(many):
        parts["first_bias"][many + unit] = parts["first_bias"][unit]
        parts["last_weight"][many + unit] = parts["last_weight"][unit]
        parts["first"][common, [unit, many + unit]] = loud
    for name, part in parts.items():
        found[getattr(layers, name)[0]] = part.ravel()
    return found


def _read(clients: Any, known: Any, model: Any, targets: Any, beside: int, draws: Any) -> Settings:
    """Return what comes out of a total, of each unit, or of each less the one beside it."""
    from audits.attacks._methods.span import read_words
    from audits.attacks._methods.traps import Stolen, trap_of

    total = clients.play([model.astype(np.float32)], draws)[0][0].seen["delta"].ravel()
    named = []
    for unit, target in enumerate(targets):
        column = trap_of(total, clients.layers, unit)[0]
        if beside:
            column = column - trap_of(total, clients.layers, unit + beside)[0]
        named.append(read_words(column, target.known, 3.0 * clients.step))
    return _of(Stolen.of(targets, named, known.named[: len(targets)]))


def rows() -> Iterator[Settings]:
    """Yield every row."""
    for seed in SEEDS:
        yield from ({"policy": policy, "what": what, "seed": seed} for policy, what, _ in WAYS)
        yield {"policy": "masks", "what": "look", "seed": seed}


def run(options: argparse.Namespace) -> None:
    """Run what FILE does not hold yet."""
    out, done = Path(options.out), set()
    if out.exists():
        lines = (json.loads(line) for line in out.read_text("utf-8").splitlines())
        done = {json.dumps(line["chosen"], sort_keys=True) for line in lines}
    given = {(policy, what): facts for policy, what, facts in WAYS}
    for chosen in rows():
        if json.dumps(chosen, sort_keys=True) in done:
            continue
        place = chosen["policy"], chosen["what"]
        if chosen["what"] == "look":
            found = looked(chosen["seed"], options.data)
        else:
            found = steered(place[0], given[place], chosen["seed"], options.data)
        with out.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"chosen": chosen, **found}, sort_keys=True) + "\n")
        print(chosen, file=sys.stderr)


def show(options: argparse.Namespace) -> None:
    """Print both tables."""
    lines = [json.loads(line) for line in Path(options.file).read_text("utf-8").splitlines()]
    heads = ("run", "a client", "moves a weight", "word for word", "F1", "prior F1", "raw", "null")
    print(f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    for policy, what, _ in WAYS:
        those = [n for n in lines if (n["chosen"]["policy"], n["chosen"]["what"]) == (policy, what)]
        for way in ("clip", "own code"):
            each = [line[way] for line in those]
            cells = (
                _mean(one["move"] for one in each),
                *(_mean(one["seen"][name] for one in each) for name in ("whole", "f1")),
                _mean(line["prior"]["f1"] for line in those),
                *(_mean(one[side]["whole"] for one in each) for side in ("raw", "null")),
            )
            who = "within the clip" if way == "clip" else "with code of its own"
            print(f"| {policy}, {what} | {who} | {' | '.join(cells)} |")
    those = [line for line in lines if line["chosen"]["what"] == "look"]
    print(f"\n| model | {' | '.join(f'fewer than {k}' for k in FEW)} | word for word | F1 |")
    print(f"|{'---|' * (len(FEW) + 3)}")
    for kind in ("honest", "traps", "pairs"):
        cells = [_mean(line[kind][f"{k}"] for line in those) for k in FEW]
        read = [line["read"].get(kind) for line in those]
        cells += [_mean(one[name] for one in read) if all(read) else "" for name in ("whole", "f1")]
        print(f"| {kind} | {' | '.join(cells)} |")


def _mean(values: Iterable[float]) -> str:
    found = np.array(list(values))
    return f"{found.mean():.3f} ± {found.std():.3f}"


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    verbs = parser.add_subparsers(required=True)
    runs = verbs.add_parser("run")
    runs.add_argument("--data", required=True)
    runs.add_argument("--out", required=True)
    runs.set_defaults(do=run)
    shows = verbs.add_parser("show")
    shows.add_argument("file")
    shows.set_defaults(do=show)
    options = parser.parse_args()
    options.do(options)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
