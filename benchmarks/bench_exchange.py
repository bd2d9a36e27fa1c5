"""Exchanges over the broker between real processes, beside bare NATS requests; and idle.

Server and carriers are the real ones, TLS 1.3 over loopback. The parties hold no session: a party
sends back what it is given, over the Unix socket of a real one, so an exchange is measured without
what a session computes. *Bare* is one NATS request a site with the same bytes, all at once, over
the same server, answered by a client that sends them back; it takes turns with ours. `--runs DATA`
measures whole runs beside the same run in memory; `--starts` how soon processes are there.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

if __package__ in (None, ""):  # run as a file: the floors lie one folder up
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks._exchange_runs import measured_runs
from benchmarks._exchange_sites import BARE, Sites, running
from benchmarks._exchange_starts import measured_starts
from benchmarks._measure import parser, show
from benchmarks._wire import Wire, processor
from protocols.wire.roster import AGGREGATOR_NAME
from secure_fgl.transports.broker.carrier import connected
from secure_fgl.transports.broker.messages import PART, TASK


def _ours(sites: Sites, data: bytes) -> float:
    bundles = {name: [data] for name in sites.names}
    start = time.perf_counter()
    replies = sites.carrier.carry(TASK, bundles, 60.0, ())
    seconds = time.perf_counter() - start
    if {name: [*reply.envelopes] for name, reply in replies.items()} != bundles:
        raise ArithmeticError("What came back is not what was sent.")
    return seconds


class Bare:
    """A plain client of NATS in the aggregator's place."""

    def __init__(self, sites: Sites) -> None:
        self._loop = asyncio.new_event_loop()
        self._to = sites.connections[BARE, AGGREGATOR_NAME]
        seed = sites.seed(BARE, AGGREGATOR_NAME)
        self._client = self._loop.run_until_complete(
            connected(self._to, seed, note=lambda line: None)
        )

    def __call__(self, data: bytes) -> float:
        """Return the seconds of one exchange; what is more than a message goes in several."""
        return self._loop.run_until_complete(self._exchange(data))

    async def _exchange(self, data: bytes) -> float:
        start = time.perf_counter()
        await asyncio.gather(*(self._one(subject, data) for subject in self._to.asks.values()))
        return time.perf_counter() - start

    async def _one(self, subject: str, data: bytes) -> None:
        for at in range(0, len(data), PART):
            await self._client.request(subject, data[at : at + PART], timeout=60.0)

    def close(self) -> None:
        """Close the connection."""
        self._loop.run_until_complete(self._client.close())
        self._loop.close()


def exchanges(sites: Sites, sizes: list[int], repeats: int) -> dict[str, Any]:
    """Return medians by size and way, and the median of ratios of neighbours."""
    found: dict[str, Any] = {}
    bare = Bare(sites)
    for size in sizes:
        data = os.urandom(size)
        ways: dict[str, Callable[[], float]] = {
            "bare": partial(bare, data), "ours": partial(_ours, sites, data),
        }  # fmt: skip
        seconds: dict[str, list[float]] = {way: [] for way in ways}
        for turn in range(repeats + 1):  # the first is not counted
            for way, once in ways.items():
                took = once()
                if turn:
                    seconds[way].append(took)
        for way, values in seconds.items():
            found[f"{way}_{size}_s"] = statistics.median(values)
        pairs = zip(seconds["ours"], seconds["bare"], strict=True)
        found[f"ours_over_bare_{size}"] = statistics.median(a / b for a, b in pairs)
    bare.close()
    return found


def idle(sites: Sites, seconds: float) -> dict[str, float]:
    """Return what waiting costs, a site: bytes a second, percent of a core of its carrier."""
    wire = Wire(sites.port)
    processes = [sites.server, *sites.carriers]
    before, used = wire.look(), [processor(process) for process in processes]
    time.sleep(seconds)
    after, now = wire.look(), [processor(process) for process in processes]
    shares = [100 * (b - a) / seconds for a, b in zip(used, now, strict=True)]
    connections = 2 * len(sites.names) + 1  # the bare clients' too
    return {
        "idle_bytes_per_s": (sum(after) - sum(before)) / seconds / connections,
        "idle_carrier_core_percent": statistics.mean(shares[1:]),
        "idle_server_core_percent": shares[0] / connections,
    }


def main() -> int:
    """Measure and print."""
    options = parser("Exchanges over the broker.", repeats=40)
    options.add_argument("--sites", type=int, default=5)
    options.add_argument("--sizes", type=int, nargs="+", default=[1000, 850_000, 6_000_000])
    options.add_argument("--rest", type=float, default=60.0, help="seconds of waiting measured")
    options.add_argument("--runs", metavar="DATA", help="measure whole runs on Cora instead")
    options.add_argument("--starts", action="store_true", help="measure starts instead")
    options.add_argument("--rounds", type=int, default=10)
    options.add_argument("--policies", nargs="+", default=["masks", "he"])
    args = options.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # no process is left behind
    if shutil.which("ss") is None:
        sys.stderr.write("ss is missing: bytes on the wire are counted with it (iproute2)\n")
        return 2
    if args.runs:
        result = measured_runs(args.runs, args.rounds, args.repeats, args.policies)
    elif args.starts:
        result = measured_starts(args.sites, args.repeats)
    else:
        with running(args.sites) as sites:
            result = {"sites": args.sites, "load": os.getloadavg()[0]}
            result |= exchanges(sites, args.sizes, args.repeats)
            result |= idle(sites, args.rest)
    show(result, args.format)
    return 0


if __name__ == "__main__":
    sys.exit(main())
