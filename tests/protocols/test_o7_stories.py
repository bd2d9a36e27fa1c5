"""O5, O7: whatever stories holders are told of two sums of one round, both ways and in any order.

Stories are drawn at random: cohorts that are the same, nested, apart or overlap, in one slot or in
two; whole and shorter lists; holders that are told two things, and are killed in between. Colluders
sign every upload and every list, and give every share (ADR 0035).
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest

from protocols.disclosures.sum.consistency import vote_text_of
from protocols.disclosures.sum.messages import AllHere, SelfShares, Shares, Survivors, Vote, Votes
from protocols.disclosures.sum.parties import ShareHolding
from protocols.errors import Replay
from protocols.keys import groups
from protocols.keys.groups import slot_of
from protocols.wire.roster import AGGREGATOR_NAME
from tests.protocols.killed import Killed
from tests.protocols.toys import TWICE, changed_policy
from tests.protocols.unveiling import ITEM, Haul, evidence, evidence_for, place_of, tell
from tests.protocols.wire import World, refused, unplaced, where_of

ALL = "all"
Story = list[Any]  # by exchange: a list, ALL for the answer in one step, None for nothing


class Stories:
    """One round of an aggregator that tells every holder what it likes.

    Both sums are asked before any story is told. Only holders that are not `marked`, which forget
    how far the aggregator is, read what they are told of the first; their lists are what is tried.
    """

    def __init__(self, seed: int, *, marked: bool = False) -> None:
        self.marked = marked
        self.draw = draw = random.Random(seed)
        clients = draw.choice([6, 8, 9, 10])
        self.corrupt = draw.choice([0, 1, 2] if clients > 6 else [0, 1])
        self.kills = draw.random() < 0.25
        policy = changed_policy("masks", colluders=self.corrupt, rekey_rounds=4)
        self.world = (Killed if self.kills else World)(TWICE, policy, clients=clients).start()
        if isinstance(self.world, Killed):
            self.world.keep()
        names = self.world.names
        self.honest, self.liars = names[: clients - self.corrupt], names[clients - self.corrupt :]
        self.group = self.world.aggregator.keys.agreed.group
        self.given: dict[tuple[str, str, str], set[str]] = defaultdict(set)  # slot, owner, seed
        self.votes: dict[tuple[int, tuple[str, ...]], dict[str, bytes]] = {}
        self.due: list[tuple[int, tuple[str, ...], str]] = []  # voters that saw no votes yet
        self.sums: list[tuple[Haul, tuple[str, ...]]] = []
        for number, (members, slot) in enumerate(self._cohorts(names), 1):
            if (found := self._uploads(members, number, slot)).where:
                self.sums.append((found, members))

    def _cohorts(self, names: Sequence[str]) -> list[tuple[tuple[str, ...], int]]:
        def some(count: int) -> tuple[str, ...]:
            return tuple(sorted(self.draw.sample(names, max(self.group.least, count))))

        few, one = some(len(names) - 3), self.draw.randrange(len(names))
        rest = tuple(name for name in names if name not in few or name in self.liars)
        less = tuple(name for name in few if name != names[one])
        second = [(tuple(names), 1), (less, 1), (rest, self.draw.choice([0, 1])), (few, 0)]
        return [(self.draw.choice([tuple(names), few]), 0), self.draw.choice(second)]

    def _uploads(self, members: tuple[str, ...], exchange: int, slot: int) -> Haul:
        world, found = self.world, Haul(slot_of(self.world.plan.item(ITEM), 1, slot))
        asked = {name: cohort for before, cohort in self.sums for name in before.where}
        for name in members:
            mine = asked.get(name, members) == members and slot + 1 >= exchange
            if name in self.liars or not (mine or name not in asked):
                continue  # it would refuse, and hold nothing any more
            ask = world.evil_ask(name, members, exchange=exchange, slot=slot)
            (answer,) = world.clients[name].receive(ask)
            if not refused([answer]):
                found.where[name] = replace(where_of(answer.data, members), slot=slot)
                found.evidence[name] = evidence(answer.data)
        for name in [n for n in self.liars if n in members and found.where]:
            place = next(iter(found.where.values()))
            body = bytes(world.plan.item(ITEM).body)
            found.evidence[name] = evidence(world.forge(name, ITEM, AGGREGATOR_NAME, body, place))
            found.where[name] = place
        return found

    def story(self) -> Story:
        said: Story = []
        for found, members in self.sums:
            there = tuple(name for name in members if name in found.where)
            spare = len(there) - self.group.least
            lists: list[Any] = [None, *[ALL] * 2 * (there == members), *[there] * (spare >= 0)]
            gone = self.draw.sample(there, min(2, max(spare, 0)))
            lists += [tuple(n for n in there if n not in gone[:k]) for k in range(1, len(gone) + 1)]
            said.append(self.draw.choice(lists))
        return said

    def play(self) -> None:
        draw, stories, acts = self.draw, [self.story() for _ in range(self.draw.choice([2, 3]))], []
        for holder in self.honest:
            mine = draw.choice(stories)
            acts += [(holder, place, mine[place]) for place in range(len(mine))]
            if draw.random() < 0.1:  # another story besides
                place = draw.randrange(len(mine))
                acts.append((holder, place, draw.choice(stories)[place]))
        draw.shuffle(acts) if draw.random() < 0.5 else acts.sort(key=lambda act: act[1])
        first = draw.choice([len(acts), draw.randrange(len(acts) + 1)])
        for some in (acts[:first], acts[first:]):
            for holder, place, listed in some:
                if listed is not None:
                    self._show(holder, place, listed)
            self._certify()

    def _say(self, item: str, holder: str, place: int, message: Any, kind: Any) -> Any:
        where = place_of(self.sums[place][0], holder)
        if not self.marked:
            unplaced(self.world.clients[holder])
        try:
            return tell(self.world, item, holder, message, where, kind)
        except Replay:
            return None

    def _show(self, holder: str, place: int, listed: Any) -> None:
        (found, members), mask = self.sums[place], self.world.roster.mask
        facts = {"slot": found.slot.ordinal, "evidence": evidence_for(self.world, found, holder)}
        if listed == ALL:
            told: Any = AllHere(members=mask(members), **facts)
            answer = self._say("all_here", holder, place, told, SelfShares)
        else:
            told = Survivors(members=mask(members), survivors=mask(listed), **facts)
            answer = self._say("survivors", holder, place, told, Vote)
        if answer is None:
            return
        voted = members if listed == ALL else listed
        self.votes.setdefault((place, voted), {})[holder] = answer.signature
        if listed == ALL:
            self._note(holder, place, members, answer.shares)
        else:
            self.due.append((place, voted, holder))
        if self.kills and isinstance(self.world, Killed):
            self.world.kill(holder)

    def _certify(self) -> None:
        """Show the votes for every list that has enough."""
        world, due = self.world, self.due
        self.due = []
        for place, listed, holder in due:
            found, signed = self.sums[place][0], dict(self.votes[place, listed])
            pairs = world.aggregator.keys.agreed.agreement(found.slot)
            where = place_of(found, holder)
            text = vote_text_of(world.context(AGGREGATOR_NAME), "train", where, listed, pairs)
            for name in self.liars:
                signed[name] = world.identities[name].signing.sign("survivors", text)
            if len(signed) < self.group.quorum:
                self.due.append((place, listed, holder))
                continue
            rows = b"".join(signed.get(name, bytes(64)) for name in world.names)
            message = Votes(signatures=np.frombuffer(rows, np.uint8).reshape(-1, 64))
            if (answer := self._say("votes", holder, place, message, Shares)) is not None:
                self._note(holder, place, listed, answer.shares)

    def _note(self, holder: str, place: int, listed: Sequence[str], rows: Any) -> None:
        found, members = self.sums[place]
        for owner, row in zip(self.group.holders(holder), rows, strict=False):
            if owner in members and row.any():
                seed = "b" if owner in listed else "e"
                self.given[found.slot.label, owner, seed].add(holder)

    def rebuilt(self, found: Haul, owner: str, seed: str) -> bool:
        shares = len(self.given[found.slot.label, owner, seed]) + self.corrupt
        return shares >= self.group.threshold

    def opened(self) -> list[tuple[int, frozenset[str]]]:
        """Return every set of honest clients whose uploads come bare together, by exchange."""
        bare = []
        for place, (found, members) in enumerate(self.sums):
            honest = [name for name in members if name in self.honest]
            rows = {name for name in honest if self.rebuilt(found, name, "e")}
            selves = [n for n in honest if n in found.where and self.rebuilt(found, n, "b")]
            assert not rows & set(selves)
            for count in range(1, len(selves) + 1):
                for some in map(frozenset, combinations(selves, count)):
                    if all(a in rows or b in rows for a in some for b in {*honest} - some):
                        bare.append((place, some))
        return bare


def contradictions(stories: Stories) -> int:
    """Return how many pairs of what opens can be subtracted, or are parts of one sum."""
    found = stories.opened()
    assert all(len(some) >= stories.group.least - stories.corrupt for _, some in found)
    return sum(a != b and (i == j or bool(a & b)) for (i, a), (j, b) in combinations(found, 2))


@pytest.mark.parametrize("seed", range(24))
def test_o7_no_stories_open_two_sums_that_contradict_each_other(seed: int) -> None:
    stories = Stories(seed, marked=seed >= 20)
    stories.play()
    assert not contradictions(stories)


def test_o7_stories_do_open_sums() -> None:
    stories = [Stories(seed) for seed in range(5)]
    for one in stories:
        one.play()
    assert sum(bool(one.opened()) for one in stories) == 4


def test_o7_control_holders_that_forget_lists_open_two(monkeypatch: pytest.MonkeyPatch) -> None:
    """With thresholds of a bare majority: these stories reach none of one share more (O7)."""
    monkeypatch.setattr(groups, "LEAST_COUNTED", 0)
    monkeypatch.setattr(ShareHolding, "_one_list", lambda *_: None)
    stories = Stories(7)
    stories.play()
    assert contradictions(stories)
