"""Attack files that a dishonest auditor edited: what their figures do not give is refused."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from audits.attacks import Material, attack, attacks, seed_of
from audits.attacks._shared.reading import report_doubt, row_doubt
from audits.attacks._shared.verdicts import FAMILY, Figures, judge, misplaced, null_p, verdict_of
from audits.evidence.steps import Case
from audits.report.build import build_report
from audits.report.models import Report
from tests.audits.attack_tools import (
    BIASED,
    BLANK,
    LEAK,
    SINGLED,
    UNSURE,
    attacked,
    claim,
    row,
)
from tests.audits.attacks.made_up import around, samples
from tests.audits.attacks.planted import exposures, material
from tests.audits.noised_run import NoisedRun


def rules(report: Report) -> dict[str, str]:
    return {f.rule: f.severity for f in report.findings}


def leak(**changes):
    return {**LEAK, **changes}


FALSE_CLAIM = {**SINGLED, "id": "A10", "payload": "P06", "n_clients": 0}
VERDICT, KEPT, RULE = "not what its figures give", "rests on none", "its attack does not have"
EDITED = {
    "FAIL to NOT_APPLICABLE, figures kept": (KEPT, leak(verdict="NOT_APPLICABLE")),
    "FAIL to ERROR, figures kept": (KEPT, leak(verdict="ERROR")),
    "FAIL to INCONCLUSIVE": (VERDICT, leak(verdict="INCONCLUSIVE")),
    "FAIL to INVALID": (VERDICT, leak(verdict="INVALID")),
    "FAIL to PASS": (VERDICT, leak(verdict="PASS")),
    "PASS to FAIL": (VERDICT, {"verdict": "FAIL"}),
    "PASS to INVALID": (VERDICT, {"verdict": "INVALID"}),
    "INVALID to INCONCLUSIVE": (VERDICT, {**BIASED, "verdict": "INCONCLUSIVE"}),
    "INCONCLUSIVE to INVALID": (VERDICT, {**UNSURE, "verdict": "INVALID"}),
    "PASS by a wider margin": (RULE, leak(verdict="PASS", margin="0.9")),
    "FAIL to INCONCLUSIVE by a margin": (RULE, leak(verdict="INCONCLUSIVE", margin="0.4")),
    "PASS of a weak attack by a lower gate": (
        RULE, {"raw": "0.5 0.45 0.55", "raw_gap": "-0.002 -0.05 0.05", "gate": "-1"},
    ),
    "PASS of a weak attack": (VERDICT, {"raw": "0.5 0.45 0.55", "raw_gap": "-0.002 -0.05 0.05"}),
    "FAIL to INCONCLUSIVE by a higher gate": (RULE, leak(verdict="INCONCLUSIVE", gate="0.9")),
    "PASS with a biased null control": (VERDICT, {"null": "0.9 0.85 0.95"}),
    "PASS with a null control on one side": (
        RULE, {"null": "0.3 0.25 0.35", "null_side": "above"},
    ),
    "PASS with another chance": (RULE, {"null": "0.9 0.85 0.95", "chance": "0.9"}),
    "PASS of one client": (VERDICT, {"n_clients": 1}),
    "PASS of no client": (RULE, {"n_clients": 0}),
    "PASS of one client, called facts": (RULE, {"n_clients": 1, "exact": True}),
    "PASS by another score's rule": (RULE, {"metric": "TPR at 1 % FPR", "margin": "0.05"}),
    "PASS by a score that nobody has": (RULE, {"metric": "ROC-AUC of mine"}),
    "PASS with a gain of its own": ("differ by", {"protected": "0.93 0.9 0.95"}),
    "PASS with a lead of its own": ("differ by", {"raw": "0.6 0.58 0.62"}),
    "PASS on a payload that it cannot look at": (RULE, {"payload": "P19"}),
    "half a row": (KEPT, leak(verdict="INCONCLUSIVE", raw_gap=None)),
    "no chance beside figures": (KEPT, leak(verdict="INCONCLUSIVE", chance="")),
    "clients without figures": (KEPT, {**BLANK, "verdict": "INCONCLUSIVE", "n_clients": 20}),
    "records without figures": (KEPT, {**BLANK, "verdict": "ERROR", "n_pos": 16}),
    "not applicable by another rule": (
        RULE, {**BLANK, "verdict": "NOT_APPLICABLE", "margin": "0.9"},
    ),
    "any seed": ("the heads of the ledgers", {"seed": "00" * 32}),
    "an unknown attack": ("does not have", {"id": "A99"}),
    "another attack's name": ("asks something else", {"name": "label-count"}),
    "another question": ("asks something else", {"question": "Is all well?"}),
    "a falsified claim taken away": ("no claim in it is falsified", FALSE_CLAIM),
}  # fmt: skip


@pytest.mark.parametrize("kind", EDITED)
def test_an_edited_row_is_refused(toy, report, kind):
    why, facts = EDITED[kind]
    made = build_report(attacked(toy.view(), row(**facts)))
    assert rules(made)["ATTACKS_REFUSED"] == "high"
    assert why in made.tried.state
    assert not made.tried.used and made.attacks == () and made.not_tested == report.not_tested


def test_a_value_over_more_clients_than_the_rest_is_refused(toy):
    one = row()
    other = one.gap.model_copy(update={"n": 2000})
    made = build_report(attacked(toy.view(), one.model_copy(update={"gap": other})))
    assert "over more clients in one place" in made.tried.state
    other = row(n_clients=20).model_copy(update={"n_clients": 2000})
    assert not build_report(attacked(toy.view(), other)).tried.used


HONEST = {
    "all within the margin": ("PASS", {}),
    "a leak": ("FAIL", LEAK),
    "too few": ("INCONCLUSIVE", UNSURE),
    "not fair": ("INVALID", BIASED),
    "not begun": ("INCONCLUSIVE", {**BLANK, "verdict": "INCONCLUSIVE"}),
    "no layer": ("NOT_APPLICABLE", {**BLANK, "verdict": "NOT_APPLICABLE"}),
    "broke off": ("ERROR", {**BLANK, "verdict": "ERROR"}),
    "one client": ("INCONCLUSIVE", {"verdict": "INCONCLUSIVE", "n_clients": 1}),
    "facts about one client": ("FAIL", {**SINGLED, "id": "A09", "n_clients": 1}),
    "another score": (
        "PASS",
        {
            "metric": "TPR at 1 % FPR", "chance": "0.01", "null": "0.01 0.008 0.012",
            "gap": "0.009 -0.002 0.02",
        },
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", HONEST)
def test_a_row_whose_figures_give_its_verdict_is_used(toy, kind):
    verdict, facts = HONEST[kind]
    made = build_report(attacked(toy.view(), row(**facts)))
    assert made.tried.used and "ATTACKS_REFUSED" not in rules(made)
    assert [r.verdict for r in made.attacks] == [verdict]


NOTHING = {"epsilon_lb": "", "ceiling": "", "confidence": "", "trials": 0}
CLAIMS = {
    "below its bound, and not falsified": {"epsilon_lb": "9", "ceiling": "9.5"},
    "below its bound, and untested": {"epsilon_lb": "9", "ceiling": "9.5", "status": "untested"},
    "above its bound, and falsified": {"status": "falsified"},
    "not falsified without a bound": NOTHING,
    "falsified without a bound": {**NOTHING, "status": "falsified"},
    "untested, and yet with trials": {"epsilon_lb": "", "status": "untested"},
    "not falsified, where nothing could falsify it": {"epsilon_claim": "6"},
    "a bound above what can be proved": {
        "status": "falsified", "epsilon_lb": "5", "ceiling": "4.5",
    },
    "a bound below nothing": {"epsilon_lb": "-1"},
    "another confidence": {"confidence": "0.5"},
    "no ceiling": {"ceiling": ""},
    "no trials": {"trials": 0},
}  # fmt: skip


@pytest.mark.parametrize("kind", CLAIMS)
def test_a_claim_whose_state_its_bound_does_not_give_is_refused(toy, kind):
    made = build_report(attacked(toy.view(), row(), claims=(claim(**CLAIMS[kind]),)))
    assert rules(made)["ATTACKS_REFUSED"] == "high" and made.claims == ()
    assert "its bound does not give" in made.tried.state


@pytest.mark.parametrize(
    "facts",
    [
        {},
        {"status": "untested"},
        {**NOTHING, "status": "untested"},
        {"status": "falsified", "epsilon_lb": "5"},
    ],
)
def test_a_claim_whose_state_its_bound_gives_is_used(toy, facts):
    given = claim(**facts)
    assert build_report(attacked(toy.view(), row(), claims=(given,))).claims == (given,)


def test_a_claim_that_a_row_falsifies_is_used_with_both(toy):
    bad = claim(status="falsified", epsilon_lb="5")
    made = build_report(attacked(toy.view(), row(**FALSE_CLAIM), claims=(bad,)))
    assert rules(made)["CLAIM_FALSIFIED"] == "critical" == rules(made)["ATTACK_A10"]


def test_attacks_of_another_version_are_shown_and_their_pass_is_not_counted(toy):
    rows = (row(), row(**LEAK, what="other"), row(**UNSURE, what="third"))
    other = {"code_digest": "cd" * 32}
    made = build_report(attacked(toy.view(), *rows, claims=(claim(),), **other))
    assert rules(made)["ATTACKS_OTHER_VERSION"] == "medium"
    assert "ATTACKS_REFUSED" not in rules(made)
    assert made.tried.used and "by another version of the program" in made.tried.state
    assert [r.verdict for r in made.attacks] == ["INCONCLUSIVE", "FAIL", "INCONCLUSIVE"]
    assert made.attacks[0].reason.startswith("Another version of these attacks says PASS")
    assert made.attacks[0].protected == rows[0].protected
    assert [c.status for c in made.claims] == ["untested"]
    assert rules(made)["ATTACK_A05"] == "high"
    alone = build_report(attacked(toy.view(), row(), **other))
    assert alone.verdict_strip[2].state == "ATTENTION"
    assert "no evidence above prior" not in alone.verdict_strip[2].answer
    edited = build_report(attacked(toy.view(), row(margin="0.9"), **other))
    assert "ATTACKS_REFUSED" in rules(edited) and "ATTACKS_OTHER_VERSION" not in rules(edited)
    assert "ATTACKS_OTHER_VERSION" not in rules(build_report(attacked(toy.view(), row())))


def test_the_limits_say_what_no_reading_of_the_file_can_find(toy):
    said = build_report(attacked(toy.view(), row())).limits[0]
    assert "made-up figures that agree with each other can only be found by running" in said
    assert "secure-fgl audit attack" in said and "equal bytes" in said


# --- honest files -------------------------------------------------------------------------------


def test_no_row_of_the_attacks_that_there_are_is_refused(clear):
    for given in (exposures(8), exposures(8, total=True), exposures(1)):
        found = attack(material(clear, given))
        assert {r.id for r in found.rows} == {one.id for one in attacks()}
        assert "ERROR" not in {r.verdict for r in found.rows}
        assert report_doubt(found, attacks(), partial(seed_of, found.heads_digest)) == ""
    assert report_doubt(found, attacks(), partial(seed_of, "00" * 32)).startswith("a seed")


def test_no_claim_of_the_attacks_that_there_are_is_refused():
    found = attack(Material(Case(NoisedRun().view())), ["A10"])
    assert {c.status for c in found.claims} == {"not_falsified", "untested"}
    seeds = {r.id: r.seed for r in found.rows}
    assert report_doubt(found, attacks(), seeds.__getitem__) == ""


def test_a_verdict_can_be_made_again_from_what_is_written_down():
    rng, met = np.random.default_rng(0), set()
    for _ in range(300):
        facts = {
            "prior": around(rng.choice([0.5, 0.52])),
            "raw": around(rng.choice([0.6, 0.66, 0.9]), rng.choice([0.02, 0.3])),
            "null": around(rng.choice([0.5, 0.506, 0.6, 0.4])),
            "protected": around(rng.choice([0.3, 0.54, 0.55, 0.56, 0.9]), rng.choice([0.02, 0.3])),
            "null_side": str(rng.choice(["both", "above"])),
            "exact": bool(rng.random() < 0.2),
        }
        if facts["exact"]:
            facts["prior"] = np.full(len(facts["raw"]), 0.5)
        made = judge(samples(**facts), rng, margin=0.05, gate=0.15)
        figures = Figures.of(made.chance, made.saved)
        side, exact = facts["null_side"], facts["exact"]
        wrong = misplaced(figures, side) if exact else null_p(figures, side, 1024) < FAMILY
        again = verdict_of(figures, 0.05, 0.15, exact, 40, biased=wrong)
        assert again == made.verdict
        met.add(again)
    assert met == {"PASS", "FAIL", "INCONCLUSIVE", "INVALID"}


def test_facts_are_rounded_against_the_run():
    exact = {
        "exact": True,
        "chance": 0.0,
        "prior": np.zeros(40),
        "null": np.zeros(40),
        "raw": np.ones(40),
        "protected": np.zeros(40),
    }
    tiny = np.zeros(40)
    tiny[3] = 0.00002

    def verdict(**given):
        made = judge(samples(**{**exact, **given}), np.random.default_rng(1), margin=0.0, gate=1.0)
        return made.verdict

    assert verdict() == "PASS"
    assert verdict(protected=tiny) == "FAIL"
    assert verdict(null=tiny) == "INVALID"
    assert verdict(raw=1 - tiny) == "INCONCLUSIVE"
    with pytest.raises(ValueError, match="one prior"):
        samples(**{**exact, "prior": tiny})


def test_a_row_that_a_reader_would_refuse_is_not_written(clear):
    one = next(a for a in attacks() if a.id == "A05")
    good = next(r for r in attack(material(clear, exposures(8)), ["A05"]).rows if r.id == "A05")
    assert row_doubt(good, one, good.seed) == ""
    assert row_doubt(good, one, "00" * 32) and row_doubt(good, attacks()[0], good.seed)
    assert all(one.rules[0].metric == one.metric for one in attacks())
    assert all((r.margin, r.gate) == (o.margin, o.gate) for o in attacks() for r in o.rules[:1])
