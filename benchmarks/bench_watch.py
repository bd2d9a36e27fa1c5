"""Whether `audit watch` keeps up with ledgers that grow, and how long `audit verify` takes after.

The run is that of `bench_verify`. A process of its own writes its ledgers to a folder, some entries
of each in turn, at a given pace; the watch reads them as they come and prints JSON to nowhere. Its
lag is the time from an entry's write to its reading. Then the whole is read once as fast as it
goes. Nothing is asserted.

    python benchmarks/bench_watch.py [--entries 100000] [--clients 40] [--pace 5000]
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import tempfile
import time
from pathlib import Path

if __package__ in (None, ""):  # run as a file: the floors lie one folder up
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from audits.evidence.run_files import RunView
from audits.evidence.verify import verify
from benchmarks._measure import parser, show
from benchmarks.bench_verify import played
from secure_fgl.cli._shared.verb import Format
from secure_fgl.cli.watch import _tell
from secure_fgl.watching import Following

_GROUP = 25  # entries that are written at once, as one exchange's are


def write(folder: str, ledgers: dict[str, list[bytes]], pace: float, begun: float) -> None:
    """Append lines of all ledgers in turn, so many a second.

    Args:
        folder: of the ledgers, which are there and empty.
        ledgers: party -> its lines.
        pace: entries a second.
        begun: when the first is due, in seconds of the monotonic clock.
    """
    mode = os.O_WRONLY | os.O_APPEND
    files = {party: os.open(f"{folder}/{party}.jsonl", mode) for party in ledgers}
    left, written = {party: list(lines) for party, lines in ledgers.items()}, 0
    while any(left.values()):
        for party, lines in left.items():
            if group := lines[:_GROUP]:
                time.sleep(max(0.0, begun + written / pace - time.monotonic()))
                os.write(files[party], b"".join(group))
                left[party], written = lines[_GROUP:], written + len(group)


def laid(view: RunView, folder: Path) -> None:
    """Write a run's documents and an empty ledger for each party."""
    (folder / "ledger").mkdir()
    for party in view.ledgers:
        (folder / "ledger" / f"{party}.jsonl").touch()
    documents = (view.plan_text, view.policy_text, view.roster_text)
    for name, data in zip(("plan", "policy", "roster"), documents, strict=True):
        (folder / f"{name}.json").write_bytes(data)


def followed(folder: Path, pace: float, begun: float, total: int) -> tuple[int, float, float]:
    """Return entries read, seconds from the first write to the last entry, and the longest lag."""
    following, worst = Following(folder), 0.0
    with Path("/dev/null").open("w", encoding="utf-8") as nowhere:
        sys.stdout, before = nowhere, sys.stdout
        try:
            while not following.watch.over:
                for seen in following.look():
                    _tell(seen, Format.json)
                # What is due by now and was not read, as the seconds in which it was written.
                due = min((time.monotonic() - begun) * pace, total)
                worst = max(worst, (due - following.watch.entries) / pace)
                time.sleep(0.02)
            following.finish()
        finally:
            sys.stdout = before
    return following.watch.entries, time.monotonic() - begun, worst


def main() -> int:
    """Measure and print."""
    options = parser("Watching ledgers that grow.", repeats=1)
    options.add_argument("--entries", type=int, default=100_000)
    options.add_argument("--clients", type=int, default=40)
    options.add_argument("--policy", default="unsafe_plaintext")
    options.add_argument("--pace", type=float, default=5000.0)
    args = options.parse_args()
    view = played(args.entries, args.clients, args.policy)
    lines = {party: data.splitlines(keepends=True) for party, data in view.ledgers.items()}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        laid(view, folder)
        begun = time.monotonic() + 1.0
        job = (f"{folder}/ledger", lines, args.pace, begun)
        writer = multiprocessing.get_context("spawn").Process(target=write, args=job)
        writer.start()
        read, seconds, lag = followed(folder, args.pace, begun, sum(map(len, lines.values())))
        writer.join()
        whole, again = Following(folder), (time.perf_counter(), time.process_time())
        unplanned = sum(bool(seen.unplanned) for seen in whole.look())
        whole.finish()
        once, once_cpu = time.perf_counter() - again[0], time.process_time() - again[1]
    start = time.perf_counter(), time.process_time()
    found = verify(view)
    facts = {
        "entries": read,
        "written_s": sum(map(len, lines.values())) / args.pace,
        "followed_s": seconds,
        "longest_lag_s": lag,
        "read_at_once_s": once,
        "entries_per_s_at_once": read / once,
        "read_at_once_cpu_s": once_cpu,
        "entries_per_cpu_s": read / once_cpu,
        "unplanned": unplanned,
        "verify_s": time.perf_counter() - start[0],
        "verify_cpu_s": time.process_time() - start[1],
        "verdict": found.verdict,
    }
    show(facts, args.format)
    return 0 if found.ok else 1


if __name__ == "__main__":
    sys.exit(main())
