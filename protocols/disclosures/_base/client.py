"""The client's part in what all disclosures have in common: one cohort a round (O5)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from protocols.disclosures._base.view import fixing
from protocols.errors import BadEnvelope
from protocols.forms import Exchange
from protocols.policy.guard import find
from protocols.sessions.part import Engine, SessionPart
from protocols.wire.envelope import Where


class OneCohort(SessionPart):
    """Answers, in one round, for one cohort only, whatever is opened of the answers.

    Two results of one round over two cohorts would be subtracted, be they totals, cosines or rows.
    Only clients that vanished may be missing later. Of a sum, a list says who did, and later Asks
    are for these very clients. Of what is weighed, compared or relayed clients are shown none: a
    later Ask may be for fewer, and the key authority, or the relay, holds them to who counted.
    """

    called: ClassVar[str] = "cohorts"

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        # Of the last such Ask or list: its round, its clients as bits, and whether none is away.
        self._round, self._cohort, self._exact = -1, 0, False

    def asked_back(self, exchange: Exchange, where: Where) -> None:
        """Refuse an Ask that is for another cohort than its round's, before anything is computed.

        Raises:
            BadEnvelope: the cohorts differ.
        """
        chain = self._context.policy.chain
        kinds = fixing(self._context, exchange)
        if all(find(chain(kind), "unsafe_clear") for kind in kinds):
            return
        cohort = self._set(where.members)
        if where.round == self._round:
            more = cohort & ~self._cohort
            if more or (self._exact and cohort != self._cohort):
                raise BadEnvelope("Two different cohorts are asked in one round (O5).")
        else:
            self._round, self._exact = where.round, False
        self._cohort = cohort

    def hold(self, round: int, members: Sequence[str]) -> None:
        """Take the round's later Asks for these very clients: a sum's, or those of its list."""
        self._round, self._cohort, self._exact = round, self._set(members), True

    def _set(self, names: Sequence[str]) -> int:
        # n clients remember sets of n clients: as bits they are a hundredth of the size.
        return int.from_bytes(self._context.roster.mask(names), "little")
