"""A12 on real runs: the models that were handed out, and models trained as they were."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from algorithms.tasks import DataSpec
from algorithms.tasks.inputs import GraphsData, RatingsData
from audits.attacks import Material, Released, _hidden, _proved, attack, chosen
from audits.attacks._shared.rows import AttackRows
from audits.checks import outcome
from audits.evidence.steps import Case, Status
from audits.evidence.taken_models import taken_models
from protocols.disclosures.names import Disclosure
from protocols.disclosures.sum.view import TotalView
from protocols.policy.budget import Budget
from protocols.policy.policy import PrivacyPolicy
from protocols.rounds import Reply
from protocols.sessions.store.recording import Recorder
from secure_fgl.attack_inputs.materials import material
from secure_fgl.attack_inputs.models import asked_of
from secure_fgl.config import Config
from secure_fgl.data.records import ClientGraphs, ClientRatings
from secure_fgl.federation import Federation
from secure_fgl.run import result, simulation
from secure_fgl.store.finished_run import Run
from tests.secure_fgl.cli_tools import invoke

CAME = Recorder.came
CLIENTS = 4
BANKS = {
    "name": "synthetic_banks",
    "options": {"customers": 40, "transactions": 60},
    "partition": {"name": "iid_nodes", "clients": CLIENTS},
}
SAGE = {"name": "graph_sage", "hidden": 16, "dropout": 0.0, "weight_decay": 0.0}


def play(folder: Path, name: str, policy: str, **facts: Any) -> Run:
    document = {
        "algorithm": {"name": name, "rounds": 1, "epochs": 20},
        "model": SAGE,
        "data": BANKS,
        "evaluation": {"references": []},
        "policy": policy,
        **facts,
    }
    return Federation.from_config(Config.parse(document)).run(folder)


@pytest.fixture(scope="module")
def averaged(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return play(tmp_path_factory.mktemp("fed_avg") / "run", "fed_avg", "unsafe_plaintext")


def released(run: Run) -> Released:
    found = material(run).released
    assert found is not None
    return found


def test_models_for_comparison_are_trained_as_the_run_trained(averaged: Run) -> None:
    """All sites together on their members give the run's own model, but for rounding."""
    given = released(averaged)
    assert set(given.shared) == {"final", "best"} or set(given.shared) == {"final and best"}
    assert not given.own and not given.unkept and not given.unshared
    members = {name: one.members for name, one in given.candidates.items()}
    again: Any = given.train(members, 0)
    final: Any = next(iter(given.shared.values()))
    start: Any = given.train({name: np.zeros_like(m) for name, m in members.items()}, 0)
    off, moved = (np.linalg.norm(final.shared - m.shared) for m in (again, start))
    assert off < 0.02 * moved


def test_a_model_that_learnt_its_records_by_heart_fails(averaged: Run) -> None:
    shown = invoke("audit", "attack", averaged.path, "--attacks", "mia-lira", "--format", "json")
    assert shown.exit_code == 3, shown.stderr  # a finding of high severity
    report = json.loads(shown.stdout)
    found = [row for row in report["rows"] if row["id"] == "A12"]
    assert {row["payload"] for row in found} == {"P19"}
    assert {row["n_clients"] for row in found} == {CLIENTS}
    assert any(row["verdict"] == "FAIL" and "final" in row["what"] for row in found)
    assert "P19" not in {gap["payload"] for gap in report["not_tested"]}
    page = (averaged.path / "report" / "report.md").read_text()
    assert "P19\\) can tell which records were used for training: right in" in page


def another_model(patched: pytest.MonkeyPatch) -> None:
    """Let the aggregator write random weights as its models, and state their digests."""
    rng, real = np.random.default_rng(5), result.arrays_of
    made = dict[str, Any]()

    def lied(state: Any) -> dict[str, Any]:
        for name, values in real(state).items():
            made.setdefault(name, rng.normal(0, 0.1, values.shape).astype(values.dtype))
        return made

    patched.setattr(result, "arrays_of", lied)


def test_an_aggregator_that_states_another_model_is_found_by_what_clients_took(
    averaged: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        another_model(patched)
        lie = play(tmp_path / "run", "fed_avg", "masks", keep_models=False)
    (step,) = (step for step in lie.verify().steps if step.status is Status.FAIL)
    assert step.name == "result" and "not the one that clients took" in step.detail
    assert taken_models(Case(averaged.view())) >= set(averaged.view().weights.values())
    assert not taken_models(Case(lie.view())) & set(lie.view().weights.values())
    # The control: without that step nothing contradicts it, and its model is the one asked.
    monkeypatch.setattr(outcome, "check_taken", lambda *facts: "")
    assert {s.name for s in lie.verify().steps if s.status is Status.FAIL} <= {"report"}
    given = released(lie)
    assert set(given.shared) == given.untaken == {"final and best"}
    assert not released(averaged).untaken


def test_a_best_model_that_no_client_took_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep = simulation.keep_model

    def lied(folder: Any, name: str, state: Any) -> str:
        with monkeypatch.context() as patched:
            if name == "best":
                another_model(patched)
            return keep(folder, name, state)

    monkeypatch.setattr(simulation, "keep_model", lied)
    run = play(tmp_path / "run", "fed_avg", "masks", keep_models=False)
    (step,) = (step for step in run.verify().steps if step.status is Status.FAIL)
    assert (step.name, step.detail) == ("result", "the best model is none that clients took")


def noised(folder: Path) -> Run:
    """Play a captured round whose totals hold noise of all clients together."""
    policy = PrivacyPolicy.preset("calibrated")
    chain = tuple(
        guard.model_copy(update={"epsilon": 100.0, "delta": 1e-5}) if guard.guard == "noise"
        else guard
        for guard in policy.rules[Disclosure.SUM]
    )  # fmt: skip
    loose = policy.model_copy(
        update={
            "name": "loose",
            "rules": {**policy.rules, Disclosure.SUM: chain},
            "budget": Budget(epsilon=2000.0, delta=1e-4),
        }
    )
    document = {
        "algorithm": {"name": "fed_avg", "rounds": 1, "epochs": 1},
        "model": {"name": "gcn", "hidden": 16, "dropout": 0.0, "weight_decay": 0.0},
        "data": BANKS,
        "evaluation": {"references": []},
        "budget": {"store": f"{folder}.budget"},
    }
    return Federation(config=Config.parse(document), policy=loose).run(folder)


def another_total(self: Recorder, name: str, where: Any, reply: Reply) -> None:
    """Keep another total than the one that was read; nobody can compute what noise is in it."""
    rng, views = np.random.default_rng(7), dict[Any, Any]()
    for kind, view in reply._views.items():
        facts = {f.name: getattr(view._total, f.name) for f in view._total.fields}
        if "delta" in facts:
            facts["delta"] = rng.normal(0, 0.05, np.shape(facts["delta"]))
        views[kind] = TotalView(kind(**facts))
    CAME(self, name, where, Reply(views, reply.answers))


def test_a_captured_total_under_noise_makes_no_pass(
    averaged: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Recorder, "came", another_total)
    run = noised(tmp_path / "run")
    assert run.verify().ok  # nothing contradicts it
    given = material(run)
    assert given.exposures and all(one.alone for one in given.exposures)

    def verdict(found: Material) -> str:
        """Return what becomes of a PASS on such a total."""
        (one,) = chosen(["A05"])
        made = AttackRows(one, "quick", "00" * 32)
        blank = made.cut("why")[0][0].model_copy(update={"verdict": "PASS", "payload": "P06"})
        return _proved(made, blank, _hidden(found)).verdict

    assert verdict(given) == "NOT_TESTED" and "reader's word" in _hidden(given)["P06"]
    believed = tuple(replace(one, alone=False) for one in given.exposures)
    assert verdict(replace(given, exposures=believed)) == "PASS"  # the control
    assert not any(one.alone for one in material(averaged).exposures)  # of clear uploads


def test_without_keys_the_shared_model_is_still_looked_at(
    averaged: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECURE_FGL_STATE", str(tmp_path))
    given = material(averaged)
    assert given.missing and given.released is not None and given.released.shared
    assert not given.released.own and "no client's own model opens here" in given.released.unkept


def test_models_of_ratings_are_asked_where_nothing_is_captured(tmp_path: Path) -> None:
    """Users keep their own part, so each one's own model is asked about its own ratings."""
    data = {
        "name": "synthetic_ratings",
        "options": {"users": 6, "items": 40, "each": 24},
        "partition": {"name": "user_per_client", "clients": 6},
        "split": [0.6, 0.2, 0.2],
    }
    facts = {"name": "fed_mf", "rounds": 2}
    run = play(tmp_path / "run", "fed_mf", "strict", data=data, model={}, algorithm=facts)
    given = material(run)
    assert given.missing and given.released is not None and len(given.released.own) == 6
    found = [row for row in attack(given, ["A12"]).rows if row.id == "A12"]
    assert found[0].verdict == "NOT_APPLICABLE" and "not a whole model" in found[0].reason
    assert all(row.n_clients == 6 and "own model" in row.what for row in found[1:])
    assert "exchangeable" not in found[1].reason and "epsilon" in found[1].reason
    models = run.client_models  # nobody chooses whose model is looked at by taking keys away
    models._keys.remove(models._key_of(sorted(given.released.own)[0]))
    left = material(run)
    assert left.released is not None and len(left.released.own) == 5
    said = {row.verdict: row.reason for row in attack(left, ["A12"]).rows if row.id == "A12"}
    assert said["NOT_TESTED"] == "1 clients' own models do not open here"


def masks(count: int) -> dict[str, Any]:
    role = np.arange(count) % 3
    return {"train": role == 0, "val": role == 1, "test": role == 2}


def test_ratings_are_pairs_and_candidates_stand_in_the_graph_alike() -> None:
    user, item = np.repeat([3, 5], 6), np.tile(np.arange(6), 2)
    part = ClientRatings(
        user, item, np.tile([1.0, 5.0, 3.0], 4).astype(np.float32), rows=np.arange(12), **masks(12)
    )
    data = RatingsData.from_ratings(part, 8, 6)
    spec = DataSpec("rating", 0, 1, 8, 2, True, "r", users=8, items=6, lowest=1.0, highest=5.0)
    asked = asked_of(data, spec)
    assert len(set(asked.candidates.marks)) == 12 and asked.candidates.members.sum() == 4
    alone = asked.training_on(np.arange(12) < 2)
    none = np.zeros(12, dtype=bool)
    anew = RatingsData.from_ratings(
        replace(part, train=np.arange(12) < 2, val=none, test=none), 8, 6
    )
    assert alone.count == 2 and alone.graph.users == anew.graph.users
    assert torch.equal(alone.graph._pairs, anew.graph._pairs)
    sure = asked.confidence(np.full((12, 1), 3.0, np.float32))
    assert sure.tolist() == [-2.0, -2.0, 0.0] * 4


def test_graphs_are_marked_by_all_that_they_are() -> None:
    """The third is the first once more, the fourth has other edges."""
    x = np.tile(np.eye(3, dtype=np.float32), (4, 1))
    edges = np.array([[0, 1], [3, 4], [6, 7], [9, 11]]).T
    y = np.array([0, 1, 0, 0])
    split = {"train": [0], "val": [1, 2], "test": [3]}
    roles = {role: np.isin(np.arange(4), numbers) for role, numbers in split.items()}
    part = ClientGraphs(np.full(4, 3), edges, x, y, graphs=np.arange(4), **roles)
    asked = asked_of(GraphsData.from_graphs(part), DataSpec("graph", 3, 2, 4, 2, True, "g"))
    marks = asked.candidates.marks
    assert marks[0] == marks[2] and len(set(marks)) == 3
    sizes, count, near, share = asked.candidates.known
    assert sizes.tolist() == [3.0] * 4 and count.tolist() == [1.0] * 4
    assert np.ptp(near) < 1e-6 and share.tolist() == [0.75, 0.25, 0.75, 0.75]
    sure = asked.confidence(np.array([[0.9, 0.1], [0.9, 0.1], [0.5, 0.5], [1.0, 0.0]], np.float32))
    assert sure[0] == pytest.approx(np.log(9)) and sure[1] == pytest.approx(-np.log(9))
    assert sure[2] == 0.0 and np.isfinite(sure[3])
