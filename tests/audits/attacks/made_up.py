"""Made-up measurements whose verdict is known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from audits.attacks import AttackReport, Material, Samples, attack

N = 40
CLIENTS = tuple(f"client-{n:02d}" for n in range(N))


def around(mean: float, spread: float = 0.02, n: int = N) -> np.ndarray:
    """Return values whose mean is exact and whose spread is about this."""
    found = np.random.default_rng(int(mean * 1000) + n).normal(size=n)
    return mean + (found - found.mean()) * spread


def samples(**given: Any) -> Samples:
    facts = {
        "payload": "P05",
        "what": "a question",
        "units": CLIENTS,
        "chance": 0.5,
        "prior": np.full(N, 0.5),
        "raw": around(0.95),
        "null": around(0.5),
        "protected": around(0.5),
        "positives": 4000,
        "negatives": 4000,
    }
    return Samples(**{**facts, **given})


def attack_only(material: Material, ids: Sequence[str] = (), **options: Any) -> AttackReport:
    """Attack, and leave out the rows that say that an attack was not asked for."""
    found = attack(material, ids, **options)
    rows = tuple(row for row in found.rows if row.reason != "it was not asked for")
    return found.model_copy(update={"rows": rows})
