"""The job that NVFlare runs: two files of settings and no code; and how it is handed in."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from protocols.wire.roster import AGGREGATOR_NAME
from secure_fgl.errors import UsageError
from secure_fgl.transports.nvflare.charter import Charter
from secure_fgl.transports.nvflare.kits import ADMIN, CLASSES, Kits
from secure_fgl.transports.nvflare.site.codes import BUDGET, END, TASK

POLL_SECONDS = 0.1
"""How often a site asks for its next task. NVFlare's own 2 s would be the time of an exchange."""

_DONE = "FINISHED:COMPLETED"


def write_job(
    folder: str | Path,
    sites: Sequence[str],
    *,
    name: str = "secure_fgl",
    deadline: float = 600.0,
    charter: Charter | None = None,
) -> Path:
    """Write a job's folder and return it.

    Written by hand and not by `FedJob.export_job`, which copies the modules of classes that are
    not NVFlare's into the job; sites that forbid a job's own code refuse that.

    Args:
        folder: new.
        sites: every site of the run.
        name: the job's name.
        deadline: seconds that an exchange may take before who has not answered has vanished.
        charter: of the run: it says without whom nothing can be opened, and how many clients the
            policy asks for. Without it all sites must be there.
    """
    place = Path(folder)
    (place / "app" / "config").mkdir(parents=True)
    conductor, seat = CLASSES
    mandatory, least = _needed(charter) if charter is not None else (list(sites), len(sites))
    server: dict[str, Any] = {
        "format_version": 2,
        "server": {"heart_beat_timeout": 600, "task_request_interval": POLL_SECONDS},
        "workflows": [{"id": "conductor", "path": conductor, "args": {"deadline": deadline}}],
        "components": [],
        "task_data_filters": [],
        "task_result_filters": [],
    }
    client: dict[str, Any] = {
        "format_version": 2,
        "executors": [{"tasks": [TASK, BUDGET, END], "executor": {"path": seat, "args": {}}}],
        "components": [],
        "task_data_filters": [],
        "task_result_filters": [],
    }
    meta = {
        "name": name,
        "resource_spec": {},
        "min_clients": least,
        "mandatory_clients": mandatory,
        "deploy_map": {"app": ["@ALL"]},
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


class JobConsole:
    """The administrator's connection: hands jobs in and asks how they are.

    Args:
        kits: whose administrator connects.
        patience: seconds to wait for the server and all sites.

    Raises:
        UsageError: the server or a site does not come up in time.
    """

    def __init__(self, kits: Kits, *, patience: float = 180.0) -> None:
        self._kits, self._deadline = kits, time.monotonic() + patience
        self._session = self._connect()
        try:
            self._await_sites()
        except BaseException:
            self.close()
            raise

    def _connect(self) -> Any:
        from nvflare.fuel.flare_api.flare_api import new_secure_session

        while True:
            try:
                return new_secure_session(ADMIN, str(self._kits.admin), timeout=5.0)
            except Exception as error:  # it raises what its transport raises, until it is up
                self._check_patience(error)
                time.sleep(0.2)

    def _await_sites(self) -> None:
        while True:
            info = self._session.get_system_info()
            if {client.name for client in info.client_info} >= set(self._kits.sites):
                return
            self._check_patience(None)
            time.sleep(0.2)

    def _check_patience(self, error: Exception | None) -> None:
        if time.monotonic() > self._deadline:
            raise UsageError(
                "The NVFlare server, or one of its sites, did not come up in time.",
                why="see process.log and log.txt in the kits' folders",
            ) from error

    def submit(self, job: Path) -> str:
        """Hand a job in and return its id."""
        found: str = self._session.submit_job(str(job))
        return found

    def status(self, job: str) -> str:
        """Return NVFlare's word for how a job is, for example ``RUNNING``."""
        return str(self._session.get_job_meta(job).get("status", ""))

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
        if status != _DONE:
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
