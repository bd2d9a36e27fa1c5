"""A rehearsal over real processes, as docs/pilot.md has it: started, watched and looked at after.

One run for everything that is asserted of it.
"""

from __future__ import annotations

import contextlib
import json
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

pytest.importorskip("nvflare", reason="the extra nvflare is not installed")

from audits.report.summary import REHEARSAL
from protocols.wire.control import REFUSALS
from protocols.wire.roster import AGGREGATOR_NAME
from secure_fgl.charters.party import PartyKit
from secure_fgl.errors import UsageError
from secure_fgl.sites.status import STATUS_FILE, State, read_status
from secure_fgl.store.finished_run import Run
from secure_fgl.store.sides.places import place_of
from secure_fgl.transports.nvflare import kits
from secure_fgl.transports.nvflare.office.conducting import Ending, Settings, see_through
from secure_fgl.transports.nvflare.office.job_note import JobNote
from tests.laws.search import found, spellings
from tests.sites.left import processes_of
from tests.sites.stage import SERVER_SITE, assemble, banks
from tests.sites.test_own_folders import NAMES, SPEC, tables
from tests.pilot_page import console
from tests.secure_fgl.cli_tools import ROOT, invoke, start

# On a busy machine NVFlare does not always come up in time.
pytestmark = pytest.mark.long

ROUNDS = 2


def commands(title: str) -> list[list[str]]:
    """Return the commands that a section of the page shows, word by word."""
    lines = console(title)
    assert all(line.startswith("secure-fgl ") for line in lines), lines
    return [line.split()[1:] for line in lines]


def pilot(base: Path) -> Path:
    """Write a small pilot with everybody's tables side by side; return its folder."""
    for number, name in enumerate(NAMES):
        tables(base / "pilot" / "data" / name, number)
    (base / "pilot" / "data" / "spec.yaml").write_text(SPEC)
    config = {
        "algorithm": {"name": "fed_avg", "rounds": ROUNDS},
        "model": {"hidden": 4},
        "data": {
            "name": "own",
            "root": str(base / "pilot" / "data"),
            "partition": {"names": list(NAMES)},
        },
        "policy": "masks",
        "seed": 1,
    }
    (base / "pilot" / "config.yaml").write_text(yaml.safe_dump(config))
    return base


@dataclass
class Rehearsed:
    """One rehearsal beside its simulation."""

    base: Path
    memory: dict[str, Any]
    output: str
    seen: list[tuple[str, bytes]] = field(default_factory=list)

    @property
    def run(self) -> Run:
        return Run(self.base / "runs" / "rehearsal")

    def party(self, name: str) -> Path:
        return self.base / "runs" / "rehearsal.parties" / "parties" / name

    def statuses(self, name: str) -> list[dict[str, Any]]:
        return [json.loads(data) for party, data in self.seen if party == name]


def look(base: Path, over: threading.Event, into: list[tuple[str, bytes]]) -> None:
    """Note every status that a party writes, as whoever watches would read it."""
    last: dict[str, bytes] = {}
    while not over.wait(0.02):
        for path in (base / "runs").glob(f"rehearsal.parties/parties/*/runs/*/{STATUS_FILE}"):
            data, party = path.read_bytes(), path.parents[2].name
            if last.get(party) != data:
                last[party] = data
                into.append((party, data))


@pytest.fixture(scope="module")
def rehearsed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rehearsed]:
    base = pilot(tmp_path_factory.mktemp("rehearsal"))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(base)
        patch.setenv("SECURE_FGL_BUDGETS", str(base / "budgets"))
        patch.setenv("SECURE_FGL_STATE", str(base / "state"))
        patch.setenv("PYTHONPATH", str(ROOT))
        memory = invoke("run", "pilot/config.yaml", "--out", "runs/memory", "--format", "json")
        assert memory.exit_code == 0, memory.stderr
        seen: list[tuple[str, bytes]] = []
        over = threading.Event()
        watcher = threading.Thread(target=look, args=(base, over, seen))
        watcher.start()
        ((first, *_),) = [[c for c in commands("A rehearsal") if c[0] == "run"]]
        try:
            done = invoke(*first, "--format", "json")
        finally:
            over.set()
            watcher.join()
        assert done.exit_code == 0, done.stderr
        assert processes_of(base) == []
        yield Rehearsed(base, json.loads(memory.stdout), done.stdout, seen)


def test_a_rehearsal_prints_the_result_of_the_simulation(rehearsed: Rehearsed) -> None:
    printed, memory = json.loads(rehearsed.output), rehearsed.memory
    assert printed["model_sha256"] == memory["model_sha256"] is not None
    same = ("metrics", "bytes_up", "bytes_down", "lost_rounds", "backend", "data", "clients")
    assert {k: printed[k] for k in same} == {k: memory[k] for k in same}
    assert printed["run_dir"].endswith("rehearsal")
    twin = Run(rehearsed.base / "runs" / "memory")
    ours, theirs = (run.folder.read("checkpoints/best.npz") for run in (rehearsed.run, twin))
    assert ours == theirs != b""


def test_all_sides_are_gathered_into_a_run_that_verifies(rehearsed: Rehearsed) -> None:
    gathered = rehearsed.run
    for command in commands("A rehearsal")[1:]:
        done = invoke(*command)
        assert done.exit_code == 0, done.stderr
    assert json.loads(rehearsed.output)["verdict"] == "self-consistent only"
    found = gathered.verify()
    assert found.verdict == "self-consistent only", found.failed
    assert {p.stem for p in (gathered.path / "ledger").iterdir()} == {*NAMES, AGGREGATOR_NAME}
    text = (gathered.path / "report" / "report.json").read_text()
    assert "Rehearsal of hospital-north" in text and '"nvflare"' in text
    assert json.loads(text)["notes"][0] == REHEARSAL
    for name in (*NAMES, AGGREGATOR_NAME):
        secret = json.loads((rehearsed.party(name) / "identity.json").read_text())["seed"]
        for file in gathered.path.rglob("*"):
            if file.is_file():
                assert secret.encode() not in file.read_bytes()
    (gathered.path.parent / "cut").mkdir()
    ledger = gathered.folder.read(f"ledger/{NAMES[0]}.jsonl").splitlines(keepends=True)
    before = gathered.folder.read(f"ledger/{NAMES[0]}.jsonl")
    gathered.folder.write(f"ledger/{NAMES[0]}.jsonl", b"".join(ledger[:-2]))
    assert gathered.verify().verdict != "self-consistent only"  # the control
    gathered.folder.write(f"ledger/{NAMES[0]}.jsonl", before)


def test_what_a_party_can_watch_moves_with_the_run(rehearsed: Rehearsed) -> None:
    office, north = (rehearsed.statuses(name) for name in (AGGREGATOR_NAME, NAMES[1]))
    for told in (office, north):
        states = [one["state"] for one in told]
        assert states[0] == State.OPENING and states[-1] == State.OVER and "running" in states
        assert {one["round"] for one in told} >= set(range(1, ROUNDS + 1))
        for name in ("sent", "received", "exchange"):
            counts = [one[name] for one in told]
            assert counts == sorted(counts) and counts[-1] > 0
    assert {name for one in office for name in one["awaited"]} == set(NAMES)
    assert any(0 < len(one["awaited"]) < len(NAMES) for one in office)  # one after the other
    assert not any(one["awaited"] for one in north)
    assert office[-1]["received"] == rehearsed.memory["bytes_up"]
    assert office[-1]["sent"] == rehearsed.memory["bytes_down"]
    mode = (place_of(rehearsed.party(AGGREGATOR_NAME)) / STATUS_FILE).stat().st_mode & 0o777
    assert mode == 0o600


NUMBERS = {
    *("rounds", "since", "at", "round", "exchange", "sent", "received"),
    *("lost", "awaited", "away"),
}


def strangers(status: Any, kit: PartyKit) -> list[Any]:
    """Return what a status says beyond names, numbers and the words of closed lists."""
    charter = kit.charter
    names = {*charter.sites}
    words = {
        "party": names,
        "role": {str(charter.roster.party(name).role) for name in names},
        "run": {charter.run},
        "state": {str(state) for state in State},
        "item": {"", *(item.id for item in charter.plan.items)},
        "reason": {"", *(f"{name}: {code}" for name in names for code in REFUSALS)},
    }
    beyond: list[Any] = []
    for key, value in status.items():
        if key in words:
            beyond += [value] if value not in words[key] else []
        elif key == "budget":
            beyond += [value] if value else []  # `masks` has none
        elif key not in NUMBERS:
            beyond.append(key)
        elif isinstance(value, dict):
            beyond += [name for name in value if name not in names]
            beyond += [at for at in value.values() if not isinstance(at, float)]
        elif isinstance(value, list):
            beyond += [at for at in value if not isinstance(at, int)]
        elif not isinstance(value, int | float):
            beyond.append(value)
    return beyond


def test_a_status_holds_public_facts_alone(rehearsed: Rehearsed) -> None:
    """Nothing of data, scores, models or keys: searched for, and by what may stand there at all."""
    kit = PartyKit.load(rehearsed.party(AGGREGATOR_NAME))
    public = {"round", "exchange", "lost", "item"}
    for _, data in rehearsed.seen:
        assert strangers(json.loads(data), kit) == []
    planted = {**json.loads(rehearsed.seen[-1][1]), "reason": "risky"}
    assert strangers(planted, kit) == ["risky"] and public < set(planted)  # the control
    secrets: list[bytes] = []
    for name in (*NAMES, AGGREGATOR_NAME):
        seed = json.loads((rehearsed.party(name) / "identity.json").read_text())["seed"]
        secrets += [seed.encode(), bytes.fromhex(seed)]
    scores = [v for v in rehearsed.memory["metrics"].values() if isinstance(v, float) and v % 1]
    secrets += [repr(score).encode() for score in scores]
    for name in NAMES:
        lines = (rehearsed.base / "pilot" / "data" / name / "nodes.csv").read_bytes().splitlines()
        secrets += lines[1:]
    twin = rehearsed.base / "runs" / "memory"
    with np.load(twin / "checkpoints" / "best.npz", allow_pickle=False) as weights:
        secrets += [spelled for array in weights.values() for spelled in spellings(array)]
    for shown in ("table", "json", "prometheus"):
        for name in (NAMES[0], AGGREGATOR_NAME):
            done = invoke("status", rehearsed.party(name), "--format", shown)
            assert done.exit_code == 0, done.stderr
            text = done.stdout.encode()
            assert found(secrets, text) == 0
            assert found(secrets, text + secrets[0]) > 0  # the control
    assert found(secrets, b"".join(data for _, data in rehearsed.seen)) == 0


def test_the_page_s_commands_for_watching_and_conducting(
    rehearsed: Rehearsed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the parties of the rehearsal, whose run is over: no server is needed for that."""
    monkeypatch.chdir(rehearsed.base)
    places = {"parties/north": NAMES[1], "parties/office": AGGREGATOR_NAME}
    for command in commands("Watching") + commands("Conducting"):
        given = [str(rehearsed.party(places[w])) if w in places else w for w in command]
        done = invoke(*given)
        assert done.exit_code == 0, (command, done.stderr)
        assert "over" in done.stdout
    facts = json.loads(invoke("status", rehearsed.party("aggregator"), "--format", "json").stdout)
    assert facts["process"] is False and facts["job"]["handed_in"] == 1
    assert facts["job"]["word"] == "FINISHED:COMPLETED" and facts["job"]["outcome"] == "over"
    text = invoke("status", rehearsed.party("aggregator"), "--format", "prometheus").stdout
    gauge = re.compile(r'secure_fgl_[a-z_]+\{([a-z]+="[^"]*",?)+\} [0-9.e+-]+')
    lines = [line for line in text.splitlines() if not line.startswith("# ")]
    assert len(lines) > 10 and all(gauge.fullmatch(line) for line in lines)
    assert f'secure_fgl_round{{party="aggregator",run="{facts["run"]}"}} {float(ROUNDS)}' in lines


def test_another_party_does_not_conduct(rehearsed: Rehearsed) -> None:
    done = invoke("conduct", rehearsed.party(NAMES[0]), "--kit", rehearsed.base)
    assert done.exit_code == 2 and "does not conduct" in done.stderr


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (["faults.drop=1@1"], "faults.drop"),
        (["data.partition={clients: 4}"], "data.partition.names"),
    ],
)
def test_what_only_a_simulation_has_is_refused_at_once(
    settings: list[str], said: str, tmp_path: Path
) -> None:
    pilot(tmp_path)
    more = [word for setting in settings for word in ("--set", setting)]
    arguments = ["run", tmp_path / "pilot" / "config.yaml", "--out", tmp_path / "run", *more]
    done = invoke(*arguments, "--set", "transport.name=nvflare")
    assert done.exit_code == 2 and said in done.stderr
    assert not (tmp_path / "run.parties").exists()


def until(holds: Callable[[], bool], seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)


@pytest.mark.long
def test_ctrl_c_leaves_no_process_behind(tmp_path: Path) -> None:
    """Pressed twice: the second one must not stop the clearing away."""
    pilot(tmp_path)
    given = ["run", "pilot/config.yaml", "--out", "runs/cut", "--set", "transport.name=nvflare"]
    state = str(tmp_path / "state")
    process = start(given, tmp_path, SECURE_FGL_STATE=state, HOME=str(tmp_path))
    try:
        until(lambda: len(processes_of(tmp_path / "runs" / "cut.parties")) >= len(NAMES))
        process.send_signal(signal.SIGINT)
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=120)
    finally:
        process.kill()
        process.wait()
    assert processes_of(tmp_path / "runs" / "cut.parties") == []
    assert process.returncode in (130, -signal.SIGINT), told  # the second may come at the very end
    assert "Every process was ended" in told


@pytest.mark.long
def test_a_site_that_cannot_read_its_data_is_named(tmp_path: Path) -> None:
    pilot(tmp_path)
    nodes = tmp_path / "pilot" / "data" / NAMES[2] / "nodes.csv"
    nodes.write_text(nodes.read_text().replace("fine", "splendid"))
    arguments = ["run", tmp_path / "pilot" / "config.yaml", "--out", tmp_path / "run"]
    done = invoke(*arguments, "--set", "transport.name=nvflare")
    assert done.exit_code == 2
    assert f"{NAMES[2]} stopped: " in done.stderr
    assert processes_of(tmp_path) == []
    told = (tmp_path / "run.parties" / "parties" / NAMES[2] / "site.log").read_text()
    assert "OwnDataError" in told or "UsageError" in told


@pytest.mark.long
def test_a_site_that_never_comes_back_costs_its_rounds_and_the_server_is_free_again(
    tmp_path: Path, data_root: Path
) -> None:
    """Killed as a whole in round 2 of 3; NVFlare would keep the job for ten minutes more."""
    parties = assemble(banks(rounds=3), tmp_path / "parties")
    sites = [site for site in parties.folders if site != SERVER_SITE]
    made = kits.provision(tmp_path / "kits", sites, port=kits.free_port())
    office, gone = parties.kit(SERVER_SITE), list[float]()
    with kits.federation(made, parties.folders, data_root=data_root) as processes:

        def look() -> None:
            with contextlib.suppress(UsageError):
                if not gone and read_status(office.folder).round == 2:
                    processes.kill("site-2")
                    gone.append(time.monotonic())

        settings = Settings(deadline=60.0, patience=180.0, look=look)
        ending, _ = see_through(office, made.admin, settings)
        freed = time.monotonic()
        assert ending is Ending.OVER and gone
        note = JobNote.read(office.folder, office.charter.run)
        assert note.word == "FINISHED:ABORTED"  # by the office: NVFlare still waited
        over = (office.run_folder / "result.json").stat().st_mtime
        assert time.time() - over - (time.monotonic() - freed) < 60.0
        status = read_status(office.folder)
        assert list(status.away) == ["client-2"] and status.round == 3
    for site in sites:
        if site != "site-2":
            assert read_status(parties.kit(site).folder).state == State.OVER
    assert processes_of(tmp_path) == []
