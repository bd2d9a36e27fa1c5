"""Models in layers of PyTorch Geometric answer as ours do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.utils import to_undirected

from algorithms import nn
from algorithms.nn._shared.ratings import neighbours
from algorithms.tasks import ClientModel, DataSpec, Site, predictions
from algorithms.tasks.ego import EgoTask
from algorithms.tasks.graph import GraphTask
from algorithms.tasks.inputs import GraphsData, NodeData, RatingsData
from algorithms.tasks.node import NodeTask
from algorithms.tasks.rating import RatingTask
from algorithms.tasks.training import activated, plain_model
from secure_fgl.data.records import ClientGraph, ClientGraphs, ClientRatings

RNG = np.random.default_rng(5)
NODES = list(nn.model_names("node"))
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


def task_of(name: str, layers: int = 2) -> Any:
    kind: Any = "graph" if name in GRAPHS else "node"
    spec = DataSpec(
        task=kind,
        features=FEATURES,
        classes=CLASSES,
        records=16,
        clients=1,
        synthetic=True,
        name="toy",
    )
    made: Any = GraphTask if kind == "graph" else EgoTask if nn.on_egos(name) else NodeTask
    return made(spec, model=name, hidden=5, layers=layers, dropout=0.5)


def given_of(name: str) -> tuple[Site, tuple[torch.Tensor, ...]]:
    """Return a site, and what a plain module of that name takes."""
    here, x, edges, batch = site("graph" if name in GRAPHS else "node")
    return here, (x, edges, batch) if name in GRAPHS else (x, edges)


@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("name", [*NODES, *GRAPHS])
def test_it_answers_as_the_task_does(name: str, layers: int) -> None:
    task = task_of(name, layers)
    here, given = given_of(name)
    weights = RNG.normal(size=task.size).astype(np.float32)
    module = plain_model(task, ClientModel((weights[:7], weights[7:])))
    assert not module.training
    with torch.no_grad():
        logits = module(*given)
    found = activated(task.spec, logits).numpy()
    np.testing.assert_allclose(found, task.predict(weights, here), atol=1e-5)
    again = plain_model(task, ClientModel((np.zeros(task.size, np.float32),)))
    again.load_state_dict(module.state_dict())
    with torch.no_grad():
        assert torch.equal(again(*given), logits)
    with pytest.raises(ValueError, match="parameters"):
        task.plain(weights[1:], {})


@pytest.mark.parametrize("name", ["gcn", "ego_sage", "gin"])
def test_a_mixture_answers_as_the_task_does(name: str) -> None:
    task = task_of(name)
    here, given = given_of(name)
    own, shared = (RNG.normal(size=task.size).astype(np.float32) for _ in range(2))
    model = ClientModel((shared,), (own,), 0.3)
    with torch.no_grad():
        found = activated(task.spec, plain_model(task, model)(*given)).numpy()
    np.testing.assert_allclose(found, predictions(task, model, here), atol=1e-5)
    alone = task.predict(shared, here)
    assert np.abs(found - alone).max() > 1e-2  # the control: the mixture is something else


RATING = DataSpec(
    task="rating", features=0, classes=1, records=64, clients=1, synthetic=True, name="toy",
    users=5, items=9, lowest=-4.0, highest=10.0,
)  # fmt: skip


def ratings(users: int) -> tuple[Site, tuple[torch.Tensor, ...]]:
    """Return a site that knows some users and items, and what a plain module takes."""
    known = np.array([1, 3, 4])[:users]
    user, item = (a.ravel() for a in np.meshgrid(known, np.array([0, 2, 3, 7, 8])))
    rating = RNG.integers(1, 6, size=len(user)).astype(np.float32)
    role = np.arange(len(user)) % 3
    part = ClientRatings(user, item, rating, role < 2, role == 2, role > 2, np.arange(len(user)))
    here = Site(RatingsData.from_ratings(part, RATING.users, RATING.items), seed=1)
    train = role < 2
    told = (user, item, np.stack([user[train], item[train]]), rating[train])
    return here, tuple(torch.from_numpy(a) for a in told)


@pytest.mark.parametrize("mixed", [False, True])
@pytest.mark.parametrize("name", nn.model_names("rating"))
def test_ratings_are_those_of_the_task(name: str, mixed: bool) -> None:
    task = RatingTask(RATING, model=name, hidden=4, dropout=0.5)
    here, given = ratings(1 if nn.alone(name) else 3)
    own, shared = (RNG.normal(size=task.size).astype(np.float32) * 0.06 for _ in range(2))
    model = ClientModel((shared,), (own,) if mixed else (), 0.4 if mixed else 0.0)
    with torch.no_grad():
        found = activated(RATING, plain_model(task, model)(*given)).numpy()
    expected = predictions(task, model, here)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert ((expected > RATING.lowest) & (expected < RATING.highest)).any()


@pytest.mark.parametrize("name", ["user_gat", "user_gcn", "user_ggnn"])
def test_neighbours_come_out_too(name: str) -> None:
    task = RatingTask(RATING, model=name, hidden=4)
    here, given = ratings(1)
    near = {"items": np.array([2, 7, 2, 0]), "vectors": RNG.normal(size=(4, 4)).astype(np.float32)}
    places = np.searchsorted(here.data.items, near["items"])
    here.data.graph.neighbours = neighbours(places, near["vectors"], len(here.data.items))
    changed = 0.0
    for scale in (0.06, 0.12, 0.25, 0.5):  # small ones add little, and large ones meet the scale
        weights = RNG.normal(size=task.size).astype(np.float32) * np.float32(scale)
        with torch.no_grad():
            found = plain_model(task, ClientModel((weights,), beside=near))(*given).numpy()
            without = plain_model(task, ClientModel((weights,)))(*given).numpy()
        np.testing.assert_allclose(found[:, None], task.predict(weights, here), atol=1e-5)
        changed = max(changed, float(np.abs(without - found).max()))
    assert changed > 1e-3
