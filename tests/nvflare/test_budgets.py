"""O20: heads of budgets, cosigned by the aggregator when a run over NVFlare is over."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("nvflare", reason="the extra nvflare is not installed")

from nvflare.apis.shareable import Shareable

from audits.bundle.archive import unpack
from protocols.errors import BadEnvelope, EvidenceError
from protocols.policy.budget import Budget
from protocols.privacy.accounting import ORDERS
from protocols.wire.roster import AGGREGATOR_NAME
from secure_fgl.store.anchors import Anchor
from secure_fgl.store.budgets import VARIABLE, BudgetStore
from secure_fgl.store.sides.hand_overs import write_hand_over
from secure_fgl.transports.nvflare import wire
from secure_fgl.transports.nvflare.budgets import budgets_of, cosigned, keep, own_heads
from secure_fgl.transports.nvflare.party import PartyKit
from secure_fgl.transports.nvflare.site.codes import Code, Heard
from secure_fgl.transports.nvflare.site.conducting import end_run
from tests.nvflare.stage import SERVER_SITE, Parties, assemble, banks
from tests.nvflare.test_engine import Answer, executed, seated, transport

DATA = "synthetic_banks"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Parties:
    return assemble(banks(policy="calibrated"), tmp_path_factory.mktemp("parties"))


@pytest.fixture(autouse=True)
def _store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "budgets"))
    monkeypatch.setenv("SECURE_FGL_STATE", str(tmp_path / "keys"))


def spend(client: str, run: str = "ab" * 16) -> BudgetStore:
    """Reserve once, as a session does before it draws noise."""
    store = BudgetStore()
    take = store.door(client, DATA)
    take(
        dataset=DATA,
        run=run,
        rdp=[0.001] * len(ORDERS),
        cap=Budget(epsilon=1000.0, delta=1e-5),
    )
    return store


def two(made: Parties) -> tuple[PartyKit, PartyKit]:
    return made.kit("site-1"), made.kit(SERVER_SITE)


def test_a_client_s_head_comes_back_with_the_aggregator_s_signature(made: Parties) -> None:
    client, office = two(made)
    store = spend(client.name, made.charter.run)
    assert budgets_of(made.charter, client.name) == {client.name: DATA}
    (note,) = cosigned(office, client.name, own_heads(client))
    key = made.charter.roster.party(AGGREGATOR_NAME).verify
    anchor = Anchor(note.decode(), AGGREGATOR_NAME, key)
    assert anchor.checkpoint() == store.checkpoint(client.name, DATA)
    keep(client, [note])
    assert (client.run_folder / "budgets" / f"{client.name}.checkpoint").read_bytes() == note
    (client.run_folder / "budgets" / f"{client.name}.checkpoint").unlink()
    assert own_heads(office) == []


def test_a_run_that_took_nothing_keeps_the_note_in_the_store_alone(made: Parties) -> None:
    """As `local` does under noise: verification refuses a note of a budget that was left alone."""
    client, office = two(made)
    store = spend(client.name)  # by another run
    place = client.run_folder / "budgets" / f"{client.name}.checkpoint"
    (note,) = cosigned(office, client.name, own_heads(client))
    keep(client, [note])
    assert not place.exists()
    (floor,) = store.path.glob("*.floor")
    assert note.decode().splitlines()[-1] in floor.read_text()
    spend(client.name, made.charter.run)  # the control
    (note,) = cosigned(office, client.name, own_heads(client))
    keep(client, [note])
    assert place.read_bytes() == note
    place.unlink()


def test_a_store_that_is_put_back_is_refused_by_what_was_cosigned(made: Parties) -> None:
    """Control: its own files, put back together, show nothing."""
    client, office = two(made)
    store = spend(client.name)
    early = {file: file.read_bytes() for file in store.path.iterdir()}
    spend(client.name)
    (note,) = cosigned(office, client.name, own_heads(client))
    for file, data in early.items():
        file.write_bytes(data)
    key = made.charter.roster.party(AGGREGATOR_NAME).verify
    anchor = Anchor(note.decode(), AGGREGATOR_NAME, key)
    assert store.checkpoint(client.name, DATA).size < anchor.checkpoint().size
    with pytest.raises(EvidenceError, match="put back"):
        BudgetStore.open(None, client.name, DATA, [anchor])
    with pytest.raises(EvidenceError, match="put back"):
        keep(client, [note])


def test_a_note_of_an_earlier_run_is_not_kept_as_this_run_s(made: Parties) -> None:
    """Whoever runs the server may bring it with the end; a later one is kept (the control)."""
    client, office = two(made)
    spend(client.name)
    (early,) = cosigned(office, client.name, own_heads(client))
    store = spend(client.name, made.charter.run)
    place = client.run_folder / "budgets" / f"{client.name}.checkpoint"
    with pytest.raises(EvidenceError, match="older than what this run took"):
        keep(client, [early])
    assert not place.exists()
    (note,) = cosigned(office, client.name, own_heads(client))
    spend(client.name)  # by another run, in between
    keep(client, [note])
    assert place.read_bytes() == note
    assert store.taken(client.name, DATA, made.charter.run) == 3
    place.unlink()


@pytest.mark.parametrize("kind", ["another's", "unsigned", "foreign budget", "none", "two"])
def test_what_is_no_head_of_this_client_s_budget_is_not_signed(kind: str, made: Parties) -> None:
    client, office = two(made)
    other = made.kit("site-2")
    spend(client.name)
    spend(other.name)
    (head,) = own_heads(client)
    store = BudgetStore()
    store.door(client.name)(
        dataset="else",
        run="ab" * 16,
        rdp=[0.001] * len(ORDERS),
        cap=Budget(epsilon=1000.0, delta=1e-5),
    )
    foreign = store.checkpoint(client.name, "else").sign(client.me.signing, client.name)
    bad = {
        "another's": own_heads(other),
        "unsigned": [head[:-8] + b"AAAAAAA\n"],
        "foreign budget": [foreign.encode()],
        "none": [],
        "two": [head, head],
    }[kind]
    with pytest.raises(BadEnvelope):
        cosigned(office, client.name, bad)
    assert len(cosigned(office, client.name, [head])) == 1  # the control


def test_a_site_tells_its_heads_at_the_end_alone_and_keeps_what_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And one that tells nonsense is told of the end like the others."""
    parties = assemble(banks(policy="calibrated"), tmp_path / "parties")
    sites = {k: v for k, v in parties.charter.sites.items() if k != AGGREGATOR_NAME}
    folders = {site: parties.folders[site] for site in ("site-1", SERVER_SITE)}  # others are away
    seats = seated(Parties(parties.charter, folders), monkeypatch)
    spend("client-1", parties.charter.run)
    for note in ([], [b""], [bytes(64)]):
        assert seats["site-1"].answer(wire.BUDGET, note) == Heard(Code.UNREADABLE)
    asked: list[tuple[str, str]] = []

    def serve(site: str) -> Answer:
        def answer(name: str, data: Shareable) -> Shareable:
            asked.append((site, name))
            if site in seats:
                return executed(seats)(site)(name, data)
            said = (site, name) == ("site-2", wire.BUDGET)
            return wire.pack([b"nonsense"]) if said else wire.say(Code.FAILED)

        return answer

    carried = transport(serve, sites)
    end_run(parties.kit(SERVER_SITE), carried)
    run = parties.kit("site-1").run_folder
    assert [file.name for file in (run / "budgets").iterdir()] == ["client-1.checkpoint"]
    assert (run / "heads" / "client-1.checkpoint").is_file()
    assert {("site-2", wire.BUDGET), ("site-2", wire.END)} <= set(asked)
    handed, _ = write_hand_over(parties.folders["site-1"], tmp_path / "x.zip")
    assert "budgets/client-1.checkpoint" in unpack(handed.read_bytes())
    assert {name for _, name in asked} == {wire.BUDGET, wire.END}
