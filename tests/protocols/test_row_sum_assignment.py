"""Who adds up which row: the floor, one row a node, most rows, and what clients see of a lie."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from protocols.disclosures.row_sum.protocol.assignment import (
    Offer,
    Orders,
    assigned,
    check_orders,
    orders,
)
from protocols.errors import BadEnvelope

CLIENTS = tuple("abcdefg")
DIGEST = bytes(32)


def tag(text):
    return text.encode().ljust(16, b"\0")


def world(seed, rows=12, nodes=4):
    """Return offers of seven clients with nodes each, at random; every client wants some rows."""
    rng = np.random.default_rng(seed)
    found = {}
    for name in CLIENTS:
        enters = {}
        for row in range(rows):
            own = [n for n in range(nodes) if rng.random() < 0.15]
            if own:
                enters[tag(f"row{row}")] = frozenset(tag(f"{name}{n}") for n in own)
        wanted = frozenset(tag(f"row{row}") for row in range(rows) if rng.random() < 0.3)
        found[name] = Offer(enters, wanted)
    return found


def sums(served):
    return [(one, receiver) for one in served for receiver in one.receivers]


@pytest.mark.parametrize("seed", range(8))
def test_every_row_rests_on_enough_others_and_every_node_enters_one(seed):
    offers = world(seed)
    served = assigned(offers, 3, 64)
    seen = {}
    for one, receiver in sums(served):
        assert len(one.others(receiver)) >= 3 and receiver not in one.others(receiver)
        for name in one.others(receiver):
            for node in offers[name].nodes[one.row]:
                assert seen.setdefault(node, one.row) == one.row
    free = assigned(offers, 3, 64, each=1 << 20)
    assert len(free) > len(served) > 0  # the control tells more, of nodes that stand in several


def test_the_rule_serves_most_rows_where_it_can():
    # One row of all clients' only node, or two of half of them each: the rule takes the two.
    def offer(name):
        node = frozenset({tag(f"{name}0")})
        half = "left" if name in "abc" else "right"
        return Offer({tag("all"): node, tag(half): node}, frozenset())

    offers = {name: offer(name) for name in "abcdef"}
    offers["g"] = Offer({}, frozenset({tag("all"), tag("left"), tag("right")}))
    served = assigned(offers, 3, 64)
    assert sorted(one.row for one in served) == [tag("left"), tag("right")]
    assert not assigned(offers, 7, 64)


def test_no_more_rows_than_there_is_room_for():
    offers = world(3)
    served = assigned(offers, 2, 1)
    for name in CLIENTS:
        assert sum(r == name for _, r in sums(served)) <= 1
        assert sum(name in one.others(r) for one, r in sums(served)) <= 1


def honest(seed=0):
    """Return a client with something to add and to get, its orders and its offer."""
    offers = world(seed)
    served = assigned(offers, 3, 64)
    for name in CLIENTS:
        told = orders(served, name, DIGEST)
        if told.adding and told.getting:
            return name, told, offers[name]
    raise AssertionError("choose another seed")


def check(name, told, offer, floor=3):
    check_orders(told, name, offer, DIGEST, floor, set(CLIENTS))


def test_what_an_honest_matcher_says_is_taken():
    for seed in range(8):
        offers = world(seed)
        served = assigned(offers, 3, 64)
        for name in CLIENTS:
            check(name, orders(served, name, DIGEST), offers[name])


def test_lies_of_the_matcher_are_seen():
    name, told, offer = honest()
    first, got = told.adding[0], told.getting[0]

    def adding(**facts):
        return replace(told, adding=(replace(first, **facts), *told.adding[1:]))

    stranger = tuple(sorted({*first.others, "z"}))
    lies = {
        "canary": replace(told, digest=bytes(31) + b"1"),
        "rests on fewer": adding(others=first.others[:2]),
        "not there": adding(others=stranger),
        "among those that add": adding(receiver=first.others[0]),
        "no node in": adding(row=tag("elsewhere")),
        "did not ask for": replace(told, getting=(replace(got, row=tag("elsewhere")),)),
        "twice": replace(told, getting=(got, got)),
    }
    for why, lie in lies.items():
        with pytest.raises(BadEnvelope, match=why):
            check(name, lie, offer)


def test_a_node_in_two_rows_is_refused_and_in_one_row_for_two_is_not():
    node = frozenset({tag("a0")})
    offer = Offer({tag("x"): node, tag("y"): node}, frozenset())
    one = orders(assigned(one_row("x"), 3, 9), "a", DIGEST)
    check("a", one, offer)
    both = orders([*assigned(one_row("x"), 3, 9), *assigned(one_row("y"), 3, 9)], "a", DIGEST)
    with pytest.raises(BadEnvelope, match="two rows"):
        check("a", both, offer)
    assert len({a.receiver for a in one.adding}) == 2


def one_row(row):
    offers = {name: Offer({tag(row): frozenset({tag(f"{name}0")})}, frozenset()) for name in "abcd"}
    return {**offers, "e": Offer({}, frozenset({tag(row)})), "f": Offer({}, frozenset({tag(row)}))}


def test_two_receivers_of_one_row_get_sums_that_differ_by_themselves_alone():
    told = orders(assigned(one_row("x"), 3, 9), "a", DIGEST)
    first, second = told.adding
    offer = one_row("x")["a"]
    check("a", told, offer)
    fewer = replace(second, others=tuple(n for n in second.others if n != "d"))
    with pytest.raises(BadEnvelope, match="sums of other clients"):
        check("a", Orders(DIGEST, (first, fewer), ()), offer)


@pytest.mark.parametrize("seed", range(4))
def test_no_combination_of_rows_rests_on_fewer_clients_whoever_pools_two_receivers(seed):
    """Exhaustively, over all small integer combinations of what two receivers are told."""
    offers = world(seed)
    served = assigned(offers, 3, 64)
    names = sorted({(n, node) for n, o in offers.items() for of in o.nodes.values() for node in of})
    place = {one: at for at, one in enumerate(names)}
    for pair in combinations(CLIENTS, 2):
        rows = []
        for one, receiver in sums(served):
            if receiver in pair:
                row = np.zeros(len(names), dtype=int)
                for name in one.others(receiver):
                    if name not in pair:  # their own terms they know
                        row[[place[name, node] for node in offers[name].nodes[one.row]]] = 1
                rows.append(row)
        for chosen in combinations(rows, min(len(rows), 3)):
            for signs in np.ndindex(*(3,) * len(chosen)):
                total = sum((s - 1) * row for s, row in zip(signs, chosen, strict=True))
                if not np.any(total):
                    continue
                rest = {names[at][0] for at in np.flatnonzero(total)}
                assert len(rest) >= 3 - 1  # one colluder may be among the adders (O10)
