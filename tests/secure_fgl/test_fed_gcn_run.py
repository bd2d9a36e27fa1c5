"""Whole runs of FedGCN: rows under masks, and as published; evidence, refusals, going on."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from audits.attacks import attack
from protocols.errors import EvidenceError, NotAdmitted, PolicyError
from protocols.policy.policy import PrivacyPolicy
from secure_fgl.attack_inputs.materials import material
from secure_fgl.attack_inputs.models import asked_of
from secure_fgl.config import Config
from secure_fgl.errors import UsageError
from secure_fgl.federation import Federation

EXAMPLES = Path(__file__).parents[2] / "examples"
NODES = 1024


def policy(name, **rows):
    """Return an example policy with other settings of its guard `rows`."""
    document = PrivacyPolicy.load(str(EXAMPLES / name)).document()
    for guard in document["rules"]["ROW_SUM"]:
        if guard["guard"] == "rows":
            guard.update(rows)
    return PrivacyPolicy.model_validate(document)


SMALL = {"cap": 512, "links": 4096, "rows": 16}


def federation(hops, chosen, clients=5, rounds=2):
    options = {"hops": hops, "nodes": NODES, "block": 256} if hops else {}
    document = {
        "algorithm": {"name": "fed_gcn", "rounds": rounds, "options": {"fed_gcn": options}},
        "data": {
            "name": "synthetic_banks",
            "options": {"customers": 12, "transactions": 60},
            "records": 64,
            "partition": {
                "name": "dirichlet_linked",
                "clients": clients,
                "options": {"beta": 10000.0},
            },
        },
        "model": {"hidden": 8},
        "transport": {"workers": 1},
        "seed": 1,
    }
    return Federation(policy=chosen, config=Config.parse(document))


@pytest.fixture(scope="module")
def protected(tmp_path_factory):
    path = tmp_path_factory.mktemp("rows") / "run"
    return federation(2, policy("rows_policy.yaml", **SMALL)).run(path)


def entries(run, kind="rows"):
    return [
        json.loads(line)
        for file in sorted(Path(run.path, "ledger").glob("*.jsonl"))
        for line in file.read_text().splitlines()
        if json.loads(line)["kind"] == kind
    ]


def test_rows_are_told_and_the_evidence_holds(protected):
    told = [e["told"] for e in entries(protected) if "told" in e]
    assert len(told) == 5 and sum(told) > 0
    assert not any(e.get("dropped") or e.get("clipped") for e in entries(protected))
    assert protected.verify().verdict == "self-consistent only"
    assert len(entries(protected, "row_tags")) == 2


def test_a_record_that_was_taken_out_fails_the_audit(protected, monkeypatch):
    from audits.evidence.ledger_index import LedgerIndex

    real = LedgerIndex.of_kind

    def without(self, kind):
        return ((p, e) for p, e in real(self, kind) if not (kind == "rows" and p == "matcher"))

    monkeypatch.setattr(LedgerIndex, "of_kind", without)
    assert "FAILED" in str(protected.verify().verdict)


def weights(run):
    return np.concatenate([p.detach().numpy().ravel() for p in run.model().parameters()])


@pytest.mark.long
def test_with_no_row_told_the_model_is_that_of_0_hops(tmp_path):
    """But for how sums are rounded, which depends on the number of the Ask."""
    none = policy("rows_published_policy.yaml", threshold=1_000_000)
    published = weights(federation(2, none).run(tmp_path / "none"))
    own = weights(federation(0, none).run(tmp_path / "own"))
    assert np.abs(published - own).max() < 1e-3
    exact = policy("rows_published_policy.yaml", threshold=1)
    whole = weights(federation(2, exact).run(tmp_path / "exact"))
    assert np.abs(whole - own).max() > 5e-3


def test_presets_and_small_cohorts_are_refused_at_plan_time():
    for name in ("masks", "he", "calibrated", "ldp"):
        with pytest.raises(NotAdmitted):
            federation(2, PrivacyPolicy.preset(name)).plan()
    with pytest.raises((PolicyError, NotAdmitted)):
        federation(2, policy("rows_policy.yaml", **SMALL), clients=3).plan()
    with pytest.raises(NotAdmitted) as refused:
        federation(2, policy("rows_policy.yaml", **SMALL, accept_sums=False)).plan()
    assert "can be parted (A15)" in str(refused.value.why)
    plan = federation(0, PrivacyPolicy.preset("masks")).plan()
    assert not any("ROW_SUM" in item.id for item in plan.items)


def test_data_without_edges_between_clients_is_refused(tmp_path):
    made = federation(2, policy("rows_published_policy.yaml"))
    document = made.config.model_dump(mode="json")
    document["data"]["partition"] = {"name": "by_owner", "clients": 5}
    other = Federation(policy=made.policy, config=Config.parse(document))
    with pytest.raises(UsageError, match="by_owner drops edges between clients"):
        other.run(tmp_path / "run")


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ({"cap": 100}, "power of two"),
        ({"form": "published"}, "needed are exactly rows, unsafe_clear"),
    ],
)
def test_guards_that_protect_nothing_are_refused(rows, why):
    with pytest.raises(ValueError, match=why):
        policy("rows_policy.yaml", **rows)


@pytest.mark.long
def test_a15_is_at_chance_on_rows_by_the_rule_or_noised_and_reads_published_ones(
    protected, tmp_path
):
    exact = policy("rows_published_policy.yaml", threshold=1)
    clear = federation(2, exact, rounds=1).run(tmp_path / "clear")
    loud = policy("rows_noised_policy.yaml", **{**SMALL, "rows": 64})
    noised = federation(2, loud, rounds=1).run(tmp_path / "noised")
    assert noised.verify().verdict == "self-consistent only"
    assert sum(e.get("told", 0) for e in entries(noised)) > 50
    for run, verdict in ((protected, "PASS"), (noised, "PASS"), (clear, "FAIL")):
        rows = [row for row in attack(material(run), ["A15"]).rows if row.id == "A15"]
        assert len(rows) == 4 and {row.verdict for row in rows} == {verdict}
        assert all(float(row.raw.value) > 0.1 and float(row.null.value) == 0 for row in rows)


def test_a12_is_asked_about_the_clients_own_records(protected):
    """Not about the graph of rows, where all nodes' features stand elsewhere: equal labels alone
    would make equal records, held out at one client and trained at another, and none be left."""
    given = material(protected).released
    fresh = federation(2, policy("rows_policy.yaml", **SMALL)).prepare()
    fresh.load(None)
    sites = dict(zip(fresh.plan.clients, fresh.sites, strict=True))
    for name, one in given.candidates.items():
        own = asked_of(sites[name].data, fresh.task.spec).candidates
        assert set(one.marks) <= set(own.marks) and len(set(one.marks)) > 2
        assert min(one.members.sum(), (~one.members).sum()) >= 4


def asked(given, id):
    return {row.what: row for row in attack(given, [id]).rows if row.id == id}


def test_a02_opens_tags_of_nodes_only_with_both_tag_servers(protected):
    rows = asked(material(protected), "A02")
    alone = rows["the matcher alone, with everything that is public"]
    server = rows["the matcher and one tag server"]
    for row in (alone, server):
        assert (row.verdict, row.payload, row.n_clients) == ("PASS", "P08", 5)
        assert float(row.protected.value) == float(row.null.value) == 0.0
        assert float(row.raw.value) == 1.0
    assert len(rows) == 3 and "P08" not in {
        one.payload for one in attack(material(protected), ["A02"]).not_tested
    }


def test_a02_finds_tags_of_nodes_whose_key_one_server_has(protected):
    """Planted: a server whose share alone makes the tags, as if the other had none."""
    given = material(protected)
    (one,) = given.tagged
    weak = replace(one, alone=(one.alone[0], {tag: item for tag, item in one.truth.items()}))
    row = asked(replace(given, tagged=(weak,)), "A02")["the matcher and one tag server"]
    assert row.verdict == "FAIL" and float(row.protected.value) == 1.0


def test_a02_and_a03_ask_of_all_nodes_that_clients_had_tagged(protected):
    (one,) = material(protected).tagged
    assert one.round == 1 and one.catalogue == NODES and len(one.alone) == 2
    for client, tags in one.sent.items():
        real = sorted(one.truth[tag] for tag in tags if tag in one.truth)
        assert len(tags) == SMALL["cap"] > len(real) and real == sorted(one.items[client])
    for table in one.alone:
        assert len(table) == NODES and not set(table) & set(one.truth)
    (row,) = asked(material(protected), "A03").values()
    assert row.payload == "P08" and row.verdict != "NOT_TESTED"


@pytest.mark.parametrize("party", ["matcher", "tag-server-1", "client-3"])
def test_captured_tags_of_nodes_that_were_taken_away_are_missed(protected, party):
    (piece,) = Path(protected.path, "captured", party).glob(
        "link-*-tags" if party == "client-3" else "link-*"
    )
    data = piece.read_bytes()
    piece.unlink()
    try:
        with pytest.raises(EvidenceError, match=r"lacks|was removed"):
            material(protected)
    finally:
        piece.write_bytes(data)
    assert material(protected).tagged
