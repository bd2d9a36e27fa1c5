"""O23: a relay takes the senders off mixtures, and sees none of them.

Attacks by an aggregator, by a relay and by clients. What a relay can do without being noticed is a
test of its own: it replaces boxes, one for one.
"""

from __future__ import annotations

import hashlib
import itertools
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from pydantic import ValidationError

from crypto.errors import CryptoError
from crypto.hpke import SEAL_OVERHEAD
from protocols import gateway, mix_boxes
from protocols.control import Batch
from protocols.disclosures import Disclosure
from protocols.envelope import Envelope, signed_header
from protocols.errors import (
    BadEnvelope,
    NotInPlan,
    Refused,
    RemoteProtocolError,
    Replay,
    RoundLost,
    WrongStage,
)
from protocols.forms import Exchange, Form
from protocols.guards import Blur, Clip, Mix, Relay, Seal, check_chain
from protocols.messages import SumMessage, count
from protocols.mix_boxes import mixture_info, shuffled
from protocols.mix_texts import RELAYED
from protocols.papers import Papers
from protocols.policy import PRESETS
from protocols.roster import Identity, Role, Roster
from protocols.rounds import Ask, Cohort
from protocols.sessions import relay as relay_module
from protocols.sessions.codec import StateCodec
from protocols.sessions.keeping import state_codec
from protocols.sessions.table import State
from tests.protocols.mix import (
    GRID,
    PLACES,
    WIDTH,
    Go,
    Mashed,
    asked,
    by_hand,
    chain,
    groups,
    mash,
    mixing,
    mixing_plan,
    mixing_policy,
)
from tests.protocols.test_results_resume import Killed

UP, BATCH, POOL = "mash.up.MIXED", "mash.relay.MIXED", "mash.relayed.MIXED"


def relayed(*more, **facts):
    """Return a started world whose mixtures pass through a relay."""
    return mixing(chain(*more, Relay()), **facts)


def sent(world, item):
    return [e for e in map(Envelope.decode, world.wire) if e.header.item == item]


def box_bytes(world) -> int:
    return world.plan.item(UP).body // world.plan.dims["mixtures"]


def batch(world, uploads=None, members=None, exchange=1, number=1, given=None, said=None):
    """Return an aggregator's request over any uploads, from a gateway that remembers nothing."""
    uploads = sent(world, UP) if uploads is None else uploads
    dims = world.plan.item(BATCH).dims
    chosen = world.names if members is None else members
    message = Batch(
        members=world.roster.mask(chosen),
        headers=b"".join(map(signed_header, uploads)).ljust(dims["batch_headers"], b"\0"),
        bodies=b"".join(bytes(e.body) for e in uploads).ljust(dims["batch"], b"\0"),
    )
    given = uploads[0].header.given if given is None else given
    where = world.where(said or chosen, exchange=exchange, round=number, given=given)
    return world.twin("aggregator").release(BATCH, [message], "relay", where).encode()


def answers(world, number=1):
    """Deliver an Ask and keep every client's answer from the aggregator."""
    world.prepare(number)
    return [world.deliver(parcel)[0] for parcel in world.ask(number, Go(step=number), (Mashed,))]


def refuses(world, data, why):
    """Tell that the relay refuses a request for this reason and opened nothing."""
    before = world.kinds("relay").count("relay")
    (answer,) = world.relay.receive(data)
    assert Envelope.decode(answer.data).header.item == "refusal.relay"
    assert why in str(world.relay.last_error) and world.relay.state is State.DEAD
    assert world.kinds("relay").count("relay") == before
    return type(world.relay.last_error)


# --- what comes out -------------------------------------------------------------------------------


def test_o23_the_aggregator_reads_one_pool_of_what_all_clients_mixed():
    world = relayed()
    reply = asked(world)
    (pool,) = reply.each(Mashed)
    wanted = [by_hand(world.sites[n], groups(world, n)) for n in world.names]
    features = np.concatenate([f for f, _ in wanted])
    labels = np.concatenate([one for _, one in wanted])
    assert pool.features.shape == features.shape == (25, PLACES, WIDTH) and reply.answers == 5
    apart = np.abs(pool.features[:, None] - features[None]).max(axis=(2, 3))
    match = apart.argmin(axis=1)
    assert sorted(match) == list(range(25)) and apart.min(axis=1).max() <= GRID
    assert np.abs(pool.label - labels[match]).max() <= 1 / 32767
    assert list(match) != sorted(match)


def test_o23_without_a_relay_the_same_sites_give_the_same_mixtures():
    """As a multiset: groups are drawn anew, so both are put into the same ones."""
    one, other = relayed(), mixing(chain())
    (first,) = asked(one).each(Mashed)
    for name in other.names:
        other.clients[name]._gateway._mixer = one.clients[name]._gateway._mixer
    plain = np.concatenate([m.features for m in asked(other).each(Mashed)])
    apart = np.abs(first.features[:, None] - plain[None]).max(axis=(2, 3))
    assert sorted(apart.argmin(axis=1)) == list(range(25)) and apart.min(axis=1).max() <= GRID


def test_o23_noise_and_a_client_without_mixtures_pass_through():
    world = relayed(Blur(multiplier=0.5))
    small = world.sites["client-2"]
    small.index, small.label = small.index[:3], small.label[:3]
    (pool,) = asked(world).each(Mashed)
    assert pool.features.shape == (20, PLACES, WIDTH)
    sizes = {len(data) for data in world.wire if Envelope.decode(data).header.item == UP}
    assert len(sizes) == 1  # nobody is told by its size


def test_o23_nothing_at_all_is_an_empty_pool():
    world = relayed()
    for site in world.sites.values():
        site.index, site.label = site.index[:3], site.label[:3]
    (pool,) = asked(world).each(Mashed)
    assert pool.features.shape == (0, PLACES, WIDTH)


# --- what the relay sees --------------------------------------------------------------------------


def mixtures_on_the_wire(world):
    """Return the bytes of every mixture as they stand in a body, features only."""
    body, layout = world.aggregator._collection.pool, world.aggregator._collection.pool_layout()
    size = layout.parts[0]
    count = int.from_bytes(body[:8], "little")
    return [body[8 + place * size : 8 + (place + 1) * size] for place in range(count)]


def opened_by(world, name, envelope):
    """Return what a party reads of an envelope."""
    info = envelope.header.encode(without_body=True)
    return world.identities[name].opening.open(info, bytes(envelope.body))


def test_o23_the_relay_sees_no_content():
    world = relayed()
    asked(world)
    mixtures = mixtures_on_the_wire(world)
    assert len(mixtures) == 25 and all(any(one) for one in mixtures)
    (request,) = sent(world, BATCH)
    inner = b"".join(opened_by(world, "relay", upload) for upload in sent(world, UP))
    codec: StateCodec = state_codec(world.relay.papers, None, None, world.relay.ledger, bytes(32))
    state = {k: v for k, v in vars(world.relay).items() if k not in ("keeper", "recorder")}
    kept = codec.pack({**state, "last_error": None}) + bytes(world.stores["relay"].lines)
    seen = opened_by(world, "relay", request) + inner + kept
    assert not any(one in seen for one in mixtures)
    size, key = box_bytes(world), world.identities["relay"].opening
    header = sent(world, UP)[0].header
    info = mixture_info(world.papers("relay"), UP, world.where(given=header.given))
    for start in range(0, len(inner), size):
        with pytest.raises(CryptoError):
            key.open(info, inner[start : start + size])
        opened = world.identities["aggregator"].opening.open(info, inner[start : start + size])
        assert opened[:1] in (b"\0", b"\1")  # the control: the reader's key does open it


def test_o23_every_client_has_as_many_boxes_as_large():
    world = relayed()
    world.sites["client-3"].index = world.sites["client-3"].index[:2]
    world.sites["client-3"].label = world.sites["client-3"].label[:2]
    asked(world)
    inner = [opened_by(world, "relay", upload) for upload in sent(world, UP)]
    assert {len(one) for one in inner} == {world.plan.dims["mixtures"] * box_bytes(world)}
    layout = world.aggregator._collection.pool_layout()
    assert box_bytes(world) == 1 + sum(layout.parts) + SEAL_OVERHEAD


# --- what the aggregator sees ---------------------------------------------------------------------


def test_o23_the_aggregator_cannot_open_what_a_client_sent():
    world = relayed()
    asked(world)
    for upload in sent(world, UP):
        with pytest.raises(CryptoError):
            opened_by(world, "aggregator", upload)
        assert upload.header.key == world.roster.party("relay").seal.key_id
    (pool,) = sent(world, POOL)
    uploads = b"".join(bytes(upload.body) for upload in sent(world, UP))
    boxes, size = opened_by(world, "aggregator", pool), box_bytes(world)
    assert not any(boxes[s : s + size] in uploads for s in range(0, len(boxes), size))


def test_o23_nothing_around_a_box_names_its_sender(monkeypatch):
    told = []

    def spy(body, layout, key, info):
        told.append((key, info))
        return mix_boxes.into_boxes(body, layout, key, info)

    monkeypatch.setattr(gateway, "into_boxes", spy)
    world = relayed()
    asked(world)
    assert len(told) == 5 and len(set(told)) == 1
    ((key, info),) = set(told)
    assert key == world.roster.party("aggregator").seal
    assert not any(name.encode() in info for name in world.names)


def test_o23_the_order_is_another_in_every_round_and_every_order_as_likely():
    found = Counter(tuple(shuffled([b"a", b"b", b"c", b"d"])) for _ in range(4800))
    assert set(found) == set(itertools.permutations([b"a", b"b", b"c", b"d"]))
    assert min(found.values()) > 120 and max(found.values()) < 290  # 200 each, 14 is one sigma
    world, orders = relayed(), []
    for number in (1, 2):
        (pool,) = asked(world, number).each(Mashed)
        wanted = np.concatenate([by_hand(world.sites[n], groups(world, n))[0] for n in world.names])
        apart = np.abs(pool.features[:, None] - wanted[None]).max(axis=(2, 3))
        orders.append(tuple(apart.argmin(axis=1)))
    assert orders[0] != orders[1] and sorted(orders[0]) == sorted(orders[1])


def test_o23_a_box_of_elsewhere_does_not_open():
    world = relayed()
    asked(world)
    papers, key = world.papers("aggregator"), world.identities["aggregator"].opening
    where = world.where(given=sent(world, UP)[0].header.given)
    inner = opened_by(world, "relay", sent(world, UP)[0])[: box_bytes(world)]
    assert key.open(mixture_info(papers, UP, where), inner)
    for other in (
        replace(where, exchange=2),
        replace(where, round=2),
        replace(where, attempt=2),
        replace(where, members=world.names[:4]),
        replace(where, given="ab" * 32),
    ):
        with pytest.raises(CryptoError):
            key.open(mixture_info(papers, UP, other), inner)
    with pytest.raises(CryptoError):
        key.open(mixture_info(papers, "other.up.MIXED", where), inner)


# --- an aggregator that lies ----------------------------------------------------------------------


def test_o23_a_cohort_below_the_minimum_is_held():
    world = relayed()
    answers(world)
    assert world.plan.smallest_cohort == 4
    refuses(world, batch(world, sent(world, UP)[:3]), "too small")
    control = relayed()
    answers(control)
    (pool,) = control.relay.receive(batch(control, sent(control, UP)[:4]))
    assert Envelope.decode(pool.data).header.item == POOL


def test_o23_each_exchange_is_relayed_once():
    world = relayed()
    answers(world)
    first = batch(world)
    once, again = world.relay.receive(first), world.relay.receive(first)
    assert once == again and world.kinds("relay").count("relay") == 1  # the very same answer
    with pytest.raises(Replay):  # an envelope of one exchange is taken once, whatever is in it
        world.relay.receive(batch(world, sent(world, UP)[:4]))
    world.relay._inbox._seen.clear()
    assert refuses(world, batch(world, sent(world, UP)[:4]), "already relayed") is Replay


def test_o23_two_overlapping_cohorts_of_one_round_are_never_told_apart():
    """Their difference is one client's mixtures: each exchange alone is honest."""
    form = Form("mash", lambda *_: None, (Exchange("mash", (Go,), (Mashed,), mash, per_round=2),))
    world = relayed(form=form)
    asked(world)
    with world_without(world, "client-5"), pytest.raises(RoundLost, match="survivors are fixed"):
        asked(world)
    members = world.names[:4]
    other = relayed(form=form)
    asked(other)
    parcels = other.aggregator.ask(Ask(Cohort(members), Go(step=1), (Mashed,)), 1)
    uploads = [Envelope.decode(other.deliver(parcel)[0].data) for parcel in parcels]
    refuses(other, batch(other, uploads, members, exchange=2), "overlapping")


class world_without:
    """Lose everything from and to a client."""

    def __init__(self, world, client):
        self.world, self.client = world, client

    def __enter__(self):
        self.world.lost = lambda item, sender, to: self.client in (sender, to)

    def __exit__(self, *_):
        self.world.lost = lambda *_: False


def test_o23_a_batch_of_other_bodies_or_clients_is_refused():
    def fresh():
        world = relayed()
        answers(world)
        return world, sent(world, UP)

    world, uploads = fresh()
    swapped = [replace_body(uploads[0], uploads[1]), *uploads[1:]]
    refuses(world, batch(world, swapped), "another body")
    world, uploads = fresh()
    refuses(world, batch(world, [*uploads[:4], uploads[0]]), "there twice")
    world, uploads = fresh()
    refuses(world, batch(world, uploads[:4], members=world.names[:4]), "cohort")
    world, uploads = fresh()
    refuses(world, batch(world, said=world.names[:4]), "cohort is not the one")
    world, uploads = fresh()
    refuses(world, batch(world, given="ab" * 32), "given the same model")
    world, uploads = fresh()
    refuses(world, batch(world, exchange=2), "another place")
    world, uploads = fresh()
    asked_for = [Envelope.decode(p.data) for p in answers(relayed())]
    refuses(world, batch(world, asked_for), "not signed by who")


def replace_body(one, other):
    return Envelope(one.header, one.signature, other.body)


def test_o23_a_client_that_was_given_another_model_is_no_part_of_a_pool():
    """A model crafted for one client would mark its mixtures (O8)."""
    world = relayed()
    world.prepare(1)
    data = world.evil_ask("client-1", give=Go(step=7), exchange=1)
    (odd,) = world.clients["client-1"].receive(data)
    rest = [world.deliver(p)[0] for p in world.ask(1, Go(step=1), (Mashed,)) if p.to != "client-1"]
    uploads = [Envelope.decode(parcel.data) for parcel in (odd, *rest)]
    refuses(world, batch(world, uploads, given=uploads[1].header.given), "given the same model")


# --- clients that lie -----------------------------------------------------------------------------


def test_o23_unequal_counts_never_reach_the_relay():
    for more in (-1, 1):
        world = relayed()
        (*rest, last) = answers(world)
        inner = opened_by(world, "relay", Envelope.decode(last.data))
        size = box_bytes(world)
        other = inner[:-size] if more < 0 else inner + inner[:size]
        info = sealed_as(world, last, other)
        for parcel in rest:
            world.aggregator.receive(parcel.data)
        with pytest.raises(BadEnvelope, match=r"size|larger"):
            world.aggregator.receive(info)


def sealed_as(world, parcel, inner):
    """Return a client's envelope with other boxes in it, properly sealed and signed."""
    header, name = Envelope.decode(parcel.data).header, parcel_sender(parcel)
    where = world.where(given=header.given)
    return forged(world, name, inner, where)


def forged(world, name, inner, where):
    relay = world.roster.party("relay").seal
    raw = world.forge(name, UP, "aggregator", b"", where)
    header = Envelope.decode(raw).header
    body = relay.seal(header.encode(without_body=True), inner)
    header = replace(header, body=hashlib.sha256(body).hexdigest())
    signature = world.identities[name].signing.sign("envelope", header.encode())
    return Envelope(header, signature, body).encode()


def parcel_sender(parcel):
    return Envelope.decode(parcel.data).header.sender


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
    for parcel in rest:
        world.aggregator.receive(parcel.data)
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
    monkeypatch.setattr(relay_module, "shuffled", lambda boxes: change(shuffled(boxes)))
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
        info = mixture_info(world.papers("relay"), UP, where)
        content = bytes(box_bytes(world) - SEAL_OVERHEAD)
        return [*boxes, world.roster.party("aggregator").seal.seal(info, content)]

    monkeypatch.setattr(relay_module, "shuffled", more)
    with world_without(world, "client-5"), pytest.raises(BadEnvelope, match="another number"):
        asked(world)


def test_o23_control_a_relay_replaces_boxes_one_for_one_unnoticed(monkeypatch):
    """What bounds it: it does not know what it takes away, and the number stays."""
    world = relayed()
    made = []

    def replacing(boxes):
        where = world.where(given=sent(world, UP)[0].header.given)
        info = mixture_info(world.papers("relay"), UP, where)
        layout = world.aggregator._collection.pool_layout()
        content = b"\1" + b"\x11\x22" * (sum(layout.parts) // 2)
        made.append(world.roster.party("aggregator").seal.seal(info, content))
        return [*made, *boxes[1:]]

    monkeypatch.setattr(relay_module, "shuffled", lambda boxes: replacing(shuffled(boxes)))
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
        info = mixture_info(world.papers("relay"), UP, where)
        content = flag + rest * ((box_bytes(world) - SEAL_OVERHEAD - 1) // 2)
        return [world.roster.party("aggregator").seal.seal(info, content), *boxes[1:]]

    monkeypatch.setattr(relay_module, "shuffled", replacing)
    with pytest.raises(BadEnvelope, match=why):
        asked(world)


def test_a_pool_that_nobody_asked_for_is_refused():
    world = relayed()
    (request,) = world.pump(world.ask(1, Go(step=1), (Mashed,)), until=".relay.MIXED")
    (pool,) = world.deliver(request)
    world.aggregator.state = State.ASKED
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

    whole = relay_module.RelaySession._boxes
    monkeypatch.setattr(relay_module.RelaySession, "_boxes", dies)
    with pytest.raises(Kill):
        world.relay.receive(request.data)
    assert world.kinds("relay")[-1] == "relay"  # recorded before anything was opened
    monkeypatch.setattr(relay_module.RelaySession, "_boxes", whole)
    world.kill("relay")
    with pytest.raises(Replay):
        world.relay.receive(batch(world, sent(world, UP)[:4]))
    (pool,) = world.relay.receive(request.data)
    world.aggregator.receive(pool.data)
    assert world.aggregator.advance() == []
    assert len(world.aggregator.reply().each(Mashed)[0].features) == 25
    assert world.kinds("relay").count("relay") == 1


# --- policy, plan, roster -------------------------------------------------------------------------

CLIP, MIX = Clip(norm="l2", bound=1.0), Mix()


def test_o23_a_relay_stands_after_the_mixing_and_for_nothing_else():
    check_chain(Disclosure.MIXED, (CLIP, MIX, Relay(), Seal()))
    check_chain(Disclosure.MIXED, (CLIP, MIX, Blur(multiplier=1.0), Relay(), Seal()))
    for wrong in ((CLIP, Relay(), Seal()), (CLIP, MIX, Relay()), (Relay(), Seal()), (Relay(),)):
        with pytest.raises(ValueError):
            check_chain(Disclosure.MIXED, wrong)
    with pytest.raises(ValueError):
        check_chain(Disclosure.MIXED, (CLIP, MIX, Relay(), Relay(), Seal()))
    for other in set(Disclosure) - {Disclosure.MIXED}:
        with pytest.raises(ValueError):
            check_chain(other, (CLIP, MIX, Relay(), Seal()))
    with pytest.raises(ValidationError):
        Relay(floor=3)


def test_the_preset_is_pilot_with_a_relay():
    one, other = PRESETS["shuffled"].document(), PRESETS["pilot"].document()
    chain = one["rules"].pop("MIXED")
    assert [g for g in chain if g["guard"] != "relay"] == other["rules"].pop("MIXED")
    assert {**one, "name": ""} == {**other, "name": ""} and len(chain) == 4


def test_o23_the_plan_says_what_a_relay_does_not_hide_and_credits_nothing():
    plan = mixing_plan(mixing_policy(chain(Relay())))
    assert RELAYED.format(UP) in plan.warnings
    assert "content still hints" in RELAYED and "Nothing is credited" in RELAYED
    assert "together know all senders" in RELAYED
    assert "epsilon = infinity" in plan.budget and "amplif" not in plan.text().lower()
    assert plan.item(UP).learns["relay"] == plan.item(BATCH).learns["relay"]
    assert "content still hints at senders" in plan.item(UP).learns["aggregator"]
    bare = mixing_plan(mixing_policy(chain()))
    assert not any("relay" in item.id or "relay" in item.learns for item in bare.items)
    assert not any("relay" in warning for warning in bare.warnings)


def test_o23_a_run_with_a_relay_needs_one_and_only_one():
    world = relayed()
    people = [i for n, i in world.identities.items() if n != "relay"]
    roster = Roster(i.party for i in people)
    with pytest.raises(NotInPlan, match="no relay"):
        Papers(people[0], roster, world.plan, world.policy, world.run)
    second = Identity.generate("relay-2", Role.RELAY)
    with pytest.raises(BadEnvelope, match="one relay"):
        Roster([*(i.party for i in world.identities.values()), second.party])
