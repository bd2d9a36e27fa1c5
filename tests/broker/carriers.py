"""Real carriers at a real server, in front of parties that are functions of this process."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from protocols.wire.roster import AGGREGATOR_NAME
from secure_fgl.sites.session import Callers, OwnCarrier
from secure_fgl.sites.start import HOUSE
from secure_fgl.transports.broker import channel
from secure_fgl.transports.broker.channel import SOCKET, Gone, Stopped, socket_of
from secure_fgl.transports.broker.messages import SiteReply, decode, encode
from tests.broker.stage import Stage, until

Work = Callable[[Sequence[bytes]], Sequence[bytes]]


@dataclass
class Carried:
    """The carriers of one run, and the aggregator's way to its own."""

    stage: Stage
    limit: int | None
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    ending: threading.Event = field(default_factory=threading.Event)
    callers: Callers | None = None
    more: Mapping[str, str] = field(default_factory=dict)

    def start(self, name: str) -> None:
        """Start a party's carrier, or start it anew."""
        folder, stage = self.stage.folders[name], self.stage
        to = stage.connection(name)
        if self.limit is not None:
            to = replace(to, limits=dict.fromkeys(to.limits, self.limit))
        (folder / "carrier" / f"{stage.run}.json").write_text(to.text())
        listens = socket_of(folder / SOCKET, stage.run)
        paths = [*filter(None, [self.more.get("PYTHONPATH")]), HOUSE]
        environment = {**os.environ, **self.more, "PYTHONPATH": os.pathsep.join(paths)}
        with (folder / "carrier.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [sys.executable, "-P", "-m", "secure_fgl.transports.broker.carrier", "--alone",
                 str(folder / "carrier"), stage.run, str(listens),
                 "--secret", str(folder / "identity.json")],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment,
            )  # fmt: skip

    def log(self, name: str) -> str:
        file = self.stage.folders[name] / "carrier.log"
        return file.read_text() if file.exists() else ""

    def up(self, *names: str) -> None:
        """Wait until carriers are connected."""
        for name in names or [*self.processes]:
            until(lambda name=name: "connected to the broker" in self.log(name))  # type: ignore[misc]

    def kill(self, name: str) -> None:
        self.processes[name].kill()
        self.processes[name].wait()

    def carry(
        self, bundles: Mapping[str, Sequence[bytes]], seconds: float = 30.0, *slow: str
    ) -> dict[str, SiteReply]:
        """Have the aggregator's carrier carry."""
        assert self.callers is not None
        return OwnCarrier(self.callers).carry("envelopes", bundles, seconds, {*slow})


@contextlib.contextmanager
def carried(
    stage: Stage,
    parties: Mapping[str, Work],
    *,
    limit: int | None = None,
    more: Mapping[str, str] | None = None,
) -> Iterator[Carried]:
    """Yield real carriers of these parties and of the aggregator.

    Args:
        stage: whose run it is; its server is running.
        parties: what each does with the envelopes of a request.
        limit: bytes of a message, in place of the charter's.
        more: environment of the carriers.
    """
    made, threads = Carried(stage, limit, more=more or {}), []
    with contextlib.ExitStack() as stack:
        for name, work in {**parties, AGGREGATOR_NAME: None}.items():
            place: Path = socket_of(stage.folders[name] / SOCKET, stage.run)
            listener = stack.enter_context(channel.bound(place))
            stack.callback(place.unlink, missing_ok=True)
            listener.listen(8)
            callers = Callers(listener, {os.geteuid()}, made.ending.is_set)
            if work is None:
                made.callers = callers
                continue
            threads.append(threading.Thread(target=_answers, args=(callers, work)))
        for thread in threads:
            thread.start()
        try:
            for name in (*parties, AGGREGATOR_NAME):
                made.start(name)
            yield made
        finally:
            made.ending.set()
            for process in made.processes.values():
                process.send_signal(signal.SIGCONT)
                process.kill()
                process.wait()
            for thread in threads:
                thread.join()
            assert made.callers is not None
            made.callers.hang_up()


def _answers(callers: Callers, work: Work) -> None:
    while True:
        try:
            head, envelopes = decode(callers.receive())
            assert head["do"] == "envelopes"
            callers.send(encode({"code": "done"}, work(envelopes)))
        except Stopped:
            callers.hang_up()
            return
        except Gone:
            callers.hang_up()
