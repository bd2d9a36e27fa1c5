"""Graphs dealt at random, in Dirichlet numbers: clients differ in size, not in distribution.

FedGraphNN's partition of molecules (He et al., 2021), which the poster of APFLGate uses on BBBP
with beta 0.5: proportions over the clients are drawn separately for training, validation and test
graphs. The training draw is repeated until every client holds `least` graphs, as FedGraphNN's other
loaders do (its molecule loader does not, and may leave a client with nothing to train on);
validation and test parts may be empty.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from secure_fgl.data.partitions._shared import Cut, Records, drawn, sliced
from secure_fgl.data.records import GraphSet, Masks

__all__ = ["KINDS", "cut"]

KINDS = ("graph",)


def cut(
    whole: GraphSet,
    masks: Masks,
    clients: int,
    rng: np.random.Generator,
    *,
    beta: float = 0.5,
    least: int = 1,
) -> list[Cut]:
    """One cut a client, disjoint; a graph without a role is nobody's.

    Args:
        whole: the whole set; only roles are used, neither labels nor graphs.
        masks: roles of the graphs; 80/10/10 in FedGraphNN.
        clients: K.
        rng: the proportions, and who gets which graph.
        beta: concentration; above 0.
        least: training graphs that every client must hold.

    Raises:
        ValueError: beta or least is out of range, or no draw gives everybody `least` graphs.
    """

    def share(mask: npt.NDArray[np.bool_], least: int) -> list[Records]:
        graphs = np.flatnonzero(mask)

        def draw() -> list[Records]:
            return sliced(rng.permutation(graphs), rng.dirichlet(np.full(clients, beta)))

        return [np.sort(one) for one in drawn(draw, beta=beta, least=least, records=len(graphs))]

    roles = [share(masks.train, least), share(masks.val, 0), share(masks.test, 0)]
    return [Cut(np.sort(np.concatenate(parts)), *parts) for parts in zip(*roles, strict=True)]
