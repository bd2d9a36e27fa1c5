"""How many ledger entries a second one party writes durably.

One exchange appends some entries and makes them durable with one fsync before anything is sent
(group commit). Compared with an fsync for every entry, and with memory, where only hashing,
canonical JSON and the Merkle tree are left. Ratios within one run; nothing is asserted.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

if __package__ in (None, ""):  # run as a file: the floors lie one folder up
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks._measure import interleaved, medians, paired_ratio, parser, show
from protocols.disclosures.names import Disclosure
from protocols.evidence.ledger import Ledger, MemoryStore, Store
from protocols.plan.steps import Step, item_id
from protocols.wire.roles import Role
from secure_fgl.run.clock import clock
from secure_fgl.store.files import Folder
from secure_fgl.store.run_folder import FileStore

FACTS: dict[str, Any] = {  # as large as an entry of a client's upload
    "attempt": 1,
    "bytes": 1_510_000,
    "clipped": False,
    "cohort": "c" * 64,
    "commitment": "d" * 64,
    "disclosure": "SUM",
    "exchange": 17,
    "given": "e" * 64,
    "item": item_id("train", Disclosure.SUM, Step.UP, Role.CLIENT),
    "key": "f" * 16,
    "messages": "Update+Score",
    "plan": "a" * 64,
    "policy": "b" * 64,
    "protection": ["clip(norm=linf, bound=0.5)", "quantise(bits=16)", "he(scheme=bfv)", "seal"],
    "recipient": "aggregator",
    "round": 9,
    "sender": "client-1",
    "unsafe": False,
}


def writer(make: Callable[[], Store], entries: int, per_commit: int) -> Callable[[], None]:
    """Return a part that writes `entries` entries to a new ledger, `per_commit` per fsync."""

    def go() -> None:
        store = make()
        ledger = Ledger("client-1", "0" * 32, store, clock)
        for number in range(1, entries + 1):
            ledger.record("release", FACTS)
            if number % per_commit == 0:
                ledger.commit()
        ledger.commit()
        if isinstance(store, FileStore):
            store.close()

    return go


def main() -> int:
    """Measure and print."""
    options = parser("Ledger entries per second.", repeats=5)
    options.add_argument("--entries", type=int, default=1000, help="entries per timed part")
    options.add_argument("--per-exchange", type=int, default=2, help="entries of one exchange")
    options.add_argument("--out", default=None, help="folder on the disk to measure")
    args = options.parse_args()
    with tempfile.TemporaryDirectory(dir=args.out) as name:
        files = count()

        def on_disk() -> Store:
            return FileStore(Folder(name), f"{next(files)}.jsonl")

        seconds = interleaved(
            {
                "memory": writer(MemoryStore, args.entries, args.per_exchange),
                "per_exchange": writer(on_disk, args.entries, args.per_exchange),
                "per_entry": writer(on_disk, args.entries, 1),
            },
            args.repeats,
        )
    found = medians(seconds)
    result = {
        "entries": args.entries,
        "per_exchange": args.per_exchange,
        "repeats": args.repeats,
        **{f"{part}_entries_per_s": round(args.entries / value) for part, value in found.items()},
        "per_entry_over_per_exchange": paired_ratio(seconds, "per_entry", "per_exchange"),
        "per_exchange_over_memory": paired_ratio(seconds, "per_exchange", "memory"),
    }
    show(result, args.format)
    return 0


if __name__ == "__main__":
    sys.exit(main())
