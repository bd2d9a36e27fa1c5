"""What a policy and a plan admit of matching: chain, cells, roles, sizes (O10, O16, O24, O28)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pydantic import ValidationError

from protocols.disclosures.match.disclosure import CELLS, KEYED, OPEN, SHARED, UNSERVED
from protocols.disclosures.match.guards import Match
from protocols.disclosures.match.protocol.tagging import public
from protocols.disclosures.match.protocol.wire import public_key
from protocols.disclosures.match.run import held, match_run_of
from protocols.disclosures.names import Disclosure
from protocols.disclosures.sum.guards import Mask
from protocols.errors import BadEnvelope, CohortTooSmall, NotAdmitted, NotInPlan, PolicyError
from protocols.forms import Algorithm, Exchange, Form
from protocols.policy.budget import Budget
from protocols.policy.guards import Clip, Quantise, Seal, UnsafeClear
from protocols.policy.policy import PrivacyPolicy
from protocols.wire.envelope import Envelope
from protocols.wire.roles import Role
from protocols.wire.roster import Identity, Roster
from protocols.wire.run_context import RunContext
from tests.protocols.matched import (
    EXPAND,
    Change,
    Found,
    Go,
    Items,
    match_plan,
    match_policy,
    matched_round,
    matching,
)


def rule(*chain):
    document = match_policy().document()
    rules = {**document["rules"], "MATCH": [guard.model_dump() for guard in chain]}
    return PrivacyPolicy.model_validate({**document, "rules": rules})


def test_the_one_chain_of_matching():
    rule(Clip(), Quantise(), Match(), Seal())
    rule(UnsafeClear())
    for chain in (
        (Clip(), Quantise(), Match()),
        (Match(), Seal()),
        (Clip(), Match(), Seal()),
        (Clip(), Quantise(), Mask(), Seal()),
        (Clip(), Quantise(), Match(form="published"), Seal()),
        (Clip(), Quantise(bits=29), Match(), Seal()),
    ):
        with pytest.raises(ValidationError):
            rule(*chain)
    document = match_policy().document()
    for other in ("SUM", "NOISED", "MIXED", "SEALED"):
        rules = {**document["rules"], other: document["rules"]["MATCH"]}
        with pytest.raises(ValidationError):
            PrivacyPolicy.model_validate({**document, "rules": rules})


def test_only_an_unsafe_chain_takes_tags_that_everybody_opens():
    open_ = Match(mode="deterministic")
    assert [str(d) for d in rule(Clip(), Quantise(), open_, UnsafeClear()).unsafe] == ["MATCH"]
    with pytest.raises(ValidationError, match="unsafe_clear"):
        rule(Clip(), Quantise(), open_, Seal())
    plan = match_plan(match_policy(mode="deterministic"))
    assert OPEN in plan.warnings and not {KEYED, SHARED} & set(plan.warnings)
    assert plan.item("expand.up.MATCH").unsafe
    assert "anybody turns these tags back" in plan.item("expand.match.compare").learns["matcher"]
    assert "tag_server" not in {item.recipient for item in plan.items}


@pytest.mark.parametrize(
    ("facts", "smallest"),
    [({}, 5), ({"colluders": 2}, 7), ({"minimum_cohort": 9}, 10),
     ({"minimum_cohort": 9, "colluders": 3}, 13)],
)  # fmt: skip
def test_o10_a_cell_counts_colluders_and_is_no_smaller_than_a_cohort(facts, smallest):
    match_policy(cell=smallest, **facts)
    if smallest > 5:
        with pytest.raises(ValidationError, match=f"cell: at least {smallest}"):
            match_policy(cell=smallest - 1, **facts)


def test_o16_no_budget_stands_beside_matching():
    with pytest.raises(ValidationError, match="O16"):
        match_policy(budget=Budget(epsilon=1.0, delta=1e-6).model_dump())


def test_a_plan_needs_as_many_clients_as_a_cell_and_places_as_tags():
    with pytest.raises(CohortTooSmall, match="cell takes 9"):
        match_plan(match_policy(cell=9), clients=8)
    with pytest.raises(PolicyError, match="fewer places"):
        match_plan(match_policy(), places=15)


@pytest.mark.parametrize(
    "form",
    [
        Form("two", lambda *_: None, (EXPAND.exchanges[0],
             replace(EXPAND.exchanges[0], name="again", given=(Found, Go)))),
        Form("often", lambda *_: None, (replace(EXPAND.exchanges[0], per_round=2),)),
        Form("beside", lambda *_: None, (Exchange("e", (Go,), (Items, Change), lambda *_: None),)),
        Form("given", lambda *_: None, (Exchange("e", (Go, Found), (Change,), lambda *_: None),)),
    ],
    ids=["two", "often", "beside", "given"],
)  # fmt: skip
def test_forms_that_cannot_be_matched_are_not_admitted(form):
    algorithm = Algorithm("toy", "", lambda *_: None, lambda *_: None, (form,), {})
    with pytest.raises(NotAdmitted):
        match_policy().admit(algorithm)


@pytest.mark.parametrize("mode", ["oprf", "hmac"])
def test_the_plan_says_who_sees_what_and_what_it_rests_on(mode):
    plan = match_plan(match_policy(mode=mode))
    roles = {item.recipient for item in plan.items}
    assert ("tag_server" in roles) is (mode == "oprf") and "matcher" in roles
    assert (KEYED in plan.warnings) is (mode == "hmac")
    assert (SHARED in plan.warnings) is (mode == "oprf")
    assert (CELLS if mode == "oprf" else UNSERVED) in plan.warnings
    compare = plan.item("expand.match.compare")
    assert "which tags are equal" in compare.learns["matcher"]
    assert plan.item("learn.down").disclosure is Disclosure.RELEASED
    assert "mean of every cell" in plan.item("learn.down").learns["client"]
    assert plan.item("expand.up.MATCH").guards[2].startswith(f"match(mode={mode}")
    assert {"refusal.matcher"} <= {item.id for item in plan.items}
    assert "epsilon = infinity" in plan.budget


def test_where_anybody_makes_tags_the_plan_does_not_say_that_only_clients_know_the_blinds():
    world = matching(mode="deterministic").start()
    matched_round(world)
    context = world.context("aggregator")
    run = match_run_of(context)
    made = public([], public_key(context.roster), run.match, run.run, 1)  # by the aggregator
    assert made.group == held(world.context("client-1"))._client.held.group
    said = context.plan.item("expand.match.part").learns["aggregator"]
    assert "only clients know" not in said and "totals" in said
    assert not any("both tag servers" in warning for warning in context.plan.warnings)


def context(plan, policy, roles):
    known = {name: Identity.generate(name, role) for name, role in roles.items()}
    roster = Roster(one.party for one in known.values())
    return RunContext(known["aggregator"], roster, plan, policy, "5e" * 16)


def test_o24_a_run_has_two_tag_servers_and_one_matcher():
    policy = match_policy()
    plan = match_plan(policy)
    base = {"aggregator": Role.AGGREGATOR, **dict.fromkeys(plan.clients, Role.CLIENT)}
    servers = {f"tags-{i}": Role.TAG_SERVER for i in range(3)}
    good = {**base, "tags-0": Role.TAG_SERVER, "tags-1": Role.TAG_SERVER, "m": Role.MATCHER}
    context(plan, policy, good)
    for roles, why in (
        ({**base, "m": Role.MATCHER}, "0 parties in role tag_server"),
        ({**base, "m": Role.MATCHER, "tags-0": Role.TAG_SERVER}, "1 parties in role tag_server"),
        ({**base, "m": Role.MATCHER, **servers}, "at most 2 parties in role tag_server"),
        ({k: v for k, v in good.items() if k != "m"}, "0 parties in role matcher"),
        ({**good, "n": Role.MATCHER}, "at most 1 parties in role matcher"),
    ):
        with pytest.raises((NotInPlan, BadEnvelope), match=why):
            context(plan, policy, roles)


def test_o24_one_party_is_not_both_tag_servers():
    one = Identity.generate("tags-1", Role.TAG_SERVER)
    other = replace(one.party, name="tags-2")
    aggregator = Identity.generate("aggregator", Role.AGGREGATOR)
    with pytest.raises(BadEnvelope, match="same key"):
        Roster([aggregator.party, one.party, other])
    with pytest.raises(BadEnvelope, match="same key"):
        Roster([aggregator.party, one.party, replace(one.party, name="m", role=Role.MATCHER)])


def test_a_plan_of_another_cell_is_not_the_policys():
    """A policy that was changed after the plan was approved."""
    plan = match_plan(match_policy())
    changed = match_policy(cell=6)
    roles = {"aggregator": Role.AGGREGATOR, **dict.fromkeys(plan.clients, Role.CLIENT)}
    roles |= {"a": Role.TAG_SERVER, "b": Role.TAG_SERVER, "m": Role.MATCHER}
    with pytest.raises(NotInPlan, match="another policy"):
        context(plan, changed, roles)
    forged = plan.model_copy(
        update={"policy_digest": changed.digest, "policy_fields": changed.fields()}
    )
    with pytest.raises(NotInPlan, match="another protection"):
        context(forged, changed, roles)


@pytest.mark.parametrize("mode", ["oprf", "hmac"])
def test_o28_sizes_tell_nothing_of_how_much_a_client_holds(mode):
    world = matching(mode=mode).start()
    assert len({len(site.items) for site in world.sites.values()}) > 3
    matched_round(world)
    sizes: dict[str, set[int]] = {}
    for data in world.wire:
        header = Envelope.decode(data).header
        sizes.setdefault(header.item, set()).add(len(data) - len(header.sender + header.recipient))
    assert {i for i in sizes if "match" in i.lower()} == {
        i.id for i in world.plan.items if "match" in i.id.lower() and "refusal" not in i.id
    }
    assert all(len(found) == 1 for item, found in sizes.items() if "match" in item.lower())
    largest = {item.id: item.bytes for item in world.plan.items}
    for data in world.wire:
        assert len(data) <= largest[Envelope.decode(data).header.item]


def test_hmac_needs_a_key_and_oprf_takes_none():
    from protocols.disclosures.match.run import MatchSide
    from protocols.errors import LocalProtocolError

    for mode, key in (("hmac", None), ("oprf", bytes(32))):
        world = matching(mode=mode)
        run = match_run_of(world.context("aggregator"))
        with pytest.raises(LocalProtocolError, match="key of tags"):
            MatchSide(run, world.identities["client-1"], key)
