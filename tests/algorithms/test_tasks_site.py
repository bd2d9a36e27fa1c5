"""A Site stays where it is, and its randomness can be replayed."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from dataclasses import dataclass

import pytest

from algorithms.tasks import Site


@dataclass
class Data:
    count: int = 3
    secret: str = "SENTINEL"


@pytest.mark.parametrize("leave", [pickle.dumps, copy.copy, copy.deepcopy])
def test_a_site_does_not_leave_its_process(leave):
    with pytest.raises(TypeError, match="gateway"):
        leave(Site(Data(), seed=1))


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_no_pickle_protocol_is_left_open(protocol):
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps([Site(Data(), seed=1)], protocol=protocol)


def test_the_representation_is_mute():
    site = Site(Data(), seed=1)
    assert repr(site) == str(site) == f"{site}" == "<Site>"


def test_count_is_the_data_s():
    assert Site(Data(count=17), seed=0).count == 17


def test_a_generator_depends_on_seed_label_and_turn_only():
    first, second = Site(Data(), seed=5), Site(Data(), seed=5)
    first.generator("elsewhere").random(100)  # another label's draws shift nothing
    fits = [first.generator("fit").integers(2**62) for _ in range(3)]
    assert fits == [second.generator("fit").integers(2**62) for _ in range(3)]
    assert len(set(fits)) == 3
    assert first.generator("mix").integers(2**62) not in fits
    assert Site(Data(), seed=6).generator("fit").integers(2**62) != fits[0]


def test_a_resumed_site_continues_with_the_same_streams():
    before = Site(Data(), seed=5)
    drawn = [before.generator("fit").integers(2**62) for _ in range(3)]
    after = Site(Data(), seed=5)
    after.draws.update({"fit": 2})
    assert after.generator("fit").integers(2**62) == drawn[2]


def test_streams_are_the_same_in_another_process():
    program = (
        "from algorithms.tasks import Site\n"
        "print(Site(None, seed=9).generator('fit').integers(2**62))"
    )
    there = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert int(there.stdout) == Site(None, seed=9).generator("fit").integers(2**62)


def test_a_negative_seed_is_refused():
    with pytest.raises(ValueError, match="non-negative"):
        Site(Data(), seed=-1)
