"""O11: whose turn it is to read a total, in runs whose turns go over epochs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from crypto.masks import container
from protocols.disclosures.sum.addressed import TotalReading
from protocols.disclosures.sum.messages import BlindTotal
from protocols.errors import Refused, RoundLost
from protocols.forms import Exchange, Form
from protocols.rounds import Sealed
from tests.protocols.one_reader import READ, Told, got, hand_out, others, tell, told
from tests.protocols.toys import Seed, Start, Toy, changed_policy, first
from tests.protocols.wire import World, refused

ONCE = Form(
    "once",
    READ.round,
    (Exchange("tell", (Start,), (Told,), tell, per_round=0, outside=1), READ.exchanges[1]),
)
"""Each client reads one total of the whole run."""


class Asked(Told):
    """Of the same shape, and of another question."""


def ask_more(site: Toy, given: Seed) -> Asked:
    return Asked(move=site.delta)


def deliver_more(site: Toy, given: Asked) -> None:
    site.got.append(given)


TWO = Form(
    "two",
    READ.round,
    (
        *READ.exchanges,
        Exchange("ask_more", (Seed,), (Asked,), ask_more),
        Exchange("deliver_more", (Asked,), (), deliver_more),
    ),
)


def _over_epochs() -> World:
    """Return a world with new keys each round, and so with each slot's masks anew."""
    return World(ONCE, changed_policy("masks", rekey_rounds=1), clients=4, rounds=3).start()


def test_o11_turns_of_a_run_go_on_over_its_epochs() -> None:
    world = _over_epochs()
    for round, name in enumerate(world.names[:3], start=1):
        hand_out(world, told(world, round).handed(Told), round)
        assert abs(got(world, name) - others(world, name)).max() < 1e-3
        assert sum(any(m.move.any() for m in s.got) for s in world.sites.values()) == round


def test_o11_no_client_reads_in_a_turn_that_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Control: without the check an aggregator lets one client read every total of the run."""

    def second(world: World) -> Any:
        hand_out(world, told(world).handed(Told))
        sums: Any = world.aggregator.parts["sums"]
        sums._slots.clear()  # it says that no sum came before
        world.prepare(2)
        return world.ask(2, first(Start, world.d), Told)

    world = _over_epochs()
    for delivery in second(world):  # whoever colludes, the others answer nothing
        assert refused(world.deliver(delivery))
        assert "turn that is over" in str(world.clients[delivery.to].last_error)

    monkeypatch.setattr(TotalReading, "_in_turn", lambda *_: None)
    world = _over_epochs()
    world.pump(second(world))
    hand_out(world, world.aggregator.reply().handed(Told), 2)
    assert [m.move.any() for m in world.sites["client-1"].got] == [True, True]  # type: ignore[attr-defined]


def test_o11_where_clients_are_away_nobody_reads_in_their_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Control: without the check, of six clients the first reads twice where the last is left out.

    An honest aggregator loses the round, and a form that counts who answered never comes so far.
    """
    chosen = "protocols.disclosures.sum.{}.none_left"

    def last(world: World) -> Any:
        there = world.names[:5]
        for _ in there:
            world.pump(world.ask(1, first(Start, world.d), Told, there))
            assert world.aggregator.reply().answers == 5
        return world.ask(1, first(Start, world.d), Told, there)

    with pytest.raises(RoundLost, match="have read"):
        last(World(READ, "masks", clients=6).start())
    monkeypatch.setattr(chosen.format("aggregator"), lambda *_: False)
    world = World(READ, "masks", clients=6).start()
    for delivery in last(world):
        assert refused(world.deliver(delivery))
        assert "turn that is over" in str(world.clients[delivery.to].last_error)

    monkeypatch.setattr(chosen.format("addressed"), lambda *_: False)
    world = World(READ, "masks", clients=6).start()
    world.pump(last(world))
    (reader,) = world.aggregator.reply().handed(Told)._deliveries
    assert reader == "client-1"


def test_o11_a_total_is_read_as_the_messages_that_were_added() -> None:
    """A lying aggregator has no total of one question read as that of another of its shape."""
    world = World(TWO, "masks", clients=4).start()
    (total,) = told(world).handed(Told)._deliveries.values()
    with pytest.raises(Refused):
        hand_out(world, Sealed(Asked, {"client-1": total}))
    assert "other messages" in str(world.clients["client-1"].last_error)
    assert not world.sites["client-1"].got

    world = World(TWO, "masks", clients=4).start()
    hand_out(world, world.round(1, given=Seed(seed=1), back=Asked).handed(Asked))
    assert abs(got(world, "client-1") - others(world, "client-1")).max() < 1e-3


@pytest.mark.parametrize("level", [5, -5])
def test_what_a_refused_total_tells_is_what_the_limitations_say(level: int) -> None:
    """One bit: whether an entry of the total is above a bound that the aggregator chose."""
    world = World(READ, "masks", clients=4).start()
    layout, ring = world.context("client-1").summed(world.plan.item("tell.up.SUM"), (Told,))
    grid = layout.columns[0].grid
    assert grid is not None
    for site in world.sites.values():
        site.delta = grid.restore(np.full(world.d, level))
    (total,) = told(world).handed(Told)._deliveries.values()
    words = np.frombuffer(total.total, dtype=container(ring.modulus)).copy()
    words += words.dtype.type(3 * (2**layout.bits - 1 - grid.levels))  # a total of zero just fits
    more = BlindTotal(exchange=total.exchange, answers=3, total=words.tobytes())
    if level < 0:
        hand_out(world, Sealed(Told, {"client-1": more}))
        return
    with pytest.raises(Refused):
        hand_out(world, Sealed(Told, {"client-1": more}))
