"""For whom the aggregator waits, and for whom it does not."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest

from protocols.plan.steps import Service
from protocols.sessions.engine import Delivery
from protocols.wire.envelope import Envelope
from protocols.wire.roster import AGGREGATOR_NAME
from secure_fgl.sites.process import open_process
from secure_fgl.transports.broker import requests
from secure_fgl.transports.broker.messages import TASK, Code, SiteReply
from secure_fgl.transports.broker.requests import SiteTransport
from tests.sites.stage import Parties, assemble, banks

CLIENTS = ("client-1", "client-2", "client-3", "client-4", "client-5")
DEADLINE = 60.0


@dataclass
class Clock:
    """Time that passes where somebody waits, and nowhere else."""

    now: float = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@dataclass
class Told:
    """A carrier whose sites say what a test wants; who is silent is waited for."""

    clock: Clock
    says: Callable[[str, float], Code]
    asked: list[tuple[str, float]] = field(default_factory=list)

    def carry(
        self,
        name: str,
        bundles: Mapping[str, Sequence[bytes]],
        seconds: float,
        unhurried: Collection[str],
    ) -> dict[str, SiteReply]:
        found = {}
        for site, data in bundles.items():
            self.asked.append((site, self.clock.now))
            code = self.says(site, self.clock.now)
            if code is not Code.SILENT:
                found[site] = SiteReply(code, data if code is Code.DONE else ())
        if {*bundles} - {*found} - {*unhurried}:
            self.clock.sleep(seconds)
        return found


@pytest.fixture(scope="module")
def parties(tmp_path_factory: pytest.TempPathFactory) -> Parties:
    return assemble(banks(policy="he"), tmp_path_factory.mktemp("parties"))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(requests, "time", made)
    return made


def transport(told: Told, parties: Parties | None = None) -> SiteTransport:
    if parties is None:
        return SiteTransport(told, CLIENTS, deadline=DEADLINE, least=4)
    charter = parties.charter
    least = charter.policy.smallest_cohort
    return SiteTransport(told, charter.carriers, deadline=DEADLINE, plan=charter.plan, least=least)


def ask(carried: SiteTransport) -> list[bytes]:
    """Ask all five clients, each something of its own."""
    found = carried.exchange([Delivery(name, name.encode()) for name in CLIENTS])
    return [delivery.data for delivery in found]


def known(told: Told) -> SiteTransport:
    """Return a transport that has heard of everybody."""
    carried, says = transport(told), told.says
    told.says = lambda site, now: Code.DONE
    assert len(ask(carried)) == 5
    told.says = says
    told.asked.clear()
    return carried


@pytest.mark.parametrize("code", [Code.AWAY, Code.LEFT, Code.FAILED, Code.UNREADABLE])
def test_nobody_waits_for_who_says_that_it_has_no_answer(code: Code, clock: Clock) -> None:
    told = Told(clock, lambda site, now: code if site == "client-2" else Code.DONE)
    carried = known(told)
    for _ in range(3):
        assert ask(carried) == [b"client-1", b"client-3", b"client-4", b"client-5"]
    assert clock.now == 0.0
    told.says = lambda site, now: Code.DONE  # and it takes part again once it is back
    assert len(ask(carried)) == 5


@pytest.mark.parametrize("code", [Code.AWAY, Code.BUSY])
def test_below_the_smallest_cohort_all_are_waited_for(code: Code, clock: Clock) -> None:
    away = ("client-2", "client-3")
    told = Told(clock, lambda site, now: code if site in away and now < 20 else Code.DONE)
    assert len(ask(known(told))) == 5
    assert 20 <= clock.now < 21
    assert {site for site, now in told.asked if now > 0} == {*away}  # who answered is left alone


@pytest.mark.parametrize("code", [Code.AWAY, Code.SILENT])
def test_one_that_is_asked_alone_is_waited_for_once_at_most(code: Code, clock: Clock) -> None:
    """A client that was away is handed what it missed before each Ask, see `SharedTotals`."""
    told = Told(clock, lambda site, now: code if site == "client-2" else Code.DONE)
    carried = known(told)
    for _ in range(5):
        assert carried.exchange([Delivery("client-2", b"a total that it missed")]) == []
    assert clock.now == (0.0 if code is Code.AWAY else DEADLINE)
    carried.exchange([Delivery("client-1", b"another's")])
    assert clock.now <= DEADLINE
    two = [Delivery(name, b"x") for name in ("client-1", "client-2")]
    assert len(carried.exchange(two)) == 1 and clock.now <= DEADLINE


def test_who_is_asked_alone_is_waited_for_where_too_few_are_left_without_it(clock: Clock) -> None:
    """Two of five are just starting, or one is while another is gone: four are needed."""
    told = Told(clock, lambda site, now: Code.AWAY if now < 20 else Code.DONE)
    carried = known(told)
    two = [Delivery(name, b"a total that it missed") for name in ("client-2", "client-3")]
    assert len(carried.exchange(two)) >= 1 and 20 <= clock.now < 21
    told.says = lambda site, now: Code.SILENT if site == "client-2" else Code.DONE
    assert len(ask(carried)) == 4  # the deadline was waited for it once
    began = clock.now
    told.says = lambda site, now: Code.AWAY if now < began + 30 else Code.DONE
    assert len(carried.exchange([Delivery("client-3", b"x")])) == 1
    assert began + 30 <= clock.now < began + 31


def test_others_whose_carrier_says_that_they_are_away_do_not_count_as_there(clock: Clock) -> None:
    told = Told(clock, lambda site, now: Code.AWAY if site == "client-2" else Code.DONE)
    carried = known(told)
    assert len(ask(carried)) == 4 and clock.now == 0.0
    assert len(carried.exchange([Delivery("client-3", b"x")])) == 1
    told.says = lambda s, now: Code.AWAY if s == "client-2" or now < 20 else Code.DONE
    assert len(carried.exchange([Delivery("client-3", b"x")])) == 1  # four are needed
    assert 20 <= clock.now < 21
    told.says = lambda site, now: Code.DONE
    assert len(ask(carried)) == 5
    began = clock.now
    told.says = lambda site, now: Code.AWAY if site == "client-3" else Code.DONE
    assert carried.exchange([Delivery("client-3", b"x")]) == []
    assert clock.now == began  # the control: the others are four again


def test_who_left_is_not_waited_for_even_below_the_smallest_cohort(clock: Clock) -> None:
    told = Told(clock, lambda s, now: Code.LEFT if s in ("client-2", "client-3") else Code.DONE)
    assert len(ask(known(told))) == 3
    assert clock.now == 0.0


def test_a_hang_costs_one_deadline(clock: Clock) -> None:
    """First its relay waits with it; then the relay says at once that it is busy."""
    told = Told(clock, lambda site, now: Code.SILENT if site == "client-2" else Code.DONE)
    carried = known(told)
    assert len(ask(carried)) == 4 and clock.now == DEADLINE
    for code in (Code.BUSY, Code.SILENT, Code.AWAY):
        told.says = lambda site, now, code=code: code if site == "client-2" else Code.DONE  # type: ignore[misc]
        assert len(ask(carried)) == 4
    assert clock.now == DEADLINE
    told.says = lambda site, now: Code.DONE
    assert len(ask(carried)) == 5
    told.says = lambda s, now: Code.BUSY if s == "client-2" and now < 80 else Code.DONE
    assert len(ask(carried)) == 5 and clock.now >= 80  # it is trusted again, and waited for


def test_who_was_never_heard_of_is_waited_for_once(clock: Clock) -> None:
    told = Told(clock, lambda s, now: Code.LEFT if s == "client-2" and now < 9 else Code.DONE)
    assert len(ask(transport(told))) == 5
    told = Told(clock, lambda s, now: Code.LEFT if s == "client-2" else Code.DONE)
    carried, start = transport(told), clock.now
    for _ in range(3):
        assert len(ask(carried)) == 4
    assert DEADLINE - 1 <= clock.now - start <= DEADLINE


def test_other_roles_and_keys_are_waited_for(
    parties: Parties, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Real envelopes of the first keys: to the authority, then to all clients."""
    process = open_process(parties.kit(AGGREGATOR_NAME))
    try:
        calls = list(process.session.start())  # type: ignore[attr-defined]
    finally:
        process.files.close()
    (call,) = calls
    authority = call.to
    told = Told(clock, lambda site, now: Code.DONE if now >= 30 else Code.LEFT)
    carried = transport(told, parties)
    carried._known |= {*parties.charter.carriers}
    assert carried.exchange(calls) == [Delivery(AGGREGATOR_NAME, call.data)]
    assert 30 <= clock.now < 31
    assert {site for site, _ in told.asked} == {authority}
    item = carried._items[next(i for i, m in carried._items.items() if m.part is Service.KEYS)]
    assert carried._agrees(calls) and item.part in requests._AGREED
    told.says = lambda site, now: Code.DONE if now >= 50 else Code.AWAY
    client = Delivery("client-1", call.data)  # of an epoch's keys
    assert len(carried.exchange([client])) == 1 and clock.now >= 50
    # Public keys that are handed out again go before an Ask: nobody waits on their account.
    ask = SimpleNamespace(item=next(i for i, m in carried._items.items() if m.part is Service.ASK))
    headers = {call.data: Envelope.decode(call.data).header, b"an Ask": ask}
    monkeypatch.setattr(Envelope, "decode", lambda data: SimpleNamespace(header=headers[data]))
    assert carried._agrees([client])
    assert not carried._agrees([client, Delivery("client-1", b"an Ask")])
    carried._items = {}  # the control: of anything else it is not
    told.says = lambda site, now: Code.AWAY if site == "client-1" else Code.DONE
    others = [Delivery(name, b"x") for name in ("client-2", "client-3", "client-4", "client-5")]
    before = clock.now
    assert len(carried.exchange([client, *others])) == 4 and clock.now == before


def test_the_end_is_told_to_who_comes_back_in_time(clock: Clock) -> None:
    told = Told(clock, lambda s, now: Code.AWAY if s == "client-2" and now < 12 else Code.DONE)
    known(told).end(b"note")
    assert ("client-2", 12.0) in told.asked and TASK
