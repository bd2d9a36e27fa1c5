"""A federation of PyG's objects: whose is what, which split, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from secure_fgl import Federation, UsageError
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
    "x is no table of finite": {"north": graph(4, x=torch.full((4, 3), float("nan")))},
    "x has not as many columns": {"north": graph(4, x=torch.full((4, 2), SECRET))},
    "y has not one label": {"north": graph(4, y=torch.zeros(3, dtype=torch.long))},
    "y holds numbers of another kind": {"north": graph(4, y=torch.full((4,), SECRET))},
    "y holds a label below -1": {"north": graph(4, y=torch.full((4,), -7231))},
    "edge_index names a node": {"north": graph(4, edge_index=torch.tensor([[0], [7231]]))},
    "edge_index is not of the shape": {"north": graph(4, edge_index=torch.tensor([0, 1]))},
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
