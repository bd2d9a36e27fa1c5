"""An algorithm whose answers try to get out; run by `test_isolation`, in a sandbox and outside."""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from algorithms.tasks import Site
from protocols.forms import Exchange, Form
from protocols.messages import PublicMessage, SumMessage, count
from secure_fgl.config import Config
from secure_fgl.isolation import worker

SECRET = "SECURE_FGL_TEST_SECRET"
"""A variable that only the parent's environment holds."""
CLIENT = "client-1"


class Go(PublicMessage):
    """Begin."""

    number: int = count(unit="1", meaning="which attempt")


class Done(SumMessage):
    """How it went."""

    worked: int = count(unit="1", meaning="1: the attempt worked")


class Other(SumMessage):
    """What no exchange here declares."""

    worked: int = count(unit="1", meaning="any")


Target = Mapping[str, Any]
"""Paths, ports and a process to go for."""


def _opened(target: Target) -> None:
    with open(target["folder"] + "/opened", "w") as file:
        file.write("x")


def _memmap(target: Target) -> None:
    np.memmap(target["folder"] + "/mapped", dtype="u1", mode="w+", shape=(1,))


def _truncated(target: Target) -> None:
    os.truncate(target["victim"], 0)


def _removed(target: Target) -> None:
    os.unlink(target["victim"])


def _key(target: Target) -> None:
    Path(target["key"]).read_bytes()


def _tcp(target: Target) -> None:
    socket.create_connection(("127.0.0.1", target["port"]), 5.0).close()


def _udp(target: Target) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.sendto(b"x", ("127.0.0.1", target["port"]))


def _unix(target: Target) -> None:
    with socket.socket(socket.AF_UNIX) as caller:
        caller.connect(target["unix"])


def _executed(target: Target) -> None:
    os.execv("/bin/true", ["true"])


def _memory(target: Target) -> None:
    with open(f"/proc/{target['process']}/maps") as maps:
        place = next(int(row.split("-")[0], 16) for row in maps if " r" in row)
    with open(f"/proc/{target['process']}/mem", "rb", buffering=0) as memory:
        memory.seek(place)
        assert memory.read(16)


def _environment(target: Target) -> None:
    assert Path(f"/proc/{target['process']}/environ").read_bytes()


def _traced(target: Target) -> None:
    seize = 0x4206  # unlike attaching, it does not stop the process
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.ptrace(seize, target["process"], None, None) != 0:
        raise OSError(ctypes.get_errno(), "ptrace")


def _killed(target: Target) -> None:
    os.kill(target["process"], signal.SIGKILL)


def _forked(target: Target) -> None:
    if os.fork() == 0:
        os._exit(0)


def _thread(target: Target) -> None:
    thread = threading.Thread(target=int)
    try:
        thread.start()
    except RuntimeError as error:
        raise OSError from error
    thread.join()


def _memory_file(target: Target) -> None:
    os.close(os.memfd_create("x"))


def _keys_by_gc(target: Target) -> None:
    names = {type(thing).__name__ for thing in gc.get_objects()}
    if "Identity" not in names:
        raise OSError


def _keys_by_modules(target: Target) -> None:
    held = sys.modules.get("tests.laws.sandboxes")
    if held is None or not hasattr(held, "IDENTITY"):
        raise OSError


def _own_environment(target: Target) -> None:
    if SECRET not in os.environ:
        raise OSError


ATTEMPTS: dict[str, Callable[[Target], None]] = {
    "open": _opened,
    "tofile": lambda target: np.zeros(1).tofile(target["folder"] + "/filed"),
    "memmap": _memmap,
    "truncate": _truncated,
    "remove": _removed,
    "key_file": _key,
    "tcp": _tcp,
    "udp": _udp,
    "unix": _unix,
    "exec": _executed,
    "parents_memory": _memory,
    "parents_environment": _environment,
    "ptrace": _traced,
    "kill_parent": _killed,
    "fork": _forked,
    "thread": _thread,
    "memory_file": _memory_file,
    "keys_by_gc": _keys_by_gc,
    "keys_by_modules": _keys_by_modules,
    "environment": _own_environment,
}


def worked(name: str, target: Target) -> bool:
    """Tell whether an attempt worked."""
    try:
        ATTEMPTS[name](target)
    except OSError:
        return False
    return True


def _divides(site: Site, go: Go) -> Done:
    raise FloatingPointError("4711")


def _raises(site: Site, go: Go) -> Done:
    raise ValueError(f"a data value: {site.memory['target']['folder']}")


def _remembers(site: Site, go: Go) -> Done:
    site.memory["seen"] = np.arange(3.0) + site.generator("own").random()
    return Done(worked=1)


def _sleeps(site: Site, go: Go) -> Done:
    time.sleep(600.0)
    return Done(worked=1)


def _aborts(site: Site, go: Go) -> Done:
    os.abort()


OWN: dict[str, Callable[[Site, Go], Any]] = {
    "divides": _divides,
    "raises": _raises,
    "remembers": _remembers,
    "sleeps": _sleeps,
    "aborts": _aborts,
    "strange": lambda site, go: Other(worked=1),
    "no_message": lambda site, go: None,
    "leaves": lambda site, go: sys.exit(0),
}
NAMES = [*ATTEMPTS, *OWN]


def _answer(site: Site, go: Go) -> Any:
    """Do what the number stands for."""
    name = NAMES[go.number]
    if name in OWN:
        return OWN[name](site, go)
    target = {**site.memory["target"], "process": os.getppid()}
    return Done(worked=int(worked(name, target)))


FORM: Form[Any] = Form(
    "planted",
    lambda state, cohort: iter(()),  # type: ignore[arg-type,return-value]
    (Exchange("try", (Go,), (Done,), _answer),),
)


class PlantedAnswers(worker.Answers):
    """The worker's answers with planted ones in place of the algorithm's."""

    @classmethod
    def ordered(cls, order: Mapping[str, Any]) -> PlantedAnswers:
        Config.model_validate(order["config"])
        return cls(FORM, {CLIENT: Site(None, seed=1)}, order["seconds"])


def serve(channel: int) -> None:
    """Serve planted answers in a sandbox."""
    worker.Answers = PlantedAnswers  # type: ignore[misc]
    worker.serve(channel)
