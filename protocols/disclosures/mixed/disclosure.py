"""MIXED: its rules, plan, words, protection and answers."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

from protocols.disclosures._base.plan import Planning
from protocols.disclosures._base.protect import Protection, Release
from protocols.disclosures._base.rules import Limits, Rules
from protocols.disclosures._base.view import OneVerb, by_content
from protocols.disclosures._base.words import Chain, Planned, Words, listed, under
from protocols.disclosures._relayed.boxes import BATCH, Relayed, box_info, plan_relay, pool_of
from protocols.disclosures.mixed.guards import Blur, Mix
from protocols.disclosures.mixed.layout import (
    MixLayout,
    Numbers,
    from_boxes,
    into_boxes,
    mixed_fields,
    mixture_box_bytes,
    planned_mixtures,
)
from protocols.disclosures.mixed.mixing import Mixer
from protocols.disclosures.names import Disclosure
from protocols.forms import Form
from protocols.messages import Message
from protocols.plan.builder import PlanBuilder, Times
from protocols.plan.plan import Item, Layout
from protocols.plan.steps import Step
from protocols.policy.guard import Guard, find, guard_of
from protocols.policy.guards import Clip
from protocols.rounds import View
from protocols.wire.envelope import Header
from protocols.wire.roles import Role
from protocols.wire.run_context import RunContext

# Which chain protects mixtures, and which messages can be mixed (O22, O23).

_CHAIN = ("clip", "mix", "seal")


class MixedRules(Rules):
    """Records, clipped and mixed; noise and a relay may be added."""

    protecting = frozenset({"mix", "unsafe_clear"})
    applied = protecting | {"clip", "blur", "relay", "seal"}
    order = "clip, mix, blur, relay, seal"
    from_records = True

    def check(self, chain: Chain) -> None:
        """Hold what is mixed to its chain, and noise to what can be drawn well."""
        if not find(chain, "mix"):
            super().check(chain)
            return
        if tuple(g.guard for g in chain if g.guard not in ("blur", "relay")) != _CHAIN:
            raise ValueError(f"needed are {', '.join(_CHAIN)}, and 'blur' or 'relay' before 'seal'")
        clip, mix, blur = guard_of(chain, Clip), guard_of(chain, Mix), guard_of(chain, Blur)
        if not clip or clip.norm != "l2":
            raise ValueError("'mix' needs 'clip' with norm l2 before it: a record is one vector")
        if mix and blur:
            blur.steps(mix)

    def accounted(self, chain: Chain) -> bool:
        """A record stands in many mixtures, so their noise is not accounted."""
        return find(chain, "mix") is None

    def alone(self, chain: Chain) -> bool:
        """Records are grouped once in a run, for one message."""
        return True

    def objection(self, kind: type[Message], form: Form[Any], policy: Limits) -> str | None:
        """Refuse single records; raises TypeError for a message that cannot be mixed."""
        mixed_fields(kind)
        if not (form.unmixed and find(policy.rules.get(kind.disclosure, ()), "mix")):
            return None
        return (
            f"message {kind.__name__} would hold single records (mixup: false), which no rule "
            "that mixes lets out; have them mixed, or take unsafe_plaintext for a baseline on "
            "data that may be seen"
        )


RULES = MixedRules()


# The plan items of mixtures, and of the relay that takes the senders off them (O22, O23).

_CLIENT, _AGGREGATOR = str(Role.CLIENT), str(Role.AGGREGATOR)


def _plan_mixtures(planner: PlanBuilder, name: str, kind: type[Message], times: Times) -> None:
    """Add one Ask's mixtures, and where the policy asks for a relay what passes through it."""
    part, chain = Disclosure.MIXED, planner.policy.chain(Disclosure.MIXED)
    layout, route = MixLayout(kind, chain, planner.dims), (_CLIENT, _AGGREGATOR)
    if not find(chain, "relay"):
        size = layout.body_bytes
        planner.add(name, part, Step.UP, route, (kind,), part, times, body=size, layout=layout)
        return
    size = layout.most * mixture_box_bytes(layout)
    planner.add(name, part, Step.UP, route, (kind,), part, times, body=size, layout=layout)
    plan_relay(planner, name, part, size, times)


class MixedPlanning(Planning):
    """Mixtures on a grid, and what a relay does with them."""

    def dims(
        self, form: Form[Any], chain: Sequence[Guard], dims: Mapping[str, int], records: int
    ) -> dict[str, int]:
        """Return how many mixtures a client sends."""
        return planned_mixtures(form, chain, dims, records)

    def up(
        self, plan: PlanBuilder, name: str, kinds: tuple[type[Message], ...], times: Times
    ) -> None:
        """Add the mixtures of an Ask."""
        _plan_mixtures(plan, name, kinds[0], times)


PLAN = MixedPlanning(Disclosure.MIXED)


# In words: what mixtures tell, and what a relay changes of it (O22, O23).

MIXTURES = (
    "{}: the aggregator reads mixtures of single clients, {}. Who stands in which is drawn once in "
    "a run and never leaves; whoever learns it, or sees the same groups under many models or in "
    "many runs, may solve for single records (attack A06). {}"
)
_LABELS = (
    "The shares of labels tell how many centres of each class a mixture has (A04), and all "
    "together how many training nodes a client has."
)
_NO_LABELS = "No labels are said."
RELAYED = (
    "{}: a relay takes the senders off, and content still hints at them: a client's mixtures are "
    "alike from round to round, and when it vanishes they are what is missing. Nothing is credited "
    "for the order. Aggregator and relay together know all senders, as without a relay"
)


def of_mix(mix: Mix) -> str:
    """Return of how many records each mixture is."""
    return f"each over at least {mix.floor} distinct ones at every position"


BLURRED = (
    "noise is added to {} and not accounted, since a record stands in many places: epsilon = "
    "infinity for the run; covered: nothing; not covered: all messages"
)


class MixedWords(Words):
    """Mixtures of one client's records."""

    def learns(self, chain: Chain, network: str) -> dict[str, str]:
        """Return, per role, what an upload of mixtures tells it."""
        mix = guard_of(chain, Mix)
        if mix is None:
            return super().learns(chain, network)
        noised = "noised " if find(chain, "blur") else ""
        told = f"{noised}mixtures of one client's records, {of_mix(mix)}, and their labels"
        found = {"aggregator": told, "other clients": "nothing", "network": network}
        if find(chain, "relay"):
            content = pool_of(Disclosure.MIXED).partition("; ")[2]
            found["aggregator"] += f"; no sender ({content}), unless the relay tells"
            found["relay"] = BATCH
        return found

    def warnings(self, plan: Planned) -> list[str]:
        """Say what mixtures tell, where they are protected at all."""
        chain = plan.policy.rules.get(Disclosure.MIXED, ())
        mix, found = guard_of(chain, Mix), []
        if mix is None:
            return []
        for item in plan.items:
            if item.disclosure is Disclosure.MIXED:
                labelled = any(len(message.fields) > 1 for message in item.messages)
                said = _LABELS if labelled else _NO_LABELS
                found.append(MIXTURES.format(item.id, of_mix(mix), said))
                found += [RELAYED.format(item.id)] if find(chain, "relay") else []
        return found

    def unaccounted(self, items: Sequence[Item]) -> str:
        """Name the items whose mixtures are noised."""
        return listed(BLURRED, [item for item in items if under(item, "blur")])


WORDS = MixedWords(Disclosure.MIXED)


# From records to mixtures, and into boxes for a relay (O22, O23).


class MixedProtection(Protection):
    """Groups are drawn once in a run; only what they hold together leaves."""

    def own(self) -> Mixer:
        """Return who is mixed with whom."""
        return Mixer()

    def captured(self, own: Mixer) -> Numbers | None:
        """Return the groups, for audits at this client."""
        return own.groups

    def layout(
        self, context: RunContext, item: Item, kinds: tuple[type[Message], ...]
    ) -> Layout | None:
        """Return the grid of mixtures."""
        chain = context.policy.chain(item.disclosure)
        return MixLayout(kinds[0], chain, context.dims(item))

    def prepare(self, release: Release) -> tuple[bytes, bool]:
        """Mix. The ledger says that groups were drawn or mixtures withheld, and not which."""
        context, item, where, (message,) = (
            release.context,
            release.item,
            release.where,
            release.messages,
        )
        layout = MixLayout(type(message), release.chain, release.dims)
        body, clipped, told = release.own.mixed(message, layout, release.seeded("mixing"))
        for kind, facts in told.items():
            place = {"exchange": where.exchange, "item": item.id, "round": where.round}
            release.record(kind, {**place, **facts})
        if context.relays(item):
            reader, info = (
                context.roster.one(Role.AGGREGATOR),
                box_info(context, item.id, where),
            )
            body = into_boxes(body, layout, reader.seal, info)
        return body, clipped

    def body(self, release: Release, header: Header, prepared: Any) -> tuple[bytes, bool]:
        """Return what was mixed before the header was made."""
        body, clipped = prepared
        return body, clipped


PROTECT = MixedProtection()


# What the aggregator holds of mixtures, before a relay took the senders off and afterwards.


class EachView(OneVerb):
    """MIXED: each client's mixtures, ordered by content, so that the order tells no sender.

    After a relay it is one message, of all clients' mixtures.

    Args:
        bodies: what every client sent.
        read: returns the message of a body.
    """

    verb = "each"

    def __init__(self, bodies: Iterable[bytes], read: Callable[[bytes], Message]) -> None:
        ordered = sorted(bodies, key=lambda body: hashlib.sha256(body).digest())
        self._messages = tuple(read(body) for body in ordered)

    def _answer(self, **options: Any) -> tuple[Message, ...]:
        return self._messages


class Mixtures(Relayed):
    """The mixtures of one Ask."""

    verb: ClassVar[str] = EachView.verb
    disclosure: ClassVar[Disclosure] = Disclosure.MIXED

    def pooled(self, contents: Sequence[bytes]) -> None:
        """Keep one body of all mixtures; raises BadEnvelope for one that holds none."""
        layout = self.pool_layout()
        body = from_boxes(contents, layout)
        layout.decode(body)  # refused here, while it is known who sent it
        super().pooled((body,))

    def pool_layout(self) -> MixLayout:
        """Return how the mixtures of all survivors stand in one body."""
        (kind,) = self.kinds
        places = {"mixtures": self.dims["mixtures"] * len(self.survivors)}
        chain = self._context.policy.chain(kind.disclosure)
        return MixLayout(kind, chain, {**self.dims, **places})

    def views(self) -> dict[type[Message], View]:
        """Return the mixtures; after a relay in one message, of all clients."""
        if self.pool is not None:
            return dict.fromkeys(self.kinds, EachView(self.pool, self.pool_layout().decode))
        chain, bodies = self._context.policy.chain(self.item.disclosure), self.bodies().values()
        layouts = {kind: MixLayout(kind, chain, self.dims) for kind in self.kinds}
        return {kind: EachView(bodies, layout.decode) for kind, layout in layouts.items()}

    @classmethod
    def clear(
        cls, kind: type[Message], sent: Mapping[str, Message], dims: Mapping[str, int], **more: Any
    ) -> tuple[Message, ...]:
        """Return each client's message."""
        return by_content(sent, dims)


VIEW = Mixtures
