"""What a hardened kit allows, what a job holds, and that no process outlives its federation."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("nvflare", reason="the extra nvflare is not installed")

from nvflare.app_common.widgets.component_path_authorizer import ComponentPathAuthorizer

from protocols.wire.roles import Role
from secure_fgl.charters.identity_file import new_identity
from secure_fgl.errors import UsageError
from secure_fgl.sites.checks.lines import Line, Status
from secure_fgl.sites.checks.listed import check_site
from secure_fgl.transports.nvflare import ending, kits
from secure_fgl.transports.nvflare.checks.kit_files import KitFiles
from secure_fgl.transports.nvflare.job import POLL_SECONDS, write_job
from tests.sites.stage import SERVER_SITE, assemble, banks
from tests.secure_fgl.cli_tools import invoke

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
    charter = assemble(banks(), tmp_path / "parties").charter
    job = write_job(tmp_path / "job", SITES, deadline=7.0, charter=charter)
    files = sorted(str(f.relative_to(job)) for f in job.rglob("*") if f.is_file())
    assert files == [
        "app/config/config_fed_client.json", "app/config/config_fed_server.json", "meta.json",
    ]  # fmt: skip
    server, client = (
        json.loads((job / "app" / "config" / f"config_fed_{kind}.json").read_text())
        for kind in ("server", "client")
    )
    assert server["server"]["task_request_interval"] == POLL_SECONDS
    assert server["workflows"][0]["args"] == {"run": charter.run, "deadline": 7.0}
    # Where a site's secrets lie is never a job's to say.
    seat = {"path": kits.CLASSES[1], "args": {"run": charter.run}}
    assert client["executors"][0]["executor"] == seat
    meta = json.loads((job / "meta.json").read_text())
    assert meta["deploy_map"] == {"app": ["server", *SITES]}  # to no site of another federation


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
    monkeypatch.setattr(ending, "_POLITE_SECONDS", 0.3)
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


@pytest.fixture(scope="module")
def parties(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("parties")
    found = {"site-1": folder / "north", kits.SERVER: folder / "office"}
    new_identity(found["site-1"], "hospital-north", Role.CLIENT)
    new_identity(found[kits.SERVER], "aggregator", Role.AGGREGATOR)
    return found


@pytest.fixture
def bare(made: kits.Kits, tmp_path: Path) -> dict[str, Path]:
    """Kits as NVFlare makes them, before anybody narrowed them."""
    found = {}
    for site, kit in {"site-1": made.sites["site-1"], kits.SERVER: made.server}.items():
        found[site] = Path(shutil.copytree(kit, tmp_path / site))
        for name in ("resources", "authorization"):
            (found[site] / "local" / f"{name}.json").unlink()
    return found


@pytest.mark.parametrize("site", ["site-1", kits.SERVER])
def test_harden_says_what_it_put_into_force(
    site: str, bare: dict[str, Path], parties: dict[str, Path]
) -> None:
    kit = KitFiles.open(bare[site])
    assert len(kit.lacking()) == 2  # the control: NVFlare's defaults hold
    shown = invoke("site", "harden", parties[site], "--kit", bare[site])
    assert shown.exit_code == 0, shown.stderr
    for said in (*kits.CLASSES, "manage_job, submit_job, view", "code in jobs", site):
        assert said in shown.stdout
    assert kit.lacking() == []
    again = invoke("site", "harden", parties[site], "--kit", bare[site], "--format", "json")
    found = json.loads(again.stdout)
    assert found["site"] == site and sorted(found["classes"]) == sorted(kits.CLASSES)
    assert found["rights"]["member"] == ["view"]


def test_harden_takes_a_party_s_own_kit_alone(
    bare: dict[str, Path], parties: dict[str, Path], tmp_path: Path
) -> None:
    kit = bare["site-1"]
    inside = kit / "party"
    shutil.copytree(parties["site-1"], inside)
    for party, given, said in (
        (parties["site-1"], bare[kits.SERVER], "is of a server"),
        (parties[kits.SERVER], kit, "is of a site"),
        (inside, kit, "lie in each other"),
        (tmp_path / "nobody", kit, "cannot be read"),
        (parties["site-1"], tmp_path, "no start-up kit"),
    ):
        refused = invoke("site", "harden", party, "--kit", given)
        assert refused.exit_code == 2 and said in " ".join(refused.stderr.split())
    assert not (kit / "local" / "resources.json").exists()
    shutil.rmtree(inside)
    (kit / "local" / "custom").mkdir()
    (kit / "local" / "custom" / "evil.py").touch()
    refused = invoke("site", "harden", parties["site-1"], "--kit", kit)
    assert refused.exit_code == 2 and "local/custom holds code" in " ".join(refused.stderr.split())


WIDENED = {
    "resources": [
        ("class_list_enforcement_mode", "off", "not enforced"),
        ("class_allow_list", [*kits.CLASSES, "subprocess."], "subprocess."),
        ("allow_log_streaming", True, "streamed away"),
        ("components", [{"id": "log_receiver"}], "log_receiver"),
        ("snapshot_persistor", {"root_dir": "/tmp/nvflare"}, "under /tmp/nvflare"),
    ],
    "authorization": [
        ("permissions", {"lead": {"byoc": "o:site"}}, "lead has the right byoc"),
        ("permissions", {"project_admin": "any"}, "may do everything"),
        ("permissions", {"member": {"shell_commands": ["none", "any"]}}, "shell_commands"),
        ("permissions", {"lead": {"start_app": "any"}}, "lead has the right start_app"),
        ("permissions", "any", "lists no permissions"),
    ],
}


@pytest.mark.parametrize(
    ("name", "key", "value", "said"),
    [(name, *change) for name, changes in WIDENED.items() for change in changes],
)
def test_what_was_widened_again_is_found(
    name: str, key: str, value: object, said: str, made: kits.Kits, tmp_path: Path
) -> None:
    kit = Path(shutil.copytree(made.sites["site-2"], tmp_path / "kit"))
    assert KitFiles.open(kit).lacking() == []
    file = kit / "local" / f"{name}.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), key: value}))
    (found,) = KitFiles.open(kit).lacking()
    assert said in found


@pytest.mark.parametrize("which", ["resources.json", "authorization.json", "comm_config.json"])
def test_harden_writes_through_no_link(which: str, bare: dict[str, Path], tmp_path: Path) -> None:
    """Root may do it in a folder that the kit's own user writes to."""
    kit, theirs = bare["site-1"], tmp_path / "root's"
    theirs.write_text("{}")
    place = kit / "local" / which
    place.unlink(missing_ok=True)
    place.symlink_to(theirs)
    if which == "comm_config.json":  # that is read first
        with pytest.raises(UsageError, match="cannot be read"):
            kits.harden(kit)
    else:
        kits.harden(kit)
        assert not place.is_symlink() and KitFiles.open(kit).lacking() == []
    assert theirs.read_text() == "{}"


def test_harden_waits_for_no_pipe_and_follows_no_folder(
    bare: dict[str, Path], tmp_path: Path
) -> None:
    local = bare["site-1"] / "local"
    kits.harden(bare["site-1"])  # the control
    shutil.copytree(local, tmp_path / "elsewhere")
    (local / "resources.json.default").unlink()
    os.mkfifo(local / "resources.json.default")
    with pytest.raises(UsageError, match="not a provisioned kit"):
        kits.harden(bare["site-1"])
    shutil.rmtree(local)
    local.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UsageError, match="not a provisioned kit"):
        kits.harden(bare["site-1"])


def test_a_kit_that_others_can_change_is_found(
    bare: dict[str, Path], parties: dict[str, Path]
) -> None:
    kit, party = bare["site-1"], parties["site-1"]
    kits.harden(kit)
    kit.chmod(0o755)

    def line() -> Line:
        return next(found for found in check_site(party, kit) if found.name == "kit")

    assert line().status is Status.OK  # the control
    (kit / "local" / "resources.json").chmod(0o666)
    assert line().status is Status.FAIL and "go-w" in line().todo
    kit.chmod(0o700)  # nobody gets there
    assert line().status is Status.OK
    kit.chmod(0o755)
    (kit / "local" / "resources.json").chmod(0o644)
    (kit / "local").chmod(0o777)
    assert line().status is Status.FAIL
