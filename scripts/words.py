"""Words that this project no longer uses, and what stands in their place (docs/adr/0027)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from scripts.source import Remark, Source

OLD = {
    "ballot": "vote_text",
    "ballots": "vote_texts",
    "book": "ledger_index",
    "desk": "console, or the side of a role",
    "desks": "sides",
    "letter": "incoming",
    "letters": "received",
    "papers": "context, or documents",
    "parcel": "delivery",
    "parcels": "deliveries",
    "rooms": "sandboxes",
    "safes": "state_stores",
    "sitting": "process",
    "sittings": "processes",
    "vouched": "verified",
}
"""Parts of names, in lower case."""

_PARTS = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])")


def field_words(source: Source) -> Iterator[Remark]:
    """A name is built from the words of the field, not from those that were given up for them."""
    for line, name in source.names():
        for part in map(str.lower, _PARTS.findall(name)):
            if part in OLD:
                yield line, f"{name}: {part!r} is no longer a word here; use {OLD[part]}"
