"""The list of planted faults fits the tree; `make mutants` shows that tests find them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from scripts.mutants.__main__ import ROOT, verdict
from scripts.mutants.listed import BadList, Fault, plant, read_faults, read_tests, sources
from tests.thinned import QUICK

FAULTS = read_faults()
TEXTS = sources(ROOT)


def test_every_obligation_has_a_fault_and_laws_have_more():
    names = {name for fault in FAULTS for name in fault.obligations}
    assert {f"O{number}" for number in range(1, 32)} <= names
    assert sum(fault.id.startswith("law-") for fault in FAULTS) >= 9
    assert len(FAULTS) >= 40


def test_names_are_unique_and_say_what_is_broken():
    assert len({fault.id for fault in FAULTS}) == len(FAULTS)
    for fault in FAULTS:
        begins = fault.id.partition("-")[0].upper()
        assert begins == "LAW" or begins in fault.obligations
        assert fault.wrong.endswith(".")


def test_every_fault_can_be_planted_in_one_place_and_is_python_that_differs():
    planted = []
    for fault in FAULTS:
        file, text = plant(fault, TEXTS)
        assert text != TEXTS[file] and ast.parse(text)
        planted.append(text)
    assert len(set(planted)) == len(FAULTS)


def test_every_fault_names_tests_that_are_there():
    tests = read_tests()
    assert list(tests) == [fault.id for fault in FAULTS]
    for named in tests.values():
        assert named
        for test in named:
            path, _, name = test.partition("::")
            assert re.search(rf"^def {name}\(", (ROOT / path).read_text("utf-8"), re.MULTILINE)


def long_in(source: str) -> set[str]:
    """Return the test functions of a file that are `long` as a whole, by what stands above them."""
    tree = ast.parse(source)
    of_the_file = any(
        isinstance(line, ast.Assign) and "pytestmark" in ast.unparse(line) and is_long(line.value)
        for line in tree.body
    )
    return {
        found.name
        for found in tree.body
        if isinstance(found, ast.FunctionDef)
        and (of_the_file or any(map(is_long, found.decorator_list)))
    }


def is_long(mark: ast.expr) -> bool:
    return bool(re.fullmatch(r"[\[(]?(pytest\.mark\.long|LONG)[\]),]*", ast.unparse(mark)))


def never_quick(tests: Iterable[str], quick: Mapping[str, bool]) -> list[str]:
    """Return the tests of which `make test` runs no case, of those that were collected."""
    return sorted(test for test in tests if not quick.get(test, True))


def test_every_fault_is_found_by_tests_of_which_make_test_runs_cases(
    request: pytest.FixtureRequest,
) -> None:
    """What stands above a function is read from its file, what a case is marked with is collected.

    A run of all tests collects all of them but those that have processes of their own.
    """
    finders = {test.partition("[")[0] for named in read_tests().values() for test in named}
    quick = request.config.stash[QUICK]
    assert never_quick(finders, quick) == []
    by_file: dict[str, set[str]] = {}
    for test in finders:
        path, _, name = test.partition("::")
        by_file.setdefault(path, set()).add(name)
    for path, names in by_file.items():
        assert not names & long_in((ROOT / path).read_text("utf-8")), path
    if request.config.args == request.config.getini("testpaths"):
        apart = (ROOT / "Makefile").read_text("utf-8").partition("ENGINE :=")[2].partition("LOG")[0]
        assert {test.partition("::")[0] for test in finders - {*quick}} <= {*apart.split()}


def test_the_control_is_a_finder_that_make_test_leaves_out() -> None:
    quick = {"tests/a.py::test_b": False, "tests/a.py::test_c": True}
    assert never_quick([*quick, "tests/z.py::test_of_another_run"], quick) == ["tests/a.py::test_b"]
    marked = "@pytest.mark.long\ndef test_b(): ...\ndef test_c(): ...\n"
    assert long_in(marked) == {"test_b"}
    assert long_in(f"pytestmark = pytest.mark.long\n{marked}") == {"test_b", "test_c"}
    assert (
        long_in(
            "LONG = pytest.mark.long\n@pytest.mark.parametrize('x', [LONG])\ndef test_d(): ...\n"
        )
        == set()
    )


def fault(find: str) -> Fault:
    return Fault("o1-a", ("O1",), "It goes wrong.", find, "")


@pytest.mark.parametrize("find", ["nowhere", "twice", "in both"])
def test_a_text_that_does_not_stand_in_just_one_place_is_named(find):
    texts = {Path("a.py"): "once twice twice in both", Path("b.py"): "in both"}
    assert plant(fault("once "), texts) == (Path("a.py"), "twice twice in both")
    with pytest.raises(BadList, match="o1-a"):
        plant(fault(find), texts)


def test_a_test_that_fails_finds_a_fault():
    failed = "E   assert 1 == 2\nFAILED tests/a.py::test_b[c d] - assert 1 == 2\n1 failed"
    assert verdict(1, failed) == verdict(2, failed) == "tests/a.py::test_b[c d]"
    assert verdict(0, "3 passed") is None
    fixture = "E   ValueError: no\nERROR tests/a.py::test_b - ValueError: no\n1 error"
    assert verdict(1, fixture) == "tests/a.py::test_b"
    logged = f"ERROR    a.b:c.py:80 what the code logged\n{failed}"
    assert verdict(1, logged) == "tests/a.py::test_b[c d]"


@pytest.mark.parametrize(
    ("code", "output"),
    [
        (2, "E   assert False\nERROR tests/a.py - assert False\nInterrupted: 1 error"),
        (4, "ImportError while loading conftest 'tests/conftest.py'."),
        (4, "ERROR: not found: tests/a.py::test_gone"),
        (5, "no tests ran"),
        (1, "E   SyntaxError: invalid syntax\nFAILED tests/a.py::test_b - SyntaxError"),
        (1, "E   NameError: name 'x' is not defined\nFAILED tests/a.py::test_b - NameError"),
        (1, "E   secure_fgl._floors.NotOurCode: no\nFAILED tests/a.py::test_b - NotOurCode"),
        (1, "ERROR tests/a.py - assert False\n1 error"),
    ],
)
def test_what_cannot_even_be_imported_was_not_found(code, output):
    with pytest.raises(BadList):
        verdict(code, output)
