"""A site's files as records of each kind: many graphs, one graph's nodes and edges, or ratings."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from secure_fgl.data.own.spec import OwnSpec
from secure_fgl.data.own.tables import (
    SPLIT,
    Found,
    Kind,
    OwnDataError,
    Table,
    Tally,
    find,
    labels_of,
    no_tables,
    optional_split,
    read_bytes,
    read_table,
    stated,
    undirected,
)
from secure_fgl.data.records import Graph, GraphSet, Ratings

# --- Many graphs: `molecules.csv|parquet` (smiles, labels, optional split) ---


def read_molecules(folder: Path, spec: OwnSpec, tally: Tally, labelled: bool = True) -> Found:
    """Read a site's molecules; RDKit makes a graph of each SMILES.

    Raises:
        OwnDataError: the file is missing or cannot be read, a SMILES is missing or no molecule, or
            a label is missing where it may not be, is not in the spec, or is not 0 or 1.
        ImportError: RDKit is not installed; names the extra.
    """
    del tally  # RDKit's bonds hold neither loops nor repeats
    path = find(folder, "molecules")
    if path is None:
        what = "there is no molecules.csv, molecules.parquet or data.pt"
        raise no_tables(folder, what)
    if spec.feature_columns:
        what = "spec.yaml gives features, which only a data.pt has; molecules have their atoms'"
        raise OwnDataError(path, what, fix="take features out of spec.yaml")
    wanted = {"smiles": Kind.TEXT}
    if labelled:
        kind = Kind.REAL if spec.multilabel else Kind.TEXT
        wanted |= {SPLIT: Kind.TEXT, **dict.fromkeys(spec.label_columns, kind)}
    table = read_table(path, wanted, optional_split(spec))
    if not table.rows:
        raise table.wrong(
            "there is no molecule", fix="fill the table; a site without data takes no part"
        )
    whole = graph_set(_molecules(table), _labels(table, spec), spec)
    return Found(whole, stated(table), path, {"smiles": table.text("smiles")})


def graph_set(
    graphs: list[tuple[npt.NDArray[np.int64], Any]], y: npt.NDArray[Any], spec: OwnSpec
) -> GraphSet:
    """Graphs side by side as one record, nodes numbered on.

    Args:
        graphs: (edges int64 (2, m) with u < v, features float32 (n, F)) of each.
        y: labels as `GraphSet` holds them.
        spec: name and classes.
    """
    sizes = np.array([x.shape[0] for _, x in graphs], dtype=np.int64)
    first = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    return GraphSet(
        name=spec.name,
        sizes=sizes,
        edges=np.concatenate(
            [edges + at for (edges, _), at in zip(graphs, first, strict=True)], axis=1
        ),
        x=np.concatenate([x for _, x in graphs]),
        y=y,
        classes=len(spec.label_columns) if spec.multilabel else len(spec.labels),
        multilabel=spec.multilabel,
        synthetic=spec.synthetic,
    )


def _molecules(table: Table) -> list[tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]]:
    from secure_fgl.data.sources.molecules import molecule_graph

    made = []
    for row, smiles in enumerate(table.text("smiles").to_pylist()):
        try:
            made.append(molecule_graph(smiles))
        except ValueError:
            fix = "correct it, or leave the molecule out"
            # From nothing: the reader's error may quote the SMILES.
            raise table.wrong(
                "the SMILES is not a molecule", row=row, column="smiles", fix=fix
            ) from None
    return made


def _labels(table: Table, spec: OwnSpec) -> npt.NDArray[Any]:
    if not spec.multilabel:
        return labels_of(table, spec.labels, blank=False)
    if not set(spec.label_columns) & set(table.columns):  # records that are to be predicted
        return np.full((table.rows, len(spec.label_columns)), np.nan, dtype=np.float32)
    y = table.matrix(spec.label_columns, blank=True)
    for place, column in enumerate(spec.label_columns):
        bad = ~(np.isnan(y[:, place]) | np.isin(y[:, place], (0.0, 1.0)))
        table.refuse(bad, column, "the label is neither 0 nor 1", fix="blank: not known")
    return y


# --- One graph: `nodes.csv|parquet` (id, label, features, optional split) and `edges.csv|parquet`
# ---


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


# --- Who rated what: `ratings.csv|parquet` (user, item, rating, optional split) ---
#
# Users and items mean the same at every site: they are numbers below the spec's counts, or listed
# in a vocabulary file whose SHA-256 stands in the spec, so that a stale copy at one site is an
# error and not a silent mix-up of items.

Key = Literal["users", "items"]
_IDS: tuple[tuple[str, Key], ...] = (("user", "users"), ("item", "items"))

VOCABULARY = "vocabulary"
"""Folder beside the sites' folders that holds ``users.txt`` and ``items.txt``, one id a line."""


def read_ratings(folder: Path, spec: OwnSpec, tally: Tally, labelled: bool = True) -> Found:
    """Read a site's ratings; they keep the order of their file.

    Raises:
        OwnDataError: the file is missing or cannot be read, a user or item is missing or not among
            those agreed on, a rating is missing, not a number or off the scale, or a user rated an
            item twice.
    """
    del tally  # a repeat is an error here: which of two ratings would be meant?
    path = find(folder, "ratings")
    if path is None:
        what = "there is no ratings.csv or ratings.parquet"
        raise no_tables(folder, what)
    kinds = {column: _kind(key, spec) for column, key in _IDS}
    wanted = {**kinds, "rating": Kind.REAL} | ({SPLIT: Kind.TEXT} if labelled else {})
    table = read_table(path, wanted, optional_split(spec) if labelled else ("rating",))
    if not table.rows:
        raise table.wrong(
            "there is no rating", fix="fill the table; a site without data takes no part"
        )
    user, item = (_numbers(table, *names, spec, folder.parent) for names in _IDS)
    first = np.unique(user * spec.items + item, return_index=True)[1]
    again = np.ones(table.rows, dtype=bool)
    again[first] = False
    what = "this user rated this item in an earlier row"
    table.refuse(again, "item", what, fix="keep one of the two")
    rating = _rating(table, blank=not labelled)
    off = (rating < spec.lowest) | (rating > spec.highest)
    table.refuse(off, "rating", "the rating is off the scale of spec.yaml")
    whole = Ratings(
        name=spec.name,
        user=user,
        item=item,
        rating=rating.astype(np.float32),
        users=spec.users,
        items=spec.items,
        lowest=spec.lowest,
        highest=spec.highest,
        synthetic=spec.synthetic,
    )
    ids = {column: table.columns[column] for column, _ in _IDS}
    return Found(whole, stated(table), path, ids)


def _rating(table: Table, *, blank: bool) -> npt.NDArray[np.float64]:
    """Return the ratings; NaN for those that are to be predicted, where there may be such."""
    if "rating" not in table:
        return np.full(table.rows, np.nan)
    return table.real("rating", blank=blank)


def _kind(key: Key, spec: OwnSpec) -> Kind:
    return Kind.TEXT if key in spec.vocabulary else Kind.WHOLE


def _numbers(
    table: Table, column: str, key: Key, spec: OwnSpec, root: Path
) -> npt.NDArray[np.int64]:
    if key in spec.vocabulary:
        import pyarrow as pa

        words = _vocabulary(root / VOCABULARY / f"{key}.txt", spec, key)
        found = table.places(column, pa.array(words, pa.large_string()))
        table.refuse(found < 0, column, f"the id is not in {VOCABULARY}/{key}.txt")
        return found
    number = table.whole(column)
    fix = f"{key} are numbered from 0 to {key} - 1, alike at every site"
    off = (number < 0) | (number >= getattr(spec, key))
    table.refuse(off, column, f"the number is not below {key} of spec.yaml", fix=fix)
    return number


def _vocabulary(path: Path, spec: OwnSpec, key: Key) -> list[str]:
    """The ids of a vocabulary file in its order; the file must be the one that was agreed on."""
    data = read_bytes(path)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    if digest != spec.vocabulary[key]:
        what = "the file is not the one that spec.yaml names"
        why = f"its SHA-256 is {digest}"
        fix = "get the file that the sites agreed on, or agree on this one"
        raise OwnDataError(path, what, why=why, fix=fix)
    words = [line.strip() for line in data.decode("utf-8").split("\n")]
    seen = set[str]()
    for number, word in enumerate(words, start=1):
        if not word or word in seen:
            what = "the line is empty" if not word else "the id stands on an earlier line too"
            raise OwnDataError(path, what, row=f"line {number}", fix="one id a line")
        seen.add(word)
    if len(words) != getattr(spec, key):
        what = f"the file does not have as many lines as spec.yaml has {key}"
        raise OwnDataError(path, what, fix=f"{key}: {len(words)}")
    return words
