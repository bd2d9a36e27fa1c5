"""Defaults of models: one table, written out in a run's configuration, and never half of a row."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pytest

from algorithms.nn import model_names
from algorithms.tasks import Kind
from secure_fgl.config import Config, ModelConfig
from secure_fgl.defaults import _TABLE, PLAIN, STEPS, Training, defaults, said, settled
from secure_fgl.federation import Federation
from secure_fgl.run.reference import commonest

ROOT = Path(__file__).resolve().parents[2]
GCN = defaults("node", "gcn")


def row(model: ModelConfig) -> Training:
    return Training(*(getattr(model, field) for field in Training._fields))


def federation(**model: Any) -> Federation:
    document = {"model": model, "data": {"name": "synthetic_banks"}}
    return Federation.from_config(Config.parse(document))


def test_every_row_is_of_a_model_that_there_is_and_differs_from_the_plain_one() -> None:
    for kind, name in _TABLE:
        assert name in model_names(kind)
        assert defaults(kind, name) != PLAIN
    assert {kind for kind, _ in _TABLE} <= set(get_args(Kind))


def test_what_nobody_chose_is_written_out_and_what_somebody_chose_stays() -> None:
    assert row(settled(ModelConfig(), "node", "gcn")) == GCN
    chosen = ModelConfig(lr=0.2, dropout=0.0)
    assert row(settled(chosen, "node", "gcn")) == GCN._replace(lr=0.2, dropout=0.0)
    assert row(settled(ModelConfig(), "node", "ego_sage")) == PLAIN


@pytest.mark.parametrize("other", [{"optimiser": "sgd"}, {"keep_moments": False}])
def test_a_step_size_never_stands_beside_another_optimiser_than_its_own(
    other: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    steeper = GCN._replace(lr=0.3, dropout=0.1)
    monkeypatch.setitem(_TABLE, ("node", "gcn"), steeper)
    assert row(settled(ModelConfig(), "node", "gcn")) == steeper
    assert row(settled(ModelConfig(**other), "node", "gcn")) == PLAIN._replace(**other)


def test_an_algorithm_with_plain_gradient_steps_has_a_row_of_its_own() -> None:
    assert row(settled(ModelConfig(), "node", "gcn", gradients=True)) == STEPS
    assert row(settled(ModelConfig(), "graph", "gin", gradients=True)) == PLAIN
    document = {"algorithm": {"name": "apfl"}, "data": {"name": "synthetic_banks"}}
    made = Federation.from_config(Config.parse(document))
    assert row(made.config.model) == STEPS
    assert made.build()[0].lr == STEPS.lr


def test_the_configuration_of_a_run_says_what_it_was_trained_with_and_makes_it_again() -> None:
    for name in ("fed_avg", "apfl"):
        document = {"algorithm": {"name": name}, "data": {"name": "synthetic_banks"}}
        first = Federation.from_config(Config.parse(document)).config
        again = Federation.from_config(Config.of_others(first.text())).config
        assert again == first
        assert None not in row(again.model)[:4]  # batch: all at once


def test_the_task_is_built_with_what_the_configuration_says() -> None:
    assert federation().build()[0].lr == federation().config.model.lr == GCN.lr
    assert federation(lr=0.5).build()[0].lr == federation(lr=0.5).config.model.lr == 0.5


def test_every_example_of_a_published_figure_names_all_that_a_table_could_change() -> None:
    for file in sorted((ROOT / "examples").glob("*.yaml")):
        if file.stem.endswith("_policy"):
            continue
        chosen = Config.load(file)
        if chosen.data.name.startswith("synthetic"):  # a demonstration: no figure of anybody's
            continue
        model = chosen.model
        assert model.name is not None, file.name
        kept = (model.optimiser, model.lr)
        assert None not in kept or model.name not in {name for _, name in _TABLE}, file.name


def test_words_name_every_setting_and_leave_out_what_is_not_settled() -> None:
    assert said(PLAIN) == "adamw, moments anew in every round, lr 0.01, dropout 0.5"
    assert said(ModelConfig(lr=0.2)) == "lr 0.2"


@pytest.mark.parametrize("name", ["apfl", "apfl_gate", "fed_gate"])
def test_plain_steps_beat_the_commonest_class_in_twenty_rounds(name: str, tmp_path: Path) -> None:
    """The control steps by 0.01, as AdamW does: one step a round, and it ends below."""
    reached = {}
    for lr in (None, PLAIN.lr):
        document = {
            "algorithm": {"name": name, "rounds": 20},
            "model": {} if lr is None else {"lr": lr},
            "data": {
                "name": "synthetic_banks",
                "partition": {"name": "by_owner", "clients": 5},
            },
            "policy": "unsafe_plaintext",
            "evaluation": {"references": []},
            "seed": 1,
        }
        federation = Federation(config=Config.parse(document))
        run = federation.run(tmp_path / f"{lr}")
        reached[lr] = run.metrics["val_accuracy"]
    prepared = federation.prepare()
    prepared.load()
    share = commonest(prepared.sites)
    assert share is not None and reached[None] > share + 0.05, (reached, share)
    assert reached[PLAIN.lr] < reached[None] - 0.1


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("apfl", "plain gradient steps, lr 0.3, dropout 0.5"),
        ("fed_avg", "adamw, moments anew in every round, lr 0.01, dropout 0.5"),
    ],
)
def test_the_demonstration_names_the_steps_that_its_algorithm_takes(name: str, words: str) -> None:
    chosen = Config.load(ROOT / "examples/banks.yaml", [f"algorithm.name={name}"])
    assert Federation.from_config(chosen).training() == words
