"""A site holds its own folder and nothing of anybody else (O26): held by the kernel, not by us."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from protocols.wire.roles import Role
from protocols.wire.roster import AGGREGATOR_NAME
from secure_fgl.charters.party import PartyKit
from secure_fgl.config import Config
from secure_fgl.data.own import OwnSpec, load_sites, load_spec
from secure_fgl.data.own.spec import SPEC_FILE
from secure_fgl.errors import PlanDrift, UsageError
from secure_fgl.federation import Federation
from secure_fgl.sites.process import open_process
from secure_fgl.store.finished_run import Run
from secure_fgl.store.sides.own_model import own_model
from tests import forked
from tests.secure_fgl.cli_tools import invoke
from tests.sites import apart
from tests.sites.stage import Parties, assemble

NAMES = ("hospital-west", "hospital-north", "hospital-east", "hospital-south")
READ = "all of them were read"
SPEC = """
name: loans
task: node
features: [age, income]
classes: ["fine", "risky"]
records: 64
split: [0.5, 0.25, 0.25]
"""


def tables(folder: Path, number: int) -> None:
    """Write one site's tables, unlike every other site's."""
    folder.mkdir(parents=True)
    rows = [
        f"{i},{'risky' if (i + number) % 3 else 'fine'},{i * 3 + number},{i % 5 - number}.5"
        for i in range(40 + number)
    ]
    (folder / "nodes.csv").write_text("\n".join(["id,label,age,income", *rows, ""]))
    edges = [f"{i},{(i * 5 + number) % (40 + number)}" for i in range(40 + number)]
    (folder / "edges.csv").write_text("\n".join(["source,target", *edges, ""]))


def own(root: Path) -> Config:
    """Return a small run on tables of the sites' own."""
    return Config.parse(
        {
            "algorithm": {"name": "fed_avg", "rounds": 1},
            "model": {"hidden": 4},
            "data": {"name": "own", "root": str(root), "partition": {"names": list(NAMES)}},
            "policy": "masks",
            "seed": 1,
        }
    )


@dataclass
class Stage:
    """All folders side by side, as nobody but the test has them."""

    base: Path
    parties: Parties
    config: Config

    @property
    def data(self) -> Path:
        return self.base / "data"

    def folder(self, name: str) -> Path:
        return self.parties.folders[name]

    def kit(self, name: str) -> PartyKit:
        return PartyKit.load(self.folder(name))


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    base = Path(tempfile.mkdtemp(prefix="secure-fgl-apart-"))  # others reach pytest's own not
    base.chmod(0o711)
    data = base / "data"
    for number, name in enumerate(NAMES):
        tables(data / name, number)
    (data / SPEC_FILE).write_text(SPEC)
    (base / "parties").mkdir(mode=0o711)
    try:
        yield Stage(base, assemble(own(data), base / "parties"), own(data))
    finally:
        shutil.rmtree(base)


@pytest.fixture(scope="module")
def rehearsal(stage: Stage) -> Run:
    return Federation.from_config(stage.config).run(stage.base / "rehearsal")


def test_clients_are_called_as_the_configuration_says(stage: Stage, rehearsal: Run) -> None:
    ordered = tuple(sorted(NAMES))
    charter = stage.parties.charter
    assert charter.plan.clients == charter.roster.clients == ordered
    assert {p.stem for p in (rehearsal.path / "ledger").iterdir()} == {*NAMES, AGGREGATOR_NAME}
    assert rehearsal.verify().verdict == "self-consistent only"
    text = Path(rehearsal.report(["json"])[0]).read_text()
    assert all(name in text for name in NAMES) and "client-1" not in text
    for name in NAMES:  # each trained on the folder of its own name
        assert rehearsal.trained(name).facts["site"] == name


def test_no_party_can_read_or_needs_a_file_of_another(stage: Stage, rehearsal: Run) -> None:
    """Each has a folder, a home and a user id (else a sandbox) of its own; the run is the same."""
    roster = stage.parties.charter.roster
    started: dict[str, apart.Apart] = {}
    theirs: dict[str, list[Path]] = {}
    with pytest.MonkeyPatch.context() as patch:
        forked.use(patch)
        forked.warm()
        for number, name in enumerate(stage.parties.folders):
            uid, house = apart.FIRST_UID + number, stage.base / "homes" / name
            house.mkdir(parents=True)
            theirs[name] = [stage.folder(name), house]
            if roster.party(name).role is Role.CLIENT:
                theirs[name].append(stage.data / name)
            for place in theirs[name]:
                apart.give(place, uid)
        for folder in (stage.base / "homes", stage.data):
            folder.chmod(0o755)
        running: list[apart.Apart] = []
        with apart.ended(running):
            for number, name in enumerate(theirs):
                home = str(theirs[name][1])
                places = ("HOME", "TMPDIR", "SECURE_FGL_STATE", "SECURE_FGL_BUDGETS")
                environment = dict.fromkeys(places, home)
                shown = list(theirs[name])
                if stage.data / name in shown:  # the folder of all: the kernel keeps it from them
                    environment["SECURE_FGL_DATA"] = str(stage.data)
                    shown.append(stage.data / SPEC_FILE)
                server = apart.PartyServer(stage.folder(name), read=_all_folders)
                started[name] = apart.start(apart.FIRST_UID + number, shown, environment, server)
                running.append(started[name])
            files = {
                name: [str(file) for place in places for file in place.rglob("*") if file.is_file()]
                for name, places in theirs.items()
            }
            for name, process in started.items():
                others = [f for n in files if n != name for f in files[n]]
                assert process.ask(do="read", paths=others)["readable"] == []
                assert process.ask(do="read", paths=files[name])["readable"] == files[name]
            # The control: what a simulation does, to read all folders, is not to be had here.
            told = started[NAMES[0]].ask(do="call", path=str(stage.data))["told"]
            assert told != READ and str(stage.data) in told, told
            for process in started.values():
                process.ask(do="open")
            said = apart.carry(started, started[AGGREGATOR_NAME])
            for name, process in started.items():
                if name != AGGREGATOR_NAME:
                    process.ask(do="end", note=said["end"])
    assert said["digest"] == rehearsal.model_sha256 is not None
    name, out = NAMES[0], stage.base / "model.npz"
    written = invoke("site", "model", stage.folder(name), "--out", out)
    assert written.exit_code == 0, written.stderr
    tables = [stage.base / "by-file.csv", stage.base / "by-run.csv"]
    for source, table in zip((out, rehearsal.path), tables, strict=True):
        done = invoke("predict", source, "--site", stage.data / name, "--out", table)
        assert done.exit_code == 0, done.stderr
        assert re.search(f"that of {name}|the shared one", done.stderr)
    assert tables[0].read_bytes() == tables[1].read_bytes()
    office = own_model(stage.folder(AGGREGATOR_NAME))
    assert office.facts["feature_names"] == ["age", "income"]  # from what all signed
    digests = {name: rehearsal.trained(name).facts["data_sha256"] for name in NAMES}
    assert len(set(digests.values())) == len(NAMES)
    assert stage.parties.result()["metrics"] == rehearsal.result["metrics"]


def _all_folders(path: str) -> str:
    try:
        load_sites(path, load_spec(path), 1)
    except (OSError, UsageError) as error:
        return str(error)
    return READ


SWAPPED = {
    "features": yaml.safe_dump({**yaml.safe_load(SPEC), "features": ["income", "age"]}),
    "classes": yaml.safe_dump({**yaml.safe_load(SPEC), "classes": ["risky", "fine"]}),
    "split": yaml.safe_dump({**yaml.safe_load(SPEC), "split": [0.25, 0.5, 0.25]}),
}


@pytest.mark.parametrize("what", SWAPPED)
@pytest.mark.parametrize("name", [NAMES[2], AGGREGATOR_NAME])
def test_another_spec_at_a_site_is_refused_with_both_digests(
    what: str, name: str, stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Swapped columns or words have the same plan of sizes, and would train a wrong model."""
    (tmp_path / SPEC_FILE).write_text(SWAPPED[what])
    monkeypatch.setenv("SECURE_FGL_DATA", str(tmp_path))
    with pytest.raises(PlanDrift) as caught:
        open_process(stage.kit(name))
    here = OwnSpec.model_validate(yaml.safe_load(SWAPPED[what])).digest
    assert here != stage.parties.charter.plan.data.spec
    assert here in str(caught.value) and stage.parties.charter.plan.data.spec in str(caught.value)


def test_comments_of_a_spec_are_each_site_s_own(stage: Stage, tmp_path: Path) -> None:
    (tmp_path / SPEC_FILE).write_text("# ours\n" + yaml.safe_dump(yaml.safe_load(SPEC)))
    load_spec(tmp_path).check_digest(stage.parties.charter.plan.data.spec, tmp_path)
    (tmp_path / SPEC_FILE).write_text(SWAPPED["classes"])
    with pytest.raises(PlanDrift):
        load_spec(tmp_path).check_digest(stage.parties.charter.plan.data.spec, tmp_path)


def test_a_spec_that_is_exchanged_later_is_found_where_the_data_are_read(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process of the answers reads the file itself, after the session looked at it."""
    (tmp_path / SPEC_FILE).write_text(SWAPPED["features"])
    monkeypatch.setenv("SECURE_FGL_DATA", str(tmp_path))
    monkeypatch.setattr(PartyKit, "check_spec", lambda self: None)
    with pytest.raises(UsageError, match="has the digest"):
        open_process(stage.kit(NAMES[1]))


def test_a_client_without_a_spec_and_one_without_a_folder_say_so(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SECURE_FGL_DATA", raising=False)
    with pytest.raises(UsageError, match="need a folder"):
        open_process(stage.kit(NAMES[3]))
    monkeypatch.setenv("SECURE_FGL_DATA", str(tmp_path))
    with pytest.raises(UsageError, match=SPEC_FILE):
        open_process(stage.kit(NAMES[3]))
    (tmp_path / SPEC_FILE).write_text(SPEC)
    (tmp_path / NAMES[1]).mkdir()  # another one's folder is no help
    with pytest.raises(UsageError, match=f"{NAMES[3]}: there is no such folder"):
        open_process(stage.kit(NAMES[3]))


def test_a_folder_that_nobody_is_called_by_is_not_opened_in_a_rehearsal(stage: Stage) -> None:
    (stage.data / "stranger").mkdir(exist_ok=True)
    facts: Any = Federation.from_config(stage.config).prepare()
    facts.load()
    assert [site.about.args[2]["site"] for site in facts.sites] == sorted(NAMES)
    numbered = stage.config.model_dump(mode="json")
    numbered["data"]["partition"] = {"clients": 4}
    unnamed: Any = Federation.from_config(Config.parse(numbered)).prepare()
    with pytest.raises(UsageError, match="stranger"):  # the control: as before
        unnamed.load()
    (stage.data / "stranger").rmdir()
