"""A full disk at one client: it stops there, nothing unrecorded leaves, and nobody else is hurt."""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from protocols.wire.envelope import Envelope
from secure_fgl.sites.process import open_process
from secure_fgl.sites.session import Answerer
from secure_fgl.store.finished_run import Run
from secure_fgl.store.run_folder import FileStore
from secure_fgl.store.sides.hand_overs import gather_files, write_hand_over
from secure_fgl.store.state_store import FileStateStore, KeptStateStore
from secure_fgl.transports.broker.messages import TASK, Code, SiteReply
from tests.sites.faulty import Dying, Sums, unrecorded
from tests.sites.one_process import Desk, played
from tests.sites.stage import Parties, assemble, banks

FULL, ROUNDS = "client-2", 2


@dataclass
class Disk:
    """What a write meets while the disk is full for one thread, the client's that answers."""

    thread: int = 0
    met: list[str] = field(default_factory=list)

    def fill(self, full: bool) -> None:
        self.thread = threading.get_ident() if full else 0

    def fills(self, patch: pytest.MonkeyPatch, kind: type, method: str, what: str) -> None:
        """Let one method that writes fail while the disk is full, with half of it written."""
        write = getattr(kind, method)

        def limited(holder: Any, *arguments: Any) -> Any:
            if threading.get_ident() != self.thread:
                return write(holder, *arguments)
            self.met.append(what)
            with contextlib.suppress(Exception):
                if what == "ledger":
                    os.write(holder._file, arguments[0][: len(arguments[0]) // 2])
                    os.ftruncate(holder._file, holder._size)
            raise OSError(28, "No space left on device")

        patch.setattr(kind, method, limited)


@dataclass
class Filling(Dying):
    """The disk of one client is full from its first update on, until that round is over.

    Its process ends where it cannot write, and its supervisor starts it again; what cannot even
    start is started again later.
    """

    fill: Callable[[bool], None] = lambda full: None
    codes: list[Code] = field(default_factory=list)
    left: list[bytes] = field(default_factory=list)
    why: Exception | None = None
    there: bool = True

    def __call__(self, desk: Desk, party: str, task: str, sent: Sequence[bytes]) -> SiteReply:
        if party != FULL:
            return super().__call__(desk, party, task, sent)
        header = Envelope.decode(sent[0]).header if task == TASK else None
        self.fill(header is not None and header.round == 1 and header.item.startswith("train"))
        try:
            if not self.there:
                with contextlib.suppress(Exception):
                    desk.seats[FULL] = Answerer(open_process(self.parties.kit(FULL)))
                    self.there = True
            reply = desk.deliver(party, task, sent) if self.there else SiteReply(Code.AWAY)
        finally:
            self.fill(False)
        self.codes.append(reply.code)
        self.left += reply.envelopes
        if self.there and desk.seats[FULL].broken:
            self.why = desk.seats[FULL].why
            desk.seats[FULL].process.files.close()
            self.there = False
        return reply


def holds(parties: Parties, filling: Filling, sums: Sums, folder: Path) -> None:
    """Hold the run to what must be true of it, whichever write it was."""
    assert Code.FAILED in filling.codes and filling.codes[-1] is Code.DONE  # it closed its ledger
    assert parties.result()["lost_rounds"] == []
    counts = sums.check(smallest=4)
    assert counts[0] == 4 and counts[-1] == 5  # its round alone was lost to it
    gone = parties.folders[FULL]
    assert filling.left and unrecorded(gone, filling.left) == []
    assert unrecorded(parties.folders["client-1"], filling.left[:1]) != []  # the control
    handed = [write_hand_over(f, folder / f"{f.name}.zip")[0] for f in parties.folders.values()]
    assert gather_files(handed, folder / "run").missing == ()
    found = Run(folder / "run").verify()
    assert found.verdict == "self-consistent only", found.failed


WRITES = {
    "ledger": (FileStore, "append"),
    "state": (KeptStateStore, "patch"),
    "capture": (FileStateStore, "put"),
}


@pytest.mark.parametrize(
    "what", ["ledger", *(pytest.param(w, marks=pytest.mark.long) for w in ("state", "capture"))]
)
def test_a_write_that_fails_ends_the_session_and_its_round_alone(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parties, sums = assemble(banks(rounds=ROUNDS), tmp_path / "parties"), Sums.watched(monkeypatch)
    disk = Disk()
    disk.fills(monkeypatch, *WRITES[what], what)
    filling = Filling(parties, (), fill=disk.fill)
    played(parties, filling)
    assert disk.met
    holds(parties, filling, sums, tmp_path)
    assert "No space left" in (parties.folders[FULL] / "site.log").read_text()


@contextlib.contextmanager
def small_disk(place: Path) -> Iterator[bool]:
    """Mount a file system of four megabytes; False where this machine does not let us."""
    place.mkdir(parents=True)
    command = ["mount", "-t", "tmpfs", "-o", "size=4m,mode=0700", "tmpfs", str(place)]
    mounted = os.geteuid() == 0 and not subprocess.run(command, check=False).returncode
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.mark.long
def test_a_file_system_that_is_really_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "parties" / "client-2"
    with small_disk(place) as mounted:
        if not mounted:
            pytest.skip("this machine lets nobody mount a small file system")
        sums = Sums.watched(monkeypatch)
        parties = assemble(banks(rounds=ROUNDS), tmp_path / "parties")
        ballast = place / "ballast"

        def fill(full: bool) -> None:
            ballast.unlink(missing_ok=True)
            if full:
                with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
                    while True:
                        file.write(bytes(4096))

        filling = Filling(parties, (), fill=fill)
        played(parties, filling)
        holds(parties, filling, sums, tmp_path)
        assert "No space left" in str(filling.why)  # the log had no room for it
