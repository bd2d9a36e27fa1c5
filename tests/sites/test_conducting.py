"""How the office sees a run through, with an engine that does what a test says."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("nvflare", reason="the extra nvflare is not installed")

from nvflare.fuel.flare_api.api_spec import InternalError, JobNotFound, NoConnection

from protocols.errors import Refused
from secure_fgl.charters.party import PartyKit
from secure_fgl.errors import UsageError
from secure_fgl.sites.status import StatusFile
from secure_fgl.transports.nvflare.job import JobConsole, write_job
from secure_fgl.transports.nvflare.office import conducting, returning
from secure_fgl.transports.nvflare.office.conducting import (
    Ending,
    Office,
    Settings,
    see_through,
)
from secure_fgl.transports.nvflare.office.job_note import JobNote
from tests.sites.stage import SERVER_SITE, Parties, assemble, banks

DONE, BROKEN = "FINISHED:COMPLETED", "FINISHED:EXECUTION_EXCEPTION"


@dataclass
class Engine:
    """Jobs by what they say one after the other; a function acts, and says the word."""

    kit: PartyKit
    jobs: list[Sequence[Any]]
    sites: set[str]
    handed: list[dict[str, Any]] = field(default_factory=list)
    aborted: list[str] = field(default_factory=list)
    opened: int = 0
    forgets: bool = False  # its server was killed, and still calls the job RUNNING

    def console(self, office: Office, **_: Any) -> Engine:
        self.opened += 1
        self.words = getattr(self, "words", iter(()))
        return self

    def there(self) -> set[str]:
        return self.sites

    def running(self) -> set[str]:
        return set() if self.forgets else {f"job-{len(self.handed)}"}

    def submit(self, folder: Path) -> str:
        self.handed.append(json.loads((folder / "meta.json").read_text()))
        self.words = iter(self.jobs[len(self.handed) - 1])
        return f"job-{len(self.handed)}"

    def status(self, job: str) -> str:
        word = next(self.words)
        if callable(word):
            word = word()
        if isinstance(word, Exception):
            raise word
        return str(word)

    def abort(self, job: str) -> bool:
        """Refused for a job that the server lost, as NVFlare's own words are (`JobConsole`)."""
        self.aborted.append(job)
        return not self.forgets

    def close(self) -> None:
        pass


@pytest.fixture(scope="module")
def parties(tmp_path_factory: pytest.TempPathFactory) -> Parties:
    return assemble(banks(), tmp_path_factory.mktemp("parties"))


@pytest.fixture
def office(parties: Parties, monkeypatch: pytest.MonkeyPatch) -> PartyKit:
    """The aggregator's kit, as before its run."""
    kit = parties.kit(SERVER_SITE)
    for name in ("status.json", "job.json", "site.log", "run/roster.json", "run/result.json"):
        (kit.folder / name).unlink(missing_ok=True)
    monkeypatch.setattr(conducting, "LOOK_SECONDS", 0.0)
    return kit


def conducted(
    kit: PartyKit, jobs: list[Sequence[Any]], patch: pytest.MonkeyPatch, **more: Any
) -> tuple[Engine, tuple[Ending, str], list[str]]:
    sites = {site for name, site in kit.charter.sites.items() if name != "aggregator"}
    engine, told = Engine(kit, jobs, more.pop("there", sites)), list[str]()
    patch.setattr(conducting, "JobConsole", engine.console)
    settings = Settings(**{"patience": 5.0, "tell": told.append, **more})
    return engine, see_through(kit, Path("kit"), settings), told


def goes_on(kit: PartyKit, round: int) -> Callable[[], str]:
    """The run gets on by a round, and its job breaks off."""

    def act() -> str:
        status = StatusFile.of(kit)
        status.status.round = round
        status.heard("nobody")
        (kit.run_folder).mkdir(exist_ok=True)
        (kit.run_folder / "roster.json").write_text("{}")
        return BROKEN

    return act


def finishes(kit: PartyKit, word: str) -> Callable[[], str]:
    def act() -> str:
        kit.run_folder.mkdir(exist_ok=True)
        (kit.run_folder / "result.json").write_text("{}")
        return word

    return act


def test_two_offices_do_not_hand_one_run_in_twice(
    office: PartyKit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While one waits for its sites another begins: it is told so, and hands nothing in."""
    there, said = Engine.there, list[str]()

    def second(engine: Engine) -> set[str]:
        monkeypatch.setattr(Engine, "there", there)
        try:
            see_through(office, Path("kit"), Settings())
        except UsageError as error:
            said.append(str(error))
        return there(engine)

    monkeypatch.setattr(Engine, "there", second)
    jobs = [["RUNNING", finishes(office, DONE)]] * 2
    engine, (ending, _), _ = conducted(office, jobs, monkeypatch)
    assert ending is Ending.OVER and len(engine.handed) == 1
    assert len(said) == 1 and "conducted already" in said[0]


def test_a_job_that_broke_off_is_handed_in_again(
    office: PartyKit, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = [
        ["SUBMITTED", "RUNNING", goes_on(office, 1)],
        ["RUNNING", goes_on(office, 2)],
        ["RUNNING", BROKEN],
        ["RUNNING", BROKEN],
        ["RUNNING", goes_on(office, 3)],
        ["RUNNING", finishes(office, DONE)],
    ]
    engine, (ending, _), told = conducted(office, jobs, monkeypatch)
    assert ending is Ending.OVER and len(engine.handed) == len(jobs) and not engine.aborted
    assert sum("handed in again" in line for line in told) == len(jobs) - 1
    note = JobNote.read(office.folder, office.charter.run)
    assert (note.handed_in, note.word, note.outcome) == (6, DONE, "over")
    again, (ending, _), _ = conducted(office, [], monkeypatch)  # nothing is asked any more
    assert ending is Ending.OVER and not again.handed and not again.opened


@pytest.mark.parametrize("word", [BROKEN, DONE])
def test_three_jobs_that_got_nowhere_are_hopeless(
    word: str, office: PartyKit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever NVFlare calls their end: whether the run is over is in the party's own folder."""
    jobs = [["RUNNING", word]] * 9
    engine, (ending, why), _ = conducted(office, jobs, monkeypatch)
    assert ending is Ending.HOPELESS and len(engine.handed) == 3 and "site.log" in why
    engine, (ending, _), _ = conducted(office, jobs, monkeypatch, resume=True)
    assert ending is Ending.HOPELESS and len(engine.handed) == 3  # one may try again


def test_a_refusal_ends_it_and_is_told(office: PartyKit, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses() -> str:
        status = StatusFile.of(office)
        with pytest.raises(Refused), status.noting():
            raise Refused("client-2", "plan")
        return BROKEN

    engine, found, _ = conducted(office, [["RUNNING", refuses]], monkeypatch)
    assert found == (Ending.REFUSED, "client-2: plan") and len(engine.handed) == 1


def test_a_job_that_outlives_its_run_is_ended(
    office: PartyKit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A site that never comes back keeps NVFlare's job; the server's slot is wanted."""
    monkeypatch.setattr(conducting, "GRACE_SECONDS", 0.0)
    jobs = [["RUNNING", finishes(office, "RUNNING"), "RUNNING", "RUNNING", "FINISHED:ABORTED"]]
    engine, (ending, _), _ = conducted(office, jobs, monkeypatch)
    assert ending is Ending.OVER and engine.aborted == ["job-1"] and len(engine.handed) == 1


def test_one_more_job_tells_the_sites_of_an_end_that_they_did_not_hear(
    office: PartyKit, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = [["RUNNING", finishes(office, BROKEN)], ["RUNNING", BROKEN]]
    engine, (ending, _), _ = conducted(office, jobs, monkeypatch)
    assert ending is Ending.OVER and len(engine.handed) == 2  # and no third


def test_a_job_that_is_called_running_and_is_not_run_is_handed_in_again(
    office: PartyKit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What NVFlare 2.9 says for ever of the job of a server that was killed."""
    monkeypatch.setattr(conducting, "THERE_SECONDS", 0.0)
    running = Engine.running

    def forgot(engine: Engine) -> set[str]:
        engine.forgets = len(engine.handed) == 1
        return running(engine)

    monkeypatch.setattr(Engine, "running", forgot)
    goes_on(office, 1)()
    jobs = [["RUNNING"] * 99, [*["RUNNING"] * 20, finishes(office, DONE)]]
    engine, (ending, _), told = conducted(office, jobs, monkeypatch, resume=True)
    assert ending is Ending.OVER and len(engine.handed) == 2 and not engine.aborted
    assert any("runs the job no more" in line for line in told)


def test_a_job_that_was_lost_as_the_run_ended_gives_way_to_one_that_tells_the_sites(
    office: PartyKit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server was killed between the result and the word to all sites that the run is over."""
    monkeypatch.setattr(conducting, "THERE_SECONDS", 0.0)
    running = Engine.running

    def forgot(engine: Engine) -> set[str]:
        engine.forgets = len(engine.handed) == 1
        return running(engine)

    monkeypatch.setattr(Engine, "running", forgot)
    jobs = [["RUNNING", finishes(office, "RUNNING"), *["RUNNING"] * 99], ["RUNNING", DONE]]
    engine, (ending, _), told = conducted(office, jobs, monkeypatch)
    assert ending is Ending.OVER and len(engine.handed) == 2 and not engine.aborted
    assert JobNote.read(office.folder, office.charter.run).outcome == "over"
    assert any("runs the job no more" in line for line in told)


def test_a_job_that_the_server_does_not_end_ends_nothing_here() -> None:
    """Of a job that it lost NVFlare 2.9 says `Job ... is not running`, as an internal error."""

    def refuses(job: str) -> None:
        raise InternalError(f"Job {job} is not running.")

    console = JobConsole.__new__(JobConsole)
    console._session = SimpleNamespace(abort_job=refuses)
    assert not console.abort("job-1")
    console._session = SimpleNamespace(abort_job=lambda job: "sent")
    assert console.abort("job-1")


@pytest.mark.parametrize("lost", [NoConnection("away"), JobNotFound("gone")])
def test_a_server_that_is_away_or_forgot_the_job_is_asked_again(
    lost: Exception, office: PartyKit, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes = goes_on(office, 1)
    first = ["RUNNING", lost, goes] if isinstance(lost, NoConnection) else ["RUNNING", lost]
    jobs = [first, ["RUNNING", finishes(office, DONE)]]
    engine, (ending, _), _ = conducted(office, jobs, monkeypatch)
    assert ending is Ending.OVER and len(engine.handed) == 2
    assert engine.opened == (2 if isinstance(lost, NoConnection) else 1)


def test_resume_watches_the_job_that_runs(
    office: PartyKit, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted() -> str:
        goes_on(office, 1)()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        conducted(office, [["RUNNING", interrupted]], monkeypatch)
    with pytest.raises(UsageError, match="has begun already"):
        conducted(office, [], monkeypatch)
    words = iter(["RUNNING", finishes(office, DONE)])
    monkeypatch.setattr(Engine, "words", words, raising=False)
    engine, (ending, _), _ = conducted(office, [], monkeypatch, resume=True)
    assert ending is Ending.OVER and engine.handed == []


def test_an_office_that_is_up_has_not_begun_its_run(
    office: PartyKit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its session, which is up before the job is handed in, has written its side of the folder."""
    office.run_folder.mkdir(exist_ok=True)
    (office.run_folder / "roster.json").write_text("{}")
    status = StatusFile.of(office)
    status.heard("nobody")
    there = {site for name, site in office.charter.sites.items() if name != "aggregator"}
    jobs = [["RUNNING", finishes(office, DONE)]]
    with pytest.raises(UsageError, match="site-2"):  # everybody is waited for at first
        few = {"there": there - {"site-2"}, "patience": 0.05, "deadline": 0.01}
        conducted(office, jobs, monkeypatch, **few)
    engine, (ending, _), _ = conducted(office, jobs, monkeypatch)
    assert ending is Ending.OVER and len(engine.handed) == 1


def test_a_run_waits_for_all_and_goes_on_with_enough(
    office: PartyKit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At first everybody; once it has begun, the policy's smallest cohort and all other roles."""
    needed = Office.of(office.charter, Path("kit"))
    assert needed.mandatory == [] and needed.least == office.charter.policy.smallest_cohort
    there = set(needed.sites) - {"site-2"}
    jobs = [["RUNNING", finishes(office, DONE)]]
    with pytest.raises(UsageError, match="site-2"):
        conducted(office, jobs, monkeypatch, there=there, patience=0.05, deadline=0.01)
    goes_on(office, 1)()
    few = set(sorted(needed.sites)[: needed.least - 1])
    with pytest.raises(UsageError, match="did not come up"):
        conducted(office, jobs, monkeypatch, there=few, resume=True, patience=0.05, deadline=0.01)
    engine, (ending, _), told = conducted(
        office, jobs, monkeypatch, there=there, resume=True, deadline=0.01
    )
    assert ending is Ending.OVER and "Going on without site-2." in told
    assert engine.handed[0]["min_clients"] == needed.least
    assert engine.handed[0]["mandatory_clients"] == []


def test_a_job_is_cut_for_who_came_back_at_a_round_s_end_where_that_pays(
    office: PartyKit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`site-2` died and is back before the server noticed: it does not answer, and is there."""
    monkeypatch.setattr(conducting, "THERE_SECONDS", 0.0)
    named = {site: name for name, site in office.charter.sites.items()}
    engine_aborts = Engine.abort

    def stops(engine: Engine, job: str) -> bool:
        engine.words = iter(["FINISHED:ABORTED"])
        return engine_aborts(engine, job)

    monkeypatch.setattr(Engine, "abort", stops)

    def at(round: int) -> Callable[[], str]:
        def act() -> str:
            goes_on(office, round)()
            status = StatusFile.of(office)
            status.status.round, status.status.away = round, {named["site-2"]: 1.0}
            status.heard("nobody")
            return "RUNNING"

        return act

    first = [at(1), at(1), at(2), at(2), at(3), "RUNNING", BROKEN]
    jobs = [[*first], ["RUNNING", at(4), at(5), at(6), finishes(office, DONE)]]
    monkeypatch.setattr(returning.Returning, "_pays", lambda self, now: True)
    engine, (ending, _), told = conducted(office, jobs, monkeypatch)
    assert ending is Ending.OVER and engine.aborted == ["job-1"] and len(engine.handed) == 2
    assert [line for line in told if "came back" in line] == [
        "site-2 came back: the job is cut for a new one."
    ]  # once: it does not answer in the next one either
    monkeypatch.undo()  # the control: this run has no round left that a new job would be for
    monkeypatch.setattr(conducting, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(conducting, "THERE_SECONDS", 0.0)
    for name in ("job.json", "run/roster.json", "run/result.json", "status.json"):
        (office.folder / name).unlink(missing_ok=True)
    whole = [*first[:-1], finishes(office, DONE)]
    monkeypatch.setattr(returning.Returning, "_pays", lambda self, now: True)
    with monkeypatch.context() as patched:  # a session that crashed is back within a minute
        patched.setattr(conducting, "SILENT_SECONDS", 1e12)
        engine, _, _ = conducted(office, [whole], monkeypatch)
        assert not engine.aborted
    monkeypatch.undo()
    monkeypatch.setattr(conducting, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(conducting, "THERE_SECONDS", 0.0)
    for name in ("job.json", "run/roster.json", "run/result.json", "status.json"):
        (office.folder / name).unlink(missing_ok=True)
    engine, (ending, _), told = conducted(office, [whole], monkeypatch)
    assert ending is Ending.OVER and not engine.aborted and len(engine.handed) == 1


def test_when_a_new_job_pays() -> None:
    sites, clock, tried = ["a", "b", "c"], [0.0], set[str]()

    def job(there: list[str], rounds: int = 50) -> returning.Returning:
        return returning.Returning(
            sites, there, enough=lambda some: len(some) >= 2, rounds=rounds, tried=tried,
            now=lambda: clock[0],
        )  # fmt: skip

    def looks(mine: returning.Returning, *rounds: int, there: list[str]) -> list[list[str]]:
        found = []
        for round in rounds:
            clock[0] += 20.0
            found.append(mine.look(there, {*sites} - {*there}, round))
        return found

    mine = job(["a", "b"])
    assert looks(mine, 1, 1, 2, 3, there=["a", "b"]) == [[]] * 4  # it is not back
    assert looks(mine, 3, 3, 4, there=sites) == [[], [], ["c"]]  # only as a round ends
    clock[0] = 0.0
    late = job(["a", "b"], rounds=10)  # 300 s are left in the third round, and it would be a tenth
    assert looks(late, 1, 2, 3, 4, 5, there=sites) == [[]] * 5
    assert looks(job(["a"]), 1, there=sites) == [["b", "c"]]  # too few: at once


def test_a_job_that_cannot_go_on_is_cut_though_one_was_cut_for_the_same_site() -> None:
    """An authority's machine that dies again before it answered in the job that was cut for it."""
    sites, again, tried = ["a", "b", "c"], ["b", "c"], {"a"}

    def job() -> returning.Returning:
        return returning.Returning(
            sites, sites, enough=lambda some: "a" in some, rounds=50, tried=tried
        )

    mine = job()
    assert [mine.look(there, {"a"}, 1) for there in (again, sites)] == [[], ["a"]]
    stopped = job()  # the control: one that is there and silent, as its operator may want
    assert [stopped.look(sites, {"a"}, 1) for _ in range(3)] == [[]] * 3


def test_a_job_in_which_rounds_are_lost_is_cut_for_who_is_back_and_silent() -> None:
    """One of four is gone, one was back before the server noticed, and three are needed."""
    sites, there, tried = ["a", "b", "c", "d"], ["a", "b", "c"], set[str]()

    def job(least: int) -> returning.Returning:
        return returning.Returning(
            sites, sites, enough=lambda some: len(some) >= least, rounds=6, tried=tried
        )

    mine = job(3)
    assert [mine.look(there, {"c", "d"}, r) for r in (1, 1, 2)] == [[], [], ["c"]]
    again = job(3)  # it is silent still: perhaps its operator stopped it
    assert [again.look(there, {"c", "d"}, r) for r in (2, 3, 4)] == [[]] * 3
    tried.clear()
    enough = job(2)  # the control: rounds go on without it, and a new job does not pay
    assert [enough.look(there, {"c", "d"}, r) for r in (1, 2, 3)] == [[]] * 3


def test_who_opens_totals_is_mandatory(tmp_path: Path) -> None:
    parties = assemble(banks(policy="he"), tmp_path / "parties")
    needed = Office.of(parties.charter, tmp_path)
    authority = parties.charter.sites["key-authority"]
    assert needed.mandatory == [authority]
    assert not needed.enough(set(needed.sites) - {authority})
    assert needed.enough(set(needed.sites) - {parties.charter.sites["client-1"]})
    sites = list(needed.sites)
    made = write_job(tmp_path / "job", sites, charter=parties.charter)
    meta = json.loads((made / "meta.json").read_text())
    assert meta["mandatory_clients"] == [authority]
    assert meta["min_clients"] == needed.least < len(sites)


def test_what_is_no_administrator_s_kit_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="administrator's kit"):
        JobConsole(Office(tmp_path, [], [], 0))
