"""Which epsilon can say anything: the error of a mean under own noise, planned without data."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from protocols.errors import NotAdmitted, PolicyError
from protocols.policy.guard import guard_of
from protocols.policy.guards import OwnNoise
from protocols.policy.policy import PrivacyPolicy
from protocols.privacy.own_target import clients_needed, error_of_one
from secure_fgl.federation import Federation

__all__ = ["EPSILONS", "Row", "calibration"]

EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)


@dataclass(frozen=True)
class Row:
    """What one message comes to at one epsilon of the run.

    Attributes:
        epsilon: of the run.
        item: the plan item; empty where no noise reaches this epsilon.
        coordinates: numbers of the message.
        ratio: noise to signal: the root of the expected squared error of the mean of the plan's
            clients, in units of the clip norm.
        clients: from so many on the error is below the clip.
        bytes: of one message.
    """

    epsilon: float
    item: str
    coordinates: int
    ratio: float
    clients: int
    bytes: int


def calibration(federation: Federation) -> Iterator[Row]:
    """Yield, per epsilon and message, what the mean of all clients would be worth.

    No feature, label or edge is read.

    Raises:
        NotAdmitted: the policy has no own noise, or does not admit the algorithm.
    """
    given = federation.policy
    if not any(guard_of(chain, OwnNoise) for chain in given.rules.values()):
        raise NotAdmitted(
            f"Policy {given.name!r} has no noise of clients' own, so no epsilon is to choose.",
            fix="take the policy ldp, or one with the guard own_noise",
        )
    for epsilon in EPSILONS:
        federation.policy = _at(given, epsilon)
        try:
            plan = federation.plan()
        except NotAdmitted:
            raise
        except PolicyError:
            yield Row(epsilon, "", 0, math.inf, 0, 0)
            continue
        finally:
            federation.policy = given
        for item in plan.items:
            if item.noise is not None and item.noise.local:
                one, clients = error_of_one(item, given), len(plan.clients)
                yield Row(
                    epsilon,
                    item.id,
                    item.noise.coordinates,
                    one / math.sqrt(clients),
                    clients_needed(one),
                    item.bytes,
                )


def _at(policy: PrivacyPolicy, epsilon: float) -> PrivacyPolicy:
    """Return the policy with another target, and any noise accepted."""
    rules = {
        disclosure: tuple(
            guard.model_copy(update={"epsilon": epsilon, "accept_noise": True})
            if isinstance(guard, OwnNoise)
            else guard
            for guard in chain
        )
        for disclosure, chain in policy.rules.items()
    }
    return policy.model_copy(update={"rules": rules})
