"""FedGCN's rows: two hops are GCN on the whole graph, no rows are GCN on one's own."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from algorithms._shared.row_sums import Linked, aggregated, local, look, meet
from algorithms.fed_gcn import Block, Gather, Told, fed_gcn
from algorithms.tasks import DataSpec, Site
from algorithms.tasks.inputs import NodeData
from algorithms.tasks.node import NodeTask
from protocols.disclosures.row_sum.disclosure import told
from secure_fgl.data.records import Graph, Masks
from secure_fgl.data.sharing import induce, partition

NODES, FEATURES, CLASSES, BLOCK = 90, 7, 3, 16


def graph(seed=0, sparse=True):
    rng = np.random.default_rng(seed)
    pairs = {tuple(sorted(rng.integers(NODES, size=2).tolist())) for _ in range(170)}
    edges = np.array(sorted(p for p in pairs if p[0] < p[1]), dtype=np.int64).T
    x = rng.random((NODES, FEATURES)).astype(np.float32) * (rng.random((NODES, FEATURES)) < 0.5)
    y = rng.integers(CLASSES, size=NODES)
    return Graph("toy", edges, sp.csr_array(x) if sparse else x, y, CLASSES, True)


def masks(seed=1):
    role = np.random.default_rng(seed).integers(3, size=NODES)
    return Masks(*(role == one for one in range(3)))


def task(layers=2, model="gcn"):
    spec = DataSpec("node", FEATURES, CLASSES, 128, 4, True, "toy")
    return NodeTask(spec, hidden=5, layers=layers, model=model)


def logits(made, data, weights):
    site = Site(data, seed=0)
    module = made._load(weights, site)
    with torch.no_grad():
        found = made._outputs(module, data, None, torch.Generator(), False).numpy()
    return found


def parts_of(whole, clients, seed=2):
    rng, options = np.random.default_rng(seed), {"beta": 10000.0, "least": 1}
    return partition(whole, "dirichlet_linked", clients, masks(), rng, options)


def overlapping(whole, clients=3, seed=2):
    """Return parts that share nodes, beside a test graph that all have."""
    options = {"alpha_local": 0.5, "alpha_global": 0.2, "test_nodes": 6, "linked": True}
    rng = np.random.default_rng(seed)
    return partition(whole, "label_skew_major", clients, masks(), rng, options)


def gathered(whole, clients, hops, threshold=1, parts=None):
    """Return the clients' sites after rows were told, block by block, through messages."""
    made, parts = task(), parts or parts_of(whole, clients)
    algorithm = fed_gcn(made, hops=hops, nodes=NODES, block=BLOCK)
    form = next(f for f in algorithm.forms if f.name == "rows_in_blocks")
    answer = {e.name: e.answer for e in form.exchanges}
    sites = {f"c{n}": Site(NodeData.from_graph(p), seed=0) for n, p in enumerate(parts)}
    dims = {"row_places": BLOCK, "block": BLOCK, "width": FEATURES + 1}
    for block in range(-(-NODES // BLOCK)):
        said = {n: answer["gather"](site, Gather(block=block)) for n, site in sites.items()}
        assert all(isinstance(one, Block) for one in said.values())
        for name, rows in told(said, threshold, Told, dims).items():
            meet(sites[name], rows.node, rows.sums)
    for site in sites.values():
        look(site, aggregated)
    return made, parts, sites


def dense(sparse):
    return sparse.matrix.to_dense().numpy()


@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize("clients", [2, 4])
def test_two_hops_are_the_whole_graphs_logits(clients, sparse):
    whole = graph(sparse=sparse)
    made, parts, sites = gathered(whole, clients, 2)
    weights = made.initial(np.random.default_rng(5))
    weights = weights + np.float32(0.1)  # biases, too
    centre = NodeData.from_graph(induce(whole, np.arange(NODES), masks()))
    wanted = logits(made, centre, weights)
    for part, site in zip(parts, sites.values(), strict=True):
        found = logits(made, site.data, weights)[: len(part.nodes)]
        assert np.abs(found - wanted[part.nodes]).max() < 1e-5
        assert site.data.count == int(part.train.sum())


@pytest.mark.parametrize("hops", [1, 2])
def test_of_a_node_that_several_hold_one_client_tells_the_terms(hops):
    whole = graph()
    parts = overlapping(whole)
    held = np.concatenate([part.nodes for part in parts])
    union = np.unique(held)
    assert len(held) > len(union) and sum(part.tells.sum() for part in parts) == len(union)
    centre = NodeData.from_graph(replace(induce(whole, union, masks()), common=parts[0].common))
    places = [np.searchsorted(union, part.nodes) for part in parts]

    def error(parts):
        made, _, sites = gathered(whole, len(parts), hops, parts=parts)
        if hops == 1:
            wanted = dense(centre.propagation("symmetric")) @ dense(centre.x)
            found = [dense(s.data.x)[local(s.data).nodes :] for s in sites.values()]
        else:
            weights = made.initial(np.random.default_rng(5)) + np.float32(0.1)
            wanted = logits(made, centre, weights)
            found = [logits(made, site.data, weights) for site in sites.values()]
        apart = len(wanted) - len(union)  # the common test's nodes, which stand behind own ones
        assert apart == len(parts[0].common.y) > 0
        own = [np.abs(f[: len(p)] - wanted[p]).max() for f, p in zip(found, places, strict=True)]
        tests = [np.abs(f[len(p) :][:apart] - wanted[-apart:]).max()
                 for f, p in zip(found, places, strict=True)]  # fmt: skip
        return max(own), max(tests)

    assert max(error(parts)) < 1e-5
    twice, beside = error([replace(part, tells=None) for part in parts])  # the control
    assert twice > 0.1 and beside < 1e-5


def test_one_hop_has_exact_inputs_and_the_control_0_hops_has_not():
    whole = graph()
    centre = NodeData.from_graph(induce(whole, np.arange(NODES), masks()))
    wanted = dense(centre.propagation("symmetric")) @ dense(centre.x)
    _, parts, sites = gathered(whole, 4, 1)
    for part, site in zip(parts, sites.values(), strict=True):
        size = len(part.nodes)
        found = dense(site.data.x)[size : 2 * size]
        assert np.abs(found - wanted[part.nodes]).max() < 1e-5
        local = NodeData.from_graph(part)
        own = dense(local.propagation("symmetric")) @ dense(local.x)
        assert np.abs(own - wanted[part.nodes]).max() > 0.1


def test_with_no_row_told_it_is_the_clients_own_graph():
    whole = graph()
    made, parts, sites = gathered(whole, 4, 2, threshold=1_000_000)
    weights = made.initial(np.random.default_rng(5))
    nothing = {"nodes": np.zeros(0, np.int64), "sums": np.zeros((0, FEATURES + 1))}
    for part, site in zip(parts, sites.values(), strict=True):
        own = NodeData.from_graph(part)
        assert site.data.x is not None and site.data.nodes == own.nodes  # left as it was
        wanted = logits(made, own, weights)
        found = logits(made, aggregated(own, nothing), weights)[: own.nodes]
        assert np.abs(found - wanted).max() < 1e-5


def test_one_client_is_gcn():
    whole = graph()
    made, (part,), sites = gathered(whole, 1, 2)
    assert part.beyond.shape == (2, 0)
    weights = made.initial(np.random.default_rng(5))
    wanted = logits(made, NodeData.from_graph(part), weights)
    assert np.array_equal(logits(made, sites["c0"].data, weights), wanted)


def test_a_threshold_serves_rows_of_enough_others_alone():
    whole = graph()
    _, parts, sites = gathered(whole, 4, 2, threshold=2)
    owner = np.zeros(NODES, dtype=int)
    for number, part in enumerate(parts):
        owner[part.nodes] = number
    both = np.hstack([whole.edges, whole.edges[::-1], np.tile(np.arange(NODES), (2, 1))])
    adders = [set(owner[both[0][both[1] == v]].tolist()) for v in range(NODES)]
    some = 0
    for number, site in enumerate(sites.values()):
        told_to = site.memory["rows"]["nodes"]
        some += len(told_to)
        assert all(len(adders[v] - {number}) >= 2 for v in told_to)
    assert some > 0


def test_no_degree_of_a_neighbour_leaves_but_in_a_sum():
    whole = graph()
    part = parts_of(whole, 4)[0]
    mine = Linked(NodeData.from_graph(part), 1)
    rows = np.arange(NODES)
    sums = mine.sums(rows).toarray()
    entered = np.bincount(mine.links[1], minlength=NODES)
    assert np.array_equal(sums[:, -1], entered)  # how many own nodes, not their degrees


def test_options_and_models_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="hops"):
        fed_gcn(task(), hops=3, nodes=9)
    with pytest.raises(ValueError, match="nodes"):
        fed_gcn(task(), hops=2)
    with pytest.raises(ValueError, match="2 layers"):
        fed_gcn(task(layers=3), hops=2, nodes=9)
    with pytest.raises(ValueError, match="2 layers"):
        fed_gcn(task(model="sgc"), hops=2, nodes=9)
    with pytest.raises(ValueError, match="no edges"):
        Linked(NodeData.from_graph(induce(graph(), np.arange(9), masks())), 1)
    assert next(f.name for f in fed_gcn(task()).forms) == "weighted_sum_of_changes"


@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize("hops", [1, 2])
def test_a_nodes_features_are_in_its_own_term_and_in_nothing_else(hops, sparse):
    """What noise on rows hides is one term a node; the rest of an answer follows from edges."""
    (part, *_) = parts_of(graph(sparse=sparse), 4)
    before = Linked(NodeData.from_graph(part), hops)
    terms, moved = before.terms.toarray(), 0
    for node in range(len(before.ids)):
        x = part.x.toarray() if sparse else np.array(part.x)
        x[node] = 1e3 * (1.0 + np.arange(FEATURES))
        other = Linked(NodeData.from_graph(replace(part, x=sp.csr_array(x) if sparse else x)), hops)
        rows = np.flatnonzero((other.terms.toarray() != terms).any(axis=1))
        assert rows.tolist() == [node]
        moved += 1
        for name in ("ids", "links", "wanted"):
            assert np.array_equal(getattr(other, name), getattr(before, name))
    assert moved > 10
