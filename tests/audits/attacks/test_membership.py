"""A12 on planted models: memorised records found, nulls at chance, a weak attack, lost time.

Trials: 3 to 20 clients of 60 to 240 records, half of them members; 20 seeds for the null. All draws
are pinned, so no result is false by chance.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import count
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from audits.attacks import AttackRow, Candidates, Material, Released, attack
from audits.attacks._methods.statistics import auc
from audits.attacks._shared.records_asked import halves, likelihood
from audits.attacks.membership import ATTACK, TPR
from audits.evidence.steps import Case
from protocols.policy.policy import PrivacyPolicy
from secure_fgl.checking import subject
from secure_fgl.config import Config
from secure_fgl.federation import Federation
from tests.audits.attacks.planted import judged

pytestmark = pytest.mark.usefixtures("same_chance")

Array = Any
LEARNT = 3.0  # how far training on a record moves a model's confidence, in its spreads


@dataclass(frozen=True)
class Made:
    """A made-up model: which records moved its confidence, and by how much."""

    moved: Mapping[str, Array]
    seed: int


class World:
    """Clients whose records are easy or hard by themselves, and models that know more of some.

    Args:
        clients, records: how many; half of the records of each trained.
        lift: of the released model: how far its confidence in its members is up.
        learnt: of models that are trained for comparison.
        easier: how much easier members are by themselves.
        seed: of everything.
    """

    def __init__(
        self,
        clients: int = 10,
        records: int = 120,
        *,
        lift: float = 0.0,
        learnt: float = LEARNT,
        easier: float = 0.0,
        seed: int = 1,
    ) -> None:
        rng = np.random.default_rng([seed, 5])
        self.learnt, self.trained = learnt, 0
        names = [f"client-{n:02d}" for n in range(clients)]
        members = {name: rng.permutation(records) < records // 2 for name in names}
        self.hard = {n: 2.0 * rng.normal(size=records) - easier * members[n] for n in names}
        known = {name: rng.normal(size=(3, records)) for name in names}
        self.candidates = {
            n: Candidates(
                members[n], known[n], np.array([f"{n}/{r}" for r in range(records)], dtype="S64")
            )
            for n in names
        }
        self.shared = Made({name: lift * own for name, own in members.items()}, seed)

    def train(self, parts: Mapping[str, Array], seed: int) -> Made:
        self.trained += 1
        return Made({name: self.learnt * part for name, part in parts.items()}, seed)

    def confidence(self, model: Any, client: str) -> Array:
        rng = np.random.default_rng([model.seed, int(client[-2:])])
        drawn = rng.normal(size=len(self.hard[client]))
        return drawn - self.hard[client] + model.moved.get(client, 0.0)

    def released(self, **changes: Any) -> Released:
        facts: dict[str, Any] = {
            "task": "node", "candidates": self.candidates, "shared": {"final": self.shared},
            "own": {}, "train": self.train, "confidence": self.confidence,
        }  # fmt: skip
        return Released(**{**facts, **changes})


def rows(case: Case, given: Released | None, **facts: Any) -> list[AttackRow]:
    found = attack(Material(case=case, released=given, **facts), ["A12"]).rows
    return [row for row in found if row.id == "A12"]


def test_a_model_that_memorised_its_records_fails_and_is_listed_no_longer(clear: Case) -> None:
    world = World(18, lift=8.0, seed=2)
    report = attack(Material(case=clear, released=world.released()), ["A12"])
    loss, lira, low = [row for row in report.rows if row.id == "A12"]
    for row in (loss, lira):
        assert row.verdict == "FAIL" and row.payload == "P19" and row.protected is not None
        assert float(row.protected.value) >= 0.95
    assert loss.what == "final model, by loss" and "with 4 shadow models" in lira.what
    assert low.metric == TPR.metric and low.verdict == "FAIL"
    assert "not exchangeable" in loss.reason and "no epsilon" in loss.reason
    assert not any(gap.payload == "P19" for gap in report.not_tested)
    assert "client-" not in report.text()


def test_lira_finds_what_the_loss_alone_does_not(clear: Case) -> None:
    """Records differ more in how hard they are than training moves them."""
    loss, lira = judged(ATTACK, Material(case=clear, released=World(lift=2.0).released()))
    assert lira[0].protected.mean() > loss[0].protected.mean() + 0.05
    assert lira[1].verdict == "FAIL"


def test_a_model_that_knows_nothing_of_its_records_passes(clear: Case) -> None:
    for row in rows(clear, World(20, 240).released())[:2]:
        assert row.verdict == "PASS", row.reason
        assert row.raw is not None and float(row.raw.value) > 0.75


def test_a_model_that_no_client_vouches_for_never_passes(clear: Case) -> None:
    """An aggregator writes a model of its own making; what a model shows still counts."""
    alone = frozenset({"final"})
    for row in rows(clear, World(20, 240).released(untaken=alone))[:2]:
        assert row.verdict == "NOT_TESTED" and "no client's record vouches" in row.reason
    failed = rows(clear, World(18, lift=8.0, seed=2).released(untaken=alone))
    assert {row.verdict for row in failed} == {"FAIL"}


def test_nulls_are_at_chance_in_nineteen_of_twenty_seeds(clear: Case) -> None:
    """As the rule reads them: above chance with all of their interval. The seeds are pinned."""
    above, means = [0, 0], np.zeros((20, 2))
    for seed in range(20):
        given = World(6, 60, lift=8.0, seed=seed).released()
        for n, (_, found) in enumerate(judged(ATTACK, Material(case=clear, released=given))[:2]):
            null = found.values["null"]
            above[n] += null.low > 0.5
            means[seed, n] = null.value
            assert found.verdict != "PASS"  # the model knows its records
    assert max(above) <= 1
    assert np.abs(means.mean(axis=0) - 0.5).max() < 0.02


def test_weakened_it_is_inconclusive_and_never_pass(clear: Case) -> None:
    for row in rows(clear, World(learnt=0.0).released()):
        assert row.verdict == "INCONCLUSIVE" and row.reason.startswith("weak attack")


@pytest.mark.parametrize(("easier", "verdict"), [(2.6, "PASS"), (0.0, "FAIL")])
def test_records_that_are_easy_by_themselves_are_no_leak(
    clear: Case, easier: float, verdict: str
) -> None:
    """A model without the site tells them apart as well; without that they would be a finding."""
    world = World(20, easier=easier, lift=0.0 if easier else 3.0, learnt=9.0)
    loss, *_ = rows(clear, world.released())
    assert loss.protected is not None and float(loss.protected.value) > 0.75
    assert loss.verdict == verdict, loss.reason


@pytest.mark.parametrize(("marked", "verdict"), [(True, "FAIL"), (False, "INVALID")])
def test_records_that_two_sites_train_on_are_no_null(
    clear: Case, marked: bool, verdict: str
) -> None:
    """Every site holds half of the first one's records; left in, the null finds members."""
    world = World(6, lift=8.0)
    first = world.candidates["client-00"]
    half = np.arange(120) < 60
    for name, one in world.candidates.items():
        members, marks = one.members.copy(), one.marks.copy()
        members[half] = first.members[half]
        if marked:
            marks[half] = first.marks[half]
        world.candidates[name] = replace(one, members=members, marks=marks)
    world.shared = Made({n: 8.0 * one.members for n, one in world.candidates.items()}, 1)
    trained = world.train

    def together(parts: Mapping[str, Array], seed: int) -> Made:
        made = trained(parts, seed)
        if len(parts) > 1 or not (first.members[half] == next(iter(parts.values()))[half]).all():
            return made  # the half of a shadow model, or of those without the site
        both = dict.fromkeys(world.candidates, LEARNT * half * first.members)
        return Made({**both, **made.moved}, seed)

    loss = rows(clear, world.released(train=together))[0]
    assert loss.verdict == verdict, loss.reason


def test_a_model_of_the_same_records_is_no_prior(clear: Case) -> None:
    """Sites hold most records together: trained elsewhere on them, a model would know members."""
    world = World(12, lift=8.0)
    for one in world.candidates.values():
        one.marks[np.flatnonzero(one.members)[:54]] = [f"all/{n}" for n in range(54)]

    def train(parts: Mapping[str, Array], seed: int) -> Made:
        marks = [world.candidates[name].marks[part] for name, part in parts.items()]
        known = np.concatenate(marks)
        moved = {n: 8.0 * np.isin(one.marks, known) for n, one in world.candidates.items()}
        return Made(moved, seed)

    loss = rows(clear, world.released(train=train))[0]
    assert loss.verdict == "FAIL", loss.reason
    for one in world.candidates.values():  # nobody holds anything alone, and no null can be made
        one.marks[one.members] = [f"all/{n}" for n in range(60)]
    assert {row.verdict for row in rows(clear, world.released(train=train))} == {"NOT_TESTED"}


def test_clients_own_models_are_asked_by_their_own_records(clear: Case) -> None:
    world = World()
    members = {name: one.members for name, one in world.candidates.items()}
    own = {name: Made({name: 8.0 * part}, 9) for name, part in members.items()}
    why = "no model is handed out to all clients of this run"
    given = world.released(shared={}, own=own, unshared=why)
    none, loss, lira = rows(clear, given)
    assert none.verdict == "NOT_APPLICABLE" and none.reason == why
    assert (loss.verdict, lira.verdict) == ("FAIL", "FAIL") and "own model" in loss.what


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"shared": {}, "unshared": "what the clients share is no whole model"}, "no whole model"),
        ({"unkept": "no client's own model opens here"}, "opens here"),
        ({"candidates": {"client-00": World().candidates["client-00"]}}, "two clients"),
    ],
)
def test_what_cannot_be_asked_is_not_tested(clear: Case, changes: Any, why: str) -> None:
    found = [row for row in rows(clear, World().released(**changes)) if why in row.reason]
    assert [row.verdict for row in found] == ["NOT_TESTED"]


def test_where_no_model_could_be_looked_at_the_row_says_why(clear: Case) -> None:
    (row,) = rows(clear, None, unreleased="the data cannot be read here")
    assert (row.verdict, row.reason) == ("NOT_TESTED", "the data cannot be read here")
    bare = SimpleNamespace(plan=SimpleNamespace(items=()), policy=clear.policy)
    given = Material(case=bare, unreleased="nothing was handed out")  # type: ignore[arg-type]
    (found,) = ATTACK.run(given, np.random.default_rng(0), "quick").rows
    assert not getattr(found, "arises", True)


@pytest.mark.parametrize("seconds", [0.5, 30.0])
def test_a_time_budget_that_ends_inside_is_not_tested_and_listed(
    clear: Case, seconds: float
) -> None:
    """Two looks at the clock are before the attack begins, each further one before a training."""
    world, times = World(6), count()
    given = Material(case=clear, released=world.released())
    report = attack(given, ["A12"], time_budget=seconds, clock=lambda: float(next(times)))
    (row,) = [row for row in report.rows if row.id == "A12"]
    assert row.verdict == "NOT_TESTED" and "time budget" in row.reason
    assert (0 < world.trained < 38) is (seconds > 1)
    assert any(gap.payload == "P19" and "A12: " in gap.why for gap in report.not_tested)


def test_a_crash_is_an_error_and_divergence_is_not_tested(clear: Case) -> None:
    for error, verdict in ((KeyError, "ERROR"), (FloatingPointError, "NOT_TESTED")):

        def fails(*_: Any, error: type[Exception] = error) -> Any:
            raise error("a secret")

        (row,) = rows(clear, World(3).released(train=fails))
        assert row.verdict == verdict and "secret" not in row.reason


def test_each_record_is_in_half_of_all_shadow_models() -> None:
    inside = halves(11, 6, np.random.default_rng(0))
    assert inside.shape == (6, 11) and (inside.sum(axis=0) == 3).all()
    assert set(inside.sum(axis=1)) == {5, 6} and len({row.tobytes() for row in inside}) == 6


@pytest.mark.parametrize("shadows", [4, 16])
def test_shadow_models_take_out_how_hard_a_record_is(shadows: int) -> None:
    rng = np.random.default_rng(shadows)
    inside, members = halves(400, shadows, rng), np.arange(400) < 200
    hard = 3.0 * rng.normal(size=400)
    known = 2.0 * inside - hard + rng.normal(size=inside.shape)
    asked = 5.0 + 0.5 * (2.0 * members - hard + rng.normal(size=400))  # another scale
    scores = likelihood(asked, known, inside)
    bare, best = (auc(s[members], s[~members]) for s in (asked, scores))
    ceiling = auc((asked + 0.5 * hard)[members], (asked + 0.5 * hard)[~members])
    assert bare < 0.75 and ceiling - 0.08 < best <= ceiling + 0.02
    assert not likelihood(np.ones(400), np.ones((shadows, 400)), inside).any()


@pytest.fixture(scope="module")
def mixing() -> Any:
    """A case with the plan of a run whose clients mix their neighbours' models."""
    document = subject.document("d_fed_gnn", "pilot")
    plan = Federation.from_config(Config.parse(document)).prepare().plan
    policy = PrivacyPolicy.preset("pilot")
    return SimpleNamespace(plan=plan, policy=policy)


def means(case: Any, world: World, lift: float) -> list[tuple[Any, Any]]:
    """A mean that is one neighbour's own model: `lift` is what it learnt of its records."""
    own = {n: Made({n: lift * one.members}, 9) for n, one in world.candidates.items()}
    given = world.released(shared={}, read={name: (one, one) for name, one in own.items()})
    found = judged(ATTACK, Material(case=case, released=given))
    return [one for one in found if one[0].payload == "P21"]


@pytest.mark.parametrize(("lift", "verdict"), [(8.0, "FAIL"), (0.0, "INCONCLUSIVE")])
def test_a_mean_that_is_one_overfitted_model_fails_and_a_weak_one_never_passes(
    mixing: Any, lift: float, verdict: str
) -> None:
    rows = means(mixing, World(10), lift)
    assert {row.what.split(",")[0] for row, _ in rows} == {"the mean of its neighbours' models"}
    assert len(rows) >= 2 and {one.verdict for _, one in rows} == {verdict}
    for row, _ in rows:  # models that the client has no part in know nothing of it
        assert abs(row.null.mean() - 0.5) < 0.05


def test_the_model_that_was_given_is_raw_and_not_what_its_site_makes_alone(mixing: Any) -> None:
    (loss, _), *_ = means(mixing, World(10, learnt=0.0), 8.0)
    assert loss.raw.mean() > 0.95


def test_without_a_mean_the_row_says_why(mixing: Any) -> None:
    given = World().released(unread="two clients are needed")
    found = ATTACK.run(Material(case=mixing, released=given), np.random.default_rng(0), "quick")
    (row,) = [row for row in found.rows if row.payload == "P21"]
    assert (row.reason, row.arises) == ("two clients are needed", True)  # type: ignore[union-attr]
