"""Whole runs of FedGNN: embeddings under masks, and as published; evidence and refusals."""

from __future__ import annotations

import pytest

from audits.attacks import attack
from protocols.errors import NotAdmitted
from protocols.policy.policy import PrivacyPolicy
from secure_fgl.attack_inputs.materials import material
from secure_fgl.config import Config
from secure_fgl.federation import Federation
from tests.secure_fgl.test_fed_gcn_run import NODES, SMALL, entries, federation, policy


def gnn(chosen, rounds=2, warm=1, **more):
    """Return a small federation of the same banks, whose edges cross."""
    document = federation(0, chosen, rounds=rounds).config.model_dump(mode="json")
    document["algorithm"]["name"] = "fed_gnn"
    document["algorithm"]["options"] = {"fed_gnn": {"nodes": NODES, "warm": warm, "block": 256}}
    document["algorithm"]["options"]["fed_gnn"].update(more)
    return Federation(policy=chosen, config=Config.parse(document))


@pytest.fixture(scope="module")
def protected(tmp_path_factory):
    path = tmp_path_factory.mktemp("embeddings") / "run"
    return gnn(policy("rows_policy.yaml", **SMALL)).run(path)


def test_embeddings_are_told_after_the_warm_round_and_the_evidence_holds(protected):
    told = [e for e in entries(protected) if "told" in e]
    assert len(told) == 5 and sum(e["told"] for e in told) > 0
    assert {e["round"] for e in told} == {2}
    assert not any(e.get("dropped") or e.get("clipped") for e in entries(protected))
    assert protected.verify().verdict == "self-consistent only"


def test_a_row_has_the_width_of_an_embedding_and_is_planned_once():
    plan = gnn(policy("rows_policy.yaml", **SMALL)).plan()
    (up,) = [item for item in plan.items if "row_width" in item.dims]
    assert up.dims["row_width"] == 8 + 1 and up.times == 1
    short = gnn(policy("rows_policy.yaml", **SMALL), rounds=1).plan()  # over before rows are due
    assert [item.times for item in short.items if "row_width" in item.dims] == [0]


def test_presets_and_policies_that_do_not_accept_sums_refuse_embeddings():
    for name in ("masks", "ldp"):
        with pytest.raises(NotAdmitted):
            gnn(PrivacyPolicy.preset(name)).plan()
    with pytest.raises(NotAdmitted) as refused:
        gnn(policy("rows_policy.yaml", **SMALL, accept_sums=False)).plan()
    assert "can be parted (A15)" in str(refused.value.why)


def test_noise_on_rows_admits_embeddings_of_nodes_by_themselves_alone():
    noised = policy("rows_noised_policy.yaml")
    with pytest.raises(NotAdmitted) as refused:
        gnn(noised).plan()
    assert "other nodes' terms" in str(refused.value.why)
    plan = gnn(noised, alone=True).plan()
    (up,) = [item for item in plan.items if "row_width" in item.dims]
    assert up.counted is not None and up.counted.unit == "node"


@pytest.mark.long
def test_a15_is_at_chance_on_rows_of_embeddings_and_reads_published_ones(protected, tmp_path):
    clear = gnn(policy("rows_published_policy.yaml", threshold=1)).run(tmp_path / "clear")
    for run, verdict in ((protected, "PASS"), (clear, "FAIL")):
        rows = [row for row in attack(material(run), ["A15"]).rows if row.id == "A15"]
        assert len(rows) == 4 and {row.verdict for row in rows} == {verdict}
        assert all(float(row.raw.value) > 0.1 and float(row.null.value) == 0 for row in rows)
