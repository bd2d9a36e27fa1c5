"""Who counts: who vanished from a round, and whom its opened results count (O5, O10)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

from protocols.disclosures._base.view import answers_of
from protocols.errors import CohortChanged, RoundLost
from protocols.forms import Exchange
from protocols.sessions.cohort_history import CohortHistory
from protocols.sessions.collection import Collection
from protocols.sessions.drawing.drawn import Drawn
from protocols.sessions.part import Engine, SessionPart
from protocols.sessions.phases import Phase
from protocols.sessions.services.asked import Asked
from protocols.sessions.services.epoch_keys import EpochKeys

_Round = tuple[int, frozenset[str]]


class Survivors(SessionPart):
    """Holds a round to one set of survivors; its phase settles those of an Ask.

    Args:
        engine: the session.
        asked: the Ask under way.
        keys: the epoch's keys, without which nobody is asked.
        cohorts: who was in the run's sums so far.
        drawn: the run's cohorts, where lots draw them.
    """

    phase: ClassVar[int | None] = Phase.SETTLE

    def __init__(
        self,
        engine: Engine,
        asked: Asked,
        keys: EpochKeys,
        cohorts: CohortHistory,
        drawn: Drawn,
    ) -> None:
        super().__init__(engine)
        self._asked, self._keys, self._cohorts, self._drawn = asked, keys, cohorts, drawn
        self._vanished: _Round = (0, frozenset())  # of the round, so far
        self._fixed: _Round = (0, frozenset())  # whom an opened result counts

    def gone(self, round: int) -> frozenset[str]:
        """Return who vanished in a round, so far."""
        return self._vanished[1] if self._vanished[0] == round else frozenset()

    def vanish(self, names: Iterable[str]) -> None:
        """Note who vanished from the round of the Ask under way."""
        self.leave_out(names, self._asked.answers.where.round)

    def leave_out(self, names: Iterable[str], round: int) -> None:
        """Note who vanished from a round before it was asked."""
        self._vanished = (round, self.gone(round) | frozenset(names))

    def present(self, cohort: Sequence[str], round: int) -> tuple[str, ...]:
        """Return who of a cohort has this epoch's keys and did not vanish in this round."""
        gone = self.gone(round)
        return tuple(member for member in self._keys.ready(cohort) if member not in gone)

    def fitting(self, members: Sequence[str], exchange: Exchange) -> tuple[str, ...]:
        """Return whom of those that are there an Ask goes to, as the policy lets cohorts change.

        Raises:
            RoundLost: no such cohort may be asked.
        """
        if not _totalled(exchange):
            return tuple(members)
        try:
            return self._cohorts.fitting(members)
        except CohortChanged as error:
            raise _lost(error) from error

    def going_out(self, answers: Collection) -> None:
        """Note whom an Ask goes to; raises RoundLost where no client would answer it."""
        if _totalled(answers.exchange):
            self._serve(answers.where.members)

    def wanted(self) -> bool:
        """Tell that every Ask settles whose answers count."""
        return True

    def enter(self) -> None:
        """Fix whose answers count, for all that is opened of the round from then on."""
        asked = self._asked.answers
        round = asked.where.round
        gone = asked.fix_survivors()
        self.vanish(gone)
        self._keys.missed_by(gone)
        if self._keys.under(asked.exchange):
            self._keys.taken_by(asked.survivors)
        if asked.fixed:
            self.check_fixed(round)
        self.check_left(asked.survivors)
        if _totalled(asked.exchange):
            self._serve(asked.survivors)
        if asked.fixed:
            fixed = self._fixed[1] if self._fixed[0] == round else frozenset()
            self._fixed = (round, fixed | set(asked.survivors))
        for part in self._engine.parts.values():
            part.settled(asked)

    def advance(self) -> None:
        """Nothing is waited for here."""

    def check_left(self, members: Sequence[str]) -> None:
        """Raise RoundLost if these are fewer than the policy's minimum (O10)."""
        least = max(self._context.plan.smallest_cohort, self._drawn.least)
        if len(members) < least:
            raise RoundLost(
                f"Only {len(members)} clients are left; the policy asks for {least}. The round is "
                "skipped.",
                why="clients vanished; a smaller group's total would tell on its members",
                fix="this was not opened; the next round goes on with who is there",
            )

    def _serve(self, members: Sequence[str]) -> None:
        """Skip a round whose cohort or survivors no client serves; see `cohort_changes`."""
        try:
            self._cohorts.serve(members)
        except CohortChanged as error:
            raise _lost(error) from error

    def check_fixed(self, round: int) -> None:
        """Skip a round of which an opened result counts a client that vanished since."""
        if self._fixed[0] == round and self._fixed[1] & self.gone(round):
            raise RoundLost(
                "A client vanished between two results of one round, whose survivors are fixed "
                "(O5). The round is skipped.",
                why="their difference would be little more than that client's vector",
                fix="nothing more of it is opened; the next round goes on with who is there",
            )


def _totalled(exchange: Exchange) -> bool:
    return any(answers_of(kind.disclosure).totalled for kind in exchange.back)


def _lost(error: CohortChanged) -> RoundLost:
    return RoundLost(
        f"{error.what} The round is skipped.",
        why="clients are away; the policy's cohort_changes keeps totals from being subtracted",
        fix="this was not opened; a later round goes on once they are back",
    )
