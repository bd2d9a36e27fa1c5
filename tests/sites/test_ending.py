"""Ending processes leaves nothing behind, whatever they start meanwhile."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from secure_fgl.transports.nvflare import ending
from tests.sites.processes import until

psutil = pytest.importorskip("psutil", reason="the extra nvflare is not installed")

LEADER = """
import pathlib, signal, subprocess, sys, time
note = pathlib.Path(sys.argv[1])
def told(number, frame):  # as NVFlare does with a job that was just handed in
    child = [sys.executable, "-c", "import time; time.sleep(600)"]
    child = subprocess.Popen(child, start_new_session=True)
    note.write_text(str(child.pid))
    time.sleep(1.0)
    sys.exit(0)
signal.signal(signal.SIGTERM, told)
note.touch()
time.sleep(600)
"""


def started(note: Path) -> subprocess.Popen[bytes]:
    found = subprocess.Popen([sys.executable, "-c", LEADER, str(note)], start_new_session=True)
    until(note.exists)
    return found


def runs(pid: int) -> bool:
    with contextlib.suppress(psutil.Error):
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    return False


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine a second can last ten."""
    monkeypatch.setattr(ending, "_POLITE_SECONDS", 120.0)


def test_a_job_that_is_started_while_its_engine_ends_ends_too(tmp_path: Path) -> None:
    leader = started(tmp_path / "child")
    ending.end([leader])
    assert leader.returncode == 0
    assert not runs(int((tmp_path / "child").read_text()))


def test_the_control_outlives_its_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who looks for children once, before the signal, leaves that job behind."""
    leader = started(tmp_path / "child")
    before = ending._started([leader])
    monkeypatch.setattr(ending, "_started", lambda _: list(before))
    ending.end([leader])
    child = int((tmp_path / "child").read_text())
    assert runs(child)
    os.kill(child, signal.SIGKILL)
