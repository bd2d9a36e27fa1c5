"""What a hostile reading of ADR 0035 tried: nested totals, a failing device, borrowed votes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from protocols.errors import LedgerError
from tests.protocols.test_o7_one_answer import (
    killed,
    opens,
    rows_of,
    short_list,
    started,
    two_steps,
    uploaded,
)
from tests.protocols.toys import TWICE
from tests.protocols.unveiling import all_here, certify, haul
from tests.protocols.wire import World


@pytest.mark.parametrize("nested", [True, False])
@pytest.mark.parametrize("path", ["one answer", "two steps"])
def test_o5_two_sums_of_one_round_are_not_nested(path: str, nested: bool) -> None:
    """Their difference would be the vector of the client that only one of them counts."""
    world = World(TWICE, "masks", clients=12).start()
    cohort, outside = world.names[:5], world.names[5:]
    left = cohort[1:] if nested else cohort
    first = haul(world, lambda _: None, members=cohort)
    for name in left:  # they believe that one vanished, and take an Ask for the others
        assert short_list(world, first, name, left) is not None
    second = haul(world, lambda _: None, members=left, exchange=2, slot=1)
    if path == "one answer":
        all_here(world, first, outside)
        all_here(world, second, outside)
    else:
        two_steps(world, first, outside, cohort)
        two_steps(world, second, outside, left)
    assert opens(world, first, cohort)
    assert opens(world, second, left) is not nested  # the control: over the same clients it opens


@pytest.mark.parametrize("broken", ["state", "ledger"])
def test_o7_nothing_leaves_if_state_or_ledger_fails(
    broken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = killed()
    found, holder = uploaded(world), world.names[1]
    client: Any = world.clients[holder]
    client.commit()

    def fail(*_: Any) -> None:
        raise LedgerError("full")

    with monkeypatch.context() as patched:
        where = client.keeper if broken == "state" else client.ledger
        patched.setattr(where, "save" if broken == "state" else "commit", fail)
        with pytest.raises(LedgerError):
            all_here(world, found, [holder])
    assert not found.beside
    try:
        world.kill(holder)
    except LedgerError:
        return
    if broken == "ledger":  # the state knows; the other path stays shut
        assert short_list(world, found, holder, world.names[1:]) is None


def test_o7_votes_of_one_answer_serve_no_second_step() -> None:
    world = started(clients=8)
    found, names = uploaded(world), world.names
    all_here(world, found, names[:4])
    signed = {}
    for name in names[4:]:
        vote = short_list(world, found, name, names)
        assert vote is not None
        signed[name] = vote.signature
    for name in names[4:]:
        certify(world, found, name, signed, None, frozenset(names))
    assert found.refused >= set(names[4:])  # four of the five votes that are needed
    assert not opens(world, found, names)


def test_o7_kept_state_holds_no_share_once_the_answer_is_out() -> None:
    world = killed()
    found, holder = uploaded(world), world.names[1]
    client: Any = world.clients[holder]
    client.commit()
    selves, _ = rows_of(world, found, holder)
    all_here(world, found, [holder])
    world.kill(holder)
    assert not any(kind.any() for kind in rows_of(world, found, holder))
    assert np.array_equal(found.beside[0][1][holder], selves)
