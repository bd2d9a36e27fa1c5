"""The loop that drives a run: one for every transport."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from protocols.errors import LocalProtocolError, Refused, RoundLost
from protocols.forms import Exchange, Form
from protocols.plan.cohorts import turn
from protocols.roles.client import ClientSession
from protocols.rounds import Ask, Cohort, Reply, Round
from protocols.sessions.engine import Delivery, Outgoing, Stream
from protocols.sessions.part import State
from protocols.wire.roles import Role
from secure_fgl import _floors
from secure_fgl.config import Config
from secure_fgl.data.datasets import is_generated
from secure_fgl.devices import chosen, training_on
from secure_fgl.errors import UsageError
from secure_fgl.run.parties import Parties
from secure_fgl.transports import Transport

S = TypeVar("S")


@dataclass
class Meter:
    """Counts what went over the transport, and the time inside clients' learning.

    Attributes:
        up, down: bytes of envelopes from clients to the aggregator, and to clients.
        exchanges: calls of the transport.
        learning: seconds inside clients' answers (training and evaluation).
        before: seconds of all rounds before a kill.
        began: when this process began to count.
    """

    up: int = 0
    down: int = 0
    exchanges: int = 0
    learning: float = 0.0
    before: float = 0.0
    began: float = field(default_factory=time.perf_counter)
    clients: frozenset[str] = field(default_factory=frozenset)

    def numbers(self) -> dict[str, float]:
        """Return the counts so far."""
        return {
            "down": self.down,
            "exchanges": self.exchanges,
            "learning": self.learning,
            "up": self.up,
            "wall": self.before + time.perf_counter() - self.began,
        }

    def recall(self, numbers: Mapping[str, float]) -> None:
        """Go on counting where a killed run stopped, to within its last exchange."""
        self.up, self.down = int(numbers.get("up", 0)), int(numbers.get("down", 0))
        self.exchanges = int(numbers.get("exchanges", 0))
        self.learning, self.before = numbers.get("learning", 0.0), numbers.get("wall", 0.0)
        self.began = time.perf_counter()

    def timed(self, form: Form[Any]) -> Form[Any]:
        """Return the form with answers that add their time to `learning`."""

        def wrap(exchange: Exchange) -> Exchange:
            def answer(*arguments: Any) -> Any:
                start = time.perf_counter()
                try:
                    return exchange.answer(*arguments)
                finally:
                    self.learning += time.perf_counter() - start

            return replace(exchange, answer=answer)

        return replace(form, exchanges=tuple(wrap(e) for e in form.exchanges))


class Driver:
    """Pushes Asks through the aggregator's session and a transport.

    Args:
        parties: all sessions; only the aggregator's is called here.
        transport: carries the envelopes.
        meter: counts them.
        stopped: asked before every exchange; True ends the run there with KeyboardInterrupt.
    """

    _round = 0  # that is played, or was last

    def __init__(
        self,
        parties: Parties,
        transport: Transport,
        meter: Meter,
        stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        self._parties, self._transport, self._meter = parties, transport, meter
        self._stopped = stopped
        self._session = parties.aggregator
        self._past = iter(parties.outcomes)  # of a run that was taken up
        meter.recall(self._session.tally)
        meter.clients = frozenset(parties.roster.names(Role.CLIENT))
        self.cohort = Cohort(sorted(meter.clients), needed=self._needed())
        self._stream(getattr(transport, "batch", None))

    def _needed(self) -> int:
        """Return how many clients a cluster has at least if a cut of it can happen."""
        context = self._session.context
        least, splits = context.policy.smallest_cohort, context.plan.splits
        return least + 1 if splits is not None and splits.guard == "leave" else 2 * least

    def _stream(self, batch: int | None) -> None:
        """Where no state is kept and nothing gets lost, hold no more than a batch of envelopes."""
        if batch is None or self._session.keeper is not None or self.cohort.size <= batch:
            return
        self._session.batch = batch
        for session in self._parties.others.values():
            if isinstance(session, ClientSession):
                session.answering.repeats = False

    def start(self) -> None:
        """Agree on keys; a run that was taken up agreed on them, or goes on where it was.

        Raises:
            NotOurCode: what runs here is not ours; nothing has left.
        """
        _floors.check()  # by now all code that protects is loaded
        if self._session.under_way == "keys":
            self._until_quiet(self._session.go_on())
        elif self._session.fresh:
            self._until_quiet(self._session.start())

    @property
    def cohorts(self) -> tuple[Cohort, ...]:
        """All clients: in the cohorts that were drawn for this run, else in one."""
        drawn = self._session.drawn.cohorts
        return tuple(map(Cohort, drawn)) if drawn else (self.cohort,)

    def cohort_of(self, round: int) -> Cohort:
        """Return the cohort whose turn a round is."""
        return turn(self.cohorts, round)

    def ask(self, ask: Ask, round: int) -> Reply:
        """Return the reply to one Ask; raises RoundLost if too few clients are left for it.

        Replies from before a kill are played back: nothing is asked for them again.
        """
        for name, past in self._past:
            self._same(name, ask)
            if past is None:
                raise RoundLost("The round was lost before this run was killed; it is skipped.")
            return past
        if self._session.under_way != "ask":
            self._until_quiet(self._session.prepare(round))
            self._until_quiet(self._session.ask(ask, round))
        else:
            self._same(self._session.asking, ask)
            self._until_quiet(self._session.go_on())
        return self._session.reply()

    def finish(self) -> None:
        """Give all clients the last heads; a run that was taken up goes on where it was."""
        if self._session.under_way == "farewell":
            self._until_quiet(self._session.go_on())
        elif self._session.state is State.READY:
            self._until_quiet(self._session.farewell())

    def _same(self, name: str, ask: Ask) -> None:
        if name != self._session.name_of(ask):
            raise LocalProtocolError(
                "The run asks for something else than it did before it was killed.",
                why="the algorithm's code changed in between",
                fix="resume with the version that the run began with",
            )

    def play(self, steps: Round[S], round: int) -> S:
        """Run one round's generator to its end and return the new state.

        Raises:
            RoundLost: the round ended at a sum that was not opened; its `state` is what the
                algorithm makes of those that were, None if the state before the round stands.
        """
        lost: RoundLost | None = None
        clusters = self.cohort.parts
        if round != self._round:  # the closing Ask belongs to the last round
            self._round, self.cohort._began = round, clusters
        try:
            ask = next(steps)
            while True:
                try:
                    reply = self.ask(ask, round)
                except RoundLost as error:
                    lost = error
                    ask = steps.throw(error)
                    raise LocalProtocolError("A round goes on after it was lost.") from error
                self._check_trained(ask, reply)
                ask = steps.send(reply)
        except StopIteration as stop:
            state: S = stop.value
        except RoundLost:
            self.cohort._restore(clusters)  # the state before the round stands, and so do they
            raise
        if lost is not None:
            lost.state = state
            raise lost
        return state

    def _check_trained(self, ask: Ask, reply: Reply) -> None:
        """Raise UsageError where a total says that no client of the run trains on anything.

        Totals under noise say nothing: there nothing may rest on how many records a site has.
        """
        if self._session.context.plan.noised or reply.answers < len(self._meter.clients):
            return
        for kind in ask.wanted:
            counts = [one.name for one in kind.fields if one.training]
            if any(not getattr(reply.read(kind), name) for name in counts):
                raise untrained()

    def _until_quiet(self, outgoing: Outgoing) -> None:
        while outgoing:
            if self._stopped():
                raise KeyboardInterrupt
            self._meter.exchanges += 1
            self._session.tally = self._meter.numbers()
            for batch in outgoing.batches() if isinstance(outgoing, Stream) else (outgoing,):
                self._carry(batch)
            outgoing = self._session.advance()

    def _carry(self, deliveries: Sequence[Delivery]) -> None:
        self._meter.down += sum(len(p.data) for p in deliveries if p.to in self._meter.clients)
        answers = self._transport.exchange(deliveries)
        if {p.to for p in deliveries} <= self._meter.clients:
            self._meter.up += sum(len(p.data) for p in answers)
        for delivery in answers:
            self._receive(delivery)

    def _receive(self, delivery: Delivery) -> None:
        try:
            self._session.receive(delivery.data)
        except Refused as refused:
            # On one machine the refusing party's reason is at hand; it never travelled.
            refused.generated = is_generated(self._session.context.plan)
            raise refused from self._parties.reason(refused.sender)


def untrained() -> UsageError:
    """Return the error of a run in which nobody has anything to train on."""
    return UsageError(
        "No client has a training record.",
        why="labels are missing at every site, no split gives a record to train, or each site has "
        "records of fewer persons than the policy's minimum_records",
        fix="give labels (docs/own-data.md says how a split is chosen); secure-fgl site check "
        "shows each site what its own tables hold",
    )


PATIENCE = 3  # Ctrl-C that often stops at once, whatever is being written


@contextlib.contextmanager
def deferred_interrupts() -> Iterator[Callable[[], bool]]:
    """Let Ctrl-C take effect between exchanges, so that no ledger is cut in the middle of a write.

    Yields a function that tells whether the run should stop. Outside the main thread nothing is
    changed, since Python delivers signals to the main thread only.
    """
    presses = 0

    def press(number: int, frame: Any) -> None:
        nonlocal presses
        presses += 1
        if presses >= PATIENCE:
            raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    before = signal.signal(signal.SIGINT, press)
    try:
        yield lambda: presses > 0
    finally:
        signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def one_thread_and_deterministic(config: Config | None = None) -> Iterator[None]:
    """Train with one torch thread and deterministic algorithms, and restore both afterwards.

    On the device that a configuration asks for, and without one on the processor; raises
    UsageError where it is not there.
    """
    import torch

    device = "cpu" if config is None else chosen(config)
    threads, mode = torch.get_num_threads(), torch.get_deterministic_debug_mode()
    torch.set_num_threads(1)
    # `use_deterministic_algorithms` is the same, and loads torch's compiler besides: a second.
    torch.set_deterministic_debug_mode("error")
    try:
        with training_on(device):
            yield
    finally:
        torch.set_num_threads(threads)
        torch.set_deterministic_debug_mode(mode)
