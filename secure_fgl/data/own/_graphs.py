"""Many graphs: `molecules.csv|parquet` (smiles, labels, optional split)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from secure_fgl.data.own._files import read_table
from secure_fgl.data.own._found import SPLIT, Found, find, labels_of, optional_split, stated
from secure_fgl.data.own._table import Kind, Table
from secure_fgl.data.own.errors import OwnDataError, no_tables
from secure_fgl.data.own.spec import OwnSpec
from secure_fgl.data.own.tally import Tally
from secure_fgl.data.records import GraphSet

__all__ = ["graph_set", "read_molecules"]


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
