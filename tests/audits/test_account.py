"""What `audit account` says: labels, planned against recorded."""

from __future__ import annotations

import json
import math
import types
import typing
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from audits.accounting.engines import Meter, sound
from audits.accounting.models import Account, Epsilon
from protocols.plan.cohorts import DrawnPlan
from protocols.plan.plan import Plan
from protocols.policy.guards import Quantise
from protocols.privacy.accounting import rounded_up
from tests.audits.account_tools import CALIBRATED, policy
from tests.audits.noised_run import DELTA, EPSILON, TRAIN, NoisedRun, noise_plan

LABELS = ("unit", "adjacency", "model", "scope", "delta", "assumptions")


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


class ReadRun(NoisedRun):
    """Totals that one client of the cohort reads."""

    def plan(self) -> Plan:
        """Return the plan."""
        found = super().plan()
        noised = [i.model_copy(update={"reader": "client"}) if i.noise else i for i in found.items]
        return found.model_copy(update={"items": tuple(noised)})


def test_o18_who_reads_a_total_adds_no_noise_to_it(quick: None) -> None:
    read, ordinary = ReadRun().account(), NoisedRun().account()
    assert {client.fewest_honest for client in read.clients} == {5}
    assert {client.fewest_honest for client in ordinary.clients} == {6}
    assert read.epsilon.as_float() > ordinary.epsilon.as_float()
    shares = {row.honest: row.epsilon.as_float() for row in read.honest_share}
    assert max(shares) == 5
    # What its reader tells of it another client reads as well, and knows its own noise.
    views = {row.view: row.epsilon.as_float() for row in read.views}
    assert views == {"aggregator": shares[5], "participant": shares[4], "all but one": shares[1]}


class DrawnRun(NoisedRun):
    """A hundred clients in two cohorts that lots drew; rounds ask one of them."""

    def plan(self) -> Plan:
        """Return the plan."""
        return super().plan().model_copy(update={"drawn": DrawnPlan.of(50, 100, self.policy)})


def test_o18_noise_of_all_who_may_be_corrupt_in_a_drawn_cohort_is_not_counted_on(
    quick: None,
) -> None:
    facts = {"clients": 100, "rounds": 1, "survivors": {1: 20}}
    found = DrawnRun(**facts).account()
    assert {client.fewest_honest for client in found.clients} == {10}  # ten may be corrupt
    assert any("at most 10 other clients collude" in t for t in found.epsilon.assumptions)
    whole = NoisedRun(**facts).account()  # the control: the policy names no colluders
    assert {client.fewest_honest for client in whole.clients} == {20}


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
