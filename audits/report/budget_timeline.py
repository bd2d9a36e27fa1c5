"""Section 4: every epsilon with its six labels, and how the budget went over the rounds.

The statement to quote is made in :mod:`audits.report.budget`; ``secure-fgl audit account`` has more
still.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from audits.accounting import models as m
from audits.accounting import rows, training
from audits.accounting.calibration import calibrated
from audits.accounting.empirical import empirical
from audits.accounting.tally import Tally
from audits.attacks._shared.models import Claim
from audits.evidence.steps import Case
from audits.report.sections import Labelled, Spending, SpentAt
from protocols.plan.learns import TOGETHER
from protocols.privacy.accounting import rounded_up
from protocols.privacy.training import TrainingPlan

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
