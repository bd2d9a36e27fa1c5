"""What depends on any client's data is never called control plane (P18), whatever it is made of."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import pytest

from audits.attacks._shared import payloads
from audits.attacks._shared.payloads import NO_DATA, not_tested, payloads_of, sent
from audits.report.build import build_report
from protocols.disclosures.names import Disclosure
from protocols.errors import NotAdmitted
from protocols.messages import Message
from protocols.plan.plan import Item
from protocols.plan.steps import Service
from protocols.policy.policy import PRESETS
from protocols.wire.control import CONTROL
from secure_fgl.catalogue import algorithm_names
from secure_fgl.config import Config
from secure_fgl.federation import Federation
from secure_fgl.store.finished_run import Run
from tests.laws.conftest import Recorded
from tests.laws.runs import POLICIES, PROTECTED, Recording, config, pairs, quick, record, steady

NOTHING = {"P18"}
ROWS = {"Examine", "RowSeeds", "Reveal", "Cosines", "SignedCut", "RowBoxes", "Row"}
MATCHED = {"Bundle", "Box", "CellBoxes", "CellPart", "RowParts", "RowTotals"}
OTHERS = {"Refusal", "Batch", "Pool", "OpenRequest", "Opened"}
"""Messages of the layer that a table of part and step names."""
SEEDS = {"synthetic_banks": 8, "synthetic_ratings": 8}


def said(recording: Recording) -> dict[str, list[Message]]:
    """Return item -> its messages, in the order in which they left."""
    found = defaultdict[str, list[Message]](list)
    for _, item, message in recording.said:
        found[item].append(message)
    return found


def alike(one: Message, other: Message, name: str) -> bool:
    return type(one) is type(other) and np.array_equal(getattr(one, name), getattr(other, name))


def depends(item: str, runs: list[dict[str, list[Message]]]) -> bool:
    """Tell whether a field is the same in two runs on the same data, and another one on others."""
    for first, again, other in zip(*(run[item] for run in runs), strict=False):
        for field in first.fields:
            same = alike(first, again, field.name)
            if same and not alike(first, other, field.name):
                return True
    return False


def of_other_data(name: str, policy: str, path: Any) -> Recording:
    """Record a run that differs in the clients' records, and in nothing that is public."""
    document = config(name, policy).model_dump(mode="json", exclude_unset=True)
    document["data"]["options"]["seed"] = SEEDS[document["data"]["name"]]
    return record(Config.parse(document), path / "run", policy=steady(name, policy))


def dependent(recorded: Recorded, name: str, policy: str, path: Any) -> dict[str, Item]:
    first = recorded(name, policy, repeats=True)
    again = recorded(name, policy, again=1, repeats=True)
    runs = [said(one) for one in (first, again, of_other_data(name, policy, path))]
    plan = first.plan
    return {id: plan.item(id) for id in runs[0] if depends(id, runs)}


def classes(recording: Recording, item: Item) -> set[str]:
    context = recording.parties.aggregator.context
    return set(payloads_of(item, context.plan, context.policy))


@pytest.mark.parametrize(
    ("name", "policy"), quick([(n, p) for n in algorithm_names() for p in POLICIES])
)
def test_what_depends_on_clients_data_is_never_control_plane(recorded, tmp_path, name, policy):
    first = recorded(name, policy, repeats=True)
    found = dependent(recorded, name, policy, tmp_path)
    assert found, "two runs on other data said the same: this test cannot fail"
    wrong = [id for id, item in found.items() if not classes(first, item) - NOTHING]
    assert wrong == []


def test_by_the_type_of_its_numbers_a_model_in_bytes_would_be_nothing(recorded, tmp_path):
    """The control: the guess that was made before, on the same items."""
    found = dependent(recorded, "fed_avg", "masks", tmp_path)
    guessed = {
        id
        for id, item in found.items()
        if item.disclosure is Disclosure.RELEASED
        and not any(f.dtype[0] == "f" and f.shape for m in item.messages for f in m.fields)
    }
    assert "train.down" in guessed


def plans(name: str) -> list[tuple[Any, Any]]:
    found = []
    for policy in PRESETS:
        federation = Federation.from_config(config(name, policy))
        try:
            found.append((federation.plan(), federation.policy))
        except NotAdmitted:
            continue
    return found


@pytest.mark.parametrize(("name", "policy"), quick(pairs(PROTECTED)))
def test_a_run_that_went_to_its_end_has_no_finding_about_what_did_not_leave(recorded, name, policy):
    report = build_report(Run(recorded(name, policy).path).view())
    assert {f.item for f in report.findings if f.rule == "MISSING"} == set()
    assert report.plan_diff.missing == ()


@pytest.mark.parametrize("name", algorithm_names())
def test_control_plane_is_what_no_data_enters_under_any_policy(name):
    layer = {kind.__name__ for kind in CONTROL}
    for plan, policy in plans(name):
        for item in plan.items:
            if payloads_of(item, plan, policy) == ("P18",):
                for message in item.messages:
                    public = message.disclosure is Disclosure.PUBLIC
                    assert message.name in NO_DATA if message.name in layer else public, item.id
        handed = [item for item in plan.items if item.model]
        assert not handed or "P19" in sent(plan, policy), "a model is handed out and none is listed"
        assert all("P19" in payloads_of(item, plan, policy) for item in handed)


def test_heads_of_budgets_are_control_plane_and_no_generators():
    found = [(plan, policy) for plan, policy in plans("fed_avg") if policy.budgets]
    assert found, "no policy of the presets keeps a budget: this test cannot fail"
    for plan, policy in found:
        heads = [item for item in plan.items if item.part is Service.BUDGET]
        assert [payloads_of(item, plan, policy) for item in heads] == [("P18",), ("P18",)]
        assert "P12" not in sent(plan, policy)
        assert "P12" not in {one.payload for one in not_tested(plan, policy, (), {})}


def test_every_message_of_the_layer_is_typed():
    """One that is new is data until somebody says that none enters it."""
    names = {kind.__name__ for kind in CONTROL}
    typed = [set(NO_DATA), set(payloads._HANDED_ON), ROWS, MATCHED, OTHERS]
    assert set.union(*typed) == names and sum(map(len, typed)) == len(names)
