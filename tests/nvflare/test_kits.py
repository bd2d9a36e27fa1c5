"""What a hardened kit allows, what a job holds, and that no process outlives its federation."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("nvflare", reason="the extra nvflare is not installed")

from nvflare.app_common.widgets.component_path_authorizer import ComponentPathAuthorizer

from secure_fgl.errors import UsageError
from secure_fgl.transports.nvflare import kits
from secure_fgl.transports.nvflare.job import POLL_SECONDS, write_job
from tests.nvflare.stage import SERVER_SITE, assemble, banks

SITES = ("site-1", "site-2")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> kits.Kits:
    return kits.provision(tmp_path_factory.mktemp("made") / "kits", SITES, port=kits.free_port())


def all_kits(made: kits.Kits) -> list[Path]:
    return [made.server, *made.sites.values()]


def test_a_job_can_name_our_two_classes_and_nothing_else(made: kits.Kits) -> None:
    for kit in all_kits(made):
        resources = json.loads((kit / "local" / "resources.json").read_text())
        authorizer = ComponentPathAuthorizer()
        listed, mode, default = authorizer._get_policy_from_resources(resources)
        assert sorted(listed) == sorted(kits.CLASSES) and mode.value == "enforce" and not default
        matches = [
            authorizer._path_matches_prefix(path, prefix)
            for path in ("subprocess.Popen", "nvflare.app_common.np.np_trainer.NPTrainer")
            for prefix in listed
        ]
        assert not any(matches)
        before = json.loads((kit / "local" / "resources.json.default").read_text())
        assert len(before["class_allow_list"]) > 50  # NVFlare's own default allows far more


def test_no_code_in_jobs_no_shell_and_no_logs_for_the_server(made: kits.Kits) -> None:
    for kit in all_kits(made):
        rights = json.loads((kit / "local" / "authorization.json").read_text())["permissions"]
        assert set(rights) == {"project_admin", "org_admin", "lead", "member"}
        for role in ("project_admin", "org_admin", "lead"):
            assert {rights[role][r] for r in ("byoc", "shell_commands", "download_job")} == {"none"}
        resources = json.loads((kit / "local" / "resources.json").read_text())
        assert resources["allow_log_streaming"] is False
        assert not {c["id"] for c in resources["components"]} & {
            "site_log_streamer",
            "log_receiver",
        }


def test_a_server_keeps_its_state_below_its_kit(made: kits.Kits) -> None:
    text = (made.server / "local" / "resources.json").read_text()
    assert "/tmp/nvflare" not in text
    assert "/tmp/nvflare" in (made.server / "local" / "resources.json.default").read_text()
    assert text.count(str(made.server / "state")) == 2


def test_tls_keys_are_closed_to_others_and_mutual(made: kits.Kits) -> None:
    assert made.folder.stat().st_mode & 0o777 == 0o700
    for site in made.sites.values():
        client = json.loads((site / "startup" / "fed_client.json").read_text())["client"]
        assert client["connection_security"] == "mtls"


def test_what_is_no_kit_is_not_hardened(tmp_path: Path, made: kits.Kits) -> None:
    with pytest.raises(UsageError, match="not a provisioned kit"):
        kits.harden(tmp_path)
    with pytest.raises(UsageError, match="cannot be made"):
        kits.provision(made.folder, SITES, port=1)


def test_a_job_is_settings_alone(tmp_path: Path) -> None:
    job = write_job(tmp_path / "job", SITES, deadline=7.0)
    files = sorted(str(f.relative_to(job)) for f in job.rglob("*") if f.is_file())
    assert files == [
        "app/config/config_fed_client.json", "app/config/config_fed_server.json", "meta.json",
    ]  # fmt: skip
    server, client = (
        json.loads((job / "app" / "config" / f"config_fed_{kind}.json").read_text())
        for kind in ("server", "client")
    )
    assert server["server"]["task_request_interval"] == POLL_SECONDS
    assert server["workflows"][0]["args"] == {"deadline": 7.0}
    # Where a site's secrets lie is never a job's to say.
    assert client["executors"][0]["executor"] == {"path": kits.CLASSES[1], "args": {}}
    assert json.loads((job / "meta.json").read_text())["mandatory_clients"] == list(SITES)


@pytest.mark.parametrize(("policy", "others"), [("masks", 0), ("he", 1)])
def test_a_job_begins_without_a_client_but_not_without_an_authority(
    policy: str, others: int, tmp_path: Path
) -> None:
    parties = assemble(banks(policy=policy), tmp_path / "parties")
    sites = [site for site in parties.folders if site != SERVER_SITE]
    job = write_job(tmp_path / "job", sites, charter=parties.charter)
    meta = json.loads((job / "meta.json").read_text())
    assert meta["mandatory_clients"] == ["site-6"][:others]
    assert len(sites) == 5 + others and meta["min_clients"] == 4 + others


STUBBORN = """
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(child.pid, flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_a_group_that_will_not_end_is_ended(
    how: str, made: kits.Kits, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kits, "_STOP_SECONDS", 0.3)
    process = subprocess.Popen(
        [sys.executable, "-c", STUBBORN], stdout=subprocess.PIPE, start_new_session=True
    )
    assert process.stdout is not None
    child = int(process.stdout.readline())
    held = kits.Processes(made, {}, running={"site-1": process})
    held.stop() if how == "stop" else held.kill("site-1")
    assert process.returncode is not None and held.running == {}
    for _ in range(100):
        if not _runs(child):
            return
        time.sleep(0.05)
    pytest.fail("a child outlived its group")


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{pid}/stat")
    return not status.exists() or status.read_text().rsplit(")", 1)[1].split()[0] != "Z"
