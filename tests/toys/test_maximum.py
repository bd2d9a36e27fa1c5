"""A new disclosure is one folder: MAXIMUM, a toy, is dropped into a copy of the tree.

And what it discloses: from the totals of all levels nothing but the maximum can be read.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from crypto.samplers import Stream
from protocols.disclosures.registry import code
from tests.toys.dropping import dropped, laws, new_paths, python
from tests.toys.maximum.levels import Words, largest, raised, split

LAWS = "maximum_laws.py"
TOP, DRAWS, LEVEL = 6, 4000, 1e-10


def totals(clients: list[int], key: int) -> Words:
    """Return the totals, shape (TOP, DRAWS), of so many cohorts whose clients hold these values."""
    streams = [Stream(bytes([key, number]) + bytes(30)) for number in range(len(clients))]
    each = [raised(np.full(DRAWS, v), TOP, s) for v, s in zip(clients, streams, strict=True)]
    return np.sum(each, axis=0, dtype=np.uint64)


def uniform(words: Words) -> bool:
    """Tell by chi square, on the highest and on the lowest byte, whether words are uniform."""
    for byte in (words >> np.uint64(56), words & np.uint64(255)):
        counts = np.bincount(byte.astype(np.int64), minlength=256)
        if stats.chisquare(counts).pvalue < LEVEL:
            return False
    return True


@pytest.mark.parametrize("clients", [[3], [3, 0, 1], [3, 3, 3, 3], [0, 1, 2, 3], [3] * 20])
def test_totals_tell_the_maximum_and_nothing_else(clients: list[int]) -> None:
    found = totals(clients, key=len(clients))
    assert (largest(found) == max(clients)).all()
    for level, row in enumerate(found, 1):
        assert uniform(row) if level <= max(clients) else not row.any()


def test_nobody_above_nothing_is_a_maximum_of_nothing() -> None:
    assert (largest(totals([0, 0, 0], key=1)) == 0).all()


def test_the_control_that_adds_one_shows_how_many_reach_a_level() -> None:
    class One(Stream):
        def words(self, count: int) -> Words:
            return np.ones(count, dtype=np.uint64)

    streams = [One(bytes(32)) for _ in range(4)]
    clients = [3, 3, 1, 0]
    each = [raised(np.full(DRAWS, v), TOP, s) for v, s in zip(clients, streams, strict=True)]
    found = np.sum(each, axis=0, dtype=np.uint64)
    assert (largest(found) == 3).all()  # it works, and tells more
    assert found[:, 0].tolist() == [3, 2, 2, 0, 0, 0]
    assert not uniform(found[0])


def test_a_share_alone_is_uniform_and_both_are_the_number() -> None:
    numbers = raised(np.full(DRAWS, 2), TOP, Stream(bytes(32)))
    one, other = split(numbers, Stream(bytes([1]) + bytes(31)))
    assert ((one + other) == numbers).all()
    assert all(uniform(row) for share in (one, other) for row in share)
    assert not uniform(numbers[-1])  # the control: without shares a level tells who reaches it


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    toys = {"maximum": "protocols/disclosures/maximum", "fed_share.py": "algorithms/fed_share.py"}
    return dropped(tmp_path_factory.mktemp("dropped") / "tree", toys)


def test_a_new_disclosure_is_one_folder(copy: Path) -> None:
    assert new_paths(copy) == ["algorithms/fed_share.py", "protocols/disclosures/maximum/"]


def test_a_plan_s_code_is_that_of_every_folder_and_changes_with_a_byte(copy: Path) -> None:
    def found() -> dict[str, str]:
        script = "import json; from protocols.disclosures.registry import code as c"
        return dict(json.loads(python(copy, "-c", f"{script}; print(json.dumps(c()))").stdout))

    dropped, changed = found(), copy / "protocols" / "disclosures" / "maximum" / "levels.py"
    assert dropped == {**code(), "maximum": dropped["maximum"]} and "maximum" not in code()
    text = changed.read_text("utf-8")
    changed.write_text(f"{text}\n", "utf-8")
    try:
        assert {name for name, digest in found().items() if dropped[name] != digest} == {"maximum"}
    finally:
        changed.write_text(text, "utf-8")


def test_it_is_admitted_planned_run_recorded_audited_and_resumed(
    copy: Path,
) -> None:
    assert not laws(copy, LAWS, "not sites")


@pytest.mark.long
def test_it_runs_between_sites(copy: Path) -> None:
    assert not laws(copy, LAWS, "sites")


def test_the_house_rules_hold_for_it(copy: Path) -> None:
    done = python(copy, "-m", "scripts.house_rules")
    assert done.returncode == 0, done.stdout
