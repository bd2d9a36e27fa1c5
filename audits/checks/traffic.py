"""Plan against ledger, receipts, openings: do the parties' records tell one story?"""

from __future__ import annotations

import hmac
from collections import defaultdict
from functools import lru_cache

from audits.book import ROUTE, Book, Sent
from audits.drift import Yardstick
from audits.steps import Case, Check
from audits.view import fail
from protocols.disclosures import Disclosure
from protocols.envelope import NONE
from protocols.ledger import Entry
from protocols.roster import Role, cohort_digest


def plan_vs_ledger(case: Case) -> str:
    """Each release is a planned item, on its route, in size, number and protection."""
    releases = case.book.releases()
    yardstick = Yardstick(case.plan, case.policy, case.roster)
    for found in yardstick.violations(releases):
        fail("plan_vs_ledger", f"release {found.sent.seq} of {found.sent.party} {found.what}")
    return f"all {len(releases)} releases are as planned"


def receipts(case: Case) -> str:
    """Every receipt belongs to a release, and every release has its receipts."""
    book, releases = case.book, {}
    for sent in book.releases():
        key = (sent.party, str(sent.facts["commitment"]))
        if key in releases:
            fail("receipts", f"{sent.party} recorded one envelope twice")
        releases[key] = sent
    received = _match(case, releases)
    tolerated, missing = book.unfinished, 0
    for sent in releases.values():
        for party in sent.addressees(case.roster):
            if (party, sent.party, str(sent.facts["commitment"])) in received:
                continue
            if sent.exchange != tolerated:
                fail("receipts", f"{party} has no receipt of release {sent.seq} of {sent.party}")
            missing += 1
    cut = f"; the run ended early: {missing} envelopes were under way" if missing else ""
    return f"{len(received)} receipts match {len(releases)} releases{cut}"


def _match(case: Case, releases: dict[tuple[str, str], Sent]) -> set[tuple[str, str, str]]:
    received: set[tuple[str, str, str]] = set()
    for party, entry in case.book.of_kind("receipt"):
        sender, commitment = entry["sender"], entry["commitment"]
        where = f"receipt {entry['seq']} of {party}"
        sent = releases.get((sender, commitment))
        if sent is None:
            fail("receipts", f"{where} is of an envelope that nobody recorded as sent")
        if party not in sent.addressees(case.roster):
            fail("receipts", f"{where} is of an envelope for somebody else")
        if any(entry[name] != sent.facts[name] for name in (*ROUTE, "bytes")):
            fail("receipts", f"{where} says something else than the sender's release")
        if not hmac.compare_digest(entry["sender_head"].encode(), sent.prev.encode()):
            fail("receipts", f"{where} saw another ledger of the sender than this one")
        if (party, sender, commitment) in received:
            fail("receipts", f"{where} is there twice")
        received.add((party, sender, commitment))
    return received


def opened(case: Case) -> str:
    """Cohorts are whole and large enough; every total was opened once, and apart from others."""
    asked = _asked(case)
    cohorts: dict[int, list[tuple[int, frozenset[str]]]] = defaultdict(list)
    opens = list(case.book.of_kind("open"))
    for party, entry in opens:
        if case.roster.party(party).role is not Role.KEY_AUTHORITY:
            fail("opened", f"{party} opened something and is no key authority")
        members = _vouched(case, entry)
        for exchange, others in cohorts[entry["round"]]:
            if exchange == entry["exchange"]:
                fail("opened", f"exchange {exchange} was opened twice (O5)")
            if members & others and members != others:
                fail("opened", f"round {entry['round']}: two overlapping cohorts were opened (O5)")
        cohorts[entry["round"]].append((entry["exchange"], members))
    _returned(case.book, opens)
    if not opens:
        return f"nothing was opened; {len(asked)} cohorts are large enough"
    return f"{len(opens)} totals, each opened once; {len(asked)} cohorts are large enough"


def _large_enough(case: Case, members: frozenset[str], exchange: int) -> None:
    if len(members) < case.plan.smallest_cohort:
        fail(
            "opened",
            f"the cohort of exchange {exchange} has {len(members)} clients; "
            f"the smallest allowed is {case.plan.smallest_cohort}",
        )


def _asked(case: Case) -> dict[int, frozenset[str]]:
    """Return who was asked in each exchange; every entry names exactly that cohort."""
    by_exchange: dict[int, list[Sent]] = defaultdict(list)
    for sent in case.book.releases():
        if not sent.item.startswith(("key.", "pair.", "refusal.")):  # names no Ask may have
            by_exchange[sent.exchange].append(sent)
    unfinished, found, everyone = case.book.unfinished, {}, frozenset(case.roster.clients)
    for exchange, sents in sorted(by_exchange.items()):
        downs = [s for s in sents if s.item.endswith(".down")]
        members = frozenset(s.recipient for s in downs)
        if exchange == unfinished and sents[0].facts["cohort"] != _digest(case, sents[0], members):
            continue  # the run stopped while this was being handed out; nothing was opened of it
        _large_enough(case, members, exchange)
        for sent in sents:
            clients = {sent.party, sent.recipient} & everyone
            if sent.facts["cohort"] != _digest(case, sent, members) or not clients <= members:
                fail("opened", f"release {sent.seq} of {sent.party} is outside its cohort")
        found[exchange] = members
    return found


def _digest(case: Case, sent: Sent, members: frozenset[str]) -> str:
    facts = sent.facts
    return _cohort(
        case.roster_file.run, case.plan_digest, facts["round"], facts["attempt"], members
    )


@lru_cache(maxsize=64)
def _cohort(run: str, plan: str, round: int, attempt: int, members: frozenset[str]) -> str:
    return cohort_digest(run, plan, round, attempt, sorted(members)) if members else NONE


def _vouched(case: Case, entry: Entry) -> frozenset[str]:
    """Return the clients whose uploads were opened together, as their own ledgers tell it."""
    uploads = [
        sent
        for sent in case.book.releases_of(entry["exchange"])
        if sent.item.endswith(f".up.{Disclosure.SUM}") and sent.facts["round"] == entry["round"]
    ]
    members = frozenset(sent.party for sent in uploads)
    _large_enough(case, members, entry["exchange"])
    same = all(_digest(case, sent, members) == entry["cohort"] for sent in uploads)
    if not same or entry["members"] != len(members):
        fail("opened", f"exchange {entry['exchange']}: not the cohort that its members vouch for")
    return members


def _returned(book: Book, opens: list[tuple[str, Entry]]) -> None:
    """Every opened total that left the authority stands behind a durable 'open' entry."""
    before = {(party, entry["exchange"]): entry["seq"] for party, entry in opens}
    for sent in book.releases():
        if sent.item.endswith(".opened"):
            seq = before.pop((sent.party, sent.exchange), None)
            if seq is None or seq > sent.seq:
                fail("opened", f"exchange {sent.exchange} left {sent.party} without being recorded")
    if any(exchange != book.unfinished for _, exchange in before):
        fail("opened", "a total was opened and never returned")


CHECKS = (
    Check("plan_vs_ledger", ("files", "plan", "roster", "chain"), plan_vs_ledger),
    Check("receipts", ("files", "roster", "chain"), receipts),
    Check("opened", ("files", "plan", "roster", "chain"), opened),
)
