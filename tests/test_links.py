"""Every link of every page leads to a file that is there, and to a heading that it has."""

from __future__ import annotations

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
