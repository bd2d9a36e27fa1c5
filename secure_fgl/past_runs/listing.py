"""What lies in a folder of runs, and what two of them differ in.

All of it is read from the plans, configurations and results; no client's state is opened.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import yaml

from audits.evidence.run_files import read_plan
from protocols.errors import SecureFglError
from protocols.plan.learns import reduced
from protocols.strict import read_yaml
from secure_fgl.errors import UsageError
from secure_fgl.store.files import Folder
from secure_fgl.store.finished_run import NOT_JUDGED, Run

__all__ = ["Difference", "Listed", "differences", "listed"]

State = Literal["finished", "not finished", "cannot be read"]
_SCORES = ("test_accuracy", "test_roc_auc", "test_rmse", "test_mae", "test_told")


@dataclass(frozen=True)
class Listed:
    """One run of a list.

    Attributes:
        name: of its folder.
        state: ``not finished`` of a run that goes on, was killed, or was interrupted.
        algorithm, data, policy, rounds, clients: as its plan says; empty where it cannot be read.
        score: the metric that comes first, with its value; empty where there is none.
        verdict: of the evidence, when the run ended; nothing is verified for a list.
        runs_as: what the algorithm was, where its options left out what it is called after.
    """

    name: str
    state: State
    algorithm: str = ""
    data: str = ""
    policy: str = ""
    rounds: int = 0
    clients: int = 0
    score: str = ""
    verdict: str = ""
    runs_as: str = ""

    def document(self) -> dict[str, Any]:
        """Return it as plain data."""
        return asdict(self)


def listed(folder: Path) -> Iterator[Listed]:
    """Yield the runs whose folders lie in `folder`, sorted by name.

    Raises:
        UsageError: there is no such folder.
    """
    if not folder.is_dir():
        raise UsageError(
            f"There is no folder {folder}.", fix="name the folder that holds your runs' folders"
        )
    for name in Folder(folder).folders():
        if (folder / name / "plan.json").is_file():
            yield _one(folder / name)


def _one(path: Path) -> Listed:
    try:
        run = Run(path)
        plan, result = read_plan(run.folder.read("plan.json")), run.result
        metrics = run.metrics
    except (SecureFglError, OSError):
        return Listed(path.name, "cannot be read")
    found = [(name, metrics[name]) for name in _SCORES if isinstance(metrics.get(name), float)]
    verdict = str(result.get("verdict", ""))
    return Listed(
        path.name,
        "finished" if result and verdict != NOT_JUDGED else "not finished",
        algorithm=plan.algorithm,
        data=plan.data.name,
        policy=plan.policy,
        rounds=plan.rounds,
        clients=len(plan.clients),
        score=f"{found[0][0]} {found[0][1]:.4f}" if found else "",
        verdict=verdict,
        runs_as=next((text.partition(":")[0] for text in reduced(plan)), ""),
    )


@dataclass(frozen=True)
class Difference:
    """Something that two runs differ in; empty where one has nothing of it.

    Attributes:
        what: ``plan``, ``setting``, ``metric`` or ``result``.
        name: of the key, with dots.
        first, second: its values, as text.
    """

    what: str
    name: str
    first: str
    second: str


def differences(first: Run, second: Run) -> list[Difference]:
    """Return what two runs differ in: plan, settings, metrics, and the rest of their results.

    Raises:
        EvidenceError: a result or plan cannot be read.
        UsageError: a configuration cannot.
    """
    return [
        Difference(what, name, old.get(name, ""), new.get(name, ""))
        for what, old, new in zip(_KINDS, _facts(first), _facts(second), strict=True)
        for name in dict.fromkeys((*old, *new))
        if old.get(name) != new.get(name)
    ]


_KINDS = ("plan", "setting", "metric", "result")
_APART = {"metrics", "run_dir"}  # of a result: they have rows of their own, or always differ


def _facts(run: Run) -> tuple[dict[str, str], ...]:
    plan = read_plan(run.folder.read("plan.json"))
    try:
        settings = read_yaml(run.folder.read("config.yaml").decode("utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UsageError(f"The configuration in {run.path} cannot be read.") from error
    told = {key: value for key, value in run.result.items() if key not in _APART}
    return (
        {"digest": plan.digest, "form": plan.form, "policy digest": plan.policy_digest},
        dict(_flat(settings)),
        dict(_flat(run.metrics)),
        dict(_flat(told)),
    )


def _flat(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _flat(inner, f"{name}.{key}" if name else str(key))
    elif value is not None:
        yield name, str(value)
