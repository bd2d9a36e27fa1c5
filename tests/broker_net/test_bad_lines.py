"""A run over lines that delay and lose packets, one of which is cut for half a minute."""

from __future__ import annotations

import time
from pathlib import Path

from tests.broker_net.federation import PARTIES, Federation
from tests.broker_net.hosts import Lines, needed

ROUNDS = 18
CUT_SECONDS = 30.0


def test_a_cut_costs_at_most_the_rounds_that_it_lasts(tmp_path: Path) -> None:
    needed()
    with Lines(["hub", *PARTIES], delay=0.08, loss=0.01) as lines:
        run = Federation(lines, tmp_path, ["hub"], rounds=ROUNDS, deadline=8)
        run.serve("hub", run.config("hub"))
        run.start()
        run.until(lambda: len(run.survivors()) >= 2)
        lines.cut.add("client-3")
        before, ends = len(run.survivors()), time.monotonic() + CUT_SECONDS
        run.until(lambda: time.monotonic() > ends)
        lines.cut.clear()
        after = len(run.survivors())
        run.until_over()
        counts = run.survivors()
    assert before < after < ROUNDS - 2, "the cut was not in the middle of the run"
    assert {*counts[:before]} == {5} and {*counts[before:after]} <= {4, 5} and 4 in counts
    assert {*counts[after + 2 :]} == {5}, "who is back takes part again"
    assert run.parties.result()["lost_rounds"] == []
