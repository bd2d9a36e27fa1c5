"""O7: why lists on a sparse graph take two steps even where nobody is missing (ADR 0035).

A model of the circle, with the numbers of shares and votes that a sparse graph has: who gives what
follows from who was told what. It shows that one answer would let an aggregator open a sum that no
holder signed, and that today's rules, without it, do not.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from crypto.graph import honest_majority

DEGREE, CORRUPT = 20, 1  # neighbours of each client; those among them that may be corrupt
THRESHOLD = honest_majority(DEGREE + 1, CORRUPT)
QUORUM = honest_majority(DEGREE + 1, CORRUPT + 1)  # see `Group.of`
HALF = DEGREE // 2
EVERYBODY = "M"


def around(story: Sequence[str], place: int) -> list[int]:
    """Return the places of a client's holders."""
    return [(place + step) % len(story) for step in range(-HALF, HALF + 1)]


def givers(story: Sequence[str], *, at_once: bool) -> list[bool]:
    """Tell which holders give shares.

    Args:
        story: of each holder the list it was told; `EVERYBODY` where nobody is missing.
        at_once: that list is served without votes.
    """
    counted = [[story[x] for x in around(story, place)] for place in range(len(story))]

    def gives(holder: int) -> bool:
        told = story[holder]
        if told == EVERYBODY and at_once:
            return True
        return all(counted[owner].count(told) >= QUORUM for owner in around(story, holder))

    return [gives(holder) for holder in range(len(story))]


def unreached(story: Sequence[str], *, at_once: bool) -> list[int]:
    """Return the clients of which too few holders gave a share, of either kind."""
    gave = givers(story, at_once=at_once)
    places = range(len(story))
    return [p for p in places if sum(gave[x] for x in around(story, p)) < THRESHOLD]


def patchwork() -> list[str]:
    """Two stretches with lists of their own, `A` and `B`, kept apart by two that miss nobody."""
    spare = DEGREE + 1 - QUORUM
    seam = [False] * DEGREE
    for number in range(spare):  # among those that vote, so many that do not, evenly
        seam[number * DEGREE // spare] = True

    def stretch(told: str) -> list[str]:
        edge = [EVERYBODY if missing else told for missing in seam]
        return [*edge[::-1], *([told] * 3 * DEGREE), *edge, *([EVERYBODY] * DEGREE)]

    return [*stretch("A"), *stretch("B")]


def test_o7_control_in_one_answer_two_short_lists_would_both_be_served():
    """Lists A and B each lack a client in the middle of its stretch: the sum lacks both."""
    story = patchwork()
    gave = givers(story, at_once=True)
    for told in "AB":
        middle = [place for place, said in enumerate(story) if said == told]
        lacking = middle[len(middle) // 2]
        holders = around(story, lacking)
        assert all(story[x] == told and gave[x] for x in holders)  # its row opens
    # Of a few clients at each seam no seed is reached. They can be left out of the cohort, which
    # leaves more than the corrupt among any DEGREE / 2 successive clients.
    left_out = set(unreached(story, at_once=True))
    runs = [sum((p + step) % len(story) in left_out for step in range(HALF)) for p in left_out]
    assert 0 < max(runs) < HALF - CORRUPT


def test_o7_in_two_steps_the_seams_are_too_wide_to_be_left_out():
    story = patchwork()
    left_out = set(unreached(story, at_once=False))
    runs = [sum((p + step) % len(story) in left_out for step in range(HALF)) for p in left_out]
    assert max(runs) == HALF  # a window without any client, which every holder refuses


@pytest.mark.parametrize("told", ["A", EVERYBODY])
def test_one_story_for_all_reaches_everybody(told):
    assert not unreached([told] * 12 * DEGREE, at_once=told == EVERYBODY)
