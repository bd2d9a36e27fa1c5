"""A10: whether the noise delivers the epsilon that is claimed for it.

Trials: 20,000 on each side of a bound. The heads
of ledgers are pinned, and with them all draws, so no result is false by chance.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from audits.attacks import AttackReport, AttackRow, Material
from audits.attacks._methods.statistics import ceiling
from audits.attacks._noise import noise_code
from audits.attacks._noise import release as _release
from audits.attacks._noise.release import Release
from audits.attacks._noise.releases import releases
from audits.evidence.steps import Case
from crypto.samplers import Stream
from protocols.disclosures.sum.layout import SumLayout
from protocols.plan.plan import Plan
from protocols.policy.budget import Budget
from protocols.policy.policy import PrivacyPolicy
from protocols.privacy.noising import SAMPLERS, PrivateSteps, on_grid
from protocols.privacy.training import Training, plan_training
from tests.audits.attacks.made_up import attack_only as attack
from tests.audits.noised_run import NoisedRun
from tests.audits.toy_run import run_toy

GAUSSIAN, LAPLACE = "discrete_gaussian", "discrete_laplace"
CODE = "code of sums: on the grid, within the sensitivity"
Numbers = npt.NDArray[np.float64]

pytestmark = pytest.mark.usefixtures("same_chance")


def stream(seed: int = 1) -> Stream:
    return Stream(np.random.default_rng(seed).bytes(32))


def tried(run: NoisedRun, **more: Any) -> AttackReport:
    return attack(Material(Case(run.view())), ["A10"], **more)


def noised(mechanism: str = GAUSSIAN, **more: Any) -> NoisedRun:
    return NoisedRun(noise={"mechanism": mechanism}, **more)


def verdicts(report: AttackReport) -> dict[str, str]:
    return {row.what: row.verdict for row in report.rows}


def number(row: AttackRow, name: str) -> float:
    return float(getattr(row, name).value)


# --- runs -------------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", [GAUSSIAN, LAPLACE])
def test_an_honest_run_is_not_falsified(mechanism: str) -> None:
    began = time.process_time()
    report = tried(noised(mechanism))
    assert time.process_time() - began < 10
    assert set(verdicts(report).values()) == {"PASS"}
    assert {row.payload for row in report.rows} == {"P06"}
    for row in report.rows[:-1]:
        claimed = number(row, "prior")
        assert number(row, "null") == 0 < number(row, "protected") < claimed < number(row, "raw")
        assert f"ceiling of a perfect attack: {ceiling(10_000, delta=1e-5):.4g}" in row.reason or (
            "read as Gaussian" in row.what
        )
    best = max(number(row, "protected") for row in report.rows[:-1])
    assert best > 0.6 * number(report.rows[0], "prior")  # the attack is not a weak one
    assert [c.status for c in report.claims] == ["not_falsified", "untested"]
    assert (report.claims[0].trials, report.claims[0].confidence) == (20_000, "0.95")


def broken(change: Callable[[Any, Stream, int], Numbers]) -> dict[str, Any]:
    """Return samplers that draw something else."""

    class Broken:
        def __init__(self, real: Any, scale: float) -> None:
            self.real, self.scale = real, scale

        def sample(self, source: Stream, count: int) -> Numbers:
            return change(self, source, count)

    return {name: lambda scale, real=real: Broken(real, scale) for name, real in SAMPLERS.items()}


@cache
def made(real: Any, scale: float) -> Any:
    return real(scale)  # its tables take longer than its draws


def halved(self: Any, source: Stream, count: int) -> Numbers:
    found: Numbers = made(self.real, self.scale / 2).sample(source, count)
    return found


def repeated(self: Any, source: Stream, count: int) -> Numbers:
    """Draw one value for eight entries: what a stream that is begun anew would give."""
    found = made(self.real, self.scale).sample(source, -(-count // 8))
    return np.repeat(found, 8)[:count]


def reals(self: Any, source: Stream, count: int) -> Numbers:
    rng = np.random.default_rng(source.words(4))
    return rng.normal(scale=self.scale, size=count)


@pytest.mark.parametrize("mechanism", [GAUSSIAN, LAPLACE])
def test_o18_half_the_noise_is_falsified(mechanism: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_release, "SAMPLERS", broken(halved))
    report = tried(noised(mechanism))
    assert "FAIL" in verdicts(report).values()
    assert report.claims[0].status == "falsified"
    assert float(report.claims[0].epsilon_lb) > float(report.claims[0].epsilon_claim)


def test_o15_noise_that_repeats_itself_is_falsified(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_release, "SAMPLERS", broken(repeated))
    found = verdicts(tried(noised()))
    assert found["client: record in 8 entries"] == "FAIL"


def test_o14_noise_off_the_grid_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(noise_code, "SAMPLERS", broken(reals))
    report = tried(noised())
    row = next(row for row in report.rows if row.what == CODE)
    assert row.verdict == "FAIL" and number(row, "protected") > 0.99


def test_o14_a_vector_longer_than_the_sensitivity_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = SumLayout.encode

    def unclipped(self: SumLayout, messages: Any, source: Stream, **more: Any) -> Any:
        levels, clipped = real(self, messages, source)
        zero = self.columns[0].grid.levels  # type: ignore[union-attr]
        return (levels - zero) * 2 + zero, clipped

    monkeypatch.setattr(SumLayout, "encode", unclipped)
    assert verdicts(tried(noised()))[CODE] == "FAIL"


def test_a_claim_above_the_ceiling_is_inconclusive_and_untested() -> None:
    run = noised(LAPLACE)
    report = tried(NoisedRun(noise={"mechanism": LAPLACE, "sigma": _less(run, 40.0)}))
    found = verdicts(report)
    assert set(found.values()) == {"INCONCLUSIVE", "PASS"} and found[CODE] == "PASS"
    assert report.claims[0].status == "untested"
    assert float(report.claims[0].ceiling) < float(report.claims[0].epsilon_claim)


def _less(run: NoisedRun, factor: float) -> str:
    noise = next(item.noise for item in run.plan().items if item.noise is not None)
    return repr(float(noise.sigma) / factor)


@dataclass
class ClearRun(NoisedRun):
    """A run whose noised vectors leave singly."""

    def plan(self) -> Plan:
        made = super().plan()
        items = [i.model_copy(update={"unsafe": i.noise is not None}) for i in made.items]
        return made.model_copy(update={"items": tuple(items)})


def test_o18_a_vector_in_clear_has_only_its_own_noise() -> None:
    alone, summed = (next(releases(Case(run.view()))) for run in (ClearRun(), NoisedRun()))
    assert (alone.shares, summed.shares) == (1, 4)
    assert alone.epsilon > 2 * summed.epsilon
    report = tried(ClearRun())
    assert "FAIL" not in verdicts(report).values()
    assert report.claims[0].status == "not_falsified"


def test_without_noise_there_is_no_claim() -> None:
    report = attack(Material(Case(run_toy("pilot").view())), ["A10"])
    assert [row.verdict for row in report.rows] == ["NOT_APPLICABLE"]
    assert "no epsilon is claimed" in report.rows[0].reason
    assert report.claims == ()


def test_noise_that_cannot_be_counted_with_is_an_error() -> None:
    report = tried(NoisedRun(noise={"sigma": "-1.0"}))
    assert [row.verdict for row in report.rows] == ["ERROR"]


def test_one_run_gives_one_report() -> None:
    view = noised().view()
    one, other = (attack(Material(Case(view)), ["A10"]).text() for _ in range(2))
    assert one == other


# --- releases ---------------------------------------------------------------------------------


def test_records_are_as_long_as_the_sensitivity_and_alternate() -> None:
    release = next(releases(Case(noised().view())))
    for width in (1, 8):
        record = release.record(width)
        length = float(np.linalg.norm(record))
        assert release.norm - np.sqrt(width) <= length <= release.norm
        assert np.array_equal(np.sign(record), [(-1.0) ** n for n in range(width)])
    assert release.widths(8 * release.shares) == (1, 8)
    assert release.widths(release.shares) == (1,)


def test_releases_are_drawn_with_all_their_shares() -> None:
    release = Release("P06", "", "client", 1.0, 1e-5, GAUSSIAN, 100.0, 9, 1000.0, 1)
    record = np.array([1.0])
    none = release.scores(record, 20_000, stream(), present=False)
    there = release.scores(record * 1000.0, 20_000, stream(), present=True) / 1000.0
    assert np.std(none) == pytest.approx(300.0, rel=0.03)
    assert np.mean(there) - np.mean(none) == pytest.approx(1000.0, rel=0.02)
    weak = release.scores(record, 20_000, stream(), present=False, weaker=10.0)
    assert np.std(weak) == pytest.approx(30.0, rel=0.03)


# --- private training -------------------------------------------------------------------------

CAP = Budget(epsilon=10.0, delta=1e-4)
WANTED = Training(rate=0.5, batch=8.0, steps=2, epsilon=4.0, delta=1e-4, budget=CAP)


def private() -> PrivacyPolicy:
    document = PrivacyPolicy.preset("masks").document()
    return PrivacyPolicy.model_validate({**document, "training": WANTED.model_dump(mode="json")})


@dataclass
class PrivateRun(NoisedRun):
    """A run whose clients train with noise on single graphs."""

    def plan(self) -> Plan:
        made = plan_training(WANTED, self.rounds)
        return super().plan().model_copy(update={"training": made})


def training() -> AttackReport:
    return tried(PrivateRun(policy=private(), budget=None))


TRAINING_CODE = "code of training: on the grid, within the sensitivity"


def test_a_step_of_private_training_is_not_falsified() -> None:
    report = training()
    assert set(verdicts(report).values()) == {"PASS"}
    assert {c.unit for c in report.claims} == {"graph"}
    assert [c.status for c in report.claims] == ["not_falsified", "untested"]
    assert not any("Gaussian" in row.what for row in report.rows)  # a mixture is none


def test_o21_records_that_are_always_drawn_break_a_claim_that_counts_on_sampling(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    low = WANTED.model_copy(update={"rate": 0.01, "epsilon": None, "noise": 0.6})
    monkeypatch.setitem(globals(), "WANTED", low)
    assert training().claims[0].status == "not_falsified"

    def every(self: Stream, count: int) -> Numbers:
        return np.zeros(count)

    monkeypatch.setattr(Stream, "unit", every)
    assert training().claims[0].status == "falsified"


def test_training_without_its_noise_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def bare(self: PrivateSteps, records: int, size: int, gradients: Any) -> Numbers:
        return np.zeros(size)

    monkeypatch.setattr(PrivateSteps, "step", bare)
    found = verdicts(training())
    assert found[TRAINING_CODE] == "FAIL"


def test_gradients_beyond_the_clip_norm_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    real = on_grid
    monkeypatch.setattr(noise_code, "on_grid", lambda given, clip: 2 * real(given, clip))
    assert verdicts(training())[TRAINING_CODE] == "FAIL"
