"""O22 after groups were drawn: a model sends records to one point, and mixtures stay away."""

from __future__ import annotations

import numpy as np
import pytest

from protocols.disclosures.mixed import layout as mix_groups
from protocols.disclosures.mixed import mixing
from protocols.disclosures.mixed.guards import Mix
from protocols.disclosures.mixed.layout import MixLayout
from protocols.disclosures.mixed.mixing import Mixer, remixed
from protocols.disclosures.names import Disclosure
from protocols.errors import UnfitMessage
from protocols.sessions.store.state_keeper import state_codec
from tests.protocols.mix import (
    FLOOR,
    GRID,
    MASH,
    MEMBERS,
    PLACES,
    WIDTH,
    Mashed,
    asked,
    by_hand,
    chain,
    fill,
    mixing_plan,
    mixing_policy,
)
from tests.protocols.mix import mixing as world_of

RNG = np.random.default_rng(8)


class Site:
    """Records whose table a test changes between two releases."""

    def __init__(self, members: int = MEMBERS, **facts: object) -> None:
        fill(self, np.random.default_rng(3), members)
        policy = mixing_policy(chain(**facts))
        dims = mixing_plan(policy, records=128).dims
        self.how, self.mixer = MixLayout(Mashed, policy.rules[Disclosure.MIXED], dims), Mixer()

    @property
    def message(self) -> Mashed:
        return Mashed.unmixed(table=self.table, index=self.index, label=self.label)

    def release(self) -> tuple[Mashed, int]:
        """Return what a receiver reads, and how many mixtures the ledger calls withheld."""
        body, _, told = self.mixer.mixed(self.message, self.how, bytes(32))
        assert len(body) == self.how.body_bytes
        return self.how.decode(body), told.get("withheld", {"mixtures": 0})["mixtures"]

    def members(self, group: int, position: int) -> np.ndarray:
        """Return the records at one position of a group as drawn."""
        return self.index[self.mixer._groups == group, position]

    def same(self, *rows: int) -> None:
        """Send records to one point."""
        self.table[list(rows)] = self.table[rows[0]]


def test_o22_a_mixture_stays_away_while_two_of_its_records_are_one_and_the_others_leave():
    site = Site()
    before, none = site.release()
    kept = site.table.copy()
    pair = site.members(2, 0)[:2]
    site.same(*pair)
    there = [g for g in range(5) for p in range(PLACES) if len({*pair, *site.members(g, p)}) == 8]
    after, withheld = site.release()
    assert none == 0 and len(before.features) == 5
    assert 1 <= withheld == len({*there}) < 5 and len(after.features) == 5 - withheld
    left = [g for g in range(5) if g not in there]
    wanted = by_hand(site, site.mixer._groups)
    assert np.abs(after.features - wanted[0][left]).max() <= GRID
    assert np.abs(after.label - wanted[1][left]).max() <= 1 / 32767
    site.table = kept
    again, none = site.release()
    assert none == 0 and np.abs(again.features - before.features).max() <= GRID


def test_o22_a_model_that_died_sends_nothing_and_ends_no_run():
    """All embeddings are zero in the second round, and alive in the third."""
    world = world_of(rounds=3)
    asked(world)
    tables = {name: world.sites[name].table for name in world.names}
    for site in world.sites.values():
        site.table = np.zeros_like(site.table)
    assert {m.features.shape for m in asked(world, 2).each(Mashed)} == {(0, PLACES, WIDTH)}
    for name, site in world.sites.items():
        site.table = tables[name]
    assert {len(m.features) for m in asked(world, 3).each(Mashed)} == {5}
    for name in world.names:
        (entry,) = [e for e in world.entries(name) if e["kind"] == "withheld"]
        assert {k: entry[k] for k in ("item", "mixtures", "round")} == {
            "item": "mash.up.MIXED",
            "mixtures": 5,
            "round": 2,
        }
        assert world.kinds(name).count("mix") == 1


@pytest.mark.parametrize("members", [FLOOR, FLOOR + 3])
def test_o22_every_position_of_what_leaves_holds_the_floor(members):
    """Random collapses: whatever leaves rests on as many distinct values as ever."""
    seen = set()
    for _ in range(40):
        site = Site(5 * members)
        drawn = len(site.release()[0].features)
        rows = RNG.permutation(len(site.table))
        for at in range(0, 2 * int(RNG.integers(1, 6)), 2):
            site.same(*rows[at : at + 2])
        found, withheld = site.release()
        left, count = site.mixer.groups, len(found.features)
        assert count + withheld == drawn and (count == 0 or left.max() == count - 1)
        for g in range(count):
            for p in range(PLACES):
                at = site.index[left == g, p]
                assert len({*map(bytes, site.table[at])}) == len({*at}) >= FLOOR
        seen.add(count)
    assert len(seen) > 2


def test_o22_mutant_without_withholding_the_floor_is_the_last_line(monkeypatch):
    monkeypatch.setattr(mixing, "standing", lambda records, drawn, groups, mix: groups)
    site = Site()
    site.release()
    site.table = np.zeros_like(site.table)
    with pytest.raises(UnfitMessage, match="fewer records than the policy's floor"):
        site.release()


def test_o22_mutant_a_set_that_shrinks_by_one_gives_the_record_away(monkeypatch):
    """Above the floor as well: the difference of two rounds is the record that became another."""
    site = Site(MEMBERS + 5, floor=4)  # in groups of 4 or 5: one may go
    monkeypatch.setattr(mixing, "standing", lambda records, drawn, groups, mix: groups)
    object.__setattr__(site.how.mix, "floor", 3)
    first, _ = site.release()
    one, other = site.members(0, 0)[:2]
    site.table[one] = site.table[other]
    sizes = len({*site.members(0, 0)})
    second, _ = site.release()
    told = sizes * first.features[0, 0] - (sizes - 1) * second.features[0, 0]
    before = Site(MEMBERS + 5).table[one]
    assert np.abs(told - before).max() <= 2 * sizes * GRID
    monkeypatch.undo()
    third, withheld = site.release()
    near = np.abs(third.features[:, 0] - second.features[0, 0]).max(axis=1)
    assert withheld >= 1 and near.min() > GRID


def test_o22_records_that_were_one_and_differ_later_change_no_mixture():
    """A mixture of other records than before would tell them by the difference as well."""
    site, shared = Site(MEMBERS + 5), []  # in groups of nine: two may be one
    twins = np.arange(MEMBERS)[-2:]
    site.table[twins[0]] = site.table[twins[1]]
    while not shared:
        site.mixer = Mixer()
        first, none = site.release()
        cells = [(g, p) for g in range(len(first.features)) for p in range(PLACES)]
        shared = sorted({g for g, p in cells if {*twins} <= {*site.members(g, p)}})
    assert none == 0
    site.table[twins[0]] += 1.0
    _, withheld = site.release()
    assert withheld == len(shared)


def test_o22_two_mixtures_that_come_to_differ_by_one_record_do_not_both_leave():
    """Eight others differ at first; then all but one of them are the same in both."""
    records = np.stack([np.arange(16), np.r_[20:28, 30:38]], axis=1)
    group, mix = np.repeat([0, 1], 8), Mix(floor=8, apart=4, bucket=1)
    assert mix_groups._hold(records, group, mix)
    now = records.copy()
    now[8:15, 1] = records[:7, 1]  # no two of one mixture: only between them
    left = mix_groups.standing(now, records, group, mix)
    assert left.tolist() == [0] * 8 + [-1] * 8
    now[15, 1] = records[7, 1]  # the very same records: their difference tells nothing
    assert mix_groups.standing(now, records, group, mix).tolist() == group.tolist()


def test_o28_what_is_left_is_a_bucket_too():
    site = Site(64, bucket=4)
    assert len(site.release()[0].features) == 8
    site.same(*site.members(5, 0)[:2])
    found, withheld = site.release()
    assert (len(found.features), withheld) == (4, 4)


def test_a_capture_knows_which_mixtures_left():
    site = Site()
    site.release()
    site.same(*site.members(1, 0)[:2])
    found, withheld = site.release()
    wanted = remixed(site.message, site.how, site.mixer.groups)
    assert withheld and (site.mixer.groups < 0).any()
    assert np.abs(found.features - wanted["features"]).max() <= GRID
    assert len(wanted["label"]) == len(found.label)
    nobody = np.full(MEMBERS, -1)
    assert remixed(site.message, site.how, nobody)["features"].shape == (0, PLACES, WIDTH)


def test_what_was_drawn_with_is_kept_with_the_state():
    """A client that forgot what differed would take what is left of it for all there was."""
    world = world_of(rounds=3)
    asked(world)
    session, site = world.clients["client-3"], world.sites["client-3"]
    codec = state_codec(session.context, MASH, session._site, session.ledger, bytes(32))
    session._gateway = codec.unpack(codec.pack(session._gateway))
    for one in world.sites.values():
        one.table = np.zeros_like(one.table)
    assert {len(m.features) for m in asked(world, 2).each(Mashed)} == {0}
    assert session._gateway._own["MIXED"]._groups is not None and site.asked == 2
    assert world.kinds("client-3").count("withheld") == 1
