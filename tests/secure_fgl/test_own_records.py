"""What is written is what is read: any format, any order of ids, any task."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from secure_fgl.config import Config
from secure_fgl.data.loading import _check_bound
from secure_fgl.data.own import (
    OwnDataError,
    Tally,
    load_site,
    load_sites,
    load_spec,
    site_names,
    site_rng,
)
from secure_fgl.data.records import ClientGraph, ClientGraphs, ClientRatings
from secure_fgl.errors import UsageError
from secure_fgl.federation import Federation
from tests.secure_fgl.cli_tools import few, invoke
from tests.secure_fgl.own_tools import (
    EDGES,
    GRAPH,
    MOLECULES,
    NODE,
    NODES,
    RATING,
    RATINGS,
    load,
    same,
    site,
    spec,
    to_parquet,
)

REUSE = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)


# --- nodes ------------------------------------------------------------------------------------


@st.composite
def graphs(draw: st.DrawFn) -> dict[str, Any]:
    """Columns of a random nodes table, and edges as pairs of rows in any direction."""
    kind = draw(st.sampled_from(["text", "whole"]))
    known = st.text("abcxyz_-.0ß ,\"'", min_size=1, max_size=6).map(str.strip).filter(bool)
    any_id = known if kind == "text" else st.integers(-(2**62), 2**62)
    ids = draw(st.lists(any_id, min_size=1, max_size=12, unique_by=str))
    rows, real = len(ids), st.floats(-1e30, 1e30, allow_nan=False)
    label = st.sampled_from(["fine", "risky", None])
    column = {"age": st.one_of(real, st.integers(-9, 9)), "income": real}
    node = st.integers(0, rows - 1)
    return {
        "id": ids,
        "label": draw(st.lists(label, min_size=rows, max_size=rows)),
        **{
            n: [float(v) for v in draw(st.lists(s, min_size=rows, max_size=rows))]
            for n, s in column.items()
        },
        "pairs": draw(st.lists(st.tuples(node, node), max_size=30)),
    }


def as_csv(columns: Mapping[str, list[Any]]) -> str:
    def cell(value: Any) -> str:
        text = "" if value is None else repr(value) if isinstance(value, float) else str(value)
        return '"' + text.replace('"', '""') + '"' if set(text) & set(',"') else text

    lines = [",".join(columns)]
    lines += [",".join(map(cell, row)) for row in zip(*columns.values(), strict=True)]
    return "\n".join(lines) + "\n"


@REUSE
@given(made=graphs(), end=st.sampled_from(["\n", "\r\n"]), bom=st.booleans())
def test_a_graph_as_csv_and_as_parquet_is_the_same_record(
    tmp_path: Path, made: dict[str, Any], end: str, bom: bool
) -> None:
    pairs = made["pairs"]
    nodes = {name: made[name] for name in ("income", "id", "age", "label")}  # any order of columns
    edges = {
        "source": [made["id"][u] for u, _ in pairs],
        "target": [made["id"][v] for _, v in pairs],
    }
    text = {"nodes": as_csv(nodes), "edges": as_csv(edges)}
    data = {k: (b"\xef\xbb\xbf" * bom) + v.replace("\n", end).encode() for k, v in text.items()}
    one, other = site(tmp_path / "csv", **data), site(tmp_path / "parquet")
    to_parquet(other / "nodes.parquet", nodes)
    to_parquet(other / "edges.parquet", edges)
    read = [load(folder, spec(NODE)) for folder in (one, other)]
    assert same(*read)

    found = read[0]
    assert isinstance(found, ClientGraph)
    distinct = {(min(p), max(p)) for p in pairs if p[0] != p[1]}
    assert found.edges.T.tolist() == sorted(map(list, distinct))
    assert found.x.tolist() == [
        [float(np.float32(a)), float(np.float32(b))]
        for a, b in zip(made["age"], made["income"], strict=True)
    ]
    assert found.y.tolist() == [{"fine": 0, "risky": 1, None: -1}[v] for v in made["label"]]
    assert found.nodes.tolist() == list(range(len(made["id"])))


def test_what_is_put_right_is_counted(tmp_path: Path) -> None:
    edges = "source,target\na,b\na,b\na,b\nb,a\nb,c\nc,c\na,a\n"
    tally = Tally()
    found = load(site(tmp_path, nodes=NODES, edges=edges), spec(NODE), tally)
    assert found.edges.tolist() == [[0, 1], [1, 2]]
    assert (tally.self_loops, tally.repeated_edges, tally.both_directions) == (2, 2, 1)
    assert [line.rpartition(": ")[2] for line in tally.sentences()] == ["2", "2", "1"]
    assert repr(tally) == "<Tally>"
    assert Tally().sentences() == []
    weighted = "source,target,amount,when\na,b,7,monday\n"
    load(site(tmp_path / "more", nodes=NODES, edges=weighted), spec(NODE), tally := Tally())
    assert tally.sentences() == ["columns or tensors of edges (weights, types, times), not read: 2"]


def test_an_umlaut_of_one_sign_or_two_is_one_letter(tmp_path: Path) -> None:
    nodes = "id,label,age,income\nM\u00fcller,fine,1,2\nMeier,risky,2,3\n"
    edges = "source,target\nMu\u0308ller,Meier\n"
    found = load(site(tmp_path, nodes=nodes, edges=edges), spec(NODE))
    assert found.edges.tolist() == [[0], [1]]


def test_ids_may_be_numbers_in_one_file_and_texts_in_the_other(tmp_path: Path) -> None:
    folder = site(tmp_path, nodes="id,label,age,income\n7,fine,1,2\n007,risky,3,4\n")
    to_parquet(folder / "edges.parquet", {"source": [7], "target": ["007"]})
    with pytest.raises(OwnDataError, match="both there"):
        (folder / "edges.csv").write_text(EDGES)
        load(folder, spec(NODE))
    (folder / "edges.csv").unlink()
    assert load(folder, spec(NODE)).edges.tolist() == [[0], [1]]  # 7 is not 007


def test_no_edges_are_a_header_alone(tmp_path: Path) -> None:
    found = load(site(tmp_path, nodes=NODES, edges="source,target\n"), spec(NODE))
    assert (found.edges.shape, found.edges.dtype) == ((2, 0), np.int64)


def test_features_and_classes_may_be_counts(tmp_path: Path) -> None:
    nodes = "x1,id,x0,label\n1,a,2,1\n3,b,4,\n"
    found = load(
        site(tmp_path, nodes=nodes, edges="source,target\na,b\n"), spec(NODE, features=2, classes=2)
    )
    assert found.x.tolist() == [[2, 1], [4, 3]]
    assert found.y.tolist() == [1, -1]


def test_columns_that_the_spec_does_not_name_are_not_read(tmp_path: Path) -> None:
    nodes = NODES.replace("id,", "name,name,id,").replace("\n", "\nx,y,", 3)
    found = load(site(tmp_path, nodes=nodes, edges=EDGES), spec(NODE))
    assert same(found, load(site(tmp_path, nodes=NODES, edges=EDGES), spec(NODE)))


def test_the_file_may_say_every_node_s_role(tmp_path: Path) -> None:
    nodes = (
        "id,label,age,income,split\na,fine,1,2,test\nb,risky,3,4,train\nc,,5,6,\nd,fine,1,1,val\n"
    )
    found = load(site(tmp_path, nodes=nodes, edges=EDGES), spec(NODE, split="column"))
    roles = (found.train, found.val, found.test)
    assert [np.flatnonzero(role).tolist() for role in roles] == [[1], [3], [0]]
    # Shares give way to a column that is there.
    assert same(found, load(site(tmp_path, nodes=nodes, edges=EDGES), spec(NODE)))


# --- molecules and ratings --------------------------------------------------------------------


def test_molecules(tmp_path: Path) -> None:
    from secure_fgl.data.sources.molecules import FEATURES, molecule_graph

    found = load(site(tmp_path, molecules=MOLECULES), spec(GRAPH))
    assert isinstance(found, ClientGraphs)
    assert found.sizes.tolist() == [3, 6, 4]
    assert found.x.shape == (13, FEATURES)
    np.testing.assert_array_equal(found.y, np.array([[1, 0], [0, np.nan], [np.nan, 1]], np.float32))
    assert found.y.dtype == np.float32
    edges, x = molecule_graph("c1ccccc1")
    mine = found.edges[:, (found.edges >= 3).all(axis=0) & (found.edges < 9).all(axis=0)]
    assert {tuple(e) for e in (mine - 3).T.tolist()} == {tuple(e) for e in edges.T.tolist()}
    np.testing.assert_array_equal(np.asarray(found.x[3:9]), x)


def test_molecules_as_parquet_are_the_same_record(tmp_path: Path) -> None:
    one, other = site(tmp_path / "a", molecules=MOLECULES), site(tmp_path / "b")
    to_parquet(
        other / "molecules.parquet",
        {
            "smiles": ["CCO", "c1ccccc1", "CC(=O)O"],
            "active": [True, False, None],
            "toxic": [0.0, np.nan, 1.0],
        },
    )
    assert same(load(one, spec(GRAPH)), load(other, spec(GRAPH)))


def test_molecules_of_several_classes(tmp_path: Path) -> None:
    text = "smiles,label\nCCO,low\nCCC,high\nC,mid\n"
    wanted = spec(GRAPH, multilabel=False, classes=["low", "mid", "high"])
    found = load(site(tmp_path, molecules=text), wanted)
    assert (found.y.tolist(), found.y.dtype) == ([0, 2, 1], np.int64)
    with pytest.raises(OwnDataError, match="line 3, column 'label': the value is missing"):
        load(site(tmp_path, molecules="smiles,label\nCCO,low\nCCC,\n"), wanted)


def test_molecules_take_no_features(tmp_path: Path) -> None:
    with pytest.raises(OwnDataError, match=r"data\.pt"):
        load(site(tmp_path, molecules=MOLECULES), spec(GRAPH, features=3))


def test_ratings(tmp_path: Path) -> None:
    found = load(site(tmp_path, ratings=RATINGS), spec(RATING))
    assert isinstance(found, ClientRatings)
    assert (found.user.tolist(), found.item.tolist()) == ([0, 0, 9], [1, 2, 19])
    assert (found.rating.tolist(), found.rating.dtype) == ([5, 3.5, 1], np.float32)
    other = site(tmp_path / "b")
    columns = {"user": [0, 0, 9], "item": [1, 2, 19], "rating": [5, 3.5, 1]}
    to_parquet(other / "ratings.parquet", columns)
    assert same(found, load(other, spec(RATING)))


def test_ends_of_the_scale_are_on_it(tmp_path: Path) -> None:
    text = "user,item,rating\n0,1,-0.1\n0,2,0.1\n"  # as float32 both are a little outside
    load(site(tmp_path, ratings=text), spec(RATING, lowest=-0.1, highest=0.1))


class TestVocabulary:
    """Ids of ratings that are listed in a file which all sites have."""

    TEXT = "dune\nemma\nulysses\n"

    def wanted(self, root: Path, text: str, **changes: Any) -> Any:
        import hashlib

        (root / "vocabulary").mkdir(parents=True, exist_ok=True)
        (root / "vocabulary" / "items.txt").write_bytes(text.encode())
        digest = hashlib.sha256(text.encode()).hexdigest()
        return spec(RATING, **{"items": 3, "vocabulary": {"items": digest}, **changes})

    @pytest.mark.parametrize("text", [TEXT, TEXT.replace("\n", "\r\n"), TEXT.strip()])
    def test_items_are_numbered_by_their_line(self, tmp_path: Path, text: str) -> None:
        wanted = self.wanted(tmp_path, text)
        found = load(site(tmp_path, ratings="user,item,rating\n1,ulysses,4\n2,dune,1\n"), wanted)
        assert (found.user.tolist(), found.item.tolist()) == ([1, 2], [2, 0])

    def test_an_id_that_is_not_listed_is_refused(self, tmp_path: Path) -> None:
        wanted = self.wanted(tmp_path, self.TEXT)
        with pytest.raises(OwnDataError, match=r"line 2, column 'item'.*vocabulary/items\.txt"):
            load(site(tmp_path, ratings="user,item,rating\n1,Emma,4\n"), wanted)

    def test_a_stale_copy_is_refused(self, tmp_path: Path) -> None:
        wanted = self.wanted(tmp_path, self.TEXT)
        self.wanted(tmp_path, "emma\ndune\nulysses\n")
        with pytest.raises(OwnDataError, match=r"not the one that spec\.yaml names"):
            load(site(tmp_path, ratings="user,item,rating\n1,emma,4\n"), wanted)

    @pytest.mark.parametrize(
        ("text", "row", "word"),
        [
            ("a\n\nb\n", "line 2", "empty"),
            ("a\nb\na\n", "line 3", "earlier"),
            ("a\nb\n", "", "items: 2"),
        ],
    )
    def test_it_is_a_list_of_distinct_ids(
        self, tmp_path: Path, text: str, row: str, word: str
    ) -> None:
        wanted = self.wanted(tmp_path, text)
        with pytest.raises(OwnDataError) as caught:
            load(site(tmp_path, ratings="user,item,rating\n1,a,4\n"), wanted)
        assert caught.value.row == row
        assert word in str(caught.value)

    def test_it_must_be_there(self, tmp_path: Path) -> None:
        wanted = self.wanted(tmp_path, self.TEXT)
        (tmp_path / "vocabulary" / "items.txt").unlink()
        with pytest.raises(OwnDataError, match=r"items\.txt: the file cannot be read"):
            load(site(tmp_path, ratings="user,item,rating\n1,dune,4\n"), wanted)


# --- many sites -------------------------------------------------------------------------------


def root_of(tmp_path: Path, names: list[str]) -> Path:
    lines = [f"n{i},{('fine', 'risky')[i % 2]},{i},{-i}" for i in range(30)]
    for name in names:
        site(tmp_path, nodes="\n".join(["id,label,age,income", *lines]), edges="source,target\n")
        (tmp_path / "site").rename(tmp_path / name)
    (tmp_path / "spec.yaml").write_text(
        "{name: pilot, task: node, features: [age, income], classes: ['fine', 'risky'],"
        " records: 32, split: [0.6, 0.2, 0.2]}"
    )
    return tmp_path


def test_sites_are_sorted_and_split_each_for_itself(tmp_path: Path) -> None:
    root = root_of(tmp_path, ["north", "east", "West"])
    for extra in ("vocabulary", ".hidden"):
        (root / extra).mkdir()
    (root / "README.txt").touch()
    assert site_names(root) == ("West", "east", "north")
    tallies: dict[str, Tally] = {}
    wanted = load_spec(root)
    sites = load_sites(root, wanted, 1, tallies)
    assert list(sites) == list(tallies) == ["West", "east", "north"]
    assert not np.array_equal(sites["east"].train, sites["north"].train)
    for name, part in sites.items():
        # Alone, a site draws what it draws among the others.
        assert same(part, load_site(root / name, wanted, site_rng(1, name)))
        assert [int(role.sum()) for role in (part.train, part.val, part.test)] == [18, 6, 6]
        assert not (part.train & part.val | part.train & part.test | part.val & part.test).any()
    again = load_sites(root, wanted, 2)
    assert not np.array_equal(sites["east"].train, again["east"].train)


def test_no_site_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OwnDataError, match="no folder of a site"):
        site_names(tmp_path)
    with pytest.raises(OwnDataError, match="cannot be listed"):
        site_names(tmp_path / "nowhere")


def four_sites(folder: Path) -> Path:
    """A rehearsal of four sites that own the same tables; each has one edge to itself."""
    folder /= "data"
    folder.mkdir()
    (folder / "spec.yaml").write_text(yaml.safe_dump(NODE | {"synthetic": True}))
    for name in ("east", "north", "south", "west"):
        (folder / name).mkdir()
        (folder / name / "nodes.csv").write_text(NODES)
        (folder / name / "edges.csv").write_text("source,target\na,b\na,a\n")
    return folder


def test_a_run_says_what_was_put_right_at_every_site(tmp_path: Path) -> None:
    config = {
        "data": {"name": "own", "root": str(four_sites(tmp_path)), "partition": {"clients": 4}},
        "algorithm": {"name": "local", "rounds": 1},
    }
    lines: list[str] = []
    Federation(config=config, policy=few()).run(tmp_path / "run", tell=lines.append)
    wanted = "edges from a node to itself, dropped: 1"
    right = [line for line in lines if wanted in line]
    assert right == [f"{name}: {wanted}" for name in ("east", "north", "south", "west")]
    assert all(line.endswith("of one class") for line in lines if line not in right)


def test_errors_of_all_sites_come_at_once_and_before_the_plan(tmp_path: Path) -> None:
    root = four_sites(tmp_path)
    for name in ("north", "west"):
        (root / name / "edges.csv").write_text("source,target\na,elsewhere\n")
    config = {"data": {"name": "own", "root": str(root), "partition": {"clients": 4}}}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))
    shown = invoke("run", tmp_path / "config.yaml", "--out", tmp_path / "run")
    assert shown.exit_code == 2 and "The tables of 2 sites cannot be used" in shown.stderr
    flat = " ".join(shown.stderr.split())
    assert flat.count("no node has this id") == 2 and "smallest cohort" not in flat
    assert "elsewhere" not in flat


# The bound of training records.


def bounded(policy: str, **data: Any) -> None:
    document = {"algorithm": {"rounds": 1}, "policy": policy, "data": data}
    Federation.from_config(Config.parse(document)).prepare().load()


@pytest.mark.parametrize(("records", "why"), [(1024, "move the model of all"), (16, "fewer")])
def test_a_bound_that_lets_one_client_say_too_much_is_refused(records, why):
    """The controls are a bound that fits, and a form in which all clients count alike."""
    shared = {"name": "synthetic_banks", "partition": {"name": "by_owner", "clients": 5}}
    with pytest.raises(UsageError, match="does not fit") as caught:
        bounded("masks", **shared, records=records)
    assert why in caught.value.why
    fit = int(caught.value.fix.split("data.records to ")[1].split(";")[0])
    for near in (fit, 2 * fit):
        bounded("masks", **shared, records=near)
    bounded("masks", **shared)
    if records > fit:
        bounded("calibrated", **shared, records=records)


def test_each_site_declares_its_own_bound(tmp_path):
    rows = "".join(f"n{n},fine,{n},{n}\n" for n in range(100))
    site(tmp_path, nodes="id,label,age,income\n" + rows, edges="source,target\n")
    for name, count in (("large", 100), ("small", 9)):
        (tmp_path / name).mkdir()
        table = "id,label,age,income\n" + "".join(rows.splitlines(True)[:count])
        (tmp_path / name / "nodes.csv").write_text(table)
        (tmp_path / name / "edges.csv").write_text("source,target\n")
    told = spec(NODE, records={"large": 64, "small": 8})
    assert told.bound == told.data_spec(2).records == 64
    assert load_site(tmp_path / "small", told, np.random.default_rng(0)).train.sum() <= 8
    assert load_site(tmp_path / "large", told, np.random.default_rng(0)).train.sum() == 60
    with pytest.raises(OwnDataError, match="names other folders"):
        load_site(tmp_path / "site", told, np.random.default_rng(0))
    with pytest.raises(OwnDataError, match="more training records"):
        wanted = spec(NODE, records={"large": 32, "small": 64})
        load_site(tmp_path / "large", wanted, np.random.default_rng(0))
    with pytest.raises(ValidationError, match="power of two"):
        spec(NODE, records={"large": 60})


@pytest.mark.parametrize(("declared", "refused"), [(128, False), (256, True)])
def test_a_site_that_declares_too_much_refuses_before_the_start(declared, refused):
    """Whatever others declare; the control is twice the power of two at or above its own."""
    part = SimpleNamespace(train=np.ones(60, dtype=bool))
    parts = {"small": part, "large": SimpleNamespace(train=np.ones(900, dtype=bool))}
    told, called = {"small": declared, "large": 1024}, {"small": "SMALL", "large": "LARGE"}
    if not refused:
        _check_bound(parts, told, 0, weighted=True, called=called)
        return
    with pytest.raises(UsageError, match="of SMALL it is 256, and 64 fits") as caught:
        _check_bound(parts, told, 0, weighted=True, called=called)
    assert "LARGE" not in caught.value.what
    _check_bound(parts, told, 0, weighted=False, called=called)
    # It makes up canaries, and trains on them:
    _check_bound(parts, told, 60, weighted=True, called=called)


def test_what_is_advised_is_taken_also_of_few_records():
    """Up to 64 a bound is never too loose, so no smaller one is advised."""
    parts = {"few": SimpleNamespace(train=np.ones(5, dtype=bool))}
    with pytest.raises(UsageError, match="and 64 fits") as caught:
        _check_bound(parts, {"few": 256}, 0, weighted=True, called={"few": "few"})
    assert "data.records to 64;" in caught.value.fix
    _check_bound(parts, {"few": 64}, 0, weighted=True, called={"few": "few"})  # the control


def test_tables_whose_bounds_do_not_fit_are_refused_at_once_before_the_plan(tmp_path):
    """All sites in one error, by their folders, before a plan is shown."""
    own(tmp_path, NODE, {"large": 4096, "small": 4096, "right": 128})
    told = tmp_path / "spec.yaml"
    refused = invoke("run", tmp_path / "config.yaml", "--out", tmp_path / "run")
    shown = " ".join(refused.stderr.split())
    assert refused.exit_code == 2 and not (tmp_path / "run").exists()
    assert "of large it is 4096, and 64 fits; of small it is 4096, and 64 fits." in shown
    assert "of right" not in shown and "SIMULATION" not in shown  # which is the plan's first line
    fitting = {"large": 64, "small": 64, "right": 128}
    told.write_text(yaml.safe_dump({**NODE, "records": fitting}))
    Federation.from_config(Config.load(tmp_path / "config.yaml")).check_tables()  # the control


def own(folder, what, records):
    """Write three sites' tables, of 100, 9 and 100 records, and a configuration over them."""
    for name, count in (("large", 100), ("small", 9), ("right", 100)):
        (folder / name).mkdir()
        rows = "".join(f"n{n},fine,{n},{n}\n" for n in range(count))
        (folder / name / "nodes.csv").write_text("id,label,age,income\n" + rows)
        (folder / name / "edges.csv").write_text("source,target\n")
    (folder / "spec.yaml").write_text(yaml.safe_dump({**what, "records": records}))
    names = [*records]
    document = {
        "data": {"name": "own", "root": str(folder), "partition": {"names": names}},
        "policy": "unsafe_plaintext",
        "algorithm": {"name": "fed_avg", "rounds": 1},
    }
    (folder / "config.yaml").write_text(yaml.safe_dump(document))


def test_one_site_that_declares_far_more_than_the_others_is_refused():
    """It alone would set what everybody's sums are rounded to; the control is the limit."""
    usual = dict.fromkeys(("north", "south", "east", "west"), 64)
    with pytest.raises(ValidationError, match="evil declares 2097152, more than 64 times the 64"):
        spec(NODE, records={**usual, "evil": 1 << 21})
    spec(NODE, records={**usual, "large": 64 * 64})
    with pytest.raises(ValidationError, match="evil declares 8192"):
        spec(NODE, records={**usual, "evil": 2 * 64 * 64})
    with pytest.raises(ValidationError, match="evil"):  # two sites: it is no median of its own
        spec(NODE, records={"north": 64, "evil": 1 << 21})
    spec(NODE, records=1 << 21)  # one number that all agree on
