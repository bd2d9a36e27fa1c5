"""Approvals of a plan on disk: read, held against a run that is to begin, and kept with it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from audits.checks.parties import LIMIT, PlanApproval, approvals_text, hold, read_approvals
from protocols.errors import EvidenceError
from protocols.plan.plan import Plan
from protocols.policy.policy import PrivacyPolicy
from secure_fgl.errors import PlanDrift, UsageError
from secure_fgl.run.clock import clock
from secure_fgl.store.files import content
from secure_fgl.store.run_folder import RunFolder

__all__ = ["approved", "keep"]

_FILE = "approvals.json"
_MAKE = "have each approver run: secure-fgl approve PLAN --as NAME --key KEY.pem --out FILE"


def approved(
    policy: PrivacyPolicy,
    plan: Plan,
    files: Sequence[str | Path],
    folder: RunFolder,
    resume: bool,
) -> bytes:
    """Return what is kept with a run of the approvals that its policy asks for; else no bytes.

    Args:
        policy: of the run.
        plan: that is about to run.
        files: as ``secure-fgl approve`` writes them.
        folder: of the run.
        resume: it was killed, and its own approvals count where no files are given.

    Raises:
        PlanDrift: somebody approved another plan.
        UsageError: a file is no approval; an approval is missing, expired, or not signed with the
            key that the policy names; or the policy asks for none.
    """
    given = tuple(one for file in files for one in _read(Path(file)))
    if not files and resume and (data := folder.bytes(_FILE)):
        given = read_approvals(data)
    if not policy.approvals and not given:
        return b""
    if not policy.approvals:
        raise UsageError(
            f"Policy {policy.name!r} asks for no approvals.",
            why="whose signatures would count is the policy's to say",
            fix="leave --approvals out, or name approvers and their keys in the policy",
        )
    if other := sorted(one.name for one in given if one.plan != plan.digest):
        raise PlanDrift([f"{name} approved another plan than this one" for name in other])
    if len({one.name for one in given}) != len(given):
        raise UsageError("One approver's approval is given twice.", fix="give one file each")
    try:
        hold(given, policy.approvals, plan.digest, clock())
    except EvidenceError as error:
        what = error.what.partition(": ")[2] or error.what
        raise UsageError(f"This run is not approved: {what}.", fix=_MAKE) from error
    if resume and (began := folder.bytes(_FILE)):
        return began  # newer ones let it go on; that it was approved when it began, these show
    return approvals_text(given)


def keep(folder: RunFolder, approvals: bytes) -> None:
    """Keep what `approved` returned with the run; nothing, where that is nothing."""
    if approvals:
        folder.text(_FILE, approvals.decode())


def _read(path: Path) -> tuple[PlanApproval, ...]:
    try:
        data = content(path, LIMIT)
    except OSError as error:
        raise UsageError(
            f"The approval {path} cannot be read ({error.strerror}).", fix="check the path"
        ) from error
    try:
        return read_approvals(data or b"")
    except EvidenceError as error:
        raise UsageError(
            f"{path} is no approval.",
            why="it was cut, edited by hand, or is another file",
            fix=_MAKE,
        ) from error
