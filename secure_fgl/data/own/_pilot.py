"""The files that a pilot starts from, as texts with comments."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import PurePath
from string import Template

from algorithms.tasks import Kind

__all__ = ["pilot_files"]

_MODELS: dict[Kind, str] = {"node": "gcn", "graph": "gin", "rating": "dot"}

_REFERENCES: dict[Kind, str] = {
    "node": "local, propagation, local_propagation, logistic, boosted",
    "graph": "local",
    "rating": "local",
}

_LAYOUT: dict[Kind, str] = {
    "node": "  <site>/nodes.csv or .parquet   id, label, the features of spec.yaml, (split)\n"
    "  <site>/edges.csv or .parquet   source, target\n"
    "  or <site>/data.pt              a saved PyG Data: x, edge_index, y",
    "graph": "  <site>/molecules.csv or .parquet   smiles, the labels of spec.yaml, (split)\n"
    "  or <site>/data.pt                  a saved list of PyG Data: x, edge_index, y",
    "rating": "  <site>/ratings.csv or .parquet   user, item, rating, (split)\n"
    "  vocabulary/items.txt             if spec.yaml names one",
}


_COUNTED = (
    "  partition: {clients: 5}   # how many sites take part; in a rehearsal, how many folders "
    "there are"
)
_NAMED = """  partition:                # what the sites are called; in a rehearsal, their folders
    names: [hospital-north, hospital-east, hospital-south, hospital-west]"""


def pilot_files(folder: PurePath, task: Kind, *, organisations: bool = False) -> dict[str, str]:
    """The texts of a new pilot, by path relative to `folder`.

    Args:
        folder: where they will lie, as seen from where the commands are started; the configuration
            names its neighbours so.
        task: node, graph or rating.
        organisations: several take part, each at a site of its own.
    """
    places = {
        "config": str(folder / "config.yaml"),
        # JSON texts are YAML texts, whatever the folder is called.
        "root": json.dumps(str(folder / "data")),
        "policy": json.dumps(str(folder / "policy.yaml")),
        "model": _MODELS[task],
        "references": _REFERENCES[task],
        "layout": _LAYOUT[task],
        "changes": "fixed" if organisations else "any",  # four sites are all that a total needs
        "partition": _NAMED if organisations else _COUNTED,
        "consortium": str(folder / "consortium.yaml"),
    }
    sources = {
        "config.yaml": "config.yaml",
        "policy.yaml": "policy.yaml",
        "data/spec.yaml": f"{task}.yaml",
        "data/README.txt": "README.txt",
    }
    if organisations:
        sources |= {"consortium.yaml": "consortium.yaml", "STEPS.md": "STEPS.md"}
    texts = files("secure_fgl.data.own") / "templates"
    return {
        name: Template((texts / source).read_text("utf-8")).substitute(places)
        for name, source in sources.items()
    }
