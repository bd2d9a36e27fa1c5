"""The gateway: the one door out of a party, and the only maker of envelopes.

``release`` checks a message against the plan, applies the policy's guards, records the envelope in
the ledger and returns its bytes. The session sends them only after the ledger is durable.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

from crypto.samplers import derive, entropy
from protocols.disclosures._base.protect import Release, protection_of, sealed
from protocols.disclosures.mixed.layout import Numbers
from protocols.disclosures.names import Disclosure
from protocols.disclosures.sum.layout import Words
from protocols.errors import LocalProtocolError, NotInPlan
from protocols.evidence.captures import masked_digest
from protocols.evidence.ledger import Ledger
from protocols.messages import Message
from protocols.plan.plan import Item, check_schema, times_in_round
from protocols.wire.control import CONTROL
from protocols.wire.envelope import NO_KEY, NONE, SIGNED, Envelope, Header, Where, commitment, route
from protocols.wire.roles import Role
from protocols.wire.roster import EVERYONE
from protocols.wire.run_context import RunContext


class Gateway:
    """The door of one party.

    Args:
        context: identity, plan and policy; the plan is the approved one.
        ledger: where every release is recorded.
        rounding: key (32 bytes) of the stochastic rounding stream. It may derive from the
            learning seed while no privacy claim rests on the rounding (O15).
    """

    def __init__(self, context: RunContext, ledger: Ledger, rounding: bytes) -> None:
        self._context, self._ledger, self._rounding = context, ledger, rounding
        self._sent: dict[tuple[str, str, int], int] = {}
        self._labels: set[tuple[str, str, int, int]] = set()
        owned = {str(found): protection_of(found).own() for found in Disclosure}
        self._own = {name: own for name, own in owned.items() if own is not None}
        self._inside: dict[str, Words] = {}

    def inside(self) -> dict[str, Words]:
        """Return, once, the masked vectors that went into seals or ciphertexts, by item."""
        given, self._inside = self._inside, {}
        return given

    @property
    def groups(self) -> Numbers | None:
        """Who is mixed with whom at this client; see `disclosures.mixed.mixing`."""
        found = (protection_of(Disclosure(name)).captured(own) for name, own in self._own.items())
        return next((captured for captured in found if captured is not None), None)

    def release(
        self,
        id: str,
        messages: Sequence[Message],
        recipient: str,
        where: Where,
        known: Mapping[Message, bytes] | None = None,
    ) -> Envelope:
        """Protect `messages` as the policy says and put them into a signed envelope.

        Args:
            id: the plan item.
            messages: the item's messages, any order.
            recipient: a party's name, or ``roster`` for public messages.
            where: round, exchange and cohort.
            known: messages that `encode` wrote for this item before, with their bytes.

        Raises:
            NotInPlan: the plan does not hold this message, route, size or number of times.
            UnfitMessage: wrong shape or type, NaN or Inf.
            LocalProtocolError: a second vector under one label (O6), a key that is missing, or
                masks that are none.
        """
        item = self._context.item(id)
        ordered = self._check(item, messages, recipient, where)
        try:
            release = self._release(item, ordered, where, known)
            # Before the header, which holds the ledger's head.
            prepared = protection_of(item.disclosure).prepare(release)
            header = self._header(item, recipient, where)
            body, clipped = self._body(release, header, prepared)
        except KeyError as error:
            raise NotInPlan("A message uses a dimension that the plan does not name.") from error
        header = header.of_body(hashlib.sha256(body).digest())
        signature = self._context.me.signing.sign(SIGNED, header.encode())
        envelope = Envelope(header, signature, body)
        if envelope.size > item.bytes:
            raise NotInPlan(f"{id} is larger than planned; nothing was sent.")
        self._record(item, envelope, clipped)
        return envelope

    def _release(
        self,
        item: Item,
        messages: Sequence[Message],
        where: Where,
        known: Mapping[Message, bytes] | None,
    ) -> Release:
        return Release(
            context=self._context,
            item=item,
            messages=messages,
            where=where,
            own=self._own.get(str(item.disclosure)),
            seeded=lambda purpose: self._seeded(purpose, item, where),
            record=self._ledger.record,
            inside=self._inside,
            known=known,
        )

    def _check(
        self, item: Item, messages: Sequence[Message], recipient: str, where: Where
    ) -> list[Message]:
        context = self._context
        if item.sender != str(context.me.party.role):
            raise NotInPlan(f"The plan does not let a {context.me.party.role} send {item.id}.")
        role = EVERYONE if recipient == EVERYONE else str(context.roster.party(recipient).role)
        if role != item.recipient:
            raise NotInPlan(f"The plan does not let {item.id} go to a {role}.")
        by_name = {type(message).__name__: message for message in messages}
        planned = [message.name for message in item.messages]
        if len(by_name) != len(messages) or set(by_name) != set(planned):
            raise NotInPlan(
                f"{item.id} is planned as {'+'.join(planned)}, not {'+'.join(sorted(by_name))}."
            )
        self._check_schemas(item, [type(by_name[name]) for name in planned])
        for message in messages:
            allowed = context.policy.messages
            name = type(message).__name__
            if allowed is not None and type(message) not in CONTROL and name not in allowed:
                raise NotInPlan(f"{name} is not an allowed message of this policy.")
        self._check_times(item, recipient, where)
        place = (recipient, where.exchange, where.attempt)
        if (item.id, *place) in self._labels:
            raise LocalProtocolError(f"{item.id} was already released in this exchange.")
        if any((i.id, *place) in self._labels for i in context.plan.instead_of(item)):
            raise LocalProtocolError(f"{item.id} has a way that was not taken in this exchange.")
        return [by_name[name] for name in planned]

    def _check_schemas(self, item: Item, kinds: list[type[Message]]) -> None:
        """Compare the classes with the plan's fields, not only their names; once per item."""
        known, place = self._context.compared, (item.id, tuple(kinds))
        if place in known:
            return
        dims, protection = self._context.dims(item), protection_of(item.disclosure)
        layout = protection.layout(self._context, item, tuple(kinds))
        for kind, planned in zip(kinds, item.messages, strict=True):
            check_schema(kind, planned, dims, layout)
        known.add(place)

    def _check_times(self, item: Item, recipient: str, where: Where) -> None:
        """Hold the plan's counts, per run and per round: a round is answered once (O5)."""
        if self._used(item, recipient, -1) >= item.times:
            raise NotInPlan(f"{item.id} was already sent as often as planned ({item.times}).")
        allowed = times_in_round(item, where.round, self._context.plan.rounds)
        if self._used(item, recipient, where.round) >= allowed:
            raise NotInPlan(f"{item.id} was already sent in this round as often as planned.")

    def _used(self, item: Item, recipient: str, span: int) -> int:
        """Return how often an item was sent, or what leaves in its place."""
        beside = self._context.plan.instead_of(item)
        others = (self._sent.get((i.id, recipient, span), 0) for i in beside)
        return self._sent.get((item.id, recipient, span), 0) + max(others, default=0)

    def _header(self, item: Item, recipient: str, where: Where) -> Header:
        context, key = self._context, NO_KEY
        if recipient != EVERYONE:
            key = context.body_key(item, recipient)
        return Header(
            run=context.run,
            plan=context.plan_digest,
            policy=context.policy_digest,
            round=where.round,
            exchange=where.exchange,
            attempt=where.attempt,
            cohort=context.cohort(where),
            item=item.id,
            schema=context.schemas[item.id],
            sender=context.me.party.name,
            recipient=recipient,
            key=key,
            given=where.given,
            body=NONE,
            head=self._ledger.head,
            nonce=entropy(16).hex(),
            pairs=protection_of(item.disclosure).agreed(context, item, where),
        )

    def _seeded(self, purpose: str, item: Item, where: Where) -> bytes:
        """Return the key of a stream, a new one for each release: by label, round and ordinal."""
        me, to = self._context.me.party.name, self._context.roster.one(Role.AGGREGATOR).name
        ordinal = self._sent.get((item.id, to, where.round), 0)
        return derive(self._rounding, purpose, me, item.label, f"{where.round}", f"{ordinal}")

    def _body(self, release: Release, header: Header, prepared: object) -> tuple[bytes, bool]:
        """Apply the guards in the policy's order; returns the body and whether clip changed it."""
        item, context = release.item, self._context
        body, clipped = protection_of(item.disclosure).body(release, header, prepared)
        if len(body) != item.body:
            raise NotInPlan(f"{item.id} does not have the planned size; nothing was sent.")
        if sealed(item, release.chain):
            key = context.opener(item, header.recipient).seal
            body = key.seal(header.encode(without_body=True), body)
        return body, clipped

    def _record(self, item: Item, envelope: Envelope, clipped: bool) -> None:
        header = envelope.header
        self._labels.add((item.id, header.recipient, header.exchange, header.attempt))
        for span in (-1, header.round):  # -1: the whole run
            sent = (item.id, header.recipient, span)
            self._sent[sent] = self._sent.get(sent, 0) + 1
        facts: dict[str, object] = {
            **route(header),
            "bytes": envelope.size,
            "clipped": clipped,
            "commitment": commitment(envelope),
            "disclosure": str(item.disclosure),
            "messages": "+".join(message.name for message in item.messages),
            "protection": list(item.guards),
            "unsafe": item.unsafe,
        }
        if (hidden := self._inside.get(item.id)) is not None:
            facts["masked"] = masked_digest(header.nonce, hidden)
        self._ledger.record("release", facts)
