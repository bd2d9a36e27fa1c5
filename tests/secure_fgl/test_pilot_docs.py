"""docs/pilot.md is walked through, command by command; and what goes wrong on the way."""

from __future__ import annotations

import ast
import json
import os
import shlex
import shutil
import sys
import zipfile
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from typer.testing import Result

from protocols.policy.policy import PrivacyPolicy
from protocols.policy.release import Release
from secure_fgl.charters.facts import Facts
from secure_fgl.charters.party import PartyKit
from secure_fgl.cli._shared.charters import models_of
from secure_fgl.config import Config
from secure_fgl.consortium import Consortium
from secure_fgl.data.own import load_spec
from secure_fgl.errors import UsageError
from secure_fgl.sites.supervisor import start as keep_up
from secure_fgl.store.sides.places import place_of
from secure_fgl.transports.nvflare import kits
from secure_fgl.transports.nvflare.checks.kit_files import KitFiles
from tests.pilot_page import PAGE, blocks, console, document
from tests.secure_fgl.cli_tools import ROOT, invoke
from tests.secure_fgl.test_own_docs import walk

ROLE = "--organisation A --role client"
PARTIES = ("north", "east", "south", "west", "notary", "office")


def nvflare(line: str) -> None:
    """Run NVFlare's own command in this process: ten processes of it would take half a minute."""
    from nvflare import cli

    if "$FINGERPRINT" in line:  # what the office reads out
        root = x509.load_pem_x509_certificate(Path("engine/ca/rootCA.pem").read_bytes())
        line = line.replace("$FINGERPRINT", "SHA256:" + root.fingerprint(hashes.SHA256()).hex(":"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [*sys.path])
        patch.setattr(sys, "argv", shlex.split(line))
        patch.setenv("HOME", str(Path.cwd()))  # it notes there what was asked and signed
        cli.run("nvflare")


@pytest.fixture(scope="module")
def walked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pilot")
    before = Path.cwd()
    os.chdir(folder)
    try:
        for line in (line for b in blocks() if b.language == "sh" for line in b.body.splitlines()):
            if line.startswith("nvflare "):
                nvflare(line)
            else:
                walk("sh", "", line)
    finally:
        os.chdir(before)
    return folder


@pytest.fixture(autouse=True)
def _there(walked: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(walked)
    yield
    os.chdir(before)


def test_every_party_keeps_one_charter_that_all_signed() -> None:
    kits = [PartyKit.load(f"parties/{name}") for name in PARTIES]
    assert len({kit.charter.signed for kit in kits}) == 1
    charter, config = kits[0].charter, Config.load("pilot/config.yaml")
    assert charter.plan.clients == config.data.partition.called
    assert set(config.data.partition.names) <= set(charter.sites)
    assert charter.sites["aggregator"] == "fl.example.org"
    assert charter.sites["hospital-north"] == "hospital-north"
    assert charter.organisations["key-authority"] == "Notary"
    assert charter.spec == load_spec("pilot/data")
    assert charter.plan.data.spec == load_spec("pilot/data").digest
    for name in PARTIES:
        assert Path(f"parties/{name}/identity.json").stat().st_mode & 0o777 == 0o600


def test_no_private_key_of_the_engine_leaves_where_it_was_made() -> None:
    """What goes to the office and back holds none; and each kit holds the one that was kept."""
    places = {
        "north": "hospital-north",
        "server": "fl.example.org",
        "admin": "admin@fl.example.org",
    }
    for place, name in places.items():
        key = Path(f"engine/{place}/{name}.key").read_bytes()
        assert b"PRIVATE KEY" in key
        for kind in ("request", "signed"):
            with zipfile.ZipFile(f"engine/{place}/{name}.{kind}.zip") as file:
                assert not any(b"PRIVATE KEY" in file.read(one) for one in file.namelist())
        kept = [path.read_bytes() for path in Path(f"kits/pilot/prod_00/{name}").rglob("*.key")]
        assert kept == [key]
        everywhere = [
            path for path in Path().rglob("*") if path.is_file() and key in path.read_bytes()
        ]
        assert len(everywhere) == 2  # where it was made, and in its own kit
    for name in ("hospital-north", "fl.example.org"):
        kit = KitFiles.open(f"kits/pilot/prod_00/{name}")
        assert kit.site == name and kit.mutual and kit.lacking() == []  # hardened
        assert kit.dialled == ("fl.example.org", 8102)
    run = place_of("parties/north").name
    shown = invoke("site", "check", "parties/north", "--run", run, "--kit",
                   "kits/pilot/prod_00/hospital-north", "--format", "json")  # fmt: skip
    found = {line["check"]: line["status"] for line in json.loads(shown.stdout)["checks"]}
    assert [found[n] for n in ("kit", "in force", "certificate")] == ["OK"] * 3
    wrong = invoke("site", "harden", "parties/east", "--kit", "kits/pilot/prod_00/hospital-north")
    assert wrong.exit_code == 2 and "hospital-east" in wrong.stderr  # another party's kit


def test_the_files_of_the_pilot_fit_together() -> None:
    consortium = Consortium.load("pilot/consortium.yaml")
    plan = json.loads(invoke("plan", "pilot/config.yaml", "--format", "json").stdout)
    members = {m.name: str(m.role) for m in consortium.parties}
    assert [n for n, role in sorted(members.items()) if role == "client"] == plan["clients"]
    assert set(members) == set(PartyKit.load("parties/north").charter.sites)
    steps = Path("pilot/STEPS.md").read_text()
    agree = ("site new", "charter draw", "charter show", "charter sign", "site join")
    play = ("site start", "site stop", "conduct", "status", "site hand-over", "audit gather")
    for command in (*agree, *play):
        assert f"secure-fgl {command}" in steps and f"secure-fgl {command}" in PAGE
    assert "$" not in steps and "pilot/config.yaml" in steps
    asked = [yaml.safe_load(path.read_text()) for path in Path("pilot/engine").glob("*.yaml")]
    (project,) = [one["server"] for one in asked if "server" in one]
    assert project == {"host": consortium.server.name, "fed_learn_port": consortium.server.port}
    who = {p["name"]: p for one in asked for p in one.get("participants", ())}
    host = consortium.server.name
    assert set(who) == {*members} - {"aggregator"} | {host, f"admin@{host}"}
    assert {n for n, p in who.items() if p["type"] == "client"} == {*members} - {"aggregator"}
    assert who["hospital-north"]["org"] == "hospital_north"
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
    for said in ("Hospital North", "fl.example.org", "key_authority", "rounds 30", "risky"):
        assert said in shown.stdout
    found = json.loads(invoke("charter", "show", "signed.json", "--format", "json").stdout)
    assert found["missing"] == found["refused"] == []
    assert {p["said"] for p in found["parties"]} == {"signed"}
    assert found["spec"]["features"] == ["age", "income", "tenure"]
    made = invoke("site", "new", "again", "--name", "x", "--organisation", "X", "--role", "client")
    (mine,) = [line for line in made.stdout.splitlines() if line.startswith("fingerprint")]
    assert len(mine.split()[1:]) == 8


MOST_LINES = 120
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
    for party in charter.sites:
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
        more = ("--server", "fl.example.org", "--out", "swapped.json")
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
    more = ("--server", "fl.example.org", "--out", "none.json")
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
        "charter", "draw", "pilot/config.yaml", *facts, "--server", "fl.example.org",
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


def test_kits_are_made_with_the_relay_that_the_page_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = document("participants")
    (relay,) = [one for one in shown if one["type"] == "relay"]
    (site,) = [one["name"] for one in shown if one["type"] == "client"]
    plain = kits._project

    def project(names: Sequence[str], port: int) -> dict[str, Any]:
        made = plain(names, port)
        own = [one for one in made["participants"] if one["type"] != "client"]
        direct = [one for one in made["participants"] if one["name"] == "hospital-east"]
        return {
            **made,
            "participants": [*own, *deepcopy(shown), *direct],
        }  # NVFlare takes keys away

    monkeypatch.setattr(kits, "_project", project)
    made = kits.provision(tmp_path / "kits", [site, "hospital-east"], port=8102)
    found, direct = (KitFiles.open(made.sites[name]) for name in (site, "hospital-east"))
    there = relay["listening_host"]
    assert found.relay == relay["name"]
    assert found.dialled == (there["default_host"], there["port"]) and found.mutual
    assert direct.relay == "" and direct.dialled == ("localhost", 8102)  # the control


def test_the_page_s_words_on_stopping_hold_at_a_site_that_has_nothing_at_work() -> None:
    """Real processes are started and stopped by tests/nvflare/test_six_users.py."""
    shutil.copytree("parties/north", "stopped/parties/north")
    starts, _, stops, again = console("Starting a site")
    os.chdir("stopped")
    assert invoke(*stops.split()[1:]).exit_code == 0
    with pytest.raises(UsageError) as refused:
        keep_up("parties/north", users=[os.geteuid()], say=print)
    assert starts.startswith("secure-fgl site start parties/north --kit ")
    assert again == f"{starts} --again" and "--again" in refused.value.fix
    (sweeps,) = console("The model, and forgetting")
    done = invoke(*sweeps.split()[1:])
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
