"""What parties that work together get out of a matching beyond what ADR 0018 grants them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from protocols import desks
from protocols.cells import matched as honest
from protocols.sessions import brokering
from tests.protocols.matched import (
    STEP,
    Change,
    Found,
    Go,
    Items,
    cells_of,
    matching,
)


def test_o25_two_cells_of_one_number_do_not_share_a_blind(monkeypatch):
    """Matcher and aggregator, no client: both cells are told that they are number 0."""
    world = matching(clients=10).start()

    def lying(*arguments):
        found = honest(*arguments)
        told = {}
        for name, one in found.told.items():
            rows = one.rows[:, ::-1] if one.cell else one.rows
            told[name] = replace(one, cell=0, bits=np.packbits(rows, axis=1))
        return replace(found, told=told)

    def helping(run, said):
        groups = sorted({run.roster.unmask(mask) for _, mask in said.values()})
        return dict(enumerate(groups))

    monkeypatch.setattr(desks, "matched", lying)
    monkeypatch.setattr(brokering, "_whole", helping)
    world.prepare(1)
    world.pump(world.ask(1, given=Go(step=1), back=(Items,)))
    told = world.aggregator.reply().matched(Items, into=Found)
    words = np.frombuffer(told.told.totals, "<u4").reshape(-1, 3)
    read = (words[0] - words[1]).view(np.int32) * STEP
    cells = cells_of(world)
    sums = [
        np.sum([world.sites[n].vector for n in world.names if cells[n] == c], axis=0)
        for c in (0, 1)
    ]
    off = min(np.abs(read - d).max() for d in (sums[0] - sums[1], sums[1] - sums[0]))
    world.pump(world.ask(1, given=(Go(step=1), told), back=(Change,)))  # and nobody refuses
    assert off > 11 * STEP, "the aggregator reads the difference of two cells' totals"
