"""FCF (Ammad-ud-din et al., arXiv 1901.09888):  x_u <- argmin L_u,  Q <- step(Q, Σ_u dL_u/dQ).

Federated collaborative filtering: matrix factorisation with one user per client. A client solves
for its user's vector and bias, given the item table, by

    (Z'Z + λ I) [p_u, b_u] = Z'(r_u - μ - b),   Z = [Q_u, 1],

with the rows of the items that the user rated, and says the gradient of its loss in these rows.
They leave inside a protected sum, dense, as in `algorithms.fed_per_gnn`, whose forms these are.

Where this departs from the paper: it predicts ratings, of items that were rated (there: how much
confidence there is in a click, over all items), it has biases, and it steps with the model's
optimiser.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from algorithms._shared.items import Aggregator, Server, Start, User, checked, forms
from algorithms.tasks import Kind, Site, Task, Weights
from protocols.forms import Algorithm

MODELS: Mapping[Kind, str] = {"rating": "user_dot"}
"""What the configuration's model is where it names none."""


@dataclass(frozen=True)
class Solving(User):
    """A client that solves for its user's part, and then takes the gradient there."""

    def pieces(self, site: Site, given: Start) -> tuple[Weights, Weights]:
        """Return what was handed out, and the user's part solved for the table as it is."""
        shared, _ = super().pieces(site, given)
        return shared, self.solved(site, shared)

    def solved(self, site: Site, weights: Weights) -> Weights:
        """Return [p_u, b_u], (h + 1,); `weights` is what was handed out, (base,)."""
        data, (items, width) = site.data, self.table()
        train = data.train.numpy()
        rated = data.items[data.item.numpy()[train]]
        table = np.asarray(weights[: items * (width + 1)], dtype=np.float64)
        mean = 0.5 + 2.0 * float(weights[items * (width + 1)])
        spec = self.task.spec
        rating = (data.rating.numpy()[train] - spec.lowest) / (spec.highest - spec.lowest)
        left = rating - mean - table[items * width :][rated]
        design = np.ones((len(rated), width + 1))
        design[:, :-1] = table[: items * width].reshape(items, width)[rated]
        gram = design.T @ design + self.decay * np.eye(width + 1)
        found: Weights = np.linalg.solve(gram, design.T @ left).astype(np.float32)
        return found


def fcf(
    task: Task,
    *,
    epochs: int = 1,
    cohorts: int = 1,
    decay: float = 0.2,
    user_decay: float = 1.0,
    holders: int = 4,
    blocks: int = 1,
) -> Algorithm[Server]:
    """Return FCF for a task.

    Args:
        task: ratings, with the model user_dot.
        epochs: 1; the user's part is solved for, which no second pass would change.
        cohorts: see `algorithms.fed_per_gnn`, as for the next and the last.
        decay: L2 coefficient of the item table.
        user_decay: λ.
        holders: of a row in the form `held_items`.
        blocks: see `algorithms.fed_per_gnn`.

    Raises:
        ValueError: an option is out of range, or the model is another.
    """
    if epochs != 1:
        raise ValueError("fcf solves for a user's vector once a round; set algorithm.epochs to 1")
    if user_decay <= 0.0:
        raise ValueError("user_decay must be above 0: a user with few ratings has many solutions")
    chosen = checked(task, "fcf")
    if any(name.startswith("layer.") for name, _ in chosen.layout()):
        raise ValueError("fcf is matrix factorisation; set model.name to user_dot")
    user = Solving(chosen, 1, 0.0, user_decay, blocks)
    server = Aggregator(user, decay, cohorts, holders)
    return Algorithm(
        name="fcf",
        citation="Ammad-ud-din et al., Federated collaborative filtering for privacy-preserving "
        "personalized recommendation system, arXiv:1901.09888, 2019",
        init=server.init,
        model=user.model,
        forms=forms(server),
        dims=server.dims,
    )


ALGORITHM = fcf
