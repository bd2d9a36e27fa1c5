"""O5 for what is computed on ciphertexts: all that one Ask brought is over the same clients."""

from __future__ import annotations

import numpy as np
import pytest

from crypto.homomorphic.weighted import flatten
from protocols.disclosures.names import Disclosure
from protocols.disclosures.weighted_sum.disclosure import Mixture
from protocols.errors import BadEnvelope, Refused
from protocols.sessions.survivors import Openings
from protocols.wire.envelope import Header
from tests.protocols.pub import COUNTED, Model, Portrait, Size, even, hand_out, pub, trained


def less_one(world) -> None:
    """Open the cosines over all six, then let rows be over five: client 6 'vanished'."""
    trained(world)
    kept = world.aggregator.rows._uploads
    del kept.uploads["client-6"]
    done = flatten(even(5), 3)
    mixture = Mixture(Model, kept.where.exchange, done.table, done.flattened)
    hand_out(world, mixture, members=world.names[:5])


def opened(world) -> list[tuple[str, int]]:
    entries = world.entries("key-authority")
    return [(e.get("disclosure", "SUM"), e["survivors"]) for e in entries if e["kind"] == "open"]


def test_o5_rows_over_fewer_than_the_cosines_of_the_same_answers_are_not_opened():
    world = pub()
    with pytest.raises(Refused, match="key-authority refused"):
        less_one(world)
    assert isinstance(world.authority.last_error, BadEnvelope)
    assert "different survivors" in world.authority.last_error.what
    assert opened(world) == [("SIMILARITY", 6)]


def test_o5_control_where_each_kind_is_held_to_itself_alone_both_are_opened(monkeypatch):
    real = Openings.once

    def each_alone(session, header: Header, members, survivors, disclosure, source, digest):
        kept = session.opened
        session.opened = {}
        real(session, header, members, survivors, disclosure, source, digest)
        session.opened = kept

    monkeypatch.setattr(Openings, "once", each_alone)
    world = pub()
    less_one(world)
    assert opened(world) == [("SIMILARITY", 6), ("WEIGHTED_SUM", 5)]


def test_o5_a_total_over_fewer_than_the_cosines_of_the_same_answers_is_not_opened():
    world = pub("he", form=COUNTED)
    trained(world)
    authority = world.authority
    (first, total) = authority.openings.opened[1]
    assert [kind for kind, *_ in (first, total)] == ["SIMILARITY", "SUM"]
    authority.openings.opened[1] = [first]
    header = world.aggregator.asked._collection.where
    facts = Header.__new__(Header)
    object.__setattr__(facts, "round", header.round)
    object.__setattr__(facts, "exchange", header.exchange)
    with pytest.raises(BadEnvelope, match="different survivors"):
        authority.openings.once(facts, tuple(world.names), tuple(world.names[:5]), Disclosure.SUM)


@pytest.mark.parametrize("policy", ["pilot", "he", "masks", "ckks"])
def test_o5_an_honest_round_with_a_client_that_vanished_is_opened_as_before(policy):
    world = pub(policy, form=COUNTED)
    world.lost = lambda item, sender, to: (item, sender) == ("train.up.SIMILARITY", "client-3")
    reply = trained(world)
    assert reply.total(Size).records and reply.similarity(Portrait).shape == (5, 5)
    left = [n for n in world.names if n != "client-3"]
    hand_out(world, reply.weighted(Model, even(5)), members=left)
    assert {count for _, count in opened(world)} == {5}
    assert np.isfinite(world.sites["client-1"].got[-1].weights).all()
