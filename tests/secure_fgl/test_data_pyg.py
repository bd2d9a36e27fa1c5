"""PyG's data sets by name, on raw files written here: PyG reads them and fetches nothing."""

from __future__ import annotations

import json
import socket
import types

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from secure_fgl.data import dataset_names, published_shape, read_dataset, spec_of
from secure_fgl.data.sources import pyg
from secure_fgl.data.sources._shared import pyg_files

SIZES = {"features": 3, "classes": 2, "records": 8}


@pytest.fixture(autouse=True)
def _no_network(monkeypatch):
    def refuse(*_, **__):
        raise OSError("this test has no network")

    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


def tu_set(root, **changes):
    """A raw TU set TINY: a triangle, a lone node and a pair, with labels and two attributes."""
    lines = {
        "A": ["1, 2", "2, 1", "2, 3", "3, 2", "1, 3", "3, 1", "5, 6", "6, 5"],
        "graph_indicator": [1, 1, 1, 2, 3, 3],
        "graph_labels": [-1, 1, 1],
        "node_labels": [0, 1, 2, 0, 1, 2],
        "node_attributes": [f"{node}.5, -{node}" for node in range(6)],
    } | changes
    folder = root / "pyg" / "TUDataset" / "TINY" / "raw"
    folder.mkdir(parents=True)
    for name, content in lines.items():
        if content is not None:
            (folder / f"TINY_{name}.txt").write_text("\n".join(map(str, content)) + "\n")


def wiki_set(root, *, folds=20):
    """A raw WikiCS of five nodes: a path of four, a loop, and one node alone."""
    draw = [[place == fold % 2 for place in range(5)] for fold in range(folds)]
    folder = root / "pyg" / "WikiCS" / "raw"
    folder.mkdir(parents=True)
    document = {
        "features": [[float(node), -1.0, 0.5] for node in range(5)],
        "labels": [0, 1, 0, 1, 1],
        "links": [[1], [2], [3, 3], [], [4]],
        "train_masks": draw,
        "val_masks": [[False, False, True, False, False]] * folds,
        "stopping_masks": [[False] * 5] * folds,
        "test_mask": [False, False, False, True, False],
    }
    (folder / "data.json").write_text(json.dumps(document))


def test_a_tu_set(tmp_path):
    tu_set(tmp_path)
    graphs = read_dataset("pyg/TUDataset/TINY", tmp_path, **SIZES)
    assert graphs.sizes.tolist() == [3, 1, 2]
    assert graphs.edges.tolist() == [[0, 0, 1, 4], [1, 2, 2, 5]]
    assert graphs.y.tolist() == [0, 1, 1]
    assert graphs.y.dtype == np.int64
    assert graphs.x.toarray().tolist() == np.eye(3)[[0, 1, 2, 0, 1, 2]].tolist()


def test_attributes_of_a_tu_set(tmp_path):
    tu_set(tmp_path)
    options = {**SIZES, "attributes": True, "features": 5}
    graphs = read_dataset("pyg/TUDataset/TINY", tmp_path, **options)
    assert graphs.x.toarray()[4].tolist() == [4.5, -4, 0, 1, 0]


def test_a_tu_set_without_features_gets_capped_degrees(tmp_path):
    tu_set(tmp_path, node_labels=None, node_attributes=None)
    two = read_dataset("pyg/TUDataset/TINY", tmp_path, **{**SIZES, "features": 2})
    assert two.x.toarray().argmax(axis=1).tolist() == [1, 1, 1, 0, 1, 1]
    three = read_dataset("pyg/TUDataset/TINY", tmp_path, **SIZES)
    assert three.x.toarray().argmax(axis=1).tolist() == [2, 2, 2, 0, 1, 1]


def test_an_edge_into_another_graph_is_refused():
    def item(arcs, y=0):
        return types.SimpleNamespace(
            num_nodes=2, x=None, y=torch.tensor([y]), edge_index=torch.tensor(arcs)
        )

    shape = pyg.NAMES["pyg/TUDataset/MUTAG"]
    assert pyg_files.graph_set("toy", [item([[0], [1]])] * 2, shape).edges.tolist() == [
        [0, 2],
        [1, 3],
    ]
    for arcs in ([[0], [2]], [[-1], [0]]):
        with pytest.raises(ValueError, match="sizes"):
            pyg_files.graph_set("toy", [item([[0], [1]]), item(arcs), item([[0], [1]])], shape)
    with pytest.raises(ValueError, match="classes"):
        pyg_files.graph_set("toy", [item([[0], [1]], y=-1)], shape)


@pytest.mark.parametrize(
    "sizes", [{"features": 4}, {"features": 2}, {"records": 2}, {"classes": 1}]
)
def test_a_set_of_other_sizes_is_refused(tmp_path, sizes):
    tu_set(tmp_path)
    with pytest.raises(ValueError, match=r"does not agree with its sizes|more than 2 graphs"):
        read_dataset("pyg/TUDataset/TINY", tmp_path, **{**SIZES, **sizes})


def wiki(root, **options):
    sizes = {"features": 3, "classes": 2, "records": 5}
    return read_dataset("pyg/WikiCS", root, **sizes, **options)


def test_a_node_set(tmp_path):
    wiki_set(tmp_path)
    graph = wiki(tmp_path)
    assert graph.edges.tolist() == [[0, 1, 2], [1, 2, 3]]  # no loop, each pair once
    assert graph.y.tolist() == [0, 1, 0, 1, 1]
    assert graph.x.dtype == np.float32
    assert graph.x[:, 0].tolist() == [0, 1, 2, 3, 4]  # no word counts: as they are
    assert graph.public is None


def test_published_folds_of_a_node_set(tmp_path):
    wiki_set(tmp_path)
    first, second = (wiki(tmp_path, split="published", fold=fold) for fold in (0, 1))
    assert [np.flatnonzero(mask).tolist() for mask in first.public] == [[0], [2], [3]]
    assert [np.flatnonzero(mask).tolist() for mask in second.public] == [[1], [2], [3]]
    with pytest.raises(ValueError, match="0 to 19"):
        wiki(tmp_path, split="published", fold=20)


def test_a_published_fold_that_the_files_lack_is_refused(tmp_path):
    wiki_set(tmp_path, folds=2)
    with pytest.raises(ValueError, match="does not agree"):
        wiki(tmp_path, split="published", fold=2)


def test_the_largest_component_of_a_node_set(tmp_path):
    wiki_set(tmp_path)
    assert wiki(tmp_path, largest_component=True).y.tolist() == [0, 1, 0, 1]


def test_a_molecule_set(tmp_path):
    folder = tmp_path / "pyg" / "MoleculeNet" / "bbbp" / "raw"
    folder.mkdir(parents=True)
    (folder / "BBBP.csv").write_text("num,name,p_np,smiles\n1,a,1,CO\n2,b,0,c1ccccc1\n3,c,,N\n")
    graphs = read_dataset("pyg/MoleculeNet/BBBP", tmp_path)
    assert (graphs.multilabel, graphs.sizes.tolist()) == (True, [2, 6, 1])
    np.testing.assert_array_equal(graphs.y, np.array([[1], [0], [np.nan]], np.float32))
    assert graphs.x.shape == (9, published_shape("pyg/MoleculeNet/BBBP").features)
    assert (graphs.x.sum(axis=1) == 9).all()
    assert graphs.x[[1]].indices[0] == 8  # atomic number of oxygen


def test_the_table_of_atoms_is_pyg_s():
    from torch_geometric.utils.smiles import x_map

    assert tuple(len(values) for values in x_map.values()) == pyg_files.ATOM_WIDTHS


def test_a_regression_is_refused(tmp_path):
    folder = tmp_path / "pyg" / "MoleculeNet" / "esol" / "raw"
    folder.mkdir(parents=True)
    head = "a,b,c,d,e,f,g,h,target,smiles\n"
    (folder / "delaney-processed.csv").write_text(f"{head}0,0,0,0,0,0,0,0,-0.77,CO\n")
    sizes = {"features": 177, "classes": 1, "records": 2000}
    with pytest.raises(ValueError, match="does not agree"):
        read_dataset("pyg/MoleculeNet/ESOL", tmp_path, **sizes)


def planetoid(monkeypatch, **changes):
    """What is opened, replaced by four nodes; keeps its arguments."""
    arrays = {
        "x": torch.tensor([[1.0, 3.0, 0.0], [0, 0, 0], [0, 2, 2], [1, 0, 0]]),
        "y": torch.tensor([0, 1, 1, 0]),
        "edge_index": torch.tensor([[0, 1, 2, 2, 3], [1, 0, 2, 3, 2]]),
        "train_mask": torch.tensor([True, True, False, False]),
        "val_mask": torch.tensor([False, False, True, False]),
        "test_mask": torch.tensor([False, False, False, True]),
    } | changes
    asked = []

    def made(kind, folder, settings, shape):
        asked.append((kind, folder, settings))
        return [types.SimpleNamespace(**arrays)]

    monkeypatch.setattr("secure_fgl.data.sources._shared.pyg_files.opened", made)
    return asked


def test_word_counts_are_kept_sparse_and_as_they_are(tmp_path, monkeypatch):
    asked = planetoid(monkeypatch)
    graph = read_dataset("pyg/Planetoid/Tiny", tmp_path, split="published", **SIZES)
    assert asked == [("Planetoid", tmp_path / "pyg" / "Planetoid", {"name": "Tiny"})]
    assert sp.issparse(graph.x)
    expected = [[1, 3, 0], [0, 0, 0], [0, 2, 2], [1, 0, 0]]
    assert graph.x.toarray().tolist() == expected
    assert graph.edges.tolist() == [[0, 2], [1, 3]]
    assert [mask.sum() for mask in graph.public] == [2, 1, 1]


@pytest.mark.parametrize(
    "changes",
    [
        {"x": None},
        {"x": torch.zeros(3, 3)},
        {"x": torch.full((4, 3), float("nan"))},
        {"y": torch.tensor([0, 1, 2, 0])},
        {"y": torch.tensor([0.0, 1.0, 1.0, 0.0])},
        {"edge_index": torch.tensor([[0], [4]])},
        {"edge_index": torch.tensor([[-1], [0]])},
        {"edge_index": torch.tensor([0, 1])},
        {"edge_index": torch.zeros(2, 1, dtype=torch.int64).expand(2, 10**12)},
        {"y": torch.zeros(1, dtype=torch.int64).expand(10**12)},
        {"train_mask": None},
        {"train_mask": torch.tensor([True, True, True, False])},
        {"train_mask": torch.tensor([1, 1, 0, 0])},
    ],
)
def test_data_that_do_not_fit_are_refused(tmp_path, monkeypatch, changes):
    planetoid(monkeypatch, **changes)
    with pytest.raises(ValueError, match="does not agree"):
        read_dataset("pyg/Planetoid/Tiny", tmp_path, split="published", **SIZES)


@pytest.mark.parametrize(
    ("name", "options", "match"),
    [
        ("pyg/Planetoids/Cora", {}, "did you mean 'Planetoid'"),
        ("pyg/Planetoid", {}, "called pyg/Planetoid/NAME"),
        ("pyg/WikiCS/Wiki", {}, "called pyg/WikiCS$"),
        ("pyg/TUDataset/..", SIZES, "letters, digits"),
        ("pyg/TUDataset/../../x", SIZES, "letters, digits"),
        ("pyg/TUDataset/a/b", SIZES, "letters, digits"),
        ("pyg/TUDataset/", SIZES, "letters, digits"),
        ("pyg/TUDataset/TINY", {}, "sizes of .* are not known"),
        ("pyg/TUDataset/TINY", {"features": 3, "classes": 2}, "sizes of .* are not known"),
        ("pyg/TUDataset/MUTAG", {"attributes": True}, "sizes of .* are not known"),
        ("pyg/TUDataset/MUTAG", {"split": "published"}, "no option"),
        ("pyg/TUDataset/MUTAG", {"records": 0}, "1 or more"),
        ("pyg/TUDataset/MUTAG", {"records": 2.5}, "whole number"),
        ("pyg/MoleculeNet/BBBP", {"attributes": True}, "no option"),
        ("pyg/Amazon/Photo", {"split": "published"}, "no option"),
        ("pyg/Planetoid/Cora", {"split": "full"}, "only be 'published'"),
        ("pyg/Actor", {"split": "published", "fold": 10}, "0 to 9"),
        ("pyg/Actor", {"largest_component": 1}, "true or false"),
    ],
)
def test_a_wrong_name_or_option_is_refused_with_and_without_data(name, options, match, tmp_path):
    with pytest.raises(ValueError, match=match):
        spec_of(name, clients=3, options=options)
    with pytest.raises(ValueError, match=match):
        read_dataset(name, tmp_path, **options)
    assert not list(tmp_path.iterdir())


def test_well_known_sizes_need_no_options():
    listed = [name for name in dataset_names() if name.startswith("pyg/")]
    assert set(listed) == set(pyg.NAMES)
    for name in listed:
        spec = spec_of(name, clients=3)
        assert spec.task == pyg.CLASSES[name.split("/")[1]].task
        assert spec.multilabel == ("MoleculeNet" in name)
    assert spec_of("pyg/Planetoid/PubMed", clients=3).features == 500


def test_sizes_can_be_given(tmp_path):
    spec = spec_of("pyg/TUDataset/TINY", clients=3, train_share=1.0, options=SIZES)
    assert (spec.task, spec.features, spec.classes, spec.records) == ("graph", 3, 2, 8)


def test_every_class_is_one_of_pyg_s():
    from torch_geometric import datasets

    assert all(hasattr(datasets, name) for name in pyg.CLASSES)


def test_without_a_folder_the_error_says_what_to_do(monkeypatch):
    monkeypatch.delenv("SECURE_FGL_DATA", raising=False)
    with pytest.raises(FileNotFoundError, match=r"data\.root.*SECURE_FGL_DATA"):
        read_dataset("pyg/WikiCS")


def test_without_a_network_the_error_says_so(tmp_path):
    with pytest.raises(FileNotFoundError, match="most likely there is no connection"):
        read_dataset("pyg/WikiCS", tmp_path)


def test_a_download_that_was_cut_short_is_told(tmp_path):
    wiki_set(tmp_path)
    raw = tmp_path / "pyg" / "WikiCS" / "raw" / "data.json"
    raw.write_text(raw.read_text()[:50])
    with pytest.raises(ValueError, match="cut short"):
        wiki(tmp_path)


class _Planted:
    """What a planted processed file would run when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


def test_a_processed_file_with_code_in_it_is_refused_and_not_run(tmp_path):
    wiki_set(tmp_path)
    wiki(tmp_path)
    (processed,) = (tmp_path / "pyg" / "WikiCS" / "processed").glob("data*.pt")
    torch.save((_Planted(tmp_path / "ran"), None, None), processed)
    with pytest.raises(ValueError, match="could not read"):
        wiki(tmp_path)
    assert not (tmp_path / "ran").exists()
