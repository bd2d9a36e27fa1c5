"""What an attacker makes of one client's item rows: a score for every item of the catalogue."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from audits.attacks._methods.statistics import auc
from audits.attacks._shared.material import Array, Counts, ItemRows, Rows

__all__ = ["Total", "Trail", "missing", "rated", "singles", "totals"]

GUESS = 0.5
ABSENCE = "absence"
"""The pool of clients that were away once: totals with and without them are compared."""


@dataclass(frozen=True, repr=False)
class Trail:
    """One client over all captured rounds.

    Attributes:
        rounds: of one client, in order.
        popularity: (items,), how many clients of the run train on each; public knowledge.
        gap: (items,), by how much totals without it differ from those with it; None: there are
            none without it.
    """

    rounds: tuple[ItemRows, ...]
    popularity: Array
    gap: Array | None = None

    @property
    def client(self) -> str:
        return self.rounds[0].client

    @cached_property
    def held(self) -> Array:
        """One for items that the client trains on, (items,)."""
        found = np.zeros(len(self.popularity))
        found[self.rounds[0].held] = 1.0
        return found

    @cached_property
    def seen(self) -> tuple[Array, Array]:
        """How often each row was seen, and the attackers' scores within equal counts."""
        return self._scores([one.seen for one in self.rounds if one.seen is not None])

    @cached_property
    def raw(self) -> tuple[Array, Array]:
        """The same of what the client computed, before protection."""
        return self._scores([one.raw for one in self.rounds])

    @cached_property
    def pools(self) -> dict[str, Counts]:
        """Among which items the question is asked; (items,) numbers each."""
        whole = np.arange(len(self.held))
        return {"catalogue": whole, "sent": np.flatnonzero(self.seen[0]), ABSENCE: whole}

    def asked(self, pool: str) -> bool:
        """Tell whether there are items of both kinds in a pool."""
        if pool == ABSENCE and self.gap is None:
            return False
        inside = self.held[self.pools[pool]]
        return bool(0 < inside.sum() < len(inside))

    def known(self, pool: str) -> list[float]:
        """Return the AUC of who knows popularity alone, and of a guess."""
        return [self._auc(self.popularity, pool), GUESS]

    def attacked(self, pool: str, message: str) -> list[float]:
        """Return the AUC of every attacker on a message, ``seen`` or ``raw``."""
        if pool == ABSENCE and message == "seen" and self.gap is not None:
            return [self._auc(self.gap, pool), *self.known(pool)]
        count, ties = self.seen if message == "seen" else self.raw
        return [self._auc(count + tie, pool) for tie in ties] + self.known(pool)

    def shuffled(self, pool: str, rng: np.random.Generator) -> list[float]:
        """Return the same where rows stand under numbers drawn at random: they say nothing."""
        count, ties = self.seen
        place = self.pools[pool]
        turned = rng.permutation(place)
        if pool == ABSENCE and self.gap is not None:
            return [self._auc(self.gap[turned], pool), GUESS]
        found = []
        for tie in ties[:-1]:
            score = np.zeros(len(count))
            score[place] = (count + tie)[turned]
            found.append(self._auc(score, pool))
        return [*found, GUESS]

    def _auc(self, score: Array, pool: str) -> float:
        there = self.pools[pool]
        inside = self.held[there] > 0
        return auc(score[there][inside], score[there][~inside])

    def _scores(self, rounds: Sequence[Rows]) -> tuple[Array, Array]:
        items = len(self.popularity)
        count, energy = np.zeros(items), np.zeros(items)
        total = np.zeros((items, rounds[0][1].shape[1] if rounds else 1))
        for number, rows in rounds:
            np.add.at(count, number, 1.0)
            np.add.at(total, number, rows)
            np.add.at(energy, number, (rows**2).sum(axis=1))
        # What is the same in two rounds is no noise, and no row drawn anew: <g, g'> over all pairs.
        lasting = (total**2).sum(axis=1) - energy if len(rounds) > 1 else energy
        direction = np.abs(total @ _top(total))
        ties = [_below_one(score) for score in (lasting, direction, self.popularity)]
        return count, np.array(ties)


def rated(rounds: Sequence[tuple[Rows, Array]], items: int) -> Array | None:
    """Return how high each item is rated by whose rows these are, (items,); None: cannot be told.

    A row is s e (p, 1): s a factor of all rounds, e = r̂ - r the error, p the user's vector, whose
    last entry, for the item's bias, is 1. So the last column gives s e, the others p, and with the
    table that was handed out r̂ but for the user's own bias. One round leaves s open. The rating is
    the same in two, so s follows from how both sides moved, by least squares; the mean over rounds
    of r̂ - e is the rating but for a constant. Items without a row get the mean of all.

    Args:
        rounds: rows that were read, and the table (items, h + 1) that was handed out for them.
        items: in the catalogue.
    """
    errors, guesses = np.full((2, len(rounds), items), np.nan)
    for place, ((number, rows), table) in enumerate(rounds):
        error = rows[:, -1]
        weight = float(error @ error)
        if not weight:
            continue
        taste = rows[:, :-1].T @ error / weight
        errors[place, number] = error
        guesses[place, number] = table[number, -1] + table[number, :-1] @ taste
    moved = [_apart(errors, one) for one in range(len(rounds) - 1)]
    shifted = [_apart(guesses, one) for one in range(len(rounds) - 1)]
    if not sum(one.size for one in moved):
        return None
    step, gain = np.concatenate(moved), np.concatenate(shifted)
    slope = float(step @ gain) / max(float(step @ step), 1e-300)
    told = guesses - max(slope, 0.0) * errors
    known = ~np.isnan(told)
    told -= np.nanmean(told, axis=1, keepdims=True) if known.any(axis=1).all() else 0.0
    often = known.sum(axis=0)
    return np.where(often > 0, np.nansum(told, axis=0) / np.maximum(often, 1), 0.0)


def _apart(values: Array, round: int) -> Array:
    """Return by how much values differ from one round to the next, about their mean."""
    found = values[round] - values[round + 1]
    found = found[~np.isnan(found)]
    moved: Array = found - found.mean() if found.size else found
    return moved


def _top(rows: Array) -> Array:
    """Return the first right singular vector: in matrix factorisation rows are multiples of one."""
    _, vectors = np.linalg.eigh(rows.T @ rows)
    found: Array = vectors[:, -1]
    return found


def _below_one(score: Array) -> Array:
    """Return the same order within [0, 1), to decide between equal counts."""
    _, rank = np.unique(score, return_inverse=True)
    return np.asarray(rank.reshape(-1) / (rank.max() + 1.0))


@dataclass(frozen=True, repr=False)
class Total:
    """What the receiver read of one cohort: rows, (items, width), and whose they are."""

    round: int
    ask: int
    clients: frozenset[str]
    rows: Array


def totals(rounds: Sequence[ItemRows]) -> list[Total]:
    """Return all totals, in the order in which they were read."""
    by_ask: dict[int, list[ItemRows]] = {}
    for one in rounds:
        if one.seen is not None and one.cohort > 1:
            by_ask.setdefault(one.ask, []).append(one)
    found = []
    for ask, those in sorted(by_ask.items()):
        whole: Array | None = None
        for rows in _blocks(those):
            if whole is None:
                whole = np.zeros((those[0].catalogue, rows[1].shape[1]))
            np.add.at(whole, rows[0], rows[1])
        if whole is not None:
            company = frozenset(one.client for one in those)
            found.append(Total(those[0].round, ask, company, whole))
    return found


def _blocks(those: Sequence[ItemRows]) -> list[Rows]:
    """Return what was read of one total; large tables are read in blocks, each once."""
    by_client: dict[str, list[Rows]] = {}
    for one in those:
        if one.seen is not None:
            by_client.setdefault(one.client, []).append(one.seen)
    return max(by_client.values(), key=len)


def missing(client: str, found: Sequence[Total]) -> Array | None:
    """Return by how much totals without a client differ from its own next to them, (items,).

    Where a round has no total with it, the one of most of its usual company is taken, if that is
    more than half of it: fixed cohorts may be summed side by side, or a whole one be lost.
    """
    own = [total for total in found if client in total.clients]
    there = {total.round for total in own}
    company = frozenset[str]().union(*(total.clients for total in own))
    gaps = []
    for round in sorted({total.round for total in found} - there if own else ()):
        without = max(
            (total for total in found if total.round == round),
            key=lambda total: len(total.clients & company),
        )
        if 2 * len(without.clients & company) <= len(company):
            continue
        before = [total for total in own if total.ask < without.ask][-1:]
        after = [total for total in own if total.ask > without.ask][:1]
        beside = np.mean([total.rows for total in (*before, *after)], axis=0)
        gaps.append(np.linalg.norm(beside - without.rows, axis=1))
    return np.mean(gaps, axis=0) if gaps else None


def singles(rounds: Sequence[ItemRows]) -> float | None:
    """Return the share of the rows of totals that rest on one client (O12); None: no total."""
    by_ask: dict[int, list[Counts]] = {}
    for one in rounds:
        if one.seen is not None and one.cohort > 1:
            by_ask.setdefault(one.ask, []).append(one.raw[0])
    counts = [np.unique(np.concatenate(n), return_counts=True)[1] for n in by_ask.values()]
    whole = np.concatenate(counts) if counts else np.zeros(0)
    return float(np.mean(whole == 1)) if whole.size else None
