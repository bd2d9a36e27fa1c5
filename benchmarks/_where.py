"""Where a process spends its time, by kind of work: its stack is looked at every few milliseconds.

A look costs the same wherever it falls, so that many short calls are not made to look dear, as
`cProfile` does. It counts for the innermost function that stands in `KINDS`; what runs in C counts
for the function that called it.
"""

from __future__ import annotations

import contextlib
import signal
from collections import Counter
from collections.abc import Iterator
from types import FrameType

KINDS = {
    "cryptography": ("Clock._timed.<locals>.wrapped",),
    "training": ("constant.<locals>.answer", "Trained.__getitem__"),
    "ledger": ("Ledger.record", "Ledger.commit"),
    "envelopes": (
        *("Gateway.release", "Gateway._header", "Gateway._record", "Inbox.open", "Inbox.read"),
        *("Envelope.encode", "Envelope.decode", "Receipts.sent", "Heads.hear"),
    ),
    "vectors and rounding": ("SumProtection.body", "Summands._add_up", "Summands.views"),
    "keys of masks": ("_masked", "Pairs.keys"),
    "asks and receipts": (
        *("Calling.enter", "Calling.enter.<locals>.asked"),
        *("ClientSession._where", "Receipts.check", "ShareHolding.check_sum"),
        *("Collection.add", "Collection.fix_survivors"),
    ),
    "votes and evidence": (
        *("ShareHolding._vote", "ShareHolding._check_votes", "Summing._take_vote"),
        *("ShareHolding._serve_all", "Summing._take_self_shares"),
        *("Summing._list_survivors", "who_is_here.<locals>.told"),
        *("Summing._show_votes", "who_voted.<locals>.shown"),
        *("Unmasking.vote", "Unmasking.votes"),
    ),
    "shares": ("ShareHolding._give_shares", "Summing._take_shares", "Unmasking.keys"),
}
"""Kind of work: functions that begin it."""
REST = "rest: transport, sessions, driver"
_KIND_OF = {function: kind for kind, functions in KINDS.items() for function in functions}
_EVERY = 0.001  # seconds of the processor; kernels look a few times more rarely


class Looks:
    """Counts looks at the stack by kind of work."""

    def __init__(self) -> None:
        self.by_kind: Counter[str] = Counter()

    @contextlib.contextmanager
    def looking(self) -> Iterator[None]:
        """Look for as long as this lasts; in the main thread only."""
        before = signal.signal(signal.SIGPROF, self._look)
        signal.setitimer(signal.ITIMER_PROF, _EVERY, _EVERY)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.signal(signal.SIGPROF, before)

    def _look(self, _: int, frame: FrameType | None) -> None:
        while frame is not None:
            kind = _KIND_OF.get(frame.f_code.co_qualname)
            if kind is not None:
                self.by_kind[kind] += 1
                return
            frame = frame.f_back
        self.by_kind[REST] += 1

    def shares(self) -> dict[str, float]:
        """Return each kind's part of the time, the largest first."""
        whole = max(self.by_kind.total(), 1)
        return {kind: count / whole for kind, count in self.by_kind.most_common()}
