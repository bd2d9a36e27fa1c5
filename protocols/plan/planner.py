"""The items of a plan: which envelopes, on which routes, how large, how often."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from crypto.errors import OutOfRange
from crypto.he import Scheme
from crypto.hpke import SEAL_OVERHEAD
from protocols.disclosures._evaluated.ciphers import (
    cosine_ring,
    key_kinds,
    keyed,
    shape_of,
    weigh_ring,
    witness_count,
)
from protocols.disclosures._evaluated.guards import evaluated
from protocols.disclosures._evaluated.plan import plan_cosines, plan_rows, plan_upload, witness_name
from protocols.disclosures.match.guards import Match
from protocols.disclosures.match.plan import (
    MATCHER_NAME,
    TAG_SERVER_NAMES,
    found_said,
    match_times,
    plan_matching,
    told_kind,
    totals_item,
)
from protocols.disclosures.match.run import match_guard
from protocols.disclosures.mixed.plan import RELAY_NAME, plan_mixtures
from protocols.disclosures.names import Disclosure
from protocols.disclosures.sum.guards import encryption
from protocols.disclosures.sum.layout import SumLayout, sum_layout, sum_ring
from protocols.disclosures.sum.plan import plan_opening, plan_pairs, plan_sharing
from protocols.disclosures.sum.ring import Ring
from protocols.errors import PolicyError
from protocols.evidence.heads import MOST_ITEMS, client_items
from protocols.forms import Exchange, strictest
from protocols.keys.boxes import box_bytes, by_peers
from protocols.keys.groups import epochs, slots
from protocols.messages import Message
from protocols.plan.learns import learns
from protocols.plan.plan import Item, NoisePlan
from protocols.plan.schema import Layout, message_plan
from protocols.plan.steps import Part, Service, Step, item_id
from protocols.policy.guard import Guard, describe, find
from protocols.policy.guards import UnsafeClear
from protocols.policy.policy import PrivacyPolicy
from protocols.wire.codec import bundle_bytes
from protocols.wire.control import (
    Acknowledgement,
    Boxes,
    Call,
    Farewell,
    KeyCall,
    Place,
    Refusal,
    Row,
)
from protocols.wire.envelope import envelope_bytes, header_bytes
from protocols.wire.roster import EVERYONE, Role

_KEY_SAID = "the public key of this epoch"
AGGREGATOR_NAME = "aggregator"
AUTHORITY_NAME = "key-authority"
_CLIENT, _AGGREGATOR, _AUTHORITY = str(Role.CLIENT), str(Role.AGGREGATOR), str(Role.KEY_AUTHORITY)
_WITNESS, _RELAY = str(Role.WITNESS), str(Role.RELAY)
_SERVER, _MATCHER = str(Role.TAG_SERVER), str(Role.MATCHER)


_OPENED = (Disclosure.WEIGHTED_SUM, Disclosure.MATCH)


def wire_kinds(kinds: Sequence[type[Message]], policy: PrivacyPolicy) -> tuple[type[Message], ...]:
    """Return what a downward bundle holds on the wire.

    Rows sealed by peers travel as Boxes, combinations that were opened blind as Row, what was
    matched by tags as CellTotals or, in the form `published`, as Listed.
    """
    found: list[type[Message]] = []
    for kind in kinds:
        chain = policy.chain(kind.disclosure) if kind.disclosure in _OPENED else ()
        weighed, matched = evaluated(chain), find(chain, "match")
        instead = Row if weighed else told_kind(matched) if isinstance(matched, Match) else kind
        found.append(Boxes if by_peers(kind) else instead)
    return tuple(found)


class Planner:
    """Collects the items of one plan; every size comes from the code that later makes the bytes."""

    def __init__(
        self,
        policy: PrivacyPolicy,
        clients: Sequence[str],
        dims: dict[str, int],
        scheme: Scheme | None,
        rounds: int,
        exchanges: Sequence[Exchange] = (),
    ) -> None:
        self.exchanges = exchanges  # all of the form
        self.policy, self.clients, self.dims, self.scheme = policy, clients, dims, scheme
        self.rounds = rounds
        self.items: list[Item] = []
        self.longest = max(clients, key=len)
        self.noise: NoisePlan | None = None

    def name(self, role: str) -> str:
        """Return the longest name of a party in this role."""
        names = {_CLIENT: self.longest, _AGGREGATOR: AGGREGATOR_NAME, _AUTHORITY: AUTHORITY_NAME}
        names |= {_WITNESS: witness_name(9), _RELAY: RELAY_NAME}
        names |= {_SERVER: TAG_SERVER_NAMES[0], _MATCHER: MATCHER_NAME}
        return names.get(role, EVERYONE)

    def add(  # noqa: PLR0913 - an item has that many facts
        self,
        exchange: str,
        part: Part,
        step: Step,
        route: tuple[str, str],
        kinds: Sequence[type[Message]],
        disclosure: Disclosure,
        times: tuple[int, int],
        *,
        body: int | None = None,
        layout: Layout | None = None,
        dims: Mapping[str, int] | None = None,
        said: Mapping[str, str] | None = None,
    ) -> None:
        """Add one item; its size follows from its messages unless `body` says it."""
        id = item_id(exchange, part, step, route[0])
        chain = self.policy.chain(disclosure)
        extra = dict(dims or {})
        size = bundle_bytes(kinds, {**self.dims, **extra}) if body is None else body
        boxed = disclosure is Disclosure.SEALED and body is not None  # sealed inside, row by row
        sealed = SEAL_OVERHEAD if find(chain, "seal") and not boxed else 0
        header = header_bytes(id, self.name(route[0]), self.name(route[1]))
        model = any(field.wire != "bytes" and field.shape for k in kinds for field in k.fields)
        model = model or any(field.wire in ("f4", "f8") for k in kinds for field in k.fields)
        known = learns(disclosure, chain, up=route[0] == _CLIENT, model=model)
        self.items.append(
            Item(
                id=id,
                exchange=exchange,
                part=part,
                step=step,
                label=id,
                sender=route[0],
                recipient=route[1],
                disclosure=disclosure,
                messages=tuple(message_plan(k, {**self.dims, **extra}, layout) for k in kinds),
                guards=tuple(describe(guard) for guard in chain),
                unsafe=any(isinstance(guard, UnsafeClear) for guard in chain),
                bytes=envelope_bytes(header, size + sealed),
                body=size,
                per_round=times[0],
                times=times[1],
                dims=extra,
                noise=self.noise if disclosure is Disclosure.SUM and layout else None,
                learns=dict(said) if said is not None else known,
            )
        )

    def exchange(self, exchange: Exchange) -> None:
        """Add everything that one kind of Ask makes travel."""
        times = (exchange.per_round, match_times(self, exchange))
        down, sizes = wire_kinds(exchange.given, self.policy), {}
        if boxes := sum(box_bytes(k, self.dims) for k in exchange.given if by_peers(k)):
            sizes["boxes"] = boxes * len(self.clients)
        if Row in down:
            weighed = exchange.given[down.index(Row)]
            sizes["row_box"] = shape_of((weighed,), self.policy, self.dims).row_bytes
            sources = [e.name for e in self.exchanges if weighed in e.back]
            plan_rows(self, exchange.name, weighed, sources, times)
        sizes |= totals_item(self, down)
        said = found_said(down)
        self.add(
            exchange.name,
            Service.ASK,
            Step.DOWN,
            (_AGGREGATOR, _CLIENT),
            (Call, Place, *down),
            strictest(down),
            times,
            dims=sizes or None,
            said=said,
        )
        for disclosure in dict.fromkeys(kind.disclosure for kind in exchange.back):
            kinds = tuple(kind for kind in exchange.back if kind.disclosure is disclosure)
            self.up(exchange.name, disclosure, kinds, times)
        if not exchange.back:
            route = (_CLIENT, _AGGREGATOR)
            said = {"aggregator": "that the message arrived"}
            self.add(
                exchange.name,
                Service.ASK,
                Step.ACK,
                route,
                (Acknowledgement,),
                Disclosure.SEALED,
                times,
                said=said,
            )

    def up(
        self,
        name: str,
        disclosure: Disclosure,
        kinds: tuple[type[Message], ...],
        times: tuple[int, int],
    ) -> None:
        """Add what comes back of one disclosure, and what opening it takes."""
        route = (_CLIENT, _AGGREGATOR)
        chain = self.policy.chain(disclosure)
        if disclosure is Disclosure.SEALED:
            size = sum(box_bytes(kind, self.dims) for kind in kinds) * len(self.clients)
            self.add(name, disclosure, Step.UP, route, kinds, disclosure, times, body=size)
        elif disclosure is Disclosure.SUM:
            layout = sum_layout(kinds, chain, self.dims)
            ring = self._ring(layout, chain)
            size = ring.wire_bytes
            if encryption(chain):
                size = ring.size // self._he.degree * self._he.ciphertext_bytes
            self.add(
                name, disclosure, Step.UP, route, kinds, disclosure, times,
                body=size, layout=layout,
            )  # fmt: skip
            if find(chain, "mask"):
                plan_sharing(self, name, times)
            if encryption(chain):
                plan_opening(self, name, ring, size, times)
        elif evaluated(chain) is not None:
            shape = plan_upload(self, name, kinds, times)
            if disclosure is Disclosure.SIMILARITY:
                plan_cosines(self, name, shape, times)
        elif disclosure is Disclosure.MIXED:
            plan_mixtures(self, name, kinds[0], times)
        elif disclosure is Disclosure.MATCH and (match := match_guard(chain)):
            plan_matching(self, name, kinds[0], match, times)
        else:
            self.add(name, disclosure, Step.UP, route, kinds, disclosure, times)

    @property
    def _he(self) -> Scheme:
        if self.scheme is None:
            raise ValueError("an encrypting chain needs an encryption scheme")
        return self.scheme

    def _ring(self, layout: SumLayout, chain: tuple[Guard, ...]) -> Ring:
        try:
            return sum_ring(layout, chain, len(self.clients), self.scheme, self.noise)
        except OutOfRange as error:
            raise PolicyError(
                "The sum of this cohort does not fit into the encryption's plaintext.",
                why=str(error),
                fix="use fewer bits in 'quantise', fewer clients, or another scheme",
            ) from error

    def control(self) -> None:
        """Plan the layer's own messages; they stand first in the plan."""
        places, planned = len(slots(self.items, self.rounds, self.policy, 0)), self.items
        self.items = []
        chain = self.policy.rules.get(Disclosure.SUM, ())
        often, public = epochs(self.rounds, self.policy), Disclosure.PUBLIC
        secret = keyed(planned, self.policy)
        if secret:
            times = (0, often)
            route = (_AGGREGATOR, _AUTHORITY)
            self.add("", Service.KEYS, Step.CALL, route, (KeyCall,), public, times, said={})
            said = {"everyone": "the public keys of this epoch" if secret[1:] else _KEY_SAID}
            sizes = {}
            if Disclosure.SIMILARITY in secret:
                sizes["cosine_public_key"] = cosine_ring().public_key_bytes
            if Disclosure.WEIGHTED_SUM in secret:
                sizes["weigh_public_key"] = weigh_ring().public_key_bytes
            route, kinds = (_AUTHORITY, EVERYONE), key_kinds(secret)
            self.add(
                "", Service.KEYS, Step.OFFER, route, kinds, public, times, dims=sizes, said=said
            )
        if find(chain, "mask") and places:
            plan_pairs(self, often, places)
        route, said = (_AGGREGATOR, _CLIENT), {"client": "digests of what all clients recorded"}
        heads, released = (Service.HEADS, Step.DOWN), Disclosure.RELEASED
        self.add("", *heads, route, (Farewell, Place), released, (0, 1), said=said)
        route, said = (_CLIENT, _AGGREGATOR), {"aggregator": "that the heads arrived"}
        heads, sealed = (Service.HEADS, Step.ACK), Disclosure.SEALED
        self.add("", *heads, route, (Acknowledgement,), sealed, (0, 1), said=said)
        said = {"aggregator": "one code of a closed list"}
        witnesses = witness_count(planned, self.policy)
        for role in (
            _CLIENT,
            *([_AUTHORITY] if secret else []),
            *([_WITNESS] if witnesses else []),
            *(r for r in (_RELAY, _SERVER, _MATCHER) if any(i.recipient == r for i in planned)),
        ):
            route = (role, _AGGREGATOR)
            refusal = (Service.REFUSAL, Step.REFUSE)
            self.add("", *refusal, route, (Refusal,), sealed, (0, 1), said=said)
        self.items += planned
        if len(client_items(self.items)) > MOST_ITEMS:
            raise PolicyError(
                f"Clients would send more than {MOST_ITEMS} kinds of envelopes.",
                why="the receipts of a run name them in one number",
                fix="merge messages of one disclosure into one Ask",
            )
