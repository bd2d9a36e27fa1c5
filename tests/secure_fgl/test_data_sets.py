"""Loading by name: public sizes without files, clear errors, published figures on real files."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from secure_fgl.data import dataset_names, read_dataset, spec_of
from secure_fgl.data.sources import node_npz

EDGES = {  # distinct undirected edges, from the literature
    "actor": 26659,
    "amazon_computers": 245861,
    "chameleon_filtered": 8854,
    "citeseer": 4552,
    "coauthor_cs": 81894,
    "coauthor_physics": 247962,
    "cora": 5278,
    "cora_ml": 8158,
    "dblp": 52867,
    "minesweeper": 39402,
    "pubmed_structure": 44324,
    "squirrel_filtered": 46998,
    "tolokers": 519000,
}


@pytest.fixture(autouse=True)
def _no_folder_by_accident(monkeypatch):
    monkeypatch.delenv("SECURE_FGL_DATA", raising=False)


def write(folder, *, nodes=2708, features=1433, classes=7, **changes):
    """A file in Cora's shape, with random content."""
    rng = np.random.default_rng(0)
    x = sp.random_array((nodes, features), density=0.01, format="csr", dtype=np.float32, rng=rng)
    arrays = {
        "edges": np.array([[0, 1, 2], [1, 2, 3]], np.int32),
        "y": (np.arange(nodes) % classes).astype(np.int16),
        "x_indptr": x.indptr,
        "x_indices": x.indices,
        "x_data": x.data,
        "x_shape": np.array(x.shape),
    }
    for name, value in changes.items():
        arrays[name] = value
    path = folder / "cora" / "cora.npz"
    path.parent.mkdir(parents=True)
    np.savez_compressed(path, **arrays)
    return path


def test_every_published_set_has_a_name():
    assert set(node_npz.NAMES) == set(EDGES)
    assert {*EDGES, "synthetic_banks", "twitch", "mutag", "bbbp", "ciao"} < set(dataset_names())


def test_every_set_in_the_folder_has_a_name_but_for_those_without_a_task(data_root):
    found = {path.stem for end in ("npz", "csv") for path in data_root.glob(f"*/*.{end}")}
    regressions = {"esol", "freesolv", "lipophilicity"}
    assert found - set(dataset_names()) == {*regressions, "ml1m_implicit"}


@pytest.mark.parametrize("name", sorted(EDGES))
def test_a_spec_needs_no_file(name, monkeypatch, tmp_path):
    monkeypatch.setenv("SECURE_FGL_DATA", str(tmp_path / "nowhere"))
    monkeypatch.setattr(np, "load", None)  # any look into a file would fail
    spec = spec_of(name, clients=5)
    assert (spec.task, spec.name, spec.clients) == ("node", name, 5)
    assert spec.synthetic == (name == "minesweeper")


def test_cora_s_spec():
    spec = spec_of("cora", clients=5)
    assert (spec.features, spec.classes, spec.records) == (1433, 7, 1024)  # 542 rounded up


@pytest.mark.parametrize(
    ("share", "records"), [(0.2, 512), (0.2001, 1024), (1.0, 4096), (0.0004, 1)]
)
def test_records_are_the_next_power_of_two(share, records):
    shape = {"banks": 2, "customers": 640, "transactions": 640}  # 2,560 nodes
    spec = spec_of("synthetic_banks", clients=2, train_share=share, options=shape)
    assert spec.records == (2 if share == 0.0004 else records)  # 1.024 nodes: two at most


@pytest.mark.parametrize("share", [0.0, -0.1, 1.5])
def test_a_share_out_of_range_is_refused(share):
    with pytest.raises(ValueError, match="train_share"):
        spec_of("cora", clients=5, train_share=share)


@pytest.mark.parametrize("call", [read_dataset, lambda name: spec_of(name, clients=3)])
def test_an_unknown_name_gets_the_nearest(call):
    with pytest.raises(ValueError, match="did you mean 'citeseer'"):
        call("citeser")


def test_without_a_folder_the_error_says_what_to_do():
    with pytest.raises(FileNotFoundError, match=r"data\.root.*SECURE_FGL_DATA.*cora/cora\.npz"):
        read_dataset("cora")


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="folder does not exist") as missing:
        read_dataset("cora", tmp_path / "nowhere")
    assert str(tmp_path / "nowhere" / "cora" / "cora.npz") in str(missing.value)


def test_a_missing_file_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("SECURE_FGL_DATA", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="no such file") as missing:
        read_dataset("cora")
    assert str(tmp_path / "cora" / "cora.npz") in str(missing.value)


def test_the_root_wins_over_the_environment(tmp_path, monkeypatch):
    write(tmp_path / "here")
    monkeypatch.setenv("SECURE_FGL_DATA", str(tmp_path / "elsewhere"))
    assert read_dataset("cora", str(tmp_path / "here")).nodes == 2708


def test_sparse_features_are_as_the_file_has_them(tmp_path):
    write(tmp_path)
    graph = read_dataset("cora", tmp_path)
    assert sp.issparse(graph.x)
    assert graph.x.dtype == np.float32
    with np.load(tmp_path / "cora" / "cora.npz") as arrays:
        for name in ("data", "indices", "indptr"):
            np.testing.assert_array_equal(getattr(graph.x, name), arrays[f"x_{name}"])


def test_unlabelled_nodes_stay_unlabelled(tmp_path):
    y = (np.arange(2708) % 7).astype(np.int16)
    y[:15] = -1
    write(tmp_path, y=y)
    assert (read_dataset("cora", tmp_path).y[:15] == -1).all()


@pytest.mark.parametrize(
    "changes",
    [
        {"nodes": 2707},
        {"features": 1432},
        {"classes": 6},
        {"y": np.full(2708, -2, np.int16)},
        {"y": np.array([-2, *(np.arange(2707) % 7)], np.int16)},
        {"edges": np.array([[1], [0]], np.int32)},
        {"edges": np.array([[4], [4]], np.int32)},
        {"edges": np.array([[0], [2708]], np.int32)},
        {"edges": np.array([[-1], [0]], np.int32)},
        {"edges": np.array([0, 1], np.int32)},
        {"edges": np.array([[0, 0], [1, 1]], np.int32)},
        {"edges": np.array([[0.5], [1.5]], np.float32)},
        {"edges": np.zeros((2, 0), np.int32)},
        {"x_data": np.array([np.nan], np.float32)},
        {"x_indices": np.full(38806, 1433, np.int32)},
        {"x_indices": np.full(38806, -1, np.int32)},
        {"y": np.array([object()])},
    ],
    ids=lambda changes: "-".join(changes),
)
def test_another_file_under_the_name_is_refused(tmp_path, changes):
    path = write(tmp_path, **changes)
    with pytest.raises(ValueError, match=r"not the published set|cannot be read") as refused:
        read_dataset("cora", tmp_path)
    assert str(path) in str(refused.value)


def test_features_that_are_not_finite_are_refused(tmp_path):
    path = write(tmp_path)
    with np.load(path) as arrays:
        changed = dict(arrays)
    changed["x_data"] = changed["x_data"].copy()
    changed["x_data"][0] = np.inf
    np.savez(path, **changed)
    with pytest.raises(ValueError, match="cannot be read"):
        read_dataset("cora", tmp_path)


@pytest.mark.parametrize("keep", [0.0, 0.001, 0.5, 0.9, 0.999])
def test_a_damaged_file_is_refused(tmp_path, keep):
    path = write(tmp_path)
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * keep)])
    with pytest.raises(ValueError, match="cannot be read"):
        read_dataset("cora", tmp_path)


def test_flipped_bits_are_refused(tmp_path):
    path = write(tmp_path)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)
    with pytest.raises(ValueError, match="cannot be read"):
        read_dataset("cora", tmp_path)


@pytest.mark.parametrize("name", sorted(EDGES))
def test_the_published_figures(name, data_root):
    graph = read_dataset(name, data_root)
    spec = spec_of(name, clients=1)
    assert graph.edges.shape == (2, EDGES[name])
    assert graph.x.shape == (graph.nodes, spec.features)
    assert (graph.classes, graph.synthetic) == (spec.classes, spec.synthetic)
    assert set(np.unique(graph.y)) - {-1} == set(range(graph.classes))
    assert (graph.y == -1).sum() == (15 if name == "citeseer" else 0)
    assert graph.owner is None
    assert repr(graph) == f"<Graph {name}>"


def test_an_environment_variable_names_the_folder(data_root, tmp_path, monkeypatch):
    folder = tmp_path / "cora"
    folder.mkdir()
    shutil.copy(Path(data_root) / "cora" / "cora.npz", folder)
    monkeypatch.setenv("SECURE_FGL_DATA", str(tmp_path))
    assert read_dataset("cora").nodes == node_npz.NAMES["cora"].records
