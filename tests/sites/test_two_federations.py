"""Two federations of other parties, at one time, on one server of NVFlare.

Each has clients, sites and an office of its own; the server is the one place that both share.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("nvflare", reason="the extra nvflare is not installed")

from protocols.evidence.ledger import read_lines
from protocols.wire.roster import AGGREGATOR_NAME
from secure_fgl.config import Config
from secure_fgl.data.own.spec import SPEC_FILE
from secure_fgl.federation import Federation
from secure_fgl.sites.ending import held_back
from secure_fgl.store.finished_run import Run
from secure_fgl.transports.broker.channel import SOCKET
from secure_fgl.transports.nvflare import kits
from secure_fgl.transports.nvflare.job import DONE, JobConsole, write_job
from tests.sites.left import processes_of
from tests.sites.processes import ROOT, session_process, until
from tests.sites.stage import SERVER_SITE, Parties, assemble, side
from tests.sites.test_own_folders import SPEC, own, tables

pytestmark = pytest.mark.long

HOSPITALS = ("hospital-west", "hospital-north", "hospital-east", "hospital-south")
BANKS = ("bank-amber", "bank-birch", "bank-cedar", "bank-dune")
ROUNDS = 3
PATIENCE = 400.0  # seconds: eighteen processes of NVFlare's and twenty of ours start on a few cores


@dataclass
class Side:
    """One of the two: its parties with all that is theirs, and its run in memory."""

    base: Path
    names: Sequence[str]
    parties: Parties
    memory: Run
    made: kits.Kits | None = None

    @property
    def sites(self) -> list[str]:
        return [site for site in self.parties.folders if site != SERVER_SITE]

    def up(self) -> bool:
        """Tell whether every party's own process listens."""
        logs = [folder / "process.log" for folder in self.parties.folders.values()]
        return all("The site is up." in log.read_text() for log in logs)

    def places(self) -> list[Path]:
        """Return all that its parties hold: folders, data, and the kits of their sites."""
        assert self.made is not None
        kept = [self.made.sites[site] for site in self.sites]
        return [*self.parties.folders.values(), self.base / "data", *kept]

    def words(self, job: str) -> dict[str, bytes]:
        """Return what says that a file is of this federation."""
        charter = self.parties.charter
        found = {name: name for name in (*self.names, *self.sites)} | {"run": charter.run}
        keys = {
            f"key of {name}": charter.roster.party(name).verify.raw.hex() for name in charter.sites
        }
        return {what: word.encode() for what, word in {**found, **keys, "job": job}.items()}


def configured(base: Path, names: Sequence[str]) -> Config:
    """Return a small run on tables that only these sites hold."""
    for number, name in enumerate(names):
        tables(base / "data" / name, number + 4 * (names is BANKS))
    (base / "data" / SPEC_FILE).write_text(SPEC)
    document: dict[str, Any] = own(base / "data").model_dump(mode="json")
    document["data"]["partition"] = {"names": list(names)}
    document["algorithm"]["rounds"] = ROUNDS
    return Config.parse(document)


def founded(base: Path, names: Sequence[str]) -> Side:
    """Let one federation agree, and run it in memory beside."""
    config = configured(base, names)
    parties = assemble(config, base / "parties", called=names[0].partition("-")[0])
    return Side(base, names, parties, Federation.from_config(config).run(base / "memory"))


def ended(console: JobConsole, jobs: Sequence[str]) -> list[str]:
    deadline = time.monotonic() + PATIENCE
    while not all((word := console.status(job)).startswith("FINISHED") for job in jobs):
        assert time.monotonic() < deadline, word
        time.sleep(0.3)
    return [console.status(job) for job in jobs]


def start(both: Sequence[Side], server: kits.Processes, at: Sequence[kits.Processes]) -> None:
    """Start the server, which finds either office in one folder, and all sites of both."""
    meet = server.parties[SERVER_SITE] / SOCKET
    with held_back():
        server.start_engine(SERVER_SITE)
        for one, processes in zip(both, at, strict=True):
            processes.start_party(SERVER_SITE, "--socket", str(meet))
            for site in one.sites:
                processes.start(site)


def beside_each_other(both: Sequence[Side], processes: kits.Processes) -> None:
    """Let the first run stand still, once it has begun, until the second has begun, too."""
    first, second = (one.parties.folders[SERVER_SITE] for one in both)
    until(lambda: said(first, "receipt") > 0, seconds=PATIENCE)
    office = session_process(processes, SERVER_SITE)
    os.kill(office, signal.SIGSTOP)
    try:
        until(lambda: said(second, "receipt") > 0, seconds=PATIENCE)
        assert not (side(first) / "result.json").exists(), "it was over before it stood still"
    finally:
        os.kill(office, signal.SIGCONT)


def said(office: Path, kind: str) -> int:
    """Return how many entries of a kind the office's ledger has by now."""
    ledger = side(office) / "ledger" / f"{office.name}.jsonl"
    return ledger.read_bytes().count(f'"kind":"{kind}"'.encode()) if ledger.exists() else 0


def holding(places: Sequence[Path], words: Mapping[str, bytes]) -> list[str]:
    """Return which files, by content or name, hold which of these words."""
    found = list[str]()
    for path in (path for place in places for path in (place, *place.rglob("*"))):
        told = str(path).encode() + (path.read_bytes() if path.is_file() else b"")
        found += [f"{what} in {path}" for what, word in words.items() if word in told]
    return found


def test_two_federations_on_one_server_see_nothing_of_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = [founded(tmp_path / name, names) for name, names in (("a", HOSPITALS), ("b", BANKS))]
    sites = [site for one in both for site in one.sites]
    made = kits.provision(tmp_path / "kits", sites, port=kits.free_port())
    (tmp_path / "meet").mkdir(mode=0o700)
    (tmp_path / "tap").mkdir()
    monkeypatch.setenv("PYTHONPATH", f"{Path(__file__).parent / 'tap'}:{ROOT}")
    monkeypatch.setenv("SECURE_FGL_TEST_TAP", str(tmp_path / "tap"))
    server = kits.Processes(made, {SERVER_SITE: tmp_path / "meet"})
    at = [kits.Processes(made, one.parties.folders, one.base / "data") for one in both]
    try:
        start(both, server, at)
        for one in both:
            one.made = made
            until(one.up, seconds=PATIENCE)
        written = [
            write_job(one.base / "job", one.sites, deadline=240.0, charter=one.parties.charter)
            for one in both
        ]
        with JobConsole(made, patience=PATIENCE) as console:
            jobs = [console.submit(job) for job in written]
            beside_each_other(both, at[0])
            done = ended(console, jobs)
    finally:
        with held_back():
            for processes in (server, *at):
                processes.stop()
    assert processes_of(tmp_path) == []
    assert done == [DONE, DONE]
    for one in both:
        office = one.parties.folders[SERVER_SITE]
        assert office.name == AGGREGATOR_NAME
        result = one.parties.result()
        assert result["model_sha256"] == one.memory.model_sha256 is not None
        assert result["lost_rounds"] == []
        for folder in one.parties.folders.values():
            assert Run(folder).verify().verdict == "own side holds", folder
    one, other = both
    assert one.memory.model_sha256 != other.memory.model_sha256
    words = [each.words(job) for each, job in zip(both, jobs, strict=True)]
    for mine, others, of_others in ((one, words[0], words[1]), (other, words[1], words[0])):
        assert holding(mine.places(), of_others) == []
        seen = {line.partition(" in ")[0] for line in holding(mine.places(), others)}
        assert seen == {*others}  # the control: by the same search its own are all there
    assert_no_envelope_is_shared(both, tmp_path / "tap")
    everywhere = holding([made.server], words[0] | words[1])
    assert everywhere != []  # the server alone saw both


def assert_no_envelope_is_shared(both: Sequence[Side], tap: Path) -> None:
    """Every process that carried envelopes carried those of one run; no ledger has another's."""
    runs = [bytes.fromhex(one.parties.charter.run) for one in both]
    carried = {file.name: file.read_bytes() for file in tap.iterdir()}
    of = [{name for name, data in carried.items() if run in data} for run in runs]
    assert of[0] | of[1] == {*carried} and not of[0] & of[1]
    for one, mine in zip(both, of, strict=True):
        assert len([name for name in mine if name.startswith("site")]) == len(one.sites)
        assert len([name for name in mine if name.startswith("server")]) == 1
    noted = [commitments(one) for one in both]
    assert all(noted) and not noted[0] & noted[1]


def commitments(one: Side) -> set[str]:
    """Return what its parties' ledgers hold of envelopes that they released or received."""
    found, run = set[str](), one.parties.charter.run
    for folder in one.parties.folders.values():
        data = (side(folder) / "ledger" / f"{folder.name}.jsonl").read_bytes()
        entries = [entry for entry, _ in read_lines(data)]
        assert {entry.get("run", run) for entry in entries} == {run}
        found |= {entry["commitment"] for entry in entries if "commitment" in entry}
    return found
