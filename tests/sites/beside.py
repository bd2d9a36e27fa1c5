"""A run of which one party is a process of its own, and all others sit in the test's process.

The one is reached as in a federation: over the relay's own code and the party's socket.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.signal import Signal

from protocols.evidence.ledger import read_lines
from protocols.sessions.engine import Delivery
from protocols.wire.roster import AGGREGATOR_NAME
from secure_fgl.sites.answering import Answerer
from secure_fgl.sites.process import conduct, open_process
from secure_fgl.transports.nvflare import wire
from secure_fgl.transports.nvflare.executor import Seat
from tests.sites.stage import SERVER_SITE, Parties, side

TAP = Path(__file__).parent / "tap"


@dataclass
class Relay:
    """The relay of one site's job, with requests in any order and under any name.

    Attributes:
        run: the job's.
    """

    run: str
    count: int = 0

    def __post_init__(self) -> None:
        self.seat = Seat(self.run)

    def ask(
        self, *envelopes: bytes, name: str | None = None, task: str = wire.TASK
    ) -> tuple[str, list[bytes]]:
        """Hand a request over; return NVFlare's code and the answers.

        Args:
            envelopes: what it carries.
            name: of the request; a new one by default.
            task: what it asks.
        """
        self.count += 1
        sent = wire.request(name or f"r{self.count}", envelopes, seconds=240.0, hold=240.0)
        said = self.seat.execute(task, sent, FLContext(), Signal())
        code = str(said.get_return_code(ReturnCode.OK))
        return code, wire.unpack(said) if code == ReturnCode.OK else []


@dataclass
class Beside:
    """Carries envelopes: to one site over its relay, to all others directly.

    Attributes:
        parties: of the run.
        real: the site whose party is a process of its own.
        carry: hands one envelope to it and returns what it says; by default as it is, once.
        asked: what it was asked, and what it said to it first.
    """

    parties: Parties
    real: str
    carry: Callable[[Beside, bytes], list[bytes]] | None = None
    asked: list[tuple[bytes, list[bytes]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.relay = Relay(self.parties.charter.run)
        there = [site for site in self.parties.folders if site not in (SERVER_SITE, self.real)]
        self.others = {site: Answerer(open_process(self.parties.kit(site))) for site in there}

    def exchange(self, deliveries: Sequence[Delivery]) -> list[Delivery]:
        """Carry one exchange."""
        found: list[bytes] = []
        for one in deliveries:
            site = self.parties.charter.sites[one.to]
            if site == self.real:
                found += self.carry(self, one.data) if self.carry else self.once(one.data)
            else:
                found += self.others[site].answer(wire.TASK, [one.data]).envelopes
        return [Delivery(AGGREGATOR_NAME, data) for data in found]

    def once(self, data: bytes) -> list[bytes]:
        """Hand an envelope to the one that is a process; it must answer."""
        code, said = self.relay.ask(data)
        assert code == ReturnCode.OK, code
        self.asked.append((data, said))
        return said

    def played(self) -> str | None:
        """Play the run to its end, at every party; return the model's digest."""
        office = open_process(self.parties.kit(SERVER_SITE))
        try:
            digest = conduct(office, self)
        finally:
            office.files.close()
        word = self.parties.end()
        for other in self.others.values():
            other.answer(wire.END, [word])
            assert other.over
        assert self.relay.ask(word, task=wire.END) == (ReturnCode.OK, [])
        return digest

    def close(self) -> None:
        """Let go of what the parties in this process hold."""
        for other in self.others.values():
            other.process.files.close()


@contextlib.contextmanager
def beside(
    parties: Parties, real: str, carry: Callable[[Beside, bytes], list[bytes]] | None = None
) -> Iterator[Beside]:
    """Yield a run in which `real` is to be a process of its own."""
    found = Beside(parties, real, carry)
    try:
        yield found
    finally:
        found.close()


def entries(folder: Path, kind: str) -> list[dict[str, object]]:
    """Return a party's ledger entries of one kind, as far as its ledger is written."""
    path = side(folder) / "ledger" / f"{folder.name}.jsonl"
    data = path.read_bytes() if path.exists() else b""
    found = [entry for entry, _ in read_lines(data[: data.rfind(b"\n") + 1])]
    return [entry for entry in found if entry["kind"] == kind]


def tapped() -> str:
    """Return the search path of a party's process in which the tap stands first."""
    from tests.sites.processes import ROOT

    return os.pathsep.join([str(TAP), str(ROOT)])
