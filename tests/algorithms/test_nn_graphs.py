"""Batches of graphs and graph models: against one graph at a time, dense sums and PyG's layers."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch.nn.utils import parameters_to_vector, vector_to_parameters
from torch_geometric.nn import GCNConv, GINConv, global_add_pool, global_mean_pool
from torch_geometric.utils import to_undirected

from algorithms import nn
from algorithms.nn._shared.graphs import Blocks, pooled
from algorithms.nn._shared.layouts import entries
from algorithms.nn._shared.sparse import Sparse, propagation

MODELS = nn.model_names("graph")
WEIGHINGS = ("symmetric", "mean", "sum")
SIZES = np.array([3, 1, 5, 2, 4])


def graphs(features=6, seed=0, sizes=SIZES):
    """Edges (2, M) within runs of nodes, and sparse features."""
    rng = np.random.default_rng(seed)
    owner = np.repeat(np.arange(len(sizes)), sizes)
    near = (rng.random((len(owner), len(owner))) < 0.5) & (owner[:, None] == owner)
    edges = torch.from_numpy(np.stack(np.nonzero(np.triu(near, k=1))))
    x = sp.csr_array((rng.random((len(owner), features)) < 0.4).astype(np.float32))
    return edges, x


def blocks(edges, x, kind, sizes=SIZES):
    return Blocks(sizes, x, propagation(edges, int(sizes.sum()), kind), kind)


def batch_of(name, asked=None, *, features=6, make_dense=False):
    edges, x = graphs(features)
    x = torch.from_numpy(x.toarray()) if make_dense else x
    kind = nn.model(name, "graph").PROPAGATION
    return blocks(edges, x, kind).cut(np.arange(5) if asked is None else np.array(asked))


def filled(name, *, features=6, classes=3, hidden=8, layers=2, rate=0.0, seed=0):
    module = nn.model(name, "graph").build(features, classes, hidden, layers, rate)
    size = sum(p.numel() for p in module.parameters())
    values = 0.5 * np.random.default_rng(seed).normal(size=size).astype(np.float32)
    vector_to_parameters(torch.from_numpy(values), module.parameters())
    return module


def logits(module, batch, *, seed=1, training=False):
    return module(batch, torch.Generator().manual_seed(seed), training)


@pytest.mark.parametrize("kind", WEIGHINGS)
@pytest.mark.parametrize("asked", [[0], [1], [2, 0], [4, 3, 2, 1, 0], [2, 2, 1, 2]])
def test_a_cut_is_the_blocks_of_its_graphs(kind, asked):
    """Also with a graph of one node (no entry under "sum"), out of order, and twice."""
    edges, x = graphs()
    whole = propagation(edges, 15, kind)
    batch = blocks(edges, x, kind).cut(np.array(asked))
    starts = np.cumsum(SIZES) - SIZES
    runs = [slice(starts[k], starts[k] + SIZES[k]) for k in asked]
    for got, full in zip(batch.propagation, whole, strict=True):
        expected = torch.block_diag(*(full.to_dense()[run, run] for run in runs))
        assert torch.equal(got.to_dense(), expected)
        assert got.col_indices().dtype == torch.int64
    assert torch.equal(
        batch.x, torch.from_numpy(np.concatenate([x[run].toarray() for run in runs]))
    )
    assert batch.sizes.tolist() == SIZES[asked].tolist()
    assert batch.owner.tolist() == np.repeat(np.arange(len(asked)), SIZES[asked]).tolist()


def test_the_transpose_of_a_mean_cut_is_its_transpose():
    edges, x = graphs()
    matrix, transpose = blocks(edges, x, "mean").cut(np.array([2, 4])).propagation
    assert torch.equal(transpose.to_dense(), matrix.to_dense().T)
    assert not torch.equal(transpose.to_dense(), matrix.to_dense())


def test_wide_sparse_features_stay_sparse_and_narrow_ones_become_dense():
    assert isinstance(batch_of("gin", [1, 2], features=256).x, torch.Tensor)
    wide = batch_of("gin", [2, 1], features=257).x
    assert isinstance(wide, Sparse)
    _, x = graphs(257)
    rows = np.concatenate([x[4:9].toarray(), x[3:4].toarray()])
    np.testing.assert_array_equal(wide.matrix.to_dense(), rows)
    np.testing.assert_array_equal(wide.transpose.to_dense(), rows.T)


def test_pooled_by_hand():
    batch = batch_of("gin", [3, 1])  # graphs of two nodes and of one
    hidden = torch.tensor([[1.0, 2.0], [3.0, -4.0], [5.0, 6.0]])
    assert pooled(hidden, batch, "sum").tolist() == [[4.0, -2.0], [5.0, 6.0]]
    assert pooled(hidden, batch, "mean").tolist() == [[2.0, -1.0], [5.0, 6.0]]


def test_gin_by_hand_on_two_joined_nodes():
    """One feature, one hidden unit, one class: every number can be checked on paper."""
    module = nn.model("gin", "graph").build(1, 1, 1, 1, 0.0)
    values = [0.5, 2.0, -1.0, 3.0, 1.0, 8.0, 0.25]  # eps, W1, b1, W2, b2, head's W and b
    vector_to_parameters(torch.tensor(values), module.parameters())
    pair = blocks(torch.tensor([[0], [1]]), torch.tensor([[1.0], [0.0]]), "sum", np.array([2]))
    # node 0: 1.5 * 2 + 0 - 1 = 2, then 3 * 2 + 1 = 7; node 1: 0 + 2 - 1 = 1, then 4; sum 11
    assert logits(module, pair.cut(np.array([0]))).tolist() == [[11.0 * 8.0 / 8.0 + 0.25]]


def test_gin_agrees_with_pyg():
    edges, x = graphs()
    module = filled("gin", layers=2)
    both = to_undirected(edges, num_nodes=15)
    owner = torch.from_numpy(np.repeat(np.arange(5), SIZES))
    hidden, sums = torch.from_numpy(x.toarray()), []
    for layer in module.layers:
        first, second = (torch.nn.Linear(*w.shape) for w in (layer.weight, layer.second.weight))
        first.weight.data, first.bias.data = layer.weight.data.T, layer.bias.data
        second.weight.data, second.bias.data = layer.second.weight.data.T, layer.second.bias.data
        mlp = torch.nn.Sequential(first, torch.nn.ReLU(), second)
        conv = GINConv(mlp, eps=layer.epsilon.item())
        hidden = torch.relu(conv(hidden, both))
        sums.append(global_add_pool(hidden, owner))
    expected = torch.cat(sums, dim=1) / 8 @ module.head.weight + module.head.bias
    torch.testing.assert_close(logits(module, batch_of("gin")), expected, atol=1e-5, rtol=1e-5)


def test_gcn_readout_agrees_with_pyg():
    edges, x = graphs()
    module = filled("gcn_readout", layers=2)
    both = to_undirected(edges, num_nodes=15)
    features = torch.from_numpy(x.toarray())
    first, second = (GCNConv(*w.shape, bias=False) for w in module.layers)
    for conv, weight in zip((first, second), module.layers, strict=True):
        conv.lin.weight.data = weight.data.T
    embedding = second(torch.relu(first(features, both)), both)
    joined = torch.cat([features, embedding], dim=1)
    weight = torch.cat([module.own, module.readout.weight])
    read = torch.relu(joined @ weight + module.readout.bias)
    read = torch.relu(read @ module.second.weight + module.second.bias)
    each = read @ module.head.weight + module.head.bias
    expected = global_mean_pool(each, torch.from_numpy(np.repeat(np.arange(5), SIZES)))
    got = logits(module, batch_of("gcn_readout"))
    torch.testing.assert_close(got, expected, atol=1e-5, rtol=1e-5)


def test_gcn_readout_has_fedgraphnn_s_widths():
    module = nn.model("gcn_readout", "graph").build(9, 1, 32, 2, 0.3)
    shapes = [tuple(p.shape) for p in module.parameters()]
    flat = [(9, 32), (32, 32), (9, 64), (32, 64), (64,), (64, 64), (64,), (64, 1), (1,)]
    assert sorted(shapes) == sorted(flat)
    assert shapes[-2:] == [(64, 1), (1,)]


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("layers", [1, 2, 3])
def test_each_graph_is_judged_alone(name, layers):
    """What else is in the batch, and in which order, changes no graph's logits."""
    module = filled(name, layers=layers)
    together = logits(module, batch_of(name, [4, 2, 0, 1, 3]))
    alone = torch.cat([logits(module, batch_of(name, [k])) for k in (4, 2, 0, 1, 3)])
    assert together.shape == (5, 3)
    torch.testing.assert_close(together, alone, atol=1e-5, rtol=1e-5)
    assert len(torch.unique(together, dim=0)) == 5


@pytest.mark.parametrize("name", MODELS)
def test_numbering_the_nodes_otherwise_changes_nothing(name):
    edges, x = graphs()
    order = np.concatenate(
        [
            s + np.random.default_rng(1).permutation(n)
            for s, n in zip(np.cumsum(SIZES) - SIZES, SIZES, strict=True)
        ]
    )
    place = torch.from_numpy(np.argsort(order))
    turned = blocks(place[edges].sort(dim=0).values, x[order], nn.model(name, "graph").PROPAGATION)
    module = filled(name)
    got = logits(module, turned.cut(np.arange(5)))
    torch.testing.assert_close(got, logits(module, batch_of(name)), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_edges_matter(name):
    edges, x = graphs()
    module, kind = filled(name), nn.model(name, "graph").PROPAGATION
    without = blocks(edges[:, :0], x, kind).cut(np.array([2]))
    assert not torch.allclose(logits(module, without), logits(module, batch_of(name, [2])))


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("features", [6, 300])
def test_sparse_features_give_the_dense_result_and_gradient(name, features):
    module = filled(name, features=features, rate=0.4)
    results = []
    for make_dense in (False, True):
        module.zero_grad()
        batch = batch_of(name, [3, 0, 2], features=features, make_dense=make_dense)
        found = logits(module, batch, training=True)
        found.square().sum().backward()
        results.append(
            (found.detach(), parameters_to_vector([p.grad for p in module.parameters()]))
        )
    torch.testing.assert_close(results[0][0], results[1][0], atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(results[0][1], results[1][1], atol=1e-2, rtol=1e-3)


@pytest.mark.parametrize("name", MODELS)
def test_dropout_is_drawn_in_training_only(name):
    module = filled(name, rate=0.5, layers=2)
    batch = batch_of(name)
    still, again = (logits(module, batch, seed=seed) for seed in (1, 2))
    assert torch.equal(still, again)
    drawn, same, other = (logits(module, batch, seed=seed, training=True) for seed in (1, 1, 2))
    assert torch.equal(drawn, same)
    assert not torch.equal(drawn, other)
    assert not torch.equal(drawn, still)


@pytest.mark.parametrize("layers", [1, 3])
def test_the_head_of_gin_shared_is_all_but_its_convolutions(layers):
    """The base is the same for other features and classes: 24,960 numbers in GCFL's setting."""
    module = nn.model("gin_shared", "graph").build(5, 3, 7, layers, 0.0)
    base = [p for p in module.parameters() if id(p) not in {id(q) for q in nn.head(module)}]
    assert [id(p) for p in (*base, *nn.head(module))] == [id(p) for p in module.parameters()]
    assert sum(p.numel() for p in base) == layers * 2 * (7 * 7 + 7)
    assert nn.head(module)[-1].shape == (3,)
    file = nn.model("gin_shared", "graph")
    assert {entries(nn.layout(file, f, c, 64, 3, 0.5).base) for f, c in ((7, 2), (38, 6))} == {
        24960
    }


@pytest.mark.parametrize("name", [name for name in MODELS if name != "gin_shared"])
@pytest.mark.parametrize("layers", [1, 3])
def test_the_head_is_the_last_linear_layer(name, layers):
    module = nn.model(name, "graph").build(5, 3, 7, layers, 0.0)
    head = nn.head(module)
    assert [id(p) for p in head] == [id(p) for p in module.parameters()][-2:]
    assert [p.shape[-1] for p in head] == [3, 3]


@pytest.mark.parametrize("name", MODELS)
def test_every_parameter_has_a_gradient(name):
    module = filled(name)
    logits(module, batch_of(name)).square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().max() > 0 for p in module.parameters())


def test_no_graph_at_all_is_no_row():
    for name in MODELS:
        assert logits(filled(name), batch_of(name, np.array([], dtype=np.int64))).shape == (0, 3)
