"""O4, O11, O14, O18: what plan, policy and form say of a total that one client reads."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pytest

from protocols.disclosures.sum.guards import RecordNoise
from protocols.errors import (
    NotAdmitted,
    NotInPlan,
    Refused,
)
from protocols.forms import Exchange, Form
from protocols.messages import Receiver, SumMessage, Vector, count, real
from protocols.plan.plan import Item, NoisePlan, Plan
from protocols.policy.policy import PrivacyPolicy
from protocols.rounds import Sealed
from tests.protocols.one_reader import READ, Told, got, hand_out, others, tell, told
from tests.protocols.test_training_sessions import POLICY as PRIVATE
from tests.protocols.toys import PULL, Start, changed_policy, deliver, maskless, toy_plan
from tests.protocols.wire import World

UP = "tell.up.SUM"


def test_o11_a_plan_lists_the_turns_and_who_learns_what() -> None:
    plan = toy_plan(READ, PrivacyPolicy.preset("he"), rounds=2)
    item, down = plan.item(UP), plan.item("deliver.down")
    assert (item.per_round, item.times) == (5, 10)
    assert item.learns["aggregator"].startswith("uniform noise")
    assert item.learns["addressee"].endswith("client-1, client-2, client-3, client-4, client-5")
    assert item.learns["other clients"] == "nothing"
    assert "total of all others" in down.learns["client"]
    assert any("collude with it" in warning for warning in plan.warnings)
    assert plan.item("tell.opened").learns == {"aggregator": "uniform noise"}
    ordinary = toy_plan(PULL, PrivacyPolicy.preset("he")).item("pull.opened")
    assert ordinary.learns == {"aggregator": "only the cohort's total"}
    clear = toy_plan(READ, PrivacyPolicy.preset("unsafe_plaintext"), bfv=None)
    assert clear.item(UP).unsafe and "EVERYTHING" in clear.item(UP).learns["aggregator"]


def test_o4_without_masks_no_total_is_for_one_client() -> None:
    with pytest.raises(NotAdmitted, match="mask"):
        toy_plan(READ, maskless())


def _noise(plan: Plan, id: str) -> NoisePlan:
    noise = plan.item(id).noise
    assert noise is not None
    return noise


def reserve(**asked: Any) -> dict[str, str | int]:
    stated = {"delta": "1e-05", "epsilon": "8.0", "head": "ab" * 32}
    return {"dataset": asked["dataset"], "entries": 1, **stated}


def test_o18_a_blind_is_no_share_of_the_noise() -> None:
    policy = PrivacyPolicy.preset("calibrated")
    ordinary = _noise(toy_plan(PULL, policy, bfv=None), "pull.up.SUM")
    plan = toy_plan(READ, policy, bfv=None)
    read = _noise(plan, UP)
    assert ordinary.honest - 1 == read.honest == policy.minimum_cohort
    assert read.releases == 15  # every turn is charged, the reader's own too

    def more(item: Item) -> Item:
        noise = item.noise and item.noise.model_copy(update={"honest": ordinary.honest})
        return item.model_copy(update={"noise": noise})

    items = tuple(map(more, plan.items))
    changed = plan.model_copy(update={"items": items})
    world = World(READ, policy, plan=changed, reserve=reserve).start()
    with pytest.raises(Refused):
        told(world)
    assert isinstance(world.clients["client-1"].last_error, NotInPlan)


@pytest.mark.parametrize("policy", ["calibrated", "ldp"])
def test_o14_totals_under_noise_are_read_as_others_are(policy: str) -> None:
    chosen = PrivacyPolicy.preset(policy)
    rules = dict(chosen.document()["rules"])
    rules["SUM"] = [
        {**g, "accept_noise": True} if g["guard"] == "own_noise" else g for g in rules["SUM"]
    ]
    chosen = changed_policy(policy, rules=rules)
    world = World(READ, chosen, clients=5, rounds=1, reserve=reserve).start()
    hand_out(world, told(world).handed(Told))
    noise = _noise(world.plan, UP)
    field = world.plan.item(UP).messages[0].fields[0]
    spread = float(noise.sigma) * float(field.step) * 2
    assert 0 < np.abs(got(world, "client-1") - others(world, "client-1")).max() < 8 * spread


class Rows(SumMessage):
    row: Vector = real("d", unit="weight", meaning="row i is of item i", held=True)


class ReadRows(Rows):
    receiver: ClassVar[Receiver] = "client"


@pytest.mark.parametrize(("kind", "enough"), [(Rows, 4), (ReadRows, 5)])
def test_o12_a_row_that_one_client_reads_rests_on_one_holder_fewer(
    kind: type[SumMessage], enough: int
) -> None:
    """Its reader may be one of those that hold it, and sends a blind. Control: the ordinary sum."""

    def plan(holders: int) -> Plan:
        exchanges = (Exchange("tell", (Start,), (kind,), tell),)
        form = Form("rows", READ.round, exchanges, holders=holders)
        return toy_plan(form, changed_policy("masks", holders=4, colluders=0), bfv=None)

    said = "a row of the total rests on at least 4 clients"
    assert any(said in warning for warning in plan(enough).warnings)
    with pytest.raises(NotAdmitted) as caught:
        plan(enough - 1)
    assert "may rest on 3 of the clients" in str(caught.value.why)


class Counted(SumMessage):
    receiver: ClassVar[Receiver] = "client"
    seen: int = count(unit="1/10000", meaning="share", moves=10_000)


def test_o19_a_total_that_is_handed_on_has_the_head_room_of_what_was_added() -> None:
    """Noise on counts widens each number too; else an honest run ends at its own plan."""
    document = PRIVATE.document()
    clip, quantise, *rest = document["rules"]["SUM"]
    noise = RecordNoise(epsilon=4.0, delta=1e-5).model_dump()
    document["rules"]["SUM"] = [clip, {**quantise, "bits": 12}, noise, *rest]
    policy = PrivacyPolicy.model_validate({**document, "capture": None})
    exchanges = (
        Exchange("tell", (Start,), (Counted,), tell, held_out=(Counted,)),
        Exchange("deliver", (Counted,), (), deliver),
    )
    plan = toy_plan(Form("count", READ.round, exchanges, by_gradients=True), policy, bfv=None)
    assert plan.item("tell.up.SUM").margin
    assert plan.item("deliver.down").dims["blind_total"] == plan.item("tell.up.SUM").body == 4


class Plain(SumMessage):
    move: Vector = real("d", unit="weight", meaning="a toy answer")


class Second(SumMessage):
    receiver: ClassVar[Receiver] = "client"
    move: Vector = real("d", unit="weight", meaning="another")


def test_forms_hold_such_a_total_to_one_ask_and_one_cohort() -> None:
    up, down = READ.exchanges
    with pytest.raises(TypeError, match="only sum"):
        Exchange("both", (Start,), (Told, Plain), tell)
    with pytest.raises(TypeError, match="only sum"):
        Exchange("both", (Told, Second), (), deliver)
    with pytest.raises(TypeError, match="cannot"):
        Exchange("back", (Plain,), (), deliver)
    with pytest.raises(ValueError, match="one Ask"):
        Form("never", READ.round, (down,))
    with pytest.raises(ValueError, match="whole cohort"):
        Form("drawn", READ.round, (up, down), drawn=4)
    with pytest.raises(ValueError, match="whole cohort"):
        READ.moved_by_totals()
    with pytest.raises(ValueError, match="one kind"):
        Sealed.joined([])


@pytest.mark.parametrize("receiver", ["cohort", "clients", "Client", ""])
def test_o11_no_total_is_read_by_the_aggregator_for_a_misspelt_receiver(receiver: str) -> None:
    """Control: with a receiver that is one the same class stands, and the plan says who reads."""

    def form(said: str) -> Form[Any]:
        kind: Any = type("Other", (Told,), {"receiver": said})
        return Form("other", READ.round, (Exchange("tell", (Start,), (kind,), tell),))

    with pytest.raises(TypeError, match="no receiver"):
        form(receiver)
    assert form("client").exchanges[0].addressed
