"""O7: a survivor list, and the votes for it, open the one sum they were made for, and no other.

Each attack is run to the end: a true list that everybody voted for, used for another slot.
"""

from __future__ import annotations

from copy import copy
from dataclasses import replace

import numpy as np
import pytest

from protocols.disclosures.sum import consistency as vote_texts
from protocols.disclosures.sum.messages import Survivors, Vote
from protocols.disclosures.sum.parties import ShareHolding
from protocols.errors import BadEnvelope, Replay
from protocols.forms import Exchange, Form
from protocols.keys.groups import slot_of
from protocols.keys.pairs import Pairs
from protocols.sessions.part import State
from protocols.wire.codec import encode
from protocols.wire.control import Call
from protocols.wire.roles import Role
from protocols.wire.roster import Identity, Roster, given_digest
from tests.protocols.toys import Seed, Start, Update, changed_policy, sow, train
from tests.protocols.unveiling import (
    ITEM,
    Haul,
    NotEnough,
    certify,
    evidence,
    evidence_for,
    is_sum_of,
    show,
    tell,
    unveil,
)
from tests.protocols.wire import World, refused, unplaced, where_of

OUTSIDE = Exchange("train", (Start,), (Update,), train, per_round=0, outside=2)
TWO = Form("two", lambda *_: None, (OUTSIDE, Exchange("sow", (Seed,), (Update,), sow)))
ONE = Form("one", lambda *_: None, (OUTSIDE,))


def asked(world, names, members, round, exchange):
    """Ask some clients of a cohort for `train`; return their uploads."""
    found = Haul(slot_of(world.plan.item(ITEM), round, 0))
    for name in names:
        ask = world.evil_ask(name, members, round=round, exchange=exchange)
        (upload,) = world.clients[name].receive(ask)
        if refused([upload]):
            found.refused.add(name)
            continue
        found.where[name] = replace(where_of(upload.data, members), slot=0)
        found.bodies[name] = world.aggregator._inbox.open(upload.data).body
        found.evidence[name] = evidence(upload.data)
    return found


# --- votes of one epoch, kept for the next --------------------------------------------------------


def stale_votes(world):
    """Let everybody vote for a true list; show the votes when the next epoch's keys are here."""
    names = world.names
    listed = (names[0], *names[4:7])
    first = asked(world, listed, names, 1, 1)
    place, votes = first.where[listed[0]], {}
    for name in names:
        message = Survivors(
            members=world.roster.mask(names),
            survivors=world.roster.mask(listed),
            slot=0,
            evidence=evidence_for(world, first, name),
        )
        votes[name] = tell(world, "survivors", name, message, place, Vote).signature
    world.aggregator.exchanges.number = 5
    world.prepare(2)
    found = asked(world, names[:4], names[:4], 2, 6)
    for name in names:
        if world.clients[name].state is not State.DEAD:
            with pytest.raises(Replay):  # the votes are late, and turned down unread
                certify(world, found, name, votes, place, frozenset(listed))
            unplaced(world.clients[name])
        certify(world, found, name, votes, place, frozenset(listed))
    return found


def epochs_of_one_round():
    return World(ONE, changed_policy("masks", rekey_rounds=1), clients=10, rounds=2).start()


def test_o7_votes_of_one_epoch_open_nothing_in_the_next():
    world = epochs_of_one_round()
    found = stale_votes(world)
    assert not found.given and found.refused == set(world.names)
    with pytest.raises(NotEnough):
        unveil(world, found, world.names[:1])


# --- a list under another item's name -------------------------------------------------------------


def sow_ask(world, name):
    """Return an Ask for the other sum, over the cohort of all."""
    heads, place = world.silence(name)
    mask = world.roster.mask(world.names)
    call, given = Call(members=mask, slot=0, nonce=bytes(16), heads=heads), Seed(seed=1)
    digest = given_digest([call, given], world.plan.dims)
    where = world.where(round=1, exchange=1, given=digest)
    body = encode([call, place, given], world.plan.dims)
    return world.forge("aggregator", "sow.down", name, body, where), where


def under_another_name(world):
    """Show the true list of `sow` as one of `train`; then ask four clients for `train`."""
    names = world.names
    listed, early = (names[0], *names[4:7]), Haul(slot_of(world.plan.item(ITEM), 1, 0))
    for name in listed:
        data, place = sow_ask(world, name)
        (upload,) = world.clients[name].receive(data)
        assert not refused([upload])
        early.evidence[name] = evidence(upload.data)
    show(world, early, lambda _: listed, place)
    alive = [name for name in names[:4] if world.clients[name].context.pairs is not None]
    found = asked(world, alive, names[:4], 2, 2)
    found.told, found.given = early.told, early.given
    return early, found


@pytest.mark.parametrize("clients", [7, 10])
def test_o7_a_list_under_another_items_name_is_served_by_nobody(clients):
    world = World(TWO, "masks", clients=clients).start()
    early, _ = under_another_name(world)
    assert not early.votes and early.refused == set(world.names)
    for name, client in world.clients.items():
        assert isinstance(client.last_error, BadEnvelope)
        sent = name in early.evidence
        assert ("did not send" if sent else "did not upload") in client.last_error.what


def test_o7_control_without_names_and_evidence_it_reads_one_upload(monkeypatch):
    monkeypatch.setattr(ShareHolding, "_check_evidence", lambda *_: None)
    monkeypatch.setattr(ShareHolding, "_check_list", lambda *_: None)
    real = Pairs.keys
    monkeypatch.setattr(  # nor is a slot dead once its shares were given
        Pairs, "keys", lambda self, *facts: (self._given.clear(), real(self, *facts))[1]
    )
    world = World(TWO, "masks", clients=10).start()
    _, found = under_another_name(world)
    assert is_sum_of(world, unveil(world, found, world.names[:1]), world.names[:1])


def voted(world, found, holder, listed):
    """Show one holder a list, and no votes; tell whether it voted."""
    where = next(iter(found.where.values()))
    message = Survivors(
        members=world.roster.mask(where.members),
        survivors=world.roster.mask(listed),
        slot=0,
        evidence=evidence_for(world, found, holder),
    )
    return tell(world, "survivors", holder, message, where, Vote) is not None


# --- what was found true once -------------------------------------------------------------------


def with_other_keys(context, name):
    """Return the context with another party under one client's name."""
    parties = [context.roster.party(p["name"]) for p in context.roster.document()]
    other = Identity.generate(name, Role.CLIENT).party
    changed = copy(context)
    changed.roster = Roster(other if party.name == name else party for party in parties)
    return changed


def test_o7_evidence_found_true_is_believed_of_this_client_sum_and_roster_only():
    world = World(ONE, "masks", clients=10).start()
    names = world.names[:4]
    found = asked(world, names, names, 1, 1)
    context, where = world.clients[names[0]].context, found.where[names[0]]
    rows = np.frombuffer(b"".join(found.evidence[n] for n in names), np.uint8).reshape(4, -1)
    pairs = context.pairs.agreement(found.slot)

    def check(context=context, where=where, owners=names, rows=rows, pairs=pairs):
        vote_texts.check_evidence(context, "train", where, pairs, owners, rows)

    check()
    check()
    wrong = rows.copy()
    wrong[2, 143] ^= 1
    for other in (
        {"owners": (names[1], names[0], *names[2:])},
        {"where": replace(where, exchange=2)},
        {"pairs": "0" * 64},
        {"rows": wrong},
        {"context": with_other_keys(context, names[3])},
    ):
        for _ in range(2):  # what is false is not remembered either
            with pytest.raises(BadEnvelope):
                check(**other)
    check()


def test_o7_votes_found_true_are_believed_of_this_client_list_and_roster_only():
    world = World(ONE, "masks", clients=10).start()
    names, context = world.names, world.clients[world.names[0]].context
    signed = {n: world.clients[n].context.me.signing.sign("survivors", b"list") for n in names[:6]}
    rows = [signed.get(name, bytes(64)) for name in names]
    table = np.frombuffer(b"".join(rows), np.uint8).reshape(-1, 64)
    for _ in range(2):
        assert vote_texts.check_votes(context, b"list", names, table) == set(signed)
    assert vote_texts.check_votes(context, b"list", names, table[:4]) == set(
        names[:4]
    )  # no row: none
    wrong = table.copy()
    wrong[5, 63] ^= 1
    for facts in (
        (context, b"other list", names, table),
        (context, b"list", (names[1], names[0], *names[2:]), table),
        (context, b"list", names, wrong),
        (with_other_keys(context, names[5]), b"list", names, table),
    ):
        for _ in range(2):
            with pytest.raises(BadEnvelope):
                vote_texts.check_votes(*facts)


# --- lists of one slot ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after", "contradicts"),
    [
        (slice(0, 4), slice(4, 8), False),
        (slice(0, 4), slice(2, 8), True),  # two that were counted are missing
        (slice(0, 6), slice(4, 8), True),  # two that were missing are counted
    ],
)
def test_o5_lists_of_one_slot_do_not_contradict_each_other_across_rounds(
    before, after, contradicts
):
    """What lies outside the rounds is of one slot in every round of the epoch."""
    world = World(ONE, "masks", clients=9, rounds=2).start()
    names, outsider = world.names, world.names[8]
    first = asked(world, names[:4], names[before], 1, 1)
    assert voted(world, first, outsider, names[:4])
    second = asked(world, names[4:8], names[after], 2, 2)
    assert voted(world, second, outsider, names[4:8]) is not contradicts


def test_o7_a_slot_whose_shares_were_given_takes_no_upload():
    world = World(ONE, "masks", rounds=2).start()
    pairs = world.clients[world.names[0]].context.pairs
    pairs.give(slot_of(world.plan.item(ITEM), 1, 0), world.names, world.names)
    assert refused(world.clients[world.names[0]].receive(world.evil_ask(world.names[0])))


def test_a_vote_text_is_of_one_list_of_one_sum_under_one_agreement():
    world = World(policy="masks")
    context, where = world.context("client-1"), world.where()
    first = vote_texts.vote_text_of(context, "train", where, world.names, "0" * 64)
    others = [
        vote_texts.vote_text_of(context, "sow", where, world.names, "0" * 64),
        vote_texts.vote_text_of(context, "train", where, world.names[:4], "0" * 64),
        vote_texts.vote_text_of(context, "train", where, world.names, "1" * 64),
        *(
            vote_texts.vote_text_of(
                context, "train", replace(where, **change), world.names, "0" * 64
            )
            for change in (
                {"round": 2},
                {"exchange": 2},
                {"attempt": 2},
                {"slot": 1},
                {"given": "ab" * 32},
                {"members": world.names[:4]},
            )
        ),
    ]
    assert len({first, *others}) == 1 + len(others)
