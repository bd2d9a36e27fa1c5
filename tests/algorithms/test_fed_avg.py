"""FedAvg: the averages of both forms are over who answered, whoever was asked."""

from __future__ import annotations

import numpy as np
import pytest

from algorithms._shared.steps import Change
from algorithms.fed_avg import Start, Update, fed_avg
from protocols.disclosures.sum.view import TotalView
from protocols.messages import SumMessage
from protocols.rounds import Cohort, Reply
from tests.toys.quadratic import Quadratic

ASKED, ANSWERED, RECORDS = 5, 4, 12


@pytest.mark.parametrize(
    ("form", "kind", "facts", "divisor"),
    [(0, Update, {"count": RECORDS}, RECORDS), (1, Change, {}, ANSWERED)],
)
def test_the_total_is_divided_by_records_or_by_who_answered(
    form: int, kind: type[SumMessage], facts: dict[str, int], divisor: int
) -> None:
    task = Quadratic()
    algorithm = fed_avg(task)
    start = algorithm.init(np.random.default_rng(0))
    steps = algorithm.forms[form].round(start, Cohort([f"client-{n}" for n in range(ASKED)]))
    ask = next(steps)
    assert ask.wanted == (kind,) and ask.cohort.size == ASKED
    total = np.arange(1.0, task.size + 1.0)
    reply = Reply({kind: TotalView(kind(delta=total, **facts))}, answers=ANSWERED)
    with pytest.raises(StopIteration) as ended:
        steps.send(reply)
    found = ended.value.value
    assert isinstance(found, Start)
    np.testing.assert_allclose(found.weights, start.weights + total / divisor, rtol=1e-6)
