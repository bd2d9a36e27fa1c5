"""The items of a plan: which envelopes, on which routes, how large, how often."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from crypto.homomorphic.he import Scheme
from protocols.clusters import cuts_bytes
from protocols.disclosures._base.plan import planning_of, wire_kinds
from protocols.disclosures._base.words import Planned
from protocols.disclosures._evaluated.ciphers import key_kinds, key_sizes, keyed
from protocols.disclosures.names import Disclosure
from protocols.disclosures.registry import code
from protocols.errors import PolicyError
from protocols.evidence.captures import canary_words
from protocols.evidence.ledger import MOST_ITEMS, client_items, proof_bytes
from protocols.forms import Algorithm, Form
from protocols.keys.groups import epochs, fewest_apart, fewest_survivors, withstands
from protocols.plan.builder import DOWN, UP, PlanBuilder, Times
from protocols.plan.cohorts import DrawnPlan, TopologyPlan, plan_splits
from protocols.plan.learns import Models, budget, check_covered, runs_as, warnings
from protocols.plan.plan import DataPlan, Item, Plan, plugin_of
from protocols.plan.steps import Service, Step
from protocols.policy.policy import PrivacyPolicy
from protocols.privacy.training import TrainingPlan, plan_training
from protocols.rounds import Exchange, strictest
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


# --- Making a plan from an algorithm's form, a policy and the shape of the data ---


def _dims(
    algorithm: Algorithm[Any], data: DataPlan, clients: Sequence[str], scheme: Scheme | None
) -> dict[str, int]:
    """Return the sizes of all named dimensions, the algorithm's and the plan's own."""
    if len(set(clients)) != len(clients):
        raise PolicyError("A client is named twice.", fix="give every client a name of its own")
    dims = {
        "records": data.records,
        "cohort": len(clients),
        "roster_mask": -(-len(clients) // 8),
        "heads_proof": proof_bytes(len(clients)),
        "he_public_key": scheme.public_key_bytes if scheme else 0,
    }
    if taken := sorted(set(dims) & set(algorithm.dims)):
        raise ValueError(
            f"algorithm {algorithm.name!r}: {taken[0]!r} is a dimension of the plan's own; "
            "give the algorithm's dimension another name"
        )
    return {**algorithm.dims, **dims}


def _training(form: Form[Any], policy: PrivacyPolicy, rounds: int) -> TrainingPlan | None:
    if policy.training is None:
        return None
    held_out = {kind.__name__ for exchange in form.exchanges for kind in exchange.held_out}
    return plan_training(policy.training, rounds, tuple(sorted(held_out)))


_CHOOSES = (
    "; at most its answers alone are isolated: its import, init and round run beside each client's "
    "keys; its init is its author's choice, so the first model may be one that is made to read "
    "records"
)


def _outside(plugins: Mapping[str, str], algorithm: str) -> list[str]:
    """Say which code is none of this program's; only the algorithm that runs chooses a start."""
    found = [plugin_of(entry) or ("plug-in", entry) for entry in plugins]
    return [
        f"the {kind} {name} is a plug-in: code from outside this program, which is trusted as its "
        "own is; the plan holds the digest of its file, and says nothing of what is in it"
        + _CHOOSES
        * (kind == "algorithm" and name == algorithm)
        for kind, name in found
    ]


def _built(
    algorithm: Algorithm[Any],
    form: Form[Any],
    policy: PrivacyPolicy,
    data: DataPlan,
    clients: Sequence[str],
    rounds: int,
    scheme: Scheme | None,
) -> PlanBuilder:
    """Return the items of all that is sent."""
    dims = _dims(algorithm, data, clients, scheme)
    for disclosure in Disclosure:
        chain = policy.rules.get(disclosure, ())
        dims |= planning_of(disclosure).dims(form, chain, algorithm.dims, data.records)
    builder = PlanBuilder(
        *(policy, clients, dims, scheme, rounds),
        exchanges=form.exchanges,
        models=Models.of(form, policy, len(clients)),
        splits=plan_splits(form, policy),
        drawn=DrawnPlan.of(form.drawn, len(clients), policy) if form.drawn else None,
        topology=TopologyPlan.of(form.topology, clients, policy) if form.topology else None,
    )
    for exchange in form.exchanges:
        plan_exchange(builder, exchange)
    plan_services(builder)
    return builder


def _reduced(algorithm: Algorithm[Any], rounds: int) -> tuple[str, ...]:
    """Return a warning where options leave out what an algorithm is called after."""
    less = algorithm.reduced(rounds)
    return (f"{runs_as(algorithm.name)}{less}",) if less else ()


def _check_terms(scheme: Scheme | None, clients: int) -> None:
    if scheme is not None and clients > scheme.max_terms:
        raise PolicyError(
            f"{scheme.name} adds at most {scheme.max_terms} uploads exactly.",
            fix="choose the policy 'masks', which adds any number, or split the federation",
        )


def make_plan(  # noqa: PLR0913 - what a run is made of, all by name
    algorithm: Algorithm[Any],
    policy: PrivacyPolicy,
    *,
    data: DataPlan,
    clients: Sequence[str],
    rounds: int,
    scheme: Scheme | None,
    seed: int = 0,
    plugins: Mapping[str, str] | None = None,
    remarks: Sequence[str] = (),
    one_person: bool = False,
) -> Plan:
    """Return the plan of a run; nothing of any client's data is looked at.

    Args:
        algorithm: its first admitted form is planned.
        policy: decides form, guards and minimum cohort.
        data: public facts and padded bounds.
        clients: names of the clients that will take part.
        rounds: number of rounds.
        scheme: the encryption really used here (its sizes stand in the plan); None without ``he``.
        seed: public; the first model is drawn from it.
        plugins: digests of the plug-ins that are named, by `plugin_entry`.
        remarks: warnings that the data bring with them.
        one_person: each client is a person, so the policy's `minimum_records` does not apply.

    Raises:
        NotAdmitted: no form of the algorithm fits the policy.
        CohortTooSmall: fewer clients than the policy's minimum.
        PolicyError: fewer than a list of survivors holds.
    """
    form = (policy := policy.checked()).admit(algorithm).among(len(clients))
    policy.check_cohort(len(clients))
    fewest_survivors(len(clients), policy)
    _check_terms(scheme, len(clients))
    builder = _built(algorithm, form, policy, data, clients, rounds, scheme)
    check_covered(builder.items, policy)
    splits, drawn = builder.splits, builder.drawn
    training = _training(form, policy, rounds)
    remarks = (*_reduced(algorithm, rounds), *remarks, *_outside(plugins or {}, algorithm.name))
    planned = Planned(
        builder.items,
        policy,
        others=len(clients) - 1,
        fewest=len(clients) == policy.smallest_cohort,
        reach=builder.models.furthest(1.0, data.records),
        splits=splits,
        topology=builder.topology,
        clusters=builder.clusters,
        apart=fewest_apart(len(clients), policy, drawn),
        rows={k.__name__: form.holders for k in form.messages() if any(f.held for f in k.fields)},
    )
    said = warnings(planned, data, private=training is not None)
    return Plan(
        algorithm=algorithm.name,
        form=form.name,
        rounds=rounds,
        clients=tuple(sorted(clients)),
        data=data,
        policy=policy.name,
        policy_digest=policy.digest,
        policy_fields=policy.fields(),
        smallest_cohort=drawn.least if drawn else policy.smallest_cohort,
        withstands=withstands(builder.items, len(clients), policy, drawn),
        minimum_records=0 if one_person or policy.training else policy.minimum_records,
        scheme=scheme.name if scheme else "none",
        budget=budget(builder.items, policy, training),
        warnings=(*said, *canary_words(policy.canaries, data.task), *remarks),
        dims=builder.dims,
        items=tuple(builder.items),
        code={**code(), **(plugins or {})},
        seed=seed,
        training=training,
        splits=splits,
        drawn=drawn,
        topology=builder.topology,
    )
