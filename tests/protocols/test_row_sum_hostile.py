"""Rows under attack: an aggregator with a client, a forged plan, a plug-in, and liars (O10)."""

from __future__ import annotations

import numpy as np
import pytest

from protocols.disclosures.row_sum import aggregator
from protocols.disclosures.row_sum.protocol import wire
from protocols.disclosures.row_sum.protocol.assignment import Getting
from protocols.disclosures.row_sum.protocol.wire import cut_slots
from protocols.disclosures.row_sum.run import held
from tests.protocols.rowed import EACH, row_round, rowed


@pytest.fixture
def caught(monkeypatch):
    """Collect the labels, receivers and adders that the aggregator sees."""
    found = set()

    def cutting(data, run):
        cut = cut_slots(data, run)
        found.update(cut)
        return cut

    monkeypatch.setattr(aggregator, "cut_slots", cutting)
    return found


def read_labels(world, client, caught):
    """Return what the aggregator and a client find: rows by number, for whom, and who adds."""
    rows = held(world.context(client)).rows
    tags = {number: rows.held.sent[at].tobytes() for number, at in rows.held.places.items()}
    return {
        (number, receiver, others)
        for label, receiver, others in caught
        for number, tag in tags.items()
        if rows.rows.label(Getting(tag, others), receiver, rows._bound, rows.digest) == label
    }


def guessing(caught):
    """Run with a client that has no node in any row, and asks tags of all nodes of others."""
    world = rowed()
    spy = world.sites["client-6"]
    spy.links, spy.wanted = np.zeros((2, 0), dtype=np.int64), np.arange(6 * EACH)
    row_round(world.start())
    assert caught
    return read_labels(world, "client-6", {key for key in caught if key[1] != "client-6"})


def test_o24_the_aggregator_with_a_client_tries_no_tags_on_labels(caught):
    assert not guessing(caught)


def test_o24_the_control_without_the_matchers_secret_tells_whose_rows_these_are(
    caught, monkeypatch
):
    real = wire._row

    def without(*args):
        return (*real(*args)[:2], b"")

    monkeypatch.setattr(wire, "_row", without)
    assert len(guessing(caught)) >= 3
