"""O23: clients and relays that lie or vanish.

What a relay can do unnoticed is a test of its own: it replaces boxes, one for one.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace

import numpy as np
import pytest

from crypto.hpke import SEAL_OVERHEAD
from protocols.disclosures._relayed import relay as relay_part
from protocols.disclosures._relayed.boxes import box_info, shuffled
from protocols.disclosures._relayed.relay import BatchRelay
from protocols.disclosures.mixed.disclosure import Mixtures
from protocols.disclosures.names import Disclosure
from protocols.errors import (
    BadEnvelope,
    Refused,
    RemoteProtocolError,
    Replay,
    RoundLost,
    WrongStage,
)
from protocols.forms import Exchange, Form
from protocols.messages import SumMessage, count
from protocols.wire.envelope import SIGNED, Envelope
from tests.protocols.mix import (
    Go,
    Mashed,
    asked,
    mash,
)
from tests.protocols.relayed import (
    BATCH,
    POOL,
    UP,
    answers,
    batch,
    box_bytes,
    opened_by,
    relayed,
    sent,
    world_without,
)
from tests.protocols.test_results_resume import Killed

# --- clients that lie -----------------------------------------------------------------------------


def test_o23_unequal_counts_never_reach_the_relay():
    for more in (-1, 1):
        world = relayed()
        (*rest, last) = answers(world)
        inner = opened_by(world, "relay", Envelope.decode(last.data))
        size = box_bytes(world)
        other = inner[:-size] if more < 0 else inner + inner[:size]
        info = sealed_as(world, last, other)
        for delivery in rest:
            world.aggregator.receive(delivery.data)
        with pytest.raises(BadEnvelope, match=r"size|larger"):
            world.aggregator.receive(info)


def sealed_as(world, delivery, inner):
    """Return a client's envelope with other boxes in it, properly sealed and signed."""
    header, name = Envelope.decode(delivery.data).header, delivery_sender(delivery)
    where = world.where(given=header.given)
    return forged(world, name, inner, where)


def forged(world, name, inner, where):
    relay = world.roster.party("relay").seal
    raw = world.forge(name, UP, "aggregator", b"", where)
    header = Envelope.decode(raw).header
    body = relay.seal(header.encode(without_body=True), inner)
    header = replace(header, body=hashlib.sha256(body).hexdigest())
    signature = world.identities[name].signing.sign(SIGNED, header.encode())
    return Envelope(header, signature, body).encode()


def delivery_sender(delivery):
    return Envelope.decode(delivery.data).header.sender


@pytest.mark.parametrize(
    ("spoil", "who", "why"),
    [
        (lambda inner, size: inner[size : 2 * size] + inner[size:], "relay", "there twice"),
        (lambda inner, size: bytes(size) + inner[size:], "aggregator", "number of boxes"),
        (lambda inner, size: bytes([inner[0] ^ 1]) + inner[1:], "aggregator", "does not open"),
    ],
)
def test_o23_boxes_that_a_client_spoils_end_the_run(spoil, who, why):
    world = relayed()
    (*rest, last) = answers(world)
    inner = opened_by(world, "relay", Envelope.decode(last.data))
    data = sealed_as(world, last, spoil(inner, box_bytes(world)))
    for delivery in rest:
        world.aggregator.receive(delivery.data)
    world.aggregator.receive(data)
    with pytest.raises((Refused, BadEnvelope)) as error:
        world.pump(world.aggregator.advance())
    assert why in str(world.relay.last_error if who == "relay" else error.value)


def test_an_upload_under_another_key_is_not_handed_over():
    """The relay would refuse it, and with it the round of all others."""
    world = relayed()
    (*_, last) = answers(world)
    header = Envelope.decode(last.data).header
    where = world.where(given=header.given)
    body = bytes(world.plan.item(UP).body)
    data = world.forge(header.sender, UP, "aggregator", body, where, key="ab" * 8)
    with pytest.raises(BadEnvelope, match="another key"):
        world.aggregator.receive(data)


# --- a relay that lies ----------------------------------------------------------------------------


def lying(monkeypatch, change):
    monkeypatch.setattr(relay_part, "shuffled", lambda boxes: change(shuffled(boxes)))
    return relayed()


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda boxes: boxes[:-1], "another number"),
        (lambda boxes: boxes[:-7], "another number"),
        (lambda boxes: [], "another number"),
        (lambda boxes: [*boxes[:-1], boxes[0]], "there twice"),
        (lambda boxes: [bytes([boxes[0][0] ^ 1]) + boxes[0][1:], *boxes[1:]], "does not open"),
        (lambda boxes: [boxes[0][:-1] + bytes([boxes[0][-1] ^ 1]), *boxes[1:]], "does not open"),
    ],
    ids=["drop", "drop-some", "nothing", "double", "edit-key", "edit-tag"],
)
def test_o23_a_relay_that_drops_doubles_or_edits_is_caught(change, why, monkeypatch):
    world = lying(monkeypatch, change)
    with pytest.raises(BadEnvelope, match=why):
        asked(world)
    with pytest.raises(RemoteProtocolError):  # nothing of it was read
        world.aggregator.reply()


def test_o23_a_relay_cannot_add_boxes(monkeypatch):
    """Not even where a client vanished and its places are left."""
    world = relayed()

    def more(boxes):
        where = world.where(given=sent(world, UP)[0].header.given)
        info = box_info(world.context("relay"), UP, where)
        content = bytes(box_bytes(world) - SEAL_OVERHEAD)
        return [*boxes, world.roster.party("aggregator").seal.seal(info, content)]

    monkeypatch.setattr(relay_part, "shuffled", more)
    with world_without(world, "client-5"), pytest.raises(BadEnvelope, match="another number"):
        asked(world)


def test_o23_control_a_relay_replaces_boxes_one_for_one_unnoticed(monkeypatch):
    """What bounds it: it does not know what it takes away, and the number stays."""
    world = relayed()
    made = []

    def replacing(boxes):
        where = world.where(given=sent(world, UP)[0].header.given)
        info = box_info(world.context("relay"), UP, where)
        layout = world.aggregator.asked.answers.of(Disclosure.MIXED, Mixtures).pool_layout()
        features, labels = layout.parts
        whole = (32767).to_bytes(2, "little") + bytes(labels - 2)  # all of one class: shares
        content = b"\1" + b"\x11\x22" * (features // 2) + whole
        made.append(world.roster.party("aggregator").seal.seal(info, content))
        return [*made, *boxes[1:]]

    monkeypatch.setattr(relay_part, "shuffled", lambda boxes: replacing(shuffled(boxes)))
    (pool,) = asked(world).each(Mashed)
    assert len(made) == 1
    told = np.isclose(pool.features, 0x2211 * 16.0 / 32767, atol=1e-3).all(axis=(1, 2))
    assert told.sum() == 1 and len(pool.features) <= 5 * world.plan.dims["mixtures"]


@pytest.mark.parametrize(
    ("flag", "rest", "why"),
    [
        (b"\0", b"\0\1", "neither a mixture nor padding"),
        (b"\2", b"\0\0", "neither a mixture nor padding"),
        (b"\1", b"\x00\x80", "outside its grid"),
    ],
)
def test_o23_a_box_that_holds_no_place_is_refused(flag, rest, why, monkeypatch):
    world = relayed()

    def replacing(boxes):
        where = world.where(given=sent(world, UP)[0].header.given)
        info = box_info(world.context("relay"), UP, where)
        content = flag + rest * ((box_bytes(world) - SEAL_OVERHEAD - 1) // 2)
        return [world.roster.party("aggregator").seal.seal(info, content), *boxes[1:]]

    monkeypatch.setattr(relay_part, "shuffled", replacing)
    with pytest.raises(BadEnvelope, match=why):
        asked(world)


def test_a_pool_that_nobody_asked_for_is_refused():
    world = relayed()
    (request,) = world.pump(world.ask(1, Go(step=1), (Mashed,)), until=".relay.MIXED")
    (pool,) = world.deliver(request)
    world.aggregator.unlinking.rest()
    with pytest.raises(WrongStage, match="none was asked"):
        world.aggregator.receive(pool.data)


# --- who vanishes, and kills ----------------------------------------------------------------------


def test_a_client_that_vanishes_is_no_part_of_the_pool():
    world = relayed()
    with world_without(world, "client-2"):
        (pool,) = asked(world).each(Mashed)
    assert len(pool.features) == 20
    (entry,) = [e for e in world.entries("relay") if e["kind"] == "relay"]
    assert (entry["members"], entry["survivors"]) == (5, 4)
    with pytest.raises(RoundLost):
        world.lost = lambda item, sender, to: {"client-1", "client-2"} & {sender, to}
        asked(world, 2)
    assert world.kinds("relay").count("relay") == 1
    world.lost = lambda *_: False
    assert len(asked(world, 3).each(Mashed)[0].features) == 25


@pytest.mark.parametrize("item", [BATCH, POOL])
def test_a_relay_that_does_not_answer_loses_the_round_and_no_more(item):
    world = relayed()
    world.lost = lambda one, sender, to: one == item
    with pytest.raises(RoundLost, match="relay did not return"):
        asked(world)
    world.lost = lambda *_: False
    assert len(asked(world, 2).each(Mashed)[0].features) == 25


class Size(SumMessage):
    records: int = count(unit="record", meaning="records")


def test_a_sum_of_the_same_ask_is_opened_over_the_same_clients():
    def both(site, given):
        return mash(site, given), Size(records=3)

    form = Form("mash", lambda *_: None, (Exchange("mash", (Go,), (Mashed, Size), both),))
    world = relayed(form=form)
    with world_without(world, "client-4"):
        reply = world.round(1, given=Go(step=1), back=(Mashed, Size))
    assert reply.total(Size).records == 12 and len(reply.each(Mashed)[0].features) == 20


def test_everybody_is_killed_after_every_delivery(monkeypatch):
    monkeypatch.setattr("tests.protocols.mix.World", Killed)
    world = relayed(rounds=3)
    world.keep()
    for number in (1, 2):
        (pool,) = asked(world, number).each(Mashed)
        assert len(pool.features) == 25
    assert world.kills >= 12 and world.kinds("relay").count("relay") == 2


class Kill(BaseException):
    """What no session catches."""


def test_o23_a_relay_killed_after_its_record_relays_the_same_batch_and_no_other(monkeypatch):
    monkeypatch.setattr("tests.protocols.mix.World", Killed)
    world = relayed()
    world.keep()
    (request,) = world.pump(world.ask(1, Go(step=1), (Mashed,)), until=".relay.MIXED")

    def dies(*_):
        raise Kill

    whole = BatchRelay._boxes
    monkeypatch.setattr(BatchRelay, "_boxes", dies)
    with pytest.raises(Kill):
        world.relay.receive(request.data)
    assert world.kinds("relay")[-1] == "relay"  # recorded before anything was opened
    monkeypatch.setattr(BatchRelay, "_boxes", whole)
    world.kill("relay")
    with pytest.raises(Replay):
        world.relay.receive(batch(world, sent(world, UP)[:4]))
    (pool,) = world.relay.receive(request.data)
    world.aggregator.receive(pool.data)
    assert world.aggregator.advance() == []
    assert len(world.aggregator.reply().each(Mashed)[0].features) == 25
    assert world.kinds("relay").count("relay") == 1
