"""Record-level privacy of training: what it costs, how it is drawn, and who is refused."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from scipy import special

from crypto.samplers import entropy
from protocols.errors import LocalProtocolError, NotAdmitted, NotInPlan, PolicyError
from protocols.forms import Algorithm, Exchange, Form
from protocols.messages import SumMessage, Vector, count, real
from protocols.plan.plan import Plan, drift
from protocols.plan.planning import make_plan
from protocols.policy.budget import Budget, budget_key
from protocols.policy.policy import PrivacyPolicy
from protocols.privacy import accounting
from protocols.privacy.accounting import ORDERS
from protocols.privacy.noising import PrivateSteps, check_training, on_grid
from protocols.privacy.training import (
    LEVELS,
    MAX_MULTIPLIER,
    Training,
    TrainingPlan,
    plan_training,
    rdp_sampled_gaussian,
    training_divergence,
    training_epsilon,
)
from tests.protocols.toys import DATA, Pull, Start, Update, names_of, pull, train

CAP = Budget(epsilon=20.0, delta=1e-4)


def training(**changes: object) -> Training:
    facts = {"rate": 0.1, "batch": 16.0, "steps": 5, "epsilon": 8.0, "delta": 1e-4, "budget": CAP}
    return Training(**{**facts, **changes})  # type: ignore[arg-type]


def steps(rounds: int = 4, **changes: object) -> PrivateSteps:
    made = PrivateSteps(plan_training(training(**changes), rounds))
    made.open(1, 0)
    return made


# --- what it costs -------------------------------------------------------------------------------


@pytest.mark.parametrize(("rate", "noise"), [(0.01, 0.8), (0.1, 1.1), (0.5, 3.0), (1.0, 2.0)])
def test_o21_the_divergence_at_whole_orders_is_that_of_opacus(rate: float, noise: float) -> None:
    from opacus.accountants.analysis.rdp import compute_rdp

    whole = [2, 3, 5, 8, 16, 63, 256]
    ours = rdp_sampled_gaussian(whole, rate=rate, noise=noise)
    theirs = compute_rdp(q=rate, noise_multiplier=noise, steps=1, orders=whole)
    assert ours == pytest.approx(theirs, rel=1e-6)


def test_o21_between_whole_orders_the_chord_lies_above_opacus_and_close() -> None:
    from opacus.accountants.analysis.rdp import compute_rdp

    orders = [1.5, 2.5, 3.3, 6.5, 10.5]
    ours = rdp_sampled_gaussian(orders, rate=0.1, noise=1.1)
    theirs = np.asarray(compute_rdp(q=0.1, noise_multiplier=1.1, steps=1, orders=orders))
    assert (ours >= theirs * (1 - 1e-9)).all()
    assert (ours[1:] <= theirs[1:] * 1.2).all()


@pytest.mark.parametrize("shift", [1, 3, 8])
def test_o21_the_bound_holds_for_the_discrete_law_in_both_directions(shift: int) -> None:
    """Sum over the grid itself: where it is coarse, the discrete law is far from a normal one."""
    sigma, rate = 0.7 * shift, 0.2
    x = np.arange(-60 * shift, 60 * shift + 1, dtype=np.float64)
    base, moved = -(x**2) / (2 * sigma**2), -((x - shift) ** 2) / (2 * sigma**2)
    base, moved = base - special.logsumexp(base), moved - special.logsumexp(moved)
    mixture = np.logaddexp(math.log1p(-rate) + base, math.log(rate) + moved)
    for order in (1.5, 2.0, 3.0, 4.5, 8.0):
        bound = rdp_sampled_gaussian([order], rate=rate, noise=sigma / shift)[0]
        there = special.logsumexp(order * mixture + (1 - order) * base) / (order - 1)
        back = special.logsumexp(order * base + (1 - order) * mixture) / (order - 1)
        assert there <= bound * (1 + 1e-9) and back <= bound * (1 + 1e-9)
        if order == int(order):
            assert there == pytest.approx(bound, rel=1e-6)  # exact, not only a bound


def test_o21_known_value_of_the_literature() -> None:
    """Abadi et al., figure 2: q = 0.01, sigma = 4, T = 10,000, delta = 1e-5 gives about 1.26."""
    found = training_epsilon(rate=0.01, noise=4.0, releases=10_000, delta=1e-5)
    assert 1.0 < found < 1.27


def test_o21_calibrated_noise_is_just_enough_and_close_to_opacus() -> None:
    from opacus.accountants import PRVAccountant, RDPAccountant

    made = plan_training(training(), 30)
    noise, facts = float(made.noise), {"rate": 0.1, "releases": 150, "delta": 1e-4}
    assert made.releases == 150
    assert training_epsilon(noise=noise, **facts) <= 8.0
    assert training_epsilon(noise=noise * (1 - 1e-4), **facts) > 8.0
    rdp, prv = RDPAccountant(), PRVAccountant()
    rdp.history = prv.history = [(noise, 0.1, 150)]
    assert rdp.get_epsilon(delta=1e-4, alphas=list(ORDERS)) == pytest.approx(8.0, rel=0.01)
    assert 0.8 * 8.0 < prv.get_epsilon(delta=1e-4) < 8.0


def test_o21_a_whole_batch_earns_nothing_for_sampling() -> None:
    full = rdp_sampled_gaussian(ORDERS, rate=1.0, noise=3.0)
    assert full == pytest.approx(np.array(ORDERS) / 18.0, rel=1e-6)
    most = rdp_sampled_gaussian([2.0, 5.0, 64.0], rate=1.0 - 1e-12, noise=3.0)
    assert most == pytest.approx(np.array([2.0, 5.0, 64.0]) / 18.0, rel=1e-6)


def test_o20_rounds_add_up() -> None:
    made = plan_training(training(noise=2.0, epsilon=None), 6)
    one, all_ = training_divergence(made, rounds=1), training_divergence(made)
    assert np.array(all_) == pytest.approx(6 * np.array(one))
    spent = accounting.net_epsilon(np.array(all_), 1e-4, tails=2.0**-188)[0]
    assert float(made.epsilon) == pytest.approx(spent, rel=1e-5)
    assert float(made.epsilon) >= spent  # rounded up


def test_noise_out_of_reach_is_refused() -> None:
    with pytest.raises(PolicyError, match="No noise that can be drawn"):
        plan_training(training(rate=1.0, epsilon=0.001, steps=10_000), 100)
    for bad in ({"rate": 0.0}, {"rate": 1.1}, {"noise": 0.0}):
        with pytest.raises(PolicyError):
            rdp_sampled_gaussian([2.0], **{"rate": 0.1, "noise": 1.0, **bad})


@pytest.mark.parametrize(
    "changes",
    [
        {"epsilon": None},
        {"noise": 1.0},
        {"unit": "node"},
        {"rate": 0.0},
        {"clip": 0.0},
        {"budget": None},
        {"noise": MAX_MULTIPLIER * 2, "epsilon": None},
    ],
)
def test_a_policy_of_training_that_says_nothing_sound_is_refused(changes: dict) -> None:
    with pytest.raises(ValidationError):
        training(**changes)


# --- how it is drawn -----------------------------------------------------------------------------

_REALS = st.floats(width=32, allow_nan=False, allow_infinity=False)


@given(st.lists(_REALS, min_size=1, max_size=40), st.sampled_from([1e-3, 0.37, 1.0, 1e4]))
@settings(max_examples=200, deadline=None)
def test_o17_a_record_moves_the_integer_sum_by_no_more_than_the_sensitivity(values, clip) -> None:
    found = on_grid(np.array(values, dtype=np.float32), clip)
    assert int(found @ found) <= LEVELS**2
    norm = float(np.linalg.norm(np.array(values, dtype=np.float64)))
    if clip / 100 < norm <= clip:
        near = found * clip / LEVELS  # not clipped: no entry moves by more than one step
        assert np.abs(near - np.array(values)).max() <= clip / LEVELS * (1 + 1e-6)


def test_o17_a_clipped_gradient_keeps_its_direction_and_its_norm() -> None:
    rng = np.random.default_rng(0)
    gradient = rng.normal(size=5_000) * 100
    found = on_grid(gradient, 1.0) / LEVELS
    assert 0.99 < np.linalg.norm(found) <= 1.0
    assert found @ gradient / np.linalg.norm(gradient) / np.linalg.norm(found) > 0.9999


def test_o17_the_integer_norm_holds_even_if_floating_point_does_not(monkeypatch) -> None:
    norm = np.linalg.norm
    monkeypatch.setattr(np.linalg, "norm", lambda *given: 0.3 * norm(*given))  # far too small
    found = on_grid(np.random.default_rng(0).normal(size=100) * 50, 1.0)
    assert 0.99 * LEVELS**2 < int(found @ found) <= LEVELS**2


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_o17_a_gradient_that_is_not_finite_counts_as_zero(bad: float) -> None:
    assert not on_grid(np.array([1.0, bad, 2.0]), 1.0).any()


def test_o17_neighbouring_sums_differ_by_at_most_the_clip_norm(monkeypatch) -> None:
    """Without noise and with everything drawn, one record more moves the sum by C at most."""
    made = steps(rate=1.0, epsilon=None, noise=1.0, clip=0.5, batch=1.0)
    monkeypatch.setattr(made._noise, "sample", lambda _, size: np.zeros(size, dtype=np.int64))
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(6, 30)) * rng.uniform(0.01, 100, size=(6, 1))
    sums = [made.step(n, 30, lambda places: rows[places]) for n in (0, 4, 5, 6)[:4]]
    assert not sums[0].any()
    for one, other in pairwise(sums[1:]):
        assert 0 < np.linalg.norm(other - one) <= 0.5 * (1 + 1e-12)


def test_o15_noise_has_the_planned_variance_and_the_agreed_divisor() -> None:
    made = steps(epsilon=None, noise=1.5, clip=2.0, batch=8.0)
    drawn = made.step(0, 40_000, lambda places: np.zeros((0, 40_000)))
    wanted = 1.5 * 2.0 / 8.0  # z C / batch, though no record was there
    # Eight and seven standard errors: the operating system draws anew in each run of this test.
    assert drawn.std() == pytest.approx(wanted, rel=0.03)
    assert abs(drawn.mean()) < 7 * wanted / 200


def test_o21_batches_are_poisson() -> None:
    made = steps(rounds=1, epsilon=None, noise=1.0, rate=0.2, steps=400)
    seen = np.zeros(50)
    sizes = []

    def rows(places):
        seen[places] += 1
        sizes.append(len(places))
        return np.zeros((len(places), 1))

    for _ in range(400):
        made.step(50, 1, rows)
    # So wide that an honest sampler fails once in 10^9 runs of this test, fifty records together.
    assert np.mean(sizes) == pytest.approx(10.0, abs=7 * math.sqrt(8 / 400))
    assert np.var(sizes) == pytest.approx(8.0, rel=0.6)  # n q (1 - q): sizes are not fixed
    assert abs(seen / 400 - 0.2).max() < 7.5 * math.sqrt(0.16 / 400)


def test_o15_no_seed_repeats_a_batch_or_the_noise() -> None:
    batches, noises = [], []
    for _ in range(2):
        np.random.default_rng(7)  # equal seeds of learning change nothing
        made = steps(rate=0.5)
        noises.append(made.step(64, 8, lambda p: (batches.append(p), np.zeros((len(p), 8)))[1]))
    assert not np.array_equal(*batches)
    assert not np.array_equal(*noises)


def test_o15_draws_come_from_the_operating_system(monkeypatch) -> None:
    """The control: with entropy held fast, batch and noise repeat, so nothing else is drawn."""
    key = entropy(32)
    monkeypatch.setattr("protocols.privacy.noising.entropy", lambda count: key[:count])
    found = [steps(rate=0.5).step(64, 8, lambda p: np.ones((len(p), 8))) for _ in range(2)]
    assert np.array_equal(*found)


def test_o20_steps_are_counted_and_refused_beyond_the_plan() -> None:
    made = PrivateSteps(plan_training(training(steps=2), 2))

    def one():
        return made.step(3, 1, lambda places: np.zeros((len(places), 1)))

    with pytest.raises(NotInPlan, match="2 noised gradients"):
        one()  # no round is open
    for round in (1, 2):
        made.open(round, round - 1)
        one(), one()
        assert made.taken == 2
        with pytest.raises(NotInPlan):
            one()
    with pytest.raises(NotInPlan, match="more rounds"):
        made.open(3, 2)
    again = PrivateSteps(made.plan)  # started anew: what was opened before still counts
    with pytest.raises(NotInPlan):
        again.open(3, 2)
    again.open(2, 1)
    with pytest.raises(NotInPlan):
        again.open(2, 1)


def test_a_task_that_brings_too_few_or_misshapen_gradients_is_refused() -> None:
    made = steps(rate=1.0)
    with pytest.raises(LocalProtocolError, match="one gradient for each"):
        made.step(3, 2, lambda places: np.zeros((2, 2)))
    with pytest.raises(LocalProtocolError, match="size"):
        made.step(3, 2, lambda places: np.zeros((3, 1)))
    assert made.taken == 2  # drawn is drawn


def test_o15_the_steps_are_mute() -> None:
    made = steps()
    assert repr(made) == "<PrivateSteps>"
    with pytest.raises(TypeError):
        made.__reduce_ex__(4)


# --- policy and plan -----------------------------------------------------------------------------


class Tally(SumMessage):
    right: int = count(unit="record", meaning="correct")


class Loud(SumMessage):
    change: Vector = real("d", unit="weight", meaning="change")
    count: int = count(unit="record", meaning="training records")


def policy(**changes: object) -> PrivacyPolicy:
    base = PrivacyPolicy.preset("masks").document()
    return PrivacyPolicy.model_validate(
        {**base, "training": training(**changes).model_dump(mode="json")}
    )


def form(back: type = Pull, *, by_gradients: bool = True, held_out: tuple = ()) -> Form:
    exchange = Exchange("pull", (Start,), (back, *held_out), pull, held_out=held_out)
    return Form("toy", lambda state, cohort: iter(()), (exchange,), by_gradients)


def planned(chosen: Form, rules: PrivacyPolicy, rounds: int = 3) -> Plan:
    algorithm = Algorithm("toy", "-", None, None, (chosen,), {"d": 5})  # type: ignore[arg-type]
    return make_plan(algorithm, rules, data=DATA, clients=names_of(5), rounds=rounds, scheme=None)


def test_only_forms_that_say_nothing_but_noised_gradients_are_admitted() -> None:
    assert planned(form(), policy()).training is not None
    exchange = Exchange("train", (Start,), (Update,), train)
    scaled = Form("toy", lambda state, cohort: iter(()), (exchange,), by_gradients=True)
    for chosen, why in (
        (form(by_gradients=False), "more than noised gradients"),
        (form(Loud), "how many records train"),
        (form(Tally), "how many records train"),
        (scaled, "how many records train"),
    ):
        with pytest.raises(NotAdmitted) as refused:
            planned(chosen, policy())
        assert why in refused.value.why
    # without private training none of this is asked
    assert planned(form(Loud, by_gradients=False), PrivacyPolicy.preset("masks")).training is None


def test_o16_the_plan_says_unit_adjacency_and_what_is_not_covered() -> None:
    text = planned(form(held_out=(Tally,)), policy()).budget
    for part in (
        "For one training graph: epsilon <= 8.0, delta = 0.0001",
        "unit: graph; adjacency: add or remove one training graph; model: local",
        "scope: run",
        "rate 0.1",
        "covered: pull.up.SUM and the models",
        "Tally counts validation and test graphs, which are other records: for those epsilon = inf",
        "For a client as a whole: no noise is added: epsilon = infinity for the run",
    ):
        assert part in text
    assert "Tally" not in planned(form(), policy()).budget


def test_o20_a_client_refuses_a_plan_with_less_noise() -> None:
    plan, rules = planned(form(held_out=(Tally,)), policy()), policy()
    check_training(plan, rules)
    assert plan.training is not None and plan.training.held_out == ("Tally",)
    weaker = plan.training.model_copy(update={"noise": "0.5"})
    more = plan.training.model_copy(update={"steps": 50})
    for lie in (weaker, more, None):
        with pytest.raises(NotInPlan):
            check_training(plan.model_copy(update={"training": lie}), rules)
    with pytest.raises(NotInPlan):
        check_training(plan, PrivacyPolicy.preset("masks"))
    check_training(planned(form(), PrivacyPolicy.preset("masks")), PrivacyPolicy.preset("masks"))


def test_another_private_training_is_drift() -> None:
    plan = planned(form(), policy())
    assert not drift(plan, plan)
    assert any(
        line.startswith("training:") for line in drift(plan, planned(form(), policy(steps=6)))
    )


def test_o20_units_have_budgets_of_their_own() -> None:
    assert budget_key("bbbp", "client") == "bbbp"
    assert budget_key("bbbp", "graph") == "bbbp#graph"


def test_the_policy_of_the_example_is_valid() -> None:
    root = Path(__file__).resolve().parents[2]
    found = PrivacyPolicy.load(root / "examples/molecules_dp_policy.yaml")
    assert found.training is not None
    assert isinstance(plan_training(found.training, 20), TrainingPlan)


def test_a_record_s_delta_lies_below_one_over_any_number_of_records() -> None:
    facts = {"rate": 0.1, "batch": 8.0, "steps": 4, "epsilon": 4.0, "budget": CAP}
    assert Training(**facts, delta=1e-4).delta == 1e-4
    with pytest.raises(ValidationError, match=r"delta 0.0002 .* set it to 0.0001 or less"):
        Training(**facts, delta=2e-4)
