"""O20: heads of budgets are planned items that pass the gateway, cosigned when a run is over."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crypto.merkle import Checkpoint
from crypto.signing import VerifyKey
from protocols.errors import BadEnvelope, EvidenceError, NotInPlan
from protocols.plan.steps import Service
from protocols.policy.budget import Budget, budget_origin
from protocols.privacy.accounting import ORDERS
from protocols.sessions import heads
from protocols.wire.control import BudgetHeads
from protocols.wire.envelope import Where
from protocols.wire.roles import Role
from protocols.wire.roster import AGGREGATOR_NAME, Identity
from secure_fgl.federation import Federation
from secure_fgl.sites.process import open_process
from secure_fgl.sites.session import Answerer
from secure_fgl.store.budgets import VARIABLE, Anchor, BudgetStore, Door
from secure_fgl.store.finished_run import Run
from secure_fgl.transports.broker.messages import Code, SiteReply
from tests.sites.stage import assemble, banks

DATA, CLIENT = "synthetic_banks", "client-1"
THIS, OTHER = "ab" * 16, "cd" * 16


@pytest.fixture(autouse=True)
def _store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "budgets"))
    monkeypatch.setenv("SECURE_FGL_STATE", str(tmp_path / "keys"))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("run")
        patch.setenv(VARIABLE, str(folder / "budgets"))
        patch.setenv("SECURE_FGL_STATE", str(folder / "keys"))
        yield Federation(config=banks(policy="calibrated")).run(folder / "run")


def ledger(run: Run, party: str) -> list[dict[str, Any]]:
    text = (run.path / "ledger" / f"{party}.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


def spend(notes: Path, run: str = THIS) -> Door:
    """Reserve once, as a session does before it draws noise."""
    door = BudgetStore().door(CLIENT, DATA, notes)
    door(dataset=DATA, run=run, rdp=[0.001] * len(ORDERS), cap=Budget(epsilon=1000.0, delta=1e-5))
    return door


def cosigned(head: Checkpoint, by: Identity) -> str:
    return head.sign(by.signing, by.party.name)


OFFICE = Identity.generate(AGGREGATOR_NAME, Role.AGGREGATOR)
KEPT = (AGGREGATOR_NAME, OFFICE.party.verify)


# --- in a run -------------------------------------------------------------------------------------


def test_o20_heads_stand_in_plan_ledgers_and_inventory(run: Run) -> None:
    plan = json.loads((run.path / "plan.json").read_text())
    items = {item["id"]: item for item in plan["items"] if item["part"] == "budget"}
    assert [item["sender"] for item in items.values()] == ["client", AGGREGATOR_NAME]
    up, down = items
    assert "how often" in items[up]["learns"]["aggregator"]
    for client in plan["clients"]:
        mine = [(entry["kind"], entry.get("item")) for entry in ledger(run, client)]
        assert mine.count(("release", up)) == mine.count(("receipt", down)) == 1
    office = [(entry["kind"], entry.get("item")) for entry in ledger(run, AGGREGATOR_NAME)]
    assert office.count(("receipt", up)) == office.count(("release", down)) == len(plan["clients"])
    assert up in (run.path / "report" / "inventory.csv").read_text()
    assert run.verify().ok
    assert sorted(file.stem for file in (run.path / "budgets").iterdir()) == plan["clients"]


def test_o20_the_note_in_the_run_folder_is_the_aggregator_s(run: Run) -> None:
    roster = json.loads((run.path / "roster.json").read_text())
    (office,) = [p for p in roster["parties"] if p["name"] == AGGREGATOR_NAME]
    note = (run.path / "budgets" / f"{CLIENT}.checkpoint").read_text()
    head = Anchor(note, AGGREGATOR_NAME, VerifyKey(bytes.fromhex(office["verify"]))).checkpoint()
    assert head.origin == budget_origin(CLIENT, DATA)
    (entry,) = [entry for entry in ledger(run, CLIENT) if entry["kind"] == "budget"]
    assert head.size > entry["entries"]


def test_o20_a_policy_without_a_budget_plans_no_heads() -> None:
    plan = Federation(config=banks(policy="masks")).plan()
    assert not [item for item in plan.items if item.part is Service.BUDGET]


def test_o20_no_request_beside_envelopes_asks_for_heads(tmp_path: Path) -> None:
    """A request of its own kind would be answered by the process and by no session."""
    parties = assemble(banks(policy="calibrated"), tmp_path / "parties")
    answerer = Answerer(open_process(parties.kit("client-1")))
    session = answerer.process.session
    word = parties.charter.end(parties.kit(AGGREGATOR_NAME).me.signing)
    size = session.ledger.size
    assert answerer.answer("budget", [word]) == SiteReply(Code.UNREADABLE)
    # The control: what it would hand out is to be had at the door, and no ledger notes it there.
    door = session.context.reserve
    assert isinstance(door, Door) and door.head(DATA).origin == budget_origin("client-1", DATA)
    assert session.ledger.size == size
    # Through the gateway it is noted, and where the plan has no such item, nothing leaves.
    part = session.parts["clientbudgets"]
    part.heads(AGGREGATOR_NAME, Where(1, 1))
    assert session.ledger.size == size + 1
    plan = session.context.plan
    bare = plan.model_copy(update={"items": tuple(i for i in plan.items if i.part != "budget")})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(session.context), "find", lambda self, *place: bare.find(*place))
        with pytest.raises(NotInPlan):
            part.heads(AGGREGATOR_NAME, Where(1, 1))
    assert session.ledger.size == size + 1
    answerer.process.files.close()


# --- what is signed, and what is kept -------------------------------------------------------------


@pytest.mark.parametrize("kind", ["another's", "unsigned", "foreign budget", "other size"])
def test_what_is_no_head_of_this_client_s_budget_is_not_signed(kind: str, tmp_path: Path) -> None:
    parties = assemble(banks(policy="calibrated"), tmp_path / "parties")
    client, other = parties.kit("client-1"), parties.kit("client-2")
    process = open_process(client)
    head = Checkpoint(budget_origin(client.name, DATA), 2, bytes(32))
    foreign = Checkpoint(budget_origin(client.name, "else"), 2, bytes(32))
    good = client.me.signing.sign_raw(head.text().encode())

    def message(signature: bytes, size: int = 2) -> BudgetHeads:
        return BudgetHeads(
            sizes=np.array([size]),
            roots=np.zeros((1, 32), dtype=np.uint8),
            signatures=np.frombuffer(signature, dtype=np.uint8)[None],
        )

    bad = {
        "another's": message(other.me.signing.sign_raw(head.text().encode())),
        "unsigned": message(bytes(64)),
        "foreign budget": message(client.me.signing.sign_raw(foreign.text().encode())),
        "other size": message(good, 3),
    }[kind]
    names = client.name, client.name, process.session.context
    with pytest.raises(BadEnvelope):
        heads._read(bad, *names)
    assert list(heads._read(message(good), *names).values()) == [head]  # the control
    process.files.close()


def test_a_run_that_took_nothing_keeps_the_note_in_the_store_alone(tmp_path: Path) -> None:
    """As `local` does under noise: verification refuses a note of a budget that was left alone."""
    spend(tmp_path / "run", OTHER)
    place = tmp_path / "run" / "budgets" / f"{CLIENT}.checkpoint"
    door = BudgetStore().door(CLIENT, DATA, tmp_path / "run")
    note = cosigned(door.head(DATA), OFFICE)
    door.keep("client", DATA, THIS, note, *KEPT)
    assert not place.exists()
    (floor,) = BudgetStore().path.glob("*.floor")
    assert note.splitlines()[-1] in floor.read_text()
    spend(tmp_path / "run")  # the control
    note = cosigned(door.head(DATA), OFFICE)
    door.keep("client", DATA, THIS, note, *KEPT)
    assert place.read_text() == note


def test_a_store_that_is_put_back_is_refused_by_what_was_cosigned(tmp_path: Path) -> None:
    """Control: its own files, put back together, show nothing."""
    door, store = spend(tmp_path / "run"), BudgetStore()
    early = {file: file.read_bytes() for file in store.path.iterdir()}
    spend(tmp_path / "run", OTHER)
    note = cosigned(door.head(DATA), OFFICE)
    for file, data in early.items():
        file.write_bytes(data)
    anchor = Anchor(note, *KEPT)
    assert store.checkpoint(CLIENT, DATA).size < anchor.checkpoint().size
    with pytest.raises(EvidenceError, match="put back"):
        BudgetStore.open(None, CLIENT, DATA, [anchor])
    with pytest.raises(EvidenceError, match="put back"):
        door.keep("client", DATA, THIS, note, *KEPT)


def test_a_note_of_an_earlier_run_is_not_kept_as_this_run_s(tmp_path: Path) -> None:
    """Whoever carries envelopes may bring it; a later one is kept (the control)."""
    notes = tmp_path / "run"
    place = notes / "budgets" / f"{CLIENT}.checkpoint"
    early = cosigned(spend(notes, OTHER).head(DATA), OFFICE)
    door = spend(notes)
    with pytest.raises(EvidenceError, match="older than what this run took"):
        door.keep("client", DATA, THIS, early, *KEPT)
    assert not place.exists()
    note = cosigned(door.head(DATA), OFFICE)
    spend(notes, OTHER)  # by another run, in between
    door.keep("client", DATA, THIS, note, *KEPT)
    assert place.read_text() == note
    foreign = cosigned(door.head(DATA), Identity.generate(AGGREGATOR_NAME, Role.AGGREGATOR))
    with pytest.raises(EvidenceError, match="not signed by who it names"):
        door.keep("client", DATA, THIS, foreign, *KEPT)
