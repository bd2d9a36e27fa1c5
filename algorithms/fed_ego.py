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
from dataclasses import dataclass

import numpy as np

from algorithms._shared.ego import Labels, Mashed, Personal, Reduction, Slope, Start, Step
from algorithms.tasks import Kind, Moments, Task, Weights
from algorithms.tasks.ego import EgoTask
from protocols.forms import Algorithm, Exchange, Form
from protocols.messages import Array, Message, SumMessage
from protocols.rounds import Ask, Cohort, Reply, Round, RoundLost

MODELS: Mapping[Kind, str] = {"node": "ego_sage"}
"""What the configuration's model is where it names none."""

POOL, BATCH = 5, 32
"""A pass of the aggregator takes one in POOL of the mixtures, in batches of BATCH, as FedEgo's."""

SCALE, LARGEST = 0.25, 1 / 16
"""By what gradients are multiplied in the first sum, and how large about the largest of a matrix is
in later ones. Protected sums stand on a grid, on which a matrix of small ones would be lost."""


@dataclass(frozen=True)
class Server:
    """What the aggregator remembers.

    Attributes:
        start: what it hands out.
        scales: by what clients multiply each parameter's gradient, a power of two.
        moments: what its optimiser remembers of Phi_g, if the model keeps moments.
    """

    start: Start
    scales: Array
    moments: Moments


class Descent:
    """The aggregator's layers in a round, step by step."""

    def __init__(self, task: EgoTask, state: Server) -> None:
        self._task, self._before = task, state
        self.phi: Weights = np.asarray(state.start.phi, dtype=np.float32)
        self.shares = state.start.shares
        self.scales = state.scales
        self._moments = state.moments if task.keeps else {}

    def slope(self, features: Array, label: Array, seed: int) -> None:
        """Take a step along the gradient on mixtures, see `EgoTask.slope`."""
        self.step(self._task.slope(self.phi, features, label, seed))

    def step(self, slope: Weights) -> None:
        """Take a step along a gradient, (d_Phi,)."""
        self.phi, self._moments = self._task.stepped(self.phi, slope, self._moments)

    def open(self, slopes: Array) -> None:
        """Take a step along clients' mean scaled gradient, (d_Phi,), and scale the next ones anew.

        What clients are told rests on opened sums alone.
        """
        sizes = self._task.parts
        slope = np.asarray(slopes, np.float64) / np.repeat(self.scales, sizes)
        self.step(slope.astype(np.float32))
        largest = np.maximum.reduceat(np.abs(slope), np.cumsum([0, *sizes[:-1]]))
        fitting = np.exp2(np.floor(np.log2(LARGEST / np.maximum(largest, 1e-9))))
        self.scales = np.where(largest > 0.0, fitting, self.scales)

    def count(self, classes: Array) -> None:
        """Take over counts of classes, or sums of their shares, (C,), if there are any.

        Noise may carry one below zero; it counts as zero.
        """
        known = np.maximum(np.asarray(classes, dtype=np.float64), 0.0)
        if known.sum() > 0.0:
            self.shares = known / known.sum()

    def ended(self) -> Server:
        """Return the state after the round."""
        before = self._before.start
        start = Start(step=before.step + 1, seed=before.seed, phi=self.phi, shares=self.shares)
        return Server(start, self.scales, self._moments)


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

    @property
    def slopes(self) -> tuple[type[SumMessage], ...]:
        """What clients say in a step of `no_ego_upload`."""
        return (Slope, Labels) if self.counted else (Slope,)

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

    def on_slopes(self, state: Server, cohort: Cohort) -> Round[Server]:
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
                reply = yield Ask(cohort, given=step, back=self.slopes)
            except RoundLost:  # no step is taken twice from one Phi_g, by other clients (O5)
                break
            server.open(reply.total(Slope).slope / max(reply.answers, 1))
            if self.counted and not number and not state.start.step:
                server.count(reply.total(Labels).counts)
        return server.ended()

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
        slope = Exchange("slope", (Step,), self.slopes, client.slope, per_round=self.passes)
        return (
            Form("mixup", self.on_mixtures, (mix, *receive)),
            Form("no_ego_upload", self.on_slopes, (train, *receive, slope)),
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
