"""What a round costs: learning alone, ours under each policy, and peers on the same clients.

    python benchmarks/rounds.py --data DIR [--sets cora …] [--rounds 22] [--repeats 3]
        [--openfgl PYTHON CHECKOUT] [--fedgraph PYTHON CHECKOUT] [--rows NAME …]

Every row is a process of its own with one thread; rows of a set take turns, so a busy machine hits
all alike. Figures are seconds of clock and of processor a round, without the first two rounds;
ratios are medians over the repeats of rows that ran side by side. `learning` is what clients and
aggregator compute in such a run, without the message layer; `bare` the same in PyG's own layers
and torch's optimiser. Peers' environments: benchmarks/envs.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

if __name__ == "__main__":  # a script's folder is on the path, the folder above it is not
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks._measure import paired_ratio, parser
from benchmarks._rounds import Best, Rounds, both_ways, load, save

HERE = Path(__file__).resolve().parent
NODES: dict[str, Any] = {
    "model": {"name": "gcn", "hidden": 64},
    "partition": {"name": "louvain_balanced"},
}
SETS: dict[str, dict[str, Any]] = {
    "cora": NODES,
    "amazon_computers": NODES,
    "bbbp": {"model": {"name": "gin", "hidden": 64}, "partition": {"name": "dirichlet_count"}},
    "ml100k": {
        "model": {"name": "dot", "hidden": 16},
        "partition": {"name": "user_per_client", "clients": 943},
    },
}
"""What trains on each set and how it is shared out; one epoch a round, all else by default."""

POLICIES = ("unsafe_plaintext", "masks", "he")
WORKERS = 2
Row = dict[str, Any]


def settings(name: str, clients: int, rounds: int, seed: int, **more: Any) -> dict[str, Any]:
    """Return the document of a configuration."""
    chosen = {**SETS[name], **more}
    partition = {"clients": clients, **chosen.pop("partition")}
    return {
        "algorithm": {"name": chosen.pop("algorithm", "fed_avg"), "rounds": rounds, "epochs": 1},
        "data": {"name": name, "root": chosen.pop("root"), "partition": partition},
        "evaluation": {"at": "downloaded", "references": []},
        "seed": seed,
        **chosen,
    }


def ours(document: dict[str, Any]) -> None:
    """Run as users do, with ledgers and kept state on disk, and print the row."""
    from secure_fgl.config import Config
    from secure_fgl.federation import Federation

    marks = Rounds()
    with tempfile.TemporaryDirectory() as folder:
        federation = Federation.from_config(Config.parse(document))
        run = federation.run(Path(folder) / "run", progress=marks.ended)
        metrics, model = run.result["metrics"], run.model_sha256
    marks.told(("torch",), **_test(metrics), model=model)


def learning(document: dict[str, Any]) -> None:
    """Train, add and score as clients and aggregator of that run do, without the message layer."""
    from algorithms.tasks.evaluation import total
    from secure_fgl.config import Config
    from secure_fgl.federation import Federation
    from secure_fgl.run.driver import one_thread_and_deterministic

    prepared = Federation.from_config(Config.parse(document)).prepare()
    prepared.load()
    task, sites = prepared.task, prepared.sites
    counts = np.array([site.data.count for site in sites], dtype=np.float32)
    weights, marks = task.initial(np.random.default_rng(prepared.plan.seed)), Rounds()
    merit, found = -np.inf, dict[str, Any]()
    with one_thread_and_deterministic():
        for _ in range(prepared.plan.rounds):
            scores = [task.score(task.predict(weights, site), site) for site in sites]
            pooled = total(scores)
            if (value := task.scoring.merit(pooled) or -np.inf) > merit:
                merit, found = value, task.scoring.read(pooled)
            fitted = [task.fit(weights, site, epochs=1) for site in sites]
            weights = sum(
                (share * one for share, one in zip(counts / counts.sum(), fitted, strict=True)),
                start=np.zeros_like(weights),
            )
            marks.ended()
    marks.told(("torch",), **_test(found))


def _test(metrics: Any) -> Row:
    return {name: metrics[name] for name in metrics if name.startswith("test_")}


def bare(file: Path, document: dict[str, Any]) -> None:
    """A loop in PyTorch Geometric that trains, adds and scores the same, and prints the row."""
    import torch
    from torch.nn import functional
    from torch_geometric.nn import GCNConv

    from secure_fgl.config import Config
    from secure_fgl.federation import Federation

    config = Federation.from_config(Config.parse(document)).config
    said: Any = config.model
    torch.set_num_threads(1)
    parts, marks, best = load(file), Rounds(), Best()
    classes = max(int(part["y"].max()) for part in parts) + 1

    class Gcn(torch.nn.Module):
        def __init__(self, features: int) -> None:
            super().__init__()
            self.first = GCNConv(features, said.hidden, cached=True)
            self.second = GCNConv(said.hidden, classes, cached=True)

        def forward(self, x: Any, edges: Any) -> Any:
            hidden = functional.dropout(self.first(x, edges).relu(), said.dropout, self.training)
            return self.second(hidden, edges)

    names = ("x", "edges", "y", "train", "val", "test")
    clients: list[tuple[Any, ...]] = []
    for part in parts:
        held = {**part, "edges": both_ways(part["edges"])}
        model = Gcn(part["x"].shape[1])
        steps = torch.optim.AdamW(model.parameters(), lr=said.lr, weight_decay=said.weight_decay)
        clients.append((model, steps, *(torch.from_numpy(held[name]) for name in names)))
    counts = torch.tensor([float(part["train"].sum()) for part in parts])
    shares = (counts / counts.sum()).tolist()
    shared = {name: one.clone() for name, one in clients[0][0].state_dict().items()}
    for _ in range(config.algorithm.rounds):
        right, of, added = np.zeros(2, np.int64), np.zeros(2, np.int64), dict[str, Any]()
        for share, (model, steps, x, edges, y, *masks) in zip(shares, clients, strict=True):
            model.load_state_dict(shared)
            model.eval()
            with torch.no_grad():
                hit = model(x, edges).argmax(1) == y
            for place, mask in enumerate(masks[1:]):
                right[place] += int(hit[mask].sum())
                of[place] += int(mask.sum())
            model.train()
            steps.zero_grad()
            functional.cross_entropy(model(x, edges)[masks[0]], y[masks[0]]).backward()
            steps.step()
            for name, one in model.state_dict().items():
                added[name] = added[name] + share * one if name in added else share * one
        shared = added
        best.take(right, of)
        marks.ended()
    marks.told(("torch", "torch_geometric"), test_accuracy=best.test)


def parts_of(document: dict[str, Any], file: Path) -> None:
    """Write the clients' parts of a node set for rows that are not ours."""
    from secure_fgl.config import Config
    from secure_fgl.federation import Federation

    prepared = Federation.from_config(Config.parse(document)).prepare()
    prepared.load()
    save(file, [_arrays(site.data) for site in prepared.sites])


def _arrays(data: Any) -> dict[str, Any]:
    import torch

    whole = data.x if isinstance(data.x, torch.Tensor) else data.x.matrix.to_dense()
    plain = {name: getattr(data, name).numpy() for name in ("edges", "y", "train", "val", "test")}
    return {"x": whole.numpy().astype(np.float32), **plain}


class Turn:
    """The rows of one set, each a command.

    Args:
        name: of the set.
        options: of the command line.
        file: the clients' parts, written if the set has nodes.
    """

    def __init__(self, name: str, options: argparse.Namespace, file: Path) -> None:
        self._name, self._options, self._file = name, options, file
        self._nodes = SETS[name] is NODES
        if self._nodes:
            parts_of(self._document(), file)

    def rows(self) -> Iterator[tuple[str, list[str]]]:
        """Yield each row's name and command."""
        options, here = self._options, [sys.executable, str(Path(__file__).resolve())]
        yield "learning", [*here, "one", "learning", json.dumps(self._document())]
        for policy in POLICIES:
            for workers in (1, WORKERS):
                document = self._document(policy=policy, transport={"workers": workers})
                name = policy if workers == 1 else f"{policy} x{workers}"
                yield name, [*here, "one", "ours", json.dumps(document)]
        if not self._nodes:
            return
        rounds, seed, file = str(options.rounds), str(options.seed), str(self._file)
        yield "bare", [*here, "one", "bare", file, json.dumps(self._document())]
        pub = {"algorithm": "fed_pub", "model": {"hidden": 64}}
        document = self._document(policy="pilot", **pub)
        yield "fed_pub pilot", [*here, "one", "ours", json.dumps(document)]
        if options.openfgl:
            python, checkout = options.openfgl
            run = [python, str(HERE / "envs" / "openfgl" / "run.py"), checkout, file]
            for algorithm in ("fedavg", "fedpub"):
                yield f"openfgl {algorithm}", [*run, algorithm, rounds, seed]
        if options.fedgraph:
            python, checkout = options.fedgraph
            run = [python, str(HERE / "envs" / "fedgraph" / "run.py"), checkout, file]
            yield "fedgraph", [*run, rounds, seed]

    def _document(self, **more: Any) -> dict[str, Any]:
        options = self._options
        return settings(
            self._name, options.clients, options.rounds, options.seed, root=options.data, **more
        )


def play(command: list[str]) -> Row:
    """Run a row; raises CalledProcessError if it failed."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(  # noqa: S603 - our own script, and peers' that the caller named
        command, env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    found: Row = json.loads(done.stdout.splitlines()[-1])
    return found


def measure(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Return every row of a set, and the ratios that the page quotes."""
    found: dict[str, list[Row]] = {}
    with tempfile.TemporaryDirectory() as folder:
        rows = dict(Turn(name, options, Path(folder) / "parts.npz").rows())
        wanted = {row: rows[row] for row in options.rows or rows}
        for _ in range(options.repeats):
            for row, command in wanted.items():
                found.setdefault(row, []).append(play(command))
    return {"set": name, "rows": dict(_summary(found)), "ratios": dict(_ratios(found))}


def _summary(found: dict[str, list[Row]]) -> Iterator[tuple[str, Row]]:
    for name, rows in found.items():
        times = {key: statistics.median(row[key] for row in rows) for key in ("wall_s", "cpu_s")}
        yield name, {**rows[0], **times}


PAIRS = (
    ("unsafe_plaintext", "bare"),
    ("unsafe_plaintext", "learning"),
    ("masks", "unsafe_plaintext"),
    ("he", "unsafe_plaintext"),
    ("learning", "openfgl fedavg"),
    ("masks", "openfgl fedavg"),
    (f"masks x{WORKERS}", "openfgl fedavg"),
    ("he", "openfgl fedavg"),
    (f"he x{WORKERS}", "openfgl fedavg"),
    ("fed_pub pilot", "openfgl fedpub"),
    ("he", "fedgraph"),
)


def _ratios(found: dict[str, list[Row]]) -> Iterator[tuple[str, float]]:
    for over, under in PAIRS:
        if over in found and under in found:
            for key in ("cpu_s", "wall_s"):
                taken = {name: [row[key] for row in found[name]] for name in (over, under)}
                yield f"{over} / {under} {key}", paired_ratio(taken, over, under)


def main() -> None:
    """Measure, or play one row."""
    if sys.argv[1:2] == ["one"]:
        kind, *rest = sys.argv[2:]
        one: dict[str, Callable[[], None]] = {
            "ours": lambda: ours(json.loads(rest[0])),
            "learning": lambda: learning(json.loads(rest[0])),
            "bare": lambda: bare(Path(rest[0]), json.loads(rest[1])),
        }
        return one[kind]()
    options = parser(__doc__ or "", 3)
    options.add_argument("--data", required=True)
    options.add_argument("--sets", nargs="+", default=list(SETS), choices=SETS)
    options.add_argument("--rows", nargs="+")
    options.add_argument("--rounds", type=int, default=22)
    options.add_argument("--clients", type=int, default=10)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--openfgl", nargs=2, metavar=("PYTHON", "CHECKOUT"))
    options.add_argument("--fedgraph", nargs=2, metavar=("PYTHON", "CHECKOUT"))
    taken = options.parse_args()
    for name in taken.sets:
        found = measure(name, taken)
        if taken.format == "json":
            print(json.dumps(found))
            continue
        print(name)
        for row, facts in found["rows"].items():
            test = {key: round(value, 4) for key, value in _test(facts).items() if value}
            print(f"  {row:<22} {facts['cpu_s']:8.4f} cpu {facts['wall_s']:8.4f} wall  {test}")
        for ratio, value in found["ratios"].items():
            print(f"  {ratio:<48} {value:6.2f}")
    return None


if __name__ == "__main__":
    main()
