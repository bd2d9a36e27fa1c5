"""``secure-fgl site start`` and ``site stop`` as real processes, without an engine in between.

The party is a key authority: it holds a key, and needs no data.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

pytest.importorskip("nvflare", reason="the extra nvflare is not installed")

from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.signal import Signal

from secure_fgl.sites.checks.lines import Status, Subject, look, utc
from secure_fgl.sites.process import open_process
from secure_fgl.store.finished_run import Run
from secure_fgl.store.sides.places import place_of
from secure_fgl.transports.broker import channel, supervisor
from secure_fgl.transports.nvflare import wire
from secure_fgl.transports.nvflare.checks import listed
from secure_fgl.transports.nvflare.executor import Seat
from tests.sites.processes import ROOT, children, until
from tests.sites.stage import SERVER_SITE, Parties, assemble, banks, side
from tests.secure_fgl.cli_tools import invoke

AUTHORITY = "site-6"
MODULE = supervisor.__name__


ALONE = ("unshare", "--net", "--user", "--map-root-user", "--")
"""Namespaces of its own: no network, and over files of other users no more than any user has."""
_NET, _USER = 0x40000000, 0x10000000
STRANGER = 61_300  # the user of the kit


def lonely() -> bool:
    """Tell whether this machine lets a process have such namespaces, and files another owner."""
    if shutil.which(ALONE[0]) is None or os.geteuid() != 0:
        return False
    return subprocess.run([*ALONE, "true"], check=False, timeout=30).returncode == 0


@dataclass
class Site:
    """A party's own process; who asks it is of the same user, as in a rehearsal."""

    folder: Path
    kit: Path
    started: list[subprocess.Popen[bytes]] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)

    def start(self, *more: str, alone: bool = False) -> subprocess.Popen[bytes]:
        """Start it; `alone`: in namespaces of its own."""
        command = [sys.executable, "-m", MODULE, str(self.folder), *more]
        if alone:
            command = [*ALONE, *command]
        with (self.folder / "process.log").open("ab") as log:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/",
                env={**os.environ, "PYTHONPATH": str(ROOT), **self.environment},
                start_new_session=True,
            )  # fmt: skip
        self.started.append(process)
        return process

    def refusal(self) -> str:
        """Start it where that is refused; return what it says."""
        done = subprocess.run(
            [sys.executable, "-m", MODULE, str(self.folder)], capture_output=True, text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)}, timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == 2
        return done.stderr

    def session(self) -> int:
        (found,) = children(self.started[-1].pid, "nvflare.site.session")
        return found

    def listens(self) -> bool:
        try:
            channel.connect(
                channel.of_run(self.folder / "socket", place_of(self.folder).name)
            ).close()
        except channel.Broken:
            return False
        return True


@pytest.fixture
def made(tmp_path: Path) -> Parties:
    return assemble(banks(policy="he"), tmp_path / "parties")


@contextlib.contextmanager
def process_of(folder: Path, kit: Path) -> Iterator[Site]:
    """Yield a party's own process, to be started, which the relay of this process reaches."""
    kit.mkdir(mode=0o700)
    (kit / "client.key").write_text("the engine's own")
    found = Site(folder, kit)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(channel.SOCKET_VARIABLE, str(folder / "socket"))
        try:
            yield found
        finally:
            for process in found.started:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()


@pytest.fixture
def site(made: Parties, tmp_path: Path) -> Iterator[Site]:
    with process_of(made.folders[AUTHORITY], tmp_path / "kit") as found:
        yield found


def ask(data: bytes) -> tuple[str, list[bytes]]:
    """Hand one envelope to the relay; return its code and the answers."""
    run = place_of(Path(os.environ[channel.SOCKET_VARIABLE]).parent).name
    sent = wire.request("once", [data], seconds=60.0, hold=60.0)
    said = Seat(run).execute(wire.TASK, sent, FLContext(), Signal())
    code = str(said.get_return_code(ReturnCode.OK))
    return code, wire.unpack(said) if code == ReturnCode.OK else []


def first_call(made: Parties) -> bytes:
    """Return what the aggregator asks the authority first: a key of this epoch."""
    office = open_process(made.kit(SERVER_SITE))
    (call,) = office.session.start()  # type: ignore[attr-defined]
    office.files.close()
    found: bytes = call.data
    return found


def signed(site: Site, *, keyed: bool = True) -> bool:
    """Tell whether its ledger ends where its signed head says.

    It can go on: of a party that holds a key to sums, that key is there and it says so (O9).
    """
    steps = {step.name: step for step in Run(site.folder).verify().steps}
    assert ("not destroyed" in steps["keys"].detail) is keyed
    return "1 signed head covers exactly these entries" in steps["tree"].detail


def test_a_site_is_killed_stopped_and_goes_on(made: Parties, site: Site) -> None:
    call, head = first_call(made), side(site.folder) / "heads" / "key-authority.checkpoint"
    assert ask(call) == (ReturnCode.EARLY_TERMINATION, [])  # nothing was started
    parent = site.start()
    until(site.listens)
    limits = Path(f"/proc/{site.session()}/limits").read_text().splitlines()
    assert [line.split()[4:6] for line in limits if "core" in line] == [["0", "0"]]
    assert ask(b"no envelope") == (ReturnCode.BAD_TASK_DATA, [])
    code, first = ask(call)
    assert code == ReturnCode.OK and len(first) == 1
    assert "started already" in site.refusal()

    os.kill(site.session(), signal.SIGKILL)
    until(lambda: not site.listens())
    assert ask(call) == (ReturnCode.SERVICE_UNAVAILABLE, [])  # at once, for a crash
    until(site.listens)
    assert ask(call) == (ReturnCode.OK, first)  # the very answer: it was taken up again
    assert not head.exists()

    os.kill(parent.pid, signal.SIGSTOP)  # it hangs: the operator's word holds all the same
    assert invoke("site", "stop", str(site.folder), "--patience", "0").exit_code == 2
    assert ask(call)[1] == []
    os.kill(parent.pid, signal.SIGCONT)
    assert invoke("site", "stop", str(site.folder)).exit_code == 0
    assert parent.wait(30) == 0
    assert ask(call) == (ReturnCode.EARLY_TERMINATION, [])
    assert signed(site)
    assert "--again" in site.refusal()

    again = site.start("--again")
    until(site.listens)
    assert ask(call) == (ReturnCode.OK, first)
    assert not head.exists()  # it covers no ledger that goes on
    os.kill(again.pid, signal.SIGTERM)  # a reboot is no stop
    assert again.wait(30) == 0
    assert ask(call) == (ReturnCode.SERVICE_UNAVAILABLE, []) and not head.exists()
    assert invoke("site", "stop", str(site.folder)).exit_code == 0  # who died before signs now
    assert ask(call) == (ReturnCode.EARLY_TERMINATION, [])
    assert signed(site)


def within(session: int | None, act: Callable[[], int]) -> int:
    """Return what `act` returns in a child, in a session's namespaces or, with None, in ours."""
    there = [] if session is None else [("user", _USER), ("net", _NET)]
    held = [(os.open(f"/proc/{session}/ns/{name}", os.O_RDONLY), kind) for name, kind in there]
    child = os.fork()
    if child == 0:
        code = 200
        try:
            libc = ctypes.CDLL(None, use_errno=True)
            entered = all(libc.setns(handle, kind) == 0 for handle, kind in held)
            code = act() if entered else 201
        except OSError as error:
            code = error.errno or 202
        finally:
            os._exit(code)
    for handle, _ in held:
        os.close(handle)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@contextlib.contextmanager
def tries(key: Path) -> Iterator[tuple[Callable[[], int], Callable[[], int]]]:
    """Yield two raw tries, which return the kernel's error: to reach a server, and to read a key.

    The server is one of this machine's, and the key gets another owner.
    """
    for path in (key, key.parent):
        os.chown(path, STRANGER, STRANGER)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1].to_bytes(2, "big")
        address = b"\x02\x00" + port + socket.inet_aton("127.0.0.1") + bytes(8)

        def connects() -> int:
            libc = ctypes.CDLL(None, use_errno=True)
            made = libc.socket(socket.AF_INET, socket.SOCK_STREAM, 0)
            return 0 if libc.connect(made, address, len(address)) == 0 else ctypes.get_errno()

        def reads() -> int:
            return int(not key.read_bytes())

        yield connects, reads


def unreachable(process: int, connects: Callable[[], int], reads: Callable[[], int]) -> None:
    """See that what a process could start reaches neither, and that this process reaches both."""
    assert os.readlink("/proc/self/ns/net") != os.readlink(f"/proc/{process}/ns/net")
    devices = Path(f"/proc/{process}/net/dev").read_text().splitlines()[2:]
    assert [line.split(":")[0].strip() for line in devices] == ["lo"]
    assert within(process, connects) == errno.ENETUNREACH
    assert within(None, connects) == 0  # the control
    assert within(process, reads) == errno.EACCES
    assert within(None, reads) == 0  # the control


NAMESPACES = pytest.mark.skipif(
    not lonely(), reason="this machine gives no namespaces, or files no other owner"
)


@NAMESPACES
def test_t4_a_party_needs_no_network_and_cannot_read_the_kit(made: Parties, site: Site) -> None:
    """What the kernel refuses it, and every process that it could start, is tried by raw calls."""
    call = first_call(made)
    with tries(site.kit / "client.key") as raw:
        site.start("--socket", str(site.folder / "socket"), alone=True)
        until(site.listens)
        assert ask(call)[0] == ReturnCode.OK
        unreachable(site.session(), *raw)
    told = look("network", listed.ALONE["network"], Subject(site.folder, None, None, utc()))
    assert told.status is Status.OK and str(site.started[-1].pid) in told.said  # and so it is told
