"""What an envelope costs, and a round beside learning and bare cryptography.

Rounds of ten clients under ``masks``, all parties in one process, ledgers in memory. Each client's
"training" hands out a ready vector. Seconds are of the processor, medians over the rounds:

    make_us, open_us      of one envelope: encode, sign and record; open, verify and record. Of
                          messages of a few hundred bytes, so that long bodies hide nothing
    make_own_us, open_own_us   the same without what `BARE` names
    client_ms             of one client's part of a round, without learning and `BARE`
    aggregator_ms         of the aggregator's part of a round for one client, likewise
    bare_ms, round_ms     one client's share of a round: of `BARE`, and of all
    record_us             one entry of a ledger, in a loop of nothing else
    verify_us             one signature verified by the library, in one thread; of the wall
    verify_two_us         the same with two threads, each of half of them; of the wall

`BARE` is bare cryptography: signatures, seals, masks and key streams, derived keys, shares, hashes
of long bodies. Rounding, clipping and the look at masks are no part of it, and count as ours. To
compare two versions of the program, run this file at each commit on one machine, in turns.
"""

from __future__ import annotations

import hashlib
import statistics
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

if __package__ in (None, ""):  # run as a file: the floors lie one folder up
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import many_clients
from benchmarks._measure import parser, show
from benchmarks.bench_ledger import FACTS
from crypto.signing import SigningKey
from protocols.disclosures.sum.layout import SumLayout
from protocols.evidence.ledger import Ledger, MemoryStore
from protocols.wire import gateway
from protocols.wire.gateway import Gateway
from protocols.wire.inbox import Inbox
from secure_fgl.run.clock import clock as now
from secure_fgl.run.driver import Meter

PARAMETERS = 92_231  # of a GCN with 64 hidden units on Cora
SMALL = 8
BARE = (
    *(one for one in many_clients.CRYPTO if one != (SumLayout, "_round")),
    (gateway, "masked_digest"),
)
"""Owner and name of every function of bare cryptography; what one calls counts once."""


class Split:
    """Seconds of the processor inside some functions, whole and without `BARE`, call by call."""

    def __init__(self, clock: many_clients.Clock) -> None:
        self._clock, self.whole, self.own = clock, list[float](), list[float]()

    def timed(self, found: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that does the same and is timed."""

        def wrapped(*args: Any, **kwargs: Any) -> Any:
            bare, start = self._clock.seconds, time.process_time()
            try:
                return found(*args, **kwargs)
            finally:
                spent = time.process_time() - start
                self.whole.append(spent)
                self.own.append(spent - (self._clock.seconds - bare))

        return wrapped


def rounds(parameters: int, clients: int, count: int) -> dict[str, float]:
    """Play rounds; return medians of what the module names, in its units."""
    vectors, clock = many_clients.Trained(parameters, clients), many_clients.Clock(BARE)
    made, opened = Split(clock), Split(clock)
    real = Gateway.release, Inbox.open

    def tick() -> Any:
        return np.array([time.process_time() - vectors.seconds, clock.seconds])

    found: list[Any] = []
    driver, form, state, transport = many_clients.made(
        "masks", vectors, count + 2, Meter(), None, tick
    )
    driver.start()
    small = parameters == SMALL
    try:
        for number in range(1, count + 3):
            if small:
                Gateway.release = made.timed(real[0])  # type: ignore[method-assign]
                Inbox.open = opened.timed(real[1])  # type: ignore[method-assign]
            with clock.counting():
                before, transport.spent = tick(), np.zeros(2)
                state = driver.play(form.round(state, driver.cohort), number)
                found.append((tick() - before, transport.spent))
            Gateway.release, Inbox.open = real  # type: ignore[method-assign]
    finally:
        Gateway.release, Inbox.open = real  # type: ignore[method-assign]
    if small:
        return {
            "make_us": 1e6 * statistics.median(made.whole),
            "make_own_us": 1e6 * statistics.median(made.own),
            "open_us": 1e6 * statistics.median(opened.whole),
            "open_own_us": 1e6 * statistics.median(opened.own),
        }
    whole, own = (np.median([row[place] for row in found[2:]], axis=0) for place in (0, 1))
    each = 1000 / clients
    return {
        "client_ms": float(own[0] - own[1]) * each,
        "aggregator_ms": float(whole[0] - own[0] - (whole[1] - own[1])) * each,
        "bare_ms": float(whole[1]) * each,
        "round_ms": float(whole[0]) * each,
    }


def record_us(entries: int) -> float:
    """Return microseconds of the processor for one entry of a ledger in memory."""
    ledger = Ledger("client-1", "0" * 32, MemoryStore(), now)
    start = time.process_time()
    for _ in range(entries):
        ledger.record("release", FACTS)
    return 1e6 * (time.process_time() - start) / entries


def verify_us(signatures: int) -> dict[str, float]:
    """Return microseconds of the wall for one signature, by one thread and by two."""
    key = SigningKey.generate()
    texts = [hashlib.sha256(b"%d" % number).digest() for number in range(signatures)]
    signed = [(key.sign("bench", text), b"secure-fgl/bench\0" + text) for text in texts]
    bare = key.public._key.verify  # the library's: ours remembers what it found true

    def go(part: list[tuple[bytes, bytes]]) -> None:
        for signature, text in part:
            bare(signature, text)

    found = {}
    for name, threads in (("verify_us", 1), ("verify_two_us", 2)):
        with ThreadPoolExecutor(threads) as pool:
            start = time.perf_counter()
            list(pool.map(go, [signed[place::threads] for place in range(threads)]))
            found[name] = 1e6 * (time.perf_counter() - start) / signatures
    return found


def main() -> int:
    """Measure and print."""
    options = parser("What an envelope and a round cost.", repeats=20)
    options.add_argument("--parameters", type=int, default=PARAMETERS)
    options.add_argument("--clients", type=int, default=10)
    options.add_argument("--entries", type=int, default=5000)
    args = options.parse_args()
    result = {
        "clients": args.clients,
        "parameters": args.parameters,
        **rounds(SMALL, args.clients, args.repeats),
        **rounds(args.parameters, args.clients, args.repeats),
        "record_us": record_us(args.entries),
        **verify_us(args.entries),
    }
    show(result, args.format)
    return 0


if __name__ == "__main__":
    sys.exit(main())
