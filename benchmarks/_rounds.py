"""Whole rounds of federated training, of ours and of peers: what the rows of `rounds.py` share.

numpy and the standard library only, so that a peer's environment can load it. A row is a process
of its own that trains all rounds and answers with one line of JSON (`Rounds.told`).
"""

from __future__ import annotations

import json
import os
import resource
import time
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

FIRST = 2
"""Rounds that are left out at the beginning: caches fill, the first epoch's keys are agreed on."""

ARRAYS = ("x", "edges", "y", "train", "val", "test")
"""Of a client's part: features (N, F) float32, undirected edges (2, M), labels (N,), masks (N,)."""

Part = Mapping[str, NDArray[Any]]


def processor_s() -> float:
    """Return seconds of processor that this process and all its descendants have used so far."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + ended.ru_utime + ended.ru_stime + sum(_living(os.getpid()))


def _living(root: int) -> Iterator[float]:
    """Yield what each living descendant has used, with the children that it has waited for."""
    tick, below, used = os.sysconf("SC_CLK_TCK"), dict[int, list[int]](), dict[int, float]()
    for place in Path("/proc").glob("[0-9]*/stat"):
        try:
            told = place.read_text("utf-8").rpartition(")")[2].split()
        except OSError:  # it ended in between
            continue
        number = int(place.parent.name)
        below.setdefault(int(told[1]), []).append(number)
        used[number] = sum(map(int, told[11:15])) / tick
    waiting = list(below.get(root, []))
    while waiting:
        number = waiting.pop()
        waiting += below.get(number, [])
        yield used[number]


class Rounds:
    """Marks the end of every round, and counts those after the first two."""

    def __init__(self) -> None:
        self._marks: list[tuple[float, float]] = []

    def ended(self, *_: Any) -> None:
        """Take note that a round ended."""
        self._marks.append((time.perf_counter(), processor_s()))

    def told(self, packages: Sequence[str], **facts: Any) -> None:
        """Print the row: seconds a round of clock and processor, versions, and its own facts.

        Raises:
            ValueError: there were too few rounds to leave any out.
        """
        if len(self._marks) <= FIRST + 1:
            raise ValueError(f"at least {FIRST + 2} rounds are needed")
        marks = self._marks[FIRST:]
        (clock, used), (later, more), rounds = marks[0], marks[-1], len(marks) - 1
        print(
            json.dumps(
                {
                    "wall_s": (later - clock) / rounds,
                    "cpu_s": (more - used) / rounds,
                    "versions": {name: version(name) for name in packages},
                    **facts,
                }
            )
        )


def save(file: Path, parts: Sequence[Part]) -> None:
    """Write the clients' parts for a row."""
    arrays = {f"{n}/{name}": part[name] for n, part in enumerate(parts) for name in ARRAYS}
    np.savez(file, allow_pickle=False, **arrays)


def load(file: Path) -> list[Part]:
    """Read what `save` wrote."""
    with np.load(file, allow_pickle=False) as found:
        clients = len(found.files) // len(ARRAYS)
        return [{name: found[f"{n}/{name}"] for name in ARRAYS} for n in range(clients)]


def both_ways(edges: NDArray[Any]) -> NDArray[np.int64]:
    """Return every undirected edge in both directions, as PyG has them."""
    return np.concatenate([edges, edges[::-1]], axis=1).astype(np.int64)


class Best:
    """The test figure of the first round with the highest validation figure, over all clients."""

    def __init__(self) -> None:
        self.val, self.test = -1.0, 0.0

    def take(self, right: NDArray[np.int64], of: NDArray[np.int64]) -> None:
        """Count a round: right and all (2,), on validation and test nodes of all clients."""
        val, test = right / of
        if val > self.val:
            self.val, self.test = float(val), float(test)
