"""A client with data as a process of its own, through a whole run whose others sit in this process.

Requests come twice, late and out of order; its clock is off; it is killed while it uploads, and
stopped while an answer is computed; it has no network and cannot read the kit.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("nvflare", reason="the extra nvflare is not installed")

from nvflare.apis.fl_constant import ReturnCode

from protocols.evidence.ledger import read_lines
from protocols.wire.envelope import Envelope, commitment
from secure_fgl.data.own.spec import SPEC_FILE
from secure_fgl.federation import Federation
from secure_fgl.store.finished_run import Run
from tests.sites.beside import Beside, Relay, beside, entries, tapped
from tests.sites.processes import children, until
from tests.sites.stage import Parties, assemble, banks, gather, side
from tests.sites.tap import sitecustomize as tap
from tests.sites.test_own_folders import NAMES, SPEC, own, tables
from tests.sites.test_site_process import (
    AUTHORITY,
    NAMESPACES,
    Site,
    first_call,
    process_of,
    signed,
    tries,
    unreachable,
)
from tests.secure_fgl.cli_tools import invoke

pytestmark = pytest.mark.long

CLIENT, SEED, DAY = "site-2", 7, 86400
WORKER = "secure_fgl.isolation.worker"


@pytest.fixture(scope="module")
def memory(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return Federation.from_config(banks()).run(tmp_path_factory.mktemp("memory") / "run")


@dataclass
class Stage:
    """A client's own process in a run, and what a test holds of it."""

    parties: Parties
    site: Site
    run: Beside
    hold: Path
    base: Path
    deaths: list[bytes] = field(default_factory=list)

    @property
    def folder(self) -> Path:
        return self.site.folder

    def finished(self, memory: Run, model: str | None) -> None:
        """Hold the run to the one in memory, bit for bit, and to its evidence."""
        assert model == memory.model_sha256
        result, same = self.parties.result(), ("metrics", "lost_rounds", "exchanges", "bytes_up")
        assert {key: result[key] for key in same} == {key: memory.result[key] for key in same}
        assert self.site.started[-1].wait(60) == 0  # the run is over, so it ends by itself
        assert Run(self.folder).verify().verdict == "own side holds"
        verdict = Run(gather(self.parties, self.base / "gathered")).verify().verdict
        assert verdict == "self-consistent only"


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    monkeypatch.setattr("audits.evidence.roster_file.TRANSPORTS", ("memory", "nvflare"))
    parties, hold = assemble(banks(), tmp_path / "parties"), tmp_path / "hold"
    hold.mkdir()
    with ExitStack() as files:
        site = files.enter_context(process_of(parties.folders[CLIENT], tmp_path / "kit"))
        site.environment.update({"PYTHONPATH": tapped(), tap.HOLD: str(hold)})
        run = files.enter_context(beside(parties, CLIENT))
        yield Stage(parties, site, run, hold, tmp_path)


@dataclass
class Unruly:
    """Hands requests over twice, brings old ones back under old and new names, at seeded places."""

    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(SEED))
    again: int = 0
    codes: list[str] = field(default_factory=list)

    def __call__(self, run: Beside, data: bytes) -> list[bytes]:
        self.old(run)  # an older one overtakes it
        name = f"one-{len(run.asked)}"
        code, said = run.relay.ask(data, name=name)
        assert code == ReturnCode.OK
        run.asked.append((data, said))
        for other in (name, f"{name}-twice"):  # the relay's own answer, and the party's
            assert run.relay.ask(data, name=other) == (code, said)
            self.again += 1
        self.old(run)
        return said

    def old(self, run: Beside) -> None:
        """Bring back two that came before, the later one first."""
        places = sorted({int(n * len(run.asked)) for n in self.rng.random(2)}, reverse=True)
        for data, first in [run.asked[place] for place in places if run.asked]:
            code, said = run.relay.ask(data)
            self.codes.append(code)
            # The very answer, or none at all: never another one.
            assert (code, said) in ((ReturnCode.OK, first), (ReturnCode.BAD_TASK_DATA, []))


def test_o5_requests_that_come_twice_late_and_out_of_order_change_nothing(
    stage: Stage, memory: Run
) -> None:
    stage.site.start()
    until(stage.site.listens)
    session, unruly = stage.site.session(), Unruly()
    stage.run.carry = unruly
    model = stage.run.played()
    assert unruly.again >= 8 and ReturnCode.BAD_TASK_DATA in unruly.codes
    assert entries(stage.folder, "refusal") == []
    stage.finished(memory, model)
    assert "started again" not in (stage.folder / "process.log").read_text(), session


@pytest.mark.parametrize("off", [-DAY, DAY])
def test_a_site_whose_clock_is_a_day_off_takes_part_and_its_ledger_says_so(
    off: int, stage: Stage, memory: Run
) -> None:
    stage.site.environment[tap.CLOCK] = str(off)
    stage.site.start()
    until(stage.site.listens)
    stage.finished(memory, stage.run.played())

    def day(folder: Path) -> datetime:
        (first, *_), _ = zip(*read_lines(ledger(folder).read_bytes()), strict=True)
        return datetime.fromisoformat(first["time"])

    others = day(stage.parties.folders["site-1"])
    apart = day(stage.folder) - others
    assert abs(apart - timedelta(seconds=off)) < timedelta(hours=1)
    assert abs(others - datetime.now(UTC)) < timedelta(hours=1)  # the control


def ledger(folder: Path) -> Path:
    return side(folder) / "ledger" / f"{folder.name}.jsonl"


class Asked(threading.Thread):
    """One request that is under way, and what it got."""

    def __init__(self, relay: Relay, data: bytes) -> None:
        super().__init__()
        self._relay, self._data = relay, data
        self.got: tuple[str, list[bytes]] = ("nothing", [])
        self.start()

    def run(self) -> None:
        self.got = self._relay.ask(self._data)


def held(hold: Path, moment: str) -> bytes:
    """Wait until the session stands at a moment; return what it is to say."""
    place = hold / f"{moment}.held"
    until(place.exists)
    found = place.read_bytes()
    place.unlink()
    return found


def let_go(hold: Path, moment: str) -> None:
    (hold / moment).unlink()


def recorded(folder: Path, data: bytes) -> bool:
    """Tell whether a party's ledger has an entry of an envelope that leaves it."""
    named = [entry["commitment"] for entry in entries(folder, "release")]
    return commitment(Envelope.decode(data)) in named


@dataclass
class Killed:
    """Kills the client's session at a moment of its first upload in which it says something.

    And hands the request over again once it is back.
    """

    stage: Stage
    moment: str
    said: list[bytes] = field(default_factory=list)

    def __call__(self, run: Beside, data: bytes) -> list[bytes]:
        if self.said or Envelope.decode(data).header.item != "train.down":
            return run.once(data)
        hold, site = self.stage.hold, self.stage.site
        (hold / self.moment).touch()
        asked = Asked(run.relay, data)
        was = held(hold, self.moment)
        assert was and recorded(site.folder, was)  # computed and recorded
        assert asked.is_alive()  # and the relay has not got it
        os.kill(site.session(), signal.SIGKILL)
        asked.join(60)
        let_go(hold, self.moment)
        assert asked.got == (ReturnCode.SERVICE_UNAVAILABLE, [])
        until(site.listens)
        self.said = run.once(data)
        assert self.said == [was]  # the very same bytes
        return self.said


@pytest.mark.parametrize("moment", ["recorded", "sending"])
def test_a_client_that_is_killed_while_it_uploads_sends_the_very_same_bytes(
    moment: str, stage: Stage, memory: Run
) -> None:
    """Before the relay has any of its bytes, and when it has half of them."""
    stage.site.start()
    until(stage.site.listens)
    killed = Killed(stage, moment)
    stage.run.carry = killed
    model = stage.run.played()
    assert killed.said
    releases = [entry["commitment"] for entry in entries(stage.folder, "release")]
    assert len({*releases}) == len(releases)  # recorded once
    stage.finished(memory, model)
    assert (stage.folder / "process.log").read_text().count("The site is up.") == 2


class Enough(Exception):
    """The test has seen what it wanted of the run."""


@dataclass
class StoppedSite:
    """Stops the site while the process of its answers stands still in the middle of training."""

    stage: Stage
    asked: bytes = b""

    def __call__(self, run: Beside, data: bytes) -> list[bytes]:
        if Envelope.decode(data).header.item != "train.down":
            return run.once(data)
        site, before = self.stage.site, len(entries(self.stage.folder, "release"))
        (self.stage.hold / "computing").touch()
        asked = Asked(run.relay, data)
        held(self.stage.hold, "computing")
        (worker,) = children(site.session(), WORKER)
        os.kill(worker, signal.SIGSTOP)
        let_go(self.stage.hold, "computing")  # it is asked now, and does not answer
        refused = invoke("site", "stop", str(site.folder), "--patience", "0")
        assert refused.exit_code == 2 and "computes an answer" in " ".join(refused.stderr.split())
        assert len(entries(site.folder, "release")) == before and asked.is_alive()
        os.kill(worker, signal.SIGCONT)
        assert invoke("site", "stop", str(site.folder)).exit_code == 0
        asked.join(60)
        assert asked.got[1] == [] and asked.got[0] != ReturnCode.OK  # nothing leaves
        assert len(entries(site.folder, "release")) == before + 1  # and it is recorded
        assert run.relay.ask(data) == (ReturnCode.EARLY_TERMINATION, [])
        self.asked = data
        raise Enough


def test_a_client_that_is_stopped_while_it_trains_says_nothing_more(stage: Stage) -> None:
    supervisor = stage.site.start()
    until(stage.site.listens)
    stopped = StoppedSite(stage)
    stage.run.carry = stopped
    with pytest.raises(Enough):
        stage.run.played()
    assert supervisor.wait(60) == 0
    assert signed(stage.site, keyed=False)  # under masks nobody holds one
    stage.site.start("--again")
    until(stage.site.listens)
    code, said = stage.run.relay.ask(stopped.asked)
    assert code == ReturnCode.OK and recorded(stage.folder, said[0])  # the control: it was to leave


@dataclass
class Asking:
    """A key authority's own process, which is held at one moment of its first answer."""

    site: Site
    relay: Relay
    call: bytes
    hold: Path

    def held(self, moment: str) -> tuple[Asked, bytes]:
        (self.hold / moment).touch()
        asked = Asked(self.relay, self.call)
        return asked, held(self.hold, moment)


@pytest.fixture
def authority(tmp_path: Path) -> Iterator[Asking]:
    parties, hold = assemble(banks(policy="he"), tmp_path / "parties"), tmp_path / "hold"
    hold.mkdir()
    with process_of(parties.folders[AUTHORITY], tmp_path / "kit") as site:
        site.environment.update({"PYTHONPATH": tapped(), tap.HOLD: str(hold)})
        yield Asking(site, Relay(parties.charter.run), first_call(parties), hold)


@pytest.mark.parametrize("moment", ["sending", "recorded"])
def test_a_session_that_is_killed_while_it_answers_says_the_very_same_bytes(
    moment: str, authority: Asking
) -> None:
    site = authority.site
    site.start()
    until(site.listens)
    asked, was = authority.held(moment)
    assert was and recorded(site.folder, was) and asked.is_alive()
    os.kill(site.session(), signal.SIGKILL)
    asked.join(60)
    let_go(authority.hold, moment)
    assert asked.got == (ReturnCode.SERVICE_UNAVAILABLE, [])
    until(site.listens)
    assert authority.relay.ask(authority.call) == (ReturnCode.OK, [was])
    assert len(entries(site.folder, "release")) == 1


@pytest.mark.parametrize("moment", ["recorded", "asked"])
@pytest.mark.parametrize("stops", [True, False])
def test_what_is_being_answered_when_a_site_is_stopped_does_not_leave(
    moment: str, stops: bool, authority: Asking
) -> None:
    """Where the stop comes before the answer is computed, and where it is recorded already."""
    site = authority.site
    supervisor = site.start()
    until(site.listens)
    asked, was = authority.held(moment)
    if stops:
        refused = invoke("site", "stop", str(site.folder), "--patience", "0")
        assert refused.exit_code == 2 and "computes an answer" in " ".join(refused.stderr.split())
    assert asked.is_alive()
    let_go(authority.hold, moment)
    asked.join(60)
    (entry,) = entries(site.folder, "release")  # it was computed and recorded, in either case
    if not stops:  # the control
        code, said = asked.got
        assert code == ReturnCode.OK and recorded(site.folder, said[0])
        assert was in (b"", *said)
        return
    assert asked.got == (ReturnCode.SERVICE_UNAVAILABLE, [])
    assert invoke("site", "stop", str(site.folder)).exit_code == 0
    assert supervisor.wait(60) == 0 and signed(site)
    assert authority.relay.ask(authority.call) == (ReturnCode.EARLY_TERMINATION, [])
    assert entries(site.folder, "release") == [entry]


@NAMESPACES
def test_t4_a_client_with_data_needs_no_network_and_cannot_read_the_kit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through a whole run: the process with its keys, and the one with its data."""
    for number, name in enumerate(NAMES):
        tables(tmp_path / "data" / name, number)
    (tmp_path / "data" / SPEC_FILE).write_text(SPEC)
    config, me = own(tmp_path / "data"), NAMES[0]
    monkeypatch.setenv("SECURE_FGL_DATA", str(tmp_path / "data"))
    memory = Federation.from_config(config).run(tmp_path / "memory")
    mine = tmp_path / "mine"  # what this client's machine has
    tables(mine / me, 0)
    (mine / SPEC_FILE).write_text(SPEC)
    for place in (mine, mine / me):
        place.chmod(0o700)
    parties = assemble(config, tmp_path / "parties")
    where = parties.charter.sites[me]
    looked, hold = list[bool](), tmp_path / "hold"
    hold.mkdir()
    with (
        process_of(parties.folders[where], tmp_path / "kit") as site,
        tries(site.kit / "client.key") as raw,
        beside(parties, where) as run,
    ):
        site.environment["SECURE_FGL_DATA"] = str(mine)
        site.environment.update({"PYTHONPATH": tapped(), tap.HOLD: str(hold)})
        process = site.start("--socket", str(site.folder / "socket"), alone=True)
        until(site.listens)

        def looking(run: Beside, data: bytes) -> list[bytes]:
            """Look from within each process, in the middle of training too."""
            trains = Envelope.decode(data).header.item == "train.down"
            if trains:
                (hold / "computing").touch()
            asked = Asked(run.relay, data)
            if trains:
                held(hold, "computing")
            (worker,) = children(site.session(), WORKER)
            for one in (site.session(), worker):
                unreachable(one, *raw)
                looked.append(trains)
            if trains:
                let_go(hold, "computing")
            asked.join(240)
            assert asked.got[0] == ReturnCode.OK
            return asked.got[1]

        run.carry = looking
        assert run.played() == memory.model_sha256
        assert process.wait(60) == 0
    assert sum(looked) == 2 < len(looked)
    assert Run(parties.folders[where]).verify().verdict == "own side holds"
