"""FedProx (Li et al., MLSys 2020, Algorithm 2):  min_w F_k(w) + mu/2 |w - w^t|^2  at client k.

FedAvg whose local training is pulled towards the model that it started from. Everything else is
FedAvg's: the messages, the forms, the averages (weighted by records, as in FedAvg; the paper draws
clients with these probabilities and averages plainly). With mu = 0 it is FedAvg bit for bit; so it
is with a single local step, since the pull is zero where it starts.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from algorithms._shared.steps import alike
from algorithms.fed_avg import Start, Update, fed_avg, moved
from algorithms.tasks import Site, Task
from protocols.forms import Algorithm, exchange_of
from protocols.messages import Array


def fed_prox(task: Task, *, epochs: int = 1, mu: float = 0.01) -> Algorithm[Start]:
    """Return FedProx for a task.

    Args:
        task: trains and predicts; `task.size` is d. The pull acts on all d weights.
        epochs: local epochs per round.
        mu: strength of the pull, at least 0. The paper searches {0.001, 0.01, 0.1, 1}.

    Raises:
        ValueError: `mu` is negative or no number.
    """
    if not 0.0 <= mu < float("inf"):
        raise ValueError(
            f"fed_prox: mu = {mu} would push a client away from the global model; choose it at 0 "
            "or above"
        )
    plain = fed_avg(task, epochs=epochs)
    by_records, *_ = plain.forms

    def change(site: Site, given: Start) -> Array:
        fitted = task.fit(given.weights, site, epochs=epochs, pull=mu)
        site.memory["trained"] = fitted
        return fitted.astype(np.float64) - given.weights

    def train(site: Site, given: Start) -> Update:
        return Update(delta=site.count * change(site, given), count=site.count)

    return replace(
        plain,
        name="fed_prox",
        citation="Li et al., MLSys 2020, Algorithm 2",
        forms=(
            replace(by_records, exchanges=(exchange_of(Start, train),)),
            *alike(Start, change, moved, name="train_alike"),
        ),
        reduced=lambda rounds: "" if mu else "FedAvg: with mu 0 nothing pulls; set the option mu",
    )


ALGORITHM = fed_prox
