"""What the words of a report mean, for readers who are no engineers.

The texts are data: one YAML file per kind (attacks, payloads, findings, verdicts, exit codes,
steps, forms of export and other words), one entry per word, the same sections for all entries of a
kind. An entry may have other spellings (``also``). How to read an attack's rows is told in the
words of the report. Where a text names an attack of the catalogue that the program does not have,
it says so. Nothing here is legal advice.
"""

from __future__ import annotations

import difflib
import re
import textwrap
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from audits.attacks import attacks
from audits.report.attack_words import lesson
from protocols.strict import Strict, read_yaml

__all__ = ["COLUMNS", "KINDS", "Page", "find", "page_text", "suggested", "words"]

COLUMNS = 80
KINDS = {
    "attacks": "attack",
    "payloads": "payload",
    "findings": "finding",
    "verdicts": "verdict",
    "exits": "exit code",
    "steps": "step of audit verify",
    "exports": "form of audit export",
    "terms": "word",
}
"""Data file, without its ending -> what its entries are."""

_FAMILIES = (
    *("ATTACK", "ABOVE PRIOR", "INCONCLUSIVE", "INVALID", "ERROR", "NOT TESTED"),
    "REFUSED",
)
"""Rules that go on with the id of an attack or the code of a refusal."""
_OPTIONAL = {"also"}
_READING = "How to read a row"
_UNWRITTEN = "(not written yet)"
_LIKE = 0.7  # of a misspelt word; less suggests words that have nothing in common with it


class Page(Strict):
    """All there is to say about one word.

    Attributes:
        word: as it stands in a report.
        kind: of :data:`KINDS`.
        title: in a few words.
        sections: headings with their paragraphs.
        also: other spellings.
    """

    word: str
    kind: str
    title: str
    sections: tuple[tuple[str, str], ...]
    also: tuple[str, ...] = ()


@cache
def _pages() -> dict[tuple[str, str], Page]:
    """Read the texts; every entry must have every section of its kind."""
    found: dict[tuple[str, str], Page] = {}
    for name, kind in KINDS.items():
        document = read_yaml(files(__name__).joinpath(f"{name}.yaml").read_text("utf-8"))
        headings, after = document["headings"], document.get("after", [])
        for word, entry in document["entries"].items():
            if set(entry) - _OPTIONAL != {"title", *headings}:
                raise ValueError(f"{name}.yaml: the entry {word} lacks a section or has one more")
            sections = [(heading, entry[key]) for key, heading in headings.items()]
            if kind == "attack":
                sections.append((_READING, lesson(word)))
            sections += [(heading, text) for heading, text in after]
            found[kind, str(word)] = _page(str(word), kind, entry, sections)
    return found


def _page(word: str, kind: str, entry: Mapping[str, Any], sections: list[tuple[str, str]]) -> Page:
    title, also = str(entry["title"]), tuple(entry.get("also", ()))
    there = {attack.id for attack in attacks()}
    if kind == "attack":
        also = (*also, title.partition(":")[0])  # the name that --attacks takes
        if word not in there:
            title = f"{title} {_UNWRITTEN}"
    told = [(h, _marked(text.strip(), there | {word})) for h, text in sections]
    return Page(word=word, kind=kind, title=title, sections=tuple(told), also=also)


def _marked(text: str, there: set[str]) -> str:
    """Say behind each attack that is not there that nobody can ask for it yet."""

    def mark(found: re.Match[str]) -> str:
        name, close = found[1], found[2]
        if name in there:
            return found[0]
        return f"{name}, {_UNWRITTEN[1:]}" if close else f"{name} {_UNWRITTEN}"

    return re.sub(r"(?<![A-Z0-9_])(A\d\d)(\)?)(?!\d)", mark, text)


def words() -> tuple[str, ...]:
    """Return every word that has an entry, each once."""
    return tuple(dict.fromkeys(word for _, word in _pages()))


def suggested(word: str) -> str:
    """Return the word with an entry that is most like this one, as it is spelt there, or ``""``."""
    known = {_plain(w): w for page in _pages().values() for w in (*page.also, page.word)}
    known["EXIT CODES"] = "exit codes"
    close = difflib.get_close_matches(_plain(word), known, n=1, cutoff=_LIKE)
    return known[close[0]] if close else ""


def find(word: str) -> tuple[Page, ...]:
    """Return the entries of a word; none if it is unknown, several if two kinds share it.

    Args:
        word: an attack (A05 or grad-span), payload (P12), rule (ATTACK_A05 gives the rule and the
            attack), verdict, step of audit verify, exit code (3), word that a table prints, or
            ``exit codes`` for all of them. Neither case nor ``-``, ``_`` and blank matter.
    """
    wanted = _plain(word)
    if wanted in ("EXIT CODES", "EXIT CODE"):
        return _together([page for (kind, _), page in _pages().items() if kind == "exit code"])
    wanted = wanted.removeprefix("EXIT CODE ").removeprefix("EXIT ")
    for family in _FAMILIES:
        rest = wanted.removeprefix(f"{family} ")
        if rest != wanted:
            ruled = [page for page in _named([family]) if page.kind in ("finding", "verdict")]
            return (ruled[0], *(page for page in _named([rest]) if page.kind == "attack"))
    return _named([wanted])


def _plain(word: str) -> str:
    return " ".join(re.sub(r"[-_]", " ", word).upper().split())


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
    return tuple(p for p in _pages().values() if wanted & set(map(_plain, (p.word, *p.also))))


def page_text(page: Page, columns: int = COLUMNS) -> str:
    """Return a page as plain text, no line longer than `columns`."""
    lines = [*textwrap.wrap(f"{page.word} ({page.kind})  {page.title}", columns), ""]
    for heading, text in page.sections:
        wrapped = textwrap.wrap(text, columns - 2, break_on_hyphens=False)
        lines += [heading, *(f"  {line}" for line in wrapped), ""]
    return "\n".join(lines).rstrip() + "\n"
