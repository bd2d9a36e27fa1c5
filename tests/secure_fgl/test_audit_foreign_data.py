"""Audits run nothing and read nothing that a run folder names."""

from __future__ import annotations

import hashlib
import json
import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from secure_fgl.attack_inputs.materials import material
from secure_fgl.config import Config
from secure_fgl.data.datasets import read_dataset
from secure_fgl.errors import UsageError
from secure_fgl.federation import Federation
from secure_fgl.store.finished_run import Run
from tests.secure_fgl.cli_tools import CONFIG, config, invoke
from tests.secure_fgl.pyg_tools import SIZES, Planted, planetoid


@pytest.fixture
def marker(tmp_path: Path) -> Any:
    """Yield the file that a payload makes; at the end it must not be there."""
    path = tmp_path / "ran"
    yield path
    assert not path.exists()


@pytest.fixture(scope="module")
def once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    assert invoke("run", config(folder), "--out", folder / "run").exit_code == 0
    return folder / "run"


@pytest.fixture
def given(once: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(once, tmp_path / "given"))


def changed(given: Path, **data: Any) -> None:
    document = yaml.safe_load((given / "config.yaml").read_text())
    document["data"].update(data)
    (given / "config.yaml").write_text(yaml.safe_dump(document, sort_keys=False))


def test_a_changed_configuration_is_broken_evidence_and_nothing_of_it_is_used(
    given: Path, tmp_path: Path, marker: Path
) -> None:
    """Today's attack: config.yaml named a data root, whose raw files PyG unpickled."""
    folder = planetoid(tmp_path / "theirs", "Cora")
    (folder / "ind.cora.x").write_bytes(pickle.dumps(Planted(marker), protocol=2))
    changed(given, name="pyg/Planetoid/Cora", root=str(tmp_path / "theirs"))
    for command in ("verify", "attack"):
        shown = invoke("audit", command, given)
        assert shown.exit_code == 5 and "config.yaml is not the configuration" in shown.stderr
    assert not (folder.parent / "processed").exists()


@pytest.mark.parametrize("change", ["a byte", "gone", "white space"])
def test_any_change_of_the_configuration_fails_at_plan(change: str, given: Path) -> None:
    path = given / "config.yaml"
    text = path.read_text()
    if change == "gone":
        path.unlink()
    else:
        path.write_text(text.replace("seed: 1", "seed: 2") if change == "a byte" else text + "\n")
    outcome = Run(given).verify()
    failed = [step for step in outcome.steps if str(step.status) == "FAIL"]
    assert failed[0].name == "plan" and "config.yaml" in failed[0].detail
    path.write_text(text)
    assert Run(given).verify().ok  # the control


def test_a_bundle_leaves_the_configuration_out_and_verifies(given: Path) -> None:
    assert invoke("audit", "bundle", given).exit_code == 0
    assert invoke("audit", "verify", given / "bundle.zip").exit_code == 0


def foreign(folder: Path, root: Path) -> Path:
    """Return a run whose evidence is intact, of a party that chose where its data lie."""
    document = yaml.safe_load(CONFIG)
    document["data"] = {
        "name": "pyg/Planetoid/Tiny",
        "root": str(root),
        "options": SIZES,
        "partition": {"name": "iid_nodes", "clients": 5},
    }
    Federation.from_config(Config.parse(document)).run(folder / "run")
    return folder / "run"


def test_the_data_root_of_an_audit_is_the_auditor_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, marker: Path
) -> None:
    monkeypatch.delenv("SECURE_FGL_DATA", raising=False)
    theirs, mine = tmp_path / "theirs", tmp_path / "mine"
    raw = planetoid(theirs, "Tiny")
    run = foreign(tmp_path, theirs)
    shutil.copytree(theirs, mine)
    for place in (raw, raw.parent / "processed"):  # a trap for whoever takes the path of the run
        shutil.rmtree(place)
    raw_planetoid_trap(theirs, marker)
    shown = invoke("audit", "attack", run, "--fail-on", "never")
    assert shown.exit_code == 0 and "cannot be read" in shown.stderr, shown.stderr
    assert not (raw.parent / "processed").exists()
    assert material(Run(run), data=mine).exposures  # the control: with the auditor's own
    monkeypatch.setenv("SECURE_FGL_DATA", str(mine))
    assert material(Run(run)).exposures
    monkeypatch.setenv("SECURE_FGL_DATA", str(theirs))
    assert invoke("audit", "attack", run, "--fail-on", "never").exit_code == 0
    kept = (run / "attacks.json").read_text() + (run / "report" / "report.html").read_text()
    assert "cannot be read here" in kept and str(tmp_path) not in kept  # no path of the auditor's
    with pytest.raises(UsageError, match="is refused"):  # a trap that the auditor named is no help
        material(Run(run), data=theirs)


def raw_planetoid_trap(root: Path, marker: Path) -> None:
    folder = root / "pyg" / "Planetoid" / "Tiny" / "raw"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(planetoid(root / "copy", "Tiny"), folder)
    (folder / "ind.tiny.allx").write_bytes(pickle.dumps(Planted(marker), protocol=2))


def test_an_audit_reads_neither_a_policy_file_nor_the_environment_for_others(
    given: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECURE_FGL_SECRET", "an auditor's own")
    for spelt in (
        "${SECURE_FGL_SECRET}",
        r'"\u0024{SECURE_FGL_SECRET}"',
        r'"\x24{SECURE_FGL_NO:-}"',
    ):
        with pytest.raises(UsageError, match="none that a run leaves"):
            Config.of_others(f"policy: {spelt}\n")
    text = (given / "config.yaml").read_text()
    found = Config.of_others(text.replace("policy: pilot", "policy: /nobody/has/this.yaml"))
    assert found.policy == "/nobody/has/this.yaml"  # a name; material() takes policy.json
    path = tmp_path / "p.yaml"
    path.write_text(CONFIG.replace("policy: pilot", f"policy: {tmp_path}/own.yaml"))
    own = Path(__file__).resolve().parents[2] / "examples" / "own_policy.yaml"
    shutil.copy(own, tmp_path / "own.yaml")
    assert invoke("run", path, "--out", tmp_path / "run").exit_code == 0
    (tmp_path / "own.yaml").unlink()
    assert material(Run(tmp_path / "run")).missing.startswith("policy 'own' forbids")


def test_ledgers_name_the_configuration(once: Path) -> None:
    digest = hashlib.sha256((once / "config.yaml").read_bytes()).hexdigest()
    for ledger in (once / "ledger").iterdir():
        first = json.loads(ledger.read_text().splitlines()[0])
        assert first["config"] == digest


def test_an_audit_fetches_nothing_that_a_run_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch_geometric.datasets import Planetoid

    asked: list[str] = []

    def download(self: Any) -> None:
        asked.append(self.root)
        raise OSError("no connection")

    theirs, mine = tmp_path / "theirs", tmp_path / "mine"
    planetoid(theirs, "Tiny")
    run = foreign(tmp_path, theirs)
    mine.mkdir()
    monkeypatch.setattr(Planetoid, "download", download)
    with pytest.raises(UsageError, match="cannot be read"):
        material(Run(run), data=mine)
    assert not asked and not [*mine.rglob("raw")]
    with pytest.raises(FileNotFoundError, match="could not fetch"):  # the control: a run does ask
        read_dataset("pyg/Planetoid/Tiny", mine, **SIZES)
    assert asked
