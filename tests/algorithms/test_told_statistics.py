"""Labels, scores, ratings and items that clients tell under their own noise, in whole plays."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from algorithms._shared.ego import ToldLabels
from algorithms._shared.items import Opinion, User, biases, opinions
from algorithms.fed_avg import fed_avg
from algorithms.fed_mf import fed_mf
from algorithms.tasks import ClientModel, predictions
from algorithms.tasks.evaluation import (
    ToldScore,
    ToldScores,
    evaluated,
    keep_best,
    kept_model,
    total,
)
from protocols.errors import NotAdmitted
from protocols.policy.policy import PRESETS, PrivacyPolicy
from protocols.rounds import Cohort, Reply, RoundLost
from tests.algorithms import fed_ego_tools as egos
from tests.algorithms.test_fed_per_gnn import ITEMS, site_of, sites, task_of
from tests.toys.kinds import sites_of
from tests.toys.kinds import task_of as kind_of
from tests.toys.stage import plan_of


def policy(*messages: str, sums: bool = False) -> PrivacyPolicy:
    """Return `ldp` with an epsilon that says nearly all, with sums under own noise or without."""
    document = PRESETS["ldp"].document()
    for guard in (*document["rules"]["NOISED"], *document["rules"]["SUM"]):
        if guard["guard"] == "own_noise":
            guard |= {"epsilon": 20.0, "accept_noise": True}
    document |= {"name": "told", "budget": {"epsilon": 99.0, "delta": 1e-5}}
    if not sums:
        del document["rules"]["SUM"]
    if messages:
        document["messages"] = list(messages)
    return PrivacyPolicy.model_validate(document)


class Asked:
    """Plays a round by hand: what an Ask brings back, or that too few clients are left for it."""

    def __init__(self, form: Any, among: list[Any], lost: str = "") -> None:
        self.form, self.among, self.lost, self.names = form, among, lost, list[str]()

    def play(self, state: Any) -> Any:
        """Play one round; NOISED answers are read as they were given."""
        steps = self.form.round(state, Cohort([str(n) for n in range(len(self.among))]))
        try:
            ask = next(steps)
            while True:
                exchange = self.form.find(ask)
                self.names.append(exchange.name)
                if exchange.name == self.lost:
                    ask = steps.throw(RoundLost("too few"))
                    continue
                said = [exchange.answer(site, *ask.handed) for site in self.among]
                views = {k: _View(tuple(said)) for k in ask.wanted}
                ask = steps.send(Reply(views, len(self.among)))
        except StopIteration as stop:
            return stop.value


class _View:
    verb = "each"

    def __init__(self, said: tuple[Any, ...]) -> None:
        self.said = said

    def read(self, verb: str, **options: Any) -> Any:
        return self.said


def form_of(algorithm: Any, name: str) -> Any:
    return next(form for form in algorithm.forms if form.name == name)


# --- recommenders ---------------------------------------------------------------------------------


def mf() -> Any:
    return fed_mf(task_of("user_dot"))


def test_a_policy_without_sums_takes_what_few_clients_can_say() -> None:
    plan = plan_of(mf(), policy(), 6, 3)
    assert plan.form == "told_mean"
    (told,) = (item for item in plan.items if item.noise is not None)
    assert (told.id, told.times) == ("tell.up.NOISED", 1)
    assert plan_of(mf(), policy("Start", "Opinion"), 6, 3).form == "told_items"
    assert plan_of(mf(), policy("Start", "NoisedGradient"), 6, 3).form == "noised_items"


@pytest.mark.parametrize("lost", ["", "tell", "learn"])
def test_the_mean_of_users_means_is_the_model_and_is_told_once(lost: str) -> None:
    all_sites, algorithm = sites(), mf()
    asked = Asked(form_of(algorithm, "told_mean"), all_sites, lost)
    state = asked.play(algorithm.init(np.random.default_rng(0)))
    asked.lost = ""
    state = asked.play(state)
    assert asked.names.count("tell") == 1
    rated = [s.data.rating.numpy()[s.data.train.numpy()] for s in all_sites]
    expected = np.mean([(r.mean() - 1) / 4 for r in rated]) if lost != "tell" else 0.5
    width = dict(task_of("user_dot").layout())["items.table"][1]
    assert 0.5 + 2 * state.start.weights[ITEMS * (width + 1)] == pytest.approx(expected, abs=1e-6)
    assert lost == "tell" or not state.start.weights[: ITEMS * (width + 1)].any()
    assert all("head" in site.memory for site in all_sites)


def test_each_item_is_an_opinion_of_one_kind() -> None:
    site = site_of(1, items=[0, 3, 5, 7, 8, 2])
    user = User(task_of("user_dot"), 1, 0.1, 0.0)
    found = opinions(user, site)
    rating, item = site.data.rating.numpy()[:4], site.data.items[site.data.item.numpy()[:4]]
    above = rating >= rating.mean()
    assert set(np.flatnonzero(found)) == {*item[above], *(item[~above] + ITEMS)}


def test_biases_follow_opinions_and_vanish_in_noise() -> None:
    said = np.zeros((400, 6))
    said[:200, 0] = said[200:, 4] = 1.0  # item 0 is liked, item 1 disliked, item 2 unknown
    clear = biases(said)
    assert clear[0] > 0.15 and clear[1] < -0.15 and clear[2] == 0.0
    noise = np.random.default_rng(0).normal(scale=50.0, size=said.shape)
    assert np.abs(biases(said + noise)).max() < 0.1 * 0.2 + 0.15
    assert np.abs(biases(said[:2] * 0.0)).max() == 0.0


# --- labels ---------------------------------------------------------------------------------------


def test_shares_of_labels_are_told_once_each_client_alike() -> None:
    model, among = egos.task(), sites_of("node")
    algorithm = egos.ego(model, average=False)
    plan = plan_of(algorithm, policy("Start", "Step", "Slope", "ToldLabels", sums=True), 4, 2)
    assert plan.form == "told_labels" and plan.item("labels.up.NOISED").times == 1
    own = egos.client(model, average=False)
    said = [own.tell_labels(site, egos.begun(algorithm).start) for site in among]
    assert all(isinstance(one, ToldLabels) for one in said)
    np.testing.assert_array_equal(said[0].labels, own.counts(among[0]))


# --- scores ---------------------------------------------------------------------------------------


def test_scores_are_told_in_the_unit_interval_and_their_mean_is_read() -> None:
    task, among = kind_of("node"), sites_of("node")
    own = ToldScores(task.scoring)
    weights = task.initial(np.random.default_rng(0))
    counts = [task.score(task.predict(weights, site), site) for site in among]
    said = [own.of_client(one) for one in counts]
    assert all(0.0 <= one.val <= 1.0 and 0.0 <= one.test <= 1.0 for one in said)
    found = own.read(total([own.added(said[:2]), own.added(said[2:])]))
    assert found["val_told"] == pytest.approx(np.mean([task.scoring.merit(one) for one in counts]))
    beyond = own.added([ToldScore(val=7.0, test=-3.0)])
    assert own.read(beyond) == {"test_told": 0.0, "val_told": 1.0}
    assert own.plausible(beyond, 1) and not own.plausible(beyond, 0)


def test_rating_scores_are_one_less_the_error_in_units_of_the_scale() -> None:
    task = task_of("user_dot")
    (site,) = sites()[:1]
    score = task.score(np.full((6, 1), 3.0, dtype=np.float32), site)
    rmse = task.scoring.read(score)["val_rmse"]
    assert task.scoring.shares(score)[0] == pytest.approx(1.0 - rmse / 4.0)


def test_scores_are_told_only_where_it_is_asked_for_and_are_charged() -> None:
    task = kind_of("node")
    only = replace(fed_avg(task), forms=(form_of(fed_avg(task), "mean_of_changes"),))
    own = policy("Start", "Change", "Keep", "Last", "ToldScore", sums=True)
    local = plan_of(evaluated(only, task), own, 4, 3)
    assert local.form == "mean_of_changes_unscored"
    assert not any(item.noise and item.disclosure == "NOISED" for item in local.items)
    told = plan_of(evaluated(only, task, told=True), own, 4, 3)
    assert told.form == "mean_of_changes_told_scores"
    scores = [item for item in told.items if item.noise and item.disclosure == "NOISED"]
    assert sum(item.times for item in scores) == 4  # the closing one as well
    assert "chosen by clients' scores, which are charged" in told.budget
    with pytest.raises(NotAdmitted):  # a vector and scores in one Ask would share one message
        noised = replace(only, forms=(form_of(fed_avg(task), "mean_of_noised_changes"),))
        made = evaluated(noised, task, told=True)
        told_only = replace(made, forms=tuple(f for f in made.forms if "told" in f.name))
        plan_of(told_only, policy(), 4, 3)


def test_a_client_keeps_the_model_that_did_best_on_its_own_validation_records() -> None:
    task, site = kind_of("node"), sites_of("node")[0]
    drawn = np.random.default_rng(0).normal(size=(8, task.size)).astype(np.float32)
    merits = []
    for weights in drawn:
        model = ClientModel((weights,))
        merits.append(task.scoring.merit(task.score(predictions(task, model, site), site)))
        keep_best(task, model, site)
    keep_best(task, ClientModel((drawn[0][:-1],)), site)  # cannot be scored: it is not refused
    kept = kept_model(site)
    assert kept is not None and len(set(merits)) > 1
    best = max(n for n, merit in enumerate(merits) if merit == max(merits))
    np.testing.assert_array_equal(kept[0].shared, drawn[best])


def test_opinions_are_one_message_of_a_number_and_a_category() -> None:
    assert [field.told for field in Opinion.fields] == ["bounded", "category"]
