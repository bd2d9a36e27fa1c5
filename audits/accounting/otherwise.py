"""A run counted anew under other assumptions than its plan's: who is honest, which delta.

It changes nothing of the account and is no claim of the plan's: a row says what it assumes. Of a
client, `missing` others are assumed to be away or to collude, in place of the policy's number: as
planned, of all clients; as recorded, of those in each opened total. Of a training record noise is
its client's own, so nobody else matters.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Literal

from audits.accounting import models as m
from audits.accounting import rows, training
from audits.accounting.counted import Spend, spends
from audits.accounting.engines import Drawn, Meter
from audits.accounting.rows import Tally
from audits.evidence.run_files import RunView
from audits.evidence.steps import Case
from protocols.errors import PolicyError
from protocols.privacy.accounting import rounded_up
from protocols.strict import Strict

__all__ = ["Otherwise", "otherwise"]

Unit = Literal["client", "record"]


class Otherwise(Strict):
    """One row: what was planned, and what the ledgers show, under other assumptions.

    Attributes:
        missing: other clients of every total that are away or collude; None of a record.
        planned: of the run as planned.
        recorded: of the client that spent most.
    """

    missing: int | None
    planned: m.Epsilon
    recorded: m.Epsilon


def otherwise(
    view: RunView, *, missing: Iterable[int] = (), delta: float | None = None, unit: Unit = "client"
) -> tuple[Otherwise, ...]:
    """Return the run counted anew, a row for each number of missing clients.

    Args:
        view: of the run; its evidence is not checked here.
        missing: as above; none: what the policy assumes.
        delta: in place of the plan's; None: the plan's.
        unit: whose presence is bounded.

    Raises:
        PolicyError: the run has no noise for that unit, or a number cannot be.
        EvidenceError: a document cannot be read, or the plan states noise that is none.
    """
    case, wanted = Case(view.folder_only), tuple(missing)
    if delta is not None and not 0 < delta < 1:
        raise _wrong("delta is not between 0 and 1")
    if unit == "record":
        return (_of_a_record(case, wanted, delta),)
    tally = Tally(case)
    if not tally.items:
        raise _wrong("no noise hides a client in this run")
    others = tally.together - 1
    for number in wanted:
        if not 0 <= number <= others:
            raise _wrong(f"of {others} others {number} cannot be missing")
    return tuple(_rows(tally, wanted, delta or tally.delta))


def _rows(tally: Tally, wanted: tuple[int, ...], delta: float) -> Iterator[Otherwise]:
    case, meter = tally.case, Meter(tally.noises, delta, len(tally.plan.clients))
    scope, readers = tally.scope, any(item.reader for item in tally.items)  # a reader adds no noise
    for number in wanted or (tally.colluders,):
        found = spends(case.ledger_index, case.yardstick, tally.items, number)
        spent = max((meter.own(_drawn(tally, s, number)) for s in found.values()), default=0.0)
        honest = max(1, tally.together - readers - number)
        planned = meter.own(tally.planned(honest if wanted and not tally.local else None))
        whose = "no other's noise counts" if tally.local else f"{number} others are away or collude"
        text = f"{whose}, in place of what the policy assumes"
        make = replace(rows.labels(tally), delta=repr(delta))
        make = replace(make, assumptions=(make.assumptions[0], text, make.assumptions[-1]))
        unread = float("inf") if tally.unread else spent
        yield Otherwise(
            missing=number,
            planned=make.epsilon(planned, scope),
            recorded=make.epsilon(unread, scope, "of the client that spent most"),
        )


def _drawn(tally: Tally, found: Iterable[Spend], missing: int) -> Counter[Drawn]:
    """Return a client's vectors; one that was never opened is hidden by what was planned."""
    drawn: Counter[Drawn] = Counter()
    for one in found:
        honest = one.honest
        if not one.survivors and not one.alone and not tally.local:
            honest = max(1, honest + tally.colluders - missing)
        drawn[one.item, honest] += 1
    return drawn


def _of_a_record(case: Case, missing: tuple[int, ...], delta: float | None) -> Otherwise:
    if case.plan.training is None:
        raise _wrong("the run's training is not private, so no noise hides a record")
    if missing:
        raise _wrong("of a record nobody else's noise is counted on, so nobody can be missing")
    recorded = training.Recorded(case, case.plan.training)
    own = training.records(recorded)
    recorded.delta = delta or recorded.delta
    plan = recorded.plan
    planned = recorded.epsilon({(plan.rate, plan.noise): plan.releases})
    spent = recorded.spent(recorded.worst)

    def told(value: float) -> m.Epsilon:
        new = {"value": rounded_up(value), "delta": repr(recorded.delta)}
        return m.Epsilon.model_validate({**own.recorded.model_dump(), **new})

    return Otherwise(missing=None, planned=told(planned), recorded=told(spent))


def _wrong(why: str) -> PolicyError:
    return PolicyError("The run cannot be counted like that.", why=why, fix="see audit account")
