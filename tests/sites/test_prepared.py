"""Kits that ``nvflare deploy prepare`` made, by its own code: narrowed afterwards, not before."""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

pytest.importorskip("nvflare", reason="the extra nvflare is not installed")

from nvflare.tool.deploy.deploy_commands import prepare_deployment

from protocols.wire.roles import Role
from secure_fgl.charters.identity_file import new_identity
from secure_fgl.sites.checks.lines import Line, Status
from secure_fgl.sites.checks.listed import check_site
from secure_fgl.transports.nvflare import kits
from secure_fgl.transports.nvflare.checks.kit_files import KitFiles
from tests.secure_fgl.cli_tools import ROOT, invoke
from tests.secure_fgl.test_own_docs import BLOCK

SITES = ("site-1", "site-2")
PAGE = (ROOT / "deploy" / "README.md").read_text("utf-8").partition("## On Kubernetes")[2]
IN_PODS = "/var/tmp/nvflare/workspace"
RUNTIMES: dict[str, dict[str, Any]] = {
    "k8s": {"parent": {"docker_image": "secure-fgl:0.1.0"}},
    "docker": {"parent": {"docker_image": "secure-fgl:0.1.0", "network": "secure-fgl"}},
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> kits.Kits:
    return kits.provision(tmp_path_factory.mktemp("made") / "kits", SITES, port=kits.free_port())


@pytest.fixture(scope="module")
def parties(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("parties")
    found = {"site": folder / "north", "server": folder / "office"}
    new_identity(found["site"], "hospital-north", Role.CLIENT)
    new_identity(found["server"], "aggregator", Role.AGGREGATOR)
    return found


def prepared(kit: Path, out: Path, config: dict[str, Any]) -> Path:
    """Let NVFlare prepare a kit, as its command does."""
    file = out.parent / f"{out.name}.yaml"
    file.write_text(yaml.safe_dump(config), "utf-8")
    prepare_deployment(SimpleNamespace(kit=str(kit), output=str(out), config=str(file)))
    return out


def own(made: kits.Kits, which: str) -> Path:
    return made.server if which == "server" else made.sites["site-1"]


def launchers(kit: Path) -> list[dict[str, Any]]:
    components = json.loads((kit / "local" / "resources.json").read_text())["components"]
    return [one for one in components if "launcher" in one["id"]]


def line(party: Path, kit: Path, name: str) -> Line:
    return next(found for found in check_site(party, kit) if found.name == name)


@pytest.mark.parametrize("which", ["site", "server"])
@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_kit_is_open_once_it_is_prepared_and_narrow_once_it_is_hardened(
    runtime: str, which: str, made: kits.Kits, parties: dict[str, Path], tmp_path: Path
) -> None:
    kit, party = own(made, which), parties[which]
    assert KitFiles.open(kit).lacking() == []  # it was hardened, and that does not go along
    copy = prepared(kit, tmp_path / "copy", {"runtime": runtime, **RUNTIMES[runtime]})
    found = line(party, copy, "in force")
    assert found.status is Status.FAIL and "NVFlare's own defaults hold" in found.said
    assert "deploy prepare" in found.said and "site harden" in found.todo
    shown = invoke("site", "harden", party, "--kit", copy)
    assert shown.exit_code == 0, shown.stderr
    assert line(party, copy, "in force").status is Status.OK
    (launcher,) = launchers(copy)
    assert launcher["id"] == f"{runtime}_launcher" and launcher["args"]
    assert launchers(kit) == [one for one in launchers(kit) if one["id"] == "process_launcher"]
    sending = json.loads((copy / "local" / "comm_config.json").read_text())
    assert sending["internal"]["resources"]["connection_security"] == "mtls"  # of prepare, and
    assert KitFiles.open(copy).sending().keys() >= kits.COMMUNICATION.keys()  # of harden
    stores = KitFiles.open(copy).stores()
    if which == "site":
        assert stores == []
        return
    assert stores == [f"{IN_PODS}/jobs-storage", f"{IN_PODS}/snapshot-storage"]
    assert all(place in shown.stdout for place in stores)
    state = [str(kit / "state" / name) for name in ("jobs", "snapshots")]
    assert KitFiles.open(kit).stores() == state  # the control: it was not prepared


def test_the_page_s_steps_leave_a_narrow_kit_and_in_another_order_an_open_one(
    made: kits.Kits, parties: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks = {language: body for language, _, body in BLOCK.findall(PAGE)}
    lines = [shlex.split(text, comments=True) for text in blocks["sh"].splitlines()]
    steps = [" ".join(words[:3]) for words in lines]
    assert [step.split()[1] for step in steps] == ["deploy", "site", "site"], steps
    monkeypatch.chdir(tmp_path)
    Path("k8s.yaml").write_text(blocks["yaml"])
    shutil.copytree(made.server, "KIT")
    places = {"PARTY": str(parties["server"])}

    def walk(words: list[str]) -> int:
        words = [places.get(word, word) for word in words]
        if words[0] == "secure-fgl":
            return invoke(*words[1:]).exit_code
        _, _, verb, kit, *options = words
        named = dict(zip(options[::2], options[1::2], strict=True))
        given = SimpleNamespace(kit=kit, output=named["--output"], config=named["--config"])
        assert verb == "prepare"
        prepare_deployment(given)
        return 0

    assert [walk(words) for words in lines[:2]] == [0, 0]
    copy = lines[2][-1]
    assert lines[2][1:3] == ["site", "check"] and line(
        parties["server"], Path(copy), "in force"
    ).status is (Status.OK)
    (launcher,) = launchers(Path(copy))
    assert launcher["args"]["workspace_mount_path"] == IN_PODS
    assert walk(lines[1]) == walk(lines[0]) == 0  # the control: narrowed first, prepared again
    assert len(KitFiles.open(copy).lacking()) == 1
