"""The witness's part: computes results again, byte for byte, and signs what it found (O4)."""

from __future__ import annotations

import hashlib
from typing import ClassVar

import numpy as np

from crypto.errors import CryptoError
from protocols.disclosures._evaluated.ciphers import EVALUATED
from protocols.disclosures._evaluated.opening_request import RequestedUploads, requested_uploads
from protocols.disclosures._evaluated.uploads import (
    check_upload,
    facts_of_rows,
    products,
    row_numbers,
    rows,
    statement,
    whole_table,
)
from protocols.disclosures.names import Disclosure
from protocols.errors import BadEnvelope, LocalProtocolError, Replay
from protocols.messages import Message, Vector
from protocols.plan.steps import Step
from protocols.sessions.part import Delivery, Engine, SessionPart, Takes
from protocols.sessions.table import Event
from protocols.wire.control import CosineSeed, Examine, RowSeeds, Witnessed
from protocols.wire.inbox import Incoming


class ResultWitness(SessionPart):
    """Examines every result that is to be opened, once for every client's upload."""

    called: ClassVar[str] = "results"

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self._signed: set[tuple[str, int]] = set()  # disclosure, exchange of the uploads
        self._tables: list[Vector] = []  # of all rounds, for what they tell together (O10)

    def _examine(self, incoming: Incoming) -> list[Delivery]:
        """Compute one Ask's results again and sign them, once for every client's upload."""
        self._engine.move(Event.STEP)
        name, disclosure = incoming.item.exchange, Disclosure(incoming.item.part)
        seeds = CosineSeed if disclosure is Disclosure.SIMILARITY else RowSeeds
        request, secret = self._engine.read(incoming, (Examine, seeds))
        if not isinstance(request, Examine):
            raise LocalProtocolError("This is nothing to examine.")
        requested = requested_uploads(request, incoming, name, disclosure, self._context)
        if (str(disclosure), requested.source) in self._signed:
            raise Replay("These uploads were witnessed before; a second result would be compared.")
        uploads = self._uploads(request, requested)
        try:
            results, told, numbers = self._computed(uploads, secret, requested)
        except CryptoError as error:
            raise BadEnvelope(
                "What was shown cannot be computed.",
                why="weights rest on too few others (O10), or an upload is no ciphertext",
            ) from error
        size = self._context.find(name, disclosure, Step.OPEN).dims["results"]
        padded = b"".join(results).ljust(size, b"\0")
        found = statement(requested.place, request.headers, padded, numbers)
        return [self._sign(incoming, requested, found, told)]

    def _sign(
        self, incoming: Incoming, requested: RequestedUploads, found: bytes, told: dict[str, object]
    ) -> Delivery:
        """Record what was found, and sign it for the aggregator."""
        header, name, said = incoming.header, incoming.item.exchange, str(incoming.item.part)
        self._signed.add((said, requested.source))
        facts = {
            "cohort": header.cohort,
            "digest": hashlib.sha256(found).hexdigest(),
            "disclosure": said,
            "exchange": header.exchange,
            "members": len(requested.members),
            "round": header.round,
            "survivors": len(requested.names),
            "uploads": requested.source,
            **told,
        }
        self._engine.record("witness", facts)
        signature = self._context.me.signing.sign("witness", found)
        item = self._context.find(name, incoming.item.part, Step.WITNESSED)
        return self._engine.send(
            item, [Witnessed(signature=signature)], header.sender, requested.where
        )

    def _uploads(self, request: Examine, requested: RequestedUploads) -> dict[str, bytes]:
        """Return ciphertexts by client, each signed by it."""
        size, found = requested.shape.upload_bytes, {}
        data, roster = memoryview(request.uploads), self._context.roster
        if any(data[len(requested.names) * size :]):
            raise BadEnvelope("There are bytes behind the uploads.")
        signatures = np.asarray(request.signatures)
        for place, header in enumerate(requested.headers):
            body = bytes(data[place * size : (place + 1) * size])
            key = roster.party(header.sender).verify
            check_upload(header, signatures[place].tobytes(), body, key)
            found[header.sender] = body
        return found

    def _computed(
        self, uploads: dict[str, bytes], secret: Message, requested: RequestedUploads
    ) -> tuple[list[bytes], dict[str, object], tuple[int, ...]]:
        """Return results, and of weights what the ledger says and who is handed which row."""
        context = self._context
        if isinstance(secret, CosineSeed):
            key = context.key_of(Disclosure.SIMILARITY)
            return products(key, uploads, secret.seed, requested.place), {}, ()
        if not isinstance(secret, RowSeeds):
            raise LocalProtocolError("Nothing was said of how to compute this.")
        count, key = len(uploads), context.key_of(Disclosure.WEIGHTED_SUM)
        table = np.asarray(secret.weights).astype(np.int64)
        seeds = [row.tobytes() for row in np.asarray(secret.seeds)[:count]]
        if table[count:].any() or table[:, count:].any():
            raise BadEnvelope("Weights are shown for clients whose uploads are not.")
        table = table[:count, :count]
        found = rows(key, list(uploads.values()), table, seeds, context.policy)
        self._tables.append(whole_table(table, list(uploads), context.roster.clients))
        return found, facts_of_rows(self._tables, seeds), row_numbers(table)

    takes: ClassVar[Takes] = dict.fromkeys([(d, Step.WITNESS) for d in EVALUATED], _examine)
