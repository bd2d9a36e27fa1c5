"""O5 for asked clusters: signed cuts, clusters that only get smaller, and nobody set apart."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from protocols.clusters import Cut
from protocols.disclosures.names import Disclosure
from protocols.errors import (
    BadEnvelope,
    CohortChanged,
    CohortTooSmall,
    NotAdmitted,
    Refused,
    RoundLost,
)
from protocols.forms import Exchange, Form
from protocols.keys.groups import slot_of
from protocols.plan.steps import Service, Step
from protocols.policy.policy import PrivacyPolicy
from protocols.rounds import Ask, Cohort, Reply
from protocols.sessions.clusters import AskedClusters, ClusterHistory
from protocols.sessions.part import Collection
from protocols.sessions.survivors import Survivors
from protocols.wire.control import Cluster
from tests.protocols.killed import Killed
from tests.protocols.pub import Go, Portrait, _never
from tests.protocols.toys import (
    Start,
    Update,
    changed_policy,
    maskless,
    toy_algorithm,
    toy_plan,
    train,
)
from tests.protocols.wire import World, refused


def portray(site, given: Go) -> Portrait:
    return Portrait(outputs=site.direction)


LOOK = Exchange("look", (Go,), (Portrait,), portray)
FORM = Form("split", _never, (Exchange("train", (Start,), (Update,), train, per_round=2), LOOK))
SPLIT = FORM.split_by(Portrait, "normalised")
POLICIES = ["masks", "he"]


def camps(world, right):
    """Let some clients pull one way, and all others the other way."""
    for name, site in world.sites.items():
        noise = np.random.default_rng(site.index).normal(0, 0.05, world.d)
        site.direction = (1 if name in right else -1) * np.ones(world.d) + noise


def world_of(policy="masks", clients=8, form=SPLIT, kind=World, **facts):
    world = kind(form, policy, clients=clients, **facts)
    camps(world, world.names[::2])
    return world.start()


def summed(world, part, round):
    world.pump(world.aggregator.ask(Ask(part, Start(weights=np.zeros(world.d)), Update), round))
    return world.aggregator.reply().total(Update)


def looked(world, part, round) -> Reply:
    world.pump(world.aggregator.ask(Ask(part, Go(step=round), Portrait), round))
    return world.aggregator.reply()


def split(world, part, round=1):
    return looked(world, part, round).split(Portrait, part)


def half_clear() -> PrivacyPolicy:
    """Return a policy under which nobody but the aggregator sees what clients are split by."""
    document = changed_policy("masks", rekey_rounds=4).document()
    rules = {**document["rules"], "SIMILARITY": [{"guard": "unsafe_clear"}]}
    return PrivacyPolicy.model_validate({**document, "name": "half_clear", "rules": rules})


def dishonest(world):
    """Let the aggregator ask what it likes."""
    world.aggregator.clusters.asked = lambda *_: False


def every_answer(world, part, round=2):
    """Deliver an Ask to each of its clients and return what they answered."""
    ask = Ask(part, Start(weights=np.zeros(world.d)), Update)
    return [world.deliver(delivery) for delivery in world.aggregator.ask(ask, round)]


def reasons(world, part):
    return {str(world.clients[name].last_error) for name in part._members}


# --- honest ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=[("masks", World), ("he", Killed)], ids=POLICIES)
def split_world(request):
    policy, kind = request.param
    world = world_of(policy, kind=kind)
    if kind is Killed:
        world.keep()
    cohort = Cohort(world.names)
    summed(world, cohort, 1)
    world.parts = split(world, cohort)
    world.cohort, world.totals = cohort, [summed(world, part, 2) for part in world.parts]
    return world


def test_clusters_are_split_by_signed_cuts_and_summed_apart(split_world):
    world, groups = split_world, [set(split_world.names[::2]), set(split_world.names[1::2])]
    assert world.cohort.parts == world.parts and [p.size for p in world.parts] == [4, 4]
    assert {frozenset(p._members) for p in world.parts} == {*map(frozenset, groups)}
    for part, total in zip(world.parts, world.totals, strict=True):
        assert total.count == world.count(part._members)
    assert split(world, world.parts[0], 2) == (world.parts[0],)  # four cannot be split
    (cut,) = [e for e in world.entries("key-authority") if e["kind"] == "cut"]
    assert (cut["round"], cut["exchange"]) == (1, 2)
    assert cut["cluster"] == world.roster.mask(world.names).hex()
    told = [e for e in world.entries("client-1") if e["kind"] == "cluster"]
    assert [e["cluster"] for e in told] == [world.roster.mask(world.names[::2]).hex()]


def test_a_reply_from_before_a_kill_splits_as_it_did():
    world = world_of("masks", kind=Killed)
    world.keep()
    parts = split(world, Cohort(world.names))
    world.kill("aggregator")
    ((name, kept),) = world.aggregator.keeper.outcomes()
    again = Cohort(world.names)
    found = kept.split(Portrait, again)
    assert name == "look" and [p._members for p in found] == [p._members for p in parts]
    assert again.parts == found and summed(world, found[1], 2).count


def test_the_plan_says_who_vouches_and_holds_what_it_takes(split_world):
    plan, word = split_world.plan, "signs it"
    assert plan.splits.signed and any(word in text for text in plan.warnings)
    for name in ("train", "look"):
        down = plan.find(name, Service.ASK, Step.DOWN)
        assert [m.name for m in down.messages][:3] == ["Call", "Place", "Cluster"]
        assert (down.per_round, down.times) == ((2, 6) if name == "train" else (1, 3))
    opened = plan.find("look", Disclosure.SIMILARITY, Step.OPENED)
    assert [m.name for m in opened.messages] == ["Cosines", "SignedCut"]
    assert opened.per_round == 2  # eight clients fall into two clusters at most
    own = toy_plan(SPLIT, half_clear(), clients=split_world.names)
    assert not own.splits.signed and any("aggregator's word" in t for t in own.warnings)
    never = toy_plan(FORM, split_world.policy, clients=split_world.names)
    assert never.splits is None and not any("clusters" in text for text in never.warnings)


def test_a_split_needs_a_form_that_says_so():
    world = world_of(form=FORM)
    reply = looked(world, Cohort(world.names), 1)
    with pytest.raises(TypeError, match="split_by"):
        reply.split(Portrait, Cohort(world.names))
    with pytest.raises(TypeError, match="not asked back"):
        reply.split(Update, Cohort(world.names))
    with pytest.raises(ValueError, match="never asks back"):
        Form("other", _never, FORM.exchanges[:1]).split_by(Portrait)
    with pytest.raises(ValueError, match="no such cut"):
        FORM.split_by(Portrait, "louvain")


# --- drop-outs ------------------------------------------------------------------------------------


def test_o5_who_vanishes_between_a_sum_and_its_cosines_costs_the_split_alone():
    world = world_of()
    cohort = Cohort(world.names)
    total = summed(world, cohort, 1)
    world.lost = lambda item, sender, to: "client-8" in (sender, to)
    with pytest.raises(RoundLost, match="between two results"):
        looked(world, cohort, 1)
    assert cohort.parts == (cohort,) and total.count == world.count()
    assert summed(world, cohort, 2).count == world.count(world.names[:7])  # drop-outs as ever
    assert split(world, cohort, 2) == (cohort,)  # nobody knows where who is away belongs
    world.lost = lambda *_: False
    assert len(split(world, cohort, 3)) == 2


def test_o5_who_was_away_is_told_of_its_cluster_later_and_cuts_are_cut_again():
    world = world_of(changed_policy("masks", rekey_rounds=6), clients=12, rounds=4)
    for place, site in enumerate(world.sites.values()):
        noise = np.random.default_rng(place).normal(0, 0.05, world.d)
        site.direction = np.eye(world.d)[place % 3] + noise
    cohort = Cohort(world.names)
    large, small = split(world, cohort)
    assert (large.size, small.size) == (8, 4)
    late = large._members[0]
    world.lost = lambda item, sender, to: late in (sender, to)
    assert summed(world, large, 2).count == world.count(large._members[1:])
    world.lost = lambda *_: False
    assert not any(e["kind"] == "cluster" for e in world.entries(late))
    halves = split(world, large, 3)
    assert [p.size for p in halves] == [4, 4] and cohort.parts == (*halves, small)
    for part in cohort.parts:
        assert len(part._cuts) == (1 if part is small else 2)
        assert summed(world, part, 4).count == world.count(part._members)


# --- an aggregator that makes splits up -----------------------------------------------------------


def invented(world, side, signature=b""):
    """Return the smaller side of a split that nobody made."""
    members = tuple(sorted(world.names))
    cut = Cut(1, 1, members, tuple(sorted(side)), signature=signature)
    return Cohort(side, (cut,))


@pytest.mark.parametrize("policy", POLICIES)
def test_o5_a_split_that_nobody_signed_is_refused_by_every_client(policy):
    world = world_of(policy)
    summed(world, Cohort(world.names), 1)
    mine = world.identities["aggregator"].signing.sign("cluster-cut", b"any")
    part = invented(world, world.names[:4], mine)
    with pytest.raises(BadEnvelope, match="no signed part"):
        world.aggregator.clusters.asked(*cluster_of(world, part))
    dishonest(world)
    assert all(refused(answers) for answers in every_answer(world, part))
    assert all("no signed part" in reason for reason in reasons(world, part))


def test_o5_control_without_a_look_at_signatures_the_aggregator_chooses_clusters(monkeypatch):
    monkeypatch.setattr(ClusterHistory, "_check", lambda *_: None)
    world = world_of()
    summed(world, Cohort(world.names), 1)
    part = invented(world, world.names[:4])
    assert summed(world, part, 2).count == world.count(world.names[:4])


def cluster_of(world, part, round=2, exchange=9):
    """Return what an honest aggregator says of a cluster, and where."""
    told, found = AskedClusters(world.aggregator, world.aggregator.clusters), []
    told._history = type("Any", (), {"bits": world.aggregator.clusters.bits})
    told._history.asked = staticmethod(lambda message, where: found.append(message))
    from protocols.sessions.asking import Held

    told.told(Held(SPLIT.exchanges[0], round, exchange, part._members, ()), part)
    return found[0], world.where(part._members, round=round, exchange=exchange)


@pytest.mark.parametrize("changed", [{"round": 0}, {"exchange": 1}, {"side": 3}])
def test_o5_a_signed_cut_says_where_it_belongs_and_what_it_cuts(split_world, changed):
    world, part = split_world, split_world.parts[1]
    (cut,) = part._cuts
    if "side" in changed:
        changed = {"side": (*cut.side[:3], next(n for n in cut.members if n not in cut.side))}
    other = replace(cut, **changed)
    history = ClusterHistory(world.aggregator)
    with pytest.raises(BadEnvelope, match="no signed part"):
        history.asked(*cluster_of(world, Cohort(other.side, (other,))))
    assert history.asked(*cluster_of(world, part))


def test_o5_a_cut_is_made_before_it_is_used(split_world):
    history = ClusterHistory(split_world.aggregator)
    with pytest.raises(BadEnvelope, match="not made yet"):
        history.asked(*cluster_of(split_world, split_world.parts[1], exchange=2))


@pytest.mark.parametrize("policy", POLICIES)
def test_o5_who_was_in_a_cluster_is_asked_with_nobody_else_again(policy):
    world = world_of(policy)
    cohort = Cohort(world.names)
    one, other = split(world, cohort)
    for part in (one, other):
        summed(world, part, 2)
    with pytest.raises(CohortChanged, match="no part of what"):
        world.aggregator.clusters.asked(*cluster_of(world, cohort, round=3))
    dishonest(world)
    assert all(refused(answers) for answers in every_answer(world, Cohort(world.names), 3))


def test_o5_a_client_that_is_told_another_cluster_than_the_others_is_not_summed(monkeypatch):
    """All members say over what they were given, cluster and all; others see that it differs."""

    world = world_of()
    one, _ = split(world, Cohort(world.names))
    monkeypatch.setattr(Collection, "add", lambda c, i: c._answers[i.item.part].take(i))
    deliveries = world.aggregator.ask(Ask(one, Start(weights=np.zeros(world.d)), Update), 2)
    first = deliveries[0].to
    old = Cluster(cluster=world.roster.mask(world.names), cuts=bytes(4 + 4 + 1 + 64))
    lie = lied_to(world, first, one, old)
    outgoing = [replace(d, data=lie) if d.to == first else d for d in deliveries]
    with pytest.raises(Refused):
        world.pump(outgoing)
    errors = {n: str(s.last_error) for n, s in world.clients.items() if s.last_error}
    assert "does not fit what this client sent" in errors[first]


def lied_to(world, client, part, cluster):
    """Return an Ask that tells one client another cluster."""
    from protocols.wire.codec import encode
    from protocols.wire.control import Call
    from protocols.wire.roster import given_digest

    item = world.plan.item("train.down")
    dims = world.context("aggregator").dims(item)
    heads, places = world.aggregator.heads.places()
    call = Call(members=world.roster.mask(part._members), slot=0, nonce=bytes(16), heads=heads)
    start = Start(weights=np.zeros(world.d, np.float32))
    given = given_digest([call, cluster, start], dims)
    where = world.where(part._members, round=2, exchange=2, given=given)
    body = encode([call, places[client], cluster, start], dims)
    return world.forge("aggregator", item.id, client, body, where)


def test_o5_members_outside_the_cluster_and_strangers_are_refused(split_world):
    world, part = split_world, split_world.parts[1]
    message, where = cluster_of(world, part)
    wider = replace(where, members=tuple(world.names))
    with pytest.raises(BadEnvelope, match="outside the cluster"):
        ClusterHistory(world.aggregator).asked(message, wider)
    with pytest.raises(BadEnvelope, match="no cuts lead"):
        bare = Cluster(cluster=message.cluster, cuts=bytes(len(message.cuts)))
        ClusterHistory(world.aggregator).asked(bare, where)


# --- few clients set apart ------------------------------------------------------------------------


def isolating(world):
    """Sum nine clients, and then eight of them: what is left is one client's update."""
    total = summed(world, Cohort(world.names), 1)
    members = tuple(sorted(world.names))
    cut = Cut(1, 1, members, ("client-9",))
    rest = Cohort(cut.rest, (cut,))
    return total.delta - summed(world, rest, 2).delta


def nine():
    return world_of(half_clear(), clients=9)


def test_o5_a_split_that_sets_one_client_apart_is_refused_by_all():
    world = nine()
    with pytest.raises(CohortChanged, match="fewer than 4"):
        isolating(world)
    world = nine()
    dishonest(world)
    with pytest.raises(Refused, match="refused"):
        isolating(world)
    world = nine()
    dishonest(world)
    cut = Cut(1, 0, tuple(sorted(world.names)), ("client-9",))
    part = Cohort(cut.rest, (cut,))
    assert all(refused(answers) for answers in every_answer(world, part))
    assert all("fewer than 4" in reason for reason in reasons(world, part))


def test_o5_control_where_clusters_may_leave_one_client_its_update_is_read(monkeypatch):
    monkeypatch.setattr(
        ClusterHistory, "_apart", lambda self, groups, cluster: groups
    )  # clients of before
    world = nine()
    read = isolating(world)
    assert np.abs(read - world.sites["client-9"].delta).max() < 0.001


@pytest.mark.parametrize("signs_all", [False, True])
def test_o5_a_second_cut_that_sets_one_apart_beside_the_first_is_not_signed(signs_all, monkeypatch):
    if signs_all:  # an authority that forgets what it signed before
        monkeypatch.setattr(ClusterHistory, "divide", lambda *_: None)
    world = world_of(clients=9)
    cohort = Cohort(world.names)
    camps(world, world.names[:4])
    assert len(looked(world, cohort, 1).split(Portrait, Cohort(world.names))) == 2  # unused
    camps(world, world.names[4:8])  # the fourth of nine would stand alone between both
    assert len(split(world, cohort, 2)) == (2 if signs_all else 1)


def test_o10_a_cluster_below_the_floor_is_opened_by_nobody(monkeypatch):
    world = world_of()
    few = invented(world, world.names[:3])
    with pytest.raises(CohortTooSmall):
        world.aggregator.ask(Ask(few, Start(weights=np.zeros(world.d)), Update), 1)
    world = world_of()
    dishonest(world)
    floor = world.policy.smallest_cohort
    object.__setattr__(world.aggregator.context.policy, "minimum_cohort", 2)
    monkeypatch.setattr(Survivors, "check_left", lambda *_: None)
    answers = every_answer(world, invented(world, world.names[:3]), 1)
    assert floor == 4 and all(refused(answer) for answer in answers)


def test_o10_control_without_a_floor_three_clients_are_summed(monkeypatch):
    monkeypatch.setattr(PrivacyPolicy, "smallest_cohort", property(lambda _: 2))
    monkeypatch.setattr(ClusterHistory, "_check", lambda *_: None)
    world = world_of(maskless())
    summed(world, Cohort(world.names), 1)
    assert summed(world, invented(world, world.names[:3]), 2).count == world.count(world.names[:3])


def test_o5_clusters_that_are_opened_in_one_round_are_disjoint(split_world):
    found = [set(part._members) for part in split_world.parts]
    assert not found[0] & found[1]
    world = world_of()
    one, _ = split(world, Cohort(world.names))
    summed(world, one, 2)
    dishonest(world)
    answers = every_answer(world, Cohort(world.names), 2)
    again = [name in one._members for name in world.names]
    assert [refused(answer) for answer in answers] == again


def test_o5_a_list_that_mixes_clusters_is_voted_for_by_nobody(split_world):
    history = split_world.clients["client-1"].clusters
    for fine in (split_world.names[::2], split_world.names[1::2], ["client-3", "client-5"]):
        history.shown(fine)
    with pytest.raises(CohortChanged, match="and of others"):
        history.shown(["client-3", "client-2"])


def test_o5_a_holder_looks_at_lists_of_other_clusters(split_world):
    """Seven of eight, without the holder: half of them were asked with it, half were not."""
    session = split_world.clients["client-1"]
    where = split_world.where(split_world.names[1:], round=3, exchange=99)
    slot = slot_of(split_world.plan.item("train.up.SUM"), 3, 0)
    with pytest.raises(CohortChanged, match="and of others"):
        session.holding._check_list("train", where, where.members, slot)


@pytest.mark.parametrize("looks", [True, False])
def test_o5_the_authority_opens_no_total_across_clusters_that_it_opened_apart(looks, monkeypatch):
    monkeypatch.setattr(ClusterHistory, "asked", lambda *_: False)  # all clients are fooled
    if not looks:
        monkeypatch.setattr(ClusterHistory, "serve", lambda *_: None)
    world = world_of("he")
    cohort = Cohort(world.names)
    for part in split(world, cohort):
        summed(world, part, 2)
    if not looks:
        assert summed(world, cohort, 3).count == world.count()
        return
    with pytest.raises(Refused, match="key-authority refused"):
        summed(world, cohort, 3)


# --- what a policy lets pass ----------------------------------------------------------------------


def test_a_small_side_leaves_only_where_everything_is_in_clear():
    leaving = toy_algorithm(FORM.split_by(Portrait, "normalised", "leave"))
    fixed = changed_policy("masks", cohort_changes="fixed")
    for policy, algorithm, why in (
        (PrivacyPolicy.preset("masks"), leaving, "cut_guard: leave"),
        (fixed, toy_algorithm(SPLIT), "cohort_changes is fixed"),
    ):
        with pytest.raises(NotAdmitted) as refusal:
            policy.admit(algorithm)
        assert why in refusal.value.why
    world = world_of("unsafe_plaintext", form=leaving.forms[0])
    assert any("UNSAFE: under cut_guard: leave" in text for text in world.plan.warnings)
    camps(world, world.names[:2])
    cohort = Cohort(world.names)
    (left,) = split(world, cohort)
    assert left.size == 6 and cohort.parts == (left,)
    assert summed(world, left, 2).count == world.count(world.names[2:])
    with pytest.raises(ValueError, match="no cluster of the run"):
        looked(world, left, 2).split(Portrait, cohort)


def test_one_client_after_another_may_leave_beyond_what_clusters_there_can_be():
    leaving = FORM.split_by(Portrait, "normalised", "leave")
    world = world_of("unsafe_plaintext", form=leaving)
    left = Cohort(world.names)
    for round, name in enumerate(world.names[:2], 1):
        camps(world, [name])
        (left,) = split(world, left, round)
    assert world.plan.splits.guard == "leave" and left.size == 6
    assert summed(world, left, 3).count == world.count(world.names[2:])


@pytest.mark.parametrize("cut", ["stoer_wagner", "agglomerative"])
def test_colluders_draw_a_client_into_their_cluster_as_the_plan_says(cut):
    """Three clients send the direction of a fourth, and are then summed with it alone."""
    crowds = []
    for copied in (False, True):
        world = world_of(form=FORM.split_by(Portrait, cut))
        rng = np.random.default_rng(3)
        for site in world.sites.values():
            site.direction = rng.normal(size=world.d)
        for name in world.names[1:4] if copied else ():
            world.sites[name].direction = world.sites["client-1"].direction
        parts = split(world, Cohort(world.names))
        crowds.append(next(set(p._members) for p in parts if "client-1" in p._members))
    assert crowds[0] != crowds[1] == set(world.names[:4])
    words = next(text for text in world.plan.warnings if "clients are split" in text)
    assert "choose their vectors can draw a client" in words and "leave 3 others" in words


def test_o5_parts_are_asked_from_the_next_round_on_so_that_a_lost_round_costs_no_more(monkeypatch):
    world = world_of()
    cohort = Cohort(world.names)
    one, _ = split(world, cohort)
    with pytest.raises(BadEnvelope, match="when this round began"):
        summed(world, one, 1)
    world = world_of()
    cohort = Cohort(world.names)
    one, _ = split(world, cohort)
    dishonest(world)
    assert all(refused(answers) for answers in every_answer(world, one, 1))
    monkeypatch.setattr(ClusterHistory, "_check", lambda *_: None)  # who answers cannot go back
    world = world_of()
    cohort = Cohort(world.names)
    one, _ = split(world, cohort)
    assert summed(world, one, 1).count == world.count(one._members)
    cohort._restore((cohort,))  # what the driver does, as the other part's sum was lost
    with pytest.raises(CohortChanged, match="no part of what"):
        summed(world, cohort, 2)
