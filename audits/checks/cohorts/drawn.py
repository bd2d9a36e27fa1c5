"""Cohorts drawn by lot: all parties recorded one draw, and asked were its cohorts alone."""

from __future__ import annotations

from collections.abc import Sequence

from audits.evidence.asked import Asked
from audits.evidence.exchanges import drawn_by
from audits.evidence.run_files import fail
from audits.evidence.steps import Case
from protocols.errors import PolicyError
from protocols.evidence.ledger import Entry
from protocols.plan.drawn import clear_seed, turn
from protocols.plan.steps import Step
from protocols.wire.roles import Role


def drawn(case: Case, exchanges: Sequence[Asked]) -> None:
    """Check who was asked against what was drawn; raises EvidenceError at step ``opened``.

    Every client computed the cohorts itself and recorded what from; all that took part recorded the
    same, and whoever answered an Ask took part. No cohort of an Ask reaches into two of them, and
    rounds took them in turn.
    """
    entries = list(case.ledger_index.of_kind("drawn"))
    if (planned := case.plan.drawn) is None:
        if entries:
            fail("opened", f"{entries[0][0]} recorded a draw that the plan does not have")
        return
    found: dict[str, tuple[object, ...]] = {}
    for party, entry in entries:
        if party in found or case.roster.party(party).role not in (Role.CLIENT, Role.AGGREGATOR):
            fail("opened", f"{party} recorded cohorts twice, or draws none")
        cohorts = drawn_by(entry, case.plan, case.roster)
        if entry["cohorts"] != planned.cohorts or not cohorts or not _planned(case, entry):
            fail("opened", f"what {party} recorded of the draw is of another plan")
        try:
            planned.left(sum(map(len, cohorts)), case.policy)
        except PolicyError as error:
            fail("opened", f"what {party} recorded of the draw: {error.what}")
        found[party] = (entry["members"], entry["seed"])
    if len(set(found.values())) > 1:
        fail("opened", "parties recorded different draws: the aggregator told them different ones")
    for ask in exchanges:
        answers = {s.party for s in ask.sents if s.step is Step.UP}
        if not answers:
            continue
        if late := sorted({case.exchanges.aggregator, *answers} - found.keys()):
            fail("opened", f"{late[0]} took part in exchange {ask.number} and recorded no draw")
        cohort = case.exchanges.cohort_of(min(ask.members))
        if not ask.members <= set(cohort):
            fail("opened", f"exchange {ask.number} asked clients of another cohort than was drawn")
        if _in_turn(case, ask) and turn(case.exchanges.cohorts, ask.round) != cohort:
            fail("opened", f"exchange {ask.number} asked a cohort in another's round")


def _planned(case: Case, entry: Entry) -> bool:
    """Tell whether a seed may be this run's: where sums leave in clear it is the plan's own."""
    if case.plan.drawn is None or case.plan.drawn.by_lot:
        return True
    return bool(entry["seed"] == clear_seed(case.plan.seed, case.roster.clients).hex())


def _in_turn(case: Case, ask: Asked) -> bool:
    """Tell whether an Ask is of rounds alone: those outside ask all cohorts, one by one."""
    items = [i for i in case.plan.items if i.exchange == ask.name and i.step is Step.UP]
    return all(i.per_round and i.times <= i.per_round * case.plan.rounds for i in items)
