"""What a party's process is at: a small file that ``secure-fgl status`` reads.

It holds what the network sees and the plan says: names, numbers of rounds and exchanges, sizes,
times, the words of closed lists, and a site's privacy budget in numbers. No score, no payload and
no key goes in, and of an error nothing but that there was one: which one it was may depend on the
data. That goes to ``site.log`` beside it, which the party's operator alone reads.

The file lies beside run/ and not in it: a session that does not come up has no run folder.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

from protocols.errors import EvidenceError, LedgerError, Refused, RoundLost
from protocols.policy.budget import budget_key
from protocols.rounds import Round
from protocols.sessions.engine import Delivery
from protocols.wire.envelope import Envelope
from protocols.wire.roles import Role
from secure_fgl.charters.party import PartyKit
from secure_fgl.errors import UsageError
from secure_fgl.run.driver import Driver, Meter
from secure_fgl.run.parties import Parties
from secure_fgl.store.budgets import BudgetStore
from secure_fgl.store.files import Folder
from secure_fgl.transports import Transport

STATUS_FILE = "status.json"
_LIMIT = 16 << 20  # bytes; a party that is awaited takes about 40


class State(StrEnum):
    """How far a party's process is."""

    OPENING = "opening"
    RUNNING = "running"
    OVER = "over"
    REFUSED = "refused"
    STOPPED = "stopped"


@dataclass
class Status:
    """What the file says. Times are seconds since 1970 by this machine's clock.

    Attributes:
        party, role, run: whose it is, and of which run.
        rounds: how many the plan has.
        state, since: how far it is, and since when.
        reason: at the aggregator, who refused, with the code that travelled.
        at: the last event.
        round, exchange, item: the newest envelope's round, number of the Ask and item of the plan.
        sent, received: bytes of envelopes.
        lost: rounds that were skipped (O5); only the aggregator knows.
        awaited, away: at the aggregator, by party: who is still to answer, since when; and who did
            not answer the last time, since when.
        budget: at a client, by data set: what all runs so far reserved of it.
    """

    party: str
    role: str
    run: str
    rounds: int
    state: str = State.OPENING
    since: float = 0.0
    reason: str = ""
    at: float = 0.0
    round: int = 0
    exchange: int = 0
    item: str = ""
    sent: int = 0
    received: int = 0
    lost: list[int] = field(default_factory=list)
    awaited: dict[str, float] = field(default_factory=dict)
    away: dict[str, float] = field(default_factory=dict)
    budget: dict[str, dict[str, float]] = field(default_factory=dict)


def read_status(folder: str | Path) -> Status:
    """Read a party's status file, in the folder of a run.

    Raises:
        UsageError: there is none, or it is not one of ours.
    """
    path = Path(folder) / STATUS_FILE
    try:
        data = Folder(folder).read(STATUS_FILE, _LIMIT)
    except (EvidenceError, OSError) as error:
        raise UsageError(f"{path} cannot be read.", fix="look at it as its owner") from error
    if not data:
        raise UsageError(
            f"{path} is missing.",
            why="no process of this party has begun, or this is not a party's folder",
            fix="give the folder that holds identity.json, after the site was started",
        )
    try:
        document = json.loads(data)
        if not isinstance(document, dict) or set(document) != {f.name for f in fields(Status)}:
            raise ValueError
        found = Status(**document)
        State(found.state)
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"{path} is not a status of ours.",
            why="another version of this program wrote it, or it was edited",
            fix="ask the installation that runs this party",
        ) from error
    return found


class StatusFile:
    """Writes the file, as a whole and for its owner alone, once an event.

    A status that cannot be written is left out: it must not stop a run.

    Args:
        folder: of the run at the party.
        status: what to begin with.
        now: seconds since 1970.
    """

    def __init__(
        self, folder: Path, status: Status, *, now: Callable[[], float] = time.time
    ) -> None:
        self._folder, self.status, self._now = Folder(folder), status, now
        self._told: BaseException | None = None
        self._lock = threading.Lock()  # the engine answers in threads of its own
        self._reach(State.OPENING)

    @classmethod
    def of(cls, kit: PartyKit) -> StatusFile:
        """Return the file of a process that begins now; it counts on from an earlier one's."""
        charter = kit.charter
        status = Status(kit.name, str(kit.me.party.role), charter.run, charter.plan.rounds)
        with contextlib.suppress(UsageError):
            before = read_status(kit.folder)
            if before.run == status.run:
                status.round, status.exchange, status.item = (
                    before.round, before.exchange, before.item,
                )  # fmt: skip
                status.sent, status.received = before.sent, before.received
                status.lost, status.away = before.lost, before.away
        return cls(kit.folder, status)

    def running(self, kit: PartyKit) -> None:
        """The session is open."""
        with self._lock:
            self.status.budget = _spent(kit)
            self._reach(State.RUNNING)

    def received(
        self,
        data: bytes,
        answers: Collection[bytes],
        error: BaseException | None = None,
        *,
        dead: bool = False,
    ) -> None:
        """An envelope was accepted, and these left in answer.

        Args:
            data: the envelope.
            answers: what left.
            error: what the session tells its operator.
            dead: it ended the session, and the others heard a refusal.
        """
        with self._lock:
            if error is not None and error is not self._told:
                self._told = error
                if dead:  # else, under a client's own noise, nobody may learn that there was one
                    self._stopped(State.REFUSED, error)
            elif self.status.state == State.STOPPED:  # it did not stop it for good
                self._reach(State.RUNNING)
            self.status.received += len(data)
            self.status.sent += sum(map(len, answers))
            self._where(data)
            self._write()

    def asked(self, envelopes: Mapping[str, Sequence[bytes]]) -> None:
        """The aggregator sends these to these parties, and waits for each."""
        with self._lock:
            now = self._now()
            for data in envelopes.values():
                self.status.sent += sum(map(len, data))
            # All are alike, but for what some are handed once more before it.
            self._where(next(iter(envelopes.values()))[-1])
            self.status.awaited = dict.fromkeys(sorted(envelopes), now)
            self._write()

    def heard(self, party: str) -> None:
        """A party that was asked has answered."""
        with self._lock:
            self.status.awaited.pop(party, None)
            self.status.away.pop(party, None)
            self._write()

    def answered(self, answers: Collection[bytes], *, away: bool) -> None:
        """An exchange is over; with `away`, who has not answered is away since it was asked."""
        with self._lock:
            self.status.received += sum(map(len, answers))
            for party, since in self.status.awaited.items() if away else ():
                self.status.away.setdefault(party, since)
            self.status.awaited = {}
            self._write()

    def lost(self, round: int) -> None:
        """A round is skipped."""
        with self._lock:
            if round not in self.status.lost:
                self.status.lost.append(round)
            self._write()

    def over(self, kit: PartyKit) -> None:
        """The session ended for good, and closed its ledger."""
        with self._lock:
            self.status.budget = _spent(kit) or self.status.budget
            self.status.awaited = {}
            if self.status.state != State.REFUSED:
                self._reach(State.OVER)

    @contextlib.contextmanager
    def noting(self, *harmless: type[Exception]) -> Iterator[None]:
        """Note that the session was stopped; why stands in the party's own log alone.

        Args:
            harmless: errors that stop nothing.
        """
        try:
            yield
        except harmless:
            raise
        except Exception as error:
            refused = isinstance(error, Refused)
            with self._lock:
                self.status.awaited = {}
                self._stopped(State.REFUSED if refused else State.STOPPED, error)
            raise

    def _stopped(self, state: State, error: BaseException) -> None:
        said = f"{error.sender}: {error.code}" if isinstance(error, Refused) else ""
        self._reach(state, said)

    def _where(self, data: bytes) -> None:
        """Note how far the run is; what comes once more, as public keys may, takes nothing back."""
        header, status = Envelope.decode(data).header, self.status
        if (header.round, header.exchange) >= (status.round, status.exchange):
            status.round, status.exchange = header.round, header.exchange
            status.item = header.item

    def _reach(self, state: State, reason: str = "") -> None:
        self.status.state, self.status.reason, self.status.since = state, reason, self._now()
        self._write()

    def _write(self) -> None:
        self.status.at = self._now()
        with contextlib.suppress(OSError):
            self._folder.write(STATUS_FILE, json.dumps(asdict(self.status)).encode())


def _spent(kit: PartyKit) -> dict[str, dict[str, float]]:
    """Return what all runs so far reserved of a client's budgets; nothing where none is read."""
    if kit.me.party.role is not Role.CLIENT:
        return {}
    charter, store = kit.charter, BudgetStore(kit.config().budget.store)
    found: dict[str, dict[str, float]] = {}
    for unit, cap in charter.policy.budgets.items():
        dataset = budget_key(charter.plan.data.name, unit)
        with contextlib.suppress(LedgerError, EvidenceError):
            spent = store.spent(kit.name, dataset, cap.delta)
            found[dataset] = {
                "epsilon": float(spent.epsilon), "of": cap.epsilon, "runs": spent.entries,
            }  # fmt: skip
    return found


# --- Tells a party's status file what the aggregator's rounds do; changes nothing of them ---

S = TypeVar("S")


class ToldTransport:
    """A transport that notes who is asked, who has answered, and how many bytes it took.

    Who answers while others are still awaited is known to the transport beneath alone. One that
    has an attribute `heard` calls it with each party's name; of another one nobody counts as away.
    """

    def __init__(self, inner: Transport, status: StatusFile) -> None:
        self._inner, self._status = inner, status
        self._tells = hasattr(inner, "heard")
        if self._tells:
            told: Any = inner
            told.heard = status.heard

    def exchange(self, deliveries: Sequence[Delivery]) -> list[Delivery]:
        """Deliver, as the transport beneath does."""
        envelopes: dict[str, list[bytes]] = {}
        for delivery in deliveries:
            envelopes.setdefault(delivery.to, []).append(delivery.data)
        if envelopes:
            self._status.asked(envelopes)
        answers = self._inner.exchange(deliveries)
        self._status.answered([answer.data for answer in answers], away=self._tells)
        return answers


class ToldDriver(Driver):
    """Notes which rounds are lost."""

    def __init__(
        self, parties: Parties, transport: Transport, meter: Meter, status: StatusFile
    ) -> None:
        super().__init__(parties, ToldTransport(transport, status), meter)
        self._status = status

    def play(self, steps: Round[S], round: int) -> S:
        """Run one round; see `Driver.play`."""
        try:
            return super().play(steps, round)
        except RoundLost:
            self._status.lost(round)
            raise
