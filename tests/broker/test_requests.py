"""The two ends of a request: what the carrier of a site does, and what the aggregator's does."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from nats.errors import ConnectionClosedError, NoRespondersError
from nats.errors import TimeoutError as NatsTimeout

from secure_fgl.transports.broker import messages, requests
from secure_fgl.transports.broker.carrier import Away, Left, Site
from secure_fgl.transports.broker.messages import Code, Kind, Part, SiteReply, decode, encode, split
from secure_fgl.transports.broker.requests import Requests

NAME, OTHER = bytes(range(16)), bytes(16)
LIMIT = 1000


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small parts, and fractions of the seconds that are waited for."""
    monkeypatch.setattr(messages, "PART", 64)
    monkeypatch.setattr(requests, "_RETURN_SECONDS", 0.2)
    monkeypatch.setattr(requests, "_LOST_SECONDS", 0.5)
    monkeypatch.setattr(requests, "_GRACE_SECONDS", 0.2)
    monkeypatch.setattr(requests, "_FIRST_HOLD_SECONDS", 0.05)
    monkeypatch.setattr(requests, "_PAUSES", (0.01,))


@dataclass
class Asked:
    """A party: what it was asked; `gate` holds its answer back."""

    reply: bytes = b"reply"
    messages: list[bytes] = field(default_factory=list)
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    error: Exception | None = None
    held: bool = False

    async def __call__(self, message: bytes) -> bytes:
        self.messages.append(message)
        if self.held:
            await self.gate.wait()
        if self.error is not None:
            raise self.error
        return self.reply


async def put(site: Site, message: bytes, name: bytes = NAME, hold: int = 2000) -> Part:
    """Send a request whole, as the aggregator's carrier does."""
    answer = Part(Kind.CODE, name)
    for part in split(Kind.PUT, name, message, hold):
        answer = Part.decode(await site.answer(part.encode()))
    return answer


async def answered(site: Site, part: Part) -> tuple[Kind, bytes]:
    answer = Part.decode(await site.answer(part.encode()))
    return answer.kind, bytes(answer.data)


def code(word: str) -> tuple[Kind, bytes]:
    return Kind.CODE, word.encode()


def test_each_name_is_worked_on_once_and_repeated_as_it_was() -> None:
    async def play() -> None:
        party = Asked(reply=b"r" * 150)
        site = Site(party, LIMIT)
        first = await put(site, b"q" * 200)
        assert (first.kind, first.count, bytes(first.data)) == (Kind.REPLY, 3, b"r" * 64)
        for part in split(Kind.PUT, NAME, b"q" * 200):  # a part that was lost on its way back
            assert (await site.answer(part.encode())) == first.encode()
        assert (await site.answer(Part(Kind.WAIT, NAME).encode())) == first.encode()
        got = [await answered(site, Part(Kind.GET, NAME, i)) for i in (2, 0, 1, 1)]
        pieces = [b"r" * 22, b"r" * 64, b"r" * 64, b"r" * 64]
        assert got == [(Kind.REPLY, piece) for piece in pieces]
        assert party.messages == [b"q" * 200]
        await put(site, b"q" * 200, OTHER)  # another name is another request
        assert len(party.messages) == 2

    asyncio.run(play())


def test_who_is_at_work_is_busy_for_others_and_holds_for_its_own() -> None:
    async def play() -> None:
        party = Asked(held=True)
        site = Site(party, LIMIT)
        began = time.monotonic()
        assert bytes((await put(site, b"q", hold=50)).data) == b"taken"
        assert 0.04 < time.monotonic() - began < 1
        assert bytes((await put(site, b"q", OTHER, hold=5000)).data) == Code.BUSY.encode()
        assert await answered(site, Part(Kind.WAIT, OTHER, hold=5000)) == code("unknown")
        assert await answered(site, Part(Kind.GET, NAME)) == code("unknown")  # nothing is there yet
        assert await answered(site, Part(Kind.WAIT, NAME, hold=20)) == code("taken")
        waiting = asyncio.create_task(answered(site, Part(Kind.WAIT, NAME, hold=60_000)))
        await asyncio.sleep(0.02)
        party.gate.set()
        assert await waiting == (Kind.REPLY, b"reply")
        assert party.messages == [b"q"]

    asyncio.run(play())


def test_after_a_restart_nothing_is_known() -> None:
    async def play() -> None:
        party = Asked()
        site = Site(party, LIMIT)
        parts = split(Kind.PUT, NAME, bytes(130))
        for asked in (parts[1], Part(Kind.WAIT, NAME), Part(Kind.GET, NAME)):
            assert await answered(site, asked) == code("unknown")
        assert (await answered(site, parts[0]))[0] is Kind.MORE
        assert await answered(site, split(Kind.PUT, OTHER, bytes(130))[1]) == code("unknown")
        assert party.messages == []
        assert (await put(site, bytes(130))).kind is Kind.REPLY

    asyncio.run(play())


@pytest.mark.parametrize(
    ("error", "word"), [(Left(), Code.LEFT), (Away(), Code.AWAY)], ids=["left", "away"]
)
def test_a_party_that_is_not_there_is_said_to_be_so(error: Exception, word: Code) -> None:
    async def play() -> None:
        site = Site(Asked(error=error), LIMIT)
        assert await answered(site, split(Kind.PUT, NAME, b"q", 2000)[0]) == code(word)
        assert await answered(site, Part(Kind.GET, NAME)) == code("unknown")

    asyncio.run(play())


def test_what_a_site_cannot_read_never_reaches_the_party() -> None:
    async def play() -> None:
        party = Asked()
        site, large = Site(party, LIMIT), split(Kind.PUT, NAME, bytes(LIMIT + 1))[0]
        wrong = split(Kind.PUT, NAME, bytes(65))
        wrong[1] = Part(Kind.PUT, NAME, 1, 2, 65, wrong[0].digest, 0, b"x")
        asked = [Part(k, NAME).encode() for k in (Kind.MORE, Kind.REPLY, Kind.CODE)]
        for data in (b"", b"x" * 70, large.encode(), *asked):
            assert bytes(Part.decode(await site.answer(data)).data) == Code.UNREADABLE.encode()
        assert (await answered(site, wrong[0]))[0] is Kind.MORE
        assert await answered(site, wrong[1]) == code(Code.UNREADABLE)
        assert party.messages == []
        assert (await put(site, b"q")).kind is Kind.REPLY

    asyncio.run(play())


@dataclass
class Broker:
    """A client of a broker that is none: messages go to the sites, by subject.

    Attributes:
        sites: by subject, what answers bytes.
        losses: by subject, errors that come first; a lost answer is lost after the site worked.
        sent: by subject, the parts.
    """

    sites: dict[str, Callable[[bytes], Awaitable[bytes]]]
    losses: dict[str, list[Exception]] = field(default_factory=dict)
    sent: dict[str, list[Part]] = field(default_factory=dict)
    tasks: list[asyncio.Future[None]] = field(default_factory=list)

    def new_inbox(self) -> str:
        return "inbox"

    async def subscribe(self, subject: str, cb: Callable[[Any], Awaitable[None]]) -> None:
        assert subject.startswith("inbox.") and subject.endswith(".*")
        self.hear = cb

    async def publish(self, subject: str, data: bytes, reply: str) -> None:
        """Take a message as a server does; what is lost is lost after the site worked."""
        self.sent.setdefault(subject, []).append(Part.decode(data))
        if losses := self.losses.get(subject):
            await self.sites[subject](data)
            raise losses.pop(0)
        self.tasks.append(asyncio.ensure_future(self.answered(subject, data, reply)))

    async def answered(self, subject: str, data: bytes, reply: str) -> None:
        answer, headers = b"", None
        try:
            answer = await self.sites[subject](data)
        except NoRespondersError:
            headers = {"Status": "503"}
        await self.hear(SimpleNamespace(subject=reply, data=answer, headers=headers))


def of(party: Asked) -> Callable[[bytes], Awaitable[bytes]]:
    """Return what answers for a party; its carrier is made in the loop of the first request."""
    made: list[Site] = []

    async def answer(data: bytes) -> bytes:
        made[:] = made or [Site(party, LIMIT)]
        return await made[0].answer(data)

    return answer


def good(reply: bytes = b"r" * 100) -> Callable[[bytes], Awaitable[bytes]]:
    """Return a site whose party replies with one envelope."""
    return of(Asked(encode({"code": "done"}, [reply])))


def carried(broker: Broker, seconds: float = 2.0, **more: Any) -> dict[str, SiteReply]:
    bundles = {name: [b"e" * 90, name.encode()] for name in broker.sites}
    subjects, limits = {name: name for name in bundles}, dict.fromkeys(bundles, LIMIT)

    async def play() -> dict[str, SiteReply]:
        client = Requests(broker, subjects, limits)
        return await client.carry("envelopes", bundles, seconds, more.get("unhurried", ()))

    return asyncio.run(play())


def test_every_site_gets_its_own_and_its_reply_comes_back() -> None:
    parties = {name: Asked(encode({"code": "done"}, [name.encode()] * 9)) for name in "abc"}
    replies = carried(Broker({name: of(party) for name, party in parties.items()}))
    assert replies == {n: SiteReply(Code.DONE, [n.encode()] * 9) for n in "abc"}
    for name, party in parties.items():
        head = {"do": "envelopes", "seconds": 2.0}
        assert [decode(m) for m in party.messages] == [(head, [b"e" * 90, name.encode()])]


@pytest.mark.parametrize("error", [NatsTimeout(), ConnectionClosedError(), OSError()])
def test_a_lost_answer_is_asked_for_again_under_the_same_name(error: Exception) -> None:
    party = Asked(encode({"code": "done"}, [b"r" * 100]))
    broker = Broker({"a": of(party)}, {"a": [error] * 6})
    assert carried(broker) == {"a": SiteReply(Code.DONE, [b"r" * 100])}
    assert len({part.name for part in broker.sent["a"]}) == 1
    assert len(party.messages) == 1
    kinds = [part.kind for part in broker.sent["a"]]
    assert kinds.count(Kind.PUT) + kinds.count(Kind.GET) == 3 + 1 + 6 + kinds.count(Kind.GET) - 1


def test_a_site_without_a_carrier_is_away_after_the_seconds_of_a_return() -> None:
    broker = Broker({"a": good(), "b": good()}, {"b": [NoRespondersError()] * 1000})
    began = time.monotonic()
    replies = carried(broker, 10.0)
    assert replies["a"].code is Code.DONE
    assert replies["b"] == SiteReply(Code.AWAY)
    assert 0.2 <= time.monotonic() - began < 2
    back = Broker({"b": good()}, {"b": [NoRespondersError()] * 4})
    assert carried(back, 10.0)["b"].code is Code.DONE


def test_a_site_of_which_nothing_comes_is_silent() -> None:
    broker = Broker({"a": good(), "b": good()}, {"b": [NatsTimeout()] * 1000})
    began = time.monotonic()
    assert {*carried(broker, 10.0)} == {"a"}
    assert 0.5 <= time.monotonic() - began < 3


def reply(part: Part, data: bytes = b"", **more: Any) -> bytes:
    return Part(**{"kind": Kind.REPLY, "name": part.name, "data": data, **more}).encode()


def parts(part: Part, message: bytes, index: int = 0) -> bytes:
    return split(Kind.REPLY, part.name, message)[index].encode()


HOSTILE: dict[str, Callable[[Part], bytes]] = {
    "junk": lambda p: b"junk" * 100,
    "nothing": lambda p: b"",
    "huge": lambda p: bytes(1 << 20),
    "another's name": lambda p: reply(p, name=bytes(16)),
    "too large": lambda p: reply(p, bytes(64), count=1 << 20, size=1 << 26),
    "out of order": lambda p: parts(p, bytes(300), 0 if p.kind is Kind.PUT else 2),
    "the same part": lambda p: parts(p, bytes(300)),
    "another digest": lambda p: reply(p, b"abc", size=3),
    "no message": lambda p: parts(p, b"abc"),
    "no code": lambda p: parts(p, encode({"code": "fine"})),
    "no word": lambda p: reply(p, b"\xff\xfe", kind=Kind.CODE),
    "asks": lambda p: reply(p, kind=Kind.GET),
    "skips": lambda p: reply(p, kind=Kind.MORE, index=p.index + 2),
}


@pytest.mark.parametrize("hostile", HOSTILE)
def test_a_site_that_sends_what_is_no_reply_hurts_itself_alone(hostile: str) -> None:
    async def answer(data: bytes) -> bytes:
        return HOSTILE[hostile](Part.decode(data))

    began = time.monotonic()
    replies = carried(Broker({"a": good(), "b": answer, "c": good()}), 10.0)
    assert replies.pop("b") == SiteReply(Code.FAILED)
    assert {name: r.code for name, r in replies.items()} == {"a": Code.DONE, "c": Code.DONE}
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("word", ["taken", "unknown"])
def test_a_site_that_never_finishes_costs_the_deadline_and_no_work(word: str) -> None:
    async def answer(data: bytes) -> bytes:
        return reply(Part.decode(data), word.encode(), kind=Kind.CODE)

    broker = Broker({"a": good(), "b": answer})
    began = time.monotonic()
    assert {*carried(broker, 1.0)} == {"a"}
    assert 0.9 < time.monotonic() - began < 3
    assert len(broker.sent["b"]) < 150, "it has the aggregator's carrier spin"


async def _never(data: bytes) -> bytes:
    await asyncio.Event().wait()
    return b""


async def _taken(data: bytes) -> bytes:
    part = Part.decode(data)
    if part.kind is Kind.WAIT:
        await asyncio.sleep(0.6)
        return split(Kind.REPLY, part.name, encode({"code": "done"}))[0].encode()
    return reply(part, b"taken", kind=Kind.CODE)


def test_nobody_waits_for_who_missed_the_last_deadline_unless_it_takes_the_request() -> None:
    began = time.monotonic()
    broker = Broker({"a": good(), "b": _never})
    assert {*carried(broker, 5.0, unhurried=["b"])} == {"a"}
    assert time.monotonic() - began < 2
    assert {*carried(Broker({"a": good(), "b": _taken}), 5.0, unhurried=["b"])} == {"a", "b"}


def test_a_site_whose_carrier_is_new_is_sent_all_parts_again() -> None:
    party = Asked(encode({"code": "done"}))
    sites = [of(party), of(party)]
    seen: list[int] = []

    async def answer(data: bytes) -> bytes:
        seen.append(Part.decode(data).index)
        return await sites[len(seen) > 2](data)  # after two parts it is another process

    assert carried(Broker({"a": answer}))["a"].code is Code.DONE
    assert seen[:3] == [0, 1, 2]
    assert seen[3:6] == [0, 1, 2]
    assert len(party.messages) == 1


def test_work_that_is_given_up_is_cancelled() -> None:
    async def answer(data: bytes) -> bytes:
        await asyncio.sleep(3600)
        return data

    async def play() -> None:
        client = Requests(Broker({"a": answer}), {"a": "a"}, {"a": LIMIT})
        carrying: Coroutine[Any, Any, Any] = client.carry("envelopes", {"a": [b""]}, 60.0, ())
        task = asyncio.create_task(carrying)
        await asyncio.sleep(0.1)
        assert len(client._awaited) == 1
        task.cancel()
        await asyncio.wait([task])
        await asyncio.sleep(0.1)
        assert not client._awaited

    asyncio.run(play())
