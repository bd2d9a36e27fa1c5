"""Mixtures in the evidence: an honest run verifies, and the report says what they tell (O22)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from algorithms.tasks import Site
from audits.attacks._shared.payloads import payloads_of
from audits.evidence.verify import verify
from audits.report.build import build_report
from protocols.disclosures.mixed.guards import Blur, Mix
from protocols.disclosures.names import Disclosure
from protocols.policy.guards import Clip, Seal
from protocols.policy.policy import PrivacyPolicy
from tests.audits.forging import edit_last, forge
from tests.audits.toy_run import Toy, run_toy
from tests.toys.mixed import mixed

FIVE = tuple(f"client-{i}" for i in range(1, 6))


def site(name: str) -> Any:
    """Return a site of 24 records of its own."""
    rng = np.random.default_rng(int(name[-1]))
    index = np.stack([np.roll(np.arange(24), s) for s in range(3)], axis=1)
    facts = {"table": rng.normal(size=(24, 4)), "index": index, "label": rng.integers(2, size=24)}
    return Site(SimpleNamespace(**facts), seed=1)


def policy(*more: Any, floor: int = 8, preset: str = "masks") -> PrivacyPolicy:
    chosen = PrivacyPolicy.preset(preset)
    chain = (Clip(norm="l2", bound=16.0), Mix(floor=floor, apart=2, bucket=1), *more, Seal())
    return chosen.model_copy(update={"rules": {**chosen.rules, Disclosure.MIXED: chain}})


class Fading:
    """A table of which nothing is left from the second round on, when the toy scales it again."""

    def __init__(self, table: Any) -> None:
        self._table, self._rounds = table, 0

    def __mul__(self, by: float) -> Any:
        self._rounds += 1
        return self._table * (by if self._rounds == 1 else 0.0)


def fading(name: str) -> Any:
    """Return a site whose records are one point from the second round on."""
    found = site(name)
    found.data.table = Fading(found.data.table)
    return found


def run(chosen: PrivacyPolicy | str, sites: Any = site) -> Toy:
    toy = mixed(group=1, places=3, f=4, c=2, mixtures=24)
    return run_toy(chosen, rounds=2, clients=FIVE, site=sites, algorithm=toy)


@pytest.fixture(scope="module")
def honest() -> Toy:
    return run(policy())


def rules(view: Any) -> dict[str, Any]:
    return {f.rule: f for f in build_report(view).findings if f.rule.startswith("MIXTURES")}


@pytest.mark.parametrize("preset", ["masks", "pilot"])
def test_an_honest_run_verifies(preset: str) -> None:
    assert verify(run(policy(preset=preset)).view()).ok


def test_the_report_says_what_the_aggregator_read(honest: Toy) -> None:
    assert verify(honest.view()).ok
    found = rules(honest.view())
    assert set(found) == {"MIXTURES"}
    assert "5 clients" in found["MIXTURES"].message and "at least 8" in found["MIXTURES"].message
    assert found["MIXTURES"].severity == "medium" and found["MIXTURES"].payload == "P10"
    views = {view.viewer: view.sees for view in build_report(honest.view()).views}
    assert any("mixtures of one client's records" in seen for seen in views["aggregator"])
    (item,) = [i for i in honest.plan.items if i.id == "mash.up.MIXED"]
    assert payloads_of(item, honest.plan, policy()) == ("P10", "P11")
    (warned,) = [w for w in honest.plan.warnings if w.startswith("mash.up.MIXED")]
    assert "attack A06" in warned and "how many centres of each class" in warned
    assert "how many training nodes a client has" in warned


def test_no_page_of_the_report_calls_mixtures_totals(honest: Toy) -> None:
    report = build_report(honest.view())
    assert "): mixtures of one client's records each, which the aggregator reads." in report.summary
    assert "10 envelopes of these carried what the clients computed" in report.summary
    assert "records mixed, sealed to the recipient" in report.verdict_strip[1].answer
    assert "mixed features of several records (P10)" in report.verdict_strip[1].answer
    assert {line.state for line in report.verdict_strip[1:3]} <= {"ATTENTION", "NOT TESTED"}
    assert "reads mixtures of every client's records" in report.verdict_strip[2].answer
    assert sum("mixtures of single clients' records" in limit for limit in report.limits) == 1
    assert sum("Whoever chooses the layer" in limit for limit in report.limits) == 1
    bare = build_report(run("unsafe_plaintext").view())
    assert "mixtures" not in bare.summary and not any("mixtures of" in x for x in bare.limits)


def test_in_clear_the_finding_is_another_one() -> None:
    toy = run("unsafe_plaintext")
    assert verify(toy.view()).ok and rules(toy.view()) == {}
    assert "UNSAFE_CLEAR" in {f.rule for f in build_report(toy.view()).findings}


def drawn_twice(entries: list[Any]) -> list[Any]:
    place = next(i for i, e in enumerate(entries) if e["kind"] == "mix")
    return [*entries[: place + 1], entries[place], *entries[place + 1 :]]


def never_drawn(entries: list[Any]) -> list[Any]:
    return [e for e in entries if e["kind"] != "mix"]


@pytest.mark.parametrize("change", [drawn_twice, never_drawn, edit_last("mix", floor=4)])
def test_o15_groups_that_were_not_drawn_exactly_once_are_found(honest: Toy, change: Any) -> None:
    view = forge(honest, honest.view(reports=False), "client-2", change)
    found = rules(view)["MIXTURES_REDRAWN"]
    assert found.severity == "critical" and "client-2" in found.message


def test_where_single_records_follow_the_report_says_of_how_many(honest: Toy) -> None:
    change = edit_last("mix", alone=16)
    found = rules(forge(honest, honest.view(reports=False), "client-4", change))
    said = found["MIXTURES_ALONE"].message
    assert "At 1 client at least 16 records" in said and "not computed" not in said
    assert found["MIXTURES_ALONE"].severity == "medium"


def not_computed(entries: list[Any]) -> list[Any]:
    return [{k: v for k, v in e.items() if k != "alone"} for e in entries]


def test_where_it_was_not_computed_the_report_says_so(honest: Toy) -> None:
    view = forge(honest, honest.view(reports=False), "client-4", not_computed)
    said = rules(view)["MIXTURES_ALONE"].message
    assert said.startswith("At 1 client it was not computed")


def test_the_report_says_who_was_left_out(honest: Toy) -> None:
    change = edit_last("mix", mixtures=0)
    found = rules(forge(honest, honest.view(reports=False), "client-4", change))
    assert "1 client sent no mixture" in found["MIXTURES_NONE"].message
    assert found["MIXTURES_NONE"].severity == "info"
    assert "mixtures of each of 4 clients" in found["MIXTURES"].message


def test_the_report_says_how_many_mixtures_stayed_away(honest: Toy) -> None:
    toy = run(policy(), fading)
    assert verify(toy.view()).ok
    found = rules(toy.view())
    assert set(found) == {"MIXTURES", "MIXTURES_WITHHELD"}
    away = found["MIXTURES_WITHHELD"]
    assert "15 mixtures of 5 clients stayed away in 5 releases" in away.message
    assert away.severity == "info" and "MIXTURES_WITHHELD" not in rules(honest.view())


def test_noise_on_mixtures_claims_no_epsilon() -> None:
    toy = run(policy(Blur(multiplier=0.5)))
    assert toy.plan.budget.startswith("noise is added to mash.up.MIXED and not accounted")
    assert "epsilon = infinity" in toy.plan.budget
    (item,) = [i for i in toy.plan.items if i.id == "mash.up.MIXED"]
    assert item.learns["aggregator"].startswith("noised mixtures") and item.noise is None
    report = build_report(toy.view())
    assert all(f.rule != "UNPLANNED" for f in report.findings) and verify(toy.view()).ok
