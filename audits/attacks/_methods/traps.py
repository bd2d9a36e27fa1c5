"""Models whose hidden units are traps, each for one record of which a few words are known.

A unit of a graph network's first layer sees the row that the layer makes of a record: its own
features and its neighbours', each with a weight. Where the unit reads a few rare words only and its
bias takes off nearly all that such words usually give, it is silent for almost everybody. Its
gradient is the sum of what woke it: the row of the record for which it is not silent, times a
factor.

The factor is made the same for all records. All units push one class up and all others down, and
the last bias makes the model sure of that class: every record of another class pulls back with the
same force, and a unit that was woken is asleep after one step. What the units add to the model's
answer is kept far below one, so that they do not change it, whatever force they have.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from audits.attacks._shared.material import Array, Layers, Replica

__all__ = ["Target", "crafted", "force_of", "moved", "trap_of"]

Floats = npt.NDArray[np.float32]
Numbers = npt.NDArray[np.int64]

_SURE = 30.0  # of the last bias: all other classes together have a share of e^-30
_QUIET = 0.01  # what all that a unit adds to the model's answer is below
_FORCE = 1e3  # from which on: weaker units are as quiet, so that no weight decay is seen of them
_ROOM = 32.0  # how far below the clip a usual word of a usual record is to stand
_HIGH = 0.95  # of what the known words of a usual record give: what a bias takes off
_EPSILON = 1e-8  # torch's default in Adam and AdamW
_LINEAR = 0.15  # of it: how large a gradient is made where steps are divided by its size


@dataclass(frozen=True, repr=False)
class Target:
    """One record that an attacker is after, and what is known of it.

    Attributes:
        client: whose it is; the attacker does not know.
        known: (k,), numbers of the words that the attacker knows.
        words: (m,), numbers of all its words.
    """

    client: str
    known: Numbers
    words: Numbers


def force_of(replica: Replica, usual: float, records: float) -> float:
    """Return how hard units should push: words then stand well above the grid and below the clip.

    Args:
        replica: the run.
        usual: what one word of a usual record weighs in its own row.
        records: on which a usual client trains.
    """
    if replica.optimiser != "sgd":  # steps of one size, but where gradients are next to nothing
        return _LINEAR * _EPSILON * records / usual
    said = 1.0 if replica.weighted else 1.0 / records
    return replica.largest / (_ROOM * replica.lr * said * usual)


def crafted(
    layers: Layers,
    size: int,
    targets: Sequence[Target],
    popularity: Array,
    *,
    usual: float,
    force: float,
    quiet: float | None = None,
) -> Array:
    """Return a model of traps, one unit for each target and the others without any weight, (d,).

    Args:
        layers: where the parts lie; first and last layer with their biases.
        size: d.
        targets: not more than there are hidden units.
        popularity: (F,), how many records hold each word: a rarer word says more.
        usual: see :func:`force_of`.
        force: of the last layer, see :func:`force_of`.
        quiet: what a known word weighs in the first; None: as little as leaves the answer alone.
    """
    places = (layers.first, layers.first_bias, layers.last_weight, layers.last_bias)
    if any(place is None for place in places):
        raise ValueError("a trap needs two layers with biases; ask only of models that have them")
    first, bias, last, answer = (np.zeros(place[1]) for place in places if place is not None)
    quiet = _QUIET / max(force, _FORCE) if quiet is None else quiet
    for unit, target in enumerate(targets):
        weight = 1.0 / np.maximum(popularity[target.known], 1.0)
        weight *= target.known.size / weight.sum()
        first[target.known, unit] = quiet * weight
        bias[unit] = -_HIGH * quiet * target.known.size * usual
        last[unit] = -force
        last[unit, -1] = force
    answer[-1] = _SURE
    found = np.zeros(size)
    for place, part in zip(places, (first, bias, last, answer), strict=True):
        if place is not None:
            found[place[0]] = part.ravel()
    return found


def moved(start: Floats, goal: Array, *, norm: str, bound: float) -> Floats:
    """Return how far from `start` a model gets towards `goal` within a bound on its move, (d,).

    Args:
        start: (d,).
        goal: (d,).
        norm: ``linf`` bounds every weight, ``l2`` all of them together.
        bound: of the whole move.
    """
    way = goal - start.astype(np.float64)
    if norm == "l2":
        way *= min(1.0, bound / max(float(np.linalg.norm(way)), 1e-300))
    else:
        way = np.clip(way, -bound, bound)
    found: Floats = (start + way).astype(np.float32)
    return found


def trap_of(change: Array, layers: Layers, unit: int) -> tuple[Array, float]:
    """Return what a change says of one unit: its words, (F,), and its bias."""
    if layers.first is None or layers.first_bias is None:
        raise ValueError("a trap needs two layers with biases; ask only of models that have them")
    column = layers.part(change, layers.first)[:, unit]
    return column, float(layers.part(change, layers.first_bias)[unit])
