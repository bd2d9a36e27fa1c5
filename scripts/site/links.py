"""Links between Markdown files: which there are, and what in the repository they lead to."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_FENCE = re.compile(r"^( *)(```+|~~~+)[^\n]*\n.*?^ *\2 *$", flags=re.S | re.M)
_CODE = re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)", flags=re.S)
_LINK = re.compile(r"\]\(\s*<?([^)>\s]+)>?(?:\s+\"[^\"]*\")?\s*\)")
_HEADING = re.compile(r"^#{1,6}\s+(.+?)\s*#*$", flags=re.M)
_MARK = re.compile(r"<a (?:id|name)=\"([^\"]+)\">")
_ELSEWHERE = re.compile(r"^[a-z][a-z0-9+.-]*:", flags=re.I)
_SKIPPED = ("runs", "build", "dist", "node_modules")


class Link(NamedTuple):
    """A link to a place in this repository.

    Attributes:
        path: as written, without the anchor; empty for a place on the same page.
        anchor: what stands behind ``#``; empty if nothing does.
        start, end: where the target stands in the text.
    """

    path: str
    anchor: str
    start: int
    end: int


def pages(root: Path) -> list[Path]:
    """Return the repository's Markdown files; hidden folders and what runs leave are left out."""
    return sorted(
        file
        for file in root.rglob("*.md")
        if not any(p.startswith(".") or p in _SKIPPED for p in file.relative_to(root).parts)
    )


def prose(text: str) -> str:
    """Return a text of the same length in which code is blank: links in it are none."""

    def blank(found: re.Match[str]) -> str:
        return re.sub(r"[^\n]", " ", found[0])

    return _CODE.sub(blank, _FENCE.sub(blank, text))


def links(text: str) -> Iterator[Link]:
    """Yield the links of a page that stay within the repository."""
    for found in _LINK.finditer(prose(text)):
        if not _ELSEWHERE.match(found[1]):
            path, _, anchor = found[1].partition("#")
            yield Link(path, anchor, *found.span(1))


def slug(heading: str) -> str:
    """Return the anchor of a heading, as code hosts and the site make it."""
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
    return re.sub(r"[^\w\- ]", "", plain.strip().lower()).replace(" ", "-")


def anchors(text: str) -> set[str]:
    """Return the places of a page that a link can name: its headings, and ``<a id="...">``."""
    fenced = _FENCE.sub(lambda found: "\n" * found[0].count("\n"), text)
    return {slug(one) for one in _HEADING.findall(fenced)} | set(_MARK.findall(fenced))


def target(page: str, link: Link) -> str:
    """Return the path that a link leads to, relative to the repository's root.

    Args:
        page: the path of the page that holds it, likewise.
        link: the link.
    """
    if not link.path:
        return page
    return posixpath.normpath(posixpath.join(posixpath.dirname(page), link.path))


def broken(root: Path) -> list[str]:
    """Return a sentence for every link of the repository's pages that leads nowhere."""
    texts = {file.relative_to(root).as_posix(): file.read_text("utf-8") for file in pages(root)}
    known = {path: anchors(text) for path, text in texts.items()}
    found = []
    for page, text in texts.items():
        for link in links(text):
            path = target(page, link)
            if path.startswith("..") or not (root / path).exists():
                found.append(f"{page}: there is no {link.path}")
            elif link.anchor and path in known and link.anchor not in known[path]:
                found.append(f"{page}: {path} has no heading #{link.anchor}")
    return found
