"""Classes shared out in Dirichlet proportions: the smaller beta, the more skewed the labels.

The partition of FedGCN (Yao et al., FedGCN: Convergence-Communication Tradeoffs in Federated
Training of Graph Convolutional Networks, NeurIPS 2023; beta 1, 100, 10000), which has it from
non-IID benchmarks on images (Hsu et al. 2019; Yurochkin et al. 2019): class by class, proportions
over the clients are drawn, set to 0 for clients that hold their even share N/K already, and the
whole is drawn again until everybody holds ten records. Unlabelled records count as one class more.
"""

from __future__ import annotations

import numpy as np

from secure_fgl.data.partitions._shared import Records, drawn, sliced
from secure_fgl.data.records import Graph, GraphSet, strata

__all__ = ["KINDS", "assign"]

KINDS = ("node", "graph")


def assign(
    whole: Graph | GraphSet,
    clients: int,
    rng: np.random.Generator,
    *,
    beta: float = 1.0,
    least: int = 10,
) -> Records:
    """Owner of every record, int64 (records,).

    Args:
        whole: the whole set; its labels are used (of several labels, the first).
        clients: K.
        rng: the proportions, and who gets which record.
        beta: concentration; above 0.
        least: records that every client must hold; 10 in FedGCN's program.

    Raises:
        ValueError: beta or least is out of range, or no draw gives everybody `least` records.
    """
    labels = strata(whole)
    classes = [np.flatnonzero(labels == label) for label in np.unique(labels)]

    def draw() -> list[Records]:
        return _one_draw(classes, clients, beta, rng)

    owner = np.empty(whole.records, dtype=np.int64)
    held = drawn(draw, beta=beta, least=least, records=whole.records)
    for client, records in enumerate(held):
        owner[records] = client
    return owner


def _one_draw(
    classes: list[Records], clients: int, beta: float, rng: np.random.Generator
) -> list[Records]:
    full = sum(map(len, classes)) / clients
    held: list[list[Records]] = [[] for _ in range(clients)]
    size = np.zeros(clients)
    for records in classes:
        weights = rng.dirichlet(np.full(clients, beta)) * (size < full)
        if not weights.sum() > 0.0:  # a tiny beta puts all weight on clients that are full
            weights = (size < full).astype(float)
        for client, part in enumerate(sliced(rng.permutation(records), weights)):
            held[client].append(part)
            size[client] += len(part)
    return [np.concatenate(pieces) for pieces in held]
