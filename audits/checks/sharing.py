"""Taking masks off one sum: who was told who vanished, who voted, who gave shares (O5, O7)."""

from __future__ import annotations

from audits.evidence.asked import Asked
from audits.evidence.exchanges import facts_of
from audits.evidence.run_files import fail
from audits.evidence.steps import Case
from protocols.disclosures.names import Disclosure
from protocols.evidence.ledger import Entry
from protocols.keys.groups import Group
from protocols.keys.one_answer import one_answer
from protocols.plan.steps import Step
from protocols.wire.roles import Role


def sharing(case: Case, ask: Asked) -> None:
    """Check one masked Ask; raises EvidenceError at step ``opened``.

    Its members agreed on secrets before. Survivor lists went to holders that were there; each
    recorded one list with the right counts before it voted. Shares followed enough votes, or came
    with them where nobody was missing and all pairs hold shares (ADR 0035), never both ways; and
    nothing was opened with fewer shares than rebuild a seed.
    """
    group = case.exchanges.group(ask.round, ask.members)
    if group is None:
        fail("opened", f"exchange {ask.number} carries masks that nobody agreed on")
    ready, first = case.exchanges.ready(ask.round), min(s.seq for s in ask.downs)
    if any(ready.get(name, first) >= first for name in ask.members):
        fail("opened", f"exchange {ask.number} asked a client that had agreed on no secrets")
    _listed(case, ask, group)
    _lists(case, ask)
    _votes(case, ask, group)
    _at_once(case, ask, group)
    for party, entry in ask.opens:
        _enough(case, ask, group, party, entry["seq"])


def check_reader(ask: Asked, entry: Entry, what: str, *, told: bool = True) -> None:
    """Check that an entry names who alone may read a total, and that its blind is in it (O11)."""
    if entry.get("reader", "") != (ask.reader if told else ""):
        fail("opened", f"exchange {ask.number}: {what} names another reader of the total")
    if ask.reader and ask.reader not in ask.arrived:
        fail("opened", f"exchange {ask.number}: {what} lacks the client that reads the total")


def _listed(case: Case, ask: Asked, group: Group) -> None:
    """Survivor lists went only to who holds shares of the cohort and had not vanished."""
    holders = {holder for name in ask.members for holder in group.holders(name)}
    gone = case.exchanges.gone(ask)
    for holder in {*ask.told, *ask.voted, *ask.gave, *ask.served}:
        if holder not in holders:
            fail("opened", f"exchange {ask.number}: {holder} holds no share of its cohort")
        if holder in gone:
            fail("opened", f"exchange {ask.number}: a survivor list for {holder}, who had vanished")


def _lists(case: Case, ask: Asked) -> None:
    """Every client that gave shares had recorded the one list that it was shown (O5)."""
    told: dict[str, int] = {}
    lists: set[str] = set()
    wanted = (len(ask.members), len(ask.arrived))
    for party, entry in case.exchanges.lists(ask.number):
        where = f"exchange {ask.number}: the survivor list of {party}"
        if case.roster.party(party).role is not Role.CLIENT or party not in ask.told:
            fail("opened", f"{where} was never sent to it")
        if party in told:
            fail("opened", f"{where} is there twice (O5)")
        came = case.ledger_index.receipt(ask.told[party], party)
        if came is None or came > entry["seq"]:
            fail("opened", f"{where} was recorded before it came")
        told[party] = entry["seq"]
        _, round, cohort, *counts = facts_of(entry)
        if (round, cohort) != (ask.round, ask.sents[0].facts["cohort"]):
            fail("opened", f"{where} is of another cohort")
        if tuple(counts) != wanted:
            fail("opened", f"{where} counts other uploads than had arrived")
        check_reader(ask, entry, f"the survivor list of {party}")
        lists.add(entry["list"])
        if len(lists) > 1:
            fail("opened", f"{where} is not the one that others were shown (O7)")
        if len(ask.arrived) < case.plan.smallest_cohort:
            fail("opened", f"{where} is over too few clients")
    for holder, sent in (*ask.voted.items(), *ask.served.items()):
        if told.get(holder, sent.seq) >= sent.seq:
            fail("opened", f"exchange {ask.number}: {holder} voted and recorded no list (O5)")


def _votes(case: Case, ask: Asked, group: Group) -> None:
    """Shares were given only once enough clients had voted for the list (O7)."""
    if ask.told and len(ask.arrived) < group.least:
        fail("opened", f"exchange {ask.number}: too few survivors beside the corrupt (O10)")
    if ask.told and group.thinnest(tuple(ask.arrived)) < group.window:
        fail("opened", f"exchange {ask.number}: its survivors could be cut in two (O7)")
    first = min((s.seq for s in ask.shown.values()), default=None)
    voters = set() if first is None else set(case.exchanges.arrivals(ask.voted.values(), first))
    if first is not None and (fewest := group.fewest(voters)) < group.quorum:
        fail(
            "opened",
            f"exchange {ask.number}: {fewest} votes of one client's holders were shown; "
            f"{group.quorum} are needed",
        )
    for holder in {*ask.shown, *ask.gave}:
        if holder not in voters:
            fail("opened", f"exchange {ask.number}: {holder} did not vote before shares were due")
    for holder, sent in ask.gave.items():
        seen = case.ledger_index.receipt(ask.shown[holder], holder) if holder in ask.shown else None
        if seen is None or seen > sent.seq:
            fail("opened", f"exchange {ask.number}: {holder} gave shares before it saw the votes")


def _at_once(case: Case, ask: Asked, group: Group) -> None:
    """Votes and shares came in one answer only where nobody was missing, and no other way (O7)."""
    if not (ask.whole or ask.served):
        return
    if not one_answer(group, case.policy):
        fail("opened", f"exchange {ask.number}: shares came with the votes on a sparse graph (O7)")
    if ask.arrived != ask.members:
        fail("opened", f"exchange {ask.number}: all were said to be there, and some were not (O7)")
    if ask.listed or ask.voted or ask.shown or ask.gave:
        fail("opened", f"exchange {ask.number}: a second survivor list after all were there (O7)")
    for holder in ask.served:
        if holder not in ask.whole:
            fail("opened", f"exchange {ask.number}: {holder} served a list that it was never sent")


def _enough(case: Case, ask: Asked, group: Group, party: str, opened: int) -> None:
    """Nothing was opened before enough shares of every member's seed were there (O7)."""
    until: float = opened
    if party != case.exchanges.aggregator:  # the authority was asked once the masks were off
        requests = [s.seq for s in ask.of(Disclosure.SUM, Step.OPEN)]
        until = min(requests, default=-1)
    elif case.exchanges.next_step(max(_asked_for_shares(ask), default=-1)) < opened:
        fail("opened", f"exchange {ask.number} was recorded as opened after the run went on")
    fewest = min(case.exchanges.shares(ask, until).values(), default=0)
    if fewest < group.threshold:
        fail(
            "opened",
            f"exchange {ask.number} was opened with {fewest} shares of one client's seed; "
            f"{group.threshold} are needed (O7)",
        )


def _asked_for_shares(ask: Asked) -> list[int]:
    """Return the entries with which holders were asked for shares."""
    return [sent.seq for sent in (*ask.shown.values(), *ask.whole.values())]
