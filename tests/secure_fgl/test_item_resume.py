"""Decoys of a run that was killed: sticky ones are the same afterwards (O21)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml

from protocols.evidence.captures import Capture
from protocols.policy.policy import PrivacyPolicy
from secure_fgl.attack_inputs.materials import material
from secure_fgl.config import Config
from secure_fgl.store.finished_run import Run
from tests.laws.killing import play

USERS, ROUNDS, SENT = 5, 3, 30


def _policy(draw: str) -> PrivacyPolicy:
    document = PrivacyPolicy.load("examples/published_policy.yaml").document()
    decoys = next(g for g in document["rules"]["NOISED"] if g["guard"] == "decoys")
    decoys.update(rows=SENT, draw=draw)
    return PrivacyPolicy.model_validate(document).model_copy(
        update={"capture": Capture(rounds="all")}
    )


def _config(folder: Path, policy: PrivacyPolicy) -> Config:
    named = folder / "policy.yaml"
    named.write_text(yaml.safe_dump(policy.document()), "utf-8")
    return Config.parse(
        {
            "algorithm": {"name": "fed_per_gnn", "rounds": ROUNDS},
            "model": {"hidden": 4},
            "data": {
                "name": "synthetic_ratings",
                "options": {"users": USERS, "items": 60, "each": 12},
                "split": [0.6, 0.2, 0.2],
                "partition": {"name": "user_per_client", "clients": USERS},
            },
            "evaluation": {"references": []},
            "policy": str(named),
        }
    )


@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills a forked child")
@pytest.mark.parametrize("draw", ["sticky", "fresh"])
def test_sticky_decoys_outlive_a_kill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, draw: str
) -> None:
    """Drawn anew after the kill, the two sets would share little but the user's own items."""
    monkeypatch.setenv("SECURE_FGL_STATE", str(tmp_path / "keys"))
    chosen, out = _config(tmp_path, _policy(draw)), tmp_path / "run"

    whole = play(chosen, tmp_path / "whole").messages
    assert play(chosen, out, at=2 * whole // 3).killed
    ended = play(chosen, out, resume=True)
    assert ended.result is not None, ended.error
    sent: dict[str, set[frozenset[int]]] = {}
    for one in material(Run(out)).items:
        assert one.seen is not None
        sent.setdefault(one.client, set()).add(frozenset(one.seen[0].tolist()))
    assert len(sent) == USERS
    assert {len(found) for found in sent.values()} == {1 if draw == "sticky" else ROUNDS}
