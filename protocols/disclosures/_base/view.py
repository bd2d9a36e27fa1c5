"""What the aggregator holds of an Ask's answers of one disclosure, and what a Reply gives of it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, cast

from protocols.disclosures.names import Disclosure
from protocols.disclosures.registry import facet
from protocols.errors import BadEnvelope
from protocols.forms import Exchange
from protocols.messages import Message
from protocols.plan.plan import Item
from protocols.plan.steps import Part, Step
from protocols.rounds import View
from protocols.wire.codec import decode, encode
from protocols.wire.envelope import Where, signed_header
from protocols.wire.inbox import Incoming
from protocols.wire.run_context import RunContext


class OneVerb:
    """A view answers exactly one verb of Reply."""

    verb = ""

    def read(self, verb: str, **options: Any) -> Any:
        """Answer the verb; raises TypeError for any other."""
        if verb != self.verb:
            raise TypeError(f"this message discloses itself through {self.verb!r}, not {verb!r}")
        return self._answer(**options)

    def _answer(self, **options: Any) -> Any:
        raise TypeError("a view must answer its verb")


@dataclass(frozen=True)
class Kept:
    """What is kept of an envelope: its signed header, and the body until it was used (O9)."""

    header: bytes = field(repr=False)
    body: bytes = field(repr=False)


class Answers:
    """One Ask's answers of one disclosure; by default messages in clear.

    Args:
        context: of the aggregator.
        exchange: what was asked.
        where: round, exchange number, cohort, slot and digest of what was given.
        part: the disclosure; of an Ask that brings nothing back, the service that asks.

    Attributes:
        verb: with which a Reply is asked for them; see `OneVerb`.
        fixes: whether an opening of them fixes who counts in their round (O5).
        adds: whether results over two sets of clients can be subtracted from one another.
        totalled: whether they become one total, so that the policy says how its clients may change.
        survivors: whose answers count, once that is settled.
    """

    verb: ClassVar[str] = ""
    fixes: ClassVar[bool] = False
    adds: ClassVar[bool] = True
    totalled: ClassVar[bool] = False

    def __init__(self, context: RunContext, exchange: Exchange, where: Where, part: Part) -> None:
        self._context, self.exchange, self.where, self.part = context, exchange, where, part
        self.survivors: tuple[str, ...] = ()
        self._received: dict[str, Kept] = {}

    @property
    def item(self) -> Item:
        """The plan's item under which they come."""
        return self._context.find(self.exchange.name, self.part, Step.UP)

    @property
    def dims(self) -> Mapping[str, int]:
        """All named sizes that apply to them."""
        return self._context.dims(self.item)

    @property
    def kinds(self) -> tuple[type[Message], ...]:
        """The message types, in the form's order."""
        return tuple(kind for kind in self.exchange.back if kind.disclosure is self.part)

    @classmethod
    def fixing(cls, context: RunContext, name: str) -> bool:
        """Tell whether such answers to an Ask of this name fix who counts in their round."""
        return cls.fixes

    @property
    def fixed(self) -> bool:
        """Whether these answers fix who counts in their round."""
        return self.fixing(self._context, self.exchange.name)

    def take(self, incoming: Incoming) -> None:
        """Keep one answer; raises BadEnvelope if it cannot be used."""
        self._keep(incoming, incoming.body)

    def _keep(self, incoming: Incoming, body: bytes) -> None:
        self._received[incoming.header.sender] = Kept(signed_header(incoming.envelope), body)

    def _check_key(self, incoming: Incoming) -> None:
        """Refuse another key: shown to a witness, or to a relay, it would make it refuse."""
        context = self._context
        if incoming.header.key != context.body_key(incoming.item, context.me.party.name):
            raise BadEnvelope("An upload was made under another key.")

    def here(self, member: str) -> bool:
        """Tell whether a member answered."""
        return member in self._received

    def settle(self, survivors: Sequence[str]) -> None:
        """Settle whose answers count, and forget the others'."""
        self.survivors = tuple(survivors)
        self._received = {name: self._received[name] for name in survivors}

    def handed_over(self) -> dict[str, Kept]:
        """Return the survivors' answers, sorted by client, and forget them (O9)."""
        return {member: self._received.pop(member) for member in self.survivors}

    def bodies(self) -> dict[str, bytes]:
        """Return what the survivors sent, sorted by client."""
        return {member: self._received[member].body for member in self.survivors}

    def forget(self) -> None:
        """Forget what came, once the reply was made."""
        self._received.clear()

    def views(self) -> dict[type[Message], View]:
        """Return one view per message type; raises LocalProtocolError if it is too early."""
        kinds, dims = self.kinds, self.dims if self.kinds else {}
        sent = {member: decode(kinds, body, dims) for member, body in self.bodies().items()}
        found = {k: {m: said[place] for m, said in sent.items()} for place, k in enumerate(kinds)}
        return {kind: ClearView(kind, messages, dims) for kind, messages in found.items()}

    @classmethod
    def clear(
        cls, kind: type[Message], sent: Mapping[str, Message], dims: Mapping[str, int], **more: Any
    ) -> Any:
        """Answer the verb from messages that came in clear, by client, sorted."""
        raise TypeError(f"{kind.disclosure} messages are not read in clear")


class ClearView(OneVerb):
    """What an Unsafe chain brought in clear: the baseline and control of a protected view."""

    def __init__(self, kind: type[Message], sent: Mapping[str, Message], dims: Mapping[str, int]):
        self._kind, self._dims = kind, dims
        self._sent = {name: sent[name] for name in sorted(sent)}
        self.verb = answers_of(kind.disclosure).verb

    def _answer(self, **options: Any) -> Any:
        how = answers_of(self._kind.disclosure)
        return how.clear(self._kind, self._sent, self._dims, **options)


def answers_of(part: Part) -> type[Answers]:
    """Return how answers of a disclosure are held."""
    found = facet(part, "view") if isinstance(part, Disclosure) else None
    return cast(type[Answers], found or Answers)


def fixing(context: RunContext, exchange: Exchange) -> tuple[Disclosure, ...]:
    """Return the disclosures of an Ask whose opening fixes who counts in its round (O5)."""
    found = dict.fromkeys(kind.disclosure for kind in exchange.back)
    return tuple(one for one in found if answers_of(one).fixing(context, exchange.name))


def by_content(sent: Mapping[str, Message], dims: Mapping[str, int]) -> tuple[Message, ...]:
    """Return messages ordered by content, so that the order does not tell who sent which."""

    def content(message: Message) -> bytes:
        return hashlib.sha256(encode([message], dims)).digest()

    return tuple(sorted(sent.values(), key=content))
