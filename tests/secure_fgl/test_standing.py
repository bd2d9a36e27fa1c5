"""A run that stood at the share of the commonest class says so, and one that learns does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from secure_fgl.config import Config
from secure_fgl.federation import Federation
from secure_fgl.run import reference
from secure_fgl.run.reference import LONG, commonest, stood
from tests.secure_fgl.cli_tools import config, invoke


def rows(scores: list[float | None]) -> tuple[list[int], list[dict[str, Any]]]:
    return list(range(len(scores))), [{"val_accuracy": score} for score in scores]


@pytest.mark.parametrize(
    ("scores", "found"),
    [
        ([0.1] + [0.30] * LONG + [0.4], (1, LONG)),
        ([0.1] + [0.30] * (LONG - 1) + [0.4] + [0.3] * 3, None),
        ([0.295, 0.305] * LONG, (0, 2 * LONG - 1)),  # near is near enough
        ([0.3] * LONG + [0.5] + [0.3] * (LONG + 2), (LONG + 1, 2 * LONG + 2)),  # the longest
        ([0.84] * 30, None),  # flat, and far above
        ([None] * 30, None),
        ([], None),
    ],
)
def test_the_longest_stretch_near_the_share(
    scores: list[float | None], found: tuple[int, int] | None
) -> None:
    said = stood(*rows(scores), 0.3)
    assert (said and (said["first"], said["last"])) == found
    assert stood(*rows(scores), None) is None


@pytest.mark.parametrize(
    ("scores", "stands"),
    [([0.9725, 0.9760] * 15, False), ([0.981, 0.985] * 15, False), ([0.98] * 30, True)],
)
def test_where_one_class_is_rare_only_a_model_that_gives_no_other_stands(
    scores: list[float | None], stands: bool
) -> None:
    """At 2 % of positives each of these is within 0.01 of the commonest class's share."""
    assert (stood(*rows(scores), 0.98) is not None) is stands
    assert all(score is not None and abs(score - 0.98) <= 0.01 for score in scores)


def cora(data_root: Path, features: str) -> Config:
    return Config.parse(
        {
            "algorithm": {"rounds": 14},
            "model": {"hidden": 16},
            "data": {
                "name": "cora",
                "root": str(data_root),
                "features": features,
                "partition": {"clients": 10},
            },
            "policy": "unsafe_plaintext",
        }
    )


def test_rows_of_words_stand_and_words_as_they_are_learn(data_root: Path, tmp_path: Path) -> None:
    stands = Federation.from_config(cora(data_root, "row")).run(tmp_path / "row").result
    assert stands["stood"]["last"] - stands["stood"]["first"] >= LONG
    assert stands["stood"]["share"] == pytest.approx(0.3, abs=0.02)
    learns = Federation.from_config(cora(data_root, "raw")).run(tmp_path / "raw").result
    assert learns["stood"] is None and learns["metrics"]["test_accuracy"] > 0.35


def test_ratings_have_no_commonest_class() -> None:
    chosen = Config.parse(
        {
            "algorithm": {"name": "fed_mf"},
            "data": {
                "name": "synthetic_ratings",
                "partition": {"name": "user_per_client", "clients": 60},
            },
        }
    )
    from secure_fgl.data.loading import load

    task, _ = Federation.from_config(chosen).build()
    assert commonest(load(chosen, task).sites) is None
    assert commonest([]) is None


def test_the_command_says_what_to_try(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("run", config(tmp_path), "--set", "policy=masks", "--out")
    assert "stood still" not in invoke(*words, tmp_path / "learns").output
    seen = {"first": 3, "last": 29, "share": 0.302}
    monkeypatch.setattr(reference, "stood", lambda *_: seen)
    shown = " ".join(invoke(*words, tmp_path / "run").output.split())
    assert "stood still rounds 3 to 29 at 0.302, the share of the commonest class" in shown
    assert "data.features (standard), or more algorithm.epochs" in shown  # `raw` is what ran
    assert "try model.keep_moments" not in shown and "column split" not in shown
    seen = {"first": 3, "last": 29, "share": 0.98}
    other = ("--set", "data.features=standard", "--set", "model.keep_moments=false")
    shown = " ".join(invoke(*words, tmp_path / "other", *other).output.split())
    advice = shown.partition("try another data.features (raw), ")[2].partition(" clients sent")[0]
    assert "model.keep_moments=true" in advice and "fewer of that class" in advice
