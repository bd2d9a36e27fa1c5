"""Exit codes, attacks, disclosures and the catalogue, from the lists that the program reads."""

from __future__ import annotations

from collections.abc import Iterator

from audits.explain import Page, find, words
from protocols.disclosures.names import BACK, GIVEN, Disclosure
from protocols.policy.guard import describe
from protocols.policy.policy import PRESETS
from scripts.site.reference.words import cell, plain, table
from secure_fgl.cli.list import SUBJECTS


def pages(kind: str) -> Iterator[Page]:
    """Yield what ``secure-fgl audit explain`` has of one kind, in the order of its file."""
    for word in words():
        yield from (page for page in find(word) if page.kind == kind and page.word == word)


def exit_codes() -> str:
    """Return the page of exit codes."""
    found = list(pages("exit code"))
    rows = [
        (f"`{page.word}`", page.title, *(text for _, text in page.sections[:2])) for page in found
    ]
    rest = [f"{head}: {text}\n" for head, text in found[0].sections[2:]]
    head = "# Exit codes\n\nOn the terminal: `secure-fgl audit explain exit codes`.\n"
    return "\n".join([head, table(("code", "name", "what it means", "what to do"), rows), *rest])


def attacks() -> str:
    """Return the page of attacks."""
    parts = [
        "# Attacks\n",
        "`secure-fgl audit attack RUN` runs all that apply to a run; `secure-fgl audit explain "
        "A05` prints one of these texts. What was measured: [leakage](../results/leakage.md).\n",
    ]
    for page in pages("attack"):
        parts.append(f"## {page.word}\n\n**{cell(page.title)}**\n")
        parts += [f"*{head}.* {cell(text)}\n" for head, text in page.sections]
    return "\n".join(parts)


def disclosures() -> str:
    """Return the page of disclosures."""
    rows = [
        (
            f"`{one}`",
            one.meaning,
            "yes" if one in BACK else "no",
            "yes" if one in GIVEN else "no",
        )
        for one in Disclosure
    ]
    parts = [
        "# Disclosures\n",
        "Every message names one: what its receiver is meant to learn. The policy says which chain "
        "of guards protects it; what has no chain is refused.\n",
        table(("name", "what the receiver learns", "from a client", "to a client"), rows),
    ]
    for name, policy in PRESETS.items():
        chains = [
            (f"`{kind}`", " → ".join(describe(guard) for guard in chain))
            for kind, chain in policy.rules.items()
        ]
        unsafe = ", unsafe" if policy.unsafe else ""
        parts += [f"## Under `{name}`{unsafe}\n", table(("disclosure", "its chain"), chains)]
    return "\n".join(parts)


def catalogue() -> str:
    """Return the page of what there is to choose from."""
    parts = ["# Catalogue\n", "What `secure-fgl list WHAT` prints.\n"]
    for subject in SUBJECTS:
        if subject != "plugins":  # those of whoever builds the page
            rows = [(f"`{name}`", plain(said)) for name, said in SUBJECTS[subject]()]
            parts += [f"## {subject.capitalize()}\n", table(("name", "what it is"), rows)]
    return "\n".join(parts)
