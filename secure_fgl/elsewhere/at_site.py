"""What one site can attack with its own captures and data alone.

Of its own client all is here: what it said, computed again and held against its ledger, and what
it was given. Of the cohort's total a client has what follows from the models that it was given:
from one captured round to the next, or to its own model at the end. No other client's data or
message is here. The controls need some: clients drawn from the site's own statistics
(`secure_fgl.data.stand_ins`) answer the very same Asks. They are nobody's, and no row is on them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from audits.attacks import Canaries, Exposure, Material, Released
from protocols.disclosures.names import Disclosure
from protocols.errors import EvidenceError, LedgerError, OtherEvidence, OtherVersion, SecureFglError
from protocols.forms import Exchange
from protocols.messages import Message
from protocols.policy.guard import find
from protocols.sessions.store.recording import Captured
from protocols.wire.roles import Role
from secure_fgl.attack_inputs.again import SaidInAsk
from secure_fgl.attack_inputs.captured_sent import (
    Arrays,
    agree,
    fields,
    rounded,
    summed,
    tested_of,
    truth_of,
    updates,
    weighs,
)
from secure_fgl.attack_inputs.materials import canaries_of
from secure_fgl.attack_inputs.models import released_models
from secure_fgl.attack_inputs.replayed import NeedsPlugin, ReplayedRun, verified
from secure_fgl.errors import UsageError
from secure_fgl.plugins.in_use import Given
from secure_fgl.run.driver import one_thread_and_deterministic
from secure_fgl.store.finished_run import Run

__all__ = ["material_of_site"]

_CONTROLS = 4
"""Clients that are drawn for the controls; each attack's null averages over three or four."""
_WHOLE = {"delta", "count"}
_NO_CHANGE = "no captured message of this client holds a change of the model"
_WEIGHED = (
    "vectors that are weighed are looked at where all sides lie (audit gather): whom a row "
    "holds follows from what all of them said"
)
_NO_TOTAL = (
    "this client was given no model after a captured round, from which the cohort's total would "
    "follow: capture all rounds (capture: {rounds: all}), or keep models"
)


def material_of_site(
    run: Run, *, profile: str = "quick", data: Path | None = None, plugins: Sequence[Given] = ()
) -> Material:
    """Return what the attacks at one site may use.

    Args:
        run: one party's own side.
        profile: ``quick`` looks at the first captured round, ``default`` at all of them.
        data: the data folder, in which this site's own table is; no other one is opened.
        plugins: the auditor's own copies of the run's plug-ins.

    Raises:
        EvidenceError: the evidence is broken, or a capture is not what the ledger says was sent.
        UsageError: this party is no client, or the data named are not the run's.
    """
    case = verified(run)
    side = case.view.side
    if case.roster.party(side).role is not Role.CLIENT:
        raise UsageError(
            f"{side} has no data of its own, so there is no truth here to hold attacks against.",
            fix="run the attacks at a client's site, or on the run of all sides (audit gather)",
        )
    try:
        with one_thread_and_deterministic():
            replay = _with_controls(ReplayedRun.of(run, case, data, plugins, True), side)
            found, missing = _captured(replay, run, first_only=profile == "quick")
            released = _released(run, replay, side)
            tested = {side: tested_of(replay.sites[side])}
            canaries, uncoined = _canaries(replay)
    except OtherVersion as error:
        raise OtherEvidence("captured", *error.facts) from error
    except LedgerError as error:
        raise EvidenceError("captured", error.what) from error
    except EvidenceError:
        raise
    except SecureFglError as error:
        if (data is not None or plugins) and not isinstance(error, NeedsPlugin):
            raise
        return Material(
            case, missing=error.what, unread=True, unasked=error.what, unreleased=error.what,
            uncoined=error.what, units=frozenset({side}),
        )  # fmt: skip
    return Material(
        case=case,
        layers=replay.layers,
        exposures=tuple(found),
        released=released,
        tested=tested,
        canaries=canaries,
        uncoined=uncoined,
        missing=missing,
        unread=bool(missing),
        unasked="crafted models are tried where all clients' code and data are",
        simulated=case.roster_file.simulated,
        units=frozenset({side}),
    )


def _with_controls(replay: ReplayedRun, side: str) -> ReplayedRun:
    """Return the replay with this site's client and a few that were drawn."""
    others = [name for name in replay.sites if name != side][:_CONTROLS]
    kept = sorted([side, *others])
    sites, training = ({n: of[n] for n in kept} for of in (replay.sites, replay.training))
    return replace(replay, sites=sites, training=training)


def _canaries(replay: ReplayedRun) -> tuple[Canaries | None, str]:
    """Return this client's canaries; or why what it sent tells nothing of them."""
    try:
        return canaries_of(replay), ""
    except UsageError as error:
        return None, f"{error.what} {error.why or ''}".strip()


def _captured(replay: ReplayedRun, run: Run, *, first_only: bool) -> tuple[list[Exposure], str]:
    """Return what was captured of this site's updates, with controls; or why there is nothing."""
    case, side = replay.case, replay.case.view.side
    if case.policy.capture is None:
        return [], f"policy {case.policy.name!r} forbids capture"
    try:
        answers = replay.answers_of(side, replay.sites[side])
    except UsageError as error:  # its keys are gone: the days are over, or it was forgotten
        return [], f"{error.what} {error.why or ''}".strip()
    asked = [a for a in answers if updates(replay.exchange_of(a))]
    if not asked:
        return [], _WEIGHED if weighs(case) else _NO_CHANGE
    clear = find(case.policy.chain(Disclosure.SUM), "unsafe_clear") is not None
    found: list[Exposure] = []
    for place, answer in enumerate(asked):
        after = None if clear else _model_after(replay, run, asked, place)
        if clear or after is not None:
            found += _exposed(replay, answer, after)
        if found and first_only:
            break
    return found, "" if found else _NO_TOTAL


def _model_after(replay: ReplayedRun, run: Run, asked: Sequence[Captured], place: int) -> Any:
    """Return the model that this client had after the round of an answer, (d,); None: unknown."""
    now = asked[place]
    for later in asked[place + 1 :]:
        if later.round == now.round + 1:
            return fields(*later.given).get("weights")
    side, last = replay.case.view.side, replay.case.plan.rounds
    downloaded = replay.config.evaluation.at == "downloaded"
    if now.round != last or not downloaded or side not in run.client_models.openable():
        return None
    model = run.client_models.open(side, last=True).model
    return None if model.own is not None else np.asarray(model.shared, dtype=np.float64)


def _exposed(replay: ReplayedRun, answer: Captured, after: Any) -> Iterator[Exposure]:
    """Yield one Ask as it is known here: of this client, and of those that are drawn.

    Args:
        replay: of the run.
        answer: what this client captured.
        after: the model after the round; None: its own message left in clear.
    """
    case, side = replay.case, replay.case.view.side
    exchange = replay.exchange_of(answer)
    (update,) = updates(exchange)
    mine = replay.said_again(side, answer, exchange)
    if after is None:
        seen: Arrays | None = replay.clear(answer, exchange, update)
        _agree(replay, mine, seen or {}, update)
    else:
        seen = _change(mine, after, update)
    drawn = [_drawn(replay, name, answer, exchange) for name in replay.sites if name != side]
    for one in (mine, *drawn):
        told = seen
        if after is None and one is not mine:
            told = fields(rounded(summed(case, exchange)[0], one.messages, update))
        yield one.exposure(replay, update, told, 1 if after is None else len(case.plan.clients))


def _agree(replay: ReplayedRun, mine: SaidInAsk, seen: Arrays, update: type[Message]) -> None:
    """Raise EvidenceError unless what left is what was computed again, where nothing is drawn."""
    plan = replay.case.plan
    if plan.training is None and all(item.noise is None for item in plan.items):
        layout = summed(replay.case, mine.exchange)[0]
        agree(layout, [fields(rounded(layout, mine.messages, update))], seen, update)


def _change(mine: SaidInAsk, after: Any, update: type[Message]) -> Arrays | None:
    """Return what models tell of the total: the cohort's mean change; None: they do not tell it."""
    before = fields(*mine.answer.given).get("weights")
    raw = fields(next(m for m in mine.messages if type(m) is update))
    if before is None or set(raw) - _WHOLE or not before.shape == after.shape == raw["delta"].shape:
        return None
    told = {"delta": after - before}
    return {**told, "count": np.ones(1)} if "count" in raw else told


def _drawn(replay: ReplayedRun, name: str, answer: Captured, exchange: Exchange) -> SaidInAsk:
    """Let a client that was drawn answer the same Ask, from the memory with which runs begin."""
    site = replay.sites[name]
    site.memory, site.draws = {}, {}
    said = exchange.answer(site, *answer.given)
    parts = said if isinstance(said, tuple) else (said,)
    messages = tuple(message for message in parts if message is not None)
    truth = truth_of(site, replay.task.spec, replay.config.model.layers)
    return SaidInAsk(name, truth, answer, exchange, messages, None)


def _released(run: Run, replay: ReplayedRun, side: str) -> Released:
    """Return this client's model as the one that is asked about; others' are not here."""
    found = released_models(run, replay.case, replay.config, replay.task, replay.sites)
    if side not in found.own:
        return replace(found, shared={}, own={})
    # Asked about the drawn clients' records too, which none of them trained: they choose the prior.
    return replace(found, shared={"this client's": found.own[side]}, own={}, unshared="", unkept="")
