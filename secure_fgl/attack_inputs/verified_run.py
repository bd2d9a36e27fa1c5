"""What an audit may use of a run folder that somebody else made: nothing before it is verified."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from audits.evidence.steps import Case, Status
from audits.evidence.verify import verify
from protocols.errors import EvidenceError
from protocols.plan.drift import code_drift
from secure_fgl.config import OWN, Config
from secure_fgl.data.datasets import ROOT_VARIABLE
from secure_fgl.errors import UsageError
from secure_fgl.plugins.in_use import Given, Plugins
from secure_fgl.store.finished_run import Run

__all__ = ["NeedsPlugin", "config_of", "plugins_of", "verified"]


class NeedsPlugin(UsageError):
    """The algorithm, model or data of a run are a plug-in, and the auditor gave none."""


def verified(run: Run) -> Case:
    """Return a run as it was read, after every step of ``audit verify`` but the report's own.

    What is used later is what was verified: the folder is not read again.

    Raises:
        EvidenceError: at the first step that failed.
    """
    view = run.view()
    for step in verify(view).steps:
        if step.status is Status.FAIL and step.name != "report":
            raise EvidenceError(step.name, f"{step.detail}; nothing of the run was used further")
    return Case(view)


def config_of(case: Case, data: Path | None) -> Config:
    """Return the run's configuration, which its ledgers name, with the auditor's own paths.

    It names no plug-in: see `plugins_of`.
    """
    document = Config.of_others((case.view.config_text or b"").decode("utf-8", "replace"))
    root = data or os.environ.get(ROOT_VARIABLE) or None
    own = document.shared()
    named = own.data.model_copy(update={"root": None if root is None else str(root)})
    if named.name == OWN and root is None:
        raise UsageError(
            "The data of this run lie in folders of their own, and none was named.",
            why="an audit takes no path from a run folder: whoever made it could name any",
            fix=f"give the folder with --data, or in {ROOT_VARIABLE}",
        )
    said = False if document.isolate is False else None  # which the plan says, too
    return own.model_copy(update={"data": named, "plugins": (), "isolate": said})


def plugins_of(case: Case, given: Sequence[Given]) -> Plugins:
    """Return the auditor's own copies of the run's plug-ins, read and not run.

    Nothing is looked for because a run names it, not even what is installed here.

    Args:
        case: the run.
        given: what the auditor named.

    Raises:
        NeedsPlugin: the run has plug-ins, and nothing was given.
        UsageError: what was given is not what the plan names, by name and digest.
    """
    planned = case.plan.plugins
    if planned and not given:
        names = ", ".join(entry.rpartition(".")[2] for entry in planned)
        raise NeedsPlugin(
            f"This run's code is a plug-in ({names}), which no audit takes from a run: not tested "
            "without it; give your own copy with --plugin FILE.",
            why="an audit imports nothing because a run folder names it",
            fix="ask whoever approved the plan for the file; its digest stands there",
        )
    found = Plugins((), given)
    if differences := code_drift(planned, found.code):
        raise UsageError(
            f"What was given with --plugin is not what this run's plan names: {differences[0]}.",
            why="another file, another version, or one that the run does not use",
            fix="give the file whose SHA-256 stands in the plan, under 'code'",
        )
    return found
