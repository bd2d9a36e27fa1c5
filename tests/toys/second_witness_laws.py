"""What must hold once a second witness was dropped into a copy of the tree.

tests/toys/test_second_witness.py puts this file into the copy's tests/laws and runs it there.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from audits.attacks import attacks
from protocols.disclosures.names import Disclosure
from protocols.errors import BadEnvelope, NotInPlan, Replay, RoundLost, WrongStage
from protocols.forms import Exchange, Form
from protocols.plan.steps import Step
from protocols.roles.second_witness import SurvivorsSeen
from protocols.sessions.part import Delivery
from protocols.wire.codec import encode
from protocols.wire.roles import Role
from protocols.wire.roster import Roster
from protocols.wire.run_context import RunContext
from secure_fgl.federation import Federation
from secure_fgl.store.finished_run import Run
from tests.laws import test_admission as admission
from tests.laws import test_evidence as evidence
from tests.laws import test_resume as resume
from tests.laws import test_wiretap as wiretap
from tests.laws.conftest import Recorded
from tests.laws.killing import play
from tests.laws.runs import config
from tests.protocols.toys import Start, Update, train
from tests.protocols.wire import World, refused
from tests.secure_fgl.cli_tools import invoke

NAME, POLICY = "fed_avg", "pilot"
ROLE = Role("second_witness")
PARTY, SHOWN, SIGNED = "second-witness", "train.witness.second_witness", ".witnessed."


@pytest.fixture
def run(recorded: Recorded) -> Run:
    return Run(recorded(NAME, POLICY).path)


def test_it_is_planned_where_a_sum_is_opened() -> None:
    plan = Federation.from_config(config(NAME, POLICY)).plan()
    assert {item.step for item in plan.all_of(ROLE)} == {Step.WITNESS, Step.WITNESSED}
    assert "whose answers count" in plan.item(SHOWN).learns[str(ROLE)]
    summed = {item.exchange for item in plan.all_of(Disclosure.SUM)}
    assert {item.exchange for item in plan.all_of(ROLE)} == summed


def test_a_roster_without_it_or_with_two_is_refused(recorded: Recorded) -> None:
    context: RunContext = recorded(NAME, POLICY).aggregators[0].context
    facts = {name: getattr(context, name) for name in ("me", "plan", "run", "policy")}
    parties = [context.roster.party(one["name"]) for one in context.roster.document()]
    with pytest.raises(NotInPlan, match="0 parties in role second_witness"):
        RunContext(roster=Roster(p for p in parties if p.name != PARTY), **facts)
    with pytest.raises(BadEnvelope, match="twice"):
        Roster([*parties, context.roster.party(PARTY)])


def test_the_laws_of_algorithms_hold(recorded: Recorded) -> None:
    admission.test_planned_bytes_are_the_bytes_sent_and_counts_stay_within_times(
        NAME, POLICY, recorded
    )
    evidence.test_one_entry_at_the_sender_and_one_at_each_receiver(NAME, POLICY, recorded)
    wiretap.test_a_wiretap_sees_no_clear_payload(NAME, POLICY, recorded)


def test_it_is_recorded_and_verified(run: Run) -> None:
    verification = run.verify()
    assert verification.verdict == "self-consistent only", verification.steps
    entries = run.path.joinpath("ledger", f"{PARTY}.jsonl").read_text("utf-8").splitlines()
    kinds = [one["kind"] for one in map(json.loads, entries)]
    assert kinds.count("receipt") == kinds.count("release") > 0 and kinds[-1] == "close"


def test_a_ledger_of_it_that_lacks_a_line_breaks_the_chain(run: Run, tmp_path: Path) -> None:
    place = Path(shutil.copytree(run.path, tmp_path / "run", symlinks=True))
    file = place / "ledger" / f"{PARTY}.jsonl"
    lines = file.read_text("utf-8").splitlines(keepends=True)
    file.write_text("".join(lines[:2] + lines[3:]), "utf-8")
    assert Run(place).verify().verdict == "FAILED at chain"


def test_the_report_says_what_it_learns(run: Run) -> None:
    text = run.path.joinpath("report", "report.md").read_text("utf-8")
    assert "second witness" in text and "whose answers count" in text


def test_attacks_say_whether_they_apply(run: Run, tmp_path: Path) -> None:
    place = Path(shutil.copytree(run.path, tmp_path / "run", symlinks=True))
    found = invoke("audit", "attack", str(place), "--fail-on", "never")
    assert place.joinpath("attacks.json").is_file(), (found.output, found.exception)
    rows = json.loads(place.joinpath("attacks.json").read_text("utf-8"))["rows"]
    assert {one.id for one in attacks()} == {row["id"] for row in rows}


def test_a_killed_run_goes_on_to_the_same_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECURE_FGL_STATE", str(tmp_path / "keys"))
    chosen = config(NAME, POLICY)
    expected = play(chosen, tmp_path / "whole")
    for part in (3, 5):
        out = tmp_path / f"run-{part}"
        at = expected.messages * part // 6
        resume._same(resume._killed_at(chosen, out, at, after=True), expected, out)


def test_it_runs_between_sites_as_in_memory(
    recorded: Recorded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every party with a folder of its own, in its session of a run between organisations."""
    from tests import forked
    from tests.sites.one_process import played
    from tests.sites.stage import assemble, gather

    forked.use(monkeypatch)
    parties = assemble(config(NAME, POLICY), tmp_path / "parties")
    played(parties)
    assert parties.result()["model_sha256"] == recorded(NAME, POLICY).result["model_sha256"]
    assert Run(gather(parties, tmp_path / "run")).verify().verdict == "self-consistent only"


# --- what it keeps an aggregator from -------------------------------------------------------------


def shown(world: World, exchange: int, survivors: Sequence[str]) -> list[Delivery]:
    """Return what the second witness answers where an aggregator states these survivors."""
    where = world.where(exchange=exchange)
    mask = world.roster.mask
    seen = SurvivorsSeen(members=mask(where.members), survivors=mask(survivors))
    body = encode([seen], world.context(PARTY).dims(world.plan.item(SHOWN)))
    data = world.forge("aggregator", SHOWN, PARTY, body, where)
    answers: list[Delivery] = world.session(PARTY).receive(data)
    return answers


@pytest.mark.parametrize(("later", "signed"), [(5, True), (4, True), (6, False)])
def test_a_client_that_vanished_in_a_round_counts_in_no_later_sum_of_it(
    later: int, signed: bool
) -> None:
    twice = Exchange("train", (Start,), (Update,), train, per_round=2)
    world = World(Form("two", lambda *_: None, (twice,)), clients=6).start()
    assert not refused(shown(world, 1, world.names[:5]))
    assert refused(shown(world, 2, world.names[:later])) is not signed
    if not signed:
        assert "vanished from this round" in str(world.session(PARTY).last_error)


def test_a_second_list_of_one_sum_is_not_signed() -> None:
    world = World().start()
    assert not refused(shown(world, 1, world.names[:4]))
    with pytest.raises(Replay):
        shown(world, 1, world.names[:3])


def test_without_its_signature_the_round_is_lost() -> None:
    world = World().start()
    world.pump(world.ask(1), until=SHOWN)
    with pytest.raises(RoundLost, match="did not sign"):
        world.aggregator.advance()


def test_a_signature_that_nobody_asked_for_is_refused() -> None:
    world = World().start()
    (request,) = world.pump(world.ask(1), until=SHOWN)
    (answer,) = world.session(PARTY).receive(request.data)
    world.aggregator.countersigning.rest()
    with pytest.raises(WrongStage, match="none was asked for"):
        world.aggregator.receive(answer.data)
