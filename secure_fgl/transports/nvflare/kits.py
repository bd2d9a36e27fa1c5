"""Start-up kits with mutual TLS, hardened, and the processes of one federation on this machine.

``provision`` makes what each organisation would get from the project's administrator. ``harden``
then narrows it: only our two classes may be named by a job, no job brings code, no log of a site is
streamed away, no state lies where all users share it, the engine's own processes show each other
certificates, and messages go in pieces that keep memory flat. Between organisations each site's
operator runs `harden` on its own kit.

No setting closes NVFlare's channel for administrators: it looks at rights only where the message
asks for that. So any enrolled site and the server's operator can read what the engine's user can
read, and stop the engine. Therefore a party runs under another user than the engine (ADR 0087).
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from protocols.errors import EvidenceError
from secure_fgl.errors import UsageError
from secure_fgl.store.files import Folder
from secure_fgl.transports.nvflare.ending import end, held_back, kill
from secure_fgl.transports.nvflare.engine.listener import mutual
from secure_fgl.transports.nvflare.engine.memory import COMMUNICATION, COMMUNICATION_FILE, MEMORY
from secure_fgl.transports.nvflare.engine.stores import keep_below
from secure_fgl.transports.nvflare.site.channel import SOCKET, SOCKET_VARIABLE

_LIMIT = 1 << 20  # bytes of a kit's file
PROJECT = "secure_fgl"
SERVER = "localhost"
"""The server's name: NVFlare puts it into the certificate and dials it, so it must resolve."""
ADMIN = "admin@secure-fgl.local"
CLASSES = (
    "secure_fgl.transports.nvflare.controller.Conductor",
    "secure_fgl.transports.nvflare.executor.Seat",
)
"""All that a job may name, on every site: `class_allow_list` of NVFlare's own enforcement."""

RIGHTS = {
    "submit_job": "any", "manage_job": "any", "view": "any", "operate": "none",
    "clone_job": "none", "download_job": "none", "shell_commands": "none", "byoc": "none",
    "server-predeployed-flwr": "none",
}  # fmt: skip
"""What an administrator may do at a site, where a message asks NVFlare to look; what stands in no
list is denied then."""
NO_STREAMS = ("site_log_streamer", "log_receiver")
"""Components that a hardened kit has no more."""
_REHEARSED = "secure_fgl.transports.nvflare.site.supervisor"


@dataclass(frozen=True)
class Kits:
    """Provisioned kits, by the engine's name of the site.

    Attributes:
        folder: where all of them lie; they hold TLS keys, so it is closed to others.
        server, admin, sites: each participant's own folder.
    """

    folder: Path
    server: Path
    admin: Path
    sites: Mapping[str, Path]


def provision(folder: str | Path, sites: Sequence[str], *, port: int) -> Kits:
    """Make and harden the kits of a server, an administrator and `sites`.

    Args:
        folder: new; certificates and keys of everybody are made in it.
        sites: names of the client sites.
        port: the server's port on the loopback interface.

    Raises:
        UsageError: NVFlare is not installed, or the folder cannot be made.
    """
    place = Path(folder)
    try:
        place.mkdir(mode=0o700, parents=True)
    except OSError as error:
        raise UsageError(
            f"{place} cannot be made ({error.strerror}).", fix="name a folder that does not exist"
        ) from error
    _nvflare_provision(_project(sites, port), place)
    made = place / PROJECT / "prod_00"
    kits = Kits(place, made / SERVER, made / ADMIN, {name: made / name for name in sites})
    for kit in (kits.server, *kits.sites.values()):
        harden(kit)
    return kits


def harden(kit: Path) -> None:
    """Narrow one provisioned kit of a server or site; see the head of this file.

    How it sends stays where its operator wrote that down (`COMMUNICATION`), but for how it listens
    for its own processes (`mutual`). Root may do this in a folder that the kit's user can write
    to, so no link is followed.

    Raises:
        UsageError: it is not a kit as NVFlare 2.9 makes them, or what stands there on how it sends
            cannot be read.
    """
    folder = Folder(kit, mode=0o666)
    try:
        resources = json.loads(folder.read("local/resources.json.default", _LIMIT))
        components = resources["components"]
    except (OSError, ValueError, KeyError, EvidenceError) as error:
        raise UsageError(f"{kit} is not a provisioned kit of this version of NVFlare.") from error
    resources["class_list_enforcement_mode"] = "enforce"
    resources["class_allow_list"] = list(CLASSES)
    resources["allow_log_streaming"] = False
    resources["components"] = [c for c in components if c["id"] not in NO_STREAMS]
    keep_below(kit, resources)
    roles = ("project_admin", "org_admin", "lead")
    rights = {role: dict(RIGHTS) for role in roles}
    authorization = {"format_version": "1.0", "permissions": {**rights, "member": {"view": "any"}}}
    documents = {
        "resources.json": resources,
        "authorization.json": authorization,
        COMMUNICATION_FILE: _sending(folder),
    }
    for name, document in documents.items():
        folder.write(f"local/{name}", json.dumps(document, indent=2).encode())


def _sending(kit: Folder) -> dict[str, Any]:
    """Return how a kit is to send: what its operator wrote there, and ours for the rest."""
    name = f"local/{COMMUNICATION_FILE}"
    try:
        own = json.loads(kit.read(name, _LIMIT)) if kit.there(name) else {}
    except (OSError, ValueError, EvidenceError):
        own = None
    if not isinstance(own, dict):
        raise UsageError(
            f"{kit.path / name} cannot be read, or is not as NVFlare wants it.",
            why="somebody wrote down there how this kit sends, and a mistake is in it",
            fix="mend it, or take it away, then harden the kit again",
        )
    return mutual({**COMMUNICATION, **own})


def _project(sites: Sequence[str], port: int) -> dict[str, Any]:
    here = {"name": SERVER, "type": "server", "org": "secure_fgl", "fed_learn_port": port}
    admin = {"name": ADMIN, "type": "admin", "org": "secure_fgl", "role": "project_admin"}
    clients = [
        {"name": name, "type": "client", "org": "secure_fgl", "allow_log_streaming": False}
        for name in sites
    ]
    base = "nvflare.lighter.impl"
    builders: list[dict[str, Any]] = [
        {"path": f"{base}.workspace.WorkspaceBuilder", "args": {}},
        {"path": f"{base}.static_file.StaticFileBuilder", "args": {"scheme": "grpc"}},
        {"path": f"{base}.cert.CertBuilder", "args": {}},
        {"path": f"{base}.signature.SignatureBuilder", "args": {}},
    ]
    builders[0]["args"]["template_file"] = ["master_template.yml"]
    builders[1]["args"]["config_folder"] = "config"
    return {
        "api_version": 3,
        "name": PROJECT,
        "description": "Secure-FGL",
        "participants": [here, *clients, admin],
        "builders": builders,
    }


def _nvflare_provision(project: dict[str, Any], folder: Path) -> None:
    try:
        from nvflare.lighter.provision import provision as lighter
    except ImportError as error:
        raise UsageError(
            "NVFlare is not installed.", fix="pip install 'secure-fgl[nvflare]'"
        ) from error
    with contextlib.redirect_stdout(sys.stderr):  # it prints; our stdout is for machines
        lighter(SimpleNamespace(gen_scripts=False), project, "", str(folder))


def free_port() -> int:
    """Return a loopback port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@dataclass
class Processes:
    """A site's engine and its party's own process, each the leader of a process group of its own.

    All of them run as the user who rehearses, so nothing keeps the engine from a party's files.
    The engine's job runs in a child of its process, and so does a party's session, so stopping
    means ending whole groups.
    """

    kits: Kits
    parties: Mapping[str, Path]
    data_root: Path | None = None
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    at_parties: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def start(self, site: str) -> None:
        """Start the server (`SERVER`) or one site: its engine, and its party's own process.

        The engine is told where the party listens, and nothing else of it.
        """
        self.start_engine(site)
        self.start_party(site)

    def start_engine(self, site: str) -> None:
        """Start NVFlare's process at the server or a site."""
        kind = "server" if site == SERVER else "client"
        kit = self._kit(site)
        uid = [] if site == SERVER else [f"uid={site}"]
        module = f"nvflare.private.fed.app.{kind}.{kind}_train"
        command = [sys.executable, "-m", module, "-m", str(kit), "-s", f"fed_{kind}.json"]
        settings = ["secure_train=true", *uid, "org=secure_fgl", "config_folder=config"]
        environment = {
            **MEMORY,
            "OMP_NUM_THREADS": "1",
            SOCKET_VARIABLE: str(self.parties[site].absolute() / SOCKET),
            "SECURE_FGL_DATA": "",
        }
        (kit / "transfer").mkdir(exist_ok=True)
        whole = [*command, "--set", *settings]
        self.running[site] = _started(whole, environment, kit / "process.log", kit)

    def start_party(self, site: str, *more: str) -> None:
        """Start a party's own process for an engine of the same user, which `site start` refuses.

        Args:
            site: where the party is.
            more: of the command line, for example ``--again``.
        """
        party, environment = self.parties[site], {"OMP_NUM_THREADS": "1"}
        if self.data_root is not None:
            environment["SECURE_FGL_DATA"] = str(self.data_root)
        whole = [sys.executable, "-m", _REHEARSED, str(party), *more]
        self.at_parties[site] = _started(whole, environment, party / "process.log")

    def _kit(self, site: str) -> Path:
        return self.kits.server if site == SERVER else self.kits.sites[site]

    def kill(self, site: str) -> None:
        """End a site at once (SIGKILL), as a crash of its machine would."""
        pools = (self.running, self.at_parties)
        kill([pool.pop(site) for pool in pools if site in pool])

    def stop(self) -> None:
        """End everything that runs: politely first, then for good. Never raises for the dead."""
        end([*self.running.values(), *self.at_parties.values()])
        self.running.clear()
        self.at_parties.clear()


def _started(
    command: Sequence[str], environment: Mapping[str, str], log: Path, at: Path | None = None
) -> subprocess.Popen[bytes]:
    kept = {n: v for n, v in os.environ.items() if n != SOCKET_VARIABLE}
    with log.open("ab") as file:
        return subprocess.Popen(  # noqa: S603 - our own interpreter and module
            command,
            cwd=at, env={**kept, **environment}, stdin=subprocess.DEVNULL, stdout=file, stderr=file,
            start_new_session=True,
        )  # fmt: skip


@contextlib.contextmanager
def federation(
    kits: Kits, parties: Mapping[str, Path], *, data_root: Path | None = None
) -> Iterator[Processes]:
    """Start the server and all sites; end every one of them whatever happens.

    Args:
        kits: from :func:`provision`.
        parties: by site name, `SERVER` included, the party's folder.
        data_root: the data folder, the same for all sites of this machine.
    """
    processes = Processes(kits, parties, data_root)
    try:
        for site in (SERVER, *kits.sites):
            with held_back():
                processes.start(site)
        yield processes
    finally:
        with held_back():
            processes.stop()
