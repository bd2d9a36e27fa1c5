"""Planted mixtures: random vectors on a random graph, mixed as the gateway mixes them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import scipy.sparse as sp

from audits.attacks import Mixtures

RECORDS, MEMBERS, SIZE, FAN, CLASSES = 150, 96, 12, 3, 3
POSITIONS = 1 + FAN


def mixtures(
    clients: int = 6,
    *,
    width: int = 24,
    rounds: int = 1,
    noise: float = 0.0,
    size: int = SIZE,
    drift: float = 0.2,
) -> tuple[Mixtures, ...]:
    """Return the mixtures of so many clients; vectors say nothing of who is in which group.

    Args:
        clients: how many, each with records and links of its own.
        width: of a vector.
        rounds: in each of which the vectors drift.
        noise: on what is read, features and labels.
        size: members of a group.
        drift: how far the vectors are from those with which the round began.
    """
    rng, found = np.random.default_rng(6), []
    for number in range(clients):
        links = _links(rng)
        walk = np.cumsum(links.toarray(), axis=1)
        drawn = (rng.random((MEMBERS, FAN, 1)) > walk[:MEMBERS, None, :]).sum(axis=2)
        index = np.hstack([np.arange(MEMBERS)[:, None], np.minimum(drawn, RECORDS - 1)])
        groups = rng.permutation(MEMBERS) // size
        labels = rng.integers(CLASSES, size=MEMBERS)
        table = rng.normal(size=(RECORDS, width))
        for round in range(1, rounds + 1):
            begun, table = table, table + drift * rng.normal(size=table.shape)
            seen = {
                name: value + noise * rng.normal(size=value.shape)
                for name, value in mixed(table, index, groups, labels).items()
            }
            found.append(
                Mixtures(
                    client=f"client-{number:02d}",
                    round=round,
                    seen=seen,
                    tables={"computed": table, "begun": begun},
                    index=index,
                    groups=groups,
                    labels=labels,
                    rings=(1, FAN),
                    links=links,
                )
            )
    return tuple(found)


def _links(rng: np.random.Generator) -> sp.csr_array:
    near = rng.random((RECORDS, RECORDS)) < 4.0 / RECORDS
    near = near | near.T | np.eye(RECORDS, dtype=bool)
    return sp.csr_array(near / near.sum(axis=1, keepdims=True))


def mixed(
    table: np.ndarray, index: np.ndarray, groups: np.ndarray, labels: np.ndarray
) -> dict[str, np.ndarray]:
    """Return features (m, P, D) and labels (m, C), each record once at a position."""
    features, shares = [], []
    for group in range(int(groups.max()) + 1):
        mine = groups == group
        features.append([table[np.unique(column)].mean(axis=0) for column in index[mine].T])
        shares.append(np.bincount(labels[mine], minlength=CLASSES) / mine.sum())
    return {"features": np.array(features), "label": np.array(shares)}


def regrouped(one: Mixtures, groups: np.ndarray, index: np.ndarray | None = None) -> Mixtures:
    """Return a client whose members are in other groups, and what is read then."""
    placed = one.index if index is None else index
    assert one.labels is not None
    seen = mixed(one.tables["computed"], placed, groups, one.labels)
    return replace(one, seen=seen, groups=groups, index=placed)
