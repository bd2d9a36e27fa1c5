"""What a party's own process says to a bad charter, and to bad requests: nothing that leaves.

It is started as its operator would, and asked through the relay's own code.
"""

from __future__ import annotations

import shutil
import socket
import struct
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

pytest.importorskip("nvflare", reason="the extra nvflare is not installed")

from nvflare.apis.fl_constant import ReturnCode

from secure_fgl.charters.charter import Charter
from secure_fgl.charters.versions import installed
from secure_fgl.config import Config
from secure_fgl.data.own import load_spec
from secure_fgl.data.own.spec import SPEC_FILE
from secure_fgl.store.sides.places import place_of
from secure_fgl.transports.broker import channel
from secure_fgl.transports.nvflare import joining, party, wire
from tests.sites.beside import Relay, entries
from tests.sites.processes import until
from tests.sites.stage import Parties, assemble, banks
from tests.sites.test_own_folders import NAMES, SPEC, own, tables
from tests.sites.test_site_process import AUTHORITY, Site, first_call, process_of

NORTH, EAST = "hospital-north", "hospital-east"
WHY = "two rounds too many"


@dataclass
class Stage:
    """Four hospitals with tables of their own, an office and a key authority.

    Attributes:
        parties: of one charter, which names an organisation for each.
        data: the data that NORTH's process is shown.
    """

    parties: Parties
    data: Path

    @property
    def north(self) -> Path:
        return self.parties.folders[self.parties.charter.sites[NORTH]]

    def signed(self, charter: Charter) -> Charter:
        """Let every party sign, whatever it says."""
        charter = replace(charter, signatures={})
        for folder in self.parties.folders.values():
            me = party.load_identity(folder)
            charter = charter.signed_by(me.party.name, me.signing)
        return charter

    def put(self, charter: Charter, run: str | None = None) -> None:
        """Lay a charter into the only folder of a run at NORTH, by hand."""
        shutil.rmtree(self.north / "runs")
        place = self.north / "runs" / (run or charter.run)
        place.mkdir(parents=True)
        (place / "charter.json").write_bytes(charter.encode())


def federation(base: Path) -> Parties:
    """Let all make keys and agree on a run over the tables below `base`; each has an owner."""
    document = {**own(base / "data").model_dump(mode="json"), "policy": "he"}
    parties = assemble(Config.parse(document), base / "parties")
    named = {name: f"Bank {name}" for name in parties.charter.sites}
    stage = Stage(parties, base / "data")
    charter = stage.signed(replace(parties.charter, organisations=named))
    for folder in parties.folders.values():
        shutil.rmtree(folder / "runs")
        joining.keep(folder, charter)
    return Parties(charter, parties.folders)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Stage:
    base = tmp_path_factory.mktemp("refuses")
    for number, name in enumerate(NAMES):
        tables(base / "data" / name, number)
    (base / "data" / SPEC_FILE).write_text(SPEC)
    return Stage(federation(base), base / "data")


@pytest.fixture
def stage(made: Stage, tmp_path: Path) -> Stage:
    """What a test may spoil."""
    folders = {
        site: Path(shutil.copytree(folder, tmp_path / "parties" / folder.name))
        for site, folder in made.parties.folders.items()
    }
    data = Path(shutil.copytree(made.data, tmp_path / "data"))
    return Stage(Parties(made.parties.charter, folders), data)


def unsigned(stage: Stage) -> list[str]:
    charter = stage.parties.charter
    stage.put(
        replace(charter, signatures={n: s for n, s in charter.signatures.items() if n != EAST})
    )
    return [f"{EAST} did not sign it"]


def altered(stage: Stage) -> list[str]:
    charter = stage.parties.charter
    stage.put(replace(charter, nonce=bytes(16)))
    return ["signed another charter"]


def refused_by_another(stage: Stage) -> list[str]:
    charter = stage.parties.charter
    me = party.load_identity(stage.parties.folders[charter.sites[EAST]])
    stage.put(charter.refused_by(EAST, me.signing, WHY))
    return [f"{EAST} refused it: {WHY}"]


def refused_here(stage: Stage) -> list[str]:
    joining.refuse(stage.north, stage.parties.charter, WHY)
    return ["this party refused it"]


def foreign(stage: Stage) -> list[str]:
    """All of it holds, among others who call themselves the same."""
    base = stage.data.parent / "others"
    base.mkdir()
    (base / "data").symlink_to(stage.data)
    stage.put(federation(base).charter)
    return ["it names this party with other keys"]


def stale(stage: Stage) -> list[str]:
    """It is the last one, in the folder of the run that was drawn up anew."""
    charter = stage.parties.charter
    newer = stage.signed(replace(charter, nonce=bytes(16)))
    assert newer.run != charter.run
    stage.put(charter, newer.run)
    return ["it is of another run than the folder in which it lies"]


def the_aggregator_s_twice(stage: Stage) -> list[str]:
    charter = stage.parties.charter
    twice = {**charter.organisations, "key-authority": charter.organisations["aggregator"]}
    stage.put(stage.signed(replace(charter, organisations=twice)))
    return ["aggregator and key-authority are both of", "two organisations are needed"]


def a_client_s_twice(stage: Stage) -> list[str]:
    charter = stage.parties.charter
    twice = {**charter.organisations, NORTH: charter.organisations[EAST]}
    stage.put(stage.signed(replace(charter, organisations=twice)))
    return ["of 3 organisations, of which each counts once"]


def another_spec(stage: Stage) -> list[str]:
    (stage.data / SPEC_FILE).write_text(SPEC.replace("age, income", "income, age"))
    agreed = stage.parties.charter.spec
    assert agreed is not None
    return [agreed.digest, load_spec(stage.data).digest]


def another_program(stage: Stage, name: str) -> list[str]:
    charter = stage.parties.charter
    there = {**charter.versions, name: "0.0.7"}
    stage.put(stage.signed(replace(charter, versions=there)))
    return [f"{name} 0.0.7", f"{name} {installed()[name]}"]


def another_version_of_ours(stage: Stage) -> list[str]:
    return another_program(stage, "secure-fgl")


def another_version_of_nvflare(stage: Stage) -> list[str]:
    return another_program(stage, "nvflare")


SPOILT: dict[Callable[[Stage], list[str]], int] = {
    unsigned: 5,
    altered: 5,
    refused_by_another: 5,
    refused_here: 5,
    foreign: 5,
    stale: 5,
    the_aggregator_s_twice: 5,
    a_client_s_twice: 5,
    another_spec: 6,
    another_version_of_ours: 2,
    another_version_of_nvflare: 2,
}
QUICK = unsigned


def started(stage: Stage, files: ExitStack, kit: Path) -> Site:
    site = files.enter_context(process_of(stage.north, kit))
    site.environment["SECURE_FGL_DATA"] = str(stage.data)
    return site


@pytest.mark.parametrize(
    "spoil",
    [s if s is QUICK else pytest.param(s, marks=pytest.mark.long) for s in SPOILT],
    ids=lambda spoil: spoil.__name__,
)
def test_a_bad_charter_starts_nobody_and_the_operator_reads_why(
    spoil: Callable[[Stage], list[str]], stage: Stage, tmp_path: Path
) -> None:
    words = spoil(stage)
    run = place_of(stage.north).name
    with ExitStack() as files:
        code = started(stage, files, tmp_path / "kit").start().wait(120)
        assert Relay(run).ask(b"whatever is asked") == (ReturnCode.EARLY_TERMINATION, [])
    told = " ".join((stage.north / "process.log").read_text().split())
    assert code == SPOILT[spoil], told
    log = stage.north / "site.log"
    for word in words:
        assert word in told and word in " ".join(log.read_text().split())
    assert log.stat().st_mode & 0o777 == 0o600
    assert not list(stage.north.glob("socket*")) and entries(stage.north, "begin") == []
    assert not (place_of(stage.north) / "run").exists()  # no session, so no key and no ledger


@pytest.mark.long
def test_the_control_a_site_whose_charter_nobody_spoilt_is_up(stage: Stage, tmp_path: Path) -> None:
    """And a job of a charter that was drawn up anew, which it never joined, finds nobody."""
    newer = stage.signed(replace(stage.parties.charter, nonce=bytes(16)))
    with ExitStack() as files:
        site = started(stage, files, tmp_path / "kit")
        process = site.start()
        until(site.listens)
        assert Relay(newer.run).ask(b"x") == (ReturnCode.EARLY_TERMINATION, [])
        assert Relay(stage.parties.charter.run).ask(b"x") == (ReturnCode.BAD_TASK_DATA, [])
        assert process.poll() is None
    assert (place_of(stage.north) / "run").is_dir()


def raw(site: Site, *pieces: bytes) -> bytes:
    """Say something to the party's process that no relay of ours says; return its answer."""
    place = channel.of_run(site.folder / "socket", place_of(site.folder).name)
    with channel.connect(place, seconds=60.0) as connection:
        for piece in pieces:
            connection.sendall(piece)
        connection.shutdown(socket.SHUT_WR)
        connection.settimeout(60.0)
        return connection.recv(1 << 16)


def test_bad_requests_get_a_code_and_the_session_lives(tmp_path: Path) -> None:
    parties = assemble(banks(policy="he"), tmp_path / "parties")
    folder = parties.folders[AUTHORITY]
    call = first_call(parties)
    with process_of(folder, tmp_path / "kit") as site:
        site.start()
        until(site.listens)
        session = site.session()
        relay = Relay(parties.charter.run)
        head = b'{"do": "secure_fgl.envelopes", "run": "%s", "sizes": [%d]}'
        large = head % (relay.run.encode(), 1 << 32)
        for wrong, code in {
            (): ReturnCode.OK,  # nothing is asked, and nothing said
            (b"no envelope",): ReturnCode.BAD_TASK_DATA,
            (call + bytes(10 << 20),): ReturnCode.BAD_TASK_DATA,  # above what is planned
            (call[:-1],): ReturnCode.BAD_TASK_DATA,
            (call[:-1] + bytes([call[-1] ^ 1]),): ReturnCode.BAD_TASK_DATA,
            (b"",) * 65: ReturnCode.BAD_TASK_DATA,
        }.items():
            assert relay.ask(*wrong) == (code, []), len(wrong)
        assert relay.ask(call, task="other.task") == (ReturnCode.BAD_TASK_DATA, [])
        assert relay.ask(call, task=wire.END) == (ReturnCode.BAD_TASK_DATA, [])
        assert raw(site, struct.pack(">I", len(large)) + large) == b""
        assert raw(site, struct.pack(">I", 1 << 30)) == b""
        assert entries(folder, "release") == [] == entries(folder, "receipt")
        code, said = relay.ask(call)
        assert code == ReturnCode.OK and len(said) == 1  # the control: it answers all the same
        assert relay.ask(call, name="again") == (ReturnCode.OK, said)
        assert len(entries(folder, "release")) == 1
        assert site.session() == session  # it never ended
