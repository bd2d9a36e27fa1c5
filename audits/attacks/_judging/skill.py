"""A second score where a good prior leaves the first one little room: the skill score.

1 - (1 - score) / (1 - prior), by the mean prior of all clients (Murphy, Monthly Weather Review
1988): 0 is the attacker without the message, 1 is the truth. Margin and gate count in shares of
the room above the prior.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from audits.attacks._shared.material import Array
from audits.attacks._shared.rules import Rule
from audits.attacks._shared.samples import NotApplicable, Samples

__all__ = ["fits", "skill"]

_NONE = 1e-6  # of room, below which nothing is left to find


def fits(found: Samples, room: float, rule: Rule) -> Samples | NotApplicable:
    """Return samples, or why no attack could pass their gate.

    Args:
        found: scores that end at 1.
        room: 1 less the mean prior.
        rule: of the score.
    """
    if room > rule.gate:
        return found
    why = (
        f"an attacker without the message is right in all but {room:.3f}, and {rule.gate:g} above "
        "it is needed to show that an attack works; the share of that error is asked instead"
    )
    return NotApplicable(why, found.payload, found.what)


def skill(found: Samples, room: float, rule: Rule) -> Samples | NotApplicable:
    """Return the skill score of the same trials.

    Args:
        found: scores that end at 1.
        room: 1 less the mean prior.
        rule: of the skill score.
    """
    what = f"{found.what}, of what an attacker without it has wrong"
    if room < _NONE:
        why = "who sees no message has nothing wrong, so there is nothing left to find"
        return NotApplicable(why, found.payload, what)

    def of(score: Array) -> Array:
        return np.asarray(1.0 - (1.0 - score) / room, dtype=np.float64)

    return replace(
        found,
        what=what,
        prior=of(found.prior),
        raw=of(found.raw),
        null=of(found.null),
        protected=of(found.protected),
        bounds=(1.0 - 1.0 / room, 1.0),
        **{**rule.given(), "chance": float(of(np.array(found.chance)))},
    )
