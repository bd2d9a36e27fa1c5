"""What the benchmarks share: interleaved timing, and printing for people or machines."""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any


def interleaved(parts: Mapping[str, Callable[[], Any]], repeats: int) -> dict[str, list[float]]:
    """Return seconds per part and repeat; the parts take turns, so a busy machine hits all alike.

    Args:
        parts: what to time, by name; each is called once unmeasured first.
        repeats: how often each is timed.
    """
    for part in parts.values():
        part()
    seconds: dict[str, list[float]] = {name: [] for name in parts}
    for _ in range(repeats):
        for name, part in parts.items():
            start = time.perf_counter()
            part()
            seconds[name].append(time.perf_counter() - start)
    return seconds


def medians(seconds: Mapping[str, list[float]]) -> dict[str, float]:
    """Return the median seconds of each part."""
    return {name: statistics.median(values) for name, values in seconds.items()}


def paired_ratio(seconds: Mapping[str, list[float]], over: str, under: str) -> float:
    """Return the median over the repeats of the ratio of two parts timed side by side."""
    pairs = zip(seconds[over], seconds[under], strict=True)
    return statistics.median(a / b for a, b in pairs)


def parser(description: str, repeats: int) -> argparse.ArgumentParser:
    """Return a parser with the options that every benchmark has."""
    found = argparse.ArgumentParser(description=description)
    found.add_argument("--format", choices=("table", "json"), default="table")
    found.add_argument("--repeats", type=int, default=repeats, help="rounds that are timed")
    return found


def show(result: Mapping[str, Any], form: str) -> None:
    """Print a flat result as one JSON object, or as aligned lines."""
    if form == "json":
        print(json.dumps(result, indent=2))
        return
    width = max(map(len, result))
    for name, value in result.items():
        shown = f"{value:.4g}" if isinstance(value, float) else value
        print(f"{name:<{width}}  {shown}")
