"""Canaries on real runs: put in by coins that are committed to, counted nowhere, found again."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from audits.attacks import Material, attack
from audits.checks.parties.canaries import secrets_of
from audits.evidence.steps import Case
from audits.evidence.verify import Status, verify
from protocols.errors import NotAdmitted, NotInPlan, Refused, SecureFglError
from protocols.evidence.canaries import (
    Canaries,
    canary_words,
    coins,
    commitment,
    new_secret,
    opened,
    planted_objection,
)
from protocols.evidence.ledger import MemoryStore, read_lines
from protocols.policy.policy import PrivacyPolicy
from protocols.roles.client import ClientSession
from secure_fgl.attack_inputs.materials import material
from secure_fgl.config import Config
from secure_fgl.errors import UsageError
from secure_fgl.federation import Federation
from secure_fgl.run.parties import Making, Parties, set_up
from secure_fgl.store.finished_run import Run
from tests.laws.killing import play as play_apart
from tests.laws.runs import config as law_config

RECORDS, CLIENTS = 40, 4
BANKS = {
    "name": "synthetic_banks",
    "options": {"customers": 40, "transactions": 60},
    "partition": {"name": "iid_nodes", "clients": CLIENTS},
}


def policy(preset: str = "unsafe_plaintext", records: int = RECORDS) -> PrivacyPolicy:
    return PrivacyPolicy.preset(preset).changed(name="own", canaries={"records": records})


def config(**facts: Any) -> Config:
    document = {
        "algorithm": {"name": "fed_avg", "rounds": 1, "epochs": 20},
        "model": {"name": "graph_sage", "hidden": 16, "dropout": 0.0, "weight_decay": 0.0},
        "data": BANKS,
        "evaluation": {"references": []},
        "transport": {"workers": 1},
    }
    return Config.parse({**document, **facts})


def run(folder: Path, chosen: PrivacyPolicy | None = None, **facts: Any) -> Run:
    return Federation(config=config(**facts), policy=chosen or policy()).run(folder)


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return run(tmp_path_factory.mktemp("planted") / "run")


@pytest.fixture(scope="module")
def given(planted: Run) -> Material:
    return material(planted)


def step(found: Run) -> tuple[str, str]:
    """Return how the step ended, and what it says."""
    (one,) = [s for s in verify(found.view()).steps if s.name == "canaries"]
    return one.status, one.detail


def test_coins_are_committed_to_first_and_opened_last(planted: Run) -> None:
    verification = planted.verify()
    assert verification.ok and step(planted)[0] == Status.OK
    assert f"{CLIENTS} of {CLIENTS} clients opened" in step(planted)[1]
    case = Case(planted.view())
    for client in case.plan.clients:
        first, *middle, last = case.ledger_index.entries[client]
        assert first["seq"] == 0 and not any("canaries" in entry for entry in middle)
        assert opened(last["canaries"], first["canaries"], case.roster_file.run, client)
    assert "canaries" not in case.ledger_index.entries["aggregator"][0]
    assert len(set(secrets_of(case).values())) == CLIENTS
    assert {*canary_words(case.policy.canaries, "node")} < {*case.plan.warnings}
    assert "40 nodes without edges (canaries)" in " ".join(case.plan.warnings)


def test_they_train_and_are_counted_nowhere(planted: Run, given: Material) -> None:
    """What left is what the sites compute with their canaries, divided by real records alone."""
    bare = Federation(config=config(), policy=PrivacyPolicy.preset("unsafe_plaintext")).prepare()
    bare.load()
    counts = {name: s.count for name, s in zip(bare.plan.clients, bare.sites, strict=True)}
    assert {one.client: int(one.raw["count"]) for one in given.exposures} == counts
    for one in given.exposures:  # so classes of records are those of real ones, too
        assert one.truth.labels is not None and one.truth.labels.sum() == counts[one.client]
    assert given.canaries is not None and not given.canaries.doubt
    assert all(0 < flips.sum() < RECORDS for flips in given.canaries.coins.values())
    tested = {
        name: int(s.data.test.sum()) for name, s in zip(bare.plan.clients, bare.sites, strict=True)
    }
    assert given.tested == tested


def test_a11_finds_them_where_nothing_hides_them(given: Material) -> None:
    rows = [row for row in attack(given, ["A11"]).rows if row.id == "A11"]
    loss, span, model, *_ = rows
    assert (loss.payload, span.payload, model.payload) == ("P01", "P01", "P19")
    assert loss.what.endswith("by loss") and span.what.endswith("by span")
    assert loss.protected is not None and model.protected is not None
    assert float(loss.protected.value) > 0.6  # ten deviations from what it reaches; coins are fresh
    assert {row.n_clients for row in rows} == {CLIENTS}


@pytest.mark.parametrize(
    ("lie", "said"),
    [
        (lambda s: {"canaries": new_secret().hex()}, "other coins of its canaries"),
        (lambda s: {}, "did not open"),
        (lambda s: {"canaries": s.canary_secret.hex()}, ""),
    ],
    ids=["chosen-afterwards", "not-opened", "control"],
)
def test_other_coins_than_were_committed_to_are_refused(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    lie: Callable[[Any], dict[str, str]],
    said: str,
) -> None:
    honest = ClientSession.opened
    monkeypatch.setattr(
        ClientSession, "opened", lambda s: lie(s) if s.name == "client-2" else honest(s)
    )
    facts = {"name": "fed_avg", "rounds": 1, "epochs": 1}
    found = run(tmp_path / "run", algorithm=facts)
    status, detail = step(found)
    assert (status == Status.FAIL) == bool(said)
    assert said in detail and ("client-2" in detail) == bool(said)
    if said:
        assert "BROKEN" in found.verify().verdict.upper() or not found.verify().ok
        with pytest.raises(SecureFglError, match="client-2"):
            material(found)


def test_a_secret_that_anybody_could_guess_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The coins are known, and the chain is whole: only this step finds it."""
    drawn = iter([bytes(32), *(new_secret() for _ in range(CLIENTS - 1))])
    monkeypatch.setattr("protocols.roles.client.new_secret", lambda: next(drawn))
    found = run(tmp_path / "run", algorithm={"name": "fed_avg", "rounds": 1, "epochs": 1})
    status, detail = step(found)
    assert status == Status.FAIL and "guessed the coins" in detail
    assert [s.name for s in verify(found.view()).steps if s.status is Status.FAIL] == ["canaries"]


def test_commitments_bind_run_and_party_and_tell_nothing_of_the_secret() -> None:
    secret = new_secret()
    told = commitment(secret, "run", "client-1")
    assert opened(secret.hex(), told, "run", "client-1") == secret
    for run_name, party in (("other", "client-1"), ("run", "client-2")):
        with pytest.raises(SecureFglError, match="other coins"):
            opened(secret.hex(), told, run_name, party)
    for text in ("", "zz" * 32, "00" * 31):
        with pytest.raises(SecureFglError, match="no secret"):
            opened(text, told, "run", "client-1")
    flips = coins(secret, 4000)
    assert abs(flips.mean() - 0.5) < 0.06 and np.array_equal(flips, coins(secret, 4000))
    assert abs((flips == coins(new_secret(), 4000)).mean() - 0.5) < 0.06  # both fail in 1e-13


@pytest.mark.long
def test_a_run_that_is_killed_goes_on_with_its_own_coins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is computed again with the opened coins is what left, before the kill and after it."""
    monkeypatch.setenv("SECURE_FGL_STATE", str(tmp_path / "keys"))
    file = tmp_path / "own.yaml"
    file.write_text(yaml.safe_dump(policy().document()))
    facts = {"name": "fed_avg", "rounds": 2, "epochs": 1}
    chosen = config(algorithm=facts, policy=str(file))
    first = play_apart(chosen, tmp_path / "run", at=2 * CLIENTS + 2, after=True)
    assert first.killed, first.error
    ended = play_apart(chosen, tmp_path / "run", resume=True)
    assert ended.result is not None, ended.error
    found = Run(tmp_path / "run")
    assert step(found)[0] == Status.OK
    again = material(found, profile="default")
    assert {one.round for one in again.exposures} == {1, 2}  # each was held against what left


def test_a_site_without_its_canaries_does_not_train(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "secure_fgl.run.simulation.planting", lambda *facts: contextlib.nullcontext()
    )
    with pytest.raises(Refused):
        run(tmp_path / "run")
    for file in (tmp_path / "run" / "ledger").glob("client-*.jsonl"):
        entries = [entry for entry, _ in read_lines(file.read_bytes())]
        assert any("without the canaries" in str(e.get("detail", e)) for e in entries)
        assert not any(str(e.get("item")).startswith("train.up") for e in entries)


def test_a_plan_that_does_not_list_them_is_refused() -> None:
    federation = Federation(config=config(), policy=policy())
    plan = federation.plan()
    told = {*canary_words(federation.policy.canaries, "node")}
    bare = plan.model_copy(update={"warnings": tuple(w for w in plan.warnings if w not in told)})
    assert len(bare.warnings) == len(plan.warnings) - 1
    for one, refused in ((plan, False), (bare, True)):
        with pytest.raises(NotInPlan, match="canaries") if refused else contextlib.nullcontext():
            made = federation.prepare(one)
            made.load()
            _parties(made)


def _parties(made: Any) -> Parties:
    """Make all sessions of a run, without any file."""
    return set_up(
        Making(
            made.plan, made.policy, made.form(), made.sites, scheme=made.scheme,
            store=lambda name: MemoryStore(), seed=1,
        )
    )  # fmt: skip


@pytest.mark.parametrize("preset", ["pilot", "strict"])
def test_messages_that_would_count_them_are_not_admitted(preset: str) -> None:
    """Mixtures hold single records, and sums of classes count them."""
    chosen = config(algorithm={"name": "fed_ego"}, model={})
    Federation(config=chosen, policy=PrivacyPolicy.preset(preset)).plan()
    with pytest.raises(NotAdmitted) as raised:
        Federation(config=chosen, policy=policy(preset)).plan()
    assert "canaries would be among them" in raised.value.why


def test_what_is_told_of_single_records_is_not_admitted() -> None:
    """A mean of ratings, or one drawn of the items, would be of canaries as well."""
    _, algorithm = Federation.from_config(law_config("fcf")).build()
    forms = {form.name: planted_objection(form, Canaries(records=40)) for form in algorithm.forms}
    for name, kind in (("told_mean", "Taste"), ("told_items", "Opinion")):
        assert kind in (forms[name] or ""), name
    assert forms["noised_items"] is None  # the control: a gradient is computed by training


def test_where_they_cannot_be_put_in_nothing_starts(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be isolated"):
        run(tmp_path / "run", isolate=True)
    assert not (tmp_path / "run" / "ledger").exists()
