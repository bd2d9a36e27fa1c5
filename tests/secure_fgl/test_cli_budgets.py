"""``audit account --store`` and ``--anchors``: what all runs spent, held to what others signed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from audits.evidence.steps import Case
from crypto.signing import SigningKey
from protocols.errors import EvidenceError
from protocols.policy.policy import Budget
from protocols.wire.roles import Role
from protocols.wire.roster import AGGREGATOR_NAME, Identity
from secure_fgl.errors import UsageError
from secure_fgl.store.budgets import VARIABLE, BudgetStore
from secure_fgl.store.sides.budget_totals import anchored
from tests.secure_fgl.budget_tools import CAP, CURVE, DATA, DELTA, NOTHING, SITE, reserve, together
from tests.secure_fgl.cli_tools import invoke

AGGREGATOR = Identity.from_seed(AGGREGATOR_NAME, Role.AGGREGATOR, bytes(32))


def case_of(key: Any = AGGREGATOR.party.verify, entries: int = 1) -> Case:
    """What `anchored` reads of a run: sites, data set, budgets, the aggregator's key, and the
    number of reservations with the run's own."""
    party = SimpleNamespace(verify=key)
    return cast(
        Case,
        SimpleNamespace(
            roster=SimpleNamespace(party=lambda name: party),
            plan=SimpleNamespace(clients=(SITE, "bank-2"), data=SimpleNamespace(name=DATA)),
            policy=SimpleNamespace(budgets={"client": CAP}),
            ledger_index=SimpleNamespace(
                of_kind=lambda kind: [(SITE, {"kind": kind, "entries": entries})]
            ),
        ),
    )


@pytest.fixture
def home(store: BudgetStore, monkeypatch: pytest.MonkeyPatch) -> BudgetStore:
    monkeypatch.setenv(VARIABLE, str(store.path))
    return store


@pytest.fixture
def notes(home: BudgetStore, tmp_path: Path) -> Path:
    """The aggregator's note after one run, kept elsewhere; then a second run."""
    reserve(home)
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / f"{SITE}.checkpoint").write_text(home.witness(SITE, DATA, AGGREGATOR))
    reserve(home, "s")
    return folder


def test_the_store_shows_what_all_runs_spent(home: BudgetStore) -> None:
    reserve(home)
    reserve(home, "s")
    home.reserve(SITE, f"{DATA}#node", "r", CURVE, NOTHING, Budget(epsilon=100.0, delta=DELTA))
    for words in (("--store",), ("--store", home.path)):
        shown = invoke("audit", "account", *words, "--format", "json")
        assert shown.exit_code == 0, shown.stderr
        whole, single = json.loads(shown.stdout)
        assert (whole["site"], whole["dataset"], whole["unit"], whole["runs"]) == (
            SITE, DATA, "client", 2,
        )  # fmt: skip
        assert float(whole["epsilon"]) == pytest.approx(together(2), rel=1e-4)
        assert (single["dataset"], single["unit"], single["runs"]) == (DATA, "node", 1)
    table = invoke("audit", "account", "--store")
    assert SITE in table.stdout and whole["epsilon"] in table.stdout


def test_a_store_that_was_edited_or_is_not_there_is_no_account(home: BudgetStore) -> None:
    assert invoke("audit", "account", "--store").exit_code == 2  # nothing is there, nothing is made
    assert not home.path.exists()
    reserve(home)
    (file,) = home.path.glob("*.jsonl")
    file.write_bytes(file.read_bytes().replace(b"0.5", b"0.4", 1))
    assert invoke("audit", "account", "--store").exit_code == 5
    assert invoke("audit", "account").exit_code == 2
    assert invoke("audit", "account", "--store", "--missing", "1").exit_code == 2
    assert invoke("audit", "account", "--store", "--delta", "2").exit_code == 2


@pytest.mark.parametrize("how", ["renamed", "gone", "emptied"])
def test_no_budget_hides_behind_another_or_is_left_out(home: BudgetStore, how: str) -> None:
    reserve(home)
    home.reserve("bank-2", DATA, "r", CURVE, NOTHING, CAP)
    assert invoke("audit", "account", "--store").exit_code == 0  # the control
    file = home.file("bank-2", DATA)
    if how == "renamed":  # it would be read as a second bank-1, and bank-2's would be nobody's
        file.write_bytes(home.file(SITE, DATA).read_bytes())
    elif how == "gone":
        file.unlink()
    else:
        file.write_bytes(b"")
    assert invoke("audit", "account", "--store").exit_code == 5
    file.with_suffix(".floor").unlink()
    if how == "emptied":  # as a disk that was full at a first reservation leaves it
        assert invoke("audit", "account", "--store").exit_code == 0


def test_a_budget_is_held_to_what_the_aggregator_signed(home: BudgetStore, notes: Path) -> None:
    (one,) = anchored(case_of(), notes, None)
    assert (one.site, one.runs, one.held_to) == (SITE, 2, 2)  # lines: the header, one run
    assert float(one.epsilon) == pytest.approx(together(2), rel=1e-4)
    with pytest.raises(EvidenceError, match="not signed"):  # another run's aggregator
        anchored(case_of(SigningKey.generate().public), notes, None)
    shutil.copy(notes / f"{SITE}.checkpoint", notes / "bank-2.checkpoint")
    with pytest.raises(EvidenceError, match="another budget"):
        anchored(case_of(), notes, None)


def test_a_note_from_before_the_run_says_nothing_of_it(home: BudgetStore, notes: Path) -> None:
    """A budget that was put back to before the second run extends the note of the first."""
    assert anchored(case_of(entries=1), notes, None)  # the control: signed after the first run
    with pytest.raises(UsageError, match="older than this run"):
        anchored(case_of(entries=2), notes, None)
    (notes / f"{SITE}.checkpoint").write_text(home.witness(SITE, DATA, AGGREGATOR))
    assert anchored(case_of(entries=2), notes, None)
    with pytest.raises(UsageError, match="does not say when"):
        case = case_of()
        cast(Any, case).ledger_index.of_kind = lambda kind: []
        anchored(case, notes, None)


def test_a_store_that_was_removed_as_a_whole_shows_in_the_notes_alone(
    home: BudgetStore, notes: Path, tmp_path: Path
) -> None:
    shutil.rmtree(home.path)
    reserve(home, "t")  # by itself it looks like a first run
    assert invoke("audit", "account", "--store").exit_code == 0
    with pytest.raises(EvidenceError, match=r"rewritten|put back"):
        anchored(case_of(), notes, None)
    with pytest.raises(UsageError, match="no note"):
        anchored(case_of(), tmp_path, None)
    inside = invoke("audit", "account", tmp_path, "--anchors", notes)  # they would prove nothing
    assert inside.exit_code == 2 and "belong to the run folder" in inside.stderr
