"""A02 and A03 on captured payloads of real runs: what tags give away, to whom (O24, O30)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from audits.attacks import Material, attack
from protocols.errors import EvidenceError
from protocols.policy.policy import PrivacyPolicy
from secure_fgl.attack_inputs.materials import material
from secure_fgl.config import Config
from secure_fgl.federation import Federation
from secure_fgl.store.finished_run import Run
from tests.secure_fgl.cli_tools import invoke
from tests.thinned import thinned

USERS, ITEMS, CAP = 16, 120, 32

pytestmark = pytest.mark.usefixtures("same_chance")


@pytest.fixture(scope="module", autouse=True)
def _keys(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("SECURE_FGL_STATE", str(tmp_path_factory.mktemp("keys")))
        yield


def _played(folder: Path, capture: bool = True, **guard: Any) -> Run:
    document = PrivacyPolicy.load("examples/matched_policy.yaml").document()
    match = next(g for g in document["rules"]["MATCH"] if g["guard"] == "match")
    match.update({"cap": CAP, "canaries": 3, "floor": 3, "popular": 0.0, **guard})
    if guard.get("mode") == "deterministic":
        document["rules"]["MATCH"][-1] = {"guard": "unsafe_clear"}
    named = folder / "policy.yaml"
    document["capture"] = {"rounds": "all"} if capture else None
    named.write_text(yaml.safe_dump(document), "utf-8")
    chosen = Config.parse(
        {
            "algorithm": {
                "name": "fed_per_gnn",
                "rounds": 2,
                "options": {"fed_per_gnn": {"expand_after": 1}},
            },
            "model": {"hidden": 4, "optimiser": "adam", "weight_decay": 0.0, "lr": 0.05},
            "data": {
                "name": "synthetic_ratings",
                "options": {"users": USERS, "items": ITEMS, "each": 30},
                "split": [0.6, 0.2, 0.2],
                "partition": {"name": "user_per_client", "clients": USERS},
            },
            "evaluation": {"references": []},
            "policy": str(named),
        }
    )
    return Federation.from_config(chosen).run(folder / "run")


@pytest.fixture(scope="module")
def oprf(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return _played(tmp_path_factory.mktemp("oprf"))


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return _played(tmp_path_factory.mktemp("hmac"), mode="hmac")


def _rows(given: Material, id: str) -> dict[str, Any]:
    return {row.what: row for row in attack(given, [id]).rows if row.id == id}


def _value(score: Any) -> float:
    return float(score.value)


def test_a02_only_both_tag_servers_open_tags(oprf: Run) -> None:
    rows = _rows(material(oprf), "A02")
    alone = rows["the matcher alone, with everything that is public"]
    server = rows["the matcher and one tag server"]
    for row in (alone, server):
        assert row.verdict == "PASS" and row.payload == "P08" and row.n_clients == USERS
        assert _value(row.protected) == _value(row.null) == 0.0 and _value(row.raw) == 1.0
    quota = rows[f"the matcher and one client's {CAP + 3} guesses"]
    assert quota.verdict == "PASS" and quota.protected == quota.prior
    assert 0.1 < _value(quota.protected) < 0.9 and _value(quota.raw) == 1.0


def test_a02_with_one_shared_key_any_client_opens_all(keyed: Run) -> None:
    rows = _rows(material(keyed), "A02")
    assert rows["the matcher alone, with everything that is public"].verdict == "PASS"
    assert "the matcher and one tag server" not in rows
    row = rows["the matcher and one client, who holds the key"]
    assert row.verdict == "FAIL" and _value(row.protected) == 1.0


def test_a02_deterministic_tags_are_turned_back_with_the_public_key_alone(tmp_path: Path) -> None:
    run = _played(tmp_path, mode="deterministic")
    assert run.verify().ok
    (row,) = _rows(material(run), "A02").values()
    assert row.what == "the matcher alone, with everything that is public"
    assert row.verdict == "FAIL" and _value(row.protected) == 1.0 and _value(row.null) == 0.0
    text = (run.path / "report" / "report.md").read_text("utf-8")
    assert "UNSAFE: anybody turns tags of items back" in text
    assert "UNSAFE: items matched by tags that anybody opens" in text


@pytest.mark.long
def test_a02_a_quota_that_covers_all_items_keeps_nobody_from_anything(tmp_path: Path) -> None:
    row = _rows(material(_played(tmp_path, cap=128)), "A02")[
        "the matcher and one client's 131 guesses"
    ]
    assert row.verdict == "FAIL" and _value(row.prior) == 0.0 and _value(row.protected) == 1.0


def test_a03_counts_tell_and_a_false_prior_does_not(oprf: Run) -> None:
    (row,) = _rows(material(oprf), "A03").values()
    assert row.verdict == "FAIL" and _value(row.raw) > _value(row.prior) + 0.1
    assert abs(_value(row.null) - _value(row.prior)) < 0.1


def test_what_was_captured_is_what_was_compared(oprf: Run) -> None:
    (one,) = material(oprf).tagged
    assert one.round == 2 and len(one.sent) == USERS and len(one.alone) == 2
    assert {len(tags) for tags in one.sent.values()} == {CAP}
    for client, tags in one.sent.items():
        items = [one.truth[tag] for tag in tags if tag in one.truth]
        assert 0 < len(items) <= CAP and set(items) <= set(one.items[client].tolist())
    for table in one.alone:
        assert len(table) == ITEMS and not set(table) & set(one.truth)


@pytest.mark.parametrize("party", thinned(["matcher", "tag-server-1", "client-03"], 3))
def test_captures_that_were_taken_away_are_missed(oprf: Run, party: str) -> None:
    for piece in sorted((oprf.path / "captured" / party).glob("offered-*")):
        data = piece.read_bytes()
        piece.unlink()
        try:
            with pytest.raises(EvidenceError, match=r"lacks|was removed"):
                material(oprf)
        finally:
            piece.write_bytes(data)
    assert material(oprf).tagged


def test_without_captures_nothing_is_claimed(tmp_path: Path) -> None:
    rows = _rows(material(_played(tmp_path, capture=False)), "A02")
    (row,) = rows.values()
    assert row.verdict == "NOT_TESTED" and "forbids capture" in row.reason


def test_the_report_holds_the_rows(oprf: Run) -> None:
    result = invoke("audit", "attack", oprf.path, "--attacks", "A02,A03", "--fail-on", "never")
    assert result.exit_code == 0, result.output
    text = (oprf.path / "report" / "report.md").read_text("utf-8")
    text = text.replace("\\", "").replace("_", " ")
    assert "tags of item identifiers (P08)" in text and "tag-dictionary" in text
    assert "can tell which items they stand for" in text
    assert "matcher and both tag servers" in text
