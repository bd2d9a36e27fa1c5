"""Ledgers show that everybody gave all its neighbours one model a round, and on whom sums rest."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from audits.evidence.run_files import RunView
from audits.evidence.verify import verify
from audits.formats import FORMATS, render
from audits.report.build import build_report
from protocols.disclosures.neighbour_sum import disclosure as protect
from protocols.evidence.ledger import Entry
from protocols.neighbourhoods import Topology
from protocols.policy.policy import PrivacyPolicy
from tests.audits.forging import Change, edit_last, forge, rewrite
from tests.audits.lies import drop, finds, matches, setting
from tests.audits.toy_run import Toy, lose, run_toy
from tests.protocols.toys import changed_policy
from tests.toys.neighbours import neighbours

SIX = tuple(f"client-{n}" for n in range(1, 7))
OTHER = "ab" * 32


def site(name: str) -> SimpleNamespace:
    number = int(name.rpartition("-")[2])
    vector = np.random.default_rng(number).normal(0, 0.3, 8)
    return SimpleNamespace(data=SimpleNamespace(vector=vector, got=[]))


def run(
    policy: PrivacyPolicy | str = "masks", topology: Topology | None = None, **facts: Any
) -> Toy:
    algorithm = neighbours(d=8, topology=topology or Topology("regular", 4))
    places: Any = site
    return run_toy(policy, rounds=2, clients=SIX, site=places, algorithm=algorithm, **facts)


@pytest.fixture(scope="module")
def made() -> Toy:
    return run()


def detail(view: RunView) -> str:
    return next(step.detail for step in verify(view).steps if step.name == "opened")


def test_a_run_verifies_and_says_how_many_sums_there_were(made: Toy) -> None:
    view = made.view()
    assert verify(view).ok, verify(view).failed
    assert "12 sums over neighbours, of one model of each" in detail(view)
    report = build_report(view)
    assert "THIN_NEIGHBOURHOODS" not in {f.rule for f in report.findings}
    text = render(report, FORMATS)["report.md"].decode()
    assert "the weighted sum over its own neighbours" in text
    assert "rests, however they combine it" in text


def test_sums_that_lacked_somebody_are_counted_and_the_run_verifies() -> None:
    view = run(losing=lose("client-2", "give.up.NEIGHBOUR_SUM", round=2)).view()
    assert verify(view).ok, verify(view).failed
    assert "; 7 sums over neighbours" in detail(view)
    assert "4 not opened, as a neighbour was away" in detail(view)


def test_a_neighbour_that_gives_two_receivers_two_models_is_noticed() -> None:
    close = protect.close_box

    def two_faced(content: bytes, me: Any, to: Any, info: bytes) -> bytes:
        if (me.party.name, to.name) == ("client-2", "client-3"):
            content = bytes.fromhex(OTHER) + content[32:]
        return close(content, me, to, info)

    with patch.object(protect, "close_box", two_faced):
        view = run().view(reports=False)
    finds("opened", "of client-3 got another model of client-2 than client-2 states", view)


def test_what_is_not_noticed_a_digest_that_is_of_no_model() -> None:
    """A wrong model behind one digest passes, as LIMITATIONS says."""
    with patch.object(protect, "commitment", lambda *_: bytes.fromhex(OTHER)):
        assert verify(run().view()).ok


def again(owner: str, **facts: object) -> Change:
    """Let an entry of a party stand twice."""
    return lambda party, entry: [entry] * (1 + (party == owner and matches(entry, **facts)))


def fewer(party: str, entry: Entry) -> list[Entry]:
    """Let client-3 say that it opened a sum of three of its four neighbours."""
    if (party, entry["kind"]) == ("client-3", "neighbourhood"):
        return [{**entry, "commitments": entry["commitments"][:3]}]
    return [entry]


OFFERED = {"kind": "offered", "exchange": 1}


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (again("client-2", **OFFERED), "client-2 offers a second model in one round"),
        (again("client-3", kind="neighbourhood", round=1), "client-3 mixes twice in a round"),
        (setting("client-2", OFFERED, commitment=OTHER), "another model of client-2"),
        (drop("client-2", **OFFERED), "client-2"),
        (fewer, "client-3 opened other than a whole neighbourhood"),
        (
            setting("client-3", {"kind": "neighbourhood"}, absent=["client-6"]),
            "client-3 opened other than a whole neighbourhood",
        ),
        (drop("client-2", kind="offered"), "client-2"),
    ],
)
def test_what_ledgers_say_of_models_is_held_together(made: Toy, change: Change, text: str) -> None:
    finds("opened", text, rewrite(made, made.view(), change))


def test_cosigned_heads_keep_a_sender_from_stating_another_model_later(made: Toy) -> None:
    """Alone it cannot: others hold what its head was."""
    view = forge(made, made.view(), "client-2", edit_last("offered", commitment=OTHER))
    failed = verify(view).failed
    assert failed is not None and failed.name in ("receipts", "witnesses")


def test_a_ring_is_called_unsafe_everywhere() -> None:
    unsafe = changed_policy("masks", topology_floor="unsafe")
    toy = run(unsafe, Topology("ring"))
    view = toy.view()
    assert verify(view).ok and "the topology is UNSAFE" in detail(view)
    assert any("UNSAFE" in text for text in toy.plan.warnings)
    report = build_report(view)
    (finding,) = [f for f in report.findings if f.rule == "THIN_NEIGHBOURHOODS"]
    assert finding.severity == "critical" and "alone" in finding.message
    assert any("topology_floor: unsafe" in limit for limit in report.limits)


def test_a_run_without_neighbours_has_no_such_entries() -> None:
    toy = run_toy("masks", rounds=1)

    def told(party: str, entry: Entry) -> list[Entry]:
        common = ("party", "run", "salt", "time", "prev", "seq")
        kept = {name: entry[name] for name in common if name in entry}
        more = {"kind": "offered", "commitment": OTHER, "exchange": 1, "round": 1}
        first = matches(entry, kind="heads", round=1) and party == "client-1"
        return [entry, {**kept, **more}] if first else [entry]

    finds("opened", "is of neighbours, and the plan has none", rewrite(toy, toy.view(), told))
