"""FedPerGNN with graph expansion as a run: neighbours, evidence, kills, vanished users."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import yaml

from algorithms._shared.item_expansion import ExpandedUser
from algorithms._shared.items import HeldItems
from audits.evidence.verify import verify
from protocols.disclosures.match.protocol.tag_service import MatcherSide
from protocols.errors import CohortTooSmall, NotAdmitted
from protocols.policy.policy import PrivacyPolicy
from secure_fgl.config import Config
from secure_fgl.federation import Federation
from secure_fgl.run import cores, parties
from secure_fgl.run.cores import over_cores
from secure_fgl.store.finished_run import Run
from tests.laws.killing import play
from tests.protocols.matching import plain

USERS, ROUNDS, WIDTH = 11, 3, 4
SAME = ("model_sha256", "metrics", "lost_rounds", "rounds", "form")


def _policy(**guard: Any) -> PrivacyPolicy:
    document = PrivacyPolicy.load("examples/matched_policy.yaml").document()
    match = next(g for g in document["rules"]["MATCH"] if g["guard"] == "match")
    match.update({"cap": 16, "canaries": 3, "floor": 3, **guard})
    return PrivacyPolicy.model_validate(document)


def _config(folder: Path, policy: PrivacyPolicy, **more: Any) -> Config:
    named = folder / "policy.yaml"
    named.write_text(yaml.safe_dump(policy.document()), "utf-8")
    users = more.pop("users", USERS)
    options = {"expand_after": 1, "expand_every": 1, **more.pop("options", {})}
    return Config.parse(
        {
            "algorithm": {
                "name": "fed_per_gnn",
                "rounds": ROUNDS,
                "options": {"fed_per_gnn": options},
            },
            "model": {"hidden": WIDTH, "optimiser": "adam", "weight_decay": 0.0, "lr": 0.05},
            "data": {
                "name": "synthetic_ratings",
                "options": {"users": users, "items": 30, "each": 15},
                "split": [0.6, 0.2, 0.2],
                "partition": {"name": "user_per_client", "clients": users},
            },
            "evaluation": {"references": []},
            "policy": str(named),
            **more,
        }
    )


@pytest.fixture(autouse=True)
def _keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECURE_FGL_STATE", str(tmp_path / "keys"))


class Seen:
    """What sites offered and were told, and the matcher's cells, of the latest expansion."""

    def __init__(self) -> None:
        self.offered: dict[int, tuple[list[int], np.ndarray]] = {}
        self.told: dict[int, dict[int, np.ndarray]] = {}
        self.cells: dict[str, int] = {}

    def watching(self) -> Any:
        offer, met, match = ExpandedUser.offered, ExpandedUser.met, MatcherSide.match

        def offered(user: Any, site: Any, given: Any) -> HeldItems:
            said = offer(user, site, given)
            self.offered[id(site)] = (user.held(site).tolist(), np.array(said.vector))
            return said

        def meeting(user: Any, site: Any, given: Any) -> None:
            met(user, site, given)
            near = site.memory["near"]
            self.told[id(site)] = dict(zip(near["items"].tolist(), near["vectors"], strict=True))

        def matching(side: Any, *given: Any) -> Any:
            found = match(side, *given)
            self.cells = dict(side._cells)
            return found

        return (
            patch.object(ExpandedUser, "offered", offered),
            patch.object(ExpandedUser, "met", meeting),
            patch.object(MatcherSide, "match", matching),
        )


@pytest.mark.parametrize(
    ("mode", "popular"),
    [
        ("oprf", (3, 4, 5, 6, 7, 8)),
        *(pytest.param(mode, (), marks=pytest.mark.long) for mode in ("oprf", "hmac")),
    ],
)
def test_neighbours_are_those_of_plaintext_matching_under_the_same_caps(
    tmp_path: Path, mode: str, popular: tuple[int, ...]
) -> None:
    policy = _policy(mode=mode, popular=0.2 if popular else 0.0)
    chosen = _config(tmp_path, policy, options={"popular": list(popular)})
    seen = Seen()
    one, two, three = seen.watching()
    with one, two, three:
        run = Federation.from_config(chosen).run(tmp_path / "run")
    assert run.verify().ok
    names = sorted(seen.cells)
    own = {
        name: [item for item in items if item not in popular]
        for name, (items, _) in zip(names, seen.offered.values(), strict=True)
    }
    vectors = dict(zip(names, (v for _, v in seen.offered.values()), strict=True))
    lists = plain(own, seen.cells, 3)
    means = {
        cell: np.mean([vectors[n] for n in names if seen.cells[n] == cell], axis=0)
        for cell in set(seen.cells.values())
    }
    for name, found in zip(names, seen.told.values(), strict=True):
        wanted = {i: np.mean([means[c] for c in cells], axis=0) for i, cells in lists[name].items()}
        assert set(found) == set(wanted)
        for item, vector in wanted.items():
            assert np.abs(found[item] - vector).max() < 2 * 2.0 / 2**15
    assert any(seen.told.values()) and any(np.abs(v).max() > 0 for v in vectors.values())


def test_the_run_and_its_report_tell_of_matching(tmp_path: Path) -> None:
    run = Federation.from_config(_config(tmp_path, _policy())).run(tmp_path / "run")
    assert run.result["form"] == "matched_items" and not run.result["lost_rounds"]
    found = verify(run.view())
    assert found.ok and "2 Asks matched" in next(
        s.detail for s in found.steps if s.name == "opened"
    )
    text = (run.path / "report" / "report.md").read_text("utf-8")
    for word in ("tag server", "matcher", "two tag servers together with the matcher"):
        assert word in text.replace("_", " ")


def test_clients_and_tag_servers_work_on_all_cores(tmp_path: Path) -> None:
    calls: list[int] = []

    def counted(work: Any, parts: Any) -> Any:
        parts = list(parts)
        calls.append(len(parts))
        return over_cores(work, parts)

    chosen = _config(tmp_path, _policy(cap=64), users=6)
    with patch.object(cores, "_cores", lambda: 2), patch.object(parties, "over_cores", counted):
        run = Federation.from_config(chosen).run(tmp_path / "run")
    assert run.verify().ok
    # Hash, blind, two shares, a look at the first answer, unblind: of 67 places, in two parts.
    assert calls == [2] * (6 * 6 * (ROUNDS - 1))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills a forked child")
@pytest.mark.parametrize(
    ("after", "steps"),
    [
        (False, ("second_points", "compare")),
        pytest.param(False, (".points", "mates"), marks=pytest.mark.long),
        pytest.param(True, ("halfway", "tagged", "told", "expanded.down"), marks=pytest.mark.long),
    ],
)
def test_a_run_that_is_killed_within_an_expansion_ends_the_same(
    tmp_path: Path, after: bool, steps: tuple[str, ...]
) -> None:
    """At one envelope of each step: to tag servers, to clients, to the matcher."""
    chosen = _config(tmp_path, _policy(), users=6)
    whole = play(chosen, tmp_path / "whole")
    assert whole.result is not None, whole.error
    lines = (tmp_path / "whole" / "ledger" / "aggregator.jsonl").read_text("utf-8").splitlines()
    sent = [e["item"] for e in map(json.loads, lines) if e["kind"] == "release"]
    carried = [item for item in sent if not item.startswith("key.")]
    assert len(carried) == whole.messages
    for number, step in enumerate(steps):
        at = 1 + next(i for i, item in enumerate(carried) if item.endswith(step))
        out = tmp_path / f"run-{number}"
        assert play(chosen, out, at=at, after=after).killed
        ended = play(chosen, out, resume=True)
        assert ended.result is not None, ended.error
        assert {k: ended.result[k] for k in SAME} == {k: whole.result[k] for k in SAME}
        assert Run(out).verify().ok


@pytest.mark.parametrize("drop", ["3@3", pytest.param("3@3:after_upload", marks=pytest.mark.long)])
def test_a_user_who_vanishes_in_a_later_expansion_costs_its_cell(tmp_path: Path, drop: str) -> None:
    chosen = _config(tmp_path, _policy(), faults={"drop": drop})
    run = Federation.from_config(chosen).run(tmp_path / "run")
    assert run.result["lost_rounds"] == [] and run.verify().ok


def test_a_user_who_is_missing_when_cells_are_made_costs_the_round(tmp_path: Path) -> None:
    chosen = _config(tmp_path, _policy(), faults={"drop": "3@2"})
    run = Federation.from_config(chosen).run(tmp_path / "run")
    assert run.result["lost_rounds"] == [2] and run.verify().ok


def test_what_is_not_admitted(tmp_path: Path) -> None:
    with pytest.raises(NotAdmitted) as refused:
        Federation(policy=PrivacyPolicy.preset("masks"), config=_config(tmp_path, _policy())).plan()
    assert "HeldItems needs MATCH" in str(refused.value.why)
    with pytest.raises(CohortTooSmall, match="cell"):
        Federation.from_config(_config(tmp_path, _policy(cell=9), users=8)).plan()


def test_control_in_clear_an_item_gets_the_mean_of_all_who_hold_it(tmp_path: Path) -> None:
    chosen = _config(tmp_path, PrivacyPolicy.preset("unsafe_plaintext"))
    seen = Seen()
    one, two, _ = seen.watching()
    with one, two:
        run = Federation.from_config(chosen).run(tmp_path / "run")
    assert run.verify().ok
    for (items, _), found in zip(seen.offered.values(), seen.told.values(), strict=True):
        for item in items:
            holders = [v for own, v in seen.offered.values() if item in own]
            assert (item in found) is (len(holders) > 1)
            if item in found:
                assert np.allclose(found[item], np.mean(holders, axis=0), atol=1e-6)


@pytest.mark.parametrize(
    ("options", "more", "form"),
    [
        pytest.param({"blocks": 3}, {}, "matched_items", marks=pytest.mark.long),
        ({"holders": 4}, {"holders": 4}, "matched_held_items"),
    ],
    ids=["blocks", "strict"],
)
def test_graphs_expand_under_other_ways_to_say_rows(
    tmp_path: Path, options: dict[str, Any], more: dict[str, Any], form: str
) -> None:
    """Rows in blocks; and rows that enough clients hold, which is what `strict` asks for."""
    policy = PrivacyPolicy.model_validate({**_policy(mode="hmac").document(), **more})
    seen = Seen()
    one, two, three = seen.watching()
    with one, two, three:
        chosen = _config(tmp_path, policy, options=options)
        run = Federation.from_config(chosen).run(tmp_path / "run")
    assert run.result["form"] == form and not run.result["lost_rounds"]
    assert run.verify().ok
    lists = plain(
        dict(zip(sorted(seen.cells), (own for own, _ in seen.offered.values()), strict=True)),
        seen.cells,
        3,
    )
    for wanted, found in zip(lists.values(), seen.told.values(), strict=True):
        assert set(found) == set(wanted) != set()
    if form == "matched_items":  # blocks change nothing of what is learnt
        plain_run = Federation.from_config(_config(tmp_path, policy)).run(tmp_path / "whole")
        assert plain_run.result["metrics"] == pytest.approx(run.result["metrics"], rel=1e-3)
