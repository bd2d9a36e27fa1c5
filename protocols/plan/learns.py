"""In words: what each role learns from an item, and what a reader of the plan must know.

What only one disclosure says stands in its folder's `words.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from protocols.disclosures._base.words import NETWORK, Planned, words_of
from protocols.disclosures.names import Disclosure
from protocols.errors import PolicyError
from protocols.plan.plan import DataPlan, Item, Plan
from protocols.plan.steps import Step
from protocols.policy.guard import Guard, find
from protocols.policy.policy import PrivacyPolicy
from protocols.privacy.accounting import net_epsilon, rounded_up, tails
from protocols.privacy.noising import divergence
from protocols.privacy.own_words import own_spending
from protocols.privacy.record_noise import counted_in
from protocols.privacy.training import TrainingPlan

_CLEAR = "EVERYTHING: the message in clear"
BUDGET_WITHOUT_NOISE = (
    "no noise is added: epsilon = infinity for the run; covered: nothing; not covered: all messages"
)

OTHERS = "against the aggregator and as many clients as the policy assumes to collude"
TOGETHER = "against the aggregator and all other clients together, the worst view"
_GRADES = (
    (5.0, "conservative"),
    (20.0, "less conservative"),
    (math.inf, "too large to protect by itself"),
)
"""Epsilon below which NIST SP 800-226 (final, 2025) calls it so, where the unit is a person."""
_SURE = 9999  # of 10 000: nobody reads more digits of a doubt


def grade(epsilon: str) -> str:
    """Return the grade of an epsilon (decimal text); see `_GRADES`."""
    return next(word for most, word in _GRADES if float(epsilon) <= most)


def odds(epsilon: str, unit: str) -> str:
    """Return what an epsilon leaves of a doubt: of somebody who thinks it as likely as not."""
    sure = 1.0 / (1.0 + math.exp(-float(epsilon)))
    share = min(_SURE, math.ceil(10_000 * sure)) / 100
    more = "more than " if 10_000 * sure > _SURE else ""
    one = unit if unit.startswith("one ") else f"one {unit}"
    return (
        f"whoever thinks it as likely as not that the data of {one} are in it can be "
        f"{more}{share:g} % sure afterwards"
    )


def rated(epsilon: str, unit: str) -> str:
    """Return an epsilon's grade and odds, as plan and report print them."""
    return f"{grade(epsilon)} by NIST SP 800-226; {odds(epsilon, unit)}"


def worst_view(epsilon: str) -> str:
    """Return in words what holds against the aggregator with all other clients."""
    return f"{TOGETHER}: epsilon {epsilon}, {rated(epsilon, 'client')}"


def learns(
    disclosure: Disclosure,
    chain: tuple[Guard, ...],
    up: bool,
    *,
    model: bool = True,
    retold: bool = False,
) -> dict[str, str]:
    """Return, per role, what an item of this disclosure and protection tells it.

    Args:
        disclosure: of the item.
        chain: the policy's guards for it.
        up: True from client to aggregator, False from aggregator to client.
        model: a released message holds vectors or real numbers, and not mere flags and counters.
        retold: it holds what single clients said in clear.
    """
    words, network = words_of(disclosure), NETWORK if find(chain, "seal") else _CLEAR
    if not up:
        said = words.retold() if retold else words.handed(model)
        return {"client": said, "network": network}
    if find(chain, "unsafe_clear") is not None:
        return {"aggregator": _CLEAR, "network": _CLEAR}
    return words.learns(chain, network)


def budget(
    items: Sequence[Item], policy: PrivacyPolicy, training: TrainingPlan | None = None
) -> str:
    """Return, in one sentence a unit, what the run spends and what that covers (O16)."""
    local = [
        text
        for item in items
        for text in words_of(item.disclosure).spends(item, policy.rules.get(item.disclosure, ()))
    ]
    spent = "; ".join([_spent(items), *local])
    if training is None:
        return spent
    return f"{_of_records(items, training)}. For a client as a whole: {spent}"


def _of_records(items: Sequence[Item], training: TrainingPlan) -> str:
    """Return what the run spends of one training record (O16, O21)."""
    covered = [
        item.id
        for item in items
        if _from_data(item) and not {m.name for m in item.messages} <= set(training.held_out)
    ]
    text = (
        f"For one training {training.unit}: epsilon <= {training.epsilon}, "
        f"delta = {training.delta} (unit: {training.unit}; adjacency: add or remove one training "
        f"{training.unit}; model: local, each client perturbs its own gradients; scope: run; "
        f"assumptions: Poisson batches at rate {training.rate} over the client's own training "
        f"{training.unit}s, no credit for the choice of clients); covered: "
        f"{', '.join(covered) or 'nothing'} and the models computed from it; not covered: "
        "refusals (one code), times, how long training takes"
    )
    counted = counted_in(items)
    if training.held_out and counted is not None:
        text += (
            f"; for one validation or test {training.unit}: epsilon <= {counted.epsilon}, "
            f"delta = {counted.delta} (unit: {training.unit}; adjacency: add or remove one "
            f"validation or test {training.unit}; model: local, each client adds noise to its own "
            "counts; scope: run; assumptions: the split is given and nobody else's noise is "
            f"counted on); covered: {', '.join(training.held_out)}, in {counted.releases} "
            f"messages, noise of {float(counted.scale):.4g} times what one {training.unit} moves"
        )
    elif training.held_out:
        text += (
            f"; {', '.join(training.held_out)} counts validation and test {training.unit}s, which "
            "are other records: for those epsilon = infinity"
        )
    return text


def _spent(items: Sequence[Item]) -> str:
    """Return what the run spends of one client."""
    noised = [item for item in items if item.noise is not None]
    if not noised or noised[0].noise is None:
        for disclosure in Disclosure:
            own = [item for item in items if item.disclosure is disclosure]
            if text := words_of(disclosure).unaccounted(own):
                return text
        return BUDGET_WITHOUT_NOISE
    if any(item.noise is not None and item.noise.local for item in noised):
        return f"{own_spending(items)}; {_alone(noised)}"
    noise, listed = noised[0].noise, ", ".join(item.id for item in noised)
    open_items = [item.id for item in items if item.noise is None and _from_data(item)]
    views = f"{OTHERS}: {rated(noise.epsilon, 'client')}; {_alone(noised)}"
    target = (
        f"epsilon <= {noise.epsilon}, delta = {noise.delta} (unit: client; adjacency: zero-out; "
        f"model: distributed sum, {noise.honest} honest shares; scope: run)"
    )
    if open_items:
        rest = ", ".join(open_items)
        return (
            f"epsilon = infinity for the run; covered: {listed} with {target}; not covered: {rest}"
            f"; of what is covered, {views}"
        )
    return f"{target}; covered: {listed}; not covered: refusals (one code), times; {views}"


def _alone(noised: Sequence[Item]) -> str:
    """Return in words what a client's own share of the noise comes to, and no other (O18)."""
    noises = dict.fromkeys(item.noise for item in noised if item.noise is not None)
    delta, total, off = min(float(noise.delta) for noise in noises), np.zeros(1), 0.0
    try:
        for noise in noises:
            total = total + noise.releases * np.asarray(divergence(noise, 1))
            off += tails(honest=1, dimension=noise.coordinates, releases=noise.releases)
        return worst_view(rounded_up(net_epsilon(total, delta, tails=off)[0]))
    except PolicyError:  # outside of what was analysed: no bound
        return worst_view(rounded_up(math.inf))


def _from_data(item: Item) -> bool:
    """Tell whether a client computes this item from its data."""
    return item.step is Step.UP and not item.follows


ACTIVE_AGGREGATOR = "an active aggregator can have a single upload opened"
KEY_THEFT = (
    "one crafted ciphertext, opened, gives an active aggregator the run's secret key and so every "
    "upload of the run; a dishonest client can bring the key out through the total"
)


def schemes(items: Sequence[Item]) -> dict[str, str]:
    """Return under which encryption messages are compared and weighed; empty if none are."""
    found = {}
    for item in items:
        computed = words_of(item.disclosure).computed if item.step is Step.UP else ""
        for guard in item.guards if computed else ():
            if "(scheme=" in guard:
                found[computed] = guard.split("=", 1)[1].partition(",")[0]
    return found


FOLLOWS = (
    "{}: follows from what its sender was handed, and from none of its data, as the algorithm's "
    "file says; nothing else sees to it"
)


HANDED_ON = "after the run each site may hand on what these attacks find of its own data: {}"


def runs_as(algorithm: str) -> str:
    """Return how the warning begins that options leave out what an algorithm is called after."""
    return f"{algorithm} runs as "


def reduced(plan: Plan) -> Iterator[str]:
    """Yield what a plan's algorithm is where its options leave out what it is called after."""
    begins = runs_as(plan.algorithm)
    yield from (text.removeprefix(begins) for text in plan.warnings if text.startswith(begins))


def not_used(plugin: str) -> str:
    """Return how the warning begins that nothing in a run names a plug-in that was given."""
    return f"the plug-in {plugin} is given and not used: "


def warnings(plan: Planned, data: DataPlan, *, private: bool = False) -> list[str]:
    """Return what a reader of the plan must know before approving it.

    Args:
        plan: items and policy, and what is known of the clients.
        data: of the plan.
        private: training hides single records.
    """
    found = ["the data are SYNTHETIC (generated)"] if data.synthetic else []
    found += [words_of(item.disclosure).in_clear(item) for item in plan.items if item.unsafe]
    for disclosure in Disclosure:
        found += words_of(disclosure).warnings(plan)
    found += [FOLLOWS.format(item.id) for item in plan.items if item.follows]
    if plan.policy.audit is not None:
        found.append(HANDED_ON.format(", ".join(plan.policy.audit.share)))
    if private:
        found.append("totals are of noised gradients, but hide single records only, not a client")
    elif not any(item.noise is not None for item in plan.items):
        found.append("the totals themselves are disclosed and are not noised")
    return [text for text in dict.fromkeys(found) if text]
