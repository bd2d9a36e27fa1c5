"""A dishonest aggregator: crafted Asks to clients, crafted open requests to the key authority."""

import numpy as np
import pytest

from protocols.errors import BadEnvelope, NotInPlan, Replay, WrongStage
from protocols.policy.policy import PrivacyPolicy
from protocols.sessions.part import State
from protocols.wire.envelope import Envelope
from tests.protocols.toys import SOW, Seed, maskless
from tests.protocols.wire import World, headers_of, refused, uploads, where_of


@pytest.fixture
def world():
    return World().start()


def turned_down(session, data):
    """The session answers with one refusal and is dead, and its site was not asked."""
    answers = session.receive(data)
    return refused(answers) and session.state is State.DEAD


CRAFTED = {
    "cohort below the minimum": dict(members=("client-1", "client-2", "client-3")),
    "cohort of one": dict(members=("client-1",)),
    "no cohort": dict(members=(), mask=b"\0"),
    "cohort without the client": dict(members=("client-2", "client-3", "client-4", "client-5")),
    "invented client": dict(mask=b"\xff"),
    "another cohort than the header's": dict(mask=b"\x0f"),
    "cohort digest of another cohort": dict(cohort="ab" * 32),
    "given digest of another model": dict(given="cd" * 32),
    "round beyond the plan": dict(round=4),
    "round far beyond the plan": dict(round=99_999_999),
    "exchange zero": dict(exchange=0),
    "an attempt without evidence that the first was not opened (O5)": dict(attempt=2),
}


@pytest.mark.parametrize("name", CRAFTED)
def test_a_client_turns_down_a_crafted_ask(world, name):
    client, ask = world.clients["client-1"], world.evil_ask("client-1", **CRAFTED[name])
    if name == "round far beyond the plan":  # of an epoch that has no keys
        with pytest.raises(WrongStage):
            client.receive(ask)
        assert client.state is State.READY
    else:
        assert turned_down(client, ask)
    assert world.sites["client-1"].asked == 0


def test_the_crafted_asks_fail_for_what_was_crafted(world):
    answers = world.clients["client-1"].receive(world.evil_ask("client-1"))
    assert not refused(answers)
    assert world.sites["client-1"].asked == 1


@pytest.mark.parametrize("kind", ["key.offer", "train.open", "refusal.client", "train.up.SUM"])
def test_a_client_takes_no_item_of_another_route(world, kind):
    body = bytes(world.plan.item(kind).body)
    client = world.clients["client-1"]
    with pytest.raises(BadEnvelope):
        client.receive(world.forge("aggregator", kind, "client-1", body, world.where()))
    assert client.state is State.READY


@pytest.mark.parametrize("garbage", [b"\xff", b"\x00"])
def test_a_model_of_garbage_is_turned_down(world, garbage):
    item = world.plan.item("train.down")
    body = garbage * item.body  # NaN, or an empty cohort
    data = world.forge("aggregator", "train.down", "client-1", body, world.where())
    assert turned_down(world.clients["client-1"], data)


def test_o5_a_round_is_answered_once(world):
    world.round(1)
    for places in (dict(exchange=2, round=1), dict(exchange=3, round=1, attempt=2)):
        fresh = World().start()
        fresh.round(1)
        assert turned_down(fresh.clients["client-1"], fresh.evil_ask("client-1", **places))


def test_o5_a_round_is_answered_once_also_where_no_slot_of_masks_is_used_up():
    world = World(policy=maskless()).start()
    world.round(1)
    client = world.clients["client-1"]
    assert turned_down(client, world.evil_ask("client-1", exchange=2, round=1))
    assert isinstance(client.last_error, NotInPlan)


@pytest.mark.parametrize("places", [dict(exchange=1, round=3), dict(exchange=3, round=1)])
def test_an_older_exchange_or_round_is_turned_down(world, places):
    world.round(1)
    world.round(2)
    client = world.clients["client-1"]
    try:
        assert turned_down(client, world.evil_ask("client-1", **places))
    except Replay:
        assert client.state is State.READY
    assert world.sites["client-1"].asked == 2


def test_more_asks_than_planned_are_turned_down(world):
    for number in (1, 2, 3):
        world.round(number)
    assert turned_down(world.clients["client-1"], world.evil_ask("client-1", round=3, exchange=4))


def test_an_ask_before_the_key_is_neither_answered_nor_the_end_of_the_session():
    """Public keys come without a receipt: whoever got none in time is as one that vanished."""
    world = World()
    client, size = world.clients["client-1"], world.clients["client-1"].ledger.size
    with pytest.raises(WrongStage):
        client.receive(world.evil_ask("client-1"))
    assert world.sites["client-1"].asked == 0
    assert (client.state, client.ledger.size) == (State.NEW, size)


# --- towards the key authority ---------------------------------------------------------------


def collected(world, members=None, **facts):
    """Return real uploads of a round, by client."""
    deliveries = world.ask(facts.pop("round", 1), members=members)
    return uploads(world, deliveries)


def opens(world, headers, where, total=None, mask=None):
    return not refused(world.authority.receive(world.evil_open(headers, where, total, mask)))


def test_the_honest_request_is_opened(world):
    sent = list(collected(world).values())
    assert opens(world, headers_of(sent), where_of(sent[0], world.names))


def test_o4_a_single_ciphertext_can_hide_behind_all_headers_and_a_plan_without_masks_says_so():
    """The authority cannot tell a total from an upload; test_o4_masks shows what masks change."""
    world = World(policy=maskless()).start()
    sent = list(collected(world).values())
    single = world.aggregator._inbox.open(sent[0]).body
    assert opens(world, headers_of(sent), where_of(sent[0], world.names), single)
    assert any("single upload" in warning for warning in world.plan.warnings)


@pytest.mark.parametrize("take", [0, 1, 3])
def test_o4_fewer_headers_than_the_minimum_cohort_are_not_opened(world, take):
    sent = list(collected(world).values())
    where = where_of(sent[0], world.names[:take] or world.names)
    assert not opens(world, headers_of(sent[:take]), where)
    assert world.authority.state is State.DEAD


def test_o5_a_smaller_cohort_than_its_members_signed_is_not_opened(world):
    sent = list(collected(world).values())
    assert not opens(world, headers_of(sent[:4]), where_of(sent[0], world.names[:4]))
    assert isinstance(world.authority.last_error, BadEnvelope)


def test_o5_what_one_round_opened_without_a_client_is_never_opened_with_it(world):
    sent = list(collected(world).values())
    where = where_of(sent[0], world.names)
    assert opens(world, headers_of(sent[:4]), where)  # the fifth may have vanished
    whole = world.evil_open(headers_of(sent), where)
    with pytest.raises(Replay):
        world.authority.receive(whole)
    assert world.kinds("key-authority").count("open") == 1


def test_headers_twice_do_not_make_a_cohort(world):
    sent = list(collected(world, world.names[:4]).values())
    where = where_of(sent[0], world.names[:4])
    assert not opens(world, headers_of([*sent[:3], sent[0]]), where)


def test_headers_of_another_round_are_not_opened(world):
    old = list(collected(world).values())
    world.aggregator.state = State.READY  # the aggregator is the adversary
    new = list(collected(world, round=2).values())
    assert not opens(world, headers_of([*new[:4], old[4]]), where_of(new[0], world.names))


def test_headers_of_one_round_do_not_open_another(world):
    sent = list(collected(world).values())
    where = where_of(sent[0], world.names)
    moved = world.where(round=2, exchange=where.exchange, given=where.given)
    assert not opens(world, headers_of(sent), moved)


def test_o8_two_models_for_one_cohort_stop_the_opening(world):
    sent = []
    for index, name in enumerate(world.names):
        ask = world.evil_ask(name, weights=np.full(5, float(index == 0), np.float32))
        sent.append(world.clients[name].receive(ask)[0].data)
    for which in (0, 1):
        fresh = world.evil_open(headers_of(sent), where_of(sent[which], world.names))
        if world.authority.state is State.READY:
            assert refused(world.authority.receive(fresh))
    assert world.authority.openings.opened == {}


@pytest.mark.parametrize("seeds", [(0, 0, 0, 0, 0), (1, 0, 0, 0, 0)])
def test_o8_two_public_messages_for_one_cohort_stop_the_opening(seeds):
    world, sent = World(SOW).start(), []
    for seed, name in zip(seeds, world.names, strict=True):
        ask = world.evil_ask(name, give=Seed(seed=seed))
        (upload,) = world.clients[name].receive(ask)
        assert not refused([upload])
        sent.append(upload.data)
    request = world.evil_open(headers_of(sent), where_of(sent[0], world.names))
    assert refused(world.authority.receive(request)) is (len(set(seeds)) > 1)  # the control opens


def test_o5_an_exchange_is_opened_once(world):
    request = world.until_open(1)
    (first,) = world.authority.receive(request.data)
    assert not refused([first])
    # The very same bytes get the very same answer: an aggregator that was killed asks again.
    assert world.authority.receive(request.data) == [first]
    assert world.kinds("key-authority").count("open") == 1


def test_o5_a_second_request_for_an_opened_exchange_is_refused(world):
    sent = list(collected(world).values())
    where = where_of(sent[0], world.names)
    assert opens(world, headers_of(sent), where)
    again = world.evil_open(headers_of(sent), where)
    with pytest.raises(Replay):
        world.authority.receive(again)
    other = world.forge(
        "aggregator", "train.open", "key-authority", bytes(world.plan.item("train.open").body),
        world.where(given=where.given, attempt=2),
    )  # fmt: skip
    assert refused(world.authority.receive(other))
    assert world.kinds("key-authority").count("open") == 1


def colluding(world, members, **places):
    """Return headers that colluding clients signed for an upload of that place."""
    where = world.where(members, given="ef" * 32, **places)
    body = bytes(world.plan.item("train.up.SUM").body)
    sent = [world.forge(n, "train.up.SUM", "aggregator", body, where) for n in members]
    return headers_of(sent), where


@pytest.mark.parametrize("second", [(3, 7), (0, 5), (1, 5)])
def test_o5_overlapping_cohorts_of_one_round_are_not_opened(second):
    world = World(clients=8).start()  # two openings of a round are planned here
    assert opens(world, *colluding(world, world.names[:4]))
    assert not opens(world, *colluding(world, world.names[slice(*second)], exchange=2))
    assert isinstance(world.authority.last_error, BadEnvelope)


@pytest.mark.parametrize("back", [True, False])
def test_o5_who_vanished_is_not_opened_with_another_cohort_of_the_round(back):
    world = World(clients=9).start()
    item, asked = "train.up.SUM", world.names[:5]
    where = world.where(asked, given="ef" * 32)
    body = bytes(world.plan.item(item).body)
    first = [world.forge(n, item, "aggregator", body, where) for n in asked[:4]]
    assert opens(world, headers_of(first), where)  # the fifth vanished
    second = world.names[4:8] if back else world.names[5:9]
    assert opens(world, *colluding(world, second, exchange=2)) is not back


def test_o5_another_attempt_does_not_open_an_exchange_again():
    world = World(clients=8).start()
    assert opens(world, *colluding(world, world.names[:4]))
    assert not opens(world, *colluding(world, world.names[4:], attempt=2))
    assert isinstance(world.authority.last_error, Replay)


def test_headers_of_one_exchange_do_not_open_another():
    world = World(clients=8).start()
    headers, where = colluding(world, world.names[:4])
    assert not opens(world, headers, world.where(world.names[:4], given=where.given, exchange=2))


def test_disjoint_cohorts_of_one_round_are_opened():
    world = World(clients=8).start()
    for exchange, members in enumerate((world.names[:4], world.names[4:]), start=1):
        where = world.where(members, exchange=exchange, given="ef" * 32)
        body = bytes(world.plan.item("train.up.SUM").body)
        sent = [world.forge(n, "train.up.SUM", "aggregator", body, where) for n in members]
        assert opens(world, headers_of(sent), where)


@pytest.mark.parametrize("fill", [b"\xff", b"\x00"])
def test_a_total_that_is_no_ciphertext_is_refused(world, fill):
    sent = list(collected(world).values())
    total = fill * world.scheme.ciphertext_bytes
    assert not opens(world, headers_of(sent), where_of(sent[0], world.names), total)


@pytest.mark.parametrize("case", ["stranger", "unsigned", "tail", "cut", "aggregator", "key"])
def test_headers_that_are_not_the_clients_are_refused(world, case):
    sent = list(collected(world).values())
    where, item = where_of(sent[0], world.names), "train.up.SUM"
    headers = headers_of(sent)
    body = bytes(world.plan.item(item).body)
    if case == "stranger":
        other = World()
        headers = headers_of(
            [other.forge(n, item, "aggregator", body, where, run=world.run) for n in world.names]
        )
    elif case == "unsigned":
        headers = headers[:-1] + bytes([headers[-1] ^ 1])
    elif case == "tail":
        headers = headers_of(sent[:4]) + bytes(9) + b"\1"
    elif case == "cut":
        headers = headers[:-30]
    elif case == "aggregator":
        where = world.where((*world.names[:3], "aggregator"), given=where.given)
        senders = where.members
        headers = headers_of([world.forge(n, item, "aggregator", body, where) for n in senders])
    else:
        other = world.forge("client-5", item, "aggregator", body, where, key="0" * 16)
        headers = headers_of([*sent[:4], other])
    assert not opens(world, headers, where, mask=world.roster.mask(world.names))
    assert world.kinds("key-authority").count("open") == 0


def test_an_open_request_before_any_key_is_refused():
    world = World()
    body = bytes(world.plan.item("train.open").body)
    data = world.forge("aggregator", "train.open", "key-authority", body, world.where())
    assert refused(world.authority.receive(data))


def test_o10_colluders_raise_what_the_authority_opens():
    rules = PrivacyPolicy.preset("pilot").rules
    world = World(policy=PrivacyPolicy(name="wary", rules=rules, colluders=1)).start()
    assert turned_down(world.clients["client-1"], world.evil_ask("client-1", world.names[:4]))
    assert Envelope.decode(world.wire[0]).header.policy == world.policy.digest
