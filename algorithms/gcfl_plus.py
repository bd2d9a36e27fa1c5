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
  cosine with the others is 0, and it is as near to one as to another; but two such are equal.
* As in the code, all clients' sequences begin anew after a split of any cluster, at most one
  cluster is cut a round, and none before its sequences are whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Literal

import numpy as np

from algorithms._shared.clusters import (
    PIVOTS,
    Clustered,
    Compare,
    Criterion,
    CutGuard,
    CutRule,
    Mean,
    Start,
    State,
    directed,
    nearness,
    standardised,
    to_pivots,
)
from algorithms.tasks import Kind, Site, Task
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
    measure = staticmethod(nearness)


@dataclass(frozen=True)
class Sequences:
    """What a client remembers of its own norms; the attributes are options of `gcfl_plus`."""

    task: Task
    length: int
    element: Element

    def remember(self, site: Site, given: Start, change: Array) -> None:
        """Add the norm of this round's change."""
        before, last = site.memory.get("norms", np.zeros(0)), site.memory.get("last", -1)
        if site.memory.get("since") != given.since or given.step - last not in (0, 1):
            before = np.zeros(0)  # a split of some cluster, or rounds without this client
        elif given.step == last:
            before = before[:-1]  # that round was lost, and is played again
        norms = np.append(before, self._norm(site, change))[-self.length :]
        site.memory.update(norms=norms, since=given.since, last=given.step, seed=given.seed)

    def _norm(self, site: Site, change: Array) -> float:
        if self.element == "gradient":
            for batch in islice(self.task.batches(site), 1):
                slope = self.task.gradient(site.memory["trained"], site, batch)
                return float(np.linalg.norm(slope[: self.task.base].astype(np.float64)))
        return float(np.linalg.norm(change))

    def whole(self, site: Site, given: Compare) -> Array:
        """Return the sequence that ends with a round, (length,); zeros where it has gaps."""
        norms: Array = site.memory.get("norms", np.zeros(0))
        whole = site.memory.get("step") == given.step and len(norms) == self.length
        return norms if whole else np.zeros(self.length)


def gcfl_plus(  # noqa: PLR0913 - GCFL's options and its own, all by name
    task: Task,
    *,
    epochs: int = 1,
    epsilon1: float = 0.07,
    epsilon2: float | None = 0.28,
    first_split: int = 20,
    mean: Mean = "weighted",
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
        mean: as in `algorithms.gcfl`.
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

    own = Sequences(task, length, element)

    def to_walks(site: Site, given: Compare) -> Distances:
        seen = to_pivots(own.whole(site, given), site.memory.get("seed", 0))
        return Distances(spreads=directed(seen))

    def course(site: Site, given: Compare) -> Course:
        return Course(norms=directed(standardised(own.whole(site, given))))

    def norms_of(site: Site, given: Compare) -> Norms:
        return Norms(norms=own.whole(site, given))

    portraits: dict[FormName, tuple[type[SimilarityMessage], Answer, int]] = {
        "pivots": (Distances, to_walks, PIVOTS + 1),
        "correlation": (Course, course, length + 1),
        "norms": (Norms, norms_of, length),
    }
    kind, portrait, entries = portraits[form]
    criterion = Criterion(epsilon1, epsilon2, first_split, wait=length, mean=mean)
    clustered = Clustered(
        task, epochs, criterion, cut, cut_guard, kind, portrait, own.remember, apart=True
    )
    return clustered.algorithm(
        "gcfl_plus",
        "Xie et al., Federated Graph Classification over Non-IID Graphs, NeurIPS 2021",
        form,
        {"p": entries},
    )


ALGORITHM = gcfl_plus
