"""A16: what totals of counts and scores, and sizes of messages, say of one client.

Trials: facts; 20,000 drawn clients for the one share that is checked. Chance decides only for whom
something is planted, and every plant is found: no verdict depends on a draw. The draws are pinned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from algorithms.tasks.scores import Score
from audits.attacks import Material, attack, counts
from audits.attacks._methods import openings
from audits.attacks._methods.openings import Opened, Told, sent_sizes, told_shares
from audits.attacks._shared.verdicts import NotApplicable, judge
from audits.attacks.counts import ATTACK, SCORES, SIZES, STAYING, TIMES
from audits.evidence.steps import Case
from protocols.disclosures.names import Disclosure
from protocols.plan.plan import FieldPlan, MessagePlan
from tests.audits.attacks.made_up import attack_only
from tests.audits.noised_run import NoisedRun
from tests.audits.toy_run import FIVE, lose, run_toy

Verdicts = dict[str, str]
Ask = Callable[..., Verdicts]
ANSWER = f"{STAYING}: Answer"
SCORE = f"{SCORES}: Score"


def planned(kind: str, *fields: str) -> MessagePlan:
    made = (FieldPlan(name=f, dtype="u8", shape=(), dims="", unit="", meaning="") for f in fields)
    return MessagePlan(name=kind, disclosure=Disclosure.SUM, fields=tuple(made))


COUNT = planned("Answer", "count")
SAID = planned("Score", *(field.name for field in Score.fields))


def names(count: int) -> list[str]:
    return [f"client-{number:03d}" for number in range(count)]


def opened(*cohorts: Iterable[str], kind: MessagePlan = COUNT) -> list[Opened]:
    return [Opened("P05", kind, n, frozenset(c)) for n, c in enumerate(cohorts, 1)]


@pytest.fixture
def verdicts(monkeypatch: pytest.MonkeyPatch) -> Ask:
    """Return what A16 says of totals and sizes that are written down by hand."""

    def ask(
        sums: Iterable[Opened] = (),
        *,
        colluders: int = 0,
        tested: Mapping[str, int] | None = None,
        sizes: Mapping[str, tuple[int, ...]] | None = None,
    ) -> Verdicts:
        monkeypatch.setattr(counts, "opened_sums", lambda case: list(sums))
        monkeypatch.setattr(counts, "sent_sizes", lambda case: {(1, "up", 1): dict(sizes or {})})
        plan = SimpleNamespace(smallest_cohort=3, items=())
        policy = SimpleNamespace(smallest_cohort=3, colluders=colluders)
        case = SimpleNamespace(policy=policy, plan=plan)
        material: Any = SimpleNamespace(case=case, tested=tested or {}, unasked="")
        found = ATTACK.run(material, np.random.default_rng(1), "quick")
        return {
            row.what: (
                ("NOT_TESTED" if row.arises else "NOT_APPLICABLE")
                if isinstance(row, NotApplicable)
                else judge(row, np.random.default_rng(2), margin=0.0, gate=1.0).verdict
            )
            for row in found.rows
        }

    return ask


# --- numbers that stay --------------------------------------------------------------------------


def test_numbers_of_fixed_cohorts_pass_and_one_that_lacks_a_client_fails(verdicts: Ask) -> None:
    everyone = names(6)
    assert verdicts(opened(everyone, everyone))[ANSWER] == "PASS"
    assert verdicts(opened(everyone, everyone[1:]))[ANSWER] == "FAIL"
    clusters = opened(everyone[:3], everyone[3:], everyone)
    assert verdicts(clusters)[ANSWER] == "PASS"


def test_a_count_in_clear_is_found(verdicts: Ask) -> None:
    assert verdicts(opened(*([name] for name in names(4))))[ANSWER] == "FAIL"


def test_colluders_take_their_own_numbers_off(verdicts: Ask) -> None:
    everyone = names(6)
    pair = opened(everyone, everyone[2:])  # the difference holds two clients
    assert verdicts(pair)[ANSWER] == "PASS"
    assert verdicts(pair, colluders=1)[ANSWER] == "FAIL"
    assert verdicts(opened(everyone), colluders=4)[ANSWER] == "PASS"
    assert verdicts(opened(everyone), colluders=5)[ANSWER] == "FAIL"


def test_a_hundred_clients_with_ten_colluders_are_looked_at_whole(verdicts: Ask) -> None:
    everyone = names(100)
    assert verdicts(opened(everyone, everyone[20:]), colluders=10)[ANSWER] == "PASS"
    assert verdicts(opened(everyone, everyone[11:]), colluders=10)[ANSWER] == "FAIL"


# --- scores -------------------------------------------------------------------------------------


def test_two_weights_of_one_score_tell_the_client_that_is_unlike_the_others(verdicts: Ask) -> None:
    everyone = names(6)
    alike = dict.fromkeys(everyone, 8)
    scores = opened(everyone, kind=SAID)
    assert verdicts(scores, tested=alike) == {
        f"{STAYING}: Score": "PASS",
        SCORE: "PASS",
        SIZES: "NOT_APPLICABLE",
        TIMES: "NOT_TESTED",
    }
    assert verdicts(scores, tested=alike | {everyone[0]: 10})[SCORE] == "FAIL"
    spread = dict(zip(everyone, (8, 9, 10, 12, 14, 16), strict=True))
    assert verdicts(scores, tested=spread)[SCORE] == "PASS"
    two = alike | {everyone[0]: 10, everyone[1]: 12}
    assert verdicts(scores, tested=two)[SCORE] == "PASS"
    assert verdicts(scores, tested=two, colluders=1)[SCORE] == "FAIL"


def test_without_data_scores_are_not_tested(verdicts: Ask) -> None:
    found = verdicts(opened(names(6), kind=SAID))
    assert (found[f"{STAYING}: Score"], found[SCORE]) == ("PASS", "NOT_TESTED")


def test_rounding_hides_who_differs_by_little() -> None:
    def odd(of: int, own: int) -> float:
        counted = np.array([of] * 19 + [own], dtype=np.float64)
        return float(counts._solved(counted, 0)[0].shares[-1])

    assert odd(8, 10) > 0.99 and odd(5000, 5001) < 0.1


@pytest.mark.parametrize("sizes", [(8, 8, 8, 8, 10), (8, 9, 10, 12, 30), (5, 5, 50, 50, 50)])
def test_a_share_is_what_the_best_guess_explains(sizes: tuple[int, ...]) -> None:
    """20,000 draws: a share of 0.5 is off by less than 0.03 in all but 1 in 10^9 (five sigma)."""
    of = np.array(sizes, dtype=np.float64)
    weights = np.stack([of, np.ones_like(of)])
    drawn = np.random.default_rng(3).normal(size=(20_000, of.size))
    seen = drawn @ weights.T
    guess = seen @ np.linalg.lstsq(seen, drawn, rcond=None)[0]
    explained = 1.0 - ((drawn - guess) ** 2).mean(axis=0) / (drawn**2).mean(axis=0)
    assert np.allclose(told_shares(weights, 0).shares, explained, atol=0.03)
    assert not np.allclose(told_shares(weights[1:], 0).shares, explained, atol=0.03)  # control


def test_every_way_to_take_colluders_is_tried_once() -> None:
    found = [tuple(gone) for gone in openings._spread(np.array([2, 1, 3]), 2)]
    assert sorted(found) == [(0, 0, 2), (0, 1, 1), (1, 0, 1), (1, 1, 0), (2, 0, 0)]


# --- sizes --------------------------------------------------------------------------------------


def test_a_size_that_too_few_share_fails(verdicts: Ask) -> None:
    same = dict.fromkeys(names(6), (64,))
    assert verdicts(sizes=same)[SIZES] == "PASS"
    assert verdicts(sizes=same | {"client-000": (65,)})[SIZES] == "FAIL"
    halves = same | dict.fromkeys(names(3), (65,))
    assert verdicts(sizes=halves)[SIZES] == "PASS"
    assert verdicts(sizes=same | {"client-000": (64, 64)})[SIZES] == "FAIL"  # one message more


@pytest.mark.parametrize("policy", ["masks", "he"])
def test_names_of_other_lengths_set_nobody_apart(policy: str) -> None:
    clients = ("a", "bank-b", "a-hospital-with-a-long-name", "d", "e-e", "shop-in-the-south")
    case = Case(run_toy(policy, clients=clients).view())
    for sizes in sent_sizes(case).values():
        assert len(set(sizes.values())) == 1


# --- controls -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("share", "complete", "verdict"),
    [(0.5, True, "INCONCLUSIVE"), (1.0, True, "INVALID"), (0.0, False, "INCONCLUSIVE")],
)
def test_an_attack_that_is_weak_or_finds_everybody_says_nothing(
    verdicts: Ask, monkeypatch: pytest.MonkeyPatch, share: float, complete: bool, verdict: str
) -> None:
    def spoilt(totals: Any, colluders: int, noise: Any = 0.0) -> Told:
        return Told(np.full(np.shape(totals)[1], share), complete)

    monkeypatch.setattr(counts, "told_shares", spoilt)
    everyone = names(6)
    found = verdicts(opened(everyone, kind=SAID), tested=dict.fromkeys(everyone, 8))
    assert found[f"{STAYING}: Score"] == found[SCORE] == verdict


def test_a_search_that_was_cut_short_never_passes(
    verdicts: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng, everyone = np.random.default_rng(0), names(40)
    cohorts = [rng.choice(everyone, 20, replace=False) for _ in range(6)]
    monkeypatch.setattr(openings, "_WORK", 1)
    assert verdicts(opened(*cohorts), colluders=2)[ANSWER] == "INCONCLUSIVE"


# --- ledgers ------------------------------------------------------------------------------------


def test_ledgers_alone_are_enough_and_p17_is_no_longer_untested() -> None:
    case = Case(run_toy("strict", clients=FIVE).view())
    report = attack(Material(case))
    rows = {row.what: row for row in report.rows if row.id == "A16"}
    assert {what: row.verdict for what, row in rows.items()} == {
        ANSWER: "PASS",
        SIZES: "PASS",
        TIMES: "NOT_TESTED",
    }
    assert rows[ANSWER].payload == "P17" and rows[ANSWER].n_clients == len(FIVE)
    assert "of no client more than 2 tenths are told" in rows[ANSWER].reason
    assert "P17" not in {one.payload for one in report.not_tested}


def test_a_client_that_vanished_gives_its_count_away() -> None:
    made = run_toy("strict", clients=FIVE, losing=lose("client-2", "up.SUM", round=2))
    rows = {row.what: row for row in attack_only(Material(Case(made.view())), ["A16"]).rows}
    assert rows[ANSWER].verdict == "FAIL"
    assert "1 of 5 clients' are told, client-2's among them" in rows[ANSWER].reason


def test_totals_with_noise_are_left_to_the_account() -> None:
    run = NoisedRun(survivors=dict.fromkeys((1, 2, 3), 0))
    case = Case(run.view())
    noised = counts._noised(case)
    assert noised and all(any(i.noise for i in case.plan.items if m in i.messages) for m in noised)
