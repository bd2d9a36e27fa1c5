"""Small graphs of bags of words whose clients answer any model by one exact step of training."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch

from audits.attacks import Bags, Exposure, Layers, Replica, Truth

F, H, C = 400, 24, 6
NODES, TRAIN, CLIENTS = 60, 20, 8
D = F * H + H + H * C + C
LAYERS = Layers(
    first=(slice(0, F * H), (F, H)),
    first_bias=(slice(F * H, F * H + H), (H,)),
    last_weight=(slice(F * H + H, D - C), (H, C)),
    last_bias=(slice(D - C, D), (C,)),
)
LR, LARGEST, STEP = 0.1, 50.0, 2e-3


class Site:
    """One graph: a few common words and some rare ones a record, every word with one weight."""

    def __init__(self, rng: np.random.Generator) -> None:
        odds = 1.0 / np.sqrt(np.arange(1, F + 1))
        held = np.zeros((NODES, F))
        for row in held:
            row[rng.choice(F, size=rng.integers(8, 14), replace=False, p=odds / odds.sum())] = 1.0
        self.x = (held / held.sum(axis=1, keepdims=True)).astype(np.float32)
        ends = rng.integers(NODES, size=(2, NODES // 2))
        near = np.eye(NODES)
        near[ends[0], ends[1]] = near[ends[1], ends[0]] = 1.0
        root = 1.0 / np.sqrt(near.sum(axis=1))
        self.p = (root[:, None] * near * root[None, :]).astype(np.float32)
        self.y = rng.integers(C, size=NODES)
        self.train = np.arange(NODES) < TRAIN

    @property
    def bags(self) -> Bags:
        return Bags(sp.csr_array(self.x), self.train, np.diag(self.p).astype(np.float64))

    def change(self, weights: np.ndarray, optimiser: str) -> np.ndarray:
        """Return TRAIN times what one step of training changes, float64 (D,)."""
        flat = torch.tensor(weights, requires_grad=True)
        kind = torch.optim.AdamW if optimiser == "adamw" else torch.optim.SGD
        stepper = kind([flat], lr=LR if optimiser == "sgd" else 0.01, weight_decay=5e-4)
        w0, b0, w1, b1 = torch.split(flat, [F * H, H, H * C, C])
        hidden = torch.relu(torch.tensor(self.p) @ (torch.tensor(self.x) @ w0.view(F, H)) + b0)
        logits = torch.tensor(self.p) @ (hidden @ w1.view(H, C)) + b1
        train = torch.tensor(self.train)
        torch.nn.functional.cross_entropy(logits[train], torch.tensor(self.y)[train]).backward()
        stepper.step()
        return TRAIN * (flat.detach().numpy().astype(np.float64) - weights)


def replica(
    *, noise: float = 0.0, optimiser: str = "sgd", alone: bool = False, **facts: Any
) -> Replica:
    """Return clients that answer; noise on every number that is read, or each read `alone`.

    A replica remembers in `play.models` what its clients were given.
    """
    rng = np.random.default_rng(5)
    sites = {f"client-{n}": Site(rng) for n in range(CLIENTS)}

    def rounded(values: np.ndarray, draws: np.random.Generator) -> np.ndarray:
        levels = np.clip(values, -LARGEST, LARGEST) / STEP
        low = np.floor(levels)
        return STEP * (low + (draws.random(levels.size) < levels - low))

    def play(models: Sequence[np.ndarray], draws: np.random.Generator) -> list[list[Exposure]]:
        play.models = models  # type: ignore[attr-defined]
        return [answers(number, model, draws) for number, model in enumerate(models, 1)]

    def lead(
        wanted: Callable[[np.ndarray], np.ndarray],
        rounds: int,
        beyond: bool,
        draws: np.random.Generator,
    ) -> list[list[Exposure]]:
        model, found, others = start, [], [*sites][1:]
        largest = given["largest"] * ((CLIENTS - 1) if beyond else 1)
        counted = TRAIN * len(others)
        for number in range(1, rounds + 1):
            found.append(answers(number, model, draws, others))
            added = np.clip((wanted(model) - model) * counted, -largest, largest)
            moved = found[-1][0].seen["delta"] + added  # type: ignore[index]
            model = (model + moved / counted).astype(np.float32)
        return found

    def answers(
        number: int, model: np.ndarray, draws: np.random.Generator, of: Sequence[str] = ()
    ) -> list[Exposure]:
        raws = {n: site.change(model, optimiser) for n, site in sites.items() if not of or n in of}
        read = {name: rounded(raw, draws) for name, raw in raws.items()}
        total = np.sum(list(read.values()), axis=0) + noise * draws.normal(size=D)
        return [
            Exposure(
                client=name,
                round=number,
                known={"weights": model.astype(np.float64)},
                raw={"delta": raws[name], "count": np.array(TRAIN)},
                seen={
                    "delta": read[name] if alone else total,
                    "count": np.array(TRAIN * (1 if alone else len(raws))),
                },
                cohort=1 if alone else len(raws),
                truth=Truth(),
                lr=LR,
                steps=1,
            )
            for name in raws
        ]

    start = rng.uniform(-0.06, 0.06, size=D).astype(np.float32)
    given: dict[str, Any] = {
        "model": "gcn", "depth": 2, "optimiser": optimiser, "lr": LR, "layers": LAYERS,
        "start": start, "ask": "train", "norm": "linf", "bound": 0.5, "weighted": True,
        "largest": LARGEST, "step": STEP, "noise": noise, "decay": 0.0,
        "leader": "client-0", "lead": lead,
        "bags": {name: site.bags for name, site in sites.items()}, "play": play,
    }  # fmt: skip
    given |= facts
    return Replica(**given)
