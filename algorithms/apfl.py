"""APFL (Deng, Kamani and Mahdavi, 2020, Algorithm 1):  h = alpha_i h_v + (1 - alpha_i) h_w.

Client i trains two models: its copy w of the global one, on its own loss, and a personal one, v, on
the loss of the mixture. Only the change of w is said, and the server takes the plain mean of all
changes. v and alpha_i never leave.

The paper mixes weights, alpha v + (1 - alpha) w. Outputs before the activation are mixed here, as
in the authors' own code (FedTorch) and in APFLGate; the two agree for linear models only.
"""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np

from algorithms._shared.steps import (
    adapted,
    alike,
    batches,
    check_mixing,
    descended,
    local_steps,
    mixture,
    recalled,
    slope,
    unmixed,
)
from algorithms.fed_avg import Start, moved
from algorithms.tasks import ClientModel, Mixed, Site, Task, Weights
from protocols.forms import Algorithm
from protocols.messages import Array, Message

AlphaRule = Literal["exact", "fedtorch"]
"""How alpha is learnt: by the gradient of the mixture's loss, or as FedTorch does."""

FEDTORCH_DECAY = 0.02
"""Decay of alpha in FedTorch (fedtorch/comms/utils/flow_utils.py, `alpha_update`)."""


def _decay(rule: AlphaRule, decay: float | None) -> float:
    if rule not in get_args(AlphaRule):
        raise ValueError(
            f"no alpha_rule is called {rule!r}; known: {', '.join(get_args(AlphaRule))}"
        )
    if decay is None:
        return FEDTORCH_DECAY if rule == "fedtorch" else 0.0
    if not 0.0 <= decay < float("inf"):
        raise ValueError(
            f"decay = {decay} would push alpha up without end; choose it at 0 or above"
        )
    return decay


def _towards(rule: AlphaRule, mixed: Mixed, v: Weights, w: Weights, alpha: float) -> float:
    """Return the slope that alpha descends, without its decay."""
    if rule == "exact":
        return mixed.alpha
    return float(np.dot(v - w, alpha * mixed.personal + (1.0 - alpha) * mixed.shared))


def apfl(
    task: Task,
    *,
    epochs: int = 1,
    steps: int = 1,
    alpha: float = 0.5,
    adaptive: bool = False,
    alpha_rule: AlphaRule = "exact",
    decay: float | None = None,
    lr_personal: float | None = None,
) -> Algorithm[Start]:
    """Return APFL for a task.

    Both models take plain gradient steps: w of size `task.lr`, v of size `lr_personal`. The task's
    optimiser (``model.optimiser``) is not used; its weight decay is, as an L2 term.

    Args:
        task: gives gradients and predicts; `task.size` is d.
        epochs: passes of `steps` batches in a round.
        steps: batches in a pass, one gradient step each; a round has R = epochs x steps.
        alpha: share of the personal model, in [0, 1]; the first value if `adaptive`.
        adaptive: whether each client learns its own alpha, once a round, at the first step. At
            alpha = 0 the personal model has no gradient and rests until alpha rises again.
        alpha_rule: ``exact`` descends d loss/d alpha = <z, h_v - h_w> with z the loss's gradient
            at the mixture; ``fedtorch`` is the heuristic of FedTorch, the product of v - w with
            alpha g_v + (1 - alpha) g_w, where g_v and g_w hold these factors already (and here the
            weight decay).
        decay: coefficient of an extra term decay x alpha; by default 0, and 0.02 for ``fedtorch``.
        lr_personal: step size of v, by default `task.lr`.

    Raises:
        ValueError: an option is out of range.
    """
    count = local_steps(epochs, steps)
    check_mixing(alpha, lr_personal)
    decay = _decay(alpha_rule, decay)

    def init(rng: np.random.Generator) -> Start:
        return Start(weights=task.initial(rng))

    def change(site: Site, given: Start) -> Array:
        w: Weights = given.weights
        v, share = recalled(site, w, alpha)
        for number, batch in enumerate(batches(task, site, count)):
            w = descended(w, slope(task, w, site, batch), task.lr)
            if batch is None:
                continue
            mixed = task.mixed(v, w, share, site, batch)
            v = descended(v, mixed.personal, lr_personal or task.lr)
            if adaptive and number == 0:
                towards = _towards(alpha_rule, mixed, v, w, share) + decay * share
                share = adapted(share, towards, task.lr)
        site.memory.update(trained=w, personal=v, alpha=share)
        return w.astype(np.float64) - given.weights

    def model(site: Site, given: Message | None) -> ClientModel:
        shared = given.weights if isinstance(given, Start) else site.memory["trained"]
        return mixture(site, shared, alpha)

    return Algorithm(
        name="apfl",
        citation="Deng, Kamani and Mahdavi, arXiv:2003.13461, 2020, Algorithm 1",
        init=init,
        model=model,
        forms=alike(Start, change, moved),
        dims={"d": task.size},
        gradients=2 * count,
        reduced=lambda rounds: "" if adaptive else unmixed(alpha),
    )


ALGORITHM = apfl
