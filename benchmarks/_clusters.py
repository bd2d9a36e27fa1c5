"""Runs in the clear, in one process and without the message layer; see `gcfl.py`, `fed_pub.py`.

The rounds are the algorithms' own, and totals are exact. So single clients' figures can be told,
and clusters of any size can be summed, as published: no run of ours does either.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import comb
from typing import Any

import numpy as np

from algorithms._shared.clusters import directed, nearness, scaled, standardised, to_pivots
from algorithms.tasks import predictions
from algorithms.tasks.evaluation import models, total
from protocols.clusters import Cut, cut_in_two, weighed
from protocols.disclosures.similarity.disclosure import Compared
from protocols.disclosures.sum.view import TotalView
from protocols.messages import Array, SimilarityMessage, SumMessage, WeightedSumMessage
from protocols.rounds import Cohort, Reply, Round, Sealed

LEAST = 4  # clients of the smallest sum under any policy


class Likeness:
    """What was sent to be compared, and the cut along it."""

    verb = "similarity"

    def __init__(self, kind: type[Any], sent: Mapping[str, Any], splits: Any, least: int) -> None:
        self._kind, self._sent, self._splits, self._least = kind, sent, splits, least

    def read(self, verb: str, **options: Any) -> Any:
        """Return the cosines, or the cut of the whole cluster."""
        cosines = Compared.clear(self._kind, self._sent, {})
        if verb != "split":
            return cosines
        rule, guard = self._splits.cut, self._splits.guard
        side = cut_in_two(weighed(cosines), rule, guard, self._least)
        if side is None:
            return None
        members = tuple(self._sent)
        names = tuple(name for name, inside in zip(members, side, strict=True) if inside)
        return Cut(0, 0, members, names, leaves=len(names) < self._least)


class Mixtures:
    """Each client's own weighted sum of all messages, to be handed on."""

    verb = "weighted"

    def __init__(self, kind: type[Any], sent: Mapping[str, Any]) -> None:
        self._kind, self._sent = kind, sent

    def read(self, verb: str, *, alpha: Array) -> Sealed:
        """Return row i of `alpha` times the messages, for client i."""
        (field,) = self._kind.fields
        rows = np.stack([getattr(one, field.name) for one in self._sent.values()])
        mixed = (alpha @ rows).astype(rows.dtype)
        made = [self._kind(**{field.name: row}) for row in mixed]
        return Sealed(self._kind, dict(zip(self._sent, made, strict=True)))


def _own(given: Any, name: str) -> Any:
    """Return what a client is handed: of a sealed result its own part."""
    return given._deliveries[name] if isinstance(given, Sealed) else given


def _of(kind: type[Any], said: Any) -> Any:
    """Return a client's message of one kind."""
    messages = said if isinstance(said, tuple) else (said,)
    return next(one for one in messages if isinstance(one, kind))


def played(form: Any, steps: Round[Any], sites: Mapping[str, Any], least: int) -> tuple[Any, int]:
    """Play one round's Asks at the sites; return the new state, and how often any were compared."""
    compared = 0
    try:
        ask = next(steps)
        while True:
            answer = form.find(ask).answer
            sent = {
                name: answer(sites[name], *(_own(one, name) for one in ask.handed))
                for name in ask.cohort._members
            }
            views: dict[Any, Any] = {}
            for kind in ask.wanted:
                said = {name: _of(kind, messages) for name, messages in sent.items()}
                if issubclass(kind, SumMessage):
                    views[kind] = TotalView(total(list(said.values())))
                elif issubclass(kind, SimilarityMessage):
                    views[kind] = Likeness(kind, said, form.splits, least)
                    compared += 1
                elif issubclass(kind, WeightedSumMessage):
                    views[kind] = Mixtures(kind, said)
            ask = steps.send(Reply(views, len(sent)))
    except StopIteration as stop:
        return stop.value, compared


def looked(task: Any, algorithm: Any, state: Any, sites: Mapping[str, Any]) -> list[list[float]]:
    """Return each client's accuracy on its validation and on its test graphs."""
    cohort = Cohort(sorted(sites))
    given = {name: model for part, model in models(state, cohort) for name in part._members}
    found = []
    for name, site in sites.items():
        model = algorithm.model(site, given.get(name))  # who left a run goes on with its own
        right = predictions(task, model, site).argmax(axis=1) == site.data.y.numpy()
        masks = (site.data.val.numpy(), site.data.test.numpy())
        found.append([float(right[mask].mean()) for mask in masks])
    return found


def agreement(one: Array, other: Array) -> float:
    """Return the adjusted Rand index of two partitions (Hubert and Arabie, 1985)."""
    table = np.array([[np.sum((one == a) & (other == b)) for b in set(other)] for a in set(one)])
    pairs = [
        sum(comb(int(n), 2) for n in counts)
        for counts in (table.ravel(), table.sum(axis=0), table.sum(axis=1))
    ]
    by_chance, most = pairs[1] * pairs[2] / comb(len(one), 2), (pairs[1] + pairs[2]) / 2
    return 1.0 if most == by_chance else float((pairs[0] - by_chance) / (most - by_chance))


def likeness(sequences: Sequence[Array], seed: int) -> dict[str, Array]:
    """Return, by form, how alike sequences are, (K, K), between -1 and 1."""

    def cosines(rows: list[Array]) -> Array:
        units = np.array([directed(row) for row in rows])
        units /= np.linalg.norm(units, axis=1, keepdims=True)
        found: Array = units @ units.T
        return found

    own = [one if (found := scaled(one)) is None else found for one in sequences]
    return {
        "published": nearness(np.array(sequences)),
        "published, standardised": nearness(np.array(own)),
        "pivots": cosines([to_pivots(one, seed) for one in sequences]),
        "correlation": cosines([standardised(one) for one in sequences]),
    }


def sides(alike: Array, rule: Any, *, least: int) -> Array | None:
    """Return who is on the smaller side of a cut."""
    return cut_in_two(weighed(alike), rule, "constrained", least)


def compared(sequences: Array, length: int, first: int, seed: int) -> list[dict[str, Any]]:
    """Return how the forms' cuts agree, for every window that ends at round `first` or later.

    Args:
        sequences: norms, (K, rounds).
        length: of a window.
        first: rounds.
        seed: of the pivots.
    """
    found = []
    for end in range(max(first, length), sequences.shape[1] + 1, length):
        alike = likeness(list(sequences[:, end - length : end]), seed)
        off = ~np.eye(len(sequences), dtype=bool)
        ranges = {name: [float(m[off].min()), float(m[off].max())] for name, m in alike.items()}
        for rule in ("stoer_wagner", "normalised", "agglomerative"):
            for least in (1, LEAST):
                cuts = {name: sides(matrix, rule, least=least) for name, matrix in alike.items()}
                if any(cut is None for cut in cuts.values()):
                    continue
                rand = {
                    f"{name} and {with_}": agreement(cuts[name], cuts[with_])  # type: ignore[arg-type]
                    for name in ("pivots", "correlation")
                    for with_ in ("published", "published, standardised")
                }
                small = {name: int(cut.sum()) for name, cut in cuts.items() if cut is not None}
                found.append(
                    {
                        "end": end,
                        "rule": rule,
                        "least": least,
                        "rand": rand,
                        "small": small,
                        "ranges": ranges,
                    }
                )
    return found


def planted(kind: str, clients: int, length: int, seed: int) -> tuple[Array, Array]:
    """Return two groups of clients, (K,), and their sequences of norms, (K, T).

    Args:
        kind: `trend`: one group's norms fall, the other's rise; `course`: they fall, or swing;
            `level`: both stand still, one higher. But for `level`, clients' scales are their own.
        clients: K.
        length: T.
        seed: of scales and noise.
    """
    rng = np.random.default_rng(seed)
    truth, time = np.arange(clients) % 2, np.arange(length)
    courses = {
        "trend": (1 - 0.08 * time, 1 + 0.08 * time),
        "course": (1 - 0.08 * time, 1 + 0.25 * np.sin(2 * time)),
        "level": (np.ones(length), np.ones(length)),
    }[kind]
    found = []
    for group in truth:
        scale = (0.2, 0.5)[group] if kind == "level" else rng.uniform(0.1, 0.6)
        found.append(scale * (courses[group] + 0.05 * rng.standard_normal(length)))
    return truth, np.array(found)


def recovered(kind: str, rule: Any, least: int, seed: int) -> dict[str, float]:
    """Return, by form, the adjusted Rand index of its cut and the planted groups."""
    truth, sequences = planted(kind, 12, 10, seed)
    cuts = {n: sides(m, rule, least=least) for n, m in likeness(list(sequences), seed).items()}
    return {name: agreement(truth, cut) for name, cut in cuts.items() if cut is not None}
