"""Many runs for one identity: each in a folder of its own, found by its name alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from protocols.errors import EvidenceError
from protocols.wire.roster import AGGREGATOR_NAME
from secure_fgl.charters.broker import CARRIER
from secure_fgl.charters.charter import Charter
from secure_fgl.charters.party import PartyKit
from secure_fgl.errors import UsageError
from secure_fgl.sites import checks, stopping
from secure_fgl.sites.checks import Status
from secure_fgl.sites.process import PartyProcess, open_process
from secure_fgl.store.budgets import BudgetStore
from secure_fgl.store.finished_run import Run
from secure_fgl.store.sides.party_side import place_of, places_of
from secure_fgl.transports.broker import channel
from secure_fgl.transports.broker.carrier import Connection
from tests.secure_fgl.cli_tools import invoke
from tests.sites.stage import Parties, another, assemble, banks

NAME = "client-1"


@pytest.fixture
def parties(tmp_path: Path) -> Parties:
    return assemble(banks(), tmp_path / "parties")


@pytest.fixture
def second(parties: Parties) -> Charter:
    """Another charter, which the very same identities joined, too."""
    return another(parties, banks(rounds=2))


def test_each_run_of_one_identity_has_a_folder_of_its_own(
    parties: Parties, second: Charter
) -> None:
    party, first = parties.folders[NAME], parties.charter
    assert {*places_of(party)} == {first.run, second.run}
    for charter in (first, second):
        kit = PartyKit.load(party, charter.run)
        assert kit.charter.signed == charter.signed and kit.folder.name == charter.run
        assert kit.party == party.resolve() and kit.keys == party.resolve() / "keys"
    for unnamed in (lambda: PartyKit.load(party), lambda: Run(party), lambda: place_of(party)):
        with pytest.raises(UsageError, match="none is named"):
            unnamed()
    told = invoke("status", party)
    assert told.exit_code == 2 and first.run in told.stderr and second.run in told.stderr


def test_a_run_that_was_never_joined_is_refused_before_anything_is_opened(
    parties: Parties, second: Charter
) -> None:
    party, never = parties.folders[NAME], "ab" * 16
    for words in ("start", "stop", "check", "model --out x.npz", "hand-over --out x.zip"):
        verb, *more = words.split()
        said = invoke("site", verb, party, "--run", never, *more)
        assert said.exit_code == 2, (words, said.stdout)
        assert "no such run" in " ".join((said.stdout + said.stderr).split()), words
    with pytest.raises(UsageError, match="no such run"):
        PartyKit.load(party, never)
    before = sorted(path for path in party.rglob("*") if path.is_file())
    for spelt in ("", "../" + never, never.upper(), never + "/"):
        with pytest.raises(ValueError, match="not the name of a run"):
            channel.socket_of(party / channel.SOCKET, spelt)
    assert sorted(path for path in party.rglob("*") if path.is_file()) == before


@pytest.mark.parametrize("run", ["..", "../../etc", "AB" * 16, "ab" * 15, "", "ab" * 16 + "\0"])
def test_what_is_no_run_s_name_is_no_path(run: str, parties: Parties) -> None:
    with pytest.raises(UsageError, match="32 hexadecimal digits"):
        place_of(parties.folders[NAME], run)


def test_a_link_is_no_run(parties: Parties, tmp_path: Path) -> None:
    """Neither one that bears a run's name, nor one in the place of the folder of all runs."""
    party, run = parties.folders[NAME], "cd" * 16
    theirs = place_of(parties.folders["client-2"])
    (party / "runs" / run).symlink_to(theirs)
    with pytest.raises(UsageError, match="no such run"):
        place_of(party, run)
    assert place_of(party).name == parties.charter.run  # the control: the plain one is found
    (party / "runs").rename(tmp_path / "runs")
    (party / "runs").symlink_to(tmp_path / "runs")
    with pytest.raises(EvidenceError, match="link"):
        place_of(party, parties.charter.run)


def test_a_charter_under_another_run_s_name_is_not_loaded(
    parties: Parties, second: Charter
) -> None:
    party = parties.folders[NAME]
    (place_of(party, second.run) / "charter.json").write_bytes(parties.charter.encode())
    with pytest.raises(EvidenceError, match="of another run than the folder"):
        PartyKit.load(party, second.run)
    shown = invoke("site", "check", party, "--run", second.run, "--format", "json")
    found = {line["check"]: line["status"] for line in json.loads(shown.stdout)["checks"]}
    assert found["charter"] == "FAIL" and shown.exit_code == 5
    again = invoke("site", "check", party, "--run", parties.charter.run, "--format", "json")
    found = {line["check"]: line["status"] for line in json.loads(again.stdout)["checks"]}
    assert found["charter"] == "OK"  # the control


def test_two_runs_are_at_work_at_once_and_a_stop_ends_both(
    parties: Parties, second: Charter
) -> None:
    party = parties.folders[AGGREGATOR_NAME]
    held = [open_process(PartyKit.load(party, run)) for run in places_of(party)]
    ledgers = [process.session.ledger for process in held]
    assert len({process.kit.run_folder for process in held}) == len(ledgers) == 2
    for process in held:
        assert process.session.context.run == process.kit.charter.run
        process.files.close()  # what the system does for a dead process
    refused = invoke("site", "renew", party)
    assert refused.exit_code == 2 and "is not over" in refused.stderr
    assert {*stopping.stop(party, seconds=5.0)} == {*places_of(party)}
    for place in places_of(party).values():
        assert stopping.was_stopped(place)
        assert (place / "run" / "heads" / "aggregator.checkpoint").is_file()
    for run in places_of(party):
        said = invoke("audit", "verify", party, "--run", run)
        assert said.exit_code == 0 and "own side holds" in said.stdout
    for more, why in (((), "none is named"), (("--run", "ab" * 16), "no such run")):
        said = invoke("audit", "verify", party, *more)
        assert said.exit_code == 2 and why in " ".join(said.stderr.split())
    stopping.go_on(place_of(party, second.run))
    assert stopping.stop(party, run=parties.charter.run, seconds=5.0) == [parties.charter.run]
    assert not stopping.was_stopped(place_of(party, second.run))


def test_a_full_disk_at_one_run_leaves_no_other_one_unstopped(
    parties: Parties, second: Charter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No word can be written, and one ledger not signed: all the same nothing starts."""
    party, full = parties.folders[AGGREGATOR_NAME], min(parties.charter.run, second.run)
    for run in places_of(party):
        open_process(PartyKit.load(party, run)).files.close()
    sign_off = stopping.sign_off

    def no_room(*_: object) -> None:
        raise OSError(28, "No space left on device")

    def signed(process: PartyProcess) -> None:
        if process.kit.charter.run == full:
            process.files.close()
            no_room()
        sign_off(process)

    with monkeypatch.context() as patched:
        patched.setattr(stopping, "replace", no_room)
        patched.setattr(stopping, "sign_off", signed)
        told = invoke("site", "stop", party)
        assert told.exit_code == 2 and full in told.stderr and "No space left" in told.stderr
        with pytest.raises(UsageError, match="No space left"):
            stopping.stop(party, run=full, seconds=5.0)
    heads = {run: list((p / "run/heads").glob("*")) for run, p in places_of(party).items()}
    assert all(stopping.was_stopped(place) for place in places_of(party).values())
    assert [run for run, head in heads.items() if not head] == [full]  # and it is signed later:
    again = invoke("site", "stop", party, "--format", "json")
    assert again.exit_code == 0 and json.loads(again.stdout) == {
        "party": str(party), "stopped": sorted((parties.charter.run, second.run)),
    }  # fmt: skip
    assert list((place_of(party, full) / "run" / "heads").glob("*"))


def test_each_run_of_one_identity_has_a_socket_and_subjects_of_its_own(
    parties: Parties, second: Charter
) -> None:
    """One party, one key of its connection, two runs: nothing of one is heard in the other."""
    party, named = parties.folders[NAME], set[str]()
    for charter in (parties.charter, second):
        to = Connection.load(party / CARRIER, charter.run)
        assert charter.run in to.listens and to.listens not in named
        named |= {to.listens, str(channel.socket_of(party / channel.SOCKET, charter.run))}
    assert len(named) == 4
    assert parties.charter.carriers[NAME] == second.carriers[NAME]


def test_o20_one_budget_is_over_all_runs_of_an_identity(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What one run took is gone for the next one, which `site check` foresees."""
    monkeypatch.setenv("SECURE_FGL_BUDGETS", str(tmp_path / "budgets"))
    parties = assemble(banks(policy="calibrated"), tmp_path / "parties")
    next_one, party = another(parties, banks(policy="calibrated")), parties.folders[NAME]

    def line() -> Any:
        found = {line.name: line for line in checks.check_site(party, run=next_one.run)}
        return found["budget"]

    assert "by 0 runs" in line().said
    kit = PartyKit.load(party, parties.charter.run)
    plan, cap = kit.charter.plan, kit.charter.policy.budget
    assert cap is not None
    (_, curve), *_ = checks.planned_spending(plan)
    store, spent = BudgetStore(kit.config().budget.store), [repr(v) for v in curve]
    store.reserve(kit.name, plan.data.name, kit.charter.run, spent, "0", cap)
    assert line().status is Status.FAIL and "does not cover this run" in line().said
