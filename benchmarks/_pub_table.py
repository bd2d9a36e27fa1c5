"""FED-PUB's table, ours beside the published one, as Markdown: `fed_pub.py beside FILE`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

PUBLISHED = {
    ("cora", "metis_overlap", (10, 30, 50)): """
        local         73.98 71.65 76.63
        fed_avg       76.48 53.99 53.99
        fed_prox      77.85 51.38 56.27
        fed_per       78.73 74.18 74.42
        gcfl          78.84 73.41 76.63
        fed_gnn       70.63 61.38 56.91
        fed_sage_plus 77.52 51.99 55.48
        fed_pub       79.60 75.40 77.84""",
    ("citeseer", "metis_overlap", (10, 30, 50)): """
        local         65.12 64.54 66.68
        fed_avg       69.48 66.15 66.51
        fed_prox      69.39 66.11 66.53
        fed_per       69.81 65.19 67.64
        gcfl          69.48 64.92 65.98
        fed_gnn       68.72 59.98 58.98
        fed_sage_plus 68.75 65.97 65.93
        fed_pub       70.58 68.33 69.21""",
    ("cora", "metis_disjoint", (5, 10, 20)): """
        local         81.30 79.94 80.30
        fed_avg       74.45 69.19 69.50
        fed_prox      72.03 60.18 48.22
        fed_per       81.68 79.35 78.01
        gcfl          81.47 78.66 79.21
        fed_gnn       81.51 70.12 70.10
        fed_sage_plus 72.97 69.05 57.97
        fed_pub       83.72 81.45 81.10""",
    ("citeseer", "metis_disjoint", (5, 10, 20)): """
        local         69.02 67.82 65.98
        fed_avg       71.06 63.61 64.68
        fed_prox      71.73 63.33 64.85
        fed_per       70.41 70.53 66.64
        gcfl          70.34 69.01 66.33
        fed_gnn       69.06 55.52 52.23
        fed_sage_plus 70.74 65.63 65.46
        fed_pub       72.40 71.83 66.89""",
    ("amazon_computers", "metis_disjoint", (10,)): "",
}
"""Overlapping clients: Baek et al., ICML 2023; disjoint ones: as FedAux (NeurIPS 2025)
reprints them. In percent."""
NAMES = {
    "local": "Local",
    "fed_avg": "FedAvg",
    "fed_prox": "FedProx",
    "fed_per": "FedPer",
    "gcfl": "GCFL, clusters of any size",
    "gcfl constrained": "GCFL, clusters of four or more",
    "fed_gnn": "FedGNN",
    "fed_sage_plus": "FedSage+",
    "fed_pub": "FED-PUB",
}
SAME = {"fed_prox": "fed_avg", "gcfl constrained": "fed_per"}
"""Rows that are another's by construction: with one step a round; with five clients."""


def beside(file: str) -> None:
    """Print a table for each data set and partition: mean ± deviation (seeds) and published."""
    found: dict[str, list[dict[str, Any]]] = {}
    for line in Path(file).read_text("utf-8").splitlines():
        one = json.loads(line)
        found.setdefault(one["row"], []).append(one)
    for (data, partition, numbers), told in PUBLISHED.items():
        heads = [f"{clients} clients | published" for clients in numbers]
        print(f"\n**{data}, `{partition}`**\n\n| method | {' | '.join(heads)} |")
        print("|---|" + "---|" * 2 * len(numbers))
        known = {line.split()[0]: line.split()[1:] for line in told.split("\n") if line.strip()}
        for name, shown in NAMES.items():
            cells = []
            for place, clients in enumerate(numbers):
                cells.append(_own(found, f"{data} {partition} {clients} ", name))
                cells.append(f"{float(known[name][place]) / 100:.4f}" if name in known else "–")
            print(f"| {shown} | {' | '.join(cells)} |")


def _own(found: dict[str, list[dict[str, Any]]], place: str, name: str) -> str:
    lines = found.get(place + name, [])
    values = [one["metrics"]["test_accuracy"] for one in lines if one["metrics"]]
    if values:
        spread = f" ± {np.std(values, ddof=1):.4f}" if len(values) > 1 else ""
        return f"{np.mean(values):.4f}{spread} ({len(values)})"
    one_step = name == "fed_prox" and not place.startswith("amazon")
    if one_step or (name == "gcfl constrained" and " 5 " in place):
        return f"as {NAMES[SAME[name]]}"
    return "–"
