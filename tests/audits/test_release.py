"""A policy holds models back until attacks are answered or every client signed that it accepts."""

from __future__ import annotations

from dataclasses import replace
from datetime import date

import pytest
from pydantic import ValidationError

from audits.attacks import AttackRow
from audits.evidence.steps import Case
from audits.findings.release import ReleaseWaiver, held_back, read_waiver, verdict_of
from crypto.signing import SigningKey
from protocols.errors import EvidenceError
from protocols.policy.policy import PrivacyPolicy, Release
from tests.audits.attack_tools import BIASED, BLANK, LEAK, UNSURE, attacked, row
from tests.audits.bundle_tools import TOY
from tests.audits.test_site_figures import figures, measured
from tests.audits.toy_run import CLIENTS

DAY = date(2026, 11, 26)
NOTHING = {**BLANK, "payload": "P05", "reason": "no"}


def waiver(client: str, **facts: str) -> ReleaseWaiver:
    base = {"attack": "A05", "owner": "M. Bloch", "reason": "no member of the cohort is secret"}
    days = {"signed": "2026-11-20", "until": "2026-12-31"}
    made = ReleaseWaiver(run=run(), party=client, **{**base, **days, **facts})
    return made.signed_by(TOY.identities[client].signing)


def run() -> str:
    return Case(TOY.view()).roster_file.run


def why(*waivers: ReleaseWaiver, verdict: str = "NOT_TESTED", day: date = DAY) -> list[str]:
    return held_back(("A05",), {"A05": verdict}, waivers, CLIENTS, day)


@pytest.mark.parametrize(
    ("rows", "verdict"),
    [
        ([row()], "PASS"),
        ([row(**UNSURE)], "INCONCLUSIVE"),
        ([row(**LEAK)], "FAIL"),
        ([row(), row(**LEAK, what="other")], "FAIL"),
        ([row(**BIASED)], "INVALID"),
        ([row(**NOTHING, verdict="NOT_TESTED")], "NOT_TESTED"),
        ([], "NOT_TESTED"),
        ([row(**{**NOTHING, "id": "A04"}, verdict="NOT_TESTED")], "NOT_TESTED"),
    ],
)
def test_only_an_attack_that_was_run_and_did_not_succeed_is_an_answer(rows, verdict) -> None:
    found = verdict_of(Case(attacked(TOY.view(), *rows)), "A05")
    assert found == verdict
    assert bool(why(verdict=found)) == (verdict not in ("PASS", "INCONCLUSIVE"))


def test_what_a_site_attacks_by_itself_is_no_answer() -> None:
    """Of one client a row is INCONCLUSIVE whatever leaks; on all sides' run it is an answer."""
    view = TOY.view()
    mine = {CLIENTS[0]: view.ledgers[CLIENTS[0]]}
    own = attacked(replace(view, side=CLIENTS[0], ledgers=mine, checkpoints={}), row(**UNSURE))
    found = verdict_of(Case(own), "A05")
    assert found == "NOT_TESTED" and why(verdict=found)
    assert verdict_of(Case(attacked(view, row(**UNSURE))), "A05") == "INCONCLUSIVE"  # the control


def test_verdicts_of_other_ledgers_or_another_program_are_none() -> None:
    assert verdict_of(Case(TOY.view()), "A05") == "NOT_TESTED"
    for other in ({"heads_digest": "ab" * 32}, {"code_digest": "ab" * 32}, {"run": "ab" * 16}):
        view = attacked(TOY.view(), row(), **other)
        assert verdict_of(Case(view), "A05") == "NOT_TESTED"


def test_every_client_must_sign_and_a_day_ends_it() -> None:
    all_of = [waiver(client) for client in CLIENTS]
    assert why(*all_of) == []
    assert CLIENTS[0] in why(*all_of[1:])[0] and CLIENTS[1] not in why(*all_of[1:])[0]
    assert why(*all_of, day=date(2026, 12, 31)) == []
    assert why(*all_of, day=date(2027, 1, 1)) and why(*all_of, day=date(2026, 11, 19))
    assert why(*(waiver(client, attack="A04") for client in CLIENTS))
    assert why(*all_of, verdict="FAIL") == []  # somebody answers for it, by name


def test_a_waiver_is_a_client_s_own_word_for_one_run() -> None:
    roster = Case(TOY.view()).roster
    good = waiver(CLIENTS[0])
    read_waiver(good.text()).check(roster, run())
    stranger = SigningKey.generate()
    for bad, said in (
        (good.model_copy(update={"until": "2027-01-01"}), "not signed"),
        (good.model_copy(update={"party": CLIENTS[1]}), "not signed"),
        (good.signed_by(stranger), "not signed"),
        (good.model_copy(update={"party": "aggregator"}), "holds data"),
        (good.model_copy(update={"run": "ab" * 16}), "another run"),
        (good.model_copy(update={"signature": ""}), "not signed"),
    ):
        with pytest.raises(EvidenceError, match=said):
            bad.check(roster, run())
    with pytest.raises(EvidenceError, match="form in which it is signed"):
        read_waiver(good.text().replace(b":", b": ", 1))


@pytest.mark.parametrize(
    "facts",
    [
        {"owner": " "},
        {"reason": ""},
        {"reason": "two\nlines"},
        {"until": "2027-11-22"},
        {"until": "2026-11-19"},
        {"until": "soon"},
    ],
)
def test_owner_reason_and_last_day_must_be_said(facts: dict[str, str]) -> None:
    with pytest.raises(ValidationError):
        waiver(CLIENTS[0], **facts)


def test_a_policy_says_whether_it_holds_a_model_back() -> None:
    he = PrivacyPolicy.preset("he")
    assert he.document()["release"] is None
    held = he.model_copy(update={"release": Release(requires=("A05",))})
    assert held.digest != he.digest
    assert PrivacyPolicy.model_validate(held.document()) == held
    for bad in ({"requires": []}, {"requires": ["all"]}, {"requires": ["A05"], "until": "asked"}):
        with pytest.raises(ValidationError):
            Release.model_validate(bad)


def test_what_fails_over_sites_is_no_answer_whatever_the_run_s_own_rows_say() -> None:
    """Figures that sites handed on reach the policy's gate as they reach ``audit release``."""

    def told(value: float, *own: AttackRow) -> str:
        there = {p: figures(p, measured(protected=value)).text() for p in CLIENTS[:2]}
        view = attacked(TOY.view(), *own) if own else TOY.view()
        return verdict_of(Case(replace(view, figures=there)), "A05")

    assert told(0.9, row()) == "FAIL" and why(verdict=told(0.9, row()))
    assert told(0.9) == "FAIL"
    assert told(0.5, row()) == "PASS"  # the control
    assert told(0.5) == "NOT_TESTED"  # over sites nothing stands in for the run's own
    broken = {CLIENTS[0]: figures(CLIENTS[0], measured(protected=0.9)).text()[:-2]}
    with pytest.raises(EvidenceError):
        verdict_of(Case(replace(attacked(TOY.view(), row()), figures=broken)), "A05")
