"""Matching across kills: whoever is killed goes on, and nobody asks or is answered twice (O24)."""

from __future__ import annotations

import pytest

from protocols.errors import LedgerError
from tests.protocols.matched import cells_of, matched_round, matching, same
from tests.protocols.test_results_resume import Killed


@pytest.mark.parametrize("mode", ["oprf", "hmac"])
def test_parties_killed_after_every_delivery_go_on(mode):
    world = matching(mode=mode, world=Killed, clients=6)
    world.keep()
    world.start()
    for number in (1, 2):
        matched_round(world, number)
        same(world)
    assert world.kills > 70  # every delivery to every party, of two rounds
    servers = [name for name in world.serving if name != "matcher"]
    for name in servers:
        told = [e for e in world.entries(name) if e["kind"] == "tags"]
        assert [e["epoch"] for e in told] == [1, 2]
        assert all(e["clients"] == 6 and not e["refused"] for e in told)
    assert len(set(cells_of(world).values())) == 1


class KilledAggregator(Killed):
    """The aggregator is killed before every step, and says again what it said last."""

    def pump(self, outgoing, until=None):
        while outgoing:
            for delivery in outgoing:
                for answer in self.deliver(delivery):
                    self.aggregator.receive(answer.data)
            if hasattr(self, "state_stores"):
                self.aggregator.commit()
                self.kill("aggregator")
            outgoing = self.aggregator.advance()
        return []


def test_an_aggregator_killed_before_every_step_goes_on():
    world = matching(world=KilledAggregator, clients=6)
    world.keep()
    world.start()
    matched_round(world)
    same(world)


def test_after_a_kill_the_same_bytes_get_the_same_answer():
    """Each step is sent twice, as by an aggregator that does not know whether it was heard."""

    class Twice(Killed):
        def deliver(self, delivery):
            first = super().deliver(delivery)
            again = self.session(delivery.to).receive(delivery.data)
            assert [a.data for a in again] == [a.data for a in first]
            return first

    world = matching(world=Twice, clients=6)
    world.keep()
    world.start()
    matched_round(world)
    same(world)


@pytest.mark.parametrize("who", ["tag-server-1", "matcher", "client-1"])
def test_what_cannot_be_kept_does_not_leave(who):
    """A share or a cell that nobody remembers after a kill must never have been used."""

    class Full:
        def save(self, session):
            raise LedgerError("A party's state cannot be kept.")

        def renew(self):
            """An epoch is over."""

    world = matching(world=Killed, clients=6)
    world.keep()
    world.start()
    world.session(who).keeper = Full()
    with pytest.raises(LedgerError):
        matched_round(world)
