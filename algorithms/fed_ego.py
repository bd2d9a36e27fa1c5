"""FedEgo (Zhang et al., 2022, Algorithm 1):  Phi_i <- l_i Phi_g + (1 - l_i) Phi_i,  l_i by eq. 15.

Personalised federated learning on ego-graphs. A client trains reduction layers Theta_i, which embed
nodes, and personalisation layers Phi_i, which judge an ego-graph of embeddings. Every client
receives the mean of all Theta_i; the aggregator reads no client's trained Theta_i and not the mean.
It trains layers Phi_g on mixtures of ego-graphs, and client i moves towards them by

    l_i = (EMD_i / 2)^gamma,    EMD_i = sum_c |P_i(c) - P_g(c)|,

where P_i are the shares of the classes among its own training nodes and P_g those among all.

Forms:

* `mixup`: a client hands its ego-graphs to the message layer, which mixes at least as many as the
  policy asks for, position by position, and lets nothing else out. P_g comes from the mixed labels,
  so that nothing more is said for it. It rests on clients that keep to it: one that works with the
  aggregator chooses the mean Theta with its own upload, and so what a mixture shows of others.
* `no_ego_upload`: no ego-graph leaves. Each step of Phi_g is the mean of its gradients on mixtures
  that clients make for themselves, an equal share of each in every step, as a protected sum. P_g
  comes from a sum of class counts, opened once in a run. "No ego upload" is not "no leak": sums of
  gradients are disclosed.
* `told_labels`: the same, but once in a run each client tells the class of one training node that
  it draws of its own, under its own noise. P_g is the mean of the estimates, all clients alike.

Variants: `fixed` sets l_i for all: 1 takes Phi_g as it is (FedEgo-Server), 0 does without it (w/o
PL), and then says nothing that would be needed for it. `average=False` keeps Theta_i at its client
(w/o RL). Models ego_sage_linear and ego_mlp are FedEgo-Linear and FedEgo w/o EGO. `mixup=False`
says the first ego-graph of each group as it is (w/o Mixup): only policies without protection let it
out.

Where this departs from the paper and from the authors' code:

* Both upload labels at every position. Neighbours may be test nodes, so here a mixture has the
  label of its centres alone, and P_i and P_g count training nodes alone.
* Their last batch holds what is left, a single ego-graph at times. No batch here is short.
* A node that stands at one position of several members counts once there, see `mashed`.
* An isolated node stands at the positions of its missing neighbours; in the authors' code these
  count as zeros.
* Clients and aggregator start from one seed, so all know Theta_0, and in early rounds Theta is
  nearly that. All training nodes are passed `epochs` times a round; the authors pass a random fifth
  of them five times as often.
* Nothing is sampled where models are scored; the authors sample neighbours there as well.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from algorithms._shared.ego import (
    SCALE,
    Descent,
    Labels,
    Mashed,
    Personal,
    Reduction,
    Server,
    Slope,
    Start,
    Step,
    ToldLabels,
)
from algorithms.tasks import Kind, Task
from algorithms.tasks.ego import EgoTask
from protocols.forms import Algorithm, Exchange, Form
from protocols.messages import Message, SumMessage
from protocols.rounds import Ask, Cohort, Reply, Round, RoundLost

MODELS: Mapping[Kind, str] = {"node": "ego_sage"}
"""What the configuration's model is where it names none."""

POOL, BATCH = 5, 32
"""A pass of the aggregator takes one in POOL of the mixtures, in batches of BATCH, as FedEgo's."""


@dataclass(frozen=True)
class Rounds:
    """What the aggregator does in each form; the attributes are options of `fed_ego`."""

    task: EgoTask
    average: bool
    passes: int
    counted: bool

    @property
    def theta(self) -> tuple[type[Message], ...]:
        """What clients say of their reduction layers."""
        return (Reduction,) if self.average else ()

    def handed(self, cohort: Cohort, reply: Reply) -> Generator[Ask, Reply, None]:
        """Give every client the mean of all reduction layers, which stays closed here."""
        if self.average:
            even = np.full((reply.answers, reply.answers), 1.0 / reply.answers)
            yield Ask(cohort, given=reply.weighted(Reduction, even))

    def on_mixtures(self, state: Server, cohort: Cohort) -> Round[Server]:
        """Train Phi_g on all clients' mixtures."""
        reply = yield Ask(cohort, given=state.start, back=(*self.theta, Mashed))
        said, server = reply.each(Mashed), Descent(self.task, state)
        pool = np.concatenate([each.features for each in said])
        label = np.concatenate([each.label for each in said])
        rng = np.random.default_rng([state.start.seed, state.start.step, 1])
        for _ in range(self.passes if len(label) else 0):
            chosen = rng.permutation(len(label))[: max(1, len(label) // POOL)]
            for rows in np.split(chosen, range(BATCH, len(chosen), BATCH)):
                server.slope(pool[rows], label[rows], int(rng.integers(2**63)))
        if not state.start.step:  # once: counted anew, P_g would tell the mix of who is away
            server.count(label.sum(axis=0))
        yield from self.handed(cohort, reply)
        return server.ended()

    def on_slopes(
        self, state: Server, cohort: Cohort, back: tuple[type[SumMessage], ...] = (Slope,)
    ) -> Round[Server]:
        """Train Phi_g on sums of gradients; where one is lost, the round ends with those before.

        Were the round played anew, the same step would be summed over fewer clients, and the
        difference of the two totals would be the gradient of the one that vanished.
        """
        reply = yield Ask(cohort, given=state.start, back=self.theta or None)
        yield from self.handed(cohort, reply)
        server = Descent(self.task, state)
        for number in range(self.passes):
            at = {"step": state.start.step, "number": number}
            step = Step(**at, phi=server.phi, scales=server.scales)
            try:
                reply = yield Ask(cohort, given=step, back=back)
            except RoundLost:  # no step is taken twice from one Phi_g, by other clients (O5)
                break
            server.open(reply.total(Slope).slope / max(reply.answers, 1))
            if Labels in back and not number and not state.start.step:
                server.count(reply.total(Labels).counts)
        return server.ended()

    def on_counts(self, state: Server, cohort: Cohort) -> Round[Server]:
        """Train Phi_g so, and open a sum of class counts in the first step."""
        return (yield from self.on_slopes(state, cohort, (Slope, Labels)))

    def on_told(self, state: Server, cohort: Cohort) -> Round[Server]:
        """Train Phi_g so; after the first round hear, once, what clients tell of their labels."""
        after = yield from self.on_slopes(state, cohort)
        if state.start.step:
            return after
        try:
            reply = yield Ask(cohort, given=after.start, back=ToldLabels)
        except RoundLost:  # it is not told twice; P_g stays even
            return after
        server = Descent(self.task, after)
        server.count(np.sum([each.labels for each in reply.each(ToldLabels)], axis=0))
        return replace(after, start=replace(after.start, shares=server.shares))

    def without(self, state: Server, cohort: Cohort) -> Round[Server]:
        """Do without Phi_g."""
        reply = yield Ask(cohort, given=state.start, back=self.theta)
        yield from self.handed(cohort, reply)
        return Descent(self.task, state).ended()

    def forms(self, client: Personal, *, mixup: bool) -> tuple[Form[Server], ...]:
        """Return the forms of a variant, the preferred one first."""
        receive = [Exchange("receive", (Reduction,), (), client.receive)] if self.average else []
        train = Exchange("train", (Start,), self.theta, client.train)
        if client.fixed == 0.0:
            return (Form("reduction_only", self.without, (train, *receive)),)
        back = (*self.theta, Mashed)
        if not mixup:
            show = Exchange("train_and_show", (Start,), back, client.train_and_show)
            return (Form("unmixed", self.on_mixtures, (show, *receive), unmixed=True),)
        mix = Exchange("train_and_mix", (Start,), back, client.train_and_mix)
        often = self.passes
        alone = Exchange("slope", (Step,), (Slope,), client.slope, often)
        mixed = Form("mixup", self.on_mixtures, (mix, *receive))
        if not self.counted:
            slopes = (train, *receive, alone)
            return (mixed, Form("no_ego_upload", self.on_slopes, slopes))
        both = Exchange("slope", (Step,), (Slope, Labels), client.slope_and_labels, often)
        labels = Exchange("labels", (Start,), (ToldLabels,), client.tell_labels, 0, outside=1)
        return (
            mixed,
            Form("no_ego_upload", self.on_counts, (train, *receive, both)),
            Form("told_labels", self.on_told, (train, labels, *receive, alone)),
        )


def _check(gamma: float, fixed: float | None, average: bool, *sizes: int) -> None:
    if not gamma >= 0.0:
        raise ValueError(f"gamma = {gamma} would move alike clients most; choose it at 0 or above")
    if fixed is not None and not 0.0 <= fixed <= 1.0:
        raise ValueError(f"fixed = {fixed} is no share of Phi_g; choose it in [0, 1], or none")
    if fixed == 0.0 and not average:
        raise ValueError("with fixed = 0 and average = false clients train alone: that is `local`")
    if min(sizes) < 1:
        raise ValueError("group, passes and share count mixtures and steps; choose 1 or more")


def fed_ego(  # noqa: PLR0913 - the paper's settings, all by name
    task: Task,
    *,
    epochs: int = 1,
    gamma: float = 0.5,
    fixed: float | None = None,
    average: bool = True,
    mixup: bool = True,
    group: int = 32,
    passes: int = 5,
    share: int = 4,
) -> Algorithm[Server]:
    """Return FedEgo for a task.

    Args:
        task: on ego-graphs, which the model says.
        epochs: local epochs per round, over all training nodes.
        gamma: exponent of eq. 15, at least 0; the larger, the more personal.
        fixed: l_i of all clients, in [0, 1]; None: by eq. 15.
        average: whether all clients receive the mean of the reduction layers.
        mixup: False uploads ego-graphs unmixed: only under a policy without protection.
        group: ego-graphs in a mixture, at least; a policy may ask for more. A client with fewer
            makes one mixture of all it has, if the policy's floor holds.
        passes: passes of the aggregator over a random fifth of the mixtures, per round; in the form
            `no_ego_upload` its steps per round.
        share: mixtures of each client in a step of `no_ego_upload`.

    Raises:
        ValueError: an option is out of range, or the task knows no ego-graphs.
    """
    _check(gamma, fixed, average, group, passes, share)
    if not isinstance(task, EgoTask):
        raise ValueError(
            "fed_ego needs a node task on ego-graphs: set model.name to ego_sage, ego_sage_linear "
            f"or ego_mlp (this is a {task.spec.task} task)"
        )
    client = Personal(task, epochs, gamma, fixed, average, group, passes, share)
    rounds = Rounds(task, average, passes, counted=fixed is None)
    classes = task.spec.classes

    def init(rng: np.random.Generator) -> Server:
        seed = int(rng.integers(2**31))
        phi = task.initial(np.random.default_rng(seed))[task.reduction :]
        start = Start(step=0, seed=seed, phi=phi, shares=np.full(classes, 1 / classes))
        return Server(start, np.full(len(task.parts), SCALE), {})

    return Algorithm(
        name="fed_ego",
        citation="Zhang et al., FedEgo: Privacy-preserving Personalized Federated Graph Learning "
        "with Ego-graphs, 2022, Algorithm 1",
        init=init,
        model=client.model,
        forms=rounds.forms(client, mixup=mixup),
        dims={
            "theta": task.reduction,
            "phi": task.size - task.reduction,
            "parts": len(task.parts),
            "classes": classes,
            "positions": task.positions,
            "embedding": task.embedding,
            "group": group,
        },
    )


ALGORITHM = fed_ego
