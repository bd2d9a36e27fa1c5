"""A whole run over a wire made of lists, with a toy algorithm, and tools to play a dishonest party.

`World` holds every session of one run. `World.forge` and `World.twin` hold what an adversary in
that role holds: its keys, and gateways that remember nothing of what was said before.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from copy import copy
from typing import Any

import numpy as np

from crypto.homomorphic.he import scheme
from crypto.samplers import derive, entropy
from protocols.disclosures.names import Disclosure
from protocols.disclosures.sum.guards import SCHEMES, encryption
from protocols.disclosures.sum.messages import OpenRequest
from protocols.evidence.ledger import Ledger, MemoryStore, read_lines, tree
from protocols.forms import Form
from protocols.keys.groups import slot_of
from protocols.plan.plan import roles_of
from protocols.policy.guard import find
from protocols.policy.policy import PrivacyPolicy
from protocols.roles.aggregator import AggregatorSession
from protocols.roles.client import ClientSession
from protocols.roles.key_authority import KeyAuthoritySession
from protocols.roles.relay import RelaySession
from protocols.roles.witness import WitnessSession
from protocols.rounds import Ask, Cohort, Reply
from protocols.sessions.engine import Delivery
from protocols.wire.codec import encode
from protocols.wire.control import Call, Place
from protocols.wire.envelope import (
    NO_KEY,
    NONE,
    SIGNED,
    Envelope,
    Header,
    Where,
    commitment,
    signed_header,
)
from protocols.wire.gateway import Gateway
from protocols.wire.roles import Role, session_of
from protocols.wire.roster import (
    AGGREGATOR_NAME,
    EVERYONE,
    SHARED,
    Identity,
    Roster,
    cohort_digest,
    given_digest,
    run_id,
)
from protocols.wire.run_context import RunContext
from tests.protocols.toys import (
    TRAIN,
    D,
    Start,
    Toy,
    changed_policy,
    first,
    names_of,
    toy_plan,
)

ROUNDING = derive(bytes(32), "tests", "rounding")


class World:
    """All parties of one run."""

    def __init__(
        self,
        form: Form[Any] = TRAIN,
        policy: PrivacyPolicy | str = "pilot",
        *,
        clients: Sequence[str] | int = 5,
        rounds: int = 3,
        d: int = D,
        identities: dict[str, Identity] | None = None,
        stores: dict[str, MemoryStore] | None = None,
        reserve: Any = None,
        plan: Any = None,
        tag_key: bytes | None = None,
    ) -> None:
        self.tag_key = tag_key
        self.form, self.names = form, names_of(clients) if isinstance(clients, int) else clients
        # Keys for the whole run and no longer: slots that nobody uses only cost time here.
        whole = {"rekey_rounds": max(4, rounds)}
        self.policy = changed_policy(policy, **whole) if isinstance(policy, str) else policy
        wanted = encryption(self.policy.rules[Disclosure.SUM])
        self.scheme = scheme(SCHEMES[wanted]) if wanted else None
        self.plan = plan or toy_plan(
            form, self.policy, clients=self.names, rounds=rounds, d=d, bfv=self.scheme
        )
        self.reserve, self.d = reserve, d
        self._context: RunContext | None = None
        roles = roles_of(self.plan, self.policy)
        self.identities = identities or {n: Identity.generate(n, r) for n, r in roles.items()}
        self.roster = Roster(identity.party for identity in self.identities.values())
        self.run = run_id(entropy(16), self.roster, self.plan.digest, self.policy.digest)
        self.stores = {n: (stores or {}).get(n, MemoryStore()) for n in roles}
        self.sites = {
            n: Toy(i, np.linspace(-0.4, 0.4, d) * (i + 1) / 5, count=i + 2)
            for i, n in enumerate(self.names)
        }
        for site in self.sites.values():
            site.names = self.names  # type: ignore[attr-defined]
        self.clients = {
            n: ClientSession(*self._common(n), site=self.sites[n], form=form) for n in self.names
        }
        self.aggregator = AggregatorSession(*self._common(AGGREGATOR_NAME), form)
        self.witnesses = {
            n: WitnessSession(*self._common(n)) for n, r in roles.items() if r is Role.WITNESS
        }
        if "key-authority" in roles:
            self.authority = KeyAuthoritySession(*self._common("key-authority"))
        own = (Role.AGGREGATOR, Role.CLIENT, Role.KEY_AUTHORITY, Role.RELAY, Role.WITNESS)
        self.serving = {
            n: session_of(r)(*self._common(n)) for n, r in roles.items() if r not in own
        }
        if "relay" in roles:
            self.relay = RelaySession(*self._common("relay"))
        self.wire: list[bytes] = []  # every envelope that travelled, in order
        # What the wire loses: lost(item, sender, recipient) of each envelope.
        self.lost: Callable[[str, str, str], bool] = lambda *_: False

    def _common(self, name: str) -> tuple[RunContext, Ledger, bytes]:
        if self._context is None:
            me = self.identities[name]
            facts = (self.roster, self.plan, self.policy, self.run, self.scheme)
            self._context = RunContext(me, *facts, reserve=self.reserve)
        context = copy(self._context)  # every party's are the same but for who it is
        context.me, context.tag_key = self.identities[name], self.tag_key
        return context, Ledger(name, self.run, self.stores[name], lambda: "2026-01-01"), ROUNDING

    # --- the honest flow --------------------------------------------------------------------

    def session(self, name: str) -> Any:
        if name == AGGREGATOR_NAME:
            return self.aggregator
        if name in self.witnesses:
            return self.witnesses[name]
        if name == "relay":
            return self.relay
        if name in self.serving:
            return self.serving[name]
        return self.clients[name] if name != "key-authority" else self.authority

    def deliver(self, delivery: Delivery) -> list[Delivery]:
        answers = self.session(delivery.to).receive(delivery.data)
        self.wire += [delivery.data, *(a.data for a in answers)]
        return answers

    def pump(self, outgoing: Sequence[Delivery], until: str | None = None) -> list[Delivery]:
        """Deliver until nothing is left, as a transport and its driver do.

        With `until`, stop before envelopes of that item (its last part) leave, and return them.
        """
        while outgoing:
            if until and Envelope.decode(outgoing[-1].data).header.item.endswith(until):
                return list(outgoing)
            for delivery in outgoing:
                if self._gone(delivery):
                    continue
                for answer in self.deliver(delivery):
                    if not self._gone(answer):
                        self.aggregator.receive(answer.data)
            outgoing = self.aggregator.advance()
        return []

    def _gone(self, delivery: Delivery) -> bool:
        header = Envelope.decode(delivery.data).header
        return self.lost(header.item, header.sender, delivery.to)

    def start(self) -> World:
        self.pump(self.aggregator.start())
        return self

    def prepare(self, round: int) -> None:
        """Agree on the keys of a round's epoch, if it is a new one."""
        self.pump(self.aggregator.prepare(round))

    def ask(self, round: int = 1, given: Any = None, back: Any = None, members: Any = None) -> Any:
        """Return the deliveries of an honest Ask of the form's first exchange."""
        if given is None:
            exchange = self.form.exchanges[0]
            given, back = first(exchange.given[0], self.d), exchange.back
        cohort = Cohort(members or self.names)
        return self.aggregator.ask(Ask(cohort, given, back or ()), round)

    def round(self, number: int = 1, **facts: Any) -> Reply:
        self.prepare(number)
        self.pump(self.ask(number, **facts))
        return self.aggregator.reply()

    def count(self, members: Sequence[str] | None = None) -> int:
        """Return the exact count that the total of these clients must hold."""
        return sum(self.sites[n].count for n in (self.names if members is None else members))

    def until_open(self, round: int = 1) -> Delivery:
        """Run an honest round up to the open request, which is returned undelivered."""
        (request,) = self.pump(self.ask(round), until=".open")
        return request

    def entries(self, name: str) -> list[dict[str, Any]]:
        return [entry for entry, _ in read_lines(self.stores[name].lines)]

    def kinds(self, name: str) -> list[str]:
        return [entry["kind"] for entry in self.entries(name)]

    # --- what a dishonest party can do --------------------------------------------------------

    def context(self, name: str) -> RunContext:
        return self.session(name).context

    def twin(self, name: str) -> Gateway:
        """Return a gateway with a party's keys and no memory of what that party sent."""
        ledger = Ledger(name, self.run, MemoryStore(), lambda: "2026-01-01")
        return Gateway(self.context(name), ledger, entropy(32))

    def where(self, members: Sequence[str] | None = None, **facts: Any) -> Where:
        chosen = {"round": 1, "exchange": 1, **facts}
        return Where(members=tuple(members if members is not None else self.names), **chosen)

    def forge(
        self, by: str, item: str, recipient: str, body: bytes, where: Where, **changes: Any
    ) -> bytes:
        """Return an envelope over any body, signed by `by`; `changes` overwrite the header."""
        context, planned = self.context(by), self.plan.item(item)
        key = NO_KEY if recipient == EVERYONE else context.body_key(planned, recipient)
        if planned.disclosure.value == "SUM" and context.he_key is not None:
            key = context.he_key.key_id[:16]
        pairs = NONE
        if planned.disclosure.value == "SUM" and context.pairs is not None:
            pairs = context.pairs.agreement(slot_of(planned, where.round, where.slot))
        facts = {
            "run": self.run,
            "plan": self.plan.digest,
            "policy": self.policy.digest,
            "round": where.round,
            "exchange": where.exchange,
            "attempt": where.attempt,
            "cohort": NONE
            if not where.members
            else cohort_digest(
                self.run, self.plan.digest, where.round, where.attempt, where.members
            ),
            "item": item,
            "schema": planned.schema_digest,
            "sender": by,
            "recipient": recipient,
            "key": key,
            "given": where.given,
            "body": NONE,
            "head": NONE,
            "nonce": entropy(16).hex(),
            "pairs": pairs,
        }
        header = Header(**{**facts, **changes})
        sealed = find(self.policy.chain(planned.disclosure), "seal")
        if sealed and not item.endswith(".up.SEALED") and recipient != EVERYONE:
            seal = self.roster.party(recipient).seal
            body = seal.seal(header.encode(without_body=True), body)
        header = header.of_body(hashlib.sha256(body).digest())
        signature = self.identities[by].signing.sign(SIGNED, header.encode())
        return Envelope(header, signature, body).encode()

    def evil_ask(self, client: str, members: Sequence[str] | None = None, **facts: Any) -> bytes:
        """Return an Ask that only a dishonest aggregator sends; `facts`: where, weights, mask..."""
        chosen = tuple(members if members is not None else self.names)
        item, dims = f"{self.form.exchanges[0].name}.down", self.plan.dims
        mask = facts.pop("mask", None) or self.roster.mask(chosen)
        heads, place = self.silence(client)
        call = Call(members=mask, slot=facts.pop("slot", 0), nonce=bytes(16), heads=heads)
        kind = self.form.exchanges[0].given[0]
        given = facts.pop("give", None) or first(kind, self.d)
        if "weights" in facts:
            given = Start(weights=facts.pop("weights"))
        shared = [m for m in (call, given) if m.disclosure in SHARED]
        digest = facts.pop("given", None) or given_digest(shared, dims)
        places = {k: facts.pop(k) for k in ("round", "exchange", "attempt") if k in facts}
        where = self.where(chosen, given=digest, **places)
        body = encode([call, place, given], dims)
        return self.forge(AGGREGATOR_NAME, item, client, body, where, **facts)

    def silence(self, client: str) -> tuple[bytes, Place]:
        """Return heads and place of an aggregator that says it never heard anybody."""
        root, proofs = tree(self.roster.clients, {})
        return root, Place(exchange=0, items=0, proof=proofs[client])

    def evil_open(
        self, headers: bytes, where: Where, total: bytes | None = None, mask: bytes | None = None
    ) -> bytes:
        """Return an open request over any headers; the total is one encryption of zeros."""
        item = self.plan.item(f"{self.form.exchanges[0].name}.open")
        context = self.context(AGGREGATOR_NAME)
        if total is None:
            total = self.scheme.encrypt(context.he_key, np.zeros(1, np.uint64))
        padded = headers.ljust(item.dims["he_headers"], b"\0")
        mask = self.roster.mask(where.members) if mask is None else mask
        request = OpenRequest(members=mask, total=total, headers=padded)
        body = encode([request], context.dims(item))
        return self.forge(AGGREGATOR_NAME, item.id, "key-authority", body, where)


def uploads(world: World, deliveries: Sequence[Delivery]) -> dict[str, bytes]:
    """Deliver an Ask to every client and return its upload by client."""
    return {delivery.to: world.deliver(delivery)[0].data for delivery in deliveries}


def commitment_of(data: bytes) -> str:
    """Return the ledger's commitment to an envelope's bytes."""
    return commitment(Envelope.decode(data))


def headers_of(envelopes: Sequence[bytes]) -> bytes:
    return b"".join(signed_header(Envelope.decode(data)) for data in envelopes)


def where_of(data: bytes, members: Sequence[str]) -> Where:
    header = Envelope.decode(data).header
    return Where(header.round, header.exchange, tuple(members), header.given, header.attempt)


def unplaced(session: Any) -> None:
    """Let a session forget how far its senders are, so that what lies behind that check shows."""
    session._inbox._newest.clear()


def refused(deliveries: Sequence[Delivery]) -> bool:
    """Tell whether what a party answered is one refusal and nothing else."""
    items = [Envelope.decode(p.data).header.item for p in deliveries]
    return len(items) == 1 and items[0].startswith("refusal.")
