"""How clients see to it that a model they are handed is no crafted one.

Whoever chooses the model chooses what its gradient tells: a crafted one makes a total show single
records (attack A20). So each exchange that hands out a model is planned in one of three ways:

    recomputed  the client draws the first model from the plan's public seed, and computes each
                later one from the last total, which has a check that only clients can make; the
                model itself is not sent
    bounded     the client takes what it is sent, unless it moved further from the last model than
                what clients may send can move it; loose where sums are weighted by records
    as sent     the client takes what it is sent, and the plan warns of it

Recomputing needs a form whose rounds follow from their totals, masks, and every client paired with
every other (below 100 clients, in one cohort), as the key of the checks travels with the secrets of
pairs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Final

import numpy as np

from protocols.disclosures._base.words import NETWORK, Planned, words_of
from protocols.disclosures.names import Disclosure
from protocols.errors import NotAdmitted, PolicyError
from protocols.forms import Form
from protocols.keys.groups import planned_degree
from protocols.messages import Message
from protocols.plan.plan import DataPlan, Item, NoisePlan, Plan
from protocols.plan.steps import Service, Step
from protocols.policy.guard import Guard, find
from protocols.policy.policy import PrivacyPolicy
from protocols.privacy.accounting import net_epsilon, rounded_up, tails
from protocols.privacy.noising import divergence
from protocols.privacy.record_noise import counted_in
from protocols.privacy.training import TrainingPlan
from protocols.rounds import Exchange

RECOMPUTED: Final = "recomputed"
BOUNDED: Final = "bounded"
_LOOSE: Final = 4
"""By how many times the bound of training records may exceed a client's own number: sites declare
a power of two, and a bound is refused beyond twice what they declare."""
AS_SENT: Final = "as sent"


@dataclass(frozen=True)
class Models:
    """What a form's models are, and how clients see to them.

    Attributes:
        how: one of the three above; empty where no model is handed out.
        kind: the message that is the model; None without one.
        exchange: name of the one that moves it.
        totals: the messages whose totals move it.
        reach: of the form.
        weighted: the sum is weighted by records, and divided by their number.
    """

    how: str = ""
    kind: type[Message] | None = None
    exchange: str = ""
    totals: tuple[type[Message], ...] = ()
    reach: float = 0.0
    weighted: bool = False

    def furthest(self, largest: float, records: int) -> float:
        """Return how far a round of clients within the clip moves a weight.

        A mean that is weighted by records moves by what one record may, not by what a client says
        of all of its own.

        Args:
            largest: what one client can say, with the noise of all.
            records: a client's training records at most.
        """
        return self.reach * largest * (min(1.0, _LOOSE / records) if self.weighted else 1.0)

    @classmethod
    def of(cls, form: Form[Any], policy: PrivacyPolicy, clients: int) -> Models:
        """Return how the models of an admitted form are seen to, among so many clients."""
        plain = form.plain or form
        first = plain.exchanges[0]
        kind = first.given[0]
        if not _is_model(kind):
            return cls()
        how = BOUNDED if plain.reach else AS_SENT
        chain = policy.rules.get(Disclosure.SUM, ())
        sums = all(back.disclosure is Disclosure.SUM for back in first.back)
        complete = planned_degree(clients, policy) == clients - 1
        able = plain.by_totals and sums and complete and find(chain, "mask") is not None
        able = able and not form.drawn  # clients of one cohort do not see the others' totals
        if able and policy.models == RECOMPUTED:
            how = RECOMPUTED
        return cls(how, kind, first.name, first.back, plain.reach, plain.weighted)

    def of_exchange(self, exchange: Exchange) -> str:
        """Return how clients see to the model that an exchange hands out; empty if it has none."""
        if self.kind is not None and exchange.given[0] is self.kind:
            return self.how
        return AS_SENT if any(map(_is_model, exchange.given)) else ""

    def checked_kinds(self, exchange: str) -> tuple[type[Message], ...]:
        """Return which of an exchange's sums have a check, the first of what comes back."""
        return self.totals if (self.how, self.exchange) == (RECOMPUTED, exchange) else ()

    def said(self, exchange: Exchange) -> dict[str, str] | None:
        """Return what a client learns of a total that it computes the model from; else None."""
        if self.of_exchange(exchange) != RECOMPUTED:
            return None
        names = ", ".join(kind.__name__ for kind in self.totals)
        return {
            "client": f"the cohort's total of {names}, from which it computes the model itself; "
            "one client alone can steer that model and read single records of others in a total",
            "network": "sender, recipient, time and size",
        }


def _is_model(kind: type[Message]) -> bool:
    weights = (field.wire in ("f4", "f8") and bool(field.shape) for field in kind.fields)
    return kind.disclosure is Disclosure.RELEASED and any(weights)


# --- What noise of clients' own comes to, as a plan says it: per message, per round, for the run
# ---

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


# --- In words: what each role learns from an item, and what a reader of the plan must know ---
#
# What only one disclosure says stands in its folder's `words.py`.

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
