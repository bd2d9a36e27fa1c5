"""The files that a pilot starts from, as texts with comments."""

from __future__ import annotations

import json
import re
from importlib.resources import files
from pathlib import PurePath
from string import Template

import yaml

from algorithms.tasks import Kind
from protocols.wire.roles import Role

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
    found = {
        name: Template((texts / source).read_text("utf-8")).substitute(places)
        for name, source in sources.items()
    }
    return found | (_engine_files(found["consortium.yaml"]) if organisations else {})


_PROJECT = """# Of the coordinating office, for nvflare cert init. The server stands in
# consortium.yaml, too: change both.
name: pilot
scheme: grpc
connection_security: mtls
server: {host: HOST, fed_learn_port: PORT}
"""
_PARTICIPANT = """# Of WHO, for nvflare cert request: name and organisation are those of
# consortium.yaml, the latter in letters, digits and _.
name: pilot
participants:
  - {name: NAME, type: TYPE, org: ORG}
"""


def _engine_files(consortium: str) -> dict[str, str]:
    """What `nvflare cert` reads: the project, and one file for whoever makes a key."""
    agreed = yaml.safe_load(consortium)
    server, office = agreed["server"], Role.AGGREGATOR.value

    def participant(who: str, name: str, kind: str, organisation: str) -> str:
        org = "_".join(re.findall(r"[a-z0-9]+", organisation.lower()))
        told = _PARTICIPANT.replace("WHO", who).replace("NAME", name)
        return told.replace("TYPE", kind).replace("ORG", org)

    project = _PROJECT.replace("HOST", server["name"]).replace("PORT", str(server["port"]))
    found = {"engine/project.yaml": project}
    for party in agreed["parties"]:
        name, whose = party["name"], party["organisation"]
        if party["role"] != office:
            found[f"engine/{name}.yaml"] = participant(whose, name, "client", whose)
            continue
        host = server["name"]
        found["engine/server.yaml"] = participant("the server", host, "server", whose)
        lead = "admin, role: lead"
        conducts = participant("whoever conducts", f"admin@{host}", lead, whose)
        found["engine/admin.yaml"] = conducts
    return found
