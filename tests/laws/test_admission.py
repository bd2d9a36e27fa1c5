"""Before anything leaves: admitted or refused, planned in full, and nothing beyond the plan."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from algorithms.tasks.evaluation import evaluated
from protocols.disclosures.names import Disclosure
from protocols.errors import (
    LocalProtocolError,
    NotAdmitted,
    PolicyError,
    Refused,
    RemoteProtocolError,
    SecureFglError,
)
from protocols.plan.plan import Item, Plan, at_most
from protocols.plan.steps import Way
from protocols.policy.guards import Seal, Sign
from protocols.policy.policy import PRESETS, PrivacyPolicy
from secure_fgl import federation as face
from secure_fgl.catalogue import algorithm_names
from secure_fgl.checking.laws import undeclared, unlike_the_plan, used
from secure_fgl.checking.subject import CLIENTS
from secure_fgl.data import loading
from secure_fgl.errors import PlanDrift
from secure_fgl.federation import Federation
from tests.laws.conftest import Recorded
from tests.laws.runs import ALIKE, POLICIES, config, pairs, record, spread

NAMES = algorithm_names()
IN_TURN = ("masks", "ckks", "he", "unsafe_plaintext")  # as far as recordings are there anyhow
PUBLIC_ONLY = PrivacyPolicy(name="public_only", rules={Disclosure.PUBLIC: (Sign(),)})
NO_SUM = PrivacyPolicy(
    name="no_sum",
    rules={
        Disclosure.SEALED: (Seal(),),
        Disclosure.RELEASED: (Seal(),),
        Disclosure.PUBLIC: (Sign(),),
    },
)


def test_the_catalogue_is_not_empty() -> None:
    assert {"fed_avg", "local"} <= set(NAMES)


@pytest.mark.parametrize(("name", "policy"), pairs(POLICIES))
def test_admitted_in_some_form(name: str, policy: str) -> None:
    plan = Federation.from_config(config(name, policy)).plan()
    assert plan.algorithm == name and plan.form
    assert any(item.sender == "client" and item.per_round for item in plan.items)


def sends_nothing(name: str) -> bool:
    """Tell whether an algorithm has a form in which a client says nothing of its data."""
    task, plain = Federation.from_config(config(name)).build()
    forms = evaluated(plain, task, at="downloaded").forms
    return any(not exchange.back for form in forms for exchange in form.exchanges[:1])


@pytest.mark.parametrize(
    ("name", "policy"),
    [
        pytest.param(name, policy, id=f"{name}-{policy.name}")
        for name in NAMES
        for policy in (NO_SUM, PUBLIC_ONLY)
        if policy is PUBLIC_ONLY or not sends_nothing(name)  # what sends nothing needs no SUM
    ],
)
def test_refused_before_data_folder_or_ledger_exist(
    name: str, policy: PrivacyPolicy, tmp_path: Path
) -> None:
    federation = Federation(policy=policy, config=config(name))
    with (
        patch.object(loading, "read_dataset", side_effect=AssertionError("data was touched")),
        pytest.raises(NotAdmitted) as refused,
    ):
        federation.run(tmp_path / "run")
    assert not list(tmp_path.iterdir())
    text = str(refused.value)
    assert policy.name in text and name in text and "message" in text


@pytest.mark.parametrize("name", NAMES)
def test_a_message_type_that_is_not_listed_is_refused(name: str, tmp_path: Path) -> None:
    listed = PRESETS["pilot"].model_copy(update={"name": "listed", "messages": ("Nothing",)})
    with pytest.raises(NotAdmitted):
        Federation(policy=listed, config=config(name)).run(tmp_path / "run")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", NAMES)
def test_too_small_a_cohort_is_refused_before_data_folder_or_ledger_exist(
    name: str, tmp_path: Path
) -> None:
    few = PRESETS["pilot"].model_copy(update={"name": "few", "minimum_cohort": CLIENTS})
    with (
        patch.object(loading, "read_dataset", side_effect=AssertionError("data was touched")),
        pytest.raises(SecureFglError, match="too small"),
    ):
        Federation(policy=few, config=config(name)).run(tmp_path / "run")
    assert not list(tmp_path.iterdir())


# --- what a plan says ---------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "policy"), pairs(POLICIES))
def test_every_field_has_shape_unit_and_meaning(name: str, policy: str) -> None:
    federation = Federation.from_config(config(name, policy))
    plan, (task, plain) = federation.plan(), federation.build()
    assert list(undeclared(plan, task, plain, federation.config.evaluation.at)) == []


@pytest.mark.parametrize("name", NAMES)
def test_every_item_says_who_learns_what(name: str) -> None:
    plan = Federation.from_config(config(name)).plan()
    silent = {item.id for item in plan.items if not item.learns}
    assert silent == {"key.call", "pair.call"}  # they say nothing but that it begins


@pytest.mark.parametrize("name", NAMES)
def test_a_plan_holds_no_count_of_the_data(name: str) -> None:
    """Two data sets of other sizes under the same padded bound give the same plan (O28)."""
    plans = []
    for more in (0, 1):
        chosen = config(name).model_dump(mode="json")
        options = chosen["data"]["options"]
        if "transactions" in options:
            options["transactions"] += 2 * more
        else:
            options["each"] -= more
        plans.append(Federation.from_config(type(config(name)).parse(chosen)).plan())
    assert plans[0].text() == plans[1].text()


# --- nothing beyond the plan --------------------------------------------------------------------


def without(plan: Plan, item: Item) -> Plan:
    return plan.model_copy(update={"items": tuple(i for i in plan.items if i.id != item.id)})


def changed(plan: Plan, item: Item, **facts: Any) -> Plan:
    new = item.model_copy(update=facts)
    return plan.model_copy(update={"items": tuple(new if i == item else i for i in plan.items)})


TAMPERS: dict[str, Callable[[Plan, Item], Plan]] = {
    "removed": without,
    "fewer_times": lambda plan, item: changed(
        plan, item, times=item.times - 1, per_round=min(item.per_round, item.times - 1)
    ),
    "smaller": lambda plan, item: changed(plan, item, bytes=item.bytes - 1),
    "smaller_body": lambda plan, item: changed(plan, item, body=item.body - 1),
}


@pytest.mark.parametrize(("name", "tamper"), spread(NAMES, sorted(TAMPERS), ALIKE))
def test_a_run_beyond_its_approved_plan_does_not_start(
    name: str, tamper: str, tmp_path: Path
) -> None:
    federation = Federation.from_config(config(name))
    plan = federation.plan()
    for item in plan.items:
        if tamper == "smaller_body" and not item.body:
            continue
        with pytest.raises(PlanDrift) as drifted:
            federation.run(tmp_path / "run", plan=TAMPERS[tamper](plan, item))
        assert item.id in str(drifted.value)
    assert not list(tmp_path.iterdir())


def blamed(error: Exception | None) -> bool:
    """Tell whether an error, or the reason behind a refusal, is one of the message layer's own."""
    reason = error.__cause__ if isinstance(error, Refused) else error
    return isinstance(reason, (PolicyError, RemoteProtocolError, LocalProtocolError))


SHARED = ("pair.", "heads.", "evaluate.", "close.")
"""What begins the names of items that stand in every algorithm's plan; keys differ (`key.`)."""
SHOWN = {"fed_avg", "local"}
"""Whose runs show for all that these are held, under `tamper_policy`; the rest is `long`."""
OWN = {"d_fed_gnn", "fed_avg", "fed_ego", "fed_per_gnn", "fed_pub"}
"""Whose items that others do not all have show for all that these are held."""
ORDER = sorted(TAMPERS)


def tamper_policy(name: str) -> str:
    return "he" if name == "fed_avg" else "masks"  # each item of either is seen once


def test_what_is_shared_is_shown_by_few() -> None:
    plans = {n: Federation.from_config(config(n, tamper_policy(n))).plan() for n in NAMES}
    shared = {n: {i.id for i in used(p) if i.id.startswith(SHARED)} for n, p in plans.items()}
    assert set().union(*shared.values()) == set().union(*(shared[name] for name in SHOWN))
    del shared["d_fed_gnn"]  # no round of it is scored
    assert set.intersection(*shared.values()) == shared["local"]  # whoever adds one has it tried


def way_of(item: Item) -> tuple[str, ...]:
    """An item is held by who takes its part and step, whatever its Ask is called."""
    return item.part, item.step, item.sender


def own_ways(name: str) -> set[tuple[str, ...]]:
    items = used(Federation.from_config(config(name, tamper_policy(name))).plan())
    return {way_of(item) for item in items if not item.id.startswith(SHARED)}


def test_what_is_not_shared_is_shown_by_few() -> None:
    assert set().union(*map(own_ways, NAMES)) == set().union(*map(own_ways, OWN))


def tampered(name: str, shared: bool, tamper: str = "") -> list[tuple[Item, str]]:
    """Return an algorithm's items, each with `tamper`; without one, with each tampering in turn.

    Every item passes one and the same gateway, so in turn shows what all tamperings of all items
    would. The turn of two algorithms differs, so an item that both have is tampered with in two
    ways.
    """
    plan = Federation.from_config(config(name, tamper_policy(name))).plan()
    items = [item for item in used(plan) if item.id.startswith(SHARED) is shared]
    found = []
    for place, item in enumerate(items, NAMES.index(name)):
        wanted = tamper or ORDER[place % len(ORDER)]
        if wanted == "smaller_body" and not item.body:
            wanted = "" if tamper else "smaller"  # nothing is smaller than an empty body
        if wanted:
            found.append((item, wanted))
    return found


@pytest.mark.parametrize("name", NAMES)
def test_tamperings_in_turn_leave_out_no_item_and_no_tampering(name: str) -> None:
    both = [*tampered(name, False), *tampered(name, True)]
    plan = Federation.from_config(config(name, tamper_policy(name))).plan()
    assert {item.id for item, _ in both} == {item.id for item in used(plan)}
    assert {way for _, way in tampered(name, False)} == set(TAMPERS)
    assert name not in SHOWN or {way for _, way in tampered(name, True)} == set(TAMPERS)


@pytest.mark.parametrize(
    ("name", "shared", "tamper"),
    [
        pytest.param(
            name,
            shared,
            tamper,
            id=f"{name}-{'shared' if shared else 'own'}-{tamper or 'in_turn'}",
            marks=() if shown else pytest.mark.long,
        )
        for name in NAMES
        for shared in (False, True)
        for tamper in ("", *ORDER)
        for shown in (not tamper and name in (SHOWN if shared else OWN),)
    ],
)
def test_what_is_absent_from_the_plan_is_refused_at_run_time(
    name: str, shared: bool, tamper: str, tmp_path: Path, recorded: Recorded
) -> None:
    """Even where the comparison of plans is skipped: the gateway holds on its own."""
    policy = tamper_policy(name)
    assert recorded(name, policy).run is not None  # control: with the plan as it is, it runs
    chosen = config(name, policy)
    plan = Federation.from_config(chosen).plan()
    before = sorted(other for other in OWN if other < name) if name in OWN and not tamper else ()
    done_before = set().union(*map(own_ways, before))  # each way once, by the first who has it
    for item, way in tampered(name, shared, tamper):
        if not shared and way_of(item) in done_before:
            continue
        path = tmp_path / item.id
        with patch.object(face, "drift", return_value=[]):
            recording = record(chosen, path, plan=TAMPERS[way](plan, item), fails=True)
        done = item.id == "heads.ack"  # its clients refuse, but all rounds are done by then
        assert done or blamed(recording.error), (item.id, recording.error)
        sent = recording.envelopes().values() if recording.taps else ()  # refused before the start
        travelled = [e for e in sent if e.header.item == item.id]
        routes = {(e.header.sender, e.header.recipient) for e in travelled}
        most = item.times - 1 if way == "fewer_times" else 0
        assert len(travelled) <= most * max(len(routes), 1), item.id
        assert (recording.run is None) is not done


@pytest.mark.parametrize(("name", "policy"), [*spread(NAMES, IN_TURN, ALIKE), *pairs([])])
def test_planned_bytes_are_the_bytes_sent_and_counts_stay_within_times(
    name: str, policy: str, recorded: Recorded
) -> None:
    recording = recorded(name, policy)
    assert list(unlike_the_plan(recording.plan, recording.envelopes())) == []


@pytest.mark.parametrize("name", NAMES)
def test_the_totals_of_the_plan_bound_what_a_client_sends(name: str, recorded: Recorded) -> None:
    recording = recorded(name, "he")
    sent = sum(
        len(data)
        for data, envelope in recording.envelopes().items()
        if envelope.header.sender == "client-1"
    )
    planned = [item for item in used(recording.plan) if item.sender == "client"]

    def whole(item: Item) -> int:
        return item.bytes * item.times

    assert sent == sum(map(whole, planned))
    # Of the two ways of a sum the plan's totals count the larger one, and not both.
    items = [i for i in recording.plan.items if i.sender == "client" and (i.way or i in planned)]
    at_once, bound = [i for i in items if i.way is Way.ONE_ANSWER], at_most(items, whole)
    assert sent < bound if at_once else sent == bound
    assert sum(map(whole, items)) == bound + sum(map(whole, at_once))
