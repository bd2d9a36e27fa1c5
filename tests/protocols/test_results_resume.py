"""Cosines and rows across kills: every party is kept and taken up again after every delivery."""

from __future__ import annotations

import numpy as np
import pytest

from protocols.disclosures._evaluated.parties import Revealing
from protocols.errors import Refused
from protocols.roles.key_authority import KeyAuthoritySession
from protocols.wire.envelope import Envelope
from tests.protocols.killed import Killed
from tests.protocols.pub import (
    COUNTED,
    GRID,
    Model,
    Portrait,
    Size,
    cosines,
    even,
    hand_out,
    models,
    pub,
    received,
    sent,
    trained,
)


@pytest.mark.parametrize("form", ["pub", "counted"])
@pytest.mark.parametrize("policy", ["pilot", "masks"])
def test_a_party_that_is_killed_after_every_delivery_goes_on(form, policy, monkeypatch):
    monkeypatch.setattr("tests.protocols.pub.World", Killed)
    facts = {"form": COUNTED} if form == "counted" else {}
    world = pub(policy, **facts)
    world.keep()
    reply = trained(world)
    assert np.abs(reply.similarity(Portrait) - cosines(world)).max() < 1e-4
    if form == "counted":
        assert reply.total(Size).records == world.count()
    mixture = reply.weighted(Model, even(6))
    hand_out(world, mixture)
    assert np.abs(received(world) - mixture._table / 128 @ models(world)).max() < GRID
    assert world.kills > 15 and set(world.authority.keys.held)


STEPS = (
    "train.witness.SIMILARITY",
    "train.open.SIMILARITY",
    "receive.witness.WEIGHTED_SUM",
    "receive.open.WEIGHTED_SUM",
)


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("answered", [False, True])
def test_an_aggregator_killed_while_a_result_is_opened_opens_the_same(step, answered, monkeypatch):
    """Before or after the other party answered, the same bytes go out; nothing else is opened."""
    monkeypatch.setattr("tests.protocols.pub.World", Killed)
    world = pub()
    world.keep()
    done = []

    def due(delivery) -> bool:
        if Envelope.decode(delivery.data).header.item != step or done:
            return False
        done.append(True)
        return True

    def pump(self, outgoing, until=None):
        """Go on as after a kill whenever an envelope of the step was about to leave."""
        outgoing = list(outgoing)
        while outgoing:
            here = [p for p in outgoing if due(p)]
            if here:
                before = [p.data for p in outgoing]
                if answered:
                    for delivery in here:
                        self.deliver(delivery)  # its answer is lost with the aggregator
                self.kill("aggregator")
                assert self.aggregator.under_way == "ask"
                outgoing = self.aggregator.go_on()
                assert [p.data for p in outgoing] == before
                continue
            for delivery in outgoing:
                for answer in self.deliver(delivery):
                    self.aggregator.receive(answer.data)
            outgoing = self.aggregator.advance()
        return []

    monkeypatch.setattr(Killed, "pump", pump)
    reply = trained(world)
    matrix = reply.similarity(Portrait)
    assert np.abs(matrix - cosines(world)).max() < 1e-4
    mixture = reply.weighted(Model, even(6))
    hand_out(world, mixture)
    assert done and np.abs(received(world) - mixture._table / 128 @ models(world)).max() < GRID
    opened = [e["disclosure"] for e in world.entries("key-authority") if e["kind"] == "open"]
    assert opened == ["SIMILARITY", "WEIGHTED_SUM"]
    assert len({e.encode() for e in sent(world, step)}) == 1


def test_a_reply_that_was_kept_is_as_good_as_the_one_that_came(monkeypatch):
    monkeypatch.setattr("tests.protocols.pub.World", Killed)
    world = pub()
    world.keep()
    came = trained(world)
    world.kill("aggregator")
    ((name, kept),) = world.aggregator.keeper.outcomes()
    assert name == "train" and kept.answers == 6
    assert np.array_equal(kept.similarity(Portrait), came.similarity(Portrait))
    mixture = kept.weighted(Model, even(6))
    hand_out(world, mixture)
    assert np.abs(received(world) - mixture._table / 128 @ models(world)).max() < GRID


def killed_while_opening(world: Killed, disclosure: str, monkeypatch, forgets=None) -> list[bool]:
    """Kill the authority between its record and its answer; `forgets` drops some of its state."""
    real, killed = Revealing._results, []

    def results(session, request, shown, said, name):
        if str(said) == disclosure and not killed:
            killed.append(True)
            raise KeyboardInterrupt
        return real(session, request, shown, said, name)

    def deliver(self, delivery):
        try:
            return Killed.deliver(self, delivery)
        except KeyboardInterrupt:
            self.kill("key-authority")
            if forgets:
                forgets(self.authority)
            return Killed.deliver(self, delivery)

    monkeypatch.setattr(Revealing, "_results", results)
    world.deliver = deliver.__get__(world)
    return killed


@pytest.mark.parametrize("disclosure", ["SIMILARITY", "WEIGHTED_SUM"])
def test_an_authority_killed_after_its_record_opens_that_result_and_no_other(
    disclosure, monkeypatch
):
    monkeypatch.setattr("tests.protocols.pub.World", Killed)
    world = pub()
    world.keep()
    killed = killed_while_opening(world, disclosure, monkeypatch)
    reply = trained(world)
    assert np.abs(reply.similarity(Portrait) - cosines(world)).max() < 1e-4
    mixture = reply.weighted(Model, even(6))
    hand_out(world, mixture)
    assert killed and np.abs(received(world) - mixture._table / 128 @ models(world)).max() < GRID
    opened = [e["disclosure"] for e in world.entries("key-authority") if e["kind"] == "open"]
    assert opened == ["SIMILARITY", "WEIGHTED_SUM"]


@pytest.mark.parametrize("disclosure", ["SIMILARITY", "WEIGHTED_SUM"])
def test_o5_nothing_is_taken_up_that_was_not_recorded(disclosure, monkeypatch):
    """The envelope is known and the record is not: another disclosure's record is none."""

    def forgets(authority) -> None:
        authority.openings.opened[1] = [
            e for e in authority.openings.opened[1] if e[0] != disclosure
        ]

    ends, real = [], KeyAuthoritySession.die
    monkeypatch.setattr(
        KeyAuthoritySession, "die", lambda self, error: (ends.append(error), real(self, error))
    )
    monkeypatch.setattr("tests.protocols.pub.World", Killed)
    world = pub()
    world.keep()
    killed = killed_while_opening(world, disclosure, monkeypatch, forgets)
    with pytest.raises(Refused, match="key-authority refused"):
        hand_out(world, trained(world).weighted(Model, even(6)))
    assert killed and "never recorded" in ends[0].what
    assert not sent(
        world, f"{'train' if disclosure == 'SIMILARITY' else 'receive'}.opened.{disclosure}"
    )
