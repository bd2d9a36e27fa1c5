"""Laws of every partition: disjoint, covering, no test record trains, repeatable, faithful."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secure_fgl.data import partitions
from secure_fgl.data._folder import members
from secure_fgl.data.records import Masks, split_masks
from secure_fgl.data.sharing import induce, makes_split, partition, partition_names
from tests.secure_fgl.partition_tools import (
    graph_data,
    leaked,
    node_data,
    numbers,
    rating_data,
    roles_of,
    share,
)

MAKE = {"node": node_data, "graph": graph_data, "rating": rating_data}

# name, kind, clients, options; `users` stands for as many as there are
DISJOINT = [
    ("by_owner", "node", 4, {}),
    ("by_owner", "graph", 4, {}),
    ("louvain_balanced", "node", 5, {"delta": 9}),
    ("metis_disjoint", "node", 5, {}),
    ("iid_nodes", "node", 7, {}),
    ("dirichlet_label", "node", 5, {}),
    ("dirichlet_linked", "node", 5, {}),
    ("dirichlet_label", "graph", 4, {"beta": 2.0}),
    ("dirichlet_count", "graph", 8, {}),
    ("graphs_one_dataset", "graph", 7, {}),
    ("graphs_one_dataset", "graph", 7, {"shuffled": True}),
    ("graphs_multi_dataset", "graph", 4, {}),
    ("item_category", "rating", 4, {}),
    ("user_per_client", "rating", 20, {"most": True}),
]
FEW = {"per_class": 12, "val_nodes": 40, "test_nodes": 80}
OVERLAPPING = [
    ("metis_overlap", "node", 10, {}),
    ("label_skew_major", "node", 5, {"test_nodes": 20}),
    ("few_shot_shared_graph", "node", 6, FEW),
    ("few_shot_overlap", "node", 4, FEW),
    ("new_label_domain", "node", 5, {"per_class": 4, "test_per_class": 5, "relabel": False}),
    ("graphs_one_dataset", "graph", 7, {"overlap": True}),
]
LEAKY = [
    ("label_skew_major", "node", 5, {"test_nodes": 20, "strict": False}),
    ("graphs_one_dataset", "graph", 7, {"overlap": True, "strict": False}),
]
FEW_LABELS = {"few_shot_shared_graph", "few_shot_overlap", "new_label_domain"}
"""Rules whose clients know no label of a node without a role."""

PARTIAL = {"user_per_client"}
"""Disjoint rules that leave records to nobody."""

FIXED = {"by_owner", "graphs_multi_dataset", "item_category", "user_per_client"}
"""Rules that draw nothing."""

seeds = st.integers(0, 2**32 - 1)


def test_every_partition_is_under_these_laws():
    assert {case[0] for case in DISJOINT + OVERLAPPING} == set(partition_names())
    kinds = {(name, kind) for name, rule in members(partitions).items() for kind in rule.KINDS}
    assert kinds == {case[:2] for case in DISJOINT + OVERLAPPING}


@pytest.mark.parametrize(("name", "kind", "clients", "options"), DISJOINT)
@given(seed=seeds)
@settings(max_examples=5)
def test_disjoint_rules_give_each_record_one_owner(name, kind, clients, options, seed):
    whole = MAKE[kind](seed=seed % 3)
    _, parts = share(whole, name, clients, seed, **options)
    assert len(parts) == clients
    held = roles_of(whole, parts)[0]
    assert held.max() == 1
    assert held.min() == (0 if name in PARTIAL else 1)


@pytest.mark.parametrize(("name", "kind", "clients", "options"), DISJOINT + OVERLAPPING)
@given(seed=seeds)
@settings(max_examples=5)
def test_no_test_record_trains_anywhere_and_roles_agree(name, kind, clients, options, seed):
    whole = MAKE[kind](seed=seed % 3)
    masks, parts = share(whole, name, clients, seed, **options)
    held, *roles = roles_of(whole, parts)
    assert sum((role > 0).astype(int) for role in roles).max() == 1  # one role, at all its holders
    assert (sum(roles) <= held).all()
    assert min(len(numbers(whole, part, "train")) for part in parts) >= 1
    if not makes_split(name):
        for role, mask in zip(roles, masks, strict=True):
            np.testing.assert_array_equal(role > 0, mask & (held > 0))


@pytest.mark.parametrize(("name", "kind", "clients", "options"), LEAKY)
def test_the_leaky_rules_leak_so_the_law_above_can_fail(name, kind, clients, options):
    whole = MAKE[kind]()
    _, parts = share(whole, name, clients, **options)
    assert leaked(whole, parts).max() > 0.3
    for part in parts:  # within one client even they are clean
        roles = [set(numbers(whole, part, role).tolist()) for role in Masks._fields]
        assert sum(map(len, roles)) == len(set.union(*roles))


@pytest.mark.parametrize(("name", "kind", "clients", "options"), DISJOINT + OVERLAPPING + LEAKY)
def test_members_ascend_and_the_generator_decides(name, kind, clients, options):
    whole = MAKE[kind]()
    masks = split_masks(whole, (0.6, 0.2, 0.2), rng=np.random.default_rng(0))
    runs = [
        [
            [numbers(whole, part, role).tolist() for role in (None, "train", "val", "test")]
            for part in share(whole, name, clients, seed, masks=masks, **options)[1]
        ]
        for seed in (1, 1, 2)
    ]
    assert runs[0] == runs[1]
    assert (runs[0] == runs[2]) is (name in FIXED)
    for part in runs[0]:
        assert all(numbers_ == sorted(numbers_) for numbers_ in part)
        assert len(set(part[0])) == len(part[0]) or options.get("overlap")


@pytest.mark.parametrize(("name", "kind", "clients", "options"), DISJOINT + OVERLAPPING + LEAKY)
def test_parts_are_faithful_copies(name, kind, clients, options):
    whole = MAKE[kind]()
    for part in share(whole, name, clients, **options)[1]:
        own = numbers(whole, part)
        if kind == "node":
            np.testing.assert_array_equal(part.x.toarray(), whole.x.toarray()[own])
            known = part.y >= 0 if name in FEW_LABELS else np.ones(len(own), bool)
            np.testing.assert_array_equal(part.y[known], whole.y[own][known])
            assert known[part.train | part.val | part.test].all()
            inner = np.isin(whole.edges, own).all(axis=0)
            np.testing.assert_array_equal(own[part.edges], whole.edges[:, inner])
        elif kind == "graph":
            check_graphs(whole, part)
        else:
            for field in ("user", "item", "rating"):
                np.testing.assert_array_equal(getattr(part, field), getattr(whole, field)[own])


def check_graphs(whole, part):
    """Feature = node number + 1, so each node of a part tells where it came from."""
    np.testing.assert_array_equal(part.sizes, whole.sizes[part.graphs])
    np.testing.assert_array_equal(part.y, whole.y[part.graphs])
    x = part.x if isinstance(part.x, np.ndarray) else part.x.toarray()
    came_from = x[:, 0].astype(int) - 1
    first = np.cumsum(whole.sizes) - whole.sizes
    expected = [np.arange(at, at + n) for at, n in zip(first, whole.sizes, strict=True)]
    np.testing.assert_array_equal(came_from, np.concatenate([expected[g] for g in part.graphs]))
    copy = np.repeat(np.arange(len(part.sizes)), part.sizes)
    np.testing.assert_array_equal(copy[part.edges[0]], copy[part.edges[1]])
    assert (part.edges[0] < part.edges[1]).all()
    graph_of = np.repeat(np.arange(whole.records), whole.sizes)
    edges = {g: set() for g in part.graphs.tolist()}
    for u, v in whole.edges.T.tolist():
        if graph_of[u] in edges:
            edges[graph_of[u]].add((u, v))
    for number, graph in enumerate(part.graphs.tolist()):
        mine = came_from[part.edges[:, copy[part.edges[0]] == number]].T.tolist()
        assert set(map(tuple, mine)) == edges[graph]
        assert len(mine) == len(edges[graph])


@pytest.mark.parametrize("dense", [True, False])
def test_repeated_graphs_are_whole_copies(dense):
    whole = graph_data(dense=dense)
    _, parts = share(whole, "graphs_one_dataset", 3, overlap=True)
    assert max(np.unique(part.graphs, return_counts=True)[1].max() for part in parts) > 1
    for part in parts:
        check_graphs(whole, part)


@pytest.mark.parametrize("kind", ["node", "graph", "rating"])
def test_inducing_all_records_gives_the_whole(kind):
    whole = MAKE[kind]()
    masks = split_masks(whole, rng=np.random.default_rng(0))
    part = induce(whole, np.arange(whole.records), masks)
    for role, mask in zip(Masks._fields, masks, strict=True):
        np.testing.assert_array_equal(getattr(part, role), mask)
    if kind == "graph":
        check_graphs(whole, part)
    elif kind == "node":
        np.testing.assert_array_equal(part.edges, whole.edges)
    else:
        np.testing.assert_array_equal(part.rating, whole.rating)
    assert repr(part).startswith("<Client")


@pytest.mark.parametrize("kind", ["node", "graph", "rating"])
def test_a_partition_for_another_kind_is_refused_and_names_those_that_fit(kind):
    whole = MAKE[kind]()
    masks = split_masks(whole, rng=np.random.default_rng(0))
    fit = partition_names(kind)
    assert fit
    for name in set(partition_names()) - set(fit):
        with pytest.raises(ValueError, match=f"{kind} data; choose one of: {', '.join(fit)}"):
            partition(whole, name, 4, masks, np.random.default_rng(0))


@pytest.mark.parametrize(
    ("name", "kind", "options", "match"),
    [
        ("dirichlet_label", "node", {"beta": "much"}, "'beta'.*must be a number, like 1.0"),
        ("dirichlet_label", "node", {"least": 2.5}, "'least'.*must be a whole number, like 10"),
        ("dirichlet_label", "node", {"beta": True}, "'beta'.*must be a number"),
        ("dirichlet_label", "node", {"least": True}, "'least'.*must be a whole number"),
        ("label_skew_major", "node", {"strict": 1}, "'strict'.*must be true or false, like true"),
        ("user_per_client", "rating", {"moist": True}, "did you mean 'most'"),
    ],
)
def test_options_are_checked_against_their_defaults(name, kind, options, match):
    with pytest.raises(ValueError, match=match):
        share(MAKE[kind](), name, 4, **options)


def test_a_whole_number_is_a_number():
    assert len(share(node_data(), "dirichlet_label", 4, beta=1)[1]) == 4


def test_rules_with_roles_of_their_own_say_so():
    own = {name for name in partition_names() if makes_split(name)}
    told = {"label_skew_major", "graphs_one_dataset", "graphs_multi_dataset", *FEW_LABELS}
    assert own == told
    with pytest.raises(ValueError, match="did you mean 'iid_nodes'"):
        makes_split("iid_node")
