"""The account: six labels on every number, O16's sentence, and claims that their record refutes."""

from __future__ import annotations

import json
import math
import types
import typing
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from audits import account as account_module
from audits.account import account, account_of
from audits.accounting import engines, models, rows
from audits.accounting.engines import Meter, differs, opacus, sound
from audits.accounting.models import Account, Epsilon, rounded_up
from audits.steps import Case, Status, Step, Verification
from protocols.control import Refusal
from protocols.disclosures import Disclosure
from protocols.errors import EvidenceError
from protocols.guards import Noise, Quantise, UnsafeClear
from protocols.plan import Item, NoisePlan
from protocols.policy import PRESETS, PrivacyPolicy
from tests.audits.noised_run import DELTA, EPSILON, SCORE, TRAIN, NoisedRun, message, noise_plan

LABELS = ("unit", "adjacency", "model", "scope", "delta", "assumptions")
CALIBRATED = PrivacyPolicy.preset("calibrated")


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave Opacus out: importing it takes seconds."""
    monkeypatch.setattr(rows, "opacus", lambda history, delta: [("Opacus RDP", "left out")])


@pytest.fixture(scope="module")
def found() -> Account:
    return NoisedRun().account()


def policy(*, seal: bool = True, **changes: Any) -> PrivacyPolicy:
    """Return `calibrated` with other settings."""
    chain = CALIBRATED.rules[Disclosure.SUM]
    if not seal:
        chain = (*chain[:3], UnsafeClear())
    rules = {**CALIBRATED.rules, Disclosure.SUM: chain}
    return PrivacyPolicy.model_validate({**CALIBRATED.model_dump(), "rules": rules, **changes})


def item(run: NoisedRun, id: str = SCORE, **facts: Any) -> Item:
    return run.item(id, (message("Score"),), **facts)


# --- the labels ---------------------------------------------------------------------------------


@pytest.mark.parametrize("label", LABELS)
def test_c1_a_number_without_one_of_its_labels_does_not_exist(label: str, found: Account) -> None:
    facts = found.epsilon.model_dump()
    assert Epsilon.model_validate(facts) == found.epsilon
    with pytest.raises(ValidationError):
        Epsilon.model_validate({k: v for k, v in facts.items() if k != label})
    with pytest.raises(ValidationError):
        Epsilon.model_validate({**facts, label: () if label == "assumptions" else ""})


@pytest.mark.parametrize(
    "wrong",
    [
        {"value": "nan"}, {"value": "-1"}, {"value": ""}, {"delta": "1.5"}, {"scope": "epoch"},
        {"delta": "not applicable"}, {"unit": "person"}, {"adjacency": "some"}, {"model": "good"},
    ],
)  # fmt: skip
def test_c1_labels_are_of_closed_lists(wrong: dict[str, str], found: Account) -> None:
    with pytest.raises(ValidationError):
        Epsilon.model_validate({**found.epsilon.model_dump(), **wrong})


def _types(kind: Any) -> Iterator[Any]:
    inner = typing.get_args(kind)
    yield kind
    for part in inner:
        yield from _types(part)


def test_c1_no_epsilon_of_an_account_is_a_bare_number() -> None:
    waiting, seen = [Account], set[type[BaseModel]]()
    while waiting:
        model = waiting.pop()
        seen.add(model)
        for name, field in model.model_fields.items():
            kinds = set(_types(field.annotation)) - {types.NoneType}
            nested = {k for k in kinds if isinstance(k, type) and issubclass(k, BaseModel)}
            waiting += [k for k in nested if k not in seen]
            said = name in {"epsilon", "target", "planned", "recorded", "cap"}
            assert not said or Epsilon in nested or kinds == {int}, (model, name)
            assert float not in kinds, (model, name)
    assert len(seen) > 10


def test_c1_every_number_that_is_told_has_six_labels(found: Account) -> None:
    told = 0
    waiting: list[Any] = [json.loads(found.model_dump_json())]
    while waiting:
        part = waiting.pop()
        waiting += (
            list(part.values())
            if isinstance(part, dict)
            else part
            if isinstance(part, list)
            else []
        )
        if isinstance(part, dict) and "value" in part:
            told += 1
            assert all(part[label] for label in LABELS)
            assert (part["unit"], part["adjacency"]) == ("client", "zero-out")
    assert told > 20


def test_numbers_are_rounded_up_never_down() -> None:
    for value in (1.0000001, 0.1, 1 / 3, 7.9999999, 1e-9, 123456.7):
        assert value <= float(rounded_up(value)) <= value * 1.00001
    assert rounded_up(math.inf) == rounded_up(math.nan) == "infinity"


# --- planned against recorded -------------------------------------------------------------------


def test_o18_the_record_is_counted_from_survivors_of_opened_totals(found: Account) -> None:
    assert found.verdict == "NOT FALSIFIED"
    assert found.reasons == ()
    by_scope = {row.scope: row for row in found.scopes}
    assert list(by_scope) == ["message", "round", "run"]
    planned, recorded = by_scope["run"].planned.as_float(), by_scope["run"].recorded.as_float()
    assert planned == pytest.approx(EPSILON, rel=1e-5)  # calibrated for four honest shares
    assert recorded < planned * 0.9  # six were there
    shares = {row.honest: row.epsilon.as_float() for row in found.honest_share}
    assert recorded == shares[6] and planned == shares[4]
    assert found.epsilon == found.clients[0].epsilon
    assert (found.items[0].planned, found.items[0].recorded, found.items[0].opened) == (3, 3, 3)
    assert found.items[0].survivors == 6


def test_o18_fewer_survivors_in_one_round_cost_more(quick: None, found: Account) -> None:
    fewer = NoisedRun(survivors={2: 4}).account()
    assert found.epsilon.as_float() < fewer.epsilon.as_float() < EPSILON
    assert {client.fewest_honest for client in fewer.clients} == {4}
    assert fewer.items[0].survivors == 4
    assert fewer.verdict == "NOT FALSIFIED"


def test_o18_too_few_survivors_falsify_the_claim(quick: None) -> None:
    found = NoisedRun(survivors=dict.fromkeys((1, 2, 3), 3)).account()
    assert found.verdict == "FALSIFIED"
    assert "the ledgers show epsilon" in found.reasons[0]
    assert found.epsilon.as_float() > EPSILON


def test_o18_colluders_noise_is_not_counted_on(quick: None) -> None:
    found = NoisedRun(clients=8, policy=policy(colluders=2)).account()
    assert {client.fewest_honest for client in found.clients} == {6}
    assert any("2 other clients collude" in text for text in found.epsilon.assumptions)
    few = NoisedRun(clients=8, policy=policy(colluders=2), survivors={1: 5, 2: 5, 3: 5}).account()
    assert few.verdict == "FALSIFIED"


def test_o18_a_total_holds_no_more_clients_than_sent_something(quick: None) -> None:
    skips = frozenset((f"client-{n:02d}", r) for n in (4, 5, 6) for r in (1, 2, 3))
    found = NoisedRun(skips=skips).account()  # the aggregator says that six survived
    assert found.items[0].survivors == 3
    assert found.verdict == "FALSIFIED"


def test_o18_the_three_who_could_look(found: Account) -> None:
    views = {row.view: row.epsilon.as_float() for row in found.views}
    shares = {row.honest: row.epsilon.as_float() for row in found.honest_share}
    assert views == {"aggregator": shares[6], "participant": shares[5], "all but one": shares[1]}


def test_o20_what_was_released_counts_though_it_was_never_opened(quick: None) -> None:
    found = NoisedRun(survivors=dict.fromkeys((1, 2, 3), 0)).account()
    assert found.epsilon.as_float() == pytest.approx(EPSILON, rel=1e-5)
    assert found.items[0].opened == found.items[0].survivors == 0
    assert {client.opened for client in found.clients} == {0}


def test_o5_a_total_opened_twice_counts_twice(quick: None, found: Account) -> None:
    again = NoisedRun(reopened=frozenset({1, 2, 3})).account()
    assert again.clients[0].releases == 6
    assert again.verdict == "FALSIFIED"
    twice = NoisedRun(twice=frozenset({1, 2, 3})).account()
    assert twice.clients[0].releases == 6


def test_each_client_has_its_own_number(quick: None) -> None:
    found = NoisedRun(skips=frozenset({("client-03", 1), ("client-03", 2)})).account()
    spent = {client.name: client for client in found.clients}
    assert (spent["client-03"].releases, spent["client-01"].releases) == (1, 3)
    assert spent["client-03"].epsilon.as_float() < spent["client-01"].epsilon.as_float()
    assert found.epsilon == spent["client-01"].epsilon  # never a sum over clients


def test_more_releases_than_were_calibrated_for_falsify_the_claim(quick: None) -> None:
    found = NoisedRun(rounds=12, releases=3).account()
    assert found.verdict == "FALSIFIED"
    assert [row.recorded for row in found.items] == [12]


def test_a_plan_whose_noise_misses_its_own_target_is_falsified(quick: None) -> None:
    enough = noise_plan(CALIBRATED, 3)
    less = NoisedRun(noise={"sigma": repr(float(enough.sigma) * 0.99)}, survivors={1: 0}).account()
    assert less.verdict == "FALSIFIED"
    assert "the noise that was planned gives" in less.reasons[0]


def test_o14_a_plan_that_understates_its_sensitivity_is_counted_with_the_true_one(
    quick: None,
) -> None:
    true = noise_plan(CALIBRATED, 3)
    facts = {"l2": repr(float(true.l2) / 4), "l1": "9.0", "sigma": repr(float(true.sigma) / 4)}
    found = NoisedRun(noise=facts).account()
    assert found.verdict == "FALSIFIED"
    assert float(found.noise[0].l2) == float(true.l2)
    unchanged = sound(true, Quantise(bits=16))
    assert unchanged == true


def test_o21_no_credit_for_sampling(found: Account, quick: None) -> None:
    assert any("no credit for sampling" in text for text in found.epsilon.assumptions)
    many = NoisedRun(clients=40).account()  # each sum holds all: more clients, more noise
    assert many.honest_share[0].honest == 40
    drawn = {(TRAIN, 6): 3}
    meter = Meter({TRAIN: noise_plan(CALIBRATED, 3)}, DELTA, 6)
    assert [rate for _, rate, _ in meter.central(drawn) or ()] == [1.0]


# --- coverage (O16) -----------------------------------------------------------------------------


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


@pytest.mark.parametrize("name", sorted(set(PRESETS) - {"calibrated"}))
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


# --- who is trusted -----------------------------------------------------------------------------


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


# --- the budget (O20) ---------------------------------------------------------------------------


def budget(**facts: Any) -> dict[str, Any]:
    return {"epsilon": "8", "delta": repr(DELTA), "entries": 1, **facts}


def test_o20_the_store_s_state_stands_beside_each_client(found: Account) -> None:
    for client in found.clients:
        assert client.budget is not None
        assert (client.budget.epsilon.value, client.budget.cap.value) == ("8.0", "10.0")
        assert client.budget.epsilon.scope == "all runs"


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        (budget(epsilon="10.5"), "is exceeded"),
        (budget(epsilon="nan"), "is exceeded"),
        (budget(epsilon="much"), "is exceeded"),
        (budget(delta="0.01"), "is exceeded"),
        (None, "before a budget was reserved"),
    ],
)
def test_o20_a_budget_exceeded_or_not_reserved_falsifies(
    facts: dict[str, Any] | None, why: str, quick: None
) -> None:
    found = NoisedRun(budget=facts).account()
    assert found.verdict == "FALSIFIED"
    assert [why in reason for reason in found.reasons] == [True]


def test_o20_a_reservation_after_the_first_noise_is_none(quick: None) -> None:
    run = NoisedRun()
    entries = NoisedRun._entries

    def late(self: NoisedRun, name: str, plan: Any) -> Iterator[Any]:
        found = list(entries(self, name, plan))
        yield from (*found[1:], found[0])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(NoisedRun, "_entries", late)
        assert run.account().verdict == "FALSIFIED"


# --- the other arithmetics ----------------------------------------------------------------------


def test_opacus_agrees_on_the_equivalent_gaussian(found: Account) -> None:
    own, rdp, prv = found.engines
    assert own.epsilon == found.clients[0].epsilon or own.epsilon is not None
    assert rdp.epsilon and prv.epsilon
    assert rdp.epsilon.as_float() == pytest.approx(found.epsilon.as_float(), rel=1e-3)
    assert 0.9 < float(prv.ratio) < 1.0
    assert not any(engine.differs for engine in found.engines)
    assert not any("gdp" in engine.engine.lower() for engine in found.engines)


@pytest.mark.parametrize(("missing", "epsilon"), [(0, 13.2), (2, 14.1), (10, 20.7), (18, 64.2)])
def test_c4_the_worked_example(missing: int, epsilon: float) -> None:
    history = [(4.0 * math.sqrt((20 - missing) / 20), 1.0, 100)]
    values = dict(opacus(history, 1e-5))
    assert values["Opacus PRV"] == pytest.approx(epsilon, rel=0.01)
    assert values["Opacus PRV"] < values["Opacus RDP"] < values["Opacus PRV"] * 1.1


def test_c4_one_honest_client_is_above_what_prv_is_asked_for() -> None:
    values = dict(opacus([(4.0 / math.sqrt(20), 1.0, 100)], 1e-5))
    assert values["Opacus RDP"] > 109
    assert "not computed" in values["Opacus PRV"]


def test_many_shares_are_merged_towards_less_noise() -> None:
    history = [(4.0 + n / 100, 1.0, 5) for n in range(20)]
    values, least = dict(opacus(history, 1e-5)), dict(opacus([(4.0, 1.0, 100)], 1e-5))
    assert len(engines._few(history)) <= 8
    assert values["Opacus PRV"] > dict(opacus([(4.1, 1.0, 100)], 1e-5))["Opacus PRV"] * 0.99
    assert values["Opacus PRV"] <= least["Opacus PRV"]


def test_arithmetics_that_differ_by_more_than_a_tenth_are_said_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rows, "opacus", lambda history, delta: [("Opacus RDP", 5.0), ("x", 6.3)])
    found = NoisedRun().account()
    assert [engine.differs for engine in found.engines] == [False, True, False]
    assert found.engines[1].note.startswith("DIFFERS")
    assert found.verdict == "NOT FALSIFIED"
    assert [differs(1.0, x) for x in (0.89, 0.91, 1.0, 1.09, 1.11, math.nan)] == [
        True, False, False, False, True, True,
    ]  # fmt: skip


# --- the honest share ---------------------------------------------------------------------------


def test_c4_the_whole_column_is_told(found: Account, quick: None) -> None:
    assert [(row.missing, row.honest) for row in found.honest_share] == [
        (x, 6 - x) for x in range(6)
    ]
    column = [row.epsilon.as_float() for row in found.honest_share]
    assert column == sorted(column)
    assert column[-1] > 2 * column[0]
    many = NoisedRun(clients=200).account().honest_share
    missing = [row.missing for row in many]
    assert {0, 1, 196, 199} <= set(missing)  # 196: what the plan counts on
    assert len(missing) < 20
    assert [row.honest for row in many] == [200 - x for x in missing]


# --- hostile files ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "facts",
    [
        {"sigma": "nan"}, {"sigma": "-1"}, {"sigma": "x"}, {"l2": "inf"}, {"l1": "0"},
        {"honest": 0}, {"honest": 7}, {"honest": 10**15}, {"releases": 0}, {"releases": 10**15},
        {"coordinates": 10**15}, {"delta": "1"}, {"delta": "0"}, {"epsilon": "0"},
        {"mechanism": "gaussian"},
    ],
)  # fmt: skip
def test_noise_that_cannot_be_counted_with_is_refused(facts: dict[str, Any]) -> None:
    noise = noise_plan(CALIBRATED, 3).model_copy(update=facts)
    run = NoisedRun()
    with pytest.raises(EvidenceError) as raised:
        NoisedRun(more=(item(run, noise=noise),)).account()
    assert raised.value.step == "plan"


def test_noise_outside_of_what_was_analysed_has_no_bound(quick: None) -> None:
    found = NoisedRun(noise={"sigma": "0.3"}).account()
    assert found.verdict == "FALSIFIED"
    assert found.epsilon.value == "infinity"


def test_broken_evidence_is_told(quick: None) -> None:
    view = NoisedRun().view()
    found = account(view)  # written by hand, so without receipts and heads
    assert found.failed
    assert found.evidence.startswith("FAILED at")
    step = Step("receipts", Status.FAIL, "x")
    told = account_of(Case(view), Verification((step,)))
    assert (told.failed, told.evidence) == (("receipts",), "FAILED at receipts")
    with pytest.raises(EvidenceError):
        account(replace(view, plan_text=b"{}"))


def test_reading_changes_nothing(quick: None) -> None:
    view = NoisedRun().view()
    case = Case(view)
    one, two = (account_of(case, Verification(())) for _ in range(2))
    assert one == two == account_of(Case(view), Verification(()))


def test_names_are_unique(found: Account) -> None:
    assert models.Account is account_module.Account
    assert len({client.name for client in found.clients}) == len(found.clients) == 6
    assert isinstance(noise_plan(CALIBRATED, 3), NoisePlan)
