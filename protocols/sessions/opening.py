"""The aggregator's session while one sum is opened: survivors, votes, shares, the authority.

What it may open is one sum over one list of survivors, which more than half of every client's
holders signed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from crypto.errors import CryptoError
from crypto.signatures import SIGNATURE_BYTES
from protocols.disclosures.names import Disclosure
from protocols.disclosures.sum.consistency_votes import EVIDENCE_BYTES, ballot_of
from protocols.disclosures.sum.unmasking import Keys, Unmasking
from protocols.errors import (
    BadEnvelope,
    LocalProtocolError,
    RemoteProtocolError,
    RoundLost,
    UnfitMessage,
    WrongStage,
)
from protocols.evidence.ledger import Ledger
from protocols.keys.groups import slot_of
from protocols.messages import Vector
from protocols.plan.steps import Step
from protocols.rounds import Reply
from protocols.sessions.collection import Collection
from protocols.sessions.engine import Parcel
from protocols.sessions.keying import KeyingSession
from protocols.sessions.table import Event, State
from protocols.wire.control import Opened, OpenRequest, Shares, Survivors, Vote, Votes
from protocols.wire.inbox import Letter
from protocols.wire.roster import Role
from protocols.wire.run_context import Papers


class OpeningSession(KeyingSession):
    """What the aggregator does between the last answer and the Reply."""

    def __init__(self, papers: Papers, ledger: Ledger, rounding: bytes) -> None:
        super().__init__(papers, ledger, rounding)
        self._collection: Collection | None = None
        self._unmasking: Unmasking | None = None
        self._vanished: tuple[int, frozenset[str]] = (0, frozenset())  # of the round, so far
        self._reply: Reply | None = None
        self._taking: Keys | None = None  # masks to take off a sum that is recorded as opened

    def _gone(self, round: int) -> frozenset[str]:
        """Return who vanished in a round, so far."""
        return self._vanished[1] if self._vanished[0] == round else frozenset()

    @property
    def _asked(self) -> Collection:
        if self._collection is None:
            raise LocalProtocolError("Nothing was asked.")
        return self._collection

    def _take_share(self, letter: Letter) -> None:
        """Take a vote for the survivor list, or the shares that follow it."""
        unmasking = self._unmasking
        if unmasking is None or self._collection is None:
            raise WrongStage("A vote or shares arrived while none were asked for.")
        name = self._asked.exchange.name
        self._asked.check_place(letter)
        wanted = {State.VOTING: Step.VOTE, State.SHARING: Step.SHARES}
        if (name, wanted.get(self.state)) != (letter.item.exchange, letter.item.step):
            raise WrongStage("A vote or shares arrived while none were asked for.")
        holder, kind = letter.header.sender, Vote if self.state is State.VOTING else Shares
        (message,) = self._inbox.read(letter, (kind,))
        if isinstance(message, Vote):
            self._check_vote(holder, message)
            unmasking.vote(holder, message.signature)
        elif isinstance(message, Shares):
            unmasking.add(holder, message.shares)

    def _check_vote(self, holder: str, vote: Vote) -> None:
        """Refuse a vote that would make every other holder refuse."""
        if self._unmasking is None:
            raise LocalProtocolError("No votes were asked for.")
        try:
            key = self.papers.roster.party(holder).verify
            key.verify("survivors", vote.signature, self._unmasking.ballot)
        except CryptoError as error:
            raise BadEnvelope(f"{holder} signed another survivor list than it was sent.") from error

    def _list_survivors(self) -> Iterable[Parcel]:
        """Say whose uploads are here, and ask every holder for its shares."""
        asked, setup, roster = self._asked, self._agreed, self.papers.roster
        if len(asked.survivors) < setup.group.least:
            raise RoundLost("Too few clients are left beside those who may be corrupt; see O10.")
        if setup.group.thinnest(asked.survivors) < setup.group.window:
            raise RoundLost("What is left of the clients' graph could fall apart; see O7.")
        self.move(Event.UNMASK)
        where, name = asked.where, asked.exchange.name
        upload = self.papers.find(name, Disclosure.SUM, Step.UP)
        slot = slot_of(upload, where.round, where.slot)
        pairs = setup.agreement(slot)
        self._unmasking = Unmasking(
            setup.group,
            slot,
            where.members,
            asked.survivors,
            asked.label(pairs),
            ballot_of(self.papers, name, where, asked.survivors, pairs),
        )
        members, survivors = roster.mask(where.members), roster.mask(asked.survivors)

        signed = asked.evidence()

        def told(holder: str) -> Survivors:
            evidence = _table(signed, setup.group.holders(holder), EVIDENCE_BYTES, setup.width + 1)
            return Survivors(
                members=members, survivors=survivors, slot=where.slot, evidence=evidence
            )

        holders = [h for h in setup.holders(where.members) if h not in self._gone(where.round)]
        item = self.papers.find(name, Disclosure.SUM, Step.SURVIVORS)
        return (self.send(item, [told(h)], h, where) for h in holders)

    def _show_votes(self) -> Iterable[Parcel]:
        """Show every holder that voted who else did: only then does it give its shares (O7)."""
        asked = self._asked
        if self._unmasking is None:
            raise LocalProtocolError("No votes were asked for.")
        votes = self._unmasking.votes()
        self.move(Event.CERTIFY)
        item = self.papers.find(asked.exchange.name, Disclosure.SUM, Step.VOTES)
        group, width = self._agreed.group, item.dims["voters"]

        def shown(holder: str) -> Votes:
            return Votes(signatures=_table(votes, group.voters(holder), SIGNATURE_BYTES, width))

        return (self.send(item, [shown(holder)], holder, asked.where) for holder in sorted(votes))

    def _unmask(self) -> list[Parcel]:
        setup, unmasking = self._agreed, self._unmasking
        if unmasking is None:
            raise LocalProtocolError("No shares were asked for.")
        rows = setup.rows_of(unmasking.slot, self._asked.where.members)
        return self._finish(unmasking.keys(rows, setup.width))

    def _finish(self, masks: Keys) -> list[Parcel]:
        """Have the total opened, or take the masks off and open it here."""
        asked = self._asked
        if asked.encrypted:
            self.move(Event.COLLECTED)
            return [self._request(masks)]
        if asked.masked:
            return self._record_open(masks)
        self._reply = asked.reply(asked.clear_total())
        self.move(Event.ANSWERED)
        return []

    def _record_open(self, masks: Keys) -> list[Parcel]:
        """Record, durably, that a sum is opened before it is (O5).

        The masks are kept with the record: killed in between, this session finishes the very same
        opening instead of beginning another.
        """
        asked = self._asked
        self._taking, self._outstanding = masks, []
        self.ledger.record("open", open_facts(self.papers.cohort(asked.where), asked))
        self.commit()
        return self._take_off()

    def _take_off(self) -> list[Parcel]:
        asked, masks = self._asked, self._taking
        if masks is None:
            raise LocalProtocolError("No sum is being opened.")
        self._reply, self._taking = asked.reply(asked.unmasked(masks)), None
        self.move(Event.ANSWERED)
        return []

    def _request(self, masks: Keys) -> Parcel:
        """Ask the authority to open the blinded total; only this session can take the blind off."""
        asked = self._asked
        total, headers = asked.blinded(masks)
        item = self.papers.find(asked.exchange.name, Disclosure.SUM, Step.OPEN)
        padded = headers.ljust(item.dims["he_headers"], b"\0")
        members = self.papers.roster.mask(asked.where.members)
        request = OpenRequest(members=members, total=total, headers=padded)
        authority = self.papers.roster.one(Role.KEY_AUTHORITY).name
        return self.send(item, [request], authority, asked.where)

    def _take_opened(self, letter: Letter) -> None:
        if self.state is not State.OPENING:
            raise WrongStage("An opened total arrived while none was asked for.")
        asked = self._asked
        if letter.item.exchange != asked.exchange.name:
            raise WrongStage("An opened total belongs to another exchange.")
        asked.check_place(letter)
        (opened,) = self._inbox.read(letter, (Opened,))
        if not isinstance(opened, Opened):
            raise BadEnvelope("An opened total is of another type.")
        try:
            self._reply = asked.reply(asked.opened(opened.total))
        except (CryptoError, UnfitMessage) as error:
            self.die(error)
            raise RemoteProtocolError(
                "The key authority returned something that is no total of this cohort."
            ) from error
        self.move(Event.OPEN)


def _table(said: Mapping[str, bytes], names: Sequence[str], size: int, rows: int) -> Vector:
    """Return what each of `names` said, shape (rows, size); zeros for who said nothing."""
    nothing = bytes(size)
    found = b"".join([said.get(name, nothing) for name in names])
    return np.frombuffer(found.ljust(rows * size, b"\0"), dtype=np.uint8).reshape(-1, size)


def open_facts(cohort: str, asked: Collection) -> dict[str, str | int]:
    """Return the facts of an ``open`` entry."""
    where = asked.where
    return {
        "cohort": cohort,
        "exchange": where.exchange,
        "members": len(where.members),
        "round": where.round,
        "survivors": len(asked.survivors),
    }
