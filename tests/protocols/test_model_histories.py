"""Totals are taken in one order, each on the model that it was answered on, and one a round."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from crypto.sum_check import SumCheck
from protocols.disclosures._checked.totals import Place, history, packed, sum_check
from protocols.disclosures.released.messages import SharedTotal
from protocols.rounds import Cohort, Reply
from protocols.wire.envelope import Envelope
from tests.protocols.test_models import MASKED, MOVED, ZERO, asked, played, reason, world_of
from tests.protocols.toys import D, Start, Update
from tests.protocols.wire import World


def again(total: SharedTotal, **changes: Any) -> SharedTotal:
    fields = {field.name: getattr(total, field.name) for field in SharedTotal.fields}
    return SharedTotal(**{**fields, **changes})


def moved_by(state: Start, reply: Reply) -> Start:
    steps = MOVED.round(state, Cohort(()))
    next(steps)
    try:
        steps.send(reply)
    except StopIteration as stop:
        return stop.value
    raise AssertionError


@pytest.mark.parametrize("policy", MASKED)
def test_rounds_that_were_called_lost_do_not_all_count_later(policy: str) -> None:
    """Answered at one model each time, their totals would move it four times as far."""
    world, kept, state = world_of(policy, rounds=6), [], ZERO
    totals = world.aggregator.totals
    for number in (1, 2, 3, 4):
        once = played(world, ZERO, number)
        kept += totals._totals
        totals._totals = []  # "that round was lost"
    before = 0
    for place, total in enumerate(kept):
        kept[place] = again(total, before=before)
        before, state = total.exchange, Start(weights=state.weights + once.weights)
    totals._totals = kept
    world.prepare(5)
    with pytest.raises(Exception, match="refused"):  # at the second of them
        world.pump(world.ask(5, given=state, back=(Update,)))
    assert "not what the clients it names added up" in reason(world, world.names[0])


def test_a_total_is_taken_only_on_the_model_that_it_was_answered_on() -> None:
    world = World(MOVED, "masks", clients=10, rounds=5).start()
    totals = world.aggregator.totals
    first = played(world, ZERO, 1)
    stay, told = world.names[:6], world.names[6:]
    played(world, first, 2, members=stay)
    second = totals._totals[-1]
    client = world.clients[told[0]].models
    with pytest.raises(Exception, match="added up"):
        client._reply(second)  # its history lacks the first total
    totals._totals = [again(second, before=0)]
    world.prepare(3)
    answers = {
        d.to: world.deliver(d) for d in world.ask(3, given=ZERO, back=(Update,), members=told)
    }
    assert all("refusal" in Envelope.decode(a[0].data).header.item for a in answers.values())


def signed(world: World, round: int, exchange: int, before: int) -> SharedTotal:
    """Return a total that a client made up which gave the common key away: it moves all it can."""
    context = world.clients["client-1"].context
    item = world.clients["client-1"].models._moving
    layout, ring = context.summed(item, (Update,))
    top, names = layout.columns[0].grid.levels, world.names
    vector = np.zeros(layout.length, dtype=np.int64)
    vector[:D] = len(names) * 2 * top * 2 // 5  # as far as clients let a model move in a round
    vector[D] = len(names)
    place = Place(round, exchange, names, history(context))
    check: SumCheck = sum_check(context, item, ring, place)
    words = check._hash(vector)
    for name in names:
        words = words + check._pad(name)
    mask = world.roster.mask(names)
    return SharedTotal(
        exchange=exchange,
        before=before,
        round=round,
        members=mask,
        survivors=mask,
        total=packed(vector, ring),
        check=check._reduced(words).tobytes(),
        model=bytes(32),
    )


@pytest.mark.parametrize("second", [1, 2, 3])
def test_whoever_has_the_key_moves_a_model_once_a_round_that_is_over(second: int) -> None:
    """A second total of round 1, and one of round 2 or 3, which are not over, are refused."""
    world = world_of("masks", rounds=9)
    played(world, ZERO, 1)
    reach = world.clients["client-1"].models._reach
    forged = signed(world, 1, world.aggregator.exchanges.number, 0)
    reply = world.clients["client-1"].models._reply(forged)
    state = moved_by(ZERO, reply)
    assert np.max(np.abs(state.weights)) <= reach * (1 + 2**-20)
    world.aggregator.totals._totals = [forged, again(forged, round=second, exchange=99, before=1)]
    world.prepare(2)
    for client in world.clients.values():
        client.models._move(forged, 1)  # one is taken: nothing tells it from a true one
        with pytest.raises(Exception, match="not over, or that had another one"):
            client.models._move(signed(world, second, 99, forged.exchange), 1)


@pytest.mark.parametrize("back", [14, *(pytest.param(n, marks=pytest.mark.long) for n in (11, 20))])
def test_a_client_that_was_away_for_most_rounds_comes_back(back: int) -> None:
    world, state, gone = world_of("masks", clients=6, rounds=20), ZERO, "client-3"
    for number in range(1, 21):
        away = 1 < number < back
        world.lost = (lambda _, sender, to: gone in (sender, to)) if away else (lambda *_: False)
        state = played(world, state, number)
    assert world.sites[gone].asked == 1 + 21 - back
    assert len(world.aggregator.totals._totals) <= 2


def test_a_network_that_loses_receipts_of_totals_ends_no_run() -> None:
    world, state, gone = world_of("masks", clients=6, rounds=12), ZERO, "client-3"
    for number in range(1, 13):
        if number <= 1 or number >= 10:
            world.lost = lambda *_: False
        elif number <= 4:
            world.lost = lambda _, sender, to: gone in (sender, to)
        else:
            world.lost = lambda item, sender, _: sender == gone and item == "totals.ack"
        state = played(world, state, number)
    assert world.sites[gone].asked == 1 + 3


def test_refused_by_all_where_a_total_was_left_out_for_one() -> None:
    world, state = world_of("masks"), ZERO
    for number in (1, 2):
        state = played(world, state, number)
    world.clients["client-2"].models._last = 0  # as if it had been told that round 1 was lost
    assert asked(world, 3, state) == ["client-2"]
