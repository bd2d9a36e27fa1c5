"""What all roles share: papers, ledger, gateway, inbox, and the state that only moves by table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, ClassVar, Protocol, cast

from crypto.errors import CryptoError
from protocols.disclosures._evaluated.ciphers import key_kinds, keyed, raw_key
from protocols.disclosures.mixed.groups import Numbers
from protocols.disclosures.sum.ring import Words
from protocols.errors import (
    BadEnvelope,
    CohortTooSmall,
    LocalProtocolError,
    NotInPlan,
    RemoteProtocolError,
    SecureFglError,
    UnfitMessage,
)
from protocols.errors import PolicyError as _PolicyError
from protocols.evidence.ledger import Ledger
from protocols.forms import Exchange
from protocols.messages import Message
from protocols.plan.plan import Item
from protocols.plan.steps import Part, Step
from protocols.rounds import Reply
from protocols.sessions.table import Event, State, advance
from protocols.wire.control import REFUSALS, Refusal
from protocols.wire.envelope import Envelope
from protocols.wire.gateway import Gateway
from protocols.wire.inbox import Inbox, Letter
from protocols.wire.run_context import Papers
from protocols.wire.where import Where


@dataclass(frozen=True)
class Parcel:
    """Bytes for one party; what a transport carries."""

    to: str
    data: bytes = field(repr=False)


class Stream:
    """Parcels that are made while they are carried, a batch at a time, and not held all at once.

    Each batch is recorded, and its record durable, before it is handed out.

    Args:
        session: makes them.
        parcels: makes the next one when it is asked for.
        size: of a batch.
    """

    def __init__(self, session: Session, parcels: Iterable[Parcel], size: int) -> None:
        self._session, self._parcels, self._size = session, iter(parcels), size

    def batches(self) -> Iterator[list[Parcel]]:
        """Yield all parcels, once; whatever fails ends the session."""
        try:
            while batch := list(islice(self._parcels, self._size)):
                self._session.commit()
                yield batch
        except Exception as error:
            self._session.die(error)
            raise


Outgoing = Sequence[Parcel] | Stream
"""What leaves in one exchange."""


Takes = Mapping[tuple[Part, Step], Callable[..., Any]]
"""By part and step, the method that takes an envelope."""


class Keeper(Protocol):
    """Keeps a session's state where it survives its process."""

    def save(self, session: Session) -> None:
        """Keep the state as it is now; raises LedgerError if that is not possible."""


class Answers(Protocol):
    """Keeps what a session says, or is told, in captured rounds; see `recording`."""

    def wants(self, exchange: Exchange, round: int) -> bool:
        """Tell whether this answer is captured."""

    def before(self, given: Sequence[Message]) -> bytes:
        """Return what an answer will rest on; to be called before the site changes."""

    def sent(
        self,
        name: str,
        where: Where,
        before: bytes,
        envelopes: Sequence[bytes],
        groups: Numbers | None,
        inside: Mapping[str, Words],
    ) -> None:
        """Keep an answer, who was mixed with whom, and masked vectors by item."""

    def tagged(self, name: str, where: Where, tags: Mapping[str, Any]) -> None:
        """Keep a client's tags beside its answer, if that was kept."""

    def viewed(self, name: str, where: Where, view: Mapping[str, bytes]) -> None:
        """Keep what a tag server or the matcher saw, or could make of it."""

    def came(self, name: str, where: Where, reply: Reply) -> None:
        """Keep what an Ask brought back."""


class Session:
    """One role in one run.

    Args:
        papers: identity, roster, plan, policy, run.
        ledger: this party's record.
        rounding: key of the stochastic rounding stream (see `protocols.wire.gateway`).
    """

    recorder: Answers | None = None  # keeps captured rounds for audits
    takes: ClassVar[Takes] = {}
    """What this role is sent, and the method that takes it."""

    def __init__(self, papers: Papers, ledger: Ledger, rounding: bytes) -> None:
        self.papers, self.ledger = papers, ledger
        self.name, self.role = papers.me.party.name, papers.me.party.role
        self._gateway, self._inbox = Gateway(papers, ledger, rounding), Inbox(papers, ledger)
        self.state = State.NEW
        self.keeper: Keeper | None = None  # keeps this session's state for after a kill
        self.last_error: BaseException | None = None  # for the local operator only; never sent
        ledger.record(
            "plan",
            {
                "config": papers.config,
                "plan": papers.plan_digest,
                "policy": papers.policy_digest,
                "role": str(self.role),
                "roster": papers.roster.digest,
                "transport": papers.transport,
            },
        )

    def move(self, event: Event) -> None:
        """Take one transition; raises WrongStage if the table holds none."""
        self.state = advance(self.role, self.state, event)

    def handler(self, letter: Letter) -> Callable[..., Any]:
        """Return what takes an envelope of this part and step; raises BadEnvelope if nothing."""
        found = self.takes.get((letter.item.part, letter.item.step))
        if found is None:
            raise BadEnvelope(f"An envelope of this kind is not for a {self.role}.")
        return cast(Callable[..., Any], getattr(self, found.__name__))

    def alive(self) -> None:
        """Raise LocalProtocolError if an earlier error ended this session."""
        if self.state in (State.DEAD, State.CLOSED):
            raise LocalProtocolError(f"This session of {self.name} is over ({self.state}).")

    def die(self, error: BaseException) -> None:
        """End the session for good and remember why, locally."""
        self.state, self.last_error = State.DEAD, error

    def send(
        self,
        item: Item,
        messages: Sequence[Message],
        recipient: str,
        where: Where,
        known: Mapping[Message, bytes] | None = None,
    ) -> Parcel:
        """Release through the gateway; the parcel may leave only after `ledger.commit()`."""
        envelope = self._gateway.release(item.id, messages, recipient, where, known)
        self._said(envelope)
        return Parcel(recipient, envelope.encode())

    def _said(self, envelope: Envelope) -> None:
        """Note what is about to leave; nothing to note by default."""

    def _keep_keys(self, letter: Letter) -> None:
        """Check the epoch's public keys, keep them and write down which they are.

        Raises:
            BadEnvelope: one of them is not usable.
        """
        secret = keyed(self.papers.plan.items, self.papers.policy)
        messages = self._inbox.read(letter, key_kinds(secret))
        for disclosure, message in zip(secret, messages, strict=True):
            try:
                key = self.papers.take_key(disclosure, raw_key(disclosure, message))
            except CryptoError as error:
                raise BadEnvelope("The offered public key is not usable.") from error
            self.ledger.record("key", {"event": "received", "key": key.key_id})

    def refusal(self, error: Exception, recipient: str, where: Where) -> Parcel:
        """Record why, and return the fixed-size refusal that says only a code (O27)."""
        code = refusal_code(error)
        facts: dict[str, Any] = {
            "code": code,
            "exchange": where.exchange,
            "reason": type(error).__name__,
            "round": where.round,
        }
        if isinstance(error, SecureFglError):
            facts["detail"] = error.what[:300]  # texts of ours hold no data value
        self.ledger.record("refusal", facts)
        message = Refusal(code=REFUSALS.index(code))
        return self.send(self.papers.refusal, [message], recipient, where)

    def commit(self) -> None:
        """Keep the state, then make the ledger durable; only after both may anything leave.

        In this order, so that whatever a ledger says, the state kept beside it knows of.

        Raises:
            LedgerError: one of them could not be written; nothing may be sent.
        """
        if self.keeper is not None:
            self.keeper.save(self)
        self.ledger.commit()

    def close(self, result: Mapping[str, str] | None = None) -> None:
        """End the run: record the last entry and write it. Harmless when repeated.

        Args:
            result: digests of what a finished run leaves (model, metrics), at the aggregator.
        """
        if self.state is State.CLOSED:
            self.ledger.commit()
            return
        if self.state is not State.DEAD:
            self.move(Event.CLOSE)
        facts: dict[str, Any] = {"state": str(self.state)}
        if result is not None:
            facts["result"] = dict(result)
        self.ledger.record("close", facts)
        self.commit()


def refusal_code(error: Exception) -> str:
    """Return the closed list's code for an error."""
    if isinstance(error, CohortTooSmall):
        return "cohort"
    if isinstance(error, UnfitMessage):
        return "unfit"
    if isinstance(error, NotInPlan):
        return "plan"
    if isinstance(error, _PolicyError):
        return "policy"
    if isinstance(error, RemoteProtocolError):
        return "stage"
    return "internal"
