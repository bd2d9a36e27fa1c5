"""What the aggregator learnt of a run: sums that were opened, who is in them, sizes of messages."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from audits.attacks._shared.payloads import payload_of
from audits.evidence.asked import Asked
from audits.evidence.run_files import fail
from audits.evidence.steps import Case
from audits.report.words import in_clear
from protocols.disclosures.names import Disclosure
from protocols.plan.plan import Item, MessagePlan
from protocols.plan.steps import Service, Step
from protocols.wire.roles import Role

__all__ = ["Opened", "Sizes", "opened_sums", "rare_sizes", "sent_sizes"]

K = TypeVar("K", bound=Hashable)

Sizes = dict[str, tuple[int, ...]]
"""Client -> the sizes of what it sent under one item in one Ask, less the length of its name."""


@dataclass(frozen=True)
class Opened:
    """One sum that the aggregator learnt.

    Attributes:
        payload: ``P01`` to ``P21``.
        message: which kind of message was summed; sums of unlike messages cannot be combined.
        round: of the run.
        clients: whose data is in it; one, where an upload left in clear.
    """

    payload: str
    message: MessagePlan
    round: int
    clients: frozenset[str]


def opened_sums(case: Case) -> list[Opened]:
    """Return every sum that the aggregator learnt, as the ledgers tell it.

    A sum over the survivors of an Ask for each opening, and for uploads that left in clear one of
    each client.

    Raises:
        EvidenceError: a client's ledger is missing or broken, or an opening is of a cohort that its
            members do not sign for: who is in the sums is then not known.
    """
    if missing := [name for name in case.roster.clients if name not in case.ledger_index.entries]:
        fail("chain", f"the ledger of {missing[0]} cannot be read, so cohorts are not known")
    exchanges, found = case.exchanges.all, list[Opened]()
    for _, entry in case.ledger_index.totals():
        if entry["exchange"] not in exchanges:
            fail("opened", f"exchange {entry['exchange']} was opened and nothing was sent in it")
    for ask in exchanges.values():
        found += _in_clear(case, ask)
        for _, entry in ask.opens:
            counted = (entry["members"], entry["survivors"])
            if counted != (len(ask.members), len(ask.arrived)) or not ask.arrived:
                fail("opened", f"exchange {ask.number}: not the cohort its members sign")
            item = case.plan.find(ask.name, Disclosure.SUM, Step.UP)
            found += _sums(case, item, ask.round, ask.arrived)
    return found


def _in_clear(case: Case, ask: Asked) -> Iterator[Opened]:
    for sent in ask.sents:
        item = sent.planned
        if item is None:
            fail("plan", f"{sent.item[:60]} left and was not planned")
        bare = in_clear(item.guards) or (item.part is Disclosure.SUM and not ask.protected)
        if bare and item.sender == Role.CLIENT and item.step is Step.UP:
            yield from _sums(case, item, ask.round, frozenset({sent.party}))


def _sums(case: Case, item: Item, round: int, clients: frozenset[str]) -> Iterator[Opened]:
    payload = payload_of(item, case.plan, case.policy)
    if payload == "P17" and len(clients) > 1:
        payload = "P05"  # a sum of counts is a sum
    for message in item.messages:
        yield Opened(payload, message, round, clients)


def sent_sizes(case: Case) -> dict[tuple[int, str, int], Sizes]:
    """Return (number of the Ask, item, attempt) -> sizes of what clients sent, by their ledgers.

    A header holds its sender's name, so its length is taken off. Refusals are left out: they are
    rare, and tell of a fault.
    """
    roles = {party["name"]: party["role"] for party in case.roster.document()}
    found: dict[tuple[int, str, int], dict[str, list[int]]]
    found = defaultdict(lambda: defaultdict(list))
    for sent in case.ledger_index.releases():
        if roles.get(sent.party) == Role.CLIENT and sent.part is not Service.REFUSAL:
            size = int(sent.facts["bytes"]) - len(sent.party.encode())
            found[sent.exchange, sent.item, sent.facts["attempt"]][sent.party].append(size)
    return {
        key: {name: tuple(sorted(those)) for name, those in sizes.items()}
        for key, sizes in found.items()
    }


def rare_sizes(sizes: Mapping[K, tuple[int, ...]], smallest: int) -> list[K]:
    """Return whose sizes fewer share than may be in a cohort; of fewer clients, than these."""
    often, fewest = Counter(sizes.values()), min(smallest, len(sizes))
    return [name for name, those in sizes.items() if often[those] < fewest]
