"""What `deploy/` holds: linted as far as this machine allows, and its commands run.

The units' own commands run as real processes in folders laid out as theirs; see
`test_the_units_commands_carry_a_run`. No container is started here.
"""

from __future__ import annotations

import contextlib
import copy
import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from protocols.wire.roster import AGGREGATOR_NAME
from scripts.house_rules import FLOORS
from secure_fgl.charters.broker import Broker
from secure_fgl.data import ROOT_VARIABLE
from secure_fgl.sites.start import _SAID_WHY
from secure_fgl.store import budgets, state_store
from secure_fgl.transports.broker.config import new_root, write_config
from secure_fgl.transports.broker.server import free_port
from tests.secure_fgl.cli_tools import invoke
from tests.sites.stage import Parties, assemble, banks

ROOT = Path(__file__).resolve().parent.parent
DEPLOY = ROOT / "deploy"
COMPOSE = ("rehearsal.yaml", "compose.yaml")
IMAGES = {"Dockerfile": "10001:10000", "Dockerfile.cpu": "10001:10001"}
"""Each image, and as whom its program runs."""
UNITS = sorted(path.name for path in (DEPLOY / "systemd").glob("*.service"))
BROKER, SITE = "secure-fgl-broker.service", "secure-fgl-site@.service"
PARTY, CARRIER = "secure-fgl-party@.service", "secure-fgl-carrier@.service"
SWEEP = "secure-fgl-sweep@.service"
TIMER = "secure-fgl-sweep@.timer"
PINNED = re.compile(r"[a-z./-]+:\d+\.\d+\.\d+[a-z0-9.-]*(@sha256:[0-9a-f]{64})?")


def composed(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((DEPLOY / name).read_text("utf-8"))
    return found


# --- compose ----------------------------------------------------------------------------------


def open_in(service: dict[str, Any]) -> list[str]:
    """Return what a service of a compose file is not shut in by."""
    user = str(service.get("user", "root")).split(":")[0]
    holds = {
        "user": user.isdigit() and int(user) >= 10_000,
        "read_only": service.get("read_only") is True,
        "cap_drop": service.get("cap_drop") == ["ALL"] and "cap_add" not in service,
        "privileges": service.get("security_opt") == ["no-new-privileges:true"],
        "privileged": not {"privileged", "devices", "pid", "ipc"} & {*service},
        "image": PINNED.fullmatch(service.get("image", "")) is not None,
        "socket": "docker.sock" not in str(service.get("volumes")),
    }
    return [name for name, held in holds.items() if not held]


@pytest.mark.parametrize("name", COMPOSE)
def test_every_container_is_shut_in(name: str) -> None:
    services = composed(name)["services"]
    for service in services.values():
        assert open_in(service) == []
        for change in ("user", "read_only", "cap_drop", "security_opt", "image"):  # the controls
            weaker = copy.deepcopy(service)
            del weaker[change]
            assert len(open_in(weaker)) == 1
        assert open_in({**service, "privileged": True}) == ["privileged"]


def test_who_holds_keys_has_no_network_and_who_has_one_holds_none() -> None:
    assert composed("rehearsal.yaml")["services"]["rehearsal"]["network_mode"] == "none"
    services = composed("compose.yaml")["services"]
    assert {name for name, s in services.items() if s.get("network_mode") == "none"} == {"party"}
    mounted = {name: " ".join(service["volumes"]) for name, service in services.items()}
    for own in ("PARTY", "DATA", "BUDGETS"):
        assert own in mounted["party"] and own not in mounted["carrier"] + mounted["broker"]
    assert ["secrets" in s for s in services.values()] == [False, True, True, False]
    assert len({services[name]["user"] for name in ("broker", "party", "carrier")}) == 3
    party, carrier = services["party"]["command"], services["carrier"]["command"]
    assert party[-1] == carrier[carrier.index("--socket") + 1]
    assert party[party.index("--carrier-user") + 1] == services["carrier"]["user"].split(":")[0]


def test_one_port_is_open_and_it_is_the_broker_s() -> None:
    services = composed("compose.yaml")["services"]
    assert {n: s["ports"] for n, s in services.items() if "ports" in s} == {"broker": ["4222:4222"]}
    assert settings(BROKER)["SocketBindAllow"] == ["tcp:4222"]
    assert all(settings(name)["SocketBindDeny"] == ["any"] for name in (BROKER, SITE, CARRIER))
    profiles = {n: s["profiles"] for n, s in services.items()}
    assert profiles == {
        "broker": ["office"], "site": ["office", "site"], "party": ["apart"], "carrier": ["apart"],
    }  # fmt: skip


def test_commands_of_containers_are_ours(tmp_path: Path) -> None:
    """Each option is there: a program that does not know one says so before anything else."""
    services, rehearsal = composed("compose.yaml")["services"], composed("rehearsal.yaml")
    for name in ("site", "party"):
        party = [w.replace("/party", f"{tmp_path}/party") for w in services[name]["command"]]
        found = invoke(*party)
        assert found.exit_code == 2 and "is not a party's folder" in found.stderr
        assert "No such option" in invoke(*party, "--sockets", "x").stderr  # the control
    carrier = [w.replace("${RUN:-}", "0" * 32) for w in services["carrier"]["command"]]
    assert invoke(*carrier).exit_code == 2
    assert "No such option" in invoke(*carrier, "--kit", "x").stderr
    command = rehearsal["services"]["rehearsal"]["command"]
    found = invoke(
        *[w.replace("/pilot/", f"{tmp_path}/").replace("/runs/", f"{tmp_path}/") for w in command]
    )
    assert found.exit_code == 2 and "config.yaml" in found.stderr
    assert services["broker"]["command"] == settings(BROKER)["ExecStart"][0].split()[1:]


# --- the images ----------------------------------------------------------------------------------


def steps(image: str) -> list[tuple[str, str]]:
    """Return a Dockerfile's instructions, comments and line breaks taken out."""
    text = re.sub(r"^#.*\n", "", (DEPLOY / image).read_text("utf-8"), flags=re.M)
    lines = text.replace("\\\n", " ").splitlines()
    found = [line.strip().partition(" ") for line in lines if line.strip()]
    return [(word, rest.strip()) for word, _, rest in found]


@pytest.mark.parametrize("image", IMAGES)
def test_an_image_has_pinned_versions_and_no_root(image: str) -> None:
    found = steps(image)
    base = dict(rest.split("=", 1) for word, rest in found if word == "ARG")
    assert PINNED.fullmatch(base["PYTHON"])
    assert all(rest.split()[0] == "${PYTHON}" for word, rest in found if word == "FROM")
    installs = [rest for word, rest in found if word == "RUN" and "pip install" in rest]
    assert len(installs) == 2 and all("-c constraints.txt" in rest for rest in installs)
    assert [word for word, _ in found if word == "ADD"] == []
    assert not re.search(r"curl|wget|latest|sudo|chmod", " ".join(rest for _, rest in found))
    users = [rest for word, rest in found if word == "USER"]
    assert users == [IMAGES[image]]
    last = [word for word, _ in found][::-1]
    assert last.index("USER") < last.index("RUN")  # nothing is run after it, as root or not


def test_the_image_for_one_person_keeps_keys_and_budgets_apart_from_runs() -> None:
    found = steps("Dockerfile.cpu")
    told = dict(
        part.split("=", 1) for word, rest in found if word == "ENV" for part in rest.split()
    )
    assert told[state_store.VARIABLE] == "/state"
    (volumes,) = [json.loads(rest) for word, rest in found if word == "VOLUME"]
    assert volumes == ["/runs", "/state"] and told[budgets.VARIABLE].startswith("/state/")
    assert ("WORKDIR", "/runs") in found and told[ROOT_VARIABLE] == "/data"
    assert ("ENTRYPOINT", '["secure-fgl"]') in found


def unowned(service: dict[str, Any], made: str) -> list[str]:
    """Return the folders of named volumes that an image does not make for the service's user."""
    uid, gid = service["user"].split(":")
    _, _, rest = made.partition(f"install -d -m 0700 -o {uid} -g {gid} ")
    targets = [v["target"] for v in service["volumes"] if v["type"] == "volume"]
    return [folder for folder in targets if folder not in rest.split()]


def test_a_rehearsal_s_volume_belongs_to_its_user() -> None:
    """With Docker a named volume takes its owner from the image's folder, or is root's."""
    made = " ".join(rest for word, rest in steps("Dockerfile") if word == "RUN")
    service = composed("rehearsal.yaml")["services"]["rehearsal"]
    assert unowned(service, made) == [] and unowned(service, "") == ["/runs"]  # the controls
    assert unowned({**service, "user": "10002:10000"}, made) == ["/runs"]


def test_the_page_makes_the_folder_of_credentials_first() -> None:
    """Debian 12 has no /etc/credstore.encrypted, and systemd-creds does not make it."""
    page = (DEPLOY / "README.md").read_text("utf-8")
    assert 0 < page.find("install -d -m 0700 /etc/credstore.") < page.find("systemd-creds encrypt")
    (where,) = {settings(name)["LoadCredentialEncrypted"][0] for name in (SITE, PARTY, SWEEP)}
    assert where.partition(":")[2].startswith("/etc/credstore.encrypted/")


@pytest.mark.parametrize("image", IMAGES)
def test_an_image_is_made_of_the_five_floors_and_nothing_else(image: str) -> None:
    copied = {
        source
        for word, rest in steps(image)
        if word == "COPY" and not rest.startswith("--from")
        for source in rest.split()[:-1]
    }
    assert copied == {*FLOORS, "constraints.txt", "pyproject.toml", "README.md", "LICENSE"}
    assert all((ROOT / source).exists() for source in copied)
    ignored = (DEPLOY / f"{image}.dockerignore").read_text("utf-8").splitlines()
    rules = [line for line in ignored if line and not line.startswith("#")]
    assert rules[0] == "*" and {r[1:] for r in rules if r.startswith("!")} == copied
    targets = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["hatch"]
    assert "deploy" not in str(targets["build"]["targets"]["wheel"])


# --- units --------------------------------------------------------------------------------------


def settings(name: str) -> dict[str, list[str]]:
    """Return a unit's settings, in order; comments are left out."""
    found: dict[str, list[str]] = {}
    for line in (DEPLOY / "systemd" / name).read_text("utf-8").splitlines():
        if "=" in line and not line.startswith("#"):
            key, _, value = line.partition("=")
            found.setdefault(key, []).append(value)
    return found


def verified(folder: Path, change: Callable[[str], str] = lambda text: text) -> str:
    """Return what systemd finds wrong in the units, with our programs' real place in them."""
    bin_folder = str(Path(sys.executable).parent)
    for name in (*UNITS, TIMER):
        text = (DEPLOY / "systemd" / name).read_text("utf-8")
        text = change(text).replace("/opt/secure-fgl/bin", bin_folder)
        (folder / name).write_text(text, "utf-8")
    command = [
        "systemd-analyze",
        "verify",
        "--man=no",
        *(str(folder / name) for name in (*UNITS, TIMER)),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    return done.stderr + done.stdout + ("" if not done.returncode else "failed")


def test_the_timer_is_daily_and_of_the_sweep() -> None:
    timer = settings(TIMER)
    assert timer["Unit"] == [SWEEP.replace("@", "@%i")] and timer["OnCalendar"] == ["daily"]
    assert timer["Persistent"] == ["true"] and timer["WantedBy"] == ["timers.target"]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not there")
def test_units_are_what_systemd_knows(tmp_path: Path) -> None:
    if not (Path(sys.executable).parent / "secure-fgl").exists():
        pytest.skip("secure-fgl is not installed beside this Python")
    assert verified(tmp_path) == ""
    wrong = verified(tmp_path, lambda text: text.replace("PrivateNetwork=", "PrivatNetwork="))
    assert "PrivatNetwork" in wrong  # the control


SHUT_IN = {
    "ProtectSystem": "strict", "NoNewPrivileges": "yes", "CapabilityBoundingSet": "",
    "AmbientCapabilities": "", "PrivateTmp": "yes", "PrivateDevices": "yes", "ProtectHome": "yes",
    "ProtectKernelTunables": "yes", "ProtectKernelModules": "yes", "ProtectControlGroups": "yes",
    "RestrictNamespaces": "yes", "RestrictSUIDSGID": "yes", "LockPersonality": "yes",
    "SystemCallArchitectures": "native", "UMask": "0077",
}  # fmt: skip


@pytest.mark.parametrize("name", UNITS)
def test_every_unit_is_shut_in_and_no_root_s(name: str) -> None:
    unit = settings(name)
    assert {key: unit[key][-1] for key in SHUT_IN} == SHUT_IN
    users = (DEPLOY / "systemd" / "secure-fgl.sysusers").read_text("utf-8")
    assert f"\nu {unit['User'][0]} " in users
    assert unit["SystemCallFilter"][0].startswith("@system-service")
    inside = "/srv/secure-fgl/%i"
    assert unit.get("ReadWritePaths", [inside]) == [inside]  # a broker and a carrier write nothing


def test_the_party_s_unit_has_no_network_and_the_carrier_s_none_of_its_files() -> None:
    site, party, carrier, sweep = map(settings, (SITE, PARTY, CARRIER, SWEEP))
    for unit in (party, sweep):
        assert unit["PrivateNetwork"] == ["yes"]
        assert unit["RestrictAddressFamilies"] == ["AF_UNIX"]
    # With this the kernel would not say who calls.
    assert not {"PrivateUsers", "DynamicUser"} & {*party, *site}
    for unit in (site, party, carrier):
        assert "landlock_restrict_self" in unit["SystemCallFilter"][0]
        assert "seccomp" in unit["SystemCallFilter"][0].split()
    users = [settings(name)["User"][0] for name in (PARTY, CARRIER, BROKER)]
    assert len({*users}) == 3 and site["User"] == party["User"] == sweep["User"]
    for unit in (carrier, settings(BROKER)):
        assert "LoadCredentialEncrypted" not in unit and "PrivateNetwork" not in unit
        assert "-/srv/secure-fgl " in unit["InaccessiblePaths"][0]
    assert "/srv/broker/root.key" in settings(BROKER)["InaccessiblePaths"][0]
    assert carrier["SupplementaryGroups"] == party["Group"]
    assert sweep["LoadCredentialEncrypted"] == site["LoadCredentialEncrypted"]
    assert "Restart" not in sweep and "/srv/secure-fgl-data" in sweep["InaccessiblePaths"][0]


def test_a_party_s_unit_that_was_stopped_stays_so_and_keeps_its_socket() -> None:
    pulling = ("Wants", "Requires", "BindsTo", "Upholds", "Requisite", "PartOf")
    for name in (BROKER, CARRIER):
        pulled = [value for key in pulling for value in settings(name).get(key, [])]
        assert pulled == ["network-online.target"]
    # Without a socket its carrier replies `left`, and nobody waits for this site.
    assert settings(PARTY)["RuntimeDirectoryPreserve"] == ["yes"]
    codes = settings(SITE)["RestartPreventExitStatus"]
    assert {int(code) for code in codes[0].split()} == {*_SAID_WHY}
    assert codes == settings(PARTY)["RestartPreventExitStatus"]


class Machine:
    """A machine's folders below `root`, where units' commands run; their programs are ours."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.running: list[subprocess.Popen[bytes]] = []

    def command(self, unit: str, instance: str, key: str = "ExecStart", **told: str) -> list[str]:
        (line,) = settings(unit)[key]
        line = line.replace("%i", instance)
        line = line.replace("/opt/secure-fgl/bin", str(Path(sys.executable).parent))
        for folder in ("/srv/", "/run/"):
            line = line.replace(f" {folder}", f" {self.root}{folder}")
        for name, value in told.items():
            line = line.replace(f"${{{name}}}", value).replace(f"${name}", value)
        # The carrier's user is this one here: no user is made for a test.
        return shlex.split(line.replace("secure-fgl-carrier --", f"{os.geteuid()} --"))

    def start(self, unit: str, instance: str = "", **told: str) -> subprocess.Popen[bytes]:
        with (self.root / f"{unit}{instance}.log").open("ab") as log:
            process = subprocess.Popen(
                self.command(unit, instance, **told), stdin=subprocess.DEVNULL, stdout=log,
                stderr=log, env={**os.environ, "PYTHONPATH": str(ROOT)},
            )  # fmt: skip
        self.running.append(process)
        return process

    def kill(self) -> None:
        for process in self.running:
            process.kill()
            process.wait()


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    for name in ("srv/secure-fgl", "run/secure-fgl", "srv/secure-fgl-carrier"):
        (tmp_path / name).mkdir(parents=True)
    made = Machine(tmp_path)
    yield made
    made.kill()


def laid_out(machine: Machine) -> tuple[Parties, int]:
    """Five parties that agreed on a run, in the units' folders, and the broker's configuration."""
    port, broker = free_port(), machine.root / "srv" / "broker"
    meeting = Broker((f"tls://localhost:{port}",), new_root(broker), 60)
    parties = assemble(banks(), machine.root / "srv" / "secure-fgl", broker=meeting)
    write_config([parties.charter], broker, listen=f"localhost:{port}")
    return parties, port


def test_the_units_commands_carry_a_run(machine: Machine) -> None:
    """A broker, four sites in one unit each and one in two, stopped and started as systemd does."""
    parties, port = laid_out(machine)
    server = machine.start(BROKER)
    for _ in range(200):
        with contextlib.suppress(OSError), socket.create_connection(("localhost", port), 1):
            break
        time.sleep(0.05)
    subprocess.run(machine.command(BROKER, "", "ExecReload", MAINPID=str(server.pid)), check=True)
    apart, *others = parties.others
    carrier = machine.root / "srv" / "secure-fgl-carrier" / apart
    shutil.move(parties.folders[apart] / "carrier", carrier)
    (machine.root / "run" / "secure-fgl" / apart).mkdir(mode=0o700)  # 0750 for another user
    ones = {name: machine.start(SITE, name) for name in others}
    ones[apart] = machine.start(PARTY, apart)
    carries = machine.start(CARRIER, apart, RUN=parties.charter.run)
    stopped = ones.pop(others[0])
    until(lambda: b"The site is up" in (machine.root / f"{SITE}{others[0]}.log").read_bytes())
    stopped.terminate()  # as `systemctl stop`: the run can go on
    assert stopped.wait(60) == 0 and server.poll() is None
    ones[others[0]] = machine.start(SITE, others[0])
    ones[AGGREGATOR_NAME] = machine.start(SITE, AGGREGATOR_NAME)
    for name, process in ones.items():
        logs = [path.read_text("utf-8") for path in machine.root.glob(f"*{name}.log")]
        assert process.wait(180) == 0, "".join(logs)
    assert parties.result()["lost_rounds"] == [] and parties.result()["clients"] == 5
    assert carries.poll() is None  # it serves until its unit is stopped
    for process in (carries, server):
        process.terminate()
        assert process.wait(30) == 0
    subprocess.run(machine.command(SWEEP, apart), check=True)


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.1)
