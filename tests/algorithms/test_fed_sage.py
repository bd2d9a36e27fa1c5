"""FedSage, LocSage, and FedSage+ whose generator learns alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.utils import to_undirected

from algorithms._shared import neighbours
from algorithms.fed_sage import fed_sage
from algorithms.fed_sage_plus import Start, fed_sage_plus
from algorithms.tasks import ClientModel, Site
from algorithms.tasks.evaluation import total
from algorithms.tasks.inputs import sampled
from benchmarks.fed_sage import in_one_process
from secure_fgl.catalogue import preferred_model
from secure_fgl.config import Config
from secure_fgl.data.loading import load
from secure_fgl.federation import Federation
from secure_fgl.run.reference import Bystander
from secure_fgl.store.finished_run import Run
from tests.toys.kinds import task_of
from tests.toys.quadratic import drive

BANKS: dict[str, Any] = {
    "name": "synthetic_banks",
    "options": {"customers": 40, "transactions": 80},
    "partition": {"name": "louvain_balanced", "clients": 5, "options": {"delta": 5}},
}


def config(name: str = "fed_sage", **more: Any) -> Config:
    document = {
        "algorithm": {"name": name, "rounds": 2, "options": {"fed_sage_plus": {"steps": 20}}},
        "data": BANKS,
        "policy": "unsafe_plaintext",
        "model": {"lr": 0.01},
        **more,
    }
    return Config.parse(document)


def made(name: str = "fed_sage") -> tuple[Any, Any, list[Site]]:
    chosen = config(name)
    task, algorithm = Federation.from_config(chosen).build()
    return task, algorithm, load(chosen, task).sites


@pytest.fixture(scope="module")
def plus(tmp_path_factory: pytest.TempPathFactory) -> tuple[Config, Run]:
    chosen = config("fed_sage_plus", evaluation={"references": ["whole_graph"]})
    out = tmp_path_factory.mktemp("plus") / "run"
    return chosen, Federation.from_config(chosen).run(out)


# Drawn neighbours.


def test_a_batch_hears_at_most_so_many_neighbours_each_as_often_as_the_others() -> None:
    _, _, (site, *_) = made()
    data, draws = site.data, torch.Generator().manual_seed(1)
    near = data.propagation("mean").matrix.to_dense() > 0
    degree = near.sum(dim=1)
    node = int(degree.argmax())
    assert degree[node] > 4
    heard = torch.zeros(data.nodes)
    for _ in range(300):
        part = sampled(data, np.array([node]), fan_out=2, hops=1, draws=draws)
        matrix = part.propagation.matrix.to_dense()
        row = matrix[part.places[0]]
        assert row[row > 0].tolist() == [0.5, 0.5]
        names = [int((data.x == x).all(dim=1).nonzero()[0]) for x in part.x[row > 0]]
        heard[names] += 1
    assert not heard[~near[node]].any()
    often = heard[near[node]] / 300
    assert torch.allclose(often, torch.full_like(often, 2.0 / int(degree[node])), atol=0.12)
    two, again = (
        sampled(data, np.arange(4), fan_out=2, hops=2, draws=torch.Generator().manual_seed(s))
        for s in (3, 3)
    )
    assert torch.equal(two.x, again.x)


def test_with_few_neighbours_the_part_gives_what_the_whole_graph_gives() -> None:
    task, _, (site, *_) = made()
    weights = task.initial(np.random.default_rng(1))
    module, records = task._load(weights, site), np.array([7, 2, 11])
    part = sampled(site.data, records, fan_out=1000, hops=2, draws=torch.Generator())
    with torch.no_grad():
        found = torch.softmax(module(part.x, part.propagation, torch.Generator(), False), dim=1)
    np.testing.assert_allclose(
        found[part.places].numpy(), task.predict(weights, site)[records], atol=1e-6
    )


def test_training_draws_and_predicting_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    task, _, (site, *_) = made()
    weights = task.initial(np.random.default_rng(1))
    with monkeypatch.context() as patch:
        patch.delattr("algorithms.nn.graph_sage_sampled.FAN_OUT")
        whole = task.fit(weights, site.on(site.data), epochs=1)
    site.draws.clear()
    drawn = task.fit(weights, site, epochs=1)
    assert drawn.tobytes() != whole.tobytes()
    assert task.predict(weights, site).tobytes() == task.predict(weights, site).tobytes()


# What the names mean.


def test_the_name_alone_gives_the_source_s_setting() -> None:
    for name in ("fed_sage", "fed_sage_plus", "loc_sage"):
        chosen = Federation.from_config(Config.parse({"algorithm": {"name": name}})).config.model
        told = (chosen.optimiser, chosen.lr, chosen.batch, chosen.dropout)
        assert told == ("adam", 1e-3, 64, 0.0)
        assert preferred_model(name) == {"node": "graph_sage_sampled"}
        assert chosen.keep_moments
    task, *_ = made()
    shapes = dict(task.layout())
    assert (shapes["layers.0.own"][1], shapes["layers.0.near"][1]) == (32, 32)
    assert (shapes["layers.1.bias"], shapes["layers.2.weight"][0]) == ((32,), 32)


def test_fed_sage_plus_plans_the_messages_of_fed_sage() -> None:
    plans = [Federation.from_config(config(n)).plan() for n in ("fed_sage", "fed_sage_plus")]
    plain, mended = (
        {i.id: (i.exchange, i.sender, i.recipient, i.times, i.guards, i.body) for i in p.items}
        for p in plans
    )
    assert plain.keys() == mended.keys()
    other = {item for item in plain if plain[item] != mended[item]}
    assert other == {"train_alike.down", "evaluate.down"}  # the public seed beside the model
    for item in other:
        assert plain[item][-1] + 8 == mended[item][-1]
    assert plans[1].form == "generator_alone"


# FedSage+.


def test_where_nothing_is_missing_it_is_fed_sage(monkeypatch: pytest.MonkeyPatch) -> None:
    task, _, sites = made()
    _, _, others = made()
    start = fed_sage_plus(task).init(np.random.default_rng(0))
    with monkeypatch.context() as patch:
        patch.setattr(neighbours, "counted", lambda _, codes, most: torch.zeros(len(codes)).long())
        mended = drive(fed_sage_plus(task, steps=3), sites, 2, state=start)
    plain = fed_sage(task)
    began = plain.init(np.random.default_rng(0))
    assert began.weights.tobytes() == start.weights.tobytes()
    found = drive(plain, others, 2, state=began)
    assert found.weights.tobytes() == mended.weights.tobytes()
    guessed = drive(fed_sage_plus(task, steps=3), made()[2], 2, state=start)
    assert guessed.weights.tobytes() != found.weights.tobytes()


def test_a_client_learns_once_and_mends_alike_after_it_was_away() -> None:
    task, algorithm, sites = made("fed_sage_plus")
    state = drive(algorithm, sites, 1)
    assert isinstance(state, Start)
    site = sites[0]
    first, learnt = site.data.kept["mended"][1], site.memory["neighgen"]
    assert first.nodes > site.data.nodes
    site.data.kept.clear()  # as after a kill: only memory is kept
    drive(algorithm, sites, 1, state=state)
    assert site.memory["neighgen"] is learnt
    assert site.draws["neighbours"] == 1
    again = site.data.kept["mended"][1]
    assert again is not first
    assert torch.equal(again.x, first.x)
    assert torch.equal(again.edges, first.edges)
    assert task.predict(state.weights, site).shape[0] == site.data.nodes  # as it is, not mended


def test_what_it_cannot_do_is_refused() -> None:
    with pytest.raises(ValueError, match="node task"):
        fed_sage_plus(task_of("graph"))
    task = made()[0]
    for form in fed_sage_plus(task).forms:
        assert not form.by_gradients  # NeighGen reads records, held-out ones too
    for options in ({"share": 0.0}, {"share": 1.0}, {"steps": 0}):
        with pytest.raises(ValueError, match="out of range"):
            fed_sage_plus(task, **options)


def test_features_beyond_numbers_are_an_error_not_a_graph() -> None:
    _, algorithm, sites = made("fed_sage_plus")
    sites[0].data.x.mul_(3e38)
    with pytest.raises(FloatingPointError, match="NeighGen"):
        drive(algorithm, sites, 1)


# The score on the whole graph.


def test_the_released_model_is_held_against_all_edges(plus: tuple[Config, Run]) -> None:
    chosen, run = plus
    found = run.result["references"]["whole_graph"]
    task, _ = Federation.from_config(chosen).build()
    whole, masks = load(chosen, task).whole  # type: ignore[misc]
    x, edges = torch.tensor(whole.x, dtype=torch.float32), torch.from_numpy(whole.edges)
    with torch.no_grad():
        guess = run.model()(x, to_undirected(edges)).argmax(dim=1).numpy()
    assert found == pytest.approx((guess == whole.y)[masks.test].mean())
    cut = sum(site.data.edges.shape[1] for site in load(chosen, task).sites)
    assert cut < edges.shape[1]  # or there is nothing to restore
    for file in run.path.glob("ledger/*.jsonl"):
        assert "whole_graph" not in file.read_text("utf-8")


def test_clients_models_are_held_against_all_edges_one_by_one() -> None:
    chosen = config("loc_sage", evaluation={"references": ["whole_graph"]})
    task, _ = Federation.from_config(chosen).build()
    loaded = load(chosen, task)
    bystander = Bystander(task, loaded.sites, loaded.whole, chosen)
    assert bystander.references() == {"whole_graph": None}  # nobody has a model yet
    weights = [task.initial(np.random.default_rng(i)) for i in range(5)]
    for site, own in zip(loaded.sites, weights, strict=True):
        site.memory["kept"] = (1, ClientModel((own,)).kept())
    centre = bystander._centre()
    scores = [task.score(task.predict(own, centre), centre) for own in weights]
    each = [task.scoring.read(score)["test_accuracy"] for score in scores]
    assert len(set(each)) > 1
    assert bystander.references()["whole_graph"] == pytest.approx(np.mean(each))
    assert task.scoring.read(total(scores))["test_accuracy"] == pytest.approx(np.mean(each))


def test_in_one_process_comes_out_what_a_run_gives(plus: tuple[Config, Run]) -> None:
    chosen, run = plus
    found = in_one_process(chosen)
    for name in ("test_accuracy", "val_accuracy"):
        assert found["metrics"][name] == pytest.approx(run.result["metrics"][name], abs=0.011)
    whole = run.result["references"]["whole_graph"]
    assert found["references"]["whole_graph"] == pytest.approx(whole, abs=0.011)
