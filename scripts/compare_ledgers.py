"""Whether two runs did the same: their ledgers are equal but for what is drawn anew in every run.

::

    python -m scripts.compare_ledgers RUN_A RUN_B    # prints what differs; exits 1 if anything does

Two runs of one configuration draw other keys, nonces, salts and noise of encryption, and are at
another time. What follows from these differs too: digests, heads, the run's name. Such values
(`FRESH`) are compared by where they recur: there must be one renaming that turns every ledger of
the first run into the one of the second, entry by entry, and no value may stand for two. So an
envelope that one party released and another received is the same one on both sides in both runs.
Everything else (kinds, order, parties, items, rounds, sizes, protection, counts, what the run ends
with) must be the same, and the model and the metrics as well.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from protocols.errors import EvidenceError
from protocols.evidence.ledger import read_lines

__all__ = ["FRESH", "differences"]

FRESH = frozenset({
    "cohort", "commitment", "digest", "given", "head", "key", "list", "masked", "prev", "root",
    "roster", "run", "salt", "sender_head", "table",
})  # fmt: skip
"""Fields that hold what a run draws, or what follows from it."""

LENGTHS = frozenset({16, 32, 64})
"""Hexadecimal digits of such values."""

RESULT = (
    "algorithm", "form", "rounds", "clients", "metrics", "lost_rounds", "model_sha256",
    "bytes_up", "bytes_down", "exchanges",
)  # fmt: skip
"""What of ``result.json`` must be the same."""


class _Renaming:
    """One value of the second run for each of the first, and the other way round."""

    def __init__(self) -> None:
        self._forth: dict[str, str] = {}
        self._back: dict[str, str] = {}

    def holds(self, first: str, second: str) -> bool:
        """Take note of a pair; tell whether it agrees with all before it."""
        if len(first) != len(second) or len(first) not in LENGTHS:
            return False
        return (
            self._forth.setdefault(first, second) == second
            and self._back.setdefault(second, first) == first
        )


def differences(first: Path, second: Path) -> Iterator[str]:
    """Yield what differs between two run folders, in words; nothing for the same run twice."""
    results = [json.loads((run / "result.json").read_bytes()) for run in (first, second)]
    for name in RESULT:
        if results[0].get(name) != results[1].get(name):
            yield f"result.json: {name} is {results[0].get(name)} and {results[1].get(name)}"
    if (first / "metrics.jsonl").read_bytes() != (second / "metrics.jsonl").read_bytes():
        yield "metrics.jsonl"
    ledgers = [
        {file.stem: file for file in sorted((run / "ledger").glob("*.jsonl"))}
        for run in (first, second)
    ]
    if ledgers[0].keys() != ledgers[1].keys():
        yield f"ledgers of other parties: {sorted(ledgers[0].keys() ^ ledgers[1].keys())}"
        return
    renaming = _Renaming()
    for party, file in ledgers[0].items():
        yield from _of_ledger(party, file, ledgers[1][party], renaming)


def _of_ledger(party: str, first: Path, second: Path, renaming: _Renaming) -> Iterator[str]:
    entries = [[entry for entry, _ in read_lines(file.read_bytes())] for file in (first, second)]
    if len(entries[0]) != len(entries[1]):
        yield f"{party}: {len(entries[0])} and {len(entries[1])} entries"
    for number, (one, other) in enumerate(zip(*entries, strict=False)):
        found = sorted(_fields(one, other, renaming))
        if found:
            yield f"{party}, entry {number} ({one['kind']}): {', '.join(found)}"


def _fields(one: Mapping[str, Any], other: Mapping[str, Any], renaming: _Renaming) -> Iterator[str]:
    for name in one.keys() | other.keys():
        if name == "time" or (name in one and one.get(name) == other.get(name)):
            continue
        fresh = name in FRESH and isinstance(one.get(name), str)
        if not fresh or not renaming.holds(one[name], str(other.get(name))):
            yield name


def main(arguments: list[str] | None = None) -> int:
    """Compare two run folders; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("first", type=Path)
    parser.add_argument("second", type=Path)
    given = parser.parse_args(arguments)
    try:
        found = list(differences(given.first, given.second))
    except (EvidenceError, OSError) as error:  # a chain does not hold, or there is none
        print(f"Not to be compared: {error}", file=sys.stderr)
        return 2
    for line in found[:50]:
        print(line)
    print(f"{len(found)} differences" if found else "The same but for what every run draws anew.")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
