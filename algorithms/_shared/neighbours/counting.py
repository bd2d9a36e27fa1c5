"""dGen: how many neighbours a node misses, n~ = ReLU(<theta, z> + b).

The bias is ours: it starts at the examples' mean, so that no node starts where the ReLU is flat.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import smooth_l1_loss

from algorithms.tasks._optimisers import Stepper

__all__ = ["counted", "fit_counting"]


def fit_counting(codes: Tensor, missing: Tensor, *, steps: int, lr: float) -> Tensor:
    """Return theta and b, (c + 1,), after Adam's steps on the smooth L1 loss over all examples.

    Args:
        codes: (B, c).
        missing: how many neighbours each of them misses, float32 (B,).
        steps: of Adam, without weight decay.
        lr: step size.
    """
    start = torch.zeros(codes.shape[1] + 1)
    start[-1] = missing.mean() if len(missing) else 0.0
    weights = torch.nn.Parameter(start)
    stepper = Stepper("adam", [weights], lr, 0.0)
    for _ in range(steps if len(missing) else 0):
        stepper.zero_grad()
        smooth_l1_loss(_counts(weights, codes), missing).backward()  # type: ignore[no-untyped-call]
        stepper.step()
    return weights.detach()


def counted(weights: Tensor, codes: Tensor, most: int) -> Tensor:
    """Return round(n~) of each code, at most `most`, int64 (N,)."""
    return _counts(weights, codes).round().clamp(0, most).to(torch.int64)


def _counts(weights: Tensor, codes: Tensor) -> Tensor:
    return torch.relu(codes @ weights[:-1] + weights[-1])
