"""What clients do in many algorithms: steps of gradient descent, and forms that weight all alike.

`alike`: w <- w + sum_k D_k / K. Nothing is said but D_k. No private count weights a change, so
noise can cover all that a client says (McMahan et al., ICLR 2018, with equal weights). The first
form discloses the sum of all changes; in the second the receiver reads each change, under its
client's own noise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, islice, repeat
from typing import TypeVar

import numpy as np

from algorithms.tasks import Batch, ClientModel, Site, Task, Weights
from protocols.forms import Exchange, Form
from protocols.messages import Array, Message, NoisedMessage, SumMessage, Vector, real
from protocols.rounds import Ask, Cohort, Round

__all__ = [
    "Change",
    "Moments",
    "NoisedChange",
    "adam",
    "adapted",
    "alike",
    "batches",
    "check_mixing",
    "descended",
    "local_steps",
    "mixture",
    "recalled",
    "slope",
    "unmixed",
]

Moments = tuple[Array, Array, int]
"""First and second moment of Adam, and its steps so far."""


def local_steps(epochs: int, steps: int) -> int:
    """Return R, the number of gradient steps in a round: `epochs` times `steps` batches.

    Raises:
        ValueError: one of them is below 1.
    """
    if epochs < 1 or steps < 1:
        raise ValueError(
            "a round without a gradient step learns nothing; set algorithm.epochs and the option "
            "steps to 1 or more"
        )
    return epochs * steps


def batches(task: Task, site: Site, count: int) -> Iterator[Batch | None]:
    """Yield `count` batches; at a site without training records `count` times None.

    Such a site's loss is zero everywhere, and so is its gradient (see `slope`).
    """
    yield from islice(chain(task.batches(site), repeat(None)), count)


def slope(task: Task, weights: Weights, site: Site, batch: Batch | None) -> Weights:
    """Return the gradient of the batch's mean loss, shape (d,); zeros where there is no batch."""
    return np.zeros_like(weights) if batch is None else task.gradient(weights, site, batch)


def descended(weights: Weights, gradient: Weights, rate: float) -> Weights:
    """Return weights - rate x gradient as a new float32 array, shape (d,).

    Raises:
        FloatingPointError: it holds NaN or infinity, so training diverged.
    """
    with np.errstate(over="ignore", invalid="ignore"):  # an error follows, in words of our own
        moved: Weights = weights - np.float32(rate) * gradient
    if not np.isfinite(moved).all():
        raise FloatingPointError(
            "local training diverged: the weights are no longer finite, most likely because the "
            "step size is too large for these features; lower model.lr or scale the features"
        )
    return moved


def adam(slope: Array, moments: Moments | None) -> tuple[Array, Moments]:
    """Return Adam's direction (Kingma and Ba, ICLR 2015, with their constants), and its moments.

    Args:
        slope: the gradient, (d,).
        moments: those of the step before; None: this is the first.
    """
    first, second, steps = moments or (np.zeros_like(slope), np.zeros_like(slope), 0)
    steps += 1
    first, second = 0.9 * first + 0.1 * slope, 0.999 * second + 0.001 * slope**2
    unbiased = second / (1 - 0.999**steps)
    return first / (1 - 0.9**steps) / (np.sqrt(unbiased) + 1e-8), (first, second, steps)


def check_mixing(alpha: float, lr_personal: float | None) -> None:
    """Refuse a share or a step size of the personal model that has no meaning.

    Raises:
        ValueError: `alpha` is outside [0, 1], or `lr_personal` is not a number above 0.
    """
    if not 0.0 <= alpha <= 1.0:
        raise ValueError(
            f"alpha = {alpha} is no share of the personal model in the mixture; choose it in [0, 1]"
        )
    if lr_personal is not None and not 0.0 < lr_personal < float("inf"):
        raise ValueError(
            f"lr_personal = {lr_personal} is no step size; choose it above 0, or leave it out to "
            "step as model.lr says"
        )


def unmixed(alpha: float) -> str:
    """Return what a mixture is whose share is fixed at an end of [0, 1]; empty for a mixture."""
    ends = {
        0.0: "the shared model alone: alpha is 0, so no personal model is trained",
        1.0: "each client's own model alone: alpha is 1, so the shared one predicts nothing",
    }
    return ends.get(alpha, "")


def recalled(site: Site, shared: Weights, alpha: float) -> tuple[Weights, float]:
    """Return the client's v, shape (d,), and its alpha.

    They lie in the site's memory as "personal" and "alpha"; before the client's first round they
    are `shared` and `alpha`.
    """
    return site.memory.get("personal", shared), float(site.memory.get("alpha", alpha))


def adapted(alpha: float, towards: float, rate: float) -> float:
    """Return alpha after one step down d loss/d alpha = `towards`, kept in [0, 1]."""
    return float(np.clip(alpha - rate * towards, 0.0, 1.0))


def mixture(site: Site, shared: Weights, alpha: float) -> ClientModel:
    """Return the client's model, alpha h_v + (1 - alpha) h_w; w is `shared`, (d,)."""
    personal, share = recalled(site, shared, alpha)
    return ClientModel((shared,), (personal,), share)


S = TypeVar("S", bound=Message)


class Change(SumMessage):
    """What training changed, every client counting alike."""

    delta: Vector = real("d", unit="weight", meaning="the change of the model")


class NoisedChange(NoisedMessage):
    """What training changed, under the client's own noise."""

    delta: Vector = real("d", unit="weight", meaning="the change of the model")


def alike(
    given: type[S],
    change: Callable[[Site, S], Array],
    moved: Callable[[S, Array], S],
    *,
    name: str = "train",
    reach: float = 1.0,
) -> tuple[Form[S], Form[S]]:
    """Return the forms `mean_of_changes` and `mean_of_noised_changes` of an algorithm.

    Both are `by_gradients`, which `change` has to keep; see `protocols.forms.Form`.

    Args:
        given: the state, handed out as it is.
        change: trains at a client, and returns D_k, float64 (d,).
        moved: at the aggregator, the state after the mean of all D_k.
        name: of the exchange in the first form.
        reach: see `protocols.forms.Form`.
    """

    def say(site: Site, start: S) -> Change:
        return Change(delta=change(site, start))

    def say_noised(site: Site, start: S) -> NoisedChange:
        return NoisedChange(delta=change(site, start))

    def of_sum(state: S, cohort: Cohort) -> Round[S]:
        reply = yield Ask(cohort, given=state, back=Change)
        return moved(state, reply.total(Change).delta / max(reply.answers, 1))

    def of_each(state: S, cohort: Cohort) -> Round[S]:
        reply = yield Ask(cohort, given=state, back=NoisedChange)
        changes = [message.delta for message in reply.each(NoisedChange)]
        return moved(state, np.sum(changes, axis=0) / max(len(changes), 1))

    sums = Exchange(name, (given,), (Change,), say)
    each = Exchange("train_noised", (given,), (NoisedChange,), say_noised)
    return (
        Form("mean_of_changes", of_sum, (sums,), by_gradients=True).moved_by_totals(reach),
        Form("mean_of_noised_changes", of_each, (each,), by_gradients=True),
    )
