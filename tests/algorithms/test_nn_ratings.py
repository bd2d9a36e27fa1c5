"""Rating models: the graph sees training ratings only, and each formula against numpy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn.utils import vector_to_parameters

from algorithms import nn
from algorithms.nn import dot, gcn_dot, rating_model
from algorithms.nn._shared.layouts import BUCKETS, MEAN, width
from algorithms.nn._shared.modules import Parameters
from algorithms.nn._shared.ratings import Bipartite, mean_rating

MODELS = tuple(name for name in nn.model_names("rating") if not nn.alone(name))
PAIRS = torch.tensor([[0, 0, 1, 3], [1, 2, 1, 4]])  # user 2, items 0 and 3 have no rating


def toy_graph():
    return Bipartite(PAIRS, 4, 5)


def loaded(module, seed=0):
    size = sum(parameter.numel() for parameter in module.parameters())
    weights = np.random.default_rng(seed).normal(0, 0.5, size).astype(np.float32)
    vector_to_parameters(torch.from_numpy(weights), module.parameters())
    return module, weights


def asked(module, graph, user, item, *, training=False):
    with torch.no_grad():
        pair = torch.tensor(user), torch.tensor(item)
        return module(graph, *pair, torch.Generator(), training)


@pytest.mark.parametrize("name", MODELS)
def test_a_model_is_called_like_its_file_and_is_for_ratings(name):
    file = rating_model(name)
    assert name == file.NAME
    assert file.TASK == "rating"
    with pytest.raises(ValueError, match=f"the model '{name}' is for rating tasks"):
        nn.model(name, "node")


def test_an_unknown_model_names_the_nearest():
    with pytest.raises(ValueError, match="did you mean 'gcn_dot'"):
        rating_model("gcndot")
    with pytest.raises(ValueError, match="known models: dot, gcn_dot"):
        rating_model("gcn")


def test_the_graph_has_an_edge_a_rating_and_nothing_else():
    graph = toy_graph()
    assert (graph.nodes, repr(graph)) == (9, "<Bipartite>")
    np.testing.assert_array_equal(graph.degree, [2, 1, 0, 1, 0, 2, 1, 0, 1])
    adjacency = np.eye(9)
    for user, item in PAIRS.T.tolist():
        adjacency[user, 4 + item] = adjacency[4 + item, user] = 1
    root = 1 / np.sqrt(adjacency.sum(axis=0))
    expected = root[:, None] * adjacency * root
    np.testing.assert_allclose(graph.propagation().matrix.to_dense(), expected, atol=1e-6)
    assert graph.propagation() is graph.propagation()


def test_a_graph_without_ratings_or_nodes_is_a_graph():
    none = torch.zeros((2, 0), dtype=torch.int64)
    np.testing.assert_array_equal(Bipartite(none, 2, 1).propagation().matrix.to_dense(), np.eye(3))
    empty = Bipartite(none, 0, 0)
    assert empty.propagation().matrix.shape == (0, 0)
    assert empty.inputs("degree").shape == (0, BUCKETS + 1)


def test_degrees_fall_into_buckets_by_powers_of_two():
    """Item k has as many ratings as `degrees` says; users have one each."""
    degrees = [0, 1, 2, 3, 4, 7, 8, 1 << 14, 1 << 15]
    user = torch.arange(sum(degrees))
    item = torch.repeat_interleave(torch.arange(len(degrees)), torch.tensor(degrees))
    graph = Bipartite(torch.stack([user, item]), len(user), len(degrees))
    x = graph.inputs("degree")
    assert x.shape == (graph.nodes, width("degree"))
    assert (x[:, :BUCKETS].sum(dim=1) == 1).all()
    assert x[len(user) :, :BUCKETS].argmax(dim=1).tolist() == [0, 1, 2, 2, 3, 3, 4, 15, 15]
    assert (x[: len(user), 1] == 1).all()
    assert x[:, BUCKETS].tolist() == [0.0] * len(user) + [1.0] * len(degrees)


def test_constant_inputs_are_alike_for_every_node():
    assert (toy_graph().inputs("constant") == torch.ones(9, 1)).all()
    with pytest.raises(ValueError, match="known are constant and degree"):
        width("degrees")


def test_dot_is_matrix_factorisation_with_biases():
    module, w = loaded(dot.build(4, 5, 3, 1, 0.0, "degree"))
    q, b_item, m = w[:15].reshape(5, 3), w[15:20], w[20]
    p, b_user = w[21:33].reshape(4, 3), w[33:]
    user, item = [0, 3, 2, 0], [4, 1, 1, 0]
    expected = 0.5 + 2 * m + b_item[item] + b_user[user] + (q[item] * p[user]).sum(axis=1)
    np.testing.assert_allclose(asked(module, toy_graph(), user, item)[:, 0], expected, rtol=1e-5)
    assert sum(parameter.numel() for parameter in nn.head(module)) == 4 * 3 + 4


def test_rows_of_a_site_are_those_of_its_own_users_and_items():
    whole, w = loaded(dot.build(10, 8, 3, 1, 0.0, "degree"))
    users, items = np.array([1, 4, 9]), np.array([0, 7])
    rows = dot.rows((users, items), (10, 8), 3)
    assert len(rows) == len(set(rows.tolist())) == 2 * 4 + 1 + 3 * 4
    near = dot.build(3, 2, 3, 1, 0.0, "degree")
    vector_to_parameters(torch.from_numpy(w[rows]), near.parameters())
    user, item = np.array([0, 1, 2, 2]), np.array([1, 0, 0, 1])
    np.testing.assert_array_equal(
        asked(near, toy_graph(), user, item),
        asked(whole, toy_graph(), users[user], items[item]),
    )


def dense_gcn(graph, x, parameters):
    matrix, hidden = graph.propagation().matrix.to_dense().numpy(), x
    for index in range(0, len(parameters), 2):
        hidden = matrix @ (hidden @ parameters[index]) + parameters[index + 1]
        if index + 2 < len(parameters):
            hidden = np.maximum(hidden, 0)
    return hidden


@pytest.mark.parametrize("inputs", ["constant", "degree"])
@pytest.mark.parametrize("layers", [1, 2, 3])
def test_gcn_dot_is_a_gcn_and_a_dot_product(inputs, layers):
    module, _ = loaded(gcn_dot.build(4, 5, 3, layers, 0.0, inputs))
    *parameters, m = [parameter.detach().numpy() for parameter in module.parameters()]
    graph = toy_graph()
    z = dense_gcn(graph, graph.inputs(inputs).numpy(), parameters)
    user, item = PAIRS.tolist()
    expected = 0.5 + 2 * m + (z[user] * z[4 + np.array(item)]).sum(axis=1)
    for training in (False, True):
        found = asked(module, graph, user, item, training=training)[:, 0]
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


def test_who_has_no_rating_is_predicted_as_the_average_over_ratings():
    module, _ = loaded(gcn_dot.build(4, 5, 3, 2, 0.0, "degree"))
    graph = toy_graph()
    users, items = (side.tolist() for side in PAIRS)
    known = asked(module, graph, users, [1] * 4).mean()
    unseen = asked(module, graph, [2], [1])
    assert unseen.item() == pytest.approx(known.item(), rel=1e-5)
    known = asked(module, graph, [0] * 4, items).mean()
    assert asked(module, graph, [0], [3]).item() == pytest.approx(known.item(), rel=1e-5)
    every = asked(module, graph, [u for u in users for _ in items], items * 4).mean()
    assert asked(module, graph, [2], [0]).item() == pytest.approx(every.item(), rel=1e-5)


def test_gcn_dot_has_no_parameter_of_a_user_or_an_item():
    shapes = [
        [tuple(p.shape) for p in gcn_dot.build(*sizes, 7, 2, 0.5, "degree").parameters()]
        for sizes in ((4, 5), (400, 5000))
    ]
    assert shapes[0] == shapes[1] == [(17, 7), (7,), (7, 7), (7,), (1,)]
    module = gcn_dot.build(4, 5, 7, 2, 0.5, "degree")
    assert [tuple(p.shape) for p in nn.head(module)] == [(7, 7), (7,), (1,)]
    assert gcn_dot.rows((np.arange(2), np.arange(3)), (4, 5), 7) is None


def test_dropout_draws_from_the_given_generator_in_training_only():
    module, _ = loaded(gcn_dot.build(4, 5, 30, 2, 0.5, "degree"))
    user, item = PAIRS

    def said(seed, training):
        with torch.no_grad():
            draws = torch.Generator().manual_seed(seed)
            return module(toy_graph(), user, item, draws, training).tolist()

    assert said(1, True) == said(1, True) != said(2, True)
    assert said(1, False) == said(2, False)


def test_the_mean_starts_in_the_middle_of_the_scale():
    module = Parameters(MEAN)
    torch.nn.init.zeros_(module.mean.deviation)
    assert mean_rating(module).item() == 0.5
    torch.nn.init.ones_(module.mean.deviation)
    assert mean_rating(module).item() == 2.5


def test_an_items_starting_vector_does_not_depend_on_the_catalogue():
    norms = []
    for items in (50, 20_000):
        module = dot.build(7, items, 32, 1, 0.0, "degree")
        start = module.initial(np.random.default_rng(0), lambda rng: pytest.fail("not for tables"))
        assert (start.dtype, len(start)) == (np.float32, items * 33 + 1 + 7 * 33)
        assert not start[items * 32 :].any()
        norms.append(np.square(start[: items * 32].reshape(items, 32)).sum(axis=1).mean())
    np.testing.assert_allclose(norms, 0.01, rtol=0.15)
