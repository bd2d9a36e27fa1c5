"""Who reads which format: each spoils something good, and returns what a reader says of it.

`WAYS` lists every reader of every format of the one table (`protocols.versions.FORMATS`).
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from audits.attacks._shared.models import AttackReport
from audits.bundle.archive import MANIFEST, pack
from audits.bundle.hand_over import read_side
from audits.bundle.statements import read_keys
from audits.checks.bundle import verify_bundle
from audits.checks.parties import read_notes
from audits.elsewhere.rehearsal import read_rehearsal
from audits.elsewhere.sites import read_figures
from audits.evidence.run_files import read_plan
from audits.evidence.steps import Case
from audits.evidence.verify import verify
from audits.findings.changes import excerpt, read_snapshot
from audits.findings.release import read_waiver
from audits.findings.waivers import read_kept
from crypto.aead import new_key
from crypto.signing import canonical
from protocols.errors import EvidenceError, OtherVersion, SecureFglError
from protocols.evidence.ledger import read_lines
from protocols.sessions.store.locked import LockedStateStore
from protocols.versions import (
    ATTACKS,
    BASELINE,
    BUDGET,
    BUNDLE,
    CAPTURE,
    CLIENT_MODEL,
    ENVELOPE,
    FORGOTTEN,
    HAND_OVER,
    IDENTITY,
    LEDGER,
    MODEL_FILE,
    PLAN,
    REHEARSAL,
    RELEASE_WAIVER,
    REPORT,
    SITE_FIGURES,
    STATE,
    WAIVERS,
    Format,
)
from protocols.wire.envelope import Envelope
from protocols.wire.run_context import RunContext
from secure_fgl.attack_inputs.materials import material
from secure_fgl.charters.charter import Charter
from secure_fgl.charters.identity_file import load_identity, name_and_role
from secure_fgl.cli._shared.inputs import load_plan
from secure_fgl.cli._shared.verb import exit_code
from secure_fgl.federation import Federation
from secure_fgl.model_file import load_model
from secure_fgl.reasons import explain
from secure_fgl.run.model_digest import npz_bytes
from secure_fgl.store.budgets import header, read_log
from secure_fgl.store.finished_run import Run
from tests.audits.attack_tools import attacked, row
from tests.audits.bundle_tools import FILES, TOY, UNSIGNED, listed
from tests.audits.forging import write
from tests.audits.toy_run import CLIENTS
from tests.audits.verify_tools import with_ledger
from tests.laws.runs import config
from tests.protocols.wire import World
from tests.secure_fgl.cli_tools import invoke

CLIENT = CLIENTS[0]


@dataclass
class Stage:
    """Runs to spoil copies of: one that finished, and one that was killed."""

    folder: Path
    done: Path
    killed: Path

    def copy(self, which: Path) -> Path:
        return Path(shutil.copytree(which, self.folder / "copy", symlinks=True))


Way = Callable[[int, Stage, World], str]


def said(read: Callable[[], object], code: int) -> str:
    """Return what the command line says of the error that a reader raises."""
    with pytest.raises(SecureFglError) as caught:
        read()
    assert isinstance(caught.value, OtherVersion)
    assert exit_code(caught.value) == code
    return " ".join(explain(caught.value))


def changed(read: Callable[[], object]) -> str:
    """Return what is said of a changed record, whose ledger is of this version."""
    with pytest.raises(EvidenceError) as caught:
        read()
    assert caught.value.step == "captured" and exit_code(caught.value) == 5
    return " ".join(explain(caught.value))


def failed(found: Any) -> str:
    """Return the first step that failed."""
    assert not found.ok and found.verdict.startswith("FAILED at")
    return f"{found.failed.name}: {found.failed.detail}"


def told(*arguments: object, code: int = 5) -> str:
    """Return what a command prints."""
    shown = invoke(*arguments)
    assert shown.exit_code == code, shown.output
    return " ".join((shown.stdout + shown.stderr).split())


def resumed(out: Path) -> str:
    """Return what an attempt to go on with a killed run ends with."""
    federation = Federation.from_config(config("fed_avg", "masks"))
    return said(lambda: federation.run(out, resume=True), 2)


def marked(data: bytes, number: int) -> bytes:
    """Return bytes whose fifth says another version."""
    return data[:4] + bytes([number]) + data[5:]


def decoded(number: int, stage: Stage, world: World) -> str:
    return said(lambda: Envelope.decode(marked(world.wire[0], number)), 2)


def by_a_session(number: int, stage: Stage, world: World) -> str:
    """An envelope of another version may be larger than any of ours: its size is not looked at."""
    fresh = World(policy="unsafe_plaintext").start()
    (delivery, *_) = fresh.ask(1)
    longer = marked(delivery.data, number) + bytes(1 << 20)
    return said(lambda: fresh.session(delivery.to).receive(longer), 2)


def numbered(data: bytes, number: object, member: str = "version", **more: object) -> bytes:
    """Return a JSON object's text with another number in it, spelt as it was."""
    document = {**json.loads(data), member: number, **more}
    if data.startswith(b"{\n"):
        return (json.dumps(document, indent=2, sort_keys=True) + "\n").encode()
    return canonical(document)


def plan_text(number: int) -> bytes:
    """A plan that holds what no plan of ours knows: it is not looked at."""
    return numbered(TOY.view().plan_text, number, unheard_of=1)


def plan_file(number: int, stage: Stage, world: World) -> str:
    file = stage.folder / "plan.json"
    file.write_bytes(plan_text(number))
    return said(lambda: load_plan(file), 2)


def context(number: int, stage: Stage, world: World) -> str:
    whole = world.context(world.names[0])
    plan = whole.plan.model_copy(update={"version": number})
    return said(
        lambda: RunContext(whole.me, whole.roster, plan, whole.policy, whole.run, whole.scheme), 2
    )


def charter(number: int, stage: Stage, world: World) -> str:
    document = {
        "run": "", "nonce": "00", "parties": [], "carriers": {}, "broker": {}, "policy": "",
        "config": "", "signatures": {}, "plan": plan_text(number).decode(),
    }  # fmt: skip
    return said(lambda: Charter.decode(canonical(document)), 2)


def plan_at(command: str) -> Way:
    def way(number: int, stage: Stage, world: World) -> str:
        run = stage.copy(stage.done)
        (run / "plan.json").write_bytes(numbered((run / "plan.json").read_bytes(), number))
        return told("audit", command, run)

    return way


def ledger_with(number: object, data: bytes) -> bytes:
    """Return a ledger that its owner wrote anew with another number, and what we do not know."""
    first, *rest = (json.loads(line) for line in data.splitlines())
    return write([{**first, "version": number, "unheard_of": 1}, *rest])


def ledger_at(command: str) -> Way:
    def way(number: int, stage: Stage, world: World) -> str:
        run = stage.copy(stage.done)
        for file in (run / "ledger").iterdir():
            file.write_bytes(ledger_with(number, file.read_bytes()))
        return told("audit", command, run, code=5)

    return way


def ledger_reported(number: int, stage: Stage, world: World) -> str:
    """A report that is made all the same says that the evidence is broken."""
    run = stage.copy(stage.done)
    shutil.rmtree(run / "report")
    for file in (run / "ledger").iterdir():
        file.write_bytes(ledger_with(number, file.read_bytes()))
    told("audit", "report", run, code=5)
    report = json.loads((run / "report" / "report.json").read_bytes())
    (step,) = [step for step in report["integrity"]["steps"] if step["status"] == "FAIL"]
    assert "FAIL" in {line["state"] for line in report["verdict_strip"]}
    return f"{step['name']}: {step['detail']}"


def ledger_of_one(number: int, stage: Stage, world: World) -> str:
    view = TOY.view()
    text = failed(verify(with_ledger(view, CLIENT, ledger_with(number, view.ledgers[CLIENT]))))
    assert "other ledgers of this run are of this version, so this one was changed" in text
    return text


def ledger_in_a_bundle(number: int, stage: Stage, world: World) -> str:
    path = f"ledger/{CLIENT}.jsonl"
    return failed(verify_bundle(listed({**UNSIGNED, path: ledger_with(number, UNSIGNED[path])})))


def ledger_resumed(number: int, stage: Stage, world: World) -> str:
    out, (place, *_) = stage.copy(stage.killed), sorted((stage.killed / "ledger").iterdir())
    file = out / "ledger" / place.name
    file.write_bytes(ledger_with(number, file.read_bytes()))
    return resumed(out)


def piece(format: Format) -> tuple[Any, bytes]:
    """Return a store in memory and a piece that was put into it."""
    shelf: dict[str, bytes] = {}

    class StateStore:
        key = new_key()
        put, get, names = shelf.__setitem__, shelf.get, shelf.keys

    LockedStateStore(StateStore(), "run", "client-1", format).put("session", b"secret")
    return StateStore, shelf["session"]


def piece_opened(format: Format) -> Way:
    def way(number: int, stage: Stage, world: World) -> str:
        state_store, data = piece(format)
        state_store.put("session", marked(data, number))
        return said(
            lambda: LockedStateStore(state_store(), "run", "client-1", format).get("session"), 2
        )

    return way


def state_resumed(number: int, stage: Stage, world: World) -> str:
    out = stage.copy(stage.killed)
    for file in (out / "private").rglob("*"):
        if file.is_file():
            file.write_bytes(marked(file.read_bytes(), number))
    return resumed(out)


def capture_spoilt(number: int, stage: Stage) -> Path:
    run = stage.copy(stage.done)
    for file in (run / "captured" / CLIENT).iterdir():
        file.write_bytes(marked(file.read_bytes(), number))
    return run


def model_spoilt(number: int, stage: Stage) -> Path:
    run = stage.copy(stage.done)
    file = run / "models" / CLIENT / "model"
    file.write_bytes(marked(file.read_bytes(), number))
    return run


def identity(number: int, folder: Path) -> Path:
    """A locked identity of another way of locking: no passphrase is asked for."""
    document = {"name": "client-1", "role": "client", "version": number, "more": "", "locked": 7}
    file = folder / "identity.json"
    file.write_text(json.dumps(document))
    file.chmod(0o600)
    return folder


def model_file(number: int, stage: Stage, world: World) -> str:
    told = json.dumps({"version": number, "unheard_of": 1}).encode()
    file = stage.folder / "model.npz"
    file.write_bytes(npz_bytes({"description": np.frombuffer(told, dtype=np.uint8)}))
    return said(lambda: load_model(file), 2)


WAYS: dict[Format, dict[str, Way]] = {
    ENVELOPE: {"decoded": decoded, "a session": by_a_session},
    PLAN: {
        "a file": plan_file,
        "context": context,
        "a charter": charter,
        "view": lambda n, s, w: said(lambda: read_plan(plan_text(n)), 5),
        "verify": plan_at("verify"),
        "report": plan_at("report"),
        "account": plan_at("account"),
        "attack": plan_at("attack"),
        "bundle": plan_at("bundle"),
        "in a bundle": lambda n, s, w: failed(
            verify_bundle(listed({**UNSIGNED, "plan.json": plan_text(n)}))
        ),
    },
    LEDGER: {
        "lines": lambda n, s, w: said(
            lambda: read_lines(ledger_with(n, TOY.view().ledgers[CLIENT])), 5
        ),
        "verify": ledger_at("verify"),
        "report": ledger_at("report"),
        "a new report": ledger_reported,
        "attack": ledger_at("attack"),
        "one of them": ledger_of_one,
        "in a bundle": ledger_in_a_bundle,
        "resume": ledger_resumed,
    },
    BUNDLE: {
        "manifest": lambda n, s, w: failed(
            verify_bundle(pack({**FILES, MANIFEST: numbered(FILES[MANIFEST], n, more=1)}))
        ),
        "keys": lambda n, s, w: said(
            lambda: read_keys(numbered(FILES["keys/trust.json"], n, more=1)), 5
        ),
    },
    STATE: {"a piece": piece_opened(STATE), "resume": state_resumed},
    CAPTURE: {
        "a piece": piece_opened(CAPTURE),
        "verify": lambda n, s, w: failed(Run(capture_spoilt(n, s)).verify()),
        "material": lambda n, s, w: changed(lambda: material(Run(capture_spoilt(n, s)))),
        "attack": lambda n, s, w: told("audit", "attack", capture_spoilt(n, s)),
    },
    CLIENT_MODEL: {
        "a piece": piece_opened(CLIENT_MODEL),
        "export": lambda n, s, w: said(lambda: Run(model_spoilt(n, s)).model(CLIENT), 2),
    },
    REPORT: {
        "baseline": lambda n, s, w: said(
            lambda: excerpt(json.dumps({"schema_version": n}).encode()), 5
        )
    },
    ATTACKS: {
        "attacks.json": lambda n, s, w: said(
            lambda: AttackReport.parse(
                numbered(attacked(TOY.view(), row()).attacks_text, n, "schema_version", more=1)
            ),
            5,
        )
    },
    WAIVERS: {
        "waivers.json": lambda n, s, w: said(lambda: read_kept(b'{"version":%d}' % n), 5),
    },
    BASELINE: {
        "baseline.json": lambda n, s, w: said(lambda: read_snapshot(b'{"version":%d}' % n), 5),
    },
    FORGOTTEN: {
        "a note": lambda n, s, w: said(
            lambda: read_notes(
                b'{"version":%d}\n' % n, TOY.identities[CLIENT].party.verify, run="", party=""
            ),
            5,
        ),
    },
    RELEASE_WAIVER: {
        "a waiver": lambda n, s, w: said(lambda: read_waiver(b'{"version":%d}' % n), 5),
    },
    REHEARSAL: {
        "rehearsal.json": lambda n, s, w: said(
            lambda: read_rehearsal(b'{"version":%d}' % n, TOY.plan.digest), 5
        ),
    },
    SITE_FIGURES: {
        "figures": lambda n, s, w: said(
            lambda: read_figures(b'{"version":%d}' % n, Case(TOY.view()), CLIENT), 5
        ),
    },
    MODEL_FILE: {
        "a model's file": model_file,
    },
    HAND_OVER: {
        "a side": lambda n, s, w: said(
            lambda: read_side(pack({"hand-over.json": canonical({"version": n})})), 5
        ),
    },
    IDENTITY: {
        "a party": lambda n, s, w: said(lambda: load_identity(identity(n, s.folder)), 2),
        "its name": lambda n, s, w: said(lambda: name_and_role(identity(n, s.folder)), 2),
    },
    BUDGET: {
        "a budget": lambda n, s, w: said(
            lambda: read_log(b'{"version":%d}\n' % n, header("s", "d")), 5
        ),
    },
}
