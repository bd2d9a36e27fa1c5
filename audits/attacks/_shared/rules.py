"""By what rule a score is judged. Each attack declares its rules as data; no row follows others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

__all__ = ["NullSide", "Rule"]

NullSide = Literal["both", "above"]


@dataclass(frozen=True)
class Rule:
    """By what one score of an attack is judged, in every run.

    An attack makes its samples by it, and a row that is read must name one of its attack's, so that
    nobody makes a PASS of a leak by a wider margin.

    Attributes:
        metric: name of the score; larger is worse.
        margin: how far above the prior a protected payload may be.
        gate: how far above the prior the raw control must be.
        chance: of a random guess; None if that depends on the data.
        null_side: ``above`` if a null control below chance is no sign of bias.
        exact: the scores are facts and no estimates.
        clients: whether units are clients; else the row counts none.
        claims: the prior is a claimed epsilon, so that a FAIL falsifies a claim.
        also: payload ids that its rows may be about, besides those of the attack.
    """

    metric: str
    margin: float
    gate: float
    chance: float | None = None
    null_side: NullSide = "both"
    exact: bool = False
    clients: bool = True
    claims: bool = False
    also: tuple[str, ...] = ()

    def given(self) -> dict[str, Any]:
        """Return what samples that are judged by this rule say of it; chance where it is fixed."""
        found: dict[str, Any] = {
            "metric": self.metric,
            "margin": self.margin,
            "gate": self.gate,
            "null_side": self.null_side,
            "exact": self.exact,
            "client_clusters": self.clients,
        }
        return found if self.chance is None else {**found, "chance": self.chance}
