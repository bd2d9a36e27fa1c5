"""GCFL and GCFL+: clusters that are cut where clients disagree."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, get_args

import numpy as np
import pytest

from algorithms._shared.clusters import (
    BothUpdates,
    Cluster,
    Compare,
    Criterion,
    CutGuard,
    CutRule,
    Start,
    State,
    Update,
    directed,
    distances,
    nearness,
    standardised,
)
from algorithms.fed_per import fed_per
from algorithms.gcfl import gcfl
from algorithms.gcfl_plus import gcfl_plus
from algorithms.tasks import Site
from protocols.clusters import CUTS, GUARDS
from protocols.disclosures.sum.view import TotalView
from protocols.errors import NotAdmitted
from protocols.forms import Algorithm
from protocols.policy.policy import PRESETS, PrivacyPolicy
from protocols.rounds import Cohort, Reply
from tests.toys.kinds import KINDS, sites_of, task_of
from tests.toys.quadratic import Bowl, Quadratic, drive
from tests.toys.stage import Played, play

FOURS = PrivacyPolicy.preset("unsafe_plaintext").model_copy(update={"minimum_cohort": 3})
"""In clear, of four clients at least: three others beside each."""
TOTALS = ("delta", "plain")
EAGER: dict[str, Any] = {"epsilon1": 10.0, "epsilon2": 1e-3, "first_split": 0}


def groups(each: int = 4, size: int = 7) -> list[Site]:
    """Two groups whose minima lie in orthogonal directions, whose clients alternate."""
    rng = np.random.default_rng(5)
    sites = []
    for client in range(2 * each):
        centre = np.zeros(size) + 0.02 * rng.normal(size=size)
        centre[client % 2] += 2.0
        sites.append(Site(Bowl(centre.astype(np.float32), np.ones(size, np.float32)), seed=client))
    return sites


class Still(Quadratic):
    """The bowls' task, starting at zero, where no client's direction is shared."""

    def initial(self, rng: np.random.Generator) -> Any:
        return np.zeros(self.size, dtype=np.float32)


def told(played: Played) -> list[tuple[tuple[str, ...], bytes]]:
    """Clusters with their models; only a test looks into a cohort."""
    state: State = played.state
    found = [(one.cohort._members, one.weights.tobytes()) for one in state.clusters]
    return sorted(found)


@pytest.mark.parametrize("kind", KINDS)
def test_without_epsilon2_it_is_fed_avg_on_the_shared_layers(kind: str) -> None:
    task = task_of(kind)
    wanted = drive(fed_per(task, epochs=2), sites_of(kind), 3, form=0)
    for algorithm in (gcfl, gcfl_plus):
        found = drive(algorithm(task, epochs=2, epsilon2=None, first_split=0), sites_of(kind), 3)
        (one,) = found.clusters
        assert one.weights.tobytes() == wanted.weights.tobytes()
        assert one.weights.shape == (task.base,)


@pytest.mark.parametrize("make", [gcfl, gcfl_plus])
def test_without_epsilon2_nobody_is_compared_whatever_a_client_says(make: Any) -> None:
    """One client that lies about its bit would else have all the others compared."""
    task = Still(size=7, lr=0.1)
    (plain,), (eager,) = make(task, epsilon2=None).forms, make(task, **EAGER).forms
    assert plain.splits is None and [e.name for e in plain.exchanges] == ["train"]
    assert eager.splits is not None and [e.name for e in eager.exchanges] == ["train", "compare"]
    cluster = Cluster(Cohort([f"client-{n}" for n in range(1, 9)], needed=8), np.zeros(7))
    for epsilon2, met in ((None, False), (0.28, True)):
        criterion = Criterion(10.0, epsilon2, 0)
        assert criterion.met(State(np.zeros(7), 1, step=1), cluster, np.zeros(7), above=1) is met


def test_two_planted_groups_are_found_in_clear_and_protected_alike() -> None:
    algorithm = gcfl(Still(size=7, lr=0.1), **EAGER)
    clear, masked = (
        play(algorithm, groups(), policy, rounds=2) for policy in ("unsafe_plaintext", "masks")
    )
    found = told(clear)
    assert [len(members) for members, _ in found] == [4, 4]
    assert {tuple(int(m.split("-")[-1]) % 2 for m in members) for members, _ in found} == {
        (0, 0, 0, 0),
        (1, 1, 1, 1),
    }
    assert told(masked) == found
    assert masked.state.since == 1
    first, second = (one.weights for one in clear.state.clusters)
    assert np.argmax(np.abs(first)) != np.argmax(np.abs(second))


@pytest.mark.parametrize("make", [gcfl, gcfl_plus])
def test_the_plain_mean_counts_clients_alike(make: Any) -> None:
    """One client with most of the records moves the weighted mean, and not the plain one."""
    names = [f"client-{n}" for n in range(1, 9)]
    total = {"delta": np.full(6, 800.0), "count": 1000, "above": 1}
    asked = {}
    for mean, kind, more in (("weighted", Update, {}), ("plain", BothUpdates, {"plain": 0.4})):
        options = {**EAGER, "epsilon1": 0.5, "length": 2} if make is gcfl_plus else EAGER
        algorithm = make(Still(size=7, lr=0.1), **{**options, "epsilon1": 0.5}, mean=mean)
        (form,) = algorithm.forms
        state = replace(algorithm.init(np.random.default_rng(0)), step=5)
        steps = form.round(state, Cohort(names, needed=8))
        assert next(steps).wanted == (kind,)
        said = kind(**total, **{name: np.full(6, value) for name, value in more.items()})
        try:
            asked[mean] = steps.send(Reply({kind: TotalView(said)}, 8)).given
        except StopIteration:
            asked[mean] = None
    assert asked["weighted"] is None and isinstance(asked["plain"], Compare)


def test_the_plain_mean_cuts_as_the_weighted_one_where_all_weigh_alike() -> None:
    played = [
        play(gcfl(Still(size=7, lr=0.1), **EAGER, **more), groups(), "unsafe_plaintext", rounds=2)
        for more in ({}, {"mean": "plain"})
    ]
    members = [[names for names, _ in told(one)] for one in played]
    assert len(members[0]) == 2 and members[0] == members[1]


def test_o10_both_means_tell_a_single_clients_change_and_leave_in_clear_alone() -> None:
    algorithm, sites = gcfl(Still(size=7, lr=0.1), **EAGER, mean="plain"), groups()
    sites[0].data = Bowl(sites[0].data.centre, np.ones(7, np.float32), sites[0].count + 1)
    start = Start(weights=np.zeros(6, np.float32), seed=1, step=0, since=0)
    said = [algorithm.forms[0].exchanges[0].answer(site, start) for site in sites]
    delta, plain = (np.sum([getattr(one, name) for one in said], axis=0) for name in TOTALS)
    assert np.abs(delta - sites[1].count * plain - said[0].plain).max() < 1e-6 < 0.1
    assert np.abs(said[0].plain).max() > 0.1
    for name, policy in PRESETS.items():
        if name == "unsafe_plaintext":
            assert policy.admit(algorithm).name == "cosines_of_changes"
            continue
        with pytest.raises(NotAdmitted) as refused:
            policy.admit(algorithm)
        if name in ("masks", "pilot"):  # which admit the weighted mean alone: the control
            assert "under two weights" in refused.value.why
            assert policy.admit(gcfl(Still(size=7, lr=0.1), **EAGER))


def course(algorithm: Algorithm[State], site: Site, rounds: int, since: int = 0) -> None:
    """Let one client take part in some rounds, without a server."""
    train = algorithm.forms[0].exchanges[0].answer
    start = algorithm.init(np.random.default_rng(0)).start
    for step in range(rounds):
        train(site, type(start)(weights=start.weights, seed=start.seed, step=step, since=since))


def compared(algorithm: Algorithm[State], site: Site, step: int) -> Any:
    (found,) = vars(algorithm.forms[0].exchanges[1].answer(site, Compare(step=step))).values()
    return found


def test_a_sequence_is_of_the_last_rounds_and_begins_anew() -> None:
    algorithm = gcfl_plus(Quadratic(lr=0.3), length=3, form="correlation")
    (site,) = groups(1, 3)[:1]
    course(algorithm, site, 5)
    norms = site.memory["norms"]
    assert len(norms) == 3
    assert np.all(np.diff(norms) < 0) or np.ptp(norms[:2]) >= 0
    np.testing.assert_allclose(compared(algorithm, site, 4), directed(standardised(norms)))
    # Asked of a round in which it took no part, it has nothing to say: cosine 0 with the others.
    assert compared(algorithm, site, 5).tolist() == [0.0, 0.0, 0.0, 1.0]
    start = algorithm.init(np.random.default_rng(0)).start
    train = algorithm.forms[0].exchanges[0].answer
    for step, since, left in ((4, 0, 3), (6, 0, 1), (7, 0, 2), (8, 8, 1)):
        train(site, type(start)(weights=start.weights, seed=start.seed, step=step, since=since))
        assert len(site.memory["norms"]) == left


@pytest.mark.parametrize("form", ["pivots", "correlation"])
def test_what_gcfl_plus_sends_does_not_tell_the_scale(form: str) -> None:
    sites = groups(1, 3)
    algorithm = gcfl_plus(Quadratic(lr=0.3), length=3, form=form)  # type: ignore[arg-type]
    seen = []
    for times in (1.0, 4.0):
        (site,) = sites[:1]
        course(algorithm, site, 3)
        site.memory["norms"] = times * np.array([0.3, 0.1, 0.2])
        seen.append(compared(algorithm, site, 2))
    np.testing.assert_allclose(*seen)


def test_cuts_are_those_that_the_message_layer_offers() -> None:
    assert (get_args(CutRule), get_args(CutGuard)) == (CUTS, GUARDS)


def test_the_criterion_waits_and_needs_a_bit() -> None:
    task = Still(size=7, lr=0.1)
    for options, clusters in (
        ({}, 2),
        ({"first_split": 3}, 1),
        ({"epsilon1": 1e-6}, 1),
        ({"epsilon2": 1e6}, 1),
    ):
        state = play(gcfl(task, **{**EAGER, **options}), groups(), rounds=1).state
        assert len(state.clusters) == clusters, options
    plus = gcfl_plus(task, **EAGER, length=2)
    assert len(play(plus, groups(), rounds=1).state.clusters) == 1
    assert len(play(plus, groups(), rounds=2).state.clusters) == 2


@pytest.mark.parametrize(
    ("make", "options"),
    [
        (gcfl, {"epsilon1": 0.0}),
        (gcfl, {"epsilon2": -1.0}),
        (gcfl, {"first_split": -1}),
        (gcfl_plus, {"length": 1}),
    ],
)
def test_options_out_of_range_are_refused(make: Any, options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="choose"):
        make(Quadratic(), **options)


def test_sequences_in_clear_are_the_published_distances_and_never_protected() -> None:
    rows = np.array([[1.0, 2.0, 3.0], [1.0, 2.0, 3.0], [3.0, 2.0, 9.0]])
    alike, between = nearness(rows), distances(list(rows))
    # Weights are 1 + likeness: in proportion to max(D) - D, as published.
    np.testing.assert_allclose(1 + alike, 2 * (between.max() - between) / between.max())
    algorithm = gcfl_plus(Still(size=7, lr=0.1), **EAGER, length=2, form="norms")
    state = play(algorithm, groups(), FOURS, rounds=2).state
    assert [one.cohort.size for one in state.clusters] == [4, 4]
    for preset in ("pilot", "masks", "strict"):
        with pytest.raises(NotAdmitted) as refused:
            PrivacyPolicy.preset(preset).admit(algorithm)
        assert "Norms is compared otherwise than by cosines" in str(vars(refused.value))


def test_a_cluster_too_small_to_be_cut_is_not_compared() -> None:
    """Six clients under a smallest cohort of four stay one cluster, and tell no cosines."""
    played = play(gcfl(Still(size=7, lr=0.1), **EAGER), groups(3), FOURS, rounds=2)
    assert [one.cohort.size for one in played.state.clusters] == [6]
    assert not played.tap.envelopes("compare")
    assert played.tap.envelopes("train")


@pytest.mark.parametrize("make", [gcfl, gcfl_plus])
def test_a_model_of_a_single_layer_is_refused(make: Any) -> None:
    with pytest.raises(ValueError, match="single layer"):
        make(task_of("node", model="sgc"))


def test_the_gradient_of_one_batch_can_be_the_element() -> None:
    task = Quadratic(lr=0.3)
    (site,) = groups(1, 3)[:1]
    course(gcfl_plus(task, length=2, element="gradient"), site, 1)
    slope = task.gradient(site.memory["trained"], site, next(task.batches(site)))
    assert site.memory["norms"].tolist() == [np.linalg.norm(slope[: task.base].astype(np.float64))]
