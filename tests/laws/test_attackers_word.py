"""Law: no verdict rests on what the attacker alone recorded.

The aggregator of most attacks writes a ledger of its own. It can leave out that it opened a total,
that shares or uploads came, or whom it asked. So can the key authority, which may work with it.
None of that may turn a verdict into an answer.

Trials: facts, on five clients. Chance is in the prime of an elimination alone, and is pinned.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from audits.attacks import AttackRow, Material, _hidden, _proved, chosen, counts, structure
from audits.attacks._methods.openings import Opened, opened_sums
from audits.attacks._shared.rows import AttackRows
from audits.attacks.structure import ALL_ROUNDS, COHORT, ONE_ROUND, SINGLETONS
from audits.evidence.openable import may_be_opened
from audits.evidence.steps import Case
from audits.evidence.verify import verify
from audits.formats import render
from audits.report.build import build_report
from protocols.disclosures.names import Disclosure
from protocols.evidence.captures import Capture
from protocols.plan.steps import Step
from protocols.policy.policy import PrivacyPolicy
from protocols.rounds import Ask, Cohort
from protocols.wire.inbox import Incoming
from tests.audits.attacks.made_up import attack_only
from tests.audits.toy_run import (
    AGGREGATOR,
    AUTHORITY,
    FIVE,
    Answer,
    Bus,
    Toy,
    lose,
    maskless,
    run_toy,
)  # fmt: skip

SEVEN = (*FIVE, "client-6", "client-7")
COUNTS = f"{counts.STAYING}: Answer"
ANSWERS = ("PASS", "NOT_APPLICABLE")
Verdicts = dict[tuple[str, str], str]


def verdicts(case: Case) -> Verdicts:
    rows = attack_only(Material(case), ["A09", "A16"]).rows
    return {(row.id, row.what): row.verdict for row in rows}


def row(verdict: str, payload: str) -> AttackRow:
    (a05,) = chosen(["A05"])
    blank = AttackRows(a05, "quick", "00" * 32).cut("why")[0][0]
    return blank.model_copy(update={"verdict": verdict, "payload": payload})


_HIDDEN_ITEMS = ("shares", "step.open", "step.opened")


def _forgetful(session: Any) -> None:
    """Let a session record nothing of the opening of round 1."""
    record = session.ledger.record

    def left_out(kind: str, facts: Mapping[str, Any]) -> None:
        hidden = str(facts.get("item", "")).endswith(_HIDDEN_ITEMS) and kind != "plan"
        if facts.get("round") != 1 or not (hidden or kind == "open"):
            record(kind, facts)

    setattr(session.ledger, "record", left_out)  # noqa: B010


class LyingBus(Bus):
    """An aggregator that opens round 1 for itself and records neither shares nor opening.

    Where sums are encrypted the key authority, which opens them for it, records nothing either.

    To the others the round was lost, and in the next one client-2 is away.
    """

    def __init__(self, policy: str | PrivacyPolicy = "masks") -> None:
        chosen = PrivacyPolicy.preset(policy) if isinstance(policy, str) else policy
        super().__init__(chosen, 2, FIVE, site=lambda name: int(name[-1]) / 8)
        self.read: list[Answer] = []
        heads = self.aggregator.heads
        hear = heads.hear

        def not_heard(incoming: Incoming) -> None:
            if incoming.header.round != 1 or not incoming.header.item.endswith(_HIDDEN_ITEMS):
                hear(incoming)

        setattr(heads, "hear", not_heard)  # noqa: B010  # of this session alone
        authority = [s for name, s in self.others.items() if name == AUTHORITY]
        for session in (self.aggregator, *authority):
            _forgetful(session)

    def play(self, rounds: int) -> None:
        state = self.algorithm.init(np.random.default_rng(0))
        self.deliver(self.aggregator.start())
        for number in (1, 2):
            ask: Ask = next(self.form.round(state, Cohort(self.toy.plan.clients)))
            self.read.append(self.ask(ask, number).total(Answer))
            self.lose = lose("client-2", "up.SUM")
        self.toy.lost.append(1)


@pytest.fixture(scope="module", params=["masks", "he", "pilot"])
def lie(request: pytest.FixtureRequest) -> tuple[LyingBus, Toy]:
    bus = LyingBus(request.param)
    bus.play(2)
    return bus, bus.finish()


def believed(case: Case) -> list[Opened]:
    """The rule of before: a total was opened where its opener's own ledger says so."""
    item = next(i for i in case.plan.all_of(Disclosure.SUM, Step.UP))
    asks = [ask for ask in case.exchanges.all.values() if ask.opens]
    return [Opened("P05", m, ask.round, ask.arrived) for ask in asks for m in item.messages]


def test_the_attack_an_aggregator_that_hides_an_opening_reads_one_client(
    lie: tuple[LyingBus, Toy],
) -> None:
    bus, toy = lie
    first, second = bus.read
    assert first.count - second.count == 3  # records of client-2, exactly
    assert np.allclose(first.delta - second.delta, 2 / 8, atol=1e-3)
    assert verify(toy.view()).ok  # and nothing in the run contradicts it


def test_a_total_that_may_have_been_opened_is_attacked(lie: tuple[LyingBus, Toy]) -> None:
    view = lie[1].view(reports=False)
    assert {(s.round, s.clients) for s in opened_sums(Case(view))} == {
        (1, frozenset(FIVE)),
        (2, frozenset(FIVE) - {"client-2"}),
    }
    found = verdicts(Case(view))
    assert found["A09", ALL_ROUNDS] == found["A16", COUNTS] == "FAIL"


def test_control_whoever_believes_the_aggregator_passes_it(
    lie: tuple[LyingBus, Toy], monkeypatch: pytest.MonkeyPatch
) -> None:
    for attack in (structure, counts):
        monkeypatch.setattr(attack, "opened_sums", believed)
    found = verdicts(Case(lie[1].view(reports=False)))
    assert found["A09", ALL_ROUNDS] == found["A16", COUNTS] == "PASS"


def test_a_report_says_that_more_may_have_been_opened(lie: tuple[LyingBus, Toy]) -> None:
    report = build_report(lie[1].view(reports=False))
    (lost,) = report.dropouts.lost
    assert lost.may_be_opened
    page, text = (render(report, [kind]).popitem()[1].decode() for kind in ("html", "md"))
    assert "may have been opened" in page and "may have been opened" in text
    assert "was not opened" not in page
    honest = run_toy(lie[1].policy, clients=FIVE, losing=lose("client-2", "up.SUM", round=2))
    assert build_report(honest.view()).dropouts.openable == ()


def test_shares_of_colluders_count_though_nobody_recorded_them() -> None:
    """One share short of the threshold: enough where one client may collude, and else not."""
    policy = PrivacyPolicy.preset("masks")
    for colluders in (0, 1):
        chosen = policy.model_copy(update={"colluders": colluders})
        toy = run_toy(chosen, clients=SEVEN, rounds=1)
        case = Case(toy.view(reports=False))
        (ask,) = (ask for ask in case.exchanges.all.values() if ask.summed)
        group = case.exchanges.group(1, ask.members)
        assert group is not None
        short = dict(list(ask.served.items())[: group.threshold - 1])
        assert len(may_be_opened(case, replace(ask, served=short, opens=()))) == colluders


def test_whose_uploads_are_in_a_total_the_holders_list_says() -> None:
    """An aggregator says that client-3's upload was lost, where client-2's was."""
    toy = run_toy("masks", clients=FIVE, rounds=1, losing=lose("client-2", "up.SUM"))
    case = Case(toy.view(reports=False))
    (ask,) = (ask for ask in case.exchanges.all.values() if ask.summed)
    lied = replace(ask, arrived=frozenset(FIVE) - {"client-3"})
    (found,) = may_be_opened(case, lied)
    assert found == frozenset(FIVE) - {"client-2"} != lied.arrived  # the last one is the control


def test_what_was_read_and_not_kept_makes_no_pass() -> None:
    """A captured round that an aggregator may have opened, and says that it never did."""
    kept = {"capture": Capture(rounds="all")}
    policy = PrivacyPolicy.preset("masks").model_copy(update=kept)
    bus = LyingBus(policy)
    bus.play(2)
    material = Material(Case(bus.finish().view(reports=False)))
    assert "in exchange 1," in _hidden(material)["P05"]
    rows = [row("PASS", "P05"), row("FAIL", "P05"), row("PASS", "P19"), row("NOT_APPLICABLE", "")]
    entries = {"id": "A09", "what": f"{SINGLETONS} (1 of 2 totals)"}
    rows += [rows[0].model_copy(update=entries), rows[0].model_copy(update={"id": "A09"})]
    (a05,) = chosen(["A05"])
    made = AttackRows(a05, "quick", "00" * 32)
    after = [_proved(made, one, _hidden(material)).verdict for one in rows]
    assert after == ["NOT_TESTED", "FAIL", "PASS", "NOT_TESTED", "NOT_TESTED", "PASS"]
    honest = Material(Case(run_toy(policy, clients=FIVE).view(reports=False)))
    assert [_proved(made, one, _hidden(honest)) for one in rows] == rows  # the control


# --- the law ------------------------------------------------------------------------------------

RUNS: dict[str, Callable[[], Toy]] = {
    "masks": lambda: run_toy("masks", clients=FIVE),
    "masks, one away": lambda: run_toy(
        "masks", clients=FIVE, losing=lose("client-2", "up.SUM", round=2)
    ),
    "strict, one away": lambda: run_toy(
        "strict", clients=FIVE, losing=lose("client-2", "up.SUM", round=2)
    ),
    "he, one away": lambda: run_toy("he", clients=FIVE, losing=lose("client-2", "up.SUM", round=2)),
    "no masks, one away": lambda: run_toy(
        maskless(), clients=FIVE, losing=lose("client-2", "up.SUM", round=2)
    ),
    "in clear": lambda: run_toy("unsafe_plaintext", clients=FIVE),
}
MASKED = dict.fromkeys(RUNS, True) | {"no masks, one away": False}
"""Without masks a key authority that works with the aggregator opens whatever it likes."""
LIES: dict[str, Callable[[dict[str, Any]], dict[str, Any] | None]] = {
    "no openings": lambda e: None if e["kind"] == "open" else e,
    "no shares": lambda e: None if str(e.get("item", "")).endswith("shares") else e,
    "no receipts": lambda e: None if e["kind"] == "receipt" else e,
    "no requests": lambda e: None if e["kind"] == "release" else e,
    "nothing": lambda e: None,
    "fewer clients": lambda e: {**e, "survivors": 3} if e["kind"] == "open" else e,
    "another round": lambda e: {**e, "round": 1} if "round" in e else e,
    "without shares of round 1": lambda e: (
        None if e.get("round") == 1 and str(e.get("item", "")).endswith("shares") else e
    ),
    "nothing of round 1": lambda e: None if e.get("round") == 1 else e,
    "without client-2": lambda e: None if "client-2" in e.values() else e,
}


def told(
    toy: Toy,
    lie: Callable[[dict[str, Any]], dict[str, Any] | None],
    liars: Sequence[str] = (AGGREGATOR,),
) -> Case:
    """Return a finished run whose aggregator says something else; its chain is made to fit."""
    case = Case(toy.view(reports=False))
    index = case.ledger_index
    for liar in set(liars) & set(index.entries):
        said = [lie(dict(entry)) for entry in index.entries[liar]]
        index.entries[liar] = [entry for entry in said if entry is not None]
    return case


def better(before: Verdicts, after: Verdicts) -> list[tuple[str, str]]:
    """Return the rows that became an answer, or vanished without an ERROR of their attack."""
    broken = {id for (id, _), verdict in after.items() if verdict == "ERROR"}
    return [
        key
        for key, verdict in before.items()
        if verdict not in (*ANSWERS, "NOT_TESTED")
        and key[0] not in broken
        and after.get(key, "PASS") != verdict
    ]


@pytest.mark.parametrize("run", RUNS)
def test_no_verdict_becomes_better_by_what_the_attacker_leaves_out(run: str) -> None:
    toy = RUNS[run]()
    before = verdicts(told(toy, lambda entry: entry))
    assert {k[0] for k in before} == {"A09", "A16"}
    liars = [(AGGREGATOR,), (AUTHORITY,), (AGGREGATOR, AUTHORITY)]
    for what, lying in LIES.items():
        for who in liars[: None if MASKED[run] and AUTHORITY in toy.stores else 1]:
            assert not better(before, verdicts(told(toy, lying, who))), (what, who)


def test_the_law_can_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    for attack in (structure, counts):
        monkeypatch.setattr(attack, "opened_sums", believed)
    toy = RUNS["masks, one away"]()
    before = verdicts(told(toy, lambda entry: entry))
    assert ("A09", ALL_ROUNDS) in better(before, verdicts(told(toy, LIES["nothing of round 1"])))
    assert before["A09", ONE_ROUND] == before["A09", COHORT] == "PASS"
