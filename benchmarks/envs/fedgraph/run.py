# ruff: noqa: E402 - a checkout comes onto the path, and its options into place, before it loads
"""FedGraph's FedAvg on our clients' parts, unprotected, in an environment of its own.

    ENV/bin/python run.py CHECKOUT PARTS.npz ROUNDS SEED

Its `run_NC` is called with our clients' parts as its own data loader would hand them over; its
trainers are Ray actors. Its hidden width for Cora is 16, and cannot be set.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

CHECKOUT, PARTS, ROUNDS, SEED = sys.argv[1:]
# Both must be compiled. One is used by loaders of data, the other by another encryption: neither by
# this row. They are empty files, so that Ray's processes find them as well.
ABSENT = Path(tempfile.mkdtemp())
for name in ("openfhe", "torch_sparse"):
    (ABSENT / f"{name}.py").touch()
ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT), CHECKOUT, str(ABSENT)]
os.environ["PYTHONPATH"] = os.pathsep.join([CHECKOUT, str(ABSENT)])

import attridict
import numpy as np
import torch
from fedgraph import federated_methods

from benchmarks._rounds import Part, Rounds, both_ways, load

parts, marks = load(Path(PARTS)), Rounds()


def _whole(parts: list[Part]) -> tuple[Any, ...]:
    """Return all parts as FedGraph holds them: one numbering, and each client's own edges."""
    before = np.cumsum([0, *(len(part["y"]) for part in parts)])
    numbers = [torch.arange(a, b) for a, b in pairwise(before)]
    local = [torch.from_numpy(both_ways(part["edges"])) for part in parts]

    def own(mask: str) -> list[torch.Tensor]:
        return [torch.from_numpy(np.flatnonzero(part[mask])) for part in parts]

    def all_of(found: list[torch.Tensor]) -> torch.Tensor:
        return torch.cat([one + int(at) for one, at in zip(found, before, strict=False)])

    labels = torch.from_numpy(np.concatenate([part["y"] for part in parts])).long()
    masks = [own(name) for name in ("train", "val", "test")]
    return (
        torch.cat([one + int(at) for one, at in zip(local, before, strict=False)], dim=1),
        torch.from_numpy(np.concatenate([part["x"] for part in parts])),
        labels,
        *map(all_of, masks),
        int(labels.max()) + 1,
        numbers,
        numbers,
        *masks,
        local,
    )


def main() -> None:
    """Train, and print the row."""
    counted = federated_methods._weighted_nc_metric

    def mark(results: Any, weights: Any, metric: int) -> float:
        if metric:  # accuracy, the last of a round
            marks.ended()
        return float(counted(results, weights, metric))

    federated_methods._weighted_nc_metric = mark
    settings = {
        "fedgraph_task": "NC", "dataset": "cora", "method": "FedAvg", "num_hops": 0,
        "global_rounds": int(ROUNDS), "local_step": 1, "learning_rate": 0.5,
        "n_trainer": len(parts), "batch_size": -1, "num_layers": 2, "gpu": False,
        "num_cpus_per_trainer": 0.1, "num_gpus_per_trainer": 0, "use_encryption": False,
        "use_huggingface": False, "saveto_huggingface": False, "use_cluster": False,
        "use_lowrank": False, "use_dp": False, "iid_beta": 10000, "logdir": "runs",
        "distribution_type": "average", "seed": int(SEED),
        "ray_init_kwargs": {"num_cpus": 2, "include_dashboard": False},
    }  # fmt: skip
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        federated_methods.run_NC(attridict(settings), _whole(parts))
    found = re.findall(r"[Tt]est_?\s?[Aa]ccuracy\D*([01]?\.\d+)", said.getvalue())
    test = float(found[-1]) if found else None
    marks.told(("torch", "torch_geometric", "ray"), test_accuracy=test)


if __name__ == "__main__":
    main()
