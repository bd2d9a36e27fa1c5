"""What the aggregator holds of answers whose senders a relay takes off (O23)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from protocols.disclosures._base.view import Answers
from protocols.disclosures.names import Disclosure
from protocols.forms import Exchange
from protocols.plan.steps import Part, Step
from protocols.wire.inbox import Incoming
from protocols.wire.run_context import RunContext
from protocols.wire.where import Where


class Relayed(Answers):
    """Answers that pass through a relay where the policy asks for one.

    Attributes:
        disclosure: that they are of.
        pool: bodies made of what was in all survivors' boxes, once the relay returned them.
    """

    disclosure: ClassVar[Disclosure]

    def __init__(self, context: RunContext, exchange: Exchange, where: Where, part: Part) -> None:
        super().__init__(context, exchange, where, part)
        self.pool: tuple[bytes, ...] | None = None

    @property
    def relayed(self) -> bool:
        """Whether they go to a relay first."""
        return self._context.relays(self.item)

    @classmethod
    def fixing(cls, context: RunContext, name: str) -> bool:
        """Tell whether a relay takes the senders off: who counts is fixed with that."""
        return context.relays(context.find(name, cls.disclosure, Step.UP))

    def take(self, incoming: Incoming) -> None:
        """Keep one client's answer; raises BadEnvelope if the relay would refuse it."""
        if self.relayed:
            self._check_key(incoming)
        super().take(incoming)

    def pooled(self, contents: Sequence[bytes]) -> None:
        """Keep what was in the boxes of all survivors, in the relay's order.

        Raises:
            BadEnvelope: a content that cannot be read.
        """
        self.pool = tuple(contents)
