"""NOISED: its rules, plan, words, protection and answers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from crypto.hpke import SEAL_OVERHEAD
from crypto.samplers import Stream, entropy
from protocols.disclosures._base.plan import Planning
from protocols.disclosures._base.protect import Protection, Release
from protocols.disclosures._base.rules import Limits, Rules
from protocols.disclosures._base.view import ClearView, by_content
from protocols.disclosures._base.words import Chain, Planned, Words, listed, under
from protocols.disclosures._relayed.boxes import BATCH, Relayed, box_info, plan_relay
from protocols.disclosures.names import Disclosure
from protocols.disclosures.noised.decoys import SENT, Decoyer, local_epsilon, planned_rows
from protocols.disclosures.noised.guards import Decoys, Laplace
from protocols.disclosures.noised.randomiser import messages_of, parts_of, randomised, randomiser_of
from protocols.forms import Form
from protocols.messages import Message, NoisedMessage
from protocols.plan.builder import UP, PlanBuilder, Times
from protocols.plan.plan import Item, Layout, NoisePlan
from protocols.plan.steps import Step, item_id
from protocols.policy.admission import asked_holders, check_own_noise, own_objection
from protocols.policy.guard import Guard, find, guard_of
from protocols.policy.guards import Clip, OwnNoise
from protocols.privacy.own_target import check_own, of_exchanges, own_noises
from protocols.rounds import View
from protocols.wire.codec import encode
from protocols.wire.envelope import Header
from protocols.wire.inbox import Incoming
from protocols.wire.roles import Role
from protocols.wire.run_context import RunContext

# Which chains protect a message by its client's own noise, or apply what FedPerGNN publishes.


class NoisedRules(Rules):
    """One vector under its client's own noise, or rows with decoys, noised one by one (Unsafe)."""

    protecting = frozenset({"own_noise", "unsafe_clear"})
    applied = frozenset({"clip", "decoys", "laplace", "own_noise", "relay", "seal", "unsafe_clear"})
    order = "clip, own_noise, relay, seal; or clip, decoys, laplace, unsafe_clear"

    def check(self, chain: Chain) -> None:
        """Hold a chain with decoys or local noise to what is applied."""
        if len(chain) == 1:
            return
        named = [guard.guard for guard in chain]
        if own := guard_of(chain, OwnNoise):
            if [name for name in named if name != "relay"] != ["clip", "own_noise", "seal"]:
                raise ValueError(
                    "'own_noise' stands between 'clip' and 'seal', with nothing else but 'relay'"
                )
            if "relay" in named and own.mechanism == "discrete_gaussian":
                raise ValueError(
                    "'relay' needs a mechanism with an epsilon at delta 0, and discrete_gaussian "
                    "has none; take own_noise with mechanism sqkr or discrete_laplace"
                )
            norm = "l1" if own.mechanism == "discrete_laplace" else "l2"
            if (clip := guard_of(chain, Clip)) and clip.norm != norm:
                raise ValueError(f"'own_noise' with {own.mechanism} needs 'clip' with norm {norm}")
            return
        rest = [name for name in named if name not in ("decoys", "laplace")]
        if rest != ["clip", "unsafe_clear"] or len(named) == len(rest):
            raise ValueError("needed are clip, 'decoys' or 'laplace' or both, unsafe_clear")
        clip, noise = guard_of(chain, Clip), guard_of(chain, Laplace)
        if not clip or clip.norm != "linf":
            raise ValueError("'decoys' and 'laplace' need 'clip' with norm linf before them")
        if noise and noise.how == "fixed":
            noise.steps(clip.bound)

    def check_policy(self, chain: Chain, policy: Limits) -> None:
        """Refuse a delta that lets whole clients out."""
        check_own_noise(guard_of(chain, OwnNoise), policy.smallest_cohort)

    def alone(self, chain: Chain) -> bool:
        """Tell that all numbers of an Ask's message are one vector."""
        return find(chain, "own_noise") is not None

    def objection(self, kind: type[Message], form: Form[Any], policy: Limits) -> str | None:
        """Refuse rows of one client where several are asked for (O12), and records but in clear."""
        asks = asked_holders(policy)
        if asks and any(SENT in field.shape for field in kind.fields):
            return f"rows of message {kind.__name__} are one client's, and {asks}"
        chain = policy.rules.get(kind.disclosure, ())
        bare = issubclass(kind, NoisedMessage) and kind.bare
        if bare and not find(chain, "unsafe_clear"):
            return f"message {kind.__name__} holds records as they are: only in clear, as a control"
        if find(chain, "own_noise") and any(SENT in field.shape for field in kind.fields):
            return f"which rows message {kind.__name__} holds depends on the client's data"
        return own_objection(kind, chain)


RULES = NoisedRules()


# The plan's sizes of rows that one client shows, and of what its own noise hides.


class NoisedPlanning(Planning):
    """Rows of one size, whatever the client holds; or one randomised message."""

    def dims(
        self, form: Form[Any], chain: Sequence[Guard], dims: Mapping[str, int], records: int
    ) -> dict[str, int]:
        """Return how many rows a client sends."""
        return planned_rows(chain, dims)

    def up(
        self, plan: PlanBuilder, name: str, kinds: tuple[type[Message], ...], times: Times
    ) -> None:
        """Add the message; under noise of the client's own with the noise and its size."""
        chain = plan.policy.chain(self.disclosure)
        noise, clip = _own(plan), guard_of(chain, Clip)
        if noise is None or clip is None:
            super().up(plan, name, kinds, times)
            return
        label = item_id(name, self.disclosure, Step.UP, UP[0])
        size = randomiser_of(noise, parts_of(kinds, plan.dims), clip.bound, label).size
        relayed = find(chain, "relay") is not None
        size += SEAL_OVERHEAD if relayed else 0
        place = (name, self.disclosure, Step.UP, UP, kinds, self.disclosure, times)
        plan.add(*place, body=size, noise=noise)
        if relayed:
            plan_relay(plan, name, self.disclosure, size, times)


def _own(plan: PlanBuilder) -> NoisePlan | None:
    """Return the noise of every NOISED message of the run: all that is said shares one target."""
    sent = of_exchanges(plan.exchanges, plan.dims, plan.rounds)
    return own_noises(plan.policy, sent, len(plan.clients)).get(Disclosure.NOISED)


PLAN = NoisedPlanning(Disclosure.NOISED)


# What plans say of rows that one client shows by itself, and of noise on single numbers (O21).

LOCAL = (
    "noise is added to every number of {} by itself: epsilon = infinity for the run, as which rows "
    "are sent depends on the data; covered: single numbers alone, as said below; not covered: all "
    "messages as a whole"
)


RELAYED = (
    "{}: a relay takes the senders off, and is trusted for that alone. Aggregator and relay "
    "together know all senders, as without a relay; what each client's own noise gives holds all "
    "the same. A relay can replace messages by its own, one for one and unseen"
)


class NoisedWords(Words):
    """One client's message under its own noise; or its rows, among decoys."""

    def learns(self, chain: Chain, network: str) -> dict[str, str]:
        """Return, per role, what a message tells it."""
        known = super().learns(chain, network)
        if find(chain, "own_noise"):
            known["aggregator"] = "each message under its client's own noise, and whose it is"
            if find(chain, "relay"):
                known["aggregator"] += " only if the relay tells"
                known["relay"] = BATCH
        return known

    def warnings(self, plan: Planned) -> list[str]:
        """Warn of what rows among decoys tell, which one client shows by itself."""
        chain = plan.policy.rules.get(Disclosure.NOISED, ())
        if find(chain, "relay"):
            noised = [item for item in plan.items if item.disclosure is Disclosure.NOISED]
            return [RELAYED.format(item.id) for item in noised]
        decoys = guard_of(chain, Decoys)
        if decoys is None:
            return []
        again = (
            "decoys are drawn anew in every round, so rows that stay are the client's own (A01)"
            if decoys.draw == "fresh"
            else "decoys are drawn once in a run, so rows that stay over runs are the client's own"
        )
        return [
            f"{item.id}: {again}; which rows are sent, and that others are not, stands outside "
            "every epsilon; of a client that holds more than half as many, half of the rows are "
            "its own"
            for item in plan.items
            if item.disclosure is Disclosure.NOISED
        ]

    def unaccounted(self, items: Sequence[Item]) -> str:
        """Name the items whose numbers are noised one by one."""
        return listed(LOCAL, [item for item in items if under(item, "laplace")])

    def spends(self, item: Item, chain: Chain) -> list[str]:
        """Return what the noise on one number comes to."""
        beside = "which rows are sent, and rows drawn from the client's own"
        return local_noise(item, chain, beside)


def local_noise(item: Item, chain: Chain, beside: str) -> list[str]:
    """Return what Laplace noise on single clients' numbers comes to.

    Args:
        item: of the plan.
        chain: that protects it.
        beside: what the noise leaves open.
    """
    if find(chain, "laplace") is None:
        return []
    one = local_epsilon(tuple(chain))
    if one is None:
        return [f"{item.id}: no epsilon: its noise's scale depends on the data (O21)"]
    fields = [f for m in item.messages for f in m.fields if f.dtype in ("f4", "f8")]
    numbers = sum(math.prod(field.shape) for field in fields)
    return [
        f"{item.id}: epsilon = {one:g} per coordinate, per round, and {one * numbers:g} for a "
        f"whole message of {numbers} coordinates, {one * numbers * item.times:g} for the run "
        "(unit: coordinate, message; adjacency: replace-one; model: local; scope: as said; "
        "delta < 2^-200, of the sampler; assumptions: none on sampling); not covered: "
        f"{beside}"
    ]


WORDS = NoisedWords(Disclosure.NOISED)


# From a client's message to rows among decoys, clipped and noised, or to a randomised one.


class NoisedProtection(Protection):
    """Decoys may be drawn once in a run, so they are kept."""

    def own(self) -> Decoyer:
        """Return which decoys were drawn."""
        return Decoyer()

    def layout(
        self, context: RunContext, item: Item, kinds: tuple[type[Message], ...]
    ) -> Layout | None:
        """Return no grid; raises NotInPlan if the planned noise is not the policy's."""
        chain = context.policy.chain(item.disclosure)
        if item.noise is not None or find(chain, "own_noise"):
            check_own(context.plan, context.policy)
        return None

    def body(self, release: Release, header: Header, prepared: Any) -> tuple[bytes, bool]:
        """Randomise, or add decoys and noise."""
        if find(release.chain, "own_noise"):
            # Whether a value was clipped is not kept: here it would be nobody's but the value's.
            draws = Stream(entropy(32))
            messages, dims = release.messages, release.dims
            said = randomised(messages, dims, release.item, release.chain, draws)
            return _boxed(said, release), False
        ready = [release.own.ready(m, release.chain, release.dims) for m in release.messages]
        body = encode([message for message, _ in ready], release.dims, release.known)
        return body, any(clipped for _, clipped in ready)


def _boxed(body: bytes, release: Release) -> bytes:
    """Return the one box of a message that passes through a relay; any other as it is (O23)."""
    context, item = release.context, release.item
    if not context.relays(item):
        return body
    reader = context.roster.one(Role.AGGREGATOR)
    return reader.seal.seal(box_info(context, item.id, release.where), body)


PROTECT = NoisedProtection()


# What the aggregator holds of noised messages: each of them, and not whose it is.


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
