"""Solves mixtures for who is in them: the best estimate that candidates' vectors allow, about.

A mixture is the mean of its records' vectors, so its sum is linear in the unknown memberships: with
Z the candidates' vectors and y a mixture of b of them, b y = Z^T a + noise, a in {0, 1}^N. Each
entry of a vector is one equation. Where a record brings neighbours that were drawn at random, what
it brings on average is known, and how far that is off: these equations count by their noise. How
large the rest of the noise is (rounding, a model that is only nearly known) the mixtures say.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from scipy import linalg

from audits.attacks._methods.statistics import auc
from audits.attacks._shared.material import Mixtures

Array = npt.NDArray[np.float64]

_SCALES = np.geomspace(1e-8, 1e1, 37)
"""Variances of noise that are tried, in mean squares of a mixture's sum."""
_STEPS = 60
_PULL = 10.0
"""Weight of the constraints in a step over the prior's. On Cora (b = 36, width 64) 50 and 300 steps
give AUCs within 0.01 of each other."""


@dataclass(frozen=True, repr=False)
class View:
    """One part of what a mixture shows of its records.

    Attributes:
        rows: (N, D), what each candidate brings, on average.
        drawn: (D, D), covariance of what one candidate brings besides; zero if nothing is drawn.
    """

    rows: Array
    drawn: Array


class Solver:
    """Candidates, ready to be looked for in mixtures.

    Args:
        views: of the same candidates.
        seen: mixtures in these views, each (m, D_k), which say how large the noise is.
        sizes: (m,), records in each mixture.
    """

    def __init__(self, views: Sequence[View], seen: Sequence[Array], sizes: Array) -> None:
        count = len(views[0].rows)
        share = float(np.mean(sizes)) / count
        spread = share * (1.0 - share)  # variance of one membership
        self._means = [view.rows.mean(axis=0) for view in views]
        self._roots: list[Array] = []
        rows = []
        for view, sums in zip(views, self._sums(seen, sizes), strict=True):
            centred = view.rows - view.rows.mean(axis=0)
            root = _noise(centred, view.drawn * float(np.mean(sizes)), sums, spread)
            self._roots.append(root)
            rows.append(_over(centred, root))
        self._rows, self._prior = np.hstack(rows), 1.0 / spread
        gram = self._rows @ self._rows.T
        gram[np.diag_indices_from(gram)] += (1.0 + _PULL) * self._prior
        inverse, _ = linalg.lapack.dpotri(linalg.cholesky(gram, overwrite_a=True))
        self._inverse = np.triu(inverse) + np.triu(inverse, 1).T

    def _sums(self, seen: Sequence[Array], sizes: Array) -> list[Array]:
        """Return sums of mixtures, less what as many average candidates bring."""
        return [sizes[:, None] * (s - mean) for s, mean in zip(seen, self._means, strict=True)]

    def memberships(self, seen: Sequence[Array], sizes: Array) -> Array:
        """Return how much of each candidate is in each mixture, (N, m): about 0 to 1.

        Least squares, all candidates equally likely beforehand, under what must hold: nobody is in
        a mixture less than not at all, and in all of them together at most once. By alternating
        directions (Boyd et al., Foundations and Trends in Machine Learning 2011, section 5).

        Args:
            seen: mixtures in the views, each (m, D_k).
            sizes: (m,), records in each.
        """
        sums = self._sums(seen, sizes)
        wanted = np.hstack([_over(s, r) for s, r in zip(sums, self._roots, strict=True)])
        likely = np.broadcast_to(sizes / len(self._rows), (len(self._rows), len(sizes)))
        fixed = self._rows @ wanted.T + self._prior * likely
        found, owed = likely.copy(), np.zeros(likely.shape)
        for _ in range(_STEPS):
            free = self._inverse @ (fixed + _PULL * self._prior * (found - owed))
            found = _at_most_once(free + owed)
            owed += free - found
        return np.asarray(free)


def _noise(rows: Array, drawn: Array, sums: Array, spread: float) -> Array:
    """Return the Cholesky factor of the covariance of what memberships do not explain, (D, D).

    That is what was drawn, and noise alike in all entries, as much as makes the sums likeliest:
    with random memberships they are about normal, with covariance spread Z^T Z + drawn + noise.
    """
    values, vectors = np.linalg.eigh(spread * (rows.T @ rows) + drawn)
    squares = (sums @ vectors) ** 2
    scale = max(float(squares.mean()), 1e-300)

    def unlikely(noise: float) -> float:
        variance = np.maximum(values, 0.0) + noise
        return float((np.log(variance) + squares / variance).sum())

    best = min(scale * _SCALES, key=unlikely)
    return np.asarray(linalg.cholesky(drawn + best * np.eye(len(drawn)), lower=True))


def _over(rows: Array, root: Array) -> Array:
    """Return rows, (n, D), in units of the noise."""
    return np.asarray(linalg.solve_triangular(root, rows.T, lower=True).T)


def _at_most_once(found: Array) -> Array:
    """Return the nearest matrix that is nowhere negative and in no row sums to more than one."""
    nearest = np.maximum(found, 0.0)
    over = nearest.sum(axis=1) > 1.0
    if over.any():  # Duchi et al., ICML 2008, figure 1, for all rows together
        rows = found[over]
        falling = -np.sort(-rows, axis=1)
        cut = (np.cumsum(falling, axis=1) - 1.0) / np.arange(1, rows.shape[1] + 1)
        last = (falling > cut).sum(axis=1) - 1
        nearest[over] = np.maximum(rows - cut[np.arange(len(rows)), last][:, None], 0.0)
    return nearest


# --- What an attacker makes of one client's mixtures, beside what is true of them ---

_WIDEST = 768  # equations of one view; rounds beyond it are not used, as the work grows cubically
_MIXTURES = 24  # of a client that are looked into

Numbers = npt.NDArray[np.int64]
Scores = tuple[float, float]
"""AUC and recall, means over a client's mixtures."""


@dataclass(frozen=True, repr=False)
class Victim:
    """One client's mixtures in one round or several, and who is in which.

    Attributes:
        rounds: of one client, in order.
        pool: (N,), candidates, rows of the tables; the centres come first.
        chosen: the mixtures that are looked into.
        singles: (chosen,), a member of each, for the raw control.
    """

    rounds: tuple[Mixtures, ...]
    pool: Numbers
    chosen: Numbers
    singles: Numbers

    @classmethod
    def of(cls, rounds: Sequence[Mixtures], most: int, rng: np.random.Generator) -> Victim:
        """Draw candidates, at most so many beside the centres, and mixtures to look into."""
        first = rounds[0]
        wide = first.tables["computed"].shape[1]
        used = tuple(rounds[: max(1, _WIDEST // wide)])
        centres = first.index[:, 0]
        others = rng.permutation(np.setdiff1d(np.arange(len(first.tables["computed"])), centres))
        pool = np.concatenate([centres, others[: max(0, most - len(centres))]])
        chosen = np.sort(rng.permutation(int(first.groups.max()) + 1)[:_MIXTURES])
        singles = [rng.choice(np.flatnonzero(first.groups == group)) for group in chosen]
        return cls(used, pool, chosen, np.array(singles))

    @property
    def client(self) -> str:
        return self.rounds[0].client

    @cached_property
    def sizes(self) -> Array:
        """How many records each mixture that is looked into has at its first position."""
        groups = self.rounds[0].groups
        sizes: Array = np.bincount(groups[groups >= 0])[self.chosen].astype(np.float64)
        return sizes

    @cached_property
    def seen(self) -> list[Array]:
        """The mixtures: for each distance from the centre the mean over its positions."""
        return self._rings([one.seen["features"][self.chosen] for one in self.rounds])

    @cached_property
    def alone(self) -> list[Array]:
        """The same of single members: what would be seen if nothing were mixed."""
        index = self.rounds[0].index[self.singles]
        return self._rings([one.tables["computed"][index] for one in self.rounds])

    def _rings(self, features: Sequence[Array]) -> list[Array]:
        """Return (m, D) a ring, all rounds side by side, of features (m, P, D) a round."""
        ends = np.cumsum(self._sizes)
        return [
            np.hstack([one[:, end - size : end].mean(axis=1) for one in features])
            for size, end in zip(self._sizes, ends, strict=True)
        ]

    @property
    def _sizes(self) -> tuple[int, ...]:
        """Positions of the rings that the attacker can use: without links, the centre alone."""
        rings = self.rounds[0].rings
        return rings if self.rounds[0].links is not None else rings[:1]

    def views(self, knowledge: str) -> list[View]:
        """Return what the attacker expects every candidate to bring, ring by ring.

        A walk goes on to a neighbour at random, so at distance l a candidate brings what l steps
        give on average. Step j, drawn at so many positions, adds what neighbours differ by.

        Args:
            knowledge: which of the tables he has.
        """
        tables = [np.hstack([one.tables[knowledge] for one in self.rounds])]
        weights = [np.full(len(tables[0]), 1.0 / len(tables[0]))]
        links = self.rounds[0].links
        for _ in self._sizes[1:]:
            tables.append(_through(links, tables[-1]))
            weights.append(_through(None if links is None else sp.csr_array(links.T), weights[-1]))
        found = []
        for far in range(len(self._sizes)):
            drawn = np.zeros((tables[0].shape[1],) * 2)
            for step in range(1, far + 1):
                below, above = tables[far - step], tables[far - step + 1]
                within = below.T @ (weights[step][:, None] * below)
                within -= above.T @ (weights[step - 1][:, None] * above)
                drawn += within / self._sizes[step]
            found.append(View(tables[far][self.pool], drawn))
        return found

    def attacked(self, knowledge: str, others: Sequence[Victim]) -> tuple[Scores, Scores, Scores]:
        """Return what is found in the mixtures, with single members, and with others' mixtures.

        Args:
            knowledge: see :meth:`views`.
            others: clients whose mixtures the null control takes.
        """
        views = self.views(knowledge)
        solver = Solver(views, self.seen, self.sizes)
        found = self._scores(solver.memberships(self.seen, self.sizes))
        nulls = []
        for other in others:
            strange = solver.memberships(other.seen, other.sizes)
            nulls.append(self._scores(strange[:, np.arange(len(self.chosen)) % strange.shape[1]]))
        ones = np.ones(len(self.chosen))
        raw = Solver(views, self.alone, ones).memberships(self.alone, ones)
        null = np.mean(nulls, axis=0)
        return found, self._scores(raw, single=True), (float(null[0]), float(null[1]))

    def guessed(self) -> list[Scores]:
        """Return what attackers without the mixtures find: blind, or by the vectors' lengths."""
        length = np.linalg.norm(self.rounds[0].tables["computed"][self.pool], axis=1)
        columns = np.repeat(length[:, None], len(self.chosen), axis=1)
        return [(0.5, self.chance), self._scores(columns), self._scores(-columns)]

    @property
    def chance(self) -> float:
        """The recall of a blind guess."""
        return float(self.sizes.mean()) / len(self.rounds[0].groups)

    def _scores(self, found: Array, *, single: bool = False) -> Scores:
        """Return how well scores, (N, chosen), rank the records of a mixture above other centres.

        Only centres are ranked: which group they are in was drawn at random, so that nothing but
        the mixtures can tell.
        """
        groups = self.rounds[0].groups
        areas, recalls = [], []
        for column, group in enumerate(self.chosen):
            mine = np.arange(len(groups)) == self.singles[column] if single else groups == group
            score = found[: len(groups), column]
            top = np.argsort(-score, kind="stable")[: int(mine.sum())]
            recalls.append(float(mine[top].mean()))
            areas.append(auc(score[mine], score[~mine]) if not mine.all() else 0.5)
        return float(np.mean(areas)), float(np.mean(recalls))


def together(clients: Mapping[str, Sequence[Mixtures]]) -> list[list[Mixtures]]:
    """Return each client's rounds that can be looked at together, at least one.

    Those in which all clients have the mixtures of their first: a client may have been away, or
    mixtures withheld, and controls compare clients round by round.
    """
    alike = [
        {one.round for one in rounds if np.array_equal(one.groups, rounds[0].groups)}
        for rounds in clients.values()
    ]
    shared = set.intersection(*alike)
    found = [[one for one in rounds if one.round in shared] for rounds in clients.values()]
    return found if shared else [list(rounds[:1]) for rounds in clients.values()]


def _through(links: sp.csr_array | None, table: Array) -> Array:
    return table if links is None else np.asarray(links @ table)


def class_counts(labels: Array, floor: int, members: int) -> Array:
    """Return how many centres of each class are in each mixture, as far as can be told, (m, C).

    All groups of a client have n or n + 1 members, so n is the least number from the floor on by
    which shares become whole as nearly as by any. Noise hides that only where it is about as large
    as what one member adds.

    Args:
        labels: (m, C), shares of classes as they were read.
        floor: the fewest members of a group, public.
        members: the most.
    """
    found = [_counted(labels, size) for size in range(max(floor, 1), members + 1)]
    best = max(min(off for _, off in found), _GRAIN)
    return next(counts for counts, off in found if off <= 2.0 * best)


def _counted(labels: Array, size: int) -> tuple[Array, float]:
    """Return counts for groups of so many members or one more, and their mean squared error."""
    counts = labels * np.array([size, size + 1])[:, None, None]
    off = ((counts - np.rint(counts)) ** 2).mean(axis=2)  # (2, m)
    mean = float(off.min(axis=0).mean())
    either = (off <= 4.0 * max(mean, _GRAIN)).all(axis=0)  # as of one class alone
    nearer = off.argmin(axis=0)
    usual = int(nearer[~either].mean() > 0.5) if not either.all() else 0
    chosen = np.where(either, usual, nearer)
    return np.asarray(np.rint(counts)[chosen, np.arange(len(labels))]), mean


_GRAIN = 1e-6  # squared, of a count: a hundred members on a grid of 16 bits


def violated(records: Numbers, groups: Numbers, floor: int, apart: int) -> bool:
    """Tell whether a mixture holds too few distinct records, or two differ by too few.

    Args:
        records: (members, P), equal numbers for equal records.
        groups: (members,).
        floor: distinct records at each position, at least.
        apart: by how many two mixtures must differ, if they do.
    """
    positions, count = records.shape[1], int(groups.max()) + 1
    cells = np.repeat(groups * positions, positions) + np.tile(np.arange(positions), len(groups))
    shape = (count * positions, int(records.max()) + 1)
    there = sp.csr_array((np.ones(cells.size, np.float32), (cells, records.ravel())), shape=shape)
    there.sum_duplicates()
    there.data[:] = 1.0
    sizes = np.diff(there.indptr)
    if sizes.min() < floor:
        return True
    for start in range(0, len(sizes), 1024):  # a block of rows at a time: the whole may be large
        part = slice(start, start + 1024)
        differ = sizes[part, None] + sizes - 2 * (there[part] @ there.T).toarray()
        if np.any((differ > 0) & (differ < apart)):
            return True
    return False
