"""A saved `Data` is read without running what its writer may have put into it."""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import traceback
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch_geometric.data import Data, HeteroData
from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr
from torch_geometric.data.storage import GlobalStorage

from secure_fgl.data.own import OwnDataError, Tally
from secure_fgl.data.own._saved import read_saved
from tests.secure_fgl.own_tools import EDGES, GRAPH, NODE, NODES, RATING, load, same, site, spec

TRUE, FALSE = True, False
PARTS: list[Any] = [Data, DataEdgeAttr, DataTensorAttr, GlobalStorage]


def allowed() -> Any:
    """Let torch read what `read_saved` lets it, and take away no more than that."""
    known = torch.serialization.get_safe_globals()
    return torch.serialization.safe_globals([part for part in PARTS if part not in known])


def data(**changes: Any) -> Data:
    """The graph of NODES and EDGES, in both directions as PyG has it."""
    tensors = {
        "x": torch.tensor([[1, 2.5], [3, 4], [5, 6]]),
        "edge_index": torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]),
        "y": torch.tensor([0, 1, -1]),
        **changes,
    }
    return Data(**{k: v for k, v in tensors.items() if v is not None})


def saved(root: Path, content: Any) -> Path:
    folder = site(root)
    torch.save(content, folder / "data.pt")
    return folder


@pytest.mark.parametrize("as_dict", [False, True])
def test_a_saved_data_is_the_record_that_the_tables_are(tmp_path: Path, as_dict: bool) -> None:
    content = data().to_dict() if as_dict else data()
    found = load(saved(tmp_path / "saved", content), spec(NODE))
    assert same(found, load(site(tmp_path / "tables", nodes=NODES, edges=EDGES), spec(NODE)))


def test_both_directions_are_counted(tmp_path: Path) -> None:
    tally = Tally()
    load(saved(tmp_path, data()), spec(NODE), tally)
    assert (tally.self_loops, tally.repeated_edges, tally.both_directions) == (0, 0, 2)


def test_masks_are_the_roles(tmp_path: Path) -> None:
    masks = {
        "train_mask": torch.tensor([TRUE, FALSE, FALSE]),
        "val_mask": torch.tensor([FALSE, FALSE, FALSE]),
        "test_mask": torch.tensor([FALSE, TRUE, FALSE]),
    }
    found = load(saved(tmp_path, data(**masks)), spec(NODE, split="column"))
    assert [found.train.tolist(), found.val.tolist(), found.test.tolist()] == [
        mask.tolist() for mask in masks.values()
    ]


@pytest.mark.parametrize("layout", ["coo", "csr"])
def test_sparse_features_stay_sparse(tmp_path: Path, layout: str) -> None:
    x = data().x
    sparse = x.to_sparse_coo() if layout == "coo" else x.to_sparse_csr()
    found = load(saved(tmp_path, data(x=sparse)), spec(NODE))
    assert sp.issparse(found.x)
    assert found.x.format == "csr"
    assert found.x.dtype == np.float32
    np.testing.assert_array_equal(found.x.toarray(), x.numpy())


def test_saved_graphs(tmp_path: Path) -> None:
    graphs = [
        data(y=torch.tensor([[1.0, float("nan")]])),
        data(y=torch.tensor([0.0, 1.0])).to_dict(),
    ]
    found = load(saved(tmp_path, graphs), spec(GRAPH, features=2))
    assert found.sizes.tolist() == [3, 3]
    assert found.edges.tolist() == [[0, 1, 3, 4], [1, 2, 4, 5]]
    np.testing.assert_array_equal(found.y, np.array([[1, np.nan], [0, 1]], np.float32))
    plain = [data(y=torch.tensor(1)), data(y=torch.tensor([0]))]
    wanted = spec(GRAPH, features=2, multilabel=False)
    found = load(saved(tmp_path, plain), wanted)
    assert (found.y.tolist(), found.y.dtype) == ([1, 0], np.int64)


# --- what is refused --------------------------------------------------------------------------


class Payload:
    """Makes a folder when an ordinary unpickler meets it."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.place),)


def hostile(kind: str, place: Path) -> bytes:
    """A `data.pt` whose load would make `place`."""
    file = io.BytesIO()
    if kind == "bare pickle":
        file.write(pickle.dumps(Payload(place), protocol=2))
    elif kind == "legacy":
        torch.save(Payload(place), file, _use_new_zipfile_serialization=False)
    elif kind == "archive":
        torch.save(Payload(place), file)
    elif kind == "in a Data":
        made = data()
        made.extra = Payload(place)
        torch.save(made, file)
    elif kind == "in a dict":
        torch.save({**data().to_dict(), "extra": Payload(place)}, file)
    else:  # a list of graphs
        torch.save([data(), Payload(place)], file)
    return file.getvalue()


KINDS = ["bare pickle", "legacy", "archive", "in a Data", "in a dict", "in a list"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_malicious_file_is_refused_and_not_run(tmp_path: Path, kind: str) -> None:
    place = tmp_path / "it-ran"
    folder = site(tmp_path)
    (folder / "data.pt").write_bytes(hostile(kind, place))
    for wanted in (spec(NODE), spec(GRAPH, features=2)):
        with pytest.raises(OwnDataError, match="not a saved Data of tensors alone") as caught:
            load(folder, wanted)
        assert "Weights" not in "".join(traceback.format_exception(caught.value))
    assert not place.exists()
    # The control: the same bytes do run under an ordinary load, so the test can fail.
    with contextlib.suppress(RuntimeError):  # a bare pickle runs, and is no archive afterwards
        torch.load(folder / "data.pt", weights_only=False)
    assert place.is_dir()


@pytest.mark.parametrize("own", [[], [Data, GlobalStorage]])  # PyG allows its own
def test_nothing_else_is_allowed_afterwards(tmp_path: Path, own: list[Any]) -> None:
    folder, before = saved(tmp_path, data()), torch.serialization.get_safe_globals()
    torch.serialization.clear_safe_globals()
    try:
        torch.serialization.add_safe_globals(own)
        load(folder, spec(NODE))
        assert set(torch.serialization.get_safe_globals()) == set(own)
    finally:
        torch.serialization.clear_safe_globals()
        torch.serialization.add_safe_globals(before)


@pytest.mark.parametrize("cut", [0, 1, 100, -1])
def test_a_damaged_file_is_refused(tmp_path: Path, cut: int) -> None:
    folder = saved(tmp_path, data())
    path = folder / "data.pt"
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(OwnDataError, match="not a saved Data"):
        load(folder, spec(NODE))


def test_an_archive_of_something_else_is_refused(tmp_path: Path) -> None:
    folder = site(tmp_path)
    with zipfile.ZipFile(folder / "data.pt", "w") as archive:
        archive.writestr("word/document.xml", "x")
    with pytest.raises(OwnDataError, match="not a saved Data"):
        load(folder, spec(NODE))


def coo(at: list[list[int]], shape: tuple[int, ...], *, sorted_already: bool) -> torch.Tensor:
    ones = torch.ones(len(at[0]))
    return torch.sparse_coo_tensor(
        torch.tensor(at), ones, shape, check_invariants=False, is_coalesced=sorted_already
    )


def csr(rows: list[int], columns: list[int]) -> torch.Tensor:
    return torch.sparse_csr_tensor(
        torch.tensor(rows), torch.tensor(columns), torch.ones(3), (3, 2), check_invariants=False
    )


FAR = 1 << 40
FORGED: dict[str, dict[str, torch.Tensor]] = {
    "x writes beyond its rows": {"x": coo([[0, FAR], [0, 1]], (3, 2), sorted_already=True)},
    "x writes before itself": {"x": coo([[0, -FAR], [0, 1]], (3, 2), sorted_already=False)},
    "x is said to be sorted": {"x": coo([[2, 0], [0, 1]], (3, 2), sorted_already=True)},
    "x has far columns": {"x": csr([0, 1, 2, 3], [0, 1, FAR])},
    "x has far rows": {"x": csr([0, 1, 2, FAR], [0, 1, 0])},
    "y writes beyond itself": {"y": coo([[FAR]], (2,), sorted_already=True)},
}


@pytest.mark.parametrize("kind", FORGED)
def test_a_sparse_tensor_that_reaches_outside_itself_is_refused(tmp_path: Path, kind: str) -> None:
    with torch.sparse.check_sparse_tensor_invariants(enable=False):
        folder = saved(tmp_path, data(**FORGED[kind]))
        path = folder / "data.pt"
        with allowed():
            torch.load(path, weights_only=True)  # the control: torch itself looks at nothing
    for wanted in (spec(NODE), spec(GRAPH, features=2)):
        with pytest.raises(OwnDataError, match="not a saved Data of tensors alone"):
            load(folder, wanted)
    assert not torch.sparse.check_sparse_tensor_invariants.is_enabled()


def nested() -> torch.Tensor:
    return torch.nested.nested_tensor([torch.ones(2), torch.ones(1)])


@pytest.mark.parametrize(
    ("name", "forged", "word"),
    [
        ("y", nested(), "neither a dense"),
        ("x", nested(), "neither a dense"),
        ("x", torch.ones(1, 1).expand(1 << 20, 2), "more numbers than the file holds"),
        ("x", coo([[0], [0]], (FAR, 2), sorted_already=True), "more numbers than the file holds"),
        ("x", torch.ones(3, 2).to_sparse_csc(), "neither a dense"),
        ("x", torch.tensor(1.0).to_sparse_coo(), "shape of spec.yaml"),
        ("y", torch.ones(1, dtype=torch.long).expand(1 << 20), "more numbers than the file holds"),
    ],
)
def test_a_tensor_that_is_not_what_it_states_is_refused(
    tmp_path: Path, name: str, forged: torch.Tensor, word: str
) -> None:
    folder = saved(tmp_path, data(**{name: forged}))
    with pytest.raises(OwnDataError, match=word) as caught:
        load(folder, spec(NODE))
    assert caught.value.column == name


def test_answers_are_dense(tmp_path: Path) -> None:
    content = [data(y=torch.tensor([1.0, 0.0]).to_sparse_coo())]
    with pytest.raises(OwnDataError, match="not a dense tensor"):
        load(saved(tmp_path, content), spec(GRAPH, features=2))


def test_an_archive_that_grows_is_refused(tmp_path: Path) -> None:
    folder = saved(tmp_path, data(extra=torch.zeros(1 << 20)))
    path, small = folder / "data.pt", tmp_path / "small.pt"
    with zipfile.ZipFile(path) as whole, zipfile.ZipFile(small, "w", zipfile.ZIP_DEFLATED) as out:
        for entry in whole.namelist():
            out.writestr(entry, whole.read(entry))
    assert small.stat().st_size < path.stat().st_size / 100
    with allowed():
        torch.load(small, weights_only=True)  # the control: torch reads it
    small.replace(path)
    with pytest.raises(OwnDataError, match="not a saved Data"):
        load(folder, spec(NODE))


NAN = float("nan")


def roles(mask: torch.Tensor) -> dict[str, Any]:
    return dict.fromkeys(("train_mask", "val_mask", "test_mask"), mask)


WRONG: list[tuple[dict[str, Any], str, str, str]] = [
    ({"x": None}, "", "x", "missing"),
    ({"y": None}, "", "y", "missing"),
    ({"edge_index": None}, "", "edge_index", "missing"),
    ({"x": torch.ones(3, 3)}, "", "x", "shape of spec.yaml"),
    ({"x": torch.ones(0, 2)}, "", "x", "shape of spec.yaml"),
    ({"x": torch.tensor([[1, 2], [3, NAN], [5, 6]])}, "row 1", "income", "finite"),
    ({"x": torch.full((3, 2), 1e300, dtype=torch.float64)}, "row 0", "age", "finite"),
    ({"x": torch.tensor([[1, 2], [3, NAN], [5, 6]]).to_sparse_coo()}, "", "x", "finite"),
    ({"x": torch.ones(3, 2, dtype=torch.complex64)}, "", "x", "plain tensor"),
    ({"x": [[1.0, 2.0]] * 3}, "", "x", "plain tensor"),
    ({"x": torch.nn.Parameter(torch.ones(3, 2))}, "", "x", "plain tensor"),
    ({"edge_index": torch.tensor([[0, 1], [1, 3]])}, "edge 1", "edge_index", "not a row"),
    ({"edge_index": torch.tensor([[0, -1], [1, 1]])}, "edge 1", "edge_index", "not a row"),
    ({"edge_index": torch.tensor([0, 1])}, "", "edge_index", "shape"),
    ({"edge_index": torch.tensor([[0.0, 1.0], [1.0, 2.0]])}, "", "edge_index", "whole numbers"),
    ({"y": torch.tensor([0, 2, 0])}, "row 1", "y", "not a class"),
    ({"y": torch.tensor([0, -2, 0])}, "row 1", "y", "not a class"),
    ({"y": torch.tensor([0.0, 1.0, 0.0])}, "", "y", "whole numbers"),
    ({"y": torch.tensor([0, 1])}, "", "y", "one label a record"),
    ({"train_mask": torch.tensor([TRUE, FALSE, FALSE])}, "", "val_mask", "missing"),
    (roles(torch.ones(3, 2) > 0), "", "train_mask", "one truth value"),
    (roles(torch.tensor([TRUE, FALSE, FALSE])), "row 0", "train_mask", "two roles"),
    (roles(torch.tensor([FALSE, FALSE, TRUE])), "row 2", "train_mask", "without a label"),
]


@pytest.mark.parametrize(("changes", "row", "column", "word"), WRONG)
def test_a_wrong_tensor_is_named(
    tmp_path: Path, changes: dict[str, Any], row: str, column: str, word: str
) -> None:
    with pytest.raises(OwnDataError, match=word) as caught:
        load(saved(tmp_path, data(**changes)), spec(NODE))
    assert (caught.value.row, caught.value.column) == (row, column)


@pytest.mark.parametrize(
    ("content", "base", "word"),
    [
        ([1, 2], {**GRAPH, "features": 2}, "graph 0: this is no Data"),
        ([], {**GRAPH, "features": 2}, "cannot use"),
        (torch.ones(2), NODE, "no Data"),
        (data(), {**GRAPH, "features": 2}, "cannot use"),
        (data(), RATING, "cannot use"),
        (
            [data(y=torch.tensor([1.0, 0.5]))],
            {**GRAPH, "features": 2},
            "graph 0, entry 1.*neither 0",
        ),
        ([data(y=torch.tensor([1.0]))], {**GRAPH, "features": 2}, "graph 0, column 'y'.*one entry"),
        (
            [data(y=torch.tensor([0])), data(y=torch.tensor([-1]))],
            {**GRAPH, "features": 2, "multilabel": False},
            "graph 1, column 'y': the label is missing",
        ),
        ([data()], {**GRAPH, "features": 2, "split": "column"}, "no column that says"),
        ([data()], GRAPH, "gives no features"),
    ],
)
def test_what_does_not_fit_the_task_is_refused(
    tmp_path: Path, content: Any, base: dict[str, Any], word: str
) -> None:
    with pytest.raises(OwnDataError, match=word):
        load(saved(tmp_path, content), spec(base))


def test_other_objects_of_pyg_are_refused(tmp_path: Path) -> None:
    with pytest.raises(OwnDataError, match=r"not a saved Data|no Data"):
        load(saved(tmp_path, HeteroData(a={"x": torch.ones(3, 2)})), spec(NODE))


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(OwnDataError, match="cannot be read"):
        read_saved(tmp_path / "data.pt", spec(NODE), Tally())
