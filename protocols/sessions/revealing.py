"""The key authority's session where it opens what witnesses signed: cosines and weighted rows.

Neither cosines nor rows can be told from a single client's upload by looking at them, so nothing is
opened that the policy's number of witnesses did not compute again and sign (O4), and every result
is opened once.
"""

from __future__ import annotations

import contextlib
import hashlib

import numpy as np

from crypto.errors import CryptoError
from crypto.he import SecretKey
from protocols.disclosures._evaluated.ciphers import (
    COSINE_LEVELS,
    cosine_ring,
    weigh_ring,
    witnesses_of,
)
from protocols.disclosures._evaluated.opening_request import Shown, shown_uploads
from protocols.disclosures._evaluated.uploads import pairs_of, row_info, statement
from protocols.disclosures.names import Disclosure
from protocols.errors import BadEnvelope, LedgerError, LocalProtocolError, Replay
from protocols.evidence.ledger import Ledger
from protocols.keys.boxes import close_box
from protocols.messages import Message, Vector
from protocols.plan.steps import Step
from protocols.sessions.answering import AnsweringSession
from protocols.sessions.base import Parcel
from protocols.sessions.table import Event
from protocols.wire.control import Cosines, Reveal, RowBoxes
from protocols.wire.envelope import Header
from protocols.wire.inbox import Letter
from protocols.wire.roster import Role
from protocols.wire.run_context import Papers

_Opening = tuple[str, int, int, frozenset[str], frozenset[str]]


class RevealingSession(AnsweringSession):
    """Holds the secret keys of an epoch, and remembers what was opened."""

    def __init__(self, papers: Papers, ledger: Ledger, rounding: bytes) -> None:
        super().__init__(papers, ledger, rounding)
        self._secrets: dict[Disclosure, SecretKey] = {}
        self._epoch = -1
        # By round: disclosure, exchange, exchange of the uploads, who was asked, whose uploads.
        self._opened: dict[int, list[_Opening]] = {}

    @property
    def _secret(self) -> SecretKey | None:
        """The key under which sums are opened."""
        return self._secrets.get(Disclosure.SUM)

    def _held(self, disclosure: Disclosure) -> SecretKey:
        if disclosure not in self._secrets:
            raise LocalProtocolError("This key authority holds no key.")
        return self._secrets[disclosure]

    def _reveal(self, letter: Letter, again: bool) -> Parcel:
        """Open the cosines of one Ask's uploads, or every receiver's row of them."""
        self.move(Event.OPEN)
        (request,) = self._inbox.read(letter, (Reveal,))
        if not isinstance(request, Reveal):
            raise LocalProtocolError("This is no request to open a result.")
        header, name = letter.header, letter.item.exchange
        disclosure = Disclosure(letter.item.part)
        shown = shown_uploads(request, letter, name, disclosure, self.papers)
        if again:  # only what was vouched for and recorded before
            self._recorded(header, disclosure)
        else:
            facts = self._witnessed(request, shown, disclosure)
            self._once(header, shown.members, shown.names, disclosure, shown.source, facts)
            # Durable before anything is opened: a restart must not open another (O5).
            self._before_opening(letter)
        try:
            message = self._results(request, shown, disclosure, name)
        except CryptoError as error:
            raise BadEnvelope("A result is not what it is said to be.") from error
        item = self.papers.find(name, disclosure, Step.OPENED)
        return self.send(item, [message], header.sender, shown.where)

    def _witnessed(self, request: Reveal, shown: Shown, disclosure: Disclosure) -> str:
        """Check that enough witnesses signed these very bytes; return the statement's digest."""
        roster, papers = self.papers.roster, self.papers
        said = statement(shown.place, request.headers, request.results)
        names = witnesses_of(papers.policy, disclosure, roster.names(Role.WITNESS))
        for name, row in zip(names, np.asarray(request.signatures), strict=True):
            try:
                roster.party(name).verify.verify("witness", row.tobytes(), said)
            except CryptoError as error:
                raise BadEnvelope("A result is not what its witness signed (O4).") from error
        return hashlib.sha256(said).hexdigest()

    def _results(self, request: Reveal, shown: Shown, disclosure: Disclosure, name: str) -> Message:
        size = shown.shape.result_bytes
        count = shown.shape.results(len(shown.names))
        data = memoryview(request.results)
        if any(data[count * size :]):
            raise BadEnvelope("There are bytes behind the results.")
        results = [bytes(data[i * size : (i + 1) * size]) for i in range(count)]
        if disclosure is Disclosure.SIMILARITY:
            return self._cosines(results, shown, request)
        return self._rows(results, shown, name)

    def _cosines(self, results: list[bytes], shown: Shown, request: Reveal) -> Message:
        """Read one number a pair, rounded (O3); a number that is no cosine ends this session."""
        ring, secret = cosine_ring(), self._held(Disclosure.SIMILARITY)
        item = self.papers.find(shown.name, Disclosure.SIMILARITY, Step.OPENED)
        found: Vector = np.zeros(item.dims["pairs"], dtype=np.int64)
        for place, ((one, other), result) in enumerate(
            zip(pairs_of(shown.names), results, strict=True)
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

    def _rows(self, results: list[bytes], shown: Shown, name: str) -> Message:
        """Open each receiver's row, which is still blinded, and seal it to that receiver (O1)."""
        papers, ring, boxes = self.papers, weigh_ring(), []
        secret = self._held(Disclosure.WEIGHTED_SUM)
        for receiver, result in zip(shown.names, results, strict=True):
            if receiver not in shown.where.members:
                boxes.append(bytes(shown.shape.row_bytes))  # it vanished, and gets nothing
                continue
            row = ring.decrypt(secret, result).astype("<u8").tobytes()
            info = row_info(papers.run, shown.where.exchange, name, receiver)
            boxes.append(close_box(row, papers.me, papers.roster.party(receiver), info))
        item = papers.find(name, Disclosure.WEIGHTED_SUM, Step.OPENED)
        return RowBoxes(boxes=b"".join(boxes).ljust(item.dims["row_boxes"], b"\0"))

    def _recorded(self, header: Header, disclosure: Disclosure) -> None:
        """Raise BadEnvelope unless this opening stands in the ledger already."""
        opened = self._opened.get(header.round, [])
        if (str(disclosure), header.exchange) not in {(d, e) for d, e, *_ in opened}:
            raise BadEnvelope("An opening is taken up that was never recorded.")

    def _once(
        self,
        header: Header,
        members: tuple[str, ...],
        survivors: tuple[str, ...],
        disclosure: Disclosure = Disclosure.SUM,
        source: int | None = None,
        digest: str = "",
    ) -> None:
        """Open every exchange's uploads once, and hold a round to one set of survivors (O5).

        What one Ask brought, sums, cosines or rows, is opened over the same clients.
        """
        asked, left = frozenset(members), frozenset(survivors)
        uploads = header.exchange if source is None else source
        for kind, exchange, before, others, stayed in self._opened.get(header.round, []):
            again = exchange == header.exchange or before == uploads
            if kind == str(disclosure) and again:
                raise Replay("This exchange was already opened.")
            if before == uploads and (others, stayed) != (asked, left):
                raise BadEnvelope("Answers to one Ask are opened over different survivors (O5).")
            if kind != str(disclosure):
                continue
            if left & stayed and left != stayed:
                raise BadEnvelope("Two different overlapping cohorts in one round (O5).")
            if asked & others and left & others != stayed & asked:
                raise BadEnvelope("A client vanished and came back within one round (O5).")
        opening = (str(disclosure), header.exchange, uploads, asked, left)
        self._opened.setdefault(header.round, []).append(opening)
        facts: dict[str, object] = {
            "cohort": header.cohort,
            "exchange": header.exchange,
            "members": len(members),
            "round": header.round,
            "survivors": len(survivors),
        }
        if digest:
            facts |= {"digest": digest, "disclosure": str(disclosure), "uploads": uploads}
        self.ledger.record("open", facts)

    def _destroy(self) -> None:
        for disclosure, secret in list(self._secrets.items()):
            secret.destroy()
            del self._secrets[disclosure]
            with contextlib.suppress(LedgerError):  # it must go even if nothing can be written
                self.ledger.record("key", {"event": "destroyed", "key": secret.key_id})
