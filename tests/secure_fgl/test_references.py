"""References for which nothing is sent: right values, choices by validation, and who is ahead."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from algorithms.tasks import DataSpec, Site
from algorithms.tasks.inputs import NodeData
from algorithms.tasks.node import NodeTask
from audits.report.build import _worth
from audits.report.learning import ON_NODES, in_words, little, not_computed, worth
from secure_fgl.cli.run import _compared, _summary
from secure_fgl.config import Config
from secure_fgl.data import ClientGraph, load_dataset, partition, split_masks
from secure_fgl.federation import Federation
from secure_fgl.run.reference import Bystander, propagated

ROOT = Path(__file__).resolve().parents[2]
SPEC = DataSpec("node", 2, 2, 16, 2, synthetic=True, name="toy")


def test_labels_on_a_path_of_three_by_hand() -> None:
    """D^-1/2 A D^-1/2 joins neighbours by 1/√2; solved by hand: 7/12, √2/6, 1/12 of restart 1/2."""
    edges = np.array([[0, 1], [1, 2]])
    seeds = np.array([[1.0, 0.0], [0.0, 0.0], [0.0, 0.0]])
    found = propagated(edges, seeds, 0.5)
    assert found[:, 0] == pytest.approx([7 / 12, 2**0.5 / 6, 1 / 12])
    assert (found[:, 1] == 0).all()
    assert (propagated(edges, seeds, 1.0) == seeds).all()


def _graph(y: list[int], edges: list[tuple[int, int]], train: list[int], test: list[int]) -> Any:
    nodes = len(y)
    roles = np.zeros((3, nodes), dtype=bool)
    roles[0, train], roles[2, test] = True, True
    pairs = np.array(edges, dtype=np.int64).reshape(-1, 2).T
    x = np.zeros((nodes, 2), np.float32)
    return ClientGraph(pairs, x, np.array(y), *roles, nodes=np.arange(nodes))


def _bystander(graphs: list[ClientGraph], *names: str, spec: DataSpec = SPEC) -> Bystander:
    document = {"algorithm": {"rounds": 2}, "evaluation": {"references": list(names)}}
    sites = [Site(NodeData.from_graph(graph), seed=n) for n, graph in enumerate(graphs)]
    return Bystander(NodeTask(spec, hidden=4), sites, None, Config.parse(document))


def test_labels_alone_are_pooled_over_sites_and_reach_what_edges_reach() -> None:
    """0-1 and 2-3 hang on a label each; 4 hangs on none and gets the commonest label, 1."""
    known = _graph([0, 0, 1, 1, 0, 1], [(0, 1), (2, 3)], [0, 2, 5], [1, 3, 4])
    unknown = _graph([0, 1], [(0, 1)], [], [0, 1])  # nobody's label: the first class
    assert _bystander([known], "propagation").references() == {"propagation": 2 / 3}
    both = _bystander([known, unknown], "propagation")
    assert both.references() == {"propagation": 3 / 5}
    assert both.test_commonest() == 3 / 5 and both.test_records() == 5 and both.not_computed == {}


@pytest.fixture(scope="module")
def banks() -> list[ClientGraph]:
    graph, rng = load_dataset("synthetic_banks", customers=40, transactions=60), _rng()
    parts = partition(graph, "by_owner", 5, split_masks(graph, rng=rng), rng)
    return [part for part in parts if isinstance(part, ClientGraph)]


def _rng() -> np.random.Generator:
    return np.random.default_rng(3)


@pytest.mark.parametrize("name", ["propagation", "local_propagation", "logistic", "boosted"])
def test_settings_are_chosen_without_a_look_at_test_labels(
    name: str, banks: list[ClientGraph]
) -> None:
    """With each test label turned round, what was right is wrong, and nothing else changes."""
    turned = [replace(g, y=np.where(g.test, 1 - g.y, g.y)) for g in banks]
    spec = replace(SPEC, features=40)
    found, other = (
        _bystander(graphs, name, spec=spec).references()[name] for graphs in (banks, turned)
    )
    assert found is not None and other == pytest.approx(1.0 - found)
    assert found > 0.5


@pytest.mark.parametrize("name", ["logistic", "boosted"])
def test_a_site_with_one_class_or_none_says_what_it_has(name: str) -> None:
    one = _graph([1, 1, 0], [], [0], [1, 2])
    none = _graph([0, 1], [], [], [0, 1])
    assert _bystander([one, none], name).references() == {name: 1 / 2}


def test_without_scikit_learn_two_are_not_computed_and_the_run_says_why(
    monkeypatch: pytest.MonkeyPatch, banks: list[ClientGraph]
) -> None:
    for name in ("sklearn", "sklearn.ensemble", "sklearn.linear_model", "sklearn.preprocessing"):
        monkeypatch.setitem(sys.modules, name, None)
    seen = _bystander(banks, "propagation", "logistic", "boosted", spec=replace(SPEC, features=40))
    found = seen.references()
    assert found["propagation"] is not None and found["logistic"] is found["boosted"] is None
    told = not_computed({"not_computed": seen.not_computed})
    assert set(told) == {"logistic", "boosted"}
    assert all("pip install 'secure-fgl[evaluate]'" in why for why in told.values())


def _result(run: float, seen: dict[str, float | None], **more: Any) -> dict[str, Any]:
    given = {"headline": "test_accuracy", "metrics": {"test_accuracy": run}, "references": seen}
    return {**given, "data": {"task": "node"}, **more}


def test_the_sentence_compares_with_the_best_of_all_that_send_nothing() -> None:
    seen = {"local": 0.6, "propagation": 0.7, "boosted": 0.91, "centralised": 0.99}
    lost = worth(_result(0.8, seen))
    assert lost is not None and lost.best == "boosted" and lost.ahead == pytest.approx(-0.11)
    assert "LOSES" in in_words(lost) and "0.8000 beside 0.9100 of boosted" in in_words(lost)
    assert in_words(lost).endswith("Not compared with: local_propagation, logistic.")
    won = worth(_result(0.95, dict.fromkeys(ON_NODES, 0.9) | {"centralised": 0.99}))
    assert won is not None and "beats every reference that sends nothing" in in_words(won)
    assert "Not compared" not in in_words(won)


def test_small_differences_are_called_so_and_equal_ones_level() -> None:
    close = worth(_result(0.80, {"local": 0.79}, test_records=1000))
    assert close is not None and close.margin == pytest.approx(0.036, abs=0.001)
    assert "may be chance" in in_words(close)
    clear = worth(_result(0.80, {"local": 0.70}, test_records=1000))
    level = worth(_result(0.80, {"local": 0.80}, test_records=1000))
    assert clear is not None and "chance" not in in_words(clear)
    assert level is not None and "level" in in_words(level) and "chance" not in in_words(level)


def test_where_one_class_is_rare_the_sentence_says_that_accuracy_says_little() -> None:
    said = "Accuracy says little here: 97 % of the test records are of one class; evaluate gives"
    rare = worth(_result(0.97, {"local": 0.96}, test_commonest=0.9751))
    assert rare is not None and rare.commonest == 0.9751 and said in in_words(rare)
    for share in (0.9, 0.5, None, "0.98", 1.5, float("nan"), 10**400):
        other = worth(_result(0.97, {"local": 0.96}, test_commonest=share))
        assert other is not None and other.commonest is None and "little" not in in_words(other)
    ranked = {"headline": "test_roc_auc", "metrics": {"test_roc_auc": 0.7}, "references": {}}
    found = worth({**ranked, "references": {"local": 0.6}, "test_commonest": 0.98})
    assert found is not None and found.commonest is None


def test_a_run_that_shares_nothing_is_no_federation() -> None:
    seen = {"logistic": 0.9}
    for run, said in ((0.8, "are behind a"), (0.95, "beat every"), (0.9, "are level with a")):
        found = worth(_result(run, seen, algorithm="local"))
        told = in_words(found)  # type: ignore[arg-type]
        assert told.startswith("This is no federation, its clients share nothing") and said in told
        assert "LOSES" not in told
    shared = worth(_result(0.8, seen, algorithm="fed_avg"))
    assert shared is not None and "The federation LOSES" in in_words(shared)  # control


def test_without_references_a_run_says_too_that_accuracy_says_little() -> None:
    said = "Accuracy says little here: 98 % of the test records are of one class"
    rare = _result(0.98, {}, test_commonest=0.981)
    assert worth(rare) is None and little(rare).startswith(said)
    assert ("accuracy", little(rare)) in _compared(rare) and _worth(rare) == little(rare)
    common = _result(0.98, {}, test_commonest=0.5)
    assert little(common) == _worth(common) == "" and len(_compared(common)) == 1


def test_of_errors_the_smaller_is_better() -> None:
    given = {"headline": "test_rmse", "metrics": {"test_rmse": 0.9}, "data": {"task": "rating"}}
    found = worth({**given, "references": {"mean": 1.1, "local": 1.0, "pmf": 0.5}})
    assert found is not None and found.best == "local" and found.ahead == pytest.approx(0.1)
    assert in_words(found).endswith("(RMSE 0.9000 beside 1.0000 of local).")


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"headline": []},
        _result(0.5, {}),
        _result(0.5, {"centralised": 0.9}),
        _result(float("nan"), {"local": 0.9}),
        {**_result(0.5, {"local": 0.9}), "metrics": 3},
        {**_result(0.5, {"local": 0.9}), "references": ["local"]},
        {**_result(0.5, {}), "references": {"local": "0.9"}},
        {**_result(0.5, {}), "references": {"local": 10**400, "boosted": True}},
    ],
)
def test_what_cannot_be_compared_is_not(wrong: dict[str, Any]) -> None:
    assert worth(wrong) is None
    assert not_computed({"not_computed": {"local": "<b>", "boosted": [], "<i>": "diverged"}}) == {}
    assert not_computed({"not_computed": 3}) == {}
    unsure = worth(_result(0.5, {"local": 0.9}, test_records=10**400))
    assert unsure is not None and unsure.margin == 0.0


def test_a_model_that_no_client_scored_is_compared_by_what_the_simulator_sees() -> None:
    given = _result(0.0, {"released_model": 0.7, "local": 0.8})
    found = worth({**given, "metrics": {"best_round": None}})
    assert found is not None and found.run == 0.7 and found.ahead < 0


# -------------------------------------------------------------------------------------- whole runs


@pytest.fixture(scope="module", params=["lenders", "banks"])
def demo(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """An example as it stands, in clear: the model is the same bit for bit under `pilot`."""
    settings = ["policy=unsafe_plaintext", "resume=false"]
    config = Config.load(ROOT / f"examples/{request.param}.yaml", settings)
    folder = tmp_path_factory.mktemp(request.param) / "run"
    return request.param, Federation.from_config(config).run(folder)


def test_the_federation_beats_every_reference_on_lenders_and_loses_on_banks(demo: Any) -> None:
    name, run = demo
    found = worth(run.result)
    assert found is not None and not found.without
    if name == "lenders":
        assert found.ahead > found.margin > 0  # by more than chance
    else:
        assert found.best == "local_propagation" and found.ahead < 0
        assert run.result["references"]["propagation"] > found.run


def test_run_and_report_say_who_is_ahead(demo: Any, capsys: pytest.CaptureFixture[str]) -> None:
    name, run = demo
    sentence = in_words(worth(run.result))  # type: ignore[arg-type]
    assert ("beats every" if name == "lenders" else "LOSES") in sentence
    _summary(run, "test_accuracy")
    shown = capsys.readouterr().out
    assert sentence in shown
    for label in ("local only", "labels on edges", "local, then edges", "logistic", "boosted"):
        assert label in shown
    report = json.loads((run.path / "report" / "report.json").read_text("utf-8"))
    assert sentence in report["summary"]
    facts = {fact["name"] for fact in report["references"]}
    assert len(facts) >= len(ON_NODES) and any("logistic" in fact for fact in facts)
    assert sentence in (run.path / "report" / "report.html").read_text("utf-8")
    assert run.verify().ok  # which makes the report again


def test_the_readme_shows_the_figures_of_both(demo: Any) -> None:
    name, run = demo
    (row,) = re.findall(rf"^\| `examples/{name}\.yaml`.*$", README, flags=re.M)
    _, federation, best, others, whole = [cell.strip() for cell in row.strip("|").split("|")]
    told = {k: float(v) for k, v in re.findall(r"`(\w+)` ([\d.]+)", others)}
    value, reference = re.findall(r"([\d.]+)\*{0,2} `(\w+)`", best)[0]
    told |= {reference: float(value), "centralised": float(whole)}
    assert told == pytest.approx(run.result["references"], abs=0.03)  # other processors round
    own = run.metrics["test_accuracy"]
    # Two test records of a thousand: README says what `run` prints, to the digit before the last.
    assert float(federation.strip("*")) == pytest.approx(own, abs=0.0025)
    assert ("**" in federation) == (name == "lenders")


README = (ROOT / "README.md").read_text("utf-8")


def test_a_run_without_references_says_that_nothing_was_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small = {"name": "synthetic_banks", "options": {"customers": 20, "transactions": 30}}
    document = {
        **{"algorithm": {"rounds": 1}, "model": {"hidden": 4}, "policy": "unsafe_plaintext"},
        "data": {**small, "partition": {"name": "by_owner", "clients": 5}},
    }
    _summary(Federation.from_config(Config.parse(document)).run(tmp_path / "run"), "test_accuracy")
    assert "nothing was compared" in capsys.readouterr().out


def test_the_first_tutorial_loses_as_it_says(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "tutorials" / "first-run.md").read_text("utf-8")
    (block,) = re.findall(r"```yaml first\.yaml\n(.*?)```", page, flags=re.S)
    (tmp_path / "first.yaml").write_text(block, "utf-8")
    config = Config.load(tmp_path / "first.yaml", ["policy=unsafe_plaintext"])
    found = worth(Federation.from_config(config).run(tmp_path / "run").result)
    assert found is not None and found.ahead < 0 and not found.without
    assert "The federation LOSES here" in page
