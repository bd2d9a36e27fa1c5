"""FedEgo on toy sites, for its tests."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from algorithms._shared.ego import (
    Personal,
    Start,
    Step,
)
from algorithms.fed_ego import Server, fed_ego
from algorithms.tasks import Site
from algorithms.tasks.ego import EgoTask
from protocols.disclosures.mixed.guards import Mix
from protocols.policy.policy import PrivacyPolicy
from tests.toys.kinds import task_of
from tests.toys.stage import plan_of, play

PASSES = 2


def task(**options: Any) -> EgoTask:
    chosen = {"hidden": 6, "dropout": 0.0, "lr": 0.05, "optimiser": "sgd", "weight_decay": 0.0}
    return EgoTask(task_of("node").spec, **{**chosen, "fan_out": 2, **options})


def ego(model: EgoTask | None = None, **options: Any) -> Any:
    return fed_ego(model or task(), **{"group": 4, "passes": PASSES, **options})


def only(algorithm: Any, name: str) -> Any:
    """Return an algorithm with one of its forms."""
    return replace(algorithm, forms=tuple(f for f in algorithm.forms if f.name == name))


def rounds(number: int, sites: list[Site], algorithm: Any, policy: Any = "unsafe_plaintext") -> Any:
    policy = PrivacyPolicy.preset(policy) if isinstance(policy, str) else policy
    plan = plan_of(algorithm, policy, len(sites), number, records=64)
    return play(algorithm, sites, policy, rounds=number, plan=plan)


def small(preset: str = "masks") -> PrivacyPolicy:
    """Return a preset whose floor fits a dozen records."""
    document = PrivacyPolicy.preset(preset).document()
    document["rules"]["MIXED"] = [
        Mix(floor=4, apart=2, bucket=1).model_dump() if g["guard"] == "mix" else g
        for g in document["rules"]["MIXED"]
    ]
    return PrivacyPolicy.model_validate(document)


def exchange(algorithm: Any, form: str, name: str) -> Any:
    (chosen,) = (f for f in algorithm.forms if f.name == form)
    return next(e.answer for e in chosen.exchanges if e.name == name)


def begun(algorithm: Any) -> Server:
    state = algorithm.init(np.random.default_rng(0))
    assert isinstance(state, Server)
    return state


def client(model: EgoTask, **options: Any) -> Personal:
    facts = {"gamma": 0.5, "fixed": None, "average": True, "group": 4, "passes": PASSES, "share": 4}
    return Personal(model, 1, **{**facts, **options})


def told(model: EgoTask, shares: Any, step: int = 1) -> Start:
    """Return what a later round begins with: layers that are all 7."""
    phi = np.full(model.size - model.reduction, 7, np.float32)
    return Start(step=step, seed=3, phi=phi, shares=np.asarray(shares))


def at(start: Start, step: int) -> Start:
    """Return what is given at another step, all else alike."""
    return Start(step=step, seed=start.seed, phi=start.phi, shares=start.shares)


def step_of(phi: Any, step: int, number: int) -> Step:
    return Step(step=step, number=number, phi=phi, scales=np.ones(len(task().parts)))


def trained(sites: list[Site]) -> Any:
    return np.stack([site.memory["trained"] for site in sites]).astype(np.float64)
