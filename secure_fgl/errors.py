"""Errors of the face, each with the exit code the command line gives it.

Exit codes: 0 clean, 1 internal, 2 usage, policy or configuration, 3 findings, 4 inconclusive under
``--strict``, 5 evidence broken, 6 plan drift, 7 budget or claim, 130 Ctrl-C.
"""

from __future__ import annotations

from protocols.errors import SecureFglError

OK, INTERNAL, USAGE, FINDINGS, INCONCLUSIVE, BROKEN, DRIFT, BUDGET, INTERRUPTED = (
    0, 1, 2, 3, 4, 5, 6, 7, 130,
)  # fmt: skip


class UsageError(SecureFglError):
    """A configuration, file or argument that cannot be used."""


class PlanDrift(SecureFglError):
    """The run would do something that the approved plan does not hold."""

    def __init__(self, differences: list[str]) -> None:
        self.differences = differences
        shown = "; ".join(differences[:8])
        super().__init__(
            f"The run differs from the approved plan in {len(differences)} point(s): {shown}",
            why="algorithm, model, data, policy or number of clients or rounds changed",
            fix="have the new plan approved: secure-fgl plan CONFIG --out plan.json",
        )
