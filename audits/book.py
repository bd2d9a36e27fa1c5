"""The ledgers of a run, read and sorted by what their entries say."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from crypto.canonical import parse
from crypto.errors import CryptoError
from crypto.merkle import leaf_hash
from protocols.control import REFUSALS
from protocols.disclosures import Disclosure
from protocols.errors import EvidenceError
from protocols.ledger import ENTRY_LIMIT, Entry, read_lines
from protocols.roster import EVERYONE, Roster

ROUTE: dict[str, type] = {
    "attempt": int,
    "cohort": str,
    "exchange": int,
    "given": str,
    "item": str,
    "key": str,
    "plan": str,
    "policy": str,
    "recipient": str,
    "round": int,
    "sender": str,
}
_COMMON: dict[str, type] = {
    "kind": str,
    "party": str,
    "prev": str,
    "run": str,
    "salt": str,
    "seq": int,
    "time": str,
}
_FACTS: dict[str, dict[str, type]] = {
    "plan": {"plan": str, "policy": str, "role": str, "roster": str, "transport": str},
    "key": {"event": str, "key": str},
    "release": {
        **ROUTE,
        "bytes": int,
        "clipped": bool,
        "commitment": str,
        "disclosure": str,
        "messages": str,
        "protection": list,
        "unsafe": bool,
    },
    "receipt": {**ROUTE, "bytes": int, "commitment": str, "sender_head": str},
    "refusal": {"code": str, "exchange": int, "reason": str, "round": int},
    "open": {"cohort": str, "exchange": int, "members": int, "round": int},
    "close": {"state": str},
}
_OPTIONAL: dict[str, dict[str, type]] = {
    "key": {"scheme": str},
    "refusal": {"detail": str},
    "close": {"result": dict},
}
RESULT = {"best", "metrics", "model"}  # digests of what a finished run leaves; "" for no model
_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Sent:
    """One release, with who recorded it and where."""

    party: str
    seq: int
    prev: str
    facts: Mapping[str, Any]

    @property
    def item(self) -> str:
        """The plan item."""
        return str(self.facts["item"])

    @property
    def recipient(self) -> str:
        """A party's name, or ``roster``."""
        return str(self.facts["recipient"])

    @property
    def exchange(self) -> int:
        """Number of the Ask it belongs to."""
        return int(self.facts["exchange"])

    def addressees(self, roster: Roster) -> tuple[str, ...]:
        """Return every party that should hold a receipt."""
        if self.recipient != EVERYONE:
            return (self.recipient,)
        return tuple(p["name"] for p in roster.document() if p["name"] != self.party)


@dataclass
class Book:
    """All ledgers that could be read, and why the others could not.

    Attributes:
        entries: party -> its entries, chain and facts checked.
        leaves: party -> the Merkle leaf hash of each entry's line.
        first: party -> the first line as far as it can be read at all.
        broken: party -> what is wrong with its ledger.
    """

    entries: dict[str, list[Entry]] = field(default_factory=dict)
    leaves: dict[str, list[bytes]] = field(default_factory=dict)
    first: dict[str, Entry] = field(default_factory=dict)
    broken: dict[str, EvidenceError] = field(default_factory=dict)

    @classmethod
    def read(cls, ledgers: Mapping[str, bytes]) -> Book:
        """Read every ledger; a broken one is remembered, not raised."""
        book = cls()
        for party in sorted(ledgers):
            data = ledgers[party]
            book._peek(party, data)
            try:
                lines = read_lines(data)
                for number, (entry, _) in enumerate(lines):
                    _check_facts(number, entry)
            except EvidenceError as error:
                book.broken[party] = error
                continue
            book.entries[party] = [entry for entry, _ in lines]
            book.leaves[party] = [leaf_hash(line) for _, line in lines]
        return book

    def _peek(self, party: str, data: bytes) -> None:
        try:
            entry = parse(data.split(b"\n", 1)[0], limit=ENTRY_LIMIT)
        except CryptoError:
            return
        if isinstance(entry, dict):
            self.first[party] = entry

    def of_kind(self, kind: str) -> Iterator[tuple[str, Entry]]:
        """Yield (party, entry) for every entry of a kind, party by party, oldest first."""
        for party, entries in self.entries.items():
            for entry in entries:
                if entry["kind"] == kind:
                    yield party, entry

    @cached_property
    def _releases(self) -> dict[int, list[Sent]]:
        found: dict[int, list[Sent]] = {}
        for party, entry in self.of_kind("release"):
            sent = Sent(party, entry["seq"], entry["prev"], entry)
            found.setdefault(sent.exchange, []).append(sent)
        return found

    def releases(self) -> list[Sent]:
        """Return every release, exchange by exchange."""
        return [sent for exchange in sorted(self._releases) for sent in self._releases[exchange]]

    def releases_of(self, exchange: int) -> list[Sent]:
        """Return the releases of one exchange."""
        return self._releases.get(exchange, [])

    @cached_property
    def unfinished(self) -> int | None:
        """Return the number of the last exchange if it was cut short, else None.

        Only the last exchange of a run may lack receipts: the run ended there. It is complete when
        everyone who was asked has answered and, for encrypted sums, the total was sent to be opened
        and came back. Without an opening, only a session that died excuses a missing receipt.
        """
        last = max(self._releases, default=0)
        asked: set[str] = set()
        answered: set[str] = set()
        opens, encrypted = [0, 0], False
        for sent in self.releases_of(last):
            if sent.item.endswith(".down"):
                asked.add(sent.recipient)
            elif sent.item.endswith(".ack") or ".up." in sent.item:
                answered.add(sent.party)
                encrypted |= any(guard.startswith("he(") for guard in sent.facts["protection"])
            opens[0] += sent.item.endswith(".open")
            opens[1] += sent.item.endswith(".opened")
        settled = 0 < opens[0] == opens[1] if encrypted else not self._died()
        return None if asked and asked <= answered and settled else last

    def _died(self) -> bool:
        """Tell whether any session ended with an error."""
        return any(entry["state"] == "DEAD" for _, entry in self.of_kind("close"))


def _check_facts(number: int, entry: Entry) -> None:
    """Raise EvidenceError unless an entry holds exactly the facts of its kind."""
    kind = entry["kind"]
    needed = {**_COMMON, **_FACTS[kind]}
    known = {**needed, **_OPTIONAL.get(kind, {})}
    if not (set(needed) <= set(entry) <= set(known)):
        raise EvidenceError("chain", f"entry {number} does not hold exactly the facts of its kind")
    for name, value in entry.items():
        wanted = known[name]
        if type(value) is not wanted or (isinstance(value, int) and value < 0):
            raise EvidenceError("chain", f"entry {number} holds a fact of the wrong type")
    if kind == "refusal" and entry["code"] not in REFUSALS:
        raise EvidenceError("chain", f"entry {number} refuses with a code outside the closed list")
    if kind == "release":
        if not all(isinstance(guard, str) for guard in entry["protection"]):
            raise EvidenceError("chain", f"entry {number} holds a fact of the wrong type")
        if entry["disclosure"] not in list(Disclosure):
            raise EvidenceError("chain", f"entry {number} names no known disclosure")
    if "result" in entry and not _is_result(entry["result"]):
        raise EvidenceError("chain", f"entry {number} states a result in an unknown form")


def _is_result(found: Mapping[str, object]) -> bool:
    """Tell whether a result holds exactly its digests; only a model may be absent."""
    return set(found) == RESULT and all(
        isinstance(digest, str) and (_DIGEST.fullmatch(digest) or (not digest and n != "metrics"))
        for n, digest in found.items()
    )
