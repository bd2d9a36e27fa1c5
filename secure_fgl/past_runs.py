"""Runs that lie in a folder: listed, compared two at a time, and deleted, their keys first."""

from __future__ import annotations

import os
import re
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
from secure_fgl.store.files import Folder, is_temporary, run_name
from secure_fgl.store.finished_run import NOT_JUDGED, Run
from secure_fgl.store.state_store import StateStores, default_folder

__all__ = ["Deleted", "Difference", "Listed", "delete", "differences", "listed"]


# What lies in a folder of runs, and what two of them differ in.
#
# All of it is read from the plans, configurations and results; no client's state is opened.

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


# Deleting a run of this machine: first the keys to what it kept, then its folder.
#
# Whatever a backup still holds of the folder's locked pieces can be opened by nobody once the
# keys are gone, unless the keys were copied, too. What a run spent of a privacy budget stays
# spent (O20).

_FILES = {
    "config.yaml", "policy.json", "plan.json", "roster.json", "result.json", "metrics.jsonl",
    "attacks.json", "baseline.json", "waivers.json", "rehearsal.json", "bundle.zip",
    "approvals.json", "charter.json", "checkpoints.json",
}  # fmt: skip
_PIECE = r"[A-Za-z0-9_-]+/[A-Za-z0-9_.-]+"  # of a party
_FOLDERS = {
    "attacks": r".+\.json", "ledger": r".+\.jsonl", "heads": r".+\.checkpoint",
    "checkpoints": r".+\.npz", "private": _PIECE, "captured": _PIECE,
    "models": r"[A-Za-z0-9_-]+/(model|last)",
    "forgotten": r".+\.jsonl", "budgets": r".+\.checkpoint",
    "report": r"(report\.(html|json|md)|(inventory|findings|attacks|budget)\.csv)",
}  # fmt: skip
"""What a run folder holds, and files in its folders; see `secure_fgl.store.run_folder`."""
_KEYS = {"state": "", "captures": "captures", "models": "models"}
"""Where the keys to each kind of locked piece lie, below the folder of all keys."""


@dataclass(frozen=True)
class Deleted:
    """What was deleted.

    Attributes:
        run: its name.
        keys: of which kinds of pieces keys were destroyed: ``state``, ``captures``, ``models``.
    """

    run: str
    keys: tuple[str, ...]


def delete(path: str | Path, *, unfinished: bool = False) -> Deleted:
    """Destroy the keys of a run of this machine that are here, then its folder.

    Done again after it was interrupted, it goes on where it was.

    Args:
        path: the run folder.
        unfinished: also a run without a result, which then cannot be resumed.

    Raises:
        UsageError: it is no run folder, or a party's; it holds what no run writes; the run is not
            over; its keys belong to another folder; a process is at work on it; or something is
            still there afterwards. But in the last case nothing was removed.
        EvidenceError: the roster or the result cannot be read.
        LedgerError: the key of its kept state could not be removed; its pieces and folder stay.
    """
    given = Path(path)
    run = Run(given)
    _check(run, given, unfinished=unfinished)
    name, place = run_name(run.name), os.fsencode(given.resolve())
    keys = {kind: Folder(default_folder() / sub) for kind, sub in _KEYS.items()}
    there = [kind for kind, folder in keys.items() if folder.there(name)]
    for kind in there:
        # A roster names whichever run its writer likes: a folder from elsewhere removes no keys.
        if keys[kind].read(f"{name}/folder") != place:
            raise UsageError(
                f"The keys to {kind} that are here are not known to belong to {given}.",
                why="the folder was moved or copied, names a run of yours, or is of an older "
                "program; nothing was removed",
                fix=f"if they are to go, remove {keys[kind].path / name} by hand, and delete again",
            )
    StateStores(name, given).tidy()
    for kind in there:
        keys[kind].remove_tree(name)
        if keys[kind].there(name):
            raise UsageError(
                f"The keys to {kind} could not be removed; the folder was left.",
                why="they, or their folder, are not writable",
                fix=f"look at {keys[kind].path / name}, and delete again",
            )
    whole = given.resolve()
    Folder(whole.parent).remove_tree(whole.name)
    if os.path.lexists(whole):
        raise UsageError(
            f"{given} could not be removed as a whole; the keys to what it kept are gone.",
            why="it, or something in it, is not writable",
            fix="make it writable, and remove it by hand",
        )
    return Deleted(name, tuple(there))


def _check(run: Run, given: Path, *, unfinished: bool) -> None:
    """Raise UsageError unless this is a folder that a run on this machine alone has made."""
    if run.party is not None:
        raise UsageError(
            f"{given} is one party's side of a run between organisations.",
            why="its ledger is evidence for the others",
            fix="secure-fgl site forget PARTY destroys what it kept, under its signature",
        )
    if given.is_symlink():
        raise UsageError(f"{given} is a link.", fix="name the folder itself")
    if strangers := sorted(_strangers(given)):
        raise UsageError(
            f"{given} holds something that no run writes: {strangers[0]}.",
            why="it may be yours",
            fix="move it elsewhere, and delete again",
        )
    over = run.result.get("verdict", NOT_JUDGED) != NOT_JUDGED
    if not over and not unfinished:
        raise UsageError(
            f"The run in {given} has no result: it goes on, or was killed.",
            why="once its keys are gone nobody can resume it",
            fix="resume it, or delete it with --unfinished",
        )


def _strangers(folder: Path) -> Iterator[str]:
    """Yield what no run writes, by its path in a run folder; links are none of ours."""
    for at, folders, files in os.walk(folder):
        below = "" if at == str(folder) else f"{os.path.relpath(at, folder)}/"
        first, _, _ = below.partition("/")
        for name in files:
            wanted = _FOLDERS.get(first) if below else None
            path = (below + name).removeprefix(f"{first}/")
            fits = re.fullmatch(wanted, path) if wanted else not below and name in _FILES
            if os.path.islink(os.path.join(at, name)) or not (fits or is_temporary(name)):
                yield below + name
        deep = below == f"{first}/" and "/" in _FOLDERS.get(first, "")  # a folder for each party
        for name in folders:
            known = deep if below else name in _FOLDERS
            if os.path.islink(os.path.join(at, name)) or not known:
                yield below + name
