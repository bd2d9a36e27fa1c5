"""Clusters: made by cuts that were signed, the same for all of a cohort, and never few apart (O5).

A client writes down every other cluster that it lets itself be asked for, and the key authority
every cut that it signs. Part of the step ``opened``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NoReturn

from audits.evidence.asked import Asked
from audits.evidence.cluster_sizes import cluster_sizes
from audits.evidence.ledger_index import Sent
from audits.evidence.run_files import fail
from audits.evidence.steps import Case
from audits.report.words import plural
from protocols.disclosures.names import Disclosure
from protocols.errors import CohortChanged
from protocols.evidence.ledger import Entry
from protocols.plan.steps import Step
from protocols.policy.cohort_changes import divided
from protocols.wire.roles import Role

Groups = tuple[int, ...]
_MOST = 8  # changes of clusters that are told, the last ones


def clusters(case: Case) -> str:
    """Hold the clusters of a run to the plan; return a clause of what there was, else nothing."""
    told = {kind: [*case.ledger_index.of_kind(kind)] for kind in ("cluster", "cut")}
    splits, everybody = case.plan.splits, (1 << len(case.plan.clients)) - 1
    if splits is None:
        for _, entry in (*told["cluster"], *told["cut"]):
            _fail(entry, "is of a cluster, and the plan never splits clients")
        return ""
    groups: Groups = (everybody,)
    known: dict[int, int] = {everybody: 0}  # clusters that signed cuts make, and since when
    for party, entry in told["cut"]:
        groups = _cut(case, party, entry, groups, known)
    inside: dict[str, list[tuple[int, int]]] = {
        name: [(0, everybody)] for name in case.plan.clients
    }
    for party, entry in told["cluster"]:
        groups = _cluster(case, party, entry, groups, known, inside)
    for ask in case.exchanges.all.values():
        _alike(case, ask, inside)
    said = f"; clusters of {_sizes(case)}"
    return said + (", by signed cuts" if splits.signed else ", by the aggregator's word")


def _sizes(case: Case) -> str:
    """Return how many clients the clusters hold, and from which round on."""
    found, last = cluster_sizes(case), case.plan.rounds
    told = [plural(len(case.plan.clients), "client")]
    for row in found.rows[1:][-_MOST:] if found is not None else ():
        since = f"from round {row.round} on" if row.round <= last else "after the last round"
        told.append(f"{since} {', '.join(map(str, row.sizes))}")
    return "; ".join(told)


def _cut(case: Case, party: str, entry: Entry, groups: Groups, known: dict[int, int]) -> Groups:
    """Check a cut that was signed: of a known cluster, by cosines of all of it that were opened."""
    cluster, side, number = _set(entry, "cluster"), _set(entry, "side"), entry["exchange"]
    if case.roster.party(party).role is not Role.KEY_AUTHORITY:
        _fail(entry, f"was cut by {party}, which may not")
    if known.get(cluster, number) >= number or not side or side & ~cluster or side == cluster:
        _fail(entry, "is no cut of a cluster")
    ask = case.exchanges.all.get(number)
    opened = ask.of(Disclosure.SIMILARITY, Step.OPENED) if ask is not None else []
    if ask is None or not _there(entry, opened):
        _fail(entry, "rests on cosines that were not opened")
    if _bits(case, ask.members) != cluster or ask.vanished:
        _fail(entry, "rests on cosines of others than the cluster's clients")
    for one in (side, cluster & ~side):
        groups = _apart(case, entry, groups, one)
        known.setdefault(one, number)
    return groups


def _cluster(
    case: Case,
    party: str,
    entry: Entry,
    groups: Groups,
    known: dict[int, int],
    inside: dict[str, list[tuple[int, int]]],
) -> Groups:
    """Check a cluster that a client let itself be asked for: a part of its old one, signed."""
    cluster, number, splits = _set(entry, "cluster"), entry["exchange"], case.plan.splits
    if party not in inside:
        _fail(entry, f"is of {party}, which is no client")
    before = inside[party][-1][1]
    if cluster & ~before or not cluster >> case.roster.place(party) & 1:
        _fail(entry, f"is no part of what {party} was in before")
    if splits is not None and splits.signed and known.get(cluster, number) >= number:
        _fail(entry, f"comes of no cut that was signed before {party} was asked")
    ask = case.exchanges.all.get(number)
    if not _there(entry, [s for s in ask.downs if s.recipient == party] if ask is not None else []):
        _fail(entry, f"is of no Ask that went to {party}")
    inside[party].append((number, cluster))
    return _apart(case, entry, groups, cluster)


def _apart(case: Case, entry: Entry, groups: Groups, cluster: int) -> Groups:
    splits = case.plan.splits
    leaves = splits is not None and splits.guard == "leave"  # the plan says so
    try:
        return divided(groups, cluster, "floor", 1 if leaves else case.plan.smallest_cohort)
    except CohortChanged:
        _fail(entry, f"sets fewer than {case.plan.smallest_cohort} clients apart")


def _alike(case: Case, ask: Asked, inside: dict[str, list[tuple[int, int]]]) -> None:
    """See that all who answered an Ask were told one cluster, which holds all who were asked."""
    if not (ask.summed or ask.awaited) or not ask.arrived:
        return
    last = {[c for since, c in inside[name] if since <= ask.number][-1] for name in ask.arrived}
    members = _bits(case, ask.members)
    if len(last) != 1 or members & ~last.pop():
        fail("opened", f"exchange {ask.number} is of no cluster that its members were told (O5)")


def _there(entry: Entry, sents: Sequence[Sent]) -> bool:
    """Tell whether an entry names round and cohort as what was sent then does."""
    return any(
        sent.round == entry["round"] and sent.facts["cohort"] == entry["cohort"] for sent in sents
    )


def _bits(case: Case, names: Iterable[str]) -> int:
    return int.from_bytes(case.roster.mask(sorted(names)), "little")


def _set(entry: Entry, name: str) -> int:
    try:
        return int.from_bytes(bytes.fromhex(entry[name]), "little")
    except ValueError:
        _fail(entry, f"says a {name} that is no set of clients")


def _fail(entry: Entry, what: str) -> NoReturn:
    fail("opened", f"entry {entry['seq']} of {entry['party']} {what} (O5)")
