"""Rows that one client shows: decoys like its own, sticky ones stay, no false epsilon (O21)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from protocols.disclosures.names import Disclosure
from protocols.disclosures.noised.decoys import SENT, Decoyer, local_epsilon, planned_rows
from protocols.disclosures.noised.guards import Decoys, Laplace
from protocols.errors import UnfitMessage
from protocols.messages import Matrix, NoisedMessage, Vector, count, real
from protocols.policy.guards import Clip, UnsafeClear
from protocols.policy.policy import PRESETS, PrivacyPolicy

CATALOGUE, WIDTH = 200, 3
DIMS = {"items": CATALOGUE, "row": WIDTH, SENT: 60}
BOUND = Clip(bound=100.0)
STEP = 100.0 / (1 << 14)


class Shown(NoisedMessage):
    number: Vector = count("sent", unit="item", meaning="whose row")
    rows: Matrix = real("sent", "row", unit="1", meaning="a row")
    more: Vector = real("row", unit="1", meaning="something else")


def shown(own: np.ndarray, rows: np.ndarray) -> Shown:
    return Shown.partial(CATALOGUE, number=own, rows=rows, more=np.zeros(WIDTH))


def ready(decoyer: Decoyer, message: Shown, *guards: Any, sent: int = DIMS[SENT]) -> Any:
    chain = (BOUND, *guards, UnsafeClear())
    return decoyer.ready(message, chain, {**DIMS, SENT: sent})[0]


@pytest.fixture
def own() -> np.ndarray:
    return np.random.default_rng(0).permutation(CATALOGUE)[:20]


@pytest.mark.parametrize("held", [2, 3, 10])
def test_pseudo_rows_have_the_sample_mean_and_covariance(held: int) -> None:
    rng = np.random.default_rng(1)
    own = np.arange(held)
    rows = rng.normal(size=(held, WIDTH)) @ rng.normal(size=(WIDTH, WIDTH)) + [1.0, -2.0, 0.5]
    found = []
    for _ in range(60):
        said = ready(Decoyer(), shown(own, rows), Decoys(rows=180 + held), sent=180 + held)
        found.append(said.rows[~np.isin(said.number, own)])
    drawn = np.concatenate(found)
    assert len(drawn) == 60 * 180
    inside = np.abs(rows).max()
    assert np.abs(drawn).max() <= inside + STEP
    np.testing.assert_allclose(drawn.mean(axis=0), rows.mean(axis=0), atol=0.15)
    np.testing.assert_allclose(np.cov(drawn.T), np.cov(rows.T), rtol=0.25, atol=0.25)


def test_sticky_decoys_stay_and_fresh_ones_do_not(own: np.ndarray) -> None:
    rows = np.random.default_rng(2).normal(size=(20, WIDTH))
    for draw, same in (("sticky", True), ("fresh", False)):
        decoyer = Decoyer()
        first, second = (
            ready(decoyer, shown(own, rows), Decoys(rows=60, draw=draw)).number for _ in range(2)
        )
        assert np.array_equal(first, second) is same
        both = np.intersect1d(first, second)
        assert set(own) <= set(both)
        other = ready(Decoyer(), shown(own, rows), Decoys(rows=60, draw=draw)).number
        assert not np.array_equal(first, other)  # of the operating system, never of a seed (O15)


def test_the_client_s_own_rows_are_said_as_they_are(own: np.ndarray) -> None:
    rows = np.random.default_rng(3).normal(size=(20, WIDTH))
    for guards in ((), (Decoys(rows=60),)):
        said = ready(Decoyer(), shown(own, rows), *guards)
        by_number = dict(zip(said.number.tolist(), said.rows, strict=True))
        for number, row in zip(own.tolist(), rows, strict=True):
            np.testing.assert_allclose(by_number[number], row, atol=STEP if guards else 0.0)
        assert said.number.tolist() == sorted(said.number.tolist())
        assert said.rows.shape == (60, WIDTH)


def test_half_of_what_a_client_with_more_rows_sends_are_decoys(own: np.ndarray) -> None:
    rows = np.random.default_rng(4).normal(size=(20, WIDTH))
    for draw in ("sticky", "fresh"):
        said = ready(Decoyer(), shown(own, rows), Decoys(rows=8, draw=draw), sent=8)
        assert np.isin(said.number, own).sum() == 4
    all_but_two = np.arange(CATALOGUE - 2)
    rows = np.zeros((CATALOGUE - 2, WIDTH))
    said = ready(Decoyer(), shown(all_but_two, rows), Decoys(rows=8), sent=8)
    assert np.isin(said.number, all_but_two).sum() == 6  # the catalogue has no other decoys


def test_no_low_bit_tells_own_rows_from_decoys(own: np.ndarray) -> None:
    """A gradient is a float32, a decoy drawn from it is not: on one grid both are alike."""
    rows = np.random.default_rng(5).normal(size=(20, WIDTH)).astype(np.float32).astype(np.float64)
    said = ready(Decoyer(), shown(own, rows), Decoys(rows=60))
    for values in (said.rows, said.more):
        np.testing.assert_array_equal(values / STEP, np.rint(values / STEP))


def test_the_message_says_whether_clip_changed_it(own: np.ndarray) -> None:
    rows = np.full((20, WIDTH), 0.5)
    for bound, clipped in ((0.1, True), (1.0, False)):
        chain = (Clip(bound=bound), Laplace(scale=0.2), UnsafeClear())
        assert Decoyer().ready(shown(own, rows), chain, DIMS)[1] is clipped


@pytest.mark.parametrize("bound", [1e-3, 0.1, 10.0])
@pytest.mark.parametrize("scale", [1e-6, 1e-3, 0.2, 1.0, 100.0, 1e6])
def test_o21_noise_has_the_scale_that_epsilon_is_computed_from(bound: float, scale: float) -> None:
    chain = [
        {"guard": "clip", "norm": "linf", "bound": bound},
        {"guard": "laplace", "scale": scale},
        {"guard": "unsafe_clear"},
    ]
    base = PRESETS["masks"].document()
    try:
        policy = PrivacyPolicy.model_validate({**base, "rules": {**base["rules"], "NOISED": chain}})
    except ValidationError as refused:
        assert "cannot be drawn" in str(refused)
        assert not bound / 2**15 <= scale <= 1024 * bound
        return
    message = Shown.partial(
        2000, number=np.arange(2000), rows=np.zeros((2000, 3)), more=np.zeros(3)
    )
    rules = policy.rules[Disclosure.NOISED]
    drawn = Decoyer().ready(message, rules, {"items": 2000, "row": 3, SENT: 2000})[0].rows
    assert np.abs(drawn).mean() == pytest.approx(scale, rel=0.1)


def test_noise_lies_on_a_grid_and_has_its_scale(own: np.ndarray) -> None:
    rows = np.zeros((20, WIDTH))
    chain = (Clip(bound=0.1), Laplace(scale=0.2), UnsafeClear())
    drawn = np.concatenate(
        [Decoyer().ready(shown(own, rows), chain, DIMS)[0].rows.ravel() for _ in range(40)]
    )
    step = 0.1 / (1 << 14)
    np.testing.assert_allclose(drawn / step, np.rint(drawn / step), atol=1e-6)
    assert np.abs(drawn).mean() == pytest.approx(0.2, rel=0.1)


def test_rows_that_no_item_has_are_refused(own: np.ndarray) -> None:
    rows = np.zeros((20, WIDTH))
    for wrong in (own % 2, own + CATALOGUE):
        with pytest.raises(UnfitMessage):
            ready(Decoyer(), shown(wrong, rows), Decoys(rows=60))
    with pytest.raises(UnfitMessage):
        ready(Decoyer(), shown(own, rows * np.nan), Decoys(rows=60))


def test_o21_epsilon_is_of_one_coordinate_and_of_fixed_noise_alone() -> None:
    clip = Clip(bound=0.1)
    assert local_epsilon((clip, Laplace(scale=0.2), UnsafeClear())) == pytest.approx(1.0)
    assert local_epsilon((clip, Laplace(scale=0.2, how="dynamic"), UnsafeClear())) is None
    assert local_epsilon((clip, Decoys(), UnsafeClear())) is None


def test_no_preset_and_no_safe_chain_shows_rows() -> None:
    for policy in PRESETS.values():
        names = [guard.guard for guard in policy.rules.get(Disclosure.NOISED, ())]
        assert names in ([], ["unsafe_clear"], ["clip", "own_noise", "seal"])
    base = PRESETS["masks"].document()
    for chain in (
        [{"guard": "clip"}, {"guard": "laplace"}, {"guard": "seal"}],
        [{"guard": "laplace"}, {"guard": "unsafe_clear"}],
        [{"guard": "clip", "norm": "l2"}, {"guard": "laplace"}, {"guard": "unsafe_clear"}],
    ):
        with pytest.raises(ValidationError):
            PrivacyPolicy.model_validate({**base, "rules": {**base["rules"], "NOISED": chain}})
    rules = {**base["rules"], "SUM": [{"guard": "clip"}, {"guard": "laplace"}]}
    with pytest.raises(ValidationError):
        PrivacyPolicy.model_validate({**base, "rules": rules})


def test_rows_are_not_pickled(own: np.ndarray) -> None:
    import pickle

    message = shown(own, np.zeros((20, WIDTH)))
    with pytest.raises(TypeError):
        pickle.dumps(message._partial)


def test_the_plan_says_how_many_rows_leave() -> None:
    dims = {"items": CATALOGUE}
    assert planned_rows((BOUND, Decoys(rows=60), UnsafeClear()), dims) == {SENT: 60}
    assert planned_rows((BOUND, Decoys(rows=999), UnsafeClear()), dims) == {SENT: CATALOGUE}
    assert planned_rows((UnsafeClear(),), dims) == {SENT: CATALOGUE}
    assert planned_rows((UnsafeClear(),), {}) == {}
