"""Two runs of the same parties at one time on one server, with kits whose keys never travelled."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes

pytest.importorskip("nvflare", reason="the extra nvflare is not installed")

from protocols.evidence.ledger import read_lines
from protocols.wire.roster import AGGREGATOR_NAME
from secure_fgl.charters.charter import Charter
from secure_fgl.federation import Federation
from secure_fgl.sites.ending import held_back
from secure_fgl.store.finished_run import Run
from secure_fgl.store.sides.places import place_of, places_of
from secure_fgl.transports.nvflare import kits
from secure_fgl.transports.nvflare.job import DONE, JobConsole, write_job
from tests.sites.processes import until
from tests.sites.stage import SERVER_SITE, another, assemble, banks

pytestmark = pytest.mark.long

ADMIN = "admin@secure-fgl.local"


def nvflare(*words: object) -> None:
    """Run NVFlare's own command in this process."""
    from nvflare import cli

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [*sys.path])
        patch.setattr(sys, "argv", ["nvflare", *map(str, words)])
        cli.run("nvflare")


def requested(base: Path, sites: Sequence[str], port: int) -> kits.Kits:
    """Make kits as docs/pilot.md has it: each key where its request is."""
    profile = base / "project.yaml"
    server = {"host": SERVER_SITE, "fed_learn_port": port}
    facts = {"name": "pilot", "scheme": "grpc", "connection_security": "mtls", "server": server}
    base.mkdir()
    profile.write_text(yaml.safe_dump(facts))
    nvflare("cert", "init", "--profile", profile, "-o", base / "ca")
    root = x509.load_pem_x509_certificate((base / "ca" / "rootCA.pem").read_bytes())
    told = "SHA256:" + root.fingerprint(hashes.SHA256()).hex(":")
    who = {SERVER_SITE: {"type": "server"}, ADMIN: {"type": "admin", "role": "lead"}}
    who |= {site: {"type": "client"} for site in sites}
    for name, kind in who.items():
        place = base / "at" / name
        file = base / f"{name}.yaml"
        facts = {"name": name, "org": "an_organisation", **kind}
        file.write_text(yaml.safe_dump({"name": "pilot", "participants": [facts]}))
        nvflare("cert", "request", "-p", file, "--out", place)
        asked = place / f"{name}.request.zip"
        nvflare("cert", "approve", asked, "-c", base / "ca", "--profile", profile)
        signed = place / f"{name}.signed.zip"
        more = ("--request-dir", place, "-w", base / "kits", "--fingerprint", told)
        nvflare("package", signed, *more)
    made = base / "kits" / "pilot" / "prod_00"
    found = kits.Kits(base, made / SERVER_SITE, made / ADMIN, {name: made / name for name in sites})
    for kit in (found.server, *found.sites.values()):
        kits.harden(kit)
    return found


def ended(console: JobConsole, jobs: Sequence[str]) -> list[str]:
    deadline = time.monotonic() + 300.0
    while not all((word := console.status(job)).startswith("FINISHED") for job in jobs):
        assert time.monotonic() < deadline, word
        time.sleep(0.3)
    return [console.status(job) for job in jobs]


def test_two_runs_on_one_server_see_nothing_of_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))  # NVFlare notes there what was asked and signed
    first, second = banks(), banks(rounds=2)
    parties = assemble(first, tmp_path / "parties")
    sites = [site for site in parties.folders if site != SERVER_SITE]
    charters = [parties.charter, another(parties, second)]
    alone = [
        Federation.from_config(c).run(tmp_path / f"{n}") for n, c in enumerate((first, second))
    ]
    never: Charter = another(assemble(first, tmp_path / "others"), first)  # nobody here joined it
    made = requested(tmp_path / "engine", sites, kits.free_port())
    started = [kits.Processes(made, parties.folders) for _ in range(3)]
    try:
        with held_back():
            for site in parties.folders:
                started[0].start_engine(site)
                for charter, processes in zip(charters, started[1:], strict=True):
                    processes.start_party(site, "--run", charter.run)
        logs = [folder / "process.log" for folder in parties.folders.values()]
        until(lambda: all(log.read_text().count("The site is up.") == 2 for log in logs))
        with JobConsole(made, patience=120.0) as console:
            jobs = [
                console.submit(
                    write_job(tmp_path / charter.run, sites, deadline=d, charter=charter)
                )
                for charter, d in ((*((c, 120.0) for c in charters), (never, 5.0)))
            ]
            *done, refused = ended(console, jobs)
    finally:
        with held_back():
            for processes in started:
                processes.stop()
    assert done == [DONE, DONE] and refused != DONE
    for folder in parties.folders.values():
        assert {*places_of(folder)} == {charter.run for charter in charters}
        for charter in charters:
            place = place_of(folder, charter.run)
            assert Run(place).verify().verdict == "own side holds", (folder.name, charter.run)
            (ledger,) = (place / "run" / "ledger").iterdir()
            entries = [entry for entry, _ in read_lines(ledger.read_bytes())]
            assert entries[-1]["kind"] == "close"
            assert {e["round"] for e in entries if "round" in e} <= {
                *range(charter.plan.rounds + 1)
            }
    office = next(f for f in parties.folders.values() if f.name == AGGREGATOR_NAME)
    for charter, run in zip(charters, alone, strict=True):
        assert Run(place_of(office, charter.run)).model_sha256 == run.model_sha256
