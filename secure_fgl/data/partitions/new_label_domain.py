"""All clients hold the whole graph; each learns a few old classes and is judged on new ones.

GraphFL's second setting (Wang et al., ICDM 2022, section 5.1.3). The last K0 classes are new, all
others old. Each client draws K0 old classes and `per_class` nodes of each, which it trains on. Of
each new class it has half as many labelled nodes, to which a model is tuned before it predicts
(role `tune`), `test_per_class` test nodes and, since a model must be picked on something else, as
many validation nodes. The source document has no such nodes and picks on the test.

**Labels are numbered 0 to K0-1 by each client for itself** (`relabel`), in ascending order, once
for its old and once for the new classes: each a bijection. The model keeps all its outputs.

Roles of new nodes are drawn over the whole graph before clients draw among them: a quarter tunes, a
quarter validates, half tests, so nobody's test node tunes anywhere. Two clients may train on the
same old node. **The graph is not private here**, see `few_shot_shared_graph`.
"""

from __future__ import annotations

import numpy as np

from secure_fgl.data.partitions._shared import Cut, Records
from secure_fgl.data.records import Graph, Masks

__all__ = ["KINDS", "OWN_SPLIT", "cut", "renumbered"]

KINDS = ("node",)

OWN_SPLIT = True
"""So many labels a class belong to the rule."""

SHARED_GRAPH = True
"""Every client has the whole graph."""


def cut(
    graph: Graph,
    masks: Masks,
    clients: int,
    rng: np.random.Generator,
    *,
    new_classes: int = 2,
    per_class: int = 10,
    test_per_class: int = 20,
    relabel: bool = True,
) -> list[Cut]:
    """One cut a client, each with all nodes; the rule draws its own roles.

    Args:
        graph: the whole graph.
        masks: unused.
        clients: 50 in GraphFL.
        rng: everything that is drawn.
        new_classes: K0; 2 in GraphFL on Cora and CiteSeer, 3 elsewhere.
        per_class: training nodes of each of a client's K0 classes, 2 or more; 2, 6 and 10 in
            GraphFL's table. Half of them is the number of labels of a new class.
        test_per_class: test nodes, and validation nodes, of each new class at a client.
        relabel: number the classes anew; False keeps the data set's numbers.

    Raises:
        ValueError: an option is out of range, or a class has too few nodes.
    """
    old = graph.classes - new_classes
    if not 1 <= new_classes <= old or per_class < 2 or test_per_class < 1:
        raise ValueError(
            "new_classes must be 1 or more and at most half of the classes, per_class 2 or more, "
            "and test_per_class 1 or more"
        )
    of_class = [rng.permutation(np.flatnonzero(graph.y == label)) for label in range(graph.classes)]
    pools = [np.split(nodes, [len(nodes) // 4, len(nodes) // 2]) for nodes in of_class[old:]]
    wanted = (per_class // 2, test_per_class, test_per_class)

    def draw(nodes: Records, size: int) -> Records:
        if len(nodes) < size:
            raise ValueError(
                f"a class of {graph.name!r} has too few nodes: {size} were to be drawn among "
                f"{len(nodes)}; lower per_class or test_per_class"
            )
        return rng.choice(nodes, size=size, replace=False)

    def own() -> Cut:
        classes = rng.choice(old, size=new_classes, replace=False)
        train = np.sort(np.concatenate([draw(of_class[label], per_class) for label in classes]))
        found = (
            np.sort(np.concatenate([draw(pool[role], size) for pool in pools]))
            for role, size in enumerate(wanted)
        )
        tune, val, test = found
        labels = np.full(graph.nodes, -1, dtype=np.int64)
        for nodes in (train, np.concatenate([tune, val, test])):
            labels[nodes] = renumbered(graph.y[nodes]) if relabel else graph.y[nodes]
        return Cut(np.arange(graph.nodes), train, val, test, tune=tune, labels=labels)

    return [own() for _ in range(clients)]


def renumbered(labels: Records) -> Records:
    """Return labels as 0, 1, …, in the order of their old numbers; equal ones stay equal."""
    return np.unique(labels, return_inverse=True)[1].astype(np.int64)
