"""What noise of clients' own comes to, as a plan says it: per message, per round, for the run."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from math import prod

import numpy as np

from protocols.errors import NotAdmitted
from protocols.plan.noise import NoisePlan
from protocols.plan.plan import Item
from protocols.plan.steps import Service, Step
from protocols.policy.guard import find
from protocols.policy.policy import PrivacyPolicy
from protocols.privacy.accounting import net_epsilon, tails
from protocols.privacy.noising import divergence

__all__ = ["TRUST", "check_covered", "own_spending", "unnoised"]

_CLIENT = "client"
TRUST = "the relay is trusted to put messages in order and to tell nobody whose they are"
_SCORE = "ToldScore"  # of `algorithms.tasks.evaluation`
_CHARGED = "chosen by clients' scores, which are charged as said above"
_OWN_CHOICE = (
    "no data (each client keeps its best model by its own validation records, and nothing leaves)"
)
_NO_DATA: dict[str, str] = {
    Service.DRAW: "lots, drawn before any data is read",
    Service.PAIRS: "keys, drawn before any data is read",
    Service.HEADS: "that heads of ledgers arrived",
    Service.BUDGET: "how often its privacy budgets were taken from, and a digest of that",
    Service.TOTALS: "that a total arrived",
    Service.ASK: "that an Ask arrived",
    Step.VOTE: "which clients' uploads the aggregator listed",
    Step.SHARES: "shares of masks, drawn before any data is read",
    Step.SELF_SHARES: "shares of masks, drawn before any data is read",
}
"""What clients send that is made of no data (O16), and why."""


def own_spending(items: Sequence[Item]) -> str:
    """Return, in one sentence, what a run under own noise spends, and message by message (O16).

    Args:
        items: of the plan.
    """
    sent = [item for item in items if item.sender == _CLIENT]
    noised = [(item, item.noise) for item in sent if item.noise is not None]
    local = all(noise.local for _, noise in noised)
    bare = unnoised(items)
    delta = min(float(noise.delta) for _, noise in noised)
    run = _epsilon([(noise, item.times) for item, noise in noised], delta)
    basic = _basic([(noise, item.times) for item, noise in noised], delta)
    labels = (
        f"delta = {delta:g} (unit: client; adjacency: {'replace-one' if local else 'zero-out'}; "
        "model: local; scope: {}; assumptions: nobody else's noise, no credit for sampling)"
    )
    whole = (
        f"epsilon <= {_up(run)}, {labels.format('run')} by Renyi composition, {_up(basic)} by basic"
    )
    each = "; ".join(
        f"{item.id}: {_up(_epsilon([(noise, 1)], delta))} a message, "
        f"{_up(_epsilon([(noise, max(item.per_round, 1))], delta))} a round, {item.times} messages"
        f"{_told(item)}"
        for item, noise in noised
    )
    rest = "; ".join(
        f"{item.id}: no data ({why})" for item in sent if (why := _no_data(item)) is not None
    )
    outside = "refusals (one code: faults of the program alone), whether and when a client answers"
    told = any(message.name == _SCORE for item in sent for message in item.messages)
    chosen = f"the best round: {_CHARGED if told else _OWN_CHOICE}"
    if bare:
        covered = ", ".join(item.id for item, _ in noised)
        return (
            f"epsilon = infinity for the run; covered: {covered} with {whole}; not covered: "
            f"{', '.join(bare)}, {outside}; {each}; {rest}"
            f"{'; ' + chosen if told else ''}"
        )
    order = _order([noise for _, noise in noised])
    return f"{whole}; {each}; {rest}; {chosen}; not covered: {outside}{order}"


def _order(noises: Sequence[NoisePlan]) -> str:
    """Return what the order of relayed messages is worth, beside the clients' own (O23)."""
    relayed = [noise for noise in noises if noise.batch]
    if not relayed:
        return ""
    first = relayed[0]
    if not first.shuffled:
        mixed = len(set(noises)) > 1
        why = (
            "other messages of the run are not relayed"
            if mixed
            else f"n too small: {first.batch} honest messages a batch are counted on, for "
            f"{_up(float(first.pure))} a message in {first.releases} batches"
        )
        return f"; behind the relay: no claim ({why}); the epsilon above stands alone"
    return (
        f"; behind the relay, never charged and never in the place of the above: epsilon <= "
        f"{first.shuffled}, delta = {float(first.delta):g} (unit: client; adjacency: replace-one; "
        f"model: shuffled; scope: run; assumptions: {TRUST}, every batch holds one message each of "
        f"at least {first.batch} clients that keep to the randomiser, batches added up: "
        f"{first.releases}); against relay and aggregator together, or fewer such clients, the "
        "epsilon above alone holds"
    )


def unnoised(items: Sequence[Item]) -> list[str]:
    """Return the ids of what clients send that has no noise and is not known to hold no data.

    Refusals are said beside every epsilon: their one code is of faults of the program alone.
    """
    return [
        item.id
        for item in items
        if item.sender == _CLIENT
        and item.noise is None
        and _no_data(item) is None
        and item.step is not Step.REFUSE
    ]


def check_covered(items: Sequence[Item], policy: PrivacyPolicy) -> None:
    """Raise NotAdmitted where a policy has own noise and something leaves a client without any.

    A budget is charged for what has noise, so the rest may not leave.
    """
    own = any(find(chain, "own_noise") for chain in policy.rules.values())
    if own and (bare := unnoised(items)):
        raise NotAdmitted(
            f"{', '.join(bare)} would leave a client without noise of its own.",
            why="the epsilon of 'own_noise' is of all that a client sends in the run",
            fix="take a form whose messages all have a chain with own_noise",
        )


def _no_data(item: Item) -> str | None:
    """Return why an item of a client is made of no data; None if it is not known to be."""
    if item.follows:
        return "follows from what the client was handed"
    if item.noise is not None or item.step is Step.UP:  # what an algorithm says, as any part
        return None
    return _NO_DATA.get(item.step) or _NO_DATA.get(str(item.part))


def _told(item: Item) -> str:
    """Return what of an item is told by itself, with an equal share of its epsilon."""
    said = [
        f"{field.name} ({'one drawn of ' + str(prod(field.shape)) if field.shape else 'a number'})"
        for message in item.messages
        for field in message.fields
        if field.told
    ]
    return f", of {' and '.join(said)}" if said else ""


def _epsilon(sent: Iterable[tuple[NoisePlan, int]], delta: float) -> float:
    """Return epsilon of so many messages by Rényi composition."""
    total, off = np.zeros(1), 0.0
    for noise, times in sent:
        total = total + times * np.asarray(divergence(noise, 1))
        off += tails(honest=1, dimension=noise.coordinates, releases=times)
    return net_epsilon(total, delta, tails=off)[0]


def _basic(sent: Sequence[tuple[NoisePlan, int]], delta: float) -> float:
    """Return epsilon of so many messages by adding up: each has its equal share of delta."""
    share = delta / sum(times for _, times in sent)
    return math.fsum(
        times * (float(noise.pure) if noise.pure else _epsilon([(noise, 1)], share))
        for noise, times in sent
    )


def _up(value: float) -> str:
    """Return a number with four figures, never smaller than it is."""
    if not math.isfinite(value):
        return "infinity"
    digits = 3 - math.floor(math.log10(value)) if value > 0 else 3
    return f"{math.ceil(value * 10.0**digits) / 10.0**digits:.{max(digits, 0)}f}"
