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
from protocols.disclosures.names import Disclosure
from protocols.errors import EvidenceError
from protocols.evidence.ledger import ENTRY_LIMIT, Entry, read_lines
from protocols.wire.control import REFUSALS
from protocols.wire.roster import EVERYONE, Role, Roster

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
_SUM: dict[str, type] = {
    "cohort": str,
    "exchange": int,
    "members": int,
    "round": int,
    "survivors": int,
}
_RESULT: dict[str, type] = {"digest": str, "disclosure": str, "uploads": int}
_TABLE: dict[str, type] = {"group": int, "rank": int, "solved": int, "table": str}
_FACTS: dict[str, dict[str, type]] = {
    "plan": dict.fromkeys(("config", "plan", "policy", "role", "roster", "transport"), str),
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
    "budget": {"dataset": str, "delta": str, "entries": int, "epsilon": str, "head": str},
    "training": {
        "clip": str,
        "noise": str,
        "rate": str,
        "round": int,
        "steps": int,
        "unit": str,
    },
    "mix": {"exchange": int, "floor": int, "item": str, "mixtures": int, "round": int},
    "withheld": {"exchange": int, "item": str, "mixtures": int, "round": int},
    "survivors": {**_SUM, "list": str},
    "open": _SUM,
    "weights": {
        **_TABLE,
        "exchange": int,
        "flattened": list,
        "receivers": int,
        "round": int,
        "uploads": int,
    },
    "witness": {**_SUM, **_RESULT},
    "relay": {**_SUM, "item": str},
    "tags": {
        "clients": int,
        "epoch": int,
        "exchange": int,
        "quota": int,
        "refused": int,
        "round": int,
    },
    "canary": {"canary": str, "exchange": int, "round": int},
    "match": {"canary": str, "cells": int, "exchange": int, "round": int},
    "heads": {"exchange": int, "root": str, "round": int},
    "close": {"state": str},
}
_OPTIONAL: dict[str, dict[str, type]] = {
    "key": {"scheme": str},
    "release": {"masked": str},
    "budget": {"unit": str},
    "mix": {"alone": int},
    "open": _RESULT,
    "witness": _TABLE,
    "match": {"clients": int},
    "heads": {"heard": int, "items": int, "missing": int},
    "refusal": {"detail": str},
    "close": {"result": dict},
}
_KEYLESS = (Role.RELAY, Role.TAG_SERVER, Role.MATCHER)
KEYING = ("key.", "pair.")  # items of an epoch's keys; names that no Ask may have
LEAVING = "heads."  # items after the last Ask; a name that no Ask may have
RESULT = {"best", "metrics", "model"}  # digests of what a finished run leaves; "" for no model
_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, eq=False)
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
        """Number of the Ask it belongs to; keys of an epoch carry the Ask before them."""
        return int(self.facts["exchange"])

    @property
    def round(self) -> int:
        """The round; of keys, the first of their epoch."""
        return int(self.facts["round"])

    @property
    def commitment(self) -> str:
        """What binds the envelope's bytes."""
        return str(self.facts["commitment"])

    @property
    def keying(self) -> bool:
        """Tell whether it belongs to the keys of an epoch, and not to an Ask."""
        return self.item.startswith(KEYING)

    def addressees(self, roster: Roster) -> tuple[str, ...]:
        """Return every party that should hold a receipt; who computes nothing takes no keys."""
        if self.recipient != EVERYONE:
            return (self.recipient,)
        away = {self.party, *(name for role in _KEYLESS for name in roster.names(role))}
        return tuple(p["name"] for p in roster.document() if p["name"] not in away)


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

    def totals(self) -> Iterator[tuple[str, Entry]]:
        """Yield (party, entry) for every opened sum; cosines and rows are opened otherwise."""
        for party, entry in self.of_kind("open"):
            if "disclosure" not in entry:
                yield party, entry

    def by_exchange(self, kind: str) -> dict[int, list[tuple[str, Entry]]]:
        """Return (party, entry) of a kind whose entries name an exchange, by that exchange.

        Of ``open`` only sums.
        """
        found: dict[int, list[tuple[str, Entry]]] = {}
        for party, entry in self.totals() if kind == "open" else self.of_kind(kind):
            found.setdefault(entry["exchange"], []).append((party, entry))
        return found

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

    @property
    def exchanges(self) -> list[int]:
        """Numbers of all exchanges in which something left, in order."""
        return sorted(self._releases)

    def releases_of(self, exchange: int) -> list[Sent]:
        """Return the releases of one exchange."""
        return self._releases.get(exchange, [])

    @cached_property
    def received(self) -> dict[tuple[str, str, str], int]:
        """(receiver, sender, commitment) -> number of the receipt's entry."""
        return {
            (party, entry["sender"], entry["commitment"]): entry["seq"]
            for party, entry in self.of_kind("receipt")
        }

    def receipt(self, sent: Sent, party: str) -> int | None:
        """Return the number of the entry with which a party received an envelope, or None."""
        return self.received.get((party, sent.party, sent.commitment))

    def in_cut(self, sent: Sent) -> bool:
        """Tell whether a release belongs to the step in which the run was cut short."""
        if self._cut is None or sent.exchange != self._cut[0]:
            return False
        return sent.item.startswith("refusal.") or sent.keying == self._cut[1]

    @cached_property
    def _cut(self) -> tuple[int, bool] | None:
        """The exchange in which the run ended before it was through, and whether keys were due.

        Only there may receipts be missing without a reason. A run that states a result was not cut.
        Its last Ask is through when the total was opened and came back; without an opening, when
        everyone answered and no session died.
        """
        if any("result" in entry for _, entry in self.of_kind("close")):
            return None
        last = max(self._releases, default=0)
        sents = [s for s in self.releases_of(last) if not s.item.startswith("refusal.")]
        keying = any(s.keying for s in sents)
        return None if not keying and self._through(last, sents) else (last, keying)

    def _through(self, last: int, sents: list[Sent]) -> bool:
        asked = {s.recipient for s in sents if s.item.endswith(".down")}
        answers = [s for s in sents if s.item.endswith(".ack") or ".up." in s.item]
        opens = [sum(s.item.endswith(end) for s in sents) for end in (".open", ".opened")]
        guards = {g.partition("(")[0] for s in answers for g in s.facts["protection"]}
        cosines = [
            sum(s.item.endswith(f"{end}.{Disclosure.SIMILARITY}") for s in sents)
            for end in (".open", ".opened")
        ]
        if "cosine" in guards and not 0 < cosines[0] == cosines[1]:
            return False
        if "relay" in guards and not any(".relayed." in s.item for s in sents):
            return False
        if "match" in guards:
            return any(e["exchange"] == last and "clients" in e for _, e in self.of_kind("match"))
        if guards & {"he", "ckks"}:
            return 0 < opens[0] == opens[1]
        if "mask" in guards:
            return any(entry["exchange"] == last for _, entry in self.totals())
        return bool(asked) and asked <= {s.party for s in answers} and not self._died()

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
    if kind == "open" and 0 < len(set(_RESULT) & set(entry)) < len(_RESULT):
        raise EvidenceError("chain", f"entry {number} does not hold exactly the facts of its kind")
    if kind == "witness":  # of rows it says what weights it was shown
        rows = entry["disclosure"] == Disclosure.WEIGHTED_SUM
        if set(_TABLE) & set(entry) != (set(_TABLE) if rows else set()):
            raise EvidenceError(
                "chain", f"entry {number} does not hold exactly the facts of its kind"
            )
    if kind == "weights" and not all(isinstance(name, str) for name in entry["flattened"]):
        raise EvidenceError("chain", f"entry {number} holds a fact of the wrong type")
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
