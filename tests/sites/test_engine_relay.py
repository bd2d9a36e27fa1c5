"""A relay of NVFlare's own between the server and some sites: carried as it is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("nvflare", reason="the extra nvflare is not installed")

from secure_fgl.federation import Federation
from secure_fgl.store.finished_run import Run
from secure_fgl.transports.nvflare import ending, kits
from secure_fgl.transports.nvflare.job import JobConsole, write_job
from tests.sites.stage import SERVER_SITE, assemble, banks, gather

RELAY = "relay-1"
BEHIND = ("site-1", "site-2")
pytestmark = pytest.mark.long


def with_relay(project: dict[str, Any], port: int, security: str = "mtls") -> dict[str, Any]:
    """Return NVFlare's project with a relay, and two of the sites behind it."""
    host = {"default_host": "localhost", "port": port, "scheme": "grpc"}
    where = {"listening_host": {**host, "connection_security": security}}
    relay = {"name": RELAY, "type": "relay", "org": "secure_fgl", **where}
    for one in project["participants"]:
        if one["name"] in BEHIND:
            one["connect_to"] = {"name": RELAY}
    return {**project, "participants": [*project["participants"], relay]}


def relay(kit: Path) -> subprocess.Popen[bytes]:
    """Start NVFlare's relay as the script in its kit does."""
    module = "nvflare.private.fed.app.relay.relay"
    command = [sys.executable, "-m", module, "-m", str(kit), "-s", "fed_relay.json"]
    settings = ["--set", "secure_train=true", "org=secure_fgl", "config_folder=config"]
    return kits._started([*command, *settings], {}, kit / "process.log", kit)


def test_a_run_through_a_relay_of_the_engine_s_is_the_run_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = Federation.from_config(banks()).run(tmp_path / "memory")
    parties = assemble(banks(), tmp_path / "parties")
    sites, plain = [s for s in parties.folders if s != SERVER_SITE], kits._project
    port = kits.free_port()
    monkeypatch.setattr(
        kits, "_project", lambda *given, **more: with_relay(plain(*given, **more), port)
    )
    made = kits.provision(tmp_path / "kits", sites, port=kits.free_port())
    kit = made.server.parent / RELAY
    process = relay(kit)
    try:
        with (
            kits.federation(made, parties.folders),
            JobConsole(made, patience=180.0) as console,
        ):
            job = write_job(tmp_path / "job", sites, deadline=240.0, charter=parties.charter)
            console.wait(console.submit(job), patience=240.0)
    finally:
        ending.end([process])
    assert parties.result()["model_sha256"] == memory.model_sha256
    assert parties.result()["lost_rounds"] == []
    for site in sites:  # sites behind the relay are known by a path that leads through it
        told = (made.sites[site] / "process.log").read_text("utf-8")
        assert (f"{RELAY}.{site}" in told) is (site in BEHIND), site
    monkeypatch.setattr("audits.evidence.roster_file.TRANSPORTS", ("memory", "nvflare"))
    assert Run(gather(parties, tmp_path / "run")).verify().verdict == "self-consistent only"
