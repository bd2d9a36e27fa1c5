"""The key authority's session: makes the run's keys, opens what is blinded, and nothing else.

It sees uniform noise (O1) and, where directions are compared, one cosine per pair (O3); and the
signed headers of all uploads of a round: who took part, when, and which ciphertext sizes. It opens
only for cohorts that every member signed, each exchange once, and overlapping cohorts of one round
never (O5, O8).
"""

from __future__ import annotations

from collections.abc import Mapping

from crypto.errors import CryptoError
from protocols.disclosures._evaluated.ciphers import EVALUATED, key_message, keyed, ring_of
from protocols.disclosures.names import Disclosure
from protocols.errors import BadEnvelope, LocalProtocolError
from protocols.keys.groups import epoch_of
from protocols.messages import Message
from protocols.plan.steps import Service, Step
from protocols.sessions.base import Parcel
from protocols.sessions.revealing import RevealingSession
from protocols.sessions.table import Event
from protocols.wire.control import Opened, OpenRequest
from protocols.wire.inbox import Letter
from protocols.wire.roster import EVERYONE
from protocols.wire.upload_evidence import Wanted, place_of, vouched
from protocols.wire.where import Where


class KeyAuthoritySession(RevealingSession):
    """KEY_AUTHORITY: the only holder of the secret keys, which live in memory for one epoch."""

    def _replies(self, letter: Letter, again: bool) -> list[Parcel]:
        reply: Parcel = self.handler(letter)(letter, again)
        return [reply]

    def _make_key(self, letter: Letter, again: bool) -> Parcel:
        """Make the key of an epoch; the one before it is destroyed first (O9)."""
        header, papers = letter.header, self.papers
        epoch = epoch_of(header.round, papers.policy)
        if epoch <= self._epoch:
            raise BadEnvelope("A second key is called for in one epoch (O9).")
        self.move(Event.KEY)
        self._destroy()
        self._epoch = epoch
        messages = [self._new_key(d) for d in keyed(papers.plan.items, papers.policy)]
        where = Where(round=header.round, exchange=header.exchange)
        offer = papers.find("", Service.KEYS, Step.OFFER)
        return self.send(offer, messages, EVERYONE, where)

    def _new_key(self, disclosure: Disclosure) -> Message:
        """Make one key of an epoch; return its public half."""
        papers = self.papers
        scheme = papers.scheme if disclosure is Disclosure.SUM else ring_of(disclosure)
        if scheme is None:
            raise LocalProtocolError("This key authority has no encryption scheme.")
        public, self._secrets[disclosure] = scheme.keygen()
        if disclosure is Disclosure.SUM:
            papers.he_key = public
        else:
            papers.keys = {**papers.keys, disclosure: public}
        facts = {"event": "made", "key": public.key_id, "scheme": scheme.name}
        self.ledger.record("key", facts)
        return key_message(disclosure, public.raw)

    def _open(self, letter: Letter, again: bool) -> Parcel:
        self.move(Event.OPEN)
        (request,) = self._inbox.read(letter, (OpenRequest,))
        if not isinstance(request, OpenRequest):
            raise LocalProtocolError("This is no request to open a total.")
        secret = self._held(Disclosure.SUM)
        header, members = letter.header, self.papers.roster.unmask(request.members)
        if again:  # only what was vouched for and recorded before
            self._recorded(header, Disclosure.SUM)
        else:
            survivors = self._vouched(request.headers, letter, members)
            self._once(header, members, survivors)
            # Durable before the total is opened: a restart must not open another (O5).
            self._before_opening(letter)
        scheme = self.papers.scheme
        if scheme is None:
            raise LocalProtocolError("This key authority has no encryption scheme.")
        try:
            values = scheme.decrypt(secret, request.total)
        except CryptoError as error:
            raise BadEnvelope("The total is not a ciphertext under this run's key.") from error
        where = Where(header.round, header.exchange, members, header.given, header.attempt)
        opened = Opened(total=values.astype("<u8").tobytes())
        item = self.papers.find(letter.item.exchange, Disclosure.SUM, Step.OPENED)
        return self.send(item, [opened], header.sender, where)

    def _vouched(self, data: bytes, letter: Letter, members: tuple[str, ...]) -> tuple[str, ...]:
        """Check the signed upload headers; return the clients whose uploads are in the total.

        Every one of them signed the digest of the whole cohort that was asked.

        Raises:
            BadEnvelope: unsigned, foreign, contradictory or repeated headers.
            CohortTooSmall: fewer clients than the policy's minimum.
        """
        asked = letter.header
        upload = self.papers.find(letter.item.exchange, Disclosure.SUM, Step.UP)
        wanted = Wanted(
            items=frozenset((upload.id,)),
            members=members,
            key=self.papers.key_of(Disclosure.SUM).key_id[:16],
            recipient=asked.sender,
            place=place_of(asked),
            given=asked.given,
        )
        found = vouched(data, wanted, self.papers)
        if asked.cohort != found[0][0].cohort:
            raise BadEnvelope("The cohort is not the one that its members signed.")
        return tuple(sorted(header.sender for header, _ in found))

    def die(self, error: BaseException) -> None:
        """End the session for good and destroy the secret key (O9)."""
        super().die(error)
        self._destroy()

    def close(self, result: Mapping[str, str] | None = None) -> None:
        """Destroy the secret key, record it, and end (O9)."""
        self._destroy()
        super().close(result)


KeyAuthoritySession.takes = {
    (Service.KEYS, Step.CALL): KeyAuthoritySession._make_key,
    (Disclosure.SUM, Step.OPEN): KeyAuthoritySession._open,
    **{(d, Step.OPEN): KeyAuthoritySession._reveal for d in EVALUATED},
}
