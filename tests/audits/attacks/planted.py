"""Planted leaks: small graphs, a two-layer GCN and the exact change that training makes of it.

Features are random words, so they say nothing of class or client: whatever an attack finds, it
finds in the message.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import torch

from audits.attacks import Attack, Exposure, Layers, Material, Samples, Truth
from audits.attacks._shared.verdicts import Judgement, judge
from audits.evidence.steps import Case

F, H, C = 150, 24, 4
NODES, TRAIN = 90, 10
D = F * H + H + H * C + C
LAYERS = Layers(
    first=(slice(0, F * H), (F, H)),
    last_weight=(slice(F * H + H, F * H + H + H * C), (H, C)),
    last_bias=(slice(D - C, D), (C,)),
)


def parts(weights: torch.Tensor) -> list[torch.Tensor]:
    """Return W0, b0, W1, b1 of a flat vector."""
    sizes = (F * H, H, H * C, C)
    w0, b0, w1, b1 = torch.split(weights, sizes)
    return [w0.reshape(F, H), b0, w1.reshape(H, C), b1]


class Client:
    """One random graph with skewed labels; far: nodes more than two hops from training nodes."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.x = (rng.random((NODES, F)) < 0.08).astype(np.float32)
        ends = rng.integers(NODES, size=(2, NODES // 2))
        near = np.eye(NODES)
        near[ends[0], ends[1]] = near[ends[1], ends[0]] = 1.0
        root = 1.0 / np.sqrt(near.sum(axis=1))
        self.p = (root[:, None] * near * root[None, :]).astype(np.float32)
        self.y = rng.choice(C, size=NODES, p=rng.dirichlet(np.full(C, 0.4)))
        self.train = np.zeros(NODES, dtype=bool)
        self.train[rng.permutation(NODES)[:TRAIN]] = True
        self.far = (near @ near @ self.train) == 0

    @property
    def truth(self) -> Truth:
        labels = np.bincount(self.y[self.train], minlength=C)
        return Truth(labels, self.x[self.train], self.x[self.far])

    def change(self, weights: np.ndarray, lr: float, steps: int, optimiser: str) -> np.ndarray:
        """Return what training changes, float64 (D,)."""
        flat = torch.tensor(weights, requires_grad=True)
        kind = torch.optim.AdamW if optimiser == "adamw" else torch.optim.SGD
        stepper = kind([flat], lr=lr, weight_decay=5e-4)
        x, p = torch.tensor(self.x), torch.tensor(self.p)
        y, train = torch.tensor(self.y), torch.tensor(self.train)
        for _ in range(steps):
            w0, b0, w1, b1 = parts(flat)
            logits = p @ (torch.relu(p @ (x @ w0) + b0) @ w1) + b1
            stepper.zero_grad()
            torch.nn.functional.cross_entropy(logits[train], y[train]).backward()
            stepper.step()
        return flat.detach().numpy().astype(np.float64) - weights


def exposures(
    clients: int, *, optimiser: str = "sgd", steps: int = 1, noise: float = 0.0, total: bool = False
) -> tuple[Exposure, ...]:
    """Return one round of so many clients; noise on what is seen, or the total over all."""
    rng = np.random.default_rng(7)
    lr = 0.5 if optimiser == "sgd" else 0.01
    weights = (rng.normal(size=D) * 0.15).astype(np.float32)
    weights[D - C :] = 0.0
    made = [Client(rng) for _ in range(clients)]
    raws = [m.change(weights, lr, steps, optimiser) for m in made]
    whole: Mapping[str, np.ndarray] = {
        "delta": TRAIN * np.sum(raws, axis=0),
        "count": np.array(TRAIN * clients),
    }
    found = []
    for number, (client, raw) in enumerate(zip(made, raws, strict=True)):
        own = {"delta": TRAIN * (raw + rng.normal(size=D) * noise), "count": np.array(TRAIN)}
        found.append(
            Exposure(
                client=f"client-{number:02d}",
                round=1,
                known={"weights": weights.astype(np.float64)},
                raw={"delta": TRAIN * raw, "count": np.array(TRAIN)},
                seen=whole if total else own,
                cohort=clients if total else 1,
                truth=client.truth,
                lr=lr,
                steps=steps,
                optimiser=optimiser,
            )
        )
    return tuple(found)


def rounds_of(found: tuple[Exposure, ...], rounds: int, noise: float) -> tuple[Exposure, ...]:
    """Return the same clients in several rounds, with noise of each round's own on what is seen."""
    rng = np.random.default_rng(9)

    def again(one: Exposure, number: int) -> Exposure:
        seen = {**one.raw, "delta": one.raw["delta"] + TRAIN * rng.normal(size=D) * noise}
        return replace(one, round=number, seen=seen, raw=dict(one.raw))

    return tuple(again(one, number) for number in range(1, rounds + 1) for one in found)


def weakened(found: tuple[Exposure, ...], noise: float) -> tuple[Exposure, ...]:
    """Return exposures whose raw control is noise too: an attack that cannot work."""
    rng = np.random.default_rng(8)

    def worse(one: Exposure) -> Exposure:
        raw = {**one.raw, "delta": one.raw["delta"] + TRAIN * rng.normal(size=D) * noise}
        return replace(one, raw=raw, seen=raw)

    return tuple(worse(one) for one in found)


def material(case: Case, found: tuple[Exposure, ...], layers: Layers | None = LAYERS) -> Material:
    """Return the material of a run in which these exposures were captured."""
    return Material(case=case, layers=layers, exposures=found, simulated=True)


def judged(
    attack: Attack, given: Material, profile: str = "quick"
) -> list[tuple[Samples, Judgement]]:
    """Return an attack's measured rows with their verdicts, all chance fixed."""
    found = []
    for row in attack.run(given, np.random.default_rng(3), profile).rows:
        if isinstance(row, Samples):
            margin = attack.margin if row.margin is None else row.margin
            gate = attack.gate if row.gate is None else row.gate
            made = judge(row, np.random.default_rng(4), margin=margin, gate=gate)
            found.append((row, made))
    return found
