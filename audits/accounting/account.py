"""The account of a run's privacy loss: planned, and as its ledgers bear it out (O16-O21).

Reading never changes anything: an account is a pure function of a run's files. Unit: one client;
adjacency: zero-out. It is counted per client; a sum over clients would mean nothing. Where training
was private, single training records are a second unit with an account of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from audits.accounting import models, rows, training
from audits.accounting.counted import counted, counted_reasons, scored_of
from audits.accounting.engines import Meter, false_noise
from audits.accounting.models import Account
from audits.accounting.rows import Tally, order, order_of, order_reasons
from audits.evidence import own_files
from audits.evidence.run_files import RunView
from audits.evidence.steps import UNSIGNED_SIDE, Case, Status, Verification, run_checks
from protocols.errors import EvidenceError
from protocols.privacy.accounting import rounded_up

__all__ = ["Account", "account", "account_of"]

_TOLERANCE = 1e-9
NOTES = (
    "Who took part when, and the sizes of all envelopes, are visible and not covered.",
    "Whether a value was clipped stands in a site's own ledger and in reports; it is not noised.",
    "A record below the target proves nothing beyond the stated assumptions.",
)


def account(view: RunView) -> Account:
    """Return the account of a run.

    Raises:
        EvidenceError: plan, policy or roster cannot be read, or the plan states noise that is none.
            A run whose evidence fails further on still gets its account, which says so.
    """
    case = Case(view.folder_only)
    case.plan, case.policy, case.roster  # noqa: B018 - raises at step "files"
    if case.view.side and not case.yardstick.clients:
        raise EvidenceError("accounting", f"{case.view.side} is no client, and only these spend")
    return account_of(case, run_checks(case, own_files.evidence(case)))


def account_of(case: Case, evidence: Verification) -> Account:
    """Return the account of a case whose evidence was checked; see :func:`account`."""
    tally = Tally(case)
    make, noised = rows.labels(tally), bool(tally.items)
    clients = tuple(rows.clients(tally, make))
    recorded = tally.recorded(tally.worst)
    reasons = (*_bare(tally), *(_reasons(tally, clients) if noised else ()))
    single = training.Recorded(case, case.plan.training) if case.plan.training is not None else None
    scored = scored_of(case)
    ordered = order_of(tally)
    if ordered is not None:
        reasons += tuple(order_reasons(ordered))
    for one in scored:
        reasons += tuple(counted_reasons(one))
    if single is not None:
        reasons += tuple(training.reasons(single))
    elif case.policy.training is not None:
        reasons += ("the policy asks for private training and the plan holds none",)
    covers_all = noised and not tally.not_covered
    falsified: models.Verdict = "FALSIFIED" if reasons else "NOT FALSIFIED"
    return Account(
        run=case.roster_file.run,
        algorithm=case.plan.algorithm,
        policy=case.plan.policy,
        plan_digest=case.plan_digest,
        statement=_statement(tally, recorded, whole=single is not None or bool(scored)),
        epsilon=make.epsilon(recorded, "run") if covers_all else rows.unbounded(),
        target=make.epsilon(tally.target, tally.scope) if noised else None,
        verdict=falsified if noised or single is not None or scored or reasons else "NO CLAIM",
        reasons=reasons,
        covered=tally.covered,
        not_covered=tally.not_covered,
        noise=tuple(rows.noise(tally)),
        items=tuple(rows.items(tally, make)),
        scopes=tuple(rows.scopes(tally, make)) if noised else (),
        views=tuple(rows.views(tally, make)) if noised else (),
        engines=tuple(rows.engines(tally, make)) if noised else (),
        honest_share=tuple(rows.shares(tally, make)) if noised else (),
        clients=clients,
        records=training.records(single) if single is not None else None,
        counted=tuple(map(counted, scored)),
        order=order(ordered) if ordered is not None else None,
        notes=(*NOTES, *_of_one_side(evidence)),
        evidence=evidence.verdict,
        failed=tuple(step.name for step in evidence.steps if step.status is Status.FAIL),
    )


def _of_one_side(evidence: Verification) -> tuple[str, ...]:
    if not evidence.side:
        return ()
    return (ONE_SIDE, UNSIGNED) if evidence.verdict == UNSIGNED_SIDE else (ONE_SIDE,)


UNSIGNED = (
    "No head of this ledger is signed: what was spent in entries that were cut off is not counted."
)
ONE_SIDE = (
    "This is one client's side: over how many others its totals were opened is not in its ledger, "
    "and the number that the plan counts on stands in its place."
)
OUTSIDE = "who took part, and when"
"""What no message says and no noise covers, in every run."""


def _statement(tally: Tally, recorded: float, *, whole: bool) -> str:
    """Return the sentence to quote: a number only if everything is covered (O16).

    With `whole` another sentence follows, on single records, and this one says whom it is about.
    """
    run = "for the run, for a client as a whole" if whole else "for the run"
    covered = ", ".join(tally.covered) or "nothing"
    if tally.not_covered or not tally.items:
        missing = ", ".join(found.item for found in tally.not_covered) or "nothing"
        return f"ε = ∞ {run}; covered: {covered}; not covered: {missing}"
    return (
        f"ε = {rounded_up(recorded)} at δ = {tally.delta:g} for the run, against the "
        f"aggregator; covered: {covered}; not covered: {OUTSIDE}"
    )


def _bare(tally: Tally) -> Iterator[str]:
    """Yield what is planned, or left, without the noise of one's own that the policy asks for."""
    if false := false_noise(tally.plan, tally.policy):
        yield false
    if tally.bare:
        yield f"{tally.bare[0][:60]} left a client without noise of its own"


def _reasons(tally: Tally, clients: Sequence[models.ClientFacts]) -> Iterator[str]:
    """Yield why the record does not bear the plan's target out."""
    most = tally.target * (1.0 + _TOLERANCE)
    goal = f"the target of {tally.target:g}"
    for value, what in (
        (tally.meter.own(tally.planned()), "the noise that was planned gives"),
        (tally.recorded(tally.worst), "the ledgers show"),
    ):
        if not value <= most:
            yield f"{what} epsilon {rounded_up(value)}, above {goal}"
    cap = tally.policy.budget
    if cap is None:
        return
    if bare := [c.name for c in clients if c.releases and c.budget is None]:
        who = f"{len(bare)} clients, {bare[0]} among them,"
        yield f"{who} noised before a budget was reserved (O20)"
    over = [c.name for c in clients if c.budget and not c.budget.epsilon.as_float() <= cap.epsilon]
    if over:
        yield f"the budget of {len(over)} clients, {over[0]} among them, is exceeded (O20)"
    # What all runs reserved holds what this one comes to, at the budget's delta.
    meter = Meter(tally.noises, cap.delta, len(tally.plan.clients))
    least = meter.own(tally.planned()) * (1.0 - _TOLERANCE)
    if few := [c.name for c in clients if c.budget and c.budget.epsilon.as_float() < least]:
        who = f"{len(few)} clients, {few[0]} among them,"
        yield f"{who} reserved less than the run's noise comes to (O20)"
