"""After a loss of power, a party alone in its process does nothing twice that is done once.

What is on the device then: the number outside the run folder as it was flushed last. Run folder and
ledger are put back by somebody, as they were before the party answered.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from protocols.errors import LedgerError
from protocols.sessions.store.journal import Standing
from protocols.wire.envelope import Envelope
from tests.protocols import killed, matched, mix, pub
from tests.protocols.killed import Drawer, Killed
from tests.protocols.wire import World


class Device(Drawer):
    """A store that knows what of the file outside is on the device."""

    def __init__(self) -> None:
        super().__init__()
        self.durable = Standing()

    def turn(self, standing: Standing, *, flush: bool) -> None:
        super().turn(standing, flush=flush)
        self.durable = self.outside if flush else self.durable

    def advance(self, number: int, *, flush: bool) -> None:
        super().advance(number, flush=flush)
        self.durable = self.outside if flush else self.durable


class Powered(Killed):
    """Nobody is killed; of one envelope's receiver it is known how it stood before."""

    item, before = "", None

    def deliver(self, delivery: Any) -> Any:
        name = delivery.to
        if Envelope.decode(delivery.data).header.item == self.item and self.before is None:
            drawer = self.state_stores[name]
            drawer.durable = drawer.outside  # the system writes back now and then
            self.before = name, deepcopy(drawer.pieces), self.stores[name].lines
        return World.deliver(self, delivery)

    def lose_power(self) -> None:
        """Take up whom the envelope was for, with run folder and ledger of before."""
        name, pieces, lines = self.before
        drawer = self.state_stores[name]
        drawer.pieces, drawer.outside = pieces, drawer.durable
        self.stores[name]._lines = bytearray(lines)
        self.kill(name)


@pytest.fixture(autouse=True)
def powered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(killed, "Drawer", Device)
    for module in (pub, mix):
        monkeypatch.setattr(module, "World", Powered)


def weighed(item: str) -> Powered:
    world: Any = pub.pub()
    world.keep()
    world.item = item
    pub.hand_out(world, pub.trained(world).weighted(pub.Model, pub.even(6)))
    return world


def tagged(item: str) -> Powered:
    world: Any = matched.matching(mode="oprf", world=Powered, clients=6)
    world.keep()
    world.item = item
    world.start()
    matched.matched_round(world, 1)
    return world


def mixed(item: str) -> Powered:
    world: Any = mix.mixing(rounds=2)
    world.keep()
    world.item = item
    mix.asked(world, 1)
    return world


ONCE = [
    (weighed, "train.open.SIMILARITY"),  # the control: what was opened is flushed
    (weighed, "receive.open.WEIGHTED_SUM"),
    (weighed, "train.witness.SIMILARITY"),  # a witness signs one result of some uploads (O4)
    (weighed, "receive.witness.WEIGHTED_SUM"),
    (tagged, "expand.match.points"),  # a client's quota is one batch (O24)
    (tagged, "expand.match.compare"),  # tags of an epoch are compared once (O24)
    (mixed, "mash.down"),  # groups are drawn once a run (O22)
]


@pytest.mark.parametrize(("play", "item"), ONCE, ids=[item for _, item in ONCE])
def test_after_a_loss_of_power_a_state_put_back_does_nothing_twice(play: Any, item: str) -> None:
    world = play(item)
    assert world.before is not None, "no such envelope"
    with pytest.raises(LedgerError, match="older than the last commit"):
        world.lose_power()
