"""Authority, witness, relay, tag servers and matcher killed, each, over real NVFlare processes.

All of them are waited for, so no round is lost. And a session that hangs.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

pytest.importorskip("nvflare", reason="the extra nvflare is not installed")

from protocols.policy.policy import PrivacyPolicy
from protocols.wire.roles import Role
from secure_fgl.config import Config
from secure_fgl.federation import Federation
from secure_fgl.store.finished_run import Run
from secure_fgl.store.sides.hand_overs import gather_files, write_hand_over
from secure_fgl.transports.nvflare import kits
from secure_fgl.transports.nvflare.job import JobConsole
from tests.sites.alike import LEARNT, check_models, check_result, mixtures
from tests.sites.processes import ROOT, Stage, session_process, staged, until
from tests.sites.stage import Parties, assemble, banks
from tests.sites.test_site_process import AUTHORITY, Site, ask, first_call
from tests.secure_fgl.test_match_run import _config as matching
from tests.secure_fgl.test_match_run import _policy as matched

pytestmark = pytest.mark.long

ROUNDS, SEED, USERS = 4, 7, 6
SAME = (*LEARNT, "bytes_up", "exchanges")


def mixing(folder: Path) -> Config:
    """Return FedEgo under `shuffled`, with one mixture in all, so that two runs learn the same.

    What the operating system draws moves nothing then. The split gives one client enough records
    for a mixture, 45, and only one; and on this grid of 4095 levels their labels' shares need no
    rounding.
    """
    policy = PrivacyPolicy.preset("shuffled").document()
    mix = next(guard for guard in policy["rules"]["MIXED"] if guard["guard"] == "mix")
    mix["bits"] = 13
    (folder / "policy.yaml").write_text(json.dumps(policy))
    document = banks(rounds=ROUNDS, algorithm="fed_ego").model_dump(mode="json")
    document["policy"] = str(folder / "policy.yaml")
    document["data"]["split"], document["model"]["lr"] = [0.386, 0.307, 0.307], 0.05
    return Config.parse(document)


CELLS: dict[str, tuple[Callable[[Path], Config], list[Role]]] = {
    "fed_avg": (lambda _: banks(rounds=ROUNDS, policy="he"), [Role.KEY_AUTHORITY]),
    "fed_pub": (
        lambda _: banks(rounds=ROUNDS, policy="pilot", algorithm="fed_pub"),
        [Role.WITNESS],
    ),
    "fed_ego": (mixing, [Role.RELAY]),
}


def killed(stage: Stage, processes: kits.Processes, site: str, chance: random.Random) -> None:
    """Kill a party's session while it is at work, at a moment that a seed decides."""
    log = stage.parties.folders[site] / "process.log"
    until(lambda: "The site is up." in log.read_text(), seconds=240.0)
    before = len(stage.entries(site))
    until(lambda: len(stage.entries(site)) > before, seconds=240.0)  # it is asked something
    time.sleep(chance.random() * 0.5)
    assert not stage.finished(), "the run was over before it could be killed"
    os.kill(session_process(processes, site), signal.SIGKILL)
    until(lambda: log.read_text().count("The site is up.") == 2, seconds=240.0)


@pytest.mark.parametrize("name", CELLS)
def test_who_is_not_a_client_costs_no_round(name: str, tmp_path: Path) -> None:
    made, roles = CELLS[name]
    config = made(tmp_path)
    twin = played_in_memory(config, tmp_path)
    chance = random.Random(SEED)
    with (
        staged(config, tmp_path, None) as (stage, processes),
        JobConsole(stage.made, patience=120.0) as console,
    ):
        job = console.submit(stage.job("first"))
        for site, folder in stage.parties.folders.items():
            role = stage.parties.charter.roster.party(folder.name).role
            if role in roles:
                killed(stage, processes, site, chance)
        console.wait(job, patience=300.0)
        assert console.status(job) == "FINISHED:COMPLETED"
    holds(stage.parties, tmp_path)
    if name != "fed_pub":  # so every total was that of all clients
        check_result(stage.parties, twin, SAME)
        check_models(stage.parties, twin)
    else:  # whose rows are combined under CKKS, which rounds
        for key, value in twin.result["metrics"].items():
            if key.endswith("accuracy"):
                assert stage.parties.result()["metrics"][key] == pytest.approx(value, abs=0.02)
    if name == "fed_ego":
        assert sorted(mixtures(stage.parties)) == [0, 0, 0, 0, 1]


def test_tag_servers_and_matcher_cost_no_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECURE_FGL_STATE", str(tmp_path / "keys"))
    config = matching(tmp_path, matched(mode="oprf"), users=USERS)
    twin, chance = played_in_memory(config, tmp_path), random.Random(SEED)
    with (
        staged(config, tmp_path, None) as (stage, processes),
        JobConsole(stage.made, patience=240.0) as console,
    ):
        job = console.submit(stage.job("first"))
        roles = {s: stage.parties.kit(s).me.party.role for s in stage.parties.folders}
        dead = [s for s, role in roles.items() if role in (Role.TAG_SERVER, Role.MATCHER)]
        assert len(dead) == 3
        with ThreadPoolExecutor(len(dead)) as pool:  # each as it is asked first: once may be all
            [*pool.map(lambda site: killed(stage, processes, site, chance), dead)]
        console.wait(job, patience=400.0)
    holds(stage.parties, tmp_path)
    assert twin.result["model_sha256"] is not None
    check_result(stage.parties, twin, SAME)
    check_models(stage.parties, twin)


def played_in_memory(config: Config, folder: Path) -> Run:
    return Federation.from_config(config).run(folder / "memory")


def holds(parties: Parties, folder: Path) -> None:
    """No round was lost, and what came has an entry where it came from (the step `flow`)."""
    assert parties.result()["lost_rounds"] == []
    handed = [write_hand_over(f, folder / f"{f.name}.zip")[0] for f in parties.folders.values()]
    assert gather_files(handed, folder / "run").missing == ()
    found = Run(folder / "run").verify()
    assert found.verdict == "self-consistent only", found.failed


# --- a hang -------------------------------------------------------------------------------------

HUNG = 8.0
START = """
import sys
from secure_fgl.sites.supervisor import start
raise SystemExit(start(sys.argv[1], users=[int(sys.argv[2])], hung=float(sys.argv[3]), say=print))
"""


def test_a_session_that_hangs_is_ended_and_answers_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped by a signal it neither beats nor works; one that waits for long is left alone."""
    parties = assemble(banks(policy="he"), tmp_path / "parties")
    folder = parties.folders[AUTHORITY]
    monkeypatch.setenv("SECURE_FGL_SOCKET", str(folder / "socket"))
    call, site = first_call(parties), Site(folder, tmp_path)
    command = [sys.executable, "-u", "-c", START, str(folder), str(os.geteuid()), str(HUNG)]
    with (tmp_path / "said").open("wb") as said:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=said, stderr=said,
            env={**os.environ, "PYTHONPATH": str(ROOT)}, start_new_session=True,
        )  # fmt: skip
    site.started.append(process)
    try:
        until(site.listens)
        code, first = ask(call)
        session = site.session()
        time.sleep(2 * HUNG)  # nobody asks anything
        assert site.session() == session
        os.kill(session, signal.SIGSTOP)
        until(lambda: "hangs" in (tmp_path / "said").read_text(), seconds=60.0)
        until(site.listens)
        assert site.session() != session and ask(call) == (code, first)
        assert "hangs" in (folder / "site.log").read_text()
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
