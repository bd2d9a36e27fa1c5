"""Cohorts and openings: whole and large enough, opened once, and one set of survivors a round.

Over the rounds they change no more than the policy's `cohort_changes` lets them.
"""

from __future__ import annotations

from collections import defaultdict
from functools import lru_cache

from audits.checks.cohorts.clusters import clusters
from audits.checks.cohorts.drawn import drawn
from audits.checks.cohorts.neighbours import neighbours
from audits.checks.matching import matching
from audits.checks.relays import relays
from audits.checks.results import results
from audits.checks.row_sums import row_sums
from audits.checks.sharing import check_reader, sharing
from audits.evidence.asked import Asked
from audits.evidence.exchanges import facts_of
from audits.evidence.ledger_index import Sent
from audits.evidence.run_files import fail
from audits.evidence.steps import Case, Check
from audits.report.words import plural
from protocols.disclosures.names import Disclosure
from protocols.errors import CohortChanged
from protocols.evidence.ledger import Entry
from protocols.keys.groups import fewest_apart
from protocols.plan.steps import Service, Step
from protocols.policy.cohort_changes import divided
from protocols.wire.header import NONE
from protocols.wire.roles import Role
from protocols.wire.roster import cohort_digest

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
