"""The pages made from the code say all of it, and the site builds with strict links."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import secure_fgl
from audits.attacks import attacks
from protocols.disclosures.names import Disclosure
from protocols.policy.policy import PRESETS
from scripts.site import links
from scripts.site.reference import made
from scripts.site.reference.api import example, members
from scripts.site.reference.cli import commands
from scripts.site.reference.words import attributes, cell, markdown, table
from secure_fgl import errors
from secure_fgl.catalogue import algorithm_names
from secure_fgl.cli.schema import SUBJECTS, model
from secure_fgl.config import Config

ROOT = Path(__file__).resolve().parent.parent
COMMON = {"--verbose", "--no-color"}
NAV = (ROOT / "mkdocs.yml").read_text("utf-8")


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    return made()


def test_the_reference_says_all_of_the_code(pages: dict[str, str]) -> None:
    for name in secure_fgl.__all__:
        assert f"\n## {name}\n" in pages["api.md"]
    assert {"plan", "run"} <= {name for name, _ in members(secure_fgl.Federation)}
    assert "### Federation.run\n" in pages["api.md"] and "**Raises**" in pages["api.md"]
    found = dict(commands())
    assert {"secure-fgl run", "secure-fgl audit verify", "secure-fgl site start"} <= set(found)
    for name, command in found.items():
        section = pages["cli.md"].partition(f"\n## {name}\n")[2].partition("\n## ")[0]
        options = {word for p in command.params for word in p.opts if word.startswith("--")}
        assert options >= COMMON
        assert all(f"`{word}`" in section for word in options - COMMON), name
    assert "Default: `table`" in pages["cli.md"]
    for subject in SUBJECTS:
        for key in model(subject).model_fields:
            assert f"| `{key}` |" in pages[f"{subject}.md"]
    said = attributes(Config.__doc__ or "")[1]
    assert said["seed"] in pages["config.md"].replace("\\*", "*")
    for code in (errors.OK, errors.BROKEN, errors.DRIFT, errors.BUDGET, errors.INTERRUPTED):
        assert f"| `{code}` |" in pages["exit-codes.md"]
    assert all(f"## {attack.id}\n" in pages["attacks.md"] for attack in attacks())
    assert all(f"| `{one}` |" in pages["disclosures.md"] for one in Disclosure)
    assert all(f"## Under `{name}`" in pages["disclosures.md"] for name in PRESETS)
    assert all(f"| `{name}` |" in pages["catalogue.md"] for name in algorithm_names())


def test_every_key_of_a_file_says_what_it_means(pages: dict[str, str]) -> None:
    for subject in SUBJECTS:
        tables = re.findall(r"^\| key \|.*?(?=\n\n|\Z)", pages[f"{subject}.md"], flags=re.S | re.M)
        rows = [line for found in tables for line in found.splitlines()[2:]]
        assert len(rows) >= len(model(subject).model_fields)
        for row in rows:
            assert re.split(r"(?<!\\)\|", row)[-2].strip(), (subject, row)


def test_every_public_name_has_an_example_that_another_test_runs(pages: dict[str, str]) -> None:
    for name in secure_fgl.__all__:
        section = pages["api.md"].partition(f"\n## {name}\n")[2].partition("\n## ")[0]
        shown = section.partition("**Example**")[2].partition("```python\n")[2].partition("```")[0]
        assert re.search(rf"\b{name}\b", shown), name
        assert shown in (ROOT / "docs/api.md").read_text("utf-8")
    with pytest.raises(LookupError, match="Gateway"):
        example("Gateway")


def test_its_links_lead_somewhere_and_the_site_shows_its_pages(pages: dict[str, str]) -> None:
    known = {f"docs/reference/{name}": links.anchors(text) for name, text in pages.items()}
    for name, text in pages.items():
        assert f"- reference/{name}\n" in NAV
        for link in links.links(text):
            path = links.target(f"docs/reference/{name}", link)
            assert path in known or (ROOT / path).is_file(), (name, link.path)
            assert not link.anchor or link.anchor in known[path], (name, link)


def test_every_page_of_the_four_kinds_is_in_the_navigation() -> None:
    for kind in ("tutorials", "how-to", "reference", "explanation"):
        for file in (ROOT / "docs" / kind).glob("*.md"):
            assert f"- {kind}/{file.name}\n" in NAV


def test_docstrings_and_cells_become_markdown() -> None:
    text = """Do ``it``.

    Args:
        a, b: two; they
            go on.

    Raises:
        Error: never :class:`~x.Y`.
    """
    shown = markdown(text)
    assert "* `a, b`: two; they go on." in shown and "* `Error`: never `x.Y`." in shown
    assert "Do `it`." in shown and "**Arguments**" in shown
    assert cell("a|b <c> `<d>`\n e") == "a\\|b &lt;c> `<d>` e"
    assert table(("x",), []) == "Nothing.\n"
    assert attributes("A.\n\nAttributes:\n    x: one.") == ("A.", {"x": "one."})


@pytest.mark.skipif(
    not (importlib.util.find_spec("mkdocs") and importlib.util.find_spec("material")),
    reason="MkDocs is not installed: `make docs` does it",
)
def test_the_site_builds_strictly_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-d", str(tmp_path / "site")]
    found = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    written = {file.relative_to(tmp_path / "site").as_posix() for file in tmp_path.rglob("*.html")}
    assert {"index.html", "reference/cli.html", "repository/LIMITATIONS.html"} <= written
    loaded = re.compile(
        r"<(?:script|img|iframe|link)\b[^>]*(?:src|href)=\"?((?:https?:)?//[^\">\s]+)"
    )
    assert loaded.findall('<link rel="stylesheet" href="https://a.example/x.css">')  # it can fail
    for name in written:
        html = (tmp_path / "site" / name).read_text("utf-8")
        assert loaded.findall(html) == [], name
