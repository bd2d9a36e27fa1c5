"""FedMF (Chai et al., IEEE Intelligent Systems 2021):  Q <- step(Q, Σ_u dL_u/dQ),  p_u by its own.

Federated matrix factorisation with one user per client. User and items step together along their
gradients at one and the same point. The paper keeps the item table encrypted under one Paillier key
that all users share, so that any user who works with the server opens everything; here the
gradients leave inside a protected sum, in the forms of `algorithms.fed_per_gnn`, and users agree on
no common secret. Its "full text" is what is said here: rows of all items, zeros included.
"""

from __future__ import annotations

from collections.abc import Mapping

from algorithms._shared.items import Aggregator, Server, User, checked, forms
from algorithms.tasks import Kind, Task
from protocols.forms import Algorithm

MODELS: Mapping[Kind, str] = {"rating": "user_dot"}
"""What the configuration's model is where it names none."""


def fed_mf(
    task: Task,
    *,
    epochs: int = 1,
    cohorts: int = 1,
    decay: float = 0.2,
    user_lr: float = 0.5,
    user_decay: float = 1.0,
    holders: int = 4,
    blocks: int = 1,
) -> Algorithm[Server]:
    """Return FedMF for a task.

    Args:
        task: ratings, with a model of one user, usually user_dot.
        epochs: 1; a round is one step.
        cohorts: see `algorithms.fed_per_gnn`, as for all that follow.
        decay: L2 coefficient of the item table.
        user_lr: the user's step.
        user_decay: its L2 coefficient.
        holders: of a row in the form `held_items`.
        blocks: see `algorithms.fed_per_gnn`.

    Raises:
        ValueError: an option is out of range, or the model is not of one user.
    """
    if epochs != 1:
        raise ValueError("fed_mf takes one step a round; set algorithm.epochs to 1")
    if user_decay < 0.0 or user_lr <= 0.0:
        raise ValueError("out of range; needed are user_decay >= 0 and user_lr > 0")
    user = User(checked(task, "fed_mf"), 1, user_lr, user_decay, blocks)
    server = Aggregator(user, decay, cohorts, holders)
    return Algorithm(
        name="fed_mf",
        citation="Chai et al., Secure federated matrix factorization, IEEE Intelligent Systems "
        "36(5), 2021",
        init=server.init,
        model=user.model,
        forms=forms(server),
        dims=server.dims,
    )


ALGORITHM = fed_mf
