"""What every row of `aggregation.py` does, and a row in a process of its own. numpy only.

A row is one way to sum vectors. Its round: each client protects its vector, the server adds each
upload as it arrives, whoever may opens the total. A process plays one round per line on its
standard input and answers with one line of JSON, which is how peak memory is measured and how a
row runs in an environment of its own (`benchmarks/envs`).
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

BOUND = 0.25
"""Every value of an update lies in [-BOUND, BOUND]."""

_SMALL = 64  # parameters

Vector = NDArray[np.float32]
Mean = NDArray[np.float64]


class Row(Protocol):
    """One way to sum vectors; one object plays all parties.

    Attributes:
        tolerance: how far the opened mean may be from the true one; further off, the row failed.
    """

    tolerance: float

    def prepare(self) -> None:
        """Do what a client does before it has its vector; not timed."""

    def client(self, index: int, vector: Vector) -> bytes:
        """Return what client `index` uploads for `vector`, shape (parameters,)."""

    def server(self, upload: bytes) -> None:
        """Add one upload to the running total."""

    def close(self) -> bytes:
        """Return the total's bytes as they go to the opener; the next upload starts a new one."""

    def open(self, total: bytes) -> Mean:
        """Return the mean of the clients' vectors, shape (parameters,)."""


@dataclass(frozen=True)
class Sample:
    """One round of one row.

    Attributes:
        client_ms: median over the clients.
        server_ms: all additions and the closing, per client.
        open_ms: from the total's bytes to the mean.
        upload_bytes: of one client.
        max_abs_error: of the mean.
        peak_mb: largest resident memory since the row was made, less the updates and what was
            there before, in MB of 10^6 bytes; None where the system does not tell.
    """

    client_ms: float
    server_ms: float
    open_ms: float
    upload_bytes: int
    max_abs_error: float
    peak_mb: float | None = None


def updates(parameters: int, clients: int) -> tuple[list[Vector], Mean]:
    """Return the clients' vectors, the same ones in every process, and their mean."""
    rng = np.random.default_rng(7)
    vectors = []
    for _ in range(clients):
        values = 0.05 * rng.standard_normal(parameters)
        vectors.append(values.clip(-BOUND, BOUND).astype(np.float32))
    mean = np.zeros(parameters)
    for vector in vectors:
        mean += vector
    return vectors, mean / clients


def play(row: Row, vectors: Sequence[Vector], mean: Mean) -> Sample:
    """Play one round and check its result; raises ArithmeticError for a wrong mean."""
    clients: list[float] = []
    server, size = 0.0, 0
    for index, vector in enumerate(vectors):
        row.prepare()
        start = time.perf_counter()
        upload = row.client(index, vector)
        middle = time.perf_counter()
        row.server(upload)
        clients.append(middle - start)
        server += time.perf_counter() - middle
        size = len(upload)
    start = time.perf_counter()
    total = row.close()
    middle = time.perf_counter()
    found = row.open(total)
    end = time.perf_counter()
    if found.shape != mean.shape:
        raise ArithmeticError("The opened mean has another shape than the updates.")
    error = float(np.abs(found - mean).max())
    if not error <= row.tolerance:  # written so that NaN fails too
        raise ArithmeticError(f"The opened mean is off by {error:.3g}.")
    return Sample(
        client_ms=1e3 * statistics.median(clients),
        server_ms=1e3 * (server + middle - start) / len(vectors),
        open_ms=1e3 * (end - middle),
        upload_bytes=size,
        max_abs_error=error,
    )


def serve(make: Callable[[int, int], Row], parameters: int, clients: int) -> int:
    """Play one round per line of standard input, with peak memory; return the exit code."""
    out = quiet()
    play(make(_SMALL, clients), *updates(_SMALL, clients))  # imports and libraries' tables
    vectors, mean = updates(parameters, clients)
    before = _restart_peak()
    row = make(parameters, clients)
    for _ in sys.stdin:
        sample = play(row, vectors, mean)
        peak = memory("VmHWM")
        facts = asdict(sample)
        if before is not None and peak is not None:
            facts["peak_mb"] = max(0, peak - before) / 1e6
        print(json.dumps(facts), file=out, flush=True)
    return 0


class Elsewhere:
    """A row in a process of its own; plays rounds like any other.

    Args:
        command: what to start; the numbers of parameters and clients are put behind it.
        parameters, clients: of each round.
    """

    def __init__(self, command: Sequence[str], parameters: int, clients: int) -> None:
        words = [*command, str(parameters), str(clients)]
        self._process = subprocess.Popen(  # noqa: S603  (the command is this benchmark's own)
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def play(self) -> Sample:
        """Play one round; raises RuntimeError when the process has ended."""
        ends = self._process.stdin, self._process.stdout
        line = ""
        if ends[0] is not None and ends[1] is not None and self._process.poll() is None:
            print("round", file=ends[0], flush=True)
            line = ends[1].readline()
        if not line:
            raise RuntimeError(
                "The row's process ended without a result; its own message is above."
            )
        facts: dict[str, Any] = json.loads(line)
        return Sample(**facts)

    def close(self) -> None:
        """End the process."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()


def quiet() -> Any:
    """Return standard output as a text file, and send what C++ libraries print there to nowhere.

    TenSEAL warns on standard output of each vector that is longer than one ciphertext. For the rest
    of the process: its buffer may be written as late as at the end.
    """
    sys.stdout.flush()
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)
    return out


def _restart_peak() -> int | None:
    """Start a new measurement of peak memory (Linux); return the bytes resident now."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return None
    return memory("VmRSS")


def memory(name: str) -> int | None:
    """Return this process's ``VmRSS`` or ``VmHWM`` (its peak) in bytes; None off Linux."""
    try:
        lines = Path("/proc/self/status").read_text("ascii").splitlines()
    except OSError:
        return None
    found = next((line for line in lines if line.startswith(f"{name}:")), None)
    return None if found is None else 1024 * int(found.split()[1])
