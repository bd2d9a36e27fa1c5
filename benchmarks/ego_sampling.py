"""Sampling ego-graphs for all nodes at once beside a loop over nodes.

all: `algorithms.tasks.ego_graphs.sample`; loop: the same levels, node after node, with numpy
inside a level; both from neighbour lists that are there already. A random graph of Cora's size,
2,708 nodes and 5,278 edges, whose degrees are as uneven as Cora's; 2 hops and fan-out 6 make 43
positions.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

if __package__ in (None, ""):  # run as a file: the floors lie one folder up
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from algorithms.tasks.ego_graphs import Neighbours, sample
from benchmarks._measure import interleaved, medians, paired_ratio, parser, show

NODES, EDGES, HOPS, FAN_OUT = 2708, 5278, 2, 6

Numbers = npt.NDArray[np.int64]


def graph() -> Neighbours:
    """Return neighbour lists of a random graph with a few hubs and some isolated nodes."""
    rng = np.random.default_rng(0)
    weight = rng.pareto(2.0, NODES) + 0.2
    ends = rng.choice(NODES, size=(2, 2 * EDGES), p=weight / weight.sum())
    pairs = np.unique(np.sort(ends[:, ends[0] != ends[1]], axis=0), axis=1)
    return Neighbours.of(rng.permutation(pairs.T)[:EDGES].T, NODES)


def loop(of: Neighbours, rng: np.random.Generator) -> Numbers:
    """Sample one node after the other."""
    found = []
    for centre in range(NODES):
        ring = np.array([centre])
        levels = [ring]
        for _ in range(HOPS):
            first, last = of.starts[ring], of.starts[ring + 1]
            children = np.repeat(ring, FAN_OUT).reshape(-1, FAN_OUT)
            for row, (start, end) in enumerate(zip(first, last, strict=True)):
                if end > start:
                    children[row] = of.listed[rng.integers(start, end, FAN_OUT)]
            ring = children.ravel()
            levels.append(ring)
        found.append(np.concatenate(levels))
    return np.stack(found)


def measure(repeats: int) -> dict[str, Any]:
    """Return seconds of both and their ratio."""
    of, rng, centres = graph(), np.random.default_rng(1), np.arange(NODES)
    seconds = interleaved(
        {
            "all": lambda: sample(of, centres, HOPS, FAN_OUT, rng),
            "loop": lambda: loop(of, rng),
        },
        repeats,
    )
    found = {f"{name}_s": value for name, value in medians(seconds).items()}
    positions = sample(of, centres, HOPS, FAN_OUT, rng).shape[1]
    ratio = paired_ratio(seconds, "loop", "all")
    return {"nodes": NODES, "positions": positions, **found, "loop_over_all": ratio}


def main() -> None:
    """Print the figures."""
    options = parser(str(__doc__).splitlines()[0], repeats=3).parse_args()
    show(measure(options.repeats), options.format)


if __name__ == "__main__":
    main()
