"""The tables of docs/results/fed_gnn.md: FedGNN on the places of FED-PUB, by form of its rows.

    python benchmarks/fed_gnn.py run TABLE --data DIR --out FILE [--seeds 3] [--first 1] [--jobs 1]
    python benchmarks/fed_gnn.py show FILE

As benchmarks/fed_pub.py, with its settings and places, and in clear like its first table, but for
rows, which leave as the policies in examples/ say. Tables:

* places: rows in each form, and no rows, which is FedAvg;
* warm: after how many rounds embeddings are exchanged, rows as published, with a seed that no other
  table holds: --first 901 --seeds 1.

The column "rows told" counts them over all clients, where ledgers say it.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # a script's folder is on the path, the folder above it is not
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.fed_gcn import _told
from benchmarks.fed_pub import PLACES, _at
from benchmarks.personalised import Settings, main, nested

NODES = 4096
"""Public numbers of nodes: more than Cora and CiteSeer have."""
EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
FORMS: dict[str, tuple[str, Settings]] = {
    "published": ("rows_published_policy.yaml", {}),
    "thresholded": ("rows_policy.yaml", {}),
    "noised": ("rows_noised_policy.yaml", {"alone": True}),
}
TAGS = {"cap": 512, "links": 2048}
"""METIS cuts few edges: no client here has more than 418 own and neighbouring nodes at them."""


def at(place: tuple[str, str, int], form: str, **options: Any) -> Settings:
    """Return one place's settings; `form` is one of FORMS, or another word for no rows."""
    found = _at(*place, "fed_gnn")
    if form not in FORMS:
        return {**found, "algorithm.options": {}}
    policy, more = FORMS[form]
    rows: Settings = {
        "algorithm.options": {"fed_gnn": {"nodes": NODES, **more, **options}},
        "data.partition.options": {"linked": True},
        "policy": str(EXAMPLES / policy),
    }
    return {**found, **rows}


def _places() -> Iterator[tuple[str, Settings]]:
    for place in PLACES:
        if place[0] != "amazon_computers":
            for form in ("no rows", *FORMS):
                yield f"{' '.join(map(str, place))} {form}", at(place, form)


def _warm() -> Iterator[tuple[str, Settings]]:
    place = ("cora", "metis_disjoint", 10)
    yield "no rows", at(place, "no rows")
    for warm in (0, 5, 10, 20, 50):
        yield f"warm={warm}", at(place, "published", warm=warm)


def rows(table: str) -> dict[str, Settings]:
    """Return a table's rows: label and settings."""
    return dict({"places": _places, "warm": _warm}[table]())


def measure(facts: Settings, settings: Settings, data: str) -> dict[str, Any]:
    """Run one row with one seed; `facts` are its table, row, seed and policy."""
    os.environ["OMP_NUM_THREADS"] = "1"
    from protocols.policy.policy import PrivacyPolicy
    from secure_fgl.config import Config
    from secure_fgl.federation import Federation

    document = {**nested(facts, settings, data), "transport": {"workers": 1}}
    with tempfile.TemporaryDirectory() as folder:
        document["budget"] = {"store": str(Path(folder) / "budgets")}
        config = Config.parse(document)
        policy = Federation.from_config(config).policy.document()
        for guard in policy["rules"].get("ROW_SUM", []):
            guard.update(TAGS if guard["guard"] == "rows" else {})
        policy["rules"]["SUM"] = PrivacyPolicy.preset("unsafe_plaintext").document()["rules"]["SUM"]
        federation = Federation(policy=PrivacyPolicy.model_validate(policy), config=config)
        result = federation.run(Path(folder) / "run").result
        told = _told(Path(folder) / "run" / "ledger")
    kept = ("policy", "metrics", "wall_s", "bytes_up", "model_sha256")
    found = {name: result[name] for name in kept}
    return {**facts, **found, "references": {} if told is None else {"rows told": told}}


if __name__ == "__main__":
    main(str(__doc__), rows, "unsafe_plaintext", measure)
