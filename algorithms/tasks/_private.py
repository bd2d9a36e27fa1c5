"""Training with noised gradients: what `FlatTask` does where a site's policy asks for it.

The site's `PrivateSteps` draws a batch for each gradient, so the batches of an algorithm's own
steps hold no records here; all that they bring is the number of steps. A site without training
records trains like any other, on noise, since whether it has any is private too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from algorithms.tasks import Batch, Mixed, Weights
from algorithms.tasks._optimisers import Stepper
from algorithms.tasks.private import PrivateSteps
from algorithms.tasks.site import Site

__all__ = ["Noised", "PullBack", "batches", "descend", "mixed"]

Numbers = npt.NDArray[np.int64]
Rows = Iterator[npt.NDArray[np.float32]]
PullBack = Callable[[Numbers, Tensor], Rows]
"""From records (b,) and slopes at their outputs (b, C) to one gradient (d,) for each."""


@dataclass(frozen=True, repr=False)
class Noised:
    """One model at one site, whose gradients are noised. Everything here is private.

    Attributes:
        steps: draws batches and noise.
        records: int64 (n,), numbers of the training records.
        size: parameters, d.
        outputs: of records, (b, C), before the activation, without dropout.
        loss: mean loss of records from their outputs.
        back: see `PullBack`.
    """

    steps: PrivateSteps
    records: Numbers
    size: int
    outputs: Callable[[Numbers], Tensor]
    loss: Callable[[Tensor, Numbers], Tensor]
    back: PullBack

    def gradient(self) -> Weights:
        """Return one noised mean gradient, float32 (d,), without weight decay."""

        def rows(places: Numbers) -> Rows:
            if len(places):
                chosen = self.records[places]
                yield from self.back(chosen, self.slopes(self.outputs(chosen), chosen))

        return self.steps.step(len(self.records), self.size, rows).astype(np.float32)

    def slopes(self, outputs: Tensor, records: Numbers) -> Tensor:
        """Return the gradient of each record's own loss at its outputs, (b, C)."""
        at = outputs.detach().requires_grad_()
        each = [self.loss(at[k : k + 1], records[k : k + 1]) for k in range(len(records))]
        (found,) = torch.autograd.grad(torch.stack(each).sum(), at)
        return found


def batches(site: Site) -> Iterator[Batch]:
    """Yield batches without records, without end."""
    while True:
        seed = site.generator("batch").integers(2**63)
        yield Batch(np.zeros(0, dtype=np.int64), int(seed))


def descend(
    noised: Noised,
    parameters: Sequence[torch.nn.Parameter],
    stepper: Stepper,
    pull: float,
    pulled: int,
) -> None:
    """Take a round's noised steps; the parameters hold the result, the first `pulled` are pulled.

    Weight decay and pull depend on no record, so they stand outside the noise.
    """
    start = [parameter.detach().clone() for parameter in parameters]
    for _ in range(noised.steps.steps):
        found, begin = torch.from_numpy(noised.gradient()), 0
        for place, (parameter, before) in enumerate(zip(parameters, start, strict=True)):
            end = begin + parameter.numel()
            parameter.grad = found[begin:end].view_as(parameter).clone()
            if pull and place < pulled:
                parameter.grad.add_(parameter.detach() - before, alpha=pull)
            begin = end
        stepper.step()


def mixed(personal: Noised, shared: Noised, alpha: float) -> Mixed:
    """Return noised mean gradients of the mixture of two models, without weight decay.

    The gradients with respect to both models and to alpha are clipped as one vector of 2 d + 1
    entries: they come from one batch, so they are one release.
    """
    size = personal.size

    def rows(places: Numbers) -> Iterator[npt.NDArray[Any]]:
        if not len(places):
            return
        chosen = personal.records[places]
        own, common = personal.outputs(chosen), shared.outputs(chosen)
        slopes = personal.slopes(alpha * own + (1.0 - alpha) * common, chosen)
        towards = (slopes * (own - common)).sum(dim=1, keepdim=True).numpy()
        ours = personal.back(chosen, alpha * slopes)
        theirs = shared.back(chosen, (1.0 - alpha) * slopes)
        for parts in zip(ours, theirs, towards, strict=True):
            yield np.concatenate(parts)

    found = personal.steps.step(len(personal.records), 2 * size + 1, rows).astype(np.float32)
    return Mixed(personal=found[:size], shared=found[size:-1], alpha=float(found[-1]))
