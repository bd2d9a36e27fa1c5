"""The aggregator's part while a result computed on ciphertexts is witnessed and opened.

Where a witness or the key authority does not answer, the round is lost: no second result of the
same uploads is ever shown to anybody.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from crypto.errors import CryptoError
from crypto.signing import SIGNATURE_BYTES
from protocols.disclosures._evaluated.ciphers import EVALUATED, witnesses_of
from protocols.disclosures._evaluated.uploads import Evaluation, Uploads, place_of_result, statement
from protocols.disclosures.names import Disclosure
from protocols.errors import BadEnvelope, LocalProtocolError, RoundLost, WrongStage
from protocols.messages import Message
from protocols.plan.steps import Step
from protocols.sessions.epoch_keys import EpochKeys
from protocols.sessions.part import IDLE, Delivery, Engine, Scope, SessionPart, Stages, Takes
from protocols.wire.control import Cosines, Examine, Reveal, RowBoxes, SignedCut, Witnessed
from protocols.wire.envelope import Where
from protocols.wire.inbox import Incoming
from protocols.wire.roles import Role

_WITNESSING, _REVEALING = "witnessing", "revealing"


class Results(SessionPart):
    """Has one result at a time witnessed, and then opened.

    Args:
        engine: the session.
        keys: the epoch's, which go again to a witness until it signed something under them.
    """

    stages: ClassVar[Stages] = {IDLE: {_WITNESSING, _REVEALING}, _WITNESSING: {_REVEALING}}

    def __init__(self, engine: Engine, keys: EpochKeys) -> None:
        super().__init__(engine)
        self._keys = keys
        self._evaluation: Evaluation | None = None

    @property
    def _evaluated(self) -> Evaluation:
        if self._evaluation is None:
            raise LocalProtocolError("Nothing is being computed on ciphertexts.")
        return self._evaluation

    def forget(self, scope: Scope) -> None:
        """Drop what was not opened (O9)."""
        if scope is Scope.ASK:
            self._evaluation = None

    def examine(
        self,
        kept: Uploads,
        disclosure: Disclosure,
        name: str,
        where: Where,
        results: Sequence[bytes],
        secrets: Sequence[Message],
        numbers: tuple[int, ...] = (),
    ) -> list[Delivery]:
        """Have a result witnessed; where the policy asks for no witness, have it opened."""
        uploads = kept.uploads
        dims = self._context.find(name, disclosure, Step.OPEN).dims
        headers = b"".join(upload.header for upload in uploads.values())
        self._evaluation = Evaluation(
            disclosure=disclosure,
            name=name,
            where=where,
            members=kept.where.members,
            names=tuple(uploads),
            source=kept.where.exchange,
            headers=headers.ljust(dims["upload_headers"], b"\0"),
            results=b"".join(results).ljust(dims["results"], b"\0"),
            numbers=numbers,
        )
        if not self._witnesses(disclosure):
            return [self._request_reveal()]
        return self._show(kept, self._evaluation, secrets)

    def _show(
        self, kept: Uploads, evaluation: Evaluation, secrets: Sequence[Message]
    ) -> list[Delivery]:
        """Show every witness signed uploads, and what else the result follows from."""
        self.go(_WITNESSING)
        context, where, disclosure = self._context, evaluation.where, evaluation.disclosure
        item, uploads = context.find(evaluation.name, disclosure, Step.WITNESS), kept.uploads
        signatures = b"".join(upload.signature for upload in uploads.values())
        padded = signatures.ljust(len(context.plan.clients) * SIGNATURE_BYTES, b"\0")
        bodies = b"".join(upload.body for upload in uploads.values())
        request = Examine(
            members=context.roster.mask(kept.where.members),
            cohort=context.roster.mask(where.members),
            headers=evaluation.headers,
            signatures=np.frombuffer(padded, dtype=np.uint8).reshape(-1, SIGNATURE_BYTES),
            uploads=bodies.ljust(item.dims["uploads"], b"\0"),
        )
        found: list[Delivery] = []
        for one in self._witnesses(disclosure):
            self._keys.missed_by([one])  # perhaps: it says nothing to keys, and all rest on it
            found += self._keys.again(one)
            found.append(self._engine.send(item, [request, *secrets], one, where))
        return found

    def _witnesses(self, disclosure: Disclosure) -> list[str]:
        return witnesses_of(
            self._context.policy, disclosure, self._context.roster.names(Role.WITNESS)
        )

    def _take_witnessed(self, incoming: Incoming) -> None:
        """Take a witness's signature; one over anything else would end the key authority."""
        evaluation = self._evaluating(incoming, _WITNESSING)
        message = self._engine.read_one(incoming, Witnessed)
        sender = incoming.header.sender  # the inbox takes one envelope of it an exchange
        key = self._context.roster.party(sender).verify
        try:
            key.verify("witness", message.signature, self._statement(evaluation))
        except CryptoError as error:
            raise BadEnvelope(f"{sender} signed another result than it was shown.") from error
        evaluation.signatures[sender] = message.signature

    def _statement(self, evaluation: Evaluation) -> bytes:
        name, where = evaluation.name, evaluation.where
        facts = (name, evaluation.disclosure, where, evaluation.source)
        place = place_of_result(self._context, *facts)
        return statement(place, evaluation.headers, evaluation.results, evaluation.numbers)

    def _evaluating(self, incoming: Incoming, stage: str) -> Evaluation:
        """Return what an envelope is about; raises WrongStage if it is about nothing now."""
        evaluation, header = self._evaluation, incoming.header
        if evaluation is None or self.stage != stage:
            raise WrongStage("A result arrived while none was asked for.")
        if (incoming.item.exchange, incoming.item.part) != (evaluation.name, evaluation.disclosure):
            raise WrongStage("A result belongs to another Ask.")
        where = evaluation.where
        places = (header.round, header.exchange, header.attempt)
        if places != (where.round, where.exchange, where.attempt):
            raise WrongStage("A result belongs to another round than the one asked.")
        if header.cohort != self._context.cohort(where):
            raise BadEnvelope("A result belongs to another cohort.")
        return evaluation

    def _request_reveal(self) -> Delivery:
        """Ask the key authority to open what the witnesses signed."""
        evaluation, context = self._evaluated, self._context
        witnesses = self._witnesses(evaluation.disclosure)
        self._keys.taken_by(evaluation.signatures)
        if late := [name for name in witnesses if name not in evaluation.signatures]:
            raise RoundLost(
                f"{late[0]} did not witness a result, so nothing is opened. The round is skipped.",
                why="it is not reachable, or ended its session",
                fix="this was not opened; the next round goes on when it is there",
            )
        self.go(_REVEALING)
        signatures = b"".join(evaluation.signatures[name] for name in witnesses)
        rows = np.zeros(len(context.plan.clients), dtype=np.int64)
        rows[: len(evaluation.numbers)] = evaluation.numbers
        request = Reveal(
            members=context.roster.mask(evaluation.members),
            cohort=context.roster.mask(evaluation.where.members),
            headers=evaluation.headers,
            results=evaluation.results,
            rows=rows,
            signatures=np.frombuffer(signatures, dtype=np.uint8).reshape(-1, SIGNATURE_BYTES),
        )
        evaluation.results = b""
        item = context.find(evaluation.name, evaluation.disclosure, Step.OPEN)
        authority = context.roster.one(Role.KEY_AUTHORITY).name
        return self._engine.send(item, [request], authority, evaluation.where)

    def _take_revealed(self, incoming: Incoming) -> None:
        evaluation = self._evaluating(incoming, _REVEALING)
        cosines = evaluation.disclosure is Disclosure.SIMILARITY
        if len(incoming.item.messages) == 1:
            evaluation.opened = self._engine.read_one(incoming, Cosines if cosines else RowBoxes)
        else:
            evaluation.opened, evaluation.cut = self._engine.read(incoming, (Cosines, SignedCut))

    def advance(self) -> list[Delivery] | None:
        """Go on: have what was witnessed opened; None once `opened` is to be called."""
        witnessed = self.stage == _WITNESSING
        return [self._request_reveal()] if witnessed else None

    def opened(self) -> tuple[Evaluation, Message]:
        """Return, once, what the authority opened; raises RoundLost if it did not answer."""
        evaluation, self._evaluation = self._evaluated, None
        self.rest()
        if evaluation.opened is None:
            raise RoundLost(
                "The key authority did not open a result. The round is skipped.",
                why="it is not reachable, or ended its session",
                fix="the next round goes on when it is there; this result is never opened again",
            )
        return evaluation, evaluation.opened

    takes: ClassVar[Takes] = {
        **dict.fromkeys([(d, Step.WITNESSED) for d in EVALUATED], _take_witnessed),
        **dict.fromkeys([(d, Step.OPENED) for d in EVALUATED], _take_revealed),
    }
