"""Captured rounds: locked at their own party, readable for some days, and nothing raw in them."""

from __future__ import annotations

import hashlib
import json
from datetime import date, timedelta
from pathlib import Path

import numpy as np
import pytest

from audits.attacks import Material, attack
from protocols.errors import EvidenceError, LedgerError
from protocols.evidence.captures import Capture, captured_rounds, of_piece, piece
from protocols.policy.policy import PRESETS, PrivacyPolicy
from secure_fgl.attack_inputs.materials import layers_of, material
from secure_fgl.config import Config
from secure_fgl.errors import UsageError
from secure_fgl.federation import Federation
from secure_fgl.store import captures
from secure_fgl.store.captures import Captures
from secure_fgl.store.files import Folder
from secure_fgl.store.finished_run import Run
from tests.secure_fgl.cli_tools import config, few, invoke
from tests.thinned import thinned

SMALL = {
    "algorithm": {"name": "fed_avg", "rounds": 5},
    "model": {"hidden": 8},
    "data": {"name": "synthetic_banks", "partition": {"clients": 5}},
    "evaluation": {"references": []},
}


def play(folder: Path, policy: str = "masks", drop: str = "", **algorithm: object) -> Run:
    document = {**SMALL, "algorithm": {**SMALL["algorithm"], **algorithm}, "policy": policy}
    document["faults"] = {"drop": drop}
    return Federation.from_config(Config.parse(document)).run(folder)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    folder = tmp_path_factory.mktemp("captured")
    return {p: play(folder / p, p) for p in ("masks", "unsafe_plaintext", "strict")}


@pytest.mark.parametrize(
    ("rounds", "expected"), [(1, [1]), (2, [1, 2]), (3, [1, 2, 3]), (50, [1, 25, 50]), (0, [])]
)
def test_first_middle_and_last_round_are_captured(rounds, expected):
    assert list(captured_rounds(Capture(), rounds)) == expected
    assert list(captured_rounds(Capture(rounds="all"), rounds)) == list(range(1, rounds + 1))
    assert list(captured_rounds(None, rounds)) == []


def test_strict_forbids_capture_and_a_policy_of_ones_own_captures_nothing_unasked():
    assert {name for name in PRESETS if PRESETS[name].capture is None} == {"ldp", "strict"}
    assert PRESETS["pilot"].capture == Capture(rounds="sampled", days=30)
    assert PrivacyPolicy(name="own", rules=PRESETS["pilot"].rules).capture is None


def test_names_of_pieces_are_closed():
    assert of_piece(piece("train", 3, 7)) == ("train", 3, 7)
    with pytest.raises(ValueError, match="word"):
        piece("../train", 1, 1)


def test_only_the_rounds_that_the_policy_names_are_kept_and_locked(runs):
    run = runs["masks"]
    parties = sorted(p.name for p in (run.path / "captured").iterdir())
    assert parties == ["aggregator", *(f"client-{n}" for n in range(1, 6))]
    for party in parties:
        names = [of_piece(f.name) for f in (run.path / "captured" / party).iterdir()]
        assert sorted(round for _, round, _ in names) == [1, 3, 5]
    raw = b"".join(f.read_bytes() for f in (run.path / "captured").rglob("*") if f.is_file())
    assert b"memory" not in raw and b"delta" not in raw and b"weights" not in raw
    assert not (runs["strict"].path / "captured").exists()
    assert not list(run.path.rglob("*.key"))  # O26


def same(material: Material) -> list[float]:
    return [
        float(np.abs(e.raw["delta"] - e.seen["delta"]).max())
        for e in material.exposures
        if e.seen is not None and e.cohort == 1
    ]


def test_what_was_said_is_computed_again_exactly(runs):
    """In clear the bytes hold the recomputed update, rounded to the grid of the policy."""
    found = material(runs["unsafe_plaintext"], profile="default")
    assert [e.round for e in found.exposures if e.client == "client-1"] == [1, 3, 5]
    bound = max(float(e.raw["count"]) for e in found.exposures) * 0.5 / 2**8
    assert len(same(found)) == 15 and max(same(found)) < bound
    assert all(e.raw["count"] == e.seen["count"] for e in found.exposures)


def test_under_masks_a_receiver_saw_the_total_only(runs):
    found = material(runs["masks"], profile="default")
    assert {e.cohort for e in found.exposures} == {5}
    for number in (1, 3, 5):
        mine = [e for e in found.exposures if e.round == number]
        total = np.sum([e.raw["delta"] for e in mine], axis=0)
        seen = mine[0].seen["delta"]
        assert np.abs(total - seen).max() < 1.0 and np.corrcoef(total, seen)[0, 1] > 0.999
        assert sum(e.raw["count"] for e in mine) == mine[0].seen["count"]


def test_quick_looks_at_the_first_captured_round(runs):
    assert {e.round for e in material(runs["masks"]).exposures} == {1}


def test_quick_computes_an_ask_whole_where_a_client_comes_late(tmp_path):
    """Round 3 is client-2's first: its total can be held against all five only."""
    run = play(tmp_path / "late", drop="2@1")
    found = material(run)
    seen = {(e.client, e.round, e.cohort) for e in found.exposures}
    everybody = [f"client-{n}" for n in range(1, 6)]
    late = {(client, 1, 4) for client in everybody if client != "client-2"}
    assert seen == late | {(client, 3, 5) for client in everybody}
    rows = attack(found, ["A04", "A05"]).rows
    assert {row.id for row in rows if row.verdict != "NOT_TESTED"} == {"A04", "A05"}


def test_without_capture_the_reason_is_said(runs):
    found = material(runs["strict"])
    assert not found.exposures and found.missing == "policy 'strict' forbids capture"


def test_models_that_are_weighed_hold_updates_that_nobody_could_look_at(tmp_path):
    """What leaves, less the known start, is an update: NOT TESTED, and not "no such thing"."""
    run = play(tmp_path / "strict", "strict", name="fed_pub", rounds=1)
    found = material(run)
    assert found.unread and not found.exposures
    assert "forbids capture" in found.missing
    rows = attack(found, ["A04", "A05"]).rows
    assert {r.verdict for r in rows if r.id in ("A04", "A05")} == {"NOT_TESTED"}


def test_the_layout_finds_first_and_last_layer(runs):
    layers = material(runs["masks"]).layers
    assert layers.first[1][1] == layers.last_weight[1][0] == 8
    assert layers.last_bias[0].stop == layers.last_weight[0].stop + layers.last_bias[1][0]
    parts = (("w", (4, 8)), ("b", (8,)), ("v", (8, 3)), ("c", (3,)))

    class Spec:
        features, classes = 4, 3

    shared = layers_of(parts, Spec, 40)  # FedPer: the head stays at the client
    assert shared.first is not None and shared.last_weight is None and shared.last_bias is None


def tampered(run: Run, folder: Path) -> Run:
    import shutil

    shutil.copytree(run.path, folder)
    return Run(folder)


def recorded_anew(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let ledgers name what lies there: a party that wrote other pieces than it should."""
    pieces = captures.found(run.folder).pieces
    there = {party: {n: f.digest for n, f in files.items()} for party, files in pieces.items()}
    for module in ("audits.checks.outcome", "secure_fgl.attack_inputs.replayed"):
        monkeypatch.setattr(f"{module}.recorded_pieces", lambda _: there)


def test_a_changed_capture_does_not_open(runs, tmp_path, monkeypatch):
    """Even where the ledger names it: the lock holds too."""
    run = tampered(runs["masks"], tmp_path / "run")
    (target,) = [f for f in (run.path / "captured/client-1").iterdir() if "-1-" in f.name]
    data = bytearray(target.read_bytes())
    data[-1] ^= 1
    target.write_bytes(bytes(data))
    with pytest.raises(EvidenceError, match="is not the one that its ledger names"):
        material(run)
    recorded_anew(run, monkeypatch)
    with pytest.raises(EvidenceError, match="does not open"):
        material(run)
    (run.path / "captured" / "client-1" / "zzz").write_bytes(b"")
    with pytest.raises(EvidenceError):
        material(run)


def test_another_clients_or_rounds_capture_does_not_open(runs, tmp_path, monkeypatch):
    run = tampered(runs["masks"], tmp_path / "run")
    folder = run.path / "captured"
    first, last = sorted((folder / "client-1").iterdir())[:2]
    first.write_bytes(last.read_bytes())
    with pytest.raises(EvidenceError, match="is not the one that its ledger names"):
        material(run, profile="default")
    recorded_anew(run, monkeypatch)
    with pytest.raises(EvidenceError, match="does not open"):
        material(run, profile="default")


def test_captured_bytes_must_be_those_of_the_ledger(runs, tmp_path):
    run = tampered(runs["unsafe_plaintext"], tmp_path / "run")
    ledger = run.path / "ledger" / "client-2.jsonl"
    text = ledger.read_text()
    entry = next(json.loads(line) for line in text.splitlines() if '"train.up.SUM"' in line)
    ledger.write_text(text.replace(entry["commitment"], "0" * 64))
    with pytest.raises(EvidenceError):
        material(run)


@pytest.mark.parametrize("policy", ["masks", "unsafe_plaintext"])
def test_other_data_or_settings_than_the_runs_are_noticed(runs, tmp_path, policy, monkeypatch):
    """Controls on other data would make every attack look weak."""
    run = tampered(runs[policy], tmp_path / "run")
    path = run.path / "config.yaml"
    before = path.read_text()
    path.write_text(before.replace("seed: 1\n", "seed: 2\n"))
    with pytest.raises(EvidenceError, match=r"config\.yaml is not the configuration"):
        material(run)
    path.write_text(before)
    config = Config.of_others(before)
    seeded = config.model_copy(update={"seed": 2})  # whose plan is another one
    monkeypatch.setattr("secure_fgl.attack_inputs.replayed.config_of", lambda *_: seeded)
    assert "does not make the run's plan" in str(material(run).missing)
    faster = config.model.model_copy(update={"lr": 2 * config.model.lr})
    other = config.model_copy(update={"model": faster})
    monkeypatch.setattr("secure_fgl.attack_inputs.replayed.config_of", lambda *_: other)
    with pytest.raises(EvidenceError, match="is not what left"):
        material(run)


@pytest.mark.parametrize("party", ["client-3", "aggregator"])
def test_nobody_chooses_what_is_attacked_by_taking_captures_away(
    runs, tmp_path, party, monkeypatch
):
    run = tampered(runs["masks"], tmp_path / "run")
    (target,) = [f for f in (run.path / "captured" / party).iterdir() if "-1-" in f.name]
    target.unlink()
    with pytest.raises(EvidenceError, match=f"{party} lacks 1 of 3 captured pieces"):
        material(run)
    recorded_anew(run, monkeypatch)  # nor by not recording them
    with pytest.raises(EvidenceError, match=f"{party} lacks 1 captured rounds"):
        material(run)


def test_captures_that_cannot_be_read_leave_attacks_not_tested(runs, tmp_path, monkeypatch):
    forbidden = attack(material(runs["strict"]), ["A04", "A05"])
    asked = [row for row in forbidden.rows if row.id in ("A04", "A05")]
    assert {row.verdict for row in asked} == {"NOT_TESTED"}
    assert all("forbids capture" in row.reason for row in asked)
    monkeypatch.setenv("SECURE_FGL_STATE", str(tmp_path / "elsewhere"))
    gone = attack(material(runs["masks"]), ["A04"]).rows
    assert {row.verdict for row in gone} == {"NOT_TESTED"}
    assert [row.reason for row in gone if row.id == "A09"] == ["it was not asked for"]


def test_no_verdict_goes_away_because_less_is_looked_at(runs, tmp_path, monkeypatch):
    run = tampered(runs["unsafe_plaintext"], tmp_path / "run")
    whole = attack(material(run))
    verdicts = {(row.id, row.what): row.verdict for row in whole.rows}
    looked = {id for (id, _), verdict in verdicts.items() if verdict != "NOT_TESTED"}
    assert looked >= {"A04", "A05", "A09"} and "FAIL" in verdicts.values()  # this could go away
    stays = {
        name: verdict for name, verdict in verdicts.items() if verdict in ("FAIL", "INCONCLUSIVE")
    }
    passed = {name for name, verdict in verdicts.items() if verdict == "PASS" and name[0] != "A10"}
    assert passed  # what nobody measures again does not count
    less = attack(material(run), ["A10"], earlier=whole)
    said = {(row.id, row.what): row.verdict for row in less.rows}
    assert stays.items() <= said.items()
    assert {said[name] for name in passed} == {"NOT_TESTED"}
    (one, *_) = [row for row in less.rows if (row.id, row.what) in passed]
    assert "it was not asked for; an earlier quick run of this attack said PASS" in one.reason
    monkeypatch.setenv("SECURE_FGL_STATE", str(tmp_path / "elsewhere"))
    blind = attack(material(run), earlier=whole)
    still = {(row.id, row.what): row.verdict for row in blind.rows}
    assert stays.items() <= still.items()
    assert {still[name] for name in still.keys() - verdicts.keys()} <= {"NOT_TESTED"}  # own models
    other = whole.model_copy(update={"heads_digest": "0" * 64})
    fresh = attack(material(run), ["A10"], earlier=other)
    assert {row.verdict for row in fresh.rows if row.id != "A10"} == {"NOT_TESTED"}


def test_a_data_folder_that_is_named_and_cannot_be_read_is_refused(tmp_path, data_root):
    document = {**SMALL, "data": {"name": "mutag", "root": str(data_root)}}
    document["data"] |= {"partition": {"name": "dirichlet_count", "clients": 5}}
    document["algorithm"] = {"name": "fed_avg", "rounds": 1}
    run = Federation(config=Config.parse(document), policy=few("masks")).run(tmp_path / "r")
    with pytest.raises(UsageError, match="cannot be read"):
        material(run, data=tmp_path / "nothing")


def test_whoever_opens_a_run_ends_captures_whose_days_are_over(runs, tmp_path, monkeypatch):
    monkeypatch.setenv("SECURE_FGL_STATE", str(tmp_path))
    mine = Captures("cd" * 16, tmp_path / "run")
    mine.begin(1)
    mine.state_store("client-1")
    (tmp_path / "captures" / ("cd" * 16) / "until").write_text("2020-01-01")
    Run(runs["strict"].path)
    assert not list((tmp_path / "captures").iterdir())


def test_when_the_days_are_over_the_keys_are_destroyed(tmp_path, monkeypatch):
    mine = Captures("ab" * 16, tmp_path / "run", tmp_path / "keys")
    mine.begin(30)
    mine.state_store("client-1").put("train-1-1", b"locked")
    named = {"train-1-1": hashlib.sha256(b"locked").hexdigest()}
    assert mine.open("client-1", named).get("train-1-1") == b"locked"
    for other in ({}, {"train-1-1": "0" * 64}, {"train-1-2": named["train-1-1"]}):
        with pytest.raises(EvidenceError, match="not the one that a ledger names"):
            mine.open("client-1", other).get("train-1-1")
    now = captures.today()
    monkeypatch.setattr(captures, "today", lambda: now + timedelta(days=30))
    mine.begin(30)  # a resumption does not prolong it
    assert mine.open("client-1", named)
    monkeypatch.setattr(captures, "today", lambda: now + timedelta(days=31))
    with pytest.raises(UsageError, match="keys are not here"):
        mine.open("client-1", named)
    assert not list((tmp_path / "keys" / "captures").iterdir())


def test_keys_whose_day_cannot_be_read_are_destroyed(tmp_path):
    mine = Captures("ab" * 16, tmp_path / "run", tmp_path / "keys")
    mine.begin(30)
    mine.state_store("client-1")
    (tmp_path / "keys" / "captures" / ("ab" * 16) / "until").write_text("some day")
    captures.sweep(tmp_path / "keys" / "captures")
    with pytest.raises(UsageError):
        mine.open("client-1", {})


def test_a_sweep_by_another_run_takes_no_keys_of_one_that_begins(tmp_path, monkeypatch):
    """Another process of the same party sweeps after each step that the first one takes."""
    run, write, swept = "ab" * 16, Folder.write, []

    def swept_after(act):
        def done(self, *words, **more):
            found = act(self, *words, **more)
            if not swept:
                swept.append(True)
                captures.sweep(tmp_path / "captures")
                swept.clear()
            return found

        return done

    monkeypatch.setattr(Folder, "write", swept_after(write))
    monkeypatch.setattr(Folder, "create", swept_after(Folder.create))
    (tmp_path / "captures" / run).mkdir(parents=True)  # as it is made before its first file
    captures.sweep(tmp_path / "captures")
    mine = Captures(run, tmp_path / "run", tmp_path)
    mine.begin(30)
    mine.state_store("client-1").put("x", b"kept")
    left = sorted(path.name for path in (tmp_path / "captures" / run).iterdir())
    assert left == ["client-1.key", "folder", "until"]
    mine.begin(900)  # no resumption prolongs it
    until = date.fromisoformat((tmp_path / "captures" / run / "until").read_text())
    assert (until - captures.today()).days == 30
    (tmp_path / "captures" / run / "until").unlink()  # the control: a key without its day goes
    captures.sweep(tmp_path / "captures")
    assert not (tmp_path / "captures" / run).exists()


def test_a_capture_that_cannot_be_written_ends_the_run(tmp_path, monkeypatch):
    from secure_fgl.store.state_store import FileStateStore

    def full(self: FileStateStore, name: str, data: bytes) -> None:
        if name.startswith("train-"):
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(FileStateStore, "put", full)
    with pytest.raises(LedgerError, match="cannot be kept"):
        play(tmp_path / "run")


@pytest.mark.parametrize(
    "name", thinned(["apfl_gate", "fed_prox", "fed_per", "apfl", "fed_gate"], 5)
)
def test_every_algorithm_is_computed_again_with_its_memory(tmp_path, name):
    run = play(tmp_path / "run", "unsafe_plaintext", name=name)
    found = material(run, profile="default")
    assert len(found.exposures) == 15 and not found.missing
    scale = max(float(np.abs(e.raw["delta"]).max()) for e in found.exposures)
    assert max(same(found)) < 0.05 * scale + 1e-2


def test_local_training_says_no_update(tmp_path):
    found = material(play(tmp_path / "run", "masks", name="local"))
    assert not found.exposures and "no captured message holds" in found.missing


def test_audit_attack_writes_its_verdicts_into_the_report(tmp_path):
    words = ("--set", "algorithm.rounds=3", "--set", "policy=masks")
    assert invoke("run", config(tmp_path), "--out", tmp_path / "run", *words).exit_code == 0
    shown = invoke("audit", "attack", tmp_path / "run", "--format", "json")
    assert shown.exit_code in (0, 3), shown.stderr
    found = json.loads(shown.stdout)
    assert {row["id"] for row in found["rows"]} >= {"A04", "A05", "A09", "A10"}
    assert (tmp_path / "run" / "attacks.json").read_text() == shown.stdout
    assert invoke("audit", "verify", tmp_path / "run").exit_code == 0
    report = json.loads((tmp_path / "run" / "report" / "report.json").read_text())
    assert [row["id"] for row in report["attacks"]] == [row["id"] for row in found["rows"]]
    again = invoke("audit", "attack", tmp_path / "run", "--format", "json")
    assert again.stdout == shown.stdout


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--attacks", "A99"), "no attack 'A99'"),
        (("--time-budget", "soon"), "is no time"),
        (("--data", "/nowhere"), None),
    ],
)
def test_bad_words_are_refused(tmp_path, words, text):
    run = play(tmp_path / "run", "strict")
    shown = invoke("audit", "attack", run.path, *words)
    if text is None:
        assert shown.exit_code in (0, 3)  # the generated data need no folder
    else:
        assert shown.exit_code == 2 and text in shown.stderr
