"""The report as people see it: at two widths, light and dark, by keyboard, on paper."""

from __future__ import annotations

import gzip
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from audits.formats import render
from audits.report.build import build_report
from audits.report.models import Denied, Report, Vanished
from tests.audits.toy_run import run_toy
from tests.browser.chromium import PROGRAM, Chromium

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="no chromium here")
LONG = pytest.mark.long
VECTORS = Path(__file__).resolve().parents[1] / "vectors"
LOOKS = [
    pytest.param(
        wide, dark, opened, marks=[] if (wide, dark, opened) == (400, True, False) else LONG
    )
    for wide in (1280, 400)
    for dark in (False, True)
    for opened in (False, True)
]
TAB = ("Tab", 9)


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    made = Chromium(tmp_path_factory.mktemp("browser"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def report() -> Report:
    return build_report(run_toy("he").view())


@pytest.fixture(scope="module")
def pages_of_it(report, tmp_path_factory) -> dict[bool, Path]:
    """The report as it is, and with everything unfolded."""
    folder = tmp_path_factory.mktemp("page")
    found = {opened: folder / f"report-{opened}.html" for opened in (False, True)}
    text = render(report, ["html"])["report.html"].decode()
    found[False].write_text(text, "utf-8")
    found[True].write_text(text.replace("<details>", "<details open>"), "utf-8")
    return found


def violations(browser: Chromium) -> list[str]:
    browser.run(gzip.decompress((VECTORS / "axe.min.js.gz").read_bytes()).decode() + "; true")
    return browser.run(
        "axe.run().then(r => r.violations.map(v => v.id + ': ' + v.nodes[0].target.join(' ')))"
    )


@pytest.mark.parametrize(("wide", "dark", "opened"), LOOKS)
def test_nothing_is_cut_off_and_axe_finds_nothing(browser, pages_of_it, wide, dark, opened):
    browser.open(pages_of_it[opened], wide, dark=dark)
    assert browser.run("matchMedia('(prefers-color-scheme: dark)').matches") is dark
    assert browser.run("document.documentElement.scrollWidth") == wide
    assert violations(browser) == []
    past = browser.run(
        "[...document.querySelectorAll('figure svg text')].filter(e => {"
        " const b = e.getBoundingClientRect(); return b.width && (b.right > innerWidth"
        " || b.left < 0); }).map(e => e.textContent)"
    )
    assert past == []


@LONG
def test_what_axe_and_the_width_would_find_is_found(browser, pages_of_it, tmp_path):
    """The control: the same page, made worse."""
    text = pages_of_it[False].read_text("utf-8")
    worse = text.replace("--soft: #55606a", "--soft: #c8ccd0").replace(' lang="en"', "")
    worse = worse.replace("overflow-x: auto", "overflow-x: visible")
    file = tmp_path / "worse.html"
    file.write_text(worse, "utf-8")
    browser.open(file, 400)
    found = {line.partition(":")[0] for line in violations(browser)}
    assert {"color-contrast", "html-has-lang"} <= found
    assert browser.run("document.documentElement.scrollWidth") > 400


def test_the_keyboard_reaches_all_that_opens_or_scrolls(browser, pages_of_it):
    browser.open(pages_of_it[False], 1280)
    wanted = browser.run(
        "[...document.querySelectorAll('a, summary, [tabindex=\"0\"]')]"
        ".filter(e => e.checkVisibility()).length"
    )
    browser.press(*TAB)
    assert browser.run("document.activeElement.className") == "skip"
    seen = 1
    while seen < wanted:
        browser.press(*TAB)
        state = browser.run(
            "[document.activeElement.tagName, getComputedStyle(document.activeElement)"
            ".outlineStyle, document.activeElement.closest('section')?.id]"
        )
        assert state[0] in ("A", "SUMMARY", "DIV") and state[1] != "none", state
        seen += 1
    folded = "document.querySelector('details:not([open])')"
    browser.run(f"{folded}.id = 'tried'; document.querySelector('#tried > summary').focus()")
    browser.press("Enter", 13, "\r")
    assert browser.run("document.getElementById('tried').open") is True


def pages(browser: Chromium, text: bytes, folder: Path) -> int:
    file = folder / "printed.html"
    file.write_bytes(text)
    browser.open(file, 1280)
    return max(int(n) for n in re.findall(rb"/Count (\d+)", browser.printed()))


def crowd(report: Report) -> Report:
    """The report as it would be of 943 clients no two of which sent alike, many of them gone."""
    first = next(party for party in report.parties if party.role == "client")
    names = [f"user-{n:03d}" for n in range(943)]
    many = [
        first.model_copy(update={"name": name, "sent": 4 + n, "key": f"{n:016x}"})
        for n, name in enumerate(names)
    ]
    others = [party for party in report.parties if party.role != "client"]
    route = next(row for row in report.inventory if row.sender == first.name)
    gone = [
        Vanished(client=name, round=1 + n % 9, exchange=n % 9, moment="before it answered")
        for n, name in enumerate(names)
    ]
    denied = [
        Denied(party=name, entry=n, exchange=n % 9, round=1, code="malformed")
        for n, name in enumerate(names)
    ]
    head = report.subject.heads[0]
    heads = tuple(head.model_copy(update={"party": name}) for name in names)
    return report.model_copy(
        update={
            "parties": (*others, *many),
            "subject": report.subject.model_copy(update={"clients": 943, "heads": heads}),
            "inventory": tuple(route.model_copy(update={"sender": name}) for name in names),
            "dropouts": report.dropouts.model_copy(update={"vanished": tuple(gone)}),
            "plan_diff": report.plan_diff.model_copy(update={"denied": tuple(denied)}),
        }
    )


def test_a_report_of_943_clients_prints_whole(browser, report, tmp_path):
    """About thirty clients a page in each of two tables, and nothing of it twice."""
    text = render(crowd(report), ["html"])["report.html"]
    assert text.count(b"user-500") == 2  # parties and heads, both folded
    assert b"user-000, user-009, user-018, ... (105 in all)" in text
    assert 15 < pages(browser, text, tmp_path) <= 70


def words_of(browser: Chromium) -> list[set[str]]:
    """Return the plain words of every folded section of the page; spans are never split in them."""
    texts = browser.run(
        "[...document.querySelectorAll('details')].map(e =>"
        " [...e.querySelectorAll('td, th, li, dd')].map(c => c.textContent).join(' '))"
    )
    return [set(re.findall(r"(?<![\w.])[a-z]{4,9}(?![\w.])", text)) for text in texts]


def on_paper(browser: Chromium, folder: Path, text: str) -> tuple[list[set[str]], set[str]]:
    """Return the words of each folded section, and those of the page as PDF; it must be A4."""
    file = folder / "paper.html"
    file.write_text(text, "utf-8")
    browser.open(file, 1280)
    wanted = words_of(browser)
    pdf = folder / "paper.pdf"
    pdf.write_bytes(browser.printed())
    done = subprocess.run(["pdftotext", str(pdf), "-"], capture_output=True, check=True)
    facts = subprocess.run(["pdfinfo", str(pdf)], capture_output=True, check=True).stdout
    assert b"(A4)" in facts
    return wanted, set(re.findall(r"[a-z]+", done.stdout.decode()))


@pytest.mark.skipif(shutil.which("pdftotext") is None, reason="no pdftotext here")
def test_what_is_folded_on_the_screen_is_on_paper(browser, report, tmp_path):
    text = render(report, ["html"])["report.html"].decode()
    wanted, printed = on_paper(browser, tmp_path, text)
    assert len(wanted) > 20 and sum(map(bool, wanted)) > 20
    assert [words - printed for words in wanted if words - printed] == []
    # Control: the rule that opens them taken away, as it was.
    shut = text.replace("details::details-content { content-visibility: visible", "details { x: y")
    wanted, printed = on_paper(browser, tmp_path, shut)
    assert set().union(*wanted) - printed
