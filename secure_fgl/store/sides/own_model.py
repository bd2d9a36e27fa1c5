"""The model that one party of a run between organisations has: kept at its end, and taken out.

A client has the one that it was given or trained, locked in its own folder; the aggregator has what
all clients share. Nobody else has one: the key authority, witnesses and relays see none.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from algorithms.tasks import Site
from audits.evidence.roster_file import read_roster
from audits.evidence.run_files import RunView
from audits.evidence.steps import Status
from audits.evidence.verify import verify
from protocols.errors import EvidenceError
from protocols.wire.roles import Role
from secure_fgl.errors import UsageError
from secure_fgl.store.client_models import ClientModels, NoSuchModel, Origin
from secure_fgl.store.finished_run import Run
from secure_fgl.store.sides.party_side import place_of
from secure_fgl.store.sides.release import check_released, check_statement

if TYPE_CHECKING:
    from protocols.sessions.engine import Session
    from secure_fgl.store.trained_model import TrainedModel

__all__ = ["keep_own", "own_model"]


def keep_own(
    models: ClientModels, session: Session, site: Site | None, prepared: Any
) -> UsageError | None:
    """Lock a client's own model, and name it in the client's ledger before that is closed.

    A model that cannot be written keeps no ledger from its end: the error is returned, not raised.

    Args:
        models: of the party's side of the run.
        session: of the client.
        site: of the client, without its data; None: this party is no client.
        prepared: a `secure_fgl.run.simulation.Preparation`.
    """
    if site is None or session.ended or not prepared.config.keep_models:
        return None
    try:
        kept = models.keep(session.name, site, Origin.of(prepared), last=True)
    except UsageError as error:
        return error
    for piece, digest in kept.items():
        session.record("model", {"digest": digest, "piece": piece})
    return None


def own_model(
    party: str | Path,
    *,
    run: str | None = None,
    last: bool = False,
    audited: str | Path | None = None,
    statement: tuple[Path, Mapping[str, str]] | None = None,
) -> TrainedModel:
    """Return the model of one party's side, once that side's evidence was verified.

    Args:
        party: the party's folder.
        run: the run's name; None: the one run that the party joined.
        last: the model after the last round, in place of the best one on validation.
        audited: the gathered run that attacks were run on, where the policy asks for any.
        statement: of ``audit release``, and the public keys (hex) by name that may have signed it.

    Raises:
        UsageError: the party never joined that run, has no model, or the policy holds it back;
            why is said.
        EvidenceError: at the first step of ``audit verify`` that failed, but the report's own.
    """
    found = Run(place_of(party, run))
    view = found.view()
    role = read_roster(view.roster_text).roster.party(view.side).role
    if role not in (Role.CLIENT, Role.AGGREGATOR):
        raise NoSuchModel(
            f"{view.side} has no model.",
            why=f"its role in the charter is {role}: models go to clients, and what all clients "
            "share to the aggregator, which adds it up",
            fix="ask a client for its own model, or the aggregator for the shared one",
        )
    _check(view)
    check_released(found, Run(audited) if audited is not None else None)
    if statement is not None:
        check_statement(found, *statement)
    take = _shared if role is Role.AGGREGATOR else _own
    made = take(found, view, last=last)
    return replace(made, facts={**made.facts, "run": found.name})


def _shared(found: Run, view: RunView, *, last: bool) -> TrainedModel:
    from secure_fgl.store import trained_model

    name = "best" if not last and found.folder.holds("checkpoints/best.npz") else "final"
    checkpoint = found.folder.read(f"checkpoints/{name}.npz")
    # What all signed; the step "approvals" has read it by now.
    agreed = json.loads(view.charter_text)["spec"]
    return trained_model.shared(view, name, checkpoint, lambda: agreed)


def _own(found: Run, view: RunView, *, last: bool) -> TrainedModel:
    from secure_fgl.store import trained_model

    models = found.client_models
    if not models.clients():
        raise NoSuchModel(
            f"{view.side} has no model of this run.",
            why=_why_none(view),
            fix="export it where the run is over, before it is forgotten",
        )
    return trained_model.of_client(models.open(view.side, last=last))


def _why_none(view: RunView) -> str:
    from audits.checks.parties import forgotten, told
    from audits.evidence.steps import Case

    case = Case(view)
    notes: Mapping[str, Any] = forgotten(case)
    if said := told(notes).removeprefix("; "):
        return said
    if not any(True for _ in case.ledger_index.of_kind("close")):
        return "the run is not over at this party: a client keeps its model when it ends"
    return "it never trained, or was away when the run ended"


def _check(view: RunView) -> None:
    for step in verify(view).steps:
        if step.status is Status.FAIL and step.name != "report":
            raise EvidenceError(step.name, f"{step.detail}; the model was not used")
