"""Totals that one client reads: ledgers say who read them, and lies about it are found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import pytest

from audits.evidence.verify import verify
from protocols.forms import Algorithm, Exchange, Form
from protocols.messages import Receiver, SumMessage, Vector, real
from protocols.rounds import Ask, Cohort, Round, Sealed
from tests.audits.forging import Change, entries_of, rewrite
from tests.audits.lies import both, finds, setting
from tests.audits.toy_run import AGGREGATOR, FIVE, Given, Toy, _algorithm, lose, run_toy


class Said(SumMessage):
    receiver: ClassVar[Receiver] = "client"
    move: Vector = real("d", unit="weight", meaning="a toy answer")


def _say(site: float, given: Given) -> Said:
    return Said(move=np.full(8, site))


def _take(site: float, given: Said) -> None:
    return None


def _round(state: Given, cohort: Cohort) -> Round[Given]:
    tokens = []
    for _ in range(2):
        reply = yield Ask(cohort, given=state, back=Said)
        tokens.append(reply.handed(Said))
    yield Ask(cohort, given=Sealed.joined(tokens))
    return state


def _once(state: Given, cohort: Cohort) -> Round[Given]:
    reply = yield Ask(cohort, given=state, back=Said)
    yield Ask(cohort, given=reply.handed(Said))
    return state


def reading() -> Algorithm[Given]:
    """Return a toy of whose totals, two a round, one client each reads."""
    exchanges = (Exchange("say", (Given,), (Said,), _say), Exchange("take", (Said,), (), _take))
    made: Any = _algorithm(_round, {})
    form: Form[Given] = Form("read", _round, exchanges)
    return Algorithm("toy", "none", made.init, made.model, (form,), made.dims)


def reading_once() -> Algorithm[Given]:
    """Return a toy of whose totals each client reads one in the run, and each round has one."""
    say = Exchange("say", (Given,), (Said,), _say, per_round=0, outside=1)
    made: Any = _algorithm(_once, {})
    form: Form[Given] = Form("read", _once, (say, Exchange("take", (Said,), (), _take)))
    return Algorithm("toy", "none", made.init, made.model, (form,), made.dims)


@pytest.fixture(scope="module")
def whole() -> Toy:
    return run_toy("masks", clients=FIVE, algorithm=reading())


def test_o11_ledgers_say_who_read_each_total(whole: Toy) -> None:
    view = whole.view()
    assert verify(view).ok, verify(view).failed
    told = [e for e in entries_of(view.ledgers[AGGREGATOR]) if e["kind"] == "open"]
    assert [e["reader"] for e in told] == [FIVE[0], FIVE[1]] * 2
    for name in FIVE:  # the reader holds shares too
        lists = [e for e in entries_of(view.ledgers[name]) if e["kind"] == "survivors"]
        assert [e["reader"] for e in lists] == [FIVE[0], FIVE[1]] * 2


def test_o11_turns_of_a_run_go_on_in_its_next_round() -> None:
    """Control: ledgers that let the first client read in each round do not pass."""
    toy = run_toy("masks", clients=FIVE, algorithm=reading_once())
    view = toy.view()
    assert verify(view).ok, verify(view).failed
    told = [e for e in entries_of(view.ledgers[AGGREGATOR]) if e["kind"] == "open"]
    assert [e["reader"] for e in told] == [FIVE[0], FIVE[1]]
    again = (setting("", {"kind": k, "round": 2}, reader=FIVE[0]) for k in ("open", "survivors"))
    finds("opened", "another reader", rewrite(toy, view, both(*again)))


LIES: dict[str, Change] = {
    "the aggregator": setting(AGGREGATOR, {"kind": "open", "exchange": 1}, reader=FIVE[3]),
    "one client": setting(FIVE[2], {"kind": "survivors", "exchange": 1}, reader=FIVE[3]),
    "everybody": both(
        setting("", {"kind": "open", "exchange": 1}, reader=FIVE[3]),
        setting("", {"kind": "survivors", "exchange": 1}, reader=FIVE[3]),
    ),
}


@pytest.mark.parametrize("who", LIES)
def test_o11_another_reader_in_a_ledger_is_found(whole: Toy, who: str) -> None:
    finds("opened", "another reader", rewrite(whole, whole.view(), LIES[who]))


def test_o11_an_entry_that_names_no_reader_is_found(whole: Toy) -> None:
    def change(party: str, entry: dict[str, Any]) -> list[dict[str, Any]]:
        return [{name: value for name, value in entry.items() if name != "reader"}]

    finds("opened", "another reader", rewrite(whole, whole.view(), change))


@pytest.mark.parametrize("policy", ["masks", "he"])
def test_o5_a_run_whose_reader_vanished_verifies_and_nothing_was_opened(policy: str) -> None:
    losing = lose(FIVE[0], "say.up.SUM", round=1)
    toy = run_toy(policy, clients=FIVE, algorithm=reading(), losing=losing, rounds=1)
    view = toy.view()
    assert verify(view).ok, verify(view).failed
    assert toy.lost == [1]
    opener = AGGREGATOR if policy == "masks" else "key-authority"
    assert not [e for e in entries_of(view.ledgers[opener]) if e["kind"] == "open"]


def test_o11_a_run_that_opened_a_total_without_its_reader_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All parties broke the rule together: their own ledgers show it."""
    never: Callable[..., bool] = lambda *_: False  # noqa: E731
    monkeypatch.setattr("protocols.disclosures.sum.parties.missing", never)
    monkeypatch.setattr("protocols.disclosures.sum.view.missing", never)
    losing = lose(FIVE[0], "say.up.SUM", round=1)
    toy = run_toy("masks", clients=FIVE, algorithm=reading(), losing=losing, rounds=1)
    finds("opened", "lacks the client that reads", toy.view(reports=False))
