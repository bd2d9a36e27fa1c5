"""A long run of real processes in which every kind of process is killed, by a seed.

Five clients, a key authority and the aggregator, over the broker on one machine. Faults are played
one after the other in the first part of the run and the rest goes on in peace, so that memory is
seen with and without them. Prints what came of each, and whether every total that was opened is the
sum over its survivors, every envelope that left has an entry, and memory stays flat::

    nice -n 10 python benchmarks/soak.py --rounds 200 --minutes 20 --out soak.jsonl

Exit code 1 where something does not hold. What the parties wrote lies in a temporary folder, which
``--keep DIR`` keeps.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

if __package__ in (None, ""):  # run as a file: the floors lie one folder up
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks._soak_checks import Memory, judged
from benchmarks._soak_faults import Faults, table
from benchmarks._soak_federation import staged, until

DEADLINE = 30  # seconds of an exchange
_LOOK_SECONDS = 1.0
_FIRST = 3  # the round from which on there are faults


def soak(
    base: Path,
    *,
    rounds: int,
    minutes: float,
    seed: int = 1,
    faulty: float = 0.7,
    kinds: Sequence[str] = (),
    deadline: int = DEADLINE,
) -> dict[str, Any]:
    """Play one run to its end, or until the time is over; return all figures.

    Args:
        base: a new folder.
        rounds: of the run.
        minutes: after which it is ended, whatever it reached.
        seed: of the faults.
        faulty: the part of rounds and of the time in which faults are played.
        kinds: these faults in this order, each once; empty: all that there are, as the seed says.
        deadline: of an exchange, seconds.
    """
    began, memory = time.monotonic(), Memory()
    with staged(base, rounds, deadline) as stage:
        faults, next_look, after = Faults(stage, seed), 0.0, _FIRST
        left = iter(kinds) if kinds else faults.kinds()
        kind = next(left)
        started = until(lambda: stage.round() >= 1, 60.0 * minutes)
        running = time.monotonic()
        last = began + 60.0 * minutes
        while started and not (stage.finished() or stage.refused()) and time.monotonic() < last:
            faults.tend()
            if time.monotonic() >= next_look:
                memory.look(stage)
                next_look = time.monotonic() + _LOOK_SECONDS
            early = time.monotonic() - began < 60.0 * minutes * faulty
            here = after <= stage.round() <= rounds * faulty
            if early and here and kind and faults.play(kind):
                kind, after = next(left, ""), stage.round() + 1
            time.sleep(0.1)
        reached, finished, refused = stage.round(), stage.finished(), stage.refused()
        found = stage.status()
        lost = len(found.lost) if found is not None else None
        over = until(stage.over, 120.0 if finished or refused else 0.0)
        wall = time.monotonic() - running
    whole = {
        "rounds": rounds, "reached": reached, "finished": finished, "refused": refused,
        "all_ended": over, "lost_rounds": lost, "faults": len(faults.played), "seed": seed,
        "run_s": round(wall, 1),
        "faults_without_an_end": sum(fault.on_s is None for fault in faults.played),
        **judged(stage),
    }  # fmt: skip
    return {"run": whole, "faults": table(faults.played), "memory": memory.growth()}


def holds(found: dict[str, Any]) -> list[str]:
    """Return what does not hold of it."""
    run = found["run"]
    wanted = {
        "the run is over": run["finished"],
        "every fault had an end": run["faults_without_an_end"] == 0,
        "every total is the sum over its survivors": run["wrong_totals"] == run["totals_twice"] == 0
        and run["totals"] > 0,
        "one client less is noticed": run["wrong_without_one"] == run["totals"],
        "every envelope has an entry": run["unrecorded"] == 0 and run["envelopes"] > 0,
        "the whole verifies": run["verdict"] == "self-consistent only",
        "memory is flat": all(one["growth"] <= 0.03 for one in found["memory"]),
    }
    return [name for name, held in wanted.items() if not held]


def main() -> int:
    """Run it; see the head of this file."""
    parser = argparse.ArgumentParser(description="A long run with faults, over real processes.")
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--minutes", type=float, default=20.0, help="after which it is ended")
    parser.add_argument("--seed", type=int, default=1, help="of the faults")
    parser.add_argument("--faulty", type=float, default=0.7, help="the part with faults")
    parser.add_argument("--out", type=Path, help="rows to append: JSON, one a line")
    parser.add_argument("--keep", type=Path, help="a new folder for what the parties write")
    given = parser.parse_args()
    options = {"rounds": given.rounds, "minutes": given.minutes, "seed": given.seed}
    with tempfile.TemporaryDirectory() as place:
        base = given.keep if given.keep is not None else Path(place) / "soak"
        found = soak(base.resolve(), **options, faulty=given.faulty)
    rows = [{"of": "run", **found["run"]}]
    rows += [{"of": kind, **row} for kind in ("faults", "memory") for row in found[kind]]
    lines = "".join(f"{json.dumps(row)}\n" for row in rows)
    print(lines, end="")
    if given.out is not None:
        with given.out.open("a", encoding="utf-8") as file:
            file.write(lines)
    for name in (failed := holds(found)):
        print(f"does not hold: {name}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
