"""The items of a plan: which envelopes, on which routes, how large, how often."""

from __future__ import annotations

from protocols.clusters.descent import cuts_bytes
from protocols.disclosures._base.plan import planning_of, wire_kinds
from protocols.disclosures._evaluated.ciphers import key_kinds, key_sizes, keyed
from protocols.disclosures.names import Disclosure
from protocols.errors import PolicyError
from protocols.evidence.heads import MOST_ITEMS, client_items
from protocols.exchanges import Exchange, strictest
from protocols.keys.slots import epochs
from protocols.plan.builder import DOWN, UP, PlanBuilder, Times
from protocols.plan.plan import Item
from protocols.plan.steps import Service, Step
from protocols.wire.control import (
    Acknowledgement,
    BudgetHeads,
    BudgetNotes,
    Call,
    DrawCall,
    DrawCommit,
    DrawCommits,
    DrawLot,
    DrawLots,
    Farewell,
    KeyCall,
    Place,
    Refusal,
    beside,
)
from protocols.wire.roles import Role, planners
from protocols.wire.roster import EVERYONE

__all__ = ["plan_exchange", "plan_services"]

_AGGREGATOR, _AUTHORITY = str(Role.AGGREGATOR), str(Role.KEY_AUTHORITY)


def plan_exchange(plan: PlanBuilder, exchange: Exchange) -> None:
    """Add everything that one kind of Ask makes travel."""
    back = tuple(dict.fromkeys(kind.disclosure for kind in exchange.back))
    most = [planning_of(disclosure).most(plan, exchange) for disclosure in back]
    often = min([exchange.times(plan.rounds), *(limit for limit in most if limit is not None)])
    times = (exchange.per_round, often)
    _plan_down(plan, exchange, times)
    for disclosure in back:
        kinds = tuple(kind for kind in exchange.back if kind.disclosure is disclosure)
        planning_of(disclosure).up(plan, exchange.name, kinds, times)
    for plan_role in planners():
        plan_role(plan, exchange, times)
    if not back:
        ack, said = (Acknowledgement,), {"aggregator": "that the message arrived"}
        place = (exchange.name, Service.ASK, Step.ACK)
        plan.add(*place, UP, ack, Disclosure.SEALED, times, said=said)


def _plan_down(plan: PlanBuilder, exchange: Exchange, times: Times) -> None:
    """Add what an Ask hands out, and what is opened for it."""
    model = plan.models.of_exchange(exchange)
    down = wire_kinds(exchange.given, plan.policy, model)
    sizes, said = dict[str, int](), plan.models.said(exchange)
    for disclosure in dict.fromkeys(kind.disclosure for kind in exchange.given):
        planning = planning_of(disclosure)
        sizes |= planning.down(plan, exchange, times)
        said = said or planning.handed_said(plan)
    if plan.splits is not None:
        sizes["cluster_cuts"] = cuts_bytes(len(plan.clients), plan.cuts)
    place = (exchange.name, Service.ASK, Step.DOWN)
    kinds = (Call, Place, *beside(plan.splits), *down)
    plan.add(
        *place, DOWN, kinds, strictest(down), times, dims=sizes or None, said=said, model=model
    )


def plan_services(plan: PlanBuilder) -> None:
    """Plan the layer's own messages, once all exchanges are; they stand first in the plan."""
    planned, plan.items = plan.items, []
    _plan_draw(plan)
    _plan_keys(plan, planned)
    for disclosure in Disclosure:
        planning_of(disclosure).epoch(plan, planned)
    said = {"client": "digests of what all clients recorded"}
    heads, once = Service.HEADS, (0, 1)
    kinds, released = (Farewell, Place), Disclosure.RELEASED
    plan.add("", heads, Step.DOWN, DOWN, kinds, released, once, said=said)
    said, sealed = {"aggregator": "that the heads arrived"}, Disclosure.SEALED
    plan.add("", heads, Step.ACK, UP, (Acknowledgement,), sealed, once, said=said)
    if budgets := len(plan.policy.budgets):
        kept, dims = Service.BUDGET, {"budgets": budgets}
        said = {"aggregator": "how often each of its privacy budgets was taken from, and a digest"}
        plan.add("", kept, Step.COMMIT, UP, (BudgetHeads,), sealed, once, said=said, dims=dims)
        said = {"client": "its own heads of budgets, signed once more"}
        plan.add("", kept, Step.COMMITS, DOWN, (BudgetNotes,), sealed, once, said=said, dims=dims)
    said = {"aggregator": "one code of a closed list"}
    asked = {item.recipient for item in (*plan.items, *planned)}
    for role in Role:
        if role is not Role.AGGREGATOR and str(role) in asked:
            refusal, route = (Service.REFUSAL, Step.REFUSE), (str(role), _AGGREGATOR)
            plan.add("", *refusal, route, (Refusal,), sealed, once, said=said)
    plan.items += planned
    if len(client_items(plan.items)) > MOST_ITEMS:
        raise PolicyError(
            f"Clients would send more than {MOST_ITEMS} kinds of envelopes.",
            why="the receipts of a run name them in one number",
            fix="merge messages of one disclosure into one Ask",
        )


def _plan_draw(plan: PlanBuilder) -> None:
    """Plan how all parties draw the seed of the run's cohorts, once in a run."""
    if plan.drawn is None or not plan.drawn.by_lot:
        return
    part, once, said = Service.DRAW, (0, 1), {"everyone": "random bytes, no data"}
    public, sealed = Disclosure.PUBLIC, Disclosure.SEALED
    plan.add("", part, Step.CALL, DOWN, (DrawCall,), public, once, said=said)
    plan.add("", part, Step.COMMIT, UP, (DrawCommit,), sealed, once, said=said)
    plan.add("", part, Step.COMMITS, DOWN, (DrawCommits,), public, once, said=said)
    plan.add("", part, Step.LOT, UP, (DrawLot,), sealed, once, said=said)
    plan.add("", part, Step.LOTS, DOWN, (DrawLots,), public, once, said=said)


def _plan_keys(plan: PlanBuilder, planned: list[Item]) -> None:
    """Plan the public keys of an epoch, where something is encrypted."""
    secret, public = keyed(planned, plan.policy), Disclosure.PUBLIC
    if not secret:
        return
    times, part = (0, epochs(plan.rounds, plan.policy)), Service.KEYS
    plan.add("", part, Step.CALL, (_AGGREGATOR, _AUTHORITY), (KeyCall,), public, times, said={})
    said = {"everyone": f"the public key{'s' if secret[1:] else ''} of this epoch"}
    route, kinds = (_AUTHORITY, EVERYONE), key_kinds(secret)
    plan.add("", part, Step.OFFER, route, kinds, public, times, dims=key_sizes(secret), said=said)
