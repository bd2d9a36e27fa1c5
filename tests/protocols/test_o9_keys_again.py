"""O9: whoever may have missed an epoch's public keys is handed the very same bytes again."""

from __future__ import annotations

import numpy as np
import pytest

from protocols.errors import BadEnvelope, Replay, RoundLost, WrongStage
from protocols.keys.setup import Setup
from protocols.sessions.part import State
from protocols.wire.envelope import Envelope
from tests.protocols.killed import Killed
from tests.protocols.pub import PUB, trained
from tests.protocols.toys import GIFTS, TRAIN, Fill, Gift, Update, changed_policy
from tests.protocols.wire import World

OFFER = "key.offer"


class Patchy(World):
    """A run whose network loses what a test says, and whose parties turn down what is not due.

    Attributes:
        handed: how often each party was handed public keys.
    """

    def __init__(self, **facts):
        self.handed = {}
        super().__init__(**facts)

    def deliver(self, delivery):
        if Envelope.decode(delivery.data).header.item == OFFER:
            self.handed[delivery.to] = self.handed.get(delivery.to, 0) + 1
        try:
            return super().deliver(delivery)
        except WrongStage:
            return []  # its relay says `unreadable`

    def plays(self, number):
        """Play a round; return how many its total counts, 0 if it was lost."""
        try:
            return self.round(number).total(Update).count
        except RoundLost:
            return 0


def without_keys(world, *names):
    """Agree on the first epoch's keys, which do not reach some."""
    world.lost = lambda item, sender, to: item == OFFER and to in names
    world.start()
    world.lost = lambda *_: False
    return world


def received(world, name):
    """Return which public keys a party wrote down as received."""
    return [e["key"] for e in world.entries(name) if e["kind"] == "key"]


def he(rounds=4, every=4):
    return Patchy(policy=changed_policy("he", rekey_rounds=every), rounds=rounds)


def test_o9_who_missed_the_keys_gets_them_with_the_next_ask_and_loses_one_round():
    world = without_keys(he(), "client-2")
    assert world.plays(1) == world.count(["client-1", "client-3", "client-4", "client-5"])
    assert received(world, "client-2") == []
    for number in (2, 3, 4):
        assert world.plays(number) == world.count()
    assert received(world, "client-2") == received(world, "client-1") != []
    assert world.handed == dict.fromkeys(world.names, 1)  # handed again to nobody who has them


@pytest.mark.parametrize("mended", [True, False])
def test_o9_keys_that_missed_two_of_five_cost_one_round_and_not_an_epoch(mended, monkeypatch):
    """The control is how it was: all rounds of an epoch were lost, whoever was back."""
    if not mended:
        monkeypatch.setattr(Setup, "lacks", lambda setup, name: False)
    world = without_keys(he(rounds=6, every=4), "client-2", "client-4")
    found = [world.plays(number) for number in range(1, 7)]
    whole = world.count()
    lost = 1 if mended else 4
    assert found == [0] * lost + [whole] * (6 - lost)
    assert all(client.state is State.READY for client in world.clients.values())


def test_o9_who_has_the_keys_and_was_only_away_says_nothing_to_them_and_answers():
    world = he().start()
    world.lost = lambda item, sender, to: item == "train.down" and to == "client-3"
    assert world.plays(1) == world.count() - world.count(["client-3"])
    world.lost = lambda *_: False
    before = world.kinds("client-3")
    assert world.plays(2) == world.count()
    assert world.handed["client-3"] == 2 and world.handed["client-1"] == 1
    assert world.kinds("client-3")[len(before)] == "receipt"
    assert len(received(world, "client-3")) == 1
    offers = [e for e in world.entries("client-3") if e["kind"] == "receipt" and e["item"] == OFFER]
    assert len(offers) == 1  # it changed nothing
    # Whoever answered under the keys has them: away once more, it is not handed them again.
    world.lost = lambda item, sender, to: item == "train.down" and to == "client-3"
    world.plays(3)
    world.lost = lambda *_: False
    assert world.plays(4) == world.count() and world.handed["client-3"] == 2


def test_o9_whoever_carries_them_can_have_nothing_else_taken_as_the_keys_that_stand():
    world = without_keys(he(rounds=4, every=2), "client-2")
    (first,) = {d for d in world.wire if Envelope.decode(d).header.item == OFFER}
    client = world.clients["client-1"]
    size = client.ledger.size
    assert client.receive(first) == [] and client.ledger.size == size
    changed = first[:-1] + bytes([first[-1] ^ 1])
    with pytest.raises(BadEnvelope):
        client.receive(changed)
    assert client.state is State.READY and client.ledger.size == size
    world.plays(1), world.plays(2), world.prepare(3)
    with pytest.raises(Replay):  # their epoch is over
        client.receive(first)
    assert len(received(world, "client-1")) == 2 and client.state is State.READY


def test_o9_a_second_key_for_one_epoch_is_refused_however_the_first_came():
    world = without_keys(he(), "client-2")
    world.plays(1), world.plays(2)
    client = world.clients["client-2"]
    (first,) = {d for d in world.wire if Envelope.decode(d).header.item == OFFER}
    header = Envelope.decode(first).header
    body = bytes(Envelope.decode(first).body)
    second = world.forge(
        "key-authority", OFFER, header.recipient, body, world.where((), round=1, exchange=99)
    )
    client.receive(second)
    assert isinstance(client.last_error, BadEnvelope) and client.state is State.DEAD


def test_o9_keys_are_of_the_very_bytes_that_the_authority_signed():
    world = without_keys(he(), "client-2", "client-4")
    world.plays(1), world.plays(2)
    offers = {d for d in world.wire if Envelope.decode(d).header.item == OFFER}
    assert len(offers) == 1 and sum(world.handed.values()) == 5
    assert not [e for e in world.entries("aggregator") if e.get("item") == OFFER and
                e["kind"] == "release"]  # fmt: skip


def comparing(witness_lost):
    """Return a run of cosines under witnesses, one of whom the keys do not reach."""
    policy = changed_policy("pilot", rekey_rounds=4)
    world = Patchy(form=PUB, policy=policy, clients=6, rounds=4)
    rng = np.random.default_rng(3)
    for site in world.sites.values():
        site.direction, site.model = rng.standard_normal((2, world.d))
    return without_keys(world, *witness_lost)


def compares(world, number):
    """Play a round's first Ask; return whether it was opened."""
    try:
        trained(world, number)
    except RoundLost:
        return False
    return True


@pytest.mark.parametrize("mended", [True, False])
def test_o9_a_witness_that_missed_the_keys_gets_them_with_the_first_result_it_is_shown(
    mended, monkeypatch
):
    if not mended:  # the control
        monkeypatch.setattr(Setup, "lacks", lambda setup, name: False)
    world = comparing(["witness-1"])
    assert list(world.witnesses) == ["witness-1"]
    assert [compares(world, number) for number in (1, 2, 3)] == [mended] * 3
    assert len(received(world, "witness-1")) == (3 if mended else 0)  # one for each scheme
    assert world.handed.get("witness-1", 0) == mended


def test_o9_a_witness_costs_no_round_beside_clients_that_missed_the_keys_too():
    """It would be the second: who counts is settled before any result is shown."""
    world = comparing(["witness-1", "client-1", "client-2", "client-3"])
    assert [compares(world, number) for number in (1, 2, 3)] == [False, True, True]


def test_o9_a_witness_that_has_the_keys_is_handed_them_until_it_signed():
    world = comparing([])
    assert all(compares(world, number) for number in (1, 2, 3))
    assert world.handed["witness-1"] == 2 and len(received(world, "witness-1")) == 3
    offers = [
        e for e in world.entries("witness-1") if e["kind"] == "receipt" and e["item"] == OFFER
    ]
    assert len(offers) == 1


@pytest.mark.parametrize("used", [False, True])
def test_o9_keys_that_nothing_rests_on_are_handed_out_once(used):
    """A policy encrypts sums, and a form may have none; the control has."""
    form, ask = (TRAIN, {}) if used else (GIFTS, {"given": Fill(step=1), "back": (Gift,)})
    world = Patchy(form=form, policy=changed_policy("he", rekey_rounds=4), rounds=3).start()
    world.lost = lambda item, sender, to: item.endswith(".down") and to == "client-3"
    world.round(1, **ask)
    world.lost = lambda *_: False
    for number in (2, 3):
        world.round(number, **ask)
    assert world.handed == {**dict.fromkeys(world.names, 1), "client-3": 1 + used}


def test_o9_keys_that_are_handed_out_again_survive_kills_of_everybody():
    class Both(Patchy, Killed):
        """Everybody is killed after every delivery."""

    world = Both(policy=changed_policy("he", rekey_rounds=4), rounds=4)
    without_keys(world, "client-2", "client-4").keep()
    for number, whole in ((1, 0), (2, world.count()), (3, world.count())):
        world.kill("aggregator")
        assert world.plays(number) == whole
    assert world.kills >= 30
    assert world.handed == dict.fromkeys(world.names, 1)
    assert all(len(received(world, name)) == 1 for name in world.names)
