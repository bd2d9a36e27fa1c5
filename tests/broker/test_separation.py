"""Keys and network apart: what a party's process and a carrier's can no longer do, and could."""

from __future__ import annotations

import ctypes
import os
import socket
import threading
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from secure_fgl.isolation import kernel
from secure_fgl.isolation.separation import close_files, close_network, separable

_PTRACE, _PIDFD_GETFD, _VM_READ, _IO_URING = 101, 438, 310, 425  # x86_64; see `_number`
_AARCH64 = {_PTRACE: 117, _VM_READ: 270}


def _number(call: int) -> int:
    import platform

    return call if platform.machine() == "x86_64" else _AARCH64.get(call, call)


def child(play: Callable[[], None]) -> None:
    """Play something in a child, since what is given up does not come back; fails as it fails."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.close(read)
            play()
            code = 0
        except BaseException:
            os.write(write, traceback.format_exc().encode()[-60_000:])
        finally:
            os._exit(code)
    os.close(write)
    with os.fdopen(read, "rb") as end:
        text = end.read().decode()
    assert os.waitpid(pid, 0)[1] == 0, text


def refused(act: Callable[[], object]) -> bool:
    """Tell whether the kernel refuses it."""
    try:
        act()
    except PermissionError:
        return True
    return False


@pytest.fixture
def port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


def connects(port: int) -> None:
    socket.create_connection(("127.0.0.1", port), 2.0).close()


def calls(number: int, *arguments: object) -> int:
    """Make a system call; raises PermissionError where it is refused."""
    code = ctypes.CDLL(None, use_errno=True).syscall(_number(number), *arguments)
    if ctypes.get_errno() == 1 and code < 0:
        raise PermissionError
    return int(code)


def open_ways(port: int, before: socket.socket) -> list[str]:
    """Try every way out of this process; return those that are not refused."""
    raw = [(socket.AF_INET, socket.SOCK_RAW), (socket.AF_NETLINK, socket.SOCK_RAW)]
    kinds = [
        (family, kind)
        for family in (socket.AF_INET, socket.AF_INET6, socket.AF_UNIX)
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM)
    ]
    ways: dict[str, Callable[[], object]] = {
        f"{family} {kind}": partial(socket.socket, family, kind) for family, kind in kinds + raw
    }
    ways |= {
        "connect": partial(connects, port),
        "a socket from before": partial(before.connect, ("127.0.0.1", port)),
        "ptrace": partial(calls, _PTRACE, 16, os.getppid(), 0, 0),
        "pidfd_getfd": partial(calls, _PIDFD_GETFD, os.pidfd_open(os.getppid()), 0, 0),
        "process_vm_readv": partial(calls, _VM_READ, os.getppid(), 0, 0, 0, 0, 0),
        "io_uring": partial(calls, _IO_URING, 0, 0),
    }
    return [name for name, way in ways.items() if not refused(way)]


def test_a_party_s_process_opens_no_connection(port: int) -> None:
    def play() -> None:
        before = socket.socket()
        close_network()
        assert open_ways(port, before) == []

    child(play)


def test_without_that_call_it_could(port: int) -> None:
    def play() -> None:
        connects(port)
        socket.socket().connect(("127.0.0.1", port))
        socket.socket(socket.AF_UNIX).close()
        assert not refused(lambda: calls(_VM_READ, os.getpid(), 0, 0, 0, 0, 0))

    child(play)


def test_what_it_listens_at_and_its_own_pairs_stay(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))

        def play() -> None:
            close_network()
            listener.listen(1)
            ours, theirs = socket.socketpair()
            ours.sendall(b"a")
            assert theirs.recv(1) == b"a"
            connection, _ = listener.accept()
            connection.sendall(connection.recv(5))
            assert (tmp_path / "file").write_text("x") == 1  # files are not taken away

        caller = threading.Thread(target=lambda: answers.append(called(tmp_path / "socket")))
        answers: list[bytes] = []
        caller.start()
        child(play)
        caller.join()
    assert answers == [b"hello"]


def called(place: Path) -> bytes:
    with socket.socket(socket.AF_UNIX) as caller:
        while True:
            try:
                caller.connect(str(place))
                break
            except ConnectionRefusedError:  # it does not listen yet
                pass
        caller.sendall(b"hello")
        return caller.recv(5)


def test_threads_that_began_before_and_what_it_starts_have_no_network(port: int) -> None:
    def play() -> None:
        go, found = threading.Event(), dict[str, bool]()

        def thread() -> None:
            go.wait()
            found["thread"] = refused(lambda: connects(port))

        begun = threading.Thread(target=thread)
        begun.start()
        close_network()
        go.set()
        begun.join()
        code = f"import socket; socket.create_connection(('127.0.0.1', {port}))"
        started = os.spawnvp(os.P_WAIT, "python3", ["python3", "-c", code])
        assert found == {"thread": True}
        assert started == 1

    child(play)


def party_in(folder: Path) -> tuple[Path, list[Path]]:
    """Make what a party has; return its carrier's folder, and what is no carrier's."""
    for name in ("carrier", "keys", "runs", "data"):
        (folder / name).mkdir()
        (folder / name / "file").write_text("secret")
    (folder / "identity.json").write_text("secret")
    theirs = [folder / name / "file" for name in ("keys", "runs", "data")]
    return folder / "carrier", [folder / "identity.json", *theirs]


def test_a_carrier_s_process_opens_no_file_but_its_own(tmp_path: Path) -> None:
    own, secret = party_in(tmp_path)

    def play() -> None:
        before = os.open(tmp_path, os.O_PATH)
        close_files(own, [secret[0], secret[1].parent, tmp_path / "runs", tmp_path / "none"])
        for path in secret:
            for way in (path.read_bytes, partial(path.write_text, "x"), path.unlink,
                        partial(os.listdir, path.parent)):  # fmt: skip
                assert refused(way), path
        assert refused(lambda: os.close(os.open("identity.json", os.O_RDONLY, dir_fd=before)))
        assert (own / "file").read_text() == "secret"
        for wrong in (own / "new", tmp_path / "new", Path("/tmp/secure-fgl-new"), own / "file"):
            assert refused(partial(wrong.write_text, "x")), wrong
        assert refused((own / "folder").mkdir)
        assert refused(partial(os.rename, own / "file", own / "other"))
        assert refused(partial(os.listdir, Path.home()))
        assert refused(Path(f"/proc/{os.getppid()}/mem").read_bytes)

    child(play)


def test_without_that_call_all_of_them_open(tmp_path: Path) -> None:
    _, secret = party_in(tmp_path)
    assert all(path.read_text() == "secret" for path in secret)

    def play() -> None:
        with pytest.raises(kernel.CannotIsolate, match="can still read"):
            close_files(tmp_path, secret)

    child(play)


def test_a_carrier_keeps_its_network_and_listens_at_no_port(port: int, tmp_path: Path) -> None:
    own, _ = party_in(tmp_path)

    def play() -> None:
        import ssl

        close_files(own, [], ports=[port])
        connects(port)
        assert refused(lambda: socket.create_server(("127.0.0.1", 0)))
        ssl.create_default_context()
        assert socket.getaddrinfo("localhost", port)

    child(play)


def test_a_machine_that_cannot_do_it_is_said_to_be_so(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "Landlock" in separable()

    def refuses(*arguments: object) -> int:
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(kernel, "prctl", refuses)
    with pytest.raises(kernel.CannotIsolate):
        close_network()
    with pytest.raises(kernel.CannotIsolate):
        close_files(Path("/tmp"), [])
    monkeypatch.undo()
    monkeypatch.setattr(kernel, "prctl", lambda *arguments: 0)
    monkeypatch.setattr(kernel, "call", lambda *arguments: 0)  # it says so and does nothing
    monkeypatch.setattr(kernel, "landlock", lambda *arguments, **more: None)
    with pytest.raises(kernel.CannotIsolate, match="still open a connection"):
        close_network()
