"""FedAvg on Cora over real NVFlare processes, the aggregator's relay killed on the way."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import dataclass
from pathlib import Path

import pytest

from audits.evidence.roster_file import read_roster
from protocols.disclosures.names import Disclosure
from protocols.evidence.ledger import read_lines
from secure_fgl.store.finished_run import Run
from secure_fgl.store.sides.own_model import own_model
from tests.laws.runs import Recording, record
from tests.laws.search import found, spellings
from tests.sites.stage import CLIENTS, SERVER_SITE, Parties, cora, gather, side

pytest.importorskip("nvflare", reason="the extra nvflare is not installed")

from secure_fgl.sites.checks.lines import Status
from secure_fgl.sites.checks.listed import check_site
from secure_fgl.sites.lock import at_work
from secure_fgl.transports.nvflare.job import JobConsole
from tests.sites.processes import Stage, job_process, session_process, staged, until

ROUNDS, KILLED = 6, "site-2"


def not_ready(stage: Stage, site: str) -> list[str]:
    """Return what `site check` finds wrong at a site that is up, the server's answer included."""
    until(lambda: at_work(stage.parties.kit(site).folder))
    lines = [*check_site(stage.parties.folders[site], stage.made.sites[site])]
    assert lines[-1].name == "server"
    unseen = {line.name for line in lines if line.status is Status.NOT_CHECKED}
    assert unseen <= {"data", "network"}  # a published set, with a network
    failed = [line.name for line in lines if line.status is Status.FAIL]
    assert failed[-1] == "apart"  # party and engine are one user's here, which a check says
    return failed[:-1]


@dataclass
class Played:
    """One run on either transport."""

    memory: Recording
    parties: Parties
    wire: bytes
    logs: bytes


@pytest.fixture(scope="module")
def played(data_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Played:
    """A client's session is killed, then the server's job, and a second job goes on."""
    base = tmp_path_factory.mktemp("nvflare")
    memory = record(cora(data_root, rounds=ROUNDS), base / "memory")
    with (
        staged(cora(data_root, rounds=ROUNDS), base, data_root) as (stage, processes),
        JobConsole(stage.made, patience=120.0) as console,
    ):
        assert not_ready(stage, "site-1") == ["process"]  # its session is open already
        first = console.submit(stage.job("first"))
        until(stage.ledger.exists)
        aggregator = job_process(processes)
        until(lambda: stage.opened() >= 1)
        # With the smallest cohort, all others wait for it: nothing is lost of any round.
        os.kill(session_process(processes, KILLED), signal.SIGKILL)
        until(lambda: stage.opened() >= 4)
        os.kill(aggregator, signal.SIGKILL)
        assert not stage.finished(), "the run was over before it could be killed"
        until(lambda: console.status(first).startswith("FINISHED"))
        assert console.status(first) != "FINISHED:COMPLETED"
        before = stage.opened()
        console.wait(console.submit(stage.job("second")), patience=180.0)
        assert stage.opened() > before >= 4  # the second job went on, and did not begin anew
        log = (stage.parties.folders[KILLED] / "process.log").read_text()
        assert log.startswith("NOT SEPARATED: party and engine run as one user")
        assert log.count("The site is up.") == 2 and "started again" in log
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
        ledgers = list((side(folder) / "ledger").iterdir())
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
        left = {file.name for file in side(folder).rglob("*")}
        assert not left & {"identity.json", "private"}
        # Nor is any state kept once the run is over, but for a client's model and captured rounds.
        assert {file.name for file in (folder / "keys").iterdir()} <= {"captures", "models"}


def test_a_client_has_the_model_of_the_run(played: Played) -> None:
    folders = {folder.name: folder for folder in played.parties.folders.values()}
    names = ("client-1", "aggregator")
    digests = {own_model(folders[name]).facts["weights_sha256"] for name in names}
    assert len(digests) == 1


def test_roster_and_charter_name_the_same_run(
    played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("audits.evidence.roster_file.TRANSPORTS", ("memory", "nvflare"))
    for folder in played.parties.folders.values():
        roster = read_roster((side(folder) / "roster.json").read_bytes())
        assert roster.run == played.parties.charter.run and not roster.simulated


@pytest.mark.long
def test_a_server_that_is_lost_and_started_again_goes_on(data_root: Path, tmp_path: Path) -> None:
    """Its whole process group is killed; the sites come back to it by themselves."""
    config = cora(data_root, rounds=ROUNDS)
    memory = record(config, tmp_path / "memory")
    with staged(config, tmp_path, data_root) as (stage, processes):
        with JobConsole(stage.made, patience=120.0) as console:
            console.submit(stage.job("first"))
            until(lambda: stage.opened() >= 2)
            processes.kill(SERVER_SITE)
        assert not stage.finished(), "the run was over before it could be killed"
        processes.start(SERVER_SITE)
        with JobConsole(stage.made, patience=180.0) as console:
            console.wait(console.submit(stage.job("second")), patience=240.0)
    assert stage.parties.result()["model_sha256"] == memory.result["model_sha256"]
