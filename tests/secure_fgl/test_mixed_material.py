"""What the attack on mixtures is given of a real run: the very mixtures that were read (A06)."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import protocols.disclosures.mixed.mixing
from audits.attacks import Material, attack
from protocols.disclosures.mixed.guards import Blur, Mix
from protocols.disclosures.names import Disclosure
from protocols.errors import EvidenceError
from protocols.evidence.captures import Capture
from protocols.policy.guards import Clip, Seal
from protocols.policy.policy import PrivacyPolicy
from secure_fgl import Federation
from secure_fgl.attack_inputs import mixtures as mixed_material
from secure_fgl.attack_inputs.materials import material
from secure_fgl.config import Config
from secure_fgl.store.finished_run import Run

ROUNDS, FLOOR = 3, 8

pytestmark = pytest.mark.usefixtures("same_chance")

DOCUMENT: dict[str, Any] = {
    "algorithm": {
        "name": "fed_ego",
        "rounds": ROUNDS,
        "options": {"fed_ego": {"passes": 1, "group": FLOOR}},
    },
    # linear: no two nodes fall together behind a ReLU, so no mixture stays away
    "model": {
        "name": "ego_sage_linear",
        "hidden": 8,
        "lr": 0.01,
        "batch": 32,
        "options": {"fan_out": 2},
    },
    "data": {"name": "synthetic_banks", "partition": {"clients": 5}},
    "evaluation": {"references": []},
}


ALL = Capture(rounds="all")


def policy(*more: Any, capture: Capture | None = ALL) -> PrivacyPolicy:
    base = PrivacyPolicy.preset("masks")
    chain = (Clip(norm="l2", bound=16.0), Mix(floor=FLOOR, apart=2, bucket=1), *more, Seal())
    rules = {**base.rules, Disclosure.MIXED: chain}
    return base.model_copy(update={"rules": rules, "capture": capture})


def shuffled() -> PrivacyPolicy:
    base = PrivacyPolicy.preset("shuffled")
    chain = tuple(
        Mix(floor=FLOOR, apart=2, bucket=1) if isinstance(guard, Mix) else guard
        for guard in base.chain(Disclosure.MIXED)
    )
    return base.model_copy(
        update={"rules": {**base.rules, Disclosure.MIXED: chain}, "capture": ALL}
    )


def play(folder: Path, chosen: PrivacyPolicy, **options: Any) -> Run:
    document = {**DOCUMENT, "algorithm": {**DOCUMENT["algorithm"]}}
    if options:
        document["algorithm"]["options"] = {"fed_ego": options}
    return Federation(config=Config.parse(document), policy=chosen).run(folder)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Return a run whose mixtures come of a seed: how well an attack does depends on them."""
    with pytest.MonkeyPatch.context() as patch:
        draws = np.random.default_rng(11).bytes
        patch.setattr(protocols.disclosures.mixed.mixing, "entropy", draws)
        return play(tmp_path_factory.mktemp("mixed") / "run", policy())


@pytest.fixture(scope="module")
def found(run: Run) -> Material:
    return material(run, profile="default")


def test_every_client_and_captured_round_is_there(run: Run, found: Material) -> None:
    met = [(one.client, one.round) for one in found.mixed]
    assert met == [(f"client-{c}", r) for c in range(1, 6) for r in range(1, ROUNDS + 1)]
    assert {one.round for one in material(run, profile="quick").mixed} == {1}


def test_what_was_read_are_means_of_these_records(found: Material) -> None:
    check_means(found)


def test_behind_a_relay_each_client_s_mixtures_are_found_in_the_pool(tmp_path: Path) -> None:
    run = play(tmp_path / "run", shuffled())
    found = material(run, profile="quick")
    assert {one.client for one in found.mixed} == {f"client-{c}" for c in range(1, 6)}
    check_means(found)


def test_weights_that_rest_on_no_cosine_are_of_nobody_who_is_compared(found: Material) -> None:
    """A witness sees FedEgo's weights, which are even; a plan with cosines is A13's to look at."""
    report = attack(found, ["A13"])
    assert [r.verdict for r in report.rows if r.id == "A13"] == ["NOT_APPLICABLE"]
    why = {one.payload: one.why for one in report.not_tested}
    assert why["P15"] == "A13: no client is compared in this run"


def check_means(found: Material) -> None:
    for one in found.mixed:
        table, features = one.tables["computed"], one.seen["features"]
        points = np.rint(table / (16 / (2**15 - 1)))  # rows that are one point are one record
        _, first, same = np.unique(points, axis=0, return_index=True, return_inverse=True)
        for group, seen in enumerate(features):
            columns = one.index[one.groups == group].T
            means = [table[first[np.unique(same.ravel()[c])]].mean(axis=0) for c in columns]
            assert np.abs(np.array(means) - seen).max() < 2 * 16 / 2**15
            assert len(columns[0]) >= FLOOR
        assert features.shape[1] == sum(one.rings) == 7
        assert np.abs(one.seen["label"].sum(axis=1) - 1).max() < 1e-3


def test_groups_and_members_stay_and_vectors_change(found: Material) -> None:
    first, second = (one for one in found.mixed if one.client == "client-2" and one.round < 3)
    there = (first.groups >= 0) & (second.groups >= 0)  # a mixture may stay away for a round
    pairs = np.unique(np.stack([first.groups, second.groups])[:, there], axis=1)
    assert there.any() and all(len(np.unique(row)) == pairs.shape[1] for row in pairs)
    assert np.array_equal(first.index, second.index)
    assert not np.allclose(first.tables["computed"], second.tables["computed"])


def test_the_layers_of_the_beginning_are_near_those_that_mixed(found: Material) -> None:
    for one in found.mixed:
        begun, computed = one.tables["begun"], one.tables["computed"]
        assert begun.shape == computed.shape and not np.allclose(begun, computed)
        off = np.abs(begun - computed).mean()
        assert off < np.abs(computed).mean()  # they are close, as one round's training is short


def test_links_are_means_over_neighbours(found: Material) -> None:
    one = found.mixed[0]
    assert one.links is not None and np.allclose(np.asarray(one.links.sum(axis=1)), 1.0)
    drawn = one.links.toarray()[one.index[:, 0][:, None], one.index[:, 1:3]]
    assert (drawn > 0).all()  # who stands beside a centre is its neighbour, or itself


def test_the_attack_finds_records_in_a_real_run(found: Material) -> None:
    rows = [row for row in attack(found, ["A06"]).rows if row.id == "A06"]
    verdicts = {(row.payload, row.metric.split()[0]): row.verdict for row in rows[::-1]}
    assert verdicts["P10", "1"] == "PASS" and verdicts["P11", "share"] == "FAIL"
    assert all(float(row.raw.value) > 0.7 for row in rows if row.raw is not None)
    assert all(row.verdict != "ERROR" for row in rows)


def test_a_capture_that_was_taken_away_is_missed(run: Run, tmp_path: Path) -> None:
    for party, wanted in (("client-3", "client-3 lacks"), ("aggregator", "aggregator lacks")):
        folder = Path(shutil.copytree(run.path, tmp_path / party))
        (piece,) = [f for f in (folder / "captured" / party).iterdir() if "mix-2-" in f.name]
        piece.unlink()
        with pytest.raises(EvidenceError, match=wanted):
            material(Run(folder), profile="default")


def test_other_records_than_those_that_were_mixed_are_refused(run: Run, monkeypatch: Any) -> None:
    made = protocols.disclosures.mixed.mixing.remixed

    def other(*args: Any) -> Any:
        return {name: value + 0.01 for name, value in made(*args).items()}

    monkeypatch.setattr(mixed_material, "remixed", other)
    with pytest.raises(EvidenceError, match="not what was read"):
        material(run)


def test_blurred_mixtures_are_found_among_those_that_were_read(tmp_path: Path) -> None:
    found = material(play(tmp_path / "run", policy(Blur(multiplier=3.0))))
    assert len(found.mixed) == 5
    (row,) = (row for row in attack(found, ["A06"]).rows if row.payload == "P11")
    assert row.protected is not None and float(row.protected.value) < 0.5


def test_without_capture_it_is_not_tested(tmp_path: Path) -> None:
    report = attack(material(play(tmp_path / "run", policy(capture=None))), ["A06"])
    row = next(row for row in report.rows if row.id == "A06")
    assert row.verdict == "NOT_TESTED" and "forbids capture" in row.reason


def test_in_clear_mixtures_of_one_fail_by_their_number(tmp_path: Path) -> None:
    clear = PrivacyPolicy.preset("unsafe_plaintext")
    clear = clear.model_copy(update={"capture": Capture()})
    found = material(play(tmp_path / "run", clear, group=1, passes=1))
    rows = [row for row in attack(found, ["A06"]).rows if row.exact and row.id == "A06"]
    assert [row.verdict for row in rows] == ["FAIL"]


def test_ready_made_fields_are_nobody_s_mixture(tmp_path: Path) -> None:
    """FedEgo w/o Mixup: what a mixture holds is not known, so nothing is tested."""
    clear = PrivacyPolicy.preset("unsafe_plaintext")
    clear = clear.model_copy(update={"capture": Capture()})
    found = material(play(tmp_path / "run", clear, group=8, mixup=False))
    assert found.mixed == ()
    row = next(row for row in attack(found, ["A06"]).rows if row.id == "A06")
    assert row.verdict == "NOT_TESTED"
