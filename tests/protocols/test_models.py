"""Models that clients compute themselves: every lie about one is refused (`plan.models`, A20)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from protocols.disclosures.names import Disclosure
from protocols.disclosures.released.messages import SharedTotal
from protocols.disclosures.sum.view import Summands
from protocols.errors import BadEnvelope, LocalProtocolError, NotInPlan, Refused
from protocols.keys.pairs import CommonKey
from protocols.plan.learns import Models
from protocols.plan.steps import Service, Step
from protocols.policy.policy import PrivacyPolicy
from protocols.rounds import Ask, Cohort, Round
from protocols.wire.envelope import Envelope
from tests.laws.runs import spread
from tests.protocols.toys import TRAIN, D, Start, Update, changed_policy
from tests.protocols.wire import World, refused

MASKED = ["masks", "he", "ckks"]


def moved(state: Start, cohort: Cohort) -> Round[Start]:
    total = (yield Ask(cohort, given=state, back=Update)).total(Update)
    return Start(weights=(state.weights + total.delta / total.count).astype(np.float32))


ZERO = Start(weights=np.zeros(D, np.float32))
MOVED = replace(replace(TRAIN, round=moved).moved_by_totals(reach=1.0), start=ZERO)


def world_of(policy: Any = "masks", **facts: Any) -> World:
    return World(MOVED, policy, **{"rounds": 5, **facts}).start()


def played(world: World, state: Start, number: int, members: Any = None) -> Start:
    """Play one honest round."""
    reply = world.round(number, given=state, back=(Update,), members=members)
    steps = MOVED.round(state, Cohort(world.names))
    next(steps)
    try:
        steps.send(reply)
    except StopIteration as stop:
        return stop.value
    raise AssertionError


def asked(world: World, number: int, state: Start) -> list[Any]:
    """Deliver an Ask to everybody; return who refused."""
    world.prepare(number)
    answers = {d.to: world.deliver(d) for d in world.ask(number, given=state, back=(Update,))}
    return [name for name, answer in answers.items() if refused(answer)]


def reason(world: World, name: str) -> str:
    return str(world.clients[name].last_error)


@pytest.mark.parametrize("policy", MASKED)
def test_the_model_itself_is_never_sent_and_every_client_has_it(policy: str) -> None:
    world = world_of(policy)
    assert all("Start" not in {m.name for m in item.messages} for item in world.plan.items)
    assert world.plan.find("train", Service.ASK, Step.DOWN).model == "recomputed"
    state = ZERO
    for number in (1, 2, 3):
        state = played(world, state, number)
    got: list[Start] = []
    for site in world.sites.values():
        site.answer = lambda s, given: got.append(given) or Update(delta=s.delta, count=s.count)
    played(world, state, 4)
    assert len(got) == len(world.names)
    assert all(given.weights.tobytes() == state.weights.tobytes() for given in got)


@pytest.mark.parametrize("policy", MASKED)
@pytest.mark.parametrize("rounds", [0, 1, 2])
def test_a20_a_crafted_model_is_refused_by_everybody(policy: str, rounds: int) -> None:
    world, state = world_of(policy), ZERO
    for number in range(1, rounds + 1):
        state = played(world, state, number)
    crafted = Start(weights=state.weights + np.float32(2**-20) * np.eye(1, D, 1, np.float32)[0])
    assert asked(world, rounds + 1, crafted) == list(world.names)
    assert "not the one that follows" in reason(world, world.names[0])
    assert all(site.asked == rounds for site in world.sites.values())  # nothing was computed


@pytest.mark.parametrize("policy", MASKED)
def test_a20_the_control_where_models_are_taken_as_sent(policy: str) -> None:
    world = world_of(changed_policy(policy, models="as_sent"))
    assert world.plan.find("train", Service.ASK, Step.DOWN).model == "bounded"
    state = played(world, ZERO, 1)
    assert asked(world, 2, Start(weights=state.weights + np.float32(0.1))) == []


def _changed(at: str, place: int) -> Callable[[SharedTotal], dict[str, Any]]:
    def change(total: SharedTotal) -> dict[str, Any]:
        data = bytearray(getattr(total, at))
        data[place] ^= 1
        return {at: bytes(data)}

    return change


LIES: dict[str, Callable[[SharedTotal], dict[str, Any]]] = {
    "the first weight": _changed("total", 0),
    "the count": _changed("total", -1),
    "a check": _changed("check", 0),
    "one client less": _changed("survivors", 0),
    "one asked less": lambda total: {"members": bytes([total.members[0] & ~16])},
    "another round": lambda total: {"round": total.round + 1},
    "another Ask": lambda total: {"exchange": total.exchange + 1},
    "one left out": lambda total: {"before": 0},
}


@pytest.mark.parametrize(("lie", "policy"), spread(list(LIES), MASKED))
def test_a_changed_total_is_refused(policy: str, lie: str) -> None:
    world, state = world_of(policy), ZERO
    for number in (1, 2):
        state = played(world, state, number)
    totals = world.aggregator.totals._totals
    fields = {field.name: getattr(totals[-1], field.name) for field in SharedTotal.fields}
    totals[-1] = SharedTotal(**{**fields, **LIES[lie](totals[-1])})
    assert asked(world, 3, state) == list(world.names)


def test_a_total_of_another_round_is_not_taken_again() -> None:
    world, state = world_of("masks"), ZERO
    kept = []
    for number in (1, 2):
        state = played(world, state, number)
        kept += world.aggregator.totals._totals[-1:]
    first, second = kept
    fields = {field.name: getattr(first, field.name) for field in SharedTotal.fields}
    told = SharedTotal(**{**fields, "exchange": second.exchange, "before": first.exchange})
    world.aggregator.totals._totals[-1] = told
    assert asked(world, 3, state) == list(world.names)


@pytest.mark.parametrize("policy", MASKED)
def test_a_shift_before_the_opening_is_refused(policy: str, monkeypatch: Any) -> None:
    """The aggregator makes the ciphertext that is opened: it can add to it what it likes."""
    world, state = world_of(policy), ZERO
    honest = Summands._integers

    def shifted(self: Summands, summed: Any) -> Any:
        summed = summed.copy()
        summed[0] += summed.dtype.type(3)
        return honest(self, summed)

    with monkeypatch.context() as patch:
        patch.setattr(Summands, "_integers", shifted)
        state = played(world, state, 1)
    assert asked(world, 2, state) == list(world.names)
    assert "not what the clients it names added up" in reason(world, world.names[0])


@pytest.mark.parametrize("policy", MASKED)
@pytest.mark.parametrize(
    "away", [(1, 2, 3), (2, 4), *(pytest.param(a, marks=pytest.mark.long) for a in ((2,), (2, 3)))]
)
def test_a_client_that_was_away_gets_what_it_missed(policy: str, away: tuple[int, ...]) -> None:
    world, state, gone = world_of(policy), ZERO, "client-3"
    for number in range(1, 6):
        lost = number in away
        world.lost = (lambda _, sender, to: gone in (sender, to)) if lost else (lambda *_: False)
        if number == 1 and lost:  # it agreed on keys, and vanished then
            world.prepare(1)
        state = played(world, state, number)
    handed = [Envelope.decode(data).header.item for data in world.wire]
    assert handed.count("totals.down") == sum(number > 1 for number in away)
    assert world.sites[gone].asked == 5 - len(away)
    assert len(world.aggregator.totals._totals) <= 2  # nothing is kept that all have


def test_a_client_that_was_away_when_the_key_was_agreed_on_learns_it() -> None:
    policy = changed_policy("masks", rekey_rounds=2)
    world, state, gone = World(MOVED, policy, rounds=6), ZERO, "client-5"
    world.lost = lambda _, sender, to: gone in (sender, to)
    world.start()
    for number in range(1, 7):
        if number == 3:
            world.lost = lambda *_: False
        state = played(world, state, number)
    keys = {client.context.pairs.common.key for client in world.clients.values()}
    assert len(keys) == 1 and keys != {b""}
    assert world.sites[gone].asked == 4
    assert world.aggregator.context.pairs is None


def test_a_missed_total_that_was_changed_is_refused() -> None:
    world, state, gone = world_of("masks"), ZERO, "client-3"
    for number in (1, 2, 3):
        away = number > 1
        world.lost = (lambda _, sender, to: gone in (sender, to)) if away else (lambda *_: False)
        state = played(world, state, number)
    world.lost = lambda *_: False
    totals = world.aggregator.totals._totals
    place = next(i for i, total in enumerate(totals) if total.round == 1)
    fields = {field.name: getattr(totals[place], field.name) for field in SharedTotal.fields}
    totals[place] = SharedTotal(**{**fields, **LIES["the first weight"](totals[place])})
    world.prepare(4)
    with pytest.raises(Refused):
        world.pump(world.ask(4, given=state, back=(Update,)))


def test_who_does_not_take_a_missed_total_is_not_asked() -> None:
    world, state, gone = world_of("masks", clients=6), ZERO, "client-3"
    for number in (1, 2, 3, 4):
        world.lost = (lambda _, sender, to: gone in (sender, to)) if number > 1 else world.lost
        if number == 4:
            world.lost = lambda item, sender, to: item == "totals.down" and to == gone
        state = played(world, state, number)
    assert world.sites[gone].asked == 1
    assert gone not in world.aggregator.totals._has


# --- models that are bounded ------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["unsafe_plaintext", changed_policy("he", models="as_sent")])
def test_a_bounded_model_may_move_as_far_as_clients_can_move_it(policy: Any) -> None:
    world = world_of(policy)
    assert world.plan.find("train", Service.ASK, Step.DOWN).model == "bounded"
    played(world, ZERO, 1)
    reach = world.clients[world.names[0]].models._reach
    far = Start(weights=ZERO.weights + np.float32(reach))
    played(world, far, 2)
    further = far.weights.copy()
    further[1] = far.weights[1] - np.float32(1.01 * reach)
    assert asked(world, 3, Start(weights=further)) == list(world.names)
    assert "moved further" in reason(world, world.names[0])


def test_under_a_clip_in_norm_the_whole_model_is_bounded() -> None:
    document = changed_policy("he", models="as_sent").document()
    clip, *rest = document["rules"]["SUM"]
    rules = {**document["rules"], "SUM": [{**clip, "norm": "l2"}, *rest]}
    world = world_of(changed_policy("he", models="as_sent", rules=rules))
    played(world, ZERO, 1)
    reach = world.clients[world.names[0]].models._reach
    step = np.float32(0.99 * reach / np.sqrt(D))  # of every weight: the norm is within the bound
    played(world, Start(weights=ZERO.weights + step), 2)
    far = Start(weights=ZERO.weights + np.float32(3) * step)  # each weight is within it, all not
    assert np.float32(2) * step < reach
    assert asked(world, 3, far) == list(world.names)


@pytest.mark.parametrize("policy", ["unsafe_plaintext", changed_policy("he", models="as_sent")])
def test_the_first_bounded_model_is_the_plans(policy: Any) -> None:
    world = world_of(policy)
    assert asked(world, 1, Start(weights=ZERO.weights + np.float32(2**-10))) == list(world.names)


# --- who must agree ---------------------------------------------------------------------------


def test_a_plan_that_says_something_else_of_a_model_is_refused() -> None:
    world = world_of("masks")
    items = [
        item.model_copy(update={"model": "as sent"}) if item.model else item
        for item in world.plan.items
    ]
    plan = world.plan.model_copy(update={"items": tuple(items)})
    with pytest.raises(NotInPlan, match=r"says that the model of train\.down"):
        World(MOVED, "masks", rounds=5, plan=plan)


def test_without_a_first_model_nothing_begins() -> None:
    with pytest.raises(LocalProtocolError, match="first model"):
        World(replace(MOVED, start=None), "masks")


def test_from_100_clients_on_models_are_bounded_and_the_plan_says_so() -> None:
    world = World(MOVED, "masks", clients=[f"client-{i:03}" for i in range(100)], rounds=1)
    down = world.plan.find("train", Service.ASK, Step.DOWN)
    assert down.model == "bounded"
    assert any("train.down" in text and "A20" in text for text in world.plan.warnings)


def test_the_key_is_taken_as_more_than_the_colluders_tell_it() -> None:
    key, other = bytes(range(32)), bytes(32)
    holds, drawn = b"\1" + key, b"\0" + other
    for colluders, parts, works in (
        (0, {"a": holds, "b": drawn}, True),
        (1, {"a": holds, "b": drawn}, False),
        (1, {"a": holds, "b": holds, "c": b"\1" + other}, True),
        (0, {"a": holds, "b": b"\1" + other}, False),
    ):
        mine = CommonKey()
        if works:
            mine.agree("me", "run", parts, colluders)
            assert mine.key == key
        else:
            with pytest.raises(BadEnvelope):
                mine.agree("me", "run", parts, colluders)
    mine = CommonKey(key=key)
    mine.agree("me", "run", {"a": b"\1" + other}, 0)
    assert mine.key == key  # what is here stays


def test_a_mean_weighted_by_records_moves_by_what_one_record_may() -> None:
    """The control is a sum in which all count alike: there a round moves by what a client says."""
    weighted = Models.of(MOVED, PrivacyPolicy.preset("masks"), 5)
    assert weighted.how == "recomputed" and weighted.weighted
    assert weighted.furthest(512.0, 1024) == 2.0
    assert replace(weighted, weighted=False).furthest(512.0, 1024) == 512.0
    world = world_of("masks")
    item = world.plan.find("train", Disclosure.SUM, Step.UP)
    said = max(float(field.bound or 0) for message in item.messages for field in message.fields)
    reach = world.clients[world.names[0]].models._reach
    assert world.plan.data.records > 4
    assert reach == pytest.approx(4 * said / world.plan.data.records)
