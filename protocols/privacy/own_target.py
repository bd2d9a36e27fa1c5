"""By how much the mean of clients' own-noised messages errs, planned without data."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from decimal import ROUND_UP, Context
from functools import lru_cache

import numpy as np

from protocols.disclosures.names import Disclosure
from protocols.disclosures.noised.randomiser import (
    Parts,
    entries_of,
    parts_of,
    plan_own,
    planned_parts,
    randomiser_of,
    tells,
)
from protocols.errors import NotAdmitted, NotInPlan, PolicyError
from protocols.forms import Exchange
from protocols.plan.plan import Item, NoisePlan, Plan
from protocols.plan.steps import Step
from protocols.policy.admission import check_own_noise
from protocols.policy.guard import Guard, find, guard_of
from protocols.policy.guards import Clip, OwnNoise, Quantise
from protocols.policy.policy import PrivacyPolicy
from protocols.privacy.accounting import WRAP, net_epsilon, tails
from protocols.privacy.noising import divergence, plan_noise
from protocols.privacy.own_noise import check_useful
from protocols.privacy.shuffled import run_epsilon


def error_of_one(item: Item, policy: PrivacyPolicy) -> float:
    """Return the error of one client's message in units of the clip norm; a mean's is this / √n.

    The root of the expected squared error, all entries together.

    Raises:
        ValueError: the item has no noise of its client's own.
        PolicyError: its noise cannot be drawn.
    """
    noise, chain = item.noise, policy.rules.get(item.disclosure, ())
    clip, quantise = guard_of(chain, Clip), guard_of(chain, Quantise)
    if noise is None or not noise.local or clip is None:
        raise ValueError(f"{item.id} has no noise of its client's own")
    if item.disclosure is Disclosure.NOISED:
        parts = planned_parts(item)
        made = randomiser_of(noise, parts, clip.bound, item.label)
        return math.sqrt(made.variance(1)) / (len(parts) ** 0.5 if tells(parts) else clip.bound)
    levels = float((1 << ((quantise or Quantise()).bits - 1)) - 1)
    spread = float(noise.sigma) * (math.sqrt(2.0) if "laplace" in noise.mechanism else 1.0)
    return spread * math.sqrt(noise.coordinates) / levels


def clients_needed(error: float) -> int:
    """Return from how many clients on the mean's error is below the clip; see `error_of_one`."""
    return math.ceil(error * error)


# --- One target for all that a client sends under its own noise, whatever discloses it ---
#
# Each disclosure calibrates its noise as if an epsilon were its alone; what all of them come to is
# added up by Rényi composition. Where several stand beside each other that epsilon is made smaller
# for all of them alike, until the sum is within the policy's target.

Found = tuple[tuple[Parts | int, int], ...]
Vectors = Mapping[Disclosure, Found]
"""Per disclosure, for each Ask, the pieces of its numbers, or the entries of a vector, and how
often one client sends it."""
Chain = tuple[Guard, ...]
_FINE = 1e-4  # of a share, relative
_UP = Context(prec=6, rounding=ROUND_UP)


def of_exchanges(exchanges: Sequence[Exchange], dims: Mapping[str, int], rounds: int) -> Vectors:
    """Return what a form's clients send, by disclosure."""
    found: dict[Disclosure, Found] = {}
    for exchange in exchanges:
        for disclosure in dict.fromkeys(kind.disclosure for kind in exchange.back):
            kinds = [kind for kind in exchange.back if kind.disclosure is disclosure]
            sent = (parts_of(kinds, dims), exchange.times(rounds))
            found[disclosure] = (*found.get(disclosure, ()), sent)
    return found


def of_plan(plan: Plan) -> Vectors:
    """Return what a plan's clients send, by disclosure."""
    found: dict[Disclosure, Found] = {}
    for item in plan.all_of(step=Step.UP):
        sent = (planned_parts(item), item.times)
        found[item.disclosure] = (*found.get(item.disclosure, ()), sent)
    return found


def own_noises(
    policy: PrivacyPolicy, vectors: Vectors, clients: int
) -> dict[Disclosure, NoisePlan]:
    """Return the noise of every disclosure that has noise of its client's own.

    Args:
        policy: with one target for all of them.
        vectors: that one client sends in the run.
        clients: on the plan.

    Raises:
        NotAdmitted: too many clients for delta, or a mean would say nothing.
        PolicyError: no noise that can be drawn reaches the target, or the target is so large that
            no finite epsilon can be stated.
    """
    chains = {
        disclosure: policy.rules[disclosure]
        for disclosure in vectors
        if guard_of(policy.rules.get(disclosure, ()), OwnNoise)
    }
    if not chains:
        return {}
    smallest = policy.smallest_cohort
    for chain in chains.values():
        _check_delta(chain, policy, clients)
    facts = tuple((disclosure, chain, vectors[disclosure]) for disclosure, chain in chains.items())
    share = _share(facts, clients, smallest)
    found = {}
    for disclosure, chain, sent in facts:
        found[disclosure] = _one(disclosure, chain, sent, share, clients, smallest, checked=True)
        if find(chain, "relay"):
            alone, honest = len(facts) == 1, smallest - policy.colluders
            found[disclosure] = _relayed(found[disclosure], clients, honest, alone=alone)
    return found


def _relayed(noise: NoisePlan, clients: int, honest: int, *, alone: bool) -> NoisePlan:
    """Return the noise of messages that a relay puts in order, with what the order is worth.

    Nothing where other messages of the run are not relayed: the epsilon is one of the run. Nothing
    either where batches that are added up come to no less than the client's own noise gives.
    """
    worth = None
    if alone and noise.pure:
        off = _tails(noise.coordinates, noise.releases, clients)
        facts = float(noise.pure), honest, float(noise.delta), noise.releases
        worth = run_epsilon(*facts, tails=off)
    if worth is not None and worth >= float(noise.epsilon):
        worth = None
    said = "" if worth is None else f"{_UP.create_decimal_from_float(worth):f}"
    return noise.model_copy(update={"batch": honest, "shuffled": said})


def check_own(plan: Plan, policy: PrivacyPolicy) -> None:
    """Raise NotInPlan unless all own noise of a plan is what the policy's target asks for.

    The plan may have come from somebody else, and the noise protects the client: every number of it
    is computed again from policy, messages and how often they are sent.
    """
    wanted = own_noises(policy, of_plan(plan), len(plan.clients))
    for item in plan.items:
        sent = wanted.get(item.disclosure) if item.step is Step.UP else None
        own = item.noise is not None and item.noise.local
        if (sent is not None or own) and item.noise != sent:
            raise NotInPlan(
                f"{item.id}: the plan's noise is not what the policy's target needs.",
                why=_other(item.noise, sent),
                fix="make the plan anew, from this policy",
            )


def _other(stated: NoisePlan | None, needed: NoisePlan | None) -> str:
    """Say which number of a plan's noise is another one."""
    if stated is None or needed is None:
        return "noise is planned on one side only, by the plan or by the policy"
    names = [
        name for name in NoisePlan.model_fields if getattr(stated, name) != getattr(needed, name)
    ]
    return f"it states another {', '.join(names)}"


Facts = tuple[tuple[Disclosure, Chain, Found], ...]


@lru_cache(maxsize=16)
def _share(facts: Facts, clients: int, smallest: int) -> float:
    """Return the epsilon that each disclosure is calibrated for; the target, if it is alone."""
    (guard, *_) = [own for _, chain, _ in facts if (own := guard_of(chain, OwnNoise))]
    target = guard.epsilon

    def fits(share: float) -> bool:
        made = [_one(name, chain, sent, share, clients, smallest) for name, chain, sent in facts]
        curve, off = np.zeros(1), 0.0
        for noise in made:
            curve = curve + noise.releases * np.asarray(divergence(noise, 1))
            off += _tails(noise.coordinates, noise.releases, clients)
        return net_epsilon(curve, guard.delta, tails=off)[0] <= target * (1.0 + 1e-12)

    _check_finite(guard, facts, clients)
    if fits(target):
        return target
    low, high = target / 2.0, target
    while not fits(low):  # ends: noise that cannot be drawn is refused
        low, high = low / 2.0, low
    while high > low * (1.0 + _FINE):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _tails(coordinates: int, releases: int, clients: int) -> float:
    return tails(honest=clients, dimension=coordinates, releases=releases)


def _check_finite(guard: OwnNoise, facts: Facts, clients: int) -> None:
    """Refuse a target that nobody could state: delta pays e^epsilon times the samplers' tails."""
    off = math.fsum(
        _tails(
            max(entries_of(parts) for parts, _ in sent), sum(times for _, times in sent), clients
        )
        for _, _, sent in facts
    )
    most = math.log((guard.delta - WRAP) / off) if guard.delta > WRAP else -math.inf
    if guard.epsilon < most:
        return
    nearest = f"set epsilon of own_noise to {math.floor(most) - 1} or less, 16 at most to hide much"
    raise PolicyError(
        f"No run keeps to epsilon {guard.epsilon:g} and delta {guard.delta:g} in a finite number.",
        why="delta has to pay for the samplers' tails e^epsilon times",
        fix=nearest if most > 2 else f"set delta of own_noise to {1e3 * WRAP:.0e} or more",
    )


def _one(
    disclosure: Disclosure,
    chain: Chain,
    sent: Found,
    share: float,
    clients: int,
    smallest: int,
    *,
    checked: bool = False,
) -> NoisePlan:
    """Return the noise of one disclosure, calibrated for `share`; it states the whole target."""
    guard = guard_of(chain, OwnNoise)
    if guard is None:
        raise TypeError("a chain under own noise has the guard")
    accepted = guard.accept_noise if checked else True
    mine = guard.model_copy(update={"epsilon": share, "accept_noise": accepted})
    if disclosure is Disclosure.NOISED:
        others = tuple(mine if isinstance(one, OwnNoise) else one for one in chain)
        found = plan_own(others, sent, clients, smallest)
        if found is None:
            raise TypeError("a chain under own noise has a clip")
    else:
        found = _of_sums(mine, chain, sent, clients, smallest)
    return found.model_copy(update={"epsilon": repr(guard.epsilon)})


def _of_sums(guard: OwnNoise, chain: Chain, sent: Found, clients: int, smallest: int) -> NoisePlan:
    """Return the one noise of all sums: the longest vector decides.

    Raises:
        NotAdmitted: the mean of the smallest cohort would say nothing.
    """
    levels = (1 << ((guard_of(chain, Quantise) or Quantise()).bits - 1)) - 1
    longest = max(entries_of(parts) for parts, _ in sent)
    releases = sum(times for _, times in sent)
    noise = plan_noise(guard, levels, longest, releases, 1, clients)
    spread = float(noise.sigma) * (2.0**0.5 if noise.mechanism == "discrete_laplace" else 1.0)
    error = spread * (noise.coordinates / smallest) ** 0.5
    check_useful(error, levels, smallest, accepted=guard.accept_noise)
    return noise


def _check_delta(chain: Chain, policy: PrivacyPolicy, clients: int) -> None:
    """Refuse a delta that this plan's clients make too large."""
    try:
        check_own_noise(guard_of(chain, OwnNoise), clients)
    except ValueError as error:
        raise NotAdmitted(
            f"Policy {policy.name!r} cannot be played by {clients} clients.",
            why=str(error),
            fix=f"set delta of own_noise to {0.1 / clients:.1g} or less",
        ) from error
