"""A04 on planted leaks, on noise, and weakened on purpose.

Trials: 8 to 60 clients of 10 records each in four classes, one to six rounds. All draws are
pinned, so no result is false by chance.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from audits.attacks import Layers, NotApplicable, Samples, Truth
from audits.attacks._shared.label_mix import Estimate, together
from audits.attacks._shared.payloads import ROUNDS
from audits.attacks._shared.verdicts import judge
from audits.attacks.label_count import ATTACK, MIX, SKILL, Last, _mixes, _Round, estimate, overlap
from tests.audits.attacks.planted import LAYERS, C, exposures, judged, material, rounds_of, weakened


def test_one_plain_step_gives_the_class_mix_away(clear, leak):
    (row, found), *_ = judged(ATTACK, material(clear, leak))
    assert row.payload == "P01"
    assert row.raw.min() > 0.9 > 0.5 > found.values["prior"].value
    assert np.array_equal(row.raw, row.protected)
    assert found.verdict == "FAIL"


def test_signs_of_adamw_steps_give_it_away_too(clear):
    (row, found), *_ = judged(ATTACK, material(clear, exposures(12, optimiser="adamw", steps=3)))
    assert row.raw.mean() > 0.75
    assert found.verdict == "FAIL"


@pytest.mark.parametrize(("optimiser", "noise"), [("sgd", 50.0), ("adamw", 5.0)])
def test_noise_leaves_the_attacker_with_his_prior(clear, optimiser, noise):
    found = judged(ATTACK, material(clear, exposures(60, optimiser=optimiser, noise=noise)))
    for row, judgement in found:
        assert judgement.verdict == "PASS", judgement.reason
        assert abs(judgement.values["gap"].value) < 0.02
        assert row.null.mean() <= row.prior.mean()


def test_null_is_no_better_than_guessing(clear, leak):
    (row, found), *_ = judged(ATTACK, material(clear, leak), "default")
    assert row.null.mean() <= row.prior.mean() < row.raw.mean() - 0.3
    assert found.verdict != "INVALID"


def test_an_attack_that_sees_the_truth_is_invalid(clear, leak, monkeypatch):
    """The null is where an attack that cheats shows: it knows the victim from any message."""
    from audits.attacks import label_count

    def cheat(self, place, moved):
        return Estimate(self.truth[place], self.truth[place], 0.0)

    monkeypatch.setattr(label_count._Round, "read", cheat, raising=True)
    (_, found), *_ = judged(ATTACK, material(clear, leak))
    assert found.verdict == "INVALID"


def test_weakened_it_is_inconclusive_and_never_pass(clear, leak):
    for _, found in judged(ATTACK, material(clear, weakened(leak, 50.0))):
        assert found.verdict == "INCONCLUSIVE"
        assert "weak attack" in found.reason


def test_who_keeps_all_rounds_reads_more_than_one_round_tells(clear, leak):
    """Twelve clients, six rounds, noise of each round's own; all draws are pinned."""
    single, *rest = judged(ATTACK, material(clear, rounds_of(leak, 6, 0.1)))
    row, found = next(one for one in rest if one[0].what.endswith(ROUNDS))
    assert (row.metric, len(row.units), row.rounds) == (MIX.metric, 12, (1, 2, 3, 4, 5, 6))
    assert row.protected.mean() > single[0].protected.mean() + 0.03
    assert found.verdict == "FAIL"
    weak = rounds_of(weakened(leak, 50.0), 2, 0.1)
    kept = [found for row, found in judged(ATTACK, material(clear, weak)) if ROUNDS in row.what]
    assert kept and {found.verdict for found in kept} == {"INCONCLUSIVE"}


def test_several_messages_count_by_how_little_noise_they_show():
    prior, truth = np.full(C, 0.25), np.array([0.7, 0.1, 0.1, 0.1])
    found = prior + 0.01 * (truth - prior)
    noisy = [Estimate(prior, found, 0.01)] * 300
    assert np.allclose(together(noisy), truth, atol=0.12)  # the mean of estimates says nothing
    assert np.allclose(together(noisy[:1]), found)
    assert np.allclose(together([Estimate(prior, truth, 1.0), *noisy[:5]]), truth, atol=1e-3)


def test_a_total_is_read_as_a_total(masked):
    (row, found), *_ = judged(ATTACK, material(masked, exposures(60, total=True)))
    assert row.payload == "P05"
    assert row.raw.mean() > 0.9
    assert row.protected.mean() < row.prior.mean() + 0.05
    assert found.verdict == "PASS"


def test_without_a_last_layer_it_says_so(clear, leak):
    (row,) = ATTACK.run(material(clear, leak, Layers()), np.random.default_rng(0), "quick").rows
    assert isinstance(row, NotApplicable)
    assert "last layer" in row.reason


def test_the_prior_knows_the_others_and_not_the_victim(leak):
    found = _Round(leak, LAYERS)
    others = np.sum([one.truth.labels for one in leak[1:]], axis=0)
    assert np.allclose(found.pooled(0), others / others.sum())
    assert not any(np.allclose(guess, found.truth[0]) for guess in found.guesses(0))


def test_one_client_has_no_others_to_compare_with(clear, leak):
    (row,) = ATTACK.run(material(clear, leak[:1]), np.random.default_rng(0), "quick").rows
    assert isinstance(row, NotApplicable)


def test_clients_without_labels_are_left_out(clear, leak):
    blank = replace(leak[0], truth=Truth())
    (row, _), *_ = judged(ATTACK, material(clear, (blank, *leak[1:])))
    assert leak[0].client not in row.units
    assert len(row.units) == len(leak) - 1


def test_another_models_layout_is_refused(clear, leak):
    wrong = replace(LAYERS, last_weight=(LAYERS.last_weight[0], LAYERS.last_weight[1][::-1]))
    with pytest.raises(ValueError, match=r"\(hidden, classes\)"):
        ATTACK.run(material(clear, leak, wrong), np.random.default_rng(0), "quick")


def test_one_step_of_an_empty_change_tells_nothing():
    prior = np.array([0.1, 0.2, 0.3, 0.4])
    last = Last(np.ones((3, C)), np.zeros(C), np.zeros((3, C)), np.zeros(C))
    for optimiser in ("sgd", "adamw", ""):
        found = estimate(last, prior, lr=0.1, steps=1, optimiser=optimiser)
        assert np.allclose(found.found, prior, atol=5e-3)


def test_known_answer_of_one_plain_step():
    """Four records 3:1:0:0 under equal activations: the closed form is exact."""
    activation = np.array([0.5, 1.0, 0.25])
    share = np.array([0.75, 0.25, 0.0, 0.0])
    gradient = share - 0.25  # zero weights predict all classes alike
    moved = np.outer(activation, gradient) * 1e-3
    last = Last(np.zeros((3, C)), np.zeros(C), moved, gradient * 1e-3)
    found = estimate(last, np.full(C, 0.25), lr=1e-3, steps=1, optimiser="sgd")
    assert overlap(found.found, share) > 0.998
    told = estimate(last, np.full(C, 0.25), lr=1e-3, steps=1, optimiser="")
    assert np.array_equal(found.found, told.found)


def test_where_the_prior_is_good_the_rest_is_asked_for(clear, leak):
    """Twelve clients of nearly one class mix: a gain of 0.15 has no room, a share of it has."""
    alike = tuple(
        replace(one, truth=replace(one.truth, labels=np.array([40, 30, 20, 10]) + place % 3))
        for place, one in enumerate(leak)
    )

    drawn = [_Round(alike, LAYERS)]
    assert np.mean([overlap(drawn[0].pooled(n), drawn[0].truth[n]) for n in range(12)]) > 0.95
    rows = ATTACK.run(material(clear, alike), np.random.default_rng(3), "quick").rows
    first, second = rows[0], rows[1]
    assert isinstance(first, NotApplicable) and "share of that error" in first.reason
    assert second.metric == SKILL.metric and abs(second.prior.mean()) < 1e-9
    assert second.what.startswith(first.what) and second.bounds[1] == 1.0
    # What was 0.9 above a prior of 0.8 is half of what there was to find.
    half = _samples_of(prior=np.full(12, 0.8), raw=np.ones(12), protected=np.full(12, 0.9))
    fits_it, more = _mixes(half)
    assert fits_it is half and np.allclose(more.protected, 0.5) and np.allclose(more.raw, 1.0)
    for seen, verdict in ((0.9, "FAIL"), (0.81, "PASS")):
        made = _mixes(
            _samples_of(prior=near(0.86), raw=near(0.97), protected=near(0.86 + (seen - 0.8) / 2))
        )
        assert (
            judge(made[1], np.random.default_rng(4), margin=SKILL.margin, gate=SKILL.gate).verdict
            == verdict
        )
    assert isinstance(_mixes(_samples_of(prior=np.ones(12), raw=np.ones(12)))[1], NotApplicable)
    assert len(_mixes(_samples_of(prior=np.full(12, 0.7)))) == 1


def near(mean: float) -> np.ndarray:
    return mean + np.linspace(-0.005, 0.005, 12)


def _samples_of(**given):
    units = tuple(f"client-{n}" for n in range(12))
    common = dict.fromkeys(("prior", "raw", "null", "protected"), np.full(12, 0.7))
    facts = {**common, "null": np.full(12, 0.6), "chance": 0.4, **given}
    return Samples(payload="P01", what="class mix", units=units, **MIX.given() | facts)


def test_overlap_of_class_mixes():
    assert overlap(np.array([1.0, 0.0]), np.array([0.0, 1.0])) == 0.0
    assert overlap(np.array([0.5, 0.5]), np.array([0.75, 0.25])) == 0.75


def test_a_row_that_weighs_a_client_most_gives_its_class_mix_away(clear, leak):
    read = {"payload": "P21", "cohort": len(leak)}
    told = tuple(replace(one, seen=one.raw, **read) for one in leak)
    mean = {
        "delta": np.mean([one.raw["delta"] for one in leak], axis=0),
        "count": leak[0].raw["count"],
    }
    even = tuple(replace(one, seen=mean, **read) for one in leak)
    (row, found), *_ = judged(ATTACK, material(clear, told))
    assert row.payload == "P21" and "another client's weighted row" in row.what
    assert found.verdict == "FAIL"
    (other, control), *_ = judged(ATTACK, material(clear, even))
    assert control.verdict != "FAIL" and other.protected.mean() < row.protected.mean() - 0.1
    for _, worse in judged(ATTACK, material(clear, weakened(told, 50.0))):
        assert worse.verdict == "INCONCLUSIVE"
