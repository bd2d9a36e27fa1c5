"""A session that hangs is ended and started again; one that waits, or trains long, is not."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from secure_fgl.sites.control import UP, Control
from secure_fgl.transports.nvflare.site import control, supervisor, watch
from secure_fgl.transports.nvflare.site.watch import HUNG_SECONDS, Watch, processor_seconds

HUNG = 2.5
"""Seconds; a process of these tests beats or works more often than that."""


@dataclass
class Told:
    """A process whose time and work a test tells."""

    now: float = 0.0
    used: float = 0.0
    hidden: bool = False

    def watched(self) -> Watch:
        return Watch(1, worked=lambda pid: None if self.hidden else self.used, now=lambda: self.now)

    def lasts(self, seen: Watch, *, beats: bool = False, share: float = 0.0) -> float:
        """Return after how many seconds it counts as hung; two hours if never."""
        began = self.now
        while not seen.hangs() and self.now - began < 7_200.0:
            self.now += 0.5
            self.used += 0.5 * share
            if beats and not self.now % 5.0:
                seen.beat()
        return self.now - began


def test_one_that_waits_or_works_is_left_alone_and_one_that_does_neither_is_not() -> None:
    told = Told()
    assert told.lasts(told.watched(), beats=True) == 7_200.0
    assert told.lasts(told.watched(), share=0.01) == 7_200.0  # on a machine that is very busy
    assert HUNG_SECONDS <= told.lasts(told.watched()) <= HUNG_SECONDS + 1.0
    polling = told.lasts(told.watched(), share=0.0005)  # for what never comes
    assert HUNG_SECONDS <= polling <= HUNG_SECONDS + 1.0
    seen = told.watched()
    told.lasts(seen, share=0.5, beats=False)
    assert told.lasts(seen) <= HUNG_SECONDS + 11.0  # it worked for hours, then it hung


def test_a_supervisor_that_was_stopped_itself_judges_nobody() -> None:
    """Ctrl-Z stops both, and so does whoever pauses the machine."""
    told = Told()
    seen = told.watched()
    told.now = 3600.0
    assert not seen.hangs()
    assert told.lasts(seen) > 100.0


def test_where_work_is_not_to_be_seen_nobody_is_ended() -> None:
    """Some machines hide processes that are not traceable, as sessions are."""
    told = Told(hidden=True)
    assert told.lasts(told.watched()) == 7_200.0
    told.hidden = False
    seen = told.watched()
    told.hidden = True  # it became untraceable once it had keys
    assert told.lasts(seen) == 7_200.0


def test_a_process_s_work_is_that_of_all_that_it_started() -> None:
    burn = "import time\nwhile time.process_time() < 0.5: pass\nprint(flush=True)\n"
    inner = f"import subprocess, sys, time\nsubprocess.run([sys.executable, '-c', {burn!r}])\n"
    outer = "import subprocess, sys\n" + (
        f"p = subprocess.Popen([sys.executable, '-c', {inner + 'time.sleep(60)'!r}])\np.wait()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-S", "-c", outer], stdout=subprocess.PIPE, start_new_session=True
    )
    try:
        assert process.stdout is not None and process.stdout.readline()
        assert (processor_seconds(process.pid) or 0.0) >= 0.4
        own = os.times()
        assert (processor_seconds(os.getpid()) or 0.0) >= own.user + own.system - 0.5
        assert processor_seconds(1 << 29) is None
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def test_waiting_beats_and_a_supervisor_that_hangs_keeps_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(control, "_BEAT_SECONDS", 0.0)
    ours, theirs = socket.socketpair()
    with ours, theirs, socket.socketpair()[0] as listener:
        held = Control(theirs)
        held.up()
        for _ in range(2_000):  # far more than the socket holds
            assert not held.ends()
        assert ours.recv(1) == UP
        monkeypatch.setattr(control, "_BEAT_SECONDS", 0.05)
        while ours.recv(4096, socket.MSG_DONTWAIT) and _more(ours):
            pass
        ours.shutdown(socket.SHUT_WR)
        held.wait(listener)  # returns: it is to end
        assert held.ends()


def _more(channel: socket.socket) -> bool:
    try:
        return bool(channel.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
    except BlockingIOError:
        return False


SESSION = """
    import os, socket, subprocess, sys, time
    held = socket.socket(fileno=0)
    held.sendall(b"u")
    def spin(seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            pass
    {does}
"""
SPINS = "subprocess.run([sys.executable, '-S', '-c', 'import time\\nend = time.monotonic() + 4'"
SPINS += "'\\nwhile time.monotonic() < end: pass'])"
BEATS = "[(held.sendall(b'b'), time.sleep(0.3)) for _ in range(12)]"


@pytest.mark.parametrize(
    ("does", "ended"),
    [
        pytest.param("time.sleep(60)", True, id="waits for what never comes"),
        pytest.param("held.close(); time.sleep(60)", True, id="hangs as it ends"),
        pytest.param(SPINS, False, id="its answers' process trains"),
        pytest.param(BEATS, False, id="waits for its relay"),
    ],
)
def test_a_supervisor_ends_what_hangs_alone(
    does: str, ended: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "_LEAST_SECONDS", 0.02)  # a share that a busy machine grants, too
    said: list[str] = []
    code = textwrap.dedent(SESSION).format(does=does)
    work = supervisor._Work(
        [sys.executable, "-S", "-c", code], tmp_path, tmp_path, lambda: False, HUNG, said.append
    )
    began = time.monotonic()
    assert supervisor._run(work) == (-signal.SIGKILL if ended else 0, True)
    assert (time.monotonic() - began < 30.0) and ("hangs" in " ".join(said)) == ended
    assert (tmp_path / "site.log").exists() == ended  # its operator learns why
