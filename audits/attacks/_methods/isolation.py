"""Who can be singled out by adding and subtracting opened sums, with exact arithmetic.

A run is a matrix of zeros and ones: a row for each opened sum, a column for each client, one where
the client's data is in the sum. If the values hardly change from sum to sum, whoever holds the sums
can form every combination of rows. A client is *isolable* if one of them is that client alone,
after the columns of colluders, who know their own values, are struck out.

Everything is counted modulo a prime that is drawn from the run's chance, so that no cohorts can be
laid out beforehand to fool it: a minor that this prime happens to divide has a probability below
10^-5 for 1,000 clients. No floating point, hence no tolerance.

How much totals tell of a client that they do not isolate is another question, with floating point:
:func:`told_shares`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

__all__ = ["Isolation", "Told", "draw_prime", "isolable", "told_shares"]

Rows = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.int64]

_LOW, _HIGH = 1 << 30, 1 << 31  # of the prime: products of two remainders fit into 63 bits
_WORK = 10_000_000  # entries that a search through sets of colluders may touch: some seconds


@dataclass(frozen=True)
class Isolation:
    """Who is isolable.

    Attributes:
        found: bool (n,), per client.
        complete: every set of colluders was considered; if not, `found` holds those that were met
            and there may be more.
    """

    found: npt.NDArray[np.bool_]
    complete: bool


def draw_prime(rng: np.random.Generator) -> int:
    """Return a prime between 2^30 and 2^31, drawn uniformly."""
    divisors = np.arange(3, 46_341, 2)  # 46,341² > 2^31
    while True:
        found = int(rng.integers(_LOW, _HIGH)) | 1
        if np.all(found % divisors):
            return found


def isolable(sums: Rows, colluders: int, prime: int) -> Isolation:
    """Find the clients that some set of at most `colluders` others leaves alone.

    With N a basis of the null space of the matrix, a row of N for each client: a set C pins client
    i down exactly if row i of N is a combination of the rows of C. (Without colluders: if row i is
    zero, so that no change of i's value can hide behind changes of others.)

    Clients that stand in the same sums are one class. Of a class only colluding as a whole helps,
    and a member of it is left alone only if all its doubles collude.

    Args:
        sums: bool (r, n), one row for each sum; repeated rows are of no matter.
        colluders: c; a client is not counted as its own colluder.
        prime: from :func:`draw_prime`.
    """
    if not sums.shape[0] or not sums.any():
        return Isolation(np.zeros(sums.shape[1], dtype=np.bool_), complete=True)
    distinct = np.unique(sums, axis=0)
    classes, place, sizes = np.unique(distinct, axis=1, return_inverse=True, return_counts=True)
    search = _Search(sizes.astype(np.int64), colluders, prime)
    search.visit(_null_space(classes.astype(np.int64), prime), 0, 0, frozenset())
    alone = search.needed + search.sizes - 1 <= colluders
    return Isolation(alone[np.ravel(place)], search.complete)


def _null_space(rows: Numbers, prime: int) -> Numbers:
    """Return a basis of the null space modulo a prime as columns, shape (n, n - rank).

    A sum over one column pins that column down: its row of the basis is zero, and the other sums
    are as if it were not there. So of messages in clear nothing is left to eliminate, which takes
    the cube of the number of clients.
    """
    open_ = np.ones(rows.shape[1], dtype=np.bool_)
    while (single := np.count_nonzero(rows[:, open_], axis=1) == 1).any():
        open_ &= ~np.any(rows[single] != 0, axis=0)
    inner = _eliminated(rows[:, open_], prime)
    basis = np.zeros((rows.shape[1], inner.shape[1]), dtype=np.int64)
    basis[open_] = inner
    return basis


def _eliminated(rows: Numbers, prime: int) -> Numbers:
    """Return the same by elimination."""
    table, pivots = rows % prime, list[int]()
    count, width = table.shape
    for column in range(width):
        top = len(pivots)
        if top == count:
            break
        below = np.flatnonzero(table[top:, column])
        if not below.size:
            continue
        table[[top, top + below[0]]] = table[[top + below[0], top]]
        table[top] = table[top] * pow(int(table[top, column]), -1, prime) % prime
        factors = table[:, column].copy()
        factors[top] = 0
        table = (table - factors[:, None] * table[top] % prime) % prime
        pivots.append(column)
    free = np.setdiff1d(np.arange(width), pivots)
    basis = np.zeros((width, free.size), dtype=np.int64)
    basis[free, np.arange(free.size)] = 1
    basis[pivots] = -table[: len(pivots), free] % prime
    return basis


@dataclass
class _Search:
    """Goes through the sets of colluding classes, cheapest bookkeeping first.

    Attributes:
        sizes: int64 (k,), clients of each class.
        colluders: at most so many clients may collude.
        needed: per class, how many colluders outside it pin it down; large if none were found.
    """

    sizes: Numbers
    colluders: int
    prime: int
    complete: bool = True
    needed: Numbers = field(init=False)
    _left: int = field(init=False)

    def __post_init__(self) -> None:
        self._left = _WORK
        self.needed = np.full(self.sizes.size, np.iinfo(np.int64).max >> 1)

    def visit(self, null: Numbers, start: int, spent: int, chosen: frozenset[int]) -> None:
        """Note whom the chosen classes pin down, alone and with one class more; then go deeper."""
        self._left -= null.size + 1
        self._note(np.logical_not(np.any(null, axis=1)), spent, chosen)
        rest = self.colluders - spent
        if rest < 1 or null.shape[1] == 0:
            return
        self._parallel(null, spent)
        for place in range(start, self.sizes.size):
            cost = int(self.sizes[place])
            if cost >= rest or not null[place].any():
                continue  # one that uses up the rest was tried among the parallel rows
            if self._left <= 0:
                self.complete = False
                return
            self.visit(self._without(null, place), place + 1, spent + cost, chosen | {place})

    def _note(self, pinned: npt.NDArray[np.bool_], spent: int, chosen: frozenset[int]) -> None:
        pinned = pinned.copy()
        pinned[list(chosen)] = False
        self.needed[pinned] = np.minimum(self.needed[pinned], spent)

    def _parallel(self, null: Numbers, spent: int) -> None:
        """Note the classes that one other class pins down: their rows are multiples of its row."""
        kept = np.flatnonzero(null.any(axis=1))
        if kept.size < 2:
            return
        rows = null[kept]
        first = rows[np.arange(kept.size), (rows != 0).argmax(axis=1)]
        scaled = rows * _inverse(first, self.prime)[:, None] % self.prime
        _, group = np.unique(scaled, axis=0, return_inverse=True)
        group = np.ravel(group)
        for number in np.flatnonzero(np.bincount(group) > 1):
            members = kept[group == number]
            costs = self.sizes[members]
            order = np.argsort(costs, kind="stable")
            cheapest = np.full(members.size, costs[order[0]])
            cheapest[order[0]] = costs[order[1]]  # a class does not pin itself down
            self.needed[members] = np.minimum(self.needed[members], spent + cheapest)

    def _without(self, null: Numbers, place: int) -> Numbers:
        """Return the rows modulo the row of a class that colludes."""
        row = null[place]
        column = int((row != 0).argmax())
        factor = null[:, column] * pow(int(row[column]), -1, self.prime) % self.prime
        rest = (null - factor[:, None] * row % self.prime) % self.prime
        return np.delete(rest, column, axis=1)


def _inverse(values: Numbers, prime: int) -> Numbers:
    """Return the inverses modulo a prime, by Fermat's little theorem."""
    found, power, exponent = np.ones_like(values), values % prime, prime - 2
    while exponent:
        if exponent & 1:
            found = found * power % prime
        power = power * power % prime
        exponent >>= 1
    return found


@dataclass(frozen=True)
class Told:
    """How much of single clients' numbers totals tell.

    Attributes:
        shares: (n,), per client, of what sets its number apart; 0 nothing, 1 all of it.
        complete: every set of colluders was considered; if not, the true shares may be larger.
    """

    shares: npt.NDArray[np.float64]
    complete: bool


def told_shares(totals: npt.ArrayLike, colluders: int, noise: npt.ArrayLike = 0.0) -> Told:
    """Return which share of the variance of each client's number totals explain, (n,).

    Clients' numbers are taken for independent and spread alike, and what is known of them are
    weighted sums: the best linear guess of one then leaves 1 minus this share of its variance (the
    client's leverage in the matrix of weights). A total over K clients by itself tells 1 / K.
    Colluders' columns are struck out; the more of them, the more is told, so sets of as many as may
    be are tried, of clients that stand in all totals alike only their number.

    Args:
        totals: (r, n), what each client weighs in each total.
        colluders: clients that may pool their own numbers; nobody is its own colluder.
        noise: (r,), variance of what is added to each total, clients' own being 1.
    """
    rows = np.asarray(totals, dtype=np.float64)
    largest = np.abs(rows).max(axis=1, keepdims=True)
    scale = np.where(largest > 0.0, largest, 1.0)
    added = np.broadcast_to(noise, (len(rows),)) / scale[:, 0] ** 2
    classes, place, sizes = np.unique(rows / scale, axis=1, return_inverse=True, return_counts=True)
    most = int(np.clip(_WORK * 10 // (len(rows) ** 2 * sizes.size + 1), 50, 5_000))
    struck = _spread(sizes, min(colluders, rows.shape[1] - 1))
    best, tried = np.zeros(sizes.size), 0
    for gone in struck:
        tried += 1
        rest = sizes - gone
        gram = (classes * rest) @ classes.T + np.diag(added)
        inverse = np.linalg.pinv(gram, rcond=1e-12, hermitian=True)
        shares = np.einsum("rj,rs,sj->j", classes, inverse, classes)
        best = np.where(rest > 0, np.maximum(best, shares), best)
        if tried == most:
            break
    complete = tried < most or next(struck, None) is None
    return Told(np.clip(best, 0.0, 1.0)[np.ravel(place)], complete)


def _spread(sizes: Numbers, count: int) -> Iterator[Numbers]:
    """Yield every way to take so many clients out of classes of these sizes, (k,) each."""
    above = np.append(np.cumsum(sizes[::-1])[::-1], 0)  # clients from a class on
    waiting: list[tuple[int, int, tuple[tuple[int, int], ...]]] = [(0, count, ())]
    while waiting:
        start, left, chosen = waiting.pop()
        if not left:
            gone = np.zeros_like(sizes)
            for place, taken in chosen:
                gone[place] = taken
            yield gone
        elif above[start] >= left:
            waiting += [
                (place + 1, left - taken, (*chosen, (place, taken)))
                for place in range(sizes.size - 1, start - 1, -1)
                for taken in range(1, min(int(sizes[place]), left) + 1)
            ]
