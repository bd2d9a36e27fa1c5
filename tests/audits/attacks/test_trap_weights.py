"""A20: a crafted model brings records out of totals; noise, other records and refusals stop it.

Trials: one replica of a handful of clients, three volleys of crafted models. All draws are pinned,
so no result is false by chance.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from audits.attacks import Bags, Material, Replica, Samples
from audits.attacks import trap_weights as module
from audits.attacks._methods.span import read_words
from audits.attacks._methods.traps import (
    KNOWN,
    Known,
    Stolen,
    Target,
    crafted,
    force_of,
    led,
    moved,
    one_round,
    steered,
    trap_of,
)
from audits.attacks._shared.verdicts import NotApplicable
from audits.attacks.trap_weights import ATTACK, RECORDS, WORDS, what_clients_take
from audits.evidence.steps import Case
from protocols.disclosures.names import Disclosure
from protocols.plan.steps import Service, Step
from tests.audits.attacks.planted import judged
from tests.audits.attacks.planted_traps import CLIENTS, LARGEST, LAYERS, D, F, H, Site, replica

RNG = np.random.default_rng(11)


@pytest.fixture(autouse=True)
def _short(monkeypatch):
    """Steer a little only, tests of steering say for how long; clients take what they are sent."""
    monkeypatch.setattr(module, "ROUNDS", {"quick": 2, "default": 2})
    monkeypatch.setattr(module, "what_clients_take", lambda _: "as sent")


def given(case: Case, clients: Replica | None, **facts: Any) -> Material:
    return Material(case=case, replica=clients, simulated=True, **facts)


def rows(case: Case, clients: Replica | None, profile: str = "quick", **facts: Any) -> list[Any]:
    found = ATTACK.run(given(case, clients, **facts), np.random.default_rng(3), profile)
    return list(found.rows)


# Reading words.

RECORD, NEAR, FAR = (np.arange(0, 12), np.arange(9, 20), np.arange(18, 30))


def column(*parts: tuple[float, np.ndarray]) -> np.ndarray:
    found = np.zeros(40)
    for value, words in parts:
        found[words] += value
    return found


@pytest.mark.parametrize(
    "others", [(), ((0.31, NEAR),), ((0.31, NEAR), (0.17, FAR)), ((0.9, NEAR), (0.23, FAR))]
)
def test_a_record_is_read_out_of_a_sum_of_a_few(others):
    read = read_words(column((0.5, RECORD), *others), RECORD[:KNOWN], 1e-6)
    assert read is not None and read.tolist() == RECORD.tolist()


def test_known_words_that_others_have_too_still_tell_the_level():
    read = read_words(column((0.5, RECORD), (0.31, NEAR)), np.array([8, 9, 10]), 1e-6)
    assert read is not None and read.tolist() == RECORD.tolist()


def test_what_is_not_in_a_sum_is_not_read_out_of_it():
    assert read_words(np.zeros(40), RECORD[:KNOWN], 1e-6) is None
    assert read_words(column((0.5, FAR)), RECORD[:KNOWN], 1e-6) is None
    drowned = column((0.5, RECORD)) + RNG.normal(size=40)
    assert read_words(drowned, RECORD[:KNOWN], 4.0) is None


def test_rounding_within_the_tolerance_changes_no_word():
    seen = column((0.5, RECORD), (0.31, NEAR)) + RNG.uniform(-1e-3, 1e-3, size=40)
    read = read_words(seen, RECORD[:KNOWN], 4e-3)
    assert read is not None and read.tolist() == RECORD.tolist()


# The crafted model.


def test_a_unit_is_woken_by_few_records_and_what_it_brings_back_is_their_rows():
    site = Site(np.random.default_rng(1))
    words = np.flatnonzero(site.x[0])
    popularity = (site.x > 0).sum(axis=0).astype(float)
    known = words[np.argsort(popularity[words], kind="stable")[:KNOWN]]
    usual = 0.6 * float(site.p[0, 0] / words.size)  # of this record, so that its trap wakes
    target = Target("client-0", known, words)
    model = crafted(LAYERS, D, [target], popularity, usual=usual, force=1e3)
    w0, b0 = LAYERS.part(model, LAYERS.first), LAYERS.part(model, LAYERS.first_bias)
    woken = site.p @ site.x @ w0 + b0 > 0
    assert 0 < woken[:, 0].sum() <= 5 and not woken[:, 1:].any()
    change, _ = trap_of(site.change(model.astype(np.float32), "sgd"), LAYERS, 0)
    inside = np.flatnonzero((site.p[woken[:, 0]] @ site.x).any(axis=0))
    assert set(np.flatnonzero(np.abs(change) > 1e-9)) <= set(inside)


def test_a_step_of_a_model_stays_within_the_bound():
    start, goal = RNG.normal(size=50).astype(np.float32), 10 * RNG.normal(size=50)
    near = moved(start, goal, norm="linf", bound=0.5)
    assert np.abs(near - start).max() <= 0.5 + 1e-6
    assert np.linalg.norm(moved(start, goal, norm="l2", bound=0.5) - start) <= 0.5 + 1e-6
    for norm in ("linf", "l2"):
        assert np.allclose(moved(start, goal, norm=norm, bound=1e3), goal, atol=1e-5)


def test_no_round_moves_a_steered_model_further_than_the_clip():
    clients = replica()
    known = Known.of(clients, np.random.default_rng(0), 1)
    assert known is not None
    steered(clients, known, np.random.default_rng(0), 12)
    models = clients.play.models  # type: ignore[attr-defined]
    assert len(models) == 12 and np.array_equal(models[0], clients.start)
    steps = [np.abs(b - a).max() for a, b in pairwise(models)]
    assert 0.4 < max(steps) <= 0.5 + 1e-6


def test_force_leaves_room_below_the_clip_whether_or_not_changes_are_weighted():
    one = replica()
    assert force_of(one, 0.01, 20.0) == pytest.approx(
        force_of(replace(one, weighted=False, largest=one.largest / 20), 0.01, 20.0)
    )


# What comes back.


def test_a_total_gives_records_word_for_word(masked):
    found = {row.what: (row, made) for row, made in judged(ATTACK, given(masked, replica()))}
    records, words = (found[f"one round: {what}"] for what in ("records", "words"))
    assert [records[1].verdict, words[1].verdict] == ["FAIL", "FAIL"]
    assert records[0].payload == "P05"
    assert records[0].protected.mean() > 0.1 and words[0].protected.mean() > 0.4
    assert not records[0].prior.any() and not records[0].null.any()


def test_who_reads_another_clients_change_reads_nothing(masked):
    """The null control; its control is the raw row, where the change is the right client's."""
    clients, rng = replica(), np.random.default_rng(0)
    known = Known.of(clients, rng, 3)
    assert known is not None
    (shot,) = one_round(clients, known, rng)
    assert shot.raw.whole.mean() > 0.1 and not shot.null.whole.any()
    assert shot.null.f1.mean() < known.guesses[1].f1.mean() + 0.03


def test_noise_hides_what_the_same_model_brings_out_without(masked):
    for noise, verdict in ((0.0, "FAIL"), (100.0, "PASS")):
        made = judged(ATTACK, given(masked, replica(noise=noise)))
        first = [m.verdict for row, m in made if row.what.startswith("one round")]
        assert first == [verdict, verdict]


def test_under_noise_a_model_is_steered_where_there_is_time_for_it(masked, monkeypatch):
    last = rows(masked, replica(noise=100.0))[-1]
    assert isinstance(last, NotApplicable) and last.arises and "profile default" in last.reason
    monkeypatch.setattr(module, "NOISED", {"default": 2})
    last = rows(masked, replica(noise=100.0), "default")[-1]
    assert isinstance(last, Samples) and last.what.startswith(module.STEERED)


def test_a_message_in_clear_gives_no_less_than_a_total():
    rng = np.random.default_rng(0)
    shots = []
    for alone in (False, True):
        clients = replica(alone=alone)
        known = Known.of(clients, np.random.default_rng(0), 3)
        assert known is not None
        shots.append(one_round(clients, known, rng)[0])
    assert shots[1].seen.whole.mean() >= shots[0].seen.whole.mean() > 0


@pytest.mark.parametrize(("optimiser", "rounds"), [("sgd", 16), ("adamw", 8)])
def test_steering_brings_out_more_from_round_to_round(optimiser, rounds):
    clients, rng = replica(optimiser=optimiser), np.random.default_rng(0)
    known = Known.of(clients, rng, 2)
    assert known is not None
    shots = steered(clients, known, rng, rounds)
    assert [shot.rounds for shot in shots][:3] == [2, 4, 8] and shots[-1].rounds == rounds
    assert shots[0].seen.whole.mean() < shots[-1].seen.whole.mean()
    assert shots[-1].seen.f1.mean() > known.guesses[1].f1.mean() + 0.05
    assert shots[-1].seen.read.sum() >= shots[0].seen.read.sum()
    assert shots[-1].seen.whole.any()


def test_a_guess_is_scored_where_nothing_was_read():
    target = Target("a", np.array([0, 1, 2]), np.arange(6))
    found = Stolen.of([target] * 2, [None, np.arange(6)], [np.array([0, 1, 2, 3, 9])] * 2)
    assert found.whole.tolist() == [0.0, 1.0] and found.read.tolist() == [False, True]
    assert found.f1.tolist() == [pytest.approx(2 / 5), 1.0]
    assert found.recall[0] == pytest.approx(1 / 3) and found.precision[0] == 0.5


def test_the_same_chance_gives_the_same_figures(masked):
    one, two = (rows(masked, replica()) for _ in range(2))
    for first, second in zip(one, two, strict=True):
        assert first.note == second.note and np.array_equal(first.protected, second.protected)


# Where it does not apply.


def plan(*models: str) -> Any:
    """Return a plan whose Asks hand out models that clients take so."""
    real = SimpleNamespace(fields=(SimpleNamespace(dtype="f4", shape=(D,)),))
    items = []
    for number, taken in enumerate(models):
        down = {"exchange": f"ask-{number}", "messages": (real,)}
        said = {"model": taken, "disclosure": Disclosure.RELEASED}
        items.append((Service.ASK, Step.DOWN, {**down, **said}))
        items.append((Disclosure.SUM, Step.UP, {**down, "disclosure": Disclosure.SUM}))

    def all_of(part: object, step: object) -> list[Any]:
        return [SimpleNamespace(**f) for p, s, f in items if p is part and s is step]

    return SimpleNamespace(all_of=all_of)


@pytest.mark.parametrize(
    ("models", "taken"),
    [
        (("as sent",), "as sent"),
        (("bounded",), "bounded"),
        (("recomputed",), "recomputed"),
        (("recomputed", "bounded"), "bounded"),
        (("recomputed", "as sent"), "as sent"),
        (("bounded", "as sent"), "as sent"),
    ],
)
def test_of_several_asks_the_weakest_counts(models, taken):
    assert what_clients_take(plan(*models)) == taken


def test_models_that_clients_compute_are_steered_by_one_and_crafted_at_the_start(
    masked, monkeypatch
):
    monkeypatch.setattr(module, "what_clients_take", lambda _: "recomputed")
    found = {row.what: (row, made) for row, made in judged(ATTACK, given(masked, replica()))}
    ways = (module.START, f"{module.BY_ONE}, 2 rounds")
    assert set(found) == {f"{way}: {what}" for way in ways for what in ("records", "words")}
    start, by_one = (found[f"{way}: records"] for way in ways)
    assert start[1].verdict == "FAIL" and "client-0" in start[0].units
    assert "client-0" not in by_one[0].units and set(by_one[0].units) < set(start[0].units)
    assert not start[0].null.any() and not by_one[0].null.any()


def test_one_client_that_steers_is_stopped_by_noise_and_needs_rounds(masked, monkeypatch):
    monkeypatch.setattr(module, "what_clients_take", lambda _: "recomputed")
    monkeypatch.setattr(module, "NOISED", {"quick": 2})
    made = judged(ATTACK, given(masked, replica(noise=100.0)))
    by_one = [(row, m) for row, m in made if row.what.startswith(module.BY_ONE)]
    assert by_one and not any(m.verdict == "FAIL" for _, m in by_one)
    assert not any(row.protected.any() for row, _ in by_one if row.what.endswith("records"))
    monkeypatch.setattr(module, "ROUNDS", {"quick": 1})
    *_, last = rows(masked, replica())
    assert isinstance(last, NotApplicable) and last.what == module.BY_ONE


def led_by_one(largest: float) -> np.ndarray:
    """Return which records one client reads that steers within a clip for six rounds."""
    clients = replica(largest=largest)
    others = {n: bags for n, bags in clients.bags.items() if n != clients.leader}
    known = Known.of(replace(clients, bags=others), np.random.default_rng(0), 2)
    assert known is not None
    shot = led(clients, known, np.random.default_rng(0), 6, beyond=False)[-1]
    assert not shot.null.whole.any()
    return shot.seen.whole


def test_the_less_one_client_can_say_the_fewer_records_it_reads():
    """The control is a bound of all training records, in place of one client's."""
    loose, near = led_by_one(LARGEST), led_by_one(LARGEST / CLIENTS)
    assert loose.mean() > 0.02 and near.mean() < loose.mean() / 2


def test_who_looks_at_the_distance_alone_takes_a_steered_one(masked, monkeypatch):
    monkeypatch.setattr(module, "what_clients_take", lambda _: "bounded")
    for clients in (replica(), replica(weighted=False)):
        first, *others = rows(masked, clients)
        assert isinstance(first, NotApplicable) and not first.arises
        assert first.what == module.ONE_ROUND
        assert {type(row) for row in others} == {Samples}
        ways = [row.what.split(":")[0] for row in others]
        assert ways == [module.START] * 2 + [f"{module.STEERED}, 2 rounds"] * 2


def test_a_crafted_start_reads_records_where_clients_look_at_the_distance_alone(
    masked, monkeypatch
):
    """No earlier model is there to compare the first with, so what draws it is asked as well."""
    monkeypatch.setattr(module, "what_clients_take", lambda _: "bounded")
    start = [made for row, made in judged(ATTACK, given(masked, replica())) if is_start(row)]
    assert len(start) == 2 and any(made.verdict == "FAIL" for made in start)
    noisy = [m for row, m in judged(ATTACK, given(masked, replica(noise=100.0))) if is_start(row)]
    assert len(noisy) == 2 and not any(made.verdict == "FAIL" for made in noisy)  # the control


def is_start(row: Any) -> bool:
    return row.what.startswith(module.START)


def test_what_no_trap_is_written_for_is_not_tested(masked):
    dense = Bags(sp.csr_array(RNG.normal(size=(9, F))), np.ones(9, dtype=bool), np.ones(9))
    for clients, reason in (
        (None, "nobody answers"),
        (replica(model="graph_sage"), "of two layers only"),
        (replica(depth=3), "of two layers only"),
        (replica(bags={"a": dense, "b": dense}), "bags of words only"),
        (replica(bags={"a": Site(RNG).bags}), "two clients"),
    ):
        (row,) = rows(masked, clients, unasked="nobody answers")
        assert isinstance(row, NotApplicable) and row.arises and reason in row.reason


def test_where_no_model_is_handed_out_there_is_none_to_craft(masked, monkeypatch):
    monkeypatch.setattr(module, "_handed", lambda _: [])
    (row,) = rows(masked, replica())
    assert isinstance(row, NotApplicable) and not row.arises


def test_its_rules_and_units_are_those_of_the_house(masked):
    measured = [row for row in rows(masked, replica()) if isinstance(row, Samples)]
    assert {row.metric for row in measured} == {RECORDS.metric, WORDS.metric}
    for row in measured:
        assert len(row.units) == row.positives and len(set(row.units)) > 1
        assert row.positives > H  # several models, each for as many records as there are units
