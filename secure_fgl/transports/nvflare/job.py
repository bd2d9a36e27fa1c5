"""The job that NVFlare runs: two files of settings and no code; and how it is handed in."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, Protocol

from protocols.wire.roster import AGGREGATOR_NAME
from secure_fgl.errors import UsageError
from secure_fgl.store.files import content
from secure_fgl.transports.nvflare.charter import Charter
from secure_fgl.transports.nvflare.kits import CLASSES
from secure_fgl.transports.nvflare.site.codes import END, TASK

POLL_SECONDS = 10.0
"""How often a site asks for its next task. There is none, since exchanges are pushed: the answer
says whether the job is over, for a site that the word of that did not reach."""

DONE = "FINISHED:COMPLETED"
"""NVFlare's word for a job that ended by itself."""
_LOGS = "see process.log and log.txt in the kits' folders"


def write_job(
    folder: str | Path,
    sites: Sequence[str],
    *,
    name: str = "secure_fgl",
    deadline: float = 600.0,
    charter: Charter,
) -> Path:
    """Write a job's folder and return it.

    Written by hand and not by `FedJob.export_job`, which copies the modules of classes that are
    not NVFlare's into the job; sites that forbid a job's own code refuse that.

    Args:
        folder: new.
        sites: every site of the run.
        name: the job's name.
        deadline: seconds that an exchange may take before who has not answered has vanished.
        charter: of the run, which the job names; it says without whom nothing can be opened, and
            how many clients the policy asks for.
    """
    place = Path(folder)
    (place / "app" / "config").mkdir(parents=True)
    conductor, seat = CLASSES
    mandatory, least = _needed(charter)
    run = {"run": charter.run}
    server: dict[str, Any] = {
        "format_version": 2,
        "server": {"heart_beat_timeout": 600, "task_request_interval": POLL_SECONDS},
        "workflows": [
            {"id": "conductor", "path": conductor, "args": {**run, "deadline": deadline}}
        ],
        "components": [],
        "task_data_filters": [],
        "task_result_filters": [],
    }
    client: dict[str, Any] = {
        "format_version": 2,
        "executors": [{"tasks": [TASK, END], "executor": {"path": seat, "args": run}}],
        "components": [],
        "task_data_filters": [],
        "task_result_filters": [],
    }
    meta = {
        "name": name,
        "resource_spec": {},
        "min_clients": least,
        "mandatory_clients": mandatory,
        "deploy_map": {"app": ["server", *sites]},  # and to no site of another federation
    }
    for file, document in (
        ("meta.json", meta),
        ("app/config/config_fed_server.json", server),
        ("app/config/config_fed_client.json", client),
    ):
        (place / file).write_text(json.dumps(document, indent=2), "utf-8")
    return place


def _needed(charter: Charter) -> tuple[list[str], int]:
    """Return the sites without which nothing can be opened, and how many there are at least."""
    roles = {*charter.sites} - {*charter.plan.clients, AGGREGATOR_NAME}
    mandatory = sorted(charter.sites[name] for name in roles)
    return mandatory, charter.policy.smallest_cohort + len(mandatory)


class Administered(Protocol):
    """Where an administrator's kit lies, and which sites it is to reach; `Kits` has both."""

    @property
    def admin(self) -> Path:
        """The administrator's kit."""

    @property
    def sites(self) -> Collection[str]:
        """The engine's names of the sites."""


class JobConsole:
    """The administrator's connection: hands jobs in and asks how they are.

    Args:
        kits: whose administrator connects.
        patience: seconds to wait for the server and all sites.
        wait: whether to wait for the sites.
        look: called while the server is waited for; what it raises ends the waiting.

    Raises:
        UsageError: it is no administrator's kit, or the server or a site does not come up in time.
    """

    def __init__(
        self,
        kits: Administered,
        *,
        patience: float = 180.0,
        wait: bool = True,
        look: Callable[[], None] = lambda: None,
    ) -> None:
        self._kits, self._deadline, self._look = kits, time.monotonic() + patience, look
        self._name = _administrator(kits.admin)
        self._session = self._connect()
        try:
            if wait:
                self.await_sites(patience)
        except BaseException:
            self.close()
            raise

    def _connect(self) -> Any:
        from nvflare.fuel.flare_api.flare_api import new_secure_session

        while True:
            try:
                return new_secure_session(self._name, str(self._kits.admin), timeout=5.0)
            except Exception as error:  # it raises what its transport raises, until it is up
                self._look()
                if time.monotonic() > self._deadline:
                    raise UsageError("The NVFlare server does not answer.", why=_LOGS) from error
                time.sleep(0.2)

    def await_sites(self, patience: float) -> None:
        """Return once all sites are there.

        Raises:
            UsageError: one of them does not come up in so many seconds; it is named.
        """
        deadline = time.monotonic() + patience
        while missing := sorted(set(self._kits.sites) - self.there()):
            if time.monotonic() > deadline:
                raise absent(missing)
            time.sleep(0.2)

    def there(self) -> set[str]:
        """Return the sites that the server hears of."""
        return {client.name for client in self._session.get_system_info().client_info}

    def running(self) -> set[str]:
        """Return the jobs that the server runs: one that was killed still calls its job RUNNING."""
        return {job.job_id for job in self._session.get_system_info().job_info}

    def submit(self, job: Path) -> str:
        """Hand a job in and return its id."""
        found: str = self._session.submit_job(str(job))
        return found

    def status(self, job: str) -> str:
        """Return NVFlare's word for how a job is, for example ``RUNNING``."""
        return str(self._session.get_job_meta(job).get("status", ""))

    def abort(self, job: str) -> bool:
        """End a job; False where the server did not: it runs no such job, or is away."""
        try:
            self._session.abort_job(job)
        except Exception:  # of a job that it lost, NVFlare 2.9 says an internal error
            return False
        return True

    def wait(self, job: str, *, patience: float) -> None:
        """Return when a job is finished.

        Raises:
            UsageError: it failed, or is not finished after `patience` seconds.
        """
        deadline = time.monotonic() + patience
        while not (status := self.status(job)).startswith("FINISHED"):
            if time.monotonic() > deadline:
                raise UsageError(f"The job is {status} and not finished after {patience:.0f} s.")
            time.sleep(0.2)
        if status != DONE:
            raise UsageError(
                f"The job ended as {status}.", why="a party's own ledger and log say why"
            )

    def close(self) -> None:
        """End the connection."""
        self._session.close()

    def __enter__(self) -> JobConsole:
        """Return the open console."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()


def absent(missing: Collection[str]) -> UsageError:
    """Return the error of sites that did not come up."""
    return UsageError(f"These sites did not come up in time: {', '.join(missing)}.", why=_LOGS)


def _administrator(kit: Path) -> str:
    """Return the name under which the administrator of a kit logs in."""
    path = kit / "startup" / "fed_admin.json"
    try:
        name = json.loads(content(path, 1 << 20) or b"")["admin"]["username"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(
            f"{kit} is not an administrator's kit of NVFlare.",
            why=f"{path} is missing, or holds no name",
            fix="give the folder that the project's administrator packaged for this office",
        ) from error
    return str(name)
