"""MATCH: its rules, plan, words, protection, answers, and what plan and roster must agree on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from crypto.samplers import Stream
from protocols.disclosures._base.plan import Planning
from protocols.disclosures._base.protect import Protection, Release
from protocols.disclosures._base.rules import Limits, Rules
from protocols.disclosures._base.view import Answers, OneVerb
from protocols.disclosures._base.words import NETWORK, Chain, Planned, Words, listed, under
from protocols.disclosures.match.guards import SMALLEST_CELL, Match
from protocols.disclosures.match.layout import MatchLayout, planned_found
from protocols.disclosures.match.messages import (
    Box,
    Bundle,
    Canary,
    CellBoxes,
    CellPart,
    CellTotals,
    Listed,
)
from protocols.disclosures.match.protocol.cells import LABEL_BYTES
from protocols.disclosures.match.protocol.wire import Kind, box_length
from protocols.disclosures.match.run import VALUES, held, match_guard, match_item, match_run_of
from protocols.disclosures.names import Disclosure
from protocols.disclosures.noised.disclosure import local_noise
from protocols.disclosures.noised.guards import Laplace
from protocols.errors import CohortTooSmall, NotInPlan, PolicyError, UnfitMessage
from protocols.forms import Exchange, Form
from protocols.messages import Array, Message
from protocols.plan.builder import PlanBuilder, Times
from protocols.plan.plan import Item, Layout
from protocols.plan.steps import Part, Service, Step
from protocols.policy.guard import Guard, find, guard_of
from protocols.policy.guards import Clip, Quantise
from protocols.rounds import Sealed, View
from protocols.wire.control import Acknowledgement
from protocols.wire.envelope import Header, Where
from protocols.wire.roles import Role
from protocols.wire.run_context import RunContext

# Which chains protect what is matched, and which forms can be matched by tags (O24, O25).

_MATCHED = ("clip", "quantise", "match")
_PUBLISHED = ("clip", "laplace", "match", "unsafe_clear")


class MatchRules(Rules):
    """Tags in place of items, and means over cells; or as published, and then Unsafe."""

    protecting = frozenset({"match", "unsafe_clear"})
    applied = protecting | {"clip", "quantise", "laplace", "seal"}
    order = "clip, quantise, match, seal; or clip, laplace, match, unsafe_clear"

    def check(self, chain: Chain) -> None:
        """Hold what is matched to the chain of its form and mode."""
        match, quantise = guard_of(chain, Match), guard_of(chain, Quantise)
        if match is None:
            super().check(chain)
            return
        published = match.form == "published"
        wanted = (*_MATCHED, "unsafe_clear" if match.unsafe else "seal")
        wanted = _PUBLISHED if published else wanted
        if tuple(guard.guard for guard in chain) != wanted:
            of = f"MATCH, form '{match.form}', mode '{match.mode}'"
            raise ValueError(f"needed are exactly {', '.join(wanted)}, for {of}")
        if published:
            _check_published(chain)
        elif 2 * match.cell >> (32 - (quantise.bits if quantise else 0)):
            raise ValueError("'quantise' has too many bits: cells add up in 32 bits")

    def accounted(self, chain: Chain) -> bool:
        """Which items are equal is told without noise."""
        return guard_of(chain, Match) is None

    def check_policy(self, chain: Chain, policy: Limits) -> None:
        """Refuse cells and floors that colluders of the policy would fill."""
        if (match := guard_of(chain, Match)) is None:
            return
        smallest = max(policy.smallest_cohort, SMALLEST_CELL + policy.colluders)
        if match.form == "cell_means" and match.cell < smallest:
            raise ValueError(f"cell: at least {smallest}, colluders counted (O10)")
        if match.floor < 3 + policy.colluders:
            raise ValueError(f"floor: at least {3 + policy.colluders}, colluders counted (O10)")

    def among(self, exchanges: Sequence[Exchange], chain: Chain) -> str | None:
        """Say what of a form cannot be matched by tags."""
        return _objection(exchanges) if guard_of(chain, Match) else None


def _check_published(chain: Chain) -> None:
    """Hold the noise on vectors that strangers read to one with an epsilon; raises ValueError."""
    clip, noise = guard_of(chain, Clip), guard_of(chain, Laplace)
    if not clip or clip.norm != "linf":
        raise ValueError("'laplace' needs 'clip' with norm linf before it")
    if not noise or noise.how != "fixed":
        raise ValueError("'laplace' is fixed: a scale that follows the data has no epsilon")
    noise.steps(clip.bound)


def _objection(exchanges: Sequence[Exchange]) -> str | None:
    asked = [e for e in exchanges if any(k.disclosure is Disclosure.MATCH for k in e.back)]
    if len(asked) > 1:
        return "two exchanges bring back what is matched; one is possible"
    for exchange in asked:
        if len(exchange.back) > 1 or exchange.per_round > 1 or exchange.outside:
            return f"{exchange.name} must bring back one matched message, once a round at most"
        (kind,) = exchange.back
        keys = [f for f in kind.fields if f.key and len(f.shape) == 1]
        reals = [f for f in kind.fields if f.wire in ("f4", "f8")]
        if (len(keys), len(reals), len(kind.fields)) != (1, 1, 2):
            return f"message {kind.__name__} needs one key field and one real field to be matched"
    for exchange in exchanges:
        for kind in exchange.given:
            names = [f.name for f in kind.fields if f.wire == "u8"]
            whole = len(kind.fields) == 2 and names == ["row"]
            if kind.disclosure is Disclosure.MATCH and not (asked and whole):
                return f"message {kind.__name__} needs the field 'row' and one real field"
    return None


RULES = MatchRules()


# What plans say of matching: who sees what, and what a reader must know (O24, O25).

POINTS = "who asks and when; uniform points, as many of everybody; no item, no tag"
SECOND_POINTS = (
    "the second one: who asks and when; uniform points (a client's times the first share), as many "
    "of everybody; no item, no tag"
)
HALFWAY = "its own points times the first tag server's share: uniform"
BOXED = "size only: boxes that it cannot open, and who takes part when"
MATCHER = (
    "which tags are equal, so the graph of clients and items without the items' names, from which "
    "popular items can be guessed (A03); no item, no vector, no total"
)
HANDED = (
    "single vectors, noised, of some who hold its own items; no names, the same vector under every "
    "item that they share; no other tag"
)
TAKEN = "that the lists arrived"
LISTED = (
    "that all were matched by one canary; and what was computed from disclosed totals (the global "
    "model)"
)
OPENED = "EVERY item of every client: anybody turns these tags back"
TOLD = "who shares its cell, by name; which cells hold its own items; no other tag"
CELL = "who stands in one cell; boxes that it cannot open"
PART = "uniform numbers: shares under a blind that only clients know"
OPEN_PART = "the cells' totals: anybody makes the key of the blinds that its shares are under"
TOTALS = (
    "the mean of every cell; of its own items, which cells hold them; and what was computed from "
    "disclosed totals (the global model)"
)
KEYED = (
    "tags are made with one key that all clients hold (hmac): any client, together with the "
    "matcher, reads every item of everybody"
)
SHARED = (
    "the two tag servers together with the matcher read every item of everybody; the matcher with "
    "one client tests one quota of guesses an epoch, the most held items first, and knows a tag "
    "again in later epochs: as many as the policy's 'epochs' in one run, lost rounds included, if "
    "the aggregator asks for them, and runs add up; the aggregator and one tag server, lying with "
    "them, add no guess beyond that client's quota"
)
OPEN = (
    "UNSAFE: tags are made with a public key (deterministic): the matcher by itself reads every "
    "item of everybody, and all vectors where they are published; the aggregator the cells' totals"
)
UNSERVED = (
    "clients learn by name with whom they share a cell; all of a cell but one together learn that "
    "one's vector; the aggregator with one client learns which cells, of whom by name, hold items "
    "of that client's quota"
)
CELLS = f"{UNSERVED}, and with both tag servers the cells' totals"
LISTS = (
    "UNSAFE: clients read single others' vectors, clipped and noised, without names; the matcher "
    "together with any client reads all of them, and which of them are of whom; the aggregator, "
    "which says who is matched together, learns with any client whose vectors that one reads, and "
    "who of these holds which items of its quota"
)

LISTED_NOISED = (
    "noise is added to the vector of {} by itself: epsilon = infinity for the run, as which items "
    "match depends on the data; covered: vectors alone, as said below; not covered: all messages "
    "as a whole"
)

TEXTS = (KEYED, SHARED, OPEN, CELLS, UNSERVED, LISTS)
"""What plans warn of, and reports say again."""


def upload_learns(match: Match) -> dict[str, str]:
    """Return, per role, what the first boxes of a matching tell it."""
    others = "its vector, noised, by itself" if match.form == "published" else "nothing"
    return {"aggregator": BOXED, "other clients": others, "network": NETWORK} | (
        {"tag_server": POINTS} if match.servers else {"matcher": matcher_learns(match)}
    )


def part_learns(match: Match) -> str:
    """Return what the members' sums of shares tell the aggregator by itself."""
    return OPEN_PART if match.mode == "deterministic" else PART


def matcher_learns(match: Match) -> str:
    """Return what the tags tell the matcher by itself."""
    return OPENED if match.mode == "deterministic" else MATCHER


class MatchWords(Words):
    """Items that are matched by tags."""

    limits = TEXTS

    def handed(self, model: bool) -> str:
        """Return what a client is given."""
        return "what others hold under its own keys"

    def in_clear(self, item: Item) -> str:
        """Say nothing of boxes that stay locked; what others get out of them is said below."""
        return "" if under(item, "match") else super().in_clear(item)

    def warnings(self, plan: Planned) -> list[str]:
        """Say what matching rests on, where a plan matches by tags."""
        if not any((i.part, i.step) == (self.disclosure, Step.COMPARE) for i in plan.items):
            return []
        guards = [text for i in plan.items for text in i.guards if text.startswith("match(")]
        modes = {"oprf": SHARED, "hmac": KEYED, "deterministic": OPEN}
        lists = any(item.step is Step.TAKEN for item in plan.items)
        made = [said for mode, said in modes.items() if f"mode={mode}," in guards[0]]
        return [*made, LISTS if lists else CELLS if SHARED in made else UNSERVED]

    def unaccounted(self, items: Sequence[Item]) -> str:
        """Name the items whose vectors are noised one by one."""
        noised = [item for item in items if under(item, "laplace") and under(item, "match")]
        return listed(LISTED_NOISED, noised)

    def spends(self, item: Item, chain: Chain) -> list[str]:
        """Return what the noise on one number of a vector comes to."""
        beside = "which items a client holds, nor by which of them its vector reaches others"
        return local_noise(item, chain, beside)


WORDS = MatchWords(Disclosure.MATCH)


# The plan items of matching: what travels between an answer and its cells' totals (O24, O25).

_CLIENT, _AGGREGATOR = str(Role.CLIENT), str(Role.AGGREGATOR)
_SERVER, _MATCHER = str(Role.TAG_SERVER), str(Role.MATCHER)


def totals_dims(match: Match, size: int, clients: int) -> dict[str, int]:
    """Return the sizes of what holds all cells' totals."""
    cells = match.cells(clients)
    labels, totals = LABEL_BYTES * cells, 4 * size * cells
    return {"cell_mask": -(-cells // 8), "cell_labels": labels, "cell_totals": totals}


def _plan_matching(
    planner: PlanBuilder, name: str, kind: type[Message], match: Match, times: Times
) -> None:
    """Add one Ask's matched message, and everything that follows it.

    Raises:
        CohortTooSmall: fewer clients than one cell needs.
    """
    chain: tuple[Guard, ...] = planner.policy.chain(Disclosure.MATCH)
    layout, clients = MatchLayout(kind, chain, planner.dims), len(planner.clients)
    published = match.form == "published"
    if clients < match.cell and not published:
        raise CohortTooSmall(f"A cell takes {match.cell} clients, and there are {clients} (O25).")
    _check_places(planner, match, layout)

    def size(kind: Kind) -> int:
        return box_length(kind, match, layout.length, clients)

    keyed = match.servers == 0
    first = size(Kind.TAGS if keyed else Kind.POINTS)
    part, route = Disclosure.MATCH, (_CLIENT, _AGGREGATOR)
    planner.add(
        name, part, Step.UP, route, (kind,), part, times, body=first, layout=layout,
        dims={VALUES: layout.length}, said=upload_learns(match),
    )  # fmt: skip
    back, down = (_CLIENT, _AGGREGATOR), (_AGGREGATOR, _CLIENT)
    all_of = {kind: {"match_bundle": clients * size(kind)} for kind in Kind}
    if not keyed:
        points, answers = (all_of[kind] for kind in (Kind.POINTS, Kind.ANSWER))
        boxes = {"match_boxes": size(Kind.ANSWER)}
        _add(planner, name, Step.POINTS, (_AGGREGATOR, _SERVER), times, Bundle,
             dims=points, said={_SERVER: POINTS})  # fmt: skip
        _add(planner, name, Step.ANSWERS, (_SERVER, _AGGREGATOR), times, Bundle,
             dims=answers, said={_AGGREGATOR: BOXED})  # fmt: skip
        _add(planner, name, Step.HALFWAY, down, times, Box, dims=boxes, said={_CLIENT: HALFWAY})
        _add(planner, name, Step.ONWARD, back, times, Box,
             dims={"match_boxes": size(Kind.POINTS)}, said={_AGGREGATOR: BOXED})  # fmt: skip
        _add(planner, name, Step.SECOND_POINTS, (_AGGREGATOR, _SERVER), times, Bundle,
             dims=points, said={_SERVER: SECOND_POINTS})  # fmt: skip
        _add(planner, name, Step.SECOND_ANSWERS, (_SERVER, _AGGREGATOR), times, Bundle,
             dims=answers, said={_AGGREGATOR: BOXED})  # fmt: skip
        said = {_CLIENT: "its own tags"}
        _add(planner, name, Step.TAGGED, down, times, Box, dims=boxes, said=said)
        boxes = {"match_boxes": size(Kind.TAGS)}
        _add(planner, name, Step.TAGS, back, times, Box, dims=boxes, said={_AGGREGATOR: BOXED})
    _add(planner, name, Step.COMPARE, (_AGGREGATOR, _MATCHER), times, Bundle,
         dims=all_of[Kind.TAGS], said={_MATCHER: matcher_learns(match)})  # fmt: skip
    found = Kind.HANDED if published else Kind.TOLD
    _add(planner, name, Step.COMPARED, (_MATCHER, _AGGREGATOR), times, Bundle, Canary,
         dims=all_of[found], said={_AGGREGATOR: BOXED})  # fmt: skip
    boxes = {"match_boxes": size(found)}
    told = {_CLIENT: HANDED if published else TOLD}
    _add(planner, name, Step.TOLD, down, times, Box, dims=boxes, said=told)
    if published:
        said = {_AGGREGATOR: TAKEN}
        _add(planner, name, Step.TAKEN, back, times, Acknowledgement, dims={}, said=said)
    else:
        _plan_cells(planner, name, match, layout, times)


def _plan_cells(
    planner: PlanBuilder, name: str, match: Match, layout: MatchLayout, times: Times
) -> None:
    """Add what members of a cell send each other, and what is added up of it."""
    clients, back = len(planner.clients), (_CLIENT, _AGGREGATOR)
    size = box_length(Kind.SHARE, match, layout.length, clients)
    share = {"match_boxes": match.largest(clients) * size}
    _add(planner, name, Step.SPLIT, back, times, CellBoxes, dims=share, said={_AGGREGATOR: CELL})
    said = {_CLIENT: "uniform numbers, one of each member of its cell"}
    _add(planner, name, Step.MATES, (_AGGREGATOR, _CLIENT), times, Box, dims=share, said=said)
    words = {"cell_words": 4 * layout.length}
    said = {_AGGREGATOR: part_learns(match)}
    _add(planner, name, Step.PART, back, times, CellPart, dims=words, said=said)


def _add(
    planner: PlanBuilder,
    name: str,
    step: Step,
    route: tuple[str, str],
    times: Times,
    *kinds: type[Message],
    dims: dict[str, int],
    said: dict[str, str],
) -> None:
    said = {**said, "network": NETWORK}
    part, sealed = Disclosure.MATCH, Disclosure.SEALED
    planner.add(name, part, step, route, kinds, sealed, times, dims=dims, said=said)


def _check_places(planner: PlanBuilder, match: Match, layout: MatchLayout) -> None:
    """Refuse, before anything is sent, an algorithm with fewer places than are found."""
    most = match.found(layout.catalogue)
    for exchange in planner.exchanges:
        for kind in exchange.given:
            if kind.disclosure is not Disclosure.MATCH:
                continue
            for field in kind.fields:
                if field.sizes(planner.dims)[0] < most:
                    raise PolicyError(
                        f"{kind.__name__} has fewer places than a client may be told of ({most}).",
                        fix="lower 'cap' of the guard 'match', or in 'published' its 'neighbours'",
                    )


class MatchPlanning(Planning):
    """Boxes that only tag servers, matcher and members of a cell open."""

    def dims(
        self, form: Form[Any], chain: Sequence[Guard], dims: Mapping[str, int], records: int
    ) -> dict[str, int]:
        """Return how much a client is told of others."""
        return planned_found(chain, dims)

    def most(self, plan: PlanBuilder, exchange: Exchange) -> int | None:
        """Return how often items may be matched in the run: the policy says it.

        The gateway holds every party to it, so that no aggregator makes each round an epoch (O24).

        Raises:
            PolicyError: the algorithm means to have items matched more often.
        """
        match = match_guard(plan.policy.rules.get(self.disclosure, ()))
        if match is None:
            return None
        due = exchange.per_round * (
            plan.rounds if exchange.due is None else exchange.due(plan.rounds)
        )
        if due > match.epochs:
            raise PolicyError(
                f"Items would be matched {due} times in this run; the policy allows "
                f"{match.epochs}.",
                why="every epoch gives a client that works with the matcher one more quota of "
                "guesses",
                fix="have them matched less often, or raise 'epochs' of the guard 'match'",
            )
        return match.epochs

    def up(
        self, plan: PlanBuilder, name: str, kinds: tuple[type[Message], ...], times: Times
    ) -> None:
        """Add one Ask's matched message, and everything that follows it."""
        match = match_guard(plan.policy.chain(self.disclosure))
        if match is None:
            super().up(plan, name, kinds, times)
        else:
            _plan_matching(plan, name, kinds[0], match, times)

    def handed_down(self, kind: type[Message], chain: Sequence[Guard]) -> type[Message]:
        """Return what holds cells' totals, or the canary of lists; in clear the message itself."""
        match = match_guard(chain)
        if match is None:
            return kind
        return Listed if match.form == "published" else CellTotals

    def handed_said(self, plan: PlanBuilder) -> dict[str, str] | None:
        """Return who learns what of an Ask that hands out what was found."""
        match = match_guard(plan.policy.rules.get(self.disclosure, ()))
        if match is None:
            return None
        said = LISTED if match.form == "published" else TOTALS
        return {_CLIENT: said, "network": NETWORK}

    def down(self, plan: PlanBuilder, exchange: Exchange, times: Times) -> dict[str, int]:
        """Return the sizes of cells' totals."""
        match = match_guard(plan.policy.rules.get(self.disclosure, ()))
        if match is None or match.form == "published":
            return {}
        back = [k for e in plan.exchanges for k in e.back if k.disclosure is self.disclosure]
        layout = MatchLayout(back[0], plan.policy.chain(self.disclosure), plan.dims)
        return totals_dims(match, layout.length, len(plan.clients))


PLAN = MatchPlanning(Disclosure.MATCH)


# From items and a vector to boxes that only tag servers or the matcher open (O24).


class MatchProtection(Protection):
    """What a client asks to be matched."""

    def layout(
        self, context: RunContext, item: Item, kinds: tuple[type[Message], ...]
    ) -> Layout | None:
        """Return the grid of a vector that is matched by tags."""
        chain = context.policy.chain(item.disclosure)
        if not find(chain, "match"):
            return None
        return MatchLayout(kinds[0], chain, context.dims(item))

    def body(self, release: Release, header: Header, prepared: Any) -> tuple[bytes, bool]:
        """Hand the message to the client's own part in matching."""
        if not find(release.chain, "match"):
            return super().body(release, header, prepared)
        (message,) = release.messages
        layout = MatchLayout(type(message), release.chain, release.dims)
        stream = Stream(release.seeded("rounding"))
        return held(release.context).begin(message, layout, release.where, stream)


PROTECT = MatchProtection()


# What the aggregator holds of messages that are matched, and in the end what it may hand on.


class Cells(Sealed):
    """Blinded totals of all cells, which clients open, or the canary of lists that they have."""

    def __init__(self, kind: type[Message], told: Message) -> None:
        super().__init__(kind, {})
        self.told = told


class CellsView(OneVerb):
    """MATCH, protected: which items are equal stands with the clients, and nothing of it here."""

    verb = "matched"

    def __init__(self, told: Message) -> None:
        self._told = told

    def _answer(self, **options: Any) -> Sealed:
        return Cells(options["into"], self._told)


class Matchable(Answers):
    """The boxes of one Ask; in clear its messages.

    Attributes:
        told: what clients are told of the matching, once it ended.
    """

    verb: ClassVar[str] = CellsView.verb

    def __init__(self, context: RunContext, exchange: Exchange, where: Where, part: Part) -> None:
        super().__init__(context, exchange, where, part)
        self.told: Message | None = None

    def views(self) -> dict[type[Message], View]:
        """Return what may be handed on."""
        if self.told is None:
            return super().views()
        return dict.fromkeys(self.kinds, CellsView(self.told))

    @classmethod
    def clear(
        cls, kind: type[Message], sent: Mapping[str, Message], dims: Mapping[str, int], **more: Any
    ) -> Sealed:
        """Return, for each client, what others hold under its keys, from messages in clear."""
        return _matched(kind, sent, more["into"], dims)


def _matched(
    kind: type[Message], sent: Mapping[str, Message], into: type[Message], dims: Mapping[str, int]
) -> Sealed:
    """For each client: the rows that others carry under keys it holds itself.

    `into` declares, beside the carried fields by name, one count field ``row`` of the same
    first dimension: 1 + the index of the own key a found row belongs to, 0 for padding.
    """
    (key,) = [field for field in kind.fields if field.key]
    if any(f.shape[:1] != key.shape for f in kind.fields if not f.key):
        return _meant(kind, key.name, sent, into, dims)
    carried = [field for field in kind.fields if not field.key]
    deliveries: dict[str, Message] = {}
    for name, mine in sent.items():
        own = {int(k): i + 1 for i, k in enumerate(getattr(mine, key.name)) if k}
        found = [
            (own[int(k)], [np.asarray(getattr(other, f.name))[i] for f in carried])
            for peer, other in sent.items()
            if peer != name
            for i, k in enumerate(getattr(other, key.name))
            if int(k) in own
        ]
        deliveries[name] = _fill(into, carried, found, dims)
    return Sealed(into, deliveries)


def _meant(
    kind: type[Message],
    key: str,
    sent: Mapping[str, Message],
    into: type[Message],
    dims: Mapping[str, int],
) -> Sealed:
    """For each client: by key that others hold too, the mean of the vectors of all who do.

    What O25 forbids: means by item tell whoever holds them, and who holds what, every vector.
    """
    (real,) = [field.name for field in kind.fields if field.name != key]
    (name,) = [field.name for field in into.fields if field.name != "row"]
    keys = np.stack([np.asarray(getattr(m, key)) for m in sent.values()]) > 0
    vectors = np.stack([np.asarray(getattr(m, real)) for m in sent.values()])
    held = keys.sum(axis=0)
    means = (keys.T.astype(np.float64) @ vectors) / np.maximum(held, 1)[:, None]
    field = next(field for field in into.fields if field.name == name)
    deliveries = {}
    for client, mine in zip(sent, keys, strict=True):
        found = np.flatnonzero(mine & (held > 1))
        row = np.zeros(field.sizes(dims)[0], dtype=np.int64)
        block = np.zeros(field.sizes(dims))
        row[: len(found)], block[: len(found)] = 1 + found, means[found]
        values: dict[str, Any] = {"row": row, name: block}
        deliveries[client] = into(**values)
    return Sealed(into, deliveries)


def _fill(
    into: type[Message], carried: list[Any], found: list[Any], dims: Mapping[str, int]
) -> Message:
    places = min((field.sizes(dims)[0] for field in into.fields), default=0)
    if len(found) > places:
        raise UnfitMessage(
            f"{into.__name__}: a client has more matches than the plan has places for.",
            fix="plan more places; dropping some would favour clients by their order",
        )
    values: dict[str, Array] = {}
    for field in into.fields:
        integer = field.wire == "u8"
        block = np.zeros(field.sizes(dims), dtype=np.int64 if integer else np.float64)
        for place, (row, parts) in enumerate(found):
            by_name = dict(zip([f.name for f in carried], parts, strict=True))
            block[place] = row if field.name == "row" else by_name[field.name]
        values[field.name] = block
    return into(**values)


VIEW = Matchable


# What plan, policy and roster must agree on before anything is matched (O24).


def _check(context: RunContext) -> None:
    """Raise NotInPlan unless the roster holds who makes and who compares tags (O24)."""
    run = match_run_of(context)
    if run is None:
        return
    servers = len(context.roster.names(Role.TAG_SERVER))
    if servers != run.match.servers:
        raise NotInPlan(
            f"The roster holds {servers} tag servers; the policy asks for {run.match.servers}.",
            why="the key of tags is cut in two, so that nobody makes tags alone (O24)",
            fix="name two tag servers of two organisations; none in 'hmac' mode",
        )
    _check_epochs(context, run.match.epochs)


def _check_epochs(context: RunContext, epochs: int) -> None:
    """Raise NotInPlan unless one message is matched, and no oftener than the policy says (O24).

    A second one would have a count of its own.
    """
    plan = context.plan
    asked = [
        item
        for item in plan.items
        if item.disclosure is Disclosure.MATCH and item.sender == str(Role.CLIENT)
    ]
    if asked != [match_item(plan)]:
        raise NotInPlan(
            "The plan has other than one message of clients matched.",
            why="each would be matched as often as the policy says, by itself",
            fix="make a new plan with this policy",
        )
    name, whole = asked[0].exchange, (Service.ASK, Disclosure.MATCH)
    for item in plan.items:
        if item.exchange == name and item.part in whole and item.times > epochs:
            raise NotInPlan(
                f"The plan has items matched {item.times} times ({item.id}), the policy {epochs}.",
                why="every epoch is one more quota of guesses for whoever works with the matcher",
                fix="make a new plan with this policy",
            )


CONTEXT = _check
