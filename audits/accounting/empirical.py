"""The word beside every epsilon: what attacks proved against it, by experiment and not arithmetic.

The common field is the claim (`audits.attacks._shared.models.Claim`): every attack whose figure is
a lower bound of epsilon gives one, with ``epsilon_lb``, ``ceiling``, ``trials`` and ``unit``. A10
does (the noise code), and whatever else bounds epsilon from below joins by giving claims; nothing
here knows attacks by name. What is proved of one message is proved of all that holds it, so bounds
are held against epsilons of messages, rounds and runs alike.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from audits.attacks._shared.models import Claim
from protocols.strict import Strict

__all__ = ["UNTRIED", "Empirical", "empirical"]

_ENDLESS = "infinity"


class Empirical(Strict):
    """What attacks say of one epsilon.

    Attributes:
        word: see :func:`empirical`.
        lower_bound: the largest that was proved for this unit; empty if none was tried.
        ceiling: what a perfect attack could have proved with as many trials; likewise.
        why: one sentence.
    """

    word: Literal["falsified", "not falsified", "untested"]
    lower_bound: str = ""
    ceiling: str = ""
    why: str


UNTRIED = Empirical(word="untested", why="no attack that bounds epsilon was run")


def empirical(epsilon: str, unit: str, claims: Iterable[Claim]) -> Empirical:
    """Return the word beside an epsilon.

    ``falsified``: a claim for this unit is, or a bound lies above this epsilon. ``not falsified``:
    attacks that could have done so, as their ceiling lies above it, did not. ``untested``: all
    else, an attack too weak for that number among it.

    Args:
        epsilon: decimal text, or ``infinity``.
        unit: whose presence it is about, as the statement says it (``one training node``).
        claims: that attacks held against evidence.
    """
    if epsilon == _ENDLESS:
        return Empirical(word="untested", why="no finite epsilon is claimed that could be false")
    held = [claim for claim in claims if _unit(claim.unit) == _unit(unit) and claim.trials]
    if not held:
        return UNTRIED
    best = max(held, key=lambda claim: float(claim.epsilon_lb or 0))
    ceiling = max((claim.ceiling for claim in held if claim.ceiling), key=float, default="")
    bound = {"lower_bound": best.epsilon_lb, "ceiling": ceiling}
    refuted = any(claim.status == "falsified" for claim in held)
    if refuted or float(best.epsilon_lb or 0) > float(epsilon):
        why = f"an attack proves at least {best.epsilon_lb}, or more than a part of it may give"
        return Empirical(word="falsified", why=why, **bound)
    if any(claim.status == "untested" for claim in held):
        why = "an attack was too weak to tell, or of another version of the program"
        return Empirical(word="untested", why=why, **bound)
    if not float(ceiling or 0) > float(epsilon):
        why = "no attack with so few trials could prove more than this epsilon"
        return Empirical(word="untested", why=why, **bound)
    why = f"attacks that could prove up to {ceiling} proved {best.epsilon_lb}, which is no proof"
    return Empirical(word="not falsified", why=why, **bound)


def _unit(text: str) -> str:
    """Return a unit without how it is counted: claims say ``node``, statements which one."""
    return text.removeprefix("one ").removeprefix("training ")
