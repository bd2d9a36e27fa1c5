"""Cohorts drawn by lot (ADR 0045): how they are cut, how large they are, and who may be asked."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from unittest.mock import patch

import numpy as np
import pytest

from crypto.graph import most_in_any, partition
from protocols.errors import BadEnvelope, PolicyError, RemoteProtocolError, Replay, RoundLost
from protocols.keys.lots import Table, bound_to, column
from protocols.plan.cohorts import DrawnPlan, drawn_cohorts
from protocols.plan.steps import Step
from protocols.policy.policy import PrivacyPolicy
from protocols.sessions.engine import Delivery
from protocols.sessions.part import State
from protocols.wire.control import DrawCommits, DrawLot, PairCall
from protocols.wire.envelope import Envelope, Where
from protocols.wire.roster import AGGREGATOR_NAME, run_id
from tests.protocols.toys import TRAIN, Update, changed_policy, names_of, toy_plan
from tests.protocols.wire import World, refused

DRAWN = replace(TRAIN, drawn=5)


def test_a_partition_holds_everybody_once_and_follows_from_its_seed():
    parts = partition(53, 5, b"s" * 32)
    assert sorted(place for part in parts for place in part) == list(range(53))
    assert {len(part) for part in parts} == {10, 11}
    assert parts == partition(53, 5, b"s" * 32) != partition(53, 5, b"t" * 32)


@pytest.mark.parametrize(("clients", "marked", "size"), [(50, 10, 10), (120, 12, 30), (24, 8, 6)])
def test_how_many_colluders_one_of_all_cohorts_may_hold_is_counted_exactly(clients, marked, size):
    parts, ways = clients // size, math.comb(clients, size)

    def above(most: int) -> Fraction:
        hits = range(most + 1, min(marked, size) + 1)
        there = sum(math.comb(marked, m) * math.comb(clients - marked, size - m) for m in hits)
        return parts * Fraction(there, ways)

    for bits in range(1, 41):
        most = most_in_any(clients, marked, size, parts, bits)
        assert above(most) <= Fraction(1, 2**bits) and (not most or above(most - 1) > 2.0**-bits)


def test_a_run_in_clear_draws_its_cohorts_from_the_public_seed():
    world, again = (World(DRAWN, "unsafe_plaintext", clients=12).start() for _ in range(2))
    cohorts = world.aggregator.drawn.cohorts
    assert sorted(map(len, cohorts)) == [6, 6] and cohorts == again.aggregator.drawn.cohorts
    assert {n for cohort in cohorts for n in cohort} == set(world.names)
    for number, members in enumerate((*cohorts, cohorts[0]), start=1):
        assert world.round(number, members=members).total(Update).count == world.count(members)


def test_a_client_refuses_to_answer_with_clients_of_another_cohort():
    world = World(DRAWN, "unsafe_plaintext", clients=12).start()
    first, second = world.aggregator.drawn.cohorts
    mixed = (*first[:5], second[0])
    assert refused(world.clients[first[0]].receive(world.evil_ask(first[0], sorted(mixed))))
    # The control: a form that draws nothing answers the very same Ask.
    world = World(TRAIN, "unsafe_plaintext", clients=12).start()
    assert not refused(world.clients[first[0]].receive(world.evil_ask(first[0], sorted(mixed))))


def test_cohorts_that_could_hold_too_many_colluders_are_refused_with_the_nearest_size():
    policy = changed_policy("masks", colluders=2)
    assert DrawnPlan.of(6, 12, policy).within == 2  # both may fall into one of two
    with pytest.raises(PolicyError, match="asks for 6") as error:
        DrawnPlan.of(5, 50, policy)
    assert error.value.fix == "draw cohorts of 6 clients or more"
    assert DrawnPlan.of(6, 50, policy).least == 6
    many = DrawnPlan.of(128, 943, PrivacyPolicy.preset("masks"))
    assert (many.cohorts, many.smallest, many.largest, many.colluders) == (7, 134, 135, 94)
    assert 13 < many.within < 60 and many.least == 4 + many.within
    names = [f"c{place:02}" for place in range(12)]
    plan = toy_plan(DRAWN, PrivacyPolicy.preset("masks"), clients=names, bfv=None)
    assert plan.smallest_cohort == 4


def masked(policy: str = "masks", clients: int = 12, **facts: int) -> World:
    chosen = changed_policy(policy, rekey_rounds=4, **facts)
    return World(DRAWN, chosen, clients=clients).start()


@pytest.mark.parametrize("policy", ["masks", "he"])
def test_masked_totals_of_drawn_cohorts_equal_those_in_clear(policy):
    world, clear = masked(policy), World(DRAWN, "unsafe_plaintext", clients=12).start()
    cohorts = world.aggregator.drawn.cohorts
    assert all(c.drawn.cohorts == cohorts for c in world.clients.values())
    clear.aggregator.drawn._seed = world.aggregator.drawn._seed
    for client in clear.clients.values():
        client.drawn._seed = world.aggregator.drawn._seed
    for number, members in enumerate((*cohorts, cohorts[0]), start=1):
        found, bare = (w.round(number, members=members).total(Update) for w in (world, clear))
        assert np.array_equal(found.delta, bare.delta) and found.count == bare.count
        asked = [Envelope.decode(data).header for data in world.wire]
        busy = {h.sender for h in asked if h.exchange == number} - {AGGREGATOR_NAME}
        assert busy - {"key-authority"} == set(members)  # nobody else is needed


# --- the draw -----------------------------------------------------------------------------------

MANY, COLLUDERS, SIZE = names_of(24), 8, 6
TRIES = 12_000  # one of 601 seeds is bad; that none of so many is has a chance of 2e-9


def crowd(seed: bytes) -> int:
    """Return how many colluders, the first eight clients, are in the last client's cohort."""
    mine = next(c for c in drawn_cohorts(seed, MANY, len(MANY) // SIZE) if MANY[-1] in c)
    return len({*mine} & {*MANY[:COLLUDERS]})


def bad(seed: bytes) -> bool:
    """Tell whether the last client is in one cohort with colluders alone."""
    return crowd(seed) == SIZE - 1


def ground(seed_of: Callable[[int], bytes]) -> int | None:
    """Return the first of many tries of an aggregator after which the victim stands alone."""
    return next((nonce for nonce in range(TRIES) if bad(seed_of(nonce))), None)


def test_o5_an_aggregator_grinds_a_run_s_name_and_not_what_all_draw_together():
    """What it chooses is fixed before an honest client opens; the control: a public derivation."""
    world = World(TRAIN, "masks", clients=MANY)
    context, roster = world.context(AGGREGATOR_NAME), world.roster

    def by_name(nonce: int) -> bytes:
        name = run_id(nonce.to_bytes(16, "big"), roster, world.plan.digest, world.policy.digest)
        return hashlib.sha256(name.encode()).digest()

    assert (found := ground(by_name)) is not None and bad(by_name(found))

    def together(nonce: int, last: bytes) -> bytes:
        """The seed of a run of which the aggregator chose name, its bytes and the colluders'."""
        context.run = run_id(nonce.to_bytes(16, "big"), roster, "", "")
        chosen = hashlib.sha256(b"%d" % nonce).digest()
        secrets = {name: chosen for name in MANY} | {MANY[-1]: last}
        said = {name: bound_to(context, name, secrets[name]) for name in MANY}
        own = bound_to(context, AGGREGATOR_NAME, chosen)
        return Table(context, own, said).seed(AGGREGATOR_NAME, chosen, secrets)

    guess = bytes(32)
    nonce = ground(lambda nonce: together(nonce, guess))
    assert nonce is not None and bad(together(nonce, guess))
    honest = [hashlib.sha256(b"honest %d" % place).digest() for place in range(8)]
    # One honest client's bytes undo all that grinding: each is as good a lot as any other.
    assert sum(bad(together(nonce, last)) for last in honest) <= 2


def test_o5_leaving_out_who_keeps_its_bytes_back_would_be_a_choice_of_seeds():
    """The control of the rule that a draw ends where somebody who is bound does not open."""
    secrets = {name: hashlib.sha256(name.encode()).digest() for name in MANY}

    def without(nonce: int) -> bytes:
        left = [n for place, n in enumerate(MANY) if not (place < COLLUDERS and nonce >> place & 1)]
        return hashlib.sha256(b"".join(secrets[name] for name in left)).digest()

    found = [crowd(without(nonce)) for nonce in range(1 << COLLUDERS)]
    assert max(found) >= SIZE - 2 > found[0]  # found[0]: all open, as they must


def drawing(policy: str = "masks") -> World:
    return World(DRAWN, changed_policy(policy, rekey_rounds=4), clients=12)


def test_a_client_that_does_not_open_ends_the_draw_and_one_that_is_not_bound_is_out():
    world = drawing()
    world.lost = lambda item, sender, _: (item, sender) == ("draw.lot", world.names[3])
    with pytest.raises(RemoteProtocolError, match="did not open"):
        world.start()
    world = drawing()
    world.lost = lambda item, sender, _: (item, sender) == ("draw.commit", world.names[3])
    first, second = world.start().aggregator.drawn.cohorts
    assert {*first, *second} == {*world.names} - {world.names[3]}
    assert world.round(1, members=first).total(Update).count == world.count(first)


def test_a_client_that_opens_other_bytes_than_it_was_bound_to_is_refused():
    world = drawing()
    opening = world.pump(world.aggregator.start(), until=".commits")
    world.clients[world.names[0]].lots._secret = bytes(32)
    answers = world.deliver(opening[0])
    assert refused(answers)  # it finds that the table does not hold what it would open
    world = drawing()
    (told, *_) = world.pump(world.aggregator.start(), until=".commits")
    world.deliver(told)
    part, twin = world.clients[told.to].lots, world.twin(told.to)
    table = Table(world.context(told.to), part._aggregator, part._table)
    message = DrawLot(secret=b"\1" * 32, signature=table.sign())
    with pytest.raises(BadEnvelope, match="other bytes"):
        world.aggregator.receive(
            twin.release("draw.lot", [message], AGGREGATOR_NAME, Where(0, 0)).encode()
        )


def lied(world: World, change: Callable[[dict[str, bytes]], None]) -> list[bool]:
    """Play the draw up to its end with an aggregator that tells of other bytes; who refuses?"""
    for delivery in world.pump(world.aggregator.start(), until=".commits"):
        for answer in world.deliver(delivery):
            world.aggregator.receive(answer.data)
    with patch.object(Table, "seed", lambda *_: b"s" * 32):
        change(world.aggregator.drawing._opened)
        told = list(world.aggregator.advance())
    return [refused(world.deliver(delivery)) for delivery in told]


def swap(opened: dict[str, bytes]) -> None:
    opened["client-1"] = b"\1" * 32


def test_all_clients_refuse_bytes_that_nobody_was_bound_to():
    assert all(lied(drawing(), swap))
    with patch("protocols.keys.lots.check_bound"):  # the control
        assert not any(lied(drawing(), swap))


def split_tables(world: World) -> list[list[Delivery]]:
    """Return what clients answer to the end of a draw in which two of them saw other tables."""
    told = world.pump(world.aggregator.start(), until=".commits")
    part = world.aggregator.drawing
    said, signed = dict(part._said), dict(part._said_signed)
    part._said.pop(world.names[-1]), part._said_signed.pop(world.names[-1])
    part._awaited = Step.COMMIT
    twin = world.twin(AGGREGATOR_NAME)
    item, where = world.plan.item("draw.commits"), Where(0, 0)
    short = DrawCommits(
        members=world.roster.mask(world.names[:-1]),
        commitments=column(world.roster.clients, part._said, 32),
        signatures=column(world.roster.clients, part._said_signed, 64),
    )
    part._said, part._said_signed, part._awaited = said, signed, Step.LOT
    for delivery in told:
        data = delivery.data
        if delivery.to in world.names[:2]:
            data = twin.release(item.id, [short], delivery.to, where).encode()
        for answer in world.clients[delivery.to].receive(data):
            header = Envelope.decode(answer.data).header
            if header.sender not in world.names[:2]:
                world.aggregator.receive(answer.data)
            else:  # it takes what they opened, although for another table
                found = world.clients[delivery.to].lots
                part._opened[delivery.to] = found._secret
                table = Table(found._context, found._aggregator, found._table)
                part._opened_signed[delivery.to] = table.sign()
    return [world.deliver(delivery) for delivery in list(world.aggregator.advance())]


def test_clients_that_saw_different_tables_do_not_go_on_together():
    assert all(refused(answers) for answers in split_tables(drawing()))
    world = drawing()
    with patch("protocols.keys.lots._verify"):  # the control: halves with cohorts of their own
        assert not any(refused(answers) for answers in split_tables(world))
    assert len({client.drawn._seed for client in world.clients.values()}) == 2


def test_a_client_opens_once_and_for_its_own_table_only():
    world = drawing()
    told = world.pump(world.aggregator.start(), until=".commits")
    (first, *_), client = told, world.clients[told[0].to]
    assert not refused(world.deliver(first))
    message = DrawCommits(
        members=world.roster.mask(world.names),
        commitments=column(world.roster.clients, world.aggregator.drawing._said, 32),
        signatures=column(world.roster.clients, world.aggregator.drawing._said_signed, 64),
    )
    twin, where = world.twin(AGGREGATOR_NAME), Where(0, 0)
    again = twin.release("draw.commits", [message], client.name, where).encode()
    with pytest.raises(Replay):
        client.receive(again)
    assert client.lots._secret and client.state is State.NEW  # nothing more left


def test_nobody_agrees_on_keys_with_others_than_lots_drew():
    for whole in (True, False):
        world = drawing()
        (call, *_) = world.pump(world.aggregator.start(), until="pair.call")
        client = world.clients[call.to]
        mine = client.drawn.of(call.to)
        rest = [name for name in world.names if name not in mine]
        wrong = world.names if whole else [name for name in (*mine, rest[0]) if name != mine[-1]]
        message = PairCall(members=world.roster.mask(wrong))
        twin = world.twin(AGGREGATOR_NAME)
        data = twin.release("pair.call", [message], call.to, Where(0, 0)).encode()
        assert refused(client.receive(data))


def test_whoever_vanishes_is_not_replaced_and_a_cohort_that_is_too_small_waits():
    world = masked()
    first, second = world.aggregator.drawn.cohorts
    world.lost = lambda item, sender, _: (item, sender) == ("train.up.SUM", first[0])
    assert world.round(1, members=first).total(Update).count == world.count(first[1:])
    world = drawing()
    away = set(names_of(0))
    world.lost = lambda item, sender, _: item == "pair.boxes" and sender in away
    told = world.pump(world.aggregator.start(), until="pair.call")
    first, second = world.aggregator.drawn.cohorts
    away |= set(first[:3])  # three of six are left, and four are needed
    world.pump(told)
    with pytest.raises(RoundLost):
        world.ask(1, members=first)
    assert world.round(2, members=second).total(Update).count == world.count(second)


@pytest.mark.parametrize("kept", [0, 3, 5])
def test_a_masked_sum_is_not_asked_of_parts_of_two_cohorts_or_of_too_few(kept):
    world = masked()
    mine, others = world.aggregator.drawn.cohorts
    members = {0: world.names, 3: mine[:3], 5: sorted((*mine[:5], others[0]))}[kept]
    assert refused(world.clients[mine[0]].receive(world.evil_ask(mine[0], members)))
