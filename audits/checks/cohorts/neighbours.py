"""Sums over neighbours: the plan's topology holds, and everybody gave all of them one model (O5).

A sender states the digest of its vector before it leaves, each receiver the digests that it got.
Their heads are cosigned with every Ask, so neither can be written anew later. Part of the step
``opened``.
"""

from __future__ import annotations

from typing import NoReturn

from audits.evidence.run_files import fail
from audits.evidence.steps import Case
from audits.report.words import plural
from protocols.disclosures.names import Disclosure
from protocols.disclosures.neighbour_sum.messages import NeighbourBoxes
from protocols.errors import PolicyError
from protocols.evidence.ledger import Entry
from protocols.plan.steps import Service, Step
from protocols.plan.topology import TopologyPlan
from protocols.wire.roles import Role

Digests = dict[tuple[int, str], str]


def neighbours(case: Case) -> str:
    """Check topology and digests; return a clause of what there was, else nothing."""
    offered = list(case.ledger_index.of_kind("offered"))
    told = list(case.ledger_index.of_kind("neighbourhood"))
    topology = case.plan.topology
    if topology is None:
        for party, entry in (*offered, *told):
            _fail(party, entry, "is of neighbours, and the plan has none")
        if case.plan.all_of(Disclosure.NEIGHBOUR_SUM):
            fail("opened", "neighbours read sums, and the plan says of nobody who they are")
        return ""
    _floor(case, topology)
    given = _offered(case, offered)
    once: set[tuple[int, str]] = set()
    missed = 0
    for party, entry in told:
        place = entry["exchange"], party
        if place in once or place not in given:
            _fail(party, entry, "mixes twice in a round, or without having given anything")
        once.add(place)
        missed += bool(entry["absent"])
        _received(party, entry, topology, given)
        _away(case, party, entry, topology)
    _stated(case, given)
    _handed(case, once)
    sums = f"{plural(len(told) - missed, 'sum')} over neighbours, of one model of each"
    away = f"; {missed} not opened, as a neighbour was away" if missed else ""
    unsafe = "; the topology is UNSAFE" if topology.floor == "unsafe" else ""
    return f"; {sums}{away}{unsafe}"


def _floor(case: Case, topology: TopologyPlan) -> None:
    """Make the plan-time check again."""
    try:
        again = topology.again(case.policy)
    except (PolicyError, ValueError) as error:
        fail(
            "opened",
            f"the topology is not what the policy lets run: {getattr(error, 'what', error)}",
        )
    if again != topology or set(topology.shares) != set(case.plan.clients):
        fail("opened", "the topology is not the one that its edges and the policy give")


def _offered(case: Case, entries: list[tuple[str, Entry]]) -> Digests:
    found: Digests = {}
    for party, entry in entries:
        if case.roster.party(party).role is not Role.CLIENT:
            _fail(party, entry, "is of no client")
        place = entry["exchange"], party
        if place in found:
            _fail(party, entry, "offers a second model in one round")
        found[place] = entry["commitment"]
    return found


def _received(party: str, entry: Entry, topology: TopologyPlan, given: Digests) -> None:
    senders, absent, digests = topology.neighbours(party), entry["absent"], entry["commitments"]
    if not set(absent) <= set(senders) or len(digests) != (0 if absent else len(senders)):
        _fail(party, entry, "opened other than a whole neighbourhood")
    for sender, digest in zip(senders, digests, strict=False):
        if given.get((entry["exchange"], sender)) != digest:
            _fail(party, entry, f"got another model of {sender} than {sender} states")


def _away(case: Case, party: str, entry: Entry, topology: TopologyPlan) -> None:
    """Check that who is said to be away was, or could not send for another one who was.

    Else somebody keeps this client from mixing: its neighbours then read how it trains alone.
    """
    ask = case.exchanges.all.get(entry["exchange"])
    if ask is None or ask.round != entry["round"]:
        _fail(party, entry, "is of no such exchange")
    there, around = set(ask.arrived), {*topology.neighbours(party)}
    if case.plan.all_of(Service.PAIRS, Step.CALL):
        there &= case.exchanges.ready(ask.round).keys()
    if entry["absent"] and around <= there:
        _fail(party, entry, f"misses {entry['absent'][0]}, and its whole neighbourhood had sent")


def _handed(case: Case, once: set[tuple[int, str]]) -> None:
    """Check that whoever was handed boxes says what was in them."""
    handing = {
        item.exchange
        for item in case.plan.all_of(Service.ASK, Step.DOWN)
        if any(message.name == NeighbourBoxes.__name__ for message in item.messages)
    }
    told = {(case.exchanges.all[exchange].round, party) for exchange, party in once}
    for sent in case.ledger_index.releases():
        answered = sent.step in (Step.ACK, Step.UP) and sent.ask in handing
        if answered and (sent.round, sent.party) not in told:
            fail(
                "opened", f"{sent.party} got boxes in round {sent.round}, and says nothing of them"
            )


def _stated(case: Case, given: Digests) -> None:
    for sent in case.ledger_index.releases():
        if (sent.part, sent.step) != (Disclosure.NEIGHBOUR_SUM, Step.UP):
            continue
        if (sent.exchange, sent.party) not in given:
            fail("opened", f"{sent.party} gave a model in exchange {sent.exchange} unstated")


def _fail(party: str, entry: Entry, what: str) -> NoReturn:
    fail("opened", f"entry {entry['seq']} of {party} {what}")
