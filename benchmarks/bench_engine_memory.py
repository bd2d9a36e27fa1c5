"""Memory of NVFlare's processes over many exchanges: as NVFlare starts them, and as a kit does.

The stand-ins of `bench_exchange` carry the same bytes again and again over real processes, first
with NVFlare's own settings, then with those of `secure_fgl.transports.nvflare.engine.memory`.
Growth is from the median over the exchanges after the first fifth to that over the last fifth.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import psutil

if __package__ in (None, ""):  # run as a file: the floors lie one folder up
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks._measure import parser, show
from benchmarks.bench_exchange import INTERVAL, federation
from secure_fgl.transports.broker.codes import TASK
from secure_fgl.transports.nvflare import kits
from secure_fgl.transports.nvflare.job import POLL_SECONDS

_MARKS = {
    "relay": "client.worker_process",
    "server_relay": "server.runner_process",
    "engine": "client.client_train",
    "server": "server.server_train",
}
_WARM_SECONDS = 16.0  # in which what the waiting for all sites left behind is forgotten


def census() -> dict[tuple[str, int], tuple[int, int]]:
    """Return memory (bytes) and threads of every process of the engine, by kind and number."""
    found = {}
    for one in psutil.Process().children(recursive=True):
        words = " ".join(one.cmdline())
        for kind, mark in _MARKS.items():
            if mark in words:
                found[kind, one.pid] = (one.memory_info().rss, one.num_threads())
    return found


def carried(sites: int, size: int, repeats: int) -> dict[str, Any]:
    """Return by kind the largest process, its growth, and its most threads."""
    seen: dict[tuple[str, int], list[tuple[int, int]]] = {}
    with federation(sites) as (carrier, names, _, _):
        carrier.carry(INTERVAL, {names[0]: [str(POLL_SECONDS).encode()]}, 60.0, ())
        time.sleep(_WARM_SECONDS)
        data = os.urandom(size)
        for _ in range(repeats):
            said = carrier.carry(TASK, {name: [data] for name in names}, 60.0, ())
            if any(list(one.envelopes) != [data] for one in said.values()):
                raise ArithmeticError("What came back is not what was sent.")
            for who, now in census().items():
                seen.setdefault(who, []).append(now)
    found: dict[str, Any] = {}
    for kind in _MARKS:
        rows = [rows for (named, _), rows in seen.items() if named == kind]
        fifth = repeats // 5
        ends = [
            (_median(one[fifth : 2 * fifth]), _median(one[-fifth:]), max(n for _, n in one))
            for one in rows
        ]
        found[f"{kind}_mb"] = max(late for _, late, _ in ends) / 1e6
        found[f"{kind}_growth"] = max(late / early - 1 for early, late, _ in ends)
        found[f"{kind}_threads"] = max(most for *_, most in ends)
    return found


def _median(rows: list[tuple[int, int]]) -> float:
    return statistics.median(size for size, _ in rows)


def measured(sites: int, size: int, repeats: int) -> dict[str, Any]:
    """Measure with NVFlare's own settings, and with ours."""
    nothing: Mapping[str, Any] = {}
    with mock.patch.multiple(kits, COMMUNICATION=nothing, MEMORY=nothing):
        theirs = carried(sites, size, repeats)
    ours = carried(sites, size, repeats)
    return {
        "sites": sites, "bytes": size,
        **{f"nvflare_{name}": value for name, value in theirs.items()},
        **{f"ours_{name}": value for name, value in ours.items()},
    }  # fmt: skip


def main() -> int:
    """Measure and print."""
    options = parser("Memory of NVFlare's processes.", repeats=300)
    options.add_argument("--sites", type=int, default=5)
    options.add_argument("--size", type=int, default=400_000, help="bytes each way, a site")
    args = options.parse_args()
    show(measured(args.sites, args.size, max(10, args.repeats)), args.format)
    return 0


if __name__ == "__main__":
    sys.exit(main())
