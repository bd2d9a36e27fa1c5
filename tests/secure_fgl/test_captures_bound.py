"""Captured files are bound by their digests in the ledgers: a change fails at `captured`."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from audits.evidence.steps import Status, Step
from protocols.errors import EvidenceError
from protocols.evidence.captures import is_piece, piece, tags_of
from protocols.sessions.store.recording import Recorder
from secure_fgl.attack_inputs.materials import material
from secure_fgl.store import captures
from secure_fgl.store.finished_run import Run
from tests.laws.killing import die, play
from tests.laws.runs import config
from tests.secure_fgl.cli_tools import invoke


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Two runs of one plan, and one whose policy captures nothing."""
    folder = tmp_path_factory.mktemp("bound")
    for name, policy in (("one", "masks"), ("two", "masks"), ("strict", "strict")):
        ended = play(config("fed_avg", policy), folder / name)
        assert ended.result is not None, ended.error
    return {name: folder / name for name in ("one", "two", "strict")}


@pytest.fixture
def run(runs: dict[str, Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(runs["one"], tmp_path / "run"))


def captured(run: Path) -> Step:
    return next(step for step in Run(run).verify().steps if step.name == "captured")


def fails(run: Path, text: str) -> None:
    outcome = Run(run).verify()
    assert outcome.verdict == "FAILED at captured", outcome.failed
    assert outcome.failed is not None and text in outcome.failed.detail
    with pytest.raises(EvidenceError) as caught:
        material(Run(run))
    assert caught.value.step == "captured"
    assert invoke("audit", "verify", run).exit_code == 5
    assert invoke("audit", "attack", run, "--fail-on", "never").exit_code == 5


def test_every_piece_is_named_once_and_verification_needs_no_key(run, tmp_path, monkeypatch):
    monkeypatch.setenv("SECURE_FGL_STATE", str(tmp_path / "no keys here"))
    step = captured(run)
    assert step.status is Status.OK
    assert step.detail == "12 captured pieces are those that ledgers name"
    named = [
        (entry["party"], entry["piece"])
        for file in (run / "ledger").iterdir()
        for entry in map(json.loads, file.read_bytes().splitlines())
        if entry["kind"] == "captured"
    ]
    there = [(f.parent.name, f.name) for f in (run / "captured").rglob("*") if f.is_file()]
    assert sorted(named) == sorted(there)


def flipped(run: Path, other: Path) -> None:
    file = run / "captured/client-1/train-1-1"
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(bytes(data))


def of_another_party(run: Path, other: Path) -> None:
    shutil.copy(run / "captured/client-2/train-1-1", run / "captured/client-1/train-1-1")


def of_another_round(run: Path, other: Path) -> None:
    shutil.copy(run / "captured/client-1/train-2-2", run / "captured/client-1/train-1-1")


def of_another_run(run: Path, other: Path) -> None:
    shutil.copy(other / "captured/client-1/train-1-1", run / "captured/client-1/train-1-1")


def emptied(run: Path, other: Path) -> None:
    (run / "captured/aggregator/train-2-2").write_bytes(b"")


CHANGED = (flipped, of_another_party, of_another_round, of_another_run, emptied)


@pytest.mark.parametrize("change", CHANGED, ids=lambda c: c.__name__)
def test_another_piece_in_the_place_of_one_fails(
    runs: dict[str, Path], run: Path, change: Callable[[Path, Path], None]
) -> None:
    change(run, runs["two"])
    fails(run, "is not the one that its ledger names")


@pytest.mark.parametrize("party", ["client-1", "aggregator"])
def test_a_piece_that_is_taken_away_fails_on_any_day(run, party, monkeypatch):
    (run / "captured" / party / "train-2-2").unlink()
    fails(run, f"{party} lacks 1 of 2 captured pieces, among them train-2-2")
    later(monkeypatch, 400)
    fails(run, "they were removed one by one")


@pytest.mark.parametrize(
    ("place", "text"),
    [
        ("client-1/train-3-3", "client-1 holds 1 piece that its ledger does not name"),
        ("stranger/train-1-1", "1 folder of parties whose ledgers name no piece"),
        ("note.txt", "1 thing that are no pieces"),
        ("client-1/more/train-1-1", "1 thing that are no pieces"),
    ],
)
def test_what_is_put_beside_the_pieces_fails(run, place, text):
    target = run / "captured" / place
    target.parent.mkdir(exist_ok=True)
    shutil.copy(run / "captured/client-1/train-1-1", target)
    fails(run, text)


def test_a_link_in_place_of_a_piece_is_not_followed(run):
    target = run / "captured/client-1/train-1-1"
    target.rename(run / "elsewhere")
    target.symlink_to(run / "elsewhere")
    outcome = Run(run).verify()
    assert outcome.verdict == "FAILED at captured"


def later(monkeypatch: pytest.MonkeyPatch, days: int) -> None:
    day = captures.today() + timedelta(days=days)
    monkeypatch.setattr(captures, "today", lambda: day)
    monkeypatch.setattr(captures, "sweep", lambda *_: None)  # keys of other tests stay


def test_what_was_removed_whole_is_told_from_a_change_by_the_day(run, monkeypatch):
    """Of a simulation, all of whose parties keep their captures in this folder."""
    shutil.rmtree(run / "captured" / "client-3")
    fails(run, "captured/client-3 was removed before its days were over")
    later(monkeypatch, 31)
    step = captured(run)
    assert step.status is Status.NOT_CHECKED and Run(run).verify().ok
    assert "1 of 6 parties, among them client-3, are not here at all" in step.detail
    assert "removed whole, as they may be after" in step.detail
    assert step.detail.endswith("10 captured pieces are those that ledgers name")
    flipped(run, run)  # the others are still looked at
    assert captured(run).status is Status.FAIL
    shutil.rmtree(run / "captured")
    assert "6 of 6 parties" in captured(run).detail and Run(run).verify().ok


def test_pieces_whose_keys_were_destroyed_verify_and_a_change_of_one_fails(run, monkeypatch):
    later(monkeypatch, 400)
    assert captured(run).status is Status.OK
    flipped(run, run)
    assert captured(run).status is Status.FAIL


def test_a_policy_that_captures_nothing_has_nothing_there(runs, tmp_path):
    run = Path(shutil.copytree(runs["strict"], tmp_path / "run"))
    step = captured(run)
    assert step.status is Status.OK and "no ledger names a captured piece" in step.detail
    shutil.copytree(runs["one"] / "captured" / "client-1", run / "captured" / "client-1")
    assert captured(run).status is Status.FAIL


def test_a_bundle_holds_none_and_says_so(run, tmp_path):
    bundle = tmp_path / "bundle.zip"
    assert invoke("audit", "bundle", run, "--out", bundle).exit_code == 0
    shown = json.loads(invoke("audit", "verify", bundle, "--format", "json").stdout)
    (step,) = [step for step in shown["steps"] if step["name"] == "captured"]
    assert shown["ok"] and step["status"] == "NOT CHECKED"
    assert b"captured/" not in bundle.read_bytes().partition(b"VERIFY.md")[0]


def test_names_of_pieces_in_ledgers_are_closed():
    assert is_piece(piece("train", 3, 7), 3, 7) and is_piece(tags_of(piece("train", 3, 7)), 3, 7)
    for text in ("train-3-8", "train-3-7-more", "../train-3-7", "train-03-7", "", "-3-7"):
        assert not is_piece(text, 3, 7), text


def test_o6_a_kill_between_a_piece_and_its_entry_leaves_both_or_neither(tmp_path, monkeypatch):
    """The piece of before the kill is written again, and its ledger names the later one."""
    monkeypatch.setenv("SECURE_FGL_STATE", str(tmp_path / "keys"))
    out, chosen = tmp_path / "run", config("fed_avg", "masks")

    def sabotage() -> None:
        keep, calls = Recorder._keep, [0]

        def deadly(self: Recorder, *arguments: object) -> None:
            keep(self, *arguments)  # type: ignore[arg-type]
            calls[0] += 1
            if calls[0] == 3:
                die()

        monkeypatch.setattr(Recorder, "_keep", deadly)

    assert play(chosen, out, sabotage=sabotage).killed
    orphan = out / "captured/client-3/train-1-1"
    before = orphan.read_bytes()
    assert b'"kind":"captured"' not in (out / "ledger/client-3.jsonl").read_bytes()
    (orphan.parent / "train-9-9").write_bytes(before)  # of an Ask that is never asked again
    (orphan.parent / ".train-1-1.00.new").write_bytes(before)
    ended = play(chosen, out, resume=True)
    assert ended.result is not None, ended.error
    assert Run(out).verify().ok and captured(out).status is Status.OK
    assert orphan.read_bytes() != before
    assert sorted(f.name for f in orphan.parent.iterdir()) == ["train-1-1", "train-2-2"]
