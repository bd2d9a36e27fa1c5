"""Processes forked off this one: what they inherit, and that they can fork again."""

from __future__ import annotations

import os
import subprocess
import sys

AGAIN = """
import io, os, sys
import pyarrow.csv
from secure_fgl.isolation.forked import Forked

pyarrow.csv.read_csv(io.BytesIO(b"a,b\\n1,2\\n"))  # Arrow keeps a pipe from here on

def child():
    return Forked(lambda: 7).wait(20)

sys.exit(Forked(child).wait(30))
"""

INHERITED = """
import os, sys
from secure_fgl.isolation.forked import Forked

reader, writer = os.pipe()

def child():
    for number in map(int, os.listdir("/proc/self/fd")):
        try:
            target = os.readlink(f"/proc/self/fd/{number}")
        except OSError:
            continue
        if number > 2 and target != os.devnull:
            return 1
    try:
        os.write(writer, b"x")
    except OSError:
        return 0
    return 2

sys.exit(Forked(child).wait(30))
"""


def run(code: str) -> int:
    return subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode


def test_a_fork_of_a_fork_lives_although_a_library_keeps_a_pipe() -> None:
    assert run(AGAIN) == 7


def test_a_fork_reaches_no_descriptor_of_its_parent() -> None:
    assert run(INHERITED) == 0


def test_control_of_the_above_a_plain_fork_reaches_them() -> None:
    plain = INHERITED.replace("sys.exit(Forked(child).wait(30))", "sys.exit(child())")
    assert run(plain) == 1
    assert os.path.isdir("/proc/self/fd")
