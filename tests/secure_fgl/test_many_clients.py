"""Large exchanges: made, recorded and carried a batch at a time, and the very same run."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from benchmarks.bench_he import constant
from protocols.disclosures.names import Disclosure
from protocols.disclosures.sum.view import Summands
from protocols.errors import LocalProtocolError, Replay
from protocols.evidence.ledger import MemoryStore
from protocols.policy.policy import PrivacyPolicy
from protocols.rounds import Ask
from protocols.sessions.engine import Delivery, Stream
from protocols.sessions.part import State
from protocols.wire.envelope import Envelope
from secure_fgl.run.driver import Driver, Meter
from secure_fgl.run.parties import Making, Parties, set_up
from secure_fgl.transports.memory import MemoryTransport
from tests.protocols.mix import GRID, Go, Mashed, by_hand, groups
from tests.protocols.relayed import relayed
from tests.toys.stage import plan_of

CLIENTS, D = 7, 5


class Watched(MemoryTransport):
    """Notes how many envelopes are carried at once, and that their records are durable by then."""

    batch = 3

    def __init__(self, sessions, stores):
        super().__init__(sessions)
        self.sizes, self._stores = [], stores

    def exchange(self, deliveries: Sequence[Delivery]) -> list[Delivery]:
        self.sizes.append(len(deliveries))
        for delivery in deliveries:
            header = Envelope.decode(delivery.data).header
            assert header.head.encode() in self._stores["aggregator"].lines
        return super().exchange(deliveries)


def stage(policy: str, batch: int | None):
    """Return driver, transport, parties and one round to be played."""
    vectors = [np.full(D, 0.01 * (i + 1)) for i in range(CLIENTS)]
    algorithm = constant(D, vectors)
    found = PrivacyPolicy.preset(policy)
    plan, stores = plan_of(algorithm, found, CLIENTS, 1), {}

    def store(name: str) -> MemoryStore:
        return stores.setdefault(name, MemoryStore())

    form = found.admit(algorithm)
    parties = set_up(
        Making(plan, found, form, list(range(CLIENTS)), scheme=None, store=store, seed=1)
    )
    transport = Watched(parties.others, stores)
    transport.batch = batch
    driver = Driver(parties, transport, Meter())
    state = algorithm.init(np.random.default_rng(0))
    return driver, transport, parties, lambda: driver.play(form.round(state, driver.cohort), 1)


@pytest.mark.parametrize("policy", ["unsafe_plaintext", "masks"])
def test_batches_are_durable_before_they_leave_and_give_the_same_model(policy):
    models = []
    for batch in (None, 3):
        driver, transport, parties, go = stage(policy, batch)
        driver.start()
        models.append(go().weights)
        assert max(transport.sizes) == (batch or CLIENTS)
        client = parties.others["client-1"]
        assert client.answering.repeats is (batch is None)
        assert bool(client.answering.repeat[1]) is (batch is None)
        # Uploads were added as they came: no body of them is held until the sum is opened.
        sums = parties.aggregator.asked.answers.of(Disclosure.SUM, Summands)
        assert all(not kept.body for kept in sums._received.values())
    np.testing.assert_array_equal(*models)


def test_without_repeats_the_same_bytes_are_a_replay():
    _, transport, parties, go = stage("unsafe_plaintext", 3)
    sent = []
    carry = transport.exchange
    transport.exchange = lambda deliveries: sent.extend(deliveries) or carry(deliveries)
    go()
    with pytest.raises(Replay):
        parties.others[sent[0].to].receive(sent[0].data)


def test_where_state_is_kept_nothing_is_streamed():
    _, _, parties, _ = stage("masks", None)
    parties.aggregator.keeper = object()
    Driver(parties, Watched(parties.others, {}), Meter())
    assert parties.aggregator.batch is None
    assert parties.others["client-1"].answering.repeats


def test_what_fails_in_a_batch_ends_the_session():
    _, _, parties, _ = stage("masks", 3)

    def broken():
        yield Delivery("client-1", b"")
        raise LocalProtocolError("no more")

    batches = Stream(parties.aggregator, broken(), 1).batches()
    assert [delivery.to for delivery in next(batches)] == ["client-1"]
    with pytest.raises(LocalProtocolError):
        next(batches)
    assert parties.aggregator.state is State.DEAD


def test_relayed_mixtures_are_asked_for_in_batches_too():
    world = relayed()
    others = {**world.clients, world.relay.name: world.relay}
    facts = (world.run, bytes(16), world.roster, world.identities, world.aggregator, others)
    transport = Watched(others, world.stores)
    driver = Driver(Parties(*facts), transport, Meter())
    reply = driver.ask(Ask(driver.cohort, Go(step=1), (Mashed,)), 1)
    (pool,) = reply.each(Mashed)
    sites = [by_hand(world.sites[name], groups(world, name)) for name in world.names]
    features = np.concatenate([features for features, _ in sites])
    apart = np.abs(pool.features[:, None] - features[None]).max(axis=(2, 3))
    assert sorted(apart.argmin(axis=1)) == list(range(len(features)))
    assert apart.min(axis=1).max() <= GRID
    assert transport.sizes[-3:] == [3, 2, 1]  # the clients, then the relay
