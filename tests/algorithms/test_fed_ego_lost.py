"""What FedEgo keeps of a round that is lost in its middle, and what nobody may subtract (O5)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from algorithms._shared.ego import Labels, Slope
from protocols.errors import RoundLost
from protocols.evidence.ledger import MemoryStore
from protocols.policy.policy import PrivacyPolicy
from protocols.wire.envelope import Envelope
from secure_fgl.run.driver import Driver, Meter
from secure_fgl.run.parties import Making, set_up
from secure_fgl.transports.memory import MemoryTransport
from tests.algorithms.fed_ego_tools import begun, ego, task
from tests.toys.kinds import sites_of
from tests.toys.stage import plan_of

PASSES = 3


class Leaving(MemoryTransport):
    """Loses everything of a client from its `after`-th slope of a round on."""

    def __init__(self, others: Any, client: str, round: int, after: int) -> None:
        super().__init__(others)
        self._client, self._round, self._after, self._gone = client, round, after, False

    def exchange(self, deliveries: Any) -> Any:
        there = [p for p in deliveries if not self._lost(p)]
        return [p for p in super().exchange(there) if not self._lost(p)]

    def _lost(self, delivery: Any) -> bool:
        header = Envelope.decode(delivery.data).header
        asked = header.item == "slope.down" and delivery.to == self._client
        if asked and header.round == self._round:
            self._gone = self._gone or not self._after
            self._after -= 1
        return self._gone and self._client in (header.sender, delivery.to)


def played(after: int) -> tuple[list[dict[str, Any]], list[Any]]:
    """Play two rounds, client-4 vanishing in the first; return opened sums and states."""
    algorithm = ego(task(dropout=0.0), passes=PASSES)
    policy, sites = PrivacyPolicy.preset("strict"), [*sites_of("node"), sites_of("node")[0]]
    plan = plan_of(algorithm, policy, len(sites), 2, records=64)
    form = policy.admit(algorithm)
    making = Making(
        plan, policy, form, sites, scheme=None, store=lambda name: MemoryStore(), seed=1
    )
    parties = set_up(making)
    transport = Leaving(parties.others, f"client-{len(sites)}", 1, after)
    driver, opened = Driver(parties, transport, Meter()), []
    ask = driver.ask

    def noted(what: Any, round: int) -> Any:
        reply = ask(what, round)
        if Slope in what.wanted:
            counts = reply.total(Labels).counts if Labels in what.wanted else np.zeros(1)
            opened.append(
                {
                    "phi": np.asarray(what.given.phi).tobytes(),
                    "answers": reply.answers,
                    "counts": float(np.sum(counts)),
                }
            )
        return reply

    driver.ask = noted  # type: ignore[method-assign]
    driver.start()
    states: list[Any] = [algorithm.init(np.random.default_rng(0))]
    for round in (1, 2):
        try:
            states.append(driver.play(form.round(states[-1], driver.cohort), round))
        except RoundLost as lost:
            states.append(lost.state)
    return opened, states


@pytest.mark.parametrize("after", [1, 2])
def test_o5_no_step_is_summed_twice_from_one_model_over_other_clients(after: int) -> None:
    opened, (before, lost, last) = played(after)
    assert len(opened) == after + PASSES
    assert {one["answers"] for one in opened[:after]} == {opened[0]["answers"]}
    assert opened[after]["answers"] < opened[0]["answers"]  # the client is away
    assert len({one["phi"] for one in opened}) == len(opened)
    assert [s.start.step for s in (before, lost, last)] == [0, 1, 2]
    assert sum(one["counts"] > 0 for one in opened) == 1  # P_g, from the first sum


def test_p_g_is_counted_once_from_mixtures_as_well() -> None:
    """Counted anew over whoever answers, it would tell the others the classes of who does not."""
    model = task()
    algorithm = ego(model)
    form = next(form for form in algorithm.forms if form.name == "mixup")
    state = begun(algorithm)
    shares = []
    for label in ([[1.0, 0.0, 0.0]], [[0.0, 1.0, 0.0]]):
        state = mixed_round(form, state, model, np.array(label, dtype=np.float32))
        shares.append(np.asarray(state.start.shares))
    np.testing.assert_array_equal(shares[0], [1.0, 0.0, 0.0])
    np.testing.assert_array_equal(shares[1], shares[0])


def mixed_round(form: Any, state: Any, model: Any, label: Any) -> Any:
    """Play a round of which one mixture came back."""

    class Reply:
        answers = 4

        def each(self, kind: Any) -> Any:
            features = np.ones((1, model.positions, model.embedding), dtype=np.float32)
            return (type("Said", (), {"features": features, "label": label})(),)

        def weighted(self, kind: Any, alpha: Any) -> Any:
            return kind(theta=np.zeros(1, dtype=np.float32))

    steps = form.round(state, ("client-1",))
    next(steps)
    try:
        steps.send(Reply())
        steps.send(Reply())
    except StopIteration as stop:
        return stop.value
    raise AssertionError("the round has more Asks than two")
