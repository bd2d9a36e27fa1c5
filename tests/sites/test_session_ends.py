"""A party's session that is killed, stopped, or fails while it ends."""

from __future__ import annotations

import fcntl
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from protocols.wire.roster import AGGREGATOR_NAME
from secure_fgl._floors import NotOurCode
from secure_fgl.errors import UsageError
from secure_fgl.sites.session import Answerer
from secure_fgl.sites.control import Control
from secure_fgl.sites.process import PartyProcess, open_process
from secure_fgl.sites.session import run
from secure_fgl.sites.status import STATUS_FILE, State, read_status
from secure_fgl.store.sides.places import place_of
from secure_fgl.transports.broker.channel import listen, of_run
from secure_fgl.transports.broker.replies import END, TASK, Code
from secure_fgl.transports.nvflare import party_process
from secure_fgl.transports.nvflare.site import stopping, session, supervisor
from tests.sites.stage import Parties, assemble, banks, side

AUTHORITY = "key-authority"
ME = frozenset({os.geteuid()})


class Killed(BaseException):
    """Stands for the end of the process at that place."""


def die(*_: object, **__: object) -> None:
    raise Killed


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

    def foreign() -> None:
        raise NotOurCode("something else")

    monkeypatch.setattr(party_process._floors, "check", foreign)
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
        ours.close()  # it ends as soon as it waits for a relay
        run(kit, kit.folder / "socket", ME, Control(theirs))
    assert not keys.exists() and not (kit.run_folder / "private").exists()


def test_a_start_after_the_end_finds_the_run_over(made: Parties) -> None:
    """A unit that is enabled starts with every boot, also when its run is over."""
    kit = made.kit(AUTHORITY)
    open_process(kit).close()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert run(kit, kit.folder / "socket", ME, Control(theirs)) == 0
        assert read_status(kit.folder).state == State.OVER
        (kit.folder / STATUS_FILE).unlink()  # the control: nothing says that it is over
        with pytest.raises(UsageError, match="cannot be resumed"):
            run(kit, kit.folder / "socket", ME, Control(theirs))


def test_a_start_after_the_end_leaves_a_refusal_in_the_status(made: Parties) -> None:
    kit = made.kit(AUTHORITY)
    process = open_process(kit)
    process.status._reach(State.REFUSED, "aggregator: stale")
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert not session._is_over(kit)  # the control: nobody told it that the run is over
        process.close()
        assert run(kit, kit.folder / "socket", ME, Control(theirs)) == 0
    found = read_status(kit.folder)
    assert (found.state, found.reason) == (State.REFUSED, "aggregator: stale")


def test_a_stop_holds_though_a_start_took_the_last_one_back_meanwhile(
    made: Parties, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = made.folders[AUTHORITY]

    def at_rest(place: Path) -> bool:
        stopping.go_on(place)  # start --again, just before it is told to end
        return True

    monkeypatch.setattr(stopping, "_at_rest", at_rest)
    stopping.stop(folder, seconds=5.0)
    assert stopping.was_stopped(place_of(folder))


@pytest.mark.parametrize("here", [True, False])
def test_a_stop_signals_nobody_whose_number_counts_elsewhere(
    here: bool, made: Parties, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A supervisor in a container has a number that is another process's outside of it."""
    folder = made.folders[AUTHORITY]
    place = place_of(folder)
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"]) as other:
        with monkeypatch.context() as patched:
            patched.setattr(os, "getpid", lambda: other.pid)
            if not here:
                patched.setattr(stopping, "_numbers", lambda: "another-boot 4026531836")
            supervisor = stopping.only_supervisor(place)
            supervisor.__enter__()
        try:
            said = "has not ended" if here else "in another container"
            with pytest.raises(UsageError, match=said):
                stopping.stop(folder, seconds=0.3)
            assert stopping.was_stopped(place)
            assert (other.poll() is None) is not here
        finally:
            other.kill()
            supervisor.__exit__(None, None, None)
        stopping.stop(folder, seconds=5.0)  # it is at rest, wherever it was


@pytest.mark.parametrize("noted", [True, False])
def test_a_stop_takes_away_the_socket_of_a_killed_process_wherever_it_listened(
    noted: bool, made: Parties, tmp_path: Path
) -> None:
    """Units keep it at /run/secure-fgl; while it is there the others wait for who comes back."""
    folder = made.folders[AUTHORITY]
    place = place_of(folder)
    listens = of_run(tmp_path / "meet" / "socket", place.name)
    listens.parent.mkdir(mode=0o700)
    listen(listens).close()  # as a process that is killed leaves it
    if noted:  # else the control: nobody said where it is
        stopping.note_place(place, listens)
    stopping.stop(folder, seconds=5.0)
    assert listens.exists() is not noted


def test_a_supervisor_notes_where_its_process_listens(made: Parties, tmp_path: Path) -> None:
    folder = made.folders[AUTHORITY]
    place = place_of(folder)
    (place / "charter.json").unlink()  # its process says so and ends at once
    asked = tmp_path / "meet" / "socket"
    assert supervisor.start(folder, place=asked, users=[os.geteuid()], say=lambda line: None) != 0
    assert (place / "site.socket").read_text() == str(of_run(asked, place.name))


@pytest.mark.parametrize("noted", ["another's", "a pipe", "no path", "long", "below a file"])
def test_a_stop_takes_no_socket_away_that_is_not_the_run_s(
    noted: str, made: Parties, tmp_path: Path
) -> None:
    """Root may stop a site, and who writes into its folder may note any path there."""
    folder = made.folders[AUTHORITY]
    place = place_of(folder)
    other = tmp_path / "meet" / "docker.sock"
    other.parent.mkdir(mode=0o700)
    listen(other).close()
    mine = of_run(folder / "socket", place.name)
    listen(mine).close()
    (place / "site.socket").unlink(missing_ok=True)
    if noted == "a pipe":
        os.mkfifo(place / "site.socket")
    else:
        paths = {
            "another's": str(other),
            "no path": "\0",
            "long": "x" * 5000,
            "below a file": f"/etc/passwd/socket.{place.name}",
        }
        (place / "site.socket").write_text(paths[noted])
    assert stopping.stop(folder, seconds=5.0) == [place.name]
    assert other.exists()
    assert mine.exists() is (noted == "below a file")  # else the control: where it is by default


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files another owner")
def test_a_stop_by_root_takes_no_socket_of_another_user_away(made: Parties, tmp_path: Path) -> None:
    folder = made.folders[AUTHORITY]
    place = place_of(folder)
    listens = of_run(tmp_path / "meet" / "socket", place.name)
    listens.parent.mkdir(mode=0o700)
    listen(listens).close()
    os.chown(listens, 61_777, 61_777)
    stopping.note_place(place, listens)
    stopping.stop(folder, seconds=5.0)
    assert listens.exists()
