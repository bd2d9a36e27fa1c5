"""The aggregator's part while one sum is opened: survivors, votes, shares, the authority.

What it may open is one sum over one list of survivors, which more than half of every client's
holders signed: in two steps, votes and then shares, or in one answer where nobody is missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

from crypto.errors import CryptoError
from protocols.disclosures.names import Disclosure
from protocols.disclosures.sum.addressed import handed_to, none_left
from protocols.disclosures.sum.consistency import check_vote, vote_text_of, who_is_here, who_voted
from protocols.disclosures.sum.masks import Keys, Unmasking
from protocols.disclosures.sum.messages import Opened, OpenRequest, SelfShares, Shares, Vote
from protocols.disclosures.sum.view import Summands
from protocols.errors import (
    BadEnvelope,
    LocalProtocolError,
    RemoteProtocolError,
    RoundLost,
    UnfitMessage,
    WrongStage,
)
from protocols.forms import Exchange
from protocols.keys.groups import one_answer, slot_of
from protocols.messages import Message
from protocols.plan.steps import Step
from protocols.rounds import Given
from protocols.sessions.asking import Asked, Exchanges
from protocols.sessions.engine import Phase
from protocols.sessions.epoch_keys import EpochKeys
from protocols.sessions.part import (
    IDLE,
    Collection,
    Delivery,
    Engine,
    Scope,
    SessionPart,
    Stages,
    Takes,
)
from protocols.sessions.survivors import Survivors
from protocols.wire.envelope import Where
from protocols.wire.inbox import Incoming
from protocols.wire.roles import Role

_VOTING, _SHARING, _SERVING, _OPENING = "voting", "sharing", "serving", "opening"


class Summing(SessionPart):
    """Opens the total of an Ask's answers; its phase is SUM.

    Args:
        engine: the session.
        asked: the Ask under way.
        exchanges: of which nothing is outstanding while a total is opened here.
        keys: the epoch's keys.
        survivors: of the round.
    """

    called: ClassVar[str] = "sums"
    lasting: ClassVar[frozenset[str]] = frozenset({"_taking"})
    phase: ClassVar[int | None] = Phase.SUM
    stages: ClassVar[Stages] = {
        IDLE: {_VOTING, _SERVING, _OPENING},
        _VOTING: {_SHARING},
        _SHARING: {_OPENING},
        _SERVING: {_OPENING},
    }

    def __init__(
        self,
        engine: Engine,
        asked: Asked,
        exchanges: Exchanges,
        keys: EpochKeys,
        survivors: Survivors,
    ) -> None:
        super().__init__(engine)
        self._asked, self._exchanges, self._keys = asked, exchanges, keys
        self._survivors = survivors
        self._unmasking: Unmasking | None = None
        self._taking: Keys | None = None  # masks to take off a sum that is recorded as opened
        self._slots: dict[tuple[str, int, str], int] = {}  # sums of an item, round and client

    def forget(self, scope: Scope) -> None:
        """Drop the votes and shares of a sum."""
        if scope is Scope.ASK:
            self._unmasking = self._taking = None

    @property
    def _sum(self) -> Summands:
        return self._asked.answers.of(Disclosure.SUM, Summands)

    def going_out(self, answers: Collection) -> None:
        """Say what the masks of an Ask's sum must rest on."""
        found, where = answers.get(Disclosure.SUM, Summands), answers.where
        if found is not None and self._keys.paired:
            slot = slot_of(found.item, where.round, where.slot)
            found.pairs = self._keys.agreed.agreement(slot, where.members)

    def handed(self, given: Given, member: str) -> Message | None:
        """Return what one member gets of totals that one client each reads."""
        return handed_to(given, member)

    def slot(self, exchange: Exchange, round: int, members: Sequence[str]) -> int:
        """Return how many sums of this kind came before (O6); raises RoundLost after the last."""
        if not any(kind.disclosure is Disclosure.SUM for kind in exchange.back):
            return 0
        item = self._context.find(exchange.name, Disclosure.SUM, Step.UP)
        place = slot_of(item, round, 0).round
        slot = max(self._slots.get((item.id, place, member), 0) for member in members)
        if none_left(self._context.plan, item, Where(round, 0, tuple(members), slot=slot)):
            raise RoundLost(
                "All clients that are there have read their totals. The round is skipped.",
                why="clients are away, and the form asks for as many sums as if they were there",
                fix="let the form ask for as many as answered the first (Reply.answers)",
            )
        self._slots.update({(item.id, place, member): slot + 1 for member in members})
        return slot

    def wanted(self) -> bool:
        """Tell whether a SUM came back."""
        return self._asked.answers.get(Disclosure.SUM, Summands) is not None

    def enter(self) -> Iterable[Delivery] | None:
        """Ask the holders of masks for their votes; without masks, have the total opened."""
        self._sum.check_reader()
        return self._list_survivors() if self._sum.masked else self._finish(([], []))

    def advance(self) -> Iterable[Delivery] | None:
        """Go on once votes, shares or the opened total are here."""
        if self._taking is not None:
            self._take_off()
            return None
        if self.stage == _VOTING:
            return self._show_votes()
        if self.stage in (_SHARING, _SERVING):
            return self._unmask()
        return [] if self.stage == _OPENING else None  # nothing came back of the key authority

    def _awaited(self, incoming: Incoming, stage: str) -> Unmasking:
        """Return what a vote or shares are for; raises WrongStage if for nothing now."""
        unmasking = self._unmasking
        if unmasking is None:
            raise WrongStage("A vote or shares arrived while none were asked for.")
        asked = self._asked.answers
        asked.check_place(incoming)
        if (asked.exchange.name, self.stage) != (incoming.item.exchange, stage):
            raise WrongStage("A vote or shares arrived while none were asked for.")
        return unmasking

    def _take_vote(self, incoming: Incoming) -> None:
        """Take a vote for the survivor list; another would make every other holder refuse."""
        unmasking, holder = self._awaited(incoming, _VOTING), incoming.header.sender
        vote = self._engine.read_one(incoming, Vote)
        check_vote(self._context, unmasking.vote_text, holder, vote.signature)
        unmasking.vote(holder, vote.signature)

    def _take_shares(self, incoming: Incoming) -> None:
        unmasking = self._awaited(incoming, _SHARING)
        unmasking.add(incoming.header.sender, self._engine.read_one(incoming, Shares).shares)

    def _take_self_shares(self, incoming: Incoming) -> None:
        """Take a vote for the whole cohort with the shares that came with it."""
        unmasking, holder = self._awaited(incoming, _SERVING), incoming.header.sender
        served = self._engine.read_one(incoming, SelfShares)
        check_vote(self._context, unmasking.vote_text, holder, served.signature)
        unmasking.vote(holder, served.signature)
        unmasking.add(holder, served.shares)

    def _list_survivors(self) -> Iterable[Delivery]:
        """Say whose uploads are here, and ask every holder for its shares."""
        asked, setup = self._sum, self._keys.agreed
        group = setup.group_of(asked.where.members)
        if len(asked.survivors) < group.least:
            raise RoundLost("Too few clients are left beside those who may be corrupt; see O10.")
        if group.thinnest(asked.survivors) < group.window:
            raise RoundLost("What is left of the clients' graph could fall apart; see O7.")
        where, name = asked.where, asked.exchange.name
        upload = self._context.find(name, Disclosure.SUM, Step.UP)
        slot = slot_of(upload, where.round, where.slot)
        pairs = setup.agreement(slot, where.members)
        self._unmasking = Unmasking(
            group,
            slot,
            where.members,
            asked.survivors,
            asked.label(pairs),
            vote_text_of(self._context, name, where, asked.survivors, pairs),
        )
        whole = len(asked.survivors) == len(where.members)
        whole = whole and one_answer(group, self._context.policy)
        self.go(_SERVING if whole else _VOTING)
        facts = group, where, asked.survivors, asked.evidence(), setup.width
        told = who_is_here(self._context.roster, *facts, at_once=whole)
        holders = [
            h for h in setup.holders(where.members) if h not in self._survivors.gone(where.round)
        ]
        step = Step.ALL_HERE if whole else Step.SURVIVORS
        item = self._context.find(name, Disclosure.SUM, step)
        return (self._engine.send(item, [told(h)], h, where) for h in holders)

    def _show_votes(self) -> Iterable[Delivery]:
        """Show every holder that voted who else did: only then does it give its shares (O7)."""
        asked = self._asked.answers
        if self._unmasking is None:
            raise LocalProtocolError("No votes were asked for.")
        votes = self._unmasking.votes()
        self.go(_SHARING)
        item = self._context.find(asked.exchange.name, Disclosure.SUM, Step.VOTES)
        group = self._keys.agreed.group_of(asked.where.members)
        shown = who_voted(group, votes, item.dims["voters"])
        return (
            self._engine.send(item, [shown(holder)], holder, asked.where)
            for holder in sorted(votes)
        )

    def _unmask(self) -> list[Delivery] | None:
        setup, unmasking = self._keys.agreed, self._unmasking
        if unmasking is None:
            raise LocalProtocolError("No shares were asked for.")
        unmasking.votes()  # whatever is opened was signed by a quorum
        rows = setup.rows_of(unmasking.slot, self._asked.answers.where.members)
        return self._finish(unmasking.keys(rows, setup.width))

    def _finish(self, masks: Keys) -> list[Delivery] | None:
        """Have the total opened, or take the masks off and open it here."""
        asked = self._sum
        if asked.encrypted:
            self.go(_OPENING)
            return [self._request(masks)]
        if asked.masked:
            self._record_open(masks)
            return None
        asked.total = asked.clear_total()
        self._asked.finish()
        return None

    def _record_open(self, masks: Keys) -> None:
        """Record, durably, that a sum is opened before it is (O5).

        The masks are kept with the record: killed in between, this session finishes the very same
        opening instead of beginning another.
        """
        self._taking, self._exchanges.outstanding = masks, []
        self._engine.record("open", self._sum.opening())
        self._engine.commit()
        self._take_off()

    def _take_off(self) -> None:
        asked, masks = self._sum, self._taking
        if masks is None:
            raise LocalProtocolError("No sum is being opened.")
        asked.total = asked.unmasked(masks)
        self._asked.finish()
        self._taking = None

    def _request(self, masks: Keys) -> Delivery:
        """Ask the authority to open the blinded total; only this session can take the blind off."""
        asked = self._sum
        total, headers = asked.blinded(masks)
        item = self._context.find(asked.exchange.name, Disclosure.SUM, Step.OPEN)
        padded = headers.ljust(item.dims["he_headers"], b"\0")
        members = self._context.roster.mask(asked.where.members)
        request = OpenRequest(members=members, total=total, headers=padded)
        authority = self._context.roster.one(Role.KEY_AUTHORITY).name
        return self._engine.send(item, [request], authority, asked.where)

    def _take_opened(self, incoming: Incoming) -> None:
        if self.stage != _OPENING:
            raise WrongStage("An opened total arrived while none was asked for.")
        asked = self._asked.answers
        if incoming.item.exchange != asked.exchange.name:
            raise WrongStage("An opened total belongs to another exchange.")
        asked.check_place(incoming)
        opened = self._engine.read_one(incoming, Opened)
        try:
            found = asked.of(Disclosure.SUM, Summands)
            found.total = found.opened(opened.total)
            self._asked.finish()
        except (CryptoError, UnfitMessage) as error:
            self._engine.die(error)
            raise RemoteProtocolError(
                "The key authority returned something that is no total of this cohort."
            ) from error
        except BadEnvelope as error:  # of what came beside the sum, and is read only now
            self._engine.die(error)
            raise
        self.rest()

    takes: ClassVar[Takes] = {
        (Disclosure.SUM, Step.VOTE): _take_vote,
        (Disclosure.SUM, Step.SHARES): _take_shares,
        (Disclosure.SUM, Step.SELF_SHARES): _take_self_shares,
        (Disclosure.SUM, Step.OPENED): _take_opened,
    }


AGGREGATOR = Summing
