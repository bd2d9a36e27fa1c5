"""What the gateway does to a disclosure's messages: from values to the bytes of a body."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from protocols.disclosures._base.rules import Chain
from protocols.disclosures.names import Disclosure
from protocols.disclosures.registry import facet
from protocols.disclosures.sum.layout import Words
from protocols.messages import Message
from protocols.plan.plan import Item, Layout
from protocols.policy.guard import Guard, find
from protocols.wire.codec import encode
from protocols.wire.envelope import NONE, Header, Where
from protocols.wire.run_context import RunContext


@dataclass(frozen=True)
class Release:
    """One envelope that is being made.

    Attributes:
        context: of the party.
        item: the plan item.
        messages: in the plan's order, their classes and times checked.
        where: round, exchange and cohort.
        own: what the disclosure keeps at this party for the run, see `Protection.own`.
        seeded: returns the key of a stream for a purpose, a new one for each release.
        record: writes an entry into the ledger.
        inside: takes the masked vector that goes into a seal or ciphertext, by item.
        known: messages that `encode` wrote for this item before, with their bytes.
    """

    context: RunContext
    item: Item
    messages: Sequence[Message]
    where: Where
    own: Any
    seeded: Callable[[str], bytes]
    record: Callable[[str, dict[str, object]], object]
    inside: dict[str, Words]
    known: Mapping[Message, bytes] | None

    @property
    def chain(self) -> tuple[Guard, ...]:
        """The policy's guards."""
        return self.context.policy.chain(self.item.disclosure)

    @property
    def dims(self) -> Mapping[str, int]:
        """All named sizes that apply to the item."""
        return self.context.dims(self.item)

    @property
    def kinds(self) -> tuple[type[Message], ...]:
        """The messages' classes."""
        return tuple(type(message) for message in self.messages)


class Protection:
    """The gateway's steps for one disclosure; by default a message is encoded as it is."""

    def own(self) -> Any:
        """Return what is kept of the run at one party; None if nothing is."""
        return None

    def captured(self, own: Any) -> Any:
        """Return what is captured of it beside an answer; None if nothing is."""
        return None

    def boxed(self, item: Item) -> bool:
        """Tell whether a body is sealed inside, row by row, and not again as a whole."""
        return False

    def layout(
        self, context: RunContext, item: Item, kinds: tuple[type[Message], ...]
    ) -> Layout | None:
        """Return where fields stand on a grid, as the plan printed it; None without one.

        Raises:
            NotInPlan: the plan states another noise than the policy asks for.
        """
        return None

    def agreed(self, context: RunContext, item: Item, where: Where) -> str:
        """Return the digest of the keys that a body rests on, which its header states."""
        return NONE

    def prepare(self, release: Release) -> Any:
        """Do what must stand in the ledger before the header, which holds the ledger's head."""
        return None

    def body(self, release: Release, header: Header, prepared: Any) -> tuple[bytes, bool]:
        """Apply the guards but the seal; return the body and whether a value was clipped.

        Args:
            release: the envelope.
            header: all of it but the body's digest.
            prepared: what `prepare` returned.

        Raises:
            UnfitMessage: wrong shape or type, NaN or Inf.
            LocalProtocolError: a key is missing, or masks are none.
        """
        return encode(release.messages, release.dims, release.known), False


def protection_of(disclosure: Disclosure) -> Protection:
    """Return the gateway's steps for a disclosure."""
    return cast(Protection, facet(disclosure, "protect") or Protection())


def sealed(item: Item, chain: Chain) -> bool:
    """Tell whether a body is sealed as a whole to who opens it."""
    return find(chain, "seal") is not None and not protection_of(item.disclosure).boxed(item)
