"""What attacks are given of vectors that are weighed, FED-PUB's and FedEgo's, and of others' rows.

Clients say a vector, and what they changed is that less what they began with: their own row of the
round before. Everything is pinned, so no result is false by chance.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from audits.attacks import Exposure, Material, attack
from protocols.errors import EvidenceError
from secure_fgl.attack_inputs import weighed
from secure_fgl.attack_inputs.materials import material
from secure_fgl.config import Config
from secure_fgl.federation import Federation
from secure_fgl.store import captures
from secure_fgl.store.finished_run import Run

CLIENTS, ROUNDS = 5, 2


def _played(folder: Path, name: str, policy: str, **model: object) -> Run:
    document = {
        "algorithm": {"name": name, "rounds": ROUNDS},
        "model": {"hidden": 4, **model},
        "data": {
            "name": "synthetic_banks",
            "options": {"customers": 40, "transactions": 60},
            "partition": {"name": "by_owner", "clients": CLIENTS},
        },
        "evaluation": {"references": []},
        "budget": {"store": str(folder / "budgets")},
        "policy": policy,
    }
    return Federation.from_config(Config.parse(document)).run(folder / "run")


@pytest.fixture(scope="module")
def clear(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return _played(tmp_path_factory.mktemp("clear"), "fed_pub", "unsafe_plaintext")


@pytest.fixture(scope="module")
def hidden(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return _played(tmp_path_factory.mktemp("hidden"), "fed_pub", "he")


@pytest.fixture(scope="module")
def egos(tmp_path_factory: pytest.TempPathFactory) -> Material:
    run = _played(tmp_path_factory.mktemp("egos"), "fed_ego", "unsafe_plaintext")
    return material(run, profile="default")


def _by(found: Material, payload: str) -> Mapping[tuple[int, str], Exposure]:
    return {(e.round, e.client): e for e in found.exposures if e.payload == payload}


def _read(one: Exposure) -> np.ndarray:
    assert one.seen is not None
    return one.seen["delta"] + one.known["weights"]


def test_in_clear_each_change_is_read_from_what_its_client_began_with(clear: Run) -> None:
    found = material(clear, profile="default")
    own, rows = _by(found, ""), _by(found, "P21")
    assert len(own) == len(rows) == CLIENTS * ROUNDS and not found.missing
    starts = [one.known["weights"] for (round, _), one in own.items() if round == 1]
    assert all(np.array_equal(start, starts[0]) for start in starts)
    for one in own.values():
        assert one.cohort == 1 and one.seen is not None
        assert np.abs(one.raw["delta"]).max() > 1e-4  # it trained
        assert np.abs(one.seen["delta"] - one.raw["delta"]).max() < 1e-6
    # What another client read in round 1 is what that one began round 2 with: no change holds it.
    began = {name: one.known["weights"] for (round, name), one in own.items() if round == 2}
    for (round, name), one in rows.items():
        if round == 1:
            apart = {n: float(np.abs(_read(one) - w).max()) for n, w in began.items() if n != name}
            assert min(apart.values()) < 1e-6


def test_others_read_rows_over_all_and_of_each_the_one_that_weighs_it_most(clear: Run) -> None:
    found = material(clear, profile="default")
    own, rows = _by(found, ""), _by(found, "P21")
    said = {key: _read(one) for key, one in own.items()}
    names = sorted({name for _, name in own})
    even = np.mean([said[1, name] for name in names], axis=0)
    for name in names:
        assert np.abs(_read(rows[1, name]) - even).max() < 1e-5  # the first round's plain mean
        # Less what the reader began with, which holds others, a null would hold the victim.
        assert np.array_equal(rows[2, name].raw["delta"], own[2, name].raw["delta"])
        assert rows[2, name].cohort == CLIENTS
        table = np.stack([said[2, n] - said[2, names[0]] for n in names[1:]], axis=1)
        share = np.linalg.lstsq(table, _read(rows[2, name]) - said[2, names[0]], rcond=None)[0]
        assert np.isclose(share, share.clip(0.0, 1.0)).all() and share.sum() < 1.0 + 1e-6


def test_under_encryption_only_rows_are_read_and_they_are_attacked(hidden: Run) -> None:
    """It was NOT_TESTED before, and no attack looked at what FED-PUB sends."""
    found = material(hidden, profile="default")
    assert not _by(found, "") and len(_by(found, "P21")) == CLIENTS * ROUNDS
    first = {name: one for (round, name), one in _by(found, "P21").items() if round == 1}
    mean = np.mean([one.raw["delta"] for one in first.values()], axis=0)
    for one in first.values():
        assert one.seen is not None and one.cohort == CLIENTS
        assert np.abs(one.seen["delta"] - mean).max() < 1e-2 < np.abs(mean).max()
    report = attack(found, ["A04", "A05"])
    rows = [row for row in report.rows if row.id in ("A04", "A05")]
    assert {row.payload for row in rows} == {"P21"}
    assert {row.id for row in rows if row.prior is not None} == {"A04", "A05"}
    assert "P21" not in {one.payload for one in report.not_tested}


def test_quick_looks_at_the_first_captured_round(clear: Run) -> None:
    assert {one.round for one in material(clear).exposures} == {1}


@pytest.mark.parametrize(("policy", "what"), [("clear", "a vector"), ("hidden", "a row")])
def test_what_was_read_must_be_what_is_computed_again(
    policy: str, what: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, real = request.getfixturevalue(policy), weighed.answered

    def other(site, answer, exchange, kind):  # type: ignore[no-untyped-def]
        said = real(site, answer, exchange, kind)
        return kind(weights=said.weights + np.float32(0.05) * (np.arange(said.weights.size) % 7))

    monkeypatch.setattr(weighed, "answered", other)
    with pytest.raises(EvidenceError, match=f"{what} of Model, computed again"):
        material(run)


def test_a_row_may_be_off_in_no_single_number_either(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plain gradient step moves few numbers far; on the mean it is less than the grid's step."""
    rng, step = np.random.default_rng(5), 2.0**-12
    kind: Any = SimpleNamespace(__name__="Model")
    grid = SimpleNamespace(columns=[SimpleNamespace(grid=SimpleNamespace(step=step))])
    run: Any = SimpleNamespace(case=SimpleNamespace(plan=SimpleNamespace(training=None)))
    monkeypatch.setattr(weighed, "_layout", lambda run, kind: grid)
    begun = rng.normal(size=20_000)
    told = begun + np.where(np.arange(20_000) < 20, rng.normal(size=(CLIENTS, 20_000)) / 400, 0.0)
    said: Any = [SimpleNamespace(left=one) for one in told]
    sent = np.floor(told / step + rng.random(told.shape)) * step
    for shares in (*np.eye(CLIENTS), np.array([0.5, 0.2, 0.1, 0.1, 0.1])):
        assert np.abs(weighed._shares(run, said, shares @ sent, kind) - shares).max() < 0.05
    forged = begun + 40 * step * (np.arange(20_000) == 7)
    assert np.sqrt(np.mean((forged - begun) ** 2)) < step
    with pytest.raises(EvidenceError, match="a row of Model"):
        weighed._shares(run, said, forged, kind)


def test_nobody_takes_a_row_away_that_a_client_was_handed(
    hidden: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(hidden.path, tmp_path / "run")
    run = Run(tmp_path / "run")
    (target,) = (run.path / "captured" / "client-3").glob("receive-1-*")
    target.unlink()
    pieces = captures.found(run.folder).pieces
    there = {party: {n: f.digest for n, f in files.items()} for party, files in pieces.items()}
    for module in ("audits.checks.outcome", "secure_fgl.attack_inputs.replayed"):
        monkeypatch.setattr(f"{module}.recorded_pieces", lambda _: there)
    with pytest.raises(EvidenceError, match="client-3 lacks 1 captured rounds"):
        material(run)


def test_fed_ego_says_its_reduction_layers_and_no_last_layer(egos: Material) -> None:
    own, rows = _by(egos, ""), _by(egos, "P21")
    assert len(own) == len(rows) == CLIENTS * ROUNDS
    assert egos.layers is not None and egos.layers.first is not None
    assert egos.layers.last_weight is None
    for one in own.values():
        assert one.raw["delta"].shape == one.known["weights"].shape
        assert np.abs(one.raw["delta"]).max() > 1e-4
    report = attack(egos, ["A04", "A05"])
    (mix,) = [row for row in report.rows if row.id == "A04"]
    assert mix.verdict == "NOT_APPLICABLE" and "no last layer" in mix.reason
    spans = {row.payload for row in report.rows if row.id == "A05" and row.prior is not None}
    assert spans == {"P01", "P21"}
