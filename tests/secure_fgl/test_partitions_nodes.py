"""Partitions of nodes: METIS, Dirichlet, and FedEgo's skewed samples, on toys and on Cora."""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
import pytest

from secure_fgl.data import gives_test, read_dataset
from secure_fgl.data.partitions import dirichlet_label
from secure_fgl.data.partitions._shared import sliced
from secure_fgl.data.sharing import remarks
from tests.secure_fgl.partition_tools import everything, graph_data, leaked, node_data, share


def kept(whole, parts):
    return sum(part.edges.shape[1] for part in parts) / whole.edges.shape[1]


def sizes(parts):
    return np.array([len(part.y) for part in parts])


@pytest.mark.parametrize("clients", [1, 2, 5, 20])
def test_metis_parts_are_even(clients):
    whole = node_data()
    found = sizes(share(whole, "metis_disjoint", clients)[1])
    assert found.min() >= 1
    assert found.max() <= 1.25 * whole.nodes / clients


def test_metis_separates_what_hangs_together():
    """Two cliques and one bridge: the bridge is the only edge lost."""
    u, v = np.triu_indices(10, k=1)
    edges = np.concatenate([[u, v], [u + 10, v + 10], [[0], [10]]], axis=1)
    whole = node_data(nodes=20)
    whole = replace(whole, edges=edges)
    parts = share(whole, "metis_disjoint", 2)[1]
    assert sorted(part.nodes.tolist() for part in parts) == [
        list(range(10)),
        list(range(10, 20)),
    ]


def test_metis_without_edges_still_fills_every_part():
    whole = replace(node_data(nodes=12), edges=np.zeros((2, 0), dtype=np.int64))
    assert sizes(share(whole, "metis_disjoint", 3)[1]).min() >= 1


@pytest.mark.parametrize("name", ["metis_disjoint", "metis_overlap"])
def test_without_pymetis_the_error_names_the_extra(monkeypatch, name):
    monkeypatch.setitem(sys.modules, "pymetis", None)
    with pytest.raises(ImportError, match=r"secure-fgl\[metis\].*louvain_balanced"):
        share(node_data(), name, 5)


@pytest.mark.parametrize(
    ("name", "clients", "options", "match"),
    [
        ("metis_disjoint", 401, {}, "fewer clients"),
        ("metis_overlap", 12, {}, "multiple of per_part"),
        ("metis_overlap", 10, {"per_part": 0}, "multiple of per_part"),
        ("metis_overlap", 250, {}, "no training node"),
        ("iid_nodes", 401, {}, "fewer clients"),
        ("dirichlet_label", 41, {}, "every client gets 10"),
        ("dirichlet_label", 20, {"beta": 0.001}, "larger beta"),
        ("dirichlet_label", 4, {"beta": 0.0}, "beta must be above 0"),
        ("dirichlet_label", 4, {"beta": float("nan")}, "beta must be above 0"),
        ("dirichlet_label", 4, {"least": -1}, "least must be 0 or more"),
        ("label_skew_major", 4, {"alpha_local": 0.0}, "alpha_local"),
        ("label_skew_major", 4, {"alpha_global": 1.0}, "alpha_global"),
        ("label_skew_major", 4, {"rate": 1.1}, "rate"),
        ("label_skew_major", 4, {"major": 6}, "major must be 1 to 5"),
        ("label_skew_major", 4, {"test_nodes": 0}, "test_nodes"),
        ("label_skew_major", 4, {"test_nodes": 100}, "too small for 100 test nodes"),
        ("label_skew_major", 4, {"test_nodes": 100, "strict": False}, "too small for 100"),
    ],
)
def test_what_cannot_be_shared_is_refused(name, clients, options, match):
    with pytest.raises(ValueError, match=match):
        share(node_data(), name, clients, **options)


def test_overlap_gives_each_part_to_five_independent_halves():
    whole = node_data()
    _, parts = share(whole, "metis_overlap", 10)
    held = [set(part.nodes.tolist()) for part in parts]
    for client in range(10):
        mates = range(client // 5 * 5, client // 5 * 5 + 5)
        part = set.union(*(held[mate] for mate in mates))
        others = [held[other] for other in range(10) if other not in mates]
        assert not part & set.union(*others)
        for mate in mates:
            if mate != client:  # two halves of one part share a quarter of it
                shared = len(held[client] & held[mate]) / len(held[client])
                assert 0.35 < shared < 0.65
    assert sizes(parts).sum() == pytest.approx(5 * whole.nodes / 2, abs=10)


def test_iid_parts_differ_by_one_node_and_look_alike():
    whole = node_data(nodes=2003, classes=2)
    _, parts = share(whole, "iid_nodes", 4)
    assert sorted(sizes(parts)) == [500, 501, 501, 501]
    assert np.std([np.mean(part.y == 0) for part in parts]) < 0.05


def spread(parts, classes):
    """Mean over classes of the largest client's share."""
    counts = np.array([np.bincount(part.y, minlength=classes) for part in parts])
    return (counts.max(axis=0) / counts.sum(axis=0)).mean()


def test_beta_sets_the_skew():
    whole = node_data(nodes=2000)
    spreads = [
        spread(share(whole, "dirichlet_label", 4, beta=beta)[1], 5) for beta in (0.3, 1, 1e4)
    ]
    assert spreads[0] > spreads[1] > spreads[2]
    assert spreads[0] > 0.5
    assert spreads[2] == pytest.approx(0.25, abs=0.01)


@pytest.mark.parametrize("seed", range(5))
def test_everybody_gets_ten_records_and_nobody_hoards(seed):
    whole = node_data(nodes=300)
    found = sizes(share(whole, "dirichlet_label", 8, seed=seed, beta=0.5)[1])
    assert found.min() >= 10
    # Full clients get no more: at most the even share, and then one class.
    assert found.max() <= 300 / 8 + np.bincount(whole.y).max()


def test_a_full_client_gets_nothing_of_the_next_class():
    rng = np.random.default_rng(0)
    classes = [np.arange(50), np.arange(50, 60)]
    for _ in range(50):
        held = dirichlet_label._one_draw(classes, 3, 1.0, rng)
        for records in held:
            if (records < 50).sum() >= 20:
                assert (records >= 50).sum() == 0


def test_a_tiny_beta_that_leaves_no_weight_still_shares_everything():
    rng = np.random.default_rng(0)
    classes = [np.arange(start, start + 10) for start in range(0, 100, 10)]
    for _ in range(20):
        held = dirichlet_label._one_draw(classes, 3, 1e-3, rng)
        np.testing.assert_array_equal(np.sort(np.concatenate(held)), np.arange(100))


def test_slices_by_hand():
    parts = sliced(np.arange(10), np.array([1.0, 0.0, 2.0, 1.0]))
    assert [part.tolist() for part in parts] == [[0, 1], [], [2, 3, 4, 5, 6], [7, 8, 9]]


def test_unlabelled_nodes_are_shared_out_too():
    whole = node_data(unlabelled=50)
    _, parts = share(whole, "dirichlet_label", 4)
    assert sum((part.y == -1).sum() for part in parts) == 50
    assert not any((part.y[part.train] == -1).any() for part in parts)


def test_labels_of_graphs_are_skewed_too():
    whole = graph_data(graphs=600)
    skewed, even = (
        spread(share(whole, "dirichlet_label", 4, beta=beta)[1], 3) for beta in (0.3, 1e4)
    )
    assert skewed > 0.4 > 0.3 > even


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_a_client_samples_mostly_from_three_classes(strict, seed):
    whole = node_data(nodes=3000, classes=10, degree=150, seed=seed)
    options = {"alpha_local": 0.1, "test_nodes": 60, "strict": strict}
    _, parts = share(whole, "label_skew_major", 4, seed, **options)
    for part in parts:
        counts = np.sort(np.bincount(part.y, minlength=10))
        assert counts[-3:].sum() / counts.sum() > 0.75  # 0.8, and their part of the rest
        assert 285 <= len(part.y) <= 300
        if strict:
            assert 35 <= part.test.sum() <= 85
        else:
            assert part.test.sum() == 60
            assert part.val.sum() == len(part.y) // 5


def test_classes_that_run_out_are_filled_from_the_others():
    whole = node_data(nodes=600, classes=3, degree=30)
    _, parts = share(whole, "label_skew_major", 2, major=1, alpha_local=0.5, test_nodes=50)
    for part in parts:
        assert 280 <= len(part.y) <= 300  # 240 of one class were wanted, about 140 are left


@pytest.mark.parametrize("strict", [True, False])
def test_isolated_and_unlabelled_nodes_are_nobodys_and_every_member_has_a_neighbour(strict):
    whole = node_data(degree=3, unlabelled=40)
    options = {"alpha_local": 0.4, "test_nodes": 10, "strict": strict}
    _, parts = share(whole, "label_skew_major", 3, **options)
    for part in parts:
        assert (part.y >= 0).all()
        assert (np.bincount(part.edges.ravel(), minlength=len(part.y)) > 0).all()
        assert (part.train | part.val | part.test).all()


@pytest.mark.parametrize("strict", [True, False])
def test_nodes_without_a_neighbour_do_not_count(strict):
    """FedEgo's loader drops them, so they change neither the sizes nor the draws."""
    whole = node_data()
    more = replace(whole, y=np.append(whole.y, [0] * 99), x=np.zeros((whole.nodes + 99, 1)))
    seen = [
        share(one, "label_skew_major", 3, masks=everything(one), test_nodes=20, strict=strict)[1]
        for one in (whole, more)
    ]
    for before, after in zip(*seen, strict=True):
        np.testing.assert_array_equal(before.nodes, after.nodes)
        np.testing.assert_array_equal(before.test, after.test)


def test_the_global_test_is_nobodys():
    whole = node_data(nodes=2000, degree=30)
    _, parts = share(whole, "label_skew_major", 12, alpha_local=0.6, alpha_global=0.25)
    assert len(np.unique(np.concatenate([part.nodes for part in parts]))) == 1500


def test_the_published_rule_leaks_44_percent_where_no_sample_loses_nodes(data_root):
    """Cora's labels, alpha 0.3, five clients: 44 %; 65 % at 0.5. Dense edges keep every sample."""
    cora, rng = read_dataset("cora", data_root), np.random.default_rng(0)
    ends = rng.integers(cora.nodes, size=(2, 200_000))
    dense = replace(cora, edges=np.unique(np.sort(ends[:, ends[0] != ends[1]], axis=0), axis=1))
    for alpha, share_ in ((0.3, 0.44), (0.5, 0.65)):
        found = published_leak(dense, alpha)
        assert found.mean() == pytest.approx(share_, abs=0.03)
        assert found[:, 0].max() == 0.0  # the first client's test leaves every later pool


def published_leak(whole, alpha, name="label_skew_major"):
    """Per seed and client, the share of local test nodes that train elsewhere."""
    options = {"strict": False, "alpha_local": alpha}
    return np.array([leaked(whole, share(whole, name, 5, seed, **options)[1]) for seed in range(4)])


@pytest.mark.parametrize(("alpha", "low", "high"), [(0.3, 0.25, 0.38), (0.5, 0.58, 0.66)])
def test_the_published_rule_leaks_on_cora_and_strict_does_not(data_root, alpha, low, high):
    """Samples lose nodes without neighbours, so less leaks than above: 31 % and 62 %."""
    cora = read_dataset("cora", data_root)
    found = published_leak(cora, alpha)
    assert low < found.mean() < high
    assert found[:, -1].mean() > found.mean()
    for seed in range(4):
        _, parts = share(cora, "label_skew_major", 5, seed, alpha_local=alpha)
        assert (leaked(cora, parts) == 0.0).all()
        assert min(part.test.sum() for part in parts) > 50


def test_metis_on_cora_loses_far_fewer_edges_than_chance(data_root):
    cora = read_dataset("cora", data_root, largest_component=True)
    assert cora.nodes == 2485
    for clients in (5, 10, 20):
        cut = kept(cora, share(cora, "metis_disjoint", clients)[1])
        chance = kept(cora, share(cora, "iid_nodes", clients)[1])
        assert chance == pytest.approx(1 / clients, abs=0.03)
        assert cut > 0.8


def test_metis_overlap_on_cora_keeps_its_halves(data_root):
    cora = read_dataset("cora", data_root, largest_component=True)
    for parts_ in (2, 6, 10):
        masks, parts = share(cora, "metis_overlap", 5 * parts_, shares=(0.2, 0.4, 0.4))
        found = sizes(parts)
        assert found.sum() == pytest.approx(5 * cora.nodes / 2, abs=25)
        assert found.max() <= 1.1 * cora.nodes / parts_ / 2
        for part in parts:
            np.testing.assert_array_equal(part.test, masks.test[part.nodes])


def test_all_records_may_train():
    whole = node_data()
    _, parts = share(whole, "iid_nodes", 3, masks=everything(whole))
    assert all(part.train.all() for part in parts)


@pytest.mark.parametrize("strict", [True, False])
def test_the_global_test_is_one_graph_that_every_client_was_given(strict):
    whole = node_data(nodes=2000, degree=30)
    options = {"alpha_local": 0.4, "alpha_global": 0.25, "test_nodes": 60, "strict": strict}
    _, parts = share(whole, "label_skew_major", 4, **options)
    first = parts[0].common
    assert len(first.nodes) == 500 and first.test.all() and not (first.train | first.val).any()
    for part in parts:
        assert not np.isin(part.nodes, first.nodes).any()
        for name in ("nodes", "edges", "y"):
            np.testing.assert_array_equal(getattr(part.common, name), getattr(first, name))
    inside = np.isin(whole.edges, first.nodes).all(axis=0)
    np.testing.assert_array_equal(first.nodes[first.edges], whole.edges[:, inside])
    np.testing.assert_array_equal(first.y, whole.y[first.nodes])


def test_without_a_global_test_and_under_other_rules_there_is_no_such_graph():
    whole = node_data(nodes=600, degree=30)
    options = {"alpha_local": 0.4, "alpha_global": 0.0, "test_nodes": 20}
    for name, chosen in (("label_skew_major", options), ("iid_nodes", {})):
        assert all(part.common is None for part in share(whole, name, 3, **chosen)[1])
    assert gives_test("label_skew_major") and not gives_test("iid_nodes")


def test_linked_clients_that_overlap_know_edges_to_what_others_hold_and_who_tells_a_node():
    whole = node_data(nodes=600, degree=30)
    options = {"alpha_local": 0.4, "alpha_global": 0.3, "test_nodes": 20}
    parts = share(whole, "label_skew_major", 3, linked=True, **options)[1]
    plain = share(whole, "label_skew_major", 3, **options)[1]
    for one, other in zip(parts, plain, strict=True):
        assert np.array_equal(one.nodes, other.nodes) and other.beyond is other.tells is None
        assert np.array_equal(one.train, other.train) and np.array_equal(one.edges, other.edges)
    held = np.unique(np.concatenate([part.nodes for part in parts]))
    told = np.sort(np.concatenate([part.nodes[part.tells] for part in parts]))
    assert np.array_equal(held, told)
    for part in parts:
        inside = np.isin(whole.edges, part.nodes)
        reached = np.isin(whole.edges, held).all(axis=0) & (inside.sum(axis=0) == 1)
        assert part.beyond.shape[1] == reached.sum() > 0
        assert not np.isin(part.beyond[1], part.nodes).any()
    (known,) = remarks("label_skew_major", {"linked": True})
    assert "of other clients' nodes" in known and not remarks("label_skew_major")


def test_linked_clients_know_both_ends_of_every_edge_between_them_and_no_other():
    whole = node_data()
    parts = share(whole, "dirichlet_linked", 4, beta=1.0)[1]
    crossing = [(part.nodes[a], b) for part in parts for a, b in part.beyond.T.tolist()]
    inside = sum(part.edges.shape[1] for part in parts)
    assert len(crossing) == 2 * (whole.edges.shape[1] - inside) > 0
    known = {tuple(sorted(map(int, edge))) for edge in whole.edges.T}
    assert {tuple(sorted(map(int, edge))) for edge in crossing} <= known
    assert not any(np.isin(part.beyond[1], part.nodes).any() for part in parts)
    assert all(part.beyond is None for part in share(whole, "dirichlet_label", 4)[1])


@pytest.mark.parametrize(("name", "clients"), [("metis_disjoint", 4), ("metis_overlap", 10)])
def test_metis_clients_know_edges_to_nodes_of_others_if_linked(name, clients):
    whole = node_data()
    plain, parts = (share(whole, name, clients, **more)[1] for more in ({}, {"linked": True}))
    for one, other in zip(plain, parts, strict=True):  # nothing moves but what is known beyond
        assert one.beyond is None and np.array_equal(one.nodes, other.nodes)
        assert np.array_equal(one.edges, other.edges) and np.array_equal(one.train, other.train)
    ends = [
        (client, int(part.nodes[a]), int(b))
        for client, part in enumerate(parts)
        for a, b in part.beyond.T
    ]
    owner = {node: client for client, node, _ in ends}
    assert len(ends) > 0 and all(owner[node] == client for client, node, _ in ends)  # one each
    known = {tuple(sorted(map(int, edge))) for edge in whole.edges.T}
    for client, node, other in ends:
        assert tuple(sorted((node, other))) in known and (owner[other], other, node) in ends
        assert other not in parts[client].nodes  # nobody is told of a node that it holds
    if name == "metis_disjoint":
        inside = sum(part.edges.shape[1] for part in parts)
        assert len(ends) == 2 * (whole.edges.shape[1] - inside)
    assert "public numbers" in remarks(name, {"linked": True})[0] and not remarks(name)
    with pytest.raises(ValueError, match="true or false"):
        share(whole, name, clients, linked=1)
