"""FED-PUB's model: GCN layers below a linear classifier."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn.utils import vector_to_parameters
from torch_geometric.nn import GCNConv

from algorithms import nn
from algorithms.nn._shared.sparse import propagation
from algorithms.tasks import DataSpec
from algorithms.tasks.node import NodeTask


def built(
    features: int, classes: int, hidden: int, layers: int, rate: float = 0.5
) -> nn.GraphModel:
    module: nn.GraphModel = nn.model("gcn_linear").build(features, classes, hidden, layers, rate)  # type: ignore[assignment]
    size = sum(p.numel() for p in module.parameters())
    values = np.random.default_rng(0).normal(size=size).astype(np.float32)
    vector_to_parameters(torch.from_numpy(values), module.parameters())
    return module


@pytest.mark.parametrize(
    ("features", "classes", "count"),
    [
        (1433, 7, 200_967),  # Cora
        (3703, 6, 491_398),  # CiteSeer
        (500, 3, 81_027),  # PubMed
        (767, 10, 116_106),  # Amazon Computers
        (745, 8, 113_032),  # Amazon Photo
    ],
)
def test_it_has_as_many_parameters_as_fed_pub_s(features: int, classes: int, count: int) -> None:
    public = {"records": 64, "clients": 5, "synthetic": True, "name": "toy"}
    task = NodeTask(DataSpec("node", features, classes, **public), model="gcn_linear", hidden=128)  # type: ignore[arg-type]
    assert task.size == count
    assert task.size - task.base == 128 * classes + classes  # the classifier alone is the head


def test_parameters_come_layer_by_layer_and_the_classifier_last() -> None:
    shapes = [tuple(p.shape) for p in built(5, 3, 7, 2).parameters()]
    assert shapes == [(5, 7), (7,), (7, 7), (7,), (7, 3), (3,)]
    assert [tuple(p.shape) for p in built(5, 3, 7, 1).parameters()] == [(5, 7), (7,), (7, 3), (3,)]
    assert [tuple(p.shape) for p in nn.head(built(5, 3, 7, 2))] == [(7, 3), (3,)]


def test_it_agrees_with_pyg_s_layers() -> None:
    edges = torch.tensor([[0, 0, 1, 3], [1, 2, 2, 4]])
    x = torch.from_numpy(np.random.default_rng(1).random((5, 6)).astype(np.float32))
    module = built(6, 3, 4, 2)
    w0, b0, w1, b1, w, b = module.parameters()
    first, second = GCNConv(6, 4), GCNConv(4, 4)
    for layer, weight, bias in ((first, w0, b0), (second, w1, b1)):
        layer.lin.weight.data, layer.bias.data = weight.T, bias
    both = torch.cat([edges, edges.flip(0)], dim=1)
    expected = torch.relu(second(torch.relu(first(x, both)), both)) @ w + b
    matrix = propagation(edges, 5, "symmetric")
    found = module(x, matrix, torch.Generator(), False)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    drawn = module(x, matrix, torch.Generator().manual_seed(1), True)
    assert not torch.allclose(drawn, found)  # dropout, in training only
