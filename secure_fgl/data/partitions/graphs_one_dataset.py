"""One set of graphs in consecutive chunks; where they are not shuffled, a sorted file skews labels.

GCFL's setting of one data set (Xie et al., Federated Graph Classification over Non-IID Graphs,
NeurIPS 2021), after the authors' program: client i gets graphs i s to (i + 1) s - 1 with
s = min(50, floor(n / K)), and each graph left over goes to a client drawn uniformly; then every
client splits its own graphs 80/10/10, stratified. Many TU files are sorted by class: with as many
clients as chunks of 50 there are (IMDB-BINARY with 20, PROTEINS with 30), each chunk is of one
class, and every method is right on all graphs. `shuffled` draws an order first, as the preprint's
figures for these must have been made.

With `overlap` each client draws 50 to 149 graphs with replacement instead. As published, every
client then splits its own draw, and most test graphs train at somebody else; `strict`, the
default, keeps the roles drawn over the whole set.
"""

from __future__ import annotations

import numpy as np

from secure_fgl.data.partitions._shared import Cut, Records, groups, with_roles
from secure_fgl.data.records import GraphSet, Masks, deal, strata

__all__ = ["KINDS", "OWN_SPLIT", "cut"]

KINDS = ("graph",)

OWN_SPLIT = True
"""Each client splits its own graphs."""

CHUNK = 50
"""Graphs of a chunk at most (GCFL's program)."""

DRAWN = (50, 150)
"""Graphs that a client draws under `overlap`, the upper end left out (GCFL's program)."""

SHARES = (0.8, 0.1, 0.1)
"""Training, validation and test at each client (GCFL, section 5)."""


def cut(
    whole: GraphSet,
    masks: Masks,
    clients: int,
    rng: np.random.Generator,
    *,
    overlap: bool = False,
    strict: bool = True,
    shuffled: bool = False,
) -> list[Cut]:
    """One cut a client; without `overlap` disjoint and covering.

    Args:
        whole: the whole set, in the order of its file.
        masks: roles of the graphs; used only for an overlap that is strict.
        clients: K.
        rng: leftovers, draws and roles.
        overlap: draw with replacement instead of cutting chunks.
        strict: under `overlap`, no test graph trains at another client.
        shuffled: chunks are of a random order in place of the file's.

    Raises:
        ValueError: a client would have no training graph; `overlap` with `shuffled`, or with fewer
            graphs than a client may draw.
    """
    if overlap and shuffled:
        raise ValueError("under overlap graphs are drawn in any case: leave shuffled out")
    if overlap and whole.records < DRAWN[1]:
        # A plan bounds a client's training graphs by those of the whole set.
        raise ValueError(
            f"with overlap a client draws up to {DRAWN[1] - 1} graphs, and {whole.name!r} has only "
            f"{whole.records}; leave overlap off"
        )
    if overlap:
        sizes = rng.integers(*DRAWN, size=clients)
        members = [np.sort(rng.integers(whole.records, size=size)) for size in sizes]
    else:
        members = _chunks(whole.records, clients, rng, shuffled)
    if overlap and strict:
        cuts = with_roles(members, masks)
    else:
        kinds = strata(whole)
        cuts = [Cut(of, *deal(np.unique(of), kinds, SHARES, rng)) for of in members]
    if not all(len(one.train) for one in cuts):
        raise ValueError(
            f"a client of {clients} would have no training graph out of {whole.records}: ask for "
            "fewer clients, or, with overlap, a larger training share"
        )
    return cuts


def _chunks(graphs: int, clients: int, rng: np.random.Generator, shuffled: bool) -> list[Records]:
    order = rng.permutation(graphs) if shuffled else np.arange(graphs)
    size = min(CHUNK, graphs // clients)
    chunks = np.repeat(np.arange(clients), size)
    left = rng.integers(clients, size=graphs - len(chunks))
    owner = np.empty(graphs, chunks.dtype)
    owner[order] = np.concatenate([chunks, left])
    return groups(owner, clients)
