"""What the aggregator may have learnt of a run: sums, who is in them, sizes of messages.

It is the attacker, so nothing here rests on what its own ledger leaves out.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
import numpy.typing as npt
from numpy.typing import NDArray

from audits.attacks._shared.payloads import payload_of, payloads_of
from audits.evidence.asked import Asked
from audits.evidence.ledger_index import Sent
from audits.evidence.openable import may_be_opened
from audits.evidence.run_files import fail
from audits.evidence.steps import Case
from audits.report.words import in_clear
from protocols.disclosures.names import Disclosure
from protocols.evidence.captures import captured_rounds
from protocols.plan.plan import Item, MessagePlan
from protocols.plan.steps import Service, Step
from protocols.wire.roles import Role

K = TypeVar("K", bound=Hashable)

Sizes = dict[str, tuple[int, ...]]
"""Client -> the sizes of what it sent under one item in one Ask, less the length of its name."""


@dataclass(frozen=True)
class Opened:
    """One sum that the aggregator may have learnt.

    Attributes:
        payload: ``P01`` to ``P21``.
        message: which kind of message was summed; sums of unlike messages cannot be combined.
        round: of the run.
        clients: whose data is in it; one, where an upload left in clear.
    """

    payload: str
    message: MessagePlan
    round: int
    clients: frozenset[str]


def opened_sums(case: Case) -> list[Opened]:
    """Return every sum that the aggregator may have learnt, as the ledgers of others tell it.

    Its own ledger can add sums and take none away. A sum over the survivors of an Ask for each list
    that may have been opened, and for uploads that left in clear one of each client.

    Raises:
        EvidenceError: a ledger is missing or broken that shows what was opened, or an opening is of
            a cohort that its members do not sign for: who is in the sums is then not known.
    """
    for name in (*case.roster.clients, *case.roster.names(Role.KEY_AUTHORITY)):
        if name not in case.ledger_index.entries:
            fail("chain", f"the ledger of {name} cannot be read, so cohorts are not known")
    exchanges, found = case.exchanges.all, list[Opened]()
    for _, entry in case.ledger_index.totals():
        if entry["exchange"] not in exchanges:
            fail("opened", f"exchange {entry['exchange']} was opened and nothing was sent in it")
    for ask in exchanges.values():
        found += _in_clear(case, ask)
        for clients in may_be_opened(case, ask):
            name = next(s.ask for s in ask.sents if s.part is Disclosure.SUM)
            item = case.plan.find(name, Disclosure.SUM, Step.UP)
            found += _sums(case, item, ask.round, clients)
    return found


def unrecorded(case: Case) -> dict[str, int]:
    """Return payload -> a captured Ask of which others' ledgers show more than the reader's own.

    What an attack reads of captures is what the aggregator, or the matcher, kept. Where somebody
    else recorded that more went to it than it owns to, an attack that finds nothing proves nothing:
    a total that may have been opened and has no opening, a result, mixture or comparison without
    its receipt. Messages that were truly lost look the same.

    Raises:
        EvidenceError: see :func:`may_be_opened`.
    """
    rounds = captured_rounds(case.policy.capture, case.plan.rounds) if case.policy.capture else ()
    found = dict[str, int]()
    for ask in case.exchanges.all.values():
        if ask.round in rounds:
            hidden = [s.planned for s in ask.sents if _read(s) and not _received(case, s)]
            if not ask.opens and may_be_opened(case, ask):
                hidden += [s.planned for s in ask.of(Disclosure.SUM, Step.UP)]
            for item in hidden:
                if item is not None:
                    found |= dict.fromkeys(payloads_of(item, case.plan, case.policy), ask.number)
    return found


def _read(sent: Sent) -> bool:
    """Tell whether its receiver reads what is in it, without anybody else."""
    mixed = sent.part is Disclosure.MIXED and sent.step is Step.UP
    return mixed or sent.step in (Step.OPENED, Step.RELAYED, Step.COMPARE)


def _received(case: Case, sent: Sent) -> bool:
    return case.ledger_index.receipt(sent, sent.recipient) is not None


def _in_clear(case: Case, ask: Asked) -> Iterator[Opened]:
    for sent in ask.sents:
        item = sent.planned
        if item is None:
            fail("plan", f"{sent.item[:60]} left and was not planned")
        bare = in_clear(item.guards) or (item.part is Disclosure.SUM and not ask.protected)
        if bare and item.sender == Role.CLIENT and item.step is Step.UP:
            yield from _sums(case, item, ask.round, frozenset({sent.party}))


def _sums(case: Case, item: Item, round: int, clients: frozenset[str]) -> Iterator[Opened]:
    payload = payload_of(item, case.plan, case.policy)
    if payload == "P17" and len(clients) > 1:
        payload = "P05"  # a sum of counts is a sum
    for message in item.messages:
        yield Opened(payload, message, round, clients)


def sent_sizes(case: Case) -> dict[tuple[int, str, int], Sizes]:
    """Return (number of the Ask, item, attempt) -> sizes of what clients sent, by their ledgers.

    A header holds its sender's name, so its length is taken off. Refusals are left out: they are
    rare, and tell of a fault.
    """
    roles = {party["name"]: party["role"] for party in case.roster.document()}
    found: dict[tuple[int, str, int], dict[str, list[int]]]
    found = defaultdict(lambda: defaultdict(list))
    for sent in case.ledger_index.releases():
        if roles.get(sent.party) == Role.CLIENT and sent.part is not Service.REFUSAL:
            size = int(sent.facts["bytes"]) - len(sent.party.encode())
            found[sent.exchange, sent.item, sent.facts["attempt"]][sent.party].append(size)
    return {
        key: {name: tuple(sorted(those)) for name, those in sizes.items()}
        for key, sizes in found.items()
    }


def rare_sizes(sizes: Mapping[K, tuple[int, ...]], smallest: int) -> list[K]:
    """Return whose sizes fewer share than may be in a cohort; of fewer clients, than these."""
    often, fewest = Counter(sizes.values()), min(smallest, len(sizes))
    return [name for name, those in sizes.items() if often[those] < fewest]


# --- Who can be singled out by adding and subtracting opened sums, with exact arithmetic ---
#
# A run is a matrix of zeros and ones: a row for each opened sum, a column for each client, one
# where the client's data is in the sum. If the values hardly change from sum to sum, whoever holds
# the sums can form every combination of rows. A client is *isolable* if one of them is that client
# alone, after the columns of colluders, who know their own values, are struck out.
#
# Everything is counted modulo a prime that is drawn from the run's chance, so that no cohorts can
# be laid out beforehand to fool it: a minor that this prime happens to divide has a probability
# below 10^-5 for 1,000 clients. No floating point, hence no tolerance.
#
# How much totals tell of a client that they do not isolate is another question, with floating
# point: :func:`told_shares`.

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


# --- Solving what one receiver, or two that pool, were told of rows for single nodes' features ---
#
# The unknowns are the terms of other clients' nodes, the equations the rows. Three ways, and a node
# counts as read if one of them names its columns:
#
# * **Elimination.** A node whose unit vector lies in the span of the rows is read exactly: a row of
#   one neighbour, two rows that differ by one, and any longer combination. The projection onto the
#   span says which nodes these are, the least-norm solution what they hold.
# * **Equal values.** Features are sparse, and every non-zero entry of a term of a bag of words is
#   one number, that node's own: 1 over its words and the root of its degree. Where the supports
#   hardly meet, a row's entries fall into groups of equal values, one a node.
# * **Largest entries.** Where rows are noised no two entries are equal. Of a node that the rows
#   fix, the largest entries of the solution are taken for its words, as many as it has: the attack
#   is told how many.

Array = NDArray[np.float64]
Supports = list[frozenset[int]]
_EXACT = 1e-9
_FEWEST = 3  # columns of a group that says anything


def determined(system: Array, sums: Array) -> tuple[NDArray[np.bool_], Array]:
    """Return which unknowns the equations fix, (n,), and the least-norm solution, (n, F).

    Args:
        system: (rows, n), how often each node's term enters each row.
        sums: (rows, F).
    """
    inverse = np.linalg.pinv(system, rcond=1e-10)
    along = np.einsum("nr,rn->n", inverse, system)
    return np.abs(along - 1.0) < _EXACT, inverse @ sums


def equal_values(row: Array, tolerance: float) -> Supports:
    """Return the columns of each group of entries of a row that are equal to within a tolerance."""
    columns = np.flatnonzero(np.abs(row) > tolerance)
    if not len(columns):
        return []
    order = columns[np.argsort(row[columns], kind="stable")]
    cuts = np.flatnonzero(np.diff(row[order]) > tolerance) + 1
    groups = np.split(order, cuts)
    return [frozenset(group.tolist()) for group in groups if len(group) >= _FEWEST]


def read(
    system: Array, sums: Array, terms: Array, tolerance: float, *, groups: bool = True
) -> Array:
    """Return for each node whether it was read, (n,) of 0 and 1.

    By elimination a node is read if its term is found, to within the grid; by equal values and
    largest entries if its non-zero columns are named, but for one in twenty. Of dense terms no
    columns are asked for.

    Args:
        system: see `determined`.
        sums: likewise.
        terms: (n, F), the truth.
        tolerance: by how much the grid moves one entry of a sum.
        groups: whether equal values and largest entries are looked for as well.
    """
    fixed, solved = determined(system, sums)
    found = np.zeros(system.shape[1])
    loose = 4.0 * tolerance * max(1, len(system))
    off = np.abs(solved - terms).max(axis=1, initial=0.0)
    found[fixed & (off <= loose)] = 1.0
    if not groups:
        return found
    columns = [frozenset(np.flatnonzero(term).tolist()) for term in terms]
    for node in np.flatnonzero(fixed):
        words = len(columns[node])
        if 2 * words < solved.shape[1]:
            largest = np.argsort(-np.abs(solved[node]), kind="stable")[:words]
            found[node] = max(found[node], _same(frozenset(largest.tolist()), columns[node]))
    for entering, row in zip(system, sums, strict=True):
        named = equal_values(row, 2.0 * tolerance)
        for node in np.flatnonzero(entering):
            sparse = 2 * len(columns[node]) < len(row)
            if sparse and any(_same(group, columns[node]) for group in named):
                found[node] = 1.0
    return found


def _same(named: frozenset[int], true: frozenset[int]) -> bool:
    """Tell whether columns are a node's, but for one in twenty."""
    both = len(named & true)
    return bool(true) and 2.0 * both >= 0.95 * (len(named) + len(true))
