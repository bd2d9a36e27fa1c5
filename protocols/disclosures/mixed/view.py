"""What the aggregator holds of mixtures, before a relay took the senders off and afterwards."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar

from protocols.disclosures._base.view import Answers, OneVerb, by_content
from protocols.disclosures.mixed.layout import MixLayout
from protocols.disclosures.names import Disclosure
from protocols.forms import Exchange
from protocols.messages import Message
from protocols.plan.steps import Part, Step
from protocols.rounds import View
from protocols.wire.inbox import Incoming
from protocols.wire.run_context import RunContext
from protocols.wire.where import Where


class EachView(OneVerb):
    """MIXED: each client's mixtures, ordered by content, so that the order tells no sender.

    After a relay it is one message, of all clients' mixtures.

    Args:
        bodies: what every client sent.
        read: returns the message of a body.
    """

    verb = "each"

    def __init__(self, bodies: Iterable[bytes], read: Callable[[bytes], Message]) -> None:
        ordered = sorted(bodies, key=lambda body: hashlib.sha256(body).digest())
        self._messages = tuple(read(body) for body in ordered)

    def _answer(self, **options: Any) -> tuple[Message, ...]:
        return self._messages


class Mixtures(Answers):
    """The mixtures of one Ask.

    Attributes:
        pool: all mixtures, once a relay took the senders off.
    """

    verb: ClassVar[str] = EachView.verb

    def __init__(self, context: RunContext, exchange: Exchange, where: Where, part: Part) -> None:
        super().__init__(context, exchange, where, part)
        self.pool: bytes | None = None

    @property
    def relayed(self) -> bool:
        """Whether they go to a relay first."""
        return self._context.relays(self.item)

    @classmethod
    def fixing(cls, context: RunContext, name: str) -> bool:
        """Tell whether a relay takes the senders off: who counts is fixed with that."""
        return context.relays(context.find(name, Disclosure.MIXED, Step.UP))

    def take(self, incoming: Incoming) -> None:
        """Keep one client's mixtures; raises BadEnvelope if the relay would refuse them."""
        if self.relayed:
            self._check_key(incoming)
        super().take(incoming)

    def pool_layout(self) -> MixLayout:
        """Return how the mixtures of all survivors stand in one body."""
        (kind,) = self.kinds
        places = {"mixtures": self.dims["mixtures"] * len(self.survivors)}
        chain = self._context.policy.chain(kind.disclosure)
        return MixLayout(kind, chain, {**self.dims, **places})

    def views(self) -> dict[type[Message], View]:
        """Return the mixtures; after a relay in one message, of all clients."""
        if self.pool is not None:
            return dict.fromkeys(self.kinds, EachView((self.pool,), self.pool_layout().decode))
        chain, bodies = self._context.policy.chain(self.item.disclosure), self.bodies().values()
        layouts = {kind: MixLayout(kind, chain, self.dims) for kind in self.kinds}
        return {kind: EachView(bodies, layout.decode) for kind, layout in layouts.items()}

    @classmethod
    def clear(
        cls, kind: type[Message], sent: Mapping[str, Message], dims: Mapping[str, int], **more: Any
    ) -> tuple[Message, ...]:
        """Return each client's message."""
        return by_content(sent, dims)


VIEW = Mixtures
