"""The client's session between Asks: the keys of an epoch, and the shares it holds for others.

This is where a client defends itself against an aggregator that lies about who is there. It votes
for one survivor list per sum and never for two that contradict each other in a round (O5), and it
gives shares only after more than half of everybody's holders have signed the very same list: an
aggregator that tells each holder another story gets shares from none (Bonawitz et al. 2017,
consistency check; O7; on sparse graphs see `protocols.keys.groups.Group.voters`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import numpy as np

from protocols.disclosures.names import Disclosure
from protocols.disclosures.sum.consistency_votes import ballot_of, check_evidence, check_votes
from protocols.disclosures.sum.guards import encryption
from protocols.errors import BadEnvelope, LocalProtocolError
from protocols.evidence.ledger import Ledger
from protocols.forms import Exchange
from protocols.keys.groups import Group, Slot, epoch_of, planned_degree, slot_of, slots
from protocols.keys.pairs import Pairs
from protocols.plan.steps import Service, Step
from protocols.policy.budget import Budget, Unit, budget_key
from protocols.policy.guard import find
from protocols.privacy.noising import run_divergence
from protocols.privacy.private_steps import check_training
from protocols.privacy.training import training_divergence
from protocols.sessions.answering import AnsweringSession
from protocols.sessions.base import Parcel
from protocols.sessions.table import Event
from protocols.wire.cohorts import as_set, within
from protocols.wire.control import (
    PairBoxes,
    PairCall,
    PairDown,
    PairRows,
    Shares,
    Survivors,
    Vote,
    Votes,
)
from protocols.wire.inbox import Letter
from protocols.wire.roster import Role
from protocols.wire.run_context import Papers
from protocols.wire.where import Where

_Members = int  # a set of clients: bit i is client i of the roster


class HoldingSession(AnsweringSession):
    """What a client does for the sums of an epoch beside answering."""

    def __init__(self, papers: Papers, ledger: Ledger, rounding: bytes) -> None:
        super().__init__(papers, ledger, rounding)
        self._latest = (0, 0)  # (exchange, round) of the last Ask accepted
        self._key_epoch = self._pair_epoch = -1
        # All of one epoch, by name and number of the exchange: sums that this client answered, and
        # lists that it voted for with what it signed; by round and by slot: what the lists said.
        self._uploads: dict[tuple[str, int], Where] = {}
        self._ballots: dict[tuple[str, int], tuple[Where, tuple[str, ...], bytes]] = {}
        self._lists: dict[str, list[tuple[_Members, _Members]]] = {}
        papers.pairs = None  # a new session agrees on new secrets (O6)
        if not any(item.part in (Service.KEYS, Service.PAIRS) for item in papers.plan.items):
            self.move(Event.BEGIN)
        if any(item.noise is not None for item in papers.plan.items):
            self._reserve("client", run_divergence(papers.plan), papers.policy.budget)
        self._trained = (0, 0)  # rounds whose training was private, and the last of them
        check_training(papers.plan, papers.policy)
        if papers.plan.training is not None and papers.policy.training is not None:
            if papers.training is None or papers.training.plan != papers.plan.training:
                raise LocalProtocolError("This client has nothing to draw private batches with.")
            curve, cap = training_divergence(papers.plan.training), papers.policy.training.budget
            self._reserve(papers.plan.training.unit, curve, cap)

    def _reserve(self, unit: Unit, rdp: Sequence[float], cap: Budget | None) -> None:
        """Take the whole run's spending from the site's budget before any noise is drawn (O20)."""
        papers = self.papers
        if papers.reserve is None or cap is None:
            raise LocalProtocolError("This client has no privacy budget to draw noise from.")
        key = budget_key(papers.plan.data.name, unit)
        facts = papers.reserve(dataset=key, run=papers.run, rdp=rdp, cap=cap)
        self.ledger.record("budget", facts if unit == "client" else {**facts, "unit": unit})

    def _open_training(self, exchange: Exchange, where: Where) -> None:
        """Allow a round's noised gradients, once, and put that into the ledger.

        The entry is durable before anything computed from these gradients leaves, like any other.
        """
        training, (rounds, latest) = self.papers.training, self._trained
        if training is None or not exchange.per_round or where.round == latest:
            return
        training.open(where.round, rounds)
        self._trained = (rounds + 1, where.round)
        self.ledger.record("training", training.facts(where.round))

    def _check_trained(self, exchange: Exchange) -> None:
        """Refuse an answer that should come from noised gradients if none was taken."""
        training = self.papers.training
        learnt = exchange.per_round and not set(exchange.back) <= set(exchange.held_out)
        if training is not None and learnt and not training.taken:
            raise LocalProtocolError(
                f"Training in {exchange.name!r} took no noised gradient; nothing was sent."
            )

    def die(self, error: BaseException) -> None:
        """End the session for good and forget the pair secrets."""
        super().die(error)
        self.papers.pairs = None

    def close(self, result: Mapping[str, str] | None = None) -> None:
        """Forget the pair secrets, record the last entry and end."""
        self.papers.pairs = None
        super().close(result)

    def _new_epoch(self, letter: Letter, before: int) -> int:
        """Return the epoch that keys are for; they only ever come for a later one."""
        epoch = epoch_of(letter.header.round, self.papers.policy)
        if epoch <= before or letter.header.round < self._latest[1]:
            raise BadEnvelope("Keys arrived for an epoch that has its keys already (O9).")
        return epoch

    def _take_key(self, letter: Letter) -> list[Parcel]:
        self._key_epoch = self._new_epoch(letter, self._key_epoch)
        self.move(Event.KEY)
        self._keep_keys(letter)
        return []

    def _take_call(self, letter: Letter) -> list[Parcel]:
        """Draw this epoch's secrets; seal for each neighbour its half and its shares."""
        papers = self.papers
        (call,) = self._inbox.read(letter, (PairCall,))
        epoch = self._new_epoch(letter, self._pair_epoch)
        self.move(Event.PAIR)
        called = papers.roster.unmask(call.members) if isinstance(call, PairCall) else ()
        if called != papers.roster.clients:
            # Who chose the called could choose everybody's neighbours.
            raise BadEnvelope("A call for an epoch's keys does not name all clients.")
        self._uploads.clear()
        self._ballots.clear()  # votes of one epoch must not open a slot of the next
        self._lists.clear()
        group = Group.of(papers.run, epoch, called, papers.policy)
        places = slots(papers.plan.items, papers.plan.rounds, papers.policy, epoch)
        width = planned_degree(len(papers.plan.clients), papers.policy)
        papers.pairs = Pairs(papers.me, papers.roster, group, places, width)
        self._pair_epoch = epoch
        return [self._control(Step.BOXES, PairBoxes(boxes=papers.pairs.boxes()), letter)]

    def _take_pairs(self, letter: Letter) -> list[Parcel]:
        """Open the neighbours' boxes, check who sealed them, and leave the locked rows."""
        self.move(Event.PAIR)
        papers = self.papers
        (down,) = self._inbox.read(letter, (PairDown,))
        epoch = epoch_of(letter.header.round, papers.policy)
        if not isinstance(down, PairDown) or papers.pairs is None or epoch != self._pair_epoch:
            raise BadEnvelope("Pair secrets arrived that were not asked for.")
        there = papers.roster.unmask(down.members)
        papers.policy.check_cohort(len(there))
        papers.pairs.take(down.boxes, there)
        return [self._control(Step.ROWS, PairRows(rows=papers.pairs.rows()), letter)]

    def _control(self, step: Step, message: PairBoxes | PairRows, letter: Letter) -> Parcel:
        header = letter.header
        where = Where(round=header.round, exchange=header.exchange)
        item = self.papers.find("", Service.PAIRS, step)
        return self.send(item, [message], self.papers.roster.one(Role.AGGREGATOR).name, where)

    def _check_sum(self, name: str, where: Where) -> None:
        """Check, before anything is computed, that a sum's keys and cohort are as they must be."""
        papers = self.papers
        chain, epoch = papers.policy.chain(Disclosure.SUM), epoch_of(where.round, papers.policy)
        if encryption(chain):
            self._check_key(where)
        if find(chain, "mask"):
            if papers.pairs is None or self._pair_epoch != epoch:
                raise BadEnvelope("A sum is asked for without the pair secrets of its epoch.")
            papers.pairs.check_members(where.members, papers.policy.smallest_cohort)
        if find(chain, "unsafe_clear") is None:
            self._one_cohort(where)
        self._uploads[name, where.exchange] = where

    def _check_key(self, where: Where) -> None:
        """Refuse, before anything is computed, an Ask under the keys of another epoch."""
        if self._key_epoch != epoch_of(where.round, self.papers.policy):
            raise BadEnvelope("A sum is asked for under the key of another epoch (O9).")

    def _one_cohort(self, where: Where) -> None:
        """Answer sums of one round for one cohort only: two would be subtracted (O5).

        Only clients that vanished, by a list that this client was shown, may be missing later.
        """
        cohorts = [
            self._set(other.members)
            for other in self._uploads.values()
            if other.round == where.round
        ]
        listed, me = self._lists.get(_round(where), []), self._set((self.name,))
        cohorts += [left for asked, left in listed if me & asked]
        if cohorts and self._set(where.members) != cohorts[-1]:
            raise BadEnvelope("Two different cohorts are summed in one round (O5).")

    def _vote(self, letter: Letter) -> list[Parcel]:
        """Check a survivor list, record it, and vote for it: this client will serve no other."""
        self.move(Event.SHARE)
        papers, header, name = self.papers, letter.header, letter.item.exchange
        (found,) = self._inbox.read(letter, (Survivors,))
        if not isinstance(found, Survivors) or papers.pairs is None:
            raise BadEnvelope("A survivor list arrived, and this client holds no shares.")
        members = papers.roster.unmask(found.members)
        survivors = papers.roster.unmask(found.survivors)
        where = Where(
            header.round, header.exchange, members, header.given, header.attempt, found.slot
        )
        _refuse_unless(
            header.cohort == papers.cohort(where) and within(survivors, as_set(members)),
            "A survivor list names clients outside its cohort.",
        )
        upload = papers.find(name, Disclosure.SUM, Step.UP)
        slot = slot_of(upload, where.round, where.slot)
        self._check_list(name, where, survivors, slot)
        pairs = papers.pairs.agreement(slot)
        self._check_evidence(name, where, survivors, found, pairs)
        ballot = ballot_of(papers, name, where, survivors, pairs)
        facts = {
            "cohort": header.cohort,
            "exchange": header.exchange,
            "list": hashlib.sha256(ballot).hexdigest(),
            "members": len(members),
            "round": header.round,
            "survivors": len(survivors),
        }
        self.ledger.record("survivors", facts)
        self._ballots[name, where.exchange] = (where, survivors, ballot)
        vote = Vote(signature=papers.me.signing.sign("survivors", ballot))
        item = papers.find(name, Disclosure.SUM, Step.VOTE)
        return [self.send(item, [vote], header.sender, where)]

    def _give_shares(self, letter: Letter) -> list[Parcel]:
        """Give one share per client once enough others voted for the very same list (O7)."""
        self.move(Event.SHARE)
        papers, header, name = self.papers, letter.header, letter.item.exchange
        (found,) = self._inbox.read(letter, (Votes,))
        known = self._ballots.pop((name, header.exchange), None)
        if not isinstance(found, Votes) or papers.pairs is None or known is None:
            raise BadEnvelope("Votes arrived for a survivor list that this client did not see.")
        where, survivors, ballot = known
        current = epoch_of(where.round, papers.policy) == self._pair_epoch
        same = header.cohort == papers.cohort(where) and header.round == where.round
        _refuse_unless(
            same and current and where.round >= self._latest[1],
            "Votes belong to another sum than the survivor list, or to one that is over.",
        )
        self._check_votes(found, ballot)
        upload = papers.find(name, Disclosure.SUM, Step.UP)
        slot = slot_of(upload, where.round, where.slot)
        shares = Shares(shares=papers.pairs.give(slot, where.members, survivors))
        item = papers.find(name, Disclosure.SUM, Step.SHARES)
        return [self.send(item, [shares], header.sender, where)]

    def _check_votes(self, found: Votes, ballot: bytes) -> None:
        """See that of everybody whose shares this client holds a quorum signed this very list."""
        papers = self.papers
        if papers.pairs is None:
            raise LocalProtocolError("This client holds no shares.")
        group = papers.pairs.group
        voted = check_votes(papers, ballot, group.voters(self.name), found.signatures)
        _refuse_unless(
            group.fewest(voted, self.name) >= group.quorum,
            "Too few clients confirmed the survivor list.",
        )

    def _check_evidence(
        self, name: str, where: Where, survivors: tuple[str, ...], found: Survivors, pairs: str
    ) -> None:
        """See what the survivors whose shares this client holds signed over their uploads."""
        if self.papers.pairs is None:
            raise LocalProtocolError("This client holds no shares.")
        holders = self.papers.pairs.group.holders(self.name)
        there, owners = as_set(survivors), list(holders)
        rows = np.asarray(found.evidence)[: len(holders)]
        if not there.issuperset(holders):
            places = [place for place, owner in enumerate(holders) if owner in there]
            owners, rows = [holders[place] for place in places], rows[places]
        check_evidence(self.papers, name, where, pairs, owners, rows)

    def _check_list(self, name: str, where: Where, survivors: tuple[str, ...], slot: Slot) -> None:
        papers = self.papers
        papers.policy.check_cohort(len(survivors))
        group = papers.pairs.group if papers.pairs is not None else None
        enough = group is not None and len(survivors) >= group.least
        _refuse_unless(enough, "A survivor list holds too few beside the corrupt (O10).")
        whole = group is not None and group.thinnest(survivors) >= group.window
        _refuse_unless(whole, "A survivor list could cut the clients' graph in two.")
        _refuse_unless(
            where.attempt == 1 and epoch_of(where.round, papers.policy) == self._pair_epoch,
            "A survivor list is for another epoch or attempt.",
        )
        _refuse_unless(
            where.round >= self._latest[1], "A survivor list is for a round that is over."
        )
        mine = self._uploads.get((name, where.exchange))
        counted = self.name in as_set(survivors)
        if mine is None:
            _refuse_unless(
                not counted
                and (self.name not in as_set(where.members) or where.exchange > self._latest[0]),
                "A survivor list counts a sum that this client did not send.",
            )
        else:
            _refuse_unless(
                mine == where and counted,
                "A survivor list does not fit what this client sent.",
            )
        for place in (_round(where), slot.label):
            self._one_list(place, self._set(where.members), self._set(survivors))
        self._latest = (max(self._latest[0], where.exchange), where.round)

    def _set(self, names: Sequence[str]) -> _Members:
        # n clients remember sets of n clients: as bits they are a hundredth of the size.
        return int.from_bytes(self.papers.roster.mask(names), "little")

    def _one_list(self, place: str, members: _Members, survivors: _Members) -> None:
        """Hold all lists of a round, and all of a slot, to one set of survivors (O5)."""
        for asked, left in self._lists.get(place, []):
            common = asked & members
            _refuse_unless(
                survivors & common == left & common,
                "Two survivor lists of one round contradict each other (O5).",
            )
        self._lists.setdefault(place, []).append((members, survivors))


def _round(where: Where) -> str:
    return f"round {where.round}"


def _refuse_unless(holds: bool, what: str) -> None:
    if not holds:
        raise BadEnvelope(what, why="the aggregator lies about who is there, or is out of step")
