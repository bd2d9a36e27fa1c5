"""How far a party that is asked has come: exchanges and rounds only go forward."""

from __future__ import annotations

from protocols.errors import BadEnvelope, Replay
from protocols.keys.slots import epoch_of
from protocols.sessions.part import Engine, SessionPart
from protocols.wire.inbox import Incoming


class Progress(SessionPart):
    """Remembers the latest exchange and round, so that nothing older is taken."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self.exchange = self.round = 0  # of the last Ask accepted

    def reached(self, exchange: int, round: int) -> None:
        """Note an exchange, and its round, as accepted; raises Replay if one of them goes back."""
        if exchange < self.exchange or round < self.round:
            raise Replay("An envelope is of an exchange or a round that is over.")
        self.exchange, self.round = exchange, round

    def new_epoch(self, incoming: Incoming, before: int) -> int:
        """Return the epoch that keys are for; they only ever come for a later one.

        Raises:
            BadEnvelope: for this epoch, or an earlier one, or a round that is over.
        """
        epoch = epoch_of(incoming.header.round, self._context.policy)
        if epoch <= before or incoming.header.round < self.round:
            raise BadEnvelope("Keys arrived for an epoch that has its keys already (O9).")
        return epoch
