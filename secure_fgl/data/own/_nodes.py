"""One graph: `nodes.csv|parquet` (id, label, features, optional split) and `edges.csv|parquet`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from secure_fgl.data.own._edges import undirected
from secure_fgl.data.own._files import read_table
from secure_fgl.data.own._found import SPLIT, Found, find, labels_of, optional_split, stated
from secure_fgl.data.own._table import Kind, Table
from secure_fgl.data.own.errors import OwnDataError, no_tables
from secure_fgl.data.own.spec import OwnSpec
from secure_fgl.data.own.tally import Tally
from secure_fgl.data.records import Graph

__all__ = ["read_nodes"]


def read_nodes(folder: Path, spec: OwnSpec, tally: Tally, labelled: bool = True) -> Found:
    """Read a site's graph; nodes keep the order of their file.

    Raises:
        OwnDataError: a file is missing or cannot be read, an id is missing or there twice, a
            feature is missing, NaN, infinite or not a number, a label or word is not in the spec,
            or an edge has an end that is no node.
    """
    nodes, edges = find(folder, "nodes"), find(folder, "edges")
    if nodes is None:
        what = "there is no nodes.csv, nodes.parquet or data.pt"
        if edges is not None:
            what = f"{edges.name} is there without a nodes.csv or nodes.parquet"
            fix = "put the nodes beside it, as a CSV or Parquet file of that very name"
            raise OwnDataError(folder, what, fix=fix)
        raise no_tables(folder, what)
    if edges is None:
        what = f"{nodes.name} is there without an edges.csv or edges.parquet"
        fix = "without edges, write one with nothing but its header: source,target"
        raise OwnDataError(folder, what, fix=fix)
    wanted = {"id": Kind.TEXT} | ({"label": Kind.TEXT, SPLIT: Kind.TEXT} if labelled else {})
    wanted |= dict.fromkeys(spec.feature_columns, Kind.REAL)
    table = read_table(nodes, wanted, optional_split(spec))
    if not table.rows:
        raise table.wrong(
            "there is no node", fix="fill the table; a site without data takes no part"
        )
    # The nodes' own file first: an error there explains errors of the edges.
    ids = _ids(table)
    y = labels_of(table, spec.labels, blank=True)
    x, masks = table.matrix(spec.feature_columns), stated(table, y >= 0)
    ends = undirected(_ends(edges, ids, tally), table.rows, tally)
    whole = Graph(spec.name, ends, x, y, len(spec.labels), spec.synthetic)
    return Found(whole, masks, nodes, {"id": table.text("id")})


def _ids(table: Table) -> Any:
    """The nodes' ids as a pyarrow string array in which none occurs twice."""
    coded = table.text("id").combine_chunks().dictionary_encode()
    # Codes are given in the order in which ids first occur, so a new id has the next number.
    codes = coded.indices.to_numpy(zero_copy_only=False)
    again = codes <= np.concatenate([[-1], np.maximum.accumulate(codes)[:-1]])
    table.refuse(again, "id", "the id was given to an earlier node", fix="one row a node")
    return coded.dictionary


def _ends(path: Path, ids: Any, tally: Tally) -> npt.NDArray[np.int64]:
    table = read_table(path, {"source": Kind.TEXT, "target": Kind.TEXT})
    tally.edge_data += table.others
    ends = []
    for column in ("source", "target"):
        place = table.places(column, ids)
        why = "ids are compared letter by letter with the site's nodes: 7, 007 and 7.0 differ"
        fix = "correct the id, or leave out edges to nodes that this site does not hold"
        table.refuse(place < 0, column, "no node has this id", why=why, fix=fix)
        ends.append(place)
    return np.stack(ends)
