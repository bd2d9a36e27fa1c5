"""The aggregator's session while a result is computed on ciphertexts, witnessed and opened.

Two results come about this way. Cosines belong to the Ask that brought the uploads, and are opened
before anything else of it. Rows belong to the Ask that hands them out, and are opened before it
goes out. Uploads are dropped as soon as the witnesses' requests are made (O9). Where a witness or
the key authority does not answer, the round is lost: no second result of the same uploads is ever
shown to anybody.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from crypto.errors import CryptoError
from crypto.samplers import entropy
from crypto.signatures import SIGNATURE_BYTES
from protocols.disclosures._evaluated.ciphers import COSINE_LEVELS, witnesses_of
from protocols.disclosures._evaluated.evaluation import Evaluation, Held, Uploads
from protocols.disclosures._evaluated.opening_request import place_of_result
from protocols.disclosures._evaluated.uploads import (
    facts_of_rows,
    pairs_of,
    products,
    rows,
    statement,
    whole_table,
)
from protocols.disclosures.names import Disclosure
from protocols.disclosures.views import Mixture
from protocols.errors import BadEnvelope, LocalProtocolError, RoundLost, WrongStage
from protocols.evidence.ledger import Ledger
from protocols.messages import Message, Vector
from protocols.plan.steps import Step
from protocols.sessions.engine import Parcel
from protocols.sessions.table import Event, State
from protocols.sessions.witnessing import WitnessingSession
from protocols.wire.control import (
    Cosines,
    CosineSeed,
    Examine,
    Reveal,
    Row,
    RowBoxes,
    RowSeeds,
    Witnessed,
)
from protocols.wire.inbox import Letter
from protocols.wire.roster import Role
from protocols.wire.run_context import Papers, Where


class EvaluatingSession(WitnessingSession):
    """What the aggregator does with uploads that only their results may be opened of."""

    def __init__(self, papers: Papers, ledger: Ledger, rounding: bytes) -> None:
        super().__init__(papers, ledger, rounding)
        self._evaluation: Evaluation | None = None
        self._uploads: Uploads | None = None  # that may still be weighed, in their round
        self._held: Held | None = None
        self._tables: list[Vector] = []  # of all rounds, for what they tell together (O10)

    @property
    def _evaluated(self) -> Evaluation:
        if self._evaluation is None:
            raise LocalProtocolError("Nothing is being computed on ciphertexts.")
        return self._evaluation

    def _forget(self, round: int | None) -> None:
        """Drop what was not opened, and uploads that nobody weighed in their round (O9)."""
        self._evaluation = self._held = None
        if self._uploads is not None and self._uploads.where.round != round:
            self._uploads = None

    # --- cosines ----------------------------------------------------------------------------

    def _compare(self) -> list[Parcel]:
        """Form every pair's masked product of an Ask's uploads (O3)."""
        asked, disclosure = self._asked, Disclosure.SIMILARITY
        uploads, secret = asked.taken(disclosure), entropy(32)
        where, name = asked.where, asked.exchange.name
        place = place_of_result(self.papers, name, disclosure, where, where.exchange)
        bodies = {client: upload.body for client, upload in uploads.items()}
        results = products(self.papers.key_of(disclosure), bodies, secret, place)
        kept = Uploads(where, uploads)
        return self._examine(kept, disclosure, name, where, results, [CosineSeed(seed=secret)])

    def _cosines(self, evaluation: Evaluation, opened: Message) -> Vector:
        """Return the matrix of cosines, (K, K), sorted by client."""
        if not isinstance(opened, Cosines):
            raise BadEnvelope("The key authority returned something that is no cosines.")
        names, levels = evaluation.names, np.asarray(opened.cosines)
        pairs, matrix = pairs_of(names), np.zeros((len(names), len(names)))
        if levels[len(pairs) :].any():
            raise BadEnvelope("There are numbers behind the cosines.")
        for (one, other), level in zip(pairs, levels[: len(pairs)], strict=True):
            if level > 2 * COSINE_LEVELS:
                raise BadEnvelope("The key authority returned a number that is no cosine.")
            i, j = names.index(one), names.index(other)
            matrix[i, j] = matrix[j, i] = (int(level) - COSINE_LEVELS) / COSINE_LEVELS
        return matrix

    # --- rows -------------------------------------------------------------------------------

    def _weigh(self, held: Held, mixture: Mixture) -> list[Parcel]:
        """Combine the uploads of this round for every receiver, each under a blind (O1)."""
        kept, disclosure = self._uploads, Disclosure.WEIGHTED_SUM
        if kept is None or kept.where.exchange != mixture._source:
            raise LocalProtocolError("What is to be handed out was weighed before, or is gone.")
        if kept.where.round != held.round or not set(held.members) <= set(kept.uploads):
            raise LocalProtocolError("Rows go to clients that gave something in the same round.")
        self._held, self._uploads = held, None
        seeds, names = [entropy(32) for _ in kept.uploads], list(kept.uploads)
        bodies = [upload.body for upload in kept.uploads.values()]
        where = Where(held.round, self._exchange_number, held.members)
        key, policy = self.papers.key_of(disclosure), self.papers.policy
        results = rows(key, bodies, mixture._table, seeds, policy)
        whole = whole_table(mixture._table, names, self.papers.roster.clients)
        self._tables.append(whole)
        facts = {
            **facts_of_rows(self._tables, seeds),
            "exchange": where.exchange,
            "flattened": [names[row] for row in mixture._flattened],
            "receivers": len(names),
            "round": held.round,
            "uploads": kept.where.exchange,
        }
        self.ledger.record("weights", facts)
        table = np.zeros(whole.shape, dtype=np.int64)
        table[: len(names), : len(names)] = mixture._table
        padded = np.frombuffer(b"".join(seeds).ljust(len(table) * 32, b"\0"), dtype=np.uint8)
        secret = RowSeeds(weights=table, seeds=padded.reshape(-1, 32))
        name = held.exchange.name
        parcels = self._examine(kept, disclosure, name, where, results, [secret])
        self._evaluated.seeds = seeds
        return parcels

    def _rows(self, evaluation: Evaluation, opened: Message) -> dict[str, Row]:
        """Return what every receiver is handed: a box that it alone opens, and its blind's seed."""
        if not isinstance(opened, RowBoxes):
            raise BadEnvelope("The key authority returned something that is no rows.")
        boxes = opened.boxes
        size = len(boxes) // len(self.papers.plan.clients)
        cut = [boxes[place * size : (place + 1) * size] for place in range(len(evaluation.names))]
        triples = zip(evaluation.names, cut, evaluation.seeds, strict=True)
        return {name: Row(box=box, seed=seed) for name, box, seed in triples}

    # --- both -------------------------------------------------------------------------------

    def _examine(
        self,
        kept: Uploads,
        disclosure: Disclosure,
        name: str,
        where: Where,
        results: Sequence[bytes],
        secrets: Sequence[Message],
    ) -> list[Parcel]:
        """Have a result witnessed; where the policy asks for no witness, have it opened."""
        uploads = kept.uploads
        dims = self.papers.find(name, disclosure, Step.OPEN).dims
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
        )
        if not self._witnesses(disclosure):
            return [self._request_reveal()]
        return self._show(kept, self._evaluation, secrets)

    def _show(
        self, kept: Uploads, evaluation: Evaluation, secrets: Sequence[Message]
    ) -> list[Parcel]:
        """Show every witness signed uploads, and what else the result follows from."""
        self.move(Event.WITNESS)
        papers, where, disclosure = self.papers, evaluation.where, evaluation.disclosure
        item, uploads = papers.find(evaluation.name, disclosure, Step.WITNESS), kept.uploads
        signatures = b"".join(upload.signature for upload in uploads.values())
        padded = signatures.ljust(len(papers.plan.clients) * SIGNATURE_BYTES, b"\0")
        bodies = b"".join(upload.body for upload in uploads.values())
        request = Examine(
            members=papers.roster.mask(kept.where.members),
            cohort=papers.roster.mask(where.members),
            headers=evaluation.headers,
            signatures=np.frombuffer(padded, dtype=np.uint8).reshape(-1, SIGNATURE_BYTES),
            uploads=bodies.ljust(item.dims["uploads"], b"\0"),
        )
        witnesses = self._witnesses(disclosure)
        return [self.send(item, [request, *secrets], one, where) for one in witnesses]

    def _witnesses(self, disclosure: Disclosure) -> list[str]:
        return witnesses_of(self.papers.policy, disclosure, self.papers.roster.names(Role.WITNESS))

    def _take_witnessed(self, letter: Letter) -> None:
        """Take a witness's signature; one over anything else would end the key authority."""
        evaluation = self._evaluating(letter, State.WITNESSING)
        (message,) = self._inbox.read(letter, (Witnessed,))
        if not isinstance(message, Witnessed):
            raise BadEnvelope("A witness's signature is of another type.")
        sender = letter.header.sender  # the inbox takes one letter of it an exchange
        key = self.papers.roster.party(sender).verify
        try:
            key.verify("witness", message.signature, self._statement(evaluation))
        except CryptoError as error:
            raise BadEnvelope(f"{sender} signed another result than it was shown.") from error
        evaluation.signatures[sender] = message.signature

    def _statement(self, evaluation: Evaluation) -> bytes:
        name, where = evaluation.name, evaluation.where
        facts = (name, evaluation.disclosure, where, evaluation.source)
        place = place_of_result(self.papers, *facts)
        return statement(place, evaluation.headers, evaluation.results)

    def _evaluating(self, letter: Letter, state: State) -> Evaluation:
        """Return what a letter is about; raises WrongStage if it is about nothing now."""
        evaluation, header = self._evaluation, letter.header
        if evaluation is None or self.state is not state:
            raise WrongStage("A result arrived while none was asked for.")
        if (letter.item.exchange, letter.item.part) != (evaluation.name, evaluation.disclosure):
            raise WrongStage("A result belongs to another Ask.")
        where = evaluation.where
        places = (header.round, header.exchange, header.attempt)
        if places != (where.round, where.exchange, where.attempt):
            raise WrongStage("A result belongs to another round than the one asked.")
        if header.cohort != self.papers.cohort(where):
            raise BadEnvelope("A result belongs to another cohort.")
        return evaluation

    def _request_reveal(self) -> Parcel:
        """Ask the key authority to open what the witnesses signed."""
        evaluation, papers = self._evaluated, self.papers
        witnesses = self._witnesses(evaluation.disclosure)
        if late := [name for name in witnesses if name not in evaluation.signatures]:
            raise RoundLost(
                f"{late[0]} did not witness a result, so nothing is opened. The round is skipped.",
                why="it is not reachable, or ended its session",
                fix="this was not opened; the next round goes on when it is there",
            )
        self.move(Event.REVEAL)
        signatures = b"".join(evaluation.signatures[name] for name in witnesses)
        request = Reveal(
            members=papers.roster.mask(evaluation.members),
            cohort=papers.roster.mask(evaluation.where.members),
            headers=evaluation.headers,
            results=evaluation.results,
            signatures=np.frombuffer(signatures, dtype=np.uint8).reshape(-1, SIGNATURE_BYTES),
        )
        evaluation.results = b""
        item = papers.find(evaluation.name, evaluation.disclosure, Step.OPEN)
        authority = papers.roster.one(Role.KEY_AUTHORITY).name
        return self.send(item, [request], authority, evaluation.where)

    def _take_revealed(self, letter: Letter) -> None:
        evaluation = self._evaluating(letter, State.REVEALING)
        cosines = evaluation.disclosure is Disclosure.SIMILARITY
        (evaluation.opened,) = self._inbox.read(letter, (Cosines if cosines else RowBoxes,))

    def _revealed(self) -> tuple[Evaluation, Message]:
        """Return what the authority opened; raises RoundLost if it did not answer."""
        evaluation, self._evaluation = self._evaluated, None
        if evaluation.opened is None:
            raise RoundLost(
                "The key authority did not open a result. The round is skipped.",
                why="it is not reachable, or ended its session",
                fix="the next round goes on when it is there; this result is never opened again",
            )
        return evaluation, evaluation.opened
