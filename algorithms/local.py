"""Local: every client trains alone; nothing of its model leaves. The row to beat.

Each round is `epochs` more local epochs from the client's own weights, which start from the public
seed that everyone was given, so that the row differs from FedAvg in the averaging only.
"""

from __future__ import annotations

import numpy as np

from algorithms.tasks import ClientModel, Site, Task
from protocols.forms import Algorithm, Form
from protocols.messages import Array, Message, ReleasedMessage, count
from protocols.rounds import Ask, Cohort, Round


class Step(ReleasedMessage):
    """The public seed of the common starting point; never updated by anybody's data."""

    seed: int = count(unit="seed", meaning="seed of the starting weights of round 1")


def local(task: Task, *, epochs: int = 1) -> Algorithm[Step]:
    """Return the Local baseline for a task.

    Args:
        task: trains and predicts; `task.size` is d.
        epochs: local epochs per round.
    """

    def init(rng: np.random.Generator) -> Step:
        return Step(seed=int(rng.integers(2**31)))

    def current(site: Site, given: Message | None) -> Array:
        if "weights" not in site.memory and isinstance(given, Step):
            return task.initial(np.random.default_rng(given.seed))
        weights: Array = site.memory["weights"]
        return weights

    def train(site: Site, given: Step) -> None:
        site.memory["weights"] = task.fit(current(site, given), site, epochs=epochs)

    def model(site: Site, given: Message | None) -> ClientModel:
        return ClientModel((current(site, given),))

    def round(state: Step, cohort: Cohort) -> Round[Step]:
        yield Ask(cohort, given=state)
        return state

    return Algorithm(
        name="local",
        citation="no federation: the baseline row",
        init=init,
        model=model,
        forms=(Form.of("alone", round, answers={Step: train}),),
    )


ALGORITHM = local
