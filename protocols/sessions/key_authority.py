"""The key authority's session: makes the run's key, opens blinded totals, and nothing else.

It sees uniform noise (O1), and the signed headers of all uploads of a round: who took part, when,
and which ciphertext sizes. It opens only for cohorts that every member signed, each exchange once,
and overlapping cohorts of one round never (O5, O8).
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Mapping

from crypto.errors import CryptoError
from crypto.he import SecretKey
from protocols.control import Key, Opened, OpenRequest
from protocols.disclosures import Disclosure
from protocols.envelope import Header, read_signed_header
from protocols.errors import BadEnvelope, LedgerError, LocalProtocolError, Replay
from protocols.groups import epoch_of
from protocols.inbox import Letter, check_run, check_signature
from protocols.ledger import Ledger
from protocols.papers import Papers, Where
from protocols.roster import EVERYONE, Role, cohort_digest
from protocols.sessions.base import Parcel, Session
from protocols.sessions.table import Event


class KeyAuthoritySession(Session):
    """KEY_AUTHORITY: the only holder of the secret key, which lives in memory for one run."""

    def __init__(self, papers: Papers, ledger: Ledger, rounding: bytes) -> None:
        super().__init__(papers, ledger, rounding)
        self._secret: SecretKey | None = None
        self._epoch = -1
        # Digest of the last envelope, and its answer: None while it is being opened.
        self._repeat: tuple[bytes, list[Parcel] | None] = (b"", [])
        self._opened: dict[int, list[tuple[int, frozenset[str], frozenset[str]]]] = {}

    def receive(self, data: bytes) -> list[Parcel]:
        """Take one envelope, return what leaves in answer.

        Raises:
            RemoteProtocolError: not authentic, a replay, or for another run.
            LedgerError: the record could not be written; nothing is opened, nothing leaves.
        """
        digest, again = hashlib.sha256(data).digest(), False
        if digest == self._repeat[0]:
            if self._repeat[1] is not None:
                return self._repeat[1]  # a refusal too, whoever lost it
            again = True  # killed between the record of this opening and its answer
        self.alive()
        letter = self._inbox.open(data, again=again)
        try:
            replies = [self._answer(letter, digest, again)]
        except LedgerError as error:
            self.die(error)
            raise
        except Exception as error:
            self.die(error)
            where = Where(letter.header.round, letter.header.exchange)
            replies = [self.refusal(error, letter.header.sender, where)]
        self._repeat = (digest, replies)
        try:
            self.commit()
        except BaseException as error:  # whatever failed: this answer never leaves
            self._repeat = (b"", [])
            self.die(error)
            raise
        return replies

    def _answer(self, letter: Letter, digest: bytes, again: bool) -> Parcel:
        if letter.item.id == "key.call":
            return self._make_key(letter)
        return self._open(letter, digest, again)

    def _make_key(self, letter: Letter) -> Parcel:
        """Make the key of an epoch; the one before it is destroyed first (O9)."""
        if self.papers.scheme is None:
            raise LocalProtocolError("This key authority has no encryption scheme.")
        header = letter.header
        epoch = epoch_of(header.round, self.papers.policy)
        if epoch <= self._epoch:
            raise BadEnvelope("A second key is called for in one epoch (O9).")
        self.move(Event.KEY)
        self._destroy()
        self._epoch = epoch
        public, self._secret = self.papers.scheme.keygen()
        self.papers.he_key = public
        facts = {"event": "made", "key": public.key_id, "scheme": self.papers.scheme.name}
        self.ledger.record("key", facts)
        where = Where(round=header.round, exchange=header.exchange)
        return self.send("key.offer", [Key(public_key=public.raw)], EVERYONE, where)

    def _open(self, letter: Letter, digest: bytes, again: bool) -> Parcel:
        self.move(Event.OPEN)
        (request,) = self._inbox.read(letter, (OpenRequest,))
        if not isinstance(request, OpenRequest) or self._secret is None:
            raise LocalProtocolError("This key authority holds no key.")
        header, members = letter.header, self.papers.roster.unmask(request.members)
        if again:  # only what was vouched for and recorded before
            if header.exchange not in {e for e, _, _ in self._opened.get(header.round, [])}:
                raise BadEnvelope("An opening is taken up that was never recorded.")
        else:
            survivors = self._vouched(request.headers, letter, members)
            self._once(header, members, survivors)
            # Durable before the total is opened: a restart must not open another (O5).
            self._repeat = (digest, None)
            self.commit()
        scheme = self.papers.scheme
        if scheme is None:
            raise LocalProtocolError("This key authority has no encryption scheme.")
        try:
            values = scheme.decrypt(self._secret, request.total)
        except CryptoError as error:
            raise BadEnvelope("The total is not a ciphertext under this run's key.") from error
        where = Where(header.round, header.exchange, members, header.given, header.attempt)
        opened = Opened(total=values.astype("<u8").tobytes())
        name = letter.item.id.removesuffix(".open")
        return self.send(f"{name}.opened", [opened], header.sender, where)

    def _vouched(self, data: bytes, letter: Letter, members: tuple[str, ...]) -> tuple[str, ...]:
        """Check the signed upload headers; return the clients whose uploads are in the total.

        Every one of them signed the digest of the whole cohort that was asked.

        Raises:
            BadEnvelope: unsigned, foreign, contradictory or repeated headers.
            CohortTooSmall: fewer clients than the policy's minimum.
        """
        headers: list[Header] = []
        while any(data[:2]):  # a length of zero begins the padding
            header, signature, size = read_signed_header(data)
            check_signature(header, signature, self.papers.roster)
            headers.append(header)
            data = data[size:]
        if any(data):
            raise BadEnvelope("There are bytes behind the upload headers.")
        survivors = tuple(sorted(header.sender for header in headers))
        self.papers.policy.check_cohort(len(survivors))
        if len(set(survivors)) != len(survivors) or not set(survivors) <= set(members):
            raise BadEnvelope("An upload is there twice, or is not from the cohort.")
        for header in headers:
            self._check(header, letter, members, headers[0].given)
        return survivors

    def _check(self, header: Header, letter: Letter, members: tuple[str, ...], given: str) -> None:
        asked, papers = letter.header, self.papers
        check_run(header, papers)
        name = letter.item.id.removesuffix(".open")
        if header.item != f"{name}.up.{Disclosure.SUM}" or header.recipient != asked.sender:
            raise BadEnvelope("An upload header is of another item than the total.")
        if papers.roster.party(header.sender).role is not Role.CLIENT:
            raise BadEnvelope("An upload header is not from a client.")
        places = [(h.round, h.exchange, h.attempt) for h in (header, asked)]
        if places[0] != places[1]:
            raise BadEnvelope("An upload header is of another round than the total.")
        if header.given != given or asked.given != given:
            raise BadEnvelope("Not all clients were given the same model (O8).")
        digest = cohort_digest(
            papers.run, papers.plan_digest, header.round, header.attempt, members
        )
        if header.cohort != digest or asked.cohort != digest:
            raise BadEnvelope("The cohort is not the one that its members signed.")
        if papers.he_key is None or header.key != papers.he_key.key_id[:16]:
            raise BadEnvelope("An upload was made under another key.")

    def _once(self, header: Header, members: tuple[str, ...], survivors: tuple[str, ...]) -> None:
        """Open every exchange once, and hold a round to one set of survivors (O5)."""
        asked, left = frozenset(members), frozenset(survivors)
        for exchange, others, stayed in self._opened.get(header.round, []):
            if exchange == header.exchange:
                raise Replay("This exchange was already opened.")
            if left & stayed and left != stayed:
                raise BadEnvelope("Two different overlapping cohorts in one round (O5).")
            if asked & others and left & others != stayed & asked:
                raise BadEnvelope("A client vanished and came back within one round (O5).")
        self._opened.setdefault(header.round, []).append((header.exchange, asked, left))
        self.ledger.record(
            "open",
            {
                "cohort": header.cohort,
                "exchange": header.exchange,
                "members": len(members),
                "round": header.round,
                "survivors": len(survivors),
            },
        )

    def die(self, error: BaseException) -> None:
        """End the session for good and destroy the secret key (O9)."""
        super().die(error)
        self._repeat = (b"", [])  # nothing but a refusal is said again
        self._destroy()

    def close(self, result: Mapping[str, str] | None = None) -> None:
        """Destroy the secret key, record it, and end (O9)."""
        self._repeat = (b"", [])
        self._destroy()
        super().close(result)

    def _destroy(self) -> None:
        if self._secret is None or self.papers.he_key is None:
            return
        self._secret.destroy()
        self._secret = None
        with contextlib.suppress(LedgerError):  # the key must go even if nothing can be written
            facts = {"event": "destroyed", "key": self.papers.he_key.key_id}
            self.ledger.record("key", facts)
