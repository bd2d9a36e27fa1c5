"""What rows of Cora tell (A15), noised ones too: the second table of docs/results/fed_gcn.md.

    python benchmarks/fed_gcn_rows.py --data DIR FORM[@FACTOR] ...

`FORM` is one of `fed_gcn.FORMS`; `FACTOR` makes the planned noise so many times as large, for
controls. Nothing is run: rows follow from the clients' data and the rule, noise is drawn anew.
Printed are the shares of others' nodes that are read, of one receiver, of two that pool, and of
rows as published; and of up to 40 nodes a receiver that the rows fix, how often a word stands
before another column if columns are ranked by their entry.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fed_gcn
import numpy as np
from scipy.stats import rankdata

from audits.attacks._methods.openings import determined, read
from audits.attacks._shared.material import RowsTold, RowSystem
from protocols.plan.plan import Plan
from secure_fgl.attack_inputs.rows import told_rows
from secure_fgl.config import Config
from secure_fgl.federation import Federation

NODES = 40


def louder(plan: Plan, factor: float) -> Plan:
    """Return a plan with so many times its noise on rows, which no client would take."""
    items = []
    for item in plan.items:
        if item.counted is not None:
            scale = max(float(item.counted.scale) * factor, 2e-5)  # what the sampler draws
            counted = item.counted.model_copy(update={"scale": repr(scale)})
            item = item.model_copy(update={"counted": counted})  # noqa: PLW2901
        items.append(item)
    return plan.model_copy(update={"items": tuple(items)})


def told(form: str, factor: float, data: str, beta: float, seed: int) -> RowsTold:
    """Return what a form tells."""
    with tempfile.TemporaryDirectory() as folder:
        document = fed_gcn.document(form, beta, seed, data, Path(folder))
        prepared = Federation.from_config(Config.parse(document)).prepare()
        prepared.load()
    plan = louder(prepared.plan, factor)
    run = SimpleNamespace(run=f"{form} {seed}")
    case: Any = SimpleNamespace(plan=plan, policy=prepared.policy, roster_file=run)
    found = told_rows(dict(zip(plan.clients, prepared.sites, strict=True)), case)
    if found is None:
        raise SystemExit(f"{form} tells no rows")
    return found


def share(systems: Sequence[RowSystem], tolerance: float, *, groups: bool) -> float:
    """Return the share of nodes that are read, a mean over receivers."""
    hits = [read(s.system, s.sums, s.terms, tolerance, groups=groups).mean() for s in systems]
    return float(np.mean(hits))


def ranked(systems: Sequence[RowSystem]) -> float:
    """Return how often a word of a node that the rows fix stands before another column."""
    found = []
    for one in systems:
        fixed, solved = determined(one.system, one.sums)
        for node in np.flatnonzero(fixed)[:NODES]:
            words = one.terms[node] != 0
            many, rest = int(words.sum()), int((~words).sum())
            if many and rest:
                above = rankdata(solved[node])[words].sum() - many * (many + 1) / 2
                found.append(above / (many * rest))
    return float(np.mean(found)) if found else float("nan")


def main() -> int:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True)
    parser.add_argument("--beta", type=float, default=10000.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("form", nargs="+")
    given = parser.parse_args()
    for text in given.form:
        form, _, factor = text.partition("@")
        rows = told(form, float(factor or 1), given.data, given.beta, given.seed)
        for who, systems in (("one", rows.seen), ("two", rows.pooled), ("published", rows.raw)):
            both = [share(systems, rows.tolerance, groups=groups) for groups in (False, True)]
            print(f"{text}: {who}: {both[0]:.3f} by elimination, {both[1]:.3f} by either")
        print(f"{text}: words before other columns: {ranked(rows.seen):.3f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
