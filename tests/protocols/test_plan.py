"""The plan: nothing of it may grow unnoticed, and what runs is what it says."""

import json

import pytest
from pydantic import ValidationError

from protocols.disclosures.names import Disclosure
from protocols.errors import CohortTooSmall, NotInPlan, SecureFglError
from protocols.neighbourhoods import Topology
from protocols.plan.cohorts import DrawnPlan, SplitPlan, TopologyPlan
from protocols.plan.plan import CountPlan, DataPlan, Item, NoisePlan, Plan, at_most, drift
from protocols.plan.steps import Service, Step, Way
from protocols.policy.guard import describe
from protocols.policy.policy import PrivacyPolicy
from protocols.privacy.training import TrainingPlan
from protocols.wire.run_context import RunContext
from tests.protocols.toys import GIFTS, SOW, TRAIN, names_of, toy_plan
from tests.protocols.wire import World

FORMS = [TRAIN, SOW, GIFTS]


def changed(plan, **facts):
    return plan.model_copy(update=facts)


def with_item(plan, which, **facts):
    items = tuple(changed(i, **facts) if i.id == which else i for i in plan.items)
    return changed(plan, items=items)


WORSE = {
    "version": 99,
    "code": {"wider": "0" * 64},
    "seed": 1,
    "algorithm": "other",
    "form": "other",
    "rounds": 4,
    "clients": ("client-1", "client-2", "client-3", "client-4", "mallory"),
    "data": DataPlan(name="x", task="node", features=3, classes=2, records=10, synthetic=True),
    "policy": "other",
    "policy_digest": "0" * 64,
    "policy_fields": {"name": '"another"'},
    "smallest_cohort": 3,
    "withstands": 1,
    "minimum_records": 9,
    "scheme": "none",
    "budget": "epsilon is whatever",
    "warnings": ("UNSAFE: everything leaves in clear",),
    "dims": {"d": 6},
    "items": None,
    "training": TrainingPlan(
        unit="graph",
        clip="1.0",
        rate="0.1",
        batch="1.0",
        steps=1,
        releases=1,
        levels=1,
        noise="0.1",
        epsilon="100.0",
        delta="0.01",
    ),
    "splits": SplitPlan(message="Other", cut="normalised", guard="leave", signed=False),
    "drawn": DrawnPlan.of(5, 12, PrivacyPolicy.preset("masks")),
    "topology": TopologyPlan.of(
        Topology("complete"), ("a", "b", "c", "d"), PrivacyPolicy.preset("masks")
    ),
}
WORSE_ITEM = {
    "id": "other.up.SUM",
    "exchange": "other",
    "part": Service.PAIRS,
    "step": Step.SHARES,
    "way": Way.ONE_ANSWER,
    "label": "other.up.SUM",
    "sender": "aggregator",
    "recipient": "client",
    "disclosure": Disclosure.NOISED,
    "messages": (),
    "guards": ("unsafe_clear",),
    "unsafe": True,
    "bytes": 10**9,
    "body": 10**9,
    "per_round": 99,
    "times": 99,
    "dims": {"he_total": 1},
    "noise": NoisePlan(
        mechanism="discrete_gaussian",
        sigma="9.0",
        l2="1.0",
        l1="1.0",
        coordinates=1,
        honest=4,
        margin=1,
        releases=1,
        epsilon="1.0",
        delta="1e-05",
    ),
    "counted": CountPlan(
        mechanism="discrete_gaussian",
        scale="9.0",
        fields=1,
        entries=1,
        margin=1,
        releases=1,
        epsilon="1.0",
        delta="1e-05",
    ),
    "model": "bounded",
    "checked": 1,
    "reader": "client",
    "follows": True,
    "learns": {"aggregator": "EVERYTHING: the message in clear"},
}


def test_the_tables_below_miss_no_field():
    assert set(WORSE) == set(Plan.model_fields)
    assert set(WORSE_ITEM) == set(Item.model_fields)


@pytest.mark.parametrize("name", [n for n in WORSE if n != "items"])
def test_every_change_of_the_plan_is_found(name):
    plan = toy_plan()
    assert drift(plan, plan) == []
    found = drift(plan, changed(plan, **{name: WORSE[name]}))
    assert found
    assert all(isinstance(line, str) and line for line in found)


@pytest.mark.parametrize("name", WORSE_ITEM)
def test_every_change_of_any_item_is_found(name):
    for form in FORMS:
        plan = toy_plan(form)
        for item in plan.items:
            if getattr(item, name) != WORSE_ITEM[name]:
                assert drift(plan, with_item(plan, item.id, **{name: WORSE_ITEM[name]}))


@pytest.mark.parametrize("name", ["bytes", "body", "per_round", "times"])
def test_growth_by_one_is_found_and_shrinking_is_none(name):
    plan = toy_plan()
    for item in plan.items:
        value = getattr(item, name)
        assert drift(plan, with_item(plan, item.id, **{name: value + 1}))
        if value:
            assert drift(plan, with_item(plan, item.id, **{name: value - 1})) == []


def test_every_change_of_any_field_of_a_message_is_found():
    plan = toy_plan()
    for item in plan.items:
        for m, message in enumerate(item.messages):
            others = {"name": "Other", "disclosure": Disclosure.MIXED, "fields": ()}
            variants = [changed(message, **{k: v}) for k, v in others.items()]
            for f, field in enumerate(message.fields):
                for key, value in {**dict.fromkeys(type(field).model_fields, "x"),
                                   "shape": (9, 9)}.items():  # fmt: skip
                    fields = list(message.fields)
                    fields[f] = changed(field, **{key: value})
                    variants.append(changed(message, fields=tuple(fields)))
            for variant in variants:
                if variant == message:
                    continue
                messages = list(item.messages)
                messages[m] = variant
                wanted = with_item(plan, item.id, messages=tuple(messages))
                assert drift(plan, wanted)
                assert wanted.digest != plan.digest
                assert wanted.item(item.id).schema_digest != item.schema_digest


def test_fewer_rounds_and_fewer_items_are_none():
    plan = toy_plan(rounds=3)
    assert drift(plan, toy_plan(rounds=2)) == []
    assert drift(plan, toy_plan(rounds=4))
    assert drift(plan, changed(plan, items=plan.items[:-1])) == []
    assert drift(plan, changed(plan, smallest_cohort=9)) == []


def test_a_new_item_is_found():
    plan = toy_plan()
    extra = changed(plan.items[0], id="extra.up.NOISED")
    assert drift(plan, changed(plan, items=(*plan.items, extra)))


def test_digest_and_text_are_stable():
    for form in FORMS:
        plan, again = toy_plan(form), toy_plan(form)
        assert plan.digest == again.digest
        assert plan.text() == again.text()
        read = Plan.model_validate_json(plan.text())
        assert read == plan
        assert read.digest == plan.digest
        assert json.loads(plan.text()) == plan.document()


def test_the_digest_changes_with_every_field():
    plan = toy_plan()
    digests = {plan.digest}
    for name, value in WORSE.items():
        if name != "items":
            digests.add(changed(plan, **{name: value}).digest)
    for name, value in WORSE_ITEM.items():
        digests.add(with_item(plan, "train.up.SUM", **{name: value}).digest)
    assert len(digests) == len(WORSE) + len(WORSE_ITEM)


def test_an_unknown_key_in_a_plan_is_refused_by_name():
    document = toy_plan().document()
    with pytest.raises(ValidationError, match="rounds"):
        Plan.model_validate({**document, "round": 3})
    with pytest.raises(NotInPlan):
        toy_plan().item("train.up.MIXED")


def test_ids_and_clients_are_unique():
    plan = toy_plan()
    document = plan.document()
    for broken in (
        {**document, "items": document["items"] + document["items"][:1]},
        {**document, "clients": [*document["clients"][:4], document["clients"][0]]},
    ):
        with pytest.raises(ValidationError):
            Plan.model_validate(broken)


def test_the_plan_knows_nothing_of_the_data():
    one, two = World(), World()
    for site in two.sites.values():
        site.delta = site.delta * 0 + 0.111
        site.count = 77
    assert one.plan.digest == two.plan.digest


def test_a_small_federation_has_no_plan():
    with pytest.raises(CohortTooSmall):
        toy_plan(clients=names_of(3))
    with pytest.raises(SecureFglError, match="adds at most"):
        toy_plan(clients=names_of(129))


def test_the_plan_says_who_learns_what():
    plan = toy_plan()
    up = plan.item("train.up.SUM")
    assert up.learns["key_authority"].startswith("uniform noise")
    assert "total" in up.learns["aggregator"]
    assert any("SYNTHETIC" in w for w in plan.warnings)
    sizes = {i.id.removeprefix("train."): i.bytes * i.times for i in plan.items}
    assert sizes["vote"] + sizes["shares"] > sizes["self_shares"] > 0  # of two ways, the larger
    assert plan.bytes_up() == sum(
        i.bytes * i.times
        for i in plan.items
        if i.sender == "client" and not i.id.endswith("self_shares")
    )


def test_of_two_ways_of_a_sum_the_larger_counts():
    plan = toy_plan()
    ids = {way: {i.step for i in plan.items if i.way is way} for way in Way}
    assert ids[Way.ONE_ANSWER] == {Step.ALL_HERE, Step.SELF_SHARES}
    assert ids[Way.TWO_STEPS] == {Step.SURVIVORS, Step.VOTE, Step.VOTES, Step.SHARES}
    assert at_most(plan.items, lambda _: 1) == len(plan.items) - 2
    heavy = {Way.ONE_ANSWER: 5, Way.TWO_STEPS: 2, None: 0}
    assert at_most(plan.items, lambda i: heavy[i.way]) == 10
    for item in plan.items:
        beside = plan.instead_of(item)
        assert {i.step for i in beside} == set.union(
            set(), *(ids[way] for way in Way if item.way not in (None, way))
        )
        assert all(item in plan.instead_of(other) for other in beside)


# --- what a party believes of a plan it is given --------------------------------------------------


def context(world, plan):
    return RunContext(
        world.identities["client-1"], world.roster, plan, world.policy, world.run, world.scheme
    )


def test_a_plan_for_another_policy_is_refused():
    world = World()
    assert context(world, world.plan).plan_digest == world.plan.digest
    with pytest.raises(NotInPlan):
        context(world, changed(world.plan, policy_digest="0" * 64))


@pytest.mark.parametrize("how", ["another", "one less", "one more"])
def test_a_plan_made_with_other_disclosures_than_are_here_is_refused(how):
    world = World()
    code = dict(world.plan.code)
    if how == "one less":
        del code["sealed"]
    else:
        code["sealed" if how == "another" else "wider"] = "0" * 64
    other = changed(world.plan, code=code)
    assert other.digest != world.plan.digest
    with pytest.raises(NotInPlan, match=r"disclosures/(sealed|wider)"):
        context(world, other)


def test_a_plan_that_claims_other_guards_than_the_policy_is_refused():
    world = World(policy="unsafe_plaintext")
    claim = tuple(describe(g) for g in World().policy.chain(Disclosure.SUM))
    for lie in ({"guards": claim}, {"unsafe": False}):
        with pytest.raises(NotInPlan):
            context(world, with_item(world.plan, "train.up.SUM", **lie))


def test_a_plan_for_other_clients_than_the_roster_is_refused():
    world = World(clients=8)
    for clients in (names_of(5), (*names_of(7), "mallory")):
        with pytest.raises(NotInPlan):
            context(world, toy_plan(clients=clients))


def test_a_plan_with_a_smaller_cohort_than_the_policy_is_refused():
    world = World()
    with pytest.raises(NotInPlan):
        context(world, changed(world.plan, smallest_cohort=2))


def test_a_plan_names_its_clients_in_order():
    plan = World().plan
    turned = plan.model_dump() | {"clients": tuple(reversed(plan.clients))}
    with pytest.raises(ValueError, match="sorted order"):
        type(plan).model_validate(turned)


@pytest.mark.parametrize("form", [TRAIN, GIFTS])
def test_o12_every_sum_with_a_vector_warns_of_single_contributors(form):
    """Also where a scalar stands beside the vector."""
    plan = toy_plan(form)
    told = {warning.partition(":")[0] for warning in plan.warnings if "(O12)" in warning}
    assert told == {item.id for item in plan.items if item.id.endswith(".up.SUM")}


@pytest.mark.parametrize("short", [0, 1])
def test_an_envelope_that_is_larger_than_planned_does_not_leave(short):
    """Its body is as planned: names and signature count too."""
    plan = World().plan
    size = plan.item("train.up.SUM").bytes
    world = World(plan=with_item(plan, "train.up.SUM", bytes=size - short)).start()
    client = world.clients["client-1"]
    client.receive(world.evil_ask("client-1"))
    left = [e["bytes"] for e in world.entries("client-1") if e.get("item") == "train.up.SUM"]
    assert left == ([] if short else [size])
    assert isinstance(client.last_error, NotInPlan) is bool(short)


def test_a_difference_shows_short_values_and_no_digest():
    plan = toy_plan()
    dims = {**plan.dims, "records": 1 << 20}
    other = changed(plan, policy="other", policy_digest="0" * 64, dims=dims)
    assert drift(plan, other) == [
        f"policy: {plan.policy!r} became 'other'",
        "policy_digest changed",
        "dims: records changed",
    ]
    data = changed(plan.data, records=1 << 20)
    assert drift(plan, changed(plan, data=data)) == ["data: records changed"]
