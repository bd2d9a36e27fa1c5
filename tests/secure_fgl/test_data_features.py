"""Features as the data has them, or scaled at each site from its own records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import yaml

from protocols.errors import NotAdmitted
from protocols.policy.policy import PrivacyPolicy
from secure_fgl.config import Config
from secure_fgl.data import partition, read_dataset, split_masks
from secure_fgl.data.features import Scaling, check_scaling, scaled, scaled_part
from secure_fgl.data.loading import load
from secure_fgl.data.records import ClientGraph, Graph
from secure_fgl.errors import UsageError
from secure_fgl.federation import Federation
from tests.secure_fgl.own_tools import EDGES, NODE, NODES, site

X = np.array([[3.0, 1.0, 0.0], [0.0, 0.0, 0.0], [4.0, 1.0, 3.0]], dtype=np.float32)
ROOT2 = np.sqrt(26.0)
FOUND: dict[Scaling, Any] = {
    "raw": X,
    "row": [[0.75, 0.25, 0.0], [0.0, 0.0, 0.0], [0.5, 0.125, 0.375]],
    "l2": [
        [3 / np.sqrt(10.0), 1 / np.sqrt(10.0), 0.0],
        [0.0, 0.0, 0.0],
        [4 / ROOT2, 1 / ROOT2, 3 / ROOT2],
    ],
    "standard": (X - X.mean(axis=0)) / X.std(axis=0),
}


def graph(x: Any) -> Graph:
    return Graph("toy", np.array([[0, 1], [1, 2]]), x, np.array([0, 1, 0]), 2, True)


def dense(x: Any) -> Any:
    return x.toarray() if sp.issparse(x) else x


@pytest.mark.parametrize("how", FOUND)
@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
def test_features_are_scaled_as_the_page_says(how: Scaling, kind: Any) -> None:
    given = kind(X)
    found = scaled(graph(given), how).x
    assert dense(found).dtype == np.float32
    np.testing.assert_allclose(dense(found), FOUND[how], rtol=1e-6, atol=1e-7)
    assert np.array_equal(dense(given), X)  # what was given stays as it is
    if how != "standard":
        assert sp.issparse(found) is sp.issparse(given)


def test_a_column_that_is_the_same_everywhere_becomes_nothing() -> None:
    x = np.full((5, 1), 0.1, dtype=np.float32)  # whose mean is off by rounding
    assert not scaled(graph(x), "standard").x.any()


@pytest.mark.parametrize("how", FOUND)
def test_a_site_scales_by_its_own_records_alone(how: Scaling) -> None:
    masks = [np.array(mask, dtype=bool) for mask in ([1, 0, 0], [0, 1, 0], [0, 0, 1])]
    common = ClientGraph(
        np.zeros((2, 0), np.int64), X[:1], np.array([0]), *np.eye(3, 1, dtype=bool), np.array([9])
    )
    part = ClientGraph(np.array([[0], [1]]), X, np.array([0, 1, 0]), *masks, np.arange(3), common)
    found = scaled_part(part, how)
    assert isinstance(found, ClientGraph) and found.common is not None
    np.testing.assert_allclose(found.x, FOUND[how], rtol=1e-6, atol=1e-7)
    # Records that it was given for tests alone count in nothing.
    np.testing.assert_allclose(found.common.x, np.asarray(FOUND[how])[:1], rtol=1e-6, atol=1e-7)
    for name in ("edges", "y", "train", "val", "test", "nodes"):
        assert getattr(found, name) is getattr(part, name)


def test_graphs_are_scaled_and_ratings_have_nothing_to_scale() -> None:
    ratings = read_dataset("synthetic_ratings")
    assert scaled(ratings, "row") is ratings
    masks = split_masks(ratings, (0.6, 0.2, 0.2), rng=np.random.default_rng(1))
    parts = partition(ratings, "user_per_client", 60, masks, np.random.default_rng(1))
    assert scaled_part(parts[0], "standard") is parts[0]


def config(**data: Any) -> Config:
    return Config.parse({"data": {"partition": {"clients": 3}, **data}, "model": {"hidden": 4}})


@pytest.mark.parametrize("how", FOUND)
def test_a_run_s_sites_and_the_whole_get_what_the_configuration_says(how: Scaling) -> None:
    chosen = config(features=how)
    task, _ = Federation.from_config(chosen).build()
    plain, found = (load(c, task) for c in (config(), chosen))
    assert plain.whole is not None and found.whole is not None
    np.testing.assert_array_equal(
        dense(found.whole[0].x),
        dense(scaled(plain.whole[0], how).x),  # type: ignore[union-attr]
    )
    for before, after in zip(plain.sites, found.sites, strict=True):
        own = before.data.x.to_dense().numpy() if hasattr(before.data.x, "to_dense") else None
        assert own is not None
        np.testing.assert_allclose(
            after.data.x.to_dense().numpy(), dense(scaled(graph(own), how).x), atol=1e-6
        )


def test_own_data_are_scaled_too(tmp_path: Path) -> None:
    site(tmp_path, nodes=NODES, edges=EDGES)
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(NODE), "utf-8")
    found = []
    for how in ("raw", "standard"):
        data = {"name": "own", "root": str(tmp_path), "features": how}
        chosen = config(**data, partition={"clients": 1})
        task, _ = Federation.from_config(chosen).build()
        (only,) = load(chosen, task).sites
        found.append(only.data.x.numpy())
    np.testing.assert_allclose(found[0], [[1, 2.5], [3, 4], [5, 6]])
    np.testing.assert_allclose(found[1], scaled(graph(found[0]), "standard").x, atol=1e-6)


def test_another_way_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(UsageError) as caught:
        config(features="rows")
    assert "data.features" in caught.value.why and "'row'" in caught.value.why


def test_words_are_as_the_file_has_them(data_root: Path) -> None:
    cora = read_dataset("cora", data_root)
    assert set(np.unique(cora.x.data)) == {1.0}  # type: ignore[union-attr]
    cs = read_dataset("coauthor_cs", data_root)
    assert cs.x.data.max() > 1.0  # type: ignore[union-attr]  # counts


def test_what_was_said_before_is_row(data_root: Path) -> None:
    """The published settings of docs/results: rows of words that sum to one."""
    x = scaled(read_dataset("citeseer", data_root), "row").x
    sums = np.asarray(x.sum(axis=1)).ravel()
    assert np.allclose(sums[sums > 0], 1.0, atol=1e-5) and (sums == 0).any()


EXAMPLES = Path(__file__).parents[2] / "examples"
HIDING = ("rows_noised_policy.yaml", "molecules_dp_policy.yaml")


def refused(how: Scaling, name: str) -> bool:
    try:
        check_scaling(how, PrivacyPolicy.load(EXAMPLES / name))
    except NotAdmitted as error:
        return "which look at one record alone" in error.fix
    return False


@pytest.mark.parametrize("how", FOUND)
def test_no_record_scales_another_where_a_policy_hides_single_ones(how: Scaling) -> None:
    """The noise is for one record's own features: what it moves of others has no bound."""
    other = X.copy()
    other[0] = 1e4
    apart = scaled(graph(X), how).x[1:] - scaled(graph(other), how).x[1:]
    assert all(refused(how, name) is bool(np.abs(apart).max() > 0.1) for name in HIDING)
    assert not refused(how, "rows_policy.yaml")  # which hides none


def test_a_plan_under_noise_on_rows_is_not_made_of_records_that_scale_each_other() -> None:
    document: dict[str, Any] = {
        "algorithm": {"name": "fed_gcn", "options": {"fed_gcn": {"hops": 1, "nodes": 4096}}},
        "data": {"features": "standard", "partition": {"name": "dirichlet_linked", "clients": 5}},
        "policy": str(EXAMPLES / "rows_noised_policy.yaml"),
    }
    with pytest.raises(NotAdmitted, match="hides every single node"):
        Federation.from_config(Config.parse(document)).plan()
    document["data"] = {**document["data"], "features": "row"}
    assert Federation.from_config(Config.parse(document)).plan().form == "rows_by_tags"
