"""Sites that die, hang or leave, over real NVFlare processes: a round at most, never the job."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("nvflare", reason="the extra nvflare is not installed")

from secure_fgl.store.finished_run import Run
from secure_fgl.store.sides.hand_overs import gather_files, write_hand_over
from secure_fgl.store.sides.places import place_of
from secure_fgl.transports.nvflare.job import JobConsole
from secure_fgl.transports.nvflare.site import leaving
from tests.sites.processes import job_process, session_process, staged, until
from tests.sites.stage import SERVER_SITE, Parties, banks

pytestmark = pytest.mark.long

KILLED, STOPPED = "site-2", "site-3"
ROUNDS = 8


@dataclass
class Interrupted:
    """A run in which a client's session is killed, then the aggregator's, and one site is stopped.

    Attributes:
        status: NVFlare's word for the job.
        entries: every party's ledger, by site.
        relays: kB of memory of two relays, and whether torch was loaded in them.
        opened: how many sums were opened when a session was killed, was back, and one was stopped.
    """

    parties: Parties
    status: str
    entries: dict[str, list[dict[str, Any]]]
    relays: dict[str, tuple[int, bool]]
    opened: list[int]


def relay(pid: int) -> tuple[int, bool]:
    """Return a process's memory in kB, and whether torch is loaded in it."""
    status = Path(f"/proc/{pid}/status").read_text()
    (size,) = [line.split()[1] for line in status.splitlines() if line.startswith("VmRSS")]
    return int(size), "libtorch" in Path(f"/proc/{pid}/maps").read_text()


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory: pytest.TempPathFactory) -> Interrupted:
    base = tmp_path_factory.mktemp("sites")
    with (
        staged(banks(rounds=ROUNDS), base, None) as (stage, processes),
        JobConsole(stage.made, patience=120.0) as console,
    ):
        job = console.submit(stage.job("first"))
        until(lambda: stage.opened() >= 1)
        relays = {s: relay(job_process(processes, s)) for s in (SERVER_SITE, KILLED)}
        opened = [stage.opened()]
        os.kill(session_process(processes, KILLED), signal.SIGKILL)
        until(lambda: stage.opened() >= opened[0] + 2)  # others go on without it
        # The aggregator's own process waits, so that the run is not over before the other is back.
        aggregator = session_process(processes, SERVER_SITE)
        os.kill(aggregator, signal.SIGSTOP)
        log = stage.parties.folders[KILLED] / "process.log"
        until(lambda: log.read_text().count("The site is up.") == 2)
        os.kill(aggregator, signal.SIGCONT)
        opened.append(stage.opened())
        until(lambda: stage.opened() >= opened[1] + 1)
        os.kill(aggregator, signal.SIGKILL)  # its relay waits, and it sends its last bytes again
        until(lambda: stage.opened() >= opened[1] + 3)
        # The aggregator waits again: a stop takes seconds, in which the run would be over.
        aggregator = session_process(processes, SERVER_SITE)
        os.kill(aggregator, signal.SIGSTOP)
        leaving.stop(stage.parties.folders[STOPPED], seconds=60.0)
        os.kill(aggregator, signal.SIGCONT)
        opened.append(stage.opened())
        until(stage.finished)
        until(lambda: console.status(job).startswith("FINISHED"))
        entries = {site: stage.entries(site) for site in stage.parties.folders}
        return Interrupted(stage.parties, console.status(job), entries, relays, opened)


def test_a_killed_session_costs_its_round_and_not_the_job(interrupted: Interrupted) -> None:
    assert interrupted.status == "FINISHED:COMPLETED"
    # Of no death; a site that is stopped between two steps of a round costs that one.
    assert len(interrupted.parties.result()["lost_rounds"]) <= 1
    log = (interrupted.parties.folders[SERVER_SITE] / "process.log").read_text()
    assert log.count("The site is up.") == 2  # the aggregator's was killed as well


def test_it_takes_part_again(interrupted: Interrupted) -> None:
    said = answered(interrupted, KILLED)
    everybody = answered(interrupted, "site-1")
    assert everybody == set(range(1, ROUNDS + 1))
    assert said < everybody and max(said) == ROUNDS  # it missed some round, and is there at the end
    assert interrupted.entries[KILLED][-1]["kind"] == "close"


def answered(interrupted: Interrupted, site: str) -> set[int]:
    """Return the rounds in which a client uploaded its update, as the aggregator heard it."""
    name = interrupted.parties.folders[site].name
    heard = interrupted.entries[SERVER_SITE]
    return {
        entry["round"]
        for entry in heard
        if entry["kind"] == "receipt" and entry["sender"] == name and "train" in entry["item"]
    }


def test_relays_hold_no_torch(interrupted: Interrupted) -> None:
    for site, (size, torch) in interrupted.relays.items():
        assert not torch, site
        assert size < (150_000 if site != SERVER_SITE else 180_000), site


def test_a_stopped_site_left_with_its_ledger_signed(interrupted: Interrupted) -> None:
    folder = interrupted.parties.folders[STOPPED]
    assert not list(folder.glob("socket*")) and leaving.was_stopped(place_of(folder))
    assert interrupted.entries[STOPPED][-1]["kind"] != "close"
    assert max(answered(interrupted, STOPPED)) < ROUNDS
    assert Run(folder).verify().verdict == "own side holds"


def test_audit_verify_passes_on_all_sides_together(
    interrupted: Interrupted, tmp_path: Path
) -> None:
    folders = interrupted.parties.folders.values()
    handed = [write_hand_over(f, tmp_path / f"{f.name}.zip")[0] for f in folders]
    assert gather_files(handed, tmp_path / "run").missing == ()
    found = Run(tmp_path / "run").verify()
    assert found.verdict == "self-consistent only", found.failed
