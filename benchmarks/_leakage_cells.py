"""Which cells docs/results/leakage.md is to have: an algorithm under a policy, with a seed each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["ACCEPTED", "REHEARSED", "Cell", "cells", "document"]

Settings = dict[str, Any]
_EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
_SEEDS = (1, 2, 3)
_MAIN: dict[str, str] = {
    "fed_avg": "",
    "fed_pub": "fed_pub_cora.yaml",
    "fed_ego": "fed_ego_cora.yaml",
    "fed_per_gnn": "fed_per_gnn_ml100k.yaml",
    "gcfl": "gcfl_molecules.yaml",
    "fed_gcn": "fed_gcn_cora.yaml",
}
"""Algorithms that are shown in full: the example that is taken, or Cora's common settings."""
_OTHERS: dict[str, str] = {
    **dict.fromkeys(("fed_prox", "fed_per", "apfl", "fed_gate", "apfl_gate", "local"), ""),
    "gcfl_plus": "gcfl_molecules.yaml",
    "graph_fl": "graph_fl_cora.yaml",
    "fed_sage": "fed_sage_cora.yaml",
    "fed_sage_plus": "fed_sage_cora.yaml",
    "fed_gnn": "fed_gnn_cora.yaml",
    "d_fed_gnn": "d_fed_gnn_cora.yaml",
    "fcf": "fed_per_gnn_ml100k.yaml",
    "fed_mf": "fed_per_gnn_ml100k.yaml",
}
_PUBLISHED = {
    "fed_ego": "unsafe_plaintext",
    "fed_per_gnn": "published_policy.yaml",
    "fed_gcn": "rows_published_policy.yaml",
    "fed_gnn": "rows_published_policy.yaml",
}
"""The form that its authors published, where a policy of its own lets it through."""
_ROWS = ("fed_gcn", "fed_gnn")
ROWS = "rows"
"""No preset admits rows of neighbours: in the place of `pilot` a policy of an example stands."""
_SPLITS: Settings = {"first_split": 0, "epsilon1": 1000.0, "epsilon2": 1e-6}
_PROTEINS: Settings = {
    "name": "proteins",
    "partition": {"name": "graphs_one_dataset", "clients": 10},
}
_ROUNDS = {"gcfl_plus": 9}
"""More than asked for: sequences of five norms are compared in the fifth round of a cluster."""
_ALWAYS = ("unsafe_plaintext", "pilot", "strict")
_MORE = ("calibrated", "ldp")
ACCEPTED = "ldp, noise accepted"
"""`ldp` refuses cohorts as small as these; a policy of one's own may accept what they err by."""
_OWN_NOISE = ("fed_avg", "fed_per_gnn")
"""Which of them `ldp` and `calibrated` admit: what the others say no noise of these hides."""
REHEARSED = "strict, rehearsed"
"""`strict` captures nothing: its plan is played again with captures, attacked, and thrown away."""


@dataclass(frozen=True)
class Cell:
    """One cell; its label names it in the rows."""

    algorithm: str
    policy: str
    seed: int

    @property
    def label(self) -> str:
        """``fed_avg / pilot``."""
        return f"{self.algorithm} / {self.policy}"


def cells(only: Sequence[str] = ()) -> Iterator[Cell]:
    """Yield all cells, seed by seed.

    Args:
        only: algorithms; empty: all.
    """
    for seed in _SEEDS:
        for algorithm in (*_MAIN, *_OTHERS):
            main = algorithm in _MAIN
            if (only and algorithm not in only) or (seed > _SEEDS[0] and not main):
                continue
            for policy in _policies(algorithm, main=main):
                yield Cell(algorithm, policy, seed)


def _policies(algorithm: str, *, main: bool) -> tuple[str, ...]:
    published = ("published",) if _PUBLISHED.get(algorithm, "").endswith(".yaml") else ()
    rows = algorithm in _ROWS
    always = tuple(ROWS if rows and policy == "pilot" else policy for policy in _ALWAYS)
    if not main:
        return (*always, *published)
    mixed = ("shuffled",) if algorithm == "fed_ego" else ()
    accepted = (ACCEPTED,) if algorithm in _OWN_NOISE else ()
    return (*always, REHEARSED, *published, *mixed, *_MORE, *accepted)


def document(cell: Cell, data: str, rounds: int) -> Settings:
    """Return the configuration of a cell.

    Args:
        cell: the cell.
        data: the folder of data.
        rounds: how many.
    """
    from protocols.strict import read_yaml

    example = {**_MAIN, **_OTHERS}[cell.algorithm]
    found: Settings = _cora() if not example else read_yaml((_EXAMPLES / example).read_text())
    mine = found["algorithm"].get("options", {}).get(cell.algorithm, {})
    data_set = {**found["data"], "root": data}
    if cell.algorithm.startswith("gcfl"):  # cosines are opened from the first round on
        mine, data_set = {**mine, **_SPLITS}, {**data_set, **_PROTEINS}
    elif cell.algorithm == "fed_pub":  # of five clients no interval decides
        data_set["partition"] = {**data_set["partition"], "clients": 10}
    chosen = {
        **found["algorithm"],
        "name": cell.algorithm,
        "rounds": max(rounds, _ROUNDS.get(cell.algorithm, 0)),
        "options": {cell.algorithm: mine},
    }
    policy = "strict" if cell.policy == REHEARSED else cell.policy
    if policy == "published":
        policy = str(_EXAMPLES / _PUBLISHED[cell.algorithm])
    elif policy == ACCEPTED:
        policy = str(_EXAMPLES / "ldp_accepted_policy.yaml")
    elif policy == ROWS:
        policy = str(_EXAMPLES / "rows_policy.yaml")
    return {
        **found,
        "algorithm": chosen,
        "data": data_set,
        "evaluation": {**found.get("evaluation", {}), "references": []},
        "policy": policy,
        "resume": False,
        "seed": cell.seed,
    }


def _cora() -> Settings:
    partition = {"name": "metis_disjoint", "clients": 20}
    return {
        "algorithm": {},
        "model": {"hidden": 64, "lr": 0.1, "optimiser": "sgd", "dropout": 0.0},
        "data": {"name": "cora", "features": "row", "partition": partition},
    }
