"""Models and sparse products against hand calculation, dense arithmetic and PyG's own layers."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch.nn.utils import parameters_to_vector, vector_to_parameters
from torch_geometric.nn import GCNConv, SAGEConv, SGConv
from torch_geometric.utils import to_undirected

from algorithms import nn
from algorithms.nn._shared.sparse import Sparse, dropout, product, propagation

MODELS = nn.model_names("node")


def path_graph():
    """0 - 1 - 2, and 3 alone."""
    return torch.tensor([[0, 1], [1, 2]])


def random_graph(nodes=30, features=12, seed=0):
    rng = np.random.default_rng(seed)
    upper = np.triu(rng.random((nodes, nodes)) < 0.15, k=1)
    x = sp.random_array((nodes, features), density=0.3, format="csr", dtype=np.float32, rng=rng)
    return torch.from_numpy(np.stack(np.nonzero(upper))), x


def filled(name, features, classes, *, hidden=8, layers=2, rate=0.5, seed=0):
    module = nn.model(name).build(features, classes, hidden, layers, rate)
    size = sum(p.numel() for p in module.parameters())
    values = np.random.default_rng(seed).normal(size=size).astype(np.float32)
    vector_to_parameters(torch.from_numpy(values), module.parameters())
    return module


def dense(sparse):
    return sparse.matrix.to_dense()


def test_symmetric_propagation_by_hand():
    # degrees of A + I: 2, 3, 2, 1
    side = 1 / np.sqrt(6)
    expected = [
        [1 / 2, side, 0, 0],
        [side, 1 / 3, side, 0],
        [0, side, 1 / 2, 0],
        [0, 0, 0, 1],
    ]
    got = propagation(path_graph(), 4, "symmetric")
    np.testing.assert_allclose(dense(got), expected, atol=1e-7)
    np.testing.assert_allclose(got.transpose.to_dense(), np.transpose(expected), atol=1e-7)


def test_mean_propagation_by_hand_and_transposed():
    expected = [[0, 1, 0, 0], [1 / 2, 0, 1 / 2, 0], [0, 1, 0, 0], [0, 0, 0, 0]]
    got = propagation(path_graph(), 4, "mean")
    np.testing.assert_allclose(dense(got), expected, atol=1e-7)
    np.testing.assert_allclose(got.transpose.to_dense(), np.transpose(expected), atol=1e-7)


def test_an_isolated_node_hears_itself_where_it_is_asked_to():
    expected = [[0, 1, 0, 0], [1 / 2, 0, 1 / 2, 0], [0, 1, 0, 0], [0, 0, 0, 1]]
    got = propagation(path_graph(), 4, "mean_or_self")
    np.testing.assert_allclose(dense(got), expected, atol=1e-7)
    np.testing.assert_allclose(got.transpose.to_dense(), np.transpose(expected), atol=1e-7)


def test_sum_propagation_is_the_adjacency():
    expected = [[0, 1, 0, 0], [1, 0, 1, 0], [0, 1, 0, 0], [0, 0, 0, 0]]
    got = propagation(path_graph(), 4, "sum")
    assert dense(got).tolist() == expected
    assert got.transpose.to_dense().tolist() == expected


def test_gcn_by_hand_on_four_nodes():
    """One feature, one hidden unit, one class: every number below can be checked on paper."""
    module = nn.model("gcn").build(1, 1, 1, 2, 0.0)
    vector_to_parameters(torch.tensor([2.0, -1.0, 3.0, 0.5]), module.parameters())  # W0 b0 W1 b1
    x = torch.tensor([[1.0], [0.0], [0.0], [4.0]])
    side = 1 / np.sqrt(6)
    # P X W0 + b0: 2(1/2) - 1 = 0; 2 side - 1 < 0, cut by the ReLU; -1, cut; 8 - 1 = 7
    assert 2 * side - 1 < 0
    # 3 P h + 1/2: only node 3 is left with a value, and it has no neighbours
    got = module(x, propagation(path_graph(), 4, "symmetric"), torch.Generator(), False)
    np.testing.assert_allclose(got[:, 0].detach(), [0.5, 0.5, 0.5, 21.5], atol=1e-6)


@pytest.mark.parametrize("name", MODELS)
def test_a_model_is_found_by_its_file(name):
    assert name == nn.model(name).NAME
    assert (Path(nn.__path__[0]) / f"{name}.py").is_file()


def test_each_kind_of_task_has_its_own_models():
    assert set(MODELS) >= {"gcn", "gcn_linear", "graph_sage", "sgc"}
    assert {"gin", "gcn_readout"} <= set(nn.model_names("graph"))
    kinds = [nn.model_names(kind) for kind in ("node", "graph", "rating")]
    assert sorted(name for names in kinds for name in names) == sorted(nn.model_names())
    assert not any(name.startswith("_") for name in nn.model_names())


def test_an_unknown_model_names_the_nearest():
    with pytest.raises(ValueError, match="did you mean 'graph_sage'"):
        nn.model("graphsage")


def test_a_model_of_another_kind_of_task_is_unknown():
    with pytest.raises(ValueError, match="the model 'gcn' is for node tasks, and this is"):
        nn.model("gcn", "graph")


@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("name", MODELS)
def test_the_head_is_what_comes_last_and_makes_the_classes(name, layers):
    """FedPer keeps the end of the flat vector: the head must lie there and nowhere else."""
    module = nn.model(name).build(5, 3, 7, layers, 0.5)
    head = nn.head(module)
    assert [id(p) for p in head] == [id(p) for p in module.parameters()][-len(head) :]
    assert {p.shape[-1] for p in head} == {3}
    if name == "gcn_linear":
        assert [tuple(p.shape) for p in head] == [(7, 3), (3,)]


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("layers", [1, 2, 3])
def test_sparse_features_give_the_dense_result_and_gradient(name, layers):
    edges, x = random_graph()
    module = filled(name, 12, 4, layers=layers)
    matrix = propagation(edges, 30, nn.model(name).PROPAGATION)
    results = []
    for features in (Sparse.of(x), torch.from_numpy(x.toarray())):
        module.zero_grad()
        logits = module(features, matrix, torch.Generator().manual_seed(3), True)
        logits.square().sum().backward()
        gradient = parameters_to_vector([p.grad for p in module.parameters()])
        results.append((logits.detach(), gradient))
    (sparse_logits, sparse_gradient), (dense_logits, dense_gradient) = results
    assert sparse_logits.shape == (30, 4)
    torch.testing.assert_close(sparse_logits, dense_logits, atol=1e-5, rtol=1e-5)
    largest = float(dense_gradient.abs().max())  # six layers of N(0, 1) weights: up to 10^5
    torch.testing.assert_close(
        sparse_gradient, dense_gradient, atol=max(1e-3, 1e-5 * largest), rtol=1e-4
    )


def test_gcn_agrees_with_pyg():
    edges, x = random_graph()
    module = filled("gcn", 12, 4)
    w0, b0, w1, b1 = module.parameters()
    first, second = GCNConv(12, 8), GCNConv(8, 4)
    for layer, weight, bias in ((first, w0, b0), (second, w1, b1)):
        layer.lin.weight.data, layer.bias.data = weight.T, bias
    both = to_undirected(edges, num_nodes=30)
    expected = second(torch.relu(first(torch.from_numpy(x.toarray()), both)), both)
    got = module(Sparse.of(x), propagation(edges, 30, "symmetric"), torch.Generator(), False)
    torch.testing.assert_close(got, expected, atol=1e-5, rtol=1e-5)


def test_graph_sage_agrees_with_pyg():
    edges, x = random_graph()
    module = filled("graph_sage", 12, 4)
    values = list(module.parameters())
    first, second = SAGEConv(12, 8), SAGEConv(8, 4)
    for layer, (own, near, bias) in ((first, values[:3]), (second, values[3:])):
        layer.lin_r.weight.data, layer.lin_l.weight.data = own.T, near.T
        layer.lin_l.bias.data = bias
    both = to_undirected(edges, num_nodes=30)
    expected = second(torch.relu(first(torch.from_numpy(x.toarray()), both)), both)
    got = module(Sparse.of(x), propagation(edges, 30, "mean"), torch.Generator(), False)
    torch.testing.assert_close(got, expected, atol=1e-5, rtol=1e-5)


def test_sgc_agrees_with_pyg():
    edges, x = random_graph()
    module = filled("sgc", 12, 4, layers=3)
    weight, bias = module.parameters()
    layer = SGConv(12, 4, K=3)
    layer.lin.weight.data, layer.lin.bias.data = weight.T, bias
    expected = layer(torch.from_numpy(x.toarray()), to_undirected(edges, num_nodes=30))
    got = module(Sparse.of(x), propagation(edges, 30, "symmetric"), torch.Generator(), False)
    torch.testing.assert_close(got, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_features_are_never_made_dense(name):
    """300,000 x 400,000 features would take 480 GB if any step made them dense."""
    nodes, features = 300_000, 400_000
    ones = np.ones(1000, dtype=np.float32)
    rng = np.random.default_rng(0)
    spots = (rng.integers(nodes, size=1000), rng.integers(features, size=1000))
    x = Sparse.of(sp.csr_array((ones, spots), shape=(nodes, features)))
    module = filled(name, features, 2, hidden=2)
    matrix = propagation(path_graph(), nodes, nn.model(name).PROPAGATION)
    module(x, matrix, torch.Generator().manual_seed(1), True).sum().backward()
    assert all(torch.isfinite(p.grad).all() for p in module.parameters())


def test_dropout_draws_from_its_generator_and_keeps_the_mean():
    ones = torch.ones(200, 200)
    once = dropout(ones, 0.3, torch.Generator().manual_seed(1), True)
    again = dropout(ones, 0.3, torch.Generator().manual_seed(1), True)
    other = dropout(ones, 0.3, torch.Generator().manual_seed(2), True)
    assert torch.equal(once, again)
    assert not torch.equal(once, other)
    assert set(once.unique().tolist()) == {0.0, once.max().item()}
    assert abs(once.mean().item() - 1.0) < 0.02  # 40,000 draws: sd 0.0033


def test_dropout_leaves_generator_and_values_alone_outside_training():
    generator = torch.Generator().manual_seed(1)
    before = generator.get_state()
    hidden = torch.ones(5, 5)
    assert dropout(hidden, 0.5, generator, False) is hidden
    assert dropout(hidden, 0.0, generator, True) is hidden
    assert torch.equal(generator.get_state(), before)


def test_product_gradient_is_the_transposed_product():
    _, x = random_graph()
    right = torch.randn(12, 3, generator=torch.Generator().manual_seed(0), requires_grad=True)
    upstream = torch.randn(30, 3, generator=torch.Generator().manual_seed(1))
    product(Sparse.of(x), right).backward(upstream)
    expected = torch.from_numpy(x.toarray()).T @ upstream
    torch.testing.assert_close(right.grad, expected, atol=1e-5, rtol=1e-5)


def test_gcn_linear_is_a_gcn_below_a_linear_layer():
    edges, x = random_graph()
    module = filled("gcn_linear", 12, 4)
    *below, weight, bias = module.parameters()
    gcn = filled("gcn", 12, 8)
    vector_to_parameters(parameters_to_vector(below).detach(), gcn.parameters())
    matrix = propagation(edges, 30, "symmetric")
    hidden = torch.relu(gcn(Sparse.of(x), matrix, torch.Generator(), False))
    got = module(Sparse.of(x), matrix, torch.Generator(), False)
    torch.testing.assert_close(got, hidden @ weight + bias, atol=1e-5, rtol=1e-5)


_WIDTHS = {"sgc": [(5, 3)], "gcn_linear": [(5, 7), (7, 7), (7, 3)]}
CHAINED = [name for name in MODELS if not nn.on_egos(name)]  # the others: test_nn_egos.py


def test_layers_in_halves_come_own_near_bias_and_the_head_last():
    shapes = [
        tuple(p.shape) for p in nn.model("graph_sage_sampled").build(5, 3, 12, 2, 0.5).parameters()
    ]
    first, second = [(5, 3), (5, 3), (6,)], [(6, 2), (6, 1), (3,)]
    assert shapes == [*first, *second, (3, 3), (3,)]


@pytest.mark.parametrize("name", [name for name in CHAINED if name != "graph_sage_sampled"])
def test_parameters_come_layer_by_layer_with_the_bias_last(name):
    shapes = [tuple(p.shape) for p in nn.model(name).build(5, 3, 7, 2, 0.5).parameters()]
    widths = _WIDTHS.get(name, list(pairwise((5, 7, 3))))
    copies = 2 if name == "graph_sage" else 1
    assert shapes == [s for a, b in widths for s in [(a, b)] * copies + [(b,)]]


@pytest.mark.parametrize("name", [*MODELS, *nn.model_names("graph")])
def test_no_model_keeps_anything_but_parameters(name):
    """Buffers (the running statistics of batch normalisation) would stay behind, unseen."""
    kind = "node" if name in MODELS else "graph"
    assert not list(nn.model(name, kind).build(5, 3, 7, 2, 0.5).buffers())
