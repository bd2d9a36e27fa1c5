"""What an epsilon covers (O16), and whom one has to trust."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pydantic import ValidationError

from audits.accounting.account import account_of
from audits.accounting.models import Account
from audits.evidence.steps import Case, Verification
from protocols.disclosures.names import Disclosure
from protocols.disclosures.sum.guards import Noise
from protocols.policy.policy import PRESETS, PrivacyPolicy
from protocols.wire.control import Refusal
from tests.audits.account_tools import CALIBRATED, item, policy
from tests.audits.noised_run import DELTA, EPSILON, SCORE, TRAIN, NoisedRun, noise_plan


def test_o16_everything_covered_gives_a_number_for_the_run(found: Account) -> None:
    assert found.statement == (
        f"ε = {found.epsilon.value} at δ = 1e-05 for the run, against the aggregator; "
        f"covered: {TRAIN}; not covered: who took part, and when"
    )
    assert found.epsilon.scope == "run" and found.target and found.target.scope == "run"


def test_o16_one_sum_without_noise_makes_the_run_infinite(quick: None) -> None:
    run = NoisedRun()
    found = NoisedRun(more=(item(run),)).account()
    assert found.statement == f"ε = ∞ for the run; covered: {TRAIN}; not covered: {SCORE}"
    assert found.epsilon.value == "infinity"
    assert found.epsilon.delta == "not applicable"
    assert {row.scope for row in found.scopes} == {"message", "round", "covered messages"}
    assert found.target and found.target.scope == "covered messages"
    assert found.verdict == "NOT FALSIFIED"  # of what the target is about


@pytest.mark.parametrize(
    "disclosure", ["SUM", "WEIGHTED_SUM", "SIMILARITY", "MATCH", "MIXED", "NOISED", "SEALED"]
)
def test_o16_every_disclosure_counts(disclosure: str, quick: None) -> None:
    id = f"extra.up.{disclosure}"
    more = item(NoisedRun(), id, disclosure=disclosure, guards=("seal",))
    found = NoisedRun(more=(more,)).account()
    assert [(entry.item, entry.why) for entry in found.not_covered] == [(id, "no noise")]


def test_o16_the_layer_s_own_messages_say_nothing_of_the_data(quick: None) -> None:
    run = NoisedRun()
    own = tuple(
        run.own(id, name)
        for id, name in (("pair.boxes", "PairBoxes"), ("x.shares", "Shares"), ("x.ack", "Shares"))
    )
    assert NoisedRun(more=own).account().not_covered == ()
    borrowed = (run.own("x.up.SEALED", Refusal.__name__), run.own("x.shares", "Update"))
    found = NoisedRun(more=borrowed).account()
    assert [entry.item for entry in found.not_covered] == ["x.up.SEALED", "x.shares"]


def test_o16_noise_on_a_part_of_a_vector_covers_nothing(quick: None) -> None:
    found = NoisedRun(entries=9).account()
    assert found.not_covered[0].why == "noise on 8 of 9 entries"
    assert (found.verdict, found.covered) == ("NO CLAIM", ())


def test_o16_noise_that_the_guards_do_not_add_covers_nothing(quick: None) -> None:
    noise = noise_plan(CALIBRATED, 3)
    bare = item(NoisedRun(), noise=noise, guards=("clip", "quantise", "mask", "seal"))
    found = NoisedRun(more=(bare,)).account()
    assert [entry.item for entry in found.not_covered] == [SCORE]


def test_o16_a_refusal_that_happened_is_not_covered(quick: None, found: Account) -> None:
    assert "refusal.client" not in found.statement  # planned as possible only
    refused = NoisedRun(refusals=("client-02",)).account()
    assert refused.statement.endswith("not covered: refusal.client")
    assert refused.epsilon.value == "infinity"
    assert "one of 6 codes" in refused.not_covered[0].why


def test_o16_what_left_otherwise_than_planned_is_not_covered(quick: None) -> None:
    bare = NoisedRun(protection=("clip", "quantise", "seal")).account()
    assert (bare.covered, bare.not_covered[0].why) == ((), "left without its noise")
    stray = NoisedRun(sent=("stray.up.SUM",)).account()
    assert stray.not_covered[0].item == "stray.up.SUM"
    assert stray.not_covered[0].why == "left and was not planned"


def test_o16_a_ledger_that_cannot_be_read_leaves_nothing_covered(quick: None) -> None:
    view = NoisedRun().view()
    for spoilt in (b"nonsense\n", None):
        ledgers = {**view.ledgers, "client-02": spoilt}
        kept = {name: data for name, data in ledgers.items() if data is not None}
        found = account_of(Case(replace(view, ledgers=kept)), Verification(()))
        assert found.statement == f"ε = ∞ for the run; covered: nothing; not covered: {TRAIN}"
        assert found.not_covered[0].why == "the ledger of client-02 cannot be read"
        unknown = [c.name for c in found.clients if c.epsilon.value == "infinity"]
        assert unknown == ["client-02"]


@pytest.mark.parametrize("name", sorted(set(PRESETS) - {"calibrated", "ldp"}))
def test_o16_without_noise_there_is_no_claim(name: str) -> None:
    found = NoisedRun(policy=PrivacyPolicy.preset(name), budget=None).account()
    assert found.statement == f"ε = ∞ for the run; covered: nothing; not covered: {TRAIN}"
    assert (found.verdict, found.reasons, found.target) == ("NO CLAIM", (), None)
    assert {client.epsilon.value for client in found.clients} == {"infinity"}
    assert found.scopes == found.engines == found.honest_share == ()


def test_items_that_share_one_noise_share_its_releases(quick: None) -> None:
    noise = noise_plan(CALIBRATED, 6)
    run = NoisedRun(releases=6)
    run.more = (item(run, noise=noise),)
    found = run.account()
    assert len(found.noise) == 1
    assert found.noise[0].items == (TRAIN, SCORE)
    by_scope = {row.scope: row for row in found.scopes}
    assert by_scope["run"].planned.as_float() == pytest.approx(EPSILON, rel=1e-5)
    assert by_scope["round"].planned.as_float() > by_scope["message"].planned.as_float() * 1.2
    assert found.clients[0].releases == 3  # only one of the two was sent


def test_noise_outside_a_masked_sum_is_no_policy() -> None:
    """Each upload would carry one share of the noise; epsilon is planned for the sum of them."""
    with pytest.raises(ValidationError, match="needs 'mask' after it"):
        policy(seal=False)
    chain = tuple(g for g in CALIBRATED.rules[Disclosure.SUM] if g.guard != "mask")
    encrypted = (*chain[:3], *PRESETS["he"].rules[Disclosure.SUM][3:])
    for bare in (chain, encrypted):
        with pytest.raises(ValidationError, match="needs 'mask' after it"):
            policy(rules={**CALIBRATED.rules, Disclosure.SUM: bare})


def test_laplace_is_local_and_opacus_does_not_apply() -> None:
    chain = CALIBRATED.rules[Disclosure.SUM]
    laplace = Noise(mechanism="discrete_laplace", epsilon=EPSILON, delta=DELTA)
    rules = {**CALIBRATED.rules, Disclosure.SUM: (*chain[:2], laplace, *chain[3:])}
    run = NoisedRun(policy=policy(rules=rules), noise={"mechanism": "discrete_laplace"})
    found = run.account()
    assert found.epsilon.model == "local"
    assert found.verdict == "NOT FALSIFIED"
    assert [row.epsilon is None for row in found.engines] == [False, True, True]
    assert "assumes Gaussian noise" in found.engines[1].note
    assert found.honest_share == ()
