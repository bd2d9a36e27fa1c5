"""Every security claim of the pages is marked, and names the test that fails if it is false.

A claim carries the mark ``<!--claim NAME-->`` at its end, which no reader of a page sees.
`tests/claims.yaml` names its tests. In the pages that people rely on, a sentence with a word of
certainty is a claim, or stands in `tests/claims_none.yaml`, as it claims nothing about security.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
import yaml

from tests.test_mutants import long_in

ROOT = Path(__file__).resolve().parents[1]
RELIED_ON = ("README.md", "SECURITY.md", "docs/threat-model.md", "docs/pilot.md")
PAGES = (*RELIED_ON, *sorted(f"docs/adr/{f.name}" for f in (ROOT / "docs/adr").glob("0*.md")))
MARK = re.compile(r"<!--claim ([a-z0-9-]+)-->")
CERTAIN = re.compile(r"\b(cannot|can not|never|nobody|no one|refuses?|refused|nothing)\b", re.I)
CODE = re.compile(r"```.*?```|`[^`]*`", re.S)
CLAIMS: dict[str, list[str]] = yaml.safe_load((ROOT / "tests/claims.yaml").read_text("utf-8")) or {}
NONE: dict[str, list[str]] = yaml.safe_load((ROOT / "tests/claims_none.yaml").read_text("utf-8"))


def text_of(page: str) -> str:
    return (ROOT / page).read_text("utf-8")


def sentences(text: str) -> list[str]:
    """Return the sentences of a page, each with the marks that follow it; code is left out."""
    plain = CODE.sub("…", text)
    parts = re.split(r"(?<=[.!?:;])(?=\s(?!<!--claim))|(?<=-->)|\n|(?<=\s)\|", plain)
    return [" ".join(part.split()) for part in parts if part.strip()]


def unmarked(text: str, plain: list[str]) -> list[str]:
    """Return the sentences with a word of certainty, no mark, and no place in the list."""
    found = [s for s in sentences(text) if CERTAIN.search(MARK.sub("", s)) and not MARK.search(s)]
    return [s for s in found if not any(s.startswith(start) for start in plain)]


def test_every_claim_is_marked_once_and_listed() -> None:
    marks = Counter(name for page in PAGES for name in MARK.findall(text_of(page)))
    assert [name for name, count in marks.items() if count > 1] == []
    assert sorted(marks) == sorted(CLAIMS)


@pytest.mark.parametrize("page", RELIED_ON)
def test_a_sentence_with_a_word_of_certainty_is_a_claim_or_listed_as_none(page: str) -> None:
    assert unmarked(text_of(page), NONE.get(page, [])) == []


def test_a_claim_names_tests_that_are_there_and_run_in_the_gate() -> None:
    for name, tests in CLAIMS.items():
        assert tests, name
        for test in tests:
            path, _, function = test.partition("::")
            source = (ROOT / path).read_text("utf-8")
            assert re.search(rf"^def {function}\(", source, re.MULTILINE), (name, test)
            assert function not in long_in(source), (name, test)


def test_no_sentence_is_listed_that_is_not_there() -> None:
    for page, starts in NONE.items():
        there = sentences(text_of(page))
        assert [s for s in starts if not any(t.startswith(s) for t in there)] == []


def test_the_control_finds_a_claim_without_a_mark() -> None:
    assert unmarked("A relay cannot read it. It is fast.", []) == ["A relay cannot read it."]
    assert unmarked("A relay cannot read it. <!--claim a--> It is fast.", []) == []
    assert unmarked("Nothing is sent.\n| x | nobody |", ["Nothing is"]) == ["nobody"]
    hidden = "It cannot. <!--claim a--> Nobody reads it."
    assert unmarked(hidden, []) == ["Nobody reads it."]
