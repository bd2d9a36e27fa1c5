"""Requests that are pushed: each is worked on once, whatever is lost, repeated or late."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("nvflare", reason="the extra nvflare is not installed")

from nvflare.apis.fl_constant import FLContextKey, ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.apis.signal import Signal
from nvflare.fuel.f3.cellnet.defs import ReturnCode as CellReturnCode
from nvflare.fuel.utils import fobs

from secure_fgl.transports.broker.codes import Code, Heard
from secure_fgl.transports.nvflare import executor, wire
from secure_fgl.transports.nvflare.executor import Seat
from secure_fgl.transports.nvflare.pushed import carrier
from secure_fgl.transports.nvflare.pushed.awaited import JobAborted
from secure_fgl.transports.nvflare.pushed.carrier import PushCarrier
from tests.sites.processes import until

RUN = "ab" * 16
TASK = wire.TASK


@dataclass
class Party:
    """What answers at a site in place of a session, and how often it was asked."""

    seconds: float = 0.0
    release: threading.Event | None = None
    asked: list[bytes] = field(default_factory=list)

    def __call__(
        self, run: str, name: str, envelopes: list[bytes], end: float, abort: Signal, taken: Any
    ) -> Heard:
        taken()
        self.asked.append(envelopes[0])
        time.sleep(self.seconds)
        if self.release is not None:
            self.release.wait(10)
        return Heard(Code.DONE, [b"answer to " + envelopes[0]])


@dataclass
class Network:
    """One site's relay behind an engine that does to each message what a test wants."""

    does: Callable[[int, Callable[[], Shareable]], Shareable | None]
    seat: Seat = field(default_factory=lambda: Seat(RUN))
    sent: list[Shareable] = field(default_factory=list)
    scope: Any = None

    def new_context(self) -> Any:
        made = FLContext()
        made.set_prop(FLContextKey.SCOPE_OBJECT, self.scope, private=True, sticky=False)
        return contextlib.nullcontext(made)

    def send_aux_request(self, *, request: Shareable, **more: Any) -> dict[str, Any]:
        came = fobs.loads(fobs.dumps(request))
        self.sent.append(came)
        reply = self.does(
            len(self.sent) - 1, lambda: self.seat.execute(TASK, came, FLContext(), Signal())
        )
        return {} if reply is None else {"site": reply}


def heard(network: Network, data: bytes = b"1", seconds: float = 10.0, *unhurried: str) -> Any:
    pushing = PushCarrier(network, abort=Signal())
    return pushing.carry(TASK, {"site": [data]}, seconds, unhurried).get("site")


def party(patch: pytest.MonkeyPatch, **facts: Any) -> Party:
    made = Party(**facts)
    patch.setattr(executor, "_asked", made)
    return made


def whole(sent: Shareable) -> bool:
    return "envelopes" in sent


def test_an_answer_that_is_there_at_once_is_the_reply(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = party(monkeypatch)
    network = Network(lambda number, deliver: deliver())
    assert heard(network) == Heard(Code.DONE, [b"answer to 1"])
    assert len(network.sent) == 1 and asked.asked == [b"1"]


@pytest.mark.parametrize("lost", ["request", "reply", "both", "twice"])
def test_what_is_lost_is_sent_again_and_worked_on_once(
    lost: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = party(monkeypatch)

    def does(number: int, deliver: Callable[[], Shareable]) -> Shareable | None:
        if number == 0 and lost in ("request", "both"):
            return None
        if number == 1 and lost == "both":
            return make_reply(ReturnCode.COMMUNICATION_ERROR)
        reply = deliver()
        if lost == "twice":  # the network delivers it twice
            assert fobs.dumps(deliver()) == fobs.dumps(reply)
        return None if number == 0 and lost == "reply" else reply

    network = Network(does)
    assert heard(network) == Heard(Code.DONE, [b"answer to 1"])
    assert asked.asked == [b"1"]  # without names, `reply` and `twice` would ask it twice
    names = {wire.turn(sent)[0] for sent in network.sent}
    assert len(names) == 1 and len(network.sent) == 1 + ("request", "both", "reply").count(lost) + (
        lost == "both"
    )


def test_a_long_answer_is_asked_for_and_the_bytes_go_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(carrier, "_FIRST_HOLD_SECONDS", 0.05)
    asked = party(monkeypatch, seconds=0.8)
    network = Network(lambda number, deliver: deliver())
    assert heard(network) == Heard(Code.DONE, [b"answer to 1"])
    assert [whole(sent) for sent in network.sent] == [True, False] and asked.asked == [b"1"]


def test_a_relay_that_began_anew_is_sent_the_bytes_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(carrier, "_FIRST_HOLD_SECONDS", 0.05)
    asked = party(monkeypatch, seconds=0.5)

    def does(number: int, deliver: Callable[[], Shareable]) -> Shareable:
        if number == 0:
            network.seat, reply = Seat(RUN), deliver()
            network.seat = Seat(RUN)
            return reply
        return deliver()

    network = Network(does)
    assert heard(network) == Heard(Code.DONE, [b"answer to 1"])
    assert [whole(sent) for sent in network.sent][:3] == [True, False, True]
    assert asked.asked == [b"1", b"1"]  # the session's own rule gives both the very same answer


@pytest.mark.parametrize("says", [wire.Word.TAKEN, wire.Word.QUEUED, wire.Word.UNKNOWN])
def test_a_relay_that_answers_at_once_with_nothing_is_not_asked_without_end(
    says: wire.Word,
) -> None:
    network = Network(lambda number, deliver: wire.tell(says))
    assert heard(network, b"1", 1.5) is None
    assert 1 <= len(network.sent) <= 6


def test_a_site_of_which_nothing_comes_is_given_up_before_the_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(carrier, "_LOST_SECONDS", 0.3)
    start = time.monotonic()
    assert heard(Network(lambda number, deliver: None), b"1", 30.0) is None
    assert time.monotonic() - start < 10


def test_a_job_that_ends_is_no_word_of_the_party() -> None:
    """NVFlare answers so from its order to end a job until the relay is gone; the round stands."""
    abort, said = Signal(), [ReturnCode.TASK_ABORTED, CellReturnCode.ABORT_RUN]

    def does(number: int, deliver: Callable[[], Shareable]) -> Shareable:
        if number == 3:
            abort.trigger("the job is aborted here, too")
        return make_reply(said[number % 2])

    pushing = PushCarrier(Network(does), abort=abort)
    with pytest.raises(JobAborted):
        pushing.carry(TASK, {"site": [b"1"]}, 30.0, ())
    failed = Network(lambda number, deliver: make_reply(ReturnCode.EXECUTION_EXCEPTION))
    assert heard(failed) == Heard(Code.FAILED)  # the control: what a site says of itself


def test_a_request_that_waits_is_never_seen_once_a_newer_one_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A delayed request is not worked on beside, or after, the one that the server waits for."""
    monkeypatch.setattr(carrier, "_FIRST_HOLD_SECONDS", 0.05)
    asked = party(monkeypatch, release=threading.Event())
    network = Network(lambda number, deliver: deliver())
    assert heard(network, b"1", 0.2) is None  # its exchange is over, its party still computes
    assert heard(network, b"2", 0.2) is None
    assert asked.release is not None and asked.asked == [b"1"]
    threading.Timer(0.3, asked.release.set).start()
    assert heard(network, b"3", 10.0) == Heard(Code.DONE, [b"answer to 3"])
    assert asked.asked == [b"1", b"3"]


def forged(network: Network, name: str, data: bytes | None = b"x", hold: float = 1e9) -> Any:
    """Push what another site sends in NVFlare's name; the reply, at once where `hold` is short."""
    asked = wire.request(name, None if data is None else [data], seconds=10.0, hold=hold)
    return network.seat.execute(TASK, asked, FLContext(), Signal())


def test_a_forged_request_costs_the_wanted_one_a_second_way_and_no_answer(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Else whoever can reach a relay says which client fails, and so vanishes from a round."""
    caplog.set_level(logging.CRITICAL, executor.__name__)
    asked, found = party(monkeypatch, release=threading.Event()), list[Any]()
    network = Network(lambda number, deliver: deliver())
    assert wire.word(forged(network, "before", hold=0.0)) is not None  # the party is at work
    wanted = threading.Thread(target=lambda: found.append(heard(network, b"1")))
    wanted.start()
    until(lambda: len(network.seat._turns._turns) == 2)  # and the wanted one waits
    forged(network, "between", b"y", hold=0.0)
    assert asked.release is not None
    asked.release.set()
    wanted.join(10)
    assert found == [Heard(Code.DONE, [b"answer to 1"])]


@pytest.mark.parametrize("names", ["one", "each its own"])
def test_forged_requests_do_not_hold_the_engine_s_threads(
    names: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NVFlare runs 64 of them at once: as many that wait would make a relay deaf."""
    asked = party(monkeypatch, release=threading.Event())
    network, before = Network(lambda number, deliver: deliver()), threading.active_count()
    assert wire.word(forged(network, "before", hold=0.0)) is not None  # the party is at work
    for number in range(20):
        name = "x" if names == "one" else f"x{number}"
        threading.Thread(target=forged, args=(network, name), daemon=True).start()
    assert asked.release is not None
    try:  # what is at work, what waits for it, and who waits for that
        until(lambda: threading.active_count() <= before + 3, seconds=5.0)
    finally:
        asked.release.set()
    until(lambda: threading.active_count() <= before)


@pytest.mark.parametrize("takes", [True, False])
def test_nobody_waits_for_a_site_that_missed_a_deadline_unless_its_party_takes_the_request(
    takes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(carrier, "_FIRST_HOLD_SECONDS", 0.05)
    asked = party(monkeypatch, seconds=1.5 if takes else 0.0)
    network = Network(lambda number, deliver: deliver())
    if not takes:  # it still computes what it was asked before
        asked.release = threading.Event()
        assert heard(network, b"0", 0.2) is None
    start = time.monotonic()
    found = heard(network, b"1", 8.0, "site")
    assert (found == Heard(Code.DONE, [b"answer to 1"])) is takes
    assert takes or time.monotonic() - start < 6
    if asked.release is not None:  # no thread of it is left to the next test
        asked.release.set()
        until(lambda: asked.asked == [b"0", b"1"])


@pytest.mark.parametrize(
    "sent",
    [wire.pack([b"x"]), wire.request("", [b"x"], seconds=1.0, hold=1.0),
     wire.request("x" * 65, [b"x"], seconds=1.0, hold=1.0)],
)  # fmt: skip
def test_a_request_without_a_name_is_refused(
    sent: Shareable, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = party(monkeypatch)
    said = Seat(RUN).execute(TASK, sent, FLContext(), Signal())
    assert said.get_return_code() == ReturnCode.BAD_TASK_DATA and asked.asked == []


@pytest.mark.parametrize("at", ["task_data_filters", "task_result_filters"])
def test_filters_of_the_server_s_operator_see_what_is_pushed(
    at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that raises keeps the bytes back, as it does with a task."""
    asked = party(monkeypatch)

    class Refusing:
        def process(self, data: Shareable, fl_ctx: FLContext) -> Shareable:
            raise ValueError("no")

    scope = SimpleNamespace(task_data_filters={}, task_result_filters={})
    setattr(scope, at, {"out" if at == "task_data_filters" else "in": [Refusing()]})
    network = Network(lambda number, deliver: deliver(), scope=scope)
    assert heard(network) == Heard(Code.FAILED)
    assert asked.asked == ([] if at == "task_data_filters" else [b"1"])
