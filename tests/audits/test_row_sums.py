"""Rows added up between clients in the evidence: what was left out or tells another tale (O24)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from audits.evidence.verify import verify
from audits.report.build import build_report
from protocols.evidence.ledger import Entry
from protocols.forms import Algorithm
from tests.audits.forging import Change, rewrite
from tests.audits.lies import drop, finds, setting
from tests.audits.toy_run import Toy, lose, run_toy
from tests.protocols.rowed import ADDING, FEATURES, _never, row_policy, rowed

GONE = "client-3"


def run(losing: Any = None) -> Toy:
    world = rowed()

    def site(name: str) -> Any:
        held = world.sites[name]
        facts = {n: getattr(held, n) for n in ("own", "terms", "links", "wanted")}
        return SimpleNamespace(**facts, found=None, memory={}, draws={})

    dims = {"h": FEATURES, "block": 16, "width": FEATURES + 1}
    made = Algorithm("toy", "none", lambda rng: 1, _never, (ADDING,), dims)
    facts: Any = {"clients": tuple(world.names), "site": site, "losing": losing}
    return run_toy(row_policy(), rounds=1, algorithm=made, **facts)


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
