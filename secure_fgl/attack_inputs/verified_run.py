"""What an audit may use of a run folder that somebody else made: nothing before it is verified."""

from __future__ import annotations

import os
from pathlib import Path

from audits.evidence.steps import Case, Status
from audits.evidence.verify import verify
from protocols.errors import EvidenceError
from secure_fgl.config import OWN, Config
from secure_fgl.data.datasets import ROOT_VARIABLE
from secure_fgl.errors import UsageError
from secure_fgl.store.finished_run import Run

__all__ = ["config_of", "verified"]


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
    """Return the run's configuration, which its ledgers name, with the auditor's own paths."""
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
    return own.model_copy(update={"data": named})
