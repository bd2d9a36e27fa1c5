"""The gateway: the one door out of a party, and the only maker of envelopes.

``release`` checks a message against the plan, applies the policy's guards, records the envelope in
the ledger and returns its bytes. The session sends them only after the ledger is durable.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import cast

from crypto.errors import OutOfRange
from crypto.masks import masked
from crypto.noise import sampler
from crypto.samplers import Stream, derive, entropy
from protocols.disclosures._evaluated.ciphers import shape_of
from protocols.disclosures._evaluated.uploads import enciphered, signed_upload
from protocols.disclosures.match.layout import MatchLayout
from protocols.disclosures.mixed.boxes import into_boxes, mixture_info
from protocols.disclosures.mixed.groups import Numbers
from protocols.disclosures.mixed.layout import MixLayout
from protocols.disclosures.mixed.mixing import Mixer
from protocols.disclosures.names import Disclosure
from protocols.disclosures.noised.decoys import Decoyer
from protocols.disclosures.sum.guards import encryption
from protocols.disclosures.sum.ring import Ring, Words
from protocols.disclosures.sum.uniform import check_mask
from protocols.errors import LocalProtocolError, NotInPlan, UnfitMessage
from protocols.evidence.capture import masked_digest
from protocols.evidence.ledger import Ledger
from protocols.keys.boxes import close_boxes
from protocols.keys.groups import slot_of
from protocols.messages import Message
from protocols.plan.plan import Item, times_in_round
from protocols.plan.schema import Layout, check_schema
from protocols.plan.steps import Step
from protocols.policy.guard import find
from protocols.privacy.noising import SAMPLERS, check_noise
from protocols.wire.codec import encode
from protocols.wire.control import CONTROL
from protocols.wire.envelope import NONE, Envelope, Header, commitment, route
from protocols.wire.roster import EVERYONE, Role
from protocols.wire.run_context import Papers, Where


class Gateway:
    """The door of one party.

    Args:
        papers: identity, plan and policy; the plan is the approved one.
        ledger: where every release is recorded.
        rounding: key (32 bytes) of the stochastic rounding stream. It may derive from the
            learning seed while no privacy claim rests on the rounding (O15).
    """

    def __init__(self, papers: Papers, ledger: Ledger, rounding: bytes) -> None:
        self._papers, self._ledger, self._rounding = papers, ledger, rounding
        self._sent: dict[tuple[str, str, int], int] = {}
        self._labels: set[tuple[str, str, int, int]] = set()
        self._mixer, self._decoyer = Mixer(), Decoyer()
        self._inside: dict[str, Words] = {}

    def inside(self) -> dict[str, Words]:
        """Return, once, the masked vectors that went into seals or ciphertexts, by item."""
        given, self._inside = self._inside, {}
        return given

    @property
    def groups(self) -> Numbers | None:
        """Who is mixed with whom at this client; see `disclosures.mixed.mixing`."""
        return self._mixer.groups

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
        item = self._papers.item(id)
        ordered = self._check(item, messages, recipient, where)
        try:
            mixed = self._mixed(item, ordered, where)  # before the header, which holds our head
            header = self._header(item, recipient, where)
            body, clipped = self._body(item, ordered, where, header, mixed, known)
        except KeyError as error:
            raise NotInPlan("A message uses a dimension that the plan does not name.") from error
        header = header.of_body(hashlib.sha256(body).hexdigest())
        signature = self._papers.me.signing.sign("envelope", header.encode())
        envelope = Envelope(header, signature, body)
        if envelope.size > item.bytes:
            raise NotInPlan(f"{id} is larger than planned; nothing was sent.")
        self._record(item, envelope, clipped)
        return envelope

    def _check(
        self, item: Item, messages: Sequence[Message], recipient: str, where: Where
    ) -> list[Message]:
        papers = self._papers
        if item.sender != str(papers.me.party.role):
            raise NotInPlan(f"The plan does not let a {papers.me.party.role} send {item.id}.")
        role = EVERYONE if recipient == EVERYONE else str(papers.roster.party(recipient).role)
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
            allowed = papers.policy.messages
            name = type(message).__name__
            if allowed is not None and type(message) not in CONTROL and name not in allowed:
                raise NotInPlan(f"{name} is not an allowed message of this policy.")
        self._check_times(item, recipient, where)
        label = (item.id, recipient, where.exchange, where.attempt)
        if label in self._labels:
            raise LocalProtocolError(f"{item.id} was already released in this exchange.")
        return [by_name[name] for name in planned]

    def _check_schemas(self, item: Item, kinds: list[type[Message]]) -> None:
        """Compare the classes with the plan's fields, not only their names; once per item."""
        known, place = self._papers.compared, (item.id, tuple(kinds))
        if place in known:
            return
        dims, layout = self._papers.dims(item), cast(Layout | None, None)
        if item.disclosure is Disclosure.SUM:
            layout = summed = self._papers.summed(item, tuple(kinds))[0]
            check_noise(item, summed, self._papers.plan, self._papers.policy)
        elif self._papers.enciphers(item):
            layout = shape_of(kinds, self._papers.policy, dims).layout
        elif item.disclosure is Disclosure.MATCH:
            chain = self._papers.policy.chain(item.disclosure)
            layout = MatchLayout(kinds[0], chain, dims) if find(chain, "match") else None
        elif item.disclosure is Disclosure.MIXED:
            layout = MixLayout(kinds[0], self._papers.policy.chain(item.disclosure), dims)
        for kind, planned in zip(kinds, item.messages, strict=True):
            check_schema(kind, planned, dims, layout)
        known.add(place)

    def _check_times(self, item: Item, recipient: str, where: Where) -> None:
        """Hold the plan's counts, per run and per round: a round is answered once (O5)."""
        if self._sent.get((item.id, recipient, -1), 0) >= item.times:
            raise NotInPlan(f"{item.id} was already sent as often as planned ({item.times}).")
        allowed = times_in_round(item, where.round, self._papers.plan.rounds)
        if self._sent.get((item.id, recipient, where.round), 0) >= allowed:
            raise NotInPlan(f"{item.id} was already sent in this round as often as planned.")

    def _header(self, item: Item, recipient: str, where: Where) -> Header:
        papers, key = self._papers, "0" * 16
        if recipient != EVERYONE:
            key = papers.body_key(item, recipient)
        return Header(
            run=papers.run,
            plan=papers.plan_digest,
            policy=papers.policy_digest,
            round=where.round,
            exchange=where.exchange,
            attempt=where.attempt,
            cohort=papers.cohort(where),
            item=item.id,
            schema=papers.schemas[item.id],
            sender=papers.me.party.name,
            recipient=recipient,
            key=key,
            given=where.given,
            body=NONE,
            head=self._ledger.head,
            nonce=entropy(16).hex(),
            pairs=self._agreed(item, where),
        )

    def _agreed(self, item: Item, where: Where) -> str:
        """Return what the masks of a sum rest on; NONE without masks."""
        pairs = self._papers.pairs
        if item.disclosure is not Disclosure.SUM or pairs is None:
            return NONE
        return pairs.agreement(slot_of(item, where.round, where.slot))

    def _body(
        self,
        item: Item,
        messages: list[Message],
        where: Where,
        header: Header,
        mixed: tuple[bytes, bool] | None,
        known: Mapping[Message, bytes] | None,
    ) -> tuple[bytes, bool]:
        """Apply the guards in the policy's order; returns the body and whether clip changed it."""
        chain = self._papers.policy.chain(item.disclosure)
        clipped = False
        if mixed is not None:
            body, clipped = mixed
        elif item.disclosure is Disclosure.SUM:
            body, clipped = self._sum(item, messages, where, header)
        elif item.disclosure is Disclosure.MATCH and find(chain, "match"):
            body, clipped = self._matched(item, messages, where)
        elif self._papers.enciphers(item):
            body, clipped = self._enciphered(item, messages, where, header)
        elif (item.part, item.step) == (Disclosure.SEALED, Step.UP):
            return self._boxes(item, messages, header), False
        else:
            dims = self._papers.dims(item)
            if item.disclosure is Disclosure.NOISED:
                ready = [self._decoyer.ready(m, chain, dims) for m in messages]
                messages, clipped = [m for m, _ in ready], any(cut for _, cut in ready)
            body = encode(messages, dims, known)
        if len(body) != item.body:
            raise NotInPlan(f"{item.id} does not have the planned size; nothing was sent.")
        if find(chain, "seal"):
            key = self._papers.opener(item, header.recipient).seal
            body = key.seal(header.encode(without_body=True), body)
        return body, clipped

    def _sum(
        self, item: Item, messages: list[Message], where: Where, header: Header
    ) -> tuple[bytes, bool]:
        papers, chain = self._papers, self._papers.policy.chain(item.disclosure)
        layout, ring = papers.summed(item, tuple(type(message) for message in messages))
        noise = item.noise
        # Under noise a privacy claim rests on every draw, so none is seeded (O15).
        key = entropy(32) if noise else self._seeded("rounding", item, where)
        limit = float(noise.l2) if noise else None
        integers, clipped = layout.encode(messages, Stream(key), limit=limit)
        if noise:
            law = sampler(SAMPLERS[noise.mechanism], float(noise.sigma))
            integers += law.sample(Stream(entropy(32)), integers.size)
        try:
            residues = ring.residues(integers)
        except OutOfRange as error:  # noise beyond its head-room: at most once in 2^40 runs
            raise UnfitMessage("A noised vector does not fit; nothing was sent.") from error
        if find(chain, "mask"):
            residues = self._masked(residues, ring, item, where, header)
        if not encryption(chain):
            return residues.tobytes(), clipped
        if papers.scheme is None or papers.he_key is None:
            raise LocalProtocolError("The key authority's public key is not here yet.")
        zeros, count = None, ring.size // papers.scheme.degree
        if papers.zeros is not None and papers.scheme.offline:
            zeros = papers.zeros.take(papers.he_key, count)
        return papers.scheme.encrypt(papers.he_key, residues.astype("u8"), zeros), clipped

    def _seeded(self, purpose: str, item: Item, where: Where) -> bytes:
        """Return the key of a stream, a new one for each release: by label, round and ordinal."""
        me, to = self._papers.me.party.name, self._papers.roster.one(Role.AGGREGATOR).name
        ordinal = self._sent.get((item.id, to, where.round), 0)
        return derive(self._rounding, purpose, me, item.label, f"{where.round}", f"{ordinal}")

    def _enciphered(
        self, item: Item, messages: list[Message], where: Where, header: Header
    ) -> tuple[bytes, bool]:
        """Encrypt what is computed on while encrypted, and sign it for the witnesses (O4)."""
        papers, dims = self._papers, self._papers.dims(item)
        shape = shape_of([type(message) for message in messages], papers.policy, dims)
        stream = Stream(self._seeded("rounding", item, where))
        key = papers.key_of(item.disclosure)
        body, clipped = enciphered(messages[0], shape, key, papers.run, dims, stream)
        return signed_upload(body, header, papers.me.signing.sign), clipped

    def _matched(self, item: Item, messages: list[Message], where: Where) -> tuple[bytes, bool]:
        """Return what a client asks to be matched: boxes for tag servers or matcher (O24)."""
        papers, (message,) = self._papers, messages
        if papers.matching is None:
            raise LocalProtocolError("This client takes no part in matching.")
        chain = papers.policy.chain(item.disclosure)
        layout = MatchLayout(type(message), chain, papers.dims(item))
        stream = Stream(self._seeded("rounding", item, where))
        return papers.matching.begin(message, layout, where, stream)

    def _mixed(
        self, item: Item, messages: list[Message], where: Where
    ) -> tuple[bytes, bool] | None:
        """Return a client's mixtures (O22) and whether a record was clipped; None: none are said.

        The ledger says that groups were drawn or mixtures withheld, and not which.
        """
        if item.disclosure is not Disclosure.MIXED:
            return None
        papers, (message,) = self._papers, messages
        layout = MixLayout(type(message), papers.policy.chain(item.disclosure), papers.dims(item))
        seed = self._seeded("mixing", item, where)
        body, clipped, told = self._mixer.mixed(message, layout, seed)
        for kind, facts in told.items():
            place = {"exchange": where.exchange, "item": item.id, "round": where.round}
            self._ledger.record(kind, {**place, **facts})
        if papers.relays(item):
            reader, info = papers.roster.one(Role.AGGREGATOR), mixture_info(papers, item.id, where)
            body = into_boxes(body, layout, reader.seal, info)
        return body, clipped

    def _masked(
        self, residues: Words, ring: Ring, item: Item, where: Where, header: Header
    ) -> Words:
        """Add this client's masks for the exact cohort to every residue (O4)."""
        pairs = self._papers.pairs
        if pairs is None:
            raise LocalProtocolError("The pair secrets of this epoch are not here.")
        slot = slot_of(item, where.round, where.slot)
        label = self._papers.mask_label(item, where, header.key, header.pairs)
        plus, minus = pairs.keys(slot, where.members, label)
        self._inside[item.id] = hidden = masked(residues, ring.modulus, plus, minus)
        check_mask(residues, hidden, ring.modulus)
        return hidden

    def _boxes(self, item: Item, messages: list[Message], header: Header) -> bytes:
        papers, where = self._papers, (header.run, header.exchange, item.id)
        dims = papers.dims(item)
        body = b"".join(close_boxes(m, papers.me, papers.roster, dims, where) for m in messages)
        if len(body) != item.body:
            raise NotInPlan(f"{item.id} does not have the planned size; nothing was sent.")
        return body

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
