"""PyG's own data sets by name: `pyg/CLASS/NAME`, for example `pyg/Planetoid/PubMed`.

PyG downloads them, on the machine that asks, into `<root>/pyg/CLASS`, or reads what it downloaded
before. Nothing else here opens a connection, and this file does so only for a name that begins with
`pyg/`. `CLASSES` lists the classes; a class of a single set has no NAME (`pyg/WikiCS`).

Sizes must be public before anything is downloaded. `NAMES` knows those of well-known sets; any
other set of the classes needs them as options, and the data are then checked against them:
`features`, `classes` (labels, for MoleculeNet) and `records`, an upper bound of the nodes or
graphs. Further options:

* node sets: `split: published` and `fold`, where PyG has the split; `largest_component: true`;
* `TUDataset`: `attributes: true` puts the published attributes before the labels; `features` must
  then be given. A set without features gets degrees, one-hot, capped at `features`.

Word counts are kept sparse, and no feature is scaled, as in `node_npz`. Regression sets of
MoleculeNet are refused: their answers are neither 0 nor 1.

No file of a set runs code: Planetoid's raw files, which are pickles, are read by an unpickler that
knows six names (`planetoid`); arrays of objects, and what PyG keeps beside a processed set, are not
unpickled (`opening`). What is not plain numbers and texts is refused before it runs, and so are
sizes that a file declares and does not have.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from algorithms.tasks import Kind
from secure_fgl.data._folder import unknown
from secure_fgl.data.records import Dataset
from secure_fgl.data.sources._shared import pyg_files
from secure_fgl.data.sources._shared.files import (
    RawRefused,
    Shape,
    check_known,
    flag,
    fold,
    largest_component,
    published,
    whole,
)

__all__ = ["CLASSES", "NAMES", "PREFIX", "describe", "load"]

PREFIX = "pyg/"


class _Class(NamedTuple):
    """A class of `torch_geometric.datasets`.

    Attributes:
        task: kind of task.
        named: whether it holds several sets.
        words: whether features are counts of words.
        folds: published splits; 0 where there is none.
        settings: further arguments of the class.
    """

    task: Kind
    named: bool
    words: bool = False
    folds: int = 0
    settings: tuple[tuple[str, Any], ...] = ()


CLASSES: Mapping[str, _Class] = {
    "Actor": _Class("node", named=False, words=True, folds=10),
    "Amazon": _Class("node", named=True, words=True),
    "CitationFull": _Class("node", named=True, words=True),
    "Coauthor": _Class("node", named=True, words=True),
    "Flickr": _Class("node", named=False, folds=1),
    "HeterophilousGraphDataset": _Class("node", named=True, folds=10),
    "MoleculeNet": _Class("graph", named=True),
    "Planetoid": _Class("node", named=True, words=True, folds=1),
    "TUDataset": _Class("graph", named=True),
    "Twitch": _Class("node", named=True),
    "WebKB": _Class("node", named=True, words=True, folds=10),
    "WikiCS": _Class("node", named=False, folds=20, settings=(("is_undirected", True),)),
}
"""Classes of PyG whose sets are node or graph classification."""

_ATOMS = sum(pyg_files.ATOM_WIDTHS)


def _node(features: int, classes: int, records: int, synthetic: bool = False) -> Shape:
    return Shape("node", features, classes, records, synthetic)


def _graphs(features: int, classes: int, records: int) -> Shape:
    return Shape("graph", features, classes, records, False)


def _molecules(questions: int, records: int) -> Shape:
    return Shape("graph", _ATOMS, questions, records, False, multilabel=True)


NAMES: Mapping[str, Shape] = {
    "pyg/Actor": _node(932, 5, 7600),
    "pyg/Amazon/Computers": _node(767, 10, 13752),
    "pyg/Amazon/Photo": _node(745, 8, 7650),
    "pyg/CitationFull/CiteSeer": _node(602, 6, 4230),
    "pyg/CitationFull/Cora": _node(8710, 70, 19793),
    "pyg/CitationFull/Cora_ML": _node(2879, 7, 2995),
    "pyg/CitationFull/DBLP": _node(1639, 4, 17716),
    "pyg/CitationFull/PubMed": _node(500, 3, 19717),
    "pyg/Coauthor/CS": _node(6805, 15, 18333),
    "pyg/Coauthor/Physics": _node(8415, 5, 34493),
    "pyg/Flickr": _node(500, 7, 89250),
    "pyg/HeterophilousGraphDataset/Amazon-ratings": _node(300, 5, 24492),
    "pyg/HeterophilousGraphDataset/Minesweeper": _node(7, 2, 10000, synthetic=True),
    "pyg/HeterophilousGraphDataset/Questions": _node(301, 2, 48921),
    "pyg/HeterophilousGraphDataset/Roman-empire": _node(300, 18, 22662),
    "pyg/HeterophilousGraphDataset/Tolokers": _node(10, 2, 11758),
    "pyg/MoleculeNet/BACE": _molecules(1, 1513),
    "pyg/MoleculeNet/BBBP": _molecules(1, 2050),
    "pyg/MoleculeNet/ClinTox": _molecules(2, 1484),
    "pyg/MoleculeNet/HIV": _molecules(1, 41127),
    "pyg/MoleculeNet/SIDER": _molecules(27, 1427),
    "pyg/MoleculeNet/Tox21": _molecules(12, 7831),
    "pyg/Planetoid/CiteSeer": _node(3703, 6, 3327),
    "pyg/Planetoid/Cora": _node(1433, 7, 2708),
    "pyg/Planetoid/PubMed": _node(500, 3, 19717),
    "pyg/TUDataset/COLLAB": _graphs(492, 3, 5000),  # degrees, as in GCFL (NeurIPS 2021)
    "pyg/TUDataset/ENZYMES": _graphs(3, 6, 600),
    "pyg/TUDataset/IMDB-BINARY": _graphs(136, 2, 1000),  # degrees
    "pyg/TUDataset/MUTAG": _graphs(7, 2, 188),
    "pyg/TUDataset/PROTEINS": _graphs(3, 2, 1113),
    "pyg/WebKB/Cornell": _node(1703, 5, 183),
    "pyg/WebKB/Texas": _node(1703, 5, 183),
    "pyg/WebKB/Wisconsin": _node(1703, 5, 251),
    "pyg/WikiCS": _node(300, 10, 11701),
}
"""Public sizes of well-known sets, from PyG's documentation; loading checks that they hold."""

SIZES = ("features", "classes", "records")


def _parse(name: str) -> tuple[str, str]:
    """Class and name of the set; the name is empty where the class holds a single one."""
    _, _, rest = name.partition("/")
    kind, slash, own = rest.partition("/")
    if kind not in CLASSES:
        raise unknown("data set class of PyG", kind, CLASSES)
    if CLASSES[kind].named != bool(slash):
        form = f"pyg/{kind}/NAME" if CLASSES[kind].named else f"pyg/{kind}"
        raise ValueError(f"data sets of PyG's class {kind} are called {form}")
    if slash and not re.fullmatch(r"\w[\w.-]*", own, re.ASCII):  # it becomes a folder's name
        raise ValueError("the name of a PyG data set is made of letters, digits, '-', '_' and '.'")
    return kind, own


def describe(name: str, options: Mapping[str, Any]) -> Shape:
    """Public sizes from the options, and else from the table.

    Raises:
        ValueError: unknown class, an option that it does not know, or sizes that nobody told.
    """
    kind, _ = _parse(name)
    found = CLASSES[kind]
    own = ["attributes"] if kind == "TUDataset" else []
    if found.task == "node":
        own += ["largest_component", *(["split", "fold"] if found.folds else [])]
    check_known(name, options, (*SIZES, *own))
    flag(name, options, "largest_component")
    published(name, options)
    fold(name, options, found.folds)
    given = {size: whole(name, options, size, 1) for size in SIZES if size in options}
    known = NAMES.get(name)
    widened = flag(name, options, "attributes") and "features" not in given
    if widened or (known is None and len(given) < len(SIZES)):
        raise ValueError(
            f"the sizes of {name!r} are not known before it is downloaded; give the options "
            f"{', '.join(SIZES)} (records: an upper bound of the nodes or graphs)"
        )
    base = known or Shape(found.task, 1, 1, 1, False, multilabel=kind == "MoleculeNet")
    return base._replace(
        features=given.get("features", base.features),
        classes=given.get("classes", base.classes),
        records=given.get("records", base.records),
    )


def load(name: str, root: Path | None, options: Mapping[str, Any]) -> Dataset:
    """Download one set, or read what was downloaded, and make it a record.

    Raises:
        FileNotFoundError: no folder was named, or PyG can neither find nor fetch the set.
        ValueError: an option is wrong, or the data are not what the sizes say.
    """
    shape = describe(name, options)
    kind, own = _parse(name)
    if root is None:
        raise FileNotFoundError(
            f"the data set {name!r} needs a folder to be downloaded into; point data.root in the "
            "configuration, or the environment variable SECURE_FGL_DATA, at one"
        )
    folder = root / "pyg" / kind
    settings = dict(CLASSES[kind].settings)
    if own:
        settings["name"] = own
    if flag(name, options, "attributes"):
        settings["use_node_attr"] = True
    found = _open(name, kind, folder, settings, shape)
    try:
        if shape.task == "graph":
            return pyg_files.graph_set(name, [found[place] for place in range(len(found))], shape)
        graph = pyg_files.graph(
            name,
            found[0],
            shape,
            words=CLASSES[kind].words,
            public=published(name, options),
            fold=fold(name, options, CLASSES[kind].folds),
        )
    except (AttributeError, IndexError, TypeError, ValueError) as wrong:
        raise ValueError(
            f"{name!r} under {folder} does not agree with its sizes or options: expected "
            f"{shape.features} features, {shape.classes} classes, {shape.records} records at most, "
            "and the published split and attributes if they were asked for; correct the options"
        ) from wrong
    return largest_component(graph) if flag(name, options, "largest_component") else graph


def _open(name: str, kind: str, folder: Path, settings: dict[str, Any], shape: Shape) -> Any:
    try:
        with warnings.catch_warnings():
            # PyG warns, and then opens the file without the guard against pickled code.
            warnings.filterwarnings("error", message="Weights only load failed")
            return pyg_files.opened(kind, folder, settings, shape)
    except RawRefused:
        raise
    except ImportError:
        raise  # MoleculeNet needs RDKit, and PyG says so
    except OSError as missing:
        raise FileNotFoundError(
            f"PyG could not fetch {name!r} into {folder}; most likely there is no connection, the "
            "folder cannot be written, or PyG knows no set of that name"
        ) from missing
    except Exception as broken:
        raise ValueError(
            f"PyG could not read {name!r} under {folder}; most likely PyG knows no set of that "
            "name, or the download was cut short: delete that folder and try again"
        ) from broken
