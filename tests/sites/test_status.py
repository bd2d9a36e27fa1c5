"""A party's status file: what it notes, what it never says, and who reads it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from protocols.errors import RemoteProtocolError
from protocols.sessions.engine import Delivery
from protocols.wire.envelope import Envelope
from protocols.wire.roster import AGGREGATOR_NAME
from secure_fgl.errors import UsageError
from secure_fgl.sites.process import conduct, open_process
from secure_fgl.sites.shown import facts_of, pairs_of, prometheus
from secure_fgl.sites.status import STATUS_FILE, State, Status, StatusFile, read_status
from tests.secure_fgl.cli_tools import invoke
from tests.sites.stage import assemble, banks

SENTINEL = "patient-4711"


@dataclass
class Sites:
    """Clients in this process; one of them leaves after its n-th task."""

    processes: Any
    leaves: str = ""
    after: int = 0
    tasks: int = 0
    seen: list[Any] = field(default_factory=list)
    heard: Any = None

    def exchange(self, deliveries: Sequence[Delivery]) -> list[Delivery]:
        answers = []
        for delivery in deliveries:
            if delivery.to == self.leaves:
                self.tasks += 1
                if self.tasks > self.after:
                    continue
            answers += self.processes[delivery.to].receive(delivery.data)
            self.heard(delivery.to)
            self.seen.append(read_status(self.processes["aggregator"].kit.folder))
        return answers


def test_who_stays_away_is_named_and_what_is_lost_counted(tmp_path: Path) -> None:
    """Five clients, and one leaves before it uploads: the run goes on, and says who is away."""
    parties = assemble(banks(rounds=2), tmp_path)
    processes = {name: open_process(parties.kit(name)) for name in parties.folders}
    carried = Sites(processes, leaves="client-2", after=3)
    conduct(processes["aggregator"], carried)
    status = read_status(parties.kit(AGGREGATOR_NAME).folder)
    assert status.state == State.OVER and status.awaited == {}
    assert list(status.away) == ["client-2"]
    assert status.sent > 0 and status.received > 0 and status.round == 2
    assert {name for one in carried.seen for name in one.awaited} >= {"client-2", "client-5"}
    (first,) = {one.away["client-2"] for one in carried.seen if one.away}
    assert first <= status.at  # since it was asked in vain the first time
    for process in processes.values():
        if process.kit.name != "aggregator":
            process.close()
            assert read_status(process.kit.folder).state == State.OVER


def test_keys_that_are_handed_out_again_put_no_status_back(tmp_path: Path) -> None:
    """The aggregator's own people count rounds by it."""
    parties = assemble(banks(rounds=3, policy="he"), tmp_path)
    processes = {name: open_process(parties.kit(name)) for name in parties.folders}
    folder = parties.kit(AGGREGATOR_NAME).folder
    found: list[tuple[set[str], Status]] = []
    at_site: list[tuple[int, int]] = []

    class Away(Sites):
        """The first client of all is away in the first round alone."""

        def exchange(self, deliveries: Sequence[Delivery]) -> list[Delivery]:
            items = {Envelope.decode(delivery.data).header.item for delivery in deliveries}
            found.append((items, read_status(folder)))
            self.leaves = "client-1" if "train.down" in items and len(self.down()) == 1 else ""
            answers = super().exchange(deliveries)
            one = read_status(self.processes["client-1"].kit.folder)
            at_site.append((one.round, one.exchange))
            return answers

        def down(self) -> list[set[str]]:
            return [items for items, _ in found if "train.down" in items]

    conduct(processes["aggregator"], Away(processes))
    assert [items for items, _ in found].count({"key.offer", "train.down"}) == 1
    places = [(status.round, status.exchange) for _, status in found]
    assert places == sorted(places) and at_site == sorted(at_site)
    assert {status.item for items, status in found if "train.down" in items} == {"train.down"}


def test_at_a_site_keys_that_come_again_put_nothing_back(tmp_path: Path) -> None:
    """While it computes an answer its status is that of the last envelope before."""
    parties = assemble(banks(policy="he"), tmp_path)
    processes = {name: open_process(parties.kit(name)) for name in parties.folders}
    carried = Sites(processes)
    offers: list[bytes] = []
    carry = carried.exchange

    def noted(deliveries: Sequence[Delivery]) -> list[Delivery]:
        offers.extend(d.data for d in deliveries if d.to == "client-1" and not offers)
        return carry(deliveries)

    carried.exchange = noted  # type: ignore[method-assign]
    conduct(processes["aggregator"], carried)
    assert Envelope.decode(offers[0]).header.item == "key.offer"
    file = StatusFile(tmp_path, Status("a", "client", "0" * 32, 1, round=4, exchange=7, item="x"))
    file.received(offers[0], [])
    assert (file.status.round, file.status.exchange, file.status.item) == (4, 7, "x")
    assert file.status.received == len(offers[0])


def test_a_status_says_that_a_session_stopped_and_not_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parties = assemble(banks(), tmp_path)
    kit = parties.kit("client-1")

    def fails(*_: Any, **__: Any) -> None:
        raise ValueError(SENTINEL)

    with monkeypatch.context() as patch:
        patch.setattr("secure_fgl.sites.process.isolated", fails)
        with pytest.raises(ValueError, match=SENTINEL):
            open_process(kit)
    assert read_status(kit.folder).state == State.STOPPED
    assert read_status(kit.folder).reason == ""
    text = (kit.folder / STATUS_FILE).read_text()
    assert SENTINEL not in text and "ValueError" not in text
    assert (kit.folder / STATUS_FILE).stat().st_mode & 0o777 == 0o600
    process = open_process(kit)  # nothing was begun, so it can begin
    assert read_status(kit.folder).state == State.RUNNING
    with pytest.raises(RemoteProtocolError):
        process.receive(b"no envelope")
    assert read_status(kit.folder).state == State.RUNNING  # whoever writes nonsense stops nobody
    process.close()


def test_counts_go_on_after_a_kill_and_begin_anew_with_another_run(tmp_path: Path) -> None:
    parties = assemble(banks(), tmp_path / "a")
    kit = parties.kit("client-1")
    first = StatusFile.of(kit)
    first.status.sent, first.status.lost, first.status.round = 70, [2], 3
    first.heard("aggregator")
    assert (again := StatusFile.of(kit).status).sent == 70
    assert again.lost == [2] and again.round == 3 and again.state == State.OPENING
    document = json.loads((kit.folder / STATUS_FILE).read_text())
    (kit.folder / STATUS_FILE).write_text(json.dumps({**document, "run": "0" * 32}))
    assert StatusFile.of(kit).status.sent == 0


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"party": "x"}', '{"state": "asleep"}'], ids=range(5)
)
def test_what_is_no_status_is_said_to_be_none(text: str, tmp_path: Path) -> None:
    place = tmp_path / "runs" / ("ab" * 16)
    place.mkdir(parents=True)
    if text:
        (place / STATUS_FILE).write_text(text)
    with pytest.raises(UsageError, match=r"missing|not a status"):
        read_status(place)
    done = invoke("status", tmp_path)
    assert done.exit_code == 2 and STATUS_FILE in done.stderr


def test_a_disk_that_is_full_stops_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = StatusFile(tmp_path, Status("a", "client", "0" * 32, 1))

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("secure_fgl.store.files.Folder.write", full)
    file.heard("b")
    with pytest.raises(KeyError), file.noting():
        raise KeyError


def test_what_is_shown_says_for_how_long(tmp_path: Path) -> None:
    clock = iter([100.0] * 9)
    status = Status("aggregator", "aggregator", "0" * 32, 9, round=4, exchange=7, item="train.down")
    status.awaited, status.away = {"client-1": 90.0}, {"client-2": 40.0}
    status.lost, status.budget = [2, 3], {"cora": {"epsilon": 1.5, "of": 4.0, "runs": 2}}
    file = StatusFile(tmp_path, status, now=lambda: next(clock))
    facts = facts_of(tmp_path, 160.0)
    assert facts["awaited"] == {"client-1": 70.0} and facts["away"] == {"client-2": 120.0}
    shown = dict(pairs_of(facts))
    assert shown["waiting for"] == "client-1 (70 s)" and shown["away"] == "client-2 (2 min)"
    assert shown["lost"] == "2 (round number 2, 3)" and "1.5 of 4" in shown["budget cora"]
    assert "no process of this party is at work" in shown["state"]
    text = prometheus(facts)
    for told in ('away_seconds{party="aggregator",run="%s",site="client-2"} 120.0',
                 'budget_epsilon{party="aggregator",run="%s",data="cora"} 1.5'):  # fmt: skip
        assert f"secure_fgl_{told % ('0' * 32)}" in text
    assert file.status.at == 100.0


def test_what_own_noise_hides_from_all_others_is_in_no_status(tmp_path: Path) -> None:
    parties = assemble(banks(), tmp_path)
    kit, office = parties.kit("client-1"), open_process(parties.kit(AGGREGATOR_NAME))
    first: Any = office.session
    sent, answer = next(d.data for d in first.start() if d.to == kit.name), b"answer"
    office.close()
    process = open_process(kit)
    told = UsageError(SENTINEL)
    for _ in range(2):
        process.status.received(sent, [answer], told)
    status = read_status(kit.folder)
    assert status.state == State.RUNNING and status.reason == ""
    process.status.received(sent, [answer], UsageError("refused"), dead=True)
    assert read_status(kit.folder).state == State.REFUSED  # the others heard that one
    assert SENTINEL not in (kit.folder / STATUS_FILE).read_text()
    process.close()
    assert read_status(kit.folder).state == State.REFUSED
