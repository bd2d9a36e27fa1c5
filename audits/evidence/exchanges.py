"""The Asks of a run as its ledgers tell them: who was asked, and whose answers count."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from math import inf
from typing import Any

from audits.evidence.asked import Asked
from audits.evidence.ledger_index import LedgerIndex, Sent
from crypto.errors import CryptoError
from protocols.disclosures.names import Disclosure
from protocols.disclosures.sum.addressed import whose_turn
from protocols.errors import NotInPlan, SecureFglError
from protocols.evidence.ledger import Entry
from protocols.keys.groups import Group, epoch_of, slot_of
from protocols.plan.cohorts import drawn_cohorts
from protocols.plan.plan import Item, Plan
from protocols.plan.steps import Part, Service, Step
from protocols.policy.policy import PrivacyPolicy
from protocols.wire.roles import Role
from protocols.wire.roster import Roster

ANSWERS: dict[Step | None, tuple[Step, ...]] = {
    Step.HALFWAY: (Step.ONWARD,),
    Step.TAGGED: (Step.TAGS,),
    Step.TOLD: (Step.SPLIT, Step.TAKEN),
    Step.MATES: (Step.PART,),
}
"""What a client answers to each step of matching; one of these, by the form."""
_ELSEWHERE = (Disclosure.SUM, Disclosure.WEIGHTED_SUM)
"""Whose openings are told otherwise: a total's, and rows' before the Ask that hands them out."""
_WEIGHED = (Step.WITNESS, Step.WITNESSED, Step.OPEN)


class Exchanges:
    """All Asks of a run, by number, and what each epoch's keys were agreed on with.

    Args:
        ledger_index: the ledgers.
        plan, policy, roster, run: the run's documents.
    """

    def __init__(
        self, ledger_index: LedgerIndex, plan: Plan, policy: PrivacyPolicy, roster: Roster, run: str
    ) -> None:
        self._ledger_index, self._plan, self._policy, self._run = ledger_index, plan, policy, run
        self.aggregator = roster.one(Role.AGGREGATOR).name
        self._steps = sorted(s.seq for s in ledger_index.releases() if s.party == self.aggregator)
        self._opens, self._lists = (
            ledger_index.by_exchange("open"),
            ledger_index.by_exchange("survivors"),
        )
        self._celled = [e for p, e in ledger_index.of_kind("match") if p == self.aggregator]
        self._keying: dict[tuple[Part | None, Step | None, int], list[Sent]] = {}
        for sent in ledger_index.releases():
            if sent.keying:
                place = (sent.part, sent.step, self.epoch(sent.round))
                self._keying.setdefault(place, []).append(sent)
        self._groups: dict[tuple[int, tuple[str, ...]], Group | None] = {}
        self._roster = roster
        self._ready: dict[int, dict[str, int]] = {}
        self._slots: dict[tuple[str, int, str], int] = {}  # sums of an Ask's name, round, client
        self.all = {
            number: self._read(number) for number in ledger_index.exchanges if self._sents(number)
        }

    def _sents(self, number: int) -> list[Sent]:
        others = (Service.REFUSAL, Service.HEADS, Service.BUDGET, Service.TOTALS)
        found = self._ledger_index.releases_of(number)
        return [s for s in found if not s.keying and s.part not in others]

    def _read(self, number: int) -> Asked:
        ledger_index, sents = self._ledger_index, self._sents(number)
        downs = [s for s in sents if s.step is Step.DOWN]
        rows = (s for s in sents if s.part is Disclosure.WEIGHTED_SUM and s.step in _WEIGHED)
        name = next((s.ask for s in (*downs, *rows)), "")
        items = [item for item in self._plan.items if item.exchange == name]
        planned = {(item.part, item.step) for item in items}
        summed = (Disclosure.SUM, Step.UP) in planned
        masked = (Disclosure.SUM, Step.SURVIVORS) in planned
        answered = self._arrived(downs, sents, items)
        members = frozenset(s.recipient for s in downs)
        relayed = {part for part, step in planned if step is Step.RELAY}
        return Asked(
            number=number,
            name=name,
            round=sents[0].round,
            members=members,
            arrived=answered - self._left_matching(sents),
            answered=answered,
            sents=tuple(sents),
            opens=tuple(self._opens.get(number, ())),
            listed={s.recipient: s for s in sents if s.step is Step.SURVIVORS},
            voted={s.party: s for s in sents if s.step is Step.VOTE},
            shown={s.recipient: s for s in sents if s.step is Step.VOTES},
            gave={s.party: s for s in sents if s.step is Step.SHARES},
            whole={s.recipient: s for s in sents if s.step is Step.ALL_HERE},
            served={s.party: s for s in sents if s.step is Step.SELF_SHARES},
            summed=summed,
            masked=masked,
            protected=summed and (masked or (Disclosure.SUM, Step.OPEN) in planned),
            awaited=frozenset(
                str(part) for part, step in planned if step is Step.OPEN and part not in _ELSEWHERE
            ),
            results=frozenset(
                str(s.part)
                for s in sents
                if s.step is Step.OPENED
                and s.part is not Disclosure.SUM
                and ledger_index.receipt(s, self.aggregator) is not None
            ),
            rows=(Disclosure.WEIGHTED_SUM, Step.OPEN) in planned,
            relayed=bool(relayed),
            pooled=relayed
            <= {
                s.part
                for s in sents
                if s.step is Step.RELAYED and ledger_index.receipt(s, self.aggregator) is not None
            },
            matched=(Disclosure.MATCH, Step.COMPARE) in planned,
            celled=any(e["exchange"] == number for e in self._celled),
            by=self.aggregator,
            cut=ledger_index.in_cut(sents[0]),
            reader=self._reader(name, sents[0].round, members, items),
        )

    def _reader(self, name: str, round: int, members: frozenset[str], items: Sequence[Item]) -> str:
        """Return whose turn it was to read an Ask's total: all in turn, by name (O11)."""
        item = next((item for item in items if item.reader), None)
        if item is None:
            return ""
        # As masks have it: turns of what is asked outside the rounds go on over all of them.
        place = name, slot_of(item, round, 0).round
        slot = max((self._slots.get((*place, member), 0) for member in members), default=0)
        self._slots.update({(*place, member): slot + 1 for member in members})
        return whose_turn(members, slot)

    def _arrived(
        self, downs: list[Sent], sents: list[Sent], items: Sequence[Item]
    ) -> frozenset[str]:
        """Return whose answers were all received before the aggregator's next step."""
        answers = [i.id for i in items if i.step is Step.UP]
        answers = answers or [i.id for i in items if i.step is Step.ACK]
        if not answers:
            return frozenset()
        until, here = self.next_step(max((s.seq for s in downs), default=-1)), set()
        for sent in sents:
            seq = self._ledger_index.receipt(sent, self.aggregator)
            if seq is not None and seq < until:
                here.add((sent.party, sent.item))
        members = {s.recipient for s in downs}
        return frozenset(m for m in members if all((m, item) in here for item in answers))

    def _left_matching(self, sents: list[Sent]) -> frozenset[str]:
        """Return the clients of which an answer never arrived while items were matched."""
        said = {
            (s.party, s.step)
            for s in sents
            if s.part in (Disclosure.MATCH, Disclosure.ROW_SUM)
            and self._ledger_index.receipt(s, self.aggregator) is not None
        }
        asked = [(s.recipient, ANSWERS.get(s.step, ())) for s in sents]
        return frozenset(n for n, steps in asked if steps and not {(n, p) for p in steps} & said)

    def next_step(self, seq: int) -> float:
        """Return the number of the aggregator's first release after an entry of its own."""
        place = bisect_right(self._steps, seq)
        return self._steps[place] if place < len(self._steps) else inf

    def lists(self, number: int) -> list[tuple[str, Entry]]:
        """Return (party, entry) of every survivor list that was recorded in an exchange."""
        return self._lists.get(number, [])

    # --- keys -----------------------------------------------------------------------------------

    def keying(self, part: Part | None, step: Step | None, epoch: int) -> list[Sent]:
        """Return the releases of one step of an epoch's keys."""
        return self._keying.get((part, step, epoch), [])

    def epoch(self, round: int) -> int:
        """Return the epoch of a round."""
        return epoch_of(round, self._policy)

    @cached_property
    def cohorts(self) -> tuple[tuple[str, ...], ...]:
        """The cohorts that lots drew, as the aggregator recorded them; empty without any."""
        entries = (e for p, e in self._ledger_index.of_kind("drawn") if p == self.aggregator)
        entry = next(entries, None)
        return drawn_by(entry, self._plan, self._roster) if entry is not None else ()

    def cohort_of(self, name: str) -> tuple[str, ...]:
        """Return the drawn cohort of a client; empty if it is in none."""
        return next((cohort for cohort in self.cohorts if name in cohort), ())

    def group(self, round: int, members: Iterable[str] = ()) -> Group | None:
        """Return who was paired with whom in an epoch; None if nobody was called.

        Where lots drew cohorts, it is the group of these members, or of the first cohort.
        """
        epoch = self.epoch(round)
        cohort = self.cohort_of(next(iter(sorted(members)), "")) or next(iter(self.cohorts), ())
        if (epoch, cohort) not in self._groups:
            called = self.keying(Service.PAIRS, Step.CALL, epoch)
            # Clients agree on keys with all or with nobody, whomever a ledger says it called.
            names = (cohort or self._roster.clients) if called else ()
            within = None
            if cohort and self._plan.drawn is not None:
                drew = sum(map(len, self.cohorts))
                within = self._plan.drawn.left(drew, self._policy).within
            facts = self._policy, within
            made = Group.of(self._run, epoch, names, *facts) if names else None
            self._groups[epoch, cohort] = made
        return self._groups[epoch, cohort]

    def ready(self, round: int) -> dict[str, int]:
        """Return who agreed on an epoch's secrets -> the entry with which the aggregator knew."""
        epoch = self.epoch(round)
        if epoch not in self._ready:
            rows = {s.party: s for s in self.keying(Service.PAIRS, Step.ROWS, epoch)}
            told = {
                name: self._ledger_index.receipt(s, self.aggregator) for name, s in rows.items()
            }
            self._ready[epoch] = {name: seq for name, seq in told.items() if seq is not None}
        return self._ready[epoch]

    def gone(self, ask: Asked) -> frozenset[str]:
        """Return who had vanished from a round when an Ask's answers were in."""
        before = (a for a in self.all.values() if a.round == ask.round and a.number <= ask.number)
        return frozenset(name for a in before for name in a.vanished)

    def arrivals(self, sents: Iterable[Sent], until: float = inf) -> dict[str, Sent]:
        """Return sender -> release, of those that the aggregator received before an entry of it."""
        told = {s: self._ledger_index.receipt(s, self.aggregator) for s in sents}
        return {s.party: s for s, seq in told.items() if seq is not None and seq < until}

    def shares(self, ask: Asked, until: float = inf) -> dict[str, int]:
        """Return, per member, of how many holders shares of it were here (before an entry)."""
        group, found = self.group(ask.round, ask.members), dict.fromkeys(ask.members, 0)
        if group is None:
            return found
        for holder in self.arrivals((*ask.gave.values(), *ask.served.values()), until):
            for owner in _held(group, holder):
                if owner in found:
                    found[owner] += 1
        return found


def _held(group: Group, holder: str) -> tuple[str, ...]:
    try:
        return group.holders(holder)  # holding is mutual
    except NotInPlan:
        return ()


def drawn_by(entry: Entry, plan: Plan, roster: Roster) -> tuple[tuple[str, ...], ...]:
    """Return the cohorts of a ``drawn`` entry; empty if it can be of no draw of this plan."""
    try:
        seed, bits = bytes.fromhex(entry["seed"]), bytes.fromhex(entry["members"])
        count = plan.drawn.cohorts if plan.drawn is not None else 0
        return drawn_cohorts(seed, roster.unmask(bits), count)
    except (ValueError, SecureFglError, CryptoError):
        return ()


def facts_of(entry: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return what an ``open`` or ``survivors`` entry says of its sum."""
    return tuple(entry[name] for name in ("exchange", "round", "cohort", "members", "survivors"))
