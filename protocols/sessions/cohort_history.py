"""Who was in the sums of a run so far, so that no few clients stand out from their totals (O5)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from protocols.errors import CohortChanged
from protocols.keys.groups import fewest_apart
from protocols.policy.cohort_changes import divided, whole
from protocols.sessions.part import Engine, SessionPart


class CohortHistory(SessionPart):
    """Holds all cohorts and survivor lists of a run's sums to the policy's `cohort_changes`.

    It is of the run: no new epoch and no lost round makes it forget. Of thousands of clients it
    holds a few sets as numbers, since no group is smaller than a survivor list.
    """

    called: ClassVar[str] = "history"

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self._groups: tuple[int, ...] = ()

    def serve(self, names: Sequence[str]) -> None:
        """Note clients that are asked for a sum, or that it counts; raises CohortChanged."""
        self._groups = self._with(names)

    def fitting(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return whom of these clients a sum may be asked of: all, or else whole groups.

        Who was not asked before, or whose group is not complete, then waits.

        Raises:
            CohortChanged: neither is allowed.
        """
        try:
            self._with(names)
            return tuple(names)
        except CohortChanged:
            kept = whole(self._groups, self._set(names))
            place = self._context.roster.place
            left = tuple(name for name in names if kept >> place(name) & 1)
            if not left:
                raise
        self._with(left)
        return left

    def _with(self, names: Sequence[str]) -> tuple[int, ...]:
        rule = self._context.policy.cohort_changes
        if rule == "any":
            return ()
        plan = self._context.plan
        least = fewest_apart(len(plan.clients), self._context.policy, plan.drawn)
        return divided(self._groups, self._set(names), rule, least)

    def _set(self, names: Sequence[str]) -> int:
        return int.from_bytes(self._context.roster.mask(names), "little")
