"""ROW_SUM: its rules, plan, words, protection, answers, and what plan and roster must agree on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from protocols.disclosures._base.plan import Planning
from protocols.disclosures._base.protect import Protection, Release
from protocols.disclosures._base.rules import Limits, Rules
from protocols.disclosures._base.view import Answers, OneVerb
from protocols.disclosures._base.words import NETWORK, Chain, Planned, Words
from protocols.disclosures.match.disclosure import BOXED, HALFWAY, POINTS, SECOND_POINTS
from protocols.disclosures.match.messages import Box, Bundle, Canary
from protocols.disclosures.match.protocol.wire import Kind
from protocols.disclosures.names import Disclosure
from protocols.disclosures.row_sum.guards import WIDTH, Rows
from protocols.disclosures.row_sum.guards import Rows as RowsGuard
from protocols.disclosures.row_sum.messages import RowParts, RowTotals
from protocols.disclosures.row_sum.protocol.wire import box_bytes, slot_bytes
from protocols.disclosures.row_sum.run import held, row_item, rows_guard
from protocols.errors import LocalProtocolError, NotInPlan, UnfitMessage
from protocols.forms import Exchange, Form
from protocols.messages import Array, Message, RowSumMessage
from protocols.plan.builder import PlanBuilder, Times
from protocols.plan.plan import Item
from protocols.plan.steps import Part, Step
from protocols.policy.guard import Guard, guard_of
from protocols.policy.guards import Clip, Quantise
from protocols.privacy.row_noise import check_row_noise, sensitivity, wanted
from protocols.rounds import Sealed, View
from protocols.wire.codec import decode
from protocols.wire.envelope import Header, Where
from protocols.wire.roles import Role
from protocols.wire.run_context import RunContext

# Which chains protect rows, and which forms can have their rows found by tags (O10, O24).

_PROTECTED = ("clip", "quantise", "rows", "seal")
_NOISED = ("clip", "quantise", "row_noise", "rows", "seal")
_PUBLISHED = ("rows", "unsafe_clear")


class RowSumRules(Rules):
    """Rows under masks, found by tags; or as published, and then Unsafe."""

    protecting = frozenset({"rows", "unsafe_clear"})
    applied = protecting | {"clip", "quantise", "row_noise", "seal"}
    order = "clip, quantise, rows, seal; clip, quantise, row_noise, rows, seal; rows, unsafe_clear"
    from_records = True

    def check(self, chain: Chain) -> None:
        """Hold what is summed to the chain of its form."""
        rows = guard_of(chain, RowsGuard)
        if rows is None:
            super().check(chain)
            return
        wanted = _PUBLISHED if rows.unsafe else _NOISED if rows.noised else _PROTECTED
        if tuple(guard.guard for guard in chain) != wanted:
            raise ValueError(f"needed are exactly {', '.join(wanted)}, for form '{rows.form}'")
        if rows.unsafe:
            return
        norm, of = ("l2", "a node's term") if rows.noised else ("linf", "every entry of a sum")
        if (clip := guard_of(chain, Clip)) is None or clip.norm != norm:
            raise ValueError(f"'rows' of form '{rows.form}' needs 'clip' with norm {norm}: of {of}")
        if (quantise := guard_of(chain, Quantise)) is None or quantise.bits > 20:
            raise ValueError("'quantise' has too many bits: rows add up in 32; take 20 or fewer")

    def accounted(self, chain: Chain) -> bool:
        """Rows have no noise that hides a client as a whole, nor has who adds to which."""
        rows = guard_of(chain, RowsGuard)
        return rows is None or rows.unsafe

    def alone(self, chain: Chain) -> bool:
        """Tell that an exchange brings back one message of rows."""
        return True

    def objection(self, kind: type[Message], form: Form[Any], policy: Limits) -> str | None:
        """Refuse rows by public number where they are found by tags, and the other way round."""
        asked = {k for exchange in form.exchanges for k in exchange.back}
        if kind not in asked:
            return None
        rows = guard_of(policy.rules.get(Disclosure.ROW_SUM, ()), RowsGuard)
        tagged = rows is not None and not rows.unsafe
        if rows is not None and tagged and not (rows.noised or rows.accept_sums):
            return (
                "rows would be told without noise, and a sum of a few sparse records can be parted "
                "(A15): take form: noised of the guard 'rows', hops: 0, or accept_sums: true where "
                "the data owners accept that"
            )
        by_tags = issubclass(kind, RowSumMessage) and kind.by_tags
        noised = rows is not None and rows.noised
        if noised and issubclass(kind, RowSumMessage) and by_tags and not kind.of_one:
            return (
                f"in {kind.__name__} a node's features enter other nodes' terms as well, which the "
                "noise on rows does not cover (fed_gnn: take alone: true)"
            )
        if tagged is by_tags:
            return None
        how = "by tags" if tagged else "in clear"
        return f"message {kind.__name__} is not of the kind that the policy lets out {how}"

    def among(self, exchanges: Sequence[Exchange], chain: Chain) -> str | None:
        """Say what of a form cannot be found by tags."""
        rows = guard_of(chain, RowsGuard)
        if rows is None or rows.unsafe:
            return None
        asked = [e for e in exchanges if any(k.disclosure is Disclosure.ROW_SUM for k in e.back)]
        if len(asked) > 1:
            return "two exchanges bring back rows; a node would enter two of them"
        for exchange in asked:
            if len(exchange.back) > 1 or exchange.per_round > 1 or exchange.outside:
                return f"{exchange.name} must bring back one message of rows, once a round at most"
        return None


RULES = RowSumRules()


# What plans say of rows: who sees what, and what a reader must know (O10, O24, O25).

MATCHER = (
    "which tags are equal, which tags of a client are nodes and rows, and which node enters which "
    "row: so the graph of all nodes without their numbers, from which well-known nodes can be "
    "guessed; no number, no feature, no sum"
)
TOLD = (
    "of its own tags, which rows it adds to, for whom and with whom by name, and which rows it is "
    "told"
)
PARTS = (
    "uniform words, under masks and blinds that it has no key of; who adds how many rows for whom, "
    "by labels that tell no node"
)
ROWS = (
    "of rows that it asked for, what at least as many other clients' terms as the policy says add "
    "up to, and how many terms these are (less its own: the node's degree); by name who adds; what "
    "was computed from disclosed totals (the global model)"
)
TOGETHER = (
    "the two tag servers together with the matcher read the whole graph by its public numbers; the "
    "matcher with one client tests one quota of guesses, the client's tags, and knows its part of "
    "the graph; the matcher and one tag server learn nothing more; the aggregator with the matcher "
    "learns which tags' rows are for whom, and no sum; a receiver with the aggregator learns no "
    "more than its rows"
)
BUT_ONE = (
    "all adders of a row but one, with its receiver, learn that one's sum, so colluders are "
    "counted on top of the smallest number"
)
NOISY_ROWS = (
    "of rows that it asked for, what other clients' terms add up to, one client's alone perhaps, "
    "each under its client's own noise, and how many terms these are, exactly (less its own: the "
    "node's degree); by name who adds; what was computed from disclosed totals (the global model)"
)
NOISED = (
    "noise hides one node's features in the rows that are told, and nothing else: not which edges "
    "there are, which rows are told and who adds to them, nor how many terms a row has, which are "
    "degrees; not labels, nor what else the run sends of the same nodes (updates of models); a row "
    "may rest on one client and one node, and no number of colluders changes that; no epsilon "
    "holds for the run"
)
WHOLE = (
    "a row that is told is a sum without noise: each node enters one row at most in the run, so no "
    "rows can be solved for fewer clients than one rests on; but a sum of a few sparse nodes, such "
    "as bags of words, can be parted by itself (A15), and where terms follow from a model that the "
    "aggregator hands out, it can choose one that leaves a single node's; no epsilon holds for it"
)
NOISED_AGAIN = (
    "rows of several runs over the same data are noised anew, and the nodes' budget is charged for "
    "each; the aggregator with a client can leave another one out before tags are compared, and "
    "have this one claim the other's nodes and be told their rows"
)
AGAIN = (
    "nothing counts rows over several runs: a row that is told once with a client and once without "
    "it, in another run over the same data, tells that client's sum; the aggregator with a client "
    "can leave another one out before tags are compared, and have this one claim the other's nodes "
    "and be told their rows"
)
CLEAR = (
    "UNSAFE: the aggregator reads every client's sums of neighbours' features, by public numbers "
    "of nodes, and so all edges between clients; a receiver of a row with one neighbour reads its "
    "raw features (A15)"
)

HIDES = (
    "noise on rows hides single nodes' features in them, and no client as a whole: epsilon = "
    "infinity for the run; covered: nothing; not covered: all messages"
)

_PAIRS = {
    "matcher, of rows": MATCHER,
    "matcher and one client, of rows": "that client's part of the graph by number; one quota of "
    "guesses at other nodes; guesses of clients add up",
    "matcher and one tag server, of rows": "nothing more",
    "matcher and both tag servers, of rows": "EVERY edge between clients, by public numbers",
    "aggregator and matcher, of rows": "which tags' rows are for whom; no sum",
    "aggregator and a receiver of rows": "that receiver's rows",
    "a receiver of a row and all who add to it but one": "that one's sum",
}
_NOISED_PAIRS = {
    "a receiver of a row and all who add to it but one": "that one's sum under its own noise",
    "all receivers of a row": "what one of them reads: each adder's noise is the same for all",
}


class RowSumWords(Words):
    """Rows of neighbours' features."""

    limits = (TOGETHER, BUT_ONE, WHOLE, AGAIN, NOISED, NOISED_AGAIN, CLEAR)

    def handed(self, model: bool) -> str:
        """Return what a client is given."""
        return "what other clients' terms of rows that it asked for add up to"

    def in_clear(self, item: Item) -> str:
        """Return the warning of rows in clear."""
        return CLEAR

    def warnings(self, plan: Planned) -> list[str]:
        """Say what rows rest on, where they are found by tags."""
        rows = [item for item in plan.items if item.part is self.disclosure]
        if not any(item.step is Step.COMPARE for item in rows):
            return []
        if any(item.counted is not None for item in rows):
            return [TOGETHER, NOISED, NOISED_AGAIN]
        return [TOGETHER, BUT_ONE, WHOLE, AGAIN]

    def unaccounted(self, items: Sequence[Item]) -> str:
        """Say that noise on rows hides no client, where rows are noised."""
        return HIDES if any(item.counted is not None for item in items) else ""

    def spends(self, item: Item, chain: Chain) -> list[str]:
        """Return what the noise on rows comes to, for one node's features."""
        counted = item.counted
        if counted is None:
            return []
        moved = f"{sensitivity(counted):.4g}"
        return [
            f"for one node's features: epsilon <= {counted.epsilon}, delta = {counted.delta} "
            "(unit: node; adjacency: its features are there, or zeros stand in their place, all "
            "edges as they are; model: local, each client adds noise to its own rows; scope: run, "
            f"all in its one round of rows; assumptions: a node enters {counted.fields} rows at "
            "most, to which its client holds the matcher, a term is made of one node's features "
            "alone, as the algorithm's file says, and nobody else's noise is counted on); "
            f"covered: {item.id} and the rows that follow, which one node moves by {moved} times "
            f"the clip in L2 (the root of {counted.fields}), under noise of "
            f"{float(counted.scale):.4g} times the clip on every number; not covered: edges, which "
            "rows are told, who adds to them and how many terms they have (degrees), labels, and "
            "every other message of the run"
        ]

    def together(self, chain: Chain) -> dict[str, str]:
        """Return who sees what together, where rows are found by tags (O24)."""
        rows = guard_of(chain, Rows)
        if rows is None or rows.unsafe:
            return {}
        return {**_PAIRS, **(_NOISED_PAIRS if rows.noised else {})}

    def learns(self, chain: Chain, network: str) -> dict[str, str]:
        """Return, per role, what a message in clear tells it."""
        return {**super().learns(chain, network), "aggregator": self.disclosure.meaning}


WORDS = RowSumWords(Disclosure.ROW_SUM)


# The plan items of rows: what travels between an answer and the sums that receivers open.

_CLIENT, _AGGREGATOR = str(Role.CLIENT), str(Role.AGGREGATOR)
_SERVER, _MATCHER = str(Role.TAG_SERVER), str(Role.MATCHER)

PLACES = "row_places"
"""Dimension of the rows that a client is told at once; the plan sizes it."""


class RowSumPlanning(Planning):
    """Rows in clear, block by block; or found by tags, and added up under masks."""

    def dims(
        self, form: Form[Any], chain: Sequence[Guard], dims: Mapping[str, int], records: int
    ) -> dict[str, int]:
        """Return how many rows a client is told at once."""
        if "block" not in dims or not chain:
            return {}
        rows = guard_of(chain, Rows)
        return {PLACES: dims["block"] if rows is None or rows.unsafe else rows.rows}

    def most(self, plan: PlanBuilder, exchange: Exchange) -> int | None:
        """Return how often an exchange brings rows back in a run: in the rounds where it is due."""
        if exchange.due is None:
            return None
        return exchange.per_round * exchange.due(plan.rounds)

    def up(
        self, plan: PlanBuilder, name: str, kinds: tuple[type[Message], ...], times: Times
    ) -> None:
        """Add one Ask's rows, and everything that follows them."""
        rows = guard_of(plan.policy.chain(self.disclosure), Rows)
        if rows is None or rows.unsafe:
            super().up(plan, name, kinds, times)
            return
        _plan_rows(plan, name, kinds[0], rows, times)

    def handed_down(self, kind: type[Message], chain: Sequence[Guard]) -> type[Message]:
        """Return what holds masked sums; in clear the message itself."""
        rows = guard_of(chain, Rows)
        return kind if rows is None or rows.unsafe else RowTotals

    def handed_said(self, plan: PlanBuilder) -> dict[str, str] | None:
        """Return who learns what of an Ask that hands rows out."""
        rows = guard_of(plan.policy.rules.get(self.disclosure, ()), Rows)
        if rows is None or rows.unsafe:
            return None
        return {_CLIENT: NOISY_ROWS if rows.noised else ROWS, "network": NETWORK}

    def down(self, plan: PlanBuilder, exchange: Exchange, times: Times) -> dict[str, int]:
        """Return the sizes of masked sums for one client."""
        rows = guard_of(plan.policy.rules.get(self.disclosure, ()), Rows)
        if rows is None or rows.unsafe:
            return {}
        return slot_dims(plan, rows)


def slot_dims(plan: PlanBuilder, rows: Rows) -> dict[str, int]:
    """Return the sizes of one client's slots of masked sums."""
    mask = -(-len(plan.clients) // 8)
    return {"row_slots": rows.rows * slot_bytes(plan.dims["width"], mask)}


def _plan_rows(plan: PlanBuilder, name: str, kind: type[Message], rows: Rows, times: Times) -> None:
    """Add what makes and compares tags, and what is added up.

    Raises:
        CohortTooSmall: fewer clients than a receiver and those that a row rests on.
    """
    clients = len(plan.clients)
    plan.policy.check_cohort(clients)
    width = kind.fields[0].sizes(plan.dims)[1]
    part, sealed = Disclosure.ROW_SUM, Disclosure.SEALED
    up, down = (_CLIENT, _AGGREGATOR), (_AGGREGATOR, _CLIENT)
    to_server, from_server = (_AGGREGATOR, _SERVER), (_SERVER, _AGGREGATOR)

    def add(
        step: Step, route: tuple[str, str], said: str, size: int, *kinds: type[Message]
    ) -> None:
        boxes = {"match_bundle" if Bundle in kinds else "match_boxes": size}
        who = {route[1]: said, "network": NETWORK}
        plan.add(name, part, step, route, kinds, sealed, times, dims=boxes, said=who)

    kinds = (Kind.POINTS, Kind.ANSWER, Kind.TAGS, Kind.TOLD, Kind.SHARE)
    points, answer, tags, told, half = (box_bytes(one, rows, width, clients) for one in kinds)
    learns = {_AGGREGATOR: BOXED, _SERVER: POINTS, "other clients": "nothing", "network": NETWORK}
    plan.add(
        name, part, Step.UP, up, (kind,), part, times, body=points, dims={WIDTH: width},
        said=learns, counted=wanted(plan.policy, width, clients),
    )  # fmt: skip
    add(Step.POINTS, to_server, POINTS, clients * points, Bundle)
    add(Step.ANSWERS, from_server, BOXED, clients * answer, Bundle)
    add(Step.HALFWAY, down, HALFWAY, answer, Box)
    add(Step.ONWARD, up, BOXED, points, Box)
    add(Step.SECOND_POINTS, to_server, SECOND_POINTS, clients * points, Bundle)
    add(Step.SECOND_ANSWERS, from_server, BOXED, clients * answer, Bundle)
    add(Step.TAGGED, down, "its own tags", answer, Box)
    add(Step.TAGS, up, BOXED, tags, Box)
    add(Step.COMPARE, (_AGGREGATOR, _MATCHER), MATCHER, clients * tags, Bundle)
    add(Step.COMPARED, (_MATCHER, _AGGREGATOR), BOXED, clients * told, Bundle, Canary)
    add(Step.TOLD, down, TOLD, told, Box)
    add(Step.SPLIT, up, BOXED, clients * half, Box)
    add(Step.MATES, down, "halves of secrets that others drew for it", clients * half, Box)
    said, dims = {_AGGREGATOR: PARTS, "network": NETWORK}, slot_dims(plan, rows)
    plan.add(name, part, Step.PART, up, (RowParts,), sealed, times, dims=dims, said=said)


PLAN = RowSumPlanning(Disclosure.ROW_SUM)


# From a client's terms to boxes that only tag servers or the matcher open (O24).


class RowSumProtection(Protection):
    """What a client's terms are added up from."""

    def body(self, release: Release, header: Header, prepared: Any) -> tuple[bytes, bool]:
        """Hand the terms to the client's own part in rows; the body holds blinded points."""
        context = release.context
        if rows_guard(context.policy) is None:
            return super().body(release, header, prepared)
        (message,) = release.messages
        said = message._unsummed if isinstance(message, RowSumMessage) else None
        if said is None:
            raise UnfitMessage(
                f"{type(message).__name__} holds sums, and rows are found by tags.",
                fix="return the client's terms by `unsummed`; nothing was sent",
            )
        cohort, key = context.cohort(release.where), release.seeded("rounding")
        width = release.item.dims[WIDTH]
        return held(context).begin(said, width, release.where, cohort, key), False


PROTECT = RowSumProtection()


# What the aggregator holds of rows: uniform words for each receiver, or in clear all sums.


class RowsView(OneVerb):
    """ROW_SUM in clear: for each client the rows that it asked for and enough others add to."""

    verb = "rows"

    def __init__(
        self, sent: Mapping[str, Message], threshold: int, dims: Mapping[str, int]
    ) -> None:
        self._sent, self._threshold, self._dims = sent, threshold, dims

    def _answer(self, **options: Any) -> Sealed:
        into: type[Message] = options["into"]
        return Sealed(into, told(self._sent, self._threshold, into, self._dims))


def told(
    sent: Mapping[str, Message], threshold: int, into: type[Message], dims: Mapping[str, int]
) -> dict[str, Message]:
    """Return what each client is told of one block.

    Args:
        sent: by client, ``first``, ``wanted`` and ``sums``, whose last column counts terms.
        threshold: how many clients besides the receiver add to a row at least.
        into: message with the fields ``node`` and ``sums``.
        dims: sizes of named dimensions.
    """
    names = sorted(sent)
    said = {name: np.asarray(_of(sent[name], "sums"), dtype=np.float64) for name in names}
    total = np.sum([said[name] for name in names], axis=0)
    adding = np.sum([said[name][:, -1] > 0 for name in names], axis=0)
    places, found = _places(into, dims), {}
    for name in names:
        others = adding - (said[name][:, -1] > 0)
        served = np.flatnonzero((np.asarray(_of(sent[name], "wanted")) > 0) & (others >= threshold))
        node = np.zeros(places, dtype=np.int64)
        sums = np.zeros((places, total.shape[1]), dtype=np.float32)
        node[: len(served)] = 1 + int(_of(sent[name], "first")) + served
        sums[: len(served)] = (total - said[name])[served]
        found[name] = _made(into, node, sums)
    return found


def _of(message: Message, name: str) -> Array:
    found: Array = getattr(message, name)
    return found


def _places(into: type[Message], dims: Mapping[str, int]) -> int:
    return next(field for field in into.fields if field.name == "node").sizes(dims)[0]


def _made(into: type[Message], node: Array, sums: Array) -> Message:
    values: dict[str, Any] = {"node": node, "sums": sums}
    return into(**values)


class HandedRows(OneVerb):
    """ROW_SUM under masks: for each client words that it alone can open."""

    verb = RowsView.verb

    def __init__(self, told: Mapping[str, Message]) -> None:
        self._told = dict(told)

    def _answer(self, **options: Any) -> Sealed:
        return Sealed(options["into"], self._told)


class RowAnswers(Answers):
    """The rows of one Ask.

    Attributes:
        told: by client, what was added up for it under masks; None until then.
    """

    verb: ClassVar[str] = RowsView.verb

    def __init__(self, context: RunContext, exchange: Exchange, where: Where, part: Part) -> None:
        super().__init__(context, exchange, where, part)
        self.told: dict[str, Message] | None = None

    def views(self) -> dict[type[Message], View]:
        """Return what may be handed on; raises LocalProtocolError if it is too early."""
        rows = guard_of(self._context.policy.chain(self.item.disclosure), Rows)
        if self.told is not None:
            return dict.fromkeys(self.kinds, HandedRows(self.told))
        if rows is not None and not rows.unsafe:
            raise LocalProtocolError("Rows were not added up yet.")
        (kind,) = self.kinds
        sent = {name: decode((kind,), body, self.dims)[0] for name, body in self.bodies().items()}
        return {kind: RowsView(sent, rows.threshold if rows else 1, self.dims)}


VIEW = RowAnswers


# What plan, policy and roster must agree on before rows are found by tags (O24).

_SERVERS = 2


def _check(context: RunContext) -> None:
    """Raise NotInPlan unless rows are added up once, by two tag servers' tags."""
    said = [
        item
        for item in context.plan.items
        if item.disclosure is Disclosure.ROW_SUM and item.sender == str(Role.CLIENT)
    ]
    check_row_noise(context.plan, context.policy)
    if rows_guard(context.policy) is None or not said:
        return
    if said != [row_item(context.plan)]:
        raise NotInPlan(
            "The plan has other than one message of rows found by tags.",
            why="another one would leave as it is, and the policy asks for sums under masks",
            fix="make a new plan with this policy",
        )
    servers = len(context.roster.names(Role.TAG_SERVER))
    if servers != _SERVERS:
        raise NotInPlan(
            f"The roster holds {servers} tag servers; rows need two.",
            why="the key of tags is cut in two, so that nobody makes tags alone (O24)",
            fix="name two tag servers of two organisations",
        )
    for item in context.plan.items:
        if item.part is Disclosure.ROW_SUM and item.times > 1:
            raise NotInPlan(
                f"The plan has rows added up {item.times} times ({item.id}).",
                why="a node enters so many rows in a run; a second time it would enter others",
                fix="make a new plan with this policy",
            )


CONTEXT = _check
