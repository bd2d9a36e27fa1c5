"""One user's part of a rating model, trained apart from what all users share."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, NamedTuple

import numpy as np

from algorithms import nn
from algorithms.tasks import Moments, Weights
from algorithms.tasks._flat import FlatTask
from algorithms.tasks.site import Site

__all__ = ["Descended", "UserSteps"]


class Descended(NamedTuple):
    """What a client is left with.

    Attributes:
        slope: gradient of L_u in what is shared, (base,).
        head: the user's part, (size - base,).
    """

    slope: Weights
    head: Weights


class UserSteps(FlatTask):
    """A task that can train the head of its model alone, and ask for the base's gradient then.

    The loss is L_u = 1/2 Σ_j (r̂_uj - r_uj)² over the site's training ratings, on [0, 1]. A step is
    lr / n (dL_u + decay x part), with n their number. The shared gradient is that of the last step,
    taken where it begins: with one step both are gradients at the same weights.
    """

    @abstractmethod
    def _near(self, site: Site, *vectors: Weights) -> Any:
        """Return the task of a site's own rows and their places; None if the model needs all."""

    def descended(
        self, weights: Weights, site: Site, *, steps: int, lr: float, decay: float
    ) -> Descended:
        """Take steps with the user's part; with the last, take the gradient in what is shared.

        Args:
            weights: (size,), float32.
            site: of one user.
            steps: 1 or more.
            lr: size of a step.
            decay: L2 coefficient of the user's part, on L_u.

        Raises:
            ValueError: weights or data do not fit the model.
            FloatingPointError: training diverged to NaN or infinity.
        """
        import torch

        near = self._near(site, weights)
        if not site.count:
            return Descended(np.zeros(self.base, np.float32), weights[self.base :].copy())
        if near is not None:
            own = near.task.descended(weights[near.rows], site, steps=steps, lr=lr, decay=decay)
            whole = np.zeros(self.base, dtype=np.float32)
            whole[near.rows[: len(own.slope)]] = own.slope
            return Descended(whole, own.head)
        module, count = self._load(weights, site), site.count
        parameters, head = list(module.parameters()), nn.head(module)
        batch = next(self.batches(site))
        draws = torch.Generator().manual_seed(batch.seed)
        for step in range(steps):
            outputs = self._outputs(module, site.data, batch.records, draws, True)
            loss = self._loss(outputs, site.data, batch.records) * (count / 2)  # it was a mean
            wanted = parameters if step == steps - 1 else head
            slopes = torch.autograd.grad(loss, wanted, allow_unused=True, materialize_grads=True)
            with torch.no_grad():
                for part, slope in zip(head, slopes[len(wanted) - len(head) :], strict=True):
                    part.sub_(slope + decay * part, alpha=lr / count)
        shared = slopes[: len(parameters) - len(head)]
        return Descended(_flat(shared), _flat([part.detach() for part in head]))

    def stepped(
        self, weights: Weights, slope: Weights, moments: Moments
    ) -> tuple[Weights, Moments]:
        """Some weights after one step of the optimiser along a slope, and what it remembers.

        For an aggregator that steps along a sum of clients' gradients; shapes (k,), any k.

        Raises:
            FloatingPointError: training diverged to NaN or infinity.
        """
        import torch

        from algorithms.tasks import _optimisers

        parameter = torch.nn.Parameter(torch.tensor(weights, dtype=torch.float32))
        steps = self._stepper([parameter])
        _optimisers.restore(steps, moments)
        parameter.grad = torch.tensor(slope, dtype=torch.float32)
        steps.step()
        return self._finite([parameter]), _optimisers.moments(steps)


def _flat(parts: Any) -> Weights:
    import torch

    found: Weights = torch.cat([part.reshape(-1) for part in parts]).numpy()
    if not np.isfinite(found).all():
        raise FloatingPointError(
            "a user's training diverged: a gradient is no longer finite, most likely because "
            "user_lr or model.lr is too large; lower one of them"
        )
    return found
