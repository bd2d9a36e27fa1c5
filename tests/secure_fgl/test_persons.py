"""A site with records of few persons takes part as one that has none (`minimum_records`)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from audits.attacks import attack
from audits.checks import documents
from audits.evidence.steps import Case
from protocols.errors import EvidenceError
from protocols.plan.plan import drift
from protocols.policy.policy import PRESETS, PrivacyPolicy
from secure_fgl.attack_inputs.materials import material
from secure_fgl.catalogue import algorithm_names
from secure_fgl.checking import subject
from secure_fgl.config import Config
from secure_fgl.data import Dataset, Graph, GraphSet, Part
from secure_fgl.data.loading import above_floor, persons, trains_on_few
from secure_fgl.data.records import ClientGraph, ClientGraphs, ClientRatings, Masks
from secure_fgl.federation import Federation
from secure_fgl.store.finished_run import Run
from tests.secure_fgl.cli_tools import few

SITES = 4
MASKS = ("train", "val", "test")


def part(kind: str, count: int, mask: str) -> Part:
    """Return a part with so many persons in one mask, and twenty in each other one."""
    roles = np.repeat(np.arange(3), [count if name == mask else 20 for name in MASKS])
    there = {name: roles == number for number, name in enumerate(MASKS)}
    n, none = len(roles), np.zeros((2, 0), np.int64)
    numbers, ones = np.arange(n), np.ones((n, 2), np.float32)
    if kind == "node":
        return ClientGraph(none, ones, np.zeros(n, np.int64), **there, nodes=numbers)
    if kind == "graph":
        sizes = np.ones(n, np.int64)
        return ClientGraphs(sizes, none, ones, np.zeros(n, np.int64), **there, graphs=numbers)
    thrice = {name: np.repeat(told, 3) for name, told in there.items()}  # three ratings a user
    user, item = np.repeat(numbers, 3), np.tile(np.arange(3), n)
    rating = np.ones(3 * n, np.float32)
    return ClientRatings(user, item, rating, **thrice, rows=np.arange(3 * n))


@pytest.mark.parametrize("kind", ["node", "graph", "rating"])
@pytest.mark.parametrize("mask", MASKS)
def test_nine_persons_are_none_and_ten_are_all(kind: str, mask: str) -> None:
    """Each mask by itself. Of ratings a person is a user: nine users are few with 27 ratings."""
    for count in (0, 1, 9, 10, 11):
        given = part(kind, count, mask)
        found = above_floor(given, 10)
        assert persons(given, getattr(given, mask)) == count
        assert persons(found, getattr(found, mask)) == (count if count >= 10 else 0)
        assert trains_on_few(given, 10) == (mask == "train" and 0 < count < 10)
        for other in {*MASKS} - {mask}:
            assert np.array_equal(getattr(found, other), getattr(given, other))
        assert above_floor(given, 1) is given or not count  # the control: no floor, nothing emptied
        assert above_floor(given, 0) is given


def graph(counts: Sequence[int] = (20,) * SITES, *, label: int = -1, shift: float = 0.0) -> Graph:
    """Return four sites' nodes, so many of each in each mask; the others have no label.

    Args:
        counts: of each site.
        label: of the last site's first training node; -1: as drawn.
        shift: of the last site's features.
    """
    rng, each = np.random.default_rng(3), 80
    owner = np.repeat(np.arange(SITES), each)
    y = rng.integers(2, size=len(owner))
    x = (rng.normal(size=(len(owner), 4)) + y[:, None]).astype(np.float32)
    x[owner == SITES - 1] += shift
    ends = rng.integers(len(owner), size=(2, 400))
    ends = np.unique(np.sort(ends[:, owner[ends[0]] == owner[ends[1]]], axis=0), axis=1)
    roles = [np.zeros(len(owner), bool) for _ in MASKS]
    for site, count in enumerate(counts):
        for number, role in enumerate(roles):
            role[each * site + 20 * number :][:count] = True
    y[~np.any(roles, axis=0)] = -1
    if label >= 0:
        y[each * (SITES - 1)] = label
    edges = ends[:, ends[0] < ends[1]]
    return Graph("few", edges, x, y, 2, True, owner, Masks(*roles))


def document(name: str = "fed_avg", **more: Any) -> Config:
    return Config.parse(
        {
            "algorithm": {"name": name, "rounds": 1, "options": subject.OPTIONS},
            "model": {"hidden": 4, "dropout": 0.0},
            "data": {"partition": {"name": "by_owner", "clients": SITES}, "records": 64},
            "transport": {"workers": 1},
            "resume": False,
            **more,
        }
    )


def run(folder: Path, data: Dataset, policy: PrivacyPolicy, **more: Any) -> Run:
    return Federation(data, config=document(**more), policy=policy).run(folder)


def shared(found: Run) -> bytes:
    """Return what all clients share after a run, and its scores."""
    kept = sorted((found.path / "checkpoints").glob("*.npz"))
    return b"".join(p.read_bytes() for p in (*kept, found.path / "metrics.jsonl"))


CLEAR = PrivacyPolicy.preset("unsafe_plaintext")


def test_a_site_below_the_floor_is_loaded_without_records_and_a_line_says_so() -> None:
    data = graph((20, 20, 10, 9))
    prepared = Federation(data, config=document(), policy=CLEAR).prepare()
    prepared.load()
    counts = [[int(getattr(s.data, m).sum()) for m in MASKS] for s in prepared.sites]
    assert counts == [[20] * 3, [20] * 3, [10] * 3, [0] * 3]
    (note,) = prepared.notes
    assert note.startswith("client-4: training records of fewer than 10 persons")
    unsaid = Federation(data, config=document(), policy=few()).prepare()
    unsaid.load()  # the control
    assert unsaid.notes == () and int(unsaid.sites[3].data.train.sum()) == 9


def test_one_patient_of_a_fourth_site_is_in_no_total(tmp_path: Path) -> None:
    """Who knows three sites' parts reads the fourth's, and with it the label of one patient."""
    known = run(tmp_path / "none", graph((20, 20, 20, 0)), CLEAR)
    start = (
        Federation(graph(), config=document(), policy=CLEAR).prepare().first_state().state.weights
    )
    for label in (0, 1):
        data = graph((20, 20, 20, 1), label=label)
        floor = run(tmp_path / f"floor-{label}", data, CLEAR)
        assert shared(floor) == shared(known)
        bare = run(tmp_path / f"bare-{label}", data, few())
        patient = 61 * weights(bare) - 60 * weights(known) - start  # of totals over 61 and 60
        assert int(np.argmax(patient[-2:])) == label  # the control: biases of the two classes


def weights(found: Run) -> np.ndarray:
    with np.load(found.path / "checkpoints" / "final.npz") as file:
        return file["weights"].astype(np.float64)


def graphs(counts: Sequence[int]) -> GraphSet:
    """Return sites' pairs of nodes, so many at each."""
    owner = np.repeat(np.arange(SITES), counts)
    n, rng = len(owner), np.random.default_rng(5)
    y = rng.integers(2, size=n)
    x = np.repeat(y, 2)[:, None] + rng.normal(size=(2 * n, 3))
    edges = np.arange(2 * n).reshape(n, 2).T
    return GraphSet("pairs", np.full(n, 2), edges, x.astype(np.float32), y, 2, False, True, owner)


def films(root: Path, users: int, roles: Sequence[str]) -> Config:
    """Write four shops' ratings, eight of each user, and return a run's configuration.

    Args:
        root: of the tables.
        users: of the last shop; the others have twenty.
        roles: of the ratings of each of its users.
    """
    spec = {"name": "films", "task": "rating", "users": 200, "items": 12, "lowest": 1}
    spec |= {"highest": 5, "records": 128, "split": "column"}
    root.mkdir(parents=True)
    (root / "spec.yaml").write_text(yaml.safe_dump(spec))
    for shop in range(SITES):
        rows, rng = ["user,item,rating,split"], np.random.default_rng(shop)
        last = shop == SITES - 1
        for user in range(50 * shop, 50 * shop + (users if last else 20)):
            items = rng.choice(12, size=8, replace=False)
            for item, role in zip(items, roles if last else ROLES, strict=True):
                rows.append(f"{user},{item},{rng.integers(1, 6)},{role}")
        (root / f"shop-{shop}").mkdir()
        (root / f"shop-{shop}" / "ratings.csv").write_text("\n".join(rows) + "\n")
    place = {"name": "own", "root": str(root), "partition": {"clients": SITES}}
    return document("fed_per", data=place, model={"hidden": 4})


ROLES = ("train",) * 4 + ("val", "val", "test", "test")


def left(found: Run) -> dict[str, list[tuple[Any, ...]]]:
    """Return what each party sent and got in a run: items, rounds and sizes."""
    told: dict[str, list[tuple[Any, ...]]] = {}
    for path in sorted((found.path / "ledger").glob("*.jsonl")):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        sent = [(e["kind"], e["item"], e["round"], e["bytes"]) for e in lines if "bytes" in e]
        told[path.stem] = sorted(sent)
    return told


@pytest.mark.parametrize("kind", ["node", "graph", "rating"])
def test_nothing_more_leaves_than_of_a_site_without_records(kind: str, tmp_path: Path) -> None:
    """Under masks: as many envelopes, of the same items and sizes; and the same model comes out."""
    masks, found = PrivacyPolicy.preset("masks"), list[Run]()
    for count in (0, 9):
        folder = tmp_path / str(count)
        if kind == "node":
            made = Federation(graph((20, 20, 20, count)), config=document(), policy=masks)
        elif kind == "rating":
            chosen = films(folder / "data", 9, ROLES if count else ("",) * 8)
            made = Federation(config=chosen, policy=masks)
        else:  # at the least some graph trains: without a floor beside with one
            policy = masks if count else few("masks")
            made = Federation(graphs((60, 60, 60, 15)), config=document(data=SPLIT), policy=policy)
        found.append(made.run(folder / "run"))
    assert left(found[0]) == left(found[1])
    assert (shared(found[0]) == shared(found[1])) == (kind != "graph")
    assert found[1].verify().ok


SPLIT = {"partition": {"name": "by_owner", "clients": SITES}, "split": [0.4, 0.3, 0.3]}


def test_references_train_on_what_the_federation_trains_on(tmp_path: Path) -> None:
    wanted = {"evaluation": {"references": ["local", "centralised"]}}
    masks, found = PrivacyPolicy.preset("masks"), []
    for name, count, policy in (("none", 0, masks), ("some", 9, masks), ("bare", 9, few("masks"))):
        made = run(tmp_path / name, graph((20, 20, 20, count)), policy, **wanted)
        found.append(made.result["references"])
    assert found[1] == found[0]
    assert found[1] != found[2]  # the control


def loans(root: Path, counts: Sequence[int]) -> Config:
    """Write sites' tables, so many nodes in each role, and return a run's configuration."""
    spec = {"name": "loans", "task": "node", "features": ["a", "b"], "classes": ["no", "yes"]}
    root.mkdir(parents=True)
    (root / "spec.yaml").write_text(yaml.safe_dump({**spec, "records": 64, "split": "column"}))
    for site, count in enumerate(counts):
        rows, rng = ["id,label,a,b,split"], np.random.default_rng(site)
        for number, role in enumerate(np.repeat(MASKS, count)):
            rows.append(f"n{number},{'no' if number % 2 else 'yes'},{rng.random()},1,{role}")
        (root / f"site-{site}").mkdir()
        (root / f"site-{site}" / "nodes.csv").write_text("\n".join(rows) + "\n")
        (root / f"site-{site}" / "edges.csv").write_text("source,target\nn0,n1\n")
    place = {"name": "own", "root": str(root), "partition": {"clients": SITES}}
    return document(data=place, model={"hidden": 4})


@pytest.mark.parametrize(("least", "trained"), [(10, 0), (9, 9)])
def test_an_audit_replays_a_run_with_the_same_records(
    least: int, trained: int, tmp_path: Path
) -> None:
    chosen = loans(tmp_path / "data", (20, 20, 20, 9))
    policy = PrivacyPolicy.preset("masks").changed(minimum_records=least)
    found = Federation(config=chosen, policy=policy).run(tmp_path / "run")
    given = material(found, data=tmp_path / "data")  # refuses where totals are others'
    told = {one.client: one.truth.labels for one in given.exposures}
    assert told["client-4"] is not None and int(told["client-4"].sum()) == trained
    assert told["client-1"] is not None and int(told["client-1"].sum()) == 20


QUICK = ("fed_avg", "fed_ego")
NODES = [name for name in algorithm_names() if not subject.rated(name)]


@pytest.mark.parametrize(
    "name",
    [n if n in ("fed_avg", "fed_ego") else pytest.param(n, marks=pytest.mark.long) for n in NODES],
)
def test_what_is_shared_rests_on_nothing_of_a_site_below_the_floor(
    name: str, tmp_path: Path
) -> None:
    """The site's features, moved, move nothing that others get."""
    found = []
    for shift in (0.0, 5.0):
        data = graph((20, 20, 20, 9), shift=shift)
        found.append(shared(run(tmp_path / f"{shift}", data, CLEAR, name=name)))
    assert found[0] == found[1]


def test_a_control_moves_what_is_shared(tmp_path: Path) -> None:
    data = [graph((20, 20, 20, 9), shift=shift) for shift in (0.0, 5.0)]
    found = [shared(run(tmp_path / str(n), d, few())) for n, d in enumerate(data)]
    assert found[0] != found[1]


def test_each_preset_asks_for_ten_persons_and_a_plan_says_where_it_does_not() -> None:
    assert {p.minimum_records for p in PRESETS.values()} == {10}
    plan = Federation(graph(), config=document(), policy=CLEAR).plan()
    assert plan.minimum_records == 10 and "fewer than 10 trains on nothing" in plan.floor_words
    persons_alone = Config.parse(subject.document("fed_mf", "masks"))
    alone = Federation(config=persons_alone).plan()
    assert alone.minimum_records == 0 and "each client is one person" in alone.floor_words


def test_where_records_are_hidden_nothing_depends_on_how_many_there_are() -> None:
    """One record more would let ten train: an epsilon of single records would not hold."""
    policy = PrivacyPolicy.load("examples/molecules_dp_policy.yaml")
    assert policy.training is not None and policy.minimum_records == 10
    chosen = Config.load("examples/molecules_dp.yaml")
    plan = Federation(config=chosen).plan()
    assert plan.minimum_records == 0 and "its epsilon holds for any number" in plan.floor_words


def test_fewer_persons_than_were_approved_are_drift() -> None:
    plan = Federation(graph(), config=document(), policy=CLEAR).plan()
    lower = plan.model_copy(update={"minimum_records": 9})
    assert drift(plan, lower) == [
        "minimum_records: sites with records of fewer persons would train"
    ]
    assert drift(lower, plan) == []
    assert CLEAR.diff(few()) == ["minimum_records: 10 became 1"]


@pytest.mark.parametrize("kind", ["node", "rating"])
def test_attacks_judge_a_run_with_a_site_below_the_floor(kind: str, tmp_path: Path) -> None:
    """Its records are nobody's members; with no candidate at a site attacks ended in an error."""
    if kind == "node":
        chosen = loans(tmp_path / "data", (20, 20, 20, 9))
    else:
        chosen = films(tmp_path / "data", 9, ROLES)
    policy = PrivacyPolicy.preset("masks")
    found = Federation(config=chosen, policy=policy).run(tmp_path / "run")
    rows = attack(material(found, data=tmp_path / "data")).rows
    assert rows and "ERROR" not in {row.verdict for row in rows}


def test_a_plan_that_asks_for_fewer_persons_than_its_policy_does_not_verify(tmp_path: Path) -> None:
    found = run(tmp_path / "run", graph(), CLEAR)
    documents.plan(Case(found.view()))  # the control
    for least in (0, 9, 11):
        case = Case(found.view())
        case.__dict__["plan"] = case.plan.model_copy(update={"minimum_records": least})
        with pytest.raises(EvidenceError, match="another number of persons"):
            documents.plan(case)
