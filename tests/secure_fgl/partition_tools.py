"""Small data sets of the three kinds, and what tests ask of parts."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from secure_fgl.data.records import Graph, GraphSet, Masks, Ratings, split_masks
from secure_fgl.data.sharing import partition

NUMBERS = {Graph: "nodes", GraphSet: "graphs", Ratings: "rows"}


def node_data(nodes=400, classes=5, degree=8, seed=0, unlabelled=0, owners=4):
    """Planted classes, each with twice as many edges inside as across."""
    rng = np.random.default_rng(seed)
    y = rng.integers(classes, size=nodes)
    ends = rng.integers(nodes, size=(2, nodes * degree))
    ends = ends[:, (y[ends[0]] == y[ends[1]]) | (rng.random(ends.shape[1]) < 0.2)]
    edges = np.unique(np.sort(ends[:, ends[0] != ends[1]], axis=0), axis=1)
    y[:unlabelled] = -1
    x = sp.csr_array(np.arange(nodes, dtype=np.float32)[:, None] + 1)
    owner = rng.permutation(np.arange(nodes) % owners)
    return Graph("toy-nodes", edges, x, y, classes, True, owner=owner)


def graph_data(graphs=300, classes=3, seed=0, labels=0, owners=4, dense=False):
    """Rings of 2 to 7 nodes (their edges in mixed order), sorted by class; feature: node number."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(2, 8, size=graphs)
    first = np.cumsum(sizes) - sizes
    rings = [
        (at + i, at + (i + 1) % n)
        for at, n in zip(first, sizes, strict=True)
        for i in range(n)
        if n > 2 or i == 0
    ]
    edges = np.sort(rng.permutation(np.array(rings)).T, axis=0)
    x = np.arange(sizes.sum(), dtype=np.float32)[:, None] + 1
    y = np.sort(rng.integers(classes, size=graphs))
    if labels:
        y = rng.choice([0.0, 1.0, np.nan], size=(graphs, labels)).astype(np.float32)
    owner = np.repeat(np.arange(owners), -(-graphs // owners))[:graphs]
    return GraphSet(
        "toy-graphs", sizes, edges, x if dense else sp.csr_array(x), y, labels or classes,
        bool(labels), True, owner=owner,
    )  # fmt: skip


def rating_data(users=40, items=60, seed=0, categories=4, most=20):
    """Between 1 and `most` ratings a user, in mixed order."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(1, most + 1, size=users)
    counts[0] = 1
    user = np.repeat(np.arange(users), counts)
    item = np.concatenate([rng.choice(items, size=n, replace=False) for n in counts])
    order = rng.permutation(len(user))
    user, item = user[order], item[order]
    rating = (rng.integers(1, 6, size=len(user))).astype(np.float32)
    return Ratings(
        "toy-ratings", user, item, rating, users, items, 1.0, 5.0, True, category=item % categories
    )


def share(whole, name, clients, seed=0, shares=(0.6, 0.2, 0.2), masks=None, **options):
    """Masks of the whole, and the parts."""
    rng = np.random.default_rng(seed)
    masks = masks or split_masks(whole, shares, rng=rng)
    return masks, partition(whole, name, clients, masks, rng, options)


def numbers(whole, part, role=None):
    """Numbers in the whole set of a part's records, or of those with a role."""
    all_of_them = getattr(part, NUMBERS[type(whole)])
    return all_of_them if role is None else all_of_them[getattr(part, role)]


def roles_of(whole, parts):
    """How many parts hold each record, and give it each role: four arrays."""
    held = np.zeros((4, whole.records), dtype=int)
    for part in parts:
        for row, role in enumerate((None, "train", "val", "test")):
            np.add.at(held[row], numbers(whole, part, role), 1)
    return held


def leaked(whole, parts):
    """Per client, the share of its test records that train at another client."""
    return np.array(
        [
            np.isin(
                numbers(whole, part, "test"),
                np.concatenate([numbers(whole, o, "train") for o in parts if o is not part]),
            ).mean()
            for part in parts
        ]
    )


def everything(whole):
    """Masks in which every record trains."""
    none = np.zeros(whole.records, dtype=bool)
    return Masks(~none, none, none)
