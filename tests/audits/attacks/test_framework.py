"""Running attacks, and what is written down of it."""

from __future__ import annotations

import ast
import inspect
import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import audits.attacks as framework
from audits.attacks import Findings, Material, NotApplicable, Samples, attack, attacks, chosen
from audits.attacks._shared import payloads
from audits.attacks._shared.models import AttackReport, AttackRow, Claim
from audits.attacks._shared.rules import Rule
from audits.evidence.steps import Case
from protocols.errors import EvidenceError
from tests.audits.attacks.made_up import CLIENTS, samples
from tests.audits.attacks.planted import exposures, material
from tests.audits.toy_run import run_toy

# --- running ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Made:
    """An attack that gives back what it was made with, or crashes."""

    id: str = "A91"
    name: str = "made-up"
    question: str = "Does it work?"
    payloads: tuple[str, ...] = ("P01", "P05")
    metric: str = "AUC"
    margin: float = 0.05
    gate: float = 0.15
    needs_capture: bool = False
    rules: tuple[Rule, ...] = (
        Rule("AUC", margin=0.05, gate=0.15, chance=0.5),
        Rule("AUC", margin=0.05, gate=0.15, chance=0.5, clients=False),
    )
    rows: tuple[Samples | NotApplicable, ...] = ()
    claims: tuple[Claim, ...] = ()
    crash: bool = False
    drawn: list[float] = field(default_factory=list)

    def run(self, material: Material, rng: np.random.Generator, profile: str) -> Findings:
        self.drawn.append(float(rng.random()))
        if self.crash:
            raise KeyError("a secret value")
        return Findings(self.rows, self.claims)


@pytest.fixture
def only(monkeypatch):
    """Put other attacks into the registry."""

    def put(*made: Made) -> None:
        monkeypatch.setattr(framework, "attacks", lambda: made)

    return put


def test_attacks_are_found_by_folder_and_described():
    known = {a.id: a for a in attacks()}
    assert {"A04", "A05"} <= set(known)
    assert [a.id for a in attacks()] == sorted(known)
    for one in attacks():
        assert one.question.endswith("?")
        assert one.payloads and set(one.payloads) <= set(payloads.PAYLOADS)
    assert [a.id for a in chosen(["grad-span", "a04"])] == ["A04", "A05"]
    with pytest.raises(ValueError, match="did you mean 'grad-span'"):
        chosen(["grad-spam"])


def test_every_attack_s_test_states_its_trials_and_the_chance_of_a_false_result():
    here = Path(__file__).parent
    elsewhere = dict.fromkeys(("item_tags", "tag_ranks"), here.parent / "test_tags.py")
    for one in attacks():
        module = type(one).__module__.rpartition(".")[2]
        told = ast.get_docstring(
            ast.parse(elsewhere.get(module, here / f"test_{module}.py").read_text())
        )
        assert told is not None and "Trials: " in told, module
        assert "pinned" in told and ("by chance" in told or "draw" in told), module


def test_a_crash_is_an_error_that_hides_nothing_and_says_no_value(clear, only):
    only(Made(crash=True), Made(id="A92", name="other", rows=(samples(payload="P01"),)))
    report = attack(material(clear, ()))
    assert [(r.id, r.verdict) for r in report.rows] == [("A91", "ERROR"), ("A92", "PASS")]
    assert "secret" not in report.text()
    only(Made(rows=()))
    assert attack(material(clear, ())).rows[0].verdict == "ERROR"


def test_samples_by_a_rule_that_the_attack_does_not_declare_are_an_error(clear, only):
    for other in ({"margin": 0.9}, {"gate": -1.0}, {"metric": "mine"}, {"chance": 0.4}):
        only(Made(rows=(samples(payload="P01", **other),)))
        assert [r.verdict for r in attack(material(clear, ())).rows] == ["ERROR"]
    only(Made(rows=(samples(payload="P19"),)))
    assert [r.verdict for r in attack(material(clear, ())).rows] == ["ERROR"]


def test_rows_count_clients_and_not_other_units(clear, only):
    only(Made(rows=(samples(payload="P01"), samples(payload="P01", client_clusters=False))))
    assert [r.n_clients for r in attack(material(clear, ())).rows] == [len(CLIENTS), 0]


def test_claims_of_an_attack_that_crashed_later_do_not_stand(clear, only):
    claim = Claim(text="c", epsilon_claim="1", unit="client", status="not_falsified")
    bad = samples(payload="P99")
    only(Made(rows=(bad,), claims=(claim,)))
    report = attack(material(clear, ()))
    assert report.rows[0].verdict == "ERROR"
    assert report.claims == ()
    only(Made(rows=(samples(payload="P01"),), claims=(claim,)))
    assert attack(material(clear, ())).claims == (claim,)


def test_what_no_attack_looked_at_is_listed_with_its_reason(clear, masked, only):
    only(Made(rows=(samples(payload="P01"),)))
    assert "P01" not in {n.payload for n in attack(material(clear, ())).not_tested}
    only(Made(rows=(NotApplicable("there is no head", "P01"),)))
    missing = {n.payload: n.why for n in attack(material(clear, ())).not_tested}
    assert missing["P01"] == "A91: there is no head"
    assert {"P17", "P19"} <= set(missing) and not {"P18", "P20"} & set(missing)
    only(Made(crash=True))
    why = {n.payload: n.why for n in attack(material(masked, ())).not_tested}
    assert why["P05"] == "A91: the attack failed (KeyError)"


def test_of_two_attacks_the_one_that_could_be_asked_says_why(clear, only):
    """Whatever their order; of two that do not apply the first one does."""
    idle = Made(rows=(NotApplicable("no canaries were put in", "P01"),))
    asked = Made(id="A92", name="asked", rows=(NotApplicable("too few", "P01", arises=True),))
    other = Made(id="A92", name="idle", rows=(NotApplicable("there is no head", "P01"),))
    for made, why in (
        ((idle, asked), "A92: too few"),
        ((asked, idle), "A92: too few"),
        ((idle, other), "A91: no canaries were put in"),
    ):
        only(*made)
        missing = {n.payload: n.why for n in attack(material(clear, ())).not_tested}
        assert missing["P01"] == why


def test_without_capture_an_attack_says_why(clear):
    why = "the policy forbids capture"
    for unread, verdict in ((False, "NOT_APPLICABLE"), (True, "NOT_TESTED")):
        report = attack(Material(case=clear, missing=why, unread=unread), ["A04", "A05"])
        found = {r.id: (r.verdict, r.reason) for r in report.rows}
        assert found["A04"] == found["A05"] == (verdict, why)
        assert found["A09"] == found["A10"] == ("NOT_TESTED", "it was not asked for")
    assert "P01" in {n.payload for n in report.not_tested}


def test_time_budget_leaves_attacks_out_and_says_so(clear, only):
    first, second = Made(rows=(samples(payload="P01"),)), Made(id="A92", name="late")
    only(first, second)
    times = iter([0.0, 1.0, 11.0])
    report = attack(material(clear, ()), time_budget=10.0, clock=lambda: next(times))
    assert [r.verdict for r in report.rows] == ["PASS", "NOT_TESTED"]
    assert "time budget" in report.rows[1].reason
    assert not second.drawn


def test_same_run_same_bytes_and_another_run_another_seed(clear, masked, leak):
    one, two = (attack(material(clear, leak), ["A04", "A05"]) for _ in range(2))
    other = attack(material(masked, leak), ["A04", "A05"])
    assert one.text() == two.text()
    assert one.rows[0].seed != other.rows[0].seed


def test_nobody_can_choose_a_lucky_seed(clear, only):
    """No word that a caller may say changes the draw, and a results file has no place for one."""
    made = Made(rows=(samples(payload="P01"),))
    only(made)
    mine = framework.seed_of(framework.heads_digest(clear.ledger_index), made.id)
    ways: dict[str, Any] = {
        "ids": [made.id],
        "profile": "default",
        "earlier": attack(material(clear, ())),
        "time_budget": 60.0,
        "clock": lambda: 7.0,
    }
    assert set(inspect.signature(attack).parameters) == {"material", *ways}
    for name, said in ways.items():
        (found,) = attack(material(clear, ()), **{name: said}).rows
        assert found.seed == mine
    assert len(made.drawn) == 1 + len(ways) and len(set(made.drawn)) == 1
    assert "seed" not in AttackReport.model_fields


@pytest.mark.parametrize(("total", "said"), [(False, "own message"), (True, "a total over the")])
def test_a_row_says_what_the_receiver_got(clear, total, said):
    rows = attack(material(clear, exposures(8, total=total)), ["A04", "A05"]).rows
    told = [row.what for row in rows if row.id in ("A04", "A05")]
    assert len(told) >= 3 and all(said in what for what in told)


def test_chance_comes_from_the_ledgers_and_not_from_who_else_is_asked(clear, masked, only):
    made = Made(rows=(samples(payload="P01"),))
    only(Made(id="A90", name="before", rows=made.rows), made)
    attack(material(clear, ()))
    attack(material(clear, ()), ["A91"])
    attack(material(masked, ()), ["A91"])
    alone, among, elsewhere = made.drawn[1], made.drawn[0], made.drawn[2]
    assert alone == among
    assert alone != elsewhere


def test_heads_digest_follows_every_entry(clear):
    from audits.evidence.ledger_index import LedgerIndex

    digest = framework.heads_digest(clear.ledger_index)
    party = sorted(clear.view.ledgers)[0]
    cut = clear.view.ledgers[party].splitlines(keepends=True)[:-1]
    shorter = LedgerIndex.read({**clear.view.ledgers, party: b"".join(cut)}, clear.plan)
    assert digest == framework.heads_digest(Case(clear.view).ledger_index)
    assert digest != framework.heads_digest(shorter)


# --- what is written down -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def report(clear, leak) -> AttackReport:
    return attack(material(clear, leak), ["A04", "A05"])


def test_report_belongs_to_its_run_and_reads_back(report, clear):
    assert report.run == clear.roster_file.run
    assert report.plan_digest == clear.plan_digest
    assert report.heads_digest == framework.heads_digest(clear.ledger_index)
    assert AttackReport.parse(report.text().encode()) == report
    assert "client-0" not in report.text()  # figures leave, not who they are of


def measured(document):
    """Return the first row with figures."""
    return next(row for row in document["rows"] if row["protected"] is not None)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda d: d | {"extra": 1},
        lambda d: d | {"seed": 0},
        lambda d: d | {"simulated": float("nan")},
        lambda d: d | {"rows": [d["rows"][0] | {"n_pos": -1}]},
        lambda d: d | {"plan_digest": "x"},
        lambda d: d | {"rows": [d["rows"][0] | {"verdict": "SAFE"}]},
        lambda d: d | {"rows": [d["rows"][0] | {"chance": "NaN"}]},
        lambda d: d | {"rows": [measured(d) | {"protected": None}]},
        lambda d: d | {"rows": [d["rows"][0] | {"reason": "x" * 601}]},
        lambda d: d | {"schema_version": 1},
    ],
)
def test_hostile_reports_are_refused(report, spoil):
    document = spoil(json.loads(report.text()))
    text = json.dumps(document, indent=2, sort_keys=True) + "\n"
    with pytest.raises(EvidenceError) as refused:
        AttackReport.parse(text.encode())
    assert refused.value.step == "files"


def test_one_spelling_only(report):
    for data in (
        report.text().encode() + b" ",
        report.text().replace("  ", " ").encode(),
        b"",
        b"[]",
    ):
        with pytest.raises(EvidenceError):
            AttackReport.parse(data)
    with pytest.raises(EvidenceError, match="larger"):
        AttackReport.parse(b" " * ((4 << 20) + 1))


def test_a_verdict_needs_its_figures():
    facts = {
        "id": "A04",
        "name": "n",
        "question": "q?",
        "payload": "P01",
        "what": "",
        "profile": "quick",
        "n_clients": 3,
        "n_pos": 0,
        "n_neg": 0,
        "seed": "0" * 64,
        "metric": "m",
        "chance": "0.5",
        "margin": "0.05",
        "gate": "0.15",
        "reason": "r",
    }
    AttackRow.model_validate({**facts, "verdict": "ERROR"})
    for bare in ("PASS", "FAIL", "INVALID"):
        with pytest.raises(ValueError):
            AttackRow.model_validate({**facts, "verdict": bare})


@pytest.mark.parametrize(
    ("policy", "wanted"),
    [
        ("unsafe_plaintext", {"P01", "P17"}),
        ("masks", {"P05", "P03", "P17"}),
        ("he", {"P05", "P03", "P04", "P17"}),
    ],
)
def test_payloads_of_a_plan(policy, wanted):
    case = Case(run_toy(policy, rounds=1).view())
    found = {
        item.id: payloads.payloads_of(item, case.plan, case.policy) for item in case.plan.items
    }
    assert set(found["step.up.SUM"]) == wanted
    assert found["refusal.client"] == ("P20",)
    assert found["step.down"] == ("P19",)
    assert payloads.payload_of(case.plan.item("step.up.SUM"), case.plan, case.policy) in wanted
    assert wanted | {"P18", "P19", "P20"} >= set(payloads.sent(case.plan, case.policy))


@pytest.mark.parametrize("seen", [{}, {"delta": np.array([np.nan])}, {"delta": np.array([np.inf])}])
def test_what_cannot_be_read_is_an_error_and_no_pass(clear, only, seen):
    only(Made(rows=(samples(payload="P01"),), needs_capture=True))
    good = exposures(8)
    spoilt = replace(good[0], seen=seen)
    report = attack(material(clear, (*good, spoilt)))
    assert [row.verdict for row in report.rows] == ["ERROR"]
