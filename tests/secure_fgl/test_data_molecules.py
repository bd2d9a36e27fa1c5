"""Molecules: SMILES to graphs, missing answers, rows that do not parse, published figures."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from secure_fgl.data import published_shape, read_dataset, spec_of
from secure_fgl.data.sources import molecules
from secure_fgl.data.sources._shared import files
from secure_fgl.data.sources.molecules import FEATURES, NAMES, QUESTIONS, molecule_graph

# molecules that RDKit reads, and positives and missing answers of the first question
FIGURES = {
    "bace": (1513, 691, 0),
    "bbbp": (2039, 1560, 0),
    "clintox": (1480, 1386, 0),
    "sider": (1427, 743, 0),
    "tox21": (7823, 309, 566),
}


def properties(row):
    """Column of each property within its block."""
    ends = np.cumsum(list(files.WIDTHS.values()))
    blocks = np.split(np.asarray(row), ends[:-1])
    assert [block.sum() for block in blocks] == [1] * 9
    return dict(zip(files.WIDTHS, (int(block.argmax()) for block in blocks), strict=True))


def write(root, rows, head="smiles,p_np", name="bbbp"):
    path = root / "moleculenet" / f"{name}.csv"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([head, *rows]) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def four_rows(monkeypatch):
    """The sets under their names, but of four rows."""
    for name, shape in NAMES.items():
        monkeypatch.setitem(NAMES, name, shape._replace(records=4))


def test_atoms_are_nodes_and_bonds_are_edges():
    edges, x = molecule_graph("C[N+](C)(C)CC(=O)[O-]")
    assert (x.shape, x.dtype) == ((8, FEATURES), np.float32)
    assert edges.tolist() == [[0, 1, 1, 1, 4, 5, 5], [1, 2, 3, 4, 5, 6, 7]]
    assert (edges.dtype, FEATURES) == (np.int64, 50)
    assert properties(x[0]) == {
        "element": files.ELEMENTS.index("C"),
        "neighbours": 4,
        "charge": 2,
        "hydrogens": 3,
        "chirality": 0,
        "radical": 0,
        "hybridisation": files.HYBRIDISATIONS.index("SP3"),
        "aromatic": 0,
        "in a ring": 0,
    }
    assert properties(x[1])["charge"] == 3
    assert properties(x[7])["charge"] == 1


@pytest.mark.parametrize(
    ("smiles", "atom", "name", "column"),
    [
        ("c1ccccc1", 0, "aromatic", 1),
        ("C1CCCCC1", 0, "aromatic", 0),
        ("C1CCCCC1", 0, "in a ring", 1),
        ("N[C@@H](C)O", 1, "chirality", 1),
        ("N[C@H](C)O", 1, "chirality", 2),
        ("[CH3]", 0, "radical", 1),
        ("[Gd+3]", 0, "charge", 4),
        ("[C-4]", 0, "charge", 0),
        ("[Gd+3]", 0, "element", 15),
        ("*C", 0, "element", 15),
        ("C#N", 0, "hybridisation", 1),
        ("FS(F)(F)(F)(F)F", 1, "neighbours", 6),
        ("[ReH9-2]", 0, "neighbours", 6),
        ("C", 0, "hydrogens", 4),
        ("BrI", 0, "element", 12),
    ],
)
def test_what_an_atom_s_columns_say(smiles, atom, name, column):
    assert properties(molecule_graph(smiles)[1][atom])[name] == column


def test_parts_that_are_not_bonded_are_one_graph():
    edges, x = molecule_graph("[Na+].[Cl-]")
    assert (edges.shape, len(x)) == ((2, 0), 2)


@pytest.mark.parametrize("smiles", ["C1CC", "not a molecule", "", "C(C)(C)(C)(C)C"])
def test_what_rdkit_cannot_read_is_an_error_that_does_not_quote_it(smiles, capfd):
    with pytest.raises(ValueError, match="no molecule") as refused:
        molecule_graph(smiles)
    assert not smiles or smiles not in str(refused.value)
    assert capfd.readouterr() == ("", "")


def test_without_rdkit_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "rdkit", None)
    files._library.cache_clear()
    with pytest.raises(ImportError, match=r"secure-fgl\[data\]"):
        molecule_graph("C")
    files._library.cache_clear()


@pytest.mark.usefixtures("four_rows")
def test_a_table_becomes_graphs_and_an_empty_cell_a_missing_answer(tmp_path):
    rows = ["CO,1,0", "c1ccccc1,,1", '"[Na+].[Cl-]",0.0,1.0', "N,0,"]
    write(tmp_path, rows, "smiles,FDA_APPROVED,CT_TOX", "clintox")
    graphs = read_dataset("clintox", tmp_path)
    assert (graphs.multilabel, graphs.classes, graphs.y.dtype) == (True, 2, np.float32)
    np.testing.assert_array_equal(graphs.y, [[1, 0], [np.nan, 1], [0, 1], [0, np.nan]])
    assert graphs.sizes.tolist() == [2, 6, 2, 1]
    assert graphs.edges.tolist() == [[0, 2, 2, 3, 4, 5, 6], [1, 3, 7, 4, 5, 6, 7]]
    np.testing.assert_array_equal(graphs.x[:2].toarray(), molecule_graph("CO")[1])


@pytest.mark.usefixtures("four_rows")
def test_a_row_that_does_not_parse_is_dropped_with_its_answer(tmp_path, monkeypatch):
    write(tmp_path, ["CO,1", "C1CC,1", "CC,0", "N,1"])
    with pytest.raises(ValueError, match="SMILES that RDKit can read"):
        read_dataset("bbbp", tmp_path)
    monkeypatch.setattr(molecules, "MOST_DROPPED", 0.25)
    graphs = read_dataset("bbbp", tmp_path)
    assert graphs.sizes.tolist() == [2, 2, 1]
    assert graphs.y.tolist() == [[1], [0], [1]]
    assert graphs.records <= published_shape("bbbp").records


@pytest.mark.usefixtures("four_rows")
def test_other_columns_and_another_order_are_no_matter(tmp_path):
    head = "class,pIC50,smiles,scaffold_split"
    write(tmp_path, ["1,9.15,CO,Train", "0,2,CC,Test", "1,,N,Train", "0,0,O,Train"], head, "bace")
    assert read_dataset("bace", tmp_path).y.tolist() == [[1], [0], [1], [0]]


@pytest.mark.usefixtures("four_rows")
@pytest.mark.parametrize(
    ("rows", "head"),
    [
        (["CO,1"] * 3, "smiles,p_np"),
        (["CO,1"] * 5, "smiles,p_np"),
        (["CO,1", "CO,secret", "CO,1", "CO,1"], "smiles,p_np"),
        (["CO,1", "CO,2", "CO,1", "CO,1"], "smiles,p_np"),
        (["CO,1", "CO", "CO,1", "CO,1"], "smiles,p_np"),
        (["CO,1", "CO,1,1", "CO,1", "CO,1"], "smiles,p_np"),
        (["CO,1"] * 4, "smile,p_np"),
        (["CO,1"] * 4, "smiles,label"),
        ([], ""),
        (["CO,1", '"CO,1', "CO,1", "CO,1"], "smiles,p_np"),
    ],
)
def test_another_table_under_the_name_is_refused(tmp_path, rows, head):
    path = write(tmp_path, rows, head)
    with pytest.raises(ValueError, match=r"not the published set|cannot be read") as refused:
        read_dataset("bbbp", tmp_path)
    told = [str(refused.value), repr(refused.value.__cause__), str(refused.value.__cause__)]
    assert str(path) in told[0]
    assert not any("secret" in text for text in told)
    hidden = refused.value.__suppress_context__  # or a traceback would quote the cell
    assert hidden or refused.value.__context__ is None


@pytest.mark.usefixtures("four_rows")
def test_another_encoding_is_refused(tmp_path):
    write(tmp_path, []).write_bytes(b"smiles,p_np\n\xff\xfe,1\n")
    with pytest.raises(ValueError, match="cannot be read"):
        read_dataset("bbbp", tmp_path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"moleculenet/bbbp\.csv"):
        read_dataset("bbbp", tmp_path)


def test_they_take_no_options():
    with pytest.raises(ValueError, match="takes no options"):
        spec_of("bbbp", clients=3, options={"seed": 1})


def test_regressions_have_no_name():
    assert set(NAMES) == set(QUESTIONS) == {*FIGURES, "hiv"}
    assert [len(QUESTIONS[name]) for name in sorted(NAMES)] == [1, 1, 2, 1, 27, 12]
    assert all(shape.classes == len(QUESTIONS[name]) for name, shape in NAMES.items())


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.long if n == "tox21" else ()) for n in FIGURES]
)
def test_the_published_figures(name, data_root):
    graphs = read_dataset(name, data_root)
    read, positive, missing = FIGURES[name]
    assert abs(graphs.records - read) <= 2  # a row or two between releases of RDKit
    assert graphs.y.shape == (graphs.records, len(QUESTIONS[name]))
    assert abs(np.nansum(graphs.y[:, 0]) - positive) <= 2
    assert abs(np.isnan(graphs.y[:, 0]).sum() - missing) <= 2
    assert graphs.x.shape == (graphs.sizes.sum(), FEATURES)
    assert (np.diff(graphs.x.indptr) == 9).all()
    member = np.repeat(np.arange(graphs.records), graphs.sizes)
    assert (member[graphs.edges[0]] == member[graphs.edges[1]]).all()


@pytest.mark.long
def test_the_published_figures_of_hiv(data_root):
    graphs = read_dataset("hiv", data_root)
    assert abs(graphs.records - 41120) <= 5
    assert abs(graphs.y.sum() - 1443) <= 5
