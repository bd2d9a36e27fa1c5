"""Options that several sources know, checked without looking at a file."""

from __future__ import annotations

import dataclasses
import struct
import tokenize
import zlib
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar
from zipfile import BadZipFile

import numpy as np
import numpy.typing as npt

from algorithms.tasks import Kind
from secure_fgl.data._folder import unknown
from secure_fgl.data.records import Dataset, Graph, Masks

if TYPE_CHECKING:
    import scipy.sparse as sp


def check_known(name: str, options: Mapping[str, Any], known: Iterable[str]) -> None:
    """Refuse an option that the set does not know.

    Raises:
        ValueError: names the option and the nearest known one.
    """
    known = tuple(known)
    if options and not known:
        raise ValueError(
            f"the data set {name!r} takes no options, and was given: {', '.join(sorted(options))}"
        )
    for option in options:
        if option not in known:
            raise unknown(f"option of the data set {name!r}", option, known)


def flag(name: str, options: Mapping[str, Any], option: str) -> bool:
    """Whether a yes-or-no option is on; off where it was not given.

    Raises:
        ValueError: it is neither true nor false.
    """
    value = options.get(option, False)
    if not isinstance(value, bool):
        raise ValueError(f"the option {option} of the data set {name!r} is true or false")
    return value


def published(name: str, options: Mapping[str, Any]) -> bool:
    """Whether `split: published` was given.

    Raises:
        ValueError: another word was given.
    """
    if "split" not in options:
        return False
    if options["split"] != "published":
        raise ValueError(
            f"the option split of the data set {name!r} can only be 'published'; leave it out and "
            "the split is drawn per run, in the shares of data.split"
        )
    return True


def fold(name: str, options: Mapping[str, Any], folds: int) -> int:
    """Which of several published splits, from 0; the first where none was named.

    Raises:
        ValueError: out of range, or without `split: published`.
    """
    if "fold" not in options:
        return 0
    if not published(name, options):
        raise ValueError(f"the option fold of the data set {name!r} needs split: published")
    value = whole(name, options, "fold", 0)
    if value >= folds:
        raise ValueError(f"the option fold of the data set {name!r} is 0 to {folds - 1}")
    return value


def whole(name: str, options: Mapping[str, Any], option: str, least: int) -> int:
    """An option that is a whole number.

    Raises:
        ValueError: missing, something else, or below `least`.
    """
    value = options.get(option)
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError(
            f"the option {option} of the data set {name!r} must be a whole number of {least} or "
            "more"
        )
    return value


# --- What the sources share: public sizes, and what a source must offer ---


class Shape(NamedTuple):
    """Public sizes of a data set, known without opening it.

    Attributes:
        task: kind of task.
        features: input features per node; 0 for ratings.
        classes: number of classes; of labels, if `multilabel`; 1 for ratings.
        records: nodes, graphs or ratings, by the kind of task; an upper bound where the exact
            number depends on what a library can read.
        synthetic: whether the data is generated.
        multilabel: whether every class is a yes-or-no question of its own, possibly unanswered.
        users, items: how many a rating task knows at most; else 0.
        lowest, highest: the scale of ratings; else 0.
    """

    task: Kind
    features: int
    classes: int
    records: int
    synthetic: bool
    multilabel: bool = False
    users: int = 0
    items: int = 0
    lowest: float = 0.0
    highest: float = 0.0


class Source(Protocol):
    """What a file in this folder offers.

    A source whose names cannot all be listed declares also `PREFIX`: every name that begins so is
    its own.
    """

    NAMES: Mapping[str, Any]

    def describe(self, name: str, options: Mapping[str, Any]) -> Shape:
        """Public sizes, without touching a file."""

    def load(self, name: str, root: Path | None, options: Mapping[str, Any]) -> Dataset:
        """The data set."""


# --- Finding and reading files of published sets, and saying what is wrong with one ---
#
# Errors name the path, why, and what to do; never a value of the data.

Arrays = Mapping[str, npt.NDArray[Any]]
"""The arrays of one file, by name."""

_Read = TypeVar("_Read")

BROKEN = (
    BadZipFile,
    EOFError,
    KeyError,
    MemoryError,  # a damaged header asks for any amount
    OSError,  # a damaged directory of the archive points before its start
    OverflowError,
    RuntimeError,  # a damaged flag says encrypted, or packed in an unknown way
    SyntaxError,
    TypeError,
    ValueError,
    struct.error,
    tokenize.TokenError,
    zlib.error,
)
"""What numpy, scipy and the zip reader raise on a file that is damaged or laid out otherwise."""


class RawRefused(ValueError):
    """A file of a data set is not opened, or not further.

    Args:
        path: which; None where only a library knows.
        what: what is wrong with it.
    """

    def __init__(self, path: Path | None, what: str) -> None:
        super().__init__(
            f"{path or 'a file of the data set'} is refused: {what}; most likely somebody changed "
            "or planted it, it was cut short, or the options state other sizes: delete the set's "
            "folder and let it be fetched again, or correct the options"
        )


def locate(name: str, root: Path | None, file: str) -> Path:
    """Path of a set's file, `root`/`file`.

    Raises:
        FileNotFoundError: no folder was named, or the file is not in it.
    """
    path, told = (root / file if root else None), f"the data set {name!r} needs a data folder"
    if path is not None and path.is_file():
        return path
    if path is not None:
        missing = (
            "no such file is there" if root and root.is_dir() else "that folder does not exist"
        )
        told = f"looked for {path}: {missing}"
    error = FileNotFoundError(told)
    error.add_note(
        "What to do: set data.root, or the environment variable SECURE_FGL_DATA, to the folder "
        f"that holds {file}"
    )
    raise error


def read(path: Path, kind: str, reader: Callable[[Arrays], _Read]) -> _Read:
    """What `reader` makes of the arrays of the file.

    Raises:
        OSError: the file cannot be opened.
        ValueError: it is damaged, or `reader` did not find what it needs.
    """
    with path.open("rb") as file:  # outside the try: a missing permission is no damage
        try:
            with np.load(file, allow_pickle=False) as arrays:
                return reader(arrays)
        except BROKEN as broken:
            raise ValueError(
                f"{path} cannot be read as a {kind} set; most likely it is damaged or "
                "was written in another layout: fetch or convert it again"
            ) from broken


def another_file(path: Path, expected: str) -> ValueError:
    """The error for a file that can be read and is not the set that its name says."""
    return ValueError(
        f"{path} is not the published set: expected {expected}; check the file's origin and its "
        "SHA-256"
    )


def integers(arrays: Arrays, name: str) -> npt.NDArray[np.int64]:
    """An array of whole numbers as int64.

    Raises:
        KeyError: there is none of that name.
        TypeError: it holds something else; rounding would hide a wrong file.
    """
    found = arrays[name]
    if found.dtype.kind not in "iu":
        raise TypeError(f"{name} does not hold whole numbers")
    return found.astype(np.int64)


def dense_features(arrays: Arrays, name: str) -> npt.NDArray[np.float32]:
    """An array of features (N, F), float32, row-major.

    Raises:
        KeyError: there is none of that name.
        ValueError: it has another number of dimensions, or an entry is not finite.
    """
    x = np.ascontiguousarray(arrays[name], dtype=np.float32)
    if x.ndim != 2 or not np.isfinite(x).all():
        raise ValueError(f"{name} is not a table of finite numbers")
    return x


def sparse_features(arrays: Arrays, prefix: str = "") -> sp.csr_array:
    """CSR features from `x_indptr`, `x_indices`, `x_data`, `x_shape`; never made dense.

    Raises:
        KeyError: one of the four is missing.
        ValueError: they do not fit together, or an entry is not finite.
    """
    import scipy.sparse as sp

    rows, columns = integers(arrays, f"{prefix}x_shape").tolist()
    data = arrays[f"{prefix}x_data"].astype(np.float32)
    indices, indptr = arrays[f"{prefix}x_indices"], arrays[f"{prefix}x_indptr"]
    x = sp.csr_array((data, indices, indptr), shape=(rows, columns))
    x.check_format(full_check=True)
    if not np.isfinite(x.data).all():
        raise ValueError("features hold NaN or infinity")
    return x


# --- Edges and features that several sources make ---

Ints = npt.NDArray[np.int64]


def proper_edges(edges: Ints, nodes: int) -> bool:
    """Whether edges (2, M) name existing nodes, each undirected pair once with u < v."""
    if edges.ndim != 2 or edges.shape[0] != 2:
        return False
    if not edges.size:
        return True
    if edges.min() < 0 or edges.max() >= nodes or not bool((edges[0] < edges[1]).all()):
        return False
    return bool(np.unique(edges[0] * nodes + edges[1]).size == edges.shape[1])


def undirected(edges: Ints, nodes: int) -> Ints:
    """Each joined pair once with u < v, ascending, from arcs (2, M); self-loops are dropped."""
    low, high = edges.min(axis=0), edges.max(axis=0)
    pairs = np.unique((low * nodes + high)[low != high])
    return np.stack([pairs // nodes, pairs % nodes]).astype(np.int64)


def proper_masks(masks: Masks, y: npt.NDArray[Any]) -> bool:
    """Whether masks are bool (N,), disjoint, train somebody and hold labelled nodes only."""
    if any(mask.dtype != np.bool_ or mask.shape != y.shape for mask in masks):
        return False
    roles = np.sum(masks, axis=0)
    return bool(masks.train.any() and roles.max() <= 1 and (y[roles > 0] >= 0).all())


def largest_component(graph: Graph) -> Graph:
    """The subgraph of the largest connected component; of equally large ones, the first."""
    import scipy.sparse as sp
    from scipy.sparse.csgraph import connected_components

    joined = sp.coo_array(
        (np.ones(graph.edges.shape[1], np.int8), (graph.edges[0], graph.edges[1])),
        shape=(graph.nodes, graph.nodes),
    )
    _, component = connected_components(joined, directed=False)
    keep = component == np.bincount(component).argmax()
    number = np.cumsum(keep) - 1  # ascending, so u < v stays
    public = graph.public
    return dataclasses.replace(
        graph,
        edges=np.ascontiguousarray(number[graph.edges[:, keep[graph.edges[0]]]]),
        x=graph.x[np.flatnonzero(keep)],
        y=graph.y[keep],
        owner=None if graph.owner is None else graph.owner[keep],
        public=None if public is None else Masks(*(mask[keep] for mask in public)),
    )


def one_hot(columns: Ints, width: int) -> sp.csr_array:
    """CSR float32 with ones where `columns` says: (N,) one a row, or (N, K) ascending K a row."""
    import scipy.sparse as sp

    rows = len(columns)
    each = 1 if columns.ndim == 1 else columns.shape[1]
    starts = np.arange(rows + 1, dtype=np.int64) * each
    ones = np.ones(rows * each, np.float32)
    return sp.csr_array((ones, columns.reshape(-1), starts), shape=(rows, width))


def degree_one_hot(edges: Ints, nodes: int, width: int) -> sp.csr_array:
    """One column a degree; degrees of `width` - 1 and more share the last."""
    degree = np.bincount(edges.reshape(-1), minlength=nodes)
    return one_hot(np.minimum(degree, width - 1), width)


def degree_buckets(edges: Ints, nodes: int, width: int) -> sp.csr_array:
    """One column for degree 0, then one for each doubling: 1, 2 to 3, 4 to 7, ...

    The last column holds all larger degrees too.
    """
    degree = np.bincount(edges.reshape(-1), minlength=nodes)
    # frexp is exact: degree = m * 2^e with m in [0.5, 1), so e is the bucket, and 0 for degree 0.
    bucket = np.frexp(degree.astype(np.float64))[1].astype(np.int64)
    return one_hot(np.minimum(bucket, width - 1), width)


# --- A molecule's graph from its SMILES: atoms are nodes, bonds are edges ---
#
# Nine properties of an atom, one-hot each: those of the Open Graph Benchmark (Hu et al., NeurIPS
# 2020), with a list of values of our own that is shorter and gives what is rare one column
# together. Hydrogens are counted at their atom and are no nodes. Kinds of bonds are left out.

ELEMENTS = ("B", "C", "N", "O", "F", "Na", "Si", "P", "S", "Cl", "K", "Se", "Br", "Sn", "I")
CHIRALITIES = ("CHI_UNSPECIFIED", "CHI_TETRAHEDRAL_CW", "CHI_TETRAHEDRAL_CCW")
HYBRIDISATIONS = ("S", "SP", "SP2", "SP3", "SP3D", "SP3D2")
MOST_NEIGHBOURS = 6  # hydrogens included; more share the last column
MOST_HYDROGENS = 4
MOST_CHARGE = 2  # either sign

WIDTHS = {
    "element": len(ELEMENTS) + 1,
    "neighbours": MOST_NEIGHBOURS + 1,
    "charge": 2 * MOST_CHARGE + 1,
    "hydrogens": MOST_HYDROGENS + 1,
    "chirality": len(CHIRALITIES) + 1,
    "radical": 2,
    "hybridisation": len(HYBRIDISATIONS) + 1,
    "aromatic": 2,
    "in a ring": 2,
}
"""Columns of each property, in order; a property's last column takes what is not listed."""

FEATURES = sum(WIDTHS.values())
"""Columns of an atom."""

_STARTS = np.cumsum([0, *WIDTHS.values()])[:-1]


class _Library(NamedTuple):
    read: Any
    quiet: Any
    chirality: dict[Any, int]
    hybridisation: dict[Any, int]


@cache
def _library() -> _Library:
    try:
        from rdkit import Chem, rdBase
    except ImportError as error:
        missing = ImportError("molecules are read by RDKit, which is not installed")
        missing.add_note("What to do: pip install 'secure-fgl[data]'")
        raise missing from error
    chirality, hybridisation = Chem.ChiralType.names, Chem.HybridizationType.names
    return _Library(
        Chem.MolFromSmiles,
        rdBase.BlockLogs,
        {chirality[name]: place for place, name in enumerate(CHIRALITIES)},
        {hybridisation[name]: place for place, name in enumerate(HYBRIDISATIONS)},
    )


_ELEMENT = {symbol: place for place, symbol in enumerate(ELEMENTS)}


def atoms_and_bonds(smiles: str) -> tuple[Ints, Ints]:
    """Edges int64 (2, m), u < v, and feature columns int64 (n, 9), ascending in a row.

    Raises:
        ImportError: RDKit is not installed.
        ValueError: RDKit reads no molecule from the text.
    """
    library = _library()
    with library.quiet():  # RDKit would print the SMILES
        molecule = library.read(smiles)
    if molecule is None or not molecule.GetNumAtoms():
        raise ValueError("RDKit reads no molecule from this SMILES")
    columns = np.array([_atom(library, atom) for atom in molecule.GetAtoms()], np.int64) + _STARTS
    bonds = [(bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()) for bond in molecule.GetBonds()]
    arcs = np.array(bonds, np.int64).reshape(-1, 2).T
    return undirected(arcs, len(columns)), columns


def _atom(library: _Library, atom: Any) -> tuple[int, ...]:
    """Column of each property within its block."""
    return (
        _ELEMENT.get(atom.GetSymbol(), len(ELEMENTS)),
        min(atom.GetTotalDegree(), MOST_NEIGHBOURS),
        max(-MOST_CHARGE, min(atom.GetFormalCharge(), MOST_CHARGE)) + MOST_CHARGE,
        min(atom.GetTotalNumHs(), MOST_HYDROGENS),
        library.chirality.get(atom.GetChiralTag(), len(CHIRALITIES)),
        min(atom.GetNumRadicalElectrons(), 1),
        library.hybridisation.get(atom.GetHybridization(), len(HYBRIDISATIONS)),
        int(atom.GetIsAromatic()),
        int(atom.IsInRing()),
    )
