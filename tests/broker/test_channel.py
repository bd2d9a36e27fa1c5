"""The socket between a party and its carrier: whom it greets, what it takes, when it ends."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from secure_fgl.sites.session import Callers, OwnCarrier, serve
from secure_fgl.transports.broker import channel
from secure_fgl.transports.broker.carrier import Away, Left, Party
from secure_fgl.transports.broker.channel import Gone
from secure_fgl.transports.broker.messages import MOST, Code, SiteReply, decode, encode
from tests.callers import connect

ME = os.geteuid()


@pytest.fixture
def place(tmp_path: Path) -> Path:
    tmp_path.chmod(0o700)
    return tmp_path / "socket"


@pytest.fixture
def listener(place: Path) -> Iterator[socket.socket]:
    with channel.bound(place) as made:
        made.listen(8)
        yield made


def connected(place: Path, callers: Callers) -> socket.socket:
    """Return a carrier's connection, which the party has greeted."""
    thread = threading.Thread(target=lambda: callers._accept())
    thread.start()
    made = connect(place)
    thread.join()
    return made


def test_the_socket_is_its_users_own(place: Path) -> None:
    channel.bound(place).close()
    assert place.stat().st_mode & 0o777 == 0o600
    channel.bound(place, shared=True).close()  # what a killed process left is replaced
    assert place.stat().st_mode & 0o777 == 0o660
    for mode, shared in ((0o750, False), (0o701, True), (0o770, True), (0o755, False)):
        place.parent.chmod(mode)
        with pytest.raises(PermissionError, match="open to others"):
            channel.bound(place, shared=shared)
    place.parent.chmod(0o750)
    channel.bound(place, shared=True).close()
    place.unlink()
    place.write_text("a ledger")
    with pytest.raises(PermissionError, match="no socket"):
        channel.bound(place, shared=True)


def test_a_run_s_name_is_checked_before_it_is_part_of_a_path(tmp_path: Path) -> None:
    run = "0" * 32
    assert channel.socket_of(tmp_path / "socket", run) == tmp_path / f"socket.{run}"
    for wrong in ("", "0" * 31, "../" + "0" * 32, "0" * 32 + "\n", "A" * 32):
        with pytest.raises(ValueError, match="run"):
            channel.socket_of(tmp_path / "socket", wrong)


def test_nobody_but_the_named_users_is_greeted(place: Path, listener: socket.socket) -> None:
    callers = Callers(listener, {ME + 1}, lambda: False)
    with pytest.raises((Gone, OSError)):
        connected(place, callers)
    assert callers._carrier is None
    callers = Callers(listener, {ME + 1, ME}, lambda: False)
    with connected(place, callers) as carrier:
        callers._users = {ME + 1}  # from here on this user is another one
        with pytest.raises((Gone, OSError)):
            connected(place, callers)
        callers.send(b"message")
        assert channel.receive(carrier) == b"message"
    callers.hang_up()


def test_a_carrier_tells_gone_from_left(place: Path) -> None:
    async def asked() -> bytes:
        return await Party(place).ask(b"q")

    with pytest.raises(Left):
        asyncio.run(asked())
    channel.bound(place).close()  # as a killed process leaves it
    with pytest.raises(Away) as found:
        asyncio.run(asked())
    assert not isinstance(found.value, Left)


def test_messages_of_any_size_cross_and_what_is_none_is_gone() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        for message in (b"", b"x", bytes(9 << 20)):
            thread = threading.Thread(target=channel.send, args=(ours, message))
            thread.start()
            assert channel.receive(theirs) == message
            thread.join()
        ours.sendall(channel.LENGTH.pack(MOST + 1))
        with pytest.raises(Gone):
            channel.receive(theirs)
        ours.sendall(channel.LENGTH.pack(10) + b"half")
        ours.shutdown(socket.SHUT_WR)
        with pytest.raises(Gone):
            channel.receive(theirs)
        theirs.close()
        with pytest.raises(Gone):
            channel.send(ours, bytes(1 << 20))


class Answers:
    """A party's `Answerer`; what it was asked, and what ends it."""

    def __init__(self, work: Callable[[], None] = lambda: None) -> None:
        self.over = self.broken = False
        self.asked: list[tuple[str, list[bytes]]] = []
        self._work = work

    def answer(self, request: str, envelopes: Sequence[bytes]) -> SiteReply:
        self.asked.append((request, [*envelopes]))
        self._work()
        self.over = request == "end"
        return SiteReply(Code.DONE, [*envelopes])


def serving(answers: Any, callers: Callers) -> threading.Thread:
    thread = threading.Thread(target=serve, args=(answers, callers))
    thread.start()
    return thread


def test_a_new_carrier_takes_the_place_of_the_old(place: Path, listener: socket.socket) -> None:
    answers, callers = Answers(), Callers(listener, {ME}, lambda: False)
    thread = serving(answers, callers)
    first = connect(place)
    channel.send(first, encode({"do": "envelopes"}, [b"1"]))
    assert decode(channel.receive(first)) == ({"code": "done"}, [b"1"])
    second = connect(place)
    channel.send(second, encode({"do": "envelopes"}, [b"2"]))
    assert decode(channel.receive(second)) == ({"code": "done"}, [b"2"])
    with pytest.raises(Gone):
        channel.receive(first)
    channel.send(second, b"no message of ours")
    with pytest.raises(Gone):
        channel.receive(second)
    with connect(place) as third:
        channel.send(third, encode({"do": "end"}))
        assert decode(channel.receive(third)) == ({"code": "done"}, [])
    thread.join(5)
    assert not thread.is_alive()
    assert answers.asked == [("envelopes", [b"1"]), ("envelopes", [b"2"]), ("end", [])]
    first.close()
    second.close()
    callers.hang_up()


def test_a_carrier_reconnects_to_a_party_that_was_started_anew(place: Path) -> None:
    async def play() -> None:
        party = Party(place)
        for number in (b"1", b"2"):
            with channel.bound(place) as listener:
                listener.listen(8)
                callers = Callers(listener, {ME}, lambda: False)
                thread = serving(answers := Answers(), callers)
                ask = encode({"do": "envelopes"}, [number])
                assert decode(await party.ask(ask))[1] == [number]
                answers.broken = True
                callers.ends = lambda: True
                await asyncio.to_thread(thread.join)
                callers.hang_up()

    asyncio.run(play())


def test_a_site_that_is_stopped_lets_no_answer_leave(place: Path, listener: socket.socket) -> None:
    stopped = threading.Event()
    callers = Callers(listener, {ME}, stopped.is_set)
    answers = Answers(work=stopped.set)  # it is stopped while it computes
    thread = serving(answers, callers)
    with connect(place) as carrier:
        channel.send(carrier, encode({"do": "envelopes"}, [b"1"]))
        thread.join(5)
        assert not thread.is_alive()
        callers.hang_up()
        with pytest.raises(Gone):
            channel.receive(carrier)
    assert answers.asked == [("envelopes", [b"1"])]


def test_the_aggregator_asks_the_carrier_that_follows_a_lost_one(
    place: Path, listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    callers = Callers(listener, {ME}, lambda: False)
    came: list[Any] = []
    bundles = {"a": [b"1", b"2"], "b": [b"3"]}
    carry = threading.Thread(
        target=lambda: came.append(OwnCarrier(callers).carry("envelopes", bundles, 9.0, {"b"}))
    )
    carry.start()
    asked = []
    replies: list[object] = [
        None,  # this one is killed
        [["a", "done", 2]],  # says of envelopes that it has not
        [["c", "done", 0]],  # of nobody who was asked
        [["a", "done", 0], ["a", "done", 0]],
        [["a", "fine", 0]],
        [["a", "done", True]],
        "a",
        [["a", "done", 1], ["b", "away", 0]],
    ]
    for claim in replies:
        with connect(place) as carrier:
            asked.append(decode(channel.receive(carrier)))
            if claim is not None:
                channel.send(carrier, encode({"replies": claim}, [b"x"]))
                with pytest.raises(TimeoutError if claim is replies[-1] else Gone):
                    channel.receive(carrier, seconds=0.2 if claim is replies[-1] else 3.0)
    carry.join(5)
    head = {"do": "carry", "task": "envelopes", "parties": [["a", 2], ["b", 1]], "seconds": 9.0,
            "unhurried": ["b"]}  # fmt: skip
    assert asked == [(head, [b"1", b"2", b"3"])] * len(replies)
    assert came == [{"a": SiteReply(Code.DONE, [b"x"]), "b": SiteReply(Code.AWAY, [])}]
    callers.hang_up()
