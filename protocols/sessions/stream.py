"""What leaves a session in one exchange: deliveries, all at once or a batch at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Protocol

from protocols.sessions.part import Delivery

__all__ = ["Outgoing", "Stream"]


class Stream:
    """Deliveries that are made while they are carried, a batch at a time, and not held all at once.

    Each batch is recorded, and its record durable, before it is handed out.

    Args:
        session: makes them.
        deliveries: makes the next one when it is asked for.
        size: of a batch.
    """

    def __init__(self, session: Committing, deliveries: Iterable[Delivery], size: int) -> None:
        self._session, self._deliveries, self._size = session, iter(deliveries), size

    def batches(self) -> Iterator[list[Delivery]]:
        """Yield all deliveries, once; whatever fails ends the session."""
        try:
            while batch := list(islice(self._deliveries, self._size)):
                self._session.commit()
                yield batch
        except Exception as error:
            self._session.die(error)
            raise


Outgoing = Sequence[Delivery] | Stream
"""What leaves in one exchange."""


class Committing(Protocol):
    """What a stream needs of a session."""

    def commit(self) -> None:
        """Make state and ledger durable."""

    def die(self, error: BaseException) -> None:
        """End the session for good."""
