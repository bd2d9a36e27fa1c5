"""GraphFL, Algorithm 2 (Wang et al., ICDM 2022):  a start from which new classes are soon learnt.

Client i's labels, numbered 0 to K0-1 at each client by itself, fall into support S_i and query Q_i
(`algorithms._shared.few_shot`). From the global model θ it takes T_e steps

    θ^ = θ_i - α grad L_S(θ_i),    θ_i <- θ_i - β (I - α H_S(θ_i)) grad L_Q(θ^),

H_S being the Hessian of the support loss, and says its change; θ moves by the mean change. To
predict, a client tunes the model to its labels of the new classes (a node's role `tune`) by
`tune_steps` plain steps; without such labels to its support half.

Where this departs from the source document: its equation (11) lost the gradient sign before L_S.
Its equation (12) is a single step from the global model, while its Algorithm 2 goes on from the
updated θ_i; here the algorithm is followed. Its program has no Hessian term (`hessian: false`) and
steps with Adam; here H_S v is computed exactly in two passes back (`hessian: true`), without a
matrix.

With α = 0 in training, nothing is looked ahead: this is FedAvg on the query half, and then the
tuning, the source document's "FL + TL" (`ahead: 0`).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count

import numpy as np

from algorithms._shared.few_shot import FewShot, few_shot, seeds_of
from algorithms._shared.steps import Change, descended
from algorithms.fed_avg import Start
from algorithms.tasks import ClientModel, Site, Task, Weights
from protocols.forms import Algorithm, Form
from protocols.messages import Message
from protocols.rounds import Ask, Cohort, Round


@dataclass(frozen=True)
class Client:
    """A client's side.

    Attributes:
        few: its halves and steps.
        epochs: steps in a round.
        rate: β.
        ahead: α of the look ahead.
        hessian: whether its second derivatives count.
        tune_steps: before it predicts.
    """

    few: FewShot
    epochs: int
    rate: float
    ahead: float
    hessian: bool
    tune_steps: int

    def change(self, site: Site, given: Start) -> Change:
        """Say what a round's steps change."""
        own, seeds = given.weights, seeds_of(site)
        for _ in range(self.epochs):
            own = descended(own, self.towards(site, own, next(seeds), next(seeds)), self.rate)
        site.memory["trained"] = own
        return Change(delta=own.astype(np.float64) - given.weights)

    def towards(self, site: Site, own: Weights, first: int, second: int) -> Weights:
        """Return the gradient of the query loss one support step ahead, (d,)."""
        (support, query), task, there = self.few.halves(site), self.few.task, own
        if self.ahead:
            there = descended(own, task.slope_of(own, site, support, first), self.ahead)
        slope = task.slope_of(there, site, query, second)
        if self.ahead and self.hessian:
            slope = slope - np.float32(self.ahead) * task.curved(own, slope, site, support, first)
        return slope

    def model(self, site: Site, given: Message | None) -> ClientModel:
        """Return what a client predicts with: tuned to its few labels."""
        start = given.weights if isinstance(given, Start) else site.memory["trained"]
        few = self.few.task.tuning(site)
        if not len(few.records):
            few, _ = self.few.halves(site)
        # Fixed seeds: a model that is asked for twice is the same twice.
        return ClientModel((self.few.adapted(start, site, few, self.tune_steps, count()),))


def graph_fl_domain(  # noqa: PLR0913 - settings, all by name
    task: Task,
    *,
    epochs: int = 15,
    meta_lr: float = 0.1,
    ahead: float = -1.0,
    hessian: bool = False,
    tune_steps: int = 15,
    query: float = 0.5,
    asked: int = 0,
    self_training: int = 0,
    self_epochs: int = 100,
) -> Algorithm[Start]:
    """Return GraphFL's Algorithm 2 for a task.

    Args:
        task: classes of nodes; `task.size` is d, `task.lr` the size of a tuning step.
        epochs: T_e, steps of a client in a round.
        meta_lr: β, their size.
        ahead: α in the two formulas; below 0: `task.lr`. 0 gives FedAvg and transfer learning.
        hessian: take the term with second derivatives.
        tune_steps: steps on the labels of the new classes before a model predicts.
        query: share of a client's training labels in the query half.
        asked: clients that a round asks at least, see `algorithms.graph_fl`.
        self_training: pseudo-labels per class, see `algorithms.graph_fl`.
        self_epochs: epochs of the local models that give them.

    Raises:
        ValueError: an option is out of range, or the task is not one of nodes.
    """
    few = few_shot(
        task, "graph_fl_domain", query=query, self_training=self_training, self_epochs=self_epochs
    )
    if min(epochs, tune_steps, asked) < 0 or not 0.0 < meta_lr < float("inf") or not query:
        raise ValueError(
            "out of range; needed are epochs, tune_steps, asked >= 0, meta_lr, query > 0"
        )
    alpha = task.lr if ahead < 0.0 else ahead
    client = Client(few, epochs, meta_lr, alpha, hessian, tune_steps)

    def init(rng: np.random.Generator) -> Start:
        return Start(weights=task.initial(rng))

    def round(state: Start, cohort: Cohort) -> Round[Start]:
        reply = yield Ask(cohort, given=state, back=Change)
        moved = state.weights + reply.total(Change).delta / max(reply.answers, 1)
        return Start(weights=moved.astype(np.float32))

    form = Form.of("mean_of_changes", round, answers={Start: client.change}, drawn=asked)
    return Algorithm(
        name="graph_fl_domain",
        citation="Wang et al., GraphFL: A federated learning framework for semi-supervised node "
        "classification on graphs, ICDM 2022, Algorithm 2",
        init=init,
        model=client.model,
        forms=(form.moved_by_totals(reach=1.0),),
        dims={"d": task.size},
    )


ALGORITHM = graph_fl_domain
