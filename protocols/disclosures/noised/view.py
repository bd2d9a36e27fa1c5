"""What the aggregator holds of noised messages: each of them, and not whose it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from protocols.disclosures._base.view import Answers, by_content
from protocols.messages import Message


class Noised(Answers):
    """The messages of one Ask, noised where the chain asks for it."""

    verb: ClassVar[str] = "each"

    @classmethod
    def clear(
        cls, kind: type[Message], sent: Mapping[str, Message], dims: Mapping[str, int], **more: Any
    ) -> tuple[Message, ...]:
        """Return each client's message."""
        return by_content(sent, dims)


VIEW = Noised
