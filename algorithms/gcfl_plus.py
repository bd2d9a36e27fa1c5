"""GCFL+ (Xie et al., NeurIPS 2021): GCFL that compares sequences of norms, by time warping.

Clusters, sums and the criterion are GCFL's, see `algorithms.gcfl`. Two clients are compared by what
their changes' norms |D_i| were in the last `length` rounds: norms fluctuate, and their course tells
more than one round's direction. As published, the server keeps every client's norms and cuts along
their distances by dynamic time warping (DTW). Here a sequence stays at its client. Forms:

    pivots       the client says its distances by DTW to 32 public random walks, each less the
                 walks' own mean distance and divided by their spread; clients are compared by the
                 cosines of these vectors. Sequences are divided by their standard deviation.
    correlation  the client says its sequence, standardised: cosines are correlations, not warped.
    norms        as published: the aggregator reads every sequence. Unsafe.

DTW is never computed from encrypted entries: it would need the products of all pairs of entries of
two sequences, a matrix of rank one that gives both away.

Where this departs from the paper and from the authors' code, besides what `algorithms.gcfl` says:

* The element of a sequence is |D_i|, as the paper has it. The code's default is the norm of the
  last batch's gradient; `element = "gradient"` takes that of one batch at the trained weights.
* A constant sequence, and one that is not whole since its client was away, has no direction: its
  cosine with the others is 0, and it is as near to one as to another.
* As in the code, all clients' sequences begin anew after a split of any cluster, at most one
  cluster is cut a round, and none before its sequences are whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np

from algorithms._shared.clusters import Clustered, Compare, Criterion, Start, State
from algorithms._shared.sequences import (
    PIVOTS,
    directed,
    distances,
    standardised,
    to_pivots,
)
from algorithms.tasks import Kind, Task
from algorithms.tasks.site import Site
from protocols.clusters.cuts import CutGuard, CutRule
from protocols.forms import Algorithm, Answer
from protocols.messages import Array, SimilarityMessage, Vector, real

MODELS: Mapping[Kind, str] = {"graph": "gin_shared"}

FormName = Literal["pivots", "correlation", "norms"]
Element = Literal["change", "gradient"]


class Distances(SimilarityMessage):
    """How far a client's sequence of norms is from public ones."""

    spreads: Vector = real(
        "p", unit="spread", meaning="distances by DTW to public walks, and 1 if there are none"
    )


class Course(SimilarityMessage):
    """A client's sequence of norms."""

    norms: Vector = real(
        "p", unit="deviation", meaning="the sequence, standardised, and 1 if it is constant"
    )


class Norms(SimilarityMessage):
    """A client's sequence of norms as it is, compared by dynamic time warping: never protected."""

    norms: Vector = real("p", unit="weight", meaning="the sequence of norms")
    cosines = False

    @classmethod
    def alike(cls, rows: Array) -> Array:
        """Return 1 for a distance of 0, and -1 for the largest of all distances, (K, K)."""
        between = distances(list(rows))
        found: Array = 1.0 - 2.0 * between / max(float(between.max()), 1e-300)
        return found


def gcfl_plus(  # noqa: PLR0913 - GCFL's options and its own, all by name
    task: Task,
    *,
    epochs: int = 1,
    epsilon1: float = 0.07,
    epsilon2: float | None = 0.28,
    first_split: int = 20,
    length: int = 5,
    form: FormName = "correlation",
    element: Element = "change",
    cut: CutRule = "stoer_wagner",
    cut_guard: CutGuard = "constrained",
) -> Algorithm[State]:
    """Return GCFL+ for a task.

    Args:
        task: trains and predicts; `task.base` is d, and the layers that stay follow the base.
        epochs: local epochs per round.
        epsilon1: as in `algorithms.gcfl`.
        epsilon2: as in `algorithms.gcfl`.
        first_split: as in `algorithms.gcfl`.
        length: entries of a sequence, 2 or more; 5 or 10 in the authors' scripts.
        form: what clients are compared by, see above.
        element: what a sequence is of, see above.
        cut: as in `algorithms.gcfl`.
        cut_guard: as in `algorithms.gcfl`.

    Raises:
        ValueError: an option is out of range, or the model has no base.
    """
    if length < 2:
        raise ValueError("length counts the norms of a sequence; choose 2 or more")

    def norm(site: Site, change: Array) -> float:
        if element == "change" or not site.count:
            return float(np.linalg.norm(change))
        batch = next(task.batches(site), None)
        if batch is None:
            return 0.0
        slope = task.gradient(site.memory["trained"], site, batch)[: task.base]
        return float(np.linalg.norm(slope.astype(np.float64)))

    def remember(site: Site, given: Start, change: Array) -> None:
        before, last = site.memory.get("norms", np.zeros(0)), site.memory.get("last", -1)
        if site.memory.get("since") != given.since or given.step - last not in (0, 1):
            before = np.zeros(0)  # a split of some cluster, or rounds without this client
        elif given.step == last:
            before = before[:-1]  # that round was lost, and is played again
        norms = np.append(before, norm(site, change))[-length:]
        site.memory.update(norms=norms, since=given.since, last=given.step, seed=given.seed)

    def sequence(site: Site, given: Compare) -> Array:
        norms: Array = site.memory.get("norms", np.zeros(0))
        whole = site.memory.get("step") == given.step and len(norms) == length
        return norms if whole else np.zeros(length)

    def to_walks(site: Site, given: Compare) -> Distances:
        own = sequence(site, given)
        return Distances(spreads=directed(to_pivots(own, site.memory.get("seed", 0))))

    def course(site: Site, given: Compare) -> Course:
        return Course(norms=directed(standardised(sequence(site, given))))

    def norms_of(site: Site, given: Compare) -> Norms:
        return Norms(norms=sequence(site, given))

    portraits: dict[FormName, tuple[type[SimilarityMessage], Answer, int]] = {
        "pivots": (Distances, to_walks, PIVOTS + 1),
        "correlation": (Course, course, length + 1),
        "norms": (Norms, norms_of, length),
    }
    kind, portrait, entries = portraits[form]
    criterion = Criterion(epsilon1, epsilon2, first_split, wait=length)
    clustered = Clustered(
        task, epochs, criterion, cut, cut_guard, kind, portrait, remember, apart=True
    )
    return clustered.algorithm(
        "gcfl_plus",
        "Xie et al., Federated Graph Classification over Non-IID Graphs, NeurIPS 2021",
        form,
        {"p": entries},
    )


ALGORITHM = gcfl_plus
