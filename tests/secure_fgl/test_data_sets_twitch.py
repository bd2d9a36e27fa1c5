"""Six countries with one feature space: a federation that nobody had to cut."""

from __future__ import annotations

import numpy as np
import pytest

from secure_fgl.data import partition, published_shape, read_dataset, split_masks
from secure_fgl.data.sources import twitch

EDGES = {"DE": 153138, "ENGB": 35324, "ES": 59382, "FR": 112666, "PTBR": 31299, "RU": 37304}


@pytest.fixture
def arrays(monkeypatch):
    """A small world under the published name: two to seven nodes a country."""
    sizes = {country: number for number, country in enumerate(twitch.COUNTRIES, start=2)}
    monkeypatch.setattr(twitch, "COUNTRIES", sizes)
    made = {}
    for country, nodes in sizes.items():
        made |= {
            f"{country}_edges": np.array([[0], [nodes - 1]], np.int32),
            f"{country}_y": (np.arange(nodes) % 2).astype(np.int16),
            f"{country}_x_indptr": np.arange(nodes + 1, dtype=np.int32) * 2,
            f"{country}_x_indices": np.tile(np.array([nodes, 3000], np.int32), nodes),
            f"{country}_x_data": np.ones(2 * nodes, np.float32),
            f"{country}_x_shape": np.array([nodes, 3170]),
        }
    return made


def save(root, arrays):
    (root / "twitch").mkdir()
    np.savez(root / "twitch" / "twitch.npz", **arrays)


def test_the_countries_lie_one_after_another(arrays, tmp_path):
    save(tmp_path, arrays)
    graph = read_dataset("twitch", tmp_path)
    assert np.bincount(graph.owner).tolist() == [2, 3, 4, 5, 6, 7]
    assert graph.edges.tolist() == [[0, 2, 5, 9, 14, 20], [1, 4, 8, 13, 19, 26]]
    assert (graph.owner[graph.edges[0]] == graph.owner[graph.edges[1]]).all()
    columns = graph.x[[0, 2, 20]].toarray()
    assert columns[:, [2, 3, 7, 3000]].tolist() == [
        [1, 0, 0, 1],
        [0, 1, 0, 1],
        [0, 0, 1, 1],
    ]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("FR_edges", np.array([[1], [5]], np.int32)),
        ("FR_edges", np.array([[1], [0]], np.int32)),
        ("FR_y", np.array([0, 1, 0, 1], np.int16)),
        ("FR_y", np.zeros(5, np.int16)),
        ("FR_y", np.ones(5, np.int16)),
        ("FR_y", np.array([0, 1, 2, 0, 1], np.int16)),
        ("FR_x_shape", np.array([5, 3169])),
        ("FR_x_shape", np.array([5, 3170.5])),
        ("FR_x_data", np.full(10, np.inf, np.float32)),
    ],
)
def test_another_file_under_the_name_is_refused(arrays, field, value, tmp_path):
    save(tmp_path, arrays | {field: value})
    with pytest.raises(ValueError, match=r"nodes.*for FR|cannot be read"):
        read_dataset("twitch", tmp_path)


def test_a_country_that_is_missing_is_noticed(arrays, tmp_path):
    save(tmp_path, {name: array for name, array in arrays.items() if name != "RU_y"})
    with pytest.raises(ValueError, match="cannot be read"):
        read_dataset("twitch", tmp_path)


def test_the_published_figures_and_six_clients(data_root):
    graph = read_dataset("twitch", data_root)
    shape = published_shape("twitch")
    assert graph.x.shape == (shape.records, shape.features) == (34118, 3170)
    assert graph.edges.shape[1] == sum(EDGES.values())
    rng = np.random.default_rng(0)
    parts = partition(graph, "by_owner", 6, split_masks(graph, rng=rng), rng)
    assert [len(part.y) for part in parts] == list(twitch.COUNTRIES.values())
    assert [part.edges.shape[1] for part in parts] == list(EDGES.values())
