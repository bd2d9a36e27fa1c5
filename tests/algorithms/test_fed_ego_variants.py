"""FedEgo's variants, and what it is like around: evaluation, clients without labels, options."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from algorithms._shared.ego import (
    Labels,
    Slope,
)
from algorithms.fed_ego import fed_ego
from algorithms.tasks import Site
from algorithms.tasks.evaluation import evaluated, released
from protocols.errors import NotAdmitted, Refused
from protocols.policy.policy import PrivacyPolicy
from tests.algorithms.fed_ego_tools import (
    at,
    begun,
    client,
    ego,
    exchange,
    only,
    rounds,
    small,
    step_of,
    task,
    told,
)
from tests.predicting import predicted
from tests.toys.kinds import CLIENTS, sites_of, task_of
from tests.toys.stage import plan_of

# --- variants -------------------------------------------------------------------------------------


def kinds(algorithm: Any) -> list[set[str]]:
    return [{k.__name__ for e in form.exchanges for k in e.back} for form in algorithm.forms]


def test_a_variant_says_no_more_than_it_needs() -> None:
    assert kinds(ego()) == [
        {"Reduction", "Mashed"},
        {"Reduction", "Slope", "Labels"},
        {"Reduction", "Slope", "ToldLabels"},
    ]
    assert kinds(ego(fixed=1.0)) == [{"Reduction", "Mashed"}, {"Reduction", "Slope"}]
    assert kinds(ego(fixed=0.0)) == [{"Reduction"}]
    assert kinds(ego(average=False)) == [{"Mashed"}, {"Slope", "Labels"}, {"Slope", "ToldLabels"}]
    assert kinds(ego(mixup=False)) == [{"Reduction", "Mashed"}]
    assert [form.name for form in ego(mixup=False).forms] == ["unmixed"]


VARIANTS: list[dict[str, Any]] = [
    {},
    {"fixed": 0.0},
    {"fixed": 0.5},
    {"fixed": 1.0},
    {"average": False},
    {"mixup": False},
]


@pytest.mark.parametrize("options", VARIANTS, ids=str)
@pytest.mark.parametrize("model", ["ego_sage", "ego_sage_linear", "ego_mlp"])
def test_every_variant_runs_in_every_form(options: dict[str, Any], model: str) -> None:
    made = task(model=model)
    for form in ego(made, **options).forms:
        algorithm = evaluated(only(ego(made, **options), form.name), made, at="trained")
        played = rounds(2, sites_of("node"), algorithm)
        assert [score.val_count for score in played.state.scores] == [24, 24]
        assert released(played.state.state).step == 2  # type: ignore[union-attr]


def test_without_averaging_every_client_keeps_its_own_reduction_layers() -> None:
    sites, model = sites_of("node"), task()
    rounds(2, sites, only(ego(model, average=False), "mixup"))
    assert all("theta" not in site.memory for site in sites)
    start = client(model, average=False).start(sites[0], told(model, [1, 0, 0]))
    np.testing.assert_array_equal(
        start[: model.reduction], sites[0].memory["trained"][: model.reduction]
    )


def test_without_mixup_one_ego_graph_of_each_group_is_said_and_only_unsafe_policies_let_it() -> (
    None
):
    model, sites = task(), sites_of("node")
    algorithm = ego(model, mixup=False)
    _, message = exchange(algorithm, "unmixed", "train_and_show")(sites[0], begun(algorithm).start)
    table, egos = model.reduce(sites[0].memory["trained"], sites[0]), model.egos(sites[0])
    heads = [group[0] for group in client(model).groups(sites[0])]
    np.testing.assert_array_equal(message.features, table[egos.places[heads]])
    np.testing.assert_array_equal(message.label.argmax(axis=1), egos.label[heads])
    for made in (algorithm, evaluated(algorithm, model, at="trained")):
        with pytest.raises(NotAdmitted) as error:  # when the plan is made, before anything trains
            plan_of(made, PrivacyPolicy.preset("pilot"), CLIENTS, 1, records=64)
        assert "mixup: false" in error.value.why and "take unsafe_plaintext" in error.value.why
    # The gateway is the second line: it refuses what a form does not own up to.
    bold = replace(algorithm, forms=tuple(replace(f, unmixed=False) for f in algorithm.forms))
    with pytest.raises(Refused):
        rounds(1, sites_of("node"), bold, small())


# --- around ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", ["trained", "downloaded"])
@pytest.mark.parametrize("form", ["mixup", "no_ego_upload"])
def test_it_is_evaluated_like_any_other(at: Any, form: str) -> None:
    model = task(lr=0.02)
    algorithm = evaluated(ego(model), model, at=at)
    played = rounds(3, sites_of("node"), only(algorithm, form))
    assert [score.test_count for score in played.state.scores] == [24] * 3


def test_clients_start_alike_and_are_scored_before_training_as_they_will_train() -> None:
    model, algorithm, sites = task(), ego(), sites_of("node")
    start = begun(algorithm).start
    expected = model.initial(np.random.default_rng(start.seed))
    np.testing.assert_array_equal(expected[model.reduction :], start.phi)
    for site in sites[:2]:
        seen = predicted(algorithm, model, site, start)
        np.testing.assert_array_equal(seen, model.predict(expected, site))
    twin = sites_of("node")[0]
    exchange(algorithm, "mixup", "train_and_mix")(sites[0], start)
    np.testing.assert_array_equal(sites[0].memory["trained"], model.fit(expected, twin, epochs=1))
    np.testing.assert_array_equal(
        predicted(algorithm, model, sites[0], None),
        model.predict(sites[0].memory["trained"], sites[0]),
    )


@pytest.mark.parametrize("form", ["mixup", "no_ego_upload"])
def test_o11_a_client_does_not_go_back_to_the_weights_that_all_know(form: str) -> None:
    """Step 0 makes it forget Theta: it is obeyed again only while nothing later was answered."""
    algorithm, (site, *_) = ego(), sites_of("node")
    answer = exchange(algorithm, form, "train_and_mix" if form == "mixup" else "train")
    start = begun(algorithm).start
    for step in (0, 0, 1, 1, 3):  # a lost round is asked for again
        answer(site, at(start, step))
    before = site.memory["trained"]
    for step in (0, 2):
        with pytest.raises(ValueError, match="goes back"):
            answer(site, at(start, step))
    assert site.memory["trained"] is before
    answer(site, at(start, 3))


def test_a_client_without_training_nodes_has_nothing_to_say_and_takes_the_aggregator_s() -> None:
    data = sites_of("node")[0].data
    nobody = torch.zeros(24, dtype=torch.bool)
    site, model = Site(replace(data, train=nobody, kept={}), seed=0), task()
    one, algorithm = client(model), ego(model)
    start = begun(algorithm).start
    exchange(algorithm, "no_ego_upload", "train")(site, start)
    slope, labels = one.slope_and_labels(site, step_of(start.phi, 0, 0))
    assert isinstance(slope, Slope) and isinstance(labels, Labels)
    assert not slope.slope.any() and not labels.counts.any()
    np.testing.assert_array_equal(one.start(site, told(model, [1, 0, 0]))[model.reduction :], 7)


@pytest.mark.parametrize("kind", ["node", "graph", "rating"])
def test_other_tasks_are_refused_with_the_reason(kind: str) -> None:
    with pytest.raises(ValueError, match=f"model.name to ego_sage.*this is a {kind} task"):
        fed_ego(task_of(kind))


@pytest.mark.parametrize(
    "option",
    [
        {"gamma": -0.1},
        {"gamma": float("nan")},
        {"fixed": 1.5},
        {"fixed": -0.1},
        {"group": 0},
        {"passes": 0},
        {"share": 0},
    ],
    ids=str,
)
def test_options_without_a_meaning_are_refused(option: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(option))):
        ego(**option)
    with pytest.raises(ValueError, match="that is `local`"):
        ego(fixed=0.0, average=False)


def test_sizes_stand_in_the_plan() -> None:
    model = task()
    dims = ego(model).dims
    assert dims["theta"] + dims["phi"] == model.size
    assert (dims["positions"], dims["embedding"], dims["classes"], dims["group"]) == (7, 6, 3, 4)
    assert len(sites_of("node")) == CLIENTS
