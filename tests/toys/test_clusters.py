"""Clusters from the algorithm's side: the same in clear and protected, held over lost rounds."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from algorithms.tasks import Site
from protocols.clusters import Cut
from protocols.errors import RoundLost
from protocols.rounds import Ask, Cohort, Reply
from secure_fgl.run.driver import Driver
from tests.toys.clusters import clusters
from tests.toys.stage import Played, play


def camps(count: int = 8) -> list[Site]:
    rng = np.random.default_rng(5)
    pull = rng.uniform(0.1, 0.2, size=6)
    changes = [(pull if n % 2 else -pull) + rng.normal(0, 0.01, size=6) for n in range(count)]
    return [Site(SimpleNamespace(change=change), seed=n) for n, change in enumerate(changes)]


@pytest.fixture(scope="module")
def played() -> list[Played]:
    policies = ("unsafe_plaintext", "masks")
    return [play(clusters(d=6), camps(), policy, rounds=2) for policy in policies]


def test_two_planted_groups_are_found_in_clear_and_protected(played: list[Played]) -> None:
    changes = np.stack([site.data.change for site in camps()])
    whole, step = changes.mean(axis=0), 2 * 0.5 / (2**15 - 1)  # the grid's: clip 0.5, 16 bits
    wanted = [whole + changes[place::2].mean(axis=0) for place in (0, 1)]
    for run in played:
        found = [centre.weights for centre in run.state]
        assert len(found) == 2
        for one in wanted:  # in which order follows from who is where
            assert min(np.abs(one - other).max() for other in found) < step
    clear, protected = ([c.weights for c in run.state] for run in played)
    assert np.array_equal(clear, protected)


def test_each_client_answers_once_a_round_and_ask_whatever_the_clusters(
    played: list[Played],
) -> None:
    for run in played:
        for client in run.parties.roster.clients:
            for item in ("train.up.SUM", "look.up.SIMILARITY"):
                sent = [e for e in run.tap.envelopes(item) if e.header.sender == client]
                assert [e.header.round for e in sent] == [1, 2]


def halves() -> tuple[Cohort, Cut]:
    names = tuple(f"site-{n}" for n in range(8))
    return Cohort(names), Cut(1, 1, names, names[:4])


@pytest.mark.parametrize("caught", [False, True])
def test_a_round_that_is_lost_as_a_whole_takes_its_splits_back(caught: bool) -> None:
    cohort, cut = halves()
    driver = Driver.__new__(Driver)
    driver.cohort = cohort

    def steps() -> Any:
        cohort._divided(cut)
        try:
            yield Ask(cohort, given=())
        except RoundLost:
            if not caught:
                raise
        return "what was summed before"

    def lost(ask: Ask, round: int) -> Reply:
        raise RoundLost("Too few are left.")

    driver.ask = lost  # type: ignore[method-assign]
    with pytest.raises(RoundLost):
        driver.play(steps(), 1)
    assert [part.size for part in cohort.parts] == ([4, 4] if caught else [8])


def test_what_was_split_is_no_cluster_any_more() -> None:
    cohort, cut = halves()
    one, other = cohort._divided(cut)
    assert cohort.parts == one.parts == (one, other) and {one.size, other.size} == {4}
    with pytest.raises(ValueError, match="no cluster of the run"):
        cohort._divided(cut)
    assert one._divided(None) == (one,) and one._divided(cut) == (one,)
