"""A10 through a whole client: two canaries as far apart as its clip lets any two messages be."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from audits.attacks import Material
from audits.attacks._methods.statistics import Bound, Reading, ceiling, lower_bound
from audits.attacks._noise.local_release import CanaryRelease, local_releases
from audits.evidence.steps import Case
from crypto import ldp_vectors
from crypto import ldp_vectors as vectors
from crypto.ldp_vectors import on_grid
from crypto.samplers import Stream
from protocols.disclosures.names import Disclosure
from protocols.disclosures.noised.randomiser import plan_own, randomised, randomiser_of
from protocols.plan.plan import Item
from protocols.policy.guard import describe, guard_of
from protocols.policy.guards import Clip, OwnNoise
from protocols.privacy.noising import plan_noise
from tests.audits.attacks.made_up import attack_only
from tests.audits.noised_run import ENTRIES, NoisedRun, message
from tests.protocols.test_own_noise import SAY, Said, own
from tests.protocols.toys import toy_plan

KEY = bytes([7]) * 32
"""Pinned, as in test_told.py: a bound of 95 % may falsify an honest claim by chance."""
FEW, MANY = 5_000, 100_000
SOME = 12_000
LONG = pytest.mark.long
LAPLACE = "discrete_laplace"


class Told:
    """What `local_releases` asks of a run's tally: epsilon of one message, and delta."""

    delta = 1e-5

    def __init__(self, epsilon: float) -> None:
        self._epsilon = epsilon

    def planned_message(self, item: Item) -> float:
        return self._epsilon


def planned(mechanism: str, epsilon: float) -> tuple[Item, Any]:
    """Return an item whose client sends one message in a run, and its chain."""
    policy = own(alone=mechanism, noise={"epsilon": epsilon})
    chain = policy.chain(Said.disclosure)
    noise = plan_own(chain, [(ENTRIES, 1)], 6, policy.smallest_cohort)
    item = toy_plan(SAY, policy, bfv=None).item("say.up.NOISED")
    return item.model_copy(update={"noise": noise}), chain


def released(mechanism: str, epsilon: float) -> CanaryRelease:
    item, chain = planned(mechanism, epsilon)
    assert item.noise is not None
    tally: Any = Told(epsilon)
    (found,) = local_releases(item.noise, [item], tally, "P02", chain)
    assert isinstance(found, CanaryRelease)
    return found


def proved(release: CanaryRelease, runs: int) -> Bound:
    reading: Reading = "gaussian" if release.gaussian else "any mechanism"
    delta = release.delta if release.gaussian else 0.0
    record, stream = release.record(1), Stream(KEY)
    there, none = (
        release.scores(record, runs, stream, present=present) for present in (True, False)
    )
    return lower_bound(there, none, delta=delta, reading=reading)


@pytest.fixture
def halved(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Plant half of the noise in the client's own code."""
    real, told = vectors.shared, ldp_vectors.RandomisedResponse
    monkeypatch.setattr(vectors, "shared", lambda law, scale: real(law, scale / 2.0))
    monkeypatch.setattr(ldp_vectors, "RandomisedResponse", lambda many, one: told(many, 2 * one))
    randomiser_of.cache_clear()
    yield
    randomiser_of.cache_clear()


CELLS = [
    pytest.param(which, epsilon, runs, marks=() if (which, runs) == (LAPLACE, FEW) else LONG)
    for which in (LAPLACE, "discrete_gaussian")
    for epsilon, runs in ((4, FEW), (1, MANY), (4, MANY), (8, MANY))
]


@pytest.mark.parametrize(("which", "epsilon", "runs"), CELLS)
def test_an_honest_client_is_not_falsified(which: str, epsilon: int, runs: int) -> None:
    found = proved(released(which, epsilon), runs)
    assert found.epsilon <= epsilon
    assert found.epsilon > 0.6 * epsilon  # the attack is not a weak one


@pytest.mark.usefixtures("halved")
@pytest.mark.parametrize(("which", "epsilon", "runs"), CELLS)
def test_control_a_client_with_half_its_noise_is_caught(
    which: str, epsilon: int, runs: int
) -> None:
    assert proved(released(which, epsilon), runs).epsilon > epsilon


def test_canaries_are_clipped_and_differ_by_twice_the_clip() -> None:
    release = released("discrete_laplace", 4)
    for width in (1, 2, 4):
        apart = np.abs(release.record(width)).sum()
        assert release.norm - 2 * width <= apart <= release.norm == 2 * vectors.LEVELS
    unclipped = release.scores(release.record(1), 50, Stream(KEY), present=True)
    assert np.all(np.abs(unclipped) <= 4.001)  # as far as the claim goes, and not 10^9 times


def noised_run() -> NoisedRun:
    """Return a run in which each client said one vector a round under its own Laplace noise."""
    policy = own(alone="discrete_laplace")
    chain = policy.chain(Said.disclosure)
    guard = guard_of(policy.chain(Disclosure.SUM), OwnNoise)
    assert guard is not None
    sums = plan_noise(guard, 2**15 - 1, ENTRIES, 3, 1, 6).model_dump(exclude={"releases"})
    run = NoisedRun(clients=6, rounds=3, policy=policy, noise=sums)
    noise = plan_own(chain, [(ENTRIES, 3)], 6, policy.smallest_cohort)
    guards = tuple(describe(g) for g in chain)
    facts = {"disclosure": Disclosure.NOISED, "guards": guards, "noise": noise}
    run.more = (run.item("say.up.NOISED", (message("Said"),), **facts),)
    run.sent = ("say.up.NOISED",)
    return run


@pytest.mark.usefixtures("same_chance")
@pytest.mark.parametrize("half", [pytest.param(False, marks=LONG), True])
def test_the_attack_on_a_run_goes_through_the_client(
    half: bool, request: pytest.FixtureRequest
) -> None:
    """A falsified claim makes `audit attack` exit 7 (tests/secure_fgl/test_audit_cli.py)."""
    material = Material(Case(noised_run().view()))
    if half:
        request.getfixturevalue("halved")
    report = attack_only(material, ["A10"])
    (claim,) = (one for one in report.claims if "say.up.NOISED" in one.text)
    assert claim.status == ("falsified" if half else "not_falsified")
    rows = [
        r for r in report.rows if r.payload == "P02" and r.what == "client: record in one entry"
    ]
    assert [row.verdict for row in rows] == ["FAIL" if half else "PASS"]
    assert f"ceiling of a perfect attack: {ceiling(1_000):.4g}" in rows[0].reason


def test_the_ceiling_of_so_many_messages() -> None:
    assert ceiling(MANY // 2) == pytest.approx(9.5, abs=0.05)


@pytest.mark.parametrize("half", [False, True])
def test_sqkr_through_a_whole_client(half: bool, request: pytest.FixtureRequest) -> None:
    """A vector that the rotation gathers in few places tells most; caught at an epsilon of 1.

    Each entry at the cut takes a ninth of the squared norm, so at most nine of N places are there
    and all k bits are certain in one message of 9^k at best: at larger epsilon the symbol alone,
    as in test_told.py, can be attacked with so many messages.
    """
    item, chain = planned("sqkr", 1)
    clip, length = guard_of(chain, Clip), 64
    assert clip is not None and item.noise is not None
    honest = ldp_vectors.Sqkr(length, clip.bound, 1, hidden(item), bits=None)
    assert honest.length == 1
    if half:
        request.getfixturevalue("halved")
    gathered = np.zeros(honest.rotation.width)
    gathered[:7] = 3.0 * clip.bound / math.sqrt(honest.rotation.width)
    vector = honest.rotation.back(gathered)
    reader = randomiser_of(item.noise, length, clip.bound, item.label)
    scores = []
    for sign in (1.0, -1.0):
        stream, said = Stream(KEY), [Said(change=sign * vector)]
        bodies = (randomised(said, {"d": length}, item, chain, stream) for _ in range(SOME))
        told = np.array([reader.unpack(body)[0] for body in bodies])
        scores.append(np.where(told >> 1 < 7, 2.0 * (told & 1) - 1.0, 0.0))
    found = lower_bound(scores[0], scores[1], delta=0.0)
    assert 0.5 < found.epsilon <= 1.0 if not half else found.epsilon > 1.0


def hidden(item: Item) -> bytes:
    """Return the public seed of an item's rotation."""
    import hashlib

    return hashlib.sha256(b"secure-fgl/rotation\0" + item.label.encode()).digest()


def test_levels_of_a_canary_do_not_overflow() -> None:
    assert np.abs(on_grid(np.full(3, 1e9), 1.0, vectors.LEVELS, "l1")).sum() <= vectors.LEVELS
