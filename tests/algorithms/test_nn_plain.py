"""Models in layers of PyTorch Geometric answer as ours do."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch_geometric.utils import to_undirected

from algorithms import nn
from algorithms.tasks import DataSpec
from algorithms.tasks.graph import GraphTask
from algorithms.tasks.inputs.graphs import GraphsData
from algorithms.tasks.inputs.nodes import NodeData
from algorithms.tasks.node import NodeTask
from algorithms.tasks.site import Site
from secure_fgl.data.records import ClientGraph, ClientGraphs

RNG = np.random.default_rng(5)
NODES = [name for name in nn.model_names("node") if not nn.on_egos(name)]
GRAPHS = list(nn.model_names("graph"))
FEATURES, CLASSES = 6, 3


def site(task: str) -> tuple[Site, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return a site and what a plain module takes: x, both directions of its edges, batch."""
    sizes = np.array([1, 4, 7, 3])  # one node alone, and some without an edge
    owner = np.repeat(np.arange(4), sizes)
    pairs = [(u, v) for u in range(15) for v in range(u + 1, 15) if owner[u] == owner[v]]
    edges = np.array([p for p in pairs if RNG.random() < 0.4], dtype=np.int64).T
    x = RNG.normal(size=(15, FEATURES)).astype(np.float32)
    if task == "node":
        masks = [np.arange(15) % 3 == k for k in range(3)]
        graph = ClientGraph(edges, x, RNG.integers(CLASSES, size=15), *masks, np.arange(15))
        made = Site(NodeData.from_graph(graph), seed=1)
    else:
        masks = [np.arange(4) % 3 == k for k in range(3)]
        y = RNG.integers(CLASSES, size=4)
        made = Site(
            GraphsData.from_graphs(ClientGraphs(sizes, edges, x, y, *masks, np.arange(4))), seed=1
        )
    both = to_undirected(torch.from_numpy(edges), num_nodes=15)
    return made, torch.from_numpy(x), both, torch.from_numpy(owner)


def test_every_model_of_nodes_and_graphs_has_one_but_those_on_egos() -> None:
    assert set(NODES) >= {"gcn", "gcn_linear", "graph_sage", "sgc"}
    for name in nn.model_names("node"):
        assert hasattr(nn._file(name), "plain") is not nn.on_egos(name)
    assert all(hasattr(nn._file(name), "plain") for name in GRAPHS)


@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("name", [*NODES, *GRAPHS])
def test_it_answers_as_the_task_does(name: str, layers: int) -> None:
    kind = "graph" if name in GRAPHS else "node"
    spec = DataSpec(
        task=kind,
        features=FEATURES,
        classes=CLASSES,
        records=16,
        clients=1,
        synthetic=True,
        name="toy",
    )
    made = GraphTask if kind == "graph" else NodeTask
    task = made(spec, model=name, hidden=5, layers=layers, dropout=0.5)
    here, x, edges, batch = site(kind)
    weights = RNG.normal(size=task.size).astype(np.float32)
    module = task.plain(weights)
    assert module is not None and not module.training
    with torch.no_grad():
        logits = module(x, edges) if kind == "node" else module(x, edges, batch)
    found = torch.softmax(logits, dim=1).numpy()
    np.testing.assert_allclose(found, task.predict(weights, here), atol=1e-5)
    again = task.plain(np.zeros(task.size, np.float32))  # another module of the same kind
    again.load_state_dict(module.state_dict())  # type: ignore[union-attr]
    with torch.no_grad():
        repeated = again(x, edges) if kind == "node" else again(x, edges, batch)  # type: ignore[misc]
    assert torch.equal(repeated, logits)
    with pytest.raises(ValueError, match="parameters"):
        task.plain(weights[1:])
