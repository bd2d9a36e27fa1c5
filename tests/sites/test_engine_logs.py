"""What NVFlare writes down at level DEBUG, and all that it stores, holds no secret of a party's.

One run over real processes, a session killed on the way, two parties' keys under a passphrase. Then
everything is searched that the engine left at the server and the sites, and what parties' operators
watch: for records of the sites' tables, for keys, and for the passphrase.
"""

from __future__ import annotations

import base64
import os
import re
import shutil
import signal
import zipfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

pytest.importorskip("nvflare", reason="the extra nvflare is not installed")

from crypto.samplers import derive
from secure_fgl.charters.passphrase import FILE_VARIABLE, Passphrase
from secure_fgl.config import Config
from secure_fgl.transports.nvflare.keys import identity_file
from secure_fgl.transports.nvflare.office.conducting import Ending, Settings, see_through
from tests.sites.processes import Stage, session_process, staged, until
from tests.sites.stage import SERVER_SITE, assemble
from tests.sites.test_own_folders import NAMES, SPEC, tables
from tests.sites.traces import Wanted, of_bytes, of_row, of_text

pytestmark = pytest.mark.long

ROUNDS = 4
PATIENCE = 300.0  # seconds for what takes some on a quiet machine
PASSPHRASE = "eleven quiet herons over a cold pond"
LOCKED = (NAMES[0], "aggregator")


def patient(number: int) -> tuple[str, str, str]:
    """Return a record of which a site has one: its id, and two measurements."""
    return f"patient-{number}-Quillfeather", f"{37.10286453 + number}", f"{-8412.906271 - number}"


def own_tables(data: Path) -> None:
    """Write every site's tables, each with a patient of its own beside the others."""
    for number, name in enumerate(NAMES):
        tables(data / name, number)
        who, age, income = patient(number)
        for file, line in (
            ("nodes.csv", f"{who},risky,{age},{income}"),
            ("edges.csv", f"{who},0"),
        ):
            text = (data / name / file).read_text()
            (data / name / file).write_text(f"{text}{line}\n")
    (data / "spec.yaml").write_text(SPEC)


def own(data: Path) -> Config:
    return Config.parse(
        {
            "algorithm": {"name": "fed_avg", "rounds": ROUNDS},
            "model": {"hidden": 4},
            "data": {"name": "own", "root": str(data), "partition": {"names": list(NAMES)}},
            "policy": "masks",
            "seed": 1,
        }
    )


@dataclass
class Left:
    """What is on the disk after the run.

    Attributes:
        engine: the kits of server and sites, and the folder for what is temporary; keys of TLS,
            which lie in their kits, were moved away.
        parties: what their operators watch.
        records, keys, drawn, passphrase: what is looked for, by a name.
    """

    base: Path
    stage: Stage
    engine: list[Path]
    watched: list[Path]
    records: dict[str, set[bytes]]
    keys: dict[str, set[bytes]]
    passphrase: dict[str, set[bytes]]

    @property
    def wanted(self) -> Wanted:
        return Wanted({**self.records, **self.keys, **self.passphrase})

    @property
    def kits(self) -> dict[str, Path]:
        return {SERVER_SITE: self.stage.made.server, **self.stage.made.sites}


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> Left:
    base = tmp_path_factory.mktemp("logs")
    own_tables(base / "data")
    seeds: list[bytes] = []
    with pytest.MonkeyPatch.context() as patch:
        secret = base / "secret"  # nobody's but the test's
        for name in ("", "drawn", "tls"):
            (secret / name).mkdir(mode=0o700)
        (secret / "passphrase").write_text(PASSPHRASE)
        (secret / "passphrase").chmod(0o600)
        for name in ("temporary", "home"):
            (base / name).mkdir()
        patch.setenv("FL_LOG_LEVEL", "DEBUG")  # NVFlare's own variable
        patch.setenv("TMPDIR", str(base / "temporary"))
        patch.setenv("HOME", str(base / "home"))
        patch.setenv(FILE_VARIABLE, str(secret / "passphrase"))
        patch.setenv("SECURE_FGL_TEST_DRAWN", str(secret / "drawn"))
        draw = identity_file.entropy

        def noted(count: int) -> bytes:
            seeds.append(draw(count))
            return seeds[-1]

        patch.setattr(identity_file, "entropy", noted)
        locked = dict.fromkeys(LOCKED, Passphrase(PASSPHRASE))
        parties = assemble(own(base / "data"), base / "parties", locked)
        with staged(own(base / "data"), base, base / "data", parties) as (stage, processes):
            (killed,) = [s for s, f in parties.folders.items() if f.name == LOCKED[0]]
            log = parties.folders[killed] / "process.log"
            settings = Settings(deadline=240.0, patience=PATIENCE)
            office = parties.kit(SERVER_SITE)
            with ThreadPoolExecutor(1) as pool:
                conducts = pool.submit(see_through, office, stage.made.admin, settings)
                until(lambda: stage.opened() >= 1 or conducts.done(), seconds=PATIENCE)
                os.kill(session_process(processes, killed), signal.SIGKILL)
                assert conducts.result(timeout=PATIENCE)[0] is Ending.OVER
            assert log.read_text().count("The site is up.") == 2  # its keys were opened twice
    assert len(seeds) == len(parties.folders) and stage.finished()
    keys = {f"seed {n}": of_bytes(seed) for n, seed in enumerate(seeds)}
    for number, seed in enumerate(seeds):
        for kind in ("signing", "opening"):
            keys[f"{kind} key {number}"] = of_bytes(derive(seed, "identity", kind))
    for file in (secret / "drawn").iterdir():
        for number, line in enumerate(file.read_text().split()):
            keys[f"drawn {file.stem}-{number}"] = of_bytes(bytes.fromhex(line))
    for site, folder in parties.folders.items():
        for file in (folder / "keys").rglob("*.key"):
            keys[f"{site}'s {file.parent.parent.name}"] = of_bytes(file.read_bytes())
    found = Left(base, stage, [], [], {}, keys, {"passphrase": of_text(PASSPHRASE)})
    keys |= tls_keys(found, secret / "tls")
    for number, name in enumerate(NAMES):
        who, *row = patient(number)
        found.records |= {f"id at {name}": of_text(who), f"row at {name}": of_row(row)}
    found.engine += [*found.kits.values(), base / "temporary", base / "home"]
    for folder in parties.folders.values():
        found.watched += [*folder.rglob("status.json"), *folder.rglob("job.json")]
        found.watched += [*folder.glob("*.log"), *folder.glob("*.facts.json")]
    return found


def tls_keys(left: Left, away: Path) -> dict[str, set[bytes]]:
    """Return the forms of the engine's own keys, and take their files out of the kits."""
    found: dict[str, set[bytes]] = {}
    for site, kit in left.kits.items():
        (file,) = (kit / "startup").glob("*.key")
        lines = file.read_text().splitlines()
        inner = base64.b64decode("".join(lines[1:-1]))[-64:]
        found[f"TLS key of {site}"] = of_bytes(inner) | {line.encode() for line in lines[2:-2]}
        file.rename(away / f"{site}.key")
    return found


def logs(kit: Path) -> str:
    files = [file for file in kit.rglob("*log*") if file.is_file()]
    return "\n".join(file.read_text("utf-8", "replace") for file in files)


def test_the_engine_wrote_down_all_that_it_can(left: Left) -> None:
    """Else nothing would be searched: at DEBUG, of the site's process and of the job's."""
    for site, kit in left.kits.items():
        text = logs(kit)
        assert len(re.findall(r"\bDEBUG\b", text)) > 100, site
        assert ("runner_process" if site == SERVER_SITE else "worker_process") in text, site
    assert [*(left.stage.made.server / "state").rglob("*")]
    assert {file.name for file in left.watched} >= {"status.json", "job.json", "process.log"}
    assert len(left.watched) > 2 * len(left.kits)
    drawn = [name for name in left.keys if name.startswith("drawn ")]
    assert len(drawn) > 2 * len(left.kits)
    for name in LOCKED:
        (folder,) = [f for f in left.stage.parties.folders.values() if f.name == name]
        assert identity_file.is_locked(folder)


def test_the_engine_s_logs_and_stores_hold_no_secret(left: Left) -> None:
    assert left.wanted.below(left.engine) == set()


def test_what_operators_watch_holds_no_secret(left: Left) -> None:
    assert left.wanted.below(left.watched) == set()


def test_the_search_finds_what_is_planted(left: Left) -> None:
    """In a log at a site, a job's folder and an archive of the server's store, and a status."""
    site, server = left.stage.made.sites["site-1"], left.stage.made.server
    state = server / "state" / "jobs" / "planted"
    state.mkdir(parents=True)
    who, age, _ = patient(2)
    with zipfile.ZipFile(state / "data", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("app/config/config_fed_client.json", f'{{"age": {age}}}')
    (status,) = [file for file in left.watched if file.name == "status.json"][:1]
    planted = {
        site / "log.txt": (who, f"id at {NAMES[2]}"),
        status: (PASSPHRASE, "passphrase"),
        site / "startup" / "left": (sorted(left.keys["seed 3"])[0].decode("latin-1"), "seed 3"),
    }
    before = {file: file.read_bytes() if file.exists() else None for file in planted}
    try:
        for file, (text, _) in planted.items():
            with file.open("ab") as log:
                log.write(f"\nDEBUG - {text}".encode("latin-1"))
        found = left.wanted.below([*left.engine, *left.watched])
    finally:
        for file, data in before.items():
            file.write_bytes(data) if data is not None else file.unlink()
        shutil.rmtree(state)
    wanted = {(str(file), name) for file, (_, name) in planted.items()}
    member = f"{state / 'data'}:app/config/config_fed_client.json"
    assert found == wanted | {(member, f"row at {NAMES[2]}")}
