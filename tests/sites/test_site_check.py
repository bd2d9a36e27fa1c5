"""``site check``: what would fail after the start is found before it, and nothing is sent."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from protocols.wire.roster import AGGREGATOR_NAME
from secure_fgl.charters import joining, party
from secure_fgl.charters.identity_file import new_identity
from secure_fgl.data.own.spec import SPEC_FILE
from secure_fgl.sites.checks.lines import Line, Status, Subject, look
from secure_fgl.store.budgets import BudgetStore
from secure_fgl.store.sides.places import place_of
from secure_fgl.sites.checks import listed
from secure_fgl.sites.checks.kit_files import KitFiles
from secure_fgl.sites.checks.users import named
from secure_fgl.transports.nvflare.engine.listener import OTHERS_READ
from secure_fgl.transports.nvflare.engine.memory import COMMUNICATION_FILE
from secure_fgl.charters import versions
from tests.sites.stage import Parties, assemble, banks
from tests.sites.test_engine_relay import BEHIND, RELAY, with_relay
from tests.sites.test_own_folders import NAMES, SPEC, own, tables
from tests.secure_fgl.cli_tools import invoke

NORTH = "hospital-north"
SENTINEL = "Zz-patient-4711"
KIT = ("kit", "in force", "sending", "certificate", "apart", "server's name", "server")
ALONE = ("apart", "network")  # OK where party and kit are of two users, and where namespaces are


@dataclass
class Stage:
    """One client's folder, kit and data, as a test may spoil them; and the server's kit."""

    party: Path
    kit: Path
    data: Path
    parties: Parties
    server: Path

    def lines(self, kit: bool = False, **more: Callable[[], datetime]) -> dict[str, Line]:
        return {
            line.name: line
            for line in listed.check_site(self.party, self.kit if kit else None, **more)
        }


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Stage:
    base = tmp_path_factory.mktemp("check")
    for number, name in enumerate(NAMES):
        tables(base / "data" / name, number)
    (base / "data" / SPEC_FILE).write_text(SPEC)
    parties = assemble(own(base / "data"), base / "parties")
    site = parties.charter.carriers[NORTH]
    kit = kits.provision(base / "kits", [site, "site-x"], port=kits.free_port())
    return Stage(parties.folders[site], kit.sites[site], base / "data", parties, kit.server)


@pytest.fixture
def stage(made: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    kept = made.parties.folders
    folders = {s: Path(shutil.copytree(f, tmp_path / "parties" / s)) for s, f in kept.items()}
    data = Path(shutil.copytree(made.data, tmp_path / "data"))
    kit = Path(shutil.copytree(made.kit, tmp_path / "kit"))
    monkeypatch.setenv("SECURE_FGL_DATA", str(data))
    monkeypatch.setenv("SECURE_FGL_BUDGETS", str(tmp_path / "budgets"))
    parties = Parties(made.parties.charter, folders)
    return Stage(folders[made.parties.charter.carriers[NORTH]], kit, data, parties, made.server)


@contextlib.contextmanager
def listening(kit: Path, port: int) -> Iterator[None]:
    """A server with the certificate of a kit, which takes sites of the same root alone."""
    startup = kit / "startup"
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(startup / "server.crt", startup / "server.key")
    context.load_verify_locations(startup / "rootCA.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    with socket.create_server(("127.0.0.1", port)) as raw:

        def serve() -> None:
            with contextlib.suppress(OSError), context.wrap_socket(raw.accept()[0], True) as tls:
                tls.sendall(b"x")
                tls.recv(1)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", port), 1).close()
            thread.join()


def port_of(kit: Path) -> int:
    document = json.loads((kit / "startup" / "fed_client.json").read_text())
    return int(document["servers"][0]["service"]["target"].rpartition(":")[2])


def failing(lines: Mapping[str, Line]) -> list[str]:
    """Return what fails beside `apart`: party and kit are of the user of these tests."""
    failed = [name for name, line in lines.items() if line.status is Status.FAIL]
    return [name for name in failed if name != "apart"]


def test_a_site_that_is_ready_is_told_so_line_by_line(stage: Stage) -> None:
    with listening(stage.server, port_of(stage.kit)):
        shown = invoke("site", "check", stage.party, "--kit", stage.kit, "--format", "json")
    found = json.loads(shown.stdout)["checks"]
    assert [line["check"] for line in found] == [*listed.OFFLINE, *listed.ONLINE]
    assert {line["status"] for line in found if line["check"] not in ALONE} == {"OK"}, found
    assert shown.exit_code == 2
    others = {line["check"]: line for line in found if line["check"] in ALONE}
    assert others["apart"]["status"] == "FAIL"  # both are of the user of these tests
    assert OTHERS_READ in others["apart"]["said"]
    assert "a user of its own" in others["apart"]["todo"]
    said = {line["check"]: line["said"] for line in found}
    assert "signed by all 5 parties" in said["charter"] and NORTH in said["keys"]
    assert (
        "20 records to train on" in said["data"] and "its own for 359 days" in said["certificate"]
    )
    assert "listens" in said["server"] and "127.0.0.1" in said["server's name"]
    printed = invoke("site", "check", stage.party, "--strict")
    unseen = len(KIT) + (others["network"]["status"] == "NOT CHECKED")
    assert printed.exit_code == 4 and printed.stdout.count("NOT CHECKED") == unseen
    assert "--kit" in printed.stdout and SENTINEL not in printed.stdout


def test_a_site_of_few_persons_is_shown_that_it_trains_on_nothing(stage: Stage) -> None:
    nodes = stage.data / NORTH / "nodes.csv"
    nodes.write_text("\n".join(nodes.read_text().splitlines()[:13]) + "\n")
    nodes.with_name("edges.csv").write_text("source,target\n")
    found = json.loads(invoke("site", "check", stage.party, "--format", "json").stdout)["checks"]
    said = {line["check"]: line["said"] for line in found}
    assert "6 records to train on" in said["data"] and "fewer than 10 persons" in said["data"]


def test_nothing_is_sent_but_by_the_last_two(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    def sends(*_: object, **__: object) -> None:
        raise AssertionError("something is sent")

    for name in ("getaddrinfo", "create_connection", "socket"):
        monkeypatch.setattr(socket, name, sends)
    assert failing(stage.lines()) == []
    found = stage.lines(kit=True)  # the control: these two would have sent something
    assert failing(found) == [*listed.ONLINE]
    assert "AssertionError" in found["server"].said


def test_the_aggregator_s_and_a_party_s_side_say_what_is_of_clients_alone(
    stage: Stage, made: Stage
) -> None:
    stage.party = stage.parties.folders[AGGREGATOR_NAME]
    stage.kit = stage.party.parent.parent / "server"
    shutil.copytree(made.server, stage.kit)
    found = stage.lines(kit=True)
    unseen = [name for name, line in found.items() if line.status is Status.NOT_CHECKED]
    assert [n for n in unseen if n not in ALONE] == ["data", "budget", "kernel", *listed.ONLINE]
    assert failing(found) == []


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
    new_identity(
        stage.party, NORTH, party.load_identity(stage.parties.folders["client-1"]).party.role
    )


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
    "no data": (lambda s: shutil.rmtree(s.data / NORTH), "data", 2, "docs/own-data.md"),
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
    """With other users' real files: test_site_users.py."""
    assert stage.lines()["folder"].status is Status.OK  # the control
    owner, other = os.geteuid(), os.geteuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: other)
    line = look("folder", listed.OFFLINE["folder"], Subject(stage.party, None, None, listed.utc()))
    assert line.status is Status.FAIL and f"another user, {named(owner)}" in line.said
    assert "as root" in line.todo and line.code == 2


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
    yesterday = stage.lines(kit=True, now=lambda: datetime.now(UTC) - day)
    assert failing(yesterday)[:2] == ["clock", "certificate"]
    assert "was written at" in yesterday["clock"].said
    later = stage.lines(kit=True, now=lambda: datetime.now(UTC) + 400 * day)
    assert failing(later)[0] == "certificate" and "it ran out" in later["certificate"].said.lower()
    soon = stage.lines(kit=True, now=lambda: datetime.now(UTC) + 350 * day)
    assert "renew it" in soon["certificate"].said


def test_another_plan_or_version_is_found(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    here = versions.installed()
    with monkeypatch.context() as patch:
        patch.setattr(versions, "installed", lambda: {**here, "nvflare": "9.9.9"})
        found = stage.lines()
        assert failing(found) == ["versions"] and found["charter"].status is Status.OK
        assert "9.9.9" in found["versions"].said and here["nvflare"] in found["versions"].said
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
    stage = Stage(parties.folders["client-1"], tmp_path, tmp_path, parties, tmp_path)
    name, plan = parties.kit("client-1").name, parties.charter.plan
    found = stage.lines()
    assert found["budget"].status is Status.OK and "by 0 runs" in found["budget"].said
    store, cap = BudgetStore(), parties.charter.policy.budget
    assert cap is not None
    assert store.spent(name, plan.data.name, cap.delta).entries == 0  # looking reserved nothing
    (_, curve), *_ = listed.holdings.planned_spending(plan)
    store.reserve(name, plan.data.name, "0" * 32, [repr(v) for v in curve], "0", cap)
    shown = invoke("site", "check", stage.party)
    assert shown.exit_code == 7 and "does not cover this run" in " ".join(shown.stdout.split())


def _target(stage: Stage, host: str, port: int) -> None:
    file = stage.kit / "startup" / "fed_client.json"
    document = json.loads(file.read_text())
    document["servers"][0]["service"]["target"] = f"{host}:{port}"
    file.write_text(json.dumps(document))


def test_a_kit_that_is_wider_or_another_s_is_found(stage: Stage, made: Stage) -> None:
    (stage.kit / "startup" / "client.key").chmod(0o644)
    (stage.kit / "local" / "resources.json").unlink()
    found = stage.lines(kit=True)
    assert failing(found)[:2] == ["kit", "in force"] and "site harden" in found["in force"].todo
    other = made.kit.parent / "site-x"
    stage.kit = other
    found = stage.lines(kit=True)
    assert failing(found)[0] == "kit" and "is of the site site-x" in found["kit"].said
    shutil.copy(other / "startup" / "client.key", stage.party.parent / "x.key")
    stage.kit = Path(shutil.copytree(made.kit, stage.party.parent / "mixed"))
    shutil.copy(stage.party.parent / "x.key", stage.kit / "startup" / "client.key")
    found = stage.lines(kit=True)
    assert failing(found)[0] == "certificate" and "key of another" in found["certificate"].said


def test_a_kit_that_does_not_say_how_nvflare_sends_is_found(stage: Stage) -> None:
    """It was narrowed before kits said so, or its operator wrote something that is no setting."""
    file = stage.kit / "local" / COMMUNICATION_FILE
    assert stage.lines(kit=True)["sending"].status is Status.OK  # the control
    settings = json.loads(file.read_text())
    for written, word in (
        (None, "streaming_chunk_size"),
        (json.dumps({**settings, "streaming_retry_wait": None}), "retry_wait"),
        (json.dumps({k: v for k, v in settings.items() if "retry" not in k}), "retry_wait"),
        (json.dumps({**settings, "streaming_window_size": "much"}), "streaming_window_size"),
        ("[]", "not as NVFlare writes it"),
    ):
        file.unlink() if written is None else file.write_text(written)
        found = stage.lines(kit=True)["sending"]
        assert found.status is Status.FAIL and word in found.said
        file.write_text(json.dumps(settings))
    file.write_text(json.dumps({**settings, "streaming_window_size": 1 << 26}))
    assert "67,108,864" in stage.lines(kit=True)["sending"].said  # an operator's own stays


def test_a_list_of_classes_that_is_none_is_found(stage: Stage) -> None:
    file = stage.kit / "local" / "resources.json"
    settings = json.loads(file.read_text())
    assert stage.lines(kit=True)["in force"].status is Status.OK  # the control
    for wrong in (5, None, {"a": 1}, "nvflare.Any"):
        file.write_text(json.dumps({**settings, "class_allow_list": wrong}))
        found = stage.lines(kit=True)["in force"]
        assert found.status is Status.FAIL and "class_allow_list is no list" in found.said


def test_what_the_engine_reads_besides_is_found(stage: Stage) -> None:
    """These files add components and settings to those of local/resources.json."""
    assert KitFiles.open(stage.kit).lacking() == []  # the control
    for name in (
        "local/job_resources.json",
        "startup/log__p_resources.json",
        "local/x__resources.json",
    ):
        (stage.kit / name).write_text('{"allow_log_streaming": true}')
        (said,) = KitFiles.open(stage.kit).lacking()
        assert name in said
        (stage.kit / name).unlink()


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


def test_a_server_that_is_not_there_or_not_ours_is_found(stage: Stage, tmp_path: Path) -> None:
    found = stage.lines(kit=True)
    assert failing(found) == ["server"] and "Nobody is reached" in found["server"].said
    _target(stage, "no-such-name.invalid", 1)
    assert failing(stage.lines(kit=True)) == ["server's name", "server"]
    foreign = kits.provision(tmp_path / "foreign", ["x"], port=kits.free_port())
    port = port_of(foreign.sites["x"])
    _target(stage, AGGREGATOR_NAME, port)
    with listening(foreign.server, port):
        found = stage.lines(kit=True)
    assert failing(found) == ["server"] and "of one root" in found["server"].todo
    stage.kit = foreign.sites["x"]  # a site of another root, at our server
    root = stage.kit / "startup" / "rootCA.pem"
    shutil.copy(stage.server / "startup" / "rootCA.pem", root)
    port = kits.free_port()
    _target(stage, AGGREGATOR_NAME, port)
    with listening(stage.server, port):
        found = stage.lines(kit=True)
    assert "server" in failing(found) and "does not take this site" in found["server"].said


def behind(stage: Stage, made: Stage, monkeypatch: pytest.MonkeyPatch, security: str) -> Path:
    """Give the stage's site a kit that names a relay, and return the relay's own kit."""
    site = stage.parties.charter.carriers[NORTH]
    assert site in BEHIND
    plain, port = kits._project, kits.free_port()
    with monkeypatch.context() as patch:
        patch.setattr(kits, "_project", lambda *given: with_relay(plain(*given), port, security))
        several = kits.provision(
            stage.party.parent / "relayed", [*BEHIND, "client-3"], port=kits.free_port()
        )
    stage.kit = several.sites[site]
    found = KitFiles.open(stage.kit)
    assert (found.relay, found.dialled) == (RELAY, ("localhost", port))
    direct = KitFiles.open(several.sites["client-3"])  # the control
    assert direct.relay == "" and direct.dialled[1] != port
    return several.server.parent / RELAY


def test_a_site_behind_a_relay_is_checked_as_far_as_the_relay(
    stage: Stage, made: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its name, port and certificate stand where the server's would."""
    relay = behind(stage, made, monkeypatch, "mtls")
    port = KitFiles.open(stage.kit).dialled[1]
    assert failing(stage.lines(kit=True)) == ["server"]  # it does not listen yet
    assert f"start the relay {RELAY}" in stage.lines(kit=True)["server"].todo
    with listening(relay, port):
        found = stage.lines(kit=True)
    assert failing(found) == [], found
    assert f"relay {RELAY} localhost:{port}" in found["kit"].said
    assert f"localhost:{port} listens" in found["server"].said
    with listening(made.server, port):  # somebody of another root listens in its place
        found = stage.lines(kit=True)
    assert failing(found) == ["server"]
    assert f"not taken for the relay {RELAY}" in found["server"].said
    file = stage.kit / "local" / "relay__resources.json"
    document = json.loads(file.read_text())
    document["relay_config"]["address"] = f"no-such-name.invalid:{port}"
    file.write_text(json.dumps(document))
    found = stage.lines(kit=True)
    assert (
        failing(found) == [*listed.ONLINE]
        and f"relay {RELAY}'s name" in found["server's name"].said
    )


def test_a_relay_that_a_site_reaches_in_clear_or_beside_its_file_is_found(
    stage: Stage, made: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    behind(stage, made, monkeypatch, "clear")
    found = stage.lines(kit=True)["in force"]
    assert found.status is Status.FAIL and "do not show each other certificates" in found.said
    assert "connection_security: mtls" in found.todo
    file = stage.kit / "local" / "relay__resources.json"
    plain = json.loads(file.read_text())
    assert KitFiles.open(stage.kit).lacking() == []  # NVFlare's own file is not held against it
    file.write_text(json.dumps({**plain, "components": []}))  # and whatever is added to it is
    assert "relay__resources.json" in KitFiles.open(stage.kit).lacking()[0]
    file.write_text(json.dumps(plain))
    resources = stage.kit / "local" / "resources.json"
    resources.write_text(json.dumps({**json.loads(resources.read_text()), **plain}))
    assert "names a relay" in KitFiles.open(stage.kit).lacking()[0]
    for spoilt in ({}, {"relay_config": []}, {"relay_config": {"address": "x", "identity": "y"}}):
        file.write_text(json.dumps({"format_version": 2, **spoilt}))
        assert failing(stage.lines(kit=True))[0] == "kit"
