"""What left under an id that the plan does not hold: it is nothing, whatever its id looks like."""

from __future__ import annotations

import pytest

from audits.accounting.training import derived_from_records
from audits.evidence.steps import Case, Status
from audits.evidence.verify import verify
from audits.report.build import build_report
from protocols.disclosures.names import Disclosure
from protocols.errors import NotInPlan
from protocols.plan.steps import Service, Step
from protocols.policy.policy import PrivacyPolicy
from protocols.privacy.training import Training, plan_training
from tests.audits.forging import edit_last, forge
from tests.audits.verify_tools import CLIENT, fails_at, step

LIKE = (
    *("key.rows", "pair.up", "heads.up", "refusal.witness", "again.ack", "again.down"),
    *("again.up.SUM", "step.up.NOISED", "step.match.tags", "step.relayed.MIXED", "again.vote"),
    *("step.opened.SIMILARITY", "again.opened", "step.up.SUM.", "", "STEP.UP.SUM"),
)


@pytest.mark.parametrize("id", LIKE)
def test_an_id_that_is_not_planned_means_nothing_and_breaks_the_evidence(toy, view, id):
    changed = forge(toy, view, CLIENT, edit_last("release", item=id))
    (stray,) = (s for s in Case(changed).ledger_index.releases() if s.planned is None)
    assert (stray.item, stray.part, stray.step, stray.ask) == (id, None, None, "")
    assert not stray.keying
    fails_at("plan_vs_ledger", changed)
    found = verify(changed)
    assert step(found, "opened") is step(found, "keys") is Status.FAIL
    report = build_report(changed)
    assert {"UNPLANNED", "EVIDENCE_BROKEN"} <= {f.rule for f in report.findings}
    assert report.plan_diff.unplanned[0].item == id


def test_what_is_planned_has_its_part_step_and_ask(view):
    found = {s.item: (s.part, s.step, s.ask, s.keying) for s in Case(view).ledger_index.releases()}
    assert found["key.offer"] == (Service.KEYS, Step.OFFER, "", True)
    assert found["heads.ack"] == (Service.HEADS, Step.ACK, "", False)
    assert found["step.down"] == (Service.ASK, Step.DOWN, "step", False)
    assert found["step.up.SUM"] == (Disclosure.SUM, Step.UP, "step", False)


def test_a_renamed_plan_is_read_alike(toy):
    """Control: ids are names and nothing more; under others the audit finds the same Asks."""
    case = Case(toy.view())
    renamed = {item.id: f"x{number}" for number, item in enumerate(case.plan.items)}
    items = tuple(item.model_copy(update={"id": renamed[item.id]}) for item in case.plan.items)
    other = Case(toy.view())
    other.plan = case.plan.model_copy(update={"items": items})
    for entries in other.ledger_index.entries.values():
        for entry in entries:
            if "item" in entry:
                entry["item"] = renamed[entry["item"]]
    assert list(other.exchanges.all) == list(case.exchanges.all)
    for number, ask in case.exchanges.all.items():
        same = other.exchanges.all[number]
        assert (same.name, same.members, same.arrived) == (ask.name, ask.members, ask.arrived)
        assert (same.summed, same.protected) == (ask.summed, ask.protected) == (True, True)


def test_the_plan_finds_the_item_of_a_step_or_says_that_there_is_none(toy):
    assert toy.plan.find("step", Disclosure.SUM, Step.UP).id == "step.up.SUM"
    for name, part in (("again", Disclosure.SUM), ("step", Disclosure.MIXED)):
        with pytest.raises(NotInPlan):
            toy.plan.find(name, part, Step.UP)


@pytest.mark.parametrize("id", LIKE)
def test_what_is_not_planned_may_come_from_training_records(toy, id):
    policy = PrivacyPolicy.preset("masks").document()
    budget = {"epsilon": 10.0, "delta": 1e-4}
    facts = {"rate": 0.1, "batch": 8.0, "steps": 4, "epsilon": 4.0, "delta": 1e-4}
    wanted = PrivacyPolicy.model_validate({**policy, "training": {**facts, "budget": budget}})
    assert isinstance(wanted.training, Training)
    training = plan_training(wanted.training, 2)
    assert derived_from_records(toy.plan, training, id)
    assert derived_from_records(toy.plan, training, "step.up.SUM")
    for known in ("heads.ack", "refusal.client"):
        assert not derived_from_records(toy.plan, training, known)
