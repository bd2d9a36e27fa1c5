"""docs/pilot.md walked by six users, from the first key to the run that all sides hold up.

Each types the lines of its party in its own home. What one has of another came by the folders that
the page describes, and is what its table lists. Six more users run NVFlare, whose kits root gives
to them; without root there are none, and nothing of a pilot would start.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes

pytest.importorskip("nvflare", reason="the extra nvflare is not installed")

from secure_fgl.charters.party import load_identity
from secure_fgl.store import captures
from secure_fgl.store.finished_run import Run
from secure_fgl.store.sides.forgetting import Destroyed
from secure_fgl.store.sides.places import place_of
from secure_fgl.store.sides.sweeping import sweep_runs
from secure_fgl.transports.nvflare import kits
from tests.sites import users
from tests.sites.processes import until
from tests.sites.users import User
from tests.pilot_page import blocks, console, document, table
from tests.secure_fgl.cli_tools import ROOT, invoke

pytestmark = pytest.mark.long

CLIENTS = ("north", "east", "south", "west")
NAMES = {
    **{party: f"hospital-{party}" for party in CLIENTS},
    "notary": "key-authority",
    "office": "aggregator",
}
OTHERS = [party for party in NAMES if party != "office"]
HOST, ROUNDS, PATIENCE = "fl.example.org", 2, 400.0
UP = "The site is up."


def owner(line: str) -> str:
    """Return whose line it is, by the rule that the page gives."""
    told = {*re.findall(r"(?:parties|engine)/(\w+)", line)}
    told |= {*re.findall(r"(?<![\w/.-])(\w+)\.(?:json|side\.zip)", line)}
    office = {"ca": "office", "server": "office", "admin": "office"}
    named = {office.get(word, word) for word in told} & {*NAMES}
    return named.pop() if len(named) == 1 else "office"


def likewise(line: str, party: str) -> str:
    """Return a line of the hospital that the page shows, as another party types it."""
    if party == "office":
        line = line.replace("prod_00/hospital-north", f"prod_00/{HOST}")
    return re.sub(r"\bnorth\b", party, line.replace("hospital-north", NAMES[party]))


def shown_for_one(line: str) -> bool:
    """Tell whether a line on kits and runs stands for those of the other parties, too."""
    return "hospital-north" in line


@dataclass
class Walk:
    """Where the six are, and what they handed to each other."""

    base: Path
    users: dict[str, User]
    engines: dict[str, User]
    port: int
    given: dict[tuple[str, str], str] = field(default_factory=dict)
    started: dict[str, list[subprocess.Popen[bytes]]] = field(default_factory=dict)
    readable: dict[str, dict[str, tuple[list[str], list[str]]]] = field(default_factory=dict)
    said: dict[str, str] = field(default_factory=dict)

    def types(self, line: str, who: str | None = None) -> str:
        """Let the party whose line it is type it, and hand on what it made."""
        party = who or owner(line)
        self.said[line] = said = self.users[party].does(self.here(line))
        self.hand_on(party)
        return said

    def here(self, line: str) -> str:
        """Return a line with this machine's server; an administrator is called as before."""
        line = re.sub(rf"(?<!@){re.escape(HOST)}", kits.SERVER, line)
        return line.replace("/srv/pilot", str(self.base))

    def hand_on(self, giver: str) -> None:
        """Give each file of the page's table that is new, as the page says."""
        _, _, _, gives, takes = console("Who works where")
        shown = "parties/north/hospital-north.facts.json"
        for file, receivers in handed_by(giver):
            source = self.users[giver].home / file
            if not source.is_file():
                continue
            digest = hashlib.sha256(source.read_bytes()).hexdigest()
            for receiver in receivers:
                if self.given.get((file, receiver)) == digest:
                    continue
                self.given[file, receiver] = digest
                for who, line in ((giver, gives), (receiver, takes)):
                    words = line.replace(f" {shown}", f" {file}").replace(
                        "for-office", f"for-{receiver}"
                    )
                    words = words.replace("hospital-north.facts.json", Path(file).name)
                    self.users[who].does(words.replace("/srv/pilot", str(self.base)))

    def start(self, line: str, party: str) -> None:
        """Start one of the two things that a site runs."""
        log = self.base / "logs" / f"{party}.log"
        by = self.engines if line.endswith("start.sh") else self.users
        self.started.setdefault(party, []).append(
            by[party].starts(self.here(likewise(line, party)), log)
        )

    def ups(self, party: str) -> int:
        return (self.base / "logs" / f"{party}.log").read_text().count(UP)

    def trespass(self) -> dict[str, tuple[list[str], list[str]]]:
        """Let each try all that is of each, its own too; return what was tried, and opened."""
        places = dict[str, list[Path]]()
        for user in self.users.values():
            both = (user.home, self.base / f"{user.name}-meet")
            places[user.name] = [p for home in both for p in (home, *sorted(home.rglob("*")))]
        everybody = [*self.users.values(), *self.engines.values()]
        return {
            f"{user.name} at {whose}": ([str(path) for path in paths], user.opens(paths))
            for user in everybody
            for whose, paths in places.items()
        }


def handed_by(giver: str) -> list[tuple[str, list[str]]]:
    """Return the files that the page lets a party hand on, and to whom."""
    found = list[tuple[str, list[str]]]()
    for pattern, source, target in table("Who works where"):
        file = pattern.split("`")[1]
        if (source == "the office") is not (giver == "office"):
            continue
        among = {"each party": OTHERS, "each client": CLIENTS, "the office": ["office"]}[target]
        if source == "each party":
            found.append((_named(file, giver), ["office"]))
        elif "NAME" in file or "PARTY" in file:
            found += [(_named(file, party), [party]) for party in among]
        else:
            found.append((file, [*among]))
    return found


def _named(file: str, party: str) -> str:
    return file.replace("PARTY", party).replace("NAME", NAMES[party])


def as_root(line: str) -> None:
    """Run a line of root's."""
    place = str(Path(sys.executable).parent)
    path = os.pathsep.join([place, os.environ["PATH"]])
    done = subprocess.run(
        line.split(), env={**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)}, cwd="/",
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"


def numbered(line: str, party: str) -> str:
    """Return a line of root's for a party, with the numbers of its two users for their names."""
    uid = users.FIRST_UID + [*NAMES].index(party)
    line = re.sub(r"(-o|-g|-R) north-engine(:north-engine)?", rf"\1 {uid + 100}\2", line)
    line = line.replace(":north-engine", f":{uid + 100}").replace("-o north ", f"-o {uid} ")
    return likewise(line, party)


def hand_kits_over(walk: Walk) -> None:
    """Let root give each kit to NVFlare's own user, by the page's own lines."""
    for party in NAMES:
        for line in console("The engine's kits"):
            as_root(walk.here(numbered(line, party)))
        home, uid = walk.base / f"{party}-engine", users.FIRST_UID + [*NAMES].index(party) + 100
        walk.engines[party] = User(f"{party}-engine", home, uid, walk.base / "hold")


def homes(base: Path) -> dict[str, User]:
    """Make what root makes, by the page's own lines."""
    found, (ground, home, beside, *_) = dict[str, User](), console("Who works where")
    subprocess.run(ground.replace("/srv/pilot", str(base)).split(), check=True, timeout=60)
    for number, party in enumerate(NAMES):
        uid = users.FIRST_UID + number
        whose = f"-o {uid} -g {uid}"
        for line in (home, beside):
            words = re.sub(r"\bnorth\b", party, line.replace("-o north -g north", whose))
            words = words.replace("/srv/pilot", str(base))
            subprocess.run(words.split(), check=True, timeout=60)
        place = base / party
        more = {"SECURE_FGL_DATA": str(place / "data")} if party in CLIENTS else {}
        found[party] = User(party, place, uid, base / "hold", more)
    return found


def tables(user: User, number: int) -> None:
    """Let a hospital put its tables where the page wants them."""
    name = NAMES[user.name]
    rows = [
        f"{i},{'risky' if (i + number) % 3 else 'fine'},{i * 3 + number},{i % 5 - number}.5,{i % 7}"
        for i in range(24 + number)
    ]
    edges = [f"{i},{(i * 5 + number) % (24 + number)}" for i in range(24 + number)]
    nodes, links = "\n".join(["id,label,age,income,tenure", *rows]), "\n".join(edges)
    place = f"data/{name}"
    user.does(f"mkdir -p {place} && cp pilot/data/spec.yaml data/")
    user.does(
        f"echo '{nodes}' > {place}/nodes.csv && echo 'source,target\n{links}' > {place}/edges.csv"
    )


def agree(walk: Walk) -> None:
    """Type all lines of the page up to the kits."""
    for block in blocks():
        if block.language != "sh":
            continue
        for line in block.body.splitlines():
            several = block.section == "The engine's kits" and shown_for_one(line)
            for party in OTHERS if several else [None]:
                words = line if party is None else likewise(line, party)
                walk.types(words)
                if words.startswith("secure-fgl init"):
                    settle(walk)
                if words.startswith("nvflare cert init"):
                    read_out(walk)
                if words.startswith("secure-fgl site check"):
                    for other in NAMES:
                        walk.types(re.sub(r"\bnotary\b", other, words))


def settle(walk: Walk) -> None:
    """Let the office write down what is so on this machine, and how long it keeps what it has."""
    office = walk.users["office"]
    files = "pilot/consortium.yaml pilot/engine/*.yaml"
    office.does(f"sed -i 's/\\([^@]\\){HOST}/\\1{kits.SERVER}/g; s/8102/{walk.port}/g' {files}")
    office.does(f"sed -i 's/rounds: 30/rounds: {ROUNDS}/' pilot/config.yaml")
    kept = json.dumps({"retention": document("retention")})[1:-1]
    office.does(f"echo '{kept}' >> pilot/policy.yaml")
    walk.hand_on("office")
    for number, party in enumerate(CLIENTS):
        tables(walk.users[party], number)


def read_out(walk: Walk) -> None:
    """Tell everybody the root's fingerprint, as on the telephone."""
    file = walk.users["office"].home / "engine" / "ca" / "rootCA.pem"
    root = x509.load_pem_x509_certificate(file.read_bytes())
    for user in walk.users.values():
        user.more["FINGERPRINT"] = "SHA256:" + root.fingerprint(hashes.SHA256()).hex(":")


def run(walk: Walk) -> None:
    """Start all sites, stop one and let it go on, conduct the run, hand it over and verify it."""
    starts, engine, stops, again = console("Starting a site")
    for party in ("office", *OTHERS):
        walk.start(engine, party)
        walk.start(starts, party)
    until(lambda: all(walk.ups(party) == 1 for party in NAMES), seconds=PATIENCE)
    walk.types(stops)
    assert walk.started["north"][-1].wait(PATIENCE) == 0
    refused = walk.users["north"].ran(walk.here(starts))
    assert refused.returncode == 2 and "--again" in refused.stdout
    walk.start(again, "north")
    until(lambda: walk.ups("north") == 2, seconds=PATIENCE)
    walk.readable["while it runs"] = walk.trespass()
    for line in console("Conducting"):
        assert "over" in walk.types(line)
    for party in NAMES:
        assert walk.started[party][-1].wait(PATIENCE) == 0, party
    for line in console("Handing over"):
        walk.types(line)
    walk.readable["after it"] = walk.trespass()


@pytest.fixture(scope="module")
def walk() -> Iterator[Walk]:
    base = Path(tempfile.mkdtemp(prefix="secure-fgl-six-"))  # others reach pytest's own not
    (base / "hold").mkdir(mode=0o700)
    (base / "logs").mkdir(mode=0o700)
    if why := users.why_one(base / "hold"):
        shutil.rmtree(base)
        pytest.skip(f"all are one user here, and nothing of a pilot starts then: {why}")
    found = Walk(base, homes(base), {}, kits.free_port())
    try:
        agree(found)
        hand_kits_over(found)
        with users.adopting():
            try:
                run(found)
            finally:
                left = users.end(base)
                for process in (one for several in found.started.values() for one in several):
                    process.wait(PATIENCE)
        assert left == []
        yield found
    finally:
        shutil.rmtree(base)


def test_the_run_is_that_of_a_simulation_and_all_sides_hold(
    walk: Walk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    office, data = walk.users["office"].home, tmp_path / "data"
    for party in CLIENTS:
        shutil.copytree(walk.users[party].home / "data", data, dirs_exist_ok=True)
    monkeypatch.chdir(office)
    monkeypatch.setenv("SECURE_FGL_STATE", str(tmp_path / "state"))
    more = ("--set", f"data.root={data}", "--out", tmp_path / "memory", "--format", "json")
    memory = invoke("run", "pilot/config.yaml", *more)
    assert memory.exit_code == 0, memory.stderr
    result = json.loads((place_of(office / "parties" / "office") / "run/result.json").read_text())
    assert result["model_sha256"] == json.loads(memory.stdout)["model_sha256"] is not None
    assert result["lost_rounds"] == []
    gathered = Run(office / "runs" / "pilot")
    assert gathered.verify().verdict == "self-consistent only"
    assert {p.stem for p in (gathered.path / "ledger").iterdir()} == {*NAMES.values()}
    assert "self-consistent only" in walk.said[console("Handing over")[-1]]
    for party in NAMES:
        told = walk.types(f"secure-fgl audit verify parties/{party}")
        assert "own side holds" in told, told


def test_nobody_reads_what_is_another_s(walk: Walk) -> None:
    for when, found in walk.readable.items():
        assert len(found) == 2 * len(NAMES) ** 2
        for who in NAMES:  # what other sites read by way of NVFlare's user, too
            for whose in NAMES:
                tried, opened = found[f"{who}-engine at {whose}"]
                met = (
                    {path for path in tried if f"/{whose}-meet" in path} if who == whose else set()
                )
                assert {*opened} == met, (when, who, whose)
        for who, user in walk.users.items():
            for whose in NAMES:
                tried, opened = found[f"{who} at {whose}"]
                assert any(path.endswith("identity.json") for path in tried)
                if who != whose:
                    assert opened == [], (when, who, whose)
                    continue
                own = {str(user.home / "parties" / who / "identity.json"), str(user.home)}
                own |= {path for path in tried if path.endswith("nodes.csv")}
                sockets = {path for path in tried if "-meet/socket." in path}
                assert len(sockets) == (1 if when == "while it runs" else 0)
                assert own | sockets <= {*opened}, (when, who)  # the control
    for user in (*walk.users.values(), *walk.engines.values()):
        for path in user.home.rglob("*"):
            assert path.lstat().st_uid == user.uid, path


def test_what_is_handed_over_is_for_its_receiver_alone(walk: Walk) -> None:
    """Each file of the table came to those whom it names; nothing else lies there."""
    came = {(Path(file).name, receiver) for file, receiver in walk.given}
    listed = {(file, to) for giver in NAMES for file, all_ in handed_by(giver) for to in all_}
    assert {*walk.given} == listed
    laid = {party: [*(walk.base / f"for-{party}").iterdir()] for party in NAMES}
    assert {(file.name, party) for party, files in laid.items() for file in files} == came
    for party, files in laid.items():
        assert (walk.base / f"for-{party}").stat().st_mode & 0o7777 == 0o3733
        assert {file.stat().st_mode & 0o777 for file in files} == {0o640}
    everything = [file for files in laid.values() for file in files]
    givers = {user.uid: who for who, user in walk.users.items()}
    for who, user in walk.users.items():
        his = [f for f in everything if who in (givers[f.stat().st_uid], f.parent.name[4:])]
        assert his and user.opens(everything) == [str(file) for file in his], who
        folders = [walk.base / f"for-{party}" for party in NAMES]
        assert user.opens(folders) == [str(walk.base / f"for-{who}")]
    for party, files in laid.items():
        assert {file.stat().st_gid for file in files} == {walk.users[party].uid}


def test_what_is_over_by_the_page_s_policy_is_swept(walk: Walk, tmp_path: Path) -> None:
    (line,) = console("The model, and forgetting")
    assert "Nothing is over" in walk.types(line)
    party = tmp_path / "north"  # its own stays whose it is
    shutil.copytree(walk.users["north"].home / "parties" / "north", party)
    models = document("retention")["client"]["models"]
    for days, gone in ((models - 1, [("captures",)]), (models + 2, [("models",)])):
        assert swept(party, days) == gone


def swept(party: Path, days: int) -> list[object]:
    """Sweep as on a later day; return what was destroyed, or why that failed."""
    later, me = date.today() + timedelta(days=days), load_identity(party)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(captures, "today", lambda: later)
        found = sweep_runs(party, lambda: me, name=me.party.name, day=lambda: later)
        return [one.note.what if isinstance(one, Destroyed) else one for _, one in found]
