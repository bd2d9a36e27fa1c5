"""Replicas of a run's totals: drawn from its own clients, or a reason why not."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from audits.attacks import attack
from audits.attacks._shared.exposed import FEW, REPLICAS
from secure_fgl.attack_inputs import redraws
from secure_fgl.attack_inputs.materials import material
from tests.secure_fgl.test_replica import play

Rows = set[bytes]
SGD = {"hidden": 8, "dropout": 0.0, "optimiser": "sgd", "lr": 0.1}
"""Of AdamW clients remember moments, which what they say next holds."""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return play(tmp_path_factory.mktemp("redraws") / "run", "masks", model=SGD)


def test_clients_draw_as_many_of_their_own_records_and_answer_the_models_of_the_run(run):
    given = material(run, profile="default")
    assert given.redrawn.play is not None and not given.redrawn.why
    own = {(one.client, one.round): one for one in given.exposures}
    made = given.redrawn.play(np.random.default_rng(0))
    again = given.redrawn.play(np.random.default_rng(0))
    assert {(one.client, one.round) for one in made} == set(own)
    for one, same in zip(made, again, strict=True):
        then = own[one.client, one.round]
        assert np.array_equal(one.known["weights"], then.known["weights"])
        assert one.raw["count"] == then.raw["count"] and one.cohort == then.cohort == 5
        assert not np.array_equal(one.raw["delta"], then.raw["delta"])
        assert np.array_equal(one.raw["delta"], same.raw["delta"])
        members, outsiders = rows(one.truth.members), rows(one.truth.outsiders)
        assert not members & outsiders and members != rows(then.truth.members)
        assert one.truth.labels is not None and then.truth.labels is not None
        assert one.truth.labels.sum() == then.truth.labels.sum()
    for number in {one.round for one in made}:  # the total is that of what is said in this draw
        there = [one for one in made if one.round == number]
        total = np.sum([one.raw["delta"] for one in there], axis=0)
        assert all(np.abs(one.seen["delta"] - total).max() < 0.05 for one in there if one.seen)


def test_quick_draws_nothing_and_default_stands_in_the_rows(run):
    assert material(run).redrawn.play is None
    found = attack(material(run, profile="default"), ["A05"], profile="default")
    asked = [row for row in found.rows if row.id == "A05" and row.protected is not None]
    assert asked and {row.replicas for row in asked} == {REPLICAS}
    assert {row.n_clients for row in asked} == {5}


@pytest.mark.parametrize(
    ("policy", "facts", "why"),
    [
        ("masks", {"algorithm": {"name": "fed_gate", "rounds": 2}, "model": SGD}, "remember"),
        ("masks", {}, "remember"),
        ("calibrated", {"model": SGD}, "noise"),
    ],
)
def test_what_cannot_be_drawn_anew_is_not_and_says_why(tmp_path, policy, facts, why):
    given = material(play(tmp_path / "run", policy, **facts), profile="default")
    assert given.redrawn.play is None and why in given.redrawn.why


def test_many_clients_and_clients_without_spare_records_draw_nothing(run, monkeypatch):
    monkeypatch.setattr(redraws, "FEW", 4)
    assert "at more than 4 clients" in material(run, profile="default").redrawn.why
    monkeypatch.setattr(redraws, "FEW", FEW)
    monkeypatch.setattr(redraws, "_spare", lambda _: False)
    assert "no others to draw" in material(run, profile="default").redrawn.why


@pytest.mark.parametrize("error", [LookupError, TypeError, StopIteration])
def test_who_cannot_answer_without_its_memory_remembers_however_it_fails(monkeypatch, error):
    """An algorithm of a plug-in may take None for a number; an audit goes on all the same."""
    site = SimpleNamespace(data=None, on=lambda data: None)
    replay: Any = SimpleNamespace(sites={"client-1": site})
    ask: Any = SimpleNamespace(
        exchange=None, answers={"client-1": SimpleNamespace(memory={"m": 1})}
    )

    def said(site: Any, answer: Any, exchange: Any, memory: Any) -> Any:
        if memory or error is None:
            return ("said",)
        raise error("nothing is remembered")

    monkeypatch.setattr(redraws, "updates", lambda _: (str,))
    monkeypatch.setattr(redraws, "fields", lambda _: {"delta": np.zeros(2)})
    monkeypatch.setattr(redraws, "_said", said)
    assert redraws._remembers(replay, ask)
    error = None
    assert not redraws._remembers(replay, ask)  # the control


def rows(found: Any) -> Rows:
    return {row.tobytes() for row in found}
