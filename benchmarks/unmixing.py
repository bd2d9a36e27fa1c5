"""The tables and the plot of docs/results/unmixing.md: are single records found in mixtures?

    python benchmarks/unmixing.py run TABLE --data DIR --out FILE [--seed 1]
    python benchmarks/unmixing.py show FILE [--plot SVG]

FedEgo on Cora, `label_skew_major`, 5 clients, captured rounds of real runs under `masks` with a
floor of b; attack A06 looks at them. Tables: grid (b by width, the first round), rounds (more and
more rounds together), noise (the guard blur). `run` appends one JSON line a row and skips what FILE
holds; `show` prints Markdown and draws the grid.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

HEADS = (
    *("floor", "b", "width", "noise", "rounds", "layers"),
    *("AUC", "recall", "chance", "raw", "null"),
)
FLOORS = (32, 8, 128, 16, 64)
WIDTHS = (64, 16, 512, 256)
NOISES = (0.01, 0.1, 1.0)  # the guard's multiplier
ROUNDS = 3
Settings = dict[str, Any]
Row = dict[str, Any]


def rows(table: str) -> Iterator[Settings]:
    """Yield the runs of a table; of `rounds`, one for all its rows."""
    if table == "grid":
        for width in WIDTHS:
            for floor in FLOORS:
                yield {"floor": floor, "width": width, "rounds": 1, "noise": 0.0}
    elif table == "rounds":
        for floor, width in ((128, 16),):
            yield {"floor": floor, "width": width, "rounds": ROUNDS, "noise": 0.0}
    else:
        for noise in NOISES:
            yield {"floor": 32, "width": 64, "rounds": 1, "noise": noise}


def measure(chosen: Settings, data: str, seed: int) -> Iterator[Row]:
    """Yield how many rounds were looked at together, members of a mixture, and what A06 found."""
    from audits.attacks import attack
    from protocols.disclosures.mixed.guards import Blur, Mix
    from protocols.disclosures.names import Disclosure
    from protocols.evidence.captures import Capture
    from protocols.policy.guards import Clip, Seal
    from protocols.policy.policy import PrivacyPolicy
    from secure_fgl.attack_inputs.materials import material
    from secure_fgl.config import Config
    from secure_fgl.federation import Federation

    base = PrivacyPolicy.preset("masks")
    floor, noise = chosen["floor"], chosen["noise"]
    mix = Mix(floor=floor, apart=max(2, floor // 4), bucket=1)
    blur = (Blur(multiplier=noise),) if noise else ()
    chain = (Clip(norm="l2", bound=16.0), mix, *blur, Seal())
    rules = {**base.rules, Disclosure.MIXED: chain}
    policy = base.model_copy(update={"rules": rules, "capture": Capture(rounds="all")})
    options = {"alpha_local": 0.5, "test_nodes": 200}
    partition = {"name": "label_skew_major", "clients": 5, "options": options}
    document = {
        "algorithm": {
            "name": "fed_ego",
            "rounds": chosen["rounds"],
            "options": {"fed_ego": {"group": floor}},
        },
        "model": {
            "name": "ego_sage",
            "hidden": chosen["width"],
            "layers": 2,
            "dropout": 0.5,
            "lr": 3e-4,
            "weight_decay": 0.0,
            "optimiser": "adam",
            "keep_moments": True,
            "batch": 32,
        },
        "data": {"name": "cora", "root": data, "features": "row", "partition": partition},
        "evaluation": {"at": "trained", "references": []},
        "resume": False,
        "seed": seed,
    }
    with tempfile.TemporaryDirectory() as folder:
        made = Federation(config=Config.parse(document), policy=policy)
        whole = material(made.run(Path(folder) / "run"), profile="default")
        for last in range(1, chosen["rounds"] + 1):
            part = replace(whole, mixed=tuple(m for m in whole.mixed if m.round <= last))
            found = attack(part, ["A06"], profile="quick")
            mine = [row.model_dump(mode="json") for row in found.rows if row.id == "A06"]
            sizes = [len(one.groups) / (1 + one.groups.max()) for one in part.mixed]
            yield {"last": last, "members": sum(sizes) / len(sizes), "rows": mine}


def run(options: argparse.Namespace) -> None:
    """Run what FILE does not hold yet."""
    out, done = Path(options.out), set()
    if out.exists():
        for text in out.read_text("utf-8").splitlines():
            line = json.loads(text)
            done.add((line["table"], json.dumps(line["chosen"], sort_keys=True)))
    for chosen in rows(options.table):
        if (options.table, json.dumps(chosen, sort_keys=True)) in done:
            continue
        with out.open("a", encoding="utf-8") as file:
            for found in measure(chosen, options.data, options.seed):
                line = {"table": options.table, "chosen": chosen, **found}
                file.write(json.dumps(line, sort_keys=True) + "\n")
        print(chosen, file=sys.stderr)


def show(options: argparse.Namespace) -> None:
    """Print every table of FILE as Markdown, and draw the grid."""
    lines = [json.loads(text) for text in Path(options.file).read_text("utf-8").splitlines()]
    lines.sort(key=lambda line: [line["chosen"][n] for n in ("noise", "floor", "width")])
    for table in ("grid", "rounds", "noise"):
        print(f"\n{table}\n\n| {' | '.join(HEADS)} |\n|{'---|' * len(HEADS)}")
        for line in (line for line in lines if line["table"] == table):
            _print(line)
        _facts([line for line in lines if line["table"] == table])
    if options.plot:
        from benchmarks._unmixing_plot import plot

        drawn = plot([line for line in lines if line["table"] == "grid"])
        Path(options.plot).write_text(drawn, encoding="utf-8")


def _facts(lines: list[Row]) -> None:
    """Print how the rows that rank nobody came out, counted."""
    facts = [r for line in lines for r in line["rows"] if not r["metric"].startswith(("AUC", "re"))]
    for metric in sorted({row["metric"] for row in facts}):
        mine = (row for row in facts if row["metric"] == metric)
        told = Counter(f"{row['verdict']} {row['protected']['value']}" for row in mine)
        print(f"\n{metric}: {', '.join(f'{n} x {what}' for what, n in told.items())}")


def _print(line: Row) -> None:
    chosen, rows = line["chosen"], line["rows"]
    for area, recall in zip(_of(rows, "AUC"), _of(rows, "recall"), strict=True):
        layers = "as the round began" if "began" in area["what"] else "as computed"
        cells = [
            *(chosen["floor"], f"{line['members']:.1f}", chosen["width"]),
            *(chosen["noise"] or "none", line["last"], layers),
            f"**{area['verdict']}** {_interval(area['protected'])}",
            f"**{recall['verdict']}** {_interval(recall['protected'])}",
            f"{float(recall['chance']):.3f}",
            f"{float(area['raw']['value']):.3f}",
            _interval(area["null"]),
        ]
        print(f"| {' | '.join(map(str, cells))} |")


def _of(rows: list[Row], metric: str) -> list[Row]:
    return [row for row in rows if row["metric"].startswith(metric)]


def _interval(value: Row) -> str:
    shown = (f"{float(value[name]):.3f}" for name in ("value", "low", "high"))
    return "{} ({} to {})".format(*shown)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    verbs = parser.add_subparsers(required=True)
    runs = verbs.add_parser("run")
    runs.add_argument("table", choices=("grid", "rounds", "noise"))
    runs.add_argument("--data", required=True)
    runs.add_argument("--out", required=True)
    runs.add_argument("--seed", type=int, default=1)
    runs.set_defaults(do=run)
    shows = verbs.add_parser("show")
    shows.add_argument("file")
    shows.add_argument("--plot", help="an SVG of the grid")
    shows.set_defaults(do=show)
    options = parser.parse_args()
    options.do(options)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    main()
