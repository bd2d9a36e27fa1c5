"""A dishonest client: what it can send, and what the aggregator and the other clients do."""

import numpy as np
import pytest

from protocols.errors import (
    BadEnvelope,
    LocalProtocolError,
    NotInPlan,
    Refused,
    RemoteProtocolError,
    Replay,
    UnfitMessage,
    WrongStage,
)
from protocols.forms import Exchange, Form
from protocols.messages import SumMessage, count, real
from protocols.policy.policy import PrivacyPolicy
from protocols.sessions.part import State
from protocols.wire.codec import encode
from protocols.wire.control import REFUSALS, Refusal
from protocols.wire.envelope import Envelope
from tests.protocols.pub import Go, Portrait, Size, all_at_once, pub
from tests.protocols.toys import Seed, Start, Update, maskless
from tests.protocols.wire import World, uploads, where_of

ITEM = "train.up.SUM"


@pytest.fixture
def world():
    return World().start()


def all_but(world, name, **facts):
    """Run a round in which everybody but `name` has answered; returns where it is."""
    deliveries = world.ask(1, **facts)
    sent = uploads(world, [p for p in deliveries if p.to != name])
    for data in sent.values():
        world.aggregator.receive(data)
    return where_of(next(iter(sent.values())), world.names)


def goes_on_without(world, name):
    """The round ends with the others' total: for the aggregator this client has vanished."""
    world.lost = lambda item, sender, to: name in (sender, to)
    world.pump(world.aggregator.advance())
    left = [other for other in world.names if other != name]
    return world.aggregator.reply().total(Update).count == world.count(left)


def body_of(world, fill):
    return (fill * world.plan.item(ITEM).body)[: world.plan.item(ITEM).body]


@pytest.mark.parametrize("fill", [b"\xff", b"\x00"])
def test_a_ciphertext_of_garbage_ends_the_round_and_nothing_is_opened(world, fill):
    where = all_but(world, "client-3")
    world.aggregator.receive(
        world.forge("client-3", ITEM, "aggregator", body_of(world, fill), where)
    )
    with pytest.raises(RemoteProtocolError):
        world.pump(world.aggregator.advance())
    assert world.aggregator.state is State.DEAD
    assert world.kinds("key-authority").count("open") == 0


@pytest.mark.parametrize("size", [0, 1, 65535, 65537, 131072])
def test_an_upload_of_another_size_is_refused(world, size):
    where = all_but(world, "client-3")
    with pytest.raises(BadEnvelope):
        world.aggregator.receive(world.forge("client-3", ITEM, "aggregator", bytes(size), where))
    assert goes_on_without(world, "client-3")


def test_a_second_upload_is_refused_and_does_not_count():
    world = World(policy=maskless()).start()
    where = all_but(world, "client-3")
    honest = world.twin("client-3").release(
        ITEM, [Update(delta=np.zeros(5), count=1)], "aggregator", where
    )
    again = world.twin("client-3").release(
        ITEM, [Update(delta=np.full(5, 0.5), count=99)], "aggregator", where
    )
    world.aggregator.receive(honest.encode())
    with pytest.raises(Replay):
        world.aggregator.receive(again.encode())
    world.pump(world.aggregator.advance())
    total = world.aggregator.reply().total(Update)
    assert total.count == sum(s.count for n, s in world.sites.items() if n != "client-3") + 1


CHANGES = {
    "another exchange": dict(exchange=2),
    "another attempt": dict(attempt=2),
    "another round": dict(round=2),
    "an unplanned round": dict(round=77),
}


@pytest.mark.parametrize("name", CHANGES)
def test_an_upload_for_another_place_is_refused(world, name):
    where = all_but(world, "client-3")
    moved = world.where(given=where.given, **CHANGES[name])
    body = body_of(world, b"\1")
    with pytest.raises(RemoteProtocolError):
        world.aggregator.receive(world.forge("client-3", ITEM, "aggregator", body, moved))
    assert goes_on_without(world, "client-3")


HEADERS = {
    "another cohort": dict(cohort="ab" * 32),
    "another model given (O8)": dict(given="ab" * 32),
    "another key": dict(key="ab" * 8),
    "masks of another agreement (O7)": dict(pairs="ab" * 32),
    "no masks": dict(pairs="0" * 64),
}


@pytest.mark.parametrize("name", HEADERS)
def test_an_upload_with_another_header_is_refused(world, name):
    where = all_but(world, "client-3")
    data = world.forge(
        "client-3", ITEM, "aggregator", body_of(world, b"\1"), where, **HEADERS[name]
    )
    with pytest.raises(BadEnvelope):
        world.aggregator.receive(data)
    assert goes_on_without(world, "client-3")


def test_a_client_outside_the_cohort_is_not_added(world):
    members = world.names[:4]
    deliveries = world.ask(1, members=members)
    sent = uploads(world, deliveries)
    where = where_of(sent["client-1"], members)
    data = world.forge("client-5", ITEM, "aggregator", body_of(world, b"\1"), where)
    with pytest.raises(BadEnvelope, match="cohort"):
        world.aggregator.receive(data)


def test_an_upload_while_nothing_is_asked_is_refused(world):
    early, size = world.where(exchange=9), world.aggregator.ledger.size
    data = world.forge("client-3", ITEM, "aggregator", body_of(world, b"\1"), early)
    with pytest.raises(WrongStage):
        world.aggregator.receive(data)
    assert world.aggregator.state is State.READY
    assert world.aggregator.ledger.size == size
    assert not any(label[2] == 9 for label in world.aggregator._inbox._seen)
    assert world.round(1).total(Update).count == 20


@pytest.mark.parametrize("item", ["train.down", "train.open", "train.opened", "key.offer"])
def test_a_client_does_not_send_what_others_send(world, item):
    where = all_but(world, "client-3")
    body = bytes(world.plan.item(item).body)
    recipient = "roster" if item == "key.offer" else "aggregator"
    for target in (world.aggregator, world.clients["client-2"], world.authority):
        to = recipient if recipient == "roster" else target.name
        with pytest.raises(BadEnvelope):
            target.receive(world.forge("client-3", item, to, body, where))


@pytest.mark.parametrize("code", [0, len(REFUSALS) - 1, len(REFUSALS), 2**63])
def test_any_refusal_code_is_understood(world, code):
    where = all_but(world, "client-3")
    body = encode([Refusal(code=code)], {})
    with pytest.raises(Refused) as caught:
        world.aggregator.receive(
            world.forge("client-3", "refusal.client", "aggregator", body, where)
        )
    assert caught.value.code in REFUSALS
    assert world.aggregator.state is State.DEAD
    assert world.kinds("aggregator")[-1] == "receipt"  # the refusal itself is on record


@pytest.mark.parametrize("policy", ["unsafe_plaintext"])
def test_integers_beyond_the_grid_in_clear_stay_within_the_cohort_bound(policy):
    world = World(policy=policy).start()
    where = all_but(world, "client-3")
    world.aggregator.receive(
        world.forge("client-3", ITEM, "aggregator", body_of(world, b"\xff"), where)
    )
    try:
        world.pump(world.aggregator.advance())
    except RemoteProtocolError:
        assert world.aggregator.state is State.DEAD
    else:
        total = world.aggregator.reply().total(Update).delta
        assert np.max(np.abs(total)) <= 5 * 5.01


# --- the gateway of a client refuses what its own (compromised) algorithm wants to say -----------


def release(world, message, item=ITEM, recipient="aggregator", **where):
    messages = message if isinstance(message, list) else [message]
    return world.clients["client-1"]._gateway.release(
        item, messages, recipient, world.where(**where)
    )


GOOD = Update(delta=np.zeros(5), count=1)
BAD = {
    "nan": (UnfitMessage, dict(message=Update(delta=np.full(5, np.nan), count=1))),
    "inf": (UnfitMessage, dict(message=Update(delta=np.full(5, np.inf), count=1))),
    "shape": (UnfitMessage, dict(message=Update(delta=np.zeros((5, 1)), count=1))),
    "longer": (UnfitMessage, dict(message=Update(delta=np.zeros(6), count=1))),
    "text": (UnfitMessage, dict(message=Update(delta=np.array(["a"] * 5), count=1))),
    "negative": (UnfitMessage, dict(message=Update(delta=np.zeros(5), count=-1))),
    "too large": (UnfitMessage, dict(message=Update(delta=np.zeros(5), count=2**32))),
    "fraction": (UnfitMessage, dict(message=Update(delta=np.zeros(5), count=0.5))),
    "ragged": (UnfitMessage, dict(message=Update(delta=[[1.0], [1.0, 2.0]], count=1))),
    "extra": (NotInPlan, dict(message=[GOOD, Seed(seed=1)])),
    "twice": (NotInPlan, dict(message=[GOOD, GOOD])),
    "nothing": (NotInPlan, dict(message=[])),
    "another type": (NotInPlan, dict(message=Start(weights=np.zeros(5)))),
    "another item": (NotInPlan, dict(message=GOOD, item="evaluate.up.SUM")),
    "another role": (NotInPlan, dict(message=GOOD, recipient="key-authority")),
    "everyone": (NotInPlan, dict(message=GOOD, recipient="roster")),
    "another client": (NotInPlan, dict(message=GOOD, recipient="client-2")),
    "another's item": (NotInPlan, dict(message=Start(weights=np.zeros(5)), item="train.down")),
}


@pytest.mark.parametrize("case", BAD)
def test_the_gateway_refuses(world, case):
    error, facts = BAD[case]
    size = world.clients["client-1"].ledger.size
    with pytest.raises(error):
        release(world, **facts)
    assert world.clients["client-1"].ledger.size == size


def test_the_gateway_compares_fields_not_only_names(world):
    fields = {
        "labels": real("d", unit="label", meaning="private labels"),
        "count": count(unit="record", meaning="records"),
        "__annotations__": {"labels": object, "count": int},
    }
    impostor = type("Update", (SumMessage,), fields)
    with pytest.raises(NotInPlan):
        release(world, impostor(labels=np.zeros(5), count=1))


def test_the_gateway_compares_the_grid_too(world):
    delta, tally = (f for f in Update.fields)
    fields = {
        "delta": real("d", unit=delta.unit, meaning=delta.meaning, scale=None),
        "count": count(unit=tally.unit, meaning=tally.meaning),
        "__annotations__": {"delta": object, "count": int},
    }
    impostor = type("Update", (SumMessage,), fields)
    with pytest.raises(NotInPlan):
        release(world, impostor(delta=np.zeros(5), count=1))


def test_o6_a_second_vector_under_one_label_is_refused(world):
    release(world, GOOD)
    for round in (1, 2):
        with pytest.raises((LocalProtocolError, NotInPlan)):
            release(world, Update(delta=np.ones(5), count=2), round=round)
    kinds = world.kinds("client-1")
    world.clients["client-1"].ledger.commit()
    assert world.kinds("client-1") == [*kinds, "release"]


def test_the_gateway_holds_the_plans_counts(world):
    for number in (1, 2, 3):
        release(world, GOOD, round=number, exchange=number)
        with pytest.raises(NotInPlan, match="round" if number < 3 else "as planned"):
            release(world, GOOD, round=number, exchange=10 + number)
    with pytest.raises(NotInPlan):
        release(world, GOOD, round=4, exchange=4)


def test_without_the_key_nothing_is_encrypted_and_nothing_leaves():
    world = World()
    with pytest.raises(LocalProtocolError):
        release(world, GOOD)
    assert world.clients["client-1"].ledger.size == 1


def test_two_uploads_of_one_vector_look_different():
    world = World().start()
    one, two = (release(world, GOOD, exchange=n, round=n) for n in (1, 2))
    assert one.body != two.body


def test_what_came_beside_a_sum_and_cannot_be_read_ends_the_run():
    """It is read with the opened total: a session that went on would wait for that for ever."""
    document = PrivacyPolicy.preset("he").document()
    document["rules"]["SIMILARITY"] = [{"guard": "unsafe_clear"}]
    policy = PrivacyPolicy.model_validate({**document, "name": "beside"})
    said = Exchange(
        "train", (Go,), (Portrait, Size), lambda site, given: all_at_once(site, given)[1:]
    )
    world = pub(policy, form=Form("beside", lambda *_: None, (said,)))
    item = world.plan.item("train.up.SIMILARITY")
    for delivery in world.ask(1, given=Go(step=1), back=said.back):
        for answer in world.deliver(delivery):
            data, name = answer.data, delivery.to
            if name == "client-3" and Envelope.decode(data).header.item == item.id:
                body = np.full(world.d, np.nan).tobytes()[: item.body].ljust(item.body, b"\xff")
                where = where_of(data, world.names)
                data = world.forge(name, item.id, "aggregator", body, where)
            world.aggregator.receive(data)
    with pytest.raises(BadEnvelope, match="NaN"):
        world.pump(world.aggregator.advance())
    assert world.aggregator.state is State.DEAD
