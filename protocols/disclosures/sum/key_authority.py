"""The key authority's part where it opens blinded totals (O1)."""

from __future__ import annotations

from typing import ClassVar

from crypto.errors import CryptoError
from protocols.disclosures._evaluated.cut_signing import CutSigning
from protocols.disclosures.names import Disclosure
from protocols.disclosures.sum.messages import Opened, OpenRequest
from protocols.errors import BadEnvelope, LocalProtocolError
from protocols.plan.steps import Step
from protocols.sessions.cohort_history import CohortHistory
from protocols.sessions.part import Delivery, Engine, SessionPart, Takes
from protocols.sessions.services.answering import Answering
from protocols.sessions.services.openings import Openings
from protocols.sessions.services.secret_keys import SecretKeys
from protocols.sessions.table import Event
from protocols.wire.inbox import Incoming
from protocols.wire.upload_evidence import Wanted, place_of, verified
from protocols.wire.where import Where


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
