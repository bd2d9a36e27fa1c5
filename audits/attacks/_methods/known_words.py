"""What an attacker with traps knows of the records that he is after, and what a guess is worth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from audits.attacks._methods.traps import Target
from audits.attacks._shared.material import Array, Bags, Replica

__all__ = ["KNOWN", "Known", "Stolen"]

KNOWN = 3
"""Words of a record that the attacker knows: those that fewest records have."""
_USUAL = 0.6  # quantile of records that traps are set for: higher, and fewer others wake them
_UNKNOWN = 2  # words beside them, at least, or there is nothing to read

Numbers = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, repr=False)
class Stolen:
    """How good the words are that an attacker names, a number for each target.

    Attributes:
        whole: 1.0 where exactly the record's words are named.
        f1, recall, precision: of the words that he did not know.
        read: whether anything was read; elsewhere he names his guess.
    """

    whole: Array
    f1: Array
    recall: Array
    precision: Array
    read: Bools

    @classmethod
    def of(
        cls,
        targets: Sequence[Target],
        named: Sequence[Numbers | None],
        guesses: Sequence[Numbers],
    ) -> Stolen:
        """Score what is named; where that is None, the guess."""
        scores = []
        for target, words, guess in zip(targets, named, guesses, strict=True):
            said = set((guess if words is None else words).tolist()) - set(target.known.tolist())
            true = set(target.words.tolist()) - set(target.known.tolist())
            right = len(said & true)
            recall, precision = right / len(true), right / max(len(said), 1)
            f1 = 2 * right / (len(true) + len(said))
            scores.append((float(said == true), f1, recall, precision, float(words is not None)))
        whole, both, recalls, precisions, read = np.array(scores).T
        return cls(whole, both, recalls, precisions, read > 0)


@dataclass(frozen=True, repr=False)
class Known:
    """What the attacker knows, and what he can name without any message.

    Attributes:
        volleys: the records that he is after with each model, one for each hidden unit at most.
        popularity: (F,), records that hold each word.
        usual: what one word of a usual record weighs in its own row.
        records: on which a usual client trains.
        named: per target, the words that he names where he reads nothing.
        guesses: how good each way to guess is; the second is the one of `named`.
    """

    volleys: tuple[tuple[Target, ...], ...]
    popularity: Array
    usual: float
    records: float
    named: tuple[Numbers, ...]
    guesses: tuple[Stolen, ...]

    @property
    def targets(self) -> tuple[Target, ...]:
        """All records that he is after."""
        return tuple(target for volley in self.volleys for target in volley)

    @classmethod
    def of(cls, replica: Replica, rng: np.random.Generator, volleys: int) -> Known | None:
        """Draw records on which clients train; None where two clients have none to read."""
        bags = list(replica.bags.values())
        counts = [np.bincount(b.table.indices, minlength=b.table.shape[1]) for b in bags]
        popularity = np.sum(counts, axis=0).astype(np.float64)
        hidden = replica.layers.first[1][1] if replica.layers.first is not None else 0
        targets = _targets(replica.bags, popularity, rng, hidden * volleys)
        if len({target.client for target in targets}) < 2:  # a null control needs both
            return None
        plain, beside = _guesses(bags, popularity, targets)
        nothing = [None] * len(targets)
        weighs = np.concatenate([_own_weights(bag) for bag in bags])
        return cls(
            volleys=tuple(targets[n : n + hidden] for n in range(0, len(targets), hidden)),
            popularity=popularity,
            usual=float(np.quantile(weighs, _USUAL)),
            records=weighs.size / sum(1 for bag in bags if bag.train.any()),
            named=beside,
            guesses=tuple(Stolen.of(targets, nothing, guess) for guess in (plain, beside)),
        )


def _own_weights(bag: Bags) -> Array:
    """Return, per training record, what one of its words weighs in its own row."""
    table = bag.table[bag.train]
    words = np.maximum(np.diff(table.indptr), 1)
    weighs: Array = bag.own[bag.train] * np.asarray(table.sum(axis=1)).ravel() / words
    return weighs


def _targets(
    bags: Mapping[str, Bags], popularity: Array, rng: np.random.Generator, most: int
) -> tuple[Target, ...]:
    records: list[tuple[str, Numbers]] = []
    for client, bag in sorted(bags.items()):
        rows = (bag.table[[node]].indices for node in np.flatnonzero(bag.train))
        records += [(client, np.unique(row).astype(np.int64)) for row in rows]
    records = [one for one in records if one[1].size >= KNOWN + _UNKNOWN]
    drawn = [records[n] for n in rng.permutation(len(records))[:most]]
    return tuple(
        Target(client, words[np.argsort(popularity[words], kind="stable")[:KNOWN]], words)
        for client, words in drawn
    )


def _guesses(
    bags: Sequence[Bags], popularity: Array, targets: Sequence[Target]
) -> tuple[tuple[Numbers, ...], tuple[Numbers, ...]]:
    """Return the most popular words of all records, and of those that hold a known word."""
    tables = [bag.table for bag in bags]
    sizes = np.concatenate([np.diff(table.indptr) for table in tables])
    many = max(1, int(np.median(sizes)) - KNOWN)
    first, second = [], []
    for target in targets:
        near = np.zeros_like(popularity)
        for table in tables:
            holding = table[:, target.known].sum(axis=1) > 0
            near += np.bincount(table[holding].indices, minlength=near.size)
        # The record itself is no stranger to whoever counts; it says nothing to the attacker.
        near[target.words] -= 1.0
        scores = popularity / (popularity.max() + 1.0)
        first.append(_most(scores, target.known, many))
        second.append(_most(near + scores, target.known, many))
    return tuple(first), tuple(second)


def _most(scores: Array, known: Numbers, many: int) -> Numbers:
    scores = scores.copy()
    scores[known] = -np.inf
    return np.concatenate([known, np.argsort(-scores, kind="stable")[:many]])
