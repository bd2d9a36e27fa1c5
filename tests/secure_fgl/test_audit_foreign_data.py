"""Audits run and read nothing that a run folder names, and no data file runs anything."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
import yaml

from secure_fgl.auditing import material
from secure_fgl.config import Config
from secure_fgl.data import load_dataset
from secure_fgl.data.sources._pickles import PickleRefused, no_pickles
from secure_fgl.data.sources._planetoid import read_object, read_planetoid
from secure_fgl.errors import UsageError
from secure_fgl.federation import Federation
from secure_fgl.runs import Run
from tests.secure_fgl.cli_tools import CONFIG, config, invoke

NODES, WORDS, CLASSES = 560, 6, 3
TINY = {"features": WORDS, "classes": CLASSES, "records": NODES}


class Planted:
    """What a planted file would do when it is unpickled: make a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return (open, (str(self.path), "w"))


@pytest.fixture
def marker(tmp_path: Path) -> Any:
    """Yield the file that a payload makes; at the end it must not be there."""
    path = tmp_path / "ran"
    yield path
    assert not path.exists()


def raw_planetoid(root: Path, name: str = "Tiny") -> Path:
    """Write a small set as Planetoid's authors did, in protocol 2."""
    rng = np.random.default_rng(1)
    x = sp.csr_matrix((rng.random((NODES, WORDS)) < 0.5).astype(np.float32))
    y = np.eye(CLASSES, dtype=np.int32)[np.arange(NODES) % CLASSES]
    known, seen = 6, NODES - 10
    graph = {n: [(n + 1) % NODES, n, (n - 1) % NODES] for n in range(NODES)}
    parts = {
        **{"x": x[:known], "tx": x[seen:], "allx": x[:seen], "y": y[:known]},
        **{"ty": y[seen:], "ally": y[:seen], "graph": graph},
    }
    folder = root / "pyg" / "Planetoid" / name / "raw"
    folder.mkdir(parents=True)
    for part, content in parts.items():
        (folder / f"ind.{name.lower()}.{part}").write_bytes(pickle.dumps(content, protocol=2))
    index = "\n".join(str(n) for n in rng.permutation(np.arange(seen, NODES)))
    (folder / f"ind.{name.lower()}.test.index").write_text(index + "\n")
    return folder


# --- raw files ------------------------------------------------------------------------------------


def test_planetoid_is_read_as_pyg_reads_it(tmp_path: Path) -> None:
    from torch_geometric.io.planetoid import read_planetoid_data

    folder = raw_planetoid(tmp_path)
    theirs, ours = read_planetoid_data(str(folder), "Tiny"), read_planetoid(folder, "Tiny")
    assert np.array_equal(theirs.x.numpy(), ours.x) and np.array_equal(theirs.y.numpy(), ours.y)
    for role, mask in ours.masks.items():
        assert np.array_equal(theirs[f"{role}_mask"].numpy(), mask)
    both = [set(map(frozenset, arcs.T.tolist())) for arcs in (theirs.edge_index.numpy(), ours.arcs)]
    assert both[0] == both[1] and len(both[0]) == NODES
    graph = load_dataset("pyg/Planetoid/Tiny", tmp_path, **TINY)
    again = load_dataset("pyg/Planetoid/Tiny", tmp_path, **TINY)  # of the processed file
    assert graph.edges.shape == (2, NODES) and np.array_equal(graph.edges, again.edges)


@pytest.mark.parametrize("part", ["tx", "allx", "ally", "graph"])
def test_a_planted_raw_file_is_not_run(part: str, tmp_path: Path, marker: Path) -> None:
    folder = raw_planetoid(tmp_path)
    (folder / f"ind.tiny.{part}").write_bytes(pickle.dumps(Planted(marker), protocol=2))
    with pytest.raises(ValueError, match=r"not opened|could not read"):
        load_dataset("pyg/Planetoid/Tiny", tmp_path, **TINY)


def test_control_pyg_runs_it(tmp_path: Path) -> None:
    from torch_geometric.datasets import Planetoid

    folder, ran = raw_planetoid(tmp_path), tmp_path / "ran"
    (folder / "ind.tiny.x").write_bytes(pickle.dumps(Planted(ran), protocol=2))
    with pytest.raises(Exception, match=""):
        Planetoid(str(tmp_path / "pyg" / "Planetoid"), name="Tiny")
    assert ran.exists()


def test_what_pyg_notes_beside_processed_files_is_not_run(tmp_path: Path, marker: Path) -> None:
    raw_planetoid(tmp_path)
    load_dataset("pyg/Planetoid/Tiny", tmp_path, **TINY)
    processed = tmp_path / "pyg" / "Planetoid" / "Tiny" / "processed"
    for name in ("pre_transform.pt", "pre_filter.pt"):
        before = (processed / name).read_bytes()
        torch.save(Planted(marker), processed / name)
        with pytest.raises(ValueError, match=r"not opened|could not read"):
            load_dataset("pyg/Planetoid/Tiny", tmp_path, **TINY)
        (processed / name).write_bytes(before)
    load_dataset("pyg/Planetoid/Tiny", tmp_path, **TINY)


def test_arrays_of_objects_are_not_run(tmp_path: Path, marker: Path) -> None:
    folder = tmp_path / "pyg" / "Twitch" / "DE" / "raw"
    folder.mkdir(parents=True)
    nodes = {"features": np.ones((4, 2)), "target": np.array([0, 1, 0, 1])}
    np.savez(folder / "DE.npz", edges=np.array([[0, 1], [1, 2]]), **nodes)
    sizes = {"features": 2, "classes": 2, "records": 4}
    assert load_dataset("pyg/Twitch/DE", tmp_path, **sizes).edges.shape == (2, 2)
    shutil.rmtree(folder.parent / "processed")
    planted = np.array([Planted(marker)], dtype=object)
    np.savez(folder / "DE.npz", edges=planted, **nodes)
    with pytest.raises(ValueError, match=r"not opened|could not read"):
        load_dataset("pyg/Twitch/DE", tmp_path, **sizes)


def opened(how: str, marker: Path, folder: Path) -> Callable[[], Any]:
    file = folder / "planted"
    if how == "torch":
        torch.save(Planted(marker), file)
        return lambda: torch.load(file, weights_only=False)
    if how == "numpy":
        np.save(folder / "planted.npy", np.array([Planted(marker)], dtype=object))
        return lambda: np.load(folder / "planted.npy", allow_pickle=True)
    data = pickle.dumps(Planted(marker))
    return (lambda: pickle.loads(data)) if how == "c" else (lambda: pickle._loads(data))  # type: ignore[attr-defined]


@pytest.mark.parametrize("how", ["c", "python", "numpy", "torch"])
def test_no_pickle_that_looks_up_a_name_is_opened_while_data_are_read(
    how: str, tmp_path: Path, marker: Path
) -> None:
    attempt = opened(how, marker, tmp_path)
    with no_pickles(), pytest.raises(Exception, match=r"pickle|weights"):
        attempt()
    assert not marker.exists()
    attempt()  # the control, and the end of the block
    marker.unlink()
    assert "TORCH_FORCE_WEIGHTS_ONLY_LOAD" not in os.environ


HOSTILE = {
    "a name": b"cos\nsystem\n(S'true'\ntR.",
    "a name of protocol 4": pickle.dumps(os.system, protocol=4),
    "another class": b"\x80\x02ccollections\nOrderedDict\n)R.",
    "a call of a list": b"\x80\x02c__builtin__\nlist\n)R.",
    "an extension": b"\x80\x02\x82\x01.",
    "a persistent name": b"\x80\x02U\x01aQ.",
    "an array larger than its bytes": pickle.dumps(np.zeros(4, np.int32), protocol=2).replace(
        b"K\x04\x85", b"J\xff\xff\xff\x7f\x85"
    ),
    "objects": pickle.dumps(np.array([None, 1], dtype=object), protocol=2),
    "a shape below zero": pickle.dumps(np.zeros(4, np.int32), protocol=2).replace(
        b"K\x04\x85", b"J\xfc\xff\xff\xff\x85"
    ),
    "no end": b"\x80\x02K\x01",
    "nothing": b"",
    "an empty stack": b"\x80\x02\x85.",
    "a mark that is not there": b"\x80\x02t.",
    "a text": b"\x80\x02U\x01a.",
    "lists of texts": pickle.dumps({1: ["a"]}, protocol=2),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_raw_file_that_says_more_than_numbers_is_refused(name: str) -> None:
    with pytest.raises(PickleRefused):
        read_object(HOSTILE[name])


def test_mutated_raw_files_raise_one_error(tmp_path: Path) -> None:
    rng = np.random.default_rng(7)
    whole = pickle.dumps(sp.csr_matrix(np.eye(5, dtype=np.float32)), protocol=2)
    for _ in range(3000):
        data = bytearray(whole)
        for place in rng.integers(0, len(data), size=rng.integers(1, 4)):
            data[place] = rng.integers(0, 256)
        try:
            read_object(bytes(data))
        except PickleRefused:
            continue


# --- audits ---------------------------------------------------------------------------------------


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
    folder = raw_planetoid(tmp_path / "theirs", "Cora")
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
        "options": TINY,
        "partition": {"name": "iid_nodes", "clients": 5},
    }
    Federation.from_config(Config.parse(document)).run(folder / "run")
    return folder / "run"


def test_the_data_root_of_an_audit_is_the_auditor_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, marker: Path
) -> None:
    monkeypatch.delenv("SECURE_FGL_DATA", raising=False)
    theirs, mine = tmp_path / "theirs", tmp_path / "mine"
    raw = raw_planetoid(theirs)
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
    with pytest.raises(UsageError, match="not opened"):  # a trap that the auditor named is no help
        material(Run(run), data=theirs)


def raw_planetoid_trap(root: Path, marker: Path) -> None:
    folder = root / "pyg" / "Planetoid" / "Tiny" / "raw"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(raw_planetoid(root / "copy"), folder)
    (folder / "ind.tiny.allx").write_bytes(pickle.dumps(Planted(marker), protocol=2))


def test_an_audit_reads_neither_a_policy_file_nor_the_environment_for_others(
    given: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECURE_FGL_SECRET", "an auditor's own")
    with pytest.raises(UsageError, match="none that a run leaves"):
        Config.of_others("policy: ${SECURE_FGL_SECRET}\n")
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
