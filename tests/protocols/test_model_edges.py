"""Models at the edges of what clients hold them to: first ones, late ones, and no numbers."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from protocols.disclosures._checked.totals import unpacked, width_of
from protocols.disclosures.released.messages import SharedTotal
from protocols.disclosures.sum.layout import Ring
from protocols.errors import BadEnvelope, Replay
from protocols.forms import Exchange, Form
from protocols.messages import ReleasedMessage, Vector, count, real
from protocols.plan.steps import Service, Step
from protocols.rounds import Ask, Cohort
from protocols.wire.codec import encode
from protocols.wire.control import Call
from protocols.wire.envelope import Where
from protocols.wire.roster import SHARED, given_digest
from tests.protocols.test_models import MOVED, ZERO, asked, played, world_of
from tests.protocols.toys import D, Start, Update, changed_policy
from tests.protocols.wire import World, refused, unplaced

BOUND = changed_policy("he", models="as_sent")


def test_rounds_since_a_client_was_asked_count_as_moves_and_no_more() -> None:
    """It cannot tell a round that was skipped from one that it missed; LIMITATIONS says so."""
    world = world_of(BOUND)
    reach = world.clients[world.names[0]].models._reach
    assert asked(world, 5, Start(weights=ZERO.weights + np.float32(3.99 * reach))) == []
    other = world_of(BOUND)
    far = Start(weights=ZERO.weights + np.float32(4.01 * reach))
    assert asked(other, 5, far) == list(other.names)


class Stepped(ReleasedMessage):
    """A model with a count beside its weights."""

    weights: Vector = real("d", unit="weight", meaning="the toy model", wire="f4")
    step: int = count(unit="round", meaning="rounds so far")


def stepped(state: Stepped, cohort: Cohort) -> Any:
    total = (yield Ask(cohort, given=state, back=Update)).total(Update)
    weights = (state.weights + total.delta / max(total.count, 1)).astype(np.float32)
    return Stepped(weights=weights, step=state.step + 1)


FIRST = Stepped(weights=np.zeros(D, np.float32), step=0)


def test_the_first_bounded_model_is_the_plans_in_its_counts_too() -> None:
    def train(site: Any, given: Any) -> Update:
        site.asked += 1
        return Update(delta=site.delta, count=site.count)

    form = Form("train", stepped, (Exchange("train", (Stepped,), (Update,), train),))
    form = replace(form.moved_by_totals(reach=1.0), start=FIRST)
    world = World(form, BOUND, rounds=5).start()
    assert asked(world, 1, Stepped(weights=FIRST.weights, step=2**63)) == list(world.names)
    honest = World(form, BOUND, rounds=5).start()
    assert asked(honest, 1, FIRST) == []


@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
def test_what_is_not_finite_is_within_nothing(bad: float) -> None:
    """Who holds the common key might make a total that divides to it."""
    world = world_of("masks")
    models = world.clients[world.names[0]].models
    with pytest.raises(BadEnvelope):
        models._hold(Start(weights=np.full(D, bad, np.float32)), ZERO, models._reach)


def test_after_missed_totals_of_a_round_no_earlier_round_is_answered() -> None:
    world = World(MOVED, changed_policy("masks", colluders=0), clients=10, rounds=5).start()
    half, rest = world.names[:5], world.names[5:]
    later = played(world, played(world, ZERO, 1), 2, members=half)
    totals = world.aggregator.totals
    down = world.context("aggregator").find("", Service.TOTALS, Step.DOWN)
    for number, total in enumerate(totals._totals, 50):  # handed on as if for round 3
        for name in rest:
            if totals._has.get(name, 0) < total.exchange:
                envelope = world.twin("aggregator").release(
                    down.id, [total], name, Where(3, number)
                )
                assert not refused(world.clients[name].receive(envelope.encode()))
    item = world.plan.find("train", Service.ASK, Step.DOWN)
    dims, last = world.context("aggregator").dims(item), totals._totals[-1]
    fields = {field.name: getattr(last, field.name) for field in SharedTotal.fields}
    told = SharedTotal(**{**fields, "model": hashlib.sha256(encode([later], dims)).digest()})
    for name in rest:
        heads, place = world.silence(name)
        call = Call(members=world.roster.mask(rest), slot=0, nonce=bytes(16), heads=heads)
        shared = [message for message in (call, told) if message.disclosure in SHARED]
        where = world.where(rest, given=given_digest(shared, dims), round=2, exchange=99)
        ask = world.forge("aggregator", item.id, name, encode([call, place, told], dims), where)
        with pytest.raises(Replay):  # by its place alone, before anything of it is read
            world.clients[name].receive(ask)
        unplaced(world.clients[name])
        assert refused(world.clients[name].receive(ask))
        assert "before the one whose totals" in str(world.clients[name].last_error)


@pytest.mark.parametrize(
    ("bits", "clients", "margin"),
    [(4, 5, 0), (8, 99, 3), (16, 5, 0), (16, 99, 1000), (32, 99, 2**40), (32, 99, 2**54)],
)
def test_any_bytes_as_a_total_are_its_integers_or_refused(
    bits: int, clients: int, margin: int
) -> None:
    rng = np.random.default_rng(1)
    ring = Ring.of(7, bits, clients, margin=margin, checked=True)
    width, most = width_of(ring), 3 * (2**ring.bits - 1) + margin
    for turn in range(400):
        length = 7 * width if turn % 5 else int(rng.integers(0, 9 * width))
        data = rng.bytes(length)
        if turn % 3 == 0:
            data = bytes(rng.choice([0, 255, 128, 127], length).astype(np.uint8))
        parts = [data[place : place + width] for place in range(0, length, width)]
        wanted = [int.from_bytes(part, "little") - margin for part in parts]
        if length % width or max(wanted, default=0) > most:
            with pytest.raises(BadEnvelope):
                unpacked(data, ring, 3)
        else:
            assert unpacked(data, ring, 3).tolist() == wanted
