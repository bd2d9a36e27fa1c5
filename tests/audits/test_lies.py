"""What a client that vanished may not excuse: all forge together, and one statement is false."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from audits.checks.opened import _listed, _one_set, _votes
from audits.evidence.steps import Case
from audits.evidence.verify import verify
from protocols.errors import EvidenceError
from protocols.evidence.ledger import Entry
from protocols.policy.policy import PrivacyPolicy
from protocols.rounds import Ask, Cohort
from tests.audits.forging import Change, rewrite
from tests.audits.lies import (
    after,
    both,
    counts,
    drop,
    finds,
    matches,
    setting,
    silent,
    twice,
    untold,
)
from tests.audits.toy_run import (
    AGGREGATOR,
    AUTHORITY,
    FIVE,
    Answer,
    Bus,
    Given,
    Lose,
    Toy,
    lose,
    run_toy,
    told,
    two_sums,
)

pytestmark = pytest.mark.usefixtures("in_two_steps")

LOST, OTHER = FIVE[1], FIVE[2]
LISTS, SAID = ("survivors", "votes"), ("up.SUM", "vote", "shares")


def run(policy: str = "masks", losing: Lose | None = None, **more: object) -> Toy:
    return run_toy(policy, clients=FIVE, losing=losing, **more)


@pytest.fixture(scope="module")
def whole() -> Toy:
    return run()


@pytest.fixture(scope="module")
def gone() -> Toy:
    """A run in which client-2's upload of round 2 was lost."""
    return run(losing=lose(LOST, ".up.SUM", round=2))


UPLOAD = {"item": "step.up.SUM", "round": 2}


@pytest.mark.parametrize(
    ("change", "step", "text"),
    [
        # An upload that the aggregator denies, and counts all the same.
        (drop(AGGREGATOR, kind="receipt", sender=LOST, **UPLOAD), "receipts", "no receipt"),
        # ... and does not count, but goes on as if the client were there.
        (
            both(drop(AGGREGATOR, kind="receipt", sender=LOST, **UPLOAD), counts(4)),
            "receipts",
            "no receipt",
        ),
        # A client that denies what it answered to.
        (drop(LOST, kind="receipt", item="step.down", round=2), "receipts", "no receipt"),
        (drop(LOST, kind="receipt", item="step.survivors", round=2), "receipts", "no receipt"),
        (drop(LOST, kind="receipt", item="step.votes", round=2), "receipts", "no receipt"),
        (drop(LOST, kind="receipt", item="pair.call"), "receipts", "no receipt"),
        (drop(LOST, kind="receipt", item="pair.down"), "receipts", "no receipt"),
        (drop(AGGREGATOR, kind="receipt", item="pair.boxes", sender=LOST), "receipts", ""),
        (drop(AGGREGATOR, kind="receipt", item="pair.rows", sender=LOST), "receipts", ""),
        (drop(AGGREGATOR, kind="receipt", item="step.vote", sender=LOST), "receipts", ""),
        # Counts that do not agree with what arrived.
        (setting(OTHER, {"kind": "survivors"}, survivors=4), "opened", "counts other uploads"),
        (setting(OTHER, {"kind": "survivors"}, members=4), "opened", "counts other uploads"),
        (setting(OTHER, {"kind": "survivors"}, list="0" * 64), "opened", "others were shown"),
        (setting(OTHER, {"kind": "survivors", "round": 1}, round=2), "opened", "another cohort"),
        (setting(AGGREGATOR, {"kind": "open"}, survivors=4), "opened", "not the cohort"),
        (setting(AGGREGATOR, {"kind": "open"}, members=4), "opened", "not the cohort"),
        (setting(AGGREGATOR, {"kind": "open"}, survivors=3), "opened", "over 3 clients"),
        (counts(4), "opened", "not the cohort"),
        (silent(LOST, "step.up.SUM"), "opened", "not the cohort"),
        # Shares without a list, votes or enough of both.
        (drop(OTHER, kind="survivors", round=2), "opened", "recorded no list"),
        (setting(OTHER, {"kind": "survivors"}, exchange=9), "opened", "no such exchange"),
        (silent(LOST, "step.vote"), "opened", "did not vote"),
        (
            both(*(silent(name, "step.shares") for name in FIVE[:2])),
            "opened",
            "3 shares of one client's seed; 4 are needed",
        ),
        (untold(OTHER, "step", 2, "survivors", keep=True), "opened", "never sent to it"),
        (
            both(*(silent(name, "step.up.SUM") for name in FIVE[:2]),
                 *(untold(name, "step", 2, *LISTS) for name in FIVE[:2]),
                 *(silent(name, "step.shares", "step.vote") for name in FIVE[:2]),
                 counts(3), drop(AGGREGATOR, kind="open", round=2)),
            "opened",
            "over too few clients",
        ),
        # A client, or nobody, agreed on secrets.
        (lambda party, entry: [] if entry.get("item") == "pair.call" else [entry],
         "opened", "nobody agreed on"),
        (silent(LOST, "pair.rows", round=0), "opened", "agreed on no secrets"),
        (
            both(*(untold(name, "step", 2, "votes") for name in FIVE[:2]),
                 *(silent(name, "step.shares", "step.vote") for name in FIVE[:2])),
            "opened",
            "3 votes of one client's holders were shown; 4 are needed",
        ),
    ],
)  # fmt: skip
def test_o5_o7_a_lie_about_who_was_there_is_found(
    change: Change, step: str, text: str, whole: Toy
) -> None:
    finds(step, text, rewrite(whole, whole.view(reports=False), change))


def test_a_rewriting_without_a_lie_passes(gone: Toy) -> None:
    assert verify(rewrite(gone, gone.view(reports=False), lambda party, entry: [entry])).ok


def test_o5_an_upload_that_was_lost_is_not_counted(gone: Toy) -> None:
    view = gone.view(reports=False)
    finds("receipts", "no receipt", rewrite(gone, view, counts(5)))
    finds("receipts", "no receipt", rewrite(gone, view, counts(3)))
    one = setting(AGGREGATOR, {"kind": "open", "round": 2}, survivors=5)
    finds("receipts", "no receipt", rewrite(gone, view, one))


def test_o5_a_client_that_answered_had_been_asked(gone: Toy) -> None:
    denied = drop(LOST, kind="receipt", item="step.down", round=2)
    finds("receipts", "no receipt", rewrite(gone, gone.view(reports=False), denied))


def test_o9_a_client_that_encrypted_had_the_key() -> None:
    toy = run("he")
    denied = drop(LOST, kind="receipt", item="key.offer")
    finds("receipts", "no receipt", rewrite(toy, toy.view(reports=False), denied))


def test_a_client_whose_refusal_was_lost_sends_nothing_more() -> None:
    bus = Bus(PrivacyPolicy.preset("masks"), 2, FIVE)
    silent_now = (lose(LOST, ".shares", round=1), lose(LOST, "refusal.client", round=2))
    bus.lose = lambda header, to: any(lost(header, to) for lost in silent_now)
    given = Given(weights=np.zeros(8, np.float32))
    bus.deliver(bus.aggregator.start())
    for number in (1, 2):
        bus.ask(Ask(Cohort(FIVE), given=given, back=Answer), number)
        bus.others[LOST]._site = float("nan")  # from now on it refuses
    toy = bus.finish()
    view = toy.view(reports=False)
    assert verify(view).ok, verify(view).failed
    shares = {"kind": "release", "item": "step.shares", "round": 1}
    refusal = {"kind": "release", "item": "refusal.client"}
    finds("receipts", "no receipt", rewrite(toy, view, after(LOST, shares, refusal)))


def test_o5_who_vanished_is_asked_nothing_more_in_the_round() -> None:
    toy = run(algorithm=two_sums())
    hidden = both(
        drop(LOST, kind="receipt", item="step.down", round=1),
        silent(LOST, *(f"step.{kind}" for kind in SAID), round=1),
        untold(LOST, "step", 1, *LISTS),
        counts(4, exchange=1),
    )
    finds("receipts", "no receipt", rewrite(toy, toy.view(reports=False), hidden))


def test_an_upload_that_came_too_late_counts_as_lost(whole: Toy) -> None:
    """The receipt stands behind the survivor lists: then nobody may have counted the upload."""
    held: list[Entry] = []

    def late(party: str, entry: Entry) -> list[Entry]:
        if party != AGGREGATOR or entry.get("round") != 2:
            return [entry]
        if entry["kind"] == "receipt" and matches(entry, sender=LOST, **UPLOAD):
            held.append(entry)
            return []
        if entry["kind"] == "receipt" and entry["item"] == "step.vote" and held:
            return [held.pop(), entry]
        return [entry]

    view = whole.view(reports=False)
    finds("opened", "not the cohort", rewrite(whole, view, late))
    finds("opened", "who had vanished", rewrite(whole, view, both(counts(4), late)))


def test_o7_shares_before_votes_and_a_list_recorded_before_it_came_are_found(whole: Toy) -> None:
    view = whole.view(reports=False)
    votes = {"kind": "receipt", "item": "step.votes", "round": 2}
    shares = {"kind": "release", "item": "step.shares", "round": 2}
    finds("opened", "before it saw the votes", rewrite(whole, view, after(OTHER, votes, shares)))
    came = {"kind": "receipt", "item": "step.survivors", "round": 2}
    noted = {"kind": "survivors", "round": 2}
    finds("opened", "before it came", rewrite(whole, view, after(OTHER, came, noted)))


def test_o7_votes_and_shares_that_came_too_late_do_not_count(whole: Toy) -> None:
    view = whole.view(reports=False)
    vote = {"kind": "receipt", "item": "step.vote", "sender": FIVE[0], "round": 2}
    shown = {"kind": "release", "item": "step.votes", "recipient": FIVE[-1], "round": 2}
    late = after(AGGREGATOR, vote, shown)
    finds("opened", "did not vote before", rewrite(whole, view, late))
    held: list[Entry] = []

    def shares_late(party: str, entry: Entry) -> list[Entry]:
        here = party == AGGREGATOR and entry.get("round") == 2
        if here and entry.get("item") == "step.shares" and entry["sender"] in FIVE[:2]:
            held.append(entry)
            return []
        return [entry, *held] if here and entry["kind"] == "open" else [entry]

    finds("opened", "3 shares of one", rewrite(whole, view, shares_late))


@pytest.mark.parametrize("policy", ["he", "masks", "unsafe_plaintext"])
def test_a_run_that_broke_off_excuses_nothing_of_what_was_complete(policy: str) -> None:
    bus = Bus(PrivacyPolicy.preset(policy), 2, FIVE)
    bus.play(1)
    toy = bus.finish(whole=False)
    view = toy.view(reports=False)
    assert verify(view).ok
    denied = drop(LOST, kind="receipt", item="step.down", round=1)
    finds("receipts", "no receipt", rewrite(toy, view, denied))


def test_o9_a_run_that_broke_off_between_epochs_excuses_only_the_keys() -> None:
    often = PrivacyPolicy.preset("masks").model_copy(update={"rekey_rounds": 1})
    bus = Bus(often, 2, FIVE)
    bus.play(1)
    calls = bus.aggregator.prepare(2)
    for call in calls[:1]:
        bus.others[call.to].receive(call.data)
    toy = bus.finish(whole=False)
    view = toy.view(reports=False)
    assert verify(view).ok, verify(view).failed
    assert "ended early: 5 envelopes" in next(
        s.detail for s in verify(view).steps if s.name == "receipts"
    )
    denied = drop(LOST, kind="receipt", item="step.down", round=1)
    finds("receipts", "no receipt", rewrite(toy, view, denied))


def test_two_exchanges_in_one_exchange_are_found() -> None:
    toy = run(algorithm=two_sums())

    def mixed(party: str, entry: Entry) -> list[Entry]:
        if entry.get("sender") != OTHER or entry.get("round") != 1:
            return [entry]
        if entry.get("item") == "step.shares":
            return []
        moved = {**entry, "item": "step.shares", "bytes": entry["bytes"] - 1}
        return [moved] if entry.get("item") == "again.shares" else [entry]

    finds("opened", "more than one Ask", rewrite(toy, toy.view(reports=False), mixed))


def test_an_opening_of_an_exchange_that_brought_no_sum_is_found() -> None:
    toy = run(algorithm=told())
    assert verify(toy.view()).ok, verify(toy.view()).failed

    def moved(party: str, entry: Entry) -> list[Entry]:
        if party != AGGREGATOR or not matches(entry, kind="open", round=2):
            return [entry]
        return [entry, {**entry, "exchange": 4}]

    finds("opened", "nothing in it can be", rewrite(toy, toy.view(reports=False), moved))


class Sparse:
    """A graph in which everybody holds only its own shares, and which any list cuts in two."""

    least, window = 4, 1

    def holders(self, name: str) -> tuple[str, ...]:
        return (name,)

    def thinnest(self, survivors: tuple[str, ...]) -> int:
        return 0


def test_o7_who_holds_no_share_gets_no_list_and_a_list_may_not_cut_the_graph() -> None:
    """Both matter only where the graph of pairs is not complete; here the graph is made up."""
    bus = Bus(PrivacyPolicy.preset("masks"), 2, FIVE)
    bus.deliver(bus.aggregator.start())
    given = Given(weights=np.zeros(8, np.float32))
    bus.ask(Ask(Cohort(FIVE[:4]), given=given, back=Answer), 1)
    case = Case(bus.finish(whole=False).view(reports=False))
    ask = case.exchanges.all[1]
    assert set(ask.listed) == set(FIVE)  # outside the cohort too
    with pytest.raises(EvidenceError, match="holds no share"):
        _listed(case, ask, Sparse())
    with pytest.raises(EvidenceError, match="cut in two"):
        _votes(case, ask, Sparse())
    short = replace(ask, arrived=frozenset(FIVE[:3]))
    with pytest.raises(EvidenceError, match="beside the corrupt"):
        _votes(case, short, Sparse())


def test_o5_who_vanished_from_one_sum_of_a_round_is_in_no_other(whole: Toy) -> None:
    ask = Case(whole.view(reports=False)).exchanges.all[1]
    first = replace(ask, arrived=frozenset(FIVE[:2]))
    second = replace(ask, arrived=frozenset(FIVE[2:]))
    _one_set(first, [(first, first.arrived)])
    with pytest.raises(EvidenceError, match="came back"):
        _one_set(second, [(first, first.arrived)])
    apart = replace(second, members=frozenset(FIVE[2:]))
    _one_set(apart, [(replace(first, members=frozenset(FIVE[:2])), first.arrived)])


@pytest.mark.parametrize(("owner", "kind"), [(AGGREGATOR, "open"), (OTHER, "survivors")])
def test_o5_a_second_opening_or_list_is_found(owner: str, kind: str, whole: Toy) -> None:
    changed = rewrite(whole, whole.view(reports=False), twice(owner, kind))
    finds("opened", "twice", changed)


def test_o5_an_opening_that_was_recorded_late_or_never_is_found(whole: Toy) -> None:
    held: list[Entry] = []

    def late(party: str, entry: Entry) -> list[Entry]:
        if entry["kind"] == "open" and entry["round"] == 1:
            held.append(entry)
            return []
        if party == AGGREGATOR and entry["kind"] == "open":
            return [held.pop(), entry]
        return [entry]

    view = whole.view(reports=False)
    finds("opened", "after the run went on", rewrite(whole, view, late))
    # Unrecorded, it looks like a skipped round; but the run does not say that one was.
    never = rewrite(whole, view, drop(AGGREGATOR, kind="open", round=1))
    finds("result", "round 1 was skipped", never)


def test_o1_with_a_key_authority_only_the_authority_opens() -> None:
    toy = run("he")
    moved: list[Entry] = []

    def at_aggregator(party: str, entry: Entry) -> list[Entry]:
        if entry["kind"] == "open" and party == AUTHORITY:
            moved.append(entry)
            return []
        own = party == AGGREGATOR and matches(entry, kind="receipt", item="step.opened")
        return [{**moved.pop(0), "party": AGGREGATOR}, entry] if own else [entry]

    changed = rewrite(toy, toy.view(reports=False), at_aggregator)
    finds("opened", "the plan lets key_authority open", changed)


@pytest.mark.parametrize("policy", ["masks", "unsafe_plaintext"])
def test_o1_nobody_else_opens(policy: str) -> None:
    toy = run(policy)
    opened = {"exchange": 1, "round": 1, "members": 5, "survivors": 5, "kind": "open"}

    def open_too(party: str, entry: Entry) -> list[Entry]:
        if party != (OTHER if policy == "masks" else AGGREGATOR) or entry["kind"] != "close":
            return [entry]
        common = {n: entry[n] for n in ("party", "prev", "run", "salt", "seq", "time")}
        return [{**common, **opened, "cohort": "ab" * 32}, entry]

    who = "aggregator" if policy == "masks" else "nobody"
    changed = rewrite(toy, toy.view(reports=False), open_too)
    finds("opened", f"the plan lets {who} open", changed)


def test_o5_two_sets_of_survivors_in_one_round_are_found() -> None:
    """Each exchange on its own is in order; together they tell on client-2."""
    toy = run(losing=lose(LOST, "again.up.SUM", round=2), algorithm=two_sums())
    whole = run(algorithm=two_sums())
    hidden = both(
        silent(LOST, *(f"again.{kind}" for kind in SAID)),
        untold(LOST, "again", 4, *LISTS),
        counts(4, exchange=4),
    )
    assert toy.lost == [2]  # honest sessions skip the round
    finds("opened", "overlapping", rewrite(whole, whole.view(reports=False), hidden))


def test_an_envelope_between_aggregator_and_authority_is_never_explained() -> None:
    toy = run("he")
    for owner, item in ((AUTHORITY, "step.open"), (AGGREGATOR, "step.opened")):
        changed = rewrite(toy, toy.view(reports=False), drop(owner, kind="receipt", item=item))
        finds("receipts", "no receipt", changed)
    offer = drop(AGGREGATOR, kind="receipt", item="key.offer")
    finds("receipts", "no receipt", rewrite(toy, toy.view(reports=False), offer))


def test_a_run_that_states_its_result_was_not_cut_short(whole: Toy) -> None:
    """Without a result, the last opening may be missing; with one, it may not."""
    view = whole.view(reports=False)
    last = drop(AGGREGATOR, kind="open", round=2)
    finds("result", "round 2 was skipped", rewrite(whole, view, last))
