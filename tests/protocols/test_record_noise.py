"""Noise on counts of single records: enough for its target, drawn by each client, never a tell."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from protocols.disclosures.sum.guards import RecordNoise
from protocols.errors import NotAdmitted, NotInPlan, Refused
from protocols.forms import Exchange, Form
from protocols.messages import SumMessage, Vector, count
from protocols.policy.guards import Clip, OwnNoise, Quantise, Seal
from protocols.policy.policy import PrivacyPolicy
from protocols.privacy import record_noise
from protocols.privacy.accounting import ORDERS, gaussian_epsilon
from protocols.privacy.record_noise import (
    check_counted,
    counted_curve,
    counted_epsilon,
    plan_counted,
)
from protocols.privacy.training import training_divergence
from tests.protocols.test_training_sessions import POLICY, PrivateWorld, Store, private
from tests.protocols.toys import Pull, Start, Toy, toy_plan
from tests.protocols.wire import World

MANY = 8000  # so many new draws stand within the limits below in all but one of 10^9 runs
SENT = ((((1, 1), (1, 1), (10_000, 1)), 4),)


class Seen(SumMessage):
    """What single records are counted in."""

    bins: Vector = count(MANY, unit="record", meaning="records per bin", moves=1)
    wide: Vector = count(MANY, unit="1/100", meaning="hundreds", moves=100)


class Unbound(SumMessage):
    """A count, and another that one record may change by anything."""

    seen: int = count(unit="record", meaning="records", moves=1)
    share: int = count(unit="1", meaning="what nobody bounded")


def scored(site: Toy, given: Start) -> tuple[Pull, Seen]:
    told = getattr(site, "told", 40)
    ones = np.full(MANY, told, dtype=np.int64)
    return private(site, given), Seen(bins=ones, wide=ones)


def form(kind: type[SumMessage] = Seen) -> Form[Any]:
    exchange = Exchange("pull", (Start,), (Pull, kind), scored, held_out=(kind,))
    return Form("pull", lambda *_: iter(()), (exchange,), True)


def policy(**facts: Any) -> PrivacyPolicy:
    document = POLICY.document()
    noise = RecordNoise(**{"epsilon": 4.0, "delta": 1e-5, **facts}).model_dump()
    chain = document["rules"]["SUM"]
    document["rules"]["SUM"] = [*chain[:2], noise, *chain[2:]]
    return PrivacyPolicy.model_validate({**document, "capture": None})


class CountedWorld(PrivateWorld):
    """A world whose clients train privately and noise their counts."""

    def __init__(self, wanted: PrivacyPolicy, **facts: Any) -> None:
        self.armed = True
        World.__init__(self, form(), wanted, **{"reserve": Store(), "rounds": 3, **facts})


@pytest.mark.parametrize("mechanism", ["discrete_gaussian", "discrete_laplace"])
def test_o15_every_client_adds_all_of_the_noise_to_its_counts_and_to_nothing_else(
    mechanism: str,
) -> None:
    world = CountedWorld(policy(mechanism=mechanism))
    total = world.start().round(1)
    counted = world.plan.item("pull.up.SUM").counted
    assert counted is not None and counted.mechanism == mechanism
    spread = 5 * float(counted.scale) ** 2 * (2.0 if mechanism == "discrete_laplace" else 1.0)
    seen = total.total(Seen)
    assert 0.85 < np.var(seen.bins) / spread < 1.15
    assert abs(np.mean(seen.bins) - 200) < 1.0  # five clients' 40, and no bias
    # A wide field's noise is as wide, so a total of 200 is cut off at zero half of the time.
    assert 0.3 < np.mean(seen.wide == 0) < 0.7 and seen.wide.min() == 0
    assert 0.3 < np.mean(seen.wide[seen.wide > 0]) / (100.0 * math.sqrt(spread)) < 1.3
    assert np.abs(total.total(Pull).change).max() < 5 * 0.4 + 1e-3  # not a count: no noise


def test_saturated_counts_are_one_number_that_a_record_still_moves_by_no_more() -> None:
    world = CountedWorld(policy())
    for site in world.sites.values():
        site.told = 2**31  # type: ignore[attr-defined]
    total = world.start().round(1).total(Seen)
    assert abs(np.mean(total.bins) - 5 * (2**16 - 1)) < 1.0


def test_noise_beyond_its_head_room_is_cut_off_and_not_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = CountedWorld(policy()).start()
    counted = world.plan.item("pull.up.SUM").counted
    assert counted is not None
    law = record_noise.SAMPLERS[counted.mechanism]
    monkeypatch.setattr(law, "sample", lambda self, stream, size: np.full(size, -(1 << 40)))
    with pytest.raises(Exception) as caught:  # all five at once: more than a total has room for
        world.round(1)
    assert not isinstance(caught.value, Refused), "a client told that its noise was large"


@pytest.mark.parametrize("lie", [{"scale": "0.5"}, {"margin": 1}, {"releases": 1},
                                 {"fields": 1}, {"epsilon": "8.0"}, None])  # fmt: skip
def test_a_client_draws_no_other_noise_on_counts_than_its_policy_asks_for(lie: Any) -> None:
    wanted, honest = policy(), toy_plan(form(), policy(), bfv=None)
    items = tuple(
        item.model_copy(update={"counted": item.counted.model_copy(update=lie) if lie else None})
        if item.counted
        else item
        for item in honest.items
    )
    forged = honest.model_copy(update={"items": items})
    check_counted(honest, wanted)
    with pytest.raises(NotInPlan):
        check_counted(forged, wanted)
    if lie not in (None, {"scale": "0.5"}):
        return  # two of them in a whole session
    world = CountedWorld(wanted, plan=forged)
    with pytest.raises(Refused) as caught:
        world.start().round(1)
    assert caught.value.code == "plan"


def test_o20_a_graph_trains_or_is_counted_so_the_larger_curve_is_reserved() -> None:
    for epsilon, more in ((0.5, False), (60.0, True)):
        store = Store()
        world = CountedWorld(policy(epsilon=epsilon), reserve=store)
        trained = training_divergence(world.plan.training)  # type: ignore[arg-type]
        counted = world.plan.item("pull.up.SUM").counted
        assert counted is not None
        told = counted.releases * counted_curve(counted)
        (first, *others) = store.asked
        assert len(others) == 4 and first["dataset"] == "toy#graph"
        assert first["rdp"] == tuple(np.maximum(trained, told))
        assert (first["rdp"] != trained) is more


def test_counts_that_do_not_say_what_one_record_moves_are_refused() -> None:
    with pytest.raises(NotAdmitted) as caught:
        toy_plan(form(Unbound), policy(), bfv=None)
    told = str(caught.value)
    assert "Unbound does not say by how much one record moves its fields (share)" in told


@pytest.mark.parametrize("mechanism", ["discrete_gaussian", "discrete_laplace"])
def test_the_target_is_filled_and_no_more(mechanism: str) -> None:
    guard = RecordNoise(mechanism=mechanism, epsilon=2.0, delta=1e-6)  # type: ignore[arg-type]
    found = plan_counted(guard, SENT, 5)
    assert found is not None and (found.fields, found.releases, found.entries) == (3, 4, 3)
    assert 1.999 < counted_epsilon(found, 5) <= 2.0
    half = found.model_copy(update={"scale": repr(float(found.scale) / 2)})
    assert counted_epsilon(half, 5) > 3.0  # control
    if mechanism == "discrete_gaussian":
        mu = math.sqrt(4 * 3) / float(found.scale)
        assert 1.0 <= 2.0 / gaussian_epsilon(mu, 1e-6) < 1.3


@pytest.mark.parametrize("moves", [1, 7, 100])
def test_the_divergence_of_one_field_is_no_larger_than_counted(moves: int) -> None:
    """Summed over the whole numbers, for the largest move; half of the scale would not do."""
    scale = 1.5
    reach = np.arange(-40 * moves, 41 * moves)

    def diverges(spread: float, order: float) -> float:
        logs = [-((reach - at) ** 2) / (2.0 * (spread * moves) ** 2) for at in (0, moves)]
        one, other = (log - np.logaddexp.reduce(log) for log in logs)
        return float(np.logaddexp.reduce(order * one + (1 - order) * other)) / (order - 1.0)

    guard = RecordNoise(epsilon=4.0, delta=1e-5)
    found = plan_counted(guard, ((((moves, 1),), 1),), 5)
    assert found is not None
    curve = counted_curve(found.model_copy(update={"scale": repr(scale)}))
    for order, bound in zip(ORDERS, curve, strict=True):
        if 1.1 < order < 8:
            assert diverges(scale, order) <= bound * (1 + 1e-9)
            assert diverges(scale / 2, order) > bound


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"training": None}, r"say how they are hidden \(training\)"),
        ({"capture": {}}, "leave 'capture' out"),
    ],
)
def test_policies_that_bound_nothing_of_a_record_are_refused(change: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        PrivacyPolicy.model_validate({**policy().document(), **change})


@pytest.mark.parametrize(
    "chain",
    [
        (Clip(), Quantise(), RecordNoise(epsilon=1, delta=1e-6), Seal()),
        (Clip(norm="l2"), Quantise(), RecordNoise(epsilon=1, delta=1e-6),
         OwnNoise(epsilon=1, delta=1e-6), Seal()),
    ],
)  # fmt: skip
def test_it_stands_behind_the_grid_and_before_masks(chain: Any) -> None:
    document = policy().document()
    document["rules"]["SUM"] = [guard.model_dump() for guard in chain]
    with pytest.raises(ValueError, match="SUM"):
        PrivacyPolicy.model_validate(document)
