"""One party checks its own side: honest sides hold, and every change fails at its own step."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from audits.accounting.account import account
from audits.bundle.hand_over import hand_over
from audits.evidence.run_files import RunView
from audits.evidence.steps import OWN_SIDE, UNSIGNED_SIDE, Status
from audits.evidence.verify import verify
from audits.exporters import assessment
from audits.formats import render
from audits.report.build import build_report
from crypto.merkle import Checkpoint
from crypto.signing import canonical
from protocols.errors import EvidenceError
from protocols.evidence.ledger import Entry
from protocols.policy.budget import budget_origin
from secure_fgl.store.finished_run import Run
from tests.audits.forging import edit_last, entries_of, forge, sign
from tests.audits.party_tools import Federation, play, public_key
from tests.audits.toy_run import AGGREGATOR, AUTHORITY, FIVE
from tests.audits.verify_tools import fails_at, step, without

MINE, OTHER = FIVE[1], FIVE[2]
Spoil = Callable[[RunView, Federation], RunView]


@pytest.fixture(scope="module")
def he(tmp_path_factory: pytest.TempPathFactory) -> Federation:
    return play(tmp_path_factory.mktemp("he"), "he")


@pytest.fixture(scope="module")
def masks(tmp_path_factory: pytest.TempPathFactory) -> Federation:
    return play(tmp_path_factory.mktemp("masks"), "masks")


@pytest.fixture(scope="module")
def noised(tmp_path_factory: pytest.TempPathFactory) -> Federation:
    return play(tmp_path_factory.mktemp("noised"), "calibrated", noised=True)


def side(made: Federation, party: str) -> RunView:
    return Run(made.folders[party]).view()


def test_every_honest_side_holds_and_says_what_only_others_show(he: Federation) -> None:
    for party in he.folders:
        found = verify(side(he, party))
        assert found.verdict == OWN_SIDE == "own side holds", found.failed
        left = {s.name for s in found.steps if s.status is Status.NOT_CHECKED}
        assert {"others", "heads"} <= left  # whoever it is: others' records are not here
        for name in ("approvals", "chain", "tree", "plan_vs_ledger", "receipts", "budget"):
            assert step(found, name) is Status.OK, name
    client, aggregator, authority = (
        {s.name: s for s in verify(side(he, party)).steps}
        for party in (MINE, AGGREGATOR, AUTHORITY)
    )
    assert client["witnesses"].status is client["keys"].status is Status.OK
    assert client["opened"].status is client["result"].status is Status.NOT_CHECKED
    assert aggregator["result"].status is aggregator["witnesses"].status is Status.OK
    assert authority["opened"].status is authority["keys"].status is Status.OK
    assert "only their ledgers show" in client["others"].detail


def test_a_side_is_found_in_its_folder_and_a_whole_run_is_none(he: Federation) -> None:
    folder = he.folders[MINE]
    for place in (folder, he.place(MINE), he.run(MINE)):
        found = Run(place)
        assert found.path == he.run(MINE) and found.party is not None
        assert found.view().side == MINE and found.view().charter_text
    alone = replace(side(he, MINE), side="")  # the control: as all parties' files it fails
    fails_at("roster", alone)
    assert [s.name for s in verify(side(he, MINE)).steps][-4:] == [
        "others",
        "captured",
        "report",
        "heads",
    ]


def test_a_side_of_nobody_on_the_roster_has_no_report(he: Federation) -> None:
    view = side(he, MINE)
    stranger = replace(
        view,
        side="stranger",
        ledgers={"stranger": view.ledgers[MINE]},
        checkpoints={"stranger": view.checkpoints[MINE]},
    )
    fails_at("roster", stranger)
    for made in (build_report, hand_over):
        with pytest.raises(EvidenceError, match="nobody on the roster"):
            made(stranger)


# --- tampering, by who holds all of the party's own keys or by who holds none -------------------


def _without(kind: str, **facts: object) -> Spoil:
    return lambda view, made: forge(made.toy, view, view.side, without(kind, **facts))


def _edited(kind: str, **facts: object) -> Spoil:
    return lambda view, made: forge(made.toy, view, view.side, edit_last(kind, **facts))


def _again(kind: str) -> Spoil:
    def change(entries: list[Entry]) -> list[Entry]:
        place = max(n for n, entry in enumerate(entries) if entry["kind"] == kind)
        return [*entries[: place + 1], entries[place], *entries[place + 1 :]]

    return lambda view, made: forge(made.toy, view, view.side, change)


def _ledger(change: Callable[[bytes], bytes]) -> Spoil:
    def spoil(view: RunView, made: Federation) -> RunView:
        return replace(view, ledgers={view.side: change(view.ledgers[view.side])})

    return spoil


def _charter(change: Callable[[dict], None]) -> Spoil:
    def spoil(view: RunView, made: Federation) -> RunView:
        document = json.loads(view.charter_text)
        change(document)
        return replace(view, charter_text=canonical(document))

    return spoil


def _cut(data: bytes) -> bytes:
    return b"".join(data.splitlines(keepends=True)[:-2])


def _longer(view: RunView, made: Federation) -> RunView:
    note = sign(made.toy, view.side, view.ledgers[view.side] + b"more\n")
    return replace(view, held_heads={view.side: note})


def _reported(view: RunView, made: Federation) -> RunView:
    files = render(build_report(view), ("md",))
    return replace(view, reports={name: data + b"x" for name, data in files.items()})


CLIENTS: dict[str, tuple[str, Spoil]] = {
    "no ledger": ("files", lambda v, m: replace(v, ledgers={}, checkpoints={})),
    "another's ledger too": (
        "files",
        lambda v, m: replace(v, ledgers={**v.ledgers, OTHER: v.ledgers[MINE]}),
    ),
    "head taken away": ("files", lambda v, m: replace(v, checkpoints={})),
    "stray file": ("files", lambda v, m: replace(v, strays=("heads",))),
    "another policy": (
        "plan",
        lambda v, m: replace(v, policy_text=v.policy_text.replace(b'_cohort": 3', b'_cohort": 4')),
    ),
    "another configuration": ("plan", lambda v, m: replace(v, config_text=b"seed: 2\n")),
    "another nonce": (
        "roster",
        lambda v, m: replace(v, roster_text=v.roster_text.replace(b'"0001', b'"ff01')),
    ),
    "no charter": ("approvals", lambda v, m: replace(v, charter_text=b"")),
    "a charter that is none": ("approvals", lambda v, m: replace(v, charter_text=b"{}")),
    "unsigned by one": ("approvals", _charter(lambda d: d["signatures"].pop(OTHER))),
    "signed by a stranger": (
        "approvals",
        _charter(lambda d: d["signatures"].update(stranger="00" * 64)),
    ),
    "a signature of another's": (
        "approvals",
        _charter(lambda d: d["signatures"].update({MINE: d["signatures"][OTHER]})),
    ),
    "refused by one": (
        "approvals",
        _charter(lambda d: d.update(refusals={OTHER: {"reason": "no"}})),
    ),
    "charter of another plan": (
        "approvals",
        _charter(lambda d: d.update(plan=d["plan"].replace('"rounds": 2', '"rounds": 3'))),
    ),
    "an organisation put in afterwards": (
        "approvals",
        _charter(lambda d: d.update(organisations={MINE: "another hospital"})),
    ),
    "a connection exchanged": (
        "approvals",
        _charter(lambda d: d["carriers"].update({MINE: public_key(99)})),
    ),
    "an entry edited": ("chain", _ledger(lambda data: data.replace(b'"round":1', b'"round":2', 1))),
    "an entry dropped": (
        "chain",
        _ledger(lambda data: data.replace(data.splitlines(keepends=True)[4], b"")),
    ),
    "cut": ("tree", _ledger(_cut)),
    "a head under another key": (
        "tree",
        lambda v, m: forge(
            m.toy, v, MINE, lambda entries: entries, key=m.toy.identities[OTHER].signing
        ),
    ),
    "a release of no planned item": ("plan_vs_ledger", _edited("release", item="model")),
    "a release that is too large": ("plan_vs_ledger", _edited("release", bytes=10**9)),
    "a receipt of no planned item": ("receipts", _edited("receipt", item="model")),
    "a receipt from another role": ("receipts", _edited("receipt", sender=OTHER)),
    "a receipt twice": ("receipts", _again("receipt")),
    "a larger envelope received": ("receipts", _edited("receipt", bytes=10**9)),
    "a result of its own": ("result", lambda v, m: replace(v, result_text=b"{}")),
    "a root left out": ("witnesses", _without("heads")),
    "a receipt for what was never sent": ("witnesses", _edited("heads", received=1)),
    "a loss made up": ("witnesses", _edited("heads", missing=1)),
    "the report edited": ("report", _reported),
    "others hold a longer ledger": ("heads", _longer),
}


@pytest.mark.parametrize("name", CLIENTS)
def test_what_is_changed_on_a_clients_side_fails_at_its_step(name: str, masks: Federation) -> None:
    where, spoil = CLIENTS[name]
    fails_at(where, spoil(side(masks, MINE), masks))


def test_under_encryption_an_upload_under_a_key_that_was_never_taken_fails(he: Federation) -> None:
    spoil = _edited("key", key="ab" * 32)
    fails_at("keys", spoil(side(he, MINE), he))
    spoil = _without("key", event="destroyed")
    fails_at("keys", spoil(side(he, AUTHORITY), he))


def test_o5_an_own_opening_is_once_and_over_enough(he: Federation, masks: Federation) -> None:
    for made, party in ((he, AUTHORITY), (masks, AGGREGATOR)):
        for spoil in (_again("open"), _edited("open", survivors=2)):
            fails_at("opened", spoil(side(made, party), made))
        entries = entries_of(side(made, party).ledgers[party])
        opens = [entry for entry in entries if entry["kind"] == "open"]
        assert opens
    stolen = {k: v for k, v in opens[0].items() if k not in ("seq", "prev", "party")}

    def put_in(entries: list[Entry]) -> list[Entry]:
        return [*entries[:-1], {**stolen, "party": MINE}, entries[-1]]

    fails_at("opened", forge(masks.toy, side(masks, MINE), MINE, put_in))


def test_the_aggregators_own_roots_and_result_are_recomputed(masks: Federation) -> None:
    view = side(masks, AGGREGATOR)
    fails_at("witnesses", _edited("heads", root="00" * 32)(view, masks))
    fails_at("result", replace(view, metrics_text=view.metrics_text + b"{}\n"))
    fails_at("result", replace(view, weights={**view.weights, "final": "00" * 32}))


def test_o20_a_client_that_reserved_nothing_fails_at_budget(noised: Federation) -> None:
    view = side(noised, MINE)
    found = verify(view)
    assert found.verdict == OWN_SIDE, found.failed
    fails_at("budget", _without("budget")(view, noised))
    fails_at("budget", _edited("budget", epsilon="99")(view, noised))


def test_o20_a_note_on_a_budget_is_the_aggregators_and_no_older_one(noised: Federation) -> None:
    view = side(noised, MINE)
    (entry,) = (e for e in entries_of(view.ledgers[MINE]) if e["kind"] == "budget")
    keys = noised.toy.identities

    def note(size: int, site: str = MINE, by: str = AGGREGATOR) -> bytes:
        head = Checkpoint(budget_origin(site, entry["dataset"]), size, bytes(32))
        return head.sign(keys[by].signing, by).encode()

    found = verify(replace(view, budgets={MINE: note(2)}))  # a first line, and one reservation
    assert found.ok and any("1 head of them cosigned" in s.detail for s in found.steps)
    for wrong in (note(1), note(2, site=OTHER), note(2, by=MINE), b"\xff", b""):
        fails_at("budget", replace(view, budgets={MINE: wrong}))
    fails_at("budget", replace(view, budgets={OTHER: note(2, site=OTHER)}))


def test_what_clients_reserved_no_other_side_shows(noised: Federation, he: Federation) -> None:
    found = verify(side(noised, AGGREGATOR))
    assert found.ok and step(found, "budget") is Status.NOT_CHECKED
    assert step(verify(side(he, AGGREGATOR)), "budget") is Status.OK  # no noise: nothing to reserve


def test_heads_of_ledgers_that_are_not_here_agree_with_nothing(masks: Federation) -> None:
    """Whatever is given for other parties, of one side its own head alone is compared."""
    view, held = side(masks, MINE), masks.toy.checkpoints
    others = {OTHER: "no head at all", AGGREGATOR: held[AGGREGATOR]}
    for more, status, said in (
        (others, Status.NOT_CHECKED, "heads of 0 parties agree"),
        ({**others, MINE: held[MINE]}, Status.OK, "all 1 heads"),
    ):
        step = {s.name: s for s in verify(replace(view, held_heads=more)).steps}["heads"]
        assert (step.status, said) == (status, step.detail[: len(said)])


def test_a_session_that_never_ended_has_no_head_and_says_so(
    tmp_path: Path, masks: Federation
) -> None:
    """Control: with the entry that closes it, a ledger without its head fails."""
    view = side(masks, MINE)
    opened = replace(
        view,
        ledgers={MINE: b"".join(view.ledgers[MINE].splitlines(keepends=True)[:-1])},
        checkpoints={},
    )
    found = verify(opened)
    assert found.verdict == UNSIGNED_SIDE and step(found, "tree") is Status.NOT_CHECKED
    fails_at("files", replace(view, checkpoints={}))


# --- report and account -------------------------------------------------------------------------


def test_the_report_of_a_side_speaks_of_that_party_alone(he: Federation) -> None:
    made = build_report(side(he, MINE))
    assert made.side == MINE and made.integrity.verdict == OWN_SIDE
    assert made.notes[0].startswith("ONE SIDE") and "SIMULATION" not in str(made.notes)
    assert made.summary.startswith(f"{MINE} (client) took part")
    assert {row.sender for row in made.inventory} == {MINE}
    assert not made.plan_diff.missing and not made.plan_diff.unplanned
    assert made.dropouts.vanished == made.dropouts.lost == ()
    assert made.verdict_strip[0].answer.startswith(f"Not from {MINE}. ")
    assert f"From {MINE}: " in made.verdict_strip[1].answer
    assert f"What {MINE} alone sent:" in assessment.cnil(made).decode()
    assert any("alone" in text for text in made.limits)
    office = build_report(side(he, AGGREGATOR))
    assert "Nothing left the clients" not in office.verdict_strip[1].answer
    assert {party.organisation for party in made.parties} == {*he.charter.organisations.values()}


@pytest.mark.usefixtures("quick")
def test_o16_an_account_of_a_side_is_of_that_client(noised: Federation) -> None:
    found = account(side(noised, MINE))
    assert [client.name for client in found.clients] == [MINE]
    assert found.evidence == OWN_SIDE and found.failed == () and found.verdict == "NOT FALSIFIED"
    assert any("one client's side" in note for note in found.notes)
    ledger = b"".join(side(noised, MINE).ledgers[MINE].splitlines(keepends=True)[:-1])
    cut = account(replace(side(noised, MINE), ledgers={MINE: ledger}, checkpoints={}))
    assert any("cut off" in note for note in cut.notes)
    assert not any("cut off" in note for note in found.notes)  # the control
    whole = account(replace(side(noised, MINE), side=""))  # the control
    assert whole.failed == ("roster",) and len(whole.clients) == len(FIVE)
    with pytest.raises(EvidenceError, match="is no client"):
        account(side(noised, AGGREGATOR))
    assert (
        "stands in its own ledger" in build_report(side(noised, AGGREGATOR)).accounting[0].statement
    )
