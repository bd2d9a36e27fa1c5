"""What `deploy/` says: linted as far as this machine allows, and held to programs that it names.

Nothing is built or started here; deploy/README.md says what was.
"""

from __future__ import annotations

import copy
import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from scripts.house_rules import FLOORS
from secure_fgl.data import ROOT_VARIABLE
from secure_fgl.store import budgets, state_store
from secure_fgl.transports.nvflare.checks import isolation
from tests.secure_fgl.cli_tools import invoke

ROOT = Path(__file__).resolve().parent.parent
DEPLOY = ROOT / "deploy"
COMPOSE = ("rehearsal.yaml", "site.yaml")
IMAGES = {"Dockerfile": "10001:10000", "Dockerfile.cpu": "10001:10001"}
"""Each image, and as whom its program runs."""
UNITS = sorted(path.name for path in (DEPLOY / "systemd").glob("*.service"))
PARTY, SWEEP = "secure-fgl-site@.service", "secure-fgl-sweep@.service"
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
        "privileged": not {"privileged", "devices", "pid", "ipc", "ports"} & {*service},
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
    site = composed("site.yaml")["services"]
    assert site["party"]["network_mode"] == "none" and "network_mode" not in site["engine"]
    mounted = {name: " ".join(service["volumes"]) for name, service in site.items()}
    for own in ("PARTY", "DATA", "BUDGETS"):
        assert own in mounted["party"] and own not in mounted["engine"]
    assert "secrets" not in site["engine"] and site["party"]["user"] != site["engine"]["user"]
    assert "/kit:ro" in mounted["party"]
    where = site["engine"]["environment"]["SECURE_FGL_SOCKET"]
    assert site["party"]["command"][-2:] == ["--socket", where]


def test_commands_of_containers_are_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each option is there: a program that does not know one says so before anything else."""
    monkeypatch.setattr(isolation, "check_two_users", lambda party, kit: party + 1)
    monkeypatch.setattr(isolation, "_engines", list)  # other tests have some at work
    kit_in(tmp_path)
    site, rehearsal = composed("site.yaml")["services"], composed("rehearsal.yaml")["services"]
    party = [word.replace("/party", f"{tmp_path}/party") for word in site["party"]["command"]]
    party = [word.replace("/kit", str(tmp_path)) for word in party]
    found = invoke(*party)
    assert found.exit_code == 2 and "is not a party's folder" in found.stderr
    assert "No such option" in invoke(*party, "--sockets", "x").stderr  # the control
    command = rehearsal["rehearsal"]["command"]
    found = invoke(
        *[w.replace("/pilot/", f"{tmp_path}/").replace("/runs/", f"{tmp_path}/") for w in command]
    )
    assert found.exit_code == 2 and "config.yaml" in found.stderr
    assert engine_takes(site["engine"]["command"]) == "client"


def kit_in(folder: Path) -> None:
    (folder / "startup").mkdir()
    (folder / "startup" / "fed_client.json").write_text("{}")


def engine_takes(words: list[str]) -> str:
    """Let NVFlare read its own options; return whether they are a client's or a server's."""
    pytest.importorskip("nvflare", reason="the extra nvflare is not installed")
    from importlib import import_module

    module = next(word for word in words if word.startswith("nvflare."))
    found = import_module(module)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", [module, *words[words.index(module) + 1 :]])
        given = found.parse_arguments()
    assert {"secure_train=true", "config_folder=config"} <= {*given.set}
    kind = "server" if "server_train" in module else "client"
    assert getattr(given, f"fed_{kind}") == f"fed_{kind}.json"
    return kind


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


def test_the_page_hardens_the_kit_where_it_stays(tmp_path: Path) -> None:
    """A server's kit names its own place once it is hardened; the page says so, and it is so."""
    from secure_fgl.transports.nvflare.kits import harden

    (local := tmp_path / "kit" / "local").mkdir(parents=True)
    stored = {"args": {"storage": {"args": {"root_dir": "/tmp/nvflare/elsewhere"}}}}
    given = {"components": [], "snapshot_persistor": stored}
    (local / "resources.json.default").write_text(json.dumps(given), "utf-8")
    harden(tmp_path / "kit")
    assert str(tmp_path / "kit" / "state") in (local / "resources.json").read_text("utf-8")
    page = (DEPLOY / "README.md").read_text("utf-8")
    for folders in ("/srv/secure-fgl/SITE --kit /srv/nvflare/SITE", "/party --kit /kit"):
        assert f"site harden {folders}" in page


def test_root_s_check_on_the_page_is_of_the_unit_s_folders() -> None:
    """It has the variables of the party's unit, its folder and its kit; all options are ours."""
    page = (DEPLOY / "README.md").read_text("utf-8")
    (line,) = re.findall(r"^SECURE_FGL_DATA=.*site check.*$", page, flags=re.M)
    words = shlex.split(line.replace("SITE", "%i"))
    given = dict(word.split("=", 1) for word in words if word.startswith("SECURE_FGL_"))
    party = settings(PARTY)
    told = dict(text.split("=", 1) for text in party["Environment"])
    assert given == {name: told[name] for name in (ROOT_VARIABLE, budgets.VARIABLE)}
    command, start = words[len(given) :], shlex.split(party["ExecStart"][0])
    assert command == ["secure-fgl", "site", "check", *start[3:6]]
    assert page.index("site harden /srv/secure-fgl/SITE") < page.index(line)
    assert "No such option" not in invoke(*command[1:]).output
    assert "No such option" in invoke(*command[1:], "--kits", "x").output  # the control


def test_the_page_makes_the_folder_of_credentials_first() -> None:
    """Debian 12 has no /etc/credstore.encrypted, and systemd-creds does not make it."""
    page = (DEPLOY / "README.md").read_text("utf-8")
    assert 0 < page.find("install -d -m 0700 /etc/credstore.") < page.find("systemd-creds encrypt")
    (where,) = {settings(name)["LoadCredentialEncrypted"][0] for name in (PARTY, SWEEP)}
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


def test_the_party_s_unit_has_no_network_and_a_user_of_its_own() -> None:
    party = settings(PARTY)
    assert party["PrivateNetwork"] == ["yes"] and party["RestrictAddressFamilies"] == ["AF_UNIX"]
    assert party["LoadCredentialEncrypted"][0].startswith("secure-fgl-passphrase:")
    assert "landlock_restrict_self" in party["SystemCallFilter"][0]
    # With these the kernel would not say who calls, or the supervisor not see that a session works.
    assert not {"PrivateUsers", "ProtectProc", "DynamicUser"} & {*party}
    engines = [settings(name) for name in UNITS if name not in (PARTY, SWEEP)]
    assert len(engines) == 2
    for engine in engines:
        assert engine["User"] != party["User"] and "PrivateNetwork" not in engine
        assert "LoadCredentialEncrypted" not in engine
        assert "/srv/secure-fgl " in engine["InaccessiblePaths"][0]
        assert engine["SupplementaryGroups"] == party["Group"]
    sweep = settings(SWEEP)
    for same in ("User", "Group", "UMask", "PrivateNetwork", "LoadCredentialEncrypted"):
        assert sweep[same] == party[same]
    assert sweep["ReadWritePaths"] == party["ReadWritePaths"] and "Restart" not in sweep
    assert "/srv/secure-fgl-data" in sweep["InaccessiblePaths"][0]  # it needs nobody's data
    for unit in (party, sweep, *engines):
        assert unit["CapabilityBoundingSet"] == [""] and unit["NoNewPrivileges"] == ["yes"]
        assert unit["ProtectSystem"] == ["strict"] and unit["User"][0] != "root"
    users = (DEPLOY / "systemd" / "secure-fgl.sysusers").read_text("utf-8")
    for name in ("u secure-fgl ", "u nvflare ", "g secure-fgl-socket "):
        assert f"\n{name}" in users


def starts_what_was_stopped(engine: dict[str, list[str]]) -> bool:
    """Tell whether NVFlare's unit pulls the party's in, which each restart of it does, too."""
    pulling = ("Wants", "Requires", "BindsTo", "Upholds", "Requisite", "PartOf")
    return any("secure-fgl-site@" in one for key in pulling for one in engine.get(key, ()))


def test_a_party_s_unit_that_was_stopped_stays_so_and_keeps_its_socket() -> None:
    for name in UNITS:
        if name not in (PARTY, SWEEP):
            engine = settings(name)
            assert not starts_what_was_stopped(engine)
            assert "secure-fgl-site@%i.service" in engine["After"][0]
            assert starts_what_was_stopped({**engine, "Wants": engine["After"]})  # the control
    # Without a socket the relay says `left`, and nobody waits for this site.
    assert settings(PARTY)["RuntimeDirectoryPreserve"] == ["yes"]


def test_engines_are_told_of_their_heaps_wherever_they_are_started() -> None:
    """As `kits.Processes` starts them: what is freed goes back to the machine."""
    from secure_fgl.transports.nvflare.engine.memory import MEMORY

    started = {
        name: dict(line.partition("=")[::2] for line in settings(name)["Environment"])
        for name in UNITS
    }
    started["container"] = composed("site.yaml")["services"]["engine"]["environment"]
    for name, told in started.items():
        engine = name not in (PARTY, SWEEP)
        assert {n: told[n] for n in MEMORY if n in told} == (MEMORY if engine else {}), name


def test_commands_of_units_are_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolation, "check_two_users", lambda party, kit: party + 1)
    monkeypatch.setattr(isolation, "_engines", list)  # other tests have some at work
    kit_in(tmp_path)
    for name in UNITS:
        (line,) = settings(name)["ExecStart"]
        _, *words = shlex.split(line.replace("%i", "north"))
        if name not in (PARTY, SWEEP):
            assert engine_takes(words) == ("server" if "server" in name else "client")
            continue
        found = invoke(*[w.replace("/srv/nvflare/north", str(tmp_path)) for w in words])
        assert found.exit_code == 2 and "No such option" not in found.stderr
        wanted = "is not a party's folder" if name == PARTY else "cannot be read"
        assert wanted in " ".join(found.stderr.split())
    codes = {int(code) for code in settings(PARTY)["RestartPreventExitStatus"][0].split()}
    from secure_fgl.sites.supervisor import _TOLD

    assert codes == {*_TOLD}
