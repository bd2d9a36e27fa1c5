"""What findings, limits and plans name in LIMITATIONS.md is there, and each section has an id."""

from __future__ import annotations

import re
from pathlib import Path

from audits.findings import limitations
from audits.findings.limitations import IDS, named, of_rule, of_warning
from audits.formats import render
from protocols.disclosures.names import Disclosure
from scripts.site.links import anchors

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "LIMITATIONS.md").read_text("utf-8")


def test_every_id_that_is_named_exists_and_every_section_has_one() -> None:
    assert anchors(PAGE) >= IDS
    sections = re.findall(r"^## (.*)$", PAGE, flags=re.M)
    assert [title.partition(".")[0] for title in sections] == [
        f"L{n}" for n in range(1, len(sections) + 1)
    ]
    for n, title in enumerate(sections, 1):
        assert f'<a id="L{n}"></a>\n\n## {title}\n' in PAGE
    marked = re.findall(r'<a id="(L[\d.]+)"></a>', PAGE)
    assert len(marked) == len(set(marked))
    for point in re.findall(r'^- <a id="(L[\d.]+)"></a>(\S+) ', PAGE, flags=re.M):
        assert point[0] == point[1]  # readers find it by its text, too
    points = [id for id in marked if "." in id]
    assert set(points) <= IDS  # none stands there unnamed
    assert limitations.PAGE == "LIMITATIONS.md"


def test_the_rules_that_have_an_id_are_rules() -> None:
    texts = [
        file.read_text("utf-8")
        for folder in ("findings", "report", "evidence")
        for file in (ROOT / "audits" / folder).glob("*.py")
        if file.name != "limitations.py"
    ]
    for rule in limitations._RULES:
        assert any(f'"{rule}"' in text for text in texts), rule
    assert of_rule("MISSING") == "" == of_warning("the data are SYNTHETIC (generated)")


def test_warnings_of_a_kind_of_message_have_its_id() -> None:
    assert of_warning("the totals themselves are disclosed and are not noised") == "L1.7"
    assert of_warning("x.up.SUM: an entry of the total (O12)") == "L1.7"
    for disclosure, id in limitations._DISCLOSED.items():
        for begin in limitations.words_of(Disclosure(disclosure)).limits:
            assert of_warning(f"{begin} and more") in IDS, begin
        assert id in IDS
    assert named("So it is.", "L2") == "So it is (LIMITATIONS.md#L2)."
    assert named("so it is", "L2") == "so it is (LIMITATIONS.md#L2)" and named("a", "") == "a"


def test_a_report_names_them_on_the_page_and_in_the_text(report) -> None:
    files = {name: data.decode() for name, data in render(report, ["html", "md"]).items()}
    found = {f.rule: f.limitation for f in report.findings}
    assert found["SIMULATION"] == "L7"
    for text in files.values():
        assert "LIMITATIONS.md" in text.replace("\\", "")
    assert "(LIMITATIONS.md#L1.7)" in files["report.html"]
    assert "(LIMITATIONS.md#L7)" in files["report.html"]
    assert {id for id in found.values() if id} <= IDS
    named_there = set(re.findall(r"LIMITATIONS\.md#(L[\d.]*\d)", files["report.html"]))
    assert named_there <= IDS and len(named_there) > 2
