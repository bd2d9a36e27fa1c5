"""GraphFL, Algorithm 1 (Wang et al., ICDM 2022):  MAML finds a start, FedAvg goes on from it.

A round has two stages, each a sum over its clients. Client i's labels fall into support S_i and
query Q_i (`algorithms._shared.few_shot`).

* Stage I: from θ, client i takes T_e gradient steps on S_i to θ_i, and says g_i, the gradient of
  its query loss at θ_i. The aggregator steps to θ^ along the total.
* Stage II: from θ^, client i takes `tune_steps` gradient steps on S_i, and says its change. θ is
  θ^ plus the mean change.

The second Ask rests on the first one's total, so a client that vanishes between the two loses the
round: two sums over different clients at one point would be a difference of clients (O5).

Where this departs from the source document: it writes the gradient with respect to θ *through* the
T_e steps; its program drops all second derivatives and takes the gradient at θ_i (first order), as
here. It writes θ^ = θ - β Σ g_i; its program steps with Adam, whose moments it forgets after every
round (`outer`). Adam's first step is about β times the sign of each entry, so the number of clients
does not matter to it. The program's weight decay is inside Adam's gradient; here it is decoupled
(docs/adr/0005-decoupled-decay.md).

**The labels are hidden, the graph is not, if clients share one** (`few_shot_shared_graph`): then
all clients hold its nodes, edges and features. g_i alone would be a raw gradient of a few nodes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from algorithms._shared.few_shot import FewShot, Inner, few_shot, seeds_of
from algorithms._shared.steps import Change, Moments, adam
from algorithms.tasks import ClientModel, Site, Task
from protocols.forms import Algorithm, Answer, Form
from protocols.messages import Array, Message, ReleasedMessage, SumMessage, Vector, real
from protocols.rounds import Ask, Cohort, Round

Outer = Literal["adam", "adam_kept", "plain"]
"""How the aggregator steps in stage I; see `graph_fl`."""


class Start(ReleasedMessage):
    """The global model, for stage I."""

    weights: Vector = real("d", unit="weight", meaning="the global model", wire="f4")


class Met(ReleasedMessage):
    """The model after stage I, for stage II."""

    weights: Vector = real("d", unit="weight", meaning="the model after stage I", wire="f4")


class Slope(SumMessage):
    """How the loss of the query half changes at the adapted model."""

    slope: Vector = real("d", unit="loss / weight", meaning="gradient of the mean query loss")


@dataclass(frozen=True)
class Server:
    """What the aggregator remembers.

    Attributes:
        start: what it hands out.
        moments: first and second moment of its Adam, and its steps so far; empty where it starts
            anew in every round.
    """

    start: Start
    moments: Moments | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Client:
    """A client's side.

    Attributes:
        few: its halves and steps.
        epochs: steps of stage I.
        tune_steps: steps of stage II.
    """

    few: FewShot
    epochs: int
    tune_steps: int

    def judged(self, site: Site, given: Start) -> Slope:
        """Say the query gradient at the adapted model."""
        support, query = self.few.halves(site)
        seeds = seeds_of(site)
        own = self.few.adapted(given.weights, site, support, self.epochs, seeds)
        site.memory["trained"] = own
        return Slope(slope=self.few.slope(own, site, query, seeds).astype(np.float64))

    def tuned(self, site: Site, given: Start | Met) -> Change:
        """Say what fine-tuning on the support half changes."""
        support, _ = self.few.halves(site)
        own = self.few.adapted(given.weights, site, support, self.tune_steps, seeds_of(site))
        site.memory["trained"] = own
        return Change(delta=own.astype(np.float64) - given.weights)

    def model(self, site: Site, given: Message | None) -> ClientModel:
        """Return what a client predicts with."""
        known = given.weights if isinstance(given, Start) else site.memory["trained"]
        return ClientModel((known,))


def graph_fl(  # noqa: PLR0913 - settings, all by name
    task: Task,
    *,
    epochs: int = 15,
    tune_steps: int = 15,
    meta_lr: float = 0.02,
    outer: Outer = "adam",
    decay: float = 5e-4,
    query: float = 0.5,
    labels: int = 0,
    inner: Inner = "plain",
    asked: int = 0,
    self_training: int = 0,
    self_epochs: int = 100,
) -> Algorithm[Server]:
    """Return GraphFL's Algorithm 1 for a task.

    Clients' steps are of size α = `task.lr`; `model.optimiser` is for `self_training` alone.

    Args:
        task: classes of nodes; `task.size` is d.
        epochs: T_e, gradient steps on the support half in stage I; 0 judges θ itself.
        tune_steps: gradient steps in stage II.
        meta_lr: β, the aggregator's step in stage I; 0 leaves stage I out.
        outer: ``adam`` starts anew in every round, as in the authors' program; ``adam_kept`` goes
            on with its moments; ``plain`` is θ - β Σ g_i, as in the source document.
        decay: decoupled weight decay of the aggregator's step in stage I.
        query: share of a client's training labels in the query half.
        labels: records of each half at most, drawn once; 0: all. 80 in FedEgo's program.
        inner: a client's steps: ``plain`` gradient descent, as in the source document, or ``adam``,
            which goes on with its moments in all of the run, as FedEgo's program has it.
        asked: clients that a round asks at least; 0: all. They are cut by lot into disjoint
            cohorts, once, and rounds take them in turn. 10 of 50 in the source document.
        self_training: pseudo-labels per class that each client adds to its labels, from a model of
            its own labels alone; 0: none. The source document takes 20 and is best at 5 to 15.
        self_epochs: epochs of those local models.

    Raises:
        ValueError: an option is out of range, or the task is not one of nodes.
    """
    of_halves: dict[str, Any] = {"query": query, "labels": labels, "inner": inner}
    few = few_shot(
        task, "graph_fl", self_training=self_training, self_epochs=self_epochs, **of_halves
    )
    if min(epochs, tune_steps, asked) < 0 or not 0.0 <= meta_lr < float("inf") or decay < 0.0:
        raise ValueError(
            "out of range; needed are epochs, tune_steps, asked, meta_lr and decay >= 0"
        )
    if meta_lr and not query:
        raise ValueError("query is 0, and stage I judges models on it: raise it, or set meta_lr: 0")
    client = Client(few, epochs, tune_steps)

    def init(rng: np.random.Generator) -> Server:
        return Server(Start(weights=task.initial(rng)))

    def round(state: Server, cohort: Cohort) -> Round[Server]:
        reply = yield Ask(cohort, given=state.start, back=Slope)
        total = reply.total(Slope).slope
        state = stepped(state, total, max(reply.answers, 1), meta_lr, decay, outer)
        met = Met(weights=state.start.weights)
        reply = yield Ask(cohort, given=met, back=Change)
        return moved(state, reply.total(Change).delta / max(reply.answers, 1))

    def second(state: Server, cohort: Cohort) -> Round[Server]:
        reply = yield Ask(cohort, given=state.start, back=Change)
        return moved(state, reply.total(Change).delta / max(reply.answers, 1))

    both: dict[type[Message], Answer] = {Start: client.judged, Met: client.tuned}
    form = (
        Form.of("two_stages", round, answers=both, drawn=asked)
        if meta_lr
        else Form.of("stage_two", second, answers={Start: client.tuned}, drawn=asked)
    )
    return Algorithm(
        name="graph_fl",
        citation="Wang et al., GraphFL: A federated learning framework for semi-supervised node "
        "classification on graphs, ICDM 2022, Algorithm 1",
        init=init,
        model=client.model,
        forms=(form,),
        dims={"d": task.size},
    )


def moved(state: Server, mean: Array) -> Server:
    """Return the state after stage II: the model plus the clients' mean change."""
    weights = (state.start.weights + mean).astype(np.float32)
    return Server(Start(weights=weights), state.moments)


def stepped(
    state: Server, total: Array, answers: int, rate: float, decay: float, outer: Outer
) -> Server:
    """Return the state after the aggregator's step of stage I.

    Args:
        state: before it.
        total: sum of the clients' gradients, (d,).
        answers: how many they are.
        rate: β.
        decay: taken off the weights beside the step, times β.
        outer: see `graph_fl`.
    """
    weights = np.asarray(state.start.weights, dtype=np.float64)
    if outer == "plain":
        along, moments = total, None
    else:
        along, kept = adam(total / answers, state.moments if outer == "adam_kept" else None)
        moments = kept if outer == "adam_kept" else None
    found = weights - rate * (along + decay * weights)
    return Server(Start(weights=found.astype(np.float32)), moments)


ALGORITHM = graph_fl
