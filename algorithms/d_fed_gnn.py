"""D-FedGNN (Pei et al. 2021):  theta_i <- sum_j W_ij theta_j  over a client and its neighbours.

Decentralised parallel SGD (Lian et al., NeurIPS 2017) of a graph network: every client trains its
own weights, gives them to its neighbours, and goes on with the mean of its own and theirs. There is
no shared model and no aggregator of models. Each client reads one sum a round, over its own
neighbours, and nobody else reads it; see `protocols.messages.NeighbourSumMessage`.

W holds Metropolis' weights: 1/3 each on a ring, 1/K each on the complete graph, where all clients
have FedAvg's model with equal weights, up to a step of the grid. A client that some neighbour did
not answer in a round goes on with its own weights.

Where this departs from the paper: the ring that it takes is refused by every policy that does not
say otherwise: a client that works with one neighbour reads the other's model. Everybody keeps the
model that did best on its own validation records.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from algorithms.tasks import ClientModel, Site, Task, Weights
from protocols.forms import Algorithm, Answer, Form, TopologyKind
from protocols.messages import (
    Message,
    NeighbourSumMessage,
    ReleasedMessage,
    Vector,
    count,
    real,
)
from protocols.rounds import Ask, Cohort, Round


class Tick(ReleasedMessage):
    """A round begins; with it the public seed of everybody's starting weights."""

    step: int = count(unit="round", meaning="rounds done so far")
    seed: int = count(unit="seed", meaning="seed of the starting weights of round 1")


class Model(NeighbourSumMessage):
    """One client's weights on the way up; on the way down, the receiver's own mixture."""

    weights: Vector = real("d", unit="weight", meaning="the weights theta", wire="f4")


def d_fed_gnn(
    task: Task,
    *,
    epochs: int = 1,
    topology: TopologyKind = "complete",
    degree: int = 0,
    edges: Sequence[Sequence[int]] = (),
) -> Algorithm[Tick]:
    """Return D-FedGNN for a task.

    Args:
        task: trains and predicts; `task.size` is d.
        epochs: local epochs per round.
        topology: ``ring``, ``regular``, ``complete``, or ``edges`` for a graph of one's own.
        degree: neighbours of each client on a regular graph.
        edges: pairs of places in the sorted order of clients, from 0 on.

    Raises:
        ValueError: degree or edges do not go with the topology.
    """

    def init(rng: np.random.Generator) -> Tick:
        return Tick(step=0, seed=int(rng.integers(2**31)))

    def current(site: Site, given: Message | None) -> Weights:
        if "weights" not in site.memory and isinstance(given, Tick):
            return task.initial(np.random.default_rng(given.seed))
        weights: Weights = site.memory["weights"]
        return weights

    def train(site: Site, given: Tick) -> Model:
        site.memory["weights"] = task.fit(current(site, given), site, epochs=epochs)
        return Model(weights=site.memory["weights"])

    def mix(site: Site, given: Model) -> None:
        site.memory["weights"] = np.asarray(given.weights, dtype=np.float32)

    def model(site: Site, given: Message | None) -> ClientModel:
        return ClientModel((current(site, given),))

    answers: dict[type[Message], Answer] = {Tick: train, Model: mix}

    def round(state: Tick, cohort: Cohort) -> Round[Tick]:
        reply = yield Ask(cohort, given=state, back=Model)
        yield Ask(cohort, given=reply.read(Model))
        return Tick(step=state.step + 1, seed=state.seed)

    return Algorithm(
        name="d_fed_gnn",
        citation="Pei et al., Decentralized Federated Graph Neural Networks, FTL-IJCAI 2021",
        init=init,
        model=model,
        forms=(Form.of("neighbourhoods", round, answers).over(topology, degree, edges),),
        dims={"d": task.size},
    )


ALGORITHM = d_fed_gnn
