"""Seeing a run through: hand its job in, watch it, hand it in again, and end it.

NVFlare ends a job for many reasons that do not end the run: a crashed process at a site, a server
that was started anew. Every party keeps its state (docs/adr/0009-resume.md), so another job goes on
where the last one was. The office knows from its own party's folder whether the run is over.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from protocols.wire.roles import Role
from secure_fgl.errors import UsageError
from secure_fgl.store.sides.site_log import NAME as LOG
from secure_fgl.transports.nvflare.job import DONE, JobConsole, absent, write_job
from secure_fgl.transports.nvflare.lock import only_office
from secure_fgl.transports.nvflare.office.job_note import JobNote
from secure_fgl.transports.nvflare.office.needed import Office
from secure_fgl.transports.nvflare.office.returning import Returning
from secure_fgl.transports.nvflare.party import PartyKit
from secure_fgl.transports.nvflare.sessions.status import State, Status, read_status

__all__ = ["Ending", "Office", "Settings", "see_through"]

LOOK_SECONDS = 0.5
THERE_SECONDS = 5.0  # between two looks at who and what is there while a job runs
SILENT_SECONDS = 60.0  # twice what a session that crashed takes to be back, in the job that runs
LOST_LOOKS = 6  # after which a job that NVFlare calls running, and does not run, is lost
GRACE_SECONDS = 45.0
"""How long a job may go on once the run is over, while sites hear of the end."""
_IDLE_JOBS = 3
_GONE, _RUNS = "GONE", "RUNNING"


class Ending(StrEnum):
    """How a run ended for the office."""

    OVER = "over"
    REFUSED = "refused"
    HOPELESS = "hopeless"


@dataclass(frozen=True)
class Settings:
    """How a run is seen through.

    Attributes:
        deadline: seconds that one exchange may take.
        resume: whether to go on with a run that has begun.
        patience: seconds to wait for the server and for all sites.
        tell: called with a line for people.
        look: called each time the job is looked at; what it raises ends the watching.
    """

    deadline: float = 600.0
    resume: bool = False
    patience: float = 3600.0
    tell: Callable[[str], None] = lambda line: None
    look: Callable[[], None] = lambda: None


def see_through(kit: PartyKit, admin: Path, settings: Settings) -> tuple[Ending, str]:
    """Hand the run's job in as often as it takes; return how the run ended, and why.

    If this is interrupted the job goes on, and with `resume` it is watched again.

    Args:
        kit: of the aggregator, whose charter it is.
        admin: the administrator's kit of the engine.
        settings: deadlines, and whom to tell.

    Raises:
        UsageError: another party's folder, a run that has begun without `resume`, one that another
            office watches, or server or sites that do not come up in time.
    """
    if kit.me.party.role is not Role.AGGREGATOR:
        raise UsageError(
            f"This folder is {kit.name}'s, who does not conduct the run.",
            fix="give the folder of the aggregator, at the coordinating office",
        )
    with only_office(kit.folder):  # before its note is read: two would each hand a job in
        note = JobNote.read(kit.folder, kit.charter.run)
        if note.outcome:
            return Ending(note.outcome), "as this office noted before"
        if _begun(kit, note) and not settings.resume:
            raise UsageError(
                "The run of this folder has begun already.",
                why="its job was handed in before",
                fix="go on with it: secure-fgl conduct PARTY --kit KIT --resume",
            )
        return _Watch(kit, Office.of(kit.charter, admin), settings, note).run()


class _Watch:
    """One office at work on one run."""

    def __init__(self, kit: PartyKit, office: Office, settings: Settings, note: JobNote) -> None:
        self._kit, self._office, self._settings, self._note = kit, office, settings, note
        self._console: JobConsole | None = None
        self._returning: Returning | None = None  # None: who is in the job is not known
        self._next_look, self._unseen, self._tried = 0.0, 0, set[str]()

    def run(self) -> tuple[Ending, str]:
        """Hand in and watch until the run has ended."""
        idle, told_all = 0, False
        try:
            while True:
                before = self._reached()
                word, cut = self._job()
                self._settings.tell(f"The job ended: {word}.")
                found = self._ended()
                # A job that broke off as the run ended did not tell the sites: one more does.
                if found is Ending.OVER and not (cut or told_all or word == DONE):
                    told_all = True
                    continue
                if found is not None:
                    return self._note_end(found, self._why())
                idle = idle + 1 if self._reached() == before else 0
                if idle == _IDLE_JOBS:
                    return self._note_end(Ending.HOPELESS, self._why())
                self._settings.tell("The run is not over: its job is handed in again.")
        finally:
            self._close()

    def _job(self) -> tuple[str, bool]:
        """Hand one job in, or take the one up that is there; watch it to its end.

        Returns:
            NVFlare's last word, and whether we ended it.
        """
        note = self._note
        if not note.job or note.word.startswith("FINISHED") or note.word == _GONE:
            self._hand_in()
        ended_at, cut = 0.0, False
        while not (word := self._word()).startswith("FINISHED") and word != _GONE:
            self._settings.look()
            if self._ended() is not None:
                ended_at, self._returning = ended_at or time.monotonic(), None
                if time.monotonic() > ended_at + GRACE_SECONDS and not cut:
                    self._settings.tell("The run has ended and its job has not: it is ended.")
                    cut = self._connected().abort(note.job)
            if word == _RUNS and time.monotonic() >= self._next_look:
                self._next_look = time.monotonic() + THERE_SECONDS
                if self._looked() == LOST_LOOKS:
                    self._settings.tell("The server was started anew and runs the job no more.")
                    word = note.word = _GONE
                    break
            time.sleep(LOOK_SECONDS)
        return word, cut

    def _looked(self) -> int:
        """Look who and what is there; cut the job for sites that are back, see `Returning`.

        Returns:
            For how many looks the server has not run the job.
        """
        console, job = self._connected(), self._note.job
        try:
            there = console.there()
            self._unseen = 0 if job in console.running() else self._unseen + 1
        except UsageError:
            raise
        except Exception:  # the server is away: the next word waits for it
            self._close()
            return 0
        away = status.away if (status := _status_of(self._kit)) is not None else {}
        long = time.time() - SILENT_SECONDS
        silent = {self._kit.charter.sites[party] for party in away if away[party] < long}
        mine = self._returning if not self._unseen else None
        if mine is not None and (back := mine.look(there, silent, self._reached()[0])):
            self._settings.tell(f"{', '.join(back)} came back: the job is cut for a new one.")
            if console.abort(job):
                self._returning = None  # told once
        return self._unseen

    def _hand_in(self) -> None:
        office, note, settings = self._office, self._note, self._settings
        there, self._unseen = self._await_sites(), 0
        self._returning = Returning(
            office.sites, there, enough=office.enough, rounds=self._kit.charter.plan.rounds,
            tried=self._tried,
        )  # fmt: skip
        with tempfile.TemporaryDirectory(prefix="secure-fgl-job-") as place:
            name = f"secure_fgl-{note.run[:8]}"
            made = write_job(
                Path(place) / name, list(office.sites), name=name, deadline=settings.deadline,
                charter=self._kit.charter,
            )  # fmt: skip
            note.job = self._connected().submit(made)
        note.handed_in, note.word = note.handed_in + 1, ""
        note.write(self._kit.folder)
        settings.tell(f"Job {note.handed_in} handed in: {note.job}.")

    def _await_sites(self) -> Collection[str]:
        """Wait for all sites; once the run has begun, for some only as long as for an answer.

        Returns:
            Who is there.
        """
        told: list[str] = []
        began, settings = time.monotonic(), self._settings
        while missing := self._office.missing(there := self._connected().there()):
            settings.look()
            if told != missing:
                told = missing
                settings.tell(f"Waiting for {', '.join(missing)}.")
            waited = time.monotonic() - began
            begun = _begun(self._kit, self._note)
            if waited > settings.deadline and begun and self._office.enough(there):
                settings.tell(f"Going on without {', '.join(missing)}.")
                break
            if waited > settings.patience:
                raise absent(missing)
            time.sleep(LOOK_SECONDS)
        return there

    def _word(self) -> str:
        """Return NVFlare's word for the job; a server that does not answer is waited for."""
        from nvflare.fuel.flare_api.api_spec import JobNotFound

        deadline = time.monotonic() + self._settings.patience
        while True:
            try:
                word = self._connected().status(self._note.job)
                break
            except JobNotFound:
                word = _GONE
                break
            except UsageError:
                raise
            except Exception:  # whatever its transport raises while the server is away
                self._close()
                self._settings.look()
                if time.monotonic() > deadline:
                    raise
                time.sleep(LOOK_SECONDS)
        if word != self._note.word:
            self._note.word = word
            self._settings.tell(f"NVFlare says {word}.")
        self._note.write(self._kit.folder)
        return word

    def _connected(self) -> JobConsole:
        if self._console is None:
            patience, look = self._settings.patience, self._settings.look
            self._console = JobConsole(self._office, patience=patience, wait=False, look=look)
        return self._console

    def _close(self) -> None:
        console, self._console = self._console, None
        if console is not None:
            try:
                console.close()
            except Exception:  # the server is gone, and the connection with it
                self._settings.tell("The connection to the server was lost.")

    def _reached(self) -> tuple[int, int]:
        """Return how far the run is; what does not grow over several jobs does not get on."""
        status = _status_of(self._kit)
        return (status.round, status.exchange) if status is not None else (0, 0)

    def _ended(self) -> Ending | None:
        if (self._kit.run_folder / "result.json").is_file():
            return Ending.OVER
        status = _status_of(self._kit)
        refused = status is not None and status.state == State.REFUSED
        return Ending.REFUSED if refused else None

    def _why(self) -> str:
        status = _status_of(self._kit)
        if status is not None and status.reason:
            return status.reason
        return f"see {self._kit.party / LOG} here, and {LOG} at each site"

    def _note_end(self, ending: Ending, why: str) -> tuple[Ending, str]:
        if ending is not Ending.HOPELESS:  # another try may find what was missing
            self._note.outcome = str(ending)
        self._note.write(self._kit.folder)
        return ending, why if ending is not Ending.OVER else "its result is in this party's folder"


def _status_of(kit: PartyKit) -> Status | None:
    try:
        found = read_status(kit.folder)
    except UsageError:
        return None
    return found if found.run == kit.charter.run else None


def _begun(kit: PartyKit, note: JobNote) -> bool:
    """Tell whether a job was handed in. The office's session alone, which is up first, is none."""
    status = _status_of(kit)
    return note.handed_in > 0 or (status is not None and (status.round, status.exchange) > (0, 0))
