"""Items matched by tags in the evidence: one canary, one batch, and who saw what (O24, O25)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from audits.evidence.steps import Verification
from audits.evidence.verify import verify
from audits.exporters import assessment
from audits.report.build import build_report
from protocols.disclosures.match.disclosure import MatchPlanning
from protocols.evidence.ledger import Entry
from tests.audits.forging import Change, rewrite
from tests.audits.lies import drop, finds, setting
from tests.audits.toy_run import Bus, Lose, Toy, lose, run_toy
from tests.protocols.matched import CAP, ITEMS, WIDE, WIDTH, match_policy, toy
from tests.protocols.matching import KEY, crowd
from tests.thinned import thinned

ELEVEN = tuple(f"client-{i:02d}" for i in range(1, 12))
OWN = dict(zip(ELEVEN, crowd(11, ITEMS, CAP).values(), strict=True))
GONE = "client-03"
STEPS = ("up.MATCH", "halfway", "onward", "tagged", "tags", "told", "split", "mates", "part")


def site(name: str) -> Any:
    rng = np.random.default_rng(ELEVEN.index(name))
    vector = rng.uniform(-0.9, 0.9, WIDTH)
    return SimpleNamespace(items=OWN[name], vector=vector, memory={}, draws={})


def run(mode: str = "oprf", losing: Lose | None = None, rounds: int = 2, **guard: Any) -> Toy:
    places = guard.pop("places", CAP)
    facts: Any = {"clients": ELEVEN, "site": site, "losing": losing}
    facts["algorithm"] = toy(places=places)
    key = KEY if mode == "hmac" else None
    return run_toy(match_policy(mode=mode, **guard), rounds=rounds, tag_key=key, **facts)


@pytest.fixture(scope="module")
def honest() -> Toy:
    return run()


def detail(found: Verification, name: str) -> str:
    return next(step.detail for step in found.steps if step.name == name)


@pytest.mark.parametrize("mode", ["oprf", "hmac"])
def test_an_honest_run_verifies_and_says_so(mode: str) -> None:
    made = run(mode)
    found = verify(made.view())
    assert found.ok, found.failed
    assert "2 Asks matched, each by one canary" in detail(found, "opened")
    assert "refused" not in detail(found, "opened")


def test_the_report_says_who_saw_what_alone_and_together(honest: Toy) -> None:
    report = build_report(honest.view())
    views = {view.viewer: " ".join(view.sees) for view in report.views}
    assert "uniform points" in views["tag_server"] and "which tags" not in views["tag_server"]
    assert "which tags are equal" in views["matcher"] and "no item, no vector" in views["matcher"]
    assert "uniform numbers: shares under a blind" in views["aggregator"]
    assert "mean of every cell" in views["client"]
    assert views["matcher and both tag servers"] == "EVERY item of every client"
    assert views["matcher and one tag server"] == "nothing more than each alone"
    assert "quota of guesses" in views["matcher and one client"]
    assert "totals of all cells" in views["aggregator and both tag servers"]
    four = views["aggregator, matcher, one tag server and one client"]
    assert "no more than matcher and client" in four
    assert any("two tag servers together with the matcher" in limit for limit in report.limits)
    up = next(row for row in report.egress if row.item == "expand.up.MATCH")
    assert any(guard.startswith("match(mode=oprf") for guard in up.protection)


def test_the_report_labels_one_shared_key(honest: Toy) -> None:
    report = build_report(run("hmac").view())
    views = {view.viewer: " ".join(view.sees) for view in report.views}
    assert "tag_server" not in views and "matcher and both tag servers" not in views
    assert "holds the key of tags" in views["matcher and one client"]
    assert any("one key that all clients hold (hmac)" in limit for limit in report.limits)


def test_items_matched_more_often_than_the_policy_says_are_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Everybody took a plan that is not the policy's: releases are all as it says."""
    monkeypatch.setattr(MatchPlanning, "most", lambda *_: None)
    monkeypatch.setattr("protocols.disclosures.match.disclosure._check_epochs", lambda *_: None)
    made = run("hmac", epochs=1)
    finds("opened", "client-01 had items matched 2 times, the policy 1", made.view(reports=False))


@pytest.mark.parametrize("guard", [{}, WIDE])
def test_the_report_of_tags_that_anybody_makes_understates_nothing(guard: Any) -> None:
    report = build_report(run("deterministic", rounds=1, **guard).view())
    views = {view.viewer: " ".join(view.sees) for view in reversed(report.views)}
    assert views["matcher alone"].startswith("EVERY item")
    assert "only clients know" not in views["aggregator"]
    cells = not guard
    assert ("the cells' totals" in views["aggregator"]) is cells
    assert ("all of a cell but one" in views) is cells
    assert "quota" in views["aggregator and one client"]
    assert "ANYBODY TURNS THEM BACK (11 envelopes)" in report.summary
    (known,) = [line.answer for line in report.verdict_strip if "singled out" in line.question]
    assert "the matcher reads every item" in known
    assert ("single vectors of others" in known) is bool(guard)
    (found,) = [f.message for f in report.findings if f.rule == "UNSAFE_CLEAR"]
    assert "the matcher reads every item" in found
    assert ("single vectors of others" in found) is ("every vector" in found) is bool(guard)
    assert "they hide nothing" in assessment.cnil(report).decode()


# --- who vanishes ---------------------------------------------------------------------------------


@pytest.mark.parametrize("step", thinned(STEPS, 4))
def test_a_client_that_vanishes_is_explained(step: str) -> None:
    made = run(losing=lose(GONE, f".{step}", round=2))
    found = verify(made.view())
    assert made.lost == [] and found.ok, found.failed
    assert f"{GONE} in round 2" in detail(found, "receipts")


@pytest.mark.parametrize("step", thinned(STEPS[:6], 5))
def test_a_client_that_is_missing_when_cells_are_made_costs_the_round(step: str) -> None:
    made = run(losing=lose(GONE, f".{step}", round=1))
    assert made.lost == ([1] if step != "told" else [])
    found = verify(made.view())
    assert found.ok, found.failed


@pytest.mark.parametrize(
    ("who", "step"),
    thinned([
        ("tag-server-1", "points"), ("tag-server-1", "answers"), ("tag-server-2", "second_answers"),
        ("tag-server-2", "second_points"), ("matcher", "compare"), ("matcher", "compared"),
    ], 3),
)  # fmt: skip
def test_a_server_that_is_lost_costs_its_round_and_is_explained(who: str, step: str) -> None:
    made = run(losing=lose(who, f".{step}", round=1))
    found = verify(made.view())
    assert made.lost == [1] and found.ok, found.failed
    assert f"clients that vanished: {who}" in detail(found, "receipts")
    assert "1 round skipped" in detail(found, "opened")


@pytest.mark.parametrize(
    "until",
    thinned(["points", "answers", "halfway", "onward", "second_points", "second_answers", "tagged",
             "compare", "told", "part"], 4),
)  # fmt: skip
def test_a_run_that_was_cut_short_verifies(until: str) -> None:
    class Cut(Exception):
        pass

    def cutting(header: Any, to: str) -> bool:
        if header.item.endswith(f".match.{until}") and header.round == 2:
            raise Cut
        return False

    bus = Bus(match_policy(), 2, ELEVEN, site, True, toy())
    bus.lose = cutting
    with pytest.raises(Cut):
        bus.play(2)
    cut = bus.finish(whole=False)
    assert verify(cut.view()).ok, verify(cut.view()).failed


# --- ledgers that lie -----------------------------------------------------------------------------

FIRST = {"exchange": 1, "kind": "match"}
SERVED = {"exchange": 1, "kind": "tags"}


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (setting(GONE, FIRST, canary="ab" * 32), "more than one canary"),
        (setting("matcher", FIRST, canary="ab" * 32), "more than one canary"),
        (setting("aggregator", FIRST, canary="ab" * 32), "more than one canary"),
        (setting(GONE, FIRST, cells=3), "other cells at the matcher"),
        (setting("aggregator", FIRST, cells=3), "other cells at the matcher"),
        (drop("matcher", kind="match"), "not in the matcher's ledger"),
        (setting("matcher", FIRST, exchange=77), "of no such exchange"),
        (setting("tag-server-1", SERVED, clients=9), "for other clients at tag-server-1"),
        (setting("tag-server-2", SERVED, clients=9), "for other clients at tag-server-2"),
        (
            drop("tag-server-2", kind="tags"),
            "lacks the matching behind expand.match.second_answers",
        ),
        (setting("tag-server-2", SERVED, epoch=2), "made twice in a round"),
    ],
)
def test_ledgers_that_contradict_each_other_are_found(
    honest: Toy, change: Change, why: str
) -> None:
    finds("opened", why, rewrite(honest, honest.view(reports=False), change))


def test_what_was_refused_is_counted(honest: Toy) -> None:
    def refusing(party: str, entry: Entry) -> list[Entry]:
        there = party == "tag-server-1" and entry["kind"] == "tags" and entry["round"] == 2
        return [{**entry, "refused": 1}] if there else [entry]

    forged = rewrite(honest, honest.view(reports=False), refusing)
    step = next(s for s in verify(forged).steps if s.name == "opened")
    assert "1 question beyond the quota refused" in step.detail


# --- the form `published` -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def lists() -> Toy:
    return run("hmac", **WIDE)


def test_a_run_that_publishes_verifies_and_is_labelled(lists: Toy) -> None:
    found = verify(lists.view())
    assert found.ok, found.failed
    assert "2 Asks matched, each by one canary" in detail(found, "opened")
    report = build_report(lists.view())
    views = {view.viewer: " ".join(view.sees) for view in report.views}
    assert "single vectors, noised" in views["client"]
    assert "EVERY published vector" in views["matcher and one client"]
    assert "all of a cell but one" not in views and "aggregator alone" not in views
    assert "in clear" not in views["network"]
    with_one = [" ".join(v.sees) for v in report.views if v.viewer == "aggregator and one client"]
    assert "nothing more than each alone" not in with_one
    assert any("whose vectors" in said for said in with_one)
    assert "UNSAFE: clients read single vectors of others" in report.notes
    assert any("clients read single others' vectors" in limit for limit in report.limits)
    up = next(row for row in report.egress if row.item == "expand.up.MATCH")
    assert up.unsafe and any(guard.startswith("laplace(") for guard in up.protection)
    (told,) = [f for f in report.findings if f.rule == "UNSAFE_CLEAR"]
    assert "single vectors of others" in told.message and told.severity == "critical"


def test_the_report_does_not_say_that_there_is_no_noise_where_vectors_are_noised(
    lists: Toy, honest: Toy
) -> None:
    for toy_, noise in ((lists, "laplace in expand.up.MATCH, which counts for no client"),
                        (honest, "none")):  # fmt: skip
        report = build_report(toy_.view())
        assert [account.mechanism for account in report.accounting] == [noise]
        (said,) = [line.answer for line in report.verdict_strip if "budget" in line.question]
        assert ("no noise was added" in said) is (noise == "none") and "epsilon is infinity" in said


def test_a_plan_that_says_less_than_its_noise_comes_to_is_not_quoted(
    monkeypatch: pytest.MonkeyPatch, lists: Toy
) -> None:
    """Of noise on single vectors no ledger tells: the report computes what it is worth."""
    (honest,) = [account.statement for account in build_report(lists.view()).accounting]
    assert "own words" not in honest
    monkeypatch.setattr("protocols.plan.planning.budget", lambda *_: "epsilon = 0.1 for the run")
    made = run("oprf", rounds=2, **WIDE)
    (said,) = [account.statement for account in build_report(made.view()).accounting]
    assert "epsilon = 0.1" not in said and "the plan's own words differ" in said
    assert said.startswith(honest)


@pytest.mark.parametrize("step", ["up.MATCH", "told", "taken"])
def test_a_client_that_vanishes_before_its_list_is_explained(step: str) -> None:
    made = run("hmac", lose(GONE, f".{step}", round=1), rounds=1, **WIDE)
    found = verify(made.view())
    assert made.lost == [] and found.ok, found.failed
    assert f"{GONE} in round 1" in detail(found, "receipts")


@pytest.mark.parametrize("step", ["compare", "compared"])
def test_a_matcher_that_is_lost_costs_the_round_of_lists(step: str) -> None:
    made = run("hmac", lose("matcher", f".{step}", round=1), rounds=1, **WIDE)
    found = verify(made.view())
    assert made.lost == [1] and found.ok, found.failed


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (setting(GONE, FIRST, canary="ab" * 32), "more than one canary"),
        (drop("matcher", kind="match"), "not in the matcher's ledger"),
        (drop(GONE, kind="match"), "lacks the matching behind"),
        (drop("aggregator", kind="match"), "lacks the matching behind"),
        (setting("aggregator", FIRST, clients=9), "counts other clients at aggregator"),
        (setting("matcher", FIRST, clients=9), "counts other clients at matcher"),
    ],
)
def test_ledgers_of_lists_that_lie_are_found(lists: Toy, change: Change, why: str) -> None:
    finds("opened", why, rewrite(lists, lists.view(reports=False), change))
