"""The life of keys and the budget of noise: each false statement is found at its step."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from audits.checks.keys import _made
from audits.evidence.run_files import RunView
from audits.evidence.steps import Case
from audits.evidence.verify import verify
from audits.report.build import build_report
from protocols.errors import EvidenceError
from protocols.evidence.ledger import Entry
from protocols.policy.policy import Budget, PrivacyPolicy
from tests.audits.forging import Change, entries_of, rewrite
from tests.audits.toy_run import AUTHORITY, CLIENTS, Toy, countless, run_toy

CLIENT = CLIENTS[1]
COMMON = ("party", "prev", "run", "salt", "seq", "time")


@pytest.fixture(scope="module")
def toy() -> Toy:
    """Two rounds, each an epoch of its own."""
    return run_toy(PrivacyPolicy.preset("he").model_copy(update={"rekey_rounds": 1}))


@pytest.fixture(scope="module")
def noised() -> Toy:
    return run_toy("calibrated", algorithm=countless())


def finds(step: str, text: str, view: RunView) -> None:
    failed = verify(view).failed
    assert failed is not None, "nothing failed"
    assert failed.name == step, failed
    assert text in failed.detail, failed


def lie(toy: Toy, change: Change) -> RunView:
    return rewrite(toy, toy.view(reports=False), change)


def at(owner: str, matches: Callable[[Entry], bool], new: Callable[[Entry], list[Entry]]) -> Change:
    """Change the first entry of a party that matches."""
    done: list[bool] = []

    def change(party: str, entry: Entry) -> list[Entry]:
        if party != owner or done or not matches(entry):
            return [entry]
        done.append(True)
        return new(entry)

    return change


def kind(name: str, **facts: object) -> Callable[[Entry], bool]:
    return lambda entry: entry["kind"] == name and all(entry.get(k) == v for k, v in facts.items())


def made(toy: Toy) -> list[str]:
    entries = entries_of(toy.stores[AUTHORITY].lines)
    return [e["key"] for e in entries if e["kind"] == "key" and e["event"] == "made"]


def test_o9_an_honest_run_makes_a_key_for_each_epoch_and_destroys_it(toy: Toy) -> None:
    found = {s.name: s.detail for s in verify(toy.view()).steps}
    assert verify(toy.view()).ok, verify(toy.view()).failed
    assert found["keys"].startswith("2 keys, each made and destroyed once; 8 uploads")
    assert len(set(made(toy))) == 2


def test_o9_a_key_that_was_not_destroyed_is_found(toy: Toy) -> None:
    destroyed = kind("key", event="destroyed")
    finds("keys", "before the one before it", lie(toy, at(AUTHORITY, destroyed, lambda e: [])))
    last = kind("key", event="destroyed", key=made(toy)[1])
    finds("keys", "before its key was destroyed", lie(toy, at(AUTHORITY, last, lambda e: [])))

    def afterwards(party: str, entry: Entry) -> list[Entry]:
        if party == AUTHORITY and last(entry):
            return []
        if party == AUTHORITY and entry["kind"] == "close":
            key = {"kind": "key", "event": "destroyed", "key": made(toy)[1]}
            return [entry, {**{name: entry[name] for name in COMMON}, **key}]
        return [entry]

    finds("keys", "before its key was destroyed", lie(toy, afterwards))


def test_o9_a_ledger_that_just_stops_hides_no_key(toy: Toy) -> None:
    last = kind("key", event="destroyed", key=made(toy)[1])

    def stops(party: str, entry: Entry) -> list[Entry]:
        return [] if party == AUTHORITY and (last(entry) or entry["kind"] == "close") else [entry]

    finds("keys", "was not destroyed", lie(toy, stops))


def test_o9_a_key_destroyed_that_was_not_alive_is_found(toy: Toy) -> None:
    destroyed = kind("key", event="destroyed")
    twice = at(AUTHORITY, destroyed, lambda e: [e, dict(e)])
    finds("keys", "not alive", lie(toy, twice))
    other = at(AUTHORITY, destroyed, lambda e: [{**e, "key": "ab" * 16}])
    finds("keys", "not alive", lie(toy, other))


def test_o9_one_key_for_two_epochs_is_found(toy: Toy) -> None:
    first, second = made(toy)

    def same(party: str, entry: Entry) -> list[Entry]:
        if entry.get("key") == second:
            return [{**entry, "key": first}]
        if entry.get("key") == second[:16]:
            return [{**entry, "key": first[:16]}]
        return [entry]

    finds("keys", "made twice", lie(toy, same))


def test_o9_a_second_key_in_one_epoch_is_found(toy: Toy) -> None:
    """A policy that keeps its key for the whole run, and an authority that did not."""
    late = toy.policy.model_copy(update={"rekey_rounds": 2})
    case = Case(toy.view(reports=False))
    case.__dict__["policy"] = late
    with pytest.raises(EvidenceError, match="second key"):
        _made(case)


@pytest.mark.parametrize("facts", [{"scheme": "ckks-sealapi"}, {"key": "ab" * 16}])
def test_o9_a_key_of_another_scheme_or_name_is_found(facts: dict[str, str], toy: Toy) -> None:
    changed = at(AUTHORITY, kind("key", event="made"), lambda e: [{**e, **facts}])
    finds("keys", "", lie(toy, changed))


def test_o9_an_upload_under_another_epochs_key_is_found(toy: Toy) -> None:
    first = made(toy)[0][:16]

    def stale(party: str, entry: Entry) -> list[Entry]:
        mine = entry.get("item") == "step.up.SUM" and entry["round"] == 2
        return [{**entry, "key": first}] if mine and entry["sender"] == CLIENT else [entry]

    finds("keys", "is not under its epoch's key", lie(toy, stale))


def test_o9_a_client_that_never_took_the_key_is_found(toy: Toy) -> None:
    received = kind("key", event="received")
    finds("keys", "never took", lie(toy, at(CLIENT, received, lambda e: [])))
    other = at(CLIENT, received, lambda e: [{**e, "key": "ab" * 16}])
    finds("keys", "nobody offered", lie(toy, other))
    finds("keys", "nobody offered", lie(toy, at(CLIENT, received, lambda e: [e, dict(e)])))


def test_o9_only_the_authority_makes_keys(toy: Toy) -> None:
    received = kind("key", event="received")
    changed = at(CLIENT, received, lambda e: [{**e, "event": "made"}])
    finds("keys", "not its own", lie(toy, changed))
    changed = at(AUTHORITY, kind("key"), lambda e: [{**e, "event": "received"}])
    finds("keys", "not its own", lie(toy, changed))


def test_o9_an_opening_while_no_key_of_its_epoch_lived_is_found(toy: Toy) -> None:
    held: list[Entry] = []

    def late(party: str, entry: Entry) -> list[Entry]:
        """Move the first key's end before the first opening."""
        if party != AUTHORITY:
            return [entry]
        if entry["kind"] == "open" and not held:
            end = {"kind": "key", "event": "destroyed", "key": made(toy)[0]}
            held.append(entry)
            return [{**{name: entry[name] for name in COMMON}, **end}, entry]
        if entry["kind"] == "key" and entry["event"] == "destroyed" and len(held) == 1:
            held.append(entry)
            return []
        return [entry]

    finds("keys", "another epoch's key", lie(toy, late))


def test_a_run_without_encryption_has_no_keys() -> None:
    toy = run_toy("masks")
    key = {"kind": "key", "event": "received", "key": "ab" * 16}

    def invent(party: str, entry: Entry) -> list[Entry]:
        if party != CLIENT or entry["kind"] != "close":
            return [entry]
        return [{**{name: entry[name] for name in COMMON}, **key}, entry]

    finds("keys", "nobody offered", lie(toy, invent))


# --- budget -------------------------------------------------------------------------------------


def test_o20_every_client_reserves_before_it_draws_noise(noised: Toy) -> None:
    view = noised.view()
    assert verify(view).ok, verify(view).failed
    detail = next(s.detail for s in verify(view).steps if s.name == "budget")
    assert detail == "4 clients reserved their budget before any noise was drawn"


@pytest.mark.parametrize(
    ("facts", "text"),
    [
        ({"dataset": "other"}, "other data"),
        ({"entries": 0}, "other data"),
        ({"head": "ab"}, "no head"),
        ({"epsilon": "infinity"}, "no number"),
        ({"epsilon": "nan"}, "no number"),
        ({"epsilon": "1e999"}, "exceeded"),
        ({"epsilon": "10.0001"}, "exceeded"),
        ({"delta": "0.001"}, "exceeded"),
    ],
)
def test_o20_a_false_budget_entry_is_found(
    facts: dict[str, object], text: str, noised: Toy
) -> None:
    changed = at(CLIENT, kind("budget"), lambda e: [{**e, **facts}])
    finds("budget", text, lie(noised, changed))


def test_o20_a_missing_second_or_late_reservation_is_found(noised: Toy) -> None:
    budget = kind("budget")
    finds("budget", "0 times", lie(noised, at(CLIENT, budget, lambda e: [])))
    finds("budget", "2 times", lie(noised, at(CLIENT, budget, lambda e: [e, dict(e)])))
    held: list[Entry] = []

    def late(party: str, entry: Entry) -> list[Entry]:
        if party == CLIENT and budget(entry):
            held.append(entry)
            return []
        return [entry, held.pop()] if held and entry.get("item") == "step.up.SUM" else [entry]

    finds("budget", "before it reserved", lie(noised, late))


def test_o20_a_budget_entry_without_noise_is_found(toy: Toy) -> None:
    facts = {"dataset": "toy", "delta": "1e-05", "entries": 1, "epsilon": "8", "head": "ab" * 32}

    def invent(party: str, entry: Entry) -> list[Entry]:
        if party != CLIENT or entry["kind"] != "close":
            return [entry]
        return [{**{n: entry[n] for n in COMMON}, **facts, "kind": "budget"}, entry]

    finds("budget", "no noise is planned", lie(toy, invent))


def test_o20_the_cap_of_the_policy_counts() -> None:
    """A cap with more figures than an entry states is not exceeded by being rounded up."""
    cap = Budget(epsilon=8.123456789, delta=1e-5)
    policy = PrivacyPolicy.preset("calibrated").model_copy(update={"budget": cap})
    toy = run_toy(policy, algorithm=countless())
    up = at(CLIENT, kind("budget"), lambda e: [{**e, "epsilon": "8.12346"}])
    assert verify(lie(toy, up)).ok
    over = at(CLIENT, kind("budget"), lambda e: [{**e, "epsilon": "8.12347"}])
    finds("budget", "exceeded", lie(toy, over))


def test_o16_the_report_counts_epsilon_from_the_ledgers(noised: Toy) -> None:
    report = build_report(noised.view())
    (account,) = report.accounting
    assert account.covered == ("step.up.SUM",) and account.not_covered == ()
    assert account.epsilon == account.recorded and account.borne_out
    assert 7.5 < float(account.recorded) <= 8.0 == float(account.target)
    line = report.verdict_strip[3]
    assert line.state == "ATTENTION" and account.recorded in line.answer
    assert not any("not noised" in limit for limit in report.limits)
    assert "noised and masked sum" in noised.view().reports["report.html"].decode()


def test_o18_a_total_over_fewer_clients_than_counted_on_is_said(noised: Toy) -> None:
    """A total with fewer shares of noise than were planned costs more than was planned."""

    def fewer(party: str, entry: Entry) -> list[Entry]:
        return [{**entry, "survivors": 3}] if entry["kind"] == "open" else [entry]

    report = build_report(lie(noised, fewer))
    (account,) = report.accounting
    assert not account.borne_out and float(account.recorded) > 8
    assert report.verdict_strip[3].state == "FAIL"
    assert {f.rule: f.severity for f in report.findings}["BUDGET_EXCEEDED"] == "high"
