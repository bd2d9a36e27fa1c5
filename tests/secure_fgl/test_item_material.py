"""What A01 is given of real runs of FedPerGNN: the rows that left, and the rows of totals."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from audits.attacks import Material, attack
from audits.attacks._methods.support import totals
from protocols.disclosures.noised import decoys
from protocols.errors import EvidenceError
from protocols.evidence.captures import Capture
from protocols.policy.policy import PrivacyPolicy
from secure_fgl import Federation
from secure_fgl.attack_inputs.materials import material
from secure_fgl.config import Config
from secure_fgl.store.finished_run import Run

USERS, ITEMS, ROUNDS, SENT = 8, 80, 3, 40

SEED = 11  # of decoys

pytestmark = pytest.mark.usefixtures("same_chance")


def play(
    folder: Path, policy: PrivacyPolicy, rounds: int = ROUNDS, drop: str = "", blocks: int = 1
) -> Run:
    captured = policy.model_copy(update={"capture": Capture(rounds="all")})
    named = folder / "policy.yaml"
    named.write_text(yaml.safe_dump(captured.document()), "utf-8")
    document: dict[str, Any] = {
        "algorithm": {
            "name": "fed_per_gnn",
            "rounds": rounds,
            "options": {"fed_per_gnn": {"blocks": blocks}},
        },
        "model": {"hidden": 4},
        "data": {
            "name": "synthetic_ratings",
            "options": {"users": USERS, "items": ITEMS, "each": 16},
            "split": [0.6, 0.2, 0.2],
            "partition": {"name": "user_per_client", "clients": USERS},
        },
        "evaluation": {"references": []},
        "policy": str(named),
        "faults": {"drop": drop},
    }
    with pytest.MonkeyPatch.context() as patch:  # verdicts depend on which decoys are drawn
        patch.setattr(decoys, "entropy", np.random.default_rng(SEED).bytes)
        return Federation.from_config(Config.parse(document)).run(folder / "run")


def published(draw: str) -> PrivacyPolicy:
    document = PrivacyPolicy.load("examples/published_policy.yaml").document()
    decoys = next(g for g in document["rules"]["NOISED"] if g["guard"] == "decoys")
    decoys.update(rows=SENT, draw=draw)
    return PrivacyPolicy.model_validate(document)


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return play(tmp_path_factory.mktemp("fresh"), published("fresh"))


@pytest.fixture(scope="module")
def summed(tmp_path_factory: pytest.TempPathFactory) -> Material:
    return material(play(tmp_path_factory.mktemp("summed"), PrivacyPolicy.preset("masks")))


def verdicts(given: Material) -> dict[tuple[str, str], tuple[str, float]]:
    """Return (payload, pool) -> verdict, and how far the attack is above popularity."""
    rows = [row for row in attack(given, ["A01"]).rows if row.id == "A01"]
    stayed = [row for row in rows if row.verdict == "NOT_APPLICABLE"]
    assert [row.what.rpartition(" ")[2] for row in stayed] in ([], ["him"])
    rows = [row for row in rows if row not in stayed]
    assert all(row.gap is not None for row in rows), rows
    return {
        (row.payload, row.what.rpartition(" ")[2]): (row.verdict, float(row.gap.value))
        for row in rows
        if row.gap is not None
    }


def test_rows_that_left_are_those_of_the_client_among_decoys(fresh: Run) -> None:
    given = material(fresh)
    assert len(given.items) == USERS * ROUNDS
    for one in given.items:
        assert one.seen is not None and one.cohort == 1
        number, rows = one.seen
        assert set(one.held) == set(one.raw[0]) < set(number.tolist())
        assert rows.shape == (SENT, 5) and number.max() < ITEMS
    both = [set(one.seen[0]) for one in given.items[:2] if one.seen is not None]
    assert both[0] != both[1]


def test_fresh_decoys_are_told_in_three_rounds_and_sticky_ones_hold(
    fresh: Run, tmp_path: Path
) -> None:
    found = verdicts(material(fresh))
    assert found["P07", "sent"][1] > 0.05 and found["P07", "catalogue"][1] > 0.05
    assert "PASS" not in {verdict for verdict, _ in found.values()}
    sticky = verdicts(material(play(tmp_path, published("sticky"))))
    assert sticky["P07", "sent"][1] < 0.02 < sticky["P07", "catalogue"][1]


def test_a_total_tells_no_client_s_items(summed: Material) -> None:
    found = verdicts(summed)
    told = found.pop(("P05", "ratings"))
    assert told[0] != "FAIL" and told[1] < 0.1  # nor how it rates them
    assert {verdict for verdict, _ in found.values()} == {"PASS"}
    assert {payload for payload, _ in found} == {"P05"}


def test_who_is_away_once_is_held_against_totals_with_him(tmp_path: Path) -> None:
    """Two neighbouring totals at nearly one model differ by the rows of who was away (O12)."""
    policy = PrivacyPolicy.preset("masks")
    found = verdicts(material(play(tmp_path, policy, rounds=6, drop="2@4,5@5,6@6")))
    assert found["P05", "absence"][1] > 0.02


def test_a_total_has_the_rows_that_anybody_trained_on(summed: Material) -> None:
    last = [one for one in summed.items if one.round == ROUNDS]
    anybody = np.unique(np.concatenate([one.raw[0] for one in last]))
    for one in last:
        assert one.seen is not None and one.cohort == USERS
        np.testing.assert_array_equal(one.seen[0], anybody)
        assert set(one.raw[0]) <= set(one.held)


def test_blocks_of_rows_are_read_as_one_total(summed: Material, tmp_path: Path) -> None:
    given = material(play(tmp_path, PrivacyPolicy.preset("masks"), rounds=1, blocks=3))
    (whole,), (cut,) = (
        totals([one for one in those.items if one.round == 1]) for those in (summed, given)
    )
    assert cut.clients == whole.clients
    np.testing.assert_allclose(cut.rows, whole.rows, atol=1e-3)
    own = [np.sort(np.concatenate([r[0] for r in rows(given, c)])) for c in sorted(cut.clients)]
    for numbers, client in zip(own, sorted(cut.clients), strict=True):
        np.testing.assert_array_equal(numbers, rows(summed, client)[0][0])


def rows(given: Material, client: str) -> list[Any]:
    return [one.raw for one in given.items if one.client == client and one.round == 1]


def test_sums_in_clear_are_single_clients(tmp_path: Path) -> None:
    given = material(play(tmp_path, PrivacyPolicy.preset("unsafe_plaintext"), rounds=1))
    for one in given.items:
        assert one.seen is not None and one.cohort == 1
        np.testing.assert_array_equal(one.seen[0], one.raw[0])
        np.testing.assert_allclose(one.seen[1], one.raw[1], atol=1e-3)


def test_rows_that_were_taken_away_are_missed(fresh: Run, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(fresh.path, tmp_path / "run"))
    piece = next(f for f in (folder / "captured" / "client-3").iterdir() if "-2-" in f.name)
    piece.unlink()
    with pytest.raises(EvidenceError, match="client-3 lacks"):
        material(Run(folder))
