"""What must hold of a soak: totals, envelopes, evidence, and memory."""

from __future__ import annotations

import json
import statistics
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks._soak_federation import Stage
from protocols.disclosures.names import Disclosure
from protocols.evidence.ledger import read_lines
from protocols.policy.guard import find
from protocols.wire.roster import AGGREGATOR_NAME
from secure_fgl.store.finished_run import Run
from secure_fgl.store.sides.hand_overs import gather_files, write_hand_over
from secure_fgl.store.sides.party_side import place_of

WARM = 20
"""Rounds after which memory is to be flat, of a run and of a process that was started again."""
_WINDOW = 10  # rounds over which the median is taken at either end


def noted(tap: Path) -> Iterator[dict[str, Any]]:
    """Yield what the taps noted; a line that a kill cut off is none."""
    for file in sorted(tap.iterdir()):
        for line in file.read_bytes().splitlines():
            try:
                yield json.loads(line)
            except ValueError:
                continue


@dataclass
class Sums:
    """Every total that was opened, and what its clients said."""

    said: dict[tuple[Any, ...], Any] = field(default_factory=dict)
    opened: dict[tuple[Any, ...], tuple[tuple[str, ...], Any]] = field(default_factory=dict)
    twice: int = 0

    @classmethod
    def of(cls, notes: Collection[Mapping[str, Any]]) -> Sums:
        """Read them from notes; a total that was opened over two lists counts in `twice`."""
        found = cls()
        for note in notes:
            if note["what"] == "said":
                found.said[note["party"], *note["at"]] = note["fields"]
            elif note["what"] == "opened":
                at, mine = tuple(note["at"]), (tuple(note["survivors"]), note["fields"])
                found.twice += found.opened.setdefault(at, mine) != mine
        return found

    def off(self, at: tuple[Any, ...], clients: Sequence[str], policy: Any) -> float:
        """Return by how much more than rounding a total is not the sum over some clients."""
        chain = policy.rules[Disclosure.SUM]
        clip: Any = find(chain, "clip")
        quantise: Any = find(chain, "quantise")
        bits = quantise.bits
        worst = 0.0
        for name, (kind, scale, total) in self.opened[at][1].items():
            parts = np.array([self.said[client, *at][name][2] for client in clients])
            if kind != "f":
                worst = max(worst, float(np.max(np.abs(np.sum(parts, axis=0) - total))))
                continue
            bound = clip.bound * scale
            apart = np.abs(np.sum(np.clip(parts, -bound, bound), axis=0) - total)
            step = bound / (2 ** (bits - 1) - 1)
            worst = max(worst, float(np.max(apart)) / step - len(parts))
        return worst

    def wrong(self, policy: Any) -> int:
        """Return how many totals are not the sum over their survivors, or are of too few."""
        found = 0
        for at, (survivors, _) in self.opened.items():
            fits = len({*survivors}) == len(survivors) >= policy.smallest_cohort
            found += not (fits and self.off(at, survivors, policy) <= 0.0)
        return found

    def noticed(self, policy: Any) -> int:
        """Return how many totals would be wrong of one client less: the control of `wrong`."""
        return sum(self.off(at, s[1:], policy) > 0.0 for at, (s, _) in self.opened.items())


def unrecorded(stage: Stage, notes: Collection[Mapping[str, Any]]) -> int:
    """Return how many envelopes left a party's process that no ledger names."""
    named = set()
    for folder in stage.folders.values():
        data = (place_of(folder) / "run" / "ledger" / f"{folder.name}.jsonl").read_bytes()
        named |= {e["commitment"] for e, _ in read_lines(data) if e["kind"] == "release"}
    left = {note["commitment"] for note in notes if note["what"] == "sent"}
    return len(left - named)


def verdict(stage: Stage) -> str:
    """Gather the sides of all parties and return the verdict on the whole.

    A site that is gone for good lies still, and its operator hands over what it has: verification
    holds it to the last head that others witnessed. Without its side the whole does not verify.
    """
    folders = stage.folders.values()
    handed = [write_hand_over(f, stage.base / f"{f.name}.zip")[0] for f in folders]
    gather_files(handed, stage.base / "run")
    found = Run(stage.base / "run").verify()
    return found.verdict if found.ok else f"{found.verdict}: {found.failed}"


def judged(stage: Stage) -> dict[str, Any]:
    """Return the figures of what must hold."""
    notes = [*noted(stage.base / "tap")]
    sums, policy = Sums.of(notes), stage.charter.policy
    lists = [len(survivors) for survivors, _ in sums.opened.values()]
    return {
        "totals": len(sums.opened),
        "totals_of_fewer": sum(count < max(lists, default=0) for count in lists),
        "wrong_totals": sums.wrong(policy),
        "wrong_without_one": sums.noticed(policy),
        "totals_twice": sums.twice,
        "envelopes": len({note["commitment"] for note in notes if note["what"] == "sent"}),
        "unrecorded": unrecorded(stage, notes),
        "verdict": verdict(stage) if stage.finished() else "not finished",
    }


@dataclass
class Memory:
    """Samples of every process's memory, by round."""

    samples: dict[tuple[str, str, int], list[tuple[int, int]]] = field(default_factory=dict)

    def look(self, stage: Stage) -> None:
        """Take one sample of each."""
        round = stage.round()
        for who, size in stage.census().items():
            self.samples.setdefault(who, []).append((round, size))

    def growth(self) -> list[dict[str, Any]]:
        """Return by kind the memory of those that lived long enough, and how much it grew.

        From the median over ten rounds, `WARM` rounds after both the run's and its own start, to
        the median over its last ten.
        """
        kinds: dict[str, list[tuple[float, float]]] = {}
        for (site, kind, _), seen in self.samples.items():
            first = max(WARM, seen[0][0] + WARM)
            early = [size for round, size in seen if first <= round < first + _WINDOW]
            last = seen[-1][0]
            late = [size for round, size in seen if round > last - _WINDOW]
            if early and last >= first + 2 * _WINDOW:
                pair = statistics.median(early), statistics.median(late)
                name = kind if site != AGGREGATOR_NAME else f"{kind} (aggregator)"
                kinds.setdefault(name, []).append(pair)
        return [
            {
                "process": kind,
                "lived_long": len(pairs),
                "mb": round(max(after for _, after in pairs) / 1e6, 1),
                "growth": round(max(after / before - 1 for before, after in pairs), 4),
            }
            for kind, pairs in sorted(kinds.items())
        ]
