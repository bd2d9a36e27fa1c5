"""fGen: features of missing neighbours, drawn from a code; its loss, and gradients by record.

A record is one code z. Its loss is the mean, over the p neighbours drawn for it, of the squared
distance to the nearest of its candidates (Zhang et al., NeurIPS 2021, section 4.1): the nearest is
found anew for each draw, and the gradient goes through the draw alone. Gradients are written out,
since clipping needs each record's own: the lengths come without making a vector for each record.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from algorithms._shared.neighbours.sizes import Sizes

__all__ = ["Drawn", "Slopes", "draw", "inputs", "nearest", "slopes"]


class Drawn(NamedTuple):
    """What fGen drew, with all that its gradient needs.

    Attributes:
        inputs: z + e, (B, p, c).
        hidden: after the ReLU, (B, p, h).
        rows: features, (B, p, F).
    """

    inputs: Tensor
    hidden: Tensor
    rows: Tensor


class Slopes(NamedTuple):
    """Gradients of B records, in factors.

    Attributes:
        losses: (B,).
        inputs, hidden: as in `Drawn`.
        below: of the loss by what enters the ReLU, (B, p, h).
        above: of the loss by what enters the tanh, (B, p, F).
    """

    losses: Tensor
    inputs: Tensor
    hidden: Tensor
    below: Tensor
    above: Tensor

    def norms(self) -> Tensor:
        """Return the length of each record's gradient, (B,).

        A layer's gradient is sum_k a_k d_k^T, and its squared length sum_kl <a_k, a_l> <d_k, d_l>.
        """
        squares = torch.zeros_like(self.losses)
        for entered, left in ((self.inputs, self.below), (self.hidden, self.above)):
            alike = entered @ entered.mT + 1.0  # 1: the bias
            squares = squares + (alike * (left @ left.mT)).sum(dim=(1, 2))
        return squares.clamp_min(0.0).sqrt()

    def total(self, scales: Tensor) -> Tensor:
        """Return sum_b scales_b g_b, a vector in fGen's order; `scales` is (B,)."""
        parts = []
        for entered, left in ((self.inputs, self.below), (self.hidden, self.above)):
            weighed = (left * scales[:, None, None]).flatten(0, 1)
            parts += [(entered.flatten(0, 1).T @ weighed).reshape(-1), weighed.sum(dim=0)]
        return torch.cat(parts)


def inputs(codes: Tensor, draws: int, generator: torch.Generator) -> Tensor:
    """Return z + e with a fresh e ~ N(0, I) for each draw, (B, p, c), from codes (B, c)."""
    noise = torch.randn((len(codes), draws, codes.shape[1]), generator=generator)
    return codes[:, None, :] + noise.to(codes.dtype)


def draw(sizes: Sizes, weights: Tensor, entered: Tensor) -> Drawn:
    """Return what fGen draws from z + e, (B, p, c)."""
    first, shift, second, base = _parts(sizes, weights)
    hidden = torch.relu(entered @ first + shift)
    return Drawn(entered, hidden, torch.tanh(hidden @ second + base))


def nearest(rows: Tensor, candidates: Tensor, allowed: Tensor) -> Tensor:
    """Return the features that are nearest to each drawn row, (B, p, F).

    Args:
        rows: (B, p, F).
        candidates: (n, F).
        allowed: bool (B, n), which of them a record is held against; at least one each.

    Raises:
        ValueError: a record has no candidate.
    """
    if not bool(allowed.any(dim=1).all()):
        raise ValueError(
            "a record has no candidate to be held against; leave such records out of the step"
        )
    size = candidates.square().sum(dim=1)
    away = size - 2.0 * rows @ candidates.T  # |x~|^2 is the same for all of them
    away = away.masked_fill(~allowed[:, None, :], torch.inf)
    return candidates[away.argmin(dim=2)]


def slopes(sizes: Sizes, weights: Tensor, drawn: Drawn, wanted: Tensor) -> Slopes:
    """Return losses and gradients where each drawn row should be another, (B, p, F).

    Args:
        sizes: fGen's.
        weights: fGen's.
        drawn: from these very weights.
        wanted: the features to be near to, see `nearest`.
    """
    _, _, second, _ = _parts(sizes, weights)
    apart = drawn.rows - wanted
    draws = apart.shape[1]
    above = 2.0 / draws * apart * (1.0 - drawn.rows.square())
    below = (above @ second.T) * (drawn.hidden > 0.0)
    losses = apart.square().sum(dim=(1, 2)) / draws
    return Slopes(losses, drawn.inputs, drawn.hidden, below, above)


def _parts(sizes: Sizes, weights: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    latent, hidden, features = sizes.latent, sizes.hidden, sizes.features
    lengths = [latent * hidden, hidden, hidden * features, features]
    first, shift, second, base = torch.split(weights, lengths)
    return first.reshape(latent, hidden), shift, second.reshape(hidden, features), base
