"""Ledgers on disk, read as they grow: nothing is written, locked or waited for.

A ledger is a file that its party appends to and never changes. So what was read must stay: a file
that gets shorter, gives way to another one or says something else where it was read is broken
evidence. What is read last is compared at every look, all of it once more at the end.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Iterator
from pathlib import Path

from audits.evidence.run_files import RunView
from audits.growing.watch import Seen, Watch
from protocols.errors import EvidenceError
from secure_fgl.errors import UsageError
from secure_fgl.store.files import Folder
from secure_fgl.store.sides.party_side import side_of

__all__ = ["Following", "Tail"]

_PART = 1 << 20  # bytes that are read at once
_LAST = 4096  # bytes before the end of what was read that are compared at every look


class Tail:
    """One ledger's file.

    Args:
        folder: the run's.
        name: of the file in it.
    """

    def __init__(self, folder: Folder, name: str) -> None:
        self._folder, self._name = folder, name
        self._file = folder.open(name, os.O_RDONLY)
        self._read, self._last, self._sum = 0, b"", hashlib.sha256()

    def more(self) -> bytes:
        """Return what came since the last look, a part of it if it is much; empty: nothing.

        Raises:
            EvidenceError: at step ``files``: the file was cut, replaced, removed or changed.
        """
        self._same()
        start = self._read - len(self._last)
        data = os.pread(self._file, len(self._last) + _PART, start)
        if not data.startswith(self._last):
            raise self._broken("was changed where it had been read")
        new = data[len(self._last) :]
        self._sum.update(new)
        self._read, self._last = self._read + len(new), data[-_LAST:]
        return new

    def check(self) -> None:
        """See once more that all that was read still stands there; raises as `more` does."""
        self._same()
        found, left, place = hashlib.sha256(), self._read, 0
        while left and (data := os.pread(self._file, min(_PART, left), place)):
            found.update(data)
            left, place = left - len(data), place + len(data)
        if not hmac.compare_digest(found.digest(), self._sum.digest()):
            raise self._broken("was changed where it had been read")

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)

    def _same(self) -> None:
        mine = os.fstat(self._file)
        try:
            again = self._folder.open(self._name, os.O_RDONLY)
        except FileNotFoundError:
            raise self._broken("was removed while it was read") from None
        try:
            there = os.fstat(again)
        finally:
            os.close(again)
        if (there.st_dev, there.st_ino) != (mine.st_dev, mine.st_ino):
            raise self._broken("was replaced by another file while it was read")
        if mine.st_size < self._read:
            raise self._broken("was cut while it was read")

    def _broken(self, what: str) -> EvidenceError:
        return EvidenceError("files", f"{self._name} {what}; a ledger only grows")


class Following:
    """All ledgers of a run, or of one party's side, and what they say so far.

    Args:
        path: a run folder, or a party's folder.

    Attributes:
        watch: what was read.

    Raises:
        UsageError: no run has begun there.
        EvidenceError: plan, policy or roster is not the run's.
    """

    def __init__(self, path: str | Path) -> None:
        place, self.party = side_of(Path(path))
        self._folder, self._tails = Folder(place), dict[str, Tail]()
        read = self._folder.read
        names = ("plan.json", "policy.json", "roster.json")
        found = {name: read(name) for name in names}
        own = self._folder.names("ledger", ".jsonl")
        if not all(found.values()) or (self.party is not None and not own):
            raise UsageError(
                f"No run has begun in {path}.",
                why="a run writes plan.json, policy.json, roster.json and ledgers before anything "
                "leaves",
                fix="give a run folder or a party's folder, once its run has begun",
            )
        plan, policy, roster = found.values()
        side = own[0].removesuffix(".jsonl") if self.party is not None else ""
        self.watch = Watch(RunView(plan, policy, roster, side=side))

    def look(self) -> Iterator[Seen]:
        """Yield every entry that is there and was not yielded yet, ledger by ledger.

        Raises:
            EvidenceError: a ledger was cut, replaced or changed, belongs to nobody, or an entry
                does not follow from the one before it.
        """
        for name in self._folder.names("ledger", ".jsonl"):
            party = name.removesuffix(".jsonl")
            if party not in self.watch.parties:
                raise EvidenceError("roster", "a ledger here belongs to nobody who is watched")
            if party not in self._tails:
                self._tails[party] = Tail(self._folder, f"ledger/{name}")
        for party, tail in self._tails.items():
            while data := tail.more():
                yield from self.watch.take(party, data)

    def finish(self) -> None:
        """See once more that nothing changed that was read, and close the files."""
        for tail in self._tails.values():
            tail.check()
        self.close()

    def close(self) -> None:
        """Close the files."""
        while self._tails:
            self._tails.popitem()[1].close()
