"""O5 over rounds: `cohort_changes`, and what an aggregator that drops clients gets to subtract.

Each lie is told under all three values. Under `any`, the default, it works: that is the control.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
from pydantic import ValidationError

from protocols.errors import CohortChanged, NotInPlan, RoundLost
from protocols.policy.policy import PRESETS, PrivacyPolicy
from protocols.sessions import survivors
from protocols.sessions.part import State
from protocols.wire.envelope import Envelope
from tests.protocols.killed import Killed
from tests.protocols.test_dropouts import STEPS, UPLOADED, openings_of, vanish
from tests.protocols.test_malicious_aggregator import colluding, opens
from tests.protocols.toys import Update, changed_policy, maskless
from tests.protocols.unveiling import haul, is_sum_of, unveil
from tests.protocols.wire import World, headers_of, refused
from tests.thinned import thinned

RULES = ["any", "floor", "fixed"]
STEP = 5.0 / (2**15 - 1)  # of the grid, as policies in this test have it
Sums = Sequence[tuple[Sequence[str], Sequence[str]]]
"""Of each round, who is asked and who is said to be left."""


def world_of(
    rule: str, policy: str = "masks", clients: int = 6, *, kind: type[World] = World, **facts: int
) -> World:
    chosen = changed_policy(policy, **{"rekey_rounds": 4, "cohort_changes": rule, **facts})
    return kind(policy=chosen, clients=clients, rounds=4)


def totals(world: World, sums: Sums) -> list[Update]:
    """Return the totals that an aggregator gets of which nobody believes anything."""
    found = []
    for number, (members, left) in enumerate(sums, start=1):

        def listed(name: str, members: Sequence[str] = members, left: Sequence[str] = left):
            return left if name in left or name not in members else None

        got = haul(world, listed, members=members, round=number, exchange=number)
        found.append(unveil(world, got, left))
    return found


def is_of(world: World, found: Sequence[Update], signs: Sequence[int], victim: str) -> bool:
    """Tell whether a combination of totals is one client's update, to the grid and the record."""
    site, most = world.sites[victim], 2 * len(world.names) * len(found) * STEP
    delta = sum(sign * one.delta for sign, one in zip(signs, found, strict=True))
    count = sum(sign * one.count for sign, one in zip(signs, found, strict=True))
    return count == site.count and bool(np.max(np.abs(delta - site.delta)) <= most)


# --- what an aggregator tells clients ------------------------------------------------------------


LIES: dict[str, Callable[[Sequence[str]], Sums]] = {
    "one left out": lambda names: [(names, names), (names[1:], names[1:])],
    "one said to have vanished": lambda names: [(names, names), (names, names[1:])],
    "one more than before": lambda names: [(names[1:], names[1:]), (names, names)],
    "all, fewer, all again": lambda names: [(names, names), (names[1:], names[1:]), (names, names)],
}


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("lie", LIES)
def test_o5_totals_without_one_client_are_served_under_any_alone(rule: str, lie: str) -> None:
    world = world_of(rule).start()
    sums, victim = LIES[lie](world.names), world.names[0]
    if rule == "any":
        found = totals(world, sums)
        signs = [-1, 1] if lie == "one more than before" else [1, -1, 0][: len(sums)]
        assert is_of(world, found, signs, victim)
        return
    totals(world, sums[:1])
    asked, changed = sums[1][0], sums[1][0] != sums[0][0]
    for name in asked:  # whoever was not asked before was shown the survivor list
        answered = world.clients[name].receive(world.evil_ask(name, asked, round=2, exchange=2))
        assert refused(answered) is changed
    if changed:
        told = [world.clients[name].last_error for name in asked]
        assert all(isinstance(error, CohortChanged) and rule in error.what for error in told)


@pytest.mark.parametrize("rule", ["floor", "fixed"])
def test_o5_nobody_votes_for_a_list_without_one_client(rule: str) -> None:
    world = world_of(rule, clients=7).start()
    names = world.names
    asked, outside = names[:6], names[6]  # who holds shares and was not asked votes no more
    first = haul(world, lambda name: asked, members=asked)
    assert is_sum_of(world, unveil(world, first, asked), asked)
    left = asked[1:]
    found = haul(
        world,
        lambda name: left if name != asked[0] else None,
        members=asked, round=2, exchange=2,
    )  # fmt: skip
    assert found.refused == {*left, outside} and not found.votes and not found.given
    errors = [world.clients[name].last_error for name in found.refused]
    assert all(isinstance(error, CohortChanged) for error in errors)


def pairs_alone(groups: tuple[int, ...], cohort: int, rule: str, least: int) -> tuple[int, ...]:
    """The rule that looks at two cohorts at a time: a broken variant."""
    for other in groups:
        parts = [part for part in (other & ~cohort, cohort & ~other) if part]
        if other & cohort and any(part.bit_count() < least for part in parts):
            raise CohortChanged("Two cohorts differ by few.")
    return (*groups, cohort)


def three(names: Sequence[str]) -> Sums:
    """All of ten, the first five and the last six: each differs from each by four or more."""
    return [(group, group) for group in (names, names[:5], names[4:])]


def test_o5_three_totals_tell_no_client_either() -> None:
    world = world_of("floor", clients=10).start()
    sums = three(world.names)
    totals(world, sums[:2])
    for name in sums[2][
        0
    ]:  # each was shown the lists of both sums, the second one's members or not
        ask = world.evil_ask(name, sums[2][0], round=3, exchange=3)
        assert refused(world.clients[name].receive(ask))


def test_o5_who_was_in_all_three_needs_no_list_to_refuse() -> None:
    world = world_of("floor", clients=10).start()
    names, one = world.names, world.clients[world.names[4]]
    for number, (asked, _) in enumerate(three(names), start=1):
        ask = world.evil_ask(one.name, asked, round=number, exchange=number)
        assert refused(one.receive(ask)) is (number == 3)


def test_o5_control_by_pairs_three_totals_tell_one_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(survivors, "divided", pairs_alone)
    world = world_of("floor", clients=10).start()
    found = totals(world, three(world.names))
    assert is_of(world, found, [-1, 1, 1], world.names[4])


def apart(world: World) -> list[Update] | None:
    """Get three totals of few clients, with no holder told of all of them; None: refused."""
    names, found = world.names, []
    others, far = names[:11], names[11:]
    plan = [(names[:9], others), (names[:4], (*names[:2], *far)), (names[4:8], (*names[4:6], *far))]
    for number, (group, told) in enumerate(plan, start=1):
        if number > 1 and world.policy.cohort_changes == "fixed":
            asks = {n: world.evil_ask(n, group, round=number, exchange=number) for n in group}
            assert all(refused(world.clients[n].receive(ask)) for n, ask in asks.items())
            return None
        got = haul(
            world,
            lambda name, group=group, told=told: group if name in told else None,
            members=group, round=number, exchange=number,
        )  # fmt: skip
        found.append(unveil(world, got, group))
    return found


@pytest.mark.parametrize("rule", ["floor", "fixed"])
def test_o5_of_totals_over_few_no_client_may_know_enough_under_floor(rule: str) -> None:
    """LIMITATIONS.md: under masks alone, with more than half of all clients left out."""
    world = world_of(rule, clients=20).start()
    found = apart(world)
    assert (found is None) is (rule == "fixed")
    assert found is None or is_of(world, found, [1, -1, -1], world.names[8])


def test_o5_the_authority_knows_of_all_totals() -> None:
    world = world_of("floor", "he", clients=20).start()
    names = world.names
    for number, group in enumerate((names[:9], names[:4], names[4:8]), start=1):
        opened = opens(world, *colluding(world, group, round=number, exchange=number))
        assert opened is (number < 3)


def test_o5_large_changes_are_served_under_floor_alone() -> None:
    for rule, answered in (("floor", True), ("fixed", False)):
        world = world_of(rule, clients=8).start()
        totals(world, [(world.names, world.names)])
        ask = world.evil_ask(world.names[0], world.names[:4], round=2, exchange=2)
        assert refused(world.clients[world.names[0]].receive(ask)) is not answered


def test_o10_colluders_raise_the_floor() -> None:
    for colluders, answered in ((0, True), (1, False)):
        world = world_of("floor", clients=9, colluders=colluders).start()
        totals(world, [(world.names, world.names)])
        ask = world.evil_ask(world.names[0], world.names[:5], round=2, exchange=2)
        assert refused(world.clients[world.names[0]].receive(ask)) is not answered


@pytest.mark.parametrize("rule", RULES)
def test_o5_a_new_epoch_forgets_no_cohort(rule: str) -> None:
    world = world_of(rule, rekey_rounds=1).start()
    world.round(1)
    world.prepare(2)
    client = world.clients[world.names[1]]
    ask = world.evil_ask(client.name, world.names[1:], round=2, exchange=50)
    assert refused(client.receive(ask)) is (rule != "any")


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("policy", ["masks", "he"])
def test_o5_a_kill_forgets_no_cohort(rule: str, policy: str) -> None:
    world = world_of(rule, policy, kind=Killed).start()
    world.keep()
    world.round(1)
    for name in (*world.names, "aggregator", *(["key-authority"] if policy == "he" else [])):
        world.kill(name)
    client = world.clients[world.names[1]]
    ask = world.evil_ask(client.name, world.names[1:], round=2, exchange=50)
    assert refused(client.receive(ask)) is (rule != "any")
    if policy == "he":
        opened = opens(world, *colluding(world, world.names[1:], round=2, exchange=50))
        assert opened is (rule == "any")
    world.kill(world.names[2])  # it was asked nothing yet: an honest aggregator does not even ask
    if rule == "any":
        assert world.ask(2, members=world.names[1:])
    else:
        with pytest.raises(RoundLost):
            world.ask(2, members=world.names[1:])


# --- what it has the key authority open ----------------------------------------------------------


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("how", ["left out", "said to have vanished"])
def test_o5_the_authority_opens_no_total_without_one_client(rule: str, how: str) -> None:
    world = world_of(rule, "he").start()
    assert opens(world, *colluding(world, world.names))
    if how == "left out":
        headers, where = colluding(world, world.names[1:], round=2, exchange=2)
    else:
        where = world.where(world.names, given="ef" * 32, round=2, exchange=2)
        body = bytes(world.plan.item("train.up.SUM").body)
        sent = (world.forge(n, "train.up.SUM", "aggregator", body, where) for n in world.names[1:])
        headers = headers_of(list(sent))
    assert opens(world, headers, where) is (rule == "any")
    assert world.kinds("key-authority").count("open") == (2 if rule == "any" else 1)
    if rule != "any":
        assert isinstance(world.authority.last_error, CohortChanged)


# --- honest runs ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("step", "policy", "rule"),
    thinned([(s, p, r) for s in range(len(STEPS)) for p in ("masks", "he") for r in RULES], 5),
)
def test_o5_who_vanishes_before_its_upload_costs_the_round(
    rule: str, policy: str, step: int
) -> None:
    world = world_of(rule, policy).start()
    assert is_sum_of(world, world.round(1).total(Update), world.names)
    vanish(world, {world.names[2]: step})
    if rule == "any" or step >= UPLOADED:
        there = [n for n in world.names if n != world.names[2] or step >= UPLOADED]
        assert is_sum_of(world, world.round(2).total(Update), there)
    else:
        with pytest.raises(RoundLost, match=rule):
            world.round(2)
        assert openings_of(world) == 1
        items = [Envelope.decode(data).header for data in world.wire]
        assert not any(h.round == 2 and h.item == "train.survivors" for h in items)
    world.lost = lambda *_: False
    assert is_sum_of(world, world.round(3).total(Update), world.names)
    assert all(client.state is State.READY for client in world.clients.values())


@pytest.mark.parametrize("rule", RULES)
def test_o5_as_many_as_the_smallest_cohort_may_vanish_under_floor(rule: str) -> None:
    world = world_of(rule, clients=10).start()
    away, there = world.names[:4], world.names[4:]
    assert is_sum_of(world, world.round(1).total(Update), world.names)
    vanish(world, dict.fromkeys(away, 0))
    if rule == "fixed":
        with pytest.raises(RoundLost, match="fixed"):
            world.round(2)
    else:
        assert is_sum_of(world, world.round(2).total(Update), there)
    world.lost = lambda *_: False
    assert is_sum_of(world, world.round(3).total(Update), world.names)
    vanish(world, {world.names[0]: 0})  # of those who were away together
    if rule == "any":
        assert is_sum_of(world, world.round(4).total(Update), world.names[1:])
    else:
        with pytest.raises(RoundLost):
            world.round(4)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("policy", ["masks", "he"])
def test_o5_who_misses_an_epochs_keys_costs_its_rounds(rule: str, policy: str) -> None:
    world = world_of(rule, policy, rekey_rounds=1).start()
    assert is_sum_of(world, world.round(1).total(Update), world.names)
    world.lost = lambda item, sender, to: item.startswith("pair.") and world.names[0] in (
        sender, to,
    )  # fmt: skip
    if rule == "any":
        assert is_sum_of(world, world.round(2).total(Update), world.names[1:])
    else:
        with pytest.raises(RoundLost, match=rule):
            world.round(2)
    world.lost = lambda *_: False
    assert is_sum_of(world, world.round(3).total(Update), world.names)


@pytest.mark.parametrize("rule", RULES)
def test_o5_who_misses_the_first_keys_is_not_asked_later_either(rule: str) -> None:
    """Else every later round would be lost: with it a total is of others than the first one."""
    world = world_of(rule, rekey_rounds=1)
    world.lost = lambda item, sender, to: world.names[0] in (sender, to)
    assert is_sum_of(world.start(), world.round(1).total(Update), world.names[1:])
    world.lost = lambda *_: False
    there = world.names if rule == "any" else world.names[1:]
    assert is_sum_of(world, world.round(2).total(Update), there)


def test_o5_under_floor_whole_groups_go_on_where_some_of_another_are_away() -> None:
    world = world_of("floor", clients=10, rekey_rounds=1).start()
    one, other = world.names[:6], world.names[6:]
    vanish(world, dict.fromkeys(other, 0))
    assert is_sum_of(world, world.round(1).total(Update), one)
    world.lost = lambda item, sender, to: item.startswith("pair.") and other[0] in (sender, to)
    assert is_sum_of(world, world.round(2).total(Update), one)
    world.lost = lambda *_: False
    assert is_sum_of(world, world.round(3).total(Update), world.names)


def test_o5_an_ask_without_a_sum_may_go_to_anybody() -> None:
    world = world_of("fixed", "masks").start()
    world.round(1)
    exchange = world.form.exchanges[0]
    fitting = world.aggregator.survivors.fitting
    assert fitting(world.names, exchange) == world.names
    with pytest.raises(RoundLost):
        fitting(world.names[1:], exchange)
    silent = type(exchange)("tell", exchange.given, (), lambda site, given: None)
    assert fitting(world.names[1:], silent) == world.names[1:]


# --- the policy ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PRESETS)
def test_who_signs_reads_every_setting_the_defaults_too(name: str) -> None:
    policy = PRESETS[name]
    assert policy.document().keys() == PrivacyPolicy.model_fields.keys()
    assert policy.document()["cohort_changes"] == "any"
    stated = {name: json.loads(text) for name, text in policy.fields().items()}
    assert stated == policy.document()


def test_who_signs_a_plan_reads_every_setting_of_its_policy() -> None:
    world = World()
    assert world.plan.policy_fields == world.policy.fields()


def test_a_plan_that_states_another_setting_is_refused() -> None:
    world, wrong = World(), '"fixed"'
    fields = {**world.plan.policy_fields, "cohort_changes": wrong}
    lying = world.plan.model_copy(update={"policy_fields": fields})
    with pytest.raises(NotInPlan, match="other settings"):
        replace(world.context("aggregator"), plan=lying)


def test_each_rule_is_another_policy_and_stays_so() -> None:
    policies = [changed_policy("masks", cohort_changes=rule) for rule in RULES]
    assert len({policy.digest for policy in policies}) == len(RULES)
    assert [policy.checked().cohort_changes for policy in policies] == RULES


@pytest.mark.parametrize("rule", ["floor", "fixed"])
def test_without_masks_no_rule_is_promised(rule: str) -> None:
    for policy in (maskless(), PRESETS["unsafe_plaintext"]):
        with pytest.raises(ValidationError, match="needs 'mask'"):
            PrivacyPolicy.model_validate({**policy.document(), "cohort_changes": rule})
    with pytest.raises(ValidationError):
        changed_policy("masks", cohort_changes="fixd")


@pytest.mark.parametrize("rule", RULES)
def test_a_plan_says_what_can_be_subtracted(rule: str) -> None:
    (text,) = [text for text in world_of(rule).plan.warnings if "cohort_changes:" in text]
    assert f"cohort_changes: {rule}" in text
    # The unsafe rule says what it lets an aggregator read; the safe ones, what they cost.
    assert ("reads that client's own update" in text) == (rule == "any")
    assert ("is lost" in text) == (rule != "any")


@pytest.mark.parametrize(("policy", "warned"), [("masks", True), ("unsafe_plaintext", False)])
def test_where_nothing_hides_in_a_sum_no_difference_is_warned_of(policy: str, warned: bool) -> None:
    plan = World(policy=policy, clients=6).plan
    assert any("cohort_changes: any" in text for text in plan.warnings) is warned


def test_where_as_many_take_part_as_a_total_needs_nobody_can_be_left_out() -> None:
    plan = world_of("any", clients=4).plan
    assert not [text for text in plan.warnings if "cohort_changes:" in text]
    assert [text for text in plan.warnings if "each total is of all of them" in text]
    world = world_of("any", clients=4).start()
    vanish(world, {world.names[0]: 0})
    with pytest.raises(RoundLost):
        world.round(1)
