"""What is kept of a cohort by which tuple names it, and what is counted without all its names."""

import math

import numpy as np
import pytest

from protocols.disclosures.sum.layout import _largest
from protocols.keys.groups import Group, Neighbours
from protocols.policy.policy import PrivacyPolicy
from protocols.wire.roster import _MOST, as_set, by_names, cohort_digest, within

NAMES = tuple(f"client-{place:03}" for place in range(120))
GROUP = Group.of("r" * 32, 0, NAMES, PrivacyPolicy.preset("masks"))


def test_one_tuple_is_asked_for_once_and_what_else_is_asked_counts():
    asked = []

    @by_names
    def joined(names: tuple[str, ...], end: str, start: str = "") -> str:
        asked.append(names)
        return start + "+".join(names) + end

    names, same = ("a", "b"), tuple(["a", "b"])
    assert names is not same
    assert [joined(names, "!") for _ in range(3)] == ["a+b!"] * 3
    assert len(asked) == 1
    assert (joined(names, "?"), joined(same, "!"), joined(names, "!", start="<")) == (
        *("a+b?", "a+b!", "<a+b!"),
    )
    assert len(asked) == 4


def test_a_tuple_in_the_place_of_one_that_is_gone_is_another():
    kept = by_names(lambda names: names)
    for number in range(20 * _MOST):  # each may lie where an earlier one lay
        fresh = tuple([f"client-{number}"])
        assert kept(fresh) is fresh
        del fresh


def test_sets_and_digests_of_equal_tuples_are_equal():
    other = tuple(list(NAMES))
    assert as_set(NAMES) == as_set(other) == frozenset(NAMES)
    assert within(other[3:], as_set(NAMES)) and not within(NAMES, as_set(other[3:]))
    assert cohort_digest("r", "p", 1, 1, NAMES) == cohort_digest("r", "p", 1, 1, list(other))
    assert cohort_digest("r", "p", 1, 1, NAMES) != cohort_digest("r", "p", 1, 1, other[1:])


def counted(voters: set[str], owners: tuple[str, ...]) -> int:
    """Count the plain way."""
    return min(sum(holder in voters for holder in GROUP.holders(owner)) for owner in owners)


@pytest.mark.parametrize("absent", [0, 1, 7, 60, 119, 120])
def test_o7_the_fewest_votes_are_counted_from_those_that_are_missing(absent):
    assert GROUP.degree < len(NAMES) - 1
    rng = np.random.default_rng(absent)
    for _ in range(5):
        voters = set(NAMES) - {NAMES[place] for place in rng.permutation(120)[:absent]}
        assert GROUP.fewest(voters) == counted(voters, NAMES)
        for name in NAMES[::17]:
            expected = counted(voters, GROUP.holders(name))
            assert GROUP.fewest(voters, name) == expected
            # What is shown to a holder is enough for it.
            assert GROUP.fewest(voters & set(GROUP.voters(name)), name) == expected


@pytest.mark.parametrize(("count", "degree"), [(120, 10), (120, 58), (121, 60), (120, 80)])
def test_o7_the_voters_a_holder_is_shown_hold_what_it_holds_shares_of(count, degree):
    names = tuple(f"client-{place:03}" for place in range(count))
    graph = Neighbours(names, degree, b"s" * 32)
    for name in names:
        near = (graph.holders[owner] for owner in graph.holders[name])
        assert graph.voters(name) == tuple(sorted(set().union(*near)))


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.int64, np.int8, np.uint8])
def test_the_largest_magnitude_is_found_without_a_copy(kind):
    values = np.array([3, 0, 100], dtype=kind)
    assert _largest(values) == 100
    assert _largest(values[:0]) == 0
    if kind is not np.uint8:
        low = np.iinfo(kind).min if np.issubdtype(kind, np.integer) else -(2.0**100)
        assert _largest(np.array([3, low, 100], dtype=kind)) == -float(low)


@pytest.mark.parametrize("worst", [math.nan, math.inf, -math.inf])
def test_the_largest_magnitude_is_not_finite_if_one_value_is_not(worst):
    for place in range(3):
        values = np.array([1.0, 2.0, -3.0])
        values[place] = worst
        assert not math.isfinite(_largest(values))
