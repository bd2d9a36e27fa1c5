"""A09: who can be singled out by the sums that were opened.

Trials: facts, on cohorts of 4 to 40 clients. Chance is in the prime of the elimination alone, which
is pinned, so no result is false by chance.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from audits.attacks import AttackReport, AttackRow, Material, structure
from audits.attacks._methods import openings
from audits.attacks._methods.openings import Isolation, Opened, draw_prime, opened_sums
from audits.attacks._shared.exposed import Exposure, Truth
from audits.attacks._shared.payloads import payload_of
from audits.attacks._shared.rows import AttackRows
from audits.attacks._shared.verdicts import NotApplicable, Samples, judge
from audits.attacks.structure import ALL_ROUNDS, ATTACK, COHORT, ONE_ROUND, SINGLETONS
from audits.evidence.run_files import RunView
from audits.evidence.steps import Case
from audits.report.attack_words import sentence
from protocols.disclosures.names import Disclosure
from protocols.errors import EvidenceError
from protocols.plan.plan import MessagePlan, Plan
from protocols.plan.steps import Step
from protocols.policy.budget import Budget
from protocols.policy.policy import PrivacyPolicy
from protocols.privacy.training import Training
from protocols.wire.roles import Role
from secure_fgl.catalogue import algorithm_names
from secure_fgl.checking.subject import document
from secure_fgl.config import Config
from secure_fgl.federation import Federation
from tests.audits.attacks.made_up import attack_only as attack
from tests.audits.noised_run import NoisedRun, message
from tests.audits.test_report_rows import run as run_rows
from tests.audits.toy_run import CLIENTS, FIVE, lose, run_toy, two_sums

PRIME = draw_prime(np.random.default_rng(5))
UPDATE = MessagePlan(name="Update", disclosure=Disclosure.SUM, fields=())
CAP = Budget(epsilon=10.0, delta=1e-4)
TRAINING = Training(rate=0.1, batch=8.0, epsilon=4.0, delta=1e-4, budget=CAP)
COUNTS = MessagePlan(name="Counts", disclosure=Disclosure.SUM, fields=())


def rows_of(view: RunView, **more: Any) -> dict[str, AttackRow]:
    return by_what(attack(Material(Case(view)), ["A09"], **more))


def by_what(report: AttackReport) -> dict[str, AttackRow]:
    return {row.what: row for row in report.rows}


def names(count: int) -> list[str]:
    return [f"client-{number:03d}" for number in range(count)]


def half_cohorts(count: int, rounds: int, seed: int = 3) -> list[Opened]:
    rng, everyone = np.random.default_rng(seed), names(count)
    return [
        Opened("P05", UPDATE, n, frozenset(rng.choice(everyone, count // 2, replace=False)))
        for n in range(1, rounds + 1)
    ]


Verdicts = dict[str, str]


@pytest.fixture
def verdicts(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Verdicts]:
    """Return what A09 says of sums that are written down by hand."""

    def ask(sums: Iterable[Opened], *, smallest: int = 3, colluders: int = 0) -> Verdicts:
        monkeypatch.setattr(structure, "opened_sums", lambda case: list(sums))
        plan = Plan.model_construct(smallest_cohort=smallest, items=())
        policy = SimpleNamespace(smallest_cohort=smallest, colluders=colluders)
        material: Any = SimpleNamespace(case=SimpleNamespace(policy=policy, plan=plan))
        found = ATTACK.run(material, np.random.default_rng(1), "quick")
        return {
            row.what: judge(
                row, np.random.default_rng(2), margin=ATTACK.margin, gate=ATTACK.gate
            ).verdict
            for row in found.rows
            if isinstance(row, Samples)
        }

    return ask


def opened(*cohorts: Iterable[str], round: int = 1, kind: MessagePlan = UPDATE) -> list[Opened]:
    return [Opened("P05", kind, round, frozenset(cohort)) for cohort in cohorts]


# --- verdicts ---------------------------------------------------------------------------------


@pytest.mark.parametrize("clients", [3, 5, 20, 50])
def test_full_participation_passes_over_a_hundred_rounds(
    clients: int, verdicts: Callable[..., Verdicts]
) -> None:
    sums = [one for n in range(1, 101) for one in opened(names(clients), round=n)]
    assert verdicts(sums) == {COHORT: "PASS", ONE_ROUND: "PASS", ALL_ROUNDS: "PASS"}


def test_fifty_clients_and_a_hundred_rounds_take_less_than_a_second(
    verdicts: Callable[..., Verdicts],
) -> None:
    began = time.process_time()
    found = verdicts(half_cohorts(50, 100))
    assert time.process_time() - began < 1.0
    assert found == {COHORT: "PASS", ONE_ROUND: "PASS", ALL_ROUNDS: "FAIL"}


@pytest.mark.parametrize("clients", [5, 20, 50])
def test_o5_two_sums_of_a_round_that_differ_by_one_client_fail(
    clients: int, verdicts: Callable[..., Verdicts]
) -> None:
    everyone = names(clients)
    sums = opened(everyone, everyone[1:], round=7) + opened(everyone, round=8)
    assert verdicts(sums) == {COHORT: "PASS", ONE_ROUND: "FAIL", ALL_ROUNDS: "FAIL"}


def test_a_client_that_missed_one_round_is_a_warning_over_all_rounds_only(
    verdicts: Callable[..., Verdicts],
) -> None:
    everyone = names(6)
    sums = opened(everyone, round=1) + opened(everyone[1:], round=2)
    assert verdicts(sums) == {COHORT: "PASS", ONE_ROUND: "PASS", ALL_ROUNDS: "FAIL"}


def test_sums_of_unlike_messages_are_not_combined(verdicts: Callable[..., Verdicts]) -> None:
    everyone = names(6)
    sums = opened(everyone) + opened(everyone[1:], kind=COUNTS)
    assert set(verdicts(sums).values()) == {"PASS"}


def test_o5_disjoint_clusters_pass(verdicts: Callable[..., Verdicts]) -> None:
    everyone = names(9)
    sums = [s for n in (1, 2, 3) for s in opened(everyone[:4], everyone[4:], round=n)]
    assert set(verdicts(sums).values()) == {"PASS"}


def test_o10_a_cohort_below_the_smallest_fails(verdicts: Callable[..., Verdicts]) -> None:
    sums = opened(names(9)[:4], names(9)[4:])
    assert verdicts(sums, smallest=4)[COHORT] == "PASS"
    assert verdicts(sums, smallest=5)[COHORT] == "FAIL"


def test_o10_colluders_subtract_themselves(verdicts: Callable[..., Verdicts]) -> None:
    everyone = names(6)
    pair = opened(everyone, everyone[2:], round=1)  # the difference holds two clients
    assert verdicts(pair, colluders=0)[ONE_ROUND] == "PASS"
    assert verdicts(pair, colluders=1)[ONE_ROUND] == "FAIL"
    assert verdicts(opened(everyone), colluders=4)[ONE_ROUND] == "PASS"
    assert verdicts(opened(everyone), colluders=5)[ONE_ROUND] == "FAIL"


# --- controls ---------------------------------------------------------------------------------


def always(answer: bool) -> Callable[..., Isolation]:
    return lambda sums, colluders, prime: Isolation(np.full(sums.shape[1], answer), complete=True)


def test_a_search_that_finds_nothing_is_inconclusive(
    verdicts: Callable[..., Verdicts], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(structure, "isolable", always(answer=False))
    found = verdicts(opened(names(6)))
    assert (found[ONE_ROUND], found[ALL_ROUNDS]) == ("INCONCLUSIVE", "INCONCLUSIVE")


def test_a_search_that_finds_everybody_is_invalid(
    verdicts: Callable[..., Verdicts], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(structure, "isolable", always(answer=True))
    found = verdicts(opened(names(6)))
    assert (found[ONE_ROUND], found[ALL_ROUNDS]) == ("INVALID", "INVALID")


def test_a_search_that_was_cut_short_never_passes(
    verdicts: Callable[..., Verdicts], monkeypatch: pytest.MonkeyPatch
) -> None:
    sums = [replace(one, round=1) for one in half_cohorts(14, 6, seed=0)]
    assert verdicts(sums, colluders=2)[ONE_ROUND] == "PASS"
    monkeypatch.setattr(openings, "_WORK", 1)
    assert verdicts(sums, colluders=2)[ONE_ROUND] == "INCONCLUSIVE"


# --- ledgers ----------------------------------------------------------------------------------


def test_o12_a_real_run_passes_and_says_what_of_single_entries_is_not_known() -> None:
    found = rows_of(run_toy("pilot").view())
    assert [found[w].verdict for w in (COHORT, ONE_ROUND, ALL_ROUNDS)] == ["PASS"] * 3
    assert (found[COHORT].payload, found[COHORT].n_clients) == ("P05", len(CLIENTS))
    assert found[SINGLETONS].verdict == "NOT_TESTED"
    assert "step.up.SUM (8 entries) (O12)" in found[SINGLETONS].reason


def captured(moved: list[list[float]], **more: Any) -> Material:
    """Return a run of four clients, of which one total is captured, with what each put into it."""
    names = tuple(CLIENTS)
    exposures = tuple(
        Exposure(
            client=name, round=1, known={}, raw={"delta": np.array(own)},
            seen={"delta": np.ones(2)}, cohort=len(names), truth=Truth(), lr=0.1, steps=1,
        )
        for name, own in zip(names, moved, strict=True)
    )  # fmt: skip
    case = Case(run_toy("pilot").view())
    policy = case.policy.model_copy(update={"colluders": more.pop("colluders", 0)})
    alone = SimpleNamespace(plan=case.plan, policy=policy, ledger_index=case.ledger_index,
                            roster=case.roster, yardstick=case.yardstick)  # fmt: skip
    return Material(case=alone, exposures=exposures, **more)  # type: ignore[arg-type]


SHARED = [[1.0, 2.0], [1.0, 0.0], [3.0, 4.0], [1.0, 1.0]]
OWN = [[1.0, 2.0], [1.0, 0.0], [3.0, 0.0], [1.0, 0.0]]


def singles(given: Material, totals: int = 1) -> Samples | None:
    (item,) = given.case.plan.all_of(Disclosure.SUM, Step.UP)
    sums = [
        Opened("P05", message, number, frozenset(CLIENTS))
        for message in item.messages
        for number in range(1, totals + 1)
    ]
    return structure._counted(given, np.random.default_rng(1), sums)


def test_o12_who_holds_captures_counts_who_contributed_to_each_entry() -> None:
    found = singles(captured(SHARED))
    assert found is not None and found.payload == "P05"
    assert found.what == f"{SINGLETONS} (1 of 1 total)"
    assert not found.protected.any() and found.raw.all() and not found.null.any()
    leaked = singles(captured(OWN))
    assert leaked is not None and list(leaked.protected) == [1, 0, 0, 0]
    assert "1 of 4 clients" in leaked.note and "1 such entries" in leaked.note
    # Two more moved it, and they may work with the aggregator.
    assert not singles(captured(SHARED, colluders=0)).protected.any()  # type: ignore[union-attr]
    assert singles(captured(SHARED, colluders=2)).protected.any()  # type: ignore[union-attr]


def test_o12_of_how_many_totals_it_was_counted_stands_in_every_sentence() -> None:
    found = singles(captured(SHARED), totals=31)
    assert found is not None
    row = AttackRows(ATTACK, "quick", "00" * 32).row(1, found)
    assert row.verdict == "PASS" and "captured sum" in row.what
    assert "(1 of 31 totals)" in row.what and "(1 of 31 totals)" in sentence(row)


def test_o12_nobody_counts_where_a_contributor_was_not_captured() -> None:
    given = captured(OWN)
    assert singles(replace(given, exposures=given.exposures[:3])) is None
    assert singles(replace(given, units=frozenset({"client-1"}))) is None  # others' are drawn
    clear = tuple(replace(one, cohort=1) for one in given.exposures)
    assert singles(replace(given, exposures=clear)) is None


def test_sums_are_read_with_their_survivors() -> None:
    made = run_toy("masks", clients=FIVE, losing=lose("client-2", "up.SUM", round=2))
    sums = {one.round: one.clients for one in opened_sums(Case(made.view()))}
    assert sums == {1: frozenset(FIVE), 2: frozenset(FIVE) - {"client-2"}}
    found = rows_of(made.view())
    assert [found[w].verdict for w in (COHORT, ONE_ROUND, ALL_ROUNDS)] == ["PASS", "PASS", "FAIL"]
    assert "1 of 5 clients can be singled out, client-2 among them" in found[ALL_ROUNDS].reason
    assert (found[ALL_ROUNDS].n_pos, found[ALL_ROUNDS].n_neg) == (1, 4)


def test_every_message_of_every_ask_is_a_sum() -> None:
    made = run_toy("he", algorithm=two_sums())
    kinds = {one.message.name for one in opened_sums(Case(made.view()))}
    assert kinds == {"Answer", "Drift"}


def test_uploads_in_clear_single_everybody_out() -> None:
    found = rows_of(run_toy("unsafe_plaintext").view())
    assert [found[w].verdict for w in (COHORT, ONE_ROUND, ALL_ROUNDS)] == ["FAIL"] * 3
    assert {found[w].payload for w in (COHORT, ONE_ROUND)} == {"P01"}
    assert "4 of 4 clients" in found[ONE_ROUND].reason


def test_uploads_with_noise_of_their_own_are_left_to_a10() -> None:
    clear = PrivacyPolicy.preset("unsafe_plaintext").document()
    private = PrivacyPolicy.model_validate({**clear, "training": TRAINING.model_dump(mode="json")})
    run = NoisedRun(policy=private, survivors=dict.fromkeys((1, 2, 3), 0))
    row = attack(Material(Case(run.view())), ["A09"]).rows[0]
    assert (row.payload, row.verdict) == ("P02", "NOT_APPLICABLE")
    assert "A10" in row.reason


def test_an_opening_that_its_members_do_not_sign_for_is_an_error() -> None:
    view = NoisedRun().view()  # totals were opened, and nobody was asked
    with pytest.raises(EvidenceError):
        opened_sums(Case(view))
    assert [row.verdict for row in attack(Material(Case(view)), ["A09"]).rows] == ["ERROR"]


def test_an_opening_in_which_nothing_was_sent_is_an_error() -> None:
    silent = frozenset((name, 2) for name in NoisedRun().names)
    view = NoisedRun(skips=silent, survivors={1: 0, 3: 0}).view()
    with pytest.raises(EvidenceError, match="nothing was sent in it"):
        opened_sums(Case(view))


def test_what_leaves_in_clear_and_is_no_sum_is_a_sum_of_one() -> None:
    run = NoisedRun(survivors=dict.fromkeys((1, 2, 3), 0))
    facts = {"disclosure": Disclosure.WEIGHTED_SUM, "guards": ("unsafe_clear",), "unsafe": True}
    run.more = (run.item("mix.up.WEIGHTED_SUM", (message("Mix"),), **facts),)
    run.sent = ("mix.up.WEIGHTED_SUM",)
    found = [one for one in opened_sums(Case(run.view())) if one.message.name == "Mix"]
    assert len(found) == run.clients * run.rounds
    assert {one.payload for one in found} == {"P01"}
    assert {one.clients for one in found} == {frozenset({name}) for name in run.names}


@pytest.mark.parametrize(
    ("name", "options"),
    [
        *((name, {}) for name in algorithm_names()),
        ("fed_sage_plus", {"alpha": 1.0}),
        ("fed_sage_plus", {"alpha": 1.0, "published": True}),
    ],
)
def test_whatever_clients_of_an_algorithm_say_alone_can_have_a_row(
    name: str, options: dict[str, Any]
) -> None:
    """An id that no row may have is an ERROR: FED-PUB's vectors were, and FedSage+'s gradients."""
    chosen = document(name, "unsafe_plaintext")
    chosen["algorithm"] = {**chosen["algorithm"], "options": {name: options}}
    federation = Federation.from_config(Config.parse(chosen))
    plan = federation.plan()
    items = [item for item in plan.items if item.sender == Role.CLIENT]
    alone = {payload_of(i, plan, federation.policy) for i in items if i.step is Step.UP} - {
        "",
        "P02",
    }
    assert alone and alone <= {*ATTACK.payloads, *structure.RULE.also}


def test_vectors_that_were_compared_in_clear_single_everybody_out() -> None:
    view = run_rows("unsafe_plaintext", rounds=1).view(reports=False)
    found = attack(Material(Case(view)), ["A09"]).rows
    assert {row.payload for row in found if row.verdict == "FAIL"} >= {"P01", "P14"}
    assert "ERROR" not in {row.verdict for row in found}


@pytest.mark.parametrize("damage", ["missing", "broken"])
def test_without_a_clients_ledger_cohorts_are_not_known(damage: str) -> None:
    view = run_toy("pilot").view(reports=False)
    ledgers = {**view.ledgers, CLIENTS[0]: b"nothing\n"}
    if damage == "missing":
        del ledgers[CLIENTS[0]]
    with pytest.raises(EvidenceError) as caught:
        opened_sums(Case(replace(view, ledgers=ledgers)))
    assert caught.value.what.startswith(f"the ledger of {CLIENTS[0]}")


def test_a_run_without_sums_is_not_applicable() -> None:
    view = run_toy("pilot", rounds=0).view(reports=False)
    found = ATTACK.run(Material(Case(view)), np.random.default_rng(0), "quick").rows
    assert len(found) == 1 and isinstance(found[0], NotApplicable)


def test_one_run_gives_one_report() -> None:
    view = run_toy(PrivacyPolicy.preset("masks")).view()
    one, other = (attack(Material(Case(view)), ["A09"]).text() for _ in range(2))
    assert one == other
