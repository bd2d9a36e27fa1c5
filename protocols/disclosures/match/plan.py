"""The plan items of matching: what travels between an answer and its cells' totals (O24, O25)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from protocols.disclosures._base.plan import Planning
from protocols.disclosures._base.words import NETWORK
from protocols.disclosures.match.guards import Match
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
from protocols.disclosures.match.protocol.cell_sums import LABEL_BYTES
from protocols.disclosures.match.protocol.wire import Kind, box_length
from protocols.disclosures.match.run import VALUES, match_guard
from protocols.disclosures.match.words import (
    BOXED,
    CELL,
    HALFWAY,
    HANDED,
    LISTED,
    POINTS,
    SECOND_POINTS,
    TAKEN,
    TOLD,
    TOTALS,
    matcher_learns,
    part_learns,
    upload_learns,
)
from protocols.disclosures.names import Disclosure
from protocols.errors import CohortTooSmall, PolicyError
from protocols.forms import Exchange, Form
from protocols.messages import Message
from protocols.plan.builder import PlanBuilder, Times
from protocols.plan.steps import Step
from protocols.policy.guard import Guard
from protocols.wire.control import Acknowledgement
from protocols.wire.roles import Role

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
