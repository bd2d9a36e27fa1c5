"""Every link of every page leads to a file that is there, and to a heading that it has."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from scripts.site.links import anchors, broken, links, pages, slug

ROOT = Path(__file__).resolve().parent.parent


def test_every_link_leads_somewhere() -> None:
    assert len(pages(ROOT)) > 60
    assert broken(ROOT) == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[a](gone.md)", "a.md: there is no gone.md"),
        ("[a](b.md#nowhere)", "a.md: b.md has no heading #nowhere"),
        ("[a](#nowhere)", "a.md: a.md has no heading #nowhere"),
        ("[a](../outside.md)", "a.md: there is no ../outside.md"),
        ("![a](gone.svg)", "a.md: there is no gone.svg"),
    ],
)
def test_a_planted_dead_link_is_found(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "a.md").write_text(text, "utf-8")
    (tmp_path / "b.md").write_text("# There\n", "utf-8")
    assert broken(tmp_path) == [words]


def test_what_is_code_or_elsewhere_is_no_link() -> None:
    text = "`[a](b)` [c](https://d.example) [e](mailto:f@g.example)\n\n```md\n[h](i.md)\n```\n"
    assert list(links(text)) == []


def test_anchors_are_those_of_headings_and_marks(tmp_path: Path) -> None:
    text = '# A `b`: [c](d.md), ε!\n\n```sh\n# no heading\n```\n<a id="kept"></a>\n'
    assert anchors(text) == {"a-b-c-ε", "kept"}
    assert slug("`spec.yaml`") == "specyaml"
    (tmp_path / "a.md").write_text("# On b\n[x](#on-b) [y](b.md#b)\n", "utf-8")
    (tmp_path / "b.md").write_text('<a id="b"></a>\n', "utf-8")
    assert broken(tmp_path) == []


WRITTEN = {"STEPS.md", "VERIFY.md", "HOCON.md", "CHANGES.md", "RELEASE.md"}
"""Pages that the program writes, and other projects' pages."""


def named(text: str) -> set[str]:
    """Return the pages in capitals that a text names."""
    return set(re.findall(r"\b[A-Z]{4,}\.md\b", text))


def test_no_page_is_named_that_is_not_here() -> None:
    folders = ("algorithms", "audits", "benchmarks", "crypto", "protocols", "secure_fgl", "tests")
    files = [file for folder in folders for file in (ROOT / folder).rglob("*")]
    files += [ROOT / name for name in ("README.md", "LIMITATIONS.md", "SECURITY.md")]
    files += [*(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "results").glob("*.md")]
    texts = [f for f in files if f.suffix in (".py", ".yaml", ".md") and f != Path(__file__)]
    there = WRITTEN | {page.name for page in pages(ROOT)}
    missing = {str(f): named(f.read_text("utf-8")) - there for f in texts}
    assert {file: gone for file, gone in missing.items() if gone} == {}
    assert named("Sources: AUDITS.md A.3") - there == {"AUDITS.md"}  # the control
