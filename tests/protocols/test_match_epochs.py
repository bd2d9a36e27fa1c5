"""How often items are matched in one run: as the policy says, whoever asks (O24)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from protocols.disclosures.match.messages import Bundle
from protocols.disclosures.match.parties import bundle_of
from protocols.disclosures.match.protocol.client import ClientMatching
from protocols.disclosures.match.protocol.wire import Kind
from protocols.disclosures.match.run import match_run_of
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
from tests.protocols.test_results_resume import Killed
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
    context = world.context("client-1")
    with pytest.raises(NotInPlan, match=r"matched 9 times .*, the policy 3"):
        replace(context, plan=plan.model_copy(update={"items": tuple(more)}))


def test_a_plan_of_a_second_matched_message_is_not_the_policys():
    """It would stand first and be looked at, while the one that leaves is matched more often."""
    plan = match_plan(match_policy(epochs=3), expanding(lambda rounds: 1), rounds=9)
    aside = plan.item("expand.up.MATCH").model_copy(update={"id": "aside.up.MATCH"})
    more = [i.model_copy(update={"times": 9}) for i in plan.items]
    context = matching(epochs=3).context("client-1")
    for items in ((aside, *more), (*plan.items, aside)):
        with pytest.raises(NotInPlan, match="other than one message"):
            replace(context, plan=plan.model_copy(update={"items": items}))


def test_a_plan_of_more_of_any_step_of_matching_is_not_the_policys():
    plan = match_plan(match_policy(epochs=3), expanding(lambda rounds: 1), rounds=9)
    context = matching(epochs=3).context("client-1")
    steps = [i for i in plan.items if i.id.startswith("expand.")]
    assert len(steps) > 12
    for step in steps:
        items = [i.model_copy(update={"times": 4}) if i is step else i for i in plan.items]
        with pytest.raises(NotInPlan, match=f"matched 4 times .{step.id}., the policy 3"):
            replace(context, plan=plan.model_copy(update={"items": tuple(items)}))


@pytest.mark.parametrize("mode", ["oprf", "hmac"])
def test_clients_answer_no_further_epoch(mode):
    """The aggregator forgets how often it asked: clients do not (the open point of ADR 0018)."""
    world = matching(mode=mode, epochs=2, rounds=4).start()
    matched_round(world)
    matched_round(world, 2)
    world.prepare(3)
    world.aggregator._gateway._sent.clear()
    for delivery in world.ask(3, given=Go(step=3), back=(Items,)):
        assert refused(world.deliver(delivery))
        error = world.session(delivery.to).last_error
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


@pytest.mark.parametrize("mode", ["oprf", "hmac"])
def test_who_is_killed_after_every_delivery_still_counts(mode):
    world = matching(mode=mode, world=Killed, clients=6, epochs=2, rounds=4)
    world.keep()
    world.start()
    matched_round(world)
    matched_round(world, 2)
    world.prepare(3)
    world.aggregator._gateway._sent.clear()
    deliveries = world.ask(3, given=Go(step=3), back=(Items,))
    assert world.kills > 50 and all(refused(world.deliver(delivery)) for delivery in deliveries)


def test_a_tag_server_answers_no_further_epoch_whoever_asks():
    """Clients that work with the aggregator ask once more, past both of their gateways."""
    world = matching(epochs=1, rounds=4).start()
    matched_round(world)
    run = match_run_of(world.context("client-1"))
    boxes = {n: ClientMatching(run, world.identities[n]).ask(2, [1]) for n in world.names}
    bundle = Bundle(
        members=world.roster.mask(world.names), bundle=bundle_of(run, Kind.POINTS, boxes)
    )
    where, first = world.where(round=2, exchange=9), run.servers[0]
    asked = world.twin("aggregator").release("expand.match.points", [bundle], first, where)
    assert refused(world.session(first).receive(asked.encode()))
    assert "as often as planned (1)" in str(world.session(first).last_error)
