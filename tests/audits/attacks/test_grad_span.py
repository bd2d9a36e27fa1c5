"""A05 on planted leaks, on noise, and weakened on purpose.

Trials: 8 to 60 clients of 10 members each against up to 1,000 outsiders. All draws are pinned, so
no result is false by chance.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from audits.attacks import Layers, NotApplicable, Truth
from audits.attacks._methods.span import Span
from audits.attacks._methods.statistics import auc
from audits.attacks._shared.payloads import ROUNDS
from audits.attacks.grad_span import ATTACK
from tests.audits.attacks.planted import F, H, exposures, judged, material, rounds_of, weakened


def test_a_plain_step_gives_every_member_away(clear, leak):
    (row, found), *_ = judged(ATTACK, material(clear, leak))
    assert row.payload == "P01"
    assert row.raw.min() > 0.98
    assert found.verdict == "FAIL"


def test_signs_of_adamw_steps_give_members_away_too(clear):
    (row, found), *_ = judged(ATTACK, material(clear, exposures(12, optimiser="adamw", steps=3)))
    assert row.raw.mean() > 0.95
    assert found.verdict == "FAIL"


def test_on_the_null_it_sits_at_chance(clear, leak):
    (_, found), *_ = judged(ATTACK, material(clear, leak))
    null = found.values["null"]
    assert null.low <= 0.5 <= null.high
    assert null.high - null.low < 0.15


def test_noise_passes_with_enough_clients(clear, noise):
    found = judged(ATTACK, material(clear, noise))
    assert [row.metric for row, _ in found] == [ATTACK.metric, "TPR at 1 % FPR"]
    for row, judgement in found:
        assert judgement.verdict == "PASS", judgement.reason
        assert row.raw.mean() > 0.9


def test_noise_with_few_clients_is_inconclusive(clear, noise):
    (_, found), *_ = judged(ATTACK, material(clear, noise[:6]))
    assert found.verdict == "INCONCLUSIVE"
    assert found.reason.startswith("sample")
    assert found.needed is None or found.needed > 6


def test_weakened_it_is_inconclusive_and_never_pass(clear, leak):
    for _, found in judged(ATTACK, material(clear, weakened(leak, 50.0))):
        assert found.verdict == "INCONCLUSIVE"
        assert "weak attack" in found.reason


def test_a_null_of_the_victims_own_message_is_invalid(clear, leak, monkeypatch):
    """A split that is biased towards members shows in the null."""
    from audits.attacks._shared import span_trials

    def own(self, victim, spans, seen, pool):
        made(self, victim, spans, seen, pool)
        self.null = self.raw

    made = span_trials.Trial.__init__
    monkeypatch.setattr(span_trials.Trial, "__init__", own)
    (_, found), *_ = judged(ATTACK, material(clear, leak))
    assert found.verdict == "INVALID"


def test_a_mean_that_all_remember_spoils_no_null(clear, leak):
    """FedGATE's trackers say all clients' mean again; the control is the null without `afresh`."""
    mean = np.mean([one.raw["delta"] for one in leak], axis=0)
    told = tuple(
        replace(one, raw={**one.raw, "delta": one.raw["delta"] + mean}, afresh=one.raw)
        for one in rounds_of(leak, 2, 0.0)
    )
    spoilt = tuple(replace(one, afresh=None) for one in told)
    sound, biased = (judged(ATTACK, material(clear, there)) for there in (told, spoilt))
    assert any(ROUNDS in row.what for row, _ in sound)
    for row, found in sound:
        assert found.values["null"].low <= row.chance <= found.values["null"].high
        assert found.verdict == "FAIL" and "without memory" in row.note
    assert all(found.verdict == "INVALID" for row, found in biased if row.metric == ATTACK.metric)
    assert not any(row.note for row, _ in biased)


def test_who_keeps_all_rounds_finds_more_than_one_round_tells(clear):
    """Forty clients, two rounds, noise of each round's own; all draws are pinned."""
    single, *rest = judged(ATTACK, material(clear, rounds_of(exposures(40), 2, 0.03)))
    (row, found) = next(one for one in rest if one[0].what.endswith(ROUNDS))
    assert row.metric == ATTACK.metric and row.rounds == (1, 2)
    assert len(row.units) == 40 and len(single[0].units) == 80
    assert row.protected.mean() > single[0].protected.mean() + 0.03
    assert found.verdict == "FAIL"
    assert found.values["null"].low <= 0.5 <= found.values["null"].high


def test_who_keeps_all_rounds_and_is_weakened_says_nothing(clear, leak):
    once, twice = weakened(leak, 50.0), weakened(leak, 60.0)
    there = (*once, *(replace(one, round=2) for one in twice))
    kept = [found for row, found in judged(ATTACK, material(clear, there)) if ROUNDS in row.what]
    assert kept and {found.verdict for found in kept} == {"INCONCLUSIVE"}


def test_a_client_of_one_round_alone_is_nothing_to_keep(clear, leak):
    there = rounds_of(leak[:4], 2, 0.0)[1:]
    rows = [row for row, _ in judged(ATTACK, material(clear, there)) if ROUNDS in row.what]
    assert {name for row in rows for name in row.units} == {one.client for one in leak[1:4]}
    assert not any(ROUNDS in row.what for row, _ in judged(ATTACK, material(clear, leak[:4])))


def test_a_total_of_twelve_still_leaks_and_of_sixty_less(masked):
    few = judged(ATTACK, material(masked, exposures(12, total=True)))[0]
    many = judged(ATTACK, material(masked, exposures(60, total=True)))[0]
    assert few[0].payload == "P05"
    assert few[1].verdict == "FAIL"
    assert few[0].protected.mean() > many[0].protected.mean() + 0.1


def test_members_of_anybody_are_no_outsiders_of_a_total(masked):
    """Outsiders that are another client's members would hide the leak."""
    found = exposures(12, total=True)
    mixed = tuple(
        replace(
            one,
            truth=replace(
                one.truth,
                outsiders=np.concatenate([one.truth.outsiders, found[n - 1].truth.members]),
            ),
        )
        for n, one in enumerate(found)
    )
    plain, told = (judged(ATTACK, material(masked, e))[0][0] for e in (found, mixed))
    assert np.allclose(plain.protected, told.protected, atol=1e-9)
    assert plain.negatives == told.negatives


def test_a_client_without_a_true_outsider_is_left_out(masked):
    """All that it calls outsiders are another client's members, so the total holds them."""
    first, second, *rest = exposures(12, total=True)
    none = replace(first, truth=replace(first.truth, outsiders=second.truth.members))
    (row, _), *_ = judged(ATTACK, material(masked, (none, second, *rest)))
    assert set(row.units) == {one.client for one in (second, *rest)}


def test_few_outsiders_leave_the_low_rate_out(clear, leak):
    *_, low = ATTACK.run(material(clear, leak), np.random.default_rng(0), "quick").rows
    assert isinstance(low, NotApplicable)
    assert "1000 are needed" in low.reason


def test_without_a_first_layer_it_says_so(clear, leak):
    (row,) = ATTACK.run(material(clear, leak, Layers()), np.random.default_rng(0), "quick").rows
    assert isinstance(row, NotApplicable)


@pytest.mark.parametrize("truth", [Truth(), Truth(members=np.zeros((0, F), np.float32))])
def test_clients_without_candidates_are_left_out(clear, leak, truth):
    (row, _), *_ = judged(ATTACK, material(clear, (replace(leak[0], truth=truth), *leak[1:])))
    assert leak[0].client not in row.units


def test_a_message_that_says_no_change_ranks_nobody(clear, leak):
    silent = tuple(replace(one, seen={"count": np.array(1.0)}) for one in leak)
    (row, _), *_ = judged(ATTACK, material(clear, silent))
    assert np.array_equal(row.protected, np.full(len(leak), 0.5))


def test_weight_decay_is_taken_out():
    """Decay alone moves every weight; what is left over is the span of the members."""
    rng = np.random.default_rng(0)
    given = rng.normal(size=(F, H))
    members = (rng.random((6, F)) < 0.1).astype(np.float64)
    moved = members.T @ rng.normal(size=(6, H)) * 1e-4
    strangers = (rng.random((40, F)) < 0.1).astype(np.float64)
    span = Span(moved - 1e-3 * given, given, optimiser="sgd")
    assert auc(span.scores(members), span.scores(strangers)) == 1.0
    bare = Span(-1e-3 * given, given, optimiser="sgd")
    assert 0.3 < auc(bare.scores(members), bare.scores(strangers)) < 0.7


def test_more_hidden_units_than_features_still_rank():
    rng = np.random.default_rng(0)
    members, strangers = rng.normal(size=(4, 20)), rng.normal(size=(200, 20))
    moved = members.T @ rng.normal(size=(4, 64))
    span = Span(moved, rng.normal(size=(20, 64)) * 1e-9, optimiser="sgd")
    assert auc(span.scores(members), span.scores(strangers)) > 0.99


def _in_rows(found, share):
    """Return the same clients, each read in a row of another one that weighs it by `share`."""
    mean = np.mean([one.raw["delta"] for one in found], axis=0)
    rest = 1.0 - share
    return tuple(
        replace(
            one,
            payload="P21",
            cohort=len(found),
            raw={"delta": one.raw["delta"]},
            seen={"delta": share * one.raw["delta"] + rest * mean},
        )
        for one in found
    )


def test_a_row_that_weighs_a_client_most_gives_its_members_away(clear, leak):
    (row, found), *_ = judged(ATTACK, material(clear, _in_rows(leak, 0.9)))
    assert row.payload == "P21" and "another client's weighted row" in row.what
    assert found.verdict == "FAIL" and found.values["null"].low <= 0.5 <= found.values["null"].high
    even, *_ = judged(ATTACK, material(clear, _in_rows(leak, 0.0)))
    assert even[0].protected.mean() < row.protected.mean()
    for _, worse in judged(ATTACK, material(clear, _in_rows(weakened(leak, 50.0), 0.9))):
        assert worse.verdict == "INCONCLUSIVE" and "weak attack" in worse.reason


def test_own_messages_and_rows_of_one_run_are_rows_of_their_own(clear, leak):
    found = judged(ATTACK, material(clear, (*leak, *_in_rows(leak, 0.9))))
    assert {row.payload for row, _ in found} == {"P01", "P21"}
