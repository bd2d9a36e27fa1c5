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

from itertools import count

import numpy as np

from algorithms._shared.few_shot import drawn, few_shot
from algorithms._shared.steps import descended
from algorithms.fed_avg import Change, Start
from algorithms.tasks import Task, Weights
from algorithms.tasks.client_model import ClientModel
from algorithms.tasks.site import Site
from protocols.forms import Algorithm, Form
from protocols.messages import Message
from protocols.rounds import Ask, Cohort, Round


def graph_fl_domain(  # noqa: PLR0913 - settings, all by name
    task: Task,
    *,
    epochs: int = 15,
    meta_lr: float = 0.1,
    ahead: float = -1.0,
    hessian: bool = False,
    tune_steps: int = 15,
    query: float = 0.5,
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
        self_training: pseudo-labels per class, see `algorithms.graph_fl`.
        self_epochs: epochs of the local models that give them.

    Raises:
        ValueError: an option is out of range, or the task is not one of nodes.
    """
    client = few_shot(
        task, "graph_fl_domain", query=query, self_training=self_training, self_epochs=self_epochs
    )
    if min(epochs, tune_steps) < 0 or not 0.0 < meta_lr < float("inf") or not query:
        raise ValueError("out of range; needed are epochs, tune_steps >= 0, meta_lr, query > 0")
    alpha = task.lr if ahead < 0.0 else ahead

    def init(rng: np.random.Generator) -> Start:
        return Start(weights=task.initial(rng))

    def change(site: Site, given: Start) -> Change:
        own, seeds = given.weights, drawn(site)
        for _ in range(epochs):
            own = descended(own, towards(site, own, next(seeds), next(seeds)), meta_lr)
        site.memory["trained"] = own
        return Change(delta=own.astype(np.float64) - given.weights)

    def towards(site: Site, own: Weights, first: int, second: int) -> Weights:
        """Return the gradient of the query loss one support step ahead, (d,)."""
        support, asked = client.halves(site)
        there = own
        if alpha:
            there = descended(own, client.task.slope_of(own, site, support, first), alpha)
        slope = client.task.slope_of(there, site, asked, second)
        if alpha and hessian:
            bent = client.task.curved(own, slope, site, support, first)
            slope = slope - np.float32(alpha) * bent
        return slope

    def model(site: Site, given: Message | None) -> ClientModel:
        start = given.weights if isinstance(given, Start) else site.memory["trained"]
        few = client.task.tuning(site)
        if not len(few.records):
            few, _ = client.halves(site)
        # Fixed seeds: a model that is asked for twice is the same twice.
        return ClientModel((client.adapted(start, site, few, tune_steps, count()),))

    def round(state: Start, cohort: Cohort) -> Round[Start]:
        reply = yield Ask(cohort, given=state, back=Change)
        moved = state.weights + reply.total(Change).delta / max(reply.answers, 1)
        return Start(weights=moved.astype(np.float32))

    form = Form.of("mean_of_changes", round, answers={Start: change})
    return Algorithm(
        name="graph_fl_domain",
        citation="Wang et al., GraphFL: A federated learning framework for semi-supervised node "
        "classification on graphs, ICDM 2022, Algorithm 2",
        init=init,
        model=model,
        forms=(form.moved_by_totals(reach=1.0),),
        dims={"d": task.size},
    )


ALGORITHM = graph_fl_domain
