"""GraphFL, Algorithm 1: two stages, halves of the labels, pseudo-labels."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from algorithms._shared.few_shot import confident, few_shot, halved
from algorithms._shared.steps import Change
from algorithms.fed_avg import Start as FedAvgStart
from algorithms.fed_avg import fed_avg
from algorithms.graph_fl import Met, Server, Slope, Start, graph_fl, stepped
from algorithms.graph_fl_domain import graph_fl_domain
from algorithms.tasks import Labelled
from algorithms.tasks.evaluation import total
from protocols.disclosures.sum.view import TotalView
from protocols.rounds import Cohort, Reply
from protocols.wire.roster import weights_digest
from secure_fgl.checking import subject
from secure_fgl.config import Config
from secure_fgl.federation import Federation
from tests.toys.kinds import sites_of, task_of
from tests.toys.quadratic import drive
from tests.toys.stage import play


def driven(algorithm: Any, sites: Any, rounds: int, state: Any = None) -> Any:
    """Play every Ask of some rounds with exact totals, and return the state."""
    form = algorithm.forms[0]
    state = state or algorithm.init(np.random.default_rng(0))
    for _ in range(rounds):
        steps = form.round(state, Cohort([str(place) for place in range(len(sites))]))
        ask = next(steps)
        try:
            while True:
                answer = form.find(ask).answer
                said = [answer(site, *ask.handed) for site in sites]
                ask = steps.send(Reply({type(said[0]): TotalView(total(said))}, len(said)))
        except StopIteration as stop:
            state = stop.value
    return state


def node_task(**options: Any) -> Any:
    return task_of("node", weight_decay=0.0, **options)


# --- what it equals -------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["gcn", "sgc"])
def test_stage_two_alone_on_all_labels_is_fed_avg(model: str) -> None:
    """T_e = 0 and no stage I; not to the bit, as a model of fewer nodes rounds otherwise."""
    task = node_task(model=model)
    alone = graph_fl(task, epochs=0, tune_steps=3, meta_lr=0.0, query=0.0)
    (form,) = alone.forms
    assert form.name == "stage_two" and len(form.exchanges) == 1
    ours = driven(alone, sites_of("node"), 5)
    begun = FedAvgStart(weights=task.initial(np.random.default_rng(0)))
    theirs = drive(fed_avg(task, epochs=3), sites_of("node"), 5, state=begun, form=1)
    np.testing.assert_allclose(ours.start.weights, theirs.weights, atol=1e-5)
    assert np.abs(theirs.weights - begun.weights).max() > 1e-2
    half = driven(graph_fl(task, tune_steps=3, meta_lr=0.0), sites_of("node"), 5)
    assert np.abs(half.start.weights - theirs.weights).max() > 1e-3  # the support half alone


def test_beta_zero_is_stage_two_only() -> None:
    task = node_task()
    second = driven(graph_fl(task, epochs=2, tune_steps=2, meta_lr=0.0), sites_of("node"), 3)
    options = {"epochs": 2, "tune_steps": 2, "decay": 0.0}
    near = driven(graph_fl(task, meta_lr=1e-30, **options), sites_of("node"), 3)
    np.testing.assert_array_equal(near.start.weights, second.start.weights)
    far = driven(graph_fl(task, meta_lr=0.01, **options), sites_of("node"), 3)
    assert np.abs(far.start.weights - second.start.weights).max() > 1e-3


# --- stage I --------------------------------------------------------------------------------------


def test_a_client_says_the_query_gradient_at_its_adapted_model() -> None:
    task, (site, *_) = node_task(), sites_of("node")
    algorithm = graph_fl(task, epochs=2)
    start = algorithm.init(np.random.default_rng(0)).start
    judged = algorithm.forms[0].exchanges[0].answer
    said: Any = judged(site, start)
    support, query = (Labelled(*site.memory[part]) for part in ("support", "query"))
    own = start.weights
    for _ in range(2):
        own = own - np.float32(task.lr) * task.slope_of(own, site, support, 0)
    np.testing.assert_allclose(said.slope, task.slope_of(own, site, query, 0), atol=1e-6)
    assert not np.allclose(said.slope, task.slope_of(start.weights, site, query, 0), atol=1e-4)


def test_a_client_that_adapts_by_adam_goes_on_with_its_moments() -> None:
    task, (site, *_) = node_task(), sites_of("node")
    options: dict[str, Any] = {"query": 0.5, "self_training": 0, "self_epochs": 1}
    few = few_shot(task, "graph_fl", inner="adam", **options)
    support, _ = few.halves(site)
    start = own = task.initial(np.random.default_rng(0))
    parameter = torch.nn.Parameter(torch.tensor(start))
    adam = torch.optim.Adam([parameter], lr=task.lr)
    for _ in range(3):
        own = few.adapted(own, site, support, 2, count())
        for _ in range(2):
            slope = task.slope_of(parameter.detach().numpy().copy(), site, support, 0)
            parameter.grad = torch.tensor(slope)
            adam.step()
    np.testing.assert_allclose(own, parameter.detach().numpy(), atol=1e-4)
    assert np.abs(own - start).max() > 5 * task.lr  # plain steps along these gradients are shorter
    forgetful = few.adapted(own, sites_of("node")[0], support, 2, count())
    assert np.abs(few.adapted(own, site, support, 2, count()) - forgetful).max() > 1e-3


def test_halves_hold_no_more_labels_than_are_asked_for() -> None:
    task, (site, *_) = node_task(), sites_of("node")
    of = graph_fl(task, labels=3, query=0.4)
    of.forms[0].exchanges[0].answer(site, of.init(np.random.default_rng(0)).start)
    support, query = (site.memory[part] for part in ("support", "query"))
    assert support.shape == query.shape == (2, 3)
    assert not set(support[0]) & set(query[0])
    known = dict(zip(*task.labelled(site), strict=True))
    assert all(known[record] == label for record, label in np.hstack([support, query]).T)


@pytest.mark.parametrize("kept", [False, True])
def test_the_aggregator_steps_as_torch_does(kept: bool) -> None:
    rng = np.random.default_rng(3)
    start, outer = rng.normal(size=6).astype(np.float32), ("adam_kept" if kept else "adam")
    state = Server(Start(weights=start))
    parameter = torch.nn.Parameter(torch.tensor(start))
    adam = torch.optim.AdamW([parameter], lr=0.05, weight_decay=0.1)
    for number in range(3):
        slope = rng.normal(size=6)
        state = stepped(state, 4 * slope, 4, 0.05, 0.1, outer)  # type: ignore[arg-type]
        if not kept:
            adam = torch.optim.AdamW([parameter], lr=0.05, weight_decay=0.1)
        parameter.grad = torch.tensor(slope, dtype=torch.float32)
        adam.step()
        np.testing.assert_allclose(state.start.weights, parameter.detach().numpy(), atol=1e-5)
        assert (state.moments is not None) is kept, number


def test_plain_steps_along_the_sum_as_the_source_document_writes() -> None:
    state = stepped(
        Server(Start(weights=np.ones(2, np.float32))), np.array([2.0, -4.0]), 4, 0.1, 0.0, "plain"
    )
    np.testing.assert_allclose(state.start.weights, [0.8, 1.4])


# --- halves and pseudo-labels ---------------------------------------------------------------------


def test_halves_are_apart_cover_all_and_share_every_class() -> None:
    labels = np.repeat([0, 1, 2], [8, 5, 1])
    of = Labelled(np.arange(100, 114), labels)
    support, query = halved(of, 0.5, np.random.default_rng(0))
    assert sorted([*support.records, *query.records]) == list(of.records)
    assert len(query.records) == 7
    for part in (support, query):
        np.testing.assert_array_equal(part.labels, labels[part.records - 100])
    assert np.bincount(query.labels, minlength=2)[0] == 4
    everything, nothing = halved(of, 0.0, np.random.default_rng(0))
    assert len(everything.records) == 14 and not len(nothing.records)


def test_a_client_keeps_its_halves_from_round_to_round() -> None:
    task, (site, *_) = node_task(), sites_of("node")
    algorithm = graph_fl(task, epochs=1, tune_steps=1)
    driven(algorithm, [site], 1)
    before = {part: site.memory[part].copy() for part in ("support", "query")}
    driven(algorithm, [site], 2)
    for part, kept in before.items():
        np.testing.assert_array_equal(site.memory[part], kept)


def test_pseudo_labels_are_the_surest_of_each_class_that_the_client_knows() -> None:
    predictions = np.array(
        [[0.9, 0.1, 0.0], [0.6, 0.4, 0.0], [0.7, 0.3, 0.0], [0.2, 0.8, 0.0], [0.0, 0.1, 0.9]],
        dtype=np.float32,
    )
    found = confident(predictions, np.array([0, 1, 2, 3, 4]), np.array([0, 1]), 2)
    assert found.records.tolist() == [0, 2, 3] and found.labels.tolist() == [0, 0, 1]
    without = confident(predictions, np.array([1, 3]), np.array([0, 1]), 2)
    assert without.records.tolist() == [1, 3]
    assert not len(confident(predictions, np.array([4]), np.array([0, 1]), 2).records)


def test_self_training_adds_records_and_never_a_label_that_is_held_out() -> None:
    task, (site, *_) = node_task(), sites_of("node")
    other = sites_of("node")[0]
    y = other.data.y.clone()
    held = other.data.val | other.data.test
    y[held] = (y[held] + 1) % 3
    other.data = replace(other.data, y=y, kept={})
    options = {"epochs": 1, "tune_steps": 1, "self_training": 2, "self_epochs": 20}
    for one in (site, other):
        driven(graph_fl(task, **options), [one], 1)
    own = np.concatenate([site.memory[part][0] for part in ("support", "query")])
    trains = np.flatnonzero(site.data.train.numpy())
    assert set(trains) < set(own) and len(own) <= len(trains) + 2 * 3 and len(set(own)) == len(own)
    for part in ("support", "query"):
        np.testing.assert_array_equal(site.memory[part], other.memory[part])


def test_one_clients_pseudo_labels_know_nothing_of_the_others() -> None:
    task = node_task()
    options = {"epochs": 1, "tune_steps": 1, "self_training": 2, "self_epochs": 20}
    among, alone = sites_of("node"), sites_of("node")[3]
    driven(graph_fl(task, **options), among, 1)
    driven(graph_fl(task, **options), [alone], 1)
    np.testing.assert_array_equal(among[3].memory["support"], alone.memory["support"])


# --- protected, and refused -----------------------------------------------------------------------


def test_it_runs_protected_as_two_sums_and_ends_as_in_clear() -> None:
    task = node_task(dropout=0.5)
    played = {
        policy: play(graph_fl(task, epochs=2, tune_steps=2), sites_of("node"), policy, rounds=2)
        for policy in ("masks", "unsafe_plaintext")
    }
    digests = {weights_digest({"weights": one.state.start.weights}) for one in played.values()}
    assert len(digests) == 1
    ups = {i.id: i.messages for i in played["masks"].plan.items if ".up." in i.id}
    assert set(ups) == {"judged.up.SUM", "tuned.up.SUM"}
    assert [kind.disclosure for kind in (Slope, Change)] == ["SUM", "SUM"] and Met.fields


def test_o5_a_client_that_vanishes_between_the_two_sums_loses_the_round(tmp_path: Path) -> None:
    """Vanished before the first sum, it is missing in both, and nothing is lost."""
    lost = {}
    for drop in ("2@1:after_upload", "2@1"):
        document = subject.document("graph_fl", "masks", drop=drop, rounds=1)
        document["transport"] = {"workers": 1}
        run = Federation.from_config(Config.parse(document)).run(tmp_path / str(len(drop)))
        lost[drop] = run.result["lost_rounds"]
    assert lost == {"2@1:after_upload": [1], "2@1": []}


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"query": 0.0}, "query is 0"),
        ({"query": 1.0}, "query < 1"),
        ({"epochs": -1}, "epochs"),
        ({"self_training": -1}, "self_training"),
    ],
)
def test_options_without_a_meaning_are_refused(options: dict[str, Any], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        graph_fl(node_task(), **options)


def test_it_needs_nodes() -> None:
    with pytest.raises(ValueError, match="needs a node task"):
        graph_fl(task_of("graph"))


@pytest.mark.parametrize("algorithm", [graph_fl, graph_fl_domain])
def test_a_round_asks_all_clients_or_cohorts_drawn_by_lot(algorithm: Any) -> None:
    assert algorithm(node_task()).forms[0].drawn == 0
    assert algorithm(node_task(), asked=10).forms[0].drawn == 10
    with pytest.raises(ValueError, match="asked"):
        algorithm(node_task(), asked=-1)
