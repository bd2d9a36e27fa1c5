"""Items become tags: split key, padding, quota, canary (O24)."""

from __future__ import annotations

import copy
import pickle
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crypto.oprf import POINT_BYTES, KeyShare, pointwise
from protocols.disclosures.match.guards import Match
from protocols.disclosures.match.protocol.cells import same_canary
from protocols.disclosures.match.protocol.tagging import (
    TAG_BYTES,
    TagBatch,
    Tags,
    TagServer,
    chosen,
    keyed,
)
from protocols.errors import BadEnvelope, LocalProtocolError, NotInPlan, UnfitMessage
from tests.protocols.matching import KEY, RUN, compared, keyed_all, served

MATCH = Match(cap=8, canaries=4)
ITEMS = st.lists(st.integers(0, 20), max_size=8, unique=True)


def tag(tags: Tags, item: int) -> bytes:
    return tags.sent[tags.places[item]].tobytes()


@given(ITEMS, ITEMS)
@settings(max_examples=15, deadline=None)
def test_o24_tags_are_equal_exactly_where_items_are(mine, theirs):
    tags = served({"a": mine, "b": theirs}, MATCH)
    for item in mine:
        equal = [o for o in theirs if tag(tags["a"], item) == tag(tags["b"], o)]
        assert equal == [o for o in theirs if o == item]
    both = set(map(bytes, tags["a"].sent)) & set(map(bytes, tags["b"].sent))
    assert len(both) == len(set(mine) & set(theirs))  # random ones never meet


def test_o24_the_other_mode_finds_the_same():
    items = {"a": [1, 2, 3], "b": [2, 3, 9]}
    tags = keyed_all(items, MATCH)
    assert tag(tags["a"], 2) == tag(tags["b"], 2) != tag(tags["a"], 3)
    assert tags["a"].digest == tags["b"].digest
    assert tags["a"].group == tags["b"].group != tags["a"].digest


@pytest.mark.parametrize("own", [[], [5], list(range(8))])
def test_o24_padding_hides_how_many(own):
    batch = TagBatch(own, MATCH, RUN, 0)
    assert len(batch.points) == MATCH.places * POINT_BYTES
    tags = served({"a": own}, MATCH)["a"]
    assert tags.sent.shape == (MATCH.cap, TAG_BYTES)
    rows = [row.tobytes() for row in tags.sent]
    assert rows == sorted(rows)
    assert len(set(rows)) == MATCH.cap


def test_o24_own_items_stand_anywhere():
    places = {served({"a": [7]}, MATCH)["a"].places[7] for _ in range(40)}
    assert len(places) > 4
    first = {keyed([7], KEY, MATCH, RUN, epoch).places[7] for epoch in range(40)}
    assert len(first) > 4


def test_o24_a_tag_server_sees_uniform_points_and_never_one_twice():
    points = []
    for _ in range(40):
        points += pointwise(TagBatch([1, 2], MATCH, RUN, 0).points)
    assert len(set(points)) == len(points)
    bits = np.unpackbits(np.frombuffer(b"".join(points), np.uint8).reshape(-1, 32), axis=1)
    # Not the lowest bit (even by definition) nor the highest ones (the prime ends there).
    means = bits[:, 8:240].mean(axis=0)
    # Seven standard errors: 232 bits of new points pass five of them once in 7,000 times.
    assert abs(means - 0.5).max() < 7 * 0.5 / np.sqrt(len(points))


def test_o24_one_share_of_the_key_makes_no_tag():
    tags = served({"a": [1, 2, 3]}, MATCH)["a"]
    alone = served({"a": [1, 2, 3]}, MATCH)["a"]  # the same items under other shares
    assert not set(map(bytes, tags.sent)) & set(map(bytes, alone.sent))


def test_o24_epochs_have_keys_of_their_own():
    servers = (TagServer(MATCH), TagServer(MATCH))
    one = served({"a": [1]}, MATCH, 0, servers)["a"]
    two = served({"a": [1]}, MATCH, 1, servers)["a"]
    assert tag(one, 1) != tag(two, 1)
    assert one.digest != two.digest and one.group != two.group
    with pytest.raises(LocalProtocolError, match="once"):
        servers[0].begin(1)


def test_o24_quota_refuses_and_reports():
    server = TagServer(MATCH)
    server.begin(0)
    points = TagBatch([1], MATCH, RUN, 0).points
    server.answer("a", 0, points)
    for more in (points, TagBatch([2], MATCH, RUN, 0).points):
        with pytest.raises(NotInPlan, match=r"a asked for more tags than its quota"):
            server.answer("a", 0, more)
    for wrong in (b"", points + points, points[:-POINT_BYTES]):
        with pytest.raises(NotInPlan, match="one batch of 12"):
            server.answer("b", 0, wrong)
    server.answer("b", 0, points)
    assert server.refused == {"a": 2, "b": 3}
    assert server.report() == {"clients": 2, "epoch": 0, "quota": 12, "refused": 5}
    with pytest.raises(BadEnvelope, match="another epoch"):
        server.answer("c", 1, points)


def test_o24_points_that_are_none_are_refused_and_cost_no_quota():
    server = TagServer(MATCH)
    server.begin(0)
    with pytest.raises(BadEnvelope):
        server.answer("a", 0, bytes(MATCH.places * POINT_BYTES))
    server.answer("a", 0, TagBatch([1], MATCH, RUN, 0).points)


class Turncoat(TagServer):
    """Uses another key for some clients, or for some points of every batch."""

    __slots__ = ("other", "points", "victims")

    def __init__(self, match, victims=(), points=()):
        super().__init__(match)
        self.victims, self.points, self.other = victims, points, KeyShare.generate()

    def answer(self, client, epoch, points, spread=map):
        honest = pointwise(super().answer(client, epoch, points, spread))
        wrong = self.other.evaluate(pointwise(points))
        if client in self.victims:
            return b"".join(wrong)
        return b"".join(
            w if at in self.points else h
            for at, (h, w) in enumerate(zip(honest, wrong, strict=True))
        )


@pytest.mark.parametrize("which", [0, 1])
def test_o24_another_key_for_one_client_is_caught_by_the_canary(which):
    servers = [TagServer(MATCH), TagServer(MATCH)]
    servers[which] = Turncoat(MATCH, victims=("b",))
    items = {name: [1, 2, 3] for name in "abcdef"}
    tags = served(items, MATCH, 0, servers)
    assert tag(tags["a"], 1) != tag(tags["b"], 1)  # what it is after: b matches nobody
    digests = {name: mine.digest for name, mine in tags.items()}
    with pytest.raises(BadEnvelope, match=re.escape("canary of 1 clients differs (b)")):
        same_canary(digests)
    with pytest.raises(BadEnvelope, match="canary"):
        compared(tags, MATCH)
    del tags["b"]
    compared(tags, MATCH)


def test_o24_another_key_inside_a_batch_is_caught_as_often_as_it_should():
    match, caught, trials = Match(cap=8, canaries=8), 0, 120
    for _ in range(trials):
        servers = (TagServer(match), Turncoat(match, points=(0, 5)))
        try:
            served({"a": [1, 2]}, match, 0, servers)
        except BadEnvelope as error:
            caught += "Copies of one text" in error.what
    # Neither of two places is a canary: (8 / 16)(7 / 15). Binomial, below 1e-9 on either side.
    assert 0.49 < caught / trials < 0.98


def test_o24_all_points_under_another_key_are_caught_by_others_only():
    servers = (TagServer(MATCH), Turncoat(MATCH, points=range(MATCH.places)))
    tags = served({name: [1] for name in "abcde"}, MATCH, 0, servers)
    assert len({mine.digest for mine in tags.values()}) == 1  # one key for all is what is asked for


def test_a_batch_is_answered_once_and_by_points():
    batch = TagBatch([1], MATCH, RUN, 0)
    good = b"".join(KeyShare.generate().evaluate(pointwise(batch.points)))
    for wrong in (bytes(len(good)), good[:-POINT_BYTES] + bytes(POINT_BYTES), good[:-1] + b"\xff"):
        with pytest.raises(BadEnvelope, match="first tag server's answer is not usable"):
            batch.checked(wrong)
    for wrong in (b"", good[:-POINT_BYTES], good * 2):
        with pytest.raises(BadEnvelope, match="another number"):
            batch.checked(wrong)
    assert batch.checked(good) == good
    with pytest.raises(BadEnvelope, match="not usable"):
        batch.finish(bytes(MATCH.places * POINT_BYTES))
    with pytest.raises(LocalProtocolError, match="before"):
        batch.finish(b"")


def test_too_many_items_or_one_twice_are_unfit():
    for items in (range(9), [1, 1]):
        with pytest.raises(UnfitMessage, match="cap"):
            TagBatch(list(items), MATCH, RUN, 0)
        with pytest.raises(UnfitMessage, match="cap"):
            keyed(list(items), KEY, MATCH, RUN, 0)


def test_the_popular_and_the_rarest_stay_at_home():
    match = Match(cap=8, popular=0.1)
    popularity = [*range(50, 100), *range(50)]  # item 50 is the most popular, item 49 the least
    assert chosen(range(100), popularity, match) == list(range(60, 68))
    assert chosen([55, 60, 3, 3], popularity, match) == [3, 60]
    assert chosen([], popularity, match) == []


@pytest.mark.parametrize("facts", [{"cap": 100}, {"cell": 4}, {"floor": 1}, {"canaries": 1}])
def test_a_guard_below_its_floors_does_not_construct(facts):
    with pytest.raises(ValueError, match=next(iter(facts))):
        Match(**facts)


def test_what_holds_keys_is_mute():
    server, batch = TagServer(MATCH), TagBatch([1], MATCH, RUN, 0)
    for secret in (server, batch, keyed([1], KEY, MATCH, RUN, 0)):
        assert repr(secret) == f"<{type(secret).__name__}>"
        for leak in (pickle.dumps, copy.deepcopy):
            with pytest.raises(TypeError):
                leak(secret)
