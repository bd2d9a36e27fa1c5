"""Scores of one site's records under models, and the models that they are held against."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from audits.attacks._models.released import Bools, Candidates, Released
from audits.attacks._models.shadows import halves, likelihood
from audits.attacks._shared.material import Array, Material

__all__ = ["FEWEST", "Asked", "Late", "Pair", "Trial", "enough"]

FEWEST = 4  # records on either side of a client that is asked about
_OTHERS = 3  # sites whose models are the null control

Pair = tuple[Array, Array]
"""Scores of members and of outsiders."""


class Late(Exception):
    """The time budget is used up."""


def enough(members: Bools) -> bool:
    return min(int(members.sum()), int((~members).sum())) >= FEWEST


@dataclass(frozen=True, repr=False)
class Trial:
    """One client's scores by one attack: member and outsider of each."""

    client: str
    seen: Pair
    raw: Pair
    null: Pair
    known: tuple[Pair, ...]


class Asked:
    """The models for comparison, trained once for all rows.

    Attributes:
        alone: client -> the model that its site makes of its own records.
    """

    def __init__(
        self,
        given: Released,
        clients: Sequence[str],
        shadows: int,
        rng: np.random.Generator,
        material: Material,
    ) -> None:
        self._given, self._rng, self._material = given, rng, material
        self._clients = clients
        members = {name: given.candidates[name].members for name in clients}
        self.alone = {name: self._train({name: own}) for name, own in members.items()}
        order = [clients[n] for n in rng.permutation(len(clients))]
        sides = order[: len(order) // 2], order[len(order) // 2 :]
        models = [self._elsewhere(*pair) for pair in (sides, sides[::-1])]
        self._without = {
            name: model
            for side, model in zip(sides, reversed(models), strict=True)
            for name in side
        }
        self._inside = {name: halves(len(own), shadows, rng) for name, own in members.items()}
        self._shadows = {
            name: np.stack([given.confidence(self._train({name: part}), name) for part in parts])
            for name, parts in self._inside.items()
        }

    def _elsewhere(self, side: Sequence[str], others: Sequence[str]) -> object | None:
        """Return what one half of all sites makes without records of the other; None: of none."""
        given = self._given.candidates
        known = np.concatenate([given[name].marks[given[name].members] for name in others])
        parts = {n: given[n].members & ~np.isin(given[n].marks, known) for n in side}
        return self._train(parts) if any(part.any() for part in parts.values()) else None

    def _train(self, parts: Mapping[str, Bools]) -> object:
        if self._material.late():
            raise Late
        return self._given.train(parts, int(self._rng.integers(2**62)))

    def trials(
        self, models: Mapping[str, object], hidden: Mapping[str, object] | None = None
    ) -> dict[str, list[Trial]]:
        """Return the trials of all clients by attack, ``loss`` and ``LiRA``.

        Args:
            models: client -> the model that is asked about its records.
            hidden: client -> the model that protection hides; None: what its site makes alone.
        """
        bare = self.alone if hidden is None else hidden
        found: dict[str, list[Trial]] = {"loss": [], "LiRA": []}
        for client, model in models.items():
            nulls = self._nulls(client)
            if not nulls:
                continue
            own, sure = self._given.candidates[client], self._given.confidence
            for how, made in found.items():
                seen, raw = (
                    self._pair(how, client, sure(m, client)) for m in (model, bare[client])
                )
                pairs = [self._pair(how, client, sure(m, client), kept) for m, kept in nulls]
                null = tuple(np.concatenate([p[n] for p in pairs]) for n in (0, 1))
                known = self._known(client, own)
                made.append(Trial(client, seen, raw, (null[0], null[1]), known))
        return found

    def _pair(self, how: str, client: str, sure: Array, kept: Bools | None = None) -> Pair:
        if how == "LiRA":
            sure = likelihood(sure, self._shadows[client], self._inside[client])
        return split(sure, self._given.candidates[client].members, kept)

    def _nulls(self, client: str) -> list[tuple[object, Bools]]:
        """Return other sites' models and which records those did not train on; often none."""
        own, found = self._given.candidates[client], list[tuple[object, Bools]]()
        names = [name for name in self.alone if name != client]
        for place in self._rng.permutation(len(names)):
            theirs = self._given.candidates[names[place]]
            kept = ~np.isin(own.marks, theirs.marks[theirs.members])
            if enough(own.members[kept]):
                found.append((self.alone[names[place]], kept))
        return found[:_OTHERS]

    def _known(self, client: str, own: Candidates) -> tuple[Pair, ...]:
        """Return what attackers without the model know, in both directions; a guess comes first."""
        scores, without = [np.zeros(len(own.members))], self._without[client]
        if without is not None:
            scores.append(self._given.confidence(without, client))
        scores += [sign * one for one in own.known for sign in (1.0, -1.0)]
        return tuple(split(one, own.members) for one in scores)


def split(scores: Array, members: Bools, kept: Bools | None = None) -> Pair:
    there = np.ones(len(members), dtype=bool) if kept is None else kept
    return scores[members & there], scores[~members & there]
