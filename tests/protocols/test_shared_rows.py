"""Receivers of equal weights share one row: combined, blinded and opened once (O1, O10)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from crypto.homomorphic.weighted import WeightedBfv
from protocols.disclosures._evaluated import aggregator as results
from protocols.disclosures._evaluated.uploads import row_numbers
from protocols.disclosures.weighted_sum import aggregator as weighing
from protocols.errors import BadEnvelope, Refused
from tests.protocols.pub import (
    GRID,
    Model,
    changed,
    even,
    hand_out,
    models,
    pub,
    received,
    sent,
    swapped,
    trained,
)

TILTED = even(6) + np.eye(6) * 0.3 - 0.05


def counted(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Count the rows that are combined and opened."""
    found, combine, decrypt = {"combined": 0, "opened": 0}, WeightedBfv.combine, WeightedBfv.decrypt

    def combining(ring: Any, *facts: Any) -> Any:
        rows = combine(ring, *facts)
        found["combined"] += len(rows)
        return rows

    def decrypting(ring: Any, *facts: Any) -> Any:
        found["opened"] += 1
        return decrypt(ring, *facts)

    monkeypatch.setattr(WeightedBfv, "combine", combining)
    monkeypatch.setattr(WeightedBfv, "decrypt", decrypting)
    return found


@pytest.mark.parametrize(("weights", "rows"), [(even(6), 1), (TILTED, 6)])
def test_one_row_for_all_receivers_of_equal_weights(
    weights: np.ndarray, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = pub()
    mixture, found = trained(world).weighted(Model, weights), counted(monkeypatch)
    assert len(set(row_numbers(mixture._table))) == rows
    hand_out(world, mixture)
    assert found == {"combined": 2 * rows, "opened": rows}  # by aggregator and witness; authority
    assert np.abs(received(world) - mixture._table / 128 @ models(world)).max() < GRID
    (request,) = sent(world, "receive.open.WEIGHTED_SUM")
    assert len(request.encode()) == world.plan.item("receive.open.WEIGHTED_SUM").bytes


def test_receivers_are_numbered_as_their_weights_first_come() -> None:
    table = np.array([[1, 2], [2, 1], [1, 2], [3, 0], [2, 1]])
    assert row_numbers(table) == (0, 1, 0, 2, 1)
    assert row_numbers(np.asfortranarray(table)) == row_numbers(table.astype(np.int32))
    assert row_numbers(table[:1]) == (0,)


def renumbered(*numbers: int) -> Any:
    """Let an aggregator ask that receivers are handed other rows than their weights'."""
    real = results.Reveal

    def made(**facts: Any) -> Any:
        rows = facts["rows"].copy()
        rows[: len(numbers)] = numbers
        return real(**{**facts, "rows": rows})

    return swapped(results, "Reveal", made)


OTHERS = (0, 0, 1, 2, 3, 4)  # the second client is handed the row that is the first one's


def test_o4_a_client_is_not_handed_another_row_than_was_witnessed() -> None:
    world = pub()
    reply = trained(world)
    with renumbered(*OTHERS), pytest.raises(Refused, match="key-authority refused"):
        hand_out(world, reply.weighted(Model, TILTED))
    assert "O4" in world.authority.last_error.what
    assert not sent(world, "receive.opened.WEIGHTED_SUM")


def test_o4_control_without_a_witness_it_is_handed_that_row(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = pub(changed(witnesses=0))
    reply, real = trained(world), weighing.Weighing._rows

    def with_seeds(part: Any, evaluation: Any, opened: Any) -> Any:
        part._seeds = [part._seeds[number] for number in OTHERS]  # so that it opens
        return real(part, evaluation, opened)

    # Six results were computed, and the authority takes five where five are named.
    computed = weighing.rows
    monkeypatch.setattr(weighing, "rows", lambda *facts: computed(*facts)[:5])
    monkeypatch.setattr(weighing.Weighing, "_rows", with_seeds)
    mixture = reply.weighted(Model, TILTED)
    with renumbered(*OTHERS):
        hand_out(world, mixture)
    rows = mixture._table[list(OTHERS)] / 128 @ models(world)
    assert np.abs(received(world) - rows).max() < GRID
    assert np.abs(received(world) - mixture._table / 128 @ models(world)).max() > GRID


@pytest.mark.parametrize(
    "numbers",
    [(1, 0, 2, 3, 4, 5), (0, 2, 1, 3, 4, 5), (0, 1, 2, 3, 4, 6), (1, 1, 1, 1, 1, 1), (9,) * 6],
)
def test_rows_are_numbered_in_one_way_only(numbers: tuple[int, ...]) -> None:
    world = pub(changed(witnesses=0))
    reply = trained(world)
    with renumbered(*numbers), pytest.raises(Refused, match="key-authority refused"):
        hand_out(world, reply.weighted(Model, TILTED))
    assert isinstance(world.authority.last_error, BadEnvelope)
    assert "not numbered" in world.authority.last_error.what


def test_cosines_have_no_receivers() -> None:
    world = pub(changed(witnesses=0))
    with renumbered(0, 1), pytest.raises(Refused, match="key-authority refused"):
        trained(world)
    assert "not numbered" in world.authority.last_error.what
