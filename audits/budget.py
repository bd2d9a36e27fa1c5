"""The report's statement of formal privacy; ``secure-fgl audit account`` has all of it."""

from __future__ import annotations

from audits.accounting.models import INFINITE, NO_DELTA, rounded_up
from audits.accounting.tally import Tally
from audits.models import Account
from audits.steps import Case
from protocols.plan import Plan
from protocols.roster import Role

_TOLERANCE = 1e-9  # of adding up in another order


def account(case: Case) -> Account:
    """Return what a run spent, by its ledgers (O16).

    Raises:
        EvidenceError: the plan states noise that is none.
    """
    if all(item.noise is None for item in case.plan.items):
        return _without_noise(case.plan)
    tally = Tally(case)
    spent = tally.recorded(tally.worst)
    recorded = rounded_up(spent)
    covers_all = bool(tally.covered) and not tally.not_covered
    return Account(
        unit="client",
        scope="run",
        mechanism=", ".join(sorted({noise.mechanism for noise in tally.noises.values()})),
        epsilon=recorded if covers_all else INFINITE,
        recorded=recorded,
        target=rounded_up(tally.target),
        borne_out=spent <= tally.target * (1.0 + _TOLERANCE),
        delta=repr(tally.delta),
        covered=tally.covered,
        not_covered=tuple(found.item for found in tally.not_covered),
        statement=f"{case.plan.budget}. The ledgers show epsilon {recorded} of the client that "
        "spent most on what is covered",
    )


def _without_noise(plan: Plan) -> Account:
    private = {
        message.name
        for item in plan.items
        if item.sender == Role.CLIENT and ".up." in item.id
        for message in item.messages
    }
    return Account(
        unit="client",
        scope="run",
        mechanism="none",
        epsilon=INFINITE,
        recorded=INFINITE,
        target=INFINITE,
        borne_out=True,
        delta=NO_DELTA,
        covered=(),
        not_covered=tuple(sorted(private)),
        statement=plan.budget,
    )
