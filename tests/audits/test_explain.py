"""The explanations: one for every attack, payload, rule, verdict and exit code there is."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import get_args

import pytest

import audits
from audits import explain
from audits.attacks.models import Verdict
from audits.explain import COLUMNS, KINDS, find, page_text, words
from protocols.control import REFUSALS
from secure_fgl import errors

ATTACKS = [f"A{n:02d}" for n in range(1, 13)]
PAYLOADS = [f"P{n:02d}" for n in range(1, 21)]
EVERYTHING = [page for word in words() for page in find(word)]


def _rules() -> set[str]:
    """Return the first argument of every finding that the auditors' source makes."""
    found: set[str] = set()
    for path in Path(audits.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and node.args:
                name = getattr(node.func, "id", getattr(node.func, "attr", ""))
                if name in ("made", "add"):
                    found |= _names(node.args[0])
    return found


def _names(node: ast.expr) -> set[str]:
    """Return a rule's name; of one that is put together, its beginning with the underscore."""
    first = node.values[0] if isinstance(node, ast.JoinedStr) else node
    text = getattr(first, "value", None)
    return {text} if isinstance(text, str) and re.fullmatch(r"[A-Z][A-Z_]{2,}", text) else set()


def test_every_attack_and_payload_of_the_catalogue_is_explained():
    for word in (*ATTACKS, *PAYLOADS):
        assert len(find(word)) == 1, word


def test_every_rule_of_the_source_is_explained():
    rules = _rules()
    assert {"UNSAFE_CLEAR", "EVIDENCE_BROKEN", "REFUSED_", "WAIVER_EXPIRED", "NOT_TESTED"} <= rules
    for rule in rules:
        word = f"{rule}X" if rule.endswith("_") else rule
        assert [p.kind for p in find(word)][:1] == ["finding"], rule


def test_every_exit_code_and_verdict_is_explained():
    codes = {str(c) for n, c in vars(errors).items() if n.isupper() and isinstance(c, int)}
    assert {page.word for page in find("exit codes")} == codes
    assert len(codes) == 9
    for verdict in (*get_args(Verdict), "NOT TESTED"):
        assert "verdict" in {page.kind for page in find(verdict)}, verdict


def test_every_refusal_code_is_named():
    (page,) = find("REFUSED")
    assert all(code.upper() in page_text(page) for code in REFUSALS)


@pytest.mark.parametrize(
    ("word", "found"),
    [
        ("a05", ["A05"]),
        ("ATTACK_A05", ["ATTACK", "A05"]),
        ("INCONCLUSIVE_A09", ["INCONCLUSIVE", "A09"]),
        ("refused_plan", ["REFUSED"]),
        ("exit 3", ["3"]),
        ("Exit Code 130", ["130"]),
        ("not-tested", ["NOT_TESTED", "NOT TESTED"]),
        ("A13", []),
        ("", []),
    ],
)
def test_a_word_is_found_however_it_is_written(word, found):
    assert [page.word for page in find(word)] == found


@pytest.mark.parametrize("page", EVERYTHING, ids=lambda p: f"{p.kind}-{p.word}")
def test_a_page_fits_in_80_columns_and_says_what_to_do(page):
    lines = page_text(page).splitlines()
    assert max(map(len, lines)) <= COLUMNS == 80
    assert page.kind in KINDS.values() and page.title
    assert "What to do" in dict(page.sections) and all(text for _, text in page.sections)


def test_an_attack_s_page_answers_what_a_lawyer_asks():
    for word in ATTACKS:
        headings = dict(find(word)[0].sections)
        asked = ("The question", "Who attacks, and what they know", "What the number means")
        assert all(headings[heading] for heading in asked), word


def test_no_page_promises_what_cannot_be_promised():
    forbidden = re.compile(r"\b(compliant|anonymous|anonymised|safe|guaranteed|secure)\b", re.I)
    for page in EVERYTHING:
        told = page_text(page).replace("secure-fgl", "")
        assert not forbidden.search(told), page.word


def test_what_all_exit_codes_share_is_said_once():
    told = "\n".join(page_text(page) for page in find("exit codes"))
    assert told.count("5, 6, 7, 3, 4") == 1
    assert "5, 6, 7, 3, 4" in page_text(find("5")[0])


def test_an_entry_that_lacks_a_section_is_refused(monkeypatch, tmp_path):
    (tmp_path / "exits.yaml").write_text("headings: {a: A}\nentries: {'1': {title: t}}\n")
    monkeypatch.setattr(explain, "files", lambda name: tmp_path)
    monkeypatch.setattr(explain, "KINDS", {"exits": "exit code"})
    explain._pages.cache_clear()
    try:
        with pytest.raises(ValueError, match="section"):
            words()
    finally:
        explain._pages.cache_clear()
