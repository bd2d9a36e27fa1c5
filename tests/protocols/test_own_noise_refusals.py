"""Under noise of its own a client never refuses because of its data, whatever is raised over it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from algorithms.fcf import fcf
from protocols.errors import LocalProtocolError, Refused, Replay
from protocols.forms import Exchange, Form
from protocols.plan.learns import own_spending
from protocols.plan.steps import Step
from tests.algorithms.test_fed_per_gnn import ITEMS, site_of, task_of
from tests.protocols.test_own_noise import SAY, Said, _never, own, say, world
from tests.protocols.toys import PULL, Pull, Start, Toy, toy_plan
from tests.protocols.wire import World

RAISED = (
    FloatingPointError("overflow"),
    np.linalg.LinAlgError("Singular matrix"),
    ValueError("Expected more than 1 value per channel when training"),
    KeyError("trained"),
    RuntimeError("no edges"),
    Replay("A block of a gradient is said once, after the gradient was asked for."),
)


def failing(error: Exception) -> Any:
    def answer(site: Any, given: Any) -> Any:
        raise error

    return answer


@pytest.mark.parametrize("form", [PULL, SAY])
@pytest.mark.parametrize("error", RAISED, ids=lambda e: type(e).__name__)
def test_what_training_raises_over_its_data_does_not_leave(form: Any, error: Exception) -> None:
    played = world(form)
    played.sites["client-2"].answer = failing(error)
    assert played.start().round(1).answers == 5


def test_the_client_s_own_operator_is_told() -> None:
    played = world()
    played.sites["client-2"].answer = failing(RAISED[0])
    played.start().round(1)
    assert played.clients["client-2"].last_error is RAISED[0]


@pytest.mark.parametrize("fails", [True, False])
def test_training_that_failed_at_once_is_not_blamed_for_no_noised_gradient(
    monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    """Control: training that ends well, and took none, is a fault of the program."""

    def none_taken(exchange: Any) -> None:
        raise LocalProtocolError("Training took no noised gradient; nothing was sent.")

    played = world()
    if fails:
        played.sites["client-2"].answer = failing(RAISED[0])
    monkeypatch.setattr(played.clients["client-2"].spending, "check_trained", none_taken)
    if fails:
        assert played.start().round(1).answers == 5
    else:
        with pytest.raises(Refused):
            played.start().round(1)


def test_control_without_own_noise_it_refuses() -> None:
    played = World(PULL, "masks")
    played.sites["client-2"].answer = failing(RAISED[1])
    with pytest.raises(Refused):
        played.start().round(1)


SAID: tuple[Any, ...] = (
    lambda kind: kind(change=np.zeros(4)),  # one number for each record that it holds
    lambda kind: kind(change=np.full(5, np.longdouble("1e400"))),
    lambda kind: kind(change=None),
    lambda kind: kind(change=np.array([10**400] * 5, dtype=object)),
    lambda kind: None,
    lambda kind: (kind(change=np.zeros(5)), kind(change=np.zeros(5))),
)


@pytest.mark.parametrize(("form", "kind"), [(PULL, Pull), (SAY, Said)])
@pytest.mark.parametrize("say_so", SAID)
def test_what_an_algorithm_says_in_place_of_numbers_does_not_leave(
    form: Any, kind: Any, say_so: Any
) -> None:
    """Control: without noise of its own the client refuses."""
    worlds = [world(form), World(PULL, "masks")]
    for played in worlds if form is PULL else worlds[:1]:
        played.sites["client-2"].answer = lambda site, given: say_so(kind)
    assert worlds[0].start().round(1).answers == 5
    if form is PULL:
        with pytest.raises(Refused):
            worlds[1].start().round(1)


def tried(site: Toy, given: Start) -> None:
    """Train for oneself and say nothing."""
    if site.answer is not None:
        site.answer(site, given)


QUIET = Form(
    "quiet",
    _never,
    (Exchange("quiet", (Start,), (), tried), Exchange("say", (Start,), (Said,), say)),
)


def test_an_ask_that_is_only_acknowledged_is_so_whatever_training_did() -> None:
    """The plan says of the acknowledgement that it holds no data."""
    assert "quiet.ack: no data" in toy_plan(QUIET, own(), bfv=None).budget
    played = world(QUIET)
    played.sites["client-2"].answer = failing(FloatingPointError("overflow"))
    assert played.start().round(1).answers == 5


@pytest.mark.parametrize("rated", [True, False])
def test_a_crafted_table_does_not_tell_whether_an_item_was_rated(rated: bool) -> None:
    """One huge row makes FCF's equations singular for those alone who rated this item."""
    made = fcf(task_of("user_dot"))
    answer, start = made.forms[0].exchanges[0].answer, made.init(np.random.default_rng(0)).start
    weights, asked = np.zeros_like(start.weights), ITEMS - 1
    width = task_of("user_dot").layout()[0][1][1]
    weights[asked * width : (asked + 1) * width] = 2.0**60
    site = site_of(0, items=[asked if rated else asked - 1, 0, 1, 2, 3, 4])
    played = world()

    def solved(_: Any, given: Any) -> Any:
        answer(site, replace(start, weights=weights))
        return Pull(change=np.zeros(5))

    played.sites["client-2"].answer = solved
    assert played.start().round(1).answers == 5


def test_what_is_not_known_to_hold_no_data_makes_epsilon_infinite() -> None:
    items = toy_plan(PULL, own(), bfv=None).items
    assert own_spending(items).startswith("epsilon <= 8.000")
    (vote,) = (item for item in items if item.id == "pull.vote")
    unknown = vote.model_copy(update={"id": "pull.tagged", "step": Step.TAGGED})
    told = own_spending([*items, unknown])
    assert told.startswith("epsilon = infinity") and "pull.tagged" in told


def test_every_message_of_a_client_is_charged_or_said_to_hold_no_data() -> None:
    for clients in (5, 120):
        plan = toy_plan(PULL, own(), bfv=None, clients=[f"c{n:03d}" for n in range(clients)])
        for item in plan.items:
            if item.sender == "client" and item.id != "refusal.client":
                assert f"{item.id}: " in plan.budget


@pytest.mark.parametrize("length", [0.01, 100.0])
def test_whether_a_summand_was_clipped_stands_nowhere(length: float) -> None:
    """Ledgers and reports of it are handed out, and it is not noised."""
    played = world()
    played.sites["client-2"].delta = np.full(5, length)
    played.start().round(1)
    (sent,) = (e for e in played.entries("client-2") if e.get("item") == "pull.up.SUM")
    assert sent["clipped"] is False


def test_control_without_own_noise_it_does() -> None:
    played = World(PULL, "masks")
    played.sites["client-2"].delta = np.full(5, 100.0)
    played.start().round(1)
    (sent,) = (e for e in played.entries("client-2") if e.get("item") == "pull.up.SUM")
    assert sent["clipped"] is True
