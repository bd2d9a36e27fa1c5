"""What recommenders keep of a round that is lost in its middle, and what nobody may subtract."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from algorithms._shared.items import Holders, ItemGradient, ItemRows, Next
from algorithms.fcf import fcf
from algorithms.fed_mf import fed_mf
from algorithms.fed_per_gnn import fed_per_gnn
from algorithms.tasks.evaluation import begun, evaluated
from protocols.errors import NotAdmitted, RemoteProtocolError, Replay, RoundLost
from protocols.evidence.ledger import MemoryStore
from protocols.policy.policy import PrivacyPolicy
from protocols.rounds import Ask
from protocols.wire.envelope import Envelope
from secure_fgl.run.driver import Driver, Meter
from secure_fgl.run.parties import Making, set_up
from secure_fgl.transports.memory import MemoryTransport
from tests.algorithms.test_fed_per_gnn import ITEMS, site_of, task_of
from tests.toys.stage import plan_of

CLIENTS = 10


class Losing(MemoryTransport):
    """Loses every answer of some clients in a round: ``away`` holds (round, client)."""

    def __init__(self, others: Any) -> None:
        super().__init__(others)
        self.away: set[tuple[int, str]] = set()
        self.exchanges: tuple[str, ...] = ("gradient", "counted", "rest")

    def exchange(self, deliveries: Any) -> Any:
        there = [p for p in deliveries if not self._lost(p)]
        return [p for p in super().exchange(there) if not self._lost(p)]

    def _lost(self, delivery: Any) -> bool:
        header = Envelope.decode(delivery.data).header
        there = {(header.round, header.sender), (header.round, delivery.to)}
        wanted = self.exchanges
        return header.item.split(".")[0] in wanted and bool(there & self.away)


class Stage:
    """A run that is driven by hand; ``opened`` holds what every opened sum rests on."""

    def __init__(self, algorithm: Any, policy: PrivacyPolicy) -> None:
        self.sites = [
            site_of(u % 6, items=np.random.default_rng(100 + u).permutation(ITEMS)[:6])
            for u in range(CLIENTS)
        ]
        first = algorithm.init(np.random.default_rng(0))
        self.form = begun(policy.admit(algorithm), first)
        plan = plan_of(algorithm, policy, CLIENTS, 3)
        making = Making(
            plan, policy, self.form, self.sites, scheme=None, store=lambda n: MemoryStore(), seed=1
        )
        parties = set_up(making)
        self.transport = Losing(parties.others)
        self.driver = Driver(parties, self.transport, Meter())
        self.opened: list[tuple[bytes, frozenset[str]]] = []
        ask = self.driver.ask

        def noted(what: Ask, round: int) -> Any:
            reply = ask(what, round)
            given = what.given[0] if isinstance(what.given, tuple) else what.given
            members = frozenset(what.cohort._members)
            block = given.block if isinstance(given, Next) else 0
            model = self.state.start if isinstance(given, Next) else given
            self.opened.append((np.asarray(model.weights).tobytes() + bytes([block]), members))
            return reply

        self.driver.ask = noted  # type: ignore[method-assign]
        self.driver.start()
        self.state = algorithm.init(np.random.default_rng(0))

    def play(self, round: int) -> bool:
        """Play a round; return whether it was lost."""
        try:
            self.state = self.driver.play(self.form.round(self.state, self.driver.cohort), round)
        except RoundLost as lost:
            self.state = self.state if lost.state is None else lost.state
            return True
        return False


def cohorts_of(stage: Stage, algorithm: Any) -> list[tuple[str, ...]]:
    server = algorithm.forms[0].round.__self__
    state = algorithm.init(np.random.default_rng(0))
    return [part._members for part in server.split(state, stage.driver.cohort)]


def never_twice(opened: list[tuple[bytes, frozenset[str]]]) -> bool:
    """Tell whether no client's gradient is in two sums that were opened at one model."""
    return not any(
        one[0] == other[0] and one[1] & other[1]
        for number, one in enumerate(opened)
        for other in opened[:number]
    )


@pytest.mark.parametrize(
    ("make", "model"), [(fcf, "user_dot"), (fed_mf, "user_dot"), (fed_per_gnn, "user_gat")]
)
def test_o5_no_cohort_is_summed_twice_at_one_model(make: Any, model: str) -> None:
    made = make(task_of(model), cohorts=2)
    stage = Stage(made, PrivacyPolicy.preset("masks"))
    first, second = cohorts_of(stage, made)
    stage.transport.away = {(1, second[0]), (1, second[1]), (2, first[0])}
    assert [stage.play(1), stage.play(2)] == [True, False]
    assert [members for _, members in stage.opened] == [*map(frozenset, (first, first, second))]
    assert never_twice(stage.opened)
    assert stage.state.start.step == 2


def test_o5_no_cohort_s_error_is_summed_twice_at_one_model() -> None:
    task = task_of("user_dot")
    bare = fcf(task, cohorts=2)
    stage = Stage(evaluated(bare, task), PrivacyPolicy.preset("masks"))
    first, second = cohorts_of(stage, bare)
    stage.transport.away = {(1, second[0]), (1, second[1]), (2, first[0])}
    assert [stage.play(1), stage.play(2)] == [True, False]
    assert never_twice(stage.opened)
    assert len(stage.state.scores) == 2


def test_a_round_whose_first_cohort_is_lost_opened_nothing() -> None:
    made = fcf(task_of("user_dot"), cohorts=2)
    stage = Stage(made, PrivacyPolicy.preset("masks"))
    first, _ = cohorts_of(stage, made)
    stage.transport.away = {(1, first[0]), (1, first[1])}
    before = stage.state
    assert stage.play(1)
    assert stage.opened == []
    assert stage.state is before


@pytest.mark.parametrize(
    "blocks",
    [pytest.param(2, marks=pytest.mark.long), 4, pytest.param(ITEMS, marks=pytest.mark.long)],
)
def test_blocks_of_rows_are_the_same_step(blocks: int) -> None:
    found = []
    for number in (1, blocks):
        made = fed_per_gnn(task_of(), cohorts=2, blocks=number)
        stage = Stage(made, PrivacyPolicy.preset("masks"))
        assert [stage.play(1), stage.play(2)] == [False, False]
        assert len(stage.opened) == 2 * 2 * number
        found.append(np.asarray(stage.state.start.weights))
    np.testing.assert_allclose(*found, atol=2e-3)  # every sum is rounded anew
    begun = made.init(np.random.default_rng(0)).start.weights
    assert np.abs(found[0] - begun).max() > 0.01


def test_o5_a_lost_block_ends_the_round_after_those_before() -> None:
    """Its rows are not asked again at that model, and what came moves the model."""
    made = fcf(task_of("user_dot"), cohorts=2, blocks=3, decay=0.0)
    stage = Stage(made, PrivacyPolicy.preset("masks"))
    first, _ = cohorts_of(stage, made)
    stage.transport.exchanges = ("rest",)
    stage.transport.away = {(1, first[0]), (1, first[1])}
    before = np.array(stage.state.start.weights)
    assert stage.play(1)
    assert [members for _, members in stage.opened] == [frozenset(first)]
    moved = np.asarray(stage.state.start.weights) != before
    items, width = made.forms[0].round.__self__.user.table()
    table = moved[: items * width].reshape(items, width).any(axis=1)
    assert table[: -(-items // 3)].any() and not table[-(-items // 3) :].any()
    stage.transport.away = set()
    assert not stage.play(2)
    assert never_twice(stage.opened)


def test_o5_a_client_says_each_block_once() -> None:
    made = fcf(task_of("user_dot"), blocks=3)
    gradient, rest = (exchange.answer for exchange in made.forms[0].exchanges)
    site, start = site_of(0), made.init(np.random.default_rng(0)).start
    with pytest.raises(Replay):
        rest(site, Next(block=1))
    first = gradient(site, start)
    others = [rest(site, Next(block=number)) for number in (2, 1)]
    assert {one.rows.shape for one in (first, *others)} == {(-(-ITEMS // 3), first.rows.shape[1])}
    assert first.shared.any() and not any(one.shared.any() for one in others)
    whole = fcf(task_of("user_dot")).forms[0].exchanges[0].answer(site_of(0), start).rows
    joined = np.concatenate([first.rows, others[1].rows, others[0].rows])[:ITEMS]
    np.testing.assert_array_equal(joined, whole)
    for number in (0, 1, 2, 3):
        with pytest.raises(Replay):
            rest(site, Next(block=number))


def test_blocks_stand_in_the_plan_and_in_range() -> None:
    made = fcf(task_of("user_dot"), blocks=4)
    plan = plan_of(made, PrivacyPolicy.preset("masks"), CLIENTS, 3)
    (item,) = [item for item in plan.items if item.id == "rest.up.SUM"]
    assert item.times == 3 * 3
    assert item.messages[0].fields[0].shape == (3, 5)
    for blocks in (0, ITEMS + 1):
        with pytest.raises(ValueError, match="blocks must be"):
            fcf(task_of("user_dot"), blocks=blocks)
    with pytest.raises(NotAdmitted):  # rows of blocks are not held by enough
        PrivacyPolicy.preset("strict").admit(made)


def test_shown_rows_of_a_lost_round_are_stepped_along_once() -> None:
    """The model moved along the rows of those before, so nobody shows rows twice at one model."""
    made = fcf(task_of("user_dot"), cohorts=2)
    (form,) = [form for form in made.forms if form.name == "published"]
    begun = made.init(np.random.default_rng(0))
    start, site = begun.start, site_of(0)
    shown = form.exchanges[0].answer(site, start)
    own, rows, shared = (shown._partial.fields[n] for n in ("number", "rows", "shared"))

    class Reply:
        answers = 5

        def each(self, kind: Any) -> Any:
            return (ItemRows(number=own, rows=rows, shared=shared),)

    stage = Stage(made, PrivacyPolicy.preset("masks"))
    steps = form.round(begun, stage.driver.cohort)
    next(steps)
    second = steps.send(Reply())
    assert not np.array_equal(second.given.weights, start.weights)
    with pytest.raises(StopIteration) as stop:
        steps.throw(RoundLost("too few"))
    np.testing.assert_array_equal(stop.value.value.start.weights, second.given.weights)


def test_o12_a_count_that_was_lost_ends_the_run() -> None:
    """Counted anew of other clients, the two totals would name the items of who was away."""
    made = fed_per_gnn(task_of())
    stage = Stage(made, PrivacyPolicy.preset("strict"))
    stage.transport.away = {(1, f"client-{u:02d}") for u in range(1, 8)}
    with pytest.raises(RemoteProtocolError, match="counted once in a run") as ended:
        stage.play(1)
    assert not isinstance(ended.value, RoundLost)


def test_o12_more_holders_than_answers_are_refused() -> None:
    made = fed_per_gnn(task_of())
    stage = Stage(made, PrivacyPolicy.preset("strict"))

    class Reply:
        answers = 4

        def total(self, kind: Any) -> Any:
            return Holders(held=np.full(ITEMS, 5))

    steps = stage.form.round(stage.state, stage.driver.cohort)
    next(steps)
    with pytest.raises(RemoteProtocolError, match="More clients hold an item than answered"):
        steps.send(Reply())


def asked(told: list[int] | int, step: int) -> Any:
    start = fed_per_gnn(task_of()).init(np.random.default_rng(0)).start
    flags = np.broadcast_to(np.asarray(told, dtype=np.int64), (ITEMS,)).copy()
    return replace(start, step=step, told=flags)


def counting() -> Any:
    return fed_per_gnn(task_of()).forms[1].exchanges[0].answer


def test_o12_a_client_counts_its_items_once_in_a_run() -> None:
    count, site = counting(), site_of(0)
    _, first = count(site, asked(0, 0))
    assert type(first) is Holders
    assert first.held.sum() == 4
    with pytest.raises(Replay):
        count(site, asked(0, 0))
    _, later = count(site, asked(1, 1))
    assert later.held.sum() == 0
    other = site_of(1)
    count(other, asked(1, 3))
    with pytest.raises(Replay):  # rows said without a count, and then the count
        count(other, asked(0, 0))


def test_o12_with_the_count_no_row_is_said_whatever_was_told() -> None:
    count, site = counting(), site_of(0)
    gradient, held = count(site, asked(1, 0))
    assert type(gradient) is ItemGradient
    assert not gradient.rows.any()
    assert gradient.shared.any()
    assert held.held.any()


def test_o12_no_row_is_said_beyond_those_told_first() -> None:
    count, site = counting(), site_of(0)
    mine = np.flatnonzero(count(site, asked(0, 0))[1].held)
    few = np.isin(np.arange(ITEMS), mine[:2]).astype(np.int64)
    none = np.zeros(ITEMS, dtype=np.int64)
    for told, expected in ((few, mine[:2]), (1, mine[:2]), (none, []), (1, [])):
        rows = count(site, asked(told, 1))[0].rows
        np.testing.assert_array_equal(np.flatnonzero(rows.any(axis=1)), expected)
