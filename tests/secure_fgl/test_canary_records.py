"""What canaries are made of, and what they leave alone."""

from __future__ import annotations

import contextlib
import hashlib
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from algorithms._shared.generator_sums import Help, Turn
from algorithms._shared.neighbour_sizes import Sizes
from algorithms.nn._shared.sparse import Sparse
from algorithms.tasks import DataSpec, Site
from algorithms.tasks.flat import FlatTask
from algorithms.tasks.graph import GraphTask
from algorithms.tasks.inputs import GraphsData, NodeData, RatingsData
from algorithms.tasks.node import NodeTask
from algorithms.tasks.rating import RatingTask
from audits.checks.canaries import secrets_of
from protocols.errors import EvidenceError
from protocols.evidence.captures import coins, commitment, content_key
from protocols.plan.steps import Step
from protocols.roles.client import ClientSession
from secure_fgl.attack_inputs import models as again
from secure_fgl.attack_inputs import rows
from secure_fgl.data.canaries import made_up, planted, planting, with_canaries
from secure_fgl.data.records import ClientGraph, ClientGraphs, ClientRatings
from secure_fgl.errors import UsageError

SECRET, RECORDS = bytes(range(32)), 30
KEY, FLIPS = content_key(SECRET), coins(SECRET, RECORDS)
SPECS = {
    "node": DataSpec("node", 5, 3, 32, 2, True, "n"),
    "graph": DataSpec("graph", 5, 3, 32, 2, True, "g"),
    "rating": DataSpec(
        "rating", 0, 1, 64, 2, True, "r", users=8, items=11, lowest=1.0, highest=5.0
    ),
}


def masks(count: int) -> dict[str, Any]:
    role = np.arange(count) % 3
    return {"train": role == 0, "val": role == 1, "test": role == 2}


def nodes(*, sparse: bool = False) -> NodeData:
    rng = np.random.default_rng(1)
    x = np.where(rng.random((12, 5)) < 0.5, rng.random((12, 5)), 0.0).astype(np.float32)
    edges = np.array([[0, 1, 2, 5], [1, 2, 3, 7]])
    part = ClientGraph(
        edges, sp.csr_array(x) if sparse else x, rng.integers(3, size=12), nodes=np.arange(12),
        **masks(12),
    )  # fmt: skip
    return NodeData.from_graph(part)


def graphs() -> GraphsData:
    rng = np.random.default_rng(1)
    edges = np.array([[0, 1], [3, 4], [6, 7], [9, 11]]).T
    part = ClientGraphs(
        np.full(4, 3), edges, rng.random((12, 5)).astype(np.float32), np.array([0, 1, 2, 0]),
        graphs=np.arange(4), **masks(4),
    )  # fmt: skip
    return GraphsData.from_graphs(part)


def ratings() -> RatingsData:
    pairs = np.array([(u, i) for u in range(8) for i in range(11) if (u + i) % 2])
    values = np.tile([1.0, 4.0], 22).astype(np.float32)
    roles = {k: np.random.default_rng(2).permutation(v) for k, v in masks(44).items()}
    part = ClientRatings(pairs[:, 0], pairs[:, 1], values, rows=np.arange(44), **roles)
    return RatingsData.from_ratings(part, 8, 11)


DATA: dict[str, Any] = {"node": nodes, "graph": graphs, "rating": ratings}


@pytest.mark.parametrize("kind", DATA)
def test_they_train_at_the_end_and_are_counted_by_nobody(kind: str) -> None:
    data: Any = DATA[kind]()
    found = planted(data, SPECS[kind], KEY, FLIPS)
    more = int(FLIPS.sum())
    assert 5 < more < RECORDS - 5
    assert found.count == data.count and found.train.sum() == data.count + more
    assert bool(found.train[-more:].all()) and len(found.train) == len(data.train) + more
    for role in ("val", "test"):
        assert torch.equal(getattr(found, role)[:-more], getattr(data, role))
        assert not getattr(found, role)[-more:].any()
    assert data.count == DATA[kind]().count  # what is there is left alone


@pytest.mark.parametrize("kind", DATA)
def test_they_follow_from_data_and_secret_alone(kind: str) -> None:
    data = DATA[kind]()
    one, same = (made_up(data, SPECS[kind], KEY, RECORDS) for _ in range(2))
    other = made_up(data, SPECS[kind], bytes(32), RECORDS)
    assert np.array_equal(one.y, same.y) and not np.array_equal(one.y, other.y)
    flipped = with_canaries(data, one, ~FLIPS)  # the coins change none of them
    kept = with_canaries(data, one, np.ones(RECORDS, dtype=bool))
    y = "rating" if kind == "rating" else "y"
    there = getattr(kept, y)[-RECORDS:][torch.from_numpy(~FLIPS)]
    assert torch.equal(getattr(flipped, y)[-int((~FLIPS).sum()) :], there)


@pytest.mark.parametrize("sparse", [False, True])
def test_nodes_stand_alone_and_hold_values_of_the_clients_own_columns(sparse: bool) -> None:
    data = nodes(sparse=sparse)
    made = made_up(data, SPECS["node"], KEY, RECORDS)
    plain = nodes().x
    assert isinstance(plain, torch.Tensor)
    for column, own in zip(made.x.T, plain.numpy().T, strict=True):
        assert set(column.tolist()) <= set(own.tolist())
    found = planted(data, SPECS["node"], KEY, FLIPS)
    assert torch.equal(found.edges, data.edges) and isinstance(found.x, Sparse) == sparse
    task = NodeTask(SPECS["node"], model="gcn", hidden=4, layers=2, dropout=0.0)
    weights = task.initial(np.random.default_rng(0))
    before, after = (task.predict(weights, Site(d, seed=0)) for d in (data, found))
    assert np.allclose(before, after[:12], atol=1e-6)  # nobody's neighbour


def test_graphs_have_the_shape_of_one_of_the_clients_own() -> None:
    data = graphs()
    found = planted(data, SPECS["graph"], KEY, FLIPS)
    owner = np.repeat(np.arange(len(found.sizes)), found.sizes)
    ends = found.edges.numpy()
    assert (owner[ends[0]] == owner[ends[1]]).all() and ends.max() < found.sizes.sum()
    assert len(found.x) == found.sizes.sum() and set(found.sizes) == {3}
    assert np.bincount(owner[ends[0]], minlength=len(found.sizes)).tolist() == [1] * len(
        found.sizes
    )
    task = GraphTask(SPECS["graph"], model="gin", hidden=4, layers=2, dropout=0.0)
    weights = task.initial(np.random.default_rng(0))
    before, after = (task.predict(weights, Site(d, seed=0)) for d in (data, found))
    assert np.allclose(before, after[:4], atol=1e-6)


def test_ratings_are_of_pairs_that_have_none() -> None:
    data = ratings()
    found = planted(data, SPECS["rating"], KEY, FLIPS)
    pairs = list(zip(found.user.tolist(), found.item.tolist(), strict=True))
    assert len(set(pairs)) == len(pairs) and set(found.rating.tolist()) == {1.0, 4.0}
    assert np.array_equal(found.items, data.items) and np.array_equal(found.users, data.users)
    with pytest.raises(UsageError, match="fewer than 200 pairs"):
        made_up(data, SPECS["rating"], KEY, 200)


def test_labels_follow_from_nothing() -> None:
    data = nodes()
    labels = made_up(data, SPECS["node"], KEY, 3000).y
    assert np.abs(np.bincount(labels, minlength=3) / 3000 - 1 / 3).max() < 0.06  # 7 deviations
    several = replace(SPECS["graph"], multilabel=True)
    answers = made_up(graphs(), several, KEY, RECORDS).y
    assert answers.shape == (RECORDS, 3) and set(np.unique(answers)) == {0.0, 1.0}


def test_nodes_with_edges_to_other_clients_are_refused() -> None:
    data = replace(nodes(), ids=np.arange(12), beyond=np.zeros((2, 0), dtype=np.int64))
    with pytest.raises(UsageError, match="cannot be put into"):
        made_up(data, SPECS["node"], KEY, RECORDS)


def test_where_training_hides_records_canaries_hold_nothing_of_any() -> None:
    """Noise covers the gradient of one graph: what is made of it would be in the batch as well."""
    data, spec = graphs(), SPECS["graph"]
    less = replace(data, train=data.train & (torch.arange(4) != 0))  # the neighbouring data
    one, other = (made_up(d, spec, KEY, RECORDS, hidden=True) for d in (data, less))
    assert np.array_equal(one.x, other.x) and np.array_equal(one.y, other.y)
    assert one.sizes == other.sizes and all(map(np.array_equal, one.edges, other.edges))
    bare, beside = (made_up(d, spec, KEY, RECORDS) for d in (data, less))
    assert (bare.x != beside.x).any(axis=1).sum() > RECORDS  # the control: one record is in most
    found = planted(data, spec, KEY, FLIPS, hidden=True)
    owner = np.repeat(np.arange(len(found.sizes)), found.sizes)
    ends = found.edges.numpy()
    assert (owner[ends[0]] == owner[ends[1]]).all() and len(found.x) == found.sizes.sum()
    assert found.count == data.count and found.train.sum() == data.count + FLIPS.sum()
    with pytest.raises(UsageError, match="cannot be put into"):
        made_up(nodes(), SPECS["node"], KEY, RECORDS, hidden=True)


def test_a_run_and_its_audit_ask_the_policy_whether_records_are_hidden(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(again, "secrets_of", lambda case: {"client-1": SECRET})
    for training in (object(), None):
        policy = SimpleNamespace(training=training, canaries=SimpleNamespace(records=RECORDS))
        session = ClientSession.__new__(ClientSession)
        vars(session).update(canary_secret=SECRET, context=SimpleNamespace(policy=policy))
        site, spec = Site(graphs(), seed=0), SPECS["graph"]
        wanted = planted(site.data, spec, KEY, FLIPS, hidden=training is not None)
        audited = again.training_sites(
            cast(Any, SimpleNamespace(policy=policy, view=SimpleNamespace(side=""))),
            {"client-1": site},
            spec,
        )
        assert torch.equal(audited["client-1"].data.x, wanted.x)
        with planting({"client-1": session}, {"client-1": site}, spec):
            assert session.planted and torch.equal(site.data.x, wanted.x)
        assert len(site.data.sizes) == 4


@pytest.mark.parametrize("kind", DATA)
def test_what_is_held_out_is_in_no_canary(kind: str) -> None:
    """A record that is scored does not train, nor does a value that stands in it alone."""
    data: Any = DATA[kind]()
    if kind == "rating":
        changed = replace(data, rating=torch.where(data.train, data.rating, 5.0))
        made = made_up(changed, SPECS[kind], KEY, RECORDS)
        assert not (made.y == 5.0).any()
        # Nor has a user or an item its first training rating by a canary.
        few = replace(data, train=data.train & (data.user < 6) & (data.item != 4))
        for one, gone in ((made, False), (made_up(few, SPECS[kind], KEY, 10), True)):
            strange = (one.pairs[0] >= 6) | (one.pairs[1] == 4)
            assert strange.any() != gone  # the control: elsewhere both have some
        return
    of = data.train if kind == "node" else data.train.repeat_interleave(3)
    changed = replace(data, x=torch.where(of[:, None], data.x, -7.0))
    made = made_up(changed, SPECS[kind], KEY, RECORDS)
    assert not (made.x == -7.0).any()
    assert np.array_equal(made.x, made_up(data, SPECS[kind], KEY, RECORDS).x)


@pytest.mark.parametrize("kind", DATA)
def test_without_training_records_there_are_none(kind: str) -> None:
    data: Any = DATA[kind]()
    with pytest.raises(UsageError, match="cannot be put into"):
        made_up(replace(data, train=torch.zeros_like(data.train)), SPECS[kind], KEY, RECORDS)


@pytest.mark.parametrize("count", [1, 2])
def test_of_one_training_node_none_is_made(count: int) -> None:
    """Each of its columns has one value, and each canary would be that record."""
    data = nodes()
    train = torch.zeros_like(data.train)
    train[torch.nonzero(data.train)[:count, 0]] = True
    alone = contextlib.nullcontext() if count > 1 else pytest.raises(UsageError, match="cannot be")
    with alone:
        made_up(replace(data, train=train), SPECS["node"], KEY, RECORDS)


def test_rows_that_no_rating_touches_take_as_many_steps_as_the_others() -> None:
    """Steps are of all records that train; the short way gives what training of all rows does."""
    spec = replace(SPECS["rating"], users=12, items=12)
    data = replace(planted(ratings(), spec, KEY, FLIPS), sizes=(12, 12))
    task = RatingTask(spec, hidden=4, batch=4, weight_decay=0.05, lr=0.1, optimiser="sgd")
    weights = task.initial(np.random.default_rng(0))
    short = task.fit(weights, Site(data, seed=1), epochs=2)
    whole = FlatTask.fit(task, weights, Site(data, seed=1), epochs=2)
    assert np.allclose(short, whole, atol=1e-5)


def test_answers_to_generators_are_computed_again_with_canaries() -> None:
    """They are matched with a client's nodes, canaries among them: else nothing of it had left."""
    aid = Help(Sizes(features=5, latent=3, hidden=4, draws=2), 1, codes=4, clip=1.0, rate=0.1)
    sites = {name: Site(nodes(), seed=seed) for seed, name in enumerate(("client-1", "client-2"))}
    trained = planted(nodes(), SPECS["node"], KEY, FLIPS)
    run: Any = SimpleNamespace(sites=sites, training={n: s.on(trained) for n, s in sites.items()})
    first, _ = rows._summed(run, aid, 7, {"client-1": 0, "client-2": 12 + RECORDS}, None)
    turn = Turn(seed=7, step=0, reader=0)
    left, bare = (aid.answer(Site(d, seed=1), turn).slope for d in (trained, nodes()))
    assert np.allclose(np.sort(first.raw.ravel()), np.sort(left[-25:]))  # of the last layer
    assert not np.allclose(left, bare)


@pytest.mark.parametrize("sparse", [False, True])
def test_no_two_columns_of_a_canary_are_known_to_be_of_one_record(sparse: bool) -> None:
    """The key is opened in the end: it must not say from which record each value came."""
    data, there = nodes(sparse=sparse), nodes()
    other, moved = replace(data), there.x.clone()  # type: ignore[union-attr]
    rows = np.flatnonzero(there.train.numpy())
    for column in range(5):  # the same values in every column, in other records
        moved[rows, column] = moved[np.roll(rows, column), column]
    assert not torch.equal(moved, there.x)  # type: ignore[arg-type]
    other = replace(data, x=Sparse.of(sp.csr_array(moved.numpy())) if sparse else moved)
    one, same = (made_up(d, SPECS["node"], KEY, RECORDS).x for d in (data, other))
    assert np.array_equal(one, same) and len(np.unique(one)) > 5


def test_two_clients_with_one_secret_are_both_named() -> None:
    def case(**secrets: bytes) -> Any:
        told = {name: commitment(secret, "run", name) for name, secret in secrets.items()}
        return SimpleNamespace(
            roster_file=SimpleNamespace(run="run"),
            roster=SimpleNamespace(names=lambda role: tuple(secrets)),
            policy=SimpleNamespace(canaries=object()),
            ledger_index=SimpleNamespace(
                entries={
                    name: [
                        {"kind": "plan", "canaries": told[name]},
                        {"kind": "close", "canaries": secret.hex()},
                    ]
                    for name, secret in secrets.items()
                }
            ),
        )

    first, second = (hashlib.sha256(text).digest() for text in (b"1", b"2"))
    assert secrets_of(case(a=first, b=second)) == {"a": first, "b": second}  # the control
    with pytest.raises(EvidenceError, match="a and c have one secret"):
        secrets_of(case(a=first, b=second, c=first))


@pytest.mark.parametrize("missing", [0, 1])
def test_at_a_site_whose_messages_were_lost_canaries_prove_nothing(missing: int) -> None:
    """Its ledger says that something was lost; what counted stands in the aggregator's alone."""
    entries = [{"kind": "plan"}, {"kind": "heads", "missing": missing}]
    sent = [SimpleNamespace(party="a", step=Step.UP, ask="train")]
    case: Any = SimpleNamespace(
        view=SimpleNamespace(side="a"),
        ledger_index=SimpleNamespace(entries={"a": entries}, releases=lambda: sent),
    )
    if missing:
        with pytest.raises(UsageError, match="was lost"):
            again._arrived(case, ("train",))
    else:
        assert again._arrived(case, ("train",)) == {"a"}


@pytest.mark.parametrize(
    ("step", "ask"), [(Step.UP, "train"), (Step.UP, "evaluate"), (Step.ACK, "train"), (None, "")]
)
def test_a_site_that_was_never_asked_to_train_is_no_member(step: Step | None, ask: str) -> None:
    """Where cohorts are drawn by lot nothing is lost, and its canaries are in no model at all."""
    sent = [SimpleNamespace(party="a", step=step, ask=ask)]
    case: Any = SimpleNamespace(
        view=SimpleNamespace(side="a"),
        ledger_index=SimpleNamespace(entries={"a": [{"kind": "plan"}]}, releases=lambda: sent),
    )
    member = step is Step.UP and ask == "train"
    assert again._arrived(case, ("train",)) == ({"a"} if member else frozenset())
