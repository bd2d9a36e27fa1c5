"""A head covers what is durable, whatever interrupts a write."""

from __future__ import annotations

import pytest

from crypto.merkle import read
from crypto.signing import SigningKey
from protocols.errors import LedgerError
from protocols.evidence.ledger import Ledger, MemoryStore, read_lines

KEY = SigningKey.from_seed(bytes(32))


class Failing(MemoryStore):
    """Takes `good` writes; the next one raises after its lines were kept or not."""

    def __init__(self, good: int, error: type[BaseException]) -> None:
        super().__init__()
        self.good, self.error = good, error

    def append(self, lines: bytes) -> None:
        if not self.good:
            raise self.error
        self.good -= 1
        super().append(lines)


@pytest.mark.parametrize("error", [OSError, ValueError, KeyboardInterrupt])
def test_a_head_never_covers_what_was_not_written(error: type[BaseException]) -> None:
    store = Failing(1, error)
    ledger = Ledger("client-1", "ab" * 16, store, lambda: "2026-01-01T00:00:00Z")
    ledger.record("close", {"state": "READY"})
    ledger.commit()
    ledger.record("close", {"state": "READY"})
    with pytest.raises((LedgerError, KeyboardInterrupt)):
        ledger.commit()
    with pytest.raises(LedgerError):  # what was pending is never written a second time
        ledger.commit()
    with pytest.raises(LedgerError):
        ledger.record("close", {"state": "READY"})
    head = read(ledger.checkpoint(KEY), name="client-1", key=KEY.public)
    assert head.size == len(read_lines(store.lines)) == 1
