"""The account's second unit: what a run spends of one training record, by its ledgers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from audits.accounting import models
from audits.accounting import training as accounting
from audits.accounting.account import account_of
from audits.accounting.models import Account
from audits.evidence.steps import Case, Verification
from protocols.errors import EvidenceError
from protocols.plan.plan import Plan
from protocols.policy.budget import Budget
from protocols.policy.policy import PrivacyPolicy
from protocols.privacy.accounting import INFINITE
from protocols.privacy.training import Training, TrainingPlan, plan_training
from tests.audits.noised_run import SCORE, TRAIN, NoisedRun, message

ROUNDS, STEPS = 3, 4
CAP = Budget(epsilon=10.0, delta=1e-4)
WANTED = Training(rate=0.1, batch=8.0, steps=STEPS, epsilon=4.0, delta=1e-4, budget=CAP)


def policy(training: Training | None = WANTED) -> PrivacyPolicy:
    facts = training.model_dump(mode="json") if training else None
    return PrivacyPolicy.model_validate(
        {**PrivacyPolicy.preset("masks").document(), "training": facts}
    )


@dataclass
class PrivateRun(NoisedRun):
    """A run with private training; the account bears it out unless something is changed.

    Attributes:
        lies: other facts of the plan's training.
        entry: other facts of the ledgers' training entries.
        bare: rounds of client-01 without a training entry.
        again: rounds that every client recorded twice.
        reserved: facts of the graphs' budget entry; None: none.
        late: the reservation stands behind the first training.
    """

    lies: Any = None
    entry: Any = None
    bare: tuple[int, ...] = ()
    again: tuple[int, ...] = ()
    reserved: Any = None
    late: bool = False

    def plan(self) -> Plan:
        made = plan_training(WANTED, self.rounds, ("Score",))
        facts = {**made.model_dump(), **(self.lies or {})}
        return super().plan().model_copy(update={"training": TrainingPlan(**facts)})

    def _entries(self, name: str, plan: Plan) -> Iterator[tuple[str, dict[str, Any]]]:
        spent = {"epsilon": "4", "delta": "0.0001", "entries": 1, "unit": "graph"}
        facts = {"dataset": "toy#graph", "head": "0" * 64, **spent, **(self.reserved or {})}
        budget, seen = ("budget", facts), 0
        if not self.late and self.reserved is not False:
            yield budget
        for kind, entry in super()._entries(name, plan):
            if kind == "release" and entry["item"] == TRAIN:
                seen += 1
                skipped = name == "client-01" and seen in self.bare
                for _ in range(0 if skipped else 1 + (seen in self.again)):
                    yield "training", self._training(plan, seen)
                if self.late and seen == 1:
                    yield budget
            yield kind, entry

    def _training(self, plan: Plan, round: int) -> dict[str, Any]:
        made = plan_training(WANTED, self.rounds)
        facts = {"clip": made.clip, "noise": made.noise, "rate": made.rate, "unit": made.unit}
        return {**facts, "round": round, "steps": STEPS, **(self.entry or {})}


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave Opacus out: importing it takes seconds."""
    monkeypatch.setattr(accounting, "opacus", lambda history, delta: [("Opacus RDP", "left out")])


def run(**changes: Any) -> Account:
    made = PrivateRun(clients=4, rounds=ROUNDS, policy=policy(), budget=None, **changes)
    return made.account()


def test_o16_an_honest_run_states_the_second_unit_with_all_its_labels(quick: None) -> None:
    found = run()
    assert (found.verdict, found.reasons) == ("NOT FALSIFIED", ())
    single = found.records
    assert single is not None
    labels = single.recorded
    assert (labels.unit, labels.adjacency, labels.model) == ("graph", "add-remove", "local")
    assert (labels.scope, labels.delta) == ("run", "0.0001")
    assert 3.9 < labels.as_float() <= single.target.as_float() == 4.0
    assert found.epsilon.value == INFINITE  # for a client as a whole nothing is promised
    assert found.epsilon.unit == "client"
    assert "For one training graph: ε = " in single.statement
    assert "Score counts validation and test graphs: for those ε = ∞" in single.statement
    for client in single.clients:
        assert (client.rounds, client.steps) == (ROUNDS, ROUNDS * STEPS)
        assert client.budget is not None and client.budget.epsilon.unit == "graph"
        assert client.budget.cap.value == "10.0"


def test_o21_opacus_agrees() -> None:
    single = run().records
    assert single is not None
    engines = {engine.engine: engine for engine in single.engines}
    assert set(engines) == {"own RDP", "Opacus RDP", "Opacus PRV"}
    assert not any(engine.differs for engine in engines.values())
    assert float(engines["Opacus RDP"].ratio) == pytest.approx(1.0, abs=0.05)
    assert 0.75 < float(engines["Opacus PRV"].ratio) < 1.0


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"bare": (2,)}, "an update of client-01 left in a round without private training"),
        ({"again": (1, 2, 3)}, "the ledgers show epsilon"),
        ({"entry": {"noise": "0.5"}}, "the ledgers show epsilon"),
        ({"entry": {"noise": "much"}}, "the ledgers show epsilon"),
        ({"entry": {"rate": "1.0"}}, "the ledgers show epsilon"),
        ({"entry": {"steps": 400}}, "the ledgers show epsilon"),
        ({"entry": {"clip": "9.0"}}, "clipped in another way"),
        ({"reserved": False}, "before a budget for its graphs was reserved"),
        ({"late": True}, "before a budget for its graphs was reserved"),
        ({"reserved": {"epsilon": "10.5"}}, "for single graphs is exceeded"),
        ({"reserved": {"epsilon": "3.9"}}, "reserved less for its graphs than the run comes to"),
        ({"lies": {"noise": "0.5"}}, "is not what the policy's comes to"),
        ({"lies": {"releases": 500}}, "the planned steps give epsilon"),
    ],
)
def test_o20_what_does_not_bear_the_target_out_falsifies(
    changes: dict[str, Any], why: str, quick: None
) -> None:
    found = run(**changes)
    assert found.verdict == "FALSIFIED"
    assert any(why in reason for reason in found.reasons), found.reasons


def test_o16_an_update_without_training_makes_epsilon_infinite(quick: None) -> None:
    single = run(bare=(3,)).records
    assert single is not None and single.recorded.value == INFINITE
    spent = {client.name: client.epsilon.value for client in single.clients}
    assert spent["client-01"] == INFINITE and spent["client-02"] != INFINITE


def test_o16_scores_may_leave_without_training_and_other_messages_may_not(quick: None) -> None:
    base = PrivateRun(clients=4, rounds=ROUNDS, policy=policy(), budget=None)
    for name, verdict in (("Score", "NOT FALSIFIED"), ("Portrait", "FALSIFIED")):
        extra = base.item(SCORE, (message(name),))
        found = run(more=(extra,), sent=(SCORE,), bare=())
        assert found.verdict == "NOT FALSIFIED"  # each round was trained for
        alone = PrivateRun(
            clients=4, rounds=ROUNDS, policy=policy(), budget=None, more=(extra,), sent=(SCORE,)
        )
        entries = list(alone._entries("client-01", alone.plan()))
        case = Case(alone.view())
        single = accounting.Recorded(case, case.plan.training)  # type: ignore[arg-type]
        assert single.bare["client-01"] is False
        # the same release in a round that nobody trained for
        late = [(k, {**e, "round": 9} if e.get("item") == SCORE else e) for k, e in entries]
        alone._entries = lambda name, plan, late=late: iter(late)  # type: ignore[method-assign]
        assert alone.account().verdict == verdict


def test_o16_a_refusal_narrows_the_scope(quick: None) -> None:
    single = run(refusals=("client-02",)).records
    assert single is not None and single.recorded.scope == "covered messages"


def test_o16_a_policy_with_training_and_a_plan_without_is_falsified(quick: None) -> None:
    made = NoisedRun(clients=4, rounds=ROUNDS, policy=policy(), budget=None)
    found = made.account()
    assert found.verdict == "FALSIFIED"
    assert "the plan holds none" in found.reasons[0]
    plain = NoisedRun(clients=4, rounds=ROUNDS, policy=policy(None), budget=None).account()
    assert plain.verdict == "NO CLAIM" and plain.records is None


@pytest.mark.parametrize("lies", [{"delta": "2"}, {"delta": "x"}, {"epsilon": "inf"}])
def test_a_plan_whose_numbers_cannot_be_counted_with_is_no_evidence(lies: dict[str, str]) -> None:
    with pytest.raises(EvidenceError, match="private training"):
        run(lies=lies)


def test_reading_an_account_changes_nothing(quick: None) -> None:
    made = PrivateRun(clients=4, rounds=ROUNDS, policy=policy(), budget=None)
    view = made.view()
    first, second = (account_of(Case(view), Verification(())) for _ in range(2))
    assert first == second and isinstance(first, models.Account)
