"""Groups of mixtures: whose chance, for how long (O15), and what their number tells (O28)."""

from __future__ import annotations

import numpy as np
import pytest

from crypto.samplers import Stream, entropy
from protocols.disclosures.mixed import layout as mix_groups
from protocols.disclosures.mixed.guards import Mix
from protocols.forms import Exchange, Form
from protocols.sessions.store.state_keeper import state_codec
from protocols.wire.envelope import Envelope
from tests.protocols.mix import (
    BARE,
    CLASSES,
    FLOOR,
    GRID,
    MASH,
    PLACES,
    WIDTH,
    Bare,
    Go,
    Mashed,
    asked,
    fill,
    groups,
    layout,
)
from tests.protocols.mix import mixing as world_of
from tests.protocols.mix_sites import Site, released
from tests.protocols.wire import World


def test_o15_groups_come_from_the_operating_system():
    """Two runs of one seed mix differently; without a privacy claim they mix alike."""
    drawn = []
    for rule in (None, None, BARE, BARE):
        world = world_of(rule, group=8)
        asked(world)
        drawn.append(groups(world, "client-1"))
    assert not np.array_equal(drawn[0], drawn[1])
    assert np.array_equal(drawn[2], drawn[3])
    assert np.bincount(drawn[2]).tolist() == [8] * 5


def test_o15_every_pair_meets_equally_often():
    """Members are dealt evenly: 1000 deals of 16 members into two groups."""
    records = np.arange(16)[:, None]
    met = np.zeros((16, 16))
    for _ in range(1000):
        group = mix_groups.draw(records, 8, 2, Mix(floor=8, bucket=1), Stream(entropy(32)))
        met += group[:, None] == group
    share = met[np.triu_indices(16, 1)] / 1000
    assert abs(share.mean() - 7 / 15) < 1e-9  # 7 of 15 others
    assert np.abs(share - 7 / 15).max() < 0.09  # 5.7 standard deviations


def test_groups_are_kept_for_the_run_and_with_the_state():
    world = world_of()
    asked(world)
    session = world.clients["client-3"]
    before = groups(world, "client-3")
    codec = state_codec(session.context, MASH, session._site, session.ledger, bytes(32))
    again = codec.unpack(codec.pack(session._gateway))
    assert np.array_equal(again._own["MIXED"]._groups, before)
    assert again._own["MIXED"]._members == session._gateway._own["MIXED"]._members
    asked(world, 2)
    assert groups(world, "client-3") is before
    # Kept by a session that was taken up, they are used; drawn anew they would be others.
    session._gateway._own["MIXED"] = again._own["MIXED"]
    asked(world, 3)
    assert np.array_equal(groups(world, "client-3"), before)


def test_the_ledger_says_that_groups_were_drawn_once_and_not_which():
    world = world_of()
    for number in (1, 2):
        asked(world, number)
    for name in world.names:
        (entry,) = [e for e in world.entries(name) if e["kind"] == "mix"]
        facts = {k: entry[k] for k in ("item", "floor", "mixtures", "alone", "round")}
        assert facts == {
            "item": "mash.up.MIXED",
            "floor": FLOOR,
            "mixtures": 5,
            "alone": 0,
            "round": 1,
        }


# --- counts ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("members", "mixtures"), [(8, 1), (15, 1), (16, 2), (24, 2), (31, 2), (32, 4), (63, 4), (64, 8)]
)
def test_o28_the_number_of_mixtures_tells_a_bucket(members, mixtures):
    site = Site(members)
    assert len(released(site, bucket=4).features) == mixtures


def test_o28_every_body_has_the_planned_size():
    world = world_of(records=128)
    rng = np.random.default_rng(9)
    for members, site in zip((8, 20, 40, 90, 128), world.sites.values(), strict=True):
        fill(site, rng, members)
    found = asked(world).each(Mashed)
    assert sorted(len(m.features) for m in found) == [1, 2, 5, 11, 16]
    sizes = {len(e) for e in world.wire if Envelope.decode(e).header.item == "mash.up.MIXED"}
    item = world.plan.item("mash.up.MIXED")
    assert sizes == {item.bytes}
    assert world.plan.dims["mixtures"] == 16
    assert item.body == 8 + 16 * (PLACES * WIDTH + CLASSES) * 2


def test_a_dimension_of_the_algorithm_caps_mixtures_and_members_share_them():
    world = world_of(mixtures=2, group=12)
    found = asked(world).each(Mashed)
    assert {len(m.features) for m in found} == {2}
    assert np.bincount(groups(world, "client-1")).tolist() == [20, 20]
    wide = world_of(group=12)
    asked(wide)
    assert np.bincount(groups(wide, "client-1")).min() >= 12


def test_a_message_without_labels_and_positions():
    def answer(site, given):
        return Bare.unmixed(table=site.table, index=site.index[:, :1])

    form = Form("bare", MASH.round, (Exchange("mash", (Go,), (Bare,), answer),))
    world: World = world_of(form=form)
    found = asked(world).each(Bare)
    assert {m.rows.shape for m in found} == {(5, WIDTH)} and found[0].rows.dtype == np.float32
    site, group = world.sites["client-1"], groups(world, "client-1")
    wanted = np.stack([site.table[group == g].mean(axis=0) for g in range(5)])
    assert min(np.abs(m.rows - wanted).max() for m in found) <= GRID
    assert layout(world, Bare).classes == 0
