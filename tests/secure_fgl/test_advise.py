"""``audit advise``: what is tried, what is replayed, who is chosen, and going on after a stop."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from audits.attacks._shared.models import AttackRow, Value
from audits.plots.frontier import Point, frontier
from protocols.policy.policy import PrivacyPolicy
from secure_fgl.advising import trials as trying
from secure_fgl.advising.candidates import Candidate, candidates, same_training
from secure_fgl.advising.choosing import advised, cost
from secure_fgl.advising.choosing import frontier as best_of
from secure_fgl.advising.pages import markdown, plot, sentence
from secure_fgl.advising.trials import Trial
from secure_fgl.attack_inputs.verified_run import config_of, verified
from secure_fgl.config import Config
from secure_fgl.errors import UsageError
from secure_fgl.federation import Federation
from secure_fgl.store.finished_run import Run
from tests.secure_fgl.cli_tools import CONFIG, invoke

DIGEST = "0" * 64


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    document = {**yaml.safe_load(CONFIG), "policy": "masks", "transport": {"workers": 1}}
    folder = tmp_path_factory.mktemp("advised") / "run"
    return Federation.from_config(Config.parse(document)).run(folder).path


@pytest.fixture(scope="module")
def out(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Advice on three candidates: one that trains, one that need not, one that is refused."""
    folder = tmp_path_factory.mktemp("advice")
    wanted = [
        {"name": "encrypted", "policy": "he"},
        {"name": "own noise", "policy": "ldp"},
        {"name": "calibrated", "policy": "calibrated"},
    ]
    (folder / "tried.yaml").write_text(yaml.safe_dump(wanted))
    shown = invoke(
        "audit", "advise", run, "--out", folder / "out", "--candidates", folder / "tried.yaml",
        "--attacks", "A05,A09",
    )  # fmt: skip
    assert shown.exit_code == 0, shown.stderr
    assert "own noise" in shown.stdout and "Nothing that was tried passes" in shown.stdout
    return folder


def told(folder: Path) -> dict[str, Any]:
    found = json.loads((folder / "out" / "advice.json").read_text())
    return {trial["name"]: trial for trial in found["trials"]}


def test_captures_are_replayed_only_where_training_stays_the_same(run: Path, out: Path) -> None:
    found = told(out)
    how = {name: trial["how"] for name, trial in found.items()}
    assert how == {
        "as run": "replayed",
        "encrypted": "replayed",
        "own noise": "not tried",
        "calibrated": "trained",
    }
    assert "err by" in found["own noise"]["why_not"]
    own = Run(run).metrics
    assert found["encrypted"]["validation"] == own["val_accuracy"]
    assert found["encrypted"]["test"] == own["test_accuracy"]
    assert found["as run"]["rows"] == found["encrypted"]["rows"] and found["as run"]["rows"]
    assert {row["id"] for row in found["calibrated"]["rows"]} == {"A05", "A09"}
    # No client told a score under noise: the audit made one, of the final model.
    assert 0.0 < found["calibrated"]["validation"] <= 1.0
    assert not (out / "out" / "run").exists() and not (out / "out" / "budgets").exists()
    page = (out / "out" / "advice.md").read_text()
    assert "| replayed |" in page and "not tried: The mean of" in page
    assert (out / "out" / "frontier.svg").read_text().startswith("<svg xmlns=")


def test_what_is_there_is_not_made_again(
    run: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*given: Any, **named: Any) -> Any:
        raise AssertionError("a trial was made again")

    monkeypatch.setattr(trying, "attack", never)
    words = ("--candidates", out / "tried.yaml", "--attacks", "A05,A09", "--format", "json")
    again = invoke("audit", "advise", run, "--out", out / "out", *words)
    assert again.exit_code == 0, again.stderr
    assert json.loads(again.stdout) == json.loads((out / "out" / "advice.json").read_text())
    other = invoke("audit", "advise", run, "--out", out / "out", "--attacks", "A05")
    assert other.exit_code == 1  # the control: another list of attacks is another trial
    file = out / "out" / "trials.jsonl"
    lines = file.read_text()
    try:
        file.write_text(lines[: len(lines) // 2])  # cut in the middle of a line
        assert invoke("audit", "advise", run, "--out", out / "out", *words).exit_code == 2
        first = json.loads(lines.splitlines()[0])
        file.write_text(json.dumps({**first, "of": DIGEST}) + "\n")  # of another run
        assert invoke("audit", "advise", run, "--out", out / "out", *words).exit_code == 2
    finally:
        file.write_text(lines)


def test_nothing_that_is_not_of_trials_is_deleted(run: Path, tmp_path: Path) -> None:
    mine = tmp_path / "budgets" / "spent.jsonl"
    mine.parent.mkdir()
    mine.write_text("of all runs of this site")
    for folder in (tmp_path, run, run.parent):  # run.parent/run: the run itself
        shown = invoke("audit", "advise", run, "--out", folder, "--attacks", "A09")
        assert shown.exit_code == 2 and "no trials" in shown.stderr, shown.stderr
    assert mine.exists() and Run(run).verify().ok


def test_an_interrupted_trial_leaves_no_captures_and_no_keys(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def kept() -> list[Path]:
        folders = (tmp_path / "out" / "run", tmp_path / "state" / "captures")
        return [path for folder in folders for path in folder.rglob("*") if path.is_file()]

    def stopped(*given: Any, **named: Any) -> Any:
        places = {path.relative_to(tmp_path).parts[1] for path in kept()}
        assert places == {"run", "captures"}  # the control: pieces, and keys to them
        raise KeyboardInterrupt

    monkeypatch.setenv("SECURE_FGL_STATE", str(tmp_path / "state"))
    monkeypatch.setattr(trying, "attack", stopped)
    case = verified(Run(run))
    config = config_of(case, None)
    (tmp_path / "out").mkdir()
    tried = trying.Trials(Run(run), case, config, None, (), ("A09",), tmp_path / "out")
    fewer = next(one for one in candidates(case, config) if one.name == "1 releases")
    with pytest.raises(KeyboardInterrupt):
        list(tried.all([fewer], lambda line: None))
    assert kept() == []


def test_a_trial_that_cannot_be_deleted_is_not_left_without_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its keys would stay, and nobody could tell any more whose they are."""

    def refused(*given: Any, **named: Any) -> Any:
        raise UsageError("It holds something that no run writes.")

    monkeypatch.setattr(trying, "delete", refused)
    for names, stays in (
        ((), False),
        (("plan.json",), False),
        (("plan.json", "roster.json"), True),
    ):
        out = tmp_path / str(len(names))
        out.mkdir()
        for name in names:
            (out / name).touch()
        with pytest.raises(UsageError) if stays else contextlib.nullcontext():
            trying._removed(out)
        assert out.exists() == stays


def test_the_usual_candidates_name_their_change_or_why_not(run: Path) -> None:
    case = verified(Run(run))
    config = config_of(case, None)
    found = {one.name: one for one in candidates(case, config)}
    assert found["as run"].policy is not None and found["as run"].config == config
    assert "all 5 sites" in found["larger cohort"].why_not
    assert "rows of items" in found["holders"].why_not
    assert found["grid of 4 bits"].change == "4 in place of 16 bits"
    assert {"calibrated", "ldp", "1 releases"} <= set(found)
    assert all(bool(one.config) is not bool(one.why_not) for one in found.values())
    for name, one in found.items():
        assert same_training(case, config, one) is (name == "as run"), name
    clear = Candidate("x", "y", config, PrivacyPolicy.preset("unsafe_plaintext"))
    assert not same_training(case, config, clear)  # single messages are read


@pytest.mark.parametrize(
    "text",
    ["{", "[]", "[{name: x}]", "[{name: x, policy: none_such}]", "[{name: as run, policy: he}]",
     "[{name: x, set: [data.partition.clients=9]}]", "[{name: x, set: [policy=he]}]",
     "[{name: x, policy: he}, {name: x, policy: ckks}]"],
)  # fmt: skip
def test_a_file_that_lists_no_candidates_is_refused(run: Path, tmp_path: Path, text: str) -> None:
    file = tmp_path / "tried.yaml"
    file.write_text(text)
    assert invoke("audit", "advise", run, "--candidates", file).exit_code == 2


def trial(
    name: str, validation: float, gap: float, verdict: str, metric: str = "accuracy"
) -> Trial:
    def value(middle: float) -> Value:
        return Value(
            value=f"{middle}", low=f"{middle - 0.01:.4f}", high=f"{middle + 0.01:.4f}", n=9
        )

    row = AttackRow.model_validate(
        {"id": "A05", "name": "grad-span", "question": "?", "payload": "P05", "what": "x",
         "profile": "quick", "n_clients": 9, "n_pos": 1, "n_neg": 1, "seed": DIGEST,
         "metric": "AUC", "chance": "0.5", "prior": value(0.5), "raw": value(0.9),
         "null": value(0.5), "protected": value(0.5 + gap), "raw_gap": value(0.4),
         "gap": value(gap), "excess": value(gap), "margin": "0.05", "gate": "0.15",
         "verdict": verdict, "reason": "r",
             "detectable": "0.06" if verdict == "PASS" else ""}
    )  # fmt: skip
    return Trial(
        of=DIGEST, settings=name, name=name, change=name, how="trained", metric=metric,
        validation=validation, test=1.0 - validation, rows=(row,),
    )  # fmt: skip


def test_validation_chooses_among_those_that_pass_within_the_points() -> None:
    own = trial("as run", 0.80, 0.2, "FAIL")
    found = (
        own,
        trial("good", 0.785, 0.01, "PASS"),
        trial("dear", 0.75, 0.0, "PASS"),
        trial("leaky", 0.79, 0.1, "FAIL"),
        trial("unsure", 0.82, 0.03, "INCONCLUSIVE"),
    )
    chosen = advised(found, 2.0)
    assert chosen is not None and chosen.name == "good"  # test scores would have chosen "dear"
    assert cost(chosen, found) == pytest.approx(0.015)
    assert advised(found, 1.0) is None
    assert "Nothing that was tried passes at a cost of 1 points" in sentence(found, 1.0)
    assert [one.name for one in best_of(found)] == ["good", "dear", "unsure"]
    assert "good" in markdown(found, 2.0).splitlines()[-1]
    assert (drawn := plot(found)) is not None and drawn.count("<circle") == len(found)
    errors = tuple(
        one.model_copy(update={"metric": "rmse", "validation": 1.0 - (one.validation or 0.0)})
        for one in found
    )
    best = advised(errors, 2.0)
    assert best is not None and best.name == "good"  # of errors less is better


def test_names_that_a_run_s_writer_chose_are_text_on_the_page() -> None:
    named = trial("x", 0.8, 0.2, "FAIL", metric="<b>\u202e")
    refused = Trial(
        of=DIGEST, settings="y", name="y", change="y", how="not tried", why_not="no <img> |\n# Y"
    )
    page = markdown([trial("as run", 0.8, 0.01, "PASS", "<i>"), named, refused], 2.0)
    assert "\\<i\\>" in page and "\\<img\\>" in page and "<" not in page.replace("\\<", "")
    assert "\n# Y" not in page
    drawn = plot([named])
    assert drawn is not None and "<b>" not in drawn and "\u202e" not in drawn


def test_names_in_the_plot_are_text() -> None:
    shown = str(frontier([Point("<b>&", 0.5, 0.1, 0.0, 0.2, True)], "accuracy"))
    assert "<b>" not in shown and "&lt;b&gt;&amp;" in shown
