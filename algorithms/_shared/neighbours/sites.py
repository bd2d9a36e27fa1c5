"""A client's site with its graph mended: what FedSage+ trains the classifier on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from algorithms._shared.neighbours.sizes import Learning, Sizes
from algorithms.tasks.site import Site

if TYPE_CHECKING:
    from algorithms._shared.neighbours.learning import NeighGen
    from algorithms.tasks.inputs.nodes import NodeData

__all__ = ["learn_alone", "mended_site"]


def learn_alone(site: Site, sizes: Sizes, seed: int, how: Learning) -> None:
    """Leave NeighGen, learnt from the client's own graph alone, in its memory; once.

    fGen goes on from "joint" in its memory, where others helped it before.

    Args:
        site: the client's; its memory gets "neighgen".
        sizes: fGen's.
        seed: public; of the encoder and of what fGen starts from.
        how: steps and sizes.
    """
    from algorithms._shared.neighbours.learning import learnt

    if "neighgen" not in site.memory:
        begun = site.memory.get("joint")
        begun = sizes.initial(np.random.default_rng(seed)) if begun is None else begun
        rng = site.generator("neighbours")
        site.memory["neighgen"] = tuple(learnt(site.data, sizes, begun, seed, rng, how))


def mended_site(site: Site, sizes: Sizes, seed: int) -> Site:
    """Return the site on the graph that its NeighGen mends; its own data stay as they are.

    The graph is made once for one NeighGen, and made again alike where it was not kept.
    """
    from algorithms._shared.neighbours.learning import NeighGen, with_neighbours

    by: NeighGen = site.memory["neighgen"]
    kept: tuple[NeighGen, NodeData] | None = site.data.kept.get("mended")
    if kept is None or kept[0] is not by:
        kept = by, with_neighbours(site.data, sizes, NeighGen(*by), seed)
        site.data.kept["mended"] = kept
    return site.on(kept[1])
