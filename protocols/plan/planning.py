"""Making a plan from an algorithm's form, a policy and the shape of the data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from crypto.he import Scheme
from protocols.disclosures._base.words import Planned
from protocols.disclosures.match.layout import planned_found
from protocols.disclosures.mixed.layout import planned_mixtures
from protocols.disclosures.names import Disclosure
from protocols.disclosures.noised.decoys import planned_rows
from protocols.disclosures.sum.layout import sum_layout
from protocols.errors import PolicyError
from protocols.evidence.heads import proof_bytes
from protocols.forms import Algorithm, Form
from protocols.keys.groups import fewest_survivors
from protocols.plan.learns import budget, warnings
from protocols.plan.plan import DataPlan, NoisePlan, Plan
from protocols.plan.planner import Planner
from protocols.policy.guard import find
from protocols.policy.policy import PrivacyPolicy
from protocols.privacy.noising import noise_for
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


def _noise(
    form: Form[Any], policy: PrivacyPolicy, dims: Mapping[str, int], rounds: int, clients: int
) -> NoisePlan | None:
    chain = policy.rules.get(Disclosure.SUM, ())
    if not find(chain, "noise"):
        return None
    found = []
    for exchange in form.exchanges:
        kinds = [kind for kind in exchange.back if kind.disclosure is Disclosure.SUM]
        if kinds:
            found.append((sum_layout(kinds, chain, dims), exchange.times(rounds)))
    return noise_for(found, policy, clients)


def _training(form: Form[Any], policy: PrivacyPolicy, rounds: int) -> TrainingPlan | None:
    if policy.training is None:
        return None
    held_out = {kind.__name__ for exchange in form.exchanges for kind in exchange.held_out}
    return plan_training(policy.training, rounds, tuple(sorted(held_out)))


def make_plan(
    algorithm: Algorithm[Any],
    policy: PrivacyPolicy,
    *,
    data: DataPlan,
    clients: Sequence[str],
    rounds: int,
    scheme: Scheme | None,
) -> Plan:
    """Return the plan of a run. Nothing of any client's data is looked at.

    Args:
        algorithm: its first admitted form is planned.
        policy: decides form, guards and minimum cohort.
        data: public facts and padded bounds.
        clients: names of the clients that will take part.
        rounds: number of rounds.
        scheme: the encryption really used here (its sizes stand in the plan); None without ``he``.

    Raises:
        NotAdmitted: no form of the algorithm fits the policy.
        CohortTooSmall: fewer clients than the policy's minimum.
        PolicyError: fewer than a list of survivors holds.
    """
    policy = policy.checked()
    form = policy.admit(algorithm)
    policy.check_cohort(len(clients))
    fewest_survivors(len(clients), policy)
    if scheme is not None and len(clients) > scheme.max_terms:
        raise PolicyError(
            f"{scheme.name} adds at most {scheme.max_terms} uploads exactly.",
            fix="choose the policy 'masks', which adds any number, or split the federation",
        )
    dims = _dims(algorithm, data, clients, scheme)
    mixing = policy.rules.get(Disclosure.MIXED, ())
    dims |= planned_mixtures(form, mixing, algorithm.dims, data.records)
    dims |= planned_rows(policy.rules.get(Disclosure.NOISED, ()), algorithm.dims)
    dims |= planned_found(policy.rules.get(Disclosure.MATCH, ()), algorithm.dims)
    planner = Planner(policy, clients, dims, scheme, rounds, form.exchanges)
    planner.noise = _noise(form, policy, dims, rounds, len(clients))
    for exchange in form.exchanges:
        planner.exchange(exchange)
    planner.control()
    training = _training(form, policy, rounds)
    planned = Planned(
        planner.items,
        policy,
        others=len(clients) - 1,
        fewest=len(clients) == policy.smallest_cohort,
        rows={k.__name__: form.holders for k in form.messages() if any(f.held for f in k.fields)},
    )
    return Plan(
        algorithm=algorithm.name,
        form=form.name,
        rounds=rounds,
        clients=tuple(sorted(clients)),
        data=data,
        policy=policy.name,
        policy_digest=policy.digest,
        smallest_cohort=policy.smallest_cohort,
        scheme=scheme.name if scheme else "none",
        budget=budget(planner.items, policy, training),
        warnings=tuple(warnings(planned, data, private=training is not None)),
        dims=dims,
        items=tuple(planner.items),
        training=training,
    )
