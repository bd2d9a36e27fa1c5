"""Why party and engine are two users: what NVFlare's process does for whoever asks it.

And what is refused therefore: to start beside an engine of the same user, to run a job in an engine
that listens in clear. And the memory of processes that hold keys.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("nvflare", reason="the extra nvflare is not installed")

from nvflare.apis.fl_context import FLContext
from nvflare.fuel.f3.cellnet.core_cell import Message as CellMessage
from nvflare.fuel.sec.audit import AuditService
from nvflare.fuel.sec.authz import AuthorizationService
from nvflare.private.admin_defs import Message
from nvflare.private.defs import RequestHeader, SysCommandTopic
from nvflare.private.fed.client.admin import FedAdminAgent
from nvflare.private.fed.client.shell_cmd import ShellCommandProcessor
from nvflare.security.security import FLAuthorizer

from audits.report import summary
from protocols.wire.roles import Role
from secure_fgl.charters.identity_file import load_identity, new_identity
from secure_fgl.charters.party import PartyKit
from secure_fgl.cli.run import _announce
from secure_fgl.config import TransportConfig
from secure_fgl.doctor import machine
from secure_fgl.errors import UsageError
from secure_fgl.federation import Federation
from secure_fgl.isolation import kernel
from secure_fgl.sites.checks.lines import Status, Subject, look, utc
from secure_fgl.transports.nvflare import kits
from secure_fgl.transports.nvflare.checks import isolation
from secure_fgl.transports.nvflare.checks.kit_files import KitFiles
from secure_fgl.transports.nvflare.controller import Conductor
from secure_fgl.transports.nvflare.engine.listener import (
    CLEAR_READS,
    OTHERS_READ,
    check_listener,
)
from secure_fgl.transports.nvflare.executor import Seat
from secure_fgl.transports.nvflare.keys import identity_file
from secure_fgl.transports.nvflare.site import session, supervisor
from tests.sites.processes import until
from tests.sites.stage import Parties, assemble, banks
from tests.secure_fgl.cli_tools import invoke

PARTY, ENGINE = 61_500, 61_501
RUN = "0" * 32
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes two users")


# --- the attack -------------------------------------------------------------------------------


class Nowhere:
    """A cell, and a context, as far as NVFlare's dispatch asks for them."""

    def register_request_cb(self, **_: object) -> None:
        """Nothing comes by a network here."""

    def fire_event(self, *_: object) -> None:
        """No component listens."""

    @contextlib.contextmanager
    def new_context(self) -> Iterator[FLContext]:
        yield FLContext()


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FedAdminAgent:
    """NVFlare's own dispatch of a client, with the rights of a kit that was narrowed."""
    kit = kits.provision(tmp_path / "kits", ["site-1"], port=kits.free_port()).sites["site-1"]
    monkeypatch.setattr(AuditService, "the_auditor", None)
    monkeypatch.setattr(AuthorizationService, "the_authorizer", None)
    AuditService.initialize(str(tmp_path / "audit.log"))
    rights = json.loads((kit / "local" / "authorization.json").read_text())
    AuthorizationService.initialize(FLAuthorizer("secure_fgl", rights))
    found = FedAdminAgent("site-1", Nowhere(), Nowhere())
    found.register_processor(ShellCommandProcessor())
    return found


def asked(agent: FedAdminAgent, file: Path, **headers: str) -> str:
    """Return what NVFlare's process says to a message that asks for a file."""
    asks = Message(topic=SysCommandTopic.SHELL, body=f"cat {file}")
    for name, value in headers.items():
        asks.set_header(getattr(RequestHeader, name), value)
    return str(agent._dispatch_request(CellMessage({}, asks)).payload.body)


def test_nvflare_reads_a_file_for_whoever_does_not_ask_for_rights(
    agent: FedAdminAgent, tmp_path: Path
) -> None:
    """The kit says `shell_commands: none`, which is looked at where the message asks for that."""
    new_identity(tmp_path / "party", "key-authority", Role.KEY_AUTHORITY)
    file = tmp_path / "party" / "identity.json"
    seed = file.read_text()
    told = {"ADMIN_COMMAND": "shell_commands", "REQUIRE_AUTHZ": "true", "USER_ROLE": "lead"}
    more = {"USER_NAME": "site-2", "USER_ORG": "secure_fgl"}
    # The control: rights are looked at, and there is none.
    assert (
        asked(agent, file, **told, **more) == "user 'site-2' is not authorized for 'shell_commands'"
    )
    assert seed in asked(agent, file)  # whoever leaves the header out has the seed of all keys


@as_root
def test_it_reads_nothing_of_another_user_s(agent: FedAdminAgent) -> None:
    base = Path(tempfile.mkdtemp(prefix="secure-fgl-engine-"))  # others reach pytest's own not
    base.chmod(0o711)
    try:
        new_identity(base / "party", "key-authority", Role.KEY_AUTHORITY)
        file, agent.auditor = base / "party" / "identity.json", None
        seed = file.read_text()
        for path in (file, file.parent):
            os.chown(path, PARTY, PARTY)
        reads = {
            user: as_user(user, lambda: int(seed in asked(agent, file))) for user in (PARTY, ENGINE)
        }
    finally:
        shutil.rmtree(base)
    assert reads == {PARTY: 1, ENGINE: 0}  # of one user: read; the control, of another: not


def as_user(uid: int, act: Callable[[], int]) -> int:
    """Return what `act` returns in a child that is another user."""
    child = os.fork()
    if child == 0:
        code = 99
        with contextlib.suppress(BaseException):
            os.setgroups([])
            os.setgid(uid)
            os.setuid(uid)
            code = act()
        os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


# --- one user ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Parties:
    return assemble(banks(policy="he"), tmp_path_factory.mktemp("apart") / "parties")


def test_nothing_starts_and_checks_fail_where_party_and_engine_are_one_user(
    made: Parties, tmp_path: Path
) -> None:
    party = made.folders["site-6"]
    (kit := tmp_path / "kit").mkdir()
    words = ("site", "start", party, "--kit", kit, "--socket", tmp_path / "socket")
    refused = invoke(*words)
    assert refused.exit_code == 2 and OTHERS_READ in " ".join(refused.stderr.split())
    assert invoke("site", "start", party).exit_code == 2  # whose the engine is must be said
    line = look("apart", isolation.apart, Subject(party, None, kit, utc()))
    assert line.status is Status.FAIL and line.code == 2 and OTHERS_READ in line.said
    assert "a user of its own" in line.todo


def test_one_user_s_engine_is_refused_and_another_s_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(isolation, "_owner", {tmp_path: ENGINE, Path("/"): 0}.__getitem__)
    assert isolation.check_two_users(PARTY, tmp_path) == ENGINE  # the control
    with pytest.raises(UsageError, match="of one user"):
        isolation.check_two_users(ENGINE, tmp_path)
    for party in (PARTY, 0):
        with pytest.raises(UsageError, match=OTHERS_READ):
            isolation.check_two_users(party, Path("/"))  # of root's


@as_root
def test_the_engine_s_user_alone_is_answered(
    made: Parties, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An engine that was started as the party's user all the same is not."""
    (kit := tmp_path / "kit").mkdir()
    os.chown(kit, ENGINE, ENGINE)
    given: dict[str, object] = {}
    monkeypatch.setattr(isolation, "_engines", list)  # what else runs on this machine
    monkeypatch.setattr(supervisor, "start", lambda party, **more: given.update(more) or 0)
    words = ("site", "start", made.folders["site-6"], "--kit", kit)
    any_folder = invoke(*words, "--socket", tmp_path / "socket")
    assert any_folder.exit_code == 2 and "is no start-up kit" in any_folder.stderr and not given
    (kit / "startup").mkdir()
    (kit / "startup" / "fed_client.json").write_text("{}")
    assert "--socket" in invoke(*words).stderr and not given
    assert invoke(*words, "--socket", tmp_path / "socket").exit_code == 0
    assert given["users"] == [ENGINE]


@as_root
def test_nothing_starts_beside_an_engine_of_its_own_user(
    made: Parties, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever folder --kit names: an engine of this user reads this user's files."""
    (tmp_path / "kit" / "startup").mkdir(parents=True)
    (tmp_path / "kit" / "startup" / "fed_client.json").write_text("{}")
    os.chown(tmp_path / "kit", ENGINE, ENGINE)
    begun: list[object] = []
    monkeypatch.setattr(supervisor, "start", lambda party, **more: begun.append(party) or 0)
    words = ("site", "start", made.folders["site-6"], "--kit", tmp_path / "kit", "--socket", "s")
    line = [sys.executable, "-m", f"{isolation._ENGINE}client.client_train"]
    for user, code in ((ENGINE, 0), (os.geteuid(), 2)):
        monkeypatch.setattr(isolation, "_engines", lambda u=user: iter([(77, u, line)]))
        found = invoke(*words)
        assert found.exit_code == code and len(begun) == 1
    assert "NVFlare's process 77 runs as this user" in " ".join(found.stderr.split())


def test_a_kit_that_is_closed_to_the_party_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UsageError, match="is no start-up kit"):
        isolation.check_kit(tmp_path)  # the control

    def closed(folder: Path) -> None:
        raise UsageError(f"{folder} cannot be reached.") from PermissionError()

    monkeypatch.setattr(isolation.KitFiles, "open", closed)
    isolation.check_kit(tmp_path)


def test_a_session_that_answers_its_own_user_says_that_nothing_is_separated(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Also where somebody starts it by hand, without supervisor and kit."""
    for user, told in ((os.geteuid(), True), (ENGINE, False)):
        subprocess.run(
            [sys.executable, "-m", session.__name__, tmp_path, "run", tmp_path / "s", str(user)],
            check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        assert (supervisor.NOT_SEPARATED in capfd.readouterr().err) is told


def test_a_rehearsal_says_that_nothing_is_separated(
    made: Parties, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert supervisor.main([str(tmp_path)]) == 2  # no party's folder
    said = capfd.readouterr().err.splitlines()
    assert said[0] == supervisor.NOT_SEPARATED and OTHERS_READ in said[0]
    assert "is not a party's folder" in said[1]


def test_the_first_lines_of_a_rehearsal_and_its_report_say_so(
    capfd: pytest.CaptureFixture[str],
) -> None:
    for name, word in (("memory", "SIMULATION"), ("nvflare", "REHEARSAL")):
        config = banks(policy="he")
        config = config.model_copy(update={"transport": TransportConfig(name=name)})
        federation = Federation(config=config)
        _announce(federation.plan(), federation, None, table=False)
        first, second = capfd.readouterr().err.splitlines()[:2]
        assert first.startswith(f"{word}: ")
        assert (second == supervisor.NOT_SEPARATED) is (name == "nvflare")
    assert "parties and engine ran as one user" in summary.REHEARSAL


# --- a listener in clear ----------------------------------------------------------------------


def test_a_kit_whose_engine_would_listen_in_clear_is_found_and_narrowed(tmp_path: Path) -> None:
    kit = kits.provision(tmp_path / "kits", ["site-1"], port=kits.free_port()).sites["site-1"]
    file = kit / "local" / kits.COMMUNICATION_FILE
    assert KitFiles.open(kit).lacking() == []  # the control
    ours = file.read_text()
    for other in (
        "{}",
        '{"internal": {"scheme": "tcp", "resources": {"host": "localhost"}}}',
        '{"internal": {"scheme": "tcp", "resources": {"connection_security": "clear"}}}',
        '{"internal": {"scheme": "tcp", "resources": {"connection_security": "tls"}}}',
        '{"internal": 5}',
        ours.replace("{", '{"allow_adhoc_conns": true,', 1),
    ):
        file.write_text(other)
        (wrong,) = KitFiles.open(kit).lacking()
        assert CLEAR_READS in wrong
    for other in (
        '{"internal": {"scheme": "grpc", "resources": {"host": "pod"}}}',
        '{"internal": 5}',
    ):
        file.write_text(other)
        kits.harden(kit)
        assert KitFiles.open(kit).lacking() == []
        told = json.loads(file.read_text())["internal"]
        assert ("pod" in other) is (told["scheme"] == "grpc" and told["resources"]["host"] == "pod")


@pytest.mark.parametrize("make", [lambda: Seat(RUN), lambda: Conductor(RUN)])
def test_a_job_in_an_engine_that_listens_in_clear_fails(
    make: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    for told in ("clear", "tls", ""):
        monkeypatch.setattr(sys, "argv", ["job", "--parent_conn_sec", told])
        with pytest.raises(UsageError, match="listens in clear"):
            make()
    monkeypatch.setattr(sys, "argv", ["job", "--parent_conn_sec"])
    with pytest.raises(UsageError):
        make()
    monkeypatch.setattr(sys, "argv", ["job", "--parent_conn_sec", "mtls"])
    make()  # the control


def test_the_doctor_finds_an_engine_of_this_user_and_one_in_clear(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def found(*engines: tuple[int, int, list[str]]) -> tuple[Status, str]:
        monkeypatch.setattr(isolation, "_engines", lambda: iter(engines))
        (line,) = [line for line in machine.examine(tmp_path) if line.name == "engine"]
        return line.status, line.said

    other = os.geteuid() + 1
    status, said = found((7, os.geteuid(), ["python"]))
    assert status is Status.FAIL and OTHERS_READ in said
    status, said = found((7, other, ["python", "--parent_conn_sec", "clear"]))
    assert status is Status.FAIL and CLEAR_READS in said
    assert found((7, other, ["python", "--parent_conn_sec", "mtls"]))[0] is Status.OK
    assert found()[0] is Status.OK  # the control
    check_listener(["no", "job"])


def test_engines_are_seen_and_a_rehearsal_s_are_not() -> None:
    def shown(*words: str) -> bool:
        child = os.fork()
        if child == 0:
            code = "import time; time.sleep(60)"
            os.execv(sys.executable, [sys.executable, "-c", code, *words])
        try:
            until(lambda: words[-1].encode() in Path(f"/proc/{child}/cmdline").read_bytes())
            return child in {number for number, _, _ in isolation._engines()}
        finally:
            os.kill(child, 9)
            os.waitpid(child, 0)

    module = "nvflare.private.fed.app.client.client_train"
    assert shown(module, "-m", "/srv/nvflare/north")
    assert not shown(module, "-m", "/tmp/x.parties/kits/secure_fgl/prod_00/client-1")
    assert not shown("another", "program")


# --- memory -----------------------------------------------------------------------------------

_SEIZE = 0x4206  # of ptrace
_READS, _ATTACHES, _DUMPS = 1, 2, 4


def reached(folder: Path) -> int:
    """Load a party's keys in a process; return what another one of the same user can do to it."""
    ready, loaded = os.pipe()
    victim = os.fork()
    if victim == 0:
        with contextlib.suppress(BaseException):
            kernel._closed.clear()
            kernel.set_traceable(True)  # as every program that was just started is
            load_identity(folder)
            core = resource.getrlimit(resource.RLIMIT_CORE)[0]
            os.write(loaded, b"0" if core == 0 else b"1")
            os.read(os.pipe()[0], 1)
        os._exit(1)
    os.close(loaded)
    found = {b"0": 0, b"1": _DUMPS}[os.read(ready, 1)]
    with contextlib.suppress(OSError), open(f"/proc/{victim}/mem", "rb", buffering=0):
        found |= _READS
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
    found |= _ATTACHES if libc.ptrace(_SEIZE, victim, None, None) == 0 else 0
    os.kill(victim, 9)
    os.waitpid(victim, 0)
    return found


@as_root
@pytest.mark.parametrize("role", list(Role))
def test_who_holds_keys_is_closed_to_its_user_s_other_processes(
    role: Role, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the role. Root, which may do all of it, becomes another user for this."""
    base = Path(tempfile.mkdtemp(prefix="secure-fgl-memory-"))
    try:
        base.chmod(0o711)
        new_identity(base / "party", "one", role)
        for path in (base / "party", base / "party" / "identity.json"):
            os.chown(path, PARTY, PARTY)
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
        assert as_user(PARTY, lambda: reached(base / "party")) == 0
        monkeypatch.setattr(identity_file, "close_memory", lambda: None)
        open_ = as_user(PARTY, lambda: reached(base / "party"))
        assert open_ & (_READS | _ATTACHES) == _READS | _ATTACHES  # the control
    finally:
        shutil.rmtree(base)


@pytest.mark.parametrize("holds_keys", [True, False])
def test_no_sandbox_that_ends_opens_the_memory_of_who_holds_keys(holds_keys: bool) -> None:
    """One that began before the keys were read puts back what held then; the control has none."""
    child = os.fork()
    if child == 0:
        kernel._closed.clear()
        kernel.set_traceable(True)
        before = kernel.set_traceable(False)  # a sandbox begins
        if holds_keys:
            kernel.close_memory()
        kernel.set_traceable(before)  # and ends
        os._exit(kernel._prctl(kernel._PR_GET_DUMPABLE))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == int(not holds_keys)


def test_core_dumps_are_refused_for_good() -> None:
    def limits() -> int:
        kernel.close_memory()
        return int(resource.getrlimit(resource.RLIMIT_CORE) != (0, 0))

    child = os.fork()
    if child == 0:
        os._exit(limits())
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_kernel_that_refuses_lets_no_key_in(
    made: Parties, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(allowed: bool) -> bool:
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(kernel, "set_traceable", refuses)
    if sys.platform == "linux":
        with pytest.raises(UsageError, match="cannot close its memory"):
            PartyKit.load(made.folders["site-6"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(machine.sys, "platform", "darwin")
        assert look("memory", machine._memory, tmp_path).status is Status.NOT_CHECKED
        load_identity(made.folders["site-6"])  # no prctl there: only core dumps are refused
