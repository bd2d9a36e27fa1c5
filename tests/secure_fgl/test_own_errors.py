"""What is wrong with a file is named by file, row and column, and never by its value."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path

import numpy as np
import pytest

from secure_fgl.data.own import OwnDataError
from secure_fgl.reasons import explain
from tests.secure_fgl.own_tools import (
    EDGES,
    GRAPH,
    MOLECULES,
    NODE,
    NODES,
    RATING,
    RATINGS,
    SECRET,
    load,
    site,
    spec,
    to_parquet,
)

HEAD = "id,label,age,income\n"


def told(caught: pytest.ExceptionInfo[OwnDataError]) -> str:
    """All that the command line would print, tracebacks included."""
    error = caught.value
    return "\n".join([*explain(error), *traceback.format_exception(error, chain=True)])


NODE_FILES = [
    # file, its text, where the error points, and a word of what it says
    ("nodes", f"{HEAD},fine,1,2\n", "line 2", "id", "missing"),
    ("nodes", f"{HEAD}a,fine,1,2\n  ,fine,1,2\n", "line 3", "id", "missing"),
    (
        "nodes",
        f"{HEAD}a,fine,1,2\n{SECRET},fine,1,2\n{SECRET},fine,1,2\n",
        "line 4",
        "id",
        "earlier",
    ),
    ("nodes", f"{HEAD}a,fine,1,2\n\nb,fine,1,2\n", "line 3", "id", "missing"),
    ("nodes", f"{HEAD}a,{SECRET},1,2\n", "line 2", "label", "not in spec.yaml"),
    ("nodes", f"{HEAD}a,fine,1,2\nb,fine,{SECRET},2\n", "line 3", "age", "not a number"),
    ("nodes", f"{HEAD}a,fine,1,2\nb,fine,7731_0,2\n", "line 3", "age", "not a number"),
    ("nodes", f"{HEAD}a,fine,1,2\nb,fine,,2\n", "line 3", "age", "missing"),
    ("nodes", f"{HEAD}a,fine,1,nan\n", "line 2", "income", "finite"),
    ("nodes", f"{HEAD}a,fine,1,2\nb,fine,1,-inf\n", "line 3", "income", "finite"),
    ("nodes", f"{HEAD}a,fine,1,7.731e39\n", "line 2", "income", "too large"),
    ("nodes", f"{HEAD}a,fine,1\n", "line 2", "", "3 values"),
    ("nodes", f"{HEAD}a,fine,1,2\nb,fine,1,2,{SECRET}\n", "line 3", "", "5 values"),
    ("nodes", f'{HEAD}a,"fi\nne",1,2\n', "line 2", "", "quotation mark"),
    ("nodes", "id,label,age\na,fine,1\n", "", "income", "missing"),
    ("nodes", "id;label;age;income\na;fine;1;2\n", "", "id", "missing"),
    ("nodes", "id,label,age,income,age\na,fine,1,2,3\n", "", "age", "two columns"),
    ("nodes", "", "", "", "empty"),
    ("nodes", "\n\n", "", "", "empty"),
    ("nodes", HEAD, "", "", "no node"),
    ("nodes", f"{HEAD}a,fine,1,2\nb,Zürich,1,2\n".encode("latin-1"), "line 3", "", "UTF-8"),
    ("nodes", NODES.encode("utf-16"), "line 1", "", "UTF-8"),
    ("edges", f"source,target\na,b\na,{SECRET}\n", "line 3", "target", "no node has this id"),
    ("edges", f"source,target\n{SECRET},b\n", "line 2", "source", "no node has this id"),
    ("edges", "source,target\na,\n", "line 2", "target", "missing"),
    ("edges", "source\na\n", "", "target", "missing"),
    ("edges", "", "", "", "empty"),
    ("nodes", f"{HEAD[:-1]},split\na,fine,1,2,{SECRET}\n", "line 2", "split", "not known"),
    ("nodes", f"{HEAD[:-1]},split\na,,1,2,train\n", "line 2", "split", "without a label"),
    ("nodes", f"{HEAD[:-1]},split\na,,1,2,test\n", "line 2", "split", "without a label"),
]


@pytest.mark.parametrize(("file", "text", "row", "column", "word"), NODE_FILES)
def test_a_node_file_s_error_names_its_place(
    tmp_path: Path, file: str, text: str, row: str, column: str, word: str
) -> None:
    folder = site(tmp_path, **{"nodes": NODES, "edges": EDGES, file: text})
    with pytest.raises(OwnDataError, match=word) as caught:
        load(folder, spec(NODE))
    assert (caught.value.path.name, caught.value.row) == (f"{file}.csv", row)
    assert caught.value.column == column
    assert (row in str(caught.value)) and (column in str(caught.value))
    assert SECRET not in told(caught)
    assert "7731" not in told(caught)
    assert "0xfc" not in told(caught)  # a byte of the text, as the decoder quotes it


OTHER_FILES = [
    (GRAPH, "smiles,active,toxic\nCCO,1,0\nC1CC,0,1\n", "line 3", "smiles", "not a molecule"),
    (GRAPH, f"smiles,active,toxic\n{SECRET},1,0\n", "line 2", "smiles", "not a molecule"),
    (GRAPH, "smiles,active,toxic\n,1,0\n", "line 2", "smiles", "missing"),
    (GRAPH, "smiles,active,toxic\nCCO,1,0\nCCO,1,7731\n", "line 3", "toxic", "neither 0 nor 1"),
    (GRAPH, f"smiles,active,toxic\nCCO,1,{SECRET}\n", "line 2", "toxic", "not a number"),
    (GRAPH, "smiles,active,toxic\nCCO,1,inf\n", "line 2", "toxic", "finite"),
    (GRAPH, "smiles,active\nCCO,1\n", "", "toxic", "missing"),
    (GRAPH, "smiles,active,toxic\n", "", "", "no molecule"),
    (RATING, "user,item,rating\n0,1,3\n10,1,3\n", "line 3", "user", "not below users"),
    (RATING, "user,item,rating\n-1,1,3\n", "line 2", "user", "not below users"),
    (RATING, "user,item,rating\n0,7731,3\n", "line 2", "item", "not below items"),
    (RATING, f"user,item,rating\n0,{SECRET},3\n", "line 2", "item", "not a whole number"),
    (RATING, "user,item,rating\n0,1.5,3\n", "line 2", "item", "not a whole number"),
    (RATING, "user,item,rating\n0,,3\n", "line 2", "item", "missing"),
    (RATING, "user,item,rating\n0,1,3\n0,2,7731\n", "line 3", "rating", "off the scale"),
    (RATING, "user,item,rating\n0,1,0.5\n", "line 2", "rating", "off the scale"),
    (RATING, "user,item,rating\n0,1,nan\n", "line 2", "rating", "finite"),
    (RATING, "user,item,rating\n0,1,3\n1,1,3\n0,1,4\n", "line 4", "item", "earlier row"),
    (RATING, "user,item\n0,1\n", "", "rating", "missing"),
    (RATING, "user,item,rating\n", "", "", "no rating"),
]


@pytest.mark.parametrize(("base", "text", "row", "column", "word"), OTHER_FILES)
def test_molecules_and_ratings_do_so_too(
    tmp_path: Path,
    base: dict[str, object],
    text: str,
    row: str,
    column: str,
    word: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    stem = "molecules" if base is GRAPH else "ratings"
    folder = site(tmp_path, **{stem: text})
    with pytest.raises(OwnDataError, match=word) as caught:
        load(folder, spec(base))
    assert (caught.value.path.name, caught.value.row) == (f"{stem}.csv", row)
    assert caught.value.column == column
    printed = capfd.readouterr()  # RDKit likes to print the SMILES
    for text in (told(caught), printed.out, printed.err):
        assert SECRET not in text
        assert "7731" not in text
        assert "C1CC" not in text


def test_what_the_reader_of_smiles_says_is_not_passed_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from secure_fgl.data.sources import molecules

    def quoting(smiles: str) -> None:
        raise ValueError(f"cannot read {smiles}")

    monkeypatch.setattr(molecules, "molecule_graph", quoting)
    with pytest.raises(OwnDataError) as caught:
        load(site(tmp_path, molecules=f"smiles,active,toxic\n{SECRET},1,0\n"), spec(GRAPH))
    assert SECRET not in told(caught)


@pytest.mark.parametrize(
    ("changes", "row", "column", "word"),
    [
        ({"id": ["a", None, "c"]}, "row 1", "id", "missing"),
        ({"id": ["a", "b", "a"]}, "row 2", "id", "earlier"),
        ({"id": [1.0, 2.0, 3.0]}, "", "id", "neither text nor whole"),
        ({"age": [1.0, None, 2.0]}, "row 1", "age", "missing"),
        ({"age": [1.0, 2.0, np.nan]}, "row 2", "age", "finite"),
        ({"age": [SECRET, "1", "2"]}, "", "age", "does not hold numbers"),
        ({"label": ["fine", "fine", SECRET]}, "row 2", "label", "not in spec.yaml"),
        ({"label": [0.0, 1.0, 0.0]}, "", "label", "neither text nor whole"),
        ({"age": None}, "", "age", "missing"),
    ],
)
def test_parquet_places_are_rows_from_0(
    tmp_path: Path, changes: dict[str, object], row: str, column: str, word: str
) -> None:
    columns = {
        "id": ["a", "b", "c"],
        "label": ["fine", "risky", None],
        "age": [1.0, 2.0, 3.0],
        "income": [1, 2, 3],
    }
    folder = site(tmp_path, edges=EDGES)
    given = {k: v for k, v in {**columns, **changes}.items() if v is not None}
    to_parquet(folder / "nodes.parquet", given)
    with pytest.raises(OwnDataError, match=word) as caught:
        load(folder, spec(NODE))
    assert (caught.value.path.name, caught.value.row) == ("nodes.parquet", row)
    assert caught.value.column == column
    assert SECRET not in told(caught)


@pytest.mark.parametrize("data", [b"", b"PAR1", b"PAR1" + SECRET.encode() * 9 + b"PAR1", b"a,b\n"])
def test_a_damaged_parquet_file_is_refused(tmp_path: Path, data: bytes) -> None:
    folder = site(tmp_path, edges=EDGES)
    (folder / "nodes.parquet").write_bytes(data)
    with pytest.raises(OwnDataError, match=r"nodes\.parquet") as caught:
        load(folder, spec(NODE))
    assert SECRET not in told(caught)


def test_whole_numbers_beyond_64_bits_are_refused_in_parquet(tmp_path: Path) -> None:
    folder = site(tmp_path)
    to_parquet(
        folder / "ratings.parquet",
        {"user": np.array([2**64 - 1], np.uint64), "item": [1], "rating": [3.0]},
    )
    with pytest.raises(OwnDataError, match="too large"):
        load(folder, spec(RATING))


def test_the_line_is_right_far_down_in_a_large_file(tmp_path: Path) -> None:
    rows = 400_000
    lines = ["source,target", *(["a,b"] * rows), f"a,{SECRET}", "a,b"]
    folder = site(tmp_path, nodes=NODES, edges="\r\n".join(lines))
    with pytest.raises(OwnDataError) as caught:
        load(folder, spec(NODE))
    assert caught.value.row == f"line {rows + 2}"
    many = "\n".join(["user,item,rating", *(f"0,{i},3" for i in range(rows)), "0,x,3"])
    folder = site(tmp_path, ratings=many)
    with pytest.raises(OwnDataError) as caught:
        load(folder, spec(RATING, items=rows))
    assert caught.value.row == f"line {rows + 2}"


@pytest.mark.parametrize(
    ("files", "word"),
    [
        ({}, "no nodes.csv"),
        ({"edges": EDGES}, "edges.csv is there without a nodes.csv"),
        ({"nodes": NODES}, "without an edges.csv"),
    ],
)
def test_a_missing_file_is_named(tmp_path: Path, files: dict[str, str], word: str) -> None:
    with pytest.raises(OwnDataError, match=word):
        load(site(tmp_path, **files), spec(NODE))


@pytest.mark.parametrize("base", [GRAPH, RATING])
def test_another_task_s_files_are_not_taken(tmp_path: Path, base: dict[str, object]) -> None:
    with pytest.raises(OwnDataError, match="there is no"):
        load(site(tmp_path, nodes=NODES, edges=EDGES), spec(base))


def test_two_files_for_one_thing_are_refused(tmp_path: Path) -> None:
    folder = site(tmp_path, nodes=NODES, edges=EDGES)
    to_parquet(folder / "edges.parquet", {"source": ["a"], "target": ["b"]})
    with pytest.raises(OwnDataError, match="both there"):
        load(folder, spec(NODE))
    (folder / "edges.parquet").unlink()
    (folder / "data.pt").touch()
    with pytest.raises(OwnDataError, match="both there"):
        load(folder, spec(NODE))


def test_no_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OwnDataError, match="no such folder"):
        load(tmp_path / "nobody", spec(NODE))


def test_without_pyarrow_the_error_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(OwnDataError) as caught:
        load(site(tmp_path, nodes=NODES, edges=EDGES), spec(NODE))
    assert "secure-fgl[data]" in caught.value.fix


@pytest.mark.parametrize("stem", ["nodes", "molecules", "ratings"])
def test_a_file_that_asks_for_the_column_gets_none(tmp_path: Path, stem: str) -> None:
    base = {"nodes": NODE, "molecules": GRAPH, "ratings": RATING}[stem]
    folder = site(tmp_path, nodes=NODES, edges=EDGES, molecules=MOLECULES, ratings=RATINGS)
    with pytest.raises(OwnDataError, match="the column is missing") as caught:
        load(folder, spec(base, split="column"))
    assert caught.value.column == "split"


@pytest.mark.parametrize("stem", ["nodes", "molecules", "ratings"])
def test_more_training_records_than_the_bound_are_refused(tmp_path: Path, stem: str) -> None:
    base = {"nodes": NODE, "molecules": GRAPH, "ratings": RATING}[stem]
    folder = site(tmp_path, nodes=NODES, edges=EDGES, molecules=MOLECULES, ratings=RATINGS)
    load(folder, spec(base, split=[1, 0, 0], records=4))
    with pytest.raises(OwnDataError, match="more training records") as caught:
        load(folder, spec(base, split=[1, 0, 0], records=1))
    assert "3" not in str(caught.value).replace(str(tmp_path), "")  # the count is the site's secret
