"""What rows cost on Coauthor CS: the last table of docs/results/fed_gcn.md.

    python benchmarks/fed_gcn_coauthor.py run --data DIR --out FILE [--only WORD ...] [--seed 1]
    python benchmarks/fed_gcn_coauthor.py show FILE

FedGCN on Coauthor CS (18,333 nodes, 6,805 columns), split 0.2/0.4/0.4, GCN of 64 hidden units, 30
rounds of 3 local epochs with steps of 0.05: after 20 rounds with the default's steps, projected
features had taught next to nothing. `256 columns`: features by row, times a public random matrix.
Every row is a process of its own, of all roles on one core; `peak_mb` is the most memory that it
held, with the libraries, and `first_s` the first round and all before it, loading included, less a
later round.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import yaml

if __name__ == "__main__":  # a script's folder is on the path, the folder above it is not
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.fed_gcn import Settings, timed

NODES, COLUMNS, ROUNDS = 18333, 256, 30
METIS: Settings = {"name": "metis_disjoint", "clients": 20, "options": {"linked": True}}
EVEN: Settings = {"name": "dirichlet_linked", "clients": 10, "options": {"beta": 10000.0}}
PLACES = {"METIS 20": METIS, "even 10": EVEN}
SIZES = {"cap": 4096, "links": 16384, "rows": 4096}
"""Numbers that a client asks tags of, terms that it names, rows that it is told; a cap of 4,096 is
the most that the guard admits."""
FORMS = {
    "0 hops": (0, "masks"),
    "published, 2 hops": (2, "rows_published_policy.yaml"),
    "thresholded, 2 hops": (2, "rows_policy.yaml"),
    "noised, 2 hops": (2, "rows_noised_policy.yaml"),
}
NARROW = f"{COLUMNS} columns, "
ROWS = (
    f"METIS 20: {NARROW}0 hops",
    f"METIS 20: {NARROW}published, 2 hops",
    f"METIS 20: {NARROW}thresholded, 2 hops",
    "METIS 20: 0 hops",
    f"METIS 20: {NARROW}noised, 2 hops",
    f"even 10: {NARROW}0 hops",
    f"even 10: {NARROW}published, 2 hops",
    f"even 10: {NARROW}thresholded, 2 hops",
    "METIS 20: published, 2 hops",
    "even 10: 0 hops",
    "even 10: published, 2 hops",
)
"""What costs least first. Ten even parts have more neighbours than a cap of tags admits."""


def document(row: str, seed: int, data: str, folder: Path) -> Settings:
    """Return one row's configuration; budgets and the policy stand in `folder`."""
    place, _, form = row.partition(": ")
    narrow, form = form.startswith(NARROW), form.removeprefix(NARROW)
    hops, policy = FORMS[form]
    if policy != "masks":
        found = yaml.safe_load((Path(__file__).parents[1] / "examples" / policy).read_text())
        for guard in found["rules"]["ROW_SUM"]:
            if guard["guard"] == "rows" and guard.get("form") != "published":
                guard.update(SIZES)
        (folder / policy).write_text(yaml.safe_dump(found))
        policy = str(folder / policy)
    options = {"hops": hops, "nodes": NODES} if hops else {}
    return {
        "algorithm": {
            "name": "fed_gcn",
            "rounds": ROUNDS,
            "epochs": 3,
            "options": {"fed_gcn": options},
        },
        "data": {
            "name": "narrow_coauthor_cs" if narrow else "coauthor_cs",
            "root": data,
            "features": "raw" if narrow else "row",
            "options": {"columns": COLUMNS} if narrow else {},
            "split": [0.2, 0.4, 0.4],
            "partition": PLACES[place],
        },
        "model": {"name": "gcn", "hidden": 64, "layers": 2, "lr": 0.05},
        "evaluation": {"references": ["centralised"] if form == "0 hops" else []},
        **({"plugins": [str(Path(__file__).with_name("narrow.py"))]} if narrow else {}),
        "policy": policy,
        "budget": {"store": str(folder / "budgets")},
        "transport": {"workers": 1},
        "resume": False,
        "seed": seed,
    }


def measure(row: str, seed: int, data: str) -> dict[str, Any]:
    """Run one row; `refused` says why, where its policy did not let it run."""
    from protocols.errors import PolicyError, RemoteProtocolError

    with tempfile.TemporaryDirectory() as name:
        try:
            found = timed(document(row, seed, data, Path(name)), Path(name))
        except (PolicyError, RemoteProtocolError) as error:
            found = {"metrics": {}, "refused": str(error)}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"row": row, "seed": seed, **found, "peak_mb": round(peak)}


def run(out: Path, data: str, seed: int, only: list[str]) -> None:
    """Append what is missing."""
    lines = out.read_text("utf-8").splitlines() if out.exists() else []
    have = {(found["row"], found["seed"]) for found in map(json.loads, lines)}
    alone = multiprocessing.get_context("spawn")
    for row in ROWS:
        if (row, seed) in have or not all(word in row for word in only):
            continue
        with ProcessPoolExecutor(1, mp_context=alone) as pool:
            found = pool.submit(measure, row, seed, data).result()
        with out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(found, sort_keys=True) + "\n")
        print(found, flush=True)


def show(file: Path) -> None:
    """Print the table."""
    print("| clients, columns, rows | test accuracy | centralised | rows told | s | peak MB |")
    print("|---|" + "---:|" * 5)
    for found in map(json.loads, file.read_text("utf-8").splitlines()):
        if not found["metrics"]:
            print(f"| {found['row']} | refused | – | – | – | {found['peak_mb']:,} |")
            continue
        centre = found["references"].get("centralised")
        cells = [
            f"{found['metrics']['test_accuracy']:.4f}",
            "–" if centre is None else f"{centre:.4f}",
            "–" if found["told"] is None else f"{found['told']:,}",
            f"{found['first_s']:.0f}",
            f"{found['peak_mb']:,}",
        ]
        print(f"| {found['row']} | {' | '.join(cells)} |")


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    runs = verbs.add_parser("run")
    runs.add_argument("--data", required=True)
    runs.add_argument("--out", type=Path, required=True)
    runs.add_argument("--seed", type=int, default=1)
    runs.add_argument("--only", nargs="*", default=[])
    verbs.add_parser("show").add_argument("file", type=Path)
    given = parser.parse_args()
    if given.verb == "run":
        run(given.out, given.data, given.seed, given.only)
    else:
        show(given.file)


if __name__ == "__main__":
    main()
