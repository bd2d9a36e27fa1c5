"""NEIGHBOUR_SUM: its rules, plan, words, protection, answers, and what its plan must state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from crypto.errors import OutOfRange
from crypto.masks import masked
from crypto.samplers import Stream, entropy
from protocols.disclosures._base.plan import Planning
from protocols.disclosures._base.protect import Protection, Release
from protocols.disclosures._base.rules import Limits, Rules
from protocols.disclosures._base.view import Answers, OneVerb
from protocols.disclosures._base.words import NETWORK, Chain, Planned, Words, words_of
from protocols.disclosures.names import Disclosure
from protocols.disclosures.neighbour_sum.layout import NeighbourGrid, box_info, commitment, grid_of
from protocols.disclosures.neighbour_sum.messages import NeighbourBoxes
from protocols.disclosures.sum.layout import Words as RingWords
from protocols.disclosures.sum.masks import check_mask
from protocols.errors import LocalProtocolError, NotInPlan, PolicyError
from protocols.forms import Exchange, Form
from protocols.keys.groups import slot_of
from protocols.keys.pairs import close_box
from protocols.messages import Message
from protocols.plan.builder import UP, PlanBuilder, Times
from protocols.plan.cohorts import TopologyPlan
from protocols.plan.plan import Item, Layout
from protocols.plan.steps import Step
from protocols.policy.admission import asked_holders, has_weights
from protocols.policy.guard import Guard, find, guard_of
from protocols.policy.guards import Clip
from protocols.rounds import Sealed, View
from protocols.wire.envelope import NONE, Header, Where
from protocols.wire.run_context import RunContext

# Which chain protects a NEIGHBOUR_SUM message, and which forms it fits.

_CHAINS = (
    ("clip", "quantise", "mask_neighbours", "seal"),
    ("clip", "quantise", "unsafe_clear"),
)


class NeighbourRules(Rules):
    """Integers, masked within each neighbourhood; or in clear, where the coordinator reads all."""

    protecting = frozenset({"mask_neighbours", "unsafe_clear"})
    applied = protecting | {"clip", "quantise", "seal"}
    order = "clip, quantise, mask_neighbours, seal"

    def check(self, chain: Chain) -> None:
        """Hold it to its chains."""
        if tuple(guard.guard for guard in chain) not in _CHAINS:
            raise ValueError(f"needed are exactly {' or '.join(', '.join(c) for c in _CHAINS)}")
        clip = guard_of(chain, Clip)
        if clip is not None and clip.norm != "linf":
            raise ValueError("'clip' bounds every weight here: norm linf")

    def accounted(self, chain: Chain) -> bool:
        """Tell that these sums have no noise, so none can be accounted."""
        return find(chain, "mask_neighbours") is None

    def alone(self, chain: Chain) -> bool:
        """Tell that an exchange holds one such message."""
        return True

    def objection(self, kind: type[Message], form: Form[Any], policy: Limits) -> str | None:
        """Refuse counts, forms without neighbours, and rows of items that one client may hold."""
        if form.topology is None:
            return f"message {kind.__name__} goes to neighbours, and the form has no topology"
        if form.drawn:
            return f"message {kind.__name__} goes to the same neighbours in every round; none drawn"
        if any(field.wire not in ("f4", "f8") for field in kind.fields):
            return f"message {kind.__name__} holds counts, which cannot be mixed"
        if (asks := asked_holders(policy)) and form.rows and has_weights(kind, form.exchanges):
            of = "has weights of items that one client may hold"
            return f"message {kind.__name__} {of}, and {asks}"
        return None

    def among(self, exchanges: Sequence[Exchange], chain: Chain) -> str | None:
        """Refuse all but one such message a round, handed out once in it, and others beside it."""
        for exchange in exchanges:
            for kind in (k for k in exchange.back if k.disclosure is Disclosure.NEIGHBOUR_SUM):
                given = [other for other in exchanges if kind in other.given]
                both = [exchange, *given]
                if len(given) != 1 or any((one.per_round, one.outside) != (1, 0) for one in both):
                    return (
                        f"message {kind.__name__} is asked and handed out other than once a round"
                    )
        asked = [e for e in exchanges for k in e.back if k.disclosure is Disclosure.NEIGHBOUR_SUM]
        if len(asked) > 1:
            return "it asks for two sums over neighbours in a round"
        return _beside(exchanges) if asked else None


def _beside(exchanges: Sequence[Exchange]) -> str | None:
    """Refuse real numbers by another way: of a total, less what two read, few are left (O5)."""
    for exchange in exchanges:
        for kind in (k for k in exchange.back if k not in exchange.held_out):
            real = any(field.wire in ("f4", "f8") for field in kind.fields)
            if real and kind.disclosure is not Disclosure.NEIGHBOUR_SUM:
                return f"message {kind.__name__} holds real numbers beside sums over neighbours"
    return None


RULES = NeighbourRules()


# What plans say of sums over neighbours.

COORDINATOR = (
    "there is no aggregator of models: the coordinator starts rounds and hands on boxes that only "
    "the addressed clients open; it sees who takes part, when, and sizes, and can say that a "
    "client is away"
)
SUMS = "every client reads, in each round that nobody of it misses, a sum over its neighbours; "
ROUNDS = (
    "on how many others sums rest is counted within a round: over rounds a client also knows from "
    "what its neighbours went on. Who is kept from mixing, as a neighbour or the coordinator can, "
    "trains alone, and its model is read in their sums up to what the others learnt in one round; "
    "where clients mix and hardly train, sums of many rounds tell single models"
)
THIN = "UNSAFE: topology_floor: unsafe lets a sum over neighbours rest on too few: "
SINGLE = "EVERYTHING: each neighbour's message in clear"


class NeighbourWords(Words):
    """Each client reads one sum, and the coordinator none."""

    limits: ClassVar[tuple[str, ...]] = (COORDINATOR, SUMS, ROUNDS, THIN)

    def learns(self, chain: Chain, network: str) -> dict[str, str]:
        """Return, per role, what a client's vector tells it."""
        return {
            "aggregator": "nothing: as coordinator it hands on boxes that it cannot open",
            "addressee": "the weighted sum over its own neighbours, if none is missing",
            "network": network,
        }

    def together(self, chain: Chain) -> dict[str, str]:
        """Return what receivers see together."""
        return {"receivers that work together": "combinations of their sums; see the topology"}

    def handed(self, model: bool) -> str:
        """Return what a client is given."""
        return "the weighted sum over its own neighbours, if none is missing"

    def warnings(self, plan: Planned) -> list[str]:
        """Warn of the coordinator, of what is read, and of sums over too few; in clear of less."""
        if plan.topology is None:
            return []
        if find(plan.policy.rules.get(self.disclosure, ()), "unsafe_clear"):
            return []  # that everything leaves in clear is said already, and nothing else is true
        found = [COORDINATOR, SUMS + plan.topology.words, ROUNDS]
        thin = plan.topology.floor == "unsafe"
        return [THIN + plan.topology.thinnest, *found] if thin else found


WORDS = NeighbourWords(Disclosure.NEIGHBOUR_SUM)


# The plan items of sums over neighbours: boxes up, boxes down, and nothing that opens them.


class NeighbourPlanning(Planning):
    """As many boxes as a client has neighbours, on either way."""

    def up(
        self, plan: PlanBuilder, name: str, kinds: tuple[type[Message], ...], times: Times
    ) -> None:
        """Add the boxes of an Ask."""
        grid, place = self._grid(plan, kinds), (name, self.disclosure, Step.UP, UP, kinds)
        size = grid.box_bytes * self._width(plan)
        plan.add(*place, self.disclosure, times, body=size, layout=grid.layout)

    def handed_down(self, kind: type[Message], chain: Sequence[Guard]) -> type[Message]:
        """Return what holds the neighbours' boxes."""
        return NeighbourBoxes

    def down(self, plan: PlanBuilder, exchange: Exchange, times: Times) -> dict[str, int]:
        """Return the size of all boxes that an Ask hands to one client."""
        kinds = tuple(k for k in exchange.given if k.disclosure is self.disclosure)
        return {"neighbour_boxes": self._grid(plan, kinds).box_bytes * self._width(plan)}

    def handed_said(self, plan: PlanBuilder) -> dict[str, str] | None:
        """Return who learns what of the boxes; in clear, everything."""
        if plan.topology is None:
            return None
        summed = words_of(self.disclosure).handed(True)
        return {"client": summed if plan.between_neighbours else SINGLE, "network": NETWORK}

    def _grid(self, plan: PlanBuilder, kinds: tuple[type[Message], ...]) -> NeighbourGrid:
        try:
            return grid_of(plan.topology, kinds, plan.policy.chain(self.disclosure), plan.dims)
        except OutOfRange as error:
            raise PolicyError(
                "The sum over a client's neighbours does not fit into 64 bits.",
                why=str(error),
                fix="use fewer bits in 'quantise', or a topology whose degrees are more alike",
            ) from error

    def _width(self, plan: PlanBuilder) -> int:
        return plan.topology.width if plan.topology is not None else 0


PLAN = NeighbourPlanning(Disclosure.NEIGHBOUR_SUM)


# From one vector to a box for every neighbour: rounded once, weighed and masked for each.


def _topology(context: RunContext) -> TopologyPlan:
    if context.plan.topology is None:
        raise NotInPlan("A message goes to neighbours, and the plan says of nobody who they are.")
    return context.plan.topology


class NeighbourProtection(Protection):
    """Integers on a grid; every neighbour's box holds them under other masks."""

    def layout(
        self, context: RunContext, item: Item, kinds: tuple[type[Message], ...]
    ) -> Layout | None:
        """Return the grid."""
        chain, dims = context.policy.chain(item.disclosure), context.dims(item)
        return grid_of(context.plan.topology, kinds, chain, dims).layout

    def agreed(self, context: RunContext, item: Item, where: Where) -> str:
        """Return what the masks rest on; NONE in clear."""
        if context.pairs is None or not find(context.policy.chain(item.disclosure), "seal"):
            return NONE
        return context.pairs.agreement(slot_of(item, where.round, where.slot))

    def prepare(self, release: Release) -> Any:
        """Round, and state in the ledger which vector all neighbours are given.

        The rounding may be repeated from the run's seed, as no claim rests on it; the salt may not.
        """
        grid = grid_of(release.context.plan.topology, release.kinds, release.chain, release.dims)
        stream = Stream(release.seeded("rounding"))
        integers, clipped = grid.layout.encode(release.messages, stream)
        digest = commitment(entropy(32), integers)
        where = release.where
        facts: dict[str, object] = {
            "commitment": digest.hex(),
            "exchange": where.exchange,
            "round": where.round,
        }
        release.record("offered", facts)
        return integers, clipped, digest

    def body(self, release: Release, header: Header, prepared: Any) -> tuple[bytes, bool]:
        """Weigh, mask and seal for each neighbour whose whole neighbourhood takes part.

        For the others there are zeros: a sum that lacks somebody is never opened, so nothing is
        sent towards one. In clear the same vectors stand there, unmasked.
        """
        integers, clipped, digest = prepared
        context, item, where = release.context, release.item, release.where
        topology, me = _topology(context), context.me.party.name
        grid = grid_of(topology, release.kinds, release.chain, release.dims)
        receivers, asked = topology.neighbours(me), {*where.members}
        groups = {r: topology.neighbours(r) for r in receivers if r in asked}
        groups = {r: group for r, group in groups.items() if asked.issuperset(group)}
        keys = None
        if find(release.chain, "mask_neighbours"):
            if context.pairs is None:
                raise LocalProtocolError("The pair secrets of this epoch are not here.")
            slot, alone = slot_of(item, where.round, where.slot), context.pairs.alone
            label = context.mask_label(item, where, header.key, header.pairs)
            groups = {r: group for r, group in groups.items() if alone.paired(slot, group)}
            keys = alone.keys(slot, groups, label)
        boxes = []
        for receiver in receivers:
            if receiver not in groups:
                boxes.append(bytes(grid.box_bytes))
                continue
            residues = grid.ring.residues(integers * topology.shares[me][receiver])
            info = box_info(context.run, where.exchange, item.id, me, receiver)
            if keys is None:
                boxes.append((digest + residues.tobytes()).ljust(grid.box_bytes, b"\0"))
                continue
            hidden = _masked(residues, grid.ring.modulus, *keys[receiver])
            party = context.roster.party(receiver)
            boxes.append(close_box(digest + hidden.tobytes(), context.me, party, info))
        return b"".join(boxes).ljust(topology.width * grid.box_bytes, b"\0"), clipped


def _masked(residues: RingWords, modulus: int, plus: list[bytes], minus: list[bytes]) -> RingWords:
    """Add this client's masks; raises LocalProtocolError where they are none."""
    hidden = masked(residues, modulus, plus, minus)
    check_mask(residues, hidden, modulus)
    return hidden


PROTECT = NeighbourProtection()


# What the coordinator holds of what neighbours send each other: boxes that it cannot open.


class Neighbourly(Sealed):
    """For each client the boxes of its neighbours, to be handed on."""


class NeighbourView(OneVerb):
    """NEIGHBOUR_SUM: boxes that only the addressed clients can open."""

    verb = "between_neighbours"

    def __init__(self, kind: type[Message], boxes: Mapping[str, bytes]) -> None:
        self._kind, self._boxes = kind, dict(boxes)

    def _answer(self, **options: Any) -> Sealed:
        return Neighbourly(self._kind, self._boxes)


class NeighbourAnswers(Answers):
    """The boxes of one Ask, by sender; nothing of them is added up here."""

    verb: ClassVar[str] = NeighbourView.verb
    adds: ClassVar[bool] = False

    def views(self) -> dict[type[Message], View]:
        """Sort the boxes by who opens them; of clients that did not answer they are zeros."""
        topology, (kind,) = self._context.plan.topology, self.kinds
        if topology is None:
            raise LocalProtocolError("The plan says of nobody who its neighbours are.")
        size, bodies, found = self.item.body // topology.width, self.bodies(), {}
        for receiver in self._context.roster.clients:
            boxes = []
            for sender in topology.neighbours(receiver):
                at = topology.neighbours(sender).index(receiver) * size
                boxes.append(bodies.get(sender, b"")[at : at + size].ljust(size, b"\0"))
            found[receiver] = b"".join(boxes).ljust(topology.width * size, b"\0")
        return {kind: NeighbourView(kind, found)}


VIEW = NeighbourAnswers


# What plan and policy must agree on before neighbours read sums (O5, ADR 0053).


def _check(context: RunContext) -> None:
    """Raise NotInPlan unless the plan's topology is what its edges and the policy give."""
    plan = context.plan
    wanted = any(item.disclosure is Disclosure.NEIGHBOUR_SUM for item in plan.items)
    if (plan.topology is not None) != wanted:
        raise NotInPlan("The plan has a topology without sums over neighbours, or these without.")
    if plan.topology is None:
        return
    try:
        again = plan.topology.again(context.policy)
    except (PolicyError, ValueError) as error:
        raise NotInPlan(
            f"The plan's topology does not do: {getattr(error, 'what', error)}"
        ) from error
    if set(plan.topology.shares) != set(plan.clients) or again != plan.topology:
        raise NotInPlan("The plan states another topology than follows from its clients.")


CONTEXT = _check
