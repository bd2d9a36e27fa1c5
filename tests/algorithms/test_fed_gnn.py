"""FedGNN's rows: with all of them it is a GCN on the whole graph whose first layer is one's own."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from algorithms._shared.row_sums import Linked, look, meet
from algorithms.fed_avg import Start, fed_avg
from algorithms.fed_gcn import Block, Gather, NodeTerms, Server, Told
from algorithms.fed_gnn import augmented, embeddings, fed_gnn
from algorithms.tasks import DataSpec, Site
from algorithms.tasks.inputs import NodeData
from algorithms.tasks.node import NodeTask
from protocols.disclosures.row_sum.disclosure import told
from protocols.rounds import Cohort, RoundLost, Sealed
from secure_fgl.data.sharing import induce
from tests.algorithms.test_fed_gcn import (
    BLOCK,
    CLASSES,
    FEATURES,
    NODES,
    graph,
    logits,
    masks,
    overlapping,
    parts_of,
)

HIDDEN = 5


def task(model="gcn", layers=2):
    spec = DataSpec("node", FEATURES, CLASSES, 128, 4, True, "toy")
    return NodeTask(spec, hidden=HIDDEN, layers=layers, model=model, dropout=0.0, weight_decay=0.0)


def some_weights(made):
    weights = made.initial(np.random.default_rng(5))
    return weights + np.float32(0.1)  # biases, too


def gathered(whole, clients, made, weights, threshold=1):
    """Return the clients' sites after rows were told, block by block, through messages."""
    parts = parts_of(whole, clients)
    algorithm = fed_gnn(made, nodes=NODES, block=BLOCK, warm=0)
    form = next(f for f in algorithm.forms if f.name == "rows_in_blocks")
    said_to = {e.name: e.answer for e in form.exchanges}
    sites = {f"c{n}": Site(NodeData.from_graph(p), seed=0) for n, p in enumerate(parts)}
    dims = {"row_places": BLOCK, "block": BLOCK, "width": HIDDEN + 1}
    start = Start(weights=weights)
    rows = {name: () for name in sites}
    for block in range(-(-NODES // BLOCK)):
        name = "gather_next" if block else "gather"
        given = Gather(block=block), start
        said = {n: said_to[name](site, *given, *rows[n]) for n, site in sites.items()}
        assert all(isinstance(one, Block) for one in said.values())
        rows = {n: (one,) for n, one in told(said, threshold, Told, dims).items()}
    for name, site in sites.items():
        meet(site, rows[name][0].node, rows[name][0].sums)
        look(site, augmented)
    return algorithm, parts, sites


def answer(algorithm, name):
    """Return what a client answers to an exchange of the form under masks."""
    return next(e.answer for e in algorithm.forms[0].exchanges if e.name == name)


def reference(whole, parts, number, parameters, made):
    """Return one client's logits, in one process: others' first layer is a constant."""

    def dense(data):
        matrix = data.propagation("symmetric").matrix.to_dense()
        return matrix, data.x.matrix.to_dense()

    first, bias, *_ = parameters
    hidden = torch.zeros(NODES, HIDDEN)
    for place, part in enumerate(parts):
        matrix, x = dense(NodeData.from_graph(part))
        here = torch.relu(matrix @ x @ first + bias)
        here = here if place == number else here.detach()
        hidden = hidden.index_add(0, torch.from_numpy(part.nodes), here)
    everything = induce(whole, np.arange(NODES), masks())
    matrix, _ = dense(NodeData.from_graph(everything))
    _, _, second, more, *head = parameters
    found = (matrix @ hidden @ second + more)[torch.from_numpy(parts[number].nodes)]
    return torch.relu(found) @ head[0] + head[1] if head else found


@pytest.mark.parametrize("model", ["gcn", "gcn_linear"])
def test_with_all_rows_logits_and_gradients_are_those_of_one_process(model):
    whole, made = graph(), task(model)
    weights = some_weights(made)
    _, parts, sites = gathered(whole, 4, made, weights)
    for number, (part, site) in enumerate(zip(parts, sites.values(), strict=True)):
        parameters, at = [], 0
        for _, shape in made.layout():
            size = int(np.prod(shape))
            piece = torch.tensor(weights[at : at + size].reshape(shape), requires_grad=True)
            parameters, at = [*parameters, piece], at + size
        wanted = reference(whole, parts, number, parameters, made)
        nodes = len(part.nodes)
        exact = wanted.detach().numpy()
        assert np.abs(logits(made, site.data, weights)[:nodes] - exact).max() < 1e-5
        own = logits(made, NodeData.from_graph(part), weights)
        assert np.abs(own - exact).max() > 1e-3  # the control: without rows
        labels, train = torch.from_numpy(part.y), torch.from_numpy(part.train)
        loss = torch.nn.functional.cross_entropy(wanted[train], labels[train])
        slopes = torch.autograd.grad(loss, parameters)
        batch = next(made.batches(site))
        found = made.gradient(weights, site, batch)
        assert np.abs(found - torch.cat([s.reshape(-1) for s in slopes]).numpy()).max() < 1e-5


def test_with_no_row_told_it_is_fed_avg_of_the_model():
    whole, made = graph(), task()
    weights = some_weights(made)
    algorithm, parts, sites = gathered(whole, 4, made, weights, threshold=1_000_000)
    train, plain = answer(algorithm, "train"), answer(fed_avg(made), "train")
    start = Start(weights=weights)
    for part, site in zip(parts, sites.values(), strict=True):
        own = Site(NodeData.from_graph(part), seed=0)
        found, wanted = train(site, start), plain(own, start)
        assert np.array_equal(found.delta, wanted.delta) and found.count == wanted.count
        nothing = {"nodes": np.zeros(0, np.int64), "sums": np.zeros((0, HIDDEN + 1))}
        without = logits(made, augmented(own.data, nothing), weights)[: len(part.nodes)]
        assert np.abs(without - logits(made, own.data, weights)).max() < 1e-5
    _, _, served = gathered(whole, 4, made, weights)
    for a, b in zip(sites.values(), served.values(), strict=True):  # the control: rows are told
        assert not np.array_equal(train(a, start).delta, train(b, start).delta)


def test_a_term_is_an_embedding_and_nothing_of_a_node_that_has_no_edge_elsewhere_leaves():
    whole, made = graph(), task()
    weights = some_weights(made)
    part = parts_of(whole, 4)[0]
    site = Site(NodeData.from_graph(part), seed=0)
    link = answer(fed_gnn(made, nodes=NODES), "link")
    said = link(site, Gather(block=0), Start(weights=weights))._unsummed
    assert said.terms.shape == (len(part.nodes), HIDDEN + 1)
    assert set(said.links[0]) == set(part.beyond[0]) and set(said.links[1]) == set(part.beyond[1])
    assert set(said.wanted) == set(part.nodes[part.beyond[0]])


def test_an_embedding_of_a_node_by_itself_is_its_own_and_zero_without_features():
    made = task()
    weights = some_weights(made)
    part = parts_of(graph(), 4)[0]
    at = Gather(block=0), Start(weights=weights)

    def terms(x, alone):
        site = Site(NodeData.from_graph(replace(part, x=x)), seed=0)
        return answer(fed_gnn(made, nodes=NODES, alone=alone), "link")(site, *at)._unsummed.terms

    node = int(part.edges[0, 0])  # has a neighbour at its client
    without = part.x.toarray()
    without[node] = 0.0
    whole, less = (terms(x, True).toarray() for x in (part.x, without))
    moved = np.flatnonzero(np.abs(whole - less).max(axis=1))
    assert moved.tolist() == [node] and not less[node, :-1].any() and less[node, -1] == 1
    whole, less = (terms(x, False).toarray() for x in (part.x, without))  # the control
    assert np.count_nonzero(np.abs(whole - less).max(axis=1)) > 1


def test_clients_that_hold_a_node_together_are_refused_and_nothing_of_theirs_leaves():
    """Their rows hold inner edges, too: nodes without an edge elsewhere, and neighbours twice."""
    part = overlapping(graph())[0]
    site = Site(NodeData.from_graph(part), seed=0)
    at = Gather(block=0), Start(weights=some_weights(task()))
    for name in ("link", "gather"):
        form = fed_gnn(task(), nodes=NODES).forms[name == "gather"]
        said = next(e.answer for e in form.exchanges if e.name == name)
        with pytest.raises(ValueError, match="hold nodes together"):
            said(site, *at)
    assert set(Linked(site.data, 1).links[0]) - set(part.beyond[0])  # the control


def test_a_crafted_model_reads_one_node_in_a_sum_over_all():
    """What a row rests on counts clients, and not what they say: see docs/adr/0055."""
    rng, made, key = np.random.default_rng(3), task(), FEATURES - 1
    x = rng.random((20, FEATURES))
    x[:, key], target = 0.0, 7
    x[target, key] = 1.0  # what parts it from the others
    weights = np.zeros(made.size, np.float32)
    matrix = np.eye(FEATURES, HIDDEN)
    matrix[key] = 4.0  # more than any feature, which the bias takes off again
    weights[: FEATURES * HIDDEN] = matrix.ravel()
    weights[FEATURES * HIDDEN : (FEATURES + 1) * HIDDEN] = -4.0
    total = embeddings(sp.csr_array(x), weights, HIDDEN).sum(axis=0)
    assert np.abs(total - x[target, :HIDDEN]).max() < 1e-6
    honest = embeddings(sp.csr_array(x), some_weights(made), HIDDEN).sum(axis=0)
    assert np.abs(honest - x[target, :HIDDEN]).max() > 0.1


def play(round, replies):
    """Return what a round's Asks give, and the state after it; a reply of None: the Ask is lost."""
    asked, ask = [], next(round)
    for reply in replies:
        asked.append(ask.given_kinds)
        try:
            ask = round.throw(RoundLost("away")) if reply is None else round.send(reply)
        except StopIteration as done:
            return asked, done.value
    raise AssertionError("the round asks on")


class Nothing:
    """A reply in which nobody changed anything, and no row was told."""

    def __init__(self, size):
        self.size = size

    def read(self, kind, into):
        return Sealed(into, {})

    def total(self, kind):
        return kind(delta=np.zeros(self.size), count=1)


def test_rows_are_asked_for_once_after_the_warm_rounds_and_not_again_when_lost():
    made = task()
    algorithm = fed_gnn(made, nodes=NODES, warm=1)
    form, cohort = algorithm.forms[0], Cohort(("c0", "c1", "c2", "c3"))
    state = algorithm.init(np.random.default_rng(0))
    assert state.before == 1
    reply = Nothing(made.size)
    asked, state = play(form.round(state, cohort), [reply])
    assert asked == [(Start,)] and (state.before, state.gathered) == (0, False)
    asked, later = play(form.round(state, cohort), [reply, reply])
    assert asked == [(Gather, Start), (Start, Told)] and later.gathered
    assert play(form.round(later, cohort), [reply])[0] == [(Start,)]
    lost = play(form.round(state, cohort), [None])[1]
    assert lost == Server(state.start, True, 0)
    assert [e.due(1) for e in form.exchanges if e.due] == [0, 0]
    assert [e.due(2) for e in form.exchanges if e.due] == [1, 1]


def test_options_and_models_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="0 or more"):
        fed_gnn(task(), nodes=9, warm=-1)
    with pytest.raises(ValueError, match="two GCN layers"):
        fed_gnn(task(layers=3), nodes=9)
    with pytest.raises(ValueError, match="two GCN layers"):
        fed_gnn(task(model="sgc"), nodes=9)
    whole = graph()
    unlinked = Site(NodeData.from_graph(induce(whole, np.arange(9), masks())), seed=0)
    link = answer(fed_gnn(task(), nodes=NODES), "link")
    given = Gather(block=0), Start(weights=some_weights(task()))
    with pytest.raises(ValueError, match="no edges"):
        link(unlinked, *given)
    linked = Site(NodeData.from_graph(parts_of(whole, 4)[0]), seed=0)
    with pytest.raises(ValueError, match="public number"):
        answer(fed_gnn(task(), nodes=9), "link")(linked, *given)
    assert isinstance(link(linked, *given), NodeTerms)
    assert next(f.name for f in fed_gnn(task()).forms) == "weighted_sum_of_changes"
