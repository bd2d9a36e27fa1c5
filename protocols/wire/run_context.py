"""What every party of a run holds."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from crypto.homomorphic.he import PublicKey, Scheme
from crypto.oprf import Spread
from crypto.signing import canonical
from protocols.disclosures._evaluated.ciphers import ring_of
from protocols.disclosures._evaluated.guards import evaluated
from protocols.disclosures.names import Disclosure
from protocols.disclosures.registry import code, each
from protocols.disclosures.sum.layout import Ring, SumLayout, sum_layout, sum_ring
from protocols.errors import LocalProtocolError, NotInPlan
from protocols.keys.groups import withstands
from protocols.keys.pairs import Pairs
from protocols.messages import Message
from protocols.plan.cohorts import DrawnPlan
from protocols.plan.plan import Item, Plan, code_drift
from protocols.plan.steps import Part, Service, Step, item_id, not_planned
from protocols.policy.budget import Reserve
from protocols.policy.guard import Guard, describe, find
from protocols.policy.guards import UnsafeClear
from protocols.policy.policy import PrivacyPolicy
from protocols.privacy.noising import PrivateSteps
from protocols.versions import PLAN
from protocols.wire.envelope import NONE, Where
from protocols.wire.roles import Role, names
from protocols.wire.roster import Identity, Party, Roster, cohort_digest


def _relay(chain: tuple[Guard, ...]) -> Guard | None:
    return find(chain, "relay")


class Zeros(Protocol):
    """Encryptions of zero made ahead of time; each is handed out once."""

    def take(self, key: PublicKey, ciphertexts: int) -> bytes:
        """Return that many under this key, made now if none is ready."""


@dataclass
class RunContext:
    """What every party of a run holds.

    Attributes:
        me, roster, plan, policy, run: identity, who takes part, what was approved, the run's name.
        scheme, he_key: encryption of sums, and the public key of the epoch.
        keys: the epoch's public keys of what is computed on ciphertexts.
        transport: its name.
        config: digest (hex) of the configuration's text; NONE where nothing is configured.
        pairs: at a client, what it agreed on with others for the epoch.
        zeros: at a client, encryptions of zero made ahead.
        reserve: at a client, takes from its site's privacy budget (O20).
        training: at a client, draws the batches and the noise of private training.
        tag_key: at a client, the key of tags that all clients hold, in ``hmac`` mode.
        blind: at a client, of an Ask that it answers now and whose total it is to read: the number
            of its exchange, and the seed of what it uploads in the place of a value.
        held: what a disclosure's parts at this party hold in common, by its name.
        spread: how batches of points are worked through (`crypto.oprf.Spread`).
        plugins: digests of the plug-ins that this party has read, as in a plan's `code`.
    """

    me: Identity
    roster: Roster
    plan: Plan
    policy: PrivacyPolicy
    run: str
    scheme: Scheme | None = None
    he_key: PublicKey | None = None
    transport: str = "memory"
    config: str = NONE
    keys: Mapping[Disclosure, PublicKey] = field(default_factory=dict)
    pairs: Pairs | None = field(default=None, repr=False)
    zeros: Zeros | None = field(default=None, repr=False)
    reserve: Reserve | None = field(default=None, repr=False)
    training: PrivateSteps | None = field(default=None, repr=False)
    tag_key: bytes | None = field(default=None, repr=False)
    blind: tuple[int, bytes] | None = field(default=None, repr=False)
    held: dict[str, Any] = field(default_factory=dict, repr=False)
    spread: Spread = field(default=map, repr=False)
    plugins: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Cache the digests that stand in every header, and hold plan, policy and roster together.

        Raises:
            NotInPlan: the plan was made for another policy or other clients, or states another
                protection than the policy asks for.
            OtherVersion: the plan is of another version.
        """
        # Copies of our own: what the digests stand for cannot be changed from outside.
        self.plan, self.policy = self.plan.model_copy(deep=True), self.policy.checked()
        self.plan_digest, self.policy_digest = self.plan.digest, self.policy.digest
        self.schemas = {item.id: item.schema_digest for item in self.plan.items}
        self._items = {item.id: item for item in self.plan.items}
        self._steps = {(item.exchange, item.part, item.step): item for item in self.plan.items}
        self._dims = {item.id: {**self.plan.dims, **item.dims} for item in self.plan.items}
        self._summed: dict[tuple[str, tuple[type[Message], ...]], tuple[SumLayout, Ring]] = {}
        # Items whose messages' classes the gateway compared with the plan; both never change.
        self.compared: set[tuple[str, tuple[type[Message], ...]]] = set()
        PLAN.check(self.plan.version)
        self._check_code()
        if self.plan.policy_digest != self.policy_digest:
            raise NotInPlan(
                "The plan was made for another policy.", fix="make a new plan with this policy"
            )
        if self.plan.policy_fields != self.policy.fields():
            raise NotInPlan("The plan states other settings of the policy than it has.")
        if set(self.plan.clients) != set(self.roster.clients):
            raise NotInPlan("The plan names other clients than the roster.")
        least = self.policy.smallest_cohort
        if (drawn := self.plan.drawn) is not None:
            if drawn != DrawnPlan.of(drawn.size, len(self.plan.clients), self.policy):
                raise NotInPlan("The plan states other drawn cohorts than follow from the policy.")
            least = drawn.least
        if self.plan.smallest_cohort != least:
            raise NotInPlan("The plan states another smallest cohort than the policy.")
        facts = self.plan.items, len(self.plan.clients), self.policy, self.plan.drawn
        if self.plan.withstands != withstands(*facts):
            raise NotInPlan("The plan withstands more or fewer dishonest clients than it states.")
        self._check_roles()
        self._enciphers = {item.id: self._is_guarded(item, evaluated) for item in self.plan.items}
        self._relays = {item.id: self._is_guarded(item, _relay) for item in self.plan.items}
        for check in each("context"):
            check(self)
        for item in self.plan.items:
            chain = self.policy.chain(item.disclosure)
            if item.guards != tuple(describe(guard) for guard in chain):
                raise NotInPlan(f"The plan states another protection of {item.id} than the policy.")
            said = {message.disclosure for message in item.messages}
            client = item.sender == str(Role.CLIENT)
            if item.disclosure not in said or (client and said != {item.disclosure}):
                raise NotInPlan(f"The plan protects {item.id} as something that it does not say.")
            if item.unsafe != any(isinstance(guard, UnsafeClear) for guard in chain):
                raise NotInPlan(f"The plan does not say whether {item.id} is unsafe.")

    def _check_roles(self) -> None:
        """Raise NotInPlan unless the roster holds all parties that plan and policy ask for."""
        for role in set(Role) - {Role.CLIENT}:
            wanted = len(names(role, self.plan.items, self.policy))
            if (here := len(self.roster.names(role))) < wanted:
                raise NotInPlan(
                    f"The roster holds {here} parties in role {role}; plan and policy ask for "
                    f"{wanted}.",
                    why="what one party alone could do is cut between several (O4, O23, O24)",
                    fix="name parties that belong to nobody else of the run",
                )

    def _check_code(self) -> None:
        """Raise NotInPlan unless the plan was made with the very code that is here.

        That is the disclosures' folders, and of plug-ins those that this party has read.
        """
        own = {**code(), **self.plugins}
        stated = self.plan.code
        if differences := code_drift(self.plan.plugins, self.plugins):
            raise NotInPlan(
                f"The plan was made with other plug-ins than are here: {differences[0]}.",
                why="a file was changed, or is not the one that was approved",
                fix="bring the approved file to every party, or have a new plan approved",
            )
        if other := sorted(n for n in {*own, *stated} if own.get(n) != stated.get(n)):
            raise NotInPlan(
                f"The plan was made with another protocols/disclosures/{other[0]} than is here.",
                why="the program was changed, or is of another version, where the plan was made",
                fix="install one version at all parties, make a new plan, and have it approved",
            )

    def of_party(self, me: Identity) -> RunContext:
        """Return another party's context in the same run, for parties of one process.

        Plan, policy and roster are the very objects that were copied, checked and digested here, by
        checks that depend on nothing else: doing so again for every party would find the same.
        Nothing separates roles that share a process (O26); parties elsewhere make their own.
        """
        made = copy.copy(self)
        made.me, made.he_key, made.keys, made.pairs = me, None, {}, None
        made.zeros = made.reserve = made.training = made.tag_key = made.blind = None
        made.held = {}
        return made

    def item(self, id: str) -> Item:
        """Return an item of the plan by id; raises NotInPlan."""
        found = self._items.get(id)
        return self.plan.item(id) if found is None else found

    def find(self, exchange: str, part: Part, step: Step) -> Item:
        """Return the item of one step; raises NotInPlan. Of refusals see `refusal`."""
        found = self._steps.get((exchange, part, step))
        if found is None:
            raise not_planned(item_id(exchange, part, step, ""))
        return found

    @property
    def refusal(self) -> Item:
        """The item under which this party refuses; raises NotInPlan if its role never does."""
        for item in self.plan.all_of(Service.REFUSAL):
            if item.sender == str(self.me.party.role):
                return item
        role = str(self.me.party.role)
        raise not_planned(item_id("", Service.REFUSAL, Step.REFUSE, role))

    def plans(self, exchange: str, part: Part, step: Step) -> bool:
        """Tell whether the plan holds an item of this step."""
        return (exchange, part, step) in self._steps

    def dims(self, item: Item) -> Mapping[str, int]:
        """Return all named sizes that apply to an item of the plan."""
        return self._dims[item.id]

    def summed(self, item: Item, kinds: tuple[type[Message], ...]) -> tuple[SumLayout, Ring]:
        """Return how messages of these types are summed under an item of the plan."""
        found = self._summed.get((item.id, kinds))
        if found is None:
            chain = self.policy.chain(item.disclosure)
            layout = sum_layout(kinds, chain, self.dims(item))
            facts = len(self.plan.clients), self.scheme, item.margin
            ring = sum_ring(layout, chain, *facts, checked=item.checked > 0)
            found = self._summed[item.id, kinds] = layout, ring
        return found

    def enciphers(self, item: Item) -> bool:
        """Tell whether an item is an upload whose results are computed on ciphertexts."""
        return self._enciphers[item.id]

    def _is_guarded(self, item: Item, by: Callable[[tuple[Guard, ...]], Guard | None]) -> bool:
        """Tell whether an item is an upload that a guard of this kind protects."""
        return item.step is Step.UP and by(self.policy.chain(item.disclosure)) is not None

    def key_of(self, disclosure: Disclosure) -> PublicKey:
        """Return this epoch's public key of a disclosure.

        Raises:
            LocalProtocolError: it is not here.
        """
        key = self.he_key if disclosure is Disclosure.SUM else self.keys.get(disclosure)
        if key is None:
            raise LocalProtocolError("The key authority's public key is not here yet.")
        return key

    def relays(self, item: Item) -> bool:
        """Tell whether an item is an upload that a relay takes the sender off (O23)."""
        return self._relays[item.id]

    def opener(self, item: Item, recipient: str) -> Party:
        """Return who alone opens an item's seal: its recipient, or the relay."""
        return self.roster.one(Role.RELAY) if self.relays(item) else self.roster.party(recipient)

    def take_key(self, disclosure: Disclosure, raw: bytes) -> PublicKey:
        """Check and keep this epoch's public key of a disclosure; raises CryptoError."""
        if disclosure is not Disclosure.SUM:
            key = ring_of(disclosure).load_public(raw)
            self.keys = {
                **self.keys,
                disclosure: key,
            }  # never changed in place: contexts are copied
            return key
        if self.scheme is None:
            raise LocalProtocolError("This party has no encryption scheme for the offered key.")
        self.he_key = self.scheme.load_public(raw)
        return self.he_key

    def body_key(self, item: Item, recipient: str) -> str:
        """Return the id of the key that protects an item's body on its way."""
        if item.disclosure is Disclosure.SUM:
            return self.sum_key(recipient)
        if self.enciphers(item):
            return self.key_of(item.disclosure).key_id[:16]
        return self.opener(item, recipient).seal.key_id

    def sum_key(self, recipient: str) -> str:
        """Return the id of the key that protects a sum on its way to `recipient`."""
        if self.he_key is not None:
            return self.he_key.key_id[:16]
        return self.roster.party(recipient).seal.key_id

    def mask_label(self, item: Item, where: Where, key: str, pairs: str) -> tuple[str, ...]:
        """Return what every mask of one sum is bound to (O6).

        With the digest of what was given, masks of clients that got different models do not cancel
        (O8), whoever holds the key.
        """
        places = (f"{where.round}", f"{where.attempt}", self.cohort(where), where.given)
        facts = [self.run, self.plan_digest, *places, key, f"{where.exchange}", item.label, pairs]
        # One digest: a client derives a key for each neighbour.
        return (hashlib.sha256(b"secure-fgl/mask\0" + canonical(facts)).hexdigest(),)

    def cohort(self, where: Where) -> str:
        """Return the digest of the exact cohort, or NONE without one."""
        if not where.members:
            return NONE
        return cohort_digest(self.run, self.plan_digest, where.round, where.attempt, where.members)
