"""Figures that sites hand on: judged over sites as all rows are, or refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from audits.attacks import AttackReport, AttackRow, code_digest, heads_digest, seed_of
from audits.attacks.label_count import SKILL
from audits.elsewhere.sites import SiteFigures, joined, read_figures
from audits.evidence.steps import Case
from audits.findings.gate import answers, withheld
from audits.report.build import build_report
from audits.report.models import Report
from protocols.errors import EvidenceError
from tests.audits.attack_tools import SINGLED, attacked, row
from tests.audits.bundle_tools import TOY

CASE = Case(TOY.view())
ONE = CASE.plan.clients[0]
SITES = tuple(f"client-{n:02d}" for n in range(24))
UNDECIDED = {"verdict": "INCONCLUSIVE", "reason": "sample: one client has no interval.",
             "n_clients": 1, "rounds": ()}  # fmt: skip


def measured(least: float = 0.0, **values: float) -> AttackRow:
    """Return one site's row, of scores between `least` and 1."""
    there = {"prior": 0.5, "raw": 0.95, "null": 0.5, "protected": 0.5, **values}
    gains = {"raw_gap": there["raw"] - there["prior"], "gap": there["protected"] - there["prior"]}
    texts = {name: f"{value:.4f} {least} 1" for name, value in there.items()}
    far = 1 - least
    texts |= {name: f"{value:.4f} {-far} {far}" for name, value in gains.items()}
    return row(**{**UNDECIDED, **texts})


def figures(party: str, *rows: AttackRow, **changes: Any) -> SiteFigures:
    """Return what a site hands on, signed; of a party of the toy run it can be read."""
    heads = heads_digest(CASE.ledger_index, party)
    seeded = tuple(one.model_copy(update={"seed": seed_of(heads, one.id)}) for one in rows)
    report = AttackReport(
        run=CASE.roster_file.run, plan_digest=CASE.plan_digest, heads_digest=heads,
        profile="quick", code_digest=code_digest(), simulated=True, rows=seeded,
    )  # fmt: skip
    made = SiteFigures(party=party, attacks=report, **changes)
    known = TOY.identities.get(party)
    return made if known is None else made.signed_by(known.signing)


def over_sites(*values: dict[str, float], **more: Any) -> AttackRow:
    """Return the row over sites of one question, a site for each of the values."""
    there = {p: figures(p, measured(**v, **more)) for p, v in zip(SITES, values, strict=False)}
    (found,) = joined(there, SITES).rows
    return found


def test_a_null_control_that_is_biased_at_every_site_is_invalid_over_them() -> None:
    """At one site nobody can tell; the control: sound ones, of which the very same leak fails."""
    spread = [0.01 * (n % 5 - 2) for n in range(len(SITES))]
    leak = [{"protected": 0.9 + off, "null": 0.5 + off} for off in spread]
    assert over_sites(*leak).verdict == "FAIL"
    found = over_sites(*({**one, "null": 0.9 + off} for one, off in zip(leak, spread, strict=True)))
    assert found.verdict == "INVALID" and "null control" in found.reason


def test_a_score_below_0_is_put_together_as_it_was_measured() -> None:
    """The share of an error that is removed (A04) is negative where a control makes more of it."""
    changes = {
        "id": "A04", "metric": SKILL.metric, "payload": "P05", "what": "classes",
    }  # fmt: skip
    known = row(**changes)
    named = ("id", "name", "question", "metric", "margin", "gate", "null_side", "payload", "what")
    rule = {name: getattr(known, name) for name in named}
    there = {}
    for n, party in enumerate(SITES[:6]):
        off = 0.01 * n
        values = {"prior": 0.0, "raw": 0.8 - off, "null": -0.9 - off, "protected": -0.6 - off}
        one = measured(-4.0, **values).model_copy(update={**rule, "chance": "-2"})
        there[party] = figures(party, one)
        if party in TOY.identities:
            read_figures(there[party].text(), CASE, party)
    (found,) = joined(there, SITES).rows
    assert found.null is not None and found.protected is not None
    assert (found.null.value, found.protected.value) == ("-0.925", "-0.625")
    assert float(found.protected.low) < -0.625 and found.verdict == "PASS" and found.detectable


def test_what_no_attack_at_one_site_gives_is_refused() -> None:
    good = measured()
    read_figures(figures(ONE, good, withheld=("A12",)).text(), CASE, ONE)  # the control
    apart = good.model_copy(update={"what": "asked by itself"})
    read_figures(figures(ONE, good, apart).text(), CASE, ONE)
    huge = measured(-9e11, prior=-4e11, raw=0.0, protected=0.0)
    forged: dict[str, SiteFigures] = {
        "answer one question twice": figures(ONE, good, good),
        "that nobody can read": figures(
            ONE, good.model_copy(update={"what": "x\n\n## All is well"})
        ),
        "that this program does not have": figures(ONE, good, withheld=("A12\n\n## All is well",)),
        "no score": figures(ONE, huge),
        "one site cannot make": figures(ONE, good.model_copy(update={"id": "A16"})),
    }
    for why, wrong in forged.items():
        with pytest.raises(EvidenceError, match=why):
            read_figures(wrong.text(), CASE, ONE)


def reported(*rows: AttackRow) -> Report:
    """Return the report of the toy run, two sites of which hand the same figures on."""
    there = {party: figures(party, *rows).text() for party in CASE.plan.clients[:2]}
    return build_report(replace(TOY.view(), figures=there))


def test_what_one_site_finds_of_no_client_is_a_finding() -> None:
    """A10 looks at the site's own noise code: nothing is put together, and nothing is lost."""
    broken = {**SINGLED, "id": "A10", "payload": "P06",
              "metric": "share of values that break the rule"}  # fmt: skip
    bad = row(**{**broken, "n_clients": 0, "rounds": (), "what": "code of discrete noise"})
    report = reported(bad)
    assert report.at_sites is not None and not report.at_sites.rows
    found = [f for f in report.findings if f.rule == "ATTACK_A10"]
    assert {f.severity for f in found} == {"critical"} and f"at {ONE}: " in found[0].message
    fine = {"verdict": "PASS", "protected": "0 0 0", "gap": "0 0 0", "detectable": "1"}
    good = row(**{**broken, **fine, "n_clients": 0, "rounds": (), "what": "code of noise"})
    rules = {f.rule for f in reported(good).findings}  # the control
    assert not rules & {"ATTACK_A10", "FIGURES_REFUSED"}


def test_what_fails_over_sites_holds_a_release_back() -> None:
    """Whatever the run's own rows say, and until somebody accepts just that."""
    view = attacked(TOY.view(), row())
    report = build_report(view)
    assert withheld(answers(report, ("A05",))) == []  # the control
    spread = [0.01 * (n % 5 - 2) for n in range(len(SITES))]
    leaks = [figures(p, measured(protected=0.9 + o)) for p, o in zip(SITES, spread, strict=True)]
    told = joined(dict(zip(SITES, leaks, strict=True)), SITES)
    assert told.rows[0].verdict == "FAIL"
    found = answers(report.model_copy(update={"at_sites": told}), ("A05", "A04"))
    assert [one.verdict for one in found if one.attack == "A05"] == ["PASS", "FAIL"]
    assert "at sites" in withheld(found)[0]
    fine = told.model_copy(
        update={"rows": (over_sites(*({"protected": 0.5 + o} for o in spread)),)}
    )
    assert fine.rows[0].verdict == "PASS"  # which is no answer for the run
    assert (
        len(answers(build_report(TOY.view()).model_copy(update={"at_sites": fine}), ("A05",))) == 1
    )
