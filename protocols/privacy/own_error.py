"""By how much the mean of clients' own-noised messages errs, planned without data."""

from __future__ import annotations

import math

from protocols.disclosures.names import Disclosure
from protocols.disclosures.noised.randomiser import planned_parts, randomiser_of, tells
from protocols.plan.plan import Item
from protocols.policy.guard import guard_of
from protocols.policy.guards import Clip, Quantise
from protocols.policy.policy import PrivacyPolicy

__all__ = ["clients_needed", "error_of_one"]


def error_of_one(item: Item, policy: PrivacyPolicy) -> float:
    """Return the error of one client's message in units of the clip norm; a mean's is this / √n.

    The root of the expected squared error, all entries together.

    Raises:
        ValueError: the item has no noise of its client's own.
        PolicyError: its noise cannot be drawn.
    """
    noise, chain = item.noise, policy.rules.get(item.disclosure, ())
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


def clients_needed(error: float) -> int:
    """Return from how many clients on the mean's error is below the clip; see `error_of_one`."""
    return math.ceil(error * error)
