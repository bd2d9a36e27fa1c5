"""What `gcfl.py` prints of its rows, as Markdown."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np


def show(options: argparse.Namespace) -> None:
    """Print every table of FILE as Markdown."""
    lines = [json.loads(line) for line in Path(options.file).read_text("utf-8").splitlines()]
    for table in dict.fromkeys(line["table"] for line in lines):
        mine = [line for line in lines if line["table"] == table]
        if table.startswith("sequences_"):
            _show_agreement(table, mine)
        else:
            _show_table(table, mine)


def _show_table(table: str, lines: list[dict[str, Any]]) -> None:
    alone = {line["seed"]: line["clients"] for line in lines if line["row"] == "self-train"}
    heads = ("row", "seeds", "test", "gain", "least gain", "clients that gain", "validation")
    print(f"\n{table}\n\n| {' | '.join((*heads, 'oracle', 'clusters'))} |")
    print("|" + "---|" * (len(heads) + 2))
    for row in dict.fromkeys(line["row"] for line in lines):
        found = [line for line in lines if line["row"] == row]
        paired = [line for line in found if line["seed"] in alone]
        gains = [np.subtract(line["clients"], alone[line["seed"]]) for line in paired]
        cells = [
            _cell([line["test"] for line in found]),
            _cell([float(gain.mean()) for gain in gains]),
            _cell([float(gain.min()) for gain in gains]),
            _cell([float((gain > 0).sum()) for gain in gains], 1),
            _cell([line["val"] for line in found]),
            _cell([line["oracle"] for line in found]),
            "; ".join("+".join(map(str, line["sizes"][-1][1])) for line in found),
        ]
        print(f"| {row} | {len(found)} | {' | '.join(cells)} |")


def _show_agreement(table: str, lines: list[dict[str, Any]]) -> None:
    from benchmarks._clusters import compared

    print(f"\n{table}\n\n| cut | smallest side | length | windows | pair | adjusted Rand index |")
    print("|---|---|---|---|---|---|")
    for length in (5, 10):
        found = [
            one
            for line in lines
            for one in compared(np.array(line["norms"]), length, 10, line["seed"])
        ]
        for rule, least in dict.fromkeys((one["rule"], one["least"]) for one in found):
            here = [one for one in found if (one["rule"], one["least"]) == (rule, least)]
            for pair in here[0]["rand"]:
                cell = _cell([one["rand"][pair] for one in here], 2)
                print(f"| {rule} | {least} | {length} | {len(here)} | {pair} | {cell} |")
        for name in found[0]["ranges"]:
            low, high = np.array([one["ranges"][name] for one in found]).T
            print(f"\nlikeness, length {length}, {name}: from {low.min():.2f} to {high.max():.2f}")


def show_planted(options: argparse.Namespace) -> None:
    """Print which forms find planted groups of six and six clients: ten draws."""
    from benchmarks._clusters import LEAST, recovered

    for kind in ("trend", "course", "level"):
        for rule in ("stoer_wagner", "normalised", "agglomerative"):
            for least in (1, LEAST):
                found = [recovered(kind, rule, least, seed) for seed in range(10)]
                cells = [_cell([one[name] for one in found], 2) for name in found[0]]
                print(f"| {kind} | {rule} | {least} | {' | '.join(cells)} |", flush=True)


def _cell(values: list[float], digits: int = 3) -> str:
    if not values:
        return "–"
    spread = f" ± {np.std(values, ddof=1):.{digits}f}" if len(values) > 1 else ""
    return f"{np.mean(values):.{digits}f}{spread}"
