"""What the change of a last layer says of the class mix behind it; see A04."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import softmax

from audits.attacks._shared.material import Array, Layers

__all__ = ["Estimate", "Last", "estimate", "together"]

_TILT = 3.0
"""How much a class whose every weight rose for the whole round gains in log-odds over one that
stood still. On Cora (10 METIS clients, AdamW, rounds 1 and 4) 3 and 5 overlap alike within 0.03."""
_FLOOR = 1e-3  # share of a class that no other client holds; it may still exist here
_SPREAD = 0.02  # variance of a class share among clients, against which noise is weighed
_PLAIN = 0.3  # of what independent entries would sum to; plain gradients are below, signs above


@dataclass(frozen=True, repr=False)
class Last:
    """The last layer and its change in one round.

    Attributes:
        weight, moved_weight: (hidden, classes).
        bias, moved_bias: (classes,).
    """

    weight: Array
    bias: Array
    moved_weight: Array
    moved_bias: Array

    @classmethod
    def of(cls, layers: Layers, known: Array, moved: Array) -> Last | None:
        """Return the last layer of flat vectors (d,); None if the message holds none.

        Raises:
            ValueError: the layout is another model's.
        """
        if layers.last_weight is None or layers.last_bias is None:
            return None
        places = (layers.last_weight, layers.last_bias)
        weight, bias = (layers.part(known, place) for place in places)
        moved_weight, moved_bias = (layers.part(moved, place) for place in places)
        if weight.shape[1:] != bias.shape:
            raise ValueError("the last layer's weight is not (hidden, classes)")
        return cls(weight, bias, moved_weight, moved_bias)


@dataclass(frozen=True, repr=False)
class Estimate:
    """What an attacker makes of a message.

    Attributes:
        prior, found: class shares without it and with it, (C,).
        trust: how much of what the message says is in `found`, 0 to 1.
    """

    prior: Array
    found: Array
    trust: float


def together(estimates: Sequence[Estimate]) -> Array:
    """Return the class shares that several messages of one client give together, (C,).

    Each counts by the inverse of its noise, as its trust tells it: of noisy ones what they say adds
    up, of clear ones it is their mean. Of one message its own estimate comes out.
    """
    weights = [one.trust / max(1.0 - one.trust, 1e-6) for one in estimates]
    total = np.mean([one.prior for one in estimates], axis=0)
    for one, weight in zip(estimates, weights, strict=True):
        total = total + (1.0 + weight) / (1.0 + sum(weights)) * (one.found - one.prior)
    kept = np.maximum(total, 0.0)
    found: Array = kept / kept.sum()
    return found


def estimate(last: Last, prior: Array, *, lr: float, steps: int, optimiser: str) -> Estimate:
    """Return the attacker's estimate of a client's class shares.

    Args:
        last: the last layer's change.
        prior: class shares of everyone else, (C,).
        lr: step size.
        steps: gradient steps in the round.
        optimiser: ``sgd``, ``adamw``, ``adam``, or empty: told from the message.
    """
    reach = lr * max(steps, 1)
    if not (optimiser == "sgd" or (not optimiser and _plain(last.moved_weight))):
        return _tilted(last, prior, reach)
    gradient = last.moved_bias / reach  # h - p, averaged over the steps
    square = float(gradient @ gradient)
    if square == 0.0:
        return Estimate(prior, prior, 0.0)
    activation = np.maximum(last.moved_weight @ last.moved_bias / (reach**2 * square), 0.0)
    halfway = last.weight + last.moved_weight / 2, last.bias + last.moved_bias / 2
    predicted = softmax(activation @ halfway[0] + halfway[1])
    found = _shares(predicted + gradient)
    noise = float(np.mean(last.moved_weight.sum(axis=1) ** 2)) / gradient.size / reach**2
    trust = _SPREAD / (_SPREAD + noise)
    return Estimate(prior, trust * found + (1.0 - trust) * prior, trust)


def _tilted(last: Last, prior: Array, reach: float) -> Estimate:
    """Return the prior, tilted towards the classes whose weights rose in most hidden units."""
    direction = last.moved_weight / reach  # an AdamW step moves an entry by about lr
    excess = max(float(np.mean(direction**2)) - 1.0, 0.0)  # so more than that is noise
    trust = _SPREAD / (_SPREAD + excess / direction.shape[0])
    tilted: Array = softmax(np.log(prior + _FLOOR) + trust * _TILT * direction.mean(axis=0))
    return Estimate(prior, tilted, trust)


def _plain(moved: Array) -> bool:
    """Tell whether changes sum to zero over the classes, as plain gradients of a softmax do."""
    size = float(np.mean(moved**2)) * moved.shape[1]
    return bool(float(np.mean(moved.sum(axis=1) ** 2)) < _PLAIN**2 * size)


def _shares(found: Array) -> Array:
    """Return the nearest class mix (Duchi et al., ICML 2008, figure 1)."""
    falling = np.sort(found)[::-1]
    over = (np.cumsum(falling) - 1.0) / np.arange(1, found.size + 1)
    cut = over[np.flatnonzero(falling > over)[-1]]
    projected: Array = np.maximum(found - cut, 0.0)
    return projected
