"""How often items are matched in one run: as the policy says, whoever asks (O24)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from protocols.errors import NotInPlan, PolicyError, RoundLost
from protocols.forms import Form
from tests.protocols.matched import (
    EXPAND,
    Go,
    Items,
    match_plan,
    match_policy,
    matched_round,
    matching,
)
from tests.protocols.wire import refused


def expanding(due):
    first, *others = EXPAND.exchanges
    return replace(EXPAND, exchanges=(replace(first, due=due), *others))


def made(form: Form, **facts):
    return match_plan(match_policy(**facts), form, rounds=9)


def test_an_algorithm_that_matches_more_often_than_the_policy_lets_it_has_no_plan():
    with pytest.raises(PolicyError, match="9 times in this run; the policy allows 3"):
        made(expanding(lambda rounds: rounds))
    with pytest.raises(PolicyError, match="9 times"):
        made(expanding(None))  # it does not say: every round
    plan = made(expanding(lambda rounds: rounds // 3))
    often = {i.id: i.times for i in plan.items if ".match." in i.id or i.id.startswith("expand.")}
    assert len(often) > 5 and set(often.values()) == {3}
    assert made(expanding(lambda rounds: 1), epochs=9).item("expand.down").times == 9
    assert plan.item("learn.down").times == 9


def test_a_plan_of_more_epochs_is_not_the_policys():
    """An aggregator's plan that states the policy's digest and guards, and more matchings."""
    plan = match_plan(match_policy(epochs=3), expanding(lambda rounds: 1), rounds=9)
    more = [i.model_copy(update={"times": max(i.times, 9)}) for i in plan.items]
    world = matching(epochs=3)
    papers = world.papers("client-1")
    with pytest.raises(NotInPlan, match="matched 9 times, the policy 3"):
        replace(papers, plan=plan.model_copy(update={"items": tuple(more)}))


@pytest.mark.parametrize("mode", ["oprf", "hmac"])
def test_clients_answer_no_further_epoch(mode):
    """The aggregator forgets how often it asked: clients do not (the open point of ADR 0018)."""
    world = matching(mode=mode, epochs=2, rounds=4).start()
    matched_round(world)
    matched_round(world, 2)
    world.prepare(3)
    world.aggregator._gateway._sent.clear()
    for parcel in world.ask(3, given=Go(step=3), back=(Items,)):
        assert refused(world.deliver(parcel))
        error = world.session(parcel.to).last_error
        assert isinstance(error, NotInPlan) and "as often as planned (2)" in str(error)


def test_a_lost_round_is_an_epoch_too():
    """Points leave a client before the round is lost: whoever lost it would ask for more."""
    world = matching(epochs=2, rounds=4).start()
    world.lost = lambda item, *_: item == "expand.match.compared"
    for number in (1, 2):
        world.prepare(number)
        with pytest.raises(RoundLost):
            world.pump(world.ask(number, given=Go(step=number), back=(Items,)))
            world.aggregator.reply()
    world.lost = lambda *_: False
    world.prepare(3)
    with pytest.raises(NotInPlan, match="as often as planned"):
        world.ask(3, given=Go(step=3), back=(Items,))
