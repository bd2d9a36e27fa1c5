"""Mixtures across kills: a client that is taken up again mixes in the groups it drew before."""

from __future__ import annotations

import numpy as np
import pytest

from protocols.disclosures.mixed.mixing import Mixer, remixed
from protocols.errors import LedgerError, UnfitMessage
from protocols.sessions.store.recording import Recorder
from protocols.wire.envelope import Envelope
from tests.protocols.killed import Drawer, Killed
from tests.protocols.mix import GRID, Go, Mashed, asked, by_hand, groups, layout, mash, mixing


@pytest.fixture
def killed(monkeypatch):
    monkeypatch.setattr("tests.protocols.mix.World", Killed)
    world = mixing(rounds=3)
    world.keep()
    return world


def test_o15_a_client_killed_after_every_answer_keeps_its_groups(killed):
    drawn = []
    for number in (1, 2, 3):
        reply = asked(killed, number)
        drawn.append([groups(killed, name) for name in killed.names])
        for message in reply.each(Mashed):
            near = [
                np.abs(message.features - by_hand(killed.sites[n], g)[0]).max()
                for n, g in zip(killed.names, drawn[0], strict=True)
            ]
            assert min(near) <= GRID
        for name in killed.names:
            killed.sites[name].table = 0.9 * killed.sites[name].table
    assert killed.kills >= 15
    for later in drawn[1:]:
        assert all(np.array_equal(one, other) for one, other in zip(drawn[0], later, strict=True))
    for name in killed.names:
        assert killed.kinds(name).count("mix") == 1


def test_o15_control_a_client_that_forgets_draws_others_and_its_ledger_shows_it(killed):
    asked(killed, 1)
    before = groups(killed, "client-1")
    killed.clients["client-1"]._gateway._own["MIXED"] = Mixer()
    asked(killed, 2)
    assert not np.array_equal(groups(killed, "client-1"), before)
    assert killed.kinds("client-1").count("mix") == 2


def test_a_capture_holds_the_groups_and_they_give_the_mixtures_again():
    """What attacks on captured mixtures are judged by; locked at the client like its records."""
    world = mixing()
    drawers = {}
    for name in world.names:
        session, site = world.clients[name], world.sites[name]
        site.memory, site.draws = {}, {}
        drawers[name] = Recorder(Drawer(), session.context, world.form, site, session.ledger)
        session.recorder = drawers[name]
    found = asked(world, 1).each(Mashed)
    for name in world.names:
        (answer,) = drawers[name].answers()
        assert np.array_equal(answer.groups, groups(world, name)) and repr(answer).count("[") == 0
        again = mash(world.sites[name], *answer.given)
        wanted = remixed(again, layout(world), answer.groups)
        near = min(np.abs(m.features - wanted["features"]).max() for m in found)
        assert near <= GRID and len(wanted["label"]) == 5
        with pytest.raises(UnfitMessage, match="members"):
            remixed(again, layout(world), answer.groups[1:])


def test_groups_are_kept_before_a_mixture_leaves(killed):
    """A disk that is full at that moment: nothing is sent, so nothing was mixed for anybody."""

    class Full:
        def save(self, session):
            raise LedgerError("A party's state cannot be kept.")

        def renew(self):
            """An epoch is over."""

    killed.prepare(1)
    (delivery, *_) = killed.ask(given=Go(step=1), back=(Mashed,))
    killed.clients[delivery.to].keeper = Full()
    with pytest.raises(LedgerError):
        killed.clients[delivery.to].receive(delivery.data)
    senders = [Envelope.decode(data).header.sender for data in killed.wire]
    assert delivery.to not in senders
