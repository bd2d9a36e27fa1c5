"""APFLGate (Pansetty, Yao, Kamani, Joe-Wong, poster): APFL whose shared model tracks gradients.

    h_i = alpha_i h_v(x) + (1 - alpha_i) h_w(x),    w_i <- w_i - eta (g_i(w_i) - delta_i).

APFL whose shared model is trained with FedGATE's gradient tracking. One message a round, the change
of w; the personal model v, alpha_i and the tracker delta_i never leave. With alpha = 0 it is
FedGATE, with trackers at zero (tau infinite) it is APFL.

What the poster leaves open is decided here: g_i is the gradient of the shared model's own loss; the
mixture's global branch is the client's current copy of w, after its step; the tracker corrects w
only; clients predict with the aggregated w and their own v. Its tau = 0.1 and tau = 1 are unstable
under its own formula unless R = 1 (see `algorithms.fed_gate`), and are refused then.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from algorithms._shared.steps import (
    adapted,
    batches,
    check_mixing,
    descended,
    local_steps,
    mixture,
    recalled,
    unmixed,
)
from algorithms.fed_gate import Start, gated, stable, tracker
from algorithms.tasks import Batch, ClientModel, Site, Task, Weights
from protocols.forms import Algorithm
from protocols.messages import Array, Message

Models = tuple[Weights, Weights, float]
"""w, v and alpha of one client."""


@dataclass(frozen=True)
class Step:
    """One step of both models on one batch; the attributes are options of `apfl_gate`."""

    task: Task
    adaptive: bool
    frozen: bool
    joint: bool
    track_personal: bool
    lr_personal: float

    def __call__(
        self, site: Site, batch: Batch, start: Weights, models: Models, delta: Weights
    ) -> Models:
        """Return the client's models after the step.

        Args:
            site: whose records the batch names.
            batch: the records.
            start: w^t, shape (d,).
            models: before the step.
            delta: the tracker, shape (d,).
        """
        task, (w, v, alpha) = self.task, models
        if self.joint:
            mixed = task.mixed(v, w, alpha, site, batch)
            w = descended(w, mixed.shared - delta, task.lr)
        else:
            w = descended(w, task.gradient(w, site, batch) - delta, task.lr)
            mixed = task.mixed(v, start if self.frozen else w, alpha, site, batch)
        own = mixed.personal - delta if self.track_personal else mixed.personal
        if self.adaptive:
            alpha = adapted(alpha, mixed.alpha, task.lr)
        return w, descended(v, own, self.lr_personal), alpha


def apfl_gate(  # noqa: PLR0913 - the poster's settings, all by name
    task: Task,
    *,
    epochs: int = 1,
    steps: int = 1,
    alpha: float = 0.5,
    adaptive: bool = False,
    tau: float | None = None,
    gamma: float = 1.0,
    frozen: bool = False,
    joint: bool = False,
    track_personal: bool = False,
    lr_personal: float | None = None,
) -> Algorithm[Start]:
    """Return APFLGate for a task.

    Both models take plain gradient steps: w of size `task.lr`, v of size `lr_personal`. The task's
    optimiser (``model.optimiser``) is not used; its weight decay is, as an L2 term.

    Args:
        task: gives gradients and predicts; `task.size` is d.
        epochs: passes of `steps` batches in a round.
        steps: batches in a pass, one gradient step each; a round has R = epochs x steps.
        alpha: share of the personal model, in [0, 1]; the first value if `adaptive`.
        adaptive: whether each client learns its own alpha, once a round, at the first step.
        tau: slowness of the trackers, above R/2; by default R.
        gamma: step of the global model, above 0.
        frozen: mix with the global model as it was received, w^t, instead of the current copy.
        joint: train w on the mixture's loss too, at the same point as v. Its gradient then has the
            factor 1 - alpha, so alpha = 1 leaves w untrained.
        track_personal: correct v's gradient by the tracker as well (an experiment).
        lr_personal: step size of v, by default `task.lr`.

    Raises:
        ValueError: an option is out of range, or `frozen` and `joint` contradict each other.
    """
    count = local_steps(epochs, steps)
    slow = stable(tau, count, gamma)
    check_mixing(alpha, lr_personal)
    if frozen and joint:
        raise ValueError(
            "apfl_gate: frozen keeps the mixture's global branch still and joint trains it; "
            "choose one of them"
        )
    rate = lr_personal or task.lr
    first = Step(task, adaptive, frozen, joint, track_personal, rate)
    later = Step(task, False, frozen, joint, track_personal, rate)

    def init(rng: np.random.Generator) -> Start:
        return Start(weights=task.initial(rng), step=0)

    def change(site: Site, given: Start) -> Array:
        delta = tracker(site, given, lr=task.lr, tau=slow, gamma=gamma)
        models: Models = (given.weights, *recalled(site, given.weights, alpha))
        for number, batch in enumerate(batches(task, site, count)):
            if batch is None:  # the loss is zero: only the tracker moves w
                models = (descended(models[0], -delta, task.lr), *models[1:])
                continue
            step = later if number else first
            models = step(site, batch, given.weights, models, delta)
        w, v, share = models
        site.memory.update(delta=delta, sent=(given, w), trained=w)
        site.memory.update(personal=v, alpha=share)
        return w.astype(np.float64) - given.weights

    def model(site: Site, given: Message | None) -> ClientModel:
        shared = given.weights if isinstance(given, Start) else site.memory["trained"]
        return mixture(site, shared, alpha)

    return Algorithm(
        name="apfl_gate",
        citation="Pansetty, Yao, Kamani and Joe-Wong, Personalized Federated Graph Learning",
        init=init,
        model=model,
        forms=gated(change, gamma),
        dims={"d": task.size},
        gradients=count if joint else 2 * count,
        reduced=lambda rounds: "" if adaptive else unmixed(alpha),
    )


ALGORITHM = apfl_gate
