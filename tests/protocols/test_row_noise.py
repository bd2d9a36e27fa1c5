"""Noise on rows: what one node's features move, what covers it, and who is held to it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from audits.attacks._methods.statistics import lower_bound
from crypto.ldp_vectors import on_grid
from protocols.disclosures.row_sum import parties as matching
from protocols.disclosures.row_sum import run as sums
from protocols.disclosures.row_sum.guards import RowNoise
from protocols.disclosures.row_sum.protocol.assignment import Offer, assigned, entered, orders
from protocols.disclosures.row_sum.protocol.client import ClientRows
from protocols.disclosures.row_sum.run import NoisedRows, needed_run
from protocols.errors import BadEnvelope, BudgetExceeded, NotInPlan, Refused
from protocols.policy.policy import PrivacyPolicy
from protocols.privacy.accounting import ORDERS, gaussian_epsilon
from protocols.privacy.record_noise import counted_curve, counted_epsilon
from protocols.privacy.row_noise import plan_row_noise, sensitivity
from tests.protocols.rowed import (
    CLIP,
    EACH,
    FEATURES,
    row_plan,
    row_policy,
    row_round,
    rowed,
    true_sum,
)
from tests.protocols.test_results_resume import Killed
from tests.protocols.test_training_sessions import Store

BITS, LEVELS, MOST = 16, (1 << 15) - 1, (1 << 31) // 6


def noise(releases: int = 5, epsilon: float = 8.0, delta: float = 1e-5) -> RowNoise:
    budget = {"epsilon": epsilon, "delta": delta}
    facts = {"releases": releases, "epsilon": epsilon, "delta": delta, "budget": budget}
    return RowNoise.model_validate(facts)


def noisy(**facts: Any) -> Any:
    return rowed(**{"noise": noise(), "reserve": Store(), **facts})


# --- how much -----------------------------------------------------------------------------------


@pytest.mark.parametrize("releases", [1, 4, 9])
@pytest.mark.parametrize("epsilon", [1.0, 8.0, 64.0])
def test_the_noise_is_that_of_one_vector_of_length_root_r(releases: int, epsilon: float) -> None:
    found = plan_row_noise(noise(releases, epsilon), LEVELS, 10_000, 6)
    assert counted_epsilon(found, 6) <= epsilon
    assert sensitivity(found) == pytest.approx(np.sqrt(releases))
    exact = gaussian_epsilon(sensitivity(found) / float(found.scale), 1e-5)
    assert exact <= epsilon < 1.25 * exact  # what Renyi composition costs, and no more
    alone = plan_row_noise(noise(1, epsilon), LEVELS, 10_000, 6)
    assert float(found.scale) == pytest.approx(np.sqrt(releases) * float(alone.scale), rel=1e-4)
    one = np.asarray(ORDERS) / (2.0 * float(alone.scale) ** 2)  # r blocks, each of one clip
    assert np.allclose(counted_curve(found.model_copy(update={"scale": alone.scale})),
                       releases * one)  # fmt: skip


WORST = (
    np.full(FEATURES, 1e30),
    np.array([CLIP, 0.0, 0.0]),
    np.full(FEATURES, -CLIP / np.sqrt(FEATURES)),
    np.array([np.inf, 0.0, 0.0]),
    np.array([np.nan, 1.0, 1.0]),
    np.array([1.0, -1e-300, 1e300]),
)


def moved(term: np.ndarray, rows: int) -> int:
    """Return the squared L2 norm, in steps, by which a node moves so many rows of a client."""
    counted, apart = plan_row_noise(noise(), LEVELS, 100, 6), 0
    with_it, without = (NoisedRows(CLIP, BITS, counted, MOST, bytes(32)) for _ in range(2))
    other = np.array([0.3, -0.4, 1.1])
    for row in range(rows):  # one key, so what differs is not the noise
        tag, none = bytes([row]), np.zeros(FEATURES)
        off = with_it.row(tag, [other, term])[0] - without.row(tag, [other, none])[0]
        apart += int(off @ off)
    return apart


@pytest.mark.parametrize("term", WORST)
def test_no_features_move_r_rows_by_more_than_the_root_of_r_clips(term: np.ndarray) -> None:
    assert moved(term, 5) <= 5 * LEVELS**2


def test_the_bound_is_reached_and_the_control_of_one_row_more_passes_it() -> None:
    assert moved(WORST[1], 5) == 5 * LEVELS**2 < moved(WORST[1], 6)


def scores(counted: Any, rows: int, runs: int, *, present: bool, key: int = 1) -> np.ndarray:
    """Return what somebody reads who knows all but whether a node's features are there."""
    made = NoisedRows(CLIP, BITS, counted, MOST, key.to_bytes(32, "big"))
    term = np.array([CLIP, 0.0, 0.0])
    given = [term if present else np.zeros(FEATURES)]
    reading = on_grid(term, CLIP, LEVELS)
    tags = [[bytes([row, run // 256, run % 256]) for row in range(rows)] for run in range(runs)]
    return np.array([sum(made.row(tag, given)[0] @ reading for tag in one) for one in tags], float)


def proved(counted: Any, rows: int, runs: int = 600) -> float:
    there = scores(counted, rows, runs, present=True, key=1)
    none = scores(counted, rows, runs, present=False, key=2)
    return float(lower_bound(there, none, delta=1e-5, reading="gaussian").epsilon)


def test_no_more_is_proved_of_a_nodes_rows_than_is_claimed_and_the_controls_fall(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counted = plan_row_noise(noise(3, 4.0), LEVELS, 100, 6)
    assert 1.0 < proved(counted, 3) <= 4.0
    weaker = counted.model_copy(update={"scale": repr(float(counted.scale) / 3.0)})
    assert proved(weaker, 3) > 4.0
    monkeypatch.setattr(sums.NoisedRows, "row", bare_row)
    assert proved(counted, 3) > 4.0  # noise left out


def bare_row(self: NoisedRows, tag: bytes, terms: Any) -> Any:
    total = np.sum([on_grid(term, self._clip, self._levels) for term in terms], axis=0)
    return total, False


def test_no_two_rows_have_one_noise_and_a_row_is_the_same_release_again() -> None:
    counted = plan_row_noise(noise(), LEVELS, 100, 6)
    terms = [np.zeros(FEATURES)]
    first, again = (NoisedRows(CLIP, BITS, counted, MOST, bytes(32)) for _ in range(2))
    one, two = (first.row(tag, terms)[0] for tag in (b"a", b"b"))
    assert not np.array_equal(one, two)
    assert np.array_equal(again.row(b"b", terms)[0], two)  # put back, and asked in another order


# --- what is told -------------------------------------------------------------------------------


def starred(**facts: Any) -> Any:
    """Return a world all of whose clients ask for every star's row, and so for its leaves'."""
    world = noisy(**{"rows": 32, **facts})
    for site in world.sites.values():
        site.wanted = np.union1d(site.wanted, np.arange(0, 6 * EACH, EACH))
    return world


@pytest.fixture(scope="module")
def told() -> Any:
    """A run in which every party is killed after every delivery, and goes on."""
    world = starred(world=Killed)
    world.keep()
    world.start()
    row_round(world)
    return world


def test_rows_of_one_adder_are_told_and_each_adder_noises_them(told: Any) -> None:
    assert needed_run(told.context("client-1")).floor == 1
    alone = [s for n in told.names for s in told.sites[n].found.values() if s[-1] == 1]
    assert alone  # the floor of `thresholded` is three
    step = CLIP / LEVELS
    sigma = float(told.plan.item("link.up.ROW_SUM").counted.scale) * CLIP
    gaps = [
        (sums - true_sum(told, row, name))
        for name in told.names
        for row, sums in told.sites[name].found.items()
    ]
    assert all(gap[-1] == 0 for gap in gaps)  # counts are exact, and are said not to be covered
    off = np.concatenate([gap[:-1] for gap in gaps])
    assert np.abs(off).max() > 100 * step
    assert 0.5 * sigma < np.std(off) < 4.0 * sigma  # of one to five adders


def test_whoever_is_told_a_row_it_is_one_release(told: Any) -> None:
    """Of a star's row the owner reads all leaves, and each leaf's client all but its own."""
    checked = 0
    for n, name in enumerate(told.names):
        row, others = n * EACH, [other for other in told.names if other != name]
        here = [told.sites[other].found.get(row) for other in others]
        whole = told.sites[name].found.get(row)
        if whole is None or any(one is None for one in here):
            continue
        each = [whole - one for one in here]
        assert np.allclose(np.sum(each, axis=0), whole, atol=1e-3)
        checked += 1
    assert checked >= 3


def test_the_control_that_noises_a_row_anew_for_each_receiver_is_another_release(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real, rng = ClientRows.slots, np.random.default_rng(0)

    def anew(self: ClientRows, adding: Any, values: Any) -> bytes:
        values[:, :-1] += rng.integers(-LEVELS, LEVELS, (len(adding), FEATURES))
        return real(self, adding, values)

    monkeypatch.setattr(ClientRows, "slots", anew)
    world = starred().start()
    row_round(world)
    with pytest.raises(AssertionError):
        test_whoever_is_told_a_row_it_is_one_release(world)


def test_the_ledger_names_the_target_and_how_many_rows_a_node_entered(told: Any) -> None:
    counted = told.plan.item("link.up.ROW_SUM").counted
    for name in told.names:
        entries = told.entries(name)
        (said,) = [e for e in entries if e["kind"] == "rows" and "entered" in e]
        assert (said["epsilon"], said["delta"]) == ("8.0", "1e-05")
        assert said["scale"] == counted.scale and 1 <= said["entered"] <= 5
        kinds = [e["kind"] for e in entries]
        assert kinds.index("budget") < kinds.index("rows")
        assert next(e for e in entries if e["kind"] == "budget")["unit"] == "node"


def test_the_run_is_reserved_for_nodes_before_anything_leaves() -> None:
    store = Store()
    world = noisy(reserve=store).start()
    assert [facts["dataset"] for facts in store.asked] == ["toy#node"] * 6
    counted = world.plan.item("link.up.ROW_SUM").counted
    assert all(np.allclose(facts["rdp"], counted_curve(counted)) for facts in store.asked)
    with pytest.raises(BudgetExceeded):
        noisy(reserve=Store(fits=False)).start()


def test_terms_that_are_not_finite_count_as_zeros_and_nothing_tells_of_them() -> None:
    world = noisy()
    world.sites["client-2"].terms[:, :-1] = np.nan
    row_round(world.start())
    found = [s for n in world.names for s in world.sites[n].found.values()]
    assert found and all(np.isfinite(s).all() for s in found)
    assert not any(e["kind"] == "refusal" for n in world.names for e in world.entries(n))


# --- what everybody is held to ------------------------------------------------------------------


def test_each_node_enters_r_rows_at_most() -> None:
    tag = [bytes([n]) * 16 for n in range(9)]
    rows = {tag[n]: frozenset({tag[8]}) for n in range(6)}
    offers = {"a": Offer(rows, frozenset()), "b": Offer({}, frozenset(rows))}
    for each in (1, 4, 6):
        served = assigned(offers, 1, 64, each=each)
        assert len(served) == each
        assert entered(orders(served, "a", b""), offers["a"]) == {tag[8]: each}


def test_a_client_enters_no_node_into_more_rows_than_its_noise_covers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def freely(offers: Any, floor: int, places: int, **_: Any) -> Any:
        return assigned(offers, floor, places, each=6)

    monkeypatch.setattr(matching, "assigned", freely)
    world = noisy(noise=noise(releases=1))
    with pytest.raises((Refused, BadEnvelope)):
        row_round(world.start())
    errors = [str(world.session(n).last_error) for n in world.names]
    assert any("to enter two rows" in error for error in errors)
    assert all(world.sites[n].found is None for n in world.names)


@pytest.mark.parametrize(
    "change",
    [{"scale": "0.01"}, {"fields": 1}, {"epsilon": "64.0"}, {"unit": "graph"}, None],
)
def test_a_plan_with_other_noise_than_the_policys_is_refused(change: Any) -> None:
    policy = row_policy(noise=noise())
    plan = row_plan(policy)
    (item,) = [i for i in plan.items if i.counted is not None]
    counted = item.counted.model_copy(update=change) if change else None
    forged = item.model_copy(update={"counted": counted})
    items = tuple(forged if i is item else i for i in plan.items)
    with pytest.raises(NotInPlan, match="noise on rows is not what"):
        noisy(plan=plan.model_copy(update={"items": items}))


def test_a_plan_may_not_name_noise_that_the_policy_does_not() -> None:
    noised_plan = row_plan(row_policy(noise=noise()))
    (with_noise,) = [i for i in noised_plan.items if i.counted is not None]
    plan = row_plan(row_policy())
    items = tuple(
        i.model_copy(update={"counted": with_noise.counted}) if i.id == with_noise.id else i
        for i in plan.items
    )
    with pytest.raises(NotInPlan, match="noise on rows is not what"):
        rowed(plan=plan.model_copy(update={"items": items}))


def test_the_plan_says_whose_epsilon_it_is_and_what_it_does_not_cover() -> None:
    plan = row_plan(row_policy(noise=noise()))
    assert plan.budget.startswith("noise on rows hides single nodes' features")
    for said in (
        "epsilon = infinity for the run",
        "for one node's features: epsilon <= 8.0, delta = 1e-05 (unit: node",
        "moves by 2.236 times the clip in L2 (the root of 5)",
        "not covered: edges, which rows are told, who adds to them and how many terms they have "
        "(degrees), labels, and every other message of the run",
    ):
        assert said in plan.budget
    assert any("which are degrees" in warning for warning in plan.warnings)
    assert not any("no epsilon holds for it" in warning for warning in plan.warnings)


def document(**changes: Any) -> dict[str, Any]:
    found = row_policy(noise=noise()).document()
    chain = {guard["guard"]: guard for guard in found["rules"]["ROW_SUM"]}
    for name, facts in changes.items():
        if facts is None:
            del chain[name]
        elif name in chain:
            chain[name].update(facts)
    return {**found, "rules": {**found["rules"], "ROW_SUM": list(chain.values())}}


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"row_noise": None}, "clip, quantise, row_noise, rows, seal, for form 'noised'"),
        ({"rows": {"form": "thresholded"}}, "clip, quantise, rows, seal, for form 'thresholded'"),
        ({"clip": {"norm": "linf"}}, "norm l2: of a node's term"),
        ({"row_noise": {"epsilon": 65.0}}, "less than or equal to 64"),
        ({"row_noise": {"delta": 1e-3}}, "less than or equal to 0.0001"),
        ({"rows": {"threshold": 2}}, "threshold is of the form 'published'"),
    ],
)
def test_what_noised_rows_need_stands_in_the_refusal(changes: Any, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        PrivacyPolicy.model_validate(document(**changes))


def test_noise_on_rows_is_no_noise_for_a_client() -> None:
    found = {**document(), "budget": {"epsilon": 8.0, "delta": 1e-5}}
    needed = ("SUM", "ROW_SUM", "SEALED", "RELEASED", "PUBLIC")
    found["rules"] = {name: found["rules"][name] for name in needed}
    with pytest.raises(ValueError, match="ROW_SUM cannot be accounted"):
        PrivacyPolicy.model_validate(found)


def test_noised_rows_need_no_consent_to_bare_sums() -> None:
    assert row_plan(row_policy(noise=noise(), accept_sums=False)).form == "adding"
