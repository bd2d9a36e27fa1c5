"""Rows under attack: an aggregator with a client, a forged plan, a plug-in, and liars (O10)."""

from __future__ import annotations

import numpy as np
import pytest

from protocols.disclosures.row_sum import parties as matching
from protocols.disclosures.row_sum.guards import Rows
from protocols.disclosures.row_sum.protocol import wire
from protocols.disclosures.row_sum.protocol.assignment import Getting, Offer, confirmed
from protocols.disclosures.row_sum.run import held
from protocols.errors import NotInPlan, Refused, UnfitMessage
from protocols.wire.codec import encode
from tests.protocols.rowed import (
    ADDING,
    EACH,
    FEATURES,
    PLACES,
    STEP,
    Terms,
    row_plan,
    row_policy,
    row_round,
    rowed,
    same,
    watch_cuts,
)
from tests.protocols.wire import World


@pytest.fixture
def caught(monkeypatch):
    """Collect what the aggregator sees, by label, receiver and adders."""
    return watch_cuts(monkeypatch)


def read_labels(world, client, caught):
    """Return what the aggregator and a client find: rows by number, for whom, and who adds."""
    rows = held(world.context(client)).rows
    tags = {number: rows.held.sent[at].tobytes() for number, at in rows.held.places.items()}
    return {
        (number, receiver, others)
        for label, receiver, others in caught
        for number, tag in tags.items()
        if rows.row_run.label(Getting(tag, others), receiver, rows._bound, rows.digest) == label
    }


def guessing(caught):
    """Run with a client that has no node in any row, and asks tags of all nodes of others."""
    world = rowed()
    spy = world.sites["client-6"]
    spy.links, spy.wanted = np.zeros((2, 0), dtype=np.int64), np.arange(6 * EACH)
    row_round(world.start())
    assert caught
    keys = {key for cut in caught for key in cut if key[1] != "client-6"}
    return read_labels(world, "client-6", keys)


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


def bare_plan():
    """Return a plan that lets clients' sums of rows out as they are, under a policy with masks."""
    plan = row_plan(row_policy())
    (item,) = [i for i in plan.items if i.id == "link.up.ROW_SUM"]
    size = len(encode([raw()], plan.dims, None))
    bare = item.model_copy(update={"dims": {}, "body": size})
    return plan.model_copy(update={"items": tuple(bare if i is item else i for i in plan.items)})


def raw():
    return Terms(sums=np.full((PLACES, FEATURES + 1), 7.0))


def test_a_plan_that_lets_rows_out_without_masks_is_no_plan_of_the_policy():
    with pytest.raises(NotInPlan, match="other than one message of rows"):
        World(ADDING, row_policy(), plan=bare_plan(), d=FEATURES)


def test_the_door_lets_no_row_out_that_is_not_under_masks(monkeypatch):
    with monkeypatch.context() as blind:  # no party compares plan and policy
        blind.setattr("protocols.disclosures.row_sum.disclosure.rows_guard", lambda _: None)
        world = World(ADDING, row_policy(), plan=bare_plan(), clients=6, d=FEATURES)
    with pytest.raises((NotInPlan, UnfitMessage)):
        world.twin("client-1").release("link.up.ROW_SUM", [raw()], "aggregator", world.where())


def test_the_last_column_is_counted_by_the_door_and_each_node_once():
    world = rowed()
    for site in world.sites.values():
        site.terms[:, -1] = 7.0  # a plug-in says there what it likes, beyond bound and grid
        site.links = np.hstack([site.links, site.links])  # and each term twice
    row_round(world.start())
    found = [sums[-1] for site in world.sites.values() for sums in site.found.values()]
    assert found and max(found) <= 6
    for site in world.sites.values():
        site.terms[:, -1], site.links = 1.0, site.links[:, : site.links.shape[1] // 2]
    assert same(world) == len(found)


@pytest.mark.parametrize("wrong", ["own", "place"])
def test_a_node_has_one_number_and_one_term(wrong):
    world = rowed()
    site = world.sites["client-1"]
    if wrong == "own":
        site.own = np.zeros(EACH, dtype=np.int64)
    else:
        site.links = site.links - np.array([[EACH], [0]])  # counted from the end
    with pytest.raises(Refused):
        row_round(world.start())
    assert "do not ascend" in str(world.session("client-1").last_error)


def asking():
    """Return what a client is told that has no edge to anybody, and asks for all rows."""
    world = rowed()
    spy = world.sites["client-6"]
    spy.links, spy.wanted = np.zeros((2, 0), dtype=np.int64), np.arange(5 * EACH)
    row_round(world.start())
    assert same(world) >= 3
    return spy.found


def test_nobody_is_told_a_row_by_asking_for_its_number():
    assert not asking()


def test_the_control_that_believes_clients_tells_rows_of_others(monkeypatch):
    monkeypatch.setattr(matching, "confirmed", dict)
    assert len(asking()) >= 3


def offers(*links):
    """Return offers of clients by their links, each (client, node, row), all rows wanted."""
    found = {}
    for name, node, row in links:
        found.setdefault(name, {}).setdefault(row.encode(), set()).add(node.encode())
    rows = frozenset(row.encode() for _, _, row in links)
    return {
        name: Offer({row: frozenset(of) for row, of in nodes.items()}, rows)
        for name, nodes in found.items()
    }


EDGE = (("y", "v", "u"), ("a", "u", "v"))


def test_an_edge_is_there_if_both_ends_say_so():
    kept = confirmed(offers(*EDGE, ("y", "v", "v"), ("y", "w", "v"), ("y", "v", "w")))
    assert kept["a"] == Offer({b"v": frozenset({b"u"})}, frozenset({b"u", b"v"}))
    assert kept["y"].nodes[b"v"] == {b"v", b"w"} and kept["y"].wanted == {b"u", b"v", b"w"}


def test_o10_who_invents_a_neighbour_adds_to_no_row_and_is_told_none():
    kept = confirmed(offers(*EDGE, ("z", "n", "v"), ("z", "n", "u")))
    assert kept["z"] == Offer({}, frozenset()) and kept["a"].nodes[b"v"] == {b"u"}


def test_a_node_that_two_say_is_theirs_is_nobodys():
    kept = confirmed(offers(*EDGE, ("z", "v", "u")))
    assert b"v" not in kept["z"].wanted | kept["y"].wanted and not kept["z"].nodes


def test_o10_a_threshold_that_would_not_be_held_is_refused():
    assert Rows(form="published", threshold=10).threshold == 10
    with pytest.raises(ValueError, match="rests on minimum_cohort"):
        Rows(threshold=10)


def row_of_client_3(clients):
    """Return what client-3 is told of its row, in a run of so many clients; and the run."""
    world = rowed(clients=clients)
    for name, site in world.sites.items():
        site.wanted = np.array([2 * EACH]) if name == "client-3" else site.wanted[:0]
    row_round(world.start())
    return world.sites["client-3"].found[2 * EACH], world


def test_a_row_told_in_two_runs_tells_a_client_s_sum_and_the_plan_says_so():
    whole, world = row_of_client_3(6)
    without, _ = row_of_client_3(5)
    gone = world.sites["client-6"]
    true = gone.terms[gone.links[0][gone.links[1] == 2 * EACH]].sum(axis=0)
    assert true[-1] == 1 and np.abs(whole - without - true).max() < 16 * STEP
    assert any("in another run over the same data" in said for said in world.plan.warnings)
    told = world.plan.item("link.told.ROW_SUM").learns["client"]
    assert "with whom by name" in told
