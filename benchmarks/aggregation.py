"""What one secure sum costs: peers' settings and ours, taken in turns within one run.

Each row's round: every client protects its float vector for the wire, the server adds each upload,
whoever may opens the total. Ratios are against CKKS as NVFlare sets it (``peer_nvflare``), measured
in the same run: ``time_ratio`` of the clients' times, ``bytes_ratio`` of the uploads. No time is
asserted; a row that fails, or opens a wrong mean, is left out, named on standard error, and makes
the exit code 1.

    python benchmarks/aggregation.py --format json
    python benchmarks/aggregation.py --rows masks --bare
    python benchmarks/aggregation.py --paillier ENV/bin/python --flower ENV/bin/python

The last form adds two optional rows whose packages live in environments of their own
(`benchmarks/envs`).
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

if __package__ in (None, ""):  # run as a file: the floors lie one folder up
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks._kinds import BASE, KINDS, Kind, Local
from benchmarks._measure import interleaved, medians, paired_ratio, parser
from benchmarks._rows import Elsewhere, Sample, quiet, updates

HERE = Path(__file__).resolve().parent
Player = Local | Elsewhere


def _start(kind: Kind, parameters: int, args: argparse.Namespace) -> Player:
    if not kind.script:
        return Local(kind, parameters, args.clients)
    script = HERE / "envs" / kind.script / "run.py"
    return Elsewhere([getattr(args, kind.script), str(script)], parameters, args.clients)


class Failures:
    """Rows that failed, with the reason, by name and number of parameters."""

    def __init__(self) -> None:
        self.found: list[dict[str, Any]] = []

    def note(self, name: str, parameters: int, error: Exception) -> None:
        """Keep and print one failure."""
        reason = f"{type(error).__name__}: {error}"
        self.found.append({"scheme": name, "params": parameters, "reason": reason})
        print(f"{name} with {parameters} parameters failed: {reason}", file=sys.stderr)


def measure(
    names: Sequence[str], parameters: int, args: argparse.Namespace, failures: Failures
) -> list[dict[str, Any]]:
    """Return the rows of one number of parameters; they take turns, round by round."""
    players: dict[str, Player] = {}
    samples: dict[str, list[Sample]] = {name: [] for name in names}
    try:
        for name in names:
            try:
                players[name] = _start(KINDS[name], parameters, args)
            except Exception as error:  # one broken row must not hide the others
                failures.note(name, parameters, error)
        for repeat in range(1 + args.repeats):  # the first round warms up and is not counted
            for name, player in list(players.items()):
                try:
                    sample = player.play()
                except Exception as error:
                    failures.note(name, parameters, error)
                    players.pop(name).close()
                    samples[name] = []
                    continue
                if repeat:
                    samples[name].append(sample)
        rows = [
            _row(KINDS[name], parameters, samples[name], _peak(player, samples[name]))
            for name, player in players.items()
        ]
    finally:
        for player in players.values():
            player.close()
    return _with_ratios(rows)


def _peak(player: Player, samples: Iterable[Sample]) -> float | None:
    if isinstance(player, Local):
        return player.peak_mb
    return max((s.peak_mb for s in samples if s.peak_mb is not None), default=None)


def _row(kind: Kind, parameters: int, samples: list[Sample], peak: float | None) -> dict[str, Any]:
    def middle(part: Callable[[Sample], float]) -> float:
        return statistics.median(map(part, samples))

    return {
        "scheme": kind.name,
        "key": kind.key,
        "params": parameters,
        "client_ms": middle(lambda s: s.client_ms),
        "server_ms": middle(lambda s: s.server_ms),
        "open_ms": middle(lambda s: s.open_ms),
        "bytes_per_param": middle(lambda s: s.upload_bytes) / parameters,
        "max_abs_error": max(s.max_abs_error for s in samples),
        "peak_mb": peak,
    }


def _with_ratios(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    base = next((row for row in rows if row["scheme"] == BASE), None)
    for row in rows:
        for ratio, of in (("time_ratio", "client_ms"), ("bytes_ratio", "bytes_per_param")):
            row[ratio] = None if base is None else base[of] / row[of]
    return rows


def bare(parameters: int, args: argparse.Namespace) -> dict[str, Any]:
    """Return what the row ``masks`` costs a client beside bare AES, addition and rounding."""
    from benchmarks._ours import Bare, Masks

    (vector, *_), _ = updates(parameters, 1)
    row, least = Masks(parameters, args.clients, 16), Bare(args.clients)
    parts = {"masks": lambda: row.client(0, vector), "bare": lambda: least.client(vector)}
    seconds = interleaved(parts, max(3, 5 * args.repeats))
    found = medians(seconds)
    return {
        "params": parameters,
        "masks_ms": 1e3 * found["masks"],
        "bare_ms": 1e3 * found["bare"],
        "masks_over_bare": paired_ratio(seconds, "masks", "bare"),
    }


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return rows of equal keys as aligned text."""
    cells = [list(rows[0])] + [[_cell(value) for value in row.values()] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = []
    for line in cells:
        first, *rest = zip(line, widths, strict=True)
        lines.append(f"{first[0]:<{first[1]}}  " + "  ".join(f"{c:>{w}}" for c, w in rest))
    return "\n".join(lines)


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _options() -> argparse.ArgumentParser:
    options = parser("The cost of one secure sum, beside what others use.", repeats=3)
    options.add_argument("--parameters", type=int, nargs="+", default=[100_000, 1_000_000])
    options.add_argument("--clients", type=int, default=10)
    options.add_argument(
        "--rows",
        help=f"names with commas between them, or none; {BASE} joins them: ratios are against it",
    )
    options.add_argument("--flower", metavar="PYTHON", help="adds the row flower_secagg_plus")
    options.add_argument("--paillier", metavar="PYTHON", help="adds the row fed_mf_paillier")
    options.add_argument("--bare", action="store_true", help="masks beside bare AES and addition")
    options.add_argument("--train", metavar="DATA", help="folder of data sets: whole runs on Cora")
    options.add_argument("--train-rounds", type=int, default=10)
    options.add_argument("--many", type=int, metavar="CLIENTS", help="one large round, its memory")
    return options


def _names(args: argparse.Namespace) -> list[str]:
    """Return the rows to measure, the base first. Raises ValueError for one that cannot run."""
    if args.rows == "none":
        return []
    able = [kind.name for kind in KINDS.values() if not kind.script or getattr(args, kind.script)]
    asked = args.rows.split(",") if args.rows else able
    for name in asked:
        if name not in KINDS:
            raise ValueError(f"There is no row {name}; the rows are {', '.join(KINDS)}.")
        if name not in able:
            raise ValueError(f"{name} needs --{KINDS[name].script} PYTHON (see benchmarks/envs).")
    return [BASE, *(name for name in able if name in asked and name != BASE)]


def _extras(args: argparse.Namespace, failures: Failures) -> dict[str, Any]:
    """Return what the further options ask for, by name."""
    from benchmarks import _sessions

    found: dict[str, Any] = {}
    asked: dict[str, Callable[[], Any]] = {}
    if args.bare:
        asked["bare"] = lambda: [bare(parameters, args) for parameters in args.parameters]
    if args.train:
        asked["train"] = partial(_sessions.whole_runs, args.train, args.train_rounds, args.repeats)
    if args.many:
        asked["many"] = partial(_sessions.many, args.many, args.parameters[0])
    for name, part in asked.items():
        try:
            found[name] = part()
        except Exception as error:
            failures.note(name, 0, error)
    return found


def main() -> int:
    """Measure and print; 1 if a row failed, 2 for a wrong command."""
    options = _options()
    args = options.parse_args()
    if min(args.repeats, args.clients, *args.parameters) < 1 or args.clients < 2:
        options.error("at least one repeat, one parameter and two clients are needed")
    try:
        names = _names(args)
    except ValueError as error:
        options.error(str(error))
    out, failures = quiet(), Failures()
    rows = [row for d in args.parameters for row in measure(names, d, args, failures)]
    result: dict[str, Any] = {"clients": args.clients, "repeats": args.repeats, "rows": rows}
    result |= _extras(args, failures)
    result["failed"] = failures.found
    if args.format == "json":
        print(json.dumps(result, indent=2), file=out)
    else:
        for part in ("rows", "bare", "train", "many"):
            found = result.get(part)
            if found:
                print(table(found if isinstance(found, list) else [found]), file=out)
    return 1 if failures.found else 0


if __name__ == "__main__":
    sys.exit(main())
