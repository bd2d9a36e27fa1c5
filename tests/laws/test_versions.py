"""Law: a format of another version is refused with both numbers, and passes nowhere.

`tests.laws.versions.WAYS` lists, for each format of the one table (`protocols.versions.FORMATS`),
everyone who reads it. A new format, or a new place where a version is written, fails here until it
is listed.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from audits.accounting.models import ACCOUNT_VERSION
from audits.attacks._shared.models import ATTACKS_VERSION
from audits.bundle.statements import read_keys
from audits.checks.bundle import verify_bundle
from audits.evidence.run_files import read_plan
from audits.evidence.verify import verify
from audits.findings.changes import Snapshot, excerpt
from audits.findings.release import ReleaseWaiver
from audits.findings.waivers import Kept
from audits.formats import render
from audits.report.build import build_report
from audits.report.models import REPORT_VERSION
from crypto.signing import canonical
from protocols.errors import LedgerError, OtherVersion, SecureFglError
from protocols.evidence.ledger import read_lines
from protocols.plan.plan import Plan
from protocols.sessions.store.locked import LockedStateStore
from protocols.versions import (
    ATTACKS,
    BASELINE,
    BUNDLE,
    CAPTURE,
    CLIENT_MODEL,
    ENVELOPE,
    FORMATS,
    LEDGER,
    MOST,
    PLAN,
    RELEASE_WAIVER,
    REPORT,
    STATE,
    WAIVERS,
    Format,
)
from protocols.wire.envelope import SIGNED, Envelope
from protocols.wire.inbox import check_signature
from secure_fgl.attack_inputs.materials import material
from secure_fgl.cli._shared.verb import exit_code
from secure_fgl.federation import Federation
from secure_fgl.store.finished_run import Run
from tests.audits.bundle_tools import FILES, TOY, listed
from tests.audits.forging import forge, write
from tests.audits.verify_tools import with_ledger
from tests.laws.killing import play
from tests.laws.runs import config
from tests.laws.versions import CLIENT, WAYS, Stage, failed, marked, numbered, piece
from tests.protocols.wire import World

pytestmark = pytest.mark.usefixtures("kept_state")

ROOT = Path(__file__).resolve().parents[2]
SIX = (ENVELOPE, PLAN, LEDGER, BUNDLE, STATE, CAPTURE)


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    folder = tmp_path_factory.mktemp("versions")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("SECURE_FGL_STATE", str(folder / "keys"))
        Federation.from_config(config("fed_avg", "masks")).run(folder / "done")
        assert play(config("fed_avg", "masks"), folder / "killed", at=30, after=True).killed
        yield Stage(folder, folder / "done", folder / "killed")


@pytest.fixture
def stage(kept: Stage, tmp_path: Path) -> Stage:
    return replace(kept, folder=tmp_path)


@pytest.fixture(scope="module")
def world() -> World:
    return World(policy="masks").start()


READERS = [(format, name) for format, ways in WAYS.items() for name in ways]
OTHERS = [
    (format, name, number)
    for format, name in READERS
    for number in ((format.oldest or format.version) - 1, format.version + 1)
    if number
]


@pytest.mark.parametrize(
    ("format", "name", "number"), OTHERS, ids=[f"{f.name}-{n}-{v}" for f, n, v in OTHERS]
)
def test_another_version_is_named_with_both_numbers_and_what_to_do(
    format: Format, name: str, number: int, stage: Stage, world: World
) -> None:
    text = WAYS[format][name](number, stage, world)
    assert f"is of format version {number}" in text and format.name in text
    assert f" {format.version}" in text.split("this program reads")[1]
    assert ("a newer" if number > format.version else "an older") + " program wrote it" in text
    assert format.fix in text
    for wrong in (
        "before it",
        "signature",
        "signed",
        "chain:",
        "does not open",
        "malformed",
        "cut",
    ):
        assert wrong not in text.replace(format.fix, "")


def test_every_format_is_in_the_table_and_has_readers() -> None:
    assert set(WAYS) == set(FORMATS) and all(WAYS.values())
    assert len({format.name for format in FORMATS}) == len(FORMATS)
    marks = [format.mark for format in FORMATS if format.mark]
    assert len(set(marks)) == len(marks) and {len(mark) for mark in marks} == {4}
    assert (REPORT.version, ATTACKS.version) == (REPORT_VERSION, ATTACKS_VERSION)
    assert Kept.model_fields["version"].default == WAIVERS.version
    assert ReleaseWaiver.model_fields["version"].default == RELEASE_WAIVER.version
    assert Snapshot.model_fields["version"].default == BASELINE.version
    # Before they stood in this table, these six were of version 1, or had no number.
    assert all(format.version > 1 for format in SIX)


WRITTEN = {
    "audits/accounting/models.py",  # printed by audit account, read by no program of ours
    "audits/attacks/_shared/models.py",
    "audits/elsewhere/rehearsal.py",
    "audits/elsewhere/sites.py",
    "audits/evidence/entries.py",  # that a ledger holds one
    "audits/bundle/hand_over.py",
    "audits/bundle/statements.py",
    "audits/bundle/archive.py",
    "audits/checks/parties.py",
    "audits/exporters/sarif.py",  # SARIF has a version of its own
    "audits/report/models.py",
    "audits/findings/release.py",
    "audits/findings/changes.py",
    "audits/findings/waivers.py",
    "protocols/evidence/ledger.py",
    "protocols/plan/plan.py",
    "secure_fgl/model_file.py",
    "secure_fgl/store/budgets.py",
    "secure_fgl/store/bundles.py",  # CycloneDX has a version of its own
    "secure_fgl/charters/identity_file.py",
}
"""Where a number of a format is written into JSON."""


def _writes_a_version(tree: ast.Module) -> bool:
    names = {"version", "schema_version"}
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            fields = [f.target for f in node.body if isinstance(f, ast.AnnAssign) and f.value]
            if names & {f.id for f in fields if isinstance(f, ast.Name)} and node.name != "Format":
                return True
        keys: list[Any] = []
        if isinstance(node, ast.Dict):
            keys = list(node.keys)
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            keys = [node.slice]
        if names & {k.value for k in keys if isinstance(k, ast.Constant)}:
            return True
    return False


def test_no_version_is_written_that_this_law_does_not_know() -> None:
    floors = ("crypto", "protocols", "algorithms", "audits", "secure_fgl")
    found = {
        str(file.relative_to(ROOT))
        for floor in floors
        for file in (ROOT / floor).rglob("*.py")
        if _writes_a_version(ast.parse(file.read_text("utf-8")))
    }
    assert found == WRITTEN
    assert type(ACCOUNT_VERSION) is int


@pytest.mark.parametrize("number", [0, -1, MOST + 1, 2.0, True, "2", None, [], {}, 10**30])
def test_what_is_no_number_is_spoilt_and_of_no_version(number: object) -> None:
    for format in FORMATS:
        assert not format.check(number)
    digits, plan, keys = json.dumps(number).encode(), TOY.view().plan_text, FILES["keys/trust.json"]
    ledger = TOY.view().ledgers[CLIENT]

    def stated(data: bytes, spelt: bytes, ours: int) -> bytes:
        assert data.count(spelt + b"%d" % ours) == 1
        return data.replace(spelt + b"%d" % ours, spelt + digits)

    spoilt: tuple[Callable[[], object], ...] = (
        lambda: read_plan(stated(plan, b'"version": ', PLAN.version)),
        lambda: read_lines(stated(ledger, b'"version":', LEDGER.version)),
        lambda: read_keys(stated(keys, b'"version":', BUNDLE.version)),
        lambda: excerpt(b'{"schema_version": ' + digits + b"}"),
    )
    for read in spoilt:
        with pytest.raises(SecureFglError) as caught:
            read()
        assert not isinstance(caught.value, OtherVersion) and exit_code(caught.value) == 5


@pytest.mark.parametrize("format", [ENVELOPE, STATE, CAPTURE, CLIENT_MODEL])
def test_a_byte_that_is_no_number_and_another_mark_are_spoilt(format: Format) -> None:
    rest = bytes(100)
    for data in (format.mark + b"\0" + rest, b"SFGX\2" + rest, format.mark, format.mark[:3], b""):
        assert not format.begins(data) and not format.begins(memoryview(data))
    assert format.begins(format.head) and format.begins(memoryview(format.head + rest))
    if format is not ENVELOPE:
        state_store, data = piece(format)
        for spoilt in (marked(data, 0), b"", data[5:], format.head):
            state_store.put("session", spoilt)
            with pytest.raises(LedgerError, match="does not open") as caught:
                LockedStateStore(state_store(), "run", "client-1", format).get("session")
            assert not isinstance(caught.value, OtherVersion)


# --- a changed version does not verify where formats are signed, chained or locked


def bumped(monkeypatch: pytest.MonkeyPatch, format: Format, *modules: str) -> Format:
    """Let readers be those of a later version with the same layout."""
    later = replace(format, version=format.version + 1)
    for module in modules:
        monkeypatch.setattr(module, later)
    return later


def test_an_envelope_of_another_version_is_not_verified_as_one_of_this(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert f"envelope/{ENVELOPE.version}" == SIGNED
    later = bumped(monkeypatch, ENVELOPE, "protocols.wire.envelope.ENVELOPE")
    data = world.wire[0]
    envelope = Envelope.decode(marked(data, later.version))
    check_signature(envelope.header, envelope.signature, world.roster)
    monkeypatch.setattr("protocols.wire.inbox.SIGNED", f"envelope/{later.version}")
    with pytest.raises(SecureFglError, match="not signed by who it says"):
        check_signature(envelope.header, envelope.signature, world.roster)


def test_a_plan_of_another_version_is_another_plan() -> None:
    plan = Plan.model_validate(json.loads(TOY.view().plan_text))
    assert plan.version == PLAN.version
    assert plan.model_copy(update={"version": PLAN.version + 1}).digest != plan.digest


def test_a_ledger_s_version_stands_in_its_chain_and_its_head(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    later = bumped(monkeypatch, LEDGER, "protocols.evidence.ledger.LEDGER")
    view = TOY.view()
    first, *rest = view.ledgers[CLIENT].splitlines(keepends=True)
    changed = canonical({**json.loads(first), "version": later.version}) + b"\n"
    with pytest.raises(SecureFglError, match="entry 1 does not follow from the one before it"):
        read_lines(b"".join([changed, *rest]))
    for party, data in view.ledgers.items():
        lines = [json.loads(line) for line in data.splitlines()]
        anew = write([{**lines[0], "version": later.version}, *lines[1:]])
        view = with_ledger(view, party, anew)
    assert failed(verify(view)).startswith("tree")


def test_only_the_first_entry_says_the_version() -> None:
    def again(entries: list[Any], *left_out: str) -> list[Any]:
        second = {name: fact for name, fact in entries[0].items() if name not in left_out}
        return [entries[0], second, *entries[1:]]

    for left_out in ((), ("version",)):
        text = failed(verify(forge(TOY, TOY.view(), CLIENT, lambda e, o=left_out: again(e, *o))))
        assert text.startswith("chain") and "begun twice" in text
    later = {"version": LEDGER.version}
    view = forge(TOY, TOY.view(), CLIENT, lambda e: [*e[:-1], {**e[-1], **later}])
    assert failed(verify(view)).startswith("chain")


def test_a_bundle_s_version_is_signed(monkeypatch: pytest.MonkeyPatch) -> None:
    modules = ("audits.bundle.statements.BUNDLE", "audits.bundle.archive.BUNDLE")
    later = bumped(monkeypatch, BUNDLE, *modules)
    keys = numbered(FILES["keys/trust.json"], later.version)
    text = failed(verify_bundle(listed({**FILES, "keys/trust.json": keys})))
    assert text.startswith("attestations") and "signed over other files" in text


@pytest.mark.parametrize("format", [STATE, CAPTURE, CLIENT_MODEL])
def test_what_is_locked_is_locked_as_its_version(format: Format) -> None:
    state_store, data = piece(format)
    later = replace(format, version=format.version + 1)
    other = CAPTURE if format is STATE else STATE
    assert LockedStateStore(state_store(), "run", "client-1", format).get("session") == b"secret"
    state_store.put("session", marked(data, later.version))
    with pytest.raises(LedgerError, match="does not open"):
        LockedStateStore(state_store(), "run", "client-1", later).get("session")
    state_store.put("session", other.head + data[len(format.head) :])
    with pytest.raises(LedgerError, match="does not open"):
        LockedStateStore(state_store(), "run", "client-1", other).get("session")


# --- and what is of this version is read


def test_the_controls_are_read(stage: Stage) -> None:
    assert verify(TOY.view()).ok and verify_bundle(listed(FILES)).ok
    assert Run(stage.done).verify().ok and material(Run(stage.done)).exposures
    for format, folder in ((CAPTURE, stage.done / "captured"), (STATE, stage.killed / "private")):
        pieces = [file for file in folder.rglob("*") if file.is_file()]
        assert pieces and all(format.begins(file.read_bytes()) for file in pieces)
    report: Mapping[str, bytes] = render(build_report(TOY.view()), ["json"])
    assert excerpt(report["report.json"]).run
