"""How soon a rehearsal's processes are there, and a killed session is again."""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from protocols.plan.plan import roles_of
from protocols.wire.roster import AGGREGATOR_NAME
from secure_fgl.charters import joining
from secure_fgl.charters.broker import DEADLINE, Broker, new_carrier_key
from secure_fgl.charters.charter import Charter
from secure_fgl.charters.party import new_identity
from secure_fgl.config import Config
from secure_fgl.federation import Federation
from secure_fgl.sites.rehearsal import Processes
from secure_fgl.transports.broker.config import keep_connection, new_root, write_config
from secure_fgl.transports.broker.server import free_port, running


def _config(sites: int) -> Config:
    partition = {"name": "by_owner", "clients": sites}
    data = {"name": "synthetic_banks", "options": {"customers": 40, "transactions": 60}}
    return Config.parse({
        "algorithm": {"name": "fed_avg", "rounds": 1}, "model": {"hidden": 8}, "policy": "masks",
        "data": {**data, "partition": partition}, "seed": 1,
    })  # fmt: skip


def agreed(
    folder: Path, config: Config, port: int, deadline: int = DEADLINE
) -> tuple[Charter, dict[str, Path]]:
    """Let every party make its keys and sign one charter; return it and their folders by name."""
    federation = Federation.from_config(config)
    plan = federation.plan()
    roles = roles_of(plan, federation.policy)
    folders = {name: folder / name for name in roles}
    announced = [new_identity(folders[name], name, role) for name, role in roles.items()]
    charter = Charter.draw_up(
        announced, {name: new_carrier_key(place) for name, place in folders.items()},
        broker=Broker((f"tls://localhost:{port}",), new_root(folder / "broker"), deadline),
        plan=plan, policy=federation.policy, config=config,
        organisations={name: f"Organisation {name}" for name in roles},
        spec=federation.own_spec(),
    )  # fmt: skip
    for place in folders.values():
        charter = joining.sign(place, charter)
    for name, place in folders.items():
        joining.keep(place, charter)
        keep_connection(place, charter, name)
    return charter, folders


def _until(true: Callable[[], bool]) -> float:
    start = time.perf_counter()
    while not true():
        if time.perf_counter() - start > 120.0:
            raise TimeoutError
        time.sleep(0.005)
    return time.perf_counter() - start


def _session(supervisor: int) -> int:
    """Return the process of the session that a `site start` keeps up."""
    listing = subprocess.run(  # noqa: S603 - a number
        ["ps", "-o", "pid=,args=", "--ppid", str(supervisor)],  # noqa: S607
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    (line,) = [line for line in listing.splitlines() if "broker.carrier" not in line]
    return int(line.split()[0])


def measured_starts(sites: int, repeats: int) -> dict[str, Any]:
    """Return medians: until all sites of a rehearsal are up, and until a killed session answers.

    No aggregator is there, so that the sites wait and nothing else is at work.
    """
    starts, backs = list[float](), list[float]()
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as base:
            port = free_port()
            charter, folders = agreed(Path(base), _config(sites), port)
            file = write_config([charter], Path(base) / "broker", listen=f"localhost:{port}")
            waiting = {n: place for n, place in folders.items() if n != AGGREGATOR_NAME}
            began = time.perf_counter()
            with running(file, port), Processes(waiting, None, forks=True) as processes:
                _until(lambda: all(map(_up, waiting.values())))  # noqa: B023 - called at once
                starts.append(time.perf_counter() - began)
                name = next(iter(waiting))
                killed = _session(processes.running[name].pid)
                os.kill(killed, signal.SIGKILL)
                backs.append(_until(lambda: _is_back(folders[name], 2)))  # noqa: B023
    return {
        "sites": sites, "load": os.getloadavg()[0], "start_s": statistics.median(starts),
        "back_s": statistics.median(backs), "repeats": repeats,
    }  # fmt: skip


def _up(folder: Path) -> bool:
    return _is_back(folder, 1)


def _is_back(folder: Path, times: int) -> bool:
    """Tell whether the party's session has been up as often as that."""
    log = folder / "start.log"
    return log.exists() and log.read_bytes().count(b"The site is up.") >= times
