"""What the attacks on a finished run are given: captured rounds, and what was computed in them.

A capture holds what a client was given, its memory before it answered and the bytes that left
(`protocols.evidence.captures`). What the client said before protection is computed again from the
data, with the same code and the same draws; it is never stored. The bytes are held against the
ledger first.
Mixtures are looked at in `secure_fgl.attack_inputs.mixtures`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from audits.attacks import Canaries, Material, Redrawn, Released, Replica
from audits.evidence.steps import Case
from protocols.errors import EvidenceError, LedgerError, OtherEvidence, OtherVersion, SecureFglError
from secure_fgl.attack_inputs.again import neighbour_means
from secure_fgl.attack_inputs.captured_sent import (
    layers_of,
    says_updates,
    tested_of,
    updates,
    weighs,
)
from secure_fgl.attack_inputs.models import canary_material, released_models, unopened_of
from secure_fgl.attack_inputs.redraws import redrawn_of
from secure_fgl.attack_inputs.replayed import (
    NeedsPlugin,
    ReplayedRun,
    has_replica,
    replica_of,
    verified,
)
from secure_fgl.attack_inputs.weighed import UNWEIGHED
from secure_fgl.errors import UsageError
from secure_fgl.plugins.in_use import Given
from secure_fgl.run.driver import one_thread_and_deterministic
from secure_fgl.store.finished_run import Run

__all__ = ["canaries_of", "layers_of", "material"]

_SHOWN = 8
_UNOPENED = "no captured message could be computed again, as coins of canaries were never opened"
_NO_NODES = "Models are crafted for node tasks only so far."


def material(
    run: Run,
    *,
    profile: str = "quick",
    data: Path | None = None,
    plugins: Sequence[Given] = (),
    stand_ins: bool = False,
) -> Material:
    """Return everything that the attacks on a run may use.

    The evidence is verified first, and the data come only from `data`, or else from the folder that
    SECURE_FGL_DATA names: whoever made the run folder chooses no path of this machine.

    Args:
        run: the run.
        profile: ``quick`` looks at the Asks that hold some client's first captured round,
            ``default`` at all of them, and draws audit replicas where clients are few.
        data: the data folder.
        plugins: the auditor's own copies of the run's plug-ins. Without them what takes the run's
            own code is not tested.
        stand_ins: the run is a rehearsal, with clients whose data are drawn.

    Raises:
        EvidenceError: the evidence is broken, or a capture is not what the ledger says was sent.
        UsageError: `plugins` are not those of the run's plan.
    """
    case = verified(run)
    if case.policy.capture is None:
        return _uncaptured(run, case, data, plugins, stand_ins)
    replay: ReplayedRun | None = None
    try:
        with one_thread_and_deterministic():
            replay = ReplayedRun.of(run, case, data, plugins, stand_ins)
            found = tuple(replay.exposures(first_only=profile == "quick"))
            mixed = tuple(replay.mixed(first_only=profile == "quick"))
            items = tuple(replay.items())
            tagged = tuple(replay.tagged())
            compared = replay.compared()
            answers, rows = replay.answers(), replay.rows()
            released = replace(_released(run, replay), **neighbour_means(replay, replay.checked()))
            tested, canaries = _tested(replay), canaries_of(replay)
            redrawn = redrawn_of(replay) if profile == "default" and found else Redrawn()
    except OtherVersion as error:
        raise OtherEvidence("captured", *error.facts) from error
    except LedgerError as error:  # a piece is spoilt: nobody may switch attacks off that way
        raise EvidenceError("captured", error.what) from error
    except EvidenceError:
        raise
    except SecureFglError as error:  # no keys, no data: what needs no capture is still audited
        if (data is not None or plugins) and not isinstance(error, NeedsPlugin):
            raise
        return _unread(run, case, replay, error.what)
    missing, unread, unopened = "", False, unopened_of(replay.sites, replay.training)
    if not found:
        unread = weighs(case) or bool(unopened)
        missing = UNWEIGHED if weighs(case) else "no captured message holds a model update"
        missing = f"{_UNOPENED}: {', '.join(unopened[:_SHOWN])}" if unopened else missing
    replica, unasked = _asked(replay)
    return Material(
        case=case,
        layers=replay.layers,
        exposures=found,
        mixed=mixed,
        items=items,
        tagged=tagged,
        compared=compared,
        answers=answers,
        rows=rows,
        replica=replica,
        tested=tested,
        unasked=unasked,
        released=released,
        canaries=canaries,
        redrawn=redrawn,
        missing=missing,
        unread=unread,
        simulated=case.roster_file.simulated,
    )


def _unread(run: Run, case: Case, replay: ReplayedRun | None, why: str) -> Material:
    """Return what there is of a run whose captures, or whose data, cannot be read here."""
    return Material(
        case=case,
        unasked=why,
        released=None if replay is None else _released(run, replay),
        unreleased="" if replay is not None else why,
        canaries=None if replay is None else canaries_of(replay),
        uncoined="" if replay is not None else why,
        missing=why,
        unread=True,
        simulated=case.roster_file.simulated,
    )


def _uncaptured(
    run: Run, case: Case, data: Path | None, plugins: Sequence[Given], stand_ins: bool
) -> Material:
    """Return what there is of a run that captured nothing: its models, and its clients once more.

    And how many test records they have, and their answers to each other's generators and what rows
    tell, where a run has these.

    Raises:
        SecureFglError: `data` names data that are not the run's.
    """
    found = Material(
        case=case,
        unasked=_NO_NODES,
        missing=f"policy {case.policy.name!r} forbids capture",
        unread=says_updates(case),
        simulated=case.roster_file.simulated,
    )
    try:
        with one_thread_and_deterministic():
            replay = ReplayedRun.of(run, case, data, plugins, stand_ins)
            released = _released(run, replay)
            whole = replace(
                found, released=released, tested=_tested(replay), canaries=canaries_of(replay)
            )
            if not has_replica(case):
                return whole
            answers, rows = replay.answers(), replay.rows()
    except SecureFglError as error:
        if (data is not None or plugins) and not isinstance(error, NeedsPlugin):
            raise
        unasked = error.what if has_replica(case) else _NO_NODES
        return replace(found, unasked=unasked, unreleased=error.what, uncoined=error.what)
    replica, unasked = _asked(replay)
    return replace(whole, replica=replica, unasked=unasked, answers=answers, rows=rows)


def _released(run: Run, replay: ReplayedRun) -> Released:
    """Return the models that the run handed out."""
    return released_models(run, replay.case, replay.config, replay.task, replay.sites)


def canaries_of(replay: ReplayedRun) -> Canaries | None:
    """Return the run's canaries."""
    asked = {e.name for e in replay.form.exchanges if updates(e)}
    asked = asked or {e.name for e in replay.form.exchanges if e.per_round and e.back}
    facts = replay.case, replay.config, replay.task, replay.sites, replay.training
    return canary_material(*facts, asked)


def _tested(replay: ReplayedRun) -> dict[str, int]:
    """Return client -> its number of test records."""
    return {client: tested_of(site) for client, site in replay.sites.items()}


def _asked(replay: ReplayedRun) -> tuple[Replica | None, str]:
    """Return the clients of a run, or why nobody can be asked again."""
    if not has_replica(replay.case):
        return None, _NO_NODES
    try:
        return replica_of(replay), ""
    except UsageError as error:
        return None, error.what
