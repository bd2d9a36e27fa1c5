"""The cohorts that were drawn for this run, at the aggregator and at every client."""

from __future__ import annotations

from collections.abc import Sequence

from protocols.errors import BadEnvelope, CohortTooSmall, LocalProtocolError
from protocols.forms import Exchange
from protocols.plan.drawn import DrawnPlan, clear_seed, drawn_cohorts, turn
from protocols.sessions.part import Engine, SessionPart
from protocols.wire.cohorts import as_set, within
from protocols.wire.where import Where


class Drawn(SessionPart):
    """Holds what was drawn; it is of the run, and drawn once.

    Args:
        engine: the session.
    """

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self._seed = b""
        self._clients: tuple[str, ...] = ()  # who drew lots, sorted
        self.within = self.least = 0  # of the cohorts as they are; see `DrawnPlan`

    def begin(self) -> None:
        """Draw at once where sums leave in clear, from the plan's public seed."""
        plan = self._context.plan
        if plan.drawn is not None and not plan.drawn.by_lot:
            clients = self._context.roster.clients
            self.settle(clear_seed(plan.seed, clients), clients)

    @property
    def planned(self) -> DrawnPlan | None:
        """What the plan says of it; None where a round asks all clients."""
        return self._context.plan.drawn

    def settle(self, seed: bytes, clients: Sequence[str]) -> None:
        """Take over a seed and who drew it.

        Raises:
            LocalProtocolError: cohorts were drawn before.
            PolicyError: too few clients are there for cohorts that are large enough.
        """
        left = self.check(clients)
        self.within, self.least = left.within, left.least
        self._seed, self._clients = seed, tuple(clients)
        facts = {
            "cohorts": left.cohorts,
            "members": self._context.roster.mask(self._clients).hex(),
            "seed": seed.hex(),
        }
        self._engine.record("drawn", facts)

    def check(self, clients: Sequence[str]) -> DrawnPlan:
        """Return what follows from the plan if these clients draw lots; see `settle`."""
        planned = self.planned
        if planned is None or self._seed:
            raise LocalProtocolError("The cohorts of a run are drawn once, where it has any.")
        return planned.left(len(clients), self._context.policy)

    @property
    def cohorts(self) -> tuple[tuple[str, ...], ...]:
        """The run's cohorts, in the order of their turns; empty before they are drawn."""
        planned = self.planned
        if planned is None or not self._seed:
            return ()
        return drawn_cohorts(self._seed, self._clients, planned.cohorts)

    def of(self, name: str) -> tuple[str, ...]:
        """Return the cohort of a client; empty if it drew no lot."""
        return next((cohort for cohort in self.cohorts if name in cohort), ())

    def asked_back(self, exchange: Exchange, where: Where) -> None:
        """At a client, refuse to answer with clients of another cohort, or out of turn.

        Members that are away may be missing; nobody else stands in for them.

        Raises:
            BadEnvelope: an Ask that brings something back is for others than lots drew, or a round
                is another cohort's.
            CohortTooSmall: for too few of them.
        """
        if self.planned is None or not exchange.back:
            return
        mine = self.of(self._engine.name)
        if not within(where.members, as_set(mine)):
            raise BadEnvelope(
                "An Ask's cohort is not the one that was drawn by lot for this client.",
                why="the aggregator chooses who is asked, or is out of step",
            )
        if not exchange.outside and turn(self.cohorts, where.round) != mine:
            raise BadEnvelope(
                "A round is asked of a cohort whose turn it is not.",
                why="the aggregator asks one cohort more often than the others, or is out of step",
            )
        if len(where.members) < self.least:
            raise CohortTooSmall(
                f"An Ask's cohort holds {len(where.members)} of the clients drawn for it; it needs "
                f"{self.least}.",
                why="the total of a small group tells its members about each other",
                fix="wait until more of them are there",
            )
