"""The tables of docs/results/fed_gnn.md: FedGNN on the places of FED-PUB, by form of its rows.

    python benchmarks/fed_gnn.py run TABLE --data DIR --out FILE [--seeds 3] [--first 1] [--jobs 1]
    python benchmarks/fed_gnn.py show FILE

As benchmarks/fed_pub.py, with its settings and places, and in clear like its first table, but for
rows, which leave as the policies in examples/ say. Tables:

* places: rows in each form, no rows, which is FedAvg, and rows of zeros, the control: a client then
  weighs its nodes by their degrees in the whole graph, and hears nothing of others;
* told: how many rows receivers ask for and are told, and the share of nodes in them that attack
  A15 reads, in one process without messages, at the model of FedAvg's tenth round;
* warm: after how many rounds embeddings are exchanged, rows as published, with a seed that no other
  table holds: --first 901 --seeds 1.

The column "rows told" counts them over all clients, where ledgers say it.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

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
    "rows of zeros": ("rows_published_policy.yaml", {}),
}
ZEROS = "rows of zeros"
"""The control: rows as published, whose sums are put to zero before they are heard. Degrees and the
second layer are those of rows that were told; no embedding is."""
RULES: dict[str, tuple[int, int, int]] = {
    "thresholded": (3, 256, 1),
    "nodes in any number of rows": (3, 1 << 20, 1 << 20),
    "published": (1, 1 << 20, 1 << 20),
}
"""By the rule, its control, and none: clients a row, rows a client, rows a node."""
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


def _told_rows() -> Iterator[tuple[str, Settings]]:
    places = [("cora", "metis_disjoint", 10), ("cora", "metis_overlap", 10)]
    for place in (*places, ("cora", "dirichlet_linked", 10)):
        found = at(place, "thresholded")
        if place[1] == "dirichlet_linked":
            found["data.partition.options"] = {"beta": 10000.0}
        for rule in RULES:
            yield f"{' '.join(map(str, place))} {rule}", found


def _warm() -> Iterator[tuple[str, Settings]]:
    place = ("cora", "metis_disjoint", 10)
    yield "no rows", at(place, "no rows")
    for warm in (0, 5, 10, 20, 50):
        yield f"warm={warm}", at(place, "published", warm=warm)


def rows(table: str) -> dict[str, Settings]:
    """Return a table's rows: label and settings."""
    return dict({"places": _places, "told": _told_rows, "warm": _warm}[table]())


def read(facts: Settings, settings: Settings, data: str) -> dict[str, Any]:
    """Return what one row of the table `told` holds."""
    from algorithms.fed_avg import Start
    from audits.attacks._methods import openings
    from crypto.quantiser import Grid
    from protocols.disclosures.row_sum.protocol.assignment import assigned, confirmed
    from secure_fgl.attack_inputs.rows import _offer, _tag, systems
    from secure_fgl.config import Config
    from secure_fgl.federation import Federation

    federation = Federation.from_config(Config.parse(nested(facts, settings, data)))
    prepared = federation.prepare()
    prepared.load()
    sites = dict(zip(prepared.plan.clients, prepared.sites, strict=True))
    algorithm: Any = federation.build()[1]
    client = algorithm.forms[0].exchanges[0].answer.__self__
    start = algorithm.init(np.random.default_rng(facts["seed"])).start
    for _ in range(client.warm):
        said = [client.train(site, start) for site in sites.values()]
        mean = sum(one.delta for one in said) / sum(one.count for one in said)
        start = Start(weights=(start.weights + mean).astype(np.float32))
    linked = {name: client.linked(site, start) for name, site in sites.items()}
    offers = confirmed({name: _offer(one) for name, one in linked.items()})
    rule = facts["row"].split(" ", 3)[3]
    served = assigned(offers, *RULES[rule])
    terms = {
        _tag(number): one.terms[[at]].toarray().ravel()[:-1]
        for one in linked.values()
        for at, number in enumerate(one.ids)
    }
    step = Grid(8.0, 18).step if rule != "published" else 1e-7
    found: dict[str, float] = {
        "wanted": sum(len(one.wanted) for one in offers.values()),
        "told": sum(len(one.receivers) for one in served),
    }
    each = [s for s in systems(served, offers, terms, [(n,) for n in sites]) if len(s.terms)]
    for name, groups in (("elimination", False), ("elimination or equal values", True)):
        hits = [openings.read(s.system, s.sums, s.terms, step, groups=groups) for s in each]
        found[name] = float(np.concatenate(hits).mean())
    return {**facts, "metrics": {}, "references": found}


@contextmanager
def _zeroed() -> Iterator[None]:
    """Have clients hear zeros in the place of rows that they are told."""
    from algorithms import fed_gnn

    heard = fed_gnn.augmented

    def silent(data: Any, rows: Mapping[str, Any]) -> Any:
        return heard(data, {**rows, "sums": np.zeros_like(rows["sums"])})

    with mock.patch.object(fed_gnn, "augmented", silent):
        yield


def measure(facts: Settings, settings: Settings, data: str) -> dict[str, Any]:
    """Run one row with one seed; `facts` are its table, row, seed and policy."""
    os.environ["OMP_NUM_THREADS"] = "1"
    if facts["table"] == "told":
        return read(facts, settings, data)
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
        with _zeroed() if facts["row"].endswith(ZEROS) else nullcontext():
            result = federation.run(Path(folder) / "run").result
        told = _told(Path(folder) / "run" / "ledger")
    kept = ("policy", "metrics", "wall_s", "bytes_up", "model_sha256")
    found = {name: result[name] for name in kept}
    return {**facts, **found, "references": {} if told is None else {"rows told": told}}


if __name__ == "__main__":
    main(str(__doc__), rows, "unsafe_plaintext", measure)
