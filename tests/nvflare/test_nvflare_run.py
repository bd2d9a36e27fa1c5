"""FedAvg on Cora over real NVFlare processes, the aggregator killed on the way."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import secure_fgl
from audits.evidence.roster_file import read_roster
from protocols.disclosures.names import Disclosure
from protocols.evidence.ledger import read_lines
from secure_fgl.store.finished_run import Run
from tests.laws.runs import Recording, record
from tests.laws.search import found, spellings
from tests.nvflare.stage import CLIENTS, SERVER_SITE, Parties, assemble, cora, gather

pytest.importorskip("nvflare", reason="the extra nvflare is not installed")

from secure_fgl.transports.nvflare import kits
from secure_fgl.transports.nvflare.job import JobConsole, write_job
from secure_fgl.transports.nvflare.office.conducting import Ending, Settings, see_through
from secure_fgl.transports.nvflare.office.job_note import JobNote

ROOT = Path(secure_fgl.__file__).parents[1]
ROUNDS = 6


@dataclass
class Stage:
    """Provisioned kits, parties and taps for one run."""

    base: Path
    parties: Parties
    made: kits.Kits

    @property
    def ledger(self) -> Path:
        return self.parties.folders[SERVER_SITE] / "run" / "ledger" / "aggregator.jsonl"

    def opened(self) -> int:
        """Return how many sums the aggregator has opened so far."""
        return self.ledger.read_bytes().count(b'"kind":"open"') if self.ledger.exists() else 0

    def finished(self) -> bool:
        return (self.parties.folders[SERVER_SITE] / "run" / "result.json").exists()

    def job(self, name: str) -> Path:
        return write_job(self.base / name, list(self.made.sites), deadline=60.0)


@contextlib.contextmanager
def staged(base: Path, data_root: Path) -> Iterator[tuple[Stage, kits.Processes]]:
    """Yield a federation of real processes, every job of which is tapped."""
    parties = assemble(cora(data_root, rounds=ROUNDS), base / "parties")
    sites = [site for site in parties.folders if site != SERVER_SITE]
    made = kits.provision(base / "kits", sites, port=kits.free_port())
    (base / "tap").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        paths = [str(Path(__file__).parent / "tap"), str(ROOT), os.environ.get("PYTHONPATH", "")]
        patch.setenv("PYTHONPATH", os.pathsep.join(path for path in paths if path))
        patch.setenv("SECURE_FGL_TEST_TAP", str(base / "tap"))
        with kits.federation(made, parties.folders, data_root=data_root) as processes:
            yield Stage(base, parties, made), processes
            groups = [process.pid for process in processes.running.values()]
    assert not any(_alive(group) for group in groups), "a process outlived its federation"


def _alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def until(holds: Callable[[], bool], *, seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


def job_process(processes: kits.Processes) -> int:
    """Return the server's process that holds the aggregator's session."""
    command = ["ps", "-ewwo", "pid=,ppid=,args="]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    parent = str(processes.running[SERVER_SITE].pid)
    rows = [line.split(None, 2) for line in listed.splitlines()]
    (found,) = [int(r[0]) for r in rows if r[1] == parent and ".runner_process" in r[2]]
    return found


@dataclass
class Played:
    """One run on either transport."""

    memory: Recording
    parties: Parties
    wire: bytes
    logs: bytes


@pytest.fixture(scope="module")
def played(data_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Played:
    """The aggregator's process is killed after its second opening, and a second job goes on."""
    base = tmp_path_factory.mktemp("nvflare")
    memory = record(cora(data_root, rounds=ROUNDS), base / "memory")
    with staged(base, data_root) as (stage, processes):
        killed, failed = list[int](), list[BaseException]()

        def kill() -> None:
            try:
                until(stage.ledger.exists)
                aggregator = job_process(processes)
                until(lambda: stage.opened() >= 2)
                os.kill(aggregator, signal.SIGKILL)
                assert not stage.finished(), "the run was over before it could be killed"
                killed.append(stage.opened())
            except BaseException as error:
                failed.append(error)

        killer = threading.Thread(target=kill)
        killer.start()
        office, told = stage.parties.kit(SERVER_SITE), list[str]()
        settings = Settings(deadline=60.0, patience=180.0, tell=told.append)
        ending, _ = see_through(office, stage.made.admin, settings)
        killer.join()
        assert not failed, failed
        # The second job went on, and did not begin anew.
        assert ending is Ending.OVER and stage.opened() > killed[0] >= 2
        assert JobNote.read(office.folder, office.charter.run).handed_in == 2
        ends = [line for line in told if line.startswith("The job ended: ")]
        assert len(ends) == 2 and "COMPLETED" not in ends[0] and "COMPLETED" in ends[1]
    taps = sorted((base / "tap").iterdir())
    assert sum(file.name.startswith("site-") for file in taps) == 2 * CLIENTS
    # The aggregator's own taps hold all that any site was sent, and all that any site sent.
    wire = [file.read_bytes() for file in taps if file.name.startswith("server-")]
    assert len(wire) == 2 and all(wire)
    logs = [file.read_bytes() for file in (base / "kits").rglob("*.txt") if file.is_file()]
    return Played(memory, stage.parties, b"".join(wire), b"".join(logs))


def test_processes_of_their_own_learn_the_same_model_though_one_is_killed(played: Played) -> None:
    result, twin = played.parties.result(), played.memory.result
    assert twin["model_sha256"] is not None
    assert result["model_sha256"] == twin["model_sha256"]
    assert result["metrics"] == twin["metrics"]
    assert result["lost_rounds"] == []


def test_every_party_holds_a_ledger_that_verifies(
    played: Played, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And nothing was opened twice: one opening for each that the run in memory has (O5)."""
    monkeypatch.setattr("audits.evidence.roster_file.TRANSPORTS", ("memory", "nvflare"))
    openings = 0
    for folder in played.parties.folders.values():
        ledgers = list((folder / "run" / "ledger").iterdir())
        assert [file.stem for file in ledgers] == [folder.name]  # its own and nobody else's
        entries = [entry for entry, _ in read_lines(ledgers[0].read_bytes())]
        assert entries[0]["transport"] == "nvflare" and entries[-1]["kind"] == "close"
        openings += sum(entry["kind"] == "open" for entry in entries)
    assert openings == sum(entry["kind"] == "open" for entry in played.memory.entries())
    gathered = gather(played.parties, tmp_path / "run")
    verified = Run(gathered).verify()
    assert verified.verdict == "self-consistent only", verified.steps
    lines = (gathered / "ledger" / "client-1.jsonl").read_bytes().splitlines(keepends=True)
    (gathered / "ledger" / "client-1.jsonl").write_bytes(b"".join(lines[:-2]))
    assert Run(gathered).verify().verdict != "self-consistent only"  # the control


def test_the_engine_sees_no_clear_payload(played: Played) -> None:
    """What a client says in round 1 is searched for in all that tasks and results carried."""
    said = [m for _, m in played.memory.payloads() if m.disclosure is Disclosure.SUM]
    uploads: list[bytes] = [
        spelling
        for message in said[:2]  # an update and a score
        for field in message.fields
        for spelling in spellings(getattr(message, field.name))
    ]
    assert max(map(len, uploads)) > 4 * 1433 * 16  # the first layer's weights are among them
    assert bytes.fromhex(played.parties.charter.run) in played.wire  # public headers are in the tap
    assert len(played.wire) > 1_000_000
    assert found(uploads, played.wire) == 0
    planted = played.wire[:100] + max(uploads, key=len)
    assert found(uploads, planted) > 0  # the same search finds what is there


def test_o26_secrets_stay_in_the_party_s_folder(played: Played) -> None:
    for site, folder in played.parties.folders.items():
        seed = json.loads((folder / "identity.json").read_text())["seed"]
        assert len(seed) == 64, site
        for spelled in (seed.encode(), bytes.fromhex(seed)):
            assert spelled not in played.wire + played.logs
        left = {file.name for file in (folder / "run").rglob("*")}
        assert not left & {"identity.json", "private"}
        # Nor is any state kept once the run is over, but for a client's own model and its key.
        assert {file.name for file in (folder / "keys").iterdir()} <= {"models"}


def test_roster_and_charter_name_the_same_run(
    played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("audits.evidence.roster_file.TRANSPORTS", ("memory", "nvflare"))
    for folder in played.parties.folders.values():
        roster = read_roster((folder / "run" / "roster.json").read_bytes())
        assert roster.run == played.parties.charter.run and not roster.simulated


@pytest.mark.long
def test_a_server_that_is_lost_and_started_again_goes_on(data_root: Path, tmp_path: Path) -> None:
    """Its whole process group is killed; the sites come back to it by themselves."""
    memory = record(cora(data_root, rounds=ROUNDS), tmp_path / "memory")
    with staged(tmp_path, data_root) as (stage, processes):
        with JobConsole(stage.made, patience=120.0) as console:
            console.submit(stage.job("first"))
            until(lambda: stage.opened() >= 2)
            processes.kill(SERVER_SITE)
        assert not stage.finished(), "the run was over before it could be killed"
        processes.start(SERVER_SITE)
        with JobConsole(stage.made, patience=180.0) as console:
            console.wait(console.submit(stage.job("second")), patience=240.0)
    assert stage.parties.result()["model_sha256"] == memory.result["model_sha256"]
