"""What a site's data lack that whoever runs should hear: nothing stops, and little is learnt."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from secure_fgl.data.floor import TOO_FEW, persons, trains_on_few
from secure_fgl.data.records import ClientGraph, ClientGraphs, Part

__all__ = ["lacking"]

NONE = "no training record (no label, or no role train), so this site trains on nothing"
ONE_CLASS = "all its training records are of one class"
NO_EDGE = "no site has an edge, so a graph model sees each node by itself"
_NAMED = 8  # sites that lack the same thing, each with a line of its own


def lacking(
    parts: Mapping[str, Part], called: Mapping[str, str], least: int, *, own: bool
) -> Iterator[str]:
    """Yield a line for each site that lacks something; of many, one line.

    Args:
        parts: what each client holds.
        called: what a line calls it: of own tables the site's folder.
        least: the policy's floor on persons.
        own: these are somebody's tables, and no set that a partition shared out on purpose.
    """
    found: dict[str, list[str]] = {}
    for client, part in parts.items():
        for sentence in _of(part, least, own=own):
            found.setdefault(sentence, []).append(called[client])
    for sentence, names in found.items():
        if len(names) > _NAMED:
            yield f"{', '.join(names[:_NAMED])} and {len(names) - _NAMED} more: {sentence}"
        else:
            yield from (f"{name}: {sentence}" for name in names)
    graphs = [part for part in parts.values() if isinstance(part, ClientGraph)]
    if own and len(graphs) == len(parts) and not any(part.edges.size for part in graphs):
        yield NO_EDGE


def _of(part: Part, least: int, *, own: bool) -> Iterator[str]:
    if not persons(part, part.train):
        yield NONE
    elif trains_on_few(part, least):
        yield TOO_FEW.format(least)
    elif own and _of_one_class(part):
        yield ONE_CLASS


def _of_one_class(part: Part) -> bool:
    """Tell whether all training records of a site have one label."""
    if not isinstance(part, ClientGraph | ClientGraphs) or part.y.ndim != 1:
        return False
    return len(np.unique(part.y[part.train])) == 1
