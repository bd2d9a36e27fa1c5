"""Whoever lies while items are matched, and what catches it (docs/adr/0018, O8, O24, O25)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from protocols.disclosures.match import aggregator as brokering
from protocols.disclosures.match.aggregator import Matching
from protocols.disclosures.match.messages import Box, Bundle
from protocols.disclosures.match.parties import bundle_of
from protocols.disclosures.match.protocol import tag_service as sides
from protocols.disclosures.match.protocol.cells import cell_label, total
from protocols.disclosures.match.protocol.cells import matched as honest
from protocols.disclosures.match.protocol.tagging import TagServer
from protocols.disclosures.match.protocol.wire import Kind
from protocols.disclosures.match.run import held, match_run_of
from protocols.errors import BadEnvelope, Refused, Replay, WrongStage
from protocols.sessions.part import State
from protocols.wire.codec import encode
from protocols.wire.control import Call
from protocols.wire.envelope import Envelope
from protocols.wire.roster import given_digest
from tests.protocols.matched import (
    STEP,
    Change,
    Found,
    Go,
    Items,
    cells_of,
    matched_round,
    matching,
    same,
    wanted,
)
from tests.protocols.test_o24_tags import Turncoat

VICTIM = "client-3"


@pytest.fixture
def world():
    return matching().start()


def turn(world, server, **facts):
    """Let a tag server use another key for some clients or points."""
    side = world.serving[server].tags._side
    liar = Turncoat(side._run.match, **facts)
    side._server = liar


def lie(monkeypatch, change):
    """Let the matcher change what it tells: change(name, told) -> told."""

    def lying(*arguments):
        found = honest(*arguments)
        return replace(found, told={n: change(n, told) for n, told in found.told.items()})

    monkeypatch.setattr(sides, "matched", lying)


def refuses(world, who, why):
    """Run a round; hold that this party ended it, and that no cell was opened."""
    with pytest.raises((Refused, BadEnvelope)):
        matched_round(world)
    error = world.session(who).last_error
    assert isinstance(error, BadEnvelope) and why in str(error)
    assert all(site.found is None for site in world.sites.values())
    told = [e for e in world.entries("aggregator") if e["kind"] == "match"]
    assert not told and world.aggregator.state is State.DEAD


# --- tag servers ----------------------------------------------------------------------------------


@pytest.mark.parametrize("server", ["tag-server-1", "tag-server-2"])
def test_o24_another_key_for_one_client_ends_the_round_at_the_matcher(world, server):
    turn(world, server, victims=(VICTIM,))
    refuses(world, "matcher", f"canary of 1 clients differs ({VICTIM})")


def test_o24_more_than_one_key_within_a_batch_is_seen_by_the_client(world):
    turn(world, "tag-server-2", points=tuple(range(0, 19, 2)))
    with pytest.raises(Refused):
        matched_round(world)
    dead = [c for c in world.clients.values() if c.state is State.DEAD]
    assert dead and "different tags" in str(dead[0].last_error)


def two_groups(monkeypatch, world):
    """A tag server with two keys, a matcher that compares each group by itself and says nothing."""
    turn(world, "tag-server-1", victims=tuple(world.names[:5]))

    def each(tags, digests, match, cells=None):
        usual = dict.fromkeys(digests, max(digests.values(), key=list(digests.values()).count))
        found = honest(tags, usual, match, cells)
        told = {n: replace(one, digest=digests[n]) for n, one in found.told.items()}
        return replace(found, told=told)

    monkeypatch.setattr(sides, "matched", each)
    monkeypatch.setattr(sides, "same_canary", lambda digests: digests[world.names[-1]])


def test_o8_a_matcher_that_hides_two_keys_is_caught_by_what_all_are_given(world, monkeypatch):
    two_groups(monkeypatch, world)
    with pytest.raises(Refused):
        matched_round(world)
    error = world.clients[world.names[0]].last_error
    assert "another canary" in str(error) and world.sites[world.names[0]].found is None


def test_o8_an_aggregator_that_helps_it_gets_no_sum_of_both_groups(world, monkeypatch):
    """Every client is told its own group's canary, so they were given different things."""
    two_groups(monkeypatch, world)
    world.prepare(1)
    world.pump(world.ask(1, given=Go(step=1), back=(Items,)))
    told = world.aggregator.reply().matched(Items, into=Found).told
    item, said = world.plan.item("learn.down"), {}
    for name in (world.names[0], world.names[-1]):
        own = replace(told, canary=held(world.context(name))._client.digest)
        heads, place = world.silence(name)
        mask = world.roster.mask(world.names)
        call = Call(members=mask, slot=0, nonce=bytes(16), heads=heads)
        dims = world.context(name).dims(item)
        given = given_digest([call, Go(step=1), own], dims)
        body = encode([call, place, Go(step=1), own], dims)
        where = world.where(exchange=50, given=given)
        data = world.forge("aggregator", item.id, name, body, where)
        said[name] = Envelope.decode(world.clients[name].receive(data)[0].data).header
    one, other = said.values()
    assert one.item == other.item == "learn.up.SUM"
    assert one.given != other.given  # masks are bound to it and do not cancel: test_o8_models


def test_o24_a_second_batch_in_a_round_is_refused_and_reported(world):
    world.prepare(1)
    (first, *_) = world.pump(world.ask(1, given=Go(step=1), back=(Items,)), until=".points")
    world.deliver(first)
    server = world.session(first.to)
    incoming = Envelope.decode(first.data).header
    run = match_run_of(world.context("aggregator"))
    box = {name: bytes([1]) * run.length(Kind.POINTS) for name in world.names}
    where = world.where(exchange=incoming.exchange + 1, given=incoming.given)
    bundle = Bundle(members=world.roster.mask(world.names), bundle=bundle_of(run, Kind.POINTS, box))
    again = world.twin("aggregator").release(incoming.item, [bundle], first.to, where).encode()
    (answer,) = server.receive(again)
    assert Envelope.decode(answer.data).header.item == "refusal.tag_server"
    assert isinstance(server.last_error, Replay) and server.state is State.DEAD
    assert [e["reason"] for e in world.entries(first.to) if e["kind"] == "refusal"] == ["Replay"]


@pytest.mark.parametrize("server", [0, 1])
def test_o24_a_tag_server_is_asked_at_its_own_step_only(world, server):
    """Whoever is asked in another order may see points that the other server saw."""
    world.prepare(1)
    run = match_run_of(world.context("aggregator"))
    (first,) = world.pump(world.ask(1, given=Go(step=1), back=(Items,)), until=".points")
    header = Envelope.decode(first.data).header
    box = {name: bytes([1]) * run.length(Kind.POINTS) for name in world.names}
    bundle = Bundle(members=world.roster.mask(world.names), bundle=bundle_of(run, Kind.POINTS, box))
    item = ("expand.match.second_points", "expand.match.points")[server]
    where, to = world.where(exchange=header.exchange, given=header.given), run.servers[server]
    data = world.twin("aggregator").release(item, [bundle], to, where).encode()
    (answer,) = world.session(to).receive(data)
    assert Envelope.decode(answer.data).header.item == "refusal.tag_server"
    assert "order is fixed" in str(world.session(to).last_error)
    assert not [e for e in world.entries(to) if e["kind"] == "tags"]


def test_o24_an_answer_of_the_other_tag_server_is_not_taken(world):
    world.prepare(1)
    (first,) = world.pump(world.ask(1, given=Go(step=1), back=(Items,)), until=".points")
    header = Envelope.decode(first.data).header
    run = match_run_of(world.context("aggregator"))
    box = {name: bytes([1]) * run.length(Kind.ANSWER) for name in world.names}
    bundle = Bundle(members=world.roster.mask(world.names), bundle=bundle_of(run, Kind.ANSWER, box))
    where = world.where(exchange=header.exchange, given=header.given)
    twin = world.twin(run.servers[1])
    data = twin.release("expand.match.answers", [bundle], "aggregator", where).encode()
    with pytest.raises(BadEnvelope, match="not from the tag server that was asked"):
        world.aggregator.receive(data)


def test_o24_points_that_are_none_are_refused_and_counted(world, monkeypatch):
    """A client whose box holds no points: beyond its quota of guesses there is nothing to get."""
    usual = TagServer.answer

    def wrong(server, client, epoch, points, spread=map):
        more = points + points[:32] if client == VICTIM else points
        return usual(server, client, epoch, more, spread)

    monkeypatch.setattr(TagServer, "answer", wrong)
    with pytest.raises(Refused):
        matched_round(world)
    (told,) = [e for e in world.entries("tag-server-1") if e["kind"] == "tags"]
    assert told["refused"] == 1 and told["quota"] == 19


# --- the matcher ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda t: replace(t, members=t.members[:-1]), "sizes of the cells"),
        (lambda t: replace(t, members=(), cell=0), "not this client"),
        (lambda t: replace(t, sizes=np.array([3, 8])), "smaller than the policy's"),
        (lambda t: replace(t, bits=np.full_like(t.bits, 192 ^ (128 >> t.cell))), "own cell out"),
        (lambda t: replace(t, digest=bytes(32)), "another canary"),
    ],
)
def test_o25_a_matcher_that_lies_to_one_client_is_refused_by_it(world, monkeypatch, change, why):
    lie(monkeypatch, lambda name, told: change(told) if name == VICTIM else told)
    refuses(world, VICTIM, why)


def test_o25_members_that_were_told_different_cells_open_nothing(world, monkeypatch):
    """Each of the lied-to clients sees a whole cell with itself in it."""

    def change(name, told):
        strangers = [n for n in world.names if n not in told.members]
        swapped = {told.members[0] if told.members[0] != name else told.members[1]}
        members = tuple(sorted({*told.members, strangers[0]} - swapped))
        return replace(told, members=members) if name == VICTIM else told

    lie(monkeypatch, change)
    with pytest.raises(BadEnvelope, match=r"told different things|stands in two"):
        matched_round(world)
    assert all(site.found is None for site in world.sites.values())


def test_o25_a_share_for_other_members_does_not_open_even_if_the_aggregator_carries_it(
    world, monkeypatch
):
    """The aggregator helps the matcher: it calls the lied-to client's cell the others' one."""

    def change(name, told):
        strangers = [n for n in world.names if n not in told.members]
        swapped = next(n for n in told.members if n != name)
        members = tuple(sorted({*told.members, strangers[0]} - {swapped}))
        return replace(told, members=members) if name == VICTIM else told

    lie(monkeypatch, change)
    usual = Matching._hand_shares

    def helping(session):
        here = session._broker.here
        mine = {n: found[0] for n, found in here.items()}
        mate = next(n for n, m in mine.items() if m.cell == mine[VICTIM].cell and n != VICTIM)
        here[VICTIM] = (replace(mine[VICTIM], members=mine[mate].members),)
        return usual(session)

    monkeypatch.setattr(Matching, "_hand_shares", helping)
    with pytest.raises(Refused):
        matched_round(world)
    assert all(site.found is None for site in world.sites.values())


def test_o25_cells_of_a_later_round_must_be_the_same(world, monkeypatch):
    matched_round(world)

    def other(tags, digests, match, cells=None):
        names = sorted(tags)
        return honest(tags, digests, match, {n: i % 2 for i, n in enumerate(names)})

    monkeypatch.setattr(sides, "matched", other)
    with pytest.raises(Refused):
        matched_round(world, 2)
    dead = [c for c in world.clients.values() if c.state is State.DEAD]
    assert dead and "other ones than earlier" in str(dead[0].last_error)


def test_o25_a_member_that_sends_others_different_nonces_costs_its_own_cell(world, monkeypatch):
    calls = iter(range(99))

    def label(nonces, place):
        return bytes(32) if next(calls) == 0 else cell_label(nonces, place)

    monkeypatch.setattr("protocols.disclosures.match.protocol.client.cell_label", label)
    matched_round(world)
    lost = [
        cell
        for cell in (0, 1)
        for gone in [tuple(n for n, c in cells_of(world).items() if c == cell)]
        if all(set(world.sites[n].found) == set(wanted(world, gone)[n]) for n in world.names)
    ]
    assert len(lost) == 1


# --- the aggregator -------------------------------------------------------------------------------


def altered(monkeypatch, by, cells=(0, 1)):
    """Let the aggregator add a number to the totals of some cells."""
    added = iter(range(9))

    def adding(parts, count, size):
        label, words = total(parts, count, size)
        return label, words + np.uint32(by if next(added) in cells else 0)

    monkeypatch.setattr(brokering, "total", adding)


def test_a_total_that_its_members_cannot_have_is_dropped(world, monkeypatch):
    altered(monkeypatch, 1 << 30, cells=(0,))
    matched_round(world)
    short = {n for n in world.names if world.sites[n].found.keys() < wanted(world)[n].keys()}
    for cell in (0, 1):
        gone = tuple(n for n, c in cells_of(world).items() if c == cell)
        if all(set(world.sites[n].found) == set(wanted(world, gone)[n]) for n in world.names):
            return
    pytest.fail(f"dropped more than one cell: {sorted(short)}")


def test_a_total_that_is_altered_a_little_moves_the_means_and_no_more(world, monkeypatch):
    altered(monkeypatch, 500)
    matched_round(world)
    told = wanted(world)
    off = [
        np.abs(world.sites[n].found[item] - vector).max() / STEP
        for n in world.names
        for item, vector in told[n].items()
    ]
    assert 10 < max(off) <= 101  # of five clients


def test_an_aggregator_adds_uniform_words_and_clients_read_them(world):
    """With the group's key the very same words are the cell's total; without it they are wide."""
    world.prepare(1)
    world.pump(world.ask(1, given=Go(step=1), back=(Items,)))
    told = world.aggregator.reply().matched(Items, into=Found).told
    words = np.frombuffer(told.totals, "<i4").astype(np.int64)
    assert np.abs(words).max() > 6 * 2**15  # beyond what a cell can have
    group = held(world.context(world.names[0]))._client.held.group
    assert all(group not in data for data in world.wire)
    world.pump(world.ask(1, given=(Go(step=1), _token(world)), back=(Change,)))
    same(world)


def _token(world):
    return world.aggregator.reply().matched(Items, into=Found)


def test_steps_come_in_order_and_once(world):
    world.prepare(1)
    answers = world.pump(world.ask(1, given=Go(step=1), back=(Items,)), until=".tagged")
    first = answers[0]
    header = Envelope.decode(first.data).header
    dims = world.plan.item("expand.match.told").dims
    told = Box(boxes=bytes(dims["match_boxes"]))
    where = world.where(exchange=header.exchange, given=header.given)
    early = world.twin("aggregator").release("expand.match.told", [told], first.to, where).encode()
    (answer,) = world.clients[first.to].receive(early)
    assert Envelope.decode(answer.data).header.item == "refusal.client"
    assert world.clients[first.to].state is State.DEAD


def test_an_answer_of_another_step_is_not_taken(world):
    world.prepare(1)
    first = world.pump(world.ask(1, given=Go(step=1), back=(Items,)), until=".told")[0]
    tags = [d for d in world.wire if Envelope.decode(d).header.item == "expand.match.tags"]
    with pytest.raises(Replay):
        world.aggregator.receive(tags[0])
    world.aggregator._inbox._seen.clear()
    with pytest.raises(WrongStage):
        world.aggregator.receive(tags[0])
    assert first.to in world.names


def test_control_without_a_lie_the_round_goes_through(world):
    matched_round(world)
    same(world)
