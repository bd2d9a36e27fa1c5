"""Exchanges over NVFlare between real processes: pushed, bare, and polled as they were; and idle.

Server and sites are NVFlare's own processes with mutual TLS over loopback. The aggregator's side
and the parties are stand-ins that hold no session: a party sends back what it is given, over the
Unix socket of a real one. So an exchange is measured without what a session computes. All ways take
turns in one job. `--runs DATA` measures whole runs beside the model of the run in memory.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import shutil
import signal
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

if __package__ in (None, ""):  # run as a file: the floors lie one folder up
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks._exchange_runs import measured_runs
from benchmarks._measure import parser, show
from benchmarks._wire import Wire, processor
from secure_fgl.sites.conducting import RelayCarrier
from secure_fgl.sites.control import Control
from secure_fgl.transports.broker import channel
from secure_fgl.transports.broker.codes import TASK, Code
from secure_fgl.transports.nvflare import kits
from secure_fgl.transports.nvflare.job import POLL_SECONDS, JobConsole, write_job

RUN = "5e" * 16
ROOT = Path(__file__).resolve().parent.parent
BARE, POLLED, INTERVAL = "bench.bare", "bench.polled", "bench.interval"
EACH, INSIDE, HANDED = "bench.each", "bench.inside", "bench.handed"  # see `_exchange_job`
POLLED_SECONDS = 0.1  # the poll before exchanges were pushed


def echo(place: str) -> None:
    """Be a party that sends back what it is given."""
    with channel.listen(Path(place)) as listener:
        while True:
            if (connection := channel.accepted(listener, {os.geteuid()})) is None:
                continue
            with connection, contextlib.suppress(channel.Broken, TimeoutError):
                _, data = channel.receive(connection, seconds=10.0)
                channel.send(connection, {"code": "done"}, data)


def provisioned(folder: Path, sites: int, port: int) -> tuple[kits.Kits, dict[str, Path]]:
    """Make kits whose list of classes is the benchmark's, and a folder for each party's socket."""
    names = [f"site-{number}" for number in range(1, sites + 1)]
    made = kits.provision(folder / "kits", names, port=port)
    for kit in (made.server, *made.sites.values()):
        file = kit / "local" / "resources.json"
        told = json.loads(file.read_text("utf-8"))
        told["class_allow_list"] = [
            f"benchmarks._exchange_job.{name}" for name in ("BenchConductor", "BenchSeat")
        ]
        file.write_text(json.dumps(told), "utf-8")
    parties = {}
    for site in (kits.SERVER, *names):
        parties[site] = folder / "parties" / site
        parties[site].mkdir(mode=0o700, parents=True)
    return made, parties


def job(folder: Path, sites: list[str]) -> Path:
    """Write the job that a run would have, with the benchmark's classes in place of the relays."""
    charter: Any = SimpleNamespace(
        run=RUN,
        sites={site: site for site in sites},
        plan=SimpleNamespace(clients=sites),
        policy=SimpleNamespace(smallest_cohort=len(sites)),
    )
    place = write_job(folder / "job", sites, charter=charter)
    for kind, word in (("server", "Conductor"), ("client", "Seat")):
        file = place / "app" / "config" / f"config_fed_{kind}.json"
        told = json.loads(file.read_text("utf-8"))
        ours = f"benchmarks._exchange_job.Bench{word}"
        if kind == "server":
            told["workflows"][0]["path"] = ours
            told["server"]["task_request_interval"] = POLLED_SECONDS
        else:
            told["executors"][0]["executor"]["path"] = ours
            told["executors"][0]["tasks"] += [POLLED, INSIDE]
        file.write_text(json.dumps(told), "utf-8")
    return place


@contextlib.contextmanager
def federation(sites: int) -> Iterator[tuple[RelayCarrier, list[str], Wire, int]]:
    """Yield the aggregator's side of a job that runs, its sites, wire and server's process."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        os.environ["PYTHONPATH"] = os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", "")))
        port = kits.free_port()
        made, parties = provisioned(folder, sites, port)
        spawn, places = multiprocessing.get_context("spawn"), list(parties.items())[1:]
        for _, party in places:
            place = str(channel.of_run(party / channel.SOCKET, RUN))
            process = spawn.Process(target=echo, args=(place,), daemon=True)
            process.start()
            stack.callback(process.join)
            stack.callback(process.kill)
        ours = channel.of_run(parties[kits.SERVER] / channel.SOCKET, RUN)
        listener = stack.enter_context(channel.listen(ours))
        pair = socket.socketpair()
        carrier = RelayCarrier(listener, {os.geteuid()}, Control(pair[0]), RUN)
        processes = kits.Processes(made, parties)
        stack.callback(processes.stop)
        for site in (kits.SERVER, *made.sites):
            processes.start_engine(site)
        with JobConsole(made, patience=120.0) as console:
            number = console.submit(job(folder, [*made.sites]))
            bundles = {site: [b"x"] for site in made.sites}
            while [s.code for s in carrier.carry(TASK, bundles, 60.0, ()).values()] != (
                [Code.DONE] * sites
            ):
                time.sleep(0.2)  # until every party's socket is there
            yield carrier, [*made.sites], Wire(port), processes.running[kits.SERVER].pid
            carrier.over()
            console.wait(number, patience=120.0)


def exchanges(carrier: RelayCarrier, sites: list[str], sizes: list[int], repeats: int) -> Any:
    """Return seconds by size and way; the ways take turns."""
    found: dict[int, dict[str, list[float]]] = {}
    for size in sizes:
        data = os.urandom(size)
        bundles = {site: [data] for site in sites}
        ways: dict[str, Callable[[], float]] = {
            "bare": partial(_told, carrier, BARE, bundles),
            "each": partial(_told, carrier, EACH, bundles),
            "inside": partial(_told, carrier, INSIDE, bundles),
            "handed": partial(_told, carrier, HANDED, bundles),
            "pushed": partial(_timed, carrier, TASK, bundles),
            "polled": partial(_timed, carrier, POLLED, bundles),
        }
        found[size] = {way: [] for way in ways}
        for turn in range(repeats + 1):  # the first is not counted
            for way, once in ways.items():
                seconds = once()
                if turn:
                    found[size][way].append(seconds)
    return found


def _timed(carrier: RelayCarrier, name: str, bundles: Mapping[str, list[bytes]]) -> float:
    start = time.perf_counter()
    found = carrier.carry(name, bundles, 60.0, ())
    seconds = time.perf_counter() - start
    if {site: list(said.envelopes) for site, said in found.items()} != dict(bundles):
        codes = {site: str(said.code) for site, said in found.items()}
        raise ArithmeticError(f"What came back is not what was sent: {name}, {codes}.")
    return seconds


def _told(carrier: RelayCarrier, name: str, bundles: Mapping[str, list[bytes]]) -> float:
    (said,) = carrier.carry(name, bundles, 60.0, ()).values()
    found: float = json.loads(said.envelopes[0])
    return found


def idle(wire: Wire, server: int, sites: int, seconds: float) -> dict[str, float]:
    """Return what waiting costs, a site: bytes a second each way, percent of a core of the server.

    Both of the server's processes count. A site's engine holds its connections open all the time.
    """
    before, used = wire.look(), processor(server)
    time.sleep(seconds)
    after, now = wire.look(), processor(server)
    each = sites * seconds
    return {
        "to_site_bytes_per_s": (after[0] - before[0]) / each,
        "from_site_bytes_per_s": (after[1] - before[1]) / each,
        "server_core_percent": 100 * (now - used) / each,
    }


def measured(sites: int, sizes: list[int], repeats: int, rest: float) -> dict[str, Any]:
    """Measure exchanges, and waiting under either poll."""
    found: dict[str, Any] = {"sites": sites}
    with federation(sites) as (carrier, names, wire, server):
        seconds = exchanges(carrier, names, sizes, repeats)
        found |= {f"polled_idle_{k}": v for k, v in idle(wire, server, sites, rest).items()}
        one = {names[0]: [json.dumps(POLL_SECONDS).encode()]}
        carrier.carry(INTERVAL, one, 60.0, ())
        time.sleep(1.0)
        data = os.urandom(size := sizes[-1])
        before = wire.look()
        for _ in range(repeats):
            _timed(carrier, TASK, {name: [data] for name in names})
        after = wire.look()
        sent = 2 * size * sites * repeats
        found["wire_over_bytes"] = (sum(after) - sum(before)) / sent
        found |= {f"idle_{k}": v for k, v in idle(wire, server, sites, rest).items()}
    for size, ways in seconds.items():
        for way, values in ways.items():
            found[f"{way}_{size}_s"] = statistics.median(values)
        for way in ("each", "inside", "handed", "pushed"):
            pairs = zip(ways[way], ways["bare"], strict=True)
            found[f"{way}_over_bare_{size}"] = statistics.median(a / b for a, b in pairs)
        pairs = zip(ways["polled"], ways["pushed"], strict=True)
        found[f"polled_over_pushed_{size}"] = statistics.median(a / b for a, b in pairs)
    return found


def main() -> int:
    """Measure and print."""
    options = parser("Exchanges over NVFlare.", repeats=20)
    options.add_argument("--sites", type=int, default=5)
    options.add_argument("--sizes", type=int, nargs="+", default=[1000, 850_000])
    options.add_argument("--rest", type=float, default=30.0, help="seconds of waiting measured")
    options.add_argument("--runs", metavar="DATA", help="measure whole runs on Cora instead")
    options.add_argument("--rounds", type=int, default=10)
    options.add_argument("--policies", nargs="+", default=["masks", "he"])
    args = options.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # no process is left behind
    if shutil.which("ss") is None:
        sys.stderr.write("ss is missing: bytes on the wire are counted with it (iproute2)\n")
        return 2
    if args.runs:
        show(measured_runs(args.runs, args.rounds, args.repeats, args.policies), args.format)
    else:
        show(measured(args.sites, args.sizes, args.repeats, args.rest), args.format)
    return 0


if __name__ == "__main__":
    sys.exit(main())
