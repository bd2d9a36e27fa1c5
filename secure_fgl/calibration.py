"""Which epsilon can say anything: the error of a mean under own noise, planned without data."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from protocols.disclosures.names import Disclosure
from protocols.disclosures.noised.telling import planned_parts, randomiser_of, tells
from protocols.errors import NotAdmitted, PolicyError
from protocols.plan.plan import Item
from protocols.policy.guard import guard_of
from protocols.policy.guards import Clip, OwnNoise, Quantise
from protocols.policy.policy import PrivacyPolicy
from secure_fgl.federation import Federation

__all__ = ["EPSILONS", "Row", "calibration", "error_of_one"]

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


def error_of_one(item: Item, policy: PrivacyPolicy) -> float:
    """Return the error of one client's message in units of the clip norm; a mean's is this / √n.

    Raises:
        ValueError: the item has no noise of its client's own.
    """
    noise, chain = item.noise, policy.chain(item.disclosure)
    clip, quantise = guard_of(chain, Clip), guard_of(chain, Quantise)
    if noise is None or not noise.local or clip is None:
        raise ValueError(f"{item.id} has no noise of its client's own")
    if item.disclosure is Disclosure.NOISED:
        parts = planned_parts(item)
        made = randomiser_of(noise, parts, clip.bound, item.label)
        return math.sqrt(made.variance(1)) / (len(parts) ** 0.5 if tells(parts) else clip.bound)
    levels = float((1 << ((quantise or Quantise()).bits - 1)) - 1)
    spread = float(noise.sigma) * (math.sqrt(2.0) if "laplace" in noise.mechanism else 1.0)
    return spread * math.sqrt(noise.coordinates) / levels


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
                    math.ceil(one * one),
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
