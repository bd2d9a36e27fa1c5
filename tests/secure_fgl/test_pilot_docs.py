"""docs/pilot.md is walked, line by line, by six users with real processes and a real server.

Each types the lines of its party in its own home, and gets of the others only what the page's table
lists. Without root all six are one user. Other tests read what the walk made.
"""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from filecmp import cmp
from pathlib import Path

import pytest
import yaml
from typer.testing import Result

from protocols.policy.policy import PrivacyPolicy, Release
from secure_fgl.charters.facts import Facts
from secure_fgl.charters.party import PartyKit
from secure_fgl.cli._shared.charters import models_of
from secure_fgl.config import Config
from secure_fgl.consortium import Consortium
from secure_fgl.data.own import load_spec
from secure_fgl.errors import UsageError
from secure_fgl.sites.start import start as keep_up
from secure_fgl.store.finished_run import Run
from secure_fgl.store.sides.party_side import place_of
from secure_fgl.transports.broker.server import free_port
from tests.pilot_page import PAGE, blocks, console, document, table
from tests.pilot_users import FIRST_UID, User, why_one
from tests.secure_fgl.cli_tools import ROOT, invoke

ROLE = "--organisation A --role client"
CLIENTS = ("north", "east", "south", "west")
NAMES = {
    **{party: f"hospital-{party}" for party in CLIENTS},
    "notary": "key-authority",
    "office": "aggregator",
}
HOST, ROUNDS, PATIENCE = "fl.example.org", 2, 300.0


def typed_by(line: str) -> list[str]:
    """Return the parties that type a line, by the rule that the page gives."""
    named = {*re.findall(r"parties/(\w+)|cp charter.json (\w+)", line)}
    named = {name for pair in named for name in pair if name in NAMES}
    if named != {"north"}:
        return [*named] if len(named) == 1 else ["office"]
    return [*CLIENTS] if "--role client" in line else [*NAMES]


def likewise(line: str, party: str) -> str:
    """Return a line of the hospital that the page shows, as another party types it."""
    line = line.replace("hospital-north", NAMES[party]).replace("North", party.capitalize())
    return re.sub(r"\bnorth\b", party, line)


@dataclass
class Walk:
    """Six users, what they exchange, and what they started."""

    base: Path
    users: dict[str, User]
    port: int
    server: subprocess.Popen[bytes] | None = None
    sites: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    printed: dict[str, str] = field(default_factory=dict)

    def types(self, line: str) -> None:
        """Let a line be typed by its parties, and hand on what they made."""
        parties = typed_by(line)
        for party in parties:
            words = self.here(likewise(line, party) if len(parties) > 1 else line)
            user = self.users[party]
            if words.startswith("nats-server "):
                self.server = user.starts(words, self.base / "server.log")
                self._wait_for(self.base / "server.log", "Server is ready")
            elif words.startswith("secure-fgl site start "):
                self.sites[party] = user.starts(words, self.base / f"{party}.log")
            else:
                self.printed[words] = user.does(words)
            self.hand_on(party)
        if self.sites and line.startswith("secure-fgl site start "):
            for party, site in self.sites.items():
                assert site.wait(PATIENCE) == 0, (self.base / f"{party}.log").read_text()
        if line.startswith("secure-fgl init"):
            self.settle()

    def here(self, line: str) -> str:
        """Return a line with this machine's server."""
        line = line.replace(f"--server {HOST}", f"--server localhost:{self.port}")
        more = f" --listen localhost:{self.port}"
        return line + more if line.startswith("secure-fgl broker config") else line

    def settle(self) -> None:
        """Let the office write down this machine's server; give each hospital its tables."""
        office = self.users["office"]
        office.does(f"sed -i 's/{HOST}/localhost/' pilot/consortium.yaml")
        office.does(f"sed -i 's/rounds: 30/rounds: {ROUNDS}/' pilot/config.yaml")
        office.does("sed -i 's/^records: [0-9]*/records: 64/' pilot/data/spec.yaml")
        self.hand_on("office")
        for number, party in enumerate(CLIENTS):
            tables(self.users[party], number)

    def hand_on(self, giver: str) -> None:
        """Give each file of the page's table that this party made to its receivers."""
        for pattern, source, target in table("Who works where"):
            if (source == "the office") is not (giver == "office") and source != "each party":
                continue
            file = pattern.split("`")[1].replace("PARTY", giver).replace("NAME", NAMES[giver])
            among = {"the office": ["office"], "each client": CLIENTS, "each party": [*NAMES]}
            for receiver in {*among[target]} - {giver}:
                self._carried(self.users[giver].home / file, self.users[receiver], file)

    def _carried(self, source: Path, to: User, file: str) -> None:
        target = to.home / file
        if not source.is_file() or (target.exists() and cmp(source, target, shallow=False)):
            return
        to.does(f"mkdir -p {Path(file).parent}")
        shutil.copyfile(source, target)
        if to.uid is not None:
            os.chown(target, to.uid, to.uid)

    def _wait_for(self, log: Path, words: str) -> None:
        assert self.server is not None
        while words not in log.read_text():
            assert self.server.poll() is None, log.read_text()

    def end(self) -> None:
        """End what is still at work."""
        for process in [*self.sites.values(), *filter(None, [self.server])]:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            process.wait(30)


def tables(user: User, number: int) -> None:
    """Let a hospital put its tables into the folder that the page describes."""
    count = 24 + number
    rows = [
        f"{i},{'risky' if (i + number) % 3 else 'fine'},{i * 3 + number},{i % 5 - number}.5,{i % 7}"
        for i in range(count)
    ]
    edges = [f"{i},{(i * 5 + number) % count}" for i in range(count)]
    nodes, links = "\n".join(["id,label,age,income,tenure", *rows]), "\n".join(edges)
    place = f"data/{NAMES[user.name]}"
    user.does(f"mkdir -p {place} && cp pilot/data/spec.yaml data/")
    user.does(f"echo '{nodes}' > {place}/nodes.csv")
    user.does(f"echo 'source,target\n{links}' > {place}/edges.csv")
    user.more["SECURE_FGL_DATA"] = str(user.home / "data")


@pytest.fixture(scope="module")
def walk() -> Iterator[Walk]:
    base = Path(tempfile.mkdtemp(prefix="secure-fgl-six-"))  # others may not enter pytest's own
    base.chmod(0o711)
    (base / "hold").mkdir(mode=0o700)
    one = bool(why_one(base / "hold"))
    users = {}
    for number, party in enumerate(NAMES):
        uid = None if one else FIRST_UID + number
        (base / party).mkdir(mode=0o700)
        if uid is not None:
            os.chown(base / party, uid, uid)
        users[party] = User(party, base / party, uid, base / "hold")
    walked = Walk(base, users, free_port())
    try:
        for block in blocks():
            for line in block.body.splitlines() if block.language == "sh" else ():
                walked.types(line)
        yield walked
    finally:
        walked.end()
        shutil.rmtree(base)


@pytest.fixture(scope="module")
def walked(walk: Walk) -> Path:
    """All that the six have, in one folder, as if it were before the start."""
    folder = walk.base / "all"
    for user in walk.users.values():
        shutil.copytree(
            user.home, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("socket.*")
        )
    return folder


@pytest.fixture(autouse=True)
def _there(walked: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(walked)
    yield
    os.chdir(before)


def test_the_run_is_that_of_a_simulation_and_all_sides_hold(
    walk: Walk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECURE_FGL_STATE", str(tmp_path / "state"))
    shutil.copytree("data", "pilot/data", dirs_exist_ok=True)
    memory = invoke("run", "pilot/config.yaml", "--out", tmp_path / "memory")
    assert memory.exit_code == 0, memory.stderr
    for line in console("A rehearsal"):
        done = invoke(*line.split()[1:])
        assert done.exit_code == 0, done.stderr
    folders = [place_of("parties/office") / "run", tmp_path / "memory", Path("runs/rehearsal")]
    results = [json.loads((folder / "result.json").read_text()) for folder in folders]
    assert len({result["model_sha256"] for result in results} - {None}) == 1
    assert [result["lost_rounds"] for result in results] == [[], [], []]
    gathered = Run("runs/pilot")
    assert gathered.verify().verdict == "self-consistent only"
    assert {p.stem for p in (gathered.path / "ledger").iterdir()} == {*NAMES.values()}
    assert "self-consistent only" in walk.printed["secure-fgl audit verify runs/pilot"]
    for party in NAMES:
        (run,) = Path(f"parties/{party}/runs").iterdir()
        alone = invoke("audit", "verify", f"parties/{party}", "--run", run.name)
        assert "own side holds" in alone.stdout, alone.stdout


def test_a_site_s_part_is_six_commands_and_two_files_before_the_run() -> None:
    lines = [line for b in blocks() if b.language == "sh" for line in b.body.splitlines()]
    mine = [line for line in lines if line.startswith("secure-fgl") and "east" in typed_by(line)]
    verbs = [" ".join(line.split()[1:3]) for line in mine]
    wanted = "site new, charter sign, site join, site check, site start, site hand-over"
    assert verbs == wanted.split(", ")
    rows = table("Who works where")
    assert [r[0].split("`")[1] for r in rows if r[1] == "each party"] == [
        "parties/PARTY/NAME.facts.json", "PARTY.json", "PARTY.side.zip",
    ]  # fmt: skip


def test_nobody_reads_what_is_another_s(walk: Walk) -> None:
    users = walk.users
    if users["north"].uid is None:
        pytest.skip("all six are one user without root")
    for name, user in users.items():
        for whose, other in users.items():
            secret = [other.home, *(p for p in sorted(other.home.rglob("*")) if p.is_file())]
            opened = user.opens(secret)
            assert any(path.name == "identity.json" for path in secret)
            assert opened == ([str(path) for path in secret] if name == whose else []), name


def test_every_party_keeps_one_charter_that_all_signed() -> None:
    kits = [PartyKit.load(f"parties/{name}") for name in NAMES]
    assert len({kit.charter.signed for kit in kits}) == 1
    charter, config = kits[0].charter, Config.load("pilot/config.yaml")
    assert charter.plan.clients == config.data.partition.called
    assert set(config.data.partition.names) <= set(charter.carriers) == set(NAMES.values())
    assert charter.broker.hosts == ["localhost"]
    assert charter.broker.root == Path("broker/root.pem").read_text()
    assert charter.organisations["key-authority"] == "Notary"
    assert charter.spec == load_spec("pilot/data")
    assert charter.plan.data.spec == load_spec("pilot/data").digest
    for name in NAMES:
        assert Path(f"parties/{name}/identity.json").stat().st_mode & 0o777 == 0o600


def test_the_files_of_the_pilot_fit_together() -> None:
    consortium = Consortium.load("pilot/consortium.yaml")
    plan = json.loads(invoke("plan", "pilot/config.yaml", "--format", "json").stdout)
    members = {m.name: str(m.role) for m in consortium.parties}
    assert [n for n, role in sorted(members.items()) if role == "client"] == plan["clients"]
    assert set(members) == set(PartyKit.load("parties/north").charter.carriers)
    steps = Path("pilot/STEPS.md").read_text()
    agree = ("site new", "charter draw", "charter show", "charter sign", "site join")
    play = ("broker config", "site check", "site start", "site stop", "status", "audit gather")
    for command in (*agree, *play):
        assert f"secure-fgl {command}" in steps and f"secure-fgl {command}" in PAGE
    assert "$" not in steps and "engine" not in steps and "pilot/config.yaml" in steps
    for line in document("data")["partition"]["names"]:
        assert line in members


def test_who_has_which_model_is_shown_and_the_page_s_policy_is_one() -> None:
    shown = invoke("charter", "show", "signed.json")
    assert "Models after the run" in shown.stdout and "what all clients share" in shown.stdout
    found = json.loads(invoke("charter", "show", "signed.json", "--format", "json").stdout)
    assert found["models"]["key_authority"] == "none" and "held back" not in found["models"]
    held = Release.model_validate(document("release"))
    policy = PrivacyPolicy.preset("he").model_copy(update={"release": held})
    charter = replace(PartyKit.load("parties/north").charter, policy=policy)
    assert "A05" in models_of(charter)["held back"]


def test_a_charter_is_shown_to_people_and_machines() -> None:
    shown = invoke("charter", "show", "signed.json")
    assert shown.exit_code == 0, shown.stderr
    for said in ("Hospital North", "localhost", "key_authority", f"rounds {ROUNDS}", "risky"):
        assert said in shown.stdout
    found = json.loads(invoke("charter", "show", "signed.json", "--format", "json").stdout)
    assert found["missing"] == found["refused"] == []
    assert {p["said"] for p in found["parties"]} == {"signed"}
    assert found["spec"]["features"] == ["age", "income", "tenure"]
    made = invoke("site", "new", "again", "--name", "x", "--organisation", "X", "--role", "client")
    (mine,) = [line for line in made.stdout.splitlines() if line.startswith("fingerprint")]
    assert len(mine.split()[1:]) == 8


MOST_LINES = 124
"""Two pages: what somebody reads before signing."""
IN_FORCE = (
    *("one site's own tables", "isolated from its keys", "records of 10 persons or more"),
    *("SUM. Its receiver learns", "mask(", "he(scheme=bfv)", "Not asked for: a privacy budget"),
    *("no total is of fewer than 4", "What leaves", "keys, shares, votes", "epsilon = infinity"),
    *("an entry of the total may have a single contributor", "train.up.SUM", "split 0.6, 0.2, 0.2"),
)
NOT_IN_FORCE = ("memory", "isolate: false", "louvain_balanced", "0.4", "transport", "SelfShares")


def test_a_charter_of_six_parties_is_two_pages_of_what_is_in_force() -> None:
    """It was 388 lines with settings of a simulation, and without a word of the policy."""
    shown = invoke("charter", "show", "signed.json").stdout
    lines, flat = shown.splitlines(), " ".join(shown.split())
    assert len(lines) <= MOST_LINES and max(map(len, lines)) <= 80
    assert [said for said in IN_FORCE if said not in flat] == []
    assert [said for said in NOT_IN_FORCE if said in flat] == []
    charter = PartyKit.load("parties/north").charter
    for party in charter.carriers:
        assert party in flat
    for digest in (charter.plan.digest, charter.plan.policy_digest, charter.signed.hex()):
        assert digest in flat
    used = {item.disclosure for item in charter.plan.items}
    for line in charter.policy.explain(used).splitlines():
        assert " ".join(line.split()) in flat
    assert len(invoke("plan", "pilot/config.yaml").stdout.splitlines()) > MOST_LINES  # the control


def test_what_is_signed_holds_no_setting_that_is_not_in_force() -> None:
    charter = PartyKit.load("parties/north").charter
    signed = yaml.safe_load(json.loads(charter.encode())["config"])
    assert signed.keys().isdisjoint({"transport", "isolate", "device", "faults", "budget"})
    assert signed["data"].keys() == {"name", "features", "partition"}
    assert signed["data"]["partition"].keys() == {"clients", "names"}
    other = {"split": (0.5, 0.25, 0.25), "options": {"a": 1}, "root": "elsewhere"}
    config = Config.load("pilot/config.yaml")
    data = config.data.model_copy(update=other)
    moved = config.model_copy(update={"data": data, "isolate": True, "device": "cuda"})
    assert moved.agreed_text() == config.agreed_text() and moved.shared() == config.shared()
    banks = Config.load(ROOT / "examples" / "banks.yaml")  # a published set: its split is in force
    agreed = yaml.safe_load(banks.agreed_text())["data"]
    assert agreed["split"] == list(banks.data.split)
    assert agreed["partition"]["name"] == banks.data.partition.name


def test_what_is_new_exits_6_and_nothing_new_exits_0() -> None:
    assert invoke("charter", "show", "signed.json", "--against", "north.json").exit_code == 0
    made = invoke("plan", "pilot/config.yaml", "--out", "plan.json")
    assert made.exit_code == 0, made.stderr
    assert invoke("charter", "show", "signed.json", "--against", "plan.json").exit_code == 0
    spec = Path("pilot/data/spec.yaml")
    text = spec.read_text()
    spec.write_text(text.replace("[age, income, tenure]", "[income, age, tenure]"))
    try:
        facts = [str(path) for path in sorted(Path("parties").glob("*/*.facts.json"))]
        more = ("--server", "localhost", "--out", "swapped.json")
        assert invoke("charter", "draw", "pilot/config.yaml", *facts, *more).exit_code == 0
    finally:
        spec.write_text(text)
    told = invoke("charter", "show", "swapped.json", "--against", "signed.json")
    assert told.exit_code == 6
    assert "spec.yaml features" in told.stderr and "data: columns, spec changed" in told.stderr
    told = invoke("charter", "show", "swapped.json", "--against", "plan.json")
    assert told.exit_code == 6


def test_a_refused_charter_is_joined_by_nobody() -> None:
    shutil.copy("signed.json", "mine.json")
    shutil.copytree("parties/east", "east")
    said = invoke(
        "charter", "refuse", "mine.json", "--party", "east", "--reason", "too many rounds"
    )
    assert said.exit_code == 0, said.stderr
    merged = invoke("charter", "merge", "mine.json", "signed.json", "--out", "both.json")
    assert merged.exit_code == 0 and "hospital-east" in merged.stdout
    for folder, file in (("parties/north", "both.json"), ("east", "signed.json")):
        refused = invoke("site", "join", folder, file)
        assert refused.exit_code == 5
        assert "refused it" in refused.stderr
    assert invoke("site", "join", "parties/north", "signed.json").exit_code == 0  # the control


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ("site join parties/north north.json", 5, "did not sign it"),
        ("site join parties/north pilot/config.yaml", 5, "cannot be read"),
        ("site join nowhere signed.json", 2, "cannot be read"),
        (f"site new parties/north --name a {ROLE}", 2, "cannot be written"),
        ("site new n --name notary --organisation N --role key-authority", 2, "key-authority"),
        ("site new n --name a --organisation A --role king", 2, "no role"),
        (f"site new n --name aggregator {ROLE}", 2, "choose another"),
        ("charter sign signed.json --party pilot", 2, "cannot be read"),
        ("charter merge north.json --out signed.json", 2, "is there already"),
        ("charter show pilot/STEPS.md", 5, "cannot be read"),
    ],
)
def test_what_cannot_be_used_says_so(words: str, code: int, said: str) -> None:
    done = invoke(*words.split())
    assert done.exit_code == code, done.stderr
    assert said in " ".join(done.stderr.split())


def test_facts_that_are_not_the_consortium_s_or_the_plan_s_draw_no_charter() -> None:
    facts = [str(path) for path in sorted(Path("parties").glob("*/*.facts.json"))]
    more = ("--server", "localhost", "--out", "none.json")
    fewer = invoke("charter", "draw", "pilot/config.yaml", *facts[1:], *more)
    assert fewer.exit_code == 2 and "No charter can be drawn up" in fewer.stderr
    invoke("site", "new", "impostor", "--name", "hospital-north", "--organisation", "Elsewhere",
           "--role", "client")  # fmt: skip
    others = [path for path in facts if "hospital-north" not in path]
    swapped = [*others, "impostor/hospital-north.facts.json"]
    listed = ("--consortium", "pilot/consortium.yaml")
    found = invoke("charter", "draw", "pilot/config.yaml", *swapped, *more, *listed)
    assert found.exit_code == 2 and "Elsewhere" in " ".join(found.stderr.split())
    moved = invoke(
        "charter", "draw", "pilot/config.yaml", *facts, "--server", "evil.example.org", "--out",
        "none.json", *listed,
    )  # fmt: skip
    assert moved.exit_code == 2 and not Path("none.json").exists()


def drawn(consortium: Path, out: str) -> Result:
    """Let the office draw the charter once more, with another list of who takes part."""
    facts = [str(path) for path in sorted(Path("parties").glob("*/*.facts.json"))]
    return invoke(
        "charter", "draw", "pilot/config.yaml", *facts, "--server", "localhost",
        "--consortium", consortium, "--out", out,
    )  # fmt: skip


def test_a_fingerprint_that_is_revoked_as_the_page_says_is_in_no_charter(tmp_path: Path) -> None:
    agreed = yaml.safe_load(Path("pilot/consortium.yaml").read_text())
    theirs = Facts.decode(next(Path("parties/north").glob("*.facts.json")).read_bytes()).fingerprint
    (foreign,) = document("revoked")
    assert foreign != theirs
    for revoked, code in ((foreign, 0), (theirs, 2)):  # the first is the control: nobody's
        file = tmp_path / f"{code}.yaml"
        file.write_text(yaml.safe_dump({**agreed, "revoked": [revoked]}))
        assert Consortium.load(file).revoked == (revoked,)
        found = drawn(file, str(tmp_path / f"{code}.json"))
        assert found.exit_code == code, found.stderr
        assert (tmp_path / f"{code}.json").exists() is (code == 0)
        assert ("is revoked" in " ".join(found.stderr.split())) is (code == 2)


def test_a_policy_keeps_things_for_as_long_as_the_page_says(tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    kept = yaml.safe_dump({"retention": document("retention")})
    written = [
        n for n in Path("pilot/policy.yaml").read_text().splitlines() if "retention:" not in n
    ]
    policy.write_text("\n".join([*written, kept]))
    found = PrivacyPolicy.load(policy).retention
    told = {str(role): kept.model_dump(exclude_none=True) for role, kept in found.items()}
    assert told == document("retention")
    done = invoke("plan", "pilot/config.yaml", "--set", f"policy={policy}")
    assert done.exit_code == 0, done.stderr
    policy.write_text(policy.read_text().replace("models:", "modells:"))  # the control
    assert invoke("plan", "pilot/config.yaml", "--set", f"policy={policy}").exit_code == 2


def test_the_page_s_words_on_stopping_hold_at_a_site_that_has_nothing_at_work() -> None:
    shutil.copytree("parties/north", "stopped/parties/north")
    stops, again = console("Stopping and going on")
    os.chdir("stopped")
    assert invoke(*stops.split()[1:]).exit_code == 0
    with pytest.raises(UsageError) as refused:
        keep_up("parties/north", say=print)
    assert again.startswith("secure-fgl site start parties/north ")
    assert again.endswith(" --again") and "--again" in refused.value.fix
    done = invoke("site", "sweep", "parties/north")
    assert done.exit_code == 0 and "Nothing is over" in done.stderr


# --- that all of the page is run ------------------------------------------------------------------

TAKES = {"console": ("console", "commands"), "yaml": ("document",)}
"""By what a test takes a block of the page, to run it: those of a section, or that with a key."""


def taken(folder: Path = ROOT / "tests") -> set[tuple[str, str]]:
    """Return what tests take of the page."""
    found = set[tuple[str, str]]()
    for file in folder.rglob("test_*.py"):
        text = file.read_text("utf-8")
        if "pilot_page" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args):
                continue
            for language, names in TAKES.items():
                if node.func.id in names and isinstance(node.args[0], ast.Constant):
                    found.add((language, str(node.args[0].value)))
    return found


def not_run(page: str = PAGE) -> list[str]:
    """Return the blocks of a page that no test takes; those in `sh` are walked by `walked`."""
    known, found = taken(), list[str]()
    for block in blocks(page):
        if block.language == "sh":
            continue
        keys = yaml.safe_load(block.body) if block.language == "yaml" else [block.section]
        if not all((block.language, key) in known for key in keys):
            found.append(f"{block.section}: {block.language}")
    return found


def test_every_block_of_the_page_is_run_by_a_test() -> None:
    assert not_run() == []
    everything = {(b.language, b.section) for b in blocks() if b.language == "console"}
    keys = {("yaml", k) for b in blocks() if b.language == "yaml" for k in yaml.safe_load(b.body)}
    assert taken() == everything | keys  # and no test takes what is not there
    for planted in ("console\n$ secure-fgl new\n", "yaml\nnew: 1\n", "text\nnew\n"):  # controls
        assert not_run(f"{PAGE}\n## New\n\n```{planted}```\n") == [f"New: {planted.split()[0]}"]
