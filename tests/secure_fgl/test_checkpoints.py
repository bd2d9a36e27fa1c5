"""Models of every n-th round: kept as the plan releases them, bound by the aggregator's ledger."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from audits.bundle.archive import digests_of, digests_text
from audits.bundle.statements import RELEASE, open_statement
from audits.evidence.entries import check_facts
from crypto.signing import SigningKey
from protocols.errors import EvidenceError
from protocols.evidence.ledger import read_lines
from secure_fgl import UsageError
from secure_fgl.config import MOST_KEPT, Config
from secure_fgl.federation import Federation
from secure_fgl.reasons import explain
from secure_fgl.run.model_digest import npz_bytes, npz_digest
from secure_fgl.store.files import Folder
from secure_fgl.store.finished_run import Run
from secure_fgl.store.sides.release import released
from tests.laws.killing import play
from tests.secure_fgl.cli_tools import config, invoke

SETTINGS = ("--set", "policy=masks", "--set", "algorithm.rounds=3")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("checkpoints")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SECURE_FGL_STATE", str(folder / "state"))
        words = ("run", config(folder), *SETTINGS, "--checkpoint-every", 1, "--out", folder / "run")
        shown = invoke(*words)
        assert shown.exit_code == 0, shown.stderr
        yield folder / "run"


@pytest.fixture
def copy(run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(run, tmp_path / "copy"))


def stated(run: Path) -> dict[str, str]:
    lines = read_lines((run / "ledger" / "aggregator.jsonl").read_bytes())
    found: dict[str, str] = lines[-1][0]["result"]
    return found


def test_each_round_s_model_is_there_and_the_ledger_ends_with_its_digest(run: Path) -> None:
    files = {file.stem: npz_digest(file.read_bytes()) for file in (run / "checkpoints").iterdir()}
    rounds = {f"round-{number}" for number in (1, 2, 3)}
    assert set(files) == {"final", "best", *rounds}
    found = stated(run)
    assert {name: found[name] for name in rounds} == {name: files[name] for name in rounds}
    assert len({files[name] for name in rounds}) == 3 and files["round-3"] == files["final"]
    result = json.loads((run / "result.json").read_text())
    assert files["final"] == result["model_sha256"]
    assert invoke("audit", "verify", run).exit_code == 0
    config_text = (run / "config.yaml").read_text()
    assert "checkpoint_every: 1" in config_text


def _other(folder: Path) -> None:
    with np.load(folder / "round-2.npz") as file:
        arrays = {name: file[name] + 1 for name in file.files}
    (folder / "round-2.npz").write_bytes(npz_bytes(arrays))


HARM: dict[str, Callable[[Path], object]] = {
    "replaced": _other,
    "swapped": lambda folder: shutil.copy(folder / "round-1.npz", folder / "round-2.npz"),
    "removed": lambda folder: (folder / "round-1.npz").unlink(),
    "added": lambda folder: shutil.copy(folder / "round-1.npz", folder / "round-4.npz"),
}


@pytest.mark.parametrize("how", HARM)
def test_a_model_of_a_round_that_was_touched_is_found(how: str, copy: Path) -> None:
    HARM[how](copy / "checkpoints")
    shown = invoke("audit", "verify", copy)
    assert shown.exit_code == 5 and "FAILED at result" in shown.stderr


@pytest.mark.parametrize(
    ("name", "digest", "fits"),
    [
        ("round-7", "ab" * 32, True),  # the control
        ("round-7", "", False),
        ("round-0", "ab" * 32, False),
        ("round-07", "ab" * 32, False),
        ("round-1234567", "ab" * 32, False),
        ("other", "ab" * 32, False),
    ],
)
def test_a_ledger_states_models_of_rounds_in_one_form(
    name: str, digest: str, fits: bool, run: Path
) -> None:
    entry = read_lines((run / "ledger" / "aggregator.jsonl").read_bytes())[-1][0]
    ends = {"best": "", "document": "ef" * 32, "metrics": "cd" * 32, "model": "", name: digest}
    changed = {**entry, "result": ends}
    if fits:
        check_facts(5, changed)
    else:
        with pytest.raises(EvidenceError, match="unknown form"):
            check_facts(5, changed)


def test_a_release_names_the_models_that_attacks_looked_at(run: Path) -> None:
    view, folder = Run(run).view(), Folder(run)
    assert len(view.weights) == 5
    one = open_statement(released(view, folder, {}, SigningKey.generate()), {RELEASE})
    named = {subject["name"] for subject in one.subjects}
    assert named == {"checkpoints/best.npz", "checkpoints/final.npz"}


def test_nothing_is_kept_of_rounds_unless_it_is_asked_for(
    tmp_path: Path, kept_state: object
) -> None:
    out = tmp_path / "run"
    assert invoke("run", config(tmp_path), *SETTINGS, "--out", out).exit_code == 0
    assert {file.stem for file in (out / "checkpoints").iterdir()} == {"best", "final"}
    assert set(stated(out)) == {"best", "document", "metrics", "model"}


def test_a_killed_run_keeps_the_same_models(run: Path, tmp_path: Path, kept_state: object) -> None:
    text = (run / "config.yaml").read_text()
    chosen, out = Config.of_others(text), tmp_path / "run"
    assert play(chosen, out, at=45, after=True).killed
    assert (out / "checkpoints" / "round-1.npz").exists()
    assert play(chosen, out, resume=True).result is not None
    found = {file.stem: npz_digest(file.read_bytes()) for file in (out / "checkpoints").iterdir()}
    assert {n: d for n, d in found.items() if n != "best"} == {
        n: d for n, d in stated(run).items() if n.startswith("round-")
    } | {"final": stated(run)["model"]}
    assert Run(out).verify().ok
    shown = invoke("runs", "delete", out, "--yes")
    assert shown.exit_code == 0 and not out.exists(), shown.stderr  # models and all


def test_no_algorithm_s_own_models_are_kept_of_rounds(tmp_path: Path, kept_state: object) -> None:
    words = ("--set", "algorithm.name=local", "--set", "policy=strict", "--checkpoint-every", 1)
    shown = invoke("run", config(tmp_path), *words, "--out", tmp_path / "run")
    assert shown.exit_code == 0, shown.stderr
    assert not (tmp_path / "run" / "checkpoints").exists()


def test_digests_of_as_many_as_are_kept_fit_into_a_bundle() -> None:
    most = {f"round-{100 * number}": "ab" * 32 for number in range(1, MOST_KEPT + 1)}
    kept = most | {"final": "ab" * 32, "best": "ab" * 32}
    assert digests_of(digests_text(kept)) == kept


def test_too_many_are_refused() -> None:
    document = {"algorithm": {"rounds": 5000}, "checkpoint_every": 2}
    with pytest.raises(UsageError) as caught:
        Config.parse(document)
    assert "at most 1000 models" in explain(caught.value)[1]
    assert Config.parse({**document, "checkpoint_every": 5}).checkpoint_every == 5
    assert (
        Federation.from_config(Config.parse({"checkpoint_every": 5})).config.checkpoint_every == 5
    )
