"""What the words of a report mean, for readers who are no engineers.

The texts are data: one YAML file per kind (attacks, payloads, findings, exit codes, verdicts), one
entry per word, the same sections for all entries of a kind. Nothing here is legal advice.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from functools import cache
from importlib.resources import files

from protocols.strict import Strict, read_yaml

__all__ = ["COLUMNS", "KINDS", "Page", "find", "page_text", "words"]

COLUMNS = 80
KINDS = {
    "attacks": "attack",
    "payloads": "payload",
    "findings": "finding",
    "verdicts": "verdict",
    "exits": "exit code",
}
"""Data file, without its ending -> what its entries are."""

_FAMILIES = ("ATTACK", "INCONCLUSIVE", "REFUSED")
"""Rules that go on with the id of an attack or the code of a refusal."""


class Page(Strict):
    """All there is to say about one word.

    Attributes:
        word: as it stands in a report.
        kind: of :data:`KINDS`.
        title: in a few words.
        sections: headings with their paragraphs.
    """

    word: str
    kind: str
    title: str
    sections: tuple[tuple[str, str], ...]


@cache
def _pages() -> dict[tuple[str, str], Page]:
    """Read the texts; every entry must have every section of its kind."""
    found: dict[tuple[str, str], Page] = {}
    for name, kind in KINDS.items():
        document = read_yaml(files(__name__).joinpath(f"{name}.yaml").read_text("utf-8"))
        headings, after = document["headings"], document.get("after", [])
        for word, entry in document["entries"].items():
            if set(entry) != {"title", *headings}:
                raise ValueError(f"{name}.yaml: the entry {word} lacks a section or has one more")
            sections = [(heading, entry[key].strip()) for key, heading in headings.items()]
            sections += [(heading, text.strip()) for heading, text in after]
            found[kind, str(word)] = Page(
                word=str(word), kind=kind, title=entry["title"], sections=tuple(sections)
            )
    return found


def words() -> tuple[str, ...]:
    """Return every word that has an entry, each once."""
    return tuple(dict.fromkeys(word for _, word in _pages()))


def find(word: str) -> tuple[Page, ...]:
    """Return the entries of a word; none if it is unknown, several if two kinds share it.

    Args:
        word: an attack (A05), payload (P12), rule (ATTACK_A05 gives the rule and the attack),
            verdict, exit code (3), or ``exit codes`` for all of them. Case does not matter.
    """
    wanted = " ".join(word.upper().replace("-", "_").split())
    if wanted in ("EXIT CODES", "EXIT CODE", "EXIT_CODES"):
        return _together([page for (kind, _), page in _pages().items() if kind == "exit code"])
    wanted = wanted.removeprefix("EXIT CODE ").removeprefix("EXIT ")
    for family in _FAMILIES:
        rest = wanted.removeprefix(f"{family}_")
        if rest != wanted:
            return (_pages()["finding", family], *_named([rest]))
    return _named([wanted, wanted.replace("_", " ")])


def _together(pages: list[Page]) -> tuple[Page, ...]:
    """Return pages of one kind; what all of them say stands on the last one only."""
    shared = set(pages[0].sections).intersection(*(page.sections for page in pages))
    bare = [
        page.model_copy(update={"sections": tuple(s for s in page.sections if s not in shared)})
        for page in pages[:-1]
    ]
    return (*bare, pages[-1])


def _named(names: Iterable[str]) -> tuple[Page, ...]:
    wanted = set(names)
    return tuple(page for (_, name), page in _pages().items() if name in wanted)


def page_text(page: Page, columns: int = COLUMNS) -> str:
    """Return a page as plain text, no line longer than `columns`."""
    lines = [*textwrap.wrap(f"{page.word} ({page.kind})  {page.title}", columns), ""]
    for heading, text in page.sections:
        wrapped = textwrap.wrap(text, columns - 2, break_on_hyphens=False)
        lines += [heading, *(f"  {line}" for line in wrapped), ""]
    return "\n".join(lines).rstrip() + "\n"
