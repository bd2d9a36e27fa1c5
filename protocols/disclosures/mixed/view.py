"""What the aggregator holds of mixtures, before a relay took the senders off and afterwards."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

from protocols.disclosures._base.view import OneVerb, by_content
from protocols.disclosures._relayed.view import Relayed
from protocols.disclosures.mixed.boxes import from_boxes
from protocols.disclosures.mixed.layout import MixLayout
from protocols.disclosures.names import Disclosure
from protocols.messages import Message
from protocols.rounds import View


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


class Mixtures(Relayed):
    """The mixtures of one Ask."""

    verb: ClassVar[str] = EachView.verb
    disclosure: ClassVar[Disclosure] = Disclosure.MIXED

    def pooled(self, contents: Sequence[bytes]) -> None:
        """Keep one body of all mixtures; raises BadEnvelope for one that holds none."""
        layout = self.pool_layout()
        body = from_boxes(contents, layout)
        layout.decode(body)  # refused here, while it is known who sent it
        super().pooled((body,))

    def pool_layout(self) -> MixLayout:
        """Return how the mixtures of all survivors stand in one body."""
        (kind,) = self.kinds
        places = {"mixtures": self.dims["mixtures"] * len(self.survivors)}
        chain = self._context.policy.chain(kind.disclosure)
        return MixLayout(kind, chain, {**self.dims, **places})

    def views(self) -> dict[type[Message], View]:
        """Return the mixtures; after a relay in one message, of all clients."""
        if self.pool is not None:
            return dict.fromkeys(self.kinds, EachView(self.pool, self.pool_layout().decode))
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
