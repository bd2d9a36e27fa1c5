"""Raw and kept files of PyG's sets: none is unpickled, and no declared size is believed."""

from __future__ import annotations

import _pickle
import contextlib
import io
import pickle
import threading

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from secure_fgl.data import read_dataset
from secure_fgl.data.sources._shared.files import RawRefused
from secure_fgl.data.sources._shared.planetoid import read_objects
from secure_fgl.data.sources._shared.pyg_files import nothing_unpickled
from tests.secure_fgl.cli_tools import config, invoke
from tests.secure_fgl.pyg_tools import (
    PICKLED,
    SIZES,
    Planted,
    attributed,
    declare,
    planetoid,
    planetoid_parts,
    python2,
)

TOY = "pyg/Planetoid/Toy"
HUGE = 10**12


def theirs(name, folder):
    """Return what PyG's own reader makes of raw files."""
    from torch_geometric import datasets

    return getattr(datasets, name)(str(folder.parents[1]), name=folder.parent.name)[0]


@pytest.mark.parametrize(("name", "gap"), [("Toy", False), ("CiteSeer", True)])
def test_a_planetoid_set_is_read_as_pyg_reads_it(tmp_path, name, gap):
    from torch_geometric.datasets import Planetoid

    expected = theirs("Planetoid", planetoid(tmp_path / "theirs", name, gap=gap))
    folder = planetoid(tmp_path / "ours", name, gap=gap)
    graph = read_dataset(f"pyg/Planetoid/{name}", tmp_path / "ours", split="published", **SIZES)
    assert graph.records == expected.num_nodes and len(graph.edges.T) == len(graph.y)
    found = Planetoid(str(folder.parents[1]), name=name)[0]  # of what we processed
    assert sorted(found.keys()) == sorted(expected.keys())
    assert all(torch.equal(found[key], expected[key]) for key in expected.keys())  # noqa: SIM118


@pytest.mark.parametrize("protocol", [0, 2, 4])
@pytest.mark.parametrize("part", PICKLED)
def test_no_raw_file_of_planetoid_runs(tmp_path, part, protocol):
    marker = tmp_path / "ran"
    planted = {part: pickle.dumps(Planted(marker), protocol)}
    planetoid(tmp_path / "ours", **planted)
    with pytest.raises(RawRefused, match=rf"ind\.toy\.{part} is refused: .*could run") as refused:
        read_dataset(TOY, tmp_path / "ours", **SIZES)
    assert "delete the set's folder" in str(refused.value)
    assert not marker.exists()
    with contextlib.suppress(Exception):  # the control: PyG's own reader
        theirs("Planetoid", planetoid(tmp_path / "theirs", **planted))
    assert marker.exists()


def test_a_run_on_planted_files_ends_before_they_run(tmp_path):
    planetoid(tmp_path / "data", graph=pickle.dumps(Planted(tmp_path / "ran"), 2))
    sizes = ", ".join(f"{key}: {value}" for key, value in SIZES.items())
    text = f"""
algorithm: {{name: fed_avg, rounds: 1}}
data:
  name: {TOY}
  root: {tmp_path / "data"}
  options: {{{sizes}}}
  partition: {{name: louvain_balanced, clients: 5}}
"""
    said = invoke("run", config(tmp_path, text), "--out", tmp_path / "run")
    assert said.exit_code == 2 and "ind.toy.graph is refused" in said.stderr
    assert not (tmp_path / "ran").exists()


def array(shape, *, code="f4", raw=b"\0" * 16):
    """Return the pickle of an array, with whatever shape and type it declares."""
    found = python2(np.frombuffer(raw, np.float32))
    found = found.replace(b"U\x02f4", b"U" + bytes([len(code)]) + code.encode())
    return found.replace(b"K\x04\x85", b"(" + b"".join(map(whole, shape)) + b"t")


def whole(number):
    return b"J" + number.to_bytes(4, "little", signed=True)


def sparse(rows, columns):
    matrix = sp.csr_matrix(np.eye(2, 3, dtype=np.float32))
    matrix.declared = (rows, columns)
    return python2(matrix)


NAMES = (
    *(b"collections\ndefaultdict", b"numpy\ndtype", b"numpy.core.multiarray\n_reconstruct"),
    b"scipy.sparse.csr\ncsr_matrix",
)
ENDS = (
    *(b"K\x05\x85R.", b"K\x05\x85\x81.", b"}b.", b"}U\x07contentK\x01sb."),
    b"N}U\x0c__setstate__K\x01s\x86b.",
)
"""Ways to call one of the names that a file may hold, or to change what it stands for."""


def test_the_control_of_hostile_files_is_read(tmp_path):
    for number, data in enumerate([python2(np.zeros(4, np.float32)), sparse(2, 3)]):
        (tmp_path / f"{number}").write_bytes(data)
        assert read_objects(tmp_path / f"{number}").shape in ((4,), (2, 3))


@pytest.mark.parametrize(
    "data",
    [
        array((10**6, 10**6)),
        array((2, -2)),
        array((2, 2, 1)),
        array((4,), code="O8"),
        array((4,), code="V4"),
        sparse(10**9, 3),
        sparse(2, HUGE),
        sparse(3, 3),
        sparse(2, 1),
        python2([1, 2]),
        python2({(1, 2): [3]}),
        b"\x80\x02c__builtin__\ndict\n.",
        b"\x80\x02cnumpy\nndarray\n.",
        b"\x80\x02cnumpy\nndarray\nK\x05\x85R.",
        b"\x80\x02cnumpy.core.multiarray\n_reconstruct\nc__builtin__\nlist\n\x85R.",
        b"(ios\nsystem\n.",
        b"(cos\nsystem\nVtrue\no.",
        b"Pplace\n.",
        b"\x80\x02\x82\x01.",
        b"\x80\x02}}b.",
        b"\x80\x02K\x01r\xff\xff\xff\xff.",
        b"\x80\x02})" + b"\x85" * 10**6 + b"K\x01s.",
        b"\x80\x02cnumpy\nndarray\n}U\x05valueK\x01sb.",
        b"\x80\x02cnumpy\nndarray\n)\x81.",
        *[b"\x80\x02c" + name + b"\n" + end for name in NAMES for end in ENDS],
        b"\x80\x02(K\x01K\x02.",
        b"\x80\x02h\x05.",
        b"\x80\x02.",
        b"\x80\x02T\xff\xff\xff\x7fa.",
        b"",
        b"PK\x03\x04",
    ],
)
def test_files_in_no_published_form_are_refused(tmp_path, data):
    (tmp_path / "file").write_bytes(data)
    with pytest.raises(RawRefused):
        read_objects(tmp_path / "file")
    test_the_control_of_hostile_files_is_read(tmp_path)  # nothing that it changed stays


def test_one_list_may_not_stand_for_many_nodes(tmp_path):
    """A small file could say so a square of its size in edges."""
    parts = planetoid_parts()
    shared = [1, 2, 3]
    planetoid(tmp_path, graph=python2(dict.fromkeys(range(100), shared)))
    assert pickle.loads(python2({1: shared, 2: shared}))[1] == shared  # the control
    with pytest.raises(RawRefused, match="do not fit together"):
        read_dataset(TOY, tmp_path, **SIZES)
    assert len({id(ends) for ends in parts["graph"].values()}) == len(parts["graph"])


@pytest.mark.parametrize(
    ("part", "data"),
    [
        ("test.index", b"1000000000000\n"),
        ("test.index", b"-1\n"),
        ("test.index", b"9" * 5000),
        ("test.index", b"\xff\n"),
        ("graph", python2({0: [HUGE]})),
        ("graph", python2({0: [600]})),
        ("graph", python2({0: ["1"]})),
        ("graph", python2({0: (1, 2)})),
        ("graph", python2(np.zeros(4, np.float32))),
        ("allx", python2(np.zeros((4, 4), np.float32))),
        ("ally", python2(np.zeros((700, 2), np.int32))),
        ("ty", python2({})),
    ],
)
def test_parts_that_do_not_fit_are_refused(tmp_path, part, data):
    planetoid(tmp_path, **{part: data})
    with pytest.raises(RawRefused):
        read_dataset(TOY, tmp_path, **SIZES)


def test_damaged_files_raise_nothing_else(tmp_path):
    rng = np.random.default_rng(3)
    good = [python2(content) for part, content in planetoid_parts().items() if part in PICKLED]
    path, read = tmp_path / "file", 0
    for _ in range(400):
        data = bytearray(good[rng.integers(len(good))][:2000])
        for place in rng.integers(0, len(data), 3):
            data[place] = rng.integers(256)
        path.write_bytes(bytes(data))
        try:
            read_objects(path)
            read += 1
        except RawRefused:
            pass
    assert read < 400


def objects(marker):
    found = np.empty(1, object)
    found[0] = Planted(marker)
    return found


@pytest.mark.parametrize("member", ["attr_data", "labels", "adj_indices", "more"])
def test_arrays_of_objects_are_refused(tmp_path, member):
    marker = tmp_path / "ran"
    path = attributed(tmp_path / "data", **{member: objects(marker)})
    with pytest.raises(RawRefused, match="holds Python objects"):
        read_dataset("pyg/Amazon/Photo", tmp_path / "data", **SIZES)
    assert not marker.exists()
    with np.load(path, allow_pickle=True) as arrays:
        arrays[member]
    assert marker.exists()  # the control


def test_a_set_of_arrays_is_read(tmp_path):
    attributed(tmp_path)
    graph = read_dataset("pyg/Amazon/Photo", tmp_path, **SIZES)
    assert graph.edges.tolist() == [[0, 0, 1, 2], [1, 3, 2, 3]]
    assert graph.x.toarray().argmax(axis=1).tolist()[:3] == [0, 1, 2]


def twitch(root, **arrays):
    folder = root / "pyg" / "Twitch" / "DE" / "raw"
    folder.mkdir(parents=True)
    found = {
        "features": np.eye(4, 3),
        "target": np.array([0, 1, 0, 1]),
        "edges": np.array([[0, 1], [1, 2], [2, 3]]),
    }
    np.savez(folder / "DE.npz", **{**found, **arrays})
    return folder


def test_twitch_is_read_without_pickles_and_as_pyg_reads_it(tmp_path):
    expected = theirs("Twitch", twitch(tmp_path / "theirs"))
    twitch(tmp_path / "ours")
    graph = read_dataset("pyg/Twitch/DE", tmp_path / "ours", **SIZES)
    np.testing.assert_array_equal(graph.x, expected.x.numpy())
    assert graph.edges.tolist() == expected.edge_index.tolist()
    assert graph.y.tolist() == expected.y.tolist()


def test_twitch_does_not_run(tmp_path):
    marker = tmp_path / "ran"
    twitch(tmp_path / "ours", features=objects(marker))
    with pytest.raises(RawRefused, match="holds Python objects"):
        read_dataset("pyg/Twitch/DE", tmp_path / "ours", **SIZES)
    assert not marker.exists()
    with contextlib.suppress(Exception):
        theirs("Twitch", twitch(tmp_path / "theirs", features=objects(marker)))
    assert marker.exists()  # the control


@pytest.mark.parametrize("name", ["pre_transform.pt", "pre_filter.pt"])
def test_what_pyg_keeps_beside_a_processed_set_is_not_opened(tmp_path, name):
    marker = tmp_path / "ran"
    folder = planetoid(tmp_path)
    read_dataset(TOY, tmp_path, **SIZES)
    torch.save(Planted(marker), folder.parent / "processed" / name)
    assert read_dataset(TOY, tmp_path, **SIZES).records == 520
    assert not marker.exists()
    theirs("Planetoid", folder)
    assert marker.exists()  # the control


@pytest.mark.parametrize("member", ["attr_data", "labels"])
def test_arrays_that_declare_what_they_do_not_have_are_refused(tmp_path, member):
    declare(attributed(tmp_path), member, (HUGE,))
    with pytest.raises(RawRefused, match="another size than it has"):
        read_dataset("pyg/Amazon/Photo", tmp_path, **SIZES)


@pytest.mark.parametrize("shape", [(HUGE, 3), (4, HUGE), (10**6, 10**6), (-4, 3), (4,)])
def test_sparse_tables_of_other_sizes_are_refused(tmp_path, shape):
    attributed(tmp_path, attr_shape=np.array(shape))
    with pytest.raises(RawRefused):
        read_dataset("pyg/Amazon/Photo", tmp_path, **SIZES)


def test_an_archive_that_unpacks_to_too_much_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("secure_fgl.data.sources._shared.pyg_files.LIMIT", 4000)
    path = attributed(tmp_path, more=np.zeros(10_000))
    np.savez_compressed(path, **dict(np.load(path)))
    assert path.stat().st_size < 4000
    with pytest.raises(RawRefused, match="unpacks to more"):
        read_dataset("pyg/Amazon/Photo", tmp_path, **SIZES)


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("graph_indicator", HUGE),
        ("graph_indicator", 0),
        ("A", f"1, {HUGE}"),
        ("A", "0, 1"),
        ("node_labels", HUGE),
        ("node_labels", -HUGE),
        ("edge_labels", HUGE),
        ("node_labels", "1.5"),
    ],
)
def test_numbers_of_a_tu_set_that_ask_for_too_much_are_refused(tmp_path, file, line):
    from tests.secure_fgl.test_data_pyg import tu_set

    tu_set(tmp_path)
    path = tmp_path / "pyg" / "TUDataset" / "TINY" / "raw" / f"TINY_{file}.txt"
    lines = path.read_text().split("\n")[:-1] if path.exists() else ["0"] * 8
    path.write_text("\n".join([str(line), *lines[1:]]) + "\n")
    with pytest.raises(RawRefused):
        read_dataset("pyg/TUDataset/TINY", tmp_path, **SIZES)


@pytest.mark.parametrize("line", [f"{HUGE}\t0\t0", f"0\t{HUGE}\t0", "0\t1", "0\tx\t0"])
def test_numbers_of_actor_that_ask_for_too_much_are_refused(tmp_path, line):
    folder = tmp_path / "pyg" / "Actor" / "raw"
    folder.mkdir(parents=True)
    names = ["out1_node_feature_label.txt", "out1_graph_edges.txt"]
    names += [f"film_split_0.6_0.2_{fold}.npz" for fold in range(10)]
    for name in names:
        (folder / name).write_text(f"head\n{line}\n")
        if name.endswith("npz"):
            np.savez(folder / name, train_mask=np.zeros(1, bool))
    with pytest.raises(RawRefused):
        read_dataset("pyg/Actor", tmp_path, **SIZES)


class _Own(pickle.Unpickler):
    pass


READERS = {
    "loads": pickle.loads,
    "load": lambda data: pickle.load(io.BytesIO(data)),
    "Unpickler": lambda data: pickle.Unpickler(io.BytesIO(data)).load(),
    "in Python": lambda data: pickle._Unpickler(io.BytesIO(data)).load(),
    "in C": lambda data: _pickle.Unpickler(io.BytesIO(data)).load(),
    "derived": lambda data: _Own(io.BytesIO(data)).load(),
    "numpy": lambda data: np.load(io.BytesIO(data), allow_pickle=True),
    "torch": lambda data: torch.load(io.BytesIO(data), weights_only=False),
}


NOT_READ = (RawRefused, pickle.UnpicklingError)  # numpy wraps what stopped it


@pytest.mark.parametrize("reader", READERS)
def test_under_the_guard_no_reader_runs_anything(tmp_path, reader):
    marker, read = tmp_path / "ran", READERS[reader]
    data = pickle.dumps(Planted(marker), 2)
    if reader == "torch":
        file = io.BytesIO()
        torch.save(Planted(marker), file)
        data = file.getvalue()
    with nothing_unpickled(), pytest.raises(NOT_READ):
        read(data)
    assert not marker.exists()
    read(data)  # the control, and the guard is gone
    assert marker.exists()


def test_the_guard_leaves_other_threads_alone():
    data, found = pickle.dumps(np.zeros(2)), []
    with nothing_unpickled():
        thread = threading.Thread(target=lambda: found.append(pickle.loads(data)))
        thread.start()
        thread.join()
    assert found[0].tolist() == [0, 0]
