"""FedPerGNN with the form `published` of expansion as a run: the field's local graph (O21, O24)."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
import yaml

from algorithms._shared.item_expansion import ExpandedUser
from algorithms._shared.items import HeldItems
from audits.evidence.verify import verify
from protocols.disclosures.noised.guards import LEVELS
from protocols.policy.policy import PrivacyPolicy
from secure_fgl.config import Config
from secure_fgl.federation import Federation
from secure_fgl.store.finished_run import Run
from tests.laws.killing import play

USERS, ROUNDS, WIDTH, FLOOR = 8, 3, 4, 3
SAME = ("lost_rounds", "rounds", "form")  # what is learnt rests on noise
QUIET = 2.0 / LEVELS  # one step of the noise's grid


@pytest.fixture(autouse=True)
def _keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECURE_FGL_STATE", str(tmp_path / "keys"))


def _config(folder: Path, scale: float = QUIET, **guard: Any) -> Config:
    document = PrivacyPolicy.load("examples/matched_published_policy.yaml").document()
    clip, laplace, match, _ = document["rules"]["MATCH"]
    clip["bound"], laplace["scale"] = 2.0, scale
    match.update({"cap": 16, "canaries": 3, "mode": "hmac", "neighbours": USERS, **guard})
    named = folder / "policy.yaml"
    named.write_text(yaml.safe_dump(document), "utf-8")
    return Config.parse(
        {
            "algorithm": {
                "name": "fed_per_gnn",
                "rounds": ROUNDS,
                "options": {"fed_per_gnn": {"expand_after": 1, "expand_every": 1}},
            },
            "model": {"hidden": WIDTH, "optimiser": "adam", "weight_decay": 0.0, "lr": 0.05},
            "data": {
                "name": "synthetic_ratings",
                "options": {"users": USERS, "items": 30, "each": 15},
                "split": [0.6, 0.2, 0.2],
                "partition": {"name": "user_per_client", "clients": USERS},
            },
            "evaluation": {"references": []},
            "policy": str(named),
        }
    )


def test_a_local_graph_gets_the_users_who_hold_its_items(tmp_path: Path) -> None:
    offered: dict[int, tuple[list[int], np.ndarray]] = {}
    graphs: dict[int, dict[int, np.ndarray]] = {}
    offer, told = ExpandedUser.offered, ExpandedUser.expanded

    def offering(user: Any, site: Any, given: Any) -> HeldItems:
        said = offer(user, site, given)
        offered[id(site)] = (user.held(site).tolist(), np.array(said.vector))
        return said

    def expanded(user: Any, site: Any, *given: Any) -> Any:
        found, near = told(user, site, *given), site.data.graph.neighbours
        user.look(site)
        near = site.data.graph.neighbours
        graphs[id(site)] = {
            int(item): vectors[known].numpy()
            for item, vectors, known in zip(site.data.items, near.vectors, near.known, strict=True)
            if known.any()
        }
        return found

    with (
        patch.object(ExpandedUser, "offered", offering),
        patch.object(ExpandedUser, "expanded", expanded),
    ):
        run = Federation.from_config(_config(tmp_path)).run(tmp_path / "run")
    assert run.verify().ok and run.result["form"] == "matched_items"
    assert not run.result["lost_rounds"]
    several = 0
    for me, graph in graphs.items():
        wanted = {}
        for item in offered[me][0]:
            others = [v for who, (own, v) in offered.items() if who != me and item in own]
            if len(others) + 1 >= FLOOR:
                wanted[item] = others
        assert set(graph) == set(wanted)
        for item, vectors in graph.items():
            assert len(vectors) == len(wanted[item])
            several += len(vectors) > 1
            gaps = np.abs(vectors[:, None] - np.array(wanted[item])[None]).max(axis=2)
            rows = gaps.argmin(axis=1)
            assert len(set(rows)) == len(rows) and gaps.min(axis=1).max() < 100 * QUIET
    assert several > 20 and any(np.abs(v).max() > 0 for _, v in offered.values())


def test_the_noise_of_the_policy_is_on_what_users_read(tmp_path: Path) -> None:
    seen: list[np.ndarray] = []
    told = ExpandedUser.expanded

    def expanded(user: Any, site: Any, *given: Any) -> Any:
        found = told(user, site, *given)
        seen.append(site.memory["near"]["vectors"])
        return found

    with patch.object(ExpandedUser, "expanded", expanded):
        run = Federation.from_config(_config(tmp_path, 50.0)).run(tmp_path / "run")
    assert run.verify().ok
    numbers = np.unique(np.concatenate(seen), axis=0)  # a vector is read by several
    assert 30 < np.abs(numbers).mean() < 75  # vectors lie within 2, the noise's mean is 50
    plan = json.loads((tmp_path / "run" / "plan.json").read_text("utf-8"))
    assert f"epsilon = {2 * 2.0 / 50:g} per coordinate" in json.dumps(plan)


def test_the_report_says_what_strangers_read(tmp_path: Path) -> None:
    run = Federation.from_config(_config(tmp_path, mode="oprf")).run(tmp_path / "run")
    found = verify(run.view())
    assert found.ok and "2 Asks matched" in next(
        s.detail for s in found.steps if s.name == "opened"
    )
    text = (run.path / "report" / "report.md").read_text("utf-8")
    for words in (
        "UNSAFE: clients read single vectors of others",
        "Clients read SINGLE VECTORS of others",
        "UNSAFE: items matched by tags of two servers",
        "EVERY published vector",
    ):
        assert words in text
    assert "left IN CLEAR" not in text


@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills a forked child")
@pytest.mark.parametrize("after", [pytest.param(False, marks=pytest.mark.long), True])
def test_a_run_that_is_killed_as_lists_are_handed_over_goes_on(tmp_path: Path, after: bool) -> None:
    chosen = _config(tmp_path)
    whole = play(chosen, tmp_path / "whole")
    assert whole.result is not None, whole.error
    lines = (tmp_path / "whole" / "ledger" / "aggregator.jsonl").read_text("utf-8").splitlines()
    sent = [e["item"] for e in map(json.loads, lines) if e["kind"] == "release"]
    carried = [item for item in sent if not item.startswith("key.")]
    at = 3 + next(i for i, item in enumerate(carried) if item.endswith(".match.told"))
    out = tmp_path / "run"
    assert play(chosen, out, at=at, after=after).killed
    ended = play(chosen, out, resume=True)
    assert ended.result is not None, ended.error
    assert {k: ended.result[k] for k in SAME} == {k: whole.result[k] for k in SAME}
    assert Run(out).verify().ok


def test_neighbours_are_placed_beside_the_item_that_they_hold() -> None:
    """Several under one item, in any order, and none under another."""

    class Site:
        pass

    site, graph = Site(), Site()
    site.data, site.memory = Site(), {}  # type: ignore[attr-defined]
    site.data.items, site.data.graph = np.array([2, 5, 9]), graph  # type: ignore[attr-defined]
    user = object.__new__(ExpandedUser)
    vectors = np.arange(8, dtype=np.float32).reshape(4, 2)
    site.memory["near"] = {"items": np.array([9, 2, 9, 9]), "vectors": vectors}  # type: ignore[attr-defined]
    with patch.object(ExpandedUser, "table", lambda self: (10, 2)):
        user.look(site)  # type: ignore[arg-type]
    near = graph.neighbours  # type: ignore[attr-defined]
    assert near.known.tolist() == [[True, False, False], [False] * 3, [True, True, True]]
    assert torch.equal(near.vectors[0, 0], torch.tensor([2.0, 3.0]))
    assert near.vectors[2].tolist() == [[0.0, 1.0], [4.0, 5.0], [6.0, 7.0]]
