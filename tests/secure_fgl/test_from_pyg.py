"""A federation of PyG's objects: whose is what, which split, and what is refused."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch_geometric.data import Data, HeteroData

from secure_fgl import (
    Config,
    Federation,
    PrivacyPolicy,
    Run,
    SecureFglError,
    UsageError,
    load_dataset,
    load_model,
)
from secure_fgl.data import GraphSet, partition, split_masks
from secure_fgl.data.joined import joined

SECRET = 7231.5


def graph(nodes: int, **changes: Any) -> Data:
    """A path with a loop; the first feature is the number of nodes."""
    x = torch.zeros(nodes, 3)
    x[:, 0] = nodes
    arcs = torch.stack([torch.arange(nodes - 1), torch.arange(1, nodes)])
    edges = torch.cat([arcs, arcs.flip(0), torch.tensor([[0], [0]])], dim=1)
    facts = {"x": x, "y": torch.arange(nodes) % 2, "edge_index": edges} | changes
    return Data(**{name: value for name, value in facts.items() if value is not None})


def test_each_client_gets_its_own_object_whatever_the_order_they_came_in() -> None:
    sites = {"south": graph(6), "north": graph(4), "east": graph(5), "west": graph(7)}
    federation = Federation.from_pyg(sites, rounds=1)
    clients = federation.plan().clients
    assert clients == ("east", "north", "south", "west")
    whole = joined(sites, name="pyg", classes=None)
    masks = split_masks(whole, rng=np.random.default_rng(0))
    parts = partition(whole, "by_owner", 4, masks, np.random.default_rng(0))
    for name, part in zip(clients, parts, strict=True):
        nodes = sites[name].num_nodes
        assert part.x.shape == (nodes, 3) and (part.x[:, 0] == nodes).all()
        assert part.edges.shape == (2, nodes - 1) and (part.edges[0] < part.edges[1]).all()


def masked(nodes: int, **changes: Any) -> Data:
    masks = {
        f"{role}_mask": torch.arange(nodes) % 3 == place
        for place, role in enumerate(("train", "val", "test"))
    }
    return graph(nodes, **masks | changes)


def test_masks_are_the_split_and_the_plan_bounds_a_sites_records() -> None:
    sites = {name: masked(9) for name in ("a", "b", "c", "d")}
    whole = joined(sites, name="x", classes=3)
    assert whole.public.train.tolist() == [n % 3 == 0 for n in range(9)] * 4
    plan = Federation.from_pyg(sites, classes=3, name="x", rounds=1).plan()
    assert plan.data.records == 64 and plan.data.classes == 3 and plan.data.name == "x"
    drawn = Federation.from_pyg({name: graph(9) for name in sites}, rounds=1).plan()
    assert drawn.data.records == 64  # few records vary much


def test_lists_of_graphs_are_a_task_of_graphs() -> None:
    one = [graph(3, y=torch.tensor([n % 2])) for n in range(5)]
    sites = {"b": one, "a": one[:3], "c": one, "d": one}
    whole = joined(sites, name="pyg", classes=None)
    assert (
        isinstance(whole, GraphSet)
        and whole.owner.tolist() == [0] * 3 + [1] * 5 + [2] * 5 + [3] * 5
    )
    assert Federation.from_pyg(sites, rounds=1).plan().data.task == "graph"


WRONG = {
    "x is missing": {"north": graph(4, x=None)},
    "x is no table": {"north": graph(4, x=torch.full((4,), SECRET))},
    "x holds NaN, infinity": {"north": graph(4, x=torch.full((4, 3), float("nan")))},
    "number that float32 cannot hold": {
        "north": graph(4, x=torch.full((4, 3), 7.231e300, dtype=torch.float64))
    },
    "x is of the type complex64": {"north": graph(4, x=torch.full((4, 3), 1j))},
    "x has not as many columns": {"north": graph(4, x=torch.full((4, 2), SECRET))},
    "y has not one label": {"north": graph(4, y=torch.zeros(3, dtype=torch.long))},
    "number the classes": {"north": graph(4, y=torch.full((4,), SECRET))},
    "take y.argmax(dim=1)": {"north": graph(4, y=torch.eye(4)[:, :2])},
    "y holds a label below -1": {"north": graph(4, y=torch.full((4,), -7231))},
    "edge_index names a node": {"north": graph(4, edge_index=torch.tensor([[0], [7231]]))},
    "edge_index is not of the shape": {"north": graph(4, edge_index=torch.tensor([0, 1]))},
    "turn it: edge_index.t()": {"north": graph(4, edge_index=torch.zeros(5, 2).long())},
    "of numbers from 1 take": {"north": graph(4, edge_index=torch.tensor([[1], [4]]))},
    "adj_t is not read": {"north": graph(4, edge_index=None, adj_t=torch.eye(4))},
    "holds 3 splits": {"north": masked(4, train_mask=torch.ones(4, 3).bool())},
    "a HeteroData, and no graph": {"north": HeteroData()},
    "Data.from_dict": {"north": graph(4).to_dict()},
    "a NoneType, and no graph": {"north": None},
    "train_mask is missing, and other": {"north": masked(4)},
    "others a list": {"north": [graph(4)]},
}


@pytest.mark.parametrize("why", WRONG)
def test_what_does_not_fit_is_refused_by_site_and_attribute(why: str) -> None:
    sites = {name: graph(4) for name in ("a", "b", "south")} | WRONG[why]
    with pytest.raises(UsageError) as caught:
        Federation.from_pyg(sites, rounds=1)
    assert why in str(caught.value) and "7231" not in str(caught.value)


def test_masks_that_are_no_split_too_few_classes_and_names_are_refused() -> None:
    overlap = {name: masked(6, val_mask=torch.ones(6, dtype=torch.bool)) for name in "abcd"}
    with pytest.raises(UsageError, match="no split"):
        Federation.from_pyg(overlap)
    with pytest.raises(UsageError, match="more than 1 classes"):
        Federation.from_pyg({name: graph(4) for name in "abcd"}, classes=1)
    with pytest.raises(UsageError, match="no client"):
        Federation.from_pyg({})
    with pytest.raises(UsageError) as caught:
        Federation.from_pyg({"../a": graph(4), "b": graph(4)})
    assert "name 1 is not" in caught.value.why


ONES = torch.eye(4, 3)
SAME = {
    "sparse by entries": {"x": ONES.to_sparse()},
    "sparse by rows": {"x": ONES.to_sparse_csr()},
    "bfloat16": {"x": ONES.bfloat16()},
    "half": {"x": ONES.half()},
    "truth values": {"x": ONES.bool()},
    "numpy": {"x": ONES.numpy()},
    "labels as real numbers": {"y": torch.tensor([0.0, 1.0, 0.0, 1.0])},
    "labels as truth values": {"y": torch.tensor([False, True, False, True])},
}


@pytest.mark.filterwarnings("ignore:Sparse CSR")
@pytest.mark.parametrize("how", SAME)
def test_the_same_numbers_in_another_form_are_the_same_data(how: str) -> None:
    sites = {name: graph(4, x=ONES) for name in ("a", "b", "south")}
    plain = joined({**sites, "north": graph(4, x=ONES)}, name="x", classes=None)
    other = joined({**sites, "north": graph(4, **{"x": ONES, **SAME[how]})}, name="x", classes=None)
    dense = other.x.toarray() if sp.issparse(other.x) else other.x
    assert dense.dtype == np.float32 and np.array_equal(dense, plain.x)
    assert np.array_equal(other.y, plain.y) and np.array_equal(other.edges, plain.edges)


@pytest.mark.parametrize("shape", [(2, 0), (0,)])
def test_no_edges_are_no_edges_of_any_type(shape: tuple[int, ...]) -> None:
    sites = {name: graph(4, edge_index=torch.empty(shape)) for name in "abcd"}
    assert joined(sites, name="x", classes=None).edges.shape == (2, 0)


@pytest.mark.parametrize("what", ["edge_weight", "edge_attr", "edge_type"])
def test_what_edges_hold_is_not_read_and_said_so(what: str) -> None:
    sites: dict[str, Any] = {name: graph(4) for name in ("a", "b", "south")}
    sites["north"] = graph(4, **{what: torch.ones(7)})
    with pytest.warns(UserWarning, match=f"{what}: not read. Edges are undirected, unweighted"):
        federation = Federation.from_pyg(sites, rounds=1)
    assert federation.plan().data.edges == "undirected, unweighted, of one kind"
    with warnings.catch_warnings():  # the control: nothing is given, so nothing is said
        warnings.simplefilter("error")
        Federation.from_pyg({**sites, "north": graph(4)}, rounds=1)


def test_plain_values_stand_for_what_they_mean() -> None:
    made = Federation("synthetic_banks", policy="masks", config={"algorithm": {"rounds": 2}})
    assert made.policy == PrivacyPolicy.preset("masks") and made.config.algorithm.rounds == 2


REFUSED: dict[str, Any] = {
    "did you mean 'masks'": lambda: Federation("synthetic_banks", policy="maks"),
    "is no policy": lambda: Federation("synthetic_banks", policy=3),  # type: ignore[arg-type]
    "rounds": lambda: Federation("synthetic_banks", config={"algorithm": {"ronds": 2}}),
    "is no configuration": lambda: Federation(config=[1]),  # type: ignore[arg-type]
    "A Data is no data set": lambda: Federation(graph(4)),  # type: ignore[arg-type]
    "A list is no data set": lambda: Federation([graph(4)]),  # type: ignore[arg-type]
    "A Data does not say who": lambda: Federation.from_pyg(graph(4)),  # type: ignore[arg-type]
    "A list does not say who": lambda: Federation.from_pyg([graph(4)]),  # type: ignore[arg-type]
    "name is no text": lambda: Federation.from_pyg({1: graph(4)}),  # type: ignore[dict-item]
    "did you mean 'cora'": lambda: load_dataset("corra"),
    "named by a text": lambda: load_dataset(None),  # type: ignore[arg-type]
    "SECURE_FGL_DATA": lambda: load_dataset("cora", root="/nowhere"),
    "did you mean 'customers'": lambda: load_dataset("synthetic_banks", customer=3),
    "A int is no path": lambda: Run(3),  # type: ignore[arg-type]
    "a pathlib.Path": lambda: load_model(3),  # type: ignore[arg-type]
    "is no path": lambda: Config.load(3),  # type: ignore[arg-type]
    "policy preset": lambda: PrivacyPolicy.preset(3),  # type: ignore[arg-type]
    "neither a policy": lambda: PrivacyPolicy.load(3),  # type: ignore[arg-type]
    "give the path of one Python file": lambda: Federation(plugins="nothere.py"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("words", REFUSED)
def test_public_functions_raise_our_errors_alone_and_str_says_all(words: str) -> None:
    with pytest.raises(SecureFglError) as caught:
        REFUSED[words]()
    assert words in str(caught.value)
    assert caught.value.what in str(caught.value) and caught.value.fix in str(caught.value)
