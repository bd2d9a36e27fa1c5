"""A run folder comes from whoever hands it over: nothing is read, written or removed through it."""

from __future__ import annotations

import ast
import contextlib
import json
import os
import shutil
import signal
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import secure_fgl
from protocols.errors import EvidenceError, LedgerError
from secure_fgl.errors import UsageError
from secure_fgl.store import files
from secure_fgl.store import run_folder as runs
from secure_fgl.store.budgets import BudgetStore, _file_name
from secure_fgl.store.bundles import load_key
from secure_fgl.store.captures import Captures, sweep
from secure_fgl.store.files import Folder, create, replace, run_name
from secure_fgl.store.finished_run import Run
from secure_fgl.store.run_folder import RunFolder
from secure_fgl.store.sides import party_side
from secure_fgl.store.sides.hand_overs import at_rest
from secure_fgl.store.state_store import StateStores
from tests.secure_fgl.cli_tools import config, invoke
from tests.secure_fgl.test_audit_cli import waivers

pytestmark = pytest.mark.usefixtures("kept_state")

PRECIOUS = "an auditor's own file"
NAMES = ("..", "../victim", "/victim", ".", "", "ab" * 15, "AB" * 16, "ab" * 16 + "\n", None, 7)


@pytest.fixture(scope="module")
def once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    out = folder / "run"
    assert invoke("run", config(folder), "--out", out).exit_code == 0
    return out


@pytest.fixture
def given(once: Path, tmp_path: Path) -> Path:
    """Return a copy of a finished run, as somebody hands it over."""
    return Path(shutil.copytree(once, tmp_path / "given"))


@pytest.fixture
def mine(tmp_path: Path) -> Iterator[Path]:
    """Yield a file of the auditor's; it must be there and unchanged at the end."""
    path = tmp_path / "mine" / "precious"
    path.parent.mkdir()
    path.write_text(PRECIOUS)
    yield path
    assert path.read_text() == PRECIOUS and [*path.parent.iterdir()] == [path]


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "state"
    monkeypatch.setenv("SECURE_FGL_STATE", str(folder))
    return folder


def killed(given: Path, run: object) -> Path:
    """Let a run folder look like one that was killed and whose verdict is still to come."""
    document = json.loads((given / "roster.json").read_text())
    (given / "roster.json").write_text(json.dumps({**document, "run": run}))
    return given


# --- what roster.json names -----------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_a_run_s_name_is_32_hex_digits_wherever_it_is_read(
    name: object, given: Path, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match="32 hexadecimal"):
        run_name(name)
    for made in (StateStores, Captures):
        with pytest.raises(UsageError):
            made(name, tmp_path)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="32 hexadecimal"):
        RunFolder(killed(given, name), again=True)


@pytest.mark.parametrize("how", ["absolute", "upwards"])
def test_resuming_removes_nothing_that_a_roster_names(
    how: str, given: Path, mine: Path, state: Path, tmp_path: Path
) -> None:
    state.mkdir()
    name = str(mine.parent) if how == "absolute" else os.path.relpath(mine.parent, state)
    shown = invoke("run", config(tmp_path), "--out", killed(given, name), "--resume")
    assert shown.exit_code == 2 and "32 hexadecimal" in shown.stderr


def test_removing_kept_state_follows_no_link(state: Path, mine: Path, tmp_path: Path) -> None:
    run, folder = "ab" * 16, tmp_path / "run"
    folder.mkdir()
    (folder / "private").symlink_to(mine.parent)
    state.mkdir()
    (state / run).symlink_to(mine.parent)
    (state / "captures").mkdir()
    (state / "captures" / run).symlink_to(mine.parent)
    with pytest.raises(Exception, match="could not be removed"):
        StateStores(run, folder).destroy()
    sweep()
    (state / run).unlink()
    state_stores = StateStores(run, folder)
    state_stores.new("client-1")
    assert (state / run / "client-1.key").is_file()  # the control: what is ours is removed
    state_stores.destroy()
    assert not (state / run).exists()


def test_keys_are_neither_read_nor_written_through_a_link(
    state: Path, mine: Path, tmp_path: Path
) -> None:
    run = "cd" * 16
    (state / run).mkdir(parents=True)
    (state / run / "client-1.key").symlink_to(mine)
    for use in (StateStores(run, tmp_path).open, StateStores(run, tmp_path).new):
        with pytest.raises((EvidenceError, UsageError)):
            use("client-1")


@pytest.mark.parametrize("link", ["keys", "keys/captures", ""])
def test_looking_at_a_stranger_s_party_folder_removes_nothing_elsewhere(
    link: str, mine: Path, state: Path, tmp_path: Path
) -> None:
    run, home = "ef" * 16, tmp_path / "stranger"
    own = tmp_path / "own" / "captures"
    for name in (run, "thesis"):  # like keys of models, and like anything else
        (own / name).mkdir(parents=True)
        (own / name / "until").write_text("2001-01-01")
    side = home / "runs" / run / "run"
    side.mkdir(parents=True)
    (side.parent / "charter.json").write_text("{}")
    (side / "plan.json").write_text("{}")
    place = home / link if link else home / "keys"
    place.parent.mkdir(exist_ok=True)
    if link:
        place.symlink_to(own if link == "keys/captures" else own.parent)
        with pytest.raises(EvidenceError, match="link"):
            Run(home)
        assert sorted(p.name for p in own.iterdir()) == [run, "thesis"]
        return
    own.parent.rename(place)  # control: what lies in that folder itself is swept, if it is a run's
    Run(home)
    assert [p.name for p in (place / "captures").iterdir()] == ["thesis"]


# --- what a run folder holds ----------------------------------------------------------------------

READ = ("plan.json", "policy.json", "roster.json", "result.json", "metrics.jsonl",
        "ledger/aggregator.jsonl", "heads/client-1.checkpoint", "checkpoints/best.npz",
        "report/report.html", "attacks.json", "baseline.json", "waivers.json")  # fmt: skip


@pytest.mark.parametrize("name", [*READ, "ledger", "heads", "checkpoints", "report"])
def test_a_link_in_a_run_folder_is_broken_evidence(name: str, given: Path, tmp_path: Path) -> None:
    place = given / name
    moved = tmp_path / "moved"
    if place.exists():
        place.rename(moved)  # the very same content, so only the link can be what is refused
    else:
        moved.write_text("{}")
    place.symlink_to(moved)
    for command in ("verify", "report", "attack", "bundle", "account"):
        shown = invoke("audit", command, given)
        assert shown.exit_code == 5, (command, shown.stderr)
        assert "link" in shown.stderr


@pytest.mark.parametrize("name", ["attacks.json", "report/report.html", "metrics.jsonl"])
def test_a_pipe_in_a_run_folder_does_not_hang_a_command(name: str, given: Path) -> None:
    (given / name).unlink(missing_ok=True)
    os.mkfifo(given / name)
    assert invoke("audit", "verify", given).exit_code == 5


WRITES: dict[str, tuple[tuple[object, ...], str]] = {
    "report": (("report",), "report/report.html"),
    "waivers": (("report", "--waivers"), "waivers.json"),
    "attack": (("attack", "--fail-on", "never"), "attacks.json"),
    "bundle": (("bundle",), "bundle.zip"),
}


@pytest.mark.parametrize("command", WRITES)
def test_no_audit_writes_through_a_link_that_lies_ready(
    command: str, given: Path, mine: Path, tmp_path: Path
) -> None:
    """`NAME.new` beside a file was followed, and what it led to replaced."""
    words, name = WRITES[command]
    ready = (given / f"{name}.new", given / name)
    for link in ready[: 1 if (given / name).exists() else 2]:
        link.unlink(missing_ok=True)
        link.symlink_to(mine)
    more = [waivers(tmp_path, {"rule": "SIMULATION"})] if command == "waivers" else []
    shown = invoke("audit", words[0], given, *words[1:], *more)
    assert shown.exit_code in {0, 2, 5}, shown.stderr
    assert not (given / name).is_symlink() or shown.exit_code in {2, 5}


@pytest.mark.parametrize("command", WRITES)
def test_control_without_links_each_of_them_writes(
    command: str, given: Path, tmp_path: Path
) -> None:
    words, name = WRITES[command]
    more = [waivers(tmp_path, {"rule": "SIMULATION"})] if command == "waivers" else []
    assert invoke("audit", words[0], given, *words[1:], *more).exit_code in {0, 3}
    assert (given / name).is_file()


def test_a_link_in_the_place_of_an_output_is_replaced_or_refused(
    given: Path, mine: Path, tmp_path: Path
) -> None:
    link = tmp_path / "link"
    for words in (
        ("audit", "bundle", given, "--out", link),
        ("audit", "export", given, "--to", "cnil-pia", "--out", link),
    ):
        link.symlink_to(mine)
        assert invoke(*words).exit_code == 2
        link.unlink()
        link.symlink_to(tmp_path / "not there yet")  # leads nowhere: nothing comes to be there
        assert invoke(*words).exit_code == 2 and not (tmp_path / "not there yet").exists()
        link.unlink()
    link.symlink_to(mine)
    assert invoke("plan", config(tmp_path), "--out", link).exit_code == 0
    assert not link.is_symlink() and "items" in link.read_text()


def test_a_run_writes_through_no_link_that_appears_in_its_folder(
    mine: Path, tmp_path: Path
) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.make()
    (tmp_path / "run" / "ledger").symlink_to(mine.parent)
    (tmp_path / "run" / "metrics.jsonl").symlink_to(mine)
    attempts: list[Callable[[], object]] = [
        lambda: folder.ledger("aggregator"),
        lambda: folder.line("metrics.jsonl", {}),
        lambda: folder.text("ledger/x", ""),
    ]
    for attempt in attempts:
        with pytest.raises(EvidenceError, match="link"):
            attempt()
    folder.text("metrics.jsonl", "")  # takes the link's place
    assert not (tmp_path / "run" / "metrics.jsonl").is_symlink()


@pytest.mark.parametrize("name", ["../x", "/x", "a/../x", "a//x", ".", "", "a/.", "a\0b"])
def test_a_name_that_leads_out_of_a_folder_is_refused(name: str, tmp_path: Path) -> None:
    folder = Folder(tmp_path / "inner")
    folder.make()
    attempts: list[Callable[[], object]] = [
        lambda: folder.read(name),
        lambda: folder.write(name, b""),
        lambda: folder.append(name, b""),
        lambda: folder.remove(name),
        lambda: folder.there(name),
    ]
    for attempt in attempts:
        with pytest.raises(EvidenceError, match="leads out"):
            attempt()


# --- modes ----------------------------------------------------------------------------------------


def test_a_run_folder_is_for_its_owner_alone(once: Path) -> None:
    before = os.umask(0)
    try:
        assert invoke("audit", "report", once).exit_code == 0
        Run(once).keep("waivers.json", b"")
    finally:
        os.umask(before)
    for path in (once, *once.rglob("*")):
        wanted = 0o700 if path.is_dir() else 0o600
        assert stat.S_IMODE(path.stat().st_mode) == wanted, path


def test_what_is_asked_for_by_name_has_the_mode_that_its_user_chose(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        replace(tmp_path / "replaced", b"one")
        create(tmp_path / "created", b"two")
    finally:
        os.umask(before)
    for name in ("replaced", "created"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o640
    with pytest.raises(FileExistsError):
        create(tmp_path / "created", b"three")
    assert (tmp_path / "created").read_bytes() == b"two"


def test_a_file_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.write("kept", b"old")
    with pytest.raises(TypeError):
        folder.write("kept", "no bytes")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        create(tmp_path / "new", "no bytes")  # type: ignore[arg-type]
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
    assert folder.read("kept") == b"old"
    with pytest.raises(UsageError, match="too large"):
        folder.read("kept", limit=2)


def test_a_roster_that_names_another_run_removes_no_keys(
    tmp_path: Path, once: Path, state: Path
) -> None:
    run = "cd" * 16
    theirs = StateStores(run, tmp_path / "victim")
    theirs.new("client-1").put("piece", b"state")
    mini = tmp_path / "mini"
    mini.mkdir()
    (mini / "roster.json").write_text(json.dumps({"run": run, "nonce": "00"}))
    (mini / "result.json").write_text("{}")
    for _ in range(2):  # while its process is at work, and afterwards
        shown = invoke("run", config(tmp_path), "--out", mini, "--resume")
        assert shown.exit_code == 2 and "it finished" in shown.stderr, shown.stderr
        assert (state / run / "client-1.key").is_file()
        theirs.release()
    StateStores(run, tmp_path / "victim").tidy()  # the control: its own folder does
    assert not (state / run).exists()


def test_nothing_is_written_to_a_file_with_a_second_name(tmp_path: Path, mine: Path) -> None:
    folder = Folder(tmp_path / "run")
    folder.make()
    (tmp_path / "run" / "ledger").mkdir()
    os.link(mine, tmp_path / "run" / "ledger" / "a.jsonl")
    for flags in (os.O_WRONLY | os.O_APPEND, os.O_RDWR):
        with pytest.raises(EvidenceError, match="no plain file"):
            folder.open("ledger/a.jsonl", flags)
    with pytest.raises(EvidenceError, match="no plain file"):
        folder.append("ledger/a.jsonl", b"more")
    assert folder.read("ledger/a.jsonl") == PRECIOUS.encode()  # a copy made of links is read


@pytest.mark.parametrize("kind", ["pipe", "endless"])
def test_a_report_that_never_ends_is_refused(given: Path, tmp_path: Path, kind: str) -> None:
    path = tmp_path / "report.json"
    os.mkfifo(path) if kind == "pipe" else path.symlink_to("/dev/zero")
    for command in (("audit", "diff", given, path), ("audit", "verify", given, "--heads", path)):
        shown = invoke(*command)
        assert shown.exit_code == 2 and "no plain file" in shown.stderr, shown.stderr


def test_a_deep_roster_is_a_damaged_one(tmp_path: Path) -> None:
    deep = tmp_path / "deep"
    deep.mkdir()
    (deep / "roster.json").write_text("[" * 100_000)
    (deep / "result.json").write_text("{}")
    shown = invoke("run", config(tmp_path), "--out", deep, "--resume")
    assert shown.exit_code == 2 and "roster" in shown.stderr, shown.stderr


def test_a_ledger_that_is_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "run")
    (tmp_path / "run" / "ledger").mkdir(parents=True)
    os.mkfifo(tmp_path / "run" / "ledger" / "client-1.jsonl")
    for flags in (os.O_WRONLY | os.O_APPEND, os.O_RDONLY, os.O_RDWR):
        with pytest.raises(EvidenceError, match="no plain file"):
            folder.open("ledger/client-1.jsonl", flags)
    with pytest.raises(EvidenceError, match="no plain file"):
        runs.FileStore(folder, "ledger/client-1.jsonl", again=True)


def test_a_folder_of_huge_files_is_refused_before_memory_is_full(
    given: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files that hold nothing take no room on a disk; a limit of a thousandth shows the same."""
    monkeypatch.setattr("secure_fgl.store.finished_run.VIEW_LIMIT", 2 << 20)
    assert Run(given).verify().ok  # the control
    for number in range(3):
        path = given / "report" / f"{number}.html"
        path.parent.mkdir(exist_ok=True)
        with path.open("wb") as file:
            file.truncate(1 << 20)
    shown = invoke("audit", "verify", given)
    assert shown.exit_code == 2 and "too large" in shown.stderr, shown.stderr


class Waited(BaseException):
    """Something is still waited for; no OSError, which the code under test may take for one."""


@contextlib.contextmanager
def within(seconds: float) -> Iterator[None]:
    """Raise Waited where something is still waited for after so long."""

    def over(number: int, frame: Any) -> None:
        raise Waited

    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _waits_for_the_lock(folder: Path) -> None:
    with at_rest(folder):
        pass


def _reserves(folder: Path) -> None:
    store = BudgetStore(folder)
    base = folder / _file_name("bank", "data")
    (folder / "lock").rename(f"{base}.lock")
    store.checkpoint("bank", "data")


OPENERS: dict[str, Callable[[Path], object]] = {
    "hand-over and forget": _waits_for_the_lock,
    "a key": lambda folder: load_key(folder / "lock"),
    "a budget's lock": _reserves,
    "a budget": lambda folder: files.appended_content(str(folder / "lock"), step="budget"),
    "a budget, to append": lambda folder: files.append(str(folder / "lock"), b"x"),
    "the log": lambda folder: party_side._append(folder / "lock", b"x"),
}


@pytest.mark.parametrize("name", OPENERS)
@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_nothing_waits_for_a_pipe_in_a_file_s_place(name: str, kind: str, tmp_path: Path) -> None:
    """Hand-over and forget hung on a pipe called ``lock``, and so did the store of budgets."""
    place = tmp_path / "lock"
    os.mkfifo(place) if kind == "pipe" else place.symlink_to("/dev/zero")
    # Of a budget's folder also its log and floor could be pipes; they go through the same door.
    with within(10), pytest.raises((UsageError, LedgerError, EvidenceError, OSError)):
        OPENERS[name](tmp_path)


def test_control_a_pipe_that_is_opened_as_a_file_is_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "lock")
    with within(0.2), pytest.raises(Waited):
        os.open(tmp_path / "lock", os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)


HARMLESS = ("O_PATH", "O_DIRECTORY", "os.devnull", "_DIRECTORY")
ON_PURPOSE = {  # probes of what this process may open; none is in a folder of somebody else's
    "isolation/kernel.py": 1,
    "isolation/separation.py": 1,
    "store/files.py": 1,  # the door
}


def test_files_are_opened_by_one_door() -> None:
    """Whoever opens a file by `os.open` says that it is new, a folder, or why not `open_plain`."""
    house, bare = Path(secure_fgl.__file__).parent, dict[str, int]()
    for file in sorted(house.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "os.open":
                text = ast.unparse(node)
                if not any(word in text for word in HARMLESS):
                    name = str(file.relative_to(house))
                    bare[name] = bare.get(name, 0) + 1
    assert bare == ON_PURPOSE
