"""Runs of docs/results/ldp.md in which clients tell statistics under their own noise.

    python benchmarks/ldp_runs.py mean --data DIR --out FOLDER [--seeds 3] [--epsilons 1 8]
    python benchmarks/ldp_runs.py labels --data DIR --out FOLDER [--seeds 3]

`mean`: fed_per_gnn's form `told_mean` on ML-100K, 943 users. `labels`: fed_ego's `told_labels` on
Cora, 50 clients by METIS, w/o RL; there sums of gradients take about half of the run's epsilon, and
`told_epsilon` is that of the labels. Each run writes one line of JSON to rows.jsonl: what was told,
what is true, and what would be guessed without data (uniform shares, or the middle of the scale).
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

if __name__ == "__main__":  # a script's folder is on the path, the folder above it is not
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from protocols.plan.plan import Plan
from protocols.policy.policy import PRESETS, PrivacyPolicy
from secure_fgl.config import Config
from secure_fgl.federation import Federation

EXAMPLES = {"mean": "fed_per_gnn_ml100k.yaml", "labels": "fed_ego_cora.yaml"}


def policy_of(what: str, epsilon: float) -> PrivacyPolicy:
    """Return `ldp` with this epsilon of the run, which sums share where there are any."""
    document = PRESETS["ldp"].document()
    document["name"] = f"ldp-{what}"
    for guard in (*document["rules"]["NOISED"], *document["rules"]["SUM"]):
        if guard["guard"] == "own_noise":
            guard |= {"epsilon": epsilon, "accept_noise": True}
    if what == "labels":
        document["messages"] = ["Start", "Step", "Slope", "ToldLabels"]
    else:
        del document["rules"]["SUM"]
    return PrivacyPolicy.model_validate(document)


def federation_of(what: str, epsilon: float, seed: int, data: Path, folder: Path) -> Federation:
    """Return the federation of one run."""
    path = Path(__file__).parents[1] / "examples" / EXAMPLES[what]
    document = Config.load(path, []).model_dump(mode="json")
    policy = policy_of(what, epsilon)
    document |= {"seed": seed, "resume": False, "policy": policy.name}
    document["budget"] = {"store": str(folder / "budgets")}
    document["algorithm"]["rounds"] = 1
    document["data"]["root"], document["transport"]["workers"] = str(data), 1
    document["evaluation"] |= {"references": ["mean"] if what == "mean" else []}
    if what == "mean":
        document["model"]["name"] = "user_dot"
    else:
        document["data"]["partition"] = {"name": "metis_disjoint", "clients": 50}
        document["model"]["hidden"] = 32  # nothing of it is reported
        document["algorithm"]["options"]["fed_ego"] = {"average": False, "passes": 1}
    return Federation(config=Config.parse(document), policy=policy)


def told_epsilon(plan: Plan) -> float:
    """Return the epsilon of the one message that a client tells."""
    (item,) = (item for item in plan.items if item.noise and item.noise.pure)
    return float(item.noise.pure) if item.noise else 0.0


def shares_of(sites: Any, classes: int) -> np.ndarray:
    """Return the mean over clients of the classes' shares among training nodes, (C,)."""
    counts = [np.bincount(s.data.y.numpy()[s.data.train.numpy()], minlength=classes) for s in sites]
    return np.mean([c / c.sum() if c.sum() else np.full(classes, 1 / classes) for c in counts], 0)


def row(what: str, epsilon: float, seed: int, data: Path, folder: Path) -> dict[str, Any]:
    """Return what one run found."""
    federation = federation_of(what, epsilon, seed, data, folder)
    prepared = federation.prepare()
    prepared.load()
    (folder / "run").parent.mkdir(parents=True, exist_ok=True)
    run = federation.run(folder / "run")
    with np.load(folder / "run" / "checkpoints" / "final.npz") as file:
        final = {name: np.asarray(file[name], dtype=np.float64) for name in file.files}
    sites = prepared.sites
    if what == "mean":
        items, width = dict(prepared.task.layout())["items.table"]  # type: ignore[attr-defined]
        told = np.array([0.5 + 2.0 * final["weights"][items * (width + 1)]])
        rated = [s.data.rating.numpy()[s.data.train.numpy()] for s in sites]
        truth, guess = np.array([np.mean([(r.mean() - 1) / 4 for r in rated])]), np.array([0.5])
    else:
        told, classes = final["shares"], len(final["shares"])
        truth, guess = shares_of(sites, classes), np.full(classes, 1 / classes)
    return {
        "what": what, "epsilon": epsilon, "seed": seed, "form": run.result["form"],
        "clients": run.result["clients"], "verdict": run.result["verdict"],
        "told": told.round(6).tolist(), "truth": truth.round(6).tolist(),
        "error": float(np.linalg.norm(told - truth)),
        "guess": float(np.linalg.norm(guess - truth)),
        "references": run.result["references"], "bytes_up": run.result["bytes_up"],
        "told_epsilon": told_epsilon(federation.plan()),
    }  # fmt: skip


def main() -> None:
    """Read the command line, and write one line a run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("what", choices=sorted(EXAMPLES))
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("ldp-runs"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epsilons", type=float, nargs="+", default=[1.0, 2.0, 4.0, 8.0])
    chosen = parser.parse_args()
    for seed in range(1, chosen.seeds + 1):
        for epsilon in chosen.epsilons:
            folder = chosen.out / f"{chosen.what}-{epsilon:g}-{seed}"
            found = row(chosen.what, epsilon, seed, chosen.data, folder)
            with (chosen.out / "rows.jsonl").open("a") as file:
                file.write(json.dumps(found, sort_keys=True) + "\n")
            print(found, flush=True)


if __name__ == "__main__":
    main()
