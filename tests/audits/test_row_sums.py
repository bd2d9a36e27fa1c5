"""Rows added up between clients in the evidence: what was left out or tells another tale (O24)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from audits.accounting.account import account, account_of
from audits.attacks import Material
from audits.evidence.steps import Case, Verification
from audits.evidence.verify import verify
from audits.report.build import build_report
from protocols.evidence.ledger import Entry
from protocols.forms import Algorithm
from tests.audits.attacks.made_up import attack_only
from tests.audits.forging import Change, rewrite
from tests.audits.lies import drop, finds, setting
from tests.audits.toy_run import Toy, lose, run_toy
from tests.protocols.rowed import ADDING, FEATURES, _never, row_policy, rowed
from tests.protocols.test_row_noise import noise
from tests.protocols.test_training_sessions import Store

GONE = "client-3"


def run(losing: Any = None, **guards: Any) -> Toy:
    policy = row_policy(**guards)
    world = rowed(reserve=Store(), **guards)

    def site(name: str) -> Any:
        held = world.sites[name]
        facts = {n: getattr(held, n) for n in ("own", "terms", "links", "wanted")}
        return SimpleNamespace(**facts, found=None, memory={}, draws={})

    dims = {"h": FEATURES, "block": 16, "width": FEATURES + 1}
    made = Algorithm("toy", "none", lambda rng: 1, _never, (ADDING,), dims)
    facts: Any = {"clients": tuple(world.names), "site": site, "losing": losing}
    return run_toy(policy, rounds=1, algorithm=made, **facts)


@pytest.fixture(scope="module")
def honest() -> Toy:
    return run()


def test_an_honest_run_verifies_and_says_so(honest: Toy) -> None:
    found = verify(honest.view())
    assert found.ok, found.failed
    (step,) = [s for s in found.steps if s.name == "opened"]
    assert "rows of 6 clients added up by one canary" in step.detail


def lacking(owner: str, fact: str) -> Change:
    """Take the entries of rows that hold a fact out of a ledger, and leave the others."""

    def change(party: str, entry: Entry) -> list[Entry]:
        gone = party == owner and entry["kind"] == "rows" and fact in entry
        return [] if gone else [entry]

    return change


def twice(owner: str, fact: str) -> Change:
    def change(party: str, entry: Entry) -> list[Entry]:
        again = party == owner and entry["kind"] == "rows" and fact in entry
        return [entry, dict(entry)] if again else [entry]

    return change


ROWS, SERVED = {"kind": "rows"}, {"kind": "row_tags"}


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (setting(GONE, ROWS, canary="ab" * 32), "more than one canary"),
        (lacking(GONE, "canary"), f"the ledger of {GONE} lacks the rows behind link.tags"),
        (lacking(GONE, "adding"), f"the ledger of {GONE} lacks the rows behind link.split"),
        (lacking(GONE, "sums"), f"the ledger of {GONE} lacks the rows behind link.part"),
        (drop("aggregator", **ROWS), "the ledger of aggregator lacks the rows behind"),
        (drop("matcher", **ROWS), "the ledger of matcher lacks the rows behind"),
        (drop("tag-server-1", **SERVED), "the ledger of tag-server-1 lacks the rows behind"),
        (twice(GONE, "adding"), "stand there twice"),
        (twice("matcher", "canary"), "stand there twice"),
        (setting("matcher", ROWS, clients=5), "count other clients"),
        (setting("aggregator", ROWS, clients=5), "count other clients"),
        (setting("tag-server-2", SERVED, clients=5), "count other clients"),
        (setting("tag-server-2", SERVED, epoch=2), "had tags made in another round"),
        (setting("tag-server-2", SERVED, exchange=77), "had tags made in another round"),
    ],
)
def test_ledgers_that_contradict_each_other_are_found(
    honest: Toy, change: Change, why: str
) -> None:
    finds("opened", why, rewrite(honest, honest.view(reports=False), change))


def test_what_tag_servers_refused_is_counted(honest: Toy) -> None:
    forged = rewrite(honest, honest.view(reports=False), setting("tag-server-1", SERVED, refused=1))
    (step,) = [s for s in verify(forged).steps if s.name == "opened"]
    assert "1 question beyond the quota refused" in step.detail


@pytest.mark.parametrize("step", ["onward", "part"])
def test_a_client_that_vanishes_is_explained(step: str) -> None:
    made = run(lose(GONE, f".{step}", round=1))
    found = verify(made.view())
    assert made.lost == [] and found.ok, found.failed


def test_the_report_says_who_reads_what_of_rows(honest: Toy) -> None:
    report = build_report(honest.view())
    views = {view.viewer: " ".join(view.sees) for view in report.views}
    assert "by public numbers" in views["matcher and both tag servers, of rows"]
    assert "quota of guesses" in views["matcher and one client, of rows"]
    assert "no sum" in views["aggregator and matcher, of rows"]
    assert views["a receiver of a row and all who add to it but one"].startswith("that one's sum")
    assert "nothing else of a single client" not in views["aggregator and one client"]
    (known,) = [line.answer for line in report.verdict_strip if "singled out" in line.question]
    assert "clients read exact sums of a few others' records" in known


@pytest.fixture(scope="module")
def noised() -> Toy:
    return run(noise=noise())


def test_a_run_of_noised_rows_verifies_and_its_account_is_of_nodes(noised: Toy) -> None:
    found = verify(noised.view())
    assert found.ok, found.failed
    (step,) = [s for s in found.steps if s.name == "budget"]
    assert step.detail == "6 clients reserved their budget before any noise was drawn"
    spent = account(noised.view())
    assert spent.verdict == "NOT FALSIFIED" and spent.epsilon.value == "infinity"
    (nodes,) = spent.counted
    assert nodes.statement.startswith("For one node's features: ε = ")
    assert (nodes.recorded.unit, nodes.fields, nodes.items) == ("node", 5, ("link.up.ROW_SUM",))
    assert 7.9 < float(nodes.recorded.value) <= 8.0
    report = build_report(noised.view())
    assert any(one.unit == "one node's features" and one.borne_out for one in report.accounting)
    (known,) = [line.answer for line in report.verdict_strip if "singled out" in line.question]
    assert "clients read noised sums of a few others' records" in known


@pytest.mark.parametrize(
    ("step", "facts", "why"),
    [
        ("opened", {"entered": 6}, "hold a node in more rows than the noise covers"),
        ("opened", {"epsilon": "64.0"}, "were noised otherwise than planned"),
        ("opened", {"scale": "0.1"}, "were noised otherwise than planned"),
    ],
)
def test_a_ledger_with_other_noise_than_planned_is_found(
    noised: Toy, step: str, facts: dict[str, Any], why: str
) -> None:
    change = setting(GONE, {"kind": "rows", "epsilon": "8.0"}, **facts)
    finds(step, why, rewrite(noised, noised.view(reports=False), change))


def test_noise_without_a_reserved_budget_is_found(noised: Toy) -> None:
    forged = rewrite(noised, noised.view(reports=False), drop(GONE, kind="budget"))
    finds("budget", f"{GONE} reserved its budget 0 times", forged)


def test_a10_tries_the_noise_on_rows_and_its_code(noised: Toy) -> None:
    found = attack_only(Material(Case(noised.view())), ["A10"])
    rows = [row for row in found.rows if row.payload == "P13"]
    verdicts = {row.what: row.verdict for row in rows}  # by trials alone epsilon 8 is out of reach
    assert len(rows) == 4 and "FAIL" not in verdicts.values()
    assert any("Gaussian" in what and said == "PASS" for what, said in verdicts.items())
    assert verdicts["code of rows: on the grid, within the sensitivity"] == "PASS"
    (claim,) = [one for one in found.claims if one.unit == "node"]
    assert claim.status != "falsified" and "5 rows that one node enters" in claim.text


def test_a_plan_without_the_noise_on_rows_falsifies_the_claim(noised: Toy) -> None:
    case = Case(noised.view())
    bare = tuple(item.model_copy(update={"counted": None}) for item in case.plan.items)
    case.__dict__["plan"] = case.plan.model_copy(update={"items": bare})
    found = account_of(case, Verification(()))
    assert found.verdict == "FALSIFIED" and found.counted == ()
    assert any("noise on rows is not what the policy" in reason for reason in found.reasons)
