"""The explanations: one for every attack, payload, rule, verdict and exit code there is."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from types import SimpleNamespace
from typing import get_args

import pytest

import audits
from audits import explain
from audits.attacks import attacks
from audits.attacks._shared.models import Verdict
from audits.evidence.steps import SELF_CONSISTENT, WITNESSED
from audits.evidence.verify import CHECKS
from audits.explain import _UNWRITTEN as UNWRITTEN
from audits.explain import COLUMNS, KINDS, find, page_text, suggested, words
from audits.exporters import EXPORTERS
from audits.report.attack_words import reading
from protocols.disclosures.names import Disclosure
from protocols.wire.control import REFUSALS
from protocols.wire.roles import Role
from secure_fgl import errors

ATTACKS = [*(f"A{n:02d}" for n in range(1, 17)), "A20"]
PAYLOADS = [f"P{n:02d}" for n in range(1, 22)]
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


@pytest.mark.parametrize(
    "word",
    [
        *("chance", "Prior", "raw", "null", "Left", "protected", "margin", "gain", "gate"),
        *("ATTENTION", "NOT CHECKED", "NOT TESTED", "NOT APPLICABLE", "NOT PLANNED", "WAIVED"),
        *("UNDECIDED", "not falsified", "self-consistent", SELF_CONSISTENT, WITNESSED),
        *(str(one) for one in (*Disclosure, *Role)),
        *("rank", "flattened", "cosine", "row", "key authority", "witness"),
        *("replica", "no end recorded"),
        *("AUC", "TPR@1%", "no longer measured", "quick", "epsilon", "FAILED", "OK"),
    ],
)
def test_every_word_that_the_output_prints_is_explained(word):
    assert find(word), word


def test_every_step_of_the_verification_is_explained():
    names = {check.name for check in CHECKS}
    steps = {page.word for page in EVERYTHING if page.kind == "step of audit verify"}
    bundles = {"manifest", "attestations", "accounting", "statements", "trust"}
    assert steps == names | bundles | {"canaries", "others"}  # of some runs, of one side alone


def _steps() -> set[str]:
    """Return the names of all steps that the auditors' source gives a check or fails at."""
    found: set[str] = set()
    for path in (Path(audits.__file__).parent / "checks").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Check" and node.args:
                name = getattr(node.args[0], "value", None)
                found |= {name} if isinstance(name, str) else set()
    return found


def test_every_file_of_the_folders_has_an_entry():
    """Who adds an attack, an exporter or a step has to explain it."""
    kinds = {page.word: page.kind for page in EVERYTHING}
    assert {word for word, kind in kinds.items() if kind == "form of audit export"} == set(
        EXPORTERS
    )
    for one in attacks():
        assert kinds.get(one.id) == "attack", one.id
    steps = _steps()
    assert {"tree", "others", "witnesses"} <= steps
    for step in steps:
        assert "step of audit verify" in {page.kind for page in find(step)}, step


def test_the_role_witness_and_the_step_witnesses_are_told_apart():
    (role,), (step,) = find("witness"), find("witnesses")
    assert (role.kind, step.kind) == ("word", "step of audit verify")
    assert "step witnesses" in page_text(role) and "role witness" in page_text(step)
    opened = page_text(find("opened")[0])
    assert "cosines" in opened and "witness" in opened


def test_every_attack_is_found_by_the_name_that_attacks_takes():
    for attack in attacks():
        assert [page.word for page in find(attack.name)] == [attack.id]
        assert UNWRITTEN not in find(attack.id)[0].title


def test_an_attack_that_nobody_wrote_is_marked_wherever_it_is_named():
    there = {attack.id for attack in attacks()}
    missing = set(ATTACKS) - there
    assert missing  # once all are there this test has nothing to look at, and may go
    for word in missing:
        assert find(word)[0].title.endswith(UNWRITTEN)
    for page in EVERYTHING:
        told = " ".join(text for _, text in page.sections)
        for word in missing - {page.word}:
            named = len(re.findall(rf"\b{word}\b", told))
            assert named == len(re.findall(rf"\b{word},? \(?not written yet\)", told)), page.word
        assert not any(f"{word} {UNWRITTEN}" in told for word in there)


def test_an_attack_is_no_longer_marked_once_it_is_there(monkeypatch):
    assert UNWRITTEN in page_text(find("P19")[0])
    monkeypatch.setattr(explain, "attacks", lambda: [SimpleNamespace(id=word) for word in ATTACKS])
    explain._pages.cache_clear()
    try:
        assert not any(UNWRITTEN in page_text(page) for word in words() for page in find(word))
    finally:
        explain._pages.cache_clear()


def test_nobody_is_told_to_ask_for_an_attack_that_is_not_there():
    for word in PAYLOADS:
        assert UNWRITTEN not in dict(find(word)[0].sections)["What to do"], word


def test_what_was_not_tested_says_more_than_to_test_it():
    for page in find("NOT TESTED"):
        todo = dict(page.sections)["What to do"]
        assert all(word in todo for word in ("--attacks", "--data", "captures")), page.kind


def test_a_row_is_read_as_the_report_reads_it():
    """One source: what the page adds is what the five values are, where they are estimates."""
    readings = {word: dict(find(word)[0].sections)["How to read a row"] for word in ATTACKS}
    assert "facts" in readings["A09"] and "claimed" in readings["A10"]
    general = readings["A07"]
    assert all(word in general for word in ("Chance", "Prior", "Raw", "Null", "Left", "interval"))
    for word, text in readings.items():
        told = explain._marked(reading(word), {attack.id for attack in attacks()})
        bare = word in ("A07", "A08", "A09", "A10", "A16")  # facts, or not written yet
        assert text == (told if bare else f"{general} {told}")
    assert len({readings[attack.id] for attack in attacks()} | {general}) == len(attacks()) + 1


@pytest.mark.parametrize(
    ("word", "near"),
    [
        ("UNSAFE_CLAER", "UNSAFE_CLEAR"),
        ("a04x", "A04"),
        ("grad-spam", "grad-span"),
        ("witneses", "witnesses"),
        ("Not Chekced", "NOT CHECKED"),
        ("9", ""),
        ("qqqq", ""),
    ],
)
def test_a_suggestion_is_spelt_as_in_the_catalogue(word, near):
    assert suggested(word) == near
    assert not near or find(near)


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
        ("not applicable", ["NOT_APPLICABLE"]),
        ("ERROR_A05", ["ERROR", "A05"]),
        ("label_count", ["A04"]),
        ("A17", []),
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


def test_an_attack_s_page_answers_what_a_lawyer_exchanges():
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
