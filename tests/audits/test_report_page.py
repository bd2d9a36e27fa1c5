"""The report's page: self-contained, readable, harmless to open."""

from __future__ import annotations

import csv
import io
import itertools
import json
import re
import shutil
import subprocess
import unicodedata
from pathlib import Path

import pytest

from audits import plots
from audits.formats import render
from audits.report import words
from audits.report.models import Report
from audits.report.page import alike as _alike
from audits.report.page import called as _called
from protocols.policy.policy import PRESETS
from secure_fgl import Config, Federation
from tests.audits.report_tools import FORMULA, HOSTILE, Page
from tests.audits.toy_run import CLIENTS, run_toy


def test_the_page_loads_nothing_and_runs_nothing(page):
    found = Page(page)
    assert not {"script", "link", "iframe", "object", "embed", "img", "form"} & set(found.tags)
    assert not [name for _, name, _ in found.attributes if name.startswith("on") or name == "style"]
    for name in ("src", "srcset", "action", "data"):
        assert not found.values(name)
    assert all(value.startswith("#") for value in found.values("href"))
    assert all(target.startswith("#") for target in re.findall(r"url\(([^)]*)\)", page))
    assert "http:" not in page
    assert "https:" not in page
    assert "@import" not in page
    (policy,) = [v for v in found.values("content") if "default-src" in v]
    assert "default-src 'none'" in policy
    assert "style-src 'unsafe-inline'" in policy


def test_the_page_is_readable_with_a_keyboard_and_a_screen_reader(page):
    found = Page(page)
    assert found.open == []
    assert found.values("lang") == ["en"]
    assert len(found.ids) == len(set(found.ids))
    assert {value[1:] for value in found.values("href")} <= set(found.ids)
    assert {v for t in found.values("aria-labelledby") for v in t.split()} <= set(found.ids)
    assert found.tags.count("table") == found.tags.count("caption")
    assert found.tags.count("h1") == 1
    assert found.values("href")[0] == "#main"  # the skip link comes first
    assert set(found.values("scope")) == {"col", "row"}
    assert found.tags.count("th") == len(found.values("scope"))
    regions = [v for _, n, v in found.attributes if n == "role" and v == "region"]
    assert len(regions) == found.values("tabindex").count("0") == found.tags.count("table")
    levels = [int(tag[1]) for tag in found.tags if re.fullmatch(r"h[1-6]", tag)]
    assert all(b - a <= 1 for a, b in itertools.pairwise(levels))


def test_every_figure_has_a_title_a_description_and_a_table(page):
    tables = {
        "flows": "Data flows",
        "stacks": "Bytes per round<",
        "bars": "rolled up by role<",
        "seen": "Who could read what<",
        "curves": "accuracy over the rounds<small",
    }
    assert page.count("<desc ") == len(tables)  # no noise and no attacks in this run
    for kind, caption in tables.items():
        assert page.count(f'class="{kind}"') == 1
        assert page.index(f'class="{kind}"') < page.index(caption)


def test_a_bar_s_value_stands_below_its_label_and_is_never_cut():
    bar = str(plots.bars("b", "t", "d", [plots.Bar("x" * 99, "540 kB UNSAFE", 0.5, unsafe=True)]))
    (label, _), (value, shown) = re.findall(r'<text x="0" y="(\d+)"[^>]*>([^<]*)<', bar)
    assert int(value) - int(label) >= 16  # pixels: a line of text
    assert shown == "540 kB UNSAFE"


def test_states_are_told_by_word_and_shape_beside_colour(page):
    marks = {state: str(plots.mark(state)) for state in ("OK", "ATTENTION", "FAIL", "NOT TESTED")}
    assert len(set(marks.values())) == 4
    for word in ("OK", "ATTENTION", "NOT TESTED"):
        assert f"{marks[word]}{word}</span>" in page


@pytest.mark.parametrize("word", ["compliant", "anonymous", "anonymised", "safe"])
def test_no_report_promises_what_it_cannot_know(toy, word):
    for data in toy.view().reports.values():
        assert not re.search(rf"\b{word}\b", data.decode(), re.IGNORECASE)


def test_no_name_turns_what_stands_beside_it(report):
    """Marks of direction and controls of a stranger's name are shown, and not obeyed."""
    turned = "north\u202e\u2066\u200b\x1b[2J"
    text = report.model_dump_json().replace(f'"{CLIENTS[0]}"', json.dumps(turned))
    found = render(Report.model_validate_json(text), ["html", "md", "csv"])
    for name in ("report.html", "report.md", "inventory.csv"):
        said = found[name].decode()
        assert not set("\u202e\u2066\u200b\x1b") & set(said), name
    assert "north" in found["report.html"].decode() and "\ufffd" in found["report.html"].decode()


def test_each_character_that_is_seen_stays_and_no_other():
    """Of planes and edges of Unicode in which both lie beside each other."""
    blocks = (range(0x3100), range(0xD7F0, 0xE010), range(0xFE00, 0x10000), range(0xE0000, 0xE0080))
    every = "".join(chr(code) for block in blocks for code in block)
    for character, shown in zip(every, words.visible(every), strict=True):
        hidden = unicodedata.category(character)[0] == "C" and character not in "\n\t"
        assert shown == ("\ufffd" if hidden else character), hex(ord(character))


def test_hostile_names_are_text_everywhere(hostile):
    assert HOSTILE not in hostile["report.html"]
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in hostile["report.html"]
    assert "script" not in Page(hostile["report.html"]).tags
    assert HOSTILE not in hostile["report.md"]
    assert "](javascript" not in hostile["report.md"]
    rows = list(csv.reader(io.StringIO(hostile["inventory.csv"])))
    cells = [cell for row in rows for cell in row]
    assert f"'{FORMULA}" in cells
    assert not any(cell.startswith(("=", "+", "-", "@")) for cell in cells)
    assert json.loads(hostile["report.json"])["parties"]


def test_the_csv_holds_every_route_with_all_its_facts(report):
    files = render(report, ["csv"])
    rows = list(csv.DictReader(io.StringIO(files["inventory.csv"].decode())))
    assert len(rows) == len(report.inventory)
    (row,) = [r for r in rows if (r["sender"], r["item"]) == (CLIENTS[0], "step.up.SUM")]
    assert "Answer.delta f8[8] weight: change of the model" in row["fields"]
    assert "aggregator: only the cohort's total" in row["learns"]
    found = list(csv.DictReader(io.StringIO(files["findings.csv"].decode())))
    assert [f["id"] for f in found] == [f.id for f in report.findings]


def test_a_page_of_many_clients_stays_readable():
    names = tuple(f"client-{n:03d}" for n in range(250))
    view = run_toy("unsafe_plaintext", rounds=1, clients=names).view()
    page = view.reports["report.html"].decode()
    assert page.count("client-007") <= 3  # party table and heads; no row per route
    assert "stand in <code>inventory.csv</code>" in page
    assert view.reports["inventory.csv"].count(b"client-007") == 4
    roll_up = page[page.index("rolled up by role") : page.index("What is in each of them")]
    assert "client-" not in roll_up


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (102_400, "102 kB"),
        (999_600, "1.0 MB"),
        (10_474_080, "10.5 MB"),
        (3 * 10**12, "3000 GB"),
    ],
)
def test_sizes_have_three_figures_and_a_unit(count, text):
    assert words.size(count) == text


def test_policy_presets_all_have_words_for_their_protection():
    for policy in PRESETS.values():
        for chain in policy.rules.values():
            assert words.protection(tuple(guard.guard for guard in chain)) != "unknown"


@pytest.mark.parametrize(
    ("guards", "text"),
    [
        ("clip quantise he(scheme=bfv) seal", "encrypted sum, sealed"),
        ("clip quantise mask seal", "masked sum, sealed"),
        ("clip quantise noise mask seal", "noised and masked sum, sealed"),
        ("clip quantise noise mask ckks seal", "noised, masked and encrypted sum, sealed"),
        ("clip quantise mask unsafe_clear", "UNSAFE: in clear"),
    ],
)
def test_protection_is_said_in_words(guards, text):
    assert words.protection(tuple(guards.split())) == text


def test_what_is_folded_is_printed_and_the_first_page_is_a_summary(page):
    printed = page[page.index("@media print") : page.index("</style>")]
    assert "details::details-content { content-visibility: visible" in printed
    assert "size: A4" in page
    assert "#scope { break-before: page; }" in printed
    before = page[page.index("<main") : page.index('<section id="scope"')]
    assert "Seven questions, answered" in before and "<table" not in before


def test_parties_that_sent_and_received_alike_stand_in_one_row(page, report):
    table = page[page.index("Parties, by what they sent") : page.index("Parties, one by one")]
    assert 0 < table.count("<tr>") - 1 < len(report.parties)
    assert table.count("<tr>") - 1 == len(_alike(report.parties))
    assert [party for group in _alike(report.parties) for party in group] != []
    (first, *_), other = report.parties, report.parties[0].model_copy(update={"refusals": 7})
    assert len(_alike([first, other])) == 2 and len(_alike([first, first])) == 1
    assert _called([first] * 5) == f"{first.name}, {first.name}, {first.name}, ... (5 in all)"


@pytest.mark.long
@pytest.mark.skipif(shutil.which("chromium") is None, reason="no chromium here")
def test_the_report_of_the_demo_prints_on_at_most_eight_pages(tmp_path):
    """With everything opened it takes more: whoever wants that can have it."""
    config = Config.load(Path(__file__).resolve().parents[2] / "examples/banks.yaml", [])
    run = Federation.from_config(config).run(tmp_path / "demo")
    text = run.report(["html"])[0].read_text("utf-8")
    assert 1 < _pages(text, tmp_path) <= 8
    assert _pages(text.replace("<details>", "<details open>"), tmp_path) > 12


def _pages(text, folder):
    file, made = folder / "page.html", folder / "page.pdf"
    file.write_text(text, "utf-8")
    switches = ["--headless", "--no-sandbox", "--disable-gpu", "--no-pdf-header-footer"]
    command = ["chromium", *switches, f"--print-to-pdf={made}", file.as_uri()]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    return max(int(n) for n in re.findall(rb"/Count (\d+)", made.read_bytes()))
