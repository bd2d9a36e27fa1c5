"""Two hundred rounds with a process killed every few seconds."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

import pytest

from protocols.wire.roster import AGGREGATOR_NAME
from secure_fgl.sites.status import State
from secure_fgl.transports.broker.config import write_config
from secure_fgl.transports.broker.server import start_server
from tests.broker.stage import CARRIER, SESSION, Sites, assemble, banks, until
from tests.broker.test_runs import sooner

ROUNDS = 200


@pytest.mark.long
def test_nothing_is_lost_but_what_a_fault_may_cost(tmp_path: Path) -> None:
    draw, stage = random.Random(5), assemble(banks("he", rounds=ROUNDS), tmp_path, deadline=60)
    config = write_config([stage.charter], stage.broker, listen=f"localhost:{stage.port}")
    servers, killed = [start_server(config, stage.port)], dict[str, int]()
    try:
        with Sites(stage, []) as sites:
            sites.planted[f"{AGGREGATOR_NAME} {CARRIER}"] = sooner
            for name in stage.folders:
                sites.start(name)
            until(lambda: stage.asked() >= 2)
            while stage.asked() < ROUNDS - 20:
                what = draw.choice(["server", "cut", SESSION, SESSION, CARRIER, CARRIER])
                name = draw.choice([*stage.folders])
                if what == "server":
                    servers[-1].kill()
                    servers[-1].wait()
                    servers.append(start_server(config, stage.port))
                elif what == "cut":
                    pid = sites.pid(name, CARRIER)
                    os.kill(pid, signal.SIGSTOP)
                    time.sleep(draw.uniform(0.2, 3.0))
                    os.kill(pid, signal.SIGCONT)
                else:
                    sites.kill(name, what)
                kind = "client" if name in stage.charter.plan.clients else name
                killed[f"{kind} {what}"] = killed.get(f"{kind} {what}", 0) + 1
                before = stage.asked()
                until(lambda: stage.asked() > before, seconds=120)  # noqa: B023
                time.sleep(draw.uniform(0.5, 2.0))
            sites.finish(600)
    finally:
        for server in servers:
            server.kill()
            server.wait()
    assert sum(killed.values()) >= 10, killed
    result = stage.result()
    costly = sum(count for fault, count in killed.items() if fault.startswith("client"))
    assert result["rounds"] == ROUNDS
    assert len(result["lost_rounds"]) <= costly, killed
    for name in stage.folders:
        assert stage.status(name).state == State.OVER
    verified = stage.gathered().verify()
    assert verified.failed is None, verified.failed
