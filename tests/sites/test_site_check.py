"""``site check``: what would fail after the start is found before it, and nothing is sent."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from protocols.wire.roles import Role
from protocols.wire.roster import AGGREGATOR_NAME
from secure_fgl.charters import charter, joining
from secure_fgl.charters.broker import CARRIER, KEY_FILE
from secure_fgl.charters.identity_file import new_identity
from secure_fgl.data.own.spec import SPEC_FILE
from secure_fgl.sites import checks
from secure_fgl.sites.checks import Line, Status, Subject, look, named, utc
from secure_fgl.store.budgets import BudgetStore
from secure_fgl.store.sides.party_side import place_of
from secure_fgl.transports.broker.check import Finding
from tests.secure_fgl.cli_tools import invoke
from tests.sites.stage import Parties, assemble, banks
from tests.sites.test_own_folders import NAMES, SPEC, own, tables

NORTH = "hospital-north"
SENTINEL = "Zz-patient-4711"


@dataclass
class Stage:
    """One client's folder and data, as a test may spoil them."""

    party: Path
    data: Path
    parties: Parties

    def lines(self, **more: Callable[[], datetime]) -> dict[str, Line]:
        return {line.name: line for line in checks.check_site(self.party, **more)}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Stage:
    base = tmp_path_factory.mktemp("check")
    for number, name in enumerate(NAMES):
        tables(base / "data" / name, number)
    (base / "data" / SPEC_FILE).write_text(SPEC)
    parties = assemble(own(base / "data"), base / "parties")
    return Stage(parties.folders[NORTH], base / "data", parties)


@pytest.fixture
def stage(made: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    kept = made.parties.folders
    folders = {s: Path(shutil.copytree(f, tmp_path / "parties" / s)) for s, f in kept.items()}
    data = Path(shutil.copytree(made.data, tmp_path / "data"))
    monkeypatch.setenv("SECURE_FGL_DATA", str(data))
    monkeypatch.setenv("SECURE_FGL_BUDGETS", str(tmp_path / "budgets"))
    return Stage(folders[NORTH], data, Parties(made.parties.charter, folders))


def failing(lines: Mapping[str, Line]) -> list[str]:
    return [name for name, line in lines.items() if line.status is Status.FAIL]


def test_a_site_that_is_ready_is_told_so_line_by_line(stage: Stage) -> None:
    shown = invoke("site", "check", stage.party, "--format", "json", "--strict")
    found = json.loads(shown.stdout)["checks"]
    assert [line["check"] for line in found] == [*checks.OFFLINE]
    assert {line["status"] for line in found} == {"OK"}, found
    assert shown.exit_code == 0
    said = {line["check"]: line["said"] for line in found}
    assert "signed by all 5 parties" in said["charter"] and NORTH in said["keys"]
    assert "20 records to train on" in said["data"]
    assert "tls://localhost:4222 with a key of its own" in said["carrier"]
    assert "keep keys and network apart" in said["separation"]


def test_a_site_of_few_persons_is_shown_that_it_trains_on_nothing(stage: Stage) -> None:
    nodes = stage.data / NORTH / "nodes.csv"
    nodes.write_text("\n".join(nodes.read_text().splitlines()[:13]) + "\n")
    nodes.with_name("edges.csv").write_text("source,target\n")
    found = json.loads(invoke("site", "check", stage.party, "--format", "json").stdout)["checks"]
    said = {line["check"]: line["said"] for line in found}
    assert "6 records to train on" in said["data"] and "fewer than 10 persons" in said["data"]


def test_nothing_is_sent_unless_the_broker_is_asked(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sends(*_: object, **__: object) -> None:
        raise AssertionError("something is sent")

    for name in ("getaddrinfo", "create_connection", "socket"):
        monkeypatch.setattr(socket, name, sends)
    assert failing(stage.lines()) == []
    tried = [
        Finding("one", True, "as it is to be"),
        Finding("two", False, "not so"),
        Finding("x", None, "?"),
    ]
    monkeypatch.setattr(checks, "check_broker", lambda *_: tried)
    found = [*checks.check_site(stage.party, broker=True)][len(checks.OFFLINE) :]
    assert [(line.name, line.status, line.code) for line in found] == [
        ("broker: one", Status.OK, 0),
        ("broker: two", Status.FAIL, 2),
        ("broker: x", Status.NOT_CHECKED, 0),
    ]
    monkeypatch.setattr(checks, "check_broker", sends)  # whatever happens is a line
    (line,) = [*checks.check_site(stage.party, broker=True)][len(checks.OFFLINE) :]
    assert line.status is Status.FAIL and "something is sent" not in line.said


def test_what_is_of_clients_alone_is_not_checked_elsewhere(stage: Stage) -> None:
    stage.party = stage.parties.folders[AGGREGATOR_NAME]
    found = stage.lines()
    unseen = [name for name, line in found.items() if line.status is Status.NOT_CHECKED]
    assert unseen == ["data", "budget", "kernel"] and failing(found) == []
    assert invoke("site", "check", stage.party).exit_code == 0
    assert invoke("site", "check", stage.party, "--strict").exit_code == 4


def _edited(stage: Stage) -> None:
    file = stage.party / CARRIER / f"{stage.parties.charter.run}.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "inbox": "fgl.replies"}))


def _another_s(stage: Stage) -> None:
    run = f"{stage.parties.charter.run}.json"
    theirs = stage.parties.folders["hospital-east"] / CARRIER / run
    shutil.copy(theirs, stage.party / CARRIER / run)


CARRIERS: dict[str, tuple[Callable[[Stage], object], str]] = {
    "open key": (lambda s: (s.party / CARRIER / KEY_FILE).chmod(0o640), "chmod 600"),
    "no connection": (
        lambda s: (s.party / CARRIER / f"{s.parties.charter.run}.json").unlink(), "site join",
    ),
    "edited": (_edited, "site join"),
    "another's": (_another_s, "site join"),
}  # fmt: skip


@pytest.mark.parametrize("how", CARRIERS)
def test_a_carrier_that_could_not_connect_as_agreed_is_found(how: str, stage: Stage) -> None:
    spoil, todo = CARRIERS[how]
    spoil(stage)
    found = stage.lines()
    assert failing(found) == ["carrier"] and todo in found["carrier"].todo


def test_a_carrier_s_key_that_lies_with_its_own_user_is_not_looked_for(stage: Stage) -> None:
    (stage.party / CARRIER / KEY_FILE).unlink()
    found = stage.lines()["carrier"]
    assert found.status is Status.NOT_CHECKED and "a user of its own" in found.said


def _mode(name: str, mode: int, *, run: bool = False) -> Callable[[Stage], None]:
    return lambda stage: ((place_of(stage.party) if run else stage.party) / name).chmod(mode)


def _unsigned(stage: Stage) -> None:
    charter = stage.parties.charter
    fewer = {n: s for n, s in charter.signatures.items() if n != AGGREGATOR_NAME}
    (place_of(stage.party) / "charter.json").write_bytes(
        replace(charter, signatures=fewer).encode()
    )


def _of_others(stage: Stage) -> None:
    (stage.party / "identity.json").unlink()
    new_identity(stage.party, NORTH, Role.CLIENT)


def _swapped(stage: Stage) -> None:
    document = yaml.safe_load(SPEC)
    (stage.data / SPEC_FILE).write_text(yaml.safe_dump({**document, "features": ["income", "age"]}))


def _table(stage: Stage) -> None:
    file = stage.data / NORTH / "nodes.csv"
    file.write_text(file.read_text().replace("fine", SENTINEL, 1))


SPOILT: dict[str, tuple[Callable[[Stage], object], str, int, str]] = {
    "keys open": (_mode("identity.json", 0o644), "folder", 2, "chmod go= "),
    "folder open": (_mode(".", 0o777), "folder", 2, "chmod go-w"),
    "charter open": (_mode("charter.json", 0o666, run=True), "folder", 2, "chmod go-w"),
    "no keys": (lambda s: (s.party / "identity.json").unlink(), "keys", 2, ""),
    "others' keys": (_of_others, "charter", 5, ""),
    "no charter": (lambda s: shutil.rmtree(s.party / "runs"), "versions", 2, "site join"),
    "unsigned": (_unsigned, "charter", 5, ""),
    "refused": (
        lambda s: joining.refuse(s.party, s.parties.charter, "no"), "charter", 5, "",
    ),
    "another spec": (_swapped, "spec", 6, "run what was approved"),
    "no data": (lambda s: shutil.rmtree(s.data / NORTH), "data", 2, "did you mean"),
    "spoilt data": (_table, "data", 2, ""),
}  # fmt: skip


@pytest.mark.parametrize("how", SPOILT)
def test_what_would_fail_after_the_start_fails_here(how: str, stage: Stage) -> None:
    spoil, name, code, todo = SPOILT[how]
    spoil(stage)
    shown = invoke("site", "check", stage.party, "--format", "json")
    found = {line["check"]: line for line in json.loads(shown.stdout)["checks"]}
    first = next(line for line in found.values() if line["status"] == "FAIL")
    assert first["check"] == name and todo in first["todo"], first
    assert shown.exit_code == code and SENTINEL not in shown.stdout
    if name in ("keys", "versions", "charter"):  # nothing is built on what does not hold
        assert found["plan"]["status"] == found["data"]["status"] == "NOT CHECKED"


def test_a_folder_of_another_user_is_found(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    assert stage.lines()["folder"].status is Status.OK  # the control
    owner, other = os.geteuid(), os.geteuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: other)
    line = look("folder", checks.OFFLINE["folder"], Subject(stage.party, None, utc()))
    assert line.status is Status.FAIL and f"another user, {named(owner)}" in line.said
    assert "as the party's user" in line.todo and line.code == 2


def test_what_a_site_holds_is_looked_at(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    edges = stage.data / NORTH / "edges.csv"
    edges.write_text(edges.read_text() + "1,1\n")
    assert "edges from a node to itself, dropped: 2" in stage.lines()["data"].said
    lock = place_of(stage.party) / "lock"
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        lock.chmod(0o600)
        assert failing(stage.lines()) == ["process"]
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1 << 20))
    found = stage.lines()
    assert failing(found) == ["disk"] and "1 MB are free" in found["disk"].said
    monkeypatch.undo()


def test_a_clock_that_is_wrong_is_found(stage: Stage) -> None:
    day = timedelta(days=1)
    yesterday = stage.lines(now=lambda: datetime.now(UTC) - day)
    assert failing(yesterday) == ["clock"] and "was written at" in yesterday["clock"].said
    assert failing(stage.lines(now=lambda: datetime.now(UTC) + day)) == []


def test_another_plan_or_version_is_found(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    here = charter.installed()
    with monkeypatch.context() as patch:
        patch.setattr(charter, "installed", lambda: {**here, "secure-fgl": "9.9.9"})
        found = stage.lines()
        assert failing(found) == ["versions"] and found["charter"].status is Status.OK
        assert "9.9.9" in found["versions"].said and here["secure-fgl"] in found["versions"].said
    with monkeypatch.context() as patch:
        patch.setattr("secure_fgl.federation.Federation.plan", _other_plan(stage))
        shown = invoke("site", "check", stage.party)
        assert shown.exit_code == 6


def _other_plan(stage: Stage) -> Callable[[object], object]:
    plan = stage.parties.charter.plan
    return lambda _: plan.model_copy(update={"rounds": 9})


def test_o20_a_budget_that_does_not_cover_the_run_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECURE_FGL_BUDGETS", str(tmp_path / "budgets"))
    parties = assemble(banks(policy="calibrated"), tmp_path / "parties")
    stage = Stage(parties.folders["client-1"], tmp_path, parties)
    name, plan = parties.kit("client-1").name, parties.charter.plan
    found = stage.lines()
    assert found["budget"].status is Status.OK and "by 0 runs" in found["budget"].said
    store, cap = BudgetStore(), parties.charter.policy.budget
    assert cap is not None
    assert store.spent(name, plan.data.name, cap.delta).entries == 0  # looking reserved nothing
    (_, curve), *_ = checks.planned_spending(plan)
    store.reserve(name, plan.data.name, "0" * 32, [repr(v) for v in curve], "0", cap)
    shown = invoke("site", "check", stage.party)
    assert shown.exit_code == 7 and "does not cover this run" in " ".join(shown.stdout.split())


def test_what_was_not_compared_is_not_called_ok(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # A link, through which a process may hold it.
    (place_of(stage.party) / "lock").symlink_to(tmp_path / "elsewhere")
    assert failing(stage.lines()) == ["process"]
    stage.party = stage.parties.folders[AGGREGATOR_NAME]
    assert stage.lines()["spec"].status is Status.OK  # the control: there is one
    monkeypatch.delenv("SECURE_FGL_DATA")
    found = stage.lines()
    assert found["spec"].status is Status.NOT_CHECKED and failing(found) == []
