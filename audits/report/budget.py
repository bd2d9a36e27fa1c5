"""The report's statement of formal privacy; ``secure-fgl audit account`` has all of it.

No epsilon is good by itself. The line on the first page says whose presence it bounds, over what,
against whom, and what it leaves of somebody's doubt; it is graded as NIST SP 800-226 grades an
epsilon of a person, and the worst view stands beside it: the aggregator with all other clients.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from audits.accounting import models as m
from audits.accounting import rows, training
from audits.accounting.calibration import calibrated
from audits.accounting.counted import Scored, counted, scored_of
from audits.accounting.empirical import empirical
from audits.accounting.engines import false_noise
from audits.accounting.models import NO_DELTA
from audits.accounting.rows import Tally, order, order_of, order_reasons
from audits.accounting.training import Recorded, records
from audits.attacks._shared.models import Claim
from audits.evidence.steps import Case
from audits.report.models import Account, Line, State
from audits.report.sections import Labelled, Spending, SpentAt
from protocols.plan.learns import OTHERS, TOGETHER, budget, grade, rated
from protocols.plan.learns import worst_view as worst_view_words
from protocols.plan.plan import Item
from protocols.plan.steps import Step
from protocols.policy.guard import find
from protocols.privacy.accounting import INFINITE, rounded_up
from protocols.privacy.record_noise import counted_in
from protocols.privacy.training import TrainingPlan
from protocols.wire.roles import Role

NO_NOISE = "none"
_TOLERANCE = 1e-9  # of adding up in another order


@dataclass(frozen=True)
class Worst:
    """What a run spends of a client against the worst of those who could look.

    Attributes:
        local: every client's noise is its own, so it holds against all others together.
        value: epsilon against the aggregator and all other clients, decimal text or ``infinity``.
    """

    local: bool
    value: str


def worst_view(case: Case) -> Worst | None:
    """Return the worst view of a run; None where no noise hides a client.

    Raises:
        EvidenceError: the plan states noise that is none.
    """
    if case.view.side and not case.yardstick.clients:
        return None
    if all(item.noise is None for item in case.plan.items):
        return None
    tally = Tally(case)
    if not tally.items:
        return None
    return Worst(tally.local, rows.worst(tally, rows.labels(tally)).value)


def _said(spent: Account) -> str:
    """Return an account in words, with its odds and its grade."""
    return (
        f"epsilon {spent.recorded} at delta {spent.delta}, counted from the ledgers; planned: "
        f"{spent.target}; {rated(spent.recorded, spent.unit)}"
    )


def budget_line(spent: Sequence[Account], worst: Worst | None) -> Line:
    """Return the fourth of the seven lines: what was spent of each unit, and against whom.

    Args:
        spent: from `accounts`.
        worst: from `worst_view`.
    """
    question, client = "How much privacy budget was spent?", spent[0]
    others = [f"Of {one.unit}: {_said(one)}" for one in spent[1:]]
    held = all(one.borne_out for one in spent)
    if not client.covered or worst is None:
        if others:
            said = [*others, "Of a client as a whole: infinity, the worst view"]
        else:
            noise = (
                "no noise was added"
                if client.mechanism == NO_NOISE
                else f"the only noise is {client.mechanism}"
            )
            said = [
                f"There is none to spend: {noise}, so epsilon is infinity for the run and no "
                "message as a whole is covered by a formal guarantee"
            ]
        uncovered = [name for one in spent[1:] for name in one.not_covered]
        said += [f"Not covered: {', '.join(uncovered)}"] if uncovered else []
        state: State = "ATTENTION" if held or not others else "FAIL"
        return Line(question=question, answer=f"{'. '.join(said)}.", state=state)
    against = TOGETHER if worst.local else OTHERS
    whole = f"Of one client as a whole, over {', '.join(client.covered)}, {against}"
    said = [f"{whole}: {_said(client)}"]
    if not worst.local:
        view = worst_view_words(worst.value)
        said.append(view[0].upper() + view[1:])
    said += others
    if client.not_covered:
        said.append(f"For the run: infinity; not covered: {', '.join(client.not_covered)}")
    good = not client.not_covered and grade(worst.value) == "conservative"
    state = "FAIL" if not held else "OK" if good else "ATTENTION"
    return Line(question=question, answer=f"{'. '.join(said)}.", state=state)


def accounts(case: Case, claims: Sequence[Claim] = ()) -> tuple[Account, ...]:
    """Return what a run spent, by its ledgers, in one statement a unit (O16): clients first.

    Args:
        case: the run.
        claims: that attacks held against evidence, for the word beside each epsilon.

    Raises:
        EvidenceError: the plan states noise that is none.
    """

    def told(found: Account) -> Account:
        said = empirical(found.recorded, found.unit, claims)
        return found.model_copy(update={"empirical": said})

    return tuple(map(told, _accounts(case)))


def _accounts(case: Case) -> tuple[Account, ...]:
    if case.view.side and not case.yardstick.clients:
        return (_elsewhere(case),)
    found = [_client(case)]
    if case.plan.training is not None:
        found.append(_record(case, case.plan.training))
    return (*found, *map(_scored, scored_of(case)))


def _elsewhere(case: Case) -> Account:
    """Return the statement of a side that is no client's: nothing can be counted from it."""
    return Account(
        unit="client",
        scope="run",
        mechanism=NO_NOISE,
        epsilon=INFINITE,
        recorded=INFINITE,
        target=INFINITE,
        borne_out=True,
        delta=NO_DELTA,
        covered=(),
        not_covered=(),
        statement=f"What a client spent stands in its own ledger, and {case.view.side} is none",
    )


def _scored(scored: Scored) -> Account:
    """Return what noise on single records' counts or rows spent of one of them."""
    found, rows = counted(scored), scored.plan.unit == "node"
    on = f"rows, {found.scale} times the clip, {found.fields} rows a node at most"
    return Account(
        unit=f"one {scored.said.record}",
        scope=found.recorded.scope,
        mechanism=f"{found.mechanism} on "
        f"{on if rows else f'counts, {found.scale} times what one record moves'}",
        epsilon=found.recorded.value,
        recorded=found.recorded.value,
        target=found.target.value,
        borne_out=scored.worst <= scored.target * (1.0 + _TOLERANCE),
        delta=found.recorded.delta,
        covered=found.items,
        not_covered=(),
        statement=found.statement,
    )


def _record(case: Case, plan: TrainingPlan) -> Account:
    """Return what private training spent of one training record."""
    found, recorded = records(Recorded(case, plan)), Recorded(case, plan)
    spent = recorded.spent(recorded.worst)
    return Account(
        unit=f"one training {plan.unit}",
        scope=found.recorded.scope,
        mechanism="discrete Gaussian on clipped gradients, Poisson batches",
        epsilon=found.recorded.value,
        recorded=found.recorded.value,
        target=found.target.value,
        borne_out=spent <= recorded.target * (1.0 + _TOLERANCE),
        delta=found.recorded.delta,
        covered=("everything computed from training records",),
        not_covered=plan.held_out if counted_in(case.plan.items) is None else (),
        statement=found.statement,
    )


def _client(case: Case) -> Account:
    if all(item.noise is None for item in case.plan.items):
        return _without_guarantee(case)
    tally = Tally(case)
    spent = tally.recorded(tally.worst)
    recorded = rounded_up(spent)
    covers_all = bool(tally.covered) and not tally.not_covered
    ordered = order_of(tally)
    refuted = ordered is not None and any(order_reasons(ordered))
    behind = f". {order(ordered).statement}" if ordered is not None else ""
    # What false noise would come to is no statement: it would be that of whoever wrote the plan.
    false = false_noise(case.plan, case.policy)
    planned = f"The plan's noise is false: {false.rstrip('.')}" if false else _planned(case)
    return Account(
        unit="client",
        scope="run",
        mechanism=", ".join(sorted({noise.mechanism for noise in tally.noises.values()})),
        epsilon=recorded if covers_all else INFINITE,
        recorded=recorded,
        target=rounded_up(tally.target),
        borne_out=spent <= tally.target * (1.0 + _TOLERANCE)
        and not (tally.bare or refuted or false),
        delta=repr(tally.delta),
        covered=tally.covered,
        not_covered=tuple(found.item for found in tally.not_covered),
        statement=f"{planned}. The ledgers show epsilon {recorded} of the client that "
        f"spent most on what is covered{behind}",
    )


def _planned(case: Case) -> str:
    """Return what the plan's noise comes to, computed anew: its own sentence is only its author's.

    A plan that was written by an earlier version may say the same in other words.
    """
    found = budget(case.plan.items, case.policy, case.plan.training)
    same = found == case.plan.budget
    return found if same else f"{found} (computed by this audit; the plan's own words differ)"


def _without_guarantee(case: Case) -> Account:
    """Return the statement of a run without noise that a guarantee for a client could rest on."""
    sent = [item for item in case.plan.all_of(step=Step.UP) if item.sender == Role.CLIENT]
    return Account(
        unit="client",
        scope="run",
        mechanism=_local(case, sent) or NO_NOISE,
        epsilon=INFINITE,
        recorded=INFINITE,
        target=INFINITE,
        borne_out=not false_noise(case.plan, case.policy),  # a policy may have asked for noise
        delta=NO_DELTA,
        covered=(),
        not_covered=tuple(sorted({message.name for item in sent for message in item.messages})),
        statement=_planned(case),
    )


def _local(case: Case, sent: Sequence[Item]) -> str:
    """Return which noise there is that no epsilon of a client rests on; empty if there is none."""
    found = sorted(
        f"{guard} in {item.id}"
        for item in sent
        for guard in ("laplace", "blur")
        if find(case.policy.rules.get(item.disclosure, ()), guard) is not None
    )
    return f"{', '.join(found)}, which counts for no client" if found else ""


# Section 4: every epsilon with its six labels, and how the budget went over the rounds.


MOST_POINTS = 40  # of one timeline; with more rounds it is thinned out


def spending(case: Case, claims: Sequence[Claim]) -> tuple[Spending, ...]:
    """Return one table and timeline per unit that has a budget; empty without noise.

    Args:
        case: the run.
        claims: that attacks held against evidence, for the word beside each epsilon.

    Raises:
        EvidenceError: the plan states noise that is none.
    """

    def told(row: Labelled) -> Labelled:
        said = empirical(row.epsilon.value, row.epsilon.unit, claims)
        return row.model_copy(update={"empirical": said})

    found = _spending(case)
    return tuple(one.model_copy(update={"rows": tuple(map(told, one.rows))}) for one in found)


def _spending(case: Case) -> tuple[Spending, ...]:
    found: list[Spending] = []
    if case.view.side and not case.yardstick.clients:
        return ()
    if any(item.noise is not None for item in case.plan.items):
        tally = Tally(case)
        if tally.items:
            found.append(_of_clients(tally))
    if case.plan.training is not None:
        found.append(_of_records(case, case.plan.training))
    return tuple(found)


def _of_clients(tally: Tally) -> Spending:
    make = rows.labels(tally)
    spent = tally.worst

    def upto(round: int) -> float:
        return tally.recorded([spend for spend in spent if spend.round <= round])

    return Spending(
        unit="client",
        rows=(
            *_labelled(rows.scopes(tally, make)),
            Labelled(what=f"the {tally.scope}, {TOGETHER}", epsilon=rows.worst(tally, make)),
        ),
        shares=tuple(rows.shares(tally, make)),
        target=rounded_up(tally.target),
        timeline=_timeline(tally.plan.rounds, [spend.round for spend in spent], upto),
        calibrated=calibrated(tally),
    )


def _labelled(scopes: Iterator[m.Scoped]) -> Iterator[Labelled]:
    for found in scopes:
        whole = found.scope in ("run", "covered messages", "all runs")
        where = f"the {found.scope}" if whole else f"one {found.scope}, at most"
        yield Labelled(what=f"{where}, planned", epsilon=found.planned)
        yield Labelled(what=f"{where}, by the ledgers", epsilon=found.recorded)


def _of_records(case: Case, plan: TrainingPlan) -> Spending:
    recorded = training.Recorded(case, plan)
    found, worst = training.records(recorded), recorded.worst
    entries = recorded.entries(worst, "training")
    bounded = recorded.spent(worst) < float("inf")

    def upto(round: int) -> float:
        steps: Counter[training.Rated] = Counter()
        for entry in entries:
            if entry["round"] <= round:
                steps[entry["rate"], entry["noise"]] += entry["steps"]
        return recorded.epsilon(steps) if bounded else float("inf")

    return Spending(
        unit=f"one training {plan.unit}",
        rows=(
            Labelled(what="the run, planned", epsilon=found.target),
            Labelled(what="the run, by the ledgers", epsilon=found.recorded),
        ),
        shares=(),
        target=found.target.value,
        timeline=_timeline(case.plan.rounds, [entry["round"] for entry in entries], upto),
    )


def _timeline(
    rounds: int, spent: Sequence[int], upto: Callable[[int], float]
) -> tuple[SpentAt, ...]:
    """Return what was spent at some of the rounds: the first, the last, and evenly between."""
    last = max([rounds, *spent])
    count = min(MOST_POINTS, last)
    points = sorted({last * place // count for place in range(1, count + 1)} | {0, 1})
    return tuple(SpentAt(round=n, value=rounded_up(upto(n))) for n in points if n <= last)
