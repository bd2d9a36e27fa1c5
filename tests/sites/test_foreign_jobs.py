"""Jobs with a stranger's code, and a kit of a stranger's root, against real NVFlare processes.

The administrator hands them in over NVFlare's own API. One federation of hardened kits for all of
them, and for our own job after them; beside it, as the control, one whose kits were widened.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import shutil
import socket
import ssl
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("nvflare", reason="the extra nvflare is not installed")

from secure_fgl.charters.charter import Charter
from secure_fgl.sites.ending import held_back
from secure_fgl.store.finished_run import Run
from secure_fgl.transports.nvflare import kits
from secure_fgl.transports.nvflare.job import DONE, JobConsole, write_job
from tests.sites.left import processes_of
from tests.sites.processes import Stage, session_process, until
from tests.sites.stage import SERVER_SITE, assemble, banks

pytestmark = pytest.mark.long

ROUNDS = 2
PATIENCE = 300.0  # seconds for what takes some on a quiet machine
STRANGE = Path(__file__).parent / "strange"
ON_DISK, BROUGHT = "strange_code", "strange_brought"
DEPLOYED = "job_deploy_detail"  # what each site said to a job's files, in NVFlare's store
ASKED, STRANGER = ("site-1", "site-2"), "site-5"


# --- the jobs -----------------------------------------------------------------------------------


def named(kind: str, module: str = ON_DISK) -> dict[str, Any]:
    return {"path": f"{module}.{kind}", "args": {}}


def sits(config: dict[str, Any], module: str = ON_DISK) -> None:
    config["executors"][0]["executor"] = named("Sits", module)


def conducts(config: dict[str, Any]) -> None:
    config["workflows"][0] = {"id": "conductor", **named("Conducts")}


def filters(config: dict[str, Any]) -> None:
    config["task_result_filters"] = [{"tasks": ["*"], "filters": [named("Filters")]}]


def adds(config: dict[str, Any]) -> None:
    config["components"] = [{"id": "added", **named("Adds")}]


def nests(config: dict[str, Any]) -> None:
    config["executors"][0]["executor"]["args"]["run"] = named("Nests")


AT_SITES = {"Sits": sits, "Filters": filters, "Adds": adds, "Nests": nests}
AT_SERVER = {"Conducts": conducts, "Filters": filters, "Adds": adds}


def changed(job: Path, side: str, change: Callable[[dict[str, Any]], None]) -> None:
    file = job / "app" / "config" / f"config_fed_{side}.json"
    config = json.loads(file.read_text())
    change(config)
    file.write_text(json.dumps(config))


def calls(run: str) -> Callable[[dict[str, Any]], None]:
    def change(config: dict[str, Any]) -> None:
        config["workflows"][0]["args"] |= {"run": run, "deadline": 120.0}

    return change


def foreign_jobs(
    base: Path, charter: Charter, other: Charter, sites: Sequence[str]
) -> dict[str, Path]:
    """Return the jobs by what is foreign in them; `other`: a run that nobody here joined.

    A job that is foreign at the sites alone has the server wait for a run that is not there: else
    it would begin the real one, which every administrator may.
    """
    found: dict[str, Path] = {}

    def made(name: str) -> Path:
        job = found[name] = write_job(base / name, sites, name=name, charter=charter)
        meta = json.loads((job / "meta.json").read_text())
        meta |= {"mandatory_clients": [], "min_clients": 1}
        (job / "meta.json").write_text(json.dumps(meta))
        return job

    for kind, change in AT_SITES.items():
        changed(made(f"{kind}-sites"), "client", change)
        changed(found[f"{kind}-sites"], "server", calls(other.run))
    for kind, change in AT_SERVER.items():
        changed(made(f"{kind}-server"), "server", change)
    changed(made("code"), "client", lambda config: sits(config, BROUGHT))
    changed(found["code"], "server", calls(other.run))
    (found["code"] / "app" / "custom").mkdir()
    shutil.copy(STRANGE / f"{ON_DISK}.py", found["code"] / "app" / "custom" / f"{BROUGHT}.py")
    return found


def ended(console: JobConsole, job: str) -> str:
    """End a job, if it runs still, and return NVFlare's last word for it."""
    deadline = time.monotonic() + PATIENCE
    while not (word := console.status(job)).startswith("FINISHED"):
        assert time.monotonic() < deadline, word
        console.abort(job)
        time.sleep(1.0)
    return word


def finished(console: JobConsole, job: str) -> str:
    """Return NVFlare's last word for a job that ends by itself."""
    until(lambda: console.status(job).startswith("FINISHED"), seconds=2 * PATIENCE)
    return console.status(job)


def told(kit: Path) -> str:
    return (kit / "process.log").read_text("utf-8", "replace")


def turned_down(kit: Path, kind: str) -> bool:
    """Tell whether a kit's log says that a job named a class that it may not."""
    said = f"Component '{ON_DISK}.{kind}' at"
    return any(said in line and "not in allow_list" in line for line in told(kit).splitlines())


# --- hardened kits ------------------------------------------------------------------------------


@dataclass
class Seen:
    """What came of it at the federation of hardened kits.

    Attributes:
        before, after: of every party, before the foreign jobs and after them: its session's
            process, its ledger, and what its status says.
        words: NVFlare's last word for each foreign job.
        turned: which class was turned down where.
        there: the sites that the server heard of, before our job and once the real kit was back.
        own: NVFlare's word for our own job.
    """

    stage: Stage
    before: Mapping[str, Any]
    after: Mapping[str, Any]
    words: Mapping[str, str]
    turned: set[tuple[str, str]]
    markers: list[str]
    there: list[set[str]]
    own: str
    speaks: dict[str, bool]


def of_another_root(base: Path, kit: Path) -> Path:
    """Return a kit as it is, but for certificate and key, which another root made for its site.

    Nothing of it holds its own site back: it trusts the real server, and no signature over the
    kit's files is there to be looked at.
    """
    others = kits.provision(base / "others", [kit.name], port=kits.free_port())
    place = Path(shutil.copytree(kit, base / "foreign" / kit.name))
    for name in ("client.crt", "client.key"):
        shutil.copy(others.sites[kit.name] / "startup" / name, place / "startup" / name)
    return place


def speaks(port: int, kit: Path) -> bool:
    """Tell whether the server goes on with who shows a kit's certificate: by TLS alone.

    This side looks at nothing, so what ends the connection is the server.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    context.load_cert_chain(kit / "startup" / "client.crt", kit / "startup" / "client.key")
    try:
        with (
            socket.create_connection(("127.0.0.1", port), 60.0) as raw,
            context.wrap_socket(raw) as secured,
        ):
            secured.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0")
            return len(secured.recv(1)) == 1  # its settings
    except (ssl.SSLError, ConnectionError):
        return False


def sessions(stage: Stage, processes: kits.Processes) -> dict[str, Any]:
    """Return how every party's session is: which process, its ledger, its word for itself."""
    found: dict[str, Any] = {}
    for site in stage.parties.folders:
        place = stage.parties.kit(site).folder
        status = json.loads((place / "status.json").read_text())
        ledgers = {f.name: f.read_bytes() for f in (place / "run" / "ledger").iterdir()}
        facts = {name: said for name, said in status.items() if name not in ("at", "since")}
        found[site] = (session_process(processes, site), ledgers, facts)
    return found


@contextlib.contextmanager
def strangers_about(base: Path) -> Iterator[Path]:
    """Let every process of a federation find the stranger's code, and a folder for its files."""
    (base / "markers").mkdir(parents=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", f"{STRANGE}:{Path(__file__).parents[2]}")
        patch.setenv("SECURE_FGL_TEST_MARKERS", str(base / "markers"))
        yield base / "markers"
    assert processes_of(base) == []


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    base = tmp_path_factory.mktemp("hostile")
    parties = assemble(banks(rounds=ROUNDS), base / "parties")
    other = assemble(banks(rounds=ROUNDS), base / "elsewhere").charter
    sites, port = [site for site in parties.folders if site != SERVER_SITE], kits.free_port()
    real = kits.provision(base / "kits", sites, port=port)
    foreign = of_another_root(base, real.sites[STRANGER])
    made = dataclasses.replace(real, sites={**real.sites, STRANGER: foreign})
    admitted = dataclasses.replace(
        real, sites={site: kit for site, kit in real.sites.items() if site != STRANGER}
    )
    stage = Stage(base, parties, made)
    jobs = foreign_jobs(base / "jobs", parties.charter, other, ASKED)
    jobs["run"] = write_job(base / "jobs" / "run", [*admitted.sites], deadline=5.0, charter=other)
    with strangers_about(base) as markers, kits.federation(made, parties.folders) as processes:
        logs = [folder / "process.log" for folder in parties.folders.values()]
        until(lambda: all("The site is up." in log.read_text() for log in logs), seconds=PATIENCE)
        with JobConsole(admitted, patience=PATIENCE) as console:
            before = sessions(stage, processes)
            words, turned = hand_in(console, jobs, made)
            after = sessions(stage, processes)
            there, spoken = [console.there()], {k: speaks(port, made.sites[k]) for k in made.sites}
            # Keys of the first epoch wait for everybody, so its deadline passes once.
            job = write_job(base / "own", sites, deadline=60.0, charter=parties.charter)
            own = finished(console, console.submit(job))
            processes.kill(STRANGER)
            processes.kits = real
            with held_back():
                processes.start_engine(STRANGER)
            until(lambda: STRANGER in console.there(), seconds=PATIENCE)  # the control
            there.append(console.there())
        left = sorted(file.name for file in markers.iterdir())
    return Seen(stage, before, after, words, turned, left, there, own, spoken)


def hand_in(
    console: JobConsole, jobs: Mapping[str, Path], made: kits.Kits
) -> tuple[dict[str, str], set[tuple[str, str]]]:
    """Hand the jobs in one after the other; each has time to be turned down where it is foreign."""
    words: dict[str, str] = {}
    turned: set[tuple[str, str]] = set()
    for name, folder in jobs.items():
        job, (kind, _, where) = console.submit(folder), name.partition("-")
        places = {"sites": ASKED, "server": (SERVER_SITE,)}.get(where, ())
        asked = {at: made.server if at == SERVER_SITE else made.sites[at] for at in places}
        for kit in asked.values():
            until(lambda kit=kit, kind=kind: turned_down(kit, kind), seconds=PATIENCE)
        turned |= {(kind, at) for at, kit in asked.items() if turned_down(kit, kind)}
        if not asked:  # nothing to end: it is turned down before any site has it, or ends by itself
            finished(console, job)
        words[name] = ended(console, job)
    return words, turned


def test_nothing_of_a_foreign_job_is_started_at_any_site(seen: Seen) -> None:
    """Each was turned down where its code would have been made, by the kit that is there."""
    assert len(seen.words) == 9 and DONE not in seen.words.values()
    wanted = {(kind, site) for kind in AT_SITES for site in ASKED}
    assert seen.turned == wanted | {(kind, SERVER_SITE) for kind in AT_SERVER}
    assert seen.markers == []
    assert "BYOC not permitted" in told(seen.stage.made.server)


def test_sessions_are_as_they_were(seen: Seen) -> None:
    assert seen.before == seen.after and len(seen.before) == 6
    for _, ledgers, status in seen.before.values():
        assert len(ledgers) == 1 and status["exchange"] == status["received"] == 0


def test_a_site_with_a_certificate_of_another_root_is_not_admitted(seen: Seen) -> None:
    """By the server: neither does its engine come in, nor does anybody who shows what it has."""
    before, after = seen.there
    assert before == {*seen.stage.made.sites} - {STRANGER} and after == {*seen.stage.made.sites}
    assert seen.speaks == {site: site != STRANGER for site in seen.stage.made.sites}


def test_our_own_job_runs_after_them_without_that_site(seen: Seen) -> None:
    parties = seen.stage.parties
    assert seen.own == DONE and parties.result()["lost_rounds"] == []
    heard = seen.stage.entries(SERVER_SITE)
    for site, folder in parties.folders.items():
        rounds = {
            entry["round"]
            for entry in heard
            if entry["kind"] == "receipt" and entry["sender"] == folder.name
            if "train" in entry["item"]
        }
        away = site in (SERVER_SITE, STRANGER)
        assert rounds == (set() if away else {*range(1, ROUNDS + 1)}), site
        if site != STRANGER:
            assert Run(folder).verify().verdict == "own side holds", site


# --- the control --------------------------------------------------------------------------------


def widen(kit: Path) -> None:
    """Let a job name every class, and give NVFlare's own rights back."""
    file = kit / "local" / "resources.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "class_allow_list": ["*"]}))
    (kit / "local" / "authorization.json").unlink()


def test_the_same_jobs_start_where_kits_were_not_hardened(tmp_path: Path) -> None:
    """And with code, at a hardened site none of it, whatever server and other sites let through."""
    charter = assemble(banks(rounds=ROUNDS), tmp_path / "parties").charter
    other = assemble(banks(rounds=ROUNDS), tmp_path / "elsewhere").charter
    made = kits.provision(tmp_path / "kits", ASKED, port=kits.free_port())
    wide, narrow = ASKED
    for kit in (made.server, made.sites[wide]):
        widen(kit)
    jobs = foreign_jobs(tmp_path / "jobs", charter, other, (wide,))
    code = foreign_jobs(tmp_path / "both", charter, other, ASKED)["code"]
    nobody = {site: tmp_path / "nobody" for site in (SERVER_SITE, *ASKED)}
    processes = kits.Processes(made, nobody)
    with strangers_about(tmp_path) as markers:
        try:
            with held_back():
                for site in nobody:
                    processes.start_engine(site)
            with JobConsole(made, patience=PATIENCE) as console:
                for name, folder in {**jobs, "code": code}.items():
                    kind, _, where = name.partition("-")
                    at = SERVER_SITE if where == "server" else wide
                    left = f"{ON_DISK}.{kind}@{at}" if where else f"{BROUGHT}.Sits@{at}"
                    job = console.submit(folder)
                    until((markers / left).exists, seconds=PATIENCE)
                    ended(console, job)
                metas = (made.server / "state" / "jobs").glob("*/meta")
                said = [word for meta in metas for word in json.loads(meta.read_text())[DEPLOYED]]
        finally:
            with held_back():
                processes.stop()
        assert said.count(f"{narrow}: NVFLARE_ERROR: BYOC not permitted") == 1
        assert not [file.name for file in markers.iterdir() if file.name.endswith(f"@{narrow}")]
