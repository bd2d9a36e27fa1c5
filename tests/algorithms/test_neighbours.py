"""NeighGen's pieces: hiding, guessing and adding neighbours."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from algorithms._shared.neighbour_sizes import Learning, Sizes
from algorithms._shared.neighbours import (
    counted,
    draw,
    encoded,
    fit_counting,
    impaired,
    inputs,
    learnt,
    mended,
    nearest,
    slopes,
    with_neighbours,
)
from algorithms.tasks.inputs import NodeData

SIZES = Sizes(features=6, latent=5, hidden=4, draws=3)


def test_the_nearest_candidate_does_not_depend_on_their_order() -> None:
    draws = torch.Generator().manual_seed(1)
    rows, candidates = torch.rand(4, 3, 6, generator=draws), torch.rand(7, 6, generator=draws)
    allowed = torch.rand(4, 7, generator=draws) < 0.5
    allowed[:, 2] = True
    order = torch.randperm(7, generator=draws)

    found = nearest(rows, candidates, allowed)

    assert torch.equal(found, nearest(rows, candidates[order], allowed[:, order]))
    for record in range(4):
        mine = candidates[allowed[record]]
        apart = (rows[record][:, None] - mine).square().sum(dim=2)
        assert torch.equal(found[record], mine[apart.argmin(dim=1)])
    allowed[0] = False
    with pytest.raises(ValueError, match="no candidate"):
        nearest(rows, candidates, allowed)


def test_gradients_agree_with_finite_differences_and_lengths_with_gradients() -> None:
    weights = torch.tensor(SIZES.initial(np.random.default_rng(1)), dtype=torch.float64)
    weights += 0.1
    draws = torch.Generator().manual_seed(2)
    entered = inputs(torch.randn(3, 5, generator=draws, dtype=torch.float64), 3, draws)
    candidates = torch.rand(4, 6, generator=draws, dtype=torch.float64)
    allowed = torch.ones(3, 4, dtype=torch.bool)

    def losses(at: torch.Tensor) -> torch.Tensor:
        rows = draw(SIZES, at, entered).rows
        return (rows - nearest(rows, candidates, allowed)).square().sum(dim=(1, 2)) / 3

    drawn = draw(SIZES, weights, entered)
    found = slopes(SIZES, weights, drawn, nearest(drawn.rows, candidates, allowed))
    assert torch.allclose(found.losses, losses(weights))
    assert weights.shape == (SIZES.size,)
    for record in range(3):
        alone = torch.zeros(3, dtype=torch.float64)
        alone[record] = 1.0
        slope = found.total(alone)
        assert torch.allclose(found.norms()[record], slope.norm())
        for place in range(0, SIZES.size, 5):
            step = torch.zeros_like(weights)
            step[place] = 1e-6
            change = (losses(weights + step) - losses(weights - step))[record] / 2e-6
            assert abs(change - slope[place]) < 1e-6
    scales = torch.tensor([0.5, -2.0, 0.0], dtype=torch.float64)
    both = found.total(torch.eye(3, dtype=torch.float64)[0]) * 0.5
    both -= 2.0 * found.total(torch.eye(3, dtype=torch.float64)[1])
    assert torch.allclose(found.total(scales), both)


def test_hidden_nodes_leave_with_their_edges_and_are_what_the_others_miss() -> None:
    graph = node_graph(30)
    data = NodeData.from_graph(graph)
    sizes = SIZES._replace(latent=64)

    found = impaired(data, sizes, 7, np.random.default_rng(1), share=0.3)

    assert found.hidden.shape == (9, 6)
    assert found.links.shape == (21, 9)
    assert torch.equal(found.links.sum(dim=1).float(), found.missing)
    assert 0 < found.missing.sum() <= graph.edges.shape[1]
    assert (found.with_missing().missing > 0).all()
    lengths = found.codes.norm(dim=1)
    assert torch.allclose(lengths, torch.full_like(lengths, 8.0))  # that of N(0, I), about
    again = impaired(data, sizes, 7, np.random.default_rng(1), share=0.3)
    assert torch.equal(found.codes, again.codes)
    whole = encoded(data.x, data.edges, sizes, 7)
    assert not torch.equal(whole, encoded(data.x, data.edges, sizes, 8))


@pytest.mark.parametrize("sparse", [False, True])
def test_a_mended_graph_has_the_new_nodes_behind_its_own(sparse: bool) -> None:
    data = NodeData.from_graph(node_graph(12, sparse))
    none = torch.zeros(12, dtype=torch.int64)
    assert mended(data, none, torch.zeros(0, 6)) is data  # nothing missing: the graph as it is

    counts = none.clone()
    counts[[3, 5]] = torch.tensor([2, 1])
    features = torch.rand(3, 6)
    found = mended(data, counts, features)

    assert (found.nodes, found.count) == (15, data.count)
    assert found.edges[:, -3:].tolist() == [[3, 3, 5], [12, 13, 14]]
    dense = [getattr(x, "matrix", x) for x in (data.x, found.x)]
    before, after = (x.to_dense() if sparse else x for x in dense)
    assert torch.equal(after, torch.cat([before, features]))
    assert found.y[-3:].tolist() == [-1, -1, -1]
    assert not found.train[-3:].any() | found.val[-3:].any() | found.test[-3:].any()
    with pytest.raises(ValueError, match="one row of features"):
        mended(data, counts, features[:2])


def test_counts_are_learnt_and_stay_within_what_may_be_added() -> None:
    codes = torch.randn(200, 5, generator=torch.Generator().manual_seed(1))
    missing = (codes[:, 0] > 0.0).float() * 2.0
    weights = fit_counting(codes, missing, steps=300, lr=0.02)

    found = counted(weights, codes, 1)

    assert found.max() <= 1
    right = counted(weights, codes, 5).clamp(max=1) == missing.clamp(max=1)
    assert right.float().mean() > 0.75  # the most frequent count alone: 0.5
    assert fit_counting(codes[:0], missing[:0], steps=3, lr=0.1).tolist() == [0.0] * 6


def test_a_client_learns_alone_what_is_missing_and_mends_alike_again() -> None:
    data = NodeData.from_graph(two_kinds())
    sizes = Sizes(features=4, latent=16, hidden=16, draws=2)
    begun = sizes.initial(np.random.default_rng(1))
    how = Learning(hidings=3, steps=150, lr=0.02)

    found = learnt(data, sizes, begun, 3, np.random.default_rng(2), how)
    first, second = (with_neighbours(data, sizes, found, 3) for _ in range(2))

    assert torch.equal(first.edges, second.edges)
    assert torch.equal(first.x, second.x)
    assert first.nodes > data.nodes
    parents = first.edges[0, data.edges.shape[1] :]
    kinds, guessed = data.x[parents][:, :2], first.x[data.nodes :][:, :2]
    assert (kinds.argmax(1) == guessed.argmax(1)).float().mean() > 0.9  # at random: 0.5
    untrained = with_neighbours(data, sizes, found._replace(features=begun), 3).x[data.nodes :]
    assert (kinds.argmax(1) == untrained[:, :2].argmax(1)).float().mean() < 0.9


def node_graph(nodes, sparse=False):
    """A ring with some chords."""
    rng = np.random.default_rng(4)
    pairs = {(u, u + 1) for u in range(nodes - 1)} | {(u, u + 3) for u in range(nodes - 3)}
    x = rng.random((nodes, 6)).astype(np.float32) * (rng.random((nodes, 6)) < 0.7) + 0.01
    role = rng.random(nodes)
    return SimpleNamespace(
        edges=np.array(sorted(pairs)).T,
        x=sp.csr_array(x) if sparse else x,
        y=rng.integers(2, size=nodes),
        train=role < 0.5,
        val=(role >= 0.5) & (role < 0.7),
        test=role >= 0.7,
    )


def two_kinds():
    """Two cliques of one-hot nodes: a missing neighbour is of the node's own kind."""
    kind = np.repeat([0, 1], 12)
    pairs = [(u, v) for u in range(24) for v in range(u + 1, 24) if kind[u] == kind[v]]
    x = np.zeros((24, 4), dtype=np.float32)
    x[np.arange(24), kind] = 1.0
    none = np.zeros(24, dtype=bool)
    return SimpleNamespace(edges=np.array(pairs).T, x=x, y=kind, train=none, val=none, test=none)
