"""Graph sets of the TU collection: features, checks, groups with owners, published figures."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from secure_fgl.data import published_shape, read_dataset, spec_of
from secure_fgl.data.sources import tu_groups, tu_npz

# mean nodes and edges of a graph, graphs of each class; from the literature
FIGURES = {
    "aids": (15.69, 16.20, (400, 1600)),
    "bzr": (35.75, 38.36, (319, 86)),
    "cox2": (41.22, 43.45, (365, 102)),
    "dd": (284.32, 715.66, (691, 487)),
    "enzymes": (32.63, 62.14, (100,) * 6),
    "imdb_binary": (19.77, 96.53, (500, 500)),
    "imdb_multi": (13.00, 65.94, (500, 500, 500)),
    "mutag": (17.93, 19.79, (63, 125)),
    "nci1": (29.87, 32.30, (2053, 2057)),
    "nci109": (29.68, 32.13, (2048, 2079)),
    "proteins": (39.06, 72.82, (663, 450)),
    "ptc_mr": (14.29, 14.69, (192, 152)),
}


def write(root, name="mutag", **changes):
    """A file in a set's shape: every graph a triangle, labels in turn."""
    shape = tu_npz.NAMES[name]
    first = np.arange(shape.records) * 3
    nodes = 3 * shape.records
    arrays = {
        "n_nodes": np.full(shape.records, 3, np.int32),
        "graph_id": np.repeat(np.arange(shape.records), 3).astype(np.int32),
        "edges": np.concatenate([[first, first + 1], [first + 1, first + 2]], axis=1),
        "y": (np.arange(shape.records) % shape.classes).astype(np.int16),
    }
    if name not in tu_npz.UNLABELLED:
        arrays["node_label"] = (np.arange(nodes) % shape.features).astype(np.int16)
    if name in tu_npz.ATTRIBUTES:
        attributes = np.arange(nodes * tu_npz.ATTRIBUTES[name], dtype=np.float32) - 7
        arrays["node_attr"] = attributes.reshape(nodes, -1)
    path = root / name / f"{name}.npz"
    path.parent.mkdir(parents=True)
    np.savez_compressed(path, **(arrays | changes))
    return path


def test_labels_become_one_column_each(tmp_path):
    write(tmp_path)
    graphs = read_dataset("mutag", tmp_path)
    assert repr(graphs) == "<GraphSet mutag>"
    assert sp.issparse(graphs.x)
    assert graphs.x.dtype == np.float32
    np.testing.assert_array_equal(graphs.x.toarray(), np.eye(7)[np.arange(564) % 7])
    assert graphs.sizes.tolist() == [3] * 188
    assert (graphs.y.dtype, graphs.multilabel, graphs.owner) == (np.int64, False, None)


def test_attributes_come_after_the_labels_when_asked_for(tmp_path):
    write(tmp_path, "bzr")
    plain = read_dataset("bzr", tmp_path)
    more = read_dataset("bzr", tmp_path, attributes=True)
    assert plain.x.shape[1] == 10
    assert more.x.shape[1] == published_shape("bzr", {"attributes": True}).features == 13
    np.testing.assert_array_equal(more.x[:, :10].toarray(), plain.x.toarray())
    assert more.x[[1]].toarray()[0, 10:].tolist() == [-4, -3, -2]


def test_without_labels_degrees_take_their_place(tmp_path):
    write(tmp_path, "imdb_binary")
    graphs = read_dataset("imdb_binary", tmp_path)
    assert graphs.x.shape == (3000, 136)
    assert graphs.x.toarray().argmax(axis=1)[:6].tolist() == [1, 2, 1, 1, 2, 1]


@pytest.mark.parametrize(
    ("name", "options", "match"),
    [
        ("mutag", {"attributes": True}, "takes no options"),
        ("bzr", {"attribute": True}, "did you mean 'attributes'"),
        ("bzr", {"attributes": 1}, "true or false"),
        ("tu_small", {"attributes": True}, "takes no options"),
    ],
)
def test_a_wrong_option_is_refused_with_and_without_data(name, options, match, tmp_path):
    with pytest.raises(ValueError, match=match):
        spec_of(name, clients=5, options=options)
    with pytest.raises(ValueError, match=match):
        read_dataset(name, tmp_path, **options)


@pytest.mark.parametrize(
    "changes",
    [
        {"n_nodes": np.full(187, 3, np.int32)},
        {"n_nodes": np.array([2, 4, *[3] * 186], np.int32)},
        {
            "n_nodes": np.array([0, 6, *[3] * 186], np.int32),
            "graph_id": np.repeat(np.arange(188), [0, 6, *[3] * 186]),
        },
        {"n_nodes": np.full(188, 2**31 - 1, np.int32)},
        {"graph_id": np.repeat(np.arange(188), 3)[::-1].astype(np.int32)},
        {"graph_id": np.full(564, 0.5)},
        {"y": np.zeros(188, np.int16)},
        {"y": np.array([-1, *(np.arange(187) % 2)], np.int16)},
        {"y": (np.arange(187) % 2).astype(np.int16)},
        {"edges": np.array([[0], [3]], np.int32)},
        {"edges": np.array([[1], [0]], np.int32)},
        {"edges": np.array([[0, 0], [1, 1]], np.int32)},
        {"edges": np.array([[563], [564]], np.int32)},
        {"edges": np.array([[-1], [0]], np.int32)},
        {"node_label": np.zeros(564, np.int16)},
        {"node_label": (np.arange(564) % 8).astype(np.int16)},
        {"node_label": (np.arange(563) % 7).astype(np.int16)},
        {"node_label": np.array([None] * 564)},
    ],
)
def test_another_file_under_the_name_is_refused(tmp_path, changes):
    path = write(tmp_path, **changes)
    with pytest.raises(ValueError, match=r"not the published set|cannot be read") as refused:
        read_dataset("mutag", tmp_path)
    assert str(path) in str(refused.value)


@pytest.mark.parametrize(
    "attributes",
    [
        np.full((1215, 3), np.nan, np.float32),
        np.zeros((1215, 2), np.float32),
        np.zeros((1214, 3), np.float32),
        np.zeros(1215, np.float32),
    ],
)
def test_attributes_that_do_not_fit_are_refused(tmp_path, attributes):
    write(tmp_path, "bzr", node_attr=attributes)
    with pytest.raises(ValueError, match=r"not the published set|cannot be read"):
        read_dataset("bzr", tmp_path, attributes=True)
    assert read_dataset("bzr", tmp_path).records == 405  # unread where nobody asked


@pytest.mark.parametrize("keep", [0.0, 0.01, 0.5, 0.99])
def test_a_damaged_file_is_refused(tmp_path, keep):
    path = write(tmp_path)
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * keep)])
    with pytest.raises(ValueError, match="cannot be read"):
        read_dataset("mutag", tmp_path)


def test_no_flipped_byte_escapes_as_another_error(tmp_path):
    """Every place of the file in turn: the set as it was, or the usual refusal."""
    path = write(tmp_path)
    content, whole = path.read_bytes(), read_dataset("mutag", tmp_path)
    refused = 0
    for place in range(0, len(content), 3):
        damaged = bytearray(content)
        damaged[place] ^= 0xFF
        path.write_bytes(damaged)
        try:
            found = read_dataset("mutag", tmp_path)
        except ValueError:
            refused += 1
        else:
            assert found.y.tobytes() == whole.y.tobytes()
            assert found.edges.tobytes() == whole.edges.tobytes()
    assert refused > len(content) // 3 // 2


def test_a_group_keeps_its_members_apart(tmp_path, monkeypatch):
    monkeypatch.setitem(tu_groups.NAMES, "tu_small", ("mutag", "enzymes", "imdb_binary"))
    members = [write(tmp_path, name).parent.name for name in tu_groups.NAMES["tu_small"]]
    group = read_dataset("tu_small", tmp_path)
    alone = [read_dataset(name, tmp_path) for name in members]
    assert published_shape("tu_small")[:4] == ("graph", 7 + 3 + 136, 6, 188 + 600 + 1000)
    assert np.bincount(group.owner).tolist() == [188, 600, 1000]
    assert group.classes == 6
    nodes = np.repeat(group.owner, group.sizes)
    columns = np.split(group.x.toarray(), [7, 10], axis=1)
    for place, member in enumerate(alone):
        np.testing.assert_array_equal(group.y[group.owner == place], member.y)
        np.testing.assert_array_equal(columns[place][nodes == place], member.x.toarray())
        assert not columns[place][nodes != place].any()
        own = group.edges[:, nodes[group.edges[0]] == place]
        np.testing.assert_array_equal(own - np.flatnonzero(nodes == place)[0], member.edges)


def test_groups_are_those_of_the_paper_without_what_the_folder_lacks():
    assert {name: len(members) for name, members in tu_groups.NAMES.items()} == {
        "tu_biochem": 9,
        "tu_mix": 11,
        "tu_molecules": 6,
        "tu_small": 7,
    }


def test_every_set_has_figures():
    assert set(tu_npz.NAMES) == set(FIGURES)


@pytest.mark.parametrize("name", sorted(FIGURES))
def test_the_published_figures(name, data_root):
    options = {"attributes": True} if name in tu_npz.ATTRIBUTES else {}
    graphs = read_dataset(name, data_root, **options)
    nodes, edges, classes = FIGURES[name]
    shape = published_shape(name, options)
    assert graphs.records == shape.records == sum(classes)
    assert graphs.x.shape == (graphs.sizes.sum(), shape.features)
    assert round(graphs.sizes.mean(), 2) == nodes
    assert round(graphs.edges.shape[1] / graphs.records, 2) == edges
    assert tuple(np.bincount(graphs.y)) == classes
    labels = graphs.x[:, : tu_npz.NAMES[name].features]
    assert (labels.sum(axis=1) == 1).all()
    occurring = (labels.sum(axis=0) > 0).sum()
    assert name.startswith("imdb") or occurring == labels.shape[1]


def test_degrees_of_the_film_sets_are_not_capped(data_root):
    for name in tu_npz.UNLABELLED:
        graphs = read_dataset(name, data_root)
        degree = np.bincount(graphs.edges.ravel(), minlength=graphs.x.shape[0])
        np.testing.assert_array_equal(graphs.x.indices, degree)  # one entry a row: its column


def test_the_largest_group_loads(data_root):
    group = read_dataset("tu_mix", data_root)
    shape = published_shape("tu_mix")
    assert (group.records, group.x.shape[1]) == (shape.records, shape.features)
    assert group.owner.max() + 1 == 11
