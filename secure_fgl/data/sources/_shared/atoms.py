"""A molecule's graph from its SMILES: atoms are nodes, bonds are edges.

Nine properties of an atom, one-hot each: those of the Open Graph Benchmark (Hu et al., NeurIPS
2020), with a list of values of our own that is shorter and gives what is rare one column together.
Hydrogens are counted at their atom and are no nodes. Kinds of bonds are left out.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from secure_fgl.data.sources._shared.graphs import undirected

__all__ = ["FEATURES", "WIDTHS", "atoms_and_bonds"]

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

Ints = npt.NDArray[np.int64]


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
