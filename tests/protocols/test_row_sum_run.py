"""Rows under masks through sessions and bytes: what is told, what nobody opens, kills and lies."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from protocols.disclosures.row_sum import parties as matching
from protocols.disclosures.row_sum.protocol import client as side
from protocols.disclosures.row_sum.protocol.assignment import Orders, assigned, orders
from protocols.disclosures.row_sum.run import held, needed_run
from protocols.errors import BadEnvelope, NotInPlan, Refused, Replay
from protocols.plan.steps import Step
from tests.protocols.rowed import (
    Change,
    Go,
    Terms,
    Told,
    row_plan,
    row_policy,
    row_round,
    rowed,
    same,
    watch_cuts,
)
from tests.protocols.test_results_resume import Killed
from tests.protocols.wire import refused


@pytest.fixture
def caught(monkeypatch):
    """Collect what the aggregator cuts out of clients' slots."""
    return watch_cuts(monkeypatch)


def test_receivers_read_exact_sums_of_enough_others():
    world = rowed().start()
    row_round(world)
    assert same(world) >= 3
    for name in world.names:
        for row, sums in world.sites[name].found.items():
            assert sums[-1] >= 3, (name, row)  # rows 1 and 5, of one leaf, are told to nobody
    told = [e for n in world.names for e in world.entries(n) if e["kind"] == "rows" and "told" in e]
    assert len(told) == len(world.names) and not any(e["dropped"] for e in told)


def test_colluders_are_counted_on_top():
    world = rowed(colluders=2, clients=6).start()  # floor 5: all others
    row_round(world)
    assert all(s[-1] >= 5 for n in world.names for s in world.sites[n].found.values())
    strict = rowed(minimum_cohort=3, colluders=2, clients=6)
    assert needed_run(strict.context("client-1")).floor == 5


def words(cut):
    return np.concatenate([np.concatenate(list(one.values())) for one in cut if one])


def uniform(values):
    """Tell by chi square, on highest and lowest byte, whether words are uniform."""
    ends = (values >> np.uint32(24), values & np.uint32(255))
    counts = [np.bincount(end.astype(np.int64), minlength=256) for end in ends]
    return all(stats.chisquare(count).pvalue > 1e-12 for count in counts)


def test_o1_the_aggregator_sees_uniform_words_of_each_client_and_of_each_total(caught):
    each, totals = [], []
    for _ in range(4):
        caught.clear()
        world = rowed().start()
        row_round(world)
        each.append(words(caught))
        keys = {key for cut in caught for key in cut}
        whole = [sum(cut[k] for cut in caught if k in cut) for k in sorted(keys)]
        totals.append(np.concatenate(whole))
    assert uniform(np.concatenate(each)) and uniform(np.concatenate(totals))


def test_the_control_without_a_blind_opens_totals_to_the_aggregator(caught, monkeypatch):
    real = side.masked

    def unblinded(values, modulus, plus, minus, **more):
        plus = list(plus)
        return real(values, modulus, plus[:-1] if plus else plus, minus, **more)

    monkeypatch.setattr(side, "masked", unblinded)
    world = rowed().start()
    row_round(world)
    keys = sorted({key for cut in caught for key in cut})
    whole = [sum(cut[k] for cut in caught if k in cut).astype(np.uint32) for k in keys]
    counts = np.array([one[-1] for one in whole])
    assert (counts < 100).all()  # the number of terms stands there in clear
    assert not uniform(np.tile(np.concatenate(whole), 40))


def test_a_client_that_vanishes_costs_its_rows_and_nothing_opens_without_it():
    gone = "client-6"
    world = rowed().start()
    world.prepare(1)
    deliver = world.deliver

    def without(delivery):
        # It vanishes once the matcher told it its rows: its sums never leave.
        if delivery.to == gone and told_orders(world, gone) is not None:
            return []
        return deliver(delivery)

    world.deliver = without
    world.pump(world.ask(1, given=Go(step=1), back=(Terms,)))
    sealed = world.aggregator.reply().read(Terms, into=Told)
    members = tuple(name for name in world.names if name != gone)
    world.pump(world.ask(1, given=(Go(step=1), sealed), back=(Change,), members=members))
    lost = 0
    for name in members:
        getting = told_orders(world, name).getting
        lost += sum(gone in one.others for one in getting)
        assert len(world.sites[name].found) == sum(gone not in one.others for one in getting)
    assert lost and not any(site.found for name, site in world.sites.items() if name == gone)


def told_orders(world, name):
    return held(world.context(name)).rows._orders


def lie(monkeypatch, change):
    """Let the matcher change what it tells: change(name, orders) -> orders."""

    def lying(served, client, digest):
        return change(client, orders(served, client, digest))

    monkeypatch.setattr(matching, "orders", lying)


def refuses(world, why):
    with pytest.raises((Refused, BadEnvelope)):
        row_round(world)
    errors = [world.session(n).last_error for n in world.names]
    assert any(why in str(error) for error in errors if error is not None)
    assert all(world.sites[n].found is None for n in world.names)


def test_o10_fewer_adders_than_the_floor_are_refused(monkeypatch):
    def fewer(name, told):
        adding = tuple(replace(a, others=tuple(sorted({name, *a.others[:1]}))) for a in told.adding)
        return Orders(told.digest, adding, ())

    lie(monkeypatch, fewer)
    refuses(rowed().start(), "rests on fewer than")


def test_o10_a_row_under_the_floor_is_opened_by_nobody_and_the_control_opens_it(monkeypatch):
    world = rowed().start()
    row_round(world)
    assert not any({1, 5} & set(world.sites[n].found) for n in world.names)

    def low(offers, floor, places, **more):
        return assigned(offers, 1, places, **more)

    monkeypatch.setattr(matching, "assigned", low)
    refuses(rowed().start(), "rests on fewer than")  # clients hold the matcher to the floor
    monkeypatch.setattr(side, "check_orders", lambda *_: None)  # the control: nobody does
    world = rowed().start()
    row_round(world)
    raw = {row for n in world.names for row, s in world.sites[n].found.items() if s[-1] == 1}
    assert raw  # one neighbour's raw term was read


def test_o25_a_node_in_two_rows_is_refused(monkeypatch):
    def freely(offers, floor, places, **more):
        return assigned(offers, floor, places, each=1 << 20)

    monkeypatch.setattr(matching, "assigned", freely)
    refuses(rowed().start(), "A node was to enter two rows")


def test_rows_are_added_up_once_in_a_run():
    world = rowed().start()
    row_round(world)
    with pytest.raises((NotInPlan, Replay, Refused)):
        row_round(world, 2)


def test_a_client_adds_up_no_rows_again_whoever_asks():
    """Past the aggregator's gateway, and past the client's: the second matching is refused."""
    world = rowed().start()
    row_round(world)
    world.prepare(2)
    world.aggregator._gateway._sent.clear()
    for delivery in world.ask(2, given=Go(step=2), back=(Terms,)):
        world.clients[delivery.to]._gateway._sent.clear()
        assert refused(world.deliver(delivery))
        assert isinstance(world.clients[delivery.to].last_error, Replay)


def test_the_plan_allows_one_matching_and_says_who_sees_what():
    plan = row_plan(row_policy())
    assert all(item.times == 1 for item in plan.items if str(item.part) == "ROW_SUM")
    item = plan.item("link.compare.ROW_SUM")
    assert "graph" in item.learns["matcher"]
    assert any("two tag servers together with the matcher" in said for said in plan.warnings)
    part = next(i for i in plan.items if i.step is Step.PART)
    assert "uniform" in part.learns["aggregator"]


def test_parties_killed_after_every_delivery_go_on():
    world = rowed(world=Killed)
    world.keep()
    world.start()
    row_round(world)
    assert same(world) >= 3 and world.kills > 40
