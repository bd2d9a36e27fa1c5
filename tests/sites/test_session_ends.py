"""A party's session that is killed, stopped, or fails while it ends."""

from __future__ import annotations

import fcntl
import os
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from protocols.wire.roster import AGGREGATOR_NAME
from secure_fgl.errors import UsageError
from secure_fgl.sites import process as party_process
from secure_fgl.sites import session, start, stopped, stopping
from secure_fgl.sites.process import PartyProcess, open_process
from secure_fgl.sites.session import Answerer, run
from secure_fgl.sites.status import STATUS_FILE, State, read_status
from secure_fgl.store.sides.party_side import place_of
from secure_fgl.transports.broker.channel import bound, socket_of
from secure_fgl.transports.broker.messages import END, TASK, Code
from tests.sites.stage import Parties, assemble, banks, side

AUTHORITY = "key-authority"
ME = frozenset({os.geteuid()})


class Killed(BaseException):
    """Stands for the end of the process at that place."""


def die(*_: object, **__: object) -> None:
    raise Killed


@pytest.fixture(autouse=True)
def _network(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process of these tests is not to lose its network for good."""
    monkeypatch.setattr(session, "close_network", lambda: None)


@pytest.fixture
def made(tmp_path: Path) -> Parties:
    return assemble(banks(policy="he"), tmp_path / "parties")


def held(folder: Path) -> bool:
    """Tell whether a session holds the run at a party."""
    with (place_of(folder) / "lock").open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def test_a_session_that_could_not_end_answers_no_more(
    made: Parties, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its files are closed and its lock is gone: another process may be at work by now."""
    answerer = Answerer(open_process(made.kit(AUTHORITY)))
    assert answerer.answer(TASK, [b"none"]).code is Code.UNREADABLE
    assert answerer.answer(END, [b"nobody's word"]).code is Code.UNREADABLE
    assert held(made.folders[AUTHORITY]) and not answerer.broken  # the control

    def fail(*_: object) -> None:
        raise OSError("no room")

    monkeypatch.setattr(party_process, "keep_own", fail)
    assert answerer.answer(END, [made.end()]).code is Code.FAILED
    assert not held(made.folders[AUTHORITY])
    assert answerer.broken and not answerer.over


def test_a_ledger_that_was_closed_and_not_signed_is_signed_by_a_stop(
    made: Parties, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = open_process(made.kit(AUTHORITY))
    with monkeypatch.context() as patched:
        patched.setattr(PartyProcess, "sign_head", die)
        with pytest.raises(Killed):
            process.close()
    head = side(made.folders[AUTHORITY]) / "heads" / f"{process.kit.name}.checkpoint"
    assert process.session.ended and not head.exists()
    stopping.stop(made.folders[AUTHORITY], seconds=5.0)
    ledger = side(made.folders[AUTHORITY]) / "ledger" / f"{process.kit.name}.jsonl"
    assert head.read_text().splitlines()[1] == str(len(ledger.read_bytes().splitlines()))


def test_o9_an_aggregator_killed_as_its_run_ended_keeps_no_key_of_its_state(
    made: Parties, monkeypatch: pytest.MonkeyPatch
) -> None:
    kit = made.kit(AGGREGATOR_NAME)
    process = open_process(kit)
    with monkeypatch.context() as patched:
        patched.setattr(process.state_stores, "destroy", die)
        with pytest.raises(Killed):
            process.close({}, {"verdict": "not audited"})
    process.state_stores.release()
    keys = kit.keys / kit.charter.run
    assert (keys / f"{kit.name}.key").is_file()
    ours, theirs = socket.socketpair()
    with theirs:
        ours.close()  # it ends as soon as it waits for a carrier
        run(kit, kit.folder / "socket", ME, theirs)
    assert not keys.exists() and not (kit.run_folder / "private").exists()


def test_a_start_after_the_end_finds_the_run_over(made: Parties) -> None:
    """A unit that is enabled starts with every boot, also when its run is over."""
    kit = made.kit(AUTHORITY)
    open_process(kit).close()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert run(kit, kit.folder / "socket", ME, theirs) == 0
        assert read_status(kit.folder).state == State.OVER
        (kit.folder / STATUS_FILE).unlink()  # the control: nothing says that it is over
        with pytest.raises(UsageError, match="cannot be resumed"):
            run(kit, kit.folder / "socket", ME, theirs)


def test_a_start_after_the_end_leaves_a_refusal_in_the_status(made: Parties) -> None:
    kit = made.kit(AUTHORITY)
    process = open_process(kit)
    process.status._reach(State.REFUSED, "aggregator: stale")
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert not session._is_over(kit)  # the control: nobody told it that the run is over
        process.close()
        assert run(kit, kit.folder / "socket", ME, theirs) == 0
    found = read_status(kit.folder)
    assert (found.state, found.reason) == (State.REFUSED, "aggregator: stale")


def test_a_start_that_cannot_begin_says_so_by_its_code(made: Parties) -> None:
    """Where nobody may trust the charter it is not started again and again."""
    folder, lines = made.folders[AUTHORITY], list[str]()
    charter = replace(made.charter, signatures={})
    (place_of(folder) / "charter.json").write_bytes(charter.encode())
    assert start.start(folder, users=[os.geteuid()], say=lines.append) == 5
    assert lines == []
    assert "did not sign it" in (folder / "site.log").read_text()


def test_a_stop_is_seen_though_start_says_nothing(made: Parties) -> None:
    kit = made.kit(AUTHORITY)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert not session._ends(theirs, kit)
        stopping.stop(kit.party, seconds=5.0)
        assert session._ends(theirs, kit)
        stopping.go_on(kit.folder)
        assert not session._ends(theirs, kit)
        ours.shutdown(socket.SHUT_WR)
        assert session._ends(theirs, kit)  # and where it hung up


def test_a_stop_holds_though_a_start_took_the_last_one_back_meanwhile(
    made: Parties, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = made.folders[AUTHORITY]

    def at_rest(place: Path) -> bool:
        stopping.go_on(place)  # start --again, just before it is told to end
        return True

    monkeypatch.setattr(stopping, "at_rest", at_rest)
    stopping.stop(folder, seconds=5.0)
    assert stopping.was_stopped(place_of(folder))


@pytest.mark.parametrize("here", [True, False])
def test_a_stop_signals_nobody_whose_number_counts_elsewhere(
    here: bool, made: Parties, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start in a container has a number that is another process's outside of it."""
    folder = made.folders[AUTHORITY]
    place = place_of(folder)
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"]) as other:
        with monkeypatch.context() as patched:
            patched.setattr(os, "getpid", lambda: other.pid)
            if not here:
                patched.setattr(stopped, "numbers", lambda: "another-boot 4026531836")
            other_start = stopping.only_one_start(place)
            other_start.__enter__()
        try:
            said = "has not ended" if here else "in another container"
            with pytest.raises(UsageError, match=said):
                stopping.stop(folder, seconds=0.3)
            assert stopping.was_stopped(place)
            assert (other.poll() is None) is not here
        finally:
            other.kill()
            other_start.__exit__(None, None, None)
        stopping.stop(folder, seconds=5.0)  # it is at rest, wherever it was


def test_a_stop_takes_away_the_socket_of_a_killed_process(made: Parties) -> None:
    """While it is there the others wait for who comes back."""
    folder = made.folders[AUTHORITY]
    left = socket_of(folder / "socket", place_of(folder).name)
    another = socket_of(folder / "socket", "ab" * 16)
    for path in (left, another):
        bound(path).close()  # as a process that is killed leaves it
    stopping.stop(folder, seconds=5.0)
    assert not left.exists() and another.exists()  # which is of another run


@pytest.mark.parametrize("kind", ["a link", "a file", "a pipe"])
def test_a_stop_takes_nothing_away_that_is_no_socket(
    kind: str, made: Parties, tmp_path: Path
) -> None:
    """Root may stop a site, and who writes into its folder may put anything there."""
    folder = made.folders[AUTHORITY]
    there = socket_of(folder / "socket", place_of(folder).name)
    other = tmp_path / "meet" / "docker.sock"
    other.parent.mkdir(mode=0o700)
    bound(other).close()
    if kind == "a link":
        there.symlink_to(other)
    elif kind == "a file":
        there.write_text("mine")
    else:
        os.mkfifo(there)
    assert stopping.stop(folder, seconds=5.0) == [place_of(folder).name]
    assert other.exists() and os.path.lexists(there)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files another owner")
def test_a_stop_by_root_takes_no_socket_of_another_user_away(made: Parties) -> None:
    folder = made.folders[AUTHORITY]
    there = socket_of(folder / "socket", place_of(folder).name)
    bound(there).close()
    os.chown(there, 61_777, 61_777)
    stopping.stop(folder, seconds=5.0)
    assert there.exists()
