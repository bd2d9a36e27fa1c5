"""Which totals the aggregator may have opened, by the ledgers of others.

What it opened, its own ledger alone tells, and nobody need believe it: it can take shares, record
neither them nor the opening, and go on as if the round were lost.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from hashlib import sha256
from itertools import chain, combinations, islice, product

from audits.evidence.asked import Asked
from audits.evidence.ledger_index import Sent
from audits.evidence.run_files import fail
from audits.evidence.steps import Case
from protocols.disclosures.names import Disclosure
from protocols.disclosures.sum.consistency import vote_text
from protocols.evidence.ledger import Entry
from protocols.keys.groups import agreement, slot_of
from protocols.plan.steps import Service, Step
from protocols.wire.envelope import Where

__all__ = ["may_be_opened"]

_TRIED = 10_000  # survivor lists that are tried against a digest, before nothing is known


def may_be_opened(case: Case, ask: Asked) -> list[frozenset[str]]:
    """Return whose uploads are in each total of an Ask that may have been opened.

    It counts as opened where an opening was recorded; and where masks are in its protection, where
    as many holders released shares as the threshold asks, whatever else protects it: whoever holds
    a key can keep silent about its use. Colluders, whom the policy assumes, may have given theirs
    without recording them. Nobody can tell whether shares that left arrived. Without masks no
    survivor list is served, and of uploads that were lost the aggregator alone says whose they
    were: such a plan says that it is trusted with that.

    Raises:
        EvidenceError: whose uploads were counted does not stand in the clients' ledgers.
    """
    found = dict[frozenset[str], None]()
    for _, entry in ask.opens:
        counted = (entry["members"], entry["survivors"])
        if counted != (len(ask.members), len(ask.arrived)) or not ask.arrived:
            fail("opened", f"exchange {ask.number}: not the cohort its members sign")
        if not _served(ask):
            found[ask.arrived] = None  # no list was served: the opening itself tells
    lists: dict[str, dict[str, Entry]] = defaultdict(dict)
    for holder, entry in case.exchanges.lists(ask.number):
        lists[entry["list"]][holder] = entry
    for held in lists.values():
        served = held.keys() & _served(ask)
        if served and (ask.opens or _enough(case, ask, served)):
            found[_listed(case, ask, held[min(served)])] = None
    return list(found)


def _served(ask: Asked) -> frozenset[str]:
    """Return the holders that released shares, by their own ledgers."""
    return frozenset({*ask.gave, *ask.served})


def _enough(case: Case, ask: Asked, served: AbstractSet[str]) -> bool:
    """Tell whether these holders' shares may have rebuilt every member's seed."""
    members = ask.members | {s.party for s in _uploads(ask)}
    group = case.exchanges.group(ask.round, members)
    if group is None:
        return False

    def shares(owner: str) -> int:
        holders = set(group.holders(owner))
        return len(holders & served) + min(group.colluders, len(holders - served))

    return all(shares(owner) >= group.threshold for owner in members)


def _uploads(ask: Asked) -> list[Sent]:
    return [s for s in ask.sents if (s.part, s.step) == (Disclosure.SUM, Step.UP)]


def _listed(case: Case, ask: Asked, entry: Entry) -> frozenset[str]:
    """Return whom a survivor list names: a holder recorded its digest and how long it is.

    Those are tried that sent an upload, then those whose uploads the aggregator recorded, then all
    others that are as many: the digest decides.
    """
    sent = frozenset(s.party for s in _uploads(ask))
    count, texts = entry["survivors"], [*_texts(case, ask, entry)]
    others = islice(combinations(sorted(sent), count), _TRIED)
    for guess in chain((sent, ask.arrived), map(frozenset, others)):
        mask = case.roster.mask(sorted(guess))
        digests = (sha256(vote_text(*text, mask)).hexdigest() for text in texts)
        if len(guess) == count and guess <= sent and entry["list"] in digests:
            return guess
    fail("opened", f"exchange {ask.number}: not the cohort its members sign")


def _texts(case: Case, ask: Asked, entry: Entry) -> Iterator[tuple[tuple[str, ...], Where]]:
    """Yield what a vote for a list of this Ask may rest on, but for whom it names."""
    epoch, upload = case.exchanges.epoch(ask.round), next(iter(_uploads(ask)), None)
    boxes = case.exchanges.keying(Service.PAIRS, Step.BOXES, epoch)
    group = case.exchanges.group(ask.round, ask.members)
    if upload is None or group is None or upload.planned is None:
        return
    before = [a for a in case.exchanges.all.values() if a.round == ask.round]
    for slot, sents in product(
        range(len(before)), (boxes, case.exchanges.arrivals(boxes).values())
    ):
        there = sorted({s.party for s in sents} & set(group.called))
        pairs = agreement(group, there, slot_of(upload.planned, ask.round, slot))
        facts = (case.roster_file.run, case.plan_digest, entry["cohort"], upload.ask, pairs)
        given = str(upload.facts["given"])
        yield facts, Where(ask.round, ask.number, given=given, slot=slot)
