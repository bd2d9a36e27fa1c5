"""``site check`` where party and kit are of two users, who the kernel keeps from each other."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

pytest.importorskip("nvflare", reason="the extra nvflare is not installed")

from protocols.wire.roles import Role
from secure_fgl.charters.identity_file import new_identity
from secure_fgl.charters.passphrase import FILE_VARIABLE, from_file
from secure_fgl.data.own.spec import SPEC_FILE
from secure_fgl.errors import UsageError
from secure_fgl.isolation import network
from secure_fgl.sites.checks.lines import Check, Line, Status, Subject, look
from secure_fgl.sites.lock import at_work
from secure_fgl.store.sides.hand_overs import at_rest
from secure_fgl.store.sides.places import place_of
from secure_fgl.transports.nvflare import kits
from secure_fgl.transports.nvflare.checks import isolation, listed, users
from secure_fgl.transports.nvflare.site import leaving
from tests.sites import apart
from tests.sites.stage import assemble
from tests.sites.test_own_folders import NAMES, SPEC, own, tables
from tests.sites.test_site_check import NORTH, listening, port_of
from tests.sites.test_site_process import lonely
from tests.secure_fgl.cli_tools import invoke

PARTY, NVFLARE, STRANGER = apart.FIRST_UID, apart.FIRST_UID + 1, apart.FIRST_UID + 2
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files another owner")
NEW_NET = 0x40000000
NO_LINES = (b'["one", "OK", "", "", Infinity]', b"[" * 200_000)
KIT = ("kit", "in force", "sending", "certificate", *listed.ONLINE)


@dataclass
class House:
    """A machine as deploy/README.md lays it out: two users, each with a folder of its own."""

    base: Path
    server: Path

    @property
    def party(self) -> Path:
        return self.base / "party"

    @property
    def kit(self) -> Path:
        return self.base / "kit"

    def subject(self) -> Subject:
        return Subject(self.party, None, self.kit, listed.utc())

    def line(self, name: str) -> Line:
        """Look at one thing as `site check` does; all of them take a third of a second."""
        folder = self.kit if name in listed.AT_KIT else self.party
        if name in {**listed.BETWEEN, **listed.ALONE}:
            return look(name, listed.OFFLINE[name], self.subject())
        (found,) = users.look_as_owner({name: listed.OFFLINE[name]}, self.subject(), folder)
        return found

    def check(self, *more: str, uid: int = 0) -> dict[str, dict[str, str]]:
        code, found = self.checked(*more, uid=uid)
        failing = [name for name, line in found.items() if line["status"] == "FAIL"]
        assert bool(code) == bool(failing), (code, found)
        return found

    def checked(self, *more: str, uid: int = 0) -> tuple[int, dict[str, dict[str, str]]]:
        given = ("site", "check", str(self.party), "--kit", str(self.kit), "--format", "json")
        code, out = shown(uid, *given, *more)
        return code, {line["check"]: line for line in json.loads(out)["checks"]}


def shown(uid: int, *arguments: str) -> tuple[int, str]:
    """Run a command as a user, for good; return its exit code and what it printed."""
    if uid == 0:
        done = invoke(*arguments)
        return done.exit_code, done.stdout

    def command() -> str:
        done = invoke(*arguments)
        return json.dumps([done.exit_code, done.stdout])

    code, out = json.loads(as_user(uid, command))
    return int(code), str(out)


def as_user(uid: int, act: Callable[[], str]) -> str:
    """Return what a function says in a child that is another user for good."""
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            with os.fdopen(theirs, "w") as out:
                out.write(act())
            os._exit(0)
        finally:
            os._exit(1)
    os.close(theirs)
    with os.fdopen(ours) as said:
        found = said.read()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, found
    return found


def give(place: Path, uid: int) -> None:
    """Make a folder, with all in it, one user's own."""
    for path in (place, *place.rglob("*")):
        path.chmod(0o700 if path.is_dir() else 0o600)
        os.chown(path, uid, uid)


@pytest.fixture(scope="module")
def made() -> Iterator[House]:
    base = Path(tempfile.mkdtemp(prefix="secure-fgl-users-"))  # others reach pytest's own not
    try:
        for number, name in enumerate(NAMES):
            tables(base / "data" / name, number)
        (base / "data" / SPEC_FILE).write_text(SPEC)
        parties = assemble(own(base / "data"), base / "parties")
        site = parties.charter.sites[NORTH]
        made = kits.provision(base / "kits", [site], port=kits.free_port())
        shutil.copytree(parties.folders[site], base / "party")
        shutil.copytree(made.sites[site], base / "kit")
        (base / "budgets").mkdir()
        found = House(base, made.server)
        warm(found)
        yield found
    finally:
        shutil.rmtree(base)


@pytest.fixture
def house(made: House, monkeypatch: pytest.MonkeyPatch) -> Iterator[House]:
    """Folders of the users, one each; the program itself can be read here whoever installed it."""
    base = Path(tempfile.mkdtemp(prefix="secure-fgl-users-"))
    try:
        base.chmod(0o711)
        for name in ("party", "kit", "data", "budgets"):
            shutil.copytree(made.base / name, base / name)
            give(base / name, NVFLARE if name == "kit" else PARTY)
        monkeypatch.setenv("SECURE_FGL_DATA", str(base / "data"))
        monkeypatch.setenv("SECURE_FGL_BUDGETS", str(base / "budgets"))
        if not apart.by_user_ids():
            monkeypatch.setattr(users, "_check_program", lambda uid: None)
        yield House(base, made.server)
    finally:
        shutil.rmtree(base)


def warm(made: House) -> None:
    """Import what a check imports: a child that is another user cannot, where it is root's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SECURE_FGL_DATA", str(made.base / "data"))
        found = made.check()
    assert {name for name, line in found.items() if line["status"] == "FAIL"} == {"apart", "server"}


def statuses(found: Mapping[str, Mapping[str, str]], status: str) -> list[str]:
    return [name for name, line in found.items() if line["status"] == status]


@as_root
def test_root_is_told_that_all_is_well_where_each_has_a_user_of_its_own(house: House) -> None:
    with listening(house.server, port_of(house.kit)):
        code, found = house.checked()
    unseen = [] if lonely() else ["network"]
    assert statuses(found, "NOT CHECKED") == unseen and statuses(found, "FAIL") == [], found
    assert code == 0 and [*found] == [*listed.OFFLINE, *listed.ONLINE]
    assert str(PARTY) in found["folder"]["said"] and "cannot read the kit" in found["apart"]["said"]
    owners = {path.stat().st_uid for path in house.base.rglob("*")}
    assert owners == {PARTY, NVFLARE}  # nothing of root's was left behind


@as_root
def test_each_user_sees_its_own_and_is_told_who_sees_the_rest(house: House) -> None:
    party = house.check(uid=PARTY)
    assert statuses(party, "FAIL") == []
    assert [name for name in statuses(party, "NOT CHECKED") if name != "network"] == [*KIT]
    for name in KIT:
        assert "as root" in party[name]["said"] and "denied" not in party[name]["said"]
    assert party["apart"]["status"] == "OK"
    kit = house.check(uid=NVFLARE)
    assert statuses(kit, "FAIL") == ["server"]  # nobody listens now
    unseen = {*statuses(kit, "NOT CHECKED")} - {"network"}
    assert unseen == {*listed.AT_PARTY, "kit", "apart"}
    assert "root sees" in kit["kit"]["said"] and "as root" in kit["plan"]["said"]
    code, stranger = house.checked(uid=STRANGER)
    assert code == 2 and statuses(stranger, "FAIL")[0] == "folder"  # both closed is no answer
    assert statuses(stranger, "OK") == [name for name in ("network",) if name in stranger and
                                        stranger[name]["status"] == "OK"]  # fmt: skip


@as_root
def test_root_finds_what_the_party_s_user_cannot_read(house: House) -> None:
    """Root itself could read all of it; the control is the test of a machine where all is well."""
    tables = house.base / "data" / NORTH
    os.chown(tables, STRANGER, STRANGER)
    assert [*tables.iterdir()] != []
    found = house.check()
    assert statuses(found, "FAIL") == ["data", "server"] and "denied" in found["data"]["said"]
    file = house.kit / "local" / "resources.json"
    os.chown(file, 0, 0)  # as `site harden` leaves it, before the page's chown
    file.chmod(0o600)
    line = house.line("in force")
    assert line.status is Status.FAIL and "chown -R" in line.todo and "denied" in line.said
    file.chmod(0o644)  # root's, and its reader may not widen it
    assert house.line("in force").status is house.line("kit").status is Status.OK


@as_root
def test_an_entry_of_another_user_in_a_folder_is_found(house: House) -> None:
    for entry in (house.party / "identity.json", place_of(house.party) / "charter.json"):
        assert house.line("folder").status is Status.OK  # the control
        for other in (STRANGER, 0):
            os.chown(entry, other, other)
            line = house.line("folder")
            assert line.status is Status.FAIL and line.todo == f"chown {PARTY} {entry}"
            assert str(entry) in line.said and users.named(other) in line.said
        os.chown(entry, PARTY, PARTY)
    assert house.line("kit").status is Status.OK  # the control
    file = house.kit / "local" / "resources.json"
    os.chown(file, STRANGER, STRANGER)
    line = house.line("kit")
    assert line.status is Status.FAIL and "can widen it" in line.said
    assert line.todo == f"chown -R {NVFLARE} {house.kit}"


@as_root
def test_who_is_not_kept_from_the_kit_is_not_called_apart(house: House) -> None:
    key = house.kit / "startup" / "client.key"
    for path in (house.kit, key.parent):
        path.chmod(0o711)  # nobody lists it, and everybody knows the key's name
    assert house.line("apart").status is Status.OK  # the control
    key.chmod(0o644)
    line = house.line("apart")
    assert line.status is Status.NOT_CHECKED and str(key) in line.said and "chmod 700" in line.said
    themselves = as_user(
        PARTY, lambda: look("apart", listed.OFFLINE["apart"], house.subject()).said
    )
    assert themselves == line.said
    (closed := house.base / "closed").mkdir(mode=0o700)
    beyond = Subject(house.party, None, closed / "kit", listed.utc())
    for name in ("kit", "apart"):  # site start could not see whose it is, either
        said = as_user(PARTY, lambda name=name: str(look(name, listed.OFFLINE[name], beyond)))
        assert "cannot be reached" in said and "FAIL" in said
    key.rename(key.with_name("hidden"))
    assert "no key lies" in house.line("apart").said
    for owner in (PARTY, 0):
        for place in (house.kit, house.party):
            give(place, owner)
        line = house.line("apart")
        assert line.status is Status.FAIL and "of one user" in line.said


@as_root
def test_a_passphrase_that_root_alone_can_read_is_not_at_hand(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor would it be to the party's process."""
    file = house.base / "passphrase"
    file.write_text("six words that nobody guesses\n")
    (house.party / "identity.json").unlink()
    new_identity(house.party, NORTH, Role.CLIENT, from_file(file, closed=False))
    give(house.party, PARTY)
    monkeypatch.setenv(FILE_VARIABLE, str(file))
    for owner, status in ((0, Status.FAIL), (PARTY, Status.OK)):
        give(file, owner)
        line = house.line("keys")
        assert line.status is status, line
        assert ("denied" if owner == 0 else "under a passphrase") in line.said


# --- on any machine ---------------------------------------------------------------------------


def nobody(folder: Path) -> Subject:
    return Subject(folder, None, None, listed.utc())


def test_root_looks_in_a_process_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks: dict[str, Check] = {"number": lambda _: str(os.getpid())}
    (line,) = users.look_as_owner(checks, nobody(tmp_path), tmp_path)
    assert line.said == str(os.getpid())  # the control: it is this user's
    if os.geteuid() == 0:
        os.chown(tmp_path, PARTY, PARTY)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(users, "_become", lambda uid, gid: None)
    (line,) = users.look_as_owner(checks, nobody(tmp_path), tmp_path)
    assert line.status is Status.OK and line.said != str(os.getpid())


def test_who_root_was_is_given_up_for_good(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[object] = []
    for name in ("setgroups", "setresgid", "setresuid"):
        monkeypatch.setattr(os, name, lambda *ids, name=name: said.append((name, *ids)))
    monkeypatch.setattr(users, "_check_program", lambda uid: None)
    users._become(PARTY, NVFLARE)
    assert said == [
        ("setgroups", [NVFLARE]),
        ("setresgid", *[NVFLARE] * 3),
        ("setresuid", *[PARTY] * 3),  # the last one, since it takes the right to the others away
    ]


@as_root
def test_there_is_no_way_back(house: House) -> None:
    me: dict[str, Check] = {"me": lambda _: f"{os.getresuid()} {os.getgroups()}"}
    (line,) = users.look_as_owner(me, house.subject(), house.party)
    assert line.said == f"{(PARTY,) * 3} [{PARTY}]"


def test_a_process_that_dies_or_may_not_look_is_no_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    def dies(_: Subject) -> str:
        os.kill(os.getpid(), signal.SIGKILL)
        return ""

    checks: dict[str, Check] = {"one": lambda _: "1", "two": dies, "three": lambda _: "3"}
    monkeypatch.setattr(users, "_other_owner", lambda folder: (os.getuid(), os.getgid()))
    with monkeypatch.context() as patch:
        patch.setattr(users, "_become", lambda uid, gid: None)
        lines = [*users.look_as_owner(checks, nobody(tmp_path), tmp_path)]
    assert [line.status for line in lines] == [Status.OK, Status.FAIL, Status.NOT_CHECKED]
    assert "ended early" in lines[1].said and lines[1].code == 2 and "see two" in lines[2].said
    for said in (b"[]", b"no line", b'["three", "OK", "", "", 0]', b"x" * (1 << 21), *NO_LINES):
        with monkeypatch.context() as patch:  # a plug-in could write there as well
            patch.setattr(users, "_tell", lambda out, *_, said=said: out.write(said + b"\n"))
            lines = [*users.look_as_owner(checks, nobody(tmp_path), tmp_path)]
        assert [line.status for line in lines] == [Status.FAIL, *[Status.NOT_CHECKED] * 2], said
    monkeypatch.setattr(os, "setgroups", refused)
    lines = [*users.look_as_owner(checks, nobody(tmp_path), tmp_path)]
    assert [line.status for line in lines] == [Status.FAIL, *[Status.NOT_CHECKED] * 2]
    assert "may not look as the user" in lines[0].said
    with contextlib.suppress(ChildProcessError):  # other tests of this process may have children
        assert os.waitpid(-1, os.WNOHANG) == (0, 0)  # none is left unreaped


def test_only_a_key_that_the_kernel_refuses_is_out_of_reach(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is there instead: a key that opens, or none under its name."""
    (startup := tmp_path / "kit" / "startup").mkdir(parents=True)
    subject = Subject(tmp_path, None, tmp_path / "kit", listed.utc())
    me = os.geteuid() or PARTY
    monkeypatch.setattr(os, "geteuid", lambda: me)
    owners = {tmp_path: me, tmp_path / "kit": NVFLARE}
    monkeypatch.setattr(isolation, "_owner", owners.__getitem__)
    line = look("apart", isolation.apart, subject)
    assert line.status is Status.NOT_CHECKED and "no key lies" in line.said
    (startup / "server.key").touch()
    line = look("apart", isolation.apart, subject)
    assert line.status is Status.NOT_CHECKED and "can read" in line.said
    monkeypatch.setattr(isolation, "_opened", lambda file: PermissionError)
    assert look("apart", isolation.apart, subject).status is Status.OK  # the control
    monkeypatch.setattr(os, "geteuid", lambda: STRANGER)
    assert "that user can say" in look("apart", isolation.apart, subject).said


@as_root
def test_who_looks_leaves_root_s_terminal_and_what_root_has_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who shares a terminal with root types into it (TIOCSTI), and reads what root types next."""
    (tmp_path / "root's").write_text("root's own")
    held, session = os.open(tmp_path / "root's", os.O_RDONLY), os.getsid(0)

    def has(_: Subject) -> str:
        with contextlib.suppress(OSError):
            return f"{os.getsid(0) == session} {os.pread(held, 99, 0).decode()}"
        mute = {os.stat(f"/proc/self/fd/{number}").st_rdev for number in range(3)}
        return f"{os.getsid(0) == session} {mute == {os.stat(os.devnull).st_rdev}}"

    monkeypatch.setattr(users, "_other_owner", lambda folder: (os.getuid(), os.getgid()))
    monkeypatch.setattr(users, "_become", lambda uid, gid: None)
    checks: dict[str, Check] = {"folder": has, "keys": has, "plan": has}
    lines = [*users.look_as_owner(checks, nobody(tmp_path), tmp_path)]
    asks = "True root's own"  # the control: up to the passphrase
    assert [line.said for line in lines] == [asks, asks, "False True"]
    (line,) = users.look_as_owner({"sending": has}, nobody(tmp_path), tmp_path)
    assert line.said == "False True"  # a kit's side asks for nothing
    os.close(held)


def test_a_lock_that_is_a_pipe_keeps_nobody(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "site.lock")
    with pytest.raises(OSError, match="no plain file"):
        leaving.supervisor_of(tmp_path)
    os.mkfifo(tmp_path / "lock")
    with pytest.raises(UsageError, match="Nobody can tell"), at_rest(tmp_path):
        pass
    assert not at_work(tmp_path)


def test_a_program_that_the_party_s_user_cannot_read_is_named() -> None:
    def probed() -> str:
        try:
            users._check_program(PARTY)
        except users.UsageError as error:
            return f"{error.what} {error.fix}"
        return ""

    said = as_user(PARTY, probed)
    assert (said == "") == apart.by_user_ids()
    assert said == "" or "where all users" in said


# --- the network ------------------------------------------------------------------------------


@contextlib.contextmanager
def up(place: Path, *, alone: bool) -> Iterator[int]:
    """A process that keeps a run up, with a network of its own or with ours."""
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if alone:
                assert ctypes.CDLL(None).unshare(NEW_NET) == 0
            with leaving.only_supervisor(place):
                os.write(theirs, b"up")
                time.sleep(600)
        finally:
            os._exit(1)
    os.close(theirs)
    try:
        assert os.read(ours, 2) == b"up"
        yield child
    finally:
        os.close(ours)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_interfaces_are_those_that_the_kernel_lists() -> None:
    assert network.interfaces(os.getpid()) == network.interfaces() != []
    assert network.leads_nowhere(["lo"]) and network.leads_nowhere([])
    assert not network.leads_nowhere(["eth0", "lo"]) and not network.leads_nowhere(["eth0"])


@pytest.mark.skipif(not lonely(), reason="this machine gives no namespaces")
def test_the_party_s_process_is_looked_at_where_it_is_up(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert house.line("network").said.startswith("this machine can start a process without")
    ours = network.interfaces()
    if network.leads_nowhere(ours):
        pytest.skip("this machine has no network, so there is no control")
    place = place_of(house.party)
    for alone in (True, False):
        with up(place, alone=alone) as number:
            line = house.line("network")
        assert str(number) in line.said
        assert line.status is (Status.OK if alone else Status.NOT_CHECKED), line
        assert ("no interface but loopback" if alone else "PrivateNetwork=yes") in line.said
    assert leaving.supervisor_of(place) is None  # it ended
