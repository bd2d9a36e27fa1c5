"""Relayed mixtures in the evidence: once, whole, recorded before they left (O23)."""

from __future__ import annotations

from typing import Any

import pytest

from audits.attacks._shared.payloads import payloads_of
from audits.evidence.verify import verify
from audits.report.build import build_report
from protocols.disclosures.mixed.guards import Blur
from protocols.evidence.ledger import Entry
from protocols.policy.guards import Relay
from tests.audits.forging import Change, forge, rewrite
from tests.audits.lies import drop, finds, setting
from tests.audits.test_mixtures import FIVE, policy, site
from tests.audits.toy_run import Bus, Lose, Toy, lose, run_toy
from tests.toys.mixed import mixed

UP, BATCH, POOL = "mash.up.MIXED", "mash.relay.MIXED", "mash.relayed.MIXED"


def run(*more: Any, losing: Lose | None = None, preset: str = "masks") -> Toy:
    toy = mixed(group=1, places=3, f=4, c=2, mixtures=24)
    chosen = policy(*more, Relay(), preset=preset)
    return run_toy(chosen, rounds=2, clients=FIVE, site=site, algorithm=toy, losing=losing)


@pytest.fixture(scope="module")
def honest() -> Toy:
    return run()


def detail(toy: Toy, name: str) -> str:
    return next(step.detail for step in verify(toy.view()).steps if step.name == name)


@pytest.mark.parametrize("preset", ["masks", "pilot"])
def test_an_honest_run_verifies_and_says_so(preset: str) -> None:
    toy = run(preset=preset)
    assert verify(toy.view()).ok, verify(toy.view()).failed
    assert "mixtures of 2 Asks relayed, each once" in detail(toy, "opened")


def test_the_report_says_who_saw_what(honest: Toy) -> None:
    report = build_report(honest.view())
    views = {view.viewer: " ".join(view.sees) for view in report.views}
    assert "sealed boxes, as many and as large for every client" in views["relay"]
    assert "mixtures" not in views["relay"]
    assert "content still hints at senders" in views["aggregator"]
    assert "whose every mixture is" in views["aggregator and relay"]
    assert "whose the rest is" in views["aggregator and other clients"]
    (found,) = [f for f in report.findings if f.rule == "MIXTURES"]
    assert "still hints at them, and relay and aggregator together know them" in found.message
    assert sum("no privacy is credited for the order" in limit for limit in report.limits) == 1
    assert "without their senders, as far as the relay keeps them" in report.summary
    assert "sealed to the aggregator, and to a relay" in report.verdict_strip[1].answer
    items = {item.id: payloads_of(item, honest.plan, honest.policy) for item in honest.plan.items}
    assert (items[UP], items[BATCH], items[POOL]) == (("P10", "P11"), ("P04",), ("P10",))


def test_without_a_relay_nothing_of_it_is_said() -> None:
    toy = mixed(group=1, places=3, f=4, c=2, mixtures=24)
    bare = run_toy(policy(), rounds=1, clients=FIVE, site=site, algorithm=toy)
    report = build_report(bare.view())
    assert "relay" not in report.summary and not any("relay" in limit for limit in report.limits)
    assert not any("relay" in view.viewer for view in report.views)
    assert not any("relay" in finding.message for finding in report.findings)
    assert "relayed" not in detail(bare, "opened")


def test_noise_is_still_not_accounted() -> None:
    assert "not accounted" in run(Blur(multiplier=0.5)).plan.budget


# --- who vanishes ---------------------------------------------------------------------------------


@pytest.mark.parametrize("item", [BATCH, POOL])
def test_a_relay_that_is_lost_costs_its_round_and_the_evidence_explains_it(item: str) -> None:
    toy = run(losing=lose("relay", item, round=1))
    assert toy.lost == [1] and verify(toy.view()).ok, verify(toy.view()).failed
    assert "1 envelope lost with clients that vanished: relay" in detail(toy, "receipts")
    assert "1 round skipped" in detail(toy, "opened")


def test_a_client_that_vanishes_is_in_no_batch() -> None:
    toy = run(losing=lose("client-3", UP, round=1))
    assert toy.lost == [] and verify(toy.view()).ok, verify(toy.view()).failed
    assert "client-3 in round 1" in detail(toy, "receipts")


@pytest.mark.parametrize("until", [BATCH, POOL])
def test_a_run_that_was_cut_short_verifies(until: str) -> None:
    class Cut(Exception):
        pass

    toy = mixed(group=1, places=3, f=4, c=2, mixtures=24)
    bus = Bus(policy(Relay()), 2, FIVE, site, True, toy)

    def cutting(header: Any, to: str) -> bool:
        if header.item == until and header.round == 2:
            raise Cut
        return False

    bus.lose = cutting
    with pytest.raises(Cut):
        bus.play(2)
    cut = bus.finish(whole=False)
    assert verify(cut.view()).ok, verify(cut.view()).failed


# --- lies -----------------------------------------------------------------------------------------


AT_RELAY = {"kind": "relay", "exchange": 2}


def twice(party: str, entry: Entry) -> list[Entry]:
    return [entry, dict(entry)] if party == "relay" and entry["kind"] == "relay" else [entry]


class Afterwards:
    """Records a batch once its pool has left."""

    def __init__(self) -> None:
        self.told: list[Entry] = []

    def __call__(self, party: str, entry: Entry) -> list[Entry]:
        if party == "relay" and entry["kind"] == "relay":
            self.told.append(entry)
            return []
        left = party == "relay" and entry["kind"] == "release" and entry["item"] == POOL
        return [entry, self.told.pop()] if left else [entry]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (twice, "relayed twice"),
        (drop("relay", kind="relay"), "left relay unrecorded"),
        (Afterwards(), "left before that was recorded"),
        (setting("relay", AT_RELAY, survivors=3), "those of 3 clients"),
        (setting("relay", AT_RELAY, survivors=4), "not those that had arrived"),
        (setting("relay", AT_RELAY, members=4), "not those that had arrived"),
        (setting("relay", AT_RELAY, cohort="ab" * 32), "not those that had arrived"),
        (setting("relay", AT_RELAY, item="mash.up.SUM"), "no such exchange"),
        (setting("relay", AT_RELAY, exchange=77), "no such exchange"),
    ],
)
def test_o23_a_batch_that_everybody_together_records_otherwise_is_found(
    honest: Toy, change: Change, says: str
) -> None:
    finds("opened", says, rewrite(honest, honest.view(reports=False), change))


def never_sent(item: str) -> Change:
    return lambda party, entry: [] if entry.get("item") == item else [entry]


def test_o23_a_pool_without_a_batch_and_a_batch_without_a_pool_are_found(honest: Toy) -> None:
    for item, says in ((BATCH, "nobody handed them over"), (POOL, "never returned")):
        view = rewrite(honest, honest.view(reports=False), never_sent(item))
        finds("opened", says, view)


def test_o23_only_a_relay_relays(honest: Toy) -> None:
    def also(party: str, entry: Entry) -> list[Entry]:
        facts = {"cohort": "ab" * 32, "exchange": 1, "item": UP, "members": 5, "survivors": 5}
        told = {**entry, **facts, "kind": "relay", "round": 1}
        told.pop("state", None), told.pop("result", None)
        return [told, entry] if party == "client-2" and entry["kind"] == "close" else [entry]

    finds("opened", "client-2, which is no relay", rewrite(honest, honest.view(), also))


def test_a_relay_that_rewrites_its_ledger_alone_is_found(honest: Toy) -> None:
    failed = verify(forge(honest, honest.view(reports=False), "relay", without)).failed
    assert failed is not None and failed.name in ("receipts", "opened"), failed


def without(entries: list[Entry]) -> list[Entry]:
    return [e for e in entries if e["kind"] != "relay"]
