"""Audit replicas: intervals that hold, one client is one, and what is drawn changes nothing else.

All draws are pinned, so no result is false by chance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from audits.attacks import Exposure, NotApplicable, Redrawn, Samples, grad_span, label_count
from audits.attacks._methods.statistics import Bootstrap
from audits.attacks._shared.exposed import ALONE, REPLICAS, counted, drawn_again
from audits.attacks._shared.rows import AttackRows
from audits.attacks._shared.verdicts import LEVEL, holm, judge, p_value, trials
from tests.audits.attacks.made_up import around, samples
from tests.audits.attacks.planted import LAYERS, NODES, TRAIN, Client, D, judged, material
from tests.audits.attacks.test_nulls import intervals, ranked

TRIES = 700
DRAWS = 1 + REPLICAS


def scores(rng: np.random.Generator, clients: int, between: float, within: float) -> np.ndarray:
    """Return scores (draws, clients) about 0.6: what a client has in all draws, and each draw's."""
    own = 0.6 + between * rng.normal(size=clients)
    return own + within * rng.normal(size=(DRAWS, clients))


def covered(between: float, within: float, clients: int, *, apart: bool = False) -> float:
    """Return how often an interval holds the true mean; `apart`: replicas pass as clients."""
    rng, held = np.random.default_rng(17), 0
    names = [f"client-{n}" for n in range(clients)]
    for _ in range(TRIES):
        units = [f"{name} {n}" if apart else name for n in range(DRAWS) for name in names]
        found = scores(rng, clients, between, within).ravel()
        interval = Bootstrap(units, rng).interval(found, (-9.0, 9.0))
        held += interval.low <= 0.6 <= interval.high
    return held / TRIES


@pytest.mark.parametrize(("between", "within"), [(0.1, 0.02), (0.1, 0.1), (0.02, 0.13)])
@pytest.mark.parametrize("clients", [6, 20])
def test_intervals_over_clients_hold_however_alike_replicas_are(between, within, clients):
    assert covered(between, within, clients) >= 0.93


def test_control_intervals_over_replicas_would_not_hold():
    assert covered(0.1, 0.02, 20, apart=True) < 0.7


def test_a_null_with_replicas_stays_at_chance():
    """2,000 reports of 12 rows whose clients keep half of their luck in every draw."""
    rng = np.random.default_rng(23)
    lucky, reports = ranked(rng, 10, 60), 2000
    rows = []
    for n in (4, 8, 20, 40) * 3:
        own = rng.choice(lucky, (reports, n)) - 0.5
        each = rng.choice(lucky, (REPLICAS, reports, n)) - 0.5
        means = 0.5 + (own + (0.5 * own + 0.5 * each).sum(axis=0)) / DRAWS
        records = trials(8 * n, 32 * n, n)  # of the run's own draw, as rows count them
        rows.append(p_value(*intervals(means), n, 0.5, above=False, records=records))
    found = np.array(rows).T
    assert sum(any(holm(report)) for report in found.tolist()) <= 1
    assert (found < 1.0 - LEVEL).mean() < 0.06


def drawn_scores(clients: int, within: float, **given: Any) -> Samples:
    """Return samples of so many clients, a score in each draw, about the prior."""
    units = tuple(f"client-{n:02d}" for n in range(clients)) * DRAWS
    size = len(units)
    facts = {"units": units, "prior": np.full(size, 0.5), "raw": around(0.95, n=size)}
    facts |= {"null": around(0.5, n=size), "protected": around(0.5, within, n=size)}
    return samples(**{**facts, "replicas": REPLICAS, **given})


def test_replicas_of_one_client_do_not_pass_as_many():
    found = judge(drawn_scores(1, 0.01), np.random.default_rng(0), margin=0.05, gate=0.15)
    assert found.verdict == "INCONCLUSIVE" and found.reason.startswith("sample: one client")
    assert found.values["gap"].n == 1


def test_replicas_decide_where_draws_differ_and_not_where_clients_do():
    """Of draws a spread is averaged away, of clients it stays, and says how many are needed."""
    rng = np.random.default_rng(1)
    luck = drawn_scores(20, 0.14)
    alone = replace(
        luck,
        replicas=0,
        **{n: getattr(luck, n)[:20] for n in ("units", "prior", "raw", "null", "protected")},
    )
    clients = replace(luck, protected=np.tile(around(0.5, 0.14, n=20), DRAWS))
    made = [judge(one, rng, margin=0.05, gate=0.15) for one in (luck, alone, clients)]
    assert [one.verdict for one in made] == ["PASS", "INCONCLUSIVE", "INCONCLUSIVE"]
    assert made[2].needed is not None and made[2].needed > 20
    assert f"about {made[2].needed} clients would be needed" in made[2].reason


def test_facts_have_no_replicas():
    with pytest.raises(ValueError, match="facts are what they are"):
        samples(exact=True, replicas=1)


def test_only_clients_of_the_run_s_own_draw_count():
    drawn = [[Exposed("a")], [Exposed("a"), Exposed("b")]]
    assert [one.client for one in counted(drawn)] == ["a", "a"]


class Exposed:
    def __init__(self, client: str) -> None:
        self.client = client


# --- attacks on planted totals --------------------------------------------------------------------


class Cohort:
    """Clients that answer one model together, on records that can be drawn anew."""

    def __init__(self, clients: int) -> None:
        rng = np.random.default_rng(7)
        self.weights = (rng.normal(size=D) * 0.15).astype(np.float32)
        self.clients = [Client(rng) for _ in range(clients)]
        self.given = {"weights": self.weights.astype(np.float64)}
        self.asked = 0

    def drawn(self, rng: np.random.Generator) -> list[Exposure]:
        """Draw records anew, and answer."""
        self.asked += 1
        for one in self.clients:
            one.train = np.zeros(NODES, dtype=bool)
            one.train[rng.permutation(NODES)[:TRAIN]] = True
            one.far = ~(((one.p != 0).astype(int) @ (one.p != 0) @ one.train) > 0)
        return self.said()

    def said(self) -> list[Exposure]:
        raws = [TRAIN * one.change(self.weights, 0.5, 1, "sgd") for one in self.clients]
        counts = np.array(TRAIN), np.array(TRAIN * len(raws))
        whole = {"delta": np.sum(raws, axis=0), "count": counts[1]}
        return [
            Exposure(
                f"client-{n:02d}", 1, self.given, {"delta": raw, "count": counts[0]}, whole,
                len(raws), one.truth, 0.5, 1, "sgd",
            )
            for n, (one, raw) in enumerate(zip(self.clients, raws, strict=True))
        ]  # fmt: skip


@pytest.fixture(scope="module")
def cohort() -> tuple[Cohort, tuple[Exposure, ...]]:
    made = Cohort(8)
    return made, tuple(made.said())


@pytest.mark.parametrize("attack", [grad_span.ATTACK, label_count.ATTACK])
def test_attacks_average_over_replicas_and_count_records_once(clear, cohort, attack):
    made, own = cohort
    plain = material(clear, own, LAYERS)
    bare = judged(attack, plain, "default")
    found = judged(attack, replace(plain, redrawn=Redrawn(made.drawn)), "default")
    rows = [(row, verdict) for row, verdict in found if not row.alone]
    assert [row.what for row, _ in rows] == [row.what for row, _ in bare]
    own = [(row, verdict) for row, verdict in found if row.alone]
    assert [verdict for _, verdict in own] == [verdict for _, verdict in bare]
    assert {row.replicas for row, _ in own} == {0}
    for (row, found), (without, alone) in zip(rows, bare, strict=True):
        assert (row.replicas, without.replicas) == (REPLICAS, 0)
        assert found.values["gap"].n == alone.values["gap"].n == len(set(row.units))
        assert (row.positives, row.negatives) == (without.positives, without.negatives)
        places = [list(row.units).index(name) for name in without.units]
        assert np.array_equal(row.protected[places], without.protected)  # its own draw as it was
        wide, narrow = (one.values["raw_gap"] for one in (alone, found))
        assert narrow.high - narrow.low <= wide.high - wide.low + 0.05


def test_replicas_make_no_outsiders_that_were_not_there(clear, cohort):
    made, own = cohort
    few = [replace(one, truth=fewer(one)) for one in own]
    given = replace(material(clear, tuple(few), LAYERS), redrawn=Redrawn(made.drawn))
    rows = grad_span.ATTACK.run(given, np.random.default_rng(0), "default").rows
    assert isinstance(rows[0], Samples) and rows[0].replicas == REPLICAS
    assert isinstance(rows[1], NotApplicable) and "too few outsiders" in rows[1].reason


def fewer(one: Exposure) -> Any:
    """Return what is true of a client with few outsiders; its replicas have more of them."""
    assert one.truth.outsiders is not None
    return replace(one.truth, outsiders=one.truth.outsiders[:12])


def test_a_client_s_own_message_is_not_drawn_again(cohort):
    made, own = cohort
    alone: Sequence[Exposure] = [replace(one, cohort=1) for one in own]
    before = made.asked
    assert len(list(drawn_again(alone, Redrawn(made.drawn), np.random.default_rng(0)))) == 1
    assert made.asked == before
    assert len(list(drawn_again(own, Redrawn(made.drawn), np.random.default_rng(0)))) == DRAWS


def test_a_row_says_why_there_are_no_replicas(clear, cohort):
    _, own = cohort
    given = replace(material(clear, own, LAYERS), redrawn=Redrawn(why="noise hides it"))
    for attack in (grad_span.ATTACK, label_count.ATTACK):
        for row, _ in judged(attack, given, "default"):
            assert row.note.endswith("No replicas: noise hides it") and row.replicas == 0
            assert not row.alone


def silent(there: Sequence[Exposure], rng: np.random.Generator) -> list[Exposure]:
    """Return exposures whose total says nothing of anybody."""
    said = {"delta": rng.normal(size=D), "count": np.array(TRAIN * len(there))}
    return [replace(one, seen=said) for one in there]


@pytest.mark.parametrize("leaks", [True, False])
def test_a_leak_of_the_run_s_own_records_does_not_vanish_among_replicas(clear, cohort, leaks):
    """As of a published split, whose nodes are not like those that are drawn in their place."""
    made, own = cohort
    (whole,), rng = {id(one.seen): one.seen for one in own}.values(), np.random.default_rng(1)
    assert whole is not None
    some = whole["delta"] + 0.3 * whole["delta"].std() * rng.normal(size=D)
    told = [replace(one, seen={**whole, "delta": some}) for one in own]
    there = tuple(told if leaks else silent(own, rng))
    redrawn = Redrawn(lambda rng: silent(made.drawn(rng), rng))
    given = replace(material(clear, there, LAYERS), redrawn=redrawn)
    rows, _ = AttackRows(grad_span.ATTACK, "default", "0" * 64).made(given)
    assert [row.verdict for row in rows if row.replicas] in (["PASS"], ["INCONCLUSIVE"])
    alone = [row.verdict for row in rows if row.what.endswith(ALONE)]
    assert alone == (["FAIL"] if leaks else [])
