"""MkDocs' hook: adds pages made from the code and those outside docs/, and turns links to them.

MkDocs shows one folder, and our pages lie beside the code that they speak of. Whatever a page links
to outside docs/ is taken into the site: Markdown as a page below `repository/`, README.md as the
first page, other files as they are below `files/`. A link to a folder becomes plain words.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

from scripts.site import links
from scripts.site.reference import made

ROOT = Path(__file__).resolve().parents[2]
_TITLED = re.compile(r"^(```+)(\w+) ([\w./:-]+)$", flags=re.M)
_of: dict[str, str] = {}
"""Path in the site -> path in the repository, of every page."""


def place(path: str) -> str | None:
    """Return where the site holds a file of the repository; None where it holds none."""
    if path == "README.md":
        return "index.md"
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if path.endswith(".md"):
        return f"repository/{path}"
    return f"files/{path}" if (ROOT / path).is_file() else None


def on_files(files: Any, config: Any) -> Any:
    """Add what the site has besides docs/; MkDocs calls it once a build."""
    _of.clear()
    for uri, text in made().items():
        files.append(File.generated(config, f"reference/{uri}", content=text))
    waiting = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "LIMITATIONS.md", "SECURITY.md"]
    waiting += [f"docs/{one.src_uri}" for one in files.documentation_pages()]
    while waiting:
        path = waiting.pop()
        there = place(path)
        if there is None or there in _of:
            continue
        _of[there] = path
        if files.get_file_from_path(there) is None:
            files.append(File.generated(config, there, abs_src_path=str(ROOT / path)))
        if path.endswith(".md") and (ROOT / path).is_file():
            text = (ROOT / path).read_text("utf-8")
            waiting += [links.target(path, link) for link in links.links(text) if link.path]
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Turn a page's links to where the site holds what they lead to."""
    uri = page.file.src_uri
    path, here = _of[uri], posixpath.dirname(uri)
    for link in reversed(list(links.links(markdown))):
        to = place(links.target(path, link))
        if link.path and to is not None:
            anchor = f"#{link.anchor}" if link.anchor else ""
            turned = posixpath.relpath(to, here or ".") + anchor
            markdown = markdown[: link.start] + turned + markdown[link.end :]
        elif link.path:
            markdown = _plain(markdown, link)
    return _TITLED.sub(r'\1\2 title="\3"', markdown)


def _plain(markdown: str, link: links.Link) -> str:
    """Return a page in which a link is its words alone: the site holds no listing of a folder."""
    begin = markdown.rindex("[", 0, link.start)
    end = markdown.index(")", link.end) + 1
    return markdown[:begin] + markdown[begin + 1 : link.start - 2] + markdown[end:]
