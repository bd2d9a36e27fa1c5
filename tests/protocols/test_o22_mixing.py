"""O22 and O15 in the sessions: only mixtures of enough distinct records leave, in fixed groups."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

from protocols.disclosures.mixed import layout as mix_groups
from protocols.disclosures.mixed import mixing
from protocols.disclosures.mixed.disclosure import EachView
from protocols.disclosures.mixed.guards import Mix
from protocols.disclosures.mixed.mixing import Mixer
from protocols.disclosures.names import Disclosure
from protocols.errors import Refused, UnfitMessage
from protocols.messages import SumMessage, Vector, real, unmixed_of
from protocols.wire.codec import encode
from protocols.wire.envelope import Envelope
from tests.protocols.mix import (
    BARE,
    CLASSES,
    FLOOR,
    GRID,
    MEMBERS,
    PLACES,
    WIDTH,
    Mashed,
    asked,
    by_hand,
    chain,
    groups,
    layout,
    mixing_plan,
    mixing_policy,
)
from tests.protocols.mix import mixing as world_of
from tests.protocols.mix_sites import RNG, Site, nothing_left, released


def test_o22_the_aggregator_gets_means_of_distinct_records():
    world = world_of()
    reply = asked(world)
    wanted = [by_hand(world.sites[n], groups(world, n)) for n in world.names]
    found = reply.each(Mashed)
    assert len(found) == 5
    for message in found:
        near = [np.abs(message.features - features).max() for features, _ in wanted]
        features, labels = wanted[int(np.argmin(near))]
        assert message.features.shape == (5, PLACES, WIDTH) == features.shape
        assert np.abs(message.features - features).max() <= GRID
        assert np.abs(message.label - labels).max() <= 1 / 32767
    assert reply.answers == 5
    for verb in ("total", "similarity", "weighted"):
        with pytest.raises(TypeError):
            getattr(reply, verb)(Mashed)


def test_the_order_of_messages_tells_no_sender():
    world = world_of()
    bodies = []
    for name in world.names:
        site = world.sites[name]
        message = Mashed.unmixed(table=site.table, index=site.index, label=site.label)
        bodies.append(Mixer().mixed(message, layout(world), bytes(32))[0])
    orders = {
        b"".join(m.features.tobytes() for m in EachView(turned, layout(world).decode).read("each"))
        for turned in (bodies, bodies[::-1], bodies[2:] + bodies[:2])
    }
    assert len(orders) == 1
    with pytest.raises(TypeError):
        EachView(bodies, layout(world).decode).read("total")


def test_o22_every_mixture_rests_on_the_floor_at_every_position():
    world = world_of(floor=FLOOR)
    asked(world)
    for name in world.names:
        site, group = world.sites[name], groups(world, name)
        for g in range(int(group.max()) + 1):
            members = site.index[group == g]
            assert all(len({*members[:, p]}) >= FLOOR for p in range(PLACES))


# --- what is refused, and the control in which it gets out ----------------------------------------


@pytest.mark.parametrize("members", [0, 1, 2, FLOOR - 1, FLOOR])
def test_o22_a_batch_of_one_or_below_the_floor_never_leaves(members):
    site = Site()
    site.index, site.label = site.index[:members], site.label[:members]
    assert nothing_left(site) is (members < FLOOR)


def test_o22_a_client_that_is_too_small_is_left_out_and_the_run_goes_on():
    world = world_of()
    small = world.sites["client-2"]
    small.index, small.label = small.index[:3], small.label[:3]
    for number in (1, 2):
        found = asked(world, number).each(Mashed)
        assert sorted(len(m.features) for m in found) == [0, 5, 5, 5, 5]
        assert all(m.features.shape[1:] == (PLACES, WIDTH) for m in found)
    (entry,) = [e for e in world.entries("client-2") if e["kind"] == "mix"]
    assert entry["mixtures"] == 0


def test_o22_control_without_a_floor_the_batch_of_one_is_the_record(monkeypatch):
    monkeypatch.setattr(mix_groups, "_hold", lambda *_: True)
    site, how = Site(), chain()
    site.index, site.label = site.index[:1], site.label[:1]
    plan = mixing_plan(mixing_policy(how))
    made = mixing.MixLayout(Mashed, how, plan.dims)
    object.__setattr__(made.mix, "floor", 1)
    body, *_ = Mixer().mixed(site.message(), made, bytes(32))
    found = made.decode(body)
    assert np.abs(found.features[0, 0] - site.table[0]).max() <= GRID
    assert found.label[0, site.label[0]] == 1


def test_o22_a_short_last_batch_is_shared_out_never_sent():
    """FedEgo's code keeps the last batch: 41 centres in fives of 8 leave one alone."""
    site, mixer = Site(41), Mixer()
    found = released(site, mixer)
    assert sorted(np.bincount(mixer._groups)) == [8, 8, 8, 8, 9]
    assert len(found.features) == 5


def test_o22_a_record_may_be_the_centre_once():
    site = Site()
    site.index[1, 0] = site.index[0, 0]
    with pytest.raises(UnfitMessage, match="centre of two members"):
        released(site)


def test_o22_duplicates_under_other_numbers_are_one_record():
    """Forty members, and only as many different records as the floor less one."""
    site = Site()
    few = site.table[: FLOOR - 1]
    site.table = np.repeat(few, 6, axis=0)[:MEMBERS]
    assert nothing_left(site)
    site.table[:, 0] += 1e-9 * np.arange(MEMBERS)  # not the same, but one point of the grid
    assert nothing_left(site)
    site.table = np.concatenate([few, 20 + np.zeros((33, WIDTH))])
    site.table[FLOOR - 1 :] *= np.arange(1, 34)[:, None]  # clipped to one point: a record more
    assert not nothing_left(site)
    site.table[FLOOR - 2] = site.table[0]
    assert nothing_left(site)


def test_o22_a_record_that_stands_often_weighs_once():
    """A hub is the neighbour of nearly all; counted per member it would be most of the mixture."""
    site, mixer = Site(), Mixer()
    hub = site.index[:, 1] % 3 > 0
    site.index[hub, 1] = 0
    found = released(site, mixer)
    group = mixer._groups
    for g in range(len(found.features)):
        stand = sorted({*site.index[group == g, 1]})
        assert len(stand) >= FLOOR
        assert np.abs(found.features[g, 1] - site.table[stand].mean(axis=0)).max() <= GRID
    # Control: the mean over members is nearer to the hub than to anything else.
    plain = site.table[site.index[group == 0, 1]].mean(axis=0)
    assert np.linalg.norm(plain - site.table[0]) < 0.6 * np.linalg.norm(site.table[0])


def test_o22_isolated_nodes_that_repeat_themselves_make_no_crowd():
    """Thirty-nine nodes share one neighbour; it stands alone at the second position."""
    site = Site()
    site.index[:, 1] = 7
    assert nothing_left(site)
    site.index = np.repeat(site.index[:, :1], PLACES, axis=1)  # all isolated
    found = released(site)
    assert np.abs(found.features - found.features[:, :1]).max() <= GRID
    assert len(found.features) == 5


def lonely(members: int = MEMBERS) -> Site:
    """Return records of isolated nodes, but for one whose neighbour stands beside it."""
    site = Site(members)
    site.index = np.repeat(np.arange(members)[:, None], PLACES, axis=1)
    site.table = np.concatenate([site.table, RNG.normal(size=(1, WIDTH))])
    site.index[0, 1] = members
    return site


def test_o22_two_mixtures_that_differ_by_one_record_never_leave():
    assert nothing_left(lonely(), apart=4)
    assert not nothing_left(lonely(), apart=2)


def test_o22_control_two_positions_that_differ_by_one_record_give_their_difference(monkeypatch):
    monkeypatch.setattr(mix_groups, "_hold", lambda *_: True)
    site, mixer = lonely(), Mixer()
    found = released(site, mixer)
    group = mixer._groups
    size = int((group == group[0]).sum())
    told = size * (found.features[group[0], 1] - found.features[group[0], 0])
    assert np.abs(told - (site.table[MEMBERS] - site.table[0])).max() <= 2 * size * GRID


def test_o22_mixtures_of_two_groups_differ_by_enough_too():
    """The second position of two groups holds the same records but for one of each."""
    records = np.stack([np.arange(16), np.r_[20:28, 20:27, 28]], axis=1)
    group = np.repeat([0, 1], 8)
    assert not mix_groups._hold(records, group, Mix(floor=8, apart=4))
    assert mix_groups._hold(records, group, Mix(floor=8, apart=2))
    records[15, 1] = 27
    assert mix_groups._hold(records, group, Mix(floor=8, apart=8))  # the very same: nothing new


def changes(site: Site) -> dict[str, Site]:
    found = {name: copy.deepcopy(site) for name in ("left", "swapped", "label", "order", "fewer")}
    found["left"].index, found["left"].label = site.index[1:], site.label[1:]
    found["swapped"].index[0, 1] = site.index[0, 2]
    found["label"].label[0] = (site.label[0] + 1) % CLASSES
    found["order"].index = site.index[::-1].copy()
    found["fewer"].table = np.concatenate([site.table, site.table[:1]])
    return found


@pytest.mark.parametrize("what", ["left", "swapped", "label", "order", "fewer"])
def test_o22_across_rounds_only_the_table_may_change(what):
    site, mixer = Site(), Mixer()
    released(site, mixer)
    before = mixer._groups
    site.table = 2 * site.table
    released(site, mixer)
    assert mixer._groups is before
    with pytest.raises(UnfitMessage, match="than before"):
        released(changes(site)[what], mixer)


def test_o22_control_a_member_less_in_the_next_round_is_told_by_the_difference():
    """With other groups each time it would be hidden; with the same ones and no check it is not."""
    site, mixer = Site(), Mixer()
    first, group = released(site, mixer), mixer._groups
    fewer = changes(site)["left"]
    records = mixing._checked(unmixed_of(fewer.message()), _layout())
    mixer._members, mixer._groups = records.digest, group[1:]
    size = int((group == group[0]).sum())
    second = _unchecked(fewer, mixer)
    told = size * first.features[group[0], 0] - (size - 1) * second.features[group[0], 0]
    assert np.abs(told - site.table[0]).max() <= 2 * size * GRID


def _layout() -> mixing.MixLayout:
    policy = mixing_policy(chain(floor=4))
    return mixing.MixLayout(Mashed, policy.rules[Disclosure.MIXED], mixing_plan(policy).dims)


def _unchecked(site: Site, mixer: Mixer) -> Mashed:
    body, *_ = mixer.mixed(site.message(), _layout(), bytes(32))
    return _layout().decode(body)


# --- what else may be wrong -----------------------------------------------------------------------


def spoilt() -> dict[str, tuple[Site, str]]:
    found = {
        name: Site()
        for name in (
            "nan",
            "inf",
            "beyond",
            "negative",
            "class",
            "below",
            "float",
            "labels",
            "wide",
        )
    } | {"places": Site(), "real": Site(), "ragged": Site()}
    found["nan"].table[3, 1] = np.nan
    found["inf"].table[3, 1] = np.inf
    found["beyond"].index[2, 1] = MEMBERS
    found["negative"].index[2, 1] = -1
    found["class"].label[0] = CLASSES
    found["below"].label[0] = -1
    found["float"].label = found["float"].label.astype(float)
    found["labels"].label = found["labels"].label[1:]
    found["wide"].table = np.zeros((MEMBERS, WIDTH + 1))
    found["places"].index = found["places"].index[:, 1:]
    found["real"].index = found["real"].index.astype(float)
    found["ragged"].table = [[1.0], [1.0, 2.0]]  # type: ignore[assignment]
    said = {
        "nan": "NaN",
        "inf": "Inf",
        "beyond": "does not hold",
        "negative": "does not hold",
        "class": "not a class",
        "below": "not a class",
        "float": "class number",
        "labels": "class number",
        "wide": "row of 6",
        "places": "row of 4",
        "real": "whole numbers",
        "ragged": "one shape",
    }
    return {name: (site, said[name]) for name, site in found.items()}


@pytest.mark.parametrize("name", sorted(spoilt()))
def test_what_is_no_table_of_records_is_refused(name):
    site, said = spoilt()[name]
    with pytest.raises(UnfitMessage, match=said):
        released(site)


def test_ready_made_mixtures_are_refused_but_where_the_policy_is_unsafe():
    """Whoever fills the fields could fill them with single records."""

    def ready(site, given):
        return Mashed(features=np.ones((2, PLACES, WIDTH)), label=np.ones((2, CLASSES)) / 2)

    world = world_of()
    world.sites["client-2"].answer = ready
    with pytest.raises(Refused, match="client-2 refused to answer \\(unfit\\)"):
        asked(world)
    assert not [
        e
        for e in world.wire
        if Envelope.decode(e).header.sender == "client-2"
        and Envelope.decode(e).header.item == "mash.up.MIXED"
    ]
    bare = world_of(BARE, mixtures=3)
    for site in bare.sites.values():
        site.answer = ready
    assert [m.features.shape for m in asked(bare).each(Mashed)] == [(2, PLACES, WIDTH)] * 5


def test_an_algorithm_cannot_get_records_out_another_way():
    class Loot(SumMessage):
        stolen: Vector = real(MEMBERS, WIDTH, unit="1", meaning="records")

    message = Site().message()
    assert not hasattr(message, "features") and not hasattr(message, "label")
    for way in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError):
            way(message._unmixed)
    with pytest.raises(TypeError):
        pickle.dumps(message)
    with pytest.raises(AttributeError):
        encode([message], {"mixtures": 1, "places": PLACES, "width": WIDTH, "classes": CLASSES})
    with pytest.raises(UnfitMessage):
        encode([Loot(stolen=message._unmixed)], {})
    assert repr(message) == "<Mashed MIXED(features, label)>"
    assert repr(message._unmixed) == "<Unmixed>"
