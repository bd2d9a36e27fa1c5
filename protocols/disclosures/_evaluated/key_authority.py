"""The key authority's part where it opens what witnesses signed: cosines and weighted rows.

Neither cosines nor rows can be told from a single client's upload by looking at them, so nothing is
opened that the policy's number of witnesses did not compute again and sign (O4), and every result
is opened once.
"""

from __future__ import annotations

import hashlib
from typing import ClassVar

import numpy as np

from crypto.errors import CryptoError
from protocols.disclosures._evaluated.ciphers import (
    COSINE_LEVELS,
    EVALUATED,
    cosine_ring,
    weigh_ring,
    witnesses_of,
)
from protocols.disclosures._evaluated.cut_signing import CutSigning
from protocols.disclosures._evaluated.opening_request import RequestedUploads, requested_uploads
from protocols.disclosures._evaluated.uploads import pairs_of, row_info, statement
from protocols.disclosures.names import Disclosure
from protocols.errors import BadEnvelope
from protocols.keys.boxes import close_box
from protocols.messages import Message, Vector
from protocols.plan.steps import Step
from protocols.sessions.part import Delivery, Engine, SessionPart, Takes
from protocols.sessions.services.answering import Answering
from protocols.sessions.services.openings import Openings
from protocols.sessions.services.secret_keys import SecretKeys
from protocols.sessions.table import Event
from protocols.wire.control import Cosines, Reveal, RowBoxes
from protocols.wire.inbox import Incoming
from protocols.wire.roles import Role


class Revealing(SessionPart):
    """Opens witnessed results, each once.

    Args:
        engine: the session.
        answering: makes durable what is about to be opened.
        keys: the epoch's secret keys.
        openings: what was opened before.
        cuts: signs how cosines cut a cluster.
    """

    called: ClassVar[str] = "results"

    def __init__(
        self,
        engine: Engine,
        answering: Answering,
        keys: SecretKeys,
        openings: Openings,
        cuts: CutSigning,
    ) -> None:
        super().__init__(engine)
        self._answering, self._keys, self._openings = answering, keys, openings
        self._cuts = cuts

    def _reveal(self, incoming: Incoming) -> list[Delivery]:
        """Open the cosines of one Ask's uploads, or every receiver's row of them."""
        self._engine.move(Event.STEP)
        request = self._engine.read_one(incoming, Reveal)
        header, name = incoming.header, incoming.item.exchange
        disclosure = Disclosure(incoming.item.part)
        requested = requested_uploads(request, incoming, name, disclosure, self._context)
        if self._answering.again:  # only what was signed and recorded before
            self._openings.check_recorded(header, disclosure)
        else:
            facts = self._witnessed(request, requested, disclosure)
            uploads = (disclosure, requested.source, facts)
            self._cuts.asked(requested.members)
            self._openings.once(header, requested.members, requested.names, *uploads)
            # Durable before anything is opened: a restart must not open another (O5).
            self._answering.before_opening(incoming)
        try:
            message = self._results(request, requested, disclosure, name)
        except CryptoError as error:
            raise BadEnvelope("A result is not what it is said to be.") from error
        item = self._context.find(name, disclosure, Step.OPENED)
        messages = [message, *self._cuts.beside(requested, message)]
        return [self._engine.send(item, messages, header.sender, requested.where)]

    def _witnessed(
        self, request: Reveal, requested: RequestedUploads, disclosure: Disclosure
    ) -> str:
        """Check that enough witnesses signed these very bytes; return the statement's digest."""
        roster, context = self._context.roster, self._context
        numbers = _numbers(request, requested, disclosure)
        said = statement(requested.place, request.headers, request.results, numbers)
        names = witnesses_of(context.policy, disclosure, roster.names(Role.WITNESS))
        for name, row in zip(names, np.asarray(request.signatures), strict=True):
            try:
                roster.party(name).verify.verify("witness", row.tobytes(), said)
            except CryptoError as error:
                raise BadEnvelope("A result is not what its witness signed (O4).") from error
        return hashlib.sha256(said).hexdigest()

    def _results(
        self, request: Reveal, requested: RequestedUploads, disclosure: Disclosure, name: str
    ) -> Message:
        size, numbers = requested.shape.result_bytes, _numbers(request, requested, disclosure)
        cosines = disclosure is Disclosure.SIMILARITY
        count = requested.shape.results(len(requested.names)) if cosines else max(numbers) + 1
        data = memoryview(request.results)
        if any(data[count * size :]):
            raise BadEnvelope("There are bytes behind the results.")
        results = [bytes(data[i * size : (i + 1) * size]) for i in range(count)]
        if cosines:
            return self._cosines(results, requested, request)
        return self._rows(results, numbers, requested, name)

    def _cosines(
        self, results: list[bytes], requested: RequestedUploads, request: Reveal
    ) -> Message:
        """Read one number a pair, rounded (O3); a number that is no cosine ends this session."""
        ring, secret = cosine_ring(), self._keys.of(Disclosure.SIMILARITY)
        item = self._context.find(requested.name, Disclosure.SIMILARITY, Step.OPENED)
        found: Vector = np.zeros(item.dims["pairs"], dtype=np.int64)
        for place, ((one, other), result) in enumerate(
            zip(pairs_of(requested.names), results, strict=True)
        ):
            levels = round(ring.cosine(secret, result) * COSINE_LEVELS)
            if one == other and levels < COSINE_LEVELS - 1:
                raise BadEnvelope(
                    "A client's vector, multiplied with itself, does not give 1.",
                    why="its software did not bring it to length 1; this stops accidents only: a "
                    "client that crafts a ciphertext passes",
                )
            found[place] = COSINE_LEVELS + levels
        return Cosines(cosines=found)

    def _rows(
        self,
        results: list[bytes],
        numbers: tuple[int, ...],
        requested: RequestedUploads,
        name: str,
    ) -> Message:
        """Open each row, which is still blinded, and seal it to its receivers one by one (O1)."""
        context, ring, boxes = self._context, weigh_ring(), []
        secret = self._keys.of(Disclosure.WEIGHTED_SUM)
        opened: dict[int, bytes] = {}
        for receiver, number in zip(requested.names, numbers, strict=True):
            if receiver not in requested.where.members:
                boxes.append(bytes(requested.shape.row_bytes))  # it vanished, and gets nothing
                continue
            if number not in opened:
                found = ring.decrypt(secret, results[number])
                opened[number] = found.astype("<u8").tobytes()
            info = row_info(context.run, requested.where.exchange, name, receiver)
            boxes.append(
                close_box(opened[number], context.me, context.roster.party(receiver), info)
            )
        item = context.find(name, Disclosure.WEIGHTED_SUM, Step.OPENED)
        return RowBoxes(boxes=b"".join(boxes).ljust(item.dims["row_boxes"], b"\0"))

    takes: ClassVar[Takes] = dict.fromkeys([(d, Step.OPEN) for d in EVALUATED], _reveal)


def _numbers(
    request: Reveal, requested: RequestedUploads, disclosure: Disclosure
) -> tuple[int, ...]:
    """Return the number of each receiver's row; none for cosines.

    Raises:
        BadEnvelope: rows are not numbered in the order in which they first come, without a gap.
    """
    stated = [int(number) for number in np.asarray(request.rows)]
    count = 0 if disclosure is Disclosure.SIMILARITY else len(requested.names)
    numbers, behind = tuple(stated[:count]), stated[count:]
    first_come = list(dict.fromkeys(numbers)) == list(range(len(set(numbers))))
    if any(behind) or not first_come:
        raise BadEnvelope("Rows are not numbered as the receivers' weights are.")
    return numbers
