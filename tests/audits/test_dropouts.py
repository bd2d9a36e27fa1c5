"""Clients that vanish: what the evidence lets pass, and how the report tells it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from audits.evidence.ledger_index import LedgerIndex
from audits.evidence.run_files import RunView
from audits.evidence.verify import verify
from audits.report.build import build_report
from protocols.errors import RemoteProtocolError
from protocols.policy.policy import PrivacyPolicy
from tests.audits.forging import edit_last, forge
from tests.audits.lies import finds
from tests.audits.toy_run import (
    AGGREGATOR,
    FIVE,
    Bus,
    Lose,
    Toy,
    lose,
    maskless,
    run_toy,
    stated,
    two_sums,
)

pytestmark = pytest.mark.usefixtures("in_two_steps")

LOST, OTHER = FIVE[1], FIVE[2]
KEYS = ("pair.call", "pair.boxes", "pair.down", "pair.rows")
AT = "while keys were agreed on"
MOMENTS = {
    ".down": "before the request reached it",
    ".up.SUM": "before its answer arrived",
    ".survivors": "before the survivor list reached it",
    ".vote": "before its vote arrived",
    ".votes": "before the votes reached it",
    ".shares": "before its shares arrived",
}
ALONE = {".down", ".up.SUM", *KEYS}  # lost before its upload arrived, so no total has it


def run(policy: str | PrivacyPolicy = "masks", losing: Lose | None = None, **more: object) -> Toy:
    return run_toy(policy, clients=FIVE, losing=losing, **more)


@pytest.fixture(scope="module")
def whole() -> Toy:
    return run()


def detail(view: RunView, name: str) -> str:
    return next(s.detail for s in verify(view).steps if s.name == name)


def survivors(toy: Toy) -> list[int]:
    """Return how many clients each opening counts."""
    opens = LedgerIndex.read(toy.view(reports=False).ledgers, toy.plan).of_kind("open")
    return [entry["survivors"] for _, entry in opens]


# --- honest losses ------------------------------------------------------------------------------


@pytest.mark.parametrize("item", [*MOMENTS, *KEYS])
def test_o5_each_loss_is_explained_named_and_told_apart(item: str) -> None:
    round = 0 if item in KEYS else 2
    toy = run(losing=lose(LOST, item, round=round))
    view = toy.view()
    assert verify(view).ok, verify(view).failed
    assert detail(view, "receipts").endswith(
        f"1 envelope lost with clients that vanished: {LOST} in round {round}"
    )
    report = build_report(view)
    (vanished,) = report.dropouts.vanished
    assert (vanished.client, vanished.round) == (LOST, round)
    assert vanished.moment == (AT if item in KEYS else MOMENTS[item])
    assert report.dropouts.lost == () and toy.lost == []
    assert {f.rule: f.severity for f in report.findings}["VANISHED"] == "info"
    assert survivors(toy)[-1] == (4 if item in ALONE else 5)
    for name, data in view.reports.items():
        if name in ("report.html", "report.md"):
            assert vanished.moment in data.decode() and LOST in data.decode()


@pytest.mark.parametrize("policy", ["he", "ckks"])
@pytest.mark.parametrize("item", ["", ".up.SUM", ".shares"])
def test_o5_the_same_under_encryption(item: str, policy: str) -> None:
    toy = run(policy, lose(LOST, item, round=2) if item else lose(LOST, round=2))
    view = toy.view()
    assert verify(view).ok, verify(view).failed
    assert f"{LOST} in round 2" in detail(view, "receipts")
    assert survivors(toy) == [5, 5 if item == ".shares" else 4]


def test_without_masks_a_client_that_vanished_is_in_no_total() -> None:
    for policy in (maskless(), PrivacyPolicy.preset("unsafe_plaintext")):
        view = run(policy, lose(LOST, ".up.SUM", round=2)).view()
        assert verify(view).ok, verify(view).failed
        assert [v.client for v in build_report(view).dropouts.vanished] == [LOST]


@pytest.mark.parametrize(
    ("item", "arrived", "votes", "shares"),
    [(".down", 3, None, None), (".vote", 5, 3, None), (".shares", 5, 5, 3)],
)
def test_a_skipped_round_is_told_with_its_reason(
    item: str, arrived: int, votes: int | None, shares: int | None
) -> None:
    two = [lose(name, item, round=1) for name in (LOST, OTHER)]
    toy = run(losing=lambda header, to: any(lost(header, to) for lost in two))
    view = toy.view()
    assert verify(view).ok, verify(view).failed
    assert toy.lost == [1] and len(survivors(toy)) == 1
    assert "1 round skipped, the first: round 1" in detail(view, "opened")
    report = build_report(view)
    (lost,) = report.dropouts.lost
    assert (lost.round, lost.ask) == (1, "step")
    assert (lost.arrived, lost.votes, lost.shares) == (arrived, votes, shares)
    assert {f.rule: f.severity for f in report.findings}["ROUND_SKIPPED"] == (
        "medium" if item == ".shares" else "low"  # shares that left may have been used
    )
    hidden = view.result_text.replace(b'"lost_rounds": [\n    1\n  ]', b'"lost_rounds": []')
    assert hidden != view.result_text
    finds("result", "was skipped", replace(view, result_text=hidden, reports={}))


def test_result_json_names_skipped_rounds_in_order_and_none_beyond_the_plan(whole: Toy) -> None:
    view = whole.view(reports=False)
    for claimed in (b"[2, 1]", b"[1, 1]", b"[0]", b"[4]", b'["1"]', b"[true]", b"1", b"[1.0]"):
        text = view.result_text.replace(b'"lost_rounds": []', b'"lost_rounds": ' + claimed)
        finds("result", "round", replace(view, result_text=text))
    closing = view.result_text.replace(b'"lost_rounds": []', b'"lost_rounds": [3]')
    stands = edit_last("close", result=stated(lost_rounds=[3]))
    forged = forge(whole, view, AGGREGATOR, stands)
    assert verify(replace(forged, result_text=closing)).ok  # the score after the last round


def test_o5_a_client_that_vanishes_between_two_sums_costs_the_round() -> None:
    toy = run(losing=lose(LOST, "again.up.SUM", round=1), algorithm=two_sums())
    assert toy.lost == [1] and survivors(toy) == [5, 5, 5]
    assert verify(toy.view()).ok, verify(toy.view()).failed


def test_o5_a_client_that_vanished_is_left_out_for_the_rest_of_the_round() -> None:
    toy = run(losing=lose(LOST, "step.up.SUM", round=1), algorithm=two_sums())
    assert toy.lost == [] and survivors(toy) == [4, 4, 5, 5]
    assert verify(toy.view()).ok, verify(toy.view()).failed


def test_a_lost_key_ends_the_run_and_its_evidence_holds() -> None:
    bus = Bus(PrivacyPolicy.preset("he"), 2, FIVE)
    bus.lose = lose(LOST, "key.offer")
    with pytest.raises(RemoteProtocolError):
        bus.play(2)
    view = bus.finish(whole=False).view()
    assert verify(view).ok, verify(view).failed
    said = detail(view, "receipts")
    assert f"{LOST} in round 0" in said and "ended early" in said
