"""O6: a mask is bound to one sum, and used for one vector; no snapshot brings it back."""

from __future__ import annotations

import copy
import pickle
from dataclasses import replace

import numpy as np
import pytest

from protocols.errors import LocalProtocolError
from protocols.keys.groups import slot_of
from protocols.keys.pairs import Pairs, pair_key, self_key
from protocols.roles.client import ClientSession
from protocols.sessions.part import State
from protocols.wire.envelope import NONE, Where
from tests.protocols.toys import TWICE, Update
from tests.protocols.unveiling import ITEM, looks_uniform, modulus_of, plain
from tests.protocols.wire import ROUNDING, World, refused, uploads

D = 4000
STEP = 5.0 / (2**15 - 1)


def secrets_of(world):
    """Return every secret of every client's pairs that is still there."""
    found = []
    for client in world.clients.values():
        pairs = client.context.pairs
        found += [*pairs._b.values(), *pairs._e.values(), *pairs._halves.values()]
        found += [secret for row in pairs._pair.values() for secret in row.values()]
    return found


@pytest.fixture
def world():
    return World(TWICE, "masks", d=D).start()


def said(world, value, where):
    """Return what client-1's gateway, asked anew, makes of a vector."""
    message = Update(delta=np.full(D, value), count=1)
    envelope = world.twin(world.names[0]).release(ITEM, [message], "aggregator", where)
    info = envelope.header.encode(without_body=True)
    body = world.identities["aggregator"].opening.open(info, envelope.body)
    return plain(world, body).astype(object)


def test_o6_a_second_vector_in_one_slot_is_refused_whatever_the_gateway_remembers(world):
    said(world, 0.1, world.where())
    for where in (world.where(), world.where(exchange=2), world.where(world.names[:4])):
        with pytest.raises(LocalProtocolError, match="slot"):
            said(world, 0.2, where)
    said(world, 0.2, world.where(exchange=2, slot=1))


def test_o6_control_a_restored_snapshot_is_a_two_time_pad(world):
    pairs = world.clients[world.names[0]].context.pairs
    b, pair = dict(pairs._b), dict(pairs._pair)  # what a snapshot would hold
    first = said(world, 0.1, world.where())
    pairs._b, pairs._pair = b, pair
    second = said(world, 0.2, world.where())
    modulus = modulus_of(world)
    leaked = (second - first) % modulus
    assert not looks_uniform(leaked, modulus)
    assert np.max(np.abs(leaked[:D].astype(float) * STEP - 0.1)) <= 2 * STEP


def test_o6_secrets_of_pairs_cannot_be_put_away(world):
    pairs = world.clients[world.names[0]].context.pairs
    for attempt in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="holds a secret"):
            attempt(pairs)
    assert repr(pairs) == "<Pairs>"
    shown = repr(world.clients[world.names[0]].context)
    assert "Pairs" not in shown and "pairs=<" not in shown


def test_o6_a_new_session_agrees_anew_and_serves_no_sum_before(world):
    old = world.clients[world.names[0]]
    before = set(secrets_of(world))
    new = ClientSession(
        old.context, old.ledger, ROUNDING, site=world.sites[old.name], form=world.form
    )
    assert new.context.pairs is None
    new.state = State.READY
    assert refused(new.receive(world.evil_ask(old.name)))
    fresh = World(TWICE, "masks", d=D, identities=world.identities).start()
    assert not before & set(secrets_of(fresh))  # the same parties, another run


@pytest.mark.parametrize("end", ["close", "die"])
def test_o6_a_session_that_is_over_holds_no_secrets(world, end):
    client = world.clients[world.names[0]]
    client.close() if end == "close" else client.die(RuntimeError())
    assert client.context.pairs is None


def test_o6_what_was_used_is_forgotten(world):
    pairs, slot = world.clients[world.names[0]].context.pairs, slot_of(world.plan.item(ITEM), 1, 0)
    assert not pairs._e and not pairs._halves  # locked away, or joined into secrets
    assert slot in pairs._b and slot in pairs._pair
    world.round(1)
    assert slot not in pairs._b and slot not in pairs._pair
    assert len(pairs._held[slot]) == 5 * 64 and not any(pairs._held[slot])


def test_o6_no_secret_travels_or_is_recorded_in_clear():
    world, seen = World(policy="he"), set()
    real, take = Pairs.boxes, Pairs.take

    def watched(self):
        seen.update(self._halves.values(), self._b.values(), self._e.values())
        return real(self)

    def taken(self, boxes, senders):
        take(self, boxes, senders)
        seen.update(s for row in self._pair.values() for s in row.values())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Pairs, "boxes", watched)
        patch.setattr(Pairs, "take", taken)
        world.start()
    world.round(1)
    assert len(seen) > 5 * (4 + 2 * 3 + 3)
    raw = b"".join([*world.wire, *(store.lines for store in world.stores.values())])
    assert not any(secret in raw or secret.hex().encode() in raw for secret in seen)
    assert world.aggregator.context.pairs is None and world.authority.context.pairs is None


def test_o6_pairs_share_a_secret_and_nobody_else_has_it():
    world = World(policy="masks").start()
    of = {name: client.context.pairs._pair for name, client in world.clients.items()}
    found = set()
    for one in world.names:
        for other in set(world.names) - {one}:
            for slot in of[one]:
                assert of[one][slot][other] == of[other][slot][one]
                found.add(of[one][slot][other])
    assert len(found) == 10 * len(of[world.names[0]])  # one per pair and slot


def test_o6_masks_of_two_sums_are_not_related(world):
    modulus, found = modulus_of(world), []
    for number in (1, 2):
        sent = uploads(world, world.ask(number))
        body = world.aggregator._inbox.open(sent[world.names[0]]).body
        found.append(plain(world, body).astype(object))
        world.aggregator.state = State.READY
    assert looks_uniform((found[1] - found[0]) % modulus, modulus)  # of one and the same vector


PLACES = {
    "round": dict(round=2),
    "attempt": dict(attempt=2),
    "exchange": dict(exchange=2),
    "cohort": dict(members=("client-1", "client-2", "client-3", "client-4")),
    "model (O8)": dict(given="ab" * 32),
}


@pytest.mark.parametrize("name", PLACES)
def test_o6_a_mask_is_bound_to_its_place(name):
    world = World(policy="masks")
    context, where = world.context("client-1"), world.where()
    item = context.item(ITEM)
    label = context.mask_label(item, where, "k", NONE)
    moved = context.mask_label(item, replace(where, **PLACES[name]), "k", NONE)
    assert context.mask_label(item, world.where(), "k", NONE) == label
    for key in (self_key, pair_key):
        assert key(bytes(32), label) != key(bytes(32), moved)


def test_o6_a_mask_is_bound_to_run_plan_key_and_item():
    one, other = World(policy="masks"), World(policy="masks", d=D)
    item = one.plan.item(ITEM)
    labels = {
        one.context("client-1").mask_label(item, Where(1, 1), "k", NONE),
        one.context("client-1").mask_label(item, Where(1, 1), "k", "ab" * 32),
        one.context("client-1").mask_label(item, Where(1, 1), "l", NONE),
        one.context("client-1").mask_label(
            item.model_copy(update={"label": "other"}), Where(1, 1), "k", NONE
        ),
        other.context("client-1").mask_label(item, Where(1, 1), "k", NONE),
    }
    assert len({self_key(bytes(32), label) for label in labels}) == 5
    assert self_key(bytes(32), ("a",)) != pair_key(bytes(32), ("a",))
