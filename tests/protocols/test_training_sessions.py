"""Private training inside a run: reserved, recorded, counted, and refused where it is missing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from protocols.errors import BudgetExceeded, LocalProtocolError, NotInPlan
from protocols.forms import Exchange, Form
from protocols.policy.budget import Budget
from protocols.policy.policy import PrivacyPolicy
from protocols.privacy.noising import PrivateSteps
from protocols.privacy.training import Training, training_divergence
from tests.protocols.toys import D, Pull, Start, Toy
from tests.protocols.wire import World, refused, uploads

CAP = Budget(epsilon=20.0, delta=1e-4)
WANTED = Training(rate=0.5, batch=4.0, steps=2, epsilon=8.0, delta=1e-4, budget=CAP)
POLICY = PrivacyPolicy.model_validate(
    {
        **PrivacyPolicy.preset("masks").document(),
        "training": WANTED.model_dump(mode="json"),
        "rekey_rounds": 10,
    }
)


def private(site: Toy, given: Start) -> Pull:
    """Take as many noised gradients as the test says, by default as many as there are."""
    taken = getattr(site, "takes", WANTED.steps)
    change = np.zeros(D)
    for _ in range(taken):
        change += site.training.step(6, D, lambda p: np.ones((len(p), D)))  # type: ignore[attr-defined]
    return Pull(change=np.clip(change, -0.4, 0.4))


FORM = Form("pull", lambda *_: iter(()), (Exchange("pull", (Start,), (Pull,), private),), True)


class Store:
    """Stands for the sites' budget stores."""

    def __init__(self, fits: bool = True) -> None:
        self.asked: list[dict[str, Any]] = []
        self.fits = fits

    def __call__(self, **facts: Any) -> dict[str, str | int]:
        if not self.fits:
            raise BudgetExceeded("The privacy budget does not cover this run.")
        self.asked.append(facts)
        text = {"delta": "0.0001", "epsilon": "8", "head": "ab" * 32}
        return {"dataset": facts["dataset"], "entries": 1, **text}


class PrivateWorld(World):
    """A world whose clients train privately; `armed` says which of them can."""

    def __init__(self, *, armed: bool = True, form: Any = FORM, **facts: Any) -> None:
        self.armed = armed
        super().__init__(form, POLICY, **facts)

    def _common(self, name: str) -> Any:
        context, *rest = super()._common(name)
        if self.armed and name in self.names:
            context.training = PrivateSteps(self.plan.training)
            self.sites[name].training = context.training  # type: ignore[attr-defined]
        return context, *rest


def test_o20_the_whole_run_is_reserved_before_anything_else_for_its_own_unit() -> None:
    store = Store()
    world = PrivateWorld(reserve=store, rounds=3)
    assert [asked["dataset"] for asked in store.asked] == ["toy#graph"] * 5
    assert store.asked[0]["cap"] == CAP
    assert store.asked[0]["rdp"] == training_divergence(world.plan.training)
    kinds = world.kinds(world.names[0])
    assert not kinds  # nothing is durable yet, and nothing left
    world.start()
    (entry,) = [e for e in world.entries(world.names[0]) if e["kind"] == "budget"]
    assert entry["unit"] == "graph" and entry["dataset"] == "toy#graph"


def test_o20_a_run_beyond_the_budget_does_not_start() -> None:
    with pytest.raises(BudgetExceeded):
        PrivateWorld(reserve=Store(fits=False))


def test_every_round_is_recorded_once_before_its_answer_leaves() -> None:
    world = PrivateWorld(reserve=Store(), rounds=2).start()
    for number in (1, 2):
        total = world.round(number).total(Pull)
        assert np.any(total.change)
    entries = world.entries(world.names[0])
    found = [e for e in entries if e["kind"] == "training"]
    plan = world.plan.training
    assert [e["round"] for e in found] == [1, 2]
    for entry in found:
        assert (entry["noise"], entry["rate"], entry["clip"]) == (plan.noise, plan.rate, plan.clip)
        assert (entry["steps"], entry["unit"]) == (2, "graph")
        (sent,) = [
            e for e in entries if e.get("item") == "pull.up.SUM" and e["round"] == entry["round"]
        ]
        assert entry["seq"] < sent["seq"]


def test_two_answers_of_a_round_share_its_gradients() -> None:
    twice = Exchange("pull", (Start,), (Pull,), private, per_round=2)
    world = PrivateWorld(reserve=Store(), form=Form("pull", lambda *_: iter(()), (twice,), True))
    for site in world.sites.values():
        site.takes = 1  # type: ignore[attr-defined]
    world.start().prepare(1)
    for _ in range(2):
        world.pump(world.ask(1))
        assert np.any(world.aggregator.reply().total(Pull).change)
    kinds = world.kinds(world.names[0])
    assert kinds.count("training") == 1


@pytest.mark.parametrize(("takes", "why"), [(0, LocalProtocolError), (3, NotInPlan)])
def test_an_answer_with_too_few_or_too_many_gradients_is_refused(takes: int, why: type) -> None:
    world = PrivateWorld(reserve=Store()).start()
    world.prepare(1)
    site = world.sites[world.names[0]]
    site.takes = takes  # type: ignore[attr-defined]
    for delivery in world.ask(1):
        if delivery.to == world.names[0]:
            assert refused(world.deliver(delivery))
    assert isinstance(world.clients[world.names[0]].last_error, why)


def test_a_client_without_private_steps_does_not_begin() -> None:
    with pytest.raises(LocalProtocolError, match="draw private batches"):
        PrivateWorld(reserve=Store(), armed=False)
    with pytest.raises(LocalProtocolError, match="no privacy budget"):
        PrivateWorld(reserve=None)


def test_o20_a_client_refuses_a_plan_with_less_noise_than_its_policy_asks_for() -> None:
    honest = PrivateWorld(reserve=Store()).plan
    weaker = honest.training.model_copy(update={"noise": "0.3"})
    plan = honest.model_copy(update={"training": weaker})
    with pytest.raises(NotInPlan, match="private training"):
        PrivateWorld(reserve=Store(), plan=plan)
    bare = honest.model_copy(update={"training": None})
    with pytest.raises(NotInPlan, match="disagree"):
        PrivateWorld(reserve=Store(), plan=bare, armed=False)


def test_o15_two_clients_of_one_world_share_no_draws() -> None:
    world = PrivateWorld(reserve=Store()).start()
    world.prepare(1)
    said: dict[str, np.ndarray] = {}
    for name, site in world.sites.items():
        inner = site.training.step  # type: ignore[attr-defined]

        def step(*args: Any, inner: Any = inner, name: str = name) -> np.ndarray:
            said[name] = inner(*args)
            return said[name]

        site.training = type("Spy", (), {"step": staticmethod(step)})()  # type: ignore[attr-defined]
    uploads(world, world.ask(1))
    assert len({found.tobytes() for found in said.values()}) == len(world.names)
