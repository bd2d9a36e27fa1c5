"""A process for each party, which the kernel lets read nothing of another party.

As root each is of a user id of its own, where the code can be read by others. Else Landlock takes
everything away but the system, the code, and the party's own places.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import struct
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import secure_fgl
from protocols.sessions.engine import Delivery
from secure_fgl.charters.party import PartyKit
from secure_fgl.isolation import kernel
from secure_fgl.sites.process import conduct, open_process

FIRST_UID = 61_200
HOUSE = Path(secure_fgl.__file__).resolve().parents[1]
_SYSTEM = ("/bin", "/dev", "/etc", "/lib", "/lib64", "/proc", "/sys", "/usr")
_ALL = (1 << 13) - 1  # rights of Landlock's first version; making and removing are among them


@cache
def by_user_ids() -> bool:
    """Whether parties can have user ids of their own here."""
    if os.geteuid() != 0:
        return False
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            _become(FIRST_UID)
            (HOUSE / "secure_fgl" / "__init__.py").read_bytes()
            Path(os.__file__).read_bytes()
            next(Path(sys.prefix).iterdir())
            os._exit(0)
        os._exit(1)
    return os.waitpid(child, 0)[1] == 0


def give(place: Path, uid: int) -> None:
    """Make a folder, with all in it, one party's own."""
    for path in (place, *place.rglob("*")):
        path.chmod(0o700 if path.is_dir() else 0o600)
        if by_user_ids():
            os.chown(path, uid, uid)


def _become(uid: int) -> None:
    os.setgroups([])
    os.setgid(uid)
    os.setuid(uid)


def _confine(own: Sequence[Path]) -> None:
    rules = [*map(Path, _SYSTEM), HOUSE, Path(sys.prefix), Path(sys.base_prefix), *own]
    attribute = struct.pack("Q", _ALL)
    ruleset = kernel.call(kernel._CREATE_RULESET, attribute, len(attribute), 0)
    for path in rules:
        if not path.exists():
            continue
        handle = os.open(path, os.O_PATH)
        rights = _ALL if path.is_dir() else (1 << 1) | (1 << 2)
        rule = struct.pack("=Qi", rights, handle)
        kernel.call(kernel._ADD_RULE, ruleset, kernel._PATH_BENEATH, rule, 0)
        os.close(handle)
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
    kernel.call(kernel._RESTRICT_SELF, ruleset, 0)


@dataclass
class Apart:
    """One party's process, and the parent's end of the pipe to it."""

    pid: int
    pipe: Connection

    def ask(self, **question: Any) -> Any:
        self.pipe.send_bytes(json.dumps(question).encode())
        return self.hear()

    def hear(self) -> Any:
        assert self.pipe.poll(120.0), "a party's process does not answer"
        found = json.loads(self.pipe.recv_bytes())
        assert "error" not in found, found
        return found


def start(
    uid: int, own: Sequence[Path], environment: Mapping[str, str], serve: Callable[[Any], Any]
) -> Apart:
    """Fork a process that the kernel keeps to its `own` places, and let it serve questions."""
    ours, theirs = Pipe()
    child = os.fork()
    if child:
        theirs.close()
        return Apart(child, ours)
    try:
        ours.close()
        os.environ.pop("SECURE_FGL_DATA", None)
        os.environ.update(environment)
        os.umask(0o077)
        if by_user_ids():
            _become(uid)
        else:
            _confine(own)
        while True:
            question = json.loads(theirs.recv_bytes())
            try:
                found = serve({**question, "pipe": theirs})
            except Exception as error:
                found = {"error": f"{type(error).__name__}: {error}"}
            theirs.send_bytes(json.dumps(found).encode())
    except BaseException:
        os._exit(0)
    os._exit(1)


@dataclass
class PartyServer:
    """What a party's process does when it is asked."""

    folder: Path
    process: Any = None
    read: Callable[[str], Any] = field(default=lambda path: None)

    def __call__(self, question: Mapping[str, Any]) -> Any:
        do = question["do"]
        if do == "read":
            return {"readable": [path for path in question["paths"] if _opens(path)]}
        if do == "call":
            return {"told": self.read(question["path"])}
        if do == "open":
            self.process = open_process(PartyKit.load(self.folder))
            return {}
        if do == "receive":
            answers = self.process.receive(bytes.fromhex(question["data"]))
            return {"answers": [answer.data.hex() for answer in answers]}
        if do == "conduct":
            digest = conduct(self.process, Piped(question["pipe"]))
            charter = self.process.kit.charter
            return {"digest": digest, "end": charter.end(self.process.kit.me.signing).hex()}
        self.process.kit.charter.check_end(bytes.fromhex(question["note"]))
        self.process.close()
        return {}


def _opens(path: str) -> bool:
    try:
        os.close(os.open(path, os.O_RDONLY))
    except OSError:
        return False
    return True


@dataclass
class Piped:
    """In the aggregator's process: what it sends goes to the test, which carries it."""

    pipe: Connection

    def exchange(self, deliveries: Sequence[Delivery]) -> list[Delivery]:
        out = [[delivery.to, delivery.data.hex()] for delivery in deliveries]
        self.pipe.send_bytes(json.dumps({"out": out}).encode())
        back = json.loads(self.pipe.recv_bytes())
        return [Delivery("aggregator", bytes.fromhex(data)) for data in back]


def carry(parties: Mapping[str, Apart], aggregator: Apart) -> Any:
    """Play the network until the aggregator is done; return what it says then."""
    said = aggregator.ask(do="conduct")
    while "out" in said:
        back: list[str] = []
        for to, data in said["out"]:
            back += parties[to].ask(do="receive", data=data)["answers"]
        aggregator.pipe.send_bytes(json.dumps(back).encode())
        said = aggregator.hear()
    return said


@contextlib.contextmanager
def ended(started: list[Apart]) -> Iterator[None]:
    """End every process that was started, whatever happens."""
    try:
        yield
    finally:
        for one in started:
            os.kill(one.pid, signal.SIGKILL)
            os.waitpid(one.pid, 0)
            one.pipe.close()
