"""Waivers: who, why and until when; nothing is hidden, and some things nobody can accept."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date

import pytest

from audits.evidence.verify import verify
from audits.findings.rules import made
from audits.findings.waivers import (
    LONGEST,
    Kept,
    Waiver,
    apply,
    judged_again,
    read_kept,
    taken,
    waived,
)
from audits.formats import FORMATS, render
from audits.report.build import build_report
from protocols.errors import EvidenceError, PolicyError

DAY = date(2026, 11, 21)
ROOT = made("MISSING", "low", "m", "r", item="step.vote")
HIGH = made("ATTACK_A05", "high", "m", "r", item="totals", payload="P05")
OTHER = made("ATTACK_A05", "high", "m", "r", item="totals", payload="P06")
CRITICAL = made("UNSAFE_CLEAR", "critical", "m", "r", item="step.up")
DRIFT = made("UNPLANNED", "high", "m", "r", item="step.up")


def waiver(**facts: str) -> Waiver:
    base = {"owner": "M. Bloch", "reason": "accepted until the next release"}
    return Waiver.model_validate({**base, "until": "2026-12-31", **facts})


def accepted(found, *waivers: Waiver, day: date = DAY) -> dict[str, str]:
    """Return fingerprint -> owner of what is waived."""
    return {f.fingerprint: f.waiver.owner for f in apply(found, waivers, day) if f.waiver}


def rules(found, *waivers: Waiver, day: date = DAY) -> list[tuple[str, str]]:
    """Return what was added to the findings."""
    return [(f.rule, f.severity) for f in apply(found, waivers, day)[len(found) :]]


def test_a_fingerprint_waives_one_finding_and_it_stays_visible():
    found = apply((ROOT, HIGH), [waiver(fingerprint=HIGH.fingerprint)], DAY)
    assert [f.fingerprint for f in found] == [ROOT.fingerprint, HIGH.fingerprint]
    assert found[0] == ROOT
    assert found[1].severity == "high" and found[1].message == HIGH.message
    facts = found[1].waiver
    assert facts is not None
    assert (facts.owner, facts.until, facts.judged) == ("M. Bloch", "2026-12-31", "2026-11-21")


def test_a_rule_waives_all_its_findings_payload_and_item_narrow_it():
    both = {HIGH.fingerprint, OTHER.fingerprint}
    assert set(accepted((HIGH, OTHER), waiver(rule="ATTACK_A05"))) == both
    narrow = waiver(rule="ATTACK_A05", payload="P05")
    assert set(accepted((HIGH, OTHER), narrow)) == {HIGH.fingerprint}
    assert not accepted((HIGH, OTHER), waiver(rule="ATTACK_A05", item="elsewhere"))
    assert not accepted((HIGH,), waiver(rule="ATTACK"))  # a rule's name, not its beginning


@pytest.mark.parametrize(
    ("until", "holds"), [("2026-11-20", False), ("2026-11-21", True), ("2026-11-22", True)]
)
def test_a_waiver_holds_up_to_its_last_day(until, holds):
    one = waiver(fingerprint=HIGH.fingerprint, until=until)
    assert bool(accepted((HIGH,), one)) is holds
    assert rules((HIGH,), one) == ([] if holds else [("WAIVER_EXPIRED", "medium")])


@pytest.mark.parametrize("finding", [CRITICAL, DRIFT], ids=lambda f: f.rule)
def test_critical_findings_and_drift_cannot_be_waived(finding):
    for one in (waiver(fingerprint=finding.fingerprint), waiver(rule=finding.rule)):
        assert not accepted((finding,), one)
        assert rules((finding,), one) == [("WAIVER_REFUSED", "medium")]


def test_evidence_that_is_broken_cannot_be_waived_whatever_its_severity():
    broken = made("EVIDENCE_BROKEN", "low", "m", "r")
    assert not accepted((broken,), waiver(rule="EVIDENCE_BROKEN"))


def test_a_waiver_of_nothing_is_said():
    assert rules((HIGH,), waiver(fingerprint="0" * 64)) == [("WAIVER_UNUSED", "info")]
    assert rules((HIGH,), waiver(rule="ATTACK_A05")) == []


def test_notes_on_waivers_have_fingerprints_of_their_own():
    two = [waiver(rule="ONE"), waiver(rule="TWO")]
    marks = {f.fingerprint for f in apply((), two, DAY)}
    assert len(marks) == 2


GOOD = "- {rule: MISSING, owner: M. Bloch, reason: known, until: 2026-12-31}\n"


@pytest.mark.parametrize(
    "written",
    [
        GOOD,
        f"waivers:\n{GOOD}",
        '[{"rule": "MISSING", "owner": "M. Bloch", "reason": "known", "until": "2026-12-31"}]',
    ],
)
def test_yaml_and_json_are_taken_over_alike(written):
    kept = read_kept(taken(written.encode(), DAY))
    assert kept.judged == "2026-11-21"
    assert kept.waivers == (
        Waiver(rule="MISSING", owner="M. Bloch", reason="known", until="2026-12-31"),
    )


@pytest.mark.parametrize(
    "spoil",
    [
        lambda d: d.pop("owner"),
        lambda d: d.pop("reason"),
        lambda d: d.pop("until"),
        lambda d: d.pop("rule"),
        lambda d: d.update(owner="  "),
        lambda d: d.update(reason="two\nlines"),
        lambda d: d.update(until="next year"),
        lambda d: d.update(until="2026-02-30"),
        lambda d: d.update(until="20261231"),
        lambda d: d.update(until=20261231),
        lambda d: d.update(fingerprint="0" * 64),
        lambda d: d.update(untill="2026-12-31"),
        lambda d: d.update(payload="P22"),
        lambda d: d.update(owner="\ud800"),
    ],
)
def test_a_waiver_without_owner_reason_or_expiry_is_a_usage_error(spoil):
    entry = {"rule": "MISSING", "owner": "o", "reason": "r", "until": "2026-12-31"}
    spoil(entry)
    with pytest.raises(PolicyError) as caught:
        taken(json.dumps([entry]).encode(), DAY)
    assert caught.value.fix


@pytest.mark.parametrize(
    "data", [b"", b"3", b"{}", b"{waivers: 3}", b"\xff", b"- &a [*a]", b"[" * 9999, b"- 3"]
)
def test_what_is_no_list_of_waivers_is_a_usage_error(data):
    with pytest.raises(PolicyError):
        taken(data, DAY)


def test_an_error_names_the_place_and_not_the_value():
    entry = {"rule": "MISSING", "owner": "o", "reason": "r", "until": "secret-value"}
    with pytest.raises(PolicyError) as caught:
        taken(json.dumps([entry]).encode(), DAY)
    assert "until" in caught.value.why and "secret-value" not in str(caught.value)


@pytest.mark.parametrize(
    ("until", "fits"), [("2027-11-22", True), ("2027-11-23", False), ("9999-12-31", False)]
)
def test_a_waiver_runs_for_a_year_at_most_from_the_day_of_judgement(until, fits):
    assert (date(2027, 11, 22) - DAY).days == LONGEST == 366
    written = (GOOD + GOOD.replace("2026-12-31", until)).encode()
    if fits:
        assert len(read_kept(taken(written, DAY)).waivers) == 2
        return
    with pytest.raises(PolicyError) as caught:
        taken(written, DAY)
    assert "waivers.1.until" in caught.value.why and "366 days" in caught.value.fix
    spoilt = taken(GOOD.encode(), DAY).replace(b"2026-12-31", until.encode())
    with pytest.raises(EvidenceError):  # edited by hand where it is kept
        read_kept(spoilt)


def test_only_the_kept_spelling_is_read():
    kept = taken(GOOD.encode(), DAY)
    spellings = (kept + b"\n", kept.replace(b"2026-12-31", b"2026-13-31"), b"", b"[]", b"x" * 2**21)
    for spoilt in spellings:
        with pytest.raises(EvidenceError):
            read_kept(spoilt)


def test_judging_anew_changes_the_day_and_nothing_else():
    kept = taken(GOOD.encode(), DAY)
    again = read_kept(judged_again(kept, date(2027, 1, 1)))
    assert again == read_kept(kept).model_copy(update={"judged": "2027-01-01"})
    assert Kept.model_validate_json(again.text()) == again


def test_a_report_is_ranked_and_numbered_anew_under_waivers():
    found = waived(taken(GOOD.replace("2026-12", "2020-12").encode(), DAY), (HIGH, ROOT))
    assert [(f.id, f.rule) for f in found] == [
        ("F01", "ATTACK_A05"),
        ("F02", "WAIVER_EXPIRED"),
        ("F03", "MISSING"),
    ]


def test_expiry_is_judged_on_the_kept_day_and_verify_renders_the_same(toy):
    """The report under waivers is a function of the run's files: no clock enters."""
    written = GOOD.replace("MISSING", "SIMULATION").replace("2026-12-31", "2001-01-01").encode()
    for day, holds in ((date(2000, 12, 31), True), (date(2001, 1, 2), False)):
        view = replace(toy.view(reports=False), waivers_text=taken(written, day))
        made_report = build_report(view)
        marks = {f.rule: f.waiver for f in made_report.findings}
        assert (marks["SIMULATION"] is not None) is holds
        assert ("WAIVER_EXPIRED" in marks) is not holds
        rendered = replace(view, reports=render(made_report, FORMATS))
        assert verify(rendered).failed is None
        other_day = replace(rendered, waivers_text=taken(written, date(2000, 1, 1)))
        failed = verify(other_day).failed
        assert failed is not None and failed.name == "report"


def test_a_waiver_is_visible_in_every_format(toy):
    written = GOOD.replace("MISSING", "SIMULATION").replace("known", "a rehearsal").encode()
    view = replace(toy.view(reports=False), waivers_text=taken(written, DAY))
    files = render(build_report(view), FORMATS)
    for name in ("report.html", "report.json", "report.md", "findings.csv"):
        page = files[name].decode()
        assert "M. Bloch" in page and "a rehearsal" in page and "2026-12-31" in page, name


@pytest.mark.parametrize("data", [b"{", b"{}", b'{"judged":"x"}', b"\xff"])
def test_a_spoilt_waivers_file_waives_nothing_and_is_said(toy, data):
    found = build_report(replace(toy.view(reports=False), waivers_text=data)).findings
    assert "WAIVERS_REFUSED" in {f.rule for f in found}
    assert all(f.waiver is None for f in found)
