"""The scores that A05 gives candidates: by one round's message, or by all that were kept.

An attacker who keeps every message scores a candidate by the mean of what single rounds say of it;
what noise adds to one round is drawn anew in the next.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from audits.attacks._methods.span import Pair, Rows, Span, rows_of, standard
from audits.attacks._shared.material import Array, Exposure, Layers, change
from audits.attacks._shared.payloads import by_round

__all__ = ["Draw", "Spans", "Trial", "kept", "trials"]

_OTHERS = 3
_ENOUGH = 30
_NOTHING: Mapping[str, Array] = {}

Bools = npt.NDArray[np.bool_]


class Scoring(Protocol):
    """What gives candidates scores: the span of a message, or of several."""

    def scores(self, x: Array | Rows) -> Array:
        """Return how likely each candidate took part; only the order means something."""


class Trial:
    """The scores of one client's candidates, by the attack and its controls.

    Args:
        victim: the client.
        spans: of its own message, and of others' as they are its null control.
        seen: of what the receiver read.
        own: its candidates.

    Attributes:
        raw, seen, null: scores of members and outsiders.
        known: the same for attackers without the message.
    """

    def __init__(
        self, victim: Exposure, spans: Mapping[str, Scoring], seen: Scoring, own: Pool
    ) -> None:
        self.client, self.round = victim.client, victim.round
        self.raw = own.pair(spans[victim.client])
        self.seen = own.pair(seen, keep=own.nobody() if victim.cohort > 1 else None)
        nulls = [own.pair(spans[name], keep=own.strangers(name)) for name in own.others]
        self.null = (np.concatenate([n[0] for n in nulls]), np.concatenate([n[1] for n in nulls]))
        self.known = own.known()

    @property
    def whole(self) -> bool:
        """Tell whether there are members and outsiders on every side."""
        return all(side.size for pair in (self.raw, self.seen, self.null) for side in pair)


class Pool:
    """The candidates of one client: its members, and outsiders.

    Attributes:
        others: clients whose messages the null control takes.
    """

    def __init__(
        self, victim: Exposure, round: Mapping[str, Exposure], given: Array, draw: Draw
    ) -> None:
        self.members = draw.some(victim.truth.members)
        self._outsiders = draw.some(victim.truth.outsiders)
        self._given, self._round = given, round
        self.others = draw.names([name for name in round if name != victim.client])
        self._keys = [row.tobytes() for row in self._outsiders]

    def strangers(self, name: str) -> Bools:
        """Tell which outsiders had no influence on another client's message either.

        Where both clients' lists share rows, as with one pool for all, these are known; otherwise
        all that are no members there.
        """
        other = self._round[name].truth
        shared = self._among(other.outsiders)
        return shared if shared.sum() >= _ENOUGH else ~self._among(other.members)

    def nobody(self) -> Bools:
        """Tell which outsiders are no members of anybody in the round."""
        members = [self._among(v.truth.members) for v in self._round.values()]
        free: Bools = ~np.any(np.array(members), axis=0)
        return free

    def _among(self, rows: Rows | None) -> Bools:
        there = rows_of(rows)
        return np.array([key in there for key in self._keys], dtype=bool)

    def pair(self, span: Scoring, keep: Bools | None = None) -> Pair:
        """Return scores of members and outsiders, standardised over both.

        Args:
            span: of a message, or of several.
            keep: which outsiders to take; None: all.
        """
        outsiders = self._outsiders if keep is None else self._outsiders[keep]
        return standard(span.scores(self.members), span.scores(outsiders))

    def known(self) -> list[Pair]:
        """Return the scores of attackers without the message, each the other way round too."""
        pool = np.concatenate([self.members, self._outsiders])
        length = np.linalg.norm(pool, axis=1)
        safe, centre = np.where(length > 0, length, 1.0), pool.mean(axis=0)
        told = (length, pool @ centre / safe, np.linalg.norm(pool @ self._given, axis=1) / safe)
        cut = len(self.members)
        pairs = [standard(sign * s[:cut], sign * s[cut:]) for s in told for sign in (1.0, -1.0)]
        return [(np.zeros(cut), np.zeros(len(pool) - cut)), *pairs]


@dataclass(frozen=True)
class Draw:
    """Draws candidates and other clients."""

    rng: np.random.Generator
    most: int

    def some(self, rows: Rows | None) -> Rows:
        """Return at most so many rows, float32, in their order."""
        found = np.ascontiguousarray(rows, dtype=np.float32)
        if len(found) <= self.most:
            return found
        return found[np.sort(self.rng.permutation(len(found))[: self.most])]

    def names(self, names: Sequence[str]) -> list[str]:
        """Return a few of some names."""
        return [names[n] for n in self.rng.permutation(len(names))[:_OTHERS]]


class Spans:
    """The span of every message; clients that share a total share the work on it."""

    def __init__(self, layers: Layers) -> None:
        self._layers, self._made = layers, dict[int, Span]()

    def first(self, vector: Array) -> Array:
        """Return the first layer's weight of a flat vector."""
        if self._layers.first is None:  # asked for before; said once more for the type checker
            raise ValueError("the message holds no layer that takes the input features")
        return self._layers.part(vector, self._layers.first)

    def of(self, victim: Exposure, values: Mapping[str, Array]) -> Span:
        """Return the span of a message; of one that says no change, one that tells nothing."""
        if id(values) not in self._made:
            given = self.first(victim.known["weights"])
            moved = change(values)
            now = np.zeros_like(given) if moved is None else self.first(moved)
            self._made[id(values)] = Span(now, given, optimiser=victim.optimiser)
        return self._made[id(values)]


class _Together:
    """What several messages say of candidates together: the mean of what each says."""

    def __init__(self, spans: Sequence[Span]) -> None:
        self._spans = spans

    def scores(self, x: Array | Rows) -> Array:
        """Return how likely each candidate took part; see `Span.scores`."""
        found: Array = np.mean([span.scores(x) for span in self._spans], axis=0)
        return found


def trials(exposures: Sequence[Exposure], spans: Spans, draw: Draw) -> list[Trial]:
    """Return the trials of all clients of which members and outsiders are known, by round."""
    made = list[Trial]()
    for victims in by_round(exposures, _listed):
        raw = {one.client: spans.of(one, one.raw) for one in victims}
        null = {one.client: spans.of(one, _others(one)) for one in victims}
        seen = [spans.of(one, one.seen or _NOTHING) for one in victims]
        made += _made(victims, raw, null, seen, spans, draw)
    return made


def kept(exposures: Sequence[Exposure], spans: Spans, draw: Draw) -> list[Trial]:
    """Return a trial for each client, of an attacker who kept its messages of all rounds.

    Clients with one round alone are left out: of them he knows no more than from that round.
    """
    found: dict[str, list[Exposure]] = {}
    for one in sorted(filter(_listed, exposures), key=lambda e: e.round):
        found.setdefault(one.client, []).append(one)
    there = {name: those for name, those in found.items() if len(those) > 1}
    if len(there) < 2:
        return []
    raw = {name: _Together([spans.of(e, e.raw) for e in those]) for name, those in there.items()}
    null = {n: _Together([spans.of(e, _others(e)) for e in those]) for n, those in there.items()}
    seen = [_Together([spans.of(e, e.seen or _NOTHING) for e in those]) for those in there.values()]
    return _made([those[-1] for those in there.values()], raw, null, seen, spans, draw)


def _others(one: Exposure) -> Mapping[str, Array]:
    """Return a client's message as the null control of others: they had no part in it."""
    return one.raw if one.afresh is None else one.afresh


def _listed(victim: Exposure) -> bool:
    return bool(rows_of(victim.truth.members) and rows_of(victim.truth.outsiders))


def _made(
    victims: Sequence[Exposure],
    raw: Mapping[str, Scoring],
    null: Mapping[str, Scoring],
    seen: Sequence[Scoring],
    spans: Spans,
    draw: Draw,
) -> list[Trial]:
    known = {one.client: one for one in victims}
    found = []
    for victim, told in zip(victims, seen, strict=True):
        pool = Pool(victim, known, spans.first(victim.known["weights"]), draw)
        found.append(Trial(victim, {**null, victim.client: raw[victim.client]}, told, pool))
    return [trial for trial in found if trial.whole]
