"""Clients that answer once more: as in the run, and any model, with capture and without."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from audits.attacks import AttackRow, Material, attack, trap_weights
from secure_fgl.attack_inputs.materials import material
from secure_fgl.attack_inputs.replayed import has_replica
from secure_fgl.config import Config
from secure_fgl.federation import Federation
from secure_fgl.store.finished_run import Run


@pytest.fixture
def _as_sent(monkeypatch):
    """Clients take the models that they are sent."""
    monkeypatch.setattr(trap_weights, "what_clients_take", lambda _: "as sent")


BANKS = {"name": "synthetic_banks", "partition": {"clients": 5}}

LONG = pytest.mark.long


def play(folder: Path, policy: str, **facts: Any) -> Run:
    document = {
        "algorithm": {"name": "fed_avg", "rounds": 2},
        "model": {"hidden": 8, "dropout": 0.0},
        "data": BANKS,
        "evaluation": {"references": []},
        "budget": {"store": str(folder.parent / "budgets")},
        "policy": policy,
        **facts,
    }
    return Federation.from_config(Config.parse(document)).run(folder)


def found(given: Material) -> dict[str, AttackRow]:
    return {row.what: row for row in attack(given, ["A20"]).rows if row.id == "A20"}


@pytest.mark.parametrize("policy", ["masks", "unsafe_plaintext", pytest.param("he", marks=LONG)])
def test_clients_answer_the_runs_first_model_as_they_did_in_the_run(tmp_path, policy):
    given = material(play(tmp_path / "run", policy))
    assert given.replica is not None and not given.unasked
    captured = {one.client: one for one in given.exposures if one.round == 1}
    (played,) = given.replica.play([given.replica.start], np.random.default_rng(0))
    assert {one.client for one in played} == set(captured) and len(captured) == 5
    for one in played:
        then = captured[one.client]
        assert np.array_equal(one.known["weights"], then.known["weights"])
        assert np.array_equal(one.raw["delta"], then.raw["delta"])
        assert one.cohort == then.cohort
        assert one.seen is not None and then.seen is not None
        off = np.abs(one.seen["delta"] - then.seen["delta"]).max()
        assert off <= one.cohort * given.replica.step * (1 + 1e-9)  # rounding is drawn anew
        assert one.seen["count"] == then.seen["count"]


def test_what_clients_remember_stays_as_it_was(tmp_path):
    given = material(play(tmp_path / "run", "masks", algorithm={"name": "fed_gate", "rounds": 2}))
    assert given.replica is not None
    models = [given.replica.start, given.replica.start + np.float32(0.01)]
    first, again = (given.replica.play(models, np.random.default_rng(0)) for _ in range(2))
    for one, two in zip(first[1], again[1], strict=True):
        assert np.array_equal(one.raw["delta"], two.raw["delta"])


def test_noise_is_on_what_is_read_and_capture_is_not_needed(tmp_path):
    given = material(play(tmp_path / "run", "calibrated", algorithm={"rounds": 1}))
    replica = given.replica
    assert replica is not None and replica.noise > 0
    (played,) = replica.play([replica.start], np.random.default_rng(0))
    spread = (played[0].seen or {})["delta"].std()
    assert spread == pytest.approx(replica.noise, rel=0.1)
    strict = material(play(tmp_path / "strict", "strict"))
    assert strict.replica is not None and strict.missing and not strict.exposures


@pytest.mark.usefixtures("_as_sent")
@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({}, "bags of words only"),
        ({"algorithm": {"name": "fed_per", "rounds": 1}}, "keeps a part of its own"),
    ],
)
def test_what_is_not_written_yet_is_not_tested(tmp_path, facts, reason):
    (row,) = found(material(play(tmp_path / "run", "masks", **facts))).values()
    assert row.verdict == "NOT_TESTED" and reason in row.reason


@pytest.mark.parametrize(
    "policy", ["masks", "calibrated", *(pytest.param(p, marks=LONG) for p in ("he", "strict"))]
)
def test_models_that_clients_compute_are_asked_too(tmp_path, policy):
    run = play(tmp_path / "run", policy, algorithm={"name": "fed_avg", "rounds": 1})
    (row,) = found(material(run)).values()
    assert row.verdict == "NOT_TESTED" and "bags of words only" in row.reason


def test_who_leads_moves_the_model_by_what_the_bound_leaves_and_no_further(tmp_path):
    """A client that adds what it likes: within the clip, and as far as a total's range goes."""
    given = material(play(tmp_path / "run", "masks", algorithm={"name": "fed_avg", "rounds": 1}))
    assert given.replica is not None
    replica, names = given.replica, set(given.case.plan.clients)
    for beyond, clients in ((False, 1), (True, 4)):
        first, second = replica.lead(
            lambda model: model + np.float32(100.0), 2, beyond, np.random.default_rng(0)
        )
        assert {one.client for one in first} == names - {replica.leader}
        counted = float((first[0].seen or {})["count"])
        moved = second[0].known["weights"] - first[0].known["weights"]
        honest = (first[0].seen or {})["delta"] / counted
        reach = clients * replica.largest / counted
        assert np.allclose(moved - honest, reach, atol=1e-4)


def test_models_are_crafted_for_nodes_only():
    case = SimpleNamespace(plan=SimpleNamespace(data=SimpleNamespace(task="rating")))
    assert not has_replica(case)  # type: ignore[arg-type]


def test_where_nobody_is_given_a_model_the_question_does_not_arise(tmp_path):
    run = play(tmp_path / "run", "masks", algorithm={"name": "local", "rounds": 1})
    (row,) = found(material(run)).values()
    assert row.verdict == "NOT_APPLICABLE" and "no model is handed out" in row.reason


def cora(folder: Path, data: Path, policy: str, rounds: int = 1) -> dict[str, AttackRow]:
    run = play(
        folder,
        policy,
        algorithm={"name": "fed_avg", "rounds": rounds},
        model={"hidden": 64, "lr": 0.1, "optimiser": "sgd", "dropout": 0.0},
        data={
            "name": "cora",
            "root": str(data),
            "partition": {"name": "metis_disjoint", "clients": 5},
        },
    )
    return found(material(run, data=data))


@pytest.mark.usefixtures("same_chance", "_as_sent")
@pytest.mark.parametrize("policy", ["masks", pytest.param("strict", marks=LONG)])
def test_on_cora_records_come_word_for_word_out_of_a_total(tmp_path, data_root, policy):
    rows = cora(tmp_path / "run", data_root, policy)
    records, words = rows["one round: records"], rows["one round: words"]
    assert (records.verdict, words.verdict) == ("FAIL", "FAIL")
    assert records.protected is not None and float(records.protected.value) > 0.1
    assert records.null is not None and float(records.null.value) == 0.0
    assert words.protected is not None and float(words.protected.value) > 0.4


@pytest.mark.usefixtures("same_chance", "_as_sent")
def test_on_cora_noise_holds_where_the_same_message_in_clear_does_not(tmp_path, data_root):
    rows = cora(tmp_path / "run", data_root, "calibrated")
    for what in ("records", "words"):
        row = rows[f"one round: {what}"]
        assert row.verdict == "PASS" and row.payload == "P06"
        assert row.raw_gap is not None and float(row.raw_gap.low) > float(row.gate)
