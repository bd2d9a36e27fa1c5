"""FED-PUB: portraits are compared, models mixed, masks stay at home."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from algorithms.fed_pub import Go, Model, Portrait, fed_pub, proxy, shares
from algorithms.tasks import Site
from algorithms.tasks.evaluation import evaluated, total
from algorithms.tasks.training import matrices
from tests.laws.search import found, spellings
from tests.predicting import predicted
from tests.toys.kinds import CLIENTS, sites_of, task_of
from tests.toys.stage import Played, play


def task(**options: Any) -> Any:
    return task_of("node", **{"model": "gcn_linear", "hidden": 16, **options})


def first(algorithm: Any) -> Go:
    go = algorithm.init(np.random.default_rng(0))
    assert isinstance(go, Go)
    return go


def answer(algorithm: Any, site: Site, given: Any) -> Any:
    (form,) = algorithm.forms
    (exchange,) = (e for e in form.exchanges if e.given == (type(given),))
    return exchange.answer(site, given)


def memories(sites: list[Site], name: str) -> Any:
    return np.array([site.memory[name] for site in sites])


def lively() -> Any:
    """Return a task whose clients have come apart after two rounds."""
    return task(lr=0.1, optimiser="adamw", keep_moments=True)


def rounds(number: int, sites: list[Site], model: Any = None, **options: Any) -> Played:
    return play(fed_pub(model or task(), **options), sites, rounds=number)


def cosines(algorithm: Any, sites: list[Site], step: int) -> Any:
    """Return S of models that clients trained, from their memories and the public seed."""
    go, learner = Go(step=step, seed=first(algorithm).seed), task()
    graph = proxy(go.seed, learner.spec.features)
    seen = [learner.embed(s.memory["trained"] * s.memory["masks"], graph) for s in sites]
    rows = np.array([s.astype(np.float64).mean(axis=0) for s in seen])
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rows @ rows.T


# --- the public random graph --------------------------------------------------------------------


def test_the_random_graph_is_a_function_of_the_seed_alone() -> None:
    made = []
    for disturbed in (1, 2):
        proxy.cache_clear()
        np.random.seed(disturbed)  # noqa: NPY002
        torch.manual_seed(disturbed)
        made.append(b"".join(part.tobytes() for part in proxy(7, 5)))
    assert made[0] == made[1]
    other = b"".join(part.tobytes() for part in proxy(8, 5))
    assert other != made[0]
    np.testing.assert_array_equal(proxy(7, 5).edges, proxy(7, 11).edges)


def test_clients_with_other_data_draw_the_same_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Any] = []
    model = task()
    embed = model.embed

    def spied(weights: Any, graph: Any) -> Any:
        drawn.append(b"".join(part.tobytes() for part in graph))
        return embed(weights, graph)

    monkeypatch.setattr(model, "embed", spied)
    algorithm = fed_pub(model)
    for site in sites_of("node"):
        proxy.cache_clear()
        answer(algorithm, site, first(algorithm))
    assert len(drawn) == CLIENTS and len(set(drawn)) == 1


def test_it_is_five_random_blocks_without_an_edge_between_them() -> None:
    graph = proxy(3, 40)
    u, v = graph.edges
    assert graph.x.shape == (500, 40) and (u < v).all()
    np.testing.assert_array_equal(u // 100, v // 100)
    in_each = np.bincount(u // 100, minlength=5)
    expected = 0.1 * 100 * 99 / 2
    assert len(in_each) == 5 and (np.abs(in_each - expected) < 5 * np.sqrt(0.9 * expected)).all()
    assert abs(graph.x.mean()) < 5 / np.sqrt(20_000) and abs(graph.x.std() - 1) < 0.03
    assert not (graph.train | graph.val | graph.test).any() and (graph.y == -1).all()


# --- who weighs how much ------------------------------------------------------------------------

ALIKE = np.array([[1, 0.9, 0.2, 0.9], [0.9, 1, 0.5, 0.1], [0.2, 0.5, 1, -1], [0.9, 0.1, -1, 1]])


def test_shares_are_the_softmax_of_each_row() -> None:
    expected = np.exp(3 * ALIKE) / np.exp(3 * ALIKE).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(shares(ALIKE, 3.0), expected, rtol=1e-12)
    assert np.ptp(expected) > 0.5


def test_tau_0_weighs_all_alike_and_an_endless_tau_picks_only_itself() -> None:
    np.testing.assert_array_equal(shares(ALIKE, 0.0), np.full((4, 4), 0.25))
    np.testing.assert_array_equal(shares(ALIKE, 1e12), np.eye(4))


def test_top_keeps_the_receiver_and_its_nearest_and_ties_stay_whole() -> None:
    weights = shares(ALIKE, 3.0, top=1)
    assert [list(np.flatnonzero(row)) for row in weights] == [[0, 1, 3], [0, 1], [1, 2], [0, 3]]
    np.testing.assert_allclose(weights.sum(axis=1), 1.0)
    whole = shares(ALIKE, 3.0)
    np.testing.assert_allclose(weights[0, 1] / weights[0, 0], whole[0, 1] / whole[0, 0])
    np.testing.assert_array_equal(shares(np.ones((6, 6)), 3.0, top=2), np.full((6, 6), 1 / 6))
    for enough in (3, 10):
        np.testing.assert_array_equal(shares(ALIKE, 3.0, top=enough), whole)


@pytest.mark.parametrize("options", [{}, {"top": 1}, {"tau": 50.0}])
def test_everybody_receives_the_plain_mean_in_the_first_round(options: dict[str, Any]) -> None:
    sites = sites_of("node")
    rounds(1, sites, **options)
    trained = memories(sites, "trained")
    assert np.ptp(trained, axis=0).max() > 1e-3
    mean = np.tile(trained.astype(np.float64).mean(axis=0), (CLIENTS, 1))
    np.testing.assert_allclose(memories(sites, "received"), mean, atol=1e-7)


@pytest.mark.parametrize("options", [{"tau": 3.0}, {"tau": 20.0, "top": 2}, {"tau": 0.0}])
def test_later_everybody_receives_its_own_mixture(options: dict[str, Any]) -> None:
    sites = sites_of("node")
    played = rounds(2, sites, lively(), **options)
    assert played.state.step == 2
    alpha = shares(cosines(fed_pub(task()), sites, 1), **options)
    assert options["tau"] == 0 or np.ptp(alpha) > 0.05  # so that a mean would not pass for it
    expected = alpha @ memories(sites, "trained").astype(np.float64)
    np.testing.assert_allclose(memories(sites, "received"), expected, atol=1e-6)


def test_with_an_endless_tau_everybody_goes_on_alone() -> None:
    sites = sites_of("node")
    rounds(3, sites, tau=1e12)
    np.testing.assert_array_equal(memories(sites, "received"), memories(sites, "trained"))
    assert len({site.memory["trained"].tobytes() for site in sites}) == CLIENTS


def test_identical_clients_receive_the_mean_which_is_their_own_model() -> None:
    sites = sites_of("node", alike=True)
    rounds(3, sites, tau=7.0)
    trained = memories(sites, "trained")
    np.testing.assert_array_equal(trained, np.tile(trained[0], (CLIENTS, 1)))
    np.testing.assert_allclose(memories(sites, "received"), trained, atol=1e-7)


# --- what is said -------------------------------------------------------------------------------


def test_masks_and_moments_never_leave() -> None:
    sites = sites_of("node")
    played = rounds(3, sites, model=lively(), lambda1=0.001)
    wire = b"".join(data for _, data in played.tap.sent)
    own = matrices(lively()._build())
    for site in sites:
        masks, theta = site.memory["masks"], site.memory["trained"]
        assert np.abs(masks - 1).max() > 0.1 and len(site.memory["moments"]) > 6
        moments = (value[value != 0] for value in site.memory["moments"].values())
        for secret in (masks[own], (theta * masks)[own], *moments):
            assert found(spellings(secret), wire) == 0
        assert found(spellings(theta), wire) > 0  # control: what is said in clear is found


def test_nothing_is_said_but_the_weights_and_the_portrait() -> None:
    algorithm, (site, *_) = fed_pub(task()), sites_of("node")
    said = answer(algorithm, site, first(algorithm))
    assert [type(message) for message in said] == [Model, Portrait]
    model, portrait = said
    assert [f.name for f in (*Model.fields, *Portrait.fields)] == ["weights", "embedding"]
    assert algorithm.dims == {"d": task().size, "p": 16}
    assert model.weights.shape == (task().size,) and portrait.embedding.shape == (16,)
    np.testing.assert_array_equal(model.weights, site.memory["trained"])
    assert answer(algorithm, site, Model(weights=model.weights)) is None


# --- the client ---------------------------------------------------------------------------------


@pytest.mark.parametrize("optimiser", ["sgd", "adamw"])
def test_the_first_step_is_local_training_of_everybody_s_same_start(optimiser: str) -> None:
    model = task(optimiser=optimiser, dropout=0.5)
    algorithm, (site, *_), (twin, *_) = fed_pub(model), sites_of("node"), sites_of("node")
    go = first(algorithm)
    start = model.initial(np.random.default_rng(go.seed))
    np.testing.assert_array_equal(
        predicted(algorithm, model, site, go), model.predict(start, site)
    )  # before training, masks of 1
    answer(algorithm, site, go)
    expected = model.fit(start, twin, epochs=1)
    np.testing.assert_array_equal(site.memory["trained"], expected)


def test_a_client_predicts_with_its_masks_before_and_after_training() -> None:
    sites = sites_of("node")
    model = lively()
    played = rounds(2, sites, model=model)
    algorithm, site = fed_pub(model), sites[0]
    for given, name in ((played.state, "received"), (None, "trained")):
        seen = predicted(algorithm, model, site, given)
        masked = model.predict(site.memory[name] * site.memory["masks"], site)
        np.testing.assert_array_equal(seen, masked)
        assert not np.array_equal(seen, model.predict(site.memory[name], site))


def test_masks_below_lambda_1_count_as_zero_in_predictions_and_portraits() -> None:
    model, site = task(), sites_of("node")[0]
    algorithm = fed_pub(model, lambda1=0.3)
    masks = np.linspace(-1, 1, model.size, dtype=np.float32)
    site.memory.update(received=np.full(model.size, 0.5, np.float32), masks=masks)
    pruned = np.where(np.abs(masks) < np.float32(0.3), 0, masks)
    seen = predicted(algorithm, model, site, Go(step=1, seed=0))
    np.testing.assert_array_equal(seen, model.predict(np.float32(0.5) * pruned, site))
    _, portrait = answer(fed_pub(model, epochs=0, lambda1=0.3), site, Go(step=1, seed=0))
    expected = model.embed(np.float32(0.5) * pruned, proxy(0, 5)).mean(axis=0, dtype=np.float64)
    np.testing.assert_array_equal(portrait.embedding, expected)


def test_a_mask_of_exactly_lambda_1_counts() -> None:
    model, site = task(), sites_of("node")[0]
    weights = np.linspace(-1, 1, model.size, dtype=np.float32)
    for mask, kept in ((0.25, 0.25), (-0.25, -0.25), (np.nextafter(np.float32(0.25), 0), 0.0)):
        site.memory.update(received=weights, masks=np.full(model.size, mask, dtype=np.float32))
        seen = predicted(fed_pub(model, lambda1=0.25), model, site, Go(step=1, seed=0))
        np.testing.assert_array_equal(seen, model.predict(weights * np.float32(kept), site))


def test_every_form_says_how_many_others_it_weighs() -> None:
    model = task()
    for top in (None, 4):
        scored = evaluated(fed_pub(model, top=top), model).forms
        assert [form.top for form in scored] == [top, top]


def test_penalties_are_live_and_the_official_quirk_has_none() -> None:
    def left(**options: Any) -> Any:
        algorithm, site = fed_pub(task(), epochs=3, **options), sites_of("node")[0]
        answer(algorithm, site, first(algorithm))
        return site.memory["trained"].tobytes(), site.memory["masks"].tobytes()

    free = left(lambda1=0.0, lambda2=0.0)
    assert left(lambda1=0.01, lambda2=0.1, official_quirk=True) == free
    sparse, pulled = left(lambda1=0.01, lambda2=0.0), left(lambda1=0.0, lambda2=0.1)
    assert len({free, sparse, pulled}) == 3


def test_live_penalties_make_masks_smaller_and_keep_weights_nearer() -> None:
    def left(**options: Any) -> Any:
        algorithm, site = fed_pub(task(), epochs=20, **options), sites_of("node")[0]
        go = first(algorithm)
        answer(algorithm, site, go)
        start = task().initial(np.random.default_rng(go.seed))
        return np.abs(site.memory["masks"]).sum(), np.abs(site.memory["trained"] - start).sum()

    size, way = left(lambda1=0.0, lambda2=0.0)
    assert left(lambda1=0.1, lambda2=0.0)[0] < 0.95 * size
    assert left(lambda1=0.0, lambda2=5.0)[1] < 0.5 * way


def test_moments_stay_from_round_to_round_if_the_model_keeps_them() -> None:
    left = {}
    for keep in (True, False):
        sites = sites_of("node")
        rounds(2, sites, model=task(optimiser="adamw", keep_moments=keep), tau=1e12)
        left[keep] = sites[0].memory["trained"]
        assert ("moments" in sites[0].memory) is keep
    assert not np.array_equal(left[True], left[False])


def test_a_client_that_received_nothing_goes_on_from_what_it_received_last() -> None:
    algorithm, site = fed_pub(task()), sites_of("node")[0]
    go = first(algorithm)
    answer(algorithm, site, go)
    np.testing.assert_array_equal(  # its row never came: it begins where it began
        predicted(algorithm, task(), site, Go(step=1, seed=go.seed)),
        task().predict(task().initial(np.random.default_rng(go.seed)) * site.memory["masks"], site),
    )


@pytest.mark.parametrize("at", ["trained", "downloaded"])
def test_it_is_evaluated_like_any_other(at: Any) -> None:
    """The third score is of what all trained in round 3, or received at the end of round 2."""
    model = task(lr=0.3, optimiser="adamw", keep_moments=True)
    algorithm, sites = fed_pub(model, tau=0.0), sites_of("node")
    played = play(evaluated(algorithm, model, at=at), sites_of("node"), rounds=3)
    state = rounds(3 if at == "trained" else 2, sites, model, tau=0.0).state
    after, received = (
        vars(total([model.score(predicted(algorithm, model, site, given), site) for site in sites]))
        for given in (None, state)
    )
    assert after != received  # of the same moment: one would not pass for the other
    assert len(played.state.scores) == 3
    assert vars(played.state.scores[2]) == (after if at == "trained" else received)


# --- refusals -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["graph", "rating"])
def test_other_tasks_are_refused_with_the_reason(kind: str) -> None:
    with pytest.raises(ValueError, match=f"needs a node task, and this is a {kind} task"):
        fed_pub(task_of(kind))


@pytest.mark.parametrize(
    "option",
    [
        {"tau": -1.0},
        {"tau": float("inf")},
        {"tau": float("nan")},
        {"top": 0},
        {"lambda1": 1.0},
        {"lambda1": -0.1},
        {"lambda2": -0.1},
        {"lambda2": float("inf")},
    ],
    ids=str,
)
def test_options_without_a_meaning_are_refused(option: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(option))):
        fed_pub(task(), **option)
