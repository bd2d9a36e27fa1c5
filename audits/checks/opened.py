"""Taking masks off one sum: who was told who vanished, who voted, who gave shares (O5, O7)."""

from __future__ import annotations

from collections import defaultdict
from functools import lru_cache

from audits.checks.cohorts import clusters, drawn, neighbours
from audits.checks.matching import matching
from audits.checks.relays import relays
from audits.checks.results import results
from audits.checks.row_sums import row_sums
from audits.evidence.asked import Asked
from audits.evidence.exchanges import facts_of
from audits.evidence.ledger_index import Sent
from audits.evidence.run_files import fail
from audits.evidence.steps import Case, Check
from audits.report.words import plural
from protocols.disclosures.names import Disclosure
from protocols.errors import CohortChanged
from protocols.evidence.ledger import Entry
from protocols.keys.groups import Group, fewest_apart, one_answer
from protocols.plan.steps import Service, Step
from protocols.policy.policy import divided
from protocols.wire.envelope import NONE
from protocols.wire.roles import Role
from protocols.wire.roster import cohort_digest


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


# --- Cohorts and openings: whole and large enough, opened once, and one set of survivors a round
# ---
#
# Over the rounds they change no more than the policy's `cohort_changes` lets them.

_HOLDING = (
    *(Step.SURVIVORS, Step.VOTE, Step.VOTES, Step.SHARES),
    *(Step.ALL_HERE, Step.SELF_SHARES),
)
"""Also of clients outside the cohort, that hold its shares."""


def opened(case: Case) -> str:
    """Cohorts are whole and large enough; every total was opened once, over what had arrived."""
    exchanges = [ask for ask in case.exchanges.all.values() if _cohort(case, ask)]
    rounds: dict[int, list[tuple[Asked, frozenset[str]]]] = defaultdict(list)
    _known(case, exchanges)
    drawn(case, exchanges)
    for ask in exchanges:
        for party, entry in ask.opens:
            _opener(case, party)
            _counted(case, ask, party, entry)
        if len(ask.opens) > 1:
            fail("opened", f"exchange {ask.number} was opened twice (O5)")
        if ask.masked:
            sharing(case, ask)
        if ask.opens:
            _one_set(ask, rounds[ask.round])
            rounds[ask.round].append((ask, ask.arrived))
    _returned(case, exchanges)
    _changes(case, exchanges)
    more = results(case) + relays(case) + matching(case) + row_sums(case)
    more += clusters(case) + neighbours(case)
    said = _said(case, exchanges)
    return said.replace("nothing was opened", "no total was opened") + more if more else said


def _known(case: Case, exchanges: list[Asked]) -> None:
    summed, masked = {a.number for a in exchanges}, {a.number for a in exchanges if a.masked}
    told = ((case.ledger_index.totals(), summed), (case.ledger_index.of_kind("survivors"), masked))
    for entries, numbers in told:
        for party, entry in entries:
            if entry["exchange"] not in numbers:
                fail("opened", f"entry {entry['seq']} of {party} is of no such exchange")


def _said(case: Case, exchanges: list[Asked]) -> str:
    count = sum(len(ask.opens) for ask in exchanges)
    said = f"{len(exchanges)} cohorts are large enough"
    everything = case.exchanges.all.values()
    if lost := sorted({a.round for a in everything if a.lost(case.plan.smallest_cohort)}):
        said += f"; {plural(len(lost), 'round')} skipped, the first: round {lost[0]}"
    if not count:
        return f"nothing was opened; {said}"
    if (rule := case.policy.cohort_changes) != "any":
        said += f"; they changed as the policy lets them (cohort_changes: {rule})"
    return f"{count} totals, each opened once and over the uploads that had arrived; {said}"


def _large_enough(case: Case, count: int, what: str) -> None:
    if count < case.plan.smallest_cohort:
        fail("opened", f"{what} {count} clients; the smallest is {case.plan.smallest_cohort}")


def _cohort(case: Case, ask: Asked) -> bool:
    """Check who was asked: every entry names exactly that cohort. False: the Ask never got out."""
    if not ask.downs and ask.rows:
        return False  # its rows were not opened, so it never went out
    digest = _digest(case, ask.sents[0], ask.members)
    if ask.cut and ask.sents[0].facts["cohort"] != digest:
        return False  # the run stopped while this was being handed out; nothing was opened of it
    _large_enough(case, len(ask.members), f"the cohort of exchange {ask.number} has")
    everyone = frozenset(case.roster.clients)
    for sent in ask.sents:
        clients = {sent.party, sent.recipient} & everyone
        inside = clients <= ask.members or sent.step in _HOLDING
        if sent.facts["cohort"] != _digest(case, sent, ask.members) or not inside:
            fail("opened", f"release {sent.seq} of {sent.party} is outside its cohort")
        if sent.ask != ask.name:
            fail("opened", f"exchange {ask.number} holds more than one Ask")
    return True


def _digest(case: Case, sent: Sent, members: frozenset[str]) -> str:
    run, attempt = case.roster_file.run, sent.facts["attempt"]
    return _cohort_digest(run, case.plan_digest, sent.round, attempt, members)


@lru_cache(maxsize=64)
def _cohort_digest(run: str, plan: str, round: int, attempt: int, members: frozenset[str]) -> str:
    return cohort_digest(run, plan, round, attempt, sorted(members)) if members else NONE


def _opener(case: Case, party: str) -> None:
    """Check that who opened is who may: the key authority, or without one the aggregator."""
    keyed = case.plan.all_of(Disclosure.SUM, Step.OPEN)
    masked = case.plan.all_of(Service.PAIRS, Step.CALL)
    may = Role.KEY_AUTHORITY if keyed else Role.AGGREGATOR if masked else None
    if case.roster.party(party).role is not may:
        fail("opened", f"{party} opened something, and the plan lets {may or 'nobody'} open")


def _counted(case: Case, ask: Asked, party: str, entry: Entry) -> None:
    """Check that an opening counts just the uploads that the aggregator had received."""
    _large_enough(case, entry["survivors"], f"the total of exchange {ask.number} is over")
    digest = _digest(case, ask.sents[0], ask.members)
    expected = (ask.number, ask.round, digest, len(ask.members), len(ask.arrived))
    if facts_of(entry) != expected:
        fail("opened", f"exchange {ask.number}: not the cohort that its members sign")
    if not ask.protected:
        fail("opened", f"exchange {ask.number} was opened, and nothing in it can be")
    # A key authority opens what it cannot read, and is not told for whom.
    check_reader(ask, entry, "the opening", told=party == case.exchanges.aggregator)


def _one_set(ask: Asked, before: list[tuple[Asked, frozenset[str]]]) -> None:
    """Hold a round to one set of survivors (O5): two different ones would be subtracted."""
    for other, stayed in before:
        if ask.arrived & stayed and ask.arrived != stayed:
            fail("opened", f"round {ask.round}: two overlapping cohorts were opened (O5)")
        common = ask.members & other.members
        if ask.arrived & common != stayed & common:
            fail("opened", f"round {ask.round}: a client vanished and came back (O5)")


def _changes(case: Case, exchanges: list[Asked]) -> None:
    """Hold all sums of the run to the policy's `cohort_changes`: who is asked, and who counts.

    A survivor list that nobody got, and that nothing was opened over, is none.
    """
    rule, groups = case.policy.cohort_changes, tuple[int, ...]()
    if rule == "any":
        return
    least = fewest_apart(len(case.plan.clients), case.policy, case.plan.drawn)
    for ask in (ask for ask in exchanges if ask.summed):
        counted = [ask.arrived] if ask.told or ask.opens else []
        for clients in (ask.members, *counted):
            mask = case.roster.mask(sorted(clients))
            try:
                groups = divided(groups, int.from_bytes(mask, "little"), rule, least)
            except CohortChanged as error:
                fail("opened", f"exchange {ask.number} (round {ask.round}): {error.what} (O5)")


def _returned(case: Case, exchanges: list[Asked]) -> None:
    """Every opened total that left the authority stands behind a durable 'open' entry."""
    for ask in exchanges:
        before = {party: entry["seq"] for party, entry in ask.opens}
        for sent in ask.of(Disclosure.SUM, Step.OPENED):
            seq = before.pop(sent.party, None)
            if seq is None or seq > sent.seq:
                fail("opened", f"exchange {ask.number} left {sent.party} unrecorded")
        before.pop(case.exchanges.aggregator, None)  # it opened for itself
        if before and not ask.cut:
            fail("opened", "a total was opened and never returned")


OPENED = Check("opened", ("files", "plan", "roster", "chain"), opened)
