"""SEALED boxes: a relay learns their size; it cannot read, swap, replay or forge one."""

import numpy as np
import pytest

from protocols.errors import BadEnvelope, CohortTooSmall, Refused, UnfitMessage
from protocols.keys.pairs import box_bytes, by_peers, close_boxes, open_boxes
from protocols.rounds import Sealed
from protocols.wire.control import Acknowledgement, Boxes
from protocols.wire.roster import Identity
from tests.protocols.toys import GIFTS, Fill, Gift, Update
from tests.protocols.wire import World, where_of


@pytest.fixture
def world():
    return World(GIFTS).start()


def filled(world, round=1, members=None):
    return world.round(round, members=members).handed(Gift)


def hand_out(world, sealed, round=1, members=None):
    world.round(round, given=sealed, back=(), members=members)


def test_each_client_gets_its_own_rows(world):
    hand_out(world, filled(world))
    for j, name in enumerate(world.names):
        (gift,) = world.sites[name].got
        assert gift.row.tolist() == [[100.0 * i + j, -j] for i in range(5)]
        assert gift.tally.dtype == np.uint64
        assert gift.tally.ravel().tolist() == [2**53 + 1 + 10 * i + j for i in range(5)]


def test_absent_senders_give_zero_rows_and_others_stay_exact(world):
    members = world.names[:4]
    hand_out(world, filled(world, members=members), members=members)
    for j, name in enumerate(members):
        (gift,) = world.sites[name].got
        assert gift.row[4].tolist() == [0, 0]
        assert gift.row[:4].tolist() == [[100.0 * i + j, -j] for i in range(4)]
        assert gift.tally.dtype == np.uint64
        assert gift.tally.ravel().tolist() == [2**53 + 1 + 10 * i + j for i in range(4)] + [0]
    assert world.sites["client-5"].got == []


def test_every_box_has_the_same_size_whatever_is_in_it(world):
    sealed = filled(world)
    size = box_bytes(Gift, world.plan.dims)
    assert {len(p) for p in sealed._deliveries.values()} == {5 * size}


def test_the_relay_cannot_read(world):
    sealed = filled(world)
    raw = b"".join([*sealed._deliveries.values(), *world.wire])
    for value in (100.0, 203.0, 401.0):
        assert np.array([value]).tobytes() not in raw
    where = (world.run, 1, "fill.up.SEALED")
    for name in ("aggregator", "client-2"):
        with pytest.raises(BadEnvelope):
            open_boxes(
                Gift, sealed._deliveries["client-1"], world.names, world.identities[name],
                world.roster, world.plan.dims, where,
            )  # fmt: skip


def cut(world, delivery):
    size = box_bytes(Gift, world.plan.dims)
    return [delivery[i : i + size] for i in range(0, len(delivery), size)]


def tampered(world, sealed, how):
    """Return deliveries as a dishonest relay hands them on; client-1 is the victim."""
    deliveries = dict(sealed._deliveries)
    mine, others = cut(world, deliveries["client-1"]), cut(world, deliveries["client-2"])
    if how == "rows of two senders swapped":
        mine[1], mine[2] = mine[2], mine[1]
    elif how == "one sender's box twice":
        mine[1] = mine[2]
    elif how == "another client's boxes":
        mine = others
    elif how == "a box meant for another":
        mine[3] = others[3]
    elif how == "a flipped bit":
        mine[3] = mine[3][:-1] + bytes([mine[3][-1] ^ 1])
    elif how == "a box left out":
        mine[3] = bytes(len(mine[3]))
    elif how == "a box of the relay's own":
        where = (world.run, 1, "fill.up.SEALED")
        own, posed = world.identities["aggregator"], world.identities["client-4"].party
        relay = Identity(posed, own.signing, own.opening)  # it names the sender, but cannot sign
        rows = {"row": np.zeros((5, 2)), "tally": np.zeros((5, 1), np.uint64)}
        forged = close_boxes(Gift(**rows), relay, world.roster, world.plan.dims, where)
        mine[3] = cut(world, forged)[0]
    deliveries["client-1"] = b"".join(mine)
    return Sealed(Gift, deliveries)


@pytest.mark.parametrize(
    "how",
    [
        "rows of two senders swapped",
        "one sender's box twice",
        "another client's boxes",
        "a box meant for another",
        "a flipped bit",
        "a box left out",
        "a box of the relay's own",
    ],
)
def test_a_dishonest_relay_is_found_out(world, how):
    sealed = tampered(world, filled(world), how)
    with pytest.raises(Refused) as caught:
        hand_out(world, sealed)
    assert caught.value.sender == "client-1"
    assert world.sites["client-1"].got == []


def test_the_control_arrives(world):
    hand_out(world, tampered(world, filled(world), "nothing"))
    assert len(world.sites["client-1"].got) == 1


def test_boxes_of_an_earlier_round_are_not_taken_again(world):
    old = filled(world)
    hand_out(world, old)
    with pytest.raises(Refused):  # the relay simply does not ask for new ones
        hand_out(world, old, round=2)
    assert len(world.sites["client-1"].got) == 1


def test_boxes_of_an_earlier_round_do_not_stand_in_for_new_ones(world):
    old = filled(world)
    hand_out(world, old)
    filled(world, round=2)
    with pytest.raises(Refused):
        hand_out(world, old, round=2)
    assert len(world.sites["client-1"].got) == 1


def test_boxes_of_another_run_are_not_taken(world):
    other = World(GIFTS, identities=world.identities).start()
    filled(world)
    with pytest.raises(Refused):
        hand_out(world, filled(other))


def test_boxes_that_nobody_filled_are_not_taken(world):
    size = box_bytes(Gift, world.plan.dims)
    forged = Sealed(Gift, dict.fromkeys(world.names, bytes(5 * size)))
    with pytest.raises(Refused):
        hand_out(world, forged)


def test_a_dishonest_sender_is_found_out_by_its_addressees(world):
    for delivery in world.ask(1):
        for answer in world.deliver(delivery):
            if delivery.to != "client-3":
                world.aggregator.receive(answer.data)
    item = world.plan.item("fill.up.SEALED")
    where = where_of(answer.data, world.names)
    garbage = world.forge("client-3", item.id, "aggregator", b"\x07" * item.body, where)
    world.aggregator.receive(garbage)
    assert world.aggregator.advance() == []
    with pytest.raises(Refused) as caught:
        hand_out(world, world.aggregator.reply().handed(Gift))
    assert caught.value.code == "stage"


def test_a_small_cohort_fills_no_boxes(world):
    with pytest.raises(CohortTooSmall):
        filled(world, members=world.names[:3])


def test_only_clients_messages_are_boxed():
    assert by_peers(Gift)
    for kind in (Boxes, Acknowledgement, Update, Fill):
        assert not by_peers(kind)


@pytest.mark.parametrize("rows", [0, 4, 6])
def test_a_message_without_one_row_per_client_is_unfit(world, rows):
    gift = Gift(row=np.zeros((rows, 2)), tally=np.zeros((rows, 1), np.uint64))
    with pytest.raises(UnfitMessage):
        close_boxes(
            gift, world.identities["client-1"], world.roster, world.plan.dims, ("r", 1, "i")
        )
