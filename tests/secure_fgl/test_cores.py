"""Points on all cores: the same results, in threads that are made once."""

from __future__ import annotations

import os
import threading

import pytest

from crypto.errors import InvalidPoint
from crypto.oprf import Blinded, KeyShare, random_scalars
from secure_fgl.run import cores
from secure_fgl.run.cores import over_cores

INPUTS = [b"%d" % number for number in range(300)]  # five parts


@pytest.fixture
def two(monkeypatch):
    cores._pool.cache_clear()
    monkeypatch.setattr(cores, "_cores", lambda: 2)
    yield
    cores._pool.cache_clear()


def test_the_same_tags_come_out_on_all_cores(two):
    blinds, key = random_scalars(300), KeyShare.generate()
    found = []
    for spread in (map, over_cores):
        batch = Blinded(INPUTS, blinds, spread)
        found.append((batch.points, batch.finalize(key.evaluate(batch.points, spread), spread)))
    assert found[0] == found[1]


def test_parts_are_worked_through_by_several_threads_which_are_made_once(two):
    barrier = threading.Barrier(2, timeout=20)  # two parts must be under way at a time

    def work(part):
        barrier.wait()
        return [threading.current_thread()]

    first = [n for found in over_cores(work, [slice(0, 1), slice(1, 2)]) for n in found]
    again = [n for found in over_cores(work, [slice(0, 1), slice(1, 2)]) for n in found]
    assert len(set(first)) == 2 and set(first) == set(again)


def test_one_part_or_one_core_needs_no_thread(two, monkeypatch):
    names = []
    note = lambda part: names.append(threading.current_thread()) or []  # noqa: E731
    list(over_cores(note, [slice(0, 1)]))
    monkeypatch.setattr(cores, "_cores", lambda: 1)
    list(over_cores(note, [slice(0, 1), slice(1, 2)]))
    assert set(names) == {threading.current_thread()} and len(names) == 3


def test_what_is_no_point_is_refused_from_a_thread(two):
    batch = Blinded(INPUTS, random_scalars(300), over_cores)
    wrong = [*batch.points[:-1], b"\xff" * 32]
    with pytest.raises(InvalidPoint):
        KeyShare.generate().evaluate(wrong, over_cores)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_fork_makes_threads_of_its_own(two):
    """Its parent's threads are not there: work that waits for them never ends."""
    key, points = KeyShare.generate(), Blinded(INPUTS, random_scalars(300), over_cores).points
    wanted = key.evaluate(points, over_cores)
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.write(writing, b"1" if key.evaluate(points, over_cores) == wanted else b"0")
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as answer:
        assert answer.read() == b"1"
    os.waitpid(child, 0)


def test_cores_are_those_that_this_process_may_use(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3, 5, 7}, raising=False)
    assert cores._cores() == 3
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert cores._cores() == 1
