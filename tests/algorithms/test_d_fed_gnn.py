"""D-FedGNN: every client mixes its own weights with its neighbours', by Metropolis' weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from algorithms.d_fed_gnn import Tick, d_fed_gnn
from algorithms.fed_avg import Start, fed_avg
from algorithms.tasks.evaluation import evaluated
from protocols.disclosures.names import Disclosure
from protocols.plan.steps import Step
from protocols.policy.policy import PrivacyPolicy
from tests.protocols.toys import changed_policy
from tests.toys.kinds import sites_of, task_of
from tests.toys.quadratic import Quadratic, bowls, drive
from tests.toys.stage import plan_of, play

STEP = 8.0 / (2**20 - 2)


def start_of(algorithm: Any) -> np.ndarray:
    tick = algorithm.init(np.random.default_rng(0))
    assert isinstance(tick, Tick)
    return np.asarray(tick.seed)


@pytest.mark.parametrize("policy", ["masks", "unsafe_plaintext"])
def test_on_the_complete_graph_it_is_fed_avg_up_to_a_grid_step(policy: str) -> None:
    """Clients have equally many records, so FedAvg weighs them alike."""
    for rounds in (1, 3):
        task, mine, theirs = Quadratic(lr=0.3), bowls(5), bowls(5)
        algorithm = d_fed_gnn(task, epochs=2)
        first = task.initial(np.random.default_rng(int(start_of(algorithm))))
        play(algorithm, mine, policy, rounds=rounds)
        wanted = drive(fed_avg(task, epochs=2), theirs, rounds, state=Start(weights=first))
        for site in mine:
            off = np.abs(site.memory["weights"] - wanted.weights)
            assert np.max(off) <= rounds * STEP + 1e-6
        assert np.max(np.abs(first - wanted.weights)) > 0.01


@pytest.mark.parametrize(("topology", "degree", "reach"), [("ring", 0, 1), ("regular", 4, 2)])
def test_a_client_has_the_mean_of_itself_and_its_neighbours(
    topology: Any, degree: int, reach: int
) -> None:
    count, task, sites = 7, Quadratic(lr=0.3), bowls(7)
    algorithm = d_fed_gnn(task, topology=topology, degree=degree)
    first = task.initial(np.random.default_rng(int(start_of(algorithm))))
    trained = [task.fit(first, site, epochs=1) for site in bowls(count)]
    play(algorithm, sites, changed_policy("masks", topology_floor="unsafe"))
    for place, site in enumerate(sites):
        around = [trained[(place + step) % count] for step in range(-reach, reach + 1)]
        assert np.max(np.abs(site.memory["weights"] - np.mean(around, axis=0))) <= STEP + 1e-6


def test_where_kept_models_are_scored_clients_of_fed_avg_choose_alike_and_one_score_leaves() -> (
    None
):
    """Each has the trained model that did best on its own validation records."""
    task, sites, merits = task_of("node"), sites_of("node"), dict[int, list[float]]()
    score = task.score

    def watched(predictions: Any, site: Any) -> Any:
        found = score(predictions, site)
        merits.setdefault(id(site), []).append(task.scoring.merit(found))
        return found

    task.score = watched  # type: ignore[method-assign]
    whole = evaluated(fed_avg(task), task, at="kept")
    assert all(f.name.endswith(("_scored_once", "_unscored")) for f in whole.forms)
    plan = play(whole, sites, "masks", rounds=4).plan
    by_round = plan_of(evaluated(fed_avg(task), task), PrivacyPolicy.preset("masks"), 5, 4)
    found, control = (
        {i.id: i.times for i in one.items if i.step is Step.UP and "Score" in str(i.messages)}
        for one in (plan, by_round)
    )
    assert found == {"score.up.SUM": 1} and control["train.up.SUM"] == 4
    for site in sites:
        assert len(merits[id(site)]) == 4 and site.memory["merit"] == max(merits[id(site)])


def test_it_is_never_scored_round_by_round_and_once_where_sums_may_leave() -> None:
    task = task_of("node")
    whole = evaluated(d_fed_gnn(task), task)
    assert [f.name for f in whole.forms] == [
        "neighbourhoods_scored_once",
        "neighbourhoods_unscored",
    ]
    masks = PrivacyPolicy.preset("masks")
    plan = plan_of(whole, masks, 5, 3, records=64)
    summed = [i for i in plan.items if (i.part, i.step) == (Disclosure.SUM, Step.UP)]
    assert [(i.id, i.per_round, i.times) for i in summed] == [("score.up.SUM", 0, 1)]
    rules = {d: chain for d, chain in masks.rules.items() if d is not Disclosure.SUM}
    quiet = PrivacyPolicy(name="quiet", rules=rules)
    without = plan_of(whole, quiet, 5, 3, records=64)
    assert without.form == "neighbourhoods_unscored"
    assert not without.all_of(Disclosure.SUM) and without.topology is not None


def test_every_client_keeps_what_did_best_on_its_own_validation_records() -> None:
    task, sites = task_of("node"), sites_of("node", clients=5)
    whole = evaluated(d_fed_gnn(task), task)
    play(whole, sites, "masks", rounds=3)
    for site in sites:
        assert site.memory["kept"][0] == 0 and "scored" not in site.memory


def test_an_edge_that_is_no_pair_is_refused() -> None:
    with pytest.raises(ValueError, match="pair"):
        d_fed_gnn(Quadratic(), topology="edges", edges=((0, 1, 2),))
    with pytest.raises(ValueError, match="degree"):
        d_fed_gnn(Quadratic(), topology="regular")
