"""Law of O5 over rounds: no totals that are served can be combined into one of few clients."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, product

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from protocols.errors import CohortChanged, RoundLost
from protocols.policy.policy import CohortChanges, divided, whole
from tests.protocols.test_dropouts import vanish
from tests.protocols.test_o5_changes import pairs_alone, world_of
from tests.protocols.toys import Update
from tests.protocols.unveiling import is_sum_of

CLIENTS, LEAST = 10, 4
COHORTS = st.lists(st.integers(1, 2**CLIENTS - 1), min_size=1, max_size=12)
RULES: Sequence[CohortChanges] = ("floor", "fixed")


def served(cohorts: Sequence[int], rule: CohortChanges, rules: object = divided) -> list[int]:
    """Return which of these cohorts are served, in order; smaller ones are never asked."""
    groups: tuple[int, ...] = ()
    found = []
    for cohort in cohorts:
        if cohort.bit_count() < LEAST:
            continue
        try:
            groups = rules(groups, cohort, rule, LEAST)  # type: ignore[operator]
        except CohortChanged:
            continue
        found.append(cohort)
    return found


def weights(cohorts: Sequence[int], signs: Sequence[int]) -> list[int]:
    """Return how often each client is in a combination of totals."""
    rows = list(zip(cohorts, signs, strict=True))
    return [sum(sign * (cohort >> i & 1) for cohort, sign in rows) for i in range(CLIENTS)]


def fewest(cohorts: Sequence[int], most: int = 4) -> int:
    """Return of how few clients a combination of up to `most` totals is, other than of none."""
    sizes = [CLIENTS]
    for chosen in combinations(sorted(set(cohorts)), min(most, len(set(cohorts)))):
        for signs in product((-1, 0, 1, 2), repeat=len(chosen)):
            size = sum(weight != 0 for weight in weights(chosen, signs))
            sizes += [size] if size else []
    return min(sizes)


@given(COHORTS)
@example([0b1111111111, 0b0001111111])  # three of ten away, one fewer than the floor
@settings(max_examples=150)
def test_o5_no_two_totals_that_are_served_differ_by_fewer_than_the_floor(cohorts) -> None:
    for one, other in combinations(served(cohorts, "floor"), 2):
        if one & other:
            for part in (one & ~other, other & ~one):
                assert part.bit_count() == 0 or part.bit_count() >= LEAST


@given(COHORTS)
@settings(max_examples=40, deadline=None)
def test_o5_nor_can_any_of_them_be_combined_into_one_of_few(cohorts) -> None:
    assert fewest(served(cohorts, "floor")) >= LEAST


def test_o5_control_by_pairs_some_can() -> None:
    everybody = 2**CLIENTS - 1
    three = [everybody, 0b11111, everybody & ~0b1111]
    assert served(three, "floor", pairs_alone) == three
    assert fewest(three) == 1 and served(three, "floor") == three[:2]


@given(COHORTS)
@settings(max_examples=150)
def test_o5_fixed_cohorts_that_overlap_are_equal(cohorts) -> None:
    found = served(cohorts, "fixed")
    assert all(one == other or not one & other for one, other in combinations(found, 2))


@given(COHORTS, st.sampled_from(RULES), st.randoms(use_true_random=False))
@settings(max_examples=150)
def test_who_was_shown_fewer_cohorts_refuses_none_that_all_may_be_shown(
    cohorts, rule, chance
) -> None:
    """So no honest run ends with a client that knows less than the aggregator."""
    found = served(cohorts, rule)
    seen = [cohort for cohort in found if chance.random() < 0.5]
    chance.shuffle(seen)
    assert served(seen, rule) == seen


@given(COHORTS, st.integers(1, 2**CLIENTS - 1))
@settings(max_examples=150)
def test_whole_groups_may_always_be_asked(cohorts, there) -> None:
    groups: tuple[int, ...] = ()
    for cohort in served(cohorts, "floor"):
        groups = divided(groups, cohort, "floor", LEAST)
    if kept := whole(groups, there):
        assert sorted(divided(groups, kept, "floor", LEAST)) == sorted(groups)


@pytest.mark.parametrize("rule", RULES)
@given(away=st.lists(st.sets(st.integers(0, 8), max_size=5), min_size=4, max_size=4))
@settings(max_examples=8, deadline=None)
def test_o5_no_run_with_drop_outs_opens_totals_that_tell_few(rule, away) -> None:
    world = world_of(rule, clients=9).start()
    opened = []
    for round, gone in enumerate(away, start=1):
        vanish(world, {world.names[i]: i % 2 for i in gone})
        there = [name for i, name in enumerate(world.names) if i not in gone]
        try:
            total = world.round(round).total(Update)
        except RoundLost:
            continue
        asked = [name for name in there if name in world.aggregator.asked.answers.survivors]
        assert is_sum_of(world, total, asked)
        opened.append(sum(1 << world.names.index(name) for name in asked))
    assert all(client.state == "READY" for client in world.clients.values())
    if rule == "floor":
        assert not opened or fewest(opened) >= LEAST
    else:
        assert len(set(opened)) <= 1
