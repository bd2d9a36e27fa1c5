"""What the aggregator may have learnt of a run: sums, who is in them, sizes of messages.

It is the attacker, so nothing here rests on what its own ledger leaves out.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from audits.attacks._shared.payloads import payload_of, payloads_of
from audits.evidence.asked import Asked
from audits.evidence.ledger_index import Sent
from audits.evidence.openable import may_be_opened
from audits.evidence.run_files import fail
from audits.evidence.steps import Case
from audits.report.words import in_clear
from protocols.disclosures.names import Disclosure
from protocols.evidence.capture import captured_rounds
from protocols.plan.plan import Item, MessagePlan
from protocols.plan.steps import Service, Step
from protocols.wire.roles import Role

__all__ = ["Opened", "Sizes", "opened_sums", "rare_sizes", "sent_sizes", "unrecorded"]

K = TypeVar("K", bound=Hashable)

Sizes = dict[str, tuple[int, ...]]
"""Client -> the sizes of what it sent under one item in one Ask, less the length of its name."""


@dataclass(frozen=True)
class Opened:
    """One sum that the aggregator may have learnt.

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
    """Return every sum that the aggregator may have learnt, as the ledgers of others tell it.

    Its own ledger can add sums and take none away. A sum over the survivors of an Ask for each list
    that may have been opened, and for uploads that left in clear one of each client.

    Raises:
        EvidenceError: a ledger is missing or broken that shows what was opened, or an opening is of
            a cohort that its members do not sign for: who is in the sums is then not known.
    """
    for name in (*case.roster.clients, *case.roster.names(Role.KEY_AUTHORITY)):
        if name not in case.ledger_index.entries:
            fail("chain", f"the ledger of {name} cannot be read, so cohorts are not known")
    exchanges, found = case.exchanges.all, list[Opened]()
    for _, entry in case.ledger_index.totals():
        if entry["exchange"] not in exchanges:
            fail("opened", f"exchange {entry['exchange']} was opened and nothing was sent in it")
    for ask in exchanges.values():
        found += _in_clear(case, ask)
        for clients in may_be_opened(case, ask):
            name = next(s.ask for s in ask.sents if s.part is Disclosure.SUM)
            item = case.plan.find(name, Disclosure.SUM, Step.UP)
            found += _sums(case, item, ask.round, clients)
    return found


def unrecorded(case: Case) -> dict[str, int]:
    """Return payload -> a captured Ask of which others' ledgers show more than the reader's own.

    What an attack reads of captures is what the aggregator, or the matcher, kept. Where somebody
    else recorded that more went to it than it owns to, an attack that finds nothing proves nothing:
    a total that may have been opened and has no opening, a result, mixture or comparison without
    its receipt. Messages that were truly lost look the same.

    Raises:
        EvidenceError: see :func:`may_be_opened`.
    """
    rounds = captured_rounds(case.policy.capture, case.plan.rounds) if case.policy.capture else ()
    found = dict[str, int]()
    for ask in case.exchanges.all.values():
        if ask.round in rounds:
            hidden = [s.planned for s in ask.sents if _read(s) and not _received(case, s)]
            if not ask.opens and may_be_opened(case, ask):
                hidden += [s.planned for s in ask.of(Disclosure.SUM, Step.UP)]
            for item in hidden:
                if item is not None:
                    found |= dict.fromkeys(payloads_of(item, case.policy), ask.number)
    return found


def _read(sent: Sent) -> bool:
    """Tell whether its receiver reads what is in it, without anybody else."""
    mixed = sent.part is Disclosure.MIXED and sent.step is Step.UP
    return mixed or sent.step in (Step.OPENED, Step.RELAYED, Step.COMPARE)


def _received(case: Case, sent: Sent) -> bool:
    return case.ledger_index.receipt(sent, sent.recipient) is not None


def _in_clear(case: Case, ask: Asked) -> Iterator[Opened]:
    for sent in ask.sents:
        item = sent.planned
        if item is None:
            fail("plan", f"{sent.item[:60]} left and was not planned")
        bare = in_clear(item.guards) or (item.part is Disclosure.SUM and not ask.protected)
        if bare and item.sender == Role.CLIENT and item.step is Step.UP:
            yield from _sums(case, item, ask.round, frozenset({sent.party}))


def _sums(case: Case, item: Item, round: int, clients: frozenset[str]) -> Iterator[Opened]:
    payload = payload_of(item, case.policy)
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
