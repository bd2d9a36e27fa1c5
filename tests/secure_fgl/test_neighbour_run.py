"""A whole run whose clients read sums over their neighbours, and what its ledgers may not say."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from algorithms.tasks.evaluation import evaluated
from audits.attacks import attack
from audits.checks.cohorts import neighbours
from audits.evidence.steps import Case
from protocols.errors import EvidenceError
from protocols.messages import values
from secure_fgl.attack_inputs import again as neighbours_again
from secure_fgl.attack_inputs.materials import material
from secure_fgl.checking import subject
from secure_fgl.config import Config
from secure_fgl.federation import Federation
from secure_fgl.store.finished_run import Run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Six clients, four neighbours each; client-2 is away in round 1."""
    document = subject.document("d_fed_gnn", "masks", drop="2@1")
    document["algorithm"]["options"] = {"d_fed_gnn": {"topology": "regular", "degree": 4}}
    document["data"] = {**subject.BANKS, "partition": {"name": "iid_nodes", "clients": 6}}
    return Federation.from_config(Config.parse(document)).run(tmp_path_factory.mktemp("n") / "run")


def told(case: Case, party: str, round: int) -> dict[str, Any]:
    entries = case.ledger_index.entries[party]
    return next(e for e in entries if e["kind"] == "neighbourhood" and e["round"] == round)


def test_sums_that_lack_a_client_are_counted_and_the_run_verifies(run: Run) -> None:
    """In round 1 client-5, which is across from client-2, opens its sum alone."""
    assert run.verify().verdict == "self-consistent only"
    assert neighbours(Case(run.view())) == (
        "; 7 sums over neighbours, of one model of each; 4 not opened, as a neighbour was away"
    )


def test_verification_finds_a_receiver_that_does_not_say_what_it_got(run: Run) -> None:
    """Else who works with a sender that tells two receivers two models leaves the entry out."""
    case = Case(run.view())
    case.ledger_index.entries["client-3"].remove(told(case, "client-3", 2))
    with pytest.raises(EvidenceError, match="client-3 got boxes in round 2, and says nothing"):
        neighbours(case)


@pytest.mark.parametrize(("party", "round"), [("client-3", 2), ("client-5", 1)])
def test_verification_finds_who_is_kept_from_mixing_though_all_had_sent(
    party: str, round: int, run: Run
) -> None:
    """So it looks where a neighbour, or the coordinator, puts zeros in place of one box."""
    case = Case(run.view())
    told(case, party, round).update(absent=["client-1"], commitments=[])
    with pytest.raises(EvidenceError, match="misses client-1, and its whole neighbourhood"):
        neighbours(case)


def test_verification_finds_a_round_that_a_receiver_makes_up(run: Run) -> None:
    case = Case(run.view())
    told(case, "client-3", 2)["round"] = 1
    with pytest.raises(EvidenceError, match="no such exchange"):
        neighbours(case)


def test_verification_finds_sums_over_neighbours_without_a_topology(run: Run) -> None:
    case = Case(run.view())
    case.plan = case.plan.model_copy(update={"topology": None})
    for entries in case.ledger_index.entries.values():
        entries[:] = [e for e in entries if e["kind"] not in ("offered", "neighbourhood")]
    with pytest.raises(EvidenceError, match="says of nobody who they are"):
        neighbours(case)


def test_a_client_that_was_in_no_round_is_scored_as_nobody_and_ends_no_run() -> None:
    """It comes back for the closing Ask, with nothing that it could score."""
    document = subject.document("d_fed_gnn", "masks")
    task, algorithm = Federation.from_config(Config.parse(document)).build()
    forms = evaluated(algorithm, task).forms
    form = next(form for form in forms if form.name.endswith("_scored_once"))
    exchange = form.exchanges[-1]
    (kind,) = exchange.given
    said = exchange.answer(SimpleNamespace(memory={}), kind())
    assert type(said) is task.scoring.kind
    assert not any(np.any(value) for value in values(said).values())


@pytest.fixture(scope="module")
def captured(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Under pilot, so that all three rounds are captured; four neighbours of five others each."""
    document = subject.document("d_fed_gnn", "pilot", rounds=3)
    document["algorithm"]["options"] = {"d_fed_gnn": {"topology": "regular", "degree": 4}}
    document["data"] = {**subject.BANKS, "partition": {"name": "iid_nodes", "clients": 6}}
    return Federation.from_config(Config.parse(document)).run(tmp_path_factory.mktemp("p") / "run")


def test_means_that_neighbours_read_are_asked_about_training_records(captured: Run) -> None:
    """They are held against what readers went on from, so they are what was read."""
    report = attack(material(captured), ["A12"])
    rows = [row for row in report.rows if row.payload == "P21"]
    assert rows and all(row.prior is not None and row.n_clients == 6 for row in rows)
    assert rows[0].what == "the mean of its neighbours' models, by loss"
    assert "P21" not in {one.payload for one in report.not_tested}


def test_a_mean_that_is_not_what_was_read_is_refused(
    captured: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = neighbours_again.rounded

    def other(layout: Any, told: Any, kind: Any) -> Any:
        found = made(layout, told, kind)
        return kind(weights=found.weights + 1e-3)

    monkeypatch.setattr(neighbours_again, "rounded", other)
    with pytest.raises(EvidenceError, match="is not what it went on from"):
        material(captured)


def test_a_run_that_captured_nothing_says_why_no_mean_was_asked(run: Run) -> None:
    """Not what is said of models, nor of rows of a whole cohort."""
    found = replace(material(run), released=replace(released_of(run), read={}, unread="no round"))
    report = attack(found, ["A12"])
    assert {one.payload: one.why for one in report.not_tested}["P21"] == "A12: no round"


def released_of(run: Run) -> Any:
    found = material(run).released
    assert found is not None
    return found
