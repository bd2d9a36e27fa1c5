"""Whole runs over a real server: what memory learns, by processes that keep keys and network apart.

Each run is made once for the tests that look at it.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from protocols.errors import UnfitMessage
from protocols.wire.roster import AGGREGATOR_NAME
from secure_fgl.config import Config
from secure_fgl.errors import USAGE
from secure_fgl.isolation import sandbox, separation
from secure_fgl.sites import session
from secure_fgl.sites.status import State
from secure_fgl.sites.stopping import stop
from secure_fgl.transports.broker import carrier, requests
from secure_fgl.transports.broker.config import write_config
from secure_fgl.transports.broker.server import start_server
from tests.broker.stage import (
    CARRIER,
    SESSION,
    Memory,
    Sites,
    Stage,
    again,
    assemble,
    banks,
    serving,
    until,
)

LEARNT = ("form", "lost_rounds", "metrics", "model_sha256", "rounds", "backend", "bytes_down",
          "bytes_up", "data", "exchanges", "headline", "clients", "policy")  # fmt: skip
ONE, TWO = "client-1", "client-2"


def same(stage: Stage, config: Config, memory: Memory) -> None:
    """Hold a run to the one in memory: model, scores, traffic, and evidence that verifies."""
    result, expected = stage.result(), memory.run(config).result
    assert {k: result[k] for k in LEARNT} == {k: expected[k] for k in LEARNT}
    assert result["model_sha256"]
    verified = stage.gathered().verify()
    assert verified.failed is None, verified.failed


def tries(name: str, way: Callable[[], object]) -> None:
    """Try something in a party's process; print whether it was refused."""
    try:
        way()
        print(f"{name}: open", flush=True)
    except PermissionError:
        print(f"{name}: refused", flush=True)


@dataclass
class Apart:
    """What the processes of a run tried, and what the kernel says of them."""

    stage: Stage
    config: Config
    status: dict[str, str] = field(default_factory=dict)


def trying(stage: Stage, sites: Sites, port: int) -> None:
    """Let a party's two processes try what the other of them may, before and after."""
    folder = stage.folders[ONE]
    secret = [folder / "identity.json", stage.side(ONE).parent / "charter.json"]
    close_files, close_network = separation.close_files, separation.close_network
    assert carrier.close_files is close_files and session.close_network is close_network

    def files(*given: object, **more: object) -> None:
        for moment in ("before", "after"):
            for path in secret:
                tries(f"{moment} {path.name}", lambda p=path: p.read_bytes())  # type: ignore[misc]
            tries(f"{moment} own", lambda: (folder / "carrier" / "carrier.key").read_bytes())
            if moment == "before":
                close_files(*given, **more)  # type: ignore[arg-type]

    def network() -> None:
        for moment in ("before", "after"):
            tries(f"{moment} connect", lambda: socket.create_connection(("127.0.0.1", port), 2))
            if moment == "before":
                close_network()

    sites.planted = {
        f"{ONE} {CARRIER}": lambda: setattr(carrier, "close_files", files),
        f"{ONE} {SESSION}": lambda: setattr(session, "close_network", network),
    }


@pytest.fixture(scope="module")
def apart(tmp_path_factory: pytest.TempPathFactory) -> Apart:
    config = banks("masks")
    made = Apart(assemble(config, tmp_path_factory.mktemp("apart")), config)
    sites = Sites(made.stage)
    with serving(made.stage):
        trying(made.stage, sites, made.stage.port)
        with sites:
            until(lambda: made.stage.asked() >= 1)
            for kind in (SESSION, CARRIER):
                for name in (ONE, AGGREGATOR_NAME):
                    text = Path(f"/proc/{sites.pid(name, kind)}/status").read_text()
                    made.status[f"{name} {kind}"] = text
            sites.finish()
    return made


def test_a_run_under_masks_is_memorys(apart: Apart, memory: Memory) -> None:
    same(apart.stage, apart.config, memory)


def test_in_a_run_the_kernel_holds_both_processes(apart: Apart) -> None:
    for name, status in apart.status.items():
        assert re.search(r"NoNewPrivs:\s1", status), name
        assert re.search(r"Seccomp:\s2", status), name


def test_in_a_run_the_carrier_opens_no_key_and_the_party_no_connection(apart: Apart) -> None:
    log = apart.stage.log(ONE)
    tried = dict(re.findall(r"(?m)^((?:before|after) \S+): (open|refused)$", log))
    for what in ("identity.json", "charter.json", "connect", "own"):
        assert tried[f"before {what}"] == "open"
        assert tried[f"after {what}"] == ("open" if what == "own" else "refused")


def test_a_charter_that_was_never_joined_has_no_process(apart: Apart, tmp_path: Path) -> None:
    strange = Stage(tmp_path, assemble(banks(), tmp_path).charter, apart.stage.folders, tmp_path)
    started = Sites(strange, [])
    with started:
        assert started.start(ONE).wait() == USAGE
    assert "no such run" in apart.stage.log(ONE)
    assert not (apart.stage.folders[ONE] / f"{strange.run}.{SESSION}.pid").exists()


@pytest.mark.parametrize("policy", ["ckks"])
def test_a_run_under_encryption_is_memorys(policy: str, tmp_path: Path, memory: Memory) -> None:
    config = banks(policy)
    stage = assemble(config, tmp_path)
    with serving(stage), Sites(stage) as sites:
        sites.finish()
    same(stage, config, memory)


def sooner() -> None:
    """Ask again sooner than in use."""
    requests._HOLD_SECONDS = requests._PATIENCE_SECONDS = 1.0


@dataclass
class Battered:
    """A run whose processes were killed one by one; rounds lost by the end of each fault."""

    stage: Stage
    config: Config
    lost: dict[str, list[int]] = field(default_factory=dict)


@pytest.fixture(scope="module")
def battered(tmp_path_factory: pytest.TempPathFactory) -> Battered:
    config = banks("he", rounds=7)
    stage = assemble(config, tmp_path_factory.mktemp("battered"))
    made, path = Battered(stage, config), stage.broker
    listens = write_config([stage.charter], path, listen=f"localhost:{stage.port}")
    servers = [start_server(listens, stage.port)]

    def server() -> None:
        servers[0].kill()
        servers[0].wait()
        servers.append(start_server(listens, stage.port))

    try:
        with Sites(stage, []) as sites:
            sites.planted[f"{AGGREGATOR_NAME} {CARRIER}"] = sooner
            for name in stage.folders:
                sites.start(name)
            faults: dict[str, Callable[[], None]] = {
                "carrier": lambda: sites.kill(TWO, CARRIER),
                "aggregator": lambda: sites.kill(AGGREGATOR_NAME),
                "aggregator's carrier": lambda: sites.kill(AGGREGATOR_NAME, CARRIER),
                "key authority": lambda: sites.kill("key-authority"),
                "server": server,
            }
            for number, (name, fault) in enumerate(faults.items(), 1):
                until(lambda: stage.asked() >= number, seconds=90)  # noqa: B023
                fault()
                until(lambda: stage.asked() > number, seconds=90)  # noqa: B023
                made.lost[name] = stage.status(AGGREGATOR_NAME).lost
            sites.finish()
    finally:
        for server_ in servers:
            server_.kill()
            server_.wait()
    return made


def test_a_killed_carrier_aggregator_authority_or_server_costs_no_round(
    battered: Battered, memory: Memory
) -> None:
    assert {*map(str, battered.lost.values())} == {"[]"}
    same(battered.stage, battered.config, memory)


def test_who_was_killed_came_back(battered: Battered) -> None:
    for name in battered.stage.folders:
        assert battered.stage.status(name).state == State.OVER
    for name in (AGGREGATOR_NAME, "key-authority"):
        assert battered.stage.log(name).count("ended without an order") == 1
    for name in (AGGREGATOR_NAME, TWO):
        assert battered.stage.log(name).count("The carrier ended") == 1
    assert "the broker's connection is lost" in battered.stage.log(ONE)


@dataclass
class Away:
    """A run with a site that is cut off and comes back, and one that is stopped and goes on."""

    stage: Stage
    notes: dict[str, object] = field(default_factory=dict)


@pytest.fixture(scope="module")
def away(tmp_path_factory: pytest.TempPathFactory) -> Away:
    stage = assemble(banks(rounds=40), tmp_path_factory.mktemp("away"), deadline=3)
    made, notes = Away(stage), dict[str, object]()

    def beyond(rounds: int) -> None:
        last = stage.asked() + rounds
        until(lambda: stage.asked() >= last, seconds=60)

    with serving(stage), Sites(stage, []) as sites:
        sites.planted[f"{AGGREGATOR_NAME} {CARRIER}"] = sooner
        for name in stage.folders:
            sites.start(name)
        until(lambda: stage.asked() >= 2)  # all have answered once
        sites.kill(ONE)
        until(lambda: ONE in stage.status(AGGREGATOR_NAME).away)
        until(lambda: ONE not in stage.status(AGGREGATOR_NAME).away)
        notes["killed"] = stage.status(ONE).round
        cut = sites.pid(ONE, CARRIER)
        os.kill(cut, signal.SIGSTOP)
        beyond(2)
        notes["away"] = [*stage.status(AGGREGATOR_NAME).away]
        os.kill(cut, signal.SIGCONT)
        until(lambda: ONE not in stage.status(AGGREGATOR_NAME).away)
        notes["second start"] = sites.start("client-3").wait()
        stop(stage.folders[TWO], seconds=30)
        notes["stopped"] = sites.running[TWO].wait()
        beyond(2)
        notes["without it"] = [*stage.status(AGGREGATOR_NAME).away]
        notes["not again"] = sites.start(TWO).wait()
        sites.start(TWO, again=True)
        until(lambda: TWO not in stage.status(AGGREGATOR_NAME).away)
        del sites.running["client-3"]  # the second one; the first goes on
        sites.finish()
        until(lambda: stage.status("client-3").state == State.OVER)
        notes["over again"] = [sites.start(name).wait() for name in (AGGREGATOR_NAME, ONE)]
    made.notes = notes
    return made


def test_a_party_that_is_killed_comes_back_by_itself(away: Away) -> None:
    assert "ended without an order" in away.stage.log(ONE)
    assert isinstance(back := away.notes["killed"], int)
    assert 1 < back < 40


def test_a_site_that_is_cut_off_costs_its_part_of_the_rounds(away: Away) -> None:
    assert away.notes["away"] == [ONE]
    result = away.stage.result()
    assert result["lost_rounds"] == []
    rounds = {entry["round"] for entry in away.stage.entries(ONE) if entry.get("round")}
    assert max(rounds) == 40
    assert len(rounds) < 40


def test_a_site_that_was_stopped_goes_on_when_it_is_told_to(away: Away) -> None:
    assert (away.notes["stopped"], away.notes["not again"]) == (0, USAGE)
    assert away.notes["without it"] == [TWO]
    assert away.stage.status(TWO).state == State.OVER
    assert "This site was stopped." in away.stage.log(TWO)


def test_a_second_start_is_refused_and_one_of_a_run_that_is_over_ends(away: Away) -> None:
    assert away.notes["second start"] == USAGE
    assert "This site was started already." in away.stage.log("client-3")
    assert away.notes["over again"] == [0, 0]
    assert away.stage.log(ONE).count("The run is over at this site.") == 2


def test_a_run_with_absences_verifies(away: Away) -> None:
    verified = away.stage.gathered().verify()
    assert verified.failed is None, verified.failed


def unfit() -> None:
    """Let the process of answers fail after its first one."""
    asked, ask = [0], sandbox.Sandbox._ask

    def failing(self: sandbox.Sandbox, content: bytes) -> object:
        asked[0] += 1
        if asked[0] > 2:
            raise UnfitMessage("planted by a test")
        return ask(self, content)

    sandbox.Sandbox._ask = failing  # type: ignore[method-assign, assignment]


def test_a_refusal_ends_the_run_for_all_and_its_reason_stays(tmp_path: Path) -> None:
    stage = assemble(banks(rounds=4, clients=3), tmp_path)
    with serving(stage), Sites(stage, []) as sites:
        sites.planted[f"{TWO} {SESSION}"] = unfit
        for name in stage.folders:
            sites.start(name)
        sites.finish()
    states = {name: stage.status(name).state for name in stage.folders}
    assert (states[AGGREGATOR_NAME], states[TWO]) == (State.REFUSED, State.REFUSED)
    assert (states[ONE], states["client-3"]) == (State.OVER, State.OVER)
    assert stage.status(AGGREGATOR_NAME).reason == f"{TWO}: unfit"
    assert "planted by a test" in stage.log(TWO)
    for name in (AGGREGATOR_NAME, ONE, "client-3"):
        assert "planted" not in stage.log(name)
    assert not (stage.side(AGGREGATOR_NAME) / "result.json").exists()


def off() -> None:
    """Let a party's clock be a day late."""
    now = time.time
    time.time = lambda: now() - 86_400


def test_two_runs_of_the_same_parties_and_one_of_others_share_a_server(
    tmp_path: Path, memory: Memory
) -> None:
    config = banks(clients=3)
    first = assemble(config, tmp_path / "first")
    url = first.charter.broker.urls[0]
    others = assemble(config, tmp_path / "others", broker=first.broker, url=url)
    stages = [first, again(first, config), others]
    with contextlib.ExitStack() as stack:
        stack.enter_context(serving(*stages))
        running = [Sites(stage, []) for stage in stages]
        running[2].planted[f"{ONE} {SESSION}"] = off
        for sites in running:
            stack.enter_context(sites)
            for name in sites.stage.folders:
                sites.start(name)
        for sites in running:
            sites.finish()
    for stage in stages:
        same(stage, config, memory)


def test_a_party_that_is_killed_before_it_is_up_is_not_started_again(tmp_path: Path) -> None:
    stage = assemble(banks(clients=3), tmp_path)
    with Sites(stage, []) as sites:
        sites.planted[f"{ONE} {SESSION}"] = lambda: os.kill(os.getpid(), signal.SIGKILL)
        assert sites.start(ONE).wait() == 1
    assert "The session was ended by signal 9 before it was up." in stage.log(ONE)
