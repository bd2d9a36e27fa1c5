"""Small runs that every law is asked of: five clients, two rounds, generated data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from algorithms.tasks import Task
from protocols.disclosures.names import Disclosure
from protocols.forms import Algorithm
from protocols.policy.policy import PrivacyPolicy
from secure_fgl.catalogue import preferred_model

__all__ = [
    "BANKS",
    "CLIENTS",
    "HIDDEN",
    "OPTIONS",
    "RATINGS",
    "ROUNDS",
    "document",
    "mixes",
    "steadied",
]

ROUNDS, CLIENTS, HIDDEN = 2, 5, 8
BANKS: dict[str, Any] = {
    "name": "synthetic_banks",
    "options": {"customers": 40, "transactions": 60},
    "partition": {"name": "by_owner", "clients": CLIENTS},
}
RATINGS: dict[str, Any] = {
    "name": "synthetic_ratings",
    "options": {"users": CLIENTS, "items": 12, "each": 8},
    "split": [0.6, 0.2, 0.2],
    "partition": {"name": "user_per_client", "clients": CLIENTS},
}
OPTIONS: dict[str, Any] = {"fed_sage_plus": {"steps": 2}}
"""What would only take time."""


def rated(name: str) -> bool:
    """Tell whether an algorithm is a recommender, which takes ratings alone."""
    return set(preferred_model(name)) == {"rating"}


def document(
    name: str,
    policy: str = "pilot",
    *,
    seed: int = 1,
    rounds: int = ROUNDS,
    drop: str = "",
    store: Path | None = None,
    **model: Any,
) -> dict[str, Any]:
    """Return the small configuration that all laws share, on data of a kind an algorithm takes.

    Args:
        name: of the algorithm.
        policy: a preset's name.
        seed: of learning randomness.
        rounds: how many.
        drop: clients that vanish.
        store: of budgets; None: the user's.
        model: settings of the model.
    """
    return {
        "algorithm": {"name": name, "rounds": rounds, "options": OPTIONS},
        "faults": {"drop": drop},
        "budget": {"store": str(store) if store else None},
        "model": {"hidden": HIDDEN, **model},
        "data": RATINGS if rated(name) else BANKS,
        "policy": policy,
        "seed": seed,
    }


def mixes(built: tuple[Task, Algorithm[Any]]) -> bool:
    """Tell whether an algorithm has a form that mixes records."""
    kinds = {kind.disclosure for form in built[1].forms for kind in form.messages()}
    return Disclosure.MIXED in kinds


def steadied(policy: str) -> PrivacyPolicy:
    """Return a preset without its rule for mixtures.

    Who stands in which mixture is drawn from the operating system (O15), so runs that mix do not
    repeat. Without that rule the same algorithm takes a form that does.
    """
    preset = PrivacyPolicy.preset(policy)
    rules = {d: chain for d, chain in preset.rules.items() if d is not Disclosure.MIXED}
    return preset.model_copy(update={"rules": rules})
