"""One data set a client, each split 80/10/10 by itself, stratified.

GCFL's setting of several data sets (Xie et al., Federated Graph Classification over Non-IID Graphs,
NeurIPS 2021). The source joins the data sets and writes into `owner` which graph came from which.
The split's seed is fixed apart from the training's, 123 there, so that repeated trainings (10, 42,
79, 111, 123) see one split.
"""

from __future__ import annotations

import numpy as np

from secure_fgl.data.partitions._shared import Cut, as_many, groups
from secure_fgl.data.records import GraphSet, Masks, deal, strata

__all__ = ["KINDS", "OWN_SPLIT", "cut"]

KINDS = ("graph",)

OWN_SPLIT = True
"""Each client splits its own graphs."""

SHARES = (0.8, 0.1, 0.1)
"""Training, validation and test at each client (GCFL, section 5)."""


def cut(
    whole: GraphSet,
    masks: Masks,
    clients: int,
    rng: np.random.Generator,
    *,
    split_seed: int = 123,
) -> list[Cut]:
    """One cut a client, disjoint and covering; `masks` and `rng` are not used.

    Args:
        whole: graphs of several data sets, with `owner`.
        masks: unused: roles are drawn in each data set by itself.
        clients: as many as data sets.
        rng: unused.
        split_seed: of the roles; a data set's split does not depend on the others.

    Raises:
        ValueError: the set has no owners, not as many as clients, or the seed is negative.
    """
    if whole.owner is None:
        raise ValueError(
            f"{whole.name!r} is a single data set; choose a group of several, or another "
            "partition, for example graphs_one_dataset"
        )
    if split_seed < 0:
        raise ValueError("split_seed must be 0 or more")
    as_many(whole.name, int(whole.owner.max(initial=-1)) + 1, "data sets", clients)
    kinds = strata(whole)
    return [
        Cut(members, *deal(members, kinds, SHARES, np.random.default_rng(split_seed)))
        for members in groups(whole.owner, clients)
    ]
