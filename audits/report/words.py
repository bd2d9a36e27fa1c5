"""Numbers and roles as people read them."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

_STEP = 1000
_SUMS = (
    ("noise", "noised"),
    ("own_noise", "noised by each client alone"),
    ("record_noise", "counts noised by each client alone"),
    ("mask", "masked"),
    ("he", "encrypted"),
    ("ckks", "encrypted"),
)
_OWN = "under its client's own noise, "
_UNITS = ("kB", "MB", "GB")

NAMES = {
    "P01": "single model updates in clear",
    "P02": "single model updates with noise",
    "P03": "masked shares of totals",
    "P04": "encrypted values",
    "P05": "the totals over a cohort",
    "P06": "the noised totals over a cohort",
    "P07": "gradients of item rows",
    "P08": "tags of item identifiers",
    "P09": "embeddings of users and neighbours",
    "P10": "mixed features of several records",
    "P11": "mixed labels of several records",
    "P12": "gradients for generators, and generators",
    "P13": "sums of neighbours' features",
    "P14": "what clients are compared by",
    "P15": "the likeness of clients' updates",
    "P16": "meta-gradients",
    "P17": "counts and scores",
    "P18": "keys, seeds and lists of parties",
    "P19": "the released model",
    "P20": "errors, logs and reports",
    "P21": "weighted rows over a cohort",
}
"""Payload id -> what it is, as part of a sentence."""


_UNPLAIN = re.compile(r"[^\n\t -~]")
"""What is not one of ASCII's letters and marks; reports have little of it and much text."""


def visible(text: str) -> str:
    """Return a text without characters that change how the rest is shown: strangers wrote parts.

    Controls and marks of direction or joining (Unicode's C categories) become U+FFFD; line ends,
    tabs and spaces of any width stay.
    """
    return _UNPLAIN.sub(_seen, text)


def _seen(found: re.Match[str]) -> str:
    return "\ufffd" if unicodedata.category(found[0])[0] == "C" else found[0]


def size(count: int) -> str:
    """Return a number of bytes with a decimal unit, three figures at most: ``12.4 MB``."""
    if count < _STEP:
        return f"{count} B"
    value, unit = float(count), ""
    for unit in _UNITS:  # noqa: B007 - the last unit is used after the loop
        value /= _STEP
        if value < 999.5:
            break
    return f"{value:.0f} {unit}" if value >= 100 else f"{value:.1f} {unit}"


def number(count: int) -> str:
    """Return a whole number in groups of three, with narrow no-break spaces between them."""
    return f"{count:,}".replace(",", "\u202f")


def plural(count: int, word: str) -> str:
    """Return ``1 envelope`` or ``2 envelopes``."""
    return f"{number(count)} {word}" if count == 1 else f"{number(count)} {word}s"


def role(name: str) -> str:
    """Return a role as words: ``key authority``."""
    return "everyone" if name == "roster" else name.replace("_", " ")


def span(first: int, last: int) -> str:
    """Return a range of rounds; round 0 is before the first."""
    return str(first) if first == last else f"{first}\u2013{last}"


def round_name(number: int, rounds: int) -> str:
    """Return a round's number; ``end`` for what follows on the last of so many rounds."""
    return str(number) if number <= rounds else "end"


def split(signed: bool, unused: int) -> str:
    """Return by whose word clusters were cut, in sentences."""
    if not signed:
        return "By the aggregator's word: no other party computed or signed a cut."
    rest = f" {plural(unused, 'signed cut')} led to no cluster that a client was told of."
    said = "By signed cuts: the key authority computed each from the cosines that it opened."
    return said + (rest if unused else "")


def guard(text: str) -> str:
    """Return the name of a guard as plans print it: ``clip(norm=linf)`` is ``clip``."""
    return text.partition("(")[0]


def mixed(guards: tuple[str, ...]) -> bool:
    """Tell whether a chain of guards mixes records."""
    return "mix" in map(guard, guards)


def relayed(guards: tuple[str, ...]) -> bool:
    """Tell whether a chain of guards has a relay take the sender off."""
    return "relay" in map(guard, guards)


def in_clear(guards: tuple[str, ...]) -> bool:
    """Tell whether a chain lets a message out in clear; Unsafe boxes of matching stay locked."""
    names = {guard(text) for text in guards}
    return "unsafe_clear" in names and "match" not in names


def _oprf(guards: tuple[str, ...]) -> bool:
    return any(text.startswith("match(mode=oprf") for text in guards)


def opens(guards: tuple[str, ...]) -> bool:
    """Tell whether tags of items are made with a public key, and so by anybody."""
    return any(text.startswith("match(mode=deterministic") for text in guards)


def reads(guards: tuple[str, ...]) -> bool:
    """Tell whether clients read single vectors of others."""
    return {"laplace", "match"} <= {guard(text) for text in guards}


def protection(guards: tuple[str, ...]) -> str:
    """Return in words what a chain of guards does to a message."""
    names = {guard(text) for text in guards}
    if in_clear(guards):
        return "UNSAFE: in clear"
    alone = "own_noise" in names and "quantise" not in names
    kinds = [word for name, word in _SUMS if name in names and not alone]
    if kinds:
        first, last = ", ".join(kinds[:-1]), kinds[-1]
        return f"{first} and {last} sum, sealed" if first else f"{last} sum, sealed"
    if "cosine" in names:
        return "encrypted, only cosines opened, sealed"
    if "weigh" in names:
        return "encrypted, only weighted rows opened, sealed"
    if "match" in names:
        return _matched(names, guards)
    if "mix" in names:
        noised = " and noised" if "blur" in names else ""
        to = "the aggregator, and to a relay" if "relay" in names else "the recipient"
        return f"records mixed{noised}, sealed to {to}"
    if "seal" in names:
        to = "the aggregator, and to a relay" if "relay" in names else "the recipient"
        return f"{_OWN if alone or 'row_noise' in names else ''}sealed to {to}"
    return "signed, public" if "sign" in names else "unknown"


def _matched(names: set[str], guards: tuple[str, ...]) -> str:
    how = "by tags of two servers" if _oprf(guards) else "by tags of one shared key"
    how = "by tags that anybody opens" if opens(guards) else how
    if "laplace" in names:
        return f"UNSAFE: items matched {how}, vectors noised and read by others one by one"
    unsafe = "UNSAFE: " if "unsafe_clear" in names else ""
    return f"{unsafe}items matched {how}, vectors added in cells, sealed"


def decimal(text: str) -> str:
    """Return a decimal text with three significant figures; other text as it is."""
    try:
        return f"{float(text):.3g}"
    except ValueError:
        return text


def maybe_opened(rounds: Sequence[int]) -> str:
    """Return what a reader must know of skipped rounds whose shares left; empty for none."""
    if not rounds:
        return ""
    named = ", ".join(map(str, rounds[:5])) + (" and more" if len(rounds) > 5 else "")
    return (
        f" Of round {named} a total may have been opened: enough holders released shares, and "
        "that these were lost on their way is the aggregator's word."
    )
