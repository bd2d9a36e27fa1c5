"""One user's part of a rating model, trained apart from what all users share."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from algorithms import nn
from algorithms.site import Site
from algorithms.tasks import Weights

if TYPE_CHECKING:
    from algorithms.tasks.rating import RatingTask

__all__ = ["Descended", "descended"]


class Descended(NamedTuple):
    """What a client is left with.

    Attributes:
        slope: gradient of L_u in what is shared, (base,).
        head: the user's part, (size - base,).
    """

    slope: Weights
    head: Weights


def descended(
    task: RatingTask, weights: Weights, site: Site, *, steps: int, lr: float, decay: float
) -> Descended:
    """Take steps with the user's part; with the last, take the gradient in what is shared.

    The loss is L_u = 1/2 Σ_j (r̂_uj - r_uj)² over the site's training ratings, on [0, 1]. A step is
    lr / n (dL_u + decay x part), with n their number. The shared gradient is that of the last step,
    taken where it begins: with one step both are gradients at `weights`.

    Args:
        task: with a model of one user.
        weights: (size,), float32.
        site: of one user.
        steps: 1 or more.
        lr: size of a step.
        decay: L2 coefficient of the user's part, on L_u.

    Raises:
        ValueError: weights or data do not fit the model.
        FloatingPointError: training diverged to NaN or infinity.
    """
    found = np.zeros(task.base, dtype=np.float32)
    near = task._near(site, weights)
    if near is None or not site.count:
        return Descended(found, weights[task.base :].copy())
    inner, count = near.task, site.count
    module = inner._load(weights[near.rows], site)
    parameters, head = list(module.parameters()), nn.head(module)
    batch = next(inner.batches(site))
    draws = torch.Generator().manual_seed(batch.seed)
    for step in range(steps):
        outputs = inner._outputs(module, site.data, batch.records, draws, True)
        loss = inner._loss(outputs, site.data, batch.records) * (count / 2)  # it was a mean
        wanted = parameters if step == steps - 1 else head
        slopes = torch.autograd.grad(loss, wanted, allow_unused=True, materialize_grads=True)
        with torch.no_grad():
            for part, slope in zip(head, slopes[len(wanted) - len(head) :], strict=True):
                part.sub_(slope + decay * part, alpha=lr / count)
    shared = len(parameters) - len(head)
    flat = torch.cat([slope.reshape(-1) for slope in slopes[:shared]]).numpy()
    found[near.rows[: len(flat)]] = flat
    own = torch.cat([part.detach().reshape(-1) for part in head]).numpy()
    if not (np.isfinite(flat).all() and np.isfinite(own).all()):
        raise FloatingPointError(
            "a user's training diverged: a gradient is no longer finite, most likely because "
            "user_lr or model.lr is too large; lower one of them"
        )
    return Descended(found, own)
