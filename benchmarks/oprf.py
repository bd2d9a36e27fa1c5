"""Item tags by the split OPRF beside libsodium's bare scalar multiplications.

    ours    blinding, both servers' evaluations, one after the other with the client's look at the
            first one's, unblinding and hashing of all tags, from inputs to outputs
    bare    as many multiplications as that takes (four a tag), of valid points by valid scalars,
            called through the same binding and nothing else

Both on the same threads, by turns. With ``--hmac`` the consortium mode is timed as well.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import rbcl

if __package__ in (None, ""):  # run as a file: the floors lie one folder up
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks._measure import interleaved, medians, paired_ratio, parser, show
from crypto.oprf import KeyShare, Spread, blind, check, keyed_tags, random_scalars

MULTIPLICATIONS = 4  # blind, two evaluations, unblind
_CHUNK = 256


def tags(inputs: list[bytes], shares: tuple[KeyShare, KeyShare], spread: Spread) -> list[bytes]:
    """Return the outputs of all inputs, all parties in turn."""
    batch = blind(inputs, spread)
    first, second = shares
    halfway = first.evaluate(batch.points, spread)
    check(halfway, spread)
    return batch.finalize(second.evaluate(halfway, spread), spread)


def bare(points: list[bytes], scalars: list[bytes], pool: ThreadPoolExecutor) -> None:
    """Multiply all points, as often as `tags` does."""

    def work(start: int) -> None:
        part = slice(start, start + _CHUNK)
        for _ in range(MULTIPLICATIONS):
            for scalar, point in zip(scalars[part], points[part], strict=True):
                rbcl.crypto_scalarmult_ristretto255(scalar, point)

    list(pool.map(work, range(0, len(points), _CHUNK)))


def main(arguments: list[str] | None = None) -> Mapping[str, Any]:
    """Time, print, and return the figures."""
    options = _options(arguments)
    inputs = [b"item-%d" % number for number in range(options.tags)]
    shares = (KeyShare.generate(), KeyShare.generate())
    with ThreadPoolExecutor(options.threads) as pool:
        points, scalars = blind(inputs, pool.map).points, random_scalars(len(inputs))
        parts: dict[str, Callable[[], Any]] = {
            "bare": lambda: bare(points, scalars, pool),
            "ours": lambda: tags(inputs, shares, pool.map),
        }
        if options.hmac:
            parts["hmac"] = lambda: keyed_tags(bytes(32), inputs)
        seconds = interleaved(parts, options.repeats)
    found: dict[str, Any] = {
        "tags": options.tags,
        "threads": options.threads,
        **{f"{name} s": value for name, value in medians(seconds).items()},
        "ours / bare": paired_ratio(seconds, "ours", "bare"),
    }
    show(found, options.format)
    return found


def _options(arguments: list[str] | None) -> argparse.Namespace:
    found = parser((__doc__ or "").splitlines()[0], repeats=3)
    found.add_argument("--tags", type=int, default=100_000)
    found.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    found.add_argument("--hmac", action="store_true", help="time the keyed mode as well")
    return found.parse_args(arguments)


if __name__ == "__main__":
    main()
