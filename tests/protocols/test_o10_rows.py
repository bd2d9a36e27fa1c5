"""O10 and O1 in the sessions: every receiver its own combination, of enough others, and no more."""

from __future__ import annotations

import numpy as np
import pytest

from crypto.homomorphic.weighted import flatten
from protocols.disclosures._evaluated.uploads import facts_of_rows
from protocols.disclosures.names import Disclosure
from protocols.disclosures.weighted_sum import aggregator as weighing
from protocols.errors import NotAdmitted, Refused
from protocols.policy.guards import UnsafeClear
from protocols.policy.policy import PRESETS
from tests.protocols.pub import (
    GRID,
    RING,
    Model,
    Portrait,
    changed,
    even,
    hand_out,
    models,
    pub,
    received,
    swapped,
    trained,
)
from tests.protocols.rows_tools import pair_of, softmax
from tests.protocols.toys import TRAIN, toy_algorithm


@pytest.mark.parametrize("policy", ["pilot", "he", "masks", "ckks", "strict"])
def test_each_client_receives_its_own_combination(policy):
    world = pub(policy, d=30)
    reply = trained(world)
    alpha = softmax(reply.similarity(Portrait), 1.5)
    table = flatten(alpha, 3).table
    hand_out(world, reply.weighted(Model, alpha))
    assert np.abs(received(world) - table / 128 @ models(world)).max() < GRID
    assert np.ptp(received(world), axis=0).max() > 0.05  # a mean would not pass for it
    assert np.abs(table / 128 - alpha).max() < 0.13


def test_weights_that_are_whole_shares_give_what_the_clear_view_gives():
    rules = {**PRESETS["pilot"].rules, Disclosure.WEIGHTED_SUM: (UnsafeClear(),)}
    bare = pub(PRESETS["pilot"].model_copy(update={"name": "bare", "rules": rules}), clients=8)
    protected = pub(clients=8)
    alpha = np.full((8, 8), 12 / 128) + np.eye(8) * 32 / 128
    for world in (bare, protected):
        hand_out(world, trained(world).weighted(Model, alpha))
    assert np.abs(received(bare) - received(protected)).max() < GRID


def test_tau_of_zero_is_the_mean():
    world = pub(clients=8)
    hand_out(world, trained(world).weighted(Model, softmax(np.eye(8), 0.0)))
    assert np.abs(received(world) - models(world).mean(axis=0)).max() < GRID


def test_o10_a_community_of_two_is_flattened_and_the_ledger_says_so():
    world = pub()
    mixture = trained(world).weighted(Model, pair_of())
    assert mixture._flattened == (0, 1)
    hand_out(world, mixture)
    (told,) = [e for e in world.entries("aggregator") if e["kind"] == "weights"]
    assert told["flattened"] == ["client-1", "client-2"] and told["receivers"] == 6
    others = mixture._table[0, 1:] / (128 - mixture._table[0, 0])
    assert 1 / np.sum(others**2) >= 3 and others.max() <= 0.5
    assert mixture._table[0, 0] == 64  # its own share stays


def test_o10_control_in_clear_the_pair_reads_each_other():
    rules = {**PRESETS["pilot"].rules, Disclosure.WEIGHTED_SUM: (UnsafeClear(),)}
    world = pub(PRESETS["pilot"].model_copy(update={"name": "bare", "rules": rules}))
    hand_out(world, trained(world).weighted(Model, pair_of()))
    found = 2 * received(world)[0] - models(world)[0]
    assert np.abs(found - models(world)[1]).max() < 1e-9
    protected = pub()
    hand_out(protected, trained(protected).weighted(Model, pair_of()))
    found = 2 * received(protected)[0] - models(protected)[0]
    assert np.abs(found - models(protected)[1]).max() > 0.3


@pytest.mark.parametrize("row", [[64, 64, 0, 0, 0, 0], [0, 64, 64, 0, 0, 0]])
def test_o10_a_witness_refuses_weights_that_rest_on_too_few(row):
    """An aggregator that skips its own check finds the witness's: one other, or two alike."""
    world = pub()
    mixture = trained(world).weighted(Model, even(6))
    mixture._table = flatten(even(6), 3).table.copy()
    mixture._table[0] = row

    def unchecked(key, uploads, table, seeds, policy):
        return [RING.encrypt(key, np.zeros(4096, np.uint64)) for _ in seeds]

    with (
        swapped(weighing, "rows", unchecked),
        pytest.raises(Refused, match="witness-1 refused"),
    ):
        hand_out(world, mixture)
    assert "O10" in world.witnesses["witness-1"].last_error.why
    kinds = [e.get("disclosure") for e in world.entries("key-authority") if e["kind"] == "open"]
    assert kinds == ["SIMILARITY"]


def test_o10_rows_are_not_admitted_where_receivers_may_collude():
    with pytest.raises(NotAdmitted) as refused:
        pub(changed(colluders=1), clients=8)
    assert "colluding receivers" in str(refused.value.why)
    assert changed(colluders=1).admit(toy_algorithm(TRAIN))  # the control: totals count them on top


def test_o10_receivers_of_one_mixture_that_compare_rows_find_nothing():
    """In the round of the plain mean the difference of two rows was a third client's model."""
    world = pub(clients=10)
    hand_out(world, trained(world).weighted(Model, even(10)))
    rows = received(world)
    assert np.abs(rows - rows[0]).max() < GRID / 2


def test_o10_a_receiver_may_weigh_itself_alone():
    world = pub()
    alpha = even(6)
    alpha[3] = np.eye(6)[3]
    hand_out(world, trained(world).weighted(Model, alpha))
    assert np.abs(received(world)[3] - models(world)[3]).max() < GRID


def test_top_k_keeps_the_heaviest_others():
    world = pub(changed(top=4), clients=8)
    alpha = softmax(np.random.default_rng(2).normal(size=(8, 8)), 1.0)
    mixture = trained(world).weighted(Model, alpha)
    assert np.count_nonzero(mixture._table, axis=1).max() <= 5
    hand_out(world, mixture)
    assert np.abs(received(world) - mixture._table / 128 @ models(world)).max() < GRID
    with pytest.raises(ValueError, match="top"):
        changed(top=4, minimum_cohort=4)


def test_o10_the_ledger_says_how_much_rows_of_all_rounds_cover():
    """Five receivers' rows that change each time: after five rounds one client could solve."""
    world, rng, tables = pub(rounds=6), np.random.default_rng(3), []
    for number in range(1, 7):
        mixture = trained(world, number).weighted(Model, softmax(rng.normal(size=(6, 6)), 0.5))
        tables.append(mixture._table)
        hand_out(world, mixture, number)
    mine, seen = (
        [
            (e["rank"], e["solved"], e["table"])
            for e in world.entries(name)
            if e["kind"] == kind and "table" in e
        ]
        for name, kind in (("aggregator", "weights"), ("witness-1", "witness"))
    )
    assert mine == seen and len({table for _, _, table in mine}) == 6
    assert [rank for rank, _, _ in mine] == [1, 2, 3, 4, 5, 5]
    assert [solved for _, solved, _ in mine] == [0, 0, 0, 0, 5, 5]
    # Had the models stood still, client 1 would have them all from its first five rows.
    rows = np.stack([table[0] for table in tables[:5]]) / 128
    handed = np.array([[*m.weights, m.bias] for m in world.sites["client-1"].got[:5]])
    found = np.linalg.solve(rows[:, 1:], handed - rows[:, :1] * models(world)[0])
    assert np.abs(found - models(world)[1:]).max() < 200 * GRID


def told(*tables: np.ndarray) -> tuple[object, object]:
    """Return rank and number of clients who can be solved for, of tables of some rounds."""
    facts = facts_of_rows(tables, [bytes(32)])
    return facts["rank"], facts["solved"]


def test_o10_a_row_on_oneself_alone_tells_nothing():
    assert told(*[np.eye(3, dtype=np.uint8)] * 4) == (0, 0)


def test_o10_a_client_that_was_never_there_hides_nothing():
    """Seven on the roster, six that take part: after five rounds a row can be solved for all."""
    rng, tables = np.random.default_rng(1), []
    for _ in range(5):
        table = np.zeros((7, 7), dtype=np.uint8)
        table[:6, :6] = rng.integers(1, 40, (6, 6))
        tables.append(table)
    assert told(*tables[:4]) == (4, 0)
    assert told(*tables) == (5, 5)


def test_o10_two_rows_that_differ_in_one_other_single_it_out():
    first = np.full((6, 6), 21, dtype=np.uint8)
    second = first.copy()
    second[0, :2] += np.array([255, 1], dtype=np.uint8)  # one from its own share to client 2
    assert told(first, second) == (2, 1)
    second[0, 2:4] += np.array([1, 255], dtype=np.uint8)  # two others and more: nobody is alone
    assert told(first, second) == (2, 0)


def test_o10_the_ledger_s_digest_cannot_be_guessed_from_the_weights():
    """Without the seeds of the blinds, which no reader of a ledger has, trying tables is futile."""
    table = np.full((4, 4), 32, dtype=np.uint8)
    one, other = (facts_of_rows([table], [seed] * 4)["table"] for seed in (bytes(32), b"s" * 32))
    assert one != other
    assert one == facts_of_rows([table, table], [bytes(32)] * 4)["table"]  # of the last round
