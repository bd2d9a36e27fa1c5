"""What a plan says of a form that splits its clients into clusters (O5)."""

from __future__ import annotations

from protocols.clusters.cuts import CutGuard, CutRule
from protocols.strict import Strict


class SplitPlan(Strict):
    """How clusters come about.

    Attributes:
        message: whose cosines decide.
        cut, guard: see `protocols.forms.Splits`.
        signed: the key authority computes every cut from what it opened, and signs it; else a
            split is the aggregator's word.
    """

    message: str
    cut: CutRule
    guard: CutGuard
    signed: bool
