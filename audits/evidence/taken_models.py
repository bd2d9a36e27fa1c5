"""Which of the models that the aggregator calls the run's are also in clients' ledgers.

A client records the digest of each shared model that it took, or computed from totals.
"""

from __future__ import annotations

from collections import defaultdict

from audits.evidence.run_files import fail
from audits.evidence.steps import Case
from protocols.plan.steps import Service, Step

__all__ = ["check_taken", "taken_models"]


def taken_models(case: Case) -> frozenset[str]:
    """Return the digests of shared models that more clients took than may collude.

    One that works with the aggregator is counted on under every policy.
    """
    clients, found = set(case.roster.clients), defaultdict[str, set[str]](set)
    for party, entry in case.ledger_index.of_kind("taken"):
        found[entry["digest"]] |= {party} & clients
    lying = max(1, case.policy.colluders)
    return frozenset(digest for digest, parties in found.items() if len(parties) > lying)


def check_taken(case: Case, final: str, best: str) -> str:
    """Hold what the aggregator states of its models against what clients took; return the rest.

    Clients take the last one where it is scored after the last round, and the best one with it. Of
    an Ask that all answered alike each took the same one (O8). Where clusters have models of their
    own, the aggregator states all of them as one.

    Args:
        case: the run.
        final: digest of the last model; empty: there is none.
        best: likewise.

    Returns:
        A clause on what no client vouches for; empty where nothing is left.

    Raises:
        EvidenceError: at step ``result``: they are others than clients took.
    """
    by_ask: dict[int, set[str]] = defaultdict(set)
    for party, entry in case.ledger_index.of_kind("taken"):
        ask = case.exchanges.all.get(entry["exchange"])
        if ask is None or party not in ask.members or entry["round"] != ask.round:
            fail("result", f"{party} took a model that nobody handed out")
        by_ask[entry["exchange"]].add(entry["digest"])
    if case.plan.splits is not None or not final:
        return ""
    if any(len(found) > 1 for found in by_ask.values()):
        fail("result", "clients of one Ask took different models")
    asks = {i.exchange for i in case.plan.all_of(Service.ASK, Step.DOWN) if not i.per_round}
    rounds_end = max((n for n, a in case.exchanges.all.items() if a.name not in asks), default=-1)
    last = {digest for n, found in by_ask.items() if n > rounds_end for digest in found}
    if last and final not in last:
        fail("result", "the last model is not the one that clients took after the last round")
    if last and best and best not in taken_models(case):
        fail("result", "the best model is none that clients took")
    return (
        ""
        if {final, best} - {""} <= taken_models(case)
        else "; no client vouches for the last model"
    )
