"""Which clients count in a sum: vanished, opened, protected in all totals together (O5, O10)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

from protocols.disclosures._base.view import answers_of
from protocols.disclosures.names import Disclosure
from protocols.errors import BadEnvelope, CohortChanged, Replay, RoundLost
from protocols.forms import Exchange
from protocols.keys.groups import fewest_apart
from protocols.policy.policy import divided, whole
from protocols.sessions.asking import Asked
from protocols.sessions.drawing import Drawn
from protocols.sessions.engine import Phase
from protocols.sessions.epoch_keys import EpochKeys
from protocols.sessions.part import Collection, Engine, SessionPart
from protocols.wire.envelope import Header

# --- Who was in the sums of a run so far, so that no few clients stand out from their totals (O5)
# ---


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


# --- What the key authority has opened: each upload once, a round over one set of survivors (O5)
# ---


def _apart(before: str, left: frozenset[str], stayed: frozenset[str]) -> bool:
    """Tell whether these are part of whom a result counts that nothing can be subtracted from."""
    return left < stayed and not answers_of(Disclosure(before)).adds


_Opening = tuple[str, int, int, frozenset[str], frozenset[str]]


class Openings(SessionPart):
    """Remembers and records every opening, before it."""

    lasting = frozenset({"opened"})

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        # By round: disclosure, exchange, exchange of the uploads, who was asked, whose uploads.
        self.opened: dict[int, list[_Opening]] = {}

    def check_recorded(self, header: Header, disclosure: Disclosure) -> None:
        """Raise BadEnvelope unless this opening stands in the ledger already."""
        opened = self.opened.get(header.round, [])
        if (str(disclosure), header.exchange) not in {(d, e) for d, e, *_ in opened}:
            raise BadEnvelope("An opening is taken up that was never recorded.")

    def once(
        self,
        header: Header,
        members: tuple[str, ...],
        survivors: tuple[str, ...],
        disclosure: Disclosure = Disclosure.SUM,
        source: int | None = None,
        digest: str = "",
    ) -> None:
        """Open every exchange's uploads once, and hold a round to one set of survivors (O5).

        Of whatever kind they are: rows over one client less than a total would be subtracted. What
        does not add up, as cosines, may be followed by totals over clusters of it. And nothing of a
        round once a later one was opened: who counts would be chosen knowing that.
        """
        asked, left = frozenset(members), frozenset(survivors)
        uploads = header.exchange if source is None else source
        if header.round < max(self.opened, default=header.round):
            raise Replay("A later round was opened; nothing of this one is opened any more.")
        for kind, exchange, before, others, stayed in self.opened.get(header.round, []):
            again = exchange == header.exchange or before == uploads
            if kind == str(disclosure) and again:
                raise Replay("This exchange was already opened.")
            if before == uploads and (others, stayed) != (asked, left):
                raise BadEnvelope("Answers to one Ask are opened over different survivors (O5).")
            if left & stayed and left != stayed and not _apart(kind, left, stayed):
                raise BadEnvelope("Two different overlapping cohorts in one round (O5).")
            if asked & others and left & others != stayed & asked:
                raise BadEnvelope("A client vanished and came back within one round (O5).")
        opening = (str(disclosure), header.exchange, uploads, asked, left)
        self.opened.setdefault(header.round, []).append(opening)
        facts: dict[str, object] = {
            "cohort": header.cohort,
            "exchange": header.exchange,
            "members": len(members),
            "round": header.round,
            "survivors": len(survivors),
        }
        if digest:
            facts |= {"digest": digest, "disclosure": str(disclosure), "uploads": uploads}
        self._engine.record("open", facts)


# --- Who counts: who vanished from a round, and whom its opened results count (O5, O10) ---

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
