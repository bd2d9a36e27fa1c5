"""docs/pilot.md in pieces: what tests of several folders take of it, and run."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import yaml

from tests.secure_fgl.cli_tools import ROOT

PAGE = (ROOT / "docs" / "pilot.md").read_text("utf-8")
_PIECE = re.compile(
    r"^## (?P<title>[^\n]+)$|^```(?P<language>\w*)\n(?P<body>.*?)^```$", re.M | re.S
)


@dataclass(frozen=True)
class Block:
    """One block of the page, and the section in which it stands."""

    section: str
    language: str
    body: str


def blocks(page: str = PAGE) -> list[Block]:
    """Return all blocks of a page, in its order."""
    found, section = list[Block](), ""
    for piece in _PIECE.finditer(page):
        section = piece["title"] or section
        if piece["title"] is None:
            found.append(Block(section, piece["language"], piece["body"]))
    assert 2 * len(found) == len(re.findall(r"^\s*```", page, re.M)), "a block is not seen"
    return found


def section(title: str) -> str:
    """Return a section's text."""
    return PAGE[PAGE.index(f"## {title}\n") + 3 :].partition("\n## ")[0]


def console(title: str) -> list[str]:
    """Return the lines that a section shows at a prompt, which is left out."""
    shown = [b.body for b in blocks() if (b.section, b.language) == (title, "console")]
    lines = [line for body in shown for line in body.splitlines()]
    assert lines and all(line.startswith(("$ ", "# ")) for line in lines), lines
    return [line[2:] for line in lines]


def document(key: str) -> Any:
    """Return what the page's one YAML block with such a key at its top has under it."""
    (found,) = [
        d for b in blocks() if b.language == "yaml" and key in (d := yaml.safe_load(b.body))
    ]
    return found[key]


def table(title: str) -> list[list[str]]:
    """Return the rows of a section's table, without its head."""
    rows = [line for line in section(title).splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows[2:]]
