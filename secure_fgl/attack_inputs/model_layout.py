"""Where the parts of a model lie in what is said of it.

Our models store weights (in, out). Those from outside may store them (out, in) as `torch.nn.Linear`
does: the module says so of such layers, and the shape of other matrices where it can.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

import numpy as np

from algorithms import nn
from audits.attacks import Layers

__all__ = ["layers_of", "outside"]


class _Part(NamedTuple):
    """One parameter: where it lies, its shape as it is stored, and what enters and leaves it."""

    place: slice
    shape: tuple[int, ...]
    enters: int = 0
    leaves: int = 0
    turned: bool = False


def outside(task: Any) -> frozenset[str] | None:
    """Return which weights of a model from outside are stored (out, in); None for one of ours."""
    import torch

    if nn.maker(getattr(task, "_file", None)) is None:
        return None
    modules = task.module().named_modules()
    kind = torch.nn.Linear
    return frozenset(f"{n}.weight".lstrip(".") for n, made in modules if isinstance(made, kind))


def layers_of(layout: Any, spec: Any, size: int, turned: Collection[str] | None = None) -> Layers:
    """Return where first and last layer lie in the first `size` values of a flat vector.

    Args:
        layout: name and shape of every parameter, in the vector's order.
        spec: of the data.
        size: of what is said; FedPer leaves the head out.
        turned: weights that are stored (out, in); None: of a model of ours, which has none.
    """
    parts = list(_parts(layout, size, turned))
    if turned is not None:
        parts = _by_shape(parts, spec)
    first = next((part for part in parts if part.enters == spec.features), None)
    weights = [part for part in parts if part.leaves == spec.classes]
    biases = [part for part in parts if part.shape == (spec.classes,)]
    weight, bias = _last(parts, weights, biases, spec.features if turned is not None else None)
    after = [p for p in parts if first is not None and p.place.start == first.place.stop]
    first_bias = after[0] if after and len(after[0].shape) == 1 else None
    return Layers(
        first=_placed(first),
        first_bias=_placed(first_bias),
        last_weight=_placed(weight),
        last_bias=_placed(bias),
        turned=frozenset(p.place.start for p in (first, weight) if p is not None and p.turned),
        foreign=turned is not None,
    )


def _parts(layout: Any, size: int, turned: Collection[str] | None) -> Iterator[_Part]:
    start = 0
    for name, shape in layout:
        place = slice(start, start + int(np.prod(shape)))
        start = place.stop
        if start > size:
            return
        if len(shape) != 2:
            yield _Part(place, tuple(shape))
            continue
        other = turned is not None and name in turned
        enters, leaves = reversed(shape) if other else shape
        yield _Part(place, tuple(shape), enters, leaves, other)


def _by_shape(parts: list[_Part], spec: Any) -> list[_Part]:
    """Return the parts of a model from outside; where no first or last layer fits, turned ones."""
    ends = {"enters": spec.features, "leaves": spec.classes}
    missing = [(end, n) for end, n in ends.items() if all(getattr(p, end) != n for p in parts)]

    def other(part: _Part) -> _Part:
        made = part._replace(enters=part.leaves, leaves=part.enters, turned=True)
        fits = any(getattr(made, end) == width for end, width in missing)
        return made if fits and not part.turned else part

    return list(map(other, parts))


def _last(
    parts: list[_Part], weights: list[_Part], biases: list[_Part], features: int | None
) -> tuple[_Part | None, _Part | None]:
    """Return weight and bias of the last layer.

    Of a model from outside a shortcut from the `features` gives way to a layer above another one,
    and the bias is the weight's own, if it has one.
    """
    if features is None or not weights:
        return next(reversed(weights), None), next(reversed(biases), None)
    weight = ([part for part in weights if part.enters != features] or weights)[-1]
    own = [bias for bias in biases if bias.place.start == weight.place.stop]
    return weight, next(reversed(own or biases), None)


def _placed(part: _Part | None) -> Any:
    return None if part is None else (part.place, part.shape)
