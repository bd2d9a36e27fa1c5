"""The honest flow: what travels, what is recorded, what a repeat does, and refusals."""

import numpy as np
import pytest

from protocols.disclosures.sum.view import Summands
from protocols.errors import (
    LedgerError,
    LocalProtocolError,
    Refused,
    RemoteProtocolError,
    RoundLost,
)
from protocols.evidence.ledger import read_lines
from protocols.sessions.part import State
from protocols.wire.control import REFUSALS
from protocols.wire.envelope import Envelope
from tests.protocols.toys import GIFTS, SOW, FullDisk, Gift, Update, maskless
from tests.protocols.wire import World, commitment_of, refused, uploads


@pytest.fixture
def world():
    return World().start()


def truth(world, members=None):
    return sum(world.sites[n].delta for n in members or world.names)


@pytest.mark.parametrize("policy", ["pilot", "masks", "ckks", "unsafe_plaintext"])
def test_a_round_gives_the_total_and_the_exact_count(policy):
    world = World(policy=policy).start()
    step = 0.5 * 10 / (2**15 - 1)
    for number in (1, 2, 3):
        total = world.round(number).total(Update)
        assert total.count == sum(site.count for site in world.sites.values())
        assert np.max(np.abs(total.delta - truth(world))) <= 5 * step


def test_o2_all_backends_give_bit_equal_totals():
    found = []
    for policy in ("unsafe_plaintext", "masks", "he", maskless(), "ckks"):
        found.append(World(policy=policy).start().round(1).total(Update).delta)
    assert all(np.array_equal(found[0], other) for other in found[1:])


def test_a_cohort_at_the_minimum_is_summed_without_the_others(world):
    members = world.names[:4]
    total = world.round(1, members=members).total(Update)
    assert total.count == sum(world.sites[n].count for n in members)
    assert world.sites[world.names[4]].asked == 0


def test_two_disjoint_clusters_of_one_round_are_opened_each():
    world = World(clients=8).start()
    for members in (world.names[:4], world.names[4:]):
        # One train exchange per round and client: each client is asked once.
        total = world.round(1, members=members).total(Update)
        assert total.count == sum(world.sites[n].count for n in members)


def test_shorter_names_are_as_good_as_long_ones():
    # The headers' padding may be of any length, one byte included.
    for names in (("c-1", "c-2", "c-3", "c-4", "c-05"), ("c-01", "c-02", "c-03", "c-04", "c-5")):
        world = World(clients=names).start()
        assert world.round(1).total(Update).count == 20


@pytest.mark.parametrize("round", [1, 2])
def test_every_envelope_has_exactly_the_planned_size(round):
    for form in (None, SOW, GIFTS):
        world = World(**({"form": form} if form else {})).start()
        reply = world.round(round)
        if form is GIFTS:
            world.round(round, given=reply.handed(Gift), back=())
        assert len(world.wire) > 10
        for data in world.wire:
            assert len(data) == world.plan.item(Envelope.decode(data).header.item).bytes


def test_ledgers_reconcile_with_the_wire(world):
    world.round(1)
    released = [
        e["commitment"] for n in world.stores for e in world.entries(n) if e["kind"] == "release"
    ]
    received = [
        e["commitment"] for n in world.stores for e in world.entries(n) if e["kind"] == "receipt"
    ]
    travelled = {commitment_of(data) for data in world.wire}
    assert len(released) == len(set(released))
    assert set(released) == set(received) == travelled


def test_no_payload_stands_in_the_clear_on_the_wire(world):
    marker = np.full(5, 0.123456789)
    world.ask_deliveries = world.ask(1)
    for site in world.sites.values():
        site.delta = marker
    world.pump(world.ask_deliveries)
    raw = b"".join(world.wire)
    assert marker[:1].tobytes() not in raw
    assert marker[:1].astype("<f4").tobytes() not in raw


def test_the_same_ask_again_gets_the_same_bytes_and_no_second_entry(world):
    deliveries = world.ask(1)
    first = uploads(world, deliveries)
    lines = {name: world.stores[name].lines for name in world.names}
    assert uploads(world, deliveries) == first
    assert {name: world.stores[name].lines for name in world.names} == lines
    assert all(site.asked == 1 for site in world.sites.values())


def test_the_same_key_again_changes_nothing():
    world = World(policy=maskless()).start()  # with masks the boxes come last
    offer = next(d for d in world.wire if Envelope.decode(d).header.item == "key.offer")
    session, lines = world.clients["client-1"], world.stores["client-1"].lines
    assert session.receive(offer) == []
    assert world.stores["client-1"].lines == lines
    assert session.state is State.READY


def failing(world, error):
    def answer(site, given):
        raise error

    return answer


@pytest.mark.parametrize("case", ["nan", "shape", "error", "type", "key_error"])
def test_a_client_that_cannot_answer_refuses_once_and_is_dead(case):
    world = World().start()
    bad = {
        "nan": lambda s, g: Update(delta=np.full(5, np.nan), count=1),
        "shape": lambda s, g: Update(delta=np.zeros(6), count=1),
        "type": lambda s, g: g,
        "error": failing(world, ZeroDivisionError("0.123456 is private")),
        "key_error": failing(world, KeyError("private")),
    }
    site = world.sites["client-2"]
    site.answer = bad[case]
    with pytest.raises(Refused) as caught:
        world.round(1)
    assert caught.value.sender == "client-2"
    assert caught.value.code in REFUSALS
    assert world.clients["client-2"].state is State.DEAD
    assert world.aggregator.state is State.DEAD
    assert b"private" not in world.stores["client-2"].lines
    assert world.kinds("client-2").count("refusal") == 1
    with pytest.raises(LocalProtocolError):
        world.aggregator.advance()


def test_o27_refusals_for_different_reasons_look_alike():
    sizes = set()
    for answer in (
        lambda s, g: Update(delta=np.full(5, np.nan), count=1),
        lambda s, g: 1 // 0,
        lambda s, g: g,
    ):
        world = World().start()
        world.sites["client-1"].answer = answer
        (delivery,) = world.clients["client-1"].receive(world.ask(1)[0].data)
        assert refused([delivery])
        sizes.add(len(delivery.data))
    assert sizes == {world.plan.item("refusal.client").bytes}


def test_a_dead_session_refuses_everything(world):
    deliveries = world.ask(1)
    for session in (world.aggregator, world.authority, world.clients["client-1"]):
        session.die(RuntimeError())
        with pytest.raises(LocalProtocolError):
            session.receive(deliveries[0].data)
    with pytest.raises(LocalProtocolError):
        world.aggregator.advance()
    with pytest.raises(LocalProtocolError):
        world.ask(2)


@pytest.mark.parametrize("verb", ["start", "reply"])
def test_a_dead_aggregator_neither_starts_nor_replies(verb):
    world = World().start()
    world.round(1)
    world.aggregator.die(RuntimeError())
    with pytest.raises(LocalProtocolError):
        getattr(world.aggregator, verb)()


def test_a_round_without_enough_answers_is_lost_and_nothing_is_opened(world):
    deliveries = world.ask(1)
    for delivery in deliveries[:-2]:
        for answer in world.deliver(delivery):
            world.aggregator.receive(answer.data)
    with pytest.raises(RoundLost, match="3 clients are left"):
        world.aggregator.advance()
    assert "open" not in world.kinds("key-authority") + world.kinds("aggregator")
    assert world.aggregator.state is State.READY
    with pytest.raises(RemoteProtocolError):
        world.aggregator.reply()
    assert world.round(2).total(Update).count == 20


def test_close_destroys_the_key_and_ends_every_session(world):
    world.round(1)
    for name in world.stores:
        world.session(name).close()
        assert world.entries(name)[-1]["kind"] == "close"
        with pytest.raises(LocalProtocolError):
            world.session(name).receive(b"")
    assert world.authority.keys.held.get("SUM") is None
    assert {"key"} <= {e["kind"] for e in world.entries("key-authority")[-2:]}


def test_o9_a_dead_authority_holds_no_secret_key(world):
    world.authority.die(RuntimeError())
    assert world.authority.keys.held.get("SUM") is None


@pytest.mark.parametrize("party", ["client-3", "aggregator", "key-authority"])
@pytest.mark.parametrize("after", [0, 1, 2, 3])
def test_a_full_disk_lets_nothing_leave_and_ends_the_session(party, after):
    world = World(stores={party: FullDisk(after)})
    session, sent = world.session(party), []
    real = world.deliver

    def watched(delivery):
        answers = real(delivery)
        sent.extend(a.data for a in answers)
        return answers

    world.deliver = watched
    with pytest.raises(LedgerError):
        world.start()
        for number in (1, 2, 3):
            world.round(number)
    # Everything this party sent stands in what it could write.
    known = {e["commitment"] for e, _ in read_lines(world.stores[party].lines) if "commitment" in e}
    mine = [d for d in sent if Envelope.decode(d).header.sender == party]
    assert {commitment_of(d) for d in mine} <= known
    assert session.state is State.DEAD
    with pytest.raises(LocalProtocolError):
        session.receive(b"")


@pytest.mark.parametrize("party", ["client-3", "aggregator", "key-authority"])
def test_storage_that_fails_in_any_other_way_is_a_ledger_error_too(party):
    class Closed(FullDisk):
        def append(self, lines):
            raise ValueError("I/O operation on closed file")

    world = World(stores={party: Closed()})
    with pytest.raises(LedgerError):
        world.start()
    assert world.session(party).state is State.DEAD


def test_o5_nothing_is_decrypted_that_is_not_on_record(monkeypatch):
    world = World(stores={"key-authority": FullDisk(1)}).start()
    request, calls = world.until_open(1), []
    monkeypatch.setattr(type(world.scheme), "decrypt", lambda *a: calls.append(a))
    with pytest.raises(LedgerError):
        world.authority.receive(request.data)
    assert calls == []
    assert world.authority.state is State.DEAD


def test_o5_masks_come_off_no_sum_that_is_not_on_record(monkeypatch):
    world, unmasked, recorded = World(policy="masks").start(), Summands.unmasked, []

    def seen(asked, masks):
        recorded.append(world.kinds("aggregator").count("open"))
        return unmasked(asked, masks)

    monkeypatch.setattr(Summands, "unmasked", seen)
    for number in (1, 2):
        world.round(number)
    assert recorded == [1, 2]
