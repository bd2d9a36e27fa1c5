"""O23: a relay takes the senders off mixtures, and sees none of them; an aggregator that lies."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from pydantic import ValidationError

from crypto.errors import CryptoError
from crypto.hpke import SEAL_OVERHEAD
from protocols.disclosures._relayed.boxes import box_info, shuffled
from protocols.disclosures.mixed import disclosure as protect
from protocols.disclosures.mixed import layout as mix_boxes
from protocols.disclosures.mixed.disclosure import RELAYED, Mixtures
from protocols.disclosures.mixed.guards import Blur, Mix
from protocols.disclosures.names import Disclosure
from protocols.errors import (
    BadEnvelope,
    NotInPlan,
    Replay,
    RoundLost,
)
from protocols.forms import Exchange, Form
from protocols.policy.admission import check_chain
from protocols.policy.guards import Clip, Relay, Seal
from protocols.policy.policy import PRESETS
from protocols.rounds import Ask, Cohort
from protocols.sessions.store.codec import StateCodec
from protocols.sessions.store.state_keeper import state_codec
from protocols.wire.envelope import Envelope
from protocols.wire.roles import Role
from protocols.wire.roster import Identity, Roster
from protocols.wire.run_context import RunContext
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
from tests.protocols.relayed import (
    BATCH,
    POOL,
    UP,
    answers,
    batch,
    box_bytes,
    opened_by,
    refuses,
    relayed,
    sent,
    world_without,
)

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
        other.clients[name]._gateway._own["MIXED"] = one.clients[name]._gateway._own["MIXED"]
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
    (body,), layout = (
        world.aggregator.asked.answers.of(Disclosure.MIXED, Mixtures).pool,
        world.aggregator.asked.answers.of(Disclosure.MIXED, Mixtures).pool_layout(),
    )
    size = layout.parts[0]
    count = int.from_bytes(body[:8], "little")
    return [body[8 + place * size : 8 + (place + 1) * size] for place in range(count)]


def test_o23_the_relay_sees_no_content():
    world = relayed()
    asked(world)
    mixtures = mixtures_on_the_wire(world)
    assert len(mixtures) == 25 and all(any(one) for one in mixtures)
    (request,) = sent(world, BATCH)
    inner = b"".join(opened_by(world, "relay", upload) for upload in sent(world, UP))
    codec: StateCodec = state_codec(world.relay.context, None, None, world.relay.ledger, bytes(32))
    kept = codec.pack(world.relay.kept()) + bytes(world.stores["relay"].lines)
    seen = opened_by(world, "relay", request) + inner + kept
    assert not any(one in seen for one in mixtures)
    size, key = box_bytes(world), world.identities["relay"].opening
    header = sent(world, UP)[0].header
    info = box_info(world.context("relay"), UP, world.where(given=header.given))
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
    layout = world.aggregator.asked.answers.of(Disclosure.MIXED, Mixtures).pool_layout()
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

    monkeypatch.setattr(protect, "into_boxes", spy)
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
    context, key = world.context("aggregator"), world.identities["aggregator"].opening
    where = world.where(given=sent(world, UP)[0].header.given)
    inner = opened_by(world, "relay", sent(world, UP)[0])[: box_bytes(world)]
    assert key.open(box_info(context, UP, where), inner)
    for other in (
        replace(where, exchange=2),
        replace(where, round=2),
        replace(where, attempt=2),
        replace(where, members=world.names[:4]),
        replace(where, given="ab" * 32),
    ):
        with pytest.raises(CryptoError):
            key.open(box_info(context, UP, other), inner)
    with pytest.raises(CryptoError):
        key.open(box_info(context, "other.up.MIXED", where), inner)


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
    deliveries = other.aggregator.ask(Ask(Cohort(members), Go(step=1), (Mashed,)), 1)
    uploads = [Envelope.decode(other.deliver(delivery)[0].data) for delivery in deliveries]
    refuses(other, batch(other, uploads, members, exchange=2), "overlapping")


def test_o23_who_vanished_from_a_batch_is_in_no_other_of_its_round():
    world = relayed()
    part, up, names = world.relay.batches, world.plan.item(UP), world.names

    def once(exchange, members, survivors):
        where = world.where(members, exchange=exchange)
        cohort = world.context("relay").cohort(where)
        header = SimpleNamespace(round=1, exchange=exchange, cohort=cohort)
        part._once(header, up, members, survivors)

    once(1, names[:3], names[:2])
    once(2, names[3:], names[3:])  # who was never asked may follow
    with pytest.raises(BadEnvelope, match="vanished and came back"):
        once(3, names[2:], names[2:3])
    assert len(part._relayed[1]) == 2


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
    uploads = [Envelope.decode(delivery.data) for delivery in (odd, *rest)]
    refuses(world, batch(world, uploads, given=uploads[1].header.given), "given the same model")


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
    with pytest.raises(NotInPlan, match="0 parties in role relay"):
        RunContext(people[0], roster, world.plan, world.policy, world.run)
    second = Identity.generate("relay-2", Role.RELAY)
    with pytest.raises(BadEnvelope, match="at most 1 parties in role relay"):
        Roster([*(i.party for i in world.identities.values()), second.party])
