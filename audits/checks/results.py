"""Cosines and weighted rows: witnessed as the policy asks, opened once, over what had arrived (O4).

A witness and the key authority write down the same digest, over what a result was computed from and
over its very bytes. So an opening without enough such entries is of something that no witness saw.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import NoReturn

from audits.evidence.asked import Asked
from audits.evidence.exchanges import facts_of
from audits.evidence.run_files import fail
from audits.evidence.steps import Case
from audits.report.words import plural
from protocols.disclosures._evaluated.ciphers import EVALUATED
from protocols.disclosures._evaluated.guards import evaluated
from protocols.disclosures.names import Disclosure
from protocols.evidence.ledger import Entry
from protocols.plan.steps import Step
from protocols.wire.roles import Role

Told = tuple[str, Entry]
"""Who recorded an entry, and the entry."""


def results(case: Case) -> str:
    """Every cosine matrix and every table of rows was witnessed, opened once, and is whole.

    Part of the step ``opened``; returns a clause for its sentence, empty if nothing was computed.
    """
    opened = [told for told in case.ledger_index.of_kind("open") if "disclosure" in told[1]]
    seen = _witnessed(case)
    once: set[tuple[str, int]] = set()
    rounds: dict[tuple[str, int], list[Asked]] = defaultdict(list)
    for party, entry in opened:
        said, number = entry["disclosure"], entry["exchange"]
        if case.roster.party(party).role is not Role.KEY_AUTHORITY:
            _fail(entry, f"was opened by {party}, which may not")
        source = _source(case, entry)
        if (said, source.number) in once:
            _fail(entry, "is of uploads that were opened before (O4)")
        once.add((said, source.number))
        _counted(case, entry, source)
        _signed(case, entry, seen)
        _returned(case, (party, entry))
        _one_set(entry, source, rounds[said, source.round])
        if said == Disclosure.WEIGHTED_SUM and not _weights(case, number, source):
            _fail(entry, "rests on weights that the aggregator did not record")
    _tables(case, seen)
    _stray(case, once)
    found = _said([entry["disclosure"] for _, entry in opened])
    opened = [told for told in opened if told[1]["disclosure"] in EVALUATED]
    if not opened:
        return found
    flattened = [e for _, e in case.ledger_index.of_kind("weights") if e["flattened"]]
    how = _witnessing(case, {entry["disclosure"] for _, entry in opened})
    text = f"; {plural(len(opened), 'result')} of cosines or weights, {how}, opened once"
    if flattened:
        rows = sum(len(e["flattened"]) for e in flattened)
        text += f"; {plural(rows, 'row')} of weights flattened, as the aggregator states"
    return text + found


def _said(opened: list[str]) -> str:
    """Say how often results were opened that are not computed on ciphertexts."""
    others = Counter(name for name in opened if name not in EVALUATED)
    return "".join(f"; {plural(n, f'{d} result')}, opened once" for d, n in sorted(others.items()))


def _witnessing(case: Case, said: set[str]) -> str:
    """Say which of these disclosures' results were witnessed: what the policy does not ask for."""
    bare = sorted(name for name in said if not _wanted(case, name))
    if not bare:
        return "each witnessed"
    which = "NOT witnessed" if set(bare) == said else f"{bare[0]} NOT witnessed"
    return f"{which} (the policy asks for no witness)"


def _wanted(case: Case, said: str) -> int:
    """Return how many witnesses the policy asks for."""
    guard = evaluated(case.policy.chain(Disclosure(said)))
    return guard.witnesses if guard is not None else 0


def _fail(entry: Entry, what: str) -> NoReturn:
    said, number = entry["disclosure"], entry["exchange"]
    fail("opened", f"the {said} result of exchange {number} {what}")


def _source(case: Case, entry: Entry) -> Asked:
    """Return the Ask whose uploads were opened; raises for another one than the item's."""
    said, ask = entry["disclosure"], case.exchanges.all.get(entry["exchange"])
    source = case.exchanges.all.get(entry["uploads"])
    if said not in list(Disclosure) or ask is None or source is None:
        _fail(entry, "is of no such exchange")
    if not ask.of(said, Step.OPEN):
        _fail(entry, "was opened, and nobody asked for it")
    later = said == Disclosure.WEIGHTED_SUM  # its rows are opened for an Ask that hands them out
    fits = source is ask if not later else source.number < ask.number and source.round == ask.round
    if not fits or not source.of(said, Step.UP):
        _fail(entry, "is of uploads from elsewhere")
    return source


def _counted(case: Case, entry: Entry, source: Asked) -> None:
    """Check that a result counts just the uploads that the aggregator had received."""
    ask = case.exchanges.all[entry["exchange"]]
    if entry["survivors"] < case.plan.smallest_cohort:
        _fail(entry, f"is over {entry['survivors']} clients")
    cohort = ask.sents[0].facts["cohort"]
    wanted = (ask.number, ask.round, cohort, len(source.members), len(source.arrived))
    if facts_of(entry) != wanted:
        _fail(entry, "is not over the uploads that had arrived")
    if source is not ask and not ask.members <= source.arrived:
        _fail(entry, "was handed to clients that gave nothing")


def _witnessed(case: Case) -> dict[tuple[str, int], list[Told]]:
    """Return what witnesses signed, by disclosure and exchange; each upload once a witness."""
    found: dict[tuple[str, int], list[Told]] = defaultdict(list)
    once: set[tuple[str, str, int]] = set()
    for party, entry in case.ledger_index.of_kind("witness"):
        if case.roster.party(party).role is not Role.WITNESS:
            _fail(entry, f"was witnessed by {party}, which is no witness")
        place = (party, entry["disclosure"], entry["uploads"])
        if place in once:
            _fail(entry, f"was witnessed twice by {party} (O4)")
        once.add(place)
        found[entry["disclosure"], entry["exchange"]].append((party, entry))
    return found


def _signed(case: Case, entry: Entry, seen: dict[tuple[str, int], list[Told]]) -> None:
    """Check that as many witnesses as the policy asks for signed what was opened, before it."""
    said, number = entry["disclosure"], entry["exchange"]
    wanted = _wanted(case, said)
    same = ("digest", "cohort", "round", "members", "survivors", "uploads")
    ask, good = case.exchanges.all[number], set()
    for party, told in seen.get((said, number), []):
        if all(told[name] == entry[name] for name in same):
            sent = [s for s in ask.of(said, Step.WITNESSED) if s.party == party]
            if sent and sent[0].seq > told["seq"]:
                good.add(party)
    if len(good) < wanted:
        _fail(entry, f"was witnessed by {len(good)} of the policy's {wanted} (O4)")


def _returned(case: Case, told: Told) -> None:
    """Every opened result that left the authority stands behind a durable entry."""
    party, entry = told
    ask = case.exchanges.all[entry["exchange"]]
    sent = [s for s in ask.of(entry["disclosure"], Step.OPENED) if s.party == party]
    if any(s.seq < entry["seq"] for s in sent):
        _fail(entry, "left before it was recorded")
    if not sent and not ask.cut:
        _fail(entry, "was opened and never returned")


def _one_set(entry: Entry, source: Asked, before: list[Asked]) -> None:
    """Hold a round to one set of survivors (O5).

    Results of one Ask's answers are over the same clients whatever they are: each, and its sum, is
    over just those whose whole answers had arrived.
    """
    for other in before:
        if source.arrived & other.arrived and source.arrived != other.arrived:
            _fail(entry, "overlaps another cohort of its round (O5)")
    before.append(source)


def _weights(case: Case, number: int, source: Asked) -> bool:
    """Tell whether the aggregator wrote down whose weights were flattened (O10).

    Real weights are known to it alone, so that a row was *not* flattened is its word.
    """
    found = [t for t in case.ledger_index.of_kind("weights") if t[1]["exchange"] == number]
    return len(found) == 1 and all(
        party == case.exchanges.aggregator
        and entry["uploads"] == source.number
        and entry["receivers"] == len(source.arrived)
        and set(entry["flattened"]) <= source.arrived
        for party, entry in found
    )


def _tables(case: Case, seen: dict[tuple[str, int], list[Told]]) -> None:
    """Hold the aggregator to what witnesses saw of its weights (O10).

    It may count rows that no witness was shown, because they were lost on the way; never fewer.
    """
    told = {
        e["exchange"]: e
        for p, e in case.ledger_index.of_kind("weights")
        if p == case.exchanges.aggregator
    }
    for (_, number), entries in seen.items():
        for party, entry in entries:
            if "table" not in entry:
                continue
            own = told.get(number)
            same = own is not None and all(own[n] == entry[n] for n in ("group", "table"))
            if own is None or not same:
                _fail(entry, f"rests on other weights than {party} was shown (O10)")
            if own["rank"] < entry["rank"] or own["solved"] < entry["solved"]:
                _fail(entry, f"tells more of single clients than recorded, {party} says (O10)")


def _stray(case: Case, once: set[tuple[str, int]]) -> None:
    """Results that left the authority are those that it recorded; nothing else did."""
    for sent in case.ledger_index.releases():
        if sent.step is not Step.OPENED or sent.part is Disclosure.SUM:
            continue
        told = [
            e
            for party, e in case.ledger_index.of_kind("open")
            if party == sent.party
            and e["exchange"] == sent.exchange
            and e.get("disclosure") == sent.part
            and (e["disclosure"], e["uploads"]) in once
        ]
        if len(told) != 1:
            fail("opened", f"exchange {sent.exchange} left {sent.party} unrecorded")
