"""Two sums of one round are over the same clients, or over no common one (O5).

A hostile reading opened the total over five clients and the one over four of them, of two Asks of
one round, by the votes of seven clients who were in neither.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from protocols.disclosures.sum.messages import Survivors, Vote
from tests.protocols.toys import TWICE
from tests.protocols.unveiling import (
    Haul,
    NotEnough,
    certify,
    evidence_for,
    haul,
    is_sum_of,
    place_of,
    tell,
    unveil,
)
from tests.protocols.wire import World


def vote(world: World, found: Haul, holder: str, listed: Sequence[str]) -> Vote | None:
    """Show one holder a list; return its vote, None for a refusal."""
    place = place_of(found, holder)
    message = Survivors(
        members=world.roster.mask(place.members),
        survivors=world.roster.mask(listed),
        slot=place.slot,
        evidence=evidence_for(world, found, holder),
    )
    answer: Vote | None = tell(world, "survivors", holder, message, place, Vote)
    return answer


def serve(world: World, found: Haul, holders: Sequence[str], listed: Sequence[str]) -> None:
    """Show a list to holders, then all votes that there are."""
    votes = {holder: vote(world, found, holder, listed) for holder in holders}
    signed = {holder: one.signature for holder, one in votes.items() if one is not None}
    for holder in signed:
        certify(world, found, holder, signed, None, frozenset(listed))


def opens(world: World, found: Haul, members: Sequence[str]) -> bool:
    """Tell whether what was given opens the sum of these clients."""
    try:
        return is_sum_of(world, unveil(world, found, members), members)
    except NotEnough:
        return False


@pytest.mark.parametrize("nested", [True, False])
def test_o5_two_sums_of_one_round_are_not_nested(nested: bool) -> None:
    """Their difference would be the vector of the client that only one of them counts."""
    world = World(TWICE, "masks", clients=12).start()
    cohort, outside = world.names[:5], world.names[5:]
    left = cohort[1:] if nested else cohort
    first = haul(world, lambda _: None, members=cohort)
    for name in left:  # they believe that one vanished, and take an Ask for the others
        assert vote(world, first, name, left) is not None
    second = haul(world, lambda _: None, members=left, exchange=2, slot=1)
    serve(world, first, outside, cohort)
    serve(world, second, outside, left)
    assert opens(world, first, cohort)
    assert opens(world, second, left) is not nested  # the control: over the same clients it opens
