"""FedGATE (Haddadpour et al., AISTATS 2021):  w <- w - gamma u,  u = sum_i u_i / m.

Client i starts from w^t and takes R plain gradient steps that are corrected by its tracker,

    w_i <- w_i - eta (g_i(w_i) - delta_i),

and says u_i = w^t - w_i (here -u_i, its change, as FedAvg does). With w' = w^t - u, the mean of all
w_i, each tracker then moves to

    delta_i <- delta_i + (w' - w_i) / (eta tau),

so that g_i - delta_i comes close to the mean of all gradients. No message is needed for it: the
next Start tells u = (w^t - w^(t+1)) / gamma. delta_i shows how a client's data differ from the
others'; it never leaves. All trackers together sum to zero, up to the rounding of what was summed.

Stability. For small eta the tracker follows delta_i' = (1 - R/tau) delta_i + (R/tau) (g_i - g):
exact after one round at tau = R (the paper's and FedTorch's choice), an average over rounds above,
swinging and growing below R/2. At R/2 itself it swings for ever, so that is refused as well. A
smaller tau does not track more.

Rounds that are lost, and clients that vanish. Start counts the rounds that moved the model:

* the same count again: the client's round was lost, nobody's upload counted, delta_i stays;
* one more: u as above;
* several more: the client missed what came in between and keeps its tracker for those rounds. Of
  its own round's u it knows only the mean over all of them, and takes that. To leave the step out
  would be worse: the sum of all trackers never changes again, so the error would stay in the model.

A client cannot see that its upload came too late to be counted; it then steps as if it had been.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from algorithms._shared.steps import alike, batches, descended, local_steps, slope
from algorithms.tasks import ClientModel, Site, Task, Weights
from protocols.forms import Algorithm, Form
from protocols.messages import Array, Message, ReleasedMessage, Vector, count, real


class Start(ReleasedMessage):
    """The global model, and how many rounds have moved it."""

    weights: Vector = real("d", unit="weight", meaning="the global model w", wire="f4")
    step: int = count(unit="round", meaning="rounds that moved the model so far")


def stable(tau: float | None, count: int, gamma: float) -> float:
    """Return tau, by default R = `count`.

    Raises:
        ValueError: tau is R/2 or below, where the trackers diverge, or `gamma` is not above 0.
    """
    if not 0.0 < gamma < float("inf"):
        raise ValueError(f"gamma = {gamma} is no step of the global model; choose it above 0")
    tau = float(count if tau is None else tau)
    if not tau > count / 2:
        raise ValueError(
            f"tau = {tau:g} is too small for R = {count} local steps: each round multiplies a "
            f"tracker's error by 1 - R/tau, so it never settles for tau up to R/2 = {count / 2:g}; "
            f"choose tau above {count / 2:g} (R to 10 R is usual), or leave it out for tau = R"
        )
    return tau


def tracker(site: Site, given: Start, *, lr: float, tau: float, gamma: float) -> Weights:
    """Return delta_i for the round that begins with `given`, float32 (d,); see the module's head.

    Args:
        site: its memory holds "delta" and "sent", the last round's Start and the model it led to.
        given: the round's Start.
        lr: eta.
        tau: may be infinite, for trackers that stay zero.
        gamma: step of the global model.
    """
    if "sent" not in site.memory:
        return np.zeros_like(given.weights)
    delta: Weights = site.memory["delta"]
    begun, own = site.memory["sent"]
    rounds = given.step - begun.step
    if rounds < 1:
        return delta
    start = begun.weights.astype(np.float64)
    mean = start - (start - given.weights) / (gamma * rounds)
    with np.errstate(over="ignore"):  # what overflows is refused at the first step with it
        moved: Weights = (delta + (mean - own) / (lr * tau)).astype(np.float32)
    return moved


def gated(change: Callable[[Site, Start], Array], gamma: float) -> tuple[Form[Start], ...]:
    """Return the forms of an algorithm that moves by w <- w - gamma u; see `alike`."""

    def moved(state: Start, mean: Array) -> Start:
        weights = (state.weights + gamma * mean).astype(np.float32)
        return Start(weights=weights, step=state.step + 1)

    return alike(Start, change, moved, reach=gamma)


def fed_gate(
    task: Task, *, epochs: int = 1, steps: int = 1, tau: float | None = None, gamma: float = 1.0
) -> Algorithm[Start]:
    """Return FedGATE for a task.

    Steps are plain gradient descent of size eta = `task.lr`, since the tracker's formula holds for
    nothing else: the task's optimiser (``model.optimiser``) is not used; its weight decay is, as an
    L2 term. A site without training records has the loss zero, steps along its tracker and counts
    in the mean like every other.

    Args:
        task: gives gradients and predicts; `task.size` is d.
        epochs: passes of `steps` batches in a round.
        steps: batches in a pass, one gradient step each; a round has R = epochs x steps.
        tau: slowness of the trackers, above R/2; by default R. ``inf`` switches them off.
        gamma: step of the global model, above 0.

    Raises:
        ValueError: an option is out of range; for tau with the range that is stable.
    """
    count = local_steps(epochs, steps)
    slow = stable(tau, count, gamma)

    def init(rng: np.random.Generator) -> Start:
        return Start(weights=task.initial(rng), step=0)

    def change(site: Site, given: Start) -> Array:
        delta = tracker(site, given, lr=task.lr, tau=slow, gamma=gamma)
        w: Weights = given.weights
        for batch in batches(task, site, count):
            w = descended(w, slope(task, w, site, batch) - delta, task.lr)
        site.memory.update(delta=delta, sent=(given, w), trained=w)
        return w.astype(np.float64) - given.weights

    def model(site: Site, given: Message | None) -> ClientModel:
        return ClientModel((given.weights if isinstance(given, Start) else site.memory["trained"],))

    return Algorithm(
        name="fed_gate",
        citation="Haddadpour et al., AISTATS 2021",
        init=init,
        model=model,
        forms=gated(change, gamma),
        dims={"d": task.size},
        gradients=count,
    )


ALGORITHM = fed_gate
