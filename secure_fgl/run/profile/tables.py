"""What a profile says: tables as data and as text, and what the report is given of them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from crypto.spans import KINDS, REST
from secure_fgl.run.profile.flames import flame_graph
from secure_fgl.run.profile.watch import Watch

__all__ = ["document", "summary", "table", "write"]

_MS = 1_000_000  # nanoseconds
_ROUNDS = "Round 0 is all before the first one; the last has the end of the run."
_MOST = 40  # rounds in the text; profile.json has all


class Texts(Protocol):
    """Where the files go."""

    def text(self, name: str, content: str) -> None:
        """Write a text file."""


def _kind(path: Sequence[str]) -> str:
    return path[-1] if len(path) > 1 and path[-1] in KINDS else REST


def _by(watch: Watch, *, rounds: bool) -> dict[tuple[Any, str], int]:
    """Return nanoseconds by round or role, and kind."""
    found: Counter[tuple[Any, str]] = Counter()
    for (round, path), (spent, _) in watch.places.items():
        found[round if rounds else path[0], _kind(path)] += spent
    return found


def _counted(watch: Watch, *, rounds: bool) -> dict[tuple[Any, str], int]:
    found: Counter[tuple[Any, str]] = Counter()
    for (round, role, what), number in watch.counts.items():
        found[round if rounds else role, what] += number
    return found


def document(watch: Watch, workers: int) -> dict[str, Any]:
    """Return ``profile.json``: milliseconds, and counts, by role and by round.

    Args:
        watch: with what all processes told.
        workers: processes beside the first.
    """
    counts = _counted(watch, rounds=False)
    return {
        "wall_ms": watch.wall / _MS,
        "all_ms": sum(spent for spent, _ in watch.places.values()) / _MS,
        "workers": workers,
        "roles": _rows(_by(watch, rounds=False), counts),
        "rounds": _rows(_by(watch, rounds=True), _counted(watch, rounds=True)),
        "paths": [
            {"path": list(path), "ms": spent / _MS, "visits": visits}
            for path, (spent, visits) in sorted(_paths(watch).items())
        ],
    }


def _rows(
    times: Mapping[tuple[Any, str], int], counts: Mapping[tuple[Any, str], int]
) -> list[dict[str, Any]]:
    keys = sorted({key for key, _ in (*times, *counts)})
    return [
        {
            "of": key,
            "ms": {kind: times[key, kind] / _MS for kind in KINDS if (key, kind) in times},
            "counts": {what: n for (k, what), n in sorted(counts.items()) if k == key},
        }
        for key in keys
    ]


def _paths(watch: Watch) -> dict[tuple[str, ...], tuple[int, int]]:
    found: dict[tuple[str, ...], tuple[int, int]] = {}
    for (_, path), (spent, visits) in watch.places.items():
        before = found.get(path, (0, 0))
        found[path] = before[0] + spent, before[1] + visits
    return found


def summary(said: Mapping[str, Any]) -> dict[str, Any]:
    """Return what ``result.json`` and so the report have of a profile: whole milliseconds."""
    rows = [
        {
            "role": row["of"],
            "ms": {kind: round(ms) for kind, ms in row["ms"].items()},
            "syncs": row["counts"].get("syncs", 0),
            "ledger_bytes": row["counts"].get("bytes of ledgers", 0),
            "state_bytes": row["counts"].get("bytes of state", 0),
        }
        for row in said["roles"]
    ]
    played = [row for row in said["rounds"] if row["of"]]
    syncs = sum(row["counts"].get("syncs", 0) for row in played)
    return {
        "wall_ms": round(said["wall_ms"]),
        "workers": said["workers"],
        "rows": rows,
        "syncs_a_round": round(syncs / len(played)) if played else 0,
    }


def table(said: Mapping[str, Any]) -> str:
    """Return ``profile.txt``, of at most 80 columns."""
    whole, share = said["all_ms"] or 1.0, Counter[str]()
    for row in said["roles"]:
        share.update(row["ms"])
    lines = [
        f"{said['wall_ms'] / 1e3:.2f} s from the first session to the last; of all processes "
        f"{said['all_ms'] / 1e3:.2f} s.",
        'Each moment is counted once. In "waiting (processes)" one process waits for',
        "others, whose time is counted too.",
        "",
        f"{'where':<24}{'seconds':>10}{'share':>8}",
        *(f"{k:<24}{share[k] / 1e3:>10.3f}{100 * share[k] / whole:>7.1f}%" for k in KINDS),
        f"{'together':<24}{whole / 1e3:>10.3f}{100:>7.1f}%",
    ]
    short = ("learn", "crypto", "encode", "sign", "ledger", "state", "disk", "procs", "rest")
    for title, rows in (("role", said["roles"]), ("round", said["rounds"][:_MOST])):
        lines += ["", f"{title:<14}" + "".join(f"{name:>7}" for name in short)]
        lines += [
            _line(str(row["of"]), [row["ms"].get(k, 0.0) / 1e3 for k in KINDS]) for row in rows
        ]
        lines += ["", *_counts(title, rows)]
    if len(said["rounds"]) > _MOST:
        lines.append(f"{len(said['rounds']) - _MOST} more rounds stand in profile.json.")
    return "\n".join([*lines, _ROUNDS, ""])


def _line(name: str, seconds: Iterable[float]) -> str:
    return f"{name[:13]:<14}" + "".join(f"{_short(s):>7}" for s in seconds)


def _short(seconds: float) -> str:
    return "" if not seconds else f"{seconds:.2f}" if seconds < 1000 else f"{seconds:.0f}"


_COUNTS = ("syncs", "bytes of ledgers", "bytes of state", "bytes received", "bytes sent")


def _counts(title: str, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    names = ("syncs", "ledger B", "state B", "received B", "sent B")
    lines = [f"{title:<14}" + "".join(f"{name:>13}" for name in names)]
    for row in rows:
        found = [row["counts"].get(what, 0) for what in _COUNTS]
        lines.append(f"{str(row['of'])[:13]:<14}" + "".join(f"{n:>13}" for n in found))
    return lines


def write(folder: Texts, watch: Watch, workers: int) -> dict[str, Any]:
    """Write the three files of a profile; return what `summary` does."""
    said = document(watch, workers)
    folder.text("profile/profile.json", json.dumps(said, indent=1, sort_keys=True) + "\n")
    folder.text("profile/profile.txt", table(said))
    paths = {path: spent for path, (spent, _) in _paths(watch).items()}
    title = f"Where {said['all_ms'] / 1e3:.2f} s of all processes went"
    folder.text("profile/flames.svg", flame_graph(paths, title))
    return summary(said)
