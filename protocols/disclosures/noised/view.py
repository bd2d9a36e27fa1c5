"""What the aggregator holds of noised messages: each of them, and not whose it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from protocols.disclosures._base.view import ClearView, by_content
from protocols.disclosures._relayed.view import Relayed
from protocols.disclosures.names import Disclosure
from protocols.disclosures.noised.randomised import messages_of
from protocols.disclosures.noised.telling import parts_of, randomiser_of
from protocols.messages import Message
from protocols.policy.guard import guard_of
from protocols.policy.guards import Clip
from protocols.rounds import View
from protocols.wire.inbox import Incoming


class Noised(Relayed):
    """The messages of one Ask, noised where the chain asks for it."""

    verb: ClassVar[str] = "each"
    disclosure: ClassVar[Disclosure] = Disclosure.NOISED

    @classmethod
    def clear(
        cls, kind: type[Message], sent: Mapping[str, Message], dims: Mapping[str, int], **more: Any
    ) -> tuple[Message, ...]:
        """Return each client's message."""
        return by_content(sent, dims)

    def take(self, incoming: Incoming) -> None:
        """Keep one message; raises BadEnvelope if it is none of its randomiser's."""
        if self._own and not self.relayed:
            self._read(incoming.body)
        super().take(incoming)

    def pooled(self, contents: Sequence[bytes]) -> None:
        """Keep all messages; raises BadEnvelope if one is none of its randomiser's."""
        for body in contents:
            self._read(body)
        super().pooled(contents)

    @property
    def _own(self) -> bool:
        return bool(self.kinds) and self.item.noise is not None

    def _read(self, body: bytes) -> tuple[Message, ...]:
        """Return what one randomised body estimates."""
        item, dims = self.item, self.dims
        clip = guard_of(self._context.policy.chain(item.disclosure), Clip)
        if clip is None or item.noise is None:
            raise TypeError("a randomised message has a clip and a noise plan")
        parts = parts_of(self.kinds, dims)
        randomiser = randomiser_of(item.noise, parts, clip.bound, item.label)
        return messages_of(self.kinds, body, dims, randomiser)

    def views(self) -> dict[type[Message], View]:
        """Return one view per message type."""
        if not self._own:
            return super().views()
        pool = self.pool
        bodies = self.bodies() if pool is None else {str(n): body for n, body in enumerate(pool)}
        read = {name: self._read(body) for name, body in bodies.items()}
        found = {k: {name: one[n] for name, one in read.items()} for n, k in enumerate(self.kinds)}
        return {kind: ClearView(kind, messages, self.dims) for kind, messages in found.items()}


VIEW = Noised
