# ruff: noqa: E402 - a checkout comes onto the path, and its options into place, before it loads
"""OpenFGL's FedAvg or FED-PUB on our clients' parts, in an environment of its own.

    ENV/bin/python run.py CHECKOUT PARTS.npz ALGORITHM ROUNDS SEED

ALGORITHM is fedavg or fedpub. Its trainer, clients, server, task, model, loss and optimiser are its
own; data, masks and scoring are fed from outside by assignment, before the trainer is made.
"""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any

CHECKOUT, PARTS, ALGORITHM, ROUNDS, SEED = sys.argv[1:]
sys.path[:0] = [str(Path(__file__).resolve().parents[3]), CHECKOUT]
sys.argv = [sys.argv[0], "--fl_algorithm", ALGORITHM, "--model", "gcn", "--metrics", "accuracy"]

import numpy as np
import torch
from torch_geometric.data import Data
from torch_geometric.utils import scatter

from benchmarks._rounds import Best, Rounds, both_ways, load


def _without_compiled_extras() -> None:
    """Stand in for two packages that must be compiled.

    Of one, FED-PUB's model takes a sum by index, which PyG has as well; of the other it only asks
    whether something is one of its matrices.
    """
    sums, sparse = types.ModuleType("torch_scatter"), types.ModuleType("torch_sparse")

    def scatter_add(src: Any, index: Any, dim: int, dim_size: int) -> Any:
        return scatter(src, index, dim, dim_size, reduce="sum")

    sums.scatter_add = scatter_add  # type: ignore[attr-defined]
    for name in ("SparseTensor", "fill_diag", "matmul", "mul", "sum"):
        setattr(sparse, name, type(name, (), {}))
    sys.modules.update(torch_scatter=sums, torch_sparse=sparse)


_without_compiled_extras()

from openfgl.config import args
from openfgl.flcore import trainer as trainers
from openfgl.task.node_cls import NodeClsTask
from openfgl.utils.basic_utils import seed_everything

parts, marks, best = load(Path(PARTS)), Rounds(), Best()


def _data(number: int) -> Data:
    part = parts[number]
    classes = max(int(one["y"].max()) for one in parts) + 1
    return Data(
        x=torch.from_numpy(part["x"]),
        edge_index=torch.from_numpy(both_ways(part["edges"])),
        y=torch.from_numpy(part["y"]).long(),
        num_global_classes=classes,
        number=number,
    )


class _OurParts:
    """In the place of `FGLDataset`."""

    processed_dir = ""

    def __init__(self, _: Any) -> None:
        self.local_data = [_data(number) for number in range(len(parts))]
        self.global_data = _data(0)  # gives the server's model its shape


def _masks(task: Any) -> None:
    part = parts[task.data.number]
    task.train_mask, task.val_mask, task.test_mask = (
        torch.from_numpy(part[name]) for name in ("train", "val", "test")
    )
    task.splitted_data = task.processed_data = {
        "data": task.data,
        "train_mask": task.train_mask,
        "val_mask": task.val_mask,
        "test_mask": task.test_mask,
    }


@torch.no_grad()
def _evaluate(trainer: Any) -> None:
    right, of = np.zeros(2, np.int64), np.zeros(2, np.int64)
    for client in trainer.clients:
        model = client.task.model if trainer.server.personalized else trainer.server.task.model
        model.eval()
        hit = model(client.task.data)[1].argmax(1) == client.task.data.y
        for place, mask in enumerate((client.task.val_mask, client.task.test_mask)):
            right[place] += int(hit[mask].sum())
            of[place] += int(mask.sum())
    best.take(right, of)
    marks.ended()


def main() -> None:
    """Train, and print the row."""
    torch.set_num_threads(1)
    trainers.FGLDataset = _OurParts
    trainers.Logger = lambda *_: types.SimpleNamespace(save=lambda: None)
    NodeClsTask.load_train_val_test_split = _masks
    trainers.FGLTrainer.evaluate = _evaluate
    args.num_clients, args.num_rounds, args.num_epochs = len(parts), int(ROUNDS), 1
    args.use_cuda, args.seed, args.dataset = False, int(SEED), ["ours"]
    seed_everything(args.seed)
    out, sys.stdout = sys.stdout, sys.stderr
    trainers.FGLTrainer(args).train()
    sys.stdout = out
    marks.told(("torch", "torch_geometric"), test_accuracy=best.test)


if __name__ == "__main__":
    main()
