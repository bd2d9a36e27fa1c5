"""What client and key authority do to open a total."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from crypto.errors import CryptoError
from crypto.masks import MaskSum
from protocols.disclosures._base.client import OneCohort
from protocols.disclosures._evaluated.parties import CutSigning
from protocols.disclosures.names import Disclosure
from protocols.disclosures.sum.addressed import AddressedView, TotalReading, missing, reader_of
from protocols.disclosures.sum.consistency import (
    check_evidence,
    check_left,
    check_votes,
    list_facts,
    listed_sum,
    refuse_unless,
    vote_text_of,
)
from protocols.disclosures.sum.guards import encryption
from protocols.disclosures.sum.masks import Unmasking
from protocols.disclosures.sum.messages import (
    AllHere,
    Opened,
    OpenRequest,
    SelfShares,
    Shares,
    Vote,
    Votes,
)
from protocols.disclosures.sum.messages import Survivors as SurvivorList
from protocols.disclosures.sum.view import Summands, TotalView
from protocols.errors import BadEnvelope, LocalProtocolError
from protocols.forms import Exchange
from protocols.keys.groups import Slot, one_answer, slot_of
from protocols.keys.pairs import Pairs
from protocols.messages import Vector
from protocols.plan.steps import Step
from protocols.policy.guard import find
from protocols.sessions.clusters import ClusterHistory
from protocols.sessions.engine import Answering, Progress
from protocols.sessions.epoch_keys import PairSecrets, PublicKeys, SecretKeys
from protocols.sessions.part import Delivery, Engine, Event, Scope, SessionPart, Takes
from protocols.sessions.survivors import CohortHistory, Openings
from protocols.wire.envelope import Where
from protocols.wire.inbox import Incoming, Wanted, place_of, verified
from protocols.wire.roster import as_set

# The client's part in sums beside its answer: cohorts, votes, and shares held for others.
#
# This is where a client defends itself against an aggregator that lies about who is there. It votes
# for one survivor list per sum and never for two that contradict each other in a round (O5); over
# the run it serves no totals from which the policy's `cohort_changes` keeps few clients' to be
# told; and it gives shares only after more than half of everybody's holders have signed the very
# same list: an aggregator that tells each holder another story gets shares from none (Bonawitz et
# al. 2017, consistency check; O7; on sparse graphs see `protocols.keys.groups.Group.voters`). Where
# nobody is missing it votes and gives its shares of self-masks in one answer, and serves no other
# list of that slot (`protocols.keys.groups`).

_Members = int  # a set of clients: bit i is client i of the roster


class ShareHolding(SessionPart):
    """Holds a round to one survivor list, and gives shares for that list only.

    Args:
        engine: the session.
        cohorts: of the round's Asks.
        progress: how far this client is.
        keys: this epoch's public keys.
        pairs: this epoch's pair secrets.
        history: who was in the run's sums so far, as this client was told.
        clusters: into which clients fell so far, likewise.
        reading: draws the blinds of totals that this client reads.
    """

    called: ClassVar[str] = "holding"

    def __init__(
        self,
        engine: Engine,
        cohorts: OneCohort,
        progress: Progress,
        keys: PublicKeys,
        pairs: PairSecrets,
        history: CohortHistory,
        clusters: ClusterHistory,
        reading: TotalReading,
    ) -> None:
        super().__init__(engine)
        self._cohorts, self._progress, self._keys, self._pairs = cohorts, progress, keys, pairs
        self._history, self._clusters, self._reading = history, clusters, reading
        # All of one epoch, by name and number of the exchange: sums that this client answered, and
        # lists that it voted for with what it signed; by round and by slot: what the lists said.
        self._uploads: dict[tuple[str, int], Where] = {}
        self._vote_texts: dict[tuple[str, int], tuple[Where, tuple[str, ...], bytes]] = {}
        self._lists: dict[str, list[tuple[_Members, _Members]]] = {}

    def forget(self, scope: Scope) -> None:
        """Drop an epoch's votes and lists: its votes must not open a slot of the next."""
        if scope is Scope.EPOCH:
            self._uploads.clear()
            self._vote_texts.clear()
            self._lists.clear()

    def keys_here(self, exchange: Exchange, round: int) -> None:
        """See that the key is here under which a sum is asked for."""
        summed = any(kind.disclosure is Disclosure.SUM for kind in exchange.back)
        if summed and encryption(self._context.policy.chain(Disclosure.SUM)):
            self._keys.check(round)

    def asked_back(self, exchange: Exchange, where: Where) -> None:
        """Check, before anything is computed, that a sum's cohort is as it must be."""
        if not any(kind.disclosure is Disclosure.SUM for kind in exchange.back):
            return
        context, chain = self._context, self._context.policy.chain(Disclosure.SUM)
        if find(chain, "mask"):
            pairs = self._pairs.agreed(where.round)
            if pairs is None:
                raise BadEnvelope("A sum is asked for without the pair secrets of its epoch.")
            pairs.check_members(where.members, context.policy.smallest_cohort)
        if find(chain, "unsafe_clear") is None:
            self._cohorts.hold(where.round, where.members)
        self._history.serve(where.members)
        self._uploads[exchange.name, where.exchange] = where

    def _vote(self, incoming: Incoming) -> list[Delivery]:
        """Check a survivor list, record it, and vote for it: this client will serve no other."""
        self._engine.move(Event.STEP)
        context, name = self._context, incoming.item.exchange
        found = self._engine.read_one(incoming, SurvivorList)
        where, survivors, slot = listed_sum(context, incoming, found, found.survivors)
        refuse_unless(
            not self._pairs_held().gave(slot, where.members),
            "A survivor list came for a slot of which shares were given (O7).",
        )
        vote_text = self._confirm(incoming, where, survivors, found.evidence, slot)
        self._vote_texts[name, where.exchange] = (where, survivors, vote_text)
        vote = Vote(signature=context.me.signing.sign("survivors", vote_text))
        item = context.find(name, Disclosure.SUM, Step.VOTE)
        return [self._engine.send(item, [vote], incoming.header.sender, where)]

    def _serve_all(self, incoming: Incoming) -> list[Delivery]:
        """Vote for a list that lacks nobody and serve it at once: self-masks only (ADR 0035).

        From here on this client serves no other list of the slot, nor one that contradicts this in
        the round. The shares of rows are gone with the state that is kept before the answer leaves.
        """
        self._engine.move(Event.STEP)
        context, name, pairs = self._context, incoming.item.exchange, self._pairs_held()
        found = self._engine.read_one(incoming, AllHere)
        where, everybody, slot = listed_sum(context, incoming, found, found.members)
        refuse_unless(
            one_answer(pairs.group, context.policy),
            "Shares are asked for in one answer where only votes keep two lists apart (O7).",
        )
        asked = self._set(where.members)
        refuse_unless(
            not any(earlier & asked for earlier, _ in self._lists.get(slot.label, [])),
            "All are said to be here, after another list of this slot (O7).",
        )
        vote_text = self._confirm(incoming, where, everybody, found.evidence, slot)
        served = SelfShares(
            signature=context.me.signing.sign("survivors", vote_text),
            shares=pairs.give(slot, where.members, everybody),
        )
        item = context.find(name, Disclosure.SUM, Step.SELF_SHARES)
        return [self._engine.send(item, [served], incoming.header.sender, where)]

    def _pairs_held(self) -> Pairs:
        if self._context.pairs is None:
            raise BadEnvelope("A survivor list arrived, and this client holds no shares.")
        return self._context.pairs

    def _confirm(
        self,
        incoming: Incoming,
        where: Where,
        survivors: tuple[str, ...],
        evidence: Vector,
        slot: Slot,
    ) -> bytes:
        """Check a list and its evidence, and record it; return what a vote for it signs."""
        name = incoming.item.exchange
        self._check_list(name, where, survivors, slot)
        pairs = self._pairs_held().agreement(slot)
        self._check_evidence(name, where, survivors, evidence, pairs)
        vote_text = vote_text_of(self._context, name, where, survivors, pairs)
        item = self._context.find(name, Disclosure.SUM, Step.UP)
        refuse_unless(
            not missing(item, where, survivors),
            "A survivor list lacks the one client that may read the total (O11).",
        )
        facts = list_facts(incoming.header.cohort, where, survivors, vote_text)
        if reader := reader_of(item, where):
            facts["reader"] = reader
        self._engine.record("survivors", facts)
        return vote_text

    def _give_shares(self, incoming: Incoming) -> list[Delivery]:
        """Give one share per client once enough others voted for the very same list (O7)."""
        self._engine.move(Event.STEP)
        context, header, name = self._context, incoming.header, incoming.item.exchange
        found = self._engine.read_one(incoming, Votes)
        known = self._vote_texts.pop((name, header.exchange), None)
        if context.pairs is None or known is None:
            raise BadEnvelope("Votes arrived for a survivor list that this client did not see.")
        where, survivors, vote_text = known
        current = self._pairs.agreed(where.round) is not None
        same = header.cohort == context.cohort(where) and header.round == where.round
        refuse_unless(
            same and current and where.round >= self._progress.round,
            "Votes belong to another sum than the survivor list, or to one that is over.",
        )
        self._check_votes(found, vote_text)
        upload = context.find(name, Disclosure.SUM, Step.UP)
        slot = slot_of(upload, where.round, where.slot)
        shares = Shares(shares=context.pairs.give(slot, where.members, survivors))
        item = context.find(name, Disclosure.SUM, Step.SHARES)
        return [self._engine.send(item, [shares], header.sender, where)]

    def _check_votes(self, found: Votes, vote_text: bytes) -> None:
        """See that of everybody whose shares this client holds a quorum signed this very list."""
        context = self._context
        if context.pairs is None:
            raise LocalProtocolError("This client holds no shares.")
        group = context.pairs.group
        voted = check_votes(context, vote_text, group.voters(self._engine.name), found.signatures)
        refuse_unless(
            group.fewest(voted, self._engine.name) >= group.quorum,
            "Too few clients confirmed the survivor list.",
        )

    def _check_evidence(
        self, name: str, where: Where, survivors: tuple[str, ...], evidence: Vector, pairs: str
    ) -> None:
        """See what the survivors whose shares this client holds signed over their uploads."""
        if self._context.pairs is None:
            raise LocalProtocolError("This client holds no shares.")
        holders = self._context.pairs.group.holders(self._engine.name)
        there, owners = as_set(survivors), list(holders)
        rows = np.asarray(evidence)[: len(holders)]
        if not there.issuperset(holders):
            places = [place for place, owner in enumerate(holders) if owner in there]
            owners, rows = [holders[place] for place in places], rows[places]
        check_evidence(self._context, name, where, pairs, owners, rows)

    def _check_list(self, name: str, where: Where, survivors: tuple[str, ...], slot: Slot) -> None:
        context = self._context
        context.policy.check_cohort(len(survivors))
        check_left(self._pairs_held().group, survivors)
        refuse_unless(
            where.attempt == 1 and self._pairs.agreed(where.round) is not None,
            "A survivor list is for another epoch or attempt.",
        )
        current = where.round >= self._progress.round
        refuse_unless(current, "A survivor list is for a round that is over.")
        mine = self._uploads.get((name, where.exchange))
        counted = self._engine.name in as_set(survivors)
        if mine is None:
            refuse_unless(
                not counted
                and (
                    self._engine.name not in as_set(where.members)
                    or where.exchange > self._progress.exchange
                ),
                "A survivor list counts a sum that this client did not send.",
            )
        else:
            refuse_unless(
                mine == where and counted,
                "A survivor list does not fit what this client sent.",
            )
        self._clusters.shown(where.members)
        for place in (f"round {where.round}", slot.label):
            self._one_list(place, self._set(where.members), self._set(survivors))
        for clients in (where.members, survivors):
            self._history.serve(clients)
        if self._engine.name in as_set(where.members):
            self._cohorts.hold(where.round, survivors)
        self._progress.reached(max(self._progress.exchange, where.exchange), where.round)

    def _set(self, names: Sequence[str]) -> _Members:
        # n clients remember sets of n clients: as bits they are a hundredth of the size.
        return int.from_bytes(self._context.roster.mask(names), "little")

    def _one_list(self, place: str, members: _Members, survivors: _Members) -> None:
        """Hold all lists of a round, and all of a slot, to one set of survivors (O5)."""
        for asked, left in self._lists.get(place, []):
            common = asked & members
            # Equal or disjoint: the difference of nested totals is one client's vector.
            apart = survivors == left or not survivors & left
            refuse_unless(
                survivors & common == left & common and apart,
                "Two survivor lists of one round contradict each other (O5).",
            )
        self._lists.setdefault(place, []).append((members, survivors))

    takes: ClassVar[Takes] = {
        (Disclosure.SUM, Step.SURVIVORS): _vote,
        (Disclosure.SUM, Step.VOTES): _give_shares,
        (Disclosure.SUM, Step.ALL_HERE): _serve_all,
    }


CLIENT = ShareHolding


# The key authority's part where it opens blinded totals (O1).


class TotalOpening(SessionPart):
    """Opens totals over cohorts that every member signed.

    Args:
        engine: the session.
        answering: makes durable what is about to be opened.
        keys: the epoch's secret keys.
        openings: what was opened before.
        cohorts: who was in the run's sums so far.
        cuts: holds cohorts to the run's clusters.
    """

    called: ClassVar[str] = "totals"

    def __init__(
        self,
        engine: Engine,
        answering: Answering,
        keys: SecretKeys,
        openings: Openings,
        cohorts: CohortHistory,
        cuts: CutSigning,
    ) -> None:
        super().__init__(engine)
        self._answering, self._keys, self._openings = answering, keys, openings
        self._cohorts, self._cuts = cohorts, cuts

    def _open(self, incoming: Incoming) -> list[Delivery]:
        """Open a blinded total over the cohort that every member signed, once (O1, O5)."""
        self._engine.move(Event.STEP)
        request = self._engine.read_one(incoming, OpenRequest)
        secret = self._keys.of(Disclosure.SUM)
        header, members = incoming.header, self._context.roster.unmask(request.members)
        if self._answering.again:  # only what was signed and recorded before
            self._openings.check_recorded(header, Disclosure.SUM)
        else:
            survivors = self._verified(request.headers, incoming, members)
            self._cuts.asked(members)
            for clients in (members, survivors):
                self._cohorts.serve(clients)
            self._openings.once(header, members, survivors)
            # Durable before the total is opened: a restart must not open another (O5).
            self._answering.before_opening(incoming)
        scheme = self._context.scheme
        if scheme is None:
            raise LocalProtocolError("This key authority has no encryption scheme.")
        try:
            values = scheme.decrypt(secret, request.total)
        except CryptoError as error:
            raise BadEnvelope("The total is not a ciphertext under this run's key.") from error
        where = Where(header.round, header.exchange, members, header.given, header.attempt)
        opened = Opened(total=values.astype("<u8").tobytes())
        item = self._context.find(incoming.item.exchange, Disclosure.SUM, Step.OPENED)
        return [self._engine.send(item, [opened], header.sender, where)]

    def _verified(
        self, data: bytes, incoming: Incoming, members: tuple[str, ...]
    ) -> tuple[str, ...]:
        """Check the signed upload headers; return the clients whose uploads are in the total.

        Every one of them signed the digest of the whole cohort that was asked.

        Raises:
            BadEnvelope: unsigned, foreign, contradictory or repeated headers.
            CohortTooSmall: fewer clients than the policy's minimum.
        """
        asked = incoming.header
        upload = self._context.find(incoming.item.exchange, Disclosure.SUM, Step.UP)
        wanted = Wanted(
            items=frozenset((upload.id,)),
            members=members,
            key=self._context.key_of(Disclosure.SUM).key_id[:16],
            recipient=asked.sender,
            place=place_of(asked),
            given=asked.given,
        )
        found = verified(data, wanted, self._context)
        if asked.cohort != found[0][0].cohort:
            raise BadEnvelope("The cohort is not the one that its members signed.")
        return tuple(sorted(header.sender for header, _ in found))

    takes: ClassVar[Takes] = {(Disclosure.SUM, Step.OPEN): _open}


KEY_AUTHORITY = TotalOpening


KEPT = (AddressedView, MaskSum, Summands, TotalView, Unmasking)
