"""Whole runs over cohorts that lots drew: workers, kills, verification (ADR 0045)."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from audits.checks.cohorts import drawn
from audits.evidence.steps import Case
from protocols.errors import EvidenceError
from protocols.evidence.ledger import read_lines
from protocols.plan.cohorts import DrawnPlan, clear_seed
from protocols.plan.steps import Service, Step
from protocols.policy.policy import PrivacyPolicy
from secure_fgl.checking import subject
from secure_fgl.config import Config
from secure_fgl.federation import Federation
from secure_fgl.store.finished_run import Run
from tests.laws.killing import play

USERS = 12
AGGREGATOR, CLIENTS = "aggregator", [f"client-{n:02}" for n in range(1, USERS + 1)]


def chosen(policy: str = "masks", workers: int = 1, rounds: int = 3) -> Config:
    document = subject.document("fed_per_gnn", policy, rounds=rounds)
    document["algorithm"]["options"] = {"fed_per_gnn": {"drawn": 5}}
    data = document["data"]
    document["data"] = {
        **data,
        "options": {**data["options"], "users": USERS},
        "partition": {**data["partition"], "clients": USERS},
    }
    return Config.parse({**document, "transport": {"workers": workers}})


def entries(path: Path, party: str) -> list[dict[str, Any]]:
    lines = (path / "ledger" / f"{party}.jsonl").read_bytes()
    return [entry for entry, _ in read_lines(lines)]


def asked(path: Path, item: str = "gradient.down") -> list[frozenset[str]]:
    """Return whom the aggregator asked, exchange by exchange."""
    found: dict[int, set[str]] = {}
    for entry in entries(path, AGGREGATOR):
        if entry["kind"] == "release" and entry["item"] == item:
            found.setdefault(entry["exchange"], set()).add(entry["recipient"])
    return [frozenset(names) for _, names in sorted(found.items())]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A masked run that two workers play."""
    out = tmp_path_factory.mktemp("drawn") / "run"
    return Federation(config=chosen(workers=2)).run(out)


def test_rounds_take_disjoint_cohorts_in_turn_and_all_of_them_are_scored(run: Run) -> None:
    first, second, third = asked(run.path)
    assert first == third and not first & second and len(first | second) == USERS
    closing = asked(run.path, "evaluate.down")
    assert set(closing) == {first, second}
    assert run.verify().verdict == "self-consistent only"
    items = {item.id for item in Case(run.view()).plan.items}
    report = (run.path / "report" / "report.html").read_text("utf-8")
    assert "2 disjoint cohorts of 6 clients, drawn once" in report
    assert {"draw.call", "draw.commit", "draw.commits", "draw.lot", "draw.lots"} <= items


def test_verification_finds_a_cohort_that_lots_did_not_draw(run: Run) -> None:
    case = Case(run.view())
    asks = list(case.exchanges.all.values())
    drawn(case, asks)
    first = next(ask for ask in asks if ask.summed)
    stranger = next(name for name in CLIENTS if name not in first.members)
    members = first.members - {min(first.members)} | {stranger}
    with pytest.raises(EvidenceError, match="another cohort than was drawn"):
        drawn(case, [replace(first, members=members)])


def test_verification_finds_a_cohort_asked_in_another_s_round(run: Run) -> None:
    case = Case(run.view())
    asks = list(case.exchanges.all.values())
    first = next(ask for ask in asks if ask.summed)
    drawn(case, [replace(first, round=3)])  # the control: it is this cohort's turn again
    with pytest.raises(EvidenceError, match="in another's round"):
        drawn(case, [replace(first, round=2)])


def test_verification_finds_a_seed_in_clear_that_is_not_the_plan_s(run: Run) -> None:
    case, clear = Case(run.view()), DrawnPlan.of(5, USERS, PrivacyPolicy.preset("unsafe_plaintext"))
    seeds = [entry for _, entry in case.ledger_index.of_kind("drawn")]
    case.plan = case.plan.model_copy(update={"drawn": clear})
    asks = list(case.exchanges.all.values())
    with pytest.raises(EvidenceError, match="of another plan"):  # all parties chose it together
        drawn(case, asks)
    for entry in seeds:
        entry["seed"] = clear_seed(case.plan.seed, case.roster.clients).hex()
    drawn(case, [])  # the control: the plan's


def test_verification_counts_shares_against_the_whole_cohort(run: Run) -> None:
    """Else an aggregator that records calls for keys to few has few shares and votes asked for."""
    case, control = Case(run.view()), Case(run.view())
    first = next(ask for ask in case.exchanges.all.values() if ask.summed)
    calls = case.exchanges.keying(Service.PAIRS, Step.CALL, 0)
    calls[:] = [sent for sent in calls if sent.recipient != max(first.members)]
    group, whole = (c.exchanges.group(first.round, first.members) for c in (case, control))
    assert group == whole and whole is not None and set(whole.called) == first.members


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"seed": "00" * 32}, "different draws"),
        ({"cohorts": 3}, "of another plan"),
        ({"seed": "no seed"}, "of another plan"),
        ({"members": "3f00"}, "Of 6 clients that drew lots no 2 cohorts of 4"),
        ({"kind": "training"}, "recorded no draw"),
    ],
)
def test_verification_finds_a_party_that_drew_something_else(
    change: dict[str, Any], match: str, run: Run
) -> None:
    case = Case(run.view())
    entry = next(e for party, e in case.ledger_index.of_kind("drawn") if party == CLIENTS[0])
    entry.update(change)
    with pytest.raises(EvidenceError, match=match):
        drawn(case, list(case.exchanges.all.values()))


@pytest.mark.parametrize("at", [18, pytest.param(30, marks=pytest.mark.long)])
def test_a_kill_between_commit_and_opening_opens_once_and_the_same(
    at: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECURE_FGL_STATE", str(tmp_path / "keys"))
    out = tmp_path / "run"
    assert play(chosen(rounds=1), out, at=at, after=True).killed
    ended = play(chosen(rounds=1), out, resume=True)
    assert ended.result is not None, ended.error
    assert Run(out).verify().verdict == "self-consistent only"
    seeds = set()
    for client in CLIENTS:
        said = Counter(
            entry["item"] for entry in entries(out, client) if entry["kind"] == "release"
        )
        assert said["draw.commit"] == said["draw.lot"] == 1
        seeds |= {entry["seed"] for entry in entries(out, client) if entry["kind"] == "drawn"}
    assert len(seeds) == 1
