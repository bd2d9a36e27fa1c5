"""Requests that come late, twice or out of order, over both relays: none of them ends a session."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import ReservedHeaderKey, Shareable
from nvflare.apis.signal import Signal
from nvflare.fuel.utils import fobs

from protocols.errors import Replay
from protocols.evidence.ledger import read_lines
from protocols.wire.envelope import Envelope
from protocols.wire.inbox import Inbox
from protocols.wire.roster import AGGREGATOR_NAME
from secure_fgl.sites.session import Answerer
from secure_fgl.sites.conducting import RelayCarrier, conduct_run
from secure_fgl.sites.control import Control
from secure_fgl.sites.process import open_process
from secure_fgl.store.finished_run import Run
from secure_fgl.transports.broker import channel
from secure_fgl.transports.broker.replies import Code, SiteReply
from secure_fgl.transports.nvflare import wire
from secure_fgl.transports.nvflare.controller import Conductor
from secure_fgl.transports.nvflare.executor import Seat
from secure_fgl.transports.nvflare.pushed import awaited, carrier
from tests.sites.stage import Parties, assemble, banks, gather, side

LATE = "client-5"
ME = frozenset({os.geteuid()})
SEED = 7


class Sitting(Seat):
    """A site's relay, with its party beside it in place of a socket; one caller at a time."""

    def __init__(self, run: str, answerer: Answerer) -> None:
        super().__init__(run)
        self.answerer, self._free = answerer, threading.Lock()

    def _work(self, name: str, carried: Shareable, abort: Signal) -> Any:
        envelopes = wire.unpack(carried)

        def work(taken: Callable[[], None]) -> SiteReply:
            with self._free:
                taken()
                if self.answerer.over:  # its process is gone by then
                    return SiteReply(Code.LEFT)
                return self.answerer.answer(name, envelopes)

        return work


@dataclass
class Network:
    """NVFlare's engine, and what the way to each site does to the requests on it.

    Attributes:
        seats: by site.
        does: what becomes of a request that is pushed; None: nothing comes back.
        first: by site and bytes what was said to them first.
    """

    seats: dict[str, Sitting]
    does: Callable[[Network, str, Shareable], Shareable | None]
    first: dict[tuple[str, bytes], list[bytes]] = field(default_factory=dict)
    past: dict[str, list[Shareable]] = field(default_factory=dict)
    patience: list[float] = field(default_factory=list)

    def new_context(self) -> Any:
        return contextlib.nullcontext(FLContext())

    def send_aux_request(
        self, *, targets: list[str], request: Shareable, **more: Any
    ) -> dict[str, Shareable]:
        (site,) = targets
        reply = self.does(self, site, fobs.loads(fobs.dumps(request)))
        return {} if reply is None else {site: fobs.loads(fobs.dumps(reply))}

    def deliver(self, site: str, asked: Shareable) -> Shareable:
        """Hand a request over; the very same bytes must never get two answers."""
        asked = fobs.loads(fobs.dumps(asked))
        self.patience.append(wire.patience(asked))
        name = asked.get_header(ReservedHeaderKey.TASK_NAME)
        reply = self.seats[site].execute(name, asked, FLContext(), Signal())
        if name == TASK and "envelopes" in asked and "envelopes" in reply:
            said, key = wire.unpack(reply), (site, b"".join(wire.unpack(asked)))
            assert self.first.setdefault(key, said) == said
        return reply

    def again(self, site: str, asked: Shareable, name: str) -> Shareable:
        """Hand bytes over once more under another name, as who forges requests can."""
        copy = fobs.loads(fobs.dumps(asked))
        copy.set_header(ReservedHeaderKey.TASK_ID, name)
        copy["hold"] = 60.0
        return self.deliver(site, copy)


def played(parties: Parties, network: Network, deadline: float = 240.0) -> None:
    """Play a run: the aggregator's process, its relay (`Conductor`), and every site's (`Seat`)."""
    kit = parties.kit(AGGREGATOR_NAME)
    ours, theirs = socket.socketpair()
    place = channel.of_run(kit.party / channel.SOCKET, kit.charter.run)
    conductor = Conductor(kit.charter.run, deadline)
    context: Any = SimpleNamespace(get_engine=lambda: network)
    abort = Signal()
    relay = threading.Thread(target=conductor.control_flow, args=(abort, context))
    conductor.system_panic = lambda *_: None  # type: ignore[method-assign]
    with ours, theirs, channel.listen(place) as listener, contextlib.ExitStack() as stack:
        relay.start()
        try:
            carries = RelayCarrier(listener, ME, Control(theirs), kit.charter.run)
            process = open_process(kit)
            stack.callback(process.files.close)  # as the system does for a process that ended
            conduct_run(kit, process, carries)
        finally:
            abort.trigger("over")
            relay.join(60)
    assert not relay.is_alive()


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Parties:
    parties = assemble(banks(rounds=2), tmp_path / "parties")
    place = parties.folders[AGGREGATOR_NAME].absolute() / channel.SOCKET
    monkeypatch.setenv(channel.SOCKET_VARIABLE, str(place))
    monkeypatch.setattr("audits.evidence.roster_file.TRANSPORTS", ("memory", "nvflare"))
    return parties


def seats_of(parties: Parties) -> dict[str, Sitting]:
    return {
        site: Sitting(parties.charter.run, Answerer(open_process(parties.kit(site))))
        for site in parties.folders
        if site != AGGREGATOR_NAME
    }


def refusals(parties: Parties) -> list[str]:
    """Return who wrote down that it refused something."""
    found = []
    for folder in parties.folders.values():
        ledger = side(folder) / "ledger" / f"{folder.name}.jsonl"
        if any(entry["kind"] == "refusal" for entry, _ in read_lines(ledger.read_bytes())):
            found.append(folder.name)
    return found


@pytest.fixture(scope="module")
def memory(tmp_path_factory: pytest.TempPathFactory) -> Run:
    from secure_fgl.federation import Federation

    return Federation.from_config(banks(rounds=2)).run(tmp_path_factory.mktemp("memory") / "run")


def unruly() -> Callable[[Network, str, Shareable], Shareable | None]:
    """Deliver twice, lose replies, and bring anything back later, at seeded places."""
    streams: dict[str, np.random.Generator] = {}
    lock = threading.Lock()

    def does(network: Network, site: str, asked: Shareable) -> Shareable | None:
        with lock:
            stream = streams.setdefault(site, np.random.default_rng([SEED, int(site[5:])]))
            past = network.past.setdefault(site, [])
            draws = stream.random(4)
            old = [past[int(place * len(past))] for place in stream.random(2) if past]
            whole = "envelopes" in asked
            number = len(past)
            past += [asked] if whole else []
        if whole and draws[0] < 0.5 and old:  # an older one overtakes it, under a name of its own
            network.again(site, old[0], f"late-{number}")
        reply = network.deliver(site, asked)
        if whole and draws[1] < 0.5:  # the network delivers it twice
            network.deliver(site, asked)
        if whole and draws[2] < 0.5 and old:  # an older one comes after it, as it was
            network.deliver(site, old[-1])
        return None if whole and draws[3] < 0.25 else reply  # and the reply is lost

    return does


def test_o5_what_comes_twice_late_or_out_of_order_changes_nothing(
    stage: Parties, memory: Run, tmp_path: Path
) -> None:
    network = Network(seats_of(stage), unruly())
    played(stage, network)
    assert max(network.patience) <= 240.0  # what the job says, of the first exchange as well
    result = stage.result()
    assert result["model_sha256"] == memory.model_sha256
    same = ("metrics", "lost_rounds", "exchanges", "bytes_up", "bytes_down")
    assert {key: result[key] for key in same} == {key: memory.result[key] for key in same}
    assert refusals(stage) == [] and len(network.first) >= 20
    assert all(seat.answerer.over for seat in network.seats.values())
    assert Run(gather(stage, tmp_path / "gathered")).verify().verdict == "self-consistent only"


@dataclass
class Stalled:
    """The first Ask that reaches one site stalls, and arrives once a newer one was answered."""

    held: Shareable | None = None
    said: list[Any] = field(default_factory=list)

    def __call__(self, network: Network, site: str, asked: Shareable) -> Shareable | None:
        if site != LATE or asked.get_header(ReservedHeaderKey.TASK_NAME) != TASK:
            return network.deliver(site, asked)
        item = self._item(asked)
        if self.held is None and item == "train.down":
            self.held = asked
        if self.held is not None and not self.said:
            if asked.get_header(ReservedHeaderKey.TASK_ID) == self._name:
                return None
            reply = network.deliver(site, asked)
            if item == "train.down" and "envelopes" in reply:  # a newer one was answered
                self.said.append(network.again(site, self.held, "late"))
                self.said.append(network.deliver(site, self.held))
            return reply
        return network.deliver(site, asked)

    @property
    def _name(self) -> str:
        assert self.held is not None
        return str(self.held.get_header(ReservedHeaderKey.TASK_ID))

    def _item(self, asked: Shareable) -> str:
        found = wire.unpack(asked) if "envelopes" in asked else []
        return Envelope.decode(found[0]).header.item if found else ""


def trusting(patch: pytest.MonkeyPatch) -> None:
    """Let every inbox forget how far the run is, as before."""
    checked = Inbox.open

    def forgetful(inbox: Inbox, data: bytes, **more: Any) -> Any:
        inbox._newest.clear()
        return checked(inbox, data, **more)

    patch.setattr(Inbox, "open", forgetful)


@pytest.mark.parametrize("mended", [True, False])
def test_o5_an_ask_that_stalls_and_comes_after_a_newer_one_ends_no_session(
    mended: bool, stage: Parties, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its site misses that one round; and without the mark its session ended (the control)."""
    monkeypatch.setattr(carrier, "_LOST_SECONDS", 0.2)
    monkeypatch.setattr(carrier, "_FIRST_HOLD_SECONDS", 60.0)  # every answer is the reply
    monkeypatch.setattr(awaited, "_GRACE_SECONDS", 60.0)
    if not mended:
        trusting(monkeypatch)
    stalled = Stalled()
    network = Network(seats_of(stage), stalled)
    late = network.seats[LATE].answerer.process
    played(stage, network)
    if not mended:
        assert refusals(stage) == [late.kit.name]
        assert isinstance(late.session.last_error, Replay)
        return
    assert [said.get_return_code() for said in stalled.said] == [ReturnCode.BAD_TASK_DATA] * 2
    assert late.session.last_error is None and refusals(stage) == []
    assert stage.result()["lost_rounds"] == []
    assert stage.result()["model_sha256"] == without_one(tmp_path)
    verdict = Run(gather(stage, tmp_path / "gathered")).verify().verdict
    assert verdict == "self-consistent only"


def without_one(folder: Path) -> str | None:
    """Return the model of the same run with nothing between its parties, of which one Ask is lost.

    No late one comes in it.
    """
    from secure_fgl.sites.process import conduct

    parties = assemble(banks(rounds=2), folder / "again")
    sites = parties.charter.carriers
    answerers = {
        name: Answerer(open_process(parties.kit(site)))
        for name, site in sites.items()
        if name != AGGREGATOR_NAME
    }
    lost: list[bytes] = []

    class Direct:
        def exchange(self, deliveries: Any) -> Any:
            found = []
            for one in deliveries:
                asks = Envelope.decode(one.data).header.item == "train.down"
                if sites[one.to] == LATE and asks and not lost:
                    lost.append(one.data)
                    continue
                said = answerers[one.to].answer(TASK, [one.data]).envelopes
                found += [SimpleNamespace(to=AGGREGATOR_NAME, data=data) for data in said]
            return found

    digest = conduct(open_process(parties.kit(AGGREGATOR_NAME)), Direct())
    assert lost
    for answerer in answerers.values():
        answerer.process.files.close()
    return digest


@pytest.fixture
def over(stage: Parties) -> Iterator[tuple[Answerer, bytes]]:
    """A client whose run is over, and the aggregator's word of it."""
    answerer = Answerer(open_process(stage.kit("client-1")))
    yield answerer, stage.end()
    answerer.process.files.close()


def test_the_word_that_a_run_is_over_comes_in_any_order_and_twice(
    over: tuple[Answerer, bytes],
) -> None:
    """It exists once all rounds are done, and says no more."""
    answerer, word = over
    assert not answerer.over and answerer.process.session.last_error is None
    ledger = answerer.process.session.ledger
    size = ledger.size
    assert answerer.answer(TASK, [word]).code is Code.UNREADABLE  # it is no envelope
    assert ledger.size == size
    assert answerer.answer(END, [word]) == SiteReply(Code.DONE, [])
    assert answerer.over and not answerer.broken
    size = ledger.size
    for name in (END, END):  # the relay finds no process by then
        answerer.answer(name, [word])
        assert ledger.size == size and answerer.over
