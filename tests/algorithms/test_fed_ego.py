"""FedEgo: clients move towards layers that the aggregator trains on mixtures or on sums."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch

from algorithms._ego import (
    Labels,
    Mashed,
    Personal,
    Reduction,
    Slope,
    Start,
    Step,
    distance,
    mixing,
)
from algorithms.evaluation import evaluated, released
from algorithms.fed_ego import Server, fed_ego
from algorithms.site import Site
from algorithms.tasks.ego import EgoTask
from protocols.errors import NotAdmitted, Refused
from protocols.messages import unmixed_of
from protocols.mix_guards import Mix
from protocols.policy import PrivacyPolicy
from tests.laws.search import found, spellings
from tests.toys.kinds import CLIENTS, sites_of, task_of
from tests.toys.stage import Played, plan_of, play

PASSES = 2


def task(**options: Any) -> EgoTask:
    chosen = {"hidden": 6, "dropout": 0.0, "lr": 0.05, "optimiser": "sgd", "weight_decay": 0.0}
    return EgoTask(task_of("node").spec, **{**chosen, "fan_out": 2, **options})


def ego(model: EgoTask | None = None, **options: Any) -> Any:
    return fed_ego(model or task(), **{"group": 4, "passes": PASSES, **options})


def only(algorithm: Any, name: str) -> Any:
    """Return an algorithm with one of its forms."""
    return replace(algorithm, forms=tuple(f for f in algorithm.forms if f.name == name))


def rounds(number: int, sites: list[Site], algorithm: Any, policy: Any = "unsafe_plaintext") -> Any:
    policy = PrivacyPolicy.preset(policy) if isinstance(policy, str) else policy
    plan = plan_of(algorithm, policy, len(sites), number, records=64)
    return play(algorithm, sites, policy, rounds=number, plan=plan)


def small(preset: str = "masks") -> PrivacyPolicy:
    """Return a preset whose floor fits a dozen records."""
    document = PrivacyPolicy.preset(preset).document()
    document["rules"]["MIXED"] = [
        Mix(floor=4, apart=2, bucket=1).model_dump() if g["guard"] == "mix" else g
        for g in document["rules"]["MIXED"]
    ]
    return PrivacyPolicy.model_validate(document)


def exchange(algorithm: Any, form: str, name: str) -> Any:
    (chosen,) = (f for f in algorithm.forms if f.name == form)
    return next(e.answer for e in chosen.exchanges if e.name == name)


def begun(algorithm: Any) -> Server:
    state = algorithm.init(np.random.default_rng(0))
    assert isinstance(state, Server)
    return state


def client(model: EgoTask, **options: Any) -> Personal:
    facts = {"gamma": 0.5, "fixed": None, "average": True, "group": 4, "passes": PASSES, "share": 4}
    return Personal(model, 1, **{**facts, **options})


def told(model: EgoTask, shares: Any, step: int = 1) -> Start:
    """Return what a later round begins with: layers that are all 7."""
    phi = np.full(model.size - model.reduction, 7, np.float32)
    return Start(step=step, seed=3, phi=phi, shares=np.asarray(shares))


def at(start: Start, step: int) -> Start:
    """Return what is given at another step, all else alike."""
    return Start(step=step, seed=start.seed, phi=start.phi, shares=start.shares)


def step_of(phi: Any, step: int, number: int) -> Step:
    return Step(step=step, number=number, phi=phi, scales=np.ones(len(task().parts)))


def trained(sites: list[Site]) -> Any:
    return np.stack([site.memory["trained"] for site in sites]).astype(np.float64)


# --- how far a client moves -----------------------------------------------------------------------


def apart(one: list[float], other: list[float]) -> float:
    return distance(np.array(one), np.array(other))


def test_identical_label_distributions_have_distance_0_and_disjoint_ones_2() -> None:
    assert apart([0.2, 0.5, 0.3], [0.2, 0.5, 0.3]) == 0.0
    assert apart([1.0, 0.0, 0.0], [0.0, 0.4, 0.6]) == pytest.approx(2.0)
    assert apart([0.5, 0.5], [0.25, 0.75]) == pytest.approx(0.5)


def test_gamma_to_infinity_gives_lambda_0() -> None:
    at = [mixing(1.3, gamma) for gamma in (0.125, 0.5, 1.0, 10.0, 100.0, 1e4)]
    assert at == sorted(at, reverse=True) and at[-1] < 1e-300
    assert mixing(1.3, float("inf")) == 0.0
    assert mixing(1.0, 0.5) == pytest.approx(np.sqrt(0.5))
    assert mixing(0.0, 0.5) == 0.0 and mixing(2.0, 7.0) == 1.0
    assert mixing(2.0 + 1e-12, 0.5) == 1.0  # rounding may carry a distance beyond 2


def test_a_client_mixes_both_layers_by_the_distance_of_its_labels() -> None:
    model, site = task(), sites_of("node")[0]
    own = np.bincount(model.egos(site).label, minlength=3) / 12
    everybody = np.array([0.1, 0.2, 0.7])
    mine = np.arange(model.size, dtype=np.float32)
    site.memory.update(trained=mine, theta=np.full(model.reduction, 5, np.float32))
    share = (np.abs(own - everybody).sum() / 2) ** 0.5
    assert 0.05 < share < 0.95
    start = client(model).start(site, told(model, everybody))
    np.testing.assert_array_equal(start[: model.reduction], 5)
    expected = share * 7 + (1 - share) * mine[model.reduction :].astype(np.float64)
    np.testing.assert_allclose(start[model.reduction :], expected, rtol=1e-6)


def test_with_an_endless_gamma_or_equal_labels_a_client_keeps_its_own_layers() -> None:
    model, site = task(), sites_of("node")[0]
    own = np.bincount(model.egos(site).label, minlength=3) / 12
    mine = np.arange(model.size, dtype=np.float32)
    site.memory.update(trained=mine)
    for gamma, shares in ((float("inf"), [0.1, 0.2, 0.7]), (0.5, own)):
        start = client(model, gamma=gamma).start(site, told(model, shares))
        np.testing.assert_array_equal(start[model.reduction :], mine[model.reduction :])
    other = client(model).start(site, told(model, [0.1, 0.2, 0.7]))
    assert not np.array_equal(other[model.reduction :], mine[model.reduction :])


@pytest.mark.parametrize("fixed", [0.0, 0.5, 1.0])
def test_a_fixed_share_is_every_client_s(fixed: float) -> None:
    model, site = task(), sites_of("node")[0]
    site.memory.update(trained=np.ones(model.size, np.float32))
    start = client(model, fixed=fixed).start(site, told(model, [1, 0, 0]))
    np.testing.assert_allclose(start[model.reduction :], 7 * fixed + (1 - fixed))


def test_labels_of_validation_and_test_nodes_are_not_counted() -> None:
    model, site = task(), sites_of("node")[0]
    counts = client(model).counts(site)
    data = site.data
    np.testing.assert_array_equal(counts, np.bincount(data.y[data.train].numpy(), minlength=3))
    assert counts.sum() == 12


# --- the forms ------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["mixup", "no_ego_upload"])
def test_every_client_receives_the_mean_of_all_reduction_layers(form: str) -> None:
    sites, model = sites_of("node"), task()
    played = rounds(1, sites, only(ego(model), form))
    means = trained(sites).mean(axis=0)[: model.reduction]
    for site in sites:
        np.testing.assert_allclose(site.memory["theta"], means, atol=1e-6)
    assert np.ptp(trained(sites), axis=0).max() > 1e-3
    assert played.state.start.step == 1


def pooled(played: Played, model: EgoTask, sites: list[Site]) -> Any:
    labels = np.concatenate([model.egos(site).label for site in sites])
    return np.bincount(labels, minlength=3) / len(labels)


@pytest.mark.parametrize("form", ["mixup", "no_ego_upload"])
def test_shares_of_the_classes_are_those_of_all_training_nodes(form: str) -> None:
    """Groups are of equal size here, so mixed labels have the same mean as single ones."""
    sites, model = sites_of("node"), task()
    played = rounds(2, sites, only(ego(model), form))
    np.testing.assert_allclose(played.state.start.shares, pooled(played, model, sites), atol=1e-6)


@dataclass
class Exact:
    """A reply whose sums are exact."""

    said: list[tuple[Any, ...]]

    @property
    def answers(self) -> int:
        return len(self.said)

    def total(self, kind: Any) -> Any:
        messages = [m for one in self.said for m in one if type(m) is kind]
        return kind(**{f.name: sum(getattr(m, f.name) for m in messages) for f in kind.fields})


def by_sums(model: EgoTask, sites: list[Site], state: Server, **options: Any) -> Server:
    """Play a round of no_ego_upload without Theta's mean, with exact sums."""
    algorithm = ego(model, average=False, **options)
    train = exchange(algorithm, "no_ego_upload", "train")
    slope = exchange(algorithm, "no_ego_upload", "slope")
    (form,) = only(algorithm, "no_ego_upload").forms
    steps: Any = form.round(state, None)
    given = next(steps).given
    for site in sites:
        train(site, given)
    reply: Any = Exact([() for _ in sites])
    while True:
        try:
            given = steps.send(reply).given
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]
        reply = Exact([slope(site, given) for site in sites])


@pytest.mark.parametrize("optimiser", ["sgd", "adam"])
def test_sums_of_gradients_equal_training_at_the_server_on_fixed_batches(optimiser: Any) -> None:
    """The issue's 1e-5: each batch holds every client's share of mixtures."""
    model, sites = task(optimiser=optimiser, keep_moments=True), sites_of("node")
    state = begun(ego(model))
    phi, moments = np.asarray(state.start.phi), state.moments
    for _ in range(2):
        state = by_sums(model, sites, state)
        for number in range(PASSES):
            step = (state.start.step - 1) * PASSES + number
            parts = [client(model).mixtures(site, step) for site in sites]
            features, label = (np.concatenate(of) for of in zip(*parts, strict=True))
            phi, moments = model.stepped(phi, model.slope(phi, features, label, 0), moments)
    np.testing.assert_allclose(state.start.phi, phi, atol=1e-5)
    assert np.abs(phi - begun(ego(model)).start.phi).max() > 1e-2


def test_protected_sums_equal_training_at_the_server_on_fixed_batches() -> None:
    """As above with everything in between: integers on a grid, masks, sessions."""
    model, sites = task(), sites_of("node")
    played = rounds(1, sites, ego(model), "strict")
    assert played.plan.form == "no_ego_upload"
    phi = begun(ego(model)).start.phi
    for number in range(PASSES):
        parts = [client(model).mixtures(site, number) for site in sites]
        features, label = (np.concatenate(of) for of in zip(*parts, strict=True))
        phi, _ = model.stepped(phi, model.slope(phi, features, label, 0), {})
    np.testing.assert_allclose(played.state.start.phi, phi, atol=1e-5)


def test_sums_are_scaled_so_that_a_grid_resolves_every_matrix() -> None:
    model, sites = task(), sites_of("node")
    state = by_sums(model, sites, begun(ego(model)))
    assert (np.log2(state.scales) % 1 == 0).all() and len(state.scales) == len(model.parts) == 7
    site, one = sites[0], client(model)
    given = Step(step=1, number=0, phi=state.start.phi, scales=state.scales)
    said: Any = one.slope(site, given)[0]
    plain: Any = one.slope(site, replace_scales(given, np.ones(7)))[0]
    ends = np.cumsum(model.parts)
    for part, scale in zip(np.split(np.arange(ends[-1]), ends[:-1]), state.scales, strict=True):
        np.testing.assert_array_equal(said.slope[part], scale * plain.slope[part])
        assert 1 / 200 < np.abs(said.slope[part]).max() < 0.5  # within the presets' bound


def replace_scales(step: Step, scales: Any) -> Step:
    return Step(step=step.step, number=step.number, phi=step.phi, scales=scales)


def test_every_client_has_an_equal_share_of_each_step() -> None:
    model, (site, *_) = task(), sites_of("node")
    client(model).train(site, begun(ego(model)).start)
    for share in (1, 2, 5):
        features, label = client(model, share=share).mixtures(site, 3)
        assert features.shape == (share, 7, 6) and label.shape == (share, 3)
        np.testing.assert_allclose(label.sum(axis=1), 1, atol=1e-6)
    turns = [client(model, share=1).mixtures(site, step)[1][0].tobytes() for step in range(6)]
    assert len(client(model).groups(site)) == 3 and turns[:3] == turns[3:]


def test_groups_are_drawn_once_and_none_is_short() -> None:
    model, (site, *_) = task(), sites_of("node")
    one = client(model, group=5)
    groups = one.groups(site)
    assert sorted(np.concatenate(groups)) == list(range(12)) and min(map(len, groups)) >= 5
    again = Site(sites_of("node")[0].data, seed=9)
    again.memory = {"groups_seed": site.memory["groups_seed"], "ego_seed": site.memory["ego_seed"]}
    for before, after in zip(groups, one.groups(again), strict=True):
        np.testing.assert_array_equal(before, after)


def test_a_server_that_trains_on_mixtures_lowers_their_loss() -> None:
    model, sites = task(), sites_of("node")
    first = begun(ego(model)).start.phi
    played = rounds(4, sites, only(ego(model, passes=20), "mixup"))
    parts = [client(model, share=3).mixtures(site, 0) for site in sites]
    features, label = (np.concatenate(of) for of in zip(*parts, strict=True))

    def loss(phi: Any) -> float:
        net, _ = model._personal(np.asarray(phi, np.float32))
        logits = net.judge(torch.tensor(features), 2, torch.Generator(), False).detach()
        return float(torch.nn.functional.cross_entropy(logits, torch.tensor(label)))

    assert loss(played.state.start.phi) < loss(first) - 0.02


@pytest.mark.parametrize("keep", [True, False])
def test_the_aggregator_s_moments_stay_if_the_model_keeps_them(keep: bool) -> None:
    model = task(optimiser="adam", keep_moments=keep, lr=0.001)
    state = rounds(2, sites_of("node"), only(ego(model), "mixup")).state
    steps = float(state.moments["0.step"])
    assert steps == (2 if keep else 1) * PASSES


def test_the_policy_chooses_the_form() -> None:
    for preset, form in (("pilot", "mixup"), ("masks", "mixup"), ("strict", "no_ego_upload")):
        assert PrivacyPolicy.preset(preset).admit(ego()).name == form


# --- what leaves ----------------------------------------------------------------------------------


def relabelled(site: Site, role: str) -> Site:
    """Return a site with other labels on the nodes of a role."""
    data = site.data
    y = data.y.clone()
    y[getattr(data, role)] = (y[getattr(data, role)] + 1) % 3
    return Site(replace(data, y=y, kept={}), seed=0)


def uploads(model: EgoTask, site: Site) -> list[bytes]:
    """Return all that a client says in both forms, over two rounds, and what it could only mix."""
    algorithm, said = ego(model), []
    begin = begun(algorithm).start
    later = told(model, [0.2, 0.3, 0.5])
    for start in (begin, later):
        said += exchange(algorithm, "mixup", "train_and_mix")(site, start)
        said += exchange(algorithm, "no_ego_upload", "train")(site, start)
        for number in range(PASSES):
            step = step_of(begin.phi, start.step, number)
            said += exchange(algorithm, "no_ego_upload", "slope")(site, step)
    parts = []
    for message in said:
        if isinstance(message, Mashed):
            records: Any = unmixed_of(message)
            parts += [records.table, records.index, records.label]
        else:
            parts += [getattr(message, field.name) for field in message.fields]
    return [np.asarray(part).tobytes() for part in parts]


@pytest.mark.parametrize("role", ["val", "test"])
def test_labels_of_held_out_nodes_appear_in_no_upload(role: str) -> None:
    model = task(dropout=0.3)
    plain, other = (uploads(model, s) for s in (relabelled_not(), relabelled(first(), role)))
    assert plain == other


def test_labels_of_training_nodes_do_change_uploads() -> None:
    """Control: the comparison above can fail."""
    model = task(dropout=0.3)
    plain, other = (uploads(model, s) for s in (relabelled_not(), relabelled(first(), "train")))
    assert len(plain) == len(other) and plain != other


def first() -> Site:
    return sites_of("node")[0]


def relabelled_not() -> Site:
    return Site(first().data, seed=0)


def test_only_the_label_of_a_centre_is_said() -> None:
    model, site = task(), first()
    _, message = exchange(ego(model), "mixup", "train_and_mix")(site, begun(ego(model)).start)
    records: Any = unmixed_of(message)
    egos = model.egos(site)
    np.testing.assert_array_equal(records.label, egos.label)
    np.testing.assert_array_equal(records.index, egos.places)
    assert records.label.shape == (12,) and records.index.shape == (12, 7)


def test_class_counts_are_said_once_a_run_whatever_the_aggregator_asks() -> None:
    model, site = task(), first()
    algorithm = ego(model)
    begin = begun(algorithm).start
    exchange(algorithm, "no_ego_upload", "train")(site, begin)
    answer = exchange(algorithm, "no_ego_upload", "slope")
    seen = {}
    for again in (0, 1):
        for step in (0, 1, 2):
            for number in range(PASSES):
                _, labels = answer(site, step_of(begin.phi, step, number))
                assert isinstance(labels, Labels)
                seen[again, step, number] = labels.counts.sum()
    assert seen.pop((0, 0, 0)) == 12 and not any(seen.values())


@pytest.mark.parametrize("policy", [small(), "strict"])
def test_no_reduction_layer_and_no_embedding_crosses_the_wire_in_clear(policy: Any) -> None:
    """O11, at the wire; the sealed combination is closed to the aggregator in both forms."""
    hidden, bare = leaked(policy), leaked("unsafe_plaintext")
    assert hidden == 0
    assert bare > 0  # control: in clear they are found


def leaked(policy: Any) -> int:
    """Return how much of Theta_i, of their mean and of embeddings a wiretap finds in a round."""
    model, sites = task(), sites_of("node")
    played = rounds(1, sites, ego(model), policy)
    wire = b"".join(data for _, data in played.tap.sent)
    secrets = [site.memory[name] for site in sites for name in ("trained", "theta")]
    secrets = [secret[: model.reduction] for secret in secrets]
    secrets.append(trained(sites).sum(axis=0)[: model.reduction].astype(np.float32))
    secrets += [model.reduce(site.memory["trained"], site) for site in sites]
    return found([spelt for secret in secrets for spelt in spellings(secret)], wire)


@pytest.mark.parametrize("form", ["mixup", "no_ego_upload"])
def test_the_aggregator_cannot_read_reduction_layers(form: str) -> None:
    algorithm = only(ego(), form)
    tried: list[str] = []
    inner = algorithm.forms[0].round

    def curious(state: Any, cohort: Any) -> Any:
        steps = inner(state, cohort)
        ask = next(steps)
        while True:
            reply = yield ask
            if Reduction in ask.wanted:
                for verb in ("total", "each", "similarity", "handed"):
                    with pytest.raises(TypeError, match="not allowed"):
                        getattr(reply, verb)(Reduction)
                    tried.append(verb)
            try:
                ask = steps.send(reply)
            except StopIteration as stop:
                return stop.value

    curious_one = replace(algorithm, forms=(replace(algorithm.forms[0], round=curious),))
    rounds(1, sites_of("node"), curious_one)
    assert len(tried) == 4


# --- variants -------------------------------------------------------------------------------------


def kinds(algorithm: Any) -> list[set[str]]:
    return [{k.__name__ for e in form.exchanges for k in e.back} for form in algorithm.forms]


def test_a_variant_says_no_more_than_it_needs() -> None:
    assert kinds(ego()) == [{"Reduction", "Mashed"}, {"Reduction", "Slope", "Labels"}]
    assert kinds(ego(fixed=1.0)) == [{"Reduction", "Mashed"}, {"Reduction", "Slope"}]
    assert kinds(ego(fixed=0.0)) == [{"Reduction"}]
    assert kinds(ego(average=False)) == [{"Mashed"}, {"Slope", "Labels"}]
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
        seen = algorithm.predict(site, start)
        np.testing.assert_array_equal(seen, model.predict(expected, site))
    twin = sites_of("node")[0]
    exchange(algorithm, "mixup", "train_and_mix")(sites[0], start)
    np.testing.assert_array_equal(sites[0].memory["trained"], model.fit(expected, twin, epochs=1))
    np.testing.assert_array_equal(
        algorithm.predict(sites[0], None), model.predict(sites[0].memory["trained"], sites[0])
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
    slope, labels = one.slope(site, step_of(start.phi, 0, 0))
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
