"""Making a plan from an algorithm's form, a policy and the shape of the data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from crypto.homomorphic.he import Scheme
from protocols.disclosures._base.plan import planning_of
from protocols.disclosures._base.words import Planned
from protocols.disclosures.names import Disclosure
from protocols.disclosures.registry import code
from protocols.errors import PolicyError
from protocols.evidence.canaries import canary_words
from protocols.evidence.heads import proof_bytes
from protocols.forms import Algorithm, Form
from protocols.keys.groups import fewest_apart, fewest_survivors, withstands
from protocols.plan.builder import PlanBuilder
from protocols.plan.drawn import DrawnPlan
from protocols.plan.learns import budget, runs_as, warnings
from protocols.plan.models import Models
from protocols.plan.plan import DataPlan, Plan, plugin_of
from protocols.plan.planner import plan_exchange, plan_services
from protocols.plan.splits import plan_splits
from protocols.plan.topology import TopologyPlan
from protocols.policy.policy import PrivacyPolicy
from protocols.privacy.own_words import check_covered
from protocols.privacy.training import TrainingPlan, plan_training


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
