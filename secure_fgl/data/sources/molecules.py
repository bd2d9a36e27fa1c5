"""Molecules of MoleculeNet (Wu et al., 2018) from CSV files, their graphs made by RDKit.

`<root>/moleculenet/<name>.csv` has a header, a column `smiles` and one column a question, 0, 1 or
empty. Every question is a yes-or-no label of its own, also where there is one only: scores are then
ROC-AUC over one probability. Missing answers are NaN. What an atom's features are is told in
`_shared.atoms`; they are CSR.

A row whose SMILES RDKit cannot read is dropped, so the sizes in the table, which are those of the
files, are upper bounds: `bbbp` gives the usual 2039 of 2050, `clintox` 1480 of 1484, `tox21` 7823
of 7831, `hiv` 41,120 of 41,127 (RDKit of 2026; another release may read one more or less), `bace`
and `sider` all. `hiv` takes about half a minute.

ESOL, Lipophilicity and FreeSolv are regressions, for which there is no task here: they have no
name.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from secure_fgl.data.records import GraphSet
from secure_fgl.data.sources._shared.files import (
    FEATURES,
    Shape,
    another_file,
    atoms_and_bonds,
    check_known,
    locate,
    one_hot,
)

__all__ = ["FEATURES", "NAMES", "QUESTIONS", "describe", "load", "molecule_graph"]


def _shape(rows: int, questions: int = 1) -> Shape:
    return Shape("graph", FEATURES, questions, rows, False, multilabel=True)


NAMES: Mapping[str, Shape] = {
    "bace": _shape(1513),
    "bbbp": _shape(2050),
    "clintox": _shape(1484, 2),
    "hiv": _shape(41127),
    "sider": _shape(1427, 27),
    "tox21": _shape(7831, 12),
}
"""Public sizes of each set; `records` counts the rows of the file."""

QUESTIONS: Mapping[str, tuple[str, ...]] = {
    "bace": ("class",),
    "bbbp": ("p_np",),
    "clintox": ("FDA_APPROVED", "CT_TOX"),
    "hiv": ("HIV_active",),
    "sider": tuple(f"SIDER{number}" for number in range(1, 28)),
    "tox21": (
        *("NR-AR", "NR-AR-LBD", "NR-AhR", "NR-Aromatase", "NR-ER", "NR-ER-LBD", "NR-PPAR-gamma"),
        *("SR-ARE", "SR-ATAD5", "SR-HSE", "SR-MMP", "SR-p53"),
    ),
}
"""Columns of the labels, in order."""

MOST_DROPPED = 0.01  # share of rows; half as much again as in the worst set (bbbp, 0.54 %)

_ANSWERS = {"0": 0.0, "0.0": 0.0, "1": 1.0, "1.0": 1.0, "": np.nan}


def molecule_graph(smiles: str) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
    """Edges int64 (2, m), each once with u < v, and features float32 (n, FEATURES) of a molecule.

    Raises:
        ImportError: RDKit is not installed.
        ValueError: RDKit reads no molecule from the text.
    """
    edges, columns = atoms_and_bonds(smiles)
    return edges, one_hot(columns, FEATURES).toarray()


def describe(name: str, options: Mapping[str, Any]) -> Shape:
    """Public sizes from the table.

    Raises:
        ValueError: an option was given; these sets have none.
    """
    check_known(name, options, ())
    return NAMES[name]


def load(name: str, root: Path | None, options: Mapping[str, Any]) -> GraphSet:
    """Read one set and make its graphs.

    Raises:
        FileNotFoundError: no folder was named, or the file is not in it.
        ImportError: RDKit is not installed.
        ValueError: an option was given, or the file is not what the table says.
    """
    shape = describe(name, options)
    path = locate(name, root, f"moleculenet/{name}.csv")
    texts, answers = _table(path, QUESTIONS[name])
    if len(texts) != shape.records:
        raise another_file(path, f"{shape.records} rows")
    read, kept = [], []
    for row, text in enumerate(texts):
        try:
            read.append(atoms_and_bonds(text))
        except ValueError:
            continue
        kept.append(row)
    if len(kept) < (1 - MOST_DROPPED) * len(texts):
        raise another_file(path, f"SMILES that RDKit can read, but for {MOST_DROPPED:.0%}")
    sizes = np.array([len(columns) for _, columns in read], np.int64)
    starts = [0, *accumulate(sizes.tolist())][:-1]
    return GraphSet(
        name,
        sizes,
        np.concatenate(
            [edges + start for (edges, _), start in zip(read, starts, strict=True)], axis=1
        ),
        one_hot(np.concatenate([columns for _, columns in read]), FEATURES),
        answers[kept],
        shape.classes,
        multilabel=True,
        synthetic=False,
    )


def _table(path: Path, questions: tuple[str, ...]) -> tuple[list[str], npt.NDArray[np.float32]]:
    """SMILES and answers float32 (rows, T) of all rows."""
    texts, answers = [], []
    try:
        with path.open(newline="", encoding="utf-8") as file:
            lines = csv.reader(file, strict=True)
            head = next(lines, [])
            places = [head.index(column) for column in ("smiles", *questions)]
            for row in lines:
                if len(row) != len(head):
                    raise ValueError("a row of another length than the header")
                text, *given = (row[place] for place in places)
                texts.append(text)
                answers.append([_ANSWERS[answer] for answer in given])
    except (ValueError, KeyError, csv.Error):
        # Not chained: the cause may quote a label or a SMILES.
        raise ValueError(
            f"{path} cannot be read as a molecule set; expected a header with the columns smiles, "
            f"{', '.join(questions)}, and answers of 0, 1 or nothing; most likely it is damaged "
            "or was written in another layout: fetch or convert it again"
        ) from None
    return texts, np.array(answers, np.float32).reshape(-1, len(questions))
